/* json_steps.c: the steps that a tokenizer.json puts around its model: normalizer, pre_tokenizer, decoder, post_processor.
 *
 * Each is a tree of typed objects. They are flattened by one walker and looked up in a table a step; a type that is in no table is refused by name, because ids that are
 * almost right are worse than none. */
#include "load_json.h"
#include "wordpiece.h"
#include "bpe.h"

#include <stdio.h>

/* What the tree says, gathered. */
typedef struct steps {
  hd_json_source *source;
  hd_tokenizer_settings *settings;
  bool byte_level, byte_prefix, marks, metaspace, bert_normalizer, bert_cuts;
} steps;

/* One element of a step: its object, with "pre_tokenizer" or the like as the place. */
typedef heed_status (*step_reader)(steps *s, const hd_json_place *place);
typedef struct step_kind {
  const char *type;
  step_reader read;
} step_kind;
typedef struct step {
  const char *key;      /* in the document */
  const char *sequence; /* the key of the array in a "Sequence" */
  const step_kind *kinds;
  int64_t count;
} step;

static heed_status unsupported(const hd_json_place *place, const char *key, heed_text got, const char *known) {
  char quoted[HD_QUOTE_LENGTH];
  return hd_fail(place->context, HEED_E_UNSUPPORTED, "%s: %s.%s: heed does not know this (got \"%s\", known: %s)", place->file, place->part,
                 key, hd_quote(got, quoted), known);
}

static heed_status unknown_type(const step *which, const hd_json_place *place, heed_text type) {
  char known[256] = "Sequence";
  for (int64_t i = 0; i < which->count; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, ", %s", which->kinds[i].type);
  }
  return unsupported(place, "type", type, known);
}

/* Visits the elements in order; sequences may hold sequences as deep as the JSON door allows. */
static heed_status walk(steps *s, const step *which, const hd_json_place *place) {
  heed_text type;
  HD_TRY(hd_json_text(place, "type", &type));
  for (int64_t i = 0; i < which->count; i++)
    if (hd_text_is(type, which->kinds[i].type)) return which->kinds[i].read(s, place);
  if (!hd_text_is(type, "Sequence")) return unknown_type(which, place, type);
  const json_t *elements;
  HD_TRY(hd_json_array(place, which->sequence, &elements));
  for (size_t i = 0; i < json_array_size(elements); i++) {
    const json_t *element = json_array_get(elements, i);
    HD_REQUIRE(json_is_object(element), place->context, HEED_E_FORMAT, "%s: %s.%s: element %zu is not an object", place->file, place->part,
               which->sequence, i);
    HD_TRY(walk(s, which, &(hd_json_place){place->context, place->file, place->part, element}));
  }
  return HEED_OK;
}

static heed_status read_step(steps *s, const step *which) {
  hd_json_place place;
  if (!hd_json_has(&s->source->top, which->key)) return HEED_OK;
  HD_TRY(hd_json_object(&s->source->top, which->key, &place));
  return walk(s, which, &place);
}

static heed_status ignore(steps *s, const hd_json_place *place) {
  (void)s;
  (void)place;
  return HEED_OK;
}

/* {"String": TEXT} or {"Regex": TEXT}: the text under the kind that is wanted; empty if it is the other. */
static heed_status read_pattern(const hd_json_place *place, const char *kind, heed_text *out) {
  hd_json_place pattern;
  HD_TRY(hd_json_object(place, "pattern", &pattern));
  return hd_json_text_or(&pattern, kind, "", out);
}

/* A key that may have one value only. */
static heed_status only(const hd_json_place *place, const char *key, const char *allowed) {
  heed_text text;
  HD_TRY(hd_json_text(place, key, &text));
  return hd_text_is(text, allowed) ? HEED_OK : unsupported(place, key, text, allowed);
}

/* ---- normalizer ----------------------------------------------------------------------------------------------------------- */

static heed_status read_form(steps *s, const hd_json_place *place) {
  static const char *const names[] = {[HD_NFC] = "NFC", [HD_NFD] = "NFD", [HD_NFKC] = "NFKC", [HD_NFKD] = "NFKD"};
  heed_text type;
  HD_TRY(hd_json_text(place, "type", &type));
  if (s->settings->form != HD_AS_IS) return unsupported(place, "type", type, "one Unicode normal form");
  for (int form = HD_NFC; form < HD_COUNT(names); form++)
    if (hd_text_is(type, names[form])) s->settings->form = (hd_normal_form)form;
  return HEED_OK;
}

static heed_status read_prepend(steps *s, const hd_json_place *place) {
  HD_TRY(only(place, "prepend", HD_SPACE_MARK));
  s->settings->prefix = HD_PREFIX_EVERY;
  return HEED_OK;
}

