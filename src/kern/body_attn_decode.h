/* body_attn_decode.h: attention for a few rows that share their keys and see all of them: the query heads of one key/value head when one token is decoded.
 *
 * With so few rows, lanes that are queries would stand empty. Here keys are in lanes for the scores (squares of K are transposed in registers) and the columns of V for the
 * sums, and the state is row by row: q [rows][d], o [rows][dv]. Every chain of multiply-adds runs in the order of body_attn.h, so the bits are the same. */

/* Lane 0 of an exp2 of one number. */
INLINE float exp2_one(float t) {
  float lane[LANES];
  v_store(lane, v_exp2(v_set(t)));
  return lane[0];
}

/* scores[row][key] for LANES keys from `first`, i ascending. Rows past the last key repeat it. */
INLINE void decode_scores(const hd_attn_block *block, const hd_attn_tile *tile, int first, const int rows) {
  const float *key[LANES];
  vf sum[HD_DECODE_ROWS];
  for (int k = 0; k < LANES; k++) key[k] = tile->k + HD_MIN(first + k, tile->keys - 1) * tile->k_stride;
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) sum[r] = v_set(0.0f);
  int64_t i = 0;
  for (; i + LANES <= block->d; i += LANES) {
    vf square[LANES];
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++) square[k] = v_load(key[k] + i);
    v_transpose(square);
#pragma GCC unroll 16
    for (int c = 0; c < LANES; c++)
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r] = v_fma(square[c], v_set(block->q[r * block->d + i + c]), sum[r]);
  }
  for (; i < block->d; i++) {
    float column[LANES];
    for (int k = 0; k < LANES; k++) column[k] = key[k][i];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r] = v_fma(v_load(column), v_set(block->q[r * block->d + i]), sum[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) v_store(tile->scores + r * HD_KEY_TILE + first, sum[r]);
}

/* The row's maximum may rise; where it does, its sum and numerators follow. */
INLINE void decode_rescale(hd_attn_block *block, const hd_attn_tile *tile, int r) {
  const float *scores = tile->scores + r * HD_KEY_TILE;
  float *o = block->o + r * block->dv, lane[LANES], top = -INFINITY;
  vf best = v_set(-INFINITY);
  for (int key = 0; key < tile->keys; key += LANES) best = v_max(v_load(scores + key), best); // the last key may stand there again
  v_store(lane, best);
  for (int i = 0; i < LANES; i++) top = lane[i] > top ? lane[i] : top;
  if (!(top > block->m[r] + 8.0f)) return;
  float factor = exp2_one(block->m[r] - top);
  block->m[r] = top;
  block->l[r] *= factor;
  for (int64_t c = 0; c < block->dv; c++) o[c] *= factor;
}

/* Scores to weights. Each row's sum runs over ascending keys, one chain; the rows' chains run beside each other. */
INLINE void decode_weights(hd_attn_block *block, const hd_attn_tile *tile, const int rows) {
  float sum[HD_DECODE_ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    float *scores = tile->scores + r * HD_KEY_TILE;
    const vf m = v_set(block->m[r] == -INFINITY ? 0.0f : block->m[r]);
    for (int key = 0; key < tile->keys; key += LANES) v_store(scores + key, v_exp2(v_sub(v_load(scores + key), m)));
    sum[r] = block->l[r];
  }
  for (int key = 0; key < tile->keys; key++)
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r] += tile->scores[r * HD_KEY_TILE + key];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) block->l[r] = sum[r];
}

/* o[row][column] += Σ_key p[row][key] v[key][column], keys ascending, for `vectors` vectors of columns. */
INLINE void decode_values(hd_attn_block *block, const hd_attn_tile *tile, int64_t column, const int rows, const int vectors) {
  vf sum[HD_DECODE_ROWS][4];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[r][v] = v_load(block->o + r * block->dv + column + v * LANES);
  const float *value = tile->v + column;
#pragma GCC unroll 1
  for (int key = 0; key < tile->keys; key++, value += tile->v_stride) {
    vf b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) b[v] = v_load(value + v * LANES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      vf a = v_set(tile->scores[r * HD_KEY_TILE + key]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(b[v], a, sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(block->o + r * block->dv + column + v * LANES, sum[r][v]);
}

INLINE void decode_rows(hd_attn_block *block, const hd_attn_tile *tile, const int rows) {
  for (int first = 0; first < tile->keys; first += LANES) decode_scores(block, tile, first, rows);
  for (int r = 0; r < rows; r++) decode_rescale(block, tile, r);
  decode_weights(block, tile, rows);
  // As many chains as registers hold: 4 rows × 4 vectors of 32, or × 3 of 16.
  enum { WIDE = LANES >= 16 ? 4 : 3 };
  int64_t column = 0;
  for (; column + WIDE * LANES <= block->dv; column += WIDE * LANES) decode_values(block, tile, column, rows, WIDE);
  for (; column + LANES <= block->dv; column += LANES) decode_values(block, tile, column, rows, 1);
  for (; column < block->dv; column++)
    for (int r = 0; r < rows; r++) {
      float *o = block->o + r * block->dv + column;
      for (int key = 0; key < tile->keys; key++) *o = fmaf(tile->v[key * tile->v_stride + column], tile->scores[r * HD_KEY_TILE + key], *o);
    }
}

void KERNEL(attn_decode_tile)(hd_attn_block *block, const hd_attn_tile *tile) {
  switch (block->lanes) {
  case 1: decode_rows(block, tile, 1); break;
  case 2: decode_rows(block, tile, 2); break;
  case 3: decode_rows(block, tile, 3); break;
  case 4: decode_rows(block, tile, 4); break;
  }
  block->seen = ~(uint64_t)0;
}

void KERNEL(attn_decode_merge)(hd_attn_block *block) {
  for (int r = 0; r < block->lanes; r++) {
    float a = block->total_m[r], b = block->m[r], m = a > b ? a : b, base = m == -INFINITY ? 0.0f : m;
    float from_total = exp2_one(a - base), from_chunk = exp2_one(b - base);
    float *total = block->total_o + r * block->dv, *o = block->o + r * block->dv;
    block->total_m[r] = m;
    block->total_l[r] = fmaf(block->total_l[r], from_total, block->l[r] * from_chunk);
    block->m[r] = -INFINITY;
    block->l[r] = 0;
    for (int64_t c = 0; c < block->dv; c++) {
      total[c] = fmaf(total[c], from_total, o[c] * from_chunk);
      o[c] = 0;
    }
  }
}
