/* Models whose answers are known: text, logits and attention; what a session holds; watching and editing. */
#include "../model_test.h"

#include <pthread.h>

static heed_context *context;

/* ---- stories260k ------------------------------------------------------------------------------------------------------------ */

static void greedy(heed_model *model, int64_t count, heard *h) {
  heed_session *session = test_session(context, model, 0);
  const int32_t begin = 1;
  heed_generate_options options = {.size = sizeof options, .count = count, .emit = hear, .user = h};
  heed_generate_report report = {.size = sizeof report};
  memset(h, 0, sizeof *h);
  ok(context, heed_generate(session, &begin, 1, &options, &report));
  assert_int_equal(report.prompt_tokens, 1);
  assert_int_equal(report.new_tokens, h->count);
  heed_session_free(session);
}

static void expect_story(const char *path) {
  json_t *expected = test_json(TEST_MODELS "stories260k/expected.json");
  heed_model *model = test_model(context, path);
  static heard h;
  greedy(model, 200, &h);
  assert_string_equal(h.text, json_string_value(json_object_get(expected, "greedy_200_tokens")));
  heed_model_free(model);
  json_decref(expected);
}

static void test_stories_gguf(void **state) {
  (void)state;
  expect_story(STORIES);
}

static void test_stories_hugging_face(void **state) {
  (void)state;
  expect_story(STORIES_HF);
  expect_story(STORIES_HF "/config.json");
}

/* Rounded weights change the text in the end; not its beginning. */
static void test_stories_rounded(void **state) {
  (void)state;
  static heard full, rounded;
  heed_model *model = test_model(context, STORIES);
  greedy(model, 40, &full);
  int64_t bytes = test_info(model).weight_bytes;
  heed_model_free(model);
  const char *const files[] = {TEST_MODELS "stories260k/stories260k-f16.gguf", TEST_MODELS "stories260k/stories260k-q8_0.gguf"};
  for (int i = 0; i < 2; i++) {
    model = test_model(context, files[i]);
    greedy(model, 40, &rounded);
    assert_memory_equal(rounded.text, full.text, 60);
    assert_true(test_info(model).weight_bytes < bytes * 6 / 10); // the weights stay as small as in the file
    heed_model_free(model);
  }
}

static void test_describe(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_model_info info = test_info(model);
  assert_string_equal(info.name, "stories260k");
  assert_string_equal(info.family, "llama");
  assert_string_equal(info.path, STORIES);
  assert_int_equal(info.layers, 5);
  assert_int_equal(info.heads, 8);
  assert_int_equal(info.kv_heads, 4);
  assert_int_equal(info.head_dim, 8);
  assert_int_equal(info.width, 64);
  assert_int_equal(info.feed_forward, 172);
  assert_int_equal(info.vocabulary, 512);
  assert_int_equal(info.context, 512);
  assert_int_equal(info.parameters, 512 * 64 + 64 + 5 * (2 * 64 + 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172));
  assert_true(info.flops_per_token == 2.0 * 5 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172));
  assert_non_null(heed_model_tokenizer(model));
  // A caller that knows only the first fields gets those and no more.
  heed_model_info part = {.size = offsetof(heed_model_info, layers), .layers = -7};
  assert_int_equal(heed_model_describe(model, &part), HEED_OK);
  assert_string_equal(part.family, "llama");
  assert_int_equal(part.layers, -7);
  heed_model_free(model);

  model = test_model(context, STORIES_HF "/");
  assert_string_equal(test_info(model).name, "stories260k-hf");
  heed_model_free(model);
}

/* ---- families: logits and attention of every layer -------------------------------------------------------------------------- */

/* Collects the weights of every layer of one run into one array, layer after layer. */
typedef struct collection {
  float *weights;
  int64_t layers;
} collection;

static heed_status collect(void *user, const heed_layer_record *record) {
  collection *c = user;
  assert_int_equal(record->layer, c->layers);
  int64_t floats = record->n_heads * record->queries * record->keys;
  memcpy(c->weights + c->layers++ * floats, record->weights, (size_t)floats * sizeof(float));
  return HEED_OK;
}

/* Tokens of a row that stand for something: those of an encoder's batch are filled up to the same length. */
static int64_t real_tokens(const char *expected, bool padded, int64_t row, int64_t n) {
  if (!padded) return n;
  heed_view mask = test_array(context, expected, "attention_mask");
  int64_t real = 0;
  while (real < n && ((const uint8_t *)mask.data)[row * n + real]) real++;
  heed_array_free(context, &mask);
  return real;
}

