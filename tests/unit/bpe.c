/* bpe: byte-level BPE on small vocabularies: spelling, order of merges, pieces, patterns, and how long it may take. */
#include <time.h>

#include "spec_test.h"

#include "../../src/text/utf8.h"

/* ---- UTF-8 ---------------------------------------------------------------------------------------------------------------- */

static void every_character_is_read(void **state) {
  (void)state;
  for (uint32_t code = 0; code < 0x110000; code++) {
    char bytes[4];
    int size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = size - 1; i > 0; i--) bytes[i] = (char)(0x80 | (code >> 6 * (size - 1 - i) & 63));
    bytes[0] = (char)(size == 1 ? code : (0xF00u >> size & 0xFF) | code >> 6 * (size - 1));
    uint32_t read = 0;
    bool surrogate = code >= 0xD800 && code < 0xE000;
    if (hd_utf8_next(bytes, 4, &read) != (surrogate ? -1 : size) || (!surrogate && read != code)) fail_msg("U+%04X", (unsigned)code);
    for (int cut = 1; cut < size && !surrogate; cut++) assert_int_equal(hd_utf8_next(bytes, (size_t)cut, &read), 0);
  }
}

static void what_is_no_character_is_measured(void **state) {
  static const struct {
    const char *bytes;
    size_t length;
    int result;
  } cases[] = {
      {"", 0, 0},
      {"\x80", 1, -1},
      {"\xC0\x80", 2, -1},
      {"\xC1\xBF", 2, -1},
      {"\xE0\x80\x80", 3, -1},
      {"\xE0\x9F", 2, -1},
      {"\xE2\x82x", 3, -2},
      {"\xED\xA0\x80", 3, -1},
      {"\xF0\x8F\xBF\xBF", 4, -1},
      {"\xF0\x9F\x92x", 4, -3},
      {"\xF4\x90", 2, -1},
      {"\xF5\x80\x80\x80", 4, -1},
      {"\xFF", 1, -1},
      {"\xE2\x82", 2, 0},
      {"\xF0\x9F\x92", 3, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t code;
    assert_int_equal(hd_utf8_next(cases[i].bytes, cases[i].length, &code), cases[i].result);
  }
}

static void the_alphabet_spells_every_byte_once(void **state) {
  bool seen[256] = {false};
  int found = 0;
  (void)state;
  for (uint32_t code = 1; code < 0x400; code++) {
    char spelling[2] = {(char)code}, byte = 0;
    size_t size = 1, length;
    if (code >= 0x80) spelling[0] = (char)(0xC0 | code >> 6), spelling[1] = (char)(0x80 | (code & 63)), size = 2;
    if (!hd_bpe_unspell((heed_text){spelling, size}, &byte, &length)) continue;
    assert_int_equal(length, 1);
    assert_false(seen[(unsigned char)byte]);
    seen[(unsigned char)byte] = true;
    found++;
  }
  assert_int_equal(found, 256);
  char byte;
  size_t length;
  assert_true(hd_bpe_unspell(text_of("Ġ"), &byte, &length) && byte == ' ');
  assert_true(hd_bpe_unspell(text_of("Ċ"), &byte, &length) && byte == '\n');
  assert_false(hd_bpe_unspell(text_of(" "), &byte, &length));
}

/* ---- merging -------------------------------------------------------------------------------------------------------------- */

static void ranks_decide_and_the_left_of_equals(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_begin(&test, true);
  int32_t a = spec_add(&test, "a", 0, HD_NORMAL), b = spec_add(&test, "b", 0, HD_NORMAL);
  int32_t ba = spec_add(&test, "ba", 0, HD_NORMAL), ab = spec_add(&test, "ab", 0, HD_NORMAL), aa = spec_add(&test, "aa", 0, HD_NORMAL);
  int32_t aab = spec_add(&test, "aab", 0, HD_NORMAL);
  spec_add_merge(&test, "b a");
  spec_add_merge(&test, "a b");
  spec_add_merge(&test, "a a");
  spec_add_merge(&test, "aa b");
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("aba"), NULL, (int32_t[]){a, ba}, 2);
  expect_ids(context, tokenizer, text_of("aaa"), NULL, (int32_t[]){aa, a}, 2);
  expect_ids(context, tokenizer, text_of("aaaaa"), NULL, (int32_t[]){aa, aa, a}, 3);
  // "a b" comes before "a a": the token aab exists, but nothing leads to it.
  expect_ids(context, tokenizer, text_of("aab"), NULL, (int32_t[]){a, ab}, 2);
  expect_ids(context, tokenizer, text_of("bb"), NULL, (int32_t[]){b, b}, 2);
  heed_tokenizer_free(tokenizer);
  test.spec.settings.whole_words = true;
  tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("aab"), NULL, (int32_t[]){aab}, 1);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* The definition, in O(n² · merges): while any listed pair stands somewhere, merge the first such pair of the lowest rank. */
