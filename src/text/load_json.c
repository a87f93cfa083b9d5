/* load_json.c: a Hugging Face tokenizer.json with a BPE or WordPiece model: vocabulary, added tokens and merges, and the names of the special tokens from the
 * tokenizer_config.json beside it. Ids must be exactly 0 … n − 1, each once. */
#include "load_json.h"
#include "bpe.h"
#include "wordpiece.h"

#include <stdio.h>

/* ---- vocabulary ----------------------------------------------------------------------------------------------------------- */

static heed_text text_of(const json_t *text) { return (heed_text){json_string_value(text), json_string_length(text)}; }

static heed_status place_token(hd_json_source *source, int64_t id, hd_token token) {
  hd_token *slot = &source->tokens[id];
  char quoted[2][HD_QUOTE_LENGTH];
  HD_REQUIRE(slot->kind == 0, source->context, HEED_E_FORMAT, "%s: model.vocab: two tokens have id %lld (got \"%s\" and \"%s\")",
             source->file, (long long)id, hd_quote(slot->text, quoted[0]), hd_quote(token.text, quoted[1]));
  *slot = token;
  return HEED_OK;
}

static heed_status read_vocabulary(hd_json_source *source, const hd_json_place *vocabulary, bool byte_fallback) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)vocabulary->object, name, value) {
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= source->token_count) HD_TRY(hd_json_integer(vocabulary, name, 0, source->token_count - 1, &id));
    heed_text text = {name, strlen(name)};
    bool is_byte = byte_fallback && hd_byte_token(text) != -1;
    HD_TRY(place_token(source, id, (hd_token){.text = text, .kind = is_byte ? HD_BYTE : HD_NORMAL}));
  }
  return HEED_OK;
}

static heed_status add_token(hd_json_source *source, const hd_json_place *place, const json_t *vocabulary) {
  int64_t id;
  bool special, single_word, eats_left, eats_right;
  heed_text content;
  char quoted[2][HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text(place, "content", &content));
  HD_TRY(hd_json_integer(place, "id", 0, source->token_count - 1, &id));
  HD_TRY(hd_json_bool_or(place, "special", false, &special));
  HD_TRY(hd_json_bool_or(place, "single_word", false, &single_word));
  HD_TRY(hd_json_bool_or(place, "lstrip", false, &eats_left));
  HD_TRY(hd_json_bool_or(place, "rstrip", false, &eats_right));
  HD_REQUIRE(!single_word, source->context, HEED_E_UNSUPPORTED,
             "%s: added_tokens: \"%s\" is wanted as a single word only, which heed does not do", source->file,
             hd_quote(content, quoted[0]));
  const json_t *known = json_object_get(vocabulary, content.data);
  HD_REQUIRE(!known || json_integer_value(known) == id, source->context, HEED_E_FORMAT,
             "%s: added_tokens: \"%s\" has another id in model.vocab (got %lld and %lld)", source->file, hd_quote(content, quoted[0]),
             (long long)id, (long long)json_integer_value(known));
  hd_token *slot = &source->tokens[id];
  HD_REQUIRE(slot->kind == 0 || (slot->text.length == content.length && memcmp(slot->text.data, content.data, content.length) == 0),
             source->context, HEED_E_FORMAT, "%s: added_tokens: id %lld belongs to another token (got \"%s\" and \"%s\")", source->file,
             (long long)id, hd_quote(content, quoted[0]), hd_quote(slot->text, quoted[1]));
  if (slot->kind == HD_BYTE) return HEED_OK;
  *slot = (hd_token){.text = content, .kind = special ? HD_CONTROL : HD_USER, .eats_left = eats_left, .eats_right = eats_right};
  return HEED_OK;
}

