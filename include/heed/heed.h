/* heed.h: the core of libheed: attention on views of arrays. Status, context and views themselves are in types.h.
 *
 * heed computes exact attention without storing the matrix of weights. This header needs no other part of the library:
 * src/base, src/kern and src/attn alone implement it. Conventions that hold for every header of heed:
 *   - a call that can fail returns heed_status; HEED_OK is 0, and heed_error(context) then holds one sentence with the shapes;
 *   - an illegal request is refused before any output is touched;
 *   - objects come in _new / _free pairs, _free(NULL) is allowed; a returned const pointer is borrowed and says for how long;
 *   - a description is a plain struct whose zero is the sensible default and whose first field is its own size (left 0, it is refused; a shorter one, of an
 *     older header, leaves the rest at its default; of a longer one the part that this version does not know must be 0, else HEED_E_UNSUPPORTED);
 *   - one context belongs to one caller thread at a time; objects that say "immutable" may be shared between contexts.
 * Before version 1.0 the binary interface may change with every minor version; the SONAME says so. */
#ifndef HEED_HEED_H
#define HEED_HEED_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- attention ---------------------------------------------------------------------------------------------------------- */

/* Which key position query 0 stands at: causal, windows and every positional term share it. START: 0 ("top-left"). END: keys − queries, or
 * key length − queries where the batch entry has a key length ("bottom-right"). GIVEN: offset, or offsets[batch]. UNSET is accepted where
 * nothing depends on it or START and END agree; otherwise the call is refused. With packed documents all this holds within each document. */
typedef enum heed_align { HEED_ALIGN_UNSET, HEED_ALIGN_START, HEED_ALIGN_END, HEED_ALIGN_GIVEN } heed_align;

/* How a query and a key make a score a(q, k), before scale, softcap and everything else.
 *   DOT       q · k: the default, also where no heed_score is given
 *   ADDITIVE  w_vᵀ tanh(W_q q + W_k k), with wq [h,d_q], wk [h,d_k], wv [h] (Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", 2015)
 *   BILINEAR  qᵀ W k, with wq = W [d_q,d_k] (Luong, Pham, Manning, "Effective Approaches to Attention-based Neural Machine Translation", 2015, "general")
 *   CALLBACK  what the caller computes
 *   XL        (q + u) · k + (q + v) · r_δ with δ = p − j, the distance from the key to the query's position, u = content [H,d], v = position [H,d] and r = distances [H,P,d]; row m is of
 *             δ = first_distance + m, and the first and the last row are of everything beyond, too (Dai et al., "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", 2019)
 * d_q and d_k may differ, except for DOT and XL. Weights are f32, f16 or bf16, shared by all heads but for those of XL. Projections of queries and keys take (n + m) · h floats a head, XL's queries n · 2d; no array has n · m elements. */
typedef enum heed_score_kind {
  HEED_SCORE_DOT,
  HEED_SCORE_ADDITIVE,
  HEED_SCORE_BILINEAR,
  HEED_SCORE_CALLBACK,
  HEED_SCORE_XL
} heed_score_kind;

/* Queries [query, query + queries) and keys [key, key + keys) of one batch entry and query head, at most 64 of each, as f32. */
typedef struct heed_score_tile {
  int64_t batch, head, query, key;
  int queries, keys;
  int64_t d_q, d_k;
  const float *const *q; /* [queries] rows of d_q */
  const float *const *k; /* [keys] rows of d_k */
} heed_score_tile;

/* Fills scores [queries][keys]. Must give a pair the same number whatever tile it comes in. Pairs that are hidden are asked for too; their numbers are not looked at. */
typedef void (*heed_score_callback)(void *user, const heed_score_tile *tile, float *scores);
/* Adds the gradients of queries and keys to dq [queries] rows and dk [keys] rows, given dscores [queries][keys], which is 0 for hidden pairs: their queries and keys may hold anything, so pass them over. */
typedef void (*heed_score_gradient)(void *user, const heed_score_tile *tile, const float *dscores, float *const *dq, float *const *dk);

typedef struct heed_score {
  size_t size; /* sizeof (heed_score) */
  heed_score_kind kind;
  const heed_view *wq, *wk, *wv;
  heed_score_callback scores;    /* both are called from several threads at once */
  heed_score_gradient gradients; /* NULL: heed_attention_backward refuses */
  void *user;
  const heed_view *content, *position, *distances; /* of XL, any strides */
  int64_t first_distance;
} heed_score;

/* Queries [query, query + queries) and keys [key, key + keys) of one batch entry and query head, at most 64 of each. */
typedef struct heed_pair_tile {
  int64_t batch, head, query, key;
  int queries, keys;
} heed_pair_tile;

/* Fills factors [queries][keys] with what multiplies the weights of these pairs after the softmax; called from several threads at once. A pair must get the same number whatever tile it
 * comes in. Pairs that are hidden are asked for too; their numbers are not looked at. */
typedef void (*heed_weight_factors)(void *user, const heed_pair_tile *tile, float *factors);

/* Who may look at whom, as a tree of plain structs that stay the caller's. A query at position p (see heed_align) sees these keys j:
 *   WINDOW        p − left ≤ j ≤ p + right
 *   DILATED       p + i · dilation, −left ≤ i ≤ right: a window of every dilation-th key (Beltagy, Peters, Cohan, "Longformer", 2020)
 *   GLOBAL        global tokens see every key, and every query sees them: the first `count`, or the `count` ones that `tokens` names, ascending ("Longformer")
 *   PREFIX        j < count or j ≤ p: a prefix that all see, then causal (Raffel et al., "Exploring the Limits of Transfer Learning", 2020); takes the place of `causal`
 *   RANGES        lists in CSR form: query i sees the keys [begin[t], end[t]) of row_begin[i] ≤ t < row_begin[i + 1]
 *   BLOCKS        the same for blocks of `block` queries × `block` keys: block i of queries sees the blocks of keys begin[t]
 *   STRIDED       |p − j| < stride, or p − j a multiple of stride (Child et al., "Generating Long Sequences with Sparse Transformers", 2019)
 *   FIXED         ⌊j / stride⌋ = ⌊p / stride⌋, or j mod stride ≥ stride − columns (as STRIDED)
 *   LOGSPARSE     |p − j| ≤ left, or |p − j| − left a power of 2; with restart only where ⌊j / restart⌋ = ⌊p / restart⌋ (Li et al., "Enhancing the Locality and Breaking the
 *                 Memory Bottleneck of Transformer on Time Series Forecasting", 2019)
 *   TREE          with positions counted from 1, i = p + 1: i, ⌊i / 2⌋ and 2i, with both_children 2i + 1 too
 *   BIGBIRD       in blocks of `block` tokens: the first `count` see all and are seen by all; a block sees those at most `left` before and `right` behind it, and `random` others, different
 *                 ones, drawn for each head (Zaheer et al., "Big Bird", 2020). Where the call is causal they are drawn among the blocks before it
 *   UNION         what any of the `parts` shows       INTERSECTION  what all of them show
 * Packed documents count positions and keys each from their own first, save in RANGES and BLOCKS, whose rows and keys are those of the call. Sides of windows may be as large as
 * one likes. Nothing is seen twice: the pairs of a union count once. */
