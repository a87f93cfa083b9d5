/* phi3.c: Phi 3: a Llama whose queries, keys and values are one matrix, and gate and up another. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {NULL, "sliding_window", HD_FIELD_INTEGER, HD_AT(window), 1, HD_MAX_CONTEXT, false, 0, NULL},
};

const hd_family hd_family_phi3 = {
    .name = "phi3",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HEED_ACTIVATION_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .only_read = true,
    .json = {.architecture = "phi3",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .tensors = {[HD_SLOT_EMBEDDING] = "model.embed_tokens",
                         [HD_SLOT_FINAL_NORM] = "model.norm",
                         [HD_SLOT_HEAD] = "lm_head",
                         [HD_SLOT_ATTENTION_NORM] = "model.layers.#.input_layernorm",
                         [HD_SLOT_QKV] = "model.layers.#.self_attn.qkv_proj",
                         [HD_SLOT_OUTPUT] = "model.layers.#.self_attn.o_proj",
                         [HD_SLOT_FEED_FORWARD_NORM] = "model.layers.#.post_attention_layernorm",
                         [HD_SLOT_GATE_UP] = "model.layers.#.mlp.gate_up_proj",
                         [HD_SLOT_DOWN] = "model.layers.#.mlp.down_proj"}},
};
