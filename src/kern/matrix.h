/* matrix.h: a weight matrix as a file stores it, packed once for the kernels, and its product with rows of activations.
 *
 * y[r][o] = Σ_i x[r][i] · w[o][i] (+ bias[o]), one fused chain over ascending i per output, so that the bits of a row depend neither on the number of rows (one row
 * when decoding, many when prefilling) nor on threads or level. w is the f32 value of the stored number (hd_dequantise). Packing puts outputs into lanes: panels of 16
 * outputs, input index major, in the file's own precision (sizes a weight: F64 becomes f32; Q2_K 3.125 bits for 2.625, Q3_K 3.56 for 3.44, Q4_K 4.625 for 4.5, Q5_K
 * 5.625 for 5.5; all others as in the file). Every type has its own compiled loops; none takes a detour. */
#ifndef HD_MATRIX_H
#define HD_MATRIX_H

#include "../base/base.h"
#include "../base/storage.h"

typedef struct hd_matrix {
  hd_storage storage; /* of the file */
  int64_t outputs, inputs;
  int64_t bytes;      /* of packed */
  const void *packed; /* owned by the arena it was packed into */
} hd_matrix;

/* rows: outputs × inputs in the file's layout, each row a whole number of blocks. Runs on the context's threads. HEED_E_SHAPE, HEED_E_MEMORY, HEED_E_OVERFLOW. */
heed_status hd_matrix_pack(heed_context *context, hd_arena *arena, hd_storage storage, int64_t outputs, int64_t inputs, const void *rows,
                           hd_matrix *out);

/* y [rows, outputs] with row stride y_stride; x [rows, inputs] with row stride x_stride; bias [outputs] or NULL. y must not overlap x. HEED_E_MEMORY: y is untouched; a single row needs no memory. */
heed_status hd_matrix_product(heed_context *context, const hd_matrix *matrix, const float *x, int64_t rows, int64_t x_stride,
                              const float *bias, float *y, int64_t y_stride);

/* The product with the matrix the other way round, for gradients: y[r][i] (+)= Σ_o x[r][o] · w[o][i], one fused chain over ascending o that begins at what y holds if `accumulate`.
 * x [rows, outputs], y [rows, inputs]. HEED_E_MEMORY: y is untouched. */
heed_status hd_matrix_product_turned(heed_context *context, const hd_matrix *matrix, const float *x, int64_t rows, int64_t x_stride,
                                     bool accumulate, float *y, int64_t y_stride);

/* The inputs values of one output's row, exactly those the product uses: an embedding looked up. */
void hd_matrix_row(const heed_context *context, const hd_matrix *matrix, int64_t output, float *out);

/* Rows [first, first + rows) of them, [rows, inputs], on the context's threads. */
void hd_matrix_rows(const heed_context *context, const hd_matrix *matrix, int64_t first, int64_t rows, float *out);

/* n stored elements (whole blocks) as f32: the meaning of every storage type, one place. */
void hd_dequantise(hd_storage storage, const void *blocks, int64_t n, float *out);

/* What the kernels see of a packed matrix. */
struct hd_panels hd_matrix_panels(const hd_matrix *matrix);

#endif
