/* transformer.c: the block, steered by the spec alone.
 *
 * A pass takes rows of one or more sequences through all layers. Products, attention and row operations each give a row the same bits
 * whatever other rows are in the call; so a prompt may be cut into passes anywhere, which the session does. */
#include "hashed.h"
#include "rows.h"
#include "running.h"
#include "stream.h"

#include <math.h>

static void add_row(const hd_pass *pass, const hd_matrix *matrix, int64_t r, float *row, float *x) {
  hd_matrix_row(pass->context, matrix, r, row);
  for (int64_t i = 0; i < pass->model->spec.width; i++) x[i] += row[i];
}

/* What is added for a position. */
static void add_position(const hd_pass *pass, int64_t position, float *row, float *x) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  if (model->position.outputs > 0) {
    add_row(pass, &model->position, position + spec->position_offset, row, x);
  } else if (model->sinusoids > 0) {
    const float *sinusoid = model->sinusoid + position * spec->width;
    if (position >= model->sinusoids) hd_spec_sinusoid(spec, position, row), sinusoid = row;
    for (int64_t i = 0; i < spec->width; i++) x[i] += sinusoid[i];
  }
}

static void embed(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  const float scale = (float)sqrt((double)spec->width);
  float *row = pass->scratch->h, *x = pass->scratch->x; // h is free until the first norm
  const int32_t *id = pass->ids;
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count; span++)
    for (int64_t i = 0; i < span->rows; i++, x += spec->width) {
      hd_matrix_row(pass->context, &model->embedding, *id++, x);
      for (int64_t j = 0; spec->scaled_embedding && j < spec->width; j++) x[j] *= scale;
      if (spec->segments > 0) add_row(pass, &model->segment, 0, row, x);
      add_position(pass, span->first + i, row, x);
    }
  if (spec->embedding_norm) hd_rows_norm(pass->context, spec, &model->embedding_norm, pass->scratch->x, pass->rows, pass->scratch->x);
}

/* What a sublayer reads: the norm of the stream, or the stream itself where norms come after it or there is none. */
static const float *sublayer_input(const hd_pass *pass, const hd_norm *norm) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  if (spec->norm_place == HD_NORM_AFTER || spec->norm_place == HD_NORM_OUTPUT || !norm->weight) return s->x;
  hd_rows_norm(pass->context, spec, norm, s->x, pass->rows, s->h);
  return s->h;
}

/* Adds what a sublayer gave, in h, to the stream. post: of norms around it the second. */
static void sublayer_add(const hd_pass *pass, const hd_norm *norm, const hd_norm *post) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  if (spec->norm_place == HD_NORM_OUTPUT) post = norm;
  if (post && post->weight) hd_rows_norm(pass->context, spec, post, s->h, pass->rows, s->h);
  hd_rows_add(pass->context, s->x, s->h, pass->rows, spec->width);
  if (spec->norm_place == HD_NORM_AFTER) hd_rows_norm(pass->context, spec, norm, s->x, pass->rows, s->x);
}

/* ---- feed-forward ---------------------------------------------------------------------------------------------------------- */

static heed_status feed_forward(const hd_pass *pass, int64_t i) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const hd_layer *layer = &pass->model->layers[i];
  hd_scratch *s = pass->scratch;
  int64_t stride = layer->up.outputs;
  const float *in = sublayer_input(pass, &layer->feed_forward_norm);
  HD_TRY(hd_stack_product(pass->context, &layer->up, in, pass->rows, spec->width, s->wide, stride));
  hd_rows_activate(pass->context, spec->activation, s->wide, pass->rows, spec->feed_forward, stride);
  HD_TRY(hd_stack_product(pass->context, &layer->down, s->wide, pass->rows, stride, s->h, spec->width));
  sublayer_add(pass, &layer->feed_forward_norm, &layer->feed_forward_post);
  return HEED_OK;
}

/* ---- attention ------------------------------------------------------------------------------------------------------------ */

static bool is_hashed(const hd_pass *pass, int64_t layer) { return hd_kind_of(&pass->model->kinds, layer).rounds > 0; }
static bool is_linear(const hd_pass *pass, int64_t layer) { return hd_kind_of(&pass->model->kinds, layer).linear; }

