/* plan.c: what a call will cost, in counts. Cells of 16 queries × 64 keys are the grain in which every level's kernel can leave work out. */
#include "attention.h"
#include "visible.h"

/* One cell: rows in lanes × keys [k0, k1) of a pass. */
static void count_cell(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, const hd_live *live, int64_t k0, int64_t k1,
                       heed_plan *plan) {
  uint64_t visible[HD_KEY_TILE];
  hd_cover cover = hd_lanes_visible(problem, pass, lanes, live, k0, k1, visible);
  int64_t pairs = lanes->count * (k1 - k0);
  if (cover == HD_EMPTY) return;
  plan->flops += 2.0 * (double)(problem->d + problem->dv) * (double)pairs;
  if (cover == HD_FULL) {
    plan->full_tiles++;
    plan->visible_pairs += pairs;
  } else {
    plan->partial_tiles++;
    for (int64_t key = 0; key < k1 - k0; key++) plan->visible_pairs += __builtin_popcountll(visible[key]);
  }
}

/* What is compared may be projections. */
static bool is_product(heed_score_kind score) { return score == HEED_SCORE_DOT || score == HEED_SCORE_BILINEAR; }

/* The kernel that runs; static. */
static const char *kernel_name(const hd_problem *problem, heed_score_kind score) {
  static const struct {
    const char *fused, *decode;
  } names[HEED_LEVEL_COUNT] = {
      [HEED_LEVEL_SCALAR] = {"fused forward, scalar", "decode, scalar"},
      [HEED_LEVEL_AVX2] = {"fused forward, avx2", "decode, avx2"},
      [HEED_LEVEL_AVX2X2] = {"fused forward, avx2x2", "decode, avx2x2"},
      [HEED_LEVEL_AVX512] = {"fused forward, avx512", "decode, avx512"},
      [HEED_LEVEL_AVX512BF16] = {"fused forward, avx512bf16", "decode, avx512"},
      [HEED_LEVEL_AMX] = {"fused forward, amx", "decode, avx512"},
      [HEED_LEVEL_NEON] = {"fused forward, neon", "decode, neon"},
  };
  return is_product(score) && hd_decodes(problem) ? names[problem->context->level].decode : names[problem->context->level].fused;
}

/* Tiles of keys that these queries see nothing of are not looked at. */
static void count_cells(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, hd_live *live, heed_plan *plan) {
  const int64_t keys = pass->part ? pass->order.keys : problem->keys;
  int64_t k0, k1 = 0;
  hd_live_of_lanes(problem, pass, lanes, live);
  while (hd_live_next(live, k1, &k0, &k1)) {
    k0 = k0 / HD_KEY_TILE * HD_KEY_TILE;
    count_cell(problem, pass, lanes, live, k0, HD_MIN(k0 + HD_KEY_TILE, keys), plan);
  }
}

static heed_status count_plan(const hd_problem *problem, heed_plan *plan) {
  const hd_tiling tiling = {.queries = HD_QUERY_CELL, .heads = 1};
  const int64_t rows = hd_ceil_div(problem->queries, HD_QUERY_CELL);
  float *memory;
  int64_t floats = 0;
  hd_live live;
  HD_REQUIRE(hd_live_cut(problem, &live, NULL, &floats), problem->context, HEED_E_OVERFLOW, "too many keys");
  HD_TRY(hd_allocate(problem->context, "tiles that are seen", floats, sizeof *memory, &memory));
  floats = 0;
  hd_live_cut(problem, &live, memory, &floats);
  plan->tiles = problem->batch * problem->heads * rows * hd_ceil_div(problem->keys, HD_KEY_TILE);
  for (const hd_sweep *pass = problem->pass; pass < problem->pass + problem->passes; pass++)
    for (int64_t head = 0; head < problem->batch * problem->heads; head++)
      for (int64_t cell = 0; cell < rows; cell++) {
        const int64_t batch = head / problem->heads, own = head % problem->heads;
        hd_lanes lanes;
        hd_lanes_of(problem, pass, &tiling, batch * problem->kv_heads + own / problem->group, own % problem->group, cell, &lanes);
        count_cells(problem, pass, &lanes, &live, plan);
      }
  hd_release(problem->context, memory, floats, sizeof *memory);
  return HEED_OK;
}

heed_status hd_attention_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k_view,
                              const hd_source *k, const hd_source *v, heed_plan *out) {
  heed_score score = {0};
  hd_problem problem;
  hd_shapes shapes;
  hd_grid queries;
  HD_REQUIRE(out && out->size >= sizeof out->size, context, HEED_E_ARGUMENT, "heed_plan: null, or size not set");
  HD_TRY(hd_attention_shapes(context, q, k, v, &queries, &shapes));
  HD_TRY(hd_storable(context, &queries, "q"));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  if (k_view) HD_TRY(hd_score_read(context, &problem.a, q, k_view, &score));
  if (k_view) HD_TRY(hd_score_storable(context, &score));
  if (is_product(score.kind)) hd_sweeps_choose(&problem);
  heed_plan plan = {.size = out->size, .kernel = kernel_name(&problem, score.kind)};
  HD_TRY(count_plan(&problem, &plan));
  memcpy(out, &plan, HD_MIN(out->size, sizeof plan));
  return HEED_OK;
}

heed_status heed_attention_explain_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                        const heed_view *v, heed_plan *out) {
  if (!context) return HEED_E_ARGUMENT;
  hd_source keys, values;
  HD_TRY(hd_source_of_view(context, k, "k", &keys));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  return hd_attention_plan(context, a, q, k, &keys, &values, out);
}
