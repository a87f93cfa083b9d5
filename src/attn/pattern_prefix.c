/* pattern_prefix.c: keys of a prefix are seen by all queries, the others as under a causal pattern. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  for (int64_t b = 0; p->counts && b < problem->batch; b++)
    HD_TRY(hd_check_range(problem->context, "prefix: keys", p->counts[b], 0, INT64_MAX));
  return hd_check_range(problem->context, "prefix: keys", p->count, 0, INT64_MAX);
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern, (void)row;
  return 1;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  (void)i;
  return (hd_run){.end = HD_MAX(pattern->counts ? pattern->counts[row->batch] : pattern->count, row->position + 1)};
}

const hd_pattern_kind hd_pattern_prefix = {
    .name = "prefix",
    .check = check,
    .runs = runs,
    .run = run,
    .field = {{.name = "keys", .number = offsetof(heed_pattern, count)}},
    .needed = 1,
};
