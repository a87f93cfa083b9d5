/* weights.c: exact rows of the matrix of weights, or of the scores they come from, for whoever wants to look. Scores go straight into the caller's rows; for weights each row is
 * then normalised by its own maximum and sum. Nothing larger than a tile is held besides. */
#include "attention.h"
#include "visible.h"

#include <math.h>

struct job {
  const hd_problem *problem;
  hd_grid q, weights;
  const hd_source *k;
  heed_attention_rows asked;
  float factor, softcap; /* of the scores, in the tap's units: log2 e for weights, natural ones for the rest */
  int64_t groups;        /* of block_lanes rows */
  float *scratch;        /* [workers][scratch_floats] */
  int64_t scratch_floats;
};

/* A row whose sum is NaN saw a score that was: what it sees is NaN, and what it does not see stays 0. */
static void fill_undefined(const hd_problem *problem, int64_t batch, int64_t head, int64_t query, float *row) {
  for (int64_t k0 = 0; k0 < problem->keys; k0 += HD_KEY_TILE) {
    int64_t k1 = HD_MIN(k0 + HD_KEY_TILE, problem->keys);
    uint64_t visible[HD_KEY_TILE] = {0};
    hd_rect rect = {.batch = batch, .head = head, .q0 = query, .q1 = query + 1, .k0 = k0, .k1 = k1};
    hd_visible_bits(problem, &rect, visible);
    for (int64_t key = k0; key < k1; key++) row[key] = visible[key - k0] & 1 ? NAN : 0;
  }
}

/* Neighbouring rows are asked for their bits at once, scattered ones one by one. */
static hd_cover lanes_visible(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, uint64_t visible[HD_KEY_TILE]) {
  bool any = false, all = true, neighbours = true;
  for (int lane = 1; lane < lanes->count; lane++) neighbours &= lanes->row[lane] == lanes->row[lane - 1] + 1;
  if (neighbours) {
    const int64_t q0 = lanes->row[0];
    hd_rect rect = {.batch = lanes->batch, .head = lanes->head[0], .q0 = q0, .q1 = q0 + lanes->count, .k0 = k0, .k1 = k1};
    return hd_visible_bits(problem, &rect, visible);
  }
  memset(visible, 0, HD_KEY_TILE * sizeof *visible);
  for (int lane = 0; lane < lanes->count; lane++) {
    uint64_t bits[HD_KEY_TILE];
    const int64_t q0 = lanes->row[lane];
    hd_rect rect = {.batch = lanes->batch, .head = lanes->head[lane], .q0 = q0, .q1 = q0 + 1, .k0 = k0, .k1 = k1};
    hd_cover cover = hd_visible_bits(problem, &rect, bits);
    any |= cover != HD_EMPTY;
    all &= cover == HD_FULL;
    for (int key = 0; cover != HD_EMPTY && key < k1 - k0; key++) visible[key] |= bits[key] << lane;
  }
  return !any ? HD_EMPTY : all ? HD_FULL : HD_PARTIAL;
}

static bool asks_weights(const struct job *job) { return job->asked.tap == HEED_TAP_WEIGHTS || job->asked.tap == HEED_TAP_DROPPED; }
static bool asks_visibility(const struct job *job) { return asks_weights(job) || job->asked.tap == HEED_TAP_BIASED; }

static void hide(const uint64_t *visible, int keys, int lanes, float *const *rows) {
  for (int key = 0; key < keys; key++)
    for (int lane = 0; lane < lanes; lane++)
      if (!(visible[key] >> lane & 1)) rows[lane][key] = -INFINITY;
}

/* Columns of a copied row. */
static int64_t widest_row(const hd_problem *problem) { return hd_ceil_div(HD_MAX(problem->d, HD_KEY_TILE), 16) * 16; }

