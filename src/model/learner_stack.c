/* learner_stack.c: a stack of layers that learns: parameters from a spec, states and logits on a tape.
 *
 * The spec, the order of operations and the kernels are those of transformer.c, so that what was learned gives the same bits when it is loaded again. */
#include "learner.h"

#include "../tensor/tensor.h"
#include "../attn/rope.h"

#include <math.h>
#include <stdio.h>

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

/* What is added to the stream this often is made smaller, so that their sum is not (Radford et al. 2019); a norm of the sum does as much, and so does Xavier's beginning. */
static double residual_scale(const hd_maker *m, const hd_transformer_spec *spec) {
  const double times = (spec->cross ? 3.0 : 2.0) * (double)spec->layers;
  return spec->norm_place == HD_NORM_AFTER || m->xavier ? 1 : 1 / sqrt(times);
}

/* Queries from the stream, keys and values in one product from what the encoder gave, which is as wide. */
static heed_nn_attention make_cross(hd_maker *m, const hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  const int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  heed_nn_attention a = {.heads = spec->heads, .kv_heads = spec->kv_heads, .attention = &t->cross};
  a.w_q = hd_make_matrix(m, "cross_query", q, spec->width, 1);
  a.b_q = hd_make_bias(m, spec->bias_qkv, "cross_query", q);
  a.w_kv = hd_make_matrix(m, "cross_kv", 2 * kv, spec->width, 1);
  a.b_kv = hd_make_bias(m, spec->bias_qkv, "cross_kv", 2 * kv);
  a.w_o = hd_make_matrix(m, "cross_output", spec->width, q, residual_scale(m, spec));
  a.b_o = hd_make_bias(m, spec->bias_output, "cross_output", spec->width);
  return a;
}

static heed_nn_attention make_attention(hd_maker *m, const hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  const hd_attention_kind kind = hd_kind_of(&t->kinds, m->layer);
  const int64_t q = spec->heads * spec->head_dim, columns = hd_kind_columns(&kind, spec);
  const hd_positions positions = hd_spec_positions_of(spec, m->layer);
  heed_nn_attention a = {.heads = spec->heads,
                         .kv_heads = spec->kv_heads,
                         .attention = &t->attention,
                         .rope = hd_positions_rotate(positions) ? &t->rope : NULL};
  a.w_qkv = hd_make_matrix(m, "qkv", columns, spec->width, 1);
  a.b_qkv = hd_make_bias(m, spec->bias_qkv, "qkv", columns);
  a.w_o = hd_make_matrix(m, "output", spec->width, q, residual_scale(m, spec));
  a.b_o = hd_make_bias(m, spec->bias_output, "output", spec->width);
  if (positions == HD_POSITIONS_RELATIVE) a.relative = t->relative;
  if (positions == HD_POSITIONS_XL) {
    a.w_distances = hd_make_matrix(m, "distance", q, spec->width, 1);
    a.content = hd_make_matrix(m, "content", spec->heads, spec->head_dim, 1);
    a.position = hd_make_matrix(m, "place", spec->heads, spec->head_dim, 1);
  }
  return a;
}

static heed_nn_feed_forward make_feed_forward(hd_maker *m, const hd_transformer_spec *spec) {
  const bool gated = spec->feed_forward_kind == HD_FEED_FORWARD_GATED;
  const int64_t wide = spec->feed_forward * (gated ? 2 : 1);
  heed_nn_feed_forward f = {.gated = gated, .activation = spec->activation};
  f.w_up = hd_make_matrix(m, "up", wide, spec->width, 1);
  f.b_up = hd_make_bias(m, spec->bias_feed_forward, "up", wide);
  f.w_down = hd_make_matrix(m, "down", spec->width, spec->feed_forward, residual_scale(m, spec));
  f.b_down = hd_make_bias(m, spec->bias_feed_forward, "down", spec->width);
  return f;
}

static heed_nn_block make_layer(hd_maker *m, const hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  heed_nn_block b = {.norm_after = spec->norm_place == HD_NORM_AFTER, .dropout = t->dropout};
  b.attention_norm = hd_make_norm(m, spec, "attention_norm");
  b.attention = make_attention(m, t);
  if (spec->cross) {
    b.cross_norm = hd_make_norm(m, spec, "cross_norm");
    b.cross = make_cross(m, t);
  }
  b.feed_forward_norm = hd_make_norm(m, spec, "feed_forward_norm");
  b.feed_forward = make_feed_forward(m, spec);
  return b;
}

