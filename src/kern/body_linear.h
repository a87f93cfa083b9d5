/* body_linear.h: what linear attention does: products of matrices that lie in the nearest caches as they are, also those of which a triangle counts, feature maps, and the division by the
 * normaliser.
 *
 * Columns are in lanes and each element is one chain of multiply-adds over ascending inputs, as in body_gemm.h; there is no packing, because both matrices are read a few times only. In a
 * triangle a row's chain begins or ends at its own number: what lies on the other side is not read into it, so that a later row cannot reach an earlier one, not even with a NaN. */

/* Rows of a tile that is narrower than GEMM_VECTORS: so many chains keep the multiply-adds busy all the same. */
enum { ROWS_TALL = 8, TALL_TRIPLES = 3 };

/* `rows` rows × `vectors` vectors at row `row`, of which the first is number `first` where triangles are counted. */
INLINE void rows_step(vf sum[ROWS_TALL][GEMM_VECTORS], const float *const x[TALL_TRIPLES], int64_t x_row, const float *w, const int from,
                      const int end, const int vectors) {
  vf b[GEMM_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    b[v] = v_load(w + v * LANES);
    PIN(b[v]);
  }
#pragma GCC unroll 8
  for (int r = from; r < end; r++) {
    const vf a = v_set(x[r / 3][r % 3 * x_row]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(a, b[v], sum[r][v]);
  }
}

INLINE void rows_next(const float *x[TALL_TRIPLES], int64_t x_input, const int rows) {
#pragma GCC unroll 8
  for (int t = 0; 3 * t < rows; t++) x[t] += x_input;
}

/* Inputs between two rows that are asked for: so rarely that the line buffers do not fill, so often that a chunk's products ask for most of what the next chunk reads. */
enum { ROWS_ASK = 4 };

INLINE void rows_ask(hd_asking *asking) {
  if (!asking || asking->next == asking->count) return;
  hd_ahead *rows = &asking->rows[asking->next];
  for (int64_t c = 0; c < rows->columns; c += 16) __builtin_prefetch(rows->at + c, 0, 2);
  rows->at += rows->stride;
  if (--rows->rows == 0) asking->next++;
}

/* The chains go on with one product's inputs, as far as rows see them. */
INLINE void rows_chain(vf sum[ROWS_TALL][GEMM_VECTORS], const hd_rows_product *p, hd_asking *asking, int64_t row, int64_t column,
                       const int rows, const int vectors) {
  const int64_t x_row = p->x_row, x_input = p->x_input, w_stride = p->w_stride;
  const float *x[TALL_TRIPLES], *w = p->w + column;
  int64_t i = p->triangle == HD_INPUTS_FROM_ROW ? row : 0, end = p->triangle == HD_INPUTS_TO_ROW ? HD_MIN(row + 1, p->inputs) : p->inputs;
  w += i * w_stride;
#pragma GCC unroll 8
  for (int t = 0; 3 * t < rows; t++) x[t] = p->x + (row + 3 * t) * x_row + i * x_input;
  if (p->triangle == HD_INPUTS_FROM_ROW) {
#pragma GCC unroll 8
    for (int t = 1; t < rows; t++) {
      if (i == end) break;
      rows_step(sum, x, x_row, w, 0, t, vectors);
      rows_next(x, x_input, rows);
      w += w_stride;
      i++;
    }
  }
#pragma GCC unroll 1
  for (; i + ROWS_ASK <= end; i += ROWS_ASK) {
    rows_ask(asking);
#pragma GCC unroll 1
    for (int j = 0; j < ROWS_ASK; j += 2) {
      rows_step(sum, x, x_row, w, 0, rows, vectors);
      rows_next(x, x_input, rows);
      rows_step(sum, x, x_row, w + w_stride, 0, rows, vectors);
      rows_next(x, x_input, rows);
      w += 2 * w_stride;
    }
  }
#pragma GCC unroll 1
  for (; i < end; i++) {
    rows_step(sum, x, x_row, w, 0, rows, vectors);
    rows_next(x, x_input, rows);
    w += w_stride;
  }
  if (p->triangle == HD_INPUTS_TO_ROW) {
#pragma GCC unroll 8
    for (int t = 1; t < rows; t++) {
      if (i == p->inputs) break;
      rows_step(sum, x, x_row, w, t, rows, vectors);
      rows_next(x, x_input, rows);
      w += w_stride;
      i++;
    }
  }
}

INLINE void rows_tile(const hd_rows_product *p, int64_t row, int64_t column, const int rows, const int vectors) {
  vf sum[ROWS_TALL][GEMM_VECTORS];
  float *y = p->y + row * p->y_stride + column;
  int64_t stride = p->y_stride;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = p->from ? v_load(p->from + (row + r) * stride + column + v * LANES) : v_set(0.0f);
#pragma GCC unroll 1
  for (const hd_rows_product *part = p; part; part = part->then) rows_chain(sum, part, p->asking, row, column, rows, vectors);
  FORGET(y);
  FORGET(stride);
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) v_store(y + r * stride + v * LANES, sum[r][v]);
}

