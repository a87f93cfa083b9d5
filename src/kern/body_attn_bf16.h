/* body_attn_bf16.h: fused forward attention on rows of bf16 as they lie, two neighbours of a sum in a word.
 *
 * Scores take pairs of columns of K and of the queries, which are exact in bf16: the scale follows after the product. The sums take pairs of keys, so the weights are rounded to
 * bf16 (their sum l is not) and the rows of V are interleaved two by two. The including level brings the two products, score_pairs and value_pairs; everything between is
 * body_attn.h. */

/* Scores of a run, scaled, into tile->scores. A tile of scores may end beyond the run only where the tile of keys ends too. */
static void score_pairs(const hd_attn_block *block, const hd_attn_tile *tile, const run *r);
/* o[column][lane] += the sum over the run's pairs of keys, whose weights lie in the run's first rows of scores. */
static void value_pairs(hd_attn_block *block, const hd_attn_tile *tile, const run *r);

INLINE vi v_interleave(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
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

/* Bits of a bf16 that are all set where it is an infinity or NaN. */
enum { WILD = 0x7f80 };
static bool is_wild(uint16_t value) { return (value & WILD) == WILD; }

/* Rows of V two by two into tile->v_pairs [32][dv], a missing second as 0. Where not everybody sees every key, numbers that are not finite become 0 too, since 0 · NaN would
 * reach who must not see them: returns whether there were any. */
static bool pair_values(const hd_attn_tile *tile, int64_t columns) {
  const __m512i wild = _mm512_set1_epi16(WILD);
  __mmask32 any = 0;
  for (int key = 0; key < tile->keys; key += 2) {
    const uint16_t *low = tile->v_bf16 + key * tile->v_stride, *high = key + 1 < tile->keys ? low + tile->v_stride : NULL;
    uint32_t *out = tile->v_pairs + key / 2 * columns;
    for (int64_t c = 0; c < columns; c += LANES) {
      const __mmask16 here = columns - c >= LANES ? 0xffff : (__mmask16)((1 << (columns - c)) - 1);
      __m256i second = high ? _mm256_maskz_loadu_epi16(here, high + c) : _mm256_setzero_si256();
      vi pair = v_interleave(_mm256_maskz_loadu_epi16(here, low + c), second);
      if (tile->visible) {
        __mmask32 found = _mm512_cmpeq_epi16_mask(_mm512_and_si512(pair, wild), wild);
        pair = _mm512_maskz_mov_epi16(~found, pair);
        any |= found;
      }
      _mm512_mask_storeu_epi32(out + c, here, pair);
    }
  }
  return any != 0;
}

/* What pair_values left out, for the lanes that see it. The weights are those of pair_weights. */
static void add_wild_values(hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
  for (int key = r->from; key < r->to; key++)
    for (int64_t column = 0; column < block->dv; column++) {
      const uint16_t value = tile->v_bf16[key * tile->v_stride + column];
      if (!is_wild(value)) continue;
      for (int v = r->first; v < r->first + r->vectors; v++) {
        const float *pair = block_scores(block, tile) + (r->from + (key - r->from) / 2) * tile->stride + v * LANES;
        vi p = _mm512_castps_si512(v_load(pair));
        p = (key - r->from) % 2 ? v_and(p, 0xffff0000) : v_shift(p, -16);
        float *at = block->o + column * block->lanes + v * LANES;
        vf sum = v_load(at), added = v_fma(v_set(hd_bf16_to_f32(value)), _mm512_castsi512_ps(p), sum);
        v_store(at, v_select(lanes_seeing(block, tile->visible[key], v), added, sum));
      }
    }
}

/* attn_tile on rows of bf16. */
static void attend_bf16(hd_attn_block *block, const hd_attn_tile *given) {
  hd_attn_tile copy, *tile = &copy;
  copy = *given;
  run runs[MAX_RUNS];
  uint64_t seen;
  int count = find_runs(block, tile, runs, &seen);
  if (!count) return;
  bool wild = pair_values(tile, block->dv);
  vf top[MAX_VECTORS];
  for (int v = 0; v < MAX_VECTORS; v++) top[v] = v_set(-INFINITY);
  tile->scored = true;
  for (int i = 0; i < count; i++) {
    score_pairs(block, tile, &runs[i]);
    score_run(block, tile, &runs[i], top);
  }
  rescale(block, top);
  for (int i = 0; i < count; i++) {
#define EXPONENTIATE(rows, vectors) exponentiate(block, tile, &runs[i], vectors)
    FOR_WIDTH(runs[i].vectors, EXPONENTIATE)
#undef EXPONENTIATE
    if (tile->kept) drop(block, tile, &runs[i], block_scores(block, tile));
    pair_weights(block, tile, &runs[i]);
    value_pairs(block, tile, &runs[i]);
    if (wild) add_wild_values(block, tile, &runs[i]);
  }
  block->seen |= seen;
}
