/* experiment_scale.c: `heed experiment scale`: why scores are divided by √d_k (Vaswani et al. 2017, section 3.2.1).
 *
 * With entries of q and k that are independent, of mean 0 and variance 1, q·k has variance d_k. The softmax of numbers so far apart is nearly a choice of one, and its gradient nearly
 * nothing. All of it is measured: on drawn vectors, and in two trainings that differ in the scale alone. */
#include "arrays.h"
#include "experiment_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 256, KEYS = 64, WIDTH = 512 };

/* Of one width, with the scale and without. */
typedef struct sample {
  double variance[2], entropy[2], gradient[2];
} sample;

/* ---- drawn vectors --------------------------------------------------------------------------------------------------------- */

static int add_normal(heed_context *context, heed_parameters *set, const char *name, int64_t rows, int64_t columns, uint64_t seed,
                      uint64_t stream, heed_tensor **out) {
  int code;
  TRY(check(context, heed_parameters_add(set, name, 2, (int64_t[]){rows, columns}, NULL, out)));
  TRY(check(context, heed_tensor_initialise(context, *out, HEED_INITIAL_NORMAL, 1, seed, stream)));
done:
  return code;
}

static double variance_of(const float *x, int64_t count) {
  double mean = 0, sum = 0;
  for (int64_t i = 0; i < count; i++) mean += (double)x[i] / (double)count;
  for (int64_t i = 0; i < count; i++) sum += (x[i] - mean) * (x[i] - mean);
  return sum / (double)count;
}

static double median_of(double *x, int64_t count) {
  sort_numbers(x, count);
  return x[count / 2];
}

/* Medians over the rows of scores: the entropy of the softmax in bits, and the length of the gradient that comes through it from an upstream of normal numbers (whose mean square is the
 * squared norm of the softmax's Jacobian). Medians, because a few rows where two keys happen to score alike carry nearly all of the mean. */
static int look_at_softmax(heed_context *context, heed_tensor *scores, const heed_view *upstream, double *entropy, double *gradient) {
  heed_tape *tape = NULL;
  double entropies[QUERIES], lengths[QUERIES];
  int code;
  TRY(check(context, heed_tape_new(context, &tape)));
  heed_tensor *weights = heed_tape_softmax(tape, scores);
  TRY(check(context, heed_tape_status(tape)));
  const float *p = heed_tensor_value(weights).data;
  for (int64_t i = 0; i < QUERIES; i++) {
    entropies[i] = 0;
    for (int64_t j = 0; j < KEYS; j++)
      if (p[i * KEYS + j] > 0) entropies[i] -= p[i * KEYS + j] * log2((double)p[i * KEYS + j]);
  }
  TRY(check(context, heed_tape_backward(tape, weights, upstream)));
  const float *g = heed_tensor_gradient(scores).data;
  for (int64_t i = 0; i < QUERIES; i++) {
    double square = 0;
    for (int64_t j = 0; j < KEYS; j++) square += (double)g[i * KEYS + j] * g[i * KEYS + j];
    lengths[i] = sqrt(square);
  }
  *entropy = median_of(entropies, QUERIES);
  *gradient = median_of(lengths, QUERIES);
done:
  heed_tape_free(tape);
  return code;
}

/* parameters "scores" becomes factor · q kᵀ. */
static int score(heed_context *context, heed_tensor *q, heed_tensor *k, double factor, heed_tensor *scores) {
  heed_tape *tape = NULL;
  int code;
  TRY(check(context, heed_tape_new(context, &tape)));
  heed_tensor *product = heed_tape_scale(tape, heed_tape_matmul(tape, q, false, k, true), factor);
  TRY(check(context, heed_tape_status(tape)));
  const float *from = heed_tensor_value(product).data;
  float *to = heed_tensor_value(scores).data;
  for (int64_t i = 0; i < QUERIES * KEYS; i++) to[i] = from[i];
done:
  heed_tape_free(tape);
  return code;
}

static int measure_width(experiment *e, int64_t d, sample *s) {
  heed_parameters *set = NULL;
  heed_tensor *q, *k, *scores, *upstream;
  int code;
  TRY(check(e->context, heed_parameters_new(e->context, &set)));
  TRY(add_normal(e->context, set, "q", QUERIES, d, e->seed, 1, &q));
  TRY(add_normal(e->context, set, "k", KEYS, d, e->seed, 2, &k));
  TRY(add_normal(e->context, set, "scores", QUERIES, KEYS, e->seed, 3, &scores));
  TRY(add_normal(e->context, set, "upstream", QUERIES, KEYS, e->seed, 4, &upstream));
  const heed_view view = heed_tensor_value(upstream);
  for (int plain = 0; plain < 2; plain++) {
    TRY(score(e->context, q, k, plain ? 1 : 1 / sqrt((double)d), scores));
    s->variance[plain] = variance_of(heed_tensor_value(scores).data, QUERIES * KEYS);
    heed_parameters_forget_gradients(set);
    TRY(look_at_softmax(e->context, scores, &view, &s->entropy[plain], &s->gradient[plain]));
  }
done:
  heed_parameters_free(set);
  return code;
}

