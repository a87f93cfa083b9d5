/* train.c: the training loop, and how well a learner does.
 *
 * A step is a function of its number alone: batches and dropout are drawn from Philox under (seed, step), and nothing else is carried along but parameters and moments. */
#include "learner.h"

#include "../tensor/tensor.h"

#include <math.h>
#include <stdio.h>

/* ---- batches on a tape ------------------------------------------------------------------------------------------------------------ */

typedef struct batch_memory {
  heed_context *context;
  int64_t batch, length, count; /* count: numbers there is room for */
  int64_t least;                /* columns that there must be: one behind the source */
  int64_t columns, tokens;      /* of the batch that lies there: as long as its longest row, more or less; tokens that are no padding */
  int32_t *ids, *targets;       /* [batch,columns] */
} batch_memory;

static heed_status check_batch(const heed_learner *learner, int64_t batch, int64_t length, int64_t *count) {
  HD_REQUIRE(batch >= 1 && length > learner->source && hd_mul(batch, length, count), learner->context, HEED_E_ARGUMENT,
             "training: a batch of %lld times %lld positions, allowed from 1 times %lld on", (long long)batch, (long long)length,
             (long long)learner->source + 1);
  return HEED_OK;
}

static heed_status batch_open(const heed_learner *learner, int64_t batch, int64_t length, batch_memory *out) {
  heed_context *context = learner->context;
  *out = (batch_memory){.context = context, .batch = batch, .length = length, .least = learner->source + 1};
  HD_TRY(check_batch(learner, batch, length, &out->count));
  HD_TRY(hd_allocate(context, "a batch", out->count, sizeof *out->ids, &out->ids));
  heed_status status = hd_allocate(context, "a batch", out->count, sizeof *out->targets, &out->targets);
  if (status != HEED_OK) hd_release(context, out->ids, out->count, sizeof *out->ids);
  return status;
}

static void batch_close(batch_memory *b) {
  hd_release(b->context, b->ids, b->count, sizeof *b->ids);
  hd_release(b->context, b->targets, b->count, sizeof *b->targets);
}

/* So that batches of many lengths share the memory of a few. */
enum { COLUMNS_STEP = 8 };

/* A batch from a source. Columns that hold nothing but padding are left out: nobody computes them. */
static void batch_fill(batch_memory *b, heed_batch_fn source, void *user, uint64_t seed, int64_t number) {
  int64_t longest = 0;
  source(user, seed, number, b->batch, b->length, b->ids, b->targets);
  b->tokens = 0;
  for (int64_t r = 0; r < b->batch; r++) {
    int64_t n = b->length;
    while (n > 0 && b->ids[r * b->length + n - 1] < 0) n--;
    for (int64_t i = 0; i < n; i++) b->tokens += b->ids[r * b->length + i] >= 0;
    longest = HD_MAX(longest, n);
  }
  b->columns = HD_MIN(b->length, hd_ceil_div(HD_MAX(longest, b->least), COLUMNS_STEP) * COLUMNS_STEP);
  for (int64_t r = 1; r < b->batch && b->columns < b->length; r++) {
    memmove(b->ids + r * b->columns, b->ids + r * b->length, (size_t)b->columns * sizeof *b->ids);
    memmove(b->targets + r * b->columns, b->targets + r * b->length, (size_t)b->columns * sizeof *b->targets);
  }
}

static heed_tensor *on_tape(heed_tape *tape, const batch_memory *b, int32_t *numbers) {
  const heed_view view = heed_view_of(numbers, HEED_I32, 2, (int64_t[]){b->batch, b->columns});
  return heed_tape_input(tape, &view);
}

/* ---- evaluation -------------------------------------------------------------------------------------------------------------------- */

/* Of each row of a batch `places` are answered, from the first one behind the source on: all, or one for the whole row. */
typedef struct comparison {
  const batch_memory *batch;
  int64_t source;
  const float *logits; /* [batch · places, classes] */
  int64_t places, classes;
  bool *right; /* [batch · places] */
} comparison;

static const int32_t *row_targets(const comparison *c, int64_t row) { return c->batch->targets + row * c->batch->columns + c->source; }

static void compare_row(void *argument, int64_t row, int worker) {
  (void)worker;
  const comparison *c = argument;
  const int32_t *targets = row_targets(c, row);
  for (int64_t i = 0; i < c->places; i++) {
    const float *logits = c->logits + (row * c->places + i) * c->classes;
    int64_t best = 0;
    for (int64_t k = 1; targets[i] >= 0 && k < c->classes; k++)
      if (logits[k] > logits[best]) best = k;
    c->right[row * c->places + i] = best == targets[i];
  }
}

