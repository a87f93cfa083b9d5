/* score_callback.c: scores that the caller computes, a tile at a time; head by head where a tile's lanes belong to several. */
#include "score.h"

/* What the caller is shown of the lanes of head number `part` of the tile. */
static heed_score_tile show(const hd_score_place *at, int part, const float *const *q, const float *const *k) {
  const hd_lanes *lanes = at->lanes;
  int queries = lanes->count / lanes->heads;
  return (heed_score_tile){.batch = lanes->batch,
                           .head = lanes->head[part * queries],
                           .query = lanes->row[0],
                           .key = at->k0,
                           .queries = queries,
                           .keys = at->tile->keys,
                           .d_q = at->problem->d,
                           .d_k = at->problem->key_width,
                           .q = q + part * queries,
                           .k = k};
}

static void find_rows(const hd_score_place *at, const float **q, const float **k) {
  hd_lane_rows(at->problem->kernels, at->q, at->lanes, 0, at->problem->d, at->rows, q);
  for (int key = 0; key < at->tile->keys; key++) k[key] = at->tile->k + key * at->tile->k_stride;
}

static void scores(const hd_scoring *s, const hd_score_place *at) {
  const float *q[HD_MAX_LANES], *k[HD_KEY_TILE], *rows[HD_MAX_LANES];
  const int keys = at->tile->keys;
  find_rows(at, q, k);
  for (int part = 0; part < at->lanes->heads; part++) {
    const heed_score_tile tile = show(at, part, q, k);
    s->score.scores(s->score.user, &tile, at->matrix + part * tile.queries * keys);
  }
  for (int lane = 0; lane < at->lanes->count; lane++) rows[lane] = at->matrix + lane * keys;
  at->problem->kernels->to_lanes(rows, at->lanes->count, keys, (float)(s->scale * HD_LOG2E), at->tile->scores, (int)at->tile->stride);
}

static void gradients(const hd_scoring *s, const hd_score_place *at, const hd_score_gradients *to) {
  const hd_lanes *lanes = at->lanes;
  const int keys = at->tile->keys;
  const float *q[HD_MAX_LANES], *k[HD_KEY_TILE];
  float *rows[HD_MAX_LANES], *dq[HD_MAX_LANES], *dk[HD_KEY_TILE];
  find_rows(at, q, k);
  for (int lane = 0; lane < lanes->count; lane++) rows[lane] = at->matrix + lane * keys;
  for (int lane = 0; lane < lanes->count; lane++) // dS, a row a query
    for (int key = 0; key < keys; key++) rows[lane][key] = (float)(to->ds[key * at->tile->stride + lane] * s->scale);
  for (int lane = 0; lane < lanes->count; lane++) dq[lane] = to->dq + lane * to->query_columns;
  for (int key = 0; key < keys; key++) dk[key] = to->dk + key * to->key_columns;
  for (int part = 0; part < lanes->heads; part++) {
    const heed_score_tile tile = show(at, part, q, k);
    s->score.gradients(s->score.user, &tile, rows[part * tile.queries], dq + part * tile.queries, dk);
  }
}

const hd_score_kind hd_score_callback = {.name = "callback", .scores = scores, .gradients = gradients, .gradients_scaled = true};
