/* The transformer with encoder and decoder that learns: who sees whom, gradients against differences, the same rows in any company, and that it learns to write words backwards. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../folder.h"

#include <math.h>
#include <stdio.h>

enum { SOURCE = 9, TARGETS = 8, COLUMNS = SOURCE + TARGETS, VOCABULARY = 11, START = 0, END = 2, LETTER = 3 };

static const heed_learner_options small = {.size = sizeof small,
                                           .kind = HEED_LEARNER_SEQ2SEQ,
                                           .layers = 2,
                                           .heads = 2,
                                           .width = 16,
                                           .feed_forward = 24,
                                           .context = TARGETS,
                                           .source = SOURCE,
                                           .vocabulary = VOCABULARY,
                                           .seed = 4};

/* Every form there is: [0] is the plain one. */
static const struct {
  bool own; /* no other program knows it */
  bool norm_before, learned, untied, no_bias, gelu;
  int64_t source_vocabulary, encoder_layers, kv_heads;
  heed_positions positions;
  const char *attention;
} forms[] = {{0},
             {.norm_before = true, .own = true},
             {.learned = true, .gelu = true, .own = true},
             {.untied = true, .encoder_layers = 1, .own = true},
             {.no_bias = true, .kv_heads = 1, .own = true},
             {.source_vocabulary = 30, .norm_before = true, .own = true},
             {.source_vocabulary = 30, .untied = true, .gelu = true},
             {.positions = HEED_POSITIONS_SINUSOIDAL},
             {.positions = HEED_POSITIONS_LEARNED, .own = true},
             {.positions = HEED_POSITIONS_ROTARY, .own = true},
             {.positions = HEED_POSITIONS_ALIBI, .own = true},
             {.positions = HEED_POSITIONS_XL, .own = true},
             {.positions = HEED_POSITIONS_T5, .source_vocabulary = 30, .own = true},
             {.attention = "window:2/strided:3", .own = true}};

static heed_learner *make(heed_context *context, int form, const heed_learner_options *base) {
  heed_learner_options o = *base;
  heed_learner *learner;
  o.norm_before = forms[form].norm_before;
  o.learned = forms[form].learned;
  o.untied = forms[form].untied;
  o.no_bias = forms[form].no_bias;
  o.gelu_erf = forms[form].gelu;
  o.source_vocabulary = forms[form].source_vocabulary;
  o.encoder_layers = forms[form].encoder_layers;
  o.kv_heads = forms[form].kv_heads;
  o.positions = forms[form].positions;
  o.attention = forms[form].attention;
  ok(context, heed_learner_new(context, &o, &learner));
  return learner;
}

/* So that biases and norms count. */
static void shake(heed_learner *learner) {
  heed_parameters *set = heed_learner_parameters(learner);
  for (int64_t i = 0; i < heed_parameters_count(set); i++) {
    heed_tensor *t = heed_parameters_at(set, i);
    for (int64_t j = 0; t->ndim == 1 && j < hd_count(t); j++) hd_value(t)[j] += (float)sin((double)(7 * i + 3 * j)) / 5;
  }
}

/* ---- words backwards ------------------------------------------------------------------------------------------------------------------- */

typedef struct words {
  int64_t most, letters;
} words;

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void backwards(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const words *w = user;
  uint64_t state = seed * 1000003 + (uint64_t)number * 7919 + 1;
  for (int64_t i = 0; i < batch * length; i++) ids[i] = targets[i] = -1;
  for (int64_t r = 0; r < batch; r++) {
    const int64_t n = 1 + (int64_t)(next(&state) % (uint64_t)w->most);
    int32_t *source = ids + r * length, *in = source + SOURCE, *out = targets + r * length + SOURCE;
    for (int64_t i = 0; i < n; i++) source[i] = LETTER + (int32_t)(next(&state) % (uint64_t)w->letters);
    source[n] = END;
    in[0] = START;
    for (int64_t i = 0; i < n; i++) in[i + 1] = out[i] = source[n - 1 - i];
    out[n] = END;
  }
}

typedef struct batch {
  int32_t ids[4][COLUMNS], targets[4][COLUMNS];
} batch;

static batch four(void) {
  batch b;
  words w = {.most = 6, .letters = 8};
  backwards(&w, 3, 2, 4, COLUMNS, b.ids[0], b.targets[0]);
  return b;
}

static heed_tensor *on_tape(heed_tape *tape, const int32_t *numbers, int64_t rows) {
  const heed_view view = heed_view_of((void *)numbers, HEED_I32, 2, (int64_t[]){rows, COLUMNS});
  return heed_tape_input(tape, &view);
}

