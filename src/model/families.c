/* families.c: the list of families, and finding the one a file names. */
#include "family.h"

#include "../io/json.h"

#include <stdio.h>

extern const hd_family hd_family_gpt2, hd_family_llama, hd_family_mistral, hd_family_qwen2;

static const hd_family *const families[] = {
    &hd_family_gpt2,
    &hd_family_llama,
    &hd_family_mistral,
    &hd_family_qwen2,
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

const char *hd_tensor_name(const hd_config *config, hd_slot slot, int64_t layer, const char *suffix, char buffer[HD_TENSOR_NAME_LENGTH]) {
  const char *pattern = config->spelling->tensors[slot], *hash = strchr(pattern, '#');
  if (hash) snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%.*s%lld%s%s", (int)(hash - pattern), pattern, (long long)layer, hash + 1, suffix);
  else snprintf(buffer, HD_TENSOR_NAME_LENGTH, "%s%s", pattern, suffix);
  const char *prefix = config->spelling->optional_prefix;
  bool stripped = prefix && strncmp(buffer, prefix, strlen(prefix)) == 0 && !hd_tensors_find(config->tensors, buffer) &&
                  hd_tensors_find(config->tensors, buffer + strlen(prefix));
  return stripped ? buffer + strlen(prefix) : buffer;
}
