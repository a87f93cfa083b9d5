/* pattern.h: who may look at whom. A pattern answers for a rectangle of queries and keys; several together mean their intersection.
 *
 * A new pattern is one file pattern_<name>.c that defines one hd_pattern_kind, and one line in HD_PATTERN_LIST. Kernels never see patterns: they get a word of bits a key. */
#ifndef HD_PATTERN_H
#define HD_PATTERN_H

#include "problem.h"

typedef struct hd_pattern_kind {
  const char *name;
  /* Whether the description asks for this pattern. */
  bool (*active)(const hd_problem *problem);

  /* A pattern gives either this: query `query` sees keys [*begin, *end), both never falling as the query rises; may lie outside [0, keys) ... */
  void (*interval)(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end);

  /* ... or this: clears, in visible[key − k0], bit (query − q0) of every pair that is hidden. At most 64 queries and 64 keys. */
  void (*hide)(const hd_problem *problem, const hd_rect *rect, uint64_t *visible);
} hd_pattern_kind;

/* One line expands to the declaration of hd_pattern_<name> and to an entry of the table. */
#define HD_PATTERN_LIST(X)                                                                                                                 \
  X(causal)                                                                                                                                \
  X(window)                                                                                                                                \
  X(lengths)                                                                                                                               \
  X(documents)                                                                                                                             \
  X(attend)                                                                                                                                \
  X(bias)

#define HD_PATTERN_DECLARE(name) extern const hd_pattern_kind hd_pattern_##name;
HD_PATTERN_LIST(HD_PATTERN_DECLARE)
#undef HD_PATTERN_DECLARE

/* Fills problem->pattern from the description. */
void hd_patterns_choose(hd_problem *problem);

/* Keys outside [*begin, *end) are visible to none of the queries [q0, q1). Within [0, keys]; begin = end if there are none. */
void hd_visible_span(const hd_problem *problem, int64_t batch, int64_t q0, int64_t q1, int64_t *begin, int64_t *end);

/* The rectangle (at most 64 × 64) as bits, bit (query − q0) of visible[key − k0]; other bits are 0. */
hd_cover hd_visible_bits(const hd_problem *problem, const hd_rect *rect, uint64_t *visible);

/* For `hide`: clears the pairs whose bit is 0 in what row_bits says of each query's row (bit = key − k0) of an array laid over the problem. */
typedef uint64_t (*hd_row_bits)(const hd_grid *grid, const char *row, int keys);
void hd_hide_by_rows(const hd_grid *grid, hd_row_bits row_bits, const hd_rect *rect, uint64_t *visible);

#endif
