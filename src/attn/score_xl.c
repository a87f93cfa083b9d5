/* score_xl.c: Transformer-XL's scores, (q + u) · k + (q + v) · r_δ (Dai et al. 2019, section 3.3). Queries are kept twice, with u and with v. The products with r are made for all distances
 * that the tile's pairs have, by the kernel that compares queries and keys, and each pair takes the one of its own distance: r is read as it is, never spread over pairs.
 *
 * Backward: of the two copies of the queries each has its gradient; their sum is q's, their sums over rows are u's and v's. r's is made by distance (backward_distance.c). */
#include "attention.h"

/* Floats of a row of queries: both copies, padded with 0. */
static int64_t row_floats(const hd_scoring *s) { return 2 * s->columns; }

/* The copies of a row of queries, or their gradients, rows numbered over everything. */
static float *row_of(const heed_view *copies, const hd_scoring *s, int64_t row) { return (float *)copies->data + row * row_floats(s); }

/* Row `row` of a grid, numbered likewise. */
static char *grid_row(const hd_grid *grid, int64_t row) {
  return hd_grid_row(grid, row / grid->rows / grid->heads, row / grid->rows % grid->heads, row % grid->rows);
}

enum { BLOCK = 16 }; /* rows that one piece of parallel work copies */

typedef struct copying {
  const hd_kernels *kernels;
  const hd_scoring *s;
  hd_grid grid;
  int64_t rows;
} copying;

static copying copying_of(heed_context *context, const hd_scoring *s, const hd_grid *grid) {
  return (copying){hd_kernels_of(context), s, *grid, grid->batch * grid->heads * grid->rows};
}

/* q + u beside q + v. */
static void copy_block(void *argument, int64_t i, int worker) {
  const copying *c = argument;
  const hd_scoring *s = c->s;
  const int64_t d = c->grid.columns;
  (void)worker;
  for (int64_t row = i * BLOCK; row < HD_MIN(c->rows, (i + 1) * BLOCK); row++) {
    const float *sides = s->weights + row / c->grid.rows % c->grid.heads * row_floats(s);
    float *to = row_of(&s->q, s, row), *second = to + s->columns;
    hd_to_floats(c->kernels, grid_row(&c->grid, row), c->grid.type, c->grid.column_stride, d, second);
    c->kernels->add(second, sides, d, to);
    c->kernels->add(second, sides + s->columns, d, second);
    for (int64_t pad = d; pad < s->columns; pad++) to[pad] = second[pad] = 0;
  }
}

/* u beside v, a row a head. */
static void copy_sides(const hd_scoring *s) {
  const heed_view *views[2] = {s->score.content, s->score.position};
  for (int which = 0; which < 2; which++)
    for (int64_t at = 0; at < hd_view_count(views[which]); at++)
      s->weights[at / views[which]->dim[1] * row_floats(s) + which * s->columns + at % views[which]->dim[1]] =
          (float)hd_element(hd_view_at(views[which], at), views[which]->type);
}

/* Whether rows of distances can be read where they are. */
static bool lie_ready(const heed_view *r) { return r->type == HEED_F32 && (r->stride[2] == 1 || r->dim[2] <= 1); }

static void copy_distances(hd_scoring *s, float *to) {
  const heed_view *r = s->score.distances;
  if (lie_ready(r)) {
    s->distances = r->data;
    s->distance_head = r->stride[0], s->distance_row = r->stride[1];
    return;
  }
  s->distances = to;
  s->distance_row = r->dim[2], s->distance_head = r->dim[1] * r->dim[2];
  for (int64_t at = 0; at < hd_view_count(r); at++) to[at] = (float)hd_element(hd_view_at(r, at), r->type);
}

