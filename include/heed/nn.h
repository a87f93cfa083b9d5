/* nn.h: learning: tensors on a tape, operations with gradients, parameters, optimisers.
 *
 * Operations are carried out as they are called and written down on the tape; heed_tape_backward then runs through them in the opposite order. Model code reads straight: an
 * operation that fails returns NULL, operations on NULL do nothing and return NULL, the first error stays with the tape (heed_tape_status, heed_error), so one check at the
 * end is enough.
 *   heed_tensor *h = heed_tape_linear(tape, x, w, b);
 *   heed_tensor *loss = heed_tape_cross_entropy(tape, h, targets, NULL);
 *   heed_status status = heed_tape_backward(tape, loss, NULL);
 * Tensors are row-major f32 (indices: i32) of rank 1 to 6. All bits are independent of threads and level. */
#ifndef HEED_NN_H
#define HEED_NN_H

#include "heed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors and parameters -------------------------------------------------------------------------------------------------- */

/* A value and its gradient. Made by the tape's operations (valid until heed_tape_reset or _free) or by heed_parameters_add (valid as long as the set). */
typedef struct heed_tensor heed_tensor;

/* The numbers as they lie in memory, writable; data is NULL where they are gone (most values after backward). */
HEED_API heed_view heed_tensor_value(const heed_tensor *tensor);
/* Same shape. data NULL: nothing has reached it. */
HEED_API heed_view heed_tensor_gradient(const heed_tensor *tensor);
/* Of a parameter, or of the operation that made it; borrowed. */
HEED_API const char *heed_tensor_name(const heed_tensor *tensor);

/* Named parameters in order: what an optimiser moves and a checkpoint keeps. Belongs to its context. */
typedef struct heed_parameters heed_parameters;

HEED_API heed_status heed_parameters_new(heed_context *context, heed_parameters **out);
HEED_API void heed_parameters_free(heed_parameters *parameters);

typedef struct heed_parameter_options {
  size_t size;   /* sizeof (heed_parameter_options) */
  bool no_decay; /* weight decay passes it by, as it does every tensor of rank 1 */
  bool frozen;   /* it has no gradient and does not move; gradients pass through to what it is multiplied with */
} heed_parameter_options;

/* A parameter of zeros. name is copied and must be new. HEED_E_ARGUMENT, HEED_E_OVERFLOW, HEED_E_MEMORY; *out is NULL on error. */
HEED_API heed_status heed_parameters_add(heed_parameters *parameters, const char *name, int ndim, const int64_t *dim,
                                         const heed_parameter_options *options, heed_tensor **out);
/* A weight matrix [outputs, inputs] that stays as model files store it: type by its name in GGUF ("F16", "BF16", "Q8_0", "Q4_0", "Q4_K",
 * ...), rows in the file's layout, each a whole number of blocks; they are copied, packed for the kernels. It is frozen. As w of heed_tape_linear and table of heed_tape_embedding it is what it would be in f32, to the bit, and gradients pass through to x, but
 * no more than a piece of it is ever in f32; other operations refuse it (HEED_E_TYPE), and heed_tensor_value has no data. HEED_E_ARGUMENT, HEED_E_TYPE (no such type), HEED_E_SHAPE,
 * HEED_E_OVERFLOW, HEED_E_MEMORY; *out is NULL on error. */
HEED_API heed_status heed_parameters_add_stored(heed_parameters *parameters, const char *name, const char *type, int64_t outputs,
                                                int64_t inputs, const void *rows, heed_tensor **out);
