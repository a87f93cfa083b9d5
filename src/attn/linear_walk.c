/* linear_walk.c: who sums up what, in which order, and who waits for whom (linear.h has the idea). */
#include "linear.h"

#include <math.h>
#include <stdatomic.h>

/* ---- rows ------------------------------------------------------------------------------------------------------------------------ */

void hd_linear_rows(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count, bool masked, float *out,
                    int64_t stride) {
  const char *row = hd_grid_row(grid, batch, head, begin);
  masked = masked && hd_linear_masks(p);
  if (stride == 1 && !masked && grid->columns == 1) { // a column of numbers is a row
    hd_to_floats(p->kernels, row, grid->type, grid->row_stride, count, out);
    return;
  }
  for (int i = 0; i < count; i++, out += stride, row += grid->row_stride * grid->size) {
    const int64_t columns = masked && !hd_linear_counts(p, batch, begin + i) ? 0 : grid->columns;
    hd_to_floats(p->kernels, row, grid->type, grid->column_stride, columns, out);
    if (columns < stride) memset(out + columns, 0, (size_t)(stride - columns) * sizeof *out);
  }
}

/* Rows that kernels take as they lie: close together, since rows that are a power of two apart meet in the same sets of a cache. */
static bool dense(const hd_grid *grid, int64_t stride) {
  return grid->type == HEED_F32 && grid->columns == stride && grid->column_stride == 1 && grid->row_stride == stride;
}

const float *hd_linear_rows_near(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count,
                                 bool masked, float *scratch, int64_t stride) {
  if (dense(grid, stride) && !(masked && hd_linear_masks(p))) return (const float *)hd_grid_row(grid, batch, head, begin);
  hd_linear_rows(p, grid, batch, head, begin, count, masked, scratch, stride);
  return scratch;
}

float *hd_linear_rows_to(const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, float *scratch, int64_t stride) {
  return dense(grid, stride) ? (float *)hd_grid_row(grid, batch, head, begin) : scratch;
}

void hd_linear_put(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count, const float *rows,
                   int64_t stride) {
  char *row = hd_grid_row(grid, batch, head, begin);
  if (row == (const char *)rows) return;
  if (stride == 1 && grid->columns == 1) {
    hd_from_floats(p->kernels, rows, count, row, grid->type, grid->row_stride);
    return;
  }
  for (int i = 0; i < count; i++, rows += stride, row += grid->row_stride * grid->size)
    hd_from_floats(p->kernels, rows, grid->columns, row, grid->type, grid->column_stride);
}

const float *hd_linear_queries(const hd_linear *p, const hd_linear_maps *maps, int64_t batch, int64_t head, int64_t begin, int count,
                               float *raw, float *scratch, float *x, float *exponent) {
  const float *rows = hd_linear_rows_near(p, &p->q, batch, head, begin, count, false, hd_linear_projects(p) ? raw : x, hd_padded(p->d));
  hd_linear_features(p, maps, rows, count, scratch, x, exponent);
  return rows;
}

const float *hd_linear_keys(const hd_linear *p, const hd_linear_maps *maps, int64_t batch, int64_t head, int64_t begin, int count,
                            float *raw, float *scratch, float *x, float *exponent) {
  const int64_t stride = hd_padded(p->features);
  const float *rows = hd_linear_rows_near(p, &p->k, batch, head, begin, count, true, hd_linear_projects(p) ? raw : x, hd_padded(p->d));
  hd_linear_features(p, maps, rows, count, scratch, x, exponent);
  for (int i = 0; i < count && hd_linear_masks(p); i++) {
    if (hd_linear_counts(p, batch, begin + i)) continue;
    memset(x + i * stride, 0, (size_t)stride * sizeof *x);
    exponent[i] = -INFINITY;
  }
  return rows;
}

float hd_linear_power(float exponent) { return exponent < -126 ? 0.0f : ldexpf(1.0f, (int)HD_MIN(exponent, 126.0f)); }

void hd_linear_turn(const hd_linear *p, const float *x, int64_t count, int64_t columns, int64_t stride, float *out) {
  const hd_rectangle turned = {(void *)x, HEED_F32, 1, stride};
  p->kernels->gather(&turned, columns, count, out, HD_CHUNK);
}