/* got [heads, real, real] against the same corner of want [heads, n, n], which is 0 elsewhere. */
static double worst_weight(const float *got, const float *want, int64_t heads, int64_t real, int64_t n) {
  double worst = 0;
  for (int64_t row = 0; row < heads * real; row++) {
    const float *of = want + (row / real * n + row % real) * n;
    worst = fmax(worst, largest_difference(got + row * real, of, real));
    for (int64_t j = real; j < n; j++) assert_true(of[j] == 0);
  }
  return worst;
}

static void expect_family(const char *model_path, const char *expected, double logit_tolerance, double weight_tolerance,
                          bool probabilities) {
  heed_model *model = test_model(context, model_path);
  heed_model_info info = test_info(model);
  heed_view ids = test_array(context, expected, "input_ids");
  heed_view logits = test_array(context, expected, probabilities ? "probabilities" : "logits");
  int64_t batch = ids.dim[0], length = ids.dim[1], vocabulary = info.vocabulary, floats = info.heads * length * length;
  float *got = malloc((size_t)(length * vocabulary) * sizeof *got), *weights = malloc((size_t)(info.layers * floats) * sizeof *weights);
  for (int64_t b = 0; b < batch; b++) {
    int64_t n = real_tokens(expected, info.bidirectional, b, length);
    heed_session *session = test_session(context, model, 5);
    collection c = {weights, 0};
    heed_watch watch = {.size = sizeof watch, .record = collect, .user = &c};
    ok(context, heed_session_run(session, (int32_t *)ids.data + b * length, n, got, n, &watch));
    assert_int_equal(c.layers, info.layers);
    for (int64_t r = 0; probabilities && r < n; r++) {
      double sum = 0;
      for (int64_t v = 0; v < vocabulary; v++) sum += exp((double)got[r * vocabulary + v]);
      for (int64_t v = 0; v < vocabulary; v++) got[r * vocabulary + v] = (float)(exp((double)got[r * vocabulary + v]) / sum);
    }
    double off = largest_difference(got, (float *)logits.data + b * length * vocabulary, n * vocabulary);
    if (!(off <= logit_tolerance)) fail_msg("%s row %d: logits off by %g", model_path, (int)b, off);
    for (int64_t layer = 0; layer < info.layers; layer++) {
      char name[32];
      snprintf(name, sizeof name, "attention.%d", (int)layer);
      heed_view attention = test_array(context, expected, name);
      off = worst_weight(weights + layer * info.heads * n * n, (float *)attention.data + b * floats, info.heads, n, length);
      if (!(off <= weight_tolerance)) fail_msg("%s row %d layer %d: attention off by %g", model_path, (int)b, (int)layer, off);
      heed_array_free(context, &attention);
    }
    heed_session_free(session);
  }
  free(weights);
  free(got);
  heed_array_free(context, &logits);
  heed_array_free(context, &ids);
  heed_model_free(model);
}

static void expect_greedy(const char *model_path, const char *expected) {
  heed_model *model = test_model(context, model_path);
  heed_session *session = test_session(context, model, 0);
  heed_view ids = test_array(context, expected, "input_ids"), all = test_array(context, expected, "greedy");
  static heard h;
  memset(&h, 0, sizeof h);
  int64_t prompt = ids.dim[1], n = all.dim[0] - prompt;
  heed_generate_options options = {.size = sizeof options, .count = n, .emit = hear, .user = &h};
  ok(context, heed_generate(session, ids.data, prompt, &options, NULL));
  assert_int_equal(h.count, n);
  assert_memory_equal(h.ids, (int32_t *)all.data + prompt, (size_t)n * sizeof *h.ids);
  heed_array_free(context, &ids);
  heed_array_free(context, &all);
  heed_session_free(session);
  heed_model_free(model);
}

static void test_families(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool encoder;
  } families[] = {{"gpt2", false},      {"llama3", false}, {"mistral", false}, {"qwen2", false},    {"gemma2", false},
                  {"gemma3", false},    {"phi3", false},   {"olmo2", false},   {"qwen3", false},    {"gpt_neox", false},
                  {"modernbert", true}, {"bert", true},    {"roberta", true},  {"distilbert", true}};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    char model[256], expected[300];
    snprintf(model, sizeof model, TEST_EXPECTED "families/%s", families[i].name);
    snprintf(expected, sizeof expected, "%s/expected.safetensors", model);
    expect_family(model, expected, 5e-5, 1e-5, false);
    if (!families[i].encoder) expect_greedy(model, expected);
  }
  static const char *const older[] = {"llama3", "gemma2", "gemma3", "modernbert",
                                      "gpt_neox"}; // the same models, in the form of transformers 4
  for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
    char model[256], expected[256];
    snprintf(model, sizeof model, TEST_EXPECTED "families/%s/config-v4.json", older[i]);
    snprintf(expected, sizeof expected, TEST_EXPECTED "families/%s/expected.safetensors", older[i]);
    expect_family(model, expected, 5e-5, 1e-5, false);
  }
}

