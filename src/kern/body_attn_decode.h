/* body_attn_decode.h: attention for a few rows that share their keys and see all of them: the query heads of one key/value head when a token is decoded.
 *
 * With so few rows, lanes that are queries would stand empty. Here keys are in lanes for the scores (squares of K are transposed in registers) and the columns of V for the
 * sums, and the state is row by row: q [rows][d], o [rows][dv]. Every chain of multiply-adds runs in the order of body_attn.h, so the bits are the same. Keys and values are
 * read as they are stored, each number once, so that a smaller type is less to read and nothing more to write. While one side is worked on, memory is asked for the other. */

enum { Q8_BLOCK = 32 };

INLINE int64_t stored_size(const hd_storage type) { return type == HD_F32 ? 4 : type == HD_Q8_0 ? 1 : 2; }

/* LANES numbers as f32; of a quantised row, its codes. */
INLINE vf stored_load(const char *at, const hd_storage type) {
  switch (type) {
  case HD_F16: return v_load_f16((const uint16_t *)at);
  case HD_BF16: return v_load_bf16((const uint16_t *)at);
  case HD_Q8_0: return v_load_i8((const int8_t *)at);
  default: return v_load((const float *)at);
  }
}

INLINE float stored_one(const char *at, const hd_storage type) {
  switch (type) {
  case HD_F16: return hd_f16_to_f32(*(const uint16_t *)at);
  case HD_BF16: return hd_bf16_to_f32(*(const uint16_t *)at);
  case HD_Q8_0: return *(const int8_t *)at;
  default: return *(const float *)at;
  }
}

/* The last columns of a row, fewer than a vector: a vector that begins at `from` holds them. A row of codes is filled up to whole blocks; any other may end with its memory, so the
 * vector begins earlier. Negative where not even one fits into the row. */
INLINE int64_t tail_from(int64_t column, int64_t columns, const hd_storage type) { return type == HD_Q8_0 ? column : columns - LANES; }

/* ---- scores ------------------------------------------------------------------------------------------------------------------------ */

/* Words of 32 bits are transposed: a word is one number, two of bf16, or four codes. (An f16 cannot be taken out of a word lane by lane, so it is widened first.) */
INLINE int numbers_a_word(const hd_storage type) { return LANES == 1 ? 1 : type == HD_BF16 ? 2 : type == HD_Q8_0 ? 4 : 1; }

INLINE vf number_of_word(vf word, const int place, const int numbers) {
  return numbers == 2 ? v_bf16_of(word, place) : numbers == 4 ? v_i8_of(word, place) : word;
}

/* Scores of LANES neighbouring keys under way. Rows past the tile's last key repeat it. */
typedef struct {
  const char *key[LANES];
  const uint16_t *scale; /* of the keys' first blocks */
  float sum[HD_DECODE_ROWS][LANES];
} key_group;

INLINE vf group_scale(const key_group *group, int64_t column) { return v_load_f16(group->scale + column / Q8_BLOCK * HD_KEY_TILE); }

/* sum[row] += for the columns of a square of words, which begin at i. */
INLINE void add_square(key_group *group, const hd_attn_block *block, int64_t i, const int rows, const hd_storage type) {
  const int numbers = numbers_a_word(type);
  vf square[LANES], sum[HD_DECODE_ROWS], scale = v_set(1.0f);
#pragma GCC unroll 16
  for (int k = 0; k < LANES; k++) {
    const char *at = group->key[k] + i * stored_size(type);
    square[k] = numbers > 1 ? v_load((const float *)at) : stored_load(at, type);
  }
  v_transpose(square);
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) sum[r] = v_load(group->sum[r]);
#pragma GCC unroll 16
  for (int c = 0; c < LANES; c++)
#pragma GCC unroll 4
    for (int place = 0; place < numbers; place++) {
      const int column = c * numbers + place;
      vf x = number_of_word(square[c], place, numbers);
      if (type == HD_Q8_0 && column % Q8_BLOCK == 0) scale = group_scale(group, i + column);
      if (type == HD_Q8_0) x = v_mul(x, scale);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r] = v_fma(x, v_set(block->q[r * block->d + i + column]), sum[r]);
    }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) v_store(group->sum[r], sum[r]);
}

