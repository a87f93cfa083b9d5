/* backward.c: dq, dk and dv in one pass over the tiles of a head.
 *
 * A piece of work is one tile of 64 keys with the query tiles of every head that reads them, in order. Its dk and dv stay in a worker's scratch; dq belongs to the
 * query tiles, and each adds up over ascending keys: a piece may only enter a query tile after the piece of the keys before it has left it. Pieces are claimed in
 * order, so the one waited for is always under way, and threads follow each other through a head like cars on one lane. That gives parallel work within a single head, no
 * second pass over the scores, and sums whose order does not depend on threads. */
#include "attention.h"
#include "pattern.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_BLOCKS = HD_MAX_LANES / 4 };

/* Query rows that are handled together, and what they keep between pieces. */
struct visit {
  hd_lanes lanes;
  int heads, blocks, padded;
  hd_attn_gradient gradient[MAX_BLOCKS];
  float *total;           /* [d][padded]: dq of the chunks of keys before this one */
  _Atomic int64_t passed; /* tiles of keys that have left */
};

/* One key/value head of one batch entry under way. */
struct slot {
  struct visit *visits;
  float *memory;
  _Atomic int64_t owner;    /* the key/value head (over the batch) that it serves; −1: none yet */
  _Atomic int64_t finished; /* tiles of keys that are done */
};

struct worker {
  float *p, *ds, *slope, *bias;   /* [64][lanes] */
  float *rows;                    /* [lanes][widest]: copies on their way into lanes */
  float *queries, *douts;         /* [lanes][columns]: rows for the sums over queries, padded with 0 to a multiple of 16 */
  float *keys, *values, *dk, *dv; /* [64][...] */
};

struct job {
  const hd_problem *problem;
  hd_grid q, out, lse, dout, dq, dk, dv; /* a gradient that is not asked for has no data */
  const hd_source *k, *v;
  int64_t tile_queries, query_tiles, tile_heads, head_tiles, visits, key_tiles, chunk_tiles;
  int64_t d_columns, dv_columns; /* widths rounded up to 16 */
  int64_t slots, slot_floats;
  struct slot *slot;
  struct worker *workers;
  _Atomic int64_t next;
};

/* ---- memory ------------------------------------------------------------------------------------------------------------------------ */

struct part {
  float **array;
  int64_t rows, columns;
};

/* Cuts arrays from memory, or only adds up their sizes where memory is NULL. False where that overflows. */
static bool cut(float *memory, const struct part *parts, int count, int64_t *floats) {
  for (int i = 0; i < count; i++) {
    int64_t size;
    if (memory) *parts[i].array = memory + *floats;
    if (!hd_mul(parts[i].rows, parts[i].columns, &size) || !hd_add(size, HD_ALIGN / 4 - 1, &size)) return false;
    if (!hd_add(*floats, size / (HD_ALIGN / 4) * (HD_ALIGN / 4), floats)) return false;
  }
  return true;
}

static bool lay_out_worker(const struct job *job, struct worker *w, float *memory, int64_t *floats) {
  const hd_problem *problem = job->problem;
  const int64_t lanes = problem->kernels->tile_lanes, widest = HD_MAX(HD_MAX(problem->d, problem->dv), HD_KEY_TILE);
  const struct part parts[] = {
      {&w->p, HD_KEY_TILE, lanes},
      {&w->ds, HD_KEY_TILE, lanes},
      {&w->slope, HD_KEY_TILE, lanes},
      {&w->bias, HD_KEY_TILE, lanes},
      {&w->rows, widest, lanes},
      {&w->queries, job->d_columns, lanes},
      {&w->douts, job->dv_columns, lanes},
      {&w->keys, problem->d, HD_KEY_TILE},
      {&w->values, problem->dv, HD_KEY_TILE},
      {&w->dk, job->d_columns, HD_KEY_TILE},
      {&w->dv, job->dv_columns, HD_KEY_TILE},
  };
  *floats = 0;
  return cut(memory, parts, (int)HD_COUNT(parts), floats);
}

