/* The transformer that learns: against PyTorch (twenty steps of a small GPT from the same start on the same batches: losses, gradient norms, end weights), against what is loaded from
 * the directory it was saved in, and against itself after a stop. */
#include "../../src/io/tensors.h"
#include "../../src/model/learner.h"
#include "../../src/tensor/tensor.h"
#include "../folder.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 20, BATCH = 4, LENGTH = 16 };

static void read(heed_context *context, hd_tensors *file, const char *name, void *out, int64_t count) {
  const hd_tensor *tensor = hd_tensors_find(file, name);
  if (!tensor || tensor->count != count)
    fail_msg("%s: not there, or %lld numbers where %lld are expected", name, tensor ? (long long)tensor->count : 0, (long long)count);
  ok(context, hd_tensors_read(context, file, tensor, out));
}

/* PyTorch's name of a parameter: "layers.1.qkv.weight" is h.1.c_attn.weight. */
static void name_in_file(const char *when, const char *name, char out[128]) {
  static const char *const pairs[][2] = {{"embedding", "wte"},          {"position", "wpe"}, {"final_norm", "ln_f"},
                                         {"attention_norm", "ln_1"},    {"qkv", "c_attn"},   {"output", "attn_proj"},
                                         {"feed_forward_norm", "ln_2"}, {"up", "c_fc"},      {"down", "mlp_proj"}};
  int layer = -1, skip = 0;
  char part[64], kind[16];
  if (sscanf(name, "layers.%d.%n", &layer, &skip) == 1) name += skip;
  assert_int_equal(sscanf(name, "%63[^.].%15s", part, kind), 2);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    if (strcmp(pairs[i][0], part) != 0) continue;
    if (layer >= 0) snprintf(out, 128, "%s.h.%d.%s.%s", when, layer, pairs[i][1], kind);
    else snprintf(out, 128, "%s.%s.%s", when, pairs[i][1], kind);
    return;
  }
  fail_msg("%s: no such part", part);
}

static void load_start(heed_context *context, hd_tensors *file, heed_parameters *set) {
  for (int64_t i = 0; i < heed_parameters_count(set); i++) {
    heed_tensor *t = heed_parameters_at(set, i);
    char name[128];
    name_in_file("start", t->name, name);
    read(context, file, name, hd_value(t), hd_count(t));
  }
}

/* The key third of each c_attn bias has a gradient that is 0 in exact arithmetic, which AdamW turns into noise. */
static void compare_end(heed_context *context, hd_tensors *file, heed_parameters *set) {
  for (int64_t i = 0; i < heed_parameters_count(set); i++) {
    heed_tensor *t = heed_parameters_at(set, i);
    char name[128];
    int64_t n = hd_count(t);
    float *want = malloc((size_t)n * sizeof *want);
    name_in_file("end", t->name, name);
    read(context, file, name, want, n);
    for (int64_t j = 0; j < n; j++) {
      bool noise = strstr(name, "c_attn.bias") && j >= n / 3 && j < 2 * n / 3;
      if (!noise && !(fabs(hd_value(t)[j] - want[j]) <= 2e-5))
        fail_msg("%s[%lld] is %.8g, PyTorch has %.8g", name, (long long)j, hd_value(t)[j], want[j]);
    }
    free(want);
  }
}

