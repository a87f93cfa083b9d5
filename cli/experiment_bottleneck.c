/* experiment_bottleneck.c: `heed experiment bottleneck`: three models of one size and one budget that reverse strings. One must hold the whole string in a vector (Cho et al. 2014), one looks
 * back at each step (Bahdanau et al. 2015), one does without recurrence (Vaswani et al. 2017). Where does the vector fail, and what does time depend on? */
#include "experiment_strings.h"

#include "heed/translate.h"

#include <math.h>
#include <stdlib.h>

enum { TRAINED = 30, LONGEST = 40, SHORTEST = 4 }; // letters of strings; of fewer than four none are held out
enum { BATCH = 32, PAIRS = 100000, WARMUP = 100, POINTS = 100 };
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
static const int64_t timed[TIMES] = {5,  10, 20,
                                     40, 80, 160}; // letters of strings; models decode what they have been shown, and a little more

/* What was measured of a model. */
typedef struct measured {
  int64_t parameters;
  double loss, seconds;
  double exact[BUCKETS];                            // share of held-out strings
  double step[TIMES], single[TIMES], decode[TIMES]; // milliseconds: a step of BATCH strings, of one, and decoding a string
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

/* What a run leaves behind. */
typedef struct record {
  curve *losses;
  int64_t block;
  double sum, seconds, fastest; // the last: of a step
} record;

static bool note_step(void *user, const heed_train_report *report) {
  record *r = user;
  r->seconds += report->seconds;
  if (r->fastest == 0 || report->seconds < r->fastest) r->fastest = report->seconds;
  r->sum += report->loss;
  if (!r->losses || (report->step % r->block != 0 && report->step != report->steps)) return true;
  curve_add(r->losses, (double)report->step, r->sum / (double)((report->step - 1) % r->block + 1));
  r->sum = 0;
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
  record r = {.losses = NULL};
  heed_learner *learner = NULL;
  strings s;
  int code;
  TRY(strings_open(e, &(strings_wish){.least = letters, .most = letters, .count = batch, .width = letters + 1}, &s));
  TRY(open_learner(e, kind, letters, &learner));
  TRY(teach(e, learner, &s, e->v->quick ? 1 : 5, batch, &r));
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

/* Decoding is of models that are loaded. */
static int measure_decoding(experiment *e, const heed_learner *learner, measured *m) {
  char directory[SCRATCH_MAX] = "";
  heed_model *model = NULL;
  int code;
  TRY(scratch_open(directory));
  TRY(check(e->context, heed_learner_save(learner, NULL, directory)));
  TRY(check(e->context, heed_model_load(e->context, directory, &model)));
  for (int i = 0; i < DECODED; i++) TRY(time_decoding(e, model, timed[i], &m->decode[i]));
done:
  heed_model_free(model);
  scratch_close(directory);
  return code;
}

/* ---- the experiment ---------------------------------------------------------------------------------------------------------- */

static int measure_model(experiment *e, int kind, const strings *train, int64_t steps, curve *exact, measured *m) {
  record r = {.block = (steps + POINTS - 1) / POINTS};
  heed_learner *learner = NULL;
  curve losses = {.count = 0};
  int code;
  r.losses = &losses;
  TRY(open_learner(e, kind, LONGEST, &learner));
  m->parameters = heed_parameters_size(heed_learner_parameters(learner));
  TRY(teach(e, learner, train, steps, BATCH, &r));
  m->loss = curve_tail(&losses, 0.1);
  m->seconds = r.seconds;
  TRY(measure_quality(e, learner, exact, m));
  TRY(measure_decoding(e, learner, m));
  for (int i = 0; i < TIMES; i++) {
    TRY(time_step(e, kind, timed[i], BATCH, &m->step[i]));
    TRY(time_step(e, kind, timed[i], 1, &m->single[i]));
  }
done:
  free(losses.x);
  free(losses.y);
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

/* Milliseconds as the table has them. */
static const double *times_of(const measured *m, int what) { return what == 0 ? m->step : what == 1 ? m->single : m->decode; }

static void print_times(experiment *e, const measured of[KINDS]) {
  static const char *const whats[] = {"a step of 32 (ms)", "a step of one (ms)", "decoding a string (ms)"};
  for (int what = 0; what < 3; what++) {
    row_end(e);
    cell(e, "%s", whats[what]);
    for (int i = 0; i < (what < 2 ? TIMES : DECODED); i++) cell(e, "%lld letters", (long long)timed[i]);
    row_end(e);
    for (int k = 0; k < KINDS; k++) {
      cell(e, "%s", kinds[k].name);
      for (int i = 0; i < (what < 2 ? TIMES : DECODED); i++) cell(e, "%.3g", times_of(&of[k], what)[i]);
      row_end(e);
    }
  }
}

static void draw_times(experiment *e, const measured of[KINDS]) {
  static const char *const titles[] = {"A training step on 32 strings", "A training step on one string", "Decoding a string, 32 at once"};
  for (int what = 0; what < 3; what++) {
    panel *p = experiment_panel(e, titles[what], "letters", 2, "milliseconds", 10);
    for (int k = 0; k < KINDS; k++) {
      curve *c = panel_curve(p, false, "%s", kinds[k].name);
      for (int i = 0; i < (what < 2 ? TIMES : DECODED); i++) curve_add(c, (double)timed[i], times_of(&of[k], what)[i]);
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
  finding(e,
          "a step on %d strings of %lld letters takes Bahdanau's model %.0f ms and the Transformer %.0f, on one string %.1f and %.1f, and "
          "decoding a string of %lld letters %.2f and %.2f.",
          BATCH, (long long)timed[TIMES - 1], of[LOOKS_BACK].step[TIMES - 1], of[PARALLEL].step[TIMES - 1],
          of[LOOKS_BACK].single[TIMES - 1], of[PARALLEL].single[TIMES - 1], (long long)timed[DECODED - 1],
          of[LOOKS_BACK].decode[DECODED - 1], of[PARALLEL].decode[DECODED - 1]);
}

static int measure(experiment *e) {
  const int64_t steps = experiment_steps(e, 3000);
  panel *p = experiment_panel(e, "Strings of 1 to 30 letters were taught", "letters", 0, "share of fresh strings, exact", 0);
  measured of[KINDS] = {{0}};
  strings train;
  int code;
  TRY(strings_open(e, &(strings_wish){.least = 1, .most = TRAINED, .count = e->v->quick ? 1000 : PAIRS, .width = LONGEST + 1}, &train));
  for (int k = 0; k < KINDS; k++) TRY(measure_model(e, k, &train, steps, panel_curve(p, false, "%s", kinds[k].name), &of[k]));
  print_quality(e, of);
  print_times(e, of);
  draw_times(e, of);
  conclude(e, of, steps);
done:
  strings_close(&train);
  return code;
}

static int run(const void *v) { return experiment_run("A fixed vector, looking back, and no recurrence", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_bottleneck = {
    .name = "experiment bottleneck",
    .summary = "find where a fixed vector fails and looking back does not",
    .about =
        "Trains three models with as many parameters each on the same strings of 1 to 30 letters, to reverse them: recurrent with one "
        "vector "
        "for the whole string, recurrent with attention (Bahdanau's), and a Transformer. Measures which share of fresh strings of each "
        "length they write to the letter, lengths beyond those of training too, and how time depends on length.",
    .examples = "  heed experiment bottleneck -o bottleneck.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
