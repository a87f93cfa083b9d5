/* backward_terms.c: gradients of what is added to scores and sums: the bias, and the sink.
 *
 * dbias is dS before the softcap, scale and products, summed over the dimensions that the bias broadcasts. Whoever owns a part of it, at most a tile, goes through every pair that adds to
 * it, batch entries, heads, queries and keys ascending, and rebuilds dS. That costs two of backward's five products once more, and no memory beyond tiles, whatever is broadcast. */
#include "backward.h"

#include <math.h>

/* The batch entry and head of one of an owner's sharers: the owner counts along the axes the bias has, the sharer along the others, the last axis fastest. */
static void find_pair(const hd_bias_gradient *job, int64_t owner, int64_t sharer, int64_t *batch, int64_t *head) {
  int64_t index[HEED_MAX_DIM];
  for (int axis = job->axes - 1; axis >= 0; axis--) {
    int64_t *count = job->own[axis] ? &owner : &sharer;
    index[axis] = *count % job->dim[axis];
    *count /= job->dim[axis];
  }
  *batch = 0;
  for (int axis = 0; axis < job->axes - 1; axis++) *batch = *batch * job->dim[axis] + index[axis];
  *head = index[job->axes - 1];
}

/* Adds the tile's dS to the sums, each at the place of the bias that it belongs to; where there is only one, row by row, so that the order does not depend on the width of tiles. */
static void add_tile(const hd_bias_gradient *job, const struct hd_bias_worker *w, int keys) {
  const int64_t stride = job->from->problem->kernels->tile_lanes;
  for (int key = 0; key < keys; key++) {
    const float *ds = w->scratch.ds + key * w->visit.padded;
    float *sums = w->sums + (job->own_keys ? key : 0) * stride;
    for (int lane = 0; lane < w->visit.lanes.count; lane++) sums[job->own_rows || !job->own_keys ? lane : 0] += ds[lane];
  }
}

/* Every pair of one batch entry and head that belongs to the part: queries [q0, q1), keys [k0, k1). */
static void add_pair(const hd_bias_gradient *job, struct hd_bias_worker *w, int64_t batch, int64_t head, int64_t q0, int64_t q1, int64_t k0,
                     int64_t k1) {
  const hd_problem *problem = job->from->problem;
  const hd_tiling tiling = {.queries = problem->kernels->tile_lanes, .heads = 1};
  int64_t kv = batch * problem->kv_heads + head / problem->group;
  for (int64_t q = q0; q < q1; q += tiling.queries) {
    int64_t k = k0, first, last;
    bool begun = false;
    hd_lanes_of(problem, NULL, &tiling, kv, head % problem->group, q / tiling.queries, &w->visit.lanes);
    hd_live_of_lanes(problem, NULL, &w->visit.lanes, &w->live);
    for (; hd_live_next(&w->live, k, &first, &last) && first < k1; k += HD_KEY_TILE) {
      uint64_t visible[HD_KEY_TILE];
      k = first / HD_KEY_TILE * HD_KEY_TILE; // sums are those of whole tiles
      hd_attn_tile tile = {.keys = (int)HD_MIN(problem->keys - k, HD_KEY_TILE)};
      if (!begun) hd_visit_begin(job->from, &w->scratch, &w->visit);
      begun = true;
      hd_visit_keys(job->from, &w->scratch, kv, 0, k, &tile);
      if (hd_visit_tile(job->from, &w->scratch, &w->visit, &tile, k, &w->live, visible)) add_tile(job, w, tile.keys);
    }
    for (int lane = 0; !job->own_rows && !job->own_keys && lane < w->visit.lanes.count; lane++) {
      w->total += w->sums[lane];
      w->sums[lane] = 0;
    }
  }
}

static void run_part(void *argument, int64_t part, int worker) {
  const hd_bias_gradient *job = argument;
  const hd_problem *problem = job->from->problem;
  const int64_t lanes = problem->kernels->tile_lanes;
  struct hd_bias_worker *w = &job->worker[worker];
  int64_t owner = part / job->key_tiles / job->query_tiles, batch, head;
  int64_t q0 = part / job->key_tiles % job->query_tiles * lanes,
          q1 = job->own_rows ? HD_MIN(q0 + lanes, problem->queries) : problem->queries;
  int64_t k0 = part % job->key_tiles * HD_KEY_TILE, k1 = job->own_keys ? HD_MIN(k0 + HD_KEY_TILE, problem->keys) : problem->keys;
  memset(w->sums, 0, (size_t)(HD_KEY_TILE * lanes) * sizeof *w->sums);
  w->total = 0;
  for (int64_t sharer = 0; sharer < job->sharers; sharer++) {
    find_pair(job, owner, sharer, &batch, &head);
    add_pair(job, w, batch, head, q0, q1, k0, k1);
  }
  if (!job->own_rows && !job->own_keys) w->sums[0] = w->total;
  find_pair(job, owner, 0, &batch, &head);
  for (int64_t q = q0; q < (job->own_rows ? q1 : q0 + 1); q++) {
    char *row = hd_grid_row(&job->dbias, batch, head, q);
    for (int64_t k = k0; k < (job->own_keys ? k1 : k0 + 1); k++)
      hd_element_store(row + k * job->dbias.column_stride * job->dbias.size, job->dbias.type, w->sums[(k - k0) * lanes + q - q0]);
  }
}