/* ---- states ---------------------------------------------------------------------------------------------------------------------- */

struct run {
  const hd_linear_walk *walk;
  bool exponents;
  int64_t chunk_rows, kept; /* rows of a chunk, chunks that a worker keeps */
  int64_t chunks, segments; /* of a segment; of the items */
  int64_t floats;           /* of a state */
  int64_t first_kv, kvs;    /* heads at hand */
  int64_t workers, worker_floats;
  hd_linear_worker *worker;
  float *memory;
  hd_linear_sum running; /* where workers share heads: belongs to the piece whose turn it is */
  hd_linear_sum *total;  /* [kvs], where not causal */
  _Alignas(HD_ALIGN) _Atomic int64_t next;
  _Alignas(HD_ALIGN) _Atomic int64_t ready;
};

/* From `from` to `to`, which may be the same, as a multiple of another power of two. */
static void rescale(const struct run *run, const hd_linear_sum *from, float exponent, hd_linear_sum *to) {
  const bool same = from->exponent == exponent;
  if (!same) run->walk->p->kernels->scale(from->data, hd_linear_power(from->exponent - exponent), run->floats, false, to->data);
  else if (to->data != from->data) memcpy(to->data, from->data, (size_t)run->floats * sizeof(float));
  to->exponent = exponent;
}

/* to += from. Both are multiples of powers of two, so that this is one rounding, whatever their exponents are. */
static void add_to(const struct run *run, const hd_linear_sum *from, hd_linear_sum *to) {
  const float exponent = HD_MAX(from->exponent, to->exponent);
  rescale(run, to, exponent, to);
  const float factor = from->exponent == exponent ? 1.0f : hd_linear_power(from->exponent - exponent);
  run->walk->p->kernels->scale(from->data, factor, run->floats, true, to->data);
}

static void clear(const struct run *run, hd_linear_sum *sum) {
  memset(sum->data, 0, (size_t)run->floats * sizeof(float));
  sum->exponent = run->exponents ? -INFINITY : 0;
}

/* to = from + Σ over rows, at the exponent that `to` has; from may be to, or have no data: 0. */
static void add_rows(const struct run *run, const hd_linear_items *items, int64_t count, hd_asking *asking, const hd_linear_sum *from,
                     hd_linear_sum *to) {
  const hd_linear_walk *walk = run->walk;
  const float *x = items->x, *y = items->y;
  const hd_kernels *kernels = walk->p->kernels;
  const bool turned = walk->turned;
  const hd_rows_product product = {
      .rows = turned ? walk->y_rows : walk->x_rows,
      .columns = turned ? walk->x_stride : walk->y_stride,
      .inputs = count,
      .x = turned ? y : x,
      .x_row = 1,
      .x_input = turned ? walk->y_stride : walk->x_stride,
      .w = turned ? x : y,
      .w_stride = turned ? walk->x_stride : walk->y_stride,
      .from = from->data,
      .y = to->data,
      .y_stride = turned ? walk->x_stride : walk->y_stride,
      .asking = asking,
  };
  kernels->multiply_rows(&product);
  if (!walk->sums_x) return;
  float *behind = to->data + hd_linear_behind(walk);
  if (!from->data) memset(behind, 0, (size_t)walk->x_stride * sizeof *behind);
  else if (from->data != to->data) memcpy(behind, from->data + hd_linear_behind(walk), (size_t)walk->x_stride * sizeof *behind);
  if (walk->weighs) kernels->blend(items->weights, x, count, walk->x_stride, walk->x_stride, behind);
  else kernels->sum_rows(x, count, walk->x_stride, walk->x_stride, true, behind);
}

/* ---- a segment -------------------------------------------------------------------------------------------------------------------- */

/* Positions of chunk `slot` of a segment, in the order of the walk. False: it has fewer. */
static bool chunk_at(const struct run *run, int64_t positions, int64_t segment, int64_t slot, int64_t *begin, int *count) {
  const int64_t chunks = hd_ceil_div(positions, HD_CHUNK), nth = segment * run->chunks + slot;
  if (slot >= run->chunks || nth >= chunks) return false;
  *begin = (run->walk->reverse ? chunks - 1 - nth : nth) * HD_CHUNK;
  *count = (int)HD_MIN(HD_CHUNK, positions - *begin);
  return true;
}

