/* tokenizer: whole tokenizers. Ids against reference implementations; decoding gives the text back; special tokens; a stream that never splits a character. */
#include "text_test.h"

#include <pthread.h>

#define SMOLLM2 HEED_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GGUF    HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf"
#define HF      HEED_TEST_DATA "/models/stories260k-hf"

static const heed_encode_options plain = {.size = sizeof plain};
static const heed_encode_options parsing = {.size = sizeof parsing, .parse_special = true};
static const heed_encode_options everything = {.size = sizeof everything, .parse_special = true, .add_special = true};

static heed_tokenizer *load(heed_context *context, const char *path) {
  heed_tokenizer *tokenizer;
  ok(context, heed_tokenizer_load(context, path, &tokenizer));
  return tokenizer;
}

static heed_tokenizer_info info_of(const heed_tokenizer *tokenizer) {
  heed_tokenizer_info info = {.size = sizeof info};
  assert_int_equal(heed_tokenizer_describe(tokenizer, &info), HEED_OK);
  return info;
}

/* ---- against references --------------------------------------------------------------------------------------------------- */

static void expect_cases(heed_context *context, const heed_tokenizer *tokenizer, const char *path, const heed_encode_options *options) {
  json_error_t error;
  json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &error), *one;
  size_t i;
  if (!cases) fail_msg("%s: %s", path, error.text);
  assert_true(json_array_size(cases) >= 16);
  json_array_foreach(cases, i, one) {
    const json_t *text = json_object_get(one, "text");
    assert_true(json_is_string(text));
    expect_ids_json(context, tokenizer, (heed_text){json_string_value(text), json_string_length(text)}, options,
                    json_object_get(one, "ids"));
  }
  json_decref(cases);
}

