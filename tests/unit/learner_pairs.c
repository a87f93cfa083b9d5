/* Batches of pairs: source and target are split, checked and trimmed in one place, and loss and evaluation ask where the decoder has tokens. The body here adds a token's number to the sum
 * of its source: what it says can be counted by hand. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../test.h"

#include <math.h>

enum { SOURCE = 5, TARGETS = 4, COLUMNS = SOURCE + TARGETS, BATCH = 3, CLASSES = 40 };

static hd_pairs seen; /* by the last call of states */

static heed_status start(heed_learner *learner, const heed_learner_options *options) {
  (void)options;
  learner->source = SOURCE;
  learner->positions = TARGETS;
  learner->width = CLASSES;
  return HEED_OK;
}

static void make(hd_maker *maker) { hd_make_bias(maker, true, "head", CLASSES); }

/* One hot on (id + sum of the source) % CLASSES. */
static heed_tensor *states(heed_learner *learner, heed_tape *tape, heed_tensor *ids) {
  if (!hd_tape_note(tape, hd_learner_pairs(learner, tape, ids, &seen))) return NULL;
  const int64_t n = seen.target.columns, m = seen.source.columns;
  float x[BATCH * TARGETS * CLASSES] = {0};
  const heed_view view = heed_view_of(x, HEED_F32, 3, (int64_t[]){seen.target.batch, n, CLASSES});
  for (int64_t r = 0; r < seen.target.batch && !hd_tape_plans(tape); r++) {
    int64_t sum = 0;
    for (int64_t i = 0; i < m; i++) sum += hd_index(seen.source.ids)[r * m + i];
    for (int64_t i = 0; i < n; i++) x[(r * n + i) * CLASSES + (hd_index(seen.target.ids)[r * n + i] + sum) % CLASSES] = 30;
  }
  return heed_tape_input(tape, &view);
}

static heed_tensor *head(heed_learner *learner, heed_tape *tape, heed_tensor *x) {
  return heed_tape_add(tape, x, heed_parameters_at(learner->parameters, 0));
}

static const hd_learner_body body = {.bytes = sizeof(heed_learner), .start = start, .make = make, .states = states, .head = head};

static heed_status make_one(hd_maker *maker, const hd_part *part, heed_tensor **out) {
  return heed_parameters_add(maker->learner->parameters, part->name, part->ndim, part->dim, NULL, out);
}

static heed_learner *open(heed_context *context) {
  heed_learner *learner;
  ok(context, hd_learner_open(context, &body, &learner));
  ok(context, body.start(learner, NULL));
  hd_maker maker = {.learner = learner, .make = make_one, .layer = -1};
  body.make(&maker);
  ok(context, maker.status);
  return learner;
}

typedef struct batch {
  int32_t ids[BATCH][COLUMNS], targets[BATCH][COLUMNS];
} batch;

/* Sources of 3, 1 and no tokens, targets of 2, 3 and 1; asked for at all of them. */
static const batch usual = {
    .ids = {{1, 2, 3, -1, -1, 7, 8, -1, -1}, {30, -1, -1, -1, -1, 9, 10, 11, -1}, {-1, -1, -1, -1, -1, 5, -1, -1, -1}},
    .targets = {{-1, -1, -1, -1, -1, 13, 14, -1, -1}, {-1, -1, -1, -1, -1, 39, 0, 1, -1}, {-1, -1, -1, -1, -1, 5, -1, -1, -1}}};

static heed_tensor *on_tape(heed_tape *tape, const int32_t *numbers, int64_t columns) {
  const heed_view view = {(void *)numbers, HEED_I32, 2, {BATCH, columns}, {COLUMNS, 1}};
  return heed_tape_input(tape, &view);
}

static heed_status loss_of(heed_learner *learner, heed_tape *tape, const batch *b, int64_t columns, double *loss) {
  heed_tape_reset(tape);
  heed_tensor *out = heed_learner_loss(learner, tape, on_tape(tape, b->ids[0], columns), on_tape(tape, b->targets[0], columns));
  *loss = out ? (double)*hd_value(out) : NAN;
  return heed_tape_status(tape);
}

static void columns_that_are_padding_everywhere_are_left_out(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = open(context);
  heed_tape *tape;
  ok(context, heed_tape_new(context, &tape));
  heed_tensor *logits = heed_learner_logits(learner, tape, on_tape(tape, usual.ids[0], COLUMNS));
  ok(context, heed_tape_status(tape));
  assert_int_equal(seen.source.columns, 3);
  assert_int_equal(seen.target.columns, 3);
  static const int64_t lengths[2][BATCH] = {{3, 1, 0}, {2, 3, 1}};
  assert_memory_equal(seen.source.lengths, lengths[0], sizeof lengths[0]);
  assert_memory_equal(seen.target.lengths, lengths[1], sizeof lengths[1]);
  static const int32_t source[] = {1, 2, 3, 30, 0, 0, 0, 0, 0}, target[] = {7, 8, 0, 9, 10, 11, 5, 0, 0};
  assert_memory_equal(hd_index(seen.source.ids), source, sizeof source);
  assert_memory_equal(hd_index(seen.target.ids), target, sizeof target);
  assert_int_equal(logits->ndim, 3);
  assert_int_equal(logits->dim[1], 3);
  heed_tape_free(tape);
  heed_learner_free(learner);
  heed_context_free(context);
}