/* ---- encoders --------------------------------------------------------------------------------------------------------------- */

static heed_status not_causal(void *user, const heed_layer_record *record) {
  assert_false(record->causal);
  *(bool *)user |= record->weights[record->keys - 1] != 0; // the first token looks at the last
  return HEED_OK;
}

/* A sequence at once, whatever the chunk; nothing after it, nothing kept of it, nothing generated. */
static void test_encoder(void **state) {
  (void)state;
  enum { N = 9, VOCABULARY = 96 };
  const int32_t ids[N] = {5, 17, 3, 90, 0, 44, 17, 8, 60};
  static float once[N * VOCABULARY], last[2 * VOCABULARY];
  heed_model *model = test_model(context, BERT);
  assert_true(test_info(model).bidirectional);
  assert_string_equal(test_info(model).family, "bert");
  heed_session *session = test_session(context, model, 0), *cut = test_session(context, model, 4);
  bool looks_ahead = false;
  heed_watch watch = {.size = sizeof watch, .record = not_causal, .user = &looks_ahead};
  ok(context, heed_session_run(session, ids, N, once, N, &watch));
  assert_true(looks_ahead);
  ok(context, heed_session_run(cut, ids, N, last, 2, NULL));
  assert_memory_equal(last, once + (N - 2) * VOCABULARY, sizeof last);
  assert_int_equal(heed_session_run(session, ids, 1, last, 1, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "an encoder reads a sequence at once"));
  assert_int_equal(heed_session_reuse(session, ids, N), 0);
  ok(context, heed_session_run(session, ids, N, once, N, NULL));
  assert_memory_equal(last, once + (N - 2) * VOCABULARY, sizeof last);
  const heed_generate_options options = {.size = sizeof options, .count = 1};
  assert_int_equal(heed_generate(session, ids, N, &options, NULL), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "an encoder does not generate"));
  heed_session_free(cut);
  heed_session_free(session);
  heed_model_free(model);
}

/* ---- gpt-nano-sort ---------------------------------------------------------------------------------------------------------- */

static void test_sort_expected(void **state) {
  (void)state;
  expect_family(SORT, SORT "/expected.safetensors", 1e-5, 1e-5, true);
}

static void test_sorts(void **state) {
  (void)state;
  json_t *expected = test_json(SORT "/expected.json");
  json_t *inputs = json_object_get(expected, "inputs"), *sorted = json_object_get(expected, "sorted");
  assert_int_equal(json_array_size(inputs), 16);
  heed_model *model = test_model(context, SORT);
  assert_null(heed_model_tokenizer(model));
  assert_string_equal(test_info(model).family, "gpt2");
  for (size_t i = 0; i < 16; i++) {
    int64_t n, m;
    int32_t *in = test_ids(json_array_get(inputs, i), &n), *out = test_ids(json_array_get(sorted, i), &m);
    heed_session *session = test_session(context, model, 0);
    static heard h;
    memset(&h, 0, sizeof h);
    heed_generate_options options = {.size = sizeof options, .count = m, .emit = hear, .user = &h};
    ok(context, heed_generate(session, in, n, &options, NULL));
    assert_int_equal(h.count, m);
    assert_memory_equal(h.ids, out, (size_t)m * sizeof *out);
    assert_int_equal(h.length, 0);                      // no tokenizer, no text
    assert_int_equal(heed_session_length(session), 11); // the last of the 12 ids is not run, so all fit
    assert_int_equal(heed_session_run(session, in, 1, NULL, 0, NULL), HEED_E_ARGUMENT);
    heed_session_free(session);
    free(in);
    free(out);
  }
  heed_session *session;
  heed_session_options options = {.size = sizeof options, .capacity = 12};
  assert_int_equal(heed_session_new(context, model, &options, &session), HEED_E_ARGUMENT); // learned positions end
  assert_null(session);
  heed_model_free(model);
  json_decref(expected);
}