static heed_status add_tokens(hd_json_source *source, const json_t *added, const json_t *vocabulary) {
  size_t i;
  json_t *value;
  json_array_foreach(added, i, value) {
    HD_REQUIRE(json_is_object(value), source->context, HEED_E_FORMAT, "%s: added_tokens: element %zu is not an object", source->file, i);
    HD_TRY(add_token(source, &(hd_json_place){source->context, source->file, "added_tokens", value}, vocabulary));
  }
  return HEED_OK;
}

/* Added tokens may repeat tokens of the vocabulary, so how many there are shows only now. */
static heed_status check_gaps(hd_json_source *source) {
  int64_t last = source->token_count - 1, gap = 0;
  while (last >= 0 && source->tokens[last].kind == 0) last--;
  while (gap <= last && source->tokens[gap].kind != 0) gap++;
  HD_REQUIRE(last >= 0, source->context, HEED_E_FORMAT, "%s: model.vocab is empty", source->file);
  HD_REQUIRE(gap > last, source->context, HEED_E_FORMAT, "%s: model.vocab: ids have a gap (no token %lld, but a token %lld)", source->file,
             (long long)gap, (long long)last);
  source->token_count = last + 1;
  return HEED_OK;
}

static heed_status read_tokens(hd_json_source *source, int64_t *capacity, bool byte_fallback) {
  hd_json_place vocabulary;
  const json_t *added = NULL;
  HD_TRY(hd_json_object(&source->model, "vocab", &vocabulary));
  vocabulary.part = "model.vocab";
  if (hd_json_has(&source->top, "added_tokens")) HD_TRY(hd_json_array(&source->top, "added_tokens", &added));
  *capacity = source->token_count = (int64_t)json_object_size(vocabulary.object) + (int64_t)json_array_size(added);
  HD_TRY(hd_allocate(source->context, "tokens", *capacity, sizeof *source->tokens, &source->tokens));
  memset(source->tokens, 0, (size_t)*capacity * sizeof *source->tokens);
  HD_TRY(read_vocabulary(source, &vocabulary, byte_fallback));
  HD_TRY(add_tokens(source, added, vocabulary.object));
  return check_gaps(source);
}

static void token_at(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) {
  const hd_json_source *source = spec->source;
  *out = source->tokens[id];
}

/* The id of a token by its spelling in the file, or −1. */
static int32_t find_token(const hd_json_source *source, heed_text name) {
  for (int64_t id = 0; id < source->token_count; id++)
    if (source->tokens[id].text.length == name.length && memcmp(source->tokens[id].text.data, name.data, name.length) == 0)
      return (int32_t)id;
  return -1;
}

/* ---- model ---------------------------------------------------------------------------------------------------------------- */

/* "a b" (older files) or ["a", "b"]. */
static heed_status merge_at(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text *left, heed_text *right) {
  const hd_json_source *source = spec->source;
  const json_t *merge = json_array_get(source->merges, (size_t)i);
  if (json_is_string(merge)) return hd_merge_parts(context, spec, i, text_of(merge), left, right);
  const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
  HD_REQUIRE(json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b), context, HEED_E_FORMAT,
             "%s: model.merges: merge %lld must be two tokens (got %s%zu parts)", spec->file, (long long)i,
             json_is_array(merge) ? "" : "no array, ", json_array_size(merge));
  *left = text_of(a);
  *right = text_of(b);
  return HEED_OK;
}

/* BERT's: words are cut into the longest tokens; nothing else is asked of it. */
static heed_status check_words(const hd_json_source *source) {
  heed_text prefix;
  int64_t longest;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text_or(&source->model, "continuing_subword_prefix", HD_WORD_GOES_ON, &prefix));
  HD_REQUIRE(hd_text_is(prefix, HD_WORD_GOES_ON), source->context, HEED_E_UNSUPPORTED,
             "%s: model.continuing_subword_prefix: heed does not know this (got \"%s\", known: " HD_WORD_GOES_ON ")", source->file,
             hd_quote(prefix, quoted));
  HD_TRY(hd_json_integer_or(&source->model, "max_input_chars_per_word", HD_LONGEST_WORD, 0, INT32_MAX, &longest));
  HD_REQUIRE(longest == HD_LONGEST_WORD, source->context, HEED_E_UNSUPPORTED,
             "%s: model.max_input_chars_per_word: heed does not know this (got %lld, known: %d)", source->file, (long long)longest,
             HD_LONGEST_WORD);
  return HEED_OK;
}

