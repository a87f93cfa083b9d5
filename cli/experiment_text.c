/* experiment_text.c: a text from a file, or from the task of pairs that has sentences. */
#include "experiment_text.h"
#include "input.h"

#include "heed/train.h"

#include <stdlib.h>

int experiment_text(experiment *e, const char *path, int64_t bytes, char **data, size_t *length) {
  if (path) return read_whole_file(path, data, length);
  heed_pair_task task = {.size = sizeof task, .name = "grammar"};
  heed_pair *pair = allocate("a pair", 1, sizeof *pair);
  int code;
  *length = 0;
  *data = allocate("a text", bytes + 2 * HEED_PAIR_BYTES + 3, 1);
  TRY(check(e->context, heed_pair_task_finish(e->context, &task)));
  for (int64_t i = 0; *length < (size_t)bytes; i++) {
    heed_pair_task_make(&task, e->seed, i, pair);
    *length += (size_t)sprintf(*data + *length, "%s\n%s\n", pair->source, pair->target);
  }
done:
  free(pair);
  return code;
}
