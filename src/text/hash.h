/* hash.h: the hash of the open-addressed tables of tokenizers. */
#ifndef HD_HASH_H
#define HD_HASH_H

#include "../base/base.h"

static inline uint64_t hd_hash_mix(uint64_t x) {
  // The finaliser of MurmurHash3: every bit of x reaches every bit of the result.
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDu;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53u;
  return x ^ x >> 33;
}

static inline uint32_t hd_hash_text(const char *data, size_t length) {
  uint64_t hash = length;
  for (; length >= 8; data += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    hash = hd_hash_mix(hash ^ word);
  }
  uint64_t rest = 0;
  for (size_t i = 0; i < length; i++) rest |= (uint64_t)(unsigned char)data[i] << 8 * i;
  return (uint32_t)hd_hash_mix(hash ^ rest);
}

static inline uint32_t hd_hash_pair(int32_t left, int32_t right) {
  return (uint32_t)hd_hash_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

/* The smallest power of two that `entries` fill to three quarters at most. */
static inline int64_t hd_table_size(int64_t entries) {
  int64_t size = 8;
  while (size - size / 4 < entries) size *= 2;
  return size;
}

#endif
