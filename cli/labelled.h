/* labelled.h: texts with labels: the two forms of file that say them, their labels by number, and the rows of token ids that an encoder reads.
 *
 * A class: LABEL, tab, text, a line each. Labels of tokens: TOKEN, tab, LABEL, a line each, with an empty line between sentences. */
#ifndef CLI_LABELLED_H
#define CLI_LABELLED_H

#include "console.h"

#include "heed/train.h"

/* What bears a label: a text, or a word of a sentence. */
typedef struct unit {
  heed_text text, label;
  int64_t line; /* of the file, from 1 */
} unit;

/* A file of them. Example e has the units [begin[e], begin[e + 1]): one where a class is asked for. */
typedef struct labelled_file {
  const char *path;
  char *bytes; /* that the units point into */
  unit *units;
  int64_t *begin; /* [count + 1] */
  int64_t count, unit_count;
} labelled_file;

/* Messages name the file and the line. */
int labelled_read(const char *path, heed_head head, labelled_file *out);
void labelled_free(labelled_file *file);
/* What a tokenizer learns from: the texts, a line each; for free(). */
heed_text labelled_text(const labelled_file *file);

/* Names in ascending order; number i is a label's. */
typedef struct label_list {
  char **names; /* [count] */
  int64_t count;
} label_list;
void label_list_of(const labelled_file *file, label_list *out);
void label_list_of_model(const heed_model *model, int64_t count, label_list *out);
void label_list_free(label_list *list);
int64_t label_find(const label_list *list, heed_text name); /* −1: there is none */
/* Whether all of `some` are in `list`. */
bool label_list_has(const label_list *list, const label_list *some);

/* Rows of token ids: of each unit the first token bears a mark, its label's number or whatever the caller says, the others −1. */
typedef struct label_rows {
  heed_context *context;
  const heed_tokenizer *tokenizer;
  const char *path; /* where units come from, for messages */
  heed_head head;
  int64_t limit; /* tokens of a row, with what stands around a text */
  heed_tokenizer_info info;
  int32_t *ids, *marks;
  int64_t *begin; /* [count + 1] */
  int64_t count, length, room, begin_room, longest;
  int64_t cut; /* examples that were longer than a row */
} label_rows;

int label_rows_open(heed_context *context, const heed_tokenizer *tokenizer, const char *path, heed_head head, int64_t limit,
                    label_rows *out);
void label_rows_free(label_rows *rows);
/* An example: of a class one row, cut where it is too long; a sentence of words becomes as many rows as it needs, cut between words. marks [count]. */
int label_rows_add(label_rows *rows, const unit *units, int64_t count, const int32_t *marks);
/* Examples of a file whose labels are in the list: those where number % every == rest, or where it is not (others). every 0: all. */
typedef struct label_choice {
  int64_t every, rest;
  bool others;
} label_choice;
int label_rows_of_file(label_rows *rows, const labelled_file *file, const label_list *labels, label_choice choice);
heed_labelled_data label_rows_data(const label_rows *rows);

/* Of a file that says nothing else every tenth example is for validation. */
enum { VALIDATION_EVERY = 10 };
#define FOR_VALIDATION ((label_choice){VALIDATION_EVERY, VALIDATION_EVERY - 1, false})
#define FOR_TRAINING   ((label_choice){VALIDATION_EVERY, VALIDATION_EVERY - 1, true})

#endif
