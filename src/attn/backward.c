/* backward.c: dq, dk and dv in one pass over the tiles of a head.
 *
 * A piece of work is a few tiles of 64 keys with the query tiles of every head that reads them, in order. Its dk and dv stay in a worker's scratch; dq belongs to the
 * query tiles, and each adds up over ascending keys: a piece may only enter a query tile after the piece of the keys before it has left it. A worker goes through a head of
 * its own as long as there are heads; then it helps with the one that has most left, and workers follow each other through that head like cars on one lane. Pieces of a head are claimed in
 * order, so the one waited for is always under way. That gives parallel work within a single head, no second pass over the scores, and sums whose order does not depend on threads.
 *
 * Pieces pass over query tiles that see none of their keys. A query tile takes its memory from a pool with its first piece and gives it back after its last, so that under a window a
 * head of any length has but a few of them. */
#include "backward.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

/* Query rows, and what they keep between pieces. */
struct visit {
  hd_visit rows;
  // dq of the chunk of keys under way and of those before it: [d][padded], or [lanes][d_columns] where the score has gradients of its own
  float *dq, *total;
  int64_t chunk;
  struct visit *next; /* in the pool */
};

/* A query tile: the tiles of keys it sees, and whose turn it is. */
struct stop {
  hd_live live;
  struct visit *visit;  /* NULL: not begun, or ended */
  _Atomic int64_t turn; /* the piece that enters next; as many as there are: none does any more; −1: not known yet */
};

/* One key/value head of one batch entry under way. */
struct slot {
  struct stop *stops;
  struct visit *pool;
  atomic_flag taking; /* held while the pool is changed */
  int64_t kv;         /* counted over the batch */
  int64_t claimed;    /* pieces that somebody has taken */
};

struct worker {
  hd_visit_scratch scratch;
  float *queries, *douts;  /* [lanes][columns]: rows for the sums over queries, padded with 0 to a multiple of 16 */
  float *dk, *dv;          /* [tiles of a piece][64][columns] */
  float *dw;               /* [tiles of a piece][64][key columns]: what each key adds to the gradient of the score's weights */
  hd_live live;            /* whose scratch the stops share */
  int64_t slot;            /* of its own head; −1: it has had none */
  int64_t head, heads_end; /* its share of the heads, as far as nobody has begun them */
};

/* Tiles of keys in a piece, at most: a visit that comes from an outer cache is then read once for 256 keys, and what a piece keeps still leaves room in the second-level
 * cache. And pieces a thread, at least, so that those who help with the last heads find something. */
enum { PIECE_TILES = 4, THREAD_PIECES = 8 };

/* Query tiles of a head up to this size, 1.5 MiB, are taken to stay in a second-level cache. */
enum { NEAR_FLOATS = 384 << 10 };

struct job {
  hd_backward from;
  hd_grid dq, dk, dv; /* one that is not asked for has no data */
  bool adds;          /* earlier passes have written gradients */
  int64_t keys;       /* of the pass */
  hd_tiling tiling;
  int64_t stops, key_tiles;                   /* query tiles of the heads that share keys */
  int64_t piece_tiles, head_pieces;           /* tiles of keys in a piece, pieces of a head */
  int64_t d_columns, key_columns, dv_columns; /* widths rounded up to 16 */
  float factor;                               /* of dq, dk and the score's weights */
  float *parts; /* [tiles of keys of all heads][key columns]: what each adds to the gradient of the score's weights; NULL: not asked */
  int64_t heads, threads, slots;
  struct slot *slot;
  struct worker *workers;
  struct stop *stop;
  struct visit *visit;
  float *stop_memory, *visit_memory, *worker_memory;
  int64_t open; /* visits of a slot at most */
  int64_t all_stops, all_visits, stop_floats, visit_floats, worker_floats, stop_memory_floats, visit_memory_floats, worker_memory_floats,
      part_floats;
  atomic_flag claiming;  /* held while a piece is chosen; guards what follows and the slots' claims */
  int64_t begun, opened; /* heads, slots; of workers their shares */
};

/* ---- memory ------------------------------------------------------------------------------------------------------------------------ */

static bool lay_out_worker(const struct job *job, struct worker *w, float *memory, int64_t *floats) {
  const hd_problem *problem = job->from.problem;
  const int64_t lanes = problem->kernels->tile_lanes, keys = job->piece_tiles * HD_KEY_TILE;
  const hd_part parts[] = {
      {&w->queries, problem->scoring ? 0 : job->d_columns, lanes},
      {&w->douts, job->dv_columns, lanes},
      {&w->dk, job->key_columns, keys},
      {&w->dv, job->dv_columns, keys},
      {&w->dw, problem->scoring ? job->key_columns : 0, keys},
  };
  return hd_visit_scratch_cut(problem, job->piece_tiles, &w->scratch, memory, floats) &&
         hd_cut(memory, parts, (int)HD_COUNT(parts), floats) && hd_live_cut(problem, &w->live, memory, floats);
}

