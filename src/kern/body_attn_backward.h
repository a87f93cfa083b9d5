/* body_attn_backward.h: the gradients of fused attention for one tile of keys and one tile of query lanes.
 *
 * With S the scores and L the log-sum-exp of the forward pass, P = exp(S − L) is rebuilt rather than stored; dP = dO Vᵀ; δ = rowsum(dO ∘ O) stands for Σ_j P_ij dP_ij, so that
 * dS = P ∘ (dP − δ) needs no second pass. Then dQ = dS K, dK = dSᵀ Q, dV = Pᵀ dO (Dao et al., FlashAttention, 2022, appendix B).
 * With dropout D (0, or 1/(1 − p) where kept) the output is (P ∘ D) V: dV = (P ∘ D)ᵀ dO and dS = P ∘ (D ∘ dP − δ). Factors are part of D.
 * S, dP and dQ have queries in lanes as in the forward pass; dK and dV have the head width in lanes and sum over the tile's queries, ascending. */

/* out[key][lane] += Σ over queries of p[key][query] rows[query][lane], queries ascending, one chain: keys [from, to), queries [begin, end), columns [first, first + vectors vectors). */
INLINE void multiply_queries(const float *p, int64_t p_stride, int from, int to, int begin, int end, const float *const *queries,
                             int64_t first, float *out, int64_t out_stride, hd_ahead *ahead, const int rows, const int vectors) {
  for (int key = from; key < to; key += rows) {
    ask(ahead);
    vf sum[8][4];
    float *at = out + key * out_stride + first;
    sums_load(sum, at, out_stride, rows, vectors);
    const float *weight = p + key * p_stride;
#pragma GCC unroll 1
    for (int query = begin; query < end; query++) {
      const float *row = queries[query] + first;
      vf b[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        b[v] = v_load(row + v * LANES);
        PIN(b[v]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        vf a = v_set(weight[r * p_stride + query]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(a, b[v], sum[r][v]);
      }
    }
    sums_store(sum, at, out_stride, rows, vectors);
  }
}

/* Keys [from, to) in register tiles of `rows` keys, what is left in tiles of 4; a tile may run past the last key of all, into rows of the scratch that nobody reads. */
INLINE void queries_width(const float *p, int64_t p_stride, int from, int to, int begin, int end, const float *const *queries,
                          int64_t first, float *out, int64_t out_stride, hd_ahead *ahead, const int rows, const int vectors) {
  int whole = from + (to - from) / rows * rows;
  multiply_queries(p, p_stride, from, whole, begin, end, queries, first, out, out_stride, ahead, rows, vectors);
  multiply_queries(p, p_stride, whole, to, begin, end, queries, first, out, out_stride, ahead, 4, vectors);
}

/* Scores to weights: P = exp2(S − L), 0 where hidden. L is at least S, and where L is so large that its rounding says otherwise P is 1, not a power of two beyond all bounds.
 * The order of min keeps NaN. */
INLINE void rebuild_weights(const hd_attn_gradient *g, const hd_attn_tile *tile, const run *r, const int vectors) {
  vf lse[4];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) lse[v] = v_load(g->lse + (r->first + v) * LANES);
  for (int key = r->from; key < r->to; key++) {
    float *row = block_scores(&g->block, tile) + key * tile->stride + r->first * LANES;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      vf p = v_exp2(v_min(v_set(0.0f), v_sub(v_load(row + v * LANES), lse[v])));
      if (tile->visible) p = v_keep(lanes_seeing(&g->block, tile->visible[key], r->first + v), p);
      v_store(row + v * LANES, p);
    }
  }
}

/* dS = P ∘ (dP − δ), and through the softcap; 0 where hidden, whatever a hidden value made of dP. */
INLINE void score_gradients(const hd_attn_gradient *g, const hd_attn_tile *tile, const run *r, float *ds, const int vectors) {
  vf delta[4];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) delta[v] = v_load(g->delta + (r->first + v) * LANES);
  for (int key = r->from; key < r->to; key++) {
    int64_t at = g->block.shift + key * tile->stride + r->first * LANES;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      vf s = v_mul(v_load(tile->scores + at + v * LANES), v_sub(v_load(ds + at + v * LANES), delta[v]));
      if (tile->slope) s = v_mul(s, v_load(tile->slope + at + v * LANES));
      if (tile->visible) s = v_keep(lanes_seeing(&g->block, tile->visible[key], r->first + v), s);
      v_store(ds + at + v * LANES, s);
    }
  }
}

/* Zeros in the block's part of a [64][stride] array wherever no run goes: before, between and after runs of keys, and beside them. Runs ascend. */
static void clear_outside(const hd_attn_block *block, const hd_attn_tile *tile, const run *runs, int count, float *array) {
  const run none = {.from = tile->keys, .to = tile->keys};
  for (int key = 0, i = 0; key < tile->keys; key++) {
    while (i < count && runs[i].to <= key) i++;
    const run *r = i < count && runs[i].from <= key ? &runs[i] : &none;
    float *row = array + block->shift + key * tile->stride;
    int end = (r->first + r->vectors) * LANES;
    memset(row, 0, (size_t)(r->first * LANES) * sizeof *row);
    memset(row + end, 0, (size_t)(block->lanes - end) * sizeof *row);
  }
}