static int64_t length_of(const int32_t *ids, int64_t most) {
  int64_t n = 0;
  while (n < most && ids[n] >= 0) n++;
  return n;
}

/* ---- who sees whom ----------------------------------------------------------------------------------------------------------------------- */

/* Logits of one row, [its tokens, VOCABULARY]. */
static float *logits_of(heed_learner *learner, heed_tape *tape, const int32_t *ids) {
  heed_tape_reset(tape);
  const heed_tensor *t = heed_learner_logits(learner, tape, on_tape(tape, ids, 1));
  ok(learner->context, heed_tape_status(tape));
  assert_int_equal(t->dim[1], length_of(ids + SOURCE, TARGETS));
  float *out = malloc((size_t)hd_count(t) * sizeof *out);
  memcpy(out, heed_tensor_value(t).data, (size_t)hd_count(t) * sizeof *out);
  return out;
}

static bool same(const float *a, const float *b, int64_t tokens) { return memcmp(a, b, (size_t)(tokens * VOCABULARY) * sizeof *a) == 0; }

static void one_sight(heed_context *context, int form) {
  heed_learner *learner = make(context, form, &small);
  heed_tape *tape;
  batch b = four();
  shake(learner);
  ok(context, heed_tape_new(context, &tape));
  heed_tape_set_training(tape, false);
  // In a batch each row has the bits that it has alone.
  const heed_tensor *all = heed_learner_logits(learner, tape, on_tape(tape, b.ids[0], 4));
  ok(context, heed_tape_status(tape));
  const int64_t columns = all->dim[1];
  float *together = malloc((size_t)hd_count(all) * sizeof *together), *alone, *other;
  memcpy(together, heed_tensor_value(all).data, (size_t)hd_count(all) * sizeof *together);
  bool padded = false;
  for (int64_t r = 0; r < 4; r++) {
    const int64_t n = length_of(b.ids[r] + SOURCE, TARGETS);
    padded |= n < columns;
    alone = logits_of(learner, tape, b.ids[r]);
    assert_true(same(alone, together + r * columns * VOCABULARY, n));
    free(alone);
  }
  assert_true(padded);
  free(together);
  // A target's token is seen from itself on, one of the source from everywhere, the last one too.
  int32_t *row = b.ids[0];
  const int64_t n = length_of(row + SOURCE, TARGETS), m = length_of(row, SOURCE);
  assert_true(n > 2);
  alone = logits_of(learner, tape, row);
  row[SOURCE + 2] ^= 1;
  other = logits_of(learner, tape, row);
  assert_true(same(alone, other, 2) && !same(alone + 2 * VOCABULARY, other + 2 * VOCABULARY, 1));
  row[SOURCE + 2] ^= 1;
  free(other);
  for (int64_t i = 0; i < m; i++) {
    row[i] ^= 1;
    other = logits_of(learner, tape, row);
    for (int64_t t = 0; t < n; t++) assert_false(same(alone + t * VOCABULARY, other + t * VOCABULARY, 1));
    row[i] ^= 1;
    free(other);
  }
  // Where it stands matters.
  const int32_t first = row[0];
  row[0] = row[1];
  row[1] = first;
  other = logits_of(learner, tape, row);
  assert_false(row[0] != row[1] && same(alone, other, 1));
  free(other);
  free(alone);
  heed_tape_free(tape);
  heed_learner_free(learner);
}

static void sight(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int form = 0; form < HD_COUNT(forms); form++) one_sight(context, form);
  heed_context_free(context);
}

/* ---- gradients --------------------------------------------------------------------------------------------------------------------------- */

static double loss_of(heed_learner *learner, heed_tape *tape, const batch *b, bool backward) {
  heed_tape_reset(tape);
  heed_tensor *loss = heed_learner_loss(learner, tape, on_tape(tape, b->ids[0], 4), on_tape(tape, b->targets[0], 4));
  ok(learner->context, heed_tape_status(tape));
  const double value = *(const float *)heed_tensor_value(loss).data;
  if (backward) ok(learner->context, heed_tape_backward(tape, loss, NULL));
  return value;
}

