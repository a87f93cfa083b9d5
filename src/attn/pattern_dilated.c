/* pattern_dilated.c: a window of every dilation-th key, p + i · dilation for −left ≤ i ≤ right; the dilation may be one of a head's own. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_check_range(context, "dilated: left", p->left, 0, INT64_MAX));
  HD_TRY(hd_check_range(context, "dilated: right", p->right, 0, INT64_MAX));
  if (!p->dilations) return hd_check_range(context, "dilated: dilation", p->dilation, 1, HD_FAR);
  HD_REQUIRE(p->count == 0 || p->count == problem->heads, context, HEED_E_SHAPE, "dilated: %lld dilations for %lld heads",
             (long long)p->count, (long long)problem->heads);
  for (int64_t h = 0; h < problem->heads; h++) HD_TRY(hd_check_range(context, "dilated: dilation", p->dilations[h], 1, HD_FAR));
  return HEED_OK;
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern, (void)row;
  return 1;
}

/* Key number t of the query's class is t · dilation + rest; the query itself is number `own`. */
static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t dilation = pattern->dilations ? pattern->dilations[row->head] : pattern->dilation;
  const int64_t own = hd_floor_div(row->position, dilation), rest = hd_floor_mod(row->position, dilation);
  const int64_t last = hd_floor_div(row->keys - 1 - rest, dilation); // of the keys there are
  const int64_t from = HD_MAX(own - HD_MIN(pattern->left, HD_FAR), 0), to = HD_MIN(own + HD_MIN(pattern->right, HD_FAR), last);
  (void)i;
  if (from > to) return (hd_run){0};
  return (hd_run){.begin = from * dilation + rest, .end = to * dilation + rest + 1, .step = dilation, .width = 1, .order = HD_BY_CLASSES};
}

static hd_order_kind order(const heed_pattern *pattern, int64_t head, int64_t *step, int64_t *width, bool *all) {
  *step = pattern->dilations ? pattern->dilations[head] : pattern->dilation;
  *width = 1;
  *all = true;
  return *step > 1 ? HD_BY_CLASSES : HD_IN_PLACE;
}

static void complete(heed_pattern *pattern, int given) {
  if (given < 3) pattern->right = pattern->left;
}

const hd_pattern_kind hd_pattern_dilated = {
    .name = "dilated",
    .check = check,
    .runs = runs,
    .run = run,
    .order = order,
    .field = {{.name = "left", .number = offsetof(heed_pattern, left)},
              {.name = "dilation",
               .number = offsetof(heed_pattern, dilation),
               .list = offsetof(heed_pattern, dilations),
               .count = offsetof(heed_pattern, count)},
              {.name = "right", .number = offsetof(heed_pattern, right)}},
    .needed = 2,
    .complete = complete,
};
