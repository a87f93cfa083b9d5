/* tokenizer_train: tokenizers made from a text are those of the reference, file and ids; what is saved reads back; learned merges follow their definition. */
#include "malformed.h"
#include "text_test.h"

#include "../../src/io/json.h"
#include "../../src/text/tokenizer.h"

#define FIXTURE HEED_TEST_DATA "/tokenizers/"

static const heed_encode_options everything = {.size = sizeof everything, .parse_special = true, .add_special = true};

static heed_tokenizer *train(heed_context *context, const char *kind, heed_text text) {
  heed_tokenizer *tokenizer;
  ok(context, heed_tokenizer_train(context, kind, text, NULL, &tokenizer));
  return tokenizer;
}

/* Saved into the test's folder and loaded again. */
static heed_tokenizer *reload(heed_context *context, const heed_tokenizer *tokenizer) {
  heed_tokenizer *out;
  ok(context, heed_tokenizer_save(context, tokenizer, test_folder));
  ok(context, heed_tokenizer_load(context, test_folder, &out));
  return out;
}

static void expect_cases(heed_context *context, const heed_tokenizer *tokenizer, const char *path) {
  json_t *cases = read_json(path), *one;
  size_t i;
  json_array_foreach(cases, i, one) {
    const json_t *text = json_object_get(one, "text");
    expect_ids_json(context, tokenizer, (heed_text){json_string_value(text), json_string_length(text)}, &everything,
                    json_object_get(one, "ids"));
  }
  json_decref(cases);
}

/* ---- against the reference -------------------------------------------------------------------------------------------------- */

static void training_gives_the_files_and_ids_of_the_reference(void **state) {
  static const struct {
    const char *kind, *name;
  } cases[] = {{"char", "trained-char"}, {"byte", "trained-byte"}, {"bpe:500", "trained-bpe"}};
  (void)state;
  heed_context *context = test_context(NULL);
  char *data, path[512];
  int64_t size;
  ok(context, hd_file_load(context, FIXTURE "trained.txt", 1 << 20, &data, &size));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    heed_tokenizer *made = train(context, cases[i].kind, (heed_text){data, (size_t)size}), *loaded = reload(context, made);
    snprintf(path, sizeof path, FIXTURE "%s.json", cases[i].name);
    json_t *wanted = read_json(path), *got = read_json(in_folder("tokenizer.json"));
    assert_true(json_equal(got, wanted));
    // Hugging Face keeps the order of merges, so the order must be equal too: json_equal compares arrays element by element.
    json_decref(wanted);
    json_decref(got);
    snprintf(path, sizeof path, FIXTURE "%s.expected.json", cases[i].name);
    expect_cases(context, made, path);
    expect_cases(context, loaded, path);
    int32_t *ids;
    int64_t count;
    size_t length;
    ok(context, heed_encode(context, loaded, (heed_text){data, (size_t)size}, NULL, &ids, &count));
    char *back = decode_all(context, loaded, NULL, ids, count, &length);
    assert_true((int64_t)length == size && memcmp(back, data, length) == 0);
    free(back);
    heed_ids_free(context, ids, count);
    heed_tokenizer_free(made);
    heed_tokenizer_free(loaded);
  }
  hd_release(context, data, size + 1, 1);
  heed_context_free(context);
}

