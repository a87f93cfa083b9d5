/* distilbert.c: DistilBERT (Sanh et al. 2019): a BERT of half the layers, without segments. */
#include "bert.h"

static const hd_field fields[] = {
    {NULL, "n_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},
    {NULL, "dim", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "n_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},
    {NULL, "hidden_dim", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},
    {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
};

const hd_family hd_family_distilbert = {
    .name = "distilbert",
    .base = {HD_BERT_BASE, .norm_eps = 1e-12},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "activation",
    .class_names = {"DistilBertForMaskedLM", "DistilBertForTokenClassification"},
    .only_read = true,
    .json = {.architecture = "distilbert",
             .positions = HD_POSITIONS_LEARNED,
             .tensors = {[HD_SLOT_EMBEDDING] = "distilbert.embeddings.word_embeddings",
                         [HD_SLOT_POSITION] = "distilbert.embeddings.position_embeddings",
                         [HD_SLOT_EMBEDDING_NORM] = "distilbert.embeddings.LayerNorm",
                         [HD_SLOT_HEAD_DENSE] = "vocab_transform",
                         [HD_SLOT_HEAD_NORM] = "vocab_layer_norm",
                         [HD_SLOT_HEAD] = "vocab_projector",
                         [HD_SLOT_HEAD_BIAS] = "vocab_projector",
                         [HD_SLOT_CLASSIFIER] = "classifier",
                         [HD_SLOT_ATTENTION_NORM] = "distilbert.transformer.layer.#.sa_layer_norm",
                         [HD_SLOT_QUERY] = "distilbert.transformer.layer.#.attention.q_lin",
                         [HD_SLOT_KEY] = "distilbert.transformer.layer.#.attention.k_lin",
                         [HD_SLOT_VALUE] = "distilbert.transformer.layer.#.attention.v_lin",
                         [HD_SLOT_OUTPUT] = "distilbert.transformer.layer.#.attention.out_lin",
                         [HD_SLOT_FEED_FORWARD_NORM] = "distilbert.transformer.layer.#.output_layer_norm",
                         [HD_SLOT_UP] = "distilbert.transformer.layer.#.ffn.lin1",
                         [HD_SLOT_DOWN] = "distilbert.transformer.layer.#.ffn.lin2"}},
};
