/* session.c: sessions: what they hold, how they grow, their source, and how a run is cut into passes. */
#include "running.h"
#include "stream.h"

/* Rows that one pass takes: enough for the products to reach the speed of the machine, few enough to stay in its caches. */
enum { CHUNK_DEFAULT = 512 };

/* What a stream may count up to. */
static const int64_t ENDLESS = (int64_t)1 << 60;

heed_status heed_session_new(heed_context *context, heed_model *model, const heed_session_options *given, heed_session **out) {
  if (out) *out = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(model && out, context, HEED_E_ARGUMENT, "heed_session_new needs a model and a place for the session");
  HD_REQUIRE(!model->recurrent, context, HEED_E_UNSUPPORTED, "%s: a recurrent model has no sessions: it translates", model->path);
  heed_session_options options = {.size = sizeof options};
  HD_TRY(hd_options_read(context, "heed_session_options", given, &options, sizeof options));
  const hd_transformer_spec *spec = &model->spec;
  HD_REQUIRE(options.capacity >= 0 && options.chunk >= 0, context, HEED_E_ARGUMENT,
             "a session's capacity and chunk must not be negative (got %lld and %lld)", (long long)options.capacity,
             (long long)options.chunk);
  HD_REQUIRE(!options.sinks || options.stream_window, context, HEED_E_ARGUMENT, "%lld sinks without a stream's window",
             (long long)options.sinks);
  HD_REQUIRE(!options.stream_window || !options.capacity, context, HEED_E_ARGUMENT, "a stream has no capacity (got %lld)",
             (long long)options.capacity);
  int64_t most = hd_spec_positions(spec);
  HD_REQUIRE(options.capacity <= most, context, HEED_E_ARGUMENT, "%s: a session beyond the model's positions (got %lld, allowed 1..%lld)",
             model->path, (long long)options.capacity, (long long)most);

  heed_session *session;
  HD_TRY(hd_allocate(context, "a session", 1, sizeof *session, &session));
  *session = (heed_session){.context = context,
                            .model = heed_model_retain(model),
                            .capacity = options.capacity ? options.capacity : spec->context,
                            .chunk = options.chunk ? options.chunk : CHUNK_DEFAULT};
  heed_status status = hd_stack_cache_new(context, model, 1, &session->cache);
  if (status == HEED_OK && spec->cross) status = hd_stack_cache_new(context, model, 1, &session->cross);
  if (status == HEED_OK) status = hd_running_new(context, model, &session->running);
  if (status == HEED_OK && options.stream_window) {
    session->capacity = ENDLESS;
    status = hd_stream_new(context, model, options.sinks, options.stream_window, &session->stream);
  }
  if (status != HEED_OK) heed_session_free(session);
  else *out = session;
  return status;
}

/* ---- working memory ------------------------------------------------------------------------------------------------------- */

/* Each array with the floats it has a row; the same list allocates and frees. */
static void scratch_list(const hd_transformer_spec *spec, hd_scratch *s, float ***array, int64_t *floats) {
  int64_t wide = spec->feed_forward * (spec->feed_forward_kind == HD_FEED_FORWARD_GATED ? 2 : 1);
  float **arrays[] = {&s->x, &s->h, &s->qkv, &s->mixed, &s->wide, &s->cosine, &s->sine, &s->local_cosine, &s->local_sine};
  const int64_t q = spec->heads * spec->head_dim, pairs = spec->rotary_dim / 2, local = spec->rotary_local.size ? pairs : 0;
  int64_t sizes[] = {spec->width, spec->width, q + 2 * spec->kv_heads * spec->head_dim, q, wide, pairs, pairs, local, local};
  memcpy(array, arrays, sizeof arrays);
  memcpy(floats, sizes, sizeof sizes);
}

enum { SCRATCH_ARRAYS = 9 };

void hd_scratch_free(heed_context *context, const hd_transformer_spec *spec, hd_scratch *s) {
  float **array[SCRATCH_ARRAYS];
  int64_t floats[SCRATCH_ARRAYS];
  scratch_list(spec, s, array, floats);
  for (int i = 0; i < SCRATCH_ARRAYS; i++) hd_release(context, *array[i], s->rows * floats[i], sizeof(float));
  hd_release(context, s->places, s->rows * 3, sizeof *s->places);
  *s = (hd_scratch){0};
}

