/* body_attn_bf16.h: fused forward attention on rows of bf16 as they lie, two neighbours of a sum in each multiply-add (VDPBF16PS).
 *
 * Scores take pairs of columns of K and of the queries, which are exact in bf16: the scale follows after the product. The sums take pairs of keys, so the weights are rounded to
 * bf16 (their sum l is not) and the rows of V are interleaved two by two. Everything between is body_attn.h. */

/* sum + a0 b0 + a1 b1 in each lane, where words are pairs. */
INLINE vf v_dot(vi a, vi b, vf sum) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

/* The same pair in each lane; rows of bf16 need not be aligned to pairs. */
INLINE vi v_set_pair(const uint16_t *p) {
  int32_t pair;
  memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}

INLINE vi v_interleave(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
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
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_load(at + r * lanes + v * LANES);
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
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) v_store(at + r * lanes + v * LANES, sum[r][v]);
  }
}

/* The run's weights of two keys each in one row, the run's first rows; a key without a second has weight 0 there. */
INLINE void pair_weights(const hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
  for (int v = r->first; v < r->first + r->vectors; v++) {
    float *p = block_scores(block, tile) + r->from * tile->stride + v * LANES;
    for (int pair = 0; pair < (r->to - r->from + 1) / 2; pair++) {
      bool both = r->from + 2 * pair + 1 < r->to;
      const float *first = p + 2 * pair * tile->stride;
      __m256bh low = _mm512_cvtneps_pbh(v_load(first)), high = _mm512_cvtneps_pbh(both ? v_load(first + tile->stride) : v_set(0.0f));
      v_store(p + pair * tile->stride, _mm512_castsi512_ps(v_interleave((__m256i)low, (__m256i)high)));
    }
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

/* Rows of V two by two into tile->v_pairs [32][dv]; whether all of them are finite. */
static bool pair_values(const hd_attn_tile *tile, int64_t columns) {
  const __m512i top = _mm512_set1_epi16(0x7f80);
  __mmask32 wild = 0;
  for (int key = 0; key < tile->keys; key += 2) {
    const uint16_t *low = tile->v_bf16 + key * tile->v_stride, *high = key + 1 < tile->keys ? low + tile->v_stride : NULL;
    uint32_t *out = tile->v_pairs + key / 2 * columns;
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
      __m256i second = high ? _mm256_loadu_si256((const __m256i *)(high + c)) : _mm256_setzero_si256();
      vi pair = v_interleave(_mm256_loadu_si256((const __m256i *)(low + c)), second);
      wild |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pair, top), top);
      _mm512_storeu_si512(out + c, pair);
    }
    for (; c < columns; c++) {
      uint32_t second = high ? high[c] : 0;
      wild |= (low[c] & 0x7f80) == 0x7f80 || (second & 0x7f80) == 0x7f80;
      out[c] = low[c] | second << 16;
    }
  }
  return !wild;
}

/* As multiply_values_where_seen, with the bits of value_pairs_width: what a lane does not see is 0 to it, as its weight is. */
static void add_pairs_where_seen(hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
  for (int64_t column = 0; column < block->dv; column++)
    for (int v = r->first; v < r->first + r->vectors; v++) {
      float *at = block->o + column * block->lanes + v * LANES;
      const float *p = block_scores(block, tile) + r->from * tile->stride + v * LANES;
      vf sum = v_load(at);
      for (int key = r->from; key < r->to; key += 2, p += tile->stride) {
        uint32_t pair = tile->v_pairs[key / 2 * block->dv + column];
        vm first = lanes_seeing(block, tile->visible[key], v);
        vm second = key + 1 < r->to ? lanes_seeing(block, tile->visible[key + 1], v) : v_mask(0);
        vi seen = _mm512_or_si512(_mm512_maskz_set1_epi32(first, (int)(pair & 0xffff)),
                                  _mm512_maskz_set1_epi32(second, (int)(pair & 0xffff0000)));
        sum = v_dot(seen, _mm512_castps_si512(v_load(p)), sum);
      }
      v_store(at, sum);
    }
}

/* attn_tile on rows of bf16. */
static void attend_bf16(hd_attn_block *block, const hd_attn_tile *given) {
  hd_attn_tile copy, *tile = &copy;
  copy = *given;
  if (tile->visible && block_sees_all(block, tile)) tile->visible = NULL;
  run runs[HD_KEY_TILE / 16];
  int count = find_runs(block, tile, runs);
  if (!count) return;
  bool finite = pair_values(tile, block->dv) || !tile->visible;
  vf top[MAX_VECTORS];
  for (int v = 0; v < MAX_VECTORS; v++) top[v] = v_set(-INFINITY);
  tile->scored = true;
  for (int i = 0; i < count; i++) {
#define SCORES(rows, vectors) score_pairs_width(block, tile, &runs[i], rows, vectors)
    FOR_WIDTH(runs[i].vectors, SCORES)
#undef SCORES
    score_run(block, tile, &runs[i], top);
  }
  rescale(block, top);
  for (int i = 0; i < count; i++) {
#define EXPONENTIATE(rows, vectors) exponentiate(block, tile, &runs[i], vectors)
    FOR_WIDTH(runs[i].vectors, EXPONENTIATE)
#undef EXPONENTIATE
    if (tile->kept) drop(block, tile, &runs[i], block_scores(block, tile));
    pair_weights(block, tile, &runs[i]);
    if (!finite) {
      add_pairs_where_seen(block, tile, &runs[i]);
      continue;
    }
#define VALUES(rows, vectors) value_pairs_width(block, tile, &runs[i], rows, vectors)
    FOR_WIDTH(runs[i].vectors, VALUES)
#undef VALUES
  }
  uint64_t seen = tile->visible ? 0 : ~(uint64_t)0;
  for (int key = 0; tile->visible && key < tile->keys; key++) seen |= tile->visible[key] >> block->shift;
  block->seen |= seen;
}
