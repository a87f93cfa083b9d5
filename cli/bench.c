/* bench.c: blocks of measurements, their medians and quartiles. */
#include "bench.h"

#include "arrays.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int measure(const blocks *b, heed_machine *machine) {
  *machine = (heed_machine){.size = b->reads ? sizeof *machine : offsetof(heed_machine, read_bytes)};
  return check(b->context, heed_machine_measure(b->context, b->machine_seconds, machine));
}

int blocks_begin(heed_context *context, double machine_seconds, bool reads, blocks *b) {
  *b = (blocks){.context = context, .machine_seconds = machine_seconds, .reads = reads};
  return measure(b, &b->before);
}

int blocks_add(blocks *b, double seconds, double beside) {
  heed_machine after;
  int code = measure(b, &after);
  if (code != EXIT_OK) return code;
  b->seconds[b->count] = seconds;
  b->beside[b->count] = beside;
  b->peak[b->count] = (b->before.peak_flops + after.peak_flops) / 2;
  b->read[b->count] = (b->before.read_bytes + after.read_bytes) / 2;
  b->before = after;
  b->count++;
  return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

/* The value below which a share of the sorted ones lies. */
static double quantile(const double *sorted, int count, double share) {
  double at = share * (count - 1);
  int below = (int)at, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

quartiles quartiles_of(const double *values, int count) {
  double sorted[VALUES_MAX];
  memcpy(sorted, values, (size_t)count * sizeof *values);
  sort_numbers(sorted, count);
  return (quartiles){quantile(sorted, count, 0.25), quantile(sorted, count, 0.5), quantile(sorted, count, 0.75)};
}

static quartiles share_of(const blocks *b, double amount, const double *rates) {
  double shares[BLOCKS_MAX];
  for (int i = 0; i < b->count; i++) shares[i] = amount / b->seconds[i] / rates[i];
  return quartiles_of(shares, b->count);
}

quartiles blocks_seconds(const blocks *b) { return quartiles_of(b->seconds, b->count); }
quartiles blocks_peak(const blocks *b) { return quartiles_of(b->peak, b->count); }
quartiles blocks_read(const blocks *b) { return quartiles_of(b->read, b->count); }
quartiles blocks_of_peak(const blocks *b, double flops) { return share_of(b, flops, b->peak); }
quartiles blocks_beside(const blocks *b) {
  double times[BLOCKS_MAX];
  for (int i = 0; i < b->count; i++) times[i] = b->beside[i] / b->seconds[i];
  return quartiles_of(times, b->count);
}

quartiles blocks_of_read(const blocks *b, double bytes) { return share_of(b, bytes, b->read); }
