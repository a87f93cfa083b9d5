/* modernbert.c: ModernBERT (Warner et al. 2024): an encoder with norms before, gated GELU and rotary positions, of whose layers every third sees all and the others see a window to both
 * sides and turn by a theta of their own. The first layer reads what the norm of the embedding gave. */
#include "../family.h"

static const hd_field fields[] = {
    HD_SIZE_FIELDS,
    {NULL, "norm_eps", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-5, NULL},
    {NULL, "local_attention", HD_FIELD_INTEGER, HD_AT(window), 1, HD_MAX_CONTEXT, false, 128, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},
    {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},
    {NULL, "mlp_bias", HD_FIELD_BOOL, HD_AT(bias_feed_forward), 0, 1, false, 0, NULL},
    {NULL, "decoder_bias", HD_FIELD_BOOL, HD_AT(bias_head), 0, 1, false, 1, NULL},
    {NULL, "norm_bias", HD_FIELD_BOOL, HD_AT(norm_unbiased), 0, 1, false, 0, NULL},
    {NULL, "classifier_bias", HD_FIELD_BOOL, HD_AT(head_dense_unbiased), 0, 1, false, 0, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
};

/* The configuration says which biases there are and how wide the whole window is; the head's activation must be that of the layers. */
static heed_status derive(const hd_config *config, hd_transformer_spec *spec) {
  const hd_json_place top = hd_config_top(config);
  heed_text head;
  char quoted[HD_QUOTE_LENGTH];
  heed_activation activation;
  spec->norm_unbiased = !spec->norm_unbiased;
  spec->head_dense_unbiased = !spec->head_dense_unbiased;
  spec->window = spec->window / 2 + 1; // half of it to each side, and the query's own
  HD_TRY(hd_json_text_or(&top, "classifier_activation", "gelu", &head));
  HD_REQUIRE(hd_activation_from_name(head.data, head.length, &activation) && activation == spec->activation, config->context,
             HEED_E_UNSUPPORTED, "%s: the head must have the activation of the layers (classifier_activation, got %s)", config->file,
             hd_quote(head, quoted));
  HD_REQUIRE(spec->bias_head || spec->head_dense_unbiased, config->context, HEED_E_UNSUPPORTED,
             "%s: a head whose first matrix alone has a bias is not supported (classifier_bias)", config->file);
  return HEED_OK;
}

const hd_family hd_family_modernbert = {
    .name = "modernbert",
    .base = {.norm = HD_NORM_LAYER,
             .feed_forward_kind = HD_FEED_FORWARD_GATED,
             .activation = HEED_ACTIVATION_GELU,
             .bidirectional = true,
             .embedding_norm = true,
             .first_bare = true,
             .head_transform = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "hidden_activation",
    .class_names = {"ModernBertForMaskedLM"},
    .rotary = {.theta = "global_rope_theta", .theta_default = 160000, .local = "local_rope_theta", .local_default = 10000},
    .windows = {.every = "global_attn_every_n_layers", .every_default = 3, .first = true},
    .derive = derive,
    .only_read = true,
    .json = {.architecture = "modernbert",
             .positions = HD_POSITIONS_ROTARY_HALF,
             .tensors = {[HD_SLOT_EMBEDDING] = "model.embeddings.tok_embeddings",
                         [HD_SLOT_EMBEDDING_NORM] = "model.embeddings.norm",
                         [HD_SLOT_FINAL_NORM] = "model.final_norm",
                         [HD_SLOT_HEAD_DENSE] = "head.dense",
                         [HD_SLOT_HEAD_NORM] = "head.norm",
                         [HD_SLOT_HEAD] = "decoder",
                         [HD_SLOT_HEAD_BIAS] = "decoder",
                         [HD_SLOT_ATTENTION_NORM] = "model.layers.#.attn_norm",
                         [HD_SLOT_QKV] = "model.layers.#.attn.Wqkv",
                         [HD_SLOT_OUTPUT] = "model.layers.#.attn.Wo",
                         [HD_SLOT_FEED_FORWARD_NORM] = "model.layers.#.mlp_norm",
                         [HD_SLOT_GATE_UP] = "model.layers.#.mlp.Wi",
                         [HD_SLOT_DOWN] = "model.layers.#.mlp.Wo"}},
};
