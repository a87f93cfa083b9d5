/* learner_transformer.c: the transformer as a learner's body: parameters from a spec, logits on a tape.
 *
 * The spec, the order of operations and the kernels are those of transformer.c, so that what was learned gives the same bits when it is loaded again. */
#include "learner.h"

#include "../io/json.h"
#include "../tensor/tensor.h"
#include "../attn/rope.h"

#include <math.h>
#include <stdio.h>

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

static heed_nn_block make_layer(hd_maker *m) {
  hd_transformer_learner *t = hd_transformer(m->learner);
  const hd_transformer_spec *spec = &t->spec;
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  const bool gated = spec->feed_forward_kind == HD_FEED_FORWARD_GATED;
  // What is added to the stream 2 · layers times is made smaller, so that their sum is not (Radford et al. 2019); a norm of the sum does as much.
  double residual = spec->norm_place == HD_NORM_AFTER ? 1 : 1 / sqrt(2.0 * (double)spec->layers);
  heed_nn_block b = {.norm_after = spec->norm_place == HD_NORM_AFTER, .dropout = m->learner->dropout};
  b.attention_norm = hd_make_norm(m, spec, "attention_norm");
  b.attention = (heed_nn_attention){.heads = spec->heads,
                                    .kv_heads = spec->kv_heads,
                                    .attention = &t->attention,
                                    .rope = spec->positions == HD_POSITIONS_LEARNED ? NULL : &t->rope};
  b.attention.w_qkv = hd_make_matrix(m, "qkv", q + 2 * kv, spec->width, 1);
  b.attention.b_qkv = hd_make_bias(m, spec->bias_qkv, "qkv", q + 2 * kv);
  b.attention.w_o = hd_make_matrix(m, "output", spec->width, q, residual);
  b.attention.b_o = hd_make_bias(m, spec->bias_output, "output", spec->width);
  b.feed_forward_norm = hd_make_norm(m, spec, "feed_forward_norm");
  b.feed_forward = (heed_nn_feed_forward){.gated = gated, .activation = spec->activation};
  int64_t wide = spec->feed_forward * (gated ? 2 : 1);
  b.feed_forward.w_up = hd_make_matrix(m, "up", wide, spec->width, 1);
  b.feed_forward.b_up = hd_make_bias(m, spec->bias_feed_forward, "up", wide);
  b.feed_forward.w_down = hd_make_matrix(m, "down", spec->width, spec->feed_forward, residual);
  b.feed_forward.b_down = hd_make_bias(m, spec->bias_feed_forward, "down", spec->width);
  return b;
}

static void make(hd_maker *m) {
  hd_transformer_learner *t = hd_transformer(m->learner);
  const hd_transformer_spec *spec = &t->spec;
  m->layer = -1;
  t->embedding = hd_make_matrix(m, "embedding", spec->vocabulary, spec->width, 1);
  if (spec->positions == HD_POSITIONS_LEARNED) t->position = hd_make_matrix(m, "position", spec->context, spec->width, 1);
  if (spec->embedding_norm) t->embedding_norm = hd_make_norm(m, spec, "embedding_norm");
  for (m->layer = 0; m->layer < spec->layers; m->layer++) t->layers[m->layer] = make_layer(m);
  m->layer = -1;
  if (spec->norm_place == HD_NORM_BEFORE) t->final_norm = hd_make_norm(m, spec, "final_norm");
  if (spec->head == HEED_HEAD_CLASS) {
    t->head_dense = hd_make_matrix(m, "pooler", spec->width, spec->width, 1);
    t->head_dense_bias = hd_make_bias(m, spec->bias_head, "pooler", spec->width);
  }
  if (hd_spec_transforms(spec)) {
    t->head_dense = hd_make_matrix(m, "head_dense", spec->width, spec->width, 1);
    t->head_dense_bias = hd_make_bias(m, spec->bias_head, "head_dense", spec->width);
    t->head_norm = hd_make_norm(m, spec, "head_norm");
  }
  t->head = hd_spec_head_is_embedding(spec) ? t->embedding : hd_make_matrix(m, "head", hd_spec_outputs(spec), spec->width, 1);
  t->head_bias = hd_make_bias(m, spec->bias_head, "head", hd_spec_outputs(spec));
}

/* ---- making one ------------------------------------------------------------------------------------------------------------------- */

