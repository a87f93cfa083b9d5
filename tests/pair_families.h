/* pair_families.h: models with an encoder and a decoder whose answers are known: one family of tests/data/expected/families with what is expected of two rows. */
#ifndef TEST_PAIR_FAMILIES_H
#define TEST_PAIR_FAMILIES_H

#include "model_test.h"

static const char *const families[] = {"t5", "bart", "marian"};
enum { FAMILIES = 3, VOCABULARY = 96 };

typedef struct family {
  char path[256], file[300]; /* the model; what is expected */
  heed_model *model;
  heed_model_info info;
  heed_view source, mask, target, logits;
} family;

static inline void family_begin(heed_context *context, family *f, const char *name) {
  snprintf(f->path, sizeof f->path, TEST_EXPECTED "families/%s", name);
  snprintf(f->file, sizeof f->file, "%s/expected.safetensors", f->path);
  f->model = test_model(context, f->path);
  f->info = test_info(f->model);
  f->source = test_array(context, f->file, "input_ids");
  f->mask = test_array(context, f->file, "attention_mask");
  f->target = test_array(context, f->file, "decoder_input_ids");
  f->logits = test_array(context, f->file, "logits");
}

static inline void family_end(heed_context *context, family *f) {
  heed_array_free(context, &f->source);
  heed_array_free(context, &f->mask);
  heed_array_free(context, &f->target);
  heed_array_free(context, &f->logits);
  heed_model_free(f->model);
}

/* Tokens of a row's source that the mask keeps: those behind fill the batch up. */
static inline int64_t source_length(const family *f, int64_t row) {
  const uint8_t *mask = (const uint8_t *)f->mask.data + row * f->source.dim[1];
  int64_t n = 0;
  while (n < f->source.dim[1] && mask[n]) n++;
  return n;
}

static inline const int32_t *source_ids(const family *f, int64_t row) { return (const int32_t *)f->source.data + row * f->source.dim[1]; }
static inline const int32_t *target_ids(const family *f, int64_t row) { return (const int32_t *)f->target.data + row * f->target.dim[1]; }

#endif
