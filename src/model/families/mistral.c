/* mistral.c: Mistral: a Llama whose layers may all look through a window. Its GGUF files call themselves llama. */
#include "../family.h"

static const hd_field fields[] = {
    {NULL, "num_hidden_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0},
    {NULL, "hidden_size", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0},
    {NULL, "num_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0},
    {NULL, "num_key_value_heads", HD_FIELD_INTEGER, HD_AT(kv_heads), 1, HD_MAX_HEADS, false, 0},
    {NULL, "head_dim", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, false, 0},
    {NULL, "intermediate_size", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0},
    {NULL, "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0},
    {NULL, "rms_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, true, 0},
    {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0},
    {NULL, "sliding_window", HD_FIELD_INTEGER, HD_AT(window), 1, HD_MAX_CONTEXT, false, 0},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0},
};

const hd_family hd_family_mistral = {
    .name = "mistral",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HD_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .json = {.architecture = "mistral", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_JSON_LLAMA_TENSORS},
};