static void make_head(hd_maker *m, hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
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

/* A row that is scaled by √width before it meets the positions, and by which the head multiplies, has length 1 (Vaswani et al. 2017). */
heed_tensor *hd_make_embedding(hd_maker *m, const hd_transformer_spec *spec) {
  if (!m->xavier || m->spread > 0) return hd_make_matrix(m, "embedding", spec->vocabulary, spec->width, 1);
  return hd_make_part(m, "embedding", ".weight", 2, (int64_t[]){spec->vocabulary, spec->width}, HEED_INITIAL_NORMAL,
                      1 / sqrt((double)spec->width));
}

void hd_stack_make(hd_maker *m, hd_learner_stack *t, heed_tensor *embedding) {
  const hd_transformer_spec *spec = &t->spec;
  m->layer = -1;
  t->embedding = embedding ? embedding : hd_make_embedding(m, spec);
  if (hd_spec_has_table(spec)) t->position = hd_make_matrix(m, "position", spec->context + spec->position_offset, spec->width, 1);
  if (hd_spec_uses(spec, HD_POSITIONS_RELATIVE)) t->relative = hd_make_matrix(m, "relative", spec->relative_buckets, spec->heads, 1);
  if (spec->embedding_norm) t->embedding_norm = hd_make_norm(m, spec, "embedding_norm");
  for (m->layer = 0; m->layer < spec->layers; m->layer++) t->layers[m->layer] = make_layer(m, t);
  m->layer = -1;
  if (spec->norm_place == HD_NORM_BEFORE) t->final_norm = hd_make_norm(m, spec, "final_norm");
  if (!spec->headless) make_head(m, t);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------------------ */

/* rows × columns floats that live as long as the learner. */
static heed_status table(heed_learner *learner, int64_t rows, int64_t columns, heed_view *out) {
  int64_t count;
  float *data;
  HD_REQUIRE(hd_mul(rows, columns, &count), learner->context, HEED_E_OVERFLOW, "the tables of positions do not fit in memory");
  HD_TRY(hd_memory_check(learner->context, "positions", count * (int64_t)sizeof *data));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "positions", count, sizeof *data, &data));
  *out = heed_view_of(data, HEED_F32, 2, (int64_t[]){rows, columns});
  return HEED_OK;
}

static heed_status make_rotary(heed_learner *learner, hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  const int64_t pairs = spec->rotary_dim / 2;
  double *frequency;
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "positions", pairs, sizeof *frequency, &frequency));
  HD_TRY(table(learner, spec->context, pairs, &t->cosine));
  HD_TRY(table(learner, spec->context, pairs, &t->sine));
  hd_rope_frequencies(&spec->rotary, spec->rotary_dim, frequency);
  const hd_rope_turns turns = {frequency, pairs, hd_rope_attention_factor(&spec->rotary)};
  hd_rope_table(learner->context, &turns, 0, spec->context, t->cosine.data, t->sine.data);
  t->rope = (heed_rope){.size = sizeof t->rope,
                        .interleaved = spec->positions == HD_POSITIONS_ROTARY_INTERLEAVED,
                        .rotary_dim = spec->rotary_dim,
                        .cosine = &t->cosine,
                        .sine = &t->sine};
  return HEED_OK;
}

static heed_status make_sinusoid(heed_learner *learner, hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  HD_TRY(table(learner, spec->context, spec->width, &t->sinusoid));
  for (int64_t i = 0; i < spec->context; i++) hd_spec_sinusoid(spec, i, (float *)t->sinusoid.data + i * spec->width);
  return HEED_OK;
}

/* Of all distances that a row may have. */
static heed_status make_distances(heed_learner *learner, hd_learner_stack *t) {
  const hd_transformer_spec *spec = &t->spec;
  const int64_t count = hd_spec_distances(spec, spec->context), first = hd_spec_first_distance(spec, spec->context);
  HD_TRY(table(learner, count, spec->width, &t->distances));
  for (int64_t i = 0; i < count; i++) hd_spec_sinusoid(spec, first + i, (float *)t->distances.data + i * spec->width);
  return HEED_OK;
}

