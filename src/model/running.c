/* running.c: linear attention in the transformer: random rows, states, and the call with the pass's own views. */
#include "running.h"

/* Features of a row of one layer, which all random kinds of a model may have in different numbers. */
static heed_status width_of(heed_context *context, const heed_model *model, int64_t layer, const heed_view *projection, int64_t *out) {
  const hd_attention_kind kind = hd_kind_of(&model->kinds, layer);
  const heed_linear_attention a = hd_kind_linear(&kind, &model->spec, projection);
  return heed_linear_width(context, &a, model->spec.head_dim, out);
}

static heed_view projection_of(const heed_model *model, int64_t layer) {
  const int64_t rows = hd_kind_of(&model->kinds, layer).rows;
  return heed_view_of((void *)model->layers[layer].projection, HEED_F32, 2, (int64_t[]){rows, model->spec.head_dim});
}

heed_status hd_linear_load(heed_context *context, heed_model *model) {
  const hd_transformer_spec *spec = &model->spec;
  for (int64_t i = 0; i < spec->layers; i++) {
    const hd_attention_kind kind = hd_kind_of(&model->kinds, i);
    if (kind.rows == 0) continue;
    float *rows;
    HD_TRY(hd_arena_allocate(&model->arena, context, "random features", kind.rows * spec->head_dim, sizeof *rows, &rows));
    model->layers[i].projection = rows;
    const heed_view view = projection_of(model, i);
    const heed_linear_draw_options draw = {.size = sizeof draw, .seed = kind.seed, .stream = (uint32_t)i};
    HD_TRY(heed_linear_draw(context, &draw, &view));
  }
  return HEED_OK;
}

/* ---- states ------------------------------------------------------------------------------------------------------------------ */

heed_status hd_running_new(heed_context *context, const heed_model *model, hd_running **out) {
  const hd_transformer_spec *spec = &model->spec;
  hd_running *r;
  *out = NULL;
  if (spec->bidirectional || !hd_kinds_linear(&model->kinds)) return HEED_OK;
  HD_TRY(hd_allocate(context, "states of linear attention", 1, sizeof *r, &r));
  *r = (hd_running){.layers = spec->layers};
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < spec->layers && status == HEED_OK; i++) {
    const heed_view projection = projection_of(model, i);
    int64_t width = 0;
    if (hd_kind_of(&model->kinds, i).linear) status = width_of(context, model, i, &projection, &width);
    r->floats = HD_MAX(r->floats, spec->kv_heads * (width * (spec->head_dim + 1) + 1));
  }
  if (status == HEED_OK) status = hd_allocate(context, "states of linear attention", r->layers * r->floats, sizeof *r->state, &r->state);
  if (status != HEED_OK) hd_running_free(context, r);
  else *out = r;
  return status;
}

void hd_running_free(heed_context *context, hd_running *r) {
  if (!r) return;
  hd_release(context, r->state, r->layers * r->floats, sizeof *r->state);
  hd_release(context, r, 1, sizeof *r);
}

/* ---- a call ------------------------------------------------------------------------------------------------------------------- */

/* Everything that a call for `rows` rows from `row` of the pass on is made of. */
typedef struct call {
  heed_linear_attention attention;
  heed_view projection, q, k, v, out, sums, normaliser, exponent;
  heed_linear_state state;
} call;

static heed_view rows_of(float *data, int64_t row, int64_t rows, int64_t stride, int64_t heads, int64_t d) {
  return (heed_view){data + row * stride, HEED_F32, 4, {1, heads, rows, d}, {0, d, stride, 1}};
}