/* At most LANES columns from i on, where no square of words fits. */
static void add_few_columns(key_group *group, const hd_attn_block *block, int64_t i, hd_storage type) {
  const int64_t end = HD_MIN(i + LANES, block->d), from = i + LANES <= end ? i : tail_from(i, block->d, type);
  float column[LANES][LANES];
  for (int k = 0; k < LANES && from < 0; k++)
    for (int64_t c = i; c < end; c++) column[c - i][k] = stored_one(group->key[k] + c * stored_size(type), type);
  if (from >= 0) {
    vf square[LANES];
    for (int k = 0; k < LANES; k++) square[k] = stored_load(group->key[k] + from * stored_size(type), type);
    v_transpose(square);
    for (int c = 0; c < LANES; c++) v_store(column[c], square[c]);
  }
  const int64_t begin = from < 0 ? i : from;
  const vf scale = type == HD_Q8_0 ? group_scale(group, i) : v_set(1.0f);
  for (int r = 0; r < block->lanes; r++) {
    vf sum = v_load(group->sum[r]);
    for (int64_t c = i; c < end; c++) sum = v_fma(v_mul(v_load(column[c - begin]), scale), v_set(block->q[r * block->d + c]), sum);
    v_store(group->sum[r], sum);
  }
}

/* scores[row][key], columns ascending. Groups of keys go through the columns side by side: the chain of one row alone would wait for its own latency. */
INLINE void decode_scores(const hd_attn_block *block, const hd_decode_tile *tile, const int rows, const hd_storage type) {
  enum { TOGETHER = HD_KEY_TILE / LANES < 4 ? HD_KEY_TILE / LANES : 4 };
  key_group group[TOGETHER];
  const int64_t unit = LANES * numbers_a_word(type), d = block->d, size = stored_size(type);
  int first = 0;
  for (int count; first < tile->keys; first += count * LANES) {
    count = (int)HD_MIN(rows == 1 ? TOGETHER : rows == 2 ? HD_MIN(TOGETHER, 2) : 1, hd_ceil_div(tile->keys - first, LANES));
    for (int g = 0; g < count; g++) {
      int from = first + g * LANES;
      for (int k = 0; k < LANES; k++) group[g].key[k] = (const char *)tile->k.data + HD_MIN(from + k, tile->keys - 1) * tile->k.stride;
      group[g].scale = tile->k.scale + from;
      memset(group[g].sum, 0, sizeof group[g].sum);
    }
    const char *ahead = (const char *)tile->v.data + first * tile->v.stride;
    int64_t i = 0;
    for (; i + unit <= d; i += unit)
#pragma GCC unroll 1
      for (int g = 0; g < count; g++) {
        if (i * size % 64 == 0) // into the second-level cache: so many at once would fill the first level's line buffers
          for (int k = 0; k < LANES; k++) __builtin_prefetch(ahead + (g * LANES + k) * tile->v.stride + i * size, 0, 2);
        add_square(&group[g], block, i, rows, type);
      }
    for (; i < d; i += LANES)
      for (int g = 0; g < count; g++) add_few_columns(&group[g], block, i, type);
    for (int g = 0; g < count; g++)
      for (int r = 0; r < rows; r++) v_store(tile->scores + r * HD_KEY_TILE + first + g * LANES, v_load(group[g].sum[r]));
  }
  for (int key = tile->keys; key < first; key++)
    for (int r = 0; r < rows; r++) tile->scores[r * HD_KEY_TILE + key] = -INFINITY;
}

/* ---- weights ----------------------------------------------------------------------------------------------------------------------- */

/* Lane 0 of an exp2 of one number. */
INLINE float exp2_one(float t) {
  float lane[LANES];
  v_store(lane, v_exp2(v_set(t)));
  return lane[0];
}

/* The row's maximum may rise; where it does, its sum and numerators follow. */
static void decode_rescale(hd_attn_block *block, const hd_decode_tile *tile, int r) {
  const float *scores = tile->scores + r * HD_KEY_TILE;
  float *o = block->o + r * block->dv, lane[LANES], top = -INFINITY;
  vf best = v_set(-INFINITY);
  for (int key = 0; key < tile->keys; key += LANES) best = v_max(v_load(scores + key), best);
  v_store(lane, best);
  for (int i = 0; i < LANES; i++) top = lane[i] > top ? lane[i] : top;
  if (!(top > block->m[r] + 8.0f)) return;
  float factor = exp2_one(block->m[r] - top);
  block->m[r] = top;
  block->l[r] *= factor;
  for (int64_t c = 0; c < block->dv; c++) o[c] *= factor;
}

