/* pair_rows.h: sentences and pairs of them as rows of token ids. */
#ifndef CLI_PAIR_ROWS_H
#define CLI_PAIR_ROWS_H

#include "examples.h"

/* What reads the sides of a pair: a source gets what its tokenizer puts around a text; of a target the ids are those of the text alone. */
typedef struct pair_tokenizers {
  const heed_tokenizer *source, *target; /* may be one */
} pair_tokenizers;

/* A text that is to be read whole. EXIT_BAD_FILE with a reason, nothing printed, where a character has no token or it is not UTF-8; other failures have said so themselves. The ids are for
 * heed_ids_free. */
enum { REASON_LENGTH = 256 };
int encode_sentence(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, bool special, int32_t **ids, int64_t *count,
                    char reason[REASON_LENGTH]);

/* What becomes of pairs that are longer: refused, with the options that would help; left out; refused, since the limits are the model's. */
typedef enum long_pairs { LONG_PAIRS_STOP, LONG_PAIRS_SKIP, LONG_PAIRS_FIXED } long_pairs;

typedef struct pair_rows {
  heed_context *context;
  pair_tokenizers tokenizers;
  int64_t most_source, most_target; /* ids that a side may have, with what stands around it; a target's end token counts */
  long_pairs on_long;
  int32_t *source, *target;
  int64_t *source_begin, *target_begin, *order; /* [count + 1], [count] */
  int64_t count, source_room, target_room, source_begin_room, target_begin_room;
  int64_t longest_source, longest_target, skipped;
} pair_rows;

/* Rows of all examples. Messages name file and line. The tokenizers must stay. */
int pair_rows_of(heed_context *context, pair_tokenizers tokenizers, int64_t most_source, int64_t most_target, long_pairs on_long,
                 const examples *all, pair_rows *out);
void pair_rows_free(pair_rows *rows);
/* For a learner whose source has `width` columns; sorted: by length. */
int pair_rows_data(pair_rows *rows, int64_t width, bool sorted, heed_pair_data *out);

#endif
