/* forward.c: out = softmax(scores) · V by tiles. Work is cut into query tiles; each walks the tiles of keys that its visibility leaves alive and hands them to the kernel.
 *
 * A tile's lanes are query rows of one head, or, when there are few queries, the rows of several heads that read the same keys. Lanes are independent, so how rows are
 * grouped never shows in the result. Memory is a few tiles a worker, whatever the lengths. One or a few queries a head go to decode.c. */
#include "attention.h"
#include "visible.h"

#include <math.h>

struct worker {
  float *queries;                   /* [d][lanes] of every block in turn, where scores are products */
  float *chunk, *total;             /* [dv][lanes] likewise */
  float *m, *l, *total_m, *total_l; /* [lanes] */
  float *scores, *terms, *factors;  /* [64][lanes]; factors where there are any */
  float *rows;                      /* [lanes][max(d, dv, 64)]: rows that need a copy on their way in or out */
  float *keys, *values;             /* [64][d], [64][dv]: keys and values that need one */
  hd_live live;                     /* of the query tile under way */
};

/* Keys and values of a head up to half a megabyte are taken to stay in a second-level cache. */
enum { NEAR_FLOATS = 128 << 10 };

struct job {
  const hd_problem *problem;
  const hd_sweep *pass;
  bool first, last;    /* of the passes */
  hd_grid q, out, lse; /* lse.data NULL: not asked */
  // What passes before the last leave behind, as f32: numerators, which may lie in out, and [rows][m, l] of all heads, l −1 where a row has seen nothing.
  hd_grid numerators;
  float *sums;
  const hd_source *k, *v;
  hd_tiling tiling;
  bool bf16; /* the kernel takes keys and values as they lie */
  int64_t first_item;
  struct worker *workers;
};

/* ---- scratch ---------------------------------------------------------------------------------------------------------------------- */