/* Queries, output gradients, dq of the chunk and of those before it, lse and δ. */
static bool lay_out_visit(const struct job *job, struct visit *visit, float *memory, int64_t *floats) {
  const hd_problem *problem = job->problem;
  const int64_t lanes = problem->kernels->tile_lanes;
  float *q, *dout, *dq, *lse, *delta;
  const struct part parts[] = {{&q, problem->d, lanes},  {&dout, problem->dv, lanes},
                               {&dq, problem->d, lanes}, {&visit->total, problem->d, lanes},
                               {&lse, 1, lanes},         {&delta, 1, lanes}};
  if (!cut(memory, parts, (int)HD_COUNT(parts), floats)) return false;
  if (!memory) return true;
  for (int i = 0; i < problem->kernels->tile_lanes / problem->kernels->block_lanes; i++) {
    int shift = i * problem->kernels->block_lanes;
    visit->gradient[i] = (hd_attn_gradient){
        .block = {.q = q + shift * problem->d},
        .dout = dout + shift * problem->dv,
        .dq = dq + shift * problem->d,
        .lse = lse + shift,
        .delta = delta + shift,
    };
  }
  return true;
}

/* ---- one query tile begins, and ends ------------------------------------------------------------------------------------------------- */

static void find_lanes(const struct job *job, int64_t kv, int64_t index, struct visit *visit) {
  const hd_problem *problem = job->problem;
  int64_t head_tile = index / job->query_tiles, q0 = index % job->query_tiles * job->tile_queries;
  int64_t queries = HD_MIN(job->tile_queries, problem->queries - q0), first = head_tile * job->tile_heads;
  visit->heads = (int)HD_MIN(job->tile_heads, problem->group - first);
  visit->lanes.batch = kv / problem->kv_heads;
  visit->lanes.count = (int)(visit->heads * queries);
  for (int lane = 0; lane < visit->lanes.count; lane++) {
    visit->lanes.head[lane] = kv % problem->kv_heads * problem->group + first + lane / queries;
    visit->lanes.row[lane] = q0 + lane % queries;
  }
}

/* lse in log2 units and δ_i = Σ_c dout_ic out_ic, c ascending. A row that saw nothing has δ = 0, whatever stands in its dout. */
static void begin_rows(const struct job *job, const struct worker *worker, const struct visit *visit, const hd_attn_gradient *g) {
  const hd_problem *problem = job->problem;
  const hd_lanes *lanes = &visit->lanes;
  int used = HD_MIN(lanes->count - g->block.shift, g->block.lanes);
  float *lse = (float *)g->lse, *delta = (float *)g->delta, *out = worker->douts;
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(problem->kernels, &job->out, lanes, 0, problem->dv, worker->rows, rows);
  problem->kernels->to_lanes(rows + g->block.shift, used, problem->dv, 1.0f, out, g->block.lanes);
  memset(delta, 0, (size_t)g->block.lanes * sizeof *delta);
  for (int64_t c = 0; c < problem->dv; c++)
    for (int lane = 0; lane < g->block.lanes; lane++) delta[lane] += g->dout[c * g->block.lanes + lane] * out[c * g->block.lanes + lane];
  for (int lane = 0; lane < g->block.lanes; lane++) {
    int at = g->block.shift + lane;
    float natural = lane < used ? *(const float *)hd_grid_row(&job->lse, lanes->batch, lanes->head[at], lanes->row[at]) : 0;
    lse[lane] = (float)(natural * HD_LOG2E);
    if (natural == -INFINITY) delta[lane] = 0;
  }
}

