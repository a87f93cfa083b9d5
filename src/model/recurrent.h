/* recurrent.h: what the recurrent encoder–decoder is, for the body that learns and for the model that is loaded: its shape, and its parameters by name. */
#ifndef HD_RECURRENT_H
#define HD_RECURRENT_H

#include "../base/base.h"
#include "../../include/heed/train.h"
#include "../io/json.h"
#include "../kern/matrix.h"
#include "family.h"

typedef struct hd_recurrent_spec {
  int64_t width, vocabulary, source_vocabulary; /* source_vocabulary 0: one embedding for both */
  int64_t source, context;
  heed_learner_score score;
  heed_learner_output output;
} hd_recurrent_spec;

/* Columns of a value: what the context gives to the gates, and to a deep output layer. */
static inline int64_t hd_recurrent_deep(const hd_recurrent_spec *s) {
  return s->output == HEED_LEARNER_STATE ? 0 : s->output == HEED_LEARNER_TANH ? s->width : 2 * s->width;
}
static inline int64_t hd_recurrent_value(const hd_recurrent_spec *s) { return 3 * s->width + hd_recurrent_deep(s); }

/* Its parameters: X(member, name, rank 2: [outputs, inputs], rank 1: [outputs], whether it is there), sizes by w (width), v, sv (vocabularies) and spec s. One line expands to a member of
 * hd_recurrent_parts, and to a line that makes, writes or reads it. */
#define HD_RECURRENT_PARTS(X)                                                                                                              \
  X(embedding, "embedding.weight", 2, s->vocabulary, w, true)                                                                              \
  X(source_embedding, "source_embedding.weight", 2, s->source_vocabulary, w, s->source_vocabulary > 0)                                     \
  X(encoder_input, "encoder.input.weight", 2, 3 * w, w, true)                                                                              \
  X(encoder_input_bias, "encoder.input.bias", 1, 3 * w, 0, true)                                                                           \
  X(encoder_state, "encoder.state.weight", 2, 3 * w, w, true)                                                                              \
  X(encoder_state_bias, "encoder.state.bias", 1, 3 * w, 0, true)                                                                           \
  X(reverse_input, "encoder.reverse_input.weight", 2, 3 * w, w, true)                                                                      \
  X(reverse_input_bias, "encoder.reverse_input.bias", 1, 3 * w, 0, true)                                                                   \
  X(reverse_state, "encoder.reverse_state.weight", 2, 3 * w, w, true)                                                                      \
  X(reverse_state_bias, "encoder.reverse_state.bias", 1, 3 * w, 0, true)                                                                   \
  X(initial, "initial.weight", 2, w, s->score == HEED_LEARNER_NONE ? 2 * w : w, true)                                                      \
  X(initial_bias, "initial.bias", 1, w, 0, true)                                                                                           \
  X(key, "attention.key.weight", 2, w, 2 * w, s->score == HEED_LEARNER_ADDITIVE || s->score == HEED_LEARNER_BILINEAR)                      \
  X(key_bias, "attention.key.bias", 1, w, 0, s->score == HEED_LEARNER_ADDITIVE)                                                            \
  X(query, "attention.query.weight", 2, w, w, s->score == HEED_LEARNER_ADDITIVE)                                                           \
  X(score, "attention.score.weight", 1, w, 0, s->score == HEED_LEARNER_ADDITIVE)                                                           \
  X(context, "decoder.context.weight", 2, hd_recurrent_value(s), 2 * w, true)                                                              \
  X(input, "decoder.input.weight", 2, 3 * w, w, true)                                                                                      \
  X(input_bias, "decoder.input.bias", 1, 3 * w, 0, true)                                                                                   \
  X(state, "decoder.state.weight", 2, 3 * w, w, true)                                                                                      \
  X(state_bias, "decoder.state.bias", 1, 3 * w, 0, true)                                                                                   \
  X(deep_state, "output.state.weight", 2, hd_recurrent_deep(s), w, hd_recurrent_deep(s) > 0)                                               \
  X(deep_token, "output.token.weight", 2, hd_recurrent_deep(s), w, hd_recurrent_deep(s) > 0)                                               \
  X(deep_bias, "output.bias", 1, hd_recurrent_deep(s), 0, hd_recurrent_deep(s) > 0)                                                        \
  X(head, "head.weight", 2, s->vocabulary, w, true)                                                                                        \
  X(head_bias, "head.bias", 1, s->vocabulary, 0, true)

#define HD_RECURRENT_MEMBER(member, name, rank, outputs, inputs, there) heed_tensor *member;
typedef struct hd_recurrent_parts {
  HD_RECURRENT_PARTS(HD_RECURRENT_MEMBER)
} hd_recurrent_parts;

/* What is loaded: every parameter as a packed matrix, or as a vector. */
typedef struct hd_recurrent_weight {
  hd_matrix matrix;
  const float *vector;
} hd_recurrent_weight;
#define HD_RECURRENT_WEIGHT(member, name, rank, outputs, inputs, there) hd_recurrent_weight member;
typedef struct hd_recurrent_model {
  hd_recurrent_spec spec;
  HD_RECURRENT_PARTS(HD_RECURRENT_WEIGHT)
} hd_recurrent_model;

/* Its config.json: a new reference, or NULL if memory is short. */
json_t *hd_recurrent_config(const hd_recurrent_spec *spec);
/* Whether a model of family "heed" is recurrent, and then all of it: spec, weights, stepper. HEED_E_FORMAT, HEED_E_UNSUPPORTED, HEED_E_MEMORY. */
bool hd_recurrent_is(const hd_config *config);
heed_status hd_recurrent_load(const hd_config *config, heed_model *model);
/* What of heed_model_info is not as a transformer has it. */
void hd_recurrent_describe(const heed_model *model, heed_model_info *info);

#endif
