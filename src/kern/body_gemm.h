/* body_gemm.h: rows of activations times unpacked panels of weights.
 *
 * Outputs are in lanes and each output is one chain of multiply-adds over ascending inputs, so the shape of the register tile (GEMM_ROWS × GEMM_VECTORS) and the cutting of
 * the inputs into blocks, between which chains rest in y, change no bit. Weights are loaded, activations are broadcast from where they lie: neither is copied here. */

/* One vector of y, of which only the first `count` lanes exist. */
INLINE vf load_some(const float *p, int64_t count) {
  if (count >= LANES) return v_load(p);
  float lane[LANES] = {0};
  for (int64_t i = 0; i < count; i++) lane[i] = p[i];
  return v_load(lane);
}

INLINE void store_some(float *p, vf value, int64_t count) {
  if (count >= LANES) {
    v_store(p, value);
    return;
  }
  float lane[LANES];
  v_store(lane, value);
  for (int64_t i = 0; i < count; i++) p[i] = lane[i];
}

/* Rows [row, row + rows) × vectors [vector, vector + vectors) of the group. */
INLINE void multiply_tile(const hd_product *p, int64_t row, int vector, const int rows, const int vectors) {
  vf sum[GEMM_ROWS][GEMM_VECTORS];
  const float *x[GEMM_ROWS], *w[GEMM_VECTORS];
  float *y = p->y + row * p->y_stride + vector * LANES;
  int64_t here = p->outputs - vector * LANES;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) w[v] = p->w + (vector + v) * LANES / HD_PANEL * p->w_stride + (vector + v) * LANES % HD_PANEL;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    x[r] = p->x + (row + r) * p->x_stride;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = p->first ? v_set(0.0f) : load_some(y + r * p->y_stride + v * LANES, here - v * LANES);
  }
#pragma GCC unroll 1
  for (int64_t i = 0; i < p->inputs; i++) {
    vf b[GEMM_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      b[v] = v_load(w[v] + i * HD_PANEL);
      PIN(b[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      vf a = v_set(x[r][i]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(a, b[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      if (p->bias) sum[r][v] = v_add(sum[r][v], load_some(p->bias + (vector + v) * LANES, here - v * LANES));
      store_some(y + r * p->y_stride + v * LANES, sum[r][v], here - v * LANES);
    }
}

/* All rows, `vectors` wide: whole tiles, then one of the rest. */
INLINE void multiply_rows(const hd_product *p, int vector, const int vectors) {
  int64_t row = 0;
  for (; row + GEMM_ROWS <= p->rows; row += GEMM_ROWS) multiply_tile(p, row, vector, GEMM_ROWS, vectors);
  switch (p->rows - row) {
  case 1: multiply_tile(p, row, vector, 1, vectors); break;
  case 2: multiply_tile(p, row, vector, 2, vectors); break;
  case 3: multiply_tile(p, row, vector, 3, vectors); break;
#if GEMM_ROWS > 4
  case 4: multiply_tile(p, row, vector, 4, vectors); break;
  case 5: multiply_tile(p, row, vector, 5, vectors); break;
#endif
  }
}

void KERNEL(multiply)(const hd_product *p) {
  int vectors = (p->outputs + LANES - 1) / LANES, vector = 0;
  for (; vector + GEMM_VECTORS <= vectors; vector += GEMM_VECTORS) multiply_rows(p, vector, GEMM_VECTORS);
  switch (vectors - vector) {
  case 1: multiply_rows(p, vector, 1); break;
#if GEMM_VECTORS > 2
  case 2: multiply_rows(p, vector, 2); break;
  case 3: multiply_rows(p, vector, 3); break;
#endif
  }
}
