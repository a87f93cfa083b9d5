/* limit_lengths.c: each batch entry has its own number of keys; what lies beyond is padding. */
#include "limit.h"

static bool active(const hd_problem *problem) { return problem->a.key_lengths; }

static void interval(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end) {
  (void)query;
  *begin = 0;
  *end = problem->a.key_lengths[batch];
}

const hd_limit_kind hd_limit_lengths = {.name = "lengths", .active = active, .interval = interval};
