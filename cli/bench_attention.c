/* bench_attention.c: `heed bench attention` and `heed bench backward`: how much of the machine's peak the fused kernels reach. They measure the two directions of
 * one description, so they share its table of options. */
#include "arrays.h"
#include "bench.h"
#include "pattern_text.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list batch, heads, kv_heads, head_dim, value_dim, n, keys, causal, window, type;
  number_list dropout;
  const char *pattern;
} values;

typedef struct arrays {
  heed_attention attention;
  heed_pattern *pattern;
  attention_arrays on;
} arrays;

static int64_t item(const whole_list *list) { return list->items[0]; }

/* ---- the arrays ---------------------------------------------------------------------------------------------------------- */

/* Zeros in the lists mean "as the other one". */
static void fill_defaults(values *v) {
  if (item(&v->kv_heads) == 0) v->kv_heads.items[0] = item(&v->heads);
  if (item(&v->value_dim) == 0) v->value_dim.items[0] = item(&v->head_dim);
  if (item(&v->keys) == 0) v->keys.items[0] = item(&v->n);
}

static void describe(const values *v, heed_attention *a) {
  int64_t window = item(&v->window);
  bool causal = item(&v->causal);
  *a = (heed_attention){
      .size = sizeof *a,
      .causal = causal,
      .align = HEED_ALIGN_END,
      .has_window_left = window >= 0,
      .window_left = window,
      .has_window_right = window >= 0 && !causal,
      .window_right = window,
      .dropout = v->dropout.items[0],
  };
}

static int make_arrays(const values *v, bool gradients, arrays *a) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16}; // as in the option's choices
  const attention_shape shape = {.type = types[item(&v->type)],
                                 .batch = item(&v->batch),
                                 .heads = item(&v->heads),
                                 .kv_heads = item(&v->kv_heads),
                                 .queries = item(&v->n),
                                 .keys = item(&v->keys),
                                 .head_dim = item(&v->head_dim),
                                 .value_dim = item(&v->value_dim)};
  return attention_arrays_new(&shape, gradients, (uint64_t)v->bench.common.seed, &a->on);
}