HEED_API int64_t heed_parameters_count(const heed_parameters *parameters);
/* NULL outside [0, count). */
HEED_API heed_tensor *heed_parameters_at(const heed_parameters *parameters, int64_t i);
/* NULL: there is none of that name. */
HEED_API heed_tensor *heed_parameters_find(const heed_parameters *parameters, const char *name);
/* Numbers in all of them, and in those that are not frozen. */
HEED_API int64_t heed_parameters_size(const heed_parameters *parameters);
HEED_API int64_t heed_parameters_learning(const heed_parameters *parameters);
/* Of their values and gradients. */
HEED_API int64_t heed_parameters_bytes(const heed_parameters *parameters);
/* The next backward pass writes gradients instead of adding to them. */
HEED_API void heed_parameters_forget_gradients(heed_parameters *parameters);

/* How weights begin. FAN_IN and FAN_OUT are the last and the first dimension of a matrix [outputs, inputs].
 *   XAVIER  variance gain² · 2 / (fan_in + fan_out) (Glorot & Bengio 2010)      HE  variance gain² / fan_in (He et al. 2015)
 *   NORMAL  standard deviation `gain`                                            CONSTANT  every number is `gain` */
typedef enum heed_initial {
  HEED_INITIAL_CONSTANT,
  HEED_INITIAL_NORMAL,
  HEED_INITIAL_XAVIER_UNIFORM,
  HEED_INITIAL_XAVIER_NORMAL,
  HEED_INITIAL_HE_UNIFORM,
  HEED_INITIAL_HE_NORMAL
} heed_initial;
/* Number i of the tensor comes from Philox under (seed, stream, i): the same on every machine up to the last bit of log and cos. HEED_E_ARGUMENT (gain not finite, rank 1 where fans are
 * asked for). */
HEED_API heed_status heed_tensor_initialise(heed_context *context, heed_tensor *tensor, heed_initial kind, double gain, uint64_t seed,
                                            uint64_t stream);
/* The gain of an activation by name: linear and sigmoid 1, tanh 5/3, relu √2, gelu and silu √2; 0 if unknown. */
HEED_API double heed_initial_gain(const char *activation);

/* ---- the tape ------------------------------------------------------------------------------------------------------------------ */

typedef struct heed_tape heed_tape;

/* The tape belongs to the context, which must outlive it. */
HEED_API heed_status heed_tape_new(heed_context *context, heed_tape **out);
HEED_API void heed_tape_free(heed_tape *tape);
/* Forgets all tensors and the error; memory stays for the next step. */
HEED_API void heed_tape_reset(heed_tape *tape);
/* The first error since the last reset, or HEED_OK. */
HEED_API heed_status heed_tape_status(const heed_tape *tape);
/* Inference: nothing is kept for backward. From the next operation on. */
HEED_API void heed_tape_set_inference(heed_tape *tape, bool inference);
/* Whether dropout acts; true at first. */
HEED_API void heed_tape_set_training(heed_tape *tape, bool training);
/* What dropout draws from, together with the number of the operation since the last reset: the same seed repeats a step exactly. */
HEED_API void heed_tape_set_seed(heed_tape *tape, uint64_t seed);
/* Where in the model the next operations are, for messages; borrowed until reset. */
HEED_API void heed_tape_label(heed_tape *tape, const char *at);
/* The most bytes of values and gradients that were in use at once. */
HEED_API int64_t heed_tape_peak_bytes(const heed_tape *tape);

/* A copy of the caller's array: f32, or i32 indices. No gradient. */
HEED_API heed_tensor *heed_tape_input(heed_tape *tape, const heed_view *view);

/* Gradients of what led to `from`: adds dL/dp to every parameter p that learns. upstream is dL/dfrom; NULL: from is one number, the loss itself. Values other than from's are gone
 * afterwards. Runs once a reset. HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_UNSUPPORTED (an operation without gradient), HEED_E_MEMORY. */
HEED_API heed_status heed_tape_backward(heed_tape *tape, heed_tensor *from, const heed_view *upstream);

/* Names the first parameter or operation on the tape that holds a NaN or an infinity; false: none does. Before backward, which forgets values. */
HEED_API bool heed_tape_first_nonfinite(const heed_tape *tape, char *text, size_t room);

