/* train.h: what training a tokenizer gives: token texts and merges, before they become a tokenizer. */
#ifndef HD_TRAIN_H
#define HD_TRAIN_H

#include "tokenizer.h"

typedef struct hd_id_pair {
  int32_t left, right;
} hd_id_pair;

/* Tokens by id, their texts as they stand in plain text. Zero is empty, but for the context. */
typedef struct hd_learned {
  heed_context *context;
  char *bytes; /* all texts, one after the other */
  int64_t byte_count, byte_capacity;
  int64_t *begin; /* [count + 1] */
  int64_t count, capacity;
  hd_id_pair *merges; /* in the order they were learned; a pair may come twice, and counts where it stands last */
  int64_t merge_count, merge_capacity;
  const heed_tokenizer_train_options *options; /* special tokens follow the others */
  bool has_unknown;                            /* token 0 is special and stands for what has no token */
} hd_learned;

heed_status hd_learned_token(hd_learned *learned, heed_text text);
heed_status hd_learned_merge(hd_learned *learned, int32_t left, int32_t right);
void hd_learned_free(hd_learned *learned);
static inline heed_text hd_learned_text(const hd_learned *learned, int64_t id) {
  return (heed_text){learned->bytes + learned->begin[id], (size_t)(learned->begin[id + 1] - learned->begin[id])};
}

/* Adds merges to the 256 single bytes that `learned` holds until there are `vocabulary` tokens, or none is left to merge. text is UTF-8. HEED_E_OVERFLOW (text too long),
 * HEED_E_MEMORY, HEED_E_CANCELLED. */
heed_status hd_train_bpe(hd_learned *learned, heed_text text, int64_t vocabulary);

/* Adds the words of a text that stand most often in it, at most `most`; `cutting` has the settings that say where it is cut. Errors as above. */
heed_status hd_train_words(hd_learned *learned, const heed_tokenizer *cutting, heed_text text, int64_t most);

#endif
