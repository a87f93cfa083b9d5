/* pattern_blocks.c: the caller's own list of blocks, in CSR form: which blocks of keys a block of queries sees. */
#include "pattern.h"

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_check_range(context, "blocks: block", p->block, 1, HD_FAR));
  HD_REQUIRE(problem->queries % p->block == 0 && problem->keys % p->block == 0, context, HEED_E_ARGUMENT,
             "blocks: a block of %lld does not divide %lld queries and %lld keys", (long long)p->block, (long long)problem->queries,
             (long long)problem->keys);
  const int64_t rows = problem->queries / p->block, blocks = problem->keys / p->block;
  HD_TRY(hd_pattern_check_lists(problem, "blocks", p, rows));
  for (int64_t row = 0; row < HD_MAX(p->lists, 1) * rows; row++)
    for (int64_t t = p->row_begin[row]; t < p->row_begin[row + 1]; t++)
      HD_REQUIRE(p->begin[t] >= (t > p->row_begin[row] ? p->begin[t - 1] + 1 : 0) && p->begin[t] < blocks, context, HEED_E_ARGUMENT,
                 "blocks: row %lld has block %lld, allowed are blocks that ascend from 0 to %lld", (long long)row, (long long)p->begin[t],
                 (long long)(blocks - 1));
  return HEED_OK;
}

static const int64_t *list_of(const heed_pattern *pattern, const hd_row *row) {
  const int64_t rows = row->queries / pattern->block;
  return pattern->row_begin + (pattern->lists > 1 ? row->head * rows : 0) + row->query / pattern->block;
}

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  const int64_t *list = list_of(pattern, row);
  return list[1] - list[0];
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t begin = pattern->begin[*list_of(pattern, row) + i] * pattern->block;
  return (hd_run){.begin = begin, .end = begin + pattern->block};
}

static int64_t alike(const heed_pattern *pattern, const hd_row *row) { return pattern->block - row->query % pattern->block; }

static int64_t first(const heed_pattern *pattern, const hd_row *row, int64_t key) {
  const int64_t *list = list_of(pattern, row);
  int64_t low = list[0], high = list[1];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (pattern->begin[middle] < key / pattern->block) low = middle + 1;
    else high = middle;
  }
  return low - list[0];
}

const hd_pattern_kind hd_pattern_blocks = {
    .name = "blocks", .absolute = true, .check = check, .runs = runs, .run = run, .alike = alike, .first = first, .needed = -1};
