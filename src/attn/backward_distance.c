/* backward_distance.c: the gradients of what depends on the distance of a pair: the table of relative positions, and the distances of Transformer-XL's score.
 *
 * Both sum over all pairs of a distance, which lie across the tiles of the main pass; so the tiles' score gradients are made anew, as for a bias. A piece of work is a head and a run of query
 * rows, or of distances, and walks its tiles in order: sums have one order, whatever the threads and the width of tiles. Memory does not grow with n · m. */
#include "backward.h"

/* Query rows of a piece of the table's gradient, and rows of distances of a piece of theirs: longer ones waste less at their ends. */
enum { PIECE_ROWS = 256, PIECE_DISTANCES = 256 };

struct worker {
  hd_visit visit;
  hd_visit_scratch scratch;
  hd_live live;
  float *sums; /* [lanes][buckets], or [PIECE_DISTANCES][columns] */
  float *ends; /* [2][lanes]: what pairs beyond the first and the last row of distances add up to */
};

struct job {
  const hd_backward *from;
  const heed_view *to; /* drelative, or ddistances */
  bool table;          /* the former */
  int64_t pieces;      /* of a head */
  int64_t buckets, columns, sum_floats;
  float factor;
  struct worker *worker;
  float *memory, *parts; /* parts: [heads][pieces][buckets] of the table */
  int64_t workers, floats, part_floats;
};

/* A tile of a piece: the keys of one, with the score gradients of the visit's rows in scratch.ds. */
typedef void (*take_tile)(const struct job *job, struct worker *w, int64_t piece, const hd_attn_tile *tile, int64_t k0);

static int64_t position_of(const hd_problem *problem, const hd_lanes *lanes, int lane) {
  return hd_problem_place(problem, lanes->batch, lanes->row[lane]).position;
}

static bool is_visible(const hd_attn_tile *tile, int key, int lane) { return !tile->visible || tile->visible[key] >> lane & 1; }

/* ---- the table of relative positions ------------------------------------------------------------------------------------------------- */

static void add_buckets(const struct job *job, struct worker *w, int64_t piece, const hd_attn_tile *tile, int64_t k0) {
  const hd_problem *problem = job->from->problem;
  const hd_lanes *lanes = &w->visit.lanes;
  int64_t bucket[HD_KEY_TILE + HD_MAX_LANES], known = 0, first = 0; // of distances first + 0, 1, ...
  (void)piece;
  for (int lane = lanes->count - 1; lane >= 0; lane--) { // each lane's keys are a step farther ahead, unless a document begins between them
    const int64_t distance = k0 - position_of(problem, lanes, lane);
    float *sums = w->sums + lane * job->buckets;
    if (known == 0 || distance != first + known - tile->keys + 1) first = distance, known = 0;
    for (; first + known < distance + tile->keys; known++) bucket[known] = hd_relative_bucket(&problem->a, first + known);
    for (int key = 0; key < tile->keys; key++)
      if (is_visible(tile, key, lane)) sums[bucket[distance - first + key]] += w->scratch.ds[key * tile->stride + lane];
  }
}

/* ---- distances ------------------------------------------------------------------------------------------------------------------------- */

/* Rows [row, row + 64) of the piece: the tile's score gradients by distance, then one sum over lanes for each. */
static void add_rows(const struct job *job, struct worker *w, const hd_attn_tile *tile, int64_t k0, const int64_t *position, int64_t row,
                     int count, float *to) {
  const hd_problem *problem = job->from->problem;
  const hd_lanes *lanes = &w->visit.lanes;
  const int64_t stride = problem->kernels->tile_lanes, last = job->to->dim[1] - 1;
  const float *rows[HD_MAX_LANES];
  float *ds = w->scratch.rows; // [64][lanes]: copies of queries lie in place
  uint64_t seen[HD_KEY_TILE] = {0};
  const hd_attn_tile by_distance = {.keys = count, .stride = stride, .visible = seen};
  memset(ds, 0, (size_t)(HD_KEY_TILE * stride) * sizeof *ds);
  for (int lane = 0; lane < lanes->count; lane++) {
    int begin, end;
    hd_distance_keys(&problem->scoring->score, position[lane], k0, tile->keys, row, count, &begin, &end);
    for (int key = begin; key < end; key++) {
      const int64_t at = hd_distance_row(&problem->scoring->score, position[lane], k0 + key);
      if (at == 0 || at == last || !is_visible(tile, key, lane)) continue;
      seen[at - row] |= (uint64_t)1 << lane;
      ds[(at - row) * stride + lane] = w->scratch.ds[key * tile->stride + lane];
    }
  }
  hd_lane_rows(problem->kernels, &job->from->q, lanes, problem->scoring->columns, job->columns, NULL, rows);
  problem->kernels->attn_backward_keys(&by_distance, ds, lanes->count, rows, job->columns, to);
}

