/* Learners that go on from a model: its logits to the bit, whatever is frozen; what is saved of them likewise; frozen parameters do not move, and a run that goes on wants the same ones. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../../src/base/file.h"
#include "../model_test.h"
#include "../saved.h"

enum { POSITIONS = 12 };

static const char *const models[] = {STORIES_HF,
                                     STORIES,
                                     TEST_MODELS "stories260k/stories260k-q8_0.gguf",
                                     TEST_MODELS "stories260k/stories260k-f16.gguf",
                                     SORT,
                                     BERT,
                                     TEST_EXPECTED "families/gpt2",
                                     TEST_EXPECTED "families/mistral",
                                     TEST_EXPECTED "families/qwen2"};

static heed_learner *learner_of(heed_context *context, heed_model *model, int64_t count, const char *const *freeze) {
  heed_learner *learner;
  const heed_learner_from_options options = {.size = sizeof options, .freeze = freeze, .freeze_count = count};
  ok(context, heed_learner_from_model(context, model, &options, &learner));
  return learner;
}

static int64_t rows_of(const heed_model *model, int64_t count) { return test_info(model).head == HEED_HEAD_CLASS ? 1 : count; }

static void model_logits(heed_context *context, heed_model *model, const int32_t *ids, int64_t count, float *logits) {
  heed_session *session = test_session(context, model, 0);
  ok(context, heed_session_run(session, ids, count, logits, rows_of(model, count), NULL));
  heed_session_free(session);
}

/* As far apart as `tolerance`; 0: the same bits. */
static void same_logits(heed_context *context, heed_learner *learner, const int32_t *ids, int64_t count, const float *want,
                        double tolerance, const char *what) {
  heed_tape *tape;
  ok(context, heed_tape_new(context, &tape));
  const heed_view view = heed_view_of((void *)ids, HEED_I32, 2, (int64_t[]){1, count});
  heed_tensor *logits = heed_learner_logits(learner, tape, heed_tape_input(tape, &view));
  ok(context, heed_tape_status(tape));
  for (int64_t i = 0; i < hd_count(logits); i++)
    if (!(fabs(hd_value(logits)[i] - want[i]) <= tolerance))
      fail_msg("%s: logit %lld is %.9g on the tape, %.9g in the model", what, (long long)i, hd_value(logits)[i], want[i]);
  heed_tape_free(tape);
}

static void saved_gives(heed_context *context, heed_learner *learner, const int32_t *ids, int64_t count, const float *want,
                        double tolerance, const char *what) {
  heed_model *model = saved(context, learner);
  const int64_t numbers = rows_of(model, count) * test_info(model).outputs;
  float *logits = malloc((size_t)numbers * sizeof *logits);
  model_logits(context, model, ids, count, logits);
  for (int64_t i = 0; i < numbers; i++)
    if (!(fabs(logits[i] - want[i]) <= tolerance))
      fail_msg("%s, saved: logit %lld is %.9g, was %.9g", what, (long long)i, logits[i], want[i]);
  free(logits);
  heed_model_free(model);
}

static void begins_where_the_model_is(void **state) {
  (void)state;
  static const char *const some[] = {"layers.0.*", "embedding.weight"}, *const every_matrix[] = {"*.weight"};
  heed_context *context = test_context(NULL);
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    heed_model *model = test_model(context, models[m]);
    const heed_model_info info = test_info(model);
    const int64_t count = info.context < POSITIONS ? info.context : POSITIONS;
    // The row of the segments that each token of a BERT gets is added in another order.
    const double tolerance = strcmp(models[m], BERT) ? 0 : 1e-4;
    int32_t ids[POSITIONS];
    for (int i = 0; i < POSITIONS; i++) ids[i] = (int32_t)((i * 7 + 3) % info.vocabulary);
    float *want = malloc((size_t)(count * info.vocabulary) * sizeof *want);
    model_logits(context, model, ids, count, want);
    const bool all_but_biases = !strcmp(info.family, "qwen2") || !strcmp(info.family, "bert") || !strcmp(info.family, "gpt2");
    for (int how = 0; how < 2 + all_but_biases; how++) {
      heed_learner *learner = learner_of(context, model, how == 1 ? 2 : how == 2, how == 2 ? every_matrix : some);
      const heed_parameters *set = heed_learner_parameters(learner);
      assert_int_equal(heed_parameters_find(set, "layers.0.qkv.weight")->stored != NULL, how > 0);
      if (how == 0) heed_model_free(model), model = NULL; // what is not frozen is copied
      same_logits(context, learner, ids, count, want, tolerance, models[m]);
      saved_gives(context, learner, ids, count, want, tolerance, models[m]);
      if (how == 0) model = test_model(context, models[m]);
      heed_learner_free(learner);
    }
    heed_model_free(model);
    free(want);
  }
  heed_context_free(context);
}