typedef enum heed_pattern_kind {
  HEED_PATTERN_WINDOW,
  HEED_PATTERN_DILATED,
  HEED_PATTERN_GLOBAL,
  HEED_PATTERN_PREFIX,
  HEED_PATTERN_RANGES,
  HEED_PATTERN_BLOCKS,
  HEED_PATTERN_STRIDED,
  HEED_PATTERN_FIXED,
  HEED_PATTERN_LOGSPARSE,
  HEED_PATTERN_TREE,
  HEED_PATTERN_BIGBIRD,
  HEED_PATTERN_UNION,
  HEED_PATTERN_INTERSECTION
} heed_pattern_kind;

typedef struct heed_pattern {
  size_t size; /* sizeof (heed_pattern), in every part */
  heed_pattern_kind kind;
  int64_t left, right;      /* 0 and more: keys, dilated keys or blocks on either side */
  int64_t dilation;         /* at least 1 */
  const int64_t *dilations; /* [H], one a head, instead of dilation; NULL: none */
  int64_t count;            /* tokens, or blocks of them */
  const int64_t *tokens;    /* [count], or NULL: the first ones */
  const int64_t *counts;    /* [B]: the prefix of each batch entry, instead of count; NULL: none */
  int64_t stride, columns;  /* stride at least 1, columns 0 to stride */
  bool columns_only;        /* STRIDED, FIXED: leave out the part around the query, where layers or heads take turns */
  bool both_children;       /* TREE */
  int64_t restart;          /* 0: none */
  int64_t block;            /* tokens in a block, at least 1; those of BLOCKS divide queries and keys */
  int64_t random;           /* 0 to 64 */
  uint64_t seed;            /* of the random blocks */
  int64_t lists;            /* RANGES, BLOCKS: 0 or 1: all heads share them; H: row_begin has the rows of one head after those of another */
  const int64_t *row_begin; /* [rows of all lists + 1], from 0, never falling */
  const int64_t *begin, *end;             /* ascending within a row and apart from each other, in [0, m] */
  int64_t parts;                          /* UNION, INTERSECTION: at least 1, at most 8 levels deep */
  const struct heed_pattern *const *part; /* [parts] */
} heed_pattern;

/* Whether a pattern can be meant for sequences of so many tokens and these heads: everything that a call refuses, and what a call with fewer tokens does with all the same: a stride or a
 * restart longer than them, more random blocks than there are, blocks of BIGBIRD that do not divide them. HEED_E_ARGUMENT, HEED_E_SHAPE. */
HEED_API heed_status heed_pattern_check(heed_context *context, const heed_pattern *pattern, int64_t heads, int64_t tokens);

/* A pattern from text: KIND:NUMBER:... with + for union, & for intersection, which binds tighter, and parentheses: "window:256+global:4". Kinds are
 *   full  causal  window:LEFT[:RIGHT]  dilated:LEFT:DILATION[:RIGHT]  global:TOKENS  prefix:KEYS  strided:STRIDE[:columns]  fixed:STRIDE:COLUMNS[:summary]  logsparse[:WINDOW[:RESTART]]
 *   tree[:both]  bigbird:BLOCK:WINDOW:GLOBAL:RANDOM[:SEED]
 * RIGHT is LEFT unless it is given, "all" is a side without an end, DILATION may be a number a head ("1,1,4,4"), TOKENS several ones named ("0,17,30"); the last words leave out all but the
 * columns. To be freed by heed_pattern_free, also after the context. HEED_E_ARGUMENT, HEED_E_MEMORY: *out is NULL. */
HEED_API heed_status heed_pattern_parse(heed_context *context, const char *text, heed_pattern **out);
HEED_API void heed_pattern_free(heed_pattern *pattern);

/* What attention means in one call: score × visibility × normaliser.
 *   s_ij = scale · a(q_i, k_j), which is q_i · k_j unless `score` says otherwise;  s = softcap · tanh(s / softcap) if softcap > 0;  s += bias_ij − slope · |p_i − j| + relative[bucket(j − p_i)];  softmax over the visible keys, and the sink
 *   if there is one;  dropout;  factors;  · V
 * With p_i = i + offset (see heed_align), key j is visible to query i iff every restriction asked for allows it:
 *   causal: j ≤ p_i · window: p_i − window_left ≤ j ≤ p_i + window_right · key_lengths: j < key_lengths[b] · documents: i and j belong to the same one ·
 *   attend: true there · bias > −inf · pattern: it shows the pair.
 * A query that sees no key gets output 0 and lse −inf. Memory that no query may see changes no bit of the result. */
typedef struct heed_attention {
  size_t size; /* sizeof (heed_attention) */
  bool causal;
  bool has_scale;       /* otherwise scale is 1/sqrt(d_k), and 1 where score is neither DOT nor XL */
  bool has_window_left; /* an absent side is unlimited */
  bool has_window_right;
  double scale;        /* 0 (the mean of V) and negative values are legal */
  double softcap;      /* 0: none */
  int64_t window_left; /* keys before the query's own position; 0 is legal */
  int64_t window_right;
  heed_align align;
  int64_t offset;             /* with HEED_ALIGN_GIVEN, unless offsets is given */
  const int64_t *offsets;     /* [B] or NULL */
  const int64_t *key_lengths; /* [B] or NULL; each in [0, m] */
  /* HEED_BOOL or HEED_U8 [n,m], [H,n,m] or [B,H,n,m], any dimension 1; true = may look. (PyTorch's MultiheadAttention key_padding_mask means the
   * opposite.) NULL: none */
  const heed_view *attend;
  const heed_view *bias; /* f32, f64, f16 or bf16, shapes as attend; −inf hides a pair exactly as attend does. NULL: none */

  /* [H], f32, f64, f16 or bf16: slopes of ALiBi (Press, Smith, Lewis, "Train Short, Test Long", 2022); positions count as for causal. NULL: none */
  const heed_view *alibi;
  /* [H], types as alibi: a learned score a head, in natural units, that joins every row's sum and adds nothing to its output, so that a row's weights may sum to less than 1;
   * lse then counts it. NULL: none. (Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024; gpt-oss.) */
  const heed_view *sink;

  /* Several documents packed into one row of tokens: document t holds queries [query_documents[t], query_documents[t + 1]) and keys likewise, the same in every batch
   * entry. [documents + 1] numbers from 0 to n, and to m, never falling; an empty document is legal. key_documents NULL: as query_documents. */
  int64_t documents; /* 0: not packed */
  const int64_t *query_documents, *key_documents;

  /* Weights are dropped with this probability and those kept divided by 1 − dropout; 0: none, 1: all. Which ones depends on seed, stream (layers take different ones), batch entry, head,
   * query and key alone: Philox4x32-10 with key seed and counter (key / 4, query, batch · H + head, stream), word key mod 4, dropped iff word < dropout · 2^32. */
  double dropout;
  uint64_t seed;
  uint32_t stream;

  const heed_score *score; /* NULL: the dot product */

  /* [buckets, H], types as alibi: what learned relative positions add to the score, a row for each bucket of distances j − p_i, positions counted as for causal (Raffel et al., "Exploring the
   * Limits of Transfer Learning", 2020). NULL: none. Of the buckets (at least 4, even, of which keys ahead have the second half, or at least 2 with relative_causal, where keys ahead have bucket 0),
   * the first half holds one distance each, the rest distances of logarithmically growing range, and the last one all from relative_distance on, which is greater than that half. */
  const heed_view *relative;
  bool relative_causal;
  int64_t relative_distance;

  const heed_pattern *pattern; /* NULL: none */

  /* What weights are multiplied by once they are normalised: a row of products need not sum to 1, and lse knows nothing of them. They are constants to the gradients. NULL: none */
  heed_weight_factors factors;
  void *factors_user;
} heed_attention;

