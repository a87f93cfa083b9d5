/* hashed.c: LSH attention in the transformer: the call with the pass's own views, and what a watch sees of it. */
#include "hashed.h"

#include "../attn/lsh.h"

#include <math.h>

/* Queries that are also keys, or values, of `rows` rows from `row` of the pass on. */
static heed_view rows_of(const hd_pass *pass, int64_t row, int64_t rows, bool values) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t d = spec->head_dim, stride = hd_spec_qkv(spec), column = values ? spec->heads * d : 0;
  return (heed_view){pass->scratch->qkv + row * stride + column, HEED_F32, 4, {1, spec->heads, rows, d}, {0, d, stride, 1}};
}

static heed_view out_of(const hd_pass *pass, int64_t row, int64_t rows) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t d = spec->head_dim, stride = spec->heads * d;
  return (heed_view){pass->scratch->mixed + row * stride, HEED_F32, 4, {1, spec->heads, rows, d}, {0, d, stride, 1}};
}

static heed_lsh_attention attention_of(const hd_pass *pass, int64_t layer) {
  const hd_attention_kind kind = hd_kind_of(&pass->model->kinds, layer);
  return hd_kind_lsh(&kind, &pass->model->spec, layer);
}

/* Without its own reports, as the block's other calls. */
heed_status hd_hashed_attend(const hd_pass *pass, int64_t layer) {
  const heed_lsh_attention a = attention_of(pass, layer);
  const heed_progress progress = pass->context->progress;
  heed_status status = HEED_OK;
  int64_t row = 0;
  pass->context->progress = NULL;
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count && status == HEED_OK; row += span++->rows) {
    const heed_view qk = rows_of(pass, row, span->rows, false), v = rows_of(pass, row, span->rows, true),
                    out = out_of(pass, row, span->rows);
    status = heed_lsh_forward(pass->context, &a, &qk, &v, &out, NULL);
  }
  pass->context->progress = progress;
  return status;
}

/* ---- what a watch sees ------------------------------------------------------------------------------------------------------------- */

static heed_view head_of(heed_view view, int64_t head) {
  view.data = (float *)view.data + head * view.stride[1];
  view.dim[1] = 1;
  return view;
}

/* What values that tell keys apart become are the weights: out = A · 1. With buckets from the rows themselves and rows of zeros in their place, all weights of a row are alike, and none of those that it
 * has vanishes: so they tell who met. */
static heed_status find_head(const hd_pass *pass, const heed_lsh_attention *given, int64_t head, const heed_view *units, float *weights,
                             uint8_t *visible) {
  heed_context *context = pass->context;
  const int64_t n = pass->rows;
  const heed_view qk = head_of(rows_of(pass, 0, n, false), head), out = heed_view_of(weights, HEED_F32, 4, (int64_t[]){1, 1, n, n});
  const heed_view zeros = {&(float){0}, HEED_F32, 4, {1, 1, n, qk.dim[3]}, {0, 0, 0, 0}};
  heed_lsh_attention a = *given;
  int32_t *buckets;
  HD_TRY(hd_allocate(context, "buckets", a.rounds * n, sizeof *buckets, &buckets));
  const heed_view hashes = heed_view_of(buckets, HEED_I32, 4, (int64_t[]){1, 1, a.rounds, n});
  heed_status status = heed_lsh_hash(context, &a, &qk, &hashes);
  a.hashes = &hashes;
  if (status == HEED_OK) status = heed_lsh_forward(context, &a, &zeros, units, &out, NULL);
  for (int64_t i = 0; i < n * n && status == HEED_OK; i++) visible[i] = weights[i] > 0;
  if (status == HEED_OK) status = heed_lsh_forward(context, &a, &qk, units, &out, NULL);
  hd_release(context, buckets, a.rounds * n, sizeof *buckets);
  return status;
}

