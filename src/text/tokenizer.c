/* tokenizer.c: making a tokenizer from what a loader found, finding the loader for a path, and the questions a tokenizer answers about itself. */
#include "tokenizer.h"
#include "bpe.h"
#include "../io/tensors.h"

/* ---- making --------------------------------------------------------------------------------------------------------------- */

static heed_status check_settings(heed_context *context, const hd_tokenizer_spec *spec) {
  const hd_tokenizer_settings *settings = &spec->settings;
  const struct {
    const char *name;
    int32_t id;
  } special[] = {{"begin", settings->bos}, {"end", settings->eos}, {"unknown", settings->unknown}};
  for (int64_t i = 0; i < HD_COUNT(special); i++)
    HD_REQUIRE(special[i].id >= -1 && special[i].id < spec->token_count, context, HEED_E_FORMAT,
               "%s: the %s token is not in the vocabulary (got %d, allowed 0 to %lld)", spec->file, special[i].name, (int)special[i].id,
               (long long)spec->token_count - 1);
  return HEED_OK;
}

/* The patterns outlive the file that they come from: who saves the tokenizer writes them again. */
static heed_status build_splitter(heed_context *context, const hd_tokenizer_spec *spec, heed_tokenizer *tokenizer) {
  hd_pre_tokenizer kept = *spec->pre_tokenizer;
  for (int i = 0; i < kept.count; i++) {
    char *copy;
    HD_TRY(hd_arena_text(&tokenizer->arena, context, kept.pattern[i], strlen(kept.pattern[i]), &copy));
    kept.pattern[i] = copy;
  }
  return hd_splitter_init(context, &tokenizer->splitter, &kept, spec->file);
}

static heed_status build(heed_context *context, const hd_tokenizer_spec *spec, heed_tokenizer *tokenizer) {
  tokenizer->settings = spec->settings;
  HD_TRY(hd_vocabulary_build(context, &tokenizer->arena, spec, &tokenizer->vocabulary));
  HD_TRY(check_settings(context, spec));
  if (!spec->settings.scored) HD_TRY(hd_pairs_build(context, &tokenizer->arena, spec, &tokenizer->vocabulary, &tokenizer->pairs));
  return spec->pre_tokenizer ? build_splitter(context, spec, tokenizer) : HEED_OK;
}

heed_status hd_tokenizer_new(heed_context *context, const hd_tokenizer_spec *spec, heed_tokenizer **out) {
  hd_arena arena;
  heed_tokenizer *tokenizer;
  *out = NULL;
  hd_arena_init(&arena, context);
  HD_TRY(hd_arena_allocate(&arena, context, "a tokenizer", 1, sizeof *tokenizer, &tokenizer));
  tokenizer->arena = arena;
  heed_status status = build(context, spec, tokenizer);
  if (status == HEED_OK) *out = tokenizer;
  else heed_tokenizer_free(tokenizer);
  return status;
}

void heed_tokenizer_free(heed_tokenizer *tokenizer) {
  if (!tokenizer) return;
  hd_splitter_free(&tokenizer->splitter);
  hd_arena arena = tokenizer->arena; // the tokenizer itself lies in it
  hd_arena_free(&arena);
}

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

/* DIRECTORY/tokenizer.json, or else DIRECTORY/vocab.txt, where the directory is the first `length` bytes of path (0: the current one). */
static heed_status load_from_directory(heed_context *context, const char *path, size_t length, heed_tokenizer **out) {
  static const char name[] = "tokenizer.json", words[] = "vocab.txt"; // the first is the longer one
  char *file;
  int64_t bytes = (int64_t)(length + sizeof name + 1);
  heed_status status;
  HD_TRY(hd_allocate(context, "a path", bytes, 1, &file));
  memcpy(file, path, length);
  if (length > 0 && path[length - 1] != '/') file[length++] = '/';
  memcpy(file + length, words, sizeof words);
  const bool has_words = hd_file_exists(file);
  memcpy(file + length, name, sizeof name);
  if (hd_file_exists(file)) status = hd_tokenizer_load_json(context, file, out);
  else if (!has_words) status = hd_fail(context, HEED_E_FILE, "%s: there is no tokenizer here (looked for %s)", path, file);
  else {
    memcpy(file + length, words, sizeof words);
    status = hd_tokenizer_load_words(context, file, out);
  }
  hd_release(context, file, bytes, 1);
  return status;
}

