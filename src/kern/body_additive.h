/* body_additive.h: scores w · tanh(a + b) of projected queries a and keys b, and their gradients (Bahdanau, Cho, Bengio, 2015).
 *
 * tanh(a + b) = 1 − 2 / (e^2a e^2b + 1): the exponentials belong to rows, so a pair needs but a product and a reciprocal for each column, and four columns share a division. Columns are in lanes; the
 * sums of 16 lanes that a score is meet in the tree of body_vec.h, those of several pairs side by side. The tangents are computed again for the gradients rather than stored. */

/* e^2x is taken within 2^±124, where HD_ADDITIVE_NEAR on the other side leaves the tangent of the sum at ±1 to the bit. */
#define ADDITIVE_CLAMP 43.0f

/* The exponent is a product in two parts: its rounding alone would be an error of |x| 2^−24 in the sum. The order of min and max keeps NaN. */
INLINE vf exponential(vf x) {
  const float factor = (float)(2 * HD_LOG2E);
  x = v_max(v_set(-ADDITIVE_CLAMP), v_min(v_set(ADDITIVE_CLAMP), x));
  vf exponent = v_mul(x, v_set(factor)), rest = v_fma(x, v_set(factor), v_sub(v_set(0.0f), exponent));
  rest = v_mul(v_fma(x, v_set((float)(2 * HD_LOG2E - factor)), rest), v_set((float)HD_LN2));
  vf power = v_exp2(exponent);
  return v_fma(power, rest, power);
}

float KERNEL(additive_row)(const float *x, int64_t columns, float *out) {
  float lane[LANES], largest = 0;
  vf top = v_set(0.0f);
  for (int64_t c = 0; c < columns; c += LANES) {
    vf value = v_load(x + c);
    v_store(out + c, exponential(value));
    top = v_max(v_abs(value), top);
  }
  v_store(lane, top);
  for (int i = 0; i < LANES; i++) largest = lane[i] > largest ? lane[i] : largest;
  return largest;
}

/* 1 + e^2a e^2b, bounded so that four of them have a product, and 2 over that product no subnormal. The order of min keeps NaN. */
INLINE vf denominator(vf a, vf b) { return v_min(v_set(0x1p30f), v_fma(a, b, v_set(1.0f))); }

/* Tangents of the columns of q and b, `parts` vectors 16 columns apart: 2/a = b · 2/(ab) makes one division of them. All belong to one pair, so that a NaN spoils nothing that it would not spoil anyway. */
INLINE void near_tangents(const float *q, const vf *b, vf *t, const int parts) {
  const vf one = v_set(1.0f), two = v_set(-2.0f);
  vf d[4];
#pragma GCC unroll 4
  for (int i = 0; i < parts; i++) d[i] = denominator(v_load(q + i * ROW_LANES), b[i]);
  if (parts == 1) {
    t[0] = v_add(v_div(two, d[0]), one);
    return;
  }
  vf first = v_mul(d[0], d[1]), second = parts == 4 ? v_mul(d[2], d[3]) : one;
  vf both = v_div(two, parts == 4 ? v_mul(first, second) : first), over_first = parts == 4 ? v_mul(both, second) : both;
  t[0] = v_fma(over_first, d[1], one);
  t[1] = v_fma(over_first, d[0], one);
  if (parts == 2) return;
  vf over_second = v_mul(both, first);
  t[2] = v_fma(over_second, d[3], one);
  t[3] = v_fma(over_second, d[2], one);
}

/* The same where e^2a and e^2b had to be clamped and the sum may still be small, from the projections themselves. Beyond ±20 the result is ±1. */
INLINE void far_tangents(const float *q, const float *k, vf *t, const int parts) {
#pragma GCC unroll 4
  for (int i = 0; i < parts; i++) {
    vf x = v_add(v_load(q + i * ROW_LANES), v_load(k + i * ROW_LANES));
    x = v_max(v_set(-20.0f), v_min(v_set(20.0f), x));
    vf e = v_exp2(v_mul(x, v_set((float)(2 * HD_LOG2E))));
    t[i] = v_add(v_div(v_set(-2.0f), v_add(e, v_set(1.0f))), v_set(1.0f));
  }
}

