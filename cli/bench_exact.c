/* bench_exact.c: exact attention beside another kind (bench_exact.h). */
#include "bench_exact.h"

static heed_attention attention_of(const exact_call *e) { return (heed_attention){.size = sizeof(heed_attention), .causal = e->causal}; }

static int forward(bench_case *c, exact_call *e) {
  const heed_attention a = attention_of(e);
  const heed_attention_extras extras = {.size = sizeof extras, .lse = &e->lse.view};
  return check(c->context, heed_attention_forward(c->context, &a, e->q, e->k, e->v, &e->out.view, &extras));
}

int exact_open(bench_case *c, exact_call *e) {
  int64_t dim[4] = {e->q->dim[0], e->q->dim[1], e->q->dim[2], e->v->dim[3]};
  int code;
  c->compares = true;
  TRY(array_new("out", e->q->type, 4, dim, &e->out));
  TRY(array_new("lse", HEED_F32, 3, dim, &e->lse));
  if (e->dout) TRY(forward(c, e)); // backward reads its out and lse
done:
  return code;
}

int exact_run(bench_case *c, exact_call *e) {
  if (!e->dout) return forward(c, e);
  const heed_attention a = attention_of(e);
  const heed_attention_gradients to = {.size = sizeof to, .dq = e->dq, .dk = e->dk, .dv = e->dv};
  return check(c->context, heed_attention_backward(c->context, &a, e->q, e->k, e->v, &e->out.view, &e->lse.view, e->dout, &to));
}

void exact_close(exact_call *e) {
  array_free(&e->out);
  array_free(&e->lse);
}
