/* eval_pairs.h: how well a model translates. */
#ifndef CLI_EVAL_PAIRS_H
#define CLI_EVAL_PAIRS_H

#include "translator.h"

typedef struct eval_pairs_values {
  examples_values which;
  search_values search;
} eval_pairs_values;

/* m is a model that translates, from the directory at path. */
int eval_pairs(const loaded *m, const char *path, const common_values *common, const eval_pairs_values *v);

#endif
