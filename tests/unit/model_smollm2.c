/* model_smollm2: SmolLM2-135M-Instruct (Q4_1): ids, logits, attention and greedy text of four prompts; chat; loading time is bench's business. The model is fetched by tools/get-models; without it this
 * test fails. */
#include "../model_test.h"

#define SMOLLM2 HEED_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf"

static heed_context *context;
static heed_model *model;

enum { VOCABULARY = 49152, HEADS = 9 };

static int load(void **state) {
  (void)state;
  context = test_context(NULL);
  if (heed_model_load(context, SMOLLM2, &model) != HEED_OK) {
    print_error("%s (run tools/get-models)\n", heed_error(context));
    return -1;
  }
  return 0;
}

static int unload(void **state) {
  (void)state;
  heed_model_free(model);
  heed_context_free(context);
  return 0;
}

typedef struct attention {
  const char *file;
  const json_t *layers;
  int64_t compared;
  double worst;
} attention;

static heed_status compare(void *user, const heed_layer_record *r) {
  attention *a = user;
  char name[32];
  snprintf(name, sizeof name, "attn.%d", (int)r->layer);
  heed_view expected = test_array(context, a->file, name);
  assert_int_equal(expected.dim[0], r->n_heads);
  assert_int_equal(expected.dim[2], r->keys);
  a->worst = fmax(a->worst, largest_difference(r->weights, expected.data, r->n_heads * r->queries * r->keys));
  a->compared++;
  heed_array_free(context, &expected);
  return HEED_OK;
}

/* The five likeliest, likeliest first. */
static void top5(const float *logits, int32_t ids[5]) {
  for (int k = 0; k < 5; k++) {
    int32_t best = -1;
    for (int32_t i = 0; i < VOCABULARY; i++) {
      bool taken = false;
      for (int j = 0; j < k; j++) taken |= ids[j] == i;
      if (!taken && (best < 0 || logits[i] > logits[best])) best = i;
    }
    ids[k] = best;
  }
}

/* Ids must agree wherever the expected logits stand apart by more than the tolerance on both sides. */
static void expect_top5(const float *logits, const int32_t *ids, const float *values, double tolerance) {
  int32_t got[5];
  top5(logits, got);
  for (int k = 0; k < 5; k++) {
    if (fabs((double)logits[ids[k]] - (double)values[k]) > tolerance) fail_msg("logit of %d off", (int)ids[k]);
    bool apart = (k == 0 || (double)(values[k - 1] - values[k]) > tolerance) && (k == 4 || (double)(values[k] - values[k + 1]) > tolerance);
    if (apart && k < 4) assert_int_equal(got[k], ids[k]);
  }
}

static void expect_prompt(const char *name) {
  char json_path[256], arrays[256];
  snprintf(json_path, sizeof json_path, TEST_EXPECTED "smollm2/%s.json", name);
  snprintf(arrays, sizeof arrays, TEST_EXPECTED "smollm2/%s.safetensors", name);
  json_t *expected = test_json(json_path);
  const json_t *text = json_object_get(expected, "text"), *layers = json_object_get(expected, "layers");
  int64_t n, more, encoded;
  int32_t *ids = test_ids(json_object_get(expected, "ids"), &n), *greedy = test_ids(json_object_get(expected, "greedy_ids"), &more), *own;

  heed_encode_options encode = {.size = sizeof encode, .add_special = true, .parse_special = true};
  ok(context, heed_encode(context, heed_model_tokenizer(model), (heed_text){json_string_value(text), json_string_length(text)}, &encode,
                          &own, &encoded));
  assert_int_equal(encoded, n);
  assert_memory_equal(own, ids, (size_t)n * sizeof *ids);
  heed_ids_free(context, own, encoded);

  int64_t chosen[8], count = (int64_t)json_array_size(layers);
  for (int64_t i = 0; i < count; i++) chosen[i] = json_integer_value(json_array_get(layers, (size_t)i));
  attention a = {.file = arrays};
  heed_watch watch = {.size = sizeof watch, .n_layers = count, .layers = chosen, .record = compare, .user = &a};
  heed_session *session = test_session(context, model, 0);
  float *logits = malloc((size_t)(n * VOCABULARY) * sizeof *logits);
  ok(context, heed_session_run(session, ids, n, logits, n, count ? &watch : NULL));
  assert_int_equal(a.compared, count);
  if (!(a.worst <= 1e-4)) fail_msg("%s: attention off by %g", name, a.worst);

  heed_view last = test_array(context, arrays, "logits_last"), values = test_array(context, arrays, "top5_logits"),
            best = test_array(context, arrays, "top5_ids");
  double off = largest_difference(logits + (n - 1) * VOCABULARY, last.data, VOCABULARY);
  if (!(off <= 2e-3)) fail_msg("%s: last logits off by %g", name, off);
  for (int64_t i = 0; i < n; i++) expect_top5(logits + i * VOCABULARY, (int32_t *)best.data + 5 * i, (float *)values.data + 5 * i, 2e-3);
  print_message("%s: logits within %.1e, attention within %.1e\n", name, off, a.worst);

  static heard h;
  memset(&h, 0, sizeof h);
  heed_session_reuse(session, ids, n);
  heed_generate_options options = {.size = sizeof options, .count = more, .emit = hear, .user = &h};
  ok(context, heed_generate(session, ids + heed_session_length(session), n - heed_session_length(session), &options, NULL));
  assert_int_equal(h.count, more);
  assert_memory_equal(h.ids, greedy, (size_t)more * sizeof *greedy);
  const char *said = json_string_value(json_object_get(expected, "greedy_text")), *end = strstr(said, "<|im_end|>");
  assert_int_equal(h.length, end ? end - said : (long)strlen(said)); // special tokens are no text
  assert_memory_equal(h.text, said, h.length);

  heed_array_free(context, &last);
  heed_array_free(context, &values);
  heed_array_free(context, &best);
  heed_session_free(session);
  free(logits);
  free(ids);
  free(greedy);
  json_decref(expected);
}

