/* learner.c: what every learner does: making and counting parameters, checking ids, logits, loss. What it is made of is its body's affair. */
#include "learner.h"

#include "../tensor/tensor.h"

#include <math.h>
#include <stdio.h>

const hd_learner_body *hd_learner_body_of(heed_learner_kind kind) {
  static const hd_learner_body *const bodies[] = {[HEED_LEARNER_GPT] = &hd_transformer_body,
                                                  [HEED_LEARNER_LLAMA] = &hd_transformer_body,
                                                  [HEED_LEARNER_ENCODER] = &hd_transformer_body,
                                                  [HEED_LEARNER_SEQ2SEQ] = &hd_transformer_body,
                                                  [HEED_LEARNER_RECURRENT] = &hd_recurrent_body};
  const int i = (int)kind;
  return i >= 0 && i < HD_COUNT(bodies) ? bodies[i] : NULL;
}

/* ---- parameters ------------------------------------------------------------------------------------------------------------------ */

heed_tensor *hd_make_part(hd_maker *m, const char *part, const char *suffix, int ndim, const int64_t *dim, heed_initial kind, double gain) {
  heed_tensor *out = NULL;
  char name[HD_PARAMETER_NAME_LENGTH];
  const char *of = m->of ? m->of : "";
  if (m->status != HEED_OK) return NULL;
  if (m->layer >= 0) snprintf(name, sizeof name, "%slayers.%lld.%s%s", of, (long long)m->layer, part, suffix);
  else snprintf(name, sizeof name, "%s%s%s", of, part, suffix);
  const hd_part made = {.name = name, .part = part, .layer = m->layer, .ndim = ndim, .dim = dim, .kind = kind, .gain = gain};
  m->status = m->make(m, &made, &out);
  m->made++;
  return out;
}

static const double usual_spread = 0.02; // Radford et al. 2019

heed_tensor *hd_make_matrix(hd_maker *m, const char *part, int64_t outputs, int64_t inputs, double scale) {
  const int64_t dim[] = {outputs, inputs};
  if (m->xavier && m->spread == 0) return hd_make_part(m, part, ".weight", 2, dim, HEED_INITIAL_XAVIER_UNIFORM, scale);
  return hd_make_part(m, part, ".weight", 2, dim, HEED_INITIAL_NORMAL, scale * (m->spread > 0 ? m->spread : usual_spread));
}

heed_tensor *hd_make_bias(hd_maker *m, bool has, const char *part, int64_t n) {
  return has ? hd_make_part(m, part, ".bias", 1, &n, HEED_INITIAL_CONSTANT, 0) : NULL;
}

heed_nn_norm hd_make_norm(hd_maker *m, const hd_transformer_spec *spec, const char *part) {
  heed_nn_norm out = {.rms = spec->norm == HD_NORM_RMS, .epsilon = spec->norm_eps};
  out.weight = hd_make_part(m, part, ".weight", 1, &spec->width, HEED_INITIAL_CONSTANT, 1);
  out.bias = hd_make_bias(m, spec->norm == HD_NORM_LAYER && !spec->norm_unbiased, part, spec->width);
  return out;
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
  hd_maker counter = {.learner = learner, .make = count, .layer = -1};
  hd_maker m = {.learner = learner, .make = hd_learner_begin_by_chance, .layer = -1, .seed = options->seed};
  m.spread = options->spread;
  learner->body->make(&counter);
  HD_TRY(counter.status);
  HD_TRY(hd_memory_check(learner->context, "the model with its gradients", counter.bytes));
  learner->body->make(&m);
  return m.status;
}

/* ---- making one ------------------------------------------------------------------------------------------------------------------- */

heed_status hd_learner_open(heed_context *context, const hd_learner_body *body, heed_learner **out) {
  heed_learner *learner;
  HD_TRY(hd_allocate(context, "a learner", 1, body->bytes, &learner));
  memset((void *)learner, 0, body->bytes);
  learner->context = context;
  learner->body = body;
  hd_arena_init(&learner->arena, context);
  *out = learner;
  return heed_parameters_new(context, &learner->parameters);
}

/* What holds for every kind. */
static heed_status check_options(heed_context *context, const heed_learner_options *o) {
  HD_REQUIRE(hd_learner_body_of(o->kind), context, HEED_E_ARGUMENT, "kind: there is no learner %d", (int)o->kind);
  HD_REQUIRE(o->dropout >= 0 && o->dropout < 1, context, HEED_E_ARGUMENT, "dropout: got %g, allowed from 0 to below 1", o->dropout);
  HD_REQUIRE(o->smoothing >= 0 && o->smoothing < 1, context, HEED_E_ARGUMENT, "label smoothing: got %g, allowed from 0 to below 1",
             o->smoothing);
  HD_REQUIRE(!o->has_ends || (o->start >= 0 && o->start < o->vocabulary && o->end >= 0 && o->end < o->vocabulary), context, HEED_E_ARGUMENT,
             "start and end: got %d and %d, allowed 0 to %lld", (int)o->start, (int)o->end, (long long)o->vocabulary - 1);
  HD_REQUIRE(o->spread >= 0 && o->spread < INFINITY, context, HEED_E_ARGUMENT, "spread: got %g, allowed from 0", o->spread);
  return HEED_OK;
}

