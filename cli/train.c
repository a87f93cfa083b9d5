/* train.c: `heed train gpt|llama|encoder|task|from`: from options to a run, and the commands. What a run is to be is train_settings.c's, what it learns from train_data.c's, the loop
 * train_run.c's. */
#include "train_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run ---------------------------------------------------------------------------------------------------------------------- */

static heed_schedule_kind schedule_of(const char *name) {
  static const char *const names[] = {
      [HEED_SCHEDULE_CONSTANT] = "constant", [HEED_SCHEDULE_INVERSE_ROOT] = "inverse-sqrt", [HEED_SCHEDULE_COSINE] = "cosine"};
  int kind = 0;
  while (strcmp(names[kind], name) != 0) kind++; // the option has let no other through
  return (heed_schedule_kind)kind;
}

static int make_learner(training *t, const heed_learner_options *m) {
  heed_context *context = t->context;
  const text_list *freeze = &t->v->freeze;
  const heed_learner_from_options from = {.size = sizeof from,
                                          .dropout = t->v->dropout,
                                          .freeze = freeze->items,
                                          .freeze_count = freeze->count,
                                          .head = m->head,
                                          .labels = t->new_head ? m->labels : 0,
                                          .label_names = m->label_names,
                                          .seed = m->seed,
                                          .attention = m->attention};
  heed_status status =
      t->model ? heed_learner_from_model(context, t->model, &from, &t->learner) : heed_learner_new(context, m, &t->learner);
  if (t->model && status == HEED_E_ARGUMENT) return usage_error("--%s", heed_error(context)); // freeze: ..., attention: ...
  if (!t->model && status == HEED_E_FORMAT) return usage_error("%s", heed_error(context));    // sizes that do not go together
  heed_model_free(t->model);                                                                  // the learner keeps what it needs
  t->model = NULL;
  return check(context, status);
}

static int open_learner(training *t, heed_learner_options *m) {
  const train_values *v = t->v;
  heed_train_options *o = &t->options;
  int code;
  o->steps = v->steps;
  o->batch = v->batch;
  o->accumulate = v->accumulate;
  o->seed = (uint64_t)v->common.seed;
  o->optimiser =
      (heed_optimiser_options){.size = sizeof o->optimiser, .has_betas = true, .beta1 = v->beta1, .beta2 = v->beta2, .decay = v->decay};
  o->schedule = (heed_schedule){.size = sizeof o->schedule,
                                .kind = schedule_of(v->schedule),
                                .peak = v->rate,
                                .floor = v->least_rate,
                                .warmup = v->warmup,
                                .steps = v->steps};
  o->clip = v->clip;
  o->eval_every = v->eval_every;
  o->patience = v->patience;
  o->skip_nonfinite = !strcmp(v->on_nan, "skip");
  TRY(make_learner(t, m));
  TRY(check(t->context, heed_optimiser_new(t->context, heed_learner_parameters(t->learner), &o->optimiser, &t->optimiser)));
  TRY(check(t->context, heed_train_fits(t->learner, o, &t->bytes)));
  TRY(train_settings_describe(t, m));
done:
  return code;
}

static void close_training(training *t) {
  heed_optimiser_free(t->optimiser);
  heed_learner_free(t->learner);
  heed_model_free(t->model);
  train_data_close(t);
  free(t->settings);
  heed_context_free(t->context);
}

enum { FROM_CONTEXT = 128 }; // positions in a sequence, where the model has as many

