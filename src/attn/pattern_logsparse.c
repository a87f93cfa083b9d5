/* pattern_logsparse.c: LogSparse: a window, and beyond it keys at distances that grow by powers of 2; with a restart, within pieces of that many tokens. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  HD_TRY(hd_check_range(problem->context, "logsparse: window", p->left, 0, INT64_MAX));
  return hd_check_range(problem->context, "logsparse: restart", p->restart, 0, HD_FAR);
}

static heed_status fits(heed_context *context, const heed_pattern *p, int64_t tokens) {
  HD_REQUIRE(p->restart <= tokens, context, HEED_E_ARGUMENT, "logsparse: a restart of %lld is larger than %lld tokens",
             (long long)p->restart, (long long)tokens);
  return HEED_OK;
}

/* Powers of 2 that may lie between the query and a key. */
static int64_t powers(const hd_row *row) {
  const int64_t farthest = HD_MAX(row->position, row->keys - 1 - row->position);
  return farthest <= 0 ? 0 : 64 - __builtin_clzll((uint64_t)farthest);
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern;
  return 1 + 2 * powers(row);
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t left = HD_MIN(pattern->left, HD_FAR), restart = pattern->restart, distance = left + ((int64_t)1 << (i - 1) / 2);
  hd_run run = {.begin = row->position - left, .end = row->position + left + 1};
  if (i) {
    run.begin = i % 2 ? row->position - distance : row->position + distance;
    run.end = run.begin + 1;
  }
  if (restart) {
    const int64_t piece = hd_floor_div(row->position, restart) * restart;
    run.begin = HD_MAX(run.begin, piece);
    run.end = HD_MIN(run.end, piece + restart);
  }
  return run;
}

const hd_pattern_kind hd_pattern_logsparse = {
    .name = "logsparse",
    .check = check,
    .fits = fits,
    .runs = runs,
    .run = run,
    .field = {{.name = "window", .number = offsetof(heed_pattern, left)}, {.name = "restart", .number = offsetof(heed_pattern, restart)}},
    .needed = 0,
};