/* Brings the queries and output gradients into lanes. */
static void begin_visit(const struct job *job, const struct worker *worker, int64_t kv, int64_t index, struct visit *visit) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const float *rows[HD_MAX_LANES];
  find_lanes(job, kv, index, visit);
  const hd_lanes *lanes = &visit->lanes;
  visit->blocks = (int)hd_ceil_div(lanes->count, kernels->block_lanes);
  visit->padded = (int)hd_ceil_div(lanes->count, kernels->vector) * kernels->vector;
  for (int i = 0; i < visit->blocks; i++) {
    hd_attn_gradient *g = &visit->gradient[i];
    int shift = i * kernels->block_lanes, used = HD_MIN(lanes->count - shift, kernels->block_lanes);
    g->block.d = problem->d;
    g->block.dv = problem->dv;
    g->block.lanes = (int)hd_ceil_div(used, kernels->vector) * kernels->vector;
    g->block.shift = shift;
    g->block.used = ~(uint64_t)0 >> (64 - used);
    hd_lane_rows(kernels, &job->q, lanes, 0, problem->d, worker->rows, rows);
    kernels->to_lanes(rows + shift, used, problem->d, (float)(problem->scale * HD_LOG2E), (float *)g->block.q, g->block.lanes);
    hd_lane_rows(kernels, &job->dout, lanes, 0, problem->dv, worker->rows, rows);
    kernels->to_lanes(rows + shift, used, problem->dv, 1.0f, (float *)g->dout, g->block.lanes);
    memset(g->dq, 0, (size_t)(problem->d * g->block.lanes) * sizeof(float));
    begin_rows(job, worker, visit, g);
  }
  memset(visit->total, 0, (size_t)(problem->d * visit->padded) * sizeof(float));
}

/* Adds the chunk's dq to that of the chunks before it and begins a new one. */
static void merge_chunk(const struct job *job, struct visit *visit) {
  int64_t d = job->problem->d;
  for (int i = 0; i < visit->blocks; i++) {
    const hd_attn_gradient *g = &visit->gradient[i];
    float *total = visit->total + g->block.shift * d;
    for (int64_t j = 0; j < d * g->block.lanes; j++) {
      total[j] += g->dq[j];
      g->dq[j] = 0;
    }
  }
}

static void end_visit(const struct job *job, const struct worker *worker, struct visit *visit) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  if (!job->dq.data) return;
  float *rows[HD_MAX_LANES];
  merge_chunk(job, visit);
  for (int lane = 0; lane < visit->lanes.count; lane++) rows[lane] = worker->rows + lane * problem->d;
  for (int i = 0; i < visit->blocks; i++) {
    const hd_attn_block *block = &visit->gradient[i].block;
    kernels->from_lanes(visit->total + block->shift * problem->d, block->lanes, HD_MIN(visit->lanes.count - block->shift, block->lanes),
                        problem->d, rows + block->shift);
  }
  for (int lane = 0; lane < visit->lanes.count; lane++) {
    kernels->row_scale(rows[lane], problem->d, (float)problem->scale);
    hd_from_floats(kernels, rows[lane], problem->d,
                   hd_grid_row(&job->dq, visit->lanes.batch, visit->lanes.head[lane], visit->lanes.row[lane]), job->dq.type,
                   job->dq.column_stride);
  }
}

/* ---- one tile of keys meets one query tile -------------------------------------------------------------------------------------------- */

/* Rows as the sums over queries want them: `columns` floats, a multiple of 16, the last ones 0. */
static void padded_rows(const struct job *job, const hd_grid *grid, const hd_lanes *lanes, int64_t width, int64_t columns,
                        const struct worker *worker, float *copies, const float **rows) {
  hd_lane_rows(job->problem->kernels, grid, lanes, 0, width, worker->rows, rows);
  if (width == columns && rows[0] != worker->rows) return; // the memory itself will do
  for (int lane = 0; lane < lanes->count; lane++) {
    memcpy(copies + lane * columns, rows[lane], (size_t)width * sizeof(float));
    memset(copies + lane * columns + width, 0, (size_t)(columns - width) * sizeof(float));
    rows[lane] = copies + lane * columns;
  }
}