/* Sizes are the model's. */
static int open_model(training *t, train_values *v, heed_learner_options *model) {
  heed_model_info info = {.size = sizeof info};
  int code;
  TRY(check(t->context, heed_model_load(t->context, v->from, &t->model)));
  TRY(check(t->context, heed_model_describe(t->model, &info)));
  if (t->head == HEED_HEAD_TOKENS && info.head != HEED_HEAD_TOKENS)
    TRY(error_of(EXIT_UNSUPPORTED, "%s: says labels, and a text without has none to learn from (--objective %s)", info.name,
                 info.head == HEED_HEAD_CLASS ? "class" : "labels"));
  if (t->head != HEED_HEAD_TOKENS && !info.bidirectional)
    TRY(error_of(EXIT_UNSUPPORTED, "%s: a decoder; --objective %s is for encoders", info.name, v->objective));
  model->context = info.context;
  if (v->context < 0 && t->head == HEED_HEAD_TOKENS) v->context = info.context < FROM_CONTEXT ? info.context : FROM_CONTEXT;
  if (v->context > info.context)
    return usage_error("--context: must not be above the model's (got %lld, allowed 1 to %lld)", (long long)v->context,
                       (long long)info.context);
  model->kind = info.bidirectional ? HEED_LEARNER_ENCODER : HEED_LEARNER_GPT;
  model->layers = info.layers;
  model->heads = v->heads = info.heads;
  model->kv_heads = info.kv_heads;
  model->width = v->width = info.width;
  model->feed_forward = info.feed_forward;
  model->vocabulary = info.vocabulary;
done:
  return code;
}

/* What the options say of any learner. */
static void fill_model(const train_values *v, heed_learner_options *model) {
  model->size = sizeof *model;
  model->layers = v->layers;
  model->heads = v->heads;
  model->kv_heads = v->kv_heads;
  model->width = v->width;
  model->feed_forward = v->feed_forward;
  model->context = v->context;
  model->rotary = v->rotary;
  if (v->positions && strchr(v->positions, '/')) model->layer_positions = v->positions;
  else if (v->positions) model->positions = (heed_positions)(choice_place(TRAIN_POSITIONS, v->positions) + 1);
  model->attention = v->attention;
  model->no_bias = v->no_bias;
  model->untied = v->untied;
  model->gelu_erf = v->gelu_erf;
  model->norm_before = v->norm_before;
  model->relu = v->relu;
  model->dropout = v->dropout;
  model->spread = v->spread;
  model->smoothing = v->smoothing;
  model->seed = (uint64_t)v->common.seed;
}

int train(const train_values *given, const heed_learner_options *form) {
  train_values v = *given;
  training t = {.v = &v, .options.size = sizeof t.options, .state.size = sizeof t.state, .head = train_head(given)};
  int code;
  if (!v.arch && !v.task && !v.data) return usage_error("--data: a text to train on is missing");
  if (!v.arch && v.validation && t.head == HEED_HEAD_TOKENS) return usage_error("--validation: goes with --objective class and labels");
  if (v.positions && !strchr(v.positions, '/') && choice_place(TRAIN_POSITIONS, v.positions) < 0)
    return usage_error("--positions: unknown kind \"%s\", known are " TRAIN_POSITIONS ", or several with '/' between them", v.positions);
  if (v.positions && v.rotary) return usage_error("--positions: given together with --rotary (one of them is enough)");
  train_settings_fill(&v);
  heed_learner_options model = *form;
  if (v.model && strcmp(v.model, "llama") == 0) model.kind = HEED_LEARNER_LLAMA;
  fill_model(&v, &model);
  if (!v.from && v.width % v.heads != 0)
    return usage_error("--heads: must divide --width (got %lld and %lld)", (long long)v.heads, (long long)v.width);
  if (!v.from && v.kv_heads > 0 && v.heads % v.kv_heads != 0)
    return usage_error("--kv-heads: must divide --heads (got %lld and %lld)", (long long)v.kv_heads, (long long)v.heads);
  TRY(context_open(&v.common, &t.context));
  if (v.from) TRY(open_model(&t, &v, &model));
  TRY(train_data_open(&t, &model));
  if (interrupted()) TRY(EXIT_INTERRUPTED); // nothing is there yet that could be saved
  TRY(open_learner(&t, &model));
  TRY(training_run(&t));
done:
  close_training(&t);
  return code;
}

/* ---- commands --------------------------------------------------------------------------------------------------------------- */

static int run_gpt(const void *v) { return train(v, &(heed_learner_options){.kind = HEED_LEARNER_GPT}); }
static int run_llama(const void *v) { return train(v, &(heed_learner_options){.kind = HEED_LEARNER_LLAMA}); }
static int run_encoder(const void *v) { return train(v, &(heed_learner_options){.kind = HEED_LEARNER_ENCODER}); }
static int run_from(const void *v) { return train(v, &(heed_learner_options){.kind = HEED_LEARNER_GPT}); }
static int run_task(const void *v) { return train(v, &(heed_learner_options){.kind = HEED_LEARNER_GPT}); }

