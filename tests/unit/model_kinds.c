/* What layers attend with, and where their tokens stand: the learner and what is loaded from its directory, in one run and cut anywhere; what a watch shows of patterns, of linear and of LSH
 * attention; gradients of the last; that they learn; what is refused. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../saved.h"

#include <math.h>

enum { LAYERS = 3, HEADS = 4, KV_HEADS = 2, WIDTH = 32, D = WIDTH / HEADS, VOCABULARY = 37, POSITIONS = 150 };

static const struct kind {
  heed_learner_kind kind;
  const char *attention;
  heed_positions positions;
  bool linear;
  const char *turns; /* of positions */
} kinds[] = {{HEED_LEARNER_GPT, "window:20+global:4", 0, false, NULL},
             {HEED_LEARNER_LLAMA, "window:70/full", 0, false, NULL},
             {HEED_LEARNER_GPT, "strided:16", 0, false, NULL},
             {HEED_LEARNER_GPT, "dilated:20:1,2,3,4", HEED_POSITIONS_ALIBI, false, NULL},
             {HEED_LEARNER_GPT, "fixed:16:2/logsparse", 0, false, NULL},
             {HEED_LEARNER_LLAMA, "tree:both+window:3", HEED_POSITIONS_T5, false, NULL},
             {HEED_LEARNER_GPT, "bigbird:10:1:1:2:5", HEED_POSITIONS_XL, false, NULL},
             {HEED_LEARNER_ENCODER, "window:20+global:4", 0, false, NULL},
             {HEED_LEARNER_ENCODER, "bigbird:10:1:1:2", 0, false, NULL},
             {HEED_LEARNER_GPT, "full", 0, false, NULL},
             {HEED_LEARNER_GPT, "linear", 0, true, NULL},
             {HEED_LEARNER_LLAMA, "relu/window:30", 0, true, NULL},
             {HEED_LEARNER_LLAMA, "performer:24:9", 0, true, NULL},
             {HEED_LEARNER_GPT, "window:9/hyperbolic:16", HEED_POSITIONS_SINUSOIDAL, true, NULL},
             {HEED_LEARNER_ENCODER, "linear", 0, true, NULL},
             {HEED_LEARNER_ENCODER, "performer:24/linear", HEED_POSITIONS_ROTARY, true, NULL},
             {HEED_LEARNER_GPT, "lsh:2", 0, false, NULL},
             {HEED_LEARNER_LLAMA, "lsh:1:9/window:30", 0, false, NULL},
             {HEED_LEARNER_GPT, "linear/lsh:3", HEED_POSITIONS_SINUSOIDAL, true, NULL},
             {HEED_LEARNER_ENCODER, "lsh:2/full", 0, false, NULL},
             {HEED_LEARNER_ENCODER, "full/lsh:2", HEED_POSITIONS_ROTARY, false, NULL},
             {HEED_LEARNER_GPT, NULL, HEED_POSITIONS_NONE, false, NULL},
             {HEED_LEARNER_GPT, NULL, 0, false, "rope/none"},
             {HEED_LEARNER_GPT, NULL, 0, false, "alibi/rope/t5"},
             {HEED_LEARNER_LLAMA, NULL, 0, false, "sinusoidal/xl"},
             {HEED_LEARNER_GPT, NULL, 0, false, "xl/learned/alibi"},
             {HEED_LEARNER_ENCODER, NULL, 0, false, "t5/xl"},
             {HEED_LEARNER_GPT, "window:20+global:4/strided:16/full", 0, false, "alibi/t5"},
             {HEED_LEARNER_GPT, "linear/window:30/full", 0, true, "rope/alibi/xl"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_lsh(const char *attention) { return attention && strstr(attention, "lsh"); }

static heed_learner_options options_of(heed_learner_kind kind, const char *attention, heed_positions positions) {
  return (heed_learner_options){.size = sizeof(heed_learner_options),
                                .kind = kind,
                                .layers = LAYERS,
                                .heads = HEADS,
                                .kv_heads = is_lsh(attention) ? HEADS : KV_HEADS,
                                .width = WIDTH,
                                .context = POSITIONS,
                                .vocabulary = VOCABULARY,
                                .positions = positions,
                                .attention = attention,
                                .seed = 5};
}

static heed_learner *learner_for(heed_context *context, const struct kind *kind, int64_t positions) {
  heed_learner_options options = options_of(kind->kind, kind->attention, kind->positions);
  heed_learner *learner;
  options.context = positions;
  options.layer_positions = kind->turns;
  ok(context, heed_learner_new(context, &options, &learner));
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++) // weights large enough to matter
    ok(context,
       heed_tensor_initialise(context, heed_parameters_at(learner->parameters, i), HEED_INITIAL_NORMAL, 0.2, 5, 1000 + (uint64_t)i));
  return learner;
}

static heed_learner *learner_of(heed_context *context, int k) { return learner_for(context, &kinds[k], POSITIONS); }

static void fill(int32_t *ids, int n) {
  for (int i = 0; i < n; i++) ids[i] = (i * i * 7 + i * 3 + 3) % VOCABULARY;
}

/* Patterns give the same bits; linear attention adds up in another order. */
static void same(const struct kind *kind, int positions, const char *when, const float *want, const float *got, bool exact) {
  double most = 0;
  for (int i = 0; i < positions * VOCABULARY; i++) most = fmax(most, fabs(want[i]));
  for (int i = 0; i < positions * VOCABULARY; i++)
    if (exact ? memcmp(&want[i], &got[i], sizeof *got) != 0 : !(fabs(want[i] - got[i]) <= 1e-5 * most))
      fail_msg("%s %s: %s: logit %d is %.9g on the tape, %.9g when loaded", kind->attention ? kind->attention : "full",
               kind->turns ? kind->turns : "", when, i, want[i], got[i]);
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
    heed_tensor *logits = heed_learner_logits(learner, tape, heed_tape_input(tape, &view));
    ok(context, heed_tape_status(tape));
    const float *own = hd_value(logits);
    ok(context, heed_session_new(context, model, NULL, &session));
    ok(context, heed_session_run(session, ids, POSITIONS, whole, POSITIONS, NULL));
    same(&kinds[k], POSITIONS, "at once", own, whole, !kinds[k].linear);
    if (kinds[k].kind != HEED_LEARNER_ENCODER && !is_lsh(kinds[k].attention)) {
      static const int64_t steps[] = {1, 7, 64, 100};
      for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        ok(context, heed_session_truncate(session, 0));
        run_cut(context, session, ids, 0, POSITIONS, steps[s], cut);
        same(&kinds[k], POSITIONS, "cut", own, cut, !kinds[k].linear);
      }
      // What came after is forgotten, also by running sums.
      ok(context, heed_session_truncate(session, 0));
      run_cut(context, session, other, 0, 90, 90, cut);
      ok(context, heed_session_truncate(session, 0));
      run_cut(context, session, ids, 0, 60, 60, cut);
      run_cut(context, session, other, 60, 80, 20, cut);
      ok(context, heed_session_truncate(session, 60));
      run_cut(context, session, ids, 60, POSITIONS, 13, cut);
      same(&kinds[k], POSITIONS, "gone back", own, cut, !kinds[k].linear);
    }
    heed_session_free(session);
    heed_tape_free(tape);
    heed_model_free(model);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* Who meets whom in LSH attention depends on the whole text: a run gives what the learner makes of the text so far, however it came to be. */
static void lsh_runs_the_text_so_far(void **state) {
  (void)state;
  static const int64_t ends[] = {1, 2, 70, 140, 150};
  heed_context *context = test_context(NULL);
  static float got[POSITIONS * VOCABULARY];
  int32_t ids[POSITIONS];
  fill(ids, POSITIONS);
  for (int k = 0; k < KINDS; k++) {
    if (!is_lsh(kinds[k].attention) || kinds[k].kind == HEED_LEARNER_ENCODER) continue;
    heed_learner *learner = learner_of(context, k);
    heed_model *model = saved(context, learner);
    heed_session *session;
    heed_tape *tape;
    ok(context, heed_tape_new(context, &tape));
    ok(context, heed_session_new(context, model, NULL, &session));
    ok(context, heed_session_run(session, ids + 9, 100, NULL, 0, NULL)); // forgotten
    ok(context, heed_session_truncate(session, 0));
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
      const int64_t length = heed_session_length(session), n = ends[e] - length;
      const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, ends[e]});
      const float *own = hd_value(heed_learner_logits(learner, tape, heed_tape_input(tape, &view))) + length * VOCABULARY;
      ok(context, heed_tape_status(tape));
      ok(context, heed_session_run(session, ids + length, n, got, n, NULL));
      for (int i = 0; i < n * VOCABULARY; i++)
        if (kinds[k].linear ? !(fabsf(own[i] - got[i]) <= 1e-4f) : memcmp(&own[i], &got[i], sizeof *got) != 0)
          fail_msg("%s: to %d: logit %d is %.9g on the tape, %.9g in the session", kinds[k].attention, (int)ends[e], i, own[i], got[i]);
      heed_tape_reset(tape);
    }
    heed_session_free(session);
    heed_tape_free(tape);
    heed_model_free(model);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* More keys than patterns take as they lie: with an order of its own a pattern is its learner's to rounding, and to the bit where both see all at once. */
