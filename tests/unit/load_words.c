/* load_words: a vocab.txt alone: ids are line numbers however lines end, words become their longest tokens, and the configuration beside it says what a text goes through. */
#include "folder.h"
#include "text_test.h"

#include <unistd.h>

/* Of a vocab.txt, and a tokenizer_config.json beside it unless NULL. */
static heed_tokenizer *tokenizer_of(heed_context *context, const char *words, const char *config) {
  heed_tokenizer *tokenizer;
  unlink(in_folder("tokenizer.json"));
  unlink(in_folder("tokenizer_config.json"));
  write_file("vocab.txt", words, strlen(words));
  if (config) write_file("tokenizer_config.json", config, strlen(config));
  ok(context, heed_tokenizer_load(context, test_folder, &tokenizer));
  return tokenizer;
}

#define HEAD "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"
enum { PAD, UNK, CLS, SEP, FIRST };
#define EXPECT(context, tokenizer, text, ...)                                                                                              \
  expect_ids(context, tokenizer, text_of(text), NULL, (const int32_t[]){__VA_ARGS__}, (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / 4))

static void a_line_is_a_token(void **state) {
  static const char *const files[] = {HEAD "play\n##ing\n##i\n##ng\n.\nplaying\n", HEAD "play\n##ing\n##i\n##ng\n.\nplaying",
                                      "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nplay\r\n##ing\r\n##i\r\n##ng\r\n.\r\nplaying\r\n"};
  static const heed_encode_options around = {.size = sizeof around, .add_special = true};
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    heed_tokenizer *tokenizer = tokenizer_of(context, files[i], NULL);
    heed_tokenizer_info info = {.size = sizeof info};
    assert_int_equal(heed_tokenizer_describe(tokenizer, &info), HEED_OK);
    assert_int_equal(info.vocabulary, FIRST + 6);
    assert_true(info.unknown == UNK && info.bos == CLS && info.eos == SEP && info.pad == PAD && info.mask == -1);
    EXPECT(context, tokenizer, "playing", FIRST + 5);      // the longest
    EXPECT(context, tokenizer, "Playi", FIRST, FIRST + 2); // lower case, as BERT's own
    EXPECT(context, tokenizer, "playx", UNK);              // nothing of a word stays that cannot be made whole
    EXPECT(context, tokenizer, "ing", UNK);                // only inside a word
    EXPECT(context, tokenizer, "play.", FIRST, FIRST + 4);
    expect_ids(context, tokenizer, text_of("play"), &around, (const int32_t[]){CLS, FIRST, SEP}, 3);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

/* It has an id, as those behind it have theirs; no word becomes it, not even the beginning of one. */
static void an_empty_line(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = tokenizer_of(context, HEAD "\n##x\na\n", NULL), *again;
  assert_int_equal(heed_token_text(tokenizer, FIRST).length, 0);
  ok(context, heed_tokenizer_save(context, tokenizer, test_folder));
  ok(context, heed_tokenizer_load(context, in_folder("tokenizer.json"), &again));
  for (int saved = 0; saved < 2; saved++) {
    heed_tokenizer *t = saved ? again : tokenizer;
    EXPECT(context, t, "x", UNK);
    EXPECT(context, t, "ax a", FIRST + 2, FIRST + 1, FIRST + 2);
  }
  heed_tokenizer_free(tokenizer);
  heed_tokenizer_free(again);
  heed_context_free(context);
}

static void long_words(void **state) {
  enum { MOST = 100 };
  (void)state;
  heed_context *context = test_context(NULL);
  heed_tokenizer *tokenizer = tokenizer_of(context, HEAD "é\n##é\n", "{\"strip_accents\": false}");
  char text[2 * MOST + 3] = "";
  int32_t ids[MOST];
  for (int i = 0; i < MOST; i++) {
    strcat(text, "é");
    ids[i] = FIRST + (i > 0);
  }
  expect_ids(context, tokenizer, text_of(text), NULL, ids, MOST); // characters, not bytes
  strcat(text, "é");
  EXPECT(context, tokenizer, text, UNK);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void the_configuration_beside_it(void **state) {
  static const struct {
    const char *config;
    int32_t upper, accent; /* of "A" and "á" */
    bool cuts;             /* between Chinese characters */
  } cases[] = {{NULL, FIRST, FIRST, true},
               {"{}", FIRST, FIRST, true},
               {"{\"model_max_length\": 1000000000000000019884624838656}", FIRST, FIRST, true},
               {"{\"do_lower_case\": false}", FIRST + 1, FIRST + 2, true}, // accents then stay too
               {"{\"do_lower_case\": false, \"strip_accents\": true}", FIRST + 1, FIRST, true},
               {"{\"strip_accents\": false}", FIRST, FIRST + 2, true},
               {"{\"tokenize_chinese_chars\": false}", FIRST, FIRST, false}};
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    heed_tokenizer *tokenizer = tokenizer_of(context, HEAD "a\nA\ná\n中\n", cases[i].config);
    EXPECT(context, tokenizer, "A", cases[i].upper);
    EXPECT(context, tokenizer, "á", cases[i].accent);
    if (cases[i].cuts) EXPECT(context, tokenizer, "中中", FIRST + 3, FIRST + 3);
    else EXPECT(context, tokenizer, "中中", UNK);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_line_is_a_token),
      cmocka_unit_test(an_empty_line),
      cmocka_unit_test(long_words),
      cmocka_unit_test(the_configuration_beside_it),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
