/* slice.c: a copy of what lies at [begin, end) of one axis.
 *
 *   y[o][j] = x[o][begin + j]      dx is dy there, 0 elsewhere
 * Nothing is saved. */
#include "elements.h"

typedef struct settings {
  int axis;
  int64_t begin, end;
} settings;

static heed_status shape(heed_context *context, hd_node *node) {
  const settings *s = node->options;
  const heed_tensor *x = node->in[0];
  char text[HD_SHAPE_LENGTH];
  HD_TRY(hd_require_axis(context, node, x, s->axis));
  HD_REQUIRE(s->begin >= 0 && s->begin <= s->end && s->end <= x->dim[s->axis], context, HEED_E_ARGUMENT,
             "slice: [%lld,%lld) of axis %d of %s, allowed within [0,%lld)", (long long)s->begin, (long long)s->end, s->axis,
             hd_tensor_shape(x, text), (long long)x->dim[s->axis]);
  hd_shape_like(node, x);
  node->out->dim[s->axis] = s->end - s->begin;
  return HEED_OK;
}

static hd_axis_part part_of(const hd_node *node) {
  const settings *s = node->options;
  return hd_part_of_axis(node->in[0], s->axis, s->begin, s->end);
}

static heed_status forward(heed_context *context, const hd_node *node) {
  const hd_axis_part p = part_of(node);
  hd_runs_move(context, &(hd_runs){.from = hd_value(node->in[0]) + p.first,
                                   .to = hd_value(node->out),
                                   .rows = p.outer,
                                   .width = p.width,
                                   .from_stride = p.row,
                                   .to_stride = p.width});
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  const hd_axis_part p = part_of(node);
  const int64_t end = p.first + p.width;
  hd_runs runs = {.rows = p.outer, .to_stride = p.row, .from_stride = p.width};
  float *to = hd_gradient(node, 0, &runs.accumulate);
  if (!to) return HEED_OK;
  runs.to = to, runs.width = p.first;
  hd_runs_move(context, &runs);
  runs.to = to + end, runs.width = p.row - end;
  hd_runs_move(context, &runs);
  runs.to = to + p.first, runs.width = p.width, runs.from = hd_upstream(node);
  hd_runs_move(context, &runs);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const hd_axis_part p = part_of(node);
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = in[0][i / p.width * p.row + p.first + i % p.width];
}

static void sample(hd_sample *s) {
  settings *to = (settings *)s->options;
  s->inputs = 1;
  hd_sample_sizes(s, &s->in[0]);
  to->axis = (int)hd_sample_pick(s, 0, s->in[0].ndim - 1);
  to->begin = hd_sample_pick(s, 0, s->in[0].dim[to->axis] - 1);
  to->end = hd_sample_pick(s, to->begin + 1, s->in[0].dim[to->axis]);
}

HD_OPERATION(slice, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_slice(heed_tape *tape, heed_tensor *x, int axis, int64_t begin, int64_t end) {
  return hd_tape_apply(tape, &hd_op_slice, 1, &x, 1, &(settings){axis, begin, end});
}
