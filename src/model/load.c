/* load.c: from a path to a model: open, recognise, read the configuration, load weights, tokenizer and what generation needs to know; reference counting; describe. */
#include "model.h"
#include "recurrent.h"
#include "running.h"
#include "stepper.h"

#include "../io/json.h"
#include "../text/tokenizer.h"

#include <stdio.h>
#include <strings.h>

/* ---- names and ends -------------------------------------------------------------------------------------------------------- */

/* Whether text names a storage type, as the end of a file's name does: "Q4_1", "f16", "q4_k_m". */
static bool is_storage(const char *text, size_t length) {
  for (int type = 0; type < HD_STORAGE_COUNT; type++) {
    size_t name = strlen(hd_storage_name((hd_storage)type));
    if (name <= length && strncasecmp(text, hd_storage_name((hd_storage)type), name) == 0 &&
        (name == length || (name + 2 == length && text[name] == '_')))
      return true;
  }
  return false;
}

/* "models/x.Q4_1.gguf" → "x"; "models/x/" → "x". */
static heed_text name_of_path(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin && path[begin - 1] != '/') begin--;
  heed_text name = {path + begin, end - begin};
  const char suffix[] = ".gguf";
  size_t length = sizeof suffix - 1;
  if (name.length <= length || memcmp(name.data + name.length - length, suffix, length) != 0) return name;
  name.length -= length;
  size_t stem = name.length;
  while (stem && name.data[stem - 1] != '.' && name.data[stem - 1] != '-') stem--;
  if (stem > 1 && is_storage(name.data + stem, name.length - stem)) name.length = stem - 1;
  return name;
}

heed_status hd_model_beside(const hd_config *config, heed_model *model, const char *name, const char **out) {
  const char *directory = hd_tensors_directory(config->tensors);
  size_t length = strlen(directory), size = length + strlen(name) + 2;
  char *path;
  HD_TRY(hd_arena_allocate(&model->arena, config->context, "a path", (int64_t)size, 1, &path));
  snprintf(path, size, "%s%s%s", directory, length && directory[length - 1] != '/' ? "/" : "", name);
  *out = hd_file_exists(path) ? path : NULL;
  return HEED_OK;
}

/* The file's own name: it is what people call the model, while general.name may hold whatever the training run was called. */
static heed_status load_name(const hd_config *config, heed_model *model) {
  bool gguf = hd_tensors_is_gguf(config->tensors);
  heed_text name = name_of_path(gguf ? model->path : hd_tensors_directory(config->tensors));
  char *copy;
  HD_TRY(hd_arena_text(&model->arena, config->context, name.data, name.length, &copy));
  model->name = copy;
  return HEED_OK;
}

/* More than a list of ids that end a text ever has. */
enum { MAX_ENDS = 16 };

typedef struct ends {
  int32_t id[MAX_ENDS];
  int64_t count;
} ends;

static void add_end(ends *to, int64_t id) {
  for (int64_t i = 0; i < to->count; i++)
    if (to->id[i] == id) return;
  if (id >= 0 && to->count < MAX_ENDS) to->id[to->count++] = (int32_t)id;
}

static heed_status keep_ids(const hd_config *config, heed_model *model, const ends *ids, const int32_t **out) {
  int32_t *copy;
  HD_TRY(hd_arena_allocate(&model->arena, config->context, "special tokens", ids->count, sizeof *copy, &copy));
  memcpy(copy, ids->id, (size_t)ids->count * sizeof *copy);
  *out = copy;
  return HEED_OK;
}

/* eos_token_id: null, an id, or a list of ids. */
static heed_status ends_of_json(const hd_json_place *in, heed_model *model, ends *out) {
  const int64_t vocabulary = model->spec.vocabulary;
  const char *key = "eos_token_id";
  const json_t *value = json_object_get(in->object, key);
  if (!value || json_is_null(value)) return HEED_OK;
  for (size_t i = 0, n = json_is_array(value) ? json_array_size(value) : 1; i < n; i++) {
    const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
    if (!json_is_integer(id)) return hd_json_wrong(in, key, "a token id or a list of them");
    if (json_integer_value(id) < 0 || json_integer_value(id) >= vocabulary) return hd_json_wrong(in, key, "an id outside the vocabulary");
    add_end(out, json_integer_value(id));
  }
  return HEED_OK;
}

