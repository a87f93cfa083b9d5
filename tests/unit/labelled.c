/* Encoders that say labels: rows of many lengths in a batch give each the bits that it has alone, what is saved is what was learned, and every row is seen once a round. */
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../folder.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { VOCABULARY = 37, POSITIONS = 24, LABELS = 5, BATCH = 6 };

static const char *const names[LABELS] = {"ADJ", "NOUN", "O", "VERB", "a label, with spaces"};

static heed_learner *small(heed_context *context, heed_learner_options options, heed_head head) {
  heed_learner *learner;
  options.size = sizeof options;
  options.kind = HEED_LEARNER_ENCODER;
  options.layers = 2;
  options.heads = 4;
  options.width = 32;
  options.context = POSITIONS;
  options.vocabulary = VOCABULARY;
  options.head = head;
  options.labels = LABELS;
  options.label_names = names;
  ok(context, heed_learner_new(context, &options, &learner));
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++) // weights large enough to matter
    ok(context,
       heed_tensor_initialise(context, heed_parameters_at(learner->parameters, i), HEED_INITIAL_NORMAL, 0.3, 7, 1000 + (uint64_t)i));
  return learner;
}

/* ---- rows of many lengths ------------------------------------------------------------------------------------------------------------- */

static const int64_t lengths[BATCH] = {24, 1, 13, 8, 0, 17};

typedef struct batch {
  int32_t ids[BATCH][POSITIONS], targets[BATCH][POSITIONS];
} batch;

static batch some_batch(heed_head head) {
  batch b;
  for (int r = 0; r < BATCH; r++)
    for (int i = 0; i < POSITIONS; i++) {
      const bool there = i < lengths[r], asked = head == HEED_HEAD_CLASS ? i == 0 : (r + i) % 3 != 1;
      b.ids[r][i] = there ? (r * 11 + i * 7 + 3) % VOCABULARY : -1;
      b.targets[r][i] = there && asked ? (r * 5 + i * 3) % (head == HEED_HEAD_TOKENS ? VOCABULARY : LABELS) : -1;
    }
  return b;
}

static heed_tensor *on_tape(heed_tape *tape, int32_t *numbers, int64_t rows, int64_t n) {
  const heed_view view = {numbers, HEED_I32, 2, {rows, n}, {POSITIONS, 1}};
  return heed_tape_input(tape, &view);
}

/* The loss of rows [first, first + rows), each n wide, times the places asked for; gradients are added to those there. */
static double loss_of(heed_context *context, heed_learner *learner, batch *b, int64_t first, int64_t rows, int64_t n, int64_t all) {
  heed_tape *tape;
  int64_t places = 0;
  for (int64_t r = first; r < first + rows; r++)
    for (int64_t i = 0; i < n; i++) places += b->targets[r][i] >= 0;
  ok(context, heed_tape_new(context, &tape));
  heed_tensor *loss = heed_learner_loss(learner, tape, on_tape(tape, b->ids[first], rows, n), on_tape(tape, b->targets[first], rows, n));
  heed_tensor *share = heed_tape_scale(tape, loss, (double)places / (double)all);
  ok(context, heed_tape_status(tape));
  double out = (double)*hd_value(share);
  ok(context, heed_tape_backward(tape, share, NULL));
  heed_tape_free(tape);
  return out;
}

static float *copy_gradients(heed_learner *learner) {
  float *out = malloc((size_t)heed_parameters_size(learner->parameters) * sizeof *out), *at = out;
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++) {
    const heed_view g = heed_tensor_gradient(heed_parameters_at(learner->parameters, i));
    const int64_t n = hd_count(heed_parameters_at(learner->parameters, i));
    memcpy(at, g.data, (size_t)n * sizeof *at);
    at += n;
  }
  return out;
}

