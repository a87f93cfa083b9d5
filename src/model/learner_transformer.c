/* learner_transformer.c: the transformer as a learner's body: from options to the spec of its stack, or of two where it translates. */
#include "learner.h"

#include "../io/json.h"
#include "../tensor/tensor.h"

/* ---- making one ------------------------------------------------------------------------------------------------------------------- */

static heed_status check_options(heed_context *context, const heed_learner_options *o) {
  const bool pairs = o->kind == HEED_LEARNER_SEQ2SEQ;
  HD_TRY(hd_check_range(context, "layers", o->layers, 1, HD_MAX_LAYERS));
  HD_TRY(hd_check_range(context, "heads", o->heads, 1, HD_MAX_HEADS));
  HD_TRY(hd_check_range(context, "key/value heads", o->kv_heads, 0, HD_MAX_HEADS));
  HD_TRY(hd_check_range(context, "width", o->width, 1, HD_MAX_WIDTH));
  HD_TRY(hd_check_range(context, "feed-forward width", o->feed_forward, 0, HD_MAX_WIDTH));
  HD_TRY(hd_check_range(context, "context", o->context, 1, HD_MAX_CONTEXT));
  HD_TRY(hd_check_range(context, "vocabulary", o->vocabulary, 1, HD_MAX_VOCABULARY));
  HD_TRY(hd_check_range(context, "source", o->source, pairs ? 1 : 0, pairs ? HD_MAX_CONTEXT : 0));
  HD_TRY(hd_check_range(context, "source vocabulary", o->source_vocabulary, 0, pairs ? HD_MAX_VOCABULARY : 0));
  HD_TRY(hd_check_range(context, "encoder layers", o->encoder_layers, 0, pairs ? HD_MAX_LAYERS : 0));
  HD_REQUIRE(o->positions >= HEED_POSITIONS_USUAL && o->positions <= HEED_POSITIONS_NONE, context, HEED_E_ARGUMENT,
             "positions: there is no kind %d", (int)o->positions);
  const bool turns = o->layer_positions && *o->layer_positions;
  HD_REQUIRE((o->positions != 0) + turns + (o->rotary || o->learned) <= 1, context, HEED_E_ARGUMENT,
             "positions: given twice (of rotary or learned, a kind, and kinds in turn)");
  HD_REQUIRE(!turns || strlen(o->layer_positions) < HD_ATTENTION_TEXT, context, HEED_E_ARGUMENT,
             "positions: a text of %zu bytes, allowed %d", strlen(o->layer_positions), HD_ATTENTION_TEXT - 1);
  HD_REQUIRE(!pairs || !o->rotary, context, HEED_E_ARGUMENT, "rotary: who translates has sinusoidal or learned positions");
  HD_REQUIRE(o->head >= HEED_HEAD_TOKENS && o->head <= HEED_HEAD_CLASS, context, HEED_E_ARGUMENT, "head: there is no such kind");
  if (o->head == HEED_HEAD_TOKENS) return HEED_OK;
  HD_REQUIRE(o->kind == HEED_LEARNER_ENCODER, context, HEED_E_ARGUMENT, "head: only an encoder has one for labels or a class");
  return hd_check_range(context, "labels", o->labels, 1, HD_MAX_LABELS);
}

/* Of T5, and of every model that took them over. */
enum { BUCKETS = 32, FARTHEST = 128 };

static void set_positions(const heed_learner_options *o, hd_positions usual, hd_transformer_spec *spec) {
  static const hd_positions kinds[] = {[HEED_POSITIONS_LEARNED] = HD_POSITIONS_LEARNED,
                                       [HEED_POSITIONS_SINUSOIDAL] = HD_POSITIONS_SINUSOIDAL,
                                       [HEED_POSITIONS_ROTARY] = HD_POSITIONS_ROTARY_HALF,
                                       [HEED_POSITIONS_ALIBI] = HD_POSITIONS_ALIBI,
                                       [HEED_POSITIONS_XL] = HD_POSITIONS_XL,
                                       [HEED_POSITIONS_T5] = HD_POSITIONS_RELATIVE,
                                       [HEED_POSITIONS_NONE] = HD_POSITIONS_NONE};
  spec->positions = o->positions ? kinds[o->positions] : usual;
  spec->rotary = (heed_rope_scaling){.size = sizeof spec->rotary, .theta = 10000};
  if (o->layer_positions && *o->layer_positions) {
    memcpy(spec->layer_positions, o->layer_positions, strlen(o->layer_positions) + 1);
    spec->positions = hd_spec_turn(spec, 0); // so that files say the first, whoever reads no more
  }
  if (!hd_spec_uses(spec, HD_POSITIONS_RELATIVE)) return;
  spec->relative_buckets = BUCKETS;
  spec->relative_distance = FARTHEST;
}