static void add_distances(const struct job *job, struct worker *w, int64_t piece, const hd_attn_tile *tile, int64_t k0) {
  const hd_problem *problem = job->from->problem;
  const hd_lanes *lanes = &w->visit.lanes;
  const int64_t first = piece * PIECE_DISTANCES, end = HD_MIN(first + PIECE_DISTANCES, job->to->dim[1]), last = job->to->dim[1] - 1;
  int64_t position[HD_MAX_LANES], low = end, high = first - 1;
  for (int lane = 0; lane < lanes->count; lane++) position[lane] = position_of(problem, lanes, lane);
  for (int lane = 0; lane < lanes->count; lane++) {
    const heed_score *score = &problem->scoring->score;
    low = HD_MIN(low, HD_MAX(first, hd_distance_row(score, position[lane], k0 + tile->keys - 1)));
    high = HD_MAX(high, HD_MIN(end - 1, hd_distance_row(score, position[lane], k0)));
    for (int side = 0; side < 2; side++) {
      const int64_t row = side ? last : 0;
      int key, after;
      if (row < first || row >= end || (side && last == 0)) continue;
      hd_distance_keys(score, position[lane], k0, tile->keys, row, 1, &key, &after);
      for (; key < after; key++)
        if (is_visible(tile, key, lane)) w->ends[side * HD_MAX_LANES + lane] += w->scratch.ds[key * tile->stride + lane];
    }
  }
  // Of each distance between the ends ascending keys are ascending rows, so each is one chain over rows, whatever the width of tiles.
  for (int64_t row = low; row <= high; row += HD_KEY_TILE)
    add_rows(job, w, tile, k0, position, row, (int)HD_MIN(HD_KEY_TILE, high + 1 - row), w->sums + (row - first) * job->columns);
}

/* The rows at the ends have many keys a query: each query's are summed first. */
static void add_ends(const struct job *job, struct worker *w, int64_t piece) {
  const hd_problem *problem = job->from->problem;
  const hd_scoring *s = problem->scoring;
  const int64_t first = piece * PIECE_DISTANCES, last = job->to->dim[1] - 1;
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(problem->kernels, &job->from->q, &w->visit.lanes, 0, problem->d, NULL, rows);
  for (int side = 0; side < 2; side++) {
    const int64_t row = side ? last : 0;
    if (row < first || row >= first + PIECE_DISTANCES || (side && last == 0)) continue;
    for (int lane = 0; lane < w->visit.lanes.count; lane++) {
      const float ds = w->ends[side * HD_MAX_LANES + lane];
      if (ds != 0) problem->kernels->scale(rows[lane] + s->columns, ds, job->columns, true, w->sums + (row - first) * job->columns);
    }
  }
  memset(w->ends, 0, 2 * HD_MAX_LANES * sizeof *w->ends);
}

/* ---- pieces ---------------------------------------------------------------------------------------------------------------------------- */

