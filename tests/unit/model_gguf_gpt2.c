/* model_gguf_gpt2: GPT-2 from a GGUF file: gpt-nano-sort, written anew with the names, keys and row order of GGUF, must give the bits of the Hugging Face directory; and so must the directory that it is
 * converted to. */
#include "../malformed.h"
#include "../model_test.h"

#include "../../src/io/tensors.h"

/* ---- writing ---------------------------------------------------------------------------------------------------------------- */

static void put_string(bytes *b, const char *text) {
  put_u64(b, strlen(text));
  put_text(b, text);
}

static void put_text_key(bytes *b, const char *key, const char *value) {
  put_string(b, key);
  put_u32(b, HD_META_TEXT);
  put_string(b, value);
}

static void put_integer_key(bytes *b, const char *key, uint32_t value) {
  put_string(b, key);
  put_u32(b, HD_META_U32);
  put_u32(b, value);
}

/* One name in either spelling; matrices of layers turn from [inputs, outputs] to [outputs, inputs]. */
static const struct {
  const char *from, *to;
  bool turned;
} names[] = {
    {"transformer.wte.weight", "token_embd.weight", false},
    {"transformer.wpe.weight", "position_embd.weight", false},
    {"transformer.ln_f.weight", "output_norm.weight", false},
    {"transformer.ln_f.bias", "output_norm.bias", false},
    {"lm_head.weight", "output.weight", false},
    {"transformer.h.%d.ln_1.weight", "blk.%d.attn_norm.weight", false},
    {"transformer.h.%d.ln_1.bias", "blk.%d.attn_norm.bias", false},
    {"transformer.h.%d.attn.c_attn.weight", "blk.%d.attn_qkv.weight", true},
    {"transformer.h.%d.attn.c_attn.bias", "blk.%d.attn_qkv.bias", false},
    {"transformer.h.%d.attn.c_proj.weight", "blk.%d.attn_output.weight", true},
    {"transformer.h.%d.attn.c_proj.bias", "blk.%d.attn_output.bias", false},
    {"transformer.h.%d.ln_2.weight", "blk.%d.ffn_norm.weight", false},
    {"transformer.h.%d.ln_2.bias", "blk.%d.ffn_norm.bias", false},
    {"transformer.h.%d.mlp.c_fc.weight", "blk.%d.ffn_up.weight", true},
    {"transformer.h.%d.mlp.c_fc.bias", "blk.%d.ffn_up.bias", false},
    {"transformer.h.%d.mlp.c_proj.weight", "blk.%d.ffn_down.weight", true},
    {"transformer.h.%d.mlp.c_proj.bias", "blk.%d.ffn_down.bias", false},
};
enum { NAMES = sizeof names / sizeof names[0], OUTER = 5, LAYERS = 3, TENSORS = OUTER + LAYERS * (NAMES - OUTER) };

/* The tensor's entry into the head and its numbers into data. */
static void put_tensor(heed_context *context, const hd_tensors *tensors, int name, int layer, bytes *head, bytes *data) {
  char from[64], to[64];
  snprintf(from, sizeof from, names[name].from, layer);
  snprintf(to, sizeof to, names[name].to, layer);
  const hd_tensor *tensor = hd_tensors_find(tensors, from);
  if (!tensor) fail_msg("no tensor %s", from);
  int64_t rows = tensor->ndim == 2 ? tensor->dim[0] : 1, columns = tensor->count / rows;
  float *values = malloc((size_t)tensor->bytes);
  ok(context, hd_tensors_read(context, tensors, tensor, values));
  put_string(head, to);
  put_u32(head, (uint32_t)tensor->ndim);
  if (tensor->ndim == 2) put_u64(head, (uint64_t)(names[name].turned ? rows : columns)); // innermost first
  put_u64(head, (uint64_t)(tensor->ndim == 2 && !names[name].turned ? rows : columns));
  put_u32(head, 0);
  put_u64(head, data->size);
  if (names[name].turned)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = 0; r < rows; r++) put(data, &values[r * columns + c], sizeof *values);
  else put(data, values, (size_t)tensor->bytes);
  put_fill(data, 0, (32 - data->size % 32) % 32);
  free(values);
}

static const char *write_gguf(heed_context *context) {
  hd_tensors *tensors;
  bytes head = {0}, data = {0};
  ok(context, hd_tensors_open(context, SORT, &tensors));
  put_text(&head, "GGUF");
  put_u32(&head, 3);
  put_u64(&head, TENSORS);
  put_u64(&head, 6);
  put_text_key(&head, "general.architecture", "gpt2");
  put_integer_key(&head, "gpt2.block_count", LAYERS);
  put_integer_key(&head, "gpt2.embedding_length", 48);
  put_integer_key(&head, "gpt2.attention.head_count", 3);
  put_integer_key(&head, "gpt2.context_length", 11);
  put_string(&head, "gpt2.attention.layer_norm_epsilon");
  put_u32(&head, HD_META_F32);
  put(&head, &(float){1e-5f}, 4);
  for (int name = 0; name < NAMES; name++)
    for (int layer = 0; layer < (name < OUTER ? 1 : LAYERS); layer++) put_tensor(context, tensors, name, layer, &head, &data);
  put_fill(&head, 0, (32 - head.size % 32) % 32);
  put(&head, data.data, data.size);
  const char *path = write_file("sort.gguf", head.data, head.size);
  hd_tensors_close(tensors);
  bytes_free(&head);
  bytes_free(&data);
  return path;
}

/* ---- the test --------------------------------------------------------------------------------------------------------------- */

static void run(heed_context *context, const char *path, float *logits) {
  static const int32_t ids[] = {0, 2, 1, 0, 1, 2, 2, 0, 1, 1, 0};
  heed_model *model = test_model(context, path);
  heed_session *session = test_session(context, model, 0);
  assert_string_equal(test_info(model).family, "gpt2");
  ok(context, heed_session_run(session, ids, 11, logits, 11, NULL));
  heed_session_free(session);
  heed_model_free(model);
}

static void test_same_bits(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  float directory[33], gguf[33], converted[33];
  char path[FOLDER_PATH];
  run(context, SORT, directory);
  snprintf(path, sizeof path, "%s", write_gguf(context));
  run(context, path, gguf);
  assert_memory_equal(directory, gguf, sizeof gguf);
  const char *to = in_folder("converted");
  ok(context, heed_convert(context, path, to));
  run(context, to, converted);
  assert_memory_equal(directory, converted, sizeof converted);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
