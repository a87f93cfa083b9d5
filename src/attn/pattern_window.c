/* pattern_window.c: the keys around a query: p − left ≤ j ≤ p + right. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_check_range(context, "window: left", p->left, 0, INT64_MAX));
  return hd_check_range(context, "window: right", p->right, 0, INT64_MAX);
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern, (void)row;
  return 1;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  (void)i;
  return (hd_run){.begin = row->position - HD_MIN(pattern->left, HD_FAR), .end = row->position + HD_MIN(pattern->right, HD_FAR) + 1};
}

static void complete(heed_pattern *pattern, int given) {
  if (given < 2) pattern->right = pattern->left;
}

const hd_pattern_kind hd_pattern_window = {
    .name = "window",
    .check = check,
    .runs = runs,
    .run = run,
    .field = {{.name = "left", .number = offsetof(heed_pattern, left)}, {.name = "right", .number = offsetof(heed_pattern, right)}},
    .needed = 1,
    .complete = complete,
};
