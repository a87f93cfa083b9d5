/* scale.c: out = factor · x, the factor rounded to f32.
 *
 *   dx = factor · dout
 * Nothing is saved. out as x. */
#include "elements.h"

typedef struct settings {
  double factor;
} settings;

static float factor_of(const hd_node *node) { return (float)((const settings *)node->options)->factor; }

static heed_status shape(heed_context *context, hd_node *node) {
  HD_REQUIRE(isfinite(factor_of(node)), context, HEED_E_ARGUMENT, "scale: factor %g, allowed what is finite in f32",
             ((const settings *)node->options)->factor);
  hd_shape_like(node, node->in[0]);
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  hd_elements_scale(context, hd_value(node->in[0]), factor_of(node), hd_count(node->out), false, hd_value(node->out));
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  bool add;
  float *to = hd_gradient(node, 0, &add);
  if (to) hd_elements_scale(context, hd_upstream(node), factor_of(node), hd_count(node->out), add, to);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = in[0][i] * ((const settings *)node->options)->factor;
}

static void sample(hd_sample *s) {
  s->inputs = 1;
  hd_sample_sizes(s, &s->in[0]);
  *(settings *)s->options = (settings){(double)hd_sample_pick(s, -30, 30) / 7};
}

HD_OPERATION(scale, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_scale(heed_tape *tape, heed_tensor *x, double factor) {
  return hd_tape_apply(tape, &hd_op_scale, 1, &x, 1, &(settings){factor});
}
