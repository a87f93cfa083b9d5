/* What a spec implies: rotary frequencies against those of transformers 5.24, windows by layer, activations by name. */
#include "../model_test.h"

#include "../../src/model/spec.h"

static void read_parameters(const json_t *row, heed_rope_scaling *s) {
  static const char *const kinds[] = {"default", "linear", "dynamic", "yarn", "llama3"};
  const json_t *p = json_object_get(row, "parameters"), *original = json_object_get(p, "original_max_position_embeddings");
  const char *type = json_string_value(json_object_get(p, "rope_type"));
  *s = (heed_rope_scaling){.size = sizeof *s};
  for (int i = 0; i < 5; i++)
    if (strcmp(type, kinds[i]) == 0) s->kind = (heed_rope_kind)i;
  s->theta = json_number_value(json_object_get(p, "rope_theta"));
  s->factor = json_number_value(json_object_get(p, "factor"));
  s->context = json_integer_value(original ? original : json_object_get(row, "max_position_embeddings"));
  s->length = json_integer_value(json_object_get(row, "seq_len"));
  s->slow = json_number_value(json_object_get(p, s->kind == HEED_ROPE_YARN ? "beta_slow" : "low_freq_factor"));
  s->fast = json_number_value(json_object_get(p, s->kind == HEED_ROPE_YARN ? "beta_fast" : "high_freq_factor"));
  s->attention_factor = json_number_value(json_object_get(p, "attention_factor"));
}

static void test_frequencies(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  json_t *tables = test_json(TEST_EXPECTED "tables.json");
  const json_t *row;
  size_t i;
  int kinds = 0;
  json_array_foreach(json_object_get(tables, "rotary"), i, row) {
    const char *type = json_string_value(json_object_get(json_object_get(row, "parameters"), "rope_type"));
    const int64_t width = json_integer_value(json_object_get(row, "head_dim"));
    double frequency[64], factor = 0;
    heed_rope_scaling scaling;
    read_parameters(row, &scaling);
    kinds |= 1 << scaling.kind;
    const json_t *expected = json_object_get(row, "inv_freq");
    assert_int_equal(json_array_size(expected), width / 2);
    ok(context, heed_rope_frequencies(context, &scaling, width, frequency, &factor));
    assert_true(fabs(factor - json_number_value(json_object_get(row, "attention_factor"))) < 1e-12);
    for (size_t j = 0; j < json_array_size(expected); j++) {
      double wanted = json_number_value(json_array_get(expected, j));
      if (!(fabs(frequency[j] - wanted) <= 4e-7 * wanted))
        fail_msg("%s, frequency %zu: %.9g, expected %.9g", type, j, frequency[j], wanted);
    }
  }
  assert_int_equal(kinds, 31); // each kind is there
  json_decref(tables);
  heed_context_free(context);
}

static void test_windows(void **state) {
  (void)state;
  hd_transformer_spec spec = {.window = 8};
  assert_int_equal(hd_spec_window(&spec, 0), 8);
  hd_spec_set_full(&spec, 5);
  hd_spec_set_full(&spec, 71);
  assert_int_equal(hd_spec_window(&spec, 4), 8);
  assert_int_equal(hd_spec_window(&spec, 5), 0);
  assert_int_equal(hd_spec_window(&spec, 70), 8);
  assert_int_equal(hd_spec_window(&spec, 71), 0);
}

static void test_activations(void **state) {
  (void)state;
  heed_activation kind;
  assert_true(hd_activation_from_name("gelu", 4, &kind) && kind == HEED_ACTIVATION_GELU);
  assert_true(hd_activation_from_name("gelu_new", 8, &kind) && kind == HEED_ACTIVATION_GELU_TANH);
  assert_true(hd_activation_from_name("silu", 4, &kind) && kind == HEED_ACTIVATION_SILU);
  assert_true(hd_activation_from_name("relu", 4, &kind) && kind == HEED_ACTIVATION_RELU);
  assert_false(hd_activation_from_name("gel", 3, &kind));
  assert_false(hd_activation_from_name("", 0, &kind));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_frequencies), cmocka_unit_test(test_windows),
                                     cmocka_unit_test(test_activations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
