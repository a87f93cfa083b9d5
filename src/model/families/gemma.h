/* gemma.h: what Gemma 2 and 3 have in common: norms around each sublayer that multiply by 1 + weight, gated tanh GELU, embeddings times √width, a scale of scores and windows of their own. */
#ifndef HD_GEMMA_H
#define HD_GEMMA_H

#include "../family.h"

// clang-format off
#define HD_GEMMA_FIELDS                                                                                                                    \
  HD_LLAMA_FIELDS,                                                                                                                         \
  {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_qkv), 0, 1, false, 0, NULL},                                                          \
  {NULL, "attention_bias", HD_FIELD_BOOL, HD_AT(bias_output), 0, 1, false, 0, NULL},                                                       \
  {NULL, "query_pre_attn_scalar", HD_FIELD_NUMBER, HD_AT(attention_scale), 1e-3, 1e6, false, 256, NULL},                                   \
  {NULL, "attn_logit_softcapping", HD_FIELD_NUMBER, HD_AT(attention_softcap), 1e-3, 1e6, false, 0, NULL},                                  \
  {NULL, "final_logit_softcapping", HD_FIELD_NUMBER, HD_AT(logit_softcap), 1e-3, 1e6, false, 0, NULL},                                     \
  {NULL, "sliding_window", HD_FIELD_INTEGER, HD_AT(window), 1, HD_MAX_CONTEXT, false, 4096, NULL},                                         \
  {NULL, "use_bidirectional_attention", HD_FIELD_REFUSED, 0, 0, 1, false, 0, NULL},                                                        \
  /* Leaving it out means a head that is the embedding. */                                                                                 \
  {NULL, "tie_word_embeddings", HD_FIELD_BOOL, HD_AT(tied), 0, 1, false, 1, NULL}

#define HD_GEMMA_BASE                                                                                                                      \
  .norm = HD_NORM_RMS, .norm_place = HD_NORM_AROUND, .norm_shifted = true, .feed_forward_kind = HD_FEED_FORWARD_GATED,                     \
  .activation = HEED_ACTIVATION_GELU_TANH, .scaled_embedding = true

#define HD_GEMMA_TENSORS                                                                                                                   \
  HD_JSON_LLAMA_MATRICES, [HD_SLOT_ATTENTION_NORM] = "model.layers.#.input_layernorm",                                                     \
  [HD_SLOT_ATTENTION_POST] = "model.layers.#.post_attention_layernorm",                                                                    \
  [HD_SLOT_FEED_FORWARD_NORM] = "model.layers.#.pre_feedforward_layernorm",                                                                \
  [HD_SLOT_FEED_FORWARD_POST] = "model.layers.#.post_feedforward_layernorm"
// clang-format on

/* The configuration gives the number whose root divides scores. */
static inline heed_status hd_gemma_derive(const hd_config *config, hd_transformer_spec *spec) {
  (void)config;
  spec->attention_scale = 1 / sqrt(spec->attention_scale);
  return HEED_OK;
}

#endif