static int64_t merge_naively(const heed_tokenizer *tokenizer, int32_t *ids, int64_t count) {
  for (;;) {
    const hd_pair *best = NULL;
    int64_t at = 0;
    for (int64_t i = 0; i + 1 < count; i++) {
      const hd_pair *pair = hd_pairs_find(&tokenizer->pairs, ids[i], ids[i + 1]);
      if (pair && (!best || pair->rank < best->rank)) best = pair, at = i;
    }
    if (!best) return count;
    ids[at] = best->merged;
    memmove(ids + at + 1, ids + at + 2, (size_t)(count - at - 2) * sizeof *ids);
    count--;
  }
}

static void concatenate(char *out, const char *a, const char *b, const char *c) {
  const char *parts[] = {a, b, c};
  for (int i = 0; i < 3; i++)
    for (const char *from = parts[i]; *from;) *out++ = *from++;
  *out = 0;
}

static void the_heap_merges_as_the_definition_says(void **state) {
  static spec_test test;
  static char texts[300][64], merges[300][140];
  (void)state;
  heed_context *context = test_context(NULL);
  srand(20261129);
  for (int round = 0; round < 60; round++) {
    spec_begin(&test, true);
    for (int i = 0; i < 3; i++) texts[i][0] = (char)('a' + i), texts[i][1] = 0, spec_add(&test, texts[i], 0, HD_NORMAL);
    // Merges of random tokens, in random order: some are never reached, some compete.
    while (test.spec.token_count < 40) {
      const char *left = texts[rand() % test.spec.token_count], *right = texts[rand() % test.spec.token_count];
      char *joined = texts[test.spec.token_count];
      if (strlen(left) + strlen(right) > 12) continue;
      concatenate(joined, left, "", right);
      bool known = false;
      for (int64_t i = 0; i < test.spec.token_count; i++) known = known || strcmp(texts[i], joined) == 0;
      if (!known) spec_add(&test, joined, 0, HD_NORMAL);
      concatenate(merges[test.spec.merge_count], left, " ", right);
      spec_add_merge(&test, merges[test.spec.merge_count]);
      if (test.spec.merge_count == 300) break;
    }
    for (int64_t i = test.spec.merge_count - 1; i > 0; i--) {
      int64_t j = rand() % (i + 1);
      const char *swap = test.merges[i];
      test.merges[i] = test.merges[j];
      test.merges[j] = swap;
    }
    heed_tokenizer *tokenizer = spec_build(context, &test);
    for (int k = 0; k < 50; k++) {
      char text[200];
      int32_t ids[200];
      int64_t count = rand() % 200;
      for (int64_t i = 0; i < count; i++) {
        text[i] = (char)('a' + rand() % (k % 3 + 1));
        ids[i] = text[i] - 'a';
      }
      expect_ids(context, tokenizer, (heed_text){text, (size_t)count}, NULL, ids, merge_naively(tokenizer, ids, count));
    }
    heed_tokenizer_free(tokenizer);
  }
  heed_context_free(context);
}

