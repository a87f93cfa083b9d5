/* layer.c: the multi-head layer's description read and refused, and the arrays that its passes share. */
#include "layer.h"

#include <math.h>

static const char *const x_names[] = {"x_query", "x_key", "x_value"};
static const char *const w_names[] = {"w_q", "w_k", "w_v"}, *const b_names[] = {"b_q", "b_k", "b_v"};

/* ---- reading -------------------------------------------------------------------------------------------------------------------------- */

static heed_status check_type(const hd_layer *layer, heed_type type, const char *name) {
  if (layer->width == HD_WIDE) return hd_number(layer->context, type, name);
  return hd_storable(layer->context, &(hd_grid){.type = type}, name);
}

/* One more array of the call, of the types it takes. */
static heed_status take(hd_layer *layer, const heed_view *view, const char *name) {
  HD_TRY(hd_view_check(layer->context, view, name));
  HD_TRY(check_type(layer, view->type, name));
  layer->arrays[layer->array_count++] = (hd_named_view){view, name};
  return HEED_OK;
}

heed_status hd_layer_sequences(heed_context *context, const heed_view *view, const char *name, heed_view *out) {
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(view->ndim == 2 || view->ndim == 3, context, HEED_E_SHAPE,
             "%s: rank %d of %s, allowed 2 ([rows,width]) and 3 ([batch,rows,width])", name, view->ndim, hd_shape_text(view, shape));
  heed_view wide = {.data = view->data, .type = view->type, .ndim = 3, .dim = {1}};
  for (int i = 0; i < view->ndim; i++) {
    wide.dim[i + 3 - view->ndim] = view->dim[i];
    wide.stride[i + 3 - view->ndim] = view->stride[i];
  }
  // Nobody has checked how far the strides of an empty array reach.
  if (hd_view_count(&wide) == 0) memset(wide.stride, 0, sizeof wide.stride);
  *out = wide;
  return HEED_OK;
}

static heed_status read_inputs(hd_layer *layer, const heed_view *const x[HD_PROJECTIONS]) {
  heed_context *context = layer->context;
  char shape[2][HD_SHAPE_LENGTH];
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    layer->source[i] = x[i] || i == HD_Q ? i : layer->source[i - 1];
    layer->x[i] = layer->x[layer->source[i]];
    if (layer->source[i] != i) continue;
    HD_TRY(take(layer, x[i], x_names[i]));
    HD_TRY(hd_layer_sequences(context, x[i], x_names[i], &layer->x[i]));
    HD_REQUIRE(layer->x[i].dim[0] == layer->x[HD_Q].dim[0], context, HEED_E_SHAPE, "%s: %s is a batch of %lld, x_query %s one of %lld",
               x_names[i], hd_shape_text(x[i], shape[0]), (long long)layer->x[i].dim[0], hd_shape_text(x[HD_Q], shape[1]),
               (long long)layer->x[HD_Q].dim[0]);
  }
  layer->batch = layer->x[HD_Q].dim[0];
  layer->queries = layer->x[HD_Q].dim[1];
  layer->keys = layer->x[HD_K].dim[1];
  HD_REQUIRE(layer->x[HD_V].dim[1] == layer->keys, context, HEED_E_SHAPE, "values have %lld rows, keys %lld",
             (long long)layer->x[HD_V].dim[1], (long long)layer->keys);
  return HEED_OK;
}

static heed_status read_heads(hd_layer *layer) {
  const heed_multi_head *of = &layer->of;
  heed_context *context = layer->context;
  int64_t model = layer->x[HD_Q].dim[2];
  HD_REQUIRE(of->heads > 0 && of->kv_heads >= 0, context, HEED_E_ARGUMENT, "%lld heads and %lld key/value heads", (long long)of->heads,
             (long long)of->kv_heads);
  layer->heads = of->heads;
  layer->kv_heads = of->kv_heads ? of->kv_heads : of->heads;
  HD_REQUIRE(layer->heads % layer->kv_heads == 0, context, HEED_E_SHAPE, "%lld heads are not a multiple of %lld key/value heads",
             (long long)layer->heads, (long long)layer->kv_heads);
  HD_REQUIRE(of->head_width >= 0 && of->value_width >= 0, context, HEED_E_ARGUMENT, "head_width %lld, value_width %lld",
             (long long)of->head_width, (long long)of->value_width);
  HD_REQUIRE(of->head_width || model % layer->heads == 0, context, HEED_E_SHAPE,
             "the width %lld of x_query is not a multiple of %lld heads, and no head_width is given", (long long)model,
             (long long)layer->heads);
  layer->d = of->head_width ? of->head_width : model / layer->heads;
  layer->dv = of->value_width ? of->value_width : layer->d;
  int64_t most = INT64_MAX / 4 / layer->heads; // the three side by side still fit
  HD_REQUIRE(layer->d <= most && layer->dv <= most, context, HEED_E_OVERFLOW, "%lld heads of widths %lld and %lld are too large",
             (long long)layer->heads, (long long)layer->d, (long long)layer->dv);
  layer->columns[HD_Q] = layer->heads * layer->d;
  layer->columns[HD_K] = layer->kv_heads * layer->d;
  layer->columns[HD_V] = layer->kv_heads * layer->dv;
  return HEED_OK;
}

