/* pattern_ranges.c: the caller's own ranges of keys for each query, in CSR form. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_pattern_check_lists(problem, "ranges", p, problem->queries));
  HD_REQUIRE(p->end, context, HEED_E_ARGUMENT, "ranges: end is null");
  for (int64_t row = 0; row < HD_MAX(p->lists, 1) * problem->queries; row++)
    for (int64_t t = p->row_begin[row], before = 0; t < p->row_begin[row + 1]; before = p->end[t++])
      HD_REQUIRE(p->begin[t] >= before && p->end[t] >= p->begin[t] && p->end[t] <= problem->keys, context, HEED_E_ARGUMENT,
                 "ranges: row %lld has keys %lld to %lld, allowed are ranges that ascend within 0 to %lld", (long long)row,
                 (long long)p->begin[t], (long long)p->end[t], (long long)problem->keys);
  return HEED_OK;
}

static const int64_t *list_of(const heed_pattern *pattern, const hd_row *row) {
  return pattern->row_begin + (pattern->lists > 1 ? row->head * row->queries : 0) + row->query;
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  const int64_t *list = list_of(pattern, row);
  return list[1] - list[0];
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t at = *list_of(pattern, row) + i;
  return (hd_run){.begin = pattern->begin[at], .end = pattern->end[at]};
}

static int64_t first(const heed_pattern *pattern, const hd_row *row, int64_t key) {
  const int64_t *list = list_of(pattern, row);
  int64_t low = list[0], high = list[1];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (pattern->end[middle] <= key) low = middle + 1;
    else high = middle;
  }
  return low - list[0];
}

const hd_pattern_kind hd_pattern_ranges = {
    .name = "ranges", .absolute = true, .check = check, .runs = runs, .run = run, .first = first, .needed = -1};
