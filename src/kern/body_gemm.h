/* body_gemm.h: rows of activations times unpacked panels of weights.
 *
 * Outputs are in lanes and each output is one chain of multiply-adds over ascending inputs, so the shape of the register tile (GEMM_ROWS × GEMM_VECTORS) and the cutting of
 * the inputs into blocks, between which chains rest in y, change no bit. Weights are loaded, activations are broadcast from where they lie: neither is copied here. */

/* `rows` rows × `vectors` vectors; p says what they are multiplied by, the caller where they begin. */
typedef struct {
  const float *x, *w, *bias;
  float *y;
  int64_t y_stride;
  int64_t next; /* rows from here to the tile that comes next */
} gemm_tile;

/* Inputs between two rounds of prefetching: a cache line of activations. */
enum { GEMM_BLOCK = 16 };

/* Activations come from the second-level cache or beyond, row by row, too scattered for the hardware to foresee: so each block fetches its counterpart of the next tile, and
 * one row of that tile's y. */
INLINE void fetch_next(const gemm_tile *tile, int64_t block, const int rows, const int vectors, int64_t x_stride) {
  const float *x = tile->x + tile->next * x_stride + block, *y = tile->y + (tile->next + block / GEMM_BLOCK % rows) * tile->y_stride;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) __builtin_prefetch(x + r * x_stride);
#pragma GCC unroll 8
  for (int v = 0; v < vectors * LANES / 16; v++) __builtin_prefetch(y + 16 * v, 1);
}

/* Makes the compiler take a value for a new one. */
#define FORGET(value) __asm__("" : "+r"(value))

INLINE void multiply_tile(const hd_product *p, const gemm_tile *tile, const int rows, const int vectors) {
  vf sum[GEMM_ROWS][GEMM_VECTORS];
  const float *x[GEMM_ROWS], *w[GEMM_VECTORS];
  float *y = tile->y;
  int64_t stride = tile->y_stride;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) w[v] = tile->w + v * LANES / HD_PANEL * p->w_stride + v * LANES % HD_PANEL;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    x[r] = tile->x + r * p->x_stride;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = p->first ? v_set(0.0f) : v_load(y + r * stride + v * LANES);
  }
  for (int64_t block = 0; block < p->inputs; block += GEMM_BLOCK) {
    fetch_next(tile, block, rows, vectors, p->x_stride);
    const int64_t end = HD_MIN(block + GEMM_BLOCK, p->inputs);
#pragma GCC unroll 1
    for (int64_t i = block; i < end; i++) {
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
  }
  FORGET(y); // otherwise the addresses of all rows are kept, on the stack, from the loads above to the stores below
  FORGET(stride);
  if (tile->bias) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      vf bias = v_load(tile->bias + v * LANES);
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) sum[r][v] = v_add(sum[r][v], bias);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) v_store(y + r * stride + v * LANES, sum[r][v]);
}

/* The widths other than GEMM_VECTORS serve only the last group of a matrix, the counts of rows other than GEMM_ROWS only the last rows. */
static void multiply_any(const hd_product *p, const gemm_tile *tile, int rows, int vectors) {
#define TILES(r)                                                                                                                           \
  case r:                                                                                                                                  \
    if (vectors == 1) multiply_tile(p, tile, r, 1);                                                                                        \
    else if (vectors == GEMM_VECTORS) multiply_tile(p, tile, r, GEMM_VECTORS);                                                             \
    else multiply_tile(p, tile, r, 2);                                                                                                     \
    break;
  switch (rows) {
    TILES(1)
    TILES(2)
    TILES(4)
#if GEMM_ROWS > 4
    TILES(GEMM_ROWS)
#endif
  }
#undef TILES
}

/* A vector of which only `outputs` lanes exist goes through a copy. */
static void multiply_partial(const hd_product *p, const gemm_tile *tile, int rows, int outputs) {
  float copy[GEMM_ROWS][LANES] = {{0}}, bias[LANES] = {0};
  gemm_tile inner = {tile->x, tile->w, tile->bias ? bias : NULL, copy[0], LANES, 0};
  size_t bytes = (size_t)outputs * sizeof(float);
  if (tile->bias) memcpy(bias, tile->bias, bytes);
  for (int r = 0; r < rows && !p->first; r++) memcpy(copy[r], tile->y + r * tile->y_stride, bytes);
  multiply_any(p, &inner, rows, 1);
  for (int r = 0; r < rows; r++) memcpy(tile->y + r * tile->y_stride, copy[r], bytes);
}

void KERNEL(multiply)(const hd_product *p) {
  int vectors = p->outputs / LANES;
  for (int output = 0; output < p->outputs;) {
    int left = vectors - output / LANES, width = left >= GEMM_VECTORS ? GEMM_VECTORS : left >= 2 ? 2 : left;
    int64_t row = 0;
    while (row < p->rows) {
      gemm_tile tile = {
          .x = p->x + row * p->x_stride,
          .w = p->w + output / HD_PANEL * p->w_stride + output % HD_PANEL,
          .bias = p->bias ? p->bias + output : NULL,
          .y = p->y + row * p->y_stride + output,
          .y_stride = p->y_stride,
      };
      int64_t rest = p->rows - row;
      int rows = rest >= GEMM_ROWS ? GEMM_ROWS : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
      tile.next = rest > rows ? rows : 0;
      if (!width) multiply_partial(p, &tile, rows, p->outputs - output);
      else if (rows == GEMM_ROWS && width == GEMM_VECTORS) multiply_tile(p, &tile, GEMM_ROWS, GEMM_VECTORS);
      else multiply_any(p, &tile, rows, width);
      row += rows;
    }
    output = width ? output + width * LANES : p->outputs;
  }
}
