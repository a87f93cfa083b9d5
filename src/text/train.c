/* train.c: tokenizers made from a text: its characters, the 256 bytes, bytes and learned merges (train_bpe.c), or its words (train_words.c). */
#include "train.h"
#include "bpe.h"
#include "utf8.h"
#include "../io/json.h"

#include <stdio.h>

/* ---- what was learned ------------------------------------------------------------------------------------------------------- */

heed_status hd_learned_token(hd_learned *learned, heed_text text) {
  const int64_t length = (int64_t)text.length;
  HD_TRY(hd_grow(learned->context, "token texts", &learned->bytes, &learned->byte_capacity, learned->byte_count + length, 1));
  HD_TRY(hd_grow(learned->context, "tokens", &learned->begin, &learned->capacity, learned->count + 2, sizeof *learned->begin));
  memcpy(learned->bytes + learned->byte_count, text.data, text.length);
  learned->begin[learned->count++] = learned->byte_count;
  learned->begin[learned->count] = learned->byte_count += length;
  return HEED_OK;
}

heed_status hd_learned_merge(hd_learned *learned, int32_t left, int32_t right) {
  HD_TRY(
      hd_grow(learned->context, "merges", &learned->merges, &learned->merge_capacity, learned->merge_count + 1, sizeof *learned->merges));
  learned->merges[learned->merge_count++] = (hd_id_pair){left, right};
  return HEED_OK;
}

void hd_learned_free(hd_learned *learned) {
  hd_release(learned->context, learned->bytes, learned->byte_capacity, 1);
  hd_release(learned->context, learned->begin, learned->capacity, sizeof *learned->begin);
  hd_release(learned->context, learned->merges, learned->merge_capacity, sizeof *learned->merges);
}

/* ---- into a tokenizer ------------------------------------------------------------------------------------------------------- */

static void token_at(const hd_tokenizer_spec *spec, int64_t id, hd_token *out) {
  const hd_learned *learned = spec->source;
  const bool ordinary = id < learned->count;
  const heed_text text = ordinary ? hd_learned_text(learned, id) : hd_text_of(learned->options->special[id - learned->count]);
  *out = (hd_token){.text = text, .kind = ordinary && !(learned->has_unknown && id == 0) ? HD_NORMAL : HD_CONTROL};
}

static heed_status merge_at(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text *left, heed_text *right) {
  const hd_learned *learned = spec->source;
  (void)context;
  *left = hd_learned_text(learned, learned->merges[i].left);
  *right = hd_learned_text(learned, learned->merges[i].right);
  return HEED_OK;
}

/* The same tokens as a file of bytes spells them. */
static heed_status spell(const hd_learned *learned, hd_learned *out) {
  char *text;
  int64_t longest = 0;
  heed_status status = HEED_OK;
  for (int64_t id = 0; id < learned->count; id++) longest = HD_MAX(longest, learned->begin[id + 1] - learned->begin[id]);
  HD_TRY(hd_allocate(learned->context, "a token", longest, 3, &text));
  for (int64_t id = 0; id < learned->count && status == HEED_OK; id++)
    status = hd_learned_token(out, (heed_text){text, hd_bpe_spell(hd_learned_text(learned, id), text)});
  for (int64_t i = 0; i < learned->merge_count && status == HEED_OK; i++)
    status = hd_learned_merge(out, learned->merges[i].left, learned->merges[i].right);
  hd_release(learned->context, text, longest, 3);
  return status;
}

/* The id of a special token; −1: of no name. */
static int32_t special_id(const hd_learned *learned, const char *name) {
  for (int64_t i = 0; name && i < learned->options->special_count; i++)
    if (strcmp(learned->options->special[i], name) == 0) return (int32_t)(learned->count + i);
  return -1;
}

/* The tokenizer of tokens and merges that are spelled already; settings say how text becomes tokens. */
static heed_status build(const hd_learned *learned, const char *kind, hd_tokenizer_settings how, const hd_pre_tokenizer *pre_tokenizer,
                         heed_tokenizer **out) {
  hd_tokenizer_spec spec = {.file = kind,
                            .tokens_place = "tokens",
                            .merges_place = "merges",
                            .settings = how,
                            .pre_tokenizer = pre_tokenizer,
                            .token_count = learned->count + learned->options->special_count,
                            .merge_count = learned->merge_count,
                            .source = learned,
                            .token = token_at,
                            .merge = merge_at};
  const heed_tokenizer_train_options *options = learned->options;
  hd_tokenizer_settings *settings = &spec.settings;
  settings->bos = settings->before[0] = special_id(learned, options->begin);
  settings->eos = settings->after[0] = special_id(learned, options->end);
  settings->before_count = settings->bos >= 0;
  settings->after_count = settings->eos >= 0;
  settings->unknown = settings->stand_in = learned->has_unknown ? 0 : -1;
  HD_REQUIRE((settings->bos >= 0 || !options->begin) && (settings->eos >= 0 || !options->end), learned->context, HEED_E_ARGUMENT,
             "heed_tokenizer_train: what stands around a text must be among the special tokens");
  return hd_tokenizer_new(learned->context, &spec, out);
}

