/* body_elements.h: what happens to each element by itself: activations and their slopes, sums, products, dropout. The last few go through a padded copy (row_load), so that each sees the
 * same operations on every level. */

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
INLINE vf v_tail(vf a) { // Q(a) e^(a²/2)
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
  return v_mul(p, t);
}

INLINE vf v_bell(vf a) { return v_exp2(v_mul(v_mul(a, a), v_set((float)(-0.5 * HD_LOG2E)))); } // e^(−a²/2)

INLINE vf v_gelu_erf(vf x) {
  vf a = v_min(v_set(20.0f), v_abs(x)); // beyond, Q is 0 and a² must not overflow; the order of min keeps NaN
  vf q = v_mul(v_tail(a), v_bell(a));
  return v_sub(v_max(x, v_set(0.0f)), v_mul(a, q));
}

INLINE void activate_row(const float *x, const float *gate, int64_t n, float *out, const heed_activation kind) {
  for (int64_t i = 0; i < n; i += LANES) {
    vf value = row_load(x + i, n - i);
    switch (kind) {
    case HEED_ACTIVATION_RELU: value = v_select(v_gt(v_set(0.0f), value), v_set(0.0f), value); break; // keeps NaN
    case HEED_ACTIVATION_SILU: value = v_mul(value, v_sigmoid(value)); break;
    case HEED_ACTIVATION_GELU_TANH: value = v_gelu_tanh(value); break;
    case HEED_ACTIVATION_GELU: value = v_gelu_erf(value); break;
    case HEED_ACTIVATION_TANH: value = v_tanh(value); break;
    case HEED_ACTIVATION_SIGMOID: value = v_sigmoid(value); break;
    }
    if (gate) value = v_mul(value, row_load(gate + i, n - i));
    row_store(out + i, n - i, value);
  }
}

void KERNEL(activate)(heed_activation kind, const float *x, const float *gate, int64_t n, float *out) {
  switch (kind) {
  case HEED_ACTIVATION_RELU: activate_row(x, gate, n, out, HEED_ACTIVATION_RELU); break;
  case HEED_ACTIVATION_SILU: activate_row(x, gate, n, out, HEED_ACTIVATION_SILU); break;
  case HEED_ACTIVATION_GELU_TANH: activate_row(x, gate, n, out, HEED_ACTIVATION_GELU_TANH); break;
  case HEED_ACTIVATION_GELU: activate_row(x, gate, n, out, HEED_ACTIVATION_GELU); break;
  case HEED_ACTIVATION_TANH: activate_row(x, gate, n, out, HEED_ACTIVATION_TANH); break;
  case HEED_ACTIVATION_SIGMOID: activate_row(x, gate, n, out, HEED_ACTIVATION_SIGMOID); break;
  }
}

/* σ(x) and *rest = 1 − σ(x), both to relative precision. */
INLINE vf v_sigmoid_both(vf x, vf *rest) {
  vf e = v_exp2(v_mul(v_abs(x), v_set((float)-HD_LOG2E))), large = v_div(v_set(1.0f), v_add(v_set(1.0f), e)), small = v_mul(e, large);
  vm negative = v_gt(v_set(0.0f), x);
  *rest = v_select(negative, large, small);
  return v_select(negative, small, large);
}

/* x σ(2u) as above: σ + x σ (1 − σ) 2u'. Where x² is above the limit σ (1 − σ) is 0, and so is what it is multiplied with. */
INLINE vf v_gelu_tanh_slope(vf x, vf *value) {
  const vf twice = v_set(1.5957691216057308f); // 2 √(2/π)
  vf square = v_min(v_set(1e4f), v_mul(x, x)), rest;
  vf s = v_sigmoid_both(v_mul(v_mul(x, twice), v_fma(v_set(0.044715f), square, v_set(1.0f))), &rest);
  *value = v_mul(x, s);
  return v_fma(v_mul(*value, rest), v_mul(twice, v_fma(v_set(3 * 0.044715f), square, v_set(1.0f))), s);
}

/* Φ(x) + x φ(x). On the left it is e^(−a²/2) (Q(a) e^(a²/2) − a / √(2π)), which stays precise as it falls, and the right side is 1 minus the left. */
INLINE vf v_gelu_erf_slope(vf x, vf *value) {
  vf a = v_min(v_set(20.0f), v_abs(x)), tail = v_tail(a), bell = v_bell(a);
  vf left = v_mul(bell, v_fma(a, v_set(-0.3989422804014327f), tail)); // 1 / √(2π)
  *value = v_sub(v_max(x, v_set(0.0f)), v_mul(a, v_mul(tail, bell)));
  return v_select(v_gt(v_set(0.0f), x), left, v_sub(v_set(1.0f), left));
}

