/* body_learn.h: what learning does along rows besides products: the softmax and the norms with their gradients, and the steps of optimisers.
 *
 * As in body_rows.h: the last few elements of a row go through padded copies, and sums along a row follow the tree of 16 lanes. */

/* Adds where a gradient is there already. */
INLINE void row_put(float *p, int64_t here, vf value, bool accumulate) {
  row_store(p, here, accumulate ? v_add(row_load(p, here), value) : value);
}

/* Lanes beyond the end become 0. */
INLINE vf row_cut(vf value, int64_t here) { return here < LANES ? v_keep(v_mask(((uint64_t)1 << here) - 1), value) : value; }

INLINE vf v_exp(vf x) { return v_exp2(v_mul(x, v_set((float)HD_LOG2E))); }

/* Σ a b. */
INLINE float row_dot(const float *a, const float *b, int64_t n) {
  vf sum[ROW_VECTORS];
  for (int v = 0; v < ROW_VECTORS; v++) sum[v] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      int64_t at = i + v * LANES;
      if (at >= n) break;
      sum[v] = v_fma(row_load(a + at, n - at), row_load(b + at, n - at), sum[v]);
    }
  return v_sum16(sum);
}

/* ---- softmax ---------------------------------------------------------------------------------------------------------------------- */

/* Elements whose maximum is looked for before they are summed: they stay in the first cache meanwhile, so that a row of a large vocabulary is read from memory once. */
enum { SOFTMAX_BLOCK = 1024 };

/* Σ e^(x − maximum) and Σ x of a block. */
INLINE void softmax_block(const float *x, int64_t n, float maximum, hd_softmax_sums *out) {
  vf sum[ROW_VECTORS], total[ROW_VECTORS];
  for (int v = 0; v < ROW_VECTORS; v++) sum[v] = total[v] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      int64_t here = n - i - v * LANES;
      if (here <= 0) break;
      vf value = row_load(x + i + v * LANES, here);
      total[v] = v_add(total[v], value);
      sum[v] = v_add(sum[v], row_cut(v_exp(v_sub(value, v_set(maximum))), here));
    }
  out->sum += v_sum16(sum);
  out->total += v_sum16(total);
}

void KERNEL(softmax_sums)(const float *x, int64_t n, hd_softmax_sums *out) {
  *out = (hd_softmax_sums){.maximum = -FLT_MAX}; // not −inf: a block of nothing but −inf must not make NaN of those that follow
  for (int64_t i = 0; i < n; i += SOFTMAX_BLOCK) {
    int64_t here = HD_MIN(n - i, SOFTMAX_BLOCK);
    float top = KERNEL(row_max)(x + i, here);
    if (top > out->maximum) {
      float lane[LANES];
      v_store(lane, v_exp(v_set(out->maximum - top)));
      out->sum *= lane[0];
      out->maximum = top;
    }
    softmax_block(x + i, here, out->maximum, out);
  }
}

void KERNEL(softmax_terms)(const float *x, int64_t n, float maximum, float factor, float offset, bool accumulate, float *out) {
  for (int64_t i = 0; i < n; i += LANES) {
    vf e = v_exp(v_sub(row_load(x + i, n - i), v_set(maximum)));
    row_put(out + i, n - i, v_fma(e, v_set(factor), v_set(offset)), accumulate);
  }
}

void KERNEL(softmax_backward)(const float *y, const float *dy, int64_t n, bool accumulate, float *dx) {
  const vf mean = v_set(row_dot(y, dy, n));
  for (int64_t i = 0; i < n; i += LANES)
    row_put(dx + i, n - i, v_mul(row_load(y + i, n - i), v_sub(row_load(dy + i, n - i), mean)), accumulate);
}

void KERNEL(log_softmax)(const float *x, int64_t n, float maximum, float log_sum, float *out) {
  for (int64_t i = 0; i < n; i += LANES) row_store(out + i, n - i, v_sub(v_sub(row_load(x + i, n - i), v_set(maximum)), v_set(log_sum)));
}

void KERNEL(log_softmax_backward)(const float *y, const float *dy, int64_t n, bool accumulate, float *dx) {
  const vf sum = v_set(-row_moment(dy, n, 0.0f, true));
  for (int64_t i = 0; i < n; i += LANES)
    row_put(dx + i, n - i, v_fma(v_exp(row_load(y + i, n - i)), sum, row_load(dy + i, n - i)), accumulate);
}

/* ---- norms ------------------------------------------------------------------------------------------------------------------------- */

