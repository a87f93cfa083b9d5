/* bench_layer.c: `heed bench layer`: how much of the machine's peak a multi-head layer reaches in self-attention, its products and its attention together. */
#include "arrays.h"
#include "bench.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list batch, n, width, heads, kv_heads, causal, pass;
} values;

enum { PASS_FORWARD, PASS_BACKWARD, PASS_BOTH }; /* as in the option's choices */

/* x, out, weights, biases and saved, and after them the gradients of the first of these that have one. */
typedef struct training {
  heed_attention attention;
  heed_multi_head layer;
  int64_t pass;
  array x, w_qkv, b_qkv, w_o, b_o, dout, out, saved;
  array dx, dw_qkv, db_qkv, dw_o, db_o;
} training;

static int64_t item(const whole_list *list) { return list->items[0]; }

static int make_layer(const values *v, heed_context *context, training *t) {
  int64_t width = item(&v->width), d = width / item(&v->heads), rows = width + 2 * d * item(&v->kv_heads), saved;
  int64_t tokens[3] = {item(&v->batch), item(&v->n), width};
  uint64_t seed = (uint64_t)v->bench.common.seed;
  int code;
  TRY(array_random("inputs", HEED_F32, 3, tokens, seed, &t->x));
  TRY(array_random("weights", HEED_F32, 2, (int64_t[]){rows, width}, seed + 1, &t->w_qkv));
  TRY(array_random("biases", HEED_F32, 1, &rows, seed + 2, &t->b_qkv));
  TRY(array_random("weights", HEED_F32, 2, (int64_t[]){width, width}, seed + 3, &t->w_o));
  TRY(array_random("biases", HEED_F32, 1, &width, seed + 4, &t->b_o));
  TRY(array_random("the gradient of out", HEED_F32, 3, tokens, seed + 5, &t->dout));
  TRY(array_new("out", HEED_F32, 3, tokens, &t->out));
  t->attention = (heed_attention){.size = sizeof t->attention, .causal = item(&v->causal), .align = HEED_ALIGN_START};
  t->layer = (heed_multi_head){
      .size = sizeof t->layer,
      .heads = item(&v->heads),
      .kv_heads = item(&v->kv_heads),
      .attention = &t->attention,
      .w_qkv = &t->w_qkv.view,
      .b_qkv = &t->b_qkv.view,
      .w_o = &t->w_o.view,
      .b_o = &t->b_o.view,
  };
  TRY(check(context, heed_multi_head_saved_size(context, &t->layer, &t->x.view, NULL, NULL, &saved)));
  TRY(array_new("what backward needs", HEED_F32, 1, &saved, &t->saved));
done:
  return code;
}

static int make_gradients(training *t) {
  array *pairs[][2] = {{&t->dx, &t->x}, {&t->dw_qkv, &t->w_qkv}, {&t->db_qkv, &t->b_qkv}, {&t->dw_o, &t->w_o}, {&t->db_o, &t->b_o}};
  int code = EXIT_OK;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
    TRY(array_new("a gradient", HEED_F32, pairs[i][1]->view.ndim, pairs[i][1]->view.dim, pairs[i][0]));
done:
  return code;
}

static int forward(bench_case *c) {
  training *t = c->state;
  heed_multi_head_extras extras = {.size = sizeof extras, .saved = t->pass == PASS_FORWARD ? NULL : &t->saved.view};
  return check(c->context, heed_multi_head_forward(c->context, &t->layer, &t->x.view, NULL, NULL, &t->out.view, &extras));
}

static int backward(bench_case *c) {
  training *t = c->state;
  heed_multi_head_gradients gradients = {
      .size = sizeof gradients,
      .dx_query = &t->dx.view,
      .dw_qkv = &t->dw_qkv.view,
      .db_qkv = &t->db_qkv.view,
      .dw_o = &t->dw_o.view,
      .db_o = &t->db_o.view,
  };
  return check(c->context,
               heed_multi_head_backward(c->context, &t->layer, &t->x.view, NULL, NULL, &t->saved.view, &t->dout.view, &gradients));
}

