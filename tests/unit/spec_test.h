/* spec_test.h: tokenizers from arrays, without a file, for the tests of the algorithms; and the same algorithms written as simply as possible. */
#ifndef HEED_SPEC_TEST_H
#define HEED_SPEC_TEST_H

#include "text_test.h"

#include "../../src/text/bpe.h"

typedef struct spec_test {
  hd_tokenizer_spec spec; /* first: the accessors get only this */
  hd_token tokens[2048];
  const char *merges[2048]; /* "left right" */
} spec_test;

static void spec_token(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) { *out = ((const spec_test *)spec->source)->tokens[id]; }

static heed_status spec_merge(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text *left, heed_text *right) {
  return hd_merge_parts(context, spec, i, text_of(((const spec_test *)spec->source)->merges[i]), left, right);
}

static inline void spec_begin(spec_test *test, bool byte_level) {
  memset(test, 0, sizeof *test);
  test->spec = (hd_tokenizer_spec){
      .file = "test",
      .tokens_place = "tokens",
      .merges_place = "merges",
      .settings = {.spelling = byte_level ? HD_SPELLS_BYTES : HD_SPELLS_MARKS, .bos = -1, .eos = -1, .unknown = -1, .stand_in = -1},
      .source = test,
      .token = spec_token,
      .merge = spec_merge};
  if (byte_level) test->spec.pre_tokenizer = hd_pre_tokenizer_named(text_of("gpt2"));
}

static inline int32_t spec_add(spec_test *test, const char *text, float score, hd_token_kind kind) {
  test->tokens[test->spec.token_count] = (hd_token){.text = text_of(text), .score = score, .kind = kind};
  return (int32_t)test->spec.token_count++;
}

static inline void spec_add_merge(spec_test *test, const char *merge) { test->merges[test->spec.merge_count++] = merge; }

static inline heed_tokenizer *spec_build(heed_context *context, const spec_test *test) {
  heed_tokenizer *tokenizer;
  ok(context, hd_tokenizer_new(context, &test->spec, &tokenizer));
  return tokenizer;
}

/* CPU seconds that encoding takes; the ids are given back at once. */
static inline double encoding_seconds(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, int64_t *count) {
  int32_t *ids;
  clock_t begin = clock();
  ok(context, heed_encode(context, tokenizer, text, NULL, &ids, count));
  double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  heed_ids_free(context, ids, *count);
  return seconds;
}

#endif