static heed_status expect_shape(const hd_layer *layer, const heed_view *view, const char *name, int ndim, int64_t rows, int64_t columns) {
  char shape[HD_SHAPE_LENGTH], expected[HD_SHAPE_LENGTH];
  const heed_view want = {.ndim = ndim, .dim = {rows, columns}};
  HD_REQUIRE(hd_same_shape(view, &want), layer->context, HEED_E_SHAPE,
             "%s: %s, expected %s (%lld heads over %lld, widths %lld and %lld, inputs %lld, %lld and %lld wide)", name,
             hd_shape_text(view, shape), hd_shape_text(&want, expected), (long long)layer->heads, (long long)layer->kv_heads,
             (long long)layer->d, (long long)layer->dv, (long long)layer->x[HD_Q].dim[2], (long long)layer->x[HD_K].dim[2],
             (long long)layer->x[HD_V].dim[2]);
  return HEED_OK;
}

/* Rows [row, row + rows) of a packed array. */
static heed_view slice(const heed_view *packed, int64_t row, int64_t rows) {
  heed_view out = *packed;
  if (hd_view_count(packed) > 0) out.data = (char *)packed->data + row * packed->stride[0] * (int64_t)heed_type_bytes(packed->type);
  out.dim[0] = rows;
  return out;
}

void hd_layer_unpack(const hd_layer *layer, const heed_view *packed, heed_view out[HD_PROJECTIONS]) {
  for (int64_t i = 0, row = 0; i < HD_PROJECTIONS; row += layer->columns[i++]) out[i] = slice(packed, row, layer->columns[i]);
}

/* Weights or biases (ndim 1) of the projections, packed or one by one. */
static heed_status read_projections(hd_layer *layer, const heed_view *packed, const char *packed_name,
                                    const heed_view *const each[HD_PROJECTIONS], const char *const *names, int ndim,
                                    heed_view out[HD_PROJECTIONS]) {
  heed_context *context = layer->context;
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    HD_REQUIRE(!packed || !each[i], context, HEED_E_ARGUMENT, "%s and %s are both given", packed_name, names[i]);
    HD_REQUIRE(ndim == 1 || packed || each[i], context, HEED_E_ARGUMENT, "neither %s nor %s is given", packed_name, names[i]);
    if (!each[i]) continue;
    HD_TRY(take(layer, each[i], names[i]));
    HD_TRY(expect_shape(layer, each[i], names[i], ndim, layer->columns[i], layer->x[i].dim[2]));
    out[i] = *each[i];
  }
  if (!packed) return HEED_OK;
  HD_TRY(take(layer, packed, packed_name));
  HD_TRY(expect_shape(layer, packed, packed_name, ndim, layer->columns[HD_Q] + layer->columns[HD_K] + layer->columns[HD_V],
                      layer->x[HD_Q].dim[2]));
  HD_REQUIRE(ndim == 1 || (layer->x[HD_K].dim[2] == packed->dim[1] && layer->x[HD_V].dim[2] == packed->dim[1]), context, HEED_E_SHAPE,
             "%s takes inputs of one width, %lld; x_key is %lld wide and x_value %lld", packed_name, (long long)packed->dim[1],
             (long long)layer->x[HD_K].dim[2], (long long)layer->x[HD_V].dim[2]);
  hd_layer_unpack(layer, packed, out);
  return HEED_OK;
}

