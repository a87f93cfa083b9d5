/* learner.c: the transformer that learns: parameters from a spec, logits and loss on a tape.
 *
 * The spec, the order of operations and the kernels are those of transformer.c, so that what was learned gives the same bits when it is loaded again. */
#include "learner.h"

#include "../io/json.h"
#include "../tensor/tensor.h"
#include "../attn/rope.h"

#include <math.h>
#include <stdio.h>

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

static heed_tensor *add(hd_maker *m, const char *part, const char *suffix, int ndim, const int64_t *dim, heed_initial kind, double gain) {
  heed_tensor *out = NULL;
  char name[HD_PARAMETER_NAME_LENGTH];
  if (m->status != HEED_OK) return NULL;
  if (m->layer >= 0) snprintf(name, sizeof name, "layers.%lld.%s%s", (long long)m->layer, part, suffix);
  else snprintf(name, sizeof name, "%s%s", part, suffix);
  const hd_part made = {.name = name, .part = part, .layer = m->layer, .ndim = ndim, .dim = dim, .kind = kind, .gain = gain};
  m->status = m->make(m, &made, &out);
  m->made++;
  return out;
}

static const double usual_spread = 0.02; // Radford et al. 2019

static heed_tensor *scaled_matrix(hd_maker *m, const char *part, int64_t outputs, int64_t inputs, double scale) {
  return add(m, part, ".weight", 2, (int64_t[]){outputs, inputs}, HEED_INITIAL_NORMAL, scale * m->spread);
}

static heed_tensor *matrix(hd_maker *m, const char *part, int64_t outputs, int64_t inputs) {
  return scaled_matrix(m, part, outputs, inputs, 1);
}

static heed_tensor *bias(hd_maker *m, bool has, const char *part, int64_t n) {
  return has ? add(m, part, ".bias", 1, &n, HEED_INITIAL_CONSTANT, 0) : NULL;
}

static heed_nn_norm norm(hd_maker *m, const char *part) {
  const hd_transformer_spec *spec = &m->learner->spec;
  heed_nn_norm out = {.rms = spec->norm == HD_NORM_RMS, .epsilon = spec->norm_eps};
  out.weight = add(m, part, ".weight", 1, &spec->width, HEED_INITIAL_CONSTANT, 1);
  out.bias = bias(m, spec->norm == HD_NORM_LAYER && !spec->norm_unbiased, part, spec->width);
  return out;
}

static heed_nn_block make_layer(hd_maker *m) {
  heed_learner *learner = m->learner;
  const hd_transformer_spec *spec = &learner->spec;
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  const bool gated = spec->feed_forward_kind == HD_FEED_FORWARD_GATED;
  // What is added to the stream 2 · layers times is made smaller, so that their sum is not (Radford et al. 2019); a norm of the sum does as much.
  double residual = spec->norm_place == HD_NORM_AFTER ? 1 : 1 / sqrt(2.0 * (double)spec->layers);
  heed_nn_block b = {.norm_after = spec->norm_place == HD_NORM_AFTER, .dropout = learner->dropout};
  b.attention_norm = norm(m, "attention_norm");
  b.attention = (heed_nn_attention){.heads = spec->heads,
                                    .kv_heads = spec->kv_heads,
                                    .attention = &learner->attention,
                                    .rope = spec->positions == HD_POSITIONS_LEARNED ? NULL : &learner->rope};
  b.attention.w_qkv = matrix(m, "qkv", q + 2 * kv, spec->width);
  b.attention.b_qkv = bias(m, spec->bias_qkv, "qkv", q + 2 * kv);
  b.attention.w_o = scaled_matrix(m, "output", spec->width, q, residual);
  b.attention.b_o = bias(m, spec->bias_output, "output", spec->width);
  b.feed_forward_norm = norm(m, "feed_forward_norm");
  b.feed_forward = (heed_nn_feed_forward){.gated = gated, .activation = spec->activation};
  int64_t wide = spec->feed_forward * (gated ? 2 : 1);
  b.feed_forward.w_up = matrix(m, "up", wide, spec->width);
  b.feed_forward.b_up = bias(m, spec->bias_feed_forward, "up", wide);
  b.feed_forward.w_down = scaled_matrix(m, "down", spec->width, spec->feed_forward, residual);
  b.feed_forward.b_down = bias(m, spec->bias_feed_forward, "down", spec->width);
  return b;
}

