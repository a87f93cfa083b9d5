/* roberta.c: RoBERTa (Liu et al. 2019): a BERT whose positions begin behind the number of the padding token, with other names for its head. */
#include "bert.h"

static const hd_field fields[] = {
    HD_SIZE_FIELDS,
    {NULL, "type_vocab_size", HD_FIELD_INTEGER, HD_AT(segments), 1, HD_MAX_VOCABULARY, false, 1, NULL},
    {NULL, "layer_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-12, NULL},
    {NULL, "pad_token_id", HD_FIELD_INTEGER, HD_AT(position_offset), 0, HD_MAX_VOCABULARY, false, 1, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
    {NULL, "is_decoder", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
    {NULL, "add_cross_attention", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
};

/* The first position is the row behind that of the padding token; the table's rows count both. */
static heed_status derive(const hd_config *config, hd_transformer_spec *spec) {
  spec->position_offset++;
  HD_REQUIRE(spec->context > spec->position_offset, config->context, HEED_E_FORMAT,
             "%s: no positions are left behind that of the padding token (max_position_embeddings, got %lld, allowed from %lld on)",
             config->file, (long long)spec->context, (long long)spec->position_offset + 1);
  spec->context -= spec->position_offset;
  return HEED_OK;
}

const hd_family hd_family_roberta = {
    .name = "roberta",
    .base = {HD_BERT_BASE},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .class_names = {"RobertaForMaskedLM", "RobertaForTokenClassification"},
    .derive = derive,
    .only_read = true,
    .json = {.architecture = "roberta",
             .positions = HD_POSITIONS_LEARNED,
             .tensors = {HD_BERT_TENSORS("roberta"), [HD_SLOT_HEAD_DENSE] = "lm_head.dense", [HD_SLOT_HEAD_NORM] = "lm_head.layer_norm",
                         [HD_SLOT_HEAD] = "lm_head.decoder", [HD_SLOT_HEAD_BIAS] = "lm_head"}},
};
