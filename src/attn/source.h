/* source.h: where keys and values come from. A kernel asks for rows of at most one tile of 64 keys, either as they are stored, or as f32 rows with unit column stride: the memory itself where
 * it already is that, otherwise a copy in the worker's scratch.
 *
 * A source is a plain struct with one function that finds rows; views, the pages of a cache and its ring differ in nothing else. */
#ifndef HD_SOURCE_H
#define HD_SOURCE_H

#include "problem.h"

typedef struct hd_source hd_source;
struct hd_source {
  /* The rows from `key` to the end of its tile of 64, of one key/value head, as they are stored. False where a row's numbers are not neighbours. */
  bool (*stored)(const hd_source *source, int64_t batch, int64_t head, int64_t key, hd_stored *out);
  /* Keys [key, key + keys), all in the same tile of 64, as f32; scratch has room for 64 × columns floats. */
  const float *(*rows)(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch, int64_t *stride);
  const hd_kernels *kernels;
  int64_t batch, heads, keys, columns;
  bool bf16;    /* stored as bf16, a row's numbers neighbours */
  hd_grid grid; /* a view's */
  /* A cache's: entry b is sequence sequences[b] (NULL: b). */
  const heed_cache *cache;
  const int64_t *sequences;
  /* Those of rows that branch: entry b is row `first` + b. */
  const struct hd_branches *branches;
  int64_t layer, first;
  bool values;
};

/* Any view that hd_grid_make accepts, of type f32, f16 or bf16. */
heed_status hd_source_of_view(heed_context *context, const heed_view *view, const char *name, hd_source *out);

/* Rows of bf16 from `key` on as they lie, of a source that has them. */
const uint16_t *hd_source_bf16(const hd_source *source, int64_t batch, int64_t head, int64_t key, int64_t *stride);

/* The keys, or the values, of sequences that the cache has; `keys` is the length of the longest. The source borrows cache and sequences, and is good until the cache changes. */
void hd_source_of_cache(const heed_context *context, const heed_cache *cache, const int64_t *sequences, int64_t count, bool values,
                        hd_source *out);

/* The rows of keys that need not be neighbours, as `rows` gives them. */
const float *hd_key_rows(const hd_source *source, int64_t batch, int64_t head, const hd_keys *keys, float *scratch, int64_t *stride);

/* What every source's `rows` is. */
const float *hd_source_rows(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch, int64_t *stride);

#endif
