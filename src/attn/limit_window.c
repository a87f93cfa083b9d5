/* limit_window.c: key j is visible to the query at position p iff p − left ≤ j ≤ p + right; a side that is absent is unlimited. */
#include "limit.h"

static bool active(const hd_problem *problem) { return problem->a.has_window_left || problem->a.has_window_right; }

static void interval(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end) {
  hd_place place = hd_problem_place(problem, batch, query);
  // Kept within the document, so that neither end ever falls.
  *begin = problem->a.has_window_left ? HD_CLAMP(place.position - problem->a.window_left, place.begin, place.end) : 0;
  *end = problem->a.has_window_right ? HD_CLAMP(place.position + problem->a.window_right + 1, place.begin, place.end) : problem->keys;
}

const hd_limit_kind hd_limit_window = {.name = "window", .active = active, .interval = interval};
