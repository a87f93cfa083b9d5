/* Every operation of the list, by way of its own samples: value against the naive formula in double precision, gradients against central differences of that formula, and equal
 * bits on every level and any number of threads. HEED_TEST_SEED repeats one sample. */
#include "../../src/op/list.h"
#include "../../src/base/philox.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>

static const hd_operation *const operations[] = {
#define ENTRY(name) &hd_op_##name,
    HD_OPERATION_LIST(ENTRY)
#undef ENTRY
};
#define OPERATIONS ((int)(sizeof operations / sizeof *operations))

enum { SAMPLES = 24, PLACES = 12 };

/* One carried out call, with everything it gave. */
typedef struct run {
  heed_context *context;
  heed_parameters *set;
  heed_tape *tape;
  heed_tensor *in[HD_SAMPLE_INPUTS], *out;
  float *upstream, *value;
} run;

static double normal(uint64_t seed, uint64_t stream, uint64_t i) {
  double u = hd_philox_uniform(seed, stream, 2 * i), v = hd_philox_uniform(seed, stream, 2 * i + 1);
  return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

static float number(const hd_sample *sample, const hd_sample_input *in, int which, int64_t i) {
  double x = in->offset + (in->spread == 0 ? 1 : in->spread) * normal(sample->seed, 10 + (uint64_t)which, (uint64_t)i);
  if (in->apart > 0 && fabs(x) < in->apart) x = x < 0 ? x - in->apart : x + in->apart;
  return (float)x;
}

static heed_tensor *make_input(run *r, const hd_sample *sample, int which) {
  const hd_sample_input *in = &sample->in[which];
  heed_tensor *t = NULL;
  char name[16];
  int64_t count = 1;
  if (in->absent) return NULL;
  for (int i = 0; i < in->ndim; i++) count *= in->dim[i];
  if (in->below) {
    int32_t *index = malloc((size_t)(count + 1) * sizeof *index);
    for (int64_t i = 0; i < count; i++)
      index[i] = (int32_t)(in->floor +
                           (int64_t)(hd_philox_uniform(sample->seed, 10 + (uint64_t)which, (uint64_t)i) * (double)(in->below - in->floor)));
    const heed_view view = heed_view_of(index, HEED_I32, in->ndim, in->dim);
    t = heed_tape_input(r->tape, &view);
    ok(r->context, heed_tape_status(r->tape));
    free(index);
    return t;
  }
  snprintf(name, sizeof name, "in%d", which);
  ok(r->context, heed_parameters_add(r->set, name, in->ndim, in->dim, NULL, &t));
  for (int64_t i = 0; i < count; i++) hd_value(t)[i] = number(sample, in, which, i);
  return t;
}

static run carry_out(heed_context *context, const hd_operation *operation, const hd_sample *sample) {
  run r = {.context = context};
  ok(context, heed_parameters_new(context, &r.set));
  ok(context, heed_tape_new(context, &r.tape));
  heed_tape_set_seed(r.tape, sample->seed);
  for (int i = 0; i < sample->inputs; i++) r.in[i] = make_input(&r, sample, i);
  r.out = hd_tape_apply(r.tape, operation, sample->inputs, r.in, 0, sample->options);
  ok(context, heed_tape_status(r.tape));
  int64_t n = hd_count(r.out);
  r.upstream = malloc((size_t)(n + 1) * sizeof(float));
  r.value = malloc((size_t)(n + 1) * sizeof(float));
  for (int64_t i = 0; i < n; i++) r.upstream[i] = (float)normal(sample->seed, 99, (uint64_t)i);
  if (n) memcpy(r.value, hd_value(r.out), (size_t)n * sizeof(float));
  if (operation->backward) {
    const heed_view view = heed_view_of(r.upstream, HEED_F32, r.out->ndim, r.out->dim);
    ok(context, heed_tape_backward(r.tape, r.out, &view));
  }
  return r;
}

static void drop(run *r) {
  heed_tape_free(r->tape);
  heed_parameters_free(r->set);
  free(r->upstream);
  free(r->value);
}

static hd_sample sample_of(const hd_operation *operation, uint64_t seed) {
  hd_sample sample = {.seed = seed};
  operation->sample(&sample);
  return sample;
}

static uint64_t first_seed(int *count) {
  const char *given = getenv("HEED_TEST_SEED");
  *count = given ? 1 : SAMPLES;
  return given ? strtoull(given, NULL, 0) : 1;
}

/* ---- against the naive formula -------------------------------------------------------------------------------------------------------- */

static double loss(const run *r, const hd_operation *operation, double *const *in, double *out) {
  const hd_node *node = hd_tape_last(r->tape);
  double sum = 0;
  operation->reference(node, (const double *const *)in, out);
  for (int64_t i = 0; i < hd_count(r->out); i++) sum += out[i] * r->upstream[i];
  return sum;
}

static void check_value(const run *r, const hd_operation *operation, const double *out, uint64_t seed) {
  double largest = 1e-30;
  for (int64_t i = 0; i < hd_count(r->out); i++) largest = fmax(largest, fabs(out[i]));
  for (int64_t i = 0; i < hd_count(r->out); i++)
    if (!(fabs(out[i] - r->value[i]) <= 1e-5 * largest))
      fail_msg("%s, seed %llu: element %lld is %.9g, the formula gives %.9g", operation->name, (unsigned long long)seed, (long long)i,
               r->value[i], out[i]);
}

static void check_gradient(const run *r, const hd_operation *operation, double *const *in, double *out, int which, uint64_t seed) {
  const heed_tensor *t = r->in[which];
  const float *gradient = heed_tensor_gradient(t).data;
  double differs[PLACES], largest = 1e-3;
  int64_t at[PLACES];
  if (!gradient) fail_msg("%s, seed %llu: input %d has no gradient", operation->name, (unsigned long long)seed, which);
  for (int64_t i = 0; i < hd_count(t); i++) largest = fmax(largest, fabs(gradient[i]));
  for (int p = 0; p < PLACES; p++) {
    at[p] = (int64_t)(hd_philox_uniform(seed, 200 + (uint64_t)which, (uint64_t)p) * (double)hd_count(t));
    double x = in[which][at[p]], h = 1e-5 * fmax(1, fabs(x)), sum;
    in[which][at[p]] = x + h;
    sum = loss(r, operation, in, out);
    in[which][at[p]] = x - h;
    sum -= loss(r, operation, in, out);
    in[which][at[p]] = x;
    differs[p] = sum / (2 * h);
    largest = fmax(largest, fabs(differs[p]));
  }
  for (int p = 0; p < PLACES; p++)
    if (!(fabs(differs[p] - gradient[at[p]]) <= 1e-4 * largest))
      fail_msg("%s, seed %llu: gradient of input %d at %lld is %.9g, differences give %.9g", operation->name, (unsigned long long)seed,
               which, (long long)at[p], gradient[at[p]], differs[p]);
}

static void against_reference(void **state) {
  (void)state;
  int samples;
  uint64_t first = first_seed(&samples);
  heed_context *context = test_context(NULL);
  for (int o = 0; o < OPERATIONS; o++)
    for (uint64_t seed = first; seed < first + (uint64_t)samples; seed++) {
      hd_sample sample = sample_of(operations[o], seed);
      run r = carry_out(context, operations[o], &sample);
      double *in[HD_SAMPLE_INPUTS] = {0}, *out = malloc((size_t)(hd_count(r.out) + 1) * sizeof *out);
      for (int i = 0; i < sample.inputs; i++) {
        if (!r.in[i] || r.in[i]->type != HEED_F32) continue;
        in[i] = malloc((size_t)(hd_count(r.in[i]) + 1) * sizeof **in);
        for (int64_t j = 0; j < hd_count(r.in[i]); j++) in[i][j] = hd_value(r.in[i])[j];
      }
      loss(&r, operations[o], in, out);
      check_value(&r, operations[o], out, seed);
      for (int i = 0; i < sample.inputs && operations[o]->backward; i++)
        if (in[i] && hd_count(r.in[i])) check_gradient(&r, operations[o], in, out, i, seed);
      for (int i = 0; i < sample.inputs; i++) free(in[i]);
      free(out);
      drop(&r);
    }
  heed_context_free(context);
}

/* ---- equal bits ------------------------------------------------------------------------------------------------------------------------- */

static void expect_same(const run *a, const run *b, const char *name, const char *how, uint64_t seed) {
  if (hd_count(a->out) && memcmp(a->value, b->value, (size_t)hd_count(a->out) * sizeof(float)))
    fail_msg("%s, seed %llu: other bits of the value %s", name, (unsigned long long)seed, how);
  for (int i = 0; i < HD_SAMPLE_INPUTS; i++) {
    if (!a->in[i] || !a->in[i]->buffer->begun) continue;
    if (memcmp(a->in[i]->buffer->gradient, b->in[i]->buffer->gradient, (size_t)hd_count(a->in[i]) * sizeof(float)))
      fail_msg("%s, seed %llu: other bits of the gradient of input %d %s", name, (unsigned long long)seed, i, how);
  }
}

static void same_bits(void **state) {
  (void)state;
  int samples;
  uint64_t first = first_seed(&samples);
  heed_context *scalar = level_context(HEED_LEVEL_SCALAR, 1);
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    char how[64];
    heed_context *context = level_context(level, level == HEED_LEVEL_SCALAR ? 3 : 2);
    snprintf(how, sizeof how, "at level %s, %d threads", heed_level_name(level), context ? heed_context_threads(context) : 0);
    for (int o = 0; context && o < OPERATIONS; o++)
      for (uint64_t seed = first; seed < first + (uint64_t)samples; seed++) {
        hd_sample sample = sample_of(operations[o], seed);
        run one = carry_out(scalar, operations[o], &sample), other = carry_out(context, operations[o], &sample);
        expect_same(&one, &other, operations[o]->name, how, seed);
        drop(&one);
        drop(&other);
      }
    heed_context_free(context);
  }
  heed_context_free(scalar);
}

