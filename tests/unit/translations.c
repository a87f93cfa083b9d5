/* translations: BLEU and chrF are sacreBLEU's to the last digits; alignments are read as written and counted as Och & Ney define it. */
#include "../../src/base/base.h"
#include "../counting_allocator.h"
#include "text_test.h"

#include <math.h>

static double number(const json_t *one, const char *key) {
  const json_t *value = json_object_get(one, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static heed_text *texts_of(const json_t *one, const char *key, int64_t *count) {
  const json_t *array = json_object_get(one, key);
  *count = (int64_t)json_array_size(array);
  assert_true(*count > 0);
  heed_text *texts = calloc((size_t)*count, sizeof *texts);
  for (int64_t i = 0; i < *count; i++) {
    const json_t *text = json_array_get(array, (size_t)i);
    texts[i] = (heed_text){json_string_value(text), json_string_length(text)};
  }
  return texts;
}

static void expect_close(double got, double wanted, const char *what, const json_t *one) {
  if (!(fabs(got - wanted) <= 1e-9))
    fail_msg("%s: %s: got %.12f, expected %.12f", json_string_value(json_object_get(one, "name")), what, got, wanted);
}

static void expect_scores(heed_context *context, const json_t *one) {
  int64_t count, references;
  heed_text *h = texts_of(one, "hypotheses", &count), *r = texts_of(one, "references", &references);
  heed_bleu bleu = {.size = sizeof bleu};
  double chrf, chrfpp;
  assert_int_equal(count, references);
  ok(context, heed_bleu_score(context, h, r, count, &bleu));
  ok(context, heed_chrf_score(context, h, r, count, false, &chrf));
  ok(context, heed_chrf_score(context, h, r, count, true, &chrfpp));
  expect_close(bleu.score, number(one, "bleu"), "BLEU", one);
  expect_close(bleu.brevity, number(one, "bp"), "brevity", one);
  for (int n = 0; n < HEED_BLEU_ORDERS; n++)
    expect_close(bleu.precisions[n], json_number_value(json_array_get(json_object_get(one, "bleu_precisions"), (size_t)n)), "precision",
                 one);
  expect_close(chrf, number(one, "chrf"), "chrF", one);
  expect_close(chrfpp, number(one, "chrfpp"), "chrF++", one);
  assert_string_equal(heed_bleu_signature(), json_string_value(json_object_get(one, "signature")));
  if (json_object_get(one, "sys_len")) {
    assert_int_equal(bleu.words, (int64_t)number(one, "sys_len"));
    assert_int_equal(bleu.reference_words, (int64_t)number(one, "ref_len"));
    assert_string_equal(heed_chrf_signature(false), json_string_value(json_object_get(one, "chrf_signature")));
    assert_string_equal(heed_chrf_signature(true), json_string_value(json_object_get(one, "chrfpp_signature")));
  }
  free(h);
  free(r);
}

static void test_sacrebleu(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  json_t *cases = read_json(HEED_TEST_DATA "/translations/cases.json"), *tables = read_json(HEED_TEST_DATA "/expected/tables.json"), *one;
  size_t i;
  assert_true(json_array_size(cases) >= 10);
  json_array_foreach(cases, i, one) expect_scores(context, one);
  assert_int_equal(json_array_size(json_object_get(tables, "mt_scores")), 4);
  json_array_foreach(json_object_get(tables, "mt_scores"), i, one) expect_scores(context, one);
  json_decref(cases);
  json_decref(tables);
  heed_context_free(context);
}

static void test_no_sentence_scores_nothing(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_bleu bleu = {.size = sizeof bleu};
  double chrf = 1;
  ok(context, heed_bleu_score(context, NULL, NULL, 0, &bleu));
  ok(context, heed_chrf_score(context, NULL, NULL, 0, true, &chrf));
  assert_true(bleu.score == 0 && chrf == 0);
  heed_context_free(context);
}

static void test_refusals(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const heed_text good[] = {{"a", 1}, {"b", 1}}, bad[] = {{"a", 1}, {"b\xFF", 2}};
  heed_bleu bleu = {.size = sizeof bleu}, unset = {0};
  double chrf;
  assert_int_equal(heed_bleu_score(context, bad, good, 2, &bleu), HEED_E_FORMAT);
  assert_string_equal(heed_error(context), "heed_bleu_score: translation 2 is not UTF-8 (byte 1 of 2)");
  assert_int_equal(heed_chrf_score(context, good, bad, 2, false, &chrf), HEED_E_FORMAT);
  assert_string_equal(heed_error(context), "heed_chrf_score: reference 2 is not UTF-8 (byte 1 of 2)");
  assert_int_equal(heed_bleu_score(context, good, good, 2, &unset), HEED_E_ARGUMENT);
  assert_int_equal(heed_bleu_score(context, NULL, good, 2, &bleu), HEED_E_ARGUMENT);
  assert_int_equal(heed_bleu_score(context, good, good, -1, &bleu), HEED_E_ARGUMENT);
  assert_int_equal(heed_chrf_score(context, good, good, 2, false, NULL), HEED_E_ARGUMENT);
  heed_context_free(context);
}

/* ---- alignments -------------------------------------------------------------------------------------------------------------------- */

typedef struct links {
  heed_link *items;
  int64_t count;
} links;

static links parsed(heed_context *context, const char *line) {
  links l;
  ok(context, heed_links_parse(context, (heed_text){line, strlen(line)}, &l.items, &l.count));
  return l;
}

static void add(heed_context *context, const char *found, const char *reference, heed_alignment_score *score) {
  links a = parsed(context, found), b = parsed(context, reference);
  ok(context, heed_alignment_add(context, a.items, a.count, b.items, b.count, score));
  heed_links_free(context, a.items, a.count);
  heed_links_free(context, b.items, b.count);
}

static void test_pharaoh(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  links l = parsed(context, " 0-0\t12-345  7p8\r\n");
  assert_int_equal(l.count, 3);
  assert_true(l.items[1].source == 12 && l.items[1].target == 345 && !l.items[1].possible);
  assert_true(l.items[2].source == 7 && l.items[2].target == 8 && l.items[2].possible);
  heed_links_free(context, l.items, l.count);
  l = parsed(context, "");
  assert_int_equal(l.count, 0);
  heed_links_free(context, l.items, l.count);
  static const char *const wrong[] = {"0-0 1", "1-", "-1", "1-2-3", "1x2", "a-b", "1--2", "4294967296-0", "0-99999999999999999999", "1-2,"};
  for (int64_t i = 0; i < HD_COUNT(wrong); i++) {
    assert_int_equal(heed_links_parse(context, (heed_text){wrong[i], strlen(wrong[i])}, &l.items, &l.count), HEED_E_FORMAT);
    assert_null(l.items);
    assert_non_null(strstr(heed_error(context), "SOURCE-TARGET"));
  }
  heed_context_free(context);
}

/* Counts by hand from the definition: AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|). */
static void test_error_rate(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_alignment_score s = {.size = sizeof s};
  add(context, "0-0 1-1 2-2", "0-0 1-1 2-2", &s);
  assert_true(s.error_rate == 0 && s.precision == 1 && s.recall == 1);
  s = (heed_alignment_score){.size = sizeof s};
  add(context, "0-0 1-2 2-1 3-3 0-0", "0-0 1-1 1p2 3-4 3-3 1p2 1-1", &s); // A = 4, S = 4, A∩S = 2 (0-0, 3-3), A∩P = 3
  assert_true(s.found == 4 && s.sure == 4 && s.found_sure == 2 && s.found_right == 3);
  assert_true(fabs(s.error_rate - (1 - 5.0 / 8)) < 1e-15 && s.precision == 0.75 && s.recall == 0.5);
  add(context, "5-5", "5p5", &s); // a corpus is one sum, not a mean of rates
  assert_true(s.found == 5 && s.sure == 4 && s.found_right == 4 && fabs(s.error_rate - (1 - 6.0 / 9)) < 1e-15);
  s = (heed_alignment_score){.size = sizeof s};
  add(context, "1-1", "1p1 1-1", &s); // both sure and possible: sure
  assert_true(s.sure == 1 && s.found_sure == 1 && s.error_rate == 0);
  s = (heed_alignment_score){.size = sizeof s};
  add(context, "", "", &s);
  assert_true(isnan(s.error_rate) && isnan(s.precision) && isnan(s.recall));
  add(context, "", "1-1", &s);
  assert_true(s.error_rate == 1 && isnan(s.precision) && s.recall == 0);
  heed_alignment_score unset = {0};
  assert_int_equal(heed_alignment_add(context, NULL, 0, NULL, 0, &unset), HEED_E_ARGUMENT);
  assert_int_equal(heed_alignment_add(context, NULL, 1, NULL, 0, &s), HEED_E_ARGUMENT);
  heed_context_free(context);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------------------- */

static heed_status everything(heed_context *context) {
  static const heed_text a[] = {{"the cat, the mat", 16}, {"x-\ny", 4}}, b[] = {{"a cat on the mat.", 17}, {"x", 1}};
  static const heed_link found[] = {{0, 0, false}, {1, 2, false}};
  heed_bleu bleu = {.size = sizeof bleu};
  heed_alignment_score score = {.size = sizeof score};
  double chrf;
  heed_link *read;
  int64_t count;
  HD_TRY(heed_bleu_score(context, a, b, 2, &bleu));
  HD_TRY(heed_chrf_score(context, a, b, 2, true, &chrf));
  HD_TRY(heed_links_parse(context, (heed_text){"0-0 1-1", 7}, &read, &count));
  heed_status status = heed_alignment_add(context, found, 2, read, count, &score);
  heed_links_free(context, read, count);
  return status;
}

/* Whichever request is refused: HEED_E_MEMORY, and nothing is kept. */
static void test_out_of_memory(void **state) {
  (void)state;
  ledger l;
  heed_context *context = ledger_context(&l, 1);
  const int64_t held = l.live;
  int refused = 0;
  heed_status status;
  do {
    l.budget = refused;
    status = everything(context);
    assert_int_equal(l.live, held);
    if (status != HEED_OK) assert_int_equal(status, HEED_E_MEMORY);
  } while (status != HEED_OK && ++refused < 1000);
  assert_true(refused > 10 && status == HEED_OK);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sacrebleu),  cmocka_unit_test(test_no_sentence_scores_nothing),
      cmocka_unit_test(test_refusals),   cmocka_unit_test(test_pharaoh),
      cmocka_unit_test(test_error_rate), cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
