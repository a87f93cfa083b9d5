/* softmax.c: rows that become positive and sum to one, and their logarithm, over the last dimension.
 *
 *   softmax       y[c] = e^(x[c] − m) / Σ_j e^(x[j] − m), m = max x      dx[c] = y[c] (dy[c] − Σ_j y[j] dy[j])
 *   log_softmax   y[c] = x[c] − m − log Σ_j e^(x[j] − m)                 dx[c] = dy[c] − e^y[c] Σ_j dy[j]
 * Nothing is saved: backward reads y. x and y [...,columns]. */
#include "elements.h"

static bool logarithm(const hd_node *node) { return node->operation == &hd_op_log_softmax; }

static hd_row_work work_of(const hd_node *node) {
  return (hd_row_work){.node = node, .rows = hd_rows(node->out), .columns = hd_columns(node->out)};
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[0];
  HD_REQUIRE(x->type == HEED_F32, context, HEED_E_TYPE, "%s: x is %s, allowed f32", node->operation->name, heed_type_name(x->type));
  hd_shape_like(node, x);
  return HEED_OK;
}

static void forward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  (void)piece;
  for (int64_t r = from; r < to; r++) {
    const float *x = hd_value(w->node->in[0]) + r * w->columns;
    float *y = hd_value(w->node->out) + r * w->columns;
    hd_softmax_sums sums;
    w->kernels->softmax_sums(x, w->columns, &sums);
    if (logarithm(w->node)) w->kernels->log_softmax(x, w->columns, sums.maximum, (float)log(sums.sum), y);
    else w->kernels->softmax_terms(x, w->columns, sums.maximum, (float)(1 / sums.sum), 0.0f, false, y);
  }
}

static heed_status forward(heed_context *context, const hd_node *node) {
  hd_row_work work = work_of(node);
  work.piece = forward_piece;
  hd_row_run(context, &work);
  return HEED_OK;
}

static void backward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  (void)piece;
  for (int64_t r = from; r < to; r++) {
    const float *y = hd_value(w->node->out) + r * w->columns, *dy = hd_upstream(w->node) + r * w->columns;
    float *dx = w->gradient + r * w->columns;
    if (logarithm(w->node)) w->kernels->log_softmax_backward(y, dy, w->columns, w->add, dx);
    else w->kernels->softmax_backward(y, dy, w->columns, w->add, dx);
  }
}

static heed_status backward(heed_context *context, const hd_node *node) {
  hd_row_work work = work_of(node);
  work.piece = backward_piece;
  if ((work.gradient = hd_gradient(node, 0, &work.add))) hd_row_run(context, &work);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t n = hd_columns(node->out);
  for (int64_t r = 0; r < hd_rows(node->out); r++) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += exp(in[0][r * n + c]);
    for (int64_t c = 0; c < n; c++) out[r * n + c] = logarithm(node) ? in[0][r * n + c] - log(sum) : exp(in[0][r * n + c]) / sum;
  }
}

static void sample(hd_sample *s) {
  s->inputs = 1;
  hd_sample_shape(s, &s->in[0], hd_sample_pick(s, 0, 5) ? 70 : 2000);
  s->in[0].spread = hd_sample_pick(s, 0, 1) ? 1 : 4;
}

HD_OPERATION(softmax);
HD_OPERATION(log_softmax);

heed_tensor *heed_tape_softmax(heed_tape *tape, heed_tensor *x) {
  return hd_tape_apply(tape, &hd_op_softmax, 1, (heed_tensor *[]){x}, 1, NULL);
}

heed_tensor *heed_tape_log_softmax(heed_tape *tape, heed_tensor *x) {
  return hd_tape_apply(tape, &hd_op_log_softmax, 1, (heed_tensor *[]){x}, 1, NULL);
}
