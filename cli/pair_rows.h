/* pair_rows.h: pairs of sentences as rows of token ids, for training. */
#ifndef CLI_PAIR_ROWS_H
#define CLI_PAIR_ROWS_H

#include "examples.h"
#include "sentences.h"

typedef struct pair_rows {
  heed_context *context;
  pair_tokenizers tokenizers;
  int64_t most_source, most_target; /* ids that a side may have, with what stands around it; a target's end token counts */
  bool skip_long;                   /* pairs that are longer are left out instead of refused */
  sequences sources, targets;       /* targets without their end tokens */
  int64_t *order;                   /* [pairs]; NULL: not asked */
  int64_t longest_source, longest_target, skipped;
} pair_rows;

/* Rows of all examples, of which there is then at least one. Messages name file and line. The tokenizers must stay. */
int pair_rows_of(heed_context *context, pair_tokenizers tokenizers, int64_t most_source, int64_t most_target, bool skip_long,
                 const examples *all, pair_rows *out);
void pair_rows_free(pair_rows *rows);
/* For a learner whose source has `width` columns; sorted: by length. */
int pair_rows_data(pair_rows *rows, int64_t width, bool sorted, heed_pair_data *out);

#endif
