/* sentences.h: sentences as sequences of token ids, and why a text cannot be one. */
#ifndef CLI_SENTENCES_H
#define CLI_SENTENCES_H

#include "console.h"

#include "heed/text.h"
#include "heed/translate.h"

/* What reads the sides of a pair: a source gets what its tokenizer puts around a text; of a target the ids are those of the text alone. */
typedef struct pair_tokenizers {
  const heed_tokenizer *source, *target; /* may be one */
} pair_tokenizers;

/* Sequences that grow, as heed_translate takes them. Zero is empty. */
typedef struct sequences {
  int32_t *ids;
  int64_t *begin; /* [count + 1] */
  int64_t count, room, begin_room;
} sequences;
void sequences_add(sequences *all, const int32_t *ids, int64_t count);
/* One more id for the last of them. */
void sequences_extend(sequences *all, int32_t id);
heed_sources sequences_view(const sequences *all);
void sequences_clear(sequences *all);
void sequences_free(sequences *all);

/* How a side of a pair is read. */
typedef struct sentence_form {
  const heed_tokenizer *tokenizer;
  bool special;  /* with what the tokenizer puts around a text */
  int64_t extra; /* ids that are still to come, which count */
  int64_t most;  /* ids that it may have */
} sentence_form;

/* Adds a text that is to be read whole. EXIT_BAD_FILE with a reason, nothing printed, where it is not UTF-8, a character has no token, there is none for anything in it, or it is too long (then *too_long, which
 * may be NULL, is set); other failures have said so themselves, and the reason is empty. */
enum { REASON_LENGTH = 256 };
int sequences_read(heed_context *context, const sentence_form *how, heed_text text, sequences *all, char reason[REASON_LENGTH],
                   bool *too_long);

#endif
