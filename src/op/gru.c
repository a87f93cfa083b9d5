/* gru.c: a gated recurrent unit on the tape, with or without attention at each step (docs/math/gru.md); the loop itself is recurrence.c.
 *
 * Saved: r, z, n, the state's part of n, the state before and the query of each position, and the weights α [B,T,S]. Weights get their gradients after the loop, by products over all
 * positions at once: dW = Σ dg hᵀ, dWq = Σ dq hᵀ, dv_j = Σ_t α_tj dx_t; of products as scores dk_j = scale Σ_t ds_tj q_t too. Shapes: see heed_tape_gru. */
#include "elements.h"

#include "../kern/gemm.h"
#include "recurrence.h"

enum { X, W, B, INITIAL, LENGTHS, K, V, WQ, WS, KEY_LENGTHS, INPUTS };

typedef struct settings {
  int64_t steps; /* of packed x */
  bool reverse;
  double scale;
} settings;

/* Sizes of a call. */
typedef struct sizes {
  int64_t rows, steps, width, positions, keys, query, value; /* B, T, H, rows of x, S, A, V; the last three 0 without attention */
} sizes;

static sizes sizes_of(const hd_node *node) {
  const heed_tensor *x = node->in[X], *k = node->in[K], *v = node->in[V];
  const bool packed = x->ndim == 2;
  return (sizes){.rows = packed ? node->in[LENGTHS]->dim[0] : x->dim[0],
                 .steps = packed ? ((const settings *)node->options)->steps : x->dim[1],
                 .width = node->in[W]->dim[1],
                 .positions = packed ? x->dim[0] : x->dim[0] * x->dim[1],
                 .keys = k ? k->dim[1] : 0,
                 .query = k ? k->dim[2] : 0,
                 .value = v ? v->dim[2] : 0};
}

static int64_t given_of(const sizes *s) { return s->query ? s->value : 3 * s->width; }

/* ---- memory ----------------------------------------------------------------------------------------------------------------------- */

/* Arrays of backward, one behind another. */
enum { DX, DGATES, DQUERY, DS, DKEY, DW, DINITIAL, TURNING, ARRAYS };

static int64_t turning_of(const sizes *s) {
  return s->query ? hd_recurrence_turn_floats(s->keys, s->steps, HD_MAX(given_of(s), s->query)) : 0;
}

/* Where each begins; returns the end. */
static int64_t lay_out(const heed_context *context, const hd_node *node, const sizes *s, int64_t at[ARRAYS]) {
  const int64_t pairs = node->in[WS] ? s->rows * s->keys * hd_ceil_div(s->query, 16) * 16 : 0;
  const int64_t floats[ARRAYS] = {[DX] = s->positions * given_of(s),
                                  [DGATES] = s->positions * 3 * s->width,
                                  [DQUERY] = s->positions * s->query,
                                  [DS] = s->rows * s->steps * s->keys,
                                  [DKEY] = pairs,
                                  [DW] = pairs,
                                  [DINITIAL] = s->rows * s->width,
                                  [TURNING] = hd_workers(context, s->rows) * turning_of(s)};
  int64_t end = 0;
  for (int i = 0; i < ARRAYS; i++) {
    at[i] = end;
    end += hd_ceil_div(floats[i], 16) * 16;
  }
  return end;
}

/* What backward takes for a while, which is more than forward does. */
static int64_t aside_of(const heed_context *context, const hd_node *node, const sizes *s) {
  const hd_recurrence r = {.width = s->width, .query = s->query, .value = s->value};
  int64_t at[ARRAYS];
  return lay_out(context, node, s, at) + hd_recurrence_scratch_floats(context, &r, s->keys, s->rows, s->steps) +
         (node->in[WS] ? hd_recurrence_memory_floats(s->query, s->rows * s->keys) : 0) + hd_packed_floats(s->width, 3 * s->width) +
         (node->in[WQ] ? hd_packed_floats(s->width, s->query) : 0) + s->rows * (int64_t)(sizeof(int64_t) / sizeof(float));
}

