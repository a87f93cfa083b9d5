/* body_attn.h: fused attention on one block of query lanes and one tile of at most 64 keys.
 *
 * Scores are transposed: S^T = K · Q^T with queries in lanes, so the maximum, the sum and the rescaling of a row are vertical, K and V are read row by row through broadcasts and
 * never packed, and a row's arithmetic does not depend on its neighbours or on the width of a vector. A register tile is TILE_ROWS rows (keys, or columns of V) × 1–4 vectors.
 * In a tile that is only partly visible the keys are taken in runs of RUN_KEYS or a multiple, and each run works on the vectors that see any of it, which halves the cost of a causal diagonal. */
enum { RUN_KEYS = LANES == 16 ? 16 : 8, MAX_RUNS = HD_KEY_TILE / RUN_KEYS };

/* Keys [from, to) concern vectors [first, first + vectors); bit v of partial: some lane of vector v does not see all of them. */
typedef struct {
  int from, to, first, vectors;
  unsigned partial;
} run;

/* Calls body with the run's width as a constant, so that the compiler keeps the register tile in registers. */
#if MAX_VECTORS == 4
#define FOR_WIDTH(vectors, call)                                                                                                           \
  switch (vectors) {                                                                                                                       \
  case 1: call(TILE_ROWS_1, 1); break;                                                                                                     \
  case 2: call(TILE_ROWS_2, 2); break;                                                                                                     \
  case 3: call(TILE_ROWS_3, 3); break;                                                                                                     \
  case 4: call(TILE_ROWS_4, 4); break;                                                                                                     \
  }
#define TILE_ROWS_WIDEST TILE_ROWS_4
#else
#define FOR_WIDTH(vectors, call)                                                                                                           \
  switch (vectors) {                                                                                                                       \
  case 1: call(TILE_ROWS_1, 1); break;                                                                                                     \
  case 2: call(TILE_ROWS_2, 2); break;                                                                                                     \
  case 3: call(TILE_ROWS_3, 3); break;                                                                                                     \
  }
#define TILE_ROWS_WIDEST TILE_ROWS_3
#endif

/* Shares the rows that a product asks for out among its register tiles, for `wide` rows of a full one, so that no more lines are under way at once than a core can wait for. */
static void begin_asking(hd_ahead ahead[HD_AHEAD], int64_t wide) {
  for (int i = 0; i < HD_AHEAD; i++) ahead[i].lot = (int)hd_ceil_div(ahead[i].rows * TILE_ROWS_WIDEST, HD_MAX(wide, 1));
}

/* Asks for the next lot. */
INLINE void ask(hd_ahead ahead[HD_AHEAD]) {
  for (int i = 0; i < HD_AHEAD; i++)
    for (int n = HD_MIN(ahead[i].lot, ahead[i].rows); n > 0; n--, ahead[i].rows--, ahead[i].at += ahead[i].stride)
      for (int64_t c = 0; c < ahead[i].columns; c += HD_ALIGN / 4) __builtin_prefetch(ahead[i].at + c, 0, 2);
}

/* A register tile of sums from rows `stride` apart, and back. */
INLINE void sums_load(vf sum[8][4], const float *at, int64_t stride, const int rows, const int vectors) {
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[r][v] = v_load(at + r * stride + v * LANES);
}
INLINE void sums_store(vf sum[8][4], float *at, int64_t stride, const int rows, const int vectors) {
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(at + r * stride + v * LANES, sum[r][v]);
}

/* out[key][lane] = Σ_i key[i] q[i][lane] for keys [from, to), i ascending, one chain. top, unless NULL, collects the largest of each lane. */
INLINE void multiply_scores(const float *keys, int64_t stride, int count, int from, int to, const float *q, int64_t d, int lanes,
                            float *out, int64_t out_stride, vf *top, hd_ahead *ahead, const int rows, const int vectors) {
  for (int first = from; first < to; first += rows) {
    ask(ahead);
    vf sum[8][4];
    const float *key[8];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      // Rows past the last key repeat it: they cost nothing extra and are never looked at.
      key[r] = keys + HD_MIN(first + r, count - 1) * stride;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_set(0.0f);
    }
#pragma GCC unroll 1
    for (int64_t i = 0; i < d; i++) {
      vf b[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        b[v] = v_load(q + i * lanes + v * LANES);
        PIN(b[v]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        vf a = v_set(key[r][i]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(a, b[v], sum[r][v]);
      }
    }
    sums_store(sum, out + first * out_stride, out_stride, rows, vectors);
    if (!top) continue;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      vf best = top[v];
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) best = v_max(sum[r][v], best);
      top[v] = best;
    }
  }
}