static void compare_gradients(heed_learner *learner, const float *a, const float *b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < heed_parameters_size(learner->parameters); i++) {
    difference += pow((double)a[i] - (double)b[i], 2);
    norm += pow((double)b[i], 2);
  }
  if (!(norm > 0) || !(sqrt(difference / norm) < 1e-5)) fail_msg("gradients differ by %.3g of their norm", sqrt(difference / norm));
}

static void rows_are_as_if_alone(void **state) {
  (void)state;
  static const heed_learner_options kinds[] = {{.relu = false}, {.norm_before = true}, {.rotary = true, .kv_heads = 2}};
  heed_context *context = test_context(NULL);
  for (int head = HEED_HEAD_TOKENS; head <= HEED_HEAD_CLASS; head++)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      heed_learner *learner = small(context, kinds[k], (heed_head)head);
      const int64_t outputs = hd_spec_outputs(&hd_transformer(learner)->stack.spec), places = head == HEED_HEAD_CLASS ? 1 : POSITIONS;
      batch b = some_batch((heed_head)head);
      heed_tape *whole, *alone;
      ok(context, heed_tape_new(context, &whole));
      ok(context, heed_tape_new(context, &alone));
      heed_tensor *all = heed_learner_logits(learner, whole, on_tape(whole, b.ids[0], BATCH, POSITIONS));
      ok(context, heed_tape_status(whole));
      assert_int_equal(hd_count(all), BATCH * places * outputs);
      for (int r = 0; r < BATCH; r++) {
        if (lengths[r] == 0) continue;
        heed_tape_reset(alone);
        heed_tensor *own = heed_learner_logits(learner, alone, on_tape(alone, b.ids[r], 1, lengths[r]));
        ok(context, heed_tape_status(alone));
        if (memcmp(hd_value(own), hd_value(all) + r * places * outputs, (size_t)hd_count(own) * sizeof(float)))
          fail_msg("head %d, kind %zu: row %d has other bits in a batch", head, k, r);
      }
      heed_tape_free(whole);
      heed_tape_free(alone);

      int64_t asked = 0;
      for (int r = 0; r < BATCH; r++)
        for (int i = 0; i < POSITIONS; i++) asked += b.targets[r][i] >= 0;
      heed_parameters_forget_gradients(learner->parameters);
      double together = loss_of(context, learner, &b, 0, BATCH, POSITIONS, asked), sum = 0;
      float *gradients = copy_gradients(learner), *summed;
      heed_parameters_forget_gradients(learner->parameters);
      for (int r = 0; r < BATCH; r++)
        if (lengths[r] > 0) sum += loss_of(context, learner, &b, r, 1, lengths[r], asked);
      summed = copy_gradients(learner);
      if (!(fabs(together - sum) < 1e-5)) fail_msg("head %d, kind %zu: loss %.8g, of the rows alone %.8g", head, k, together, sum);
      compare_gradients(learner, gradients, summed);
      free(gradients);
      free(summed);
      heed_learner_free(learner);
    }
  heed_context_free(context);
}

static void padding_is_behind(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = small(context, (heed_learner_options){0}, HEED_HEAD_LABELS);
  batch b = some_batch(HEED_HEAD_LABELS);
  heed_tape *tape;
  b.ids[3][10] = 1;
  ok(context, heed_tape_new(context, &tape));
  assert_null(heed_learner_logits(learner, tape, on_tape(tape, b.ids[0], BATCH, POSITIONS)));
  assert_int_equal(heed_tape_status(tape), HEED_E_ARGUMENT);
  assert_string_equal(heed_error(context), "ids: row 3 has a token behind its padding (place 10)");
  heed_tape_free(tape);
  heed_learner_free(learner);
  heed_context_free(context);
}

/* ---- batches --------------------------------------------------------------------------------------------------------------------------- */

enum { ROWS = 29, LONGEST = 9 };

typedef struct corpus {
  int32_t ids[ROWS * LONGEST], labels[ROWS * LONGEST];
  int64_t begin[ROWS + 1];
} corpus;

