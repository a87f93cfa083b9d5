/* train.h: transformers that learn: made from a plain description, trained on a text or a task, saved where they can go on and as directories that others read.
 *
 * A learner is the transformer of model.h on the tape of nn.h: the same specification, the same bits. What it has learned is saved as a Hugging Face directory, which heed_model_load,
 * and everybody else, reads. */
#ifndef HEED_TRAIN_H
#define HEED_TRAIN_H

#include "model.h"
#include "nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- learners ---------------------------------------------------------------------------------------------------------------- */

typedef enum heed_learner_kind {
  HEED_LEARNER_GPT,     /* decoder: LayerNorm before, GELU, learned positions (Radford et al. 2019) */
  HEED_LEARNER_LLAMA,   /* decoder: RMSNorm before, SwiGLU, rotary positions, grouped heads, no biases (Touvron et al. 2023) */
  HEED_LEARNER_ENCODER, /* encoder: all see all, LayerNorm after, exact GELU, learned positions, a norm of the embedding, BERT's head for masked tokens (Devlin et al. 2019) */
  HEED_LEARNER_SEQ2SEQ, /* encoder and decoder: LayerNorm after, ReLU, sinusoidal positions, one embedding for source, target and head, scaled by √width (Vaswani et al. 2017) */
  HEED_LEARNER_RECURRENT /* gated recurrent units that read in both directions, others that write and look back at each step (Bahdanau et al. 2015); width, context, vocabulary, source are asked for */
} heed_learner_kind;

/* How a recurrent decoder with state s looks at the states e_j of the encoder. */
typedef enum heed_learner_score {
  HEED_LEARNER_ADDITIVE, /* w · tanh(Q s + K e_j) */
  HEED_LEARNER_DOT,      /* s · e_j, e_j being the sum of both directions */
  HEED_LEARNER_SCALED,   /* that divided by √width */
  HEED_LEARNER_BILINEAR, /* s · K e_j */
  HEED_LEARNER_NONE /* not at all: the last states of both directions, a fixed vector, are given to every step and to the first state (Cho et al. 2014) */
} heed_learner_score;

/* What a recurrent decoder's head reads. */
typedef enum heed_learner_output {
  HEED_LEARNER_STATE, /* the state */
  HEED_LEARNER_TANH,  /* tanh(U s + V y + C c) of state, last token and context */
  HEED_LEARNER_MAXOUT /* of the same sum, twice as wide, the larger of two neighbours (Goodfellow et al. 2013) */
} heed_learner_output;

/* Where a transformer's tokens stand. LEARNED, SINUSOIDAL: a row is added to the embedding; ROTARY: queries and keys turn; ALIBI: a slope of the distance is taken off scores; XL: queries also meet
 * what is made of sinusoids of the distance, with learned u and v in each layer; T5: a learned number for each bucket of distances and head, for all layers. Of two stacks both have the same, and
 * attention from one to the other has none. */
typedef enum heed_positions {
  HEED_POSITIONS_USUAL, /* what the kind has */
  HEED_POSITIONS_LEARNED,
  HEED_POSITIONS_SINUSOIDAL,
  HEED_POSITIONS_ROTARY,
  HEED_POSITIONS_ALIBI,
  HEED_POSITIONS_XL,
  HEED_POSITIONS_T5,
  HEED_POSITIONS_NONE /* what causal attention tells of the order by itself */
} heed_positions;

