/* body_additive.h: scores w · tanh(a + b) of query lanes a and keys b, and their gradients (Bahdanau, Cho, Bengio, 2015).
 *
 * As with products, queries are in lanes for what belongs to queries, and the width is in lanes for what is summed over them. The tangents are computed three times altogether
 * (scores, dq, dk) rather than stored. */

INLINE void additive_vectors(const hd_attn_block *block, const hd_attn_tile *tile, const float *w, int first, const int vectors) {
  for (int key = 0; key < tile->keys; key++) {
    const float *k = tile->k + key * tile->k_stride;
    vf sum[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[v] = v_set(0.0f);
    for (int64_t c = 0; c < block->d; c++)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        vf t = v_tanh(v_add(v_load(block->q + c * block->lanes + first + v * LANES), v_set(k[c])));
        sum[v] = v_fma(v_set(w[c]), t, sum[v]);
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

void KERNEL(additive_backward_lanes)(const hd_attn_gradient *g, const hd_attn_tile *tile, const float *w, const float *ds) {
  const hd_attn_block *block = &g->block;
  const vf one = v_set(1.0f);
  for (int64_t c = 0; c < block->d; c++)
    for (int lane = 0; lane < block->lanes; lane += LANES) {
      float *dq = g->dq + c * block->lanes + lane;
      const vf q = v_load(block->q + c * block->lanes + lane), weight = v_set(w[c]);
      vf sum = v_load(dq);
      for (int key = 0; key < tile->keys; key++) {
        vf t = v_tanh(v_add(q, v_set(tile->k[key * tile->k_stride + c])));
        vf slope = v_mul(weight, v_fma(v_sub(v_set(0.0f), t), t, one));
        vf added = v_fma(v_load(ds + block->shift + key * tile->stride + lane), slope, sum);
        sum = tile->visible ? v_select(lanes_seeing(block, tile->visible[key], lane / LANES), added, sum) : added;
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
    vf t = v_tanh(v_add(v_load(queries[query] + c), k)), s = v_set(ds[key * tile->stride + query]);
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
