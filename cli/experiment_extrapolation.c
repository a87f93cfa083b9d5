/* experiment_extrapolation.c: `heed experiment extrapolation`: models that learn on short stretches of a text and read longer ones, by how they know places ("train short, test long": Press,
 * Smith, Lewis 2022).
 *
 * Every model sees the same text: the part held out is cut into stretches of one length after another, and the loss is that of all its tokens, so that lengths differ in nothing but in how
 * much stands before a token. A number computed for places that training never showed may still mean nothing to the weights; a table has no row there at all, and its model refuses. */
#include "experiment_model.h"
#include "experiment_text.h"

#include <math.h>
#include <stdlib.h>

typedef struct values {
  experiment_values experiment;
  const char *data;
} values;

static const struct {
  const char *name;
  heed_positions positions;
} kinds[] = {{"sinusoidal", HEED_POSITIONS_SINUSOIDAL}, {"learned", HEED_POSITIONS_LEARNED}, {"rotary", HEED_POSITIONS_ROTARY},
             {"ALiBi", HEED_POSITIONS_ALIBI},           {"T5", HEED_POSITIONS_T5},           {"Transformer-XL", HEED_POSITIONS_XL}};
enum { KINDS = sizeof kinds / sizeof kinds[0], SINUSOIDAL = 0, LEARNED = 1, ALIBI = 3 };

static const int64_t lengths[] = {64, 128, 256, 512, 1024};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], FAR = 3, LONGEST = 1024, TRAINED = 64, PARTS = LONGEST / TRAINED };

/* ---- the text -------------------------------------------------------------------------------------------------------------- */

enum { MADE_BYTES = 400000, MADE_QUICK = 60000, MOST_STRETCHES = 64 }; // stretches of LONGEST that are held out

typedef struct text {
  char *data;
  size_t bytes;
  heed_tokenizer *tokenizer;
  int32_t *ids;
  int64_t count, vocabulary, stretches;
  heed_text_data train, held_out;
} text;

static int open_text(experiment *e, const char *path, text *t) {
  heed_tokenizer_info info = {.size = sizeof info};
  int code;
  TRY(experiment_text(e, path, e->v->quick ? MADE_QUICK : MADE_BYTES, &t->data, &t->bytes));
  const heed_text all = {t->data, t->bytes};
  heed_status status = heed_tokenizer_train(e->context, "char", all, NULL, &t->tokenizer);
  if (status == HEED_E_FORMAT) return error_of(EXIT_BAD_FILE, "%s: %s", path ? path : "the text", heed_error(e->context));
  TRY(check(e->context, status));
  TRY(check(e->context, heed_encode(e->context, t->tokenizer, all, NULL, &t->ids, &t->count)));
  TRY(check(e->context, heed_tokenizer_describe(t->tokenizer, &info)));
  t->vocabulary = info.vocabulary;
  const int64_t split = t->count - t->count / 10, most = e->v->quick ? 2 : MOST_STRETCHES;
  t->stretches = heed_text_windows(t->count - split, LONGEST);
  if (t->stretches > most) t->stretches = most;
  if (t->stretches < 1)
    return error_of(EXIT_BAD_FILE, "%s: too short (got %lld characters, of which a tenth is held out, allowed from %d on)",
                    path ? path : "the text", (long long)t->count, 10 * (LONGEST + 1));
  t->train = (heed_text_data){t->ids, split};
  t->held_out = (heed_text_data){t->ids + split, t->stretches * LONGEST + 1};
done:
  return code;
}

static void close_text(experiment *e, text *t) {
  if (t->ids) heed_ids_free(e->context, t->ids, t->count);
  heed_tokenizer_free(t->tokenizer);
  free(t->data);
}

/* ---- one model ------------------------------------------------------------------------------------------------------------- */

/* Of one kind: the mean loss by length of the stretches, and by the place within the longest ones. Lengths beyond `reached` are refused, for the reason given. */
typedef struct measured {
  double loss[LENGTHS], at[PARTS], seconds;
  int64_t parameters;
  int reached;
  char reason[256];
} measured;

static bool report(void *user, const heed_train_report *r) {
  (void)user;
  return progress("train", r->step, r->steps);
}

