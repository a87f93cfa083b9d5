/* body_gemm.h: rows of activations times unpacked panels of weights.
 *
 * Outputs are in lanes and each output is one chain of multiply-adds over ascending inputs, so the shape of the register tile (GEMM_ROWS × GEMM_VECTORS) and the cutting of
 * the inputs into blocks, between which chains rest in y, change no bit. Weights are loaded, activations are broadcast from where they lie: neither is copied here. */

/* Makes the compiler take a value for a new one. */
#define FORGET(value) __asm__("" : "+r"(value))

INLINE float number_at(const void *data, int64_t i, const heed_type type) {
  if (type == HEED_F32) return ((const float *)data)[i];
  return type == HEED_F16 ? hd_f16_to_f32(((const uint16_t *)data)[i]) : hd_bf16_to_f32(((const uint16_t *)data)[i]);
}

INLINE vf numbers_at(const void *data, int64_t i, const heed_type type) {
  if (type == HEED_F32) return v_load((const float *)data + i);
  return type == HEED_F16 ? v_load_f16((const uint16_t *)data + i) : v_load_bf16((const uint16_t *)data + i);
}

/* Rows of a block are far away and too short for the hardware to foresee the next: so copying one asks for one that comes later. */
enum { AHEAD_ROWS = 8 };

/* May be beyond the array: asking for memory never fails. */
INLINE void fetch_number(const void *data, int64_t i, const heed_type type) {
  __builtin_prefetch((const void *)((uintptr_t)data + (uintptr_t)i * (type == HEED_F32 ? 4 : 2)));
}

/* Columns from `done` on one by one, and zeros up to a whole vector. */
INLINE void gather_rest(const hd_rectangle *from, int64_t r, int64_t done, int64_t columns, float *dst, const heed_type type) {
  for (int64_t c = done; c < columns; c++) dst[c] = number_at(from->data, r * from->row_stride + c * from->column_stride, type);
  for (int64_t c = columns; c % LANES; c++) dst[c] = 0.0f;
}

INLINE void gather_rows(const hd_rectangle *from, int64_t rows, int64_t columns, float *dst, int64_t stride, const heed_type type) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
      fetch_number(from->data, (r + AHEAD_ROWS) * from->row_stride + c, type);
      v_store(dst + r * stride + c, numbers_at(from->data, r * from->row_stride + c, type));
    }
    gather_rest(from, r, c, columns, dst + r * stride, type);
  }
}

/* LANES rows and `here` columns, columns contiguous. */
INLINE void gather_square(const hd_rectangle *from, int64_t r, int64_t c, const int here, float *dst, int64_t stride,
                          const heed_type type) {
  vf square[LANES];
  int64_t at = r + c * from->column_stride; // rows are contiguous along a column
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++, at += from->column_stride) {
    square[i] = i < here ? numbers_at(from->data, at, type) : v_set(0.0f);
    fetch_number(from->data, at + LANES * from->column_stride, type); // of the square below
    FORGET(at);                                                       // otherwise the addresses of all columns are kept, on the stack
  }
  v_transpose(square);
  dst += r * stride + c;
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++, dst += stride) {
    v_store(dst, square[i]);
    FORGET(dst);
  }
}

INLINE void gather_columns(const hd_rectangle *from, int64_t rows, int64_t columns, float *dst, int64_t stride, const heed_type type) {
  for (int64_t c = 0; c < columns; c += LANES) {
    int here = (int)HD_MIN(LANES, columns - c);
    for (int64_t next = 0; next < rows && rows >= LANES; next += LANES) {
      int64_t r = HD_MIN(next, rows - LANES); // the last square may overlap the one before it
      if (here == LANES) gather_square(from, r, c, LANES, dst, stride, type);
      else gather_square(from, r, c, here, dst, stride, type);
    }
    for (int64_t r = 0; r < rows && rows < LANES; r++) gather_rest(from, r, c, c + here, dst + r * stride, type);
  }
}

INLINE void gather_typed(const hd_rectangle *from, int64_t rows, int64_t columns, float *dst, int64_t stride, const heed_type type) {
  if (from->column_stride == 1) gather_rows(from, rows, columns, dst, stride, type);
  else if (from->row_stride == 1) gather_columns(from, rows, columns, dst, stride, type);
  else
    for (int64_t r = 0; r < rows; r++) gather_rest(from, r, 0, columns, dst + r * stride, type);
}

void KERNEL(gather)(const hd_rectangle *from, int64_t rows, int64_t columns, float *dst, int64_t stride) {
  if (from->type == HEED_F32) gather_typed(from, rows, columns, dst, stride, HEED_F32);
  else if (from->type == HEED_F16) gather_typed(from, rows, columns, dst, stride, HEED_F16);
  else gather_typed(from, rows, columns, dst, stride, HEED_BF16);
}