/* Which axes the bias has, and so into what parts its gradient is cut. */
static void cut_parts(hd_bias_gradient *job, const heed_view *dbias) {
  const hd_problem *problem = job->from->problem;
  const int missing = problem->lead + 3 - dbias->ndim;
  job->axes = problem->lead + 1;
  job->owners = job->sharers = 1;
  for (int axis = 0; axis < job->axes; axis++) {
    job->dim[axis] = axis < problem->lead ? problem->lead_dim[axis] : problem->heads;
    job->own[axis] = axis >= missing && dbias->dim[axis - missing] != 1;
    *(job->own[axis] ? &job->owners : &job->sharers) *= job->dim[axis];
  }
  job->own_rows = dbias->dim[dbias->ndim - 2] != 1;
  job->own_keys = dbias->dim[dbias->ndim - 1] != 1;
  job->query_tiles = job->own_rows ? hd_ceil_div(problem->queries, problem->kernels->tile_lanes) : 1;
  job->key_tiles = job->own_keys ? hd_ceil_div(problem->keys, HD_KEY_TILE) : 1;
}

heed_status hd_bias_gradient_new(const hd_backward *from, const heed_view *dbias, hd_bias_gradient *job) {
  const hd_problem *problem = from->problem;
  heed_context *context = problem->context;
  *job = (hd_bias_gradient){.from = from};
  if (!dbias || hd_view_count(dbias) == 0) return HEED_OK;
  HD_TRY(hd_grid_broadcast(problem, dbias, "dbias", &job->dbias));
  cut_parts(job, dbias);
  const int64_t lanes = problem->kernels->tile_lanes;
  int64_t each = 0;
  job->workers = hd_workers(context, job->owners * job->query_tiles * job->key_tiles);
  HD_REQUIRE(hd_visit_cut(problem, &(hd_visit){0}, NULL, &each) && hd_visit_scratch_cut(problem, 1, &(hd_visit_scratch){0}, NULL, &each) &&
                 hd_live_cut(problem, &(hd_live){0}, NULL, &each) && hd_cut(NULL, &(hd_part){NULL, HD_KEY_TILE, lanes}, 1, &each) &&
                 hd_mul(each, job->workers, &job->floats),
             context, HEED_E_OVERFLOW, "head widths %lld and %lld are too large", (long long)problem->d, (long long)problem->dv);
  HD_TRY(hd_allocate(context, "bias gradient workers", job->workers, sizeof *job->worker, &job->worker));
  HD_TRY(hd_allocate(context, "bias gradient tiles", job->floats, sizeof *job->memory, &job->memory));
  for (int64_t i = 0; i < job->workers; i++) {
    struct hd_bias_worker *w = &job->worker[i];
    int64_t used = i * each;
    hd_visit_cut(problem, &w->visit, job->memory, &used);
    hd_visit_scratch_cut(problem, 1, &w->scratch, job->memory, &used);
    hd_live_cut(problem, &w->live, job->memory, &used);
    hd_cut(job->memory, &(hd_part){&w->sums, HD_KEY_TILE, lanes}, 1, &used);
    w->scratch.slope = NULL;
    for (int block = 0; block < HD_MAX_BLOCKS; block++) w->visit.gradient[block].dq = NULL;
  }
  return HEED_OK;
}

void hd_bias_gradient_run(hd_bias_gradient *job) {
  if (job->memory) hd_parallel(job->from->problem->context, job->owners * job->query_tiles * job->key_tiles, run_part, job);
}

void hd_bias_gradient_free(hd_bias_gradient *job) {
  heed_context *context = job->from->problem->context;
  hd_release(context, job->memory, job->floats, sizeof *job->memory);
  hd_release(context, job->worker, job->workers, sizeof *job->worker);
}

struct sink_job {
  const hd_backward *from;
  const heed_view *dsink;
};

/* The sink is a key whose value is 0: dP = 0, so dS = −P δ, P = exp(sink − lse). A row that saw no key gave no weight to the sink either. */
static void add_sink(void *argument, int64_t head, int worker) {
  const struct sink_job *job = argument;
  const hd_backward *from = job->from;
  const hd_problem *problem = from->problem;
  double sink = hd_per_head(problem->a.sink, head), sum = 0;
  (void)worker;
  for (int64_t batch = 0; batch < problem->batch; batch++)
    for (int64_t row = 0; row < problem->queries; row++) {
      double lse = *(const float *)hd_grid_row(&from->lse, batch, head, row);
      if (lse != -INFINITY) sum -= exp(sink - lse) * hd_delta(from, batch, head, row);
    }
  hd_element_store(hd_view_at(job->dsink, head), job->dsink->type, sum);
}

void hd_backward_sink(const hd_backward *from, const heed_view *dsink) {
  struct sink_job job = {from, dsink};
  if (dsink) hd_parallel(from->problem->context, from->problem->heads, add_sink, &job);
}