/* A transformer to be made. Zero of a field is what the kind usually has. */
typedef struct heed_learner_options {
  size_t size;
  heed_learner_kind kind;
  int64_t layers, heads, kv_heads, width, feed_forward, context, vocabulary;
  bool rotary;    /* GPT, encoder: rotary instead of learned positions. (No other program knows such a model: it is saved as "heed".) */
  bool no_bias;   /* GPT, encoder: neither the products nor the norms have biases, as in nanoGPT */
  bool untied;    /* the head is a matrix of its own */
  bool gelu_erf;  /* GPT: the exact GELU instead of GPT-2's approximation; seq2seq: instead of ReLU */
  double dropout; /* of embeddings, attention weights and what sublayers add */
  double
      spread; /* standard deviation of the weights it begins with; 0: GPT-2's 0.02, seq2seq: Xavier's uniform ones. Where norms come before, residual projections
                     have 1/√(2 layers) of it */
  uint64_t seed; /* of these weights */
  bool
      norm_before; /* encoder, seq2seq: norms before, and one at the end (of an encoder instead of that of the embedding). (Saved as "heed".) */
  bool relu;       /* encoder: ReLU, as in 2017 */
  heed_head head;                 /* encoder: what it is to say */
  int64_t labels;                 /* of a head for labels or a class */
  const char *const *label_names; /* [labels] texts without control characters; copied */
  double smoothing;               /* of the targets while it learns (heed_cross_entropy_options) */
  int64_t source;                 /* who translates: positions of the source, at least 1; `context` counts those of what is made of it */
  int64_t
      source_vocabulary; /* who translates: of sources where they have one of their own, and so an embedding; 0: `vocabulary` is for both */
  int64_t encoder_layers; /* seq2seq; 0: as many as the decoder has */
  bool learned;           /* seq2seq: learned instead of sinusoidal positions */
  bool has_ends;      /* who translates: otherwise what is saved begins and ends targets with the first and last token of its tokenizer */
  int32_t start, end; /* the tokens that begin and end a target */
  heed_learner_score score;   /* recurrent */
  heed_learner_output output; /* recurrent */
  double
      sampling; /* recurrent: share of the decoder's tokens that are the learner's own guesses while it learns (Bengio et al. 2015; made all at once: Mihaylova & Martins 2019) */
  heed_positions positions; /* of a transformer, instead of `rotary` and `learned`. (Saved as "heed" where no family has them.) */
  /* What the layers of a transformer attend with among their own: kinds with '/' between them, which layers take in turn: a pattern as heed_pattern_parse reads it ("window:64+global:4", "full"), or
   * linear attention: "linear" (features elu + 1), "relu", "performer:ROWS[:SEED]" (FAVOR+), "hyperbolic:ROWS[:SEED]"; or LSH attention, "lsh:ROUNDS[:SEED]", in which queries are the keys, so that
   * the layer has no keys of its own: "qkv" is [2 width, width], and heads do not share keys. NULL or "": exact attention to every key. Linear and LSH attention need learned, sinusoidal or rotary
   * positions, and are not for who translates. (Saved as "heed".) */
  const char *attention;
  /* Instead of `positions`: kinds with '/' between them, which layers take in turn: learned, sinusoidal, rope, alibi, xl, t5, none ("rope/none"). What is added to the embedding (learned or
   * sinusoidal, not both) is there in all layers. NULL or "": as `positions` says. (Saved as "heed".) */
  const char *layer_positions;
} heed_learner_options;

typedef struct heed_learner heed_learner;

/* HEED_E_ARGUMENT (a field out of range), HEED_E_FORMAT (heads that do not divide the width, an odd rotary width), HEED_E_MEMORY (parameters and their gradients are more than the process
 * can get: said before any is taken); *out is NULL on error. */
HEED_API heed_status heed_learner_new(heed_context *context, const heed_learner_options *options, heed_learner **out);
HEED_API void heed_learner_free(heed_learner *learner);

/* How a learner begins that goes on from a model. */
typedef struct heed_learner_from_options {
  size_t size;
  double dropout; /* as in heed_learner_options */
  /* Names of parameters that stay as they are: "embedding.weight", "layers.0.*", "*.bias" ('*' is any text, '?' any character). Their
   * matrices stay as the model's file stores them, quantised ones too, shared with the model, and have neither gradients nor moments. */
  const char *const *freeze;
  int64_t freeze_count;
  /* An encoder that is to say something else: labels > 0 gives it a head of its own for `head` (labels of tokens or a class), which begins
   * by chance as in heed_learner_options; a pooler stays where the model has one. 0: the model's head. */
  heed_head head;
  int64_t labels;
  const char *const *label_names; /* [labels] texts without control characters; copied */
  uint64_t seed;                  /* of what begins by chance */
  const char *attention;          /* as in heed_learner_options, instead of the model's; NULL or "": the model's. (Saved as "heed".) */
} heed_learner_from_options;
/* A learner of the model's form that begins with its weights: those that learn in f32. What is saved of it is of the model's family, or
 * heed's own where that has no such files (a GGUF's interleaved rotary positions). Takes a reference to the model where something is
 * frozen. options NULL: everything learns. HEED_E_UNSUPPORTED (what cannot be saved again: scaled rotary positions, windows in some of the
 * layers), HEED_E_ARGUMENT (a pattern that fits no parameter, nothing that learns, dropout or labels out of range, labels of a model that
 * is no encoder), HEED_E_MEMORY. */
