/* The recurrent encoder–decoder: rows of a batch do not touch each other, what it is made of has the shapes that are asked for, and it learns. */
#include "../../src/model/learner.h"
#include "../../src/model/model.h"
#include "../../src/model/stepper.h"
#include "../../src/tensor/tensor.h"
#include "../folder.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>

enum { VOCABULARY = 12, SOURCE = 6, TARGET = 7, COLUMNS = SOURCE + TARGET, BATCH = 32, START = 0, END = 1, FIRST = 2 };

static heed_learner *small(heed_context *context, heed_learner_options options) {
  heed_learner *learner;
  options.size = sizeof options;
  options.kind = HEED_LEARNER_RECURRENT;
  if (!options.width) options.width = 24;
  options.source = SOURCE;
  options.context = TARGET;
  options.vocabulary = VOCABULARY;
  options.seed = 7;
  options.has_ends = true;
  options.start = START;
  options.end = END;
  ok(context, heed_learner_new(context, &options, &learner));
  return learner;
}

/* Source: some tokens. Target: the same from the last to the first, between start and end. */
static void reversed(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  (void)user;
  assert_int_equal(length, COLUMNS);
  uint64_t state = (seed + 1) * 0x9E3779B97F4A7C15u + (uint64_t)number * 0xD1B54A32D192ED03u;
  for (int64_t i = 0; i < batch * length; i++) ids[i] = targets[i] = -1;
  for (int64_t r = 0; r < batch; r++, ids += length, targets += length) {
    const int64_t n = 1 + (int64_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % SOURCE;
    for (int64_t i = 0; i < n; i++)
      ids[i] = FIRST + (int32_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % (VOCABULARY - FIRST);
    ids[SOURCE] = START;
    for (int64_t i = 0; i < n; i++) targets[SOURCE + i] = ids[n - 1 - i];
    for (int64_t i = 0; i < n; i++) ids[SOURCE + 1 + i] = targets[SOURCE + i];
    targets[SOURCE + n] = END;
  }
}

typedef struct kind {
  heed_learner_score score;
  heed_learner_output output;
} kind;
static const kind kinds[] = {{HEED_LEARNER_ADDITIVE, HEED_LEARNER_STATE},  {HEED_LEARNER_DOT, HEED_LEARNER_TANH},
                             {HEED_LEARNER_SCALED, HEED_LEARNER_STATE},    {HEED_LEARNER_BILINEAR, HEED_LEARNER_TANH},
                             {HEED_LEARNER_ADDITIVE, HEED_LEARNER_MAXOUT}, {HEED_LEARNER_NONE, HEED_LEARNER_STATE},
                             {HEED_LEARNER_NONE, HEED_LEARNER_MAXOUT}};

static heed_tensor *on_tape(heed_tape *tape, const int32_t *numbers, int64_t rows) {
  const heed_view view = heed_view_of((void *)numbers, HEED_I32, 2, (int64_t[]){rows, COLUMNS});
  return heed_tape_input(tape, &view);
}

/* Logits of a row alone, and the sum of losses and gradients of rows alone, are those of the batch. */
static void rows_do_not_touch_each_other(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  int32_t ids[BATCH * COLUMNS], targets[BATCH * COLUMNS];
  reversed(NULL, 3, 0, BATCH, COLUMNS, ids, targets);
  for (int64_t k = 0; k < HD_COUNT(kinds); k++) {
    heed_learner *learner =
        small(context, (heed_learner_options){.score = kinds[k].score, .output = kinds[k].output, .source_vocabulary = k % 2 ? 12 : 0});
    heed_tape *tape, *alone;
    ok(context, heed_tape_new(context, &tape));
    ok(context, heed_tape_new(context, &alone));
    heed_tensor *logits = heed_learner_logits(learner, tape, on_tape(tape, ids, BATCH));
    ok(context, heed_tape_status(tape));
    for (int64_t r = 0; r < BATCH; r++) {
      heed_tape_reset(alone);
      const heed_tensor *one = heed_learner_logits(learner, alone, on_tape(alone, ids + r * COLUMNS, 1));
      ok(context, heed_tape_status(alone));
      assert_memory_equal(hd_value(one), hd_value(logits) + r * logits->dim[1] * VOCABULARY, (size_t)hd_count(one) * sizeof(float));
    }
    heed_tape_free(alone);
    heed_tape_free(tape);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* The derivative of the loss along a random direction of all parameters, from gradients and from differences. */
static double slope(heed_context *context, heed_learner *learner, const int32_t *ids, const int32_t *targets, double step, bool gradient) {
  heed_parameters *set = heed_learner_parameters(learner);
  heed_tape *tape;
  double out = 0, side[2] = {0, 0};
  ok(context, heed_tape_new(context, &tape));
  for (int s = 0; s < (gradient ? 1 : 2); s++) {
    uint64_t state = 5;
    heed_tape_reset(tape);
    heed_parameters_forget_gradients(set);
    heed_tensor *loss;
    for (int pass = 0; pass < 2; pass++) {
      if (pass == 1) {
        loss = heed_learner_loss(learner, tape, on_tape(tape, ids, BATCH), on_tape(tape, targets, BATCH));
        ok(context, heed_tape_status(tape));
        side[s] = (double)*hd_value(loss);
        if (gradient) ok(context, heed_tape_backward(tape, loss, NULL));
        state = 5;
      }
      for (int64_t i = 0; i < heed_parameters_count(set); i++) {
        const heed_tensor *t = heed_parameters_at(set, i);
        for (int64_t j = 0; j < hd_count(t); j++) {
          const double d = (double)((state = state * 6364136223846793005u + 1442695040888963407u) >> 40) / 0x1p23 - 1;
          if (!gradient) hd_value(t)[j] += (float)((pass ? -1 : 1) * (s ? -1 : 1) * step * d);
          else if (pass == 1) out += d * (double)((float *)heed_tensor_gradient(t).data)[j];
        }
      }
    }
  }
  heed_tape_free(tape);
  return gradient ? out : (side[0] - side[1]) / (2 * step);
}

/* Maxout has kinks, which differences must not step over: of each pair of outputs now this one, now that one is the larger by far. */
static void spread_pairs(heed_learner *learner) {
  const heed_tensor *bias = heed_parameters_find(heed_learner_parameters(learner), "output.bias");
  assert_non_null(bias);
  for (int64_t i = 0; i < hd_count(bias); i++) hd_value(bias)[i] = (i / 2 + i) % 2 ? 3 : -3;
}

static void gradients_are_those_of_the_loss(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  int32_t ids[BATCH * COLUMNS], targets[BATCH * COLUMNS];
  reversed(NULL, 3, 0, BATCH, COLUMNS, ids, targets);
  for (int64_t k = 0; k < HD_COUNT(kinds); k++) {
    heed_learner *learner = small(context, (heed_learner_options){.score = kinds[k].score, .output = kinds[k].output, .smoothing = 0.1});
    if (kinds[k].output == HEED_LEARNER_MAXOUT) spread_pairs(learner);
    const double by_gradient = slope(context, learner, ids, targets, 0, true),
                 by_difference = slope(context, learner, ids, targets, 1e-3, false);
    if (!(fabs(by_gradient - by_difference) <= 2e-3 * fabs(by_difference) + 2e-4))
      fail_msg("kind %d: slope %.9g by gradients, %.9g by differences", (int)k, by_gradient, by_difference);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

static double train(heed_context *context, heed_learner *learner, int64_t steps) {
  heed_optimiser *optimiser;
  heed_train_state state = {.size = sizeof state};
  heed_evaluation out = {.size = sizeof out};
  const heed_train_options options = {
      .size = sizeof options,
      .steps = steps,
      .batch = BATCH,
      .length = COLUMNS,
      .source = reversed,
      .clip = 1,
      .schedule = {.size = sizeof options.schedule, .kind = HEED_SCHEDULE_COSINE, .peak = 1e-2, .warmup = 20, .steps = steps},
  };
  ok(context, heed_optimiser_new(context, heed_learner_parameters(learner), NULL, &optimiser));
  ok(context, heed_train(learner, optimiser, &options, &state));
  ok(context, heed_learner_evaluate(learner, reversed, NULL, 77, 8, BATCH, COLUMNS, &out));
  heed_optimiser_free(optimiser);
  return (double)out.exact_sequences / (double)out.sequences;
}

/* ---- as a model that is loaded --------------------------------------------------------------------------------------------------------- */

static heed_model *saved(heed_context *context, const heed_learner *learner, const char *folder) {
  heed_model *model;
  ok(context, heed_learner_save(learner, NULL, folder));
  ok(context, heed_model_load(context, folder, &model));
  return model;
}

/* The sources of rows [0, BATCH) of a batch. */
typedef struct sources {
  int32_t ids[BATCH * SOURCE];
  int64_t begin[BATCH + 1];
} sources;

static heed_sources sources_of(const int32_t *ids, sources *to) {
  int64_t count = 0;
  for (int64_t r = 0; r < BATCH; r++) {
    to->begin[r] = count;
    for (int64_t i = 0; i < SOURCE && ids[r * COLUMNS + i] >= 0; i++) to->ids[count++] = ids[r * COLUMNS + i];
  }
  to->begin[BATCH] = count;
  return (heed_sources){to->ids, to->begin, BATCH};
}

/* Token by token, rows in another order after each step, the loaded model gives the bits that the learner gives to whole rows. */
static void a_saved_model_gives_the_same_bits(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  char folder[FOLDER_PATH];
  begin_folder(folder);
  int32_t ids[BATCH * COLUMNS], targets[BATCH * COLUMNS];
  reversed(NULL, 3, 0, BATCH, COLUMNS, ids, targets);
  sources kept;
  const heed_sources from = sources_of(ids, &kept);
  for (int64_t k = 0; k < HD_COUNT(kinds); k++) {
    const bool attends = kinds[k].score != HEED_LEARNER_NONE;
    heed_learner *learner =
        small(context,
              (heed_learner_options){.score = kinds[k].score, .output = kinds[k].output, .source_vocabulary = k % 2 ? VOCABULARY + 5 : 0});
    heed_model *model = saved(context, learner, folder);
    heed_tape *tape;
    hd_stepper *stepper;
    ok(context, heed_tape_new(context, &tape));
    const heed_tensor *logits = heed_learner_logits(learner, tape, on_tape(tape, ids, BATCH));
    ok(context, heed_tape_status(tape));
    assert_non_null(model->stepper);
    ok(context, model->stepper(context, model, &stepper));
    assert_int_equal(stepper->longest_source, SOURCE);
    assert_int_equal(stepper->longest, TARGET);
    assert_int_equal(stepper->sources, k % 2 ? VOCABULARY + 5 : VOCABULARY);
    assert_int_equal(stepper->layers, attends);
    stepper->most_rows = BATCH;
    ok(context, stepper->kind->start(stepper, &from));
    int32_t parents[BATCH], next[BATCH];
    int64_t row[BATCH];
    for (int64_t r = 0; r < BATCH; r++) row[r] = r;
    for (int64_t t = 0; t < logits->dim[1]; t++) {
      float got[BATCH * VOCABULARY], weights[BATCH * SOURCE];
      for (int64_t r = 0; r < BATCH; r++) next[r] = HD_MAX(ids[row[r] * COLUMNS + SOURCE + t], 0);
      ok(context, stepper->kind->step(stepper, next, got, attends ? &(hd_step_weights){-1, -1, t % 2 == 1, weights, SOURCE} : NULL));
      for (int64_t r = 0; r < BATCH; r++) {
        const bool there = ids[row[r] * COLUMNS + SOURCE + t] >= 0;
        const float *want = hd_value(logits) + (row[r] * logits->dim[1] + t) * VOCABULARY;
        if (there) assert_memory_equal(got + r * VOCABULARY, want, VOCABULARY * sizeof(float));
        double sum = 0;
        for (int64_t i = 0; attends && i < from.begin[row[r] + 1] - from.begin[row[r]]; i++) sum += (double)weights[r * SOURCE + i];
        if (attends) assert_true(fabs(sum - 1) < 1e-5);
      }
      int64_t before[BATCH];
      memcpy(before, row, sizeof row);
      for (int32_t r = 0; r < BATCH; r++) {
        parents[r] = (r * 7 + 3) % BATCH;
        row[r] = before[parents[r]];
      }
      ok(context, stepper->kind->choose(stepper, BATCH, parents));
    }
    hd_stepper_free(stepper);
    heed_tape_free(tape);
    heed_model_free(model);
    heed_learner_free(learner);
  }
  end_folder(folder);
  heed_context_free(context);
}

/* What a loaded model says of itself: what a token of the target is multiplied with, its head and what is made of the source once left out. */
static void it_describes_itself(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  char folder[FOLDER_PATH];
  begin_folder(folder);
  for (int64_t k = 0; k < HD_COUNT(kinds); k++) {
    const double w = 24, deep = kinds[k].output == HEED_LEARNER_STATE ? 0 : kinds[k].output == HEED_LEARNER_TANH ? 24 : 48;
    const bool attends = kinds[k].score != HEED_LEARNER_NONE;
    const int64_t sources = k % 2 ? VOCABULARY + 5 : 0;
    heed_learner *learner =
        small(context, (heed_learner_options){.score = kinds[k].score, .output = kinds[k].output, .source_vocabulary = sources});
    heed_model *model = saved(context, learner, folder);
    heed_model_info info = {.size = sizeof info};
    ok(context, heed_model_describe(model, &info));
    const double by_query = kinds[k].score == HEED_LEARNER_ADDITIVE ? w * w : 0;
    assert_float_equal(info.flops_per_token, 2 * (6 * w * w + by_query + 2 * deep * w), 0);
    assert_int_equal(info.layers, 1);
    assert_int_equal(info.heads, attends);
    assert_int_equal(info.kv_heads, attends);
    assert_int_equal(info.encoder_layers, 1);
    assert_int_equal(info.encoder_heads, 0);
    assert_int_equal(info.encoder_vocabulary, sources ? sources : VOCABULARY);
    assert_int_equal(info.encoder_context, SOURCE);
    assert_int_equal(info.context, TARGET);
    assert_int_equal(info.start, START);
    heed_model_free(model);
    heed_learner_free(learner);
  }
  end_folder(folder);
  heed_context_free(context);
}

static void what_it_is_not_is_refused(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  char folder[FOLDER_PATH], text[256];
  begin_folder(folder);
  heed_learner *learner = small(context, (heed_learner_options){.score = HEED_LEARNER_NONE}), *other;
  heed_model *model = saved(context, learner, folder);
  heed_session *session;
  assert_int_equal(heed_session_new(context, model, NULL, &session), HEED_E_UNSUPPORTED);
  snprintf(text, sizeof text, "%s: a recurrent model has no sessions: it translates", folder);
  assert_string_equal(heed_error(context), text);
  assert_int_equal(heed_learner_from_model(context, model, NULL, &other), HEED_E_UNSUPPORTED);
  snprintf(text, sizeof text, "%s: cannot be trained further: it is recurrent", folder);
  assert_string_equal(heed_error(context), text);
  const int32_t ids[] = {FIRST, FIRST + 1};
  const int64_t begin[] = {0, 2};
  const heed_translate_options options = {.size = sizeof options, .want_weights = true};
  heed_translations *out;
  assert_int_equal(heed_translate(context, model, &(heed_sources){ids, begin, 1}, &options, &out), HEED_E_UNSUPPORTED);
  heed_model_free(model);
  heed_learner_free(learner);
  end_folder(folder);
  heed_context_free(context);
}

/* What has learned to reverse translates so, and looks at the token that it writes. */
static void it_translates_and_looks_where_it_should(heed_context *context, const heed_learner *learner) {
  char folder[FOLDER_PATH];
  begin_folder(folder);
  heed_model *model = saved(context, learner, folder);
  int32_t ids[BATCH * COLUMNS], targets[BATCH * COLUMNS];
  reversed(NULL, 99, 0, BATCH, COLUMNS, ids, targets);
  sources kept;
  const heed_sources from = sources_of(ids, &kept);
  for (int64_t width = 1; width <= 3; width += 2) {
    const heed_translate_options options = {.size = sizeof options, .want_weights = true, .width = width};
    heed_translations *out;
    int64_t right = 0, looks = 0, places = 0;
    ok(context, heed_translate(context, model, &from, &options, &out));
    for (int64_t r = 0; r < BATCH; r++) {
      int64_t count;
      const int64_t n = from.begin[r + 1] - from.begin[r];
      const heed_translation *best = heed_translations_of(out, r, &count);
      assert_true(count >= 1);
      right += best->count == n + 1 && memcmp(best->ids, targets + r * COLUMNS + SOURCE, (size_t)(n + 1) * sizeof *best->ids) == 0;
      for (int64_t t = 0; t < HD_MIN(n, best->count); t++, places++) {
        int64_t most = 0;
        for (int64_t i = 1; i < n; i++)
          if (best->weights[t * n + i] > best->weights[t * n + most]) most = i;
        looks += most == n - 1 - t;
      }
    }
    heed_translations_free(out);
    if (right < BATCH - 3 || 10 * looks < 8 * places)
      fail_msg("width %d: %d of %d right, %d of %d looks", (int)width, (int)right, BATCH, (int)looks, (int)places);
  }
  heed_model_free(model);
  end_folder(folder);
}

/* Sequences of up to six tokens from the last to the first: attention has to look back. */
static void it_learns_to_reverse(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static const heed_learner_score scores[] = {HEED_LEARNER_ADDITIVE, HEED_LEARNER_BILINEAR};
  for (int64_t i = 0; i < HD_COUNT(scores); i++) {
    heed_learner *learner = small(context, (heed_learner_options){.score = scores[i], .width = 32});
    const double exact = train(context, learner, 400);
    if (!(exact >= 0.95)) fail_msg("score %d: %.3f exact", (int)scores[i], exact);
    if (scores[i] == HEED_LEARNER_ADDITIVE) it_translates_and_looks_where_it_should(context, learner);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

static void runs_repeat_to_the_bit(void **state) {
  (void)state;
  heed_context *context[] = {test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1}),
                             test_context(&(heed_options){.size = sizeof(heed_options), .threads = 3})};
  heed_learner *learner[2];
  for (int i = 0; i < 2; i++) {
    learner[i] = small(context[i], (heed_learner_options){.dropout = 0.1, .sampling = 0.5, .output = HEED_LEARNER_TANH});
    train(context[i], learner[i], 5);
  }
  for (int64_t i = 0; i < heed_parameters_count(learner[0]->parameters); i++) {
    const heed_tensor *a = heed_parameters_at(learner[0]->parameters, i), *b = heed_parameters_at(learner[1]->parameters, i);
    assert_memory_equal(hd_value(a), hd_value(b), (size_t)hd_count(a) * sizeof(float));
  }
  for (int i = 0; i < 2; i++) {
    heed_learner_free(learner[i]);
    heed_context_free(context[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_do_not_touch_each_other),
      cmocka_unit_test(gradients_are_those_of_the_loss),
      cmocka_unit_test(a_saved_model_gives_the_same_bits),
      cmocka_unit_test(it_describes_itself),
      cmocka_unit_test(what_it_is_not_is_refused),
      cmocka_unit_test(it_learns_to_reverse),
      cmocka_unit_test(runs_repeat_to_the_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
