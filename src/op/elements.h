/* elements.h: what operations have in common that work on each element, or move runs of elements, or sum rows. */
#ifndef HD_OP_ELEMENTS_H
#define HD_OP_ELEMENTS_H

#include "list.h"

#include "rows.h"

/* Rows of `width` elements; work is called for runs of them. What a, b and out are is the operation's affair. */
typedef struct hd_elements {
  hd_row_work cut; /* filled in */
  void (*work)(const struct hd_elements *e, int64_t first, int64_t rows);
  int64_t rows, width; /* width 1: plain elements */
  const hd_node *node;
  const hd_kernels *kernels; /* filled in */
  const float *a, *b;
  float *out;
  bool accumulate;
  float factor;
} hd_elements;

void hd_elements_run(heed_context *context, hd_elements *e);

/* to (+)= from, count elements. */
void hd_elements_pass(heed_context *context, const float *from, int64_t count, bool accumulate, float *to);
/* to (+)= factor · from. */
void hd_elements_scale(heed_context *context, const float *from, float factor, int64_t count, bool accumulate, float *to);

/* to[r][0..width) (+)= from[r][0..width) for rows whose beginnings lie so far apart; the strides may differ. */
typedef struct hd_runs {
  const float *from; /* NULL: zeros */
  float *to;
  int64_t rows, width, from_stride, to_stride;
  bool accumulate;
} hd_runs;
void hd_runs_move(heed_context *context, const hd_runs *runs);

/* out[o][c] (+)= Σ_r x[o][r][c], r ascending. */
typedef struct hd_sums {
  const float *x;
  float *out;
  int64_t outer, rows, columns;
  bool accumulate;
} hd_sums;
void hd_sum_rows(heed_context *context, const hd_sums *sums);

/* out gets the shape of t. */
void hd_shape_like(hd_node *node, const heed_tensor *t);
/* The part [begin, end) of an axis of t, as rows: in each of `outer` rows of `row` numbers, `width` from `first` on. */
typedef struct hd_axis_part {
  int64_t outer, row, first, width;
} hd_axis_part;
hd_axis_part hd_part_of_axis(const heed_tensor *t, int axis, int64_t begin, int64_t end);
/* Elements before and after an axis: t is [outer, dim[axis], inner]. */
void hd_around_axis(const heed_tensor *t, int axis, int64_t *outer, int64_t *inner);
/* HEED_E_ARGUMENT unless the axis is one of t's. */
heed_status hd_require_axis(heed_context *context, const hd_node *node, const heed_tensor *t, int axis);

/* For samples: shapes of which some make more than one piece. */
void hd_sample_sizes(hd_sample *s, hd_sample_input *in);

#endif
