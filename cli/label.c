/* label.c: `heed label`: what an encoder that was trained on labels says of texts: the class of each line, or the label of each word in it. What it prints has the form that `heed train
 * encoder` reads. */
#define _GNU_SOURCE
#include "json.h"
#include "labelled.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  const char *model, *text;
} values;

typedef struct labelling {
  const values *v;
  loaded m;
  const char *source; /* of the lines, for messages */
  label_rows rows;    /* of one line */
  heed_session *session;
  float *logits; /* [context, outputs], of one row */
  int64_t line;
  unit *words;
  int32_t *marks; /* [room] words of a line by number */
  int64_t *best;  /* [room] the label of each word; −1: it has none */
  float *scores;  /* [room, outputs] */
  int64_t room, count;
  int64_t cut;
} labelling;

/* ---- one line ---------------------------------------------------------------------------------------------------------------------- */

static void make_room(labelling *l, int64_t words) {
  if (words <= l->room) return;
  l->room = words > 2 * l->room ? words : 2 * l->room;
  free(l->words);
  free(l->marks);
  free(l->best);
  free(l->scores);
  l->words = allocate("words", l->room, sizeof *l->words);
  l->marks = allocate("words", l->room, sizeof *l->marks);
  l->best = allocate("labels", l->room, sizeof *l->best);
  l->scores = allocate("logits", l->room * l->m.info.outputs, sizeof *l->scores);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Words between white space; of a class the whole line is one. */
static void split(labelling *l, heed_text line) {
  const bool is_class = l->m.info.head == HEED_HEAD_CLASS;
  make_room(l, is_class ? 1 : (int64_t)line.length / 2 + 1);
  l->count = 0;
  for (size_t at = 0; at < line.length;) {
    size_t end = at;
    while (end < line.length && (is_class || !is_space(line.data[end]))) end++;
    if (end > at) l->words[l->count++] = (unit){.text = {line.data + at, end - at}, .line = l->line};
    at = end > at ? end : at + 1;
  }
  for (int64_t i = 0; i < l->count; i++) {
    l->marks[i] = (int32_t)i;
    l->best[i] = -1;
  }
}

/* What the model says of each marked place of a row. */
static int run_row(labelling *l, int64_t row) {
  const int64_t begin = l->rows.begin[row], count = l->rows.begin[row + 1] - begin, outputs = l->m.info.outputs;
  const int64_t answers = l->m.info.head == HEED_HEAD_CLASS ? 1 : count;
  int code;
  if (count == 0) return EXIT_OK;
  TRY(check(l->m.context, heed_session_truncate(l->session, 0)));
  TRY(check(l->m.context, heed_session_run(l->session, l->rows.ids + begin, count, l->logits, answers, NULL)));
  for (int64_t i = 0; i < answers; i++) {
    const int32_t word = l->rows.marks[begin + i];
    if (word < 0) continue;
    memcpy(l->scores + word * outputs, l->logits + i * outputs, (size_t)outputs * sizeof *l->scores);
    l->best[word] = likeliest(l->logits + i * outputs, outputs);
  }
done:
  return code;
}

static const char *label_of(const labelling *l, int64_t word) {
  return l->best[word] < 0 ? "-" : heed_model_label(l->m.model, l->best[word]);
}

static void print_scores(json *j, const labelling *l, int64_t word) {
  const float *logits = l->scores + word * l->m.info.outputs;
  double sum = 0, top = (double)logits[likeliest(logits, l->m.info.outputs)];
  for (int64_t i = 0; i < l->m.info.outputs; i++) sum += exp((double)logits[i] - top);
  json_text(j, "label", label_of(l, word));
  json_open(j, "scores", '[');
  for (int64_t i = 0; i < l->m.info.outputs; i++) {
    json_open(j, NULL, '{');
    json_text(j, "label", heed_model_label(l->m.model, i));
    json_number(j, "logit", (double)logits[i]);
    json_number(j, "p", exp((double)logits[i] - top) / sum);
    json_close(j);
  }
  json_close(j);
}

static void print_json(const labelling *l, heed_text line) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_bytes(&j, "text", line);
  if (l->m.info.head == HEED_HEAD_CLASS) print_scores(&j, l, 0);
  else {
    json_open(&j, "words", '[');
    for (int64_t i = 0; i < l->count; i++) {
      json_open(&j, NULL, '{');
      json_bytes(&j, "word", l->words[i].text);
      if (l->best[i] >= 0) print_scores(&j, l, i);
      json_close(&j);
    }
    json_close(&j);
  }
  json_close(&j);
}