/* Along a direction the loss changes as its gradient says; of every parameter by itself, so that none is left out. */
static void one_gradient(heed_context *context, int form) {
  heed_learner_options options = small;
  options.smoothing = 0.1;
  heed_learner *learner = make(context, form, &options);
  heed_parameters *set = heed_learner_parameters(learner);
  heed_tape *tape;
  const batch b = four();
  const double step = 5e-4;
  shake(learner);
  ok(context, heed_tape_new(context, &tape));
  loss_of(learner, tape, &b, true);
  for (int64_t i = 0; i < heed_parameters_count(set); i++) {
    heed_tensor *t = heed_parameters_at(set, i);
    const float *gradient = heed_tensor_gradient(t).data;
    assert_non_null(gradient);
    double along = 0, loss[2];
    for (int64_t j = 0; j < hd_count(t); j++) along += (double)gradient[j] * (gradient[j] > 0 ? 1 : -1);
    for (int side = 0; side < 2; side++) {
      const double by = (side ? -2 : 1) * step / sqrt((double)hd_count(t));
      for (int64_t j = 0; j < hd_count(t); j++) hd_value(t)[j] += (float)(by * (gradient[j] > 0 ? 1 : -1));
      loss[side] = loss_of(learner, tape, &b, false);
    }
    for (int64_t j = 0; j < hd_count(t); j++) hd_value(t)[j] += (float)(step / sqrt((double)hd_count(t)) * (gradient[j] > 0 ? 1 : -1));
    along /= sqrt((double)hd_count(t));
    const double found = (loss[0] - loss[1]) / (2 * step);
    if (!(fabs(found - along) <= 0.02 * along + 4e-4))
      fail_msg("form %d, %s: %.6g along the gradient, found %.6g", form, t->name, along, found);
  }
  heed_tape_free(tape);
  heed_learner_free(learner);
}

static void gradients(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int form = 0; form < HD_COUNT(forms); form++) one_gradient(context, form);
  heed_context_free(context);
}

/* ---- what it is made of ------------------------------------------------------------------------------------------------------------------ */

static void parts(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const int64_t w = 16, f = 24, attention = 4 * w * w + 4 * w, norm = 2 * w, feed = 2 * w * f + f + w;
  const int64_t encoder = attention + feed + 2 * norm, decoder = 2 * attention + feed + 3 * norm;
  const int64_t want[HD_COUNT(forms)] = {
      VOCABULARY * w + 2 * (encoder + decoder), VOCABULARY * w + 2 * (encoder + decoder) + 2 * norm,
      (VOCABULARY + SOURCE + TARGETS) * w + 2 * (encoder + decoder), 2 * VOCABULARY * w + encoder + 2 * decoder,
      // one key/value head of two, neither biases nor shifts of norms
      VOCABULARY * w + 2 * (3 * (3 * w * w) + 2 * 2 * w * f + (2 + 3) * w), (VOCABULARY + 30) * w + 2 * (encoder + decoder) + 2 * norm,
      (2 * VOCABULARY + 30) * w + 2 * (encoder + decoder), VOCABULARY * w + 2 * (encoder + decoder),
      (VOCABULARY + SOURCE + TARGETS) * w + 2 * (encoder + decoder), VOCABULARY * w + 2 * (encoder + decoder),
      VOCABULARY * w + 2 * (encoder + decoder), VOCABULARY * w + 2 * (encoder + decoder) + 4 * (w * w + 2 * w),
      (VOCABULARY + 30) * w + 2 * (encoder + decoder) + 2 * 32 * 2, VOCABULARY * w + 2 * (encoder + decoder)};
  for (int form = 0; form < HD_COUNT(forms); form++) {
    heed_learner *learner = make(context, form, &small);
    heed_parameters *set = heed_learner_parameters(learner);
    assert_int_equal(heed_parameters_size(set), want[form]);
    const bool separate = forms[form].source_vocabulary > 0;
    assert_non_null(heed_parameters_find(set, "embedding.weight"));
    assert_true((heed_parameters_find(set, "encoder.embedding.weight") != NULL) == separate);
    assert_non_null(heed_parameters_find(set, "layers.1.cross_kv.weight"));
    assert_null(heed_parameters_find(set, "encoder.layers.0.cross_kv.weight"));
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

static void refuse(heed_context *context, heed_learner_options o, heed_status status, const char *text) {
  heed_learner *learner = (heed_learner *)&o;
  assert_int_equal(heed_learner_new(context, &o, &learner), status);
  assert_null(learner);
  if (!strstr(heed_error(context), text)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), text);
}

static void refusals(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner_options o = small;
  o.source = 0;
  refuse(context, o, HEED_E_ARGUMENT, "source: got 0, allowed 1 to");
  o.kind = HEED_LEARNER_GPT;
  o.source = 3;
  refuse(context, o, HEED_E_ARGUMENT, "source: got 3, allowed 0 to 0");
  o = small;
  o.rotary = true;
  refuse(context, o, HEED_E_ARGUMENT, "rotary");
  o = small;
  o.width = 15;
  o.heads = 3;
  o.positions = HEED_POSITIONS_ROTARY;
  refuse(context, o, HEED_E_FORMAT, "the encoder: rotary positions need an even width within the head (got 5");
  o = small;
  o.positions = (heed_positions)(HEED_POSITIONS_NONE + 1);
  refuse(context, o, HEED_E_ARGUMENT, "positions: there is no kind 8");
  o.positions = HEED_POSITIONS_XL, o.learned = true;
  refuse(context, o, HEED_E_ARGUMENT, "positions: given twice");
  o = small;
  o.heads = 3;
  refuse(context, o, HEED_E_FORMAT, "the encoder: ");
  heed_context_free(context);
}

/* ---- what is saved is what was learned ----------------------------------------------------------------------------------------------------- */

/* Loaded again each row has the logits it had, to the bit; a form that Marian's files can say is a Marian. */
static void one_saved(heed_context *context, int form) {
  heed_learner_options options = small;
  options.has_ends = true;
  options.start = START;
  options.end = END;
  heed_learner *learner = make(context, form, &options);
  heed_tape *tape;
  heed_model *model;
  heed_session *session;
  heed_model_info info = {.size = sizeof info};
  const batch b = four();
  shake(learner);
  ok(context, heed_learner_save(learner, NULL, test_folder));
  ok(context, heed_model_load(context, test_folder, &model));
  ok(context, heed_model_describe(model, &info));
  assert_string_equal(info.family, forms[form].own ? "heed" : "marian");
  assert_int_equal(info.start, START);
  assert_int_equal(info.encoder_layers, forms[form].encoder_layers ? forms[form].encoder_layers : 2);
  assert_int_equal(info.encoder_vocabulary, forms[form].source_vocabulary ? forms[form].source_vocabulary : VOCABULARY);
  ok(context, heed_session_new(context, model, NULL, &session));
  ok(context, heed_tape_new(context, &tape));
  heed_tape_set_training(tape, false);
  for (int64_t r = 0; r < 4; r++) {
    const int64_t m = length_of(b.ids[r], SOURCE), n = length_of(b.ids[r] + SOURCE, TARGETS);
    float *want = logits_of(learner, tape, b.ids[r]), got[TARGETS * VOCABULARY];
    ok(context, heed_session_source(session, b.ids[r], m, NULL));
    ok(context, heed_session_run(session, b.ids[r] + SOURCE, n, got, n, NULL));
    assert_true(same(want, got, n));
    free(want);
  }
  heed_tape_free(tape);
  heed_session_free(session);
  heed_model_free(model);
  heed_learner_free(learner);
}

static void saved(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int form = 0; form < HD_COUNT(forms); form++) one_saved(context, form);
  heed_context_free(context);
}