/* Heads for labels and, through a pooler, for a class: the logits of the model to the bit, frozen or not, and its labels. */
static void heads_that_say_labels(void **state) {
  (void)state;
  enum { LABELS = 3, VOCABULARY = 40 };
  static const char *const names[LABELS] = {"no", "perhaps", "yes"}, *const patterns[] = {"pooler.*", "*.weight"};
  heed_context *context = test_context(NULL);
  int32_t ids[POSITIONS];
  float want[POSITIONS * LABELS];
  for (int i = 0; i < POSITIONS; i++) ids[i] = (i * 7 + 3) % VOCABULARY;
  for (int head = HEED_HEAD_LABELS; head <= HEED_HEAD_CLASS; head++) {
    const heed_learner_options options = {.size = sizeof options,
                                          .kind = HEED_LEARNER_ENCODER,
                                          .layers = 2,
                                          .heads = 2,
                                          .width = 32,
                                          .context = POSITIONS,
                                          .vocabulary = VOCABULARY,
                                          .head = (heed_head)head,
                                          .labels = LABELS,
                                          .label_names = names};
    heed_learner *first;
    ok(context, heed_learner_new(context, &options, &first));
    for (int64_t i = 0; i < heed_parameters_count(first->parameters); i++) // biases too
      ok(context, heed_tensor_initialise(context, heed_parameters_at(first->parameters, i), HEED_INITIAL_NORMAL, 0.3, 5, (uint64_t)i));
    heed_model *model = saved(context, first);
    heed_learner_free(first);
    model_logits(context, model, ids, POSITIONS, want);
    for (int how = 0; how <= 2; how++) { // nothing frozen, the pooler, every matrix
      if (how == 1 && head == HEED_HEAD_LABELS) continue;
      heed_learner *learner = learner_of(context, model, how > 0, how > 0 ? &patterns[how - 1] : NULL);
      const heed_tensor *pooler = heed_parameters_find(learner->parameters, "pooler.weight");
      assert_int_equal(pooler != NULL, head == HEED_HEAD_CLASS);
      if (pooler) assert_int_equal(pooler->stored != NULL, how > 0);
      same_logits(context, learner, ids, POSITIONS, want, 0, "a head for labels");
      saved_gives(context, learner, ids, POSITIONS, want, 0, "a head for labels");
      heed_model *again = saved(context, learner);
      for (int i = 0; i < LABELS; i++) assert_string_equal(heed_model_label(again, i), names[i]);
      heed_model_free(again);
      heed_learner_free(learner);
    }
    heed_model_free(model);
  }
  heed_context_free(context);
}

/* An encoder for masked tokens that is to say labels: everything but the head, and the pooler of a class, is the model's; what is new depends on the seed. */
static void a_head_of_its_own(void **state) {
  (void)state;
  static const char *const names[] = {"no", "yes"};
  heed_context *context = test_context(NULL);
  heed_model *model = test_model(context, BERT), *decoder = test_model(context, SORT);
  for (int head = HEED_HEAD_LABELS; head <= HEED_HEAD_CLASS; head++) {
    heed_learner *plain = learner_of(context, model, 0, NULL), *made[2];
    heed_learner_from_options options = {.size = sizeof options, .head = (heed_head)head, .labels = 2, .label_names = names, .seed = 1};
    for (int i = 0; i < 2; i++) {
      options.seed = (uint64_t)i + 1;
      ok(context, heed_learner_from_model(context, model, &options, &made[i]));
    }
    int fresh = 0;
    for (int64_t i = 0; i < heed_parameters_count(made[0]->parameters); i++) {
      const heed_tensor *p = heed_parameters_at(made[0]->parameters, i), *q = heed_parameters_at(made[1]->parameters, i);
      const heed_tensor *old = heed_parameters_find(plain->parameters, p->name);
      const size_t size = (size_t)hd_count(p) * sizeof(float);
      const bool is_new = !strncmp(p->name, "head.", 5) || !strncmp(p->name, "pooler.", 7);
      fresh += is_new;
      if (!is_new) assert_memory_equal(hd_value(p), hd_value(old), size);
      else if (hd_ends_with(p->name, ".weight")) assert_memory_not_equal(hd_value(p), hd_value(q), size);
    }
    assert_int_equal(fresh, head == HEED_HEAD_CLASS ? 4 : 2);
    heed_model *again = saved(context, made[0]);
    assert_int_equal(test_info(again).head, head);
    assert_string_equal(test_info(again).family, "bert");
    assert_string_equal(heed_model_label(again, 1), "yes");
    heed_model_free(again);
    for (int i = 0; i < 2; i++) heed_learner_free(made[i]);
    heed_learner_free(plain);
    assert_int_equal(heed_learner_from_model(context, decoder, &options, &made[0]), HEED_E_ARGUMENT);
    options.labels = -1;
    assert_int_equal(heed_learner_from_model(context, model, &options, &made[0]), HEED_E_ARGUMENT);
    options.labels = 2;
    options.head = HEED_HEAD_TOKENS;
    assert_int_equal(heed_learner_from_model(context, model, &options, &made[0]), HEED_E_ARGUMENT);
  }
  heed_model_free(model);
  heed_model_free(decoder);
  heed_context_free(context);
}

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

