/* transformer.c: the block, steered by the spec alone.
 *
 * A pass takes rows of one sequence at positions [first, first + rows) through all layers. Products, attention and row operations each give a row the same bits
 * whatever other rows are in the call; so a prompt may be cut into passes anywhere, which the session does. */
#include "../attn/rope.h"
#include "rows.h"
#include "session.h"

#include <math.h>

static void add_row(const hd_pass *pass, const hd_matrix *matrix, int64_t r, float *row, float *x) {
  hd_matrix_row(pass->context, matrix, r, row);
  for (int64_t i = 0; i < pass->model->spec.width; i++) x[i] += row[i];
}

static void embed(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  float *row = pass->scratch->h; // free until the first norm
  for (int64_t r = 0; r < pass->rows; r++) {
    float *x = pass->scratch->x + r * spec->width;
    hd_matrix_row(pass->context, &model->embedding, pass->ids[r], x);
    if (spec->embedding_scale != 0)
      for (int64_t i = 0; i < spec->width; i++) x[i] *= (float)spec->embedding_scale;
    if (spec->segments > 0) add_row(pass, &model->segment, 0, row, x);
    if (spec->positions == HD_POSITIONS_LEARNED) add_row(pass, &model->position, pass->first + r, row, x);
  }
  if (spec->embedding_norm) hd_rows_norm(pass->context, spec, &model->embedding_norm, pass->scratch->x, pass->rows, pass->scratch->x);
}

/* What a sublayer reads: the norm of the stream, or the stream itself where norms come after. */
static const float *sublayer_input(const hd_pass *pass, const hd_norm *norm) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  if (spec->norm_place == HD_NORM_AFTER) return s->x;
  hd_rows_norm(pass->context, spec, norm, s->x, pass->rows, s->h);
  return s->h;
}

/* Adds what a sublayer gave, in h, to the stream. */
static void sublayer_add(const hd_pass *pass, const hd_norm *norm) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  hd_rows_add(pass->context, s->x, s->h, pass->rows, spec->width);
  if (spec->norm_place == HD_NORM_AFTER) hd_rows_norm(pass->context, spec, norm, s->x, pass->rows, s->x);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------ */

/* Queries and keys turn to their positions, by the tables of this pass. Keys lie behind queries: one sweep turns both. */
static heed_status turn(const hd_pass *pass, int64_t qkv_stride) {
  const hd_transformer_spec *spec = &pass->model->spec;
  hd_scratch *s = pass->scratch;
  const heed_view rows = {s->qkv, HEED_F32, 3, {spec->heads + spec->kv_heads, pass->rows, spec->head_dim}, {spec->head_dim, qkv_stride, 1}};
  const heed_view cosine = heed_view_of(s->cosine, HEED_F32, 2, (int64_t[]){pass->rows, spec->rotary_dim / 2});
  const heed_view sine = heed_view_of(s->sine, HEED_F32, 2, (int64_t[]){pass->rows, spec->rotary_dim / 2});
  const heed_rope rope = {.size = sizeof rope,
                          .interleaved = spec->positions == HD_POSITIONS_ROTARY_INTERLEAVED,
                          .rotary_dim = spec->rotary_dim,
                          .cosine = &cosine,
                          .sine = &sine};
  return heed_rope_apply(pass->context, &rope, &rows, &rows);
}

/* Keys and values into the cache. */
static heed_status store(const hd_pass *pass, int64_t layer, int64_t qkv_stride) {
  const hd_transformer_spec *spec = &pass->model->spec;
  int64_t q = spec->heads * spec->head_dim, kv = spec->kv_heads * spec->head_dim;
  heed_view k = {pass->scratch->qkv + q, HEED_F32, 3, {spec->kv_heads, pass->rows, spec->head_dim}, {spec->head_dim, qkv_stride, 1}}, v = k;
  v.data = pass->scratch->qkv + q + kv;
  return heed_cache_append(pass->cache, layer, &k, &v);
}

