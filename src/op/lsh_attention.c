/* lsh_attention.c: LSH attention on the tape, head by head, with rows that hold the heads side by side.
 *
 * The formulas, forward and backward, are those of heed_lsh_forward and _backward (docs/math/lsh-attention.md); this file brings rows into views, says which rotations and where gradients go.
 * Saved: the log-sum-exp [B,H,n]; backward also reads qk, v and out. */
#include "heads.h"

enum { QK, V, INPUTS };

typedef struct options {
  heed_lsh_attention attention;
  int64_t heads;
  bool redraw;
} options;

typedef struct call {
  heed_lsh_attention attention;
  heed_view qk, v, out, lse;
} call;

static hd_heads_place place_of(const hd_node *node, int which) {
  const options *o = node->options;
  if (node->in[V]) return (hd_heads_place){which, o->heads, hd_columns(node->in[which]) / o->heads, 0};
  const int64_t half = hd_columns(node->in[QK]) / 2;
  return (hd_heads_place){QK, o->heads, half / o->heads, which == QK ? 0 : half};
}

static void prepare(const hd_node *node, void *const *data, void *out, heed_type type, float *saved, call *c) {
  const options *o = node->options;
  const hd_heads_place qk = place_of(node, QK), v = place_of(node, V);
  *c = (call){.attention = o->attention};
  if (o->redraw && node->training) c->attention.seed = node->seed, c->attention.stream = node->stream;
  c->qk = hd_heads_view(node->in[QK], data[QK], type, &qk);
  c->v = hd_heads_view(node->in[v.input], data[v.input], type, &v);
  c->out = hd_heads_view(node->out, out, type, &(hd_heads_place){0, o->heads, v.width, 0});
  c->lse = heed_view_of(saved, HEED_F32, 3, c->qk.dim);
}

static void values_of(const hd_node *node, void *data[INPUTS]) {
  for (int i = 0; i < INPUTS; i++) data[i] = node->in[i] ? hd_value(node->in[i]) : NULL;
}

/* ---- the passes ----------------------------------------------------------------------------------------------------------------- */

static heed_status shape(heed_context *context, hd_node *node) {
  const options *o = node->options;
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE(o->heads > 0, context, HEED_E_SHAPE, "lsh_attention: %lld heads", (long long)o->heads);
  for (int i = QK; i <= V; i++) {
    const heed_tensor *t = node->in[i];
    const int64_t parts = o->heads * (node->in[V] ? 1 : 2);
    HD_REQUIRE(!t || ((t->ndim == 2 || t->ndim == 3) && t->ndim == node->in[QK]->ndim && hd_columns(t) % parts == 0), context, HEED_E_SHAPE,
               "lsh_attention: %s %s, allowed [B,rows,%lld · width]", i == QK ? "qk" : "v", hd_tensor_shape(t, text), (long long)parts);
  }
  hd_shape_like(node, node->in[QK]);
  node->out->dim[node->out->ndim - 1] = o->heads * place_of(node, V).width;
  node->saved_floats = o->heads * hd_rows(node->in[QK]);
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  call c;
  void *data[INPUTS];
  values_of(node, data);
  prepare(node, data, hd_value(node->out), HEED_F32, node->saved, &c);
  return heed_lsh_forward(context, &c.attention, &c.qk, &c.v, &c.out, node->saved ? &c.lse : NULL);
}

static heed_status differentiate(heed_context *context, const hd_node *node, void *const *to) {
  call c, d;
  void *data[INPUTS];
  values_of(node, data);
  prepare(node, data, hd_value(node->out), HEED_F32, node->saved, &c);
  prepare(node, to, (float *)hd_upstream(node), HEED_F32, NULL, &d);
  return heed_lsh_backward(context, &c.attention, &c.qk, &c.v, &c.out, &c.lse, &d.out, to[QK] ? &d.qk : NULL,
                           to[place_of(node, V).input] ? &d.v : NULL);
}

static heed_status backward(heed_context *context, const hd_node *node) { return hd_gradients_aside(context, node, INPUTS, differentiate); }

static void reference(const hd_node *node, const double *const *in, double *out) {
  call c;
  void *data[INPUTS];
  for (int i = 0; i < INPUTS; i++) data[i] = (void *)in[i];
  prepare(node, data, out, HEED_F64, NULL, &c);
  heed_lsh_reference(hd_tape_context(node->tape), &c.attention, &c.qk, &c.v, &c.out, NULL);
}

/* ---- samples ---------------------------------------------------------------------------------------------------------------------- */

static void sample(hd_sample *s) {
  options *o = (options *)s->options;
  const int64_t d = hd_sample_pick(s, 2, 12), dv = hd_sample_pick(s, 1, 8), batch = hd_sample_pick(s, 1, 2), n = hd_sample_pick(s, 1, 90);
  const bool packed = hd_sample_pick(s, 0, 1);
  *o = (options){.heads = hd_sample_pick(s, 1, 2), .redraw = hd_sample_pick(s, 0, 1)};
  o->attention = (heed_lsh_attention){.size = sizeof o->attention,
                                      .causal = hd_sample_pick(s, 0, 1),
                                      .rounds = hd_sample_pick(s, 1, 2),
                                      .buckets = {2 * hd_sample_pick(s, 0, 2)},
                                      .seed = 7};
  s->inputs = INPUTS;
  s->in[QK] = (hd_sample_input){.ndim = 3, .dim = {batch, n, o->heads * d * (packed ? 2 : 1)}};
  s->in[V] = (hd_sample_input){.absent = packed, .ndim = 3, .dim = {batch, n, o->heads * dv}};
}

HD_OPERATION(lsh_attention, .options = sizeof(options));

/* ---- the public door --------------------------------------------------------------------------------------------------------------- */

static heed_status read_options(heed_context *context, const heed_tape_lsh_attention_options *given, options *o) {
  heed_tape_lsh_attention_options asked = {.size = sizeof asked};
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "heed_tape_lsh_attention_options: null");
  HD_TRY(hd_options_read(context, "heed_tape_lsh_attention_options", given, &asked, sizeof asked));
  *o = (options){.heads = asked.heads, .redraw = asked.redraw, .attention.size = sizeof o->attention};
  return hd_options_read(context, "heed_lsh_attention", asked.attention, &o->attention, sizeof o->attention);
}

heed_tensor *heed_tape_lsh_attention(heed_tape *tape, const heed_tape_lsh_attention_options *given, heed_tensor *qk, heed_tensor *v) {
  options o;
  if (!tape || !hd_tape_note(tape, read_options(hd_tape_context(tape), given, &o))) return NULL;
  heed_tensor *in[INPUTS] = {qk, v};
  return hd_tape_apply(tape, &hd_op_lsh_attention, INPUTS, in, 1, &o);
}
