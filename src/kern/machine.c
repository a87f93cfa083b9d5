/* machine.c: what this machine reaches right now: multiply-adds in registers and reads of main memory, on the context's level and threads. */
#include "kernels.h"
#include "../../include/heed/heed.h"

#include <stddef.h>

/* A thread's share of the memory that is read: together more than the last-level caches of large servers, or the figure would be theirs. Far fewer than MAX_READERS threads
 * already fill a memory's bandwidth. */
enum { READ_BYTES = 256 << 20, MAX_READERS = 64 };

/* Rounds of a run that is long beside the start of a thread: about a tenth of a millisecond. */
enum { SHORT_ROUNDS = 50000 };

struct work {
  const hd_kernels *kernels;
  int64_t rounds;
  float *data[MAX_READERS];
};

/* A result that is used, so that the compiler keeps the work. */
static void keep(float result) {
  volatile float sink = result;
  (void)sink;
}

static void run_peak(void *argument, int64_t i, int worker) {
  const struct work *work = argument;
  (void)i;
  (void)worker;
  keep(work->kernels->peak(work->rounds));
}

static void run_read(void *argument, int64_t i, int worker) {
  const struct work *work = argument;
  (void)worker;
  keep(work->kernels->read(work->data[i], READ_BYTES / (int64_t)sizeof(float)));
}

/* The best rate of as many runs as fit in the time: interference only ever slows a run down. */
static double best_rate(heed_context *context, heed_parallel_body body, struct work *work, int pieces, double amount, double seconds) {
  double best = 0, end = hd_now() + seconds;
  do {
    double begin = hd_now();
    hd_parallel(context, pieces, body, work);
    best = HD_MAX(best, amount / HD_MAX(hd_now() - begin, 1e-9));
  } while (hd_now() < end);
  return best;
}

static heed_status measure_reads(heed_context *context, struct work *work, double seconds, double *out) {
  int readers = HD_MIN(context->threads, MAX_READERS);
  heed_status status = HEED_OK;
  for (int i = 0; i < readers && status == HEED_OK; i++) {
    status = hd_allocate(context, "bandwidth measurement", READ_BYTES, 1, &work->data[i]);
    if (status == HEED_OK) memset(work->data[i], 0, READ_BYTES);
  }
  if (status == HEED_OK) *out = best_rate(context, run_read, work, readers, (double)readers * READ_BYTES, seconds);
  for (int i = 0; i < readers; i++) hd_release(context, work->data[i], READ_BYTES, 1);
  return status;
}

heed_status heed_machine_measure(heed_context *context, double seconds, heed_machine *out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(out && out->size >= sizeof out->size, context, HEED_E_ARGUMENT, "heed_machine: null, or size not set");
  HD_REQUIRE(seconds >= 0 && seconds <= 3600, context, HEED_E_ARGUMENT, "seconds %g, allowed 0 to 3600", seconds);
  if (seconds == 0) seconds = 0.1;
  struct work work = {.kernels = hd_kernels_of(context)};
  int threads = context->threads;
  heed_machine result = {.size = out->size};

  // Each run a twentieth of the time: long enough that starting threads does not show. Its length comes from this thread alone and from the best of several
  // tries, because where threads wait for a processor a try says little.
  work.rounds = SHORT_ROUNDS;
  double rate = 0, amount = (double)work.rounds * work.kernels->peak_flops;
  for (int i = 0; i < 8; i++) {
    double begin = hd_now();
    run_peak(&work, 0, 0);
    rate = HD_MAX(rate, amount / HD_MAX(hd_now() - begin, 1e-9));
  }
  work.rounds = HD_MAX((int64_t)(rate / work.kernels->peak_flops * seconds / 20), SHORT_ROUNDS);
  result.peak_flops =
      best_rate(context, run_peak, &work, threads, (double)threads * (double)work.rounds * work.kernels->peak_flops, seconds / 2);

  heed_status status = HEED_OK;
  if (out->size > offsetof(heed_machine, read_bytes)) status = measure_reads(context, &work, seconds / 2, &result.read_bytes);
  if (status == HEED_OK) memcpy(out, &result, HD_MIN(out->size, sizeof result));
  return status;
}