heed_status hd_scratch_reserve(heed_context *context, const hd_transformer_spec *spec, hd_scratch *s, int64_t rows) {
  if (rows <= s->rows) return HEED_OK;
  hd_scratch_free(context, spec, s);
  float **array[SCRATCH_ARRAYS];
  int64_t floats[SCRATCH_ARRAYS];
  scratch_list(spec, s, array, floats);
  s->rows = rows;
  heed_status status = HEED_OK;
  for (int i = 0; i < SCRATCH_ARRAYS && status == HEED_OK; i++)
    status = hd_allocate(context, "the activations of a pass", rows * floats[i], sizeof(float), array[i]);
  if (status == HEED_OK) status = hd_allocate(context, "the places of a pass", rows * 3, sizeof *s->places, &s->places);
  if (status != HEED_OK) hd_scratch_free(context, spec, s);
  return status;
}

void heed_session_free(heed_session *session) {
  if (!session) return;
  heed_context *context = session->context;
  heed_cache_free(session->cache);
  heed_cache_free(session->cross);
  hd_running_free(context, session->running);
  hd_stream_free(context, session->stream);
  if (session->model->encoder) hd_scratch_free(context, &session->model->encoder->spec, &session->encoder_scratch);
  hd_scratch_free(context, &session->model->spec, &session->scratch);
  hd_release(context, session->ids, session->ids_capacity, sizeof *session->ids);
  heed_model_free(session->model);
  hd_release(context, session, 1, sizeof *session);
}

/* ---- what it holds -------------------------------------------------------------------------------------------------------- */

/* Whether a stream is past what it keeps. */
static bool has_let_go(const heed_session *session) { return session->length > 0 && hd_stream_wraps(session->stream, session->length - 1); }

int64_t heed_session_length(const heed_session *session) { return session ? session->length : 0; }

heed_status heed_session_truncate(heed_session *session, int64_t length) {
  if (!session) return HEED_E_ARGUMENT;
  HD_REQUIRE(length >= 0 && length <= session->length, session->context, HEED_E_ARGUMENT,
             "a session is truncated to what it holds (got %lld, allowed 0..%lld)", (long long)length, (long long)session->length);
  HD_REQUIRE(length == 0 || length == session->length || !has_let_go(session), session->context, HEED_E_ARGUMENT,
             "a stream that has let tokens go is truncated to nothing at all (got %lld)", (long long)length);
  if (length < session->length) session->held = session->length = length;
  return HEED_OK;
}

int64_t heed_session_reuse(heed_session *session, const int32_t *ids, int64_t count) {
  if (!session) return 0;
  int64_t same = 0, most = ids && !session->model->spec.bidirectional && !has_let_go(session) ? HD_MIN(session->length, count - 1) : 0;
  while (same < most && session->ids[same] == ids[same]) same++;
  session->held = session->length = same;
  return same;
}

/* ---- running -------------------------------------------------------------------------------------------------------------- */

static heed_status check_ids(heed_context *context, const heed_model *model, const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    HD_REQUIRE(ids[i] >= 0 && ids[i] < model->spec.vocabulary, context, HEED_E_ARGUMENT,
               "%s: a token id outside the vocabulary (place %lld, got %d, allowed 0..%lld)", model->name, (long long)i, (int)ids[i],
               (long long)model->spec.vocabulary - 1);
  return HEED_OK;
}

static heed_status check_run(const heed_session *session, const int32_t *ids, int64_t count, const float *logits, int64_t rows) {
  heed_context *context = session->context;
  const hd_transformer_spec *spec = &session->model->spec;
  HD_REQUIRE(ids && count >= 1, context, HEED_E_ARGUMENT, "a run needs at least one token (got %lld)", (long long)(ids ? count : 0));
  HD_REQUIRE(!logits || (rows >= 1 && rows <= count), context, HEED_E_ARGUMENT,
             "logits are for the last rows of a run (got %lld, allowed 1..%lld)", (long long)rows, (long long)count);
  HD_REQUIRE(!logits || spec->head != HEED_HEAD_CLASS || rows == 1, context, HEED_E_ARGUMENT,
             "%s: a model that gives a class has one row of logits (got %lld)", session->model->name, (long long)rows);
  HD_REQUIRE(count <= session->capacity - session->length, context, HEED_E_ARGUMENT,
             "%s: more tokens than positions (got %lld + %lld, allowed %lld)", session->model->name, (long long)session->length,
             (long long)count, (long long)session->capacity);
  HD_REQUIRE(!spec->bidirectional || session->length == 0, context, HEED_E_ARGUMENT,
             "%s: an encoder reads a sequence at once, since its tokens see those behind them (the session holds %lld already)",
             session->model->name, (long long)session->length);
  HD_REQUIRE(!spec->cross || session->source_length > 0, context, HEED_E_ARGUMENT,
             "%s: an encoder–decoder needs a source before its decoder runs (heed_session_source)", session->model->name);
  return check_ids(context, session->model, ids, count);
}

