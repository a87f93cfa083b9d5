/* linear_attention.c: linear attention on the tape, head by head, with rows that hold the heads side by side.
 *
 * The formulas, forward and backward, are those of heed_linear_forward and _backward (docs/math/linear-attention.md); this file brings rows into views, draws random rows and says where gradients go.
 * Saved: the log of the normaliser [B,H,n], and the random rows [features,width]; backward also reads q, k, v and out. */
#include "heads.h"

enum { Q = HD_Q, K, V, DECAY, BETA, INPUTS };

typedef struct options {
  heed_linear_attention attention;
  int64_t heads, kv_heads, features;
  bool redraw;
  uint64_t seed;
  uint32_t stream;
} options;

/* The description, and all arrays as views. */
typedef struct call {
  heed_linear_attention attention;
  heed_view q, k, v, out, lse, decay, beta, projection;
} call;

/* A number, or f of them, a key and head: [B,m,heads · columns] as [B,heads,m,columns]. */
static heed_view gate_view(const heed_tensor *t, void *data, heed_type type, int64_t heads) {
  const int64_t width = hd_columns(t) / heads;
  return hd_heads_view(t, data, type, &(hd_heads_place){0, heads, width, 0});
}

static void prepare(const hd_node *node, void *const *data, void *out, heed_type type, float *saved, call *c) {
  const options *o = node->options;
  const hd_heads_place q = hd_heads_place_of(node, o->heads, o->kv_heads, Q), k = hd_heads_place_of(node, o->heads, o->kv_heads, K),
                       v = hd_heads_place_of(node, o->heads, o->kv_heads, V);
  *c = (call){.attention = o->attention};
  c->q = hd_heads_view(node->in[q.input], data[q.input], type, &q);
  c->k = hd_heads_view(node->in[k.input], data[k.input], type, &k);
  c->v = hd_heads_view(node->in[v.input], data[v.input], type, &v);
  c->out = hd_heads_view(node->out, out, type, &(hd_heads_place){0, o->heads, v.width, 0});
  const int64_t rows = c->q.dim[0] * o->heads * c->q.dim[2];
  c->lse = heed_view_of(saved, HEED_F32, 3, c->q.dim);
  c->projection = heed_view_of(saved ? saved + rows : NULL, HEED_F32, 2, (int64_t[]){o->features, q.width});
  if (node->in[DECAY]) c->decay = gate_view(node->in[DECAY], data[DECAY], type, o->kv_heads);
  // One number a token serves all heads.
  if (node->in[BETA]) c->beta = gate_view(node->in[BETA], data[BETA], type, hd_columns(node->in[BETA]) == 1 ? 1 : o->kv_heads);
  if (node->in[DECAY]) c->attention.decay = &c->decay;
  if (node->in[BETA]) c->attention.beta = &c->beta;
  if (o->features) c->attention.projection = &c->projection;
}

static heed_status draw(heed_context *context, const hd_node *node, const call *c) {
  const options *o = node->options;
  if (!o->features) return HEED_OK;
  const bool anew = o->redraw && node->training;
  const heed_linear_draw_options drawn = {
      .size = sizeof drawn, .seed = anew ? node->seed : o->seed, .stream = anew ? node->stream : o->stream};
  return heed_linear_draw(context, &drawn, &c->projection);
}

static void values_of(const hd_node *node, void *data[INPUTS]) {
  for (int i = 0; i < INPUTS; i++) data[i] = node->in[i] ? hd_value(node->in[i]) : NULL;
}

/* ---- the passes ----------------------------------------------------------------------------------------------------------------- */

