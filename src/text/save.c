/* save.c: a tokenizer as the tokenizer.json and tokenizer_config.json that load_json.c and Hugging Face's libraries read: what json_steps.c takes apart is put together here. */
#include "bpe.h"
#include "wordpiece.h"
#include "../io/json.h"

#include <stdio.h>

typedef struct saving {
  heed_context *context;
  const heed_tokenizer *tokenizer;
  char *spelled; /* the spelling of one token */
  int64_t room;
} saving;

static heed_status out_of_memory(heed_context *context) { return hd_fail(context, HEED_E_MEMORY, "out of memory: a tokenizer as JSON"); }

/* ---- tokens and merges ------------------------------------------------------------------------------------------------------ */

/* The token's name in the file, until the next call. */
static const char *spell(const saving *s, int32_t id) {
  static size_t (*const kinds[])(heed_text, char *) = {[HD_SPELLS_MARKS] = hd_spm_spell,
                                                       [HD_SPELLS_BYTES] = hd_bpe_spell,
                                                       [HD_SPELLS_PLAIN] = hd_plain_spell,
                                                       [HD_SPELLS_WORDS] = hd_wordpiece_spell};
  const hd_vocabulary *vocabulary = &s->tokenizer->vocabulary;
  const heed_text text = hd_vocabulary_text(vocabulary, id);
  const bool ordinary = vocabulary->kind[id] == HD_NORMAL;
  if (vocabulary->kind[id] == HD_BYTE) {
    snprintf(s->spelled, (size_t)s->room, "<0x%02X>", (unsigned)(unsigned char)text.data[0]);
    return s->spelled;
  }
  s->spelled[(ordinary ? kinds[s->tokenizer->settings.spelling] : hd_plain_spell)(text, s->spelled)] = 0;
  return s->spelled;
}

static heed_status add_vocabulary(const saving *s, json_t *tokens) {
  const hd_vocabulary *vocabulary = &s->tokenizer->vocabulary;
  char quoted[HD_QUOTE_LENGTH];
  for (int32_t id = 0; id < vocabulary->count; id++) {
    const char *name = spell(s, id);
    HD_REQUIRE(!json_object_get(tokens, name), s->context, HEED_E_UNSUPPORTED,
               "a tokenizer.json cannot hold two tokens of one name (got \"%s\" for %d and before)", hd_quote(hd_text_of(name), quoted),
               (int)id);
    if (json_object_set_new(tokens, name, json_integer(id)) != 0) return out_of_memory(s->context);
  }
  return HEED_OK;
}

static heed_status add_merges(const saving *s, json_t *merges) {
  const hd_pairs *pairs = &s->tokenizer->pairs;
  const int64_t count = hd_pairs_count(pairs);
  heed_status status = HEED_OK;
  hd_pair *sorted;
  HD_TRY(hd_allocate(s->context, "merges", count, sizeof *sorted, &sorted));
  hd_pairs_list(pairs, sorted);
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    json_t *parts = json_array();
    bool added = json_array_append_new(parts, json_string(spell(s, sorted[i].left))) == 0 &&
                 json_array_append_new(parts, json_string(spell(s, sorted[i].right))) == 0;
    if (json_array_append_new(merges, parts) != 0 || !added) status = out_of_memory(s->context);
  }
  hd_release(s->context, sorted, count, sizeof *sorted);
  return status;
}

static heed_status add_named(const saving *s, json_t *added) {
  const hd_vocabulary *vocabulary = &s->tokenizer->vocabulary;
  for (int32_t id = 0; id < vocabulary->count; id++) {
    const bool special = hd_token_is_special(vocabulary, id);
    if (!special && vocabulary->kind[id] != HD_USER) continue;
    json_t *token = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", spell(s, id), "single_word", 0, "lstrip",
                              vocabulary->eats[id] & HD_EATS_LEFT ? 1 : 0, "rstrip", vocabulary->eats[id] & HD_EATS_RIGHT ? 1 : 0,
                              "normalized", 0, "special", (int)special);
    if (json_array_append_new(added, token) != 0) return out_of_memory(s->context);
  }
  return HEED_OK;
}

