/* bart.c: BART (Lewis et al. 2020): learned positions whose table begins two rows before the first, a norm of the embeddings, one embedding for both stacks and the head. */
#include "bart.h"

static const hd_field encoder_fields[] = {HD_BART_FIELDS("encoder")};

static const hd_family encoder = {
    .name = "bart",
    .base = {HD_BART_BASE, .bidirectional = true, .headless = true, .shared_embedding = true, .embedding_norm = true, .position_offset = 2},
    .fields = encoder_fields,
    .field_count = HD_COUNT(encoder_fields),
    .activation_key = "activation_function",
    .json = {.architecture = "bart", .positions = HD_POSITIONS_LEARNED, .tensors = {HD_BART_TENSORS("encoder")}},
};

static const hd_field fields[] = {
    HD_BART_FIELDS("decoder"),
    {NULL, "normalize_embedding", HD_FIELD_REFUSED, 0, 0, 1, false, 1, NULL},
    {NULL, "static_position_embeddings", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
};

const hd_family hd_family_bart = {
    .name = "bart",
    .base = {HD_BART_BASE, .cross = true, .embedding_norm = true, .position_offset = 2, .bias_head = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "activation_function",
    .class_names = {"BartForConditionalGeneration"},
    .json = {.architecture = "bart", .positions = HD_POSITIONS_LEARNED, .tensors = {HD_BART_TENSORS("decoder")}, .head_bias_row = true},
    .encoder = &encoder,
};