/* Further outputs; NULL: not asked. */
typedef struct heed_attention_extras {
  size_t size;          /* sizeof (heed_attention_extras) */
  const heed_view *lse; /* f32 (f64 from the reference) [B,H,n]: log of the sum of exp(s_ij) over the visible keys (and the sink) */
} heed_attention_extras;

/* out = softmax(scores over visible keys) · v, one row per (batch, head, query). Accumulation is f32.
 * q [B,H,n,d], k [B,Hkv,m,d], v [B,Hkv,m,dv], out [B,H,n,dv]; rank 2 means one head, rank 3 [H,n,d], leading dimensions beyond the head are batch; H is
 * a multiple of Hkv and head h reads key/value head h / (H/Hkv). q, k, v: f32, f16 or bf16, any strides; out f32, f16 or bf16.
 * out may be q's own memory (same type and strides); any other overlap of an output with an input is refused. a may be NULL (plain attention).
 * The bits of a row depend on nothing but that row: not on threads, batch, chunking or level.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP, HEED_E_OVERFLOW, HEED_E_MEMORY: out is untouched. HEED_E_CANCELLED (progress "attention"): some rows
 * of out are written. */
HEED_API heed_status heed_attention_forward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                            const heed_view *v, const heed_view *out, const heed_attention_extras *extras);

/* The same formula, naively, in double precision, with O(m) memory a thread and no kernels: the oracle. Every array may be f64 too; out must not be q. Errors as
 * heed_attention_forward, but it is not cancelled. */
HEED_API heed_status heed_attention_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                              const heed_view *v, const heed_view *out, const heed_attention_extras *extras);

/* Where gradients go; a NULL one is not computed. Each has the shape of its input; f32, f16 or bf16 (f64 too from the reference), any strides. */
typedef struct heed_attention_gradients {
  size_t size; /* sizeof (heed_attention_gradients) */
  const heed_view *dq, *dk, *dv;
  const heed_view *dbias;                             /* summed over the dimensions that the bias broadcasts */
  const heed_view *dsink;                             /* summed over batch and queries */
  const heed_view *dwq, *dwk, *dwv;                   /* of the score's weights, f32 (f64 too from the reference) */
  const heed_view *drelative;                         /* summed over batch and the pairs of a bucket */
  const heed_view *dcontent, *dposition, *ddistances; /* of the score's, summed over batch and queries, and over the pairs of a distance */
} heed_attention_gradients;

/* The gradients of a loss whose gradient with respect to out is dout, from what forward was given and gave: q, k, v, out and lse (f32). The weights are rebuilt
 * tile by tile. dk and dv sum over the query heads of a group in f32. A query that sees no key has dq = 0 and adds nothing.
 * Bits do not depend on threads. Extra memory O(n · (d + dv)) for the query heads of each key/value head under way, at most one more than there are threads.
 * There are no derivatives of these gradients: attention is differentiated once, and a request for more is HEED_E_UNSUPPORTED (see the sizes of descriptions above).
 * Errors as heed_attention_forward; gradients must not overlap anything. With an additive, bilinear or XL score, or drelative, HEED_E_MEMORY may come when some gradients are written. Source: Dao et al., FlashAttention, 2022, appendix B. */
HEED_API heed_status heed_attention_backward(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                             const heed_view *v, const heed_view *out, const heed_view *lse, const heed_view *dout,
                                             const heed_attention_gradients *gradients);

/* The same gradients by the naive formula in double precision: the oracle. Everything may be f64; out and lse are not needed, they are found anew. */
HEED_API heed_status heed_attention_backward_reference(heed_context *context, const heed_attention *a, const heed_view *q,
                                                       const heed_view *k, const heed_view *v, const heed_view *dout,
                                                       const heed_attention_gradients *gradients);

/* Where a row of the matrix is looked at on its way from q·k to the weights. */
typedef enum heed_tap {
  HEED_TAP_WEIGHTS, /* after the softmax: hidden keys get exactly 0, a row sums to 1 (less with a sink) or, where it sees nothing, is all 0 */
  HEED_TAP_SCORES, /* scale · (q·k) of every pair: who may see whom is not asked, so these two read hidden keys too */
  HEED_TAP_CAPPED, /* after the softcap, of every pair */
  HEED_TAP_BIASED, /* what the softmax sees: after bias and ALiBi, hidden keys −inf */
  HEED_TAP_DROPPED /* the weights after dropout and factors: what multiplies the values */
} heed_tap;

/* Which rows of the matrix, in which order. Zero: the weights of all of them. */
typedef struct heed_attention_rows {
  size_t size; /* sizeof (heed_attention_rows) */
  heed_tap tap;
  int64_t n_heads;      /* as many as `heads` names; without it 0 or H */
  int64_t n_rows;       /* as many as `rows` names; without it 0 or n */
  const int64_t *heads; /* [n_heads] query heads, or NULL: all H */
  const int64_t *rows;  /* [n_rows] query rows of every batch entry and head, or NULL: all n */
} heed_attention_rows;

/* Exact rows of the matrix that forward never stores: weights [B, heads asked for, rows asked for, m], f32, f16 or bf16, any strides. Each row uses its own maximum and sum.
 * asked may be NULL (the weights of every row). Errors as heed_attention_forward. */
HEED_API heed_status heed_attention_weights(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                            const heed_attention_rows *asked, const heed_view *weights);

