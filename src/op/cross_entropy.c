/* cross_entropy.c: how badly logits foretell their targets, averaged over the rows that have one.
 *
 *   p[r] = softmax(x[r])      q[r][c] = (1 − ε) [c = t[r]] + ε / classes
 *   y = −1/n Σ_r Σ_c q[r][c] log p[r][c]        over the n rows whose target is not to be ignored; 0 where there is none
 *   dx[r][c] = dy / n (p[r][c] − q[r][c])       0 in rows that are ignored
 * Saved: of each row its maximum and 1 / Σ e^(x − maximum); the probabilities are rebuilt from them. x [...,classes], t [...] i32, y [1]; ε is the label smoothing. */
#include "list.h"

#include "rows.h"

enum { X, TARGETS };

static int32_t ignored(const hd_node *node) {
  const heed_cross_entropy_options *options = node->options;
  return options->has_ignore ? options->ignore : -1;
}

static double smoothing(const hd_node *node) { return ((const heed_cross_entropy_options *)node->options)->smoothing; }

static heed_status check_targets(heed_context *context, const hd_node *node) {
  const heed_tensor *t = node->in[TARGETS];
  int64_t classes = hd_columns(node->in[X]);
  for (int64_t r = 0; r < hd_count(t); r++)
    HD_REQUIRE((hd_index(t)[r] >= 0 && hd_index(t)[r] < classes) || hd_index(t)[r] == ignored(node), context, HEED_E_ARGUMENT,
               "cross_entropy: target %lld is %d: allowed [0,%lld), and %d to be ignored", (long long)r, hd_index(t)[r], (long long)classes,
               ignored(node));
  return HEED_OK;
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[X], *t = node->in[TARGETS];
  char text[2][HD_SHAPE_LENGTH];
  bool one = x->ndim == 1 && t->ndim == 1 && t->dim[0] == 1;
  HD_REQUIRE(x->type == HEED_F32 && t->type == HEED_I32, context, HEED_E_TYPE, "cross_entropy: logits %s, targets %s: allowed f32, i32",
             heed_type_name(x->type), heed_type_name(t->type));
  HD_REQUIRE(one || (t->ndim == x->ndim - 1 && !memcmp(t->dim, x->dim, (size_t)t->ndim * sizeof *t->dim)), context, HEED_E_SHAPE,
             "cross_entropy: logits %s, targets %s: allowed [...,classes], [...]", hd_tensor_shape(x, text[0]),
             hd_tensor_shape(t, text[1]));
  HD_REQUIRE(smoothing(node) >= 0 && smoothing(node) < 1, context, HEED_E_ARGUMENT, "cross_entropy: smoothing %g, allowed [0,1)",
             smoothing(node));
  node->out->ndim = 1;
  node->out->dim[0] = 1;
  node->saved_floats = 2 * hd_count(t);
  return HEED_OK;
}

/* Rows that count. */
static int64_t counted(const hd_node *node) {
  const heed_tensor *t = node->in[TARGETS];
  int64_t n = 0;
  for (int64_t r = 0; r < hd_count(t); r++) n += hd_index(t)[r] != ignored(node);
  return n;
}

static void forward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  const hd_node *node = w->node;
  double loss = 0, e = smoothing(node);
  for (int64_t r = from; r < to; r++) {
    const float *x = hd_value(node->in[X]) + r * w->columns;
    const int32_t target = hd_index(node->in[TARGETS])[r];
    hd_softmax_sums sums;
    if (target == ignored(node)) continue;
    w->kernels->softmax_sums(x, w->columns, &sums);
    double log_sum = log(sums.sum), row = log_sum - ((double)x[target] - sums.maximum);
    if (e > 0) row = (1 - e) * row + e * (log_sum - (sums.total / (double)w->columns - sums.maximum));
    loss += row;
    if (!node->saved) continue;
    node->saved[2 * r] = sums.maximum;
    node->saved[2 * r + 1] = (float)(1 / sums.sum);
  }
  ((double *)w->sums)[piece] = loss;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  HD_TRY(check_targets(context, node));
  double part[HD_PIECES], loss = 0;
  const int64_t n = counted(node);
  hd_row_work work = {
      .node = node, .piece = forward_piece, .rows = hd_count(node->in[TARGETS]), .columns = hd_columns(node->in[X]), .sums = part};
  hd_row_run(context, &work);
  for (int64_t i = 0; i < hd_row_pieces(&work); i++) loss += part[i];
  hd_value(node->out)[0] = n ? (float)(loss / (double)n) : 0.0f;
  return HEED_OK;
}

