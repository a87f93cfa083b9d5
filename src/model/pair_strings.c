/* pair_strings.c: strings of letters, reversed or doubled: what a fixed vector cannot hold when they are long. */
#include "pair_task.h"

enum { TOO_SHORT = 4, MOST_STRING = 200 };

/* The source; returns how many letters. */
static int64_t draw_string(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  char text[MOST_STRING + 1];
  const int64_t n = task->least + hd_roll(d, task->most - task->least + 1);
  for (int64_t i = 0; i < n; i++) text[i] = (char)('a' + hd_roll(d, task->symbols));
  text[n] = 0;
  hd_write(&out->source, text);
  if (n >= TOO_SHORT) memcpy(out->question, text, (size_t)n + 1);
  return n;
}

static void copy_letter(hd_draft *out, int64_t i) {
  hd_link(out, i, out->target.tokens, false);
  hd_write(&out->target, (char[]){out->source.text[i], 0});
}

static void make_reverse(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  for (int64_t i = draw_string(task, d, out) - 1; i >= 0; i--) copy_letter(out, i);
}

static void make_double(const heed_pair_task *task, hd_dice *d, hd_draft *out) {
  const int64_t n = draw_string(task, d, out);
  for (int64_t i = 0; i < 2 * n; i++) copy_letter(out, i % n);
}

const hd_pair_kind hd_pair_reverse = {"reverse", "char", 1, 30, MOST_STRING, true, make_reverse};
const hd_pair_kind hd_pair_double = {"double", "char", 1, 30, MOST_STRING, true, make_double};
