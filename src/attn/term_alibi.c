/* term_alibi.c: −slope · |p − j|, a slope a head: the farther a key, the less it counts (Press, Smith, Lewis, "Train Short, Test Long", 2022). */
#include "term.h"

static bool active(const hd_problem *problem) { return problem->a.alibi != NULL; }

static float value(const hd_problem *problem, int64_t head, int64_t distance) {
  return -(float)hd_per_head(problem->a.alibi, head) * (float)(distance < 0 ? -distance : distance);
}

static void rows(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows) {
  hd_term_by_distance(problem, lanes, k0, k1, scratch, rows, value);
}

const hd_term_kind hd_term_alibi = {.name = "alibi", .active = active, .rows = rows};