/* What takes ids from a configuration. */
typedef heed_status (*id_reader)(const hd_json_place *in, heed_model *model, ends *out);

/* config.json, and what generation_config.json says, which is asked last. */
static heed_status read_ids(const hd_config *config, heed_model *model, id_reader read, ends *out) {
  heed_context *context = config->context;
  hd_json_place top = {context, config->file, "", hd_tensors_config(config->tensors)};
  HD_TRY(read(&top, model, out));
  const char *path;
  HD_TRY(hd_model_beside(config, model, "generation_config.json", &path));
  if (!path) return HEED_OK;
  json_t *object = NULL;
  HD_TRY(hd_json_load(context, path, (hd_json_rules){.limit = HD_JSON_CONFIG_BYTES}, &object));
  heed_status status = read(&(hd_json_place){context, path, "", object}, model, out);
  json_decref(object);
  return status;
}

/* One of the ids that a config.json or generation_config.json gives, −1: none. */
static heed_status id_of_json(const hd_json_place *in, const char *key, int64_t vocabulary, int32_t *out) {
  int64_t id;
  if (!hd_json_has(in, key)) return HEED_OK;
  HD_TRY(hd_json_integer(in, key, 0, vocabulary - 1, &id));
  *out = (int32_t)id;
  return HEED_OK;
}

/* The vocabulary of what reads the text. */
static int64_t reads(const heed_model *model) {
  const int64_t own = model->recurrent ? model->recurrent->spec.source_vocabulary : 0;
  return own ? own : model->encoder ? model->encoder->spec.vocabulary : model->spec.vocabulary;
}

static heed_status special_ids(const hd_json_place *in, heed_model *model, ends *unused) {
  (void)unused;
  const int64_t vocabulary = model->spec.vocabulary;
  HD_TRY(id_of_json(in, "decoder_start_token_id", vocabulary, &model->start));
  HD_TRY(id_of_json(in, "pad_token_id", HD_MAX(vocabulary, reads(model)), &model->pad));
  HD_TRY(id_of_json(in, "forced_bos_token_id", vocabulary, &model->forced_first));
  return id_of_json(in, "forced_eos_token_id", vocabulary, &model->forced_last);
}

/* bad_words_ids: what is not written. Lists of one token name ids that are never chosen, such as Marian's padding; longer ones would need a search that knows them. */
static heed_status never_of_json(const hd_json_place *in, heed_model *model, ends *out) {
  const char *key = "bad_words_ids";
  const json_t *list;
  if (!hd_json_has(in, key)) return HEED_OK;
  HD_TRY(hd_json_array(in, key, &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *words = json_array_get(list, i), *id = json_array_get(words, 0);
    HD_REQUIRE(json_array_size(words) == 1, in->context, HEED_E_UNSUPPORTED,
               "%s: this setting is not supported (%s, allowed lists of one token each)", in->file, key);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= model->spec.vocabulary)
      return hd_json_wrong(in, key, "must be lists of ids of the vocabulary");
    add_end(out, json_integer_value(id));
  }
  return HEED_OK;
}

static heed_status load_ends(const hd_config *config, heed_model *model) {
  ends found = {.count = 0};
  int64_t last = model->spec.vocabulary - 1, id;
  if (hd_tensors_is_gguf(config->tensors)) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    for (int64_t i = 0; i < HD_COUNT(keys); i++) {
      HD_TRY(hd_meta_integer_or(config->context, config->tensors, keys[i], -1, 0, last, &id));
      add_end(&found, id);
    }
  } else {
    HD_TRY(read_ids(config, model, ends_of_json, &found));
  }
  const char *turn_end = model->chat ? hd_chat_turn_end(model->chat) : NULL;
  if (turn_end) add_end(&found, heed_token_find(model->tokenizer, (heed_text){turn_end, strlen(turn_end)}));

  model->end_count = found.count;
  return keep_ids(config, model, &found, &model->ends);
}

