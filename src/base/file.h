/* file.h: whole files in, whole files out.
 *
 * Files are read into memory, not mapped: a file that shrinks while it is mapped kills the process with SIGBUS. A file is written beside its name, synced
 * and renamed, so the old one stays good until the new one is complete. */
#ifndef HD_FILE_H
#define HD_FILE_H

#include "base.h"

typedef struct hd_file {
  int descriptor;
  int64_t size;     /* when it was opened */
  const char *path; /* the caller's string */
} hd_file;

/* Opens for reading; a directory, a pipe or a missing file is HEED_E_FILE with one sentence that starts with the path. */
heed_status hd_file_open(heed_context *context, const char *path, hd_file *out);
void hd_file_close(hd_file *file);
/* Reads exactly `bytes` at `offset`; a range beyond the size, or a file that has shrunk, is HEED_E_FORMAT. */
heed_status hd_file_read(heed_context *context, const hd_file *file, int64_t offset, int64_t bytes, void *out);
/* The whole file, plus one NUL that is not counted; at most `limit` bytes (HEED_E_FORMAT beyond). Release with hd_release(context, data, size + 1, 1). */
heed_status hd_file_load(heed_context *context, const char *path, int64_t limit, char **data, int64_t *size);
bool hd_is_directory(const char *path);
bool hd_file_exists(const char *path);
bool hd_ends_with(const char *path, const char *end);
/* DIRECTORY/NAME, with room for what follows; release with hd_release(context, path, *room, 1). */
heed_status hd_join_path(heed_context *context, const char *directory, const char *name, char **path, int64_t *room);

/* What writing asks of the system: a table, so that a test can let any step fail. Each returns −1 with errno set where it fails. */
typedef struct hd_file_system {
  void *user;
  int (*create)(void *user, const char *path); /* an empty file, open for writing */
  ptrdiff_t (*write)(void *user, int descriptor, const void *data, size_t bytes);
  int (*sync)(void *user, int descriptor);
  int (*close)(void *user, int descriptor);
  int (*rename)(void *user, const char *from, const char *to);
  int (*remove)(void *user, const char *path); /* a file or an empty directory */
  int (*make_directory)(void *user, const char *path);
  int (*sync_directory)(void *user, const char *path); /* what was created, renamed and removed in it stays */
  int64_t (*room)(void *user, const char *path);       /* bytes that can still be written where path lies */
} hd_file_system;
extern const hd_file_system hd_machine;

/* Writing aside: begin, write any number of times, then commit or abandon. After a failing write only abandon is useful. */
typedef struct hd_writer {
  heed_context *context;
  const hd_file_system *system;
  const char *path; /* the caller's string */
  char *temporary;  /* beside it */
  int64_t temporary_bytes;
  int descriptor;
  int64_t written;
  int64_t planned; /* bytes that are to be written in all, this file and what follows it, for the message of a full disk; 0: unknown */
} hd_writer;
/* A path that names something that is not a regular file (/dev/stdout, a pipe) is written to directly. */
heed_status hd_writer_begin(heed_context *context, const char *path, hd_writer *out);
heed_status hd_writer_begin_on(heed_context *context, const hd_file_system *system, const char *path, hd_writer *out);
/* HEED_E_WRITE says how many bytes are missing when the disk is full. */
heed_status hd_writer_write(hd_writer *writer, const void *data, int64_t bytes);
heed_status hd_writer_commit(hd_writer *writer);
void hd_writer_abandon(hd_writer *writer);

#endif
