/* experiment_bottleneck.c: `heed experiment bottleneck`: three models of one size and one budget that reverse strings. One must hold the whole string in a vector (Cho et al. 2014), one looks
 * back at each step (Bahdanau et al. 2015), one does without recurrence (Vaswani et al. 2017). Where does the vector fail, and what does time depend on? */
#include "experiment_strings.h"

#include "heed/translate.h"

#include <math.h>
#include <stdlib.h>

enum { TRAINED = 30, LONGEST = 40, SHORTEST = 4 }; // letters of strings; of fewer than four none are held out
enum { BATCH = 32, PAIRS = 100000, WARMUP = 100 };
static const double rate = 3e-3, usual_clip = 1;

enum { FIXED, LOOKS_BACK, PARALLEL, KINDS };
static const struct {
  const char *name;
  heed_learner_options form;
} kinds[KINDS] = {
    {"fixed vector", {.kind = HEED_LEARNER_RECURRENT, .score = HEED_LEARNER_NONE, .width = 132}},
    {"Bahdanau", {.kind = HEED_LEARNER_RECURRENT, .score = HEED_LEARNER_ADDITIVE, .width = 128}},
    {"Transformer", {.kind = HEED_LEARNER_SEQ2SEQ, .layers = 2, .heads = 3, .width = 96, .feed_forward = 312, .norm_before = true}},
};

static const struct { int64_t from, to; } buckets[] = {{SHORTEST, 8}, {9, 16}, {17, 24}, {25, TRAINED}, {TRAINED + 1, LONGEST}};
enum { BUCKETS = sizeof buckets / sizeof buckets[0], LONG = BUCKETS - 2, LONGER = BUCKETS - 1 };

enum { TIMES = 6, DECODED = 4 };
/* Letters of the strings that are timed. Models decode what they have been shown, and a little more. */
static const int64_t timed[TIMES] = {5, 10, 20, 40, 80, 160};

/* What is timed, in milliseconds. */
enum { STEP, SINGLE, DECODE, TASKS };
static const struct {
  const char *title, *name;
  int lengths;
} tasks[TASKS] = {{"A training step on 32 strings", "a step of 32 (ms)", TIMES},
                  {"A training step on one string", "a step of one (ms)", TIMES},
                  {"Decoding a string, 32 at once", "decoding a string (ms)", DECODED}};
_Static_assert(BATCH == 32, "the titles say so");

/* What was measured of a model. */
typedef struct measured {
  heed_model *model;
  int64_t parameters;
  double loss, seconds;
  double exact[BUCKETS]; // share of held-out strings
  double time[TASKS][TIMES];
} measured;

static int open_learner(experiment *e, int kind, int64_t letters, heed_learner **out) {
  heed_learner_options form = kinds[kind].form;
  form.size = sizeof form;
  form.vocabulary = STRINGS_VOCABULARY;
  form.source = form.context = letters + 1;
  form.seed = e->seed;
  form.has_ends = true;
  form.start = STRINGS_START;
  form.end = STRINGS_END;
  return check(e->context, heed_learner_new(e->context, &form, out));
}

/* ---- training ------------------------------------------------------------------------------------------------------------ */

/* What a run leaves behind: the mean loss of its last tenth, and times. */
typedef struct record {
  double loss, seconds, fastest; // the last: of a step
  int64_t losses;
} record;

static bool note_step(void *user, const heed_train_report *report) {
  record *r = user;
  r->seconds += report->seconds;
  if (r->fastest == 0 || report->seconds < r->fastest) r->fastest = report->seconds;
  if (10 * report->step > 9 * report->steps) r->loss += (report->loss - r->loss) / (double)++r->losses;
  return true;
}

