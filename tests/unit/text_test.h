/* text_test.h: what the tests of tokenizers share: comparing ids so that a failure shows text and both lists. */
#ifndef HEED_TEXT_TEST_H
#define HEED_TEXT_TEST_H

#include "test.h"

#include "../../include/heed/text.h"

#include <jansson.h>
#include <stdio.h>

/* How much longer a measured time may be where every access is checked. */
enum { SANITIZER_FACTOR = SANITIZED ? 10 : 1 };

static inline heed_text text_of(const char *text) { return (heed_text){text, strlen(text)}; }

static inline json_t *read_json(const char *path) {
  json_error_t error;
  json_t *value = json_load_file(path, JSON_ALLOW_NUL, &error);
  if (!value) fail_msg("%s: %s", path, error.text);
  return value;
}

static inline void print_ids(const char *name, const int32_t *ids, int64_t count) {
  print_error("%s:", name);
  for (int64_t i = 0; i < count && i < 100; i++) print_error(" %d", (int)ids[i]);
  print_error("\n");
}

/* The ids of text are exactly these. */
static inline void expect_ids(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, const heed_encode_options *options,
                              const int32_t *wanted, int64_t wanted_count) {
  int32_t *ids;
  int64_t count;
  ok(context, heed_encode(context, tokenizer, text, options, &ids, &count));
  if (count != wanted_count || (count && memcmp(ids, wanted, (size_t)count * sizeof *ids) != 0)) {
    print_ids("got", ids, count);
    print_ids("expected", wanted, wanted_count);
    fail_msg("ids of \"%.*s\"", (int)text.length, text.data);
  }
  heed_ids_free(context, ids, count);
}

static inline void expect_ids_json(heed_context *context, const heed_tokenizer *tokenizer, heed_text text,
                                   const heed_encode_options *options, const json_t *wanted) {
  int32_t ids[512];
  size_t count = json_array_size(wanted);
  assert_true(json_is_array(wanted) && count <= sizeof ids / sizeof *ids);
  for (size_t i = 0; i < count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(wanted, i));
  expect_ids(context, tokenizer, text, options, ids, (int64_t)count);
}

/* Everything that a decoder gives for ids; the caller frees it. */
static inline char *decode_all(heed_context *context, const heed_tokenizer *tokenizer, const heed_decode_options *options,
                               const int32_t *ids, int64_t count, size_t *length) {
  heed_decoder *decoder;
  heed_text piece;
  char *out = NULL;
  *length = 0;
  ok(context, heed_decoder_new(context, tokenizer, options, &decoder));
  for (int64_t i = 0; i <= count; i++) {
    if (i < count) ok(context, heed_decoder_push(decoder, ids[i], &piece));
    else ok(context, heed_decoder_finish(decoder, &piece));
    out = realloc(out, *length + piece.length + 1);
    assert_non_null(out);
    if (piece.length) memcpy(out + *length, piece.data, piece.length);
    *length += piece.length;
  }
  out[*length] = 0;
  heed_decoder_free(decoder);
  return out;
}

#endif
