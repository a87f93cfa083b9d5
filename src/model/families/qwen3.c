/* qwen3.c: Qwen 3: a Llama whose heads of queries and keys are normed before they turn. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},
    {NULL, "use_sliding_window", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
};

const hd_family hd_family_qwen3 = {
    .name = "qwen3",
    .base = {.norm = HD_NORM_RMS,
             .side_norm = HD_SIDE_NORM_HEAD,
             .feed_forward_kind = HD_FEED_FORWARD_GATED,
             .activation = HEED_ACTIVATION_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .only_read = true,
    .json = {.architecture = "qwen3",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .tensors = {HD_JSON_LLAMA_MATRICES, HD_JSON_LLAMA_NORMS, [HD_SLOT_QUERY_NORM] = "model.layers.#.self_attn.q_norm",
                         [HD_SLOT_KEY_NORM] = "model.layers.#.self_attn.k_norm"}},
};