HEED_API heed_status heed_learner_from_model(heed_context *context, heed_model *model, const heed_learner_from_options *options,
                                             heed_learner **out);
/* Borrowed for the life of the learner. */
HEED_API heed_parameters *heed_learner_parameters(const heed_learner *learner);

/* ids i32 [B,n], n up to the context -> logits [B,n,outputs], outputs being the vocabulary or the labels; of a head for a class [B,labels]. −1 behind the tokens of a row is padding: no other
 * token sees it, its own logits mean nothing, and the bits of the row are those that it has alone. */
HEED_API heed_tensor *heed_learner_logits(heed_learner *learner, heed_tape *tape, heed_tensor *ids);
/* The mean cross-entropy of targets i32 [B,n], −1 passed over. An encoder's targets are what stands there, a decoder's what follows, those of a head for a class stand in the first column. */
HEED_API heed_tensor *heed_learner_loss(heed_learner *learner, heed_tape *tape, heed_tensor *ids, heed_tensor *targets);

/* ---- batches ----------------------------------------------------------------------------------------------------------------- */

/* What a learner is taught: row r of ids [batch,length] is a sequence, −1 behind it where it is shorter, targets [batch,length] what should
 * follow each place, −1 where nothing is asked. Batch `number` of a seed is always the same one. */
typedef void (*heed_batch_fn)(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);

/* Windows of a text that begin anywhere. user of heed_text_batch. */
typedef struct heed_text_data {
  const int32_t *ids; /* [count], more than a window is long */
  int64_t count;
} heed_text_data;
HEED_API void heed_text_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);

/* The windows of a text one after another, without overlap, for a loss over all of it; what lies beyond the end is not asked for. user is a heed_text_data; seed does not matter. */
HEED_API void heed_text_window_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids,
                                     int32_t *targets);
/* Windows of `length` that a text of count ids has: (count − 1) / length. */
HEED_API int64_t heed_text_windows(int64_t count, int64_t length);

/* Windows of a text with masked tokens, for encoders (Devlin et al. 2019): a place is asked for with probability `share`; of those four in five show the mask, one in ten another
 * token, one in ten stays as it is. targets: what stood at the places that are asked for. A window has at least one. user of the two below is a heed_masked_data. */
typedef struct heed_masked_data {
  heed_text_data text;
  int32_t mask;       /* the token that stands for a hidden one */
  int64_t vocabulary; /* other tokens are drawn from [0, vocabulary), all as likely, without the mask */
  double share;       /* 0: 0.15 */
} heed_masked_data;
/* Windows that begin anywhere. */
HEED_API void heed_masked_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);
/* One after another, without overlap, count / length of them; what is masked in one depends on seed and window alone, not on the batch. */
HEED_API void heed_masked_window_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids,
                                       int32_t *targets);

/* Rows with labels, for encoders. Row r has the ids [begin[r], begin[r + 1]); a label stands beside each token that is asked for, of a class beside the first. Batches are padded with −1.
 * user of the two below. */
typedef struct heed_labelled_data {
  const int32_t *ids, *labels; /* [begin[count]]; label −1: not asked for */
  const int64_t *begin;        /* [count + 1], ascending from 0 */
  int64_t count;               /* rows */
} heed_labelled_data;
/* Rows in an order drawn anew each time that all have come: row k of a run (number · batch + its place in the batch) is from round k / count. What is longer than `length` is cut. */
HEED_API void heed_labelled_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);
/* One after another; those beyond the last are padding alone. seed does not matter. */
HEED_API void heed_labelled_row_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids,
                                      int32_t *targets);