heed_status heed_learner_new(heed_context *context, const heed_learner_options *given, heed_learner **out) {
  heed_learner_options options = {.size = sizeof options};
  heed_learner *learner = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out && given, context, HEED_E_ARGUMENT, "heed_learner_new: null");
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_learner_options", given, &options, sizeof options));
  HD_TRY(check_options(context, &options));
  heed_status status = hd_learner_open(context, hd_learner_body_of(options.kind), &learner);
  if (status == HEED_OK) {
    learner->dropout = options.dropout;
    learner->smoothing = options.smoothing;
    learner->has_ends = options.has_ends;
    learner->start = options.start;
    learner->end = options.end;
    status = learner->body->start(learner, &options);
  }
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
  hd_release(learner->context, learner, 1, learner->body->bytes);
}

heed_parameters *heed_learner_parameters(const heed_learner *learner) { return learner ? learner->parameters : NULL; }

/* ---- rows of ids ----------------------------------------------------------------------------------------------------------------- */

enum { PADDING = -1 };

static heed_status check_ids(heed_learner *learner, const heed_tensor *ids) {
  heed_view view = heed_tensor_value(ids);
  const int64_t source = learner->source;
  HD_REQUIRE(ids && view.type == HEED_I32 && view.ndim == 2, learner->context, HEED_E_SHAPE, "ids: rank %d of %s, allowed i32 [B,n]",
             view.ndim, heed_type_name(view.type));
  HD_REQUIRE(source == 0 || view.dim[1] > source, learner->context, HEED_E_SHAPE,
             "ids: %lld columns, allowed from %lld on: the source has %lld", (long long)view.dim[1], (long long)source + 1,
             (long long)source);
  HD_REQUIRE(view.dim[1] - source <= learner->positions, learner->context, HEED_E_SHAPE, "ids: %lld positions, allowed %lld",
             (long long)(view.dim[1] - source), (long long)learner->positions);
  return HEED_OK;
}

/* Tokens before the padding of a row of n ids. */
static heed_status find_length(heed_learner *learner, int64_t row, const int32_t *ids, int64_t n, int64_t *length) {
  for (*length = 0; *length < n && ids[*length] != PADDING; ++*length) {}
  for (int64_t i = *length; i < n; i++)
    HD_REQUIRE(ids[i] == PADDING, learner->context, HEED_E_ARGUMENT, "ids: row %lld has a token behind its padding (place %lld)",
               (long long)row, (long long)i);
  return HEED_OK;
}

static heed_tensor *part_of(heed_tape *tape, heed_tensor *t, int64_t begin, int64_t columns) {
  heed_view view = heed_tensor_value(t);
  if (begin == 0 && columns == view.dim[1]) return t;
  view.data = (int32_t *)view.data + begin;
  view.dim[1] = columns;
  return heed_tape_input(tape, &view);
}

heed_status hd_learner_rows(heed_learner *learner, heed_tape *tape, heed_tensor *ids, int64_t begin, int64_t end, bool trim,
                            hd_id_rows *out) {
  const heed_view view = heed_tensor_value(ids);
  const int64_t batch = view.dim[0], n = end - begin;
  int64_t *lengths, longest = 0, shortest = n;
  int32_t *copy;
  *out = (hd_id_rows){.batch = batch, .columns = n};
  if (hd_tape_plans(tape)) {
    out->ids = part_of(tape, ids, begin, n);
    return HEED_OK;
  }
  const int32_t *from = (const int32_t *)view.data + begin;
  HD_TRY(hd_tape_keep(tape, "lengths of rows", batch, sizeof *lengths, &lengths));
  for (int64_t r = 0; r < batch; r++) {
    HD_TRY(find_length(learner, r, from + r * view.dim[1], n, &lengths[r]));
    longest = HD_MAX(longest, lengths[r]);
    shortest = HD_MIN(shortest, lengths[r]);
  }
  if (trim) out->columns = HD_MAX(longest, 1);
  if (shortest == out->columns) {
    out->ids = part_of(tape, ids, begin, out->columns);
    return HEED_OK;
  }
  HD_TRY(hd_tape_keep(tape, "a batch", batch * out->columns, sizeof *copy, &copy)); // zeros
  for (int64_t r = 0; r < batch; r++) memcpy(copy + r * out->columns, from + r * view.dim[1], (size_t)lengths[r] * sizeof *copy);
  const heed_view whole = heed_view_of(copy, HEED_I32, 2, (int64_t[]){batch, out->columns});
  out->ids = heed_tape_input(tape, &whole);
  out->lengths = lengths;
  return HEED_OK;
}