static int teach(experiment *e, heed_learner *learner, const strings *s, int64_t steps, int64_t batch, record *r) {
  const heed_train_options options = {.size = sizeof options,
                                      .steps = steps,
                                      .batch = batch,
                                      .length = 2 * s->data.width, // a target begins with a token as a source ends with one
                                      .source = heed_pair_batch,
                                      .source_user = (void *)(uintptr_t)&s->data,
                                      .seed = e->seed,
                                      .optimiser = {.size = sizeof options.optimiser, .has_betas = true, .beta1 = 0.9, .beta2 = 0.98},
                                      .schedule = {.size = sizeof options.schedule,
                                                   .kind = HEED_SCHEDULE_COSINE,
                                                   .peak = rate,
                                                   .floor = rate / 20,
                                                   .warmup = steps > WARMUP ? WARMUP : 0,
                                                   .steps = steps},
                                      .clip = usual_clip,
                                      .report = note_step,
                                      .report_user = r};
  heed_train_state state = {.size = sizeof state};
  heed_optimiser *optimiser = NULL;
  int code;
  TRY(check(e->context, heed_optimiser_new(e->context, heed_learner_parameters(learner), &options.optimiser, &optimiser)));
  TRY(check(e->context, heed_train(learner, optimiser, &options, &state)));
done:
  heed_optimiser_free(optimiser);
  return code;
}

/* ---- quality -------------------------------------------------------------------------------------------------------------- */

/* Given the right letters so far the likeliest next one is always right: then greedy decoding writes the answer to the letter, and only then. */
static int measure_quality(experiment *e, heed_learner *learner, curve *exact, measured *m) {
  const int64_t each = e->v->quick ? 4 : 128;
  int64_t right[BUCKETS] = {0}, all[BUCKETS] = {0};
  strings s = {0};
  int code = EXIT_OK, b = 0;
  for (int64_t n = SHORTEST; n <= LONGEST; n++) {
    heed_evaluation found = {.size = sizeof found};
    strings_close(&s);
    TRY(strings_open(e, &(strings_wish){.least = n, .most = n, .count = each, .width = LONGEST + 1, .held_out = true}, &s));
    TRY(check(e->context, heed_learner_evaluate(learner, heed_pair_row_batch, &s.data, e->seed, 1, each, 2 * s.data.width, &found)));
    curve_add(exact, (double)n, (double)found.exact_sequences / (double)found.sequences);
    if (n > buckets[b].to) b++;
    right[b] += found.exact_sequences;
    all[b] += found.sequences;
  }
  for (b = 0; b < BUCKETS; b++) m->exact[b] = (double)right[b] / (double)all[b];
done:
  strings_close(&s);
  return code;
}

/* ---- time ------------------------------------------------------------------------------------------------------------------ */

/* The fastest of a few steps, in milliseconds. */
static int time_step(experiment *e, int kind, int64_t letters, int64_t batch, double *milliseconds) {
  record r = {.losses = 0};
  heed_learner *learner = NULL;
  strings s;
  int code;
  TRY(strings_open(e, &(strings_wish){.least = letters, .most = letters, .count = batch, .width = letters + 1}, &s));
  TRY(open_learner(e, kind, letters, &learner));
  TRY(teach(e, learner, &s, e->v->quick ? 1 : 4, batch, &r));
  *milliseconds = 1e3 * r.fastest;
done:
  heed_learner_free(learner);
  strings_close(&s);
  return code;
}

static int time_decoding(experiment *e, heed_model *model, int64_t letters, double *milliseconds) {
  const heed_translate_options options = {.size = sizeof options, .most = letters + 1, .batch = BATCH};
  const int runs = e->v->quick ? 1 : 3;
  double fastest = INFINITY;
  strings s;
  int code;
  TRY(strings_open(e, &(strings_wish){.least = letters, .most = letters, .count = BATCH, .width = letters + 1, .held_out = true}, &s));
  const heed_sources sources = {s.source, s.source_begin, BATCH};
  for (int i = 0; i < runs; i++) {
    heed_translations *results = NULL;
    const double begin = seconds_now();
    TRY(check(e->context, heed_translate(e->context, model, &sources, &options, &results)));
    fastest = fmin(fastest, seconds_now() - begin);
    heed_translations_free(results);
  }
  *milliseconds = 1e3 * fastest / BATCH;
done:
  strings_close(&s);
  return code;
}