/* The same by the naive formula in double precision: the oracle. Everything may be f64. */
HEED_API heed_status heed_attention_weights_reference(heed_context *context, const heed_attention *a, const heed_view *q,
                                                      const heed_view *k, const heed_attention_rows *asked, const heed_view *weights);

/* The slopes of ALiBi for any number of heads, as its authors choose them: of H = 2^k heads 2^(−8 (h + 1) / H); of other numbers those of the largest such below, then every other one of
 * twice as many. An encoder's attention takes them as they are: |p − j| is the same to both sides. HEED_E_ARGUMENT. */
HEED_API heed_status heed_alibi_slopes(heed_context *context, int64_t heads, double *slopes);

/* What is added to embeddings for a position p (Vaswani et al., "Attention Is All You Need", 2017, section 3.5): pair i is sin and cos of p · theta^(−2i/width). */
typedef struct heed_sinusoid {
  size_t size;  /* sizeof (heed_sinusoid) */
  double theta; /* 0: 10000 */
  bool
      interleaved; /* pairs (2i, 2i + 1), as in the paper; otherwise all sines, then all cosines. Of an odd width the last sine has no cosine */
  bool
      closed; /* the last of the width/2 frequencies is 1/theta itself, not a step short of it (tensor2tensor); of an odd width the last number is 0. Not interleaved */
  int64_t offset; /* of the first row's position */
} heed_sinusoid;
/* out [n,width], f32 (f64, f16 or bf16), any strides: row i is of position i + offset. Angles in double. sinusoid may be NULL. HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT. */
HEED_API heed_status heed_sinusoid_rows(heed_context *context, const heed_sinusoid *sinusoid, const heed_view *out);

/* How the frequencies of rotary positions are made, and reach beyond the context that a model has learned. Pair i of r/2 turns by f_i = theta^(−2i/r) a position; then
 *   LINEAR   f_i / factor (Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation", 2023)
 *   DYNAMIC  theta becomes theta · (factor · n / context − (factor − 1))^(r/(r − 2)) for a length n beyond the context ("NTK-aware")
 *   YARN     f_i for pairs that turn more than `fast` times within the context, f_i / factor for those that turn less than `slow` times, between them a ramp over i; cosines and
 *            sines are multiplied by the attention factor, 0.1 ln(factor) + 1 (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023)
 *   LLAMA3   the same two, between them a ramp over turns, and no factor (Dubey et al., "The Llama 3 Herd of Models", 2024) */
typedef enum heed_rope_kind { HEED_ROPE_PLAIN, HEED_ROPE_LINEAR, HEED_ROPE_DYNAMIC, HEED_ROPE_YARN, HEED_ROPE_LLAMA3 } heed_rope_kind;

typedef struct heed_rope_scaling {
  size_t size; /* sizeof (heed_rope_scaling) */
  heed_rope_kind kind;
  double theta;            /* 0: 10000 */
  double factor;           /* above 0; DYNAMIC: 1 and more */
  int64_t context;         /* positions the model has learned with; all but LINEAR */
  int64_t length;          /* DYNAMIC: of what is attended to; up to the context nothing changes */
  double fast, slow;       /* turns within the context, slow below fast; 0: YARN 32 and 1, LLAMA3 4 and 1 */
  double attention_factor; /* YARN; 0: by the formula */
  double magnitude,
      magnitude_all; /* YARN: where both are given the factor is (0.1 · magnitude · ln(factor) + 1) / (0.1 · magnitude_all · ln(factor) + 1) */
  bool unrounded; /* YARN: the ramp's ends are not rounded to whole pairs */
} heed_rope_scaling;

/* frequency [rotary_dim/2] in ascending i, and the attention factor (1 but for YARN; NULL: not asked). scaling may be NULL (plain). HEED_E_ARGUMENT, HEED_E_SHAPE (an odd width): nothing is written. */
HEED_API heed_status heed_rope_frequencies(heed_context *context, const heed_rope_scaling *scaling, int64_t rotary_dim, double *frequency,
                                           double *attention_factor);

/* Rotary positions: row at position p has pair i of its first r numbers turned by the angle p · theta^(−2i/r) / factors[i], so that q·k depends on positions only through their
 * difference. Zero: pairs (i, i + r/2), all of the row, theta 10000, row i at position i. (Su et al., "RoFormer", 2021.) */
typedef struct heed_rope {
  size_t size;                /* sizeof (heed_rope) */
  bool interleaved;           /* pairs (2i, 2i + 1), as in the paper and GGUF's llama; otherwise (i, i + r/2), as in Hugging Face models */
  bool inverse;               /* turn back: undoes the rotation, and is its backward pass (dx from dout) */
  int64_t rotary_dim;         /* r: leading numbers of a row that turn, even, the others stay; 0: all */
  int64_t offset;             /* added to every position: row i stands at i + offset, or at positions + offset */
  const heed_view *positions; /* i32 or i64 [n] or [B,n], any dimension 1; NULL: the row's own number */
  double theta;               /* 0: 10000 */
  const heed_view *factors;   /* [r/2] f32, f64, f16 or bf16, above 0: what each frequency is divided by (scaled contexts); NULL: 1 */

  /* Tables instead of theta, factors and scaling, types as factors, both or neither: [P,r/2] by position, which must lie in [0, P), or [B,n,r/2] (B may be 1) by row, then without
   * positions and offset. A scale of attention may be multiplied into them. */
  const heed_view *cosine, *sine;

  const heed_rope_scaling *scaling; /* instead of theta; factors divide its frequencies too. NULL: none */
} heed_rope;

/* out = x turned. x and out [B,H,n,d], ranks as for attention, any strides, f32, f16 or bf16 each; out may be x's own memory (same type and strides). The turn is
 * computed in f32, angles in double. Rows of contiguous f32 with f32 tables need no memory; otherwise a row a thread. rope may be NULL.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP, HEED_E_OVERFLOW, HEED_E_MEMORY: out is untouched. */
HEED_API heed_status heed_rope_apply(heed_context *context, const heed_rope *rope, const heed_view *x, const heed_view *out);

/* The same by its definition in double precision: the oracle. x and out may be f64. */
HEED_API heed_status heed_rope_reference(heed_context *context, const heed_rope *rope, const heed_view *x, const heed_view *out);

/* What forward would do, in counts that do not depend on the machine's speed. q, k, v as for forward; their numbers are not read. Errors as heed_attention_forward. */
typedef struct heed_plan {
  size_t size;           /* sizeof (heed_plan) */
  int64_t visible_pairs; /* (query, key) pairs that are visible, over batch and heads; masks and biases are read for it */
  int64_t tiles;         /* cells of 16 queries × 64 keys in all */
  int64_t full_tiles;    /* every pair visible: no mask is looked at */
  int64_t partial_tiles; /* some pairs visible */
  double flops;          /* 2 (d + dv) for each pair of a cell that is not empty */
  const char *kernel;    /* static name of the kernel that runs */
} heed_plan;
HEED_API heed_status heed_attention_explain_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                                 const heed_view *v, heed_plan *plan);

