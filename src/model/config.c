/* config.c: reads a spec through a family's table, from GGUF metadata or a config.json (versions 4 and 5 of transformers).
 *
 * Every value is range-checked as it is read; hd_spec_finish then checks what depends on several. */
#include "family.h"

#include "../io/json.h"

#include <stdio.h>

hd_json_place hd_config_top(const hd_config *config) {
  return (hd_json_place){config->context, config->file, "", hd_tensors_config(config->tensors)};
}

/* ".block_count" → "llama.block_count". */
static const char *full_key(const hd_config *config, const char *key, char buffer[128]) {
  if (key[0] != '.') return key;
  snprintf(buffer, 128, "%s%s", config->spelling->architecture, key);
  return buffer;
}

/* ---- one value, from either kind of file ----------------------------------------------------------------------------------- */

typedef struct hd_value {
  bool present;
  int64_t integer;
  double number;
  bool boolean;
  heed_text text;
} hd_value;

static heed_status value_of_gguf(const hd_config *config, const hd_field *field, hd_value *out) {
  char buffer[128];
  const char *key = full_key(config, field->gguf, buffer);
  out->present = hd_meta_find(config->tensors, key) != NULL;
  if (!out->present && !field->required) return HEED_OK;
  switch (field->kind) {
  case HD_FIELD_INTEGER:
  case HD_FIELD_ZERO:
    return hd_meta_integer(config->context, config->tensors, key, (int64_t)field->min, (int64_t)field->max, &out->integer);
  case HD_FIELD_NUMBER: return hd_meta_number(config->context, config->tensors, key, field->min, field->max, &out->number);
  default: return hd_meta_bool(config->context, config->tensors, key, &out->boolean);
  }
}

static heed_status read_choice(const hd_json_place *top, const hd_field *field, int64_t *out) {
  heed_text text;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text(top, field->json, &text));
  for (*out = 0; field->choices[*out]; (*out)++)
    if (hd_text_is(text, field->choices[*out])) return HEED_OK;
  return hd_fail(top->context, HEED_E_UNSUPPORTED, "%s: this setting is not supported (%s, got %s)", top->file, field->json,
                 hd_quote(text, quoted));
}

static heed_status read_text(const hd_json_place *top, const hd_field *field, heed_text *out) {
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text(top, field->json, out));
  HD_REQUIRE(out->length < HD_ATTENTION_TEXT, top->context, HEED_E_FORMAT, "%s: %s has %zu bytes, allowed %d (%s)", top->file, field->json,
             out->length, HD_ATTENTION_TEXT - 1, hd_quote(*out, quoted));
  HD_REQUIRE(hd_is_printable(*out), top->context, HEED_E_FORMAT, "%s: %s is not a text without control characters (got %s)", top->file,
             field->json, hd_quote(*out, quoted));
  return HEED_OK;
}

static heed_status value_of_json(const hd_config *config, const hd_field *field, hd_value *out) {
  hd_json_place top = hd_config_top(config);
  out->present = hd_json_has(&top, field->json);
  if (!out->present && !field->required) return HEED_OK;
  switch (field->kind) {
  case HD_FIELD_INTEGER:
  case HD_FIELD_ZERO: return hd_json_integer(&top, field->json, (int64_t)field->min, (int64_t)field->max, &out->integer);
  case HD_FIELD_NUMBER: return hd_json_number(&top, field->json, field->min, field->max, &out->number);
  case HD_FIELD_CHOICE: return read_choice(&top, field, &out->integer);
  case HD_FIELD_TEXT: return read_text(&top, field, &out->text);
  default: return hd_json_bool(&top, field->json, &out->boolean);
  }
}