static void twenty_steps(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *file;
  heed_learner *learner;
  heed_optimiser *optimiser;
  heed_tape *tape;
  static int32_t tokens[STEPS][BATCH][LENGTH + 1];
  float loss[STEPS], norm[STEPS];
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/expected/layers/gpt-train-20.safetensors", &file));
  read(context, file, "tokens", tokens, STEPS * BATCH * (LENGTH + 1));
  read(context, file, "loss", loss, STEPS);
  read(context, file, "grad_norm", norm, STEPS);
  const heed_learner_options options = {.size = sizeof options, .layers = 2, .heads = 4, .width = 32, .context = LENGTH, .vocabulary = 65};
  ok(context, heed_learner_new(context, &options, &learner));
  heed_parameters *set = heed_learner_parameters(learner);
  load_start(context, file, set);
  const heed_optimiser_options adamw = {
      .size = sizeof adamw, .has_betas = true, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1};
  ok(context, heed_optimiser_new(context, set, &adamw, &optimiser));
  ok(context, heed_tape_new(context, &tape));
  for (int i = 0; i < STEPS; i++) {
    double rate = 3e-3 * fmin(1, (i + 1) / 5.0) * (0.5 + 0.5 * cos(3.14159265358979323846 * i / 20));
    const heed_view ids = {tokens[i], HEED_I32, 2, {BATCH, LENGTH}, {LENGTH + 1, 1}},
                    targets = {&tokens[i][0][1], HEED_I32, 2, {BATCH, LENGTH}, {LENGTH + 1, 1}};
    heed_optimiser_report report = {0};
    heed_tape_reset(tape);
    heed_parameters_forget_gradients(set);
    heed_tensor *of_step = heed_learner_loss(learner, tape, heed_tape_input(tape, &ids), heed_tape_input(tape, &targets));
    ok(context, heed_tape_status(tape));
    double got = *hd_value(of_step);
    ok(context, heed_tape_backward(tape, of_step, NULL));
    ok(context, heed_optimiser_step(optimiser, rate, 1.0, &report));
    if (!(fabs(got - loss[i]) <= 2e-5)) fail_msg("step %d: loss %.8g, PyTorch has %.8g", i, got, loss[i]);
    if (!(fabs(report.gradient_norm - norm[i]) <= 1e-4))
      fail_msg("step %d: gradient norm %.8g, PyTorch has %.8g", i, report.gradient_norm, norm[i]);
  }
  compare_end(context, file, set);
  heed_tape_free(tape);
  heed_optimiser_free(optimiser);
  heed_learner_free(learner);
  hd_tensors_close(file);
  heed_context_free(context);
}

/* ---- what is saved is what was learned -------------------------------------------------------------------------------------------------- */

static const heed_learner_options kinds[] = {
    {.kind = HEED_LEARNER_GPT},
    {.kind = HEED_LEARNER_GPT, .no_bias = true, .gelu_erf = true},
    {.kind = HEED_LEARNER_GPT, .untied = true},
    {.kind = HEED_LEARNER_GPT, .rotary = true},
    {.kind = HEED_LEARNER_GPT, .kv_heads = 2},
    {.kind = HEED_LEARNER_LLAMA, .kv_heads = 2},
    {.kind = HEED_LEARNER_LLAMA, .untied = true},
    {.kind = HEED_LEARNER_ENCODER},
    {.kind = HEED_LEARNER_ENCODER, .no_bias = true, .relu = true},
    {.kind = HEED_LEARNER_ENCODER, .untied = true},
    {.kind = HEED_LEARNER_ENCODER, .norm_before = true},
    {.kind = HEED_LEARNER_ENCODER, .norm_before = true, .untied = true, .no_bias = true},
    {.kind = HEED_LEARNER_ENCODER, .rotary = true},
    {.kind = HEED_LEARNER_ENCODER, .kv_heads = 2},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_LEARNED},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_SINUSOIDAL},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_ROTARY},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_ALIBI},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_XL},
    {.kind = HEED_LEARNER_GPT, .positions = HEED_POSITIONS_T5},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_LEARNED},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_SINUSOIDAL},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_ROTARY},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_ALIBI, .kv_heads = 2},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_XL, .kv_heads = 2},
    {.kind = HEED_LEARNER_LLAMA, .positions = HEED_POSITIONS_T5, .kv_heads = 2},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_LEARNED},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_SINUSOIDAL},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_ROTARY},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_ALIBI},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_XL, .kv_heads = 2},
    {.kind = HEED_LEARNER_ENCODER, .positions = HEED_POSITIONS_T5},
};
static const char *const saved_as[] = {"gpt2",  "gpt2", "gpt2", "heed", "heed", "llama", "llama", "bert", "bert", "bert", "heed",
                                       "heed",  "heed", "heed", "gpt2", "heed", "heed",  "heed",  "heed", "heed", "heed", "heed",
                                       "llama", "heed", "heed", "heed", "bert", "heed",  "heed",  "heed", "heed", "heed"};