/* The visibility of a call as the boolean array that would say the same: visible [B,H,n,m], HEED_BOOL or HEED_U8. q and k as for forward; their numbers are not read. Errors as
 * heed_attention_forward. */
HEED_API heed_status heed_attention_visible(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                            const heed_view *visible);

/* ---- keys and values that are kept --------------------------------------------------------------------------------------- */

/* How a cache stores numbers. Q8_0: blocks of 32 along a row (the last may be shorter), each a half-precision scale, the largest magnitude / 127, and a signed byte a number, as
 * GGUF's q8_0. A block that holds a number that is not finite, or larger than 127 times what a half holds, reads as NaN. */
typedef enum heed_cache_type { HEED_CACHE_F32, HEED_CACHE_F16, HEED_CACHE_BF16, HEED_CACHE_Q8_0 } heed_cache_type;

HEED_API const char *heed_cache_type_name(heed_cache_type type); /* "f32", "f16", "bf16", "q8_0" */

/* What a cache holds: `sequences` lists of keys [kv_heads, length, d] and values [kv_heads, length, dv], empty at first, each of its own length. */
typedef struct heed_cache_spec {
  size_t size;       /* sizeof (heed_cache_spec) */
  int64_t sequences; /* at least 1 */
  int64_t kv_heads;  /* at least 1 */
  int64_t d, dv;     /* widths of a key and of a value: any, 0 too */
  heed_cache_type type;
  /* 0: everything is kept. Otherwise a ring: the last `keep` keys of a sequence are kept for sure, older ones make room (by pages of 64), and neither memory nor time depends on how many there
   * have been. A window needs keep ≥ window_left + the queries of one call. Positions go on counting from the sequence's first key. */
  int64_t keep;
  int64_t most_keys; /* the length that no sequence may pass; 0: none */
} heed_cache_spec;

/* Keys and values of sequences, in pages of 64 keys that never move: growing copies nothing, and sequences may share pages. A cache belongs to its context, which must outlive
 * it and whose thread rule holds; what is given up is used again, and memory goes back with the cache. */
typedef struct heed_cache heed_cache;

/* HEED_E_ARGUMENT, HEED_E_TYPE, HEED_E_OVERFLOW, HEED_E_MEMORY; *out is NULL on error. */
HEED_API heed_status heed_cache_new(heed_context *context, const heed_cache_spec *spec, heed_cache **out);
HEED_API void heed_cache_free(heed_cache *cache);

/* Keys that a sequence has had in all, and the first of them that is still there (0 unless the cache is a ring); −1 for a cache or sequence that is not. */
HEED_API int64_t heed_cache_length(const heed_cache *cache, int64_t sequence);
HEED_API int64_t heed_cache_first(const heed_cache *cache, int64_t sequence);

/* Adds t keys and values at the end of a sequence: k [kv_heads,t,d], v [kv_heads,t,dv] (rank 2 where there is one head), f32, f16 or bf16, any strides, rounded to the cache's type.
 * HEED_E_ARGUMENT (unknown sequence, beyond most_keys), HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERFLOW, HEED_E_MEMORY: nothing is changed. */
HEED_API heed_status heed_cache_append(heed_cache *cache, int64_t sequence, const heed_view *k, const heed_view *v);

/* Puts t keys and values in the place of keys [begin, begin + t), rounded as heed_cache_append does; k or v NULL: that side stays. Who shares a page with the sequence keeps what it had.
 * HEED_E_ARGUMENT (unknown sequence, keys that are not there), HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERFLOW, HEED_E_MEMORY: nothing is changed. */
HEED_API heed_status heed_cache_write(heed_cache *cache, int64_t sequence, int64_t begin, const heed_view *k, const heed_view *v);

/* Forgets the keys from `length` on, which lies between heed_cache_first and heed_cache_length. HEED_E_ARGUMENT. */
HEED_API heed_status heed_cache_truncate(heed_cache *cache, int64_t sequence, int64_t length);

/* Makes `to`, whatever it held, the first `length` keys of `from`. They share their pages, until one of them appends: then it copies the last page, if that was not full.
 * HEED_E_ARGUMENT (unknown sequence, to = from, length as for truncate), HEED_E_MEMORY: nothing is changed. */
HEED_API heed_status heed_cache_fork(heed_cache *cache, int64_t from, int64_t length, int64_t to);

/* Keys [begin, begin + t) as they are stored, rounded: k [kv_heads,t,d], v [kv_heads,t,dv], f32, f16 or bf16, any strides; NULL: not asked. HEED_E_ARGUMENT (unknown sequence, keys that are not
 * there), HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP: nothing is written. */
HEED_API heed_status heed_cache_read(const heed_cache *cache, int64_t sequence, int64_t begin, const heed_view *k, const heed_view *v);

/* heed_attention_forward whose keys and values are sequences of a cache: batch entry b of q [B,H,n,d] reads sequence sequences[b] (NULL: b), out [B,H,n,dv]. align unset means END:
 * the queries are the last of each sequence, however long it is. m, for attend and bias, is the length of the longest; a key_lengths of the caller's must not pass the sequences' own.
 * The bits are those of heed_attention_forward on the same (rounded) keys and values. One or a few queries go through keys in chunks of 1,024, shared out over threads; extra memory
 * then O(m/1,024 · dv) for a head. Errors as heed_attention_forward, and HEED_E_ARGUMENT (unknown sequence; a query that may look at keys which a ring no longer has). */
HEED_API heed_status heed_attention_cached(heed_context *context, const heed_attention *a, const heed_view *q, const heed_cache *cache,
                                           const int64_t *sequences, const heed_view *out, const heed_attention_extras *extras);

/* heed_attention_explain_plan for heed_attention_cached. */
HEED_API heed_status heed_attention_cached_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_cache *cache,
                                                const int64_t *sequences, heed_plan *plan);

/* ---- linear attention --------------------------------------------------------------------------------------------------- */

/* What a query or key x of width d becomes before they meet: its features φ(x), of which there are f.
 *   ELU         elu(x) + 1, f = d (Katharopoulos et al., "Transformers are RNNs", 2020)
 *   RELU        max(x, 0), f = d
 *   IDENTITY    x, f = d
 *   POSITIVE    e^(w_r · x' − |x'|²/2) / √f for the F rows w_r of a projection, with x' = √scale x, f = F: where the rows are random, φ(q) · φ(k) is on average e^(scale q · k) (FAVOR+:
 *               Choromanski et al., "Rethinking Attention with Performers", 2021)
 *   HYPERBOLIC  e^(± w_r · x' − |x'|²/2) / √f, both signs of each row, f = 2F: less than half the mean squared error for the same rows (their lemma 2) */
