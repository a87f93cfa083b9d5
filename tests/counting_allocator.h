/* counting_allocator.h: an allocator for a context of its own that counts what is held, and can refuse a request. */
#ifndef HEED_COUNTING_ALLOCATOR_H
#define HEED_COUNTING_ALLOCATOR_H

#include "test.h"

typedef struct ledger {
  int64_t now, peak, live, calls,
      budget; /* bytes held, most ever, blocks held, requests, how many are granted before one is refused (−1: all) */
} ledger;

static inline void *ledger_allocate(void *user, size_t bytes, size_t alignment) {
  ledger *l = user;
  l->calls++;
  if (l->budget == 0) return l->budget = -1, NULL;
  if (l->budget > 0) l->budget--;
  l->now += (int64_t)bytes;
  l->peak = l->now > l->peak ? l->now : l->peak;
  l->live++;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  memset(memory, 0xa5, bytes); // what was not set must not matter
  return memory;
}

static inline void ledger_release(void *user, void *memory, size_t bytes) {
  ledger *l = user;
  l->now -= (int64_t)bytes;
  l->live--;
  free(memory);
}

static inline heed_context *ledger_context(ledger *l, int threads) {
  *l = (ledger){.budget = -1};
  heed_options options = {.size = sizeof options, .threads = threads, .allocator = {l, ledger_allocate, ledger_release}};
  return test_context(&options);
}

#endif
