/* stepper_transformer.c: how decoding sees a transformer with encoder and decoder: its rows are those of branches (attn/branches.h), and each looks at one source of the cross cache. */
#include "session.h"
#include "stepper.h"

#include <math.h>

typedef struct transformer {
  hd_stepper base;
  heed_model *model;
  hd_branches *branches;
  heed_cache *cross;
  int64_t room, sources; /* rows of the one, sources of the other */
  hd_scratch scratch, encoder_scratch;
  hd_span *spans, *next; /* [room] */
  int64_t count;
} transformer;

/* ---- beginning ----------------------------------------------------------------------------------------------------------------------- */

static void release_rows(transformer *t) {
  heed_context *context = t->base.context;
  hd_branches_free(t->branches);
  hd_release(context, t->spans, t->room, sizeof *t->spans);
  hd_release(context, t->next, t->room, sizeof *t->next);
  t->branches = NULL;
  t->spans = t->next = NULL;
}

/* Room for so many rows; what rows there were is forgotten where that takes other branches. */
static heed_status reserve_rows(transformer *t, int64_t rows) {
  heed_context *context = t->base.context;
  const hd_transformer_spec *spec = &t->model->spec;
  if (t->branches && rows <= t->room) return HEED_OK;
  release_rows(t);
  t->room = rows;
  HD_TRY(hd_branches_new(context, spec->layers, spec->kv_heads, spec->head_dim, rows, &t->branches));
  HD_TRY(hd_allocate(context, "rows under way", rows, sizeof *t->spans, &t->spans));
  return hd_allocate(context, "rows under way", rows, sizeof *t->next, &t->next);
}

static heed_status reserve_sources(transformer *t, int64_t sources) {
  if (t->cross && sources <= t->sources) return HEED_OK;
  heed_cache_free(t->cross);
  t->cross = NULL;
  t->sources = sources;
  return hd_stack_cache_new(t->base.context, t->model, sources, &t->cross);
}

static heed_status read_sources(transformer *t, const heed_sources *sources) {
  heed_context *context = t->base.context;
  hd_span *spans;
  HD_TRY(hd_allocate(context, "sources", sources->count, sizeof *spans, &spans));
  for (int64_t i = 0; i < sources->count; i++) spans[i] = (hd_span){.rows = sources->begin[i + 1] - sources->begin[i], .source = i};
  const hd_pass pass = {.context = context,
                        .model = t->model,
                        .scratch = &t->encoder_scratch,
                        .ids = sources->ids + sources->begin[0],
                        .spans = spans,
                        .span_count = sources->count,
                        .rows = sources->begin[sources->count] - sources->begin[0]};
  heed_status status = hd_sources_run(&pass, t->cross);
  hd_release(context, spans, sources->count, sizeof *spans);
  return status;
}

static heed_status start(hd_stepper *stepper, const heed_sources *sources) {
  transformer *t = (transformer *)stepper;
  t->count = 0;
  HD_TRY(reserve_rows(t, HD_MAX(stepper->most_rows, sources->count)));
  HD_TRY(reserve_sources(t, sources->count));
  HD_TRY(read_sources(t, sources));
  hd_branches_begin(t->branches, sources->count);
  for (; t->count < sources->count; t->count++) t->spans[t->count] = (hd_span){.rows = 1, .source = t->count};
  return HEED_OK;
}

/* ---- a step -------------------------------------------------------------------------------------------------------------------------- */

static double length_of_value(const hd_source *v, int64_t entry, int64_t head, int64_t key, float *scratch) {
  int64_t stride;
  double sum = 0;
  const float *row = v->rows(v, entry, head, key, 1, scratch, &stride);
  for (int64_t i = 0; i < v->columns; i++) sum += (double)row[i] * (double)row[i];
  return sqrt(sum);
}

/* Weights [each,keys] of a head of an entry, times the lengths of `length` values; rows sum to 1 again. */
static heed_status weigh_by_value(const hd_pass *pass, const hd_source *v, int64_t entry, int64_t head, int64_t each, int64_t length,
                                  int64_t keys, float *weights) {
  enum { TILE = 64 }; // rows that a source may write to scratch
  double *lengths;
  float *scratch;
  HD_TRY(hd_allocate(pass->context, "lengths of values", length, sizeof *lengths, &lengths));
  heed_status status = hd_allocate(pass->context, "a value", TILE * v->columns, sizeof *scratch, &scratch);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < length; i++) lengths[i] = length_of_value(v, entry, head, i, scratch);
    for (float *row = weights; row < weights + each * keys; row += keys) {
      double sum = 0;
      for (int64_t i = 0; i < length; i++) sum += (double)row[i] * lengths[i];
      for (int64_t i = 0; i < length && sum > 0; i++) row[i] = (float)((double)row[i] * lengths[i] / sum);
    }
    hd_release(pass->context, scratch, TILE * v->columns, sizeof *scratch);
  }
  hd_release(pass->context, lengths, length, sizeof *lengths);
  return status;
}