typedef enum heed_features {
  HEED_FEATURES_ELU,
  HEED_FEATURES_RELU,
  HEED_FEATURES_IDENTITY,
  HEED_FEATURES_POSITIVE,
  HEED_FEATURES_HYPERBOLIC
} heed_features;

/* How a key k_t (its features) and value v_t change the state S [f,dv]. The three other than ADD need `causal` and `unnormalised`, and features of width d.
 *   ADD          S += k_t v_tᵀ
 *   GATED        S = diag(e^decay_t) S + k_t v_tᵀ
 *   DELTA        S += β_t k_t (v_t − Sᵀ k_t)ᵀ
 *   GATED_DELTA  S = diag(e^decay_t) S, then as DELTA */
typedef enum heed_linear_rule { HEED_RULE_ADD, HEED_RULE_GATED, HEED_RULE_DELTA, HEED_RULE_GATED_DELTA } heed_linear_rule;

/* What all keys so far amount to, for each batch entry and key/value head: sums S = Σ φ(k_j) v_jᵀ [B,Hkv,f,dv]; normaliser Σ φ(k_j) [B,Hkv,f], not with `unnormalised`; and with POSITIVE and
 * HYPERBOLIC exponent [B,Hkv]: sums and normaliser (of features without 1/√f) are then to be multiplied by 2^exponent, −inf before the first key. f32, f16 or bf16 (f64 too for the reference), any strides. */
typedef struct heed_linear_state {
  size_t size; /* sizeof (heed_linear_state) */
  const heed_view *sums, *normaliser, *exponent;
} heed_linear_state;

/* Linear attention: the weights of a row are products of features, so that keys and values can be summed up before a query meets them, and time is proportional to length.
 *   out_i = Σ_j a_ij v_j / (Σ_j a_ij + epsilon) with a_ij = φ(q_i) · φ(k_j), or without the division where `unnormalised`, over all keys j, or j ≤ i where `causal`: then there are as many queries as
 * keys, which follow those of the state `before`. A key beyond key_lengths or with attend false adds exactly 0, whatever it holds. Where the normaliser is below the smallest normal f32, the row is 0. */
typedef struct heed_linear_attention {
  size_t size; /* sizeof (heed_linear_attention) */
  heed_features features;
  heed_linear_rule rule;
  bool causal, unnormalised;
  bool has_scale;   /* otherwise scale is 1/sqrt(d) */
  bool has_epsilon; /* otherwise epsilon is 1e-6 with ELU and RELU, and 0 */
  double
      scale; /* above 0: POSITIVE, HYPERBOLIC: see heed_features. With the others it multiplies an unnormalised output, where any finite number is legal, and a normalised one must not name it */
  double epsilon;                  /* 0 or more; 0 with POSITIVE, HYPERBOLIC and `unnormalised` */
  const int64_t *key_lengths;      /* [B] or NULL; each in [0, m] */
  const heed_view *attend;         /* HEED_BOOL or HEED_U8 [m] or [B,m], B may be 1: true = the key counts. NULL: all do */
  const heed_view *projection;     /* f32 [F,d], F at least 1, of POSITIVE and HYPERBOLIC: see heed_linear_draw */
  const heed_view *decay;          /* of GATED and GATED_DELTA: [B,Hkv,m,f], or [B,Hkv,m,1] a number a key; ranks and types as k's */
  const heed_view *beta;           /* of DELTA and GATED_DELTA: [B,Hkv,m,1], or [B,1,m,1] for all heads */
  const heed_linear_state *before; /* the keys before these; NULL: there are none */
} heed_linear_attention;

/* Further outputs; NULL: not asked. */
typedef struct heed_linear_extras {
  size_t size; /* sizeof (heed_linear_extras) */
  const heed_view *
      lse; /* f32 (f64 from the reference) [B,H,n]: log of the normaliser, −inf where it vanishes; 0 with `unnormalised`. Backward needs it */
  const heed_linear_state *after; /* `before` and these keys; may be the same memory as `before` */
} heed_linear_extras;

/* f, the features of a row of width d; HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE. */
HEED_API heed_status heed_linear_width(heed_context *context, const heed_linear_attention *a, int64_t d, int64_t *features);

/* q [B,H,n,d], k [B,Hkv,m,d], v [B,Hkv,m,dv], out [B,H,n,dv]: ranks, heads, types and strides as for heed_attention_forward; out overlaps nothing. a may be NULL (ELU, every key).
 * Keys are taken 64 at a time: a row meets the keys of its own 64 one by one and those before them as a sum, in a fixed order, so that bits depend neither on threads nor batch nor level. They do
 * depend on where a sequence is cut into calls, within rounding. A later key changes no bit of an earlier row.
 * One token after another: n = m = 1 with `before` and `after`, at a cost that does not depend on how many there have been.
 * Extra memory: a few states [f,dv] and blocks of 512 rows a thread; without `causal` a state a key/value head, 16 MiB at most.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP, HEED_E_OVERFLOW, HEED_E_MEMORY: out is untouched. */
HEED_API heed_status heed_linear_forward(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                         const heed_view *v, const heed_view *out, const heed_linear_extras *extras);

/* The same formula pair by pair, or with other rules token by token, in double precision: the oracle. Everything but the projection may be f64. */
HEED_API heed_status heed_linear_reference(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                           const heed_view *v, const heed_view *out, const heed_linear_extras *extras);

/* Where gradients go; a NULL one is not computed. Each has the shape of its input; f32, f16 or bf16 (f64 too from the reference), any strides. */
typedef struct heed_linear_gradients {
  size_t size; /* sizeof (heed_linear_gradients) */
  const heed_view *dq, *dk, *dv, *ddecay, *dbeta;
} heed_linear_gradients;

/* The gradients of a loss whose gradient with respect to out is dout, from what forward was given and gave (out and lse may be NULL with `unnormalised`). The state before is a constant. dk and dv
 * sum over the query heads of a group. Masked keys get 0. Errors as heed_linear_forward; gradients must not overlap anything, and some may be written when HEED_E_MEMORY comes.
 * Extra memory as forward, a group's query heads together; with other rules than ADD a state for every 64th token of each head under way. */
HEED_API heed_status heed_linear_backward(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                          const heed_view *v, const heed_view *out, const heed_view *lse, const heed_view *dout,
                                          const heed_linear_gradients *gradients);

/* The same gradients in double precision: the oracle. */
HEED_API heed_status heed_linear_backward_reference(heed_context *context, const heed_linear_attention *a, const heed_view *q,
                                                    const heed_view *k, const heed_view *v, const heed_view *dout,
                                                    const heed_linear_gradients *gradients);

/* Rows for POSITIVE and HYPERBOLIC: normal numbers that depend on seed, stream and place alone. Each d rows are orthogonal, with lengths as independent rows would have, which lowers the error; with
 * `independent` they are not. A seed a training step draws anew. */
