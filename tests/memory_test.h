/* memory_test.h: contexts of every level, and memory with a guard page behind it. */
#ifndef HEED_MEMORY_TEST_H
#define HEED_MEMORY_TEST_H

#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

/* A context of the level, or NULL where this machine lacks it. */
static inline heed_context *context_of(heed_level level, int threads) {
  if (!heed_level_available(level)) return NULL;
  return test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads});
}

/* bytes bytes that end where a page begins that must not be touched: reading or writing beyond them stops the test. */
static inline void *guarded(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  unsigned char *map = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(map != MAP_FAILED);
  assert_int_equal(mprotect(map + whole, page, PROT_NONE), 0);
  return map + whole - bytes;
}

static inline void unguard(void *memory, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  munmap((unsigned char *)memory + bytes - whole, whole + page);
}

#endif
