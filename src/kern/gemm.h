/* gemm.h: the matrix product on pointers and strides, for callers inside the library that have checked their shapes; heed_gemm is the same on views. */
#ifndef HD_GEMM_H
#define HD_GEMM_H

#include "kernels.h"

enum { HD_GEMM_BATCH = HEED_MAX_DIM - 2 };

/* c[r][o] (+)= Σ_i a[r][i] b[i][o] (+ bias[o]) for every entry of a batch. Transposition is a matter of strides. */
typedef struct hd_gemm_call {
  int64_t rows, outputs, inputs;
  hd_rectangle a;    /* [rows, inputs] */
  hd_rectangle b;    /* [inputs, outputs] */
  hd_rectangle c;    /* [rows, outputs]; no two of its elements, over the batch, share memory, nor does it overlap a, b or bias */
  hd_rectangle bias; /* one row of outputs; data NULL: none */
  bool accumulate;   /* chains begin at what c holds, otherwise at 0 */
  int batch_rank;    /* 0: one product */
  int64_t batch[HD_GEMM_BATCH];
  int64_t a_batch[HD_GEMM_BATCH], b_batch[HD_GEMM_BATCH],
      c_batch[HD_GEMM_BATCH]; /* strides in elements; 0 in a or b: shared by the batch */
} hd_gemm_call;

/* Runs on the context's threads. Each element is one fused chain over ascending i, in f32, so its bits depend on nothing but its row of a and its column of b. HEED_E_MEMORY: c is
 * untouched. */
heed_status hd_gemm(heed_context *context, const hd_gemm_call *call);

#endif
