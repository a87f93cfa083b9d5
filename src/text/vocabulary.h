/* vocabulary.h: token texts and the two look-ups that encoding lives on: bytes → token, and (token, token) → the token they merge into.
 *
 * All of it lies in the tokenizer's arena and never changes. Both tables are open-addressed with linear probing, at most three quarters full. */
#ifndef HD_VOCABULARY_H
#define HD_VOCABULARY_H

#include "../base/base.h"
#include "../../include/heed/text.h"

/* GGUF's numbers. NORMAL tokens come from merging, BYTE tokens from a character that has none, CONTROL and UNKNOWN are special, USER tokens are found in text before
 * anything is merged, UNUSED ones never come from text. */
typedef enum hd_token_kind { HD_NORMAL = 1, HD_UNKNOWN, HD_CONTROL, HD_USER, HD_UNUSED, HD_BYTE } hd_token_kind;

typedef struct hd_token {
  heed_text text;
  float score;
  hd_token_kind kind;
  bool eats_left, eats_right; /* white space beside the token in the text belongs to it */
} hd_token;

enum { HD_EATS_LEFT = 1, HD_EATS_RIGHT = 2 };

typedef struct hd_vocabulary {
  int64_t count;
  const char *bytes;     /* all texts, one after the other */
  const uint32_t *begin; /* [count + 1] */
  const uint8_t *kind;   /* [count] hd_token_kind */
  const uint8_t *eats;   /* [count] HD_EATS_LEFT | HD_EATS_RIGHT */
  const float *score;    /* [count], or NULL where merges decide */
  int32_t *slots;        /* [slot_mask + 1] ids, −1 empty */
  uint32_t slot_mask;
  int64_t longest; /* bytes of the longest text that the table holds */
  int32_t byte[256];
  int32_t *named; /* tokens that are found in text by name (CONTROL, UNKNOWN, USER), sorted by text */
  int32_t named_begin[257];
} hd_vocabulary;

static inline heed_text hd_vocabulary_text(const hd_vocabulary *vocabulary, int32_t id) {
  return (heed_text){vocabulary->bytes + vocabulary->begin[id], vocabulary->begin[id + 1] - vocabulary->begin[id]};
}
static inline bool hd_token_is_special(const hd_vocabulary *vocabulary, int32_t id) {
  return vocabulary->kind[id] == HD_CONTROL || vocabulary->kind[id] == HD_UNKNOWN;
}

struct hd_tokenizer_spec;
heed_status hd_vocabulary_build(heed_context *context, hd_arena *arena, const struct hd_tokenizer_spec *spec, hd_vocabulary *out);

/* The token with this text, or −1. Where several share it, a NORMAL one. BYTE tokens are not in the table. */
int32_t hd_vocabulary_find(const hd_vocabulary *vocabulary, const char *data, size_t length);
/* The longest USER token (with `special`, also CONTROL and UNKNOWN) that the text at data begins with, or −1. */
int32_t hd_vocabulary_named(const hd_vocabulary *vocabulary, const char *data, size_t length, bool special);

/* ---- merges --------------------------------------------------------------------------------------------------------------- */

typedef struct hd_pair {
  int32_t left, right, merged; /* left < 0: an empty slot */
  uint32_t rank;
} hd_pair;

typedef struct hd_pairs {
  hd_pair *slots; /* NULL where there are no merges */
  uint32_t mask;
} hd_pairs;

heed_status hd_pairs_build(heed_context *context, hd_arena *arena, const struct hd_tokenizer_spec *spec, const hd_vocabulary *vocabulary,
                           hd_pairs *out);
/* How many different pairs there are, and all of them in the order of the list; out has room for so many. */
int64_t hd_pairs_count(const hd_pairs *pairs);
void hd_pairs_list(const hd_pairs *pairs, hd_pair *out);
/* NULL where the two do not merge. */
const hd_pair *hd_pairs_find(const hd_pairs *pairs, int32_t left, int32_t right);

#endif
