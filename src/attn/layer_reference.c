/* layer_reference.c: the multi-head layer by plain loops in double precision, one number after the other: the oracle. Attention itself is its own oracle's affair. */
#include "layer.h"

/* Arrays in double precision, contiguous. */
typedef struct {
  heed_view y[HD_PROJECTIONS], heads;                             /* [B,rows,columns] */
  heed_view dout, dy[HD_PROJECTIONS], dheads, dx[HD_PROJECTIONS]; /* backward's */
  heed_view global[HD_PROJECTIONS], dglobal[HD_PROJECTIONS];      /* of global tokens: y and dy */
  hd_arena memory;
} arrays;

static double get(const heed_view *view, int64_t i) { return hd_element(hd_view_at(view, i), view->type); }

static void put(const heed_view *view, int64_t i, double value, bool accumulate) {
  char *at = hd_view_at(view, i);
  hd_element_store(at, view->type, accumulate ? hd_element(at, view->type) + value : value);
}

static heed_status array_new(const hd_layer *layer, arrays *a, int64_t rows, int64_t columns, heed_view *out) {
  int64_t count;
  double *data;
  HD_REQUIRE(hd_mul(layer->batch, rows, &count) && hd_mul(count, columns, &count), layer->context, HEED_E_OVERFLOW,
             "the projections do not fit in memory");
  HD_TRY(hd_arena_allocate(&a->memory, layer->context, "reference of the layer", count, sizeof *data, &data));
  *out = heed_view_of(data, HEED_F64, 3, (int64_t[]){layer->batch, rows, columns});
  return HEED_OK;
}

/* y = x · wᵀ + b, rows of the batch counted through. */
static void multiply(const heed_view *x, const heed_view *w, const heed_view *b, double *y) {
  int64_t rows = x->dim[0] * x->dim[1], inputs = x->dim[2], outputs = w->dim[0];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < outputs; o++) {
      double sum = b->ndim ? get(b, o) : 0;
      for (int64_t i = 0; i < inputs; i++) sum += get(x, r * inputs + i) * get(w, o * inputs + i);
      y[r * outputs + o] = sum;
    }
}

/* What dropout multiplies element `column` of a row of the output by. */
static double dropout(const hd_layer *layer, int64_t entry, int64_t row, int64_t column) {
  const heed_multi_head *of = &layer->of;
  if (of->dropout == 0) return 1;
  const uint32_t counter[4] = {(uint32_t)(column / 4), (uint32_t)row, (uint32_t)entry, of->stream};
  uint32_t words[4];
  hd_philox(counter, of->seed, words);
  return words[column % 4] < of->dropout * 0x1p32 ? 0 : 1 / (1 - of->dropout);
}

/* to = from with dropout. */
static void drop(const hd_layer *layer, const heed_view *from, const heed_view *to) {
  for (int64_t i = 0; i < hd_view_count(from); i++) {
    int64_t column = i % layer->outputs, row = i / layer->outputs % layer->queries, entry = i / layer->outputs / layer->queries;
    double kept = dropout(layer, entry, row, column);
    put(to, i, kept == 0 ? 0 : get(from, i) * kept, false);
  }
}

/* Which rows of an array like x a projection of global tokens reads: queries are theirs alone. */
static heed_view rows_read(const hd_layer *layer, int projection, const heed_view *x) {
  return projection == HD_Q ? hd_first(*x, 1, layer->global) : *x;
}