/* Rows [heads, rows, head_dim] turn by tables [rows, rotary_dim/2]. */
static heed_status turn_rows(const hd_pass *pass, const heed_view *rows, float *cosines, float *sines, const heed_view *out) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const heed_view cosine = heed_view_of(cosines, HEED_F32, 2, (int64_t[]){rows->dim[1], spec->rotary_dim / 2});
  const heed_view sine = heed_view_of(sines, HEED_F32, 2, (int64_t[]){rows->dim[1], spec->rotary_dim / 2});
  const heed_rope rope = {.size = sizeof rope,
                          .interleaved = spec->positions == HD_POSITIONS_ROTARY_INTERLEAVED,
                          .rotary_dim = spec->rotary_dim,
                          .cosine = &cosine,
                          .sine = &sine};
  return heed_rope_apply(pass->context, &rope, rows, out);
}

/* Queries and keys turn to their positions, by the tables of this pass. Keys lie behind queries: one sweep turns both, and where queries are the keys there are no more. */
static heed_status turn(const hd_pass *pass, int64_t layer) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  const bool local = hd_spec_turns_locally(spec, layer);
  const int64_t heads = spec->heads + (is_hashed(pass, layer) ? 0 : spec->kv_heads);
  const heed_view rows = {s->qkv, HEED_F32, 3, {heads, pass->rows, spec->head_dim}, {spec->head_dim, hd_spec_qkv(spec), 1}};
  return turn_rows(pass, &rows, local ? s->local_cosine : s->cosine, local ? s->local_sine : s->sine, &rows);
}

/* Queries and keys normed before they turn. */
static void norm_sides(const hd_pass *pass, const hd_layer *layer) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t d = spec->head_dim, q = spec->heads * d, kv = spec->kv_heads * d, stride = hd_spec_qkv(spec);
  const bool row = spec->side_norm == HD_SIDE_NORM_ROW;
  float *x = pass->scratch->qkv;
  hd_rows_norm_parts(pass->context, spec, &layer->query_norm, x, pass->rows, stride, row ? 1 : spec->heads, row ? q : d);
  hd_rows_norm_parts(pass->context, spec, &layer->key_norm, x + q, pass->rows, stride, row ? 1 : spec->kv_heads, row ? kv : d);
}

/* Columns [column, column + heads · head_dim) of rows of qkv. */
static heed_view heads_of(const hd_pass *pass, int64_t row, int64_t rows, int64_t column, int64_t heads) {
  const int64_t d = pass->model->spec.head_dim, stride = hd_spec_qkv(&pass->model->spec);
  return (heed_view){pass->scratch->qkv + row * stride + column, HEED_F32, 3, {heads, rows, d}, {d, stride, 1}};
}

/* Keys and values to where the next rows find them. */
static heed_status store(const hd_pass *pass, int64_t layer) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  int64_t row = 0;
  if (pass->branches) {
    const float *keys = pass->scratch->qkv + q;
    hd_branches_put(pass->branches, layer, keys, keys + kv, hd_spec_qkv(&pass->model->spec));
    return HEED_OK;
  }
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count; row += span++->rows) {
    const heed_view k = heads_of(pass, row, span->rows, q, spec->kv_heads), v = heads_of(pass, row, span->rows, q + kv, spec->kv_heads);
    HD_TRY(heed_cache_append(pass->cache, span->sequence * spec->layers + layer, &k, &v));
  }
  return HEED_OK;
}

static bool wraps(const hd_pass *pass) { return hd_stream_wraps(pass->stream, pass->spans->first); }

/* ---- streams --------------------------------------------------------------------------------------------------------------- */

/* Keys of a layer's sinks, [kv_heads, sinks, head_dim]. */
static heed_view sinks_of(const hd_pass *pass, float *keys, int64_t first, int64_t count) {
  const int64_t d = pass->model->spec.head_dim, heads = pass->model->spec.kv_heads;
  return (heed_view){keys + first * heads * d, HEED_F32, 3, {heads, count, d}, {d, heads * d, 1}};
}

/* What the first tokens of a stream say before it turns. */
static void keep_sinks(const hd_pass *pass, int64_t layer) {
  const hd_stream *stream = pass->stream;
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t width = spec->kv_heads * spec->head_dim, stride = hd_spec_qkv(&pass->model->spec), first = pass->spans->first;
  for (int64_t i = first; i < HD_MIN(first + pass->rows, stream->sinks); i++)
    memcpy(hd_stream_keys(stream, spec, layer) + i * width, pass->scratch->qkv + (i - first) * stride + spec->heads * spec->head_dim,
           (size_t)width * sizeof(float));
}

