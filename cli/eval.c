/* eval.c: `heed eval`: how well a model predicts a text, finds the masked tokens of one, labels texts, or solves the task it was trained on. */
#include "eval_pairs.h"
#include "input.h"
#include "json.h"
#include "model.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>

typedef struct values {
  common_values common;
  const char *model, *data;
  const char *targets;
  int64_t context, count;
  search_values search;
} values;

/* Sums over everything that was predicted. */
typedef struct sums {
  double loss; /* nats, of all tokens together */
  int64_t tokens, right, characters, sequences, exact;
} sums;

enum { OF_TEXT, OF_MASKED, OF_TASK, OF_LABELS };

/* Adds −log softmax(logits)[target]; whether the target is the likeliest. */
static bool add_token(sums *s, const float *logits, int64_t outputs, int32_t target) {
  const int64_t best = likeliest(logits, outputs);
  const float top = logits[best];
  double sum = 0;
  for (int64_t i = 0; i < outputs; i++) sum += exp((double)(logits[i] - top));
  s->loss += log(sum) + (double)(top - logits[target]);
  s->tokens++;
  s->right += best == target;
  return best == target;
}

/* One sequence from an empty session: what it says of targets [count], −1 passed over; of a class, of the first. `right`: all of them are the likeliest. */
static int run_sequence(const loaded *m, heed_session *session, const int32_t *ids, const int32_t *targets, int64_t count, float *logits,
                        sums *s, bool *right) {
  const int64_t rows = m->info.head == HEED_HEAD_CLASS ? 1 : count;
  int code = check(m->context, heed_session_truncate(session, 0));
  if (code == EXIT_OK) code = check(m->context, heed_session_run(session, ids, count, logits, rows, NULL));
  *right = true;
  for (int64_t i = 0; i < rows && code == EXIT_OK; i++)
    if (targets[i] >= 0) *right &= add_token(s, logits + i * m->info.outputs, m->info.outputs, targets[i]);
  return code;
}

/* ---- texts ------------------------------------------------------------------------------------------------------------------- */

static int64_t characters_of(heed_text text) {
  int64_t n = 0;
  for (size_t i = 0; i < text.length; i++) n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
  return n;
}

static int eval_ids(const loaded *m, heed_session *session, const int32_t *ids, int64_t count, int64_t length, float *logits, sums *s) {
  int64_t windows = heed_text_windows(count, length);
  int code = EXIT_OK;
  bool right;
  for (int64_t w = 0; w < windows && code == EXIT_OK; w++) {
    code = run_sequence(m, session, ids + w * length, ids + w * length + 1, length, logits, s, &right);
    if (!progress("evaluate", w + 1, windows)) code = EXIT_INTERRUPTED;
  }
  // The characters that the targets stand for: bits a character are comparable between tokenizers.
  for (int64_t i = 1; i <= windows * length; i++) s->characters += characters_of(heed_token_text(m->tokenizer, ids[i]));
  return code;
}

/* What stands at masked places, from all that stands around them. */
static int eval_masked(const loaded *m, heed_session *session, heed_masked_data *data, uint64_t seed, int64_t length, float *logits,
                       sums *s) {
  int64_t windows = data->text.count / length;
  int32_t *ids = allocate("a window", length, sizeof *ids), *targets = allocate("a window", length, sizeof *targets);
  int code = EXIT_OK;
  bool right;
  for (int64_t w = 0; w < windows && code == EXIT_OK; w++) {
    heed_masked_window_batch(data, seed, w, 1, length, ids, targets);
    code = run_sequence(m, session, ids, targets, length, logits, s, &right);
    for (int64_t i = 0; i < length; i++)
      if (targets[i] >= 0) s->characters += characters_of(heed_token_text(m->tokenizer, targets[i]));
    if (!progress("evaluate", w + 1, windows)) code = EXIT_INTERRUPTED;
  }
  free(ids);
  free(targets);
  return code;
}

