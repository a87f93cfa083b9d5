/* score_bilinear.c: qᵀ W k is the dot product of q W with k, so only the queries are projected. */
#include "score.h"

static heed_status begin(heed_context *context, hd_scoring *s) {
  const int64_t d_k = s->given_k->dim[s->given_k->ndim - 1];
  int64_t rows = 0, used = 0;
  const bool gradients = s->asked != NULL;
  HD_REQUIRE(hd_projection_size(s->given_q, d_k, &rows) && hd_mul(rows, gradients ? 2 : 1, &s->floats), context, HEED_E_OVERFLOW,
             "the projected queries do not fit in memory");
  HD_TRY(hd_allocate(context, "projected queries", s->floats, sizeof *s->memory, &s->memory));
  s->q = hd_projection(s->given_q, d_k, d_k, s->memory, &used);
  if (gradients) s->dq = hd_projection(s->given_q, d_k, d_k, s->memory, &used);
  return heed_gemm(context, NULL, s->given_q, s->score.wq, &s->q);
}

static heed_status end(heed_context *context, const hd_scoring *s) {
  const heed_gemm_form transposed = {.size = sizeof transposed, .transpose_b = true};
  if (s->asked->dq) HD_TRY(heed_gemm(context, &transposed, &s->dq, s->score.wq, s->asked->dq));
  return hd_weight_gradient(context, s->given_q, &s->dq, s->asked->dwq);
}

const hd_score_kind hd_score_bilinear = {.name = "bilinear", .begin = begin, .end = end};
