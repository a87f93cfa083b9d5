/* mask.c: the visibility of a call spelt out, for whoever wants to see it. */
#include "attention.h"
#include "visible.h"

struct job {
  const hd_problem *problem;
  hd_grid out;
  int64_t tiles; /* of 64 queries */
};

static void run_tile(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_problem *problem = job->problem;
  const int64_t q0 = i % job->tiles * 64, head = i / job->tiles;
  hd_rect rect = {.batch = head / problem->heads, .head = head % problem->heads, .q0 = q0, .q1 = HD_MIN(q0 + 64, problem->queries)};
  (void)worker;
  for (rect.k0 = 0; rect.k0 < problem->keys; rect.k0 = rect.k1) {
    uint64_t visible[HD_KEY_TILE] = {0};
    rect.k1 = HD_MIN(rect.k0 + HD_KEY_TILE, problem->keys);
    hd_visible_bits(problem, &rect, visible);
    for (int64_t q = rect.q0; q < rect.q1; q++) {
      char *row = hd_grid_row(&job->out, rect.batch, rect.head, q);
      for (int64_t k = rect.k0; k < rect.k1; k++) row[k * job->out.column_stride] = (char)(visible[k - rect.k0] >> (q - q0) & 1);
    }
  }
}

heed_status heed_attention_visible(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                   const heed_view *visible) {
  if (!context) return HEED_E_ARGUMENT;
  hd_source keys;
  hd_shapes shapes;
  hd_problem problem;
  hd_grid queries;
  struct job job = {.problem = &problem};
  HD_TRY(hd_source_of_view(context, k, "k", &keys));
  HD_TRY(hd_attention_shapes(context, q, &keys, NULL, &queries, &shapes));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  HD_TRY(hd_description_check(context, &problem.a));
  HD_TRY(hd_grid_make(context, visible, "visible", &job.out));
  HD_TRY(hd_grid_expect(context, &job.out, visible, "visible", &queries, problem.heads, problem.queries, problem.keys));
  HD_REQUIRE(job.out.type == HEED_BOOL || job.out.type == HEED_U8, context, HEED_E_TYPE, "visible is %s, allowed bool and u8",
             heed_type_name(job.out.type));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}};
  HD_TRY(hd_output_apart(context, &problem.a, visible, "visible", inputs, HD_COUNT(inputs)));
  job.tiles = hd_ceil_div(problem.queries, 64);
  if (problem.batch == 0 || problem.heads == 0 || problem.queries == 0) return HEED_OK;
  hd_parallel(context, problem.batch * problem.heads * job.tiles, run_tile, &job);
  return HEED_OK;
}
