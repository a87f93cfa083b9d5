/* transpose.c: a copy with two axes exchanged.
 *
 *   y[o][b][m][a][i] = x[o][a][m][b][i]      dx the other way
 * Nothing is saved. Where the last axis is one of the two, tiles turn in registers; otherwise runs of the inner axes move whole. */
#include "elements.h"

typedef struct settings {
  int axis, other;
} settings;

/* from [outer,a,middle,b,inner] to [outer,b,middle,a,inner]. */
typedef struct exchange {
  hd_elements e;
  const float *from;
  float *to;
  int64_t outer, a, middle, b, inner;
  bool accumulate;
} exchange;

static void put(const exchange *x, const float *from, int64_t n, float *to) {
  if (x->accumulate) x->e.kernels->add(to, from, n, to);
  else memcpy(to, from, (size_t)n * sizeof *to);
}

static void move_runs(const hd_elements *e, int64_t first, int64_t rows) {
  const exchange *x = (const exchange *)e; // its first member
  for (int64_t r = first; r < first + rows; r++) {
    int64_t a = r % x->a, m = r / x->a % x->middle, b = r / x->a / x->middle % x->b, o = r / x->a / x->middle / x->b;
    put(x, x->from + (((o * x->a + a) * x->middle + m) * x->b + b) * x->inner, x->inner, x->to + r * x->inner);
  }
}

enum { TILE = 64 };

/* tile[b][a] = from[a · stride + b] */
static void turn(const exchange *x, const float *from, int64_t stride, int64_t na, int64_t nb, float tile[TILE][TILE]) {
  float *rows[TILE];
  int64_t whole = stride <= INT32_MAX ? nb / x->e.kernels->vector * x->e.kernels->vector : 0;
  for (int64_t b = 0; b < nb; b++) rows[b] = tile[b];
  if (whole) x->e.kernels->from_lanes(from, (int)stride, (int)whole, na, rows);
  for (int64_t b = whole; b < nb; b++)
    for (int64_t a = 0; a < na; a++) tile[b][a] = from[a * stride + b];
}

/* Inner is 1. A row is up to TILE values of b for one (outer, middle). */
static void move_tiles(const hd_elements *e, int64_t first, int64_t rows) {
  const exchange *x = (const exchange *)e;
  const int64_t across = hd_ceil_div(x->b, TILE);
  float tile[TILE][TILE];
  for (int64_t r = first; r < first + rows; r++) {
    int64_t b0 = r % across * TILE, nb = HD_MIN(x->b - b0, TILE), m = r / across % x->middle, o = r / across / x->middle;
    for (int64_t a0 = 0; a0 < x->a; a0 += TILE) {
      int64_t na = HD_MIN(x->a - a0, TILE);
      turn(x, x->from + ((o * x->a + a0) * x->middle + m) * x->b + b0, x->middle * x->b, na, nb, tile);
      for (int64_t b = 0; b < nb; b++) put(x, tile[b], na, x->to + ((o * x->b + b0 + b) * x->middle + m) * x->a + a0);
    }
  }
}

static void run(heed_context *context, exchange *x) {
  if (x->inner == 1) x->e = (hd_elements){.work = move_tiles, .rows = x->outer * x->middle * hd_ceil_div(x->b, TILE), .width = x->a * TILE};
  else x->e = (hd_elements){.work = move_runs, .rows = x->outer * x->b * x->middle * x->a, .width = x->inner};
  hd_elements_run(context, &x->e);
}

/* From the shape of the input; the axes in ascending order. */
static exchange of(const hd_node *node) {
  const settings *s = node->options;
  const heed_tensor *x = node->in[0];
  int low = HD_MIN(s->axis, s->other), high = HD_MAX(s->axis, s->other);
  exchange out = {.a = x->dim[low], .middle = 1, .b = low == high ? 1 : x->dim[high]};
  int64_t rest;
  hd_around_axis(x, low, &out.outer, &rest);
  hd_around_axis(x, high, &rest, &out.inner);
  for (int i = low + 1; i < high; i++) out.middle *= x->dim[i];
  return out;
}

static heed_status shape(heed_context *context, hd_node *node) {
  const settings *s = node->options;
  const heed_tensor *x = node->in[0];
  HD_TRY(hd_require_axis(context, node, x, s->axis));
  HD_TRY(hd_require_axis(context, node, x, s->other));
  hd_shape_like(node, x);
  node->out->dim[s->axis] = x->dim[s->other];
  node->out->dim[s->other] = x->dim[s->axis];
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  exchange x = of(node);
  x.from = hd_value(node->in[0]);
  x.to = hd_value(node->out);
  run(context, &x);
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  exchange x = of(node);
  int64_t a = x.a;
  x.a = x.b;
  x.b = a;
  x.from = hd_upstream(node);
  if ((x.to = hd_gradient(node, 0, &x.accumulate))) run(context, &x);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const settings *s = node->options;
  const heed_tensor *x = node->in[0], *y = node->out;
  for (int64_t i = 0; i < hd_count(y); i++) {
    int64_t at[HEED_MAX_DIM], rest = i, from = 0;
    for (int d = y->ndim - 1; d >= 0; d--) at[d] = rest % y->dim[d], rest /= y->dim[d];
    int64_t kept = at[s->axis];
    at[s->axis] = at[s->other];
    at[s->other] = kept;
    for (int d = 0; d < x->ndim; d++) from = from * x->dim[d] + at[d];
    out[i] = in[0][from];
  }
}

static void sample(hd_sample *s) {
  s->inputs = 1;
  s->in[0].ndim = (int)hd_sample_pick(s, 1, 4);
  for (int i = 0; i < s->in[0].ndim; i++) s->in[0].dim[i] = hd_sample_pick(s, 1, hd_sample_pick(s, 0, 2) ? 7 : 90);
  *(settings *)s->options = (settings){(int)hd_sample_pick(s, 0, s->in[0].ndim - 1), (int)hd_sample_pick(s, 0, s->in[0].ndim - 1)};
}

HD_OPERATION(transpose, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_transpose(heed_tape *tape, heed_tensor *x, int axis, int other) {
  return hd_tape_apply(tape, &hd_op_transpose, 1, &x, 1, &(settings){axis, other});
}
