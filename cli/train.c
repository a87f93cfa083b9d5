/* train.c: `heed train gpt|llama|encoder|task`: from options, presets and data to a run. The loop is train_run.c's. */
#define _GNU_SOURCE
#include "input.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- presets ---------------------------------------------------------------------------------------------------------------- */

/* Settings that go together. What is 0 says nothing, and so does context of labelled texts, which bring the length of their longest row. */
typedef struct preset {
  const char *name, *model;
  int64_t layers, heads, width, context, batch, steps, warmup;
  double rate, least_rate, decay, beta2, spread;
  bool no_bias, gelu_erf;
} preset;

// clang-format off
static const preset presets[] = {
    // nanoGPT's settings for a processor
    {.name = "nano-char-cpu", .layers = 4, .heads = 4, .width = 128, .context = 64, .batch = 12, .steps = 2000, .warmup = 100,
     .rate = 1e-3, .least_rate = 1e-4, .decay = 0.1, .beta2 = 0.99, .no_bias = true, .gelu_erf = true},
    {.name = "nano-char", .layers = 6, .heads = 6, .width = 384, .context = 256, .batch = 64, .steps = 5000, .warmup = 100,
     .rate = 1e-3, .least_rate = 1e-4, .decay = 0.1, .beta2 = 0.99, .no_bias = true, .gelu_erf = true},
    {.name = "512/8", .layers = 6, .heads = 8, .width = 512, .context = 512, .batch = 8},
    {.name = "768/12", .layers = 12, .heads = 12, .width = 768, .context = 1024, .batch = 4},
    {.name = "1024/16", .layers = 24, .heads = 16, .width = 1024, .context = 1024, .batch = 2},
};
#define PRESET_CHOICES "nano-char-cpu|nano-char|512/8|768/12|1024/16"

#define TEXT_RATES .steps = 2000, .warmup = 100, .rate = 1e-3, .decay = 0.1, .beta2 = 0.99, .spread = 0.02
#define TASK_SIZES .layers = 2, .heads = 4, .width = 128, .context = 64, .batch = 64
#define TASK_RATES .warmup = 100, .rate = 2e-3, .decay = 0.01, .beta2 = 0.99, .spread = 0.05
static const preset text_defaults = {.layers = 4, .heads = 4, .width = 128, .context = 64, .batch = 12, TEXT_RATES};
static const preset labelled_defaults = {.layers = 4, .heads = 4, .width = 128, .batch = 16, TEXT_RATES};
static const preset from_defaults = {.batch = 8, .steps = 200, .warmup = 20, .rate = 1e-4, .decay = 0.01, .beta2 = 0.99};
static const preset task_defaults[] = {
    // rotary positions make it find the place by what stands before it, and look there: the diagonal
    {.name = "copy", .model = "llama", TASK_SIZES, TASK_RATES, .steps = 2000},
    // sums are short, so steps are cheap, and carries come late
    {.name = "addition", .model = "gpt", TASK_SIZES, TASK_RATES, .steps = 6000},
    {.name = NULL, .model = "gpt", TASK_SIZES, TASK_RATES, .steps = 2400}, // every other task
};
// clang-format on

static void fill(int64_t *field, int64_t value) {
  if (*field < 0) *field = value;
}

static void fill_number(double *field, double value) {
  if (isnan(*field)) *field = value;
}

static void take(int64_t *field, int64_t value) {
  if (value) fill(field, value);
}

static void take_number(double *field, double value) {
  if (value != 0) fill_number(field, value);
}

/* Fills what nobody has said. */
static void apply(train_values *v, const preset *p) {
  take(&v->layers, p->layers);
  take(&v->heads, p->heads);
  take(&v->width, p->width);
  take(&v->context, p->context);
  take(&v->batch, p->batch);
  take(&v->steps, p->steps);
  take(&v->warmup, p->warmup);
  take_number(&v->rate, p->rate);
  take_number(&v->least_rate, p->least_rate);
  take_number(&v->decay, p->decay);
  take_number(&v->beta2, p->beta2);
  take_number(&v->spread, p->spread);
  v->no_bias |= p->no_bias;
  v->gelu_erf |= p->gelu_erf;
  if (!v->model) v->model = p->model;
}

