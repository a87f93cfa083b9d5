/* experiment_model.h: the small transformers of experiments, put together from the layers of nn.h, and their training on made-up sequences. */
#ifndef CLI_EXPERIMENT_MODEL_H
#define CLI_EXPERIMENT_MODEL_H

#include "experiment.h"

#include "heed/train.h"

/* Learned positions; LayerNorm; ReLU. Weights begin with variance 1 / inputs, so that queries and keys have variance 1. */
typedef struct small_spec {
  int64_t layers, heads, width;
  int64_t head_dim; /* 0: width / heads */
  int64_t context, vocabulary;
  int64_t answers; /* that each place gives, each one token; 0: 1 */
  bool both_ways;  /* places see those that follow */
  bool norm_after; /* as in 2017; otherwise before, with one more at the end */
  bool unscaled;   /* scores are q·k, not q·k / √d_k */
  uint64_t seed;
} small_spec;

typedef struct small {
  heed_context *context;
  small_spec spec;
  heed_parameters *parameters;
  heed_tensor *embedding, *position, *head;
  heed_nn_norm final_norm;
  heed_nn_block *layers;
  heed_attention attention;
} small;

int small_open(heed_context *context, const small_spec *spec, small *out);
void small_close(small *m);
/* ids i32 [B,n] -> [B,n,answers · vocabulary]. */
heed_tensor *small_logits(const small *m, heed_tape *tape, heed_tensor *ids);

/* How a model is taught. With several answers a place, targets are [batch, length, answers]. */
typedef struct lesson {
  const char *name; /* for the progress bar */
  heed_batch_fn source, held_out;
  void *user, *held_out_user;
  int64_t steps, batch, length, warmup;
  double rate;
  uint64_t seed;
} lesson;

/* Of a training: exact answers on sequences that were held out. */
typedef struct outcome {
  double loss;    /* mean of the last tenth of the steps */
  double right;   /* share of places of held-out sequences that are right */
  double exact;   /* share of held-out sequences that are right in every place */
  double seconds; /* of training */
  int64_t parameters;
} outcome;

/* Trains a new model and adds its losses to a curve, each point the mean since the one before. The rate falls along half a cosine to 0. */
int experiment_train(experiment *e, const small_spec *spec, const lesson *l, curve *losses, outcome *o);

#endif