static void what_is_asked_stands_behind_the_source(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = open(context);
  heed_tape *tape;
  double loss;
  ok(context, heed_tape_new(context, &tape));
  batch b = usual;
  for (int64_t columns = COLUMNS - 1; columns <= COLUMNS; columns++) { // the last column is padding
    ok(context, loss_of(learner, tape, &b, columns, &loss));
    assert_true(loss >= 0 && loss < 1e-6);
  }
  b.targets[1][6] = 20; // one of six places
  ok(context, loss_of(learner, tape, &b, COLUMNS, &loss));
  assert_true(fabs(loss - 30.0 / 6) < 1e-5);
  learner->smoothing = 0.4; // of which a fortieth is the target's own
  ok(context, loss_of(learner, tape, &usual, COLUMNS, &loss));
  assert_true(fabs(loss - 30 * 0.4 * 39 / 40) < 1e-4);
  heed_tape_free(tape);
  heed_learner_free(learner);
  heed_context_free(context);
}

static void source_of_batches(void *user, uint64_t seed, int64_t number, int64_t rows, int64_t length, int32_t *ids, int32_t *targets) {
  (void)user, (void)seed, (void)number;
  assert_int_equal(rows, BATCH);
  assert_int_equal(length, COLUMNS);
  memcpy(ids, usual.ids, sizeof usual.ids);
  memcpy(targets, usual.targets, sizeof usual.targets);
  targets[COLUMNS + 6] += number == 1;
}

static void evaluation_counts_what_stands_behind_the_source(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = open(context);
  heed_evaluation out;
  learner->smoothing = 0.4; // only while it learns
  ok(context, heed_learner_evaluate(learner, source_of_batches, NULL, 0, 2, BATCH, COLUMNS, &out));
  assert_int_equal(out.places, 12);
  assert_int_equal(out.right_places, 11);
  assert_int_equal(out.sequences, 6);
  assert_int_equal(out.exact_sequences, 5);
  assert_true(fabs(out.loss - 30.0 / 12) < 1e-5);
  assert_int_equal(heed_learner_evaluate(learner, source_of_batches, NULL, 0, 2, BATCH, SOURCE, &out), HEED_E_ARGUMENT);
  assert_string_equal(heed_error(context), "training: a batch of 3 times 5 positions, allowed from 1 times 6 on");
  int64_t bytes;
  const heed_train_options options = {
      .size = sizeof options, .steps = 1, .batch = BATCH, .length = COLUMNS, .source = source_of_batches, .eval_source = source_of_batches};
  ok(context, heed_train_fits(learner, &options, &bytes));
  assert_true(bytes >= (int64_t)sizeof(float) * BATCH * TARGETS * CLASSES);
  heed_learner_free(learner);
  heed_context_free(context);
}

static void broken_batches_are_refused(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = open(context);
  heed_tape *tape;
  ok(context, heed_tape_new(context, &tape));
  static const struct {
    int row, column;
    bool target;
    const char *error;
  } broken[] = {
      {0, 4, false, "ids: row 0 has a token behind its padding (place 4)"},
      {2, 7, false, "ids: row 2 has a token behind its padding (place 2)"},
      {1, 4, true, "targets: something is asked for where the decoder has no token"},
      {1, 8, true, "targets: something is asked for where the decoder has no token"},
  };
  double loss;
  for (int64_t i = 0; i < HD_COUNT(broken); i++) {
    batch b = usual;
    (broken[i].target ? b.targets : b.ids)[broken[i].row][broken[i].column] = 1;
    assert_int_equal(loss_of(learner, tape, &b, COLUMNS, &loss), HEED_E_ARGUMENT);
    assert_string_equal(heed_error(context), broken[i].error);
  }
  assert_int_equal(loss_of(learner, tape, &usual, SOURCE, &loss), HEED_E_SHAPE);
  assert_string_equal(heed_error(context), "ids: 5 columns, allowed from 6 on: the source has 5");
  learner->positions = TARGETS - 1;
  assert_int_equal(loss_of(learner, tape, &usual, COLUMNS, &loss), HEED_E_SHAPE);
  assert_string_equal(heed_error(context), "ids: 4 positions, allowed 3");
  heed_tape_free(tape);
  heed_learner_free(learner);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_that_are_padding_everywhere_are_left_out),
      cmocka_unit_test(what_is_asked_stands_behind_the_source),
      cmocka_unit_test(evaluation_counts_what_stands_behind_the_source),
      cmocka_unit_test(broken_batches_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
