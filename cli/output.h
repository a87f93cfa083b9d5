/* output.h: where results go: standard output, whose every failure is noticed, and files that appear whole or not at all. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "console.h"

/* ---- standard output ----------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) void out(const char *format, ...);
void out_bytes(const void *data, size_t bytes);
/* EXIT_OK, or EXIT_FAILED with a message, once, if anything written so far could not be. main calls it last; streaming commands at every piece. */
int out_flush(void);
extern const heed_sink out_sink;

/* ---- files --------------------------------------------------------------------------------------------------------------- */

/* A file that is written under a temporary name beside its place and takes its place when it is complete. Path "-" is standard output, and what is not a
 * regular file (a pipe, /dev/null) is written directly. */
typedef struct output_file {
  const char *path;
  char *temporary;
  FILE *stream;
  int error; /* errno of the first failure */
} output_file;

/* A directory that is there, or made so that it stays. */
int output_directory(const char *path);
int output_open(const char *path, output_file *file);
heed_sink output_sink(output_file *file);
/* Ends the file: kept if code is EXIT_OK, thrown away otherwise. Returns code, or EXIT_FAILED with a message if the file could not be completed. */
int output_close(output_file *file, int code);

/* A new directory of the program's own, for files that the library reads and writes by name; it goes with all that lies in it. */
enum { SCRATCH_MAX = 512 };
int scratch_open(char path[SCRATCH_MAX]);
void scratch_close(const char *path); /* "": there is none */

/* From here on `out` writes to this file; NULL: to standard output again. */
void out_into(output_file *file);

/* Copies a file to standard output. */
int out_file(const char *path);

/* ".html" of "a/b.html"; "" where there is none. */
const char *path_suffix(const char *path);

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

/* A token so that every byte can be seen in one line: ␠ for a space at either end, ⏎ ⇥ for line ends and tabs, <0xE2> for what is not UTF-8.
 * Writes at most size − 1 bytes and a NUL, returns the columns used (one per character). */
int visible_token(heed_text token, char *buffer, size_t size);
/* The length in bytes of the valid UTF-8 character at text, or 0. */
size_t utf8_length(const char *text, size_t length);
enum { VISIBLE_MAX = 256 };

#endif
