/* translate.c: `heed translate`: sentences of standard input into what the model makes of them, line for line. */
#define _GNU_SOURCE
#include "json.h"
#include "output.h"
#include "translator.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
  common_values common;
  const char *model, *text;
  search_values search;
  int64_t best;
  bool scores, sample;
  double temperature, top_p;
  int64_t top_k;
} values;

/* A line that was read. */
typedef struct line {
  heed_text text;
  int64_t source; /* its number among those to be translated; −1: there is nothing to translate */
  char *reason;   /* why it cannot be; NULL: it can, or it is empty */
} line;

typedef struct run_state {
  const values *v;
  translator t;
  heed_translate_options options;
  sequences sources;
  line *lines;
  int64_t count, room, first; /* lines under way; lines before them */
  json j;
  bool failed; /* a line was */
} run_state;

/* ---- reading ----------------------------------------------------------------------------------------------------------------------------- */

static int add_line(run_state *r, const char *data, size_t length) {
  if (length > 0 && data[length - 1] == '\n') length--;
  if (length > 0 && data[length - 1] == '\r') length--;
  char *copy = allocate("a line", (int64_t)length + 1, 1), reason[REASON_LENGTH];
  memcpy(copy, data, length);
  r->lines = grown("lines", r->lines, &r->room, r->count + 1, sizeof *r->lines);
  line *l = &r->lines[r->count++];
  *l = (line){.text = {copy, length}, .source = -1};
  if (strspn(copy, " ") == length) return EXIT_OK;
  int code = translator_read(&r->t, l->text, &r->sources, reason);
  if (code == EXIT_OK) l->source = r->sources.count - 1;
  if (code != EXIT_BAD_FILE || !reason[0]) return code;
  l->reason = strdup(reason);
  return l->reason ? EXIT_OK : error_of(EXIT_NO_MEMORY, "out of memory: a line");
}