/* ---- operations -----------------------------------------------------------------------------------------------------------------
 * All fail with HEED_E_SHAPE or HEED_E_TYPE where inputs do not fit, HEED_E_ARGUMENT where one is NULL, and HEED_E_MEMORY. Inputs are f32 where nothing else is said. */

/* y [...,outputs] = x [...,inputs] · wᵀ + b with w [outputs, inputs], perhaps stored as in a file, b [outputs] or NULL. */
HEED_API heed_tensor *heed_tape_linear(heed_tape *tape, heed_tensor *x, heed_tensor *w, heed_tensor *b);

/* a + b. b has a's shape, or its last dimensions and is then added to every such part: [n,w] to [B,n,w], [w] to rows. */
HEED_API heed_tensor *heed_tape_add(heed_tape *tape, heed_tensor *a, heed_tensor *b);
/* a · b, element by element; one shape. */
HEED_API heed_tensor *heed_tape_mul(heed_tape *tape, heed_tensor *a, heed_tensor *b);
/* factor · x. HEED_E_ARGUMENT: the factor is not finite. */
HEED_API heed_tensor *heed_tape_scale(heed_tape *tape, heed_tensor *x, double factor);

/* act(x), element by element. HEED_E_ARGUMENT: there is no such kind. */
HEED_API heed_tensor *heed_tape_activate(heed_tape *tape, heed_tensor *x, heed_activation kind);
/* x [...,2f], rows of gate and up side by side -> act(gate) · up [...,f]. With SILU: SwiGLU. */
HEED_API heed_tensor *heed_tape_gate(heed_tape *tape, heed_tensor *x, heed_activation kind);

/* x [...,columns] -> [...,columns / group]: the largest of each `group` neighbours (Goodfellow et al. 2013). HEED_E_SHAPE: columns are no multiple of the group. */
HEED_API heed_tensor *heed_tape_maxout(heed_tape *tape, heed_tensor *x, int64_t group);

/* ids i32 [...] -> those rows of table [vocabulary,width], perhaps stored as in a file: [...,width]. HEED_E_ARGUMENT: an id is not a row's. */
HEED_API heed_tensor *heed_tape_embedding(heed_tape *tape, heed_tensor *ids, heed_tensor *table);
/* The same of any x [n,width]: rows i32 [...] -> [...,width]. */
HEED_API heed_tensor *heed_tape_gather(heed_tape *tape, heed_tensor *x, heed_tensor *rows);
/* Each number is 0 with probability p in [0,1], the others are x / (1 − p). x itself where p is 0 or the tape is not set to training. HEED_E_ARGUMENT. */
HEED_API heed_tensor *heed_tape_dropout(heed_tape *tape, heed_tensor *x, double p);

/* The same numbers in another shape, in the same memory; also of indices. One dimension may be −1: what is left for it. */
HEED_API heed_tensor *heed_tape_reshape(heed_tape *tape, heed_tensor *x, int ndim, const int64_t *dim);
/* A copy with two axes exchanged. */
HEED_API heed_tensor *heed_tape_transpose(heed_tape *tape, heed_tensor *x, int axis, int other);
/* A copy of what lies at [begin, end) of an axis. */
HEED_API heed_tensor *heed_tape_slice(heed_tape *tape, heed_tensor *x, int axis, int64_t begin, int64_t end);
/* parts[0..count) one behind another along an axis; their other dimensions are the same. */
HEED_API heed_tensor *heed_tape_concat(heed_tape *tape, int count, heed_tensor *const *parts, int axis);

enum { HEED_ALL_AXES = -1 };
/* Over one axis, which disappears, or over all: [1]. mean: HEED_E_SHAPE where there is nothing to average. */
HEED_API heed_tensor *heed_tape_sum(heed_tape *tape, heed_tensor *x, int axis);
HEED_API heed_tensor *heed_tape_mean(heed_tape *tape, heed_tensor *x, int axis);