static heed_status read_weights(hd_layer *layer) {
  const heed_multi_head *of = &layer->of;
  char shape[HD_SHAPE_LENGTH];
  const heed_view *const w[] = {of->w_q, of->w_k, of->w_v}, *const b[] = {of->b_q, of->b_k, of->b_v};
  HD_TRY(read_projections(layer, of->w_qkv, "w_qkv", w, w_names, 2, layer->w));
  HD_TRY(read_projections(layer, of->b_qkv, "b_qkv", b, b_names, 1, layer->b));
  HD_TRY(take(layer, of->w_o, "w_o"));
  HD_REQUIRE(of->w_o->ndim == 2, layer->context, HEED_E_SHAPE, "w_o: rank %d of %s, expected 2 ([outputs,inputs])", of->w_o->ndim,
             hd_shape_text(of->w_o, shape));
  layer->outputs = of->w_o->dim[0];
  HD_TRY(expect_shape(layer, of->w_o, "w_o", 2, layer->outputs, layer->heads * layer->dv));
  layer->w_o = *of->w_o;
  if (!of->b_o) return HEED_OK;
  HD_TRY(take(layer, of->b_o, "b_o"));
  HD_TRY(expect_shape(layer, of->b_o, "b_o", 1, layer->outputs, 0));
  layer->b_o = *of->b_o;
  return HEED_OK;
}

/* Attention would refuse the same, but only after the projections. */
static heed_status read_attention(hd_layer *layer) {
  heed_context *context = layer->context;
  const heed_multi_head *of = &layer->of;
  heed_attention given;
  HD_TRY(hd_description_read(context, of->attention, &given));
  HD_TRY(hd_description_check(context, &given));
  heed_score score = {.size = sizeof score};
  HD_TRY(hd_options_read(context, "heed_score", given.score, &score, sizeof score));
  HD_REQUIRE(score.kind == HEED_SCORE_DOT, context, HEED_E_UNSUPPORTED, "the multi-head layer scores by products of queries and keys");
  const hd_shapes shapes = {.lead = 1,
                            .lead_dim = &layer->batch,
                            .heads = layer->heads,
                            .kv_heads = layer->kv_heads,
                            .queries = layer->queries,
                            .keys = layer->keys,
                            .d = layer->d,
                            .key_width = layer->d,
                            .dv = layer->dv};
  HD_TRY(hd_problem_make(context, &given, &shapes, &layer->problem));
  const heed_attention *a = &layer->problem.a;
  hd_named_view views[HD_DESCRIPTION_VIEWS];
  hd_description_views(a, views);
  for (int i = 0; i < HD_DESCRIPTION_VIEWS; i++)
    if (views[i].view) layer->arrays[layer->array_count++] = views[i];
  HD_REQUIRE(of->dropout >= 0 && of->dropout <= 1, context, HEED_E_ARGUMENT, "dropout %g of the output, allowed 0 to 1",
             of->dropout); // also refuses NaN
  HD_REQUIRE(of->dropout == 0 || a->dropout == 0 || of->seed != a->seed || of->stream != a->stream, context, HEED_E_ARGUMENT,
             "the dropouts of the weights and of the output both draw from seed %llu, stream %lu", (unsigned long long)a->seed,
             (unsigned long)a->stream);
  const int64_t most = (int64_t)1 << 32;
  HD_REQUIRE(of->dropout == 0 || (layer->queries <= most && layer->batch <= most && layer->outputs / 4 <= most), context, HEED_E_OVERFLOW,
             "dropout counts queries, sequences and quarters of columns in 32 bits");
  return HEED_OK;
}

