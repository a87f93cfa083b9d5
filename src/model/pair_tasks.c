/* pair_tasks.c: tasks of pairs by name, and what they share: writing, links, what is held out. */
#include "pair_task.h"

#include <stdio.h>

static const hd_pair_kind *const kinds[] = {&hd_pair_dates, &hd_pair_numbers, &hd_pair_reverse, &hd_pair_double, &hd_pair_grammar};

/* ---- writing --------------------------------------------------------------------------------------------------------------------- */

void hd_write(hd_side *side, const char *text) {
  for (; *text && side->length + 1 < HEED_PAIR_BYTES; text++) {
    side->text[side->length++] = *text;
    side->tokens += ((unsigned char)*text & 0xC0) != 0x80;
  }
  side->text[side->length] = 0;
}

void hd_write_number(hd_side *side, int64_t number, int digits) {
  char text[32];
  snprintf(text, sizeof text, "%0*lld", digits, (long long)number);
  hd_write(side, text);
}

int32_t hd_write_word(hd_side *side, const char *word) {
  const int64_t place = side->length > 0 ? side->tokens : 0;
  if (side->length > 0) hd_write(side, " ");
  hd_write(side, word);
  side->tokens = place + 1;
  return (int32_t)place;
}

void hd_link(hd_draft *draft, int64_t source, int64_t target, bool possible) {
  heed_pair *pair = draft->pair;
  if (pair->link_count < HEED_PAIR_LINKS) pair->links[pair->link_count++] = (heed_link){(int32_t)source, (int32_t)target, possible};
}

/* ---- the tasks ------------------------------------------------------------------------------------------------------------------ */

static const hd_pair_kind *kind_of(const char *name) {
  for (int64_t i = 0; name && i < HD_COUNT(kinds); i++)
    if (!strcmp(kinds[i]->name, name)) return kinds[i];
  return NULL;
}

const char *heed_pair_task_name(int64_t i) { return i >= 0 && i < HD_COUNT(kinds) ? kinds[i]->name : NULL; }

const char *heed_pair_task_tokens(const char *name) {
  const hd_pair_kind *kind = kind_of(name);
  return kind ? kind->tokens : NULL;
}

enum { LETTERS = 26 };

static heed_status check_range(heed_context *context, const hd_pair_kind *kind, const char *field, int64_t value, int64_t low,
                               int64_t high) {
  if (low == high && low == 0)
    HD_REQUIRE(value == 0, context, HEED_E_ARGUMENT, "task %s: has no %s (got %lld)", kind->name, field, (long long)value);
  HD_REQUIRE(value >= low && value <= high, context, HEED_E_ARGUMENT, "task %s: %s: got %lld, allowed %lld to %lld", kind->name, field,
             (long long)value, (long long)low, (long long)high);
  return HEED_OK;
}

heed_status heed_pair_task_finish(heed_context *context, heed_pair_task *task) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(task && task->size == sizeof *task, context, HEED_E_ARGUMENT, "heed_pair_task_finish: task is null or its size not set");
  const hd_pair_kind *kind = kind_of(task->name);
  HD_REQUIRE(kind, context, HEED_E_ARGUMENT, "task %s: there is no such task of pairs", task->name ? task->name : "(null)");
  if (task->least == 0) task->least = kind->usual_least;
  if (task->most == 0) task->most = HD_MAX(kind->usual_most, task->least);
  if (task->symbols == 0 && kind->has_symbols) task->symbols = LETTERS;
  HD_TRY(check_range(context, kind, "most", task->most, kind->limit > 0, kind->limit));
  HD_TRY(check_range(context, kind, "least", task->least, kind->usual_least > 0, kind->usual_least > 0 ? task->most : 0));
  return check_range(context, kind, "symbols", task->symbols, kind->has_symbols, kind->has_symbols ? LETTERS : 0);
}

/* Draws until the pair belongs to the side that is asked for. Where there is none (all strings are short) it is the last one drawn. */
void heed_pair_task_make(const heed_pair_task *task, uint64_t seed, int64_t number, heed_pair *out) {
  enum { TRIES = 1000 };
  const hd_pair_kind *kind = kind_of(task->name);
  hd_dice d = {.seed = seed, .stream = (uint64_t)number};
  for (int tries = 0; tries < TRIES; tries++) {
    hd_draft draft = {.pair = out, .source.text = out->source, .target.text = out->target};
    out->link_count = 0;
    out->source[0] = out->target[0] = 0;
    kind->make(task, &d, &draft);
    const bool held_out = draft.question[0] && hd_is_held_out(draft.question, (int64_t)strlen(draft.question));
    if (held_out == task->held_out) return;
  }
}