static heed_status forward(const hd_layer *layer, arrays *a) {
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    HD_TRY(array_new(layer, a, layer->x[i].dim[1], layer->columns[i], &a->y[i]));
    multiply(&layer->x[i], &layer->w[i], &layer->b[i], a->y[i].data);
  }
  HD_TRY(array_new(layer, a, layer->queries, layer->heads * layer->dv, &a->heads));
  heed_view q = hd_layer_split(a->y[HD_Q], layer->heads), k = hd_layer_split(a->y[HD_K], layer->kv_heads);
  heed_view v = hd_layer_split(a->y[HD_V], layer->kv_heads), heads = hd_layer_split(a->heads, layer->heads);
  HD_TRY(heed_attention_reference(layer->context, layer->of.attention, &q, &k, &v, &heads, NULL));
  if (!hd_layer_has_global(layer)) return HEED_OK;
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const heed_view x = rows_read(layer, i, &layer->x[HD_Q]);
    HD_TRY(array_new(layer, a, x.dim[1], layer->columns[i], &a->global[i]));
    multiply(&x, &layer->w_global[i], &layer->b_global[i], a->global[i].data);
  }
  q = hd_layer_split(a->global[HD_Q], layer->heads), k = hd_layer_split(a->global[HD_K], layer->kv_heads);
  v = hd_layer_split(a->global[HD_V], layer->kv_heads), heads = hd_first(heads, 2, layer->global);
  return heed_attention_reference(layer->context, &layer->global_attention, &q, &k, &v, &heads, NULL);
}

heed_status heed_multi_head_reference(heed_context *context, const heed_multi_head *given, const heed_view *x_query, const heed_view *x_key,
                                      const heed_view *x_value, const heed_view *out) {
  if (!context) return HEED_E_ARGUMENT;
  hd_layer layer;
  heed_view result, y;
  arrays a = {0};
  HD_TRY(hd_layer_read(context, given, x_query, x_key, x_value, HD_WIDE, &layer));
  HD_TRY(hd_layer_out(&layer, out, &result));
  hd_arena_init(&a.memory, context);
  heed_status status = forward(&layer, &a);
  if (status == HEED_OK) status = array_new(&layer, &a, layer.queries, layer.outputs, &y);
  if (status == HEED_OK) {
    multiply(&a.heads, &layer.w_o, &layer.b_o, y.data);
    drop(&layer, &y, &result);
  }
  hd_arena_free(&a.memory);
  return status;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------------------- */

/* y = x · wᵀ + b gives dx += dy · w, */
static void back_to_input(const heed_view *dy, const heed_view *w, const heed_view *dx) {
  int64_t rows = dx->dim[0] * dx->dim[1], inputs = dx->dim[2], outputs = w->dim[0];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t o = 0; o < outputs; o++)
      for (int64_t i = 0; i < inputs; i++) put(dx, r * inputs + i, get(dy, r * outputs + o) * get(w, o * inputs + i), true);
}

/* and dw = dyᵀ · x, db = Σ dy, each where it is asked for. */
static void back_to_weights(const heed_view *dy, const heed_view *x, const heed_view *dw, const heed_view *db, bool accumulate) {
  int64_t rows = x->dim[0] * x->dim[1], inputs = x->dim[2], outputs = dy->dim[2];
  for (int64_t o = 0; o < outputs; o++) {
    for (int64_t i = 0; dw->ndim && i < inputs; i++) {
      double sum = 0;
      for (int64_t r = 0; r < rows; r++) sum += get(dy, r * outputs + o) * get(x, r * inputs + i);
      put(dw, o * inputs + i, sum, accumulate);
    }
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += get(dy, r * outputs + o);
    if (db->ndim) put(db, o, sum, accumulate);
  }
}