/* Scores to weights. Each row's sum runs over ascending keys, one chain; the rows' chains run beside each other. */
INLINE void decode_weights(hd_attn_block *block, const hd_decode_tile *tile, const int rows) {
  float sum[HD_DECODE_ROWS];
#pragma GCC unroll 1
  for (int r = 0; r < rows; r++) {
    float *scores = tile->scores + r * HD_KEY_TILE;
    const vf m = v_set(block->m[r] == -INFINITY ? 0.0f : block->m[r]);
    for (int key = 0; key < tile->keys; key += LANES) v_store(scores + key, v_exp2(v_sub(v_load(scores + key), m)));
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) sum[r] = block->l[r];
  for (int key = 0; key < tile->keys; key++)
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r] += tile->scores[r * HD_KEY_TILE + key];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) block->l[r] = sum[r];
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------ */

/* o[row][column] += Σ_key p[row][key] v[key][column], keys ascending, for `vectors` vectors of columns. */
INLINE void add_columns(hd_attn_block *block, const hd_decode_tile *tile, int64_t column, const int rows, const int vectors,
                        const hd_storage type) {
  vf sum[HD_DECODE_ROWS][4];
  float scale[4][HD_KEY_TILE];
  const hd_stored *stored = &tile->v;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r][v] = v_load(block->o + r * block->dv + column + v * LANES);
    for (int key = 0; type == HD_Q8_0 && key < tile->keys; key += LANES)
      v_store(scale[v] + key, v_load_f16(stored->scale + (column + v * LANES) / Q8_BLOCK * HD_KEY_TILE + key));
  }
  const char *value = (const char *)stored->data + column * stored_size(type),
             *ahead = (const char *)tile->next + column * stored_size(type);