static void bytes_without_a_token(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_begin(&test, true);
  int32_t a = spec_add(&test, "a", 0, HD_NORMAL), unknown = spec_add(&test, "<unk>", 0, HD_UNKNOWN),
          aa = spec_add(&test, "aa", 0, HD_NORMAL);
  spec_add_merge(&test, "a a");
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("abba"), NULL, (int32_t[]){aa}, 1); // bytes are left out before merging
  expect_ids(context, tokenizer, text_of("b bb"), NULL, NULL, 0);
  heed_tokenizer_free(tokenizer);
  test.spec.settings.unknown = test.spec.settings.stand_in = unknown;
  tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("abba"), NULL, (int32_t[]){a, unknown, unknown, a}, 4);
  heed_tokenizer_free(tokenizer);
  test.spec.settings.fuse_unknown = true;
  tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("abba"), NULL, (int32_t[]){a, unknown, a}, 3);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

static void white_space_beside_a_token_may_belong_to_it(void **state) {
  static spec_test test;
  (void)state;
  heed_context *context = test_context(NULL);
  spec_begin(&test, true);
  int32_t a = spec_add(&test, "a", 0, HD_NORMAL), space = spec_add(&test, "Ġ", 0, HD_NORMAL);
  int32_t left = spec_add(&test, "<l>", 0, HD_USER), right = spec_add(&test, "<r>", 0, HD_USER),
          longer = spec_add(&test, "<r>a", 0, HD_USER);
  test.tokens[left].eats_left = test.tokens[right].eats_right = true;
  heed_tokenizer *tokenizer = spec_build(context, &test);
  expect_ids(context, tokenizer, text_of("a \u00a0 <l> a"), NULL, (int32_t[]){a, left, space, a}, 4);
  expect_ids(context, tokenizer, text_of("a <r> \u3000 a"), NULL, (int32_t[]){a, space, right, a}, 4);
  expect_ids(context, tokenizer, text_of("<r> <l>"), NULL, (int32_t[]){right, left}, 2);
  expect_ids(context, tokenizer, text_of("<r>aa"), NULL, (int32_t[]){longer, a}, 2); // the longest one wins
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

/* ---- cutting -------------------------------------------------------------------------------------------------------------- */

typedef struct pieces {
  char text[4096];
  size_t length;
} pieces;

static heed_status collect(void *user, heed_text piece) {
  pieces *all = user;
  assert_true(piece.length > 0 && all->length + piece.length + 1 < sizeof all->text);
  memcpy(all->text + all->length, piece.data, piece.length);
  all->length += piece.length;
  all->text[all->length++] = '|';
  return HEED_OK;
}

/* The pieces of text, each followed by a bar. */
static void expect_pieces(heed_context *context, const hd_pre_tokenizer *pre_tokenizer, const char *text, const char *wanted) {
  hd_splitter splitter;
  hd_split_session session;
  pieces all = {.length = 0};
  ok(context, hd_splitter_init(context, &splitter, pre_tokenizer, "test"));
  ok(context, hd_split_begin(&session, context, &splitter, strlen(text)));
  ok(context, hd_split(&session, text_of(text), collect, &all));
  all.text[all.length] = 0;
  assert_string_equal(all.text, wanted);
  hd_split_end(&session);
  hd_splitter_free(&splitter);
}

static void named_pre_tokenizers_cut_where_their_models_do(void **state) {
  static const struct {
    const char *name, *text, *pieces;
  } cases[] = {
      {"gpt2", "I'm  HE'S 123 a1", "I|'m| | HE|'|S| 123| a|1|"},
      {"gpt2", "x\n\n  y  ", "x|\n\n | y|  |"},
      {"gpt-2", "a\u180eb\u00a0c", "a|\u180e|b|\u00a0|c|"},
      {"smollm", "I'm 123", "I|'m| |1|2|3|"},
      {"smollm", " ½x", " |½|x|"},
      {"llama-bpe", "HE'S 12345!\n\nx", "HE|'S| |123|45|!\n\n|x|"},
      {"llama3", "  \n  x (y", "  \n| | x| (|y|"},
      {"qwen2", "a12 é", "a|1|2| é|"},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hd_pre_tokenizer *pre_tokenizer = hd_pre_tokenizer_named(text_of(cases[i].name));
    assert_non_null(pre_tokenizer);
    expect_pieces(context, pre_tokenizer, cases[i].text, cases[i].pieces);
  }
  assert_null(hd_pre_tokenizer_named(text_of("gpt")));
  assert_null(hd_pre_tokenizer_named((heed_text){"gpt2x", 3}));
  heed_context_free(context);
}

static void patterns_mean_what_they_mean_to_models(void **state) {
  static const struct {
    const char *pattern;
    bool drops_rest;
    const char *text, *pieces;
  } cases[] = {
      {"b*", false, "abba", "a|bb|a|"},
      {"", false, "añb", "a|ñ|b|"},
      {"^", false, "ab\ncd", "ab\n|cd|"},
      {"\\s", false, "a\u180e b", "a\u180e| |b|"},
      {"[^\\s]+", true, "ab  c", "ab|c|"},
      {"\\S", true, "a \u2003é", "a|é|"},
      {"a\\Kb", false, "aabb", "aa|b|b|"},
      {"(?<=a)b", false, "abb", "a|b|b|"},
      {"x", false, "", ""},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hd_pre_tokenizer one = {.name = "pattern", .count = 1, .pattern = {cases[i].pattern}, .drops_rest = {cases[i].drops_rest}};
    expect_pieces(context, &one, cases[i].text, cases[i].pieces);
  }
  heed_context_free(context);
}

static void patterns_that_heed_does_not_take(void **state) {
  static const struct {
    const char *pattern, *reason;
  } cases[] = {
      {"(", "missing closing parenthesis"},
      {"[a", "not understood"},
      {"[[a]b]", "does not know"},
      {"[a&&b]", "does not know"},
      {"\\h", "does not know"},
      {"[\\S]", "does not know"},
      {"(?m:a.b)", "does not know"},
      {"a\\", "does not know"},
      {"\\C", "not understood"},
      {"(a+)+b", "too many steps"},
      {"(a|a)*$b", "too many steps"},
      {"(\\s*)*x", "too many steps"},
      {"^(([a-z])+.)+[A-Z]([a-z])+$", "too many steps"},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hd_pre_tokenizer one = {.name = "pattern", .count = 1, .pattern = {cases[i].pattern}};
    hd_splitter splitter;
    heed_status status = hd_splitter_init(context, &splitter, &one, "FILE");
    if (status != HEED_E_UNSUPPORTED || !strstr(heed_error(context), cases[i].reason) || strncmp(heed_error(context), "FILE: ", 6) != 0)
      fail_msg("%s: %s: %s", cases[i].pattern, heed_status_name(status), heed_error(context));
  }
  heed_context_free(context);
}

/* A pattern that no short probe finds out ends in an error too, and soon. */
static void a_pattern_without_end_is_an_error(void **state) {
  static char text[100001];
  (void)state;
  heed_context *context = test_context(NULL);
  hd_pre_tokenizer one = {.name = "pattern", .count = 1, .pattern = {"q(z+)+q|[^q]"}};
  hd_splitter splitter;
  hd_split_session session;
  pieces all = {.length = 0};
  memset(text, 'z', sizeof text - 1);
  text[0] = 'q';
  ok(context, hd_splitter_init(context, &splitter, &one, "test"));
  ok(context, hd_split_begin(&session, context, &splitter, strlen(text)));
  clock_t begin = clock();
  assert_int_equal(hd_split(&session, text_of(text), collect, &all), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "too many steps"));
  assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 2 * SANITIZER_FACTOR);
  hd_split_end(&session);
  hd_splitter_free(&splitter);
  heed_context_free(context);
}