typedef struct heed_linear_draw_options {
  size_t size; /* sizeof (heed_linear_draw_options) */
  bool independent;
  uint64_t seed;
  uint32_t stream;
} heed_linear_draw_options;

/* projection f32 [F,d], F and d at least 1, any strides; options may be NULL. HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_MEMORY. */
HEED_API heed_status heed_linear_draw(heed_context *context, const heed_linear_draw_options *options, const heed_view *projection);

/* ---- LSH attention ------------------------------------------------------------------------------------------------------ */

/* Attention by locality-sensitive hashing (Kitaev, Kaiser, Levskaya, "Reformer", 2020). A row x of qk is a query and, as x / sqrt(|x|² + d · 10⁻⁶), a key. In each of `rounds` rounds rows go to buckets:
 * to the place of the largest number of [x R; −x R] for a random R; they are sorted by bucket, then position, and cut into chunks of 64. A row sees those of its chunk and of the chunk before, over
 * all rounds, each once: out is the exact softmax over their union. It does not see itself unless there is nothing else. So time is proportional to n · rounds. */
typedef struct heed_lsh_attention {
  size_t size;    /* sizeof (heed_lsh_attention) */
  bool causal;    /* a row sees earlier ones only */
  bool has_scale; /* otherwise scale is 1: keys have length 1 */
  double scale;   /* any finite number */
  int64_t rounds; /* 1 to 1024 */
  int64_t buckets
      [2]; /* each even; the second 0: one rotation a round, otherwise two whose buckets are combined, so that there are as many as the product, at most 2^24, for the cost of the sum.
                               * Both 0: about one bucket for 32 rows of n, a power of two, split in two where there are more than 64 */
  uint64_t seed; /* random numbers depend on seed, stream, round and place alone, and serve all heads */
  uint32_t stream;
  const int64_t *key_lengths; /* [B] or NULL; each in [0, n]. A row beyond is neither key nor query: out is 0 there, lse −inf */
  const heed_view *
      hashes; /* HEED_I32 [B,H,rounds,n], each in [0, number of buckets): buckets found elsewhere, as heed_lsh_hash gives them; NULL: find them */
} heed_lsh_attention;

/* The buckets of all rows, those beyond key_lengths included: hashes HEED_I32 [B,H,rounds,n]. Errors as heed_lsh_forward; a->hashes must be NULL. */
HEED_API heed_status heed_lsh_hash(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *hashes);

/* qk [B,H,n,d], v [B,H,n,dv], out [B,H,n,dv]: f32, f16 or bf16, any strides; d and dv at least 1. lse f32 [B,H,n] or NULL. Bits depend neither on threads nor level nor batch.
 * Extra memory: for the rows of one head, or of several up to 65,536, 8 bytes a round and 4 · (dv + 3); rotations; tiles a thread.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP, HEED_E_OVERFLOW, HEED_E_MEMORY: out is untouched. HEED_E_CANCELLED (progress "attention"): some heads are written. */
HEED_API heed_status heed_lsh_forward(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                                      const heed_view *out, const heed_view *lse);

/* The gradients of a loss whose gradient with respect to out is dout, from what forward was given and gave; NULL: not asked. The buckets are those of forward, and constants. dqk holds both what
 * reaches a row as a query and, through the length it is divided by, as a key. Extra memory: as forward with 4 · (d + dv + 3). Errors as heed_lsh_forward. */
HEED_API heed_status heed_lsh_backward(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                                       const heed_view *out, const heed_view *lse, const heed_view *dout, const heed_view *dqk,
                                       const heed_view *dv);

/* Both pair by pair in double precision: the oracles. Numbers may be f64 too. Without a->hashes buckets are found in double precision: a row whose two largest numbers are equal within rounding may
 * have another. */
HEED_API heed_status heed_lsh_reference(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                                        const heed_view *out, const heed_view *lse);
HEED_API heed_status heed_lsh_backward_reference(heed_context *context, const heed_lsh_attention *a, const heed_view *qk,
                                                 const heed_view *v, const heed_view *dout, const heed_view *dqk, const heed_view *dv);

/* ---- matrix product ----------------------------------------------------------------------------------------------------- */

/* How a product is meant; zero is plain c = a · b. */
typedef struct heed_gemm_form {
  size_t size;           /* sizeof (heed_gemm_form) */
  bool transpose_a;      /* a is [k,n] */
  bool transpose_b;      /* b is [m,k]: weights as layers store them, one row an output */
  bool accumulate;       /* c = c + a · b: chains begin at what c holds instead of 0 */
  const heed_view *bias; /* [m], f32, f16 or bf16, added to each row at the end; NULL: none */
} heed_gemm_form;

/* c = a · b (+ bias) for every entry of a batch: a [...,n,k], b [...,k,m], c [...,n,m]; f32, f16 or bf16 each, rank 2 to 6, any strides. The leading dimensions of a and b
 * broadcast from the right to those of c: they are c's, 1 or absent. form may be NULL (plain). k = 0 gives 0 (what c holds if accumulate), and the bias.
 * Each element is one chain of fused multiply-adds in f32 over ascending k, rounded to c's type at the end, so its bits depend on nothing but its row of a and
 * its column of b: not on the number of rows, batch, strides, the forms, threads or level. A layer's y = x · Wᵀ is transpose_b, its dx = dy · W plain, its dW = dyᵀ · x transpose_a.
 * Extra memory: about a megabyte a thread at most, two where c is not f32 with contiguous rows.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT (also elements of c that share memory), HEED_E_OVERLAP (c with a, b or bias), HEED_E_OVERFLOW, HEED_E_MEMORY: c is
 * untouched. */
HEED_API heed_status heed_gemm(heed_context *context, const heed_gemm_form *form, const heed_view *a, const heed_view *b,
                               const heed_view *c);

/* ---- the multi-head layer ----------------------------------------------------------------------------------------------- */

/* The layer of Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2: q = x_query · W_Qᵀ + b_q, k = x_key · W_Kᵀ + b_k and v = x_value · W_Vᵀ + b_v are cut into heads,
 * each head attends, and out = heads · W_Oᵀ + b_o. Weights are [outputs, inputs], one row an output, as PyTorch's Linear keeps them; a head's rows follow each other. Weights and
 * biases are f32, f16 or bf16 with any strides; a bias may be NULL. Nothing is kept between calls.
 * Either w_qkv holds the rows of W_Q, then W_K, then W_V (PyTorch's in_proj_weight), or the three are given. Projections that read the same input are one matrix product
 * where their weights, and their biases, lie one behind another in memory, packed or not; otherwise one product each, with the same bits. */
