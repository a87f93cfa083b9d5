/* mul.c: out = a · b, element by element.
 *
 *   da = dout · b      db = dout · a
 * Nothing is saved. a, b and out have one shape. */
#include "elements.h"

enum { A, B };

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *a = node->in[A], *b = node->in[B];
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(hd_tensor_same_shape(a, b), context, HEED_E_SHAPE, "mul: a %s, b %s: allowed one shape", hd_tensor_shape(a, text[0]),
             hd_tensor_shape(b, text[1]));
  hd_shape_like(node, a);
  return HEED_OK;
}

static void multiply(const hd_elements *e, int64_t first, int64_t n) {
  e->kernels->mul(e->a + first, e->b + first, n, e->accumulate, e->out + first);
}

static void run(heed_context *context, const hd_node *node, const float *a, const float *b, bool accumulate, float *out) {
  hd_elements_run(
      context,
      &(hd_elements){.work = multiply, .rows = hd_count(node->out), .width = 1, .a = a, .b = b, .out = out, .accumulate = accumulate});
}

static heed_status forward(heed_context *context, const hd_node *node) {
  run(context, node, hd_value(node->in[A]), hd_value(node->in[B]), false, hd_value(node->out));
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  bool add;
  float *to;
  if ((to = hd_gradient(node, A, &add))) run(context, node, hd_upstream(node), hd_value(node->in[B]), add, to);
  if ((to = hd_gradient(node, B, &add))) run(context, node, hd_upstream(node), hd_value(node->in[A]), add, to);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = in[A][i] * in[B][i];
}

static void sample(hd_sample *s) {
  s->inputs = 2;
  hd_sample_sizes(s, &s->in[A]);
  s->in[B] = s->in[A];
}

HD_OPERATION(mul, .output_unread = true);

heed_tensor *heed_tape_mul(heed_tape *tape, heed_tensor *a, heed_tensor *b) {
  return hd_tape_apply(tape, &hd_op_mul, 2, (heed_tensor *[]){a, b}, 2, NULL);
}