static heed_status shape(heed_context *context, hd_node *node) {
  const options *o = node->options;
  char text[HD_SHAPE_LENGTH];
  HD_TRY(hd_heads_shape(context, node, o->heads, o->kv_heads));
  for (int i = DECAY; i <= BETA; i++) {
    const heed_tensor *t = node->in[i];
    if (!t) continue;
    HD_REQUIRE(t->ndim == node->in[Q]->ndim && (hd_columns(t) % o->kv_heads == 0 || (i == BETA && hd_columns(t) == 1)), context,
               HEED_E_SHAPE, "linear_attention: %s %s, allowed [B,rows,%lld · width]", i == DECAY ? "decay" : "beta",
               hd_tensor_shape(t, text), (long long)o->kv_heads);
  }
  HD_REQUIRE(o->features >= 0, context, HEED_E_ARGUMENT, "linear_attention: %lld features", (long long)o->features);
  node->saved_floats = o->heads * hd_rows(node->in[Q]) + o->features * hd_heads_place_of(node, o->heads, o->kv_heads, Q).width;
  return HEED_OK;
}

static heed_status forward(heed_context *context, const hd_node *node) {
  call c;
  void *data[INPUTS];
  float *scratch = NULL;
  heed_status status = HEED_OK;
  values_of(node, data);
  if (!node->saved) HD_TRY(hd_allocate(context, "random features", node->saved_floats, sizeof *scratch, &scratch));
  prepare(node, data, hd_value(node->out), HEED_F32, node->saved ? node->saved : scratch, &c);
  const heed_linear_extras extras = {.size = sizeof extras, .lse = &c.lse};
  HD_TRY_DONE(draw(context, node, &c));
  HD_TRY_DONE(heed_linear_forward(context, &c.attention, &c.q, &c.k, &c.v, &c.out, &extras));
done:
  hd_release(context, scratch, scratch ? node->saved_floats : 0, sizeof *scratch);
  return status;
}

static heed_status differentiate(heed_context *context, const hd_node *node, void *const *to) {
  call c, d;
  void *data[INPUTS];
  const options *o = node->options;
  values_of(node, data);
  prepare(node, data, hd_value(node->out), HEED_F32, node->saved, &c);
  prepare(node, to, (float *)hd_upstream(node), HEED_F32, NULL, &d);
  const heed_linear_gradients gradients = {.size = sizeof gradients,
                                           .dq = to[Q] ? &d.q : NULL,
                                           .dk = to[hd_heads_place_of(node, o->heads, o->kv_heads, K).input] ? &d.k : NULL,
                                           .dv = to[hd_heads_place_of(node, o->heads, o->kv_heads, V).input] ? &d.v : NULL,
                                           .ddecay = to[DECAY] ? &d.decay : NULL,
                                           .dbeta = to[BETA] ? &d.beta : NULL};
  return heed_linear_backward(context, &c.attention, &c.q, &c.k, &c.v, &c.out, &c.lse, &d.out, &gradients);
}

static heed_status backward(heed_context *context, const hd_node *node) { return hd_gradients_aside(context, node, INPUTS, differentiate); }

static void reference(const hd_node *node, const double *const *in, double *out) {
  heed_context *context = hd_tape_context(node->tape);
  call c;
  void *data[INPUTS];
  float *saved;
  for (int i = 0; i < INPUTS; i++) data[i] = (void *)in[i];
  if (hd_allocate(context, "random features", node->saved_floats, sizeof *saved, &saved) != HEED_OK) return;
  prepare(node, data, out, HEED_F64, saved, &c);
  if (draw(context, node, &c) == HEED_OK) heed_linear_reference(context, &c.attention, &c.q, &c.k, &c.v, &c.out, NULL);
  hd_release(context, saved, node->saved_floats, sizeof *saved);
}

/* ---- samples ---------------------------------------------------------------------------------------------------------------------- */

static hd_sample_input rows_input(int64_t batch, int64_t rows, int64_t columns, double spread) {
  return (hd_sample_input){.ndim = 3, .dim = {batch, rows, columns}, .spread = spread};
}

