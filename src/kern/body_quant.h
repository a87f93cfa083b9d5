/* body_quant.h: packed panels (hd_panels) as f32 weights: into a slab of scratch for products of several rows, or straight into the chains of one row.
 *
 * One walk over the weights serves both uses. How wide a code is is known at compile time, so that each width gets its own straight loop; what else a type has (integers
 * of groups, minima, long blocks) is looked up once a group. */

#include "quant.h"

/* Vectors of outputs that are walked together, for independent chains: all of a panel, or four panels where a vector is a whole panel. Two chains there would wait for each
 * other: a link takes four cycles, the work between links of two chains as long. */
enum { WALK_VECTORS = LANES >= HD_PANEL ? 4 : LANES > 1 ? HD_PANEL / LANES : 1, WALK_PANELS = LANES >= HD_PANEL ? 4 : 1 };

/* Where vector v of the walk begins: its panel, counted from the first, and its place there. */
#define WALK_PANEL(v) (WALK_PANELS == 1 ? 0 : (v))
#define WALK_LANE(v)  ((v)*LANES % HD_PANEL)

/* Weights [inputs][WALK_VECTORS · LANES] from input `from` (a multiple of 32 where they are quantised), and what becomes of them: they are stored in a slab
 * [panel][inputs][16], or multiplied by x and added to sum. Where there are fewer panels than a walk has room for, the last is walked again. */
typedef struct {
  hd_storage storage;
  const unsigned char *panel;
  int64_t offset[WALK_PANELS]; /* of each panel's bytes from the first's */
  int64_t step;                /* bytes from block to block */
  int lane;                    /* the first in its panel */
  int64_t from, inputs;
  const float *x;
  float *slab;
  int64_t slab_offset[WALK_PANELS]; /* of each panel's floats */
  vf sum[WALK_VECTORS];
} walk;

INLINE void take(walk *to, int64_t i, int v, vf w, const bool store) {
  if (store) v_store(to->slab + to->slab_offset[WALK_PANEL(v)] + i * HD_PANEL + to->lane + WALK_LANE(v), w);
  else to->sum[v] = v_fma(v_set(to->x[i]), w, to->sum[v]);
}

/* One row's product asks for what its stream of weights holds this many bytes on, once a cache line: two small pages, about what memory takes to answer.
 * Without it a thread gets less than half; 1, 4 and 12 KiB ahead gave less (docs/SPEED.md). */
enum { STREAM_AHEAD = 8192 };

/* Lines belong to 16 outputs: where a panel takes several vectors the first asks for all. */
INLINE void ask_ahead(const void *at, int v, const bool store) {
  if (!store && (LANES >= HD_PANEL || v == 0)) __builtin_prefetch((const char *)at + STREAM_AHEAD);
}

/* Kinds of codes: their bits, or LOOKUP. */
enum { LOOKUP = 0 };

/* Code j of eight, from words already shifted so that the first of the eight lies in the low bits. */
INLINE vf code_of(const int kind, vi nibbles, vi pairs, vi bits, const int j) {
  if (kind == LOOKUP) return v_lookup(v_shift(nibbles, 4 * j), hd_iq4_values);
  if (kind == 4) return v_nibble(v_shift(nibbles, 4 * j));
  if (kind == 2) return v_float(v_and(v_shift(pairs, 2 * j), 3));
  if (kind == 3) return v_float(v_or(v_and(v_shift(pairs, 2 * j), 3), v_and(v_shift(bits, j - 2), 4)));
  vi low = v_and(v_shift(nibbles, 4 * j), 15);
  return v_float(v_or(low, kind == 5 ? v_and(v_shift(bits, j - 4), 16) : v_and(v_shift(pairs, 2 * j - 4), 48)));
}

