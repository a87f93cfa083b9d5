/* The logits of a position have the same bits however the sequence was cut into runs and passes, on every level, for every number of threads. */
#include "../model_test.h"

enum { LENGTH = 330, VOCABULARY = 512 }; // beyond one page of the cache (256) and past several tiles of 64 keys

static int32_t ids[LENGTH];

static void choose_ids(void) {
  uint32_t state = 12345;
  for (int i = 0; i < LENGTH; i++) {
    state = state * 1664525u + 1013904223u;
    ids[i] = (int32_t)(state >> 16) % VOCABULARY;
  }
  ids[0] = 1;
}

static heed_context *context_at(heed_level level, int threads) {
  return test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads});
}

/* One run of `prefix` tokens, then runs of the given sizes, repeated until all is run. */
typedef struct cut {
  const char *name;
  int prefix, chunk;
  int sizes[8];
} cut;

static const cut cuts[] = {
    {"one pass", LENGTH, LENGTH, {0}},
    {"mixed runs", 0, 5, {3, 61, 1, 130, 17, 2, 64, 9}},
    {"passes of 64", LENGTH, 64, {0}},
    {"passes of 7", LENGTH, 7, {0}},
    {"runs of 64", 0, 0, {64, 64, 64, 64, 64, 64, 64, 64}},
    {"runs of 7", 120, 0, {7, 7, 7, 7, 7, 7, 7, 7}},
    {"token by token", 240, 0, {1, 1, 1, 1, 1, 1, 1, 1}}, // over the end of a page
};
enum { CUTS = sizeof cuts / sizeof cuts[0] };

static void run_cut(heed_session *session, const cut *c, float *logits) {
  for (int done = 0, i = 0; done < LENGTH;) {
    int wanted = done < c->prefix ? c->prefix : c->sizes[i++ % 8], n = wanted < LENGTH - done ? wanted : LENGTH - done;
    assert_int_equal(heed_session_run(session, ids + done, n, logits + (size_t)done * VOCABULARY, n, NULL), HEED_OK);
    done += n;
  }
}

static float *reference;

/* All cuts at one level and number of threads; the very first run is what all others must equal. */
static void check_at(const char *path, heed_level level, int threads, int n_cuts, bool *first) {
  float *logits = malloc(sizeof *logits * LENGTH * VOCABULARY);
  heed_context *context = context_at(level, threads);
  heed_model *model = test_model(context, path);
  for (int c = 0; c < n_cuts; c++) {
    heed_session *session = test_session(context, model, cuts[c].chunk);
    run_cut(session, &cuts[c], *first ? reference : logits);
    if (!*first && memcmp(logits, reference, sizeof *logits * LENGTH * VOCABULARY))
      fail_msg("%s, %s, %d threads, %s: other bits", path, heed_level_name(level), threads, cuts[c].name);
    *first = false;
    heed_session_free(session);
  }
  heed_model_free(model);
  heed_context_free(context);
  free(logits);
}

static void test_levels_and_threads(void **state) {
  (void)state;
  bool first = true;
  for (heed_level level = HEED_LEVEL_COUNT - 1; level >= HEED_LEVEL_SCALAR; level--) {
    if (!heed_level_available(level)) continue;
    check_at(STORIES, level, 1, level == HEED_LEVEL_SCALAR ? 2 : CUTS, &first);
    for (int threads = 2; threads <= 3; threads++) check_at(STORIES, level, threads, 2, &first);
  }
}

/* Other storage types, and half-split rotary pairs, cut in all ways. */
static void test_files(void **state) {
  (void)state;
  static const char *const files[] = {TEST_MODELS "stories260k/stories260k-q8_0.gguf", TEST_MODELS "stories260k/stories260k-f16.gguf",
                                      STORIES_HF};
  for (int i = 0; i < 3; i++) {
    bool first = true;
    check_at(files[i], HEED_LEVEL_AUTO, 1, CUTS, &first);
    check_at(files[i], HEED_LEVEL_SCALAR, 1, 2, &first);
  }
}

/* An encoder runs a sequence at once. */
static void test_encoder(void **state) {
  (void)state;
  enum { TOKENS = 61, KINDS = 96 };
  static float logits[2][TOKENS * KINDS];
  int32_t some[TOKENS];
  bool first = true;
  for (int i = 0; i < TOKENS; i++) some[i] = ids[i] % KINDS;
  for (heed_level level = HEED_LEVEL_COUNT - 1; level >= HEED_LEVEL_SCALAR; level--) {
    if (!heed_level_available(level)) continue;
    for (int threads = 1; threads <= 3; threads++) {
      heed_context *context = context_at(level, threads);
      heed_model *model = test_model(context, BERT);
      heed_session *session = test_session(context, model, 7);
      ok(context, heed_session_run(session, some, TOKENS, logits[!first], TOKENS, NULL));
      if (!first && memcmp(logits[0], logits[1], sizeof logits[0])) fail_msg("%s, %d threads: other bits", heed_level_name(level), threads);
      first = false;
      heed_session_free(session);
      heed_model_free(model);
      heed_context_free(context);
    }
  }
}

/* Going back and taking another way leaves no trace. */
static void test_truncation(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_model *model = test_model(context, STORIES);
  heed_session *session = test_session(context, model, 0);
  float *logits = malloc(sizeof *logits * LENGTH * VOCABULARY);
  ok(context, heed_session_run(session, ids, LENGTH, reference, LENGTH, NULL));
  static const int lengths[] = {329, 257, 256, 255, 63, 0};
  for (int i = 0; i < 6; i++) {
    int keep = lengths[i], other = LENGTH - keep;
    ok(context, heed_session_truncate(session, keep));
    int32_t away[LENGTH];
    for (int j = 0; j < other; j++) away[j] = (ids[keep + j] + 17) % VOCABULARY;
    ok(context, heed_session_run(session, away, other, NULL, 0, NULL));
    int32_t whole[LENGTH];
    memcpy(whole, ids, sizeof whole);
    assert_int_equal(heed_session_reuse(session, whole, LENGTH), keep);
    ok(context, heed_session_run(session, ids + keep, other, logits, other, NULL));
    assert_memory_equal(logits, reference + (size_t)keep * VOCABULARY, sizeof *logits * (size_t)other * VOCABULARY);
  }
  free(logits);
  heed_session_free(session);
  heed_model_free(model);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels_and_threads), cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_encoder), cmocka_unit_test(test_truncation)};
  choose_ids();
  reference = malloc(sizeof *reference * LENGTH * VOCABULARY);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  free(reference);
  return failures;
}