/* Scores of all keys into rows, −inf where the tap asks who sees whom and they are hidden; returns which lanes saw any. */
static uint64_t score_rows(const struct job *job, const hd_lanes *lanes, float *scratch, float *const *rows) {
  const hd_problem *problem = job->problem;
  const hd_kernels *kernels = problem->kernels;
  int width = (int)hd_ceil_div(lanes->count, kernels->vector) * kernels->vector;
  float *queries = scratch, *scores = queries + problem->d * width, *terms = scores + HD_KEY_TILE * width,
        *copies = terms + HD_KEY_TILE * width;
  float *keys = copies + widest_row(problem) * width;
  const uint64_t used = ~(uint64_t)0 >> (64 - lanes->count);
  const float *sources[HD_MAX_LANES];
  float *targets[HD_MAX_LANES];
  uint64_t visible[HD_KEY_TILE], seen = 0;

  hd_attn_block block = {.d = problem->d, .lanes = width, .used = used, .q = queries};
  if (!problem->scoring) {
    hd_lane_rows(kernels, &job->q, lanes, 0, problem->d, copies, sources);
    kernels->to_lanes(sources, lanes->count, problem->d, job->factor, queries, width);
  }
  for (int64_t k0 = 0; k0 < problem->keys; k0 += HD_KEY_TILE) {
    int64_t k1 = HD_MIN(k0 + HD_KEY_TILE, problem->keys);
    hd_cover cover = asks_visibility(job) ? lanes_visible(problem, lanes, k0, k1, visible) : HD_FULL;
    hd_attn_tile tile = {.keys = (int)(k1 - k0), .softcap = job->softcap, .scores = scores, .stride = width, .bias_stride = width};
    for (int lane = 0; lane < lanes->count; lane++) targets[lane] = rows[lane] + k0;
    if (cover == HD_EMPTY) {
      hide((const uint64_t[HD_KEY_TILE]){0}, tile.keys, lanes->count, targets);
      continue;
    }
    if (asks_weights(job)) tile.visible = cover == HD_FULL ? NULL : visible;
    tile.k = job->k->rows(job->k, lanes->batch, lanes->head[0] / problem->group, k0, tile.keys, keys, &tile.k_stride);
    if (problem->scoring) {
      const hd_score_place place = {problem, &job->q, lanes, &tile, k0, copies, terms, keys};
      problem->scoring->kind->scores(problem->scoring, &place);
      if (!asks_weights(job)) kernels->row_scale(scores, (k1 - k0) * width, (float)HD_LN2);
      tile.scored = true;
    }
    bool has_terms = asks_visibility(job) && hd_terms_in_lanes(problem, lanes, k0, k1, copies, terms, width);
    if (asks_weights(job)) tile.bias = has_terms ? terms : NULL;
    kernels->attn_scores(&block, &tile);
    if (has_terms && job->asked.tap == HEED_TAP_BIASED) kernels->add(scores, terms, (k1 - k0) * width, scores);
    kernels->from_lanes(scores, width, lanes->count, k1 - k0, targets);
    if (cover == HD_PARTIAL && job->asked.tap == HEED_TAP_BIASED) hide(visible, tile.keys, lanes->count, targets);
    if (cover == HD_FULL) seen = used;
    for (int key = 0; cover == HD_PARTIAL && key < tile.keys; key++) seen |= visible[key];
  }
  return seen;
}

static void normalise(const struct job *job, const hd_lanes *lanes, int lane, bool seen, float *row) {
  const hd_problem *problem = job->problem;
  if (!seen) {
    memset(row, 0, (size_t)problem->keys * sizeof *row);
    return;
  }
  float top = problem->kernels->row_max(row, problem->keys), sink = -INFINITY;
  if (problem->a.sink) sink = (float)(hd_per_head(problem->a.sink, lanes->head[lane]) * HD_LOG2E);
  if (sink > top) top = sink;
  if (top == -INFINITY) top = 0;
  float sum = problem->kernels->row_exp2(row, problem->keys, top);
  if (problem->a.sink) {
    problem->kernels->row_exp2(&sink, 1, top);
    sum += sink;
  }
  if (sum > 0) {
    problem->kernels->row_scale(row, problem->keys, 1.0f / sum);
  } else {
    fill_undefined(problem, lanes->batch, lanes->head[lane], lanes->row[lane], row);
  }
}