static int teach(experiment *e, heed_learner *learner, text *t, measured *m) {
  const int64_t steps = experiment_steps(e, 1000);
  const heed_train_options options = {
      .size = sizeof options,
      .steps = steps,
      .batch = 16,
      .length = TRAINED,
      .source = heed_text_batch,
      .source_user = &t->train,
      .seed = e->seed,
      .schedule = {.size = sizeof options.schedule, .kind = HEED_SCHEDULE_COSINE, .peak = 3e-3, .warmup = steps / 15, .steps = steps},
      .clip = 1,
      .report = report};
  heed_train_state state = {.size = sizeof state};
  heed_optimiser *optimiser = NULL;
  const double begin = seconds_now();
  int code;
  m->parameters = heed_parameters_size(heed_learner_parameters(learner));
  TRY(check(e->context, heed_optimiser_new(e->context, heed_learner_parameters(learner), NULL, &optimiser)));
  TRY(check(e->context, heed_train(learner, optimiser, &options, &state)));
  if (interrupted()) code = EXIT_INTERRUPTED;
  m->seconds = seconds_now() - begin;
done:
  heed_optimiser_free(optimiser);
  return code;
}

/* Adds the losses of a stretch's tokens to the parts that their places lie in. */
static heed_status add_batch(heed_learner *learner, heed_tape *tape, const heed_view *ids, const int32_t *targets, double sums[PARTS]) {
  const int64_t length = ids->dim[1], count = ids->dim[0] * length;
  heed_tape_reset(tape);
  heed_tensor *of = heed_tape_log_softmax(tape, heed_learner_logits(learner, tape, heed_tape_input(tape, ids)));
  if (heed_tape_status(tape) != HEED_OK) return heed_tape_status(tape);
  const heed_view view = heed_tensor_value(of);
  for (int64_t i = 0; i < count; i++) sums[i % length / TRAINED] -= (double)((const float *)view.data)[i * view.dim[2] + targets[i]];
  return HEED_OK;
}

/* All that is held out, in stretches of one length; HEED_E_SHAPE where the model has no such places. */
static heed_status read_text(experiment *e, heed_learner *learner, text *t, int64_t length, double sums[PARTS]) {
  const int64_t batch = LONGEST / length; // as many tokens at once for all lengths
  int32_t *ids = allocate("a batch", LONGEST, sizeof *ids), *targets = allocate("a batch", LONGEST, sizeof *targets);
  const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){batch, length});
  heed_tape *tape = NULL;
  heed_status status = heed_tape_new(e->context, &tape);
  if (status == HEED_OK) heed_tape_set_inference(tape, true);
  for (int64_t i = 0; i < t->stretches && status == HEED_OK; i++) {
    heed_text_window_batch(&t->held_out, 0, i, batch, length, ids, targets);
    status = add_batch(learner, tape, &view, targets, sums);
    if (status == HEED_OK && !progress("evaluate", i + 1, t->stretches)) status = HEED_E_CANCELLED;
  }
  heed_tape_free(tape);
  free(ids);
  free(targets);
  return status;
}

static int examine(experiment *e, heed_learner *learner, text *t, measured *m) {
  int code = EXIT_OK;
  for (m->reached = 0; m->reached < LENGTHS; m->reached++) {
    double sums[PARTS] = {0}, sum = 0;
    const heed_status status = read_text(e, learner, t, lengths[m->reached], sums);
    if (status == HEED_E_SHAPE) {
      snprintf(m->reason, sizeof m->reason, "%s", heed_error(e->context));
      break;
    }
    TRY(check(e->context, status));
    const double tokens = (double)(t->stretches * LONGEST), parts = (double)lengths[m->reached] / TRAINED;
    for (int i = 0; i < PARTS; i++) {
      sum += sums[i];
      m->at[i] = sums[i] / (tokens / parts); // of the longest in the end
    }
    m->loss[m->reached] = sum / tokens;
  }
done:
  return code;
}

static int measure_kind(experiment *e, int k, text *t, measured *m) {
  const heed_learner_options options = {.size = sizeof options,
                                        .kind = HEED_LEARNER_GPT,
                                        .layers = 2,
                                        .heads = 4,
                                        .width = 64,
                                        .context = kinds[k].positions == HEED_POSITIONS_LEARNED ? TRAINED : LONGEST,
                                        .vocabulary = t->vocabulary,
                                        .positions = kinds[k].positions,
                                        .spread = 0.125, // 1 / √width: sinusoids must not drown the embeddings
                                        .seed = e->seed};
  heed_learner *learner = NULL;
  int code;
  TRY(check(e->context, heed_learner_new(e->context, &options, &learner)));
  TRY(teach(e, learner, t, m));
  TRY(examine(e, learner, t, m));
done:
  heed_learner_free(learner);
  return code;
}

