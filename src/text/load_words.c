/* load_words.c: vocabularies that are a list of tokens, a line each, the line's number its id. A vocab.txt alone, as the first published BERTs have it: what the text goes through stands in
 * the tokenizer_config.json beside it, or is what BERT's own tokenizer does. And OpenNMT's, of which those of characters are tokenizers. */
#include "load_json.h"
#include "utf8.h"

typedef struct words {
  heed_context *context;
  const char *path;
  char *bytes;
  int64_t size, count, room;
  heed_text *tokens;
} words;

static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

static void token_at(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) {
  const words *w = spec->source;
  *out = (hd_token){.text = w->tokens[id], .kind = HD_NORMAL};
  for (int64_t i = 0; i < HD_COUNT(special); i++)
    if (hd_text_is(w->tokens[id], special[i])) out->kind = HD_CONTROL;
}

static int32_t find(const words *w, const char *name) {
  for (int64_t i = 0; i < w->count; i++)
    if (hd_text_is(w->tokens[i], name)) return (int32_t)i;
  return -1;
}

static heed_status read_lines(words *w) {
  HD_TRY(hd_file_load(w->context, w->path, HD_JSON_TOKENIZER_BYTES, &w->bytes, &w->size));
  for (int64_t at = 0; at < w->size;) {
    const char *line = w->bytes + at, *end = memchr(line, '\n', (size_t)(w->size - at));
    int64_t length = end ? end - line : w->size - at;
    at += length + 1;
    if (length > 0 && line[length - 1] == '\r') length--;
    HD_TRY(hd_grow(w->context, "tokens", &w->tokens, &w->room, w->count + 1, sizeof *w->tokens));
    w->tokens[w->count++] = (heed_text){line, (size_t)length};
  }
  return HEED_OK;
}

static heed_status read_config(void *user, const hd_json_place *config) {
  hd_bert_settings *bert = user;
  HD_TRY(hd_json_bool_or(config, "do_lower_case", true, &bert->lowers));
  HD_TRY(hd_json_bool_or(config, "strip_accents", bert->lowers, &bert->strips_accents));
  return hd_json_bool_or(config, "tokenize_chinese_chars", true, &bert->cuts_chinese);
}

/* Saved with two ids, a token would lose one of them. An empty line has an id too, but nothing becomes it. */
static heed_status check_repeats(const words *w, const hd_vocabulary *vocabulary) {
  char quoted[HD_QUOTE_LENGTH];
  for (int64_t id = 0; id < w->count; id++) {
    const heed_text text = hd_vocabulary_text(vocabulary, (int32_t)id);
    const int32_t first = text.length > 0 ? hd_vocabulary_find(vocabulary, text.data, text.length) : (int32_t)id;
    HD_REQUIRE(first == id, w->context, HEED_E_FORMAT, "%s: lines %lld and %lld hold the same token (got \"%s\")", w->path,
               (long long)first + 1, (long long)id + 1, hd_quote(w->tokens[id], quoted));
  }
  return HEED_OK;
}

static heed_status build(words *w, heed_tokenizer **out) {
  hd_tokenizer_spec spec = {.file = w->path,
                            .tokens_place = "tokens",
                            .settings = {.spelling = HD_SPELLS_WORDS, .strips_space = true, .bert = {true, true, true, true}},
                            .source = w,
                            .token = token_at};
  hd_tokenizer_settings *settings = &spec.settings;
  HD_TRY(read_lines(w));
  HD_TRY(hd_tokenizer_config(w->context, w->path, read_config, &settings->bert));
  spec.token_count = w->count;
  settings->unknown = settings->stand_in = find(w, "[UNK]");
  settings->bos = settings->before[0] = find(w, "[CLS]");
  settings->eos = settings->after[0] = find(w, "[SEP]");
  HD_REQUIRE(settings->unknown >= 0 && settings->bos >= 0 && settings->eos >= 0, w->context, HEED_E_FORMAT,
             "%s: no vocabulary of BERT's kind: [UNK], [CLS] or [SEP] is missing", w->path);
  settings->before_count = settings->after_count = 1;
  HD_TRY(hd_tokenizer_new(w->context, &spec, out));
  return check_repeats(w, &(*out)->vocabulary);
}