static heed_status build_bytes(const hd_learned *learned, const char *kind, const hd_pre_tokenizer *pre_tokenizer, heed_tokenizer **out) {
  hd_learned spelled = {.context = learned->context, .options = learned->options};
  heed_status status = spell(learned, &spelled);
  if (status == HEED_OK) status = build(&spelled, kind, (hd_tokenizer_settings){.spelling = HD_SPELLS_BYTES}, pre_tokenizer, out);
  hd_learned_free(&spelled);
  return status;
}

/* ---- the kinds -------------------------------------------------------------------------------------------------------------- */

static heed_status require_utf8(heed_context *context, heed_text text, const char *kind) {
  const size_t valid = hd_utf8_valid(text.data, text.length);
  HD_REQUIRE(valid == text.length, context, HEED_E_FORMAT, "%s: the text is not UTF-8 (byte %zu of %zu, got 0x%02X)", kind, valid,
             text.length, (unsigned char)text.data[valid]);
  return HEED_OK;
}

enum { CODES = 0x110000 };

/* Each character once, in ascending order. seen [CODES] is false. */
static heed_status list_characters(hd_learned *learned, heed_text text, bool *seen, const char *kind) {
  uint32_t code;
  for (size_t at = 0; at < text.length;) {
    at += (size_t)hd_utf8_next(text.data + at, text.length - at, &code);
    HD_REQUIRE(code != 0, learned->context, HEED_E_FORMAT,
               "%s: the text has a NUL (byte %zu), which no file of characters can name; byte takes any text", kind, at - 1);
    seen[code] = true;
  }
  for (code = 0; code < CODES; code++) {
    char bytes[4];
    if (seen[code]) HD_TRY(hd_learned_token(learned, (heed_text){bytes, (size_t)hd_utf8_put(code, bytes)}));
  }
  return HEED_OK;
}

static heed_status train_characters(hd_learned *learned, heed_text text, const char *kind, int64_t unused, heed_tokenizer **out) {
  bool *seen;
  (void)unused;
  HD_TRY(require_utf8(learned->context, text, kind));
  HD_REQUIRE(text.length > 0, learned->context, HEED_E_ARGUMENT, "%s: an empty text has no characters", kind);
  HD_TRY(hd_allocate(learned->context, "a set of characters", CODES, sizeof *seen, &seen));
  memset(seen, 0, CODES * sizeof *seen);
  heed_status status = list_characters(learned, text, seen, kind);
  hd_release(learned->context, seen, CODES, sizeof *seen);
  return status == HEED_OK ? build(learned, kind, (hd_tokenizer_settings){.spelling = HD_SPELLS_PLAIN}, NULL, out) : status;
}

static heed_status train_bytes(hd_learned *learned, heed_text text, const char *kind, int64_t unused, heed_tokenizer **out) {
  static const hd_pre_tokenizer whole = {.name = "none"};
  (void)text;
  (void)unused;
  for (int byte = 0; byte < 256; byte++) HD_TRY(hd_learned_token(learned, (heed_text){&(char){(char)byte}, 1}));
  return build_bytes(learned, kind, &whole, out);
}

/* The bytes in the order of the characters that spell them: those visible in Latin-1 first. */
static heed_status add_alphabet(hd_learned *learned) {
  for (int invisible = 0; invisible < 2; invisible++)
    for (int byte = 0; byte < 256; byte++) {
      char text = (char)byte, spelled[3];
      heed_text spelling = {spelled, hd_bpe_spell((heed_text){&text, 1}, spelled)};
      uint32_t code = 0;
      hd_utf8_next(spelling.data, spelling.length, &code);
      if ((code >= 0x100) == invisible) HD_TRY(hd_learned_token(learned, (heed_text){&text, 1}));
    }
  return HEED_OK;
}

static heed_status train_merges(hd_learned *learned, heed_text text, const char *kind, int64_t vocabulary, heed_tokenizer **out) {
  HD_TRY(require_utf8(learned->context, text, kind));
  HD_TRY(add_alphabet(learned));
  HD_TRY(hd_train_bpe(learned, text, vocabulary));
  return build_bytes(learned, kind, hd_pre_tokenizer_named(hd_text_of("gpt2")), out);
}