static void smollm2_gives_the_expected_ids(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, SMOLLM2);
  heed_tokenizer_info info = info_of(tokenizer);
  expect_cases(context, tokenizer, HEED_TEST_DATA "/expected/smollm2/tokenizer.json", &parsing);
  assert_string_equal(info.kind, "byte-level BPE");
  assert_string_equal(info.pre_tokenizer, "smollm");
  assert_int_equal(info.vocabulary, 49152);
  assert_int_equal(heed_token_find(tokenizer, text_of("<|im_start|>")), 1);
  assert_int_equal(heed_token_find(tokenizer, text_of(" world")), 905);
  assert_true(heed_token_is_special(tokenizer, 2) && !heed_token_is_special(tokenizer, 905));
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void small_tokenizers_give_the_ids_of_the_reference(void **state) {
  static const struct {
    const char *name, *kind, *pre_tokenizer;
    bool adds_bos, adds_eos;
  } cases[] = {
      {"gpt2", "byte-level BPE", "gpt2", false, false},
      {"smollm", "byte-level BPE", "smollm", false, false},
      {"llama3", "byte-level BPE", "llama3", true, false},
      {"qwen2", "byte-level BPE", "qwen2", false, false},
      {"other_pattern", "byte-level BPE", "pattern", false, false},
      {"llama2", "SentencePiece BPE", "none", true, true},
      {"metaspace", "SentencePiece BPE", "none", true, true},
      {"bert-uncased", "WordPiece", "none", true, true},
      {"bert-cased", "WordPiece", "none", true, true},
      {"bert-accents", "WordPiece", "none", true, true},
      {"trained-char", "characters", "none", false, false},
      {"trained-byte", "byte-level BPE", "none", false, false},
      {"trained-bpe", "byte-level BPE", "gpt2", false, false},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[512];
    snprintf(path, sizeof path, HEED_TEST_DATA "/tokenizers/%s.json", cases[i].name);
    heed_tokenizer *tokenizer = load(context, path);
    heed_tokenizer_info info = info_of(tokenizer);
    assert_string_equal(info.kind, cases[i].kind);
    assert_string_equal(info.pre_tokenizer, cases[i].pre_tokenizer);
    assert_true(info.adds_bos == cases[i].adds_bos && info.adds_eos == cases[i].adds_eos);
    snprintf(path, sizeof path, HEED_TEST_DATA "/tokenizers/%s.expected.json", cases[i].name);
    expect_cases(context, tokenizer, path, &everything);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* A vocabulary alone, in a directory and by itself: the ids of the tokenizer.json with the same tokens. */
static void vocabulary_alone(void **state) {
  static const char *const paths[] = {HEED_TEST_DATA "/tokenizers/bert-vocabulary", HEED_TEST_DATA "/tokenizers/bert-vocabulary/vocab.txt"};
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    heed_tokenizer *tokenizer = load(context, paths[i]);
    heed_tokenizer_info info = info_of(tokenizer);
    assert_string_equal(info.kind, "WordPiece");
    assert_true(info.adds_bos && info.adds_eos && info.mask == 4 && info.pad == 0 && info.unknown == 1);
    expect_cases(context, tokenizer, HEED_TEST_DATA "/tokenizers/bert-uncased.expected.json", &everything);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* ---- random texts --------------------------------------------------------------------------------------------------------- */

/* xorshift64*, so that a printed seed gives the same texts everywhere. */
static uint64_t next_random(uint64_t *seed) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * 0x2545F4914F6CDD1Du;
}

static size_t put_character(char *out, uint32_t code) {
  if (code < 0x80) return out[0] = (char)code, 1;
  if (code < 0x800) return out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), 2;
  if (code < 0x10000)
    return out[0] = (char)(0xE0 | code >> 12), out[1] = (char)(0x80 | (code >> 6 & 63)), out[2] = (char)(0x80 | (code & 63)), 3;
  return out[0] = (char)(0xF0 | code >> 18), out[1] = (char)(0x80 | (code >> 12 & 63)), out[2] = (char)(0x80 | (code >> 6 & 63)),
         out[3] = (char)(0x80 | (code & 63)), 4;
}

/* Any character but surrogates and U+2581, which SentencePiece reads as a space; mostly letters and white space. */
static uint32_t random_character(uint64_t *seed) {
  static const uint32_t ends[] = {0x80, 0x80, 0x80, 0x80, 0x250, 0x3100, 0x10000, 0x110000};
  for (;;) {
    uint64_t r = next_random(seed);
    uint32_t code = r % 3 == 0 ? (uint32_t) " \n\t'ae1.th"[(r >> 8) % 10] : (uint32_t)((r >> 16) % ends[(r >> 8) % 8]);
    if ((code < 0xD800 || code > 0xDFFF) && code != 0x2581) return code;
  }
}

/* Byte-level vocabularies may lack some control characters; those have no tokens to come back from. */
static bool has_tokens(const heed_tokenizer *tokenizer, heed_text character) {
  if (strcmp(info_of(tokenizer).kind, "byte-level BPE") != 0) return true;
  for (size_t i = 0; i < character.length; i++)
    if (heed_token_find(tokenizer, (heed_text){character.data + i, 1}) < 0) return false;
  return true;
}

static heed_text random_text(uint64_t *seed, const heed_tokenizer *tokenizer, char *out, size_t capacity) {
  size_t length = 0, wanted = next_random(seed) % (capacity - 4);
  while (length < wanted) {
    size_t size = put_character(out + length, random_character(seed));
    if (has_tokens(tokenizer, (heed_text){out + length, size})) length += size;
  }
  return (heed_text){out, length};
}

static uint64_t first_seed(void) {
  const char *given = getenv("HEED_TEST_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 0) : 0x68656564;
  print_message("seed: HEED_TEST_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}

static void decoding_gives_the_text_back(void **state) {
  static const char *const paths[] = {SMOLLM2, GGUF, HEED_TEST_DATA "/tokenizers/gpt2.json", HEED_TEST_DATA "/tokenizers/llama3.json",
                                      HEED_TEST_DATA "/tokenizers/llama2.json"};
  const heed_decode_options keep = {.size = sizeof keep, .keep_special = true};
  (void)state;
  uint64_t seed = first_seed();
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    heed_tokenizer *tokenizer = load(context, paths[i]);
    for (int round = 0; round < 400; round++) {
      char buffer[300];
      int32_t *ids;
      int64_t count;
      size_t length;
      uint64_t before = seed;
      heed_text text = random_text(&seed, tokenizer, buffer, sizeof buffer);
      ok(context, heed_encode(context, tokenizer, text, &plain, &ids, &count));
      char *back = decode_all(context, tokenizer, &keep, ids, count, &length);
      if (length != text.length || memcmp(back, text.data, length) != 0)
        fail_msg("%s: HEED_TEST_SEED=%llu: a text of %zu bytes comes back as %zu", paths[i], (unsigned long long)before, text.length,
                 length);
      free(back);
      heed_ids_free(context, ids, count);
    }
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* The two files describe one tokenizer in two ways, scores and merges. They differ where a text begins with a space: Metaspace adds none to it. */
static void gguf_and_directory_agree(void **state) {
  (void)state;
  uint64_t seed = first_seed();
  heed_context *context = test_context(NULL);
  heed_tokenizer *gguf = load(context, GGUF), *directory = load(context, HF);
  heed_tokenizer_info a = info_of(gguf), b = info_of(directory);
  assert_true(a.vocabulary == 512 && b.vocabulary == 512);
  assert_true(a.bos == 1 && b.bos == 1 && a.eos == 2 && b.eos == 2 && a.unknown == 0 && b.unknown == 0 && a.adds_bos && b.adds_bos);
  for (int round = 0; round < 1000; round++) {
    char buffer[300];
    int32_t *ids;
    int64_t count;
    heed_text text = random_text(&seed, gguf, buffer, sizeof buffer);
    if (text.length && text.data[0] == ' ') continue;
    ok(context, heed_encode(context, gguf, text, &everything, &ids, &count));
    expect_ids(context, directory, text, &everything, ids, count);
    heed_ids_free(context, ids, count);
  }
  for (int32_t id = 0; id < 512; id++) {
    heed_text x = heed_token_text(gguf, id), y = heed_token_text(directory, id);
    assert_true(x.length == y.length && memcmp(x.data, y.data, x.length) == 0);
    assert_int_equal(heed_token_is_special(gguf, id), heed_token_is_special(directory, id));
  }
  heed_tokenizer_free(gguf);
  heed_tokenizer_free(directory);
  heed_context_free(context);
}

static void a_model_is_named_by_any_of_its_files(void **state) {
  static const char *const names[] = {"", "/", "/tokenizer.json", "/config.json", "/model.safetensors"};
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    snprintf(path, sizeof path, HF "%s", names[i]);
    heed_tokenizer *tokenizer = load(context, path);
    assert_int_equal(info_of(tokenizer).vocabulary, 512);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* ---- special tokens ------------------------------------------------------------------------------------------------------- */

static void special_tokens_only_where_asked_for(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, HEED_TEST_DATA "/tokenizers/qwen2.json");
  heed_text text = text_of("<|im_start|><tool_call>");
  int32_t start = heed_token_find(tokenizer, text_of("<|im_start|>")), call = heed_token_find(tokenizer, text_of("<tool_call>")), *ids;
  int64_t count;
  assert_true(start >= 0 && call >= 0 && start != call);
  assert_true(heed_token_is_special(tokenizer, start) && !heed_token_is_special(tokenizer, call));
  expect_ids(context, tokenizer, text, &parsing, (int32_t[]){start, call}, 2);
  // A token that the model's author added without calling it special is always one token; a special one is letters unless asked for.
  ok(context, heed_encode(context, tokenizer, text, NULL, &ids, &count));
  assert_true(count > 2 && ids[0] != start && ids[count - 1] == call);
  heed_ids_free(context, ids, count);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void decoding_leaves_special_tokens_out_unless_kept(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, GGUF);
  const heed_decode_options keep = {.size = sizeof keep, .keep_special = true},
                            inside = {.size = sizeof inside, .keep_leading_space = true};
  int32_t *ids;
  int64_t count;
  size_t length;
  ok(context, heed_encode(context, tokenizer, text_of("Once upon a time"), &everything, &ids, &count));
  assert_int_equal(ids[0], 1);
  char *text = decode_all(context, tokenizer, NULL, ids, count, &length);
  assert_string_equal(text, "Once upon a time");
  free(text);
  text = decode_all(context, tokenizer, &keep, ids, count, &length);
  assert_string_equal(text, "<s> Once upon a time");
  free(text);
  text = decode_all(context, tokenizer, &inside, ids, count, &length);
  assert_string_equal(text, " Once upon a time");
  free(text);
  heed_ids_free(context, ids, count);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* ---- streams -------------------------------------------------------------------------------------------------------------- */

static void a_character_is_never_split(void **state) {
  static const int32_t family[] = {243 /* <0xF0> */, 162 /* <0x9F> */, 149 /* <0x92> */, 172 /* <0xA9> */};
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, GGUF);
  heed_decoder *decoder;
  heed_text text;
  ok(context, heed_decoder_new(context, tokenizer, NULL, &decoder));
  for (int i = 0; i < 3; i++) {
    ok(context, heed_decoder_push(decoder, family[i], &text));
    assert_int_equal(text.length, 0);
  }
  ok(context, heed_decoder_push(decoder, family[3], &text));
  assert_int_equal(text.length, 4);
  assert_memory_equal(text.data, "\xF0\x9F\x92\xA9", 4);
  ok(context, heed_decoder_finish(decoder, &text));
  assert_int_equal(text.length, 0);

  // Three bytes that a letter cuts short are one replacement; a byte that begins nothing is another.
  for (int i = 0; i < 3; i++) ok(context, heed_decoder_push(decoder, family[i], &text));
  ok(context, heed_decoder_push(decoder, heed_token_find(tokenizer, text_of("<0xFF>")), &text));
  assert_int_equal(text.length, 6);
  assert_memory_equal(text.data, "\xEF\xBF\xBD\xEF\xBF\xBD", 6);
  ok(context, heed_decoder_push(decoder, family[0], &text));
  assert_int_equal(text.length, 0);
  ok(context, heed_decoder_finish(decoder, &text));
  assert_memory_equal(text.data, "\xEF\xBF\xBD", text.length);
  assert_int_equal(heed_decoder_push(decoder, 512, &text), HEED_E_ARGUMENT);
  assert_int_equal(heed_decoder_push(decoder, -1, &text), HEED_E_ARGUMENT);
  heed_decoder_free(decoder);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* ---- requests that cannot be met ------------------------------------------------------------------------------------------ */

static void text_that_is_not_utf8_is_refused(void **state) {
  static const char *const bad[] = {"ab\xFF", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xE2\x82"};
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, GGUF);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int32_t *ids;
    int64_t count;
    assert_int_equal(heed_encode(context, tokenizer, text_of(bad[i]), NULL, &ids, &count), HEED_E_FORMAT);
    assert_non_null(strstr(heed_error(context), "not UTF-8 (byte 2 of"));
    assert_true(ids == NULL && count == 0);
  }
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void questions_about_no_token_are_answered(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = load(context, GGUF);
  assert_int_equal(heed_token_text(tokenizer, -1).length, 0);
  assert_int_equal(heed_token_text(tokenizer, 512).length, 0);
  assert_false(heed_token_is_special(tokenizer, 512));
  assert_int_equal(heed_token_find(tokenizer, text_of("no such token")), -1);
  assert_int_equal(heed_token_find(tokenizer, (heed_text){NULL, 0}), -1);
  assert_int_equal(heed_token_find(tokenizer, text_of("<0x0A>")), 13);
  assert_int_equal(heed_token_find(tokenizer, text_of(" the")), 265);
  heed_tokenizer_free(tokenizer);
  heed_tokenizer_free(NULL);
  heed_decoder_free(NULL);
  heed_context_free(context);
}

/* ---- threads -------------------------------------------------------------------------------------------------------------- */

typedef struct sharing {
  const heed_tokenizer *tokenizer;
  const int32_t *wanted;
  int64_t count;
  bool same;
} sharing;

static const char shared_text[] = "The miller said 12 times: don't, naïve 日本語 <tool_call>";

/* cmocka's assertions belong to the main thread. */
static void *encode_often(void *argument) {
  sharing *share = argument;
  heed_context *context;
  share->same = heed_context_new(NULL, &context) == HEED_OK;
  for (int i = 0; share->same && i < 200; i++) {
    int32_t *ids;
    int64_t count;
    share->same = heed_encode(context, share->tokenizer, text_of(shared_text), &parsing, &ids, &count) == HEED_OK &&
                  count == share->count && memcmp(ids, share->wanted, (size_t)count * sizeof *ids) == 0;
    heed_ids_free(context, ids, count);
  }
  heed_context_free(context);
  return NULL;
}

static void threads_share_a_tokenizer(void **state) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  sharing shares[THREADS];
  int32_t *ids;
  int64_t count;
  (void)state;
  heed_context *context = test_context(NULL), *other = test_context(NULL);
  heed_tokenizer *tokenizer = load(other, HEED_TEST_DATA "/tokenizers/qwen2.json");
  heed_context_free(other); // a tokenizer outlives the context that loaded it
  ok(context, heed_encode(context, tokenizer, text_of(shared_text), &parsing, &ids, &count));
  for (int i = 0; i < THREADS; i++) {
    shares[i] = (sharing){tokenizer, ids, count, false};
    assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &shares[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < THREADS; i++) assert_true(shares[i].same);
  heed_ids_free(context, ids, count);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

typedef struct counting {
  long left;    /* allocations that succeed */
  long current; /* bytes that are out */
} counting;

static void *counting_allocate(void *user, size_t bytes, size_t alignment) {
  counting *c = user;
  if (c->left-- <= 0) return NULL;
  c->current += (long)bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counting_release(void *user, void *memory, size_t bytes) {
  ((counting *)user)->current -= (long)bytes;
  free(memory);
}

static heed_status load_encode_decode(heed_context *context, const char *path) {
  heed_tokenizer *tokenizer;
  heed_decoder *decoder = NULL;
  int32_t *ids = NULL;
  int64_t count = 0;
  heed_text text;
  heed_status status = heed_tokenizer_load(context, path, &tokenizer);
  if (status == HEED_OK)
    status = heed_encode(context, tokenizer, text_of("Once upon 12 times, naïve <mask> 日"), &everything, &ids, &count);
  if (status == HEED_OK) status = heed_decoder_new(context, tokenizer, NULL, &decoder);
  for (int64_t i = 0; status == HEED_OK && i < count; i++) status = heed_decoder_push(decoder, ids[i], &text);
  heed_decoder_free(decoder);
  heed_ids_free(context, ids, count);
  heed_tokenizer_free(tokenizer);
  return status;
}

static void every_allocation_may_fail(void **state) {
  static const char *const paths[] = {GGUF, HF, HEED_TEST_DATA "/tokenizers/qwen2.json"};
  (void)state;
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    heed_status status = HEED_E_MEMORY;
    for (long allowed = 1; status == HEED_E_MEMORY; allowed++) {
      counting counter = {.left = allowed};
      heed_options options = {.size = sizeof options, .allocator = {&counter, counting_allocate, counting_release}};
      heed_context *context = test_context(&options);
      status = load_encode_decode(context, paths[i]);
      if (status != HEED_OK && status != HEED_E_MEMORY) fail_msg("%s: %s after %ld allocations", paths[i], heed_error(context), allowed);
      heed_context_free(context);
      if (counter.current != 0) fail_msg("%s: %ld bytes are lost after %ld allocations", paths[i], counter.current, allowed);
      assert_true(allowed < 10000);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(vocabulary_alone),
      cmocka_unit_test(smollm2_gives_the_expected_ids),
      cmocka_unit_test(small_tokenizers_give_the_ids_of_the_reference),
      cmocka_unit_test(decoding_gives_the_text_back),
      cmocka_unit_test(gguf_and_directory_agree),
      cmocka_unit_test(a_model_is_named_by_any_of_its_files),
      cmocka_unit_test(special_tokens_only_where_asked_for),
      cmocka_unit_test(decoding_leaves_special_tokens_out_unless_kept),
      cmocka_unit_test(a_character_is_never_split),
      cmocka_unit_test(text_that_is_not_utf8_is_refused),
      cmocka_unit_test(questions_about_no_token_are_answered),
      cmocka_unit_test(threads_share_a_tokenizer),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