static void meet(const struct job *job, const struct worker *worker, struct visit *visit, hd_attn_tile *tile, int64_t k0) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const hd_lanes *lanes = &visit->lanes;
  uint64_t visible[HD_KEY_TILE];
  hd_cover cover = hd_lanes_visible(problem, lanes, visit->heads, k0, k0 + tile->keys, visible);
  if (cover == HD_EMPTY) return;
  const float *rows[HD_MAX_LANES];
  tile->visible = cover == HD_FULL ? NULL : visible;
  tile->stride = visit->padded;
  tile->bias = NULL;
  if (problem->a.bias) {
    hd_lane_rows(kernels, &problem->bias, lanes, k0, tile->keys, worker->rows, rows);
    kernels->to_lanes(rows, lanes->count, tile->keys, 1.0f, worker->bias, visit->padded);
    tile->bias = worker->bias;
    tile->bias_stride = visit->padded;
  }
  for (int i = 0; i < visit->blocks; i++) kernels->attn_backward_lanes(&visit->gradient[i], tile, worker->ds);
  if (job->dv.data) {
    padded_rows(job, &job->dout, lanes, problem->dv, job->dv_columns, worker, worker->douts, rows);
    kernels->attn_backward_keys(tile, tile->scores, lanes->count, rows, job->dv_columns, worker->dv);
  }
  if (job->dk.data) {
    padded_rows(job, &job->q, lanes, problem->d, job->d_columns, worker, worker->queries, rows);
    kernels->attn_backward_keys(tile, worker->ds, lanes->count, rows, job->d_columns, worker->dk);
  }
}

/* ---- pieces --------------------------------------------------------------------------------------------------------------------------- */

/* Waits until *counter has reached value. The one waited for is at work, so a short spin mostly does; then others may have the processor. */
static void wait_for(_Atomic int64_t *counter, int64_t value) {
  for (int spins = 0; atomic_load_explicit(counter, memory_order_acquire) < value; spins++)
    if (spins > 1000) sched_yield();
}

static void write_keys(const struct job *job, const hd_grid *grid, int64_t kv, int64_t k0, int keys, float *rows, int64_t columns,
                       int64_t width, float factor) {
  const hd_problem *problem = job->problem;
  for (int key = 0; grid->data && key < keys; key++) {
    float *row = rows + key * columns;
    problem->kernels->row_scale(row, width, factor);
    hd_from_floats(problem->kernels, row, width, hd_grid_row(grid, kv / problem->kv_heads, kv % problem->kv_heads, k0 + key), grid->type,
                   grid->column_stride);
  }
}

static void run_piece(struct job *job, int64_t piece, const struct worker *worker) {
  const hd_problem *problem = job->problem;
  int64_t kv = piece / job->key_tiles, index = piece % job->key_tiles, k0 = index * HD_KEY_TILE;
  struct slot *slot = &job->slot[kv % job->slots];
  if (index == 0) {
    // The slot's last user must have left; then this head's pieces may enter.
    if (kv >= job->slots) wait_for(&slot->finished, job->key_tiles * (kv / job->slots));
    for (int64_t i = 0; i < job->visits; i++) atomic_store_explicit(&slot->visits[i].passed, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->owner, kv, memory_order_release);
  }
  wait_for(&slot->owner, kv);
  int keys = (int)HD_MIN(problem->keys - k0, HD_KEY_TILE);
  hd_attn_tile tile = {.keys = keys, .softcap = problem->softcap_log2, .scores = worker->p, .slope = worker->slope};
  if (keys > 0) {
    tile.k = job->k->rows(job->k, kv / problem->kv_heads, kv % problem->kv_heads, k0, keys, worker->keys, &tile.k_stride);
    tile.v = job->v->rows(job->v, kv / problem->kv_heads, kv % problem->kv_heads, k0, keys, worker->values, &tile.v_stride);
  }
  memset(worker->dk, 0, (size_t)(job->d_columns * HD_KEY_TILE) * sizeof(float));
  memset(worker->dv, 0, (size_t)(job->dv_columns * HD_KEY_TILE) * sizeof(float));
  for (int64_t i = 0; i < job->visits; i++) {
    struct visit *visit = &slot->visits[i];
    wait_for(&visit->passed, index);
    if (index == 0) begin_visit(job, worker, kv, i, visit);
    if (index > 0 && k0 % HD_KEY_CHUNK == 0) merge_chunk(job, visit);
    if (keys > 0) meet(job, worker, visit, &tile, k0);
    if (index == job->key_tiles - 1) end_visit(job, worker, visit);
    atomic_store_explicit(&visit->passed, index + 1, memory_order_release);
  }
  write_keys(job, &job->dk, kv, k0, keys, worker->dk, job->d_columns, problem->d, (float)problem->scale);
  write_keys(job, &job->dv, kv, k0, keys, worker->dv, job->dv_columns, problem->dv, 1.0f);
  atomic_fetch_add_explicit(&slot->finished, 1, memory_order_release);
}

