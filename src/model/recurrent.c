/* recurrent.c: the recurrent encoder–decoder in files: a config.json of model_type "heed" with an object "recurrent", and its weights in the slots that the stepper reads. */
#include "recurrent.h"
#include "model.h"
#include "stepper.h"

#include "../io/json.h"

static const char *const scores[] = {"additive", "dot", "scaled", "bilinear", "none"};
static const char *const outputs[] = {"state", "tanh", "maxout"};

json_t *hd_recurrent_config(const hd_recurrent_spec *s) {
  return json_pack("{ss s{sI sI sI sI sI ss ss} ss}", "model_type", "heed", "recurrent", "width", (json_int_t)s->width, "vocabulary",
                   (json_int_t)s->vocabulary, "source_vocabulary", (json_int_t)s->source_vocabulary, "source", (json_int_t)s->source,
                   "context", (json_int_t)s->context, "score", scores[s->score], "output", outputs[s->output], "torch_dtype", "float32");
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------------- */

static heed_status read_choice(const hd_json_place *in, const char *key, const char *const *choices, int64_t count, int *out) {
  heed_text text;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text(in, key, &text));
  for (*out = 0; *out < count; ++*out)
    if (hd_text_is(text, choices[*out])) return HEED_OK;
  return hd_fail(in->context, HEED_E_UNSUPPORTED, "%s: this setting is not supported (recurrent.%s, got %s)", in->file, key,
                 hd_quote(text, quoted));
}

static heed_status read_spec(const hd_json_place *in, hd_recurrent_spec *s) {
  int score, output;
  HD_TRY(hd_json_integer(in, "width", 1, HD_MAX_WIDTH, &s->width));
  HD_TRY(hd_json_integer(in, "vocabulary", 1, HD_MAX_VOCABULARY, &s->vocabulary));
  HD_TRY(hd_json_integer(in, "source_vocabulary", 0, HD_MAX_VOCABULARY, &s->source_vocabulary));
  HD_TRY(hd_json_integer(in, "source", 1, HD_MAX_CONTEXT, &s->source));
  HD_TRY(hd_json_integer(in, "context", 1, HD_MAX_CONTEXT, &s->context));
  HD_TRY(read_choice(in, "score", scores, HD_COUNT(scores), &score));
  HD_TRY(read_choice(in, "output", outputs, HD_COUNT(outputs), &output));
  s->score = (heed_learner_score)score;
  s->output = (heed_learner_output)output;
  return HEED_OK;
}

typedef struct loader {
  const hd_config *config;
  heed_model *model;
  heed_status status; /* the first error */
} loader;

static heed_status read_vector(loader *in, hd_storage storage, int64_t count, const void *bytes, const float **out) {
  float *vector;
  HD_TRY(hd_arena_allocate(&in->model->arena, in->config->context, "a vector of weights", count, sizeof *vector, &vector));
  hd_dequantise(storage, bytes, count, vector);
  in->model->weight_bytes += count * (int64_t)sizeof *vector;
  *out = vector;
  return HEED_OK;
}

static heed_status read_loop(loader *in, hd_storage storage, int64_t outputs, int64_t inputs, const void *bytes, hd_packed *out) {
  heed_context *context = in->config->context;
  const int64_t floats = hd_packed_floats(outputs, inputs);
  float *rows;
  *out = (hd_packed){.outputs = outputs, .inputs = inputs};
  HD_TRY(hd_arena_allocate(&in->model->arena, context, "weights", floats, sizeof *out->panels, &out->panels));
  HD_TRY(hd_allocate(context, "weights being loaded", outputs * inputs, sizeof *rows, &rows));
  hd_dequantise(storage, bytes, outputs * inputs, rows);
  hd_packed_fill(context, rows, false, out);
  hd_release(context, rows, outputs * inputs, sizeof *rows);
  in->model->weight_bytes += floats * (int64_t)sizeof *rows;
  return HEED_OK;
}