/* Attention of heads that lie side by side in rows, as one product gives them: everything that heed_attention_forward does, with every gradient. */
typedef struct heed_tape_attention_options {
  size_t size;      /* sizeof (heed_tape_attention_options) */
  int64_t heads;    /* H */
  int64_t kv_heads; /* Hkv; 0: H */
  const heed_attention *
      attention; /* NULL: plain. What it points at stays the caller's, until reset. Its seed and stream come from the tape, its dropout acts in training only */
  heed_tensor *bias;                           /* instead of attention->bias, [n,m], [H,n,m] or [B,H,n,m]; NULL: none */
  heed_tensor *sink;                           /* [H], instead of attention->sink */
  heed_tensor *wq, *wk, *wv;                   /* weights of attention->score, instead of its own */
  heed_tensor *relative;                       /* [buckets,H], instead of attention->relative */
  heed_tensor *content, *position, *distances; /* [H,d], [H,d] and [P,H·d] of a score XL, instead of its own */
} heed_tape_attention_options;

/* q [B,n,H·d], k [B,m,Hkv·d], v [B,m,Hkv·dv] -> [B,n,H·dv]; rank 2 means one sequence. k and v NULL: q is packed, [B,n,(H + 2 Hkv)·d], queries, then keys, then values. v NULL: k is
 * packed, [B,m,2 Hkv·d]. Errors as heed_attention_forward. */
HEED_API heed_tensor *heed_tape_attention(heed_tape *tape, const heed_tape_attention_options *options, heed_tensor *q, heed_tensor *k,
                                          heed_tensor *v);

/* Linear attention of such heads: everything that heed_linear_forward does, with every gradient. */
typedef struct heed_tape_linear_attention_options {
  size_t size;                            /* sizeof (heed_tape_linear_attention_options) */
  int64_t heads;                          /* H */
  int64_t kv_heads;                       /* Hkv; 0: H */
  const heed_linear_attention *attention; /* NULL: features ELU of every key. What it points at stays the caller's, until reset */
  heed_tensor *decay, *beta;              /* of its rule, instead of its own: [B,m,Hkv · f] or [B,m,Hkv], and [B,m,Hkv] or [B,m,1] */
  int64_t features;                       /* with POSITIVE and HYPERBOLIC and no projection of their own: so many random rows; 0: none */
  bool redraw; /* new ones whenever the tape trains, from its seed; otherwise always those of `seed` and `stream` */
  uint64_t seed;
  uint32_t stream;
} heed_tape_linear_attention_options;

/* q, k and v as for heed_tape_attention. Errors as heed_linear_forward. */
HEED_API heed_tensor *heed_tape_linear_attention(heed_tape *tape, const heed_tape_linear_attention_options *options, heed_tensor *q,
                                                 heed_tensor *k, heed_tensor *v);

/* LSH attention of such heads: everything that heed_lsh_forward does, with every gradient. */
typedef struct heed_tape_lsh_attention_options {
  size_t size;                         /* sizeof (heed_tape_lsh_attention_options) */
  int64_t heads;                       /* H */
  const heed_lsh_attention *attention; /* must say the rounds. What it points at stays the caller's, until reset */
  bool redraw; /* new rotations whenever the tape trains, from its seed; otherwise always those of the attention's own */
} heed_tape_lsh_attention_options;

/* qk [B,n,H·d], v [B,n,H·dv] -> [B,n,H·dv]; rank 2 means one sequence. v NULL: qk is packed, [B,n,2 H·d], queries that are also keys, then values. Errors as heed_lsh_forward. */
HEED_API heed_tensor *heed_tape_lsh_attention(heed_tape *tape, const heed_tape_lsh_attention_options *options, heed_tensor *qk,
                                              heed_tensor *v);

/* The first `heads` heads of width `width` in each row of x [B,n,columns] turn to their positions (see heed_rope_apply), the other columns stay. rope may be NULL; what it points at stays
 * the caller's, until reset. Where x is the fresh output of heed_tape_linear it is changed in place and must not be used again. */