typedef struct tally {
  int64_t pieces;
  size_t bytes;
} tally;

static heed_status count_piece(void *user, heed_text piece) {
  tally *seen = user;
  seen->pieces++;
  seen->bytes += piece.length;
  return HEED_OK;
}

/* Long texts are searched in windows; nothing may be lost or cut at their borders. */
static void long_texts_are_cut_like_short_ones(void **state) {
  enum { LENGTH = 1 << 20 };
  static char text[LENGTH];
  static const struct {
    const char *name, *unit;
    int64_t pieces;
  } cases[] = {
      {"smollm", "a", 1},
      {"gpt2", "a", 1},
      {"llama3", "a", 1},
      {"qwen2", " ", 1},
      {"llama3", "\n", 1},
      {"smollm", "7", LENGTH},
      {"qwen2", "7", LENGTH},
      {"llama3", "777", LENGTH / 3},
      {"gpt2", "é", 1},
      {"gpt2", "日!", LENGTH / 4 * 2},
      {"llama3", " \u2003\n  ", 2},
      {"smollm", "ab 1", LENGTH / 4 * 3},
  };
  (void)state;
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t unit = strlen(cases[i].unit), length = LENGTH / unit * unit;
    for (size_t at = 0; at < length; at++) text[at] = cases[i].unit[at % unit];
    hd_splitter splitter;
    hd_split_session session;
    tally seen = {0};
    ok(context, hd_splitter_init(context, &splitter, hd_pre_tokenizer_named(text_of(cases[i].name)), "test"));
    ok(context, hd_split_begin(&session, context, &splitter, length));
    clock_t begin = clock();
    ok(context, hd_split(&session, (heed_text){text, length}, count_piece, &seen));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (seen.pieces != cases[i].pieces || seen.bytes != length || seconds > 1.0 * SANITIZER_FACTOR)
      fail_msg("%s, 1 MB of \"%s\": %lld pieces, %zu bytes, %.3f s", cases[i].name, cases[i].unit, (long long)seen.pieces, seen.bytes,
               seconds);
    hd_split_end(&session);
    hd_splitter_free(&splitter);
  }
  heed_context_free(context);
}