/* Rows of a chunk in each of the grids, to be asked for too. */
static void ask_for(const struct run *run, const hd_grid *const *grids, int64_t most, int64_t kv, int64_t positions, int64_t segment,
                    int64_t slot, hd_asking *out) {
  const hd_linear *p = run->walk->p;
  int64_t begin;
  int count;
  if (kv >= run->first_kv + run->kvs || !chunk_at(run, positions, segment, slot, &begin, &count)) return;
  for (int64_t i = 0; i < most && grids[i]; i++) {
    const int64_t head = kv % p->kv_heads * (grids[i]->heads == p->heads ? p->group : 1);
    if (!grids[i]->size) continue;
    const hd_ahead rows = hd_rows_ahead(grids[i], hd_grid_row(grids[i], kv / p->kv_heads, head, begin), count);
    if (rows.rows > 0) out->rows[out->count++] = rows;
  }
}

/* Brings rows to one exponent, at least that of what they are added to. */
static float level_rows(const struct run *run, float *x, const float *exponents, int64_t count, float before) {
  float top = before;
  for (int64_t i = 0; i < count; i++) top = HD_MAX(top, exponents[i]);
  for (int64_t i = 0; i < count; i++)
    if (exponents[i] != top)
      run->walk->p->kernels->row_scale(x + i * run->walk->x_stride, run->walk->x_stride, hd_linear_power(exponents[i] - top));
  return top;
}

/* Fills the rows of a chunk, to be added to `before`; returns how many, and their exponent. */
static int64_t collect_chunk(const struct run *run, hd_linear_worker *worker, int64_t place, int64_t kv, int64_t begin, int count,
                             float before, float *exponent) {
  const hd_linear_walk *walk = run->walk;
  hd_linear_items *items = &worker->items[place];
  items->y = worker->room[place];
  const int64_t rows = walk->collect(walk, worker->own, kv, begin, count, items);
  *exponent = run->exponents ? level_rows(run, items->x, items->exponents, rows, before) : before;
  return rows;
}

/* sum = before + Σ over rows whose exponent is given, which is no less; before may be sum, or have no data. */
static void sum_chunk(const struct run *run, const hd_linear_items *items, int64_t rows, float exponent, hd_asking *asking,
                      hd_linear_sum before, hd_linear_sum *sum) {
  if (before.data && before.exponent != exponent) {
    rescale(run, &before, exponent, sum);
    before = *sum;
  }
  sum->exponent = exponent;
  add_rows(run, items, rows, asking, &before, sum);
}

/* Sums a segment up, chunk after chunk; returns how many there are. The last sum is that of the segment. */
static int64_t collect_segment(const struct run *run, hd_linear_worker *worker, int64_t kv, int64_t segment) {
  const hd_linear_walk *walk = run->walk;
  hd_linear_sum before = {NULL, run->exponents ? -INFINITY : 0};
  int64_t begin, slot = 0;
  int count;
  for (; chunk_at(run, walk->items, segment, slot, &begin, &count); slot++) {
    const int64_t place = slot % run->kept;
    float exponent;
    hd_asking asking = {0};
    const int64_t rows = collect_chunk(run, worker, place, kv, begin, count, before.exponent, &exponent);
    if (slot + 1 == run->chunks) ask_for(run, walk->made, HD_COUNT(walk->made), kv, walk->rows, segment, 0, &asking);
    else if (!walk->p->a.causal) ask_for(run, walk->read, HD_COUNT(walk->read), kv, walk->items, segment, slot + 1, &asking);
    sum_chunk(run, &worker->items[place], rows, exponent, &asking, before, &worker->sum[place]);
    before = worker->sum[place];
  }
  return slot;
}

