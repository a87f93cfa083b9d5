/* kernels.h: the table of kernels that each instruction set level fills, and the plain structs they work on.
 *
 * Kernels know nothing of views, patterns or threads: they get pointers, strides and counts that are already checked. Bodies are written once (body_*.h) on the
 * vector operations of vec_*.h and compiled once a level (level_*.c). All levels give the same bits: lanes are independent rows, and where lanes must meet (sums
 * along a row) they follow one tree of 16 logical lanes. */
#ifndef HD_KERNELS_H
#define HD_KERNELS_H

#include "../base/base.h"

#include <float.h>
#include <math.h>
#include "../base/philox.h"
#include "../base/storage.h"

/* Keys are taken in tiles of 64 at absolute positions, and tiles are grouped in chunks of 1024 keys (contract 17). */
/* Up to HD_DECODE_ROWS rows that share their keys have a kernel of their own. */
enum { HD_KEY_TILE = 64, HD_KEY_CHUNK = 1024, HD_QUERY_CELL = 16, HD_MAX_LANES = 64, HD_DECODE_ROWS = 4 };

/* Scores live in units of log2 e, so that the softmax needs exp2 and no multiplication. */
#define HD_LOG2E 1.4426950408889634
#define HD_LN2   0.6931471805599453

/* Query rows in lanes. All arrays have `lanes` (a multiple of the level's vector) floats a row. A row's state is a maximum m, a sum l of exp2(s − m) and the numerators
 * o = Σ exp2(s − m) v, for the chunk of keys under way and for the chunks before it. m is only raised when a score exceeds it by more than 8, so
 * that most tiles rescale nothing; exp2(s − m) then stays below 2^8. */
typedef struct hd_attn_block {
  int64_t d, dv;
  int lanes;
  uint64_t used;                      /* bit i: lane i holds a query */
  int shift;                          /* lane 0 is bit `shift` of the tile's visible words and column `shift` of its bias */
  const float *q;                     /* [d][lanes], scaled by scale · log2 e; unused lanes 0 */
  const uint32_t *q_pairs;            /* in place of q for a tile of bf16 rows: [d / 2][lanes] two columns a word, not scaled */
  float q_scale;                      /* then, scale · log2 e */
  float *o, *m, *l;                   /* the chunk under way: [dv][lanes], [lanes], [lanes] */
  float *total_o, *total_m, *total_l; /* the chunks before it */
  bool merged;                        /* there are such: else the totals hold nothing yet, not even zeros */
  uint64_t seen;                      /* bit i: lane i has seen a key */
} hd_attn_block;

/* The log-sum-exp of a row, in natural units, from its maximum in log2 units and its sum. */
static inline float hd_attn_lse(float m, float l) { return (float)(((double)m + log2((double)l)) * HD_LN2); }

/* Rows of floats that a later call will read or write, asked for from outer caches bit by bit while a product runs, two arrays a product. rows 0: none. */
typedef struct hd_ahead {
  const float *at;
  int64_t stride, columns;
  int rows;
  int lot; /* kernels: rows a register tile */
} hd_ahead;
enum { HD_AHEAD = 2 };

/* At most 64 keys and values, rows contiguous, and what the block's queries may see of them. */
typedef struct hd_attn_tile {
  const float *k, *v;
  const uint16_t *k_bf16, *v_bf16; /* instead of them, on a level that takes bf16: the rows as they lie */
  uint32_t *v_pairs;               /* then, scratch [32][dv] */
  int64_t k_stride, v_stride;      /* elements from key to key */
  int keys;
  const uint64_t *visible; /* [keys] one bit a query of the tile, or NULL: every query sees every key */
  const float *bias;       /* [keys][bias_stride] in natural units, or NULL */
  int64_t bias_stride;
  float softcap;  /* in log2 units; 0: none */
  int64_t stride; /* of the scratch that follows: the lanes of every block of the tile */
  float *scores;  /* scratch [64][stride]; a block works in columns from its shift on */
  float *slope;   /* backward: scratch for what softcap does to a gradient, or NULL */
  bool watched; /* forward: a value that is not finite may reach who does not see it, since the caller looks at the totals and goes back */
  bool scored;  /* scores holds the products already, in log2 units; backward then leaves dq alone */
  const uint64_t *kept; /* as visible: what dropout keeps, or NULL where there is none */
  float keep_factor;    /* 1 / (1 − dropout) */
  const float *factors; /* [keys][stride]: what multiplies the weights after that, or NULL */
  /* For each product: of attn_tile two, of attn_backward_lanes three, of attn_backward_keys one. */
  hd_ahead ahead[3][HD_AHEAD];
} hd_attn_tile;