/* Pairs of sentences, for learners that have a source. A row of a batch has `width` columns for the source, padded behind; then stands what the decoder reads, `start` and the target's
 * tokens, and there the target's tokens and `end` are asked for. user of the two below. */
typedef struct heed_pair_data {
  const int32_t *source, *target;             /* ids of all sentences, one behind another; of targets without start and end */
  const int64_t *source_begin, *target_begin; /* [count + 1], ascending from 0 */
  int64_t count;
  int64_t
      width; /* as many as the longest source has, or more: what lies beyond is cut, and so is a target that `length` is too short for */
  int32_t start, end;
  const int64_t *order; /* [count] the pairs by length, from heed_pair_order; NULL: as they stand */
} heed_pair_data;
/* order [count] is the caller's. HEED_E_ARGUMENT, HEED_E_MEMORY. */
HEED_API heed_status heed_pair_order(heed_context *context, const heed_pair_data *data, int64_t *order);
/* Every round shows each pair once, in batches whose pairs are alike in length (where there is an order), as drawn for the round. Batch b is of round b / heed_pair_batches; one of them has
 * rows of padding alone where batches do not divide the pairs. There is at least one pair. */
HEED_API void heed_pair_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);
/* One after another, by length where there is an order; those beyond the last are padding alone. seed does not matter. */
HEED_API void heed_pair_row_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);
HEED_API int64_t heed_pair_batches(const heed_pair_data *data, int64_t batch); /* in a round */

/* ---- tasks ------------------------------------------------------------------------------------------------------------------- */

/* Tasks whose solution attention shows. A sequence is a text: "hello>hello." (copy), "hello>olleh.", "hello>ehllo.", "123+456=579.", and "0w0w" with words w of one length (duplicate; Kitaev, Kaiser,
 * Levskaya 2020). Only what stands behind '>', '=' or the second 0 is asked for. */
typedef enum heed_task_kind { HEED_TASK_COPY, HEED_TASK_REVERSE, HEED_TASK_SORT, HEED_TASK_ADDITION, HEED_TASK_DUPLICATE } heed_task_kind;

typedef struct heed_task {
  size_t size; /* sizeof (heed_task) */
  heed_task_kind kind;
  int64_t
      most; /* letters of a word, from 1 to this; 0: 20. Addition: the digits of both numbers; 0: 3. Duplicate: the letters of every word; 0: 127 */
  int64_t symbols; /* letters in use, at most 26, of a duplicate 63; 0: all of them */
  double
      few; /* (not of duplicates) share of the words that teach whose letters are from the first k alone, k drawn from 1 to `symbols`: where letters repeat, only their places tell them apart */
  bool reverse_digits; /* addition: the sum from its last digit on, "975." */
  bool
      held_out; /* sequences that training never shows: words and pairs are told apart by a hash, a tenth of them is held out (none where all words have at most three letters, all
                        * numbers one digit) */
} heed_task;

HEED_API const char *heed_task_name(heed_task_kind kind); /* "copy", ... */
/* −1: there is none of that name. */
HEED_API int heed_task_from_name(const char *name);
/* The characters that the task is written in, one byte each; id i is the i-th, as in a "char" tokenizer made of them. Static. */
HEED_API const char *heed_task_alphabet(const heed_task *task);
/* Positions of the longest sequence. */
HEED_API int64_t heed_task_length(const heed_task *task);
/* user is a heed_task whose fields are filled (heed_task_finish). */
HEED_API void heed_task_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets);
/* Checks the fields and fills those that are 0. HEED_E_ARGUMENT. */
HEED_API heed_status heed_task_finish(heed_context *context, heed_task *task);

/* ---- tasks of pairs ---------------------------------------------------------------------------------------------------------------- */

/* Pairs made on the spot, for models that read one sentence and write another:
 *   "dates"    a date as English, German, French and Spanish write it, each in a dozen styles -> ISO 8601: "jeudi 4 mars 2021" -> "2021-03-04"; the years 1900 to 2099
 *   "numbers"  a language and a number -> its words: "es 21000" -> "veintiún mil"; English and Spanish
 *   "reverse"  letters -> the letters from the last on
 *   "double"   letters -> the letters twice: "abc" -> "abcabc"
 *   "grammar"  an English sentence -> its Spanish translation, with agreement, the place of adjectives, contractions, the personal "a": "the old cat sees the girl" ->
 *              "el gato viejo ve a la niña" */
