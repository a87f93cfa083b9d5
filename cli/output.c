/* output.c: standard output that notices a full disk, and files that appear whole or not at all. */
#define _GNU_SOURCE
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- standard output ----------------------------------------------------------------------------------------------------- */

static int out_error;     // errno of the first failed write
static bool out_reported; // so that the message comes once

static output_file *out_file_open; // NULL: standard output

void out_into(output_file *file) { out_file_open = file && file->stream ? file : NULL; }

static FILE *out_stream(void) { return out_file_open ? out_file_open->stream : stdout; }

/* Keeps the reason of the first failure of whatever `out` writes to. */
static void out_failed(void) {
  int *error = out_file_open ? &out_file_open->error : &out_error;
  if (!*error) *error = errno;
}

void out(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (vfprintf(out_stream(), format, arguments) < 0) out_failed();
  va_end(arguments);
}

void out_bytes(const void *data, size_t bytes) {
  if (bytes && fwrite(data, 1, bytes, out_stream()) != bytes) out_failed();
}

int out_flush(void) {
  if (fflush(stdout) != 0 && !out_error) out_error = errno;
  if (!out_error) return EXIT_OK;
  if (interrupted()) return EXIT_INTERRUPTED;
  if (!out_reported) error_of(EXIT_FAILED, "standard output: %s", strerror(out_error));
  out_reported = true;
  return EXIT_FAILED;
}

static bool out_write(void *user, const void *data, size_t bytes) {
  (void)user;
  out_bytes(data, bytes);
  return !out_error;
}

const heed_sink out_sink = {.write = out_write};

int out_file(const char *path) {
  char buffer[1 << 16];
  FILE *stream = fopen(path, "rb");
  if (!stream) return error_of(EXIT_FAILED, "%s: %s", path, strerror(errno));
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, stream)) > 0 && !out_error;) out_bytes(buffer, got);
  int code = ferror(stream) ? error_of(EXIT_FAILED, "%s: %s", path, strerror(errno)) : out_flush();
  fclose(stream);
  return code;
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

int output_open(const char *path, output_file *file) {
  struct stat info;
  *file = (output_file){.path = path};
  if (strcmp(path, "-") == 0) return EXIT_OK;
  if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) {
    size_t size = strlen(path) + 32;
    file->temporary = allocate("a file name", (int64_t)size, 1);
    snprintf(file->temporary, size, "%s.part-%ld", path, (long)getpid());
  }
  file->stream = fopen(file->temporary ? file->temporary : path, "wb");
  if (file->stream) return EXIT_OK;
  int code = error_of(EXIT_FAILED, "%s: %s", path, strerror(errno));
  free(file->temporary);
  return code;
}

static bool file_write(void *user, const void *data, size_t bytes) {
  output_file *file = user;
  if (bytes && fwrite(data, 1, bytes, file->stream) != bytes && !file->error) file->error = errno;
  return !file->error;
}

heed_sink output_sink(output_file *file) { return file->stream ? (heed_sink){.user = file, .write = file_write} : out_sink; }

int output_directory(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0) return S_ISDIR(info.st_mode) ? EXIT_OK : error_of(EXIT_FAILED, "%s: is not a directory", path);
  if (mkdir(path, 0777) != 0) return error_of(EXIT_FAILED, "%s: cannot be made (%s)", path, strerror(errno));
  // The entry must be as durable as what will be put into it. A system that cannot do that has nothing to offer in its place.
  char *copy = allocate("a path", (int64_t)strlen(path) + 4, 1);
  sprintf(copy, "%s/..", path);
  int parent = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) {
    (void)fsync(parent);
    close(parent);
  }
  free(copy);
  return EXIT_OK;
}

int output_close(output_file *file, int code) {
  if (!file->stream) return code;
  // A file that takes the place of another one must be there before the other one goes.
  if (code == EXIT_OK && file->temporary && (fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0) && !file->error)
    file->error = errno;
  if (fclose(file->stream) != 0 && !file->error) file->error = errno;
  if (code == EXIT_OK && !file->error && file->temporary && rename(file->temporary, file->path) != 0) file->error = errno;
  if (file->error && code == EXIT_OK) code = error_of(EXIT_FAILED, "%s: %s", file->path, strerror(file->error));
  if (file->temporary && code != EXIT_OK) unlink(file->temporary);
  free(file->temporary);
  *file = (output_file){0};
  return code;
}

int scratch_open(char path[SCRATCH_MAX]) {
  const char *base = getenv("TMPDIR");
  const int length = snprintf(path, SCRATCH_MAX, "%s/heed-XXXXXX", base && base[0] ? base : "/tmp");
  if (length < SCRATCH_MAX && mkdtemp(path)) return EXIT_OK;
  const int code = error_of(EXIT_FAILED, "%s: %s", path, strerror(length < SCRATCH_MAX ? errno : ENAMETOOLONG));
  path[0] = 0;
  return code;
}

void scratch_close(const char *path) {
  DIR *directory = path[0] ? opendir(path) : NULL;
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory));) (void)unlinkat(dirfd(directory), entry->d_name, 0); // "." and ".." cannot be
  closedir(directory);
  rmdir(path);
}

const char *path_suffix(const char *path) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
  return dot ? dot : "";
}

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

size_t utf8_length(const char *text, size_t length) {
  const unsigned char *b = (const unsigned char *)text;
  if (length == 0) return 0;
  if (b[0] < 0x80) return 1;
  size_t need = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
  if (b[0] < 0xc2 || b[0] > 0xf4 || need > length) return 0;
  for (size_t i = 1; i < need; i++)
    if ((b[i] & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
  if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f) || (b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] > 0x8f))
    return 0;
  return need;
}

int visible_token(heed_text token, char *buffer, size_t size) {
  size_t used = 0;
  int columns = 0;
  buffer[0] = 0;
  for (size_t i = 0; i < token.length;) {
    char piece[8];
    size_t length = utf8_length(token.data + i, token.length - i);
    unsigned char byte = (unsigned char)token.data[i];
    bool at_end = i == 0 || i + 1 == token.length;
    if (byte == ' ' && at_end) columns += 1, snprintf(piece, sizeof piece, "␠");
    else if (byte == '\n') columns += 1, snprintf(piece, sizeof piece, "⏎");
    else if (byte == '\t') columns += 1, snprintf(piece, sizeof piece, "⇥");
    else if (length == 0 || byte < 0x20 || byte == 0x7f) columns += 6, snprintf(piece, sizeof piece, "<0x%02X>", byte);
    else columns += 1, snprintf(piece, sizeof piece, "%.*s", (int)length, token.data + i);
    size_t bytes = strlen(piece);
    if (used + bytes >= size) break;
    memcpy(buffer + used, piece, bytes + 1);
    used += bytes;
    i += length ? length : 1;
  }
  return columns;
}
