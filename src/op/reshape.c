/* reshape.c: the same numbers in another shape. The output shares the buffer, value and gradient, so there is nothing to do. */
#include "elements.h"

typedef struct settings {
  int ndim;
  int64_t dim[HEED_MAX_DIM]; /* at most one of them −1: what is left */
} settings;

static heed_status shape(heed_context *context, hd_node *node) {
  const settings *s = node->options;
  const heed_tensor *x = node->in[0];
  const heed_view asked = heed_view_of(NULL, HEED_F32, s->ndim, s->dim);
  char text[2][HD_SHAPE_LENGTH];
  int64_t known = 1;
  int open = -1;
  bool fits = true;
  for (int i = 0; i < s->ndim; i++) {
    if (s->dim[i] == -1 && open < 0) open = i;
    else fits = fits && hd_mul(known, s->dim[i], &known); // a second −1 does not fit either
  }
  node->out->ndim = s->ndim;
  memcpy(node->out->dim, s->dim, sizeof s->dim);
  if (fits && open >= 0 && known) {
    node->out->dim[open] = hd_count(x) / known;
    known *= node->out->dim[open];
    open = -1;
  }
  HD_REQUIRE(fits && open < 0 && known == hd_count(x), context, HEED_E_SHAPE, "reshape: %s to %s: not as many numbers",
             hd_tensor_shape(x, text[0]), hd_shape_text(&asked, text[1]));
  node->shares = 1;
  return HEED_OK;
}

static heed_status nothing(heed_context *context, const hd_node *node) {
  (void)context, (void)node;
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  memcpy(out, in[0], (size_t)hd_count(node->out) * sizeof *out);
}

static void sample(hd_sample *s) {
  settings *to = (settings *)s->options;
  s->inputs = 1;
  hd_sample_shape(s, &s->in[0], 40);
  *to = (settings){.ndim = s->in[0].ndim + 1, .dim = {1}};
  for (int i = 0; i < s->in[0].ndim; i++) to->dim[s->in[0].ndim - i] = s->in[0].dim[i]; // 1, then the other way round
  if (hd_sample_pick(s, 0, 1)) to->dim[hd_sample_pick(s, 0, to->ndim - 1)] = -1;
}

const hd_operation hd_op_reshape = {.name = "reshape",
                                    .checks_types = true,
                                    .options = sizeof(settings),
                                    .shape = shape,
                                    .forward = nothing,
                                    .backward = nothing,
                                    .reference = reference,
                                    .sample = sample};

static heed_status read(heed_tape *tape, int ndim, const int64_t *dim, settings *out) {
  heed_context *context = hd_tape_context(tape);
  HD_REQUIRE(dim && ndim >= 1 && ndim <= HEED_MAX_DIM, context, HEED_E_SHAPE, "reshape: rank %d, allowed 1 to %d", dim ? ndim : 0,
             HEED_MAX_DIM);
  out->ndim = ndim;
  memcpy(out->dim, dim, (size_t)ndim * sizeof *dim);
  return HEED_OK;
}

heed_tensor *heed_tape_reshape(heed_tape *tape, heed_tensor *x, int ndim, const int64_t *dim) {
  settings s = {0};
  if (!tape || heed_tape_status(tape) != HEED_OK || !hd_tape_note(tape, read(tape, ndim, dim, &s))) return NULL;
  return hd_tape_apply(tape, &hd_op_reshape, 1, &x, 1, &s);
}
