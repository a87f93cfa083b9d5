/* bpe.h: the two kinds of tokenizer that heed knows, as far as they differ: how a file spells a token, and how a piece of text becomes symbols that merge. */
#ifndef HD_BPE_H
#define HD_BPE_H

#include "merge.h"
#include "tokenizer.h"

#define HD_SPACE_MARK       "\xE2\x96\x81" /* U+2581 "▁": how SentencePiece files spell a space */
#define HD_SPACE_MARK_BYTES (sizeof HD_SPACE_MARK - 1)

/* A token's spelling undone into out, which has room for as many bytes; false where the spelling has characters that such a token cannot have (out is then
 * undefined). */
bool hd_bpe_unspell(heed_text spelling, char *out, size_t *length);   /* GPT-2's alphabet of 256 visible characters */
bool hd_spm_unspell(heed_text spelling, char *out, size_t *length);   /* "▁" for a space */
bool hd_plain_unspell(heed_text spelling, char *out, size_t *length); /* nothing to undo */

/* The way back: the spelling of a token's text, into out, which has room for three times as many bytes; its length. */
size_t hd_bpe_spell(heed_text text, char *out);
size_t hd_spm_spell(heed_text text, char *out);
size_t hd_plain_spell(heed_text text, char *out);

/* Byte 0xNN of "<0xNN>"; −1 if it is not of that form, −2 if it means to be but is no byte. */
int hd_byte_token(heed_text spelling);

/* The rule of a list of merges (hd_join_rule). */
bool hd_join_by_rank(const heed_tokenizer *tokenizer, const char *text, const hd_symbol *left, const hd_symbol *right, hd_join *out);

/* One piece of text → symbols, merged: the list that begins at symbol 0, if there is any. A symbol without a token has id −1. */
heed_status hd_bpe_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text piece);
heed_status hd_spm_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text piece);

#endif
