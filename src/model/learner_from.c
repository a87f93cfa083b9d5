/* learner_from.c: a learner that begins with the weights of a loaded model, part by part under the learner's names. What is frozen stays in the model's packed matrices. */
#include "learner.h"
#include "model.h"

#include "../base/file.h"
#include "../tensor/tensor.h"

#include <fnmatch.h>
#include <math.h>

typedef struct source {
  const hd_matrix *matrix; /* rows of all parts, one below the other */
  int parts;
  const float *vector;
} source;

/* ---- where a parameter lies in a model --------------------------------------------------------------------------------------- */

static source of_stack(const hd_stack *stack, bool weight) {
  return weight ? (source){stack->part, stack->parts, NULL} : (source){.vector = stack->bias};
}

static source of_norm(const hd_norm *norm, bool weight) { return (source){.vector = weight ? norm->weight : norm->bias}; }

static source of_matrix(const hd_matrix *matrix) { return (source){matrix, 1, NULL}; }

static source find_in(const heed_model *model, const hd_part *p) {
  static const struct {
    const char *part;
    size_t at;
    bool norm;
  } of_layer[] = {{"attention_norm", offsetof(hd_layer, attention_norm), true},
                  {"qkv", offsetof(hd_layer, qkv), false},
                  {"output", offsetof(hd_layer, output), false},
                  {"feed_forward_norm", offsetof(hd_layer, feed_forward_norm), true},
                  {"up", offsetof(hd_layer, up), false},
                  {"down", offsetof(hd_layer, down), false}};
  const bool weight = hd_ends_with(p->name, ".weight");
  for (int64_t i = 0; p->layer >= 0 && i < HD_COUNT(of_layer); i++) {
    const void *at = (const char *)&model->layers[p->layer] + of_layer[i].at;
    if (!strcmp(of_layer[i].part, p->part)) return of_layer[i].norm ? of_norm(at, weight) : of_stack(at, weight);
  }
  if (!strcmp(p->part, "embedding")) return of_matrix(&model->embedding);
  if (!strcmp(p->part, "position")) return of_matrix(&model->position);
  if (!strcmp(p->part, "embedding_norm")) return of_norm(&model->embedding_norm, weight);
  if (!strcmp(p->part, "final_norm")) return of_norm(&model->final_norm, weight);
  if (!strcmp(p->part, "head_dense") || !strcmp(p->part, "pooler")) return of_stack(&model->head_dense, weight);
  if (!strcmp(p->part, "head_norm")) return of_norm(&model->head_norm, weight);
  return weight ? of_matrix(model->head) : (source){.vector = model->head_bias};
}

/* ---- making parameters ------------------------------------------------------------------------------------------------------- */

typedef struct beginning {
  heed_model *model;
  const heed_learner_from_options *options;
  bool *used; /* [freeze_count] patterns that something fits */
} beginning;

/* Positions are numbers of the learner's own: they are sliced, and take in the first row of the segments, which every token gets. */
static bool is_position(const hd_part *p) { return !strcmp(p->part, "position"); }
static bool is_shared(const hd_part *p, const source *from) { return from->matrix && !is_position(p); }

static bool is_frozen(const beginning *b, const char *name) {
  bool frozen = false;
  for (int64_t i = 0; i < b->options->freeze_count; i++) {
    if (fnmatch(b->options->freeze[i], name, 0) != 0) continue;
    b->used[i] = frozen = true;
  }
  return frozen;
}

/* A new head begins by chance: nothing of the model is there. */
static bool is_new(const beginning *b, const hd_part *p) {
  if (b->options->labels == 0) return false;
  return !strcmp(p->part, "head") || (!strcmp(p->part, "pooler") && b->model->spec.head != HEED_HEAD_CLASS);
}

static source find(const beginning *b, const hd_part *p) { return is_new(b, p) ? (source){0} : find_in(b->model, p); }

static int64_t outputs_of(const source *from) {
  int64_t outputs = 0;
  for (int i = 0; i < from->parts; i++) outputs += from->matrix[i].outputs;
  return outputs;
}

static int64_t bytes_of(const source *from) {
  int64_t bytes = 0;
  for (int i = 0; i < from->parts; i++) bytes += from->matrix[i].bytes;
  return bytes;
}

