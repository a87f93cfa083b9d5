/* draws.h: what batches are drawn by: Philox under (seed, stream), so that any batch can be made again at any time. */
#ifndef HD_DRAWS_H
#define HD_DRAWS_H

#include "../base/philox.h"

/* Draws of one thing, such as a row of a batch. */
typedef struct hd_dice {
  uint64_t seed, stream, next;
} hd_dice;

static inline double hd_uniform(hd_dice *d) { return hd_philox_uniform(d->seed, d->stream, d->next++); }

/* A whole number in [0, below). */
static inline int64_t hd_roll(hd_dice *d, int64_t below) { return (int64_t)(hd_uniform(d) * (double)below); }

/* Place i of [0, count) in an order that is drawn for a stream. */
int64_t hd_shuffled(uint64_t seed, uint64_t stream, int64_t i, int64_t count);

/* Whether a question is kept from training: a tenth of them are, by a hash of their characters, so that no list is needed. */
bool hd_is_held_out(const char *question, int64_t length);

#endif