/* The rows, dq of the chunk under way and of those before it. */
static bool lay_out_visit(const struct job *job, struct visit *visit, float *memory, int64_t *floats) {
  const hd_problem *problem = job->from.problem;
  const int64_t lanes = problem->kernels->tile_lanes;
  const int64_t width = problem->scoring ? job->d_columns : problem->d;
  const hd_part parts[] = {{&visit->dq, width, lanes}, {&visit->total, width, lanes}};
  if (!hd_visit_cut(problem, &visit->rows, memory, floats) || !hd_cut(memory, parts, (int)HD_COUNT(parts), floats)) return false;
  for (int i = 0; memory && !problem->scoring && i < lanes / problem->kernels->block_lanes; i++)
    visit->rows.gradient[i].dq = visit->dq + i * problem->kernels->block_lanes * problem->d;
  return true;
}

/* ---- one query tile begins, and ends ------------------------------------------------------------------------------------------------- */

static int64_t dq_floats(const struct job *job, const struct visit *visit) {
  return job->from.problem->scoring ? visit->rows.lanes.count * job->d_columns : visit->rows.padded * job->from.problem->d;
}

static void stop_lanes(const struct job *job, int64_t kv, int64_t index, hd_lanes *lanes) {
  hd_lanes_of(job->from.problem, job->from.pass, &job->tiling, kv, index / job->tiling.query_tiles, index % job->tiling.query_tiles, lanes);
}

static struct visit *begin_visit(const struct job *job, const struct worker *worker, struct slot *slot, int64_t index) {
  while (atomic_flag_test_and_set_explicit(&slot->taking, memory_order_acquire)) sched_yield();
  struct visit *visit = slot->pool;
  slot->pool = visit->next;
  atomic_flag_clear_explicit(&slot->taking, memory_order_release);
  stop_lanes(job, slot->kv, index, &visit->rows.lanes);
  hd_visit_begin(&job->from, &worker->scratch, &visit->rows);
  memset(visit->dq, 0, (size_t)dq_floats(job, visit) * sizeof(float));
  memset(visit->total, 0, (size_t)dq_floats(job, visit) * sizeof(float));
  visit->chunk = -1;
  return visit;
}

/* Adds the chunk's dq to that of the chunks before it; a new one may begin. */
static void merge_chunk(const struct job *job, struct visit *visit) {
  const int64_t floats = dq_floats(job, visit);
  job->from.problem->kernels->add(visit->total, visit->dq, floats, visit->total);
  memset(visit->dq, 0, (size_t)floats * sizeof *visit->dq);
}

/* A row of a gradient; where earlier passes have written it, their sum. */
static void write_row(const struct job *job, const hd_grid *grid, float *row, int64_t width, char *to) {
  for (int64_t c = 0; job->adds && c < width; c++) row[c] += (float)hd_element(to + c * grid->column_stride * grid->size, grid->type);
  hd_from_floats(job->from.problem->kernels, row, width, to, grid->type, grid->column_stride);
}

static void end_visit(const struct job *job, const struct worker *worker, struct visit *visit) {
  const hd_problem *problem = job->from.problem;
  const hd_kernels *kernels = problem->kernels;
  const hd_lanes *lanes = &visit->rows.lanes;
  if (!job->dq.data) return;
  const bool in_rows = problem->scoring, direct = !in_rows && !job->adds && job->dq.type == HEED_F32 && job->dq.column_stride == 1;
  float *rows[HD_MAX_LANES];
  char *address[HD_MAX_LANES];
  merge_chunk(job, visit);
  kernels->row_scale(visit->total, dq_floats(job, visit), job->factor);
  hd_lane_addresses(&job->dq, lanes, address);
  for (int i = 0; i < lanes->count; i++)
    rows[i] = in_rows ? visit->total + i * job->d_columns : direct ? (float *)address[i] : worker->scratch.rows + i * problem->d;
  for (int i = 0; !in_rows && i < visit->rows.blocks; i++) {
    const hd_attn_block *block = &visit->rows.gradient[i].block;
    kernels->from_lanes(visit->total + block->shift * problem->d, block->lanes, HD_MIN(lanes->count - block->shift, block->lanes),
                        problem->d, rows + block->shift);
  }
  for (int i = 0; !direct && i < lanes->count; i++) write_row(job, &job->dq, rows[i], problem->d, address[i]);
}

static void return_visit(struct slot *slot, struct visit *visit) {
  while (atomic_flag_test_and_set_explicit(&slot->taking, memory_order_acquire)) sched_yield();
  visit->next = slot->pool;
  slot->pool = visit;
  atomic_flag_clear_explicit(&slot->taking, memory_order_release);
}

/* dq of queries that see no key: a sum of nothing. */
static void write_nothing(const struct job *job, const hd_lanes *lanes) {
  const hd_grid *dq = &job->dq;
  char *address[HD_MAX_LANES];
  if (!dq->data || job->adds) return;
  hd_lane_addresses(dq, lanes, address);
  for (int i = 0; i < lanes->count; i++)
    for (int64_t c = 0; c < job->from.problem->d; c++)
      hd_element_store(address[i] + c * dq->column_stride * dq->size, dq->type, 0.0f * job->factor);
}

/* ---- one tile of keys meets one query tile -------------------------------------------------------------------------------------------- */

