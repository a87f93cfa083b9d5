/* show.c: `heed show`: draws what a model attends to while it reads a text: in the terminal, or as files. */
#include "arrays.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  prompt_values prompt;
  const char *model, *target, *layers, *heads, *token, *format, *background;
  text_list outputs;
  int64_t width;
} values;

/* The head that is drawn, and the row that is spelt out (−1: none). */
typedef struct focus {
  int64_t layer, head, query; /* layer and head count within the record */
} focus;

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

static heed_text trimmed(heed_text text) {
  while (text.length && (*text.data == ' ' || *text.data == '\n' || *text.data == '\t')) text = (heed_text){text.data + 1, text.length - 1};
  return text;
}

/* --token: a text that a token spells, spaces in front aside, or a position (negative: from the end). A text that comes several times means the last, which has seen most. */
static int find_token(const recording *r, const char *wanted, int64_t *query) {
  const heed_record *record = &r->record;
  heed_text want = trimmed((heed_text){wanted, strlen(wanted)});
  int64_t found = -1, times = 0;
  for (int64_t i = 0; i < record->queries; i++) {
    heed_text token = trimmed(record->query_tokens[i]);
    if (token.length != want.length || memcmp(token.data, want.data, want.length) != 0) continue;
    found = i;
    times++;
  }
  if (times > 1) note("--token: %s stands at %lld places; this is the last, at position %lld", wanted, (long long)times, (long long)found);
  if (times == 0) {
    if (!parse_whole(wanted, &found))
      return usage_error("--token: no token is %s (`heed tokenize` lists the tokens; a position from 0 to %lld will do too)", wanted,
                         (long long)record->queries - 1);
    if (found < -record->queries || found >= record->queries)
      return usage_error("--token: no position %lld (allowed 0 to %lld, or -%lld to -1 from the end)", (long long)found,
                         (long long)record->queries - 1, (long long)record->queries);
    if (found < 0) found += record->queries;
  }
  *query = found;
  return EXIT_OK;
}

static int choose(const loaded *m, const values *v, recording *r, focus *f) {
  int code;
  *f = (focus){.query = -1};
  TRY(check(m->context, heed_record_pick(&r->record, &f->layer, &f->head)));
  if (v->token) TRY(find_token(r, v->token, &f->query));
  r->record.has_query = f->query >= 0;
  r->record.query = f->query;
done:
  return code;
}

/* ---- drawing ------------------------------------------------------------------------------------------------------------- */

typedef heed_status (*head_writer)(heed_context *, const heed_record *, int64_t layer, int64_t head, const heed_sink *);

static heed_status write_json(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink) {
  (void)layer;
  (void)head;
  return heed_record_json(context, record, sink);
}

static const struct {
  const char *name;
  head_writer write; /* NULL: the numbers themselves, as an array */
} formats[] = {
    {"html", heed_record_html}, {"png", heed_record_png}, {"svg", heed_record_svg},
    {"json", write_json},       {"csv", heed_record_csv}, {"npy", NULL},
};
#define FORMATS "html|png|svg|json|csv|npy"
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

/* The place in formats[] of an output, or −1 with a message. */
static int format_of(const values *v, const char *path) {
  bool is_stdout = strcmp(path, "-") == 0;
  const char *name = is_stdout ? v->format : path_suffix(path) + (path_suffix(path)[0] == '.');
  for (int i = 0; i < FORMAT_COUNT; i++)
    if (strcmp(formats[i].name, name) == 0) return i;
  usage_error("%s: unknown format (got \"%s\", allowed .html .png .svg .json .csv .npy)", path, path_suffix(path));
  return -1;
}

/* [layers, heads, queries, keys] */
static int write_array(heed_context *context, const heed_record *record, const char *path) {
  int64_t dim[4] = {record->layers, record->heads, record->queries, record->keys};
  heed_view view = heed_view_of((void *)record->weights, HEED_F32, 4, dim);
  return array_save(context, path, &view);
}

static int write_output(const loaded *m, const values *v, const recording *r, const focus *f, const char *path) {
  head_writer write = formats[format_of(v, path)].write;
  output_file file;
  if (!write) return write_array(m->context, &r->record, path);
  int code = output_open(path, &file);
  if (code != EXIT_OK) return code;
  heed_sink sink = output_sink(&file);
  heed_status status = write(m->context, &r->record, f->layer, f->head, &sink);
  if (status == HEED_E_WRITE) return output_close(&file, EXIT_OK); // it knows why
  return output_close(&file, check(m->context, status));
}