static bool lay_out(const hd_problem *problem, struct worker *worker, float *memory, int64_t *floats) {
  const int64_t lanes = problem->kernels->tile_lanes, d = problem->d, dv = problem->dv;
  const int64_t widest = hd_ceil_div(HD_MAX(HD_MAX(d, dv), HD_KEY_TILE), 16) * 16, widest_key = hd_ceil_div(problem->key_width, 16) * 16;
  const hd_part parts[] = {
      {&worker->queries, problem->scoring ? 0 : d, lanes},
      {&worker->chunk, dv, lanes},
      {&worker->total, dv, lanes},
      {&worker->m, 1, lanes},
      {&worker->l, 1, lanes},
      {&worker->total_m, 1, lanes},
      {&worker->total_l, 1, lanes},
      {&worker->scores, HD_KEY_TILE, lanes},
      {&worker->terms, HD_KEY_TILE, lanes},
      {&worker->factors, problem->a.factors ? HD_KEY_TILE : 0, lanes},
      {&worker->rows, widest, lanes},
      {&worker->keys, widest_key, HD_KEY_TILE},
      {&worker->values, dv, HD_KEY_TILE},
  };
  *floats = 0;
  return hd_cut(memory, parts, (int)HD_COUNT(parts), floats) && hd_live_cut(problem, &worker->live, memory, floats);
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------------------- */

static void begin_chunk(hd_attn_block *block) {
  memset(block->o, 0, (size_t)(block->dv * block->lanes) * sizeof *block->o);
  memset(block->l, 0, (size_t)block->lanes * sizeof *block->l);
  for (int lane = 0; lane < block->lanes; lane++) block->m[lane] = -INFINITY;
}

static void exchange(float **a, float **b) {
  float *before = *a;
  *a = *b;
  *b = before;
}

/* The chunk joins the totals, or becomes them where it is the first. */
static void end_chunk(const hd_kernels *kernels, hd_attn_block *block) {
  if (block->merged) {
    kernels->attn_merge(block);
    return;
  }
  exchange(&block->o, &block->total_o);
  exchange(&block->m, &block->total_m);
  exchange(&block->l, &block->total_l);
  block->merged = true;
}

/* ---- one query tile --------------------------------------------------------------------------------------------------------------- */

/* Maximum and sum that earlier passes have left of a row. */
static float *sums_of(const struct job *job, const hd_lanes *lanes, int lane) {
  const hd_problem *problem = job->problem;
  return job->sums + 2 * ((lanes->batch * problem->heads + lanes->head[lane]) * problem->queries + lanes->row[lane]);
}

/* The totals of the passes before this one. */
static void take_up(const struct job *job, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *block) {
  const hd_problem *problem = job->problem;
  const int used = HD_MIN(lanes->count - block->shift, block->lanes);
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(problem->kernels, &job->numerators, lanes, 0, problem->dv, worker->rows, rows);
  problem->kernels->to_lanes(rows + block->shift, used, problem->dv, 1.0f, block->total_o, block->lanes);
  memset(block->total_l, 0, (size_t)block->lanes * sizeof *block->total_l);
  for (int lane = 0; lane < block->lanes; lane++) block->total_m[lane] = -INFINITY;
  block->merged = true;
  for (int lane = 0; lane < used; lane++) {
    const float *sums = sums_of(job, lanes, block->shift + lane);
    if (sums[1] == -1) continue;
    block->total_m[lane] = sums[0];
    block->total_l[lane] = sums[1];
    block->seen |= (uint64_t)1 << lane;
  }
}

/* Leaves the totals to the passes after this one. */
static void leave_behind(const struct job *job, const hd_lanes *lanes, const hd_attn_block *block) {
  const hd_problem *problem = job->problem;
  const int used = HD_MIN(lanes->count - block->shift, block->lanes);
  float *rows[HD_MAX_LANES];
  char *address[HD_MAX_LANES];
  hd_lane_addresses(&job->numerators, lanes, address);
  for (int i = 0; i < lanes->count; i++) rows[i] = (float *)address[i];
  problem->kernels->from_lanes(block->total_o, block->lanes, used, problem->dv, rows + block->shift);
  for (int lane = 0; lane < used; lane++) {
    float *sums = sums_of(job, lanes, block->shift + lane);
    sums[0] = block->total_m[lane];
    sums[1] = block->seen >> lane & 1 ? block->total_l[lane] : -1;
  }
}

static void prepare_blocks(const struct job *job, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *blocks, int count) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const float *rows[HD_MAX_LANES];
  if (!problem->scoring) hd_lane_rows(kernels, &job->q, lanes, 0, problem->d, worker->rows, rows);
  for (int i = 0; i < count; i++) {
    hd_attn_block *block = &blocks[i];
    *block = hd_lanes_block(problem, lanes, i);
    int shift = block->shift, width = block->lanes, used = HD_MIN(lanes->count - shift, width);
    float *queries = problem->scoring ? NULL : worker->queries + shift * problem->d;
    block->q = queries;
    block->o = worker->chunk + shift * problem->dv;
    block->m = worker->m + shift;
    block->l = worker->l + shift;
    block->total_o = worker->total + shift * problem->dv;
    block->total_m = worker->total_m + shift;
    block->total_l = worker->total_l + shift;
    block->q_pairs = (const uint32_t *)queries;
    block->q_scale = hd_query_factor(problem);
    if (!problem->scoring) kernels->to_lanes(rows + shift, used, problem->d, job->bf16 ? 1.0f : block->q_scale, queries, width);
    if (job->bf16) hd_pair_columns(queries, problem->d, width);
    begin_chunk(block);
    if (!job->first) take_up(job, worker, lanes, block);
  }
}