/* Columns [column, column + LANES · vectors) of some rows. */
static void rows_any(const hd_rows_product *p, int64_t row, int64_t column, int rows, int vectors) {
#define WIDTHS(r)                                                                                                                          \
  case r:                                                                                                                                  \
    if (vectors == GEMM_VECTORS) rows_tile(p, row, column, r, GEMM_VECTORS);                                                               \
    else if (vectors == 3) rows_tile(p, row, column, r, HD_MIN(3, GEMM_VECTORS));                                                          \
    else if (vectors == 2) rows_tile(p, row, column, r, 2);                                                                                \
    else rows_tile(p, row, column, r, 1);                                                                                                  \
    break;
  switch (rows) {
    WIDTHS(1)
    WIDTHS(2)
    WIDTHS(4)
#if GEMM_ROWS > 4
    WIDTHS(GEMM_ROWS)
#endif
  case ROWS_TALL:
    if (vectors == 1) rows_tile(p, row, column, ROWS_TALL, 1);
    else if (vectors == 2) rows_tile(p, row, column, ROWS_TALL, HD_MIN(2, GEMM_VECTORS));
    else rows_tile(p, row, column, ROWS_TALL, HD_MIN(3, GEMM_VECTORS));
    break;
  }
#undef WIDTHS
}

INLINE int rows_here(int64_t rest) { return rest >= GEMM_ROWS ? GEMM_ROWS : rest >= 4 ? 4 : rest >= 2 ? 2 : 1; }

/* Columns from `column` on of a triangle, `most` vectors: a tile ends where the next row needs one more. Returns the row from which on all are needed. */
static int64_t rows_corner(const hd_rows_product *p, int64_t column, int most) {
  int64_t row = column;
  for (int rows; row < p->rows; row += rows) {
    const int vectors = (int)((row - column) / LANES) + 1;
    if (vectors >= most) break;
    const int64_t rest = HD_MIN(p->rows, column + vectors * LANES) - row;
    rows = rest >= ROWS_TALL ? ROWS_TALL : rows_here(rest);
    rows_any(p, row, column, rows, vectors);
  }
  return row;
}

/* Where only columns up to a row's own number count, those of the tiles that have any. */
void KERNEL(multiply_rows)(const hd_rows_product *p) {
  for (int64_t column = 0; column < p->columns; column += GEMM_VECTORS * LANES) {
    const int vectors = (int)hd_ceil_div(HD_MIN(p->columns - column, GEMM_VECTORS * LANES), LANES);
    int64_t row = p->triangle == HD_COLUMNS_TO_ROW ? rows_corner(p, column, vectors) : 0;
    for (int rows; row < p->rows; row += rows) {
      rows = rows_here(p->rows - row);
      rows_any(p, row, column, rows, vectors);
    }
  }
}

/* ---- features ----------------------------------------------------------------------------------------------------------------------- */

/* elu(x) + 1 is max(x, 0) + e^min(x, 0), which above 0 is x + 1 and below it e^x; a NaN stays one. */
INLINE vf feature(vf x, const bool elu) {
  const vf zero = v_set(0.0f), above = v_max(zero, x); // the order of max and min keeps NaN
  return elu ? v_add(above, v_exp(v_min(zero, x))) : above;
}

INLINE void features_of(const float *x, int64_t n, float *out, const bool elu) {
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES)
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) v_store(out + i + v * LANES, feature(v_load(x + i + v * LANES), elu));
  for (; i < n; i += LANES) row_store(out + i, n - i, feature(row_load(x + i, n - i), elu));
}

void KERNEL(features)(bool elu, const float *x, int64_t n, float *out) {
  if (elu) features_of(x, n, out, true);
  else features_of(x, n, out, false);
}

