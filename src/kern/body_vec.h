/* body_vec.h: what the other bodies share: exp2, tanh, rows in and out of lanes, and operations along a row. */

/* 2^t for t ≤ 127, 0 below −125.5 (so that no subnormal arises), NaN for NaN. Adding 1.5·2^23 rounds t to an integer n in the low bits, to which 126 is already added;
 * shifted into the exponent they are 2^(n−1), and the polynomial gives 2·2^r for the rest r in [−1/2, 1/2] (coefficients: minimax in relative error with value 2 at 0,
 * so that exp2(0) is exactly 1). Degree 5: largest error 1.7e-7, mean square 6.6e-8, where rounding alone gives 5.9e-8 and 2.5e-8; degree 6 would give 7.9e-8 and 2.7e-8, which in an output of
 * attention shows as 3 % of an error that other roundings make (attention_properties prints the ratio to naive f32), for one operation more in the twelve that this takes. */
INLINE vf v_exp2(vf t) {
  const vf magic = v_set(0x1.8p23f + 126.0f);
  t = v_max(v_set(-126.0f), t);
  vf z = v_add(t, magic), r = v_sub(t, v_sub(z, magic));
  vf p = v_set(0x1.5bba14p-9f);
  p = v_fma(p, r, v_set(0x1.3cea88p-6f));
  p = v_fma(p, r, v_set(0x1.c6b752p-4f));
  p = v_fma(p, r, v_set(0x1.ebf9bcp-2f));
  p = v_fma(p, r, v_set(0x1.62e42ap+0f));
  p = v_fma(p, r, v_set(2.0f));
  return v_mul(p, v_exponent(z));
}

/* Below 0.625 a polynomial in x² (minimax, error 4e-9 of the quotient), above it 1 − 2/(e^2x + 1), which loses nothing there. */
INLINE vf v_tanh(vf x) {
  vf a = v_abs(x), z = v_mul(x, x);
  vf p = v_set(-0x1.76ac16p-8f);
  p = v_fma(p, z, v_set(0x1.5256d6p-6f));
  p = v_fma(p, z, v_set(-0x1.b84448p-5f));
  p = v_fma(p, z, v_set(0x1.110768p-3f));
  p = v_fma(p, z, v_set(-0x1.555534p-2f));
  vf small = v_fma(v_mul(p, z), x, x);
  // Beyond 20 the result is 1 and e^2x must not overflow; the order of min keeps NaN.
  vf e = v_exp2(v_mul(v_min(v_set(20.0f), a), v_set((float)(2 * HD_LOG2E))));
  vf large = v_copysign(v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(e, v_set(1.0f)))), x);
  return v_select(v_gt(v_set(0.625f), a), small, large);
}

void KERNEL(to_lanes)(const float *const *rows, int count, int64_t columns, float scale, float *dst, int lanes) {
  const vf factor = v_set(scale);
  for (int r = 0; r < lanes; r += LANES) {
    int here = HD_MIN(count - r, LANES);
    int64_t c = 0;
    if (here == LANES)
      for (; c + LANES <= columns; c += LANES) {
        vf square[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) square[i] = v_load(rows[r + i] + c);
        v_transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) v_store(dst + (c + i) * lanes + r, v_mul(square[i], factor));
      }
    for (; c < columns; c++) {
      float *out = dst + c * lanes + r;
      for (int i = 0; i < LANES; i++) out[i] = i < here ? rows[r + i][c] * scale : 0.0f;
    }
  }
}

void KERNEL(from_lanes)(const float *src, int lanes, int count, int64_t columns, float *const *rows) {
  for (int r = 0; r < count; r += LANES) {
    int here = HD_MIN(count - r, LANES);
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
      vf square[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) square[i] = v_load(src + (c + i) * lanes + r);
      v_transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++)
        if (i < here) v_store(rows[r + i] + c, square[i]);
    }
    for (; c < columns; c++)
      for (int i = 0; i < here; i++) rows[r + i][c] = src[c * lanes + r + i];
  }
}

