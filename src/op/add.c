/* add.c: out = a + b, where b has a's shape or a trailing part of it and is then added to every such part of a.
 *
 *   out[r][j] = a[r][j] + b[j]      da = dout      db[j] = Σ_r dout[r][j]
 * Nothing is saved. a [...,b's shape], out as a. Where nobody else looks at b, out takes b's place: then dout is db already. */
#include "elements.h"

enum { A, B };

typedef struct options {
  bool b_ends; /* nobody will read b any more */
} options;

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *a = node->in[A], *b = node->in[B];
  char text[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(b->ndim <= a->ndim && !memcmp(a->dim + a->ndim - b->ndim, b->dim, (size_t)b->ndim * sizeof *b->dim), context, HEED_E_SHAPE,
             "add: a %s, b %s: allowed a's shape or its last dimensions", hd_tensor_shape(a, text[0]), hd_tensor_shape(b, text[1]));
  hd_shape_like(node, a);
  // out gets its gradient with b's buffer, so it must be one that wants what out wants.
  const options *o = node->options;
  node->in_place =
      o->b_ends && hd_may_change(node, B) && hd_count(a) == hd_count(b) && a->buffer != b->buffer && b->buffer->wants == node->recorded;
  node->shares = node->in_place ? B + 1 : 0;
  return HEED_OK;
}

/* A piece may begin and end in the middle of a part. */
static void add(const hd_elements *e, int64_t first, int64_t n) {
  const int64_t part = hd_count(e->node->in[B]), end = first + n;
  for (int64_t at = first, here; at < end; at += here) {
    here = HD_MIN(part - at % part, end - at);
    e->kernels->add(e->a + at, e->b + at % part, here, e->out + at);
  }
}

static heed_status forward(heed_context *context, const hd_node *node) {
  hd_elements_run(context, &(hd_elements){.work = add,
                                          .rows = hd_count(node->out),
                                          .width = 1,
                                          .node = node,
                                          .a = hd_value(node->in[A]),
                                          .b = hd_value(node->in[B]),
                                          .out = hd_value(node->out)});
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  const int64_t count = hd_count(node->out), part = hd_count(node->in[B]);
  bool add_up;
  float *to;
  if ((to = hd_gradient(node, A, &add_up))) hd_elements_pass(context, hd_upstream(node), count, add_up, to);
  if (node->in_place || !(to = hd_gradient(node, B, &add_up))) return HEED_OK;
  if (count == part) hd_elements_pass(context, hd_upstream(node), count, add_up, to);
  else
    hd_sum_rows(
        context,
        &(hd_sums){.x = hd_upstream(node), .out = to, .outer = 1, .rows = part ? count / part : 0, .columns = part, .accumulate = add_up});
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  for (int64_t i = 0; i < hd_count(node->out); i++) out[i] = in[A][i] + in[B][i % hd_count(node->in[B])];
}

static void sample(hd_sample *s) {
  s->inputs = 2;
  hd_sample_sizes(s, &s->in[A]);
  int dropped = (int)hd_sample_pick(s, 0, s->in[A].ndim - 1);
  s->in[B].ndim = s->in[A].ndim - dropped;
  memcpy(s->in[B].dim, s->in[A].dim + dropped, (size_t)s->in[B].ndim * sizeof *s->in[B].dim);
}

HD_OPERATION(add, .options = sizeof(options), .output_unread = true);

heed_tensor *heed_tape_add(heed_tape *tape, heed_tensor *a, heed_tensor *b) {
  return hd_tape_apply(tape, &hd_op_add, 2, (heed_tensor *[]){a, b}, 2, &(options){0});
}

heed_tensor *hd_tape_add_last(heed_tape *tape, heed_tensor *a, heed_tensor *b) {
  return hd_tape_apply(tape, &hd_op_add, 2, (heed_tensor *[]){a, b}, 2, &(options){.b_ends = true});
}