enum { KINDS = sizeof kinds / sizeof *kinds, VOCABULARY = 37, POSITIONS = 24 };

static heed_learner *small(heed_context *context, heed_learner_options options, uint64_t seed) {
  heed_learner *learner;
  options.size = sizeof options;
  options.layers = 2;
  options.heads = 4;
  options.width = 32;
  options.context = POSITIONS;
  options.vocabulary = VOCABULARY;
  options.seed = seed;
  ok(context, heed_learner_new(context, &options, &learner));
  for (int64_t i = 0; i < heed_parameters_count(learner->parameters); i++) // biases too, and weights large enough to matter
    ok(context,
       heed_tensor_initialise(context, heed_parameters_at(learner->parameters, i), HEED_INITIAL_NORMAL, 0.3, seed, 1000 + (uint64_t)i));
  return learner;
}

/* The same bits: the tape and a session put the same kernels in the same order. */
static void loaded_gives_the_same_bits(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  int32_t ids[POSITIONS];
  float logits[POSITIONS * VOCABULARY];
  for (int i = 0; i < POSITIONS; i++) ids[i] = (i * 7 + 3) % VOCABULARY;
  for (int k = 0; k < KINDS; k++) {
    char path[FOLDER_PATH];
    heed_model *model;
    heed_model_info info = {.size = sizeof info};
    heed_session *session;
    heed_tape *tape;
    heed_learner *learner = small(context, kinds[k], 5);
    begin_folder(path);
    ok(context, heed_learner_save(learner, NULL, path));
    ok(context, heed_model_load(context, path, &model));
    ok(context, heed_model_describe(model, &info));
    assert_string_equal(info.family, saved_as[k]);
    ok(context, heed_session_new(context, model, NULL, &session));
    ok(context, heed_session_run(session, ids, POSITIONS, logits, POSITIONS, NULL));
    ok(context, heed_tape_new(context, &tape));
    const heed_view view = heed_view_of(ids, HEED_I32, 2, (int64_t[]){1, POSITIONS});
    heed_tensor *own = heed_learner_logits(learner, tape, heed_tape_input(tape, &view));
    ok(context, heed_tape_status(tape));
    for (int i = 0; i < POSITIONS * VOCABULARY; i++)
      if (memcmp(&hd_value(own)[i], &logits[i], sizeof *logits))
        fail_msg("kind %d: logit %d is %.9g on the tape, %.9g when loaded", k, i, hd_value(own)[i], logits[i]);
    // A decoder's text may be cut anywhere: later segments meet what the cache has of those before.
    enum { CUT = 7 };
    ok(context, heed_session_truncate(session, 0));
    if (!info.bidirectional) {
      ok(context, heed_session_run(session, ids, CUT, NULL, 0, NULL));
      for (int i = CUT; i < POSITIONS; i += 3)
        ok(context, heed_session_run(session, ids + i, POSITIONS - i < 3 ? POSITIONS - i : 3, logits, 1, NULL));
      assert_memory_equal(logits, hd_value(own) + (POSITIONS - 1) * VOCABULARY, VOCABULARY * sizeof *logits);
    }
    heed_tape_free(tape);
    heed_session_free(session);
    heed_model_free(model);
    heed_learner_free(learner);
    end_folder(path);
  }
  heed_context_free(context);
}

