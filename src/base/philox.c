/* philox.c: ten rounds of multiply, exchange and key schedule, as the paper's figure 2 gives them. */
#include "philox.h"

#include <math.h>

void hd_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)HD_PHILOX_M0 * c0, b = (uint64_t)HD_PHILOX_M1 * c2;
    uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    k0 += HD_PHILOX_W0;
    k1 += HD_PHILOX_W1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

double hd_philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}, words[4];
  hd_philox(counter, seed, words);
  uint64_t bits = ((uint64_t)words[0] << 32 | words[1]) >> 11;
  return (double)bits * 0x1p-53;
}

double hd_philox_normal(const uint32_t words[4]) {
  const double a = ((double)words[0] + ((double)words[1] + 0.5) * 0x1p-32) * 0x1p-32, b = (double)words[2] * 0x1p-32;
  return sqrt(-2 * log(a)) * cos(2 * acos(-1.0) * b);
}
