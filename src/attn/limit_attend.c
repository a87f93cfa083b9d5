/* limit_attend.c: an arbitrary boolean array: a byte that is not 0 means that the query may look at the key. */
#include "limit.h"

static bool active(const hd_problem *problem) { return problem->a.attend != NULL; }

/* Bit i for byte i of eight that is not 0: the addition carries into a byte's top bit unless its low bits are all 0, and the product gathers the eight top bits. */
static uint64_t bytes_set(const uint8_t *bytes) {
  const uint64_t low = 0x7f7f7f7f7f7f7f7f;
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  uint64_t top = (((word & low) + low) | word) & ~low;
  return (top >> 7) * 0x0102040810204080 >> 56;
}

static uint64_t row_bits(const hd_grid *grid, const char *row, int keys) {
  const uint8_t *bytes = (const uint8_t *)row;
  uint64_t bits = 0;
  int key = 0;
  if (grid->column_stride == 1)
    for (; key + 8 <= keys; key += 8) bits |= bytes_set(bytes + key) << key;
  for (; key < keys; key++) bits |= (uint64_t)(bytes[key * grid->column_stride] != 0) << key;
  return bits;
}

static void hide(const hd_problem *problem, const hd_rect *rect, uint64_t *visible) {
  hd_hide_by_rows(&problem->attend, row_bits, rect, visible);
}

const hd_limit_kind hd_limit_attend = {.name = "attend", .active = active, .hide = hide};