static heed_status spec_of(heed_context *context, const heed_learner_options *o, hd_transformer_spec *out) {
  HD_TRY(hd_check_range(context, "layers", o->layers, 1, HD_MAX_LAYERS));
  HD_TRY(hd_check_range(context, "heads", o->heads, 1, HD_MAX_HEADS));
  HD_TRY(hd_check_range(context, "key/value heads", o->kv_heads, 0, HD_MAX_HEADS));
  HD_TRY(hd_check_range(context, "width", o->width, 1, HD_MAX_WIDTH));
  HD_TRY(hd_check_range(context, "feed-forward width", o->feed_forward, 0, HD_MAX_WIDTH));
  HD_TRY(hd_check_range(context, "context", o->context, 1, HD_MAX_CONTEXT));
  HD_TRY(hd_check_range(context, "vocabulary", o->vocabulary, 1, HD_MAX_VOCABULARY));
  HD_REQUIRE(o->head >= HEED_HEAD_TOKENS && o->head <= HEED_HEAD_CLASS, context, HEED_E_ARGUMENT, "head: there is no such kind");
  if (o->head != HEED_HEAD_TOKENS) {
    HD_REQUIRE(o->kind == HEED_LEARNER_ENCODER, context, HEED_E_ARGUMENT, "head: only an encoder has one for labels or a class");
    HD_TRY(hd_check_range(context, "labels", o->labels, 1, HD_MAX_LABELS));
  }
  const bool llama = o->kind == HEED_LEARNER_LLAMA, encoder = o->kind == HEED_LEARNER_ENCODER, biased = !llama && !o->no_bias;
  const bool after = encoder && !o->norm_before;
  *out = (hd_transformer_spec){.layers = o->layers,
                               .width = o->width,
                               .heads = o->heads,
                               .kv_heads = o->kv_heads,
                               .feed_forward = o->feed_forward,
                               .vocabulary = o->vocabulary,
                               .context = o->context,
                               .norm = llama ? HD_NORM_RMS : HD_NORM_LAYER,
                               .norm_place = after ? HD_NORM_AFTER : HD_NORM_BEFORE,
                               .norm_eps = encoder ? 1e-12 : 1e-5,
                               .norm_unbiased = !llama && !biased,
                               .feed_forward_kind = llama ? HD_FEED_FORWARD_GATED : HD_FEED_FORWARD_PLAIN,
                               .activation = llama                    ? HEED_ACTIVATION_SILU
                                             : encoder && o->relu     ? HEED_ACTIVATION_RELU
                                             : encoder || o->gelu_erf ? HEED_ACTIVATION_GELU
                                                                      : HEED_ACTIVATION_GELU_TANH,
                               .positions = llama || o->rotary ? HD_POSITIONS_ROTARY_HALF : HD_POSITIONS_LEARNED,
                               .rotary_theta = 10000,
                               .bias_qkv = biased,
                               .bias_output = biased,
                               .bias_feed_forward = biased,
                               .bias_head = encoder && biased,
                               .bidirectional = encoder,
                               .head = o->head,
                               .labels = o->head == HEED_HEAD_TOKENS ? 0 : o->labels,
                               .embedding_norm = after,
                               .head_transform = encoder,
                               .tied = !o->untied};
  // As wide as gate, up and down of a third each make the parameters of 4 · width twice (Shazeer 2020), rounded up to whole cache lines.
  if (llama && o->feed_forward == 0) out->feed_forward = hd_ceil_div(8 * o->width, 3 * 32) * 32;
  return hd_spec_finish(context, "the model", out);
}

static heed_status make_tables(hd_transformer_learner *t) {
  const hd_transformer_spec *spec = &t->spec;
  heed_context *context = t->learner.context;
  hd_arena *arena = &t->learner.arena;
  int64_t pairs = spec->rotary_dim / 2, dim[] = {spec->context, pairs}, count;
  double *frequency = NULL;
  float *cosine, *sine;
  if (spec->positions == HD_POSITIONS_LEARNED) return HEED_OK;
  HD_REQUIRE(hd_mul(spec->context, pairs, &count), context, HEED_E_OVERFLOW, "the tables of rotary positions do not fit in memory");
  HD_TRY(hd_memory_check(context, "rotary positions", count * 2 * (int64_t)sizeof(float)));
  HD_TRY(hd_arena_allocate(arena, context, "rotary positions", pairs, sizeof *frequency, &frequency));
  HD_TRY(hd_arena_allocate(arena, context, "rotary positions", count, sizeof *cosine, &cosine));
  HD_TRY(hd_arena_allocate(arena, context, "rotary positions", count, sizeof *sine, &sine));
  for (int64_t i = 0; i < pairs; i++) frequency[i] = hd_spec_frequency(spec, i);
  hd_rope_table(context, frequency, pairs, 0, spec->context, cosine, sine);
  t->cosine = heed_view_of(cosine, HEED_F32, 2, dim);
  t->sine = heed_view_of(sine, HEED_F32, 2, dim);
  t->rope = (heed_rope){.size = sizeof t->rope,
                        .interleaved = spec->positions == HD_POSITIONS_ROTARY_INTERLEAVED,
                        .rotary_dim = spec->rotary_dim,
                        .cosine = &t->cosine,
                        .sine = &t->sine};
  return HEED_OK;
}

static heed_status name_layers(hd_transformer_learner *t) {
  HD_TRY(hd_arena_allocate(&t->learner.arena, t->learner.context, "layers", t->spec.layers, sizeof *t->layer_names, &t->layer_names));
  for (int64_t i = 0; i < t->spec.layers; i++) {
    char text[32], *copy;
    int length = snprintf(text, sizeof text, "layer %lld", (long long)i);
    HD_TRY(hd_arena_text(&t->learner.arena, t->learner.context, text, (size_t)length, &copy));
    t->layer_names[i] = copy;
  }
  return HEED_OK;
}

