/* load_gguf.c: the tokenizer in the metadata of a GGUF file: keys tokenizer.ggml.*. */
#include "tokenizer.h"
#include "../io/json.h"
#include "../io/tensors.h"

#define KEY "tokenizer.ggml."

typedef struct gguf_source {
  heed_context *context;
  const hd_tensors *tensors;
  const char *file;
  const hd_meta *texts, *scores, *kinds, *merges; /* NULL where the file has none */
} gguf_source;

static void token_at(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) {
  const gguf_source *source = spec->source;
  *out = (hd_token){.text = hd_meta_text_at(source->texts, id),
                    .score = source->scores ? (float)hd_meta_number_at(source->scores, id) : 0,
                    .kind = source->kinds ? (hd_token_kind)hd_meta_integer_at(source->kinds, id) : HD_NORMAL};
}

/* "left right"; neither part holds a space, because the alphabet spells it as another character. */
static heed_status merge_at(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text *left, heed_text *right) {
  const gguf_source *source = spec->source;
  return hd_merge_parts(context, spec, i, hd_meta_text_at(source->merges, i), left, right);
}

/* An array with one element a token, if the file has it. */
static heed_status per_token(const gguf_source *source, const char *key, hd_meta_type kind, const hd_meta **out) {
  *out = NULL;
  if (!hd_meta_find(source->tensors, key)) return HEED_OK;
  HD_TRY(hd_meta_array(source->context, source->tensors, key, kind, out));
  HD_REQUIRE((*out)->count == source->texts->count, source->context, HEED_E_FORMAT,
             "%s: %s does not have one element a token (got %lld, allowed %lld)", source->file, key, (long long)(*out)->count,
             (long long)source->texts->count);
  return HEED_OK;
}

static heed_status check_kinds(const gguf_source *source) {
  for (int64_t id = 0; source->kinds && id < source->kinds->count; id++) {
    int64_t kind = hd_meta_integer_at(source->kinds, id);
    HD_REQUIRE(kind >= HD_NORMAL && kind <= HD_BYTE, source->context, HEED_E_FORMAT,
               "%s: " KEY "token_type: token %lld has no such type (got %lld, allowed 1 to 6)", source->file, (long long)id,
               (long long)kind);
  }
  return HEED_OK;
}

static heed_status read_arrays(gguf_source *source) {
  HD_TRY(hd_meta_array(source->context, source->tensors, KEY "tokens", HD_META_TEXT, &source->texts));
  HD_TRY(per_token(source, KEY "scores", HD_META_F64, &source->scores));
  HD_TRY(per_token(source, KEY "token_type", HD_META_I64, &source->kinds));
  return check_kinds(source);
}

static heed_status read_id(const gguf_source *source, const char *key, int64_t fallback, int32_t *out) {
  int64_t id, last = source->texts->count - 1;
  HD_TRY(hd_meta_integer_or(source->context, source->tensors, key, fallback <= last ? fallback : -1, 0, last, &id));
  *out = (int32_t)id;
  return HEED_OK;
}

/* The names that files give for the way of cutting text. Files from before that key existed are GPT-2's or of unknown kind. */
static heed_status find_pre_tokenizer(const gguf_source *source, const hd_pre_tokenizer **out) {
  heed_text name, architecture;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_meta_text_or(source->context, source->tensors, KEY "pre", "default", &name));
  HD_TRY(hd_meta_text_or(source->context, source->tensors, "general.architecture", "", &architecture));
  *out = hd_pre_tokenizer_named(hd_text_is(name, "default") && hd_text_is(architecture, "gpt2") ? architecture : name);
  HD_REQUIRE(*out, source->context, HEED_E_UNSUPPORTED, "%s: " KEY "pre: heed does not know this pre-tokenizer (got \"%s\", known: %s)",
             source->file, hd_quote(name, quoted), hd_pre_tokenizer_known());
  return HEED_OK;
}

