/* parallel.c: the default parallel_for. Work is cut into pieces before it comes here and a piece's result never depends on who runs it, so pieces may go to threads in any
 * order; a shared counter hands them out, which keeps threads busy when pieces differ in cost (causal tiles do). */
#define _GNU_SOURCE
#include "base.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

int hd_processors(void) {
#ifdef __linux__
  // The affinity mask, not the machine: a container or taskset may allow fewer.
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return HD_MAX(CPU_COUNT(&set), 1);
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)HD_MIN(online, 4096) : 1;
}

double hd_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void hd_parallel_openmp(void *user, int threads, int64_t count, heed_parallel_body body, void *argument) {
  (void)user;
#ifdef _OPENMP
  // Inside the host's own parallel region more threads would only get in each other's way.
  if (threads > 1 && count > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)HD_MIN(threads, count))
    for (int64_t i = 0; i < count; i++) body(argument, i, omp_get_thread_num());
    return;
  }
#endif
  (void)threads;
  for (int64_t i = 0; i < count; i++) body(argument, i, 0);
}

int hd_workers(const heed_context *context, int64_t count) { return (int)HD_MAX(HD_MIN(context->threads, count), 1); }

void hd_parallel(heed_context *context, int64_t count, heed_parallel_body body, void *argument) {
  if (count <= 0) return;
  int workers = hd_workers(context, count);
  if (workers == 1) {
    for (int64_t i = 0; i < count; i++) body(argument, i, 0);
  } else {
    context->parallel_for(context->parallel_user, workers, count, body, argument);
  }
}

/* The one waited for is at work, so a short spin mostly does; then others may have the processor. */
void hd_wait_for(_Atomic int64_t *counter, int64_t value) {
  for (int spins = 0; atomic_load_explicit(counter, memory_order_acquire) < value; spins++)
    if (spins > 1000) sched_yield();
}
