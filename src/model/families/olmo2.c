/* olmo2.c: OLMo 2: a Llama that norms what each sublayer gives instead of what it reads, and all heads of queries and of keys together. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},
};

const hd_family hd_family_olmo2 = {
    .name = "olmo2",
    .base = {.norm = HD_NORM_RMS,
             .norm_place = HD_NORM_OUTPUT,
             .side_norm = HD_SIDE_NORM_ROW,
             .feed_forward_kind = HD_FEED_FORWARD_GATED,
             .activation = HEED_ACTIVATION_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .only_read = true,
    .json = {.architecture = "olmo2",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .tensors = {HD_JSON_LLAMA_MATRICES, [HD_SLOT_ATTENTION_NORM] = "model.layers.#.post_attention_layernorm",
                         [HD_SLOT_QUERY_NORM] = "model.layers.#.self_attn.q_norm", [HD_SLOT_KEY_NORM] = "model.layers.#.self_attn.k_norm",
                         [HD_SLOT_FEED_FORWARD_NORM] = "model.layers.#.post_feedforward_layernorm"}},
};
