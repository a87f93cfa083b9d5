/* body_bf16_dot.h: the products of body_attn_bf16.h by VDPBF16PS, in the register tiles of body_attn.h. */

/* sum + a0 b0 + a1 b1 in each lane, where words are pairs. */
INLINE vf v_dot(vi a, vi b, vf sum) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

/* The same pair in each lane; rows of bf16 need not be aligned to pairs. */
INLINE vi v_set_pair(const uint16_t *p) {
  int32_t pair;
  memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}

/* out[key][lane] = scale · Σ_i key[i] q[i][lane] for keys [from, to). */
INLINE void multiply_score_pairs(const hd_attn_block *block, const hd_attn_tile *tile, int from, int to, const uint32_t *q, float *out,
                                 const int rows, const int vectors) {
  for (int first = from; first < to; first += rows) {
    vf sum[8][4];
    const uint16_t *key[8];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      key[r] = tile->k_bf16 + HD_MIN(first + r, tile->keys - 1) * tile->k_stride;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_set(0.0f);
    }
#pragma GCC unroll 1
    for (int64_t i = 0; i < block->d / 2; i++) {
      vi b[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        b[v] = v_load_u32(q + i * block->lanes + v * LANES);
        PIN(b[v]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        vi a = v_set_pair(key[r] + 2 * i);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = v_dot(a, b[v], sum[r][v]);
      }
    }
    const vf scale = v_set(block->q_scale);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) v_store(out + (first + r) * tile->stride + v * LANES, v_mul(sum[r][v], scale));
  }
}

/* As score_width. */
INLINE void score_pairs_width(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, const int rows, const int vectors) {
  int whole = r->from + (r->to - r->from) / rows * rows, first = r->first * LANES;
  int tail = HD_MAX(r->from, r->to - (r->to - whole + 3) / 4 * 4);
  float *out = block_scores(block, tile) + first;
  multiply_score_pairs(block, tile, r->from, whole, block->q_pairs + first, out, rows, vectors);
  multiply_score_pairs(block, tile, tail, r->to, block->q_pairs + first, out, 4, vectors);
}

/* o[column][lane] += Σ over pairs of keys of v[pair][column] p[pair][lane]; columns [begin, end) a multiple of rows. */
INLINE void multiply_value_pairs(const uint32_t *values, int64_t columns, int pairs, int64_t begin, int64_t end, const float *p,
                                 int64_t p_stride, int lanes, float *o, const int rows, const int vectors) {
  for (int64_t column = begin; column < end; column += rows) {
    vf sum[8][4];
    float *at = o + column * lanes;
    sums_load(sum, at, lanes, rows, vectors);
    const uint32_t *value = values + column;
#pragma GCC unroll 1
    for (int pair = 0; pair < pairs; pair++, value += columns) {
      vi b[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        b[v] = _mm512_castps_si512(v_load(p + pair * p_stride + v * LANES));
        PIN(b[v]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        vi a = v_set_u32(value[r]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = v_dot(a, b[v], sum[r][v]);
      }
    }
    sums_store(sum, at, lanes, rows, vectors);
  }
}

/* As add_width, for weights that pair_weights has been through. */
INLINE void value_pairs_width(hd_attn_block *block, const hd_attn_tile *tile, const run *r, const int rows, const int vectors) {
  const int64_t columns = block->dv, whole = columns / rows * rows, fours = whole + (columns - whole) / 4 * 4;
  const int first = r->first * LANES, pairs = (r->to - r->from + 1) / 2;
  const uint32_t *values = tile->v_pairs + r->from / 2 * columns;
  const float *p = block_scores(block, tile) + r->from * tile->stride + first;
  multiply_value_pairs(values, columns, pairs, 0, whole, p, tile->stride, block->lanes, block->o + first, rows, vectors);
  multiply_value_pairs(values, columns, pairs, whole, fours, p, tile->stride, block->lanes, block->o + first, 4, vectors);
  multiply_value_pairs(values, columns, pairs, fours, columns, p, tile->stride, block->lanes, block->o + first, 1, vectors);
}

static void score_pairs(const hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
#define SCORES(rows, vectors) score_pairs_width(block, tile, r, rows, vectors)
  FOR_WIDTH(r->vectors, SCORES)
#undef SCORES
}

static void value_pairs(hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
#define VALUES(rows, vectors) value_pairs_width(block, tile, r, rows, vectors)
  FOR_WIDTH(r->vectors, VALUES)
#undef VALUES
}