static void apply_preset(train_values *v) {
  for (size_t i = 0; v->preset && i < sizeof presets / sizeof *presets; i++)
    if (strcmp(presets[i].name, v->preset) == 0) apply(v, &presets[i]);
}

/* What an encoder is trained to say. */
static heed_head head_of(const train_values *v) {
  if (!v->objective || !strcmp(v->objective, "masked")) return HEED_HEAD_TOKENS;
  return !strcmp(v->objective, "class") ? HEED_HEAD_CLASS : HEED_HEAD_LABELS;
}

static const preset *defaults_of(const train_values *v) {
  const preset *p = task_defaults;
  if (v->from) return &from_defaults;
  if (!v->task) return head_of(v) == HEED_HEAD_TOKENS ? &text_defaults : &labelled_defaults;
  while (p->name && strcmp(p->name, v->task) != 0) p++;
  return p;
}

static void apply_defaults(train_values *v) {
  apply(v, defaults_of(v));
  fill(&v->kv_heads, 0);
  fill(&v->feed_forward, 0);
  fill(&v->accumulate, 1);
  fill(&v->eval_every, v->steps / 10 > 0 ? v->steps / 10 : 1);
  fill(&v->save_every, v->eval_every);
  fill_number(&v->least_rate, v->rate / (v->task ? 20 : 10));
  fill_number(&v->clip, 1);
  fill_number(&v->dropout, 0);
  fill_number(&v->beta1, 0.9);
}

/* ---- data ------------------------------------------------------------------------------------------------------------------- */

/* A model's own, unless there is another file for it. */
static int open_tokenizer_of_model(training *t, int64_t vocabulary) {
  const char *file = t->v->tokens ? t->v->tokens : t->v->from;
  heed_tokenizer_info info = {.size = sizeof info};
  int code;
  if (!t->v->tokens && !heed_model_tokenizer(t->model))
    return error_of(EXIT_BAD_FILE, "%s: has no tokenizer (--tokens FILE names one)", file);
  TRY(check(t->context, heed_tokenizer_load(t->context, file, &t->tokenizer)));
  TRY(check(t->context, heed_tokenizer_describe(t->tokenizer, &info)));
  if (info.vocabulary > vocabulary)
    return error_of(EXIT_BAD_FILE, "%s: has tokens that the model does not know (got %lld tokens, allowed %lld)", file,
                    (long long)info.vocabulary, (long long)vocabulary);
done:
  return code;
}

/* "char", "byte" and "bpe:N" are made from the text, with the special tokens of the options; anything else is a tokenizer that is there. */
static int open_tokenizer(training *t, heed_text text, const heed_tokenizer_train_options *options) {
  const char *kind = t->v->tokens;
  if (strcmp(kind, "char") != 0 && strcmp(kind, "byte") != 0 && strncmp(kind, "bpe:", 4) != 0)
    return check(t->context, heed_tokenizer_load(t->context, kind, &t->tokenizer));
  heed_status status = heed_tokenizer_train(t->context, kind, text, options, &t->tokenizer);
  if (status == HEED_E_ARGUMENT) return usage_error("--tokens: %s", heed_error(t->context));
  if (status == HEED_E_FORMAT) return error_of(EXIT_BAD_FILE, "%s: %s", t->v->data, heed_error(t->context));
  return check(t->context, status);
}

/* The same windows with masked tokens. */
static int mask_text(training *t, const heed_tokenizer_info *info) {
  if (info->mask < 0)
    return error_of(EXIT_BAD_FILE, "%s: the tokenizer has no token [MASK] or <mask>, which an encoder is trained with", t->v->tokens);
  t->masked_train = (heed_masked_data){.text = t->train_part, .mask = info->mask, .vocabulary = info->vocabulary, .share = t->v->mask};
  t->masked_valid = t->masked_train;
  t->masked_valid.text = t->valid_part;
  t->options.source = heed_masked_batch;
  t->options.source_user = &t->masked_train;
  t->options.eval_source = heed_masked_window_batch;
  t->options.eval_user = &t->masked_valid;
  return EXIT_OK;
}

enum { LONGEST_ROW = 512 }; // as BERT's, where nobody says more

