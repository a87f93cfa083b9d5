/* layer_forward.c: the forward pass of the multi-head layer: projections, attention of the heads where the projections lie, weights if somebody wants to look, the output's projection. */
#include "layer.h"

static heed_status project(const hd_layer *layer, const hd_layer_arrays *arrays) {
  const heed_view *const lists[] = {layer->w, layer->b};
  for (int first = 0, end; first < HD_PROJECTIONS; first = end) {
    heed_view joined[2];
    end = hd_layer_run(layer, first, lists, 2, joined);
    const heed_gemm_form form = {.size = sizeof form, .transpose_b = true, .bias = joined[1].ndim ? &joined[1] : NULL};
    heed_view rows = hd_layer_projected(layer, arrays, first, end);
    HD_TRY(heed_gemm(layer->context, &form, &layer->x[first], &joined[0], &rows));
  }
  return HEED_OK;
}

/* Global tokens' queries, and keys and values of all rows for them. */
static heed_status project_global(const hd_layer *layer, const hd_layer_arrays *arrays) {
  const heed_view *w = layer->w_global, *b = layer->b_global, w_kv = hd_both(w[HD_K], &w[HD_V]), b_kv = hd_both(b[HD_K], &b[HD_V]);
  const heed_view x = hd_first(layer->x[HD_Q], 1, layer->global), q = hd_layer_global(layer, arrays, HD_Q, HD_K),
                  kv = hd_layer_global(layer, arrays, HD_K, HD_PROJECTIONS);
  const bool biased = layer->of.b_qkv_global;
  heed_gemm_form form = {.size = sizeof form, .transpose_b = true, .bias = biased ? &b[HD_Q] : NULL};
  HD_TRY(heed_gemm(layer->context, &form, &x, &w[HD_Q], &q));
  form.bias = biased ? &b_kv : NULL;
  return heed_gemm(layer->context, &form, &layer->x[HD_Q], &w_kv, &kv);
}

/* Rows of global tokens take the place of those that the other projections gave. */
static heed_status attend_globally(const hd_layer *layer, const hd_layer_arrays *arrays, bool saved) {
  const heed_view q = hd_layer_split(hd_layer_global(layer, arrays, HD_Q, HD_K), layer->heads),
                  k = hd_layer_split(hd_layer_global(layer, arrays, HD_K, HD_V), layer->kv_heads),
                  v = hd_layer_split(hd_layer_global(layer, arrays, HD_V, HD_PROJECTIONS), layer->kv_heads),
                  heads = hd_first(hd_layer_split(hd_layer_heads(layer, arrays), layer->heads), 2, layer->global),
                  lse = hd_first(hd_layer_lse(layer, arrays), 2, layer->global);
  const heed_attention_extras extras = {.size = sizeof extras, .lse = saved ? &lse : NULL};
  HD_TRY(project_global(layer, arrays));
  return heed_attention_forward(layer->context, &layer->global_attention, &q, &k, &v, &heads, &extras);
}

static heed_status attend(const hd_layer *layer, const hd_layer_arrays *arrays, const heed_multi_head_extras *asked) {
  heed_view q = hd_layer_split(hd_layer_projected(layer, arrays, HD_Q, HD_K), layer->heads);
  heed_view k = hd_layer_split(hd_layer_projected(layer, arrays, HD_K, HD_V), layer->kv_heads);
  heed_view v = hd_layer_split(hd_layer_projected(layer, arrays, HD_V, HD_PROJECTIONS), layer->kv_heads);
  heed_view heads = hd_layer_split(hd_layer_heads(layer, arrays), layer->heads), lse = hd_layer_lse(layer, arrays);
  const heed_attention_extras extras = {.size = sizeof extras, .lse = asked->saved ? &lse : NULL};
  HD_TRY(heed_attention_forward(layer->context, layer->of.attention, &q, &k, &v, &heads, &extras));
  if (hd_layer_has_global(layer)) HD_TRY(attend_globally(layer, arrays, asked->saved != NULL));
  if (!asked->weights) return HEED_OK;
  return heed_attention_weights(layer->context, layer->of.attention, &q, &k, asked->rows, asked->weights);
}

/* Dropout acts on f32: an output of halves is made in `scratch` and rounded once. */
static heed_status project_out(const hd_layer *layer, const hd_layer_arrays *arrays, const heed_view *out, float *scratch) {
  heed_view heads = hd_layer_heads(layer, arrays), result = scratch ? heed_view_of(scratch, HEED_F32, 3, out->dim) : *out;
  const heed_gemm_form form = {.size = sizeof form, .transpose_b = true, .bias = layer->b_o.ndim ? &layer->b_o : NULL};
  HD_TRY(heed_gemm(layer->context, &form, &heads, &layer->w_o, &result));
  if (layer->of.dropout > 0) hd_layer_copy(layer, scratch ? &result : out, out, true);
  return HEED_OK;
}

