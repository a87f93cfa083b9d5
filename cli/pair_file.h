/* pair_file.h: files of sentence pairs.
 *
 * A pair a line: SOURCE, tab, TARGET in one file, or two files whose lines belong to each other. */
#ifndef CLI_PAIR_FILE_H
#define CLI_PAIR_FILE_H

#include "console.h"

#include "heed/text.h"

typedef struct sentence_pair {
  heed_text source, target;
} sentence_pair;

typedef struct pair_file {
  const char *path, *target_path; /* target_path NULL: both sides in one file */
  char *bytes, *target_bytes;     /* that the texts point into */
  sentence_pair *pairs;           /* [count] number i is line i + 1 */
  int64_t count;
} pair_file;

/* Whether a side holds nothing but spaces. */
bool side_is_blank(heed_text text);
/* Every line is a pair, and its sides hold more than spaces. Messages name the file and the line. */
int pair_file_read(const char *path, const char *target_path, pair_file *out);
void pair_file_free(pair_file *file);

#endif