static heed_status read_field(const hd_config *config, const hd_field *field, hd_transformer_spec *spec) {
  bool gguf = hd_tensors_is_gguf(config->tensors);
  hd_value value = {0};
  if (gguf && field->gguf) HD_TRY(value_of_gguf(config, field, &value));
  if (!gguf && field->json) HD_TRY(value_of_json(config, field, &value));
  if (!value.present && isnan(field->fallback)) return HEED_OK;
  char buffer[128];
  const char *key = !gguf ? field->json : field->gguf ? full_key(config, field->gguf, buffer) : NULL;
  char *at = (char *)spec + field->at;
  if (field->kind == HD_FIELD_INTEGER) {
    if (!value.present) value.integer = (int64_t)field->fallback;
    memcpy(at, &value.integer, sizeof value.integer);
  } else if (field->kind == HD_FIELD_NUMBER) {
    if (!value.present) value.number = field->fallback;
    memcpy(at, &value.number, sizeof value.number);
  } else if (field->kind == HD_FIELD_BOOL) {
    if (!value.present) value.boolean = field->fallback != 0;
    memcpy(at, &value.boolean, sizeof value.boolean);
  } else if (field->kind == HD_FIELD_TEXT) {
    memset(at, 0, HD_ATTENTION_TEXT);
    if (value.text.length) memcpy(at, value.text.data, value.text.length);
  } else if (field->kind == HD_FIELD_CHOICE) {
    int choice = value.present ? (int)value.integer : (int)field->fallback;
    memcpy(at, &choice, sizeof choice);
  } else if (field->kind == HD_FIELD_ZERO) {
    HD_REQUIRE(value.integer == 0, config->context, HEED_E_UNSUPPORTED, "%s: this setting is not supported (%s, got %lld, allowed 0)",
               config->file, key, (long long)value.integer);
  } else if (value.present && value.boolean != (field->fallback != 0)) {
    return hd_fail(config->context, HEED_E_UNSUPPORTED, "%s: this setting is not supported (%s, got %s, allowed %s)", config->file, key,
                   value.boolean ? "true" : "false", value.boolean ? "false" : "true");
  }
  return HEED_OK;
}

/* ---- activation ----------------------------------------------------------------------------------------------------------- */

/* T5's spelling: "relu", "gated-silu", and "gated-gelu", which means the tanh form. */
static heed_text read_gates(heed_text name, hd_transformer_spec *spec) {
  static const char gated[] = "gated-";
  const size_t length = sizeof gated - 1;
  const bool gates = name.length > length && memcmp(name.data, gated, length) == 0;
  spec->feed_forward_kind = gates ? HD_FEED_FORWARD_GATED : HD_FEED_FORWARD_PLAIN;
  if (!gates) return name;
  name.data += length, name.length -= length;
  return hd_text_is(name, "gelu") ? (heed_text){"gelu_new", strlen("gelu_new")} : name;
}

static heed_status read_activation(const hd_config *config, hd_transformer_spec *spec) {
  const char *key = config->family->activation_key;
  if (hd_tensors_is_gguf(config->tensors) || !key) return HEED_OK;
  hd_json_place top = hd_config_top(config);
  if (!hd_json_has(&top, key)) return HEED_OK;
  heed_text name;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text(&top, key, &name));
  const heed_text whole = name;
  if (config->family->activation_gates) name = read_gates(name, spec);
  HD_REQUIRE(hd_activation_from_name(name.data, name.length, &spec->activation), config->context, HEED_E_UNSUPPORTED,
             "%s: unknown activation (%s, got %s, allowed %s)", config->file, key, hd_quote(whole, quoted), hd_activation_known());
  return HEED_OK;
}

/* ---- the head ------------------------------------------------------------------------------------------------------------- */

/* Which of the family's classes the file is of, by `architectures`. */
static heed_status read_class(const hd_config *config, const hd_json_place *top, hd_transformer_spec *spec) {
  const json_t *names;
  if (!hd_json_has(top, "architectures")) return HEED_OK;
  HD_TRY(hd_json_array(top, "architectures", &names));
  for (size_t i = 0; i < json_array_size(names); i++)
    for (int head = 0; head < HD_HEADS; head++) {
      const char *name = json_string_value(json_array_get(names, i)), *known = config->family->class_names[head];
      if (name && known && strcmp(name, known) == 0) spec->head = (heed_head)head;
    }
  return HEED_OK;
}

