/* rows.h: rows of a tensor shared out over threads in pieces whose size follows from the shape alone, so that what a piece sums up does not depend on threads. */
#ifndef HD_OP_ROWS_H
#define HD_OP_ROWS_H

#include "../kern/kernels.h"
#include "../tensor/tensor.h"

/* A piece is some microseconds of work, and there are at most HD_PIECES, so that one number of each fits on the stack of who merges them. */
enum { HD_PIECE_NUMBERS = 16384, HD_PIECES = 256 };

typedef struct hd_row_work hd_row_work;
struct hd_row_work {
  const hd_node *node;
  void (*piece)(const hd_row_work *work, int64_t piece, int64_t from, int64_t to); /* rows [from, to) */
  int64_t rows, columns;
  float *gradient; /* backward: where it goes, and whether it is added to what is there */
  bool add;
  void *sums;                /* an element a piece, merged by the caller in their order */
  int64_t most;              /* pieces at most; 0: HD_PIECES */
  const hd_kernels *kernels; /* these two are filled in */
  int64_t block;
};

static inline int64_t hd_row_block(const hd_row_work *work) {
  return HD_MAX(HD_MAX(hd_ceil_div(work->rows, work->most ? work->most : HD_PIECES), HD_PIECE_NUMBERS / HD_MAX(work->columns, 1)), 1);
}
static inline int64_t hd_row_pieces(const hd_row_work *work) { return hd_ceil_div(work->rows, hd_row_block(work)); }

static inline void hd_row_piece(void *argument, int64_t i, int worker) {
  (void)worker;
  const hd_row_work *work = argument;
  work->piece(work, i, i * work->block, HD_MIN(work->rows, (i + 1) * work->block));
}

static inline void hd_row_run(heed_context *context, hd_row_work *work) {
  work->kernels = hd_kernels_of(context);
  work->block = hd_row_block(work);
  hd_parallel_near(context, hd_row_pieces(work), hd_row_piece, work);
}

#endif