/* Takes what the pieces before have handed on and hands on the sum of this one too. */
static void exchange(struct run *run, hd_linear_worker *worker, int64_t piece, int64_t slots) {
  const hd_linear_walk *walk = run->walk;
  const int64_t segment = piece % run->segments, kv = run->first_kv + piece / run->segments;
  hd_wait_for(&run->ready, piece);
  if (segment == 0) {
    clear(run, &run->running);
    if (walk->begin) walk->begin(walk, kv, &run->running);
  }
  if (walk->p->a.causal) rescale(run, &run->running, run->running.exponent, &worker->start);
  if (slots > 0) add_to(run, &worker->sum[(slots - 1) % run->kept], &run->running);
  if (segment == run->segments - 1) {
    if (walk->end) walk->end(walk, kv, &run->running);
    if (run->total) rescale(run, &run->running, run->running.exponent, &run->total[kv - run->first_kv]);
  }
  atomic_store_explicit(&run->ready, piece + 1, memory_order_release);
}

/* Everything before a chunk that has rows of its own: at an exponent that is no less than theirs. `sum` is what its segment had before it, or has no data. */
static void find_state(const struct run *run, hd_linear_worker *worker, const hd_linear_sum *sum, float exponent) {
  const hd_linear_sum *start = &worker->start;
  exponent = HD_MAX(start->exponent, exponent);
  if (sum->data && start->exponent == exponent && sum->exponent == exponent) {
    run->walk->p->kernels->add(start->data, sum->data, run->floats, worker->state.data);
    worker->state.exponent = exponent;
    return;
  }
  rescale(run, start, exponent, &worker->state);
  if (sum->data) add_to(run, sum, &worker->state);
}

/* Makes the rows of the chunk whose own are at `place`. */
static void make_chunk(const struct run *run, hd_linear_worker *worker, int64_t kv, int64_t segment, int64_t slot, int64_t place,
                       float exponent, hd_asking *asking) {
  const hd_linear_walk *walk = run->walk;
  const hd_linear_items *items = &worker->items[place];
  hd_linear_chunk chunk = {
      .kv = kv, .state = &worker->state, .x = items->x, .y = items->y, .weights = items->weights, .exponent = exponent, .asking = asking};
  chunk_at(run, walk->rows, segment, slot, &chunk.begin, &chunk.count);
  walk->make(walk, worker->own, &chunk);
}

static void make_segment(const struct run *run, hd_linear_worker *worker, int64_t kv, int64_t segment, int64_t slots) {
  const hd_linear_walk *walk = run->walk;
  const int64_t next = (kv - run->first_kv) * run->segments + segment + run->workers; // most likely this worker's
  hd_linear_sum before = {0};
  for (int64_t slot = 0; slot < slots; slot++) {
    hd_asking asking = {0};
    ask_for(run, walk->made, HD_COUNT(walk->made), kv, walk->rows, segment, slot + 1, &asking);
    ask_for(run, walk->read, HD_COUNT(walk->read), next / run->segments + run->first_kv, walk->items, next % run->segments, slot, &asking);
    find_state(run, worker, &before, worker->sum[slot].exponent);
    make_chunk(run, worker, kv, segment, slot, slot, worker->sum[slot].exponent, &asking);
    before = worker->sum[slot];
  }
}