/* A product runs once forward and twice backward, for its input and its weights; attention's two products a pair become five. */
static double flops_of(const values *v, const training *t) {
  double n = (double)item(&v->n), heads = (double)item(&v->heads), d = (double)item(&v->width) / heads;
  double pairs = (double)item(&v->batch) * heads * (item(&v->causal) ? n * (n + 1) / 2 : n * n);
  double weights = (double)view_count(&t->w_qkv.view) + (double)view_count(&t->w_o.view);
  double products = 2 * (double)item(&v->batch) * n * weights, attention = 4 * pairs * d;
  double one_way = products + attention, back = 2 * products + 2.5 * attention;
  return t->pass == PASS_FORWARD ? one_way : t->pass == PASS_BACKWARD ? back : one_way + back;
}

static int open_layer(void *pointer, bench_case *c) {
  values *v = pointer;
  training *t = c->state = allocate("a case", 1, sizeof *t);
  int code;
  if (item(&v->kv_heads) == 0) v->kv_heads.items[0] = item(&v->heads);
  if (item(&v->width) % item(&v->heads) != 0)
    return usage_error("--width: not a multiple of --heads (got %lld and %lld)", (long long)item(&v->width), (long long)item(&v->heads));
  t->pass = item(&v->pass);
  TRY(make_layer(v, c->context, t));
  TRY(make_gradients(t));
  if (t->pass == PASS_BACKWARD) TRY(forward(c)); // backward reads what it saved
  c->flops = flops_of(v, t);
done:
  return code;
}

static int call_layer(bench_case *c) {
  int64_t pass = ((const training *)c->state)->pass;
  int code = EXIT_OK;
  if (pass != PASS_BACKWARD) TRY(forward(c));
  if (pass != PASS_FORWARD) TRY(backward(c));
done:
  return code;
}

static void close_layer(bench_case *c) {
  training *t = c->state;
  if (!t) return;
  array *all[] = {&t->x,     &t->w_qkv, &t->b_qkv,  &t->w_o,    &t->b_o,  &t->dout, &t->out,
                  &t->saved, &t->dx,    &t->dw_qkv, &t->db_qkv, &t->dw_o, &t->db_o};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
  free(t);
}

extern const command command_bench_layer;

static int run(const void *v) {
  static const bench layer = {.open = open_layer, .call = call_layer, .close = close_layer};
  return bench_run(&command_bench_layer, &layer, v);
}

static const option options[] = {
    OPTION("batch", 0, WHOLES, "LIST", batch, "sequences (default 4)", .low = 1, .high = 1e6),
    OPTION("width", 0, WHOLES, "LIST", width, "width of the model (default 768)", .low = 1, .high = 1e6),
    OPTION("heads", 0, WHOLES, "LIST", heads, "query heads (default 12)", .low = 1, .high = 4096),
    OPTION("kv-heads", 0, WHOLES, "LIST", kv_heads, "key/value heads (default 0: as many as query heads)", .low = 0, .high = 4096),
    OPTION("n", 'n', WHOLES, "LIST", n, "tokens of a sequence (default 512)", .low = 1, .high = 1e7),
    OPTION("causal", 0, WHOLES, "LIST", causal, "0, 1 or both (default 0)", .low = 0, .high = 1),
    OPTION("pass", 0, CHOICES, "LIST", pass, "what is timed (default forward,both)", .choices = "forward|backward|both"),
    BENCH_OPTIONS,
    {0},
};

const command command_bench_layer = {
    .name = "bench layer",
    .summary = "time a multi-head layer, forward and backward",
    .about =
        "Times heed_multi_head_forward and heed_multi_head_backward in self-attention for every combination of the lists and says how much "
        "of the machine's multiply-add peak they reach, as `heed bench attention` does. Operations counted: those of the products with "
        "the weights and of every visible pair; backward has all gradients.",
    .examples = "  heed bench layer --batch 4 --n 512 --width 768 --heads 12 --pass both --threads 2\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){BENCH_DEFAULTS, .batch = {1, {4}}, .width = {1, {768}}, .heads = {1, {12}}, .kv_heads = {1, {0}},
                                .n = {1, {512}}, .causal = {1, {0}}, .pass = {2, {PASS_FORWARD, PASS_BOTH}}},
    .run = run,
};