/* The part of a text behind `from`, in windows. */
typedef struct reading {
  const char *path;
  double from;
  int64_t length;
  double mask; /* share of the tokens that an encoder has to find; 0: the usual */
  uint64_t seed;
} reading;

static int eval_text(const loaded *m, const reading *r, heed_session *session, float *logits, sums *s) {
  const char *path = r->path;
  const int64_t length = r->length;
  heed_tokenizer_info info = {.size = sizeof info};
  char *data = NULL;
  size_t bytes = 0;
  int32_t *ids = NULL;
  int64_t count = 0;
  int code;
  if (!m->tokenizer) return usage_error("%s: has no tokenizer, so it cannot read a text", m->info.name);
  TRY(read_whole_file(path, &data, &bytes));
  TRY(check(m->context, heed_encode(m->context, m->tokenizer, (heed_text){data, bytes}, NULL, &ids, &count)));
  TRY(check(m->context, heed_tokenizer_describe(m->tokenizer, &info)));
  int64_t begin = (int64_t)((double)count * r->from);
  if (heed_text_windows(count - begin, length) < 1)
    TRY(error_of(EXIT_BAD_FILE, "%s: too short (got %lld tokens, allowed more than the context of %lld)", path, (long long)(count - begin),
                 (long long)length));
  if (m->info.bidirectional && info.mask < 0)
    TRY(usage_error("%s: its tokenizer has no token [MASK] or <mask>, so nothing can be masked", m->info.name));
  heed_masked_data masked = {{ids + begin, count - begin}, info.mask, m->info.vocabulary, r->mask};
  TRY(m->info.bidirectional ? eval_masked(m, session, &masked, r->seed, length, logits, s)
                            : eval_ids(m, session, ids + begin, count - begin, length, logits, s));
done:
  if (ids) heed_ids_free(m->context, ids, count);
  free(data);
  return code;
}

/* ---- texts with labels --------------------------------------------------------------------------------------------------------- */

static int eval_rows(const loaded *m, const heed_labelled_data *data, heed_session *session, float *logits, sums *s) {
  int code = EXIT_OK;
  for (int64_t r = 0; r < data->count && code == EXIT_OK; r++) {
    const int64_t at = data->begin[r], count = data->begin[r + 1] - at;
    bool right;
    if (count == 0) continue;
    code = run_sequence(m, session, data->ids + at, data->labels + at, count, logits, s, &right);
    s->sequences++;
    s->exact += right;
    if (!progress("evaluate", r + 1, data->count)) code = EXIT_INTERRUPTED;
  }
  return code;
}

