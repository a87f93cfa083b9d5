/* sum.c: sums and means over one axis or over everything.
 *
 *   y[o][i] = f Σ_a x[o][a][i]      dx[o][a][i] = f dy[o][i]      f = 1, or one over the number of terms
 * Nothing is saved. Where the terms are neighbours, blocks of 4096 follow the tree of 16 lanes and are added in order in double precision; otherwise a in ascending order. */
#include "elements.h"

enum { BLOCK = 4096 };

typedef struct settings {
  int axis; /* or HEED_ALL_AXES */
} settings;

/* x as [outer,terms,inner]. */
typedef struct cut {
  int64_t outer, terms, inner;
  float factor;
} cut;

static cut cut_of(const hd_node *node) {
  const heed_tensor *x = node->in[0];
  const int axis = ((const settings *)node->options)->axis;
  cut c = {.outer = 1, .terms = hd_count(x), .inner = 1};
  if (axis != HEED_ALL_AXES) {
    c.terms = x->dim[axis];
    hd_around_axis(x, axis, &c.outer, &c.inner);
  }
  c.factor = node->operation == &hd_op_mean ? (float)(1 / (double)c.terms) : 1;
  return c;
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[0];
  const int axis = ((const settings *)node->options)->axis;
  char text[HD_SHAPE_LENGTH];
  if (axis != HEED_ALL_AXES) HD_TRY(hd_require_axis(context, node, x, axis));
  HD_REQUIRE(node->operation != &hd_op_mean || cut_of(node).terms, context, HEED_E_SHAPE, "mean: x %s has nothing to average",
             hd_tensor_shape(x, text));
  node->out->ndim = 0;
  for (int i = 0; i < x->ndim && axis != HEED_ALL_AXES; i++)
    if (i != axis) node->out->dim[node->out->ndim++] = x->dim[i];
  if (!node->out->ndim) node->out->dim[node->out->ndim++] = 1;
  return HEED_OK;
}

static double total(const hd_kernels *kernels, const float *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += BLOCK) sum += (double)kernels->sum(x + i, HD_MIN(n - i, BLOCK));
  return sum;
}

static void sum_piece(const hd_row_work *w, int64_t piece, int64_t from, int64_t to) {
  ((double *)w->sums)[piece] = total(w->kernels, hd_value(w->node->in[0]) + from, to - from);
}

static void sum_all(heed_context *context, const hd_node *node, const cut *c) {
  double sums[HD_PIECES], sum = 0;
  hd_row_work work = {.node = node, .piece = sum_piece, .rows = c->terms, .columns = 1, .sums = sums};
  hd_row_run(context, &work);
  for (int64_t i = 0; i < hd_row_pieces(&work); i++) sum += sums[i];
  hd_value(node->out)[0] = (float)sum * c->factor;
}

static void sum_neighbours(const hd_elements *e, int64_t first, int64_t rows) {
  for (int64_t r = first; r < first + rows; r++) e->out[r] = (float)total(e->kernels, e->a + r * e->width, e->width) * e->factor;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  const cut c = cut_of(node);
  const float *x = hd_value(node->in[0]);
  float *out = hd_value(node->out);
  if (c.inner == 1 && c.outer == 1) {
    sum_all(context, node, &c);
  } else if (c.inner == 1) {
    hd_elements_run(context,
                    &(hd_elements){.work = sum_neighbours, .rows = c.outer, .width = c.terms, .a = x, .out = out, .factor = c.factor});
  } else {
    hd_sum_rows(context, &(hd_sums){.x = x, .out = out, .outer = c.outer, .rows = c.terms, .columns = c.inner});
    if (c.factor != 1) hd_elements_scale(context, out, c.factor, hd_count(node->out), false, out);
  }
  return HEED_OK;
}

/* Each number of dy to `terms` neighbours; a piece may begin and end among them. */
static void spread(const hd_elements *e, int64_t first, int64_t n) {
  const int64_t terms = cut_of(e->node).terms;
  for (int64_t i = first; i < first + n; i++) {
    float value = e->factor * e->a[i / terms];
    e->out[i] = e->accumulate ? e->out[i] + value : value;
  }
}

/* Each row of dy to `terms` rows. */
static void repeat(const hd_elements *e, int64_t first, int64_t rows) {
  const int64_t terms = cut_of(e->node).terms;
  for (int64_t r = first; r < first + rows; r++)
    e->kernels->scale(e->a + r / terms * e->width, e->factor, e->width, e->accumulate, e->out + r * e->width);
}

static heed_status backward(heed_context *context, const hd_node *node) {
  const cut c = cut_of(node);
  hd_elements e = {.node = node, .a = hd_upstream(node), .factor = c.factor, .width = c.inner, .rows = c.outer * c.terms};
  e.work = c.inner == 1 ? spread : repeat;
  if ((e.out = hd_gradient(node, 0, &e.accumulate))) hd_elements_run(context, &e);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const cut c = cut_of(node);
  for (int64_t at = 0; at < hd_count(node->out); at++) {
    out[at] = 0;
    for (int64_t a = 0; a < c.terms; a++) out[at] += in[0][(at / c.inner * c.terms + a) * c.inner + at % c.inner];
    if (node->operation == &hd_op_mean) out[at] /= (double)c.terms;
  }
}

static void sample(hd_sample *s) {
  s->inputs = 1;
  hd_sample_sizes(s, &s->in[0]);
  *(settings *)s->options = (settings){(int)hd_sample_pick(s, HEED_ALL_AXES, s->in[0].ndim - 1)};
}

HD_OPERATION(sum, .options = sizeof(settings), .output_unread = true);
HD_OPERATION(mean, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_sum(heed_tape *tape, heed_tensor *x, int axis) {
  return hd_tape_apply(tape, &hd_op_sum, 1, &x, 1, &(settings){axis});
}

heed_tensor *heed_tape_mean(heed_tape *tape, heed_tensor *x, int axis) {
  return hd_tape_apply(tape, &hd_op_mean, 1, &x, 1, &(settings){axis});
}
