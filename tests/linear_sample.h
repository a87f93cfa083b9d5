/* linear_sample.h: random calls of linear attention for tests, with the arrays they need, and the oracle's answer beside the kernels'. */
#ifndef HEED_LINEAR_SAMPLE_H
#define HEED_LINEAR_SAMPLE_H

#include "attention_sample.h"

#include "../src/base/base.h"

enum { LINEAR_CAUSAL = 1, LINEAR_BARE = 2, LINEAR_LENGTHS = 4, LINEAR_ATTEND = 8, LINEAR_BEFORE = 16 };

/* Arrays by name. */
enum {
  LQ,
  LK,
  LV,
  LOUT,
  LLSE,
  LDOUT,
  LDQ,
  LDK,
  LDV,
  LDECAY,
  LBETA,
  LDDECAY,
  LDBETA,
  LSUMS,
  LNORMALISER,
  LEXPONENT,
  LBSUMS,
  LBNORMALISER,
  LBEXPONENT,
  LINEAR_ARRAYS
};

typedef struct linear_sample {
  int64_t batch, heads, kv_heads, n, m, d, dv, f;
  heed_linear_attention a;
  heed_linear_state before, after;
  heed_view view[LINEAR_ARRAYS]; /* f32, owned */
  heed_view projection, attend;
  int64_t lengths[8];
} linear_sample;

static inline heed_view linear_array(random_source *r, int ndim, const int64_t *dim, float spread) {
  heed_view view = heed_view_of(NULL, HEED_F32, ndim, dim);
  int64_t count = hd_view_count(&view);
  float *data = spread != 0 ? normals(r, count) : floats(count);
  for (int64_t i = 0; i < count && spread != 0; i++) data[i] *= spread;
  view.data = data;
  return view;
}

static inline bool linear_projects(const heed_linear_attention *a) { return a->features >= HEED_FEATURES_POSITIVE; }

/* Shapes, features and rule are set; `projected` rows of a projection. */
static inline void linear_fill(linear_sample *s, random_source *r, int kinds, int64_t projected) {
  const bool bare = kinds & LINEAR_BARE || s->a.features == HEED_FEATURES_IDENTITY, project = linear_projects(&s->a);
  s->a.size = sizeof s->a;
  s->a.causal = kinds & LINEAR_CAUSAL;
  s->a.unnormalised = bare;
  if (s->a.causal) s->n = s->m;
  s->f = s->d;
  if (project) {
    s->projection = linear_array(r, 2, (int64_t[]){projected, s->d}, 0);
    heed_context *own = test_context(NULL);
    const heed_linear_draw_options draw = {.size = sizeof draw, .seed = r->seed};
    assert_int_equal(heed_linear_draw(own, &draw, &s->projection), HEED_OK);
    heed_context_free(own);
    s->a.projection = &s->projection;
    s->f = projected * (s->a.features == HEED_FEATURES_HYPERBOLIC ? 2 : 1);
  }
  const int64_t B = s->batch, H = s->heads, G = s->kv_heads, n = s->n, m = s->m, d = s->d, dv = s->dv, f = s->f;
  const bool gated = s->a.rule == HEED_RULE_GATED || s->a.rule == HEED_RULE_GATED_DELTA, delta = s->a.rule >= HEED_RULE_DELTA;
  const int64_t wide = gated && below(r, 2) ? f : 1, betas = delta && below(r, 2) ? G : 1;
  const struct {
    int ndim;
    int64_t dim[4];
    float spread;
  } shape[LINEAR_ARRAYS] = {
      [LQ] = {4, {B, H, n, d}, 1},
      [LK] = {4, {B, G, m, d}, s->a.rule == HEED_RULE_ADD ? 1 : 0.4f},
      [LV] = {4, {B, G, m, dv}, 1},
      [LOUT] = {4, {B, H, n, dv}, 0},
      [LLSE] = {3, {B, H, n}, 0},
      [LDOUT] = {4, {B, H, n, dv}, 1},
      [LDQ] = {4, {B, H, n, d}, 0},
      [LDK] = {4, {B, G, m, d}, 0},
      [LDV] = {4, {B, G, m, dv}, 0},
      [LDECAY] = {4, {B, G, m, wide}, 0.2f},
      [LBETA] = {4, {B, betas, m, 1}, 1 / (float)(f + 1)},
      [LDDECAY] = {4, {B, G, m, wide}, 0},
      [LDBETA] = {4, {B, betas, m, 1}, 0},
      [LSUMS] = {4, {B, G, f, dv}, 0},
      [LNORMALISER] = {3, {B, G, f}, 0},
      [LEXPONENT] = {2, {B, G}, 0},
      [LBSUMS] = {4, {B, G, f, dv}, 1},
      [LBNORMALISER] = {3, {B, G, f}, 1},
      [LBEXPONENT] = {2, {B, G}, 0},
  };
  for (int i = 0; i < LINEAR_ARRAYS; i++) s->view[i] = linear_array(r, shape[i].ndim, shape[i].dim, shape[i].spread);
  float *decay = s->view[LDECAY].data, *normaliser = s->view[LBNORMALISER].data, *exponent = s->view[LBEXPONENT].data;
  for (int64_t i = 0; i < B * G * m * wide; i++) decay[i] = -fabsf(decay[i]);
  for (int64_t i = 0; i < B * G * f; i++) normaliser[i] = fabsf(normaliser[i]);
  for (int64_t i = 0; i < B * G; i++) exponent[i] = (float)below(r, 6) - 3;
  if (gated) s->a.decay = &s->view[LDECAY];
  if (delta) s->a.beta = &s->view[LBETA];
  s->before =
      (heed_linear_state){sizeof s->before, &s->view[LBSUMS], bare ? NULL : &s->view[LBNORMALISER], project ? &s->view[LBEXPONENT] : NULL};
  s->after =
      (heed_linear_state){sizeof s->after, &s->view[LSUMS], bare ? NULL : &s->view[LNORMALISER], project ? &s->view[LEXPONENT] : NULL};
  if (kinds & LINEAR_BEFORE) s->a.before = &s->before;
  for (int64_t b = 0; b < B; b++) s->lengths[b] = below(r, m + 1);
  if (kinds & LINEAR_LENGTHS) s->a.key_lengths = s->lengths;
  s->attend = heed_view_of(calloc((size_t)(B * m) + 1, 1), HEED_U8, 2, (int64_t[]){B, m});
  for (int64_t i = 0; i < B * m; i++) ((uint8_t *)s->attend.data)[i] = below(r, 4) > 0;
  if (kinds & LINEAR_ATTEND) s->a.attend = &s->attend;
}