static heed_status find_implied(const hd_pass *pass, int64_t layer, int64_t n_heads, const int64_t *heads, float *weights,
                                uint8_t *visible) {
  const heed_lsh_attention a = attention_of(pass, layer);
  const int64_t n = pass->rows;
  float *unit;
  HD_TRY(hd_allocate(pass->context, "values that tell keys apart", n * n, sizeof *unit, &unit));
  memset(unit, 0, (size_t)(n * n) * sizeof *unit);
  for (int64_t i = 0; i < n; i++) unit[i * n + i] = 1;
  const heed_view units = heed_view_of(unit, HEED_F32, 4, (int64_t[]){1, 1, n, n});
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < n_heads && status == HEED_OK; i++)
    status = find_head(pass, &a, heads[i], &units, weights + i * n * n, visible + i * n * n);
  hd_release(pass->context, unit, n * n, sizeof *unit);
  return status;
}

/* Keys are rows as long as 1: [n,heads,d]. */
static void make_keys(const hd_pass *pass, float *keys) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t d = spec->head_dim, stride = hd_spec_qkv(spec);
  for (int64_t i = 0; i < pass->rows; i++)
    for (int64_t h = 0; h < spec->heads; h++, keys += d) {
      const float *row = pass->scratch->qkv + i * stride + h * d;
      double square = HD_LSH_EPSILON * (double)d;
      for (int64_t c = 0; c < d; c++) square += (double)row[c] * (double)row[c];
      for (int64_t c = 0; c < d; c++) keys[c] = (float)((double)row[c] / sqrt(square));
    }
}

/* All other rows, earlier ones where it is causal; itself where there is none. */
static void make_mask(bool causal, int64_t n, uint8_t *mask) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) mask[i * n + j] = i == j ? n == 1 || (causal && i == 0) : !causal || j < i;
}

static heed_status watch(const hd_pass *pass, int64_t layer, float *keys, uint8_t *mask) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t n = pass->rows, d = spec->head_dim;
  const heed_lsh_attention a = attention_of(pass, layer);
  const heed_view k_view = {keys, HEED_F32, 4, {1, spec->heads, n, d}, {0, d, spec->heads * d, 1}}, v_view = rows_of(pass, 0, n, true);
  const heed_view may_look = heed_view_of(mask, HEED_U8, 2, (int64_t[]){n, n});
  const heed_attention exact = {.size = sizeof exact, .has_scale = true, .scale = a.has_scale ? a.scale : 1, .attend = &may_look};
  hd_source k, v;
  make_keys(pass, keys);
  make_mask(a.causal, n, mask);
  HD_TRY(hd_source_of_view(pass->context, &k_view, "k", &k));
  HD_TRY(hd_source_of_view(pass->context, &v_view, "v", &v));
  const hd_mixing mixing = {.stage = pass->stage,
                            .layer = layer,
                            .keys = n,
                            .implied = find_implied,
                            .shows = true,
                            .attention = &exact,
                            .q = rows_of(pass, 0, n, false),
                            .out = out_of(pass, 0, n),
                            .k = &k,
                            .v = &v};
  return hd_watch_layer(pass, &mixing);
}

heed_status hd_hashed_watch(const hd_pass *pass, int64_t layer) {
  heed_context *context = pass->context;
  const int64_t n = pass->rows, floats = n * pass->model->spec.heads * pass->model->spec.head_dim;
  float *keys;
  uint8_t *mask;
  int64_t pairs;
  HD_REQUIRE(hd_mul(n, n, &pairs), context, HEED_E_OVERFLOW, "weights of %lld × %lld do not fit in memory", (long long)n, (long long)n);
  HD_TRY(hd_allocate(context, "keys", floats, sizeof *keys, &keys));
  heed_status status = hd_allocate(context, "who may look", pairs, 1, &mask);
  if (status == HEED_OK) {
    status = watch(pass, layer, keys, mask);
    hd_release(context, mask, pairs, 1);
  }
  hd_release(context, keys, floats, sizeof *keys);
  return status;
}
