/* recurrent.h: what the recurrent encoder–decoder is, for the body that learns and for the model that is loaded: its shape, and its parameters by name. */
#ifndef HD_RECURRENT_H
#define HD_RECURRENT_H

#include "../base/base.h"
#include "../../include/heed/train.h"
#include "../io/json.h"
#include "../kern/matrix.h"
#include "../op/recurrence.h"
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

/* What a parameter is: [outputs]; [outputs, inputs]; or such a one that the loop multiplies with the state at each step. */
typedef enum hd_recurrent_kind { HD_PART_VECTOR, HD_PART_MATRIX, HD_PART_LOOP } hd_recurrent_kind;

/* Its parameters: X(member, name, kind, outputs, inputs, whether it is there), sizes by w (width) and spec s. One line expands to a member of hd_recurrent_parts, and to a line that makes, writes or
 * reads it. */
#define HD_RECURRENT_PARTS(X)                                                                                                              \
  X(embedding, "embedding.weight", HD_PART_MATRIX, s->vocabulary, w, true)                                                                 \
  X(source_embedding, "source_embedding.weight", HD_PART_MATRIX, s->source_vocabulary, w, s->source_vocabulary > 0)                        \
  X(encoder_input, "encoder.input.weight", HD_PART_MATRIX, 3 * w, w, true)                                                                 \
  X(encoder_input_bias, "encoder.input.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                              \
  X(encoder_state, "encoder.state.weight", HD_PART_LOOP, 3 * w, w, true)                                                                   \
  X(encoder_state_bias, "encoder.state.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                              \
  X(reverse_input, "encoder.reverse_input.weight", HD_PART_MATRIX, 3 * w, w, true)                                                         \
  X(reverse_input_bias, "encoder.reverse_input.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                      \
  X(reverse_state, "encoder.reverse_state.weight", HD_PART_LOOP, 3 * w, w, true)                                                           \
  X(reverse_state_bias, "encoder.reverse_state.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                      \
  X(initial, "initial.weight", HD_PART_MATRIX, w, s->score == HEED_LEARNER_NONE ? 2 * w : w, true)                                         \
  X(initial_bias, "initial.bias", HD_PART_VECTOR, w, 0, true)                                                                              \
  X(key, "attention.key.weight", HD_PART_MATRIX, w, 2 * w, s->score == HEED_LEARNER_ADDITIVE || s->score == HEED_LEARNER_BILINEAR)         \
  X(key_bias, "attention.key.bias", HD_PART_VECTOR, w, 0, s->score == HEED_LEARNER_ADDITIVE)                                               \
  X(query, "attention.query.weight", HD_PART_LOOP, w, w, s->score == HEED_LEARNER_ADDITIVE)                                                \
  X(score, "attention.score.weight", HD_PART_VECTOR, w, 0, s->score == HEED_LEARNER_ADDITIVE)                                              \
  X(context, "decoder.context.weight", HD_PART_MATRIX, hd_recurrent_value(s), 2 * w, true)                                                 \
  X(input, "decoder.input.weight", HD_PART_MATRIX, 3 * w, w, true)                                                                         \
  X(input_bias, "decoder.input.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                                      \
  X(state, "decoder.state.weight", HD_PART_LOOP, 3 * w, w, true)                                                                           \
  X(state_bias, "decoder.state.bias", HD_PART_VECTOR, 3 * w, 0, true)                                                                      \
  X(deep_state, "output.state.weight", HD_PART_MATRIX, hd_recurrent_deep(s), w, hd_recurrent_deep(s) > 0)                                  \
  X(deep_token, "output.token.weight", HD_PART_MATRIX, hd_recurrent_deep(s), w, hd_recurrent_deep(s) > 0)                                  \
  X(deep_bias, "output.bias", HD_PART_VECTOR, hd_recurrent_deep(s), 0, hd_recurrent_deep(s) > 0)                                           \
  X(head, "head.weight", HD_PART_MATRIX, s->vocabulary, w, true)                                                                           \
  X(head_bias, "head.bias", HD_PART_VECTOR, s->vocabulary, 0, true)

#define HD_RECURRENT_MEMBER(member, name, kind, outputs, inputs, there) heed_tensor *member;
typedef struct hd_recurrent_parts {
  HD_RECURRENT_PARTS(HD_RECURRENT_MEMBER)
} hd_recurrent_parts;

/* What is loaded: every parameter as what reads it wants it. One that is not there is all 0. */
typedef struct hd_recurrent_weight {
  hd_matrix matrix;
  hd_packed loop;
  const float *vector;
} hd_recurrent_weight;
#define HD_RECURRENT_WEIGHT(member, name, kind, outputs, inputs, there) hd_recurrent_weight member;
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
