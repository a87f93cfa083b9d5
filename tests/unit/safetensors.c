/* safetensors: files and Hugging Face directories are read as they were written, and every kind of file can be listed. What must be
 * refused is in malformed_safetensors.c. */
#include "malformed.h"

#include "../../include/heed/model.h"
#include "../../src/io/json.h"
#include "../../src/io/tensors.h"

static void quantised_blocks(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors;
  heed_text version;
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/expected/quants.safetensors", &tensors));
  assert_int_equal(hd_tensors_count(tensors), 48);
  assert_false(hd_tensors_is_gguf(tensors));
  assert_null(hd_tensors_config(tensors));
  ok(context, hd_meta_text(context, tensors, "gguf", &version));
  assert_int_equal(version.length, 6);
  assert_memory_equal(version.data, "0.19.0", 6);
  // bf16 to f32 is exact, so blocks and values can be compared here.
  const hd_tensor *blocks = hd_tensors_find(tensors, "BF16.blocks"), *values = hd_tensors_find(tensors, "BF16.values");
  assert_non_null(blocks);
  assert_non_null(values);
  assert_int_equal(blocks->storage, HD_STORAGE_COUNT);
  assert_int_equal(values->storage, HD_F32);
  assert_string_equal(blocks->type, "U8");
  uint16_t raw[32];
  float expected[32];
  assert_int_equal(blocks->bytes, sizeof raw);
  assert_int_equal(values->bytes, sizeof expected);
  ok(context, hd_tensors_read(context, tensors, blocks, raw));
  ok(context, hd_tensors_read(context, tensors, values, expected));
  for (int i = 0; i < 32; i++) {
    float value = hd_bf16_to_f32(raw[i]);
    assert_memory_equal(&value, &expected[i], sizeof value);
  }
  assert_int_equal(hd_tensors_weight(context, tensors, "BF16.blocks", 2, blocks->dim, &values), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "has type U8, which heed cannot read (allowed F32, "));
  hd_tensors_close(tensors);
  heed_context_free(context);
}

static void directory(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors;
  const hd_tensor *tensor;
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/models/gpt-nano-sort", &tensors));
  assert_string_equal(hd_tensors_format(tensors), "Hugging Face directory");
  assert_string_equal(hd_tensors_directory(tensors), HEED_TEST_DATA "/models/gpt-nano-sort");
  assert_string_equal(hd_tensors_config_path(tensors), HEED_TEST_DATA "/models/gpt-nano-sort/config.json");
  const hd_json_place top = {context, hd_tensors_config_path(tensors), "", hd_tensors_config(tensors)};
  int64_t width;
  ok(context, hd_json_integer(&top, "n_embd", 1, 1 << 20, &width));
  assert_int_equal(width, 48);
  for (int64_t i = 0; i < hd_tensors_count(tensors); i++) {
    tensor = hd_tensors_at(tensors, i);
    assert_ptr_equal(hd_tensors_find(tensors, tensor->name), tensor);
    assert_int_equal(tensor->storage, HD_F32);
  }
  hd_tensors_close(tensors);
  heed_context_free(context);
}

/* A path to a configuration means the weights beside it. */
static void other_configuration(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors;
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/expected/families/llama3/config-v4.json", &tensors));
  assert_non_null(json_object_get(hd_tensors_config(tensors), "rope_theta"));
  assert_string_equal(hd_tensors_directory(tensors), HEED_TEST_DATA "/expected/families/llama3");
  assert_true(hd_tensors_count(tensors) > 0);
  hd_tensors_close(tensors);
  assert_int_equal(hd_tensors_open(context, HEED_TEST_DATA "/expected/families/llama3/config-v5.json", &tensors), HEED_E_FILE);
  assert_null(tensors);
  heed_context_free(context);
}

/* ---- listing --------------------------------------------------------------------------------------------------------------------- */

typedef struct listed {
  int metadata, tensors, stop_after;
  int64_t bytes;
  const char *look_for;
  char value[256];
  char type[16];
} listed;

