/* stepper_recurrent.c: how decoding sees a recurrent encoder–decoder: a row is a state and the source it looks at. Sources are read once, all of them at a time; a step of all rows is one
 * step of the operation gru's own loop (op/recurrence.h), so that the numbers are those of the learner. */
#include "model.h"
#include "recurrent.h"
#include "stepper.h"

#include <math.h>

typedef struct recurrent {
  hd_stepper base;
  heed_model *model;
  const hd_recurrent_model *m;
  hd_recurrence r; /* of the decoder */
  hd_recurrence_memory memory;
  int64_t longest_source;
  float *sources;   /* all of what was read: keys, values, and lengths of values, which are there once they were asked for */
  int32_t *lengths; /* [sources] */
  int64_t source_floats, source_count;
  int64_t rows, room;
  float *state, *next_state;           /* [room,H] */
  int64_t *entry, *next_entry, *first; /* [room]; first: 0, 1, ... */
  float *scratch;                      /* of a step of `room` rows */
  int64_t scratch_floats;
  float *value_lengths; /* [places], in sources */
  bool has_value_lengths;
} recurrent;

/* ---- products ---------------------------------------------------------------------------------------------------------------------------- */

/* y [rows,outputs] = x · wᵀ + bias, rows close together. */
static heed_status multiply(heed_context *context, const hd_recurrent_weight *w, const float *bias, const float *x, int64_t rows,
                            int64_t x_stride, float *y) {
  return hd_matrix_product(context, &w->matrix, x, rows, x_stride, bias, y, w->matrix.outputs);
}

static void add_rows(const hd_kernels *kernels, const float *from, int64_t from_stride, int64_t rows, int64_t n, float *to) {
  for (int64_t r = 0; r < rows; r++) kernels->add(to + r * n, from + r * from_stride, n, to + r * n);
}

/* ---- reading sources --------------------------------------------------------------------------------------------------------------------- */

/* What reading needs for a while. */
typedef struct reading {
  int64_t *first; /* [sources] */
  float *x, *gates, *states, *last;
  int64_t floats;
} reading;

static heed_status run_direction(recurrent *t, const heed_sources *sources, const reading *in, bool reverse) {
  heed_context *context = t->base.context;
  const hd_recurrent_model *m = t->m;
  const int64_t w = m->spec.width, tokens = sources->begin[sources->count] - sources->begin[0];
  const hd_recurrent_weight *input = reverse ? &m->reverse_input : &m->encoder_input;
  const hd_recurrent_weight *bias = reverse ? &m->reverse_input_bias : &m->encoder_input_bias;
  const hd_recurrence r = {.width = w,
                           .row_width = 2 * w,
                           .hidden = reverse ? m->reverse_state.loop : m->encoder_state.loop,
                           .bias = reverse ? m->reverse_state_bias.vector : m->encoder_state_bias.vector};
  HD_TRY(multiply(context, input, bias->vector, in->x, tokens, w, in->gates));
  const hd_recurrence_rows rows = {.rows = sources->count,
                                   .steps = t->longest_source,
                                   .reverse = reverse,
                                   .lengths = t->lengths,
                                   .first = in->first,
                                   .x = in->gates,
                                   .out = in->states + (reverse ? w : 0)};
  return hd_recurrence_run(context, &r, NULL, &rows);
}

/* The last states, both directions side by side. */
static void take_last(const recurrent *t, const reading *in) {
  const int64_t w = t->m->spec.width;
  for (int64_t i = 0; i < t->source_count; i++) {
    const float *states = in->states + i * t->longest_source * 2 * w;
    memcpy(in->last + i * 2 * w, states + (t->lengths[i] - 1) * 2 * w, (size_t)w * sizeof *states);
    memcpy(in->last + i * 2 * w + w, states + w, (size_t)w * sizeof *states);
  }
}

/* Keys and values of all sources, into t->sources. */
static heed_status remember(recurrent *t, const reading *in) {
  heed_context *context = t->base.context;
  const hd_recurrent_model *m = t->m;
  const bool fixed = m->spec.score == HEED_LEARNER_NONE;
  const int64_t w = m->spec.width, keys = fixed ? 1 : t->longest_source, places = t->source_count * keys;
  const float *from = fixed ? in->last : in->states;
  float *key = t->sources, *value = t->sources + places * w;
  t->value_lengths = value + places * t->r.value;
  t->has_value_lengths = false;
  if (m->key.matrix.packed) {
    HD_TRY(multiply(context, &m->key, m->key_bias.vector, from, places, 2 * w, key));
  } else {
    memset(key, 0, (size_t)(places * w) * sizeof *key);
    for (int64_t i = 0; i < places && !fixed; i++) hd_kernels_of(context)->add(from + i * 2 * w, from + i * 2 * w + w, w, key + i * w);
  }
  HD_TRY(multiply(context, &m->context, NULL, from, places, 2 * w, value));
  t->memory =
      (hd_recurrence_memory){.entries = t->source_count, .keys = keys, .key = key, .value = value, .lengths = fixed ? NULL : t->lengths};
  return hd_recurrence_memory_open(context, &t->r, &t->memory);
}

