/* body_rows.h: what a transformer block does along rows of activations besides products: norms, activations, sums, rotary positions.
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
  return row_sum(sum);
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

/* 1 / (1 + e^−x) from e^−|x|, which cannot overflow; relative precision on both sides. */
INLINE vf v_sigmoid(vf x) {
  vf e = v_exp2(v_mul(v_abs(x), v_set((float)-HD_LOG2E)));
  return v_div(v_select(v_gt(v_set(0.0f), x), e, v_set(1.0f)), v_add(v_set(1.0f), e));
}

/* x · (1 + tanh u) / 2 with u = √(2/π) (x + 0.044715 x³) is x · sigmoid(2u). */
INLINE vf v_gelu_tanh(vf x) {
  vf cube = v_mul(v_mul(x, x), x);
  vf u = v_mul(v_set(1.5957691216057308f), v_fma(v_set(0.044715f), cube, x)); // 2 √(2/π)
  return v_mul(x, v_sigmoid(u));
}

/* x Φ(x) = max(x, 0) − a Q(a) with a = |x| and Q(a) = erfc(a / √2) / 2, which keeps the small values on the left precise. Q(a) e^(a²/2) is a smooth function that falls
 * like 1/a: a polynomial in t = 1 / (1 + 0.35 a) without constant term fits it (minimax in relative error up to a = 13.5, where e^(−a²/2) underflows: 3.2e-8). */
INLINE vf v_gelu_erf(vf x) {
  vf a = v_min(v_set(20.0f), v_abs(x)); // beyond, Q is 0 and a² must not overflow; the order of min keeps NaN
  vf t = v_div(v_set(1.0f), v_fma(a, v_set(0.35f), v_set(1.0f)));
  vf p = v_set(-0x1.dd329ap-6f);
  p = v_fma(p, t, v_set(0x1.26a66ap-3f));
  p = v_fma(p, t, v_set(-0x1.05a2eep-2f));
  p = v_fma(p, t, v_set(0x1.457c9ap-3f));
  p = v_fma(p, t, v_set(-0x1.77cccep-6f));
  p = v_fma(p, t, v_set(0x1.afda68p-4f));
  p = v_fma(p, t, v_set(0x1.eaea66p-4f));
  p = v_fma(p, t, v_set(0x1.1e6e70p-3f));
  p = v_fma(p, t, v_set(0x1.1df1eap-3f));
  vf q = v_mul(v_mul(p, t), v_exp2(v_mul(v_mul(a, a), v_set((float)(-0.5 * HD_LOG2E)))));
  return v_sub(v_max(x, v_set(0.0f)), v_mul(a, q));
}

INLINE void activate_row(const float *x, const float *gate, int64_t n, float *out, const hd_activation kind) {
  for (int64_t i = 0; i < n; i += LANES) {
    vf value = row_load(x + i, n - i);
    switch (kind) {
    case HD_RELU: value = v_select(v_gt(v_set(0.0f), value), v_set(0.0f), value); break; // keeps NaN
    case HD_SILU: value = v_mul(value, v_sigmoid(value)); break;
    case HD_GELU_TANH: value = v_gelu_tanh(value); break;
    case HD_GELU_ERF: value = v_gelu_erf(value); break;
    }
    if (gate) value = v_mul(value, row_load(gate + i, n - i));
    row_store(out + i, n - i, value);
  }
}

void KERNEL(activate)(hd_activation kind, const float *x, const float *gate, int64_t n, float *out) {
  switch (kind) {
  case HD_RELU: activate_row(x, gate, n, out, HD_RELU); break;
  case HD_SILU: activate_row(x, gate, n, out, HD_SILU); break;
  case HD_GELU_TANH: activate_row(x, gate, n, out, HD_GELU_TANH); break;
  case HD_GELU_ERF: activate_row(x, gate, n, out, HD_GELU_ERF); break;
  }
}

void KERNEL(row_add)(float *row, const float *other, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) row_store(row + i, n - i, v_add(row_load(row + i, n - i), row_load(other + i, n - i)));
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