#define TEXT_OPTIONS                                                                                                                       \
  OPTION("data", 0, TEXT, "FILE", data, "the text; its last tenth is for validation"),                                                     \
      OPTION("tokens", 0, TEXT, "KIND", tokens,                                                                                            \
             "char, byte, bpe:N, word, word:N (made from the text), or a tokenizer's file (default char)"),                                \
      OPTION("context", 0, WHOLE, "N", context, "positions (default 64; labelled texts: the longest, at most 512)", .low = 1,              \
             .high = 1e9),                                                                                                                 \
      OPTION("preset", 0, CHOICE, NULL, preset, "sizes and rates that go together", .choices = TRAIN_PRESETS)

static const option gpt_options[] = {
    TEXT_OPTIONS,
    SIZE_OPTIONS,
    POSITION_OPTION,
    ATTENTION_OPTION,
    OPTION("rotary", 0, FLAG, NULL, rotary, "rotary instead of learned positions"),
    OPTION("no-bias", 0, FLAG, NULL, no_bias, "no biases in products and norms"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    RUN_OPTIONS,
};

static const option llama_options[] = {
    TEXT_OPTIONS,
    SIZE_OPTIONS,
    POSITION_OPTION,
    ATTENTION_OPTION,
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    RUN_OPTIONS,
};

static const option encoder_options[] = {
    TEXT_OPTIONS,
    OPTION("objective", 0, CHOICE, NULL, objective, "what to learn: masked tokens, a label a token, a label a text",
           .choices = "masked|labels|class"),
    OPTION("validation", 0, TEXT, "FILE", validation, "labels, class: texts for validation (default: every tenth of --data)"),
    OPTION("mask", 0, NUMBER, "P", mask, "share of the tokens that it has to find (default 0.15)", .low = 0.001, .high = 1),
    SIZE_OPTIONS,
    OPTION("pre-norm", 0, FLAG, NULL, norm_before, "norms before the sublayers instead of after them"),
    OPTION("relu", 0, FLAG, NULL, relu, "ReLU instead of GELU"),
    POSITION_OPTION,
    ATTENTION_OPTION,
    OPTION("rotary", 0, FLAG, NULL, rotary, "rotary instead of learned positions"),
    OPTION("no-bias", 0, FLAG, NULL, no_bias, "no biases in products and norms"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    RUN_OPTIONS,
};

static const option task_options[] = {
    OPTION("TASK", 0, CHOICE, NULL, task, "what to learn", .choices = "copy|reverse|sort|addition|duplicate", .required = true),
    OPTION("letters", 0, WHOLE, "N", letters, "letters of a word, from one to this (default 20); duplicate: of every word (127)", .low = 1,
           .high = 511),
    OPTION("symbols", 0, WHOLE, "N", symbols, "letters in use, up to 26 (default), duplicate 63 (default)", .low = 1, .high = 63),
    OPTION("few-letters", 0, NUMBER, "P", few, "share of the words to learn from that use only the first few of them (default 0.5)",
           .low = 0, .high = 1),
    OPTION("digits", 0, WHOLE, "N", digits, "addition: digits of both numbers (default 3)", .low = 1, .high = 15),
    OPTION("reverse-digits", 0, FLAG, NULL, reverse_digits, "addition: the sum from its last digit on"),
    SIZE_OPTIONS,
    OPTION("model", 0, CHOICE, NULL, model, "form (default gpt; copy: llama)", .choices = "gpt|llama"),
    POSITION_OPTION,
    ATTENTION_OPTION,
    RUN_OPTIONS,
};

static const option from_options[] = {
    OPTION("MODEL", 0, TEXT, NULL, from, "the model to begin with: a directory or a GGUF file", .required = true),
    OPTION("data", 0, TEXT, "FILE", data, "the text; its last tenth is for validation"),
    OPTION("freeze", 0, TEXTS, "PATTERN", freeze,
           "parameters that stay as they are: embedding.weight, 'layers.0.*', '*.qkv.*' (may be repeated)"),
    OPTION("objective", 0, CHOICE, NULL, objective, "encoders: what to learn: masked tokens, a label a token, a label a text",
           .choices = "masked|labels|class"),
    OPTION("validation", 0, TEXT, "FILE", validation, "labels, class: texts for validation (default: every tenth of --data)"),
    OPTION("tokens", 0, TEXT, "FILE", tokens, "a tokenizer instead of the model's own"),
    OPTION("context", 0, WHOLE, "N", context, "positions in a sequence (default 128; labelled texts: the longest, at most 512)", .low = 1,
           .high = 1e9),
    OPTION("attention", 0, TEXT, "KIND[/KIND...]", attention, "what layers attend with instead, as for `heed train gpt`"),
    OPTION("mask", 0, NUMBER, "P", mask, "encoders: share of the tokens that it has to find (default 0.15)", .low = 0.001, .high = 1),
    RUN_OPTIONS,
};

const command command_train_gpt = {
    .name = "train gpt",
    .summary = "train a GPT on a text",
    .about = "Trains a decoder of GPT-2's form on a text, from nothing. " TRAIN_ABOUT,
    .examples = "  heed train gpt --data shakespeare.txt --preset nano-char-cpu --out nano\n  heed generate nano -p \"ROMEO:\" -n 58 "
                "--temp 0.8\n",
    .options = gpt_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .tokens = "char"},
    .run = run_gpt,
};

const command command_train_llama = {
    .name = "train llama",
    .summary = "train a Llama on a text",
    .about =
        "Trains a decoder of Llama's form on a text, from nothing: RMS norms, gated SiLU, rotary positions, grouped heads. " TRAIN_ABOUT,
    .examples = "  heed train llama --data shakespeare.txt --tokens bpe:1024 --heads 8 --kv-heads 2 --out small\n",
    .options = llama_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .tokens = "char"},
    .run = run_llama,
};