HEED_API heed_tensor *heed_tape_rope(heed_tape *tape, const heed_rope *rope, int64_t heads, int64_t width, heed_tensor *x);

typedef struct heed_cross_entropy_options {
  size_t size;      /* sizeof (heed_cross_entropy_options) */
  bool has_ignore;  /* otherwise rows whose target is −1 are passed over */
  int32_t ignore;   /* the target of rows that are passed over */
  double smoothing; /* ε in [0,1): the target gets 1 − ε + ε / classes, every other class ε / classes */
} heed_cross_entropy_options;
/* y [1] = −Σ_c q_c log softmax(x)_c averaged over the rows that are not passed over (0 if there are none), q all on the target but for smoothing. logits x [...,classes], targets i32 [...] in
 * [0,classes). HEED_E_TYPE, HEED_E_SHAPE, HEED_E_ARGUMENT (a target out of range, smoothing). */
HEED_API heed_tensor *heed_tape_cross_entropy(heed_tape *tape, heed_tensor *logits, heed_tensor *targets,
                                              const heed_cross_entropy_options *options);

/* LayerNorm over the last dimension: y = (x − mean) / √(variance + epsilon) · weight + bias. x [...,columns]; weight and bias [columns] or NULL; epsilon > 0 (1e-5 is usual). */
HEED_API heed_tensor *heed_tape_layer_norm(heed_tape *tape, heed_tensor *x, heed_tensor *weight, heed_tensor *bias, double epsilon);
/* RMSNorm over the last dimension: y = x / √(mean(x²) + epsilon) · weight. x [...,columns], weight [columns] or NULL, epsilon > 0. */
HEED_API heed_tensor *heed_tape_rms_norm(heed_tape *tape, heed_tensor *x, heed_tensor *weight, double epsilon);

/* e^x / Σ e^x over the last dimension of x [...,columns], and its logarithm. */
HEED_API heed_tensor *heed_tape_softmax(heed_tape *tape, heed_tensor *x);
HEED_API heed_tensor *heed_tape_log_softmax(heed_tape *tape, heed_tensor *x);

/* [...,n,m] = a · b, each transposed first if asked: a [...,n,k] (transposed: [...,k,n]), b [...,k,m] ([...,m,k]) with the leading dimensions of a, or a matrix for all of them. */
HEED_API heed_tensor *heed_tape_matmul(heed_tape *tape, heed_tensor *a, bool transpose_a, heed_tensor *b, bool transpose_b);

/* A gated recurrent unit through time (Cho et al. 2014; gates in PyTorch's order r, z, n):
 *   r = σ(x_r + h_r)      z = σ(x_z + h_z)      n = tanh(x_n + r h_n)      h ← (1 − z) n + z h      with [h_r|h_z|h_n] = W h + b and x of the input, projected, its bias included
 * and, where there are keys, attention before each step (Bahdanau et al. 2015): with q = Wq h, s_j = w · tanh(q + k_j) or scale · q · k_j, α = softmax(s) over the first key_lengths of
 * them, Σ_j α_j v_j is added to x. Values are as wide as x, or wider: what they have beyond is given out beside the state. */
typedef struct heed_tape_gru_options {
  size_t size;                /* sizeof (heed_tape_gru_options) */
  const int64_t *lengths;     /* [B] elements of each row, which the rest leaves untouched; NULL: all. Copied, as is key_lengths */
  int64_t rows, steps;        /* where x is packed: B, and T, at least the longest row */
  bool reverse;               /* each row from its last element to its first */
  heed_tensor *initial;       /* [B,H]; NULL: zeros */
  heed_tensor *keys;          /* [B,S,A]; NULL: no attention */
  heed_tensor *values;        /* [B,S,V], V at least 3H */
  heed_tensor *w_query;       /* [A,H]; NULL: the state is the query, A is H */
  heed_tensor *w_score;       /* [A] additive; NULL: products */
  double scale;               /* of products; 0: 1 */
  const int64_t *key_lengths; /* [B]; NULL: S */
} heed_tape_gru_options;
/* x [B,T,3H], or packed [Σ lengths,3H], rows one behind another without what is behind their ends; w [3H,H], b [3H] or NULL -> [B,T,H + V − 3H], zeros behind the ends. HEED_E_ARGUMENT: a
 * length out of range. */