typedef struct trainee {
  heed_learner *learner;
  heed_optimiser *optimiser;
  heed_train_state state;
} trainee;

static const char *const frozen_here[] = {"embedding.weight", "layers.0.*", "layers.1.qkv.*"};

static trainee start(heed_context *context, const char *path, int64_t frozen) {
  trainee t = {.state.size = sizeof t.state};
  heed_model *model = test_model(context, path);
  t.learner = learner_of(context, model, frozen, frozen_here);
  heed_model_free(model); // the learner has a reference
  ok(context, heed_optimiser_new(context, heed_learner_parameters(t.learner), NULL, &t.optimiser));
  return t;
}

static void stop(trainee *t) {
  heed_optimiser_free(t->optimiser);
  heed_learner_free(t->learner);
}

/* Sequences that count up, from anywhere. */
static void counting(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  (void)user;
  for (int64_t i = 0; i < batch * length; i++) {
    ids[i] = (int32_t)(((int64_t)seed + number * batch + i / length * 5 + i % length) % 40 + 3);
    targets[i] = (ids[i] - 3 + 1) % 40 + 3;
  }
}

static double last_loss;
static bool keep_loss(void *user, const heed_train_report *report) {
  (void)user;
  last_loss = report->loss;
  return true;
}

static void run_to(heed_context *context, trainee *t, int64_t steps) {
  const heed_train_options options = {.size = sizeof options,
                                      .steps = steps,
                                      .batch = 4,
                                      .length = POSITIONS,
                                      .source = counting,
                                      .schedule = {.size = sizeof(heed_schedule), .peak = 3e-3},
                                      .report = keep_loss};
  ok(context, heed_train(t->learner, t->optimiser, &options, &t->state));
}

static uint32_t bits(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}

static void only_the_others_learn(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  trainee t = start(context, TEST_MODELS "stories260k/stories260k-q8_0.gguf", 3);
  heed_parameters *set = heed_learner_parameters(t.learner);
  const int64_t all = heed_parameters_count(set);
  uint32_t *before = malloc((size_t)all * sizeof *before);
  for (int64_t i = 0; i < all; i++) before[i] = hd_value(heed_parameters_at(set, i)) ? bits(*hd_value(heed_parameters_at(set, i))) : 0;
  run_to(context, &t, 1);
  const double first = last_loss;
  run_to(context, &t, 60);
  if (!(last_loss < first / 3)) fail_msg("the loss went from %g to %g", first, last_loss);
  int stored = 0, kept = 0, moved = 0;
  for (int64_t i = 0; i < all; i++) {
    const heed_tensor *p = heed_parameters_at(set, i);
    const bool frozen =
        !strcmp(p->name, "embedding.weight") || !strncmp(p->name, "layers.0.", 9) || !strcmp(p->name, "layers.1.qkv.weight");
    assert_int_equal(p->frozen, frozen);
    assert_int_equal(heed_tensor_gradient(p).data != NULL, !frozen);
    stored += p->stored != NULL;
    if (!p->stored && (bits(*hd_value(p)) != before[i]) == frozen) fail_msg("%s %s", p->name, frozen ? "has moved" : "has not moved");
    kept += frozen && !p->stored;
    moved += !frozen;
  }
  assert_int_equal(stored, 1 + 4 + 1);
  assert_int_equal(kept, 2); // the norms of layer 0
  assert_true(moved > 10);
  // In all bytes: neither gradients nor f32 numbers of what is stored.
  int64_t learning = heed_parameters_learning(set), bytes = heed_parameters_bytes(set);
  assert_true(learning < heed_parameters_size(set) && bytes >= 8 * learning);
  assert_true(bytes < 8 * learning + 2 * (heed_parameters_size(set) - learning));
  free(before);
  stop(&t);
  heed_context_free(context);
}

