/* activate.c: activations, alone and as gates.
 *
 *   activate  y = act(x)                dx = dy · act'(x)
 *   gate      y = act(g) · u            dg = dy · u · act'(g)      du = dy · act(g)      where a row of x is [g | u]
 * Nothing is saved: backward works from x. activate: y as x. gate: x [...,2f], y [...,f]. */
#include "elements.h"

typedef struct settings {
  heed_activation kind;
} settings;

enum { KINDS = HEED_ACTIVATION_SIGMOID + 1 };

static heed_activation kind_of(const hd_node *node) { return ((const settings *)node->options)->kind; }

static heed_status check(heed_context *context, const hd_node *node) {
  const int kind = (int)kind_of(node);
  HD_REQUIRE(kind >= 0 && kind < KINDS, context, HEED_E_ARGUMENT, "%s: there is no activation %d", node->operation->name, kind);
  return HEED_OK;
}

/* act(x) in double precision. */
static double formula(heed_activation kind, double x) {
  switch (kind) {
  case HEED_ACTIVATION_RELU: return fmax(x, 0);
  case HEED_ACTIVATION_SILU: return x / (1 + exp(-x));
  case HEED_ACTIVATION_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); // √(2/π)
  case HEED_ACTIVATION_GELU: return 0.5 * x * erfc(-x * 0.7071067811865476);
  case HEED_ACTIVATION_TANH: return tanh(x);
  case HEED_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
  }
  return NAN;
}

/* Spread so far that both tails are met; apart from 0, where relu has its kink. */
static void sample_kind(hd_sample *s) {
  hd_sample_sizes(s, &s->in[0]);
  s->inputs = 1;
  s->in[0].spread = 3;
  s->in[0].apart = 0.001;
  *(settings *)s->options = (settings){(heed_activation)hd_sample_pick(s, 0, KINDS - 1)};
}

/* ---- activate ------------------------------------------------------------------------------------------------------------------------ */

static heed_status activate_shape(heed_context *context, hd_node *node) {
  HD_TRY(check(context, node));
  hd_shape_like(node, node->in[0]);
  return HEED_OK;
}

static void activate(const hd_elements *e, int64_t first, int64_t n) {
  e->kernels->activate(kind_of(e->node), e->a + first, NULL, n, e->out + first);
}

static heed_status activate_forward(heed_context *context, const hd_node *node) {
  hd_elements_run(
      context,
      &(hd_elements){
          .work = activate, .rows = hd_count(node->out), .width = 1, .node = node, .a = hd_value(node->in[0]), .out = hd_value(node->out)});
  return HEED_OK;
}

static void activate_back(const hd_elements *e, int64_t first, int64_t n) {
  const hd_activation_gradient g = {
      .kind = kind_of(e->node), .x = e->a + first, .dy = e->b + first, .dx = e->out + first, .accumulate = e->accumulate};
  e->kernels->activate_backward(&g, n);
}

static heed_status activate_backward(heed_context *context, const hd_node *node) {
  hd_elements e = {
      .work = activate_back, .rows = hd_count(node->out), .width = 1, .node = node, .a = hd_value(node->in[0]), .b = hd_upstream(node)};
  if ((e.out = hd_gradient(node, 0, &e.accumulate))) hd_elements_run(context, &e);
  return HEED_OK;
}

static void activate_reference(const hd_node *node, const double *const *in, double *out) {
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = formula(kind_of(node), in[0][i]);
}

const hd_operation hd_op_activate = {.name = "activate",
                                     .options = sizeof(settings),
                                     .shape = activate_shape,
                                     .forward = activate_forward,
                                     .backward = activate_backward,
                                     .output_unread = true,
                                     .reference = activate_reference,
                                     .sample = sample_kind};

heed_tensor *heed_tape_activate(heed_tape *tape, heed_tensor *x, heed_activation kind) {
  return hd_tape_apply(tape, &hd_op_activate, 1, &x, 1, &(settings){kind});
}

/* ---- gate ------------------------------------------------------------------------------------------------------------------------------ */

static heed_status gate_shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[0];
  char text[HD_SHAPE_LENGTH];
  HD_TRY(check(context, node));
  HD_REQUIRE(hd_columns(x) % 2 == 0, context, HEED_E_SHAPE, "gate: x %s, allowed an even last dimension", hd_tensor_shape(x, text));
  hd_shape_like(node, x);
  node->out->dim[x->ndim - 1] /= 2;
  return HEED_OK;
}

static void gate(const hd_elements *e, int64_t first, int64_t rows) {
  for (int64_t r = first; r < first + rows; r++) {
    const float *g = e->a + r * 2 * e->width;
    e->kernels->activate(kind_of(e->node), g, g + e->width, e->width, e->out + r * e->width);
  }
}

static heed_status gate_forward(heed_context *context, const hd_node *node) {
  hd_elements_run(context, &(hd_elements){.work = gate,
                                          .rows = hd_rows(node->out),
                                          .width = hd_columns(node->out),
                                          .node = node,
                                          .a = hd_value(node->in[0]),
                                          .out = hd_value(node->out)});
  return HEED_OK;
}

static void gate_back(const hd_elements *e, int64_t first, int64_t rows) {
  for (int64_t r = first; r < first + rows; r++) {
    const float *g = e->a + r * 2 * e->width;
    float *dg = e->out + r * 2 * e->width;
    const hd_activation_gradient gradient = {.kind = kind_of(e->node),
                                             .x = g,
                                             .gate = g + e->width,
                                             .dy = e->b + r * e->width,
                                             .dx = dg,
                                             .dgate = dg + e->width,
                                             .accumulate = e->accumulate};
    e->kernels->activate_backward(&gradient, e->width);
  }
}

static heed_status gate_backward(heed_context *context, const hd_node *node) {
  hd_elements e = {.work = gate_back,
                   .rows = hd_rows(node->out),
                   .width = hd_columns(node->out),
                   .node = node,
                   .a = hd_value(node->in[0]),
                   .b = hd_upstream(node)};
  if ((e.out = hd_gradient(node, 0, &e.accumulate))) hd_elements_run(context, &e);
  return HEED_OK;
}

static void gate_reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t width = hd_columns(node->out);
  for (int64_t i = 0; i < hd_count(node->out); i++) {
    const double *g = in[0] + i / width * 2 * width + i % width;
    out[i] = formula(kind_of(node), g[0]) * g[width];
  }
}

static void gate_sample(hd_sample *s) {
  sample_kind(s);
  s->in[0].dim[s->in[0].ndim - 1] *= 2;
}

const hd_operation hd_op_gate = {.name = "gate",
                                 .options = sizeof(settings),
                                 .shape = gate_shape,
                                 .forward = gate_forward,
                                 .backward = gate_backward,
                                 .output_unread = true,
                                 .reference = gate_reference,
                                 .sample = gate_sample};

heed_tensor *heed_tape_gate(heed_tape *tape, heed_tensor *x, heed_activation kind) {
  return hd_tape_apply(tape, &hd_op_gate, 1, &x, 1, &(settings){kind});
}