HEED_API heed_tensor *heed_tape_gru(heed_tape *tape, const heed_tape_gru_options *options, heed_tensor *x, heed_tensor *w, heed_tensor *b);

/* ---- optimisers ------------------------------------------------------------------------------------------------------------------ */

/* ADAMW (Loshchilov & Hutter 2019): with the gradient g, in step t
 *   m += (1 − β1) (g − m)      v += (1 − β2) (g² − v)      p −= rate · decay · p + rate · m / (1 − β1^t) / (√(v / (1 − β2^t)) + epsilon)
 * SGD:  m = momentum · m + g + decay · p      p −= rate · m
 * Decay acts on matrices only: not on tensors of rank 1, nor on those with no_decay. */
typedef enum heed_optimiser_kind { HEED_OPTIMISER_ADAMW, HEED_OPTIMISER_SGD } heed_optimiser_kind;

typedef struct heed_optimiser_options {
  size_t size; /* sizeof (heed_optimiser_options) */
  heed_optimiser_kind kind;
  bool has_betas;      /* otherwise β1 = 0.9, β2 = 0.999 */
  double beta1, beta2; /* ADAMW, in [0,1) */
  double epsilon;      /* ADAMW; 0: 1e-8 */
  double momentum;     /* SGD, in [0,1) */
  double decay;        /* at least 0 */
} heed_optimiser_options;

/* Moves the parameters of a set along their gradients. Belongs to its context, and the set must outlive it; parameters added to the set later are not moved. */
typedef struct heed_optimiser heed_optimiser;

/* options NULL: AdamW without decay. The moments are zeros at first. HEED_E_ARGUMENT, HEED_E_OVERFLOW, HEED_E_MEMORY; *out is NULL on error. */
HEED_API heed_status heed_optimiser_new(heed_context *context, heed_parameters *parameters, const heed_optimiser_options *options,
                                        heed_optimiser **out);
HEED_API void heed_optimiser_free(heed_optimiser *optimiser);

typedef struct heed_optimiser_report {
  double gradient_norm; /* √Σ g² over all parameters, before clipping; may be infinite or NaN */
  const char *
      not_finite; /* NULL, or the first parameter with a gradient that is not finite: nothing was moved, no step counted. Borrowed from the set */
} heed_optimiser_report;

/* One step. Where the norm of all gradients together is above clip they are scaled to it, by clip / (norm + 1e-6); clip 0: never. Parameters that no gradient has reached stay as they
 * are, and gradients stay until heed_parameters_forget_gradients. report may be NULL. HEED_OK also where a gradient is not finite: the report says so. HEED_E_ARGUMENT: a rate or clip that is
 * negative or not finite. */
HEED_API heed_status heed_optimiser_step(heed_optimiser *optimiser, double rate, double clip, heed_optimiser_report *report);

/* For checkpoints. How many steps have been made, which may be set; how many moments a parameter has (ADAMW 2, SGD 1, or 0 without momentum); and moment `which` of parameter i of the set
 * (ADAMW: 0 is m, 1 is v), writable, of the parameter's shape. data is NULL where there is none: out of range, or the parameter is frozen. */
HEED_API int64_t heed_optimiser_steps(const heed_optimiser *optimiser);
HEED_API void heed_optimiser_set_steps(heed_optimiser *optimiser, int64_t steps);
HEED_API int heed_optimiser_moments(const heed_optimiser *optimiser);
HEED_API heed_view heed_optimiser_state(const heed_optimiser *optimiser, int64_t i, int which);