/* Keys of the queries in lanes that may have a distance of the piece. */
static void piece_span(const struct job *job, int64_t piece, const hd_lanes *lanes, const hd_live *live, int64_t *begin, int64_t *end) {
  const hd_problem *problem = job->from->problem;
  *begin = live->begin;
  *end = live->end;
  if (job->table) return;
  const heed_score *score = &problem->scoring->score;
  const int64_t first = piece * PIECE_DISTANCES, after = first + PIECE_DISTANCES, rows = job->to->dim[1];
  // Positions do not fall within a document only; so the lanes' lowest and highest are looked for.
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int lane = 0; lane < lanes->count; lane++) {
    const int64_t position = position_of(problem, lanes, lane);
    low = HD_MIN(low, position), high = HD_MAX(high, position);
  }
  if (after < rows) *begin = HD_MAX(*begin, low - score->first_distance - after + 1);
  if (first > 0) *end = HD_MIN(*end, high - score->first_distance - first + 1);
}

static void walk(const struct job *job, struct worker *w, int64_t piece, int64_t kv) {
  const hd_problem *problem = job->from->problem;
  int64_t begin, end;
  hd_live_of_lanes(problem, NULL, &w->visit.lanes, &w->live);
  piece_span(job, piece, &w->visit.lanes, &w->live, &begin, &end);
  bool begun = false;
  for (int64_t k0 = begin, k1; k0 < end && hd_live_next(&w->live, k0, &k0, &k1) && k0 < end; k0 += HD_KEY_TILE) {
    uint64_t visible[HD_KEY_TILE];
    k0 = k0 / HD_KEY_TILE * HD_KEY_TILE; // sums are those of whole tiles
    if (!begun) hd_visit_begin(job->from, &w->scratch, &w->visit);
    begun = true;
    hd_attn_tile tile = {.keys = (int)HD_MIN(problem->keys - k0, HD_KEY_TILE)};
    hd_visit_keys(job->from, &w->scratch, kv, 0, k0, &tile);
    if (hd_visit_tile(job->from, &w->scratch, &w->visit, &tile, k0, &w->live, visible))
      (job->table ? add_buckets : add_distances)(job, w, piece, &tile, k0);
  }
}

static void finish_rows(const struct job *job, struct worker *w, int64_t piece, float *part) {
  if (!job->table) {
    add_ends(job, w, piece);
    return;
  }
  for (int lane = 0; lane < w->visit.lanes.count; lane++)
    for (int64_t i = 0; i < job->buckets; i++) part[i] += w->sums[lane * job->buckets + i];
  memset(w->sums, 0, (size_t)job->sum_floats * sizeof *w->sums);
}

/* Rows of one head from q on: pieces begin anywhere, whatever the width of tiles. */
static void find_lanes(const hd_problem *problem, int64_t batch, int64_t head, int64_t q, int64_t end, hd_lanes *lanes) {
  lanes->batch = batch;
  lanes->heads = 1;
  lanes->count = (int)HD_MIN(problem->kernels->tile_lanes, end - q);
  for (int lane = 0; lane < lanes->count; lane++) lanes->head[lane] = head, lanes->row[lane] = q + lane;
}

static void run_piece(void *argument, int64_t number, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->from->problem;
  struct worker *w = &job->worker[worker];
  const int64_t head = number / job->pieces, piece = number % job->pieces;
  const int64_t q0 = job->table ? piece * PIECE_ROWS : 0, q1 = job->table ? HD_MIN(q0 + PIECE_ROWS, problem->queries) : problem->queries;
  float *part = job->table ? job->parts + number * job->buckets : NULL;
  memset(w->sums, 0, (size_t)job->sum_floats * sizeof *w->sums);
  memset(w->ends, 0, 2 * HD_MAX_LANES * sizeof *w->ends);
  for (int64_t i = 0; part && i < job->buckets; i++) part[i] = 0;
  for (int64_t batch = 0; batch < problem->batch; batch++)
    for (int64_t q = q0; q < q1; q += problem->kernels->tile_lanes) {
      find_lanes(problem, batch, head, q, q1, &w->visit.lanes);
      walk(job, w, piece, batch * problem->kv_heads + head / problem->group);
      finish_rows(job, w, piece, part);
    }
  if (job->table) return;
  const int64_t first = piece * PIECE_DISTANCES, rows = job->to->dim[1];
  for (int64_t row = first; row < HD_MIN(first + PIECE_DISTANCES, rows); row++)
    for (int64_t c = 0; c < job->to->dim[2]; c++)
      hd_element_store(hd_view_at(job->to, (head * rows + row) * job->to->dim[2] + c), job->to->type,
                       w->sums[(row - first) * job->columns + c] * job->factor);
}

