/* plan.c: what a call will cost, in counts. Cells of 16 queries × 64 keys are the grain in which every level's kernel can leave work out. */
#include "attention.h"
#include "pattern.h"

static void count_cell(const hd_problem *problem, const hd_rect *rect, heed_plan *plan) {
  uint64_t visible[HD_KEY_TILE];
  hd_cover cover = hd_visible_bits(problem, rect, visible);
  int64_t pairs = (rect->q1 - rect->q0) * (rect->k1 - rect->k0);
  if (cover == HD_EMPTY) return;
  plan->flops += 2.0 * (double)(problem->d + problem->dv) * (double)pairs;
  if (cover == HD_FULL) {
    plan->full_tiles++;
    plan->visible_pairs += pairs;
  } else {
    plan->partial_tiles++;
    for (int key = 0; key < rect->k1 - rect->k0; key++) plan->visible_pairs += __builtin_popcountll(visible[key]);
  }
}

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
  bool product = score == HEED_SCORE_DOT || score == HEED_SCORE_BILINEAR; // what is compared may be projections
  return product && hd_decodes(problem) ? names[problem->context->level].decode : names[problem->context->level].fused;
}

/* Cells outside the span that its queries see are empty: they are counted, not looked at. */
static void count_cells(const hd_problem *problem, int64_t batch, int64_t head, int64_t q0, heed_plan *plan) {
  int64_t begin, end, q1 = HD_MIN(q0 + HD_QUERY_CELL, problem->queries);
  hd_visible_span(problem, batch, q0, q1, &begin, &end);
  plan->tiles += hd_ceil_div(problem->keys, HD_KEY_TILE);
  for (int64_t k0 = begin / HD_KEY_TILE * HD_KEY_TILE; k0 < end; k0 += HD_KEY_TILE)
    count_cell(problem, &(hd_rect){batch, head, q0, q1, k0, HD_MIN(k0 + HD_KEY_TILE, problem->keys)}, plan);
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
  heed_plan plan = {.size = out->size, .kernel = kernel_name(&problem, score.kind)};
  for (int64_t head = 0; head < problem.batch * problem.heads; head++)
    for (int64_t q0 = 0; q0 < problem.queries; q0 += HD_QUERY_CELL)
      count_cells(&problem, head / problem.heads, head % problem.heads, q0, &plan);
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
