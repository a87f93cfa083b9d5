/* spm: SentencePiece's BPE on small vocabularies: scores, spaces, bytes for what has no token, the space in front, and how long it may take. */
#include <time.h>

#include "spec_test.h"

#include <math.h>

static void spec_scored(spec_test *test) {
  spec_begin(test, false);
  test->spec.settings.scored = test->spec.settings.byte_fallback = true;
  test->spec.settings.unknown = test->spec.settings.stand_in = spec_add(test, "<unk>", 0, HD_UNKNOWN);
}

static void the_best_score_merges_first_and_the_left_of_equals(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  int32_t a = spec_add(&test, "a", -9, HD_NORMAL), b = spec_add(&test, "b", -9, HD_NORMAL), c = spec_add(&test, "c", -9, HD_NORMAL);
  int32_t ab = spec_add(&test, "ab", -2, HD_NORMAL), bc = spec_add(&test, "bc", -1, HD_NORMAL),
          aa = spec_add(&test, "aa", -0.0f, HD_NORMAL);
  int32_t abc = spec_add(&test, "abc", 3, HD_NORMAL);
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("ab"), NULL, (int32_t[]){ab}, 1);
  expect_ids(context, tokenizer, text_of("abc"), NULL, (int32_t[]){abc}, 1); // by a + bc, although abc is also ab + c
  expect_ids(context, tokenizer, text_of("bbc"), NULL, (int32_t[]){b, bc}, 2);
  expect_ids(context, tokenizer, text_of("aaab"), NULL, (int32_t[]){aa, ab}, 2);
  expect_ids(context, tokenizer, text_of("aaa"), NULL, (int32_t[]){aa, a}, 2);
  expect_ids(context, tokenizer, text_of("ca"), NULL, (int32_t[]){c, a}, 2);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* The definition: while two neighbours make a token, merge those with the best score, the first of equals. */
static int64_t merge_naively(const heed_tokenizer *tokenizer, const char *text, size_t length, int32_t *ids) {
  size_t end[256];
  int64_t count = (int64_t)length;
  for (size_t i = 0; i < length; i++) end[i] = i + 1;
  for (;;) {
    int64_t at = -1;
    float best = 0;
    for (int64_t i = 0; i + 1 < count; i++) {
      size_t begin = i ? end[i - 1] : 0;
      int32_t id = hd_vocabulary_find(&tokenizer->vocabulary, text + begin, end[i + 1] - begin);
      if (id >= 0 && (at < 0 || tokenizer->vocabulary.score[id] > best)) at = i, best = tokenizer->vocabulary.score[id];
    }
    if (at < 0) break;
    memmove(end + at, end + at + 1, (size_t)(count - at - 1) * sizeof *end);
    count--;
  }
  for (int64_t i = 0; i < count; i++) {
    size_t begin = i ? end[i - 1] : 0;
    ids[i] = hd_vocabulary_find(&tokenizer->vocabulary, text + begin, end[i] - begin);
  }
  return count;
}