static heed_status read_replace(steps *s, const hd_json_place *place) {
  heed_text pattern;
  HD_TRY(read_pattern(place, "String", &pattern));
  if (!hd_text_is(pattern, " ")) return unsupported(place, "pattern", pattern, "a space by " HD_SPACE_MARK);
  HD_TRY(only(place, "content", HD_SPACE_MARK));
  s->marks = true;
  return HEED_OK;
}

/* strip_accents null: as lowercase. */
static heed_status read_bert(steps *s, const hd_json_place *place) {
  hd_bert_settings *bert = &s->settings->bert;
  HD_TRY(hd_json_bool_or(place, "clean_text", true, &bert->cleans));
  HD_TRY(hd_json_bool_or(place, "handle_chinese_chars", true, &bert->cuts_chinese));
  HD_TRY(hd_json_bool_or(place, "lowercase", true, &bert->lowers));
  HD_TRY(hd_json_bool_or(place, "strip_accents", bert->lowers, &bert->strips_accents));
  s->bert_normalizer = true;
  return HEED_OK;
}

static heed_status read_bert_cuts(steps *s, const hd_json_place *place) {
  (void)place;
  s->bert_cuts = true;
  return HEED_OK;
}

static const step_kind normalizers[] = {{"NFC", read_form},           {"NFD", read_form},        {"NFKC", read_form},
                                        {"NFKD", read_form},          {"Prepend", read_prepend}, {"Replace", read_replace},
                                        {"BertNormalizer", read_bert}};

/* ---- pre_tokenizer -------------------------------------------------------------------------------------------------------- */

static heed_status add_cut(steps *s, const hd_json_place *place, const char *pattern, bool drops_rest) {
  hd_pre_tokenizer *cuts = &s->source->pre_tokenizer;
  HD_REQUIRE(!s->byte_level && !s->metaspace, place->context, HEED_E_UNSUPPORTED,
             "%s: %s: heed knows ByteLevel and Metaspace only as the last element", place->file, place->part);
  HD_REQUIRE(cuts->count < HD_MAX_PATTERNS, place->context, HEED_E_UNSUPPORTED, "%s: %s: too many patterns (allowed %d)", place->file,
             place->part, HD_MAX_PATTERNS);
  cuts->drops_rest[cuts->count] = drops_rest;
  cuts->pattern[cuts->count++] = pattern;
  return HEED_OK;
}

static heed_status read_split(steps *s, const hd_json_place *place) {
  heed_text pattern, text, behavior;
  bool invert;
  HD_TRY(read_pattern(place, "Regex", &pattern));
  HD_TRY(read_pattern(place, "String", &text));
  HD_TRY(hd_json_text(place, "behavior", &behavior));
  HD_TRY(hd_json_bool_or(place, "invert", false, &invert));
  // After a normalizer that replaces every space there is none to split at.
  if (s->marks && hd_text_is(text, " ")) return HEED_OK;
  if (pattern.length == 0) return unsupported(place, "pattern", text, "a Regex");
  bool removes = hd_text_is(behavior, "Removed") && invert;
  if (!removes && !hd_text_is(behavior, "Isolated")) return unsupported(place, "behavior", behavior, "Isolated; Removed, inverted");
  return add_cut(s, place, pattern.data, removes);
}

static heed_status read_digits(steps *s, const hd_json_place *place) {
  bool each;
  HD_TRY(hd_json_bool_or(place, "individual_digits", false, &each));
  return add_cut(s, place, each ? hd_pattern_digit : hd_pattern_digits, false);
}

static heed_status read_byte_level(steps *s, const hd_json_place *place) {
  bool prefix, cuts;
  HD_TRY(hd_json_bool(place, "add_prefix_space", &prefix));
  HD_TRY(hd_json_bool_or(place, "use_regex", true, &cuts));
  // The space would go in front of every piece that an earlier pattern has cut.
  HD_REQUIRE(!prefix || s->source->pre_tokenizer.count == 0, place->context, HEED_E_UNSUPPORTED,
             "%s: %s.add_prefix_space: heed does not do this after other patterns (got true, allowed false)", place->file, place->part);
  if (cuts) HD_TRY(add_cut(s, place, hd_pattern_gpt2, false));
  s->byte_level = true;
  s->byte_prefix = prefix;
  return HEED_OK;
}

/* Newer files say prepend_scheme, older ones add_prefix_space. */
static heed_status read_scheme(const hd_json_place *place, hd_prefix *out) {
  bool prefix;
  heed_text scheme;
  HD_TRY(hd_json_bool_or(place, "add_prefix_space", true, &prefix));
  HD_TRY(hd_json_text_or(place, "prepend_scheme", prefix ? "always" : "never", &scheme));
  if (hd_text_is(scheme, "always")) *out = HD_PREFIX_UNLESS_SPACE;
  else if (hd_text_is(scheme, "first")) *out = HD_PREFIX_FIRST;
  else if (hd_text_is(scheme, "never")) *out = HD_PREFIX_NEVER;
  else return unsupported(place, "prepend_scheme", scheme, "always, first, never");
  return HEED_OK;
}

