/* gpt_neox.c: GPT-NeoX and Pythia (Black et al. 2022): layer norm before, plain GELU, biases everywhere; a quarter of each head turns, and attention and feed-forward layers read the same
 * stream. */
#include "../family.h"

static const hd_field fields[] = {
    HD_SIZE_FIELDS,
    {NULL, "layer_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-5, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 1, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 1, NULL},
    {NULL, "use_parallel_residual", HD_FIELD_BOOL, HD_AT(parallel), 0, 1, false, 1, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 0, NULL},
    {NULL, "is_decoder", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
};

const hd_family hd_family_gpt_neox = {
    .name = "gpt_neox",
    .base = {.norm = HD_NORM_LAYER,
             .feed_forward_kind = HD_FEED_FORWARD_PLAIN,
             .activation = HEED_ACTIVATION_GELU,
             .bias_feed_forward = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .rotary = {.theta = "rotary_emb_base", .partial = "rotary_pct", .partial_default = 0.25, .odd = true},
    .only_read = true,
    .json = {.architecture = "gpt_neox",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .head_by_head = true,
             .tensors = {[HD_SLOT_EMBEDDING] = "gpt_neox.embed_in",
                         [HD_SLOT_FINAL_NORM] = "gpt_neox.final_layer_norm",
                         [HD_SLOT_HEAD] = "embed_out",
                         [HD_SLOT_ATTENTION_NORM] = "gpt_neox.layers.#.input_layernorm",
                         [HD_SLOT_QKV] = "gpt_neox.layers.#.attention.query_key_value",
                         [HD_SLOT_OUTPUT] = "gpt_neox.layers.#.attention.dense",
                         [HD_SLOT_FEED_FORWARD_NORM] = "gpt_neox.layers.#.post_attention_layernorm",
                         [HD_SLOT_UP] = "gpt_neox.layers.#.mlp.dense_h_to_4h",
                         [HD_SLOT_DOWN] = "gpt_neox.layers.#.mlp.dense_4h_to_h"}},
};
