/* gguf.c: GGUF files are read as they were written: shapes, types, metadata, bytes. What must be refused is in malformed_gguf.c. */
#include "test.h"

#include "../../src/io/tensors.h"

#include <stdio.h>

#define STORIES HEED_TEST_DATA "/models/stories260k/stories260k-"
#define SMOLLM2 HEED_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf"

static hd_tensors *open_file(heed_context *context, const char *path) {
  hd_tensors *tensors = NULL;
  ok(context, hd_tensors_open(context, path, &tensors));
  assert_true(hd_tensors_is_gguf(tensors));
  assert_string_equal(hd_tensors_format(tensors), "GGUF 3");
  return tensors;
}

static void assert_text(heed_text text, const char *expected) {
  assert_int_equal(text.length, strlen(expected));
  assert_memory_equal(text.data, expected, text.length);
}

static void small_model(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors = open_file(context, STORIES "q8_0.gguf");
  int64_t heads, missing;
  double base;
  bool adds;
  heed_text name;
  const hd_meta *tokens, *scores;
  assert_int_equal(hd_tensors_count(tensors), 47);
  assert_int_equal(hd_meta_count(tensors), 26);
  ok(context, hd_meta_integer(context, tensors, "llama.attention.head_count", 1, 64, &heads));
  assert_int_equal(heads, 8);
  ok(context, hd_meta_integer_or(context, tensors, "llama.absent", -7, 0, 1, &missing));
  assert_int_equal(missing, -7);
  ok(context, hd_meta_number(context, tensors, "llama.rope.freq_base", 1, 1e9, &base));
  assert_true(base == 10000);
  ok(context, hd_meta_bool(context, tensors, "tokenizer.ggml.add_bos_token", &adds));
  assert_true(adds);
  ok(context, hd_meta_text(context, tensors, "general.name", &name));
  assert_text(name, "stories260K");
  ok(context, hd_meta_array(context, tensors, "tokenizer.ggml.tokens", HD_META_TEXT, &tokens));
  assert_int_equal(tokens->count, 512);
  assert_text(hd_meta_text_at(tokens, 0), "<unk>");
  assert_text(hd_meta_text_at(tokens, 3), "<0x00>");
  ok(context, hd_meta_array(context, tensors, "tokenizer.ggml.scores", HD_META_F64, &scores));
  assert_int_equal(scores->count, 512);
  hd_tensors_close(tensors);
  heed_context_free(context);
}

static void shapes_and_types(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors = open_file(context, STORIES "q8_0.gguf");
  const hd_tensor *tensor;
  // [in, out] = [64, 172] in the file.
  ok(context, hd_tensors_weight(context, tensors, "blk.0.ffn_gate.weight", 2, (int64_t[]){172, 64}, &tensor));
  assert_int_equal(tensor->storage, HD_Q8_0);
  assert_int_equal(tensor->count, 172 * 64);
  assert_int_equal(tensor->bytes, 172 * 64 / 32 * 34);
  // 172 is no multiple of 32, so this one stays f16.
  ok(context, hd_tensors_weight(context, tensors, "blk.0.ffn_down.weight", 2, (int64_t[]){64, 172}, &tensor));
  assert_int_equal(tensor->storage, HD_F16);
  assert_int_equal(hd_tensors_weight(context, tensors, "blk.0.ffn_down.weight", 2, (int64_t[]){172, 64}, &tensor), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "got [64,172], allowed [172,64]"));
  assert_int_equal(hd_tensors_weight(context, tensors, "blk.9.ffn_down.weight", 1, (int64_t[]){1}, &tensor), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "is missing"));
  for (int64_t i = 0; i < hd_tensors_count(tensors); i++)
    assert_ptr_equal(hd_tensors_find(tensors, hd_tensors_at(tensors, i)->name), hd_tensors_at(tensors, i));
  assert_null(hd_tensors_find(tensors, "no such tensor"));
  hd_tensors_close(tensors);
  heed_context_free(context);
}