void KERNEL(attn_backward_lanes)(const hd_attn_gradient *g, const hd_attn_tile *given, float *ds) {
  const hd_attn_block *block = &g->block;
  hd_attn_tile copy, *tile = &copy;
  copy = *given;
  if (block->shift) memset(tile->ahead, 0, sizeof tile->ahead); // the tile's first block has asked
  begin_asking(tile->ahead[0], HD_KEY_TILE);
  begin_asking(tile->ahead[1], HD_KEY_TILE);
  begin_asking(tile->ahead[2], block->d);
  if (tile->softcap == 0) tile->slope = NULL;
  run runs[MAX_RUNS];
  uint64_t seen;
  int count = find_runs(block, tile, runs, &seen);
  if (tile->visible) {
    // What no run covers is hidden, and the sums over queries must find 0 there.
    clear_outside(block, tile, runs, count, tile->scores);
    clear_outside(block, tile, runs, count, ds);
  }
  const bool wants_dq = g->dq && !tile->scored;
  bool finite = !tile->visible || !wants_dq || rows_are_finite(tile->k, tile->k_stride, tile->keys, block->d);
  for (int i = 0; i < count; i++) {
    const run *r = &runs[i];
    score_run(block, tile, r, NULL);
#define DERIVATIVES(rows, vectors)                                                                                                         \
  rebuild_weights(g, tile, r, vectors);                                                                                                    \
  score_width(tile, r, tile->v, tile->v_stride, g->dout, block->dv, block->lanes, ds + block->shift, NULL, tile->ahead[1], rows, vectors); \
  if (tile->kept) drop(block, tile, r, ds + block->shift);                                                                                 \
  if (tile->factors) weigh(block, tile, r, ds + block->shift);                                                                             \
  score_gradients(g, tile, r, ds, vectors);                                                                                                \
  if (tile->kept) drop(block, tile, r, block_scores(block, tile));                                                                         \
  if (tile->factors) weigh(block, tile, r, block_scores(block, tile))
    FOR_WIDTH(r->vectors, DERIVATIVES)
#undef DERIVATIVES
  }
  if (wants_dq) add_runs(block, tile, runs, count, tile->k, tile->k_stride, block->d, finite, tile->ahead[2], ds + block->shift, g->dq);
}

/* Whether the rows of all queries are finite. */
static bool queries_are_finite(const float *const *queries, int count, int64_t columns) {
  for (int i = 0; i < count; i++)
    if (!rows_are_finite(queries[i], 0, 1, columns)) return false;
  return true;
}

static void multiply_queries_where_seen(const hd_attn_tile *tile, const float *p, int begin, int end, int from, int to,
                                        const float *const *queries, int64_t columns, float *out) {
  for (int key = from; key < to; key++)
    for (int query = begin; query < end; query++) {
      if (!(tile->visible[key] >> query & 1)) continue;
      for (int64_t c = 0; c < columns; c += LANES) {
        float *at = out + key * columns + c;
        v_store(at, v_fma(v_set(p[key * tile->stride + query]), v_load(queries[query] + c), v_load(at)));
      }
    }
}

void KERNEL(attn_backward_keys)(const hd_attn_tile *tile, const float *p, int count, const float *const *queries, int64_t columns,
                                float *out) {
  hd_ahead ahead[HD_AHEAD];
  memcpy(ahead, tile->ahead[0], sizeof ahead);
  begin_asking(ahead, HD_KEY_TILE);
  bool finite = !tile->visible || queries_are_finite(queries, count, columns);
  enum { KEYS_AT_ONCE = 16 }; // whole register tiles of any level
  for (int from = 0, to; from < tile->keys; from = to) {
    to = tile->visible ? HD_MIN(from + KEYS_AT_ONCE, tile->keys) : tile->keys;
    int begin = 0, end = count;
    if (tile->visible) {
      uint64_t any = 0;
      for (int key = from; key < to; key++) any |= tile->visible[key];
      if (!any) continue;
      begin = __builtin_ctzll(any);
      end = 64 - __builtin_clzll(any);
    }
    if (!finite) {
      multiply_queries_where_seen(tile, p, begin, end, from, to, queries, columns, out);
      continue;
    }
    for (int64_t first = 0; first < columns; first += MAX_VECTORS * LANES) {
#define QUERIES(rows, vectors) queries_width(p, tile->stride, from, to, begin, end, queries, first, out, columns, ahead, rows, vectors)
      FOR_WIDTH(HD_MIN((columns - first) / LANES, MAX_VECTORS), QUERIES)
#undef QUERIES
    }
  }
}
