/* pair_task.h: the options by which commands name a task of pairs. */
#ifndef CLI_PAIR_TASK_H
#define CLI_PAIR_TASK_H

#include "console.h"

#include "heed/train.h"

#define PAIR_TASKS "dates|numbers|reverse|double|grammar"

/* 0: as the task usually has it. */
typedef struct pair_task_values {
  int64_t letters, least, symbols, digits;
} pair_task_values;

#define PAIR_TASK_OPTIONS(field)                                                                                                           \
  OPTION("letters", 0, WHOLE, "N", field.letters, "reverse, double: letters of a string, at most (default 30)", .low = 1, .high = 200),    \
      OPTION("least-letters", 0, WHOLE, "N", field.least, "reverse, double: letters of a string, at least (default 1)", .low = 1,          \
             .high = 200),                                                                                                                 \
      OPTION("symbols", 0, WHOLE, "N", field.symbols, "reverse, double: letters in use (default 26)", .low = 1, .high = 26),               \
      OPTION("digits", 0, WHOLE, "N", field.digits, "numbers: digits of a number, at most (default 6)", .low = 1, .high = 12)

/* The task of a name; an option that it has no use for is an error. */
int pair_task_of(heed_context *context, const char *name, const pair_task_values *v, heed_pair_task *out);

#endif
