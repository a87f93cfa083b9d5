/* llama.c: Llama 1 to 3 and the many models of that shape: RMS norm before, rotary positions, gated SiLU, grouped heads. GGUF files of this architecture store queries and keys with
 * interleaved rotary pairs, Hugging Face directories with split halves. */
#include "../family.h"

static const hd_field fields[] = {
    {".block_count", "num_hidden_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0},
    {".embedding_length", "hidden_size", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0},
    {".attention.head_count", "num_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0},
    {".attention.head_count_kv", "num_key_value_heads", HD_FIELD_INTEGER, HD_AT(kv_heads), 1, HD_MAX_HEADS, false, 0},
    {".attention.key_length", "head_dim", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, false, 0},
    {".feed_forward_length", "intermediate_size", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0},
    {".context_length", "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0},
    {".attention.layer_norm_rms_epsilon", "rms_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, true, 0},
    {".vocab_size", "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, false, 0},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0},
    {NULL, "mlp_bias", HD_FIELD_BOOL, HD_AT(bias_feed_forward), 0, 1, false, 0},
};

const hd_family hd_family_llama = {
    .name = "llama",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HD_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .gguf = {.architecture = "llama", .positions = HD_POSITIONS_ROTARY_INTERLEAVED, .tensors = HD_GGUF_LLAMA_TENSORS},
    .json = {.architecture = "llama", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_JSON_LLAMA_TENSORS},
};