/* Which pairs dropout keeps: for each query lane its row and its head (counted over the batch), for keys [key, key + keys), at most one tile. */
typedef struct hd_attn_dropout {
  uint64_t seed;
  uint32_t stream, last_dropped; /* a word up to last_dropped drops its pair */
  int64_t key;
  int keys, lanes;
  uint32_t query[HD_MAX_LANES], head[HD_MAX_LANES];
} hd_attn_dropout;

/* What `last_dropped` is for a probability. */
static inline uint32_t hd_last_dropped(double dropout) {
  double words = ceil(dropout * 0x1p32);
  return words < 1 ? 0 : (uint32_t)(words - 1);
}

/* Pairs of LSH attention: at most 64 rows as queries and at most 64 as keys, with their positions and, for each round so far, the chunk they were in. */
typedef struct hd_lsh_pairs {
  int lanes, keys, rounds;
  bool causal;
  const uint32_t *query, *key;          /* [64] */
  const float *query_chunk, *key_chunk; /* [rounds][64] */
} hd_lsh_pairs;

/* Which elements of an array dropout keeps, and what it multiplies them by. A counter of Philox serves four elements of a block of 64: i, i + 16, i + 32, i + 48. */
enum { HD_DROPOUT_BLOCK = 64 };
typedef struct hd_dropout {
  uint64_t seed;
  uint32_t stream, last_dropped;
  float factor;
  int64_t block;   /* of the first element */
  bool accumulate; /* add to what out holds */
} hd_dropout;

/* Rows of at most 64 keys as they lie in memory: row i's numbers are neighbours at data + i · stride bytes, of type F32, F16, BF16 or Q8_0. A row of Q8_0 is its codes plus HD_CODE_ZERO,
 * as bytes, filled up to whole blocks of 32; the scale of its block b is scale[64 b + i], and a vector of halves may be read there whatever i is. */
enum { HD_CODE_ZERO = 128 };
typedef struct hd_stored {
  const void *data;
  int64_t stride;
  hd_storage type;
  const uint16_t *scale; /* Q8_0 only */
} hd_stored;

/* At most 64 keys and values that every row of a block sees. */
typedef struct hd_decode_tile {
  hd_stored k, v;
  int keys;
  float *scores;  /* scratch [rows][64] */
  hd_stored next; /* the keys after these, which are only asked for ahead of time */
  int next_keys;
} hd_decode_tile;

/* A weight matrix in panels of 16 outputs (matrix.h). A block of a panel is, of a plain type, one input [16]; of a quantised type (quant.h), one block of the file's type:
 *   the halves d [16], and m [16] where a minimum is stored; then per 32 inputs, as far as the type has them:
 *   integer scales and integer minima, int8 [32 / group][16] each;
 *   codes: bits 0–3 as words [4][16] of 8 inputs, two bits as words [2][16] of 16 inputs, one bit as words [1][16] of 32 inputs; 8-bit codes as bytes [32][16].
 * A word belongs to one output, its lowest bits to the first input. So one load feeds 16 outputs, and the panels are as large as the file's rows.
 * Four neighbouring panels (or as many as are left) lie together, block by block in turn: a row's product reads 64 outputs as one stream, which is what memory gives fastest. */
enum { HD_PANEL = 16, HD_GROUP = 4 * HD_PANEL, HD_QUANT_UNIT = 32 };
typedef struct hd_panels {
  const unsigned char *data;
  hd_storage storage; /* not F64 */
  int64_t inputs, panels;
  int64_t block_bytes;  /* of one block of one panel */
  int64_t block_inputs; /* 1, 32 or 256 */
} hd_panels;

/* Panels that lie together with this one, itself included. */
static inline int64_t hd_panels_together(const hd_panels *p, int64_t panel) {
  const int64_t group = HD_GROUP / HD_PANEL;
  return HD_MIN(group, p->panels - panel / group * group);
}