/* Longformer's global tokens. Their attention is that of the others without a pattern and a window. */
static heed_status read_global(hd_layer *layer) {
  heed_context *context = layer->context;
  const heed_multi_head *of = &layer->of;
  heed_attention *a = &layer->global_attention;
  HD_REQUIRE(of->global_tokens >= 0 && (of->global_tokens > 0) == (of->w_qkv_global != NULL) && (of->w_qkv_global || !of->b_qkv_global),
             context, HEED_E_ARGUMENT, "%lld global tokens, and w_qkv_global is %s", (long long)of->global_tokens,
             of->w_qkv_global ? "given" : "null");
  if (of->global_tokens == 0) return HEED_OK;
  HD_REQUIRE(layer->source[HD_K] == HD_Q && layer->source[HD_V] == HD_Q, context, HEED_E_ARGUMENT,
             "w_qkv_global is for self-attention, but there is an input for keys or values");
  const int64_t rows = layer->columns[HD_Q] + layer->columns[HD_K] + layer->columns[HD_V];
  HD_TRY(take(layer, of->w_qkv_global, "w_qkv_global"));
  HD_TRY(expect_shape(layer, of->w_qkv_global, "w_qkv_global", 2, rows, layer->x[HD_Q].dim[2]));
  hd_layer_unpack(layer, of->w_qkv_global, layer->w_global);
  if (of->b_qkv_global) {
    HD_TRY(take(layer, of->b_qkv_global, "b_qkv_global"));
    HD_TRY(expect_shape(layer, of->b_qkv_global, "b_qkv_global", 1, rows, 0));
    hd_layer_unpack(layer, of->b_qkv_global, layer->b_global);
  }
  HD_TRY(hd_description_read(context, of->attention, a));
  HD_REQUIRE(!a->attend && !a->bias && !a->sink && !a->relative && !a->documents, context, HEED_E_UNSUPPORTED,
             "global tokens with projections of their own have no attend, bias, sink, relative positions or documents");
  HD_REQUIRE(a->align != HEED_ALIGN_END && a->offset == 0 && !a->offsets, context, HEED_E_UNSUPPORTED,
             "positions of global tokens with projections of their own begin with the first row");
  a->pattern = NULL;
  a->has_window_left = a->has_window_right = false;
  a->align = HEED_ALIGN_START; // they are the first of all rows
  layer->global = HD_MIN(of->global_tokens, layer->queries);
  return HEED_OK;
}

heed_status hd_layer_read(heed_context *context, const heed_multi_head *layer, const heed_view *x_query, const heed_view *x_key,
                          const heed_view *x_value, hd_width width, hd_layer *out) {
  const heed_view *const x[] = {x_query, x_key, x_value};
  *out = (hd_layer){.context = context, .width = width, .of = {.size = sizeof out->of}};
  HD_REQUIRE(layer, context, HEED_E_ARGUMENT, "heed_multi_head: null");
  HD_TRY(hd_options_read(context, "heed_multi_head", layer, &out->of, sizeof out->of));
  HD_TRY(read_inputs(out, x));
  HD_TRY(read_heads(out));
  HD_TRY(read_weights(out));
  HD_TRY(read_attention(out));
  return read_global(out);
}

/* An array like the output. */
static heed_status read_result(hd_layer *layer, const heed_view *view, const char *name, heed_view *out) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(layer->context, view, name));
  HD_TRY(check_type(layer, view->type, name));
  HD_TRY(hd_layer_sequences(layer->context, view, name, out));
  HD_REQUIRE(out->dim[0] == layer->batch && out->dim[1] == layer->queries && out->dim[2] == layer->outputs, layer->context, HEED_E_SHAPE,
             "%s: %s, expected batch %lld, rows %lld, columns %lld", name, hd_shape_text(view, shape), (long long)layer->batch,
             (long long)layer->queries, (long long)layer->outputs);
  return HEED_OK;
}

heed_status hd_layer_upstream(hd_layer *layer, const heed_view *dout, heed_view *out) {
  HD_TRY(read_result(layer, dout, "dout", out));
  return take(layer, dout, "dout");
}

heed_status hd_layer_out(hd_layer *layer, const heed_view *view, heed_view *out) {
  HD_TRY(read_result(layer, view, "out", out));
  return hd_layer_apart(layer, view, "out");
}