/* ---- the steps around the model --------------------------------------------------------------------------------------------- */

static json_t *byte_level(bool prefix, bool cuts) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", (int)prefix, "trim_offsets", 1, "use_regex", (int)cuts);
}

/* A list under `key` of a "Sequence"; takes the list over. NULL is memory that ran out, in an element too. */
static json_t *sequence(const char *key, json_t *list, bool complete) {
  json_t *out = json_pack("{s:s, s:o}", "type", "Sequence", key, list);
  if (complete) return out;
  json_decref(out);
  return NULL;
}

static json_t *replace(const char *from, const char *to) {
  return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content", to);
}

/* SentencePiece's dummy prefix is a normalizer; the other prefixes are a part of Metaspace. */
static json_t *normalizer(const hd_tokenizer_settings *settings) {
  const hd_bert_settings *bert = &settings->bert;
  if (settings->spelling == HD_SPELLS_WORDS)
    return json_pack("{s:s, s:b, s:b, s:b, s:b}", "type", "BertNormalizer", "clean_text", (int)bert->cleans, "handle_chinese_chars",
                     (int)bert->cuts_chinese, "strip_accents", (int)bert->strips_accents, "lowercase", (int)bert->lowers);
  static const char *const forms[] = {[HD_NFC] = "NFC", [HD_NFD] = "NFD", [HD_NFKC] = "NFKC", [HD_NFKD] = "NFKD"};
  json_t *form = settings->form == HD_AS_IS ? json_null() : json_pack("{s:s}", "type", forms[settings->form]);
  if (settings->spelling != HD_SPELLS_MARKS || settings->prefix != HD_PREFIX_EVERY) return form;
  json_t *list = json_array();
  bool complete = settings->form == HD_AS_IS || json_array_append_new(list, form) == 0;
  complete = json_array_append_new(list, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", HD_SPACE_MARK)) == 0 && complete;
  complete = json_array_append_new(list, replace(" ", HD_SPACE_MARK)) == 0 && complete;
  return sequence("normalizers", list, complete);
}

static json_t *metaspace(const hd_tokenizer_settings *settings) {
  static const char *const schemes[] = {[HD_PREFIX_NEVER] = "never", [HD_PREFIX_FIRST] = "first", [HD_PREFIX_UNLESS_SPACE] = "always"};
  if (settings->prefix == HD_PREFIX_EVERY) return json_null();
  return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", HD_SPACE_MARK, "prepend_scheme", schemes[settings->prefix],
                   "split", (int)settings->cut_at_spaces);
}

/* Each pattern is a Split; GPT-2's own, where it is the last one, is a part of ByteLevel. */
static json_t *splits(const heed_tokenizer *tokenizer) {
  const hd_splitter *splitter = &tokenizer->splitter;
  const int last = splitter->count - 1;
  const bool own = last >= 0 && !splitter->drops_rest[last] && strcmp(splitter->pattern[last], hd_pattern_gpt2) == 0;
  json_t *bytes = byte_level(tokenizer->settings.prefix != HD_PREFIX_NEVER, own), *list = json_array();
  const int count = splitter->count - own;
  bool complete = true;
  if (count == 0) {
    json_decref(list);
    return bytes;
  }
  for (int i = 0; i < count; i++) {
    const bool drops = splitter->drops_rest[i];
    json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", splitter->pattern[i], "behavior",
                              drops ? "Removed" : "Isolated", "invert", (int)drops);
    complete = json_array_append_new(list, split) == 0 && complete;
  }
  complete = json_array_append_new(list, bytes) == 0 && complete;
  return sequence("pretokenizers", list, complete);
}

static json_t *pre_tokenizer(const heed_tokenizer *tokenizer) {
  switch (tokenizer->settings.spelling) {
  case HD_SPELLS_BYTES: return splits(tokenizer);
  case HD_SPELLS_MARKS: return metaspace(&tokenizer->settings);
  case HD_SPELLS_WORDS: return json_pack("{s:s}", "type", "BertPreTokenizer");
  case HD_SPELLS_PLAIN: break;
  }
  return json_null();
}