typedef struct heed_pair_task {
  size_t size;         /* sizeof (heed_pair_task) */
  const char *name;    /* one of those above */
  int64_t least, most; /* letters of a string, from `least` (0: 1) to `most` (0: 30); digits of a number, at most `most` (0: 6) */
  int64_t symbols;     /* letters in use; 0: 26 */
  bool
      held_out; /* pairs that training never shows, a tenth of all by a hash: of the date whatever its style, of the number in both languages, of the string, of the sentence. Numbers below
                          100 and strings of up to three letters are too few to hold some out */
} heed_pair_task;

#define HEED_PAIR_BYTES 1024
#define HEED_PAIR_LINKS 512
typedef struct heed_pair {
  size_t size;
  char source[HEED_PAIR_BYTES], target[HEED_PAIR_BYTES]; /* NUL-terminated */
  heed_link links
      [HEED_PAIR_LINKS]; /* between characters, of "grammar" between words; of "numbers" there are none. Of dates those of year, day and month; a name of a month is possible for both
                                       digits of the month */
  int64_t link_count;
} heed_pair;

/* The name of task i, from 0; NULL beyond the last. */
HEED_API const char *heed_pair_task_name(int64_t i);
/* What its texts consist of: "char" or "word", a kind of heed_tokenizer_train; NULL: there is none of that name. */
HEED_API const char *heed_pair_task_tokens(const char *name);
/* Checks the fields and fills those that are 0. HEED_E_ARGUMENT. */
HEED_API heed_status heed_pair_task_finish(heed_context *context, heed_pair_task *task);
/* Pair `number` of a seed is always the same one. task is filled (heed_pair_task_finish). */
HEED_API void heed_pair_task_make(const heed_pair_task *task, uint64_t seed, int64_t number, heed_pair *out);

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

/* How a learner does on batches [0, batches) of a source, without dropout. */
typedef struct heed_evaluation {
  size_t size;
  double loss;               /* mean cross-entropy of all places that are asked for, in nats */
  int64_t places, sequences; /* that were asked for; sequences with at least one place */
  int64_t right_places;      /* where the likeliest token is the target */
  int64_t exact_sequences;   /* right in every place: greedy generation gives the answer to the letter */
} heed_evaluation;
HEED_API heed_status heed_learner_evaluate(heed_learner *learner, heed_batch_fn source, void *user, uint64_t seed, int64_t batches,
                                           int64_t batch, int64_t length, heed_evaluation *out);

/* What one step was. */
typedef struct heed_train_report {
  size_t size;
  int64_t step, steps; /* done, of how many */
  double loss, gradient_norm, learning_rate;
  double seconds; /* of this step */
  double tokens_per_second;
  int64_t bytes; /* values, gradients and moments at their most */
  bool skipped;  /* a gradient was not finite, and the step was left out */
  bool evaluated, best;
  heed_evaluation evaluation; /* where evaluated */
} heed_train_report;
/* After each step, from the caller's thread. false: stop after saving, which is not an error. */
typedef bool (*heed_train_fn)(void *user, const heed_train_report *report);

typedef struct heed_train_options {
  size_t size;
  int64_t steps, batch, length;
  int64_t accumulate; /* batches whose gradients make a step; 0: 1 */
  heed_batch_fn source;
  void *source_user;
  uint64_t seed; /* of batches and dropout */

  heed_optimiser_options optimiser; /* its size may be 0: AdamW with its defaults */
  heed_schedule schedule;
  double clip; /* of the gradient's global norm; 0: none */

  heed_batch_fn eval_source; /* NULL: none */
  void *eval_user;
  int64_t eval_every, eval_batches; /* steps between evaluations, and after the last; batches of one */
  int64_t patience;                 /* stop when so many evaluations have brought nothing better; 0: never */

  bool skip_nonfinite; /* leave out a step whose gradient is not finite; otherwise the run stops there */
  heed_train_fn report;
  void *report_user;
} heed_train_options;