/* The token takes the place of the oldest in the window, and the sinks turn to where they now stand. */
static heed_status store_in_stream(const hd_pass *pass, int64_t layer) {
  const hd_stream *stream = pass->stream;
  const hd_transformer_spec *spec = &pass->model->spec;
  const bool local = hd_spec_turns_locally(spec, layer);
  const int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  const heed_view k = heads_of(pass, 0, 1, q, spec->kv_heads), v = heads_of(pass, 0, 1, q + kv, spec->kv_heads);
  const heed_view keys = sinks_of(pass, hd_stream_keys(stream, spec, layer), 0, stream->sinks);
  const heed_view turned = sinks_of(pass, stream->turned, 0, stream->sinks);
  const int64_t number = pass->spans->sequence * spec->layers + layer;
  HD_TRY(heed_cache_write(pass->cache, number, hd_stream_slot(stream, pass->spans->first), &k, &v));
  HD_TRY(turn_rows(pass, &keys, local ? stream->local_cosine : stream->cosine, local ? stream->local_sine : stream->sine, &turned));
  return heed_cache_write(pass->cache, number, 0, &turned, NULL);
}

/* ---- mixing ---------------------------------------------------------------------------------------------------------------- */

static bool watches(const heed_watch *watch, int64_t layer) {
  if (!watch) return false;
  if (!watch->layers) return true;
  for (int64_t i = 0; i < watch->n_layers; i++)
    if (watch->layers[i] == layer) return true;
  return false;
}

/* The fused kernel without its own reports: the pass tells the host how far it is, layer by layer, and another count in between would only confuse. */
static heed_status mix(const hd_pass *pass, const hd_mixing *mixing) {
  heed_context *context = pass->context;
  heed_progress progress = context->progress;
  context->progress = NULL;
  heed_status status = hd_attention_scored(context, mixing->attention, &mixing->q, mixing->k, mixing->v, &mixing->out, NULL);
  context->progress = progress;
  HD_TRY(status);
  if (watches(pass->watch, mixing->layer)) HD_TRY(hd_watch_layer(pass, mixing));
  return pass->mixed ? pass->mixed(pass->mixed_user, pass, mixing) : HEED_OK;
}

/* Entries of one call of attention: neighbouring spans of equal numbers of rows, from row `row` of the pass on. Spans of one source are one entry of cross-attention. */
typedef struct entries {
  int64_t row, rows, count;
  int64_t *sequence, *offset, *length; /* [count] */
} entries;

/* Rows of the entry that begins with a span, and the span after it. */
static int64_t entry_rows(const hd_pass *pass, heed_stage stage, const hd_span **span) {
  const hd_span *first = (*span)++, *end = pass->spans + pass->span_count;
  int64_t rows = first->rows;
  while (stage == HEED_STAGE_CROSS && *span < end && (*span)->source == first->source) rows += (*span)++->rows;
  return rows;
}

static const hd_span *next_entries(const hd_pass *pass, heed_stage stage, int64_t layer, const hd_span *span, entries *e) {
  const hd_span *end = pass->spans + pass->span_count;
  e->row += e->count * e->rows;
  e->count = 0;
  while (span < end) {
    const hd_span *first = span, *after = span;
    const int64_t rows = entry_rows(pass, stage, &after), number = stage == HEED_STAGE_CROSS ? first->source : first->sequence;
    if (e->count && rows != e->rows) break;
    e->rows = rows;
    e->sequence[e->count] = number * pass->model->spec.layers + layer;
    e->offset[e->count] = stage == HEED_STAGE_CROSS ? 0 : first->first;
    e->length[e->count++] =
        stage == HEED_STAGE_CROSS ? heed_cache_length(pass->cross, number * pass->model->spec.layers + layer) : first->first + rows;
    span = after;
  }
  return span;
}

/* [entries, heads, rows, head_dim] in rows of `stride` numbers. */
static heed_view grid_of(const entries *e, float *rows, int64_t stride, int64_t heads, int64_t d) {
  return (heed_view){rows + e->row * stride, HEED_F32, 4, {e->count, heads, e->rows, d}, {e->rows * stride, d, stride, 1}};
}