static int describe_labelled(training *t, const labelled_file *train, const labelled_file *valid, heed_learner_options *model) {
  int code;
  TRY(label_rows_of_file(&t->train_rows, train, &t->labels, t->v->validation ? (label_choice){0} : FOR_TRAINING));
  TRY(label_rows_of_file(&t->valid_rows, valid, &t->labels, t->v->validation ? (label_choice){0} : FOR_VALIDATION));
  int64_t longest = t->train_rows.longest > t->valid_rows.longest ? t->train_rows.longest : t->valid_rows.longest;
  int64_t cut = t->train_rows.cut + t->valid_rows.cut;
  model->head = t->head;
  model->labels = t->labels.count;
  model->label_names = (const char *const *)t->labels.names;
  model->context = t->v->context > 0 ? t->v->context : longest;
  t->labelled_train = label_rows_data(&t->train_rows);
  t->labelled_valid = label_rows_data(&t->valid_rows);
  t->options.source = heed_labelled_batch;
  t->options.source_user = &t->labelled_train;
  t->options.eval_source = heed_labelled_row_batch;
  t->options.eval_user = &t->labelled_valid;
  t->options.length = longest;
  t->options.eval_batches = (t->labelled_valid.count + t->v->batch - 1) / t->v->batch;
  note("%lld labels, %lld texts for training, %lld for validation", (long long)t->labels.count, (long long)t->labelled_train.count,
       (long long)t->labelled_valid.count);
  if (cut > 0)
    note("%lld of them are longer than the context of %lld tokens: %s (--context)", (long long)cut, (long long)t->train_rows.limit,
         t->head == HEED_HEAD_CLASS ? "what lies beyond is left out" : "they are cut between words");
done:
  return code;
}

/* Texts with labels. Every tenth is for validation unless there is another file for that. */
static int open_labelled(training *t, heed_learner_options *model) {
  static const char *const special[] = {"[PAD]", "[CLS]", "[SEP]"};
  const heed_tokenizer_train_options around = {
      .size = sizeof around, .special = special, .special_count = 3, .begin = "[CLS]", .end = "[SEP]"};
  const train_values *v = t->v;
  const int64_t limit = v->context > 0 ? v->context : LONGEST_ROW;
  labelled_file train = {0}, valid = {0};
  heed_tokenizer_info info = {.size = sizeof info};
  heed_text text = {0};
  int code;
  TRY(labelled_read(v->data, t->head, &train));
  if (v->validation) TRY(labelled_read(v->validation, t->head, &valid));
  else if (train.count < VALIDATION_EVERY)
    TRY(error_of(EXIT_BAD_FILE,
                 "%s: too few texts (got %lld, every tenth of them for validation, allowed from %d on; or --validation FILE)", v->data,
                 (long long)train.count, VALIDATION_EVERY));
  text = labelled_text(&train);
  TRY(open_tokenizer(t, text, &around));
  TRY(check(t->context, heed_tokenizer_describe(t->tokenizer, &info)));
  if (t->head == HEED_HEAD_CLASS && info.before_count == 0)
    TRY(error_of(EXIT_BAD_FILE, "%s: the tokenizer puts no token before a text, from which its class could be read (such as [CLS])",
                 v->tokens));
  model->vocabulary = info.vocabulary;
  label_list_of(&train, &t->labels);
  TRY(label_rows_open(t->context, t->tokenizer, v->data, t->head, limit, &t->train_rows));
  TRY(label_rows_open(t->context, t->tokenizer, v->validation ? v->validation : v->data, t->head, limit, &t->valid_rows));
  TRY(describe_labelled(t, &train, v->validation ? &valid : &train, model));
done:
  free((char *)text.data);
  labelled_free(&train);
  labelled_free(&valid);
  return code;
}

#define NO_HASH 0xcbf29ce484222325u

/* FNV-1a of all ids, after those before: that a run goes on with the text and the tokens it was begun with. */
static uint64_t fingerprint(uint64_t hash, const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++) hash = (hash ^ (uint32_t)ids[i]) * 0x100000001b3u;
  return hash;
}