/* Rows as the sums over queries want them: `columns` floats, a multiple of 16, the last ones 0. */
static void padded_rows(const struct job *job, const hd_grid *grid, const hd_lanes *lanes, int64_t width, int64_t columns,
                        const struct worker *worker, float *copies, const float **rows) {
  hd_lane_rows(job->from.problem->kernels, grid, lanes, 0, width, worker->scratch.rows, rows);
  if (width == columns && rows[0] != worker->scratch.rows) return; // the memory itself will do
  for (int lane = 0; lane < lanes->count; lane++) {
    memcpy(copies + lane * columns, rows[lane], (size_t)width * sizeof(float));
    memset(copies + lane * columns + width, 0, (size_t)(columns - width) * sizeof(float));
    rows[lane] = copies + lane * columns;
  }
}

/* A visit's rows, found when a tile of the piece first needs them. */
struct rows {
  bool found;
  const float *q[HD_MAX_LANES], *dout[HD_MAX_LANES];
};

static void find_rows(const struct job *job, const struct worker *worker, const hd_lanes *lanes, struct rows *rows) {
  if (rows->found) return;
  rows->found = true;
  if (job->dv.data) padded_rows(job, &job->from.dout, lanes, job->from.problem->dv, job->dv_columns, worker, worker->douts, rows->dout);
  if (job->dk.data && !job->from.problem->scoring)
    padded_rows(job, &job->from.q, lanes, job->from.problem->d, job->d_columns, worker, worker->queries, rows->q);
}

/* What the piece comes to next: a visit that has been begun, or rows of which one will be made. */
struct next {
  const struct visit *visit;
  bool fresh;
  hd_lanes lanes;
};

static hd_ahead rows_of_lanes(const hd_grid *grid, const hd_lanes *lanes) {
  return hd_rows_ahead(grid, hd_grid_row(grid, lanes->batch, lanes->head[0], lanes->row[0]), lanes->count / lanes->heads);
}

/* Asks for rows of a visit to come while the sums over this one's run: of one that is begun, since the others have been asked for before. */
static void look_ahead(const hd_grid *grid, const struct next *next, hd_attn_tile *tile) {
  memset(tile->ahead, 0, sizeof tile->ahead);
  if (next && next->visit) tile->ahead[0][0] = rows_of_lanes(grid, &next->lanes);
}

/* The same for what surrounds a visit to come. */
static void look_ahead_around(const struct job *job, const struct next *next, hd_attn_tile *tile) {
  memset(tile->ahead, 0, sizeof tile->ahead);
  if (next && next->visit) {
    const hd_attn_gradient *g = &next->visit->rows.gradient[0];
    const int64_t padded = next->visit->rows.padded, d = job->from.problem->d, dv = job->from.problem->dv;
    if (g->block.q) tile->ahead[0][0] = (hd_ahead){.at = g->block.q, .stride = padded, .columns = padded, .rows = (int)d};
    tile->ahead[1][0] = (hd_ahead){.at = g->dout, .stride = padded, .columns = padded, .rows = (int)dv};
    if (g->dq) tile->ahead[2][0] = (hd_ahead){.at = g->dq, .stride = padded, .columns = padded, .rows = (int)d};
  } else if (next && next->fresh && !job->from.pass->part) {
    tile->ahead[0][0] = rows_of_lanes(&job->from.q, &next->lanes);
    tile->ahead[1][0] = rows_of_lanes(&job->from.dout, &next->lanes);
    tile->ahead[2][0] = rows_of_lanes(&job->from.out, &next->lanes);
  }
}

/* index: of the tile in its piece. next: the visit that follows, or NULL. */
static void meet(const struct job *job, const struct worker *worker, struct visit *visit, const struct next *next, struct rows *rows,
                 hd_attn_tile *tile, int64_t index, int64_t k0, const hd_live *live) {
  const hd_problem *problem = job->from.problem;
  const hd_kernels *kernels = problem->kernels;
  const hd_lanes *lanes = &visit->rows.lanes;
  uint64_t visible[HD_KEY_TILE];
  look_ahead_around(job, next, tile);
  if (!hd_visit_tile(&job->from, &worker->scratch, &visit->rows, tile, k0, live, visible)) return;
  find_rows(job, worker, lanes, rows);
  if (job->dv.data) {
    look_ahead(&job->from.dout, next, tile);
    kernels->attn_backward_keys(tile, worker->scratch.p, lanes->count, rows->dout, job->dv_columns,
                                worker->dv + index * HD_KEY_TILE * job->dv_columns);
  }
  const int64_t at = index * HD_KEY_TILE * job->key_columns;
  if (problem->scoring) {
    const hd_score_place place = hd_visit_place(&job->from, &worker->scratch, &visit->rows, tile, k0);
    problem->scoring->kind->gradients(problem->scoring, &place,
                                      &(hd_score_gradients){.ds = worker->scratch.ds,
                                                            .dq = visit->dq,
                                                            .dk = worker->dk + at,
                                                            .dw = worker->dw + at,
                                                            .query_columns = job->d_columns,
                                                            .key_columns = job->key_columns});
  } else if (job->dk.data) {
    look_ahead(&job->from.q, next, tile);
    kernels->attn_backward_keys(tile, worker->scratch.ds, lanes->count, rows->q, job->d_columns, worker->dk + at);
  }
}