/* A checkpoint has what learns; the run goes on to the same bits, and not with other frozen parameters than it was begun with. */
static void goes_on_with_the_same_frozen_ones(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const char *path = TEST_MODELS "stories260k/stories260k-q8_0.gguf";
  char folder[FOLDER_PATH];
  bool found;
  begin_folder(folder);
  trainee whole = start(context, path, 3), first = start(context, path, 3), second = start(context, path, 3),
          other = start(context, TEST_MODELS "stories260k/stories260k-f16.gguf", 3);
  run_to(context, &whole, 9);
  run_to(context, &first, 4);
  ok(context, heed_checkpoint_save(context, folder, first.learner, first.optimiser, &first.state, "a 1\n"));
  assert_int_equal(heed_checkpoint_load(context, folder, other.learner, other.optimiser, &other.state, "a 1\n", NULL, NULL, &found),
                   HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "the run was begun with other frozen parameters (checksum "));
  assert_int_equal(other.state.step, 0);
  ok(context, heed_checkpoint_load(context, folder, second.learner, second.optimiser, &second.state, "a 1\n", NULL, NULL, &found));
  run_to(context, &second, 9);
  const heed_parameters *a = heed_learner_parameters(whole.learner), *b = heed_learner_parameters(second.learner);
  for (int64_t i = 0; i < heed_parameters_count(a); i++) {
    const heed_tensor *x = heed_parameters_at(a, i), *y = heed_parameters_at(b, i);
    if (!x->stored) assert_memory_equal(hd_value(x), hd_value(y), (size_t)hd_count(x) * sizeof(float));
  }
  stop(&whole), stop(&first), stop(&second), stop(&other);
  end_folder(folder);
  heed_context_free(context);
}

static void refusals(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_model *model = test_model(context, SORT), *scaled = test_model(context, TEST_EXPECTED "families/llama3");
  heed_model *pairs = test_model(context, TEST_EXPECTED "families/marian");
  heed_learner *learner;
  const struct {
    heed_model *model;
    const char *freeze;
    double dropout;
    heed_status status;
    const char *words;
  } cases[] = {
      {model, "layer.0.*", 0, HEED_E_ARGUMENT, "freeze: no parameter is called layer.0.* (they are called embedding.weight"},
      {model, "*", 0, HEED_E_ARGUMENT, "freeze: nothing is left that learns"},
      {model, "*.bias", 1, HEED_E_ARGUMENT, "dropout: got 1, allowed from 0 to below 1"},
      {scaled, "embedding.*", 0, HEED_E_UNSUPPORTED, "its rotary positions are scaled or partial"},
      {pairs, "embedding.*", 0, HEED_E_UNSUPPORTED, "it is an encoder–decoder"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const heed_learner_from_options options = {
        .size = sizeof options, .dropout = cases[i].dropout, .freeze = &cases[i].freeze, .freeze_count = 1};
    learner = (heed_learner *)context;
    if (heed_learner_from_model(context, cases[i].model, &options, &learner) != cases[i].status || learner ||
        !strstr(heed_error(context), cases[i].words))
      fail_msg("case %zu: \"%s\", expected \"%s\"", i, heed_error(context), cases[i].words);
  }
  assert_int_equal(heed_learner_from_model(context, NULL, NULL, &learner), HEED_E_ARGUMENT);
  ok(context, heed_learner_from_model(context, model, NULL, &learner));
  heed_learner_free(learner);
  heed_model_free(model);
  heed_model_free(scaled);
  heed_model_free(pairs);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(begins_where_the_model_is),
      cmocka_unit_test(heads_that_say_labels),
      cmocka_unit_test(a_head_of_its_own),
      cmocka_unit_test(only_the_others_learn),
      cmocka_unit_test(goes_on_with_the_same_frozen_ones),
      cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