#pragma GCC unroll 1
  for (int key = 0; key < tile->keys; key++, value += stored->stride, ahead += tile->k.stride) {
    vf b[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      if (v * LANES * stored_size(type) % 64 == 0) __builtin_prefetch(ahead + v * LANES * stored_size(type), 0, 2);
      b[v] = stored_load(value + v * LANES * stored_size(type), type);
      if (type == HD_Q8_0) b[v] = v_mul(b[v], v_set(scale[v][key]));
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      vf a = v_set(tile->scores[r * HD_KEY_TILE + key]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(b[v], a, sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(block->o + r * block->dv + column + v * LANES, sum[r][v]);
}

/* The same for the columns from `column` on, fewer than LANES. */
static void add_last_values(hd_attn_block *block, const hd_decode_tile *tile, int64_t column, hd_storage type) {
  const int64_t columns = block->dv - column, from = tail_from(column, block->dv, type);
  const hd_stored *stored = &tile->v;
  for (int r = 0; r < block->lanes; r++) {
    float *o = block->o + r * block->dv + column;
    const float *p = tile->scores + r * HD_KEY_TILE;
    if (from < 0) {
      for (int key = 0; key < tile->keys; key++)
        for (int64_t c = 0; c < columns; c++)
          o[c] = fmaf(stored_one((const char *)stored->data + key * stored->stride + (column + c) * stored_size(type), type), p[key], o[c]);
      continue;
    }
    float lane[LANES] = {0};
    memcpy(lane + (column - from), o, (size_t)columns * sizeof *o);
    vf sum = v_load(lane);
    for (int key = 0; key < tile->keys; key++) {
      vf b = stored_load((const char *)stored->data + key * stored->stride + from * stored_size(type), type);
      if (type == HD_Q8_0) b = v_mul(b, v_set(hd_f16_to_f32(stored->scale[column / Q8_BLOCK * HD_KEY_TILE + key])));
      sum = v_fma(b, v_set(p[key]), sum);
    }
    v_store(lane, sum);
    memcpy(o, lane + (column - from), (size_t)columns * sizeof *o);
  }
}

INLINE void decode_values(hd_attn_block *block, const hd_decode_tile *tile, const int rows, const hd_storage type) {
  // As many chains as registers hold: 4 rows × 4 vectors of 32, or × 3 of 16.
  enum { WIDE = LANES >= 16 ? 4 : 3 };
  int64_t column = 0;
  for (; column + WIDE * LANES <= block->dv; column += WIDE * LANES) add_columns(block, tile, column, rows, WIDE, type);
  for (; column + LANES <= block->dv; column += LANES) add_columns(block, tile, column, rows, 1, type);
  if (column < block->dv) add_last_values(block, tile, column, type);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------------------------- */

/* A function of its own for every number of rows and type: one that held them all would take the compiler minutes. The second one begins with the weights. */
#define DECODE_ROWS(X, type) X(1, type) X(2, type) X(3, type) X(4, type)
#define DECODE_CASES(X)      DECODE_ROWS(X, F32) DECODE_ROWS(X, F16) DECODE_ROWS(X, BF16) DECODE_ROWS(X, Q8_0)

#define DECODE_FUNCTIONS(rows, type)                                                                                                       \
  static __attribute__((noinline)) void scores_##rows##_##type(const hd_attn_block *block, const hd_decode_tile *tile) {                   \
    decode_scores(block, tile, rows, HD_##type);                                                                                           \
  }                                                                                                                                        \
  static __attribute__((noinline)) void values_##rows##_##type(hd_attn_block *block, const hd_decode_tile *tile) {                         \
    decode_weights(block, tile, rows);                                                                                                     \
    decode_values(block, tile, rows, HD_##type);                                                                                           \
  }
DECODE_CASES(DECODE_FUNCTIONS)
#undef DECODE_FUNCTIONS

static const struct {
  void (*scores)(const hd_attn_block *block, const hd_decode_tile *tile);
  void (*values)(hd_attn_block *block, const hd_decode_tile *tile);
} decode_case[HD_DECODE_ROWS][HD_STORAGE_COUNT] = {
#define DECODE_ENTRY(rows, type) [rows - 1][HD_##type] = {scores_##rows##_##type, values_##rows##_##type},
    DECODE_CASES(DECODE_ENTRY)
#undef DECODE_ENTRY
};

void KERNEL(attn_decode_tile)(hd_attn_block *block, const hd_decode_tile *tile) {
  const int rows = block->lanes;
  decode_case[rows - 1][tile->k.type].scores(block, tile);
  for (int r = 0; r < rows; r++) decode_rescale(block, tile, r);
  decode_case[rows - 1][tile->v.type].values(block, tile);
}

void KERNEL(attn_decode_merge)(hd_attn_block *block) {
  for (int r = 0; r < block->lanes; r++) {
    float a = block->total_m[r], b = block->m[r], m = a > b ? a : b, base = m == -INFINITY ? 0.0f : m;
    float from_total = exp2_one(a - base), from_chunk = exp2_one(b - base);
    float *total = block->total_o + r * block->dv, *o = block->o + r * block->dv;
    block->total_m[r] = m;
    block->total_l[r] = fmaf(block->total_l[r], from_total, block->l[r] * from_chunk);
    block->m[r] = -INFINITY;
    block->l[r] = 0;
    for (int64_t c = 0; c < block->dv; c++) {
      total[c] = fmaf(total[c], from_total, o[c] * from_chunk);
      o[c] = 0;
    }
  }
}

void KERNEL(read_rows)(const hd_stored *rows, int keys, int64_t columns, float *out) {
  const hd_storage type = rows->type;
  for (int key = 0; key < keys; key++, out += columns) {
    const char *row = (const char *)rows->data + key * rows->stride;
    float scale = 1;
    for (int64_t i = 0; i < columns;) {
      if (type == HD_Q8_0 && i % Q8_BLOCK == 0) scale = hd_f16_to_f32(rows->scale[i / Q8_BLOCK * HD_KEY_TILE + key]);
      if (i + LANES <= columns) {
        v_store(out + i, v_mul(stored_load(row + i * stored_size(type), type), v_set(scale)));
        i += LANES;
      } else {
        out[i] = stored_one(row + i * stored_size(type), type) * scale;
        i++;
      }
    }
  }
}