/* ---- watching --------------------------------------------------------------------------------------------------------------- */

static const int32_t prompt[] = {1, 403, 407, 261, 378, 302, 31, 44, 5, 99, 500, 7, 8, 9, 300};
enum { PROMPT = sizeof prompt / sizeof prompt[0] };

typedef struct seen {
  int64_t layers[8], calls, first, queries, keys;
  bool rows_sum, hidden_zero, qkv;
  double qk_error;
} seen;

/* softmax(q·k) of the copies must be the weights: that ties q and k to what was computed. */
static double weights_from_copies(const heed_layer_record *r) {
  double worst = 0;
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++) {
      double score[64], sum = 0;
      int64_t last = r->first + i;
      const float *q = r->q + (r->heads[h] * r->queries + i) * 8;
      for (int64_t j = 0; j <= last; j++) {
        const float *k = r->k + (r->heads[h] / 2 * r->keys + j) * 8;
        score[j] = 0;
        for (int d = 0; d < 8; d++) score[j] += (double)q[d] * (double)k[d];
        sum += score[j] = exp(score[j] / sqrt(8.0));
      }
      for (int64_t j = 0; j <= last; j++)
        worst = fmax(worst, fabs(score[j] / sum - (double)r->weights[(h * r->queries + i) * r->keys + j]));
    }
  return worst;
}

static heed_status look(void *user, const heed_layer_record *r) {
  seen *s = user;
  if (s->calls < 8) s->layers[s->calls] = r->layer;
  s->calls++;
  s->first = r->first, s->queries = r->queries, s->keys = r->keys;
  assert_true(r->causal);
  assert_int_equal(r->window, 0);
  for (int64_t h = 0; h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++) {
      double sum = 0;
      for (int64_t j = 0; j < r->keys; j++) {
        float w = r->weights[(h * r->queries + i) * r->keys + j];
        sum += (double)w;
        if (j > r->first + i && w != 0) s->hidden_zero = false;
      }
      if (fabs(sum - 1) > 1e-6) s->rows_sum = false;
    }
  s->qkv = r->q && r->k && r->v;
  if (s->qkv) s->qk_error = fmax(s->qk_error, weights_from_copies(r));
  return HEED_OK;
}

static void test_watch(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_session *session = test_session(context, model, 4);
  float plain[512], watched[512];
  ok(context, heed_session_run(session, prompt, PROMPT, plain, 1, NULL));
  ok(context, heed_session_truncate(session, 5));
  seen s = {.rows_sum = true, .hidden_zero = true};
  const int64_t layers[] = {4, 1}, heads[] = {7, 0, 3};
  heed_watch watch = {
      .size = sizeof watch, .n_layers = 2, .layers = layers, .n_heads = 3, .heads = heads, .want_qkv = true, .record = look, .user = &s};
  ok(context, heed_session_run(session, prompt + 5, PROMPT - 5, watched, 1, &watch));
  assert_memory_equal(plain, watched, sizeof plain); // watching changes no bit
  assert_int_equal(s.calls, 2);
  assert_int_equal(s.layers[0], 1); // in layer order, whatever order they were asked in
  assert_int_equal(s.layers[1], 4);
  assert_int_equal(s.first, 5);
  assert_int_equal(s.queries, PROMPT - 5);
  assert_int_equal(s.keys, PROMPT);
  assert_true(s.rows_sum && s.hidden_zero && s.qkv);
  assert_true(s.qk_error < 1e-6);

  // Refusals leave the session alone.
  const int64_t wrong[] = {5};
  watch = (heed_watch){.size = sizeof watch, .n_layers = 1, .layers = wrong, .record = look, .user = &s};
  assert_int_equal(heed_session_run(session, prompt, 1, watched, 1, &watch), HEED_E_ARGUMENT);
  watch = (heed_watch){.size = sizeof watch, .n_heads = 1, .heads = (int64_t[]){8}, .record = look, .user = &s};
  assert_int_equal(heed_session_run(session, prompt, 1, watched, 1, &watch), HEED_E_ARGUMENT);
  watch = (heed_watch){.size = sizeof watch};
  assert_int_equal(heed_session_run(session, prompt, 1, watched, 1, &watch), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_length(session), PROMPT);
  heed_session_free(session);
  heed_model_free(model);
}

typedef struct editing {
  int mode; /* 0: leave as it is; 1: head off; 2: attend only to itself; 3: stop */
  int64_t edits, records;
} editing;

