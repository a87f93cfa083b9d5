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
    HD_TRY(hd_require_type(context, node, i, HEED_F32));
    for (int d = 0; d < first->ndim && same; d++) same = d == axis || part->dim[d] == first->dim[d];
    HD_REQUIRE(same && hd_add(node->out->dim[axis], part->dim[axis], &node->out->dim[axis]), context, HEED_E_SHAPE,
               "concat: part %d is %s, part 0 %s: allowed to differ along axis %d", i, hd_tensor_shape(part, text[0]),
               hd_tensor_shape(first, text[1]), axis);
  }
  return HEED_OK;
}

/* The place of each part in the rows of out, by turns. */
typedef struct place {
  int64_t outer, row, begin, width;
} place;

static place place_of(const hd_node *node, int i, const place *before) {
  place p = {.begin = before ? before->begin + before->width : 0};
  int64_t inner;
  hd_around_axis(node->out, axis_of(node), &p.outer, &inner);
  p.row = node->out->dim[axis_of(node)] * inner;
  p.width = node->in[i]->dim[axis_of(node)] * inner;
  return p;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  place p;
  for (int i = 0; i < node->inputs; i++) {
    p = place_of(node, i, i ? &p : NULL);
    hd_runs_move(context, &(hd_runs){.from = hd_value(node->in[i]),
                                     .to = hd_value(node->out) + p.begin,
                                     .rows = p.outer,
                                     .width = p.width,
                                     .from_stride = p.width,
                                     .to_stride = p.row});
  }
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  place p;
  for (int i = 0; i < node->inputs; i++) {
    p = place_of(node, i, i ? &p : NULL);
    hd_runs runs = {.from = hd_upstream(node) + p.begin, .rows = p.outer, .width = p.width, .from_stride = p.row, .to_stride = p.width};
    if ((runs.to = hd_gradient(node, i, &runs.accumulate))) hd_runs_move(context, &runs);
  }
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  place p;
  for (int i = 0; i < node->inputs; i++) {
    p = place_of(node, i, i ? &p : NULL);
    for (int64_t j = 0; j < hd_count(node->in[i]); j++) out[j / p.width * p.row + p.begin + j % p.width] = in[i][j];
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

const hd_operation hd_op_concat = {.name = "concat",
                                   .options = sizeof(settings),
                                   .shape = shape,
                                   .forward = forward,
                                   .backward = backward,
                                   .output_unread = true,
                                   .reference = reference,
                                   .sample = sample};

heed_tensor *heed_tape_concat(heed_tape *tape, int count, heed_tensor *const *parts, int axis) {
  heed_tensor *none = NULL;
  if (!parts || count < 0) parts = &none, count = 0;
  return hd_tape_apply(tape, &hd_op_concat, count, parts, count, &(settings){axis});
}