static heed_status make_slopes(heed_learner *learner, hd_learner_stack *t) {
  double slopes[HD_MAX_HEADS];
  HD_TRY(table(learner, 1, t->spec.heads, &t->slopes));
  t->slopes = heed_view_of(t->slopes.data, HEED_F32, 1, &t->spec.heads);
  HD_TRY(heed_alibi_slopes(learner->context, t->spec.heads, slopes));
  for (int64_t i = 0; i < t->spec.heads; i++) ((float *)t->slopes.data)[i] = (float)slopes[i];
  return HEED_OK;
}

static heed_status name_layers(heed_learner *learner, const char *name, hd_learner_stack *t) {
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "layers", t->spec.layers, sizeof *t->layer_names, &t->layer_names));
  for (int64_t i = 0; i < t->spec.layers; i++) {
    char text[64], *copy;
    int length = snprintf(text, sizeof text, "%slayer %lld", name, (long long)i);
    HD_TRY(hd_arena_text(&learner->arena, learner->context, text, (size_t)length, &copy));
    t->layer_names[i] = copy;
  }
  return HEED_OK;
}

heed_status hd_stack_start(heed_learner *learner, const hd_transformer_spec *spec, const char *name, hd_learner_stack *t) {
  *t = (hd_learner_stack){.spec = *spec, .dropout = learner->dropout};
  t->attention = (heed_attention){.size = sizeof t->attention,
                                  .causal = !spec->bidirectional,
                                  .has_window_left = spec->window > 0,
                                  .window_left = spec->window > 0 ? spec->window - 1 : 0,
                                  .align = HEED_ALIGN_START,
                                  .dropout = learner->dropout};
  HD_TRY(hd_kinds_read(learner->context, &learner->arena, spec, &t->kinds));
  t->cross = (heed_attention){.size = sizeof t->cross, .dropout = learner->dropout};
  if (hd_spec_rotates(spec)) HD_TRY(make_rotary(learner, t));
  if (hd_spec_uses(spec, HD_POSITIONS_SINUSOIDAL)) HD_TRY(make_sinusoid(learner, t));
  if (hd_spec_uses(spec, HD_POSITIONS_XL)) HD_TRY(make_distances(learner, t));
  if (hd_spec_uses(spec, HD_POSITIONS_ALIBI)) HD_TRY(make_slopes(learner, t));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "layers", spec->layers, sizeof *t->layers, &t->layers));
  return name_layers(learner, name, t);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

static heed_tensor *embed(const hd_learner_stack *t, heed_tape *tape, const hd_id_rows *rows) {
  const hd_transformer_spec *spec = &t->spec;
  heed_tensor *x = heed_tape_embedding(tape, rows->ids, t->embedding);
  if (spec->scaled_embedding) x = heed_tape_scale(tape, x, sqrt((double)spec->width));
  if (t->position)
    x = heed_tape_add(tape, x, heed_tape_slice(tape, t->position, 0, spec->position_offset, spec->position_offset + rows->columns));
  if (t->sinusoid.data) {
    heed_view view = t->sinusoid;
    view.dim[0] = rows->columns;
    x = heed_tape_add(tape, x, heed_tape_input(tape, &view));
  }
  if (spec->embedding_norm) x = heed_nn_norm_apply(tape, &t->embedding_norm, x);
  return heed_tape_dropout(tape, x, t->dropout);
}

/* The rows of distances that sequences of so many tokens have, and the score that meets them. */
static heed_tensor *distances_of(const hd_learner_stack *t, heed_tape *tape, int64_t length, heed_score *score) {
  const hd_transformer_spec *spec = &t->spec;
  if (!t->distances.data) return NULL;
  heed_view view = t->distances;
  view.dim[0] = hd_spec_distances(spec, length);
  view.data = (float *)view.data + (hd_spec_first_distance(spec, length) - hd_spec_first_distance(spec, spec->context)) * spec->width;
  *score = (heed_score){.size = sizeof *score, .kind = HEED_SCORE_XL, .first_distance = hd_spec_first_distance(spec, length)};
  return heed_tape_input(tape, &view);
}

