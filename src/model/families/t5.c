/* t5.c: T5 (Raffel et al. 2020) and its revisions 1.1 and Flan: RMS norm before, no biases, scores that are not scaled, learned relative positions that all layers share, heads whose
 * widths need not add up to the model's. The first T5 has the embedding as its head and ReLU; 1.1 has a head of its own and gated GELU. */
#include "../family.h"

// clang-format off
#define FIELDS                                                                                                                             \
  {NULL, "d_model", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},                                                       \
  {NULL, "num_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},                                                     \
  {NULL, "d_kv", HD_FIELD_INTEGER, HD_AT(head_dim), 1, HD_MAX_HEAD_DIM, true, 0, NULL},                                                    \
  {NULL, "d_ff", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},                                                   \
  {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},                                          \
  {NULL, "n_positions", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, false, 512, NULL},                                            \
  {NULL, "layer_norm_epsilon", HD_FIELD_NUMBER, HD_AT(norm_eps), HD_MIN_EPS, HD_MAX_EPS, false, 1e-6, NULL},                               \
  {NULL, "relative_attention_num_buckets", HD_FIELD_INTEGER, HD_AT(relative_buckets), 4, 1 << 20, false, 32, NULL},                        \
  {NULL, "relative_attention_max_distance", HD_FIELD_INTEGER, HD_AT(relative_distance), 2, HD_MAX_CONTEXT, false, 128, NULL},              \
  {NULL, "num_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL}

#define BASE .norm = HD_NORM_RMS, .attention_scale = 1, .activation = HEED_ACTIVATION_RELU

/* FEED_FORWARD: the number of that sublayer. */
#define TENSORS(STACK, FEED_FORWARD)                                                                                                       \
  [HD_SLOT_EMBEDDING] = "shared", [HD_SLOT_FINAL_NORM] = STACK ".final_layer_norm", [HD_SLOT_HEAD] = "lm_head",                            \
  [HD_SLOT_RELATIVE] = STACK ".block.0.layer.0.SelfAttention.relative_attention_bias",                                                     \
  [HD_SLOT_ATTENTION_NORM] = STACK ".block.#.layer.0.layer_norm", [HD_SLOT_QUERY] = STACK ".block.#.layer.0.SelfAttention.q",              \
  [HD_SLOT_KEY] = STACK ".block.#.layer.0.SelfAttention.k", [HD_SLOT_VALUE] = STACK ".block.#.layer.0.SelfAttention.v",                    \
  [HD_SLOT_OUTPUT] = STACK ".block.#.layer.0.SelfAttention.o", [HD_SLOT_CROSS_NORM] = STACK ".block.#.layer.1.layer_norm",                 \
  [HD_SLOT_CROSS_QUERY] = STACK ".block.#.layer.1.EncDecAttention.q", [HD_SLOT_CROSS_KEY] = STACK ".block.#.layer.1.EncDecAttention.k",    \
  [HD_SLOT_CROSS_VALUE] = STACK ".block.#.layer.1.EncDecAttention.v", [HD_SLOT_CROSS_OUTPUT] = STACK ".block.#.layer.1.EncDecAttention.o", \
  [HD_SLOT_FEED_FORWARD_NORM] = STACK ".block.#.layer." FEED_FORWARD ".layer_norm",                                                        \
  [HD_SLOT_GATE] = STACK ".block.#.layer." FEED_FORWARD ".DenseReluDense.wi_0",                                                            \
  [HD_SLOT_GATED_UP] = STACK ".block.#.layer." FEED_FORWARD ".DenseReluDense.wi_1",                                                        \
  [HD_SLOT_DOWN] = STACK ".block.#.layer." FEED_FORWARD ".DenseReluDense.wo",                                                              \
  [HD_SLOT_UP] = STACK ".block.#.layer." FEED_FORWARD ".DenseReluDense.wi"
// clang-format on

static const hd_field encoder_fields[] = {FIELDS};

static const hd_family encoder = {
    .name = "t5",
    .base = {BASE, .bidirectional = true, .headless = true, .shared_embedding = true},
    .fields = encoder_fields,
    .field_count = HD_COUNT(encoder_fields),
    .activation_key = "feed_forward_proj",
    .activation_gates = true,
    .json = {.architecture = "t5", .positions = HD_POSITIONS_RELATIVE, .tensors = {TENSORS("encoder", "1")}},
};

static const hd_field fields[] = {
    FIELDS,
    {NULL, "num_decoder_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, false, HD_UNCHANGED, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL},
    {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(scaled_logits), 0, 1, false, 1, NULL},
    {NULL, "scale_decoder_outputs", HD_FIELD_BOOL, HD_AT(scaled_logits), 0, 1, false, HD_UNCHANGED, NULL},
};

const hd_family hd_family_t5 = {
    .name = "t5",
    .base = {BASE, .cross = true},
    .fields = fields,
    .field_count = HD_COUNT(fields),
    .activation_key = "feed_forward_proj",
    .activation_gates = true,
    .class_names = {"T5ForConditionalGeneration"},
    .json = {.architecture = "t5", .positions = HD_POSITIONS_RELATIVE, .tensors = {TENSORS("decoder", "2")}},
    .encoder = &encoder,
};