/* How a decoder's text begins and is filled up. */
static heed_status load_start(const hd_config *config, heed_model *model) {
  ends never = {.count = 0};
  model->start = model->pad = model->forced_first = model->forced_last = -1;
  if (model->encoder) model->stepper = hd_stepper_transformer;
  if (!model->stepper) return HEED_OK;
  HD_TRY(read_ids(config, model, special_ids, NULL));
  HD_TRY(read_ids(config, model, never_of_json, &never));
  model->never_count = never.count;
  return keep_ids(config, model, &never, &model->never);
}

bool hd_model_ends(const heed_model *model, int32_t id) {
  for (int64_t i = 0; i < model->end_count; i++)
    if (model->ends[i] == id) return true;
  return false;
}

/* ---- tokenizer ------------------------------------------------------------------------------------------------------------- */

static heed_status load_tokenizer(const hd_config *config, heed_model *model) {
  heed_context *context = config->context;
  if (hd_tensors_is_gguf(config->tensors)) {
    if (hd_meta_find(config->tensors, "tokenizer.ggml.model")) HD_TRY(hd_tokenizer_load_gguf(context, config->tensors, &model->tokenizer));
  } else {
    const char *path;
    HD_TRY(hd_model_beside(config, model, "tokenizer.json", &path));
    if (!path) HD_TRY(hd_model_beside(config, model, "vocab.txt", &path));
    if (path) HD_TRY(heed_tokenizer_load(context, path, &model->tokenizer));
  }
  if (!model->tokenizer) return HEED_OK;
  heed_tokenizer_info info = {.size = sizeof info};
  HD_TRY(heed_tokenizer_describe(model->tokenizer, &info));
  const int64_t vocabulary = reads(model);
  HD_REQUIRE(info.vocabulary <= vocabulary, context, HEED_E_FORMAT,
             "%s: the tokenizer has tokens without an embedding (got %lld tokens, allowed %lld)", config->file, (long long)info.vocabulary,
             (long long)vocabulary);
  return HEED_OK;
}

/* ---- the model ------------------------------------------------------------------------------------------------------------- */

/* What reads the source: a stack whose spec is another table's. */
static heed_status begin_encoder(const hd_config *config, heed_model *model) {
  heed_model *encoder;
  HD_TRY(hd_arena_allocate(&model->arena, config->context, "an encoder", 1, sizeof *encoder, &encoder));
  *encoder = (heed_model){.family = model->family, .name = model->name, .path = model->path};
  const hd_config of_encoder = hd_config_of_encoder(config);
  HD_TRY(hd_config_read(&of_encoder, &encoder->spec));
  const hd_transformer_spec *spec = &encoder->spec;
  HD_REQUIRE(spec->bidirectional && spec->width == model->spec.width, config->context, HEED_E_FORMAT,
             "%s: encoder and decoder do not fit together (the encoder is %s, of width %lld; the decoder's width is %lld)", config->file,
             spec->bidirectional ? "bidirectional" : "causal", (long long)spec->width, (long long)model->spec.width);
  HD_REQUIRE(!spec->shared_embedding || spec->vocabulary == model->spec.vocabulary, config->context, HEED_E_FORMAT,
             "%s: one embedding for vocabularies of %lld and %lld", config->file, (long long)spec->vocabulary,
             (long long)model->spec.vocabulary);
  model->encoder = encoder;
  return hd_kinds_read(config->context, &model->arena, &encoder->spec, &encoder->kinds);
}

static heed_status load_transformer(const hd_config *config, heed_model *model) {
  HD_TRY(hd_config_read(config, &model->spec));
  HD_TRY(hd_kinds_read(config->context, &model->arena, &model->spec, &model->kinds));
  if (model->spec.cross) HD_TRY(begin_encoder(config, model));
  HD_TRY(hd_weights_load(config, model));
  HD_TRY(hd_linear_load(config->context, model));
  return hd_config_labels(config, &model->spec, &model->arena, &model->labels);
}

static heed_status fill(hd_config *config, heed_model *model) {
  HD_TRY(hd_family_of(config->context, config->tensors, config));
  model->family = config->family->name;
  HD_TRY(load_name(config, model));
  HD_TRY(hd_recurrent_is(config) ? hd_recurrent_load(config, model) : load_transformer(config, model));
  HD_TRY(load_tokenizer(config, model));
  HD_TRY(hd_chat_load(config, model));
  HD_TRY(load_ends(config, model));
  return load_start(config, model);
}

