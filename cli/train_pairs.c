/* train_pairs.c: what a run of `heed train seq2seq` learns from: pairs of a file or of a task, the tokenizers of both sides, and the batches. */
#include "input.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 512, VALIDATED = 2000, USUAL_EXAMPLES = 100000 };

/* What is learned from, and what is kept for validation. */
typedef struct pair_sets {
  examples train, valid;
} pair_sets;

static void sets_free(pair_sets *sets) {
  examples_free(&sets->train);
  examples_free(&sets->valid);
}

static int open_task(training *t, pair_sets *sets) {
  const train_values *v = t->v;
  const uint64_t seed = (uint64_t)v->common.seed;
  int code = pair_task_of(t->context, v->pair_task, &v->pair_values, &t->pair_task);
  if (code != EXIT_OK) return code;
  heed_pair_task held_out = t->pair_task;
  held_out.held_out = true;
  examples_of_task(&t->pair_task, seed, v->examples ? v->examples : USUAL_EXAMPLES, &sets->train);
  examples_of_task(&held_out, seed, VALIDATED, &sets->valid);
  return EXIT_OK;
}

static int open_file(const train_values *v, pair_sets *sets) {
  const bool apart = v->validation != NULL;
  int code;
  TRY(examples_of_file(v->data, v->targets, &sets->train));
  if (apart) TRY(examples_of_file(v->validation, v->validation_targets, &sets->valid));
  else examples_divide(&sets->train, &sets->valid);
  if (sets->train.count == 0 || sets->valid.count == 0)
    TRY(error_of(EXIT_BAD_FILE,
                 "%s: too few pairs (got %lld, every tenth of them for validation, allowed from 10 on; or --validation FILE)", v->data,
                 (long long)sets->train.file.count));
done:
  return code;
}

/* ---- tokenizers ---------------------------------------------------------------------------------------------------------------------------- */

/* The sides of all examples, a line each. */
static heed_text text_of(const examples *all, bool sources, bool targets) {
  size_t length = 0;
  for (int64_t i = 0; i < all->count; i++) {
    const sentence_pair *p = &all->items[i].texts;
    length += (sources ? p->source.length + 1 : 0) + (targets ? p->target.length + 1 : 0);
  }
  char *text = allocate("a text", (int64_t)length, 1), *at = text;
  for (int64_t i = 0; i < all->count; i++) {
    const heed_text sides[] = {all->items[i].texts.source, all->items[i].texts.target};
    for (int side = 0; side < 2; side++) {
      if (!(side == 0 ? sources : targets)) continue;
      memcpy(at, sides[side].data, sides[side].length);
      at += sides[side].length;
      *at++ = '\n';
    }
  }
  return (heed_text){text, length};
}

/* Special tokens are those of Marian's models: the decoder begins with <pad>, a source and a target end with </s>. */
static int open_tokenizer(const training *t, const examples *all, bool sources, bool targets, heed_tokenizer **out) {
  static const char *const special[] = {"<pad>", "</s>"};
  const heed_tokenizer_train_options options = {.size = sizeof options, .special = special, .special_count = 2, .end = "</s>"};
  heed_tokenizer_info info = {.size = sizeof info};
  const heed_text text = text_of(all, sources, targets);
  int code;
  TRY(train_tokenizer_open(t->context, t->v->tokens, all->path, text, &options, out));
  TRY(check(t->context, heed_tokenizer_describe(*out, &info)));
  if (info.pad < 0 || info.eos < 0)
    code = error_of(EXIT_BAD_FILE, "%s: the tokenizer has no %s, which pairs need", t->v->tokens,
                    info.pad < 0 ? "token <pad> or [PAD]" : "end token");
done:
  free((char *)text.data);
  return code;
}