static int time_task(experiment *e, int task, int kind, int64_t letters, const measured *m, double *milliseconds) {
  if (task == DECODE) return time_decoding(e, m->model, letters, milliseconds);
  return time_step(e, kind, letters, task == STEP ? BATCH : 1, milliseconds);
}

/* Models in turn, so that all of them meet whatever else the machine does, and the fastest of some rounds. */
static int measure_times(experiment *e, measured of[KINDS]) {
  const int rounds = e->v->quick ? 1 : 3;
  int code = EXIT_OK;
  for (int task = 0; task < TASKS; task++)
    for (int i = 0; i < tasks[task].lengths; i++)
      for (int n = 0; n < rounds * KINDS; n++) {
        double milliseconds, *best = &of[n % KINDS].time[task][i];
        TRY(time_task(e, task, n % KINDS, timed[i], &of[n % KINDS], &milliseconds));
        if (n < KINDS || milliseconds < *best) *best = milliseconds;
      }
done:
  return code;
}

/* ---- the experiment ---------------------------------------------------------------------------------------------------------- */

/* Decoding is of models that are loaded. */
static int load(experiment *e, const heed_learner *learner, heed_model **out) {
  char directory[SCRATCH_MAX] = "";
  int code;
  TRY(scratch_open(directory));
  TRY(check(e->context, heed_learner_save(learner, NULL, directory)));
  TRY(check(e->context, heed_model_load(e->context, directory, out)));
done:
  scratch_close(directory);
  return code;
}

static int measure_model(experiment *e, int kind, const strings *train, int64_t steps, curve *exact, measured *m) {
  record r = {.losses = 0};
  heed_learner *learner = NULL;
  int code;
  TRY(open_learner(e, kind, LONGEST, &learner));
  m->parameters = heed_parameters_size(heed_learner_parameters(learner));
  TRY(teach(e, learner, train, steps, BATCH, &r));
  m->loss = r.loss;
  m->seconds = r.seconds;
  TRY(measure_quality(e, learner, exact, m));
  TRY(load(e, learner, &m->model));
done:
  heed_learner_free(learner);
  return code;
}

static void print_quality(experiment *e, const measured of[KINDS]) {
  static const char *const titles[] = {"model", "parameters", "loss at the end", "seconds"};
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) cell(e, "%s", titles[i]);
  for (int b = 0; b < BUCKETS; b++)
    cell(e, b == 0 ? "exact of %lld–%lld" : "%lld–%lld", (long long)buckets[b].from, (long long)buckets[b].to);
  row_end(e);
  for (int k = 0; k < KINDS; k++) {
    cell(e, "%s", kinds[k].name);
    cell(e, "%lld", (long long)of[k].parameters);
    cell(e, "%.4f", of[k].loss);
    cell(e, "%.1f", of[k].seconds);
    for (int b = 0; b < BUCKETS; b++) cell(e, "%.1f %%", 100 * of[k].exact[b]);
    row_end(e);
  }
}

static void print_times(experiment *e, const measured of[KINDS]) {
  for (int task = 0; task < TASKS; task++) {
    row_end(e);
    cell(e, "%s", tasks[task].name);
    for (int i = 0; i < tasks[task].lengths; i++) cell(e, "%lld letters", (long long)timed[i]);
    row_end(e);
    for (int k = 0; k < KINDS; k++) {
      cell(e, "%s", kinds[k].name);
      for (int i = 0; i < tasks[task].lengths; i++) cell(e, "%.3g", of[k].time[task][i]);
      row_end(e);
    }
  }
}