/* ---- going on ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct {
  heed_learner *learner;
  heed_optimiser *optimiser;
  heed_train_state state;
} trainee;

static trainee start(heed_context *context, uint64_t seed) {
  trainee t = {.learner = small(context, (heed_learner_options){.dropout = 0.1}, seed), .state.size = sizeof t.state};
  ok(context, heed_optimiser_new(context, t.learner->parameters, NULL, &t.optimiser));
  return t;
}

static void stop(trainee *t) {
  heed_optimiser_free(t->optimiser);
  heed_learner_free(t->learner);
}

static void run_to(heed_context *context, trainee *t, int64_t steps) {
  static heed_task task = {.size = sizeof task, .kind = HEED_TASK_SORT, .most = 8};
  ok(context, heed_task_finish(context, &task));
  const heed_train_options options = {.size = sizeof options,
                                      .steps = steps,
                                      .batch = 4,
                                      .length = heed_task_length(&task),
                                      .accumulate = 2,
                                      .source = heed_task_batch,
                                      .source_user = &task,
                                      .seed = 3,
                                      .schedule = {.size = sizeof(heed_schedule), .peak = 1e-3},
                                      .clip = 1};
  ok(context, heed_train(t->learner, t->optimiser, &options, &t->state));
  assert_int_equal(t->state.step, steps);
}

static void same_parameters(const trainee *a, const trainee *b, const char *when) {
  for (int64_t i = 0; i < heed_parameters_count(a->learner->parameters); i++) {
    const heed_tensor *x = heed_parameters_at(a->learner->parameters, i), *y = heed_parameters_at(b->learner->parameters, i);
    if (memcmp(hd_value(x), hd_value(y), (size_t)hd_count(x) * sizeof(float))) fail_msg("%s: other bits in %s", when, x->name);
  }
}

/* A run that was saved after four steps and goes on in a learner of other weights ends in the same bits, on any number of threads. */
static void goes_on_as_if_nothing_had_happened(void **state) {
  (void)state;
  heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1}),
               *other = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 3});
  char path[FOLDER_PATH];
  bool found = false;
  begin_folder(path);
  trainee whole = start(context, 1), first = start(context, 1), second = start(other, 2);
  assert_false(heed_checkpoint_exists(path));
  ok(context, heed_checkpoint_load(context, path, first.learner, first.optimiser, &first.state, "a 1\n", NULL, NULL, &found));
  assert_false(found);
  run_to(context, &whole, 9);
  run_to(context, &first, 4);
  ok(context, heed_checkpoint_save(context, path, first.learner, first.optimiser, &first.state, "a 1\nb 2\n"));
  assert_true(heed_checkpoint_exists(path));
  assert_int_equal(heed_checkpoint_load(other, path, second.learner, second.optimiser, &second.state, "a 1\nb 3\n", NULL, NULL, &found),
                   HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(other), "(b: 2 there, 3 asked for)"));
  assert_false(found);
  ok(other, heed_checkpoint_load(other, path, second.learner, second.optimiser, &second.state, "a 1\nb 2\n", NULL, NULL, &found));
  assert_true(found);
  same_parameters(&first, &second, "after loading");
  run_to(other, &second, 9);
  same_parameters(&whole, &second, "after going on");
  stop(&whole);
  stop(&first);
  stop(&second);
  end_folder(path);
  heed_context_free(other);
  heed_context_free(context);
}

/* ---- numbers that are none ------------------------------------------------------------------------------------------------------------------ */