/* What dropout and the caller's factors make of the weights. */
static void drop(const hd_problem *problem, const hd_lanes *lanes, float *const *rows) {
  const heed_attention *a = &problem->a;
  for (int64_t k0 = 0; k0 < problem->keys; k0 += HD_KEY_TILE) {
    int64_t k1 = HD_MIN(k0 + HD_KEY_TILE, problem->keys);
    uint64_t bits[HD_KEY_TILE];
    const uint64_t *kept = hd_lanes_kept(problem, lanes, k0, k1, bits);
    for (int64_t key = k0; kept && key < k1; key++)
      for (int lane = 0; lane < lanes->count; lane++)
        rows[lane][key] = kept[key - k0] >> lane & 1 ? rows[lane][key] * problem->keep_factor : 0;
    for (int lane = 0; a->factors && lane < lanes->count; lane++) {
      const heed_pair_tile tile = {lanes->batch, lanes->head[lane], lanes->row[lane], k0, 1, (int)(k1 - k0)};
      float factor[HD_KEY_TILE];
      a->factors(a->factors_user, &tile, factor);
      for (int64_t key = k0; key < k1; key++) // a hidden pair's weight stays 0, whatever its factor
        if (rows[lane][key] != 0) rows[lane][key] *= factor[key - k0];
    }
  }
}

/* Whether rows can be made where they are wanted. */
static bool is_direct(const struct job *job) { return job->weights.type == HEED_F32 && job->weights.column_stride == 1; }

static void run_item(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->problem;
  int64_t group = i % job->groups, head = i / job->groups % job->asked.n_heads;
  int64_t first = group * problem->kernels->block_lanes;
  hd_lanes lanes = {.batch = i / job->groups / job->asked.n_heads,
                    .heads = 1,
                    .count = (int)HD_MIN(problem->kernels->block_lanes, job->asked.n_rows - first)};
  float *scratch = job->scratch + worker * job->scratch_floats, *rows[HD_MAX_LANES];
  bool direct = is_direct(job); // otherwise rows are made at the end of the scratch and copied
  float *copies = direct ? NULL : scratch + job->scratch_floats - problem->kernels->block_lanes * problem->keys;
  for (int lane = 0; lane < lanes.count; lane++) {
    lanes.head[lane] = job->asked.heads ? job->asked.heads[head] : head;
    lanes.row[lane] = job->asked.rows ? job->asked.rows[first + lane] : first + lane;
    rows[lane] = direct ? (float *)hd_grid_row(&job->weights, lanes.batch, head, first + lane) : copies + lane * problem->keys;
  }
  uint64_t seen = score_rows(job, &lanes, scratch, rows);
  for (int lane = 0; lane < lanes.count && asks_weights(job); lane++) normalise(job, &lanes, lane, seen >> lane & 1, rows[lane]);
  if (job->asked.tap == HEED_TAP_DROPPED) drop(problem, &lanes, rows);
  for (int lane = 0; lane < lanes.count && !direct; lane++)
    hd_from_floats(problem->kernels, rows[lane], problem->keys, hd_grid_row(&job->weights, lanes.batch, head, first + lane),
                   job->weights.type, job->weights.column_stride);
}

static heed_status check_indices(heed_context *context, const char *what, const int64_t *index, int64_t *count, int64_t limit) {
  HD_REQUIRE(*count >= 0, context, HEED_E_ARGUMENT, "%lld %s asked for", (long long)*count, what);
  HD_REQUIRE(index || *count == 0 || *count == limit, context, HEED_E_ARGUMENT, "%lld %s asked for without naming them, there are %lld",
             (long long)*count, what, (long long)limit);
  if (!index) *count = limit;
  for (int64_t i = 0; index && i < *count; i++)
    HD_REQUIRE(index[i] >= 0 && index[i] < limit, context, HEED_E_ARGUMENT, "%s %lld asked for, there are %lld", what, (long long)index[i],
               (long long)limit);
  return HEED_OK;
}

heed_status hd_rows_read(const hd_problem *problem, const heed_attention_rows *asked, heed_attention_rows *out) {
  heed_context *context = problem->context;
  *out = (heed_attention_rows){.size = sizeof *out};
  HD_TRY(hd_options_read(context, "heed_attention_rows", asked, out, sizeof *out));
  HD_REQUIRE(out->tap >= HEED_TAP_WEIGHTS && out->tap <= HEED_TAP_DROPPED, context, HEED_E_ARGUMENT, "tap: unknown value %d",
             (int)out->tap);
  HD_TRY(check_indices(context, "heads", out->heads, &out->n_heads, problem->heads));
  return check_indices(context, "rows", out->rows, &out->n_rows, problem->queries);
}