/* The first nine tenths are for training, the rest for validation. */
static int open_text(training *t, heed_learner_options *model) {
  const train_values *v = t->v;
  size_t length = 0;
  int code;
  TRY(read_whole_file(v->data, &t->text, &length));
  if (length == 0) return error_of(EXIT_BAD_FILE, "%s: the file is empty", v->data);
  const heed_text text = {t->text, length};
  const bool masks = model->kind == HEED_LEARNER_ENCODER;
  static const char *const special[] = {"[MASK]"};
  const heed_tokenizer_train_options masking = {.size = sizeof masking, .special = special, .special_count = masks};
  TRY(t->model ? open_tokenizer_of_model(t, model->vocabulary) : open_tokenizer(t, text, &masking));
  TRY(check(t->context, heed_encode(t->context, t->tokenizer, text, NULL, &t->ids, &t->id_count)));
  heed_tokenizer_info info = {.size = sizeof info};
  TRY(check(t->context, heed_tokenizer_describe(t->tokenizer, &info)));
  if (!t->model) model->vocabulary = info.vocabulary;
  int64_t split = (int64_t)((double)t->id_count * TRAINING_SHARE);
  if (t->id_count - split <= v->context || split <= v->context)
    return error_of(EXIT_BAD_FILE,
                    "%s: too short for the context (got %lld tokens, a tenth of them for validation, allowed more than %lld)", v->data,
                    (long long)t->id_count, (long long)(10 * (v->context + 1)));
  t->train_part = (heed_text_data){t->ids, split};
  t->valid_part = (heed_text_data){t->ids + split, t->id_count - split};
  t->options.source = heed_text_batch;
  t->options.source_user = &t->train_part;
  t->options.eval_source = heed_text_window_batch;
  t->options.eval_user = &t->valid_part;
  t->options.length = v->context;
  t->options.eval_batches = (heed_text_windows(t->valid_part.count, v->context) + v->batch - 1) / v->batch;
  if (masks) TRY(mask_text(t, &info));
done:
  return code;
}

enum { TASK_EVAL_SEQUENCES = 2000 };

static int open_task(training *t, heed_learner_options *model) {
  const train_values *v = t->v;
  const bool sum = !strcmp(v->task, "addition");
  int code;
  t->is_task = true;
  t->task = (heed_task){.size = sizeof t->task,
                        .kind = (heed_task_kind)heed_task_from_name(v->task),
                        .most = sum ? v->digits : v->letters,
                        .symbols = v->symbols,
                        .few = v->few,
                        .reverse_digits = v->reverse_digits};
  TRY(check(t->context, heed_task_finish(t->context, &t->task)));
  t->held_out = t->task;
  t->held_out.held_out = true;
  const char *alphabet = heed_task_alphabet(&t->task);
  TRY(check(t->context, heed_tokenizer_train(t->context, "char", (heed_text){alphabet, strlen(alphabet)}, NULL, &t->tokenizer)));
  model->vocabulary = (int64_t)strlen(alphabet);
  model->context = t->options.length = heed_task_length(&t->task);
  t->options.source = t->options.eval_source = heed_task_batch;
  t->options.source_user = &t->task;
  t->options.eval_user = &t->held_out;
  t->options.eval_batches = (TASK_EVAL_SEQUENCES + v->batch - 1) / v->batch;
done:
  return code;
}

/* ---- the run ---------------------------------------------------------------------------------------------------------------- */

/* Lines of settings. A checkpoint of before must find them as they were: names, order and digits stay. */
static void put_whole(FILE *to, const char *name, int64_t value) { fprintf(to, "%s %lld\n", name, (long long)value); }
static void put_number(FILE *to, const char *name, double value) { fprintf(to, "%s %.17g\n", name, value); }
static void put_word(FILE *to, const char *name, const char *value) { fprintf(to, "%s %s\n", name, value); }

static void put_model(FILE *to, const heed_learner_options *m) {
  put_whole(to, "kind", m->kind);
  put_whole(to, "layers", m->layers);
  put_whole(to, "heads", m->heads);
  put_whole(to, "kv-heads", m->kv_heads);
  put_whole(to, "width", m->width);
  put_whole(to, "feed-forward", m->feed_forward);
  put_whole(to, "context", m->context);
  put_whole(to, "vocabulary", m->vocabulary);
  put_whole(to, "rotary", m->rotary);
  put_whole(to, "no-bias", m->no_bias);
  put_whole(to, "untied", m->untied);
  put_whole(to, "gelu-erf", m->gelu_erf);
  put_number(to, "dropout", m->dropout);
  put_number(to, "init-std", m->spread);
}

