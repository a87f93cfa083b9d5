/* bert.c: BERT: an encoder as in 2017, layer norm after, with learned positions, segments, a norm of the embedding and a head for masked tokens, labels of tokens or a class of
 * the text. */
#include "bert.h"

static const char *const positions[] = {"absolute", NULL};

static const hd_field fields[] = {
    HD_SIZE_FIELDS,
    {NULL, "type_vocab_size", HD_FIELD_INTEGER, HD_AT(segments), 1, HD_MAX_VOCABULARY, false, 2, NULL},
    {NULL, "layer_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-12, NULL},
    {NULL, "position_embedding_type", HD_FIELD_CHOICE, HD_AT(positions), 0, 0, false, 0, positions},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
    {NULL, "is_decoder", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
    {NULL, "add_cross_attention", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},
};

const hd_family hd_family_bert = {
    .name = "bert",
    .base = {HD_BERT_BASE, .segments = 2},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .class_names = {"BertForMaskedLM", "BertForTokenClassification", "BertForSequenceClassification"},
    .json = {.architecture = "bert",
             .positions = HD_POSITIONS_LEARNED,
             .tensors = {HD_BERT_TENSORS("bert"), [HD_SLOT_HEAD_DENSE] = "cls.predictions.transform.dense",
                         [HD_SLOT_HEAD_NORM] = "cls.predictions.transform.LayerNorm", [HD_SLOT_HEAD] = "cls.predictions.decoder",
                         [HD_SLOT_HEAD_BIAS] = "cls.predictions", [HD_SLOT_POOLER] = "bert.pooler.dense"}},
};
