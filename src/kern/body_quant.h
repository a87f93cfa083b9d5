/* body_quant.h: packed panels (hd_panels) as f32 weights: into a slab of scratch for products of many rows, or straight into the chains of one row.
 *
 * One walk over the weights serves both uses and every type: what a type needs is known at compile time, so each gets its own straight loop. */

#include "quant.h"

/* Vectors of outputs that are walked together, which gives independent chains: within a panel, or in two panels where a vector is a whole panel. */
enum { WALK_VECTORS = LANES >= HD_PANEL ? 2 : LANES > 1 ? HD_PANEL / LANES : 4 };

/* What becomes of the weights: stored (slab [panel][inputs][16]) or multiplied by x and added to sum. */
typedef struct {
  const float *x;
  float *slab;
  int64_t slab_stride; /* floats from panel to panel */
  vf sum[WALK_VECTORS];
} walk;

/* Where vector v of the walk begins: its panel, counted from the first, and its place there. */
#define WALK_PANEL(v) ((v)*LANES / HD_PANEL)
#define WALK_LANE(v)  ((v)*LANES % HD_PANEL)

/* Weights w of input i, counted from the walk's first, for vector v. */
INLINE void take(walk *to, int64_t i, int v, int lane, vf w, const bool store) {
  if (store) {
    v_store(to->slab + WALK_PANEL(v) * to->slab_stride + i * HD_PANEL + lane + WALK_LANE(v), w);
  } else {
    to->sum[v] = v_fma(v_set(to->x[i]), w, to->sum[v]);
  }
}

/* The bytes of one 32-input unit and of the halves before the first unit of a block. */
INLINE int unit_integers(const hd_quant q) { return q.integer ? HD_QUANT_UNIT / q.group * HD_PANEL * (q.minimum ? 2 : 1) : 0; }
INLINE int unit_bytes(const hd_quant q) { return unit_integers(q) + q.bits * HD_QUANT_UNIT / 8 * HD_PANEL; }
INLINE int head_bytes(const hd_quant q) { return 2 * HD_PANEL * (q.minimum ? 2 : 1); }

/* Code j of eight: from words already shifted so that the first of the eight lies in the low bits. */
INLINE vf code_of(const hd_quant q, vi nibbles, vi pairs, vi bits, const int j) {
  if (q.lookup) return v_lookup(v_shift(nibbles, 4 * j), hd_iq4_values);
  if (q.bits == 4) return v_nibble(v_shift(nibbles, 4 * j));
  if (q.bits == 2) return v_float(v_and(v_shift(pairs, 2 * j), 3));
  if (q.bits == 3) return v_float(v_or(v_and(v_shift(pairs, 2 * j), 3), v_and(v_shift(bits, j - 2), 4)));
  vi low = v_and(v_shift(nibbles, 4 * j), 15);
  return v_float(v_or(low, q.bits == 5 ? v_and(v_shift(bits, j - 4), 16) : v_and(v_shift(pairs, 2 * j - 4), 48)));
}

/* The 32 inputs of one unit; d and m are the block's halves as f32. unit points at the first walked panel, lane is the first lane there. */
INLINE void walk_unit(const hd_quant q, const unsigned char *unit, int64_t stride, int lane, const vf *d, const vf *m, int64_t i, walk *to,
                      const int vectors, const bool store) {
  const int groups = HD_QUANT_UNIT / q.group;
#pragma GCC unroll 1
  for (int g = 0; g < groups; g++) {
    vf scale[WALK_VECTORS], minimum[WALK_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const int8_t *integers = (const int8_t *)unit + WALK_PANEL(v) * stride + lane + WALK_LANE(v);
      scale[v] = q.integer ? v_mul(d[v], v_load_i8(integers + g * HD_PANEL)) : d[v];
      if (!q.minimum) minimum[v] = v_mul(scale[v], v_set((float)-q.offset));
      else minimum[v] = q.integer ? v_mul(m[v], v_load_i8(integers + (groups + g) * HD_PANEL)) : m[v];
    }
#pragma GCC unroll 1
    for (int k = g * q.group / 8; k < (g + 1) * q.group / 8; k++) {
      vi nibbles[WALK_VECTORS], pairs[WALK_VECTORS], bits[WALK_VECTORS];
      const unsigned char *codes[WALK_VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        codes[v] = unit + unit_integers(q) + WALK_PANEL(v) * stride;
        const uint32_t *word = (const uint32_t *)codes[v] + lane + WALK_LANE(v);
        if (q.bits >= 4 && q.bits < 8) nibbles[v] = v_load_u32(word + k * HD_PANEL);
        if (q.bits >= 4 && q.bits < 8) word += 4 * HD_PANEL;
        if (q.bits == 2 || q.bits == 3 || q.bits == 6) {
          pairs[v] = v_load_u32(word + k / 2 * HD_PANEL);
          if (k % 2) pairs[v] = v_shift(pairs[v], 16);
          word += 2 * HD_PANEL;
        }
        if (q.bits == 3 || q.bits == 5) bits[v] = v_shift_by(v_load_u32(word), 8 * k);
      }
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
          vf code = q.bits == 8 ? v_load_i8((const int8_t *)codes[v] + (8 * k + j) * HD_PANEL + lane + WALK_LANE(v))
                                : code_of(q, nibbles[v], pairs[v], bits[v], j);
          vf w = q.minimum || q.offset ? v_fma(scale[v], code, minimum[v]) : v_mul(scale[v], code);
          take(to, i + 8 * k + j, v, lane, w, store);
        }
    }
  }
}

