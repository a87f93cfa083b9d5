/* bench.h: how the bench commands measure: as ratios to what the machine reaches in the same moment.
 *
 * Shared machines drift by a factor of two within seconds, so a speed alone says little. Every timed block stands between two measurements of the machine and is
 * divided by their mean; results are medians over blocks. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "output.h"

/* count in [1, VALUES_MAX]. */
enum { VALUES_MAX = 1024 };
double median_of(const double *values, int count);

/* Many blocks of one thing. */
enum { BLOCKS_MAX = 64 };
typedef struct blocks {
  heed_context *context;
  bool reads;          /* the read bandwidth is measured too */
  heed_machine before; /* the machine as last measured */
  int count;
  double seconds[BLOCKS_MAX]; /* of one call */
  double peak[BLOCKS_MAX];    /* flops a second around the block */
  double read[BLOCKS_MAX];    /* bytes a second around the block */
} blocks;

int blocks_begin(heed_context *context, bool reads, blocks *b);
/* Adds a block in which one call took `seconds` and measures the machine after it. */
int blocks_add(blocks *b, double seconds);

double blocks_seconds(const blocks *b); /* medians */
double blocks_peak(const blocks *b);
double blocks_read(const blocks *b);
double blocks_of_peak(const blocks *b, double flops); /* median of the share of the peak that a call of so many flops reached */
double blocks_of_read(const blocks *b, double bytes);

#endif
