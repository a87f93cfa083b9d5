/* generate.c: `heed generate`: continues a text, token by token, as it comes. */
#include "json.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
  common_values common;
  prompt_values prompt;
  const char *model;
  int64_t count, top_k, stream_window, sinks;
  double temperature, top_p, min_p, repeat_penalty;
  bool chat, ignore_end, stats;
} values;

/* What has come so far. Streaming prints pieces at once; JSON keeps them. */
typedef struct stream {
  bool keeps, has_text, on_terminal;
  int32_t *ids;
  int64_t count;
  char *text;
  size_t length;
  int64_t capacity;
  int code; /* of standard output */
} stream;

static void keep_text(stream *s, heed_text text) {
  s->text = grown("text", s->text, &s->capacity, (int64_t)(s->length + text.length), 1);
  if (text.length) memcpy(s->text + s->length, text.data, text.length);
  s->length += text.length;
}

static bool emit(void *user, int32_t id, heed_text text) {
  stream *s = user;
  if (s->on_terminal && s->count == 0) progress_show(false); // the bar and the text would write over each other
  if (s->keeps) {
    s->ids[s->count] = id;
    keep_text(s, text);
  } else if (s->has_text) {
    out_bytes(text.data, text.length);
  } else {
    out("%s%d", s->count ? "," : "", id);
  }
  s->count++;
  s->code = s->keeps ? EXIT_OK : out_flush();
  return s->code == EXIT_OK;
}

static double rate(int64_t count, double seconds) { return seconds > 0 ? (double)count / seconds : 0; }

static void print_json(const loaded *m, const values *v, const prompt *p, const stream *s, const heed_generate_report *report) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_text(&j, "model", m->info.name);
  json_open(&j, "prompt_ids", '[');
  for (int64_t i = 0; i < p->count; i++) json_whole(&j, NULL, p->ids[i]);
  json_close(&j);
  json_open(&j, "ids", '[');
  for (int64_t i = 0; i < s->count; i++) json_whole(&j, NULL, s->ids[i]);
  json_close(&j);
  if (s->has_text) json_bytes(&j, "text", (heed_text){s->text, s->length});
  json_bool(&j, "ended", report->ended);
  json_whole(&j, "seed", v->common.seed);
  json_number(&j, "load_s", m->seconds);
  json_number(&j, "prefill_tps", rate(report->prompt_tokens, report->prompt_seconds));
  json_number(&j, "decode_tps", rate(report->new_tokens, report->new_seconds));
  json_close(&j);
}

/* --chat: the prompt as one message in the model's own form. */
static int read_message(const loaded *m, const values *v, prompt *p) {
  const char *form = "";
  heed_text text = {0};
  int code;
  if (!v->prompt.text) return usage_error("--chat: needs a message (give it with -p)");
  if (v->prompt.ids) return usage_error("--chat: takes a message with -p, not --ids");
  TRY(read_text(v->prompt.text, &text));
  TRY(check(m->context, heed_chat_encode(m->context, m->model, text, &form, &p->ids, &p->count)));
  p->encoded_by = m->context;
  note("chat form %s", form);
done:
  free((char *)text.data);
  return code;
}

static int read_prompt(const loaded *m, const values *v, prompt *p) {
  int code;
  if (v->chat) {
    TRY(read_message(m, v, p));
  } else {
    TRY(prompt_read(m->context, v->model, m->tokenizer, m->info.vocabulary, &v->prompt, p));
    TRY(prompt_begin(m, p));
  }
  TRY(prompt_check(m, p, v->stream_window == 0));
done:
  return code;
}

