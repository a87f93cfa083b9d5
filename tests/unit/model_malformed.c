/* model_malformed: configurations that must be refused: a config.json or GGUF file of a model that loads, plus one edit. What is well formed but unknown is HEED_E_UNSUPPORTED and lists the
 * known. Also: memory that runs out anywhere while loading and running. */
#include "../malformed.h"
#include "../model_test.h"

static heed_status load(heed_context *context, const char *path) {
  heed_model *model;
  heed_status status = heed_model_load(context, path, &model);
  assert_true(status == HEED_OK || !model);
  heed_model_free(model);
  return status;
}

static char *read_text(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s is missing", path);
  char *data = calloc(1, 4 << 20);
  *size = fread(data, 1, (4 << 20) - 1, file);
  fclose(file);
  return data;
}

/* ---- config.json ------------------------------------------------------------------------------------------------------------ */

typedef struct edit {
  const char *from, *to;
  heed_status status;
  const char *fragment;
} edit;

#define WRONG   HEED_E_FORMAT
#define UNKNOWN HEED_E_UNSUPPORTED

static const edit llama_edits[] = {
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": 0", WRONG, "num_attention_heads"},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": -8", WRONG, "num_attention_heads"},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": 8.5", WRONG, "num_attention_heads"},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": \"8\"", WRONG, "num_attention_heads"},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": 99999999999999999999", WRONG, ""},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": 1e400", WRONG, ""},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": NaN", WRONG, ""},
    {"\"num_attention_heads\": 8", "\"num_attention_heads\": 6", WRONG, "key/value heads must divide heads (got 4 and 6)"},
    {"\"num_attention_heads\": 8,", "", WRONG, "num_attention_heads"},
    {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 0", WRONG, "num_key_value_heads"},
    {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 3", WRONG, "key/value heads must divide heads (got 3 and 8)"},
    {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 8", WRONG, "k_proj"},
    {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": null", WRONG, "k_proj"}, // null: as many as heads
    {"\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1000000000", WRONG, "num_hidden_layers"},
    {"\"num_hidden_layers\": 5", "\"num_hidden_layers\": 9999", WRONG, "more layers than tensors (got 9999 layers"},
    {"\"num_hidden_layers\": 5", "\"num_hidden_layers\": 6", WRONG, "model.layers.5"},
    {"\"num_hidden_layers\": 5", "\"num_hidden_layers\": 4", WRONG, "beyond the last (got layer 4, allowed 0..3)"},
    {"\"hidden_size\": 64", "\"hidden_size\": 128", WRONG, "embed_tokens"},
    {"\"hidden_size\": 64", "\"hidden_size\": 0", WRONG, "hidden_size"},
    {"\"hidden_size\": 64", "\"hidden_size\": 4000000000", WRONG, "hidden_size"},
    {"\"intermediate_size\": 172", "\"intermediate_size\": 173", WRONG, "gate_proj"},
    {"\"vocab_size\": 512", "\"vocab_size\": 511", WRONG, "embed_tokens"},
    {"\"vocab_size\": 512", "\"vocab_size\": 100000000", WRONG, "vocab_size"},
    {"\"head_dim\": 8", "\"head_dim\": 7", WRONG, "rotary positions need an even width"},
    {"\"head_dim\": 8", "\"head_dim\": 16", WRONG, "q_proj"},
    {"\"rope_theta\": 10000.0", "\"rope_theta\": 0", WRONG, "rope_theta"},
    {"\"rope_theta\": 10000.0", "\"rope_theta\": -1", WRONG, "rope_theta"},
    {"\"rope_theta\": 10000.0", "\"rope_theta\": Infinity", WRONG, ""},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0", WRONG, "rms_norm_eps"},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1e-5", WRONG, "rms_norm_eps"},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e30", WRONG, "rms_norm_eps"},
    {"\"max_position_embeddings\": 512", "\"max_position_embeddings\": 0", WRONG, "max_position_embeddings"},
    {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", WRONG, "lm_head"},
    {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1", WRONG, "tie_word_embeddings"},
    {"\"attention_bias\": false", "\"attention_bias\": true", WRONG, ".bias"},
    {"\"eos_token_id\": 2", "\"eos_token_id\": 512", WRONG, "eos_token_id"},
    {"\"eos_token_id\": 2", "\"eos_token_id\": -1", WRONG, "eos_token_id"},
    {"\"eos_token_id\": 2", "\"eos_token_id\": [2, 1.5]", WRONG, "eos_token_id"},
    {"\"eos_token_id\": 2", "\"eos_token_id\": [1, 2, 0]", HEED_OK, NULL},
    {"\"eos_token_id\": 2", "\"eos_token_id\": null", HEED_OK, NULL},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"mish\"", UNKNOWN, "hidden_act, got mish, allowed silu"},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": 3", WRONG, "hidden_act"},
    {"\"model_type\": \"llama\"", "\"model_type\": \"rwkv\"", UNKNOWN,
     "model_type, got rwkv, allowed bart, bert, distilbert, gemma2, gemma3_text, gpt2, gpt_neox, llama, marian, mistral, modernbert, "
     "olmo2, phi3, "
     "qwen2, qwen3, roberta, t5, heed"},
    {"\"model_type\": \"llama\"", "\"model_type\": null", WRONG, "model_type"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}", UNKNOWN,
     "longrope, allowed default, linear, dynamic, yarn, llama3"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}", HEED_OK, NULL},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\"}", WRONG, "factor"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_slow\": 40}", WRONG,
     "slow must be below fast (got 40 and 32"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", HEED_OK, NULL},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 0.5}", WRONG, "factor 0.5, allowed 1 and more"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\"}", WRONG, "factor"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}", WRONG, "factor"},
    {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", HEED_OK, NULL},
    {"\"rope_scaling\": null", "\"rope_scaling\": 3", WRONG, "rope_scaling"},
    {"\"rope_scaling\": null", "\"partial_rotary_factor\": 0.5", HEED_OK, NULL},
    {"\"rope_scaling\": null", "\"partial_rotary_factor\": 0.1", WRONG,
     "partial_rotary_factor leaves no positions (got 0.1 of a head of 8"},
    {"\"rope_scaling\": null", "\"partial_rotary_factor\": 0", WRONG, "partial_rotary_factor"},
};