/* The host may run pieces in any order; taking the next unclaimed one keeps the order that the waiting relies on. */
static void run_next(void *argument, int64_t i, int worker) {
  struct job *job = argument;
  (void)i;
  run_piece(job, atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed), &job->workers[worker]);
}

/* ---- the call --------------------------------------------------------------------------------------------------------------------------- */

static heed_status run_job(struct job *job) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  const int64_t heads = problem->batch * problem->kv_heads;
  int lanes = problem->kernels->tile_lanes;
  job->tile_queries = HD_MIN(problem->queries, lanes);
  job->tile_heads = problem->queries * 2 <= lanes ? HD_MIN(problem->group, lanes / problem->queries) : 1;
  job->query_tiles = hd_ceil_div(problem->queries, job->tile_queries);
  job->head_tiles = hd_ceil_div(problem->group, job->tile_heads);
  job->visits = job->query_tiles * job->head_tiles;
  job->key_tiles = HD_MAX(hd_ceil_div(problem->keys, HD_KEY_TILE), 1); // no keys: one empty piece writes the zeros of dq
  job->d_columns = hd_ceil_div(problem->d, 16) * 16;
  job->dv_columns = hd_ceil_div(problem->dv, 16) * 16;
  const int64_t pieces = heads * job->key_tiles, threads = hd_workers(context, pieces);
  job->slots = HD_MIN(heads, threads + 1);

  int64_t visit_floats = 0, worker_floats, slot_memory, worker_memory, visits;
  HD_REQUIRE(lay_out_worker(job, &(struct worker){0}, NULL, &worker_floats) &&
                 lay_out_visit(job, &(struct visit){0}, NULL, &visit_floats) && hd_mul(visit_floats, job->visits, &job->slot_floats) &&
                 hd_mul(job->slot_floats, job->slots, &slot_memory) && hd_mul(worker_floats, threads, &worker_memory) &&
                 hd_mul(job->visits, job->slots, &visits),
             context, HEED_E_OVERFLOW, "the gradients of %lld queries of width %lld do not fit in memory", (long long)problem->queries,
             (long long)problem->d);
  float *slots = NULL, *workers = NULL;
  struct visit *visit = NULL;
  heed_status status = hd_allocate(context, "attention workers", threads, sizeof *job->workers, &job->workers);
  if (status == HEED_OK) status = hd_allocate(context, "heads under way", job->slots, sizeof *job->slot, &job->slot);
  if (status == HEED_OK) status = hd_allocate(context, "query tiles", visits, sizeof *visit, &visit);
  if (status == HEED_OK) status = hd_allocate(context, "queries and their gradients", slot_memory, sizeof *slots, &slots);
  if (status == HEED_OK) status = hd_allocate(context, "attention tiles", worker_memory, sizeof *workers, &workers);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < threads; i++) lay_out_worker(job, &job->workers[i], workers + i * worker_floats, &worker_floats);
    for (int64_t i = 0; i < visits; i++) {
      int64_t used = 0;
      lay_out_visit(job, &visit[i], slots + i * visit_floats, &used);
      atomic_init(&visit[i].passed, 0);
    }
    for (int64_t i = 0; i < job->slots; i++) {
      job->slot[i].visits = visit + i * job->visits;
      atomic_init(&job->slot[i].owner, -1);
      atomic_init(&job->slot[i].finished, 0);
    }
    hd_parallel(context, pieces, run_next, job);
  }
  hd_release(context, workers, worker_memory, sizeof *workers);
  hd_release(context, slots, slot_memory, sizeof *slots);
  hd_release(context, visit, visits, sizeof *visit);
  hd_release(context, job->slot, job->slots, sizeof *job->slot);
  hd_release(context, job->workers, threads, sizeof *job->workers);
  return status;
}