/* What scores are multiplied by and capped at before the kernel's own units come in. */
static void choose_units(struct job *job) {
  const hd_problem *problem = job->problem;
  bool weights = asks_weights(job), capped = problem->softcap_log2 > 0 && job->asked.tap != HEED_TAP_SCORES;
  job->factor = (float)(problem->scale * (weights ? HD_LOG2E : 1));
  job->softcap = !capped ? 0 : weights ? problem->softcap_log2 : (float)problem->a.softcap;
}

/* Floats a worker needs; false where that overflows. */
static bool scratch_size(const struct job *job, int64_t *floats) {
  const hd_problem *problem = job->problem;
  int64_t lanes = problem->kernels->block_lanes, rows, copies = 0;
  // queries and copies of rows, scores, terms; keys that need a copy
  if (!hd_add(problem->d, widest_row(problem), &rows) || !hd_add(rows, 2 * HD_KEY_TILE, &rows) || !hd_mul(rows, lanes, &rows)) return false;
  if (!hd_mul(hd_ceil_div(problem->key_width, 16) * 16, HD_KEY_TILE, floats) || !hd_add(*floats, rows, floats)) return false;
  if (!is_direct(job) && !hd_mul(lanes, problem->keys, &copies)) return false;
  return hd_add(*floats, copies, floats);
}

static heed_status find_rows(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *q,
                             const hd_source *k, const heed_attention_rows *asked, const heed_view *weights) {
  hd_problem problem;
  hd_shapes shapes;
  struct job job = {.problem = &problem, .k = k};
  HD_TRY(hd_attention_shapes(context, q, k, NULL, &job.q, &shapes));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  if (scoring && scoring->kind->scores) problem.scoring = scoring;
  HD_TRY(hd_storable(context, &job.q, "q"));
  HD_TRY(hd_rows_read(&problem, asked, &job.asked));
  choose_units(&job);
  HD_TRY(hd_grid_make(context, weights, "weights", &job.weights));
  HD_TRY(hd_grid_expect(context, &job.weights, weights, "weights", &job.q, job.asked.n_heads, job.asked.n_rows, problem.keys));
  HD_TRY(hd_storable(context, &job.weights, "weights"));
  if (problem.batch == 0 || job.asked.n_heads == 0 || job.asked.n_rows == 0 || problem.keys == 0) return HEED_OK;

  job.groups = hd_ceil_div(job.asked.n_rows, problem.kernels->block_lanes);
  int64_t items = problem.batch * job.asked.n_heads * job.groups, room;
  HD_REQUIRE(scratch_size(&job, &job.scratch_floats) && hd_mul(job.scratch_floats, hd_workers(context, items), &room), context,
             HEED_E_OVERFLOW, "head width %lld is too large", (long long)problem.d);
  HD_TRY(hd_allocate(context, "attention weights", room, sizeof *job.scratch, &job.scratch));
  hd_parallel(context, items, run_item, &job);
  hd_release(context, job.scratch, room, sizeof *job.scratch);
  return HEED_OK;
}

heed_status hd_attention_rows(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *q,
                              const hd_source *k, const heed_attention_rows *asked, const heed_view *weights) {
  hd_scoring own;
  if (scoring || !a->score) return find_rows(context, a, scoring, q, k, asked, weights);
  heed_status status = hd_scoring_begin(context, a, q, q, NULL, &own);
  if (status == HEED_OK) status = find_rows(context, a, &own, &own.q, k, asked, weights);
  hd_scoring_free(context, &own);
  return status;
}

heed_status heed_attention_weights(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                   const heed_attention_rows *asked, const heed_view *weights) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention description;
  hd_source keys;
  HD_TRY(hd_description_read(context, a, &description));
  HD_TRY(hd_view_check(context, q, "q"));
  HD_TRY(hd_view_check(context, k, "k"));
  HD_TRY(hd_view_check(context, weights, "weights"));
  HD_TRY(hd_description_check(context, &description));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}};
  HD_TRY(hd_output_apart(context, &description, weights, "weights", inputs, HD_COUNT(inputs)));
  hd_scoring scoring;
  heed_status status = hd_scoring_begin(context, &description, q, k, NULL, &scoring);
  if (status == HEED_OK) status = hd_source_of_view(context, &scoring.k, "k", &keys);
  if (status == HEED_OK) status = hd_attention_rows(context, &description, &scoring, &scoring.q, &keys, asked, weights);
  hd_scoring_free(context, &scoring);
  return status;
}