static void write_rows(const struct job *job, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *blocks, int count) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const hd_grid *out = &job->out;
  bool direct = out->type == HEED_F32 && out->column_stride == 1;
  float lse[HD_MAX_LANES], *rows[HD_MAX_LANES];
  char *address[HD_MAX_LANES];
  hd_lane_addresses(out, lanes, address);
  for (int i = 0; i < lanes->count; i++) rows[i] = direct ? (float *)address[i] : worker->rows + i * problem->dv;
  for (int i = 0; i < count; i++) {
    hd_attn_block *block = &blocks[i];
    kernels->attn_finish(block, job->lse.data ? lse + block->shift : NULL);
    kernels->from_lanes(block->total_o, block->lanes, HD_MIN(lanes->count - block->shift, block->lanes), problem->dv, rows + block->shift);
  }
  for (int i = 0; i < lanes->count && !direct; i++)
    hd_from_floats(kernels, rows[i], problem->dv, address[i], out->type, out->column_stride);
  if (!job->lse.data) return;
  hd_lane_addresses(&job->lse, lanes, address);
  for (int i = 0; i < lanes->count; i++) *(float *)address[i] = lse[i];
}

/* The sink is a chunk of one key whose value is 0. */
static void merge_sink(const struct job *job, const hd_lanes *lanes, hd_attn_block *block) {
  const hd_problem *problem = job->problem;
  begin_chunk(block);
  for (int lane = 0; lane < block->lanes; lane++) {
    int at = HD_MIN(block->shift + lane, lanes->count - 1);
    block->m[lane] = (float)(hd_per_head(problem->a.sink, lanes->head[at]) * HD_LOG2E);
    block->l[lane] = 1;
  }
  end_chunk(problem->kernels, block);
}

/* A part of the end of a walk, of which all is [0, 1): of so many keys, in whose time many lines come and few are gone again. */
enum { END_KEYS = 8 * HD_KEY_TILE };
struct stretch {
  double from, to;
};

static struct stretch stretch_of(const hd_live *live, int64_t k0, int64_t k1) {
  const int64_t begin = HD_MAX(live->begin, live->end - END_KEYS);
  const double all = (double)(live->end - begin);
  return (struct stretch){(double)HD_MAX(k0 - begin, 0) / all, (double)HD_MAX(k1 - begin, 0) / all};
}

/* This stretch's share of `rows` rows joins what a product asks for: row 0 is at `first`, the others follow `step` rows apart. */
static void ask_for(hd_ahead ahead[HD_AHEAD], const hd_grid *grid, const char *first, int64_t step, int64_t rows, const struct stretch *s) {
  const int64_t from = (int64_t)((double)rows * s->from), to = (int64_t)((double)rows * s->to);
  hd_ahead *free = ahead[0].rows ? &ahead[1] : &ahead[0]; // two arrays a product
  *free = hd_rows_ahead(grid, first + from * step * grid->row_stride * grid->size, to - from);
  free->stride *= step;
}

/* The same for places [begin, begin + rows) of the pass, as far as their keys lie evenly. */
static void ask_for_keys(const struct job *job, hd_attn_tile *tile, int64_t batch, int64_t kv_head, int64_t begin, int64_t rows,
                         const struct stretch *s) {
  const hd_grid *k = &job->k->grid, *v = &job->v->grid;
  hd_keys keys;
  hd_keys_of(job->pass, begin, begin + HD_MIN(rows, HD_KEY_TILE), &keys);
  if (!keys.step) return;
  ask_for(tile->ahead[0], k, hd_grid_row(k, batch, kv_head, keys.key[0]), keys.step, rows, s);
  ask_for(tile->ahead[1], v, hd_grid_row(v, batch, kv_head, keys.key[0]), keys.step, rows, s);
}

/* What this worker reads and writes later, as far as it does not stay in the second-level cache by itself: under a window that moves on, the keys that its next walk adds in front of this one's;
 * else the keys after these; the rows of the output, and the queries that it is likely to take next. What is known at the beginning of a walk is spread over its end: line buffers are few. */