/* act'(x), and act(x) as *value. */
INLINE vf v_slope(vf x, vf *value, const heed_activation kind) {
  vf s, rest;
  switch (kind) {
  case HEED_ACTIVATION_RELU: *value = v_select(v_gt(v_set(0.0f), x), v_set(0.0f), x); return v_keep(v_gt(x, v_set(0.0f)), v_set(1.0f));
  case HEED_ACTIVATION_SILU: // σ + x σ (1 − σ)
    s = v_sigmoid_both(x, &rest);
    *value = v_mul(x, s);
    return v_fma(*value, rest, s);
  case HEED_ACTIVATION_GELU_TANH: return v_gelu_tanh_slope(x, value);
  case HEED_ACTIVATION_GELU: return v_gelu_erf_slope(x, value);
  case HEED_ACTIVATION_TANH: // 1 − tanh² = 4 σ(2x) (1 − σ(2x))
    *value = v_tanh(x);
    s = v_sigmoid_both(v_add(x, x), &rest);
    return v_mul(v_set(4.0f), v_mul(s, rest));
  case HEED_ACTIVATION_SIGMOID: *value = s = v_sigmoid_both(x, &rest); return v_mul(s, rest);
  }
  return *value = x;
}

/* Added to what is there, or in its place. */
INLINE void put(float *p, int64_t here, vf value, bool accumulate) {
  row_store(p, here, accumulate ? v_add(row_load(p, here), value) : value);
}

INLINE void activate_back(const hd_activation_gradient *g, int64_t n, const heed_activation kind) {
  for (int64_t i = 0; i < n; i += LANES) {
    vf value, dy = row_load(g->dy + i, n - i), slope = v_slope(row_load(g->x + i, n - i), &value, kind);
    if (g->gate) {
      put(g->dgate + i, n - i, v_mul(dy, value), g->accumulate);
      dy = v_mul(dy, row_load(g->gate + i, n - i));
    }
    put(g->dx + i, n - i, v_mul(dy, slope), g->accumulate);
  }
}

void KERNEL(activate_backward)(const hd_activation_gradient *g, int64_t n) {
  switch (g->kind) {
  case HEED_ACTIVATION_RELU: activate_back(g, n, HEED_ACTIVATION_RELU); break;
  case HEED_ACTIVATION_SILU: activate_back(g, n, HEED_ACTIVATION_SILU); break;
  case HEED_ACTIVATION_GELU_TANH: activate_back(g, n, HEED_ACTIVATION_GELU_TANH); break;
  case HEED_ACTIVATION_GELU: activate_back(g, n, HEED_ACTIVATION_GELU); break;
  case HEED_ACTIVATION_TANH: activate_back(g, n, HEED_ACTIVATION_TANH); break;
  case HEED_ACTIVATION_SIGMOID: activate_back(g, n, HEED_ACTIVATION_SIGMOID); break;
  }
}

void KERNEL(add)(const float *a, const float *b, int64_t n, float *out) {
  for (int64_t i = 0; i < n; i += LANES) row_store(out + i, n - i, v_add(row_load(a + i, n - i), row_load(b + i, n - i)));
}

void KERNEL(mul)(const float *a, const float *b, int64_t n, bool accumulate, float *out) {
  for (int64_t i = 0; i < n; i += LANES) put(out + i, n - i, v_mul(row_load(a + i, n - i), row_load(b + i, n - i)), accumulate);
}

void KERNEL(scale)(const float *x, float factor, int64_t n, bool accumulate, float *out) {
  for (int64_t i = 0; i < n; i += LANES) put(out + i, n - i, v_mul(row_load(x + i, n - i), v_set(factor)), accumulate);
}

void KERNEL(dropout)(const hd_dropout *dropout, const float *x, int64_t n, float *out) {
  const int groups = HD_DROPOUT_BLOCK / 4;
  uint32_t place[HD_DROPOUT_BLOCK / 4];
  for (int i = 0; i < groups; i++) place[i] = (uint32_t)i;
  for (int64_t at = 0; at < n; at += HD_DROPOUT_BLOCK) {
    const uint64_t first = (uint64_t)(dropout->block + at / HD_DROPOUT_BLOCK) * groups; // a multiple of 16
    for (int lane = 0; lane < groups; lane += LANES) {
      vi word[4] = {v_or(v_load_u32(place + lane), v_set_u32((uint32_t)first)), v_set_u32((uint32_t)(first >> 32)), v_set_u32(0),
                    v_set_u32(dropout->stream)};
      v_philox(word, dropout->seed);
      for (int w = 0; w < 4; w++) {
        int64_t i = at + w * groups + lane;
        if (i >= n) break;
        vm kept = v_mask(v_above(word[w], dropout->last_dropped));
        put(out + i, n - i, v_keep(kept, v_mul(row_load(x + i, n - i), v_set(dropout->factor))), dropout->accumulate);
      }
    }
  }
}
