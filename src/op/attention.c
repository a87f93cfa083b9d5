/* attention.c: attention on the tape: out = softmax(scores over visible keys) · v, head by head, with rows that hold the heads side by side.
 *
 * The formulas, forward and backward, are those of heed_attention_forward and _backward (docs/math/attention.md); this file brings rows into views and says where gradients go.
 * Saved: the log-sum-exp [B,H,n]; backward also reads q, k, v and out. Shapes: see heed_tape_attention. */
#include "heads.h"

enum { Q = HD_Q, K, V, BIAS, SINK, WQ, WK, WV, INPUTS };

typedef struct options {
  heed_attention attention;
  heed_score score;
  int64_t heads, kv_heads;
} options;

/* ---- rows as heads ------------------------------------------------------------------------------------------------------------- */

static hd_heads_place place_of(const hd_node *node, int which) {
  const options *o = node->options;
  return hd_heads_place_of(node, o->heads, o->kv_heads, which);
}

static heed_view whole(const heed_tensor *t, void *data, heed_type type) { return heed_view_of(data, type, t->ndim, t->dim); }

/* The description, and all arrays as views: of values, of doubles for the reference, of gradients. */
typedef struct call {
  heed_attention attention;
  heed_score score;
  heed_view q, k, v, out, lse, input[INPUTS];
} call;

static void prepare(const hd_node *node, void *const *data, void *out, heed_type type, call *c) {
  const options *o = node->options;
  hd_heads_place q = place_of(node, Q), k = place_of(node, K), v = place_of(node, V);
  *c = (call){.attention = o->attention, .score = o->score};
  c->q = hd_heads_view(node->in[q.input], data[q.input], type, &q);
  c->k = hd_heads_view(node->in[k.input], data[k.input], type, &k);
  c->v = hd_heads_view(node->in[v.input], data[v.input], type, &v);
  c->out = hd_heads_view(node->out, out, type, &(hd_heads_place){0, o->heads, v.width, 0});
  c->lse = heed_view_of(node->saved, HEED_F32, 3, (int64_t[]){c->q.dim[0], o->heads, c->q.dim[2]});
  for (int i = BIAS; i < INPUTS; i++)
    if (node->in[i]) c->input[i] = whole(node->in[i], data[i], type);
  if (node->in[BIAS]) c->attention.bias = &c->input[BIAS];
  if (node->in[SINK]) c->attention.sink = &c->input[SINK];
  if (node->in[WQ]) c->score.wq = &c->input[WQ];
  if (node->in[WK]) c->score.wk = &c->input[WK];
  if (node->in[WV]) c->score.wv = &c->input[WV];
  if (o->attention.score) c->attention.score = &c->score;
  if (!node->training) c->attention.dropout = 0;
  c->attention.seed = node->seed;
  c->attention.stream = node->stream;
}

static void values_of(const hd_node *node, void *data[INPUTS]) {
  for (int i = 0; i < INPUTS; i++) data[i] = node->in[i] ? hd_value(node->in[i]) : NULL;
}

/* ---- the passes ----------------------------------------------------------------------------------------------------------------- */

static heed_status shape(heed_context *context, hd_node *node) {
  const options *o = node->options;
  HD_TRY(hd_heads_shape(context, node, o->heads, o->kv_heads));
  node->saved_floats = o->heads * hd_rows(node->in[Q]);
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  call c;
  void *data[INPUTS];
  values_of(node, data);
  prepare(node, data, hd_value(node->out), HEED_F32, &c);
  const heed_attention_extras extras = {.size = sizeof extras, .lse = node->saved ? &c.lse : NULL};
  return heed_attention_forward(context, &c.attention, &c.q, &c.k, &c.v, &c.out, &extras);
}

static heed_status differentiate(heed_context *context, const hd_node *node, void *const *to) {
  call c, d;
  void *data[INPUTS];
  values_of(node, data);
  prepare(node, data, hd_value(node->out), HEED_F32, &c);
  prepare(node, to, (float *)hd_upstream(node), HEED_F32, &d);
  const heed_attention_gradients gradients = {.size = sizeof gradients,
                                              .dq = to[Q] ? &d.q : NULL,
                                              .dk = to[place_of(node, K).input] ? &d.k : NULL,
                                              .dv = to[place_of(node, V).input] ? &d.v : NULL,
                                              .dbias = to[BIAS] ? &d.input[BIAS] : NULL,
                                              .dsink = to[SINK] ? &d.input[SINK] : NULL,
                                              .dwq = to[WQ] ? &d.input[WQ] : NULL,
                                              .dwk = to[WK] ? &d.input[WK] : NULL,
                                              .dwv = to[WV] ? &d.input[WV] : NULL};
  return heed_attention_backward(context, &c.attention, &c.q, &c.k, &c.v, &c.out, &c.lse, &d.out, &gradients);
}