static int open_tokenizers(training *t, const examples *all, heed_learner_options *model) {
  heed_tokenizer_info source = {.size = sizeof source}, target = {.size = sizeof target};
  int code;
  TRY(open_tokenizer(t, all, true, !t->v->separate, &t->tokenizer));
  TRY(check(t->context, heed_tokenizer_describe(t->tokenizer, &source)));
  model->vocabulary = source.vocabulary;
  if (!t->v->separate) goto done;
  TRY(open_tokenizer(t, all, false, true, &t->target_tokenizer));
  TRY(check(t->context, heed_tokenizer_describe(t->target_tokenizer, &target)));
  model->vocabulary = target.vocabulary;
  model->source_vocabulary = source.vocabulary;
done:
  return code;
}

/* ---- batches --------------------------------------------------------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int open_rows(training *t, const pair_sets *sets) {
  const train_values *v = t->v;
  const pair_tokenizers tokenizers = {t->tokenizer, t->target_tokenizer ? t->target_tokenizer : t->tokenizer};
  const int64_t most_source = v->source_context ? v->source_context : LONGEST, most_target = v->context > 0 ? v->context : LONGEST;
  const bool skip = !strcmp(v->on_long, "skip");
  int code;
  TRY(pair_rows_of(t->context, tokenizers, most_source, most_target, skip, &sets->train, &t->pair_train_rows));
  TRY(pair_rows_of(t->context, tokenizers, most_source, most_target, skip, &sets->valid, &t->pair_valid_rows));
  const int64_t skipped = t->pair_train_rows.skipped + t->pair_valid_rows.skipped;
  if (skipped)
    note("%lld pairs are longer than %lld and %lld tokens: left out", (long long)skipped, (long long)most_source, (long long)most_target);
done:
  return code;
}

static int open_batches(training *t, heed_learner_options *model) {
  const train_values *v = t->v;
  pair_rows *train = &t->pair_train_rows, *valid = &t->pair_valid_rows;
  const int64_t longest_source = larger(train->longest_source, valid->longest_source);
  const int64_t longest_target = larger(train->longest_target, valid->longest_target);
  int code;
  model->source = v->source_context ? v->source_context : longest_source;
  model->context = v->context > 0 ? v->context : longest_target;
  // Validation is as it stands: the first rows by length would be the easy ones.
  TRY(pair_rows_data(train, model->source, true, &t->pairs_train));
  TRY(pair_rows_data(valid, model->source, false, &t->pairs_valid));
  model->has_ends = true;
  model->start = t->pairs_train.start;
  model->end = t->pairs_train.end;
  t->options.source = heed_pair_batch;
  t->options.source_user = &t->pairs_train;
  t->options.eval_source = heed_pair_row_batch;
  t->options.eval_user = &t->pairs_valid;
  t->options.length = model->source + longest_target;
  t->options.eval_batches = heed_pair_batches(&t->pairs_valid, v->batch);
  const int64_t enough = (VALIDATED + v->batch - 1) / v->batch;
  if (t->options.eval_batches > enough) t->options.eval_batches = enough;
  note("%lld pairs for training, %lld for validation, %lld tokens, sources up to %lld, targets up to %lld", (long long)t->pairs_train.count,
       (long long)t->pairs_valid.count, (long long)model->vocabulary, (long long)longest_source, (long long)longest_target);
done:
  return code;
}

int train_pairs_open(training *t, heed_learner_options *model) {
  pair_sets sets = {.valid.count = 0};
  int code;
  t->has_pairs = true;
  TRY(t->v->pair_task ? open_task(t, &sets) : open_file(t->v, &sets));
  TRY(open_tokenizers(t, &sets.train, model));
  TRY(open_rows(t, &sets));
  TRY(open_batches(t, model));
done:
  sets_free(&sets);
  return code;
}

void train_pairs_close(training *t) {
  pair_rows_free(&t->pair_train_rows);
  pair_rows_free(&t->pair_valid_rows);
  heed_tokenizer_free(t->target_tokenizer);
}