static heed_status edit(void *user, heed_layer_record *r) {
  editing *e = user;
  e->edits++;
  if (e->mode == 3) return HEED_E_CANCELLED;
  if (e->mode == 0) return HEED_OK;
  memset(r->weights, 0, (size_t)(r->n_heads * r->queries * r->keys) * sizeof(float));
  for (int64_t h = 0; e->mode == 2 && h < r->n_heads; h++)
    for (int64_t i = 0; i < r->queries; i++) r->weights[(h * r->queries + i) * r->keys + r->first + i] = 1;
  return HEED_OK;
}

static heed_status count_record(void *user, const heed_layer_record *r) {
  editing *e = user;
  e->records++;
  assert_int_equal(e->records, e->edits); // edit comes first
  if (e->mode == 1) assert_true(r->weights[0] == 0);
  return HEED_OK;
}

static void test_edit(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_session *session = test_session(context, model, 0);
  float plain[512], edited[512];
  ok(context, heed_session_run(session, prompt, PROMPT, plain, 1, NULL));
  for (int mode = 0; mode < 4; mode++) {
    editing e = {mode, 0, 0};
    heed_watch watch = {.size = sizeof watch, .n_layers = 1, .layers = (int64_t[]){2}, .edit = edit, .record = count_record, .user = &e};
    ok(context, heed_session_truncate(session, 0));
    heed_status status = heed_session_run(session, prompt, PROMPT, edited, 1, &watch);
    assert_int_equal(e.edits, 1);
    if (mode == 3) {
      assert_int_equal(status, HEED_E_CANCELLED);
      assert_non_null(strstr(heed_error(context), "stopped by the callback"));
      assert_int_equal(heed_session_length(session), 0);
      continue;
    }
    ok(context, status);
    double off = largest_difference(plain, edited, 512);
    if (mode == 0) assert_true(off < 1e-4); // the same weights, met plainly
    else assert_true(off > 1e-2);
  }
  heed_session_free(session);
  heed_model_free(model);
}

/* ---- sessions --------------------------------------------------------------------------------------------------------------- */

static bool cancel(void *user, const char *what, int64_t done, int64_t total) {
  (void)done, (void)total;
  return strcmp(what, user) != 0;
}

