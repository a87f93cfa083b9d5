/* limit.h: what a description itself says about who may look at whom: causal, window, lengths, documents, masks. Several together mean their intersection, and that with the
 * pattern (pattern.h) is what is visible (visible.h).
 *
 * A new limit is one file limit_<name>.c that defines one hd_limit_kind, and one line in HD_LIMIT_LIST. */
#ifndef HD_LIMIT_H
#define HD_LIMIT_H

#include "problem.h"

typedef struct hd_limit_kind {
  const char *name;
  /* Whether the description asks for this limit. */
  bool (*active)(const hd_problem *problem);

  /* A limit gives either this: query `query` sees keys [*begin, *end), both never falling as the query rises, and without documents by at most one from a query to the next; may lie outside
   * [0, keys) ... */
  void (*interval)(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end);

  /* ... or this: clears, in visible[key − k0], bit (query − q0) of every pair that is hidden. At most 64 queries and 64 keys. */
  void (*hide)(const hd_problem *problem, const hd_rect *rect, uint64_t *visible);
} hd_limit_kind;

/* One line expands to the declaration of hd_limit_<name> and to an entry of the table. */
#define HD_LIMIT_LIST(X)                                                                                                                   \
  X(causal)                                                                                                                                \
  X(window)                                                                                                                                \
  X(lengths)                                                                                                                               \
  X(documents)                                                                                                                             \
  X(attend)                                                                                                                                \
  X(bias)

#define HD_LIMIT_DECLARE(name) extern const hd_limit_kind hd_limit_##name;
HD_LIMIT_LIST(HD_LIMIT_DECLARE)
#undef HD_LIMIT_DECLARE

/* The limits' part of hd_visible_bits. */
hd_cover hd_limit_bits(const hd_problem *problem, const hd_rect *rect, uint64_t *visible);

/* Rows of bits to columns of bits. */
void hd_transpose_bits(uint64_t bits[64]);

/* For `hide`: clears the pairs whose bit is 0 in what row_bits says of each query's row (bit = key − k0) of an array laid over the problem. */
typedef uint64_t (*hd_row_bits)(const hd_grid *grid, const char *row, int keys);
void hd_hide_by_rows(const hd_grid *grid, hd_row_bits row_bits, const hd_rect *rect, uint64_t *visible);

#endif
