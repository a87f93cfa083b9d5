/* experiment_heads.c: `heed experiment heads`: one to sixteen heads that share one width, on a task that needs four look-ups at once.
 *
 * A head forms one average, so several look-ups want several heads; but the more heads share the width, the narrower the queries and keys by which each must find its place.
 * Every place of a sequence of random letters, which goes round like a ring, must name the letters that stand 1, 3, 6 and 10 places on, in that order. */
#include "experiment_model.h"

enum { PLACES = 24, LETTERS = 16, LOOK_UPS = 4, WIDTH = 64 };
static const int ahead[LOOK_UPS] = {1, 3, 6, 10};
static const int64_t heads[] = {1, 2, 4, 8, 16};
enum { KINDS = sizeof heads / sizeof heads[0] };

/* user: a number that tells training and held-out sequences apart. targets [batch, length, LOOK_UPS]. */
static void ring_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  uint64_t state = (seed * 0x9E3779B97F4A7C15u + (uint64_t)number) * 2 + *(const uint64_t *)user;
  for (int64_t i = 0; i < batch * length; i++) ids[i] = (int32_t)dice(&state, LETTERS);
  for (int64_t i = 0; i < batch * length; i++)
    for (int k = 0; k < LOOK_UPS; k++) targets[i * LOOK_UPS + k] = ids[i / length * length + (i % length + ahead[k]) % length];
}

static void conclude(experiment *e, const outcome of[KINDS]) {
  int best = 0;
  for (int k = 1; k < KINDS; k++)
    if (of[k].right > of[best].right) best = k;
  finding(e, "With %lld parameters each, %lld head%s of width %lld did best: %.1f %% of the answers right, against %.1f %% with one head",
          (long long)of[best].parameters, (long long)heads[best], heads[best] > 1 ? "s" : "", (long long)(WIDTH / heads[best]),
          100 * of[best].right, 100 * of[0].right);
  finding(e, " and %.1f %% with %lld of width %lld (guessing: %.1f %%).", 100 * of[KINDS - 1].right, (long long)heads[KINDS - 1],
          (long long)(WIDTH / heads[KINDS - 1]), 100.0 / LETTERS);
}

static int measure(experiment *e) {
  uint64_t train = 0, held_out = 1;
  const lesson l = {.name = "train",
                    .source = ring_batch,
                    .user = &train,
                    .held_out = ring_batch,
                    .held_out_user = &held_out,
                    .steps = experiment_steps(e, 600),
                    .batch = 32,
                    .length = PLACES,
                    .warmup = 20,
                    .rate = 2e-3,
                    .seed = e->seed};
  panel *losses = experiment_panel(e, "Learning four look-ups at once", "step", 0, "loss (nats)", 0);
  panel *rights = experiment_panel(e, "Answers that are right in the end", "heads", 2, "share of fresh answers", 0);
  curve *right = panel_curve(rights, false, "trained");
  curve *guess = panel_curve(rights, true, "guessing");
  outcome of[KINDS] = {{0}};
  int code = EXIT_OK;
  static const char *const titles[] = {"heads", "width of each", "parameters", "loss at the end", "right", "seconds"};
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) cell(e, "%s", titles[i]);
  row_end(e);
  for (int k = 0; k < KINDS; k++) {
    const small_spec spec = {.layers = 1,
                             .heads = heads[k],
                             .width = WIDTH,
                             .context = PLACES,
                             .vocabulary = LETTERS,
                             .answers = LOOK_UPS,
                             .both_ways = true,
                             .seed = e->seed};
    TRY(experiment_train(e, &spec, &l, panel_curve(losses, false, "%lld head%s", (long long)heads[k], k ? "s" : ""), &of[k]));
    curve_add(right, (double)heads[k], of[k].right);
    curve_add(guess, (double)heads[k], 1.0 / LETTERS);
    cell(e, "%lld", (long long)heads[k]);
    cell(e, "%lld", (long long)(WIDTH / heads[k]));
    cell(e, "%lld", (long long)of[k].parameters);
    cell(e, "%.3f", of[k].loss);
    cell(e, "%.1f %%", 100 * of[k].right);
    cell(e, "%.1f", of[k].seconds);
    row_end(e);
  }
  conclude(e, of);
done:
  return code;
}

static int run(const void *v) { return experiment_run("One to sixteen heads, one parameter count", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_heads = {
    .name = "experiment heads",
    .summary = "compare one to sixteen heads of one parameter count",
    .about = "Trains one layer of width 64 with 1, 2, 4, 8 and 16 heads to name, from each place of a ring of random letters, the letters "
             "that stand 1, 3, 6 and 10 places on: four look-ups at once. All have the same number of parameters.",
    .examples = "  heed experiment heads -o heads.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
