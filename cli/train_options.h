/* train_options.h: options that several `heed train` commands have. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "train.h"

#include <math.h>

typedef train_values values;

/* In the order of heed_positions, but for the first. */
#define TRAIN_POSITIONS "learned|sinusoidal|rope|alibi|xl|t5|none"
#define POSITION_OPTION                                                                                                                    \
  OPTION("positions", 0, TEXT, "KIND[/KIND...]", positions,                                                                                \
         "where tokens stand, layers in turn: rows that are added (learned, sinusoidal), what acts on scores (rope, alibi, xl, t5), none " \
         "(default: the form's)")
#define ATTENTION_OPTION                                                                                                                   \
  OPTION("attention", 0, TEXT, "KIND[/KIND...]", attention,                                                                                \
         "what layers attend with, in turn: a pattern (`heed pattern --help`: window:64+global:4), linear, relu, performer:ROWS[:SEED], "  \
         "hyperbolic:ROWS[:SEED], lsh:ROUNDS[:SEED] (default full)")

#define SIZE_OPTIONS                                                                                                                       \
  OPTION("layers", 0, WHOLE, "N", layers, "layers (default 4; tasks 2, seq2seq 3)", .low = 1, .high = 10000),                              \
      OPTION("heads", 0, WHOLE, "N", heads, "query heads (default 4)", .low = 1, .high = 4096),                                            \
      OPTION("kv-heads", 0, WHOLE, "N", kv_heads, "key/value heads (default: as many as query heads)", .low = 1, .high = 4096),            \
      OPTION("width", 0, WHOLE, "N", width, "width of the model (default 128; recurrent 256)", .low = 1, .high = 262144),                  \
      OPTION("init-std", 0, NUMBER, "X", spread, "standard deviation of the weights at the start (default 0.02; tasks 0.05)", .low = 1e-6, \
             .high = 10),                                                                                                                  \
      OPTION("feed-forward", 0, WHOLE, "N", feed_forward, "width inside the feed-forward layers (default: 4 widths, gated 8/3)", .low = 1, \
             .high = 262144)

#define RUN_OPTIONS                                                                                                                        \
  OPTION("batch", 0, WHOLE, "N", batch, "sequences in a batch (default 12; tasks and pairs 64, from a model 8)", .low = 1, .high = 1e6),   \
      OPTION("accumulate", 0, WHOLE, "N", accumulate, "batches whose gradients make a step (default 1)", .low = 1, .high = 1e6),           \
      OPTION("steps", 0, WHOLE, "N", steps, "steps in all (default 2000; addition and numbers 3000, from a model 200)", .low = 1,          \
             .high = 1e12),                                                                                                                \
      OPTION("lr", 0, NUMBER, "X", rate, "learning rate at its highest (default 0.001; tasks 0.002, from a model 0.0001)", .low = 0,       \
             .high = 1e3),                                                                                                                 \
      OPTION("min-lr", 0, NUMBER, "X", least_rate, "where the schedule ends (default lr / 10; tasks lr / 20)", .low = 0, .high = 1e3),     \
      OPTION("warmup", 0, WHOLE, "N", warmup, "steps over which the rate rises (default 100; from a model 20)", .low = 0, .high = 1e12),   \
      OPTION("schedule", 0, CHOICE, NULL, schedule, "how the rate falls", .choices = "cosine|inverse-sqrt|constant"),                      \
      OPTION("decay", 0, NUMBER, "X", decay, "weight decay of matrices (default 0.1; tasks and from a model 0.01)", .low = 0,              \
             .high = 1e3),                                                                                                                 \
      OPTION("clip", 0, NUMBER, "X", clip, "largest norm of a gradient, 0: any (default 1)", .low = 0, .high = 1e9),                       \
      OPTION("beta1", 0, NUMBER, "X", beta1, "of AdamW (default 0.9)", .low = 0, .high = 0.999999),                                        \
      OPTION("beta2", 0, NUMBER, "X", beta2, "of AdamW (default 0.99)", .low = 0, .high = 0.999999),                                       \
      OPTION("dropout", 0, NUMBER, "P", dropout, "of embeddings, weights and sublayers (default 0)", .low = 0, .high = 0.99),              \
      OPTION("out", 0, TEXT, "DIR", out, "where model and checkpoints go", .required = true),                                              \
      OPTION("resume", 0, FLAG, NULL, resume, "go on from the newest checkpoint in DIR"),                                                  \
      OPTION("save-every", 0, WHOLE, "N", save_every, "steps between checkpoints (default: as validations)", .low = 1, .high = 1e12),      \
      OPTION("eval-every", 0, WHOLE, "N", eval_every, "steps between validations (default: ten in all)", .low = 1, .high = 1e12),          \
      OPTION("patience", 0, WHOLE, "N", patience, "stop after so many validations without a better one (default 0: never)", .low = 0,      \
             .high = 1e6),                                                                                                                 \
      OPTION("on-nan", 0, CHOICE, NULL, on_nan, "what to do where a gradient is not finite", .choices = "stop|skip"),                      \
      OPTION("log", 0, TEXT, "FILE", log, "a JSON object a step"), OPTION("csv", 0, TEXT, "FILE", csv, "a line a step"), {                 \
    0                                                                                                                                      \
  }

#define UNSAID                                                                                                                             \
  .on_nan = "stop", .schedule = "cosine", .layers = -1, .heads = -1, .kv_heads = -1, .width = -1, .feed_forward = -1, .context = -1,       \
  .batch = -1, .accumulate = -1, .steps = -1, .warmup = -1, .save_every = -1, .eval_every = -1, .rate = NAN, .least_rate = NAN,            \
  .decay = NAN, .clip = NAN, .dropout = NAN, .beta1 = NAN, .beta2 = NAN, .spread = NAN, .smoothing = NAN

#define TRAIN_ABOUT                                                                                                                        \
  "DIR then is a Hugging Face directory (model.safetensors, config.json, tokenizer.json) that heed and others load, with the checkpoints " \
  "beside it. Ctrl-C and SIGTERM save and say how to go on; a resumed run repeats the uninterrupted one bit for bit, on any number of "    \
  "threads."

#endif
