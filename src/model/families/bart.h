/* bart.h: what BART and Marian share: two stacks after the paper of 2017, layer norm after, biases everywhere, the same names of tensors. */
#ifndef HD_FAMILIES_BART_H
#define HD_FAMILIES_BART_H

#include "../family.h"

// clang-format off
/* Of one stack: "encoder" or "decoder". */
#define HD_BART_FIELDS(STACK)                                                                                                              \
  {NULL, STACK "_layers", HD_FIELD_INTEGER, HD_AT(layers), 1, HD_MAX_LAYERS, true, 0, NULL},                                               \
  {NULL, STACK "_attention_heads", HD_FIELD_INTEGER, HD_AT(heads), 1, HD_MAX_HEADS, true, 0, NULL},                                        \
  {NULL, STACK "_ffn_dim", HD_FIELD_INTEGER, HD_AT(feed_forward), 1, HD_MAX_WIDTH, true, 0, NULL},                                         \
  {NULL, "d_model", HD_FIELD_INTEGER, HD_AT(width), 1, HD_MAX_WIDTH, true, 0, NULL},                                                       \
  {NULL, "max_position_embeddings", HD_FIELD_INTEGER, HD_AT(context), 1, HD_MAX_CONTEXT, true, 0, NULL},                                   \
  {NULL, "scale_embedding", HD_FIELD_BOOL, HD_AT(scaled_embedding), 0, 1, false, 0, NULL},                                                 \
  {NULL, "vocab_size", HD_FIELD_INTEGER, HD_AT(vocabulary), 1, HD_MAX_VOCABULARY, true, 0, NULL},                                          \
  {NULL, "normalize_before", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},                                                                   \
  {NULL, "add_final_layer_norm", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL}

#define HD_BART_BASE                                                                                                                       \
  .norm = HD_NORM_LAYER, .norm_place = HD_NORM_AFTER, .norm_eps = 1e-5, .feed_forward_kind = HD_FEED_FORWARD_PLAIN,                        \
  .activation = HEED_ACTIVATION_GELU, .bias_qkv = true, .bias_output = true, .bias_feed_forward = true

#define HD_BART_TENSORS(STACK)                                                                                                             \
  [HD_SLOT_EMBEDDING] = "model.shared", [HD_SLOT_POSITION] = "model." STACK ".embed_positions",                                            \
  [HD_SLOT_EMBEDDING_NORM] = "model." STACK ".layernorm_embedding", [HD_SLOT_HEAD] = "lm_head", [HD_SLOT_HEAD_BIAS] = "final_logits_bias", \
  [HD_SLOT_ATTENTION_NORM] = "model." STACK ".layers.#.self_attn_layer_norm",                                                              \
  [HD_SLOT_QUERY] = "model." STACK ".layers.#.self_attn.q_proj", [HD_SLOT_KEY] = "model." STACK ".layers.#.self_attn.k_proj",              \
  [HD_SLOT_VALUE] = "model." STACK ".layers.#.self_attn.v_proj", [HD_SLOT_OUTPUT] = "model." STACK ".layers.#.self_attn.out_proj",         \
  [HD_SLOT_CROSS_NORM] = "model." STACK ".layers.#.encoder_attn_layer_norm",                                                               \
  [HD_SLOT_CROSS_QUERY] = "model." STACK ".layers.#.encoder_attn.q_proj", [HD_SLOT_CROSS_KEY] = "model." STACK ".layers.#.encoder_attn.k_proj", \
  [HD_SLOT_CROSS_VALUE] = "model." STACK ".layers.#.encoder_attn.v_proj",                                                                  \
  [HD_SLOT_CROSS_OUTPUT] = "model." STACK ".layers.#.encoder_attn.out_proj",                                                               \
  [HD_SLOT_FEED_FORWARD_NORM] = "model." STACK ".layers.#.final_layer_norm", [HD_SLOT_UP] = "model." STACK ".layers.#.fc1",                \
  [HD_SLOT_DOWN] = "model." STACK ".layers.#.fc2"
// clang-format on

#endif
