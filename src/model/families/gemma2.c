/* gemma2.c: Gemma 2: every other layer has a window, scores and logits are capped. */
#include "gemma.h"

static const hd_field fields[] = {HD_GEMMA_FIELDS};

const hd_family hd_family_gemma2 = {
    .name = "gemma2",
    .base = {HD_GEMMA_BASE},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_activation",
    .windows = {.every_default = 2},
    .derive = hd_gemma_derive,
    .only_read = true,
    .json = {.architecture = "gemma2", .positions = HD_POSITIONS_ROTARY_HALF, .tensors = {HD_GEMMA_TENSORS}},
};