/* ---- pieces --------------------------------------------------------------------------------------------------------------------------- */

static void write_keys(const struct job *job, const hd_grid *grid, int64_t kv, const hd_keys *keys, float *rows, int64_t columns,
                       int64_t width, float factor) {
  const hd_problem *problem = job->from.problem;
  const hd_kernels *kernels = problem->kernels;
  const bool direct = grid->type == HEED_F32 && grid->column_stride == 1;
  if (!grid->data || keys->count <= 0) return;
  char *first = hd_grid_row(grid, kv / problem->kv_heads, kv % problem->kv_heads, 0);
  for (int key = 0; key < keys->count; key++) {
    float *row = rows + key * columns;
    char *to = first + hd_key(keys, key) * grid->row_stride * grid->size;
    kernels->scale(row, factor, width, direct && job->adds, direct ? (float *)to : row);
    if (!direct) write_row(job, grid, row, width, to);
  }
}

/* The gradients of one tile's keys are complete. */
static void end_tile(const struct job *job, const struct worker *worker, int64_t kv, int64_t index, int64_t k0, int keys) {
  float *dw = worker->dw + index * HD_KEY_TILE * job->key_columns;
  hd_keys names;
  hd_keys_of(job->from.pass, k0, k0 + keys, &names);
  write_keys(job, &job->dk, kv, &names, worker->dk + index * HD_KEY_TILE * job->key_columns, job->key_columns, job->from.problem->key_width,
             job->factor);
  write_keys(job, &job->dv, kv, &names, worker->dv + index * HD_KEY_TILE * job->dv_columns, job->dv_columns, job->from.problem->dv, 1.0f);
  for (int64_t c = 0; job->parts && c < job->key_columns; c++) {
    float sum = 0;
    for (int key = 0; key < keys; key++) sum += dw[key * job->key_columns + c];
    job->parts[(kv * job->key_tiles + k0 / HD_KEY_TILE) * job->key_columns + c] = sum;
  }
}

/* The first piece from `piece` on that enters a stop; head_pieces: none. */
static int64_t next_piece(const struct job *job, const hd_live *live, int64_t piece) {
  int64_t k0, k1;
  if (!hd_live_next(live, piece * job->piece_tiles * HD_KEY_TILE, &k0, &k1)) return job->head_pieces;
  return k0 / HD_KEY_TILE / job->piece_tiles;
}

/* What a stop sees; the scratch is the worker's. */
static void find_live(const struct job *job, const struct worker *worker, int64_t kv, int64_t index, hd_lanes *lanes, hd_live *live) {
  live->scratch = worker->live.scratch;
  stop_lanes(job, kv, index, lanes);
  hd_live_of_lanes(job->from.problem, job->from.pass, lanes, live);
}

/* The first piece looks at every stop before it passes or enters it. */
static void announce(const struct job *job, const struct worker *worker, const struct slot *slot, int64_t index) {
  struct stop *stop = &slot->stops[index];
  hd_lanes lanes;
  find_live(job, worker, slot->kv, index, &lanes, &stop->live);
  const int64_t first = next_piece(job, &stop->live, 0);
  if (first == job->head_pieces) write_nothing(job, &lanes);
  atomic_store_explicit(&stop->turn, first, memory_order_release);
}

/* The stop after one that the piece enters, if it is the next one to enter. */
static bool next_visit(const struct job *job, const struct slot *slot, int64_t index, int64_t piece, struct next *next) {
  if (index + 1 == job->stops) return false;
  const struct stop *stop = &slot->stops[index + 1];
  if (atomic_load_explicit(&stop->turn, memory_order_acquire) != piece) return false;
  next->visit = stop->visit;
  next->fresh = !stop->visit;
  stop_lanes(job, slot->kv, index + 1, &next->lanes);
  return true;
}

/* The tiles of a piece that a stop sees, from keys `from` on. */
static void enter(const struct job *job, const struct worker *worker, struct slot *slot, int64_t index, int64_t piece, hd_attn_tile *tile) {
  const int64_t first = piece * job->piece_tiles, end = (first + job->piece_tiles) * HD_KEY_TILE;
  const bool far = job->visit_floats * job->open > NEAR_FLOATS; // otherwise a head's visits stay near by themselves
  struct stop *stop = &slot->stops[index];
  if (!stop->visit) stop->visit = begin_visit(job, worker, slot, index);
  struct next after;
  const struct next *next = far && next_visit(job, slot, index, piece, &after) ? &after : NULL;
  struct rows rows;
  rows.found = false;
  for (int64_t from = first * HD_KEY_TILE, k0, k1; hd_live_next(&stop->live, from, &k0, &k1) && k0 < end; next = NULL) {
    const int64_t t = k0 / HD_KEY_TILE;
    if (stop->visit->chunk >= 0 && stop->visit->chunk != k0 / HD_KEY_CHUNK) merge_chunk(job, stop->visit);
    stop->visit->chunk = k0 / HD_KEY_CHUNK;
    meet(job, worker, stop->visit, next, &rows, &tile[t - first], t - first, t * HD_KEY_TILE, &stop->live);
    from = (t + 1) * HD_KEY_TILE;
  }
  const int64_t turn = next_piece(job, &stop->live, piece + 1);
  if (turn == job->head_pieces) {
    end_visit(job, worker, stop->visit);
    return_visit(slot, stop->visit);
    stop->visit = NULL;
  }
  atomic_store_explicit(&stop->turn, turn, memory_order_release);
}