static heed_status name_layers(heed_learner *learner) {
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "layers", learner->spec.layers, sizeof *learner->layer_names,
                           &learner->layer_names));
  for (int64_t i = 0; i < learner->spec.layers; i++) {
    char text[32], *copy;
    int length = snprintf(text, sizeof text, "layer %lld", (long long)i);
    HD_TRY(hd_arena_text(&learner->arena, learner->context, text, (size_t)length, &copy));
    learner->layer_names[i] = copy;
  }
  return HEED_OK;
}

void hd_learner_make(hd_maker *m) {
  heed_learner *learner = m->learner;
  const hd_transformer_spec *spec = &learner->spec;
  if (m->spread == 0) m->spread = usual_spread;
  m->layer = -1;
  learner->embedding = matrix(m, "embedding", spec->vocabulary, spec->width);
  if (spec->positions == HD_POSITIONS_LEARNED) learner->position = matrix(m, "position", spec->context, spec->width);
  if (spec->embedding_norm) learner->embedding_norm = norm(m, "embedding_norm");
  for (m->layer = 0; m->layer < spec->layers; m->layer++) learner->layers[m->layer] = make_layer(m);
  m->layer = -1;
  if (spec->norm_place == HD_NORM_BEFORE) learner->final_norm = norm(m, "final_norm");
  if (spec->head == HEED_HEAD_CLASS) {
    learner->head_dense = matrix(m, "pooler", spec->width, spec->width);
    learner->head_dense_bias = bias(m, spec->bias_head, "pooler", spec->width);
  }
  if (hd_spec_transforms(spec)) {
    learner->head_dense = matrix(m, "head_dense", spec->width, spec->width);
    learner->head_dense_bias = bias(m, spec->bias_head, "head_dense", spec->width);
    learner->head_norm = norm(m, "head_norm");
  }
  learner->head = hd_spec_head_is_embedding(spec) ? learner->embedding : matrix(m, "head", hd_spec_outputs(spec), spec->width);
  learner->head_bias = bias(m, spec->bias_head, "head", hd_spec_outputs(spec));
}

/* What learns has gradients, which take as much as its numbers. The limits of spec.h keep the sum far below 2^63. */
static heed_status count(hd_maker *m, const hd_part *part, heed_tensor **out) {
  *out = NULL;
  m->bytes += part->dim[0] * (part->ndim > 1 ? part->dim[1] : 1) * 2 * (int64_t)sizeof(float);
  return HEED_OK;
}

heed_status hd_learner_begin_by_chance(hd_maker *m, const hd_part *part, heed_tensor **out) {
  HD_TRY(heed_parameters_add(m->learner->parameters, part->name, part->ndim, part->dim, NULL, out));
  return heed_tensor_initialise(m->learner->context, *out, part->kind, part->gain, m->seed, m->made);
}

static heed_status make_parameters(heed_learner *learner, const heed_learner_options *options) {
  hd_maker counter = {.learner = learner, .make = count},
           m = {.learner = learner, .make = hd_learner_begin_by_chance, .seed = options->seed};
  m.spread = options->spread;
  hd_learner_make(&counter);
  HD_TRY(hd_memory_check(learner->context, "the model with its gradients", counter.bytes));
  hd_learner_make(&m);
  return m.status;
}

/* ---- making one ------------------------------------------------------------------------------------------------------------------- */

static heed_status check_range(heed_context *context, const char *name, int64_t value, int64_t least, int64_t most) {
  HD_REQUIRE(value >= least && value <= most, context, HEED_E_ARGUMENT, "%s: got %lld, allowed %lld to %lld", name, (long long)value,
             (long long)least, (long long)most);
  return HEED_OK;
}

