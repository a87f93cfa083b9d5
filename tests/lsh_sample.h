/* lsh_sample.h: random calls of LSH attention for tests, with the arrays they need, and the oracle's answer beside the kernels'. */
#ifndef HEED_LSH_SAMPLE_H
#define HEED_LSH_SAMPLE_H

#include "linear_sample.h"

/* Arrays by name; all but HASHES are numbers. */
enum { HQK, HV, HOUT, HLSE, HDOUT, HDQK, HDV, HNUMBERS, HASHES = HNUMBERS, LSH_ARRAYS };

typedef struct lsh_sample {
  int64_t batch, heads, n, d, dv;
  heed_lsh_attention a;
  heed_view view[LSH_ARRAYS]; /* f32 and i32, owned */
  int64_t lengths[8];
} lsh_sample;

/* Shapes and description are set. */
static inline void lsh_fill(lsh_sample *s, random_source *r) {
  const int64_t B = s->batch, H = s->heads, n = s->n, rows[4] = {B, H, n, s->d}, values[4] = {B, H, n, s->dv};
  s->a.size = sizeof s->a;
  for (int i = 0; i < HNUMBERS; i++)
    s->view[i] = linear_array(r, i == HLSE ? 3 : 4, i == HQK || i == HDQK ? rows : values, i == HQK || i == HV || i == HDOUT ? 1 : 0);
  s->view[HASHES] =
      heed_view_of(calloc((size_t)(B * H * s->a.rounds * n) + 1, sizeof(int32_t)), HEED_I32, 4, (int64_t[]){B, H, s->a.rounds, n});
  for (int64_t b = 0; b < B; b++) s->lengths[b] = below(r, n + 1);
}

static inline void lsh_free(lsh_sample *s) {
  for (int i = 0; i < LSH_ARRAYS; i++) free(s->view[i].data);
}

static inline void lsh_forward(heed_context *context, const lsh_sample *s) {
  ok(context, heed_lsh_forward(context, &s->a, &s->view[HQK], &s->view[HV], &s->view[HOUT], &s->view[HLSE]));
}

static inline void lsh_backward(heed_context *context, const lsh_sample *s) {
  ok(context, heed_lsh_backward(context, &s->a, &s->view[HQK], &s->view[HV], &s->view[HOUT], &s->view[HLSE], &s->view[HDOUT],
                                &s->view[HDQK], &s->view[HDV]));
}

/* The same inputs in f64, and room for the oracle's outputs. */
typedef struct lsh_oracle {
  heed_view view[HNUMBERS];
  heed_lsh_attention a;
} lsh_oracle;

static inline void lsh_oracle_make(lsh_oracle *o, const lsh_sample *s) {
  o->a = s->a;
  for (int i = 0; i < HNUMBERS; i++) {
    const int64_t count = hd_view_count(&s->view[i]);
    double *data = calloc((size_t)count + 1, sizeof *data);
    for (int64_t j = 0; j < count; j++) data[j] = ((const float *)s->view[i].data)[j];
    o->view[i] = heed_view_of(data, HEED_F64, s->view[i].ndim, s->view[i].dim);
  }
}

static inline void lsh_oracle_free(lsh_oracle *o) {
  for (int i = 0; i < HNUMBERS; i++) free(o->view[i].data);
}

static inline void lsh_oracle_forward(heed_context *context, lsh_oracle *o) {
  ok(context, heed_lsh_reference(context, &o->a, &o->view[HQK], &o->view[HV], &o->view[HOUT], &o->view[HLSE]));
}

static inline void lsh_oracle_backward(heed_context *context, lsh_oracle *o) {
  ok(context, heed_lsh_backward_reference(context, &o->a, &o->view[HQK], &o->view[HV], &o->view[HDOUT], &o->view[HDQK], &o->view[HDV]));
}

#endif