/* Where a panel's first block lies, from data, and how far on its next: hd_panels_together times block_bytes. */
static inline int64_t hd_panel_offset(const hd_panels *p, int64_t panel) {
  const int64_t group = HD_GROUP / HD_PANEL;
  return (panel / group * group * (p->inputs / p->block_inputs) + panel % group) * p->block_bytes;
}

/* A rectangle of stored numbers: f32, f16 or bf16, element (r, c) at r · row_stride + c · column_stride elements; strides may be zero or negative. */
typedef struct hd_rectangle {
  void *data;
  heed_type type;
  int64_t row_stride, column_stride;
} hd_rectangle;

/* y[r][o] (+)= Σ_i x[r][i] w[o][i] for one group of at most HD_GROUP outputs and any number of inputs and rows. */
typedef struct hd_product {
  const float *x;
  int64_t x_stride, rows;
  const float *w;   /* [panel][input][16], or packed weights as they lie, [input][panel][16] */
  int64_t w_stride; /* floats from panel to panel */
  int64_t w_step;   /* floats from input to input; other than 16 only where the kernels take whole groups */
  int64_t inputs;
  bool first;        /* chains begin at +0, otherwise at what y holds */
  const float *bias; /* [outputs], added at the end, or NULL */
  float *y;
  int64_t y_stride;
  int outputs;      /* 1 to HD_GROUP; y beyond them is not touched */
  const void *next; /* what comes after this product, asked for meanwhile; NULL: nothing is known */
  int64_t next_bytes;
} hd_product;

/* What act(x) · gate gives back to x and gate. */
typedef struct hd_activation_gradient {
  heed_activation kind;
  const float *x, *gate, *dy; /* gate NULL: act(x) alone */
  float *dx, *dgate;
  bool accumulate; /* add to what dx and dgate hold */
} hd_activation_gradient;

/* What backward needs of a block besides: gradients of its rows. block's o, m, l and totals are not used. */
typedef struct hd_attn_gradient {
  hd_attn_block block;
  const float *dout;  /* [dv][lanes] */
  const float *lse;   /* [lanes] of the forward pass, in log2 units */
  const float *delta; /* [lanes] rowsum(dout ∘ out) */
  float *dq;          /* [d][lanes] Σ dS K, scaled when all keys are in; NULL: not wanted */
} hd_attn_gradient;

/* What the softmax of a row needs: its largest element m (NaN passed over, at least −FLT_MAX), Σ e^(x − m) and Σ x. */
typedef struct hd_softmax_sums {
  float maximum;
  double sum, total;
} hd_softmax_sums;

/* The gradients of rows y = x̂ · weight (+ bias) with x̂ = (x − kept[r][0]) · kept[r][1], as rms_norm and layer_norm keep them. */
typedef struct hd_norm_gradient {
  int64_t rows, columns;
  const float *x, *dy, *kept;
  const float *weight;    /* or NULL */
  bool centered;          /* the mean was taken off: layer_norm */
  bool accumulate;        /* dx is added to */
  float *dx;              /* or NULL */
  float *dweight, *dbias; /* [columns], added to, rows ascending; or NULL */
} hd_norm_gradient;

/* One step of AdamW on numbers p with gradients g and moments m, v:
 *   g' = gradient · g      m += rest1 (g' − m)      v = beta2 v + rest2 g'²      p = keep · p − rate · m / (√v · second + epsilon) */
typedef struct hd_adamw {
  float gradient, rest1, beta2, rest2, second, epsilon, rate, keep;
} hd_adamw;

/* One step of gradient descent: g' = gradient · g + decay · p, then m = momentum · m + g' and p −= rate · m, or without m: p −= rate · g'. */
typedef struct hd_sgd {
  float gradient, decay, momentum, rate;
} hd_sgd;

/* What an additive score compares: the rows x of a tile's queries and of its keys (tile->k), and e^2x, so that a pair costs no exponential. Where both rows hold an x beyond
 * ±HD_ADDITIVE_NEAR, e^2x may not be what it should although their sum is small: such a pair is far. */
#define HD_ADDITIVE_NEAR 33.0f
typedef struct hd_additive {
  int64_t columns;          /* a multiple of 16, with x = 0 in those that are too many */
  const float *w;           /* [columns] */
  int count;                /* of queries */
  const float *const *rows; /* [count] the queries' x */
  const float *q, *k;       /* e^2x: [count][columns], [keys][columns] */
  const uint64_t *far;      /* [keys] bit i: the pair with query i is far; NULL: none is */
} hd_additive;