static void look_ahead(const struct job *job, const hd_lanes *lanes, int64_t kv_head, const hd_live *live, int64_t k0, int64_t k1,
                       hd_attn_tile *tile) {
  const hd_problem *problem = job->problem;
  const struct stretch here = stretch_of(live, k0, k1), whole = {0, 1};
  const int64_t apart = job->tiling.queries * problem->context->threads; // this walk's queries and the next one's
  const int64_t rows = lanes->count / lanes->heads, row = lanes->row[0], step = rows > 1 ? lanes->row[1] - row : 1;
  const hd_grid *q = &job->q, *out = &job->out;
  int64_t next, next_end;
  if (tile->k && job->k->grid.data && problem->keys * (problem->d + problem->dv) > NEAR_FLOATS) {
    if (live->begin > 0 && here.to > 0) {
      const int64_t from = HD_MAX(live->begin - apart, 0);
      ask_for_keys(job, tile, lanes->batch, kv_head, from, HD_MIN(live->begin - from, END_KEYS), &here);
    } else if (live->begin == 0 && hd_live_next(live, k1, &next, &next_end)) {
      ask_for_keys(job, tile, lanes->batch, kv_head, next, next_end - next, &whole);
    }
  }
  if (here.to <= 0) return;
  if (step < 1 || lanes->row[rows - 1] - row != (rows - 1) * step) return; // the end of a class and the beginning of another
  ask_for(tile->ahead[0], out, hd_grid_row(out, lanes->batch, lanes->head[0], row), step, rows, &here);
  if (row >= apart * step)
    ask_for(tile->ahead[1], q, hd_grid_row(q, lanes->batch, lanes->head[0], row - apart * step), step, job->tiling.queries, &here);
}

/* Keys, values and everything else that a tile brings along, in the order of the pass. */
static void describe_tile(const struct job *job, const struct worker *worker, const hd_lanes *lanes, int64_t kv_head, const hd_keys *keys,
                          uint64_t kept[HD_KEY_TILE], hd_attn_tile *tile) {
  const hd_problem *problem = job->problem;
  const int padded = hd_lanes_padded(problem, lanes);
  const int64_t k0 = keys->key[0];
  if (job->bf16) {
    tile->k_bf16 = hd_source_bf16(job->k, lanes->batch, kv_head, k0, &tile->k_stride);
    tile->v_bf16 = hd_source_bf16(job->v, lanes->batch, kv_head, k0, &tile->v_stride);
    tile->v_pairs = (uint32_t *)worker->values;
  } else {
    tile->k = hd_key_rows(job->k, lanes->batch, kv_head, keys, worker->keys, &tile->k_stride);
    tile->v = hd_key_rows(job->v, lanes->batch, kv_head, keys, worker->values, &tile->v_stride);
  }
  if (problem->scoring) {
    const hd_score_place place = {problem, &job->q, lanes, tile, k0, worker->rows, worker->terms, worker->keys};
    problem->scoring->kind->scores(problem->scoring, &place);
    tile->scored = true;
  }
  if (hd_key_terms(problem, lanes, keys, worker->rows, worker->terms, padded)) tile->bias = worker->terms;
  tile->kept = hd_keys_kept(problem, lanes, keys, kept);
  tile->factors = hd_lanes_factors(problem, lanes, k0, k0 + keys->count, worker->rows, worker->factors, padded);
}

/* One walk over the keys of the lanes, up to the totals. False where sums are not finite and some row did not see all that was multiplied: values that it may not see may have reached it, and the walk
 * must be taken again, not `watched`. */