/* Inputs [from, from + inputs), multiples of 32, of vectors of panels at `panel` and lane. */
INLINE void walk_quantised(const hd_quant q, const int block, const unsigned char *panel, int64_t stride, int lane, int64_t from,
                           int64_t inputs, walk *to, const int vectors, const bool store) {
  const int block_bytes = head_bytes(q) + block / HD_QUANT_UNIT * unit_bytes(q);
  for (int64_t i = 0; i < inputs;) {
    const unsigned char *head = panel + (from + i) / block * block_bytes;
    int first = (int)((from + i) % block / HD_QUANT_UNIT), last = (int)HD_MIN(block / HD_QUANT_UNIT, first + (inputs - i) / HD_QUANT_UNIT);
    vf d[WALK_VECTORS], m[WALK_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const uint16_t *halves = (const uint16_t *)(head + WALK_PANEL(v) * stride) + lane + WALK_LANE(v);
      d[v] = v_load_f16(halves);
      m[v] = q.minimum ? v_load_f16(halves + HD_PANEL) : d[v];
    }
    for (int unit = first; unit < last; unit++, i += HD_QUANT_UNIT)
      walk_unit(q, head + head_bytes(q) + unit * unit_bytes(q), stride, lane, d, m, i, to, vectors, store);
  }
}

INLINE void walk_plain(const hd_storage storage, const unsigned char *panel, int64_t stride, int lane, int64_t from, int64_t inputs,
                       walk *to, const int vectors, const bool store) {
  for (int64_t i = 0; i < inputs; i++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      const unsigned char *at = panel + WALK_PANEL(v) * stride;
      int64_t place = (from + i) * HD_PANEL + lane + WALK_LANE(v);
      vf w = storage == HD_F16    ? v_load_f16((const uint16_t *)at + place)
             : storage == HD_BF16 ? v_load_bf16((const uint16_t *)at + place)
                                  : v_load((const float *)at + place);
      take(to, i, v, lane, w, store);
    }
}

INLINE void walk_type(const hd_storage storage, const unsigned char *panel, int64_t stride, int lane, int64_t from, int64_t inputs,
                      walk *to, const int vectors, const bool store) {
#define QUANTISED(type, block)                                                                                                             \
  case type:                                                                                                                               \
    walk_quantised(hd_quants[type], block, panel, stride, lane, from, inputs, to, vectors, store);                                         \
    break;
#define PLAIN(type)                                                                                                                        \
  case type: walk_plain(type, panel, stride, lane, from, inputs, to, vectors, store); break;
  switch (storage) {
    QUANTISED(HD_Q4_0, 32)
    QUANTISED(HD_Q4_1, 32)
    QUANTISED(HD_Q5_0, 32)
    QUANTISED(HD_Q5_1, 32)
    QUANTISED(HD_Q8_0, 32)
    QUANTISED(HD_IQ4_NL, 32)
    QUANTISED(HD_Q2_K, 256)
    QUANTISED(HD_Q3_K, 256)
    QUANTISED(HD_Q4_K, 256)
    QUANTISED(HD_Q5_K, 256)
    QUANTISED(HD_Q6_K, 256)
    PLAIN(HD_F32)
    PLAIN(HD_F16)
    PLAIN(HD_BF16)
  default: break;
  }
#undef QUANTISED
#undef PLAIN
}

/* Panels that one walk covers. */
enum { WALK_PANELS = (WALK_VECTORS * LANES + HD_PANEL - 1) / HD_PANEL };

INLINE void unpack_panels(const hd_panels *p, int64_t panel, int64_t from, int64_t inputs, float *w, const int vectors) {
  for (int lane = 0; lane < HD_PANEL; lane += vectors * LANES) {
    walk to = {.slab = w, .slab_stride = inputs * HD_PANEL};
    walk_type(p->storage, p->data + panel * p->stride, p->stride, lane, from, inputs, &to, vectors, true);
  }
}

void KERNEL(unpack)(const hd_panels *p, int64_t panel, int64_t count, int64_t from, int64_t inputs, float *w) {
  int64_t end = panel + count;
  for (; panel + WALK_PANELS <= end; panel += WALK_PANELS, w += WALK_PANELS * inputs * HD_PANEL)
    unpack_panels(p, panel, from, inputs, w, WALK_VECTORS);
#if LANES >= 16
  if (panel < end) unpack_panels(p, panel, from, inputs, w, 1);
#endif
}

INLINE void multiply_panels(const hd_panels *p, int64_t panel, const float *x, float *y, const int vectors) {
  for (int lane = 0; lane < HD_PANEL; lane += vectors * LANES) {
    walk to = {.x = x};
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) to.sum[v] = v_set(0.0f);
    walk_type(p->storage, p->data + panel * p->stride, p->stride, lane, 0, p->inputs, &to, vectors, false);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) v_store(y + lane + v * LANES, to.sum[v]);
  }
}

void KERNEL(multiply_row)(const hd_panels *p, int64_t panel, int64_t count, const float *x, float *y) {
  int64_t end = panel + count;
  for (; panel + WALK_PANELS <= end; panel += WALK_PANELS, y += WALK_PANELS * HD_PANEL) multiply_panels(p, panel, x, y, WALK_VECTORS);
#if LANES >= 16
  if (panel < end) multiply_panels(p, panel, x, y, 1);
#endif
}
