/* crew.c: threads that stand by between the pieces of work that one call hands out in quick succession.
 *
 * To open a parallel region costs some microseconds, and tens where idle threads sleep, on a machine that may wake them on the wrong processor; a training step of a small model
 * has more than a hundred. So a call that knows that many follow is carried out by one thread of a single region, while the others wait for what it hands out. The host's
 * parallel_for may run the pieces of the region one after another or in any order: who comes first leads, who comes when all is done goes away, and nothing waits for somebody who has not
 * come. */
#include "base.h"

#include <stdatomic.h>

/* Pieces that are for one thread each; more would be handed out in turn. */
enum { OWN_PIECES = 64 };

/* Of `gate`: the number of the work, whether it is open, and how many are at it beside the leader. */
enum { GATE_INSIDE = 0xffff, GATE_OPEN = 1 << 16, GATE_NUMBER = 1 << 17 };

struct hd_crew {
  void (*lead)(void *);
  void *argument;
  _Atomic int arrived;
  _Atomic bool done;
  bool working; /* the leader's own note */
  _Alignas(HD_ALIGN) _Atomic int64_t gate;
  // The work at hand, written while the gate is closed.
  heed_parallel_body body;
  void *body_argument;
  int64_t count;
  int workers;
  _Alignas(HD_ALIGN) _Atomic int64_t next;
  _Atomic bool taken[OWN_PIECES];
};

/* All pieces that are left. Where there is at most one for each, a worker begins with its own, the same call after call. */
static void work(struct hd_crew *crew, int worker) {
  const int64_t count = crew->count;
  if (count <= crew->workers && count <= OWN_PIECES) {
    for (int64_t n = 0; n < count; n++) {
      const int64_t i = (worker + n) % count;
      if (!atomic_exchange_explicit(&crew->taken[i], true, memory_order_relaxed)) crew->body(crew->body_argument, i, worker);
    }
    return;
  }
  int64_t i;
  while ((i = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed)) < count) crew->body(crew->body_argument, i, worker);
}

static void stand_by(struct hd_crew *crew, int worker) {
  int64_t last = 0;
  for (int64_t spins = 0; !atomic_load_explicit(&crew->done, memory_order_acquire); spins++) {
    int64_t gate = atomic_load_explicit(&crew->gate, memory_order_relaxed);
    if (!(gate & GATE_OPEN) || gate / GATE_NUMBER == last) {
      hd_wait_turn(spins);
      continue;
    }
    if (!atomic_compare_exchange_weak_explicit(&crew->gate, &gate, gate + 1, memory_order_acquire, memory_order_relaxed)) continue;
    last = gate / GATE_NUMBER;
    if (worker < crew->workers) work(crew, worker);
    atomic_fetch_sub_explicit(&crew->gate, 1, memory_order_release);
    spins = 0;
  }
}

static void arrive(void *argument, int64_t i, int ignored) {
  struct hd_crew *crew = argument;
  (void)i, (void)ignored;
  const int worker = atomic_fetch_add_explicit(&crew->arrived, 1, memory_order_relaxed);
  if (worker > 0) {
    stand_by(crew, worker);
    return;
  }
  crew->lead(crew->argument);
  atomic_store_explicit(&crew->done, true, memory_order_release);
}

void hd_with_crew(heed_context *context, void (*lead)(void *), void *argument) {
  if (context->crew || context->threads == 1) {
    lead(argument);
    return;
  }
  struct hd_crew crew = {.lead = lead, .argument = argument};
  context->crew = &crew;
  context->parallel_for(context->parallel_user, context->threads, context->threads, arrive, &crew);
  context->crew = NULL;
}

bool hd_crew_run(struct hd_crew *crew, int workers, int64_t count, heed_parallel_body body, void *argument) {
  if (crew->working) return false;
  crew->body = body;
  crew->body_argument = argument;
  crew->count = count;
  crew->workers = workers;
  crew->working = true;
  atomic_store_explicit(&crew->next, 0, memory_order_relaxed);
  for (int64_t i = 0; i < HD_MIN(count, OWN_PIECES); i++) atomic_store_explicit(&crew->taken[i], false, memory_order_relaxed);
  atomic_store_explicit(&crew->gate, (atomic_load_explicit(&crew->gate, memory_order_relaxed) / GATE_NUMBER + 1) * GATE_NUMBER + GATE_OPEN,
                        memory_order_release);
  work(crew, 0);
  // Nobody comes in any more, and whoever is inside finishes.
  int64_t gate = atomic_fetch_sub_explicit(&crew->gate, GATE_OPEN, memory_order_acquire) - GATE_OPEN;
  for (int64_t spins = 0; gate & GATE_INSIDE; spins++) {
    hd_wait_turn(spins);
    gate = atomic_load_explicit(&crew->gate, memory_order_acquire);
  }
  crew->working = false;
  return true;
}
