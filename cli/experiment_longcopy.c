/* experiment_longcopy.c: `heed experiment long-copy`: which kinds of attention can repeat a long word: the task 0w0w of Kitaev, Kaiser, Levskaya 2020 ("Reformer", section 5), one layer. The symbol that
 * is asked for stands as far back as the word is long, and only its place tells it from the others. */
#include "arrays.h"
#include "experiment_model.h"

#include <stdlib.h>
#include <string.h>

enum { LETTERS = 127, BATCH = 16, ASKED = 4 }; // asked with 1, 2, 4 and 8 rounds

typedef struct values {
  experiment_values experiment;
  int64_t letters; /* 0: as many as usual */
} values;

/* What a layer attends with. NEAR becomes half the letters of a word, FAR all of them. */
typedef struct kind {
  const char *format;
  int64_t rounds; /* of LSH attention; 0: it is something else */
} kind;
static const kind kinds[] = {{"full", 0},       {"lsh:1", 1},       {"lsh:2", 2},
                             {"lsh:4", 4},      {"lsh:8", 8},       {"performer:256", 0},
                             {"linear", 0},     {"window:NEAR", 0}, {"window:NEAR+global:4", 0},
                             {"strided:FAR", 0}};
enum { KINDS = sizeof kinds / sizeof kinds[0], FULL = 0, FIRST_LSH = 1, LAST_LSH = 4 };

/* What was found of a kind. */
typedef struct measured {
  char name[48];
  outcome of;
  double asked[ASKED]; /* share of right symbols with other rounds than it was taught with */
} measured;

static void name_of(const kind *k, int64_t letters, char name[48]) {
  const char *at = strstr(k->format, "NEAR"), *far = strstr(k->format, "FAR"), *place = at ? at : far;
  if (place)
    snprintf(name, 48, "%.*s%lld%s", (int)(place - k->format), k->format, (long long)(at ? letters / 2 : letters), place + (at ? 4 : 3));
  else snprintf(name, 48, "%s", k->format);
}

/* ---- one model ---------------------------------------------------------------------------------------------------------------------- */

static heed_tensor *logits_of(const void *model, heed_tape *tape, heed_tensor *ids) {
  return heed_learner_logits((heed_learner *)model, tape, ids);
}

static int open_learner(const experiment *e, const heed_task *task, const char *attention, heed_learner **out, pupil *p) {
  const int64_t vocabulary = (int64_t)strlen(heed_task_alphabet(task));
  const heed_learner_options options = {.size = sizeof options,
                                        .kind = HEED_LEARNER_GPT,
                                        .layers = 1,
                                        .heads = 4,
                                        .width = 128,
                                        .context = heed_task_length(task),
                                        .vocabulary = vocabulary,
                                        .attention = attention,
                                        .spread = 0.05,
                                        .seed = e->seed};
  const int code = check(e->context, heed_learner_new(e->context, &options, out));
  *p = (pupil){.model = *out, .parameters = heed_learner_parameters(*out), .logits = logits_of, .answers = 1, .classes = vocabulary};
  return code;
}

static void copy_parameters(const heed_parameters *from, heed_parameters *to) {
  for (int64_t i = 0; i < heed_parameters_count(from); i++) {
    const heed_view a = heed_tensor_value(heed_parameters_at(from, i)), b = heed_tensor_value(heed_parameters_at(to, i));
    memcpy(b.data, a.data, (size_t)view_count(&a) * sizeof(float));
  }
}

/* The same parameters under 1, 2, 4 and 8 rounds. */
static int ask(experiment *e, const lesson *l, const pupil *taught, measured *m) {
  int code = EXIT_OK;
  for (int i = 0; i < ASKED; i++) {
    heed_learner *learner = NULL;
    char attention[16];
    pupil p;
    outcome o = {0};
    snprintf(attention, sizeof attention, "lsh:%d", 1 << i);
    code = open_learner(e, l->user, attention, &learner, &p);
    if (code == EXIT_OK) {
      copy_parameters(taught->parameters, p.parameters);
      code = experiment_examine(e, &p, l, &o);
    }
    m->asked[i] = o.right;
    heed_learner_free(learner);
    if (code != EXIT_OK) break;
  }
  return code;
}

static int measure_kind(experiment *e, const lesson *l, const kind *k, curve *losses, measured *m) {
  heed_learner *learner = NULL;
  pupil p;
  int code;
  TRY(open_learner(e, l->user, m->name, &learner, &p));
  TRY(experiment_teach(e, &p, l, losses, &m->of));
  if (k->rounds) TRY(ask(e, l, &p, m));
done:
  heed_learner_free(learner);
  return code;
}

/* ---- what it says ------------------------------------------------------------------------------------------------------------------- */

