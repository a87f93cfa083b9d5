/* experiment_permutation.c: `heed experiment permutation`: that self-attention alone does not know order.
 *
 * f is equivariant under permutations when f(P x) = P f(x): tokens in another order give the same outputs in that order. Measured on random tokens and weights; what is left is
 * rounding, because sums are formed in another order, or it is positions. */
#include "experiment.h"

#include "heed/nn.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 64, HEADS = 4, HEAD = WIDTH / HEADS };

/* What tells a token where it stands. */
typedef struct knowledge {
  const char *name;
  bool table;  /* a random vector for each place is added, as learned positions are before training */
  bool rotary; /* queries and keys turn */
  bool alibi;  /* scores fall with distance */
  bool causal; /* nothing is seen of what follows */
} knowledge;

static const knowledge kinds[] = {
    {.name = "no positions"},
    {.name = "a vector for each place", .table = true},
    {.name = "rotary", .rotary = true},
    {.name = "ALiBi", .alibi = true},
    {.name = "causal mask", .causal = true},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
#define ROUNDING 1e-5 /* of f32, some hundred sums of them */

/* A layer with random weights, and places. */
typedef struct bench_layer {
  heed_parameters *set;
  heed_tensor *x, *place, *w_qkv, *w_o;
} bench_layer;

static int add(experiment *e, bench_layer *l, const char *name, int64_t rows, heed_initial kind, uint64_t stream, heed_tensor **out) {
  int code;
  TRY(check(e->context, heed_parameters_add(l->set, name, 2, (int64_t[]){rows, WIDTH}, NULL, out)));
  TRY(check(e->context, heed_tensor_initialise(e->context, *out, kind, 1, e->seed, stream)));
done:
  return code;
}

static int open_layer(experiment *e, int64_t n, bench_layer *l) {
  int code;
  TRY(check(e->context, heed_parameters_new(e->context, &l->set)));
  TRY(add(e, l, "x", n, HEED_INITIAL_NORMAL, 1, &l->x));
  TRY(add(e, l, "places", n, HEED_INITIAL_NORMAL, 2, &l->place));
  TRY(add(e, l, "qkv", 3 * WIDTH, HEED_INITIAL_HE_NORMAL, 3, &l->w_qkv));
  TRY(add(e, l, "o", WIDTH, HEED_INITIAL_HE_NORMAL, 4, &l->w_o));
done:
  return code;
}

/* out [n,WIDTH] = attention over the tokens, row i being token order[i]. */
static int apply(experiment *e, const bench_layer *l, const knowledge *k, const int32_t *order, int64_t n, float *out) {
  float slopes[HEADS];
  for (int h = 0; h < HEADS; h++) slopes[h] = (float)exp2(-8.0 * (h + 1) / HEADS); // Press et al. 2022
  const heed_view slopes_view = heed_view_of(slopes, HEED_F32, 1, (int64_t[]){HEADS});
  const heed_attention attention = {.size = sizeof attention, .causal = k->causal, .alibi = k->alibi ? &slopes_view : NULL};
  const heed_rope rope = {.size = sizeof rope, .theta = 10000};
  const heed_nn_attention layer = {
      .heads = HEADS, .w_qkv = l->w_qkv, .w_o = l->w_o, .attention = &attention, .rope = k->rotary ? &rope : NULL};
  const heed_view rows = heed_view_of((void *)(uintptr_t)order, HEED_I32, 1, &n);
  heed_tape *tape = NULL;
  int code;
  TRY(check(e->context, heed_tape_new(e->context, &tape)));
  heed_tape_set_inference(tape, true);
  heed_tensor *x = heed_tape_gather(tape, l->x, heed_tape_input(tape, &rows));
  if (k->table) x = heed_tape_add(tape, x, l->place);
  heed_tensor *y = heed_nn_attention_apply(tape, &layer, heed_tape_reshape(tape, x, 3, (int64_t[]){1, n, WIDTH}), NULL, NULL, NULL);
  TRY(check(e->context, heed_tape_status(tape)));
  const float *from = heed_tensor_value(y).data;
  for (int64_t i = 0; i < n * WIDTH; i++) out[i] = from[i];
done:
  heed_tape_free(tape);
  return code;
}

/* The largest |f(P x) − P f(x)| as a share of the largest |f(x)|. */
static double difference(const float *plain, const float *permuted, const int32_t *order, int64_t n) {
  double most = 0, size = 0;
  for (int64_t i = 0; i < n * WIDTH; i++) size = fmax(size, fabs((double)plain[i]));
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < WIDTH; c++) most = fmax(most, fabs((double)permuted[i * WIDTH + c] - (double)plain[order[i] * WIDTH + c]));
  return most / size;
}

