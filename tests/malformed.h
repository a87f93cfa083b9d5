/* malformed.h: what the tests of file readers share: files made of pieces, an allocator that counts and can fail, and the demands on a
 * refusal.
 *
 * A malformed file is a valid one plus one edit, so that the edit is what fails. A refusal must have the right status and one line that
 * starts with the file and holds a given fragment, take under 50 ms of processor time, allocate no more than the file and 1 MiB at once,
 * and leave nothing behind. */
#ifndef HEED_MALFORMED_H
#define HEED_MALFORMED_H

#include "folder.h"

#include "../src/base/philox.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- bytes ----------------------------------------------------------------------------------------------------------------- */

typedef struct bytes {
  unsigned char *data;
  size_t size, capacity;
} bytes;

static inline void put(bytes *b, const void *data, size_t size) {
  if (b->size + size > b->capacity) {
    b->capacity = 2 * (b->size + size) + 64;
    b->data = realloc(b->data, b->capacity);
    assert_non_null(b->data);
  }
  if (size) memcpy(b->data + b->size, data, size);
  b->size += size;
}

static inline void put_text(bytes *b, const char *text) { put(b, text, strlen(text)); }
static inline void put_fill(bytes *b, int value, size_t count) {
  for (size_t i = 0; i < count; i++) put(b, &(unsigned char){(unsigned char)value}, 1);
}
static inline void put_little(bytes *b, uint64_t value, int size) {
  for (int i = 0; i < size; i++) put(b, &(unsigned char){(unsigned char)(value >> (8 * i))}, 1);
}
static inline void put_u32(bytes *b, uint32_t value) { put_little(b, value, 4); }
static inline void put_u64(bytes *b, uint64_t value) { put_little(b, value, 8); }
static inline void bytes_free(bytes *b) {
  free(b->data);
  *b = (bytes){0};
}

/* text with the one occurrence of `from` replaced; free it. */
static inline char *edited(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  assert_non_null(at);
  assert_null(strstr(at + 1, from));
  char *out = malloc(strlen(text) - strlen(from) + strlen(to) + 1);
  assert_non_null(out);
  memcpy(out, text, (size_t)(at - text));
  strcpy(out + (at - text), to);
  strcat(out, at + strlen(from));
  return out;
}

/* ---- the allocator -------------------------------------------------------------------------------------------------------------- */

typedef struct meter {
  size_t largest, live;
  int64_t calls, fail_at; /* fail_at 0: never; else the call with that number (from 1) fails */
} meter;

static inline void *meter_allocate(void *user, size_t size, size_t alignment) {
  meter *m = user;
  if (++m->calls == m->fail_at) return NULL;
  // Everything asked for counts, whether the machine has it or not.
  if (size > m->largest) m->largest = size;
  void *memory = size < (size_t)1 << 40 ? aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment) : NULL;
  if (memory) {
    m->live += size;
    memset(memory, 0xa5, size < 4096 ? size : 4096); // nobody may count on zeros
  }
  return memory;
}

static inline void meter_release(void *user, void *memory, size_t size) {
  ((meter *)user)->live -= size;
  free(memory);
}

static inline heed_context *metered_context(meter *m) {
  return test_context(&(heed_options){
      .size = sizeof(heed_options), .threads = 1, .allocator = {.user = m, .allocate = meter_allocate, .release = meter_release}});
}

/* ---- demands -------------------------------------------------------------------------------------------------------------------- */

/* Opens the file and closes it again. */
typedef heed_status (*reader_fn)(heed_context *context, const char *path);

static inline double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const double time_limit = SANITIZED ? 0.5 : 0.05;

typedef struct demand {
  heed_status status;
  const char *fragment; /* of the message; NULL where the status is HEED_OK */
  double seconds;       /* 0: 50 ms */
  size_t allocation;    /* 0: the file and 1 MiB */
} demand;

