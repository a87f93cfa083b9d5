/* pattern_strided.c: Sparse Transformer's strided pattern: the stride's keys around the query, and every stride-th key from it. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  return hd_check_range(problem->context, "strided: stride", p->stride, 1, HD_FAR);
}

static heed_status fits(heed_context *context, const heed_pattern *p, int64_t tokens) {
  HD_REQUIRE(p->stride <= tokens, context, HEED_E_ARGUMENT, "strided: a stride of %lld is larger than %lld tokens", (long long)p->stride,
             (long long)tokens);
  return HEED_OK;
}

/* All columns; or those behind and ahead, and between them what lies around the query. */
static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)row;
  return pattern->columns_only ? 1 : 3;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t stride = pattern->stride, rest = hd_floor_mod(row->position, stride);
  hd_run run = {.begin = rest, .end = row->keys, .step = stride, .width = 1, .order = HD_BY_CLASSES};
  if (i == 2) return (hd_run){.begin = row->position - stride + 1, .end = row->position + stride};
  if (i == 1) run.begin = HD_MAX(row->position, rest - stride) + stride;
  if (i == 0 && !pattern->columns_only) run.end = HD_MIN(row->position, row->keys);
  return run;
}

static hd_order_kind order(const heed_pattern *pattern, int64_t head, int64_t *step, int64_t *width, bool *all) {
  (void)head;
  *step = pattern->stride;
  *width = 1;
  *all = pattern->columns_only;
  return *step > 1 ? HD_BY_CLASSES : HD_IN_PLACE;
}

const hd_pattern_kind hd_pattern_strided = {
    .name = "strided",
    .check = check,
    .fits = fits,
    .runs = runs,
    .run = run,
    .order = order,
    .field = {{.name = "stride", .number = offsetof(heed_pattern, stride)},
              {.name = "columns", .flag = offsetof(heed_pattern, columns_only)}},
    .needed = 1,
};