static void loaded_beyond_the_first_256_keys(void **state) {
  (void)state;
  enum { LONG = 290 };
  static const struct kind longer[] = {
      {HEED_LEARNER_GPT, "strided:16", 0, false, NULL},
      {HEED_LEARNER_LLAMA, "window:7/strided:8:columns/dilated:40:1,2,3,7", HEED_POSITIONS_ALIBI, false, NULL},
      {HEED_LEARNER_GPT, "fixed:16:2+window:9", HEED_POSITIONS_T5, false, NULL},
      {HEED_LEARNER_GPT, "window:20+global:4", HEED_POSITIONS_T5, false, NULL},
      {HEED_LEARNER_GPT, "window:30+strided:32", HEED_POSITIONS_XL, false, NULL},
      {HEED_LEARNER_ENCODER, "dilated:5:9+global:2", 0, false, NULL}};
  heed_context *context = test_context(NULL);
  static float whole[LONG * VOCABULARY], cut[LONG * VOCABULARY];
  int32_t ids[LONG];
  fill(ids, LONG);
  for (size_t k = 0; k < sizeof longer / sizeof *longer; k++) {
    heed_learner *learner = learner_for(context, &longer[k], LONG);
    heed_model *model = saved(context, learner);
    heed_session *session;
    heed_tape *tape;
    ok(context, heed_tape_new(context, &tape));
    const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, LONG});
    heed_tensor *logits = heed_learner_logits(learner, tape, heed_tape_input(tape, &view));
    ok(context, heed_tape_status(tape));
    ok(context, heed_session_new(context, model, NULL, &session));
    ok(context, heed_session_run(session, ids, LONG, whole, LONG, NULL));
    same(&longer[k], LONG, "at once", hd_value(logits), whole, true);
    if (longer[k].kind != HEED_LEARNER_ENCODER) {
      ok(context, heed_session_truncate(session, 0));
      run_cut(context, session, ids, 0, 270, 90, cut);
      run_cut(context, session, ids, 270, LONG, 7, cut);
      same(&longer[k], LONG, "cut", hd_value(logits), cut, false);
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

/* lsh:1: rows against their formula: those that met, and all. A row meets itself alone or not at all, and in the exact weights the first does. */
static heed_status see_lsh(void *user, const heed_layer_record *r) {
  assert_non_null(r->visible);
  assert_non_null(r->exact);
  int64_t absent = 0;
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++) {
      const float *q = r->q + (r->heads[h] * r->queries + i) * D, *keys = r->k + r->heads[h] * r->keys * D;
      const int64_t at = (h * r->queries + i) * r->keys;
      double want[POSITIONS] = {0}, sum[2] = {0};
      int64_t seen = 0;
      bool alone = false;
      for (int64_t j = 0; j < r->keys; j++) {
        double dot = 0, square = 0;
        for (int c = 0; c < D; c++) dot += (double)q[c] * keys[j * D + c], square += (double)keys[j * D + c] * keys[j * D + c];
        assert_true(fabs(square - 1) <= 1e-3);
        const bool met = r->visible[at + j], all = j < i || (i == 0 && j == 0);
        assert_true(j <= i || !met);
        seen += met, alone |= met && j == i;
        absent += all && !met;
        want[j] = exp(dot);
        sum[0] += met * want[j], sum[1] += all * want[j];
      }
      assert_true(alone ? seen == 1 : seen >= 1);
      for (int64_t j = 0; j < r->keys; j++) {
        assert_true(fabs(r->weights[at + j] - r->visible[at + j] * want[j] / sum[0]) <= 1e-5);
        assert_true(fabs(r->exact[at + j] - (j < i || i + j == 0) * want[j] / sum[1]) <= 1e-5);
      }
    }
  assert_true(r->queries < 100 ? absent == 0 : absent > 0);
  ++*(int *)user;
  return HEED_OK;
}

