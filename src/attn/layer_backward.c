/* layer_backward.c: the gradients of the multi-head layer. Each line of the forward pass y = x · Wᵀ + b gives dx = dy · W, dW = dyᵀ · x and db = Σ dy over rows; between the two
 * projections lie the gradients of attention. What the projections' gradients need lies in rows as the projections themselves do. */
#include "backward.h"
#include "layer.h"

/* ---- where gradients go ------------------------------------------------------------------------------------------------------------------ */

/* One gradient, of the shape of its input; *out is left absent where it is not asked for. */
static heed_status read_one(hd_layer *layer, const heed_view *view, const char *name, const heed_view *like, heed_view *out) {
  if (!view) return HEED_OK;
  HD_TRY(hd_gradient_check(layer->context, view, name, like));
  if (layer->width == HD_NARROW) HD_TRY(hd_storable(layer->context, &(hd_grid){.type = view->type}, name));
  HD_TRY(hd_layer_apart(layer, view, name));
  *out = *view;
  return HEED_OK;
}

heed_status hd_layer_gradients_read(hd_layer *layer, const heed_view *const x[HD_PROJECTIONS], const heed_multi_head_gradients *gradients,
                                    hd_layer_gradients *out) {
  const heed_multi_head *of = &layer->of;
  heed_multi_head_gradients to = {.size = sizeof to};
  HD_REQUIRE(gradients, layer->context, HEED_E_ARGUMENT, "heed_multi_head_gradients: null");
  HD_TRY(hd_options_read(layer->context, "heed_multi_head_gradients", gradients, &to, sizeof to));
  *out = (hd_layer_gradients){.accumulate = to.accumulate, .dbias = to.dbias, .dsink = to.dsink, .drelative = to.drelative};
  heed_view dw_qkv = {0}, db_qkv = {0}, dw_global = {0}, db_global = {0}, dbias, dsink, drelative;
  HD_TRY(read_one(layer, to.dx_query, "dx_query", x[HD_Q], &out->dx[HD_Q]));
  HD_TRY(read_one(layer, to.dx_key, "dx_key", x[HD_K], &out->dx[HD_K]));
  HD_TRY(read_one(layer, to.dx_value, "dx_value", x[HD_V], &out->dx[HD_V]));
  HD_TRY(read_one(layer, to.dw_qkv, "dw_qkv", of->w_qkv, &dw_qkv));
  HD_TRY(read_one(layer, to.db_qkv, "db_qkv", of->b_qkv, &db_qkv));
  HD_TRY(read_one(layer, to.dw_q, "dw_q", of->w_q, &out->dw[HD_Q]));
  HD_TRY(read_one(layer, to.dw_k, "dw_k", of->w_k, &out->dw[HD_K]));
  HD_TRY(read_one(layer, to.dw_v, "dw_v", of->w_v, &out->dw[HD_V]));
  HD_TRY(read_one(layer, to.db_q, "db_q", of->b_q, &out->db[HD_Q]));
  HD_TRY(read_one(layer, to.db_k, "db_k", of->b_k, &out->db[HD_K]));
  HD_TRY(read_one(layer, to.db_v, "db_v", of->b_v, &out->db[HD_V]));
  HD_TRY(read_one(layer, to.dw_o, "dw_o", of->w_o, &out->dw_o));
  HD_TRY(read_one(layer, to.db_o, "db_o", of->b_o, &out->db_o));
  HD_TRY(read_one(layer, to.dbias, "dbias", layer->problem.a.bias, &dbias));
  HD_TRY(read_one(layer, to.dsink, "dsink", layer->problem.a.sink, &dsink));
  HD_TRY(read_one(layer, to.drelative, "drelative", layer->problem.a.relative, &drelative));
  HD_TRY(read_one(layer, to.dw_qkv_global, "dw_qkv_global", of->w_qkv_global, &dw_global));
  HD_TRY(read_one(layer, to.db_qkv_global, "db_qkv_global", of->b_qkv_global, &db_global));
  if (to.dw_qkv_global) hd_layer_unpack(layer, &dw_global, out->dw_global);
  if (to.db_qkv_global) hd_layer_unpack(layer, &db_global, out->db_global);
  if (to.dw_qkv) hd_layer_unpack(layer, &dw_qkv, out->dw);
  if (to.db_qkv) hd_layer_unpack(layer, &db_qkv, out->db);
  for (int i = 0; i < HD_PROJECTIONS; i++)
    if (out->dx[i].ndim) HD_TRY(hd_layer_sequences(layer->context, &out->dx[i], "dx", &out->dx[i]));
  return HEED_OK;
}