/* Row r has 1 + r % LONGEST tokens; the first is r. */
static heed_labelled_data some_rows(corpus *c) {
  c->begin[0] = 0;
  for (int r = 0; r < ROWS; r++) {
    int64_t at = c->begin[r];
    for (int i = 0; i <= r % LONGEST; i++, at++) {
      c->ids[at] = i == 0 ? r : ROWS + i % (VOCABULARY - ROWS);
      c->labels[at] = (r + i) % LABELS;
    }
    c->begin[r + 1] = at;
  }
  return (heed_labelled_data){c->ids, c->labels, c->begin, ROWS};
}

static void every_row_once_a_round(void **state) {
  (void)state;
  enum { ROUNDS = 4, WIDTH = 7 };
  corpus c;
  heed_labelled_data data = some_rows(&c);
  int32_t ids[WIDTH], targets[WIDTH], order[ROUNDS][ROWS], together[ROWS][WIDTH], others[ROWS][WIDTH];
  for (int round = 0; round < ROUNDS; round++) {
    int seen[ROWS] = {0};
    for (int k = 0; k < ROWS; k++) {
      heed_labelled_batch(&data, 5, round * ROWS + k, 1, WIDTH, ids, targets);
      const int r = order[round][k] = ids[0];
      assert_in_range(r, 0, ROWS - 1);
      seen[r]++;
      for (int i = 0; i < WIDTH; i++) {
        assert_int_equal(ids[i], i <= r % LONGEST ? c.ids[c.begin[r] + i] : -1);
        assert_int_equal(targets[i], i <= r % LONGEST ? c.labels[c.begin[r] + i] : -1);
      }
    }
    for (int r = 0; r < ROWS; r++) assert_int_equal(seen[r], 1);
    if (round > 0) assert_true(memcmp(order[round], order[round - 1], sizeof order[0]));
  }
  heed_labelled_batch(&data, 5, 0, ROWS, WIDTH, together[0], others[0]); // however many come at once
  for (int k = 0; k < ROWS; k++) assert_int_equal(together[k][0], order[0][k]);
  heed_labelled_row_batch(&data, 9, 1, ROWS - 1, WIDTH, together[0], others[0]);
  assert_int_equal(together[0][0], ROWS - 1);
  for (int i = 0; i < WIDTH; i++) assert_true(together[1][i] == -1 && others[1][i] == -1);
}

/* What a learner is told of is what is right: an evaluation by hand, row by row. */
static void evaluations_count_what_is_asked(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  corpus c;
  heed_labelled_data data = some_rows(&c);
  for (int head = HEED_HEAD_LABELS; head <= HEED_HEAD_CLASS; head++) {
    heed_learner *learner = small(context, (heed_learner_options){.dropout = 0.5}, (heed_head)head); // which evaluation leaves out
    heed_evaluation got = {.size = sizeof got};
    heed_tape *tape;
    double loss = 0;
    int64_t right = 0, places = 0;
    ok(context, heed_tape_new(context, &tape));
    heed_tape_set_training(tape, false);
    for (int r = 0; r < ROWS; r++) {
      const int64_t count = head == HEED_HEAD_CLASS ? 1 : c.begin[r + 1] - c.begin[r];
      heed_tape_reset(tape);
      const heed_view ids = heed_view_of(c.ids + c.begin[r], HEED_I32, 2, (int64_t[]){1, c.begin[r + 1] - c.begin[r]});
      const heed_tensor *logits = heed_learner_logits(learner, tape, heed_tape_input(tape, &ids));
      ok(context, heed_tape_status(tape));
      for (int64_t i = 0; i < count; i++, places++) {
        const float *x = hd_value(logits) + i * LABELS;
        const int32_t target = c.labels[c.begin[r] + i];
        double sum = 0;
        bool best = true;
        for (int k = 0; k < LABELS; k++) {
          sum += exp((double)x[k]);
          best &= k == target || x[k] < x[target];
        }
        loss += log(sum) - (double)x[target];
        right += best;
      }
    }
    ok(context, heed_learner_evaluate(learner, heed_labelled_row_batch, &data, 0, 4, 8, LONGEST, &got));
    assert_int_equal(got.places, places);
    assert_int_equal(got.right_places, right);
    assert_int_equal(got.sequences, ROWS);
    if (!(fabs(got.loss - loss / (double)places) < 1e-5)) fail_msg("loss %.8g, by hand %.8g", got.loss, loss / (double)places);
    heed_tape_free(tape);
    heed_learner_free(learner);
  }
  heed_context_free(context);
}

