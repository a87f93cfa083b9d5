/* model_test.h: what the tests of models share: fixtures, expected arrays, logits and attention collected from a run. */
#ifndef HEED_MODEL_TEST_H
#define HEED_MODEL_TEST_H

#include "test.h"

#include "../include/heed/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_MODELS   HEED_TEST_DATA "/models/"
#define TEST_EXPECTED HEED_TEST_DATA "/expected/"
#define STORIES       TEST_MODELS "stories260k/stories260k-f32.gguf"
#define STORIES_HF    TEST_MODELS "stories260k-hf"
#define SORT          TEST_MODELS "gpt-nano-sort"
#define BERT          TEST_EXPECTED "families/bert"

static inline heed_model *test_model(heed_context *context, const char *path) {
  heed_model *model = NULL;
  ok(context, heed_model_load(context, path, &model));
  return model;
}

static inline heed_session *test_session(heed_context *context, heed_model *model, int64_t chunk) {
  heed_session *session = NULL;
  ok(context, heed_session_new(context, model, &(heed_session_options){.size = sizeof(heed_session_options), .chunk = chunk}, &session));
  return session;
}

static inline heed_model_info test_info(const heed_model *model) {
  heed_model_info info = {.size = sizeof info};
  assert_int_equal(heed_model_describe(model, &info), HEED_OK);
  return info;
}

/* One array of an expected file. */
static inline heed_view test_array(heed_context *context, const char *file, const char *name) {
  char path[512];
  heed_view view;
  snprintf(path, sizeof path, "%s:%s", file, name);
  ok(context, heed_array_load(context, path, &view));
  return view;
}

static inline json_t *test_json(const char *path) {
  json_error_t error;
  json_t *json = json_load_file(path, 0, &error);
  if (!json) fail_msg("%s: %s", path, error.text);
  return json;
}

/* A list of ids; free it. */
static inline int32_t *test_ids(const json_t *list, int64_t *count) {
  *count = (int64_t)json_array_size(list);
  int32_t *ids = malloc((size_t)(*count + 1) * sizeof *ids);
  for (int64_t i = 0; i < *count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
  return ids;
}

static inline double largest_difference(const float *a, const float *b, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs((double)a[i] - (double)b[i]);
    if (!(d <= largest)) largest = d; // NaN too
  }
  return largest;
}

/* Text and ids of a generation. */
typedef struct heard {
  char text[8192];
  size_t length;
  int32_t ids[1024];
  int64_t count;
} heard;

static inline bool hear(void *user, int32_t id, heed_text text) {
  heard *h = user;
  if (h->length + text.length < sizeof h->text) memcpy(h->text + h->length, text.data, text.length), h->length += text.length;
  h->text[h->length] = 0;
  if (id >= 0 && h->count < 1024) h->ids[h->count++] = id;
  return true;
}

#endif
