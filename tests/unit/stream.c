/* Endless text: a stream is the plain session over what it has kept, any cut of the tokens gives the same bits, and neither memory nor what is kept grows. */
#include "../attention_sample.h"
#include "../counting_allocator.h"
#include "../model_test.h"
#include "../saved.h"

static heed_context *context;

enum { VOCABULARY = 37, TOKENS = 90 };

static heed_session *stream_of(heed_model *model, int64_t sinks, int64_t window, int64_t chunk) {
  heed_session *session = NULL;
  const heed_session_options options = {.size = sizeof options, .chunk = chunk, .stream_window = window, .sinks = sinks};
  ok(context, heed_session_new(context, model, &options, &session));
  return session;
}

static void random_ids(random_source *r, int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)below(r, VOCABULARY);
}

/* A decoder of one layer with random weights. */
static heed_model *one_layer(int64_t kv_heads) {
  const heed_learner_options options = {.size = sizeof options,
                                        .kind = HEED_LEARNER_LLAMA,
                                        .layers = 1,
                                        .heads = 4,
                                        .kv_heads = kv_heads,
                                        .width = 32,
                                        .context = 40,
                                        .vocabulary = VOCABULARY,
                                        .seed = 5};
  heed_learner *learner;
  ok(context, heed_learner_new(context, &options, &learner));
  heed_model *model = saved(context, learner);
  heed_learner_free(learner);
  return model;
}

/* In a model of one layer keys depend on their token alone, so a stream is what a plain session makes of the tokens that it has kept, which stand there at the positions that count inside its cache. */
static void a_stream_is_what_it_keeps(void **state) {
  (void)state;
  const struct { int64_t sinks, window, kv_heads; } cases[] = {{0, 1, 4}, {0, 9, 2}, {1, 1, 4}, {3, 10, 2}, {4, 36, 1}, {5, 5, 4}};
  for (int c = 0; c < 6; c++) {
    random_source r = {.seed = (uint64_t)c};
    const int64_t sinks = cases[c].sinks, size = sinks + cases[c].window;
    heed_model *model = one_layer(cases[c].kv_heads);
    heed_session *stream = stream_of(model, sinks, cases[c].window, 7), *plain = test_session(context, model, 0);
    int32_t ids[TOKENS];
    random_ids(&r, ids, TOKENS);
    for (int64_t at = 0, step; at < TOKENS; at += step) {
      float found[VOCABULARY], want[VOCABULARY];
      int32_t kept[TOKENS];
      step = 1 + below(&r, at < size ? 30 : 5);
      if (step > TOKENS - at) step = TOKENS - at;
      ok(context, heed_session_run(stream, ids + at, step, found, 1, NULL));
      const int64_t end = at + step, count = end < size ? end : size;
      assert_int_equal(heed_session_length(stream), end);
      for (int64_t i = 0; i < count; i++) kept[i] = ids[i < sinks ? i : end - count + i];
      ok(context, heed_session_truncate(plain, 0));
      ok(context, heed_session_run(plain, kept, count, want, 1, NULL));
      for (int i = 0; i < VOCABULARY; i++) assert_close(found[i], want[i], 2e-5, "a stream", r.seed);
    }
    heed_session_free(stream);
    heed_session_free(plain);
    heed_model_free(model);
  }
}

/* Without sinks a stream over several layers is a window: mistral has one of its own. */
static void without_sinks_it_is_a_window(void **state) {
  (void)state;
  enum { LENGTH = 60 };
  heed_model *model = test_model(context, TEST_EXPECTED "families/mistral");
  const heed_model_info info = test_info(model);
  json_t *config = test_json(TEST_EXPECTED "families/mistral/config.json");
  const int64_t window = json_integer_value(json_object_get(config, "sliding_window"));
  assert_true(window > 1 && window < LENGTH / 2 && info.layers > 1);
  random_source r = {.seed = 3};
  int32_t ids[LENGTH];
  for (int i = 0; i < LENGTH; i++) ids[i] = (int32_t)below(&r, info.vocabulary);
  heed_session *stream = stream_of(model, 0, window, 0), *plain = test_session(context, model, 0);
  float *found = malloc(LENGTH * (size_t)info.vocabulary * 4), *want = malloc(LENGTH * (size_t)info.vocabulary * 4);
  ok(context, heed_session_run(stream, ids, LENGTH, found, LENGTH, NULL));
  ok(context, heed_session_run(plain, ids, LENGTH, want, LENGTH, NULL));
  for (int64_t i = 0; i < LENGTH * info.vocabulary; i++) assert_close(found[i], want[i], 5e-5, "a window", 3);
  free(found);
  free(want);
  heed_session_free(stream);
  heed_session_free(plain);
  heed_model_free(model);
  json_decref(config);
}