static int eval_labelled(const loaded *m, const char *path, label_choice choice, heed_session *session, int64_t length, float *logits,
                         sums *s) {
  labelled_file file = {0};
  label_list labels = {0};
  label_rows rows = {0};
  int code;
  if (!m->tokenizer) return usage_error("%s: has no tokenizer, so it cannot read a text", m->info.name);
  label_list_of_model(m->model, m->info.labels, &labels);
  TRY(labelled_read(path, m->info.head, &file));
  TRY(label_rows_open(m->context, m->tokenizer, path, m->info.head, length, &rows));
  TRY(label_rows_of_file(&rows, &file, &labels, choice));
  const heed_labelled_data data = label_rows_data(&rows);
  TRY(eval_rows(m, &data, session, logits, s));
done:
  label_rows_free(&rows);
  label_list_free(&labels);
  labelled_free(&file);
  return code;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------------------- */

enum { TASK_SEQUENCES = 2000, FRESH = 1000003 }; // batches beyond those that training looks at

static int eval_task(const loaded *m, heed_task *task, uint64_t seed, int64_t sequences, heed_session *session, float *logits, sums *s) {
  int64_t length = heed_task_length(task);
  int32_t *ids = allocate("sequences", length, sizeof *ids), *targets = allocate("sequences", length, sizeof *targets);
  int code = EXIT_OK;
  for (int64_t i = 0; i < sequences && code == EXIT_OK; i++) {
    bool right;
    heed_task_batch(task, seed, FRESH + i, 1, length, ids, targets);
    code = run_sequence(m, session, ids, targets, length, logits, s, &right);
    s->sequences++;
    s->exact += right;
    if (!progress("evaluate", i + 1, sequences)) code = EXIT_INTERRUPTED;
  }
  free(ids);
  free(targets);
  return code;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------- */

static void print(const loaded *m, const values *v, const sums *s, int what) {
  const bool is_task = what == OF_TASK, is_masked = what == OF_MASKED, is_labels = what == OF_LABELS;
  const bool is_class = is_labels && m->info.head == HEED_HEAD_CLASS;
  double right = s->tokens ? (double)s->right / (double)s->tokens : NAN;
  double loss = s->tokens ? s->loss / (double)s->tokens : NAN;
  double bits = s->characters ? s->loss / log(2) / (double)s->characters : NAN;
  if (v->common.json) {
    json j = {0};
    json_open(&j, NULL, '{');
    json_text(&j, "model", m->info.name);
    json_number(&j, "loss", loss);
    if (is_labels || is_task) json_number(&j, "accuracy", right);
    if (!is_labels) json_number(&j, "perplexity", exp(loss));
    if (!is_task && !is_labels) json_number(&j, "bits_per_char", bits);
    if (is_masked) json_number(&j, "masked_accuracy", right);
    if (is_task) json_number(&j, "exact_match", (double)s->exact / (double)s->sequences);
    if (is_task) json_whole(&j, "sequences", s->sequences);
    if (is_class) json_whole(&j, "texts", s->tokens);
    else json_whole(&j, "tokens", s->tokens);
    json_close(&j);
    return;
  }
  if (is_labels) {
    out("loss           %.4f\naccuracy       %.2f %% (%lld of %lld %s)\n", loss, 100 * right, (long long)s->right, (long long)s->tokens,
        is_class ? "texts" : "words");
    return;
  }
  out("loss           %.4f\nperplexity     %.4f\n", loss, exp(loss));
  if (is_task)
    out("accuracy       %.2f %% (%lld of %lld characters)\nexact match    %.2f %% (%lld of %lld held-out sequences)\n", 100 * right,
        (long long)s->right, (long long)s->tokens, 100.0 * (double)s->exact / (double)s->sequences, (long long)s->exact,
        (long long)s->sequences);
  else if (is_masked)
    out("found          %.2f %% of the masked tokens\nbits per char  %.4f\ntokens         %lld\n", 100 * right, bits, (long long)s->tokens);
  else out("bits per char  %.4f\ntokens         %lld\n", bits, (long long)s->tokens);
}

static int run_pairs(const loaded *m, const values *v) {
  const eval_pairs_values pairs = {.which = {.pairs = v->data, .targets = v->targets, .count = v->count}, .search = v->search};
  if (v->context) return usage_error("--context: %s translates: its pairs are whole", m->info.name);
  return eval_pairs(m, v->model, &v->common, &pairs);
}

/* What only a translation has a use for. */
static int check_untranslated(const loaded *m, const values *v) {
  const char *given = v->targets ? "targets" : search_given(&v->search);
  return given ? usage_error("--%s: %s does not translate", given, m->info.name) : EXIT_OK;
}

/* Positions that are computed, or lie in the scores, end nowhere; where they are learned the library knows how many there are. */
static int open_session(const loaded *m, int64_t length, heed_session **out) {
  const heed_session_options options = {.size = sizeof options, .capacity = length};
  const heed_status status = heed_session_new(m->context, m->model, &options, out);
  if (status == HEED_E_ARGUMENT) return usage_error("--context: %s", heed_error(m->context));
  return check(m->context, status);
}

static int run(const void *pointer) {
  const values *v = pointer;
  loaded m = {0};
  trained trained;
  heed_session *session = NULL;
  float *logits = NULL;
  sums s = {0};
  int code;
  TRY(model_open_any(&v->common, v->model, &m));
  if (model_translates(&m)) {
    code = run_pairs(&m, v);
    goto done;
  }
  TRY(check_untranslated(&m, v));
  TRY(trained_read(m.context, v->model, &trained));
  const bool is_labels = m.info.head != HEED_HEAD_TOKENS;
  bool is_task = !v->data && trained.is_task;
  if (!v->data && !trained.is_task && !trained.data[0])
    TRY(usage_error("--data: %s does not say what it was trained on, so a text is needed", v->model));
  if (v->context && is_task) TRY(usage_error("--context: %s is asked for its task, whose sequences have one length", m.info.name));
  if (v->count && !is_task) TRY(usage_error("--count: %s is asked for a text, which is read whole", m.info.name));
  int64_t length = is_task ? heed_task_length(&trained.task) : v->context ? v->context : m.info.context;
  TRY(open_session(&m, length, &session));
  logits = allocate("logits", length * m.info.outputs, sizeof *logits);
  if (is_labels) {
    const bool apart = v->data || trained.validation[0]; // a file that training has not seen
    const char *file = v->data ? v->data : apart ? trained.validation : trained.data;
    TRY(eval_labelled(&m, file, apart ? (label_choice){0} : FOR_VALIDATION, session, length, logits, &s));
  } else if (is_task)
    TRY(eval_task(&m, &trained.task, (uint64_t)v->common.seed, v->count ? v->count : TASK_SEQUENCES, session, logits, &s));
  else {
    const reading text = {v->data ? v->data : trained.data, v->data ? 0 : TRAINING_SHARE, length, trained.mask, (uint64_t)v->common.seed};
    TRY(eval_text(&m, &text, session, logits, &s));
  }
  print(&m, v, &s, is_labels ? OF_LABELS : is_task ? OF_TASK : m.info.bidirectional ? OF_MASKED : OF_TEXT);
done:
  free(logits);
  heed_session_free(session);
  model_close(&m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, "MODEL", model, "a trained directory, or any model heed reads", .required = true),
    OPTION("data", 0, TEXT, "FILE", data,
           "a text, or labelled texts, all of it (default: the held-out part of what the model was trained on)"),
    OPTION("context", 0, WHOLE, "N", context, "tokens of a window (default: the model's positions; more where those are not learned)",
           .low = 1, .high = 1e9),
    OPTION("targets", 0, TEXT, "FILE", targets, "who translates: the targets, a line each, where --data has sources alone"),
    OPTION("count", 'n', WHOLE, "N", count, "sequences of a task (default 2000); pairs of a file, at most", .low = 1, .high = 1e9),
    SEARCH_OPTIONS(search),
    {0},
};

const command command_eval = {
    .name = "eval",
    .summary = "measure loss, perplexity, bits a character, or exact answers",
    .about =
        "Cuts a text into windows of the model's context, or of --context, without overlap, and prints the mean loss of a token in nats, "
        "the "
        "perplexity and the bits a character. A model trained on a task is asked sequences that training never showed: the exact "
        "match is the share that it "
        "gets right to the letter. An encoder is asked for masked tokens, the same for the same --seed: loss and perplexity are "
        "theirs. One that was trained on labels prints how many it gets right, of the texts or of the words. One that translates is "
        "asked for pairs that training has not seen: it prints the loss of the right targets, the share that it writes to the token, and "
        "BLEU and chrF as sacreBLEU has them, with their signatures.",
    .examples = "  heed eval nano\n  heed eval dates --beam 4\n  heed eval SmolLM2.gguf --data text.txt --context 512 --json\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.search = {SEARCH_DEFAULTS}},
    .run = run,
};
