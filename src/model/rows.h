/* rows.h: what happens to rows of activations between products, each row by itself, so that its bits do not depend on the others. Rows are shared out over the context's
 * threads. */
#ifndef HD_ROWS_H
#define HD_ROWS_H

#include "model.h"

/* y[r] = norm(x[r]), width values each; y may be x. */
void hd_rows_norm(heed_context *context, const hd_transformer_spec *spec, const hd_norm *norm, const float *x, int64_t rows, float *y);

/* In place: of each row, `parts` neighbouring runs of n values each, from x + r · stride on, by the same norm. */
void hd_rows_norm_parts(heed_context *context, const hd_transformer_spec *spec, const hd_norm *norm, float *x, int64_t rows, int64_t stride,
                        int64_t parts, int64_t n);

/* x[r] += y[r]. */
void hd_rows_add(heed_context *context, float *x, const float *y, int64_t rows, int64_t width);

/* Rows of n values become act of them; gated rows [gate | up], of stride 2 n, become act(gate) · up in their first half. */
void hd_rows_activate(heed_context *context, heed_activation kind, float *of, int64_t rows, int64_t n, int64_t stride);

#endif
