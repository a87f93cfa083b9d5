/* learner.h: the transformer on the tape: its spec, its parameters by name, its layers. */
#ifndef HD_LEARNER_H
#define HD_LEARNER_H

#include "../base/base.h"
#include "../../include/heed/train.h"
#include "spec.h"

struct heed_learner {
  heed_context *context;
  hd_transformer_spec spec;
  heed_learner_kind kind;
  double dropout;
  heed_parameters *parameters;
  hd_arena arena; /* layers, tables of angles */
  heed_tensor *embedding, *position, *head;
  heed_nn_norm embedding_norm, final_norm, head_norm; /* those that the spec has */
  heed_tensor *head_dense, *head_dense_bias, *head_bias;
  heed_nn_block *layers;
  const char **labels; /* "layer 3", for messages */
  heed_attention attention;
  heed_rope rope;
  heed_view cosine, sine; /* [context, rotary_dim/2] */
};

/* Names of parameters: "layers.3.qkv.weight". */
#define HD_PARAMETER_NAME_LENGTH 64

#endif