static heed_status spec_of(heed_context *context, const heed_learner_options *o, hd_transformer_spec *out) {
  HD_TRY(check_range(context, "layers", o->layers, 1, HD_MAX_LAYERS));
  HD_TRY(check_range(context, "heads", o->heads, 1, HD_MAX_HEADS));
  HD_TRY(check_range(context, "key/value heads", o->kv_heads, 0, HD_MAX_HEADS));
  HD_TRY(check_range(context, "width", o->width, 1, HD_MAX_WIDTH));
  HD_TRY(check_range(context, "feed-forward width", o->feed_forward, 0, HD_MAX_WIDTH));
  HD_TRY(check_range(context, "context", o->context, 1, HD_MAX_CONTEXT));
  HD_TRY(check_range(context, "vocabulary", o->vocabulary, 1, HD_MAX_VOCABULARY));
  HD_REQUIRE(o->dropout >= 0 && o->dropout < 1, context, HEED_E_ARGUMENT, "dropout: got %g, allowed from 0 to below 1", o->dropout);
  HD_REQUIRE(o->spread >= 0 && o->spread < INFINITY, context, HEED_E_ARGUMENT, "spread: got %g, allowed from 0", o->spread);
  HD_REQUIRE(o->head >= HEED_HEAD_TOKENS && o->head <= HEED_HEAD_CLASS, context, HEED_E_ARGUMENT, "head: there is no such kind");
  if (o->head != HEED_HEAD_TOKENS) {
    HD_REQUIRE(o->kind == HEED_LEARNER_ENCODER, context, HEED_E_ARGUMENT, "head: only an encoder has one for labels or a class");
    HD_TRY(check_range(context, "labels", o->labels, 1, HD_MAX_LABELS));
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

static heed_status make_tables(heed_learner *learner) {
  const hd_transformer_spec *spec = &learner->spec;
  int64_t pairs = spec->rotary_dim / 2, dim[] = {spec->context, pairs}, count;
  double *frequency = NULL;
  float *cosine, *sine;
  if (spec->positions == HD_POSITIONS_LEARNED) return HEED_OK;
  HD_REQUIRE(hd_mul(spec->context, pairs, &count), learner->context, HEED_E_OVERFLOW,
             "the tables of rotary positions do not fit in memory");
  HD_TRY(hd_memory_check(learner->context, "rotary positions", count * 2 * (int64_t)sizeof(float)));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "rotary positions", pairs, sizeof *frequency, &frequency));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "rotary positions", count, sizeof *cosine, &cosine));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "rotary positions", count, sizeof *sine, &sine));
  for (int64_t i = 0; i < pairs; i++) frequency[i] = hd_spec_frequency(spec, i);
  hd_rope_table(learner->context, frequency, pairs, 0, spec->context, cosine, sine);
  learner->cosine = heed_view_of(cosine, HEED_F32, 2, dim);
  learner->sine = heed_view_of(sine, HEED_F32, 2, dim);
  learner->rope = (heed_rope){.size = sizeof learner->rope,
                              .interleaved = spec->positions == HD_POSITIONS_ROTARY_INTERLEAVED,
                              .rotary_dim = spec->rotary_dim,
                              .cosine = &learner->cosine,
                              .sine = &learner->sine};
  return HEED_OK;
}

static heed_status fill(heed_learner *learner) {
  HD_TRY(make_tables(learner));
  HD_TRY(heed_parameters_new(learner->context, &learner->parameters));
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "layers", learner->spec.layers, sizeof *learner->layers, &learner->layers));
  return name_layers(learner);
}

heed_status hd_learner_start(heed_context *context, const hd_transformer_spec *spec, double dropout, heed_learner **out) {
  heed_learner *learner;
  HD_TRY(hd_allocate(context, "a learner", 1, sizeof *learner, &learner));
  *learner = (heed_learner){.context = context, .spec = *spec, .dropout = dropout};
  learner->attention = (heed_attention){.size = sizeof learner->attention,
                                        .causal = !spec->bidirectional,
                                        .has_window_left = spec->window > 0,
                                        .window_left = spec->window > 0 ? spec->window - 1 : 0,
                                        .align = HEED_ALIGN_START,
                                        .dropout = dropout};
  hd_arena_init(&learner->arena, context);
  *out = learner;
  return fill(learner);
}

heed_status hd_learner_name_labels(heed_learner *learner, const char *const *given) {
  const char **names;
  if (learner->spec.head == HEED_HEAD_TOKENS) return HEED_OK;
  HD_REQUIRE(given, learner->context, HEED_E_ARGUMENT, "labels: their names are missing");
  HD_TRY(hd_arena_allocate(&learner->arena, learner->context, "labels", learner->spec.labels, sizeof *names, &names));
  for (int64_t i = 0; i < learner->spec.labels; i++) {
    char *copy;
    HD_REQUIRE(given[i] && hd_is_printable(hd_text_of(given[i])), learner->context, HEED_E_ARGUMENT,
               "labels: the name of label %lld is not a text without control characters", (long long)i);
    HD_TRY(hd_arena_text(&learner->arena, learner->context, given[i], strlen(given[i]), &copy));
    names[i] = copy;
  }
  learner->label_names = names;
  return HEED_OK;
}