/* ---- shapes ----------------------------------------------------------------------------------------------------------------------- */

static heed_status check(heed_context *context, const hd_node *node, int i, const char *name, int ndim, const int64_t *dim) {
  const heed_tensor *t = node->in[i];
  char text[HD_SHAPE_LENGTH], wanted[HD_SHAPE_LENGTH];
  const heed_view want = heed_view_of(NULL, HEED_F32, ndim, dim);
  if (!t) return HEED_OK;
  const heed_type type = i == LENGTHS || i == KEY_LENGTHS ? HEED_I32 : HEED_F32;
  HD_REQUIRE(t->type == type, context, HEED_E_TYPE, "gru: %s is %s, allowed %s", name, heed_type_name(t->type), heed_type_name(type));
  bool same = t->ndim == ndim;
  for (int d = 0; d < ndim && same; d++) same = t->dim[d] == dim[d];
  HD_REQUIRE(same, context, HEED_E_SHAPE, "gru: %s %s, allowed %s", name, hd_tensor_shape(t, text), hd_shape_text(&want, wanted));
  return HEED_OK;
}

static heed_status check_attention(heed_context *context, const hd_node *node, const sizes *s) {
  const heed_tensor *k = node->in[K], *v = node->in[V];
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(v, context, HEED_E_ARGUMENT, "gru: keys without values");
  HD_REQUIRE(v->dim[2] >= 3 * s->width && k->dim[2] > 0, context, HEED_E_SHAPE, "gru: keys %s, values %s, allowed values of at least %lld",
             hd_tensor_shape(k, text[0]), hd_tensor_shape(v, text[1]), (long long)(3 * s->width));
  HD_TRY(check(context, node, K, "keys", 3, (int64_t[]){s->rows, s->keys, s->query}));
  HD_TRY(check(context, node, V, "values", 3, (int64_t[]){s->rows, s->keys, s->value}));
  HD_REQUIRE(node->in[WQ] || s->query == s->width, context, HEED_E_SHAPE,
             "gru: keys %s without w_query: allowed %lld columns, those of the state", hd_tensor_shape(k, text[0]), (long long)s->width);
  HD_TRY(check(context, node, WQ, "w_query", 2, (int64_t[]){s->query, s->width}));
  HD_TRY(check(context, node, WS, "w_score", 1, &s->query));
  return check(context, node, KEY_LENGTHS, "key_lengths", 1, &s->rows);
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[X], *w = node->in[W], *k = node->in[K], *v = node->in[V];
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE((x->ndim == 3 || (x->ndim == 2 && node->in[LENGTHS])) && w->ndim == 2 && w->dim[1] > 0 && w->dim[0] == 3 * w->dim[1] &&
                 hd_columns(x) == w->dim[0],
             context, HEED_E_SHAPE, "gru: x %s, w %s: allowed [B,T,3H] or with lengths [positions,3H], and [3H,H]",
             hd_tensor_shape(x, text[0]), hd_tensor_shape(w, text[1]));
  HD_REQUIRE((!k || k->ndim == 3) && (!v || (k && v->ndim == 3)), context, HEED_E_SHAPE,
             "gru: keys and values have rank 3, and there are both or none");
  const sizes s = sizes_of(node);
  HD_TRY(check(context, node, X, "x", x->ndim, x->dim));
  HD_TRY(check(context, node, W, "w", 2, w->dim));
  HD_TRY(check(context, node, B, "b", 1, (int64_t[]){3 * s.width}));
  HD_TRY(check(context, node, INITIAL, "initial", 2, (int64_t[]){s.rows, s.width}));
  HD_TRY(check(context, node, LENGTHS, "lengths", 1, &s.rows));
  if (k) HD_TRY(check_attention(context, node, &s));
  node->out->ndim = 3;
  memcpy(node->out->dim, (int64_t[]){s.rows, s.steps, s.width + (k ? s.value - 3 * s.width : 0)}, 3 * sizeof *node->out->dim);
  node->saved_floats = s.positions * (5 * s.width + s.query) + s.rows * s.steps * s.keys;
  node->aside_floats = aside_of(context, node, &s);
  return HEED_OK;
}

