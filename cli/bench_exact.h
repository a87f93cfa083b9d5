/* bench_exact.h: exact attention as what other kinds are compared with, on their arrays and in the same blocks. */
#ifndef CLI_BENCH_EXACT_H
#define CLI_BENCH_EXACT_H

#include "arrays.h"
#include "bench.h"

/* A call: views of the caller's, the last four null where only the forward pass is wanted. */
typedef struct exact_call {
  bool causal;
  const heed_view *q, *k, *v, *dout, *dq, *dk, *dv;
  array out, lse; /* its own */
} exact_call;

/* Takes memory for out and lse and, where gradients are wanted, fills them; the case compares from now on. Returns an exit code, as exact_run does. */
int exact_open(bench_case *c, exact_call *e);
int exact_run(bench_case *c, exact_call *e);
void exact_close(exact_call *e);

#define BENCH_EXACT_OPTION                                                                                                                 \
  OPTION("exact", 0, FLAG, NULL, exact,                                                                                                    \
         "time exact attention on the same arrays in the same blocks, and say how many times as long it takes")

#endif