/* Sums up and makes a head's segment chunk by chunk: the sums are those of collect_segment and exchange. */
static void walk_segment(const struct run *run, hd_linear_worker *worker, int64_t kv, int64_t segment) {
  const hd_linear_walk *walk = run->walk;
  hd_linear_sum before = {NULL, run->exponents ? -INFINITY : 0}, *sum = &worker->sum[0];
  int64_t begin;
  int count;
  for (int64_t slot = 0; chunk_at(run, walk->items, segment, slot, &begin, &count); slot++) {
    const bool last = slot + 1 == run->chunks;
    float exponent;
    hd_asking asking = {0};
    const int64_t rows = collect_chunk(run, worker, 0, kv, begin, count, before.exponent, &exponent);
    ask_for(run, walk->read, HD_COUNT(walk->read), kv, walk->items, segment + last, last ? 0 : slot + 1, &asking);
    ask_for(run, walk->made, HD_COUNT(walk->made), kv, walk->rows, segment + last, last ? 0 : slot + 1, &asking);
    find_state(run, worker, &before, exponent);
    make_chunk(run, worker, kv, segment, slot, 0, exponent, &asking);
    sum_chunk(run, &worker->items[0], rows, exponent, &asking, before, sum);
    before = *sum;
  }
  if (before.data) add_to(run, &before, &worker->start);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------------ */

/* A head of which no other worker does anything. */
static void run_head(void *argument, int64_t i, int of) {
  struct run *run = argument;
  const hd_linear_walk *walk = run->walk;
  hd_linear_worker *worker = &run->worker[of];
  const int64_t kv = run->first_kv + i;
  clear(run, &worker->start);
  if (walk->begin) walk->begin(walk, kv, &worker->start);
  for (int64_t segment = 0; segment < run->segments; segment++) walk_segment(run, worker, kv, segment);
  if (walk->end) walk->end(walk, kv, &worker->start);
}

/* Pieces in order: whoever is waited for has begun. */
static void run_worker(void *argument, int64_t i, int ignored) {
  struct run *run = argument;
  (void)ignored;
  hd_linear_worker *worker = &run->worker[i];
  const int64_t pieces = run->kvs * run->segments;
  int64_t piece;
  while ((piece = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed)) < pieces) {
    const int64_t kv = run->first_kv + piece / run->segments, segment = piece % run->segments;
    const int64_t slots = collect_segment(run, worker, kv, segment);
    exchange(run, worker, piece, slots);
    if (run->walk->p->a.causal) make_segment(run, worker, kv, segment, slots);
  }
}

/* Rows that see everything. */
static void make_free(void *argument, int64_t i, int worker) {
  const struct run *run = argument;
  const hd_linear_walk *walk = run->walk;
  const int64_t segments = hd_ceil_div(hd_ceil_div(walk->rows, HD_CHUNK), run->chunks), kv = i / segments;
  hd_asking asking;
  hd_linear_chunk chunk = {.kv = run->first_kv + kv, .state = &run->total[kv], .asking = &asking};
  for (int64_t slot = 0; chunk_at(run, walk->rows, i % segments, slot, &chunk.begin, &chunk.count); slot++) {
    asking.next = asking.count = 0;
    ask_for(run, walk->made, HD_COUNT(walk->made), chunk.kv, walk->rows, i % segments, slot + 1, &asking);
    walk->make(walk, run->worker[worker].own, &chunk);
  }
}

static bool lay_out_worker(const struct run *run, hd_linear_worker *worker, float *memory, int64_t *floats) {
  const hd_linear_walk *walk = run->walk;
  const hd_part shared[] = {
      {&worker->own, walk->own_floats, 1}, {&worker->start.data, run->floats, 1}, {&worker->state.data, run->floats, 1}};
  bool fits = hd_cut(memory, shared, HD_COUNT(shared), floats);
  for (int64_t i = 0; i < run->kept && fits; i++) {
    hd_linear_items *items = &worker->items[i];
    const hd_part parts[] = {{&items->x, run->chunk_rows, walk->x_stride},
                             {&worker->room[i], run->chunk_rows, walk->y_stride},
                             {&items->exponents, run->chunk_rows, 1},
                             {&items->weights, run->chunk_rows, 1},
                             {&worker->sum[i].data, run->floats, 1}};
    fits = hd_cut(memory, parts, HD_COUNT(parts), floats);
  }
  return fits;
}

/* Where rows see everything, the states of so many heads are kept at once. */
enum { TOTAL_FLOATS = 4 << 20 };

static heed_status prepare(heed_context *context, struct run *run) {
  const hd_linear_walk *walk = run->walk;
  hd_linear_worker sizes = {0};
  int64_t room;
  run->worker_floats = 0;
  HD_REQUIRE(lay_out_worker(run, &sizes, NULL, &run->worker_floats) && hd_mul(run->worker_floats, run->workers, &room), context,
             HEED_E_OVERFLOW, "%lld features and %lld values a key are too many", (long long)walk->x_rows, (long long)walk->y_rows);
  HD_REQUIRE(hd_add(room, run->floats * (walk->p->a.causal ? 1 : 1 + run->kvs), &room), context, HEED_E_OVERFLOW, "too many states");
  HD_TRY(hd_allocate(context, "linear attention", room, sizeof *run->memory, &run->memory));
  for (int64_t i = 0; i < run->workers; i++) {
    int64_t again = 0;
    lay_out_worker(run, &run->worker[i], run->memory + i * run->worker_floats, &again);
  }
  float *states = run->memory + run->workers * run->worker_floats;
  run->running.data = states;
  for (int64_t i = 0; run->total && i < run->kvs; i++) run->total[i].data = states + (1 + i) * run->floats;
  return HEED_OK;
}