/* window:5/full: the first layer shows six keys, the second has no pattern. */
static heed_status see_window(void *user, const heed_layer_record *r) {
  ++*(int *)user;
  assert_null(r->exact);
  if (r->layer % 2 == 1) {
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

static void watched(heed_context *context, const char *attention, int64_t tokens, heed_watch_fn see) {
  const heed_learner_options options = options_of(HEED_LEARNER_GPT, attention, 0);
  const int64_t heads[] = {3, 1};
  int32_t ids[POSITIONS];
  int layers = 0;
  heed_learner *learner;
  heed_session *session;
  fill(ids, POSITIONS);
  ok(context, heed_learner_new(context, &options, &learner));
  heed_model *model = saved(context, learner);
  const heed_watch watch = {.size = sizeof watch, .record = see, .want_qkv = true, .heads = heads, .n_heads = 2, .user = &layers};
  ok(context, heed_session_new(context, model, NULL, &session));
  ok(context, heed_session_run(session, ids, tokens, NULL, 0, &watch));
  assert_int_equal(layers, LAYERS);
  if (see != see_window) {
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
  watched(context, "window:5/full", 40, see_window);
  watched(context, "linear", 40, see_linear);
  watched(context, "lsh:1", 40, see_lsh);
  watched(context, "lsh:1", 140, see_lsh);
  heed_context_free(context);
}

/* ---- gradients ---------------------------------------------------------------------------------------------------------------------- */

/* The loss of a learner, and its gradients if asked for. */
static double loss_of(heed_context *context, heed_learner *learner, int32_t *ids, int64_t n, bool backward) {
  heed_tape *tape;
  ok(context, heed_tape_new(context, &tape));
  const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, n}), next = heed_view_of(ids + 1, HEED_I32, 2, (int64_t[]){1, n});
  heed_tensor *loss = heed_learner_loss(learner, tape, heed_tape_input(tape, &view), heed_tape_input(tape, &next));
  if (backward) ok(context, heed_tape_backward(tape, loss, NULL));
  ok(context, heed_tape_status(tape));
  const double value = *(const float *)hd_value(loss);
  heed_tape_free(tape);
  return value;
}

/* Of the shared rows' matrix, along its own direction, against a central difference. */
static void lsh_gradients_reach_the_matrix(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  int32_t ids[POSITIONS];
  fill(ids, POSITIONS);
  for (int k = 0; k < KINDS; k++) {
    if (!is_lsh(kinds[k].attention) || kinds[k].linear) continue;
    heed_learner *learner = learner_of(context, k);
    heed_tensor *w = hd_transformer(learner)->stack.layers[strncmp(kinds[k].attention, "lsh", 3) ? 1 : 0].attention.w_qkv;
    assert_int_equal(w->dim[0], 2 * WIDTH);
    loss_of(context, learner, ids, 60, true);
    const heed_view g = heed_tensor_gradient(w);
    const int64_t count = w->dim[0] * w->dim[1];
    double square = 0, side[2];
    for (int64_t i = 0; i < count; i++) square += (double)((float *)g.data)[i] * ((float *)g.data)[i];
    assert_true(square > 1e-6);
    float *gradient = malloc((size_t)count * sizeof *gradient);
    memcpy(gradient, g.data, (size_t)count * sizeof *gradient);
    const double h = 2e-2 / sqrt(square);
    for (int s = 0; s < 2; s++) {
      for (int64_t i = 0; i < count; i++) hd_value(w)[i] += (float)((s ? 2 : -1) * h * gradient[i]);
      side[s] = loss_of(context, learner, ids, 60, false);
    }
    const double slope = (side[1] - side[0]) / (2 * h);
    if (!(fabs(slope - square) <= 2e-2 * square)) fail_msg("%s: slope %g, gradient %g", kinds[k].attention, slope, square);
    free(gradient);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* ---- learning ---------------------------------------------------------------------------------------------------------------------- */

/* Words sorted: the loss falls under half of what knowing nothing costs. */
static void they_learn(void **state) {
  (void)state;
  static const char *const which[] = {"window:4+global:1", "linear", "performer:32", "lsh:2"};
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

/* Positions in turn. */
static void refuses_turns(void **state) {
  (void)state;
  static const struct {
    const char *turns, *says, *attention;
    heed_positions positions;
    heed_status status;
  } bad[] = {
      {"rope/polar", "positions: unknown kind \"polar\", known are learned, sinusoidal, rope, alibi, xl, t5, none", NULL, 0, HEED_E_FORMAT},
      {"rope/", "positions: unknown kind \"\"", NULL, 0, HEED_E_FORMAT},
      {"/", "positions: unknown kind \"\"", NULL, 0, HEED_E_FORMAT},
      {"rope/none/rope/none", "positions: 4 kinds for 3 layers", NULL, 0, HEED_E_FORMAT},
      {"learned/sinusoidal", "learned and sinusoidal ones would both be added to the embedding", NULL, 0, HEED_E_FORMAT},
      {"rope/none", "positions: given twice", NULL, HEED_POSITIONS_T5, HEED_E_ARGUMENT},
      {"rope/alibi/none", "linear attention has no scores for ALiBi's positions to act on", "full/linear", 0, HEED_E_FORMAT},
  };
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    heed_learner_options options = options_of(HEED_LEARNER_GPT, bad[i].attention, bad[i].positions);
    heed_learner *learner;
    options.layer_positions = bad[i].turns;
    assert_int_equal(heed_learner_new(context, &options, &learner), bad[i].status);
    if (!strstr(heed_error(context), bad[i].says)) fail_msg("\"%s\": %s", bad[i].turns, heed_error(context));
  }
  heed_context_free(context);
}

static void refuses(void **state) {
  (void)state;
  static const struct {
    const char *attention, *says;
    heed_positions positions;
    heed_learner_kind kind;
  } bad[] = {
      {"windows:3", "attention: unknown kind \"windows\", known are linear, relu, performer, hyperbolic, lsh, full, causal, window", 0, 0},
      {"", NULL, 0, 0},
      {"window", "attention: \"window\": pattern \"window\": window: expected window:", 0, 0},
      {"window:-1", "attention: \"window:-1\"", 0, 0},
      {"strided:200", "attention: \"strided:200\"", 0, 0},
      {"window:3/", "attention: unknown kind \"\"", 0, 0},
      {"full/full/full/full", "attention: 4 kinds for 3 layers", 0, 0},
      {"linear:3", "attention: \"linear:3\": linear stands alone", 0, 0},
      {"performer", "attention: \"performer\": expected performer:ROWS[:SEED], with 1 to 65536 random rows", 0, 0},
      {"performer:0", "expected performer:ROWS[:SEED]", 0, 0},
      {"performer:99999", "expected performer:ROWS[:SEED]", 0, 0},
      {"performer:8:x", "expected performer:ROWS[:SEED]", 0, 0},
      {"hyperbolic:8:1:2", "expected hyperbolic:ROWS[:SEED]", 0, 0},
      {"lsh", "attention: \"lsh\": expected lsh:ROUNDS[:SEED], with 1 to 1024 rounds", 0, 0},
      {"lsh:0", "attention: \"lsh:0\": expected lsh:ROUNDS[:SEED], with 1 to 1024 rounds", 0, 0},
      {"lsh:-1", "expected lsh:ROUNDS[:SEED]", 0, 0},
      {"lsh:1025", "expected lsh:ROUNDS[:SEED]", 0, 0},
      {"lsh:4:x", "expected lsh:ROUNDS[:SEED]", 0, 0},
      {"lsh:4:1:2", "expected lsh:ROUNDS[:SEED]", 0, 0},
      {"lsh:4", "attention: \"lsh:4\": LSH attention has no scores for T5's positions to act on", HEED_POSITIONS_T5, 0},
      {"full/lsh:4", "an encoder with a decoder has no LSH attention, only patterns", 0, HEED_LEARNER_SEQ2SEQ},
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
  heed_learner_options options = options_of(0, "lsh:4", 0);
  heed_learner *learner;
  options.kv_heads = KV_HEADS;
  assert_int_equal(heed_learner_new(context, &options, &learner), HEED_E_FORMAT);
  assert_non_null(
      strstr(heed_error(context), "\"lsh:4\": queries are also the keys, so heads cannot share keys (got 4 heads, 2 of keys and values)"));
  heed_context_free(context);
}

/* A model keeps its shared rows when it is trained further, and cannot change sides. */
static void lsh_is_kept_by_further_training(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  int32_t ids[POSITIONS];
  fill(ids, POSITIONS);
  static const char *const sides[] = {"lsh:2", "full"};
  for (int i = 0; i < 2; i++) {
    heed_learner_options options = options_of(HEED_LEARNER_GPT, sides[i], 0);
    options.kv_heads = HEADS;
    heed_learner *learner, *next;
    ok(context, heed_learner_new(context, &options, &learner));
    heed_model *model = saved(context, learner);
    ok(context, heed_learner_from_model(context, model, NULL, &next));
    assert_true(loss_of(context, learner, ids, 120, false) == loss_of(context, next, ids, 120, false));
    heed_learner_free(next);
    const heed_learner_from_options other = {.size = sizeof other, .attention = sides[1 - i]};
    assert_int_equal(heed_learner_from_model(context, model, &other, &next), HEED_E_UNSUPPORTED);
    assert_non_null(strstr(heed_error(context), "layer 0 cannot take or leave LSH attention"));
    heed_model_free(model);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(loaded_gives_the_same),
                                     cmocka_unit_test(loaded_beyond_the_first_256_keys),
                                     cmocka_unit_test(watches_show_patterns_and_implied_weights),
                                     cmocka_unit_test(they_learn),
                                     cmocka_unit_test(refuses),
                                     cmocka_unit_test(refuses_turns),
                                     cmocka_unit_test(lsh_runs_the_text_so_far),
                                     cmocka_unit_test(lsh_gradients_reach_the_matrix),
                                     cmocka_unit_test(lsh_is_kept_by_further_training)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