/* The slope of log variance over log d_k: 1 where variance grows as d_k. */
static double exponent_of(const curve *c) {
  double x = 0, y = 0, xx = 0, xy = 0, n = (double)c->count;
  for (int64_t i = 0; i < c->count; i++) {
    double a = log(c->x[i]), b = log(c->y[i]);
    x += a, y += b, xx += a * a, xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

static int measure_vectors(experiment *e, sample *last, double *exponent) {
  static const char *const names[] = {"q·k / √d_k", "q·k"};
  panel *variance = experiment_panel(e, "Variance of q·k", "d_k", 2, "variance", 10);
  panel *entropy = experiment_panel(e, "Entropy of the softmax over 64 keys", "d_k", 2, "bits, median row", 0);
  panel *gradient = experiment_panel(e, "Gradient that the softmax lets through", "d_k", 2, "norm, median row", 10);
  curve *measured[2], *bits[2], *norm[2];
  int code = EXIT_OK;
  for (int i = 0; i < 2; i++) {
    measured[i] = panel_curve(variance, false, "%s", names[i]);
    bits[i] = panel_curve(entropy, false, "%s", names[i]);
    norm[i] = panel_curve(gradient, false, "%s", names[i]);
  }
  curve *theory = panel_curve(variance, true, "d_k");
  cell(e, "d_k");
  cell(e, "variance of q·k");
  cell(e, "entropy scaled");
  cell(e, "unscaled (bits)");
  cell(e, "gradient scaled");
  cell(e, "unscaled");
  row_end(e);
  for (int64_t d = 1; d <= 4096; d *= 2) {
    sample s;
    TRY(measure_width(e, d, &s));
    curve_add(theory, (double)d, (double)d);
    for (int i = 0; i < 2; i++) {
      curve_add(measured[i], (double)d, s.variance[i]);
      curve_add(bits[i], (double)d, s.entropy[i]);
      curve_add(norm[i], (double)d, s.gradient[i]);
    }
    cell(e, "%lld", (long long)d);
    cell(e, "%.4g", s.variance[1]);
    for (int i = 0; i < 2; i++) cell(e, "%.3f", s.entropy[i]);
    for (int i = 0; i < 2; i++) cell(e, "%.3g", s.gradient[i]);
    row_end(e);
    if (d == WIDTH) *last = s;
  }
  *exponent = exponent_of(measured[1]);
done:
  return code;
}

/* ---- trainings ------------------------------------------------------------------------------------------------------------- */

static int train_both(experiment *e, outcome of[2], int64_t *steps) {
  heed_task task[2] = {{.size = sizeof *task, .kind = HEED_TASK_REVERSE, .most = 8, .symbols = 16}};
  lesson l;
  int code;
  TRY(experiment_task(e, task, &l));
  l.steps = *steps = experiment_steps(e, 500);
  l.batch = 32;
  l.warmup = 20;
  l.rate = 1e-3;
  panel *p = experiment_panel(e, "Learning to reverse words, one head with d_k = 512", "step", 0, "loss (nats)", 0);
  for (int i = 0; i < 2; i++) {
    const small_spec spec = {.layers = 2,
                             .heads = 1,
                             .width = 64,
                             .head_dim = WIDTH,
                             .context = l.length,
                             .vocabulary = (int64_t)strlen(heed_task_alphabet(task)),
                             .unscaled = i,
                             .seed = e->seed};
    TRY(experiment_train(e, &spec, &l, panel_curve(p, false, i ? "q·k" : "q·k / √d_k"), &of[i]));
  }
done:
  return code;
}

static int measure(experiment *e) {
  sample s = {0};
  outcome of[2] = {{0}};
  double exponent = 0;
  int64_t steps;
  int code;
  TRY(measure_vectors(e, &s, &exponent));
  TRY(train_both(e, of, &steps));
  row_end(e);
  cell(e, "training");
  cell(e, "loss at the end");
  cell(e, "exact");
  cell(e, "seconds");
  row_end(e);
  for (int i = 0; i < 2; i++) {
    cell(e, i ? "q·k" : "q·k / √d_k");
    cell(e, "%.3f", of[i].loss);
    cell(e, "%.1f %%", 100 * of[i].exact);
    cell(e, "%.1f", of[i].seconds);
    row_end(e);
  }
  finding(e,
          "The variance of q·k grows as d_k^%.2f; at d_k = %d, dividing by √d_k takes the softmax's entropy from %.2f to %.2f of %.0f bits "
          "and its gradient from %.2g to %.2g, and after "
          "%lld steps the loss is %.2f with %.1f %% of fresh words reversed, without it %.2f with %.1f %%.",
          exponent, WIDTH, s.entropy[1], s.entropy[0], log2(KEYS), s.gradient[1], s.gradient[0], (long long)steps, of[0].loss,
          100 * of[0].exact, of[1].loss, 100 * of[1].exact);
done:
  return code;
}

static int run(const void *v) { return experiment_run("Why scores are divided by √d_k", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_scale = {
    .name = "experiment scale",
    .summary = "measure what dividing by √d_k is for",
    .about =
        "Draws queries and keys of growing width and measures the variance of q·k, the entropy of the softmax and the gradient that it "
        "lets through, with and without 1/√d_k; then trains a model with one head of d_k = 512 to reverse words, both ways.",
    .examples = "  heed experiment scale -o scale.svg --csv scale.csv\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
