/* draws.c: orders drawn by chance, and what is kept from training. */
#include "draws.h"

/* A Feistel network over 2^(2 · half) places, walked until it comes out below count, is a permutation without a table. */
int64_t hd_shuffled(uint64_t seed, uint64_t stream, int64_t i, int64_t count) {
  enum { TURNS = 4 };
  int half = 1;
  while (half < 31 && (int64_t)1 << (2 * half) < count) half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t at = (uint64_t)i;
  do {
    uint64_t left = at >> half, right = at & mask;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
      const uint64_t mixed = (uint64_t)(hd_philox_uniform(seed, stream, (right << 2 | turn)) * (double)(mask + 1));
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    at = left << half | right;
  } while (at >= (uint64_t)count);
  return (int64_t)at;
}

enum { HELD_OUT_IN = 10 };

/* FNV-1a. */
bool hd_is_held_out(const char *question, int64_t length) {
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)question[i]) * 1099511628211u;
  return (hash >> 32) % HELD_OUT_IN == 0;
}
