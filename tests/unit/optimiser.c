/* Optimisers against plain loops in double precision, what a step must leave alone, equal bits on every level and any number of threads, and learning-rate schedules. */
#include "../../src/base/philox.h"
#include "../../src/tensor/tensor.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>

enum { PARAMETERS = 5, STEPS = 20 };

/* A matrix, a vector, a matrix that does not decay, one of several pieces, and one that is frozen. */
typedef struct set {
  heed_context *context;
  heed_parameters *parameters;
  heed_tensor *at[PARAMETERS];
  heed_optimiser *optimiser;
} set;

static float draw(uint64_t stream, int64_t i) { return (float)(2 * hd_philox_uniform(5, stream, (uint64_t)i) - 1); }

static set make(heed_context *context, const heed_optimiser_options *options) {
  static const struct {
    const char *name;
    int ndim;
    int64_t dim[2];
    bool no_decay, frozen;
  } shapes[PARAMETERS] = {{"matrix", 2, {3, 70}, 0, 0},
                          {"vector", 1, {7}, 0, 0},
                          {"table", 2, {5, 9}, 1, 0},
                          {"large", 2, {260, 301}, 0, 0},
                          {"frozen", 2, {4, 4}, 0, 1}};
  set s = {.context = context};
  ok(context, heed_parameters_new(context, &s.parameters));
  for (int p = 0; p < PARAMETERS; p++) {
    const heed_parameter_options how = {.size = sizeof how, .no_decay = shapes[p].no_decay, .frozen = shapes[p].frozen};
    ok(context, heed_parameters_add(s.parameters, shapes[p].name, shapes[p].ndim, shapes[p].dim, &how, &s.at[p]));
    for (int64_t i = 0; i < hd_count(s.at[p]); i++) hd_value(s.at[p])[i] = draw((uint64_t)p, i);
  }
  ok(context, heed_optimiser_new(context, s.parameters, options, &s.optimiser));
  return s;
}

static void drop(set *s) {
  heed_optimiser_free(s->optimiser);
  heed_parameters_free(s->parameters);
}

/* As if a backward pass had been. */
static void give_gradients(set *s, int step, double scale) {
  for (int p = 0; p < PARAMETERS; p++) {
    if (s->at[p]->frozen) continue;
    for (int64_t i = 0; i < hd_count(s->at[p]); i++)
      s->at[p]->buffer->gradient[i] = (float)(scale * draw(100 + (uint64_t)(step * PARAMETERS + p), i));
    s->at[p]->buffer->begun = true;
  }
}

static const heed_optimiser_options adamw = {
    .size = sizeof adamw, .kind = HEED_OPTIMISER_ADAMW, .has_betas = true, .beta1 = 0.9, .beta2 = 0.95, .decay = 0.1};
static const heed_optimiser_options sgd = {.size = sizeof sgd, .kind = HEED_OPTIMISER_SGD, .momentum = 0.9, .decay = 0.1};
static const heed_optimiser_options plain_sgd = {.size = sizeof plain_sgd, .kind = HEED_OPTIMISER_SGD};
static const heed_optimiser_options *const kinds[] = {&adamw, &sgd, &plain_sgd};

/* ---- against plain loops -------------------------------------------------------------------------------------------------------------- */

/* Numbers of all parameters, moments and gradients one after another. */
typedef struct naive {
  double *p, *m, *v;
  const heed_optimiser_options *options;
} naive;

static double naive_norm(const set *s) {
  double sum = 0;
  for (int p = 0; p < PARAMETERS; p++)
    for (int64_t i = 0; i < hd_count(s->at[p]) && !s->at[p]->frozen; i++) sum += pow(s->at[p]->buffer->gradient[i], 2);
  return sqrt(sum);
}

static void naive_step(const set *s, naive *n, int t, double rate, double factor) {
  int64_t at = 0;
  const heed_optimiser_options *o = n->options;
  for (int p = 0; p < PARAMETERS; p++)
    for (int64_t i = 0; i < hd_count(s->at[p]) && !s->at[p]->frozen; i++, at++) {
      const double g = factor * s->at[p]->buffer->gradient[i], decay = p == 0 || p == 3 ? o->decay : 0;
      double *x = &n->p[at], *m = &n->m[at], *v = &n->v[at];
      if (o->kind == HEED_OPTIMISER_ADAMW) {
        *m = o->beta1 * *m + (1 - o->beta1) * g;
        *v = o->beta2 * *v + (1 - o->beta2) * g * g;
        *x -= rate * decay * *x + rate * *m / (1 - pow(o->beta1, t)) / (sqrt(*v / (1 - pow(o->beta2, t))) + 1e-8);
      } else {
        *m = o->momentum * *m + g + decay * *x;
        *x -= rate * *m;
      }
    }
}