/* The queries that see a key, and those of them for which the pair is far. */
INLINE uint64_t seeing(const hd_additive *pairs, const hd_attn_tile *tile, int key) {
  return ~(uint64_t)0 >> (64 - pairs->count) & (tile->visible ? tile->visible[key] : ~(uint64_t)0);
}
INLINE bool is_far(const hd_additive *pairs, int query, int key) { return pairs->far && pairs->far[key] >> query & 1; }

/* Calls COLUMNS(first column, vectors) for columns [0, columns) in fours of vectors 16 columns apart, then what is left in two and one. */
#define FOR_COLUMNS(columns, COLUMNS)                                                                                                      \
  do {                                                                                                                                     \
    int64_t c_ = 0;                                                                                                                        \
    for (; c_ + 4 * ROW_LANES <= (columns); c_ += 4 * ROW_LANES) COLUMNS(c_, 4);                                                           \
    if (c_ + 2 * ROW_LANES <= (columns)) {                                                                                                 \
      COLUMNS(c_, 2);                                                                                                                      \
      c_ += 2 * ROW_LANES;                                                                                                                 \
    }                                                                                                                                      \
    if (c_ < (columns)) COLUMNS(c_, 1);                                                                                                    \
  } while (0)

/* ---- scores ------------------------------------------------------------------------------------------------------------------------ */

INLINE void add_tangents(const float *q, const float *k, const float *w, const bool far, vf (*sum)[2], const int parts) {
#pragma GCC unroll 16
  for (int v = 0; v < ROW_VECTORS; v++) {
    const int at = v * LANES;
    vf t[4], b[4];
#pragma GCC unroll 4
    for (int i = 0; i < parts; i++) b[i] = v_load(k + at + i * ROW_LANES);
    if (far) far_tangents(q + at, k + at, t, parts);
    else near_tangents(q + at, b, t, parts);
#pragma GCC unroll 4
    for (int i = 0; i < parts; i++) sum[v][i % 2] = v_fma(v_load(w + at + i * ROW_LANES), t[i], sum[v][i % 2]);
  }
}

/* One pair's sums, lane by lane: two chains each, which a processor follows at once. */
INLINE void add_pair(const hd_additive *pairs, const float *q, const float *k, const bool far, float *out) {
  vf sum[ROW_VECTORS][2];
#pragma GCC unroll 16
  for (int v = 0; v < ROW_VECTORS; v++) sum[v][0] = sum[v][1] = v_set(0.0f);
#define ADD(c, parts) add_tangents(q + (c), k + (c), pairs->w + (c), far, sum, parts)
  FOR_COLUMNS(pairs->columns, ADD);
#undef ADD
#pragma GCC unroll 16
  for (int v = 0; v < ROW_VECTORS; v++) v_store(out + v * LANES, v_add(sum[v][0], sum[v][1]));
}

/* The sums of LANES pairs: as v_sum16 of each, all at once. */
INLINE vf sums_side_by_side(const float (*lanes)[ROW_LANES]) {
  vf part[LANES];
  for (int pair = 0; pair < LANES; pair++) {
    vf sum[ROW_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < ROW_VECTORS; v++) sum[v] = v_load(lanes[pair] + v * LANES);
#pragma GCC unroll 4
    for (int half = ROW_VECTORS / 2; half; half /= 2)
#pragma GCC unroll 16
      for (int v = 0; v < half; v++) sum[v] = v_add(sum[v], sum[v + half]);
    part[pair] = sum[0];
  }
  v_transpose(part);
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++) part[i] = v_add(part[i], part[i + half]);
  return part[0];
}

static void write_sums(const float (*lanes)[ROW_LANES], int count, float *const *to) {
  float sum[LANES];
  v_store(sum, sums_side_by_side(lanes));
  for (int i = 0; i < count; i++) *to[i] = sum[i];
}