static void sample(hd_sample *s) {
  options *o = (options *)s->options;
  const int64_t group = hd_sample_pick(s, 1, 2), kv = hd_sample_pick(s, 1, 2), d = hd_sample_pick(s, 2, 20), dv = hd_sample_pick(s, 1, 20);
  const int64_t batch = hd_sample_pick(s, 1, 2), n = hd_sample_pick(s, 1, 40);
  const int form = (int)hd_sample_pick(s, 0, 2); // all packed, keys and values packed, three
  *o = (options){.heads = group * kv, .kv_heads = kv, .seed = 7, .redraw = hd_sample_pick(s, 0, 1)};
  heed_linear_attention *a = &o->attention;
  *a = (heed_linear_attention){.size = sizeof *a, .rule = (heed_linear_rule)hd_sample_pick(s, 0, 3)};
  a->features = (heed_features)hd_sample_pick(s, 0, a->rule == HEED_RULE_ADD ? 4 : 2);
  a->causal = a->rule != HEED_RULE_ADD || hd_sample_pick(s, 0, 1);
  a->unnormalised = a->rule != HEED_RULE_ADD || a->features == HEED_FEATURES_IDENTITY || hd_sample_pick(s, 0, 1);
  o->features = a->features >= HEED_FEATURES_POSITIVE ? hd_sample_pick(s, 1, 12) : 0;
  const int64_t m = form == 0 || a->causal ? n : hd_sample_pick(s, 1, 70);
  const double spread = a->rule == HEED_RULE_ADD ? 1 : 0.4; // a delta rule with long keys grows
  s->inputs = INPUTS;
  for (int i = K; i < INPUTS; i++) s->in[i].absent = true;
  s->in[Q] = rows_input(batch, n, d * (o->heads + (form == 0 ? 2 * kv : 0)), spread);
  if (form > 0) s->in[K] = rows_input(batch, m, d * kv * (form == 1 ? 2 : 1), spread);
  if (form > 1) s->in[V] = rows_input(batch, m, dv * kv, 1);
  for (int i = Q; i <= K && a->features == HEED_FEATURES_RELU; i++) s->in[i].apart = 0.05;
  if (a->rule == HEED_RULE_GATED || a->rule == HEED_RULE_GATED_DELTA)
    s->in[DECAY] = rows_input(batch, m, kv * (hd_sample_pick(s, 0, 1) ? d : 1), 0.2);
  if (a->rule >= HEED_RULE_DELTA) s->in[BETA] = rows_input(batch, m, hd_sample_pick(s, 0, 1) ? kv : 1, 0.05);
}

HD_OPERATION(linear_attention, .options = sizeof(options));

/* ---- the public door --------------------------------------------------------------------------------------------------------------- */

static heed_status read_options(heed_context *context, const heed_tape_linear_attention_options *given,
                                heed_tape_linear_attention_options *out, options *o) {
  *out = (heed_tape_linear_attention_options){.size = sizeof *out};
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "heed_tape_linear_attention_options: null");
  HD_TRY(hd_options_read(context, "heed_tape_linear_attention_options", given, out, sizeof *out));
  *o = (options){.heads = out->heads,
                 .kv_heads = out->kv_heads ? out->kv_heads : out->heads,
                 .features = out->features,
                 .redraw = out->redraw,
                 .seed = out->seed,
                 .stream = out->stream,
                 .attention.size = sizeof o->attention};
  HD_TRY(hd_options_read(context, "heed_linear_attention", out->attention, &o->attention, sizeof o->attention));
  HD_REQUIRE(!out->features || !o->attention.projection, context, HEED_E_ARGUMENT,
             "linear_attention: features to be drawn, and a projection that is given");
  return HEED_OK;
}

heed_tensor *heed_tape_linear_attention(heed_tape *tape, const heed_tape_linear_attention_options *given, heed_tensor *q, heed_tensor *k,
                                        heed_tensor *v) {
  heed_tape_linear_attention_options asked;
  options o;
  if (!tape || !hd_tape_note(tape, read_options(hd_tape_context(tape), given, &asked, &o))) return NULL;
  heed_tensor *in[INPUTS] = {q, k, v, asked.decay, asked.beta};
  return hd_tape_apply(tape, &hd_op_linear_attention, INPUTS, in, 1, &o);
}