static void check_numbers(const set *s, const naive *n, int kind, int step) {
  int64_t at = 0;
  for (int p = 0; p < PARAMETERS; p++)
    for (int64_t i = 0; i < hd_count(s->at[p]) && !s->at[p]->frozen; i++, at++)
      if (!(fabs(hd_value(s->at[p])[i] - n->p[at]) <= 3e-6 * (1 + fabs(n->p[at]))))
        fail_msg("optimiser %d, step %d: %s[%lld] is %.9g, plain loops give %.9g", kind, step, s->at[p]->name, (long long)i,
                 hd_value(s->at[p])[i], n->p[at]);
}

/* Twenty steps of changing rates; the gradients of every third are clipped. */
static void against_plain_loops(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
    set s = make(context, kinds[kind]);
    const size_t numbers = (size_t)heed_parameters_size(s.parameters);
    naive n = {calloc(numbers, sizeof(double)), calloc(numbers, sizeof(double)), calloc(numbers, sizeof(double)), kinds[kind]};
    int64_t at = 0;
    for (int p = 0; p < PARAMETERS; p++)
      for (int64_t i = 0; i < hd_count(s.at[p]); i++) n.p[at++] = hd_value(s.at[p])[i];
    for (int step = 0; step < STEPS; step++) {
      heed_optimiser_report report;
      const double clip = 0.5, rate = 0.01 * (step + 1);
      give_gradients(&s, step, step % 3 ? 1e-3 : 1);
      const double norm = naive_norm(&s);
      ok(context, heed_optimiser_step(s.optimiser, rate, clip, &report));
      assert_null(report.not_finite);
      if (!(fabs(report.gradient_norm - norm) <= 1e-6 * norm)) fail_msg("norm %.9g, plain loops give %.9g", report.gradient_norm, norm);
      assert_true((norm > clip) == (step % 3 == 0));
      naive_step(&s, &n, step + 1, rate, fmin(1, clip / (norm + 1e-6)));
      check_numbers(&s, &n, kind, step);
    }
    assert_int_equal(heed_optimiser_steps(s.optimiser), STEPS);
    for (int64_t i = 0; i < hd_count(s.at[4]); i++) assert_true(hd_value(s.at[4])[i] == draw(4, i));
    free(n.p), free(n.m), free(n.v);
    drop(&s);
  }
  heed_context_free(context);
}

/* ---- what a step leaves alone ---------------------------------------------------------------------------------------------------------- */

/* Everything that a step may change, one after another. */
static float *numbers_of(const set *s, size_t *bytes) {
  const int moments = heed_optimiser_moments(s->optimiser);
  *bytes = (size_t)(heed_parameters_size(s->parameters) * (1 + moments)) * sizeof(float);
  float *all = calloc(1, *bytes), *to = all;
  for (int p = 0; p < PARAMETERS; p++)
    for (int which = -1; which < moments; which++) {
      const heed_view view = which < 0 ? heed_tensor_value(s->at[p]) : heed_optimiser_state(s->optimiser, p, which);
      assert_true(!view.data == (which >= 0 && s->at[p]->frozen));
      if (view.data) memcpy(to, view.data, (size_t)hd_count(s->at[p]) * sizeof *to);
      to += hd_count(s->at[p]);
    }
  return all;
}

static void expect_same(const set *a, const set *b, const char *what) {
  size_t bytes, other;
  float *x = numbers_of(a, &bytes), *y = numbers_of(b, &other);
  assert_int_equal(bytes, other);
  if (memcmp(x, y, bytes) != 0) fail_msg("other bits: %s", what);
  free(x);
  free(y);
}

static void gradients_that_are_not_finite_move_nothing(void **state) {
  (void)state;
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  heed_context *context = test_context(NULL);
  for (int kind = 0; kind < 2; kind++)
    for (int b = 0; b < 3; b++)
      for (int p = 0; p < 4; p++) {
        set s = make(context, kinds[kind]);
        size_t bytes;
        heed_optimiser_report report;
        give_gradients(&s, 0, 1);
        ok(context, heed_optimiser_step(s.optimiser, 0.1, 0, NULL));
        float *before = numbers_of(&s, &bytes);
        s.at[p]->buffer->gradient[hd_count(s.at[p]) - 1] = bad[b];
        if (p < 3) s.at[3]->buffer->gradient[0] = NAN; // a later one is not named
        ok(context, heed_optimiser_step(s.optimiser, 0.1, 1, &report));
        assert_string_equal(report.not_finite, s.at[p]->name);
        assert_false(isfinite(report.gradient_norm));
        assert_int_equal(heed_optimiser_steps(s.optimiser), 1);
        float *after = numbers_of(&s, &bytes);
        assert_memory_equal(before, after, bytes);
        free(before);
        free(after);
        drop(&s);
      }
  heed_context_free(context);
}