static heed_status count(hd_maker *m, const hd_part *part, heed_tensor **out) {
  const beginning *b = m->user;
  const source from = find(b, part);
  const bool frozen = is_frozen(b, part->name);
  *out = NULL;
  if (frozen && is_shared(part, &from)) return HEED_OK; // the model has it
  m->bytes += part->dim[0] * (part->ndim > 1 ? part->dim[1] : 1) * (frozen ? 1 : 2) * (int64_t)sizeof(float);
  return HEED_OK;
}

static void add_segment(heed_context *context, const heed_model *model, float *position, float *row) {
  hd_matrix_row(context, &model->segment, 0, row);
  for (int64_t i = 0; i < model->spec.context * model->spec.width; i++) position[i] += row[i % model->spec.width];
}

static heed_status copy(heed_context *context, const beginning *b, const hd_part *p, const source *from, heed_tensor *t) {
  float *to = hd_value(t), *row;
  if (from->vector) memcpy(to, from->vector, (size_t)hd_count(t) * sizeof *to);
  for (int i = 0; i < from->parts; i++) {
    hd_matrix_rows(context, &from->matrix[i], 0, from->matrix[i].outputs, to);
    to += from->matrix[i].outputs * from->matrix[i].inputs;
  }
  if (!is_position(p) || b->model->spec.segments == 0) return HEED_OK;
  HD_TRY(hd_allocate(context, "a row", t->dim[1], sizeof *row, &row));
  add_segment(context, b->model, hd_value(t), row);
  hd_release(context, row, t->dim[1], sizeof *row);
  return HEED_OK;
}

static heed_status begin_with_model(hd_maker *m, const hd_part *part, heed_tensor **out) {
  const beginning *b = m->user;
  heed_learner *learner = m->learner;
  const source from = find(b, part);
  const heed_parameter_options how = {.size = sizeof how, .frozen = is_frozen(b, part->name)};
  if (is_new(b, part)) {
    HD_REQUIRE(!how.frozen, learner->context, HEED_E_ARGUMENT, "freeze: %s is new, so it has to learn", part->name);
    return hd_learner_begin_by_chance(m, part, out);
  }
  HD_REQUIRE(from.matrix || from.vector, learner->context, HEED_E_UNSUPPORTED, "%s: the model has no %s", b->model->path, part->name);
  HD_REQUIRE(strcmp(part->part, "qkv") != 0 || !from.matrix || outputs_of(&from) == part->dim[0], learner->context, HEED_E_UNSUPPORTED,
             "%s: layer %lld cannot take or leave LSH attention, in which queries are the keys: it was trained otherwise", b->model->path,
             (long long)part->layer);
  if (how.frozen && is_shared(part, &from)) {
    if (!learner->model) learner->model = heed_model_retain(b->model);
    return hd_parameters_add_stored(learner->parameters, part->name, part->dim, from.matrix, from.parts, bytes_of(&from), out);
  }
  HD_TRY(heed_parameters_add(learner->parameters, part->name, part->ndim, part->dim, &how, out));
  return copy(learner->context, b, part, &from, *out);
}

static heed_status make_parameters(heed_learner *learner, beginning *b) {
  heed_context *context = learner->context;
  hd_maker counter = {.learner = learner, .make = count, .user = b, .layer = -1};
  hd_maker m = {.learner = learner, .make = begin_with_model, .user = b, .layer = -1, .seed = b->options->seed};
  learner->body->make(&counter);
  for (int64_t i = 0; i < b->options->freeze_count; i++)
    HD_REQUIRE(b->used[i], context, HEED_E_ARGUMENT,
               "freeze: no parameter is called %s (they are called embedding.weight, layers.0.qkv.weight, ...)", b->options->freeze[i]);
  HD_TRY(hd_memory_check(context, "the model with its gradients", counter.bytes));
  learner->body->make(&m);
  HD_TRY(m.status);
  HD_REQUIRE(heed_parameters_learning(learner->parameters) > 0, context, HEED_E_ARGUMENT, "freeze: nothing is left that learns");
  return HEED_OK;
}

/* ---- which models ------------------------------------------------------------------------------------------------------------ */