static int generate(const loaded *m, const values *v, const prompt *p, stream *s) {
  heed_session *session = NULL;
  heed_session_options session_options = {.size = sizeof session_options, .stream_window = v->stream_window};
  heed_generate_report report = {.size = sizeof report};
  heed_generate_options options = {
      .size = sizeof options,
      .count = v->count,
      .sampling = {.size = sizeof options.sampling,
                   .temperature = v->temperature,
                   .top_k = v->top_k,
                   .top_p = v->top_p,
                   .min_p = v->min_p,
                   .repetition_penalty = v->repeat_penalty,
                   .seed = (uint64_t)v->common.seed},
      .ignore_end = v->ignore_end,
      .emit = emit,
      .user = s,
  };
  if (v->stream_window) session_options.sinks = v->sinks >= 0 ? v->sinks : v->stream_window < 4 ? v->stream_window : 4;
  int64_t room = v->stream_window ? options.count : m->info.context - p->count;
  if (room < options.count) {
    options.count = room;
    note("stops after %lld tokens, where the context of %lld positions is full", (long long)room, (long long)m->info.context);
  }
  int code;
  TRY(check(m->context, heed_session_new(m->context, m->model, &session_options, &session)));
  s->ids = allocate("token ids", options.count, sizeof *s->ids);
  s->on_terminal = !s->keeps && isatty(STDOUT_FILENO);
  heed_status status = options.count > 0 ? heed_generate(session, p->ids, p->count, &options, &report) : HEED_OK;
  if (!s->keeps) out("\n");
  if (s->code == EXIT_OK) s->code = out_flush();
  TRY(s->code);
  TRY(check(m->context, status));
  if (s->keeps) print_json(m, v, p, s, &report);
  if (v->stats)
    note("%lld tokens read at %.1f/s, %lld written at %.1f/s, loaded in %.2f s", (long long)report.prompt_tokens,
         rate(report.prompt_tokens, report.prompt_seconds), (long long)report.new_tokens, rate(report.new_tokens, report.new_seconds),
         m->seconds);
done:
  heed_session_free(session);
  return code;
}

static int run(const void *pointer) {
  const values *v = pointer;
  loaded m = {0};
  prompt p = {0};
  stream s = {.keeps = v->common.json};
  int code;
  if (v->sinks >= 0 && !v->stream_window) return usage_error("--sinks: needs --stream-window");
  if (v->sinks > v->stream_window)
    return usage_error("--sinks: more than the window (got %lld, allowed 0 to %lld)", (long long)v->sinks, (long long)v->stream_window);
  TRY(model_open(&v->common, v->model, &m));
  TRY(model_generates(&m));
  s.has_text = m.tokenizer != NULL;
  TRY(read_prompt(&m, v, &p));
  TRY(generate(&m, v, &p, &s));
done:
  free(s.ids);
  free(s.text);
  prompt_free(&p);
  model_close(&m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file or a Hugging Face directory", .required = true),
    OPTION("prompt", 'p', TEXT, "TEXT", prompt.text, "the text to continue; - is standard input; without it the model begins by itself"),
    OPTION("n", 'n', WHOLE, "N", count, "new tokens at most (default 128)", .low = 0, .high = 1e9),
    OPTION("chat", 0, FLAG, NULL, chat, "the prompt is a message to a chat model: wrap it in the model's form"),
    PROMPT_OPTIONS,
    OPTION("temp", 0, NUMBER, "T", temperature, "temperature of sampling (default 0: always the most likely token)", .low = 0, .high = 100),
    OPTION("top-k", 0, WHOLE, "K", top_k, "sample among the K most likely (default 0: all)", .low = 0, .high = 1e9),
    OPTION("top-p", 0, NUMBER, "P", top_p, "sample among the likeliest that hold P of the probability (default off)", .low = 0, .high = 1),
    OPTION("min-p", 0, NUMBER, "P", min_p, "leave out what is less likely than P times the likeliest (default off)", .low = 0, .high = 1),
    OPTION("repeat-penalty", 0, NUMBER, "R", repeat_penalty, "make recent tokens less likely by this factor (default 1: off)", .low = 0,
           .high = 100),
    OPTION("stream-window", 0, WHOLE, "W", stream_window,
           "write on without end: keep the last W tokens, and the first few; the rest is forgotten (default 0: stop where the context is "
           "full)",
           .low = 0, .high = 1e9),
    OPTION("sinks", 0, WHOLE, "S", sinks, "with --stream-window: how many first tokens to keep (default 4)", .low = 0, .high = 1e9),
    OPTION("ignore-end", 0, FLAG, NULL, ignore_end, "go on after the model's end token"),
    OPTION("stats", 0, FLAG, NULL, stats, "say how fast it was, on standard error"),
    {0},
};

const command command_generate = {
    .name = "generate",
    .summary = "continue a text",
    .about = "Continues a text with a model and prints the new text as it comes. Without --temp the result is the same every "
             "time; with it, the same for the same --seed.",
    .examples = "  heed generate model.gguf -p \"Once upon a time\" -n 200\n"
                "  heed generate model.gguf -p \"Once upon a time\" -n 100000 --stream-window 1000 --ignore-end\n"
                "  heed generate model.gguf --chat -p \"Why is the sky blue?\" --temp 0.7 --top-p 0.9\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.count = 128, .sinks = -1},
    .run = run,
};