/* Whether workers that take whole heads end at about the same time: then nothing is handed on, and the rows of a chunk are summed up and made while they are near. */
static bool heads_keep_busy(int64_t heads, int64_t workers) { return heads % workers == 0 || heads >= 8 * workers; }

heed_status hd_linear_walk_run(const hd_linear_walk *walk) {
  const hd_linear *p = walk->p;
  heed_context *context = p->context;
  const int64_t heads = p->batch * p->kv_heads, all = hd_ceil_div(walk->items, HD_CHUNK);
  struct run run = {.walk = walk, .exponents = hd_linear_projects(p)};
  heed_status status = HEED_OK;
  int64_t room = 0, totals = 0;
  if (heads == 0) return HEED_OK;
  HD_REQUIRE(hd_mul(HD_MIN(HD_CHUNK, HD_MAX(walk->items, 1)), walk->row_group, &run.chunk_rows) &&
                 hd_mul(walk->turned ? walk->y_rows : walk->x_rows, walk->turned ? walk->x_stride : walk->y_stride, &run.floats),
             context, HEED_E_OVERFLOW, "%lld features and %lld values a key are too many", (long long)walk->x_rows,
             (long long)walk->y_rows);
  run.floats += walk->sums_x ? walk->x_stride : 0;
  // A segment is as long as its rows are few, so that it stays in the second-level cache.
  run.chunks = HD_MAX(HD_SEGMENT_CHUNKS / walk->row_group, 1);
  run.segments = HD_MAX(hd_ceil_div(all, run.chunks), 1);
  run.kvs = p->a.causal ? heads : HD_MIN(heads, HD_MAX(TOTAL_FLOATS / HD_MAX(run.floats, 1), 1));
  const bool apart = p->a.causal && heads_keep_busy(heads, hd_workers(context, INT32_MAX));
  run.kept = p->a.causal && !apart ? HD_MAX(HD_MIN(run.chunks, all), 1) : 1;
  totals = p->a.causal ? 0 : run.kvs;
  const int64_t free_segments = hd_ceil_div(hd_ceil_div(walk->rows, HD_CHUNK), run.chunks);
  run.workers = hd_workers(context, apart ? run.kvs : run.kvs * HD_MAX(run.segments, free_segments));
  room = run.workers;
  HD_TRY_DONE(hd_allocate(context, "linear attention", room, sizeof *run.worker, &run.worker));
  memset(run.worker, 0, (size_t)room * sizeof *run.worker);
  if (totals) HD_TRY_DONE(hd_allocate(context, "linear attention", totals, sizeof *run.total, &run.total));
  HD_TRY_DONE(prepare(context, &run));
  for (int64_t most = run.kvs; run.first_kv < heads; run.first_kv += most) {
    run.kvs = HD_MIN(most, heads - run.first_kv);
    atomic_init(&run.next, 0);
    atomic_init(&run.ready, 0);
    if (apart) hd_parallel(context, run.kvs, run_head, &run);
    else hd_parallel(context, run.workers, run_worker, &run);
    if (!p->a.causal) hd_parallel(context, run.kvs * free_segments, make_free, &run);
  }
done:
  if (run.memory) {
    const int64_t floats = run.workers * run.worker_floats + run.floats * (1 + totals);
    hd_release(context, run.memory, floats, sizeof *run.memory);
  }
  hd_release(context, run.total, run.total ? totals : 0, sizeof *run.total);
  hd_release(context, run.worker, run.worker ? room : 0, sizeof *run.worker);
  return status;
}