const command command_train_encoder = {
    .name = "train encoder",
    .summary = "train an encoder on masked tokens, or on labels of tokens or texts",
    .about = "Trains an encoder of BERT's form, from nothing: every token sees all others. On a text it has to find tokens that were "
             "hidden; of those that it is asked for, four in five show [MASK], one in ten another token, one in ten itself. With "
             "--objective class a line of --data is LABEL, tab, text; with --objective labels it is TOKEN, tab, LABEL, and an empty line "
             "ends a sentence. The labels are those of the data. `heed label` applies what was learned. " TRAIN_ABOUT,
    .examples =
        "  heed train encoder --data shakespeare.txt --steps 3000 --out bert\n  heed logits bert \"To be or not to [MASK]e\" --special\n"
        "  heed train encoder --objective class --data reviews.tsv --tokens bpe:2048 --out reviews\n  heed label reviews \"what a film\"\n",
    .options = encoder_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .tokens = "char", .mask = 0.15, .objective = "masked"},
    .run = run_encoder,
};

const command command_train_from = {
    .name = "train from",
    .summary = "go on training a model on a text",
    .about =
        "Trains a model that is there, on a text: all of it, or what --freeze leaves. Frozen matrices stay as the file stores them, "
        "quantised too; what learns is f32, and so is what is saved. A GGUF file of Llama's form is saved in heed's own form, a "
        "directory in the form it has. An encoder can be taught labels, as by `heed train encoder`: it then gets a head of its own for "
        "them, unless it says them already. " TRAIN_ABOUT,
    .examples = "  heed train from smollm2 --data notes.txt --freeze embedding.weight --freeze 'layers.[0-9].*' --out mine\n"
                "  heed train from bert --objective class --data reviews.tsv --out reviews\n",
    .options = from_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .mask = 0.15},
    .run = run_from,
};

const command command_train_task = {
    .name = "train task",
    .summary = "train copying, reversing, sorting, addition or duplication",
    .about = "Trains a small GPT (to copy: a Llama) on sequences made on the spot, a tenth of which it never sees: those tell how many it "
             "gets right to the letter. A sequence is a text: hello>hello. (copy), hello>olleh. (reverse), hello>ehllo. (sort), "
             "123+456=579., and 0hello0hello (duplicate), whose words are all as long. " TRAIN_ABOUT,
    .examples = "  heed train task reverse --out reverse\n  heed show reverse \"attention>noitnetta.\"\n",
    .options = task_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .few = 0.5},
    .run = run_task,
};
