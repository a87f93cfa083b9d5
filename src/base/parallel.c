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
    if (count <= threads) { // piece i on thread i, call after call
#pragma omp parallel for schedule(static, 1) num_threads((int)count)
      for (int64_t i = 0; i < count; i++) body(argument, i, omp_get_thread_num());
      return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
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
  if (workers > 1 && context->crew && hd_crew_run(context->crew, workers, count, body, argument)) return;
  if (workers == 1 || context->crew) {
    for (int64_t i = 0; i < count; i++) body(argument, i, 0);
  } else {
    context->parallel_for(context->parallel_user, workers, count, body, argument);
  }
}

/* The pieces of one worker, [next, end), in a cache line of its own. */
struct share {
  _Alignas(HD_ALIGN) _Atomic int64_t next;
  int64_t end;
};

/* More workers than that have shares together. */
enum { SHARES = 64 };

struct near_work {
  heed_parallel_body body;
  void *argument;
  int shares;
  struct share share[SHARES];
};

static void run_shares(void *argument, int64_t worker, int ignored) {
  (void)ignored;
  struct near_work *work = argument;
  for (int n = 0; n < work->shares; n++) {
    struct share *share = &work->share[(worker + n) % work->shares];
    int64_t i;
    while ((i = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end) work->body(work->argument, i, (int)worker);
  }
}

void hd_parallel_near(heed_context *context, int64_t count, heed_parallel_body body, void *argument) {
  const int workers = hd_workers(context, count);
  struct near_work work = {.body = body, .argument = argument, .shares = HD_MIN(workers, SHARES)};
  for (int i = 0; i < work.shares; i++) {
    atomic_init(&work.share[i].next, count * i / work.shares);
    work.share[i].end = count * (i + 1) / work.shares;
  }
  hd_parallel(context, workers, run_shares, &work);
}

/* The one waited for is at work, so a spin mostly does; after a fifth of a millisecond others may have the processor. Who gives it away sooner gets it back late: whatever else runs, however
 * unimportant, keeps it for milliseconds then. */
enum { SPINS = 4000 };

void hd_wait_turn(int64_t spins) {
  if (spins > SPINS) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void hd_wait_for(_Atomic int64_t *counter, int64_t value) {
  for (int64_t spins = 0; atomic_load_explicit(counter, memory_order_acquire) < value; spins++) hd_wait_turn(spins);
}
