/* limit.c: several limits as one: the span of keys that matter to some queries, and the bits of a rectangle. */
#include "limit.h"
#include "visible.h"

#define ENTRY(name) &hd_limit_##name,
static const hd_limit_kind *const kinds[] = {HD_LIMIT_LIST(ENTRY)};

void hd_limits_choose(hd_problem *problem) {
  _Static_assert(sizeof kinds / sizeof *kinds <= sizeof problem->limit / sizeof *problem->limit, "room for every limit at once");
  problem->limits = 0;
  for (int i = 0; i < HD_COUNT(kinds); i++)
    if (kinds[i]->active(problem)) problem->limit[problem->limits++] = kinds[i];
}

void hd_limit_span(const hd_problem *problem, int64_t batch, int64_t q0, int64_t q1, int64_t *begin, int64_t *end) {
  *begin = 0;
  *end = problem->keys;
  for (int i = 0; i < problem->limits; i++) {
    if (!problem->limit[i]->interval) continue;
    // Intervals never fall, so the first query sees the first key of all and the last query the last.
    int64_t first, last, unused;
    problem->limit[i]->interval(problem, batch, q0, &first, &unused);
    problem->limit[i]->interval(problem, batch, q1 - 1, &unused, &last);
    *begin = HD_MAX(*begin, first);
    *end = HD_MIN(*end, last);
  }
  *end = HD_MAX(*begin, *end);
}

void hd_limit_whole(const hd_problem *problem, int64_t batch, int64_t q0, int64_t q1, int64_t *from, int64_t *to) {
  *from = 0;
  *to = problem->keys;
  for (int i = 0; i < problem->limits; i++) {
    int64_t first, last, unused;
    if (!problem->limit[i]->interval) {
      *to = 0;
      return;
    }
    problem->limit[i]->interval(problem, batch, q1 - 1, &first, &unused);
    problem->limit[i]->interval(problem, batch, q0, &unused, &last);
    *from = HD_MAX(*from, first);
    *to = HD_MIN(*to, last);
  }
}

/* Of queries whose bound is `first` and rises by one from each to the next, or stays: those whose bound has come to the key. */
static uint64_t come_to(int64_t key, int64_t first, bool rises) {
  const int64_t count = rises ? HD_CLAMP(key - first + 1, 0, 64) : key >= first ? 64 : 0;
  return count == 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}

/* Clears the pairs that an interval limit hides. The queries that see a key are neighbours: those whose begin has come to it and whose end has not passed it. */
static void hide_outside(const hd_problem *problem, const hd_limit_kind *kind, const hd_rect *rect, uint64_t *visible) {
  const int64_t last = rect->q1 - rect->q0 - 1;
  int64_t begin[64], end[64];
  kind->interval(problem, rect->batch, rect->q0, &begin[0], &end[0]);
  kind->interval(problem, rect->batch, rect->q1 - 1, &begin[last], &end[last]);
  const int64_t rise = begin[last] - begin[0], end_rise = end[last] - end[0];
  if (!problem->a.documents && (rise == 0 || rise == last) && (end_rise == 0 || end_rise == last)) { // as nearly always
    for (int64_t key = rect->k0; key < rect->k1; key++)
      visible[key - rect->k0] &= come_to(key, begin[0], rise) & ~come_to(key, end[0], end_rise);
    return;
  }
  for (int64_t i = 1; i < last; i++) kind->interval(problem, rect->batch, rect->q0 + i, &begin[i], &end[i]);
  for (int64_t key = rect->k0, starting = 0, ending = 0; key < rect->k1; key++) {
    while (starting <= last && begin[starting] <= key) starting++;
    while (ending <= last && end[ending] <= key) ending++;
    visible[key - rect->k0] &= come_to(starting, 1, true) & ~come_to(ending, 1, true); // queries [ending, starting)
  }
}

/* What an interval limit says of a whole rectangle, from its corners. */
static hd_cover interval_cover(const hd_problem *problem, const hd_limit_kind *kind, const hd_rect *rect) {
  int64_t first_begin, first_end, last_begin, last_end;
  kind->interval(problem, rect->batch, rect->q0, &first_begin, &first_end);
  kind->interval(problem, rect->batch, rect->q1 - 1, &last_begin, &last_end);
  if (last_end <= rect->k0 || first_begin >= rect->k1) return HD_EMPTY;
  return last_begin <= rect->k0 && first_end >= rect->k1 ? HD_FULL : HD_PARTIAL;
}

hd_cover hd_limit_bits(const hd_problem *problem, const hd_rect *rect, uint64_t *visible) {
  int keys = (int)(rect->k1 - rect->k0), queries = (int)(rect->q1 - rect->q0);
  const uint64_t all = ~(uint64_t)0 >> (64 - queries);
  hd_cover cover = HD_FULL;
  hd_cover each[HD_COUNT(kinds)];
  for (int i = 0; i < problem->limits; i++) {
    each[i] = problem->limit[i]->interval ? interval_cover(problem, problem->limit[i], rect) : HD_PARTIAL;
    cover = HD_MIN(cover, each[i]);
  }
  if (cover == HD_EMPTY) return HD_EMPTY;
  for (int key = 0; key < keys; key++) visible[key] = all;
  if (cover == HD_FULL) return HD_FULL;
  for (int i = 0; i < problem->limits; i++) {
    if (each[i] == HD_FULL) continue;
    if (problem->limit[i]->interval) {
      hide_outside(problem, problem->limit[i], rect, visible);
    } else {
      problem->limit[i]->hide(problem, rect, visible);
    }
  }
  uint64_t any = 0, every = all;
  for (int key = 0; key < keys; key++) {
    any |= visible[key];
    every &= visible[key];
  }
  return !any ? HD_EMPTY : every == all ? HD_FULL : HD_PARTIAL;
}

/* Exchanges the off-diagonal quarters of ever smaller squares. */
void hd_transpose_bits(uint64_t bits[64]) {
  uint64_t mask = 0x00000000ffffffff;
  for (int half = 32; half; half /= 2, mask ^= mask << half)
    for (int i = 0; i < 64; i = ((i | half) + 1) & ~half) {
      uint64_t swap = (bits[i] >> half ^ bits[i | half]) & mask;
      bits[i] ^= swap << half;
      bits[i | half] ^= swap;
    }
}

void hd_hide_by_rows(const hd_grid *grid, hd_row_bits row_bits, const hd_rect *rect, uint64_t *visible) {
  int keys = (int)(rect->k1 - rect->k0);
  uint64_t bits[64] = {0};
  for (int64_t query = rect->q0; query < rect->q1; query++) {
    const char *row = hd_grid_row(grid, rect->batch, rect->head, query) + rect->k0 * grid->column_stride * grid->size;
    bits[query - rect->q0] = row_bits(grid, row, keys);
  }
  hd_transpose_bits(bits);
  for (int key = 0; key < keys; key++) visible[key] &= bits[key];
}