/* ---- the call ------------------------------------------------------------------------------------------------------------------------------ */

struct pass {
  const hd_layer *layer;
  const hd_layer_gradients *to;
  hd_layer_arrays saved, d;          /* what forward computed, and its gradients */
  heed_view dout, x[HD_PROJECTIONS]; /* with rows evenly spaced through the batch where sums over rows need that */
  float *dout_copy, *x_copy[HD_PROJECTIONS], *dx_copy[HD_PROJECTIONS];
  heed_view x_first; /* the rows of global tokens, where their weights' gradient is asked for: in a batch they never lie evenly spaced */
  float *x_first_copy;
};

static bool folds(const heed_view *rows) { return hd_view_fold(rows, &(heed_view){0}); }

/* Which sums over the rows of a source's input are asked for. */
static bool sums_over(const struct pass *pass, int source) {
  bool asked = false;
  for (int i = 0; i < HD_PROJECTIONS; i++) asked |= pass->layer->source[i] == source && pass->to->dw[i].ndim;
  return asked || pass->to->dw_global[source].ndim;
}

/* A gradient of halves that several products add to is made in f32 and rounded once. */
static bool needs_copy(const struct pass *pass, int source) {
  const hd_layer *layer = pass->layer;
  const heed_view *const lists[] = {layer->w};
  heed_view joined;
  if (!pass->to->dx[source].ndim || pass->to->dx[source].type == HEED_F32) return false;
  int end = hd_layer_run(layer, source, lists, 1, &joined);
  return hd_layer_has_global(layer) || (end < HD_PROJECTIONS && layer->source[end] == source);
}

/* As hd_cut, all memory of the pass. */
static bool cut(struct pass *pass, float *memory, int64_t *floats) {
  const hd_layer *layer = pass->layer;
  if (!hd_layer_cut(layer, &pass->d, memory, floats)) return false;
  int64_t rows[] = {layer->queries, layer->keys, layer->keys};
  const bool dout_copied = layer->of.dropout > 0 || ((pass->to->dw_o.ndim || pass->to->db_o.ndim) && !folds(&pass->dout));
  const hd_part dout = {&pass->dout_copy, layer->batch * layer->queries, layer->outputs};
  const hd_part first = {&pass->x_first_copy, layer->batch * layer->global, layer->x[HD_Q].dim[2]};
  if (dout_copied && !hd_cut(memory, &dout, 1, floats)) return false;
  if (pass->to->dw_global[HD_Q].ndim && !hd_cut(memory, &first, 1, floats)) return false;
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const hd_part x = {&pass->x_copy[i], layer->batch * rows[i], layer->x[i].dim[2]}, dx = {&pass->dx_copy[i], x.rows, x.columns};
    if (layer->source[i] != i) continue;
    if (sums_over(pass, i) && !folds(&layer->x[i]) && !hd_cut(memory, &x, 1, floats)) return false;
    if (needs_copy(pass, i) && !hd_cut(memory, &dx, 1, floats)) return false;
  }
  return true;
}