heed_status heed_learner_new(heed_context *context, const heed_learner_options *given, heed_learner **out) {
  heed_learner_options options = {.size = sizeof options};
  hd_transformer_spec spec;
  heed_learner *learner = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out && given, context, HEED_E_ARGUMENT, "heed_learner_new: null");
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_learner_options", given, &options, sizeof options));
  HD_TRY(spec_of(context, &options, &spec));
  heed_status status = hd_learner_start(context, &spec, options.dropout, &learner);
  if (status == HEED_OK) status = hd_learner_name_labels(learner, options.label_names);
  if (status == HEED_OK) status = make_parameters(learner, &options);
  if (status == HEED_OK) *out = learner;
  else heed_learner_free(learner);
  return status;
}

void heed_learner_free(heed_learner *learner) {
  if (!learner) return;
  heed_parameters_free(learner->parameters);
  heed_model_free(learner->model);
  hd_arena_free(&learner->arena);
  hd_release(learner->context, learner, 1, sizeof *learner);
}

heed_parameters *heed_learner_parameters(const heed_learner *learner) { return learner ? learner->parameters : NULL; }

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

enum { PADDING = -1 };

static heed_status check_ids(heed_learner *learner, const heed_tensor *ids) {
  heed_view view = heed_tensor_value(ids);
  HD_REQUIRE(ids && view.type == HEED_I32 && view.ndim == 2, learner->context, HEED_E_SHAPE, "ids: rank %d of %s, allowed i32 [B,n]",
             view.ndim, heed_type_name(view.type));
  HD_REQUIRE(view.dim[1] <= learner->spec.context, learner->context, HEED_E_SHAPE, "ids: %lld positions, allowed %lld",
             (long long)view.dim[1], (long long)learner->spec.context);
  return HEED_OK;
}

/* A batch as the tape takes it: without the −1 behind rows that are shorter than the longest. */
typedef struct rows {
  heed_tensor *ids;
  const int64_t *lengths; /* [B]; NULL: no row is padded */
} rows;

static heed_status copy_row(heed_learner *learner, int64_t row, int64_t n, const int32_t *from, int32_t *to, int64_t *length) {
  for (*length = 0; *length < n && from[*length] != PADDING; ++*length) to[*length] = from[*length];
  for (int64_t i = *length; i < n; i++)
    HD_REQUIRE(from[i] == PADDING, learner->context, HEED_E_ARGUMENT, "ids: row %lld has a token behind its padding (place %lld)",
               (long long)row, (long long)i);
  return HEED_OK;
}

static heed_status find_rows(heed_learner *learner, heed_tape *tape, heed_tensor *ids, rows *out) {
  const heed_view view = heed_tensor_value(ids);
  const int32_t *from = view.data;
  const int64_t batch = view.dim[0], n = view.dim[1];
  int32_t *copy;
  int64_t *lengths, at = 0;
  *out = (rows){.ids = ids};
  if (hd_tape_plans(tape)) return HEED_OK;
  while (at < batch * n && from[at] != PADDING) at++;
  if (at == batch * n) return HEED_OK;
  HD_TRY(hd_tape_keep(tape, "lengths of rows", batch, sizeof *lengths, &lengths));
  HD_TRY(hd_tape_keep(tape, "a batch", batch * n, sizeof *copy, &copy));
  for (int64_t r = 0; r < batch; r++) HD_TRY(copy_row(learner, r, n, from + r * n, copy + r * n, &lengths[r]));
  const heed_view whole = heed_view_of(copy, HEED_I32, 2, view.dim);
  *out = (rows){.ids = heed_tape_input(tape, &whole), .lengths = lengths};
  return HEED_OK;
}

/* What comes before the head: [B,n,width]. */
static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  rows batch;
  if (!learner || !tape || heed_tape_status(tape) != HEED_OK) return NULL;
  if (!hd_tape_note(tape, check_ids(learner, ids)) || !hd_tape_note(tape, find_rows(learner, tape, ids, &batch))) return NULL;
  heed_attention attention = learner->attention;
  attention.key_lengths = batch.lengths;
  heed_tape_label(tape, "the embedding");
  heed_tensor *x = heed_tape_embedding(tape, batch.ids, learner->embedding);
  if (learner->position) x = heed_tape_add(tape, x, heed_tape_slice(tape, learner->position, 0, 0, heed_tensor_value(ids).dim[1]));
  if (learner->spec.embedding_norm) x = heed_nn_norm_apply(tape, &learner->embedding_norm, x);
  x = heed_tape_dropout(tape, x, learner->dropout);
  for (int64_t i = 0; i < learner->spec.layers; i++) {
    heed_nn_block block = learner->layers[i];
    block.attention.attention = &attention;
    heed_tape_label(tape, learner->layer_names[i]);
    x = heed_nn_block_apply(tape, &block, x);
  }
  heed_tape_label(tape, "the head");
  return learner->spec.norm_place == HD_NORM_BEFORE ? heed_nn_norm_apply(tape, &learner->final_norm, x) : x;
}