/* transformers leaves id2label out where nobody has named the labels; there are two then, unless num_labels says how many. */
enum { USUAL_LABELS = 2 };

static heed_status read_head(const hd_config *config, hd_transformer_spec *spec) {
  heed_text problem;
  char quoted[HD_QUOTE_LENGTH];
  if (hd_tensors_is_gguf(config->tensors)) return HEED_OK;
  hd_json_place top = hd_config_top(config), names;
  HD_TRY(read_class(config, &top, spec));
  if (spec->head == HEED_HEAD_TOKENS) return HEED_OK;
  HD_TRY(hd_json_text_or(&top, "problem_type", "single_label_classification", &problem));
  HD_REQUIRE(hd_text_is(problem, "single_label_classification"), config->context, HEED_E_UNSUPPORTED,
             "%s: this setting is not supported (problem_type, got %s, allowed single_label_classification)", config->file,
             hd_quote(problem, quoted));
  HD_TRY(hd_json_integer_or(&top, "num_labels", USUAL_LABELS, 1, HD_MAX_LABELS, &spec->labels));
  if (!hd_json_has(&top, "id2label")) return HEED_OK;
  HD_TRY(hd_json_object(&top, "id2label", &names));
  spec->labels = (int64_t)json_object_size(names.object);
  return spec->labels >= 1 && spec->labels <= HD_MAX_LABELS ? HEED_OK : hd_json_wrong(&top, "id2label", "must name the labels");
}

static heed_status label_name(const hd_config *config, const hd_json_place *names, int64_t label, hd_arena *arena, const char **out) {
  char key[32];
  heed_text name = {key, (size_t)snprintf(key, sizeof key, "LABEL_%lld", (long long)label)};
  char *copy;
  if (names->object) {
    snprintf(key, sizeof key, "%lld", (long long)label);
    HD_TRY(hd_json_text(names, key, &name));
    if (!hd_is_printable(name)) return hd_json_wrong(names, key, "must be a text without control characters");
  }
  HD_TRY(hd_arena_text(arena, config->context, name.data, name.length, &copy));
  *out = copy;
  return HEED_OK;
}

heed_status hd_config_labels(const hd_config *config, const hd_transformer_spec *spec, hd_arena *arena, const char *const **out) {
  const char **labels;
  *out = NULL;
  if (spec->head == HEED_HEAD_TOKENS) return HEED_OK;
  hd_json_place top = hd_config_top(config), names = {.object = NULL};
  if (hd_json_has(&top, "id2label")) HD_TRY(hd_json_object(&top, "id2label", &names));
  HD_TRY(hd_arena_allocate(arena, config->context, "labels", spec->labels, sizeof *labels, &labels));
  for (int64_t i = 0; i < spec->labels; i++) HD_TRY(label_name(config, &names, i, arena, &labels[i]));
  *out = labels;
  return HEED_OK;
}

/* ---- rotary positions ----------------------------------------------------------------------------------------------------- */

#define THETA_DEFAULT 10000.0 /* of the paper, and of every configuration that leaves it out */
#define THETA_MIN     1e-3
#define THETA_MAX     1e18
#define FACTOR_MIN    1e-6
#define FACTOR_MAX    1e6

/* Values of rope_type, in the order of heed_rope_kind. */
static const char *const kinds[] = {"default", "linear", "dynamic", "yarn", "llama3", NULL};

static heed_status scaling_kind(const hd_config *config, const char *key, heed_text type, bool gguf, heed_rope_kind *out) {
  char quoted[HD_QUOTE_LENGTH];
  *out = HEED_ROPE_PLAIN;
  if (hd_text_is(type, "none")) return HEED_OK;
  for (int i = 0; kinds[i] && (!gguf || i <= HEED_ROPE_LINEAR); i++)
    if (hd_text_is(type, kinds[i])) {
      *out = (heed_rope_kind)i;
      return HEED_OK;
    }
  return hd_fail(config->context, HEED_E_UNSUPPORTED, "%s: this scaling of rotary positions is not supported (%s, got %s, allowed %s)",
                 config->file, key, hd_quote(type, quoted), gguf ? "none, linear" : "default, linear, dynamic, yarn, llama3");
}