/* Where keys or values of the entries lie: in the rows of the pass itself where the model is bidirectional, else in a cache or in branches. */
static heed_status source_of(const hd_pass *pass, heed_stage stage, int64_t layer, const entries *e, bool values, hd_source *out) {
  const hd_transformer_spec *spec = &pass->model->spec;
  if (stage != HEED_STAGE_CROSS && spec->bidirectional) {
    const int64_t column = (spec->heads + (values ? spec->kv_heads : 0)) * spec->head_dim;
    const heed_view view = grid_of(e, pass->scratch->qkv + column, hd_spec_qkv(&pass->model->spec), spec->kv_heads, spec->head_dim);
    return hd_source_of_view(pass->context, &view, values ? "v" : "k", out);
  }
  if (stage != HEED_STAGE_CROSS && pass->branches) hd_source_of_branches(pass->branches, layer, e->row, e->count, values, out);
  else hd_source_of_cache(pass->context, stage == HEED_STAGE_CROSS ? pass->cross : pass->cache, e->sequence, e->count, values, out);
  return HEED_OK;
}

/* Arrays of positions that act on scores, as views. */
typedef struct terms {
  heed_view relative, slopes, content, place, distances;
  heed_score xl;
} terms;

static void find_terms(const heed_model *model, int64_t layer, terms *t) {
  const hd_transformer_spec *spec = &model->spec;
  const hd_layer *of = &model->layers[layer];
  const int64_t heads = spec->heads, d = spec->head_dim;
  t->relative = heed_view_of((void *)model->relative, HEED_F32, 2, (int64_t[]){spec->relative_buckets, heads});
  t->slopes = heed_view_of((void *)model->slopes, HEED_F32, 1, &heads);
  t->content = heed_view_of((void *)of->content, HEED_F32, 2, (int64_t[]){heads, d});
  t->place = heed_view_of((void *)of->place, HEED_F32, 2, (int64_t[]){heads, d});
  t->distances = (heed_view){(void *)of->distances, HEED_F32, 3, {heads, model->distances, d}, {d, heads * d, 1}};
  t->xl = (heed_score){.size = sizeof t->xl,
                       .kind = HEED_SCORE_XL,
                       .content = &t->content,
                       .position = &t->place,
                       .distances = &t->distances,
                       .first_distance = hd_spec_first_distance(spec, spec->context)};
}

/* What all entries share, and with several what each has of its own. */
static heed_attention attention_of(const hd_pass *pass, heed_stage stage, int64_t layer, const entries *e, const terms *terms) {
  const hd_transformer_spec *spec = &pass->model->spec;
  heed_attention a = {
      .size = sizeof a, .has_scale = spec->attention_scale != 0, .scale = spec->attention_scale, .softcap = spec->attention_softcap};
  if (e->count > 1) a.key_lengths = e->length;
  if (stage == HEED_STAGE_CROSS) return a;
  const int64_t window = wraps(pass) ? 0 : hd_spec_window(spec, layer); // a stream holds no key beyond it, and in no order
  a.pattern = hd_kind_of(&pass->model->kinds, layer).pattern;
  a.causal = !spec->bidirectional;
  a.has_window_left = window > 0;
  a.window_left = window > 0 ? window - 1 : 0;
  a.has_window_right = window > 0 && spec->bidirectional;
  a.window_right = a.has_window_right ? window - 1 : 0;
  a.align = HEED_ALIGN_GIVEN;
  if (e->count > 1) a.offsets = e->offset;
  else a.offset = *e->offset;
  const hd_positions positions = hd_spec_positions_of(spec, layer);
  if (positions == HD_POSITIONS_RELATIVE) {
    a.relative = &terms->relative;
    a.relative_causal = !spec->bidirectional;
    a.relative_distance = spec->relative_distance;
  }
  if (positions == HD_POSITIONS_ALIBI) a.alibi = &terms->slopes;
  if (positions == HD_POSITIONS_XL) a.score = &terms->xl;
  return a;
}

/* All rows of the pass attend: queries are the first numbers of rows of `q_stride`, the results go to mixed. */
static heed_status attend(const hd_pass *pass, heed_stage stage, int64_t layer, int64_t q_stride) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  terms terms;
  find_terms(pass->model, layer, &terms);
  const hd_span *span = pass->spans, *end = span + pass->span_count;
  entries e = {.sequence = s->places, .offset = s->places + s->rows, .length = s->places + 2 * s->rows};
  while (span < end) {
    hd_source k, v;
    span = next_entries(pass, stage, layer, span, &e);
    const heed_attention a = attention_of(pass, stage, layer, &e, &terms);
    hd_mixing mixing = {.stage = stage, .layer = layer, .keys = *e.length, .row = e.row, .attention = &a, .k = &k, .v = &v};
    mixing.q = grid_of(&e, s->qkv, q_stride, spec->heads, spec->head_dim);
    mixing.out = grid_of(&e, s->mixed, spec->heads * spec->head_dim, spec->heads, spec->head_dim);
    HD_TRY(source_of(pass, stage, layer, &e, false, &k));
    HD_TRY(source_of(pass, stage, layer, &e, true, &v));
    HD_TRY(mix(pass, &mixing));
  }
  return HEED_OK;
}