/* The slope of elu(x) + 1 is min(y, 1), where y is its value, that of max(x, 0) is 1 where y is above 0. */
void KERNEL(features_backward)(bool elu, const float *y, const float *dy, int64_t n, float *dx) {
  const vf zero = v_set(0.0f), one = v_set(1.0f);
  for (int64_t i = 0; i < n; i += LANES) {
    const vf value = row_load(y + i, n - i), up = row_load(dy + i, n - i);
    row_store(dx + i, n - i, elu ? v_mul(up, v_min(one, value)) : v_select(v_gt(value, zero), up, v_mul(value, up)));
  }
}

/* Some rows at once, which a processor's multiply-adds follow side by side. */
INLINE void dots_of(const float *a, const float *b, int64_t stride, int64_t n, float *out, const int rows) {
  vf sum[4][ROW_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) sum[r][v] = v_set(0.0f);
  for (int64_t c = 0; c < n; c += ROW_LANES)
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
      for (int v = 0; v < ROW_VECTORS; v++) {
        const int64_t at = r * stride + c + v * LANES;
        sum[r][v] = v_fma(v_load(a + at), v_load(b + at), sum[r][v]);
      }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) out[r] = v_sum16(sum[r]);
}

void KERNEL(dots)(const float *a, const float *b, int64_t rows, int64_t stride, int64_t n, float *out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) dots_of(a + r * stride, b + r * stride, stride, n, out + r, 4);
  for (; r < rows; r++) dots_of(a + r * stride, b + r * stride, stride, n, out + r, 1);
}

void KERNEL(weigh_rows)(const float *weight, int64_t rows, int64_t stride, int64_t n, float *x) {
  for (int64_t r = 0; r < rows; r++, x += stride) {
    const vf factor = v_set(weight[r]);
    const bool gone = weight[r] == 0;
    for (int64_t c = 0; c < n; c += LANES) v_store(x + c, gone ? factor : v_mul(v_load(x + c), factor));
  }
}

/* ---- the normaliser ----------------------------------------------------------------------------------------------------------------- */

/* Σ_c y[r][c] z[c] + Σ_{j ≤ r} a[r][j] of rows from `first` on, which share a group of 16 columns. */
INLINE void normalisers(const hd_normalising *p, int64_t first, float *out, const int rows) {
  const float *y = p->y + first * p->y_stride, *a = p->a + first * p->a_stride;
  vf sum[4][ROW_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) sum[r][v] = v_set(0.0f);
  for (int64_t c = 0; c < p->features; c += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      const vf z = v_load(p->z + c + v * LANES);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r][v] = v_fma(v_load(y + r * p->y_stride + c + v * LANES), z, sum[r][v]);
    }
  const int64_t whole = p->a ? first / ROW_LANES * ROW_LANES : 0;
  for (int64_t c = 0; c < whole; c += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++)
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r][v] = v_add(sum[r][v], v_load(a + r * p->a_stride + c + v * LANES));
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      const int64_t at = whole + v * LANES, count = first + r + 1 - at;
      if (p->a && count > 0) sum[r][v] = v_add(sum[r][v], row_cut(v_load(a + r * p->a_stride + at), count));
    }
    out[r] = v_sum16(sum[r]);
  }
}

INLINE void normalise_rows(const hd_normalising *p, int64_t first, const int rows) {
  float *total = p->total + first;
  normalisers(p, first, total, rows);
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    float *o = p->o + (first + r) * p->o_stride;
    total[r] += p->epsilon;
    // A NaN is no less than the smallest number either.
    const bool gone = total[r] < FLT_MIN;
    const vf factor = v_set(gone ? 0.0f : 1.0f / total[r]);
    for (int64_t c = 0; c < p->columns; c += LANES) v_store(o + c, gone ? factor : v_mul(v_load(o + c), factor));
  }
}

void KERNEL(normalise)(const hd_normalising *p) {
  int64_t r = 0;
  for (; r + 4 <= p->rows; r += 4) normalise_rows(p, r, 4);
  for (; r < p->rows; r++) normalise_rows(p, r, 1);
}

/* ---- rules that change a state token by token --------------------------------------------------------------------------------------- */