/* Where a run is: what it needs to go on besides parameters and moments. Zero: at the start. */
typedef struct heed_train_state {
  size_t size;
  int64_t step;
  double best_loss;         /* of evaluations so far; meaningful where best_step > 0 */
  int64_t best_step, worse; /* evaluations since the best */
  bool owes_report;         /* the evaluation after the last step was cancelled: the next run begins with it, and reports */
  bool skipped;             /* of that report */
  double loss, gradient_norm;
} heed_train_state;

/* *bytes: what values and gradients of a batch take besides parameters and moments, found by going through a step without carrying it out. HEED_E_MEMORY where that is more than the
 * process can get (memory and swap that are free, limits of its control group and of its address space; where the system does not say, nothing is refused); HEED_E_ARGUMENT, HEED_E_OVERFLOW.
 * heed_train asks by itself. */
HEED_API heed_status heed_train_fits(heed_learner *learner, const heed_train_options *options, int64_t *bytes);

/* Runs steps [state->step, steps). The bits of what is learned depend on nothing but options, state and parameters: a run may stop anywhere and go on.
 * HEED_E_ARGUMENT; HEED_E_MEMORY, before the first step if what it takes is more than is there (heed_train_fits); HEED_E_CANCELLED (progress "train" and "evaluate"; may go on from
 * state as after any other end); HEED_E_ARGUMENT too where a number is not finite: heed_error names step, tensor and the last finite loss and
 * gradient norm, and the parameters are those before the step. */
HEED_API heed_status heed_train(heed_learner *learner, heed_optimiser *optimiser, const heed_train_options *options,
                                heed_train_state *state);

/* ---- on disk --------------------------------------------------------------------------------------------------------------------- */

/* Writes model.safetensors, config.json and, unless it is NULL, the tokenizer into a directory that is there, each file aside first: GPT-2's, Llama's or BERT's names where the model is one of
 * those, otherwise "model_type": "heed". HEED_E_WRITE (the old files stay), HEED_E_MEMORY. */
HEED_API heed_status heed_learner_save(const heed_learner *learner, const heed_tokenizer *tokenizer, const char *directory);

/* A checkpoint holds parameters that learn, moments and state; of frozen parameters a checksum, since whoever made the learner has them.
 * They lie in directory/checkpoints, each written aside, made durable and put in place whole; the last two are kept. settings: text that a
 * run going on must agree with, a "name value" a line. HEED_E_WRITE: those that were there stay good. */
HEED_API heed_status heed_checkpoint_save(heed_context *context, const char *directory, const heed_learner *learner,
                                          const heed_optimiser *optimiser, const heed_train_state *state, const char *settings);
HEED_API bool heed_checkpoint_exists(const char *directory);

typedef struct heed_checkpoint_info {
  size_t size;
  const char *path;       /* of its directory */
  int64_t step;           /* 0 where it is damaged */
  const char *damage;     /* NULL: every byte is what its manifest says; otherwise what is wrong */
  heed_train_state state; /* of a whole one */
} heed_checkpoint_info;
typedef void (*heed_checkpoint_fn)(void *user, const heed_checkpoint_info *info);
/* Calls `each` for every checkpoint in the directory of a run, newest first; what it is given is borrowed. HEED_E_FILE, HEED_E_MEMORY. */
HEED_API heed_status heed_checkpoint_inspect(heed_context *context, const char *directory, heed_checkpoint_fn each, void *user);
/* Called with a sentence for each damaged checkpoint that is passed over. */
typedef void (*heed_damage_fn)(void *user, const char *text);
/* Reads the newest one that is whole. *found false: there is none at all. HEED_E_FORMAT (all that there are are damaged), HEED_E_ARGUMENT (other settings: names the first that differs, and
 * both values; other frozen parameters), HEED_E_FILE, HEED_E_MEMORY: learner, optimiser and state are as before. */
HEED_API heed_status heed_checkpoint_load(heed_context *context, const char *directory, heed_learner *learner, heed_optimiser *optimiser,
                                          heed_train_state *state, const char *settings, heed_damage_fn damage, void *user, bool *found);

#ifdef __cplusplus
}
#endif
#endif
