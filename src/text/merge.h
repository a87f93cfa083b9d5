/* merge.h: the merging of byte-pair encoding in O(n log n): symbols in a linked list, candidates in a heap.
 *
 * Which neighbours may merge, and how urgently, is the caller's function: ranks of a list of merges, or scores of the merged token. */
#ifndef HD_MERGE_H
#define HD_MERGE_H

#include "tokenizer.h"

typedef struct hd_symbol {
  int32_t previous, next; /* −1: none */
  int32_t id;             /* −1: no token has this text */
  uint32_t begin, length; /* in the piece; length 0: absorbed by an earlier symbol */
} hd_symbol;

typedef struct hd_join {
  uint32_t priority; /* the smallest merges first, the leftmost of equals */
  int32_t id;
} hd_join;

/* Whether left and right, neighbours in text, may merge. */
typedef bool (*hd_join_rule)(const heed_tokenizer *tokenizer, const char *text, const hd_symbol *left, const hd_symbol *right,
                             hd_join *out);

typedef struct hd_candidate {
  uint64_t key; /* priority, then the left symbol's index */
  uint32_t left_length, length;
} hd_candidate;

/* Memory that is used again from piece to piece. Zero is empty, but for the context. */
typedef struct hd_merger {
  heed_context *context;
  hd_symbol *symbols;
  int64_t symbol_count, symbol_capacity;
  hd_candidate *heap;
  int64_t heap_count, heap_capacity;
} hd_merger;

void hd_merger_free(hd_merger *merger);
/* Starts a piece of at most `symbols` symbols. */
heed_status hd_merger_begin(hd_merger *merger, int64_t symbols);
/* Appends a symbol; begin follows from the ones before. */
void hd_merger_append(hd_merger *merger, int32_t id, uint32_t length);
/* Merges until no rule applies. text is the piece that the symbols cut up. */
void hd_merge(hd_merger *merger, const heed_tokenizer *tokenizer, const char *text, hd_join_rule rule);

#endif