/* One step of a gated recurrent unit for one row (Cho et al. 2014; gates in PyTorch's order r, z, n). */
typedef struct hd_gru {
  const float *x, *h;  /* [3][n] what input and state give to the gates, biases included */
  const float *before; /* [n] the state */
  float *kept;         /* [5][n] r, z, n, h's part of n, the state; or NULL */
  float *out;          /* [n] the new state; may be before */
} hd_gru;
typedef struct hd_gru_gradient {
  const float *kept, *dy; /* dy [n]: what reaches the new state besides dh */
  float *dh;              /* [n] of the new state; becomes that of the old one, without what comes back through the gates */
  float *dx, *dgates;     /* [3][n] of what input and state gave */
} hd_gru_gradient;

/* y = from + x · w for matrices that lie in near caches: x(r, i) at x + r · x_row + i · x_input, w [inputs] rows of `columns` floats and y (and from, if given) likewise, all with room for whole
 * vectors. Of a triangle row r takes inputs up to r or from r on only, or only its columns up to r are wanted and others become anything. */
typedef struct hd_asking { /* rows that are read or written later, of which each product asks for some */
  int next, count;
  hd_ahead rows[8];
} hd_asking;
typedef enum hd_triangle { HD_WHOLE, HD_INPUTS_TO_ROW, HD_INPUTS_FROM_ROW, HD_COLUMNS_TO_ROW } hd_triangle;
typedef struct hd_rows_product {
  int64_t rows, columns, inputs;
  const float *x;
  int64_t x_row, x_input;
  const float *w;
  int64_t w_stride;
  const float *from; /* chains begin here, or at +0 where NULL; may be y */
  float *y;
  int64_t y_stride; /* of from too */
  hd_triangle triangle;
  hd_asking *asking; /* or NULL */
  const struct hd_rows_product *
      then; /* another product, of as many rows and columns, that the chains go on with; only its x, w, inputs and triangle count. Or NULL */
} hd_rows_product;

/* Rows of linear attention are divided by z_r = Σ_c y[r][c] z[c] + Σ_{j ≤ r} a[r][j] + epsilon, which goes to total[r]; where it is below FLT_MIN, the row becomes 0. */
typedef struct hd_normalising {
  int64_t rows, features, columns; /* features and columns: multiples of 16 */
  const float *y, *z, *a;          /* a NULL: no such sum */
  int64_t y_stride, a_stride;
  float epsilon;
  float *o, *total;
  int64_t o_stride;
} hd_normalising;

/* One token of linear attention whose state [features][columns], rows `stride` apart, is changed by a rule: gated (gate[r] a row, or NULL), then u = v, or β (v − stateᵀ k) with `delta`, then state += k uᵀ;
 * out[h] = scale · stateᵀ q[h]. Columns are a multiple of 16. */
typedef struct hd_rule_step {
  int64_t features, columns, stride, heads;
  const float *gate, *k, *v, *q;
  int64_t q_stride;
  bool delta;
  float beta, scale;
  float *state;
  float *out;
  int64_t out_stride;
} hd_rule_step;

/* The gradients of a step whose `state` is the one before it, and is not changed; its out is not used. */
typedef struct hd_rule_gradient {
  const hd_rule_step *step;
  const float *dout;                       /* [heads], scaled, out_stride apart */
  float *dstate;                           /* of the state behind the token; becomes that of the state before it */
  float *dk, *dgate;                       /* [features]; dgate with respect to the logarithm of the gate */
  float *dv;                               /* [columns] */
  float *written, *back, *dwritten, *rest; /* scratch [columns]: u, −β du (0 without delta), du, v − stateᵀ k */
} hd_rule_gradient;

