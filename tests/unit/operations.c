/* Every operation of the list, by way of its own samples: value against the naive formula in double precision, gradients against central differences of that formula, and equal
 * bits on every level and any number of threads. HEED_TEST_SEED repeats one sample. */
#include "../../src/op/list.h"
#include "../../src/base/philox.h"
#include "../../src/kern/matrix.h"
#include "../stored.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>

static const hd_operation *const operations[] = {
#define ENTRY(name) &hd_op_##name,
    HD_OPERATION_LIST(ENTRY)
#undef ENTRY
};
#define OPERATIONS ((int)(sizeof operations / sizeof *operations))

enum { SAMPLES = SANITIZED ? 4 : 24, PLACES = SANITIZED ? 3 : 12 };

/* One carried out call, with everything it gave. */
typedef struct run {
  heed_context *context;
  heed_parameters *set;
  heed_tape *tape;
  heed_tensor *in[HD_SAMPLE_INPUTS], *out;
  float *stored[HD_SAMPLE_INPUTS]; /* what a matrix stands for that is stored as in a file */
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

static heed_tensor *make_stored(run *r, const hd_sample *sample, int which, const char *name) {
  const hd_sample_input *in = &sample->in[which];
  const hd_storage storage = (hd_storage)(in->stored - 1);
  const int64_t count = in->dim[0] * in->dim[1];
  unsigned char *rows = malloc((size_t)(count / hd_storage_block(storage) * hd_storage_bytes(storage)));
  heed_tensor *t = NULL;
  stored_blocks(&(uint32_t){(uint32_t)sample->seed + 7}, storage, count, rows);
  ok(r->context, heed_parameters_add_stored(r->set, name, hd_storage_name(storage), in->dim[0], in->dim[1], rows, &t));
  r->stored[which] = malloc((size_t)count * sizeof(float));
  hd_dequantise(storage, rows, count, r->stored[which]);
  free(rows);
  return t;
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
  if (in->stored) return make_stored(r, sample, which, name);
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
  if (operation->backward && r.out->buffer->wants) { // an embedding of a stored table has nothing to learn
    const heed_view view = heed_view_of(r.upstream, HEED_F32, r.out->ndim, r.out->dim);
    ok(context, heed_tape_backward(r.tape, r.out, &view));
  }
  return r;
}

static void drop(run *r) {
  heed_tape_free(r->tape);
  heed_parameters_free(r->set);
  for (int i = 0; i < HD_SAMPLE_INPUTS; i++) free(r->stored[i]);
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
        for (int64_t j = 0; j < hd_count(r.in[i]); j++) in[i][j] = r.stored[i] ? r.stored[i][j] : hd_value(r.in[i])[j];
      }
      loss(&r, operations[o], in, out);
      check_value(&r, operations[o], out, seed);
      for (int i = 0; i < sample.inputs && operations[o]->backward; i++)
        if (r.stored[i]) assert_null(r.in[i]->buffer->gradient);
        else if (in[i] && hd_count(r.in[i])) check_gradient(&r, operations[o], in, out, i, seed);
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
    if (!r.out->buffer->wants) {
      drop(&r);
      continue;
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

/* ---- what samples do not reach ------------------------------------------------------------------------------------------------------------ */

/* A tape with a parameter [4,6] and a way to give it indices. */
typedef struct bench {
  heed_context *context;
  heed_parameters *set;
  heed_tape *tape;
  heed_tensor *x, *w;
} bench;

static bench set_up(void) {
  bench b = {.context = test_context(NULL)};
  ok(b.context, heed_parameters_new(b.context, &b.set));
  ok(b.context, heed_tape_new(b.context, &b.tape));
  ok(b.context, heed_parameters_add(b.set, "x", 2, (int64_t[]){4, 6}, NULL, &b.x));
  ok(b.context, heed_parameters_add(b.set, "w", 1, (int64_t[]){5}, NULL, &b.w));
  for (int i = 0; i < 24; i++) hd_value(b.x)[i] = (float)(i - 7);
  return b;
}

static void tear_down(bench *b) {
  heed_tape_free(b->tape);
  heed_parameters_free(b->set);
  heed_context_free(b->context);
}

static heed_tensor *indices(bench *b, int64_t count, const int32_t *at) {
  const heed_view view = heed_view_of((void *)at, HEED_I32, 1, &count);
  heed_tensor *t = heed_tape_input(b->tape, &view);
  ok(b->context, heed_tape_status(b->tape));
  return t;
}

/* The call gave NULL, the tape the status, the context a sentence with these words; then the tape is as new. */
static void refused(bench *b, const heed_tensor *got, heed_status status, const char *words) {
  if (got || heed_tape_status(b->tape) != status || !strstr(heed_error(b->context), words))
    fail_msg("%s instead of %s: \"%s\", expected \"%s\"", heed_status_name(heed_tape_status(b->tape)), heed_status_name(status),
             heed_error(b->context), words);
  assert_null(heed_tape_scale(b->tape, b->x, 2)); // the first error sticks
  heed_tape_reset(b->tape);
}

static void errors_say_what_is_allowed(void **state) {
  (void)state;
  bench b = set_up();
  heed_tape *t = b.tape;
  heed_tensor *x = b.x, *w = b.w;
  const int32_t ids[3] = {0, 3, 4}, below[2] = {1, -1}, good[2] = {0, 1};
  refused(&b, heed_tape_add(t, x, w), HEED_E_SHAPE, "add: a [4,6], b [5]: allowed a's shape or its last dimensions");
  refused(&b, heed_tape_add(t, w, x), HEED_E_SHAPE, "add: a [5], b [4,6]");
  refused(&b, heed_tape_add(t, x, NULL), HEED_E_ARGUMENT, "add: input 1 is null");
  refused(&b, heed_tape_add(t, x, indices(&b, 2, good)), HEED_E_TYPE, "add: input 1 is i32, allowed f32");
  refused(&b, heed_tape_mul(t, x, w), HEED_E_SHAPE, "mul: a [4,6], b [5]: allowed one shape");
  refused(&b, heed_tape_scale(t, x, NAN), HEED_E_ARGUMENT, "scale: factor nan");
  refused(&b, heed_tape_scale(t, x, 1e39), HEED_E_ARGUMENT, "scale: factor 1e+39");
  refused(&b, heed_tape_activate(t, x, (heed_activation)6), HEED_E_ARGUMENT, "activate: there is no activation 6");
  refused(&b, heed_tape_gate(t, w, HEED_ACTIVATION_SILU), HEED_E_SHAPE, "gate: x [5], allowed an even last dimension");
  refused(&b, heed_tape_embedding(t, indices(&b, 3, ids), x), HEED_E_ARGUMENT, "embedding: id 4 at place 2, allowed 0 to 3");
  refused(&b, heed_tape_embedding(t, indices(&b, 2, below), x), HEED_E_ARGUMENT, "embedding: id -1 at place 1, allowed 0 to 3");
  refused(&b, heed_tape_embedding(t, indices(&b, 2, good), w), HEED_E_SHAPE, "embedding: ids [2], rows [5]");
  refused(&b, heed_tape_gather(t, x, w), HEED_E_TYPE, "gather: ids f32, rows f32");
  refused(&b, heed_tape_dropout(t, x, 1.5), HEED_E_ARGUMENT, "dropout: p 1.5, allowed 0 to 1");
  refused(&b, heed_tape_dropout(t, x, NAN), HEED_E_ARGUMENT, "dropout: p nan");
  refused(&b, heed_tape_reshape(t, x, 2, (int64_t[]){5, 5}), HEED_E_SHAPE, "reshape: [4,6] to [5,5]: not as many numbers");
  refused(&b, heed_tape_reshape(t, x, 2, (int64_t[]){-1, 5}), HEED_E_SHAPE, "reshape: [4,6] to [-1,5]");
  refused(&b, heed_tape_reshape(t, x, 2, (int64_t[]){-1, -1}), HEED_E_SHAPE, "reshape: [4,6] to [-1,-1]");
  refused(&b, heed_tape_reshape(t, x, 2, (int64_t[]){-4, -6}), HEED_E_SHAPE, "reshape: [4,6] to [-4,-6]");
  refused(&b, heed_tape_reshape(t, x, 7, (int64_t[]){1, 1, 1, 1, 1, 4, 6}), HEED_E_SHAPE, "reshape: rank 7, allowed 1 to 6");
  refused(&b, heed_tape_transpose(t, x, 0, 2), HEED_E_ARGUMENT, "transpose: axis 2 of [4,6], allowed 0 to 1");
  refused(&b, heed_tape_slice(t, x, 1, 4, 7), HEED_E_ARGUMENT, "slice: [4,7) of axis 1 of [4,6], allowed within [0,6)");
  refused(&b, heed_tape_slice(t, x, -1, 0, 1), HEED_E_ARGUMENT, "slice: axis -1");
  refused(&b, heed_tape_concat(t, 2, (heed_tensor *[]){x, w}, 0), HEED_E_SHAPE, "concat: part 1 is [5], part 0 [4,6]");
  refused(&b, heed_tape_concat(t, 2, (heed_tensor *[]){x, NULL}, 0), HEED_E_ARGUMENT, "concat: input 1 is null");
  refused(&b, heed_tape_concat(t, 0, NULL, 0), HEED_E_ARGUMENT, "concat: there are no parts");
  refused(&b, heed_tape_sum(t, x, 2), HEED_E_ARGUMENT, "sum: axis 2 of [4,6], allowed 0 to 1");
  refused(&b, heed_tape_mean(t, heed_tape_slice(t, x, 0, 1, 1), HEED_ALL_AXES), HEED_E_SHAPE, "mean: x [0,6] has nothing to average");
  tear_down(&b);
}

/* Without training dropout is x itself; with it another step draws another mask, the same seed the same one. */
static void dropout_acts_in_training_only(void **state) {
  (void)state;
  bench b = set_up();
  float first[24];
  heed_tape_set_training(b.tape, false);
  assert_ptr_equal(heed_tensor_value(heed_tape_dropout(b.tape, b.x, 0.5)).data, hd_value(b.x));
  heed_tape_set_training(b.tape, true);
  assert_ptr_equal(heed_tensor_value(heed_tape_dropout(b.tape, b.x, 0)).data, hd_value(b.x));
  for (int step = 0; step < 3; step++) {
    heed_tape_reset(b.tape);
    heed_tape_set_seed(b.tape, step == 1 ? 2 : 1);
    const float *y = heed_tensor_value(heed_tape_dropout(b.tape, b.x, 0.5)).data;
    for (int i = 0; i < 24; i++) assert_true(y[i] == 0 || y[i] == 2 * hd_value(b.x)[i]);
    if (step == 0) memcpy(first, y, sizeof first);
    else assert_int_equal(memcmp(first, y, sizeof first) == 0, step == 2);
    const float *z = heed_tensor_value(heed_tape_dropout(b.tape, b.x, 0.5)).data; // the next one draws for itself
    assert_int_not_equal(memcmp(y, z, sizeof first), 0);
  }
  const float *none = heed_tensor_value(heed_tape_dropout(b.tape, b.x, 1)).data;
  for (int i = 0; i < 24; i++) assert_true(none[i] == 0);
  ok(b.context, heed_tape_status(b.tape));
  tear_down(&b);
}

/* A tensor that is used twice gets both gradients, whatever their order; rows that nobody asked for get 0. */
static void gradients_meet(void **state) {
  (void)state;
  bench b = set_up();
  const int32_t at[3] = {2, 2, 0};
  for (int i = 0; i < 24; i++) b.x->buffer->gradient[i] = NAN; // what a buffer holds before the first gradient does not matter
  heed_tensor *rows = heed_tape_gather(b.tape, b.x, indices(&b, 3, at));
  ok(b.context, heed_tape_backward(b.tape, heed_tape_sum(b.tape, rows, HEED_ALL_AXES), NULL));
  for (int i = 0; i < 24; i++) assert_true(b.x->buffer->gradient[i] == (i < 6 ? 1 : i >= 12 && i < 18 ? 2 : 0));
  heed_tape_reset(b.tape);
  heed_parameters_forget_gradients(b.set);
  heed_tensor *flat = heed_tape_reshape(b.tape, b.x, 1, (int64_t[]){-1});
  heed_tensor *product = heed_tape_mul(b.tape, flat, flat); // x² + x
  ok(b.context, heed_tape_backward(b.tape, heed_tape_sum(b.tape, heed_tape_add(b.tape, product, flat), HEED_ALL_AXES), NULL));
  for (int i = 0; i < 24; i++) assert_true(b.x->buffer->gradient[i] == 2 * hd_value(b.x)[i] + 1);
  tear_down(&b);
}

/* ---- a sum that takes its summand's place --------------------------------------------------------------------------------------------------- */

/* Who else looks at the summands: nobody, at a before or after, at b before; and what b comes from. */
typedef struct residual {
  const char *what;
  bool a_before, a_after, b_before, b_frozen, same, in_place;
} residual;

/* Σ y² + Σ of squares of all that is looked at elsewhere, y = a + b with a = x · uᵀ, b = x · vᵀ. Gradients of x, u and v one behind another. */
static void residual_gradients(bench *b, heed_tensor *const p[3], const residual *r, bool last, float *out) {
  heed_tape *t = b->tape;
  heed_tensor *loss = NULL;
#define LOOK(at)                                                                                                                           \
  (loss = heed_tape_sum(t, heed_tape_mul(t, at, at), HEED_ALL_AXES), loss_sum = loss_sum ? heed_tape_add(t, loss_sum, loss) : loss)
  heed_tensor *loss_sum = NULL, *a = heed_tape_linear(t, p[0], p[1], NULL), *c = NULL;
  if (r->b_frozen) {
    const heed_view numbers = heed_view_of(hd_value(p[1]), HEED_F32, 2, (int64_t[]){6, 6});
    c = heed_tape_linear(t, heed_tape_slice(t, heed_tape_input(t, &numbers), 0, 0, 4), heed_tape_input(t, &numbers), NULL);
  } else {
    c = r->same ? a : heed_tape_linear(t, p[0], p[2], NULL);
  }
  if (r->a_before) LOOK(a);
  if (r->b_before) LOOK(c);
  const float *place = hd_value(c);
  heed_tensor *y = last ? hd_tape_add_last(t, a, c) : heed_tape_add(t, a, c);
  ok(b->context, heed_tape_status(t));
  if ((hd_value(y) == place) != (last && r->in_place)) fail_msg("%s: %s", r->what, last && r->in_place ? "not in place" : "in place");
  if (r->a_after) LOOK(a);
  LOOK(y);
  if (r->a_after) LOOK(y); // the gradient of the sum is written and added to
#undef LOOK
  heed_parameters_forget_gradients(b->set);
  ok(b->context, heed_tape_backward(t, loss_sum, NULL));
  for (int i = 0; i < 3; i++) {
    const float *g = heed_tensor_gradient(p[i]).data;
    for (int64_t j = 0; j < hd_count(p[i]); j++) *out++ = g ? g[j] : 0;
  }
  heed_tape_reset(t);
}

static void a_sum_in_its_summand(void **state) {
  (void)state;
  static const residual cases[] = {
      {.what = "nobody else", .in_place = true},
      {.what = "a before", .a_before = true, .in_place = true},
      {.what = "a before and after", .a_before = true, .a_after = true, .in_place = true},
      {.what = "a after", .a_after = true, .in_place = true},
      {.what = "b before", .b_before = true},
      {.what = "both before", .a_before = true, .a_after = true, .b_before = true},
      {.what = "b does not learn", .a_after = true, .b_frozen = true},
      {.what = "a twice", .same = true},
  };
  enum { NUMBERS = 24 + 36 + 36 };
  bench b = set_up();
  heed_tensor *p[3] = {b.x};
  float want[NUMBERS], got[NUMBERS];
  for (int i = 1; i < 3; i++) ok(b.context, heed_parameters_add(b.set, i == 1 ? "u" : "v", 2, (int64_t[]){6, 6}, NULL, &p[i]));
  for (int i = 0; i < 3; i++) ok(b.context, heed_tensor_initialise(b.context, p[i], HEED_INITIAL_NORMAL, 1, 5, (uint64_t)i));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    residual_gradients(&b, p, &cases[i], false, want);
    residual_gradients(&b, p, &cases[i], true, got);
    for (int j = 0; j < NUMBERS; j++)
      if (!(fabsf(got[j] - want[j]) <= 1e-5f * (1 + fabsf(want[j]))))
        fail_msg("%s: gradient %d is %.9g, of a sum with a place of its own %.9g", cases[i].what, j, got[j], want[j]);
  }
  // What b meant is gone.
  heed_tensor *a = heed_tape_linear(b.tape, p[0], p[1], NULL), *c = heed_tape_linear(b.tape, p[0], p[2], NULL);
  hd_tape_add_last(b.tape, a, c);
  refused(&b, heed_tape_mul(b.tape, a, c), HEED_E_ARGUMENT, "mul: input 1 was changed in place by another operation");
  tear_down(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(against_reference),
      cmocka_unit_test(same_bits),
      cmocka_unit_test(gradients_accumulate),
      cmocka_unit_test(errors_say_what_is_allowed),
      cmocka_unit_test(dropout_acts_in_training_only),
      cmocka_unit_test(gradients_meet),
      cmocka_unit_test(a_sum_in_its_summand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
