/* pthread_parallel.h: a parallel_for of a host's own, on POSIX threads: what sanitizers that do not know OpenMP run with, and proof that the hook is enough. */
#ifndef HEED_PTHREAD_PARALLEL_H
#define HEED_PTHREAD_PARALLEL_H

#include <pthread.h>
#include <stdlib.h>

#include "../include/heed/heed.h"

enum { PTHREAD_PARALLEL_MAX = 64 };

typedef struct pthread_work {
  heed_parallel_body body;
  void *argument;
  int64_t count, next; /* next is taken with an atomic addition */
} pthread_work;

typedef struct pthread_worker {
  pthread_work *work;
  int worker;
} pthread_worker;

static inline void *pthread_work_run(void *argument) {
  pthread_worker *self = argument;
  for (int64_t i; (i = __atomic_fetch_add(&self->work->next, 1, __ATOMIC_RELAXED)) < self->work->count;)
    self->work->body(self->work->argument, i, self->worker);
  return NULL;
}

/* A heed_parallel_for; user counts its calls if it is not NULL. */
static inline void pthread_parallel(void *user, int threads, int64_t count, heed_parallel_body body, void *argument) {
  pthread_work work = {.body = body, .argument = argument, .count = count};
  pthread_t thread[PTHREAD_PARALLEL_MAX];
  pthread_worker worker[PTHREAD_PARALLEL_MAX];
  if (user) ++*(int64_t *)user;
  if (threads > PTHREAD_PARALLEL_MAX) threads = PTHREAD_PARALLEL_MAX;
  for (int i = 0; i < threads; i++) {
    worker[i] = (pthread_worker){&work, i};
    if (pthread_create(&thread[i], NULL, pthread_work_run, &worker[i]) != 0) abort();
  }
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

#endif
