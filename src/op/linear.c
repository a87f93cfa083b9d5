/* linear.c: y = x · Wᵀ + b.
 *
 *   y[r][o] = Σ_i x[r][i] W[o][i] + b[o]
 *   dx = dy · W      dW = dyᵀ · x      db[o] = Σ_r dy[r][o]
 * Nothing is saved. x [...,inputs], W [outputs,inputs], b [outputs] or none, y [...,outputs]; all leading dimensions of x count as rows. W may be stored as in a file, in parts whose outputs lie
 * side by side: it has no gradient then, and the products bring it to f32 a piece at a time. */
#include "elements.h"

#include "../kern/gemm.h"
#include "../kern/matrix.h"

enum { X, W, B };

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[X], *w = node->in[W], *b = node->in[B];
  char text[3][HD_SHAPE_LENGTH];
  HD_REQUIRE(w->ndim == 2 && hd_columns(x) == w->dim[1] && (!b || (b->ndim == 1 && b->dim[0] == w->dim[0])), context, HEED_E_SHAPE,
             "linear: x %s, w %s, b %s: allowed [...,inputs], [outputs,inputs], [outputs]", hd_tensor_shape(x, text[0]),
             hd_tensor_shape(w, text[1]), b ? hd_tensor_shape(b, text[2]) : "none");
  hd_shape_like(node, x);
  node->out->dim[x->ndim - 1] = w->dim[0];
  return HEED_OK;
}

static hd_rectangle rows_of(const float *data, int64_t stride) { return (hd_rectangle){(float *)data, HEED_F32, stride, 1}; }
static hd_rectangle transposed(const float *data, int64_t stride) { return (hd_rectangle){(float *)data, HEED_F32, 1, stride}; }

static heed_status forward_stored(heed_context *context, const hd_node *node, int64_t rows) {
  const heed_tensor *x = node->in[X], *w = node->in[W];
  const float *bias = node->in[B] ? hd_value(node->in[B]) : NULL;
  for (int64_t part = 0, at = 0; part < w->stored_parts; at += w->stored[part++].outputs)
    HD_TRY(hd_matrix_product(context, &w->stored[part], hd_value(x), rows, w->dim[1], bias ? bias + at : NULL, hd_value(node->out) + at,
                             w->dim[0]));
  return HEED_OK;
}

/* A part's chains begin where those of the part before it end. */
static heed_status backward_stored(heed_context *context, const hd_node *node, int64_t rows, bool add, float *to) {
  const heed_tensor *w = node->in[W];
  for (int64_t part = 0, at = 0; part < w->stored_parts; at += w->stored[part++].outputs)
    HD_TRY(hd_matrix_product_turned(context, &w->stored[part], hd_upstream(node) + at, rows, w->dim[0], add || part > 0, to, w->dim[1]));
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  const heed_tensor *x = node->in[X], *w = node->in[W], *b = node->in[B];
  int64_t outputs = w->dim[0], inputs = w->dim[1];
  if (w->stored) return forward_stored(context, node, hd_count(node->out) / HD_MAX(outputs, 1));
  const hd_gemm_call call = {.rows = hd_count(node->out) / HD_MAX(outputs, 1),
                             .outputs = outputs,
                             .inputs = inputs,
                             .a = rows_of(hd_value(x), inputs),
                             .b = transposed(hd_value(w), inputs),
                             .c = rows_of(hd_value(node->out), outputs),
                             .bias = b ? rows_of(hd_value(b), outputs) : (hd_rectangle){0}};
  return hd_gemm(context, &call);
}

static heed_status backward(heed_context *context, const hd_node *node) {
  const heed_tensor *x = node->in[X], *w = node->in[W];
  int64_t outputs = w->dim[0], inputs = w->dim[1], rows = hd_count(node->out) / HD_MAX(outputs, 1);
  const float *dy = hd_upstream(node);
  bool add;
  float *to;
  if ((to = hd_gradient(node, X, &add)) && w->stored) HD_TRY(backward_stored(context, node, rows, add, to));
  else if (to)
    HD_TRY(hd_gemm(context, &(hd_gemm_call){.rows = rows,
                                            .outputs = inputs,
                                            .inputs = outputs,
                                            .a = rows_of(dy, outputs),
                                            .b = rows_of(hd_value(w), inputs),
                                            .c = rows_of(to, inputs),
                                            .accumulate = add}));
  if ((to = hd_gradient(node, W, &add)))
    HD_TRY(hd_gemm(context, &(hd_gemm_call){.rows = outputs,
                                            .outputs = inputs,
                                            .inputs = rows,
                                            .a = transposed(dy, outputs),
                                            .b = rows_of(hd_value(x), inputs),
                                            .c = rows_of(to, inputs),
                                            .accumulate = add}));
  if ((to = hd_gradient(node, B, &add)))
    hd_sum_rows(context, &(hd_sums){.x = dy, .out = to, .outer = 1, .rows = rows, .columns = outputs, .accumulate = add});
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  int64_t outputs = node->in[W]->dim[0], inputs = node->in[W]->dim[1];
  for (int64_t at = 0; at < hd_count(node->out); at++) {
    int64_t r = at / outputs, o = at % outputs;
    out[at] = in[B] ? in[B][o] : 0;
    for (int64_t i = 0; i < inputs; i++) out[at] += in[X][r * inputs + i] * in[W][o * inputs + i];
  }
}

static void sample(hd_sample *s) {
  s->inputs = 3;
  hd_sample_shape(s, &s->in[X], 40);
  s->in[W] = (hd_sample_input){.ndim = 2, .dim = {hd_sample_pick(s, 1, 70), s->in[X].dim[s->in[X].ndim - 1]}};
  if (hd_sample_pick(s, 0, 1)) hd_sample_store(s, &s->in[W]);
  s->in[X].dim[s->in[X].ndim - 1] = s->in[W].dim[1];
  s->in[B] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {s->in[W].dim[0]}};
}

HD_OPERATION(linear, .output_unread = true, .stored = 1 << W);

heed_tensor *heed_tape_linear(heed_tape *tape, heed_tensor *x, heed_tensor *w, heed_tensor *b) {
  return hd_tape_apply(tape, &hd_op_linear, 3, (heed_tensor *[]){x, w, b}, 2, NULL);
}
