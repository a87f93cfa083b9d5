/* forward.c: out = softmax(scores) · V by tiles. Work is cut into query tiles; each walks the tiles of keys that its visibility leaves alive and hands them to the kernel.
 *
 * A tile's lanes are query rows of one head, or, when there are few queries, the rows of several heads that read the same keys. Lanes are independent, so how rows are
 * grouped never shows in the result. Memory is a few tiles a worker, whatever the lengths. One query a head goes to decode.c. */
#include "attention.h"
#include "pattern.h"

#include <math.h>

enum { MAX_BLOCKS = HD_MAX_LANES / 4 }; // the narrowest block is the scalar level's

struct worker {
  float *queries;                   /* [d][lanes] of every block in turn */
  float *chunk, *total;             /* [dv][lanes] likewise */
  float *m, *l, *total_m, *total_l; /* [lanes] */
  float *scores, *bias;             /* [64][lanes] */
  float *rows;                      /* [lanes][max(d, dv, 64)]: rows that need a copy on their way in or out */
  float *keys, *values;             /* [64][d], [64][dv]: keys and values that need one */
};

struct job {
  const hd_problem *problem;
  hd_grid q, out, lse; /* lse.data NULL: not asked */
  const hd_source *k, *v;
  int64_t tile_queries, query_tiles, tile_heads, head_tiles; /* query tiles a head; tiles of heads a group */
  int64_t first_item;
  struct worker *workers;
};

/* ---- scratch ---------------------------------------------------------------------------------------------------------------------- */

/* One worker's arrays, cut from memory; with memory NULL only their size, in floats. False where that overflows. */
static bool lay_out(const hd_problem *problem, struct worker *worker, float *memory, int64_t *floats) {
  const int64_t lanes = problem->kernels->tile_lanes, d = problem->d, dv = problem->dv;
  const int64_t widest = HD_MAX(HD_MAX(d, dv), HD_KEY_TILE);
  const struct {
    float **array;
    int64_t rows, columns;
  } parts[] = {
      {&worker->queries, d, lanes},
      {&worker->chunk, dv, lanes},
      {&worker->total, dv, lanes},
      {&worker->m, 1, lanes},
      {&worker->l, 1, lanes},
      {&worker->total_m, 1, lanes},
      {&worker->total_l, 1, lanes},
      {&worker->scores, HD_KEY_TILE, lanes},
      {&worker->bias, HD_KEY_TILE, lanes},
      {&worker->rows, widest, lanes},
      {&worker->keys, d, HD_KEY_TILE},
      {&worker->values, dv, HD_KEY_TILE},
  };
  *floats = 0;
  for (int i = 0; i < HD_COUNT(parts); i++) {
    int64_t size;
    if (memory) *parts[i].array = memory + *floats;
    if (!hd_mul(parts[i].rows, parts[i].columns, &size) || !hd_add(size, HD_ALIGN / 4 - 1, &size)) return false;
    size = size / (HD_ALIGN / 4) * (HD_ALIGN / 4);
    if (!hd_add(*floats, size, floats)) return false;
  }
  return true;
}

/* ---- one query tile --------------------------------------------------------------------------------------------------------------- */

static void prepare_blocks(const struct job *job, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *blocks, int count) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(kernels, &job->q, lanes, 0, problem->d, worker->rows, rows);
  for (int i = 0; i < count; i++) {
    int shift = i * kernels->block_lanes, used = HD_MIN(lanes->count - shift, kernels->block_lanes);
    int width = (int)hd_ceil_div(used, kernels->vector) * kernels->vector;
    hd_attn_block *block = &blocks[i];
    float *queries = worker->queries + shift * problem->d;
    *block = (hd_attn_block){
        .d = problem->d,
        .dv = problem->dv,
        .lanes = width,
        .shift = shift,
        .used = ~(uint64_t)0 >> (64 - used),
        .q = queries,
        .o = worker->chunk + shift * problem->dv,
        .m = worker->m + shift,
        .l = worker->l + shift,
        .total_o = worker->total + shift * problem->dv,
        .total_m = worker->total_m + shift,
        .total_l = worker->total_l + shift,
    };
    kernels->to_lanes(rows + shift, used, problem->d, (float)(problem->scale * HD_LOG2E), queries, width);
    for (int lane = 0; lane < width; lane++) {
      block->m[lane] = block->total_m[lane] = -INFINITY;
      block->l[lane] = block->total_l[lane] = 0;
    }
    memset(block->o, 0, (size_t)(problem->dv * width) * sizeof(float));
    memset(block->total_o, 0, (size_t)(problem->dv * width) * sizeof(float));
  }
}