/* Copies of what does not do as it lies. */
static void prepare(struct pass *pass) {
  const hd_layer *layer = pass->layer;
  heed_view copy;
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    pass->x[i] = layer->x[i];
    if (!pass->x_copy[i]) continue;
    copy = heed_view_of(pass->x_copy[i], HEED_F32, 3, layer->x[i].dim);
    hd_layer_copy(layer, &layer->x[i], &copy, false);
    pass->x[i] = copy;
  }
  for (int i = 0; i < HD_PROJECTIONS; i++) pass->x[i] = pass->x[layer->source[i]];
  if (pass->x_first_copy) {
    const heed_view first = hd_first(layer->x[HD_Q], 1, layer->global);
    pass->x_first = heed_view_of(pass->x_first_copy, HEED_F32, 3, first.dim);
    hd_layer_copy(layer, &first, &pass->x_first, false);
  }
  if (!pass->dout_copy) return;
  copy = heed_view_of(pass->dout_copy, HEED_F32, 3, pass->dout.dim);
  hd_layer_copy(layer, &pass->dout, &copy, true);
  pass->dout = copy;
}

/* dW (+)= dyᵀ · x over all rows of the batch. */
static heed_status add_weights(const struct pass *pass, const heed_view *dy, const heed_view *x, const heed_view *dw) {
  heed_view dy_rows, x_rows;
  const heed_gemm_form form = {.size = sizeof form, .transpose_a = true, .accumulate = pass->to->accumulate};
  if (!dw->ndim) return HEED_OK;
  hd_view_fold(dy, &dy_rows);
  hd_view_fold(x, &x_rows);
  return heed_gemm(pass->layer->context, &form, &dy_rows, &x_rows, dw);
}

/* db (+)= Σ dy over rows: a product with a row of ones. */
static heed_status add_bias(const struct pass *pass, const heed_view *dy, const heed_view *db) {
  float one = 1;
  heed_view dy_rows, ones = {.data = &one, .type = HEED_F32, .ndim = 2, .stride = {0, 0}}, row = *db;
  const heed_gemm_form form = {.size = sizeof form, .accumulate = pass->to->accumulate};
  if (!db->ndim) return HEED_OK;
  hd_view_fold(dy, &dy_rows);
  ones.dim[0] = 1;
  ones.dim[1] = dy_rows.dim[0];
  row.ndim = 2;
  row.dim[0] = 1;
  row.dim[1] = db->dim[0];
  row.stride[1] = db->stride[0];
  return heed_gemm(pass->layer->context, &form, &ones, &dy_rows, &row);
}

/* The rows of global tokens: back to their own projections. To the others, which did not make them, they bring nothing. */
static heed_status attend_globally(const struct pass *pass, const heed_view *dheads) {
  const hd_layer *layer = pass->layer;
  heed_view y[HD_PROJECTIONS], dy[HD_PROJECTIONS];
  const heed_view heads = hd_first(hd_layer_split(hd_layer_heads(layer, &pass->saved), layer->heads), 2, layer->global),
                  lse = hd_first(hd_layer_lse(layer, &pass->saved), 2, layer->global), dout = hd_first(*dheads, 2, layer->global);
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const int64_t count = i == HD_Q ? layer->heads : layer->kv_heads;
    y[i] = hd_layer_split(hd_layer_global(layer, &pass->saved, i, i + 1), count);
    dy[i] = hd_layer_split(hd_layer_global(layer, &pass->d, i, i + 1), count);
  }
  const heed_attention_gradients gradients = {.size = sizeof gradients, .dq = &dy[HD_Q], .dk = &dy[HD_K], .dv = &dy[HD_V]};
  HD_TRY(heed_attention_backward(layer->context, &layer->global_attention, &y[HD_Q], &y[HD_K], &y[HD_V], &heads, &lse, &dout, &gradients));
  const heed_view rows = hd_layer_heads(layer, &pass->d);
  for (int64_t at = 0; at < layer->batch * layer->global; at++)
    memset((float *)rows.data + at / layer->global * rows.stride[0] + at % layer->global * rows.stride[1], 0,
           (size_t)rows.dim[2] * sizeof(float));
  return HEED_OK;
}