heed_status hd_layer_apart(hd_layer *layer, const heed_view *view, const char *name) {
  char shape[HD_SHAPE_LENGTH];
  if (!view) return HEED_OK;
  HD_REQUIRE(!hd_view_overlaps_itself(view), layer->context, HEED_E_LAYOUT, "%s: elements of %s share memory", name,
             hd_shape_text(view, shape));
  HD_TRY(hd_outputs_apart(layer->context, &(hd_named_view){view, name}, layer->arrays, layer->array_count));
  layer->arrays[layer->array_count++] = (hd_named_view){view, name};
  return HEED_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------------------------------ */

/* Columns of the projections that read the input. */
static int64_t source_columns(const hd_layer *layer, int source) {
  int64_t columns = 0;
  for (int i = 0; i < HD_PROJECTIONS; i++) columns += layer->source[i] == source ? layer->columns[i] : 0;
  return columns;
}

/* From row to row: an odd number of cache lines, so that the rows of one head fall into all sets of a cache and not into a few. */
static int64_t row_floats(int64_t columns) { return (hd_ceil_div(columns, HD_ALIGN / 4) | 1) * (HD_ALIGN / 4); }

bool hd_layer_cut(const hd_layer *layer, hd_layer_arrays *arrays, float *memory, int64_t *floats) {
  int64_t query_rows, key_rows, lse_rows;
  if (!hd_mul(layer->batch, layer->queries, &query_rows) || !hd_mul(layer->batch, layer->keys, &key_rows) ||
      !hd_mul(query_rows, layer->heads, &lse_rows))
    return false;
  for (int i = 0; i < HD_PROJECTIONS; i++) {
    const hd_part rows = {&arrays->rows[i], i == HD_Q ? query_rows : key_rows, row_floats(source_columns(layer, i))};
    if (layer->source[i] == i && !hd_cut(memory, &rows, 1, floats)) return false;
  }
  const hd_part parts[] = {{&arrays->heads, query_rows, row_floats(layer->heads * layer->dv)},
                           {&arrays->lse, lse_rows, 1},
                           {&arrays->global_queries, layer->batch * layer->global, row_floats(layer->columns[HD_Q])},
                           {&arrays->global_keys, key_rows, row_floats(layer->columns[HD_K] + layer->columns[HD_V])}};
  return hd_cut(memory, parts, hd_layer_has_global(layer) ? 4 : 2, floats);
}

heed_status hd_layer_saved(hd_layer *layer, const heed_view *saved, hd_layer_arrays *arrays) {
  heed_context *context = layer->context;
  char shape[HD_SHAPE_LENGTH];
  int64_t floats = 0;
  HD_REQUIRE(hd_layer_cut(layer, arrays, NULL, &floats), context, HEED_E_OVERFLOW, "the projections do not fit in memory");
  HD_TRY(hd_view_check(context, saved, "saved"));
  HD_REQUIRE(saved->type == HEED_F32, context, HEED_E_TYPE, "saved is %s, allowed f32", heed_type_name(saved->type));
  HD_REQUIRE(saved->ndim == 1 && saved->dim[0] >= floats, context, HEED_E_SHAPE, "saved: %s, expected [%lld] or more",
             hd_shape_text(saved, shape), (long long)floats);
  HD_REQUIRE(saved->stride[0] == 1 || saved->dim[0] <= 1, context, HEED_E_LAYOUT, "saved: stride %lld, allowed 1",
             (long long)saved->stride[0]);
  floats = 0;
  hd_layer_cut(layer, arrays, saved->data, &floats);
  return hd_layer_apart(layer, saved, "saved");
}

static heed_view sequences(float *data, int64_t batch, int64_t rows, int64_t columns, int64_t stride) {
  return (heed_view){data, HEED_F32, 3, {batch, rows, columns}, {rows * stride, stride, 1}};
}

heed_view hd_layer_projected(const hd_layer *layer, const hd_layer_arrays *arrays, int first, int end) {
  int source = layer->source[first];
  int64_t before = 0, columns = 0;
  for (int i = source; i < end; i++) *(i < first ? &before : &columns) += layer->columns[i];
  return sequences(arrays->rows[source] + before, layer->batch, layer->x[source].dim[1], columns,
                   row_floats(source_columns(layer, source)));
}

heed_view hd_layer_global(const hd_layer *layer, const hd_layer_arrays *arrays, int first, int end) {
  const int64_t keys = layer->columns[HD_K], both = keys + layer->columns[HD_V];
  if (first == HD_Q)
    return sequences(arrays->global_queries, layer->batch, layer->global, layer->columns[HD_Q], row_floats(layer->columns[HD_Q]));
  const int64_t begin = first == HD_K ? 0 : keys, columns = (end == HD_V ? keys : both) - begin;
  return sequences(arrays->global_keys + begin, layer->batch, layer->keys, columns, row_floats(both));
}

heed_view hd_layer_heads(const hd_layer *layer, const hd_layer_arrays *arrays) {
  int64_t columns = layer->heads * layer->dv;
  return sequences(arrays->heads, layer->batch, layer->queries, columns, row_floats(columns));
}

heed_view hd_layer_lse(const hd_layer *layer, const hd_layer_arrays *arrays) {
  return heed_view_of(arrays->lse, HEED_F32, 3, (int64_t[]){layer->batch, layer->heads, layer->queries});
}

heed_view hd_layer_split(heed_view rows, int64_t heads) {
  int64_t width = rows.dim[2] / heads;
  return (heed_view){.data = rows.data,
                     .type = rows.type,
                     .ndim = 4,
                     .dim = {rows.dim[0], heads, rows.dim[1], width},
                     .stride = {rows.stride[0], width * rows.stride[2], rows.stride[1], rows.stride[2]}};
}

/* Whether b's rows continue a's. */
static bool follows(const heed_view *a, const heed_view *b) {
  if (a->ndim != b->ndim || a->type != b->type) return false;
  if (a->ndim == 0) return true;
  for (int i = 0; i < a->ndim; i++)
    if (a->stride[i] != b->stride[i] || (i > 0 && a->dim[i] != b->dim[i])) return false;
  return (uintptr_t)b->data == (uintptr_t)a->data + (uintptr_t)a->dim[0] * (uintptr_t)a->stride[0] * heed_type_bytes(a->type);
}

int hd_layer_run(const hd_layer *layer, int first, const heed_view *const *lists, int count, heed_view *joined) {
  int end = first + 1;
  for (int l = 0; l < count; l++) joined[l] = lists[l][first];
  for (; end < HD_PROJECTIONS && layer->source[end] == layer->source[first]; end++) {
    for (int l = 0; l < count; l++)
      if (!follows(&joined[l], &lists[l][end])) return end;
    for (int l = 0; l < count; l++) joined[l].dim[0] += lists[l][end].dim[0];
  }
  return end;
}

/* ---- rows with dropout --------------------------------------------------------------------------------------------------------------------- */

struct copy {
  const hd_layer *layer;
  const heed_view *from, *to;
  bool drop, in_to;
  uint32_t last_dropped;
};

/* Rows that are handled together: what one draw of dropout serves. */
enum { COPY_ROWS = HD_MAX_LANES };

static char *row_of(const heed_view *view, int64_t entry, int64_t row) {
  return (char *)view->data + (entry * view->stride[0] + row * view->stride[1]) * (int64_t)heed_type_bytes(view->type);
}

static void drop_rows(const struct copy *copy, int64_t entry, int64_t first, int count, float *const *rows) {
  const hd_layer *layer = copy->layer;
  const float factor = (float)(1 / (1 - layer->of.dropout));
  hd_attn_dropout draw = {.seed = layer->of.seed, .stream = layer->of.stream, .last_dropped = copy->last_dropped, .lanes = count};
  uint64_t kept[HD_KEY_TILE];
  for (int i = 0; i < count; i++) {
    draw.query[i] = (uint32_t)(first + i);
    draw.head[i] = (uint32_t)entry;
  }
  for (draw.key = 0; draw.key < copy->to->dim[2]; draw.key += HD_KEY_TILE) {
    draw.keys = (int)HD_MIN(HD_KEY_TILE, copy->to->dim[2] - draw.key);
    hd_kernels_of(layer->context)->attn_kept(&draw, kept);
    for (int i = 0; i < count; i++)
      for (int c = 0; c < draw.keys; c++) {
        float *value = &rows[i][draw.key + c];
        *value = kept[c] >> i & 1 ? *value * factor : 0.0f;
      }
  }
}

static void copy_rows(void *argument, int64_t i, int worker) {
  const struct copy *copy = argument;
  const heed_view *from = copy->from, *to = copy->to;
  const hd_kernels *kernels = hd_kernels_of(copy->layer->context);
  int64_t blocks = hd_ceil_div(to->dim[1], COPY_ROWS), entry = i / blocks, first = i % blocks * COPY_ROWS;
  int count = (int)HD_MIN(COPY_ROWS, to->dim[1] - first);
  float *rows[COPY_ROWS];
  (void)worker;
  for (int r = 0; r < count; r++) {
    rows[r] = (float *)row_of(copy->in_to ? to : from, entry, first + r);
    if (copy->in_to && from != to)
      hd_to_floats(kernels, row_of(from, entry, first + r), from->type, from->stride[2], from->dim[2], rows[r]);
  }
  if (copy->drop) drop_rows(copy, entry, first, count, rows);
  for (int r = 0; r < count && !copy->in_to; r++)
    hd_from_floats(kernels, rows[r], to->dim[2], row_of(to, entry, first + r), to->type, to->stride[2]);
}

void hd_layer_copy(const hd_layer *layer, const heed_view *from, const heed_view *to, bool drop) {
  struct copy copy = {.layer = layer,
                      .from = from,
                      .to = to,
                      .drop = drop && layer->of.dropout > 0,
                      .in_to = to->type == HEED_F32 && (to->stride[2] == 1 || to->dim[2] <= 1),
                      .last_dropped = hd_last_dropped(layer->of.dropout)};
  hd_parallel(layer->context, to->dim[0] * hd_ceil_div(to->dim[1], COPY_ROWS), copy_rows, &copy);
}