static bool walk(const struct job *job, struct worker *worker, const hd_lanes *lanes, int64_t kv_head, hd_attn_block *blocks, int count,
                 bool watched) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const int padded = hd_lanes_padded(problem, lanes);
  const hd_live *live = &worker->live;
  uint64_t visible[HD_KEY_TILE], kept[HD_KEY_TILE];
  int64_t k0, k1 = live->begin;
  bool partial = false, finite = true;
  for (int64_t chunk = -1; hd_live_next(live, k1, &k0, &k1);) {
    hd_cover cover = hd_lanes_visible(problem, job->pass, lanes, live, k0, k1, visible);
    if (cover == HD_EMPTY) continue;
    partial |= cover == HD_PARTIAL;
    for (int i = 0; i < count && chunk >= 0 && chunk != k0 / HD_KEY_CHUNK; i++) {
      const bool first = !blocks[i].merged;
      end_chunk(kernels, &blocks[i]);
      if (first) begin_chunk(&blocks[i]);
    }
    chunk = k0 / HD_KEY_CHUNK;

    hd_attn_tile tile = {
        .keys = (int)(k1 - k0),
        .visible = cover == HD_FULL ? NULL : visible,
        .softcap = problem->softcap_log2,
        .scores = worker->scores,
        .stride = padded,
        .bias_stride = padded,
        .watched = watched,
        .keep_factor = problem->keep_factor,
    };
    hd_keys keys;
    hd_keys_of(job->pass, k0, k1, &keys);
    describe_tile(job, worker, lanes, kv_head, &keys, kept, &tile);
    look_ahead(job, lanes, kv_head, live, k0, k1, &tile);
    for (int i = 0; i < count; i++) kernels->attn_tile(&blocks[i], &tile);
  }
  for (int i = 0; i < count; i++) {
    end_chunk(kernels, &blocks[i]);
    if (partial && watched) finite &= kernels->attn_finite(&blocks[i]);
  }
  return finite;
}

static void attend_lanes(const struct job *job, struct worker *worker, const hd_lanes *lanes, int64_t kv_head) {
  const hd_problem *problem = job->problem;
  hd_attn_block blocks[HD_MAX_BLOCKS];
  const int count = hd_lanes_blocks(problem, lanes);
  hd_live *live = &worker->live;
  int64_t k0, k1;
  hd_live_of_lanes(problem, job->pass, lanes, live);
  if (!job->first && !job->last && !hd_live_next(live, live->begin, &k0, &k1)) return; // nothing changes
  prepare_blocks(job, worker, lanes, blocks, count);
  if (!walk(job, worker, lanes, kv_head, blocks, count, true)) {
    prepare_blocks(job, worker, lanes, blocks, count);
    walk(job, worker, lanes, kv_head, blocks, count, false);
  }
  for (int i = 0; i < count; i++) {
    if (problem->a.sink && job->last) merge_sink(job, lanes, &blocks[i]);
    if (!job->last) leave_behind(job, lanes, &blocks[i]);
  }
  if (job->last) write_rows(job, worker, lanes, blocks, count);
}

static void run_item(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->problem;
  i += job->first_item;
  // Head by head, so that its keys and values stay in a near cache; in each the last query tiles first: under a causal pattern they are the longest, and short ones fill the end.
  const hd_tiling *tiling = &job->tiling;
  int64_t group = i / tiling->query_tiles, tile = tiling->query_tiles - 1 - i % tiling->query_tiles;
  int64_t kv = group / tiling->head_tiles, kv_head = kv % problem->kv_heads;
  hd_lanes lanes;
  hd_lanes_of(problem, job->pass, tiling, kv, group % tiling->head_tiles, tile, &lanes);
  attend_lanes(job, &job->workers[worker], &lanes, kv_head);
}

/* ---- the call --------------------------------------------------------------------------------------------------------------------- */

static int64_t item_count(const struct job *job) {
  return job->problem->batch * job->problem->kv_heads * job->tiling.head_tiles * job->tiling.query_tiles;
}

/* Runs the items in batches of about a tenth of a second of work, so that a long call can be cancelled. */
static heed_status run_items(struct job *job) {
  const hd_problem *problem = job->problem;
  int64_t items = item_count(job);
  double item_flops = 2.0 * (double)problem->kernels->tile_lanes * (double)problem->keys * (double)(problem->d + problem->dv) + 1;
  int64_t at_once =
      problem->context->progress ? (int64_t)HD_MAX(1e10 * problem->context->threads / item_flops, 4.0 * problem->context->threads) : items;
  for (job->first_item = 0; job->first_item < items; job->first_item += at_once) {
    HD_TRY(hd_progress(problem->context, "attention", job->first_item, items));
    // A head that is one item finds its rows where the projection before it left them; the items of a longer one are best under way together.
    (job->tiling.query_tiles == 1 ? hd_parallel_near : hd_parallel)(problem->context, HD_MIN(at_once, items - job->first_item), run_item,
                                                                    job);
  }
  return HEED_OK;
}

