/* decode.c: attention of one or a few queries a head, as tokens are decoded: all that share keys go through them together, row by row, and read each number once, as it is stored.
 *
 * It runs where the visible keys are an interval and the scores need nothing but the product; everything else is forward.c's. Where there are fewer key/value heads than keep the
 * threads busy, the chunks of 1024 keys are shared out: each begins from the identity, and they merge in order, so who ran them never shows. The order of every sum is that of
 * forward.c, and so are the bits. */
#include "attention.h"
#include "limit.h"
#include "visible.h"

#include <math.h>

/* Rows that share keys: query r / group of head r mod group. More are better off in lanes. */
enum { MOST_ROWS = 2 * HD_DECODE_ROWS };

/* What rows have gathered from some keys: [rows], [rows], [rows][dv]. */
struct state {
  float *m, *l, *o;
};

struct worker {
  float *q;                    /* [rows][d], scaled */
  float *scores;               /* [HD_DECODE_ROWS][64] */
  float *chunk, *total;        /* states */
  float *rows, *keys, *values; /* [rows][d], [64][d], [64][dv]: what needs a copy on its way in */
};

/* A unit is a key/value head of a batch entry. The first `whole` are each one piece of work; of the others every chunk is. */
struct job {
  const hd_problem *problem;
  const hd_grid *q, *out, *lse;
  const hd_source *k, *v;
  int rows;
  int64_t state_floats;
  int64_t units, whole, chunks; /* chunks of the longest unit */
  float *parts;                 /* [units − whole][chunks] states */
  int64_t first_item;
  struct worker *workers;
};

bool hd_decodes(const hd_problem *problem) {
  if (problem->queries * problem->group > MOST_ROWS) return false;
  if (problem->a.pattern || problem->terms || problem->scoring || problem->a.dropout > 0 || problem->a.factors ||
      problem->softcap_log2 != 0)
    return false;
  for (int i = 0; i < problem->limits; i++)
    if (!problem->limit[i]->interval) return false;
  return true;
}

/* ---- rows in and out --------------------------------------------------------------------------------------------------------------- */

static hd_lanes unit_rows(const struct job *job, int64_t unit) {
  const hd_problem *problem = job->problem;
  hd_lanes lanes = {.batch = unit / problem->kv_heads, .count = job->rows, .heads = 1};
  for (int r = 0; r < job->rows; r++) {
    lanes.head[r] = unit % problem->kv_heads * problem->group + r % problem->group;
    lanes.row[r] = r / problem->group;
  }
  return lanes;
}

static void read_queries(const struct job *job, const struct worker *worker, int64_t unit) {
  const hd_problem *problem = job->problem;
  const float *rows[HD_MAX_LANES];
  const hd_lanes lanes = unit_rows(job, unit);
  hd_lane_rows(problem->kernels, job->q, &lanes, 0, problem->d, worker->rows, rows);
  for (int r = 0; r < job->rows; r++) {
    float *q = worker->q + r * problem->d;
    memcpy(q, rows[r], (size_t)problem->d * sizeof *q);
    problem->kernels->row_scale(q, problem->d, (float)(problem->scale * HD_LOG2E));
  }
}

static void write_rows(const struct job *job, int64_t unit, const struct state *total) {
  const hd_problem *problem = job->problem;
  const hd_grid *out = job->out;
  const hd_lanes lanes = unit_rows(job, unit);
  for (int r = 0; r < job->rows; r++) {
    int64_t begin, end;
    hd_limit_span(problem, lanes.batch, lanes.row[r], lanes.row[r] + 1, &begin, &end);
    float *o = total->o + r * problem->dv;
    if (begin < end) problem->kernels->row_scale(o, problem->dv, 1.0f / total->l[r]);
    hd_from_floats(problem->kernels, o, problem->dv, hd_grid_row(out, lanes.batch, lanes.head[r], lanes.row[r]), out->type,
                   out->column_stride);
    if (job->lse->data)
      *(float *)hd_grid_row(job->lse, lanes.batch, lanes.head[r], lanes.row[r]) =
          begin < end ? hd_attn_lse(total->m[r], total->l[r]) : -INFINITY;
  }
}