static void draw_times(experiment *e, const measured of[KINDS]) {
  for (int task = 0; task < TASKS; task++) {
    panel *p = experiment_panel(e, tasks[task].title, "letters", 2, "milliseconds", 10);
    for (int k = 0; k < KINDS; k++) {
      curve *c = panel_curve(p, false, "%s", kinds[k].name);
      for (int i = 0; i < tasks[task].lengths; i++) curve_add(c, (double)timed[i], of[k].time[task][i]);
    }
  }
}

static void conclude(experiment *e, const measured of[KINDS], int64_t steps) {
  const double fixed = of[FIXED].exact[LONG], back = of[LOOKS_BACK].exact[LONG], parallel = of[PARALLEL].exact[LONG];
  const double least = fmin(back, parallel);
  finding(e,
          "After %lld steps of %d strings the fixed vector reverses %.1f %% of fresh strings of %lld to %lld letters to the letter, "
          "Bahdanau's model %.1f %% and the Transformer %.1f %%: ",
          (long long)steps, BATCH, 100 * fixed, (long long)buckets[LONG].from, (long long)buckets[LONG].to, 100 * back, 100 * parallel);
  finding(e, "%s; ",
          least < 0.9          ? "of the two that look back not both have learned it"
          : fixed <= least / 2 ? "a vector of this size is too narrow for them, looking back is not"
                               : "the vector does more than half as well as looking back");
  finding(e, "of %lld to %lld, longer than any in training, %.1f, %.1f and %.1f %%; ", (long long)buckets[LONGER].from,
          (long long)buckets[LONGER].to, 100 * of[FIXED].exact[LONGER], 100 * of[LOOKS_BACK].exact[LONGER],
          100 * of[PARALLEL].exact[LONGER]);
  const measured *r = &of[LOOKS_BACK], *t = &of[PARALLEL];
  finding(e,
          "a step on %d strings of %lld letters takes Bahdanau's model %.0f ms and the Transformer %.0f, on one string %.1f and %.1f, and "
          "decoding a string of %lld letters %.2f and %.2f.",
          BATCH, (long long)timed[TIMES - 1], r->time[STEP][TIMES - 1], t->time[STEP][TIMES - 1], r->time[SINGLE][TIMES - 1],
          t->time[SINGLE][TIMES - 1], (long long)timed[DECODED - 1], r->time[DECODE][DECODED - 1], t->time[DECODE][DECODED - 1]);
}

static int measure(experiment *e) {
  const int64_t steps = experiment_steps(e, 3000);
  panel *p = experiment_panel(e, "Strings of 1 to 30 letters were taught", "letters", 0, "share of fresh strings, exact", 0);
  measured of[KINDS] = {{0}};
  strings train;
  int code;
  TRY(strings_open(e, &(strings_wish){.least = 1, .most = TRAINED, .count = e->v->quick ? 1000 : PAIRS, .width = LONGEST + 1}, &train));
  for (int k = 0; k < KINDS; k++) TRY(measure_model(e, k, &train, steps, panel_curve(p, false, "%s", kinds[k].name), &of[k]));
  TRY(measure_times(e, of));
  print_quality(e, of);
  print_times(e, of);
  draw_times(e, of);
  conclude(e, of, steps);
done:
  for (int k = 0; k < KINDS; k++) heed_model_free(of[k].model);
  strings_close(&train);
  return code;
}

static int run(const void *v) { return experiment_run("A fixed vector, looking back, and no recurrence", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_bottleneck = {
    .name = "experiment bottleneck",
    .summary = "find where a fixed vector fails and looking back does not",
    .about = "Trains three models with as many parameters each on the same strings of 1 to 30 letters, to reverse them: recurrent with one "
             "vector for the whole string, recurrent with attention (Bahdanau's), and a Transformer. Measures which share of fresh strings "
             "of each "
             "length they write to the letter, lengths beyond those of training too, and how time depends on length.",
    .examples = "  heed experiment bottleneck -o bottleneck.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