static void backward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  (void)piece;
  const hd_node *node = w->node;
  const double e = smoothing(node), factor = *(const double *)w->sums;
  for (int64_t r = from; r < to; r++) {
    const int32_t target = hd_index(node->in[TARGETS])[r];
    float *dx = w->gradient + r * w->columns;
    if (target == ignored(node)) {
      if (!w->add) memset(dx, 0, (size_t)w->columns * sizeof *dx);
      continue;
    }
    w->kernels->softmax_terms(hd_value(node->in[X]) + r * w->columns, w->columns, node->saved[2 * r],
                              (float)(factor * node->saved[2 * r + 1]), (float)(-factor * e / (double)w->columns), w->add, dx);
    dx[target] -= (float)(factor * (1 - e));
  }
}

static heed_status backward(heed_context *context, const hd_node *node) {
  double factor = (double)hd_upstream(node)[0] / (double)HD_MAX(counted(node), 1);
  hd_row_work work = {
      .node = node, .piece = backward_piece, .rows = hd_count(node->in[TARGETS]), .columns = hd_columns(node->in[X]), .sums = &factor};
  if ((work.gradient = hd_gradient(node, X, &work.add))) hd_row_run(context, &work);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t classes = hd_columns(node->in[X]), n = counted(node);
  const double e = smoothing(node);
  out[0] = 0;
  for (int64_t r = 0; r < hd_count(node->in[TARGETS]); r++) {
    const double *x = in[X] + r * classes;
    const int32_t target = hd_index(node->in[TARGETS])[r];
    double sum = 0;
    if (target == ignored(node)) continue;
    for (int64_t c = 0; c < classes; c++) sum += exp(x[c]);
    for (int64_t c = 0; c < classes; c++) out[0] -= ((c == target) * (1 - e) + e / (double)classes) * (x[c] - log(sum)) / (double)n;
  }
}

static void sample(hd_sample *s) {
  heed_cross_entropy_options options = {.size = sizeof options};
  s->inputs = 2;
  hd_sample_shape(s, &s->in[X], hd_sample_pick(s, 0, 5) ? 70 : 3000);
  int ndim = s->in[X].ndim;
  s->in[TARGETS] = (hd_sample_input){.ndim = HD_MAX(ndim - 1, 1), .dim = {1}, .below = s->in[X].dim[ndim - 1], .floor = -1};
  for (int i = 0; i + 1 < ndim; i++) s->in[TARGETS].dim[i] = s->in[X].dim[i];
  s->in[X].spread = hd_sample_pick(s, 0, 1) ? 1 : 6;
  if (hd_sample_pick(s, 0, 2) == 0) options.smoothing = 0.1 * (double)hd_sample_pick(s, 1, 5);
  memcpy(s->options, &options, sizeof options);
}

HD_OPERATION(cross_entropy, .checks_types = true, .options = sizeof(heed_cross_entropy_options), .output_unread = true);

heed_tensor *heed_tape_cross_entropy(heed_tape *tape, heed_tensor *logits, heed_tensor *targets, const heed_cross_entropy_options *given) {
  heed_cross_entropy_options options = {.size = sizeof options};
  if (!tape || !hd_tape_note(tape, hd_options_read(hd_tape_context(tape), "heed_cross_entropy_options", given, &options, sizeof options)))
    return NULL;
  return hd_tape_apply(tape, &hd_op_cross_entropy, 2, (heed_tensor *[]){logits, targets}, 2, &options);
}
