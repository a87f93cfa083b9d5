/* norm.c: LayerNorm (Ba, Kiros & Hinton 2016) and RMSNorm (Zhang & Sennrich 2019), row by row over the last dimension.
 *
 *   layer_norm   x̂ = (x − mean(x)) / √(variance(x) + ε)     rms_norm   x̂ = x / √(mean(x²) + ε)
 *   y = x̂ · w + b                                            without b
 *   dx = (g − mean(g) − x̂ mean(g x̂)) / √(…)  with g = dy · w; mean(g) in layer_norm only
 *   dw[c] = Σ_r dy[r][c] x̂[r][c]      db[c] = Σ_r dy[r][c]
 * The sums over rows are those of blocks of rows, merged in order. Saved: of each row what was taken off and 1 / √(…), and room for the sums of the blocks.
 * x [...,columns], w and b [columns] or none, y as x. */
#include "elements.h"

enum { X, W, B };
enum { BLOCKS = 32 };

static bool centered(const hd_node *node) { return node->operation == &hd_op_layer_norm; }
static float epsilon(const hd_node *node) { return (float)*(const double *)node->options; }

static hd_row_work work_of(const hd_node *node) {
  return (hd_row_work){.node = node, .rows = hd_rows(node->in[X]), .columns = hd_columns(node->in[X]), .most = BLOCKS};
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[X], *w = node->in[W], *b = node->inputs > B ? node->in[B] : NULL;
  const char *name = node->operation->name;
  const int64_t n = hd_columns(x);
  char text[3][HD_SHAPE_LENGTH];
  HD_REQUIRE(x->type == HEED_F32, context, HEED_E_TYPE, "%s: x is %s, allowed f32", name, heed_type_name(x->type));
  HD_REQUIRE((!w || (w->ndim == 1 && w->dim[0] == n)) && (!b || (b->ndim == 1 && b->dim[0] == n)), context, HEED_E_SHAPE,
             "%s: x %s, weight %s, bias %s: allowed [...,columns], [columns], [columns]", name, hd_tensor_shape(x, text[0]),
             w ? hd_tensor_shape(w, text[1]) : "none", b ? hd_tensor_shape(b, text[2]) : "none");
  HD_REQUIRE(epsilon(node) > 0 && isfinite(epsilon(node)), context, HEED_E_ARGUMENT, "%s: epsilon %g, allowed above 0", name,
             *(const double *)node->options);
  hd_shape_like(node, x);
  const hd_row_work work = work_of(node);
  node->saved_floats = 2 * work.rows + 2 * n * hd_row_pieces(&work);
  return HEED_OK;
}

static void forward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  (void)piece;
  const hd_node *node = w->node;
  const float *weight = node->in[W] ? hd_value(node->in[W]) : NULL;
  const float *bias = node->inputs > B && node->in[B] ? hd_value(node->in[B]) : NULL;
  for (int64_t r = from; r < to; r++) {
    const float *x = hd_value(node->in[X]) + r * w->columns;
    float *y = hd_value(node->out) + r * w->columns, *kept = node->saved ? node->saved + 2 * r : NULL;
    if (centered(node)) w->kernels->layer_norm(x, weight, bias, w->columns, epsilon(node), y, kept);
    else w->kernels->rms_norm(x, weight, w->columns, epsilon(node), y, kept);
  }
}

static heed_status forward(heed_context *context, const hd_node *node) {
  hd_row_work work = work_of(node);
  work.piece = forward_piece;
  hd_row_run(context, &work);
  return HEED_OK;
}

/* What the block's rows add to dw (of = 0) and db (of = 1). */
static float *block_sum(const hd_node *node, int64_t block, int of) {
  return node->saved + 2 * hd_rows(node->in[X]) + (2 * block + of) * hd_columns(node->in[X]);
}

static bool wanted(const hd_node *node, int i) { return node->inputs > i && node->in[i] && node->in[i]->buffer->wants; }

static void backward_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  const hd_node *node = w->node;
  const int64_t at = from * w->columns;
  memset(block_sum(node, piece, 0), 0, (size_t)(2 * w->columns) * sizeof(float));
  w->kernels->norm_backward(&(hd_norm_gradient){.rows = to - from,
                                                .columns = w->columns,
                                                .x = hd_value(node->in[X]) + at,
                                                .dy = hd_upstream(node) + at,
                                                .kept = node->saved + 2 * from,
                                                .weight = node->in[W] ? hd_value(node->in[W]) : NULL,
                                                .centered = centered(node),
                                                .accumulate = w->add,
                                                .dx = w->gradient ? w->gradient + at : NULL,
                                                .dweight = wanted(node, W) ? block_sum(node, piece, 0) : NULL,
                                                .dbias = wanted(node, B) ? block_sum(node, piece, 1) : NULL});
}

