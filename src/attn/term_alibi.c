/* term_alibi.c: −slope · |p − j|, a slope a head: the farther a key, the less it counts (Press, Smith, Lewis, "Train Short, Test Long", 2022). */
#include "term.h"

static bool active(const hd_problem *problem) { return problem->a.alibi != NULL; }

static void rows(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows) {
  for (int lane = 0; lane < lanes->count; lane++) {
    float slope = (float)hd_per_head(problem->a.alibi, lanes->head[lane]), *row = scratch + lane * (k1 - k0);
    int64_t position = hd_problem_place(problem, lanes->batch, lanes->row[lane]).position;
    for (int64_t key = k0; key < k1; key++) row[key - k0] = -slope * (float)(position > key ? position - key : key - position);
    rows[lane] = row;
  }
}

const hd_term_kind hd_term_alibi = {.name = "alibi", .active = active, .rows = rows};
