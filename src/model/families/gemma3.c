/* gemma3.c: Gemma 3, the part of it that reads text: heads of queries and keys are normed, and five of six layers have a window and turn by a theta of their own. */
#include "gemma.h"

static const hd_field fields[] = {HD_GEMMA_FIELDS};

const hd_family hd_family_gemma3 = {
    .name = "gemma3",
    .base = {HD_GEMMA_BASE, .side_norm = HD_SIDE_NORM_HEAD},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_activation",
    .rotary = {.theta_default = 1e6, .local = "rope_local_base_freq", .local_default = 1e4},
    .windows = {.every = "sliding_window_pattern", .every_default = 6},
    .derive = hd_gemma_derive,
    .only_read = true,
    .json = {.architecture = "gemma3_text",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .tensors = {HD_GEMMA_TENSORS, [HD_SLOT_QUERY_NORM] = "model.layers.#.self_attn.q_norm",
                         [HD_SLOT_KEY_NORM] = "model.layers.#.self_attn.k_norm"}},
};