/* Where the tokens of a layer stand, as far as attention is to know; its matrices come with the layer. */
static void place(const hd_learner_stack *t, hd_positions positions, const heed_score *score, heed_attention *attention) {
  const bool relative = positions == HD_POSITIONS_RELATIVE;
  attention->relative_causal = relative && !t->spec.bidirectional;
  attention->relative_distance = relative ? t->spec.relative_distance : 0;
  attention->alibi = positions == HD_POSITIONS_ALIBI ? &t->slopes : NULL;
  attention->score = positions == HD_POSITIONS_XL ? score : NULL;
}

/* A layer's linear attention, as the tape takes it, which keeps a copy. */
static const heed_tape_linear_attention_options *linear_of(const hd_learner_stack *t, int64_t layer, const int64_t *lengths,
                                                           heed_linear_attention *attention, heed_tape_linear_attention_options *out) {
  const hd_attention_kind kind = hd_kind_of(&t->kinds, layer);
  *attention = hd_kind_linear(&kind, &t->spec, NULL);
  attention->key_lengths = lengths;
  *out = (heed_tape_linear_attention_options){
      .size = sizeof *out, .attention = attention, .features = kind.rows, .seed = kind.seed, .stream = (uint32_t)layer};
  return out;
}

/* Likewise LSH attention. */
static const heed_tape_lsh_attention_options *lsh_of(const hd_learner_stack *t, int64_t layer, const int64_t *lengths,
                                                     heed_lsh_attention *attention, heed_tape_lsh_attention_options *out) {
  const hd_attention_kind kind = hd_kind_of(&t->kinds, layer);
  *attention = hd_kind_lsh(&kind, &t->spec, layer);
  attention->key_lengths = lengths;
  *out = (heed_tape_lsh_attention_options){.size = sizeof *out, .attention = attention};
  return out;
}

heed_tensor *hd_stack_states(const hd_learner_stack *t, heed_tape *tape, const hd_id_rows *rows, heed_tensor *memory,
                             const hd_id_rows *memory_rows) {
  heed_attention attention = t->attention, cross = t->cross;
  attention.key_lengths = rows->lengths;
  if (memory) cross.key_lengths = memory_rows->lengths;
  heed_tape_label(tape, "the embedding");
  heed_tensor *x = embed(t, tape, rows);
  heed_score score = {0};
  heed_tensor *distances = distances_of(t, tape, rows->columns, &score);
  heed_linear_attention of_linear;
  heed_tape_linear_attention_options linear;
  heed_lsh_attention of_lsh;
  heed_tape_lsh_attention_options lsh;
  for (int64_t i = 0; i < t->spec.layers; i++) {
    heed_nn_block block = t->layers[i];
    const hd_attention_kind kind = hd_kind_of(&t->kinds, i);
    const hd_positions positions = hd_spec_positions_of(&t->spec, i);
    attention.pattern = kind.pattern; // the tape keeps a copy of the rest
    place(t, positions, &score, &attention);
    block.attention.attention = &attention;
    if (kind.linear) block.attention.linear = linear_of(t, i, rows->lengths, &of_linear, &linear);
    if (kind.rounds > 0) block.attention.lsh = lsh_of(t, i, rows->lengths, &of_lsh, &lsh);
    block.attention.distances = positions == HD_POSITIONS_XL ? distances : NULL;
    block.cross.attention = &cross;
    heed_tape_label(tape, t->layer_names[i]);
    x = heed_nn_block_apply(tape, &block, x, memory);
  }
  heed_tape_label(tape, "the head");
  return t->spec.norm_place == HD_NORM_BEFORE ? heed_nn_norm_apply(tape, &t->final_norm, x) : x;
}

heed_tensor *hd_stack_head(const hd_learner_stack *t, heed_tape *tape, heed_tensor *x) {
  const hd_transformer_spec *spec = &t->spec;
  if (t->head_dense) {
    x = heed_tape_linear(tape, x, t->head_dense, t->head_dense_bias);
    x = heed_tape_activate(tape, x, spec->head == HEED_HEAD_CLASS ? HEED_ACTIVATION_TANH : spec->activation);
    if (hd_spec_transforms(spec)) x = heed_nn_norm_apply(tape, &t->head_norm, x);
  }
  if (spec->head != HEED_HEAD_TOKENS) x = heed_tape_dropout(tape, x, t->dropout);
  return heed_tape_linear(tape, x, t->head, t->head_bias);
}
