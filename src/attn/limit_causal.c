/* limit_causal.c: key j is visible to the query at position p iff j ≤ p. */
#include "limit.h"

static bool active(const hd_problem *problem) { return problem->a.causal; }

static void interval(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end) {
  hd_place place = hd_problem_place(problem, batch, query);
  *begin = 0;
  *end = HD_CLAMP(place.position + 1, place.begin, place.end); // kept within the document, so that it never falls
}

const hd_limit_kind hd_limit_causal = {.name = "causal", .active = active, .interval = interval};