static void put_run(FILE *to, const train_values *v) {
  put_whole(to, "seed", v->common.seed);
  put_whole(to, "batch", v->batch);
  put_whole(to, "accumulate", v->accumulate);
  put_whole(to, "steps", v->steps);
  put_number(to, "lr", v->rate);
  put_number(to, "min-lr", v->least_rate);
  put_whole(to, "warmup", v->warmup);
  put_word(to, "schedule", v->schedule);
  put_number(to, "decay", v->decay);
  put_number(to, "clip", v->clip);
  put_number(to, "beta1", v->beta1);
  put_number(to, "beta2", v->beta2);
}

static void put_data(FILE *to, const training *t) {
  put_word(to, "task", t->is_task ? t->v->task : "none");
  put_whole(to, "most", t->task.most);
  put_whole(to, "symbols", t->task.symbols);
  put_number(to, "few-letters", t->task.few);
  put_whole(to, "reverse-digits", t->task.reverse_digits);
  put_word(to, "tokens", t->is_task ? "char" : t->v->tokens ? t->v->tokens : "those of the model");
  put_whole(to, "data-ids", t->id_count);
  fprintf(to, "data-hash %016llx\n", (unsigned long long)fingerprint(NO_HASH, t->ids, t->id_count));
}

static uint64_t fingerprint_of_rows(uint64_t hash, const heed_labelled_data *data) {
  const int64_t count = data->begin[data->count];
  return fingerprint(fingerprint(hash, data->ids, count), data->labels, count);
}

/* Of an encoder that is to say labels. */
static void put_labelled(FILE *to, const training *t) {
  put_word(to, "objective", t->v->objective);
  put_whole(to, "labels", t->labels.count);
  for (int64_t i = 0; i < t->labels.count; i++) put_word(to, "label", t->labels.names[i]);
  put_whole(to, "texts", t->labelled_train.count);
  put_whole(to, "validation-texts", t->labelled_valid.count);
  uint64_t hash = fingerprint_of_rows(fingerprint_of_rows(NO_HASH, &t->labelled_train), &t->labelled_valid);
  fprintf(to, "texts-hash %016llx\n", (unsigned long long)hash);
}

static int describe_settings(training *t, const heed_learner_options *m) {
  size_t length;
  FILE *to = open_memstream(&t->settings, &length);
  if (!to) return error_of(EXIT_NO_MEMORY, "out of memory: the settings of a run");
  put_model(to, m);
  put_run(to, t->v);
  put_data(to, t);
  if (m->kind == HEED_LEARNER_ENCODER) {
    put_whole(to, "norm-before", m->norm_before);
    put_whole(to, "relu", m->relu);
    fprintf(to, "mask %.12g\n", t->v->mask);
  }
  for (int i = 0; i < t->v->freeze.count; i++) put_word(to, "freeze", t->v->freeze.items[i]);
  if (m->head != HEED_HEAD_TOKENS) put_labelled(to, t);
  const bool whole = !ferror(to);
  return fclose(to) == 0 && whole ? EXIT_OK : error_of(EXIT_NO_MEMORY, "out of memory: the settings of a run");
}

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
  const heed_learner_from_options from = {
      .size = sizeof from, .dropout = t->v->dropout, .freeze = freeze->items, .freeze_count = freeze->count};
  heed_status status =
      t->model ? heed_learner_from_model(context, t->model, &from, &t->learner) : heed_learner_new(context, m, &t->learner);
  if (t->model && status == HEED_E_ARGUMENT) return usage_error("--%s", heed_error(context)); // freeze: ...
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
  TRY(describe_settings(t, m));
done:
  return code;
}

/* ---- what a directory says of its training ------------------------------------------------------------------------------------ */

const char trained_name[] = "training.txt";

static void write_path(FILE *to, const char *name, const char *path) {
  char *full = path ? realpath(path, NULL) : NULL;
  if (full) fprintf(to, "%s %s\n", name, full);
  free(full);
}