void KERNEL(widen)(const uint16_t *src, heed_type type, int64_t n, float *dst) {
  int64_t i = 0;
  if (type == HEED_F16) {
    for (; i + LANES <= n; i += LANES) v_store(dst + i, v_load_f16(src + i));
    for (; i < n; i++) dst[i] = hd_f16_to_f32(src[i]);
  } else {
    for (; i + LANES <= n; i += LANES) v_store(dst + i, v_load_bf16(src + i));
    for (; i < n; i++) dst[i] = hd_bf16_to_f32(src[i]);
  }
}

void KERNEL(narrow)(const float *src, int64_t n, heed_type type, uint16_t *dst) {
  int64_t i = 0;
  if (type == HEED_F16) {
    for (; i + LANES <= n; i += LANES) v_store_f16(dst + i, v_load(src + i));
    for (; i < n; i++) dst[i] = hd_f32_to_f16(src[i]);
  } else {
    for (; i + LANES <= n; i += LANES) v_store_bf16(dst + i, v_load(src + i));
    for (; i < n; i++) dst[i] = hd_f32_to_bf16(src[i]);
  }
}

/* ---- along a row: element i belongs to logical lane i mod 16; lanes meet in a fixed tree ------------------------------------------ */

enum { ROW_LANES = 16, ROW_VECTORS = ROW_LANES / LANES };

float KERNEL(row_max)(const float *row, int64_t n) {
  vf top = v_set(-INFINITY);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) top = v_max(v_load(row + i), top);
  float lane[LANES], best = -INFINITY;
  v_store(lane, top);
  for (int j = 0; j < LANES; j++) best = lane[j] > best ? lane[j] : best;
  for (; i < n; i++) best = row[i] > best ? row[i] : best;
  return best;
}

float KERNEL(row_exp2)(float *row, int64_t n, float maximum) {
  const vf top = v_set(maximum);
  vf sum[ROW_VECTORS];
  for (int v = 0; v < ROW_VECTORS; v++) sum[v] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += ROW_LANES) {
    float copy[ROW_LANES], *at = row + i;
    int64_t here = HD_MIN(n - i, ROW_LANES);
    if (here < ROW_LANES) { // the last few: padded with what exp2 makes 0
      for (int64_t j = 0; j < ROW_LANES; j++) copy[j] = j < here ? at[j] : -INFINITY;
      at = copy;
    }
    for (int v = 0; v < ROW_VECTORS; v++) {
      vf p = v_exp2(v_sub(v_load(at + v * LANES), top));
      v_store(at + v * LANES, p);
      sum[v] = v_add(sum[v], p);
    }
    if (here < ROW_LANES) memcpy(row + i, copy, (size_t)here * sizeof *row);
  }
  return v_sum16(sum);
}

void KERNEL(row_scale)(float *row, int64_t n, float factor) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) v_store(row + i, v_mul(v_load(row + i), v_set(factor)));
  for (; i < n; i++) row[i] *= factor;
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------------ */

/* Twelve independent chains of multiply-adds: more than latency × ports of any core in use needs (4 × 2), few enough for 16 registers. Every loop over them is unrolled, or the array would live in memory. */
enum { PEAK_CHAINS = 12 };

float KERNEL(peak)(int64_t rounds) {
  vf chain[PEAK_CHAINS], near_one = v_set(0.999f), tiny = v_set(1e-9f);
#pragma GCC unroll 12
  for (int i = 0; i < PEAK_CHAINS; i++) chain[i] = v_set((float)i);
  for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
    for (int i = 0; i < PEAK_CHAINS; i++) {
      chain[i] = v_fma(chain[i], near_one, tiny);
      PIN(chain[i]);
    }
  }
  vf sum = chain[0];
#pragma GCC unroll 12
  for (int i = 1; i < PEAK_CHAINS; i++) sum = v_add(sum, chain[i]);
  float lane[LANES];
  v_store(lane, sum);
  return lane[0];
}

float KERNEL(read)(const float *data, int64_t n) {
  vf sum[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) sum[j] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += 4 * LANES)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum[j] = v_add(sum[j], v_load(data + i + j * LANES));
  float lane[LANES];
  v_store(lane, v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
  return lane[0];
}