/* Backward adds to what an earlier pass left, until it is told to forget. */
static void gradients_accumulate(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int o = 0; o < OPERATIONS; o++) {
    if (!operations[o]->backward) continue;
    hd_sample sample = sample_of(operations[o], 7);
    run r = carry_out(context, operations[o], &sample);
    float *once[HD_SAMPLE_INPUTS] = {0};
    for (int i = 0; i < sample.inputs; i++) {
      if (!r.in[i] || !r.in[i]->buffer->begun) continue;
      once[i] = malloc((size_t)(hd_count(r.in[i]) + 1) * sizeof(float));
      memcpy(once[i], r.in[i]->buffer->gradient, (size_t)hd_count(r.in[i]) * sizeof(float));
    }
    heed_tape_reset(r.tape);
    for (int i = 0; i < sample.inputs; i++)
      if (sample.in[i].below && !sample.in[i].absent) r.in[i] = make_input(&r, &sample, i);
    heed_tensor *out = hd_tape_apply(r.tape, operations[o], sample.inputs, r.in, 0, sample.options);
    ok(context, heed_tape_status(r.tape));
    const heed_view view = heed_view_of(r.upstream, HEED_F32, out->ndim, out->dim);
    ok(context, heed_tape_backward(r.tape, out, &view));
    for (int i = 0; i < sample.inputs; i++) {
      for (int64_t j = 0; once[i] && j < hd_count(r.in[i]); j++)
        if (!(fabs(r.in[i]->buffer->gradient[j] - 2.0 * once[i][j]) <= 1e-4 * (1 + fabs(once[i][j]))))
          fail_msg("%s: gradient %lld of input %d is %.9g after two passes, %.9g after one", operations[o]->name, (long long)j, i,
                   r.in[i]->buffer->gradient[j], once[i][j]);
      free(once[i]);
    }
    drop(&r);
  }
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(against_reference),
      cmocka_unit_test(same_bits),
      cmocka_unit_test(gradients_accumulate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