/* The rows of global tokens, which then bring nothing to the other projections. */
static heed_status back_globally(const hd_layer *layer, const hd_layer_gradients *to, arrays *a) {
  heed_view y[HD_PROJECTIONS], dy[HD_PROJECTIONS];
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const int64_t heads = i == HD_Q ? layer->heads : layer->kv_heads;
    HD_TRY(array_new(layer, a, a->global[i].dim[1], layer->columns[i], &a->dglobal[i]));
    y[i] = hd_layer_split(a->global[i], heads);
    dy[i] = hd_layer_split(a->dglobal[i], heads);
  }
  const heed_view rows = hd_first(a->dheads, 1, layer->global), dheads = hd_layer_split(rows, layer->heads);
  const heed_attention_gradients gradients = {.size = sizeof gradients, .dq = &dy[HD_Q], .dk = &dy[HD_K], .dv = &dy[HD_V]};
  HD_TRY(heed_attention_backward_reference(layer->context, &layer->global_attention, &y[HD_Q], &y[HD_K], &y[HD_V], &dheads, &gradients));
  for (int64_t i = 0; i < hd_view_count(&rows); i++) put(&rows, i, 0, false);
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const heed_view x = rows_read(layer, i, &layer->x[HD_Q]), dx = rows_read(layer, i, &a->dx[HD_Q]);
    back_to_weights(&a->dglobal[i], &x, &to->dw_global[i], &to->db_global[i], to->accumulate);
    back_to_input(&a->dglobal[i], &layer->w_global[i], &dx);
  }
  return HEED_OK;
}

static heed_status backward(const hd_layer *layer, const heed_view *dout, const hd_layer_gradients *to, arrays *a) {
  heed_view y[HD_PROJECTIONS], dy[HD_PROJECTIONS];
  HD_TRY(forward(layer, a));
  HD_TRY(array_new(layer, a, layer->queries, layer->outputs, &a->dout));
  HD_TRY(array_new(layer, a, layer->queries, layer->heads * layer->dv, &a->dheads));
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    int64_t heads = i == HD_Q ? layer->heads : layer->kv_heads;
    HD_TRY(array_new(layer, a, layer->x[i].dim[1], layer->columns[i], &a->dy[i]));
    HD_TRY(array_new(layer, a, layer->x[i].dim[1], layer->x[i].dim[2], &a->dx[i]));
    y[i] = hd_layer_split(a->y[i], heads);
    dy[i] = hd_layer_split(a->dy[i], heads);
  }
  drop(layer, dout, &a->dout);
  back_to_input(&a->dout, &layer->w_o, &a->dheads);
  if (hd_layer_has_global(layer)) HD_TRY(back_globally(layer, to, a));
  heed_view dheads = hd_layer_split(a->dheads, layer->heads);
  const heed_attention_gradients gradients = {.size = sizeof gradients,
                                              .dq = &dy[HD_Q],
                                              .dk = &dy[HD_K],
                                              .dv = &dy[HD_V],
                                              .dbias = to->dbias,
                                              .dsink = to->dsink,
                                              .drelative = to->drelative};
  HD_TRY(heed_attention_backward_reference(layer->context, layer->of.attention, &y[HD_Q], &y[HD_K], &y[HD_V], &dheads, &gradients));
  back_to_weights(&a->dout, &a->heads, &to->dw_o, &to->db_o, to->accumulate);
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    back_to_weights(&a->dy[i], &layer->x[i], &to->dw[i], &to->db[i], to->accumulate);
    back_to_input(&a->dy[i], &layer->w[i], &a->dx[layer->source[i]]);
  }
  for (int i = 0; i < HD_PROJECTIONS; i++)
    for (int64_t j = 0; to->dx[i].ndim && j < hd_view_count(&to->dx[i]); j++) put(&to->dx[i], j, get(&a->dx[i], j), false);
  return HEED_OK;
}

heed_status heed_multi_head_backward_reference(heed_context *context, const heed_multi_head *given, const heed_view *x_query,
                                               const heed_view *x_key, const heed_view *x_value, const heed_view *dout,
                                               const heed_multi_head_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  hd_layer layer;
  hd_layer_gradients to;
  heed_view upstream;
  arrays a = {0};
  HD_TRY(hd_layer_read(context, given, x_query, x_key, x_value, HD_WIDE, &layer));
  HD_TRY(hd_layer_upstream(&layer, dout, &upstream));
  HD_TRY(hd_layer_gradients_read(&layer, (const heed_view *const[]){x_query, x_key, x_value}, gradients, &to));
  hd_arena_init(&a.memory, context);
  heed_status status = backward(&layer, &upstream, &to, &a);
  hd_arena_free(&a.memory);
  return status;
}
