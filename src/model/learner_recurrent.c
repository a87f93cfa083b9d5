/* learner_recurrent.c: the recurrent encoder–decoder as a learner's body (Bahdanau et al. 2015, appendix A).
 *
 * The encoder reads the source in both directions. The decoder's first state is tanh(W · the backward state at the first word); at step t it looks with s_{t−1} at the encoder's states and
 * takes the context and the last token into its gates. Without attention the memory is one entry, the last states of both directions: a softmax over one is 1. */
#include "learner.h"

#include "../base/philox.h"
#include "../io/json.h"
#include "../op/list.h"
#include "export.h"
#include "recurrent.h"

#include <math.h>

typedef struct recurrent {
  heed_learner learner;
  hd_recurrent_spec spec;
  hd_recurrent_parts p;
  double sampling;
} recurrent;

static recurrent *of(const heed_learner *learner) { return (recurrent *)learner; }

/* ---- making one --------------------------------------------------------------------------------------------------------------------- */

static heed_status start(heed_learner *learner, const heed_learner_options *o) {
  heed_context *context = learner->context;
  recurrent *r = of(learner);
  HD_TRY(hd_check_range(context, "width", o->width, 1, HD_MAX_WIDTH));
  HD_REQUIRE(o->positions == HEED_POSITIONS_USUAL && (!o->layer_positions || !*o->layer_positions), context, HEED_E_ARGUMENT,
             "positions: a recurrent model has none");
  HD_TRY(hd_check_range(context, "context", o->context, 1, HD_MAX_CONTEXT));
  HD_TRY(hd_check_range(context, "source", o->source, 1, HD_MAX_CONTEXT));
  HD_TRY(hd_check_range(context, "vocabulary", o->vocabulary, 1, HD_MAX_VOCABULARY));
  HD_TRY(hd_check_range(context, "source vocabulary", o->source_vocabulary, 0, HD_MAX_VOCABULARY));
  HD_REQUIRE(o->score >= HEED_LEARNER_ADDITIVE && o->score <= HEED_LEARNER_NONE, context, HEED_E_ARGUMENT, "score: there is no such kind");
  HD_REQUIRE(o->output >= HEED_LEARNER_STATE && o->output <= HEED_LEARNER_MAXOUT, context, HEED_E_ARGUMENT,
             "output: there is no such kind");
  HD_REQUIRE(o->sampling >= 0 && o->sampling <= 1, context, HEED_E_ARGUMENT, "sampling: got %g, allowed from 0 to 1", o->sampling);
  r->spec = (hd_recurrent_spec){.width = o->width,
                                .vocabulary = o->vocabulary,
                                .source_vocabulary = o->source_vocabulary,
                                .source = o->source,
                                .context = o->context,
                                .score = o->score,
                                .output = o->output};
  r->sampling = o->sampling;
  learner->source = o->source;
  learner->positions = o->context;
  learner->width = o->width;
  return HEED_OK;
}

/* Matrices begin with variance 1 / inputs, or with the spread that is asked for. */
static heed_tensor *make_part(hd_maker *m, const char *name, int rank, int64_t outputs, int64_t inputs) {
  const int64_t dim[] = {outputs, inputs};
  if (rank == 2 || !hd_ends_with(name, ".bias"))
    return hd_make_part(m, name, "", rank, dim, m->spread > 0 || rank == 1 ? HEED_INITIAL_NORMAL : HEED_INITIAL_HE_NORMAL,
                        m->spread > 0 ? m->spread
                        : rank == 1   ? 1 / sqrt((double)outputs)
                                      : 1);
  return hd_make_part(m, name, "", rank, dim, HEED_INITIAL_CONSTANT, 0);
}

static void make(hd_maker *m) {
  recurrent *r = of(m->learner);
  const hd_recurrent_spec *s = &r->spec;
  const int64_t w = s->width;
#define MAKE(member, name, kind, outputs, inputs, there)                                                                                   \
  r->p.member = (there) ? make_part(m, name, (kind) == HD_PART_VECTOR ? 1 : 2, outputs, inputs) : NULL;
  HD_RECURRENT_PARTS(MAKE)
#undef MAKE
}

/* ---- rows of tokens ------------------------------------------------------------------------------------------------------------------- */