/* Numbers whose squares do not fit in single precision are numbers. */
static void large_gradients_are_finite(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  set s = make(context, &adamw);
  heed_optimiser_report report;
  give_gradients(&s, 0, 1e30);
  const double norm = naive_norm(&s);
  ok(context, heed_optimiser_step(s.optimiser, 0.1, 1, &report));
  assert_null(report.not_finite);
  assert_true(fabs(report.gradient_norm - norm) <= 1e-6 * norm);
  for (int p = 0; p < PARAMETERS; p++)
    for (int64_t i = 0; i < hd_count(s.at[p]); i++) assert_true(isfinite(hd_value(s.at[p])[i]));
  drop(&s);
  heed_context_free(context);
}

static void unreached_parameters_stay(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  set s = make(context, &adamw);
  give_gradients(&s, 0, 1);
  s.at[0]->buffer->begun = false;
  s.at[0]->buffer->gradient[0] = NAN; // left over
  heed_optimiser_report report;
  ok(context, heed_optimiser_step(s.optimiser, 0.1, 1, &report));
  assert_null(report.not_finite);
  for (int64_t i = 0; i < hd_count(s.at[0]); i++) assert_true(hd_value(s.at[0])[i] == draw(0, i));
  assert_true(hd_value(s.at[1])[0] != draw(1, 0));
  drop(&s);
  heed_context_free(context);
}

/* ---- equal bits ------------------------------------------------------------------------------------------------------------------------- */

static void run_steps(set *s, int from, int to) {
  for (int step = from; step < to; step++) {
    give_gradients(s, step, step % 3 ? 1e-3 : 1);
    ok(s->context, heed_optimiser_step(s->optimiser, 0.02, 0.5, NULL));
  }
}

static void same_bits(void **state) {
  (void)state;
  heed_context *scalar = level_context(HEED_LEVEL_SCALAR, 1);
  for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
    set one = make(scalar, kinds[kind]);
    run_steps(&one, 0, 5);
    for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
      heed_context *context = level_context(level, 3);
      if (!context) continue;
      set other = make(context, kinds[kind]);
      run_steps(&other, 0, 5);
      expect_same(&one, &other, heed_level_name(level));
      drop(&other);
      heed_context_free(context);
    }
    drop(&one);
  }
  heed_context_free(scalar);
}

/* What heed_optimiser_state and _steps give is all that the next steps depend on. */
static void state_can_be_kept(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
    set one = make(context, kinds[kind]), other = make(context, kinds[kind]);
    run_steps(&one, 0, 6);
    for (int p = 0; p < PARAMETERS; p++) {
      const size_t bytes = (size_t)hd_count(one.at[p]) * sizeof(float);
      memcpy(hd_value(other.at[p]), hd_value(one.at[p]), bytes);
      for (int which = 0; which < heed_optimiser_moments(one.optimiser); which++) {
        const heed_view from = heed_optimiser_state(one.optimiser, p, which), to = heed_optimiser_state(other.optimiser, p, which);
        if (from.data) memcpy(to.data, from.data, bytes);
      }
    }
    heed_optimiser_set_steps(other.optimiser, heed_optimiser_steps(one.optimiser));
    run_steps(&one, 6, 12);
    run_steps(&other, 6, 12);
    expect_same(&one, &other, "after the state was carried over");
    assert_null(heed_optimiser_state(one.optimiser, PARAMETERS, 0).data);
    assert_null(heed_optimiser_state(one.optimiser, 0, heed_optimiser_moments(one.optimiser)).data);
    drop(&one);
    drop(&other);
  }
  heed_context_free(context);
}

/* ---- illegal requests -------------------------------------------------------------------------------------------------------------------- */