/* The learning rate of step s = 0, 1, ...: in the first `warmup` steps peak · (s + 1) / (warmup + 1), then
 *   CONSTANT      peak
 *   INVERSE_ROOT  peak · √((warmup + 1) / (s + 1)), but at least floor (Vaswani et al. 2017)
 *   COSINE        floor + (peak − floor) (1 + cos(π r)) / 2 with r = (s − warmup) / (steps − warmup); floor from step `steps` on (Loshchilov & Hutter 2017) */
typedef enum heed_schedule_kind { HEED_SCHEDULE_CONSTANT, HEED_SCHEDULE_INVERSE_ROOT, HEED_SCHEDULE_COSINE } heed_schedule_kind;
typedef struct heed_schedule {
  size_t size; /* sizeof (heed_schedule) */
  heed_schedule_kind kind;
  double peak, floor;
  int64_t warmup, steps;
} heed_schedule;
/* A pure function. NaN where the schedule is none: null, an unknown kind, peak or floor negative or not finite, warmup or s negative. */
HEED_API double heed_schedule_rate(const heed_schedule *schedule, int64_t s);

/* ---- layers ---------------------------------------------------------------------------------------------------------------------
 * A layer is a struct of tensors and settings, filled by whoever made the parameters. Nothing is kept between calls. */

typedef struct heed_nn_norm {
  bool rms;                   /* RMSNorm (Zhang & Sennrich 2019); otherwise LayerNorm (Ba et al. 2016) */
  double epsilon;             /* 0: 1e-5 */
  heed_tensor *weight, *bias; /* [width]; NULL: none */
} heed_nn_norm;

/* Multi-head attention (Vaswani et al. 2017, section 3.2.2): see heed_multi_head_forward for the shapes of weights. Projections that read the same input may be one matrix: w_qkv for
 * self-attention, w_kv where keys and values come from one input; otherwise each has its own. */
typedef struct heed_nn_attention {
  int64_t heads, kv_heads;              /* kv_heads 0: heads */
  heed_tensor *w_qkv, *b_qkv;           /* [(H + 2 Hkv)·d, width]; with LSH attention [2 H·d, width] */
  heed_tensor *w_q, *b_q, *w_kv, *b_kv; /* [H·d, width], [2 Hkv·d, width of keys] */
  heed_tensor *w_k, *b_k, *w_v, *b_v;   /* [Hkv·d, width of keys], [Hkv·dv, width of values] */
  heed_tensor *w_o, *b_o;               /* [outputs, H·dv] */
  const heed_attention *attention;      /* restrictions, dropout of weights, ...; NULL: plain. Borrowed until reset */
  const heed_rope *rope;                /* turns queries and keys; NULL: not. Borrowed until reset */
  heed_tensor *bias, *sink;             /* as in heed_tape_attention_options */
  /* Linear attention instead of all that `attention`, bias and sink say; its heads are the layer's. Its weights cannot be looked at (HEED_E_UNSUPPORTED). NULL: exact attention. Borrowed until reset */
  const heed_tape_linear_attention_options *linear;
  const heed_tape_lsh_attention_options
      *lsh; /* likewise LSH attention, for self-attention with w_qkv: rows of queries, which are its keys too, then of values */
  heed_tensor *relative; /* likewise */
  /* Of a score XL: what distances are made of, [P,inputs], and the matrix [H·d,inputs] that makes them (NULL: they are [P,H·d] themselves); u and v [H,d]. */
  heed_tensor *distances, *w_distances, *content, *position;
  /* Projections of their own for global tokens (Beltagy, Peters, Cohan, "Longformer", 2020, section 3.1): the first `global_tokens` rows of self-attention ask with queries of w_q_global and meet
   * keys and values that w_kv_global makes of all rows, wherever `attention` hides none but by its pattern and window; the other rows are what they are without. As many as the pattern's
   * global tokens. Not with linear and LSH attention, documents, attend, bias or positions that do not begin with the first row: HEED_E_UNSUPPORTED. NULL and 0: none. */
  heed_tensor *w_q_global, *b_q_global, *w_kv_global, *b_kv_global; /* [H·d, width], [2 Hkv·d, width] */
  int64_t global_tokens;
} heed_nn_attention;

