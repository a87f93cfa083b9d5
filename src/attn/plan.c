/* plan.c: what a call will cost, in counts. Cells of 16 queries × 64 keys are the grain in which every level's kernel can leave work out. */
#include "attention.h"
#include "pattern.h"

static void count_cell(const hd_problem *problem, const hd_rect *rect, heed_plan *plan) {
  uint64_t visible[HD_KEY_TILE];
  hd_cover cover = hd_visible_bits(problem, rect, visible);
  int64_t pairs = (rect->q1 - rect->q0) * (rect->k1 - rect->k0);
  plan->tiles++;
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

heed_status heed_attention_explain_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                        const heed_view *v, heed_plan *out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out && out->size >= sizeof out->size, context, HEED_E_ARGUMENT, "heed_plan: null, or size not set");
  hd_problem problem;
  hd_shapes shapes;
  hd_source keys, values;
  heed_score score;
  hd_grid queries;
  HD_TRY(hd_source_of_view(context, k, "k", &keys));
  HD_TRY(hd_source_of_view(context, v, "v", &values));
  HD_TRY(hd_attention_shapes(context, q, &keys, &values, &queries, &shapes));
  HD_TRY(hd_storable(context, &queries, "q"));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  HD_TRY(hd_score_read(context, &problem.a, q, k, &score));
  HD_TRY(hd_score_storable(context, &score));
  static const char *const kernel[] = {
      [HEED_LEVEL_SCALAR] = "fused forward, scalar",
      [HEED_LEVEL_AVX2] = "fused forward, avx2",
      [HEED_LEVEL_AVX2X2] = "fused forward, avx2x2",
      [HEED_LEVEL_AVX512] = "fused forward, avx512",
      [HEED_LEVEL_AVX512BF16] = "fused forward, avx512bf16",
      [HEED_LEVEL_AMX] = "fused forward, amx",
      [HEED_LEVEL_NEON] = "fused forward, neon",
  };
  heed_plan plan = {.size = out->size, .kernel = kernel[context->level]};
  for (int64_t head = 0; head < problem.batch * problem.heads; head++)
    for (int64_t q0 = 0; q0 < problem.queries; q0 += HD_QUERY_CELL)
      for (int64_t k0 = 0; k0 < problem.keys; k0 += HD_KEY_TILE) {
        hd_rect cell = {head / problem.heads,
                        head % problem.heads,
                        q0,
                        HD_MIN(q0 + HD_QUERY_CELL, problem.queries),
                        k0,
                        HD_MIN(k0 + HD_KEY_TILE, problem.keys)};
        count_cell(&problem, &cell, &plan);
      }
  memcpy(out, &plan, HD_MIN(out->size, sizeof plan));
  return HEED_OK;
}
