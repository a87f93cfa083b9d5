/* encode.c: text to ids: named tokens are cut out first; what lies between is normalised, cut into pieces, and each piece is merged on its own. */
#include "bpe.h"
#include "utf8.h"
#include "wordpiece.h"

#include <utf8proc.h>

typedef struct encoder {
  heed_context *context;
  const heed_tokenizer *tokenizer;
  bool parse_special;
  const char *text_begin; /* of the caller's text */
  hd_merger merger;
  hd_split_session split; /* byte-level only */
  char *section;          /* a normalised section */
  int64_t section_capacity;
  int32_t *ids;
  int64_t count, capacity;
  bool after_unknown;       /* the id before is an unknown character of this piece */
  int64_t done, text_bytes; /* of the pieces so far, of the caller's text */
} encoder;

/* Bytes between two reports: texts below are encoded at once. */
enum { REPORT_BYTES = 1 << 20 };

static heed_status push_id(encoder *e, int32_t id) {
  HD_TRY(hd_grow(e->context, "token ids", &e->ids, &e->capacity, e->count + 1, sizeof *e->ids));
  e->ids[e->count++] = id;
  return HEED_OK;
}

/* ---- pieces --------------------------------------------------------------------------------------------------------------- */

static bool has_byte_tokens(const hd_vocabulary *vocabulary, heed_text text) {
  for (size_t i = 0; i < text.length; i++)
    if (vocabulary->byte[(unsigned char)text.data[i]] < 0) return false;
  return true;
}

/* A symbol that no token stands for: its bytes, the token for unknown text, or nothing. */
static heed_status push_unknown(encoder *e, heed_text text) {
  const hd_tokenizer_settings *settings = &e->tokenizer->settings;
  // Files spell a space as "▁", so that is what falls back to bytes.
  if (settings->spelling == HD_SPELLS_MARKS && text.length == 1 && text.data[0] == ' ')
    text = (heed_text){HD_SPACE_MARK, HD_SPACE_MARK_BYTES};
  if (settings->byte_fallback && has_byte_tokens(&e->tokenizer->vocabulary, text)) {
    for (size_t i = 0; i < text.length; i++) HD_TRY(push_id(e, e->tokenizer->vocabulary.byte[(unsigned char)text.data[i]]));
    e->after_unknown = false;
    return HEED_OK;
  }
  if (settings->stand_in < 0 || (e->after_unknown && settings->fuse_unknown)) return HEED_OK;
  e->after_unknown = true;
  return push_id(e, settings->stand_in);
}

static heed_status encode_piece(void *user, heed_text piece) {
  encoder *e = user;
  const heed_tokenizer *tokenizer = e->tokenizer;
  const int64_t before = e->done;
  e->done += (int64_t)piece.length;
  if (before / REPORT_BYTES != e->done / REPORT_BYTES)
    HD_TRY(hd_progress(e->context, "encode", HD_MIN(before, e->text_bytes), e->text_bytes));
  if (tokenizer->settings.whole_words) {
    int32_t id = hd_vocabulary_find(&tokenizer->vocabulary, piece.data, piece.length);
    if (id >= 0 && tokenizer->vocabulary.kind[id] == HD_NORMAL) return push_id(e, id);
  }
  static heed_status (*const kinds[])(hd_merger *, const heed_tokenizer *, heed_text) = {[HD_SPELLS_MARKS] = hd_spm_piece,
                                                                                         [HD_SPELLS_BYTES] = hd_bpe_piece,
                                                                                         [HD_SPELLS_PLAIN] = hd_spm_piece,
                                                                                         [HD_SPELLS_WORDS] = hd_wordpiece_piece};
  HD_TRY(kinds[tokenizer->settings.spelling](&e->merger, tokenizer, piece));
  e->after_unknown = false;
  for (int32_t i = e->merger.symbol_count > 0 ? 0 : -1; i >= 0; i = e->merger.symbols[i].next) {
    const hd_symbol *symbol = &e->merger.symbols[i];
    if (symbol->id >= 0) {
      HD_TRY(push_id(e, symbol->id));
      e->after_unknown = false;
    } else {
      HD_TRY(push_unknown(e, (heed_text){piece.data + symbol->begin, symbol->length}));
    }
  }
  return HEED_OK;
}

/* ---- sections ------------------------------------------------------------------------------------------------------------- */

static bool is_mark(heed_text text, size_t at) {
  return text.length - at >= HD_SPACE_MARK_BYTES && memcmp(text.data + at, HD_SPACE_MARK, HD_SPACE_MARK_BYTES) == 0;
}

