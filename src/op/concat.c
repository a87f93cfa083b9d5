/* concat.c: parts one behind another along an axis. Each part gets its piece of dy. Nothing is saved. */
#include "elements.h"

typedef struct settings {
  int axis;
} settings;

static int axis_of(const hd_node *node) { return ((const settings *)node->options)->axis; }

static heed_status shape(heed_context *context, hd_node *node) {
  const int axis = axis_of(node);
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(node->inputs >= 1, context, HEED_E_ARGUMENT, "concat: there are no parts");
  const heed_tensor *first = node->in[0];
  HD_TRY(hd_require_axis(context, node, first, axis));
  hd_shape_like(node, first);
  node->out->dim[axis] = 0;
  for (int i = 0; i < node->inputs; i++) {
    const heed_tensor *part = node->in[i];
    bool same = part->ndim == first->ndim;
    for (int d = 0; d < first->ndim && same; d++) same = d == axis || part->dim[d] == first->dim[d];
    HD_REQUIRE(same && hd_add(node->out->dim[axis], part->dim[axis], &node->out->dim[axis]), context, HEED_E_SHAPE,
               "concat: part %d is %s, part 0 %s: allowed to differ along axis %d", i, hd_tensor_shape(part, text[0]),
               hd_tensor_shape(first, text[1]), axis);
  }
  return HEED_OK;
}

/* Where part i lies in out. */
static hd_axis_part place_of(const hd_node *node, int i) {
  const int axis = axis_of(node);
  int64_t begin = 0;
  for (int before = 0; before < i; before++) begin += node->in[before]->dim[axis];
  return hd_part_of_axis(node->out, axis, begin, begin + node->in[i]->dim[axis]);
}

static heed_status forward(heed_context *context, const hd_node *node) {
  for (int i = 0; i < node->inputs; i++) {
    const hd_axis_part p = place_of(node, i);
    hd_runs_move(context, &(hd_runs){.from = hd_value(node->in[i]),
                                     .to = hd_value(node->out) + p.first,
                                     .rows = p.outer,
                                     .width = p.width,
                                     .from_stride = p.width,
                                     .to_stride = p.row});
  }
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  for (int i = 0; i < node->inputs; i++) {
    const hd_axis_part p = place_of(node, i);
    hd_runs runs = {.from = hd_upstream(node) + p.first, .rows = p.outer, .width = p.width, .from_stride = p.row, .to_stride = p.width};
    if ((runs.to = hd_gradient(node, i, &runs.accumulate))) hd_runs_move(context, &runs);
  }
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  for (int i = 0; i < node->inputs; i++) {
    const hd_axis_part p = place_of(node, i);
    for (int64_t j = 0; j < hd_count(node->in[i]); j++) out[j / p.width * p.row + p.first + j % p.width] = in[i][j];
  }
}

static void sample(hd_sample *s) {
  settings *to = (settings *)s->options;
  s->inputs = (int)hd_sample_pick(s, 1, HD_SAMPLE_INPUTS);
  hd_sample_sizes(s, &s->in[0]);
  to->axis = (int)hd_sample_pick(s, 0, s->in[0].ndim - 1);
  for (int i = 1; i < s->inputs; i++) {
    s->in[i] = s->in[0];
    s->in[i].dim[to->axis] = hd_sample_pick(s, 1, 9);
  }
}

HD_OPERATION(concat, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_concat(heed_tape *tape, int count, heed_tensor *const *parts, int axis) {
  heed_tensor *none = NULL;
  if (!parts || count < 0) parts = &none, count = 0;
  return hd_tape_apply(tape, &hd_op_concat, count, parts, count, &(settings){axis});
}