/* The chains of a register tile go on over keys: Σ of values[key][row] p[key][lane], ascending; its vectors from `first` on. */
INLINE void add_keys(vf sum[8][4], const float *value, int64_t stride, int keys, const float *p, int64_t p_stride, const int rows,
                     const int first, const int vectors) {
#pragma GCC unroll 1
  for (int key = 0; key < keys; key++, value += stride, p += p_stride) {
    vf b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      b[v] = v_load(p + v * LANES);
      PIN(b[v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      vf a = v_set(value[i]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[i][first + v] = v_fma(a, b[v], sum[i][first + v]);
    }
  }
}

/* o[column][lane] += Σ over keys [from, to) of values[key][column] p[key][lane], ascending, one chain. Columns [begin, end) a multiple of rows. */
INLINE void multiply_values(const float *values, int64_t stride, int from, int to, int64_t begin, int64_t end, const float *p,
                            int64_t p_stride, int lanes, float *o, hd_ahead *ahead, const int rows, const int vectors) {
  for (int64_t column = begin; column < end; column += rows) {
    ask(ahead);
    vf sum[8][4];
    float *at = o + column * lanes;
    sums_load(sum, at, lanes, rows, vectors);
    add_keys(sum, values + from * stride + column, stride, to - from, p + from * p_stride, p_stride, rows, 0, vectors);
    sums_store(sum, at, lanes, rows, vectors);
  }
}

/* As multiply_values for several runs, whose sums stay in registers from one to the next: those of all vectors, though a run may concern fewer. */
INLINE void multiply_runs(const float *values, int64_t stride, const run *runs, int count, int64_t begin, int64_t end, const float *p,
                          int64_t p_stride, float *o, hd_ahead *ahead, const int rows) {
  const int lanes = MAX_VECTORS * LANES;
  for (int64_t column = begin; column < end; column += rows) {
    ask(ahead);
    vf sum[8][4];
    float *at = o + column * lanes;
    sums_load(sum, at, lanes, rows, MAX_VECTORS);
    for (const run *r = runs; r < runs + count; r++) {
      const float *value = values + r->from * stride + column, *weight = p + r->from * p_stride + r->first * LANES;
#define RUN(first, vectors)                                                                                                                \
  case 4 * (first) + (vectors): add_keys(sum, value, stride, r->to - r->from, weight, p_stride, rows, first, vectors); break
      switch (4 * r->first + r->vectors) {
        RUN(0, 1);
        RUN(0, 2);
        RUN(0, 3);
        RUN(1, 1);
        RUN(1, 2);
        RUN(2, 1);
#if MAX_VECTORS == 4
        RUN(0, 4);
        RUN(1, 3);
        RUN(2, 2);
        RUN(3, 1);
#endif
      }
#undef RUN
    }
    sums_store(sum, at, lanes, rows, MAX_VECTORS);
  }
}

/* The bits of vector v of the block among those of a key. */
INLINE vm lanes_seeing(const hd_attn_block *block, uint64_t visible, int v) { return v_mask(visible >> (block->shift + v * LANES)); }

/* A value that is not finite would reach rows that may not see it, since 0 · NaN is NaN: such a tile (they are rare) adds lane by lane only where the key is seen. */
static void multiply_values_where_seen(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, const float *values,
                                       int64_t stride, int64_t columns, const float *p, float *o) {
  for (int64_t column = 0; column < columns; column++)
    for (int v = r->first; v < r->first + r->vectors; v++) {
      float *at = o + column * block->lanes + v * LANES;
      vf sum = v_load(at);
      for (int key = r->from; key < r->to; key++) {
        vf added = v_fma(v_set(values[key * stride + column]), v_load(p + key * tile->stride + v * LANES), sum);
        sum = v_select(lanes_seeing(block, tile->visible[key], v), added, sum);
      }
      v_store(at, sum);
    }
}

/* x · 0 is 0 for a finite x and NaN otherwise, and a sum of zeros stays 0. */
static bool rows_are_finite(const float *rows, int64_t stride, int count, int64_t columns) {
  const vf zero = v_set(0.0f);
  const int64_t whole = columns / LANES * LANES;
  vf sum[4] = {zero, zero, zero, zero};
  float rest = 0;
  for (int key = 0; key < count; key++) {
    const float *row = rows + key * stride;
    int64_t i = 0;
    for (; i < whole; i += 4 * LANES)
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++)
        if (i + v * LANES < whole) sum[v] = v_fma(v_load(row + i + v * LANES), zero, sum[v]);
    for (i = whole; i < columns; i++) rest += row[i] * 0.0f;
  }
  float lane[LANES];
  v_store(lane, v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
  for (int i = 0; i < LANES; i++) rest += lane[i];
  return rest == 0;
}

bool KERNEL(attn_finite)(const hd_attn_block *block) {
  return rows_are_finite(block->total_o, block->lanes, (int)block->dv, HD_MIN(block->lanes, 64 - __builtin_clzll(block->used)));
}

/* Vectors of the block that have a bit set. */
static unsigned vectors_of(uint64_t bits) {
  unsigned vectors = 0;
  for (int v = 0; v < MAX_VECTORS; v++) vectors |= (unsigned)((bits >> v * LANES & (((uint64_t)1 << LANES) - 1)) != 0) << v;
  return vectors;
}

/* The runs of a tile that some query of the block sees; *seen: which do. Where every query sees every key tile->visible becomes NULL, though others of its tile may not. */
static int find_runs(const hd_attn_block *block, hd_attn_tile *tile, run runs[MAX_RUNS], uint64_t *seen) {
  const int vectors = block->lanes / LANES;
  int count = 0;
  *seen = ~(uint64_t)0;
  runs[0] = (run){.to = tile->keys, .vectors = vectors};
  if (!tile->visible) return 1;
  *seen = 0;
  for (int from = 0; from < tile->keys; from += RUN_KEYS) {
    const int to = HD_MIN(from + RUN_KEYS, tile->keys);
    uint64_t any = 0, every = ~(uint64_t)0;
    for (int key = from; key < to; key++) {
      any |= tile->visible[key];
      every &= tile->visible[key];
    }
    any = any >> block->shift & block->used;
    if (!any) continue;
    *seen |= any;
    const int first = __builtin_ctzll(any) / LANES, last = (63 - __builtin_clzll(any)) / LANES;
    const run next = {from, to, first, last - first + 1, vectors_of(~(every >> block->shift) & block->used)};
    run *before = count ? &runs[count - 1] : NULL;
    if (before && before->to == from && before->first == next.first && before->vectors == next.vectors && before->partial == next.partial)
      before->to = to;
    else runs[count++] = next;
  }
  if (count == 1 && runs[0].from == 0 && runs[0].to == tile->keys && runs[0].vectors == vectors && !runs[0].partial) tile->visible = NULL;
  return count;
}

/* The block's columns of the tile's scratch. */
INLINE float *block_scores(const hd_attn_block *block, const hd_attn_tile *tile) { return tile->scores + block->shift; }

/* out[key][lane] = Σ_i key[i] q[i][lane] over a run: register tiles of `rows` keys, what is left in tiles of 4. These end with the run, and so may
 * compute a key twice, rather than go past it into rows of the scratch that belong to others; only a run of fewer keys than its tiles does, and such a run ends with the tile of keys. q and out
 * begin at lane 0 of the block. */
INLINE void score_width(const hd_attn_tile *tile, const run *r, const float *keys, int64_t stride, const float *q, int64_t d, int lanes,
                        float *out, vf *top, hd_ahead *ahead, const int rows, const int vectors) {
  int whole = r->from + (r->to - r->from) / rows * rows, first = r->first * LANES;
  int tail = HD_MAX(r->from, r->to - (r->to - whole + 3) / 4 * 4);
  multiply_scores(keys, stride, tile->keys, r->from, whole, q + first, d, lanes, out + first, tile->stride, top, ahead, rows, vectors);
  multiply_scores(keys, stride, tile->keys, tail, r->to, q + first, d, lanes, out + first, tile->stride, top, ahead, 4, vectors);
}

/* What visibility, bias and softcap make of vector v of a run's scores; returns the largest, or `best`. */
INLINE vf change_scores(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, int v, vf best) {
  const vf cap = v_set(tile->softcap), log2e = v_set((float)HD_LOG2E), hidden = v_set(-INFINITY);
  // Masks of −FLT_MAX are common. Times log2 e that would be −inf, and a row of nothing else NaN, where the formula gives the mean: so no bias counts for less than this.
  const vf least_bias = v_set(-2.3e38f);
  for (int key = r->from; key < r->to; key++) {
    float *at = block_scores(block, tile) + key * tile->stride + v * LANES;
    vf s = v_load(at);
    if (tile->softcap != 0) {
      vf t = v_tanh(v_div(s, cap));
      if (tile->slope) v_store(tile->slope + (at - tile->scores), v_fma(v_sub(v_set(0.0f), t), t, v_set(1.0f)));
      s = v_mul(cap, t);
    }
    if (tile->bias) s = v_fma(v_max(least_bias, v_load(tile->bias + key * tile->bias_stride + block->shift + v * LANES)), log2e, s);
    if (tile->visible) s = v_select(lanes_seeing(block, tile->visible[key], v), s, hidden);
    v_store(at, s);
    best = v_max(s, best);
  }
  return best;
}

/* Scores of one run: product, softcap, bias, visibility. top [MAX_VECTORS], unless NULL, collects the largest visible score. */
static void score_run(const hd_attn_block *block, hd_attn_tile *tile, const run *r, vf *top) {
  const unsigned changed = tile->scored || tile->bias || tile->softcap != 0 ? ~0u : tile->visible ? r->partial : 0;
  const unsigned all = ((1u << r->vectors) - 1) << r->first;
  vf largest[MAX_VECTORS];
  for (int v = 0; v < MAX_VECTORS; v++) largest[v] = v_set(-INFINITY);
  vf *tops = top && (changed & all) != all ? largest + r->first : NULL; // changed scores have another maximum
#define SCORES(rows, vectors)                                                                                                              \
  score_width(tile, r, tile->k, tile->k_stride, block->q, block->d, block->lanes, block_scores(block, tile), tops, tile->ahead[0], rows,   \
              vectors)
  if (!tile->scored) { FOR_WIDTH(r->vectors, SCORES) }
#undef SCORES
  for (int v = r->first; v < r->first + r->vectors; v++) {
    const vf best = changed >> v & 1 ? change_scores(block, tile, r, v, v_set(-INFINITY)) : largest[v];
    if (top) top[v] = v_max(best, top[v]);
  }
}

/* Raises m where a score exceeds it by more than 8 and scales the lane's sum and numerators to it; a lane that needs none is multiplied by exactly 1. */
static void rescale(hd_attn_block *block, const vf top[MAX_VECTORS]) {
  int lanes = block->lanes;
  for (int v = 0; v < lanes / LANES; v++) {
    vf m = v_load(block->m + v * LANES);
    vm grew = v_gt(top[v], v_add(m, v_set(8.0f)));
    if (!v_any(grew)) continue;
    if (!v_any(v_gt(m, v_set(-INFINITY)))) { // nothing has been added yet
      v_store(block->m + v * LANES, v_select(grew, top[v], m));
      continue;
    }
    vf raised = v_select(grew, top[v], m);
    // Both −inf (no key yet) would give NaN; such a lane did not grow and takes 1.
    vf factor = v_select(grew, v_exp2(v_sub(m, raised)), v_set(1.0f));
    v_store(block->m + v * LANES, raised);
    v_store(block->l + v * LANES, v_mul(v_load(block->l + v * LANES), factor));
    for (int64_t c = 0; c < block->dv; c++) {
      float *o = block->o + c * lanes + v * LANES;
      v_store(o, v_mul(v_load(o), factor));
    }
  }
}

/* Scores become exp2(s − m) in place; l sums them over ascending keys. m is −inf only where no visible score is larger: then 0 takes its place, since −inf − (−inf) is NaN. */
INLINE void exponentiate(hd_attn_block *block, const hd_attn_tile *tile, const run *r, const int vectors) {
  vf m[4], l[4];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
    int at = (r->first + v) * LANES;
    m[v] = v_load(block->m + at);
    m[v] = v_select(v_eq(m[v], v_set(-INFINITY)), v_set(0.0f), m[v]);
    l[v] = v_load(block->l + at);
  }
  for (int key = r->from; key < r->to; key++) {
    float *row = block_scores(block, tile) + key * tile->stride + r->first * LANES;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      vf p = v_exp2(v_sub(v_load(row + v * LANES), m[v]));
      v_store(row + v * LANES, p);
      l[v] = v_add(l[v], p);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) v_store(block->l + (r->first + v) * LANES, l[v]);
}

/* Dropout: p of a pair that is kept grows by the factor, the others become 0. */
static void drop(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, float *p) {
  const vf factor = v_set(tile->keep_factor);
  for (int key = r->from; key < r->to; key++)
    for (int v = r->first; v < r->first + r->vectors; v++) {
      float *at = p + key * tile->stride + v * LANES;
      v_store(at, v_keep(lanes_seeing(block, tile->kept[key], v), v_mul(v_load(at), factor)));
    }
}

/* p of a pair that is seen times its factor; others stay 0, whatever their factor. */
static void weigh(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, float *p) {
  for (int key = r->from; key < r->to; key++)
    for (int v = r->first; v < r->first + r->vectors; v++) {
      float *at = p + key * tile->stride + v * LANES;
      vf weighed = v_mul(v_load(at), v_load(tile->factors + block->shift + key * tile->stride + v * LANES));
      v_store(at, tile->visible ? v_keep(lanes_seeing(block, tile->visible[key], v), weighed) : weighed);
    }
}

/* A run's sums: register tiles of `rows` columns, what is left in tiles of 4 and then 1. */
INLINE void add_width(const hd_attn_tile *tile, const run *r, const float *values, int64_t stride, int64_t columns, const float *p,
                      int lanes, float *o, hd_ahead *ahead, const int rows, const int vectors) {
  int64_t whole = columns / rows * rows, fours = whole + (columns - whole) / 4 * 4;
  multiply_values(values, stride, r->from, r->to, 0, whole, p, tile->stride, lanes, o, ahead, rows, vectors);
  multiply_values(values, stride, r->from, r->to, whole, fours, p, tile->stride, lanes, o, ahead, 4, vectors);
  multiply_values(values, stride, r->from, r->to, fours, columns, p, tile->stride, lanes, o, ahead, 1, vectors);
}

/* o[column][lane] += Σ over the run's keys of values[key][column] p[key][lane]; p and o begin at the block's lane 0. A function of its own, so that the compiler finds registers for all sums. */
static __attribute__((noinline)) void add_values(const hd_attn_block *block, const hd_attn_tile *tile, const run *r, const float *values,
                                                 int64_t stride, int64_t columns, bool finite, hd_ahead *ahead, const float *p, float *o) {
  if (!finite) {
    multiply_values_where_seen(block, tile, r, values, stride, columns, p, o);
    return;
  }
#define VALUES(rows, vectors)                                                                                                              \
  add_width(tile, r, values, stride, columns, p + r->first * LANES, block->lanes, o + r->first * LANES, ahead, rows, vectors)
  FOR_WIDTH(r->vectors, VALUES)
#undef VALUES
}

/* The same for several runs. Their sums stay in registers where the block is full, but for the last columns. */
static void add_runs(const hd_attn_block *block, const hd_attn_tile *tile, const run *runs, int count, const float *values, int64_t stride,
                     int64_t columns, bool finite, hd_ahead *ahead, const float *p, float *o) {
  int64_t done = 0;
  if (count > 1 && finite && block->lanes == MAX_VECTORS * LANES) {
    const int64_t whole = columns / TILE_ROWS_WIDEST * TILE_ROWS_WIDEST;
    done = whole + (columns - whole) / 4 * 4;
    multiply_runs(values, stride, runs, count, 0, whole, p, tile->stride, o, ahead, TILE_ROWS_WIDEST);
    multiply_runs(values, stride, runs, count, whole, done, p, tile->stride, o, ahead, 4);
  }
  for (int i = 0; i < count && done < columns; i++)
    add_values(block, tile, &runs[i], values + done, stride, columns - done, finite, ahead, p, o + done * block->lanes);
}

void KERNEL(attn_tile)(hd_attn_block *block, const hd_attn_tile *given) {
  hd_attn_tile copy, *tile = &copy;
  copy = *given;
  if (block->shift) memset(tile->ahead, 0, sizeof tile->ahead); // the tile's first block has asked
  begin_asking(tile->ahead[0], HD_KEY_TILE);
  begin_asking(tile->ahead[1], block->dv);
  run runs[MAX_RUNS];
  uint64_t seen;
  int count = find_runs(block, tile, runs, &seen);
  if (!count) return;
  vf top[MAX_VECTORS];
  for (int v = 0; v < MAX_VECTORS; v++) top[v] = v_set(-INFINITY);
  for (int i = 0; i < count; i++) score_run(block, tile, &runs[i], top);
  rescale(block, top);
  for (int i = 0; i < count; i++) {
#define EXPONENTIATE(rows, vectors) exponentiate(block, tile, &runs[i], vectors)
    FOR_WIDTH(runs[i].vectors, EXPONENTIATE)
#undef EXPONENTIATE
    if (tile->kept) drop(block, tile, &runs[i], block_scores(block, tile));
    if (tile->factors) weigh(block, tile, &runs[i], block_scores(block, tile));
  }
  const bool finite = !tile->visible || tile->watched || rows_are_finite(tile->v, tile->v_stride, tile->keys, block->dv);
  block->seen |= seen;
  add_runs(block, tile, runs, count, tile->v, tile->v_stride, block->dv, finite, tile->ahead[1], block_scores(block, tile), block->o);
}

void KERNEL(attn_scores)(const hd_attn_block *block, const hd_attn_tile *given) {
  hd_attn_tile tile = *given;
  const run all = {.to = tile.keys, .vectors = block->lanes / LANES, .partial = ~0u};
  score_run(block, &tile, &all, NULL);
}

void KERNEL(attn_merge)(hd_attn_block *block) {
  int lanes = block->lanes;
  const vf none = v_set(-INFINITY), zero = v_set(0.0f);
  for (int v = 0; v < lanes; v += LANES) {
    vf a = v_load(block->total_m + v), b = v_load(block->m + v), m = v_max(a, b);
    vf base = v_select(v_eq(m, none), zero, m); // neither side has seen a key: both factors 0, as are the sums
    vf from_total = v_exp2(v_sub(a, base)), from_chunk = v_exp2(v_sub(b, base));
    v_store(block->total_m + v, m);
    v_store(block->total_l + v, v_fma(v_load(block->total_l + v), from_total, v_mul(v_load(block->l + v), from_chunk)));
    v_store(block->m + v, none);
    v_store(block->l + v, zero);
    for (int64_t c = 0; c < block->dv; c++) {
      float *total = block->total_o + c * lanes + v, *o = block->o + c * lanes + v;
      v_store(total, v_fma(v_load(total), from_total, v_mul(v_load(o), from_chunk)));
      v_store(o, zero);
    }
  }
}

void KERNEL(attn_finish)(hd_attn_block *block, float *lse) {
  int lanes = block->lanes;
  for (int v = 0; v < lanes; v += LANES) {
    // A row that saw keys but has the sum 0 saw only scores of −inf: 0 · (1/0) is the NaN that the formula gives.
    vm live = v_mask(block->seen >> v);
    vf inverse = v_div(v_set(1.0f), v_load(block->total_l + v));
    for (int64_t c = 0; c < block->dv; c++) {
      float *o = block->total_o + c * lanes + v;
      v_store(o, v_keep(live, v_mul(v_load(o), inverse)));
    }
  }
  if (lse)
    for (int i = 0; i < lanes; i++) lse[i] = block->seen >> i & 1 ? hd_attn_lse(block->total_m[i], block->total_l[i]) : -INFINITY;
}