static void close_case(bench_case *c) {
  arrays *a = c->state;
  if (!a) return;
  attention_arrays_free(&a->on);
  heed_pattern_free(a->pattern);
  free(a);
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

static int call_forward(bench_case *c) {
  arrays *a = c->state;
  heed_attention_extras extras = {.size = sizeof extras, .lse = a->on.dout.view.data ? &a->on.lse.view : NULL};
  return check(c->context,
               heed_attention_forward(c->context, &a->attention, &a->on.q.view, &a->on.k.view, &a->on.v.view, &a->on.out.view, &extras));
}

/* 2 d operations for a score and 2 dv for its share of the output, for each pair (query, key) that is visible. */
static int open_call(values *v, bool gradients, bench_case *c) {
  arrays *a = c->state = allocate("a case", 1, sizeof *a);
  heed_plan plan = {.size = sizeof plan};
  int code;
  fill_defaults(v);
  describe(v, &a->attention);
  if (v->pattern) TRY(pattern_open(c->context, "--pattern: ", v->pattern, item(&v->heads), item(&v->keys), &a->pattern));
  a->attention.pattern = a->pattern;
  TRY(make_arrays(v, gradients, a));
  TRY(check(c->context, heed_attention_explain_plan(c->context, &a->attention, &a->on.q.view, &a->on.k.view, &a->on.v.view, &plan)));
  c->flops = 2.0 * (double)plan.visible_pairs * (double)(item(&v->head_dim) + item(&v->value_dim));
done:
  return code;
}

static int open_forward(void *pointer, bench_case *c) { return open_call(pointer, false, c); }

static const bench forward = {.open = open_forward, .call = call_forward, .close = close_case};

/* ---- backward ------------------------------------------------------------------------------------------------------------ */

static int call_backward(bench_case *c) {
  arrays *a = c->state;
  heed_attention_gradients gradients = {.size = sizeof gradients, .dq = &a->on.dq.view, .dk = &a->on.dk.view, .dv = &a->on.dv.view};
  return check(c->context, heed_attention_backward(c->context, &a->attention, &a->on.q.view, &a->on.k.view, &a->on.v.view, &a->on.out.view,
                                                   &a->on.lse.view, &a->on.dout.view, &gradients));
}

/* Five products a pair: scores, dQ and dK over d; dP and dV over dv. */
static int open_backward(void *pointer, bench_case *c) {
  values *v = pointer;
  int code;
  TRY(open_call(v, true, c));
  TRY(call_forward(c)); // backward reads its out and lse
  double d = (double)item(&v->head_dim), dv = (double)item(&v->value_dim);
  c->flops *= (3 * d + 2 * dv) / (d + dv);
done:
  return code;
}

static const bench backward = {.open = open_backward, .call = call_backward, .close = close_case};

/* ---- the commands -------------------------------------------------------------------------------------------------------- */

extern const command command_bench_attention, command_bench_backward;

static int run_forward(const void *v) { return bench_run(&command_bench_attention, &forward, v); }

static int run_backward(const void *v) { return bench_run(&command_bench_backward, &backward, v); }

static const option options[] = {
    BENCH_HEADS_OPTIONS,
    OPTION("n", 'n', WHOLES, "LIST", n, "queries (default 512,2048)", .low = 1, .high = 1e7),
    OPTION("keys", 0, WHOLES, "LIST", keys, "keys (default 0: as many as queries); the last query stands at the last key", .low = 0,
           .high = 1e7),
    OPTION("causal", 0, WHOLES, "LIST", causal, "0, 1 or both (default 0,1)", .low = 0, .high = 1),
    OPTION("window", 0, WHOLES, "LIST", window, "keys visible before a query's own, and after it unless causal (default -1: all)",
           .low = -1, .high = 1e7),
    OPTION("pattern", 0, TEXT, "PATTERN", pattern, "who sees whom besides, such as bigbird:64:1:1:3 (see heed pattern)"),
    OPTION("dropout", 0, NUMBERS, "LIST", dropout, "probabilities that a weight is dropped (default 0)", .low = 0, .high = 1),
    OPTION("type", 0, CHOICES, "LIST", type, "what all arrays are stored in (default f32)", .choices = "f32|f16|bf16"),
    BENCH_OPTIONS,
    {0},
};

static const values defaults = {
    BENCH_DEFAULTS,        .batch = {1, {1}}, .heads = {1, {4}},     .kv_heads = {1, {0}}, .head_dim = {1, {64}}, .value_dim = {1, {0}},
    .n = {2, {512, 2048}}, .keys = {1, {0}},  .causal = {2, {0, 1}}, .window = {1, {-1}},  .dropout = {1, {0}},   .type = {1, {0}},
};

const command command_bench_attention = {
    .name = "bench attention",
    .summary = "time the attention kernel",
    .about = "Times heed_attention_forward for every combination of the lists and says how much of the machine's multiply-add "
             "peak it reaches. The peak is measured before and after every block, because machines drift. Operations counted: "
             "2 x (head-dim + value-dim) for each visible pair.",
    .examples = "  heed bench attention --n 512,2048 --head-dim 64 --heads 4 --causal 0,1 --threads 2 --json\n"
                "  heed bench attention --n 4096,8192,16384 --causal 1 --window 511 -o window.csv\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &defaults,
    .run = run_forward,
};

const command command_bench_backward = {
    .name = "bench backward",
    .summary = "time the gradients of attention",
    .about = "Times heed_attention_backward for every combination of the lists and says how much of the machine's multiply-add "
             "peak it reaches, as `heed bench attention` does. Operations counted: 6 x head-dim + 4 x value-dim for each "
             "visible pair.",
    .examples = "  heed bench backward --n 512,2048 --head-dim 64 --heads 4 --causal 0,1 --threads 2\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &defaults,
    .run = run_backward,
};