static void merge(const hd_row_work *w, int of, float *to, bool add) {
  const int64_t pieces = hd_row_pieces(w);
  if (!pieces && !add) memset(to, 0, (size_t)w->columns * sizeof *to);
  if (!pieces) return;
  for (int64_t i = 1; i < pieces; i++)
    w->kernels->add(block_sum(w->node, 0, of), block_sum(w->node, i, of), w->columns, block_sum(w->node, 0, of));
  if (add) w->kernels->add(to, block_sum(w->node, 0, of), w->columns, to);
  else memcpy(to, block_sum(w->node, 0, of), (size_t)w->columns * sizeof *to);
}

static heed_status backward(heed_context *context, const hd_node *node) {
  hd_row_work work = work_of(node);
  float *to;
  bool add;
  work.piece = backward_piece;
  work.gradient = hd_gradient(node, X, &work.add);
  hd_row_run(context, &work);
  if ((to = hd_gradient(node, W, &add))) merge(&work, 0, to, add);
  if (node->inputs > B && (to = hd_gradient(node, B, &add))) merge(&work, 1, to, add);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t n = hd_columns(node->in[X]);
  for (int64_t r = 0; r < hd_rows(node->in[X]); r++) {
    const double *x = in[X] + r * n;
    double mean = 0, square = 0;
    for (int64_t c = 0; c < n && centered(node); c++) mean += x[c] / (double)n;
    for (int64_t c = 0; c < n; c++) square += (x[c] - mean) * (x[c] - mean) / (double)n;
    for (int64_t c = 0; c < n; c++) {
      out[r * n + c] = (x[c] - mean) / sqrt(square + epsilon(node)) * (in[W] ? in[W][c] : 1);
      if (node->inputs > B && in[B]) out[r * n + c] += in[B][c];
    }
  }
}

static void sample_of(hd_sample *s, int inputs) {
  static const double choices[] = {1e-5, 1e-6, 1e-2};
  s->inputs = inputs;
  hd_sample_shape(s, &s->in[X], hd_sample_pick(s, 0, 5) ? 70 : 2000); // the long ones make several blocks
  s->in[X].offset = 0.5;
  // Of one or two numbers a norm leaves the sign, and the gradient is nothing but rounding.
  int64_t n = s->in[X].dim[s->in[X].ndim - 1] += 3;
  for (int i = W; i < inputs; i++)
    s->in[i] = (hd_sample_input){.absent = hd_sample_pick(s, 0, 2) == 0, .ndim = 1, .dim = {n}, .offset = i == W, .spread = 0.3};
  memcpy(s->options, &choices[hd_sample_pick(s, 0, 2)], sizeof *choices);
}

static void sample_layer_norm(hd_sample *s) { sample_of(s, 3); }
static void sample_rms_norm(hd_sample *s) { sample_of(s, 2); }

const hd_operation hd_op_layer_norm = {.name = "layer_norm",
                                       .options = sizeof(double),
                                       .shape = shape,
                                       .forward = forward,
                                       .backward = backward,
                                       .output_unread = true,
                                       .reference = reference,
                                       .sample = sample_layer_norm};
const hd_operation hd_op_rms_norm = {.name = "rms_norm",
                                     .options = sizeof(double),
                                     .shape = shape,
                                     .forward = forward,
                                     .backward = backward,
                                     .output_unread = true,
                                     .reference = reference,
                                     .sample = sample_rms_norm};

heed_tensor *heed_tape_layer_norm(heed_tape *tape, heed_tensor *x, heed_tensor *weight, heed_tensor *bias, double epsilon) {
  return hd_tape_apply(tape, &hd_op_layer_norm, 3, (heed_tensor *[]){x, weight, bias}, 1, &epsilon);
}

heed_tensor *heed_tape_rms_norm(heed_tape *tape, heed_tensor *x, heed_tensor *weight, double epsilon) {
  return hd_tape_apply(tape, &hd_op_rms_norm, 2, (heed_tensor *[]){x, weight}, 1, &epsilon);
}