static bool count_item(void *user, const heed_file_item *item) {
  listed *l = user;
  if (item->is_tensor) {
    l->tensors++;
    l->bytes += item->bytes;
  } else {
    l->metadata++;
  }
  if (l->look_for && item->name.length == strlen(l->look_for) && memcmp(item->name.data, l->look_for, item->name.length) == 0) {
    snprintf(l->value, sizeof l->value, "%.*s", (int)item->value.length, item->value.data);
    snprintf(l->type, sizeof l->type, "%s", item->type);
  }
  return l->metadata + l->tensors != l->stop_after;
}

static listed list_file(const char *path, const char *format, const char *look_for) {
  heed_context *context = test_context(NULL);
  listed l = {.look_for = look_for};
  const char *got = NULL;
  ok(context, heed_file_inspect(context, path, &got, count_item, &l));
  assert_string_equal(got, format);
  heed_context_free(context);
  return l;
}

static void listing(void **state) {
  (void)state;
  listed l = list_file(HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf", "GGUF 3", "llama.attention.layer_norm_rms_epsilon");
  assert_true(l.metadata == 26 && l.tensors == 47);
  assert_string_equal(l.value, "1e-05");
  assert_string_equal(l.type, "f32");
  l = list_file(HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf", "GGUF 3", "tokenizer.ggml.tokens");
  assert_string_equal(l.value, "[\"<unk>\", \"<s>\", \"</s>\", \"<0x00>\", \"<0x01>\", \"<0x02>\", ... 512 in all]");
  l = list_file(HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf", "GGUF 3", "tokenizer.ggml.add_bos_token");
  assert_string_equal(l.value, "true");
  l = list_file(HEED_TEST_DATA "/models/stories260k-hf", "Hugging Face directory", "rms_norm_eps");
  assert_string_equal(l.value, "1e-5");
  assert_true(l.tensors == 47 && l.bytes == 4 * 260032);
  l = list_file(HEED_TEST_DATA "/expected/quants.safetensors", "safetensors", "Q6_K.blocks");
  assert_string_equal(l.type, "U8");
  assert_true(l.tensors == 48);
  l = list_file(HEED_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF 3", "token_embd.weight");
  assert_string_equal(l.type, "Q8_0");
}

static void listing_arrays_and_stopping(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  float values[6] = {0};
  const char *format;
  heed_view view = heed_view_of(values, HEED_F32, 2, (int64_t[]){2, 3});
  ok(context, heed_array_save(context, in_folder("a.npy"), &view));
  listed l = list_file(in_folder("a.npy"), "npy", "");
  assert_true(l.tensors == 1 && l.metadata == 0 && l.bytes == 24);
  assert_string_equal(l.type, "F32");
  l = (listed){.stop_after = 3};
  ok(context, heed_file_inspect(context, HEED_TEST_DATA "/models/stories260k/stories260k-f32.gguf", &format, count_item, &l));
  assert_true(l.metadata == 3 && l.tensors == 0);
  l = (listed){.stop_after = 1};
  ok(context, heed_file_inspect(context, HEED_TEST_DATA "/models/stories260k-hf", &format, count_item, &l));
  assert_true(l.metadata == 1 && l.tensors == 0);
  assert_int_equal(heed_file_inspect(context, write_file("x.bin", "nothing", 7), &format, count_item, &l), HEED_E_FORMAT);
  assert_int_equal(heed_file_inspect(context, in_folder("absent"), &format, count_item, &l), HEED_E_FILE);
  heed_context_free(context);
}

static heed_status list_and_forget(heed_context *context, const char *path) {
  listed l = {0};
  const char *format;
  return heed_file_inspect(context, path, &format, count_item, &l);
}

static void listing_out_of_memory(void **state) {
  (void)state;
  check_out_of_memory(list_and_forget, HEED_TEST_DATA "/models/stories260k-hf");
  check_out_of_memory(list_and_forget, HEED_TEST_DATA "/models/stories260k/stories260k-q8_0.gguf");
  check_out_of_memory(list_and_forget, in_folder("a.npy"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantised_blocks),
      cmocka_unit_test(directory),
      cmocka_unit_test(other_configuration),
      cmocka_unit_test(listing),
      cmocka_unit_test(listing_arrays_and_stopping),
      cmocka_unit_test(listing_out_of_memory),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