/* ---- time ----------------------------------------------------------------------------------------------------------------- */

static void a_megabyte_of_one_letter_takes_less_than_a_second(void **state) {
  enum { LENGTH = 1 << 20 };
  static spec_test test;
  static char texts[12][1 << 11], merges[12][1 << 12], text[LENGTH];
  (void)state;
  heed_context *context = test_context(NULL);
  spec_begin(&test, true);
  for (int i = 0; i < 11; i++) { // a, aa, aaaa, ... 1024
    memset(texts[i], 'a', (size_t)1 << i);
    spec_add(&test, texts[i], 0, HD_NORMAL);
    if (i > 0) {
      concatenate(merges[i], texts[i - 1], " ", texts[i - 1]);
      spec_add_merge(&test, merges[i]);
    }
  }
  heed_tokenizer *tokenizer = spec_build(context, &test);
  int64_t count;
  memset(text, 'a', sizeof text);
  double seconds = encoding_seconds(context, tokenizer, (heed_text){text, sizeof text}, &count);
  print_message("1 MB of one letter: %.3f s\n", seconds);
  assert_int_equal(count, LENGTH / 1024);
  assert_true(seconds < 1.0 * SANITIZER_FACTOR);
  heed_tokenizer_free(tokenizer);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_character_is_read),
      cmocka_unit_test(what_is_no_character_is_measured),
      cmocka_unit_test(the_alphabet_spells_every_byte_once),
      cmocka_unit_test(ranks_decide_and_the_left_of_equals),
      cmocka_unit_test(the_heap_merges_as_the_definition_says),
      cmocka_unit_test(bytes_without_a_token),
      cmocka_unit_test(white_space_beside_a_token_may_belong_to_it),
      cmocka_unit_test(named_pre_tokenizers_cut_where_their_models_do),
      cmocka_unit_test(patterns_mean_what_they_mean_to_models),
      cmocka_unit_test(patterns_that_heed_does_not_take),
      cmocka_unit_test(a_pattern_without_end_is_an_error),
      cmocka_unit_test(long_texts_are_cut_like_short_ones),
      cmocka_unit_test(a_megabyte_of_one_letter_takes_less_than_a_second),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
