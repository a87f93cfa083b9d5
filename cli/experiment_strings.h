/* experiment_strings.h: strings of letters and their reversals, as experiments teach them to models of pairs. */
#ifndef CLI_EXPERIMENT_STRINGS_H
#define CLI_EXPERIMENT_STRINGS_H

#include "experiment.h"

#include "heed/train.h"

/* Ids: what begins a target, what ends a source and a target, then the letters. */
enum { STRINGS_START, STRINGS_END, STRINGS_LETTERS, STRINGS_VOCABULARY = STRINGS_LETTERS + 26 };

typedef struct strings {
  int32_t *source, *target;
  int64_t *source_begin, *target_begin, *order;
  heed_pair_data data; /* of all these, for heed_pair_batch and heed_pair_row_batch */
} strings;

/* `count` strings of least to most letters, every length as likely, for learners whose sources have `width` columns. held_out: of the tenth that is told apart by a hash, which is never
 * among the others (but for strings of up to three letters, of which there are too few). In the order of their lengths. */
typedef struct strings_wish {
  int64_t least, most, count, width;
  bool held_out;
} strings_wish;
int strings_open(experiment *e, const strings_wish *wish, strings *out);
void strings_close(strings *s);

#endif
