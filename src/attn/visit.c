/* visit.c: query rows in lanes for the backward pass, and one tile of keys met by them. */
#include "backward.h"

#include <math.h>

bool hd_visit_cut(const hd_problem *problem, hd_visit *visit, float *memory, int64_t *floats) {
  const int64_t lanes = problem->kernels->tile_lanes;
  float *q, *dout, *lse, *delta;
  const hd_part parts[] = {
      {&q, problem->scoring ? 0 : problem->d, lanes}, {&dout, problem->dv, lanes}, {&lse, 1, lanes}, {&delta, 1, lanes}};
  if (!hd_cut(memory, parts, (int)HD_COUNT(parts), floats)) return false;
  for (int i = 0; memory && i < lanes / problem->kernels->block_lanes; i++) {
    int shift = i * problem->kernels->block_lanes;
    visit->gradient[i] = (hd_attn_gradient){
        .block = {.q = problem->scoring ? NULL : q + shift * problem->d},
        .dout = dout + shift * problem->dv,
        .lse = lse + shift,
        .delta = delta + shift,
    };
  }
  return true;
}

bool hd_visit_scratch_cut(const hd_problem *problem, int64_t tiles, hd_visit_scratch *s, float *memory, int64_t *floats) {
  const int64_t lanes = problem->kernels->tile_lanes, widest = HD_MAX(HD_MAX(problem->d, problem->dv), HD_KEY_TILE);
  const hd_part parts[] = {
      {&s->p, HD_KEY_TILE, lanes},
      {&s->ds, HD_KEY_TILE, lanes},
      {&s->terms, HD_KEY_TILE, lanes},
      {&s->slope, HD_KEY_TILE, lanes},
      {&s->factors, problem->a.factors ? HD_KEY_TILE : 0, lanes},
      {&s->rows, hd_ceil_div(widest, 16) * 16, lanes},
      {&s->out, problem->dv, lanes},
      {&s->keys, hd_ceil_div(problem->key_width, 16) * 16, tiles * HD_KEY_TILE},
      {&s->values, problem->dv, tiles * HD_KEY_TILE},
  };
  return hd_cut(memory, parts, (int)HD_COUNT(parts), floats);
}

/* Rows of a grid into the lanes of each block. */
static void to_blocks(const hd_backward *from, const hd_visit_scratch *scratch, const hd_visit *visit, const hd_grid *grid, int64_t columns,
                      float factor, float *const *to) {
  const hd_kernels *kernels = from->problem->kernels;
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(kernels, grid, &visit->lanes, 0, columns, scratch->rows, rows);
  for (int i = 0; i < visit->blocks; i++) {
    const hd_attn_block *block = &visit->gradient[i].block;
    kernels->to_lanes(rows + block->shift, HD_MIN(visit->lanes.count - block->shift, block->lanes), columns, factor, to[i], block->lanes);
  }
}

/* lse in log2 units and δ, c ascending. A row that saw nothing has δ = 0, whatever stands in its dout. */
static void begin_rows(const hd_problem *problem, const hd_attn_gradient *g, const float *out, int used, char *const *natural_lse) {
  float *lse = (float *)g->lse, *delta = (float *)g->delta;
  memset(delta, 0, (size_t)g->block.lanes * sizeof *delta);
  for (int64_t at = 0; at < problem->dv * g->block.lanes; at += g->block.lanes)
    problem->kernels->mul(g->dout + at, out + at, g->block.lanes, true, delta);
  for (int lane = 0; lane < g->block.lanes; lane++) {
    float natural = lane < used ? *(const float *)natural_lse[lane] : 0;
    lse[lane] = (float)(natural * HD_LOG2E);
    if (natural == -INFINITY) delta[lane] = 0;
  }
}