/* ---- learning ------------------------------------------------------------------------------------------------------------------------------ */

static void learns(void **state) {
  (void)state;
  for (int before = 0; before < (SANITIZED ? 1 : 2); before++) {
    heed_context *context = test_context(NULL);
    heed_learner_options options = small;
    options.layers = 1;
    options.heads = 4;
    options.width = 64;
    options.feed_forward = 128;
    options.smoothing = 0.1;
    heed_learner *learner = make(context, before, &options);
    heed_optimiser *optimiser;
    words w = {.most = 6, .letters = 8};
    const heed_optimiser_options adamw = {.size = sizeof adamw, .has_betas = true, .beta1 = 0.9, .beta2 = 0.98};
    ok(context, heed_optimiser_new(context, heed_learner_parameters(learner), &adamw, &optimiser));
    const heed_train_options train = {
        .size = sizeof train,
        .steps = 350,
        .batch = 32,
        .length = COLUMNS,
        .source = backwards,
        .source_user = &w,
        .seed = 1,
        .schedule = {.size = sizeof train.schedule, .kind = HEED_SCHEDULE_COSINE, .peak = 4e-3, .warmup = 50, .steps = 350},
        .clip = 1};
    heed_train_state at = {.size = sizeof at};
    heed_evaluation out = {.size = sizeof out};
    ok(context, heed_train(learner, optimiser, &train, &at));
    ok(context, heed_learner_evaluate(learner, backwards, &w, 99, 8, 32, COLUMNS, &out));
    print_message("%s: loss %.4f, exact %lld of %lld\n", before ? "norms before" : "norms after", out.loss, (long long)out.exact_sequences,
                  (long long)out.sequences);
    assert_true(out.sequences == 256 && out.exact_sequences >= 243);
    heed_optimiser_free(optimiser);
    heed_learner_free(learner);
    heed_context_free(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sight),    cmocka_unit_test(gradients), cmocka_unit_test(parts),
                                     cmocka_unit_test(refusals), cmocka_unit_test(saved),     cmocka_unit_test(learns)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
