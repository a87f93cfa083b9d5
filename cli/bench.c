/* bench.c: blocks of measurements and their medians. */
#include "bench.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const double MACHINE_SECONDS = 0.1; // a scheduler hands out milliseconds; a probe must see several of its turns

static int measure(heed_context *context, bool reads, heed_machine *machine) {
  *machine = (heed_machine){.size = reads ? sizeof *machine : offsetof(heed_machine, read_bytes)};
  return check(context, heed_machine_measure(context, MACHINE_SECONDS, machine));
}

int blocks_begin(heed_context *context, bool reads, blocks *b) {
  *b = (blocks){.context = context, .reads = reads};
  return measure(context, reads, &b->before);
}

int blocks_add(blocks *b, double seconds) {
  heed_machine after;
  int code = measure(b->context, b->reads, &after);
  if (code != EXIT_OK) return code;
  b->seconds[b->count] = seconds;
  b->peak[b->count] = (b->before.peak_flops + after.peak_flops) / 2;
  b->read[b->count] = (b->before.read_bytes + after.read_bytes) / 2;
  b->before = after;
  b->count++;
  return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median_of(const double *values, int count) {
  double sorted[VALUES_MAX];
  memcpy(sorted, values, (size_t)count * sizeof *values);
  qsort(sorted, (size_t)count, sizeof *sorted, ascending);
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double median_share(const blocks *b, double amount, const double *rates) {
  double shares[BLOCKS_MAX];
  for (int i = 0; i < b->count; i++) shares[i] = amount / b->seconds[i] / rates[i];
  return median_of(shares, b->count);
}

double blocks_seconds(const blocks *b) { return median_of(b->seconds, b->count); }
double blocks_peak(const blocks *b) { return median_of(b->peak, b->count); }
double blocks_read(const blocks *b) { return median_of(b->read, b->count); }
double blocks_of_peak(const blocks *b, double flops) { return median_share(b, flops, b->peak); }
double blocks_of_read(const blocks *b, double bytes) { return median_share(b, bytes, b->read); }