static inline void linear_free(linear_sample *s) {
  for (int i = 0; i < LINEAR_ARRAYS; i++) free(s->view[i].data);
  free(s->projection.data);
  free(s->attend.data);
}

static inline heed_linear_extras linear_extras(linear_sample *s) {
  return (heed_linear_extras){sizeof(heed_linear_extras), &s->view[LLSE], &s->after};
}

static inline void linear_forward(heed_context *context, linear_sample *s) {
  const heed_linear_extras extras = linear_extras(s);
  ok(context, heed_linear_forward(context, &s->a, &s->view[LQ], &s->view[LK], &s->view[LV], &s->view[LOUT], &extras));
}

static inline heed_linear_gradients linear_gradients(const linear_sample *s, const heed_view *view) {
  return (heed_linear_gradients){sizeof(heed_linear_gradients),   &view[LDQ], &view[LDK], &view[LDV], s->a.decay ? &view[LDDECAY] : NULL,
                                 s->a.beta ? &view[LDBETA] : NULL};
}

static inline void linear_backward(heed_context *context, linear_sample *s) {
  const heed_linear_gradients to = linear_gradients(s, s->view);
  ok(context,
     heed_linear_backward(context, &s->a, &s->view[LQ], &s->view[LK], &s->view[LV], &s->view[LOUT], &s->view[LLSE], &s->view[LDOUT], &to));
}

/* The same inputs in f64, and room for the oracle's outputs. */
typedef struct linear_oracle {
  heed_view view[LINEAR_ARRAYS];
  heed_linear_attention a;
  heed_linear_state before, after;
} linear_oracle;

static inline void linear_oracle_make(linear_oracle *o, const linear_sample *s) {
  for (int i = 0; i < LINEAR_ARRAYS; i++) {
    const int64_t count = hd_view_count(&s->view[i]);
    double *data = calloc((size_t)count + 1, sizeof *data);
    for (int64_t j = 0; j < count; j++) data[j] = ((const float *)s->view[i].data)[j];
    o->view[i] = heed_view_of(data, HEED_F64, s->view[i].ndim, s->view[i].dim);
  }
  o->a = s->a;
  o->before = (heed_linear_state){sizeof o->before, &o->view[LBSUMS], s->before.normaliser ? &o->view[LBNORMALISER] : NULL,
                                  s->before.exponent ? &o->view[LBEXPONENT] : NULL};
  o->after = (heed_linear_state){sizeof o->after, &o->view[LSUMS], s->after.normaliser ? &o->view[LNORMALISER] : NULL,
                                 s->after.exponent ? &o->view[LEXPONENT] : NULL};
  if (o->a.before) o->a.before = &o->before;
  if (o->a.decay) o->a.decay = &o->view[LDECAY];
  if (o->a.beta) o->a.beta = &o->view[LBETA];
}

static inline void linear_oracle_free(linear_oracle *o) {
  for (int i = 0; i < LINEAR_ARRAYS; i++) free(o->view[i].data);
}

static inline void linear_oracle_forward(heed_context *context, linear_oracle *o) {
  const heed_linear_extras extras = {sizeof extras, &o->view[LLSE], &o->after};
  ok(context, heed_linear_reference(context, &o->a, &o->view[LQ], &o->view[LK], &o->view[LV], &o->view[LOUT], &extras));
}

static inline void linear_oracle_backward(heed_context *context, linear_oracle *o) {
  const heed_linear_gradients to = {
      sizeof to, &o->view[LDQ], &o->view[LDK], &o->view[LDV], o->a.decay ? &o->view[LDDECAY] : NULL, o->a.beta ? &o->view[LDBETA] : NULL};
  ok(context, heed_linear_backward_reference(context, &o->a, &o->view[LQ], &o->view[LK], &o->view[LV], &o->view[LDOUT], &to));
}

/* The largest difference, in units of the largest number expected (or of 0.05, where those are smaller: some gradients cancel). */
static inline double linear_difference(const heed_view *got, const heed_view *want) {
  double largest = 0.05, worst = 0;
  for (int64_t i = 0; i < hd_view_count(want); i++) {
    const double a = hd_element((char *)got->data + i * (int64_t)heed_type_bytes(got->type), got->type),
                 b = hd_element((char *)want->data + i * (int64_t)heed_type_bytes(want->type), want->type);
    if (a == b) continue; // both infinite, too
    largest = fmax(largest, fabs(b));
    worst = fabs(a - b) <= worst ? worst : fabs(a - b);
    if (isnan(a) || isnan(b)) return NAN;
  }
  return worst / largest;
}

#endif