static void run_piece(struct job *job, struct slot *slot, int64_t piece, const struct worker *worker) {
  const hd_problem *problem = job->from.problem;
  const int64_t first = piece * job->piece_tiles, tiles = HD_MIN(job->piece_tiles, job->key_tiles - first);
  hd_attn_tile tile[PIECE_TILES];
  for (int64_t t = 0; t < tiles; t++) {
    int64_t k0 = (first + t) * HD_KEY_TILE;
    tile[t] = (hd_attn_tile){.keys = (int)HD_MIN(job->keys - k0, HD_KEY_TILE)};
    if (tile[t].keys > 0) hd_visit_keys(&job->from, &worker->scratch, slot->kv, t, k0, &tile[t]);
  }
  memset(worker->dk, 0, (size_t)(job->key_columns * HD_KEY_TILE * tiles) * sizeof(float));
  memset(worker->dw, 0, (size_t)(problem->scoring ? job->key_columns * HD_KEY_TILE * tiles : 0) * sizeof(float));
  memset(worker->dv, 0, (size_t)(job->dv_columns * HD_KEY_TILE * tiles) * sizeof(float));
  for (int64_t i = 0; i < job->stops; i++) {
    struct stop *stop = &slot->stops[i];
    if (piece == 0) announce(job, worker, slot, i);
    hd_wait_for(&stop->turn, 0);
    if (next_piece(job, &stop->live, piece) != piece) continue;
    hd_wait_for(&stop->turn, piece);
    enter(job, worker, slot, i, piece, tile);
  }
  for (int64_t t = 0; t < tiles; t++) end_tile(job, worker, slot->kv, t, (first + t) * HD_KEY_TILE, tile[t].keys);
}

/* A head that nobody has begun: the next of the worker's own share, which lies near it, or the last of the largest share that is left. */
static int64_t next_head(struct job *job, struct worker *worker) {
  struct worker *from = worker;
  job->begun++;
  if (worker->head < worker->heads_end) return worker->head++;
  for (int64_t i = 0; i < job->threads; i++)
    if (job->workers[i].heads_end - job->workers[i].head > from->heads_end - from->head) from = &job->workers[i];
  return --from->heads_end;
}

/* Begins a head in a slot that is free: the worker's own, since nobody has helped with its last head while there were others to begin, or a new one. */
static struct slot *begin_head(struct job *job, struct worker *worker) {
  if (worker->slot < 0) worker->slot = job->opened++;
  struct slot *slot = &job->slot[worker->slot];
  slot->kv = next_head(job, worker);
  slot->claimed = 0;
  for (int64_t i = 0; i < job->stops; i++) atomic_store_explicit(&slot->stops[i].turn, -1, memory_order_relaxed);
  return slot;
}

/* The worker's next piece: of its own head, of a new one, or of the head with most pieces left. There is one, since pieces are asked for as often as there are any. */
static struct slot *claim(struct job *job, struct worker *worker, int64_t *piece) {
  while (atomic_flag_test_and_set_explicit(&job->claiming, memory_order_acquire)) sched_yield();
  struct slot *slot = worker->slot < 0 ? NULL : &job->slot[worker->slot];
  if (!slot || slot->claimed == job->head_pieces) {
    if (job->begun < job->heads) {
      slot = begin_head(job, worker);
    } else {
      slot = &job->slot[0];
      for (int64_t i = 1; i < job->opened; i++)
        if (job->slot[i].claimed < slot->claimed) slot = &job->slot[i];
    }
  }
  *piece = slot->claimed++;
  atomic_flag_clear_explicit(&job->claiming, memory_order_release);
  return slot;
}

/* The host may run pieces in any order: which one a call is for is decided here. */
static void run_next(void *argument, int64_t i, int worker) {
  struct job *job = argument;
  int64_t piece;
  (void)i;
  struct slot *slot = claim(job, &job->workers[worker], &piece);
  run_piece(job, slot, piece, &job->workers[worker]);
}

/* ---- the call --------------------------------------------------------------------------------------------------------------------------- */

/* How many pieces go through the widest place of a head: stops that may be under way at once. Those that are have been begun and wait for a piece that somebody is at, or for one that nobody has
 * taken yet, and then the last one taken lies within what they see, too. So one more than there are threads times the stops that see, before and behind, any one piece. */
