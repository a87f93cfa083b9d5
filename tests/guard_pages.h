/* guard_pages.h: arrays between two unreadable pages, so that a read or write beyond either end stops the test. */
#ifndef HEED_GUARD_PAGES_H
#define HEED_GUARD_PAGES_H

#include "test.h"

#include "../src/base/base.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
  char *map; /* NULL: nothing */
  size_t bytes;
} guarded;

/* Moves the view's array between two unreadable pages: against the one behind it, or against the one before it. */
static inline guarded guard(heed_view *view, bool behind) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), need = (size_t)hd_view_count(view) * heed_type_bytes(view->type);
  size_t used = (need + page - 1) / page * page;
  guarded g = {.bytes = used + 2 * page};
  g.map = mmap(NULL, g.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(g.map != MAP_FAILED && (!used || mprotect(g.map + page, used, PROT_READ | PROT_WRITE) == 0));
  char *at = behind ? g.map + page + used - need : g.map + page;
  if (need) memcpy(at, view->data, need);
  view->data = at;
  return g;
}

static inline void guard_free(guarded *g) {
  if (g->map) munmap(g->map, g->bytes);
}

/* Memory of so many bytes that ends where an unreadable page begins. */
static inline void *before_guard(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  unsigned char *map = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(map != MAP_FAILED);
  assert_int_equal(mprotect(map + whole, page, PROT_NONE), 0);
  return map + whole - bytes;
}

static inline void before_guard_free(void *memory, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  munmap((unsigned char *)memory + bytes - whole, whole + page);
}

#endif