/* Tokens of the next `count` that run as usual: all, or those that a stream still has room for. */
static int64_t straight_rows(const heed_session *session, int64_t count) {
  return session->stream ? HD_CLAMP(hd_stream_size(session->stream) - session->length, 0, count) : count;
}

/* The rows of [begin, begin + n) of a run of count whose logits are wanted: those among the last `rows`. */
static int64_t rows_within(int64_t count, int64_t rows, int64_t begin, int64_t n) {
  return HD_MAX(0, HD_MIN(n, begin + n - (count - rows)));
}

/* Takes in tokens that have been run. A stream, which has room for twice as many as it keeps, forgets all but the last when that is full. */
static void take(heed_session *session, const int32_t *ids, int64_t count) {
  const int64_t size = session->stream ? hd_stream_size(session->stream) : INT64_MAX / 4;
  if (session->held + count > 2 * size) {
    memmove(session->ids, session->ids + session->held - size, (size_t)size * sizeof *ids);
    session->held = size;
  }
  memcpy(session->ids + session->held, ids, (size_t)count * sizeof *ids);
  session->held += count;
  session->length += count;
}

/* A run of tokens of the session, which lie at ids and begin at the position of the span. */
static hd_pass pass_of(heed_session *session, const int32_t *ids, const hd_span *span) {
  return (hd_pass){.context = session->context,
                   .model = session->model,
                   .cache = session->cache,
                   .cross = session->cross,
                   .running = session->running,
                   .stream = session->stream,
                   .scratch = &session->scratch,
                   .ids = ids,
                   .spans = span,
                   .span_count = 1,
                   .rows = span->rows,
                   .capacity = session->stream ? hd_stream_size(session->stream) : session->capacity};
}

/* Running sums cannot go back: where they hold something else than the session, its tokens run once more. */
static heed_status replay(heed_session *session) {
  hd_running *running = session->running;
  if (running->length == session->length) return HEED_OK;
  running->length = -1;
  HD_TRY(hd_scratch_reserve(session->context, &session->model->spec, &session->scratch, HD_MIN(session->chunk, session->length)));
  for (int64_t i = 0; i < session->model->spec.layers; i++) HD_TRY(heed_cache_truncate(session->cache, i, 0));
  for (int64_t begin = 0, n; begin < session->length; begin += n) {
    n = HD_MIN(session->scratch.rows, session->length - begin);
    const hd_span span = {.rows = n, .first = begin};
    const hd_pass pass = pass_of(session, session->ids + begin, &span);
    HD_TRY(hd_transformer_run(&pass));
  }
  return HEED_OK;
}

/* Layers hold what the session does: they may have more after it went back or a run failed. */
static heed_status hold(heed_session *session) {
  if (session->running) return replay(session);
  for (int64_t i = 0; i < session->model->spec.layers; i++)
    HD_TRY(heed_cache_truncate(session->cache, i, HD_MIN(session->length, heed_cache_length(session->cache, i))));
  return HEED_OK;
}

/* In a decoder with LSH attention who meets whom depends on the whole text: it runs anew, in one pass. The tokens lie behind those that the session holds. */
static heed_status run_anew(heed_session *session, const int32_t *ids, int64_t count, float *logits, int64_t rows,
                            const heed_watch *watch) {
  const hd_span span = {.rows = session->length + count};
  for (int64_t i = 0; i < session->model->spec.layers; i++) HD_TRY(heed_cache_truncate(session->cache, i, 0));
  HD_TRY(hd_scratch_reserve(session->context, &session->model->spec, &session->scratch, span.rows));
  memcpy(session->ids + session->length, ids, (size_t)count * sizeof *ids);
  hd_pass pass = pass_of(session, session->ids, &span);
  pass.logits = logits;
  pass.logit_rows = logits ? rows : 0;
  pass.watch = watch;
  pass.progress_total = count > 1 ? span.rows : 0;
  HD_TRY(hd_transformer_run(&pass));
  take(session, ids, count);
  return HEED_OK;
}

