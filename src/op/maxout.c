/* maxout.c: the largest of some neighbours.
 *
 *   y[i] = max over j < group of x[i · group + j]      dx = dy at the first place that has it, 0 elsewhere
 * Nothing is saved: backward looks again. x [...,columns], y [...,columns / group]. */
#include "elements.h"

typedef struct settings {
  int64_t group;
} settings;

static int64_t group_of(const hd_node *node) { return ((const settings *)node->options)->group; }

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *x = node->in[0];
  const int64_t group = group_of(node);
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE(group > 0 && hd_columns(x) % group == 0, context, HEED_E_SHAPE, "maxout: x %s, allowed columns in groups of %lld",
             hd_tensor_shape(x, text), (long long)group);
  hd_shape_like(node, x);
  node->out->dim[x->ndim - 1] /= group;
  return HEED_OK;
}

/* NaN stays: it is larger than nothing, so whatever comes first is kept beside it. */
static int64_t largest(const float *x, int64_t group) {
  int64_t best = 0;
  for (int64_t j = 1; j < group; j++)
    if (x[j] > x[best] || x[j] != x[j]) best = j;
  return best;
}

static void choose(const hd_elements *e, int64_t first, int64_t n) {
  const int64_t group = group_of(e->node);
  for (int64_t i = first; i < first + n; i++) e->out[i] = e->a[i * group + largest(e->a + i * group, group)];
}

static heed_status forward(heed_context *context, const hd_node *node) {
  hd_elements_run(
      context,
      &(hd_elements){
          .work = choose, .rows = hd_count(node->out), .width = 1, .node = node, .a = hd_value(node->in[0]), .out = hd_value(node->out)});
  return HEED_OK;
}

static void give_back(const hd_elements *e, int64_t first, int64_t n) {
  const int64_t group = group_of(e->node);
  for (int64_t i = first; i < first + n; i++) {
    float *dx = e->out + i * group;
    if (!e->accumulate) memset(dx, 0, (size_t)group * sizeof *dx);
    dx[largest(e->a + i * group, group)] += e->b[i];
  }
}

static heed_status backward(heed_context *context, const hd_node *node) {
  hd_elements e = {
      .work = give_back, .rows = hd_count(node->out), .width = 1, .node = node, .a = hd_value(node->in[0]), .b = hd_upstream(node)};
  if ((e.out = hd_gradient(node, 0, &e.accumulate))) hd_elements_run(context, &e);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const int64_t group = group_of(node);
  for (int64_t i = 0; i < hd_count(node->out); i++) {
    out[i] = in[0][i * group];
    for (int64_t j = 1; j < group; j++) out[i] = fmax(out[i], in[0][i * group + j]);
  }
}

static void sample(hd_sample *s) {
  const int64_t group = hd_sample_pick(s, 1, 4);
  s->inputs = 1;
  hd_sample_shape(s, &s->in[0], 60);
  s->in[0].dim[s->in[0].ndim - 1] *= group;
  s->in[0].spread = 30; // so that two that are nearly equal are rare
  *(settings *)s->options = (settings){group};
}

HD_OPERATION(maxout, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_maxout(heed_tape *tape, heed_tensor *x, int64_t group) {
  return hd_tape_apply(tape, &hd_op_maxout, 1, &x, 1, &(settings){group});
}
