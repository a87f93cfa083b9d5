/* pair_task.h: what a task of pairs is: a function that draws one, in a file of its own, and a line in the list of pair_tasks.c. */
#ifndef HD_PAIR_TASK_H
#define HD_PAIR_TASK_H

#include "draws.h"
#include "../../include/heed/train.h"

/* A pair under way: sides are written from left to right, and count their tokens. */
typedef struct hd_side {
  char *text; /* [HEED_PAIR_BYTES] */
  int64_t length, tokens;
} hd_side;

typedef struct hd_draft {
  heed_pair *pair;
  hd_side source, target;
  char question[HEED_PAIR_BYTES]; /* whether a pair is held out goes by this; "": it is one that training shows and nobody holds out */
} hd_draft;

typedef struct hd_pair_kind {
  const char *name, *tokens;              /* tokens: "char" or "word" */
  int64_t usual_least, usual_most, limit; /* of heed_pair_task's least and most; 0: it has none */
  bool has_symbols;
  void (*make)(const heed_pair_task *task, hd_dice *d, hd_draft *out); /* least <= most, symbols and the like are right */
} hd_pair_kind;

extern const hd_pair_kind hd_pair_dates, hd_pair_numbers, hd_pair_reverse, hd_pair_double, hd_pair_grammar;

/* Characters, each a token. What has no room is left out. */
void hd_write(hd_side *side, const char *text);
void hd_write_number(hd_side *side, int64_t number, int digits); /* with zeros in front, at least `digits` */
/* A word, a token, behind a space where it is not the first. Returns its place. */
int32_t hd_write_word(hd_side *side, const char *word);
void hd_link(hd_draft *draft, int64_t source, int64_t target, bool possible);

#endif
