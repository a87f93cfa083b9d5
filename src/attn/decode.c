/* decode.c: attention of one query a head, as a token is decoded: the heads that share keys go through them together, row by row.
 *
 * It runs where the visible keys are an interval and the scores need nothing but the product; everything else is forward.c's. The order of every sum is the same there, and so
 * are the bits. */
#include "attention.h"
#include "pattern.h"

#include <math.h>

struct worker {
  float *q;                    /* [HD_DECODE_ROWS][d], scaled */
  float *o, *total;            /* [HD_DECODE_ROWS][dv] */
  float *scores;               /* [HD_DECODE_ROWS][64] */
  float *rows, *keys, *values; /* [HD_DECODE_ROWS][d], [64][d], [64][dv]: what needs a copy on its way in */
};

struct job {
  const hd_problem *problem;
  const hd_grid *q, *out, *lse;
  const hd_source *k, *v;
  int64_t tile_heads, head_tiles, first_item; /* heads that go together, and how often they go into a group */
  struct worker *workers;
};

bool hd_decodes(const hd_problem *problem) {
  if (problem->queries != 1 || problem->terms || problem->scoring || problem->a.sink || problem->a.dropout > 0 ||
      problem->softcap_log2 != 0)
    return false;
  for (int i = 0; i < problem->patterns; i++)
    if (!problem->pattern[i]->interval) return false;
  return true;
}

/* One worker's arrays, cut from memory; with memory NULL only their size, in floats. False where that overflows. */
static bool lay_out(const hd_problem *problem, struct worker *worker, float *memory, int64_t *floats) {
  const hd_part parts[] = {
      {&worker->q, HD_DECODE_ROWS, problem->d},      {&worker->o, HD_DECODE_ROWS, problem->dv},
      {&worker->total, HD_DECODE_ROWS, problem->dv}, {&worker->scores, HD_DECODE_ROWS, HD_KEY_TILE},
      {&worker->rows, HD_DECODE_ROWS, problem->d},   {&worker->keys, HD_KEY_TILE, problem->d},
      {&worker->values, HD_KEY_TILE, problem->dv},
  };
  *floats = 0;
  return hd_cut(memory, parts, (int)HD_COUNT(parts), floats);
}

static void read_queries(const struct job *job, const struct worker *worker, const hd_lanes *lanes) {
  const hd_problem *problem = job->problem;
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(problem->kernels, job->q, lanes, 0, problem->d, worker->rows, rows);
  for (int r = 0; r < lanes->count; r++) {
    float *q = worker->q + r * problem->d;
    memcpy(q, rows[r], (size_t)problem->d * sizeof *q);
    problem->kernels->row_scale(q, problem->d, (float)(problem->scale * HD_LOG2E));
  }
}

static void write_rows(const struct job *job, const hd_lanes *lanes, const hd_attn_block *block) {
  const hd_problem *problem = job->problem;
  for (int r = 0; r < lanes->count; r++) {
    float *total = block->total_o + r * problem->dv;
    if (block->seen) problem->kernels->row_scale(total, problem->dv, 1.0f / block->total_l[r]);
    hd_from_floats(problem->kernels, total, problem->dv, hd_grid_row(job->out, lanes->batch, lanes->head[r], 0), job->out->type,
                   job->out->column_stride);
    if (job->lse->data)
      *(float *)hd_grid_row(job->lse, lanes->batch, lanes->head[r], 0) =
          block->seen ? hd_attn_lse(block->total_m[r], block->total_l[r]) : -INFINITY;
  }
}

