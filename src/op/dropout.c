/* dropout.c: each element is 0 with probability p, the others grow by 1 / (1 − p), so that expectations stay.
 *
 *   y = x · mask / (1 − p)      dx = dy · mask / (1 − p)
 * Element i stays where its random word is above p · 2^32: word (i / 16) mod 4 of Philox under the tape's seed at counter (16 (i / 64) + i mod 16, 0, the operation's number). Nothing
 * is saved: backward draws again. y as x; x itself where p is 0 or nothing trains. */
#include "elements.h"

typedef struct settings {
  double p;
} settings;

static double p_of(const hd_node *node) { return ((const settings *)node->options)->p; }

static heed_status shape(heed_context *context, hd_node *node) {
  HD_REQUIRE(p_of(node) >= 0 && p_of(node) <= 1, context, HEED_E_ARGUMENT, "dropout: p %g, allowed 0 to 1", p_of(node)); // also refuses NaN
  hd_shape_like(node, node->in[0]);
  node->shares = p_of(node) == 0 || !node->training;
  return HEED_OK;
}

/* Rows are blocks of 64 elements, of which the last may be incomplete. */
static void drop(const hd_elements *e, int64_t block, int64_t blocks) {
  const hd_dropout dropout = {.seed = e->node->seed,
                              .stream = e->node->stream,
                              .last_dropped = hd_last_dropped(p_of(e->node)),
                              .factor = (float)(1 / (1 - p_of(e->node))),
                              .block = block,
                              .accumulate = e->accumulate};
  int64_t first = block * HD_DROPOUT_BLOCK, n = HD_MIN(blocks * HD_DROPOUT_BLOCK, hd_count(e->node->out) - first);
  e->kernels->dropout(&dropout, e->a + first, n, e->out + first);
}

static void run(heed_context *context, const hd_node *node, const float *from, bool accumulate, float *to) {
  hd_elements_run(context, &(hd_elements){.work = drop,
                                          .rows = hd_ceil_div(hd_count(node->out), HD_DROPOUT_BLOCK),
                                          .width = HD_DROPOUT_BLOCK,
                                          .node = node,
                                          .a = from,
                                          .out = to,
                                          .accumulate = accumulate});
}

static heed_status forward(heed_context *context, const hd_node *node) {
  if (!node->shares) run(context, node, hd_value(node->in[0]), false, hd_value(node->out));
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  bool add;
  float *to = node->shares ? NULL : hd_gradient(node, 0, &add);
  if (to) run(context, node, hd_upstream(node), add, to);
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  for (int64_t i = 0; i < hd_count(node->out); i++) {
    const uint64_t count = (uint64_t)(i / 64 * 16 + i % 16);
    uint32_t words[4];
    hd_philox((uint32_t[4]){(uint32_t)count, (uint32_t)(count >> 32), 0, node->stream}, node->seed, words);
    out[i] = node->shares ? in[0][i] : words[i / 16 % 4] < p_of(node) * 0x1p32 ? 0 : in[0][i] / (1 - p_of(node));
  }
}

static void sample(hd_sample *s) {
  s->inputs = 1;
  hd_sample_sizes(s, &s->in[0]);
  *(settings *)s->options = (settings){(double)hd_sample_pick(s, 0, 4) / 5};
}

HD_OPERATION(dropout, .options = sizeof(settings), .output_unread = true);

heed_tensor *heed_tape_dropout(heed_tape *tape, heed_tensor *x, double p) {
  return hd_tape_apply(tape, &hd_op_dropout, 1, &x, 1, &(settings){p});
}
