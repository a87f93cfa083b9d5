/* train_data.c: what a run of `heed train` learns from: a text, texts with labels, or a task, as sources of batches for training and for validation, with the tokenizer that reads them. */
#define _GNU_SOURCE
#include "input.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

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

/* Whether --tokens names a kind that is made from a text; anything else is a tokenizer that is there. */
static bool is_made(const char *tokens) {
  return !strcmp(tokens, "char") || !strcmp(tokens, "byte") || !strcmp(tokens, "word") || !strncmp(tokens, "bpe:", 4) ||
         !strncmp(tokens, "word:", 5);
}

int train_tokenizer_open(heed_context *context, const char *kind, const char *from, heed_text text,
                         const heed_tokenizer_train_options *options, heed_tokenizer **out) {
  if (!is_made(kind)) return check(context, heed_tokenizer_load(context, kind, out));
  heed_status status = heed_tokenizer_train(context, kind, text, options, out);
  if (status == HEED_E_ARGUMENT) return usage_error("--tokens: %s", heed_error(context));
  if (status == HEED_E_FORMAT) return error_of(EXIT_BAD_FILE, "%s: %s", from, heed_error(context));
  return check(context, status);
}

/* That of the model a run goes on from, or what --tokens says. */
static int open_tokenizer(training *t, heed_text text, const heed_tokenizer_train_options *options, int64_t vocabulary) {
  if (t->model) return open_tokenizer_of_model(t, vocabulary);
  return train_tokenizer_open(t->context, t->v->tokens, t->v->data, text, options, &t->tokenizer);
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

/* Those of the data. A model that says all of them, and perhaps more, goes on with its own. */
static void list_labels(training *t, const labelled_file *train) {
  label_list known = {0};
  heed_model_info info = {.size = sizeof info};
  label_list_of(train, &t->labels);
  t->new_head = t->model != NULL;
  if (!t->model || heed_model_describe(t->model, &info) != HEED_OK || info.head != t->head) return;
  label_list_of_model(t->model, info.labels, &known);
  t->new_head = !label_list_has(&known, &t->labels);
  label_list *old = t->new_head ? &known : &t->labels;
  label_list_free(old);
  if (!t->new_head) t->labels = known;
}

/* Texts with labels. Every tenth is for validation unless there is another file for that. */
static int open_labelled(training *t, heed_learner_options *model) {
  static const char *const special[] = {"[PAD]", "[CLS]", "[SEP]"};
  const heed_tokenizer_train_options around = {
      .size = sizeof around, .special = special, .special_count = 3, .begin = "[CLS]", .end = "[SEP]"};
  const train_values *v = t->v;
  const int64_t longest = t->model && model->context < LONGEST_ROW ? model->context : LONGEST_ROW;
  const int64_t limit = v->context > 0 ? v->context : longest;
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
  TRY(open_tokenizer(t, text, &around, model->vocabulary));
  TRY(check(t->context, heed_tokenizer_describe(t->tokenizer, &info)));
  if (t->head == HEED_HEAD_CLASS && info.before_count == 0)
    TRY(error_of(EXIT_BAD_FILE, "%s: the tokenizer puts no token before a text, from which its class could be read (such as [CLS])",
                 v->tokens ? v->tokens : v->from));
  if (!t->model) model->vocabulary = info.vocabulary;
  list_labels(t, &train);
  TRY(label_rows_open(t->context, t->tokenizer, v->data, t->head, limit, &t->train_rows));
  TRY(label_rows_open(t->context, t->tokenizer, v->validation ? v->validation : v->data, t->head, limit, &t->valid_rows));
  TRY(describe_labelled(t, &train, v->validation ? &valid : &train, model));
done:
  free((char *)text.data);
  labelled_free(&train);
  labelled_free(&valid);
  return code;
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
  TRY(open_tokenizer(t, text, &masking, model->vocabulary));
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

int train_data_open(training *t, heed_learner_options *model) {
  if (t->v->arch) return train_pairs_open(t, model);
  if (t->v->task) return open_task(t, model);
  return t->head == HEED_HEAD_TOKENS ? open_text(t, model) : open_labelled(t, model);
}

void train_data_close(training *t) {
  if (t->ids) heed_ids_free(t->context, t->ids, t->id_count);
  label_list_free(&t->labels);
  label_rows_free(&t->train_rows);
  label_rows_free(&t->valid_rows);
  train_pairs_close(t);
  heed_tokenizer_free(t->tokenizer);
  free(t->text);
}
