/* bench_lsh.c: `heed bench lsh`: how long LSH attention takes, forward and backward, and how much of the machine's peak it reaches. */
#include "bench_exact.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list batch, heads, head_dim, n, causal, backward, rounds, buckets, type;
  bool exact;
} values;

typedef struct arrays {
  heed_lsh_attention attention;
  array qk, v, out, lse, dout, dqk, dv;
  exact_call exact; /* of the same rows, each a query and a key */
  array dk;
} arrays;

enum { CHUNK = 64 };

static int64_t item(const whole_list *list) { return list->items[0]; }

static int make_arrays(const values *v, arrays *a) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16}; // as in the option's choices
  const heed_type type = types[item(&v->type)];
  const uint64_t seed = (uint64_t)v->bench.common.seed;
  const int64_t rows[4] = {item(&v->batch), item(&v->heads), item(&v->n), item(&v->head_dim)};
  int code;
  TRY(array_random("queries", type, 4, rows, seed, &a->qk));
  TRY(array_random("values", type, 4, rows, seed + 1, &a->v));
  TRY(array_new("out", type, 4, rows, &a->out));
  TRY(array_new("lse", HEED_F32, 3, rows, &a->lse));
  if (!item(&v->backward)) goto done;
  TRY(array_random("the gradient of out", type, 4, rows, seed + 2, &a->dout));
  TRY(array_new("a gradient", type, 4, rows, &a->dqk));
  TRY(array_new("a gradient", type, 4, rows, &a->dv));
done:
  return code;
}

/* Operations of the products over all pairs of a chunk with itself and the one before, whether a round needs them or not. */
static double count_flops(const values *v) {
  const double rows = (double)(item(&v->batch) * item(&v->heads) * item(&v->n)), keys = item(&v->n) > CHUNK ? 2 * CHUNK : CHUNK;
  return rows * keys * (double)(item(&v->rounds) * item(&v->head_dim)) * (item(&v->backward) ? 10 : 4);
}

static void close_case(bench_case *c) {
  arrays *a = c->state;
  if (!a) return;
  array *all[] = {&a->qk, &a->v, &a->out, &a->lse, &a->dout, &a->dqk, &a->dv, &a->dk};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
  exact_close(&a->exact);
  free(a);
}

static int call_forward(bench_case *c) {
  arrays *a = c->state;
  return check(c->context, heed_lsh_forward(c->context, &a->attention, &a->qk.view, &a->v.view, &a->out.view, &a->lse.view));
}

static int call(bench_case *c) {
  arrays *a = c->state;
  if (!a->dout.view.data) return call_forward(c);
  return check(c->context, heed_lsh_backward(c->context, &a->attention, &a->qk.view, &a->v.view, &a->out.view, &a->lse.view, &a->dout.view,
                                             &a->dqk.view, &a->dv.view));
}

static int beside(bench_case *c) {
  arrays *a = c->state;
  return exact_run(c, &a->exact);
}

static int open_exact(bench_case *c, const values *v) {
  arrays *a = c->state;
  int code;
  a->exact = (exact_call){.causal = item(&v->causal), .q = &a->qk.view, .k = &a->qk.view, .v = &a->v.view};
  if (item(&v->backward)) {
    TRY(array_new("a gradient", a->dqk.view.type, 4, a->dqk.view.dim, &a->dk));
    a->exact.dout = &a->dout.view, a->exact.dq = &a->dqk.view, a->exact.dk = &a->dk.view, a->exact.dv = &a->dv.view;
  }
  TRY(exact_open(c, &a->exact));
done:
  return code;
}

static int open_case(void *pointer, bench_case *c) {
  values *v = pointer;
  arrays *a = c->state = allocate("a case", 1, sizeof *a);
  int code;
  a->attention = (heed_lsh_attention){.size = sizeof a->attention,
                                      .causal = item(&v->causal),
                                      .rounds = item(&v->rounds),
                                      .buckets = {item(&v->buckets)},
                                      .seed = (uint64_t)v->bench.common.seed};
  TRY(make_arrays(v, a));
  if (a->dout.view.data) TRY(call_forward(c)); // backward reads its out and lse
  if (v->exact) TRY(open_exact(c, v));
  c->flops = count_flops(v);
done:
  return code;
}

static const bench lsh = {.open = open_case, .call = call, .close = close_case, .beside = beside};

extern const command command_bench_lsh;

static int run(const void *v) { return bench_run(&command_bench_lsh, &lsh, v); }

static const option options[] = {
    OPTION("batch", 0, WHOLES, "LIST", batch, "batch entries (default 1)", .low = 1, .high = 1e6),
    OPTION("heads", 0, WHOLES, "LIST", heads, "heads (default 4)", .low = 1, .high = 4096),
    OPTION("head-dim", 0, WHOLES, "LIST", head_dim, "width of queries and values (default 64)", .low = 1, .high = 4096),
    OPTION("n", 'n', WHOLES, "LIST", n, "rows (default 2048,16384)", .low = 1, .high = 1e7),
    OPTION("causal", 0, WHOLES, "LIST", causal, "0, 1 or both (default 0,1)", .low = 0, .high = 1),
    OPTION("backward", 0, WHOLES, "LIST", backward, "0: forward, 1: the gradients (default 0,1)", .low = 0, .high = 1),
    OPTION("rounds", 0, WHOLES, "LIST", rounds, "rounds (default 8)", .low = 1, .high = 1024),
    OPTION("buckets", 0, WHOLES, "LIST", buckets, "buckets, even (default 0: one for 32 rows)", .low = 0, .high = 65536),
    OPTION("type", 0, CHOICES, "LIST", type, "what all arrays are stored in (default f32)", .choices = "f32|f16|bf16"),
    BENCH_EXACT_OPTION,
    BENCH_OPTIONS,
    {0},
};

static const values defaults = {
    BENCH_DEFAULTS,        .batch = {1, {1}},       .heads = {1, {4}},  .head_dim = {1, {64}}, .n = {2, {2048, 16384}},
    .causal = {2, {0, 1}}, .backward = {2, {0, 1}}, .rounds = {1, {8}}, .buckets = {1, {0}},   .type = {1, {0}},
};

const command command_bench_lsh = {
    .name = "bench lsh",
    .summary = "time LSH attention",
    .about =
        "Times heed_lsh_forward or heed_lsh_backward for every combination of the lists and says how much of the machine's multiply-add "
        "peak it reaches, as `heed bench attention` does. Operations counted: those of all pairs of a chunk of 64 rows with itself and "
        "with the one before, in every round.",
    .examples = "  heed bench lsh --n 16384 --rounds 4,8 --causal 1 --threads 2 --exact\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &defaults,
    .run = run,
};