static heed_status begin(heed_context *context, hd_scoring *s) {
  const heed_view *r = s->score.distances, *q = s->given_q;
  int64_t q_floats, r_floats, side_floats, used = 0;
  hd_grid grid;
  HD_TRY(hd_grid_make(context, q, "q", &grid));
  s->columns = hd_ceil_div(grid.columns, 16) * 16;
  r_floats = lie_ready(r) ? 0 : hd_view_count(r);
  HD_REQUIRE(hd_projection_size(q, row_floats(s), &q_floats) && hd_mul(grid.heads, row_floats(s), &side_floats) &&
                 hd_mul(q_floats, s->asked ? 2 : 1, &s->floats) && hd_add(s->floats, r_floats, &s->floats) &&
                 hd_add(s->floats, side_floats, &s->floats),
             context, HEED_E_OVERFLOW, "the queries and distances do not fit in memory");
  HD_TRY(hd_allocate(context, "queries and distances", s->floats, sizeof *s->memory, &s->memory));
  s->q = hd_projection(q, row_floats(s), row_floats(s), s->memory, &used);
  if (s->asked) s->dq = hd_projection(q, row_floats(s), row_floats(s), s->memory, &used);
  s->weights = s->memory + used;
  copy_sides(s);
  copy_distances(s, s->weights + side_floats);
  copying copying = copying_of(context, s, &grid);
  hd_parallel(context, hd_ceil_div(copying.rows, BLOCK), copy_block, &copying);
  return HEED_OK;
}

/* ---- scores ------------------------------------------------------------------------------------------------------------------------ */

/* Products of the lanes' queries, of the copy at `column`, with `count` rows, into out [count][stride]. */
static void multiply(const hd_score_place *at, const float *const *rows, int64_t column, const float *with, int64_t stride, int count,
                     float *out) {
  const hd_problem *problem = at->problem;
  const hd_kernels *kernels = problem->kernels;
  const int64_t d = problem->key_width;
  const float *from[HD_MAX_LANES];
  const hd_attn_tile tile = {.k = with, .k_stride = stride, .keys = count, .scores = out, .stride = at->tile->stride};
  for (int i = 0; i < at->lanes->count; i++) from[i] = rows[i] + column;
  for (int i = 0; i < hd_lanes_blocks(problem, at->lanes); i++) {
    hd_attn_block block = hd_lanes_block(problem, at->lanes, i);
    float *q = at->rows + block.shift * d;
    kernels->to_lanes(from + block.shift, HD_MIN(at->lanes->count - block.shift, block.lanes), d, hd_query_factor(problem), q, block.lanes);
    block.d = d, block.q = q;
    kernels->attn_scores(&block, &tile);
  }
}

/* Where the lanes of one head stand. */
typedef struct stand {
  int begin, end; /* lanes */
  int64_t head, position[HD_MAX_LANES];
} stand;

static void find_stand(const hd_score_place *at, int part, stand *out) {
  const hd_lanes *lanes = at->lanes;
  const int queries = lanes->count / lanes->heads;
  *out = (stand){.begin = part * queries, .end = (part + 1) * queries, .head = lanes->head[part * queries]};
  for (int lane = out->begin; lane < out->end; lane++)
    out->position[lane] = hd_problem_place(at->problem, lanes->batch, lanes->row[lane]).position;
}

/* Rows of distances that the head's pairs have: [*low, *high]. */
static void find_range(const hd_scoring *s, const hd_score_place *at, const stand *stand, int64_t *low, int64_t *high) {
  const int64_t last = at->k0 + at->tile->keys - 1;
  *low = INT64_MAX, *high = 0;
  for (int lane = stand->begin; lane < stand->end; lane++) {
    *low = HD_MIN(*low, hd_distance_row(&s->score, stand->position[lane], last));
    *high = HD_MAX(*high, hd_distance_row(&s->score, stand->position[lane], at->k0));
  }
}

/* Whether any pair of the head has a distance of rows [row, row + 64): rows of queries need not be neighbours. */
static bool meets(const hd_scoring *s, const hd_score_place *at, const stand *stand, int64_t row) {
  const int64_t last = at->k0 + at->tile->keys - 1;
  for (int lane = stand->begin; lane < stand->end; lane++)
    if (hd_distance_row(&s->score, stand->position[lane], last) < row + HD_KEY_TILE &&
        hd_distance_row(&s->score, stand->position[lane], at->k0) >= row)
      return true;
  return false;
}

static void add_distances(const hd_scoring *s, const hd_score_place *at, const stand *stand, int64_t row, int count) {
  const int64_t stride = at->tile->stride;
  for (int lane = stand->begin; lane < stand->end; lane++) {
    int begin, end;
    hd_distance_keys(&s->score, stand->position[lane], at->k0, at->tile->keys, row, count, &begin, &end);
    for (int key = begin; key < end; key++)
      at->tile->scores[key * stride + lane] +=
          at->matrix[(hd_distance_row(&s->score, stand->position[lane], at->k0 + key) - row) * stride + lane];
  }
}

