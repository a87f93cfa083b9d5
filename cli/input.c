/* input.c: reading to the end of something whose length nobody knows: room grows twofold. */
#include "input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int read_stream(FILE *stream, const char *name, char **out, size_t *length) {
  size_t used = 0, room = 1 << 16;
  char *data = malloc(room);
  errno = 0;
  while (data && !feof(stream) && !ferror(stream)) {
    used += fread(data + used, 1, room - 1 - used, stream);
    if (used < room - 1) continue;
    char *larger = realloc(data, room *= 2);
    if (!larger) free(data);
    data = larger;
  }
  if (!data) return error_of(EXIT_NO_MEMORY, "%s: out of memory after %zu bytes", name, used);
  data[used] = 0;
  *out = data;
  *length = used;
  if (interrupted()) return EXIT_INTERRUPTED;
  return ferror(stream) ? error_of(EXIT_BAD_FILE, "%s: cannot be read (%s)", name, strerror(errno)) : EXIT_OK;
}

int read_whole_file(const char *path, char **out, size_t *length) {
  if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", out, length);
  FILE *file = fopen(path, "rb");
  if (!file) return error_of(EXIT_BAD_FILE, "%s: cannot be opened (%s)", path, strerror(errno));
  int code = read_stream(file, path, out, length);
  fclose(file);
  return code;
}
