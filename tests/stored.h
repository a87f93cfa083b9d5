/* stored.h: random matrices as files store them, for tests. */
#ifndef HEED_TEST_STORED_H
#define HEED_TEST_STORED_H

#include "../src/base/storage.h"

#include <stdint.h>
#include <string.h>

/* Numerical Recipes' linear congruential generator. */
static inline uint32_t stored_random(uint32_t *seed) { return *seed = *seed * 1664525 + 1013904223; }
static inline float stored_float(uint32_t *seed) { return (float)(int32_t)stored_random(seed) * 0x1p-31f; }

/* Blocks of `elements` numbers of a type, with halves that are finite and not tiny. */
static inline void stored_blocks(uint32_t *seed, hd_storage storage, int64_t elements, unsigned char *out) {
  int64_t block = hd_storage_bytes(storage), blocks = elements / hd_storage_block(storage);
  for (int64_t i = 0; i < blocks * block; i++) out[i] = (unsigned char)(stored_random(seed) >> 24);
  for (int64_t i = 0; i < blocks; i++) {
    unsigned char *at = out + i * block;
    float value = stored_float(seed);
    double wide = value;
    uint16_t half = hd_f32_to_f16(value), other = hd_f32_to_f16(stored_float(seed)), brain = hd_f32_to_bf16(value);
    switch (storage) {
    case HD_F32: memcpy(at, &value, 4); break;
    case HD_F64: memcpy(at, &wide, 8); break;
    case HD_BF16: memcpy(at, &brain, 2); break;
    case HD_Q2_K: memcpy(at + 82, &other, 2), memcpy(at + 80, &half, 2); break;
    case HD_Q3_K: memcpy(at + 108, &half, 2); break;
    case HD_Q6_K: memcpy(at + 208, &half, 2); break;
    case HD_Q4_1:
    case HD_Q5_1:
    case HD_Q4_K:
    case HD_Q5_K: memcpy(at + 2, &other, 2), memcpy(at, &half, 2); break;
    default: memcpy(at, &half, 2); break;
    }
  }
}

#endif