/* Whether the file wants begin and end tokens around a text, and which they are. */
static heed_status read_around(const gguf_source *source, bool adds_bos, hd_tokenizer_settings *settings) {
  bool bos, eos;
  HD_TRY(hd_meta_bool_or(source->context, source->tensors, KEY "add_bos_token", adds_bos && settings->bos >= 0, &bos));
  HD_TRY(hd_meta_bool_or(source->context, source->tensors, KEY "add_eos_token", false, &eos));
  HD_REQUIRE(!(bos && settings->bos < 0) && !(eos && settings->eos < 0), source->context, HEED_E_FORMAT,
             "%s: " KEY "%s is true, but the file names no such token", source->file,
             bos && settings->bos < 0 ? "add_bos_token" : "add_eos_token");
  if (bos) settings->before[settings->before_count++] = settings->bos;
  if (eos) settings->after[settings->after_count++] = settings->eos;
  return HEED_OK;
}

static heed_status read_byte_level(gguf_source *source, hd_tokenizer_spec *spec) {
  hd_tokenizer_settings *settings = &spec->settings;
  settings->spelling = HD_SPELLS_BYTES;
  HD_TRY(find_pre_tokenizer(source, &spec->pre_tokenizer));
  HD_TRY(hd_meta_array(source->context, source->tensors, KEY "merges", HD_META_TEXT, &source->merges));
  spec->merge_count = source->merges->count;
  HD_TRY(read_id(source, KEY "bos_token_id", -1, &settings->bos));
  HD_TRY(read_id(source, KEY "eos_token_id", -1, &settings->eos));
  HD_TRY(read_id(source, KEY "unknown_token_id", -1, &settings->unknown));
  settings->stand_in = -1;
  // Llama 3's own tokenizer takes whole words first and begins every text; its GGUF files do not say so.
  bool is_llama3 = strcmp(spec->pre_tokenizer->name, "llama3") == 0;
  settings->whole_words = is_llama3;
  return read_around(source, is_llama3, settings);
}

static heed_status read_sentencepiece(gguf_source *source, hd_tokenizer_spec *spec) {
  hd_tokenizer_settings *settings = &spec->settings;
  bool prefix;
  settings->scored = settings->byte_fallback = settings->fuse_unknown = true;
  HD_REQUIRE(source->scores, source->context, HEED_E_FORMAT, "%s: " KEY "scores is missing", source->file);
  // Where a file is silent, SentencePiece's own ids and habits hold: 0 unknown, 1 begin, 2 end, a space and the begin token in front.
  HD_TRY(read_id(source, KEY "unknown_token_id", 0, &settings->unknown));
  settings->stand_in = settings->unknown;
  HD_TRY(read_id(source, KEY "bos_token_id", 1, &settings->bos));
  HD_TRY(read_id(source, KEY "eos_token_id", 2, &settings->eos));
  HD_TRY(hd_meta_bool_or(source->context, source->tensors, KEY "add_space_prefix", true, &prefix));
  settings->prefix = prefix ? HD_PREFIX_EVERY : HD_PREFIX_NEVER;
  settings->strips_space = prefix;
  return read_around(source, true, settings);
}

heed_status hd_tokenizer_load_gguf(heed_context *context, const hd_tensors *tensors, heed_tokenizer **out) {
  gguf_source source = {.context = context, .tensors = tensors, .file = hd_tensors_path(tensors)};
  hd_tokenizer_spec spec = {.file = source.file,
                            .tokens_place = KEY "tokens",
                            .merges_place = KEY "merges",
                            .source = &source,
                            .token = token_at,
                            .merge = merge_at};
  heed_text model;
  char quoted[HD_QUOTE_LENGTH];
  *out = NULL;
  HD_REQUIRE(hd_tensors_is_gguf(tensors), context, HEED_E_UNSUPPORTED,
             "%s: no tokenizer in a file of this kind (got %s, known: GGUF, tokenizer.json)", source.file, hd_tensors_format(tensors));
  HD_TRY(hd_meta_text(context, tensors, KEY "model", &model));
  HD_REQUIRE(hd_text_is(model, "gpt2") || hd_text_is(model, "llama"), context, HEED_E_UNSUPPORTED,
             "%s: " KEY "model: heed does not know this kind of tokenizer (got \"%s\", known: gpt2, llama)", source.file,
             hd_quote(model, quoted));
  HD_TRY(read_arrays(&source));
  spec.token_count = source.texts->count;
  HD_TRY(hd_text_is(model, "gpt2") ? read_byte_level(&source, &spec) : read_sentencepiece(&source, &spec));
  return hd_tokenizer_new(context, &spec, out);
}
