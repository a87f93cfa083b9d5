/* attention.c: attention on the tape: out = softmax(scores over visible keys) · v, head by head, with rows that hold the heads side by side.
 *
 * The formulas, forward and backward, are those of heed_attention_forward and _backward (docs/math/attention.md); this file brings rows into views and says where gradients go.
 * Saved: the log-sum-exp [B,H,n]; backward also reads q, k, v and out. Shapes: see heed_tape_attention. */
#include "heads.h"

enum { Q = HD_Q, K, V, BIAS, SINK, WQ, WK, WV, RELATIVE, CONTENT, POSITION, DISTANCES, INPUTS };
_Static_assert((int)INPUTS <= (int)HD_MOST_INPUTS && (int)INPUTS <= (int)HD_SAMPLE_INPUTS, "room for every input");

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

/* Rows [P,H·d] of distances as [H,P,d]. */
static heed_view distances_of(const heed_tensor *t, int64_t heads, void *data, heed_type type) {
  const int64_t columns = hd_columns(t), width = columns / heads;
  return (heed_view){data, type, 3, {heads, t->dim[0], width}, {width, columns, 1}};
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
  if (node->in[RELATIVE]) c->attention.relative = &c->input[RELATIVE];
  if (node->in[CONTENT]) c->score.content = &c->input[CONTENT];
  if (node->in[POSITION]) c->score.position = &c->input[POSITION];
  if (node->in[DISTANCES]) c->input[DISTANCES] = distances_of(node->in[DISTANCES], o->heads, data[DISTANCES], type);
  if (node->in[DISTANCES]) c->score.distances = &c->input[DISTANCES];
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
  const heed_tensor *distances = node->in[DISTANCES];
  char text[HD_SHAPE_LENGTH];
  HD_TRY(hd_heads_shape(context, node, o->heads, o->kv_heads));
  HD_REQUIRE(!distances || (distances->ndim == 2 && hd_columns(distances) % o->heads == 0), context, HEED_E_SHAPE,
             "attention: distances %s, allowed [distances,%lld · width]", hd_tensor_shape(distances, text), (long long)o->heads);
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
                                              .dwv = to[WV] ? &d.input[WV] : NULL,
                                              .drelative = to[RELATIVE] ? &d.input[RELATIVE] : NULL,
                                              .dcontent = to[CONTENT] ? &d.input[CONTENT] : NULL,
                                              .dposition = to[POSITION] ? &d.input[POSITION] : NULL,
                                              .ddistances = to[DISTANCES] ? &d.input[DISTANCES] : NULL};
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

static void sample_positions(hd_sample *s, options *o) {
  if (hd_sample_pick(s, 0, 3)) return;
  const int64_t buckets = 2 * hd_sample_pick(s, 2, 8);
  o->attention.relative_causal = hd_sample_pick(s, 0, 1);
  o->attention.relative_distance = buckets / 2 + hd_sample_pick(s, 1, 30);
  s->in[RELATIVE] = (hd_sample_input){.ndim = 2, .dim = {buckets, o->heads}};
}

static void sample_xl(hd_sample *s, options *o, int64_t d) {
  o->attention.score = &o->score;
  o->score = (heed_score){.size = sizeof o->score, .kind = HEED_SCORE_XL, .first_distance = -hd_sample_pick(s, 0, 20)};
  s->in[CONTENT] = (hd_sample_input){.ndim = 2, .dim = {o->heads, d}};
  s->in[POSITION] = (hd_sample_input){.ndim = 2, .dim = {o->heads, d}};
  s->in[DISTANCES] = (hd_sample_input){.ndim = 2, .dim = {hd_sample_pick(s, 1, 60), o->heads * d}};
}

static void sample_score(hd_sample *s, options *o, int64_t d) {
  int kind = (int)hd_sample_pick(s, 0, 5);
  if (kind == 2) sample_xl(s, o, d);
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
  sample_positions(s, o);
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
  heed_tensor *in[INPUTS] = {
      q, k, v, asked.bias, asked.sink, asked.wq, asked.wk, asked.wv, asked.relative, asked.content, asked.position, asked.distances};
  return hd_tape_apply(tape, &hd_op_attention, INPUTS, in, 1, &o);
}
