/* mistral.c: Mistral: a Llama whose layers may all look through a window. Its GGUF files call themselves llama. */
#include "../family.h"

static const hd_field fields[] = {
    HD_LLAMA_FIELDS,
    {NULL, "sliding_window", HD_FIELD_INTEGER, HD_AT(window), 1, HD_MAX_CONTEXT, false, 0, NULL},
};

const hd_family hd_family_mistral = {
    .name = "mistral",
    .base = {.norm = HD_NORM_RMS, .feed_forward_kind = HD_FEED_FORWARD_GATED, .activation = HEED_ACTIVATION_SILU},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .json = {.architecture = "mistral", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = HD_JSON_LLAMA_TENSORS},
};
