/* Sampling against the rules written out naively: sort, cut, renormalise; and the draw's own frequencies. */
#include "../test.h"

#include "../../src/base/philox.h"
#include "../../include/heed/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static heed_context *context;

static int32_t sample(heed_sampling s, const float *logits, int64_t n, const int32_t *history, int64_t count, int64_t step) {
  int32_t id = -1;
  s.size = sizeof s;
  ok(context, heed_sample(context, &s, logits, n, history, count, step, &id));
  return id;
}

/* ---- the rules, naively ------------------------------------------------------------------------------------------------------ */

typedef struct entry {
  double logit, p;
  int32_t id;
} entry;

static int by_rank(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static void renormalise(entry *e, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += e[i].p;
  for (int64_t i = 0; i < n; i++) e[i].p /= sum;
}

/* The surviving candidates with their probabilities, likeliest first. */
static int64_t rules(const heed_sampling *s, const float *logits, int64_t n, const int32_t *history, int64_t count, entry *e) {
  int64_t window = s->repetition_window ? s->repetition_window : 64;
  for (int64_t i = 0; i < n; i++) {
    e[i] = (entry){.logit = logits[i], .id = (int32_t)i};
    bool seen = false;
    for (int64_t j = 0; j < count; j++) seen |= history[j] == i && j >= count - window;
    if (seen && s->repetition_penalty > 0)
      e[i].logit = (float)(e[i].logit > 0 ? e[i].logit / s->repetition_penalty : e[i].logit * s->repetition_penalty);
  }
  qsort(e, (size_t)n, sizeof *e, by_rank);
  for (int64_t i = 0; i < n; i++) e[i].p = exp((e[i].logit - e[0].logit) / s->temperature);
  if (s->top_k && s->top_k < n) n = s->top_k;
  renormalise(e, n);
  if (s->top_p > 0) {
    double sum = 0;
    int64_t keep = 0;
    while (keep < n && (keep == 0 || sum < s->top_p - 1e-12)) sum += e[keep++].p;
    n = keep;
  }
  if (s->min_p > 0) {
    int64_t keep = 1;
    while (keep < n && e[keep].p >= s->min_p * e[0].p) keep++;
    n = keep;
  }
  renormalise(e, n);
  return n;
}

static float noise(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(*state >> 40) / 0x1p24 * 8 - 4);
}

static void check_rules(heed_sampling s) {
  enum { N = 40, STEPS = 300 };
  uint64_t state = 99;
  float logits[N];
  int32_t history[100];
  entry e[N];
  for (int i = 0; i < N; i++) logits[i] = noise(&state);
  logits[7] = logits[8] = logits[9] = 3.5f; // ties
  logits[20] = -INFINITY;
  for (int i = 0; i < 100; i++) history[i] = (int32_t)((i * 7 + 3) % 25);
  int64_t n = rules(&s, logits, N, history, 100, e);
  for (int step = 0; step < STEPS; step++) {
    double goal = hd_philox_uniform(s.seed, 0x73616d70u, (uint64_t)step), sum = 0;
    int64_t i = 0;
    while (i < n - 1 && (sum += e[i].p) <= goal) i++;
    if (fabs(sum - goal) < 1e-9) continue; // on the edge, where rounding decides
    assert_int_equal(sample(s, logits, N, history, 100, step), e[i].id);
  }
}

static void test_rules(void **state) {
  (void)state;
  check_rules((heed_sampling){.temperature = 1});
  check_rules((heed_sampling){.temperature = 0.3, .seed = 5});
  check_rules((heed_sampling){.temperature = 1.5, .top_k = 5, .seed = 6});
  check_rules((heed_sampling){.temperature = 1, .top_k = 1});
  check_rules((heed_sampling){.temperature = 1, .top_k = 1000});
  check_rules((heed_sampling){.temperature = 1, .top_p = 0.7, .seed = 7});
  check_rules((heed_sampling){.temperature = 1, .top_p = 1e-9});
  check_rules((heed_sampling){.temperature = 1, .min_p = 0.2, .seed = 8});
  check_rules((heed_sampling){.temperature = 1, .min_p = 1});
  check_rules((heed_sampling){.temperature = 2, .top_k = 20, .top_p = 0.8, .min_p = 0.1, .seed = 9});
  check_rules((heed_sampling){.temperature = 1, .repetition_penalty = 1.7, .seed = 10});
  check_rules((heed_sampling){.temperature = 1, .repetition_penalty = 0.5, .repetition_window = 3, .seed = 11});
  check_rules((heed_sampling){
      .temperature = 0.8, .repetition_penalty = 3, .repetition_window = 1000, .top_k = 10, .top_p = 0.9, .seed = UINT64_MAX});
}

/* ---- the rest ---------------------------------------------------------------------------------------------------------------- */

