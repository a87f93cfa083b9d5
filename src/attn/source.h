/* source.h: where keys and values come from. The kernel asks for rows of at most one tile of 64 keys and gets f32 rows with unit column stride: the memory itself
 * where it already is that, otherwise a copy in the worker's scratch.
 *
 * A source is a plain struct with one function, so a ring for windows or quantised pages is one more function here and nothing else. */
#ifndef HD_SOURCE_H
#define HD_SOURCE_H

#include "problem.h"

typedef struct hd_source hd_source;
struct hd_source {
  /* Keys [key, key + keys), all in the same tile of 64, of one key/value head. scratch has room for 64 × columns floats. */
  const float *(*rows)(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch, int64_t *stride);
  const hd_kernels *kernels;
  int64_t batch, heads, keys, columns;
  hd_grid grid; /* contiguous or strided memory */
  /* Pages: key j of entry b lies in page[b · pages + j / page_keys], at head · head_stride + (j mod page_keys) · row_stride elements. */
  const void *const *page;
  int64_t pages, page_keys, head_stride, row_stride;
  heed_type type;
};

/* Any view that hd_grid_make accepts, of type f32, f16 or bf16. */
heed_status hd_source_of_view(heed_context *context, const heed_view *view, const char *name, hd_source *out);

/* Rows of bf16 from `key` on as they lie, or NULL where they are anything else. */
const uint16_t *hd_source_bf16(const hd_source *source, int64_t batch, int64_t head, int64_t key, int64_t *stride);

/* A cache of pages, described by the fields above; page_keys is a multiple of 64. The caller fills batch, heads, keys, columns and the page fields; rows and kernels are set here. */
heed_status hd_source_of_pages(heed_context *context, hd_source *source);

#endif
