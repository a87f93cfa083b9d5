/* pattern_tree.c: tokens as the nodes of a binary tree, numbered from 1 row by row: a node sees itself, its parent and its first child, or both. */
#include "pattern.h"

static int64_t runs(const heed_pattern *pattern, const hd_row *row) {
  (void)pattern, (void)row;
  return 3;
}

static hd_run run(const heed_pattern *pattern, const hd_row *row, int64_t i) {
  const int64_t node = row->position + 1, key = node < 1 ? -1 : (i == 0 ? node / 2 : i == 1 ? node : 2 * node) - 1;
  if (key < 0) return (hd_run){0};
  return (hd_run){.begin = key, .end = key + 1 + (i == 2 && pattern->both_children)};
}

const hd_pattern_kind hd_pattern_tree = {
    .name = "tree",
    .runs = runs,
    .run = run,
    .field = {{.name = "both", .flag = offsetof(heed_pattern, both_children)}},
    .needed = 0,
};