/* Every kernel: X(return type, name, parameters). One line expands to a member of hd_kernels, to the declaration of hd_<name>__<level> in each level and to that
 * level's table entry, so a level that forgets one does not compile.
 *   attn_tile      adds one tile of keys to a block
 *   attn_scores    only the scores of a tile, after softcap and bias, hidden pairs −inf, into tile->scores
 *   attn_merge     merges the chunk into the total and begins a new one
 *   attn_finite    whether the block's totals are finite
 *   attn_finish    divides by the sum; rows that saw nothing become 0. lse[i] (natural units) unless NULL
 *   attn_decode_tile  the same as attn_tile for 1 to HD_DECODE_ROWS rows (block->lanes) that see every key, with no bias or softcap and a state row by row:
 *                  q [rows][d], o and total_o [rows][dv]; `seen` stays as it is
 *   attn_decode_merge  as attn_merge, for any number of rows
 *   read_rows      stored rows as f32: out [keys][columns]
 *   attn_backward_lanes  P into tile->scores, dS into ds [64][stride], dS K onto dq, for one block
 *   attn_backward_keys   out[key][c] += Σ over the tile's queries, ascending, of p[key][query] queries[query][c]; columns a multiple of 16
 *   additive_row     out = e^2x, as far as HD_ADDITIVE_NEAR makes it matter; returns the largest |x|, NaN passed over; columns a multiple of 16
 *   additive_scores  Σ_c w[c] tanh(query[c] + key[c]) of the pairs that are visible into tile->scores, 0 elsewhere
 *   additive_gradients  for those pairs, with t the tangent and g = ds[key][query] w[c] (1 − t²): dq[query][c] += g, keys ascending, dk[key][c] += g and dw[key][c] += ds[key][query] t,
 *                  queries ascending
 *   attn_kept      kept[key]: bit i where dropout keeps the pair of lane i; other bits are anything
 *   to_lanes       dst[c][r] = scale · rows[r][c] for r < count, 0 for count ≤ r < lanes
 *   from_lanes     rows[r][c] = src[c][r]
 *   widen          n stored numbers (HEED_F16 or HEED_BF16) to f32
 *   narrow         n f32 to HEED_F16 or HEED_BF16, rounded to nearest even, the bits of hd_element_store
 *   row_max        the largest element, NaN passed over; −inf for n = 0
 *   row_exp2       row[i] = exp2(row[i] − maximum); returns the sum
 *   row_scale      row[i] *= factor
 *   gather         dst[r][c] = the rectangle's numbers as f32; where columns are no multiple of the vector, dst has room for the rest of it, which becomes 0
 *   multiply       one hd_product
 *   multiply_row   y[panel][16] = the product of one row x with whole panels, straight from what is packed
 *   unpack         w [panel][input][16] of inputs [from, from + inputs) (multiples of 32 for quantised types)
 *   rms_norm       out = x / sqrt(mean(x²) + epsilon) · weight; weight may be NULL, out may be x. kept, unless NULL, gets 0 and 1 / sqrt(...)
 *   layer_norm     out = (x − mean) / sqrt(variance + epsilon) · weight + bias; weight and bias may be NULL, out may be x. kept, unless NULL, gets mean and 1 / sqrt(...)
 *   activate       out = act(x) · gate; gate may be NULL, out may be x or gate
 *   activate_backward  dx (+)= dy · gate · act'(x), dgate (+)= dy · act(x)
 *   add            out = a + b; out may be a or b
 *   mul            out (+)= a · b, here and below (+)= meaning: added to what is there where `accumulate`
 *   scale          out (+)= factor · x
 *   dropout        out (+)= factor · x where the element is kept, 0 elsewhere; out may be x
 *   sum            Σ x, by the tree of 16 lanes
 *   sum_rows       out[c] (+)= Σ_r x[r][c], r ascending, n columns
 *   rotate         turns pair p of a head by the angle with cosine c[p] and sine s[p]: (a, b) → (a c − b s, b c + a s). A pair is elements 2p and 2p + 1 where
 *                  interleaved (GGUF llama), otherwise p and pairs + p (Hugging Face)
 *   gru            one hd_gru
 *   gru_backward   one hd_gru_gradient
 *   blend          out[c] += Σ_r w[r] x[r][c], r ascending, n columns
 *   compare        out[r] = Σ_c y[c] x[r][c], by the tree of 16 lanes
 *   softmax_sums   of one row, in one pass over memory
 *   softmax_terms  out (+)= factor · e^(x − maximum) + offset; out may be x
 *   softmax_backward      dx (+)= y (dy − Σ y dy)
 *   log_softmax           out = (x − maximum) − log_sum
 *   log_softmax_backward  dx (+)= dy − e^y Σ dy
 *   norm_backward  rows of one hd_norm_gradient
 *   sum_squares    Σ x², in double from sums of short blocks; not finite only where an x is not
 *   adamw          one hd_adamw on n numbers
 *   sgd            one hd_sgd on n numbers; m may be NULL
 *   multiply_rows  one hd_rows_product
 *   features       out = elu(x) + 1, or max(x, 0); out may be x
 *   features_backward  dx = dy · slope, from the features y; dx may be dy
 *   dots           out[r] = Σ_c a[r][c] b[r][c], by the tree of 16 lanes; n and stride of both are multiples of 16
 *   weigh_rows     x[r][c] *= weight[r], and 0 where that is 0; n is a multiple of 16
 *   normalise      one hd_normalising
 *   rule_step      one hd_rule_step
 *   rule_backward  one hd_rule_gradient
 *   lsh_buckets    for 64 rows in lanes, y [half][64]: bucket[i] is the first c with the largest |y[c][i]|, plus half where y is negative there; 0 where all are 0 or NaN
 *   lsh_pairs      visible[key]: bit i where query i, if causal, comes after the key, and no round so far had the pair: chunks are neither equal nor the key's the one before
 *   peak           rounds of `peak_flops` multiply-adds with no memory (machine measurement); returns something that depends on them
 *   read           sums n floats (a multiple of 256) as fast as memory gives them */
