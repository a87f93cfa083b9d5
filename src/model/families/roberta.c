/* roberta.c: RoBERTa (Liu et al. 2019): a BERT whose positions begin behind the number of the padding token, with other names for its head. */
#include "../family.h"

static const hd_field fields[] = {
    {NULL, "num_hidden_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},
    {NULL, "hidden_size", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "num_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},
    {NULL, "intermediate_size", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},
    {NULL, "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},
    {NULL, "type_vocab_size", HD_FIELD_INTEGER, HD_AT(segments), 1, HD_MAX_VOCABULARY, false, 1, NULL},
    {NULL, "layer_norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-12, NULL},
    {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},
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
    .base = {.norm = HD_NORM_LAYER,
             .norm_place = HD_NORM_AFTER,
             .feed_forward_kind = HD_FEED_FORWARD_PLAIN,
             .activation = HEED_ACTIVATION_GELU,
             .bidirectional = true,
             .embedding_norm = true,
             .head_transform = true,
             .bias_qkv = true,
             .bias_output = true,
             .bias_feed_forward = true,
             .bias_head = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_act",
    .class_names = {"RobertaForMaskedLM", "RobertaForTokenClassification"},
    .derive = derive,
    .only_read = true,
    .json = {.architecture = "roberta",
             .positions = HD_POSITIONS_LEARNED,
             .tensors = {[HD_SLOT_EMBEDDING] = "roberta.embeddings.word_embeddings",
                         [HD_SLOT_POSITION] = "roberta.embeddings.position_embeddings",
                         [HD_SLOT_SEGMENT] = "roberta.embeddings.token_type_embeddings",
                         [HD_SLOT_EMBEDDING_NORM] = "roberta.embeddings.LayerNorm",
                         [HD_SLOT_HEAD_DENSE] = "lm_head.dense",
                         [HD_SLOT_HEAD_NORM] = "lm_head.layer_norm",
                         [HD_SLOT_HEAD] = "lm_head.decoder",
                         [HD_SLOT_HEAD_BIAS] = "lm_head",
                         [HD_SLOT_CLASSIFIER] = "classifier",
                         [HD_SLOT_ATTENTION_NORM] = "roberta.encoder.layer.#.attention.output.LayerNorm",
                         [HD_SLOT_QUERY] = "roberta.encoder.layer.#.attention.self.query",
                         [HD_SLOT_KEY] = "roberta.encoder.layer.#.attention.self.key",
                         [HD_SLOT_VALUE] = "roberta.encoder.layer.#.attention.self.value",
                         [HD_SLOT_OUTPUT] = "roberta.encoder.layer.#.attention.output.dense",
                         [HD_SLOT_FEED_FORWARD_NORM] = "roberta.encoder.layer.#.output.LayerNorm",
                         [HD_SLOT_UP] = "roberta.encoder.layer.#.intermediate.dense",
                         [HD_SLOT_DOWN] = "roberta.encoder.layer.#.output.dense"}},
};