/* The same in a layer of linear attention. Whoever looks at it sees exact attention of the same queries and keys beside it. */
static heed_status attend_linear(const hd_pass *pass, int64_t layer) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t d = spec->head_dim, q = spec->heads * d, kv = spec->kv_heads * d, stride = hd_spec_qkv(&pass->model->spec);
  HD_TRY(hd_linear_attend(pass, layer));
  if (!watches(pass->watch, layer)) return HEED_OK;
  const entries e = {.rows = pass->rows, .count = 1, .offset = (int64_t[]){pass->spans->first}};
  const heed_view keys = grid_of(&e, pass->scratch->qkv + q, stride, spec->kv_heads, d);
  const heed_view values = grid_of(&e, pass->scratch->qkv + q + kv, stride, spec->kv_heads, d);
  hd_source k, v;
  HD_TRY(hd_source_of_view(pass->context, &keys, "k", &k));
  HD_TRY(hd_source_of_view(pass->context, &values, "v", &v));
  const heed_attention exact = attention_of(pass, pass->stage, layer, &e, NULL);
  const hd_mixing mixing = {.stage = pass->stage,
                            .layer = layer,
                            .keys = pass->rows,
                            .implied = hd_linear_weights,
                            .attention = &exact,
                            .q = grid_of(&e, pass->scratch->qkv, stride, spec->heads, d),
                            .out = grid_of(&e, pass->scratch->mixed, q, spec->heads, d),
                            .k = &k,
                            .v = &v};
  return hd_watch_layer(pass, &mixing);
}

static heed_status attend_hashed(const hd_pass *pass, int64_t layer) {
  HD_TRY(hd_hashed_attend(pass, layer));
  return watches(pass->watch, layer) ? hd_hashed_watch(pass, layer) : HEED_OK;
}

/* The attention of a sublayer has been prepared in qkv: the rest of it. */
static heed_status attend_and_add(const hd_pass *pass, heed_stage stage, int64_t layer, int64_t q_stride, const hd_stack *output,
                                  const hd_norm *norm, const hd_norm *post) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  const bool own = stage != HEED_STAGE_CROSS;
  if (own && is_linear(pass, layer)) HD_TRY(attend_linear(pass, layer));
  else if (own && is_hashed(pass, layer)) HD_TRY(attend_hashed(pass, layer));
  else HD_TRY(attend(pass, stage, layer, q_stride));
  HD_TRY(hd_stack_product(pass->context, output, s->mixed, pass->rows, spec->heads * spec->head_dim, s->h, spec->width));
  sublayer_add(pass, norm, post);
  return HEED_OK;
}

static heed_status self_attention(const hd_pass *pass, int64_t i) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const hd_layer *layer = &pass->model->layers[i];
  const int64_t stride = hd_spec_qkv(spec);
  const float *in = sublayer_input(pass, &layer->attention_norm);
  HD_TRY(hd_stack_product(pass->context, &layer->qkv, in, pass->rows, spec->width, pass->scratch->qkv, stride));
  if (spec->side_norm != HD_SIDE_NORM_NONE) norm_sides(pass, layer);
  if (pass->stream) keep_sinks(pass, i);
  if (hd_positions_rotate(hd_spec_positions_of(spec, i))) HD_TRY(turn(pass, i));
  const bool kept = !spec->bidirectional && !is_linear(pass, i) && !is_hashed(pass, i);
  if (kept) HD_TRY((wraps(pass) ? store_in_stream : store)(pass, i));
  if (spec->parallel) HD_TRY(feed_forward(pass, i)); // both read this stream, which attention needs no more
  return attend_and_add(pass, pass->stage, i, stride, &layer->output, &layer->attention_norm, &layer->attention_post);
}

static heed_status cross_attention(const hd_pass *pass, int64_t i) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const hd_layer *layer = &pass->model->layers[i];
  const int64_t stride = layer->cross_query.outputs;
  const float *in = sublayer_input(pass, &layer->cross_norm);
  HD_TRY(hd_stack_product(pass->context, &layer->cross_query, in, pass->rows, spec->width, pass->scratch->qkv, stride));
  return attend_and_add(pass, HEED_STAGE_CROSS, i, stride, &layer->cross_output, &layer->cross_norm, NULL);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------ */

