/* pattern_window.c: key j is visible to the query at position p iff p − left ≤ j ≤ p + right; a side that is absent is unlimited. */
#include "pattern.h"

static bool active(const hd_problem *problem) { return problem->a.has_window_left || problem->a.has_window_right; }

static void interval(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end) {
  int64_t position = query + hd_problem_offset(problem, batch);
  *begin = problem->a.has_window_left ? position - problem->a.window_left : 0;
  *end = problem->a.has_window_right ? position + problem->a.window_right + 1 : problem->keys;
}

const hd_pattern_kind hd_pattern_window = {.name = "window", .active = active, .interval = interval};