static heed_status read_sources(recurrent *t, const heed_sources *sources, reading *in) {
  heed_context *context = t->base.context;
  const hd_recurrent_model *m = t->m;
  const int64_t w = m->spec.width, tokens = sources->begin[sources->count] - sources->begin[0];
  const hd_matrix *table = m->source_embedding.matrix.packed ? &m->source_embedding.matrix : &m->embedding.matrix;
  const bool fixed = m->spec.score == HEED_LEARNER_NONE;
  for (int64_t i = 0; i < tokens; i++) hd_matrix_row(context, table, sources->ids[sources->begin[0] + i], in->x + i * w);
  memset(in->states, 0, (size_t)(sources->count * t->longest_source * 2 * w) * sizeof *in->states);
  HD_TRY(run_direction(t, sources, in, false));
  HD_TRY(run_direction(t, sources, in, true));
  take_last(t, in);
  HD_TRY(remember(t, in));
  HD_TRY(multiply(context, &m->initial, m->initial_bias.vector, in->last + (fixed ? 0 : w), sources->count, 2 * w, t->state));
  hd_kernels_of(context)->activate(HEED_ACTIVATION_TANH, t->state, NULL, sources->count * w, t->state);
  return HEED_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------------ */

static void release_sources(recurrent *t) {
  heed_context *context = t->base.context;
  hd_recurrence_memory_close(context, &t->memory);
  hd_release(context, t->sources, t->source_floats, sizeof *t->sources);
  hd_release(context, t->lengths, t->source_count, sizeof *t->lengths);
  t->sources = NULL;
  t->lengths = NULL;
}

static void release_rows(recurrent *t) {
  heed_context *context = t->base.context;
  const int64_t floats = t->room * t->m->spec.width;
  hd_release(context, t->state, floats, sizeof *t->state);
  hd_release(context, t->next_state, floats, sizeof *t->state);
  hd_release(context, t->entry, t->room, sizeof *t->entry);
  hd_release(context, t->next_entry, t->room, sizeof *t->entry);
  hd_release(context, t->first, t->room, sizeof *t->first);
  t->state = t->next_state = NULL;
  t->entry = t->next_entry = t->first = NULL;
}

static heed_status reserve_rows(recurrent *t, int64_t rows) {
  heed_context *context = t->base.context;
  if (t->state && rows <= t->room) return HEED_OK;
  release_rows(t);
  t->room = rows;
  const int64_t floats = rows * t->m->spec.width;
  HD_TRY(hd_allocate(context, "rows under way", floats, sizeof *t->state, &t->state));
  HD_TRY(hd_allocate(context, "rows under way", floats, sizeof *t->state, &t->next_state));
  HD_TRY(hd_allocate(context, "rows under way", rows, sizeof *t->entry, &t->entry));
  HD_TRY(hd_allocate(context, "rows under way", rows, sizeof *t->entry, &t->next_entry));
  HD_TRY(hd_allocate(context, "rows under way", rows, sizeof *t->first, &t->first));
  for (int64_t i = 0; i < rows; i++) t->first[i] = i;
  return HEED_OK;
}

static heed_status reserve_sources(recurrent *t, const heed_sources *sources) {
  heed_context *context = t->base.context;
  const int64_t w = t->m->spec.width;
  int64_t places;
  release_sources(t);
  t->source_count = sources->count;
  t->longest_source = 0;
  HD_TRY(hd_allocate(context, "sources", sources->count, sizeof *t->lengths, &t->lengths));
  for (int64_t i = 0; i < sources->count; i++) {
    t->lengths[i] = (int32_t)(sources->begin[i + 1] - sources->begin[i]);
    t->longest_source = HD_MAX(t->longest_source, t->lengths[i]);
  }
  HD_REQUIRE(hd_mul(sources->count, t->m->spec.score == HEED_LEARNER_NONE ? 1 : t->longest_source, &places) &&
                 hd_mul(places, w + t->r.value + 1, &t->source_floats),
             context, HEED_E_OVERFLOW, "sources do not fit in memory");
  return hd_allocate(context, "sources", t->source_floats, sizeof *t->sources, &t->sources);
}

/* ---- the stepper ------------------------------------------------------------------------------------------------------------------------- */

static heed_status start(hd_stepper *stepper, const heed_sources *sources) {
  recurrent *t = (recurrent *)stepper;
  heed_context *context = stepper->context;
  const int64_t w = t->m->spec.width, tokens = sources->begin[sources->count] - sources->begin[0];
  reading in = {0};
  heed_status status = HEED_OK;
  t->rows = 0;
  HD_TRY(reserve_rows(t, HD_MAX(stepper->most_rows, sources->count)));
  HD_TRY(reserve_sources(t, sources));
  const int64_t states = sources->count * t->longest_source * 2 * w;
  in.floats = tokens * 4 * w + states + sources->count * 2 * w;
  HD_TRY_DONE(hd_allocate(context, "sources", sources->count, sizeof *in.first, &in.first));
  HD_TRY_DONE(hd_allocate(context, "states of sources", in.floats, sizeof *in.x, &in.x));
  in.gates = in.x + tokens * w;
  in.states = in.gates + tokens * 3 * w;
  in.last = in.states + states;
  for (int64_t i = 0; i < sources->count; i++) {
    in.first[i] = sources->begin[i] - sources->begin[0];
    t->entry[i] = i;
  }
  HD_TRY_DONE(read_sources(t, sources, &in));
  t->rows = sources->count;
done:
  hd_release(context, in.x, in.x ? in.floats : 0, sizeof *in.x);
  hd_release(context, in.first, in.first ? sources->count : 0, sizeof *in.first);
  return status;
}

/* Of rows that came out of the loop, what the head reads. */
static heed_status read_out(const recurrent *t, const float *x, const float *out, float *sum, float *to) {
  heed_context *context = t->base.context;
  const hd_kernels *kernels = hd_kernels_of(context);
  const hd_recurrent_model *m = t->m;
  const int64_t w = m->spec.width, deep = hd_recurrent_deep(&m->spec), rows = t->rows;
  if (!deep) {
    memcpy(to, out, (size_t)(rows * w) * sizeof *to);
    return HEED_OK;
  }
  float *token = sum + rows * deep;
  HD_TRY(multiply(context, &m->deep_state, m->deep_bias.vector, out, rows, t->r.row_width, sum));
  HD_TRY(multiply(context, &m->deep_token, NULL, x, rows, w, token));
  add_rows(kernels, token, deep, rows, deep, sum);
  add_rows(kernels, out + w, t->r.row_width, rows, deep, sum);
  if (m->spec.output == HEED_LEARNER_TANH) kernels->activate(HEED_ACTIVATION_TANH, sum, NULL, rows * w, to);
  else
    for (int64_t i = 0; i < rows * w; i++) to[i] = sum[2 * i + 1] > sum[2 * i] ? sum[2 * i + 1] : sum[2 * i];
  return HEED_OK;
}

static void measure_values(recurrent *t) {
  const hd_kernels *kernels = hd_kernels_of(t->base.context);
  const hd_recurrence_memory *m = &t->memory;
  for (int64_t e = 0; e < m->entries && !t->has_value_lengths; e++)
    for (int64_t j = e * m->keys; j < e * m->keys + t->lengths[e]; j++)
      t->value_lengths[j] = (float)sqrt(kernels->sum_squares(m->value + j * t->r.value, t->r.value));
  t->has_value_lengths = true;
}

/* Each weight times the length of its value, shared out so that they sum to 1. */
static void weigh_by_value(const recurrent *t, int64_t entry, float *to) {
  const float *length = t->value_lengths + entry * t->memory.keys;
  double sum = 0;
  for (int64_t j = 0; j < t->lengths[entry]; j++) sum += (double)(to[j] *= length[j]);
  for (int64_t j = 0; j < t->lengths[entry] && sum > 0; j++) to[j] = (float)((double)to[j] / sum);
}

static void give_weights(recurrent *t, const float *alpha, const hd_step_weights *weights) {
  if (weights->by_value) measure_values(t);
  for (int64_t r = 0; r < t->rows; r++) {
    float *to = weights->to + r * weights->stride;
    memcpy(to, alpha + r * t->memory.keys, (size_t)t->lengths[t->entry[r]] * sizeof *alpha);
    if (weights->by_value) weigh_by_value(t, t->entry[r], to);
  }
}

static int64_t step_floats(const recurrent *t, int64_t rows) {
  return rows * (5 * t->m->spec.width + t->r.row_width + t->memory.keys + 2 * hd_recurrent_deep(&t->m->spec));
}

static heed_status step(hd_stepper *stepper, const int32_t *ids, float *logits, const hd_step_weights *weights) {
  recurrent *t = (recurrent *)stepper;
  heed_context *context = stepper->context;
  const hd_recurrent_model *m = t->m;
  const int64_t w = m->spec.width, rows = t->rows;
  HD_REQUIRE(!weights || stepper->layers > 0, context, HEED_E_UNSUPPORTED, "%s: does not look back at its source: there are no weights",
             stepper->name);
  HD_TRY(hd_grow(context, "a step", &t->scratch, &t->scratch_floats, step_floats(t, rows), sizeof *t->scratch));
  float *x = t->scratch, *gates = x + rows * w, *out = gates + rows * 3 * w, *read = out + rows * t->r.row_width;
  float *alpha = read + rows * w, *sum = alpha + rows * t->memory.keys;
  for (int64_t i = 0; i < rows; i++) hd_matrix_row(context, &m->embedding.matrix, ids[i], x + i * w);
  HD_TRY(multiply(context, &m->input, m->input_bias.vector, x, rows, w, gates));
  const hd_recurrence_rows one = {.rows = rows,
                                  .steps = 1,
                                  .first = t->first,
                                  .x = gates,
                                  .initial = t->state,
                                  .out = out,
                                  .alpha = weights ? alpha : NULL,
                                  .entry = t->entry};
  HD_TRY(hd_recurrence_run(context, &t->r, &t->memory, &one));
  for (int64_t i = 0; i < rows; i++) memcpy(t->state + i * w, out + i * t->r.row_width, (size_t)w * sizeof *out);
  if (weights) give_weights(t, alpha, weights);
  HD_TRY(read_out(t, x, out, sum, read));
  return multiply(context, &m->head, m->head_bias.vector, read, rows, w, logits);
}

static heed_status choose(hd_stepper *stepper, int64_t rows, const int32_t *parents) {
  recurrent *t = (recurrent *)stepper;
  const int64_t w = t->m->spec.width;
  HD_REQUIRE(rows <= t->room, stepper->context, HEED_E_ARGUMENT, "%s: more rows than were announced (got %lld, allowed %lld)",
             stepper->name, (long long)rows, (long long)t->room);
  for (int64_t i = 0; i < rows; i++) {
    memcpy(t->next_state + i * w, t->state + parents[i] * w, (size_t)w * sizeof *t->state);
    t->next_entry[i] = t->entry[parents[i]];
  }
  float *state = t->state;
  int64_t *entry = t->entry;
  t->state = t->next_state;
  t->next_state = state;
  t->entry = t->next_entry;
  t->next_entry = entry;
  t->rows = rows;
  return HEED_OK;
}

static void free_stepper(hd_stepper *stepper) {
  recurrent *t = (recurrent *)stepper;
  heed_context *context = stepper->context;
  release_sources(t);
  release_rows(t);
  hd_release(context, t->scratch, t->scratch_floats, sizeof *t->scratch);
  heed_model_free(t->model);
  hd_release(context, t, 1, sizeof *t);
}

static heed_status again(const hd_stepper *stepper, heed_context *context, hd_stepper **out) {
  return hd_stepper_recurrent(context, ((const recurrent *)stepper)->model, out);
}

heed_status hd_stepper_recurrent(heed_context *context, heed_model *model, hd_stepper **out) {
  static const hd_stepper_kind kind = {start, step, choose, free_stepper, again};
  hd_stepper base;
  const hd_recurrent_model *m = model->recurrent;
  const hd_recurrent_spec *s = &m->spec;
  const bool attends = s->score != HEED_LEARNER_NONE;
  recurrent *t;
  *out = NULL;
  HD_TRY(hd_stepper_begin(context, model, &kind, &base));
  base.sources = s->source_vocabulary ? s->source_vocabulary : s->vocabulary;
  base.targets = s->vocabulary;
  base.longest_source = s->source;
  base.longest = s->context;
  base.layers = attends ? 1 : 0;
  base.heads = attends ? 1 : 0;
  HD_TRY(hd_allocate(context, "a stepper", 1, sizeof *t, &t));
  *t = (recurrent){.base = base,
                   .model = heed_model_retain(model),
                   .m = m,
                   .r = {.width = s->width,
                         .row_width = s->width + hd_recurrent_deep(s),
                         .hidden = m->state.loop,
                         .projected = m->query.loop,
                         .bias = m->state_bias.vector,
                         .query = s->width,
                         .value = hd_recurrent_value(s),
                         .w = m->score.vector,
                         .scale = s->score == HEED_LEARNER_SCALED ? (float)(1 / sqrt((double)s->width)) : 1}};
  *out = &t->base;
  return HEED_OK;
}
