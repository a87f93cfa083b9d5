/* What layers attend with: the learner and what is loaded from its directory, in one run and cut anywhere; what a watch shows of patterns and of linear attention; that it learns; what is refused. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../saved.h"

#include <math.h>

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, WIDTH = 32, D = WIDTH / HEADS, VOCABULARY = 37, POSITIONS = 150 };

static const struct kind {
  heed_learner_kind kind;
  const char *attention;
  heed_positions positions;
  bool linear;
} kinds[] = {{HEED_LEARNER_GPT, "window:20+global:4", 0, false},
             {HEED_LEARNER_LLAMA, "window:70/full", 0, false},
             {HEED_LEARNER_GPT, "strided:16", 0, false},
             {HEED_LEARNER_GPT, "dilated:20:1,2,3,4", HEED_POSITIONS_ALIBI, false},
             {HEED_LEARNER_GPT, "fixed:16:2/logsparse", 0, false},
             {HEED_LEARNER_LLAMA, "tree:both+window:3", HEED_POSITIONS_T5, false},
             {HEED_LEARNER_GPT, "bigbird:10:1:1:2:5", HEED_POSITIONS_XL, false},
             {HEED_LEARNER_ENCODER, "window:20+global:4", 0, false},
             {HEED_LEARNER_ENCODER, "bigbird:10:1:1:2", 0, false},
             {HEED_LEARNER_GPT, "full", 0, false},
             {HEED_LEARNER_GPT, "linear", 0, true},
             {HEED_LEARNER_LLAMA, "relu/window:30", 0, true},
             {HEED_LEARNER_LLAMA, "performer:24:9", 0, true},
             {HEED_LEARNER_GPT, "window:9/hyperbolic:16", HEED_POSITIONS_SINUSOIDAL, true},
             {HEED_LEARNER_ENCODER, "linear", 0, true},
             {HEED_LEARNER_ENCODER, "performer:24/linear", HEED_POSITIONS_ROTARY, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static heed_learner_options options_of(heed_learner_kind kind, const char *attention, heed_positions positions) {
  return (heed_learner_options){.size = sizeof(heed_learner_options),
                                .kind = kind,
                                .layers = LAYERS,
                                .heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .width = WIDTH,
                                .context = POSITIONS,
                                .vocabulary = VOCABULARY,
                                .positions = positions,
                                .attention = attention,
                                .seed = 5};
}

static heed_learner *learner_of(heed_context *context, int k) {
  const heed_learner_options options = options_of(kinds[k].kind, kinds[k].attention, kinds[k].positions);
  heed_learner *learner;
  ok(context, heed_learner_new(context, &options, &learner));
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++) // weights large enough to matter
    ok(context,
       heed_tensor_initialise(context, heed_parameters_at(learner->parameters, i), HEED_INITIAL_NORMAL, 0.2, 5, 1000 + (uint64_t)i));
  return learner;
}

static void fill(int32_t *ids, int n) {
  for (int i = 0; i < n; i++) ids[i] = (i * i * 7 + i * 3 + 3) % VOCABULARY;
}

/* Patterns give the same bits; linear attention adds up in another order. */
static void same(int k, const char *when, const float *want, const float *got, bool exact) {
  double most = 0;
  for (int i = 0; i < POSITIONS * VOCABULARY; i++) most = fmax(most, fabs(want[i]));
  for (int i = 0; i < POSITIONS * VOCABULARY; i++)
    if (exact ? memcmp(&want[i], &got[i], sizeof *got) != 0 : !(fabs(want[i] - got[i]) <= 1e-5 * most))
      fail_msg("%s: %s: logit %d is %.9g on the tape, %.9g when loaded", kinds[k].attention, when, i, want[i], got[i]);
}

static void run_cut(heed_context *context, heed_session *session, const int32_t *ids, int64_t begin, int64_t end, int64_t step,
                    float *logits) {
  for (int64_t n; begin < end; begin += n) {
    n = step < end - begin ? step : end - begin;
    ok(context, heed_session_run(session, ids + begin, n, logits + begin * VOCABULARY, n, NULL));
  }
}