static bool needs_prefix(const encoder *e, heed_text section, bool first) {
  bool begins_with_space = section.data[0] == ' ' || (e->tokenizer->settings.spelling == HD_SPELLS_MARKS && is_mark(section, 0));
  switch (e->tokenizer->settings.prefix) {
  case HD_PREFIX_NEVER: return false;
  case HD_PREFIX_FIRST: return first && !begins_with_space;
  case HD_PREFIX_UNLESS_SPACE: return !begins_with_space;
  case HD_PREFIX_EVERY: return true;
  }
  return false;
}

/* The section with its prefix and, in a SentencePiece text, every "▁" as the space that it means. */
static heed_status spell(encoder *e, heed_text *section, bool first) {
  bool prefix = needs_prefix(e, *section, first), unmark = e->tokenizer->settings.spelling == HD_SPELLS_MARKS;
  if (!prefix && !unmark) return HEED_OK;
  HD_TRY(hd_grow(e->context, "a text", &e->section, &e->section_capacity, (int64_t)section->length + 1, 1));
  size_t length = prefix;
  e->section[0] = ' ';
  for (size_t at = 0; at < section->length;) {
    bool mark = unmark && is_mark(*section, at);
    e->section[length++] = mark ? ' ' : section->data[at];
    at += mark ? HD_SPACE_MARK_BYTES : 1;
  }
  *section = (heed_text){e->section, length};
  return HEED_OK;
}