/* `arrays` are the caller's where they are saved, otherwise they go into memory of their own. */
static heed_status run(const hd_layer *layer, hd_layer_arrays *arrays, const heed_view *out, const heed_multi_head_extras *asked) {
  heed_context *context = layer->context;
  const bool direct = layer->of.dropout == 0 || (out->type == HEED_F32 && out->stride[2] == 1);
  const int64_t scratch_floats = direct ? 0 : hd_view_count(out);
  int64_t floats = 0;
  float *memory = NULL, *scratch = NULL;
  heed_status status = HEED_OK;
  if (!asked->saved) {
    HD_REQUIRE(hd_layer_cut(layer, arrays, NULL, &floats), context, HEED_E_OVERFLOW, "the projections do not fit in memory");
    HD_TRY(hd_allocate(context, "projections", floats, sizeof *memory, &memory));
    int64_t used = 0;
    hd_layer_cut(layer, arrays, memory, &used);
  }
  if (!direct) HD_TRY_DONE(hd_allocate(context, "the output before dropout", scratch_floats, sizeof *scratch, &scratch));
  HD_TRY_DONE(project(layer, arrays));
  HD_TRY_DONE(attend(layer, arrays, asked));
  HD_TRY_DONE(project_out(layer, arrays, out, scratch));
done:
  hd_release(context, scratch, scratch_floats, sizeof *scratch);
  hd_release(context, memory, floats, sizeof *memory);
  return status;
}

/* That the weights asked for exist is found out before anything is written. */
static heed_status check_weights(hd_layer *layer, const heed_multi_head_extras *asked) {
  if (!asked->weights) return HEED_OK;
  HD_REQUIRE(!hd_layer_has_global(layer), layer->context, HEED_E_UNSUPPORTED,
             "weights cannot be asked for where global tokens have projections of their own");
  HD_TRY(hd_view_check(layer->context, asked->weights, "weights"));
  HD_TRY(hd_layer_apart(layer, asked->weights, "weights"));
  heed_attention_rows rows;
  hd_grid weights, queries = {.lead = 1, .lead_dim = {layer->batch}, .batch = layer->batch};
  HD_TRY(hd_rows_read(&layer->problem, asked->rows, &rows));
  HD_TRY(hd_grid_make(layer->context, asked->weights, "weights", &weights));
  HD_TRY(hd_grid_expect(layer->context, &weights, asked->weights, "weights", &queries, rows.n_heads, rows.n_rows, layer->keys));
  HD_REQUIRE(weights.type == HEED_F32, layer->context, HEED_E_TYPE, "weights is %s, allowed f32", heed_type_name(weights.type));
  return HEED_OK;
}

heed_status heed_multi_head_forward(heed_context *context, const heed_multi_head *given, const heed_view *x_query, const heed_view *x_key,
                                    const heed_view *x_value, const heed_view *out, const heed_multi_head_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_layer layer;
  hd_layer_arrays arrays = {0};
  heed_view result;
  heed_multi_head_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_multi_head_extras", extras, &asked, sizeof asked));
  HD_TRY(hd_layer_read(context, given, x_query, x_key, x_value, HD_NARROW, &layer));
  HD_TRY(hd_layer_out(&layer, out, &result));
  if (asked.saved) HD_TRY(hd_layer_saved(&layer, asked.saved, &arrays));
  HD_TRY(check_weights(&layer, &asked));
  return run(&layer, &arrays, &result, &asked);
}

heed_status heed_multi_head_saved_size(heed_context *context, const heed_multi_head *given, const heed_view *x_query,
                                       const heed_view *x_key, const heed_view *x_value, int64_t *floats) {
  if (!context) return HEED_E_ARGUMENT;
  hd_layer layer;
  hd_layer_arrays arrays;
  int64_t sum = 0;
  HD_REQUIRE(floats, context, HEED_E_ARGUMENT, "floats: null");
  HD_TRY(hd_layer_read(context, given, x_query, x_key, x_value, HD_NARROW, &layer));
  HD_REQUIRE(hd_layer_cut(&layer, &arrays, NULL, &sum), context, HEED_E_OVERFLOW, "the projections do not fit in memory");
  *floats = sum;
  return HEED_OK;
}