static json_t *decoder(const hd_tokenizer_settings *settings) {
  if (settings->spelling == HD_SPELLS_BYTES) return byte_level(true, true);
  if (settings->spelling == HD_SPELLS_WORDS)
    return json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", HD_WORD_GOES_ON, "cleanup", 1);
  json_t *fuse = json_pack("{s:s}", "type", "Fuse");
  if (settings->spelling == HD_SPELLS_PLAIN) return fuse;
  json_t *list = json_array();
  bool complete = json_array_append_new(list, replace(HD_SPACE_MARK, " ")) == 0;
  if (settings->byte_fallback) complete = json_array_append_new(list, json_pack("{s:s}", "type", "ByteFallback")) == 0 && complete;
  complete = json_array_append_new(list, fuse) == 0 && complete;
  if (settings->strips_space) {
    json_t *strip = json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0);
    complete = json_array_append_new(list, strip) == 0 && complete;
  }
  return sequence("decoders", list, complete);
}

/* Special tokens around a text, which is "A" (in a pair, the second text is "B"). */
static heed_status add_specials(const saving *s, const int32_t *ids, int count, int type, json_t *pieces, json_t *specials) {
  for (int i = 0; i < count; i++) {
    const char *name = spell(s, ids[i]);
    json_t *piece = json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", name, "type_id", type);
    json_t *special = json_pack("{s:s, s:[i], s:[s]}", "id", name, "ids", (int)ids[i], "tokens", name);
    bool added = json_array_append_new(pieces, piece) == 0;
    if (json_object_set_new(specials, name, special) != 0 || !added) return out_of_memory(s->context);
  }
  return HEED_OK;
}

static heed_status add_sequence(const saving *s, const char *name, int type, json_t *pieces) {
  json_t *piece = json_pack("{s:{s:s, s:i}}", "Sequence", "id", name, "type_id", type);
  return json_array_append_new(pieces, piece) == 0 ? HEED_OK : out_of_memory(s->context);
}

static heed_status add_template(const saving *s, json_t *single, json_t *pair, json_t *specials) {
  const hd_tokenizer_settings *settings = &s->tokenizer->settings;
  json_t *const all[] = {single, pair};
  for (int texts = 1; texts <= 2; texts++) {
    HD_TRY(add_specials(s, settings->before, settings->before_count, 0, all[texts - 1], specials));
    HD_TRY(add_sequence(s, "A", 0, all[texts - 1]));
    if (texts == 2) HD_TRY(add_sequence(s, "B", 1, all[texts - 1]));
    HD_TRY(add_specials(s, settings->after, settings->after_count, texts - 1, all[texts - 1], specials));
  }
  return HEED_OK;
}

static heed_status post_processor(const saving *s, json_t **out) {
  const hd_tokenizer_settings *settings = &s->tokenizer->settings;
  *out = json_null();
  if (settings->before_count == 0 && settings->after_count == 0) return HEED_OK;
  json_t *single = json_array(), *pair = json_array(), *specials = json_object();
  heed_status status = add_template(s, single, pair, specials);
  // json_pack takes over the three, also where it fails.
  *out = json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair, "special_tokens", specials);
  return status == HEED_OK && !*out ? out_of_memory(s->context) : status;
}

/* ---- the files -------------------------------------------------------------------------------------------------------------- */

static json_t *name_of(const saving *s, int32_t id) { return id >= 0 ? json_string(spell(s, id)) : json_null(); }

static json_t *model(const saving *s, json_t *vocabulary, json_t *merges) {
  const hd_tokenizer_settings *settings = &s->tokenizer->settings;
  if (settings->spelling == HD_SPELLS_WORDS) {
    json_decref(merges);
    return json_pack("{s:s, s:o, s:s, s:i, s:o}", "type", "WordPiece", "unk_token", name_of(s, settings->stand_in),
                     "continuing_subword_prefix", HD_WORD_GOES_ON, "max_input_chars_per_word", HD_LONGEST_WORD, "vocab", vocabulary);
  }
  return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                   name_of(s, settings->stand_in), "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   (int)settings->fuse_unknown, "byte_fallback", (int)settings->byte_fallback, "ignore_merges", (int)settings->whole_words,
                   "vocab", vocabulary, "merges", merges);
}

