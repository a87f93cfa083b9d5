/* What a spec implies: rotary frequencies against those of transformers 5.24, windows by layer, activations by name. */
#include "../model_test.h"

#include "../../src/model/spec.h"

static void read_parameters(const json_t *row, hd_transformer_spec *spec) {
  const json_t *p = json_object_get(row, "parameters");
  const char *type = json_string_value(json_object_get(p, "rope_type"));
  spec->rotary_dim = json_integer_value(json_object_get(row, "head_dim"));
  spec->rotary_theta = json_number_value(json_object_get(p, "rope_theta"));
  spec->scaling_factor = json_number_value(json_object_get(p, "factor"));
  spec->scaling_low = json_number_value(json_object_get(p, "low_freq_factor"));
  spec->scaling_high = json_number_value(json_object_get(p, "high_freq_factor"));
  spec->scaling_context = json_integer_value(json_object_get(p, "original_max_position_embeddings"));
  spec->rotary_scaling = strcmp(type, "linear") == 0   ? HD_SCALING_LINEAR
                         : strcmp(type, "llama3") == 0 ? HD_SCALING_LLAMA3
                                                       : HD_SCALING_NONE;
}

static void test_frequencies(void **state) {
  (void)state;
  json_t *tables = test_json(TEST_EXPECTED "tables.json");
  const json_t *row;
  size_t i;
  int compared = 0;
  json_array_foreach(json_object_get(tables, "rotary"), i, row) {
    const char *type = json_string_value(json_object_get(json_object_get(row, "parameters"), "rope_type"));
    if (strcmp(type, "default") != 0 && strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0) continue; // kinds that heed refuses
    hd_transformer_spec spec = {0};
    read_parameters(row, &spec);
    const json_t *expected = json_object_get(row, "inv_freq");
    assert_int_equal(json_array_size(expected), spec.rotary_dim / 2);
    for (size_t j = 0; j < json_array_size(expected); j++) {
      double wanted = json_number_value(json_array_get(expected, j)), got = hd_spec_frequency(&spec, (int64_t)j);
      if (!(fabs(got - wanted) <= 4e-7 * wanted)) fail_msg("%s, frequency %zu: %.9g, expected %.9g", type, j, got, wanted);
    }
    compared++;
  }
  assert_int_equal(compared, 3);
  json_decref(tables);
}

static void test_windows(void **state) {
  (void)state;
  hd_transformer_spec spec = {.window = 8};
  assert_int_equal(hd_spec_window(&spec, 0), 8);
  spec.full_every = 6;
  assert_int_equal(hd_spec_window(&spec, 4), 8);
  assert_int_equal(hd_spec_window(&spec, 5), 0);
  assert_int_equal(hd_spec_window(&spec, 11), 0);
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
