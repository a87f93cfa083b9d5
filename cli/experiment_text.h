/* experiment_text.h: the texts of experiments: a file, or sentences that are made up. */
#ifndef CLI_EXPERIMENT_TEXT_H
#define CLI_EXPERIMENT_TEXT_H

#include "experiment.h"

/* All of a file; path NULL: `bytes` and some more of sentences in English, each followed by its translation, a line each. For free(). */
int experiment_text(experiment *e, const char *path, int64_t bytes, char **data, size_t *length);

#endif