enum { MOST_VOCABULARY = 1 << 24 }; /* ids are 32-bit, and no model in use comes near */

/* Token 0 stands for words that have none. As text it is three words, so no text has it. */
static heed_status train_words(hd_learned *learned, heed_text text, const char *kind, int64_t vocabulary, heed_tokenizer **out) {
  const heed_tokenizer cutting = {
      .settings = {.spelling = HD_SPELLS_WORDS, .strips_space = true, .bert = {.cleans = true, .cuts_chinese = true}}};
  HD_TRY(require_utf8(learned->context, text, kind));
  learned->has_unknown = true;
  HD_TRY(hd_learned_token(learned, hd_text_of("<unk>")));
  HD_TRY(hd_train_words(learned, &cutting, text, vocabulary > 0 ? vocabulary : MOST_VOCABULARY));
  HD_REQUIRE(learned->count > 1, learned->context, HEED_E_ARGUMENT, "%s: the text has no words", kind);
  return build(learned, kind, cutting.settings, NULL, out);
}

typedef struct kind {
  const char *name;
  int64_t least;    /* of the number behind the name; 0: there is none */
  const char *that; /* is what it is */
  heed_status (*train)(hd_learned *learned, heed_text text, const char *kind, int64_t vocabulary, heed_tokenizer **out);
} kind;

static heed_status read_vocabulary(heed_context *context, const kind *k, const char *text, int64_t *out) {
  *out = 0;
  for (const char *c = text + strlen(k->name); *c; c++)
    *out = *c >= '0' && *c <= '9' && *out <= MOST_VOCABULARY ? 10 * *out + (*c - '0') : INT64_MAX / 16;
  char quoted[HD_QUOTE_LENGTH];
  HD_REQUIRE(*out >= k->least && *out <= MOST_VOCABULARY, context, HEED_E_ARGUMENT,
             "%sN: N must be a whole number from %lld (%s) to %d (got \"%s\")", k->name, (long long)k->least, k->that, MOST_VOCABULARY,
             hd_quote(hd_text_of(text), quoted));
  return HEED_OK;
}

static heed_status read_options(heed_context *context, const heed_tokenizer_train_options *given, heed_tokenizer_train_options *out) {
  *out = (heed_tokenizer_train_options){.size = sizeof *out};
  HD_TRY(hd_options_read(context, "heed_tokenizer_train_options", given, out, sizeof *out));
  HD_REQUIRE(out->special_count >= 0 && out->special_count <= MOST_VOCABULARY && (out->special || out->special_count == 0), context,
             HEED_E_ARGUMENT, "heed_tokenizer_train: special tokens: %lld, without names or not in 0..%d", (long long)out->special_count,
             MOST_VOCABULARY);
  for (int64_t i = 0; i < out->special_count; i++)
    HD_REQUIRE(out->special[i] && out->special[i][0], context, HEED_E_ARGUMENT, "heed_tokenizer_train: special token %lld has no name",
               (long long)i);
  return HEED_OK;
}

heed_status heed_tokenizer_train(heed_context *context, const char *name, heed_text text, const heed_tokenizer_train_options *given,
                                 heed_tokenizer **out) {
  static const kind kinds[] = {{"char", 0, NULL, train_characters},
                               {"byte", 0, NULL, train_bytes},
                               {"bpe:", 256, "a token for each byte", train_merges},
                               {"word:", 1, "a word", train_words},
                               {"word", 0, NULL, train_words}};
  if (!context || !name || !out || (!text.data && text.length > 0))
    return hd_fail(context, HEED_E_ARGUMENT, "heed_tokenizer_train: context, kind, text and out must not be null");
  *out = NULL;
  heed_tokenizer_train_options options;
  HD_TRY(read_options(context, given, &options));
  for (const kind *k = kinds; k < kinds + HD_COUNT(kinds); k++) {
    const size_t length = strlen(k->name);
    int64_t vocabulary = 0;
    if (strncmp(name, k->name, length) != 0 || (k->least == 0 && name[length])) continue;
    if (k->least > 0) HD_TRY(read_vocabulary(context, k, name, &vocabulary));
    hd_learned learned = {.context = context, .options = &options};
    heed_status status = k->train(&learned, text, name, vocabulary, out);
    hd_learned_free(&learned);
    return status;
  }
  char quoted[HD_QUOTE_LENGTH];
  return hd_fail(context, HEED_E_ARGUMENT, "no such kind of tokenizer (got \"%s\", known: char, byte, bpe:N, word, word:N)",
                 hd_quote(hd_text_of(name), quoted));
}