heed_status heed_session_run(heed_session *session, const int32_t *ids, int64_t count, float *logits, int64_t rows,
                             const heed_watch *given) {
  if (!session) return HEED_E_ARGUMENT;
  heed_context *context = session->context;
  const hd_transformer_spec *spec = &session->model->spec;
  heed_watch watch = {.size = sizeof watch};
  HD_TRY(hd_options_read(context, "heed_watch", given, &watch, sizeof watch));
  HD_TRY(check_run(session, ids, count, logits, rows));
  if (given) HD_TRY(hd_watch_check(context, session->model, &watch));
  const int64_t straight = straight_rows(session, count), start = session->length;
  HD_REQUIRE(!given || straight == count, context, HEED_E_UNSUPPORTED, "%s: a stream that lets tokens go cannot be watched",
             session->model->name);
  const bool anew = !spec->bidirectional && hd_kinds_lsh(&session->model->kinds);
  HD_REQUIRE(!given || !anew || start == 0, context, HEED_E_UNSUPPORTED,
             "%s: a layer has LSH attention, whose weights are known only of a run that begins with the first token", session->model->name);

  // A record covers all queries of the run, so a watched run is one pass; the n × m weights are then its memory anyway. An encoder's tokens see those behind them.
  const int64_t chunk = HD_MIN(given || spec->bidirectional ? count : session->chunk, count);
  const int64_t kept = session->stream ? 2 * hd_stream_size(session->stream) : session->length + count;
  HD_TRY(hd_grow(context, "the tokens of a session", &session->ids, &session->ids_capacity, kept, sizeof *ids));
  if (anew) return run_anew(session, ids, count, logits, rows, given ? &watch : NULL);
  HD_TRY(hold(session));
  HD_TRY(hd_scratch_reserve(context, spec, &session->scratch, chunk));
  if (session->running) session->running->length = -1; // until the run has ended well
  for (int64_t begin = 0, taken = 0, n; begin < count; begin += n) {
    n = begin < straight ? HD_MIN(chunk, straight - begin) : 1;
    const int64_t wanted = logits ? rows_within(count, rows, begin, n) : 0;
    const hd_span span = {.rows = n, .first = start + begin};
    hd_pass pass = pass_of(session, ids + begin, &span);
    pass.logits = logits;
    pass.logit_rows = wanted;
    pass.watch = given ? &watch : NULL;
    pass.progress_done = begin;
    pass.progress_total = count > 1 ? count : 0;
    HD_TRY(hd_transformer_run(&pass));
    if (wanted) logits += wanted * hd_spec_outputs(spec);
    if (begin + n < straight) continue;
    // Only now: after an error the session holds what it held, and the next run drops what layers have beyond.
    take(session, ids + taken, begin + n - taken);
    taken = begin + n;
  }
  if (session->running) session->running->length = session->length;
  return HEED_OK;
}

/* ---- the source ----------------------------------------------------------------------------------------------------------- */

int64_t heed_session_source_length(const heed_session *session) { return session ? session->source_length : 0; }

static heed_status check_source(const heed_session *session, const int32_t *ids, int64_t count) {
  heed_context *context = session->context;
  const heed_model *model = session->model;
  HD_REQUIRE(model->encoder, context, HEED_E_UNSUPPORTED, "%s: a model without an encoder has no source", model->name);
  HD_REQUIRE(ids && count >= 1, context, HEED_E_ARGUMENT, "a source needs at least one token (got %lld)", (long long)(ids ? count : 0));
  const hd_transformer_spec *spec = &model->encoder->spec;
  const int64_t most = hd_spec_positions(spec);
  HD_REQUIRE(count <= most, context, HEED_E_ARGUMENT, "%s: a source of more tokens than the encoder has positions (got %lld, allowed %lld)",
             model->name, (long long)count, (long long)most);
  return check_ids(context, model->encoder, ids, count);
}

heed_status heed_session_source(heed_session *session, const int32_t *ids, int64_t count, const heed_watch *given) {
  if (!session) return HEED_E_ARGUMENT;
  heed_context *context = session->context;
  heed_watch watch = {.size = sizeof watch};
  HD_TRY(hd_options_read(context, "heed_watch", given, &watch, sizeof watch));
  HD_TRY(check_source(session, ids, count));
  if (given) HD_TRY(hd_watch_check(context, session->model->encoder, &watch));
  session->length = session->held = session->source_length = 0;
  const hd_span span = {.rows = count};
  HD_TRY(hd_sources_run(&(hd_pass){.context = context,
                                   .model = session->model,
                                   .scratch = &session->encoder_scratch,
                                   .ids = ids,
                                   .spans = &span,
                                   .span_count = 1,
                                   .rows = count,
                                   .watch = given ? &watch : NULL,
                                   .progress_total = count},
                        session->cross));
  session->source_length = count;
  return HEED_OK;
}