heed_status hd_transformer_start(hd_transformer_learner *t, const hd_transformer_spec *spec, double dropout) {
  heed_learner *learner = &t->learner;
  t->spec = *spec;
  t->attention = (heed_attention){.size = sizeof t->attention,
                                  .causal = !spec->bidirectional,
                                  .has_window_left = spec->window > 0,
                                  .window_left = spec->window > 0 ? spec->window - 1 : 0,
                                  .align = HEED_ALIGN_START,
                                  .dropout = dropout};
  learner->dropout = dropout;
  learner->positions = spec->context;
  learner->width = spec->width;
  HD_TRY(make_tables(t));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "layers", spec->layers, sizeof *t->layers, &t->layers));
  return name_layers(t);
}

heed_status hd_transformer_name_labels(hd_transformer_learner *t, const char *const *given) {
  heed_context *context = t->learner.context;
  const char **names;
  if (t->spec.head == HEED_HEAD_TOKENS) return HEED_OK;
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "labels: their names are missing");
  HD_TRY(hd_arena_allocate(&t->learner.arena, context, "labels", t->spec.labels, sizeof *names, &names));
  for (int64_t i = 0; i < t->spec.labels; i++) {
    char *copy;
    HD_REQUIRE(given[i] && hd_is_printable(hd_text_of(given[i])), context, HEED_E_ARGUMENT,
               "labels: the name of label %lld is not a text without control characters", (long long)i);
    HD_TRY(hd_arena_text(&t->learner.arena, context, given[i], strlen(given[i]), &copy));
    names[i] = copy;
  }
  t->label_names = names;
  return HEED_OK;
}

static heed_status start(heed_learner *learner, const heed_learner_options *options) {
  hd_transformer_learner *t = hd_transformer(learner);
  hd_transformer_spec spec;
  HD_REQUIRE(options->source == 0, learner->context, HEED_E_ARGUMENT, "source: got %lld, allowed 0: only who translates has one",
             (long long)options->source);
  HD_TRY(spec_of(learner->context, options, &spec));
  HD_TRY(hd_transformer_start(t, &spec, options->dropout));
  return hd_transformer_name_labels(t, options->label_names);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

/* The rows that the head reads: all positions, or of a class the first of each sequence, [B,width]. */
static heed_tensor *head_rows(const hd_transformer_learner *t, heed_tape *tape, heed_tensor *x) {
  if (!x || t->spec.head != HEED_HEAD_CLASS) return x;
  return heed_tape_reshape(tape, heed_tape_slice(tape, x, 1, 0, 1), 2, (int64_t[]){x->dim[0], t->spec.width});
}

static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  hd_transformer_learner *t = hd_transformer(learner);
  hd_id_rows batch;
  if (!hd_tape_note(tape, hd_learner_rows(learner, tape, ids, 0, heed_tensor_value(ids).dim[1], false, &batch))) return NULL;
  heed_attention attention = t->attention;
  attention.key_lengths = batch.lengths;
  heed_tape_label(tape, "the embedding");
  heed_tensor *x = heed_tape_embedding(tape, batch.ids, t->embedding);
  if (t->position) x = heed_tape_add(tape, x, heed_tape_slice(tape, t->position, 0, 0, batch.columns));
  if (t->spec.embedding_norm) x = heed_nn_norm_apply(tape, &t->embedding_norm, x);
  x = heed_tape_dropout(tape, x, learner->dropout);
  for (int64_t i = 0; i < t->spec.layers; i++) {
    heed_nn_block block = t->layers[i];
    block.attention.attention = &attention;
    heed_tape_label(tape, t->layer_names[i]);
    x = heed_nn_block_apply(tape, &block, x, NULL);
  }
  heed_tape_label(tape, "the head");
  return head_rows(t, tape, t->spec.norm_place == HD_NORM_BEFORE ? heed_nn_norm_apply(tape, &t->final_norm, x) : x);
}

static heed_tensor *head(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  const hd_transformer_learner *t = hd_transformer(learner);
  const hd_transformer_spec *spec = &t->spec;
  if (t->head_dense) {
    x = heed_tape_linear(tape, x, t->head_dense, t->head_dense_bias);
    x = heed_tape_activate(tape, x, spec->head == HEED_HEAD_CLASS ? HEED_ACTIVATION_TANH : spec->activation);
    if (hd_spec_transforms(spec)) x = heed_nn_norm_apply(tape, &t->head_norm, x);
  }
  if (spec->head != HEED_HEAD_TOKENS) x = heed_tape_dropout(tape, x, learner->dropout);
  return heed_tape_linear(tape, x, t->head, t->head_bias);
}

const hd_learner_body hd_transformer_body = {.bytes = sizeof(hd_transformer_learner),
                                             .start = start,
                                             .make = make,
                                             .states = states,
                                             .head = head,
                                             .describe = hd_transformer_describe};