/* Whether q, k and v are all bf16 with rows of whole pairs, on a level that multiplies them so. */
static bool stays_bf16(const struct job *job) {
  const hd_problem *problem = job->problem;
  return problem->kernels->takes_bf16 && !job->pass->part && !problem->scoring && !problem->a.factors && problem->d % 2 == 0 &&
         job->q.type == HEED_BF16 && job->k->bf16 && job->v->bf16;
}

/* One pass after the other; each goes on where the one before it has stopped. */
static heed_status run_passes(struct job *job) {
  const hd_problem *problem = job->problem;
  for (int i = 0; i < problem->passes; i++) {
    job->pass = &problem->pass[i];
    job->first = i == 0;
    job->last = i == problem->passes - 1;
    job->tiling = hd_tiling_of(problem, job->pass);
    job->bf16 = stays_bf16(job);
    HD_TRY(run_items(job));
  }
  return HEED_OK;
}

/* Room for what passes leave to each other: none where there is one, and numerators in out where it is f32 and not q. */
static heed_status make_sums(struct job *job, int64_t rows, float **numerators) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  *numerators = NULL;
  if (problem->passes == 1) return HEED_OK;
  HD_TRY(hd_allocate(context, "sums of rows", rows, 2 * sizeof(float), &job->sums));
  job->numerators = job->out;
  if (job->out.type == HEED_F32 && job->out.column_stride == 1 && job->out.data != job->q.data) return HEED_OK;
  HD_TRY(hd_allocate(context, "rows under way", rows, (size_t)problem->dv * sizeof(float), numerators));
  const heed_view view = heed_view_of(*numerators, HEED_F32, 4, (int64_t[]){problem->batch, problem->heads, problem->queries, problem->dv});
  return hd_grid_make(context, &view, "rows under way", &job->numerators);
}

static heed_status run_job(struct job *job) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  const int64_t rows = problem->batch * problem->heads * problem->queries;
  job->tiling = hd_tiling_of(problem, &problem->pass[0]);

  int64_t floats, all, workers = hd_workers(context, problem->batch * problem->heads * hd_ceil_div(problem->queries, job->tiling.queries));
  HD_REQUIRE(lay_out(problem, &(struct worker){0}, NULL, &floats) && hd_mul(floats, workers, &all), context, HEED_E_OVERFLOW,
             "head widths %lld and %lld are too large", (long long)problem->d, (long long)problem->dv);
  float *memory = NULL, *numerators;
  heed_status status = make_sums(job, rows, &numerators);
  if (status == HEED_OK) status = hd_allocate(context, "attention workers", workers, sizeof *job->workers, &job->workers);
  if (status == HEED_OK) status = hd_allocate(context, "attention tiles", all, sizeof *memory, &memory);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < workers; i++) lay_out(problem, &job->workers[i], memory + i * floats, &floats);
    status = run_passes(job);
  }
  hd_release(context, memory, all, sizeof *memory);
  hd_release(context, job->workers, workers, sizeof *job->workers);
  hd_release(context, numerators, rows, (size_t)problem->dv * sizeof(float));
  hd_release(context, job->sums, rows, 2 * sizeof(float));
  return status;
}