#define HD_KERNEL_LIST(X)                                                                                                                  \
  X(void, attn_tile, (hd_attn_block * block, const hd_attn_tile *tile))                                                                    \
  X(void, attn_scores, (const hd_attn_block *block, const hd_attn_tile *tile))                                                             \
  X(void, attn_merge, (hd_attn_block * block))                                                                                             \
  X(bool, attn_finite, (const hd_attn_block *block))                                                                                       \
  X(void, attn_finish, (hd_attn_block * block, float *lse))                                                                                \
  X(void, attn_decode_tile, (hd_attn_block * block, const hd_decode_tile *tile))                                                           \
  X(void, read_rows, (const hd_stored *rows, int keys, int64_t columns, float *out))                                                       \
  X(void, attn_decode_merge, (hd_attn_block * block))                                                                                      \
  X(void, attn_backward_lanes, (const hd_attn_gradient *g, const hd_attn_tile *tile, float *ds))                                           \
  X(void, attn_backward_keys,                                                                                                              \
    (const hd_attn_tile *tile, const float *p, int count, const float *const *queries, int64_t columns, float *out))                       \
  X(float, additive_row, (const float *x, int64_t columns, float *out))                                                                    \
  X(void, additive_scores, (const hd_additive *pairs, const hd_attn_tile *tile))                                                           \
  X(void, additive_gradients, (const hd_additive *pairs, const hd_attn_tile *tile, const float *ds, float *dq, float *dk, float *dw))      \
  X(void, attn_kept, (const hd_attn_dropout *dropout, uint64_t *kept))                                                                     \
  X(void, to_lanes, (const float *const *rows, int count, int64_t columns, float scale, float *dst, int lanes))                            \
  X(void, from_lanes, (const float *src, int lanes, int count, int64_t columns, float *const *rows))                                       \
  X(void, widen, (const uint16_t *src, heed_type type, int64_t n, float *dst))                                                             \
  X(void, narrow, (const float *src, int64_t n, heed_type type, uint16_t *dst))                                                            \
  X(float, row_max, (const float *row, int64_t n))                                                                                         \
  X(float, row_exp2, (float *row, int64_t n, float maximum))                                                                               \
  X(void, row_scale, (float *row, int64_t n, float factor))                                                                                \
  X(void, gather, (const hd_rectangle *from, int64_t rows, int64_t columns, float *dst, int64_t dst_stride))                               \
  X(void, multiply, (const hd_product *product))                                                                                           \
  X(void, multiply_row, (const hd_panels *panels, int64_t panel, int64_t count, const float *x, float *y))                                 \
  X(void, unpack, (const hd_panels *panels, int64_t panel, int64_t count, int64_t from, int64_t inputs, float *w))                         \
  X(void, rms_norm, (const float *x, const float *weight, int64_t n, float epsilon, float *out, float *kept))                              \
  X(void, layer_norm, (const float *x, const float *weight, const float *bias, int64_t n, float epsilon, float *out, float *kept))         \
  X(void, activate, (heed_activation kind, const float *x, const float *gate, int64_t n, float *out))                                      \
  X(void, activate_backward, (const hd_activation_gradient *gradient, int64_t n))                                                          \
  X(void, add, (const float *a, const float *b, int64_t n, float *out))                                                                    \
  X(void, mul, (const float *a, const float *b, int64_t n, bool accumulate, float *out))                                                   \
  X(void, scale, (const float *x, float factor, int64_t n, bool accumulate, float *out))                                                   \
  X(void, dropout, (const hd_dropout *dropout, const float *x, int64_t n, float *out))                                                     \
  X(float, sum, (const float *x, int64_t n))                                                                                               \
  X(void, sum_rows, (const float *x, int64_t rows, int64_t stride, int64_t n, bool accumulate, float *out))                                \
  X(void, rotate, (float *head, const float *c, const float *s, int64_t pairs, bool interleaved))                                          \
  X(void, gru, (const hd_gru *cell, int64_t n))                                                                                            \
  X(void, gru_backward, (const hd_gru_gradient *g, int64_t n))                                                                             \
  X(void, blend, (const float *w, const float *x, int64_t rows, int64_t stride, int64_t n, float *out))                                    \
  X(void, compare, (const float *y, const float *x, int64_t rows, int64_t stride, int64_t n, float *out))                                  \
  X(void, softmax_sums, (const float *x, int64_t n, hd_softmax_sums *out))                                                                 \
  X(void, softmax_terms, (const float *x, int64_t n, float maximum, float factor, float offset, bool accumulate, float *out))              \
  X(void, softmax_backward, (const float *y, const float *dy, int64_t n, bool accumulate, float *dx))                                      \
  X(void, log_softmax, (const float *x, int64_t n, float maximum, float log_sum, float *out))                                              \
  X(void, log_softmax_backward, (const float *y, const float *dy, int64_t n, bool accumulate, float *dx))                                  \
  X(void, norm_backward, (const hd_norm_gradient *g))                                                                                      \
  X(double, sum_squares, (const float *x, int64_t n))                                                                                      \
  X(void, adamw, (const hd_adamw *step, int64_t n, const float *g, float *m, float *v, float *p))                                          \
  X(void, sgd, (const hd_sgd *step, int64_t n, const float *g, float *m, float *p))                                                        \
  X(void, multiply_rows, (const hd_rows_product *product))                                                                                 \
  X(void, features, (bool elu, const float *x, int64_t n, float *out))                                                                     \
  X(void, features_backward, (bool elu, const float *y, const float *dy, int64_t n, float *dx))                                            \
  X(void, dots, (const float *a, const float *b, int64_t rows, int64_t stride, int64_t n, float *out))                                     \
  X(void, weigh_rows, (const float *weight, int64_t rows, int64_t stride, int64_t n, float *x))                                            \
  X(void, normalise, (const hd_normalising *rows))                                                                                         \
  X(void, rule_step, (const hd_rule_step *step))                                                                                           \
  X(void, rule_backward, (const hd_rule_gradient *gradient))                                                                               \
  X(void, lsh_buckets, (const float *y, int64_t half, float *bucket))                                                                      \
  X(void, lsh_pairs, (const hd_lsh_pairs *pairs, uint64_t *visible))                                                                       \
  X(float, peak, (int64_t rounds))                                                                                                         \
  X(float, read, (const float *data, int64_t n))

typedef struct hd_kernels {
#define HD_KERNEL_MEMBER(type, name, parameters) type(*name) parameters;
  HD_KERNEL_LIST(HD_KERNEL_MEMBER)
#undef HD_KERNEL_MEMBER
  int vector;        /* lanes of one vector */
  bool takes_bf16;   /* attn_tile takes rows of bf16 as they lie */
  int block_lanes;   /* query lanes of a full block */
  int tile_lanes;    /* query lanes that share a tile of keys: whole blocks, at most HD_MAX_LANES */
  bool whole_groups; /* multiply takes all outputs of a group at once, so that packed weights of f32 may be read as they lie */
  double peak_flops; /* floating-point operations of one round of `peak` */
} hd_kernels;

/* Rows [d][lanes] of numbers that are exact in bf16, d even, as q_pairs in the same place. */
void hd_pair_columns(float *rows, int64_t d, int64_t lanes);

/* The context's table; static. */
const hd_kernels *hd_kernels_of(const heed_context *context);

#endif
