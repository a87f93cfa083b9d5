/* limit_bias.c: a bias of −inf hides the pair exactly as a boolean mask does. What else the bias does to the scores is the kernel's part. */
#include "limit.h"

#include <math.h>

static bool active(const hd_problem *problem) { return problem->a.bias != NULL; }

static uint64_t row_bits(const hd_grid *grid, const char *row, int keys) {
  int64_t step = grid->column_stride * grid->size;
  uint64_t bits = 0;
  if (grid->type == HEED_F32 && grid->column_stride == 1) {
    const float *values = (const float *)row;
    for (int key = 0; key < keys; key++) bits |= (uint64_t)(values[key] != -INFINITY) << key;
  } else {
    for (int key = 0; key < keys; key++) bits |= (uint64_t)(hd_element(row + key * step, grid->type) != -INFINITY) << key;
  }
  return bits;
}

static void hide(const hd_problem *problem, const hd_rect *rect, uint64_t *visible) {
  hd_hide_by_rows(&problem->bias, row_bits, rect, visible);
}

const hd_limit_kind hd_limit_bias = {.name = "bias", .active = active, .hide = hide};