/* ---- a call -------------------------------------------------------------------------------------------------------------------------- */

typedef struct call {
  sizes s;
  hd_recurrence r;
  hd_recurrence_memory memory;
  hd_recurrence_rows rows;
  int64_t *first;
} call;

static heed_status check_lengths(heed_context *context, const heed_tensor *lengths, const char *name, int64_t most, int64_t *sum) {
  *sum = 0;
  for (int64_t i = 0; lengths && i < hd_count(lengths); i++) {
    const int32_t length = hd_index(lengths)[i];
    HD_REQUIRE(length >= 0 && length <= most, context, HEED_E_ARGUMENT, "gru: %s of row %lld is %ld, allowed 0 to %lld", name, (long long)i,
               (long)length, (long long)most);
    *sum += length;
  }
  return HEED_OK;
}

static heed_status find_first(heed_context *context, const hd_node *node, call *c) {
  const heed_tensor *lengths = node->in[LENGTHS];
  const bool packed = node->in[X]->ndim == 2;
  int64_t sum;
  HD_TRY(check_lengths(context, node->in[KEY_LENGTHS], "key length", c->s.keys, &sum));
  HD_TRY(check_lengths(context, lengths, "length", c->s.steps, &sum));
  HD_REQUIRE(!packed || sum == c->s.positions, context, HEED_E_ARGUMENT, "gru: x has %lld rows, allowed %lld, the sum of lengths",
             (long long)c->s.positions, (long long)sum);
  HD_TRY(hd_allocate(context, "rows of a recurrence", c->s.rows, sizeof *c->first, &c->first));
  for (int64_t i = 0, at = 0; i < c->s.rows; i++) {
    c->first[i] = at;
    at += packed ? hd_index(lengths)[i] : c->s.steps;
  }
  return HEED_OK;
}

static const float *value_of(const hd_node *node, int i) { return node->in[i] ? hd_value(node->in[i]) : NULL; }
static const int32_t *index_of(const hd_node *node, int i) { return node->in[i] ? hd_index(node->in[i]) : NULL; }

static heed_status open_call(heed_context *context, const hd_node *node, call *c) {
  const settings *o = node->options;
  const sizes s = sizes_of(node);
  float *saved = node->saved;
  *c = (call){.s = s};
  c->r = (hd_recurrence){.width = s.width,
                         .row_width = hd_columns(node->out),
                         .bias = value_of(node, B),
                         .query = s.query,
                         .value = s.value,
                         .w = value_of(node, WS),
                         .scale = (float)o->scale};
  c->memory = (hd_recurrence_memory){
      .entries = s.rows, .keys = s.keys, .key = value_of(node, K), .value = value_of(node, V), .lengths = index_of(node, KEY_LENGTHS)};
  HD_TRY(find_first(context, node, c));
  c->rows = (hd_recurrence_rows){.rows = s.rows,
                                 .steps = s.steps,
                                 .reverse = o->reverse,
                                 .lengths = index_of(node, LENGTHS),
                                 .first = c->first,
                                 .x = hd_value(node->in[X]),
                                 .initial = value_of(node, INITIAL),
                                 .out = hd_value(node->out),
                                 .kept = saved,
                                 .alpha = saved && s.query ? saved + s.positions * hd_recurrence_kept(&c->r) : NULL};
  return hd_recurrence_memory_open(context, &c->r, &c->memory);
}

static void close_call(heed_context *context, call *c) {
  hd_recurrence_memory_close(context, &c->memory);
  hd_release(context, c->first, c->s.rows, sizeof *c->first);
}

static int64_t length_of(const call *c, int64_t row) { return c->rows.lengths ? c->rows.lengths[row] : c->s.steps; }