static void forget_lines(run_state *r) {
  for (int64_t i = 0; i < r->count; i++) {
    free((char *)r->lines[i].text.data);
    free(r->lines[i].reason);
  }
  r->first += r->count;
  r->count = 0;
  sequences_clear(&r->sources);
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------------------- */

/* One line, whatever the model has written. */
static void print_text(heed_text text) {
  for (size_t i = 0; i < text.length; i++) {
    const char c = text.data[i] == '\n' || text.data[i] == '\r' || (text.data[i] == '\t') ? ' ' : text.data[i];
    out_bytes(&c, 1);
  }
}

/* With --n-best the number of the line is in front, so that one can tell whose a result is. */
static int print_result(run_state *r, int64_t number, const heed_translation *t) {
  const values *v = r->v;
  heed_text text = {0};
  int code = t ? translator_text(&r->t, t->ids, t->count, &text) : EXIT_OK;
  if (code != EXIT_OK) return code;
  if (v->best > 1) out("%lld\t", (long long)number);
  if (v->scores && t) out("%.6f\t", t->score);
  else if (v->scores) out("\t");
  print_text(text);
  out("\n");
  free((char *)text.data);
  return EXIT_OK;
}

static int print_json(run_state *r, const line *l, const heed_translation *t, int64_t count) {
  json *j = &r->j;
  int code = EXIT_OK;
  json_open(j, NULL, '{');
  json_bytes(j, "source", l->text);
  if (l->reason) json_text(j, "error", l->reason);
  json_open(j, "translations", '[');
  for (int64_t i = 0; i < count && code == EXIT_OK; i++) {
    heed_text text = {0};
    code = translator_text(&r->t, t[i].ids, t[i].count, &text);
    if (code != EXIT_OK) break;
    json_open(j, NULL, '{');
    json_bytes(j, "text", text);
    json_number(j, "score", t[i].score);
    json_number(j, "log_probability", t[i].log_probability);
    json_whole(j, "tokens", t[i].count);
    json_bool(j, "ended", t[i].ended);
    json_close(j);
    free((char *)text.data);
  }
  json_close(j);
  json_close(j);
  return code;
}

static int print_line(run_state *r, const heed_translations *all, int64_t i) {
  const line *l = &r->lines[i];
  const int64_t number = r->first + i + 1;
  int64_t count = 0;
  const heed_translation *t = l->source >= 0 ? heed_translations_of(all, l->source, &count) : NULL;
  int code = EXIT_OK;
  if (l->reason) {
    r->failed = true;
    if (r->v->text) error_of(EXIT_BAD_FILE, "TEXT: %s", l->reason);
    else error_of(EXIT_BAD_FILE, "standard input: line %lld: %s", (long long)number, l->reason);
  }
  if (r->v->common.json) return print_json(r, l, t, count);
  if (count == 0) return print_result(r, number, NULL);
  for (int64_t k = 0; k < count && code == EXIT_OK; k++) code = print_result(r, number, &t[k]);
  return code;
}

/* Translates the lines under way and prints them. */
static int translate_lines(run_state *r) {
  heed_translations *all = NULL;
  const heed_sources sources = sequences_view(&r->sources);
  int code = EXIT_OK;
  int64_t *numbers = allocate("numbers of lines", r->count, sizeof *numbers);
  for (int64_t i = 0; i < r->count; i++)
    if (r->lines[i].source >= 0) numbers[r->lines[i].source] = r->first + i;
  r->options.numbers = numbers;
  if (sources.count > 0) TRY(check(r->t.m.context, heed_translate(r->t.m.context, r->t.m.model, &sources, &r->options, &all)));
  for (int64_t i = 0; i < r->count && code == EXIT_OK; i++) code = print_line(r, all, i);
  if (code == EXIT_OK) code = out_flush();
  forget_lines(r);
done:
  free(numbers);
  heed_translations_free(all);
  return code;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------------------- */

enum { BATCH = 32, BATCHES_AT_ONCE = 8 };

/* Lines at once: of several batches, so that those of a batch are alike in length. Who sits at a terminal, or asks for one at a time, gets each line as it comes. */
static int64_t lines_at_once(const values *v) {
  if (isatty(STDIN_FILENO) || v->search.batch == 1) return 1;
  return BATCHES_AT_ONCE * (v->search.batch ? v->search.batch : BATCH);
}

static int translate_stream(run_state *r) {
  const int64_t most = lines_at_once(r->v);
  char *data = NULL;
  size_t room = 0;
  ssize_t length;
  int code = EXIT_OK;
  errno = 0;
  while (code == EXIT_OK && (length = getline(&data, &room, stdin)) >= 0) {
    code = add_line(r, data, (size_t)length);
    if (code == EXIT_OK && r->count == most) code = translate_lines(r);
  }
  if (code == EXIT_OK && interrupted()) code = EXIT_INTERRUPTED;
  if (code == EXIT_OK && ferror(stdin)) code = error_of(EXIT_BAD_FILE, "standard input: cannot be read (%s)", strerror(errno));
  if (code == EXIT_OK && r->count > 0) code = translate_lines(r);
  free(data);
  return code;
}

static int translate_text(run_state *r) {
  int code = add_line(r, r->v->text, strlen(r->v->text));
  return code == EXIT_OK ? translate_lines(r) : code;
}

static int read_options(run_state *r) {
  const values *v = r->v;
  int code = search_options(&r->t, &v->search, &r->options);
  if (code != EXIT_OK) return code;
  if (!v->sample && (!isnan(v->temperature) || v->top_k || v->top_p > 0))
    return usage_error("--temp, --top-k and --top-p go with --sample");
  if (v->sample && (v->search.beam > 1 || v->search.early))
    return usage_error("--sample: draws, so --%s has nothing to search for", v->search.early ? "early" : "beam");
  const int64_t width = v->search.beam ? v->search.beam : 1;
  if (!v->sample && v->best > width)
    return usage_error("--n-best: got %lld, allowed up to --beam (%lld)", (long long)v->best, (long long)width);
  r->options.best = v->best;
  r->options.sample = v->sample;
  r->options.sampling = (heed_sampling){
      .temperature = isnan(v->temperature) ? 1 : v->temperature, .top_k = v->top_k, .top_p = v->top_p, .seed = (uint64_t)v->common.seed};
  return EXIT_OK;
}

static int run(const void *pointer) {
  run_state r = {.v = pointer};
  int code;
  TRY(translator_open(&r.v->common, r.v->model, &r.t));
  TRY(read_options(&r));
  if (r.v->common.json) json_open(&r.j, NULL, '[');
  TRY(r.v->text ? translate_text(&r) : translate_stream(&r));
  if (r.v->common.json) json_close(&r.j);
  if (r.failed) code = EXIT_BAD_FILE;
done:
  forget_lines(&r);
  free(r.lines);
  sequences_free(&r.sources);
  translator_close(&r.t);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, "MODEL", model, "a model with an encoder and a decoder", .required = true),
    OPTION("TEXT", 0, TEXT, NULL, text, "one sentence, instead of standard input"),
    SEARCH_OPTIONS(search),
    OPTION("n-best", 0, WHOLE, "N", best, "results of each line, the best first, with the number of the line in front (default 1)",
           .low = 1, .high = 4096),
    OPTION("scores", 0, FLAG, NULL, scores, "the score in front of each result"),
    OPTION("sample", 0, FLAG, NULL, sample, "draw each token instead of searching"),
    OPTION("temp", 0, NUMBER, "T", temperature, "temperature of --sample (default 1)", .low = 0, .high = 100),
    OPTION("top-k", 0, WHOLE, "K", top_k, "sample among the K most likely (default 0: all)", .low = 0, .high = 1e9),
    OPTION("top-p", 0, NUMBER, "P", top_p, "sample among the likeliest that hold P of the probability (default off)", .low = 0, .high = 1),
    {0},
};

const command command_translate = {
    .name = "translate",
    .summary = "translate sentences, line for line",
    .about =
        "Reads sentences from standard input, a line each, and prints what the model makes of them, a line each. A line that cannot be "
        "read (a character that training has not seen, more tokens than the model has positions) becomes an empty one and is named on "
        "standard error; the rest goes on, and the exit code says so at the end. --n-best prints NUMBER, tab, result; --scores puts the "
        "score, the log-probability divided by the length, in front of the result. Lines are translated many at once; with --batch 1, "
        "or at a terminal, each as it comes. What a line gives does not depend on the others.",
    .examples = "  heed translate dates \"jeudi 4 mars 2021\"\n  heed translate en-es --beam 5 --n-best 3 --scores < english.txt\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.search = {SEARCH_DEFAULTS}, .best = 1, .temperature = NAN},
    .run = run,
};