/* Eight inputs, the k-th eight of a unit whose codes begin at `codes`; i counts from the walk's first. */
INLINE void walk_eight(walk *to, const unsigned char *codes, int k, const vf *scale, const vf *minimum, int64_t i, const int kind,
                       const bool store) {
  const bool has_nibbles = kind == LOOKUP || (kind >= 4 && kind < 8), has_pairs = kind == 2 || kind == 3 || kind == 6;
  vi nibbles[WALK_VECTORS], pairs[WALK_VECTORS], bits[WALK_VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < WALK_VECTORS; v++) {
    const uint32_t *word = (const uint32_t *)(codes + to->offset[WALK_PANEL(v)]) + to->lane + WALK_LANE(v);
    nibbles[v] = pairs[v] = bits[v] = v_load_u32(word);
    if (has_nibbles) nibbles[v] = v_load_u32(word + k * HD_PANEL);
    if (has_nibbles) ask_ahead(word + k * HD_PANEL, v, store);
    if (has_nibbles) word += 4 * HD_PANEL;
    if (has_pairs) pairs[v] = v_shift_by(v_load_u32(word + k / 2 * HD_PANEL), k % 2 * 16);
    if (has_pairs) word += 2 * HD_PANEL;
    if (kind == 3 || kind == 5) bits[v] = v_shift_by(v_load_u32(word), 8 * k);
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++)
#pragma GCC unroll 4
    for (int v = 0; v < WALK_VECTORS; v++) {
      const int8_t *bytes = (const int8_t *)codes + to->offset[WALK_PANEL(v)] + (8 * k + j) * HD_PANEL + to->lane + WALK_LANE(v);
      if (kind == 8 && j % 4 == 0) ask_ahead(bytes, v, store);
      vf code = kind == 8 ? v_load_i8(bytes) : code_of(kind, nibbles[v], pairs[v], bits[v], j);
      take(to, i + j, v, v_fma(scale[v], code, minimum[v]), store);
    }
}

/* The 32 inputs of one unit; d and m are the block's halves as f32. */
INLINE void walk_unit(walk *to, const hd_quant *q, const unsigned char *unit, const vf *d, const vf *m, int64_t i, const int kind,
                      const bool store) {
  const int groups = HD_QUANT_UNIT / q->group;
  const unsigned char *codes = unit + (q->integer ? groups * HD_PANEL * (q->minimum ? 2 : 1) : 0);
#pragma GCC unroll 1
  for (int g = 0; g < groups; g++) {
    vf scale[WALK_VECTORS], minimum[WALK_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < WALK_VECTORS; v++) {
      const int8_t *integers = (const int8_t *)unit + to->offset[WALK_PANEL(v)] + g * HD_PANEL + to->lane + WALK_LANE(v);
      scale[v] = q->integer ? v_mul(d[v], v_load_i8(integers)) : d[v];
      if (!q->minimum) minimum[v] = v_mul(scale[v], v_set((float)-q->offset));
      else minimum[v] = q->integer ? v_mul(m[v], v_load_i8(integers + groups * HD_PANEL)) : m[v];
    }
#pragma GCC unroll 1
    for (int k = g * q->group / 8; k < (g + 1) * q->group / 8; k++) walk_eight(to, codes, k, scale, minimum, i + 8 * k, kind, store);
  }
}

INLINE void walk_quantised(walk *to, const int kind, const bool store) {
  const hd_quant *q = &hd_quants[to->storage];
  const int64_t block = q->integer ? HD_QUANT_BLOCK : HD_QUANT_UNIT;
  const int heads = 2 * HD_PANEL * (q->minimum ? 2 : 1);
  const int unit_bytes =
      HD_PANEL * (q->integer ? HD_QUANT_UNIT / q->group * (q->minimum ? 2 : 1) : 0) + q->bits * HD_QUANT_UNIT / 8 * HD_PANEL;
  for (int64_t i = 0; i < to->inputs;) {
    const unsigned char *head = to->panel + (to->from + i) / block * to->step;
    int64_t first = (to->from + i) % block / HD_QUANT_UNIT, last = HD_MIN(block / HD_QUANT_UNIT, first + (to->inputs - i) / HD_QUANT_UNIT);
    vf d[WALK_VECTORS], m[WALK_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < WALK_VECTORS; v++) {
      const uint16_t *halves = (const uint16_t *)(head + to->offset[WALK_PANEL(v)]) + to->lane + WALK_LANE(v);
      d[v] = v_load_f16(halves);
      m[v] = q->minimum ? v_load_f16(halves + HD_PANEL) : d[v];
    }
    for (int64_t unit = first; unit < last; unit++, i += HD_QUANT_UNIT)
      walk_unit(to, q, head + heads + unit * unit_bytes, d, m, i, kind, store);
  }
}

