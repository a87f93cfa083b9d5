/* bert.h: what BERT and those made after it share: layer norm after each sublayer, plain GELU, a norm of the embedding, a head that transforms first, biases everywhere. */
#ifndef HD_FAMILIES_BERT_H
#define HD_FAMILIES_BERT_H

#include "../family.h"

// clang-format off
#define HD_BERT_BASE                                                                                                                       \
  .norm = HD_NORM_LAYER, .norm_place = HD_NORM_AFTER, .feed_forward_kind = HD_FEED_FORWARD_PLAIN, .activation = HEED_ACTIVATION_GELU,      \
  .bidirectional = true, .embedding_norm = true, .head_transform = true, .bias_qkv = true, .bias_output = true, .bias_feed_forward = true, \
  .bias_head = true

/* Of the stack whose tensors are called after MODEL. */
#define HD_BERT_TENSORS(MODEL)                                                                                                             \
  [HD_SLOT_EMBEDDING] = MODEL ".embeddings.word_embeddings", [HD_SLOT_POSITION] = MODEL ".embeddings.position_embeddings",                 \
  [HD_SLOT_SEGMENT] = MODEL ".embeddings.token_type_embeddings", [HD_SLOT_EMBEDDING_NORM] = MODEL ".embeddings.LayerNorm",                 \
  [HD_SLOT_CLASSIFIER] = "classifier", [HD_SLOT_ATTENTION_NORM] = MODEL ".encoder.layer.#.attention.output.LayerNorm",                     \
  [HD_SLOT_QUERY] = MODEL ".encoder.layer.#.attention.self.query", [HD_SLOT_KEY] = MODEL ".encoder.layer.#.attention.self.key",            \
  [HD_SLOT_VALUE] = MODEL ".encoder.layer.#.attention.self.value", [HD_SLOT_OUTPUT] = MODEL ".encoder.layer.#.attention.output.dense",     \
  [HD_SLOT_FEED_FORWARD_NORM] = MODEL ".encoder.layer.#.output.LayerNorm", [HD_SLOT_UP] = MODEL ".encoder.layer.#.intermediate.dense",     \
  [HD_SLOT_DOWN] = MODEL ".encoder.layer.#.output.dense"
// clang-format on

#endif