/* down(act(up(x))), or gated: down(act(gate) · up) where w_up holds the rows of gate, then those of up (Shazeer 2020). */
typedef struct heed_nn_feed_forward {
  bool gated;
  heed_activation activation;
  double dropout;           /* of what goes into down */
  heed_tensor *w_up, *b_up; /* [f, width], gated [2 f, width] */
  heed_tensor *w_down, *b_down;
} heed_nn_feed_forward;

/* A transformer layer: self-attention, in a decoder that reads a memory cross-attention, and feed-forward, each with residual and norm: x + f(norm(x)), or norm(x + f(x)) with norm_after,
 * as in 2017. */
typedef struct heed_nn_block {
  bool norm_after;
  double dropout; /* of what each sublayer adds */
  heed_nn_norm attention_norm, cross_norm, feed_forward_norm;
  heed_nn_attention attention, cross; /* cross: queries from x, keys and values from the memory */
  heed_nn_feed_forward feed_forward;
} heed_nn_block;

/* A recurrent layer of gated units (nn.GRU of PyTorch), one direction or both. */
typedef struct heed_nn_gru {
  int directions;                       /* 1, or 2: the second goes from the last element of a row to the first */
  heed_tensor *w_input[2], *b_input[2]; /* [3H,inputs], [3H] of each direction; biases may be NULL */
  heed_tensor *w_state[2], *b_state[2]; /* [3H,H], [3H] */
} heed_nn_gru;
/* Rows of a batch. */
typedef struct heed_nn_gru_rows {
  size_t size;             /* sizeof (heed_nn_gru_rows) */
  const int64_t *lengths;  /* [B]; NULL: T. What is behind the end of a row is not computed */
  int64_t rows, steps;     /* where x is packed, [Σ lengths,inputs]: B and T */
  heed_tensor *initial[2]; /* [B,H] of each direction; NULL: zeros */
} heed_nn_gru_rows;
/* x [B,T,inputs] -> [B,T,directions · H], zeros behind the ends of rows. rows may be NULL: all are whole, and begin with zeros. last [directions] gets the state [B,H] after the last step of each direction, zeros for a row
 * without elements; NULL: not asked. */
HEED_API heed_tensor *heed_nn_gru_apply(heed_tape *tape, const heed_nn_gru *layer, const heed_nn_gru_rows *rows, heed_tensor *x,
                                        heed_tensor **last);

HEED_API heed_tensor *heed_nn_norm_apply(heed_tape *tape, const heed_nn_norm *norm, heed_tensor *x);
/* x_query [B,n,width] -> [B,n,outputs]; x_key NULL: self-attention; x_value NULL: the keys' input. `weights`, f32 [B,H,n,m] of the caller's, gets the weights of all heads, before dropout;
 * NULL: not asked. */
HEED_API heed_tensor *heed_nn_attention_apply(heed_tape *tape, const heed_nn_attention *layer, heed_tensor *x_query, heed_tensor *x_key,
                                              heed_tensor *x_value, const heed_view *weights);
HEED_API heed_tensor *heed_nn_feed_forward_apply(heed_tape *tape, const heed_nn_feed_forward *layer, heed_tensor *x);
/* x [B,n,width], memory [B,m,width of keys] for a block with cross-attention, otherwise NULL -> [B,n,width]. */
HEED_API heed_tensor *heed_nn_block_apply(heed_tape *tape, const heed_nn_block *block, heed_tensor *x, heed_tensor *memory);

#ifdef __cplusplus
}
#endif
#endif