static heed_attention attention_of(const hd_pass *pass, int64_t layer) {
  const hd_transformer_spec *spec = &pass->model->spec;
  int64_t window = hd_spec_window(spec, layer);
  return (heed_attention){.size = sizeof(heed_attention),
                          .causal = !spec->bidirectional,
                          .has_scale = spec->attention_scale != 0,
                          .scale = spec->attention_scale,
                          .has_window_left = window > 0,
                          .window_left = window > 0 ? window - 1 : 0,
                          .softcap = spec->attention_softcap,
                          .align = HEED_ALIGN_GIVEN,
                          .offset = pass->first};
}

static bool watches(const heed_watch *watch, int64_t layer) {
  if (!watch) return false;
  if (!watch->layers) return true;
  for (int64_t i = 0; i < watch->n_layers; i++)
    if (watch->layers[i] == layer) return true;
  return false;
}

/* The fused kernel without its own reports: the pass tells the host how far it is, layer by layer, and another count in between would only confuse. */
static heed_status attend_quietly(heed_context *context, const hd_mixing *mixing) {
  heed_progress progress = context->progress;
  context->progress = NULL;
  heed_status status = hd_attention_run(context, mixing->attention, NULL, &mixing->q, mixing->k, mixing->v, &mixing->out, NULL);
  context->progress = progress;
  return status;
}

static heed_status attend(const hd_pass *pass, int64_t i) {
  const hd_transformer_spec *spec = &pass->model->spec;
  const hd_layer *layer = &pass->model->layers[i];
  hd_scratch *s = pass->scratch;
  int64_t d = spec->head_dim, width = spec->heads * d, qkv_stride = layer->qkv.outputs;

  const float *in = sublayer_input(pass, &layer->attention_norm);
  HD_TRY(hd_stack_product(pass->context, &layer->qkv, in, pass->rows, spec->width, s->qkv, qkv_stride));
  if (spec->positions != HD_POSITIONS_LEARNED) HD_TRY(turn(pass, qkv_stride));
  HD_TRY(store(pass, i, qkv_stride));

  hd_source k, v;
  heed_attention a = attention_of(pass, i);
  hd_mixing mixing = {.layer = i, .keys = pass->first + pass->rows, .attention = &a, .k = &k, .v = &v};
  mixing.q = (heed_view){s->qkv, HEED_F32, 3, {spec->heads, pass->rows, d}, {d, qkv_stride, 1}};
  mixing.out = (heed_view){s->mixed, HEED_F32, 3, {spec->heads, pass->rows, d}, {d, width, 1}};
  hd_source_of_cache(pass->context, pass->cache, &mixing.layer, 1, false, &k);
  hd_source_of_cache(pass->context, pass->cache, &mixing.layer, 1, true, &v);
  HD_TRY(attend_quietly(pass->context, &mixing));
  if (watches(pass->watch, i)) HD_TRY(hd_watch_layer(pass, &mixing));

  HD_TRY(hd_stack_product(pass->context, &layer->output, s->mixed, pass->rows, width, s->h, spec->width));
  sublayer_add(pass, &layer->attention_norm);
  return HEED_OK;
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
  sublayer_add(pass, &layer->feed_forward_norm);
  return HEED_OK;
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

static heed_status logits(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  int64_t n = pass->logit_rows;
  if (!n) return HEED_OK;
  // A class is read from the first position.
  float *last = pass->scratch->x + (spec->head == HEED_HEAD_CLASS ? 0 : (pass->rows - n) * spec->width), *h = pass->scratch->h;
  if (model->final_norm.weight) hd_rows_norm(pass->context, spec, &model->final_norm, last, n, last);
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

heed_status hd_transformer_run(const hd_pass *pass) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  embed(pass);
  if (spec->positions != HD_POSITIONS_LEARNED)
    hd_rope_table(pass->context, model->frequency, spec->rotary_dim / 2, pass->first, pass->rows, pass->scratch->cosine,
                  pass->scratch->sine);
  for (int64_t i = 0; i < spec->layers; i++) {
    if (pass->progress_total)
      HD_TRY(hd_progress(pass->context, "prefill", pass->progress_done + pass->rows * i / spec->layers, pass->progress_total));
    HD_TRY(attend(pass, i));
    HD_TRY(feed_forward(pass, i));
  }
  return logits(pass);
}