static int64_t most_open(const struct job *job, const struct worker *worker, hd_live *live, int64_t *change) {
  const hd_problem *problem = job->from.problem;
  const int64_t apart = problem->a.pattern ? 1 : problem->kv_heads; // without a pattern the heads of a batch entry see alike
  int64_t most = 0;
  for (int64_t kv = 0; kv < job->heads; kv += apart) {
    hd_lanes lanes;
    memset(change, 0, (size_t)(job->head_pieces + 1) * sizeof *change);
    for (int64_t i = 0; i < job->stops; i++) {
      find_live(job, worker, kv, i, &lanes, live);
      int64_t first = next_piece(job, live, 0), last = first;
      for (int64_t next = first; next < job->head_pieces; next = next_piece(job, live, next + 1)) last = next;
      if (first == job->head_pieces) continue;
      change[first]++;
      change[last + 1]--;
    }
    for (int64_t piece = 0, open = 0; piece < job->head_pieces; piece++) {
      open += change[piece];
      most = HD_MAX(most, open);
    }
  }
  return HD_MIN(job->stops, most * (job->threads + 1));
}

static heed_status cut_work(struct job *job) {
  const hd_problem *problem = job->from.problem;
  heed_context *context = problem->context;
  job->tiling = hd_tiling_of(problem, job->from.pass);
  job->keys = job->from.pass->part ? job->from.pass->order.keys : problem->keys;
  job->stops = job->tiling.query_tiles * job->tiling.head_tiles;
  job->key_tiles = HD_MAX(hd_ceil_div(job->keys, HD_KEY_TILE), 1); // no keys: one empty piece writes the zeros of dq
  job->d_columns = hd_ceil_div(problem->d, 16) * 16;
  job->key_columns = hd_ceil_div(problem->key_width, 16) * 16;
  job->dv_columns = hd_ceil_div(problem->dv, 16) * 16;
  job->heads = problem->batch * problem->kv_heads;
  job->threads = hd_workers(context, job->heads * job->key_tiles);
  job->slots = HD_MIN(job->heads, job->threads);
  job->piece_tiles = HD_CLAMP(job->heads * job->key_tiles / (THREAD_PIECES * job->threads), 1, PIECE_TILES);
  job->head_pieces = hd_ceil_div(job->key_tiles, job->piece_tiles);
  job->stop_floats = job->visit_floats = job->worker_floats = 0;
  HD_REQUIRE(lay_out_worker(job, &(struct worker){0}, NULL, &job->worker_floats) &&
                 lay_out_visit(job, &(struct visit){0}, NULL, &job->visit_floats) &&
                 hd_live_cut_sets(problem, &(hd_live){0}, NULL, &job->stop_floats) && hd_mul(job->stops, job->slots, &job->all_stops) &&
                 hd_mul(job->stop_floats, job->all_stops, &job->stop_memory_floats) &&
                 hd_mul(job->worker_floats, job->threads, &job->worker_memory_floats),
             context, HEED_E_OVERFLOW, "the gradients of %lld queries of width %lld do not fit in memory", (long long)problem->queries,
             (long long)problem->d);
  return HEED_OK;
}

/* All the memory that the work takes. */
static heed_status prepare(struct job *job, const heed_view *dwv) {
  const hd_problem *problem = job->from.problem;
  heed_context *context = problem->context;
  int64_t *change;
  HD_TRY(cut_work(job));
  HD_TRY(hd_allocate(context, "attention workers", job->threads, sizeof *job->workers, &job->workers));
  HD_TRY(hd_allocate(context, "heads under way", job->slots, sizeof *job->slot, &job->slot));
  HD_TRY(hd_allocate(context, "query tiles", job->all_stops, sizeof *job->stop, &job->stop));
  HD_TRY(hd_allocate(context, "tiles that query tiles see", job->stop_memory_floats, sizeof(float), &job->stop_memory));
  HD_TRY(hd_allocate(context, "attention tiles", job->worker_memory_floats, sizeof(float), &job->worker_memory));
  for (int64_t i = 0; i < job->threads; i++) {
    int64_t used = 0;
    lay_out_worker(job, &job->workers[i], job->worker_memory + i * job->worker_floats, &used);
  }
  for (int64_t i = 0; i < job->all_stops; i++) {
    int64_t used = 0;
    job->stop[i] = (struct stop){0};
    hd_live_cut_sets(problem, &job->stop[i].live, job->stop_memory + i * job->stop_floats, &used);
    atomic_init(&job->stop[i].turn, -1);
  }
  HD_TRY(hd_allocate(context, "pieces of a head", job->head_pieces + 1, sizeof *change, &change));
  job->open = most_open(job, &job->workers[0], &job->stop[0].live, change);
  hd_release(context, change, job->head_pieces + 1, sizeof *change);
  HD_REQUIRE(hd_mul(job->open, job->slots, &job->all_visits) && hd_mul(job->visit_floats, job->all_visits, &job->visit_memory_floats) &&
                 hd_mul(job->heads * job->key_tiles, dwv ? job->key_columns : 0, &job->part_floats),
             context, HEED_E_OVERFLOW, "the gradients of %lld queries of width %lld do not fit in memory", (long long)problem->queries,
             (long long)problem->d);
  HD_TRY(hd_allocate(context, "query tiles under way", job->all_visits, sizeof *job->visit, &job->visit));
  HD_TRY(hd_allocate(context, "queries and their gradients", job->visit_memory_floats, sizeof(float), &job->visit_memory));
  return dwv ? hd_allocate(context, "gradients of the score's weights", job->part_floats, sizeof(float), &job->parts) : HEED_OK;
}