static void print_line(const labelling *l, heed_text line) {
  if (l->m.info.head == HEED_HEAD_CLASS) {
    out("%s\t", label_of(l, 0));
    out_bytes(line.data, line.length);
    out("\n");
    return;
  }
  for (int64_t i = 0; i < l->count; i++) {
    out_bytes(l->words[i].text.data, l->words[i].text.length);
    out("\t%s\n", label_of(l, i));
  }
  out("\n");
}

static int label_line(labelling *l, heed_text line) {
  int code;
  l->line++;
  if (line.length > 0 && line.data[line.length - 1] == '\r') line.length--;
  split(l, line);
  if (l->count == 0) return EXIT_OK;
  TRY(label_rows_open(l->m.context, l->m.tokenizer, l->source, l->m.info.head, l->m.info.context, &l->rows));
  TRY(label_rows_add(&l->rows, l->words, l->count, l->marks));
  for (int64_t r = 0; r < l->rows.count; r++) TRY(run_row(l, r));
  l->cut += l->rows.cut;
  if (l->v->common.json) print_json(l, line);
  else print_line(l, line);
  code = out_flush();
done:
  label_rows_free(&l->rows);
  return code;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------------------- */

static int label_stream(labelling *l) {
  char *line = NULL;
  size_t room = 0;
  int code = EXIT_OK;
  for (ssize_t length; code == EXIT_OK && (length = getline(&line, &room, stdin)) > 0;) {
    if (interrupted()) code = EXIT_INTERRUPTED;
    else code = label_line(l, (heed_text){line, (size_t)length - (line[length - 1] == '\n')});
  }
  free(line);
  if (code == EXIT_OK && ferror(stdin)) code = error_of(EXIT_BAD_FILE, "standard input: cannot be read");
  return code == EXIT_OK && interrupted() ? EXIT_INTERRUPTED : code;
}

static int label_argument(labelling *l, const char *text) {
  int code = EXIT_OK;
  for (const char *at = text; code == EXIT_OK && *at;) {
    const size_t length = strcspn(at, "\n");
    code = label_line(l, (heed_text){at, length});
    at += length + (at[length] == '\n');
  }
  return code;
}

static int run(const void *pointer) {
  const values *v = pointer;
  labelling l = {.v = v};
  const bool stream = !v->text || !strcmp(v->text, "-");
  int code;
  TRY(model_open(&v->common, v->model, &l.m));
  if (l.m.info.head == HEED_HEAD_TOKENS)
    TRY(error_of(EXIT_UNSUPPORTED, "%s: was not trained on labels (see `heed train encoder --objective`)", l.m.info.name));
  if (!l.m.tokenizer) TRY(usage_error("%s: has no tokenizer, so it cannot read a text", l.m.info.name));
  const heed_session_options options = {.size = sizeof options};
  TRY(check(l.m.context, heed_session_new(l.m.context, l.m.model, &options, &l.session)));
  l.logits = allocate("logits", (l.m.info.head == HEED_HEAD_CLASS ? 1 : l.m.info.context) * l.m.info.outputs, sizeof *l.logits);
  l.source = stream ? "standard input" : "TEXT";
  progress_show(false);
  TRY(stream ? label_stream(&l) : label_argument(&l, v->text));
  if (l.cut > 0)
    note("%lld of %lld texts have more tokens than the model's %lld positions: %s", (long long)l.cut, (long long)l.line,
         (long long)l.m.info.context,
         l.m.info.head == HEED_HEAD_CLASS ? "their classes are those of their beginnings" : "they were read in parts");
done:
  free(l.words);
  free(l.marks);
  free(l.best);
  free(l.scores);
  free(l.logits);
  heed_session_free(l.session);
  model_close(&l.m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, "MODEL", model, "an encoder trained on labels: a Hugging Face directory", .required = true),
    OPTION("TEXT", 0, TEXT, NULL, text, "what to label; -, or nothing, is standard input, a text a line"),
    {0},
};

const command command_label = {
    .name = "label",
    .summary = "label texts or their words with an encoder that was taught labels",
    .about = "Reads texts, a line each. A model for classes prints LABEL, tab, text; a model for labels prints WORD, tab, LABEL for each "
             "word (what stands between white space) and an empty line after each text: the forms that `heed train encoder` reads. A word "
             "that the model has no token for gets \"-\". With --json an object a line, with all logits and probabilities.",
    .examples = "  heed label reviews \"what a film\"\n  heed label tagger < sentences.txt > sentences.conll\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON,
    .values_size = sizeof(values),
    .run = run,
};
