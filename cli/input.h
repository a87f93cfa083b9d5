/* input.h: all of what a file or a stream has to say. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "console.h"

/* For free(), with a NUL after the last byte. `name` is for messages. Ctrl-C ends the reading. */
int read_stream(FILE *stream, const char *name, char **out, size_t *length);
/* "-" is standard input. */
int read_whole_file(const char *path, char **out, size_t *length);

#endif