/* Unicode normalisation; the result lies in *buffer, which the caller releases. */
static heed_status normalise(encoder *e, heed_text *section, int32_t **buffer, int64_t *capacity) {
  static const int options[] = {
      [HD_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
      [HD_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
      [HD_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
      [HD_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
  };
  utf8proc_option_t option = (utf8proc_option_t)options[e->tokenizer->settings.form];
  const utf8proc_uint8_t *data = (const utf8proc_uint8_t *)section->data;
  utf8proc_ssize_t count = utf8proc_decompose(data, (utf8proc_ssize_t)section->length, NULL, 0, option);
  HD_REQUIRE(count >= 0, e->context, HEED_E_FORMAT, "the text cannot be normalised: %s", utf8proc_errmsg(count));
  *capacity = count + 1; // utf8proc_reencode adds a NUL
  HD_TRY(hd_allocate(e->context, "a normalised text", *capacity, sizeof **buffer, buffer));
  count = utf8proc_decompose(data, (utf8proc_ssize_t)section->length, *buffer, count, option);
  if (count >= 0) count = utf8proc_reencode(*buffer, count, option);
  HD_REQUIRE(count >= 0, e->context, HEED_E_FORMAT, "the text cannot be normalised: %s", utf8proc_errmsg(count));
  *section = (heed_text){(const char *)*buffer, (size_t)count};
  return HEED_OK;
}

static heed_status encode_words(encoder *e, heed_text section) {
  size_t begin = 0;
  for (size_t at = 1; at < section.length; at++)
    if (section.data[at] == ' ') {
      HD_TRY(encode_piece(e, (heed_text){section.data + begin, at - begin}));
      begin = at;
    }
  return encode_piece(e, (heed_text){section.data + begin, section.length - begin});
}

static heed_status encode_bert(encoder *e, heed_text section) {
  char *words;
  int64_t room;
  size_t length;
  heed_status status = hd_wordpiece_normalise(e->context, e->tokenizer, section, &words, &room, &length);
  if (status == HEED_OK && length > 0) status = encode_words(e, (heed_text){words, length});
  hd_release(e->context, words, room, 1);
  return status;
}

static heed_status encode_section(encoder *e, heed_text section) {
  int32_t *buffer = NULL;
  int64_t capacity = 0;
  heed_status status = HEED_OK;
  if (section.length == 0) return HEED_OK;
  if (e->tokenizer->settings.spelling == HD_SPELLS_WORDS) return encode_bert(e, section);
  const bool first = section.data == e->text_begin;
  if (e->tokenizer->settings.form != HD_AS_IS) HD_TRY_DONE(normalise(e, &section, &buffer, &capacity));
  HD_TRY_DONE(spell(e, &section, first));
  if (section.length > INT32_MAX) { // symbols are numbered in 32 bits
    status = hd_fail(e->context, HEED_E_OVERFLOW, "the text is too long (got %zu bytes, allowed %d)", section.length, INT32_MAX);
    goto done;
  }
  if (e->tokenizer->settings.spelling == HD_SPELLS_BYTES) status = hd_split(&e->split, section, encode_piece, e);
  else status = e->tokenizer->settings.cut_at_spaces ? encode_words(e, section) : encode_piece(e, section);
done:
  hd_release(e->context, buffer, capacity, sizeof *buffer);
  return status;
}

/* ---- named tokens --------------------------------------------------------------------------------------------------------- */

/* Where white space that ends at `end` begins, not before `from`. */
static size_t space_before(heed_text text, size_t from, size_t end) {
  while (end > from) {
    size_t begin = end - 1;
    uint32_t code;
    while (begin > from && ((unsigned char)text.data[begin] & 0xC0) == 0x80) begin--;
    if (hd_utf8_next(text.data + begin, end - begin, &code) <= 0 || !hd_is_white_space(code)) break;
    end = begin;
  }
  return end;
}

static size_t space_after(heed_text text, size_t at) {
  uint32_t code;
  for (int size; (size = hd_utf8_next(text.data + at, text.length - at, &code)) > 0 && hd_is_white_space(code);) at += (size_t)size;
  return at;
}

static heed_status encode_text(encoder *e, heed_text text) {
  const hd_vocabulary *vocabulary = &e->tokenizer->vocabulary;
  size_t done = 0;
  for (size_t at = 0; at < text.length;) {
    int32_t id = hd_vocabulary_named(vocabulary, text.data + at, text.length - at, e->parse_special);
    if (id < 0) {
      at++;
      continue;
    }
    size_t end = at + hd_vocabulary_text(vocabulary, id).length;
    if (vocabulary->eats[id] & HD_EATS_LEFT) at = space_before(text, done, at);
    if (vocabulary->eats[id] & HD_EATS_RIGHT) end = space_after(text, end);
    HD_TRY(encode_section(e, (heed_text){text.data + done, at - done}));
    HD_TRY(push_id(e, id));
    at = done = end;
  }
  return encode_section(e, (heed_text){text.data + done, text.length - done});
}

static heed_status encode(encoder *e, heed_text text, bool add_special) {
  const hd_tokenizer_settings *settings = &e->tokenizer->settings;
  if (settings->spelling == HD_SPELLS_BYTES) HD_TRY(hd_split_begin(&e->split, e->context, &e->tokenizer->splitter, text.length));
  for (int i = 0; add_special && i < settings->before_count; i++) HD_TRY(push_id(e, settings->before[i]));
  HD_TRY(encode_text(e, text));
  for (int i = 0; add_special && i < settings->after_count; i++) HD_TRY(push_id(e, settings->after[i]));
  return HEED_OK;
}

/* The caller gives back exactly as many ids as it got, so the array has to have that size. */
static heed_status hand_over(encoder *e, int32_t **ids, int64_t *count) {
  HD_TRY(hd_allocate(e->context, "token ids", e->count, sizeof **ids, ids));
  if (e->count) memcpy(*ids, e->ids, (size_t)e->count * sizeof **ids);
  *count = e->count;
  return HEED_OK;
}

/* Whether nothing looks at the text's characters: a byte is a symbol, and no pattern, form or name is looked for. */
static bool takes_bytes(const heed_tokenizer *tokenizer) {
  const hd_tokenizer_settings *settings = &tokenizer->settings;
  return settings->spelling == HD_SPELLS_BYTES && settings->form == HD_AS_IS && settings->prefix == HD_PREFIX_NEVER &&
         tokenizer->splitter.count == 0 && tokenizer->vocabulary.named_begin[256] == 0;
}

heed_status heed_encode(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, const heed_encode_options *given,
                        int32_t **ids, int64_t *count) {
  if (!context || !tokenizer || !ids || !count || (!text.data && text.length > 0))
    return hd_fail(context, HEED_E_ARGUMENT, "heed_encode: context, tokenizer, text, ids and count must not be null");
  *ids = NULL;
  *count = 0;
  heed_encode_options options = {0};
  HD_TRY(hd_options_read(context, "heed_encode_options", given, &options, sizeof options));
  size_t valid = takes_bytes(tokenizer) ? text.length : hd_utf8_valid(text.data, text.length);
  HD_REQUIRE(valid == text.length, context, HEED_E_FORMAT, "the text is not UTF-8 (byte %zu of %zu, got 0x%02X)", valid, text.length,
             (unsigned char)text.data[valid]);

  encoder e = {.context = context,
               .tokenizer = tokenizer,
               .parse_special = options.parse_special,
               .text_begin = text.data,
               .text_bytes = (int64_t)text.length,
               .merger = {.context = context}};
  heed_status status = encode(&e, text, options.add_special);
  if (status == HEED_OK) status = hand_over(&e, ids, count);
  hd_split_end(&e.split);
  hd_merger_free(&e.merger);
  hd_release(context, e.section, e.section_capacity, 1);
  hd_release(context, e.ids, e.capacity, sizeof *e.ids);
  return status;
}

void heed_ids_free(heed_context *context, int32_t *ids, int64_t count) { hd_release(context, ids, count, sizeof *ids); }