/* From the output's gradient to those of the projections, as far as they are asked for. */
static heed_status attend(const struct pass *pass) {
  const hd_layer *layer = pass->layer;
  const hd_layer_gradients *to = pass->to;
  heed_view y[HD_PROJECTIONS], dy[HD_PROJECTIONS], rows = hd_layer_heads(layer, &pass->d), lse = hd_layer_lse(layer, &pass->saved);
  const heed_view heads = hd_layer_split(hd_layer_heads(layer, &pass->saved), layer->heads), dheads = hd_layer_split(rows, layer->heads);
  bool asked = to->dbias || to->dsink || to->drelative || to->dw_global[HD_Q].ndim || to->db_global[HD_Q].ndim, each[HD_PROJECTIONS];
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    int64_t count = i == HD_Q ? layer->heads : layer->kv_heads;
    y[i] = hd_layer_split(hd_layer_projected(layer, &pass->saved, i, i + 1), count);
    dy[i] = hd_layer_split(hd_layer_projected(layer, &pass->d, i, i + 1), count);
    each[i] = to->dx[layer->source[i]].ndim || to->dw[i].ndim || to->db[i].ndim;
    asked |= each[i];
  }
  if (!asked) return HEED_OK;
  HD_TRY(heed_gemm(layer->context, NULL, &pass->dout, &layer->w_o, &rows));
  if (hd_layer_has_global(layer)) HD_TRY(attend_globally(pass, &dheads));
  const heed_attention_gradients gradients = {.size = sizeof gradients,
                                              .dq = each[HD_Q] ? &dy[HD_Q] : NULL,
                                              .dk = each[HD_K] ? &dy[HD_K] : NULL,
                                              .dv = each[HD_V] ? &dy[HD_V] : NULL,
                                              .dbias = to->dbias,
                                              .dsink = to->dsink,
                                              .drelative = to->drelative};
  return heed_attention_backward(layer->context, layer->of.attention, &y[HD_Q], &y[HD_K], &y[HD_V], &heads, &lse, &dheads, &gradients);
}

/* Weights and biases: one product for those whose gradients lie one behind another. */
static heed_status add_parameters(const struct pass *pass) {
  const hd_layer *layer = pass->layer;
  const hd_layer_gradients *to = pass->to;
  const heed_view *const dw[] = {to->dw}, *const db[] = {to->db};
  heed_view heads = hd_layer_heads(layer, &pass->saved), joined;
  HD_TRY(add_weights(pass, &pass->dout, &heads, &to->dw_o));
  HD_TRY(add_bias(pass, &pass->dout, &to->db_o));
  for (int first = 0, end; first < HD_PROJECTIONS; first = end) {
    end = hd_layer_run(layer, first, dw, 1, &joined);
    heed_view dy = hd_layer_projected(layer, &pass->d, first, end);
    HD_TRY(add_weights(pass, &dy, &pass->x[first], &joined));
  }
  for (int first = 0, end; first < HD_PROJECTIONS; first = end) {
    end = hd_layer_run(layer, first, db, 1, &joined);
    heed_view dy = hd_layer_projected(layer, &pass->d, first, end);
    HD_TRY(add_bias(pass, &dy, &joined));
  }
  return HEED_OK;
}

/* The weights and biases of global tokens. */
static heed_status add_global_parameters(const struct pass *pass) {
  const hd_layer *layer = pass->layer;
  const hd_layer_gradients *to = pass->to;
  const heed_view dq = hd_layer_global(layer, &pass->d, HD_Q, HD_K), dkv = hd_layer_global(layer, &pass->d, HD_K, HD_PROJECTIONS);
  const heed_view dw_kv = hd_both(to->dw_global[HD_K], &to->dw_global[HD_V]), db_kv = hd_both(to->db_global[HD_K], &to->db_global[HD_V]);
  HD_TRY(add_weights(pass, &dq, &pass->x_first, &to->dw_global[HD_Q]));
  HD_TRY(add_bias(pass, &dq, &to->db_global[HD_Q]));
  HD_TRY(add_weights(pass, &dkv, &pass->x[HD_Q], &dw_kv));
  return add_bias(pass, &dkv, &db_kv);
}

