/* branches.h: keys and values of rows that grow by one key a step together and go on from one another between steps, as the targets of a beam search do.
 *
 * A key is written once, to the place of the row that made it, and stays there: a row knows of each of its keys which row's place it is in. So to go on from another row copies numbers of
 * rows, never keys, and rows that have a past in common read the same memory. */
#ifndef HD_BRANCHES_H
#define HD_BRANCHES_H

#include "source.h"

typedef struct hd_branches hd_branches;

/* For at most `rows` rows. HEED_E_MEMORY, HEED_E_OVERFLOW. */
heed_status hd_branches_new(heed_context *context, int64_t layers, int64_t kv_heads, int64_t d, int64_t rows, hd_branches **out);
void hd_branches_free(hd_branches *branches);

/* There are now `rows` rows without a key. */
void hd_branches_begin(hd_branches *branches, int64_t rows);
/* Rows [0, rows) of which r goes on from what was row parents[r]. */
void hd_branches_choose(hd_branches *branches, int64_t rows, const int32_t *parents);
/* Room for one key more of every row, which must then be given to each layer. HEED_E_MEMORY: nothing has changed. */
heed_status hd_branches_grow(hd_branches *branches);
/* The last key of every row: row r's heads lie one behind another at k + r · stride, those of the values at v + r · stride. */
void hd_branches_put(hd_branches *branches, int64_t layer, const float *k, const float *v, int64_t stride);

/* The keys, or the values, of a layer: entry b is row `first` + b. It borrows the branches, and is good until they change. */
void hd_source_of_branches(const hd_branches *branches, int64_t layer, int64_t first, int64_t count, bool values, hd_source *out);

#endif
