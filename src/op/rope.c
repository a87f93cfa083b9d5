/* rope.c: rotary positions on the tape: the first heads of each row turn, the other columns stay.
 *
 *   y = R(position) x per head      dx = R(position)ᵀ dy, the turn back
 * Nothing is saved. x [B,n,columns], or [n,columns]. Where nobody else has or will read x it turns in place. */
#include "elements.h"

typedef struct options {
  heed_rope rope;
  int64_t heads, width;
} options;

static heed_view heads_of(const hd_node *node, void *data, heed_type type) {
  const options *o = node->options;
  const heed_tensor *t = node->out;
  int64_t columns = hd_columns(t), rows = t->dim[t->ndim - 2], batch = t->ndim == 3 ? t->dim[0] : 1;
  return (heed_view){data, type, 4, {batch, o->heads, rows, o->width}, {rows * columns, o->width, columns, 1}};
}

static heed_status shape(heed_context *context, hd_node *node) {
  const options *o = node->options;
  const heed_tensor *x = node->in[0];
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE((x->ndim == 2 || x->ndim == 3) && o->heads >= 0 && o->width >= 0 && (o->width == 0 || o->heads <= hd_columns(x) / o->width),
             context, HEED_E_SHAPE, "rope: %lld heads of width %lld in x %s, allowed [B,n,heads · width or more]", (long long)o->heads,
             (long long)o->width, hd_tensor_shape(x, text));
  hd_shape_like(node, x);
  node->in_place = hd_may_change(node, 0);
  node->shares = node->in_place ? 1 : 0;
  return HEED_OK;
}

static heed_status turn(heed_context *context, const hd_node *node, float *data, bool back) {
  heed_rope rope = ((const options *)node->options)->rope;
  const heed_view heads = heads_of(node, data, HEED_F32);
  rope.inverse = rope.inverse != back;
  return heed_rope_apply(context, &rope, &heads, &heads);
}

static heed_status forward(heed_context *context, const hd_node *node) {
  if (!node->in_place && hd_count(node->out))
    memcpy(hd_value(node->out), hd_value(node->in[0]), (size_t)hd_count(node->out) * sizeof(float));
  return turn(context, node, hd_value(node->out), false);
}

static heed_status backward(heed_context *context, const hd_node *node) {
  bool add = false;
  float *dy = node->out->buffer->gradient;
  HD_TRY(turn(context, node, dy, true)); // dy is this node's own, or x's gradient itself
  if (node->in_place) return HEED_OK;
  float *dx = hd_gradient(node, 0, &add);
  if (dx) hd_elements_pass(context, dy, hd_count(node->out), add, dx);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  memcpy(out, in[0], (size_t)hd_count(node->out) * sizeof *out);
  const heed_view heads = heads_of(node, out, HEED_F64), from = heads_of(node, (double *)in[0], HEED_F64);
  heed_rope_reference(hd_tape_context(node->tape), &((const options *)node->options)->rope, &from, &heads);
}

static void sample(hd_sample *s) {
  options *o = (options *)s->options;
  *o = (options){.rope = {.size = sizeof o->rope, .interleaved = hd_sample_pick(s, 0, 1), .offset = hd_sample_pick(s, 0, 5)},
                 .heads = hd_sample_pick(s, 1, 3),
                 .width = 2 * hd_sample_pick(s, 1, 12)};
  s->inputs = 1;
  s->in[0] = (hd_sample_input){.ndim = 3,
                               .dim = {hd_sample_pick(s, 1, 2), hd_sample_pick(s, 1, 9), o->heads * o->width + hd_sample_pick(s, 0, 5)}};
}

HD_OPERATION(rope, .options = sizeof(options), .output_unread = true);

heed_tensor *heed_tape_rope(heed_tape *tape, const heed_rope *rope, int64_t heads, int64_t width, heed_tensor *x) {
  options o = {.rope.size = sizeof o.rope, .heads = heads, .width = width};
  if (!tape || !hd_tape_note(tape, hd_options_read(hd_tape_context(tape), "heed_rope", rope, &o.rope, sizeof o.rope))) return NULL;
  return hd_tape_apply(tape, &hd_op_rope, 1, &x, 1, &o);
}