/* What would change every result must be absent. */
static heed_status check_model(hd_json_source *source) {
  const char *affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  heed_text text;
  double dropout;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_text_or(&source->model, "type", "BPE", &text));
  source->words = hd_text_is(text, "WordPiece");
  if (source->words) return check_words(source);
  HD_REQUIRE(hd_text_is(text, "BPE"), source->context, HEED_E_UNSUPPORTED,
             "%s: model.type: heed does not know this kind of tokenizer (got \"%s\", known: BPE, WordPiece)", source->file,
             hd_quote(text, quoted));
  HD_TRY(hd_json_number_or(&source->model, "dropout", 0, 0, 1, &dropout));
  HD_REQUIRE(dropout == 0, source->context, HEED_E_UNSUPPORTED, "%s: model.dropout: heed does not drop merges at random (got %g)",
             source->file, dropout);
  for (int i = 0; i < 2; i++) {
    HD_TRY(hd_json_text_or(&source->model, affixes[i], "", &text));
    HD_REQUIRE(text.length == 0, source->context, HEED_E_UNSUPPORTED, "%s: model.%s: heed does not do this (got \"%s\", known: none)",
               source->file, affixes[i], hd_quote(text, quoted));
  }
  return HEED_OK;
}

static heed_status read_model(hd_json_source *source, hd_tokenizer_spec *spec, int64_t *capacity) {
  hd_tokenizer_settings *settings = &spec->settings;
  heed_text unknown;
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_json_object(&source->top, "model", &source->model));
  HD_TRY(check_model(source));
  HD_TRY(hd_json_bool_or(&source->model, "byte_fallback", false, &settings->byte_fallback));
  HD_TRY(hd_json_bool_or(&source->model, "fuse_unk", false, &settings->fuse_unknown));
  HD_TRY(hd_json_bool_or(&source->model, "ignore_merges", false, &settings->whole_words));
  HD_TRY(read_tokens(source, capacity, settings->byte_fallback));
  if (!source->words) HD_TRY(hd_json_array(&source->model, "merges", &source->merges));
  spec->token_count = source->token_count;
  spec->merge_count = (int64_t)json_array_size(source->merges);
  HD_TRY(hd_json_text_or(&source->model, "unk_token", source->words ? "[UNK]" : "", &unknown));
  settings->unknown = settings->stand_in = unknown.length ? find_token(source, unknown) : -1;
  HD_REQUIRE(unknown.length == 0 || settings->unknown >= 0, source->context, HEED_E_FORMAT,
             "%s: model.unk_token is not in the vocabulary (got \"%s\")", source->file, hd_quote(unknown, quoted));
  return HEED_OK;
}

/* ---- tokenizer_config.json ------------------------------------------------------------------------------------------------ */

/* A special token is named by its text, or by an object that holds it; *id is left alone where the file is silent. */
static heed_status read_special(const hd_json_source *source, const hd_json_place *config, const char *key, int32_t *id) {
  hd_json_place object;
  heed_text name;
  char quoted[HD_QUOTE_LENGTH];
  if (!hd_json_has(config, key)) return HEED_OK;
  if (json_is_object(json_object_get(config->object, key))) {
    HD_TRY(hd_json_object(config, key, &object));
    HD_TRY(hd_json_text(&object, "content", &name));
  } else {
    HD_TRY(hd_json_text(config, key, &name));
  }
  *id = find_token(source, name);
  HD_REQUIRE(*id >= 0, source->context, HEED_E_FORMAT, "%s: %s is not in the vocabulary of %s (got \"%s\")", config->file, key,
             source->file, hd_quote(name, quoted));
  return HEED_OK;
}

