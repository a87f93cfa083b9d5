/* body_attn_decode.h: attention for a few rows that share their keys and see all of them: the query heads of one key/value head when a token is decoded.
 *
 * With so few rows, lanes that are queries would stand empty. Here keys are in lanes for the scores (squares of K are transposed in registers) and the columns of V for the
 * sums, and the state is row by row: q [rows][d], o [rows][dv]. Every chain of multiply-adds runs in the order of body_attn.h, so the bits are the same. Keys and values are
 * read as they are stored, each number once, so that a smaller type is less to read and nothing more to write. While one side is worked on, memory is asked for the other. */

enum { Q8_BLOCK = 32 };

INLINE float v_first(vf x) {
  float lane[LANES];
  v_store(lane, x);
  return lane[0];
}

INLINE int64_t stored_size(const hd_storage type) { return type == HD_F32 ? 4 : type == HD_Q8_0 ? 1 : 2; }

/* A byte u of a quantised row means the code u − HD_CODE_ZERO. It is loaded as 2^15 + u, for which it only has to be put into the place of a float's bits 8 to 15; one multiply-add makes
 * the number of it. Nothing is rounded on the way: a half has 11 bits, and what is taken off 9. */
static const float CODE_BASE = 32768, CODE_ZERO = 32768 + HD_CODE_ZERO;

typedef struct {
  vf factor, shift;
} code_scale;

INLINE code_scale scale_at(const uint16_t *halves) {
  const vf factor = v_load_f16(halves);
  return (code_scale){factor, v_mul(factor, v_set(-CODE_ZERO))};
}
INLINE code_scale scale_of(uint16_t half) {
  const float factor = hd_f16_to_f32(half);
  return (code_scale){v_set(factor), v_set(-CODE_ZERO * factor)};
}
INLINE vf scaled(vf code, code_scale scale) { return v_fma(code, scale.factor, scale.shift); }

/* LANES numbers as f32; of a quantised row, its codes. */
INLINE vf stored_load(const char *at, const hd_storage type) {
  switch (type) {
  case HD_F16: return v_load_f16((const uint16_t *)at);
  case HD_BF16: return v_load_bf16((const uint16_t *)at);
  case HD_Q8_0: return v_load_codes((const uint8_t *)at);
  default: return v_load((const float *)at);
  }
}

INLINE float stored_one(const char *at, const hd_storage type) {
  switch (type) {
  case HD_F16: return hd_f16_to_f32(*(const uint16_t *)at);
  case HD_BF16: return hd_bf16_to_f32(*(const uint16_t *)at);
  case HD_Q8_0: return CODE_BASE + *(const uint8_t *)at;
  default: return *(const float *)at;
  }
}

/* The last columns of a row, fewer than a vector: a vector that begins at `from` holds them. A row of codes is filled up to whole blocks; any other may end with its memory, so the
 * vector begins earlier. Negative where not even one fits into the row. */
INLINE int64_t tail_from(int64_t column, int64_t columns, const hd_storage type) { return type == HD_Q8_0 ? column : columns - LANES; }

/* Rows that will be needed, asked for line by line in the order of their addresses, a few lines in each step of other work, so that they are a stream to the
 * second level's own prefetcher and do not all want a line buffer at once. */
enum { LINE = 64 };
typedef struct {
  const char *at, *end; /* of the row under way */
  int64_t skip;         /* from its end to the next row */
  int64_t row_bytes;
  int rows; /* left after it */
} stream;

INLINE stream stream_of(const hd_stored *stored, int keys, int64_t columns) {
  stream a = {.at = stored->data, .row_bytes = columns * stored_size(stored->type)};
  if (keys == 0) return (stream){0};
  if (stored->type == HD_Q8_0)
    a.end = (const char *)(stored->scale + (columns + Q8_BLOCK - 1) / Q8_BLOCK * HD_KEY_TILE); // codes and scales lie together
  else if (stored->stride == a.row_bytes) a.end = a.at + keys * a.row_bytes;
  else a.end = a.at + a.row_bytes, a.skip = stored->stride - a.row_bytes, a.rows = keys - 1;
  return a;
}

INLINE void ask_lines(stream *a, int lines) {
  for (; lines > 0 && a->at < a->end; lines--) {
    __builtin_prefetch(a->at, 0, 2);
    a->at += LINE;
    if (a->at < a->end || a->rows == 0) continue;
    a->at = a->end + a->skip;
    a->end = a->at + a->row_bytes;
    a->rows--;
  }
}

/* ---- scores ------------------------------------------------------------------------------------------------------------------------ */

/* Keys come into lanes through words of 32 bits: a word is one number, two of bf16, or four codes. (An f16 cannot be taken out of a word lane by lane, so it is widened first.) */
INLINE int numbers_a_word(const hd_storage type) { return LANES == 1 ? 1 : type == HD_BF16 ? 2 : type == HD_Q8_0 ? 4 : 1; }