/* Runs the reader on a file that exists, and checks every demand. */
static inline void check_file(reader_fn reader, const char *path, demand wanted) {
  struct stat info = {0};
  meter m = {0};
  stat(path, &info);
  heed_context *context = metered_context(&m);
  const size_t before = m.live, limit = wanted.allocation ? wanted.allocation : (size_t)info.st_size + (1 << 20);
  m.largest = 0;
  double start = processor_seconds();
  heed_status status = reader(context, path);
  double seconds = processor_seconds() - start;
  const char *message = heed_error(context);
  if (status != wanted.status)
    fail_msg("%s, expected %s (\"%s\"): %s", heed_status_name(status), heed_status_name(wanted.status),
             wanted.fragment ? wanted.fragment : "", message);
  if (status != HEED_OK) {
    if (!strstr(message, wanted.fragment)) fail_msg("\"%s\" does not say \"%s\"", message, wanted.fragment);
    if (strncmp(message, test_folder, strlen(test_folder)) != 0) fail_msg("\"%s\" does not start with its file", message);
    for (const char *c = message; *c; c++)
      if ((unsigned char)*c < 0x20) fail_msg("\"%s\" is not one printable line", message);
    if (seconds > (wanted.seconds > 0 ? wanted.seconds : time_limit)) fail_msg("%.0f ms for \"%s\"", 1000 * seconds, message);
    if (m.largest > limit) fail_msg("%zu bytes at once, allowed %zu, for \"%s\"", m.largest, limit, message);
  }
  if (m.live != before) fail_msg("%zu bytes leaked after \"%s\"", m.live - before, message);
  heed_context_free(context);
}

/* The n-th allocation fails, n = 1, 2, ..., until the reader gets through: each failure is HEED_E_MEMORY and leaves nothing behind. */
static inline void check_out_of_memory(reader_fn reader, const char *path) {
  heed_status status = HEED_E_MEMORY;
  int64_t n = 0;
  while (status != HEED_OK) {
    meter m = {0};
    heed_context *context = metered_context(&m);
    const size_t before = m.live;
    m.fail_at = m.calls + ++n;
    status = reader(context, path);
    if (status != HEED_OK && status != HEED_E_MEMORY)
      fail_msg("allocation %d: %s: %s", (int)n, heed_status_name(status), heed_error(context));
    if (m.live != before) fail_msg("allocation %d: %zu bytes leaked", (int)n, m.live - before);
    heed_context_free(context);
    assert_true(n < 10000);
  }
  assert_true(n > 1);
}

/* Spoils one to four bytes among the first `range` of a valid file, `count` times over, each time anew. The reader may accept or refuse
 * the result; it must stay within its memory (a sanitizer build sees more), leave nothing behind, and say something when it refuses. The
 * same seed spoils the same bytes. */
static inline void check_mutations(reader_fn reader, const char *path, int64_t range, int count) {
  enum { SPOILED = 4 };
  int64_t refused = 0;
  meter m = {0};
  heed_context *context = metered_context(&m); // one for all: asking the processor what it can do is slow on a virtual machine
  const size_t before = m.live;
  int file = open(path, O_RDWR | O_CLOEXEC);
  assert_true(file >= 0);
  for (int i = 0; i < count; i++) {
    uint32_t words[4];
    unsigned char old[SPOILED];
    off_t at[SPOILED];
    hd_philox((uint32_t[4]){(uint32_t)i}, 7, words);
    const int spoiled = 1 + (int)(words[0] >> 30);
    for (int k = 0; k < spoiled; k++) {
      at[k] = (off_t)(words[k] % (uint32_t)range);
      assert_int_equal(pread(file, &old[k], 1, at[k]), 1);
      // A new byte, a flipped bit, or an extreme.
      const unsigned char byte = (unsigned char)(words[k] >> 20), kind = (unsigned char)(words[3] >> (8 * k)) % 4;
      const unsigned char with = kind == 0 ? byte : kind == 1 ? (unsigned char)(old[k] ^ 1 << (byte & 7)) : kind == 2 ? 0xff : 0;
      assert_int_equal(pwrite(file, &with, 1, at[k]), 1);
    }
    heed_status status = reader(context, path);
    refused += status != HEED_OK;
    if (status != HEED_OK && status != HEED_E_FORMAT && status != HEED_E_UNSUPPORTED && status != HEED_E_ARGUMENT)
      fail_msg("mutation %d: %s: %s", i, heed_status_name(status), heed_error(context));
    if (status != HEED_OK && !*heed_error(context)) fail_msg("mutation %d: refused without a reason", i);
    if (m.live != before) fail_msg("mutation %d: %zu bytes leaked", i, m.live - before);
    for (int k = spoiled - 1; k >= 0; k--) assert_int_equal(pwrite(file, &old[k], 1, at[k]), 1);
  }
  close(file);
  heed_context_free(context);
  assert_true(refused > count / 4);
}

#endif