static heed_status prepare(const hd_pass *pass, int64_t layer, int64_t row, int64_t rows, call *c) {
  const heed_model *model = pass->model;
  const hd_transformer_spec *spec = &model->spec;
  const hd_attention_kind kind = hd_kind_of(&model->kinds, layer);
  const int64_t d = spec->head_dim, q = spec->heads * d, kv = spec->kv_heads * d, stride = hd_spec_qkv(spec);
  float *x = pass->scratch->qkv, *at;
  int64_t width;
  c->projection = projection_of(model, layer);
  c->attention = hd_kind_linear(&kind, spec, &c->projection);
  c->q = rows_of(x, row, rows, stride, spec->heads, d);
  c->k = rows_of(x + q, row, rows, stride, spec->kv_heads, d);
  c->v = rows_of(x + q + kv, row, rows, stride, spec->kv_heads, d);
  c->out = rows_of(pass->scratch->mixed, row, rows, q, spec->heads, d);
  if (!pass->running) return HEED_OK;
  HD_TRY(width_of(pass->context, model, layer, &c->projection, &width));
  at = pass->running->state + layer * pass->running->floats;
  c->sums = heed_view_of(at, HEED_F32, 4, (int64_t[]){1, spec->kv_heads, width, d});
  c->normaliser = heed_view_of(at + spec->kv_heads * width * d, HEED_F32, 3, (int64_t[]){1, spec->kv_heads, width});
  c->exponent = heed_view_of(at + spec->kv_heads * width * (d + 1), HEED_F32, 2, (int64_t[]){1, spec->kv_heads});
  c->state = (heed_linear_state){
      .size = sizeof c->state, .sums = &c->sums, .normaliser = &c->normaliser, .exponent = kind.rows > 0 ? &c->exponent : NULL};
  return HEED_OK;
}

static heed_status attend(const hd_pass *pass, int64_t layer) {
  int64_t row = 0;
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count; row += span++->rows) {
    call c;
    HD_TRY(prepare(pass, layer, row, span->rows, &c));
    const heed_linear_extras extras = {.size = sizeof extras, .after = pass->running ? &c.state : NULL};
    if (pass->running && span->first > 0) c.attention.before = &c.state;
    HD_TRY(heed_linear_forward(pass->context, &c.attention, &c.q, &c.k, &c.v, &c.out, &extras));
  }
  return HEED_OK;
}

/* Without its own reports, as the block's other calls. */
heed_status hd_linear_attend(const hd_pass *pass, int64_t layer) {
  heed_progress progress = pass->context->progress;
  pass->context->progress = NULL;
  const heed_status status = attend(pass, layer);
  pass->context->progress = progress;
  return status;
}

/* What values that tell keys apart become are the weights: out = A · 1. */
heed_status hd_linear_weights(const hd_pass *pass, int64_t layer, int64_t n_heads, const int64_t *heads, float *weights, uint8_t *visible) {
  (void)visible; // everyone meets everyone
  const hd_transformer_spec *spec = &pass->model->spec;
  const int64_t n = pass->rows, group = spec->heads / spec->kv_heads;
  float *unit;
  call c;
  HD_REQUIRE(pass->span_count == 1 && pass->spans->first == 0, pass->context, HEED_E_UNSUPPORTED,
             "%s: layer %lld has linear attention, whose weights are known only of a run that begins with the first token",
             pass->model->name, (long long)layer);
  HD_TRY(prepare(pass, layer, 0, n, &c));
  HD_TRY(hd_allocate(pass->context, "values that tell keys apart", n * n, sizeof *unit, &unit));
  memset(unit, 0, (size_t)(n * n) * sizeof *unit);
  for (int64_t i = 0; i < n; i++) unit[i * n + i] = 1;
  heed_status status = HEED_OK;
  const heed_view v = heed_view_of(unit, HEED_F32, 4, (int64_t[]){1, 1, n, n});
  for (int64_t i = 0; i < n_heads && status == HEED_OK; i++) {
    heed_view q = c.q, k = c.k;
    const heed_view out = heed_view_of(weights + i * n * n, HEED_F32, 4, (int64_t[]){1, 1, n, n});
    q.data = (float *)q.data + heads[i] * q.stride[1];
    k.data = (float *)k.data + heads[i] / group * k.stride[1];
    q.dim[1] = k.dim[1] = 1;
    status = heed_linear_forward(pass->context, &c.attention, &q, &k, &v, &out, NULL);
  }
  hd_release(pass->context, unit, n * n, sizeof *unit);
  return status;
}