static void write_rows(const struct job *job, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *blocks, int count) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  const hd_grid *out = &job->out;
  bool direct = out->type == HEED_F32 && out->column_stride == 1;
  float lse[HD_MAX_LANES], *rows[HD_MAX_LANES];
  for (int i = 0; i < lanes->count; i++)
    rows[i] = direct ? (float *)hd_grid_row(out, lanes->batch, lanes->head[i], lanes->row[i]) : worker->rows + i * problem->dv;
  for (int i = 0; i < count; i++) {
    hd_attn_block *block = &blocks[i];
    kernels->attn_finish(block, job->lse.data ? lse + block->shift : NULL);
    kernels->from_lanes(block->total_o, block->lanes, HD_MIN(lanes->count - block->shift, block->lanes), problem->dv, rows + block->shift);
  }
  for (int i = 0; i < lanes->count; i++) {
    if (!direct)
      hd_from_floats(kernels, rows[i], problem->dv, hd_grid_row(out, lanes->batch, lanes->head[i], lanes->row[i]), out->type,
                     out->column_stride);
    if (job->lse.data) *(float *)hd_grid_row(&job->lse, lanes->batch, lanes->head[i], lanes->row[i]) = lse[i];
  }
}

static void attend_lanes(const struct job *job, const struct worker *worker, const hd_lanes *lanes, int heads, int64_t kv_head) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  hd_attn_block blocks[MAX_BLOCKS];
  int count = (int)hd_ceil_div(lanes->count, kernels->block_lanes),
      padded = (int)hd_ceil_div(lanes->count, kernels->vector) * kernels->vector;
  prepare_blocks(job, worker, lanes, blocks, count);

  int64_t begin, end, chunk = -1;
  uint64_t visible[HD_KEY_TILE];
  hd_visible_span(problem, lanes->batch, lanes->row[0], lanes->row[0] + lanes->count / heads, &begin, &end);
  for (int64_t k0 = begin, k1; k0 < end; k0 = k1) {
    k1 = HD_MIN((k0 / HD_KEY_TILE + 1) * HD_KEY_TILE, end);
    hd_cover cover = hd_lanes_visible(problem, lanes, heads, k0, k1, visible);
    if (cover == HD_EMPTY) continue;
    if (chunk >= 0 && chunk != k0 / HD_KEY_CHUNK)
      for (int i = 0; i < count; i++) kernels->attn_merge(&blocks[i]);
    chunk = k0 / HD_KEY_CHUNK;

    hd_attn_tile tile = {
        .keys = (int)(k1 - k0),
        .visible = cover == HD_FULL ? NULL : visible,
        .softcap = problem->softcap_log2,
        .scores = worker->scores,
        .stride = padded,
    };
    if (problem->a.bias) {
      const float *rows[HD_MAX_LANES];
      hd_lane_rows(kernels, &problem->bias, lanes, k0, k1 - k0, worker->rows, rows);
      kernels->to_lanes(rows, lanes->count, k1 - k0, 1.0f, worker->bias, padded);
      tile.bias = worker->bias;
      tile.bias_stride = padded;
    }
    tile.k = job->k->rows(job->k, lanes->batch, kv_head, k0, tile.keys, worker->keys, &tile.k_stride);
    tile.v = job->v->rows(job->v, lanes->batch, kv_head, k0, tile.keys, worker->values, &tile.v_stride);
    for (int i = 0; i < count; i++) kernels->attn_tile(&blocks[i], &tile);
  }
  for (int i = 0; i < count; i++) kernels->attn_merge(&blocks[i]);
  write_rows(job, worker, lanes, blocks, count);
}

static void run_item(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->problem;
  i += job->first_item;
  // Head by head, so that its keys and values stay in a near cache; in each the last query tiles first: under a causal pattern they are the longest, and short ones fill the end.
  int64_t group = i / job->query_tiles, tile = job->query_tiles - 1 - i % job->query_tiles;
  int64_t head_tile = group % job->head_tiles, kv = group / job->head_tiles;
  int64_t kv_head = kv % problem->kv_heads;
  int64_t q0 = tile * job->tile_queries, queries = HD_MIN(job->tile_queries, problem->queries - q0);
  int64_t first = head_tile * job->tile_heads, heads = HD_MIN(job->tile_heads, problem->group - first);
  hd_lanes lanes = {.batch = kv / problem->kv_heads, .count = (int)(heads * queries)};
  for (int lane = 0; lane < lanes.count; lane++) {
    lanes.head[lane] = kv_head * problem->group + first + lane / queries;
    lanes.row[lane] = q0 + lane % queries;
  }
  attend_lanes(job, &job->workers[worker], &lanes, (int)heads, kv_head);
}

/* ---- the call --------------------------------------------------------------------------------------------------------------------- */

static int64_t item_count(const struct job *job) {
  return job->problem->batch * job->problem->kv_heads * job->head_tiles * job->query_tiles;
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
    hd_parallel(problem->context, HD_MIN(at_once, items - job->first_item), run_item, job);
  }
  return HEED_OK;
}

