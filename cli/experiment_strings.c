/* experiment_strings.c: reversed strings as pairs of rows of ids. */
#include "experiment_strings.h"

#include <stdlib.h>
#include <string.h>

static int64_t append(const char *text, bool ends, int32_t *ids, int64_t at) {
  for (; *text; text++) ids[at++] = STRINGS_LETTERS + (*text - 'a');
  if (ends) ids[at++] = STRINGS_END;
  return at;
}

int strings_open(experiment *e, const strings_wish *wish, strings *out) {
  heed_pair_task task = {.size = sizeof task, .name = "reverse", .least = wish->least, .most = wish->most, .held_out = wish->held_out};
  heed_pair *pair = allocate("a pair", 1, sizeof *pair);
  int code;
  *out = (strings){.source = allocate("strings", wish->count * (wish->most + 1), sizeof *out->source),
                   .target = allocate("strings", wish->count * wish->most, sizeof *out->target),
                   .source_begin = allocate("strings", wish->count + 1, sizeof *out->source_begin),
                   .target_begin = allocate("strings", wish->count + 1, sizeof *out->target_begin),
                   .order = allocate("strings", wish->count, sizeof *out->order)};
  TRY(check(e->context, heed_pair_task_finish(e->context, &task)));
  for (int64_t i = 0; i < wish->count; i++) {
    heed_pair_task_make(&task, e->seed, i, pair);
    out->source_begin[i + 1] = append(pair->source, true, out->source, out->source_begin[i]);
    out->target_begin[i + 1] = append(pair->target, false, out->target, out->target_begin[i]);
  }
  out->data = (heed_pair_data){.source = out->source,
                               .target = out->target,
                               .source_begin = out->source_begin,
                               .target_begin = out->target_begin,
                               .count = wish->count,
                               .width = wish->width,
                               .start = STRINGS_START,
                               .end = STRINGS_END,
                               .order = out->order};
  TRY(check(e->context, heed_pair_order(e->context, &out->data, out->order)));
done:
  free(pair);
  return code;
}

void strings_close(strings *s) {
  free(s->source);
  free(s->target);
  free(s->source_begin);
  free(s->target_begin);
  free(s->order);
  *s = (strings){0};
}