void hd_visit_begin(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit) {
  const hd_problem *problem = from->problem;
  const hd_lanes *lanes = &visit->lanes;
  float *q[HD_MAX_BLOCKS], *dout[HD_MAX_BLOCKS], *out[HD_MAX_BLOCKS];
  char *natural_lse[HD_MAX_LANES];
  visit->blocks = hd_lanes_blocks(problem, lanes);
  visit->padded = hd_lanes_padded(problem, lanes);
  for (int i = 0; i < visit->blocks; i++) {
    hd_attn_gradient *g = &visit->gradient[i];
    q[i] = (float *)g->block.q;
    dout[i] = (float *)g->dout;
    g->block = hd_lanes_block(problem, lanes, i);
    g->block.q = q[i];
    out[i] = scratch->out + g->block.shift * problem->dv;
  }
  if (!problem->scoring) to_blocks(from, scratch, visit, &from->q, problem->d, hd_query_factor(problem), q);
  to_blocks(from, scratch, visit, &from->dout, problem->dv, 1.0f, dout);
  to_blocks(from, scratch, visit, &from->out, problem->dv, 1.0f, out);
  hd_lane_addresses(&from->lse, lanes, natural_lse);
  for (int i = 0; i < visit->blocks; i++) {
    const hd_attn_gradient *g = &visit->gradient[i];
    begin_rows(problem, g, out[i], HD_MIN(lanes->count - g->block.shift, g->block.lanes), natural_lse + g->block.shift);
  }
}

void hd_visit_keys(const hd_backward *from, const hd_visit_scratch *scratch, int64_t kv, int64_t index, int64_t k0, hd_attn_tile *tile) {
  const hd_problem *problem = from->problem;
  int64_t batch = kv / problem->kv_heads, head = kv % problem->kv_heads, row = index * HD_KEY_TILE;
  hd_keys keys;
  hd_keys_of(from->pass, k0, k0 + tile->keys, &keys);
  tile->k = hd_key_rows(from->k, batch, head, &keys, scratch->keys + row * problem->key_width, &tile->k_stride);
  tile->v = hd_key_rows(from->v, batch, head, &keys, scratch->values + row * problem->dv, &tile->v_stride);
}

hd_score_place hd_visit_place(const hd_backward *from, const hd_visit_scratch *scratch, const hd_visit *visit, const hd_attn_tile *tile,
                              int64_t k0) {
  return (hd_score_place){from->problem, &from->q, &visit->lanes, tile, k0, scratch->rows, scratch->terms, scratch->keys};
}

bool hd_visit_tile(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit, hd_attn_tile *tile, int64_t k0,
                   const hd_live *live, uint64_t visible[HD_KEY_TILE]) {
  const hd_problem *problem = from->problem;
  const hd_lanes *lanes = &visit->lanes;
  int64_t k1 = k0 + tile->keys;
  uint64_t kept[HD_KEY_TILE];
  hd_cover cover = hd_lanes_visible(problem, from->pass, lanes, live, k0, k1, visible);
  if (cover == HD_EMPTY) return false;
  hd_keys keys;
  hd_keys_of(from->pass, k0, k1, &keys);
  tile->visible = cover == HD_FULL ? NULL : visible;
  tile->softcap = problem->softcap_log2;
  tile->scores = scratch->p;
  tile->slope = scratch->slope;
  tile->stride = tile->bias_stride = visit->padded;
  tile->kept = hd_keys_kept(problem, lanes, &keys, kept);
  tile->keep_factor = problem->keep_factor;
  tile->scored = problem->scoring != NULL;
  if (tile->scored) {
    const hd_score_place place = hd_visit_place(from, scratch, visit, tile, k0);
    problem->scoring->kind->scores(problem->scoring, &place);
  }
  tile->bias = hd_key_terms(problem, lanes, &keys, scratch->rows, scratch->terms, visit->padded) ? scratch->terms : NULL;
  tile->factors = hd_lanes_factors(problem, lanes, k0, k1, scratch->rows, scratch->factors, visit->padded);
  for (int i = 0; i < visit->blocks; i++) problem->kernels->attn_backward_lanes(&visit->gradient[i], tile, scratch->ds);
  tile->kept = NULL; // its bits live here
  return true;
}

double hd_delta(const hd_backward *from, int64_t batch, int64_t head, int64_t row) {
  const hd_grid *out = &from->out, *dout = &from->dout;
  const char *o = hd_grid_row(out, batch, head, row), *g = hd_grid_row(dout, batch, head, row);
  double sum = 0;
  if (out->type == HEED_F32 && dout->type == HEED_F32) {
    for (int64_t c = 0; c < from->problem->dv; c++)
      sum += (double)((const float *)o)[c * out->column_stride] * ((const float *)g)[c * dout->column_stride];
    return sum;
  }
  for (int64_t c = 0; c < from->problem->dv; c++)
    sum += hd_element(o + c * out->column_stride * out->size, out->type) * hd_element(g + c * dout->column_stride * dout->size, dout->type);
  return sum;
}