heed_status hd_learner_pairs(heed_learner *learner, heed_tape *tape, heed_tensor *ids, hd_pairs *out) {
  HD_TRY(hd_learner_rows(learner, tape, ids, 0, learner->source, true, &out->source));
  return hd_learner_rows(learner, tape, ids, learner->source, heed_tensor_value(ids).dim[1], true, &out->target);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------ */

static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  if (!learner || !tape || heed_tape_status(tape) != HEED_OK || !hd_tape_note(tape, check_ids(learner, ids))) return NULL;
  return learner->body->states(learner, tape, ids);
}

/* A pass over all layers, and what it gives. */
typedef struct pass {
  heed_learner *learner;
  heed_tape *tape;
  heed_tensor *ids, *targets, *out;
} pass;

static void find_logits(void *argument) {
  pass *p = argument;
  heed_tensor *x = states(p->learner, p->tape, p->ids);
  p->out = x ? p->learner->body->head(p->learner, p->tape, x) : NULL;
}

heed_tensor *heed_learner_logits(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  pass p = {.learner = learner, .tape = tape, .ids = ids};
  if (learner) hd_with_crew(learner->context, find_logits, &p);
  return p.out;
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

static heed_tensor *cross_entropy(heed_tape *tape, heed_tensor *logits, heed_tensor *targets, double smoothing) {
  const heed_cross_entropy_options options = {.size = sizeof options, .smoothing = smoothing};
  return heed_tape_cross_entropy(tape, logits, targets, &options);
}

static heed_tensor *loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *x, const asked *a) {
  const heed_view rows = heed_view_of(a->rows, HEED_I32, 1, &a->count), targets = heed_view_of(a->targets, HEED_I32, 1, &a->count);
  x = heed_tape_reshape(tape, x, 2, (int64_t[]){a->all, learner->width});
  x = heed_tape_gather(tape, x, heed_tape_input(tape, &rows));
  return cross_entropy(tape, learner->body->head(learner, tape, x), heed_tape_input(tape, &targets), learner->smoothing);
}

/* Whether a target in columns [begin, end) is asked for. */
static bool asks(const heed_view *targets, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < targets->dim[0]; r++)
    for (int64_t i = begin; i < end; i++)
      if (((const int32_t *)targets->data)[r * targets->dim[1] + i] >= 0) return true;
  return false;
}

/* The targets of rows x that the head reads, or of its logits: where a sequence has one answer, the first column; otherwise those behind the source, as many as x has. */
static heed_tensor *targets_of(heed_learner *learner, heed_tape *tape, const heed_tensor *x, heed_tensor *targets) {
  heed_view view = heed_tensor_value(targets);
  const int64_t begin = learner->source;
  if (!x || !targets || view.ndim != 2 || view.type != HEED_I32) return targets;
  if (x->ndim == 2) {
    view.ndim = 1;
    return heed_tape_input(tape, &view);
  }
  const int64_t columns = x->dim[1], end = begin + columns;
  if (begin == 0 || view.dim[1] < end) return targets;
  if (!hd_tape_plans(tape) && (asks(&view, 0, begin) || asks(&view, end, view.dim[1]))) {
    hd_tape_note(tape, hd_fail(learner->context, HEED_E_ARGUMENT, "targets: something is asked for where the decoder has no token"));
    return NULL;
  }
  return part_of(tape, targets, begin, columns);
}

heed_tensor *hd_learner_loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *logits, heed_tensor *targets) {
  return cross_entropy(tape, logits, targets_of(learner, tape, logits, targets), 0);
}

/* Where few places are asked for, as of masked tokens, the head is applied to those alone: it is a matrix as long as the vocabulary. */
static heed_tensor *loss_at(heed_learner *learner, heed_tape *tape, heed_tensor *ids, heed_tensor *targets) {
  heed_tensor *x = states(learner, tape, ids), *loss = NULL;
  asked a = {0};
  if (!x) return NULL;
  targets = targets_of(learner, tape, x, targets);
  if (heed_tape_status(tape) != HEED_OK) return NULL;
  // A plan provides for all places.
  if (!hd_tape_plans(tape) && !hd_tape_note(tape, find_asked(learner->context, targets, &a))) return NULL;
  if (a.count > 0 && 2 * a.count < a.all) loss = loss_of(learner, tape, x, &a);
  else loss = cross_entropy(tape, learner->body->head(learner, tape, x), targets, learner->smoothing);
  hd_release(learner->context, a.rows, a.all, 2 * sizeof *a.rows);
  return loss;
}

static void find_loss(void *argument) {
  pass *p = argument;
  p->out = loss_at(p->learner, p->tape, p->ids, p->targets);
}

heed_tensor *heed_learner_loss(heed_learner *learner, heed_tape *tape, heed_tensor *ids, heed_tensor *targets) {
  pass p = {.learner = learner, .tape = tape, .ids = ids, .targets = targets};
  if (learner) hd_with_crew(learner->context, find_loss, &p);
  return p.out;
}