/* Embeddings of the tokens of rows: packed, [Σ lengths,width], unless no row is padded. */
static heed_tensor *embed(const recurrent *r, heed_tape *tape, const hd_id_rows *rows, heed_tensor *table) {
  heed_tensor *ids = rows->ids;
  if (rows->lengths) {
    int64_t count = 0;
    const int32_t *from = heed_tensor_value(ids).data;
    int32_t *tokens;
    if (!hd_tape_note(tape, hd_tape_keep(tape, "a batch", rows->batch * rows->columns, sizeof *tokens, &tokens))) return NULL;
    for (int64_t b = 0; b < rows->batch; b++) {
      memcpy(tokens + count, from + b * rows->columns, (size_t)rows->lengths[b] * sizeof *tokens);
      count += rows->lengths[b];
    }
    const heed_view view = heed_view_of(tokens, HEED_I32, 1, &count);
    ids = heed_tape_input(tape, &view);
  }
  return heed_tape_dropout(tape, heed_tape_embedding(tape, ids, table), r->learner.dropout);
}

/* ---- the encoder ------------------------------------------------------------------------------------------------------------------------ */

/* What the decoder attends to, and begins with. */
typedef struct memory {
  heed_tensor *keys, *values, *initial;
  const int64_t *lengths;
} memory;

static heed_tensor *keys_of(const recurrent *r, heed_tape *tape, heed_tensor *states) {
  const int64_t w = r->spec.width;
  if (r->p.key) return heed_tape_linear(tape, states, r->p.key, r->p.key_bias);
  return heed_tape_add(tape, heed_tape_slice(tape, states, 2, 0, w), heed_tape_slice(tape, states, 2, w, 2 * w));
}

/* One entry, whose key does not matter. */
static memory fixed_vector(const recurrent *r, heed_tape *tape, heed_tensor *last, int64_t batch) {
  const int64_t w = r->spec.width, dim[] = {batch, 1, w};
  static float zero = 0;
  const heed_view none = {&zero, HEED_F32, 3, {batch, 1, w}, {0, 0, 0}};
  heed_tensor *values = heed_tape_linear(tape, last, r->p.context, NULL);
  return (memory){.keys = heed_tape_input(tape, &none),
                  .values = heed_tape_reshape(tape, values, 3, (int64_t[]){dim[0], 1, hd_recurrent_value(&r->spec)})};
}

static memory encode(const recurrent *r, heed_tape *tape, const hd_id_rows *source) {
  const hd_recurrent_parts *p = &r->p;
  const heed_nn_gru gru = {.directions = 2,
                           .w_input = {p->encoder_input, p->reverse_input},
                           .b_input = {p->encoder_input_bias, p->reverse_input_bias},
                           .w_state = {p->encoder_state, p->reverse_state},
                           .b_state = {p->encoder_state_bias, p->reverse_state_bias}};
  const heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = source->lengths, .rows = source->batch, .steps = source->columns};
  heed_tensor *last[2] = {NULL, NULL};
  heed_tape_label(tape, "the encoder");
  heed_tensor *x = embed(r, tape, source, p->source_embedding ? p->source_embedding : p->embedding);
  heed_tensor *states = heed_nn_gru_apply(tape, &gru, &rows, x, last);
  heed_tensor *from = r->spec.score == HEED_LEARNER_NONE ? heed_tape_concat(tape, 2, last, 1) : last[1];
  memory m = {.lengths = source->lengths};
  heed_tape_label(tape, "what is attended to");
  if (r->spec.score == HEED_LEARNER_NONE) m = fixed_vector(r, tape, from, source->batch);
  else {
    m.keys = keys_of(r, tape, states);
    m.values = heed_tape_linear(tape, states, p->context, NULL);
  }
  m.initial = heed_tape_activate(tape, heed_tape_linear(tape, from, p->initial, p->initial_bias), HEED_ACTIVATION_TANH);
  return m;
}

/* ---- the decoder ------------------------------------------------------------------------------------------------------------------------ */

/* U s + V y + C c and what is made of it. y are whole rows, so tokens must not be packed. */
static heed_tensor *deep_output(const recurrent *r, heed_tape *tape, heed_tensor *x, heed_tensor *out) {
  const int64_t w = r->spec.width, deep = hd_recurrent_deep(&r->spec);
  heed_tensor *sum = heed_tape_linear(tape, heed_tape_slice(tape, out, 2, 0, w), r->p.deep_state, r->p.deep_bias);
  sum = heed_tape_add(tape, sum, heed_tape_linear(tape, x, r->p.deep_token, NULL));
  sum = heed_tape_add(tape, sum, heed_tape_slice(tape, out, 2, w, w + deep));
  return r->spec.output == HEED_LEARNER_TANH ? heed_tape_activate(tape, sum, HEED_ACTIVATION_TANH) : heed_tape_maxout(tape, sum, 2);
}