/* Only what can be saved again is taken. */
static heed_status check(heed_context *context, const heed_model *model, const hd_transformer_spec *spec) {
  HD_REQUIRE(!model->recurrent, context, HEED_E_UNSUPPORTED, "%s: cannot be trained further: it is recurrent", model->path);
  HD_REQUIRE(!spec->cross, context, HEED_E_UNSUPPORTED, "%s: cannot be trained further: it is an encoder–decoder", model->path);
  for (int64_t i = 0; i < spec->layers; i++) {
    const hd_positions positions = hd_spec_positions_of(spec, i);
    const bool learned = positions == HD_POSITIONS_LEARNED && spec->position_offset == 0;
    HD_REQUIRE(hd_positions_rotate(positions) || learned || positions == HD_POSITIONS_NONE, context, HEED_E_UNSUPPORTED,
               "%s: cannot be trained further: its positions are neither rotary nor learned ones that begin at 0", model->path);
  }
  bool usual = !hd_spec_rotates(spec) || (spec->rotary.kind == HEED_ROPE_PLAIN && spec->rotary_dim == spec->head_dim);
  for (int64_t i = 0; usual && hd_spec_rotates(spec) && i < spec->rotary_dim / 2; i++)
    usual = model->turns.frequency[i] == hd_rope_frequency(spec->rotary.theta, spec->rotary_dim, i);
  HD_REQUIRE(usual, context, HEED_E_UNSUPPORTED,
             "%s: cannot be trained: its rotary positions are scaled or partial, which heed does not write", model->path);
  for (int64_t i = 0; i < spec->layers; i++)
    HD_REQUIRE(spec->window == 0 || !hd_spec_is_full(spec, i), context, HEED_E_UNSUPPORTED,
               "%s: cannot be trained: some of its layers have a window, others none", model->path);
  HD_REQUIRE(hd_family_for(spec, NULL), context, HEED_E_UNSUPPORTED,
             "%s: cannot be trained: no configuration that heed writes says all of it", model->path);
  return HEED_OK;
}

static heed_status give_head(heed_context *context, const heed_model *model, const heed_learner_from_options *options,
                             hd_transformer_spec *spec) {
  if (options->labels == 0) return HEED_OK;
  HD_REQUIRE(spec->bidirectional, context, HEED_E_ARGUMENT, "%s: labels are for encoders, and this is a decoder", model->path);
  HD_REQUIRE(options->head == HEED_HEAD_LABELS || options->head == HEED_HEAD_CLASS, context, HEED_E_ARGUMENT,
             "head: only one for labels or a class has labels");
  HD_REQUIRE(options->labels > 0 && options->labels <= HD_MAX_LABELS, context, HEED_E_ARGUMENT, "labels: got %lld, allowed 1 to %d",
             (long long)options->labels, HD_MAX_LABELS);
  spec->head = options->head;
  spec->labels = options->labels;
  return HEED_OK;
}

heed_status heed_learner_from_model(heed_context *context, heed_model *model, const heed_learner_from_options *given, heed_learner **out) {
  heed_learner_from_options options = {.size = sizeof options};
  heed_learner *learner = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(model && out, context, HEED_E_ARGUMENT, "heed_learner_from_model: null");
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_learner_from_options", given, &options, sizeof options));
  HD_REQUIRE(options.dropout >= 0 && options.dropout < 1, context, HEED_E_ARGUMENT, "dropout: got %g, allowed from 0 to below 1",
             options.dropout);
  HD_REQUIRE(options.freeze_count >= 0 && (options.freeze || options.freeze_count == 0), context, HEED_E_ARGUMENT,
             "heed_learner_from_model: freeze is null");
  hd_transformer_spec spec = model->spec;
  spec.segments = 0; // their first row goes into the positions
  HD_TRY(give_head(context, model, &options, &spec));
  HD_TRY(hd_kinds_set(context, options.attention, &spec));
  HD_TRY(hd_kinds_check(context, &spec));
  HD_TRY(check(context, model, &spec));
  beginning b = {.model = model, .options = &options};
  HD_TRY(hd_allocate(context, "patterns", options.freeze_count, sizeof *b.used, &b.used));
  for (int64_t i = 0; i < options.freeze_count; i++) b.used[i] = false;
  heed_status status = hd_learner_open(context, &hd_transformer_body, &learner);
  if (status == HEED_OK) {
    learner->dropout = options.dropout;
    status = hd_transformer_start(hd_transformer(learner), &spec, NULL);
  }
  if (status == HEED_OK) status = hd_transformer_name_labels(hd_transformer(learner), options.labels ? options.label_names : model->labels);
  if (status == HEED_OK) status = make_parameters(learner, &b);
  hd_release(context, b.used, options.freeze_count, sizeof *b.used);
  if (status == HEED_OK) *out = learner;
  else heed_learner_free(learner);
  return status;
}