static void decode_heads(const struct job *job, const struct worker *worker, const hd_lanes *lanes, int64_t kv_head) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  float m[HD_DECODE_ROWS], l[HD_DECODE_ROWS] = {0}, total_m[HD_DECODE_ROWS], total_l[HD_DECODE_ROWS] = {0};
  hd_attn_block block = {.d = problem->d,
                         .dv = problem->dv,
                         .lanes = lanes->count,
                         .q = worker->q,
                         .o = worker->o,
                         .m = m,
                         .l = l,
                         .total_o = worker->total,
                         .total_m = total_m,
                         .total_l = total_l};
  read_queries(job, worker, lanes);
  for (int r = 0; r < HD_DECODE_ROWS; r++) m[r] = total_m[r] = -INFINITY;
  memset(block.o, 0, (size_t)(lanes->count * problem->dv) * sizeof(float));
  memset(block.total_o, 0, (size_t)(lanes->count * problem->dv) * sizeof(float));

  int64_t begin, end;
  hd_visible_span(problem, lanes->batch, 0, 1, &begin, &end);
  hd_attn_tile tile = {.scores = worker->scores};
  for (int64_t k0 = begin, k1; k0 < end; k0 = k1) {
    k1 = HD_MIN((k0 / HD_KEY_TILE + 1) * HD_KEY_TILE, end);
    if (k0 > begin && k0 % HD_KEY_CHUNK == 0) kernels->attn_decode_merge(&block);
    tile.keys = (int)(k1 - k0);
    tile.k = job->k->rows(job->k, lanes->batch, kv_head, k0, tile.keys, worker->keys, &tile.k_stride);
    tile.v = job->v->rows(job->v, lanes->batch, kv_head, k0, tile.keys, worker->values, &tile.v_stride);
    kernels->attn_decode_tile(&block, &tile);
  }
  kernels->attn_decode_merge(&block);
  write_rows(job, lanes, &block);
}

static void run_item(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->problem;
  i += job->first_item;
  int64_t kv = i / job->head_tiles, kv_head = kv % problem->kv_heads, first = i % job->head_tiles * job->tile_heads;
  hd_lanes lanes = {.batch = kv / problem->kv_heads, .count = (int)HD_MIN(job->tile_heads, problem->group - first)};
  lanes.heads = lanes.count;
  for (int r = 0; r < lanes.count; r++) lanes.head[r] = kv_head * problem->group + first + r;
  decode_heads(job, &job->workers[worker], &lanes, kv_head);
}

/* In batches of about a tenth of a second of work, so that a long call can be cancelled. */
static heed_status run_items(struct job *job) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  int64_t items = problem->batch * problem->kv_heads * job->head_tiles;
  double item_bytes = (double)problem->keys * (double)(problem->d + problem->dv) * sizeof(float) + 1;
  int64_t at_once = context->progress ? (int64_t)HD_MAX(1e9 * context->threads / item_bytes, 4.0 * context->threads) : items;
  for (job->first_item = 0; job->first_item < items; job->first_item += at_once) {
    HD_TRY(hd_progress(context, "attention", job->first_item, items));
    hd_parallel(context, HD_MIN(at_once, items - job->first_item), run_item, job);
  }
  return HEED_OK;
}

heed_status hd_decode_run(const hd_problem *problem, const hd_grid *q, const hd_source *k, const hd_source *v, const hd_grid *out,
                          const hd_grid *lse) {
  heed_context *context = problem->context;
  struct job job = {.problem = problem, .q = q, .out = out, .lse = lse, .k = k, .v = v};
  job.tile_heads = HD_MIN(problem->group, HD_DECODE_ROWS);
  job.head_tiles = hd_ceil_div(problem->group, job.tile_heads);

  int64_t floats, all, workers = hd_workers(context, problem->batch * problem->kv_heads * job.head_tiles);
  HD_REQUIRE(lay_out(problem, &(struct worker){0}, NULL, &floats) && hd_mul(floats, workers, &all), context, HEED_E_OVERFLOW,
             "head widths %lld and %lld are too large", (long long)problem->d, (long long)problem->dv);
  float *memory = NULL;
  heed_status status = hd_allocate(context, "attention workers", workers, sizeof *job.workers, &job.workers);
  if (status == HEED_OK) status = hd_allocate(context, "attention tiles", all, sizeof *memory, &memory);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < workers; i++) lay_out(problem, &job.workers[i], memory + i * floats, &floats);
    status = run_items(&job);
  }
  hd_release(context, memory, all, sizeof *memory);
  hd_release(context, job.workers, workers, sizeof *job.workers);
  return status;
}
