/* bpe.c: byte-level BPE (GPT-2 and all that followed it): the symbols are bytes, the list of merges decides.
 *
 * Files spell each byte as one visible character: itself where it is visible in Latin-1, otherwise the next one from U+0100 on. */
#include "bpe.h"
#include "utf8.h"

/* The 68 bytes that are not visible in Latin-1, in order: 00–20, 7F–A0, AD. */
static int unspell_character(uint32_t code) {
  if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) || (code >= 0xAE && code <= 0xFF)) return (int)code;
  if (code >= 0x100 && code < 0x121) return (int)code - 0x100;
  if (code >= 0x121 && code < 0x143) return (int)code - 0x121 + 0x7F;
  return code == 0x143 ? 0xAD : -1;
}

static uint32_t spell_byte(unsigned byte) {
  if (byte <= 0x20) return 0x100 + byte;
  if (byte >= 0x7F && byte <= 0xA0) return 0x121 + byte - 0x7F;
  return byte == 0xAD ? 0x143 : byte;
}

size_t hd_bpe_spell(heed_text text, char *out) {
  size_t written = 0;
  // Codes are below U+0800, so no character is longer than two bytes.
  for (size_t i = 0; i < text.length; i++) {
    char spelled[4];
    const int size = hd_utf8_put(spell_byte((unsigned char)text.data[i]), spelled);
    memcpy(out + written, spelled, (size_t)size);
    written += (size_t)size;
  }
  return written;
}

bool hd_bpe_unspell(heed_text spelling, char *out, size_t *length) {
  size_t written = 0;
  for (size_t at = 0; at < spelling.length;) {
    uint32_t code;
    int size = hd_utf8_next(spelling.data + at, spelling.length - at, &code);
    int byte = size > 0 ? unspell_character(code) : -1;
    if (byte < 0) return false;
    out[written++] = (char)byte;
    at += (size_t)size;
  }
  *length = written;
  return true;
}

bool hd_join_by_rank(const heed_tokenizer *tokenizer, const char *text, const hd_symbol *left, const hd_symbol *right, hd_join *out) {
  (void)text;
  const hd_pair *pair = hd_pairs_find(&tokenizer->pairs, left->id, right->id);
  if (!pair) return false;
  *out = (hd_join){.priority = pair->rank, .id = pair->merged};
  return true;
}

heed_status hd_bpe_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text piece) {
  HD_TRY(hd_merger_begin(merger, (int64_t)piece.length));
  for (size_t i = 0; i < piece.length; i++) {
    int32_t id = tokenizer->vocabulary.byte[(unsigned char)piece.data[i]];
    // A byte that is left out is left out before merging: its neighbours may merge.
    if (id >= 0 || tokenizer->settings.stand_in >= 0) hd_merger_append(merger, id, 1);
  }
  hd_merge(merger, tokenizer, piece.data, hd_join_by_rank);
  return HEED_OK;
}
