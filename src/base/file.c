/* file.c: reading and writing whole files with every failure named. */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
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

heed_status hd_join_path(heed_context *context, const char *directory, const char *name, char **path, int64_t *room) {
  *room = (int64_t)(strlen(directory) + strlen(name) + 2);
  HD_TRY(hd_allocate(context, "a path", *room, 1, path));
  snprintf(*path, (size_t)*room, "%s/%s", directory, name);
  return HEED_OK;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static int machine_create(void *user, const char *path) {
  (void)user;
  return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static ptrdiff_t machine_write(void *user, int descriptor, const void *data, size_t bytes) {
  (void)user;
  return write(descriptor, data, bytes);
}

static int machine_sync(void *user, int descriptor) {
  (void)user;
  return fsync(descriptor);
}

static int machine_close(void *user, int descriptor) {
  (void)user;
  return close(descriptor);
}

static int machine_rename(void *user, const char *from, const char *to) {
  (void)user;
  return rename(from, to);
}

static int machine_remove(void *user, const char *path) {
  (void)user;
  return remove(path);
}

static int machine_make_directory(void *user, const char *path) {
  (void)user;
  return mkdir(path, 0777);
}

static int machine_sync_directory(void *user, const char *path) {
  (void)user;
  int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  int result = fsync(descriptor), problem = errno;
  close(descriptor);
  errno = problem;
  // Some network file systems cannot sync a directory and say EINVAL; they have nothing to offer in its place.
  return result != 0 && problem != EINVAL ? -1 : 0;
}

static int64_t machine_room(void *user, const char *path) {
  struct statvfs info;
  (void)user;
  return statvfs(path, &info) == 0 ? (int64_t)(info.f_bavail * info.f_frsize) : -1;
}

const hd_file_system hd_machine = {
    NULL,           machine_create, machine_write,          machine_sync,           machine_close,
    machine_rename, machine_remove, machine_make_directory, machine_sync_directory, machine_room,
};

/* After a failed step, errno says why; `left` bytes of this call are not written. */
static heed_status write_failed(const hd_writer *writer, int64_t left) {
  const int problem = errno;
  const char *place = writer->temporary ? writer->temporary : writer->path;
  left = HD_MAX(left, writer->planned - writer->written);
  const int64_t room = problem == ENOSPC ? writer->system->room(writer->system->user, place) : -1;
  if (room >= 0 && left > room)
    return hd_fail(writer->context, HEED_E_WRITE, "%s: the disk is full: %lld bytes are missing (%lld more to write, %lld free)",
                   writer->path, (long long)(left - room), (long long)left, (long long)room);
  return hd_fail(writer->context, HEED_E_WRITE, "%s: %s after %lld bytes, %lld more to write", writer->path, strerror(problem),
                 (long long)writer->written, (long long)left);
}

heed_status hd_writer_begin(heed_context *context, const char *path, hd_writer *out) {
  return hd_writer_begin_on(context, &hd_machine, path, out);
}

heed_status hd_writer_begin_on(heed_context *context, const hd_file_system *system, const char *path, hd_writer *out) {
  struct stat info;
  bool exists = stat(path, &info) == 0;
  HD_REQUIRE(!exists || !S_ISDIR(info.st_mode), context, HEED_E_WRITE, "%s: is a directory", path);
  *out = (hd_writer){.context = context, .system = system, .path = path, .descriptor = -1};
  const char *target = path;
  if (!exists || S_ISREG(info.st_mode)) {
    out->temporary_bytes = (int64_t)strlen(path) + 64;
    HD_TRY(hd_allocate(context, "a file name", out->temporary_bytes, 1, &out->temporary));
    // Unlike that of any other writer under way, in this process or another.
    snprintf(out->temporary, (size_t)out->temporary_bytes, "%s.part-%ld-%llx", path, (long)getpid(), (unsigned long long)(uintptr_t)out);
    target = out->temporary;
  }
  out->descriptor = system->create(system->user, target);
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
    const size_t piece = (size_t)HD_MIN(bytes - done, CHUNK_BYTES);
    ptrdiff_t put = writer->system->write(writer->system->user, writer->descriptor, (const char *)data + done, piece);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = EIO; // no progress
    if (put <= 0) return write_failed(writer, bytes - done);
    done += put;
    writer->written += put;
  }
  return HEED_OK;
}

heed_status hd_writer_commit(hd_writer *writer) {
  const hd_file_system *system = writer->system;
  heed_status status = HEED_OK;
  // Only a regular file can be synced; a pipe says EINVAL and has nothing to lose.
  if (writer->temporary && system->sync(system->user, writer->descriptor) != 0) status = write_failed(writer, 0);
  if (system->close(system->user, writer->descriptor) != 0 && status == HEED_OK) status = write_failed(writer, 0);
  writer->descriptor = -1;
  if (status == HEED_OK && writer->temporary && system->rename(system->user, writer->temporary, writer->path) != 0)
    status = write_failed(writer, 0);
  if (status == HEED_OK) {
    hd_release(writer->context, writer->temporary, writer->temporary_bytes, 1);
    writer->temporary = NULL;
  }
  hd_writer_abandon(writer);
  return status;
}

void hd_writer_abandon(hd_writer *writer) {
  const hd_file_system *system = writer->system;
  if (writer->descriptor >= 0) system->close(system->user, writer->descriptor);
  writer->descriptor = -1;
  if (writer->temporary) {
    system->remove(system->user, writer->temporary);
    hd_release(writer->context, writer->temporary, writer->temporary_bytes, 1);
    writer->temporary = NULL;
  }
}