int trained_write(const training *t) {
  char path[4096], folder[4096];
  output_file file;
  snprintf(path, sizeof path, "%s/%s", t->v->out, trained_name);
  int code = output_open(path, &file);
  if (code != EXIT_OK) return code;
  fputs(t->settings, file.stream);
  write_path(file.stream, "data", t->is_task ? NULL : t->v->data);
  write_path(file.stream, "validation", t->v->validation);
  write_path(file.stream, "from", t->v->from);
  fprintf(file.stream, "command %s\n", command_line());
  if (getcwd(folder, sizeof folder)) fprintf(file.stream, "folder %s\n", folder);
  return output_close(&file, EXIT_OK);
}

/* The value of a name in lines of "name value", or "". */
static const char *setting(const char *lines, const char *name, char value[4096]) {
  size_t length = strlen(name);
  value[0] = 0;
  for (const char *at = lines; *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (!strncmp(at, name, length) && at[length] == ' ')
      snprintf(value, 4096, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
  return value;
}

int trained_read(heed_context *context, const char *directory, trained *out) {
  char path[4096], value[4096], *lines = NULL;
  size_t length;
  *out = (trained){0};
  snprintf(path, sizeof path, "%s/%s", directory, trained_name);
  if (access(path, R_OK) != 0) return EXIT_OK;
  int code = read_whole_file(path, &lines, &length);
  if (code != EXIT_OK) return code;
  snprintf(out->data, sizeof out->data, "%s", setting(lines, "data", value));
  snprintf(out->command, sizeof out->command, "%s", setting(lines, "command", value));
  snprintf(out->folder, sizeof out->folder, "%s", setting(lines, "folder", value));
  out->steps = atoll(setting(lines, "steps", value));
  snprintf(out->validation, sizeof out->validation, "%s", setting(lines, "validation", value));
  out->mask = atof(setting(lines, "mask", value));
  int kind = heed_task_from_name(setting(lines, "task", value));
  out->is_task = kind >= 0;
  if (out->is_task) {
    out->task = (heed_task){.size = sizeof out->task, .kind = (heed_task_kind)kind, .held_out = true};
    out->task.most = atoll(setting(lines, "most", value));
    out->task.symbols = atoll(setting(lines, "symbols", value));
    out->task.reverse_digits = atoll(setting(lines, "reverse-digits", value)) != 0;
    code = check(context, heed_task_finish(context, &out->task));
  }
  free(lines);
  return code;
}

static void close_training(training *t) {
  heed_optimiser_free(t->optimiser);
  heed_learner_free(t->learner);
  heed_model_free(t->model);
  heed_tokenizer_free(t->tokenizer);
  if (t->ids) heed_ids_free(t->context, t->ids, t->id_count);
  label_list_free(&t->labels);
  label_rows_free(&t->train_rows);
  label_rows_free(&t->valid_rows);
  free(t->text);
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
  if (info.head != HEED_HEAD_TOKENS)
    return error_of(EXIT_UNSUPPORTED, "%s: says labels, and `heed train from` learns from a text without", info.name);
  fill(&v->context, info.context < FROM_CONTEXT ? info.context : FROM_CONTEXT);
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

static int train(const train_values *given, heed_learner_kind kind) {
  train_values v = *given;
  training t = {.v = &v, .options.size = sizeof t.options, .state.size = sizeof t.state, .head = head_of(given)};
  int code;
  if (!v.task && !v.data) return usage_error("--data: a text to train on is missing");
  if (v.validation && t.head == HEED_HEAD_TOKENS) return usage_error("--validation: goes with --objective class and labels");
  apply_preset(&v);
  apply_defaults(&v);
  if (v.model && strcmp(v.model, "llama") == 0) kind = HEED_LEARNER_LLAMA;
  heed_learner_options model = {.size = sizeof model,
                                .kind = kind,
                                .layers = v.layers,
                                .heads = v.heads,
                                .kv_heads = v.kv_heads,
                                .width = v.width,
                                .feed_forward = v.feed_forward,
                                .context = v.context,
                                .rotary = v.rotary,
                                .no_bias = v.no_bias,
                                .untied = v.untied,
                                .gelu_erf = v.gelu_erf,
                                .norm_before = v.norm_before,
                                .relu = v.relu,
                                .dropout = v.dropout,
                                .spread = v.spread,
                                .seed = (uint64_t)v.common.seed};
  if (!v.from && v.width % v.heads != 0)
    return usage_error("--heads: must divide --width (got %lld and %lld)", (long long)v.heads, (long long)v.width);
  if (!v.from && v.kv_heads > 0 && v.heads % v.kv_heads != 0)
    return usage_error("--kv-heads: must divide --heads (got %lld and %lld)", (long long)v.kv_heads, (long long)v.heads);
  TRY(context_open(&v.common, &t.context));
  if (v.from) TRY(open_model(&t, &v, &model));
  TRY(v.task ? open_task(&t, &model) : t.head == HEED_HEAD_TOKENS ? open_text(&t, &model) : open_labelled(&t, &model));
  if (interrupted()) TRY(EXIT_INTERRUPTED); // nothing is there yet that could be saved
  TRY(open_learner(&t, &model));
  TRY(training_run(&t));
done:
  close_training(&t);
  return code;
}

/* ---- commands --------------------------------------------------------------------------------------------------------------- */

typedef train_values values;

static int run_gpt(const void *v) { return train(v, HEED_LEARNER_GPT); }
static int run_llama(const void *v) { return train(v, HEED_LEARNER_LLAMA); }
static int run_encoder(const void *v) { return train(v, HEED_LEARNER_ENCODER); }
static int run_from(const void *v) { return train(v, HEED_LEARNER_GPT); }
static int run_task(const void *v) { return train(v, HEED_LEARNER_GPT); }

#define SIZE_OPTIONS                                                                                                                       \
  OPTION("layers", 0, WHOLE, "N", layers, "layers (default 4; tasks 2)", .low = 1, .high = 10000),                                         \
      OPTION("heads", 0, WHOLE, "N", heads, "query heads (default 4)", .low = 1, .high = 4096),                                            \
      OPTION("kv-heads", 0, WHOLE, "N", kv_heads, "key/value heads (default: as many as query heads)", .low = 1, .high = 4096),            \
      OPTION("width", 0, WHOLE, "N", width, "width of the model (default 128)", .low = 1, .high = 262144),                                 \
      OPTION("init-std", 0, NUMBER, "X", spread, "standard deviation of the weights at the start (default 0.02; tasks 0.05)", .low = 1e-6, \
             .high = 10),                                                                                                                  \
      OPTION("feed-forward", 0, WHOLE, "N", feed_forward, "width inside the feed-forward layers (default: 4 widths, gated 8/3)", .low = 1, \
             .high = 262144)

#define RUN_OPTIONS                                                                                                                        \
  OPTION("batch", 0, WHOLE, "N", batch, "sequences in a batch (default 12; tasks 64, from a model 8)", .low = 1, .high = 1e6),             \
      OPTION("accumulate", 0, WHOLE, "N", accumulate, "batches whose gradients make a step (default 1)", .low = 1, .high = 1e6),           \
      OPTION("steps", 0, WHOLE, "N", steps, "steps in all (default 2000; tasks 2400, copy 2000, addition 6000, from a model 200)",         \
             .low = 1, .high = 1e12),                                                                                                      \
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

#define TEXT_OPTIONS                                                                                                                       \
  OPTION("data", 0, TEXT, "FILE", data, "the text; its last tenth is for validation"),                                                     \
      OPTION("tokens", 0, TEXT, "KIND", tokens, "char, byte, bpe:N (made from the text), or a tokenizer's file (default char)"),           \
      OPTION("context", 0, WHOLE, "N", context, "positions (default 64; labelled texts: the longest, at most 512)", .low = 1,              \
             .high = 1e9),                                                                                                                 \
      OPTION("preset", 0, CHOICE, NULL, preset, "sizes and rates that go together", .choices = PRESET_CHOICES)

#define UNSAID                                                                                                                             \
  .on_nan = "stop", .schedule = "cosine", .layers = -1, .heads = -1, .kv_heads = -1, .width = -1, .feed_forward = -1, .context = -1,       \
  .batch = -1, .accumulate = -1, .steps = -1, .warmup = -1, .save_every = -1, .eval_every = -1, .rate = NAN, .least_rate = NAN,            \
  .decay = NAN, .clip = NAN, .dropout = NAN, .beta1 = NAN, .beta2 = NAN, .spread = NAN

static const option gpt_options[] = {
    TEXT_OPTIONS,
    SIZE_OPTIONS,
    OPTION("rotary", 0, FLAG, NULL, rotary, "rotary instead of learned positions"),
    OPTION("no-bias", 0, FLAG, NULL, no_bias, "no biases in products and norms"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    RUN_OPTIONS,
};

static const option llama_options[] = {
    TEXT_OPTIONS,
    SIZE_OPTIONS,
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
    OPTION("rotary", 0, FLAG, NULL, rotary, "rotary instead of learned positions"),
    OPTION("no-bias", 0, FLAG, NULL, no_bias, "no biases in products and norms"),
    OPTION("untied", 0, FLAG, NULL, untied, "a head of its own instead of the embedding"),
    RUN_OPTIONS,
};

static const option task_options[] = {
    OPTION("TASK", 0, CHOICE, NULL, task, "what to learn", .choices = "copy|reverse|sort|addition", .required = true),
    OPTION("letters", 0, WHOLE, "N", letters, "letters of a word, from one to this (default 20)", .low = 1, .high = 500),
    OPTION("symbols", 0, WHOLE, "N", symbols, "letters in use (default 26)", .low = 1, .high = 26),
    OPTION("few-letters", 0, NUMBER, "P", few, "share of the words to learn from that use only the first few of them (default 0.5)",
           .low = 0, .high = 1),
    OPTION("digits", 0, WHOLE, "N", digits, "addition: digits of both numbers (default 3)", .low = 1, .high = 15),
    OPTION("reverse-digits", 0, FLAG, NULL, reverse_digits, "addition: the sum from its last digit on"),
    SIZE_OPTIONS,
    OPTION("model", 0, CHOICE, NULL, model, "form (default gpt; copy: llama)", .choices = "gpt|llama"),
    RUN_OPTIONS,
};

static const option from_options[] = {
    OPTION("MODEL", 0, TEXT, NULL, from, "the model to begin with: a directory or a GGUF file", .required = true),
    OPTION("data", 0, TEXT, "FILE", data, "the text; its last tenth is for validation"),
    OPTION("freeze", 0, TEXTS, "PATTERN", freeze,
           "parameters that stay as they are: embedding.weight, 'layers.0.*', '*.qkv.*' (may be repeated)"),
    OPTION("tokens", 0, TEXT, "FILE", tokens, "a tokenizer instead of the model's own"),
    OPTION("context", 0, WHOLE, "N", context, "positions in a sequence (default 128)", .low = 1, .high = 1e9),
    OPTION("mask", 0, NUMBER, "P", mask, "encoders: share of the tokens that it has to find (default 0.15)", .low = 0.001, .high = 1),
    RUN_OPTIONS,
};

#define TRAIN_ABOUT                                                                                                                        \
  "DIR then is a Hugging Face directory (model.safetensors, config.json, tokenizer.json) that heed and others load, with the checkpoints " \
  "beside it. Ctrl-C and SIGTERM save and say how to go on; a resumed run repeats the uninterrupted one bit for bit, on any number of "    \
  "threads."

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
    .summary = "train an encoder on masked tokens, labels of tokens, or classes of texts",
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
    .about = "Trains a model that is there, on a text: all of it, or what --freeze leaves. Frozen matrices stay as the file stores them, "
             "quantised too; what learns is f32, and so is what is saved. A GGUF file of Llama's form is saved in heed's own form, a "
             "directory in the form it has. " TRAIN_ABOUT,
    .examples = "  heed train from smollm2 --data notes.txt --freeze embedding.weight --freeze 'layers.[0-9].*' --out mine\n",
    .options = from_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .mask = 0.15},
    .run = run_from,
};

const command command_train_task = {
    .name = "train task",
    .summary = "train copying, reversing, sorting or addition",
    .about = "Trains a small GPT (to copy: a Llama) on sequences made on the spot, a tenth of which it never sees: those tell how many it "
             "gets right to the "
             "letter. "
             "A sequence is a text: hello>hello. (copy), hello>olleh. (reverse), hello>ehllo. (sort), 123+456=579. " TRAIN_ABOUT,
    .examples = "  heed train task reverse --out reverse\n  heed show reverse \"attention>noitnetta.\"\n",
    .options = task_options,
    .takes = TAKES_MACHINE | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){UNSAID, .few = 0.5},
    .run = run_task,
};
