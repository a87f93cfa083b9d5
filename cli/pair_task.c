/* pair_task.c: tasks of pairs from options. */
#include "pair_task.h"

#include <string.h>

int pair_task_of(heed_context *context, const char *name, const pair_task_values *v, heed_pair_task *out) {
  const bool is_number = !strcmp(name, "numbers"), is_string = !strcmp(name, "reverse") || !strcmp(name, "double");
  const struct {
    const char *option;
    int64_t value;
    bool fits;
  } given[] = {{"letters", v->letters, is_string},
               {"least-letters", v->least, is_string},
               {"symbols", v->symbols, is_string},
               {"digits", v->digits, is_number}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (given[i].value > 0 && !given[i].fits) return usage_error("--%s: the task %s has no use for it", given[i].option, name);
  if (v->letters > 0 && v->least > v->letters)
    return usage_error("--least-letters: must not be above --letters (got %lld and %lld)", (long long)v->least, (long long)v->letters);
  *out = (heed_pair_task){
      .size = sizeof *out, .name = name, .least = v->least, .most = is_number ? v->digits : v->letters, .symbols = v->symbols};
  return check(context, heed_pair_task_finish(context, out));
}
