/* experiment_model.h: the small models of experiments, put together from the layers of nn.h, and their training on made-up sequences. */
#ifndef CLI_EXPERIMENT_MODEL_H
#define CLI_EXPERIMENT_MODEL_H

#include "experiment.h"

#include "heed/train.h"

/* Adds parameters to a set, each begun by chance. The first error stays. */
typedef struct maker {
  heed_context *context;
  heed_parameters *set;
  uint64_t seed, made;
  heed_status status;
} maker;
heed_tensor *make_parameter(maker *m, int64_t rows, int64_t columns, heed_initial kind, double gain); /* columns 0: a vector */
heed_tensor *make_matrix(maker *m, int64_t outputs, int64_t inputs);                                  /* variance 1 / inputs */
heed_tensor *make_bias(maker *m, int64_t n);                                                          /* zeros */

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

/* What is taught: parameters, and the logits [B,n − first,answers · classes] that they make of ids i32 [B,n]. */
typedef struct pupil {
  const void *model;
  heed_parameters *parameters;
  heed_tensor *(*logits)(const void *model, heed_tape *tape, heed_tensor *ids);
  int64_t first, answers, classes;
} pupil;

/* How a model is taught. With several answers a place, targets are [batch, length, answers]. */
typedef struct lesson {
  const char *name; /* for the progress bar */
  heed_batch_fn source, held_out;
  void *user, *held_out_user;
  int64_t steps, batch, length, warmup;
  double rate;
  uint64_t seed;
} lesson;

/* Finishes task[0], whose sequences are taught in a lesson that begins with them; task[1] becomes the one of those held out. Both must live as long as the lesson. */
int experiment_task(experiment *e, heed_task task[2], lesson *out);

/* Of a training: exact answers on sequences that were held out. */
typedef struct outcome {
  double loss;    /* mean of the last tenth of the steps */
  double right;   /* share of places of held-out sequences that are right */
  double exact;   /* share of held-out sequences that are right in every place */
  double seconds; /* of training */
  int64_t parameters;
} outcome;

/* Adds the losses of a training to a curve, each point the mean since the one before. The rate falls along half a cosine to 0. */
int experiment_teach(experiment *e, const pupil *p, const lesson *l, curve *losses, outcome *o);
/* The shares of o alone, of a pupil that was taught. */
int experiment_examine(experiment *e, const pupil *p, const lesson *l, outcome *o);
/* Of a new transformer. */
int experiment_train(experiment *e, const small_spec *spec, const lesson *l, curve *losses, outcome *o);

#endif