static heed_status count_right(const heed_learner *learner, const batch_memory *b, const heed_tensor *logits, heed_evaluation *out) {
  heed_context *context = learner->context;
  const int64_t rows = hd_rows(logits);
  comparison c = {
      .batch = b, .source = learner->source, .logits = hd_value(logits), .places = rows / b->batch, .classes = hd_columns(logits)};
  HD_TRY(hd_allocate(context, "an evaluation", rows, sizeof *c.right, &c.right));
  hd_parallel(context, b->batch, compare_row, &c);
  for (int64_t row = 0; row < b->batch; row++) {
    const int32_t *targets = row_targets(&c, row);
    int64_t asked = 0, right = 0;
    for (int64_t i = 0; i < c.places; i++) {
      asked += targets[i] >= 0;
      right += targets[i] >= 0 && c.right[row * c.places + i];
    }
    out->places += asked;
    out->right_places += right;
    out->sequences += asked > 0;
    out->exact_sequences += asked > 0 && right == asked;
  }
  hd_release(context, c.right, rows, sizeof *c.right);
  return HEED_OK;
}

static heed_status evaluate_batch(heed_learner *learner, heed_tape *tape, const batch_memory *b, double *sum, heed_evaluation *out) {
  heed_tape_reset(tape);
  heed_tensor *logits = heed_learner_logits(learner, tape, on_tape(tape, b, b->ids));
  heed_tensor *loss = hd_learner_loss_of(learner, tape, logits, on_tape(tape, b, b->targets));
  HD_TRY(heed_tape_status(tape));
  int64_t before = out->places;
  HD_TRY(count_right(learner, b, logits, out));
  *sum += (double)*hd_value(loss) * (double)(out->places - before);
  return HEED_OK;
}