static void print_table(experiment *e, const measured of[KINDS]) {
  static const char *const titles[] = {"attention", "symbols right", "words right", "loss", "seconds", "1 round", "2", "4", "8"};
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) cell(e, "%s", titles[i]);
  row_end(e);
  for (int k = 0; k < KINDS; k++) {
    cell(e, "%s", of[k].name);
    cell(e, "%.2f %%", 100 * of[k].of.right);
    cell(e, "%.1f %%", 100 * of[k].of.exact);
    cell(e, "%.4f", of[k].of.loss);
    cell(e, "%.1f", of[k].of.seconds);
    for (int i = 0; i < ASKED; i++)
      if (kinds[k].rounds) cell(e, "%.2f %%", 100 * of[k].asked[i]);
      else cell(e, "–");
    row_end(e);
  }
}

static void list(experiment *e, const measured of[KINDS], bool can) {
  static const double enough = 0.99;
  const char *before = "";
  for (int k = 0; k < KINDS; k++) {
    if ((of[k].of.right >= enough) != can) continue;
    finding(e, "%s%s (%.1f %%)", before, of[k].name, 100 * of[k].of.right);
    before = ", ";
  }
  if (!*before) finding(e, "none");
}

static void conclude(experiment *e, const measured of[KINDS], const heed_task *task, int64_t steps) {
  finding(e, "After %lld steps, words of %lld symbols are repeated with at least 99 %% of the symbols right by: ", (long long)steps,
          (long long)task->most);
  list(e, of, true);
  finding(e, "; not by: ");
  list(e, of, false);
  finding(e, ". Taught with 4 rounds and asked with 1, 2, 4 and 8, LSH attention gets %.1f, %.1f, %.1f and %.1f %% right.",
          100 * of[FIRST_LSH + 2].asked[0], 100 * of[FIRST_LSH + 2].asked[1], 100 * of[FIRST_LSH + 2].asked[2],
          100 * of[FIRST_LSH + 2].asked[3]);
}

/* So that steps see as many symbols, however long words are. */
static int64_t batch_of(int64_t letters) {
  const int64_t batch = (BATCH * LETTERS + letters / 2) / letters;
  return batch > 1 ? batch : 1;
}

static int measure(experiment *e) {
  const bool quick = e->v->quick;
  const int64_t asked = ((const values *)e->v)->letters;
  lesson l;
  heed_task task[2] = {{.size = sizeof *task, .kind = HEED_TASK_DUPLICATE, .most = asked ? asked : quick ? 20 : LETTERS}};
  panel *exact = experiment_panel(e, "Exact and LSH attention, one layer", "step", 0, "loss (nats)", 0);
  panel *others = experiment_panel(e, "Linear attention and patterns", "step", 0, "loss (nats)", 0);
  panel *rounds = experiment_panel(e, "Asked with other numbers of rounds", "rounds asked", 2, "symbols right", 0);
  measured of[KINDS];
  int code;
  memset(of, 0, sizeof of);
  TRY(experiment_task(e, task, &l));
  l.steps = experiment_steps(e, 600);
  l.batch = quick ? 2 : batch_of(task->most);
  l.warmup = 50;
  l.rate = 3e-3;
  for (int k = 0; k < KINDS; k++) {
    name_of(&kinds[k], task->most, of[k].name);
    TRY(measure_kind(e, &l, &kinds[k], panel_curve(k <= LAST_LSH ? exact : others, false, "%s", of[k].name), &of[k]));
    curve *c = kinds[k].rounds ? panel_curve(rounds, false, "taught with %lld", (long long)kinds[k].rounds) : NULL;
    for (int i = 0; c && i < ASKED; i++) curve_add(c, 1 << i, of[k].asked[i]);
  }
  print_table(e, of);
  conclude(e, of, task, l.steps);
done:
  return code;
}

static int run(const void *v) { return experiment_run("Repeating a long word: 0w0w", measure, v); }

static const option options[] = {
    OPTION("letters", 0, WHOLE, "N", letters, "symbols of a word (default 127; --quick: 20)", .low = 2, .high = 511),
    EXPERIMENT_STEPS,
    EXPERIMENT_OPTIONS,
};

const command command_experiment_longcopy = {
    .name = "experiment long-copy",
    .summary = "find which kinds of attention can repeat a long word",
    .about = "Trains a model of one layer, width 128, four heads, to repeat words of random symbols (0w0w) with exact attention, LSH "
             "attention of 1 to 8 rounds, Performer's, linear attention, a window, a window with global tokens and a stride that meets the "
             "place; then asks what LSH attention has learned with other numbers of rounds. Four and a half minutes on two cores; with "
             "--letters 63 "
             "--steps 200 less than two.",
    .examples = "  heed experiment long-copy -o long-copy.svg\n  heed experiment long-copy --letters 63 --steps 200\n",
    .options = options,
    EXPERIMENT_TAKES,
    .values_size = sizeof(values),
    .defaults = &(const values){.experiment = EXPERIMENT_DEFAULTS},
    .run = run,
};