/* The decoder and the encoder of 2017 (Vaswani et al.), unless something else is asked for: as Marian has them, of which BART is a relative. */
static heed_status specs_of_pair(heed_context *context, const heed_learner_options *o, hd_transformer_spec *decoder,
                                 hd_transformer_spec *encoder) {
  const bool separate = o->source_vocabulary > 0, biased = !o->no_bias;
  *decoder = (hd_transformer_spec){.layers = o->layers,
                                   .width = o->width,
                                   .heads = o->heads,
                                   .kv_heads = o->kv_heads,
                                   .feed_forward = o->feed_forward,
                                   .vocabulary = o->vocabulary,
                                   .context = o->context,
                                   .norm = HD_NORM_LAYER,
                                   .norm_place = o->norm_before ? HD_NORM_BEFORE : HD_NORM_AFTER,
                                   .norm_eps = 1e-5,
                                   .norm_unbiased = !biased,
                                   .feed_forward_kind = HD_FEED_FORWARD_PLAIN,
                                   .activation = o->gelu_erf ? HEED_ACTIVATION_GELU : HEED_ACTIVATION_RELU,
                                   .scaled_embedding = true,
                                   .bias_qkv = biased,
                                   .bias_output = biased,
                                   .bias_feed_forward = biased,
                                   .cross = true,
                                   .tied = !o->untied};
  // Computed positions end nowhere, and Marian's files have one number for both stacks.
  set_positions(o, o->learned ? HD_POSITIONS_LEARNED : HD_POSITIONS_SINUSOIDAL, decoder);
  HD_TRY(hd_kinds_set(context, o->attention, decoder));
  const bool learned = hd_spec_has_table(decoder);
  if (!learned) decoder->context = HD_MAX(o->context, o->source);
  *encoder = *decoder;
  encoder->layers = o->encoder_layers ? o->encoder_layers : o->layers;
  if (learned) encoder->context = o->source;
  encoder->vocabulary = separate ? o->source_vocabulary : o->vocabulary;
  encoder->shared_embedding = !separate;
  encoder->cross = encoder->tied = false;
  encoder->bidirectional = encoder->headless = true;
  HD_TRY(hd_spec_finish(context, "the encoder", encoder));
  return hd_spec_finish(context, "the decoder", decoder);
}

static heed_status spec_of(heed_context *context, const heed_learner_options *o, hd_transformer_spec *out) {
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
  set_positions(o, llama || o->rotary ? HD_POSITIONS_ROTARY_HALF : HD_POSITIONS_LEARNED, out);
  HD_TRY(hd_kinds_set(context, o->attention, out));
  // As wide as gate, up and down of a third each make the parameters of 4 · width twice (Shazeer 2020), rounded up to whole cache lines.
  if (llama && o->feed_forward == 0) out->feed_forward = hd_ceil_div(8 * o->width, 3 * 32) * 32;
  return hd_spec_finish(context, "the model", out);
}

heed_status hd_transformer_start(hd_transformer_learner *t, const hd_transformer_spec *spec, const hd_transformer_spec *encoder) {
  heed_learner *learner = &t->learner;
  learner->positions = spec->context;
  learner->width = spec->width;
  if (encoder) {
    learner->source = encoder->context;
    HD_TRY(hd_stack_start(learner, encoder, "the encoder's ", &t->encoder));
  }
  return hd_stack_start(learner, spec, encoder ? "the decoder's " : "", &t->stack);
}

heed_status hd_transformer_name_labels(hd_transformer_learner *t, const char *const *given) {
  heed_context *context = t->learner.context;
  const char **names;
  if (t->stack.spec.head == HEED_HEAD_TOKENS) return HEED_OK;
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "labels: their names are missing");
  HD_TRY(hd_arena_allocate(&t->learner.arena, context, "labels", t->stack.spec.labels, sizeof *names, &names));
  for (int64_t i = 0; i < t->stack.spec.labels; i++) {
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
  hd_transformer_spec spec, encoder;
  const bool translates = options->kind == HEED_LEARNER_SEQ2SEQ;
  HD_TRY(check_options(learner->context, options));
  HD_TRY(translates ? specs_of_pair(learner->context, options, &spec, &encoder) : spec_of(learner->context, options, &spec));
  HD_TRY(hd_transformer_start(t, &spec, translates ? &encoder : NULL));
  learner->source = options->source;
  learner->positions = options->context;
  return hd_transformer_name_labels(t, options->label_names);
}

static void make(hd_maker *m) {
  hd_transformer_learner *t = hd_transformer(m->learner);
  heed_tensor *shared = NULL;
  if (!t->stack.spec.cross) {
    hd_stack_make(m, &t->stack, NULL);
    return;
  }
  m->xavier = true;
  if (t->encoder.spec.shared_embedding) shared = hd_make_embedding(m, &t->stack.spec);
  m->of = "encoder.";
  hd_stack_make(m, &t->encoder, shared);
  m->of = NULL;
  hd_stack_make(m, &t->stack, shared);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

/* The rows that the head reads: all positions, or of a class the first of each sequence, [B,width]. */
static heed_tensor *head_rows(const hd_transformer_learner *t, heed_tape *tape, heed_tensor *x) {
  if (!x || t->stack.spec.head != HEED_HEAD_CLASS) return x;
  return heed_tape_reshape(tape, heed_tape_slice(tape, x, 1, 0, 1), 2, (int64_t[]){x->dim[0], t->stack.spec.width});
}

static heed_tensor *translate(const hd_transformer_learner *t, heed_tape *tape, const hd_pairs *pairs) {
  heed_tensor *memory = hd_stack_states(&t->encoder, tape, &pairs->source, NULL, NULL);
  return hd_stack_states(&t->stack, tape, &pairs->target, memory, &pairs->source);
}

static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  const hd_transformer_learner *t = hd_transformer(learner);
  const int64_t columns = heed_tensor_value(ids).dim[1];
  hd_id_rows rows;
  hd_pairs pairs;
  if (t->stack.spec.cross) return hd_tape_note(tape, hd_learner_pairs(learner, tape, ids, &pairs)) ? translate(t, tape, &pairs) : NULL;
  if (!hd_tape_note(tape, hd_learner_rows(learner, tape, ids, 0, columns, false, &rows))) return NULL;
  return head_rows(t, tape, hd_stack_states(&t->stack, tape, &rows, NULL, NULL));
}

static heed_tensor *head(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  return hd_stack_head(&hd_transformer(learner)->stack, tape, x);
}

const hd_learner_body hd_transformer_body = {.bytes = sizeof(hd_transformer_learner),
                                             .start = start,
                                             .make = make,
                                             .states = states,
                                             .head = head,
                                             .describe = hd_transformer_describe};