/* Whether the path names another part of a model directory than its tokenizer: weights, their index, a configuration. */
static bool is_beside_tokenizer(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  return hd_ends_with(name, ".safetensors") || hd_ends_with(name, ".index.json") ||
         (strncmp(name, "config", 6) == 0 && hd_ends_with(name, ".json"));
}

heed_status heed_tokenizer_load(heed_context *context, const char *path, heed_tokenizer **out) {
  if (!context || !path || !out) return hd_fail(context, HEED_E_ARGUMENT, "heed_tokenizer_load: context, path and out must not be null");
  *out = NULL;
  if (hd_is_directory(path)) return load_from_directory(context, path, strlen(path), out);
  if (is_beside_tokenizer(path)) {
    const char *slash = strrchr(path, '/');
    return load_from_directory(context, path, slash ? (size_t)(slash - path) + 1 : 0, out);
  }
  if (hd_ends_with(path, ".json")) return hd_tokenizer_load_json(context, path, out);
  if (hd_ends_with(path, ".txt")) return hd_tokenizer_load_words(context, path, out);
  hd_tensors *tensors;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  heed_status status = hd_tokenizer_load_gguf(context, tensors, out);
  hd_tensors_close(tensors);
  return status;
}

/* ---- questions ------------------------------------------------------------------------------------------------------------ */

int32_t hd_tokenizer_special(const heed_tokenizer *tokenizer, hd_role role) {
  static const char *const names[][2] = {[HD_ROLE_MASK] = {"[MASK]", "<mask>"},
                                         [HD_ROLE_PAD] = {"[PAD]", "<pad>"},
                                         [HD_ROLE_CLASS] = {"[CLS]", "<s>"},
                                         [HD_ROLE_SEPARATOR] = {"[SEP]", "</s>"}};
  for (int i = 0; i < 2; i++) {
    int32_t id = hd_vocabulary_find(&tokenizer->vocabulary, names[role][i], strlen(names[role][i]));
    if (id >= 0 && hd_token_is_special(&tokenizer->vocabulary, id)) return id;
  }
  return -1;
}

heed_status heed_tokenizer_describe(const heed_tokenizer *tokenizer, heed_tokenizer_info *info) {
  if (!tokenizer || !info || info->size < sizeof info->size) return HEED_E_ARGUMENT;
  static const char *const kinds[] = {[HD_SPELLS_MARKS] = "SentencePiece BPE",
                                      [HD_SPELLS_BYTES] = "byte-level BPE",
                                      [HD_SPELLS_PLAIN] = "characters",
                                      [HD_SPELLS_WORDS] = "WordPiece"};
  const hd_tokenizer_settings *settings = &tokenizer->settings;
  heed_tokenizer_info full = {
      .size = info->size,
      .kind = kinds[settings->spelling],
      .pre_tokenizer = tokenizer->splitter.name ? tokenizer->splitter.name : "none",
      .vocabulary = tokenizer->vocabulary.count,
      .bos = settings->bos,
      .eos = settings->eos,
      .unknown = settings->unknown,
      .adds_bos = settings->before_count > 0,
      .adds_eos = settings->after_count > 0,
      .mask = hd_tokenizer_special(tokenizer, HD_ROLE_MASK),
      .pad = hd_tokenizer_special(tokenizer, HD_ROLE_PAD),
      .before = settings->before,
      .after = settings->after,
      .before_count = settings->before_count,
      .after_count = settings->after_count,
  };
  memcpy(info, &full, HD_MIN(info->size, sizeof full));
  return HEED_OK;
}

static bool has_token(const heed_tokenizer *tokenizer, int32_t id) { return tokenizer && id >= 0 && id < tokenizer->vocabulary.count; }

heed_text heed_token_text(const heed_tokenizer *tokenizer, int32_t id) {
  return has_token(tokenizer, id) ? hd_vocabulary_text(&tokenizer->vocabulary, id) : (heed_text){"", 0};
}

bool heed_token_is_special(const heed_tokenizer *tokenizer, int32_t id) {
  return has_token(tokenizer, id) && hd_token_is_special(&tokenizer->vocabulary, id);
}

int32_t heed_token_find(const heed_tokenizer *tokenizer, heed_text name) {
  if (!tokenizer || !name.data || name.length == 0) return -1;
  int32_t id = hd_vocabulary_find(&tokenizer->vocabulary, name.data, name.length);
  if (id >= 0) return id;
  int byte = hd_byte_token(name);
  return byte >= 0 && tokenizer->settings.spelling == HD_SPELLS_MARKS ? tokenizer->vocabulary.byte[byte] : -1;
}
