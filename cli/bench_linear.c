/* bench_linear.c: `heed bench linear`: how much of the machine's peak linear attention reaches, forward and backward. */
#include "bench_exact.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list batch, heads, kv_heads, head_dim, value_dim, n, causal, backward, features, rows, type;
  bool exact;
} values;

typedef struct arrays {
  heed_linear_attention attention;
  attention_arrays on;
  array projection;
  exact_call exact;
} arrays;

enum { CHUNK = 64 }; // keys that a row meets one by one

static int64_t item(const whole_list *list) { return list->items[0]; }

static bool projects(const values *v) { return item(&v->features) >= 2; }

static int describe(bench_case *c, const values *v, arrays *a) {
  static const heed_features features[] = {HEED_FEATURES_ELU, HEED_FEATURES_RELU, HEED_FEATURES_POSITIVE,
                                           HEED_FEATURES_HYPERBOLIC}; // as in the option's choices
  int code = 0;
  a->attention = (heed_linear_attention){.size = sizeof a->attention, .features = features[item(&v->features)], .causal = item(&v->causal)};
  if (!projects(v)) return 0;
  const int64_t dim[2] = {item(&v->rows), item(&v->head_dim)};
  const heed_linear_draw_options options = {.size = sizeof options, .seed = (uint64_t)v->bench.common.seed};
  TRY(array_new("the projection", HEED_F32, 2, dim, &a->projection));
  TRY(check(c->context, heed_linear_draw(c->context, &options, &a->projection.view)));
  a->attention.projection = &a->projection.view;
done:
  return code;
}

static int make_arrays(const values *v, arrays *a) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16}; // as in the option's choices
  const attention_shape shape = {.type = types[item(&v->type)],
                                 .batch = item(&v->batch),
                                 .heads = item(&v->heads),
                                 .kv_heads = item(&v->kv_heads),
                                 .queries = item(&v->n),
                                 .keys = item(&v->n),
                                 .head_dim = item(&v->head_dim),
                                 .value_dim = item(&v->value_dim)};
  return attention_arrays_new(&shape, item(&v->backward), (uint64_t)v->bench.common.seed, &a->on);
}

/* Pairs of a row and a key of the same chunk that it sees. */
static double own_pairs(int64_t n) {
  const double whole = (double)(n / CHUNK), rest = (double)(n % CHUNK);
  return whole * CHUNK * (CHUNK + 1) / 2 + rest * (rest + 1) / 2;
}

/* Operations of the products: what keys add to states, what rows take from them, and the pairs within chunks. */
static double count_flops(const values *v) {
  const bool causal = item(&v->causal), backward = item(&v->backward);
  const double batch = (double)item(&v->batch), heads = batch * (double)item(&v->heads), kv_heads = batch * (double)item(&v->kv_heads),
               n = (double)item(&v->n), d = (double)item(&v->head_dim), dv = (double)item(&v->value_dim),
               rows = projects(v) ? (double)item(&v->rows) : 0, f = rows > 0 ? rows * (item(&v->features) == 3 ? 2 : 1) : d;
  const double pairs = causal ? heads * own_pairs(item(&v->n)) : 0, projected = 2 * d * rows * n * (heads + kv_heads);
  if (!backward) return 2 * f * dv * n * (heads + kv_heads) + 2 * (f + dv) * pairs + projected;
  return 2 * f * dv * n * (2 * heads + 3 * kv_heads) + 2 * (3 * f + 2 * dv) * pairs + 2 * projected;
}

static void close_case(bench_case *c) {
  arrays *a = c->state;
  if (!a) return;
  attention_arrays_free(&a->on);
  array_free(&a->projection);
  exact_close(&a->exact);
  free(a);
}

static int call_forward(bench_case *c) {
  arrays *a = c->state;
  const heed_linear_extras extras = {.size = sizeof extras, .lse = &a->on.lse.view};
  return check(c->context,
               heed_linear_forward(c->context, &a->attention, &a->on.q.view, &a->on.k.view, &a->on.v.view, &a->on.out.view, &extras));
}