static int draw(const loaded *m, const values *v, const recording *r, const focus *f) {
  heed_terminal_options options = {
      .size = sizeof options,
      .width = (int)(v->width ? v->width : console_width()),
      .color = console_color(),
      .dark = v->background[0] == 'd' || (v->background[0] == 'a' && console_dark()),
      .no_overview = r->record.layers * r->record.heads == 1,
      .layer = f->layer,
      .head = f->head,
      .query = f->query,
  };
  heed_status status = heed_record_terminal(m->context, &r->record, &options, &out_sink);
  return status == HEED_E_WRITE ? out_flush() : check(m->context, status);
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

/* The pages carry a hash of the model; reading a large model again costs a moment, so only they do. */
static bool wants_hash(const values *v) {
  for (int i = 0; i < v->outputs.count; i++) {
    const char *name = formats[format_of(v, v->outputs.items[i])].name;
    if (strcmp(name, "html") == 0 || strcmp(name, "json") == 0) return true;
  }
  return false;
}

static int write_all(const loaded *m, const values *v, recording *r) {
  char hash[HASH_MAX];
  focus f;
  int code;
  TRY(choose(m, v, r, &f));
  if (wants_hash(v)) {
    TRY(hash_model(v->model, hash));
    r->record.file_hash = (heed_text){hash, strlen(hash)};
  }
  const char *command = command_line();
  r->record.command = (heed_text){command, strlen(command)};
  for (int i = 0; i < v->outputs.count; i++) TRY(write_output(m, v, r, &f, v->outputs.items[i]));
  if (v->outputs.count == 0) TRY(draw(m, v, r, &f));
done:
  return code;
}

/* What a model reads, or where it has a source, what it writes from that. */
static int record(const values *v, const loaded *m, recording *r) {
  prompt p = {0};
  translator t = {0};
  heed_text source = {0};
  int code;
  if (!model_translates(m)) {
    if (v->target) TRY(usage_error("TARGET: %s reads one text (a target goes with models that translate)", m->info.name));
    TRY(prompt_read(m->context, v->model, m->tokenizer, m->info.vocabulary, &v->prompt, &p));
    TRY(prompt_check(m, &p, true));
    TRY(record_run(m, &p, v->layers, v->heads, r));
  } else {
    if (v->prompt.ids || v->prompt.special || v->prompt.plain)
      TRY(usage_error("--ids, --special, --plain: %s reads a source as it was taught to, from a text", m->info.name));
    TRY(translator_of(m, v->model, &t));
    TRY(read_text(v->prompt.text, &source));
    TRY(record_cross(&t, source.data, v->target, v->layers, v->heads, r));
  }
done:
  free((char *)source.data);
  heed_tokenizer_free(t.target);
  prompt_free(&p);
  return code;
}

static int run(const void *pointer) {
  values v = *(const values *)pointer;
  loaded m = {0};
  recording r = {0};
  int code;
  if (!v.prompt.text && !v.prompt.ids) return usage_error("show: TEXT is missing: what the model reads (or --ids; see `heed show --help`)");
  if (v.common.json && v.outputs.count == LIST_MAX) return usage_error("--json: too many outputs");
  if (v.common.json) v.outputs.items[v.outputs.count++] = "-";
  for (int i = 0; i < v.outputs.count; i++)
    if (format_of(&v, v.outputs.items[i]) < 0) return EXIT_USAGE;
  TRY(model_open_any(&v.common, v.model, &m));
  TRY(record(&v, &m, &r));
  TRY(write_all(&m, &v, &r));
done:
  record_free(&r);
  model_close(&m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file or a Hugging Face directory", .required = true),
    OPTION("TEXT", 0, TEXT, NULL, prompt.text, "what the model reads; - is standard input"),
    OPTION("TARGET", 0, TEXT, NULL, target, "of a model that translates: what it writes (default: its own translation)"),
    OPTION("layers", 0, TEXT, "LIST", layers, "layers to look at, such as 0,3-5,-1 (default all; -1 is the last)"),
    OPTION("heads", 0, TEXT, "LIST", heads, "heads to look at, the same way"),
    OPTION("token", 0, TEXT, "WHICH", token, "spell out what this token looks at: its text or its position"),
    OPTION("output", 'o', TEXTS, "FILE", outputs,
           "write .html .png .svg .json .csv or .npy instead of drawing; may be repeated; - is standard output"),
    OPTION("format", 0, CHOICE, "FORMAT", format, "what -o - writes (default json)", .choices = FORMATS),
    PROMPT_OPTIONS,
    OPTION("width", 0, WHOLE, "N", width, "columns to draw in (default: the terminal's)", .low = 20, .high = 10000),
    OPTION("background", 0, CHOICE, "WHICH", background, "what the terminal has", .choices = "auto|dark|light"),
    {0},
};

const command command_show = {
    .name = "show",
    .summary = "draw what a model attends to",
    .about = "Reads a text with a model and draws which tokens look at which: all heads at a glance, and one head in full. "
             "Without a choice that is the head that looks least at itself and at the first token. Page, JSON and array hold "
             "all chosen heads; PNG, SVG and CSV the one head. Of a model with an encoder and a decoder TEXT is the source, and what "
             "is drawn is which of its tokens each token of the target was written from; without a choice, by the head that goes "
             "through the source best.",
    .examples = "  heed show model.gguf \"The animal didn't cross the street because it was too tired.\" --token it\n"
                "  heed show model.gguf \"The cat sat.\" --layers 0,3-5,-1 --heads all -o heads.html -o heads.npy\n"
                "  heed show model.gguf \"The cat sat.\" --layers 13 --heads 4 -o head.svg\n"
                "  heed show en-es \"the old cat\" -o alignment.html\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON,
    .values_size = sizeof(values),
    .defaults = &(const values){.format = "json", .background = "auto"},
    .run = run,
};