heed_status hd_attention_run(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *q,
                             const hd_source *k, const hd_source *v, const heed_view *out, const heed_view *lse) {
  hd_problem problem;
  hd_shapes shapes;
  struct job job = {.problem = &problem, .k = k, .v = v};
  HD_TRY(hd_attention_shapes(context, q, k, v, &job.q, &shapes));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  if (scoring && scoring->kind->scores) problem.scoring = scoring;
  HD_TRY(hd_grid_make(context, out, "out", &job.out));
  HD_TRY(hd_grid_expect(context, &job.out, out, "out", &job.q, problem.heads, problem.queries, problem.dv));
  HD_TRY(hd_storable(context, &job.q, "q"));
  HD_TRY(hd_storable(context, &job.out, "out"));
  if (lse) {
    HD_TRY(hd_row_grid(context, lse, "lse", &job.q, &job.lse));
    HD_REQUIRE(job.lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job.lse.type));
  }
  if (problem.batch == 0 || problem.heads == 0 || problem.queries == 0) return HEED_OK;
  if (hd_decodes(&problem)) return hd_decode_run(&problem, &job.q, k, v, &job.out, &job.lse);
  hd_sweeps_choose(&problem);
  return run_job(&job);
}

heed_status hd_attention_scored(heed_context *context, const heed_attention *a, const heed_view *q, const hd_source *k, const hd_source *v,
                                const heed_view *out, const heed_view *lse) {
  hd_scoring scoring;
  if (!a->score) return hd_attention_run(context, a, NULL, q, k, v, out, lse);
  heed_status status = hd_scoring_begin(context, a, q, q, NULL, &scoring); // keys as wide as queries, which the run checks
  if (status == HEED_OK && k->columns != q->dim[q->ndim - 1])
    status = hd_fail(context, HEED_E_SHAPE, "k has width %lld, q has %lld", (long long)k->columns, (long long)q->dim[q->ndim - 1]);
  if (status == HEED_OK) status = hd_attention_run(context, a, &scoring, &scoring.q, k, v, out, lse);
  hd_scoring_free(context, &scoring);
  return status;
}

/* ---- the public call -------------------------------------------------------------------------------------------------------------- */

/* An output may share memory with nothing, except that out may be q itself: a tile reads its queries before it writes their rows. */
static heed_status check_overlap(heed_context *context, const heed_view *q, const heed_view *k, const heed_view *v, const heed_view *out,
                                 const heed_view *lse, const heed_attention *a) {
  HD_REQUIRE(hd_views_same(out, q) || !hd_views_overlap(out, q), context, HEED_E_OVERLAP,
             "out overlaps q (allowed: exactly the same memory)");
  const hd_named_view others[] = {{k, "k"}, {v, "v"}, {q, "q"}, {out, "out"}};
  HD_TRY(hd_output_apart(context, a, out, "out", others, HD_COUNT(others) - 2));
  return hd_output_apart(context, a, lse, "lse", others, HD_COUNT(others));
}

heed_status hd_forward_check(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k, const heed_view *v,
                             const heed_view *out, const heed_attention_extras *extras, const heed_view **lse) {
  heed_attention_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_attention_extras", extras, &asked, sizeof asked));
  *lse = asked.lse;
  HD_TRY(hd_view_check(context, out, "out"));
  if (*lse) HD_TRY(hd_view_check(context, *lse, "lse"));
  HD_TRY(hd_description_check(context, a));
  return check_overlap(context, q, k, v, out, *lse, a);
}

heed_status heed_attention_forward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                   const heed_view *v, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention description;
  hd_source keys, values;
  const heed_view *lse;
  HD_TRY(hd_description_read(context, a, &description));
  HD_TRY(hd_view_check(context, q, "q"));
  HD_TRY(hd_view_check(context, k, "k"));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  HD_TRY(hd_forward_check(context, &description, q, k, v, out, extras, &lse));
  hd_scoring scoring;
  heed_status status = hd_scoring_begin(context, &description, q, k, NULL, &scoring);
  if (status == HEED_OK) status = hd_source_of_view(context, &scoring.k, "k", &keys);
  if (status == HEED_OK) status = hd_attention_run(context, &description, &scoring, &scoring.q, &keys, &values, out, lse);
  hd_scoring_free(context, &scoring);
  return status;
}
