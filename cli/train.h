/* train.h: one training run of the program: what the options ask for, what it learns from, the loop that logs, saves and stops, and what its directory says afterwards. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "labelled.h"
#include "output.h"
#include "pair_rows.h"
#include "pair_task.h"

#include "heed/train.h"

/* Options of every `heed train`. Those that a preset may set are −1 (numbers: NAN) until somebody says something. */
typedef struct train_values {
  common_values common;
  const char *data, *tokens, *out, *preset, *log, *csv, *on_nan, *schedule;
  int64_t layers, heads, kv_heads, width, feed_forward, context, batch, accumulate, steps, warmup, save_every, eval_every, patience;
  double rate, least_rate, decay, clip, dropout, beta1, beta2, spread;
  bool resume, rotary, no_bias, untied, gelu_erf, norm_before, relu;
  double few;  /* share of the words of a task that are made of few letters */
  double mask; /* share of the tokens that an encoder is asked for */
  const char *objective, *validation;
  int64_t digits, letters, symbols;
  bool reverse_digits;
  const char *task, *model; /* model: of a task, gpt or llama */
  const char *from;         /* the model that a run begins with */
  const char *arch, *score; /* arch: of what translates, NULL: something else is trained; score: of a recurrent decoder, NULL: as usual */
  const char *targets, *validation_targets, *pair_task, *on_long;
  pair_task_values pair_values;
  int64_t examples, source_context, encoder_layers;
  double smoothing, sampling;
  const char *output;
  const char *attention; /* NULL: exact, to every key */
  const char *positions; /* NULL: what the form usually has */
  bool separate, learned;
  text_list freeze;
} train_values;

/* A run, made from the options: all that is needed to begin or to go on. */
typedef struct training {
  const train_values *v;
  heed_context *context;
  heed_learner *learner;
  heed_optimiser *optimiser;
  heed_tokenizer *tokenizer;
  heed_model *model; /* that it begins with, NULL: from nothing */
  heed_train_options options;
  heed_train_state state;
  int64_t bytes;  /* that a batch takes */
  char *settings; /* what a run that is resumed must agree with, a line each */
  bool is_task;
  heed_task task, held_out;
  char *text; /* the data, and what it says as ids */
  int32_t *ids;
  int64_t id_count;
  heed_text_data train_part, valid_part;
  heed_masked_data masked_train, masked_valid; /* of an encoder */
  heed_head head;
  bool new_head;     /* that goes on from a model: the labels are not those that the model says */
  label_list labels; /* of an encoder that is to say labels, and its rows */
  label_rows train_rows, valid_rows;
  heed_labelled_data labelled_train, labelled_valid;
  bool has_pairs;                   /* of who translates */
  heed_pair_task pair_task;         /* size 0: they are those of a file */
  heed_tokenizer *target_tokenizer; /* NULL: one reads both sides */
  pair_rows pair_train_rows, pair_valid_rows;
  heed_pair_data pairs_train, pairs_valid;
} training;

/* A command: form is what it alone knows of the model. */
int train(const train_values *given, const heed_learner_options *form);

/* What an encoder is to say, by --objective. */
heed_head train_head(const train_values *v);
/* Fills what nobody has said: from --preset, then with the defaults of what is to be trained (train_settings.c). */
#define TRAIN_PRESETS "nano-char-cpu|nano-char|512/8|768/12|1024/16"
void train_settings_fill(train_values *v);
/* t->settings, of a run whose data is open and of the model that it trains. */
int train_settings_describe(training *t, const heed_learner_options *model);

/* Tokenizer, sources and lengths of the data, and what the model must have for it (train_data.c). */
int train_data_open(training *t, heed_learner_options *model);
void train_data_close(training *t);
/* "char", "bpe:N", ... are made from the text, with the special tokens of the options; anything else is a tokenizer's file. `from` is where the text comes from, for messages. */
int train_tokenizer_open(heed_context *context, const char *kind, const char *from, heed_text text,
                         const heed_tokenizer_train_options *options, heed_tokenizer **out);
/* Of pairs (train_pairs.c). */
int train_pairs_open(training *t, heed_learner_options *model);
void train_pairs_close(training *t);
/* Model and tokenizers into a directory that is there. */
int train_save_model(const training *t, const char *directory);
/* Of a text, what goes into training; the rest is for validation. */
#define TRAINING_SHARE 0.9

/* What a directory says of its own training (training.txt, a "name value" a line; trained.c). */
typedef struct trained {
  bool is_task;
  heed_task task;
  bool is_pair_task;
  heed_pair_task pair_task;
  char data[4096], validation[4096];            /* paths of the texts; "" */
  char targets[4096], validation_targets[4096]; /* of pairs whose sides lie in files of their own */
  double mask;                                  /* share of tokens that were masked; 0: unknown */
  int64_t steps;                                /* 0: unknown */
  char command[4096], folder[4096];             /* that began it or went on with it last, and where; "" */
} trained;
extern const char trained_name[];
int trained_write(const training *t);
/* A directory without training.txt, and a file, were trained on nothing that is known. */
int trained_read(heed_context *context, const char *directory, trained *out);

/* What lies in the directory of a run (inspect_run.c). */
typedef struct training_listing {
  trained about;
  struct training_item *item; /* checkpoints, newest first */
  int64_t count, room;
  bool has_best, damaged; /* something is: said on standard error */
} training_listing;
/* Whether it is one: training.txt or checkpoints. */
bool training_is(const char *directory);
int training_look(heed_context *context, const char *directory, training_listing *out);
void training_table(const training_listing *run);
struct json;
void training_json(struct json *to, const training_listing *run);
void training_free(training_listing *run);

/* Runs t->options from t->state to the end, to Ctrl-C or to SIGTERM; logs, evaluates and saves. */
int training_run(training *t);

#endif
