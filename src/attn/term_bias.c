/* term_bias.c: a bias tensor. That its −inf hides a pair is pattern_bias.c's part. */
#include "term.h"

static bool active(const hd_problem *problem) { return problem->a.bias != NULL; }

static void rows(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows) {
  hd_lane_rows(problem->kernels, &problem->bias, lanes, k0, k1 - k0, scratch, rows);
}

const hd_term_kind hd_term_bias = {.name = "bias", .active = active, .rows = rows};