/* The weights of a call of cross-attention, added to what is asked for. */
static heed_status add_weights(void *user, const hd_pass *pass, const hd_mixing *mixing) {
  const hd_step_weights *asked = user;
  const hd_transformer_spec *spec = &pass->model->spec;
  if (mixing->stage != HEED_STAGE_CROSS || (asked->layer >= 0 && asked->layer != mixing->layer)) return HEED_OK;
  const int64_t entries = mixing->q.dim[0], each = mixing->q.dim[2], keys = mixing->k->keys, heads = asked->head >= 0 ? 1 : spec->heads;
  const float share = 1 / (float)(heads * (asked->layer >= 0 ? 1 : spec->layers));
  const int64_t floats = entries * heads * each * keys;
  float *found;
  HD_TRY(hd_allocate(pass->context, "weights of a step", floats, sizeof *found, &found));
  const heed_view view = heed_view_of(found, HEED_F32, 4, (int64_t[]){entries, heads, each, keys});
  const heed_attention_rows rows = {.size = sizeof rows, .n_heads = heads, .heads = asked->head >= 0 ? &asked->head : NULL};
  heed_status status = hd_attention_rows(pass->context, mixing->attention, NULL, &mixing->q, mixing->k, &rows, &view);
  for (int64_t e = 0; e < entries && status == HEED_OK; e++) {
    const int64_t length = mixing->attention->key_lengths ? mixing->attention->key_lengths[e] : keys;
    for (int64_t h = 0; h < heads && status == HEED_OK; h++) {
      float *of_head = found + (e * heads + h) * each * keys;
      const int64_t kv = (asked->head >= 0 ? asked->head : h) / (spec->heads / spec->kv_heads);
      if (asked->by_value) status = weigh_by_value(pass, mixing->v, e, kv, each, length, keys, of_head);
      for (int64_t r = 0; r < each; r++) {
        const float *from = of_head + r * keys;
        float *to = asked->to + (mixing->row + e * each + r) * asked->stride;
        for (int64_t i = 0; i < length; i++) to[i] += share * from[i];
      }
    }
  }
  hd_release(pass->context, found, floats, sizeof *found);
  return status;
}

static int64_t source_length(const transformer *t, const hd_span *row) {
  return heed_cache_length(t->cross, row->source * t->model->spec.layers);
}

static heed_status step(hd_stepper *stepper, const int32_t *ids, float *logits, const hd_step_weights *weights) {
  transformer *t = (transformer *)stepper;
  for (int64_t i = 0; i < t->count && weights; i++)
    memset(weights->to + i * weights->stride, 0, (size_t)source_length(t, &t->spans[i]) * sizeof *weights->to);
  HD_TRY(hd_branches_grow(t->branches));
  HD_TRY(hd_scratch_reserve(stepper->context, &t->model->spec, &t->scratch, t->count));
  HD_TRY(hd_transformer_run(&(hd_pass){.context = stepper->context,
                                       .model = t->model,
                                       .branches = t->branches,
                                       .cross = t->cross,
                                       .scratch = &t->scratch,
                                       .ids = ids,
                                       .spans = t->spans,
                                       .span_count = t->count,
                                       .rows = t->count,
                                       .logits = logits,
                                       .logit_rows = t->count,
                                       .mixed = weights ? add_weights : NULL,
                                       .mixed_user = (void *)weights}));
  for (int64_t i = 0; i < t->count; i++) t->spans[i].first++;
  return HEED_OK;
}

static heed_status choose(hd_stepper *stepper, int64_t rows, const int32_t *parents) {
  transformer *t = (transformer *)stepper;
  HD_REQUIRE(rows <= t->room, stepper->context, HEED_E_ARGUMENT, "%s: more rows than were announced (got %lld, allowed %lld)",
             stepper->name, (long long)rows, (long long)t->room);
  hd_branches_choose(t->branches, rows, parents);
  for (int64_t r = 0; r < rows; r++) t->next[r] = t->spans[parents[r]];
  hd_span *before = t->spans;
  t->spans = t->next;
  t->next = before;
  t->count = rows;
  return HEED_OK;
}

/* ---- the stepper ---------------------------------------------------------------------------------------------------------------------- */

static void free_stepper(hd_stepper *stepper) {
  transformer *t = (transformer *)stepper;
  heed_context *context = stepper->context;
  release_rows(t);
  heed_cache_free(t->cross);
  hd_scratch_free(context, &t->model->spec, &t->scratch);
  hd_scratch_free(context, &t->model->encoder->spec, &t->encoder_scratch);
  heed_model_free(t->model);
  hd_release(context, t, 1, sizeof *t);
}

static heed_status again(const hd_stepper *stepper, heed_context *context, hd_stepper **out) {
  return hd_stepper_transformer(context, ((const transformer *)stepper)->model, out);
}

heed_status hd_stepper_transformer(heed_context *context, heed_model *model, hd_stepper **out) {
  static const hd_stepper_kind kind = {start, step, choose, free_stepper, again};
  hd_stepper base;
  transformer *t;
  *out = NULL;
  HD_TRY(hd_stepper_begin(context, model, &kind, &base));
  base.sources = model->encoder->spec.vocabulary;
  base.targets = model->spec.vocabulary;
  base.longest_source = hd_spec_positions(&model->encoder->spec);
  base.longest = hd_spec_positions(&model->spec);
  base.layers = model->spec.layers;
  base.heads = model->spec.heads;
  HD_TRY(hd_allocate(context, "a stepper", 1, sizeof *t, &t));
  *t = (transformer){.base = base, .model = heed_model_retain(model)};
  *out = &t->base;
  return HEED_OK;
}