static heed_status read_rotary_gguf(const hd_config *config, hd_transformer_spec *spec) {
  heed_context *context = config->context;
  const hd_tensors *tensors = config->tensors;
  heed_rope_scaling *s = &spec->rotary;
  char buffer[128];
  heed_text type;
  *s = (heed_rope_scaling){.size = sizeof *s};
  HD_TRY(hd_meta_number_or(context, tensors, full_key(config, ".rope.freq_base", buffer), THETA_DEFAULT, THETA_MIN, THETA_MAX, &s->theta));
  HD_TRY(hd_meta_integer_or(context, tensors, full_key(config, ".rope.dimension_count", buffer), 0, 2, HD_MAX_HEAD_DIM, &spec->rotary_dim));
  HD_TRY(hd_meta_text_or(context, tensors, full_key(config, ".rope.scaling.type", buffer), "none", &type));
  HD_TRY(scaling_kind(config, buffer, type, true, &s->kind));
  if (s->kind == HEED_ROPE_LINEAR)
    HD_TRY(hd_meta_number(context, tensors, full_key(config, ".rope.scaling.factor", buffer), FACTOR_MIN, FACTOR_MAX, &s->factor));
  return HEED_OK;
}

/* The kind of scaling and its numbers, from the object that has them. */
static heed_status read_scaling(const hd_config *config, const hd_json_place *in, const hd_transformer_spec *spec, heed_rope_scaling *s) {
  heed_text type;
  const char *key = hd_json_has(in, "rope_type") ? "rope_type" : "type";
  HD_TRY(hd_json_text_or(in, key, "default", &type));
  HD_TRY(scaling_kind(config, key, type, false, &s->kind));
  if (s->kind == HEED_ROPE_PLAIN) return HEED_OK;
  HD_TRY(hd_json_number(in, "factor", FACTOR_MIN, FACTOR_MAX, &s->factor));
  if (s->kind == HEED_ROPE_LINEAR) return HEED_OK;
  const bool own = s->kind == HEED_ROPE_LLAMA3 || hd_json_has(in, "original_max_position_embeddings");
  s->context = spec->context;
  if (own) HD_TRY(hd_json_integer(in, "original_max_position_embeddings", 1, HD_MAX_CONTEXT, &s->context));
  if (s->kind == HEED_ROPE_LLAMA3) {
    HD_TRY(hd_json_number(in, "low_freq_factor", FACTOR_MIN, FACTOR_MAX, &s->slow));
    HD_TRY(hd_json_number(in, "high_freq_factor", FACTOR_MIN, FACTOR_MAX, &s->fast));
  } else if (s->kind == HEED_ROPE_YARN) {
    bool rounded;
    HD_TRY(hd_json_number_or(in, "beta_slow", 0, 0, FACTOR_MAX, &s->slow));
    HD_TRY(hd_json_number_or(in, "beta_fast", 0, 0, FACTOR_MAX, &s->fast));
    HD_TRY(hd_json_number_or(in, "attention_factor", 0, FACTOR_MIN, FACTOR_MAX, &s->attention_factor));
    HD_TRY(hd_json_number_or(in, "mscale", 0, 0, FACTOR_MAX, &s->magnitude));
    HD_TRY(hd_json_number_or(in, "mscale_all_dim", 0, 0, FACTOR_MAX, &s->magnitude_all));
    HD_TRY(hd_json_bool_or(in, "truncate", true, &rounded));
    s->unrounded = !rounded;
  }
  return HEED_OK;
}

/* Theta and scaling of one kind of layers. theta: where it stands, under key. */
static heed_status read_frequencies(const hd_config *config, const hd_json_place *in, const hd_json_place *theta, const char *key,
                                    double usual, const hd_transformer_spec *spec, heed_rope_scaling *out) {
  *out = (heed_rope_scaling){.size = sizeof *out};
  HD_TRY(hd_json_number_or(theta, key, usual != 0 ? usual : THETA_DEFAULT, THETA_MIN, THETA_MAX, &out->theta));
  return in ? read_scaling(config, in, spec, out) : HEED_OK;
}