static int call(bench_case *c) {
  arrays *a = c->state;
  if (!a->on.dout.view.data) return call_forward(c);
  const heed_linear_gradients to = {.size = sizeof to, .dq = &a->on.dq.view, .dk = &a->on.dk.view, .dv = &a->on.dv.view};
  return check(c->context, heed_linear_backward(c->context, &a->attention, &a->on.q.view, &a->on.k.view, &a->on.v.view, &a->on.out.view,
                                                &a->on.lse.view, &a->on.dout.view, &to));
}

static int beside(bench_case *c) {
  arrays *a = c->state;
  return exact_run(c, &a->exact);
}

static int open_exact(bench_case *c, const values *v) {
  arrays *a = c->state;
  a->exact = (exact_call){.causal = item(&v->causal), .q = &a->on.q.view, .k = &a->on.k.view, .v = &a->on.v.view};
  if (item(&v->backward))
    a->exact.dout = &a->on.dout.view, a->exact.dq = &a->on.dq.view, a->exact.dk = &a->on.dk.view, a->exact.dv = &a->on.dv.view;
  return exact_open(c, &a->exact);
}

static int open_case(void *pointer, bench_case *c) {
  values *v = pointer;
  arrays *a = c->state = allocate("a case", 1, sizeof *a);
  int code;
  if (item(&v->kv_heads) == 0) v->kv_heads.items[0] = item(&v->heads);
  if (item(&v->value_dim) == 0) v->value_dim.items[0] = item(&v->head_dim);
  TRY(describe(c, v, a));
  TRY(make_arrays(v, a));
  if (a->on.dout.view.data) TRY(call_forward(c)); // backward reads its out and lse
  if (v->exact) TRY(open_exact(c, v));
  c->flops = count_flops(v);
done:
  return code;
}

static const bench linear = {.open = open_case, .call = call, .close = close_case, .beside = beside};

extern const command command_bench_linear;

static int run(const void *v) { return bench_run(&command_bench_linear, &linear, v); }

static const option options[] = {
    BENCH_HEADS_OPTIONS,
    OPTION("n", 'n', WHOLES, "LIST", n, "queries, and keys (default 2048,16384)", .low = 1, .high = 1e7),
    OPTION("causal", 0, WHOLES, "LIST", causal, "0, 1 or both (default 0,1)", .low = 0, .high = 1),
    OPTION("backward", 0, WHOLES, "LIST", backward, "0: forward, 1: the gradients (default 0,1)", .low = 0, .high = 1),
    OPTION("features", 0, CHOICES, "LIST", features, "feature maps (default elu)", .choices = "elu|relu|positive|hyperbolic"),
    OPTION("rows", 0, WHOLES, "LIST", rows, "random rows of positive and hyperbolic features (default 256)", .low = 1, .high = 65536),
    OPTION("type", 0, CHOICES, "LIST", type, "what all arrays are stored in (default f32)", .choices = "f32|f16|bf16"),
    BENCH_EXACT_OPTION,
    BENCH_OPTIONS,
    {0},
};

static const values defaults = {
    BENCH_DEFAULTS,          .batch = {1, {1}},     .heads = {1, {4}},       .kv_heads = {1, {0}},
    .head_dim = {1, {64}},   .value_dim = {1, {0}}, .n = {2, {2048, 16384}}, .causal = {2, {0, 1}},
    .backward = {2, {0, 1}}, .features = {1, {0}},  .rows = {1, {256}},      .type = {1, {0}},
};

const command command_bench_linear = {
    .name = "bench linear",
    .summary = "time linear attention",
    .about =
        "Times heed_linear_forward or heed_linear_backward for every combination of the lists and says how much of the machine's "
        "multiply-add "
        "peak it reaches, as `heed bench attention` does. Operations counted: those of the products that the result needs, with features "
        "of "
        "width f: keys into states and rows from states, 2 x f x value-dim each, pairs within chunks of 64 where causal, and projections.",
    .examples = "  heed bench linear --n 2048,16384 --head-dim 64 --heads 4 --causal 1 --threads 2 --exact\n"
                "  heed bench linear --features positive --rows 64,256 --backward 0\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &defaults,
    .run = run,
};