INLINE vf number_of_word(vf word, const int place, const hd_storage type) {
  const int numbers = numbers_a_word(type);
  return numbers == 2 ? v_bf16_of(word, place) : numbers == 4 ? v_code_of(word, place) : word;
}

/* What the keys of a tile hold at LANES neighbouring words, or columns: [LANES][64]. Keys are filled up to whole vectors by repeating the last. */
typedef struct {
  const hd_decode_tile *tile;
  stream values;
  const char *key[HD_KEY_TILE];
  int keys; /* a multiple of LANES */
  _Alignas(HD_ALIGN) float word[LANES][HD_KEY_TILE];
} panel;

/* The words from column i on. */
INLINE void fill_panel(panel *p, int64_t i, const hd_storage type) {
  const int64_t at = i * stored_size(type);
#pragma GCC unroll 1
  for (int key = 0; key < p->keys; key += LANES) {
    vf square[LANES];
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++)
      square[k] = numbers_a_word(type) > 1 ? v_load((const float *)(p->key[key + k] + at)) : stored_load(p->key[key + k] + at, type);
    v_transpose(square);
#pragma GCC unroll 16
    for (int w = 0; w < LANES; w++) v_store(p->word[w] + key, square[w]);
  }
}

/* At most LANES columns from i on, where no more words fit, as floats. Returns how many. */
static int fill_columns(panel *p, int64_t i, int64_t columns, hd_storage type) {
  const int64_t end = HD_MIN(i + LANES, columns), from = i + LANES <= end ? i : tail_from(i, columns, type);
  for (int key = 0; key < p->keys; key += LANES) {
    if (from < 0) {
      for (int k = key; k < key + LANES; k++)
        for (int64_t c = i; c < end; c++) p->word[c - i][k] = stored_one(p->key[k] + c * stored_size(type), type);
      continue;
    }
    vf square[LANES];
    for (int k = 0; k < LANES; k++) square[k] = stored_load(p->key[key + k] + from * stored_size(type), type);
    v_transpose(square);
    const code_scale scale = type == HD_Q8_0 ? scale_at(p->tile->k.scale + i / Q8_BLOCK * HD_KEY_TILE + key) : (code_scale){0};
    for (int64_t c = i; c < end; c++) v_store(p->word[c - i] + key, type == HD_Q8_0 ? scaled(square[c - from], scale) : square[c - from]);
  }
  return (int)(end - i);
}