/* The rows that the head reads: all positions, or of a class the first of each sequence, [B,width]. */
static heed_tensor *head_rows(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  if (!x || learner->spec.head != HEED_HEAD_CLASS) return x;
  return heed_tape_reshape(tape, heed_tape_slice(tape, x, 1, 0, 1), 2, (int64_t[]){x->dim[0], learner->spec.width});
}

static heed_tensor *apply_head(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  const hd_transformer_spec *spec = &learner->spec;
  if (learner->head_dense) {
    x = heed_tape_linear(tape, x, learner->head_dense, learner->head_dense_bias);
    x = heed_tape_activate(tape, x, spec->head == HEED_HEAD_CLASS ? HEED_ACTIVATION_TANH : spec->activation);
    if (hd_spec_transforms(spec)) x = heed_nn_norm_apply(tape, &learner->head_norm, x);
  }
  if (spec->head != HEED_HEAD_TOKENS) x = heed_tape_dropout(tape, x, learner->dropout);
  return heed_tape_linear(tape, x, learner->head, learner->head_bias);
}

heed_tensor *heed_learner_logits(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  heed_tensor *x = states(learner, tape, ids);
  return x ? apply_head(learner, tape, head_rows(learner, tape, x)) : NULL;
}

/* ---- the loss ------------------------------------------------------------------------------------------------------------------------ */

/* The places that are asked for, as rows of all, and what is asked for there. */
typedef struct asked {
  int32_t *rows, *targets; /* [count], with room for all */
  int64_t count, all;
} asked;

static heed_status find_asked(heed_context *context, const heed_tensor *targets, asked *out) {
  const heed_view view = heed_tensor_value(targets);
  const int32_t *target = view.data;
  HD_REQUIRE(targets && view.type == HEED_I32, context, HEED_E_TYPE, "targets: got %s, allowed i32", heed_type_name(view.type));
  *out = (asked){.all = hd_count(targets)};
  HD_TRY(hd_allocate(context, "the places that are asked for", out->all, 2 * sizeof *out->rows, &out->rows));
  out->targets = out->rows + out->all;
  for (int64_t i = 0; i < out->all; i++) {
    if (target[i] < 0) continue;
    out->rows[out->count] = (int32_t)i;
    out->targets[out->count++] = target[i];
  }
  return HEED_OK;
}

static heed_tensor *loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *x, const asked *a) {
  const heed_view rows = heed_view_of(a->rows, HEED_I32, 1, &a->count), targets = heed_view_of(a->targets, HEED_I32, 1, &a->count);
  x = heed_tape_reshape(tape, x, 2, (int64_t[]){a->all, learner->spec.width});
  x = heed_tape_gather(tape, x, heed_tape_input(tape, &rows));
  return heed_tape_cross_entropy(tape, apply_head(learner, tape, x), heed_tape_input(tape, &targets), NULL);
}

/* What is asked of rows of the head: of a class, what stands in the first column. */
static heed_tensor *head_targets(heed_learner *learner, heed_tape *tape, heed_tensor *targets) {
  heed_view view = heed_tensor_value(targets);
  if (!targets || learner->spec.head != HEED_HEAD_CLASS || view.ndim != 2) return targets;
  view.ndim = 1;
  return heed_tape_input(tape, &view);
}

heed_tensor *hd_learner_loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *logits, heed_tensor *targets) {
  return heed_tape_cross_entropy(tape, logits, head_targets(learner, tape, targets), NULL);
}

/* Where few places are asked for, as of masked tokens, the head is applied to those alone: it is a matrix as long as the vocabulary. */
heed_tensor *heed_learner_loss(heed_learner *learner, heed_tape *tape, heed_tensor *ids, heed_tensor *targets) {
  heed_tensor *x = states(learner, tape, ids), *loss = NULL;
  asked a = {0};
  if (!x) return NULL;
  x = head_rows(learner, tape, x);
  targets = head_targets(learner, tape, targets);
  // A plan provides for all places.
  if (!hd_tape_plans(tape) && !hd_tape_note(tape, find_asked(learner->context, targets, &a))) return NULL;
  if (a.count > 0 && 2 * a.count < a.all) loss = loss_of(learner, tape, x, &a);
  else loss = heed_tape_cross_entropy(tape, apply_head(learner, tape, x), targets, NULL);
  hd_release(learner->context, a.rows, a.all, 2 * sizeof *a.rows);
  return loss;
}