/* With g = dy · weight: dx = factor · (g − mean(g) − x̂ mean(g x̂)), without mean(g) where no mean was taken off. The row is read twice, the second time from the first cache. */
INLINE void norm_row_backward(const hd_norm_gradient *g, int64_t r, const bool centered) {
  const int64_t n = g->columns;
  const float *x = g->x + r * n, *dy = g->dy + r * n;
  const vf center = v_set(g->kept[2 * r]), factor = v_set(g->kept[2 * r + 1]);
  vf sum[ROW_VECTORS], along[ROW_VECTORS];
  for (int v = 0; v < ROW_VECTORS; v++) sum[v] = along[v] = v_set(0.0f);
  for (int64_t i = 0; i < n; i += ROW_LANES)
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) {
      int64_t at = i + v * LANES, here = n - at;
      if (here <= 0) break;
      vf unit = v_mul(v_sub(row_load(x + at, here), center), factor), up = row_load(dy + at, here); // up is 0 beyond the end
      if (g->dweight) row_store(g->dweight + at, here, v_fma(up, unit, row_load(g->dweight + at, here)));
      if (g->dbias) row_store(g->dbias + at, here, v_add(row_load(g->dbias + at, here), up));
      if (g->weight) up = v_mul(up, row_load(g->weight + at, here));
      if (centered) sum[v] = v_add(sum[v], up);
      along[v] = v_fma(up, unit, along[v]);
    }
  if (!g->dx) return;
  const vf mean = v_set(centered ? v_sum16(sum) / (float)n : 0.0f), slope = v_set(v_sum16(along) / (float)n);
  for (int64_t i = 0; i < n; i += LANES) {
    vf unit = v_mul(v_sub(row_load(x + i, n - i), center), factor), up = row_load(dy + i, n - i);
    if (g->weight) up = v_mul(up, row_load(g->weight + i, n - i));
    if (centered) up = v_sub(up, mean);
    row_put(g->dx + r * n + i, n - i, v_mul(factor, v_sub(up, v_mul(unit, slope))), g->accumulate);
  }
}

void KERNEL(norm_backward)(const hd_norm_gradient *g) {
  for (int64_t r = 0; r < g->rows; r++)
    if (g->centered) norm_row_backward(g, r, true);
    else norm_row_backward(g, r, false);
}

/* ---- optimisers -------------------------------------------------------------------------------------------------------------------- */

/* Four sums of 16 lanes side by side: one alone would wait for its own additions. Blocks are short, so that single precision loses little before double takes over. */
enum { SQUARE_SUMS = 4, SQUARE_BLOCK = 4096 };

INLINE float square_block(const float *x, int64_t n) {
  vf sum[SQUARE_SUMS * ROW_VECTORS];
  int64_t i = 0;
  for (int v = 0; v < SQUARE_SUMS * ROW_VECTORS; v++) sum[v] = v_set(0.0f);
  for (; i + SQUARE_SUMS * ROW_LANES <= n; i += SQUARE_SUMS * ROW_LANES)
#pragma GCC unroll 64
    for (int v = 0; v < SQUARE_SUMS * ROW_VECTORS; v++) {
      vf value = v_load(x + i + v * LANES);
      sum[v] = v_fma(value, value, sum[v]);
    }
  for (int v = 0; i + v * LANES < n; v++) {
    vf value = row_load(x + i + v * LANES, n - i - v * LANES);
    sum[v] = v_fma(value, value, sum[v]);
  }
  for (int s = 1; s < SQUARE_SUMS; s++)
    for (int v = 0; v < ROW_VECTORS; v++) sum[v] = v_add(sum[v], sum[s * ROW_VECTORS + v]);
  return v_sum16(sum);
}

double KERNEL(sum_squares)(const float *x, int64_t n) {
  double total = 0;
  for (int64_t from = 0; from < n; from += SQUARE_BLOCK) {
    int64_t here = HD_MIN(n - from, SQUARE_BLOCK);
    double sum = square_block(x + from, here);
    if (!(sum <= FLT_MAX)) { // squares of large numbers overflow where the numbers themselves are sound
      sum = 0;
      for (int64_t i = from; i < from + here; i++) sum += (double)x[i] * x[i];
    }
    total += sum;
  }
  return total;
}

void KERNEL(adamw)(const hd_adamw *step, int64_t n, const float *g, float *m, float *v, float *p) {
  const vf gradient = v_set(step->gradient), rest1 = v_set(step->rest1), beta2 = v_set(step->beta2), rest2 = v_set(step->rest2);
  const vf second = v_set(step->second), epsilon = v_set(step->epsilon), rate = v_set(-step->rate), keep = v_set(step->keep);
  for (int64_t i = 0; i < n; i += LANES) {
    const int64_t here = n - i;
    vf slope = v_mul(gradient, row_load(g + i, here)), first = row_load(m + i, here);
    first = v_fma(v_sub(slope, first), rest1, first);
    vf square = v_fma(v_mul(slope, slope), rest2, v_mul(row_load(v + i, here), beta2));
    vf move = v_div(first, v_fma(v_sqrt(square), second, epsilon));
    row_store(m + i, here, first);
    row_store(v + i, here, square);
    row_store(p + i, here, v_fma(move, rate, v_mul(row_load(p + i, here), keep)));
  }
}

void KERNEL(sgd)(const hd_sgd *step, int64_t n, const float *g, float *m, float *p) {
  const vf gradient = v_set(step->gradient), decay = v_set(step->decay), momentum = v_set(step->momentum), rate = v_set(-step->rate);
  for (int64_t i = 0; i < n; i += LANES) {
    const int64_t here = n - i;
    vf at = row_load(p + i, here), move = v_fma(decay, at, v_mul(gradient, row_load(g + i, here)));
    if (m) {
      move = v_fma(momentum, row_load(m + i, here), move);
      row_store(m + i, here, move);
    }
    row_store(p + i, here, v_fma(move, rate, at));
  }
}
