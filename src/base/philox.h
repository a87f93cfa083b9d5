/* philox.h: Philox4x32-10, a counter-based generator: the same words for the same counter and key, whatever else was drawn before. Dropout and sampling use it, so that
 * results are independent of tiling, threads and order. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef HD_PHILOX_H
#define HD_PHILOX_H

#include "base.h"

/* The multipliers of the two products and what the key grows by a round: the golden ratio and sqrt(3) − 1. */
#define HD_PHILOX_M0 0xD2511F53u
#define HD_PHILOX_M1 0xCD9E8D57u
#define HD_PHILOX_W0 0x9E3779B9u
#define HD_PHILOX_W1 0xBB67AE85u

void hd_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]);

/* A double in [0,1) with 53 random bits: draw number `index` of stream `stream` under `seed`. */
double hd_philox_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* A standard normal number from the words of one draw: the cosine branch of Box and Muller's transform. */
double hd_philox_normal(const uint32_t words[4]);

#endif
