/* lanes.c: queries cut into tiles, and what goes into and out of their lanes. */
#include "attention.h"

hd_tiling hd_tiling_of(const hd_problem *problem, const hd_sweep *pass) {
  const int64_t lanes = problem->kernels->tile_lanes;
  hd_tiling t = {.queries = HD_MIN(problem->queries, lanes), .heads = 1};
  if (problem->queries * 2 <= lanes && !pass->part) t.heads = HD_MIN(problem->group, lanes / problem->queries);
  t.query_tiles = hd_ceil_div(problem->queries, t.queries);
  t.head_tiles = hd_ceil_div(problem->group, t.heads);
  return t;
}

void hd_lanes_of(const hd_problem *problem, const hd_sweep *pass, const hd_tiling *tiling, int64_t kv, int64_t head_tile,
                 int64_t query_tile, hd_lanes *lanes) {
  int64_t q0 = query_tile * tiling->queries, queries = HD_MIN(tiling->queries, problem->queries - q0);
  int64_t first = head_tile * tiling->heads;
  lanes->heads = (int)HD_MIN(tiling->heads, problem->group - first);
  lanes->batch = kv / problem->kv_heads;
  lanes->count = (int)(lanes->heads * queries);
  int lane = 0;
  for (int h = 0; h < lanes->heads; h++)
    for (int64_t i = 0; i < queries; i++, lane++) {
      lanes->head[lane] = kv % problem->kv_heads * problem->group + first + h;
      lanes->row[lane] = pass && pass->part ? hd_order_query(&pass->order, q0 + i) : q0 + i;
    }
}

int hd_lanes_padded(const hd_problem *problem, const hd_lanes *lanes) {
  return (int)hd_ceil_div(lanes->count, problem->kernels->vector) * problem->kernels->vector;
}

int hd_lanes_blocks(const hd_problem *problem, const hd_lanes *lanes) {
  return (int)hd_ceil_div(lanes->count, problem->kernels->block_lanes);
}

hd_attn_block hd_attn_block_of(const hd_kernels *kernels, int64_t d, int64_t dv, int shift, int used) {
  return (hd_attn_block){
      .d = d,
      .dv = dv,
      .lanes = (int)hd_ceil_div(used, kernels->vector) * kernels->vector,
      .shift = shift,
      .used = ~(uint64_t)0 >> (64 - used),
  };
}

hd_attn_block hd_lanes_block(const hd_problem *problem, const hd_lanes *lanes, int i) {
  const hd_kernels *kernels = problem->kernels;
  const int shift = i * kernels->block_lanes;
  return hd_attn_block_of(kernels, problem->d, problem->dv, shift, HD_MIN(lanes->count - shift, kernels->block_lanes));
}

void hd_lane_addresses(const hd_grid *grid, const hd_lanes *lanes, char **rows) {
  const int64_t step = grid->row_stride * grid->size;
  for (int i = 0; i < lanes->count; i++) // lanes are rows in order, head by head
    rows[i] = i && lanes->head[i] == lanes->head[i - 1] ? rows[i - 1] + (lanes->row[i] - lanes->row[i - 1]) * step
                                                        : hd_grid_row(grid, lanes->batch, lanes->head[i], lanes->row[i]);
}

hd_ahead hd_rows_ahead(const hd_grid *grid, const void *row, int64_t rows) {
  if (rows <= 0 || grid->type != HEED_F32 || grid->column_stride != 1) return (hd_ahead){0};
  return (hd_ahead){.at = row, .stride = grid->row_stride, .columns = grid->columns, .rows = (int)HD_MIN(rows, HD_KEY_TILE)};
}

void hd_lane_rows(const hd_kernels *kernels, const hd_grid *grid, const hd_lanes *lanes, int64_t column, int64_t columns, float *scratch,
                  const float **rows) {
  char *address[HD_MAX_LANES];
  hd_lane_addresses(grid, lanes, address);
  for (int i = 0; i < lanes->count; i++) {
    const char *row = address[i] + column * grid->column_stride * grid->size;
    if (grid->type == HEED_F32 && grid->column_stride == 1) {
      rows[i] = (const float *)row;
    } else {
      hd_to_floats(kernels, row, grid->type, grid->column_stride, columns, scratch + i * columns);
      rows[i] = scratch + i * columns;
    }
  }
}

const uint64_t *hd_lanes_kept(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, uint64_t kept[HD_KEY_TILE]) {
  if (problem->a.dropout == 0) return NULL;
  hd_attn_dropout dropout = {
      .seed = problem->a.seed, .stream = problem->a.stream, .last_dropped = problem->last_dropped, .key = k0, .keys = (int)(k1 - k0)};
  dropout.lanes = lanes->count;
  for (int i = 0; i < HD_MAX_LANES; i++) {
    dropout.query[i] = i < lanes->count ? (uint32_t)lanes->row[i] : 0;
    dropout.head[i] = i < lanes->count ? (uint32_t)(lanes->batch * problem->heads + lanes->head[i]) : 0;
  }
  problem->kernels->attn_kept(&dropout, kept);
  return kept;
}

const uint64_t *hd_keys_kept(const hd_problem *problem, const hd_lanes *lanes, const hd_keys *keys, uint64_t kept[HD_KEY_TILE]) {
  const int64_t first = keys->key[0];
  if (keys->step == 1 || problem->a.dropout == 0) return hd_lanes_kept(problem, lanes, first, first + keys->count, kept);
  for (int i = 0; i < keys->count; i++) hd_lanes_kept(problem, lanes, hd_key(keys, i), hd_key(keys, i) + 1, &kept[i]);
  return kept;
}

const float *hd_lanes_factors(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, float *out,
                              int padded) {
  const heed_attention *a = &problem->a;
  const int keys = (int)(k1 - k0);
  const float *rows[HD_MAX_LANES];
  if (!a->factors) return NULL;
  for (int lane = 0, end; lane < lanes->count; lane = end) {
    for (end = lane + 1; end < lanes->count && lanes->head[end] == lanes->head[lane] && lanes->row[end] == lanes->row[end - 1] + 1;) end++;
    const heed_pair_tile tile = {lanes->batch, lanes->head[lane], lanes->row[lane], k0, end - lane, keys};
    a->factors(a->factors_user, &tile, scratch + lane * keys);
  }
  for (int lane = 0; lane < lanes->count; lane++) rows[lane] = scratch + lane * keys;
  problem->kernels->to_lanes(rows, lanes->count, keys, 1.0f, out, padded);
  return out;
}

bool hd_cut(float *memory, const hd_part *parts, int count, int64_t *floats) {
  for (int i = 0; i < count; i++) {
    int64_t size;
    if (memory) *parts[i].array = memory + *floats;
    if (!hd_mul(parts[i].rows, parts[i].columns, &size) || !hd_add(size, HD_ALIGN / 4 - 1, &size)) return false;
    if (!hd_add(*floats, size / (HD_ALIGN / 4) * (HD_ALIGN / 4), floats)) return false;
  }
  return true;
}