/* ---- what is saved is what was learned -------------------------------------------------------------------------------------------------- */

static void loaded_gives_the_same_bits(void **state) {
  (void)state;
  static const struct {
    heed_learner_options options;
    const char *family;
  } kinds[] = {{{.relu = true}, "bert"},
               {{.no_bias = true}, "bert"},
               {{.untied = true}, "bert"},
               {{.norm_before = true}, "heed"},
               {{.rotary = true}, "heed"}};
  heed_context *context = test_context(NULL);
  int32_t ids[POSITIONS];
  float logits[POSITIONS * LABELS];
  for (int i = 0; i < POSITIONS; i++) ids[i] = (i * 7 + 3) % VOCABULARY;
  for (int head = HEED_HEAD_LABELS; head <= HEED_HEAD_CLASS; head++)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      const int64_t rows = head == HEED_HEAD_CLASS ? 1 : POSITIONS;
      char path[FOLDER_PATH];
      heed_model *model;
      heed_model_info info = {.size = sizeof info};
      heed_session *session;
      heed_tape *tape;
      heed_learner *learner = small(context, kinds[k].options, (heed_head)head);
      begin_folder(path);
      ok(context, heed_learner_save(learner, NULL, path));
      ok(context, heed_model_load(context, path, &model));
      ok(context, heed_model_describe(model, &info));
      assert_string_equal(info.family, kinds[k].family);
      assert_true(info.head == (heed_head)head && info.labels == LABELS && info.outputs == LABELS);
      for (int i = 0; i < LABELS; i++) assert_string_equal(heed_model_label(model, i), names[i]);
      assert_null(heed_model_label(model, LABELS));
      assert_null(heed_model_label(model, -1));
      ok(context, heed_session_new(context, model, NULL, &session));
      ok(context, heed_session_run(session, ids, POSITIONS, logits, rows, NULL));
      ok(context, heed_session_truncate(session, 0));
      if (head == HEED_HEAD_CLASS) assert_int_equal(heed_session_run(session, ids, POSITIONS, logits, 2, NULL), HEED_E_ARGUMENT);
      ok(context, heed_tape_new(context, &tape));
      const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, POSITIONS});
      heed_tensor *own = heed_learner_logits(learner, tape, heed_tape_input(tape, &view));
      ok(context, heed_tape_status(tape));
      if (memcmp(hd_value(own), logits, (size_t)(rows * LABELS) * sizeof *logits))
        fail_msg("head %d, kind %zu: other bits when loaded", head, k);
      heed_tape_free(tape);
      heed_session_free(session);
      heed_model_free(model);
      heed_learner_free(learner);
      end_folder(path);
    }
  heed_context_free(context);
}

/* ---- configurations ------------------------------------------------------------------------------------------------------------------------ */

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, 1 << 16);
  assert_non_null(file);
  assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  return text;
}

/* Loads what was saved with `from` in its config.json replaced by `to`. */
static heed_status load_edited(heed_context *context, const char *directory, const char *from, const char *to, heed_model **out) {
  char path[128];
  snprintf(path, sizeof path, "%s/config.json", directory);
  char *text = read_text(path), *at = strstr(text, from);
  assert_non_null(at);
  FILE *file = fopen(path, "wb");
  fwrite(text, 1, (size_t)(at - text), file);
  fputs(to, file);
  fputs(at + strlen(from), file);
  fclose(file);
  heed_status status = heed_model_load(context, directory, out);
  file = fopen(path, "wb");
  fputs(text, file);
  fclose(file);
  free(text);
  return status;
}