static void names_what_is_not_finite(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  trainee t = start(context, 1);
  static heed_task task = {.size = sizeof task, .kind = HEED_TASK_COPY, .most = 8};
  ok(context, heed_task_finish(context, &task));
  heed_train_options options = {.size = sizeof options,
                                .steps = 3,
                                .batch = 2,
                                .length = heed_task_length(&task),
                                .source = heed_task_batch,
                                .source_user = &task,
                                .schedule = {.size = sizeof(heed_schedule), .peak = 1e-3}};
  hd_value(hd_transformer(t.learner)->stack.layers[1].feed_forward.w_down)[5] = NAN;
  assert_int_equal(heed_train(t.learner, t.optimiser, &options, &t.state), HEED_E_ARGUMENT);
  if (!strstr(heed_error(context), "step 1: parameter layers.1.down.weight is not finite")) fail_msg("%s", heed_error(context));
  options.skip_nonfinite = true;
  ok(context, heed_train(t.learner, t.optimiser, &options, &t.state));
  assert_int_equal(t.state.step, 3);
  assert_int_equal(heed_optimiser_steps(t.optimiser), 0);
  stop(&t);
  heed_context_free(context);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------------------------------------ */

/* The characters of a row, question and answer. */
static void text_of(const heed_task *task, const int32_t *ids, const int32_t *targets, int64_t length, char question[64], char answer[64]) {
  const char *alphabet = heed_task_alphabet(task);
  int64_t q = 0, a = 0;
  while (targets[q] < 0) q++;
  for (int64_t i = 0; i <= q; i++) question[i] = alphabet[ids[i]];
  question[q + 1] = 0;
  for (int64_t i = q; i < length && targets[i] >= 0; i++) {
    answer[a++] = alphabet[targets[i]];
    if (i > q) assert_int_equal(ids[i], targets[i - 1]);
  }
  answer[a] = 0;
}

static void tasks_are_what_they_say(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int kind = 0; kind <= HEED_TASK_DUPLICATE; kind++)
    for (int reversed = 0; reversed < 2; reversed++) {
      enum { ROWS = 64 };
      const bool twice = kind == HEED_TASK_DUPLICATE;
      heed_task task = {.size = sizeof task, .kind = (heed_task_kind)kind, .reverse_digits = reversed, .most = twice ? 30 : 0};
      ok(context, heed_task_finish(context, &task));
      int64_t length = heed_task_length(&task);
      int32_t *ids = malloc((size_t)(4 * ROWS * length) * sizeof *ids), *targets = ids + ROWS * length, *again = targets + ROWS * length;
      heed_task_batch(&task, 11, 5, ROWS, length, ids, targets);
      heed_task_batch(&task, 11, 5, ROWS, length, again, again + ROWS * length);
      assert_memory_equal(ids, again, (size_t)(2 * ROWS * length) * sizeof *ids);
      for (int64_t r = 0; r < ROWS; r++) {
        char question[64], answer[64], want[64];
        text_of(&task, ids + r * length, targets + r * length, length, question, answer);
        size_t n = strlen(question) - 1;
        if (kind == HEED_TASK_ADDITION) {
          long a, b;
          assert_int_equal(sscanf(question, "%ld+%ld=", &a, &b), 2);
          snprintf(want, sizeof want, "%ld", a + b);
          n = strlen(want);
        } else {
          memcpy(want, question + twice, n - twice);
          want[n - twice] = 0;
        }
        if (twice) { // "0word0"
          assert_int_equal(n, 31);
          assert_true(question[0] == '0' && question[n] == '0' && !strchr(want, '0'));
        }
        if (kind == HEED_TASK_REVERSE || (kind == HEED_TASK_ADDITION && reversed))
          for (size_t i = 0; i < n / 2; i++) {
            char c = want[i];
            want[i] = want[n - 1 - i];
            want[n - 1 - i] = c;
          }
        if (kind == HEED_TASK_SORT) // by insertion
          for (size_t i = 1; i < n; i++)
            for (size_t j = i; j && want[j] < want[j - 1]; j--) {
              char c = want[j];
              want[j] = want[j - 1];
              want[j - 1] = c;
            }
        if (!twice) strcat(want, ".");
        if (strcmp(want, answer) != 0) fail_msg("%s: %s is answered by %s, not %s", heed_task_name(task.kind), question, answer, want);
      }
      free(ids);
    }
  heed_context_free(context);
}