static void scores(const hd_scoring *s, const hd_score_place *at) {
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(at->problem->kernels, at->q, at->lanes, 0, row_floats(s), NULL, rows); // copies lie in place
  multiply(at, rows, 0, at->tile->k, at->tile->k_stride, at->tile->keys, at->tile->scores);
  for (int part = 0; part < at->lanes->heads; part++) {
    stand stand;
    int64_t low, high;
    find_stand(at, part, &stand);
    find_range(s, at, &stand, &low, &high);
    for (int64_t row = low; row <= high; row += HD_KEY_TILE) {
      const int count = (int)HD_MIN(HD_KEY_TILE, high + 1 - row);
      if (!meets(s, at, &stand, row)) continue;
      multiply(at, rows, s->columns, hd_distance_at(s, stand.head, row), s->distance_row, count, at->matrix);
      add_distances(s, at, &stand, row, count);
    }
  }
}

/* ---- gradients --------------------------------------------------------------------------------------------------------------------- */

/* Sums over rows of keys or distances, a lane each: what query_gradients makes of score gradients. */
typedef struct sums {
  uint64_t seen[HD_MAX_LANES]; /* of each lane, which rows its pairs have */
  float *ds;                   /* [lanes][64] */
  float *to;                   /* [lanes][columns] */
} sums;

/* Adds Σ over rows, ascending, of ds row, to sums->to. Rows are as wide as `columns`. */
static void add_rows(const hd_scoring *s, const hd_score_place *at, const sums *sums, const float *with, int64_t stride, int count) {
  const float *rows[HD_KEY_TILE];
  const hd_attn_tile tile = {.keys = at->lanes->count, .stride = HD_KEY_TILE, .visible = sums->seen};
  for (int row = 0; row < count; row++) rows[row] = with + row * stride;
  at->problem->kernels->attn_backward_keys(&tile, sums->ds, count, rows, s->columns, sums->to);
}

/* The same, row by row, where rows are narrower: nothing may be read behind them. */
static void add_pairs(const hd_scoring *s, const hd_score_place *at, const sums *sums, const float *with, int64_t stride, int count) {
  for (int lane = 0; lane < at->lanes->count; lane++)
    for (int row = 0; row < count; row++)
      if (sums->seen[lane] >> row & 1)
        at->problem->kernels->scale(with + row * stride, sums->ds[lane * HD_KEY_TILE + row], at->problem->key_width, true,
                                    sums->to + lane * s->columns);
}

/* Adds the sums of a tile, each one chain, to dq from a column on; the next begin at 0. */
static void finish(const hd_scoring *s, const hd_score_place *at, const sums *sums, const hd_score_gradients *gradients, int64_t column) {
  for (int lane = 0; lane < at->lanes->count; lane++) {
    float *dq = gradients->dq + lane * gradients->query_columns + column;
    at->problem->kernels->add(dq, sums->to + lane * s->columns, s->columns, dq);
  }
  memset(sums->to, 0, (size_t)(at->lanes->count * s->columns) * sizeof *sums->to);
}

static bool is_visible(const hd_attn_tile *tile, int key, int lane) { return !tile->visible || tile->visible[key] >> lane & 1; }

static void clear(const hd_score_place *at, sums *sums) {
  memset(sums->seen, 0, sizeof sums->seen);
  memset(sums->ds, 0, (size_t)(at->lanes->count * HD_KEY_TILE) * sizeof *sums->ds);
}

