/* families.c: the list of families, and finding the one a file names. */
#include "family.h"

#include "../io/json.h"

#include <stdio.h>

extern const hd_family hd_family_bert, hd_family_gpt2, hd_family_llama, hd_family_mistral, hd_family_qwen2, hd_family_heed;

static const hd_family *const families[] = {
    &hd_family_bert, &hd_family_gpt2, &hd_family_llama, &hd_family_mistral, &hd_family_qwen2, &hd_family_heed,
};

static const hd_spelling *spelling_of(const hd_family *family, bool gguf) { return gguf ? &family->gguf : &family->json; }

static heed_status unknown_family(heed_context *context, const char *file, bool gguf, heed_text name) {
  char known[256] = "", quoted[HD_QUOTE_LENGTH];
  size_t at = 0;
  for (int64_t i = 0; i < HD_COUNT(families); i++) {
    const char *architecture = spelling_of(families[i], gguf)->architecture;
    if (architecture) at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", architecture);
  }
  return hd_fail(context, HEED_E_UNSUPPORTED, "%s: this kind of model is not supported (%s, got %s, allowed %s)", file,
                 gguf ? "general.architecture" : "model_type", hd_quote(name, quoted), known);
}

heed_status hd_family_of(heed_context *context, const hd_tensors *tensors, hd_config *out) {
  bool gguf = hd_tensors_is_gguf(tensors);
  heed_text name;
  *out = (hd_config){.context = context, .tensors = tensors, .file = hd_tensors_path(tensors)};
  if (gguf) {
    HD_TRY(hd_meta_text(context, tensors, "general.architecture", &name));
  } else {
    const json_t *object = hd_tensors_config(tensors);
    HD_REQUIRE(object, context, HEED_E_UNSUPPORTED,
               "%s: weights alone do not say what model they are (allowed a GGUF file, the directory, or the config.json in it)",
               out->file);
    out->file = hd_tensors_config_path(tensors);
    hd_json_place place = {context, out->file, "", object};
    HD_TRY(hd_json_text(&place, "model_type", &name));
  }
  for (int64_t i = 0; i < HD_COUNT(families); i++) {
    const hd_spelling *spelling = spelling_of(families[i], gguf);
    if (!spelling->architecture || strlen(spelling->architecture) != name.length) continue;
    if (memcmp(spelling->architecture, name.data, name.length) != 0) continue;
    out->family = families[i];
    out->spelling = spelling;
    return HEED_OK;
  }
  return unknown_family(context, out->file, gguf, name);
}

/* The place of a value in the choices of its field, or a sign that it is none of them. */
static bool is_choice(const hd_field *field, int value) {
  int n = 0;
  while (field->choices[n]) n++;
  return value >= 0 && value < n;
}

/* Where one key of a config.json speaks of several members, they must be alike: Llama's biases of queries, keys and values, and of the output. */
static bool keys_agree(const hd_family *family, const hd_transformer_spec *spec) {
  for (int64_t i = 0; i < family->field_count; i++)
    for (int64_t j = 0; j < i; j++) {
      const hd_field *a = &family->fields[i], *b = &family->fields[j];
      if (!a->json || !b->json || a->kind != HD_FIELD_BOOL || strcmp(a->json, b->json) != 0) continue;
      if (*(const bool *)((const char *)spec + a->at) != *(const bool *)((const char *)spec + b->at)) return false;
    }
  return true;
}

/* Whether what the family's configurations cannot say is as the spec has it. */
static bool says(const hd_family *family, const hd_transformer_spec *spec) {
  if (!keys_agree(family, spec)) return false;
  hd_transformer_spec other = family->base;
  other.positions = family->json.positions;
  hd_transformer_spec both = *spec;
  for (int64_t i = 0; i < family->field_count; i++) {
    const hd_field *f = &family->fields[i];
    if (!f->json || f->kind == HD_FIELD_REFUSED || f->kind == HD_FIELD_ZERO) continue;
    int choice = 0;
    if (f->kind == HD_FIELD_CHOICE) memcpy(&choice, (const char *)spec + f->at, sizeof choice);
    if (f->kind == HD_FIELD_CHOICE && !is_choice(f, choice)) return false;
    size_t bytes = f->kind == HD_FIELD_BOOL ? sizeof(bool) : f->kind == HD_FIELD_CHOICE ? sizeof(int) : 8;
    memset((char *)&other + f->at, 0, bytes);
    memset((char *)&both + f->at, 0, bytes);
  }
  const bool grouped = both.kv_heads != 0 && spec->kv_heads != spec->heads; // and no field for it
  return !grouped && other.norm == both.norm && other.norm_place == both.norm_place && other.feed_forward_kind == both.feed_forward_kind &&
         other.positions == both.positions && (family->activation_key || other.activation == both.activation) &&
         other.bias_qkv == both.bias_qkv && other.bias_output == both.bias_output && other.bias_feed_forward == both.bias_feed_forward &&
         other.bias_head == both.bias_head && (family->class_names[both.head] || other.head == both.head) &&
         other.norm_unbiased == both.norm_unbiased && other.tied == both.tied && other.bidirectional == both.bidirectional &&
         other.segments == both.segments && other.embedding_norm == both.embedding_norm &&
         (both.head != HEED_HEAD_TOKENS || other.head_transform == both.head_transform) && other.attention_scale == both.attention_scale &&
         other.attention_softcap == both.attention_softcap && other.window == both.window && other.logit_softcap == both.logit_softcap &&
         other.embedding_scale == both.embedding_scale;
}

hd_transformer_spec hd_family_written(const hd_family *family, const hd_transformer_spec *spec) {
  const hd_transformer_spec *base = &family->base;
  hd_transformer_spec out = *spec;
  out.bias_qkv |= base->bias_qkv;
  out.bias_output |= base->bias_output;
  out.bias_feed_forward |= base->bias_feed_forward;
  out.bias_head |= base->bias_head;
  if (base->norm == HD_NORM_LAYER) out.norm_unbiased = base->norm_unbiased;
  if (out.segments == 0) out.segments = base->segments;
  return out;
}

const hd_family *hd_family_for(const hd_transformer_spec *spec) {
  for (int64_t i = 0; i < HD_COUNT(families); i++) {
    const hd_transformer_spec written = hd_family_written(families[i], spec);
    if (families[i]->json.architecture && says(families[i], &written)) return families[i];
  }
  return NULL;
}

const char *hd_tensor_name(const hd_config *config, hd_slot slot, int64_t layer, const char *suffix, char buffer[HD_TENSOR_NAME_LENGTH]) {
  const char *pattern = config->spelling->tensors[slot], *hash = strchr(pattern, '#');
  if (hash) snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%.*s%lld%s%s", (int)(hash - pattern), pattern, (long long)layer, hash + 1, suffix);
  else snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%s%s", pattern, suffix);
  const char *prefix = config->spelling->optional_prefix;
  bool stripped = prefix && config->tensors && strncmp(buffer, prefix, strlen(prefix)) == 0 && !hd_tensors_find(config->tensors, buffer) &&
                  hd_tensors_find(config->tensors, buffer + strlen(prefix));
  return stripped ? buffer + strlen(prefix) : buffer;
}
