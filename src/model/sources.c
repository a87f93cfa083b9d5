/* sources.c: what a decoder is about: sources run through the encoder, several at once, and what each layer of the decoder sees of them, computed once and kept. */
#include "session.h"

heed_status hd_stack_cache_new(heed_context *context, const heed_model *model, int64_t sequences, heed_cache **out) {
  const hd_transformer_spec *spec = &model->spec;
  heed_cache_spec cache = {.size = sizeof cache, .kv_heads = spec->kv_heads, .d = spec->head_dim, .dv = spec->head_dim};
  HD_REQUIRE(hd_mul(sequences, spec->layers, &cache.sequences), context, HEED_E_OVERFLOW, "%lld sequences are too many to count",
             (long long)sequences);
  return heed_cache_new(context, &cache, out);
}

/* Keys and values of one layer, [rows, 2 · kv_heads · head_dim], into the cache: those of each span in place of what its source had. */
static heed_status keep(const hd_pass *pass, const hd_transformer_spec *spec, int64_t layer, float *kv, heed_cache *cross) {
  const int64_t d = spec->head_dim, side = spec->kv_heads * d;
  for (const hd_span *span = pass->spans; span < pass->spans + pass->span_count; kv += span++->rows * 2 * side) {
    const heed_view k = {kv, HEED_F32, 3, {spec->kv_heads, span->rows, d}, {d, 2 * side, 1}};
    heed_view v = k;
    v.data = kv + side;
    HD_TRY(heed_cache_truncate(cross, span->source * spec->layers + layer, 0));
    HD_TRY(heed_cache_append(cross, span->source * spec->layers + layer, &k, &v));
  }
  return HEED_OK;
}

heed_status hd_sources_run(const hd_pass *given, heed_cache *cross) {
  heed_context *context = given->context;
  const hd_transformer_spec *spec = &given->model->spec, *encoder = &given->model->encoder->spec;
  const int64_t floats = given->rows * 2 * spec->kv_heads * spec->head_dim; // no more than activations that there is room for
  hd_pass pass = *given;
  pass.model = given->model->encoder;
  pass.stage = HEED_STAGE_ENCODER;
  HD_TRY(hd_scratch_reserve(context, encoder, pass.scratch, pass.rows));
  HD_TRY(hd_transformer_run(&pass));
  float *kv;
  HD_TRY(hd_allocate(context, "keys and values of sources", floats, sizeof *kv, &kv));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < spec->layers && status == HEED_OK; i++) {
    const hd_stack *stack = &given->model->layers[i].cross_kv;
    status = hd_stack_product(context, stack, pass.scratch->x, pass.rows, encoder->width, kv, stack->outputs);
    if (status == HEED_OK) status = keep(&pass, spec, i, kv, cross);
  }
  hd_release(context, kv, floats, sizeof *kv);
  return status;
}
