/* body_recurrent.h: what a recurrent layer does besides products: the gates of a gated recurrent unit, and one row against many (sums of rows by weights, products with each). */

/* r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 − z) n + z h, taken as n + z (h − n). */
void KERNEL(gru)(const hd_gru *cell, int64_t n) {
  const float *x = cell->x, *h = cell->h;
  for (int64_t i = 0; i < n; i += LANES) {
    const int64_t here = n - i;
    const vf r = v_sigmoid(v_add(row_load(x + i, here), row_load(h + i, here)));
    const vf z = v_sigmoid(v_add(row_load(x + n + i, here), row_load(h + n + i, here)));
    const vf hidden = row_load(h + 2 * n + i, here), fresh = v_tanh(v_fma(r, hidden, row_load(x + 2 * n + i, here)));
    const vf before = row_load(cell->before + i, here);
    if (cell->kept) {
      row_store(cell->kept + i, here, r);
      row_store(cell->kept + n + i, here, z);
      row_store(cell->kept + 2 * n + i, here, fresh);
      row_store(cell->kept + 3 * n + i, here, hidden);
      row_store(cell->kept + 4 * n + i, here, before);
    }
    row_store(cell->out + i, here, v_fma(z, v_sub(before, fresh), fresh));
  }
}

/* With d = ∂L/∂h': ∂n = d (1 − z), into tanh da = ∂n (1 − n²); ∂z = d (h − n), into σ ∂z z (1 − z); ∂r = da h_n, into σ ∂r r (1 − r); ∂h_n = da r; ∂h = d z. */
void KERNEL(gru_backward)(const hd_gru_gradient *g, int64_t n) {
  const vf one = v_set(1.0f);
  for (int64_t i = 0; i < n; i += LANES) {
    const int64_t here = n - i;
    const vf r = row_load(g->kept + i, here), z = row_load(g->kept + n + i, here), fresh = row_load(g->kept + 2 * n + i, here);
    const vf hidden = row_load(g->kept + 3 * n + i, here), before = row_load(g->kept + 4 * n + i, here);
    const vf d = v_add(row_load(g->dh + i, here), row_load(g->dy + i, here));
    const vf da = v_mul(v_mul(d, v_sub(one, z)), v_mul(v_sub(one, fresh), v_add(one, fresh)));
    const vf dr = v_mul(v_mul(da, hidden), v_mul(r, v_sub(one, r)));
    const vf dz = v_mul(v_mul(d, v_sub(before, fresh)), v_mul(z, v_sub(one, z)));
    row_store(g->dx + i, here, dr);
    row_store(g->dx + n + i, here, dz);
    row_store(g->dx + 2 * n + i, here, da);
    row_store(g->dgates + i, here, dr);
    row_store(g->dgates + n + i, here, dz);
    row_store(g->dgates + 2 * n + i, here, v_mul(da, r));
    row_store(g->dh + i, here, v_mul(d, z));
  }
}

/* Columns [c, c + LANES · vectors), which are all there. */
INLINE void blend_columns(const float *w, const float *x, int64_t rows, int64_t stride, float *out, const int vectors) {
  vf sum[8];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) sum[v] = v_load(out + v * LANES);
  for (int64_t r = 0; r < rows; r++) {
    const vf factor = v_set(w[r]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[v] = v_fma(factor, v_load(x + r * stride + v * LANES), sum[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) v_store(out + v * LANES, sum[v]);
}

void KERNEL(blend)(const float *w, const float *x, int64_t rows, int64_t stride, int64_t n, float *out) {
  int64_t c = 0;
  for (; c + 8 * LANES <= n; c += 8 * LANES) blend_columns(w, x + c, rows, stride, out + c, 8);
  for (; c + LANES <= n; c += LANES) blend_columns(w, x + c, rows, stride, out + c, 1);
  if (c == n) return;
  vf sum = row_load(out + c, n - c);
  for (int64_t r = 0; r < rows; r++) sum = v_fma(v_set(w[r]), row_load(x + r * stride + c, n - c), sum);
  row_store(out + c, n - c, sum);
}

/* Some rows at once, which a processor's multiply-adds follow side by side. */
INLINE void compare_rows(const float *y, const float *x, int64_t stride, int64_t n, float *out, const int rows) {
  vf sum[4][ROW_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) sum[r][v] = v_set(0.0f);
  for (int64_t c = 0; c < n; c += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      const int64_t at = c + v * LANES;
      if (at >= n) break;
      const vf b = row_load(y + at, n - at);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r][v] = v_fma(row_load(x + r * stride + at, n - at), b, sum[r][v]);
    }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) out[r] = v_sum16(sum[r]);
}

void KERNEL(compare)(const float *y, const float *x, int64_t rows, int64_t stride, int64_t n, float *out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) compare_rows(y, x + r * stride, stride, n, out + r, 4);
  for (; r < rows; r++) compare_rows(y, x + r * stride, stride, n, out + r, 1);
}
