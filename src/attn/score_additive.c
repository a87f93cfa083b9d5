/* score_additive.c: w_vᵀ tanh(W_q q + W_k k). Queries and keys are projected once; a tile then needs h hyperbolic tangents a pair, which are never stored: the backward pass
 * computes them again.
 *
 * With t = tanh(a + b), a = W_q q, b = W_k k: ∂s/∂a = ∂s/∂b = w_v (1 − t²) and ∂s/∂w_v = t. */
#include "score.h"

static heed_status begin(heed_context *context, hd_scoring *s) {
  const int64_t h = s->score.wv->dim[0];
  const heed_gemm_form transposed = {.size = sizeof transposed, .transpose_b = true};
  int64_t q_floats, k_floats, used = 0;
  const bool gradients = s->asked != NULL;
  s->columns = hd_ceil_div(h, 16) * 16;
  HD_REQUIRE(hd_projection_size(s->given_q, s->columns, &q_floats) && hd_projection_size(s->given_k, s->columns, &k_floats) &&
                 hd_add(q_floats, k_floats, &s->floats) && hd_mul(s->floats, gradients ? 2 : 1, &s->floats) &&
                 hd_add(s->floats, 2 * s->columns, &s->floats),
             context, HEED_E_OVERFLOW, "the projected queries and keys do not fit in memory");
  HD_TRY(hd_allocate(context, "projected queries and keys", s->floats, sizeof *s->memory, &s->memory));
  memset(s->memory, 0, (size_t)s->floats * sizeof *s->memory);
  s->q = hd_projection(s->given_q, h, s->columns, s->memory, &used);
  s->k = hd_projection(s->given_k, h, s->columns, s->memory, &used);
  if (gradients) s->dq = hd_projection(s->given_q, h, s->columns, s->memory, &used);
  if (gradients) s->dk = hd_projection(s->given_k, h, s->columns, s->memory, &used);
  s->weights = s->memory + used;
  s->scaled = s->weights + s->columns;
  for (int64_t i = 0; i < h; i++) {
    s->weights[i] = (float)hd_per_head(s->score.wv, i);
    s->scaled[i] = (float)(s->weights[i] * s->scale * HD_LOG2E);
  }
  HD_TRY(heed_gemm(context, &transposed, s->given_q, s->score.wq, &s->q));
  return heed_gemm(context, &transposed, s->given_k, s->score.wk, &s->k);
}

static void scores(const hd_scoring *s, const hd_score_place *at) {
  for (int i = 0; i < at->blocks; i++) at->problem->kernels->additive_scores(at->block[i], at->tile, s->scaled);
}

static void gradients(const hd_scoring *s, const hd_score_place *at, const hd_score_gradients *to) {
  const hd_kernels *kernels = at->problem->kernels;
  for (int i = 0; i < at->blocks; i++) kernels->additive_backward_lanes(&to->gradient[i], at->tile, s->weights, to->ds);
  kernels->additive_backward_keys(at->tile, to->ds, at->lanes->count, to->queries, s->weights, to->columns, to->dk, to->dw);
}

static heed_status end(heed_context *context, const hd_scoring *s) {
  const heed_attention_gradients *asked = s->asked;
  if (asked->dq) HD_TRY(heed_gemm(context, NULL, &s->dq, s->score.wq, asked->dq));
  if (asked->dk) HD_TRY(heed_gemm(context, NULL, &s->dk, s->score.wk, asked->dk));
  HD_TRY(hd_weight_gradient(context, &s->dq, s->given_q, asked->dwq));
  return hd_weight_gradient(context, &s->dk, s->given_k, asked->dwk);
}

const hd_score_kind hd_score_additive = {.name = "additive", .begin = begin, .scores = scores, .gradients = gradients, .end = end};