static heed_status build_document(const saving *s, json_t **out) {
  const hd_tokenizer_settings *settings = &s->tokenizer->settings;
  json_t *vocabulary = json_object(), *merges = json_array(), *added = json_array(), *post = NULL;
  heed_status status = vocabulary && merges && added ? HEED_OK : out_of_memory(s->context);
  if (status == HEED_OK) status = add_vocabulary(s, vocabulary);
  if (status == HEED_OK) status = add_merges(s, merges);
  if (status == HEED_OK) status = add_named(s, added);
  if (status == HEED_OK) status = post_processor(s, &post);
  *out = json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding", "added_tokens", added,
                   "normalizer", normalizer(settings), "pre_tokenizer", pre_tokenizer(s->tokenizer), "post_processor", post, "decoder",
                   decoder(settings), "model", model(s, vocabulary, merges));
  return status == HEED_OK && !*out ? out_of_memory(s->context) : status;
}

/* Without it transformers would guess the class from the model's, and add the tokens that class is used to. */
static heed_status build_config(const saving *s, json_t **out) {
  const hd_tokenizer_settings *settings = &s->tokenizer->settings;
  const heed_tokenizer *tokenizer = s->tokenizer;
  *out = json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokenizer_class", "PreTrainedTokenizerFast",
                   "clean_up_tokenization_spaces", 0, "bos_token", name_of(s, settings->bos), "eos_token", name_of(s, settings->eos),
                   "unk_token", name_of(s, settings->unknown), "mask_token", name_of(s, hd_tokenizer_special(tokenizer, HD_ROLE_MASK)),
                   "pad_token", name_of(s, hd_tokenizer_special(tokenizer, HD_ROLE_PAD)), "cls_token",
                   name_of(s, hd_tokenizer_special(tokenizer, HD_ROLE_CLASS)), "sep_token",
                   name_of(s, hd_tokenizer_special(tokenizer, HD_ROLE_SEPARATOR)));
  return *out ? HEED_OK : out_of_memory(s->context);
}

static heed_status write_one(const saving *s, const char *directory, const char *name,
                             heed_status (*build)(const saving *s, json_t **out)) {
  json_t *document = NULL;
  char *path = NULL;
  int64_t room = 0;
  heed_status status;
  HD_TRY_DONE(build(s, &document));
  HD_TRY_DONE(hd_join_path(s->context, directory, name, &path, &room));
  status = hd_json_save(s->context, path, document);
done:
  json_decref(document);
  hd_release(s->context, path, room, 1);
  return status;
}

heed_status heed_tokenizer_save(heed_context *context, const heed_tokenizer *tokenizer, const char *directory) {
  if (!context || !tokenizer || !directory)
    return hd_fail(context, HEED_E_ARGUMENT, "heed_tokenizer_save: context, tokenizer and directory must not be null");
  const hd_vocabulary *vocabulary = &tokenizer->vocabulary;
  HD_REQUIRE(!tokenizer->settings.scored, context, HEED_E_UNSUPPORTED,
             "%s: heed does not write tokenizers that merge by scores (known: those with a list of merges)", directory);
  saving s = {.context = context, .tokenizer = tokenizer};
  for (int64_t id = 0; id < vocabulary->count; id++) s.room = HD_MAX(s.room, (int64_t)vocabulary->begin[id + 1] - vocabulary->begin[id]);
  s.room = 3 * s.room + (int64_t)sizeof "<0x00>";
  HD_TRY(hd_allocate(context, "a token", s.room, 1, &s.spelled));
  heed_status status = write_one(&s, directory, "tokenizer.json", build_document);
  if (status == HEED_OK) status = write_one(&s, directory, "tokenizer_config.json", build_config);
  hd_release(context, s.spelled, s.room, 1);
  return status;
}