/* Columns [c, c + LANES · vectors): first the gate and what the state predicts, then what is written and what each query reads. Chains ascend over features. */
INLINE void rule_columns(const hd_rule_step *p, int64_t c, const int vectors) {
  vf sum[GEMM_VECTORS], written[GEMM_VECTORS];
  float *state = p->state + c;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    sum[v] = v_set(0.0f);
    written[v] = v_load(p->v + c + v * LANES);
  }
  if (p->gate || p->delta) {
    for (int64_t r = 0; r < p->features; r++) {
      const vf gate = v_set(p->gate ? p->gate[r] : 1.0f), k = v_set(p->k[r]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) {
        const vf s = v_mul(gate, v_load(state + r * p->stride + v * LANES));
        v_store(state + r * p->stride + v * LANES, s);
        sum[v] = v_fma(k, s, sum[v]);
      }
    }
    if (p->delta)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) written[v] = v_mul(v_set(p->beta), v_sub(written[v], sum[v]));
  }
  for (int64_t h = 0; h < p->heads; h++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[v] = v_set(0.0f);
    for (int64_t r = 0; r < p->features; r++) {
      const vf k = v_set(p->k[r]), q = v_set(p->q[h * p->q_stride + r]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) {
        vf s = v_load(state + r * p->stride + v * LANES);
        if (h == 0) v_store(state + r * p->stride + v * LANES, s = v_fma(k, written[v], s));
        sum[v] = v_fma(q, s, sum[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) v_store(p->out + h * p->out_stride + c + v * LANES, v_mul(sum[v], v_set(p->scale)));
  }
}

void KERNEL(rule_step)(const hd_rule_step *p) {
  int64_t c = 0;
  for (; c + GEMM_VECTORS * LANES <= p->columns; c += GEMM_VECTORS * LANES) rule_columns(p, c, GEMM_VECTORS);
  for (; c < p->columns; c += LANES) rule_columns(p, c, 1);
}

/* Columns of what queries and the key say of the state behind the token, and of what was written. */
INLINE void rule_columns_back(const hd_rule_gradient *p, int64_t c, const int vectors) {
  const hd_rule_step *step = p->step;
  vf written[GEMM_VECTORS], predicted[GEMM_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) written[v] = predicted[v] = v_set(0.0f);
  for (int64_t r = 0; r < step->features; r++) {
    const vf gate = v_set(step->gate ? step->gate[r] : 1.0f), k = v_set(step->k[r]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      const int64_t at = r * step->stride + c + v * LANES;
      vf ds = v_load(p->dstate + at);
      for (int64_t h = 0; h < step->heads; h++)
        ds = v_fma(v_set(step->q[h * step->q_stride + r]), v_load(p->dout + h * step->out_stride + c + v * LANES), ds);
      v_store(p->dstate + at, ds);
      written[v] = v_fma(ds, k, written[v]);
      if (step->delta) predicted[v] = v_fma(v_mul(gate, v_load(step->state + at)), k, predicted[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    const int64_t at = c + v * LANES;
    const vf rest = v_sub(v_load(step->v + at), predicted[v]), beta = v_set(step->delta ? step->beta : 1.0f), dv = v_mul(beta, written[v]);
    v_store(p->written + at, v_mul(beta, rest));
    v_store(p->back + at, step->delta ? v_sub(v_set(0.0f), dv) : v_set(0.0f));
    v_store(p->dv + at, dv);
    v_store(p->dwritten + at, written[v]);
    v_store(p->rest + at, rest);
  }
}

/* Row r: what the key and its gate get, and the state before the token. */
INLINE void rule_row_back(const hd_rule_gradient *p, int64_t r) {
  const hd_rule_step *step = p->step;
  const vf gate = v_set(step->gate ? step->gate[r] : 1.0f), k = v_set(step->k[r]);
  vf key[ROW_VECTORS], gated[ROW_VECTORS];
#pragma GCC unroll 16
  for (int v = 0; v < ROW_VECTORS; v++) key[v] = gated[v] = v_set(0.0f);
  for (int64_t c = 0; c < step->columns; c += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      const int64_t at = c + v * LANES;
      const vf s = v_mul(gate, v_load(step->state + r * step->stride + at)), back = v_load(p->back + at);
      vf ds = v_load(p->dstate + r * step->stride + at);
      key[v] = v_fma(s, back, v_fma(ds, v_load(p->written + at), key[v]));
      ds = v_fma(k, back, ds);
      gated[v] = v_fma(ds, s, gated[v]);
      v_store(p->dstate + r * step->stride + at, v_mul(gate, ds));
    }
  p->dk[r] = v_sum16(key);
  p->dgate[r] = v_sum16(gated);
}

void KERNEL(rule_backward)(const hd_rule_gradient *p) {
  int64_t c = 0;
  for (; c + GEMM_VECTORS * LANES <= p->step->columns; c += GEMM_VECTORS * LANES) rule_columns_back(p, c, GEMM_VECTORS);
  for (; c < p->step->columns; c += LANES) rule_columns_back(p, c, 1);
  for (int64_t r = 0; r < p->step->features; r++) rule_row_back(p, r);
}
