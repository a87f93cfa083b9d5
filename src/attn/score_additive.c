/* score_additive.c: w_vᵀ tanh(W_q q + W_k k). Queries and keys are projected once; a tile makes exponentials of their rows and of these the tangents
 * of its pairs (body_additive.h), which are never stored: the backward pass computes them again.
 *
 * With t = tanh(a + b), a = W_q q, b = W_k k: ∂s/∂a = ∂s/∂b = w_v (1 − t²) and ∂s/∂w_v = t. */
#include "score.h"

/* Rows of projections are an odd number of cache lines apart, so that they do not all fall into the same sets. */
static int64_t row_stride(int64_t h) { return (hd_ceil_div(h, 16) | 1) * 16; }

static heed_status begin(heed_context *context, hd_scoring *s) {
  const int64_t h = s->score.wv->dim[0], stride = row_stride(h);
  const heed_gemm_form transposed = {.size = sizeof transposed, .transpose_b = true};
  int64_t q_floats, k_floats, used = 0;
  const bool gradients = s->asked != NULL;
  s->columns = hd_ceil_div(h, 16) * 16;
  HD_REQUIRE(hd_projection_size(s->given_q, stride, &q_floats) && hd_projection_size(s->given_k, stride, &k_floats) &&
                 hd_add(q_floats, k_floats, &s->floats) && hd_mul(s->floats, gradients ? 2 : 1, &s->floats) &&
                 hd_add(s->floats, 2 * s->columns, &s->floats),
             context, HEED_E_OVERFLOW, "the projected queries and keys do not fit in memory");
  HD_TRY(hd_allocate(context, "projected queries and keys", s->floats, sizeof *s->memory, &s->memory));
  s->q = hd_projection(s->given_q, h, stride, s->memory, &used);
  s->k = hd_projection(s->given_k, h, stride, s->memory, &used);
  for (int64_t row = 0; row < used; row += stride) memset(s->memory + row + h, 0, (size_t)(s->columns - h) * sizeof *s->memory);
  if (gradients) s->dq = hd_projection(s->given_q, h, stride, s->memory, &used);
  if (gradients) s->dk = hd_projection(s->given_k, h, stride, s->memory, &used);
  s->weights = s->memory + used;
  s->scaled = s->weights + s->columns;
  for (int64_t i = 0; i < s->columns; i++) {
    s->weights[i] = i < h ? (float)hd_per_head(s->score.wv, i) : 0;
    s->scaled[i] = (float)(s->weights[i] * s->scale * HD_LOG2E);
  }
  HD_TRY(heed_gemm(context, &transposed, s->given_q, s->score.wq, &s->q));
  return heed_gemm(context, &transposed, s->given_k, s->score.wk, &s->k);
}

/* The tile's pairs with weights w; rows [lanes] and far [64] are filled for them. */
static hd_additive pairs_of(const hd_scoring *s, const hd_score_place *at, const float *w, const float **rows, uint64_t *far) {
  const hd_kernels *kernels = at->problem->kernels;
  const hd_attn_tile *tile = at->tile;
  uint64_t queries = 0;
  hd_lane_rows(kernels, at->q, at->lanes, 0, at->problem->d, NULL, rows); // projections lie in place, so the scratch for rows is free
  for (int i = 0; i < at->lanes->count; i++)
    queries |= (uint64_t)(kernels->additive_row(rows[i], s->columns, at->rows + i * s->columns) > HD_ADDITIVE_NEAR) << i;
  for (int i = 0; i < tile->keys; i++)
    far[i] = kernels->additive_row(tile->k + i * tile->k_stride, s->columns, at->keys + i * s->columns) > HD_ADDITIVE_NEAR ? queries : 0;
  return (hd_additive){
      .columns = s->columns, .w = w, .count = at->lanes->count, .rows = rows, .q = at->rows, .k = at->keys, .far = queries ? far : NULL};
}

static void scores(const hd_scoring *s, const hd_score_place *at) {
  const float *rows[HD_MAX_LANES];
  uint64_t far[HD_KEY_TILE];
  const hd_additive pairs = pairs_of(s, at, s->scaled, rows, far);
  at->problem->kernels->additive_scores(&pairs, at->tile);
}

static void gradients(const hd_scoring *s, const hd_score_place *at, const hd_score_gradients *to) {
  const float *rows[HD_MAX_LANES];
  uint64_t far[HD_KEY_TILE];
  const hd_additive pairs = pairs_of(s, at, s->weights, rows, far);
  at->problem->kernels->additive_gradients(&pairs, at->tile, to->ds, to->dq, to->dk, to->dw);
}

static heed_status end(heed_context *context, const hd_scoring *s) {
  const heed_attention_gradients *asked = s->asked;
  if (asked->dq) HD_TRY(heed_gemm(context, NULL, &s->dq, s->score.wq, asked->dq));
  if (asked->dk) HD_TRY(heed_gemm(context, NULL, &s->dk, s->score.wk, asked->dk));
  HD_TRY(hd_weight_gradient(context, &s->dq, s->given_q, asked->dwq));
  return hd_weight_gradient(context, &s->dk, s->given_k, asked->dwk);
}

const hd_score_kind hd_score_additive = {.name = "additive", .begin = begin, .scores = scores, .gradients = gradients, .end = end};
