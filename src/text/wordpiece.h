/* wordpiece.h: BERT's tokenizer: how it cleans a text, where it cuts words, and how a word becomes the longest tokens from its beginning on. */
#ifndef HD_WORDPIECE_H
#define HD_WORDPIECE_H

#include "merge.h"

#define HD_WORD_GOES_ON "##"    /* before a token that goes on with a word */
enum { HD_LONGEST_WORD = 100 }; /* characters; longer ones are unknown. Other marks and lengths are in no published file. */

/* "##ing" is "ing", which goes on with a word; "the" is " the", which begins one. */
bool hd_wordpiece_unspell(heed_text spelling, char *out, size_t *length);
size_t hd_wordpiece_spell(heed_text text, char *out);

/* The section as BERT's normaliser leaves it, each word with a space in front: words are what lies between white space, a punctuation mark and (if asked) a Chinese character is one by itself.
 * *out [*length] is to be released with hd_release(context, *out, *room, 1). */
heed_status hd_wordpiece_normalise(heed_context *context, const heed_tokenizer *tokenizer, heed_text section, char **out, int64_t *room,
                                   size_t *length);
/* A word, with its space, as symbols; one without a token where the vocabulary cannot make it. */
heed_status hd_wordpiece_piece(hd_merger *merger, const heed_tokenizer *tokenizer, heed_text word);

#endif
