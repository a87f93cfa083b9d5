/* spm.c: BPE whose symbols are characters: SentencePiece's, where a space is a character like any other and files spell it "▁", and the plain kind.
 *
 * Its own files give each token a score: the neighbours whose concatenation is the token with the best score merge first. tokenizer.json writes the same as a list of
 * merges. A character that is no token and has been part of no merge becomes its bytes, where the vocabulary has them. */
#include "bpe.h"
#include "utf8.h"

bool hd_spm_unspell(heed_text spelling, char *out, size_t *length) {
  const size_t mark = HD_SPACE_MARK_BYTES;
  size_t written = 0;
  for (size_t at = 0; at < spelling.length;) {
    bool is_mark = spelling.length - at >= mark && memcmp(spelling.data + at, HD_SPACE_MARK, mark) == 0;
    if (spelling.data[at] == ' ') return false;
    out[written++] = is_mark ? ' ' : spelling.data[at];
    at += is_mark ? mark : 1;
  }
  *length = written;
  return true;
}

size_t hd_spm_spell(heed_text text, char *out) {
  size_t written = 0;
  for (size_t i = 0; i < text.length; i++) {
    bool space = text.data[i] == ' ';
    memcpy(out + written, space ? HD_SPACE_MARK : text.data + i, space ? HD_SPACE_MARK_BYTES : 1);
    written += space ? HD_SPACE_MARK_BYTES : 1;
  }
  return written;
}

bool hd_plain_unspell(heed_text spelling, char *out, size_t *length) {
  *length = hd_plain_spell(spelling, out);
  return true;
}

size_t hd_plain_spell(heed_text text, char *out) {
  if (text.length) memcpy(out, text.data, text.length);
  return text.length;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hd_byte_token(heed_text spelling) {
  if (spelling.length != 6 || memcmp(spelling.data, "<0x", 3) != 0 || spelling.data[5] != '>') return -1;
  int high = hex_digit(spelling.data[3]), low = hex_digit(spelling.data[4]);
  return high < 0 || low < 0 ? -2 : high * 16 + low;
}

/* An order-preserving map from scores to priorities: the greatest score gets the smallest number. */
static uint32_t priority_of(float score) {
  uint32_t bits;
  score += 0.0f; // −0 counts as 0
  memcpy(&bits, &score, sizeof bits);
  uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

static bool join_by_score(const heed_tokenizer *tokenizer, const char *text, const hd_symbol *left, const hd_symbol *right, hd_join *out) {
  const hd_vocabulary *vocabulary = &tokenizer->vocabulary;
  int32_t id = hd_vocabulary_find(vocabulary, text + left->begin, left->length + right->length);
  if (id < 0 || vocabulary->kind[id] != HD_NORMAL) return false;
  *out = (hd_join){.priority = priority_of(vocabulary->score[id]), .id = id};
  return true;
}

static int32_t character_token(const hd_vocabulary *vocabulary, const char *data, size_t length) {
  int32_t id = hd_vocabulary_find(vocabulary, data, length);
  return id >= 0 && (vocabulary->kind[id] == HD_NORMAL || vocabulary->kind[id] == HD_USER) ? id : -1;
}

heed_status hd_spm_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text piece) {
  HD_TRY(hd_merger_begin(merger, (int64_t)piece.length));
  uint32_t code;
  for (size_t at = 0; at < piece.length;) {
    int size = hd_utf8_next(piece.data + at, piece.length - at, &code);
    hd_merger_append(merger, character_token(&tokenizer->vocabulary, piece.data + at, (size_t)size), (uint32_t)size);
    at += (size_t)size;
  }
  hd_merge(merger, tokenizer, piece.data, tokenizer->settings.scored ? join_by_score : hd_join_by_rank);
  return HEED_OK;
}
