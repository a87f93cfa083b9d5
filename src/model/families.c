/* families.c: the list of families, and finding the one a file names. */
#include "family.h"

#include "../io/json.h"

#include <stdio.h>

/* One line expands to the declaration of hd_family_<name> and to an entry of the table. "heed", which says what no other can, is the last. */
#define FAMILIES(X)                                                                                                                        \
  X(bart)                                                                                                                                  \
  X(bert)                                                                                                                                  \
  X(distilbert)                                                                                                                            \
  X(gemma2)                                                                                                                                \
  X(gemma3)                                                                                                                                \
  X(gpt2)                                                                                                                                  \
  X(gpt_neox)                                                                                                                              \
  X(llama)                                                                                                                                 \
  X(marian)                                                                                                                                \
  X(mistral)                                                                                                                               \
  X(modernbert)                                                                                                                            \
  X(olmo2)                                                                                                                                 \
  X(phi3)                                                                                                                                  \
  X(qwen2)                                                                                                                                 \
  X(qwen3)                                                                                                                                 \
  X(roberta)                                                                                                                               \
  X(t5)                                                                                                                                    \
  X(heed)

#define DECLARE(name) extern const hd_family hd_family_##name;
FAMILIES(DECLARE)
#define ENTRY(name) &hd_family_##name,
static const hd_family *const families[] = {FAMILIES(ENTRY)};

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
    HD_REQUIRE(!hd_tensors_is_ctranslate2(tensors), context, HEED_E_UNSUPPORTED,
               "%s: a model of CTranslate2 is not run as it is: `heed convert` makes a directory of it that heed reads", out->file);
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

/* Of the member that it fills. */
static size_t size_of(const hd_field *field) {
  if (field->kind == HD_FIELD_TEXT) return HD_ATTENTION_TEXT;
  return field->kind == HD_FIELD_BOOL ? sizeof(bool) : field->kind == HD_FIELD_CHOICE ? sizeof(int) : 8;
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

/* What only base says must be the spec's, too: every member that no field reads. */
// clang-format off
#define COMPARED(X)                                                                                                                        \
  X(norm) X(norm_place) X(norm_eps) X(feed_forward_kind) X(positions) X(position_offset) X(sinusoid_closed) X(relative_buckets)            \
  X(relative_distance) X(attention_scale) X(attention_softcap) X(window) X(logit_softcap) X(scaled_embedding) X(scaled_logits) X(cross)    \
  X(shared_embedding) X(headless) X(bidirectional) X(segments) X(embedding_norm) X(bias_qkv) X(bias_output) X(bias_feed_forward)           \
  X(bias_head) X(norm_unbiased) X(norm_shifted) X(first_bare) X(parallel) X(head_dense_unbiased) X(side_norm) X(tied)
// clang-format on

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
    const size_t bytes = size_of(f);
    memset((char *)&other + f->at, 0, bytes);
    memset((char *)&both + f->at, 0, bytes);
  }
  const bool grouped = both.kv_heads != 0 && spec->kv_heads != spec->heads; // and no field for it
  const bool wide = both.head_dim != 0 && spec->head_dim * spec->heads != spec->width;
  if (family->activation_gates) other.feed_forward_kind = both.feed_forward_kind;
#define ALIKE(member) &&other.member == both.member
  return !grouped && !wide COMPARED(ALIKE) && strcmp(other.attention, both.attention) == 0 &&
         strcmp(other.layer_positions, both.layer_positions) == 0 && (family->activation_key || other.activation == both.activation) &&
         (family->class_names[both.head] || other.head == both.head) &&
         (both.head != HEED_HEAD_TOKENS || other.head_transform == both.head_transform);
#undef ALIKE
}

/* Whether the field is the last that fills its member. */
static bool is_last(const hd_family *family, int64_t i) {
  for (int64_t j = i + 1; j < family->field_count; j++)
    if (family->fields[j].at == family->fields[i].at) return false;
  return true;
}

/* Where a key speaks of both stacks, they must be alike. */
static bool stacks_agree(const hd_family *family, const hd_transformer_spec *spec, const hd_transformer_spec *encoder) {
  const hd_family *other = family->encoder;
  if (family->json.separate && encoder->shared_embedding && !spec->tied) return false; // to transformers nothing is then shared at all
  if (family->activation_key && other->activation_key && strcmp(family->activation_key, other->activation_key) == 0 &&
      (spec->activation != encoder->activation || spec->feed_forward_kind != encoder->feed_forward_kind))
    return false;
  for (int64_t i = 0; i < family->field_count; i++)
    for (int64_t j = 0; j < other->field_count; j++) {
      const hd_field *a = &family->fields[i], *b = &other->fields[j];
      if (!a->json || !b->json || strcmp(a->json, b->json) != 0 || !is_last(family, i) || !is_last(other, j)) continue;
      if (a->kind == HD_FIELD_REFUSED || a->kind == HD_FIELD_ZERO) continue;
      if (memcmp((const char *)spec + a->at, (const char *)encoder + b->at, size_of(a)) != 0) return false;
    }
  return true;
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

const hd_family *hd_family_for(const hd_transformer_spec *spec, const hd_transformer_spec *encoder) {
  if (spec->cross != (encoder != NULL)) return NULL;
  for (int64_t i = 0; i < HD_COUNT(families); i++) {
    const hd_family *family = families[i];
    if (family->only_read || !family->json.architecture || (encoder && !family->encoder)) continue;
    const hd_transformer_spec written = hd_family_written(family, spec);
    if (!says(family, &written)) continue;
    if (!encoder) return family;
    const hd_transformer_spec other = hd_family_written(family->encoder, encoder);
    if (says(family->encoder, &other) && stacks_agree(family, &written, &other)) return family;
  }
  return NULL;
}

const char *hd_tensor_name(const hd_config *config, hd_slot slot, int64_t layer, const char *suffix, char buffer[HD_TENSOR_NAME_LENGTH]) {
  const bool separate = config->separate && slot == HD_SLOT_EMBEDDING && config->spelling->separate;
  const char *pattern = separate ? config->spelling->separate : config->spelling->tensors[slot], *hash = strchr(pattern, '#');
  if (slot == HD_SLOT_HEAD_BIAS && config->spelling->head_bias_row) suffix = "";
  if (hash) snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%.*s%lld%s%s", (int)(hash - pattern), pattern, (long long)layer, hash + 1, suffix);
  else snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%s%s", pattern, suffix);
  const char *prefix = config->spelling->optional_prefix;
  bool stripped = prefix && config->tensors && strncmp(buffer, prefix, strlen(prefix)) == 0 && !hd_tensors_find(config->tensors, buffer) &&
                  hd_tensors_find(config->tensors, buffer + strlen(prefix));
  return stripped ? buffer + strlen(prefix) : buffer;
}
