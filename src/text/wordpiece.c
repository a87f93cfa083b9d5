/* wordpiece.c: BERT's tokenizer (Devlin et al. 2019), as the tokenizers library does it: BertNormalizer, BertPreTokenizer, and of each word the longest token at its beginning, then
 * the longest that goes on from there; a word that cannot be made whole is unknown.
 *
 * A token that begins a word is kept with a space in front, so that texts of tokens side by side are the text; the words that the cutting gives have that space too. */
#include "wordpiece.h"
#include "utf8.h"

#include <utf8proc.h>

static const char goes_on[] = HD_WORD_GOES_ON;
enum { GOES_ON = sizeof goes_on - 1 };

bool hd_wordpiece_unspell(heed_text spelling, char *out, size_t *length) {
  const bool inner = spelling.length > GOES_ON && memcmp(spelling.data, goes_on, GOES_ON) == 0;
  const size_t skip = inner ? GOES_ON : 0;
  *length = 0;
  if (spelling.length == 0) return true; // no word is so short
  if (!inner) out[0] = ' ';
  memcpy(out + !inner, spelling.data + skip, spelling.length - skip);
  *length = spelling.length - skip + !inner;
  return true;
}

size_t hd_wordpiece_spell(heed_text text, char *out) {
  const bool begins = text.length > 0 && text.data[0] == ' ';
  const size_t prefix = begins || text.length == 0 ? 0 : GOES_ON;
  memcpy(out, goes_on, prefix);
  memcpy(out + prefix, text.data + begins, text.length - begins);
  return text.length - begins + prefix;
}

/* ---- cleaning and cutting ---------------------------------------------------------------------------------------------------------- */

static bool is_chinese(uint32_t c) {
  static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                       {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (int64_t i = 0; i < HD_COUNT(ranges); i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

static bool is_control(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_CS: return true;
  default: return false;
  }
}

static bool is_punctuation(uint32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

typedef struct cleaning {
  const hd_tokenizer_settings *settings;
  char *out; /* has room for what comes */
  size_t length;
  bool in_word;
} cleaning;

static void put(cleaning *c, uint32_t code) {
  const bool space = hd_is_white_space(code), alone = !space && is_punctuation(code);
  if (!space && (alone || !c->in_word)) c->out[c->length++] = ' ';
  if (!space) c->length += (size_t)hd_utf8_put(code, c->out + c->length);
  c->in_word = !space && !alone;
}

static void put_lower(cleaning *c, uint32_t code) {
  if (!c->settings->bert.lowers) put(c, code);
  else if (code == 0x130) {
    put(c, 0x69); // İ has no lower case of one character
    put(c, 0x307);
  } else put(c, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
}

enum { MOST_PARTS = 16 }; // characters that one decomposes into

static void put_stripped(cleaning *c, uint32_t code) {
  utf8proc_int32_t parts[MOST_PARTS];
  int last = 0;
  if (!c->settings->bert.strips_accents) {
    put_lower(c, code);
    return;
  }
  utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, parts, MOST_PARTS, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
  for (utf8proc_ssize_t i = 0; i < count && i < MOST_PARTS; i++)
    if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) put_lower(c, (uint32_t)parts[i]);
}

static void clean(cleaning *c, uint32_t code) {
  const hd_bert_settings *bert = &c->settings->bert;
  if (bert->cleans && (code == 0 || code == 0xFFFD || is_control(code))) return;
  const bool alone = bert->cuts_chinese && is_chinese(code);
  if (alone) put(c, ' ');
  put_stripped(c, code);
  if (alone) put(c, ' ');
}

heed_status hd_wordpiece_normalise(heed_context *context, const heed_tokenizer *tokenizer, heed_text section, char **out, int64_t *room,
                                   size_t *length) {
  // A byte becomes at most a space and the longest decomposition of its character.
  HD_REQUIRE(section.length <= INT32_MAX / (5 * MOST_PARTS), context, HEED_E_OVERFLOW, "the text is too long (got %zu bytes)",
             section.length);
  int64_t grown = 0;
  cleaning c = {.settings = &tokenizer->settings};
  heed_status status = HEED_OK;
  uint32_t code;
  *room = 0;
  for (size_t at = 0; at < section.length && status == HEED_OK;) {
    at += (size_t)hd_utf8_next(section.data + at, section.length - at, &code);
    status = hd_grow(context, "a text", &c.out, &grown, (int64_t)c.length + 5 * MOST_PARTS, 1);
    if (status == HEED_OK) clean(&c, code);
  }
  *out = c.out;
  *room = grown;
  *length = c.length;
  return status;
}

/* ---- words -------------------------------------------------------------------------------------------------------------------------- */

static size_t characters(heed_text text) {
  size_t count = 0;
  for (size_t i = 0; i < text.length; i++) count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
  return count;
}

/* The longest token that the text at `at` begins with; 0: none. */
static size_t longest_token(const hd_vocabulary *vocabulary, heed_text word, size_t at, int32_t *id) {
  for (size_t end = word.length; end > at; end--) {
    if (end < word.length && ((unsigned char)word.data[end] & 0xC0) == 0x80) continue;
    *id = hd_vocabulary_find(vocabulary, word.data + at, end - at);
    if (*id >= 0 && vocabulary->kind[*id] == HD_NORMAL) return end - at;
  }
  return 0;
}

/* Nothing of it stays. */
static heed_status unknown_word(hd_merger *merger, heed_text word) {
  HD_TRY(hd_merger_begin(merger, 1));
  hd_merger_append(merger, -1, (uint32_t)word.length);
  return HEED_OK;
}

heed_status hd_wordpiece_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text word) {
  if (characters(word) - 1 > HD_LONGEST_WORD) return unknown_word(merger, word);
  HD_TRY(hd_merger_begin(merger, (int64_t)word.length));
  for (size_t at = 0, length; at < word.length; at += length) {
    int32_t id;
    length = longest_token(&tokenizer->vocabulary, word, at, &id);
    if (length == 0) return unknown_word(merger, word);
    hd_merger_append(merger, id, (uint32_t)length);
  }
  return HEED_OK;
}