static heed_status read_metaspace(steps *s, const hd_json_place *place) {
  HD_REQUIRE(s->source->pre_tokenizer.count == 0 && !s->byte_level && s->settings->prefix == HD_PREFIX_NEVER, place->context,
             HEED_E_UNSUPPORTED, "%s: %s: heed knows Metaspace only alone", place->file, place->part);
  HD_TRY(only(place, "replacement", HD_SPACE_MARK));
  HD_TRY(read_scheme(place, &s->settings->prefix));
  HD_TRY(hd_json_bool_or(place, "split", true, &s->settings->cut_at_spaces));
  s->metaspace = s->marks = true;
  return HEED_OK;
}

static const step_kind pre_tokenizers[] = {{"ByteLevel", read_byte_level},
                                           {"Digits", read_digits},
                                           {"Metaspace", read_metaspace},
                                           {"Split", read_split},
                                           {"BertPreTokenizer", read_bert_cuts}};

/* ---- decoder -------------------------------------------------------------------------------------------------------------- */

static heed_status read_unmark(steps *s, const hd_json_place *place) {
  heed_text pattern;
  (void)s;
  HD_TRY(read_pattern(place, "String", &pattern));
  if (!hd_text_is(pattern, HD_SPACE_MARK)) return unsupported(place, "pattern", pattern, HD_SPACE_MARK " by a space");
  return only(place, "content", " ");
}

static heed_status read_strip(steps *s, const hd_json_place *place) {
  int64_t start, stop;
  HD_TRY(only(place, "content", " "));
  HD_TRY(hd_json_integer(place, "start", 0, 1, &start));
  HD_TRY(hd_json_integer(place, "stop", 0, 0, &stop));
  if (start == 1) s->settings->strips_space = true;
  return HEED_OK;
}

static heed_status read_metaspace_decoder(steps *s, const hd_json_place *place) {
  hd_prefix scheme;
  HD_TRY(only(place, "replacement", HD_SPACE_MARK));
  HD_TRY(read_scheme(place, &scheme));
  if (scheme != HD_PREFIX_NEVER) s->settings->strips_space = true;
  return HEED_OK;
}

static heed_status read_words_decoder(steps *s, const hd_json_place *place) {
  if (!s->source->words) return unsupported(place, "type", hd_text_of("WordPiece"), "the decoder of a WordPiece model");
  return hd_json_has(place, "prefix") ? only(place, "prefix", HD_WORD_GOES_ON) : HEED_OK;
}

static const step_kind decoders[] = {{"ByteFallback", ignore},
                                     {"ByteLevel", ignore},
                                     {"Fuse", ignore},
                                     {"Metaspace", read_metaspace_decoder},
                                     {"Replace", read_unmark},
                                     {"Strip", read_strip},
                                     {"WordPiece", read_words_decoder}};

/* ---- post_processor ------------------------------------------------------------------------------------------------------- */

/* The ids of a special token of the template, appended to ids. */
static heed_status template_ids(const hd_json_place *specials, heed_text name, int64_t token_count, int32_t ids[HD_MAX_AROUND],
                                int *count) {
  hd_json_place special;
  const json_t *list;
  HD_TRY(hd_json_object(specials, name.data, &special));
  HD_TRY(hd_json_array(&special, "ids", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    bool valid = json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < token_count;
    if (!valid || *count == HD_MAX_AROUND)
      return hd_json_wrong(&special, "ids", valid ? "too many tokens around a text" : "must be ids of the vocabulary");
    ids[(*count)++] = (int32_t)json_integer_value(id);
  }
  return HEED_OK;
}

static heed_status read_template(steps *s, const hd_json_place *place) {
  const json_t *single;
  hd_json_place specials, piece;
  heed_text name;
  bool text_seen = false;
  hd_tokenizer_settings *settings = s->settings;
  HD_TRY(hd_json_array(place, "single", &single));
  for (size_t i = 0; i < json_array_size(single); i++) {
    hd_json_place element = {place->context, place->file, "post_processor.single", json_array_get(single, i)};
    if (hd_json_has(&element, "Sequence")) {
      if (text_seen) return hd_json_wrong(place, "single", "must hold the text once");
      text_seen = true;
      continue;
    }
    HD_TRY(hd_json_object(&element, "SpecialToken", &piece));
    HD_TRY(hd_json_text(&piece, "id", &name));
    HD_TRY(hd_json_object(place, "special_tokens", &specials));
    HD_TRY(text_seen ? template_ids(&specials, name, s->source->token_count, settings->after, &settings->after_count)
                     : template_ids(&specials, name, s->source->token_count, settings->before, &settings->before_count));
  }
  if (!text_seen) return hd_json_wrong(place, "single", "must hold the text once");
  s->source->has_template = true;
  return HEED_OK;
}

/* ["[SEP]", 102] */
static heed_status read_around(steps *s, const hd_json_place *place, const char *key, int32_t ids[HD_MAX_AROUND], int *count) {
  const json_t *pair;
  HD_TRY(hd_json_array(place, key, &pair));
  const json_t *id = json_array_get(pair, 1);
  if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= s->source->token_count)
    return hd_json_wrong(place, key, "must be a token and its id");
  ids[(*count)++] = (int32_t)json_integer_value(id);
  return HEED_OK;
}

