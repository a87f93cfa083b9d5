/* body_additive.h: scores w · tanh(a + b) of query lanes a and keys b, and their gradients (Bahdanau, Cho, Bengio, 2015).
 *
 * As with products, queries are in lanes for what belongs to queries, and the width is in lanes for what is summed over them. The tangents are computed three times altogether
 * (scores, dq, dk) rather than stored. */

/* tanh x = 1 − 2 / (e^2x + 1), within 2e-7 of it: what a score adds up needs no better, and where x is near 0 v_tanh takes twice as long for a relative error that nobody sees.
 * The order of min and max keeps NaN; beyond ±20 the result is ±1. */
INLINE vf tangent_denominator(vf x) {
  vf clamped = v_max(v_set(-20.0f), v_min(v_set(20.0f), x));
  return v_add(v_exp2(v_mul(clamped, v_set((float)(2 * HD_LOG2E)))), v_set(1.0f));
}

INLINE vf tangent(vf x) { return v_sub(v_set(1.0f), v_div(v_set(2.0f), tangent_denominator(x))); }

/* Two at the price of one division: 2/a = b · 2/(ab), and ab ≤ e^80 is no overflow. They belong to the same pair of query and key, so that a NaN spoils nothing that it would not spoil anyway. */
INLINE void two_tangents(vf x, vf y, vf *tanh_x, vf *tanh_y) {
  vf a = tangent_denominator(x), b = tangent_denominator(y), both = v_div(v_set(-2.0f), v_mul(a, b));
  *tanh_x = v_fma(both, b, v_set(1.0f));
  *tanh_y = v_fma(both, a, v_set(1.0f));
}

INLINE void additive_vectors(const hd_attn_block *block, const hd_attn_tile *tile, const float *w, int first, const int vectors) {
  const float *q = block->q + first;
  for (int key = 0; key < tile->keys; key++) {
    const float *k = tile->k + key * tile->k_stride;
    vf sum[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[v] = v_set(0.0f);
    int64_t c = 0;
    for (; c + 2 <= block->d; c += 2)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        const float *at = q + c * block->lanes + v * LANES;
        vf t, u;
        two_tangents(v_add(v_load(at), v_set(k[c])), v_add(v_load(at + block->lanes), v_set(k[c + 1])), &t, &u);
        sum[v] = v_fma(v_set(w[c + 1]), u, v_fma(v_set(w[c]), t, sum[v]));
      }
    if (c < block->d) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        sum[v] = v_fma(v_set(w[c]), tangent(v_add(v_load(q + c * block->lanes + v * LANES), v_set(k[c]))), sum[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(tile->scores + block->shift + key * tile->stride + first + v * LANES, sum[v]);
  }
}

void KERNEL(additive_scores)(const hd_attn_block *block, const hd_attn_tile *tile, const float *w) {
  int lane = 0;
  for (; lane + 2 * LANES <= block->lanes; lane += 2 * LANES) additive_vectors(block, tile, w, lane, 2);
  if (lane < block->lanes) additive_vectors(block, tile, w, lane, 1);
}

/* ds · w (1 − t²) onto sum, where the lane sees the key. */
INLINE vf add_slope(const hd_attn_block *block, const hd_attn_tile *tile, const float *ds, int key, int lane, vf weight, vf t, vf sum) {
  vf slope = v_mul(weight, v_fma(v_sub(v_set(0.0f), t), t, v_set(1.0f)));
  vf added = v_fma(v_load(ds + block->shift + key * tile->stride + lane), slope, sum);
  return tile->visible ? v_select(lanes_seeing(block, tile->visible[key], lane / LANES), added, sum) : added;
}

void KERNEL(additive_backward_lanes)(const hd_attn_gradient *g, const hd_attn_tile *tile, const float *w, const float *ds) {
  const hd_attn_block *block = &g->block;
  for (int lane = 0; lane < block->lanes; lane += LANES) {
    int64_t c = 0;
    for (; c + 2 <= block->d; c += 2) {
      const float *q = block->q + c * block->lanes + lane;
      float *dq = g->dq + c * block->lanes + lane;
      vf first = v_load(dq), second = v_load(dq + block->lanes);
      for (int key = 0; key < tile->keys; key++) {
        const float *k = tile->k + key * tile->k_stride + c;
        vf t, u;
        two_tangents(v_add(v_load(q), v_set(k[0])), v_add(v_load(q + block->lanes), v_set(k[1])), &t, &u);
        first = add_slope(block, tile, ds, key, lane, v_set(w[c]), t, first);
        second = add_slope(block, tile, ds, key, lane, v_set(w[c + 1]), u, second);
      }
      v_store(dq, first);
      v_store(dq + block->lanes, second);
    }
    if (c == block->d) continue;
    float *dq = g->dq + c * block->lanes + lane;
    vf sum = v_load(dq);
    for (int key = 0; key < tile->keys; key++) {
      vf t = tangent(v_add(v_load(block->q + c * block->lanes + lane), v_set(tile->k[key * tile->k_stride + c])));
      sum = add_slope(block, tile, ds, key, lane, v_set(w[c]), t, sum);
    }
    v_store(dq, sum);
  }
}

/* Columns [c, c + LANES) of one key. */
INLINE void additive_key(const hd_attn_tile *tile, const float *ds, int key, int count, const float *const *queries, const float *w,
                         int64_t c, float *dk, float *dw) {
  const uint64_t seen = tile->visible ? tile->visible[key] : ~(uint64_t)0;
  const vf k = v_load(tile->k + key * tile->k_stride + c), weight = v_load(w + c), one = v_set(1.0f);
  vf sum = v_load(dk), weighted = v_load(dw);
  for (int query = 0; query < count; query++) {
    if (!(seen >> query & 1)) continue;
    vf t = tangent(v_add(v_load(queries[query] + c), k)), s = v_set(ds[key * tile->stride + query]);
    sum = v_fma(s, v_mul(weight, v_fma(v_sub(v_set(0.0f), t), t, one)), sum);
    weighted = v_fma(s, t, weighted);
  }
  v_store(dk, sum);
  v_store(dw, weighted);
}

void KERNEL(additive_backward_keys)(const hd_attn_tile *tile, const float *ds, int count, const float *const *queries, const float *w,
                                    int64_t columns, float *dk, float *dw) {
  for (int key = 0; key < tile->keys; key++)
    for (int64_t c = 0; c < columns; c += LANES)
      additive_key(tile, ds, key, count, queries, w, c, dk + key * columns + c, dw + key * columns + c);
}