static void any_cut_gives_the_same_bits(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES);
  random_source r = {.seed = 8};
  int32_t ids[TOKENS];
  for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)below(&r, 512);
  static float whole[TOKENS][512], part[TOKENS][512];
  heed_session *session = stream_of(model, 2, 30, 0);
  ok(context, heed_session_run(session, ids, TOKENS, whole[0], TOKENS, NULL));
  for (int round = 0; round < 4; round++) { // begun anew each time: nothing of the text before is left
    if (round % 2) ok(context, heed_session_truncate(session, 0));
    else assert_int_equal(heed_session_reuse(session, ids, TOKENS), 0);
    for (int64_t at = 0, step; at < TOKENS; at += step) {
      step = round == 0 ? 1 : 1 + below(&r, 40);
      if (step > TOKENS - at) step = TOKENS - at;
      ok(context, heed_session_run(session, ids + at, step, part[at], step, NULL));
    }
    assert_same_bytes(part, whole, (int64_t)sizeof whole, "cut", (uint64_t)round);
  }
  heed_session_free(session);
  heed_model_free(model);
}

static void memory_does_not_grow(void **state) {
  (void)state;
  ledger counted;
  heed_context *c = ledger_context(&counted, 1);
  heed_model *model = test_model(c, STORIES);
  heed_session *session = NULL;
  const heed_session_options options = {.size = sizeof options, .stream_window = 20, .sinks = 4};
  ok(c, heed_session_new(c, model, &options, &session));
  int32_t id = 1;
  float logits[512];
  int64_t full = 0;
  for (int i = 0; i < 600; i++) {
    ok(c, heed_session_run(session, &id, 1, logits, 1, NULL));
    id = (int32_t)((id * 7 + i) % 512);
    if (i == 24) full = counted.now;
    assert_true(i <= 24 || counted.now == full);
  }
  heed_session_free(session);
  heed_model_free(model);
  heed_context_free(c);
  assert_int_equal(counted.now, 0);
}

static heed_status looks(void *user, const heed_layer_record *record) {
  (void)user, (void)record;
  return HEED_OK;
}

static void refusals(void **state) {
  (void)state;
  heed_model *model = test_model(context, STORIES), *sorts = test_model(context, SORT),
             *mistral = test_model(context, TEST_EXPECTED "families/mistral");
  heed_session *session = NULL;
#define REFUSED(m, status, sentence, ...)                                                                                                  \
  do {                                                                                                                                     \
    const heed_session_options options = {.size = sizeof options, __VA_ARGS__};                                                            \
    assert_int_equal(heed_session_new(context, m, &options, &session), status);                                                            \
    assert_non_null(strstr(heed_error(context), sentence));                                                                                \
    assert_null(session);                                                                                                                  \
  } while (0)
  REFUSED(model, HEED_E_ARGUMENT, "a stream of 5 sinks and a window of 4 tokens", .stream_window = 4, .sinks = 5);
  REFUSED(model, HEED_E_ARGUMENT, "a window of -1 tokens", .stream_window = -1);
  REFUSED(model, HEED_E_ARGUMENT, "a stream of -1 sinks", .stream_window = 4, .sinks = -1);
  REFUSED(model, HEED_E_ARGUMENT, "3 sinks without a stream's window", .sinks = 3);
  REFUSED(model, HEED_E_ARGUMENT, "a stream has no capacity (got 9)", .stream_window = 4, .capacity = 9);
  REFUSED(model, HEED_E_ARGUMENT, "allowed 512 in all, the context of the model", .stream_window = 509, .sinks = 4);
  REFUSED(sorts, HEED_E_UNSUPPORTED, "only a decoder with rotary positions can stream", .stream_window = 4);
  REFUSED(mistral, HEED_E_UNSUPPORTED, "layer 0 has a window of its own", .stream_window = 30);
#undef REFUSED
  session = stream_of(model, 1, 4, 0);
  const int32_t ids[] = {1, 2, 3, 4, 5, 6};
  heed_watch watch = {.size = sizeof watch, .record = looks};
  assert_int_equal(heed_session_run(session, ids, 6, NULL, 0, &watch), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "cannot be watched"));
  ok(context, heed_session_run(session, ids, 5, NULL, 0, NULL));
  ok(context, heed_session_truncate(session, 2)); // nothing has been let go yet
  ok(context, heed_session_run(session, ids, 6, NULL, 0, NULL));
  assert_int_equal(heed_session_truncate(session, 7), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "truncated to nothing at all (got 7)"));
  ok(context, heed_session_truncate(session, 8));
  heed_session_free(session);
  heed_model_free(model);
  heed_model_free(sorts);
  heed_model_free(mistral);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stream_is_what_it_keeps),
      cmocka_unit_test(without_sinks_it_is_a_window),
      cmocka_unit_test(any_cut_gives_the_same_bits),
      cmocka_unit_test(memory_does_not_grow),
      cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