static void illegal_requests_are_refused(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const size_t size = sizeof(heed_optimiser_options);
  const heed_optimiser_options wrong[] = {
      {.size = size, .kind = (heed_optimiser_kind)7},
      {.size = size, .has_betas = true, .beta1 = 1, .beta2 = 0.9},
      {.size = size, .has_betas = true, .beta1 = 0.9, .beta2 = -0.1},
      {.size = size, .epsilon = NAN},
      {.size = size, .decay = -1},
      {.size = size, .decay = INFINITY},
      {.size = size, .kind = HEED_OPTIMISER_SGD, .momentum = 1},
  };
  set s = make(context, NULL);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    heed_optimiser *none = s.optimiser;
    assert_int_equal(heed_optimiser_new(context, s.parameters, &wrong[i], &none), HEED_E_ARGUMENT);
    assert_null(none);
  }
  give_gradients(&s, 0, 1);
  size_t bytes;
  float *before = numbers_of(&s, &bytes);
  static const double bad[] = {NAN, INFINITY, -1};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(heed_optimiser_step(s.optimiser, bad[i], 1, NULL), HEED_E_ARGUMENT);
    assert_int_equal(heed_optimiser_step(s.optimiser, 1, bad[i], NULL), HEED_E_ARGUMENT);
  }
  float *after = numbers_of(&s, &bytes);
  assert_memory_equal(before, after, bytes);
  free(before);
  free(after);
  assert_int_equal(heed_optimiser_new(NULL, s.parameters, NULL, &(heed_optimiser *){NULL}), HEED_E_ARGUMENT);
  assert_int_equal(heed_optimiser_new(context, NULL, NULL, &(heed_optimiser *){NULL}), HEED_E_ARGUMENT);
  assert_int_equal(heed_optimiser_step(NULL, 1, 1, NULL), HEED_E_ARGUMENT);
  drop(&s);
  heed_context_free(context);
}

/* ---- schedules ---------------------------------------------------------------------------------------------------------------------------- */

static void schedules(void **state) {
  (void)state;
  const size_t size = sizeof(heed_schedule);
  const heed_schedule constant = {.size = size, .kind = HEED_SCHEDULE_CONSTANT, .peak = 2, .warmup = 9};
  const heed_schedule root = {.size = size, .kind = HEED_SCHEDULE_INVERSE_ROOT, .peak = 2, .floor = 0.5, .warmup = 9};
  const heed_schedule cosine = {.size = size, .kind = HEED_SCHEDULE_COSINE, .peak = 2, .floor = 0.5, .warmup = 10, .steps = 110};
  const struct {
    const heed_schedule *schedule;
    int64_t s;
    double rate;
  } known[] = {{&constant, 0, 0.2},   {&constant, 8, 1.8},
               {&constant, 9, 2},     {&constant, INT64_MAX, 2},
               {&root, 0, 0.2},       {&root, 9, 2},
               {&root, 39, 1},        {&root, 10000, 0.5},
               {&cosine, 0, 2. / 11}, {&cosine, 10, 2},
               {&cosine, 60, 1.25},   {&cosine, 35, 1.25 + 0.75 * sqrt(0.5)},
               {&cosine, 110, 0.5},   {&cosine, INT64_MAX, 0.5}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    double rate = heed_schedule_rate(known[i].schedule, known[i].s);
    if (!(fabs(rate - known[i].rate) <= 1e-14)) fail_msg("schedule %zu: %.17g, expected %.17g", i, rate, known[i].rate);
  }
  for (int64_t s = 1; s < 200; s++) { // nowhere does the rate rise after the warm-up, nor fall before
    double step = heed_schedule_rate(&cosine, s) - heed_schedule_rate(&cosine, s - 1);
    assert_true(s <= 10 ? step > 0 : step <= 0);
  }
  const heed_schedule wrong[] = {{.peak = 1},
                                 {.size = size, .kind = (heed_schedule_kind)9, .peak = 1},
                                 {.size = size, .peak = NAN},
                                 {.size = size, .peak = -1},
                                 {.size = size, .peak = 1, .floor = INFINITY},
                                 {.size = size, .peak = 1, .warmup = -1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_true(isnan(heed_schedule_rate(&wrong[i], 0)));
  assert_true(isnan(heed_schedule_rate(NULL, 0)));
  assert_true(isnan(heed_schedule_rate(&constant, -1)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(against_plain_loops),
      cmocka_unit_test(gradients_that_are_not_finite_move_nothing),
      cmocka_unit_test(large_gradients_are_finite),
      cmocka_unit_test(unreached_parameters_stay),
      cmocka_unit_test(same_bits),
      cmocka_unit_test(state_can_be_kept),
      cmocka_unit_test(illegal_requests_are_refused),
      cmocka_unit_test(schedules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