/* ---- states ------------------------------------------------------------------------------------------------------------------------ */

static struct state state_at(const struct job *job, float *memory) {
  return (struct state){memory, memory + job->rows, memory + 2 * job->rows};
}

static struct state empty_state(const struct job *job, float *memory) {
  struct state state = state_at(job, memory);
  for (int r = 0; r < job->rows; r++) state.m[r] = -INFINITY;
  memset(state.l, 0, (size_t)(job->state_floats - job->rows) * sizeof *memory);
  return state;
}

/* Adds a chunk to those before it. */
static void merge(const struct job *job, const struct state *total, const struct state *chunk) {
  hd_attn_block block = {.dv = job->problem->dv, .lanes = job->rows};
  block.o = chunk->o, block.m = chunk->m, block.l = chunk->l;
  block.total_o = total->o, block.total_m = total->m, block.total_l = total->l;
  job->problem->kernels->attn_decode_merge(&block);
}

/* The sink is a chunk of one key whose value is 0. */
static void merge_sink(const struct job *job, const struct worker *worker, int64_t unit, const struct state *total) {
  if (!job->problem->a.sink) return;
  struct state sink = empty_state(job, worker->chunk);
  const hd_lanes lanes = unit_rows(job, unit);
  for (int r = 0; r < job->rows; r++) {
    sink.m[r] = (float)(hd_per_head(job->problem->a.sink, lanes.head[r]) * HD_LOG2E);
    sink.l[r] = 1;
  }
  merge(job, total, &sink);
}

/* ---- keys -------------------------------------------------------------------------------------------------------------------------- */

static hd_stored stored_rows(const hd_source *source, int64_t unit, int64_t key, int keys, float *scratch) {
  hd_stored stored = {0};
  int64_t batch = unit / source->heads, head = unit % source->heads, stride;
  if (source->stored(source, batch, head, key, &stored)) return stored;
  stored = (hd_stored){.type = HD_F32};
  stored.data = source->rows(source, batch, head, key, keys, scratch, &stride);
  stored.stride = stride * (int64_t)sizeof(float);
  return stored;
}

/* Rows [from, to) of the unit against the tile, of which keys [first, last) count. */
static void add_tile(const struct job *job, const struct worker *worker, const struct state *state, const hd_decode_tile *tile, int from,
                     int to, int first, int last) {
  const hd_problem *problem = job->problem;
  hd_decode_tile part = *tile;
  part.keys = last - first;
  part.k.data = (const char *)tile->k.data + first * tile->k.stride;
  part.v.data = (const char *)tile->v.data + first * tile->v.stride;
  if (part.k.scale) part.k.scale += first;
  if (part.v.scale) part.v.scale += first;
  hd_attn_block block = {.d = problem->d, .dv = problem->dv, .lanes = to - from, .q = worker->q + from * problem->d};
  block.o = state->o + from * problem->dv, block.m = state->m + from, block.l = state->l + from;
  problem->kernels->attn_decode_tile(&block, &part);
}

/* As many rows at once as see all of the tile; where they do not, each query's heads for themselves. */
static void add_keys(const struct job *job, const struct worker *worker, const struct state *state, int64_t unit, int64_t k0,
                     const hd_decode_tile *tile) {
  const hd_problem *problem = job->problem;
  int64_t batch = unit / problem->kv_heads;
  for (int from = 0, to; from < job->rows; from = to) {
    int64_t begin, end, query = from / problem->group, last_query;
    to = HD_MIN(from + HD_DECODE_ROWS, job->rows);
    last_query = (to - 1) / problem->group;
    // What the first and the last query see, all between them see: intervals never fall.
    int64_t all_begin, all_end, unused;
    hd_limit_span(problem, batch, query, query + 1, &begin, &all_end);
    hd_limit_span(problem, batch, last_query, last_query + 1, &all_begin, &unused);
    end = all_end;
    if (all_begin <= k0 && all_end >= k0 + tile->keys) {
      begin = k0;
      end = k0 + tile->keys;
    } else {
      to = HD_MIN(to, (int)((query + 1) * problem->group));
    }
    int first = (int)(HD_MAX(begin, k0) - k0), last = (int)(HD_MIN(end, k0 + tile->keys) - k0);
    if (first < last) add_tile(job, worker, state, tile, from, to, first, last);
  }
}

