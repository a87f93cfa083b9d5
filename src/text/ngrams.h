/* ngrams.h: sequences of symbols (words, characters) compared by the n-grams they share: what BLEU and chrF are made of. */
#ifndef HD_NGRAMS_H
#define HD_NGRAMS_H

#include "../base/base.h"
#include "../../include/heed/text.h"

enum { HD_MOST_ORDERS = 6 };

/* Adds to shared[n − 1], n in [1, orders], how many n-grams of a [na] stand in b [nb] too; one that stands there k times is shared k times at most. */
heed_status hd_ngrams_shared(heed_context *context, const int32_t *a, int64_t na, const int32_t *b, int64_t nb, int orders,
                             int64_t *shared);
/* n-grams in a sequence of `count` symbols. */
static inline int64_t hd_ngrams(int64_t count, int64_t n) { return HD_MAX(count - n + 1, 0); }

/* Texts cut into pieces, numbered so that equal pieces have equal numbers. Zero but for the context is empty. */
typedef struct hd_pieces {
  heed_context *context;
  heed_text *text; /* [count] borrowed */
  int32_t *number; /* [count], once numbered */
  int64_t count, room, number_room;
} hd_pieces;
heed_status hd_pieces_add(hd_pieces *pieces, heed_text text);
heed_status hd_pieces_number(hd_pieces *pieces);
void hd_pieces_free(hd_pieces *pieces);

/* The next run of what is not white space as Python's str.split() knows it; false where there is none. *rest is UTF-8 and moves on. */
bool hd_next_word(heed_text *rest, heed_text *word);
bool hd_is_python_space(uint32_t code);

/* HEED_E_ARGUMENT for what is null, HEED_E_FORMAT for a text that is not UTF-8. `call` is for messages. */
heed_status hd_check_translations(heed_context *context, const char *call, const heed_text *translations, const heed_text *references,
                                  int64_t count);

#endif