static heed_status run_job(struct job *job) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  int lanes = problem->kernels->tile_lanes;
  // Few queries: heads that share keys share a tile. More than half a tile of queries is better off alone.
  job->tile_queries = HD_MIN(problem->queries, lanes);
  job->tile_heads = problem->queries * 2 <= lanes ? HD_MIN(problem->group, lanes / problem->queries) : 1;
  job->query_tiles = hd_ceil_div(problem->queries, job->tile_queries);
  job->head_tiles = hd_ceil_div(problem->group, job->tile_heads);

  int64_t floats, all, workers = hd_workers(context, item_count(job));
  HD_REQUIRE(lay_out(problem, &(struct worker){0}, NULL, &floats) && hd_mul(floats, workers, &all), context, HEED_E_OVERFLOW,
             "head widths %lld and %lld are too large", (long long)problem->d, (long long)problem->dv);
  float *memory = NULL;
  heed_status status = hd_allocate(context, "attention workers", workers, sizeof *job->workers, &job->workers);
  if (status == HEED_OK) status = hd_allocate(context, "attention tiles", all, sizeof *memory, &memory);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < workers; i++) lay_out(problem, &job->workers[i], memory + i * floats, &floats);
    status = run_items(job);
  }
  hd_release(context, memory, all, sizeof *memory);
  hd_release(context, job->workers, workers, sizeof *job->workers);
  return status;
}

heed_status hd_attention_run(heed_context *context, const heed_attention *a, const heed_view *q, const hd_source *k, const hd_source *v,
                             const heed_view *out, const heed_view *lse) {
  hd_problem problem;
  hd_shapes shapes;
  struct job job = {.problem = &problem, .k = k, .v = v};
  HD_TRY(hd_attention_shapes(context, q, k, v, &job.q, &shapes));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  HD_TRY(hd_grid_make(context, out, "out", &job.out));
  HD_TRY(hd_grid_expect(context, &job.out, out, "out", &job.q, problem.heads, problem.queries, problem.dv));
  HD_TRY(hd_storable(context, &job.q, "q"));
  HD_TRY(hd_storable(context, &job.out, "out"));
  if (lse) {
    HD_TRY(hd_row_grid(context, lse, "lse", &job.q, &job.lse));
    HD_REQUIRE(job.lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job.lse.type));
  }
  if (problem.batch == 0 || problem.heads == 0 || problem.queries == 0) return HEED_OK;
  return hd_decodes(&problem) ? hd_decode_run(&problem, &job.q, k, v, &job.out, &job.lse) : run_job(&job);
}

/* ---- the public call -------------------------------------------------------------------------------------------------------------- */

/* An output may share memory with nothing, except that out may be q itself: a tile reads its queries before it writes their rows. */
static heed_status check_overlap(heed_context *context, const heed_view *q, const heed_view *k, const heed_view *v, const heed_view *out,
                                 const heed_view *lse, const heed_attention *a) {
  bool in_place = out->data == q->data && out->type == q->type && out->ndim == q->ndim;
  for (int i = 0; in_place && i < q->ndim; i++) in_place = out->dim[i] == q->dim[i] && (out->stride[i] == q->stride[i] || q->dim[i] <= 1);
  HD_REQUIRE(in_place || !hd_views_overlap(out, q), context, HEED_E_OVERLAP, "out overlaps q (allowed: exactly the same memory)");
  const hd_named_view others[] = {{k, "k"}, {v, "v"}, {a->attend, "attend"}, {a->bias, "bias"}, {q, "q"}, {out, "out"}};
  HD_TRY(hd_outputs_apart(context, &(hd_named_view){out, "out"}, others, HD_COUNT(others) - 2));
  return hd_outputs_apart(context, &(hd_named_view){lse, "lse"}, others, HD_COUNT(others));
}

heed_status heed_attention_forward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                   const heed_view *v, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention description;
  hd_source keys, values;
  HD_TRY(hd_description_read(context, a, &description));
  heed_attention_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_attention_extras", extras, &asked, sizeof asked));
  const heed_view *lse = asked.lse;
  HD_TRY(hd_view_check(context, q, "q"));
  HD_TRY(hd_source_of_view(context, k, "k", &keys));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  HD_TRY(hd_view_check(context, out, "out"));
  if (lse) HD_TRY(hd_view_check(context, lse, "lse"));
  if (description.attend) HD_TRY(hd_view_check(context, description.attend, "attend"));
  if (description.bias) HD_TRY(hd_view_check(context, description.bias, "bias"));
  HD_TRY(check_overlap(context, q, k, v, out, lse, &description));
  return hd_attention_run(context, &description, q, &keys, &values, out, lse);
}