/* What a source and its settings are to read_config. */
typedef struct configuring {
  const hd_json_source *source;
  hd_tokenizer_settings *settings;
} configuring;

static heed_status read_config(void *user, const hd_json_place *config) {
  const hd_json_source *source = ((const configuring *)user)->source;
  hd_tokenizer_settings *settings = ((const configuring *)user)->settings;
  bool adds_bos, adds_eos;
  int32_t unknown = -1;
  HD_TRY(read_special(source, config, "bos_token", &settings->bos));
  HD_TRY(read_special(source, config, "eos_token", &settings->eos));
  HD_TRY(read_special(source, config, "unk_token", &unknown));
  if (settings->unknown < 0) settings->unknown = unknown;
  HD_TRY(hd_json_bool_or(config, "add_bos_token", false, &adds_bos));
  HD_TRY(hd_json_bool_or(config, "add_eos_token", false, &adds_eos));
  if (source->has_template) return HEED_OK;
  if (adds_bos && settings->bos >= 0) settings->before[settings->before_count++] = settings->bos;
  if (adds_eos && settings->eos >= 0) settings->after[settings->after_count++] = settings->eos;
  return HEED_OK;
}

heed_status hd_tokenizer_config(heed_context *context, const char *file, hd_json_reader read, void *user) {
  const char *slash = strrchr(file, '/');
  const size_t directory = slash ? (size_t)(slash - file) + 1 : 0;
  static const char name[] = "tokenizer_config.json";
  const int64_t bytes = (int64_t)(directory + sizeof name);
  char *path;
  json_t *config = NULL;
  heed_status status = HEED_OK;
  HD_TRY(hd_allocate(context, "a path", bytes, 1, &path));
  memcpy(path, file, directory);
  memcpy(path + directory, name, sizeof name);
  if (hd_file_exists(path)) {
    // model_max_length is 10^30 where a model has no limit.
    const hd_json_rules rules = {.limit = HD_JSON_CONFIG_BYTES, .big_integers = true};
    HD_TRY_DONE(hd_json_load(context, path, rules, &config));
    HD_TRY_DONE(read(user, &(hd_json_place){context, path, "", config}));
  }
done:
  json_decref(config);
  hd_release(context, path, bytes, 1);
  return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------ */

static heed_status load(hd_json_source *source, int64_t *capacity, heed_tokenizer **out) {
  hd_tokenizer_spec spec = {.file = source->file,
                            .tokens_place = "model.vocab",
                            .merges_place = "model.merges",
                            .settings = {.bos = -1, .eos = -1, .unknown = -1},
                            .source = source,
                            .token = token_at,
                            .merge = merge_at};
  HD_TRY(read_model(source, &spec, capacity));
  HD_TRY(hd_json_steps(source, &spec));
  // A lone tokenizer.json has no names for its special tokens; those it puts around a text are the likely ones.
  if (spec.settings.before_count > 0) spec.settings.bos = spec.settings.before[0];
  if (spec.settings.after_count > 0) spec.settings.eos = spec.settings.after[0];
  HD_TRY(hd_tokenizer_config(source->context, source->file, read_config, &(configuring){source, &spec.settings}));
  return hd_tokenizer_new(source->context, &spec, out);
}

heed_status hd_tokenizer_load_json(heed_context *context, const char *path, heed_tokenizer **out) {
  json_t *document = NULL;
  int64_t capacity = 0;
  *out = NULL;
  HD_TRY(hd_json_load(context, path, (hd_json_rules){.limit = HD_JSON_TOKENIZER_BYTES}, &document));
  hd_json_source source = {.context = context, .file = path, .top = {context, path, "", document}};
  heed_status status = load(&source, &capacity, out);
  hd_release(context, source.tokens, capacity, sizeof *source.tokens);
  json_decref(document);
  return status;
}
