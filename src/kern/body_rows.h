/* body_rows.h: what a transformer block does along rows besides products and activations: norms, sums, rotary positions.
 *
 * Element by element, with the last few elements of a row going through a padded copy, so that each element sees the same operations on every level; the sums of the norms
 * follow the tree of 16 lanes in body_vec.h. */

/* LANES elements at p of which `here` exist; the others are 0. */
INLINE vf row_load(const float *p, int64_t here) {
  if (here >= LANES) return v_load(p);
  float lane[LANES] = {0};
  memcpy(lane, p, (size_t)here * sizeof *p);
  return v_load(lane);
}

INLINE void row_store(float *p, int64_t here, vf value) {
  if (here >= LANES) {
    v_store(p, value);
    return;
  }
  float lane[LANES];
  v_store(lane, value);
  memcpy(p, lane, (size_t)here * sizeof *p);
}

/* Σ (x − mean)², or Σ x where `plain`. Elements beyond the end add +0. */
INLINE float row_moment(const float *x, int64_t n, float mean, const bool plain) {
  vf sum[ROW_VECTORS];
  for (int v = 0; v < ROW_VECTORS; v++) sum[v] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      int64_t here = n - i - v * LANES;
      if (here <= 0) break;
      vf value = row_load(x + i + v * LANES, here);
      if (plain) {
        sum[v] = v_add(sum[v], value);
      } else {
        vf apart = v_sub(value, v_set(mean));
        if (here < LANES) apart = v_keep(v_mask(((uint64_t)1 << here) - 1), apart);
        sum[v] = v_fma(apart, apart, sum[v]);
      }
    }
  return v_sum16(sum);
}

float KERNEL(sum)(const float *x, int64_t n) { return row_moment(x, n, 0.0f, true); }

/* As many columns at once as give each row a few cache lines; each keeps its sum in a register. */
enum { SUM_VECTORS = 64 / LANES };

void KERNEL(sum_rows)(const float *x, int64_t rows, int64_t stride, int64_t n, bool accumulate, float *out) {
  for (int64_t c = 0; c < n; c += SUM_VECTORS * LANES) {
    vf sum[SUM_VECTORS];
    const int64_t here = HD_MIN(n - c, SUM_VECTORS * LANES);
    if (here == SUM_VECTORS * LANES) {
#pragma GCC unroll 16
      for (int v = 0; v < SUM_VECTORS; v++) sum[v] = accumulate ? v_load(out + c + v * LANES) : v_set(0.0f);
      for (int64_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < SUM_VECTORS; v++) sum[v] = v_add(sum[v], v_load(x + r * stride + c + v * LANES));
#pragma GCC unroll 16
      for (int v = 0; v < SUM_VECTORS; v++) v_store(out + c + v * LANES, sum[v]);
      continue;
    }
    for (int64_t i = c; i < c + here; i += LANES) {
      sum[0] = accumulate ? row_load(out + i, n - i) : v_set(0.0f);
      for (int64_t r = 0; r < rows; r++) sum[0] = v_add(sum[0], row_load(x + r * stride + i, n - i));
      row_store(out + i, n - i, sum[0]);
    }
  }
}

void KERNEL(rms_norm)(const float *x, const float *weight, int64_t n, float epsilon, float *out, float *kept) {
  const float scale = 1.0f / sqrtf(row_moment(x, n, 0.0f, false) / (float)n + epsilon);
  const vf factor = v_set(scale);
  if (kept) kept[0] = 0.0f, kept[1] = scale;
  for (int64_t i = 0; i < n; i += LANES) {
    vf value = v_mul(row_load(x + i, n - i), factor);
    if (weight) value = v_mul(value, row_load(weight + i, n - i));
    row_store(out + i, n - i, value);
  }
}

void KERNEL(layer_norm)(const float *x, const float *weight, const float *bias, int64_t n, float epsilon, float *out, float *kept) {
  const float mean = row_moment(x, n, 0.0f, true) / (float)n, scale = 1.0f / sqrtf(row_moment(x, n, mean, false) / (float)n + epsilon);
  const vf center = v_set(mean), factor = v_set(scale);
  if (kept) kept[0] = mean, kept[1] = scale;
  for (int64_t i = 0; i < n; i += LANES) {
    vf value = v_mul(v_sub(row_load(x + i, n - i), center), factor);
    if (weight) value = v_mul(value, row_load(weight + i, n - i));
    if (bias) value = v_add(value, row_load(bias + i, n - i));
    row_store(out + i, n - i, value);
  }
}

/* Neighbours: x · c + swapped x · (−s, s). Each product is rounded before the sum, as in the other order. */
static void rotate_neighbours(float *head, const float *c, const float *s, int64_t pairs) {
  int64_t p = 0;
#if LANES > 1
  float sign[LANES];
  for (int i = 0; i < LANES; i++) sign[i] = i % 2 ? 1.0f : -1.0f;
  for (; p + LANES / 2 <= pairs; p += LANES / 2) {
    vf x = v_load(head + 2 * p);
    vf across = v_mul(v_swap_pairs(x), v_mul(v_load_pairs(s + p), v_load(sign)));
    v_store(head + 2 * p, v_add(v_mul(x, v_load_pairs(c + p)), across));
  }
#endif
  for (; p < pairs; p++) {
    float a = head[2 * p], b = head[2 * p + 1];
    head[2 * p] = a * c[p] - b * s[p];
    head[2 * p + 1] = b * c[p] + a * s[p];
  }
}

void KERNEL(rotate)(float *head, const float *c, const float *s, int64_t pairs, bool interleaved) {
  if (interleaved) {
    rotate_neighbours(head, c, s, pairs);
    return;
  }
  for (int64_t p = 0; p < pairs; p += LANES) {
    int64_t here = pairs - p;
    vf a = row_load(head + p, here), b = row_load(head + pairs + p, here), cosine = row_load(c + p, here), sine = row_load(s + p, here);
    row_store(head + p, here, v_sub(v_mul(a, cosine), v_mul(b, sine)));
    row_store(head + pairs + p, here, v_add(v_mul(b, cosine), v_mul(a, sine)));
  }
}