static void test_greedy(void **state) {
  (void)state;
  const float logits[] = {1, 5, 5, -INFINITY, 5, 2}, negative[] = {-3, -1, -2};
  assert_int_equal(sample((heed_sampling){0}, logits, 6, NULL, 0, 0), 1); // the lowest id among equals
  int32_t id;
  ok(context, heed_sample(context, NULL, logits, 6, NULL, 0, 0, &id));
  assert_int_equal(id, 1);
  const int32_t one[] = {1}, all[] = {1, 2, 4, 1};
  heed_sampling penalty = {.repetition_penalty = 2};
  assert_int_equal(sample(penalty, logits, 6, one, 1, 0), 2);
  assert_int_equal(sample(penalty, logits, 6, all, 4, 0), 1);   // 2.5 each: repeated once or twice is the same
  assert_int_equal(sample(penalty, negative, 3, one, 1, 0), 1); // −1 becomes −2, a tie with id 2
  penalty.repetition_penalty = 2.5;
  assert_int_equal(sample(penalty, negative, 3, one, 1, 0), 2);
  penalty.repetition_window = 1;
  assert_int_equal(sample(penalty, logits, 6, (int32_t[]){1, 0}, 2, 0), 1); // outside the window
}

static void test_seeds(void **state) {
  (void)state;
  enum { N = 16, STEPS = 64 };
  float logits[N] = {0};
  int32_t first[STEPS], again[STEPS], other[STEPS];
  for (int i = 0; i < STEPS; i++) {
    first[i] = sample((heed_sampling){.temperature = 1, .seed = 1}, logits, N, NULL, 0, i);
    other[i] = sample((heed_sampling){.temperature = 1, .seed = 2}, logits, N, NULL, 0, i);
  }
  for (int i = STEPS; i-- > 0;) again[i] = sample((heed_sampling){.temperature = 1, .seed = 1}, logits, N, NULL, 0, i); // in any order
  assert_memory_equal(first, again, sizeof first);
  assert_memory_not_equal(first, other, sizeof first);
}

/* Each id as often as its probability says: 4000 draws, five standard deviations. */
static void test_frequencies(void **state) {
  (void)state;
  enum { N = 5, DRAWS = 4000 };
  const float logits[N] = {0, 1, -1, 0.5f, -INFINITY};
  int counts[N] = {0};
  double sum = 0;
  for (int i = 0; i < N; i++) sum += exp((double)logits[i]);
  for (int i = 0; i < DRAWS; i++) counts[sample((heed_sampling){.temperature = 1, .seed = 3}, logits, N, NULL, 0, i)]++;
  for (int i = 0; i < N; i++) {
    double p = exp((double)logits[i]) / sum;
    assert_true(fabs(counts[i] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)));
  }
}

static heed_status try(heed_sampling s, const float *logits, int64_t n) {
  int32_t id = 77;
  s.size = sizeof s;
  heed_status status = heed_sample(context, &s, logits, n, NULL, 0, 0, &id);
  if (status != HEED_OK) assert_int_equal(id, 77);
  return status;
}

static void test_refusals(void **state) {
  (void)state;
  const float fine[] = {1, 2}, nan[] = {1, NAN}, hidden[] = {-INFINITY, -INFINITY}, infinite[] = {0, INFINITY};
  assert_int_equal(try((heed_sampling){0}, fine, 2), HEED_OK);
  assert_int_equal(try((heed_sampling){0}, nan, 2), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "id 1"));
  assert_int_equal(try((heed_sampling){.temperature = 1}, nan, 2), HEED_E_ARGUMENT);
  assert_int_equal(try((heed_sampling){0}, hidden, 2), HEED_E_ARGUMENT);
  assert_int_equal(try((heed_sampling){0}, infinite, 2), HEED_E_ARGUMENT);
  assert_int_equal(try((heed_sampling){0}, fine, 0), HEED_E_ARGUMENT);
  assert_int_equal(try((heed_sampling){0}, NULL, 2), HEED_E_ARGUMENT);
  const heed_sampling wrong[] = {{.temperature = -1},
                                 {.temperature = NAN},
                                 {.top_k = -1},
                                 {.top_p = -0.1},
                                 {.top_p = 1.1},
                                 {.min_p = 2},
                                 {.min_p = NAN},
                                 {.repetition_penalty = -1},
                                 {.repetition_penalty = NAN},
                                 {.top_p = NAN},
                                 {.repetition_window = -1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(try(wrong[i], fine, 2), HEED_E_ARGUMENT);
  int32_t id, history[] = {2};
  assert_int_equal(heed_sample(context, NULL, fine, 2, history, 1, 0, &id), HEED_E_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_rules), cmocka_unit_test(test_seeds),
                                     cmocka_unit_test(test_frequencies), cmocka_unit_test(test_refusals)};
  context = test_context(NULL);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failures;
}
