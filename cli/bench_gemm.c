/* bench_gemm.c: `heed bench gemm`: how much of the machine's peak a matrix product reaches, in the forms that layers and their gradients need. */
#include "arrays.h"
#include "bench.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list batch, rows, outputs, inputs, transpose_a, transpose_b, type;
} values;

typedef struct product {
  heed_gemm_form form;
  array a, b, c;
} product;

static int open_product(void *pointer, bench_case *c) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16}; // as in the option's choices
  const values *v = pointer;
  product *p = c->state = allocate("a case", 1, sizeof *p);
  int64_t batch = v->batch.items[0], n = v->rows.items[0], m = v->outputs.items[0], k = v->inputs.items[0];
  bool transpose_a = v->transpose_a.items[0], transpose_b = v->transpose_b.items[0];
  uint64_t seed = (uint64_t)v->bench.common.seed;
  int code;
  p->form = (heed_gemm_form){.size = sizeof p->form, .transpose_a = transpose_a, .transpose_b = transpose_b};
  TRY(array_random("a", HEED_F32, 3, (int64_t[]){batch, transpose_a ? k : n, transpose_a ? n : k}, seed, &p->a));
  TRY(array_random("b", types[v->type.items[0]], 3, (int64_t[]){batch, transpose_b ? m : k, transpose_b ? k : m}, seed + 1, &p->b));
  TRY(array_new("c", HEED_F32, 3, (int64_t[]){batch, n, m}, &p->c));
  c->flops = 2.0 * (double)batch * (double)n * (double)m * (double)k;
done:
  return code;
}

static int call_product(bench_case *c) {
  product *p = c->state;
  return check(c->context, heed_gemm(c->context, &p->form, &p->a.view, &p->b.view, &p->c.view));
}

static void close_product(bench_case *c) {
  product *p = c->state;
  if (!p) return;
  array_free(&p->a);
  array_free(&p->b);
  array_free(&p->c);
  free(p);
}

extern const command command_bench_gemm;

static int run(const void *v) {
  static const bench gemm = {.open = open_product, .call = call_product, .close = close_product};
  return bench_run(&command_bench_gemm, &gemm, v);
}

static const option options[] = {
    OPTION("batch", 0, WHOLES, "LIST", batch, "products at once (default 1)", .low = 1, .high = 1e6),
    OPTION("rows", 0, WHOLES, "LIST", rows, "rows of the result (default 512)", .low = 1, .high = 1e7),
    OPTION("outputs", 0, WHOLES, "LIST", outputs, "columns of the result (default 768,2304)", .low = 1, .high = 1e7),
    OPTION("inputs", 0, WHOLES, "LIST", inputs, "what is summed over (default 768,3072)", .low = 1, .high = 1e7),
    OPTION("transpose-a", 0, WHOLES, "LIST", transpose_a, "1: a is [inputs, rows], as for the gradient of weights (default 0)", .low = 0,
           .high = 1),
    OPTION("transpose-b", 0, WHOLES, "LIST", transpose_b, "1: b is [outputs, inputs], as layers store weights (default 1)", .low = 0,
           .high = 1),
    OPTION("type", 0, CHOICES, "LIST", type, "what b is stored in (default f32)", .choices = "f32|f16|bf16"),
    BENCH_OPTIONS,
    {0},
};

const command command_bench_gemm = {
    .name = "bench gemm",
    .summary = "time matrix products",
    .about = "Times heed_gemm for every combination of the lists and says how much of the machine's multiply-add peak it reaches, "
             "as `heed bench attention` does. Operations counted: 2 x rows x outputs x inputs.",
    .examples = "  heed bench gemm --rows 512 --outputs 768,2304 --inputs 768 --threads 1,2\n"
                "  heed bench gemm --rows 1,8,64 --type f32,f16,bf16 --csv\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){BENCH_DEFAULTS, .batch = {1, {1}}, .rows = {1, {512}}, .outputs = {2, {768, 2304}},
                                .inputs = {2, {768, 3072}}, .transpose_a = {1, {0}}, .transpose_b = {1, {1}}, .type = {1, {0}}},
    .run = run,
};
