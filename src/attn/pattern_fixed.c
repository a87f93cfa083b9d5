/* pattern_fixed.c: Sparse Transformer's fixed pattern: the query's own block of `stride` tokens, and the last `columns` tokens of every block, which sum it up. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  HD_TRY(hd_check_range(problem->context, "fixed: stride", p->stride, 1, HD_FAR));
  return hd_check_range(problem->context, "fixed: columns", p->columns, 0, p->stride);
}

static heed_status fits(heed_context *context, const heed_pattern *p, int64_t tokens) {
  HD_REQUIRE(p->stride <= tokens, context, HEED_E_ARGUMENT, "fixed: a stride of %lld is larger than %lld tokens", (long long)p->stride,
             (long long)tokens);
  return HEED_OK;
}

/* The columns of the blocks before and behind, and of the query's own block those columns or everything. */
static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern, (void)row;
  return 3;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t stride = pattern->stride, columns = pattern->columns, own = hd_floor_div(row->position, stride) * stride;
  if (i == 2) return (hd_run){.begin = own + (pattern->columns_only ? stride - columns : 0), .end = own + stride};
  if (columns == 0) return (hd_run){0};
  return (hd_run){.begin = (i ? HD_MAX(own, -stride) + stride : 0) + stride - columns,
                  .end = i ? row->keys : HD_MIN(own, row->keys),
                  .step = stride,
                  .width = columns,
                  .order = columns < stride ? HD_SUMMARY : HD_IN_PLACE};
}

static hd_order_kind order(const heed_pattern *pattern, int64_t head, int64_t *step, int64_t *width, bool *all) {
  (void)head;
  *step = pattern->stride;
  *width = pattern->columns;
  *all = false;
  return *width > 0 && *width < *step ? HD_SUMMARY : HD_IN_PLACE;
}

static int64_t alike(const heed_pattern *pattern, const hd_row *row) {
  return pattern->stride - hd_floor_mod(row->position, pattern->stride);
}

const hd_pattern_kind hd_pattern_fixed = {
    .name = "fixed",
    .check = check,
    .fits = fits,
    .runs = runs,
    .run = run,
    .order = order,
    .alike = alike,
    .field = {{.name = "stride", .number = offsetof(heed_pattern, stride)},
              {.name = "columns", .number = offsetof(heed_pattern, columns)},
              {.name = "summary", .flag = offsetof(heed_pattern, columns_only)}},
    .needed = 2,
};