/* ---- OpenNMT ------------------------------------------------------------------------------------------------------------------------- */

static const char unknown[] = "<unk>"; // no line has it in most files: it is the id behind the last
static const char *const around[] = {"<blank>", "<s>", "</s>", unknown};

static bool is_around(heed_text text) {
  for (int64_t i = 0; i < HD_COUNT(around); i++)
    if (hd_text_is(text, around[i])) return true;
  return false;
}

static void character_at(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) {
  const words *w = spec->source;
  const heed_text text = id < w->count ? w->tokens[id] : hd_text_of(unknown);
  *out = (hd_token){.text = text, .kind = is_around(text) ? HD_CONTROL : HD_NORMAL};
}

/* Whether all other tokens are characters, so that any text can be cut into them without rules that the file does not have. */
static heed_status are_characters(const words *w, bool *all) {
  uint32_t code;
  *all = true;
  for (int64_t id = 0; id < w->count; id++) {
    const heed_text text = w->tokens[id];
    HD_REQUIRE(text.length > 0, w->context, HEED_E_FORMAT, "%s: line %lld is empty", w->path, (long long)id + 1);
    HD_REQUIRE(hd_utf8_valid(text.data, text.length) == text.length, w->context, HEED_E_FORMAT, "%s: line %lld is not UTF-8", w->path,
               (long long)id + 1);
    if (!is_around(text) && (size_t)hd_utf8_next(text.data, text.length, &code) != text.length) *all = false;
  }
  return HEED_OK;
}

static heed_status build_characters(words *w, hd_open_nmt_vocabulary *ids, heed_tokenizer **out) {
  bool all;
  HD_TRY(read_lines(w));
  HD_TRY(are_characters(w, &all));
  const int32_t in_line = find(w, unknown);
  *ids = (hd_open_nmt_vocabulary){.count = w->count + (in_line < 0),
                                  .blank = find(w, "<blank>"),
                                  .begin = find(w, "<s>"),
                                  .end = find(w, "</s>"),
                                  .unknown = in_line < 0 ? (int32_t)w->count : in_line};
  if (!all) return HEED_OK;
  const hd_tokenizer_spec spec = {
      .file = w->path,
      .tokens_place = "tokens",
      .settings = {.spelling = HD_SPELLS_PLAIN, .bos = ids->begin, .eos = ids->end, .unknown = ids->unknown, .stand_in = ids->unknown},
      .token_count = ids->count,
      .source = w,
      .token = character_at};
  HD_TRY(hd_tokenizer_new(w->context, &spec, out));
  return check_repeats(w, &(*out)->vocabulary);
}

/* Gives back what loading took, and after an error the tokenizer too. */
static heed_status finish(words *w, heed_tokenizer **out, heed_status status) {
  if (status != HEED_OK) {
    heed_tokenizer_free(*out);
    *out = NULL;
  }
  hd_release(w->context, w->tokens, w->room, sizeof *w->tokens);
  if (w->bytes) hd_release(w->context, w->bytes, w->size + 1, 1);
  return status;
}

heed_status hd_tokenizer_load_open_nmt(heed_context *context, const char *path, hd_open_nmt_vocabulary *ids, heed_tokenizer **out) {
  words w = {.context = context, .path = path};
  *out = NULL;
  return finish(&w, out, build_characters(&w, ids, out));
}

heed_status hd_tokenizer_load_words(heed_context *context, const char *path, heed_tokenizer **out) {
  words w = {.context = context, .path = path};
  *out = NULL;
  return finish(&w, out, build(&w, out));
}