typedef struct heed_multi_head {
  size_t size;                      /* sizeof (heed_multi_head) */
  int64_t heads;                    /* H */
  int64_t kv_heads;                 /* Hkv; 0: H. H is a multiple of it: grouped queries, or with 1 "multi-query" */
  int64_t head_width;               /* d of a head's queries and keys; 0: the width of x_query / H */
  int64_t value_width;              /* dv of a head's values; 0: d */
  const heed_attention *attention;  /* what happens in a head: restrictions, bias, dropout of weights, ...; NULL: plain */
  const heed_view *w_qkv, *b_qkv;   /* [H·d + Hkv·d + Hkv·dv, inputs] and [the same]: all inputs have one width */
  const heed_view *w_q, *w_k, *w_v; /* [H·d, width of x_query], [Hkv·d, width of x_key], [Hkv·dv, width of x_value] */
  const heed_view *b_q, *b_k, *b_v; /* [rows of the weights] */
  const heed_view *w_o, *b_o;       /* [outputs, H·dv], [outputs] */

  /* Dropout of the output, by the rule for weights (see heed_attention) with counter (column / 4, query, batch, stream), word column mod 4. Seed and stream must not both be those of the
   * dropout of weights where both drop. */
  double dropout;
  uint64_t seed;
  uint32_t stream;

  /* Projections of their own for global tokens (Beltagy, Peters, Cohan, "Longformer", 2020, section 3.1), in self-attention: the first `global_tokens` rows ask with the queries of w_qkv_global and
   * meet keys and values that it makes of all rows, whatever `attention` hides by its pattern and window; the other rows are what they are without. As many as the pattern's global tokens;
   * more than there are rows: all. Not with attend, bias, sink, relative, documents, positions that do not begin with the first row, nor where weights are asked for: HEED_E_UNSUPPORTED. */
  int64_t global_tokens;                        /* 0: none */
  const heed_view *w_qkv_global, *b_qkv_global; /* as w_qkv and b_qkv */
} heed_multi_head;

/* Further outputs of the forward pass; NULL: not asked. */
typedef struct heed_multi_head_extras {
  size_t size; /* sizeof (heed_multi_head_extras) */
  const heed_view *
      saved; /* what backward needs: f32, contiguous, [heed_multi_head_saved_size or more]; the caller may use the same memory for every step */
  const heed_view *
      weights; /* as heed_attention_weights of the projected queries and keys gives them, before dropout: f32 [B, heads asked, rows asked, m] */
  const heed_attention_rows *rows; /* which weights; NULL: all */
} heed_multi_head_extras;

/* Floats that extras.saved has room for: projections, the output of the heads and the log-sum-exp, O(B · (n + m) · width). Errors as heed_multi_head_forward. */
HEED_API heed_status heed_multi_head_saved_size(heed_context *context, const heed_multi_head *layer, const heed_view *x_query,
                                                const heed_view *x_key, const heed_view *x_value, int64_t *floats);

/* x_query [B,n,width], x_key [B,m,width of keys], x_value [B,m,width of values], out [B,n,outputs]; rank 2 means one sequence; f32, f16 or bf16, any strides. x_key NULL: self-attention,
 * the keys are x_query's; x_value NULL: the values are the keys'. Projections are kept in f32. Without extras.saved they live in memory of the context's for the time of the call.
 * The rows of a sequence have the same bits alone and in any batch (but for dropout, which counts batch entries), on any threads and level.
 * HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_TYPE, HEED_E_LAYOUT, HEED_E_OVERLAP (an output with anything), HEED_E_OVERFLOW: nothing is touched. HEED_E_MEMORY, HEED_E_CANCELLED (progress
 * "attention"): out is untouched. */
HEED_API heed_status heed_multi_head_forward(heed_context *context, const heed_multi_head *layer, const heed_view *x_query,
                                             const heed_view *x_key, const heed_view *x_value, const heed_view *out,
                                             const heed_multi_head_extras *extras);

/* Where gradients go; a NULL one is not computed. Each has the shape of its input; f32, f16 or bf16 (f64 too from the reference), any strides. An input that was NULL has none of its own: what it
 * would be is in that of the input it stood for. Those of weights and biases come in the form that the weights have, packed or not. */
typedef struct heed_multi_head_gradients {
  size_t size;     /* sizeof (heed_multi_head_gradients) */
  bool accumulate; /* dw_* and db_* are added to what the arrays hold */
  const heed_view *dx_query, *dx_key, *dx_value;
  const heed_view *dw_qkv, *db_qkv;
  const heed_view *dw_q, *dw_k, *dw_v, *db_q, *db_k, *db_v;
  const heed_view *dw_o, *db_o;
  const heed_view *dbias, *dsink; /* as in heed_attention_gradients */
  const heed_view *drelative;     /* likewise */
  const heed_view *dw_qkv_global, *db_qkv_global;
} heed_multi_head_gradients;

/* The gradients of a loss whose gradient with respect to out is dout, after a forward pass with the same layer and inputs that filled `saved`. Sums over rows go from the first row of the
 * first sequence to the last, so bits do not depend on threads. Memory: as much as saved takes, and a copy of rows that do not lie evenly spaced.
 * An input that no query sees must still be finite: it enters dw multiplied by a gradient of 0.
 * Errors as heed_multi_head_forward; gradients must not overlap anything. HEED_E_MEMORY may come when some of them are written. */
HEED_API heed_status heed_multi_head_backward(heed_context *context, const heed_multi_head *layer, const heed_view *x_query,
                                              const heed_view *x_key, const heed_view *x_value, const heed_view *saved,
                                              const heed_view *dout, const heed_multi_head_gradients *gradients);

/* Both by plain loops in double precision, around heed_attention_reference: the oracles. Every array may be f64; nothing is saved, backward finds everything anew. */
HEED_API heed_status heed_multi_head_reference(heed_context *context, const heed_multi_head *layer, const heed_view *x_query,
                                               const heed_view *x_key, const heed_view *x_value, const heed_view *out);
HEED_API heed_status heed_multi_head_backward_reference(heed_context *context, const heed_multi_head *layer, const heed_view *x_query,
                                                        const heed_view *x_key, const heed_view *x_value, const heed_view *dout,
                                                        const heed_multi_head_gradients *gradients);

/* ---- the machine -------------------------------------------------------------------------------------------------------- */

/* What this machine reaches right now with the context's level and threads: the peak of fused multiply-adds and the read bandwidth of main memory. Takes
 * about `seconds` (0: a tenth of a second) for the two together; call it around a measurement, because shared machines drift. Reading takes 256 MiB a thread
 * meanwhile, on 64 threads at most; a size that ends before read_bytes leaves it out. HEED_E_ARGUMENT, HEED_E_MEMORY. */
typedef struct heed_machine {
  size_t size;       /* sizeof (heed_machine) */
  double peak_flops; /* f32 operations a second, two per multiply-add */
  double read_bytes; /* bytes a second */
} heed_machine;
HEED_API heed_status heed_machine_measure(heed_context *context, double seconds, heed_machine *out);

#ifdef __cplusplus
}
#endif
#endif