static heed_status backward(heed_context *context, const hd_node *node) { return hd_gradients_aside(context, node, INPUTS, differentiate); }

static void reference(const hd_node *node, const double *const *in, double *out) {
  call c;
  void *data[INPUTS];
  for (int i = 0; i < INPUTS; i++) data[i] = (void *)in[i];
  prepare(node, data, out, HEED_F64, &c);
  heed_attention_reference(hd_tape_context(node->tape), &c.attention, &c.q, &c.k, &c.v, &c.out, NULL);
}

/* ---- samples ---------------------------------------------------------------------------------------------------------------------- */

static hd_sample_input rows_input(int64_t batch, int64_t rows, int64_t columns) {
  return (hd_sample_input){.ndim = 3, .dim = {batch, rows, columns}};
}

static void sample_score(hd_sample *s, options *o, int64_t d) {
  int kind = (int)hd_sample_pick(s, 0, 5);
  if (kind > 1) return;
  int64_t h = hd_sample_pick(s, 1, 20);
  o->attention.score = &o->score;
  o->score = (heed_score){.size = sizeof o->score, .kind = kind ? HEED_SCORE_BILINEAR : HEED_SCORE_ADDITIVE};
  s->in[WQ] = (hd_sample_input){.ndim = 2, .dim = {kind ? d : h, d}};
  s->in[WK] = (hd_sample_input){.absent = kind == 1, .ndim = 2, .dim = {h, d}};
  s->in[WV] = (hd_sample_input){.absent = kind == 1, .ndim = 1, .dim = {h}};
}

static void sample(hd_sample *s) {
  options *o = (options *)s->options;
  int64_t group = hd_sample_pick(s, 1, 2), kv = hd_sample_pick(s, 1, 2), d = hd_sample_pick(s, 1, 20), dv = hd_sample_pick(s, 1, 20);
  int64_t batch = hd_sample_pick(s, 1, 2), n = hd_sample_pick(s, 1, 40), m = hd_sample_pick(s, 1, 70);
  int form = (int)hd_sample_pick(s, 0, 2); // all packed, keys and values packed, three
  *o = (options){.heads = group * kv, .kv_heads = kv};
  o->attention = (heed_attention){.size = sizeof o->attention, .causal = hd_sample_pick(s, 0, 1), .align = HEED_ALIGN_START};
  o->attention.softcap = hd_sample_pick(s, 0, 3) ? 0 : 5;
  o->attention.dropout = hd_sample_pick(s, 0, 3) ? 0 : 0.25;
  s->inputs = INPUTS;
  for (int i = K; i < INPUTS; i++) s->in[i].absent = true;
  if (form == 0) m = n;
  s->in[Q] = rows_input(batch, n, d * (o->heads + (form == 0 ? 2 * kv : 0)));
  if (form > 0) s->in[K] = rows_input(batch, m, d * kv * (form == 1 ? 2 : 1));
  if (form > 1) s->in[V] = rows_input(batch, m, dv * kv);
  if (hd_sample_pick(s, 0, 2) == 0) s->in[BIAS] = (hd_sample_input){.ndim = 3, .dim = {hd_sample_pick(s, 0, 1) ? o->heads : 1, n, m}};
  if (hd_sample_pick(s, 0, 2) == 0) s->in[SINK] = (hd_sample_input){.ndim = 1, .dim = {o->heads}};
  sample_score(s, o, d);
}

HD_OPERATION(attention, .options = sizeof(options));

/* ---- the public door --------------------------------------------------------------------------------------------------------------- */

static heed_status read_options(heed_context *context, const heed_tape_attention_options *given, heed_tape_attention_options *out,
                                options *o) {
  *out = (heed_tape_attention_options){.size = sizeof *out};
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "heed_tape_attention_options: null");
  HD_TRY(hd_options_read(context, "heed_tape_attention_options", given, out, sizeof *out));
  *o = (options){.heads = out->heads,
                 .kv_heads = out->kv_heads ? out->kv_heads : out->heads,
                 .attention.size = sizeof o->attention,
                 .score.size = sizeof o->score};
  HD_TRY(hd_options_read(context, "heed_attention", out->attention, &o->attention, sizeof o->attention));
  return hd_options_read(context, "heed_score", o->attention.score, &o->score, sizeof o->score);
}

heed_tensor *heed_tape_attention(heed_tape *tape, const heed_tape_attention_options *given, heed_tensor *q, heed_tensor *k,
                                 heed_tensor *v) {
  heed_tape_attention_options asked;
  options o;
  if (!tape || !hd_tape_note(tape, read_options(hd_tape_context(tape), given, &asked, &o))) return NULL;
  heed_tensor *in[INPUTS] = {q, k, v, asked.bias, asked.sink, asked.wq, asked.wk, asked.wv};
  return hd_tape_apply(tape, &hd_op_attention, INPUTS, in, 1, &o);
}
