/* marian.c: Marian (Junczys-Dowmunt et al. 2018), the translation models of OPUS-MT: the Transformer of 2017 with computed positions; encoder and decoder share an embedding or have
 * one each, and the head is the decoder's. */
#include "bart.h"

static const hd_field encoder_fields[] = {
    HD_BART_FIELDS("encoder"),
    {NULL, "share_encoder_decoder_embeddings", HD_FIELD_BOOL, HD_AT(shared_embedding), 0, 1, false, 1, NULL},
};

static const hd_family encoder = {
    .name = "marian",
    .base = {HD_BART_BASE, .bidirectional = true, .headless = true},
    .fields = encoder_fields,
    .field_count = HD_COUNT(encoder_fields),
    .activation_key = "activation_function",
    .json = {.architecture = "marian",
             .positions = HD_POSITIONS_SINUSOIDAL,
             .tensors = {HD_BART_TENSORS("encoder")},
             .separate = "model.encoder.embed_tokens"},
};

static const hd_field fields[] = {
    HD_BART_FIELDS("decoder"),
    {NULL, "decoder_vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, false, HD_UNCHANGED, NULL},
    {NULL, "normalize_embedding", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
    {NULL, "static_position_embeddings", HD_FIELD_REFUSED, 0, 0, 1, false, 1, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
};

const hd_family hd_family_marian = {
    .name = "marian",
    .base = {HD_BART_BASE, .cross = true, .bias_head = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "activation_function",
    .class_names = {"MarianMTModel"},
    .json = {.architecture = "marian",
             .positions = HD_POSITIONS_SINUSOIDAL,
             .tensors = {HD_BART_TENSORS("decoder")},
             .separate = "model.decoder.embed_tokens",
             .head_bias_row = true},
    .encoder = &encoder,
};
