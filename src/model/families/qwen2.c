/* qwen2.c: Qwen 2 and 2.5: a Llama with biases on queries, keys and values, in split-half rotary order in both kinds of file. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {NULL, "use_sliding_window", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
};

const hd_family hd_family_qwen2 = {
    .name = "qwen2",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HEED_ACTIVATION_SILU, .bias_qkv = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .gguf = {.architecture = "qwen2", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_GGUF_LLAMA_TENSORS},
    .json = {.architecture = "qwen2", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_JSON_LLAMA_TENSORS},
};