static void configurations(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *said; /* said NULL: it loads */
  } edits[] = {
      {"\"id2label\": {", "\"id2label\": {\"5\": \"X\",", "classifier"}, // more labels than rows
      {"\"0\": \"ADJ\"", "\"7\": \"ADJ\"", "config.json: id2label.0: "},
      {"\"0\": \"ADJ\"", "\"0\": 3", "config.json: id2label.0: "},
      {"\"0\": \"ADJ\"", "\"0\": \"A\\tB\"", "config.json: id2label.0: must be a text without control characters"},
      {"\"id2label\"", "\"other\"", "classifier"}, // two labels then, which the tensors have not
      {"\"id2label\"", "\"num_labels\": 5, \"other\"", NULL},
      {"\"model_type\"", "\"problem_type\": \"regression\", \"model_type\"",
       "config.json: this setting is not supported (problem_type, got regression"},
      {"BertForSequenceClassification", "BertForMaskedLM", "cls.predictions"},
  };
  heed_context *context = test_context(NULL);
  heed_learner *learner = small(context, (heed_learner_options){0}, HEED_HEAD_CLASS);
  char path[FOLDER_PATH];
  begin_folder(path);
  ok(context, heed_learner_save(learner, NULL, path));
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    heed_model *model;
    heed_status status = load_edited(context, path, edits[i].from, edits[i].to, &model);
    if (edits[i].said) {
      assert_int_not_equal(status, HEED_OK);
      if (!strstr(heed_error(context), edits[i].said)) fail_msg("%s: %s", edits[i].to, heed_error(context));
      continue;
    }
    ok(context, status);
    assert_string_equal(heed_model_label(model, 3), "LABEL_3");
    heed_model_free(model);
  }
  heed_learner_free(learner);
  end_folder(path);
  heed_context_free(context);
}

static void options_are_checked(void **state) {
  (void)state;
  static const char *const missing[2] = {"A", NULL}, *const broken[2] = {"A", "B\n"};
  static const struct {
    heed_learner_options options;
    const char *said;
  } cases[] = {{{.kind = HEED_LEARNER_GPT, .head = HEED_HEAD_LABELS, .labels = 2, .label_names = names}, "only an encoder"},
               {{.kind = HEED_LEARNER_ENCODER, .head = HEED_HEAD_CLASS, .label_names = names}, "labels: got 0"},
               {{.kind = HEED_LEARNER_ENCODER, .head = HEED_HEAD_CLASS, .labels = 2}, "their names are missing"},
               {{.kind = HEED_LEARNER_ENCODER, .head = HEED_HEAD_CLASS, .labels = 2, .label_names = missing}, "label 1"},
               {{.kind = HEED_LEARNER_ENCODER, .head = HEED_HEAD_CLASS, .labels = 2, .label_names = broken}, "label 1"},
               {{.kind = HEED_LEARNER_ENCODER, .head = (heed_head)9}, "no such kind"}};
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    heed_learner_options options = cases[i].options;
    heed_learner *learner;
    options.size = sizeof options;
    options.layers = options.heads = 1;
    options.width = options.context = options.vocabulary = 8;
    assert_int_equal(heed_learner_new(context, &options, &learner), HEED_E_ARGUMENT);
    if (!strstr(heed_error(context), cases[i].said)) fail_msg("%s", heed_error(context));
  }
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_as_if_alone),       cmocka_unit_test(padding_is_behind),
                                     cmocka_unit_test(every_row_once_a_round),     cmocka_unit_test(evaluations_count_what_is_asked),
                                     cmocka_unit_test(loaded_gives_the_same_bits), cmocka_unit_test(configurations),
                                     cmocka_unit_test(options_are_checked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