/* What the head reads instead of rows x of the stream, written to h. */
static heed_status head_input(const hd_pass *pass, const float *x, int64_t rows, float *h) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  HD_TRY(hd_stack_product(pass->context, &model->head_dense, x, rows, spec->width, h, spec->width));
  hd_rows_activate(pass->context, spec->head == HEED_HEAD_CLASS ? HEED_ACTIVATION_TANH : spec->activation, h, rows, spec->width,
                   spec->width);
  if (hd_spec_transforms(spec)) hd_rows_norm(pass->context, spec, &model->head_norm, h, rows, h);
  return HEED_OK;
}

/* A headless model's result is the stream itself, after the last norm. */
static heed_status result(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  int64_t n = pass->logit_rows;
  if (!n || spec->headless) {
    if (spec->headless && model->final_norm.weight)
      hd_rows_norm(pass->context, spec, &model->final_norm, pass->scratch->x, pass->rows, pass->scratch->x);
    return HEED_OK;
  }
  // A class is read from the first position.
  float *last = pass->scratch->x + (spec->head == HEED_HEAD_CLASS ? 0 : (pass->rows - n) * spec->width), *h = pass->scratch->h;
  if (model->final_norm.weight) hd_rows_norm(pass->context, spec, &model->final_norm, last, n, last);
  const float scale = (float)(1 / sqrt((double)spec->width));
  for (int64_t i = 0; spec->scaled_logits && i < n * spec->width; i++) last[i] *= scale;
  if (model->head_dense.parts > 0) {
    HD_TRY(head_input(pass, last, n, h));
    last = h;
  }
  HD_TRY(hd_matrix_product(pass->context, model->head, last, n, spec->width, model->head_bias, pass->logits, hd_spec_outputs(spec)));
  if (spec->logit_softcap > 0)
    for (int64_t i = 0; i < n * hd_spec_outputs(spec); i++)
      pass->logits[i] = (float)(spec->logit_softcap * tanh((double)pass->logits[i] / spec->logit_softcap));
  return HEED_OK;
}

static void turn_table(const hd_pass *pass, const hd_rope_turns *turns, float *cosine, float *sine) {
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count; span++) {
    hd_rope_table(pass->context, turns, span->first, span->rows, cosine, sine);
    cosine += span->rows * turns->pairs;
    sine += span->rows * turns->pairs;
  }
}

/* What each row turns by, and the sinks of a stream that has gone round. */
static void turn_tables(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_stream *stream = wraps(pass) ? pass->stream : NULL;
  double frequency[HD_MAX_HEAD_DIM / 2];
  hd_rope_turns turns = model->turns;
  // By the longest that the sequences may become, so that neither passes nor tokens to come change what is in the cache.
  if (model->spec.rotary.kind == HEED_ROPE_DYNAMIC && pass->capacity > model->spec.rotary.context) {
    heed_rope_scaling scaling = model->spec.rotary;
    scaling.length = pass->capacity;
    hd_rope_frequencies(&scaling, hd_spec_exponent(&model->spec), frequency);
    turns.frequency = frequency;
  }
  turn_table(pass, &turns, pass->scratch->cosine, pass->scratch->sine);
  if (model->spec.rotary_local.size) turn_table(pass, &model->local, pass->scratch->local_cosine, pass->scratch->local_sine);
  if (!stream) return;
  const int64_t first = hd_stream_first(stream, pass->spans->first);
  hd_rope_table(pass->context, &turns, first, stream->sinks, stream->cosine, stream->sine);
  if (model->spec.rotary_local.size)
    hd_rope_table(pass->context, &model->local, first, stream->sinks, stream->local_cosine, stream->local_sine);
}

heed_status hd_transformer_run(const hd_pass *pass) {
  const hd_transformer_spec *spec = &pass->model->spec;
  embed(pass);
  if (hd_spec_rotates(spec)) turn_tables(pass);
  for (int64_t i = 0; i < spec->layers; i++) {
    if (pass->progress_total)
      HD_TRY(hd_progress(pass->context, "prefill", pass->progress_done + pass->rows * i / spec->layers, pass->progress_total));
    HD_TRY(self_attention(pass, i));
    if (spec->cross) HD_TRY(cross_attention(pass, i));
    if (!spec->parallel) HD_TRY(feed_forward(pass, i));
  }
  return result(pass);
}