heed_status heed_learner_evaluate(heed_learner *learner, heed_batch_fn source, void *user, uint64_t seed, int64_t batches, int64_t batch,
                                  int64_t length, heed_evaluation *given) {
  if (!learner) return HEED_E_ARGUMENT;
  heed_evaluation out = {.size = sizeof out};
  heed_context *context = learner->context;
  heed_tape *tape = NULL;
  batch_memory b = {0};
  double sum = 0;
  HD_REQUIRE(source && given, context, HEED_E_ARGUMENT, "heed_learner_evaluate: null");
  HD_TRY(batch_open(learner, batch, length, &b));
  heed_status status = heed_tape_new(context, &tape);
  heed_tape_set_inference(tape, true);
  heed_tape_set_training(tape, false);
  for (int64_t i = 0; i < batches && status == HEED_OK; i++) {
    batch_fill(&b, source, user, seed, i);
    status = evaluate_batch(learner, tape, &b, &sum, &out);
    if (status == HEED_OK) status = hd_progress(context, "evaluate", i + 1, batches);
  }
  out.loss = out.places ? sum / (double)out.places : 0;
  if (status == HEED_OK) *given = out;
  heed_tape_free(tape);
  batch_close(&b);
  return status;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------- */

/* A batch without numbers on a tape that only plans: all operations, none of them carried out. */
static heed_status plan_batch(heed_learner *learner, const heed_train_options *o, bool learns, int64_t *bytes) {
  static int32_t none;
  const heed_view view = {&none, HEED_I32, 2, {o->batch, o->length}, {0}};
  heed_tape *tape;
  HD_TRY(heed_tape_new(learner->context, &tape));
  hd_tape_set_plan(tape);
  heed_tape_set_inference(tape, !learns);
  heed_tape_set_training(tape, learns);
  heed_tensor *loss = heed_learner_loss(learner, tape, heed_tape_input(tape, &view), heed_tape_input(tape, &view));
  heed_status status = learns ? heed_tape_backward(tape, loss, NULL) : heed_tape_status(tape);
  *bytes += hd_tape_bytes(tape);
  heed_tape_free(tape);
  heed_parameters_forget_gradients(learner->parameters); // a plan of backward has said that there are some
  return status;
}

/* Products keep rows and weights aside, attention its tiles, up to about this much in each thread; blocks that serve a smaller request, records of operations and the batch itself are little
 * beside the rest. */
enum { WORKSPACE = 1 << 20 };
static int64_t with_workspace(const heed_context *context, int64_t bytes) {
  return bytes + bytes / 16 + heed_context_threads(context) * (int64_t)WORKSPACE;
}

static heed_status fits(heed_learner *learner, const heed_train_options *o, int64_t *bytes) {
  heed_context *context = learner->context;
  char what[96];
  int64_t count;
  *bytes = 0;
  HD_TRY(check_batch(learner, o->batch, o->length, &count));
  HD_TRY(plan_batch(learner, o, true, bytes));
  // The tape of training keeps its memory while another one evaluates.
  if (o->eval_source) HD_TRY(plan_batch(learner, o, false, bytes));
  *bytes = with_workspace(context, *bytes);
  snprintf(what, sizeof what, "training on batches of %lld times %lld positions", (long long)o->batch, (long long)o->length);
  return hd_memory_check(context, what, *bytes);
}

heed_status heed_train_fits(heed_learner *learner, const heed_train_options *given, int64_t *bytes) {
  heed_train_options options = {.size = sizeof options};
  if (!learner) return HEED_E_ARGUMENT;
  HD_REQUIRE(given && bytes, learner->context, HEED_E_ARGUMENT, "heed_train_fits: null");
  HD_TRY(hd_options_read(learner->context, "heed_train_options", given, &options, sizeof options));
  return fits(learner, &options, bytes);
}

/* ---- the loop ----------------------------------------------------------------------------------------------------------------------- */

typedef struct run {
  heed_learner *learner;
  heed_optimiser *optimiser;
  const heed_train_options *options;
  heed_train_state *state;
  heed_tape *tape;
  batch_memory batch;
  int64_t tokens;              /* of this step */
  double last_loss, last_norm; /* finite ones */
} run;

/* Batches that make a step. */
static int64_t share_of(const heed_train_options *o) { return o->accumulate ? o->accumulate : 1; }

/* Gradients of one batch, a share of the step's. */
static heed_status learn_batch(run *r, int64_t number, int64_t share, double *loss) {
  const heed_train_options *o = r->options;
  batch_fill(&r->batch, o->source, o->source_user, o->seed, number);
  r->tokens += r->batch.tokens;
  heed_tape_reset(r->tape);
  heed_tape_set_seed(r->tape, o->seed * 0x9E3779B97F4A7C15u + (uint64_t)number + 1);
  heed_tensor *of_batch =
      heed_learner_loss(r->learner, r->tape, on_tape(r->tape, &r->batch, r->batch.ids), on_tape(r->tape, &r->batch, r->batch.targets));
  heed_tensor *of_step = share > 1 ? heed_tape_scale(r->tape, of_batch, 1.0 / (double)share) : of_batch;
  HD_TRY(heed_tape_status(r->tape));
  double value = *hd_value(of_batch);
  *loss += value / (double)share;
  if (!isfinite(value)) return HEED_OK; // the caller names where it came from, which backward would make forgotten
  return heed_tape_backward(r->tape, of_step, NULL);
}

static heed_status not_finite(const run *r, const char *what) {
  return hd_fail(r->learner->context, HEED_E_ARGUMENT,
                 "step %lld: %s is not finite; before it the loss was %.6g and the gradient norm %.6g", (long long)r->state->step + 1, what,
                 r->last_loss, r->last_norm);
}

static heed_status step(run *r, heed_train_report *report) {
  const heed_train_options *o = r->options;
  const int64_t share = share_of(o);
  heed_optimiser_report moved = {0};
  char where[256];
  double loss = 0;
  heed_parameters_forget_gradients(r->learner->parameters);
  for (int64_t i = 0; i < share; i++) {
    HD_TRY(learn_batch(r, r->state->step * share + i, share, &loss));
    if (isfinite(loss)) continue;
    bool found = heed_tape_first_nonfinite(r->tape, where, sizeof where);
    report->loss = loss;
    report->skipped = true;
    return o->skip_nonfinite ? HEED_OK : not_finite(r, found ? where : "the loss");
  }
  report->learning_rate = heed_schedule_rate(&o->schedule, r->state->step);
  HD_TRY(heed_optimiser_step(r->optimiser, report->learning_rate, o->clip, &moved));
  report->loss = loss;
  report->gradient_norm = moved.gradient_norm;
  report->skipped = moved.not_finite != NULL;
  if (moved.not_finite && !o->skip_nonfinite) {
    snprintf(where, sizeof where, "the gradient of %s", moved.not_finite);
    return not_finite(r, where);
  }
  if (!moved.not_finite) {
    r->last_loss = loss;
    r->last_norm = moved.gradient_norm;
  }
  return HEED_OK;
}

static bool evaluation_is_due(const run *r) {
  const heed_train_options *o = r->options;
  return o->eval_source && ((o->eval_every > 0 && r->state->step % o->eval_every == 0) || r->state->step == o->steps);
}

static heed_status evaluate(run *r, heed_train_report *report) {
  const heed_train_options *o = r->options;
  heed_train_state *state = r->state;
  if (!evaluation_is_due(r)) return HEED_OK;
  report->evaluation.size = sizeof report->evaluation;
  HD_TRY(
      heed_learner_evaluate(r->learner, o->eval_source, o->eval_user, o->seed, o->eval_batches, o->batch, o->length, &report->evaluation));
  report->evaluated = true;
  report->best = isfinite(report->evaluation.loss) && (state->best_step == 0 || report->evaluation.loss < state->best_loss);
  state->worse = report->best ? 0 : state->worse + 1;
  if (report->best) {
    state->best_loss = report->evaluation.loss;
    state->best_step = state->step;
  }
  return HEED_OK;
}

/* What follows the move of the parameters. Where it is cancelled the step is done and its report is owed: the next run begins with it. */
static heed_status conclude(run *r, heed_train_report *report, bool *go_on) {
  const heed_train_options *o = r->options;
  heed_train_state *state = r->state;
  state->owes_report = true;
  state->loss = report->skipped ? 0 : report->loss;
  state->gradient_norm = report->skipped ? 0 : report->gradient_norm;
  state->skipped = report->skipped;
  HD_TRY(evaluate(r, report));
  state->owes_report = false;
  *go_on = !o->report || o->report(o->report_user, report);
  return *go_on ? hd_progress(r->learner->context, "train", state->step, o->steps) : HEED_OK;
}

static heed_status learn(run *r, heed_train_report *report) {
  double begin = hd_now();
  r->tokens = 0;
  HD_TRY(step(r, report));
  report->seconds = hd_now() - begin;
  report->step = ++r->state->step;
  report->tokens_per_second = (double)r->tokens / report->seconds;
  const heed_parameters *set = r->learner->parameters;
  report->bytes = heed_tape_peak_bytes(r->tape) + heed_parameters_bytes(set) +
                  heed_parameters_learning(set) * heed_optimiser_moments(r->optimiser) * (int64_t)sizeof(float);
  return HEED_OK;
}

static heed_train_report report_owed(const run *r) {
  const heed_train_state *state = r->state;
  return (heed_train_report){.size = sizeof(heed_train_report),
                             .step = state->step,
                             .steps = r->options->steps,
                             .loss = state->skipped ? NAN : state->loss,
                             .gradient_norm = state->skipped ? NAN : state->gradient_norm,
                             .learning_rate = heed_schedule_rate(&r->options->schedule, HD_MAX(state->step - 1, 0)),
                             .skipped = state->skipped};
}

static heed_status loop(run *r) {
  const heed_train_options *o = r->options;
  const heed_train_state *state = r->state;
  bool go_on = true;
  if (state->owes_report) {
    heed_train_report report = report_owed(r);
    HD_TRY(conclude(r, &report, &go_on));
  }
  while (go_on && state->step < o->steps && !(o->patience > 0 && state->worse >= o->patience)) {
    heed_train_report report = {.size = sizeof report, .steps = o->steps};
    HD_TRY(learn(r, &report));
    HD_TRY(conclude(r, &report, &go_on));
  }
  return HEED_OK;
}

heed_status heed_train(heed_learner *learner, heed_optimiser *optimiser, const heed_train_options *given, heed_train_state *state) {
  if (!learner) return HEED_E_ARGUMENT;
  heed_context *context = learner->context;
  heed_train_options options = {.size = sizeof options};
  run r = {.learner = learner, .optimiser = optimiser, .options = &options, .state = state};
  HD_REQUIRE(optimiser && given && state, context, HEED_E_ARGUMENT, "heed_train: null");
  HD_TRY(hd_options_read(context, "heed_train_options", given, &options, sizeof options));
  HD_REQUIRE(options.source, context, HEED_E_ARGUMENT, "heed_train: no source of batches");
  int64_t bytes;
  HD_TRY(fits(learner, &options, &bytes));
  HD_TRY(batch_open(learner, options.batch, options.length, &r.batch));
  heed_status status = heed_tape_new(context, &r.tape);
  if (status == HEED_OK) status = loop(&r);
  heed_tape_free(r.tape);
  batch_close(&r.batch);
  return status;
}