/* Keys [from, to) of a unit, at most one chunk of the keys up to `end`. */
static void walk(const struct job *job, const struct worker *worker, const struct state *state, int64_t unit, int64_t from, int64_t to,
                 int64_t end) {
  hd_decode_tile tile = {.scores = worker->scores};
  for (int64_t k0 = from, k1; k0 < to; k0 = k1) {
    k1 = HD_MIN((k0 / HD_KEY_TILE + 1) * HD_KEY_TILE, to);
    tile.keys = (int)(k1 - k0);
    tile.k = stored_rows(job->k, unit, k0, tile.keys, worker->keys);
    tile.v = stored_rows(job->v, unit, k0, tile.keys, worker->values);
    tile.next_keys = 0;
    if (k1 < end && job->k->stored(job->k, unit / job->k->heads, unit % job->k->heads, k1, &tile.next))
      tile.next_keys = (int)HD_MIN(HD_KEY_TILE, end - k1);
    add_keys(job, worker, state, unit, k0, &tile);
  }
}

/* ---- pieces of work ---------------------------------------------------------------------------------------------------------------- */

/* The keys that any row of a unit sees. */
static void unit_span(const struct job *job, int64_t unit, int64_t *begin, int64_t *end) {
  hd_limit_span(job->problem, unit / job->problem->kv_heads, 0, job->problem->queries, begin, end);
}

static int64_t chunk_count(int64_t begin, int64_t end) { return begin < end ? hd_ceil_div(end, HD_KEY_CHUNK) - begin / HD_KEY_CHUNK : 0; }

static void walk_chunk(const struct job *job, const struct worker *worker, const struct state *state, int64_t unit, int64_t chunk) {
  int64_t begin, end, from;
  unit_span(job, unit, &begin, &end);
  from = (begin / HD_KEY_CHUNK + chunk) * HD_KEY_CHUNK;
  walk(job, worker, state, unit, HD_MAX(begin, from), HD_MIN(end, from + HD_KEY_CHUNK), end);
}

static void run_item(void *argument, int64_t i, int worker_index) {
  const struct job *job = argument;
  const struct worker *worker = &job->workers[worker_index];
  int64_t begin, end, item = job->first_item + i;
  if (item >= job->whole) {
    int64_t unit = job->whole + (item - job->whole) / job->chunks, chunk = (item - job->whole) % job->chunks;
    struct state part = empty_state(job, job->parts + (item - job->whole) * job->state_floats);
    read_queries(job, worker, unit);
    walk_chunk(job, worker, &part, unit, chunk);
    return;
  }
  struct state chunk = empty_state(job, worker->chunk), total = empty_state(job, worker->total);
  read_queries(job, worker, item);
  unit_span(job, item, &begin, &end);
  for (int64_t c = 0; c < chunk_count(begin, end); c++) {
    walk_chunk(job, worker, &chunk, item, c);
    merge(job, &total, &chunk);
  }
  merge_sink(job, worker, item, &total);
  write_rows(job, item, &total);
}

static void merge_item(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  struct state total = empty_state(job, job->workers[worker].total);
  for (int64_t c = 0; c < job->chunks; c++) {
    struct state part = state_at(job, job->parts + (i * job->chunks + c) * job->state_floats);
    merge(job, &total, &part);
  }
  merge_sink(job, &job->workers[worker], job->whole + i, &total);
  write_rows(job, job->whole + i, &total);
}