static void loaded_gives_the_same(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static float whole[POSITIONS * VOCABULARY], cut[POSITIONS * VOCABULARY];
  int32_t ids[POSITIONS], other[POSITIONS];
  fill(ids, POSITIONS);
  for (int i = 0; i < POSITIONS; i++) other[i] = (ids[i] + 1) % VOCABULARY;
  for (int k = 0; k < KINDS; k++) {
    heed_learner *learner = learner_of(context, k);
    heed_model *model = saved(context, learner);
    heed_session *session;
    heed_tape *tape;
    ok(context, heed_tape_new(context, &tape));
    const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, POSITIONS});
    const float *own = hd_value(heed_learner_logits(learner, tape, heed_tape_input(tape, &view)));
    ok(context, heed_tape_status(tape));
    ok(context, heed_session_new(context, model, NULL, &session));
    ok(context, heed_session_run(session, ids, POSITIONS, whole, POSITIONS, NULL));
    same(k, "at once", own, whole, !kinds[k].linear);
    if (kinds[k].kind != HEED_LEARNER_ENCODER) {
      static const int64_t steps[] = {1, 7, 64, 100};
      for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        ok(context, heed_session_truncate(session, 0));
        run_cut(context, session, ids, 0, POSITIONS, steps[s], cut);
        same(k, "cut", own, cut, !kinds[k].linear);
      }
      // What came after is forgotten, also by running sums.
      ok(context, heed_session_truncate(session, 0));
      run_cut(context, session, other, 0, 90, 90, cut);
      ok(context, heed_session_truncate(session, 0));
      run_cut(context, session, ids, 0, 60, 60, cut);
      run_cut(context, session, other, 60, 80, 20, cut);
      ok(context, heed_session_truncate(session, 60));
      run_cut(context, session, ids, 60, POSITIONS, 13, cut);
      same(k, "gone back", own, cut, !kinds[k].linear);
    }
    heed_session_free(session);
    heed_tape_free(tape);
    heed_model_free(model);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* ---- what a watch shows --------------------------------------------------------------------------------------------------------- */

static double feature(double x) { return x > 0 ? x + 1 : exp(x); }

/* Rows of weights against their formula, from the queries and keys of the record. */
static void check_linear(const heed_layer_record *r, bool exact) {
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++) {
      const float *row = (exact ? r->exact : r->weights) + (h * r->queries + i) * r->keys;
      const float *q = r->q + (r->heads[h] * r->queries + i) * D, *keys = r->k + r->heads[h] / (HEADS / KV_HEADS) * r->keys * D;
      double want[POSITIONS] = {0}, sum = 0;
      for (int64_t j = 0; j <= i; j++) {
        double dot = 0;
        for (int c = 0; c < D; c++) dot += exact ? (double)q[c] * keys[j * D + c] : feature(q[c]) * feature(keys[j * D + c]);
        sum += want[j] = exact ? exp(dot / sqrt(D)) : dot;
      }
      for (int64_t j = 0; j < r->keys; j++) assert_true(fabs(row[j] - want[j] / sum) <= 1e-5);
    }
}

static heed_status see_linear(void *user, const heed_layer_record *r) {
  assert_null(r->visible);
  assert_non_null(r->exact);
  check_linear(r, false);
  check_linear(r, true);
  ++*(int *)user;
  return HEED_OK;
}

/* window:5/full: the first layer shows six keys, the second has no pattern. */
static heed_status see_window(void *user, const heed_layer_record *r) {
  ++*(int *)user;
  assert_null(r->exact);
  if (r->layer == 1) {
    assert_null(r->visible);
    return HEED_OK;
  }
  assert_non_null(r->visible);
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++)
      for (int64_t j = 0; j < r->keys; j++) {
        const int64_t at = (h * r->queries + i) * r->keys + j;
        const bool seen = j <= i && i - j <= 5;
        assert_int_equal(r->visible[at], seen);
        assert_true(seen ? r->weights[at] > 0 : r->weights[at] == 0);
      }
  return HEED_OK;
}

static void watched(heed_context *context, const char *attention, heed_watch_fn see) {
  const heed_learner_options options = options_of(HEED_LEARNER_GPT, attention, 0);
  const int64_t heads[] = {3, 1};
  int32_t ids[40];
  int layers = 0;
  heed_learner *learner;
  heed_session *session;
  fill(ids, 40);
  ok(context, heed_learner_new(context, &options, &learner));
  heed_model *model = saved(context, learner);
  const heed_watch watch = {.size = sizeof watch, .record = see, .want_qkv = true, .heads = heads, .n_heads = 2, .user = &layers};
  ok(context, heed_session_new(context, model, NULL, &session));
  ok(context, heed_session_run(session, ids, 40, NULL, 0, &watch));
  assert_int_equal(layers, LAYERS);
  if (see == see_linear) {
    assert_int_equal(heed_session_run(session, ids, 3, NULL, 0, &watch), HEED_E_UNSUPPORTED);
    assert_non_null(strstr(heed_error(context), "a run that begins with the first token"));
  }
  heed_session_free(session);
  heed_model_free(model);
  heed_learner_free(learner);
}

