/* experiment_warmup.c: `heed experiment warmup`: what warm-up is for where the norm stands after the residual sum, as in 2017, and whether a norm before each sublayer needs it
 * (Xiong et al. 2020, "On layer normalization in the transformer architecture"). */
#include "experiment_model.h"

#include <string.h>

static const struct {
  const char *name;
  bool norm_after, warm;
} kinds[] = {
    {"pre-norm", false, false},
    {"post-norm", true, false},
    {"pre-norm, warm-up", false, true},
    {"post-norm, warm-up", true, true},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], PRE = 0, POST = 1, POST_WARM = 3 };

static void conclude(experiment *e, const outcome of[KINDS], int64_t steps, int64_t warmup) {
  finding(e,
          "Without warm-up and after %lld steps, the loss is %.2f with the norm after each sum and %.2f with it before each sublayer, %s; ",
          (long long)steps, of[POST].loss, of[PRE].loss,
          of[POST].loss > 1.2 * of[PRE].loss + 0.02   ? "so post-norm does worse"
          : of[PRE].loss > 1.2 * of[POST].loss + 0.02 ? "so pre-norm does worse"
                                                      : "so the two do alike");
  finding(e,
          "%lld steps of warm-up take post-norm to %.2f (%.1f %% of fresh words exact, against %.1f %% without and %.1f %% with pre-norm).",
          (long long)warmup, of[POST_WARM].loss, 100 * of[POST_WARM].exact, 100 * of[POST].exact, 100 * of[PRE].exact);
}

static int measure(experiment *e) {
  heed_task task[2] = {{.size = sizeof *task, .kind = HEED_TASK_REVERSE, .most = 8, .symbols = 16}};
  lesson l;
  panel *p = experiment_panel(e, "Learning to reverse words, six layers", "step", 0, "loss (nats)", 0);
  outcome of[KINDS] = {{0}};
  int code;
  TRY(experiment_task(e, task, &l));
  const int64_t steps = experiment_steps(e, 400), warmup = steps / 4;
  l.steps = steps;
  l.batch = 32;
  l.rate = 3e-3;
  static const char *const titles[] = {"norm", "warm-up", "loss at the end", "exact", "seconds"};
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) cell(e, "%s", titles[i]);
  row_end(e);
  for (int k = 0; k < KINDS; k++) {
    l.warmup = kinds[k].warm ? warmup : 0;
    const small_spec spec = {.layers = 6,
                             .heads = 2,
                             .width = 64,
                             .context = l.length,
                             .vocabulary = (int64_t)strlen(heed_task_alphabet(task)),
                             .norm_after = kinds[k].norm_after,
                             .seed = e->seed};
    TRY(experiment_train(e, &spec, &l, panel_curve(p, false, "%s", kinds[k].name), &of[k]));
    cell(e, kinds[k].norm_after ? "after" : "before");
    cell(e, "%lld", (long long)l.warmup);
    cell(e, "%.3f", of[k].loss);
    cell(e, "%.1f %%", 100 * of[k].exact);
    cell(e, "%.1f", of[k].seconds);
    row_end(e);
  }
  conclude(e, of, steps, warmup);
done:
  return code;
}

static int run(const void *v) { return experiment_run("Norm before or after, with warm-up and without", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_warmup = {
    .name = "experiment warmup",
    .summary = "compare post-norm without warm-up with pre-norm",
    .about = "Trains a transformer of six layers to reverse words four times: with the norm before each sublayer or after each residual "
             "sum, and with a learning rate that begins at its highest or rises to it over a quarter of the steps.",
    .examples = "  heed experiment warmup -o warmup.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
