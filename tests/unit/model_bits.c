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

/* Runs of the given sizes, repeated until all is run. */
static void run_cut(heed_session *session, const int *sizes, int n_sizes, float *logits) {
  for (int done = 0, i = 0; done < LENGTH; i++) {
    int n = sizes[i % n_sizes] < LENGTH - done ? sizes[i % n_sizes] : LENGTH - done;
    assert_int_equal(heed_session_run(session, ids + done, n, logits + (size_t)done * VOCABULARY, n, NULL), HEED_OK);
    done += n;
  }
}

static float *reference;

static void compare(const float *logits, const char *how) {
  if (memcmp(logits, reference, sizeof *logits * LENGTH * VOCABULARY)) fail_msg("%s: other bits", how);
}

static void check_model(const char *path) {
  static const int all[] = {LENGTH}, one[] = {1}, seven[] = {7}, tile[] = {64}, mixed[] = {3, 61, 1, 130, 17, 2, 64, 9};
  static const struct {
    const char *name;
    const int *sizes;
    int count, chunk;
  } cuts[] = {{"one pass", all, 1, LENGTH},   {"passes of 64", all, 1, 64}, {"passes of 7", all, 1, 7},  {"runs of 7", seven, 1, 0},
              {"runs of 64", tile, 1, 0},     {"mixed runs", mixed, 8, 5}, {"token by token", one, 1, 0}};
  static const heed_level levels[] = {HEED_LEVEL_SCALAR, HEED_LEVEL_AVX2, HEED_LEVEL_AVX2X2, HEED_LEVEL_AVX512};
  float *logits = malloc(sizeof *logits * LENGTH * VOCABULARY);
  bool first = true;
  for (int l = 0; l < 4; l++) {
    if (!heed_level_available(levels[l])) continue;
    for (int threads = 1; threads <= 3; threads++) {
      heed_context *context = context_at(levels[l], threads);
      heed_model *model = test_model(context, path);
      for (int c = 0; c < 7; c++) {
        if (levels[l] == HEED_LEVEL_SCALAR && threads > 1 && c != 5) continue; // slow, and cut alike
        heed_session *session = test_session(context, model, cuts[c].chunk);
        char how[96];
        snprintf(how, sizeof how, "%s, %s, %d threads, %s", path, heed_level_name(levels[l]), threads, cuts[c].name);
        run_cut(session, cuts[c].sizes, cuts[c].count, first ? reference : logits);
        if (!first) compare(logits, how);
        first = false;
        heed_session_free(session);
      }
      heed_model_free(model);
      heed_context_free(context);
    }
  }
  free(logits);
}

static void test_f32(void **state) {
  (void)state;
  check_model(STORIES);
}
static void test_q8_0(void **state) {
  (void)state;
  check_model(TEST_MODELS "stories260k/stories260k-q8_0.gguf");
}
static void test_hugging_face(void **state) {
  (void)state;
  check_model(STORIES_HF);
}

/* Going back and taking another way leaves no trace. */
static void test_truncation(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_model *model = test_model(context, STORIES);
  heed_session *session = test_session(context, model, 0);
  float *logits = malloc(sizeof *logits * LENGTH * VOCABULARY);
  ok(context, heed_session_run(session, ids, LENGTH, reference, LENGTH, NULL));
  static const int lengths[] = {329, 257, 256, 255, 64, 63, 1, 0};
  for (int i = 0; i < 8; i++) {
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_q8_0), cmocka_unit_test(test_hugging_face),
                                     cmocka_unit_test(test_truncation)};
  choose_ids();
  reference = malloc(sizeof *reference * LENGTH * VOCABULARY);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  free(reference);
  return failures;
}