static void watches_show_patterns_and_implied_weights(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  watched(context, "window:5/full", see_window);
  watched(context, "linear", see_linear);
  heed_context_free(context);
}

/* ---- learning ---------------------------------------------------------------------------------------------------------------------- */

/* Words sorted: the loss falls under half of what knowing nothing costs. */
static void they_learn(void **state) {
  (void)state;
  static const char *const which[] = {"window:4+global:1", "linear", "performer:32"};
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
    static heed_task task = {.size = sizeof task, .kind = HEED_TASK_SORT, .most = 4, .symbols = 3};
    heed_learner *learner;
    heed_optimiser *optimiser;
    heed_train_state at = {.size = sizeof at};
    ok(context, heed_task_finish(context, &task));
    heed_learner_options options = options_of(HEED_LEARNER_GPT, which[i], 0);
    options.context = heed_task_length(&task);
    options.vocabulary = (int64_t)strlen(heed_task_alphabet(&task));
    options.spread = 0.05;
    ok(context, heed_learner_new(context, &options, &learner));
    ok(context, heed_optimiser_new(context, learner->parameters, NULL, &optimiser));
    const heed_train_options train = {.size = sizeof train,
                                      .steps = 150,
                                      .batch = 16,
                                      .length = options.context,
                                      .source = heed_task_batch,
                                      .source_user = &task,
                                      .seed = 3,
                                      .schedule = {.size = sizeof(heed_schedule), .peak = 5e-3},
                                      .clip = 1};
    ok(context, heed_train(learner, optimiser, &train, &at));
    if (!(at.loss < 0.5 * log((double)options.vocabulary))) fail_msg("%s: loss %g after 150 steps", which[i], at.loss);
    heed_optimiser_free(optimiser);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------------------ */

static void refuses(void **state) {
  (void)state;
  static const struct {
    const char *attention, *says;
    heed_positions positions;
    heed_learner_kind kind;
  } bad[] = {
      {"windows:3", "attention: unknown kind \"windows\", known are linear, relu, performer, hyperbolic, full, causal, window", 0, 0},
      {"", NULL, 0, 0},
      {"window", "attention: \"window\": pattern \"window\": window: expected window:", 0, 0},
      {"window:-1", "attention: \"window:-1\"", 0, 0},
      {"strided:200", "attention: \"strided:200\"", 0, 0},
      {"window:3/", "attention: unknown kind \"\"", 0, 0},
      {"full/full/full", "attention: 3 kinds for 2 layers", 0, 0},
      {"linear:3", "attention: \"linear:3\": linear stands alone", 0, 0},
      {"performer", "attention: \"performer\": expected performer:ROWS[:SEED], with 1 to 65536 random rows", 0, 0},
      {"performer:0", "expected performer:ROWS[:SEED]", 0, 0},
      {"performer:99999", "expected performer:ROWS[:SEED]", 0, 0},
      {"performer:8:x", "expected performer:ROWS[:SEED]", 0, 0},
      {"hyperbolic:8:1:2", "expected hyperbolic:ROWS[:SEED]", 0, 0},
      {"linear", "linear attention has no scores for ALiBi's positions to act on", HEED_POSITIONS_ALIBI, 0},
      {"full/relu", "linear attention has no scores for Transformer-XL's positions to act on", HEED_POSITIONS_XL, 0},
      {"linear", "an encoder with a decoder has no linear attention, only patterns", 0, HEED_LEARNER_SEQ2SEQ}};
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    heed_learner_options options = options_of(bad[i].kind, bad[i].attention, bad[i].positions);
    heed_learner *learner;
    if (bad[i].kind == HEED_LEARNER_SEQ2SEQ) options.source = POSITIONS;
    const heed_status status = heed_learner_new(context, &options, &learner);
    if (!bad[i].says) {
      ok(context, status);
      heed_learner_free(learner);
      continue;
    }
    assert_int_equal(status, HEED_E_FORMAT);
    if (!strstr(heed_error(context), bad[i].says)) fail_msg("\"%s\": %s", bad[i].attention, heed_error(context));
  }
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(loaded_gives_the_same), cmocka_unit_test(watches_show_patterns_and_implied_weights),
                                     cmocka_unit_test(they_learn), cmocka_unit_test(refuses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