static heed_tensor *decode(const recurrent *r, heed_tape *tape, const memory *m, hd_id_rows target) {
  const hd_recurrent_parts *p = &r->p;
  const hd_recurrent_spec *s = &r->spec;
  heed_tape_gru_options options = {.size = sizeof options,
                                   .lengths = target.lengths,
                                   .rows = target.batch,
                                   .steps = target.columns,
                                   .initial = m->initial,
                                   .keys = m->keys,
                                   .values = m->values,
                                   .w_query = p->query,
                                   .w_score = p->score,
                                   .scale = s->score == HEED_LEARNER_SCALED ? 1 / sqrt((double)s->width) : 1,
                                   .key_lengths = m->lengths};
  heed_tape_label(tape, "the decoder");
  const bool deep = hd_recurrent_deep(s) > 0;
  if (deep) target.lengths = NULL;
  heed_tensor *x = embed(r, tape, &target, p->embedding);
  heed_tensor *out = heed_tape_gru(tape, &options, heed_tape_linear(tape, x, p->input, p->input_bias), p->state, p->state_bias);
  heed_tape_label(tape, "the head");
  if (deep) out = deep_output(r, tape, x, out);
  return heed_tape_dropout(tape, out, r->learner.dropout);
}

static heed_tensor *head(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  return heed_tape_linear(tape, x, of(learner)->p.head, of(learner)->p.head_bias);
}

/* Scheduled sampling, all at once: a first pass says what the learner would have written after each token; a share of the tokens is replaced by that. */
static heed_status mix(const recurrent *r, heed_tape *tape, heed_tensor *logits, hd_id_rows *target) {
  const int64_t n = target->columns, classes = r->spec.vocabulary;
  int32_t *mixed;
  uint32_t stream;
  const uint64_t seed = hd_tape_draw(tape, &stream);
  HD_TRY(hd_tape_keep(tape, "a batch", target->batch * n, sizeof *mixed, &mixed));
  if (hd_tape_plans(tape)) return HEED_OK;
  const int32_t *ids = heed_tensor_value(target->ids).data;
  const float *row = heed_tensor_value(logits).data;
  for (int64_t i = 0; i < target->batch * n; i++, row += classes) {
    const bool first = i % n == 0; // the start token is given
    mixed[i] = ids[i];
    if (first || hd_philox_uniform(seed, stream, (uint64_t)i) >= r->sampling) continue;
    int64_t best = 0; // of the place before
    for (int64_t c = 1; c < classes; c++)
      if (row[c - classes] > row[best - classes]) best = c;
    mixed[i] = (int32_t)best;
  }
  const heed_view view = heed_view_of(mixed, HEED_I32, 2, (int64_t[]){target->batch, n});
  target->ids = heed_tape_input(tape, &view);
  return HEED_OK;
}

static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  recurrent *r = of(learner);
  hd_pairs pairs;
  if (!hd_tape_note(tape, hd_learner_pairs(learner, tape, ids, &pairs))) return NULL;
  const memory m = encode(r, tape, &pairs.source);
  if (r->sampling > 0 && hd_tape_learns(tape)) {
    heed_tape_set_inference(tape, true);
    heed_tape_set_training(tape, false);
    heed_tensor *logits = head(learner, tape, decode(r, tape, &m, pairs.target));
    heed_tape_set_inference(tape, false);
    heed_tape_set_training(tape, true);
    if (!logits || !hd_tape_note(tape, mix(r, tape, logits, &pairs.target))) return NULL;
  }
  return decode(r, tape, &m, pairs.target);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------ */

static heed_status describe(const heed_learner *learner, hd_export *out) {
  const recurrent *r = of(learner);
#define PUT(member, name, kind, outputs, inputs, there)                                                                                    \
  if (r->p.member) hd_export_put(out, name, heed_tensor_value(r->p.member), NULL);
  HD_RECURRENT_PARTS(PUT)
#undef PUT
  out->config = hd_recurrent_config(&r->spec);
  return out->status;
}

const hd_learner_body hd_recurrent_body = {
    .bytes = sizeof(recurrent), .start = start, .make = make, .states = states, .head = head, .describe = describe};