/* Zeros behind the ends of rows in an array of `width` a position; `packed` ones have nothing there. */
static void clear_rest(const call *c, bool packed, int64_t width, float *data) {
  if (packed || !data || !c->rows.lengths) return;
  for (int64_t i = 0; i < c->s.rows; i++) {
    const int64_t length = c->rows.lengths[i];
    memset(data + (i * c->s.steps + length) * width, 0, (size_t)((c->s.steps - length) * width) * sizeof *data);
  }
}

static heed_status forward(heed_context *context, const hd_node *node) {
  call c;
  heed_status status = open_call(context, node, &c);
  if (status == HEED_OK) status = hd_packed_make(context, hd_value(node->in[W]), 3 * c.s.width, c.s.width, false, &c.r.hidden);
  if (status == HEED_OK) status = hd_packed_make(context, value_of(node, WQ), c.s.query, c.s.width, false, &c.r.projected);
  if (status == HEED_OK) {
    clear_rest(&c, false, c.r.row_width, c.rows.out);
    clear_rest(&c, node->in[X]->ndim == 2, hd_recurrence_kept(&c.r), c.rows.kept); // what products over all positions read
    status = hd_recurrence_run(context, &c.r, &c.memory, &c.rows);
  }
  hd_packed_free(context, &c.r.projected);
  hd_packed_free(context, &c.r.hidden);
  close_call(context, &c);
  return status;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------------- */

typedef struct back {
  call c;
  hd_packed hidden, projected; /* turned */
  hd_recurrence_gradients to;
  float *memory, *turning; /* all of it; scratch a worker */
  int64_t floats, turning_floats;
  const hd_node *node;
  const hd_kernels *kernels;
  struct target {
    float *to;
    bool add;
  } k, v;
} back;

static heed_status open_back(heed_context *context, const hd_node *node, back *b) {
  *b = (back){.node = node, .kernels = hd_kernels_of(context)};
  HD_TRY(open_call(context, node, &b->c));
  const sizes *s = &b->c.s;
  const int64_t n = s->width, given = given_of(s);
  int64_t at[ARRAYS];
  HD_TRY(hd_packed_make(context, hd_value(node->in[W]), n, 3 * n, true, &b->hidden));
  HD_TRY(hd_packed_make(context, value_of(node, WQ), n, s->query, true, &b->projected));
  b->turning_floats = turning_of(s);
  b->floats = lay_out(context, node, s, at);
  HD_TRY(hd_allocate(context, "gradients of a recurrence", b->floats, sizeof *b->memory, &b->memory));
  float *array[ARRAYS];
  for (int i = 0; i < ARRAYS; i++) array[i] = b->memory + at[i];
  b->to = (hd_recurrence_gradients){.dy = hd_upstream(node),
                                    .dx = array[DX],
                                    .dgates = array[DGATES],
                                    .dquery = array[DQUERY],
                                    .ds = array[DS],
                                    .dkey = array[DKEY],
                                    .dw = array[DW],
                                    .dinitial = array[DINITIAL]};
  b->turning = array[TURNING];
  const bool packed = node->in[X]->ndim == 2;
  clear_rest(&b->c, packed, given, b->to.dx);
  clear_rest(&b->c, packed, 3 * n, b->to.dgates);
  clear_rest(&b->c, packed, s->query, b->to.dquery);
  memset(b->to.dkey, 0, (size_t)(at[DINITIAL] - at[DKEY]) * sizeof *b->to.dkey);
  return HEED_OK;
}

static void close_back(heed_context *context, back *b) {
  hd_release(context, b->memory, b->floats, sizeof *b->memory);
  hd_packed_free(context, &b->hidden);
  hd_packed_free(context, &b->projected);
  close_call(context, &b->c);
}

/* dw [outputs,H] (+)= Σ over positions of d [outputs] times the state before. */
static heed_status weight_gradient(heed_context *context, const back *b, int input, const float *d, int64_t outputs) {
  const int64_t kept = hd_recurrence_kept(&b->c.r), n = b->c.s.width;
  bool add;
  float *to = hd_gradient(b->node, input, &add);
  if (!to) return HEED_OK;
  return hd_gemm(context, &(hd_gemm_call){.rows = outputs,
                                          .outputs = n,
                                          .inputs = b->c.s.positions,
                                          .a = {(float *)d, HEED_F32, 1, outputs},
                                          .b = {b->c.rows.kept + 4 * n, HEED_F32, kept, 1},
                                          .c = {to, HEED_F32, n, 1},
                                          .accumulate = add});
}

/* One row's keys and values. */
static void give_to_memory(void *argument, int64_t row, int worker) {
  const back *b = argument;
  const call *c = &b->c;
  const sizes *s = &c->s;
  hd_recurrence_turn turn = {
      .keys = s->keys, .length = length_of(c, row), .a_stride = s->keys, .factor = 1, .scratch = b->turning + worker * b->turning_floats};
  if (b->v.to) {
    turn.a = c->rows.alpha + row * s->steps * s->keys;
    turn.x = b->to.dx + c->first[row] * s->value;
    turn.n = turn.x_stride = turn.to_stride = s->value;
    turn.to = b->v.to + row * s->keys * s->value;
    turn.accumulate = b->v.add;
    hd_recurrence_turn_run(b->kernels, &turn);
  }
  if (b->k.to && !c->r.w) {
    turn.a = b->to.ds + row * s->steps * s->keys;
    turn.x = c->rows.kept + c->first[row] * hd_recurrence_kept(&c->r) + 5 * s->width;
    turn.x_stride = hd_recurrence_kept(&c->r);
    turn.n = turn.to_stride = s->query;
    turn.factor = c->r.scale;
    turn.to = b->k.to + row * s->keys * s->query;
    turn.accumulate = b->k.add;
    hd_recurrence_turn_run(b->kernels, &turn);
  }
}

static heed_status give_to_attention(heed_context *context, back *b) {
  const sizes *s = &b->c.s;
  const int64_t columns = b->c.memory.columns;
  bool add;
  float *to;
  b->k.to = hd_gradient(b->node, K, &b->k.add);
  b->v.to = hd_gradient(b->node, V, &b->v.add);
  hd_parallel(context, s->rows, give_to_memory, b);
  if (b->k.to && b->c.r.w)
    hd_runs_move(context, &(hd_runs){.from = b->to.dkey,
                                     .to = b->k.to,
                                     .rows = s->rows * s->keys,
                                     .width = s->query,
                                     .from_stride = columns,
                                     .to_stride = s->query,
                                     .accumulate = b->k.add});
  HD_TRY(weight_gradient(context, b, WQ, b->to.dquery, s->query));
  if ((to = hd_gradient(b->node, WS, &add))) b->kernels->sum_rows(b->to.dw, s->rows * s->keys, columns, s->query, add, to);
  return HEED_OK;
}

static heed_status give(heed_context *context, back *b) {
  const sizes *s = &b->c.s;
  bool add;
  float *to;
  if ((to = hd_gradient(b->node, X, &add)))
    hd_runs_move(context, &(hd_runs){.from = b->to.dx,
                                     .to = to,
                                     .rows = s->positions,
                                     .width = 3 * s->width,
                                     .from_stride = given_of(s),
                                     .to_stride = 3 * s->width,
                                     .accumulate = add});
  HD_TRY(weight_gradient(context, b, W, b->to.dgates, 3 * s->width));
  if ((to = hd_gradient(b->node, B, &add)))
    hd_sum_rows(context,
                &(hd_sums){.x = b->to.dgates, .out = to, .outer = 1, .rows = s->positions, .columns = 3 * s->width, .accumulate = add});
  if ((to = hd_gradient(b->node, INITIAL, &add))) hd_elements_pass(context, b->to.dinitial, s->rows * s->width, add, to);
  return s->query ? give_to_attention(context, b) : HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  back b;
  heed_status status = open_back(context, node, &b);
  if (status == HEED_OK) status = hd_recurrence_back(context, &b.c.r, &b.c.memory, &b.c.rows, &b.hidden, &b.projected, &b.to);
  if (status == HEED_OK) status = give(context, &b);
  close_back(context, &b);
  return status;
}

/* ---- the formula ------------------------------------------------------------------------------------------------------------------------ */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* [a | c] = Σ α v of one row whose state is h, into context [V]. */
static void reference_attend(const hd_node *node, const double *const *in, int64_t row, const double *h, double *context) {
  const sizes s = sizes_of(node);
  const int64_t keys = node->in[KEY_LENGTHS] ? hd_index(node->in[KEY_LENGTHS])[row] : s.keys;
  double sum = 0;
  memset(context, 0, (size_t)s.value * sizeof *context);
  for (int64_t j = 0; j < keys; j++) {
    const double *k = in[K] + (row * s.keys + j) * s.query;
    double score = 0;
    for (int64_t a = 0; a < s.query; a++) {
      double q = in[WQ] ? 0 : h[a];
      for (int64_t i = 0; in[WQ] && i < s.width; i++) q += in[WQ][a * s.width + i] * h[i];
      score += in[WS] ? in[WS][a] * tanh(q + k[a]) : ((const settings *)node->options)->scale * q * k[a];
    }
    sum += exp(score);
    for (int64_t c = 0; c < s.value; c++) context[c] += exp(score) * in[V][(row * s.keys + j) * s.value + c];
  }
  for (int64_t c = 0; c < s.value && keys > 0; c++) context[c] /= sum;
}

enum { REFERENCE_WIDTH = 64 }; /* of samples */

static void reference_step(const hd_node *node, const double *const *in, int64_t row, int64_t position, double *h, double *out) {
  const sizes s = sizes_of(node);
  double context[4 * REFERENCE_WIDTH] = {0}, gate[3 * REFERENCE_WIDTH], next[REFERENCE_WIDTH];
  if (in[K]) reference_attend(node, in, row, h, context);
  for (int64_t g = 0; g < 3 * s.width; g++) {
    gate[g] = in[B] ? in[B][g] : 0;
    for (int64_t i = 0; i < s.width; i++) gate[g] += in[W][g * s.width + i] * h[i];
  }
  for (int64_t i = 0; i < s.width; i++) {
    const double *x = in[X] + position * 3 * s.width + i, *a = context + i;
    const double r = sigmoid(x[0] + a[0] + gate[i]), z = sigmoid(x[s.width] + a[s.width] + gate[s.width + i]);
    const double n = tanh(x[2 * s.width] + a[2 * s.width] + r * gate[2 * s.width + i]);
    next[i] = (1 - z) * n + z * h[i];
  }
  memcpy(h, next, (size_t)s.width * sizeof *h);
  memcpy(out, h, (size_t)s.width * sizeof *h);
  for (int64_t c = 3 * s.width; c < s.value; c++) out[c - 2 * s.width] = context[c];
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const sizes s = sizes_of(node);
  const bool packed = node->in[X]->ndim == 2, reverse = ((const settings *)node->options)->reverse;
  const int64_t columns = hd_columns(node->out);
  memset(out, 0, (size_t)hd_count(node->out) * sizeof *out);
  for (int64_t row = 0, first = 0; row < s.rows; row++) {
    const int64_t length = node->in[LENGTHS] ? hd_index(node->in[LENGTHS])[row] : s.steps;
    double h[REFERENCE_WIDTH] = {0};
    for (int64_t i = 0; in[INITIAL] && i < s.width; i++) h[i] = in[INITIAL][row * s.width + i];
    for (int64_t step = 0; step < length; step++) {
      const int64_t t = reverse ? length - 1 - step : step;
      reference_step(node, in, row, first + t, h, out + (row * s.steps + t) * columns);
    }
    first += packed ? length : s.steps;
  }
}

static void sample_attention(hd_sample *s, int64_t rows, int64_t width) {
  const int64_t keys = hd_sample_pick(s, 0, 3) ? hd_sample_pick(s, 1, 9) : hd_sample_pick(s, 60, 70);
  const bool projects = hd_sample_pick(s, 0, 2) > 0;
  const int64_t query = projects ? hd_sample_pick(s, 1, 40) : width, beyond = hd_sample_pick(s, 0, 1) ? hd_sample_pick(s, 1, width) : 0;
  s->in[K] = (hd_sample_input){.ndim = 3, .dim = {rows, keys, query}};
  s->in[V] = (hd_sample_input){.ndim = 3, .dim = {rows, keys, 3 * width + beyond}};
  s->in[WQ] = (hd_sample_input){.absent = !projects, .ndim = 2, .dim = {query, width}};
  s->in[WS] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {query}};
  s->in[KEY_LENGTHS] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {rows}, .below = keys + 1};
}

