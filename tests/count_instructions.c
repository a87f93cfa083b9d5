/* count_instructions.c: the kernels have not grown: how many instructions one call takes, for each fused multiply-add of a whole register that its result needs.
 *
 * Time says nothing on a shared machine, and virtual machines often have no counter of instructions, so a child makes the call and its parent
 * steps through it, one instruction at a time: exact, on every level. A causal call has full tiles and partial ones. The limits are what gcc 12
 * made, and a tenth; whoever makes a kernel leaner lowers them. The scalar level promises nothing. */
#define _GNU_SOURCE
#include "heed/heed.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUERIES = 32, KEYS = 128, WIDTH = 64 };

static const struct {
  heed_level level;
  int lanes;
  double forward, backward; /* instructions a multiply-add */
} limits[] = {
    {HEED_LEVEL_AVX2, 8, 4.55, 5.1},
    {HEED_LEVEL_AVX512, 16, 4.95, 6.25},
};
enum { LEVEL_COUNT = sizeof limits / sizeof limits[0] };

/* ---- the calls ----------------------------------------------------------------------------------------------------------- */

static float q[QUERIES][WIDTH], k[KEYS][WIDTH], v[KEYS][WIDTH], dout[QUERIES][WIDTH], out[QUERIES][WIDTH], dq[QUERIES][WIDTH],
    dk[KEYS][WIDTH], dv[KEYS][WIDTH], lse[QUERIES];

typedef struct call {
  heed_context *context;
  heed_attention attention;
  heed_view q, k, v, dout, out, dq, dk, dv, lse;
} call;

static void must(heed_context *context, heed_status status) {
  if (status == HEED_OK) return;
  fprintf(stderr, "count_instructions: %s\n", context ? heed_error(context) : heed_status_text(status));
  exit(1);
}

static void forward(call *c) {
  heed_attention_extras extras = {.size = sizeof extras, .lse = &c->lse};
  must(c->context, heed_attention_forward(c->context, &c->attention, &c->q, &c->k, &c->v, &c->out, &extras));
}

static void backward(call *c) {
  heed_attention_gradients gradients = {.size = sizeof gradients, .dq = &c->dq, .dk = &c->dk, .dv = &c->dv};
  must(c->context, heed_attention_backward(c->context, &c->attention, &c->q, &c->k, &c->v, &c->out, &c->lse, &c->dout, &gradients));
}

static void open_call(heed_level level, call *c) {
  heed_options options = {.size = sizeof options, .threads = 1, .level = level};
  float *arrays[] = {*q, *k, *v, *dout, *out, *dq, *dk, *dv};
  heed_view *views[] = {&c->q, &c->k, &c->v, &c->dout, &c->out, &c->dq, &c->dk, &c->dv};
  uint64_t seed = 1;
  *c = (call){.attention = {.size = sizeof c->attention, .causal = true, .align = HEED_ALIGN_END}};
  must(NULL, heed_context_new(&options, &c->context));
  for (int i = 0; i < 8; i++) {
    int64_t rows = arrays[i] == *k || arrays[i] == *v || arrays[i] == *dk || arrays[i] == *dv ? KEYS : QUERIES;
    for (int64_t j = 0; j < rows * WIDTH; j++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u; // Knuth, MMIX
      arrays[i][j] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    *views[i] = heed_view_of(arrays[i], HEED_F32, 2, (int64_t[]){rows, WIDTH});
  }
  c->lse = heed_view_of(lse, HEED_F32, 1, (int64_t[]){QUERIES});
}

/* ---- counting ------------------------------------------------------------------------------------------------------------ */

/* The child: a call to warm up (and for backward's inputs), then the call that counts, between two stops. */
static void run_child(heed_level level, bool is_backward) {
  call c;
  open_call(level, &c);
  forward(&c);
  if (is_backward) backward(&c);
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
  raise(SIGSTOP);
  (is_backward ? backward : forward)(&c);
  raise(SIGSTOP);
  _exit(0);
}

/* The instructions between the child's two stops; −1 where it did not get there. */
static long long count(heed_level level, bool is_backward) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) run_child(level, is_backward);
  long long steps = 0;
  bool counted = waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
  while (counted) {
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) counted = false;
    else if (WSTOPSIG(status) == SIGSTOP) break;
    else steps++;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return counted ? steps : -1;
}

/* Whether the limit is kept. */
static bool check(int i, bool is_backward) {
  double pairs = QUERIES * KEYS - QUERIES * (QUERIES - 1) / 2, fused = pairs * WIDTH * (is_backward ? 5 : 2) / limits[i].lanes;
  double limit = is_backward ? limits[i].backward : limits[i].forward;
  long long instructions = count(limits[i].level, is_backward);
  bool ok = instructions > 0 && (double)instructions / fused <= limit;
  printf("%-8s %-8s %9lld instructions, %.3f a multiply-add, allowed %.2f: %s\n", heed_level_name(limits[i].level),
         is_backward ? "backward" : "forward", instructions, (double)instructions / fused, limit,
         ok                 ? "ok"
         : instructions > 0 ? "TOO MANY"
                            : "NOT COUNTED");
  return ok;
}

int main(void) {
  bool ok = true;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one); // parent and child take turns, which costs least on one processor
  for (int i = 0; i < LEVEL_COUNT; i++) {
    if (!heed_level_available(limits[i].level)) {
      printf("%s: this processor lacks it\n", heed_level_name(limits[i].level));
      continue;
    }
    ok &= check(i, false);
    ok &= check(i, true);
  }
  return ok ? 0 : 1;
}
