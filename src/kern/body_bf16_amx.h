/* body_bf16_amx.h: the products of body_attn_bf16.h by AMX. A tile register holds 16 rows of 16 words; TDPBF16PS adds to 16 × 16 sums the products of 16 rows of pairs with 16 pairs of lanes.
 *
 * Both products have lanes in the words of the second factor, as pairs, which is how queries and weights lie; the first factor is 16 keys as they lie, or 16 columns of V with the pairs of keys in
 * a row. Registers 0 to 3 hold the sums of up to four vectors of lanes, 4 and 6 whole factors, 5 and 7 the last, narrower ones. */

/* What LDTILECFG reads. */
typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_shapes;

/* c[row][lane] (+)= the sum over pairs of a[row][pair] b[pair][lane]: rows `a_stride` bytes apart, b and c [..][stride] words. */
typedef struct {
  const void *a;
  int64_t a_stride;
  const void *b;
  int64_t b_stride;
  float *c;
  int64_t c_stride;
  int64_t pairs;
  bool first; /* sums begin at 0, otherwise at what c holds */
} tile_product;

/* Registers for `rows` rows and a last factor of `rest` pairs. */
static void shape_tiles(int rows, int rest) {
  tile_shapes shapes = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shapes.rows[i] = (uint8_t)(i == 6 ? 16 : i == 7 ? HD_MAX(rest, 1) : rows);
    shapes.row_bytes[i] = (uint16_t)(i == 5 ? 4 * HD_MAX(rest, 1) : 64);
  }
  _tile_loadconfig(&shapes);
}

/* One row of sums, up to four vectors wide. */
INLINE void multiply_tiles(const tile_product *t, const int vectors) {
  const int64_t b_bytes = t->b_stride * 4, c_bytes = t->c_stride * 4;
  const char *a = t->a, *b = t->b;
#define BEGIN(v)                                                                                                                           \
  if (vectors > v && t->first) _tile_zero(v);                                                                                              \
  else if (vectors > v) _tile_loadd(v, t->c + v * LANES, c_bytes)
#define ADD(v, a_tile, b_tile)                                                                                                             \
  if (vectors > v) {                                                                                                                       \
    _tile_loadd(b_tile, b + pair * b_bytes + v * LANES * 4, b_bytes);                                                                      \
    _tile_dpbf16ps(v, a_tile, b_tile);                                                                                                     \
  }                                                                                                                                        \
  (void)0
#define END(v)                                                                                                                             \
  if (vectors > v) _tile_stored(v, t->c + v * LANES, c_bytes)
  BEGIN(0);
  BEGIN(1);
  BEGIN(2);
  BEGIN(3);
  int64_t pair = 0;
  for (; pair + 16 <= t->pairs; pair += 16) {
    _tile_loadd(4, a + pair * 4, t->a_stride);
    ADD(0, 4, 6);
    ADD(1, 4, 6);
    ADD(2, 4, 6);
    ADD(3, 4, 6);
  }
  if (pair < t->pairs) {
    _tile_loadd(5, a + pair * 4, t->a_stride);
    ADD(0, 5, 7);
    ADD(1, 5, 7);
    ADD(2, 5, 7);
    ADD(3, 5, 7);
  }
  END(0);
  END(1);
  END(2);
  END(3);
#undef BEGIN
#undef ADD
#undef END
}

/* MemorySanitizer does not see what tiles store. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
void __msan_unpoison(const volatile void *memory, size_t bytes);
#define STORED(memory, floats) __msan_unpoison(memory, (size_t)(floats) * sizeof(float))
#endif
#endif
#ifndef STORED
#define STORED(memory, floats) ((void)0)
#endif

/* `rows` rows of sums, 16 at a time. */
static void multiply_rows(tile_product t, int64_t rows, int vectors) {
  const int rest = (int)(t.pairs % 16);
  // The compiler does not know that tiles are loaded from memory.
  __asm__ volatile("" ::: "memory");
  for (int64_t row = 0; row < rows; row += 16) {
    if (row == 0 || rows - row < 16) shape_tiles((int)HD_MIN(rows - row, 16), rest);
    switch (vectors) {
    case 1: multiply_tiles(&t, 1); break;
    case 2: multiply_tiles(&t, 2); break;
    case 3: multiply_tiles(&t, 3); break;
    case 4: multiply_tiles(&t, 4); break;
    }
    for (int64_t i = row; i < HD_MIN(row + 16, rows); i++) STORED(t.c + (i - row) * t.c_stride, vectors * LANES);
    t.a = (const char *)t.a + 16 * t.a_stride;
    t.c += 16 * t.c_stride;
  }
  // Registers in use would be saved with every switch of threads.
  _tile_release();
  __asm__ volatile("" ::: "memory");
}

static void score_pairs(const hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
  float *out = block_scores(block, tile) + r->from * tile->stride + r->first * LANES;
  multiply_rows((tile_product){.a = tile->k_bf16 + r->from * tile->k_stride,
                               .a_stride = tile->k_stride * 2,
                               .b = block->q_pairs + r->first * LANES,
                               .b_stride = block->lanes,
                               .c = out,
                               .c_stride = tile->stride,
                               .pairs = block->d / 2,
                               .first = true},
                r->to - r->from, r->vectors);
  const vf scale = v_set(block->q_scale);
  for (int key = r->from; key < r->to; key++, out += tile->stride)
    for (int v = 0; v < r->vectors; v++) v_store(out + v * LANES, v_mul(v_load(out + v * LANES), scale));
}

/* tile->v_pairs [32][dv], from pair `from` on, as columns [dv][pairs] behind it. */
static uint32_t *turn_values(const hd_attn_tile *tile, int64_t columns, int from, int pairs) {
  const uint32_t *values = tile->v_pairs + from * columns;
  uint32_t *turned = tile->v_pairs + HD_KEY_TILE / 2 * columns;
  int64_t c = 0;
  for (; c + LANES <= columns; c += LANES)
    for (int pair = 0; pair < pairs; pair += LANES) {
      vf square[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) square[i] = pair + i < pairs ? v_load((const float *)values + (pair + i) * columns + c) : v_set(0.0f);
      v_transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) v_store((float *)turned + (c + i) * (HD_KEY_TILE / 2) + pair, square[i]);
    }
  for (; c < columns; c++)
    for (int pair = 0; pair < pairs; pair++) turned[c * (HD_KEY_TILE / 2) + pair] = values[pair * columns + c];
  return turned;
}

static void value_pairs(hd_attn_block *block, const hd_attn_tile *tile, const run *r) {
  const int pairs = (r->to - r->from + 1) / 2;
  multiply_rows((tile_product){.a = turn_values(tile, block->dv, r->from / 2, pairs),
                               .a_stride = HD_KEY_TILE / 2 * 4,
                               .b = block_scores(block, tile) + r->from * tile->stride + r->first * LANES,
                               .b_stride = tile->stride,
                               .c = block->o + r->first * LANES,
                               .c_stride = block->lanes,
                               .pairs = pairs},
                block->dv, r->vectors);
}