/* scores[row][key] += for `words` words of `vectors` vectors of keys; the first word begins at column i. */
INLINE void add_words(const hd_attn_block *block, panel *p, int64_t i, int words, int key, const int rows, const int vectors,
                      const hd_storage type) {
  const int numbers = numbers_a_word(type);
  vf sum[HD_DECODE_ROWS][4];
  float *scores = p->tile->scores + key;
  const float *q = block->q + i;
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[r][v] = v_load(scores + r * HD_KEY_TILE + v * LANES);
  for (int w = 0, end; w < words; w = end) {
    code_scale scale[4];
    end = type == HD_Q8_0 ? HD_MIN(words, w + Q8_BLOCK / numbers) : words;
#pragma GCC unroll 4
    for (int v = 0; v < vectors && type == HD_Q8_0; v++)
      scale[v] = scale_at(p->tile->k.scale + (i + w * numbers) / Q8_BLOCK * HD_KEY_TILE + key + v * LANES);
#pragma GCC unroll 1
    for (; w < end; w++, q += numbers) {
      ask_lines(&p->values, HD_MAX(vectors * LANES * (int)sizeof(float) / LINE, 1));
#pragma GCC unroll 4
      for (int place = 0; place < numbers; place++) {
        vf x[4];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
          x[v] = number_of_word(v_load(p->word[w] + key + v * LANES), place, type);
          if (type == HD_Q8_0) x[v] = scaled(x[v], scale[v]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
          const vf b = v_set(q[r * block->d + place]);
#pragma GCC unroll 4
          for (int v = 0; v < vectors; v++) sum[r][v] = v_fma(x[v], b, sum[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(scores + r * HD_KEY_TILE + v * LANES, sum[r][v]);
}

INLINE void add_panel(const hd_attn_block *block, panel *p, int64_t i, int words, const int rows, const hd_storage type) {
  enum { REGISTERS = LANES >= 16 ? 16 : 8 };
  const int together = HD_MIN(HD_MIN(REGISTERS / (rows == 3 ? 4 : rows), 4), HD_KEY_TILE / LANES);
  int key = 0;
  for (; key + together * LANES <= p->keys; key += together * LANES) add_words(block, p, i, words, key, rows, together, type);
  for (; key < p->keys; key += LANES) add_words(block, p, i, words, key, rows, 1, type);
}

/* scores[row][key], columns ascending: a panel of words of all keys at a time. */
INLINE void decode_scores(const hd_attn_block *block, const hd_decode_tile *tile, const int rows, const hd_storage type) {
  panel p;
  const int64_t unit = LANES * numbers_a_word(type), d = block->d;
  int64_t i = 0;
  p.tile = tile;
  p.values = stream_of(&tile->v, tile->keys, block->dv);
  p.keys = (tile->keys + LANES - 1) / LANES * LANES;
  for (int k = 0; k < p.keys; k++) p.key[k] = (const char *)tile->k.data + HD_MIN(k, tile->keys - 1) * tile->k.stride;
  for (int r = 0; r < rows; r++) memset(tile->scores + r * HD_KEY_TILE, 0, (size_t)p.keys * sizeof(float));
  for (; i + unit <= d; i += unit) {
    fill_panel(&p, i, type);
    add_panel(block, &p, i, LANES, rows, type);
  }
  for (int columns; i < d; i += columns) {
    columns = fill_columns(&p, i, d, type);
    add_panel(block, &p, i, columns, rows, HD_F32);
  }
  for (int key = tile->keys; key < p.keys; key++)
    for (int r = 0; r < rows; r++) tile->scores[r * HD_KEY_TILE + key] = -INFINITY;
}

/* ---- weights ----------------------------------------------------------------------------------------------------------------------- */

INLINE float exp2_one(float t) { return v_first(v_exp2(v_set(t))); }

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

/* o[row][column] += Σ_key p[row][key] v[key][column], keys ascending, for `vectors` vectors of columns; of codes, vectors that share few scales. */
INLINE void add_columns(hd_attn_block *block, const hd_decode_tile *tile, stream *next, int64_t column, const int rows, const int vectors,
                        const hd_storage type) {
  enum { MOST_SCALES = 4 * LANES < Q8_BLOCK ? 1 : 4 * LANES / Q8_BLOCK };
  vf sum[HD_DECODE_ROWS][4];
  float factor[MOST_SCALES][HD_KEY_TILE], shift[MOST_SCALES][HD_KEY_TILE];
  const hd_stored *stored = &tile->v;
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[r][v] = v_load(block->o + r * block->dv + column + v * LANES);
  for (int s = 0; type == HD_Q8_0 && s * Q8_BLOCK < vectors * LANES; s++)
    for (int key = 0; key < tile->keys; key += LANES) {
      const code_scale scale = scale_at(stored->scale + (column / Q8_BLOCK + s) * HD_KEY_TILE + key);
      v_store(factor[s] + key, scale.factor);
      v_store(shift[s] + key, scale.shift);
    }
  const char *value = (const char *)stored->data + column * stored_size(type);
  const int bytes = vectors * LANES * (int)stored_size(type), lines = (bytes + LINE - 1) / LINE,
            every = bytes < LINE / 2 ? LINE / bytes : 1;
#pragma GCC unroll 1
  for (int key = 0; key < tile->keys; key++, value += stored->stride) {
    vf b[4];
    if (key % every == 0) ask_lines(next, lines);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const int s = v * LANES / Q8_BLOCK;
      b[v] = stored_load(value + v * LANES * stored_size(type), type);
      if (type == HD_Q8_0) b[v] = scaled(b[v], (code_scale){v_set(factor[s][key]), v_set(shift[s][key])});
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
      if (type == HD_Q8_0) b = scaled(b, scale_of(stored->scale[column / Q8_BLOCK * HD_KEY_TILE + key]));
      sum = v_fma(b, v_set(p[key]), sum);
    }
    v_store(lane, sum);
    memcpy(o, lane + (column - from), (size_t)columns * sizeof *o);
  }
}

INLINE void decode_values(hd_attn_block *block, const hd_decode_tile *tile, const int rows, const hd_storage type) {
  // As many chains as registers hold: 4 rows × 4 vectors of 32, or × 3 of 16. Where a block of codes is several vectors, as many as divide it.
  const int WIDE = LANES >= 16 ? 4 : type == HD_Q8_0 ? 2 : 3;
  stream next = stream_of(&tile->next, tile->next_keys, block->d);
  int64_t column = 0;
  for (; column + WIDE * LANES <= block->dv; column += WIDE * LANES) add_columns(block, tile, &next, column, rows, WIDE, type);
  for (; column + LANES <= block->dv; column += LANES) add_columns(block, tile, &next, column, rows, 1, type);
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
  const bool codes = type == HD_Q8_0;
  for (int key = 0; key < keys; key++, out += columns) {
    const char *row = (const char *)rows->data + key * rows->stride;
    code_scale scale = scale_of(0);
    for (int64_t i = 0, step; i < columns; i += step) {
      const char *at = row + i * stored_size(type);
      step = i + LANES <= columns ? LANES : 1;
      if (codes && i % Q8_BLOCK == 0) scale = scale_of(rows->scale[i / Q8_BLOCK * HD_KEY_TILE + key]);
      const vf x = step == LANES ? stored_load(at, type) : v_set(stored_one(at, type)), number = codes ? scaled(x, scale) : x;
      if (step == LANES) v_store(out + i, number);
      else out[i] = v_first(number);
    }
  }
}