static void add_parts(const struct job *job) {
  const int64_t heads = job->from->problem->heads;
  for (int64_t at = 0; job->table && at < job->buckets * heads; at++) {
    const float *part = job->parts + at % heads * job->pieces * job->buckets + at / heads;
    float sum = 0;
    for (int64_t piece = 0; piece < job->pieces; piece++) sum += part[piece * job->buckets];
    hd_element_store(hd_view_at(job->to, at), job->to->type, sum);
  }
}

static heed_status prepare(struct job *job) {
  const hd_problem *problem = job->from->problem;
  heed_context *context = problem->context;
  const int64_t lanes = problem->kernels->tile_lanes;
  int64_t each = 0;
  job->pieces = hd_ceil_div(job->table ? problem->queries : job->to->dim[1], job->table ? PIECE_ROWS : PIECE_DISTANCES);
  job->buckets = job->table ? job->to->dim[0] : 0;
  job->columns = job->table ? 0 : problem->scoring->columns;
  job->sum_floats =
      job->table ? lanes * job->buckets : (PIECE_DISTANCES + HD_KEY_TILE) * job->columns; // a kernel may run past the last row
  job->workers = hd_workers(context, problem->heads * job->pieces);
  const hd_part own[] = {{NULL, 1, job->sum_floats}, {NULL, 2, HD_MAX_LANES}};
  HD_REQUIRE(hd_visit_cut(problem, &(hd_visit){0}, NULL, &each) && hd_visit_scratch_cut(problem, 1, &(hd_visit_scratch){0}, NULL, &each) &&
                 hd_live_cut(problem, &(hd_live){0}, NULL, &each) && hd_cut(NULL, own, (int)HD_COUNT(own), &each) &&
                 hd_mul(each, job->workers, &job->floats) && hd_mul(problem->heads * job->pieces, job->buckets, &job->part_floats),
             context, HEED_E_OVERFLOW, "head widths %lld and %lld are too large", (long long)problem->d, (long long)problem->dv);
  HD_TRY(hd_allocate(context, "workers", job->workers, sizeof *job->worker, &job->worker));
  HD_TRY(hd_allocate(context, "gradients of positions", job->part_floats, sizeof *job->parts, &job->parts));
  HD_TRY(hd_allocate(context, "gradients of positions", job->floats, sizeof *job->memory, &job->memory));
  for (int64_t i = 0; i < job->workers; i++) {
    struct worker *w = &job->worker[i];
    const hd_part arrays[] = {{&w->sums, 1, job->sum_floats}, {&w->ends, 2, HD_MAX_LANES}};
    int64_t used = i * each;
    hd_visit_cut(problem, &w->visit, job->memory, &used);
    hd_visit_scratch_cut(problem, 1, &w->scratch, job->memory, &used);
    hd_live_cut(problem, &w->live, job->memory, &used);
    hd_cut(job->memory, arrays, (int)HD_COUNT(arrays), &used);
    if (job->table) w->scratch.slope = NULL; // the term comes behind the softcap
    for (int block = 0; block < HD_MAX_BLOCKS; block++) w->visit.gradient[block].dq = NULL;
  }
  return HEED_OK;
}

heed_status hd_backward_distances(const hd_backward *from, const heed_view *to, bool table, float factor) {
  heed_context *context = from->problem->context;
  struct job job = {.from = from, .to = to, .table = table, .factor = factor};
  if (!to || hd_view_count(to) == 0) return HEED_OK;
  heed_status status = prepare(&job);
  if (status == HEED_OK) {
    hd_parallel(context, from->problem->heads * job.pieces, run_piece, &job);
    add_parts(&job);
  }
  hd_release(context, job.memory, job.floats, sizeof *job.memory);
  hd_release(context, job.parts, job.part_floats, sizeof *job.parts);
  hd_release(context, job.worker, job.workers, sizeof *job.worker);
  return status;
}
