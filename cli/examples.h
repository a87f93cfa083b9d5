/* examples.h: pairs that a model learns from or is asked about: those of a file, of a task, or those that were kept from its training. */
#ifndef CLI_EXAMPLES_H
#define CLI_EXAMPLES_H

#include "pair_file.h"

#include "heed/train.h"

typedef struct example {
  sentence_pair texts;
  int64_t line; /* in its file; of a task its number, from 1 */
  bool has_links;
  heed_link *links; /* between tokens of the texts, where they are known */
  int64_t link_count;
} example;

typedef struct examples {
  const char *path, *target_path; /* for messages; target_path NULL: that of the source */
  const char *name;               /* of the argument that the source is; NULL: they are those of a file or a task */
  example *items;
  int64_t count, room;
  pair_file file;
  bool owns_texts; /* each its own */
} examples;

void examples_free(examples *all);
int examples_of_file(const char *path, const char *target_path, examples *out);
void examples_of_task(const heed_pair_task *task, uint64_t seed, int64_t count, examples *out);
/* One pair, of arguments, which must stay; target NULL: there is none. */
void examples_of_texts(const char *name, const char *source, const char *target, examples *out);
/* Of a file that says nothing else every tenth pair is for validation: moves those to `out`. Their texts stay with `from`, which must stay. */
void examples_divide(examples *from, examples *out);
/* Says what is wrong with a side of an example, and where it stands. Returns the exit code. */
int example_wrong(const examples *all, const example *e, bool target, const char *reason);

typedef struct examples_values {
  const char *pairs, *targets; /* NULL: what was kept from training */
  int64_t count;               /* of a task, or at most so many of a file; 0: as usual */
} examples_values;

/* Of what the model in the directory was trained on, unless a file is named. */
int examples_open(heed_context *context, const char *directory, const examples_values *v, uint64_t seed, examples *out);

/* Reference alignments of a file, a line each as Pharaoh writes them. */
int examples_read_links(heed_context *context, const char *path, examples *to);

#endif
