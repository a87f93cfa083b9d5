/* learner.h: the transformer on the tape: its spec, its parameters by name, its layers. */
#ifndef HD_LEARNER_H
#define HD_LEARNER_H

#include "../base/base.h"
#include "../../include/heed/train.h"
#include "spec.h"

struct heed_learner {
  heed_context *context;
  hd_transformer_spec spec;
  double dropout;
  heed_parameters *parameters;
  hd_arena arena; /* layers, tables of angles */
  heed_tensor *embedding, *position, *head;
  heed_nn_norm embedding_norm, final_norm, head_norm;    /* those that the spec has */
  heed_tensor *head_dense, *head_dense_bias, *head_bias; /* dense: before a head for tokens, or the pooler of a class */
  const char *const *label_names;                        /* [spec.labels] */
  heed_nn_block *layers;
  const char **layer_names; /* "layer 3", for messages */
  heed_attention attention;
  heed_rope rope;
  heed_view cosine, sine; /* [context, rotary_dim/2] */
  heed_model *model;      /* whose matrices frozen parameters are; NULL: none */
};

/* A parameter as it comes to be: "layers.3.qkv.weight" is weight of part "qkv" in layer 3; outside layers the layer is −1. */
typedef struct hd_part {
  const char *name, *part;
  int64_t layer;
  int ndim;
  const int64_t *dim;
  heed_initial kind; /* how it begins, if by chance */
  double gain;
} hd_part;

/* Who makes them, one after another. The first error stays. */
typedef struct hd_maker hd_maker;
struct hd_maker {
  heed_learner *learner;
  heed_status (*make)(hd_maker *maker, const hd_part *part, heed_tensor **out);
  void *user;
  heed_status status;
  uint64_t seed, made;
  double spread; /* standard deviation of matrices that begin by chance; 0: the usual */
  int64_t layer, bytes;
};
void hd_learner_make(hd_maker *maker);
/* The maker of what begins by chance. */
heed_status hd_learner_begin_by_chance(hd_maker *maker, const hd_part *part, heed_tensor **out);

/* A learner that lacks its parameters. Where it fails *out is to be freed. */
heed_status hd_learner_start(heed_context *context, const hd_transformer_spec *spec, double dropout, heed_learner **out);
/* Their names where the head is for labels or a class, copied. HEED_E_ARGUMENT. */
heed_status hd_learner_name_labels(heed_learner *learner, const char *const *names);

/* The mean cross-entropy of what heed_learner_logits has given. */
heed_tensor *hd_learner_loss_of(heed_learner *learner, heed_tape *tape, heed_tensor *logits, heed_tensor *targets);

/* Names of parameters: "layers.3.qkv.weight". */
#define HD_PARAMETER_NAME_LENGTH 64

#endif