/* What global tokens' projections add to dx. */
static heed_status to_input_globally(const struct pass *pass, const heed_view *dx) {
  const hd_layer *layer = pass->layer;
  const heed_gemm_form form = {.size = sizeof form, .accumulate = true};
  const heed_view dq = hd_layer_global(layer, &pass->d, HD_Q, HD_K), dkv = hd_layer_global(layer, &pass->d, HD_K, HD_PROJECTIONS);
  const heed_view w_kv = hd_both(layer->w_global[HD_K], &layer->w_global[HD_V]), first = hd_first(*dx, 1, layer->global);
  HD_TRY(heed_gemm(layer->context, &form, &dq, &layer->w_global[HD_Q], &first));
  return heed_gemm(layer->context, &form, &dkv, &w_kv, dx);
}

/* dx = Σ dy · W over the projections that read x, in one chain. */
static heed_status to_inputs(const struct pass *pass) {
  const hd_layer *layer = pass->layer;
  const heed_view *const lists[] = {layer->w};
  for (int first = 0, end; first < HD_PROJECTIONS; first = end) {
    int source = layer->source[first];
    heed_view joined, dx = pass->to->dx[source];
    end = hd_layer_run(layer, first, lists, 1, &joined);
    if (!dx.ndim) continue;
    if (pass->dx_copy[source]) dx = heed_view_of(pass->dx_copy[source], HEED_F32, 3, dx.dim);
    const heed_gemm_form form = {.size = sizeof form, .accumulate = first != source};
    heed_view dy = hd_layer_projected(layer, &pass->d, first, end);
    HD_TRY(heed_gemm(layer->context, &form, &dy, &joined, &dx));
    if (hd_layer_has_global(layer) && end == HD_PROJECTIONS) HD_TRY(to_input_globally(pass, &dx));
    if (pass->dx_copy[source] && (end == HD_PROJECTIONS || layer->source[end] != source))
      hd_layer_copy(layer, &dx, &pass->to->dx[source], false);
  }
  return HEED_OK;
}

heed_status heed_multi_head_backward(heed_context *context, const heed_multi_head *given, const heed_view *x_query, const heed_view *x_key,
                                     const heed_view *x_value, const heed_view *saved, const heed_view *dout,
                                     const heed_multi_head_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  hd_layer layer;
  hd_layer_gradients to;
  struct pass pass = {.layer = &layer, .to = &to};
  int64_t floats = 0, used = 0;
  float *memory = NULL;
  HD_TRY(hd_layer_read(context, given, x_query, x_key, x_value, HD_NARROW, &layer));
  HD_TRY(hd_layer_upstream(&layer, dout, &pass.dout));
  HD_TRY(hd_layer_saved(&layer, saved, &pass.saved));
  HD_TRY(hd_layer_gradients_read(&layer, (const heed_view *const[]){x_query, x_key, x_value}, gradients, &to));
  HD_REQUIRE(cut(&pass, NULL, &floats), context, HEED_E_OVERFLOW, "the gradients of the projections do not fit in memory");
  HD_TRY(hd_allocate(context, "gradients of the projections", floats, sizeof *memory, &memory));
  cut(&pass, memory, &used);
  prepare(&pass);
  heed_status status = attend(&pass);
  if (status == HEED_OK) status = add_parameters(&pass);
  if (status == HEED_OK && hd_layer_has_global(&layer)) status = add_global_parameters(&pass);
  if (status == HEED_OK) status = to_inputs(&pass);
  hd_release(context, memory, floats, sizeof *memory);
  return status;
}
