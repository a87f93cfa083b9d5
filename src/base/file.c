/* file.c: reading and writing whole files with every failure named. */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* What goes past the page cache in one call: Linux moves at most 2 GiB at once, and signals then interrupt sooner. */
enum { CHUNK_BYTES = 1 << 28 };

heed_status hd_file_open(heed_context *context, const char *path, hd_file *out) {
  struct stat info;
  // O_NONBLOCK: opening a pipe nobody writes to must not hang; it changes nothing for regular files.
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  HD_REQUIRE(descriptor >= 0, context, HEED_E_FILE, "%s: %s", path, strerror(errno));
  const char *problem = fstat(descriptor, &info) != 0 ? strerror(errno)
                        : S_ISDIR(info.st_mode)       ? "is a directory"
                        : !S_ISREG(info.st_mode)      ? "is not a regular file"
                                                      : NULL;
  if (problem) {
    close(descriptor);
    return hd_fail(context, HEED_E_FILE, "%s: %s", path, problem);
  }
  *out = (hd_file){.descriptor = descriptor, .size = info.st_size, .path = path};
  return HEED_OK;
}

void hd_file_close(hd_file *file) {
  if (file->path && file->descriptor >= 0) close(file->descriptor);
  file->path = NULL;
}

heed_status hd_file_read(heed_context *context, const hd_file *file, int64_t offset, int64_t bytes, void *out) {
  HD_REQUIRE(offset >= 0 && bytes >= 0 && offset <= file->size && bytes <= file->size - offset, context, HEED_E_FORMAT,
             "%s: truncated (%lld bytes wanted at offset %lld, the file has %lld)", file->path, (long long)bytes, (long long)offset,
             (long long)file->size);
  for (int64_t done = 0; done < bytes;) {
    ssize_t got = pread(file->descriptor, (char *)out + done, (size_t)HD_MIN(bytes - done, CHUNK_BYTES), offset + done);
    if (got < 0 && errno == EINTR) continue;
    HD_REQUIRE(got >= 0, context, HEED_E_FILE, "%s: read failed at offset %lld: %s", file->path, (long long)(offset + done),
               strerror(errno));
    HD_REQUIRE(got > 0, context, HEED_E_FORMAT, "%s: the file shrank while it was read (end at offset %lld, it had %lld bytes)", file->path,
               (long long)(offset + done), (long long)file->size);
    done += got;
  }
  return HEED_OK;
}

heed_status hd_file_load(heed_context *context, const char *path, int64_t limit, char **data, int64_t *size) {
  hd_file file = {0};
  heed_status status;
  char *memory = NULL;
  HD_TRY(hd_file_open(context, path, &file));
  if (file.size > limit) {
    status = hd_fail(context, HEED_E_FORMAT, "%s: too large (%lld bytes, allowed %lld)", path, (long long)file.size, (long long)limit);
    goto done;
  }
  HD_TRY_DONE(hd_allocate(context, "a file", file.size + 1, 1, &memory));
  HD_TRY_DONE(hd_file_read(context, &file, 0, file.size, memory));
  memory[file.size] = 0;
  *data = memory;
  *size = file.size;
done:
  if (status != HEED_OK) hd_release(context, memory, file.size + 1, 1);
  hd_file_close(&file);
  return status;
}

bool hd_is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool hd_file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

bool hd_ends_with(const char *path, const char *end) {
  size_t length = strlen(path), tail = strlen(end);
  return length >= tail && strcmp(path + length - tail, end) == 0;
}

heed_status hd_writer_begin(heed_context *context, const char *path, hd_writer *out) {
  struct stat info;
  bool exists = stat(path, &info) == 0;
  HD_REQUIRE(!exists || !S_ISDIR(info.st_mode), context, HEED_E_WRITE, "%s: is a directory", path);
  *out = (hd_writer){.context = context, .path = path, .descriptor = -1};
  const char *target = path;
  if (!exists || S_ISREG(info.st_mode)) {
    out->temporary_bytes = (int64_t)strlen(path) + 64;
    HD_TRY(hd_allocate(context, "a file name", out->temporary_bytes, 1, &out->temporary));
    // Unlike that of any other writer under way, in this process or another.
    snprintf(out->temporary, (size_t)out->temporary_bytes, "%s.part-%ld-%llx", path, (long)getpid(), (unsigned long long)(uintptr_t)out);
    target = out->temporary;
  }
  out->descriptor = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  // What replaces a file may be read by whom that file might. Where the system does not let us, the umask decides as for a new file.
  if (out->descriptor >= 0 && out->temporary && exists) (void)fchmod(out->descriptor, info.st_mode & 0777);
  if (out->descriptor >= 0) return HEED_OK;
  heed_status status = hd_fail(context, HEED_E_WRITE, "%s: %s", path, strerror(errno));
  hd_release(context, out->temporary, out->temporary_bytes, 1);
  out->temporary = NULL;
  return status;
}

heed_status hd_writer_write(hd_writer *writer, const void *data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    ssize_t put = write(writer->descriptor, (const char *)data + done, (size_t)HD_MIN(bytes - done, CHUNK_BYTES));
    if (put < 0 && errno == EINTR) continue;
    HD_REQUIRE(put > 0, writer->context, HEED_E_WRITE, "%s: %s after %lld bytes, %lld more to write", writer->path,
               put < 0 ? strerror(errno) : "no progress", (long long)writer->written, (long long)(bytes - done));
    done += put;
    writer->written += put;
  }
  return HEED_OK;
}

heed_status hd_writer_commit(hd_writer *writer) {
  heed_status status = HEED_OK;
  // Only a regular file can be synced; a pipe says EINVAL and has nothing to lose.
  if (writer->temporary && fsync(writer->descriptor) != 0)
    status = hd_fail(writer->context, HEED_E_WRITE, "%s: %s", writer->path, strerror(errno));
  if (close(writer->descriptor) != 0 && status == HEED_OK)
    status = hd_fail(writer->context, HEED_E_WRITE, "%s: %s", writer->path, strerror(errno));
  writer->descriptor = -1;
  if (status == HEED_OK && writer->temporary && rename(writer->temporary, writer->path) != 0)
    status = hd_fail(writer->context, HEED_E_WRITE, "%s: %s", writer->path, strerror(errno));
  if (status == HEED_OK) {
    hd_release(writer->context, writer->temporary, writer->temporary_bytes, 1);
    writer->temporary = NULL;
  }
  hd_writer_abandon(writer);
  return status;
}

void hd_writer_abandon(hd_writer *writer) {
  if (writer->descriptor >= 0) close(writer->descriptor);
  writer->descriptor = -1;
  if (writer->temporary) {
    unlink(writer->temporary);
    hd_release(writer->context, writer->temporary, writer->temporary_bytes, 1);
    writer->temporary = NULL;
  }
}