static void release(struct job *job) {
  heed_context *context = job->from.problem->context;
  hd_release(context, job->parts, job->part_floats, sizeof(float));
  hd_release(context, job->visit_memory, job->visit_memory_floats, sizeof(float));
  hd_release(context, job->visit, job->all_visits, sizeof *job->visit);
  hd_release(context, job->worker_memory, job->worker_memory_floats, sizeof(float));
  hd_release(context, job->stop_memory, job->stop_memory_floats, sizeof(float));
  hd_release(context, job->stop, job->all_stops, sizeof *job->stop);
  hd_release(context, job->slot, job->slots, sizeof *job->slot);
  hd_release(context, job->workers, job->threads, sizeof *job->workers);
  job->parts = job->visit_memory = job->worker_memory = job->stop_memory = NULL;
  job->visit = NULL, job->stop = NULL, job->slot = NULL, job->workers = NULL;
}

static void run(struct job *job) {
  job->begun = job->opened = 0;
  for (int64_t i = 0; i < job->threads; i++) {
    job->workers[i].slot = -1;
    job->workers[i].head = job->heads * i / job->threads;
    job->workers[i].heads_end = job->heads * (i + 1) / job->threads;
  }
  for (int64_t i = 0; i < job->slots; i++) {
    struct slot *slot = &job->slot[i];
    slot->stops = job->stop + i * job->stops;
    slot->pool = NULL;
    atomic_flag_clear(&slot->taking);
    for (int64_t j = job->open - 1; j >= 0; j--) {
      struct visit *visit = &job->visit[i * job->open + j];
      int64_t used = 0;
      lay_out_visit(job, visit, job->visit_memory + (i * job->open + j) * job->visit_floats, &used);
      visit->next = slot->pool;
      slot->pool = visit;
    }
  }
  atomic_flag_clear(&job->claiming);
  hd_parallel(job->from.problem->context, job->heads * job->head_pieces, run_next, job);
}

/* dwv from the parts of tiles of keys, ascending. */
static void add_parts(const struct job *job, const heed_view *dwv) {
  for (int64_t c = 0; dwv && c < dwv->dim[0]; c++) {
    float sum = 0;
    for (int64_t tile = 0; job->parts && tile < job->heads * job->key_tiles; tile++) sum += job->parts[tile * job->key_columns + c];
    *(float *)hd_view_at(dwv, c) = sum * job->factor;
  }
}

/* One pass after the other, the later ones adding to what the first has written: a query's dq is that of its passes in turn. */
static heed_status run_passes(struct job *job, const heed_view *dwv) {
  const hd_problem *problem = job->from.problem;
  heed_status status = HEED_OK;
  for (int i = 0; i < problem->passes && status == HEED_OK; i++) {
    job->from.pass = &problem->pass[i];
    status = prepare(job, dwv);
    job->adds = i > 0;
    if (status == HEED_OK) run(job);
    if (status == HEED_OK) add_parts(job, dwv);
    release(job);
  }
  return status;
}

/* An input laid like the output of the forward pass. */
static heed_status read_rows(heed_context *context, const heed_view *view, const char *name, const hd_problem *problem, const hd_grid *q,
                             hd_grid *out) {
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_storable(context, out, name));
  return hd_grid_input(context, out, view, name, q, problem->heads, problem->queries, problem->dv);
}

/* An output laid like the input it is the gradient of; absent where it is not asked for. */
static heed_status read_gradient(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, int64_t heads,
                                 int64_t rows, int64_t columns, hd_grid *out) {
  if (!view || view->ndim == 0) return HEED_OK;
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_storable(context, out, name));
  return hd_grid_expect(context, out, view, name, q, heads, rows, columns);
}

heed_status hd_gradient_check(heed_context *context, const heed_view *view, const char *name, const heed_view *like) {
  char shape[HD_SHAPE_LENGTH], expected[HD_SHAPE_LENGTH];
  if (!view) return HEED_OK;
  HD_REQUIRE(like, context, HEED_E_ARGUMENT, "%s is asked for, but what it is the gradient of is not given", name);
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(hd_same_shape(view, like), context, HEED_E_SHAPE, "%s: %s, expected %s", name, hd_shape_text(view, shape),
             hd_shape_text(like, expected));
  HD_REQUIRE(!hd_view_overlaps_itself(view), context, HEED_E_LAYOUT, "%s: elements of %s share memory", name, hd_shape_text(view, shape));
  return hd_number(context, view->type, name);
}

static void fill_view(const heed_view *view) {
  for (int64_t i = 0; view && i < hd_view_count(view); i++) hd_element_store(hd_view_at(view, i), view->type, 0);
}