static heed_status read_bert_frame(steps *s, const hd_json_place *place) {
  hd_tokenizer_settings *settings = s->settings;
  settings->before_count = settings->after_count = 0;
  HD_TRY(read_around(s, place, "cls", settings->before, &settings->before_count));
  HD_TRY(read_around(s, place, "sep", settings->after, &settings->after_count));
  s->source->has_template = true;
  return HEED_OK;
}

static const step_kind post_processors[] = {
    {"ByteLevel", ignore}, {"TemplateProcessing", read_template}, {"BertProcessing", read_bert_frame}};

/* ---- all of them ---------------------------------------------------------------------------------------------------------- */

static const step all_steps[] = {
    {"normalizer", "normalizers", normalizers, HD_COUNT(normalizers)},
    {"pre_tokenizer", "pretokenizers", pre_tokenizers, HD_COUNT(pre_tokenizers)},
    {"decoder", "decoders", decoders, HD_COUNT(decoders)},
    {"post_processor", "processors", post_processors, HD_COUNT(post_processors)},
};

/* Whether characters stand for themselves: nothing rewrites or cuts the text, and decoding puts tokens side by side. */
static bool is_plain(const hd_json_source *source, const hd_tokenizer_settings *settings) {
  const json_t *decoder = json_object_get(source->top.object, "decoder");
  const char *type = json_string_value(json_object_get(decoder, "type"));
  return type && strcmp(type, "Fuse") == 0 && source->pre_tokenizer.count == 0 && settings->prefix == HD_PREFIX_NEVER &&
         !settings->byte_fallback;
}

heed_status hd_json_steps(hd_json_source *source, hd_tokenizer_spec *spec) {
  hd_tokenizer_settings *settings = &spec->settings;
  steps s = {.source = source, .settings = settings};
  for (int64_t i = 0; i < HD_COUNT(all_steps); i++) HD_TRY(read_step(&s, &all_steps[i]));
  HD_REQUIRE(source->words == s.bert_normalizer && source->words == s.bert_cuts, source->context, HEED_E_UNSUPPORTED,
             "%s: heed knows WordPiece only with BertNormalizer and BertPreTokenizer, and those only with it", source->file);
  if (source->words) {
    HD_REQUIRE(!s.byte_level && !s.marks && settings->form == HD_AS_IS && source->pre_tokenizer.count == 0, source->context,
               HEED_E_UNSUPPORTED, "%s: heed knows BertNormalizer and BertPreTokenizer only alone", source->file);
    settings->spelling = HD_SPELLS_WORDS;
    settings->strips_space = true;
    return HEED_OK;
  }
  HD_REQUIRE(s.byte_level ? !s.marks : s.marks || is_plain(source, settings), source->context, HEED_E_UNSUPPORTED,
             "%s: a BPE model whose text is spelled in a way that heed does not know (known: ByteLevel, " HD_SPACE_MARK
             " for spaces, or neither with the decoder Fuse)",
             source->file);
  HD_REQUIRE(!s.byte_level || settings->prefix == HD_PREFIX_NEVER, source->context, HEED_E_UNSUPPORTED,
             "%s: normalizer: heed does not know Prepend with ByteLevel", source->file);
  settings->spelling = s.byte_level ? HD_SPELLS_BYTES : s.marks ? HD_SPELLS_MARKS : HD_SPELLS_PLAIN;
  if (s.byte_level) {
    if (s.byte_prefix) settings->prefix = HD_PREFIX_UNLESS_SPACE;
    source->pre_tokenizer.name = hd_pre_tokenizer_name(&source->pre_tokenizer);
    spec->pre_tokenizer = &source->pre_tokenizer;
  } else if (s.marks && !hd_json_has(&source->top, "decoder")) {
    settings->strips_space = settings->prefix != HD_PREFIX_NEVER;
  }
  return HEED_OK;
}