/* Rows of so many queries stay in the first-level cache while all keys pass. */
enum { ADDITIVE_QUERIES = 8 };

void KERNEL(additive_scores)(const hd_additive *pairs, const hd_attn_tile *tile) {
  float lanes[LANES][ROW_LANES] = {{0}}, *to[LANES];
  int waiting = 0;
  memset(tile->scores, 0, (size_t)(tile->keys * tile->stride) * sizeof *tile->scores);
  for (int first = 0; first < pairs->count; first += ADDITIVE_QUERIES)
    for (int key = 0; key < tile->keys; key++) {
      uint64_t seen = seeing(pairs, tile, key) >> first & (((uint64_t)1 << ADDITIVE_QUERIES) - 1);
      for (; seen; seen &= seen - 1) {
        const int query = first + __builtin_ctzll(seen);
        if (is_far(pairs, query, key)) add_pair(pairs, pairs->rows[query], tile->k + key * tile->k_stride, true, lanes[waiting]);
        else add_pair(pairs, pairs->q + query * pairs->columns, pairs->k + key * pairs->columns, false, lanes[waiting]);
        to[waiting++] = tile->scores + key * tile->stride + query;
        if (waiting == LANES) write_sums(lanes, waiting, to), waiting = 0;
      }
    }
  if (waiting) write_sums(lanes, waiting, to);
}

/* ---- gradients --------------------------------------------------------------------------------------------------------------------- */

/* Columns [c, c + LANES) and those 16 apart of one key with every query that sees it. The slope w (1 − t²) is taken as w − w t². */
INLINE void key_gradients(const hd_additive *pairs, const hd_attn_tile *tile, int key, const float *ds, int64_t c, float *dq, float *dk,
                          float *dw, const int parts) {
  const int64_t columns = pairs->columns;
  const float *k = pairs->k + key * columns + c;
  vf b[4], w[4], minus_w[4], to_k[4], to_w[4];
#pragma GCC unroll 4
  for (int i = 0; i < parts; i++) {
    b[i] = v_load(k + i * ROW_LANES);
    w[i] = v_load(pairs->w + c + i * ROW_LANES);
    minus_w[i] = v_sub(v_set(0.0f), w[i]);
    to_k[i] = v_load(dk + key * columns + c + i * ROW_LANES);
    to_w[i] = v_load(dw + key * columns + c + i * ROW_LANES);
  }
  for (uint64_t seen = seeing(pairs, tile, key); seen; seen &= seen - 1) {
    const int query = __builtin_ctzll(seen);
    float *to_q = dq + query * columns + c;
    const vf s = v_set(ds[key * tile->stride + query]);
    vf t[4];
    if (is_far(pairs, query, key)) far_tangents(pairs->rows[query] + c, tile->k + key * tile->k_stride + c, t, parts);
    else near_tangents(pairs->q + query * columns + c, b, t, parts);
#pragma GCC unroll 4
    for (int i = 0; i < parts; i++) {
      vf slope = v_fma(v_mul(minus_w[i], t[i]), t[i], w[i]);
      v_store(to_q + i * ROW_LANES, v_fma(s, slope, v_load(to_q + i * ROW_LANES)));
      to_k[i] = v_fma(s, slope, to_k[i]);
      to_w[i] = v_fma(s, t[i], to_w[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < parts; i++) {
    v_store(dk + key * columns + c + i * ROW_LANES, to_k[i]);
    v_store(dw + key * columns + c + i * ROW_LANES, to_w[i]);
  }
}

void KERNEL(additive_gradients)(const hd_additive *pairs, const hd_attn_tile *tile, const float *ds, float *dq, float *dk, float *dw) {
#define GRADIENTS(c, parts)                                                                                                                \
  for (int key = 0; key < tile->keys; key++)                                                                                               \
    for (int v = 0; v < ROW_VECTORS; v++) key_gradients(pairs, tile, key, ds, (c) + v * LANES, dq, dk, dw, parts)
  FOR_COLUMNS(pairs->columns, GRADIENTS);
#undef GRADIENTS
}