/* In batches of about a tenth of a second of work, so that a long call can be cancelled. */
static heed_status run_items(struct job *job) {
  const hd_problem *problem = job->problem;
  heed_context *context = problem->context;
  int64_t items = job->whole + (job->units - job->whole) * job->chunks;
  double keys = job->whole ? (double)problem->keys : HD_KEY_CHUNK,
         item_bytes = keys * (double)(problem->d + problem->dv) * sizeof(float) + 1;
  int64_t at_once = context->progress ? (int64_t)HD_MAX(1e9 * context->threads / item_bytes, 4.0 * context->threads) : items;
  for (job->first_item = 0; job->first_item < items; job->first_item += at_once) {
    HD_TRY(hd_progress(context, "attention", job->first_item, items));
    hd_parallel(context, HD_MIN(at_once, items - job->first_item), run_item, job);
  }
  hd_parallel(context, job->units - job->whole, merge_item, job);
  return HEED_OK;
}

/* ---- the call ---------------------------------------------------------------------------------------------------------------------- */

/* One worker's arrays, cut from memory; with memory NULL only their size, in floats. False where that overflows. */
static bool lay_out(const struct job *job, struct worker *worker, float *memory, int64_t *floats) {
  const int64_t d = job->problem->d, dv = job->problem->dv, rows = job->rows;
  const hd_part parts[] = {
      {&worker->q, rows, d},
      {&worker->scores, HD_DECODE_ROWS, HD_KEY_TILE},
      {&worker->chunk, 1, job->state_floats},
      {&worker->rows, rows, d},
      {&worker->total, 1, job->state_floats},
      {&worker->keys, HD_KEY_TILE, d},
      {&worker->values, HD_KEY_TILE, dv},
  };
  *floats = 0;
  return hd_cut(memory, parts, (int)HD_COUNT(parts), floats);
}

/* Units of one length go whole to the threads as long as all get as many; what is left over, or of different lengths, is shared out by chunks. */
static void share_out(struct job *job) {
  int64_t threads = job->problem->context->threads, least = INT64_MAX;
  job->units = job->problem->batch * job->problem->kv_heads;
  for (int64_t b = 0; b < job->problem->batch; b++) {
    int64_t begin, end;
    unit_span(job, b * job->problem->kv_heads, &begin, &end);
    job->chunks = HD_MAX(job->chunks, chunk_count(begin, end));
    least = HD_MIN(least, chunk_count(begin, end));
  }
  job->whole = job->chunks <= 1 ? job->units : least == job->chunks || threads == 1 ? job->units / threads * threads : 0;
}

heed_status hd_decode_run(const hd_problem *problem, const hd_grid *q, const hd_source *k, const hd_source *v, const hd_grid *out,
                          const hd_grid *lse) {
  heed_context *context = problem->context;
  struct job job = {.problem = problem, .q = q, .out = out, .lse = lse, .k = k, .v = v};
  int64_t floats, all, parts;
  job.rows = (int)(problem->queries * problem->group);
  share_out(&job);
  bool fits = hd_mul(problem->dv, job.rows, &job.state_floats) && hd_add(job.state_floats, 2 * job.rows, &job.state_floats) &&
              lay_out(&job, &(struct worker){0}, NULL, &floats) && hd_mul(job.units - job.whole, job.chunks, &parts) &&
              hd_mul(parts, job.state_floats, &parts);
  int64_t workers = hd_workers(context, job.whole + (job.units - job.whole) * job.chunks);
  HD_REQUIRE(fits && hd_mul(floats, workers, &all), context, HEED_E_OVERFLOW, "head widths %lld and %lld are too large",
             (long long)problem->d, (long long)problem->dv);
  float *memory = NULL;
  heed_status status = hd_allocate(context, "attention workers", workers, sizeof *job.workers, &job.workers);
  if (status == HEED_OK) status = hd_allocate(context, "attention tiles", all, sizeof *memory, &memory);
  if (status == HEED_OK) status = hd_allocate(context, "attention chunks", parts, sizeof *job.parts, &job.parts);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < workers; i++) lay_out(&job, &job.workers[i], memory + i * floats, &floats);
    status = run_items(&job);
  }
  hd_release(context, job.parts, parts, sizeof *job.parts);
  hd_release(context, memory, all, sizeof *memory);
  hd_release(context, job.workers, workers, sizeof *job.workers);
  return status;
}