static void test_session_holds(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_session *session;
  heed_session_options options = {.size = sizeof options, .capacity = 20};
  ok(context, heed_session_new(context, model, &options, &session));
  float logits[512], again[512];
  ok(context, heed_session_run(session, prompt, PROMPT, logits, 1, NULL));
  assert_int_equal(heed_session_length(session), PROMPT);

  const int32_t wrong[] = {1, 512}, negative[] = {-1};
  assert_int_equal(heed_session_run(session, wrong, 2, logits, 1, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "512"));
  assert_int_equal(heed_session_run(session, negative, 1, logits, 1, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_run(session, prompt, 6, logits, 1, NULL), HEED_E_ARGUMENT); // 15 + 6 > 20
  assert_int_equal(heed_session_run(session, prompt, 0, logits, 1, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_run(session, prompt, 2, logits, 3, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_truncate(session, PROMPT + 1), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_truncate(session, -1), HEED_E_ARGUMENT);
  assert_int_equal(heed_session_length(session), PROMPT);

  int32_t other[PROMPT];
  memcpy(other, prompt, sizeof other);
  other[9] = 3;
  assert_int_equal(heed_session_reuse(session, other, PROMPT), 9);
  assert_int_equal(heed_session_length(session), 9);
  ok(context, heed_session_run(session, prompt + 9, PROMPT - 9, again, 1, NULL));
  assert_memory_equal(logits, again, sizeof logits);
  assert_int_equal(heed_session_reuse(session, prompt, PROMPT), PROMPT - 1); // one is left to run
  ok(context, heed_session_run(session, prompt + PROMPT - 1, 1, again, 1, NULL));
  assert_memory_equal(logits, again, sizeof logits);

  ok(context, heed_session_truncate(session, 3));
  heed_context_set_progress(context, cancel, "prefill");
  assert_int_equal(heed_session_run(session, prompt + 3, PROMPT - 3, again, 1, NULL), HEED_E_CANCELLED);
  heed_context_set_progress(context, NULL, NULL);
  assert_int_equal(heed_session_length(session), 3);
  ok(context, heed_session_run(session, prompt + 3, PROMPT - 3, again, 1, NULL));
  assert_memory_equal(logits, again, sizeof logits);
  heed_session_free(session);

  heed_context_set_progress(context, cancel, "load");
  heed_model *second;
  assert_int_equal(heed_model_load(context, STORIES, &second), HEED_E_CANCELLED);
  assert_null(second);
  heed_context_set_progress(context, NULL, NULL);
  heed_model_free(model);
}

/* A host's progress bar follows one count at a time. */
static bool one_count(void *user, const char *what, int64_t done, int64_t total) {
  int64_t *last = user;
  if (strcmp(what, "prefill") != 0) fail_msg("progress \"%s\" during a prefill", what);
  assert_true(done >= *last && done <= total);
  *last = done;
  return true;
}

static void test_progress(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_session *session = test_session(context, model, 0);
  int64_t last = -1;
  float logits[512];
  heed_context_set_progress(context, one_count, &last);
  ok(context, heed_session_run(session, prompt, PROMPT, logits, 1, NULL));
  heed_context_set_progress(context, NULL, NULL);
  assert_true(last > 0);
  heed_session_free(session);
  heed_model_free(model);
}

/* Generation ends at the session's capacity, and where the caller says so. */
static bool stop_at_five(void *user, int32_t id, heed_text text) {
  (void)id, (void)text;
  return ++*(int64_t *)user < 5;
}

static void test_generate_stops(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heed_session *session;
  heed_session_options options = {.size = sizeof options, .capacity = 10};
  ok(context, heed_session_new(context, model, &options, &session));
  heed_generate_report report = {.size = sizeof report};
  heed_generate_options generate = {.size = sizeof generate, .count = 100};
  ok(context, heed_generate(session, prompt, 1, &generate, &report));
  assert_int_equal(heed_session_length(session), 10);
  assert_int_equal(report.new_tokens, 10);
  ok(context, heed_session_truncate(session, 0));
  int64_t calls = 0;
  generate.emit = stop_at_five, generate.user = &calls;
  ok(context, heed_generate(session, prompt, 1, &generate, &report));
  assert_int_equal(calls, 5);
  assert_int_equal(report.new_tokens, 5);
  assert_false(report.ended);
  assert_int_equal(heed_generate(session, prompt, 0, &generate, &report), HEED_E_ARGUMENT);
  heed_session_free(session);
  heed_model_free(model);
}

/* A model lives as long as somebody holds it, whoever loaded it. */
static void test_counted(void **state) {
  (void)state;
  heed_context *loader = test_context(NULL);
  heed_model *model = test_model(loader, STORIES);
  heed_context_free(loader);
  heed_session *session = test_session(context, model, 0);
  heed_model_free(model); // the session still holds it
  float logits[512];
  ok(context, heed_session_run(session, prompt, PROMPT, logits, 1, NULL));
  heed_session_free(session);
  heed_model_free(NULL);
  heed_session_free(NULL);
}

/* One model, four contexts in four threads at once: the same text as alone. */
static void *read_story(void *argument) {
  heed_model *model = argument;
  heed_context *own = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1});
  heed_session *session = test_session(own, model, 0);
  heard *h = calloc(1, sizeof *h);
  const int32_t begin = 1;
  heed_generate_options options = {.size = sizeof options, .count = 60, .emit = hear, .user = h};
  if (heed_generate(session, &begin, 1, &options, NULL) != HEED_OK) h->count = -1;
  heed_session_free(session);
  heed_model_free(model);
  heed_context_free(own);
  return h;
}

static void test_shared(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  heard *alone = read_story(heed_model_retain(model));
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, read_story, heed_model_retain(model)), 0);
  heed_model_free(model); // the last thread to finish frees it
  for (int i = 0; i < 4; i++) {
    void *result;
    pthread_join(thread[i], &result);
    heard *h = result;
    assert_int_equal(h->count, 60);
    assert_memory_equal(h->ids, alone->ids, 60 * sizeof *h->ids);
    free(h);
  }
  free(alone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stories_gguf),    cmocka_unit_test(test_stories_hugging_face),
      cmocka_unit_test(test_stories_rounded), cmocka_unit_test(test_describe),
      cmocka_unit_test(test_families),        cmocka_unit_test(test_encoder),
      cmocka_unit_test(test_sort_expected),   cmocka_unit_test(test_sorts),
      cmocka_unit_test(test_watch),           cmocka_unit_test(test_edit),
      cmocka_unit_test(test_session_holds),   cmocka_unit_test(test_progress),
      cmocka_unit_test(test_generate_stops),  cmocka_unit_test(test_counted),
      cmocka_unit_test(test_shared),
  };
  context = test_context(NULL);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failures;
}