/* Gradients of what is compared, and of everything else. */
static heed_status find_gradients(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *v,
                                  const heed_view *out, const heed_view *lse, const heed_view *dout, const heed_attention_gradients *to) {
  hd_problem problem;
  hd_shapes shapes;
  hd_source keys, values;
  struct job job = {.from = {.problem = &problem, .k = &keys, .v = &values}};
  hd_backward *from = &job.from;
  HD_TRY(hd_source_of_view(context, &scoring->k, "k", &keys));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  HD_TRY(hd_attention_shapes(context, &scoring->q, &keys, &values, &from->q, &shapes));
  HD_TRY(hd_storable(context, &from->q, "q"));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  if (scoring->kind->scores) problem.scoring = scoring;
  job.factor = scoring->kind->gradients_scaled ? 1 : (float)problem.scale;
  HD_TRY(read_rows(context, out, "out", &problem, &from->q, &from->out));
  HD_TRY(read_rows(context, dout, "dout", &problem, &from->q, &from->dout));
  HD_TRY(hd_row_input(context, lse, "lse", &from->q, &from->lse));
  HD_REQUIRE(from->lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(from->lse.type));
  HD_TRY(read_gradient(context, &scoring->dq, "dq", &from->q, problem.heads, problem.queries, problem.d, &job.dq));
  HD_TRY(read_gradient(context, &scoring->dk, "dk", &from->q, problem.kv_heads, problem.keys, problem.key_width, &job.dk));
  HD_TRY(read_gradient(context, to->dv, "dv", &from->q, problem.kv_heads, problem.keys, problem.dv, &job.dv));
  HD_TRY(hd_gradient_check(context, to->dbias, "dbias", problem.a.bias));
  HD_TRY(hd_gradient_check(context, to->dsink, "dsink", problem.a.sink));
  HD_TRY(hd_gradient_check(context, to->drelative, "drelative", problem.a.relative));
  if (problem.batch == 0 || problem.kv_heads == 0 || problem.queries == 0 || problem.heads == 0) {
    hd_fill_zero(&job.dq);
    hd_fill_zero(&job.dk);
    hd_fill_zero(&job.dv);
    fill_view(to->dbias);
    fill_view(to->dsink);
    fill_view(to->dwv);
    fill_view(to->drelative);
    fill_view(to->ddistances);
    return HEED_OK;
  }
  hd_bias_gradient bias;
  heed_status status = hd_bias_gradient_new(from, to->dbias, &bias);
  hd_sweeps_choose(&problem);
  if (status == HEED_OK) status = run_passes(&job, to->dwv);
  if (status == HEED_OK) {
    from->pass = NULL;
    hd_bias_gradient_run(&bias);
    hd_backward_sink(from, to->dsink);
    status = hd_backward_distances(from, to->drelative, true, 1);
  }
  if (status == HEED_OK) status = hd_backward_distances(from, to->ddistances, false, job.factor);
  hd_bias_gradient_free(&bias);
  return status;
}

heed_status hd_gradients_apart(heed_context *context, const heed_attention *a, const hd_named_view *inputs, int count,
                               const heed_attention_gradients *to) {
  const hd_named_view gradients[] = {{to->dq, "dq"},
                                     {to->dk, "dk"},
                                     {to->dv, "dv"},
                                     {to->dbias, "dbias"},
                                     {to->dsink, "dsink"},
                                     {to->dwq, "dwq"},
                                     {to->dwk, "dwk"},
                                     {to->dwv, "dwv"},
                                     {to->drelative, "drelative"},
                                     {to->dcontent, "dcontent"},
                                     {to->dposition, "dposition"},
                                     {to->ddistances, "ddistances"}};
  for (int i = 0; i < HD_COUNT(gradients); i++) {
    if (gradients[i].view) HD_TRY(hd_view_check(context, gradients[i].view, gradients[i].name));
    HD_TRY(hd_output_apart(context, a, gradients[i].view, gradients[i].name, inputs, count));
    HD_TRY(hd_outputs_apart(context, &gradients[i], gradients, i));
  }
  return HEED_OK;
}

heed_status heed_attention_backward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                    const heed_view *v, const heed_view *out, const heed_view *lse, const heed_view *dout,
                                    const heed_attention_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention description;
  heed_attention_gradients to = {.size = sizeof to};
  HD_REQUIRE(gradients, context, HEED_E_ARGUMENT, "heed_attention_gradients: null");
  HD_TRY(hd_options_read(context, "heed_attention_gradients", gradients, &to, sizeof to));
  HD_TRY(hd_description_read(context, a, &description));
  HD_TRY(hd_description_check(context, &description));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}, {v, "v"}, {out, "out"}, {lse, "lse"}, {dout, "dout"}};
  for (int i = 0; i < HD_COUNT(inputs); i++) HD_TRY(hd_view_check(context, inputs[i].view, inputs[i].name));
  hd_scoring scoring;
  heed_status status = hd_scoring_begin(context, &description, q, k, &to, &scoring);
  if (status == HEED_OK) status = hd_gradients_apart(context, &description, inputs, HD_COUNT(inputs), &to);
  if (status == HEED_OK) status = find_gradients(context, &description, &scoring, v, out, lse, dout, &to);
  if (status == HEED_OK) status = hd_scoring_end(context, &scoring);
  hd_scoring_free(context, &scoring);
  return status;
}