/* The f32 file holds the numbers of the Hugging Face directory (except for the rows that rotary order permutes). */
static void values(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *gguf = open_file(context, STORIES "f32.gguf"), *directory = NULL;
  const hd_tensor *a, *b;
  const int64_t dim[] = {172, 64};
  float *x = test_malloc(sizeof(float) * 172 * 64), *y = test_malloc(sizeof(float) * 172 * 64);
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/models/stories260k-hf", &directory));
  ok(context, hd_tensors_weight(context, gguf, "blk.3.ffn_up.weight", 2, dim, &a));
  ok(context, hd_tensors_weight(context, directory, "model.layers.3.mlp.up_proj.weight", 2, dim, &b));
  ok(context, hd_tensors_read(context, gguf, a, x));
  ok(context, hd_tensors_read(context, directory, b, y));
  assert_memory_equal(x, y, sizeof(float) * 172 * 64);
  memset(y, 0, sizeof(float) * 172 * 64);
  for (int64_t row = 0; row < 172; row++) ok(context, hd_tensors_read_part(context, gguf, a, row * 256, 256, y + row * 64));
  assert_memory_equal(x, y, sizeof(float) * 172 * 64);
  assert_int_equal(hd_tensors_read_part(context, gguf, a, a->bytes - 4, 8, x), HEED_E_ARGUMENT);
  test_free(x);
  test_free(y);
  hd_tensors_close(gguf);
  hd_tensors_close(directory);
  heed_context_free(context);
}

static void large_model(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors = open_file(context, SMOLLM2);
  const hd_meta *tokens, *merges, *types;
  const hd_tensor *tensor;
  assert_int_equal(hd_tensors_count(tensors), 272);
  ok(context, hd_meta_array(context, tensors, "tokenizer.ggml.tokens", HD_META_TEXT, &tokens));
  ok(context, hd_meta_array(context, tensors, "tokenizer.ggml.merges", HD_META_TEXT, &merges));
  ok(context, hd_meta_array(context, tensors, "tokenizer.ggml.token_type", HD_META_I64, &types));
  assert_int_equal(tokens->count, 49152);
  assert_int_equal(merges->count, 48900);
  assert_text(hd_meta_text_at(tokens, 1), "<|im_start|>");
  assert_text(hd_meta_text_at(merges, 3), "h e");
  assert_int_equal(hd_meta_integer_at(types, 0), 3);
  ok(context, hd_tensors_weight(context, tensors, "blk.29.ffn_down.weight", 2, (int64_t[]){576, 1536}, &tensor));
  assert_int_equal(tensor->storage, HD_Q4_1);
  hd_tensors_close(tensors);
  heed_context_free(context);
}

static void wrong_kinds(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors = open_file(context, STORIES "f16.gguf");
  int64_t integer;
  double number;
  bool flag;
  heed_text text;
  const hd_meta *array;
  assert_int_equal(hd_meta_integer(context, tensors, "llama.block_count", 6, 9, &integer), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "llama.block_count (got 5, allowed an integer from 6 to 9)"));
  assert_int_equal(hd_meta_integer(context, tensors, "general.name", 0, 9, &integer), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "got a text"));
  assert_int_equal(hd_meta_integer(context, tensors, "absent", 0, 9, &integer), HEED_E_FORMAT);
  assert_int_equal(hd_meta_number(context, tensors, "llama.rope.freq_base", 0, 9999, &number), HEED_E_FORMAT);
  assert_int_equal(hd_meta_bool(context, tensors, "llama.block_count", &flag), HEED_E_FORMAT);
  assert_int_equal(hd_meta_text(context, tensors, "llama.block_count", &text), HEED_E_FORMAT);
  assert_int_equal(hd_meta_array(context, tensors, "tokenizer.ggml.tokens", HD_META_F64, &array), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "got an array of text, allowed an array of floats"));
  hd_tensors_close(tensors);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_model), cmocka_unit_test(shapes_and_types), cmocka_unit_test(values),
      cmocka_unit_test(large_model), cmocka_unit_test(wrong_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