static heed_status read_matrix(loader *in, hd_storage storage, int64_t outputs, int64_t inputs, const void *bytes, hd_matrix *out) {
  HD_TRY(hd_matrix_pack(in->config->context, &in->model->arena, storage, outputs, inputs, bytes, out));
  in->model->weight_bytes += out->bytes;
  return HEED_OK;
}

static heed_status load(loader *in, const char *name, hd_recurrent_kind kind, int64_t outputs, int64_t inputs, hd_recurrent_weight *out) {
  heed_context *context = in->config->context;
  const hd_tensor *tensor;
  void *bytes;
  HD_TRY(hd_tensors_weight(context, in->config->tensors, name, kind == HD_PART_VECTOR ? 1 : 2, (int64_t[]){outputs, inputs}, &tensor));
  HD_TRY(hd_allocate(context, "weights being loaded", tensor->bytes, 1, &bytes));
  heed_status status = hd_tensors_read(context, in->config->tensors, tensor, bytes);
  if (status == HEED_OK)
    status = kind == HD_PART_VECTOR ? read_vector(in, tensor->storage, outputs, bytes, &out->vector)
             : kind == HD_PART_LOOP ? read_loop(in, tensor->storage, outputs, inputs, bytes, &out->loop)
                                    : read_matrix(in, tensor->storage, outputs, inputs, bytes, &out->matrix);
  hd_release(context, bytes, tensor->bytes, 1);
  in->model->parameters += tensor->count;
  return status;
}

static heed_status load_weights(loader *in, hd_recurrent_model *m) {
  const hd_recurrent_spec *s = &m->spec;
  const int64_t w = s->width;
#define LOAD(member, name, kind, outputs, inputs, there)                                                                                   \
  if ((there) && in->status == HEED_OK) in->status = load(in, name, kind, outputs, inputs, &m->member);
  HD_RECURRENT_PARTS(LOAD)
#undef LOAD
  return in->status;
}

bool hd_recurrent_is(const hd_config *config) {
  const json_t *object = hd_tensors_config(config->tensors);
  return object && json_is_object(json_object_get(object, "recurrent"));
}

heed_status hd_recurrent_load(const hd_config *config, heed_model *model) {
  heed_context *context = config->context;
  const hd_json_place top = {context, config->file, "", hd_tensors_config(config->tensors)};
  hd_recurrent_model *m;
  hd_json_place in;
  HD_TRY(hd_arena_allocate(&model->arena, context, "a model", 1, sizeof *m, &m));
  HD_TRY(hd_json_object(&top, "recurrent", &in));
  HD_TRY(read_spec(&in, &m->spec));
  HD_TRY(load_weights(&(loader){.config = config, .model = model}, m));
  model->recurrent = m;
  model->stepper = hd_stepper_recurrent;
  model->spec = (hd_transformer_spec){.layers = 1,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .head_dim = m->spec.width,
                                      .width = m->spec.width,
                                      .vocabulary = m->spec.vocabulary,
                                      .context = m->spec.context};
  return HEED_OK;
}

static double weights_of(const hd_recurrent_weight *w) {
  return (double)w->matrix.outputs * (double)w->matrix.inputs + (double)w->loop.outputs * (double)w->loop.inputs;
}

void hd_recurrent_describe(const heed_model *model, heed_model_info *info) {
  const hd_recurrent_model *m = model->recurrent;
  const bool attends = m->spec.score != HEED_LEARNER_NONE;
  info->heads = info->kv_heads = attends ? 1 : 0;
  info->head_dim = attends ? m->spec.width : 0;
  // As of a transformer: what is made of the source once, and the head, are left out.
  info->flops_per_token =
      2 * (weights_of(&m->input) + weights_of(&m->state) + weights_of(&m->query) + weights_of(&m->deep_state) + weights_of(&m->deep_token));
  info->encoder_layers = 1;
  info->encoder_vocabulary = m->spec.source_vocabulary ? m->spec.source_vocabulary : m->spec.vocabulary;
  info->encoder_context = m->spec.source;
  info->start = model->start;
}