/* How much of a head turns. */
static heed_status read_partial(const hd_config *config, const hd_json_place *in, const char *key, hd_transformer_spec *spec) {
  const double usual = config->family->rotary.partial_default;
  double part = 1;
  HD_TRY(hd_json_number_or(in, key, usual != 0 ? usual : 1, 0, 1, &part));
  int64_t head_dim = spec->head_dim ? spec->head_dim : spec->width / spec->heads;
  spec->rotary_dim = (int64_t)((double)head_dim * part);
  // To the rest of the spec 0 means that nothing was said, hence the whole head.
  HD_REQUIRE(spec->rotary_dim > 0, config->context, HEED_E_FORMAT,
             "%s: %s leaves no positions (got %g of a head of %lld, allowed from 2 values on)", config->file, key, part,
             (long long)head_dim);
  if (config->family->rotary.odd && spec->rotary_dim % 2 == 1) spec->rotary_exponent = spec->rotary_dim++;
  return HEED_OK;
}

/* Version 5 keeps everything in rope_parameters, one object or one for each kind of layers. */
static heed_status read_rotary_new(const hd_config *config, const hd_json_place *top, hd_transformer_spec *spec) {
  const hd_rotary_keys *keys = &config->family->rotary;
  hd_json_place all, full, local;
  HD_TRY(hd_json_object(top, "rope_parameters", &all));
  if (!hd_json_has(&all, "full_attention")) {
    const bool has_theta = hd_json_has(&all, "rope_theta"), has_part = hd_json_has(&all, "partial_rotary_factor");
    HD_TRY(read_partial(config, has_part ? &all : top, "partial_rotary_factor", spec));
    return read_frequencies(config, &all, has_theta ? &all : top, "rope_theta", keys->theta_default, spec, &spec->rotary);
  }
  HD_TRY(hd_json_object(&all, "full_attention", &full));
  HD_TRY(read_partial(config, &full, "partial_rotary_factor", spec));
  HD_TRY(read_frequencies(config, &full, &full, "rope_theta", keys->theta_default, spec, &spec->rotary));
  if (!hd_json_has(&all, "sliding_attention")) return HEED_OK;
  HD_TRY(hd_json_object(&all, "sliding_attention", &local));
  return read_frequencies(config, &local, &local, "rope_theta", keys->local_default, spec, &spec->rotary_local);
}

/* Version 4 has theta at the top and the rest in rope_scaling, whose type was first called "type", and which is not for layers with a window. */
static heed_status read_rotary_old(const hd_config *config, const hd_json_place *top, hd_transformer_spec *spec) {
  const hd_rotary_keys *keys = &config->family->rotary;
  hd_json_place scaling;
  const bool scaled = hd_json_has(top, "rope_scaling");
  if (scaled) HD_TRY(hd_json_object(top, "rope_scaling", &scaling));
  HD_TRY(read_partial(config, top, keys->partial ? keys->partial : "partial_rotary_factor", spec));
  HD_TRY(read_frequencies(config, scaled ? &scaling : NULL, top, keys->theta ? keys->theta : "rope_theta", keys->theta_default, spec,
                          &spec->rotary));
  if (keys->local_default == 0) return HEED_OK;
  return read_frequencies(config, NULL, top, keys->local, keys->local_default, spec, &spec->rotary_local);
}

static heed_status read_rotary_json(const hd_config *config, hd_transformer_spec *spec) {
  const hd_json_place top = hd_config_top(config);
  return hd_json_has(&top, "rope_parameters") ? read_rotary_new(config, &top, spec) : read_rotary_old(config, &top, spec);
}

/* ---- windows -------------------------------------------------------------------------------------------------------------- */

