/* logits.c: `heed logits`: what a model expects at every position of a text: the next token, or, of an encoder, the one that stands there. */
#include "arrays.h"
#include "json.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  prompt_values prompt;
  const char *model, *output;
  int64_t top;
} values;

/* Positions whose logits are held at once where nobody asks for all of them. */
enum { ROWS = 64 };

typedef struct candidate {
  int32_t id;
  double logit, probability;
} candidate;

/* The `top` largest of the row, largest first, the lower id among equals, with their share of the softmax. */
static void rank(const float *logits, int64_t vocabulary, int64_t top, candidate *best) {
  int64_t held = 0;
  for (int64_t id = 0; id < vocabulary; id++) {
    if (held == top && !(logits[id] > best[top - 1].logit)) continue;
    int64_t at = held < top ? held++ : top - 1;
    for (; at > 0 && best[at - 1].logit < logits[id]; at--) best[at] = best[at - 1];
    best[at] = (candidate){.id = (int32_t)id, .logit = logits[id]};
  }
  double sum = 0;
  for (int64_t id = 0; id < vocabulary; id++) sum += exp(logits[id] - best[0].logit);
  for (int64_t i = 0; i < top; i++) best[i].probability = exp(best[i].logit - best[0].logit) / sum;
}

static void print_row(const heed_tokenizer *tokenizer, int64_t position, int32_t id, int64_t top, const candidate *best) {
  enum { TOKEN_WIDTH = 14 };
  char text[VISIBLE_MAX], number[ID_TEXT_MAX];
  int columns = visible_token(token_text(tokenizer, id, number), text, sizeof text);
  out("%5lld  %s%*s →", (long long)position, text, columns < TOKEN_WIDTH ? TOKEN_WIDTH - columns : 0, "");
  for (int64_t i = 0; i < top; i++) {
    columns = visible_token(token_text(tokenizer, best[i].id, number), text, sizeof text);
    out("  %s %.3f%*s", text, best[i].probability, i + 1 < top && columns < TOKEN_WIDTH ? TOKEN_WIDTH - columns : 0, "");
  }
  out("\n");
}

static void print_json_row(json *j, const loaded *m, int64_t position, int32_t id, int64_t top, const candidate *best) {
  const heed_tokenizer *tokenizer = m->tokenizer;
  char number[ID_TEXT_MAX];
  json_open(j, NULL, '{');
  json_whole(j, "position", position);
  json_whole(j, "id", id);
  json_bytes(j, "token", token_text(tokenizer, id, number));
  json_open(j, m->info.bidirectional ? "here" : "next", '[');
  for (int64_t i = 0; i < top; i++) {
    json_open(j, NULL, '{');
    json_whole(j, "id", best[i].id);
    json_bytes(j, "token", token_text(tokenizer, best[i].id, number));
    json_number(j, "logit", best[i].logit);
    json_number(j, "p", best[i].probability);
    json_close(j);
  }
  json_close(j);
  json_close(j);
}

/* Runs the prompt a few rows at a time, which changes no bit (an encoder's at once), and prints each row. all is NULL or takes every logit. */
static int walk(const loaded *m, const values *v, const prompt *p, float *all) {
  int64_t vocabulary = m->info.vocabulary, top = v->top < vocabulary ? v->top : vocabulary;
  bool prints = !v->output || strcmp(v->output, "-") != 0;
  heed_session *session = NULL;
  heed_session_options options = {.size = sizeof options};
  const int64_t step = m->info.bidirectional ? p->count : ROWS;
  float *rows = all ? NULL : allocate("logits", step * vocabulary, sizeof *rows);
  candidate *best = allocate("candidates", top, sizeof *best);
  json j = {0};
  int code;
  TRY(check(m->context, heed_session_new(m->context, m->model, &options, &session)));
  if (v->common.json && prints) {
    json_open(&j, NULL, '{');
    json_text(&j, "model", m->info.name);
    json_open(&j, "positions", '[');
  }
  for (int64_t at = 0; at < p->count; at += step) {
    int64_t count = p->count - at < step ? p->count - at : step;
    float *logits = all ? all + at * vocabulary : rows;
    TRY(check(m->context, heed_session_run(session, p->ids + at, count, logits, count, NULL)));
    for (int64_t i = 0; i < count && prints; i++) {
      rank(logits + i * vocabulary, vocabulary, top, best);
      if (v->common.json) print_json_row(&j, m, at + i, p->ids[at + i], top, best);
      else print_row(m->tokenizer, at + i, p->ids[at + i], top, best);
    }
    TRY(out_flush());
  }
  while (j.depth > 0) json_close(&j);
done:
  heed_session_free(session);
  free(rows);
  free(best);
  return code;
}

static int run(const void *pointer) {
  const values *v = pointer;
  loaded m = {0};
  prompt p = {0};
  array all = {0};
  int code;
  if (!v->prompt.text && !v->prompt.ids)
    return usage_error("logits: TEXT is missing: what the model reads (or --ids; see `heed logits --help`)");
  TRY(model_open(&v->common, v->model, &m));
  if (m.info.head != HEED_HEAD_TOKENS) TRY(error_of(EXIT_UNSUPPORTED, "%s: gives labels, not tokens (see `heed label`)", m.info.name));
  TRY(prompt_read(m.context, v->model, m.tokenizer, m.info.vocabulary, &v->prompt, &p));
  TRY(prompt_check(&m, &p, true));
  if (v->output) TRY(array_new("logits of every position", HEED_F32, 2, (int64_t[]){p.count, m.info.vocabulary}, &all));
  TRY(walk(&m, v, &p, all.view.data));
  if (v->output) TRY(array_save(m.context, v->output, &all.view));
done:
  array_free(&all);
  prompt_free(&p);
  model_close(&m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file or a Hugging Face directory", .required = true),
    OPTION("TEXT", 0, TEXT, NULL, prompt.text, "what the model reads; - is standard input"),
    PROMPT_OPTIONS,
    OPTION("top", 0, WHOLE, "K", top, "candidates at each position (default 5)", .low = 1, .high = 1000),
    OPTION("output", 'o', TEXT, "FILE", output,
           "also write all logits [n, vocabulary] (.npy; - is standard output, in place of the table)"),
    {0},
};

const command command_logits = {
    .name = "logits",
    .summary = "show what a model expects next at every position",
    .about = "Reads a text and prints, after each token, the candidates for the next one with their probabilities. Of an encoder (BERT) "
             "they are those "
             "for the token that stands there, which tells something where it is masked.",
    .examples = "  heed logits model.gguf \"The capital of France is\" --top 3\n"
                "  heed logits model.gguf --ids 5,17,3 -o logits.npy\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON,
    .values_size = sizeof(values),
    .defaults = &(const values){.top = 5},
    .run = run,
};