/* An input laid like the output of the forward pass. */
static heed_status read_rows(heed_context *context, const heed_view *view, const char *name, const hd_problem *problem, const hd_grid *q,
                             hd_grid *out) {
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_storable(context, out, name));
  return hd_grid_expect(context, out, view, name, q, problem->heads, problem->queries, problem->dv);
}

/* An output laid like the input it is the gradient of; absent where it is not asked for. */
static heed_status read_gradient(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, int64_t heads,
                                 int64_t rows, int64_t columns, hd_grid *out) {
  if (!view) return HEED_OK;
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_storable(context, out, name));
  return hd_grid_expect(context, out, view, name, q, heads, rows, columns);
}

heed_status heed_attention_backward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                    const heed_view *v, const heed_view *out, const heed_view *lse, const heed_view *dout,
                                    const heed_attention_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention_gradients to = {.size = sizeof to};
  HD_REQUIRE(gradients, context, HEED_E_ARGUMENT, "heed_attention_gradients: null");
  HD_TRY(hd_options_read(context, "heed_attention_gradients", gradients, &to, sizeof to));
  hd_problem problem;
  hd_shapes shapes;
  hd_source keys, values;
  struct job job = {.problem = &problem, .k = &keys, .v = &values};
  HD_TRY(hd_source_of_view(context, k, "k", &keys));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  HD_TRY(hd_attention_shapes(context, q, &keys, &values, &job.q, &shapes));
  HD_TRY(hd_storable(context, &job.q, "q"));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  HD_TRY(read_rows(context, out, "out", &problem, &job.q, &job.out));
  HD_TRY(read_rows(context, dout, "dout", &problem, &job.q, &job.dout));
  HD_TRY(hd_row_grid(context, lse, "lse", &job.q, &job.lse));
  HD_REQUIRE(job.lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job.lse.type));
  HD_TRY(read_gradient(context, to.dq, "dq", &job.q, problem.heads, problem.queries, problem.d, &job.dq));
  HD_TRY(read_gradient(context, to.dk, "dk", &job.q, problem.kv_heads, problem.keys, problem.d, &job.dk));
  HD_TRY(read_gradient(context, to.dv, "dv", &job.q, problem.kv_heads, problem.keys, problem.dv, &job.dv));
  const hd_named_view apart[] = {{q, "q"},
                                 {k, "k"},
                                 {v, "v"},
                                 {out, "out"},
                                 {lse, "lse"},
                                 {dout, "dout"},
                                 {problem.a.attend, "attend"},
                                 {problem.a.bias, "bias"},
                                 {to.dq, "dq"},
                                 {to.dk, "dk"},
                                 {to.dv, "dv"}};
  for (int i = 0; i < 3; i++) HD_TRY(hd_outputs_apart(context, &apart[8 + i], apart, 8 + i));
  if (problem.batch == 0 || problem.kv_heads == 0) return HEED_OK;
  if (problem.queries == 0 || problem.heads == 0) {
    hd_fill_zero(&job.dk);
    hd_fill_zero(&job.dv);
    return HEED_OK;
  }
  return run_job(&job);
}