static void sample(hd_sample *s) {
  const int64_t rows = hd_sample_pick(s, 1, 20), steps = hd_sample_pick(s, 1, 5);
  const int64_t width = hd_sample_pick(s, 0, 3) ? hd_sample_pick(s, 1, 20) : hd_sample_pick(s, 30, 50);
  *(settings *)s->options = (settings){.reverse = hd_sample_pick(s, 0, 1), .scale = 0.5};
  s->inputs = INPUTS;
  s->in[X] = (hd_sample_input){.ndim = 3, .dim = {rows, steps, 3 * width}};
  s->in[W] = (hd_sample_input){.ndim = 2, .dim = {3 * width, width}, .spread = 0.5};
  s->in[B] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {3 * width}};
  s->in[INITIAL] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 1), .ndim = 2, .dim = {rows, width}};
  s->in[LENGTHS] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {rows}, .below = steps + 1};
  for (int i = K; i < INPUTS; i++) s->in[i].absent = true;
  if (hd_sample_pick(s, 0, 2)) sample_attention(s, rows, width);
}

HD_OPERATION(gru, .options = sizeof(settings), .checks_types = true);

/* ---- the public door ------------------------------------------------------------------------------------------------------------------- */

/* Lengths as a tensor, so that the tape has its own. */
static heed_tensor *lengths_tensor(heed_tape *tape, const int64_t *lengths, int64_t rows) {
  heed_context *context = hd_tape_context(tape);
  int32_t *copy;
  heed_tensor *out = NULL;
  if (!lengths || !hd_tape_note(tape, hd_allocate(context, "lengths", rows, sizeof *copy, &copy))) return NULL;
  for (int64_t i = 0; i < rows; i++) copy[i] = (int32_t)HD_CLAMP(lengths[i], -1, INT32_MAX);
  const heed_view view = heed_view_of(copy, HEED_I32, 1, &rows);
  out = heed_tape_input(tape, &view);
  hd_release(context, copy, rows, sizeof *copy);
  return out;
}

heed_tensor *heed_tape_gru(heed_tape *tape, const heed_tape_gru_options *given, heed_tensor *x, heed_tensor *w, heed_tensor *b) {
  heed_tape_gru_options o = {.size = sizeof o};
  if (!tape || heed_tape_status(tape) != HEED_OK) return NULL;
  if (!hd_tape_note(tape, hd_options_read(hd_tape_context(tape), "heed_tape_gru_options", given, &o, sizeof o))) return NULL;
  const int64_t rows = x && x->ndim == 3 ? x->dim[0] : o.rows;
  heed_tensor *in[INPUTS] = {
      [X] = x, [W] = w, [B] = b, [INITIAL] = o.initial, [K] = o.keys, [V] = o.values, [WQ] = o.w_query, [WS] = o.w_score};
  in[LENGTHS] = lengths_tensor(tape, o.lengths, rows);
  if (o.keys) in[KEY_LENGTHS] = lengths_tensor(tape, o.key_lengths, rows);
  return hd_tape_apply(tape, &hd_op_gru, INPUTS, in, 2,
                       &(settings){.steps = o.steps, .reverse = o.reverse, .scale = o.scale == 0 ? 1 : o.scale});
}