static const edit gpt2_edits[] = {
    {"\"n_head\": 3", "\"n_head\": 5", WRONG, "heads must divide the width (got 5 and 48)"},
    {"\"n_positions\": 11", "\"n_positions\": 12", WRONG, "wpe"},
    {"\"n_positions\": 11", "\"n_positions\": 0", WRONG, "n_positions"},
    {"\"n_inner\": null", "\"n_inner\": 191", WRONG, "c_fc"},
    {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", HEED_OK, NULL},
    {"\"activation_function\": \"gelu_new\"", "\"activation_function\": \"gelu_newer\"", UNKNOWN, "gelu_newer"},
    {"\"add_cross_attention\": false", "\"add_cross_attention\": true", UNKNOWN, "add_cross_attention, got true, allowed false"},
    {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false", UNKNOWN, "scale_attn_weights"},
};

static const edit llama3_edits[] = {
    {"\"rope_theta\": 10000.0", "\"rope_theta\": 0", WRONG, "rope_theta"},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"", UNKNOWN, "longrope"},
    {"\"factor\": 4.0,\n    \"high", "\"high", WRONG, "factor"},
    {"\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0", WRONG, "slow must be below fast (got 4 and 4 turns)"},
    {"\"original_max_position_embeddings\": 32", "\"original_max_position_embeddings\": 0", WRONG, "original_max_position_embeddings"},
    {"\"head_dim\": 16", "\"head_dim\": null", WRONG, "q_proj"}, // null: width / heads, which is 12
};

static const edit gemma3_edits[] = {
    {"\"sliding_attention\",\n    \"sliding_attention\",\n", "\"sliding_attention\",\n", WRONG, "layer_types: must name each layer's kind"},
    {"\"full_attention\"\n", "\"chunked_attention\"\n", UNKNOWN, "layer_types[2]"},
    {"\"sliding_window\": 8", "\"sliding_window\": -8", WRONG, "sliding_window"},
    {"\"query_pre_attn_scalar\": 16", "\"query_pre_attn_scalar\": 0", WRONG, "query_pre_attn_scalar"},
    {"\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true", UNKNOWN, "use_bidirectional_attention"},
    {"\"head_dim\": 16", "\"head_dim\": 8", WRONG, "q_norm"},
};

static const edit modernbert_edits[] = {
    {"\"classifier_activation\": \"gelu\"", "\"classifier_activation\": \"silu\"", UNKNOWN, "classifier_activation, got silu"},
    {"\"norm_bias\": false", "\"norm_bias\": true", WRONG, ".bias"},
    {"\"local_attention\": 8", "\"local_attention\": 0", WRONG, "local_attention"},
};

static const edit roberta_edits[] = {
    {"\"max_position_embeddings\": 64", "\"max_position_embeddings\": 2", WRONG, "no positions are left"},
    {"\"pad_token_id\": 1", "\"pad_token_id\": 2", HEED_OK, NULL},
};

/* Every edit of one model's config.json, its weights beside it. */
static void check_edits(const char *directory, const edit *edits, int count) {
  char path[512];
  size_t size;
  snprintf(path, sizeof path, "%s/model.safetensors", directory);
  char *weights = read_text(path, &size);
  write_file("model.safetensors", weights, size);
  free(weights);
  snprintf(path, sizeof path, "%s/config.json", directory);
  char *config = read_text(path, &size);
  write_file("config.json", config, size);
  check_file(load, test_folder, (demand){.status = HEED_OK});
  for (int i = 0; i < count; i++) {
    char *text = edited(config, edits[i].from, edits[i].to);
    write_file("config.json", text, strlen(text));
    check_file(load, test_folder, (demand){.status = edits[i].status, .fragment = edits[i].fragment});
    free(text);
  }
  free(config);
}

static void test_config_llama(void **state) {
  (void)state;
  check_edits(STORIES_HF, llama_edits, sizeof llama_edits / sizeof *llama_edits);
  check_file(load, in_folder("model.safetensors"), (demand){.status = UNKNOWN, .fragment = "weights alone"});
}

static void test_config_families(void **state) {
  (void)state;
  check_edits(TEST_EXPECTED "families/gemma3", gemma3_edits, sizeof gemma3_edits / sizeof *gemma3_edits);
  check_edits(TEST_EXPECTED "families/modernbert", modernbert_edits, sizeof modernbert_edits / sizeof *modernbert_edits);
  check_edits(TEST_EXPECTED "families/roberta", roberta_edits, sizeof roberta_edits / sizeof *roberta_edits);
}

static void test_config_gpt2(void **state) {
  (void)state;
  check_edits(SORT, gpt2_edits, sizeof gpt2_edits / sizeof *gpt2_edits);
}

static void test_config_llama3(void **state) {
  (void)state;
  check_edits(TEST_EXPECTED "families/llama3", llama3_edits, sizeof llama3_edits / sizeof *llama3_edits);
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------------------- */

/* Where the value of a key begins, after its type. */
static size_t value_of(const char *data, size_t size, const char *key, uint32_t type) {
  size_t length = strlen(key);
  for (size_t at = 8; at + length < size; at++) {
    uint64_t stored;
    memcpy(&stored, data + at - 8, sizeof stored);
    if (stored != length || memcmp(data + at, key, length) != 0) continue;
    assert_memory_equal(data + at + length, &type, sizeof type);
    return at + length + sizeof type;
  }
  fail_msg("no key %s", key);
  return 0;
}

static void test_gguf(void **state) {
  (void)state;
  static const struct {
    const char *key;
    uint32_t value;
    heed_status status;
    const char *fragment;
  } edits[] = {
      {"llama.attention.head_count", 0, WRONG, "llama.attention.head_count"},
      {"llama.attention.head_count", 6, WRONG, "key/value heads must divide heads (got 4 and 6)"},
      {"llama.attention.head_count_kv", 3, WRONG, "key/value heads must divide heads (got 3 and 8)"},
      {"llama.attention.head_count_kv", 0, WRONG, "llama.attention.head_count_kv"},
      {"llama.attention.head_count_kv", 8, WRONG, "attn_k"},
      {"llama.block_count", 0, WRONG, "llama.block_count"},
      {"llama.block_count", UINT32_MAX, WRONG, "llama.block_count"},
      {"llama.block_count", 9000, WRONG, "more layers than tensors"},
      {"llama.block_count", 6, WRONG, "blk.5"},
      {"llama.block_count", 3, WRONG, "beyond the last"},
      {"llama.embedding_length", 128, WRONG, "token_embd"},
      {"llama.feed_forward_length", 173, WRONG, "ffn_gate"},
      {"llama.context_length", 0, WRONG, "llama.context_length"},
      {"llama.rope.dimension_count", 10, WRONG, "rotary positions need an even width"},
      {"llama.rope.dimension_count", 3, WRONG, "rotary positions need an even width"},
      {"llama.vocab_size", 511, WRONG, "token_embd"},
      {"tokenizer.ggml.eos_token_id", 512, WRONG, "tokenizer.ggml.eos_token_id"},
      {"llama.rope.freq_base", 0, WRONG, "llama.rope.freq_base"},
      {"llama.attention.layer_norm_rms_epsilon", 0x7fc00000, WRONG, "llama.attention.layer_norm_rms_epsilon"}, // NaN
      {"llama.attention.layer_norm_rms_epsilon", 0, WRONG, "llama.attention.layer_norm_rms_epsilon"},
  };
  size_t size;
  char *base = read_text(STORIES, &size);
  check_file(load, write_file("base.gguf", base, size), (demand){.status = HEED_OK});
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    bool real = strstr(edits[i].key, "freq_base") || strstr(edits[i].key, "epsilon");
    size_t at = value_of(base, size, edits[i].key, real ? 6 : 4);
    uint32_t old;
    memcpy(&old, base + at, 4);
    memcpy(base + at, &edits[i].value, 4);
    check_file(load, write_file("edit.gguf", base, size), (demand){.status = edits[i].status, .fragment = edits[i].fragment});
    memcpy(base + at, &old, 4);
  }
  // Another architecture of the same length.
  size_t at = value_of(base, size, "general.architecture", 8) + 8;
  memcpy(base + at, "mamba", 5);
  check_file(load, write_file("edit.gguf", base, size), (demand){.status = UNKNOWN, .fragment = "got mamba, allowed gpt2, llama, qwen2"});
  memcpy(base + at, "llama", 5);

  // Two keys more, of 64 bytes together, so that the tensors stay aligned: a mixture of experts under the same name.
  bytes mixture = {0};
  uint64_t keys;
  memcpy(&keys, base + 16, sizeof keys);
  put(&mixture, base, 16);
  put_u64(&mixture, keys + 2);
  const char *const names[] = {"llama.expert_count", "general.filler"};
  for (int i = 0; i < 2; i++) {
    put_u64(&mixture, strlen(names[i]));
    put_text(&mixture, names[i]);
    put_u32(&mixture, 4); // u32
    put_u32(&mixture, 8);
  }
  put(&mixture, base + 24, size - 24);
  check_file(load, write_file("edit.gguf", mixture.data, mixture.size),
             (demand){.status = UNKNOWN, .fragment = "llama.expert_count, got 8, allowed 0"});
  bytes_free(&mixture);

  // block_count as a text of 28 letters: 32 bytes more than the integer, so that the tensors stay aligned.
  bytes b = {0};
  at = value_of(base, size, "llama.block_count", 4);
  put(&b, base, at - 4);
  put_u32(&b, 8);
  put_u64(&b, 28);
  put_fill(&b, '5', 28);
  put(&b, base + at + 4, size - at - 4);
  check_file(load, write_file("edit.gguf", b.data, b.size), (demand){.status = WRONG, .fragment = "llama.block_count"});
  bytes_free(&b);
  free(base);
}

/* ---- memory that runs out --------------------------------------------------------------------------------------------------- */

static heed_status run(heed_context *context, const char *path) {
  static const int32_t ids[] = {1, 403, 407, 261, 378};
  heed_model *model;
  heed_session *session = NULL;
  float logits[2 * 512];
  heed_status status = heed_model_load(context, path, &model);
  if (status == HEED_OK) status = heed_session_new(context, model, NULL, &session);
  if (status == HEED_OK) {
    status = heed_session_run(session, ids, 5, logits, 2, NULL);
    assert_int_equal(heed_session_length(session), status == HEED_OK ? 5 : 0);
  }
  if (status == HEED_OK) {
    heed_generate_options options = {.size = sizeof options, .count = 3, .sampling = {.size = sizeof(heed_sampling), .temperature = 1}};
    status = heed_generate(session, ids, 1, &options, NULL);
  }
  heed_session_free(session);
  heed_model_free(model);
  return status;
}

static heed_status nothing(void *user, const heed_layer_record *record) {
  (void)user, (void)record;
  return HEED_OK;
}
static heed_status nothing_edited(void *user, heed_layer_record *record) {
  (void)user, (void)record;
  return HEED_OK;
}

static heed_status watch(heed_context *context, const char *path) {
  static const int32_t ids[] = {0, 2, 1, 0, 1};
  heed_model *model;
  heed_session *session = NULL;
  heed_status status = heed_model_load(context, path, &model);
  if (status == HEED_OK) status = heed_session_new(context, model, NULL, &session);
  if (status == HEED_OK) {
    heed_watch watching = {.size = sizeof watching, .want_qkv = true, .record = nothing, .edit = nothing_edited};
    status = heed_session_run(session, ids, 5, NULL, 0, &watching);
    assert_int_equal(heed_session_length(session), status == HEED_OK ? 5 : 0);
  }
  heed_session_free(session);
  heed_model_free(model);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  check_out_of_memory(run, STORIES);
  check_out_of_memory(load, STORIES_HF);
  check_out_of_memory(watch, SORT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_config_llama),  cmocka_unit_test(test_config_gpt2), cmocka_unit_test(test_config_families),
      cmocka_unit_test(test_config_llama3), cmocka_unit_test(test_gguf),        cmocka_unit_test(test_out_of_memory)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
