/* term.h: what is added to the scores after scale and softcap: a bias tensor, ALiBi, learned relative positions.
 *
 * A new term is one file term_<name>.c that defines one hd_term_kind, and one line in HD_TERM_LIST. A term
 * that needs a product with the query (Transformer-XL) is a score instead (score_xl.c). Kernels never see terms: they get one number a pair. */
#ifndef HD_TERM_H
#define HD_TERM_H

#include "lanes.h"

typedef struct hd_term_kind {
  const char *name;
  /* Whether the description asks for this term. */
  bool (*active)(const hd_problem *problem);
  /* What it adds, in natural units, for the queries in lanes and keys [k0, k1), at most one tile: rows[lane] points to k1 − k0 numbers, in the caller's memory or in
   * scratch [lanes][k1 − k0]. */
  void (*rows)(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows);
} hd_term_kind;

/* One line expands to the declaration of hd_term_<name> and to an entry of the table. */
#define HD_TERM_LIST(X)                                                                                                                    \
  X(bias)                                                                                                                                  \
  X(alibi)                                                                                                                                 \
  X(relative)

#define HD_TERM_DECLARE(name) extern const hd_term_kind hd_term_##name;
HD_TERM_LIST(HD_TERM_DECLARE)
#undef HD_TERM_DECLARE

/* The rows of a term that depends on key − position alone: lanes that stand one behind another share their numbers, so each is asked for once. */
void hd_term_by_distance(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows,
                         float (*value)(const hd_problem *problem, int64_t head, int64_t distance));

/* The row of the table of relative positions that key − position has. */
int64_t hd_relative_bucket(const heed_attention *a, int64_t distance);

/* Fills problem->term from the description. */
void hd_terms_choose(hd_problem *problem);

/* The sum of all terms in lanes: out [k1 − k0][padded]. scratch [lanes][64]. Nothing is done, and false returned, where there are none. */
bool hd_terms_in_lanes(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, float *out, int padded);

/* The same for keys that need not be neighbours. */
bool hd_key_terms(const hd_problem *problem, const hd_lanes *lanes, const hd_keys *keys, float *scratch, float *out, int padded);

#endif