/* ---- the experiment -------------------------------------------------------------------------------------------------------- */

/* What is lost, or gained, beside the length of training. */
static double change(const measured *m, int length) { return m->loss[length] / m->loss[0] - 1; }

static void print_table(experiment *e, const measured of[KINDS]) {
  cell(e, "loss in stretches of");
  for (int i = 0; i < LENGTHS; i++) cell(e, "%lld", (long long)lengths[i]);
  cell(e, "%lld beside %d", (long long)lengths[FAR], TRAINED);
  cell(e, "parameters");
  cell(e, "seconds");
  row_end(e);
  for (int k = 0; k < KINDS; k++) {
    cell(e, "%s", kinds[k].name);
    for (int i = 0; i < LENGTHS; i++)
      if (i < of[k].reached) cell(e, "%.3f", of[k].loss[i]);
      else cell(e, "refused");
    if (FAR < of[k].reached) cell(e, "%+.1f %%", 100 * change(&of[k], FAR));
    else cell(e, "-");
    cell(e, "%lld", (long long)of[k].parameters);
    cell(e, "%.0f", of[k].seconds);
    row_end(e);
  }
}

static void draw(panel *by_length, panel *by_place, const measured of[KINDS]) {
  for (int k = 0; k < KINDS; k++) {
    curve *length = panel_curve(by_length, false, "%s", kinds[k].name), *place = panel_curve(by_place, false, "%s", kinds[k].name);
    for (int i = 0; i < of[k].reached; i++) curve_add(length, (double)lengths[i], of[k].loss[i]);
    const int parts = of[k].reached == LENGTHS ? PARTS : of[k].reached;
    for (int i = 0; i < parts; i++) curve_add(place, (i + 0.5) * TRAINED, of[k].at[i]);
  }
}

static void conclude(experiment *e, const measured of[KINDS], const text *t) {
  finding(e, "Trained on stretches of %d characters and asked for the same %lld in stretches of %lld, the loss changes by ", TRAINED,
          (long long)(t->stretches * LONGEST), (long long)lengths[FAR]);
  bool first = true;
  for (int k = 0; k < KINDS; k++) {
    if (of[k].reached <= FAR) continue;
    finding(e, "%s%+.1f %% with %s", first ? "" : ", ", 100 * change(&of[k], FAR), kinds[k].name);
    first = false;
  }
  finding(e, "; %s positions end with their table (%s).", kinds[LEARNED].name, of[LEARNED].reason);
}

static int measure(experiment *e) {
  measured of[KINDS] = {0};
  text t = {0};
  panel *by_length = experiment_panel(e, "Trained on stretches of 64", "tokens of a stretch", 2, "loss of all tokens (nats)", 0);
  panel *by_place = experiment_panel(e, "Where in a stretch of 1024", "place", 0, "loss (nats)", 0);
  int code;
  TRY(open_text(e, ((const values *)e->v)->data, &t));
  for (int k = 0; k < KINDS; k++) TRY(measure_kind(e, k, &t, &of[k]));
  print_table(e, of);
  draw(by_length, by_place, of);
  conclude(e, of, &t);
done:
  close_text(e, &t);
  return code;
}

static int run(const void *v) { return experiment_run("Reading further than one has learned", measure, v); }

static const option options[] = {
    OPTION("data", 0, TEXT, "FILE", data, "a text to learn from (default: made-up sentences and their translations)"), EXPERIMENT_STEPS,
    EXPERIMENT_OPTIONS};

const command command_experiment_extrapolation = {
    .name = "experiment extrapolation",
    .summary = "read longer stretches than were learned, by kind of positions",
    .about = "Trains a small transformer to predict the characters of a text, on stretches of 64, with sinusoidal, learned, rotary, "
             "ALiBi, T5 and Transformer-XL positions, and asks for the text that was held out in stretches of 64 to 1024: the same "
             "characters each time, all of them, with more or less before them.",
    .examples = "  heed experiment extrapolation -o extrapolation.svg\n"
                "  heed experiment extrapolation --data tinyshakespeare.txt --steps 3000\n",
    .options = options,
    EXPERIMENT_TAKES,
    .values_size = sizeof(values),
    .defaults = &(const values){.experiment = EXPERIMENT_DEFAULTS},
    .run = run,
};