/* dq of both copies: Σ over visible keys of dS k, and of dS r by distance. */
static void query_gradients(const hd_scoring *s, const hd_score_place *at, const hd_score_gradients *to) {
  const hd_attn_tile *tile = at->tile;
  sums sums = {.ds = at->matrix, .to = at->rows};
  void (*const add)(const hd_scoring *, const hd_score_place *, const struct sums *, const float *, int64_t, int) =
      at->problem->key_width == s->columns ? add_rows : add_pairs;
  memset(sums.to, 0, (size_t)(at->lanes->count * s->columns) * sizeof *sums.to);
  clear(at, &sums);
  for (int key = 0; key < tile->keys; key++)
    for (int lane = 0; lane < at->lanes->count; lane++) {
      sums.seen[lane] |= (uint64_t)is_visible(tile, key, lane) << key;
      sums.ds[lane * HD_KEY_TILE + key] = to->ds[key * tile->stride + lane];
    }
  add(s, at, &sums, tile->k, tile->k_stride, tile->keys);
  finish(s, at, &sums, to, 0);
  for (int part = 0; part < at->lanes->heads; part++) {
    stand stand;
    int64_t low, high;
    find_stand(at, part, &stand);
    find_range(s, at, &stand, &low, &high);
    for (int64_t row = low; row <= high; row += HD_KEY_TILE) {
      const int count = (int)HD_MIN(HD_KEY_TILE, high + 1 - row);
      clear(at, &sums);
      for (int lane = stand.begin; lane < stand.end; lane++) {
        int begin, end;
        hd_distance_keys(&s->score, stand.position[lane], at->k0, tile->keys, row, count, &begin, &end);
        for (int key = begin; key < end; key++) {
          const int64_t of = hd_distance_row(&s->score, stand.position[lane], at->k0 + key) - row;
          if (!is_visible(tile, key, lane)) continue;
          sums.seen[lane] |= (uint64_t)1 << of;
          sums.ds[lane * HD_KEY_TILE + of] += to->ds[key * tile->stride + lane];
        }
      }
      add(s, at, &sums, hd_distance_at(s, stand.head, row), s->distance_row, count);
    }
  }
  finish(s, at, &sums, to, s->columns);
}

static void gradients(const hd_scoring *s, const hd_score_place *at, const hd_score_gradients *to) {
  const float *rows[HD_MAX_LANES];
  hd_attn_tile tile = *at->tile;
  memset(tile.ahead, 0, sizeof tile.ahead);
  hd_lane_rows(at->problem->kernels, at->q, at->lanes, 0, row_floats(s), NULL, rows);
  at->problem->kernels->attn_backward_keys(&tile, to->ds, at->lanes->count, rows, to->key_columns, to->dk);
  query_gradients(s, at, to);
}

/* Sums over batch entries and rows of one copy's gradient. */
typedef struct summing {
  const hd_scoring *s;
  const hd_grid *q;
  int64_t column;
  const heed_view *to;
} summing;

static void sum_head(void *argument, int64_t head, int worker) {
  enum { AT_ONCE = 64 }; // columns
  const summing *t = argument;
  const hd_grid *q = t->q;
  (void)worker;
  for (int64_t c0 = 0; c0 < q->columns; c0 += AT_ONCE) {
    const int64_t columns = HD_MIN(AT_ONCE, q->columns - c0);
    double sum[AT_ONCE] = {0};
    for (int64_t batch = 0; batch < q->batch; batch++)
      for (int64_t row = 0; row < q->rows; row++) {
        const float *from = row_of(&t->s->dq, t->s, (batch * q->heads + head) * q->rows + row) + t->column + c0;
        for (int64_t c = 0; c < columns; c++) sum[c] += (double)from[c];
      }
    for (int64_t c = 0; c < columns; c++) hd_element_store(hd_view_at(t->to, head * q->columns + c0 + c), t->to->type, sum[c]);
  }
}

static void sum_side(heed_context *context, const hd_scoring *s, const hd_grid *q, int64_t column, const heed_view *to) {
  summing summing = {s, q, column, to};
  if (to) hd_parallel(context, q->heads, sum_head, &summing);
}

static void add_block(void *argument, int64_t i, int worker) {
  const copying *c = argument;
  const hd_scoring *s = c->s;
  (void)worker;
  for (int64_t row = i * BLOCK; row < HD_MIN(c->rows, (i + 1) * BLOCK); row++) {
    float *of = row_of(&s->dq, s, row);
    c->kernels->add(of, of + s->columns, c->grid.columns, of);
    hd_from_floats(c->kernels, of, c->grid.columns, grid_row(&c->grid, row), c->grid.type, c->grid.column_stride);
  }
}

static heed_status end(heed_context *context, const hd_scoring *s) {
  const heed_attention_gradients *asked = s->asked;
  hd_grid grid;
  HD_TRY(hd_grid_make(context, s->given_q, "q", &grid));
  sum_side(context, s, &grid, 0, asked->dcontent);
  sum_side(context, s, &grid, s->columns, asked->dposition);
  if (!asked->dq) return HEED_OK;
  HD_TRY(hd_grid_make(context, asked->dq, "dq", &grid));
  copying copying = copying_of(context, s, &grid);
  hd_parallel(context, hd_ceil_div(copying.rows, BLOCK), add_block, &copying);
  return HEED_OK;
}

const hd_score_kind hd_score_xl = {.name = "xl", .begin = begin, .scores = scores, .gradients = gradients, .end = end};