static int measure_length(experiment *e, int64_t n, curve *const curves[KINDS], double most[KINDS], double least[KINDS]) {
  bench_layer l = {0};
  float *plain = allocate("outputs", n * WIDTH, sizeof *plain), *permuted = allocate("outputs", n * WIDTH, sizeof *permuted);
  int32_t *order = allocate("an order", 2 * n, sizeof *order), *straight = order + n;
  uint64_t state = e->seed + (uint64_t)n;
  int code;
  for (int64_t i = 0; i < n; i++) order[i] = straight[i] = (int32_t)i;
  for (int64_t i = n - 1; i > 0; i--) { // Fisher and Yates
    int64_t j = dice(&state, i + 1);
    int32_t other = order[i];
    order[i] = order[j];
    order[j] = other;
  }
  TRY(open_layer(e, n, &l));
  cell(e, "%lld", (long long)n);
  for (int k = 0; k < KINDS; k++) {
    TRY(apply(e, &l, &kinds[k], straight, n, plain));
    TRY(apply(e, &l, &kinds[k], order, n, permuted));
    double d = difference(plain, permuted, order, n);
    curve_add(curves[k], (double)n, d);
    most[k] = fmax(most[k], d);
    least[k] = fmin(least[k], d);
    cell(e, "%.2g", d);
  }
  row_end(e);
done:
  free(plain);
  free(permuted);
  free(order);
  heed_parameters_free(l.set);
  return code;
}

static void conclude(experiment *e, const double most[KINDS], const double least[KINDS]) {
  double smallest = INFINITY;
  int blind = 0;
  for (int k = 1; k < KINDS; k++) {
    smallest = fmin(smallest, least[k]);
    blind += least[k] <= ROUNDING;
  }
  finding(e, "Without positions, tokens in another order give the same outputs in that order to within %.1g of the largest%s; ", most[0],
          most[0] == 0          ? ", exactly"
          : most[0] <= ROUNDING ? ", which is rounding"
                                : ", which is more than rounding");
  if (blind == 0) finding(e, "with any of the %d kinds of positions they differ by at least %.2g of it.", KINDS - 1, smallest);
  else finding(e, "of the %d kinds of positions %d did not tell orders apart.", KINDS - 1, blind);
}

static int measure(experiment *e) {
  panel *p = experiment_panel(e, "How far f(P x) is from P f(x)", "tokens", 2, "share of the largest output", 10);
  curve *curves[KINDS];
  double most[KINDS] = {0}, least[KINDS];
  int code = EXIT_OK;
  cell(e, "tokens");
  for (int k = 0; k < KINDS; k++) {
    curves[k] = panel_curve(p, false, "%s", kinds[k].name);
    least[k] = INFINITY;
    cell(e, "%s", kinds[k].name);
  }
  row_end(e);
  for (int64_t n = 4; n <= (e->v->quick ? 32 : 1024); n *= 2) TRY(measure_length(e, n, curves, most, least));
  conclude(e, most, least);
done:
  return code;
}

static int run(const void *v) { return experiment_run("Self-attention alone does not know order", measure, v); }

static const option options[] = {EXPERIMENT_OPTIONS};

const command command_experiment_permutation = {
    .name = "experiment permutation",
    .summary = "measure that attention alone does not know order",
    .about = "Gives a layer of self-attention its tokens in another order and measures how far the outputs are from the old ones in that "
             "order: without positions, and with vectors that are added, rotary positions, ALiBi, and a causal mask.",
    .examples = "  heed experiment permutation -o permutation.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
