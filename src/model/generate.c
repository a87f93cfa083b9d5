/* generate.c: prompt in, tokens out: run, sample, emit, until the count, an end token or the caller says stop. */
#include "session.h"

#include "../text/tokenizer.h"

typedef struct generation {
  heed_session *session;
  heed_generate_options options;
  heed_generate_report report;
  float *logits;
  heed_decoder *decoder;
} generation;

/* Gives the caller the token and what it completes; *go is whether to go on. */
static heed_status emit(generation *g, int32_t id, bool *go) {
  heed_text text = {"", 0};
  if (g->decoder) HD_TRY(heed_decoder_push(g->decoder, id, &text));
  *go = !g->options.emit || g->options.emit(g->options.user, id, text);
  return HEED_OK;
}

/* What the decoder still holds back belongs to the last token. */
static heed_status flush(generation *g) {
  heed_text text;
  if (!g->decoder || !g->options.emit || !g->report.new_tokens) return HEED_OK;
  HD_TRY(heed_decoder_finish(g->decoder, &text));
  if (text.length) g->options.emit(g->options.user, -1, text);
  return HEED_OK;
}

static heed_status next_token(generation *g, int64_t step, int32_t *id) {
  heed_session *session = g->session;
  return heed_sample(session->context, &g->options.sampling, g->logits, session->model->spec.vocabulary, session->ids, session->held, step,
                     id);
}

static heed_status steps(generation *g) {
  heed_session *session = g->session;
  for (int64_t step = 0; step < g->options.count; step++) {
    HD_TRY(hd_progress(session->context, "generate", step, g->options.count));
    int32_t id;
    bool go;
    HD_TRY(next_token(g, step, &id));
    g->report.new_tokens++;
    g->report.ended = hd_model_ends(session->model, id);
    HD_TRY(emit(g, id, &go));
    bool over = !go || (g->report.ended && !g->options.ignore_end) || session->length == session->capacity;
    if (over || step + 1 == g->options.count) break;
    HD_TRY(heed_session_run(session, &id, 1, g->logits, 1, g->options.watch));
  }
  return flush(g);
}

static heed_status prepare(generation *g, const int32_t *ids, int64_t count) {
  heed_context *context = g->session->context;
  HD_TRY(hd_allocate(context, "logits", g->session->model->spec.vocabulary, sizeof *g->logits, &g->logits));
  if (!g->session->model->tokenizer) return HEED_OK;
  // The text goes on after the prompt, unless that is no more than a begin token: then the first token begins the text and loses its space as in training.
  heed_decode_options decode = {.size = sizeof decode};
  heed_tokenizer_info info = {.size = sizeof info};
  HD_TRY(heed_tokenizer_describe(g->session->model->tokenizer, &info));
  decode.keep_leading_space = !(g->session->length == 0 && count == 1 && ids[0] == info.bos);
  return heed_decoder_new(context, g->session->model->tokenizer, &decode, &g->decoder);
}

static heed_status generate(generation *g, const int32_t *ids, int64_t count) {
  HD_TRY(prepare(g, ids, count));
  double start = hd_now();
  HD_TRY(heed_session_run(g->session, ids, count, g->logits, 1, g->options.watch));
  double prompted = hd_now();
  heed_status status = steps(g);
  g->report.prompt_tokens = count;
  g->report.prompt_seconds = prompted - start;
  g->report.new_seconds = hd_now() - prompted;
  return status;
}

heed_status heed_generate(heed_session *session, const int32_t *ids, int64_t count, const heed_generate_options *options,
                          heed_generate_report *report) {
  if (!session) return HEED_E_ARGUMENT;
  heed_context *context = session->context;
  generation g = {.session = session, .options = {.size = sizeof g.options}, .report = {.size = sizeof g.report}};
  HD_REQUIRE(options && (!report || report->size >= sizeof report->size), context, HEED_E_ARGUMENT,
             "heed_generate: no options, or a report whose size is not set");
  HD_TRY(hd_options_read(context, "heed_generate_options", options, &g.options, sizeof g.options));
  g.options.sampling.size = sizeof g.options.sampling; // it lies within, so its size is known
  HD_REQUIRE(!session->model->spec.bidirectional, context, HEED_E_UNSUPPORTED,
             "%s: an encoder does not generate: it sees the whole text at once and fills in masked tokens (heed logits shows them)",
             session->model->name);
  HD_REQUIRE(ids && count >= 1, context, HEED_E_ARGUMENT, "generation needs a prompt of at least one token");
  HD_REQUIRE(g.options.count >= 0, context, HEED_E_ARGUMENT, "a negative number of new tokens (got %lld)", (long long)g.options.count);
  heed_status status = generate(&g, ids, count);
  heed_decoder_free(g.decoder);
  hd_release(context, g.logits, session->model->spec.vocabulary, sizeof *g.logits);
  if (report) {
    size_t size = report->size;
    g.report.size = size;
    memcpy(report, &g.report, HD_MIN(size, sizeof g.report));
  }
  return status;
}