static heed_status read_layer_types(const hd_config *config, const hd_json_place *top, hd_transformer_spec *spec) {
  const json_t *types;
  HD_TRY(hd_json_array(top, "layer_types", &types));
  if (json_array_size(types) != (size_t)spec->layers) return hd_json_wrong(top, "layer_types", "must name each layer's kind");
  for (int64_t i = 0; i < spec->layers; i++) {
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    if (type && strcmp(type, "full_attention") == 0) hd_spec_set_full(spec, i);
    else
      HD_REQUIRE(type && strcmp(type, "sliding_attention") == 0, config->context, HEED_E_UNSUPPORTED,
                 "%s: this kind of layer is not supported (layer_types[%lld], allowed full_attention, sliding_attention)", config->file,
                 (long long)i);
  }
  return HEED_OK;
}

/* Which layers have no window, where there is one. */
static heed_status read_windows(const hd_config *config, hd_transformer_spec *spec) {
  const hd_window_keys *keys = &config->family->windows;
  int64_t every = keys->every_default;
  if (spec->window == 0 || hd_tensors_is_gguf(config->tensors)) return HEED_OK;
  const hd_json_place top = hd_config_top(config);
  if (hd_json_has(&top, "layer_types")) return read_layer_types(config, &top, spec);
  if (keys->every) HD_TRY(hd_json_integer_or(&top, keys->every, every, 1, HD_MAX_LAYERS, &every));
  for (int64_t i = 0; every > 0 && i < spec->layers; i++)
    if (i % every == (keys->first ? 0 : every - 1)) hd_spec_set_full(spec, i);
  return HEED_OK;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------ */

/* GGUF files may leave the vocabulary to the embedding's own size. */
static heed_status infer_vocabulary(const hd_config *config, hd_transformer_spec *spec) {
  char buffer[HD_TENSOR_NAME_LENGTH];
  const char *name = hd_tensor_name(config, HD_SLOT_EMBEDDING, 0, ".weight", buffer);
  const hd_tensor *embedding = hd_tensors_find(config->tensors, name);
  HD_REQUIRE(embedding && embedding->ndim == 2 && embedding->dim[0] >= 1 && embedding->dim[0] <= HD_MAX_VOCABULARY, config->context,
             HEED_E_FORMAT, "%s: no embedding matrix (%s)", config->file, name);
  spec->vocabulary = embedding->dim[0];
  return HEED_OK;
}

/* GGUF files say by their tensors whether the head is the embedding and which matrices have biases. */
static void infer_from_tensors(const hd_config *config, hd_transformer_spec *spec) {
  static const struct {
    hd_slot slot;
    size_t at;
  } biases[] = {{HD_SLOT_QUERY, HD_AT(bias_qkv)}, {HD_SLOT_OUTPUT, HD_AT(bias_output)}, {HD_SLOT_UP, HD_AT(bias_feed_forward)}};
  char buffer[HD_TENSOR_NAME_LENGTH];
  spec->tied = !hd_tensors_find(config->tensors, hd_tensor_name(config, HD_SLOT_HEAD, 0, ".weight", buffer));
  for (int64_t i = 0; i < HD_COUNT(biases); i++) {
    if (!config->spelling->tensors[biases[i].slot]) continue;
    const char *name = hd_tensor_name(config, biases[i].slot, 0, ".bias", buffer);
    if (hd_tensors_find(config->tensors, name)) *(bool *)((char *)spec + biases[i].at) = true;
  }
}

heed_status hd_config_read(const hd_config *config, hd_transformer_spec *out) {
  hd_transformer_spec spec = config->family->base;
  spec.positions = config->spelling->positions;
  for (int64_t i = 0; i < config->family->field_count; i++) HD_TRY(read_field(config, &config->family->fields[i], &spec));
  if (spec.vocabulary == 0) HD_TRY(infer_vocabulary(config, &spec));
  HD_TRY(read_activation(config, &spec));
  HD_TRY(read_head(config, &spec));
  if (hd_tensors_is_gguf(config->tensors)) infer_from_tensors(config, &spec);
  if (hd_spec_rotates(&spec))
    HD_TRY(hd_tensors_is_gguf(config->tensors) ? read_rotary_gguf(config, &spec) : read_rotary_json(config, &spec));
  if (config->family->derive) HD_TRY(config->family->derive(config, &spec));
  HD_TRY(read_windows(config, &spec));
  HD_TRY(hd_spec_finish(config->context, config->file, &spec));
  *out = spec;
  return HEED_OK;
}

/* ---- writing one ----------------------------------------------------------------------------------------------------------- */

static json_t *json_of(const hd_field *field, const hd_transformer_spec *spec) {
  const char *at = (const char *)spec + field->at;
  int64_t integer;
  double number;
  bool boolean;
  int choice;
  switch (field->kind) {
  case HD_FIELD_INTEGER: memcpy(&integer, at, sizeof integer); return json_integer(integer);
  case HD_FIELD_NUMBER: memcpy(&number, at, sizeof number); return json_real(number);
  case HD_FIELD_BOOL: memcpy(&boolean, at, sizeof boolean); return json_boolean(boolean);
  case HD_FIELD_CHOICE: memcpy(&choice, at, sizeof choice); return json_string(field->choices[choice]);
  case HD_FIELD_TEXT: return json_string(at);
  case HD_FIELD_REFUSED: return json_boolean(field->fallback != 0);
  default: return json_integer(0);
  }
}

static bool is_empty(const hd_field *field, const hd_transformer_spec *spec) {
  return field->kind == HD_FIELD_TEXT && !((const char *)spec)[field->at];
}

/* As transformers writes them: {"0": "NAME"} and {"NAME": 0}. */
static int put_labels(json_t *to, int64_t count, const char *const *labels) {
  json_t *names = json_object(), *ids = json_object();
  int failed = json_object_set_new(to, "id2label", names) | json_object_set_new(to, "label2id", ids);
  for (int64_t i = 0; i < count && !failed; i++) {
    char key[32];
    snprintf(key, sizeof key, "%lld", (long long)i);
    failed |= json_object_set_new(names, key, json_string(labels[i])) | json_object_set_new(ids, labels[i], json_integer(i));
  }
  return failed;
}

/* One stack's part. */
static int put_spec(json_t *to, const hd_family *family, const hd_transformer_spec *spec) {
  int failed = 0;
  for (int64_t i = 0; i < family->field_count && !failed; i++)
    if (family->fields[i].json && !is_empty(&family->fields[i], spec))
      failed |= json_object_set_new(to, family->fields[i].json, json_of(&family->fields[i], spec));
  const bool gates = family->activation_gates && spec->feed_forward_kind == HD_FEED_FORWARD_GATED;
  const char *name = gates && spec->activation == HEED_ACTIVATION_GELU_TANH ? "gelu" : hd_activation_name(spec->activation);
  if (family->activation_key) failed |= json_object_set_new(to, family->activation_key, json_sprintf("%s%s", gates ? "gated-" : "", name));
  if (hd_spec_rotates(spec)) failed |= json_object_set_new(to, "rope_theta", json_real(spec->rotary.theta));
  return failed;
}

json_t *hd_config_write(const hd_family *family, const hd_transformer_spec *spec, const hd_transformer_spec *encoder,
                        const char *const *labels) {
  json_t *out = json_object();
  int failed = !out || json_object_set_new(out, "model_type", json_string(family->json.architecture));
  const char *class_name = family->class_names[spec->head];
  if (class_name) failed |= json_object_set_new(out, "architectures", json_pack("[s]", class_name));
  if (!failed) failed |= put_spec(out, family, spec);
  if (!failed && encoder) failed |= put_spec(out, family->encoder, encoder) | json_object_set_new(out, "is_encoder_decoder", json_true());
  if (!failed && spec->head != HEED_HEAD_TOKENS) failed |= put_labels(out, spec->labels, labels);
  failed |= json_object_set_new(out, "torch_dtype", json_string("float32"));
  if (!failed) return out;
  json_decref(out);
  return NULL;
}