/* What is saved with a model that learned a task must read the task's texts as the ids it learned. */
static void tokenizers_agree_with_tasks(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (int kind = 0; kind <= HEED_TASK_DUPLICATE; kind++) {
    const heed_task task = {.size = sizeof task, .kind = (heed_task_kind)kind};
    const char *alphabet = heed_task_alphabet(&task);
    heed_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    int64_t count = 0;
    ok(context, heed_tokenizer_train(context, "char", (heed_text){alphabet, strlen(alphabet)}, NULL, &tokenizer));
    ok(context, heed_encode(context, tokenizer, (heed_text){alphabet, strlen(alphabet)}, NULL, &ids, &count));
    assert_int_equal(count, strlen(alphabet));
    for (int64_t i = 0; i < count; i++) assert_int_equal(ids[i], i);
    heed_ids_free(context, ids, count);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* No question is on both sides. */
static void held_out_is_held_out(void **state) {
  (void)state;
  enum { ROWS = 2000 };
  heed_context *context = test_context(NULL);
  heed_task task = {.size = sizeof task, .kind = HEED_TASK_ADDITION, .most = 2}, held = task;
  held.held_out = true;
  ok(context, heed_task_finish(context, &task));
  ok(context, heed_task_finish(context, &held));
  int64_t length = heed_task_length(&task);
  static bool shown[10000];
  int32_t *ids = malloc((size_t)(2 * ROWS * length) * sizeof *ids);
  int seen[2] = {0};
  for (int side = 0; side < 2; side++) {
    heed_task_batch(side ? &held : &task, 1, 0, ROWS, length, ids, ids + ROWS * length);
    for (int64_t r = 0; r < ROWS; r++) {
      const int32_t *q = ids + r * length;
      int number = 0;
      for (int i = 0; i < 5; i++)
        if (i != 2) number = 10 * number + heed_task_alphabet(&task)[q[i]] - '0';
      if (side && shown[number]) fail_msg("%02d+%02d is on both sides", number / 100, number % 100);
      if (!side) shown[number] = true;
      seen[side]++;
    }
  }
  assert_true(seen[0] == ROWS && seen[1] == ROWS);
  free(ids);
  heed_context_free(context);
}

/* ---- masked tokens ------------------------------------------------------------------------------------------------------------------------ */

/* Shares of what is asked, shown as the mask, as another token and as it is; the rest stays, and what is asked for is what stood there. */
static void masks_as_bert_does(void **state) {
  (void)state;
  enum { COUNT = 5000, LENGTH = 50, ROWS = 400, MASK = 7, TOKENS = 30 };
  static int32_t text[COUNT], ids[ROWS * LENGTH], targets[ROWS * LENGTH], again[2][ROWS * LENGTH];
  for (int i = 0; i < COUNT; i++) text[i] = MASK + 1 + i % (TOKENS - MASK - 1); // never the mask, and the place can be told
  heed_masked_data data = {.text = {text, COUNT}, .mask = MASK, .vocabulary = TOKENS};
  double asked = 0, hidden = 0, other = 0, below = 0;
  heed_masked_batch(&data, 3, 2, ROWS, LENGTH, ids, targets);
  heed_masked_batch(&data, 3, 2, ROWS, LENGTH, again[0], again[1]);
  assert_memory_equal(ids, again[0], sizeof ids);
  assert_memory_equal(targets, again[1], sizeof targets);
  for (int row = 0; row < ROWS; row++) {
    int here = 0;
    for (int i = row * LENGTH; i < (row + 1) * LENGTH; i++) {
      assert_true(ids[i] >= 0 && ids[i] < TOKENS);
      if (targets[i] < 0) {
        assert_int_not_equal(ids[i], MASK);
        continue;
      }
      assert_in_range(targets[i], MASK + 1, TOKENS - 1);
      here++;
      hidden += ids[i] == MASK;
      other += ids[i] != MASK && ids[i] != targets[i];
      below += ids[i] < MASK;
    }
    assert_true(here > 0);
    asked += here;
  }
  assert_true(fabs(asked / (ROWS * LENGTH) - 0.15) < 0.01);
  assert_true(fabs(hidden / asked - 0.8) < 0.03);
  assert_true(fabs(other / asked - 0.1 * (TOKENS - 2) / (TOKENS - 1)) < 0.02);
  assert_true(below > 0); // others are drawn from all tokens
  // Windows: the text in order, the same in batches of one, nothing behind the end.
  data.share = 0.5;
  heed_masked_window_batch(&data, 3, 0, ROWS, LENGTH, ids, targets);
  for (int row = 0; row < ROWS; row++) {
    heed_masked_window_batch(&data, 3, row, 1, LENGTH, again[0], again[1]);
    assert_memory_equal(ids + row * LENGTH, again[0], LENGTH * sizeof *ids);
    assert_memory_equal(targets + row * LENGTH, again[1], LENGTH * sizeof *ids);
    for (int i = row * LENGTH; i < (row + 1) * LENGTH; i++) {
      if (i >= COUNT) assert_int_equal(targets[i], -1);
      else assert_int_equal(targets[i] < 0 ? ids[i] : targets[i], text[i]);
    }
  }
}

static double loss_of(heed_context *context, heed_learner *learner, int32_t *ids, int32_t *targets, float *gradient) {
  heed_tape *tape;
  const heed_view in = heed_view_of(ids, HEED_I32, 2, (int64_t[]){2, POSITIONS}), wanted = heed_view_of(targets, HEED_I32, 2, in.dim);
  ok(context, heed_tape_new(context, &tape));
  heed_parameters_forget_gradients(learner->parameters);
  heed_tensor *loss = heed_learner_loss(learner, tape, heed_tape_input(tape, &in), heed_tape_input(tape, &wanted));
  ok(context, heed_tape_status(tape));
  ok(context, heed_tape_backward(tape, loss, NULL));
  const double value = *hd_value(loss);
  const heed_view g = heed_tensor_gradient(hd_transformer(learner)->stack.embedding);
  memcpy(gradient, g.data, VOCABULARY * 32 * sizeof *gradient);
  heed_tape_free(tape);
  return value;
}

/* Where few places are asked for, the head sees those alone: the mean over them, and gradients, as from logits of all places. */
static void loss_of_few_places(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_learner *learner = small(context, (heed_learner_options){.kind = HEED_LEARNER_ENCODER}, 3);
  int32_t ids[2 * POSITIONS], targets[2 * POSITIONS];
  static float few[VOCABULARY * 32], one[VOCABULARY * 32], sum[VOCABULARY * 32];
  for (int i = 0; i < 2 * POSITIONS; i++) ids[i] = (i * 5 + 2) % VOCABULARY, targets[i] = -1;
  const int places[] = {4, 17, 40};
  double mean = 0;
  memset(sum, 0, sizeof sum);
  for (int i = 0; i < 3; i++) { // each place by itself
    targets[places[i]] = 11 + i;
    mean += loss_of(context, learner, ids, targets, one) / 3;
    for (int j = 0; j < VOCABULARY * 32; j++) sum[j] += one[j] / 3;
    targets[places[i]] = -1;
  }
  for (int i = 0; i < 3; i++) targets[places[i]] = 11 + i;
  const double together = loss_of(context, learner, ids, targets, few);
  if (!(fabs(together - mean) < 1e-5)) fail_msg("%.9g together, %.9g one by one", together, mean);
  for (int j = 0; j < VOCABULARY * 32; j++)
    if (!(fabsf(few[j] - sum[j]) < 1e-5f * fmaxf(1, fabsf(sum[j])))) fail_msg("gradient %d: %.9g, %.9g", j, few[j], sum[j]);
  heed_tape *tape; // from all logits
  const heed_view in = heed_view_of(ids, HEED_I32, 2, (int64_t[]){2, POSITIONS}), wanted = heed_view_of(targets, HEED_I32, 2, in.dim);
  ok(context, heed_tape_new(context, &tape));
  heed_tensor *all =
      heed_tape_cross_entropy(tape, heed_learner_logits(learner, tape, heed_tape_input(tape, &in)), heed_tape_input(tape, &wanted), NULL);
  ok(context, heed_tape_status(tape));
  assert_true(fabs(*hd_value(all) - together) < 1e-6);
  heed_tape_free(tape);
  heed_learner_free(learner);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(twenty_steps),
      cmocka_unit_test(loaded_gives_the_same_bits),
      cmocka_unit_test(goes_on_as_if_nothing_had_happened),
      cmocka_unit_test(names_what_is_not_finite),
      cmocka_unit_test(tasks_are_what_they_say),
      cmocka_unit_test(tokenizers_agree_with_tasks),
      cmocka_unit_test(held_out_is_held_out),
      cmocka_unit_test(masks_as_bert_does),
      cmocka_unit_test(loss_of_few_places),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