static void test_story(void **state) {
  (void)state;
  expect_prompt("story");
}
static void test_code(void **state) {
  (void)state;
  expect_prompt("code");
}
static void test_animal(void **state) {
  (void)state;
  expect_prompt("animal");
}
static void test_chat(void **state) {
  (void)state;
  expect_prompt("chat");
}

static void test_chat_encode(void **state) {
  (void)state;
  json_t *expected = test_json(TEST_EXPECTED "smollm2/chat.json");
  int64_t n, count;
  int32_t *ids = test_ids(json_object_get(expected, "ids"), &n), *own;
  const char *form, *question = "What is the capital of France?";
  ok(context, heed_chat_encode(context, model, (heed_text){question, strlen(question)}, &form, &own, &count));
  assert_string_equal(form, "ChatML");
  assert_int_equal(count, n);
  assert_memory_equal(own, ids, (size_t)n * sizeof *ids);
  heed_ids_free(context, own, count);

  // A marker in the message stays text.
  const char *sly = "<|im_end|>";
  ok(context, heed_chat_encode(context, model, (heed_text){sly, strlen(sly)}, &form, &own, &count));
  int64_t ends = 0;
  for (int64_t i = 0; i < count; i++) ends += own[i] == 2;
  assert_int_equal(ends, 2);
  heed_ids_free(context, own, count);
  free(ids);
  json_decref(expected);
}

/* One pass = chunks = token by token, in bits, where weights are quantised. */
static void test_bits(void **state) {
  (void)state;
  int64_t n;
  json_t *expected = test_json(TEST_EXPECTED "smollm2/chat.json");
  int32_t *ids = test_ids(json_object_get(expected, "ids"), &n);
  float *whole = malloc((size_t)(n * VOCABULARY) * sizeof *whole), *parts = malloc((size_t)(n * VOCABULARY) * sizeof *parts);
  heed_session *session = test_session(context, model, 0), *chunked = test_session(context, model, 7);
  ok(context, heed_session_run(session, ids, n, whole, n, NULL));
  ok(context, heed_session_run(chunked, ids, n, parts, n, NULL));
  assert_memory_equal(whole, parts, (size_t)(n * VOCABULARY) * sizeof *whole);
  ok(context, heed_session_truncate(session, 0));
  for (int64_t i = 0; i < n; i++) ok(context, heed_session_run(session, ids + i, 1, parts + i * VOCABULARY, 1, NULL));
  assert_memory_equal(whole, parts, (size_t)(n * VOCABULARY) * sizeof *whole);
  heed_session_free(session);
  heed_session_free(chunked);
  free(whole);
  free(parts);
  free(ids);
  json_decref(expected);
}

static void test_describe(void **state) {
  (void)state;
  heed_model_info info = test_info(model);
  assert_int_equal(info.layers, 30);
  assert_int_equal(info.heads, HEADS);
  assert_int_equal(info.kv_heads, 3);
  assert_int_equal(info.vocabulary, VOCABULARY);
  assert_int_equal(info.parameters, 134515008);
  assert_true(info.weight_bytes < 105 << 20); // as in the file: 98 MB
  assert_true(fabs(info.flops_per_token / 2 - 106.2e6) < 0.1e6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_describe), cmocka_unit_test(test_story),       cmocka_unit_test(test_code), cmocka_unit_test(test_animal),
      cmocka_unit_test(test_chat),     cmocka_unit_test(test_chat_encode), cmocka_unit_test(test_bits),
  };
  return cmocka_run_group_tests(tests, load, unload);
}
