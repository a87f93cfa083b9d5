/* pattern_global.c: global tokens see every key, and every query sees them. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_check_range(context, "global: tokens", p->count, 0, INT64_MAX));
  for (int64_t i = 0; p->tokens && i < p->count; i++)
    HD_REQUIRE(p->tokens[i] >= 0 && (i == 0 || p->tokens[i] > p->tokens[i - 1]), context, HEED_E_ARGUMENT,
               "global: token %lld is %lld, and they must ascend from 0", (long long)i, (long long)p->tokens[i]);
  return HEED_OK;
}

/* The first of the tokens that is not below `token`; count where all are. */
static int64_t find(const heed_pattern *pattern, int64_t token) {
  int64_t low = 0, high = pattern->count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (pattern->tokens[middle] < token) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool is_global(const heed_pattern *pattern, int64_t token) {
  if (!pattern->tokens) return token >= 0 && token < pattern->count;
  const int64_t i = find(pattern, token);
  return i < pattern->count && pattern->tokens[i] == token;
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  return !pattern->tokens || is_global(pattern, row->position) ? 1 : pattern->count;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  if (is_global(pattern, row->position)) return (hd_run){.end = row->keys};
  return pattern->tokens ? (hd_run){.begin = pattern->tokens[i], .end = pattern->tokens[i] + 1} : (hd_run){.end = pattern->count};
}

/* Up to the next global token, or the end of the first ones. */
static int64_t alike(const heed_pattern *pattern, const hd_row *row) {
  const int64_t token = row->position;
  if (is_global(pattern, token)) return pattern->tokens ? 1 : pattern->count - token;
  if (!pattern->tokens) return token < 0 ? -token : INT64_MAX;
  const int64_t next = find(pattern, token);
  return next < pattern->count ? pattern->tokens[next] - token : INT64_MAX;
}

static int64_t first(const heed_pattern *pattern, const hd_row *row, int64_t key) {
  return !pattern->tokens || is_global(pattern, row->position) ? 0 : find(pattern, key);
}

const hd_pattern_kind hd_pattern_global = {
    .name = "global",
    .check = check,
    .runs = runs,
    .run = run,
    .alike = alike,
    .first = first,
    .field = {{.name = "tokens",
               .number = offsetof(heed_pattern, count),
               .list = offsetof(heed_pattern, tokens),
               .count = offsetof(heed_pattern, count)}},
    .needed = 1,
};