heed_status heed_model_load(heed_context *context, const char *path, heed_model **out) {
  if (out) *out = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(path && out, context, HEED_E_ARGUMENT, "heed_model_load needs a path and a place for the model");
  hd_arena arena;
  hd_config config = {.context = context};
  heed_model *model = NULL;
  char *copy;
  hd_arena_init(&arena, context);
  heed_status status = hd_arena_allocate(&arena, context, "a model", 1, sizeof *model, &model);
  if (status != HEED_OK) return status;
  model->arena = arena;
  atomic_init(&model->references, 1);
  HD_TRY_DONE(hd_arena_text(&model->arena, context, path, strlen(path), &copy));
  model->path = copy;
  hd_tensors *tensors = NULL;
  HD_TRY_DONE(hd_tensors_open(context, path, &tensors));
  config.tensors = tensors;
  status = fill(&config, model);
  hd_tensors_close(tensors);
done:
  if (status != HEED_OK) heed_model_free(model);
  else *out = model;
  return status;
}

heed_model *heed_model_retain(heed_model *model) {
  if (model) atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
  return model;
}

void heed_model_free(heed_model *model) {
  if (!model || atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1) return;
  heed_tokenizer_free(model->tokenizer);
  hd_arena arena = model->arena; // the model lies inside
  hd_arena_free(&arena);
}

const heed_tokenizer *heed_model_tokenizer(const heed_model *model) { return model ? model->tokenizer : NULL; }

const char *heed_model_label(const heed_model *model, int64_t label) {
  return model && model->labels && label >= 0 && label < model->spec.labels ? model->labels[label] : NULL;
}

const char *heed_model_attention(const heed_model *model, int64_t layer, bool *approximate) {
  if (!model || layer < 0 || layer >= model->spec.layers) return NULL;
  const hd_attention_kind kind = hd_kind_of(&model->kinds, layer);
  if (approximate) *approximate = kind.linear || kind.rounds > 0;
  return kind.text ? kind.text : "full";
}

/* Two operations a weight, for the matrices that every token passes; the head is left out, because only tokens whose logits are wanted meet it. Of an encoder–decoder: every token of the target. */
static double flops_per_token(const heed_model *model) {
  const hd_transformer_spec *s = &model->spec;
  double q = (double)(s->heads * s->head_dim), width = (double)s->width, projections = 0;
  for (int64_t i = 0; i < s->layers; i++) {
    const hd_attention_kind kind = hd_kind_of(&model->kinds, i);
    projections += (double)hd_kind_columns(&kind, s) + q;
  }
  double wide = (double)s->feed_forward * (s->feed_forward_kind == HD_FEED_FORWARD_GATED ? 3 : 2);
  return 2.0 * width * (projections + (double)s->layers * (wide + (s->cross ? 2 * q : 0)));
}

heed_status heed_model_describe(const heed_model *model, heed_model_info *info) {
  if (!model || !info || info->size < sizeof info->size) return HEED_E_ARGUMENT;
  const hd_transformer_spec *s = &model->spec;
  heed_model_info full = {.size = info->size,
                          .name = model->name,
                          .family = model->family,
                          .path = model->path,
                          .layers = s->layers,
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .head_dim = s->head_dim,
                          .width = s->width,
                          .feed_forward = s->feed_forward,
                          .vocabulary = s->vocabulary,
                          .context = s->context,
                          .parameters = model->parameters,
                          .weight_bytes = model->weight_bytes,
                          .flops_per_token = flops_per_token(model),
                          .bidirectional = s->bidirectional,
                          .head = s->head,
                          .labels = s->head == HEED_HEAD_TOKENS ? 0 : s->labels,
                          .outputs = hd_spec_outputs(s),
                          .start = -1};
  if (model->encoder) {
    const hd_transformer_spec *encoder = &model->encoder->spec;
    full.encoder_layers = encoder->layers;
    full.encoder_heads = encoder->heads;
    full.encoder_vocabulary = encoder->vocabulary;
    full.encoder_context = encoder->context;
    full.start = model->start;
  }
  if (model->recurrent) hd_recurrent_describe(model, &full);
  memcpy(info, &full, HD_MIN(info->size, sizeof full));
  return HEED_OK;
}