/* `rows` rows × `vectors` vectors; p says what they are multiplied by, the caller where they begin. */
typedef struct {
  const float *x, *w, *bias;
  float *y;
  int64_t y_stride;
  int64_t next;       /* rows from here to the tile that comes next */
  const char *ahead;  /* what the product asks for, from where this tile goes on with it */
  int64_t ahead_step; /* of it in a block of inputs */
} gemm_tile;

enum { ROW_TRIPLES = (GEMM_ROWS + 2) / 3 };

/* Inputs between two prefetches. */
enum { GEMM_BLOCK = 16 };

/* Weights come from far too, a group at a time, and once: those of the next group are asked for all along, so that memory is at work while this one is multiplied. */
INLINE void fetch_ahead(const hd_product *p, const gemm_tile *tile, int64_t block) {
  const char *at = tile->ahead + block / GEMM_BLOCK * tile->ahead_step, *end = (const char *)p->next + p->next_bytes;
  for (const char *stop = HD_MIN(at + tile->ahead_step, end); at < stop; at += 64) __builtin_prefetch(at, 0, 2);
}

/* y is far from the processor, and too scattered for the hardware to foresee: so each block of inputs asks for one row of the next tile's. */
INLINE void fetch_next(const gemm_tile *tile, int64_t block, const int rows, const int vectors) {
  const float *y = tile->y + (tile->next + block / GEMM_BLOCK % rows) * tile->y_stride;
#pragma GCC unroll 8
  for (int v = 0; v < vectors * LANES / 16; v++) __builtin_prefetch(y + 16 * v, 1);
}

/* One link of every chain: input i, whose weights lie at `at`. Three rows share a pointer, from which the processor's addressing reaches them. */
INLINE void multiply_step(vf sum[GEMM_ROWS][GEMM_VECTORS], const float *const x[ROW_TRIPLES], int64_t x_stride,
                          const float *const w[GEMM_VECTORS], int64_t at, int64_t i, const int rows, const int vectors) {
  vf b[GEMM_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    b[v] = v_load(w[v] + at);
    PIN(b[v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    vf a = v_set(x[r / 3][r % 3 * x_stride + i]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(a, b[v], sum[r][v]);
  }
}

INLINE void multiply_tile(const hd_product *p, const gemm_tile *tile, const int rows, const int vectors) {
  const int64_t step = LANES * GEMM_VECTORS == HD_GROUP ? p->w_step : HD_PANEL;
  vf sum[GEMM_ROWS][GEMM_VECTORS];
  const float *x[ROW_TRIPLES], *w[GEMM_VECTORS];
  float *y = tile->y;
  int64_t stride = tile->y_stride;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) w[v] = tile->w + v * LANES / HD_PANEL * p->w_stride + v * LANES % HD_PANEL;
#pragma GCC unroll 8
  for (int t = 0; t < ROW_TRIPLES; t++) x[t] = tile->x + 3 * t * p->x_stride;
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) sum[r][v] = p->first ? v_set(0.0f) : v_load(y + r * stride + v * LANES);
  for (int64_t block = 0; block < p->inputs; block += GEMM_BLOCK) {
    fetch_next(tile, block, rows, vectors);
    if (p->next) fetch_ahead(p, tile, block);
    const int64_t end = HD_MIN(block + GEMM_BLOCK, p->inputs);
    int64_t i = block;
#pragma GCC unroll 1
    for (; i + 1 < end; i += 2) { // two, because the loop's own additions take the ports of multiply-adds on AVX2
      multiply_step(sum, x, p->x_stride, w, i * step, i, rows, vectors);
      multiply_step(sum, x, p->x_stride, w, i * step + step, i + 1, rows, vectors);
    }
    if (i < end) multiply_step(sum, x, p->x_stride, w, i * step, i, rows, vectors);
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
  gemm_tile inner = {tile->x, tile->w, tile->bias ? bias : NULL, copy[0], LANES, 0, tile->ahead, tile->ahead_step};
  size_t bytes = (size_t)outputs * sizeof(float);
  if (tile->bias) memcpy(bias, tile->bias, bytes);
  for (int r = 0; r < rows && !p->first; r++) memcpy(copy[r], tile->y + r * tile->y_stride, bytes);
  multiply_any(p, &inner, rows, 1);
  for (int r = 0; r < rows; r++) memcpy(tile->y + r * tile->y_stride, copy[r], bytes);
}

void KERNEL(multiply)(const hd_product *p) {
  int vectors = p->outputs / LANES;
  const int64_t blocks = (p->inputs + GEMM_BLOCK - 1) / GEMM_BLOCK,
                tiles = (p->rows + GEMM_ROWS - 1) / GEMM_ROWS * ((vectors + GEMM_VECTORS - 1) / GEMM_VECTORS);
  const int64_t step = p->next ? (p->next_bytes / 64 / (blocks * tiles + 1) + 1) * 64 : 0;
  int64_t done = 0;
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
          .ahead = p->next ? (const char *)p->next + done++ * blocks * step : NULL,
          .ahead_step = step,
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