static void the_heap_merges_as_the_definition_says(void **state) {
  static spec_test test;
  static char texts[64][16];
  (void)state;
  heed_context *context = test_context(NULL);
  srand(20261129);
  for (int round = 0; round < 60; round++) {
    spec_scored(&test);
    for (int i = 0; i < 60; i++) {
      int length = i < 3 ? 1 : 2 + rand() % 7;
      for (int k = 0; k < length; k++) texts[i][k] = (char)(i < 3 ? 'a' + i : 'a' + rand() % 3);
      texts[i][length] = 0;
      bool known = false;
      for (int k = 0; k < i; k++) known = known || strcmp(texts[k], texts[i]) == 0;
      if (!known) spec_add(&test, texts[i], (float)(rand() % 9 - 4), HD_NORMAL); // few scores: many ties
    }
    heed_tokenizer *tokenizer = spec_build(context, &test);
    for (int k = 0; k < 50; k++) {
      char text[200];
      int32_t ids[200];
      size_t length = (size_t)(rand() % 200);
      for (size_t i = 0; i < length; i++) text[i] = (char)('a' + rand() % (k % 3 + 1));
      expect_ids(context, tokenizer, (heed_text){text, length}, NULL, ids, merge_naively(tokenizer, text, length, ids));
    }
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

static void what_has_no_token_becomes_bytes(void **state) {
  static spec_test test;
  static char names[256][8];
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  int32_t a = spec_add(&test, "a", 0, HD_NORMAL), both = spec_add(&test, "aé", 0, HD_NORMAL), first = (int32_t)test.spec.token_count;
  for (int i = 0; i < 256; i++) {
    snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
    spec_add(&test, names[i], 0, HD_BYTE);
  }
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("é"), NULL, (int32_t[]){first + 0xC3, first + 0xA9}, 2);
  expect_ids(context, tokenizer, text_of("aéa"), NULL, (int32_t[]){both, a}, 2); // é is no token, but part of one
  expect_ids(context, tokenizer, text_of("<0x41>"), NULL,
             (int32_t[]){first + '<', first + '0', first + 'x', first + '4', first + '1', first + '>'}, 6);
  assert_int_equal(heed_token_find(tokenizer, text_of("<0x41>")), first + 0x41);
  assert_int_equal(heed_token_find(tokenizer, text_of("A")), -1);
  assert_int_equal(heed_token_text(tokenizer, first + 0x41).length, 1);
  assert_memory_equal(heed_token_text(tokenizer, first + 0x41).data, "A", 1);
  heed_tokenizer_free(tokenizer);
  // One byte of 256 missing: characters that need it are unknown, others are not.
  test.tokens[first + 0xA9] = (hd_token){.text = text_of("other"), .kind = HD_UNUSED};
  test.spec.settings.fuse_unknown = true;
  tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("ééè"), NULL, (int32_t[]){0, first + 0xC3, first + 0xA8}, 3);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void spaces_and_what_stands_for_them(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  int32_t s = spec_add(&test, "▁", -1, HD_NORMAL), a = spec_add(&test, "a", -2, HD_NORMAL), sa = spec_add(&test, "▁a", -3, HD_NORMAL);
  int32_t mark = spec_add(&test, "<m>", 0, HD_CONTROL);
  const heed_encode_options parsing = {.size = sizeof parsing, .parse_special = true};
  const struct {
    hd_prefix prefix;
    const char *text;
    int32_t ids[6];
    int64_t count;
  } cases[] = {
      {HD_PREFIX_NEVER, "a", {a}, 1},
      {HD_PREFIX_NEVER, " a▁a", {sa, sa}, 2},
      {HD_PREFIX_EVERY, "a<m>a", {sa, mark, sa}, 3},
      {HD_PREFIX_EVERY, " a", {s, sa}, 2},
      {HD_PREFIX_FIRST, "a<m>a", {sa, mark, a}, 3},
      {HD_PREFIX_FIRST, "<m>a", {mark, a}, 2},
      {HD_PREFIX_FIRST, " a", {sa}, 1},
      {HD_PREFIX_UNLESS_SPACE, "a<m>a<m> a", {sa, mark, sa, mark, sa}, 5},
      {HD_PREFIX_UNLESS_SPACE, "▁a", {sa}, 1},
      {HD_PREFIX_EVERY, "", {0}, 0},
      {HD_PREFIX_EVERY, "<m>", {mark}, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test.spec.settings.prefix = cases[i].prefix;
    heed_tokenizer *tokenizer = spec_build(context, &test);
    expect_ids(context, tokenizer, text_of(cases[i].text), &parsing, cases[i].ids, cases[i].count);
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

static void words_may_be_walls(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  int32_t s = spec_add(&test, "▁", -1, HD_NORMAL), a = spec_add(&test, "a", -1, HD_NORMAL), as = spec_add(&test, "a▁", 5, HD_NORMAL);
  int32_t sa = spec_add(&test, "▁a", 1, HD_NORMAL);
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("a a"), NULL, (int32_t[]){as, a}, 2);
  heed_tokenizer_free(tokenizer);
  test.spec.settings.cut_at_spaces = true;
  tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("a a  "), NULL, (int32_t[]){a, sa, s, s}, 4);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* Text must not be able to forge a control token, even where merging could build its name. */
static void control_tokens_do_not_come_from_merging(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  int32_t lower = spec_add(&test, "<", 0, HD_NORMAL), s = spec_add(&test, "s", 0, HD_NORMAL), upper = spec_add(&test, ">", 0, HD_NORMAL);
  int32_t half = spec_add(&test, "<s", 0, HD_NORMAL), control = spec_add(&test, "<s>", 9, HD_CONTROL);
  const heed_encode_options parsing = {.size = sizeof parsing, .parse_special = true};
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("<s>"), NULL, (int32_t[]){half, upper}, 2);
  expect_ids(context, tokenizer, text_of("<s>"), &parsing, (int32_t[]){control}, 1);
  expect_ids(context, tokenizer, text_of("s<"), NULL, (int32_t[]){s, lower}, 2);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void a_score_is_a_number(void **state) {
  static spec_test test;
  heed_tokenizer *tokenizer;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  spec_add(&test, "a", NAN, HD_NORMAL);
  assert_int_equal(hd_tokenizer_new(context, &test.spec, &tokenizer), HEED_E_FORMAT);
  assert_null(tokenizer);
  assert_non_null(strstr(heed_error(context), "test: tokens: token 1 has a score that is not a number"));
  heed_context_free(context);
}

static void a_megabyte_of_one_letter_takes_less_than_a_second(void **state) {
  enum { LENGTH = 1 << 20 };
  static spec_test test;
  static char texts[11][1 << 11], text[LENGTH];
  (void)state;
  heed_context *context = test_context(NULL);
  spec_scored(&test);
  for (int i = 0; i < 5; i++) { // a, aa, aaaa, ... 16, as long as the tokens of models in use
    memset(texts[i], 'a', (size_t)1 << i);
    spec_add(&test, texts[i], (float)-i, HD_NORMAL);
  }
  heed_tokenizer *tokenizer = spec_build(context, &test);
  int64_t count;
  memset(text, 'a', sizeof text);
  double seconds = encoding_seconds(context, tokenizer, (heed_text){text, sizeof text}, &count);
  print_message("1 MB of one letter: %.3f s\n", seconds);
  assert_int_equal(count, LENGTH / 16);
  assert_true(seconds < 1.0 * SANITIZER_FACTOR);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_score_merges_first_and_the_left_of_equals),
      cmocka_unit_test(the_heap_merges_as_the_definition_says),
      cmocka_unit_test(what_has_no_token_becomes_bytes),
      cmocka_unit_test(spaces_and_what_stands_for_them),
      cmocka_unit_test(words_may_be_walls),
      cmocka_unit_test(control_tokens_do_not_come_from_merging),
      cmocka_unit_test(a_score_is_a_number),
      cmocka_unit_test(a_megabyte_of_one_letter_takes_less_than_a_second),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