INLINE void walk_plain(walk *to, const hd_storage storage, const bool store) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < to->inputs; i++)
#pragma GCC unroll 4
    for (int v = 0; v < WALK_VECTORS; v++) {
      const unsigned char *at = to->panel + to->offset[WALK_PANEL(v)] + (to->from + i) * to->step;
      int place = to->lane + WALK_LANE(v);
      if (storage == HD_F32 || v % 2 == 0) ask_ahead(at, v, store);
      vf w = storage == HD_F16    ? v_load_f16((const uint16_t *)at + place)
             : storage == HD_BF16 ? v_load_bf16((const uint16_t *)at + place)
                                  : v_load((const float *)at + place);
      take(to, i, v, w, store);
    }
}

INLINE void walk_weights(walk *given, const bool store) {
  walk to = *given; // a copy that lives in registers
  if (!hd_quants[to.storage].bits) {
    if (to.storage == HD_F16) walk_plain(&to, HD_F16, store);
    else if (to.storage == HD_BF16) walk_plain(&to, HD_BF16, store);
    else walk_plain(&to, HD_F32, store);
  } else {
    switch (hd_quants[to.storage].lookup ? LOOKUP : hd_quants[to.storage].bits) {
    case LOOKUP: walk_quantised(&to, LOOKUP, store); break;
    case 2: walk_quantised(&to, 2, store); break;
    case 3: walk_quantised(&to, 3, store); break;
    case 4: walk_quantised(&to, 4, store); break;
    case 5: walk_quantised(&to, 5, store); break;
    case 6: walk_quantised(&to, 6, store); break;
    case 8: walk_quantised(&to, 8, store); break;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < WALK_VECTORS; v++) given->sum[v] = to.sum[v];
}

/* The walk that begins at `panel` and lane 0, of panels before `end`. */
INLINE walk walk_of(const hd_panels *p, int64_t panel, int64_t end, int64_t from, int64_t inputs) {
  walk to = {.storage = p->storage,
             .panel = p->data + hd_panel_offset(p, panel),
             .step = hd_panels_together(p, panel) * p->block_bytes,
             .from = from,
             .inputs = inputs};
  for (int i = 0; i < WALK_PANELS; i++) {
    int64_t place = HD_MIN(i, end - 1 - panel);
    to.offset[i] = place * p->block_bytes;
    to.slab_offset[i] = place * inputs * HD_PANEL;
  }
  for (int v = 0; v < WALK_VECTORS; v++) to.sum[v] = v_set(0.0f);
  return to;
}

void KERNEL(unpack)(const hd_panels *p, int64_t panel, int64_t count, int64_t from, int64_t inputs, float *w) {
  for (int64_t first = panel; first < panel + count; first += WALK_PANELS)
    for (int lane = 0; lane < HD_PANEL; lane += WALK_VECTORS * LANES) {
      walk to = walk_of(p, first, panel + count, from, inputs);
      to.lane = lane;
      to.slab = w + (first - panel) * inputs * HD_PANEL;
      walk_weights(&to, true);
    }
}

void KERNEL(multiply_row)(const hd_panels *p, int64_t panel, int64_t count, const float *x, float *y) {
  for (int64_t first = panel; first < panel + count; first += WALK_PANELS)
    for (int lane = 0; lane < HD_PANEL; lane += WALK_VECTORS * LANES) {
      walk to = walk_of(p, first, panel + count, 0, p->inputs);
      to.lane = lane;
      to.x = x;
      walk_weights(&to, false);
      for (int v = 0; v < WALK_VECTORS; v++)
        if (first + WALK_PANEL(v) < panel + count) v_store(y + (first - panel) * HD_PANEL + lane + v * LANES, to.sum[v]);
    }
}