static void loaded_tokenizers_are_saved_as_they_were(void **state) {
  static const char *const names[] = {"gpt2",   "smollm",    "llama3",       "qwen2",      "other_pattern",
                                      "llama2", "metaspace", "bert-uncased", "bert-cased", "bert-accents"};
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    heed_tokenizer *first;
    heed_tokenizer_info before = {.size = sizeof before}, after = before;
    snprintf(path, sizeof path, FIXTURE "%s.json", names[i]);
    ok(context, heed_tokenizer_load(context, path, &first));
    heed_tokenizer *second = reload(context, first);
    assert_int_equal(heed_tokenizer_describe(first, &before), HEED_OK);
    assert_int_equal(heed_tokenizer_describe(second, &after), HEED_OK);
    assert_memory_equal(before.before, after.before, (size_t)before.before_count * sizeof *before.before);
    assert_memory_equal(before.after, after.after, (size_t)before.after_count * sizeof *before.after);
    before.before = after.before; // each tokenizer's own memory
    before.after = after.after;
    assert_memory_equal(&before, &after, sizeof before);
    snprintf(path, sizeof path, FIXTURE "%s.expected.json", names[i]);
    expect_cases(context, second, path);
    heed_tokenizer_free(first);
    heed_tokenizer_free(second);
  }
  heed_tokenizer *scored;
  ok(context, heed_tokenizer_load(context, HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf", &scored));
  assert_int_equal(heed_tokenizer_save(context, scored, test_folder), HEED_E_UNSUPPORTED);
  heed_tokenizer_free(scored);
  heed_context_free(context);
}

/* ---- against the definition ------------------------------------------------------------------------------------------------- */

enum { MOST_WORDS = 400, MOST_SYMBOLS = 40, MOST_MERGES = 300 };

typedef struct naive {
  int32_t symbol[MOST_WORDS][MOST_SYMBOLS];
  int length[MOST_WORDS];
  int words;
} naive;

/* The pair that stands most often, of equals the one with the smaller ids: every window of every word is counted anew. */
static bool most_frequent(const naive *n, int32_t tokens, int32_t best[2]) {
  static int count[256 + MOST_MERGES][256 + MOST_MERGES];
  int most = 0;
  memset(count, 0, sizeof count);
  for (int w = 0; w < n->words; w++)
    for (int i = 0; i + 1 < n->length[w]; i++) count[n->symbol[w][i]][n->symbol[w][i + 1]]++;
  for (int32_t a = 0; a < tokens; a++)
    for (int32_t b = 0; b < tokens; b++)
      if (count[a][b] > most) most = count[a][b], best[0] = a, best[1] = b;
  return most > 0;
}

static void merge_everywhere(naive *n, const int32_t pair[2], int32_t merged) {
  for (int w = 0; w < n->words; w++) {
    int kept = 0;
    for (int i = 0; i < n->length[w]; i++, kept++) {
      bool here = i + 1 < n->length[w] && n->symbol[w][i] == pair[0] && n->symbol[w][i + 1] == pair[1];
      n->symbol[w][kept] = here ? merged : n->symbol[w][i];
      i += here;
    }
    n->length[w] = kept;
  }
}

/* A text of words of a few letters, and the words as symbols: with GPT-2's cuts, each is a piece that begins with its space. */
static size_t random_words(uint32_t seed, int letters, const heed_tokenizer *alphabet, naive *n, char *text) {
  size_t length = 0;
  n->words = 0;
  for (uint32_t w = 0; w < MOST_WORDS; w++) {
    uint32_t r[4];
    hd_philox((uint32_t[4]){w, seed}, 11, r);
    const int size = 1 + (int)(r[0] % 12);
    n->length[w] = 0;
    text[length++] = ' ';
    for (int i = 0; i < size; i++) text[length++] = (char)('a' + (r[1 + i % 3] >> (2 * i)) % (uint32_t)letters);
    for (size_t i = length - (size_t)size - 1; i < length; i++)
      n->symbol[w][n->length[w]++] = heed_token_find(alphabet, (heed_text){text + i, 1});
    n->words++;
  }
  return length;
}

static void merges_are_the_most_frequent_pairs(void **state) {
  static naive n;
  static char text[MOST_WORDS * MOST_SYMBOLS];
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *alphabet = train(context, "bpe:256", text_of(""));
  for (uint32_t seed = 0; seed < 12; seed++) {
    char kind[16];
    const int merges = 10 + 20 * (int)seed;
    const size_t length = random_words(seed, 1 + (int)seed % 6, alphabet, &n, text);
    snprintf(kind, sizeof kind, "bpe:%d", 256 + merges);
    heed_tokenizer *made = train(context, kind, (heed_text){text, length});
    hd_pair *learned = malloc((size_t)hd_pairs_count(&made->pairs) * sizeof *learned);
    hd_pairs_list(&made->pairs, learned);
    int i = 0;
    for (int32_t best[2] = {0}; i < merges && most_frequent(&n, 256 + i, best); i++) {
      assert_true(i < hd_pairs_count(&made->pairs));
      if (learned[i].left != best[0] || learned[i].right != best[1])
        fail_msg("seed %d, merge %d: (%d, %d), expected (%d, %d)", (int)seed, i, (int)learned[i].left, (int)learned[i].right, (int)best[0],
                 (int)best[1]);
      merge_everywhere(&n, best, 256 + i);
    }
    assert_int_equal(hd_pairs_count(&made->pairs), i);
    assert_int_equal(made->vocabulary.count, 256 + i);
    free(learned);
    heed_tokenizer_free(made);
  }
  heed_tokenizer_free(alphabet);
  heed_context_free(context);
}

/* ---- what is refused, memory, time -------------------------------------------------------------------------------------------- */

static void what_cannot_be_trained_is_said(void **state) {
  static const struct {
    const char *kind;
    heed_text text;
    heed_status status;
    const char *fragment;
  } cases[] = {
      {"char", {"ab\xFF", 3}, HEED_E_FORMAT, "byte 2 of 3"},       {"char", {"", 0}, HEED_E_ARGUMENT, "empty"},
      {"char", {"a\0b", 3}, HEED_E_FORMAT, "NUL (byte 1)"},        {"bpe:300", {"\xC3\xA9\x80", 3}, HEED_E_FORMAT, "byte 2 of 3"},
      {"bpe:255", {"", 0}, HEED_E_ARGUMENT, "from 256"},           {"bpe:", {"", 0}, HEED_E_ARGUMENT, "from 256"},
      {"bpe:1e3", {"", 0}, HEED_E_ARGUMENT, "\"bpe:1e3\""},        {"bpe:99999999999999999999", {"", 0}, HEED_E_ARGUMENT, "from 256"},
      {"chars", {"", 0}, HEED_E_ARGUMENT, "char, byte, bpe:N"},    {"words\n", {"", 0}, HEED_E_ARGUMENT, "\\x0a"},
      {"word", {" \n ", 3}, HEED_E_ARGUMENT, "no words"},          {"word:0", {"a", 1}, HEED_E_ARGUMENT, "from 1 "},
      {"word", {"\xC3\xA9\x80", 3}, HEED_E_FORMAT, "byte 2 of 3"},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    heed_status status = heed_tokenizer_train(context, cases[i].kind, cases[i].text, NULL, &tokenizer);
    if (status != cases[i].status || !strstr(heed_error(context), cases[i].fragment))
      fail_msg("%s: %s: %s", cases[i].kind, heed_status_name(status), heed_error(context));
    assert_null(tokenizer);
  }
  heed_context_free(context);
}

/* By hand: the most frequent first, of equals the smaller bytes; what is no word of the text is unknown. */
static void words_are_counted(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static const char *const special[] = {"<pad>", "</s>"};
  static const char *const names[] = {"<unk>", "the", ".", ":", "cat", "dog", "end", "gato", "sat", "él", "<pad>", "</s>"};
  const heed_tokenizer_train_options options = {.size = sizeof options, .special = special, .special_count = 2, .end = "</s>"};
  heed_tokenizer *made, *few, *loaded;
  heed_tokenizer_info info = {.size = sizeof info};
  size_t length;
  ok(context, heed_tokenizer_train(context, "word", text_of("the cat sat.\nthe dog: the end\n\nél gato"), &options, &made));
  ok(context, heed_tokenizer_describe(made, &info));
  assert_int_equal(info.vocabulary, HD_COUNT(names));
  assert_true(info.unknown == 0 && info.pad == 10 && info.eos == 11 && info.bos == -1);
  loaded = reload(context, made);
  const heed_tokenizer *const both[] = {made, loaded};
  for (int i = 0; i < 2; i++) {
    for (int32_t id = 0; id < info.vocabulary; id++) {
      const bool word = id > 0 && id < 10; // kept with the space before it
      const heed_text text = heed_token_text(both[i], id);
      assert_int_equal(text.length, strlen(names[id]) + word);
      assert_memory_equal(text.data + word, names[id], strlen(names[id]));
    }
    expect_ids(context, both[i], text_of("The the  élan él. bird <unk>"), NULL, (int32_t[]){0, 1, 0, 9, 2, 0, 0, 0, 0}, 9);
    expect_ids(context, both[i], text_of("el él gato"), &everything, (int32_t[]){0, 9, 7, 11}, 4);
    char *text = decode_all(context, both[i], NULL, (int32_t[]){1, 4, 8, 11}, 4, &length);
    assert_string_equal(text, "the cat sat");
    free(text);
  }
  ok(context, heed_tokenizer_train(context, "word:2", text_of("a b b c c c"), NULL, &few));
  expect_ids(context, few, text_of("a b c"), NULL, (int32_t[]){0, 2, 1}, 3);
  heed_tokenizer_free(few);
  heed_tokenizer_free(loaded);
  heed_tokenizer_free(made);
  heed_context_free(context);
}

static void bytes_take_any_text(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = train(context, "byte", text_of(""));
  char all[256];
  int32_t ids[256];
  for (int i = 0; i < 256; i++) all[i] = (char)i, ids[i] = i;
  expect_ids(context, tokenizer, (heed_text){all, 256}, NULL, ids, 256);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* Special tokens come last, are no text unless one says so, and are read back. */
static void special_tokens(void **state) {
  (void)state;
  static const char *const kinds[] = {"char", "byte", "bpe:270"}, *const names[] = {"[CLS]", "[MASK]"};
  const heed_tokenizer_train_options options = {.size = sizeof options, .special = names, .special_count = 2};
  const heed_encode_options parse = {.size = sizeof parse, .parse_special = true};
  heed_context *context = test_context(NULL);
  for (int i = 0; i < 3; i++) {
    heed_tokenizer *plain = train(context, kinds[i], text_of("a b [MASK] ab ab")), *made;
    heed_tokenizer_info info = {.size = sizeof info};
    ok(context, heed_tokenizer_describe(plain, &info));
    const int64_t n = info.vocabulary;
    assert_int_equal(info.mask, -1);
    ok(context, heed_tokenizer_train(context, kinds[i], text_of("a b [MASK] ab ab"), &options, &made));
    for (int saved = 0; saved < 2; saved++) {
      ok(context, heed_tokenizer_describe(made, &info));
      assert_int_equal(info.vocabulary, n + 2);
      assert_int_equal(info.mask, n + 1);
      assert_int_equal(heed_token_find(made, text_of("[CLS]")), n);
      int32_t *ids, *same;
      int64_t count, same_count;
      ok(context, heed_encode(context, made, text_of("a[MASK]b"), &parse, &ids, &count));
      assert_int_equal(count, 3);
      assert_int_equal(ids[1], n + 1);
      heed_ids_free(context, ids, count);
      ok(context, heed_encode(context, made, text_of("a[MASK]b"), NULL, &ids, &count));
      ok(context, heed_encode(context, plain, text_of("a[MASK]b"), NULL, &same, &same_count));
      assert_int_equal(count, same_count);
      assert_memory_equal(ids, same, (size_t)count * sizeof *ids);
      heed_ids_free(context, ids, count);
      heed_ids_free(context, same, same_count);
      heed_tokenizer *again = saved ? NULL : reload(context, made);
      heed_tokenizer_free(made);
      made = again;
    }
    heed_tokenizer_free(plain);
    const heed_tokenizer_train_options nameless = {.size = sizeof nameless, .special = (const char *const[]){""}, .special_count = 1};
    assert_int_equal(heed_tokenizer_train(context, kinds[i], text_of("a"), &nameless, &made), HEED_E_ARGUMENT);
    assert_null(made);
  }
  heed_context_free(context);
}

static heed_status train_and_save(heed_context *context, const char *path) {
  static const char text[] = "the cat sat on the mat, the cat sat on the mat again";
  static const char *const kinds[] = {"char", "byte", "bpe:280", "word"};
  (void)path;
  for (int i = 0; i < HD_COUNT(kinds); i++) {
    heed_tokenizer *tokenizer;
    HD_TRY(heed_tokenizer_train(context, kinds[i], text_of(text), NULL, &tokenizer));
    heed_status status = heed_tokenizer_save(context, tokenizer, test_folder);
    heed_tokenizer_free(tokenizer);
    HD_TRY(status);
  }
  return HEED_OK;
}

static void memory_that_runs_out_leaves_nothing(void **state) {
  (void)state;
  check_out_of_memory(train_and_save, test_folder);
}

static void a_megabyte_is_learned_within_two_seconds(void **state) {
  enum { LENGTH = 1 << 20 };
  static char text[LENGTH];
  (void)state;
  heed_context *context = test_context(NULL);
  size_t length = 0;
  for (uint32_t w = 0; length + 16 < LENGTH; w++) { // about 30,000 different words, the short ones often
    uint32_t r[4];
    hd_philox((uint32_t[4]){w}, 5, r);
    text[length++] = ' ';
    for (uint32_t i = 0; i < 2 + r[0] % 7; i++) text[length++] = (char)('a' + (r[1] >> (3 * i)) % 8 * 3 % (2 + r[2] % 24));
  }
  const double begin = processor_seconds();
  heed_tokenizer *tokenizer = train(context, "bpe:1024", (heed_text){text, length});
  const double seconds = processor_seconds() - begin;
  print_message("1024 tokens of 1 MB: %.3f s\n", seconds);
  assert_true(seconds < 2.0 * SANITIZER_FACTOR);
  assert_int_equal(tokenizer->vocabulary.count, 1024);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_gives_the_files_and_ids_of_the_reference),
      cmocka_unit_test(loaded_tokenizers_are_saved_as_they_were),
      cmocka_unit_test(merges_are_the_most_frequent_pairs),
      cmocka_unit_test(what_cannot_be_trained_is_said),
      cmocka_unit_test(words_are_counted),
      cmocka_unit_test(bytes_take_any_text),
      cmocka_unit_test(special_tokens),
      cmocka_unit_test(memory_that_runs_out_leaves_nothing),
      cmocka_unit_test(a_megabyte_is_learned_within_two_seconds),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
