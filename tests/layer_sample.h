/* layer_sample.h: random calls of the multi-head layer: self- and cross-attention, grouped heads, widths that differ, weights packed or apart, with and without biases and both dropouts;
 * sometimes with global tokens that have projections of their own; with the arrays that the sample owns, one gradient for each, and the passes over them. */
#ifndef HEED_LAYER_SAMPLE_H
#define HEED_LAYER_SAMPLE_H

#include "attention_sample.h"

/* Everything that has a gradient. */
enum { X_QUERY, X_KEY, X_VALUE, W_QKV, B_QKV, W_Q, W_K, W_V, B_Q, B_K, B_V, W_O, B_O, BIAS, SINK, RELATIVE, W_GLOBAL, B_GLOBAL, ARRAYS };
static const char *const array_names[ARRAYS] = {"x_query", "x_key", "x_value", "w_qkv",    "b_qkv",        "w_q",
                                                "w_k",     "w_v",   "b_q",     "b_k",      "b_v",          "w_o",
                                                "b_o",     "bias",  "sink",    "relative", "w_qkv_global", "b_qkv_global"};

/* data NULL: the call has no such array. */
typedef struct layer_array {
  float *data, *gradient;
  int64_t count;
  heed_view view, dview;
} layer_array;

typedef struct layer_sample {
  int64_t batch, n, m, heads, kv_heads, d, dv, width[3], outputs;
  layer_array array[ARRAYS];
  float *out, *dout, *saved;
  int64_t *lengths;
  heed_attention a;
  heed_multi_head layer;
  heed_view vout, vdout, vsaved;
} layer_sample;

static inline void layer_array_new(layer_array *to, random_source *r, double size, int ndim, const int64_t *dim) {
  int64_t count = 1;
  for (int i = 0; i < ndim; i++) count *= dim[i];
  *to = (layer_array){.data = normals(r, count), .gradient = floats(count), .count = count};
  for (int64_t i = 0; i < count; i++) to->data[i] *= (float)size;
  to->view = heed_view_of(to->data, HEED_F32, ndim, dim);
  to->dview = heed_view_of(to->gradient, HEED_F32, ndim, dim);
}

/* The fields of the description in the order of the arrays. */
static inline void layer_fields(heed_multi_head *layer, heed_attention *a, const heed_view **field[ARRAYS]) {
  const heed_view **const all[ARRAYS] = {NULL,        NULL,        NULL,        &layer->w_qkv, &layer->b_qkv,        &layer->w_q,
                                         &layer->w_k, &layer->w_v, &layer->b_q, &layer->b_k,   &layer->b_v,          &layer->w_o,
                                         &layer->b_o, &a->bias,    &a->sink,    &a->relative,  &layer->w_qkv_global, &layer->b_qkv_global};
  memcpy(field, all, sizeof all);
}

static inline void layer_describe(layer_sample *s) {
  const heed_view **field[ARRAYS];
  layer_fields(&s->layer, &s->a, field);
  for (int i = W_QKV; i < ARRAYS; i++) *field[i] = s->array[i].data ? &s->array[i].view : NULL;
  s->layer.attention = &s->a;
}

static inline const heed_view *layer_x(const layer_sample *s, int i) { return s->array[i].data ? &s->array[i].view : NULL; }

/* What the layer computes with: weights, biases and the arrays of results. Shapes and heads are set. */
static inline void layer_fill(heed_context *context, layer_sample *s, random_source *r, bool packed, bool biases) {
  const int64_t rows[3] = {s->heads * s->d, s->kv_heads * s->d, s->kv_heads * s->dv}, all = rows[0] + rows[1] + rows[2];
  for (int i = 0; i < 3 && !packed; i++) {
    layer_array_new(&s->array[W_Q + i], r, 1 / sqrt((double)s->width[i]), 2, (int64_t[]){rows[i], s->width[i]});
    if (biases) layer_array_new(&s->array[B_Q + i], r, 0.5, 1, &rows[i]);
  }
  if (packed) layer_array_new(&s->array[W_QKV], r, 1 / sqrt((double)s->width[0]), 2, (int64_t[]){all, s->width[0]});
  if (packed && biases) layer_array_new(&s->array[B_QKV], r, 0.5, 1, &all);
  if (s->layer.global_tokens) layer_array_new(&s->array[W_GLOBAL], r, 1 / sqrt((double)s->width[0]), 2, (int64_t[]){all, s->width[0]});
  if (s->layer.global_tokens && biases) layer_array_new(&s->array[B_GLOBAL], r, 0.5, 1, &all);
  layer_array_new(&s->array[W_O], r, 1 / sqrt((double)(s->heads * s->dv)), 2, (int64_t[]){s->outputs, s->heads * s->dv});
  if (biases) layer_array_new(&s->array[B_O], r, 0.5, 1, &s->outputs);
  s->layer.size = sizeof s->layer;
  s->layer.heads = s->heads;
  s->layer.kv_heads = s->kv_heads;
  s->layer.head_width = s->d;
  s->layer.value_width = s->dv;
  layer_describe(s);
  s->out = floats(s->batch * s->n * s->outputs);
  s->dout = normals(r, s->batch * s->n * s->outputs);
  s->vout = heed_view_of(s->out, HEED_F32, 3, (int64_t[]){s->batch, s->n, s->outputs});
  s->vdout = heed_view_of(s->dout, HEED_F32, 3, s->vout.dim);
  int64_t count;
  ok(context, heed_multi_head_saved_size(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &count));
  s->saved = floats(count);
  s->vsaved = heed_view_of(s->saved, HEED_F32, 1, &count);
}

/* A random call with at most `most` queries and keys. */
static inline void layer_make(heed_context *context, layer_sample *s, random_source *r, int64_t most) {
  bool cross = below(r, 2), values = cross && below(r, 2), packed = below(r, 2), same = packed || !cross;
  *s = (layer_sample){.batch = 1 + below(r, 3), .n = edge_size(r, most), .m = edge_size(r, most), .kv_heads = 1 + below(r, 3)};
  if (!cross) s->m = s->n;
  s->heads = s->kv_heads * (1 + below(r, 3));
  s->d = edge_size(r, 17);
  s->dv = below(r, 2) ? s->d : edge_size(r, 17);
  s->outputs = edge_size(r, 37);
  s->width[0] = edge_size(r, 37);
  s->width[1] = same ? s->width[0] : edge_size(r, 37);
  s->width[2] = same ? s->width[0] : values ? edge_size(r, 37) : s->width[1];
  layer_array_new(&s->array[X_QUERY], r, 1, 3, (int64_t[]){s->batch, s->n, s->width[0]});
  if (cross) layer_array_new(&s->array[X_KEY], r, 1, 3, (int64_t[]){s->batch, s->m, s->width[1]});
  if (values) layer_array_new(&s->array[X_VALUE], r, 1, 3, (int64_t[]){s->batch, s->m, s->width[2]});
  const bool global = !cross && below(r, 2);
  if (global) s->layer.global_tokens = 1 + below(r, s->n + 2);
  if (!global && below(r, 3) == 0) layer_array_new(&s->array[BIAS], r, 1, 4, (int64_t[]){s->batch, 1, s->n, s->m});
  if (!global && below(r, 3) == 0) layer_array_new(&s->array[SINK], r, 1, 1, &s->heads);
  s->a = (heed_attention){.size = sizeof s->a, .causal = below(r, 2), .align = global ? HEED_ALIGN_START : HEED_ALIGN_END};
  if (global) {
    s->a.has_window_left = s->a.has_window_right = true;
    s->a.window_left = below(r, 9);
    s->a.window_right = below(r, 9);
  }
  if (!global && below(r, 3) == 0) {
    layer_array_new(&s->array[RELATIVE], r, 1, 2, (int64_t[]){8, s->heads});
    s->a.relative_distance = 20;
  }
  if (below(r, 3) == 0) {
    s->lengths = malloc((size_t)s->batch * sizeof *s->lengths);
    for (int64_t b = 0; b < s->batch; b++) s->lengths[b] = below(r, s->m + 1);
    s->a.key_lengths = s->lengths;
  }
  if (below(r, 3) == 0) {
    s->a.dropout = 0.5 * uniform(r);
    s->a.seed = r->seed;
  }
  if (below(r, 3) == 0) {
    s->layer.dropout = 0.5 * uniform(r);
    s->layer.seed = r->seed;
    s->layer.stream = 1;
  }
  layer_fill(context, s, r, packed, below(r, 2));
}

static inline void layer_free(layer_sample *s) {
  for (int i = 0; i < ARRAYS; i++) {
    free(s->array[i].data);
    free(s->array[i].gradient);
  }
  free(s->out);
  free(s->dout);
  free(s->saved);
  free(s->lengths);
}

static inline heed_status layer_try_forward(heed_context *context, const layer_sample *s) {
  const heed_multi_head_extras extras = {.size = sizeof extras, .saved = &s->vsaved};
  return heed_multi_head_forward(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &s->vout, &extras);
}

/* Gradients of all arrays into the views given. */
static inline heed_multi_head_gradients layer_gradients(const layer_sample *s, const heed_view *view[ARRAYS]) {
  heed_multi_head_gradients to = {.size = sizeof to};
  const heed_view **const field[ARRAYS] = {&to.dx_query, &to.dx_key, &to.dx_value, &to.dw_qkv,    &to.db_qkv,        &to.dw_q,
                                           &to.dw_k,     &to.dw_v,   &to.db_q,     &to.db_k,      &to.db_v,          &to.dw_o,
                                           &to.db_o,     &to.dbias,  &to.dsink,    &to.drelative, &to.dw_qkv_global, &to.db_qkv_global};
  for (int i = 0; i < ARRAYS; i++) *field[i] = s->array[i].data ? view[i] : NULL;
  return to;
}

static inline heed_status layer_try_backward(heed_context *context, const layer_sample *s, bool accumulate) {
  const heed_view *view[ARRAYS];
  for (int i = 0; i < ARRAYS; i++) view[i] = &s->array[i].dview;
  heed_multi_head_gradients to = layer_gradients(s, view);
  to.accumulate = accumulate;
  return heed_multi_head_backward(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &s->vsaved, &s->vdout,
                                  &to);
}

static inline void layer_run(heed_context *context, const layer_sample *s) {
  ok(context, layer_try_forward(context, s));
  ok(context, layer_try_backward(context, s, false));
}

/* The oracle's output in a new array. */
static inline double *layer_reference(heed_context *context, const layer_sample *s) {
  double *out = calloc((size_t)(s->batch * s->n * s->outputs) + 1, sizeof *out);
  heed_view view = heed_view_of(out, HEED_F64, 3, s->vout.dim);
  ok(context, heed_multi_head_reference(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &view));
  return out;
}

/* The oracle's gradients in new arrays, which begin with what is in `from` where it is not NULL and then accumulate. */
static inline void layer_reference_backward(heed_context *context, const layer_sample *s, float *const *from, double *out[ARRAYS]) {
  heed_view views[ARRAYS];
  const heed_view *view[ARRAYS];
  for (int i = 0; i < ARRAYS; i++) {
    out[i] = calloc((size_t)s->array[i].count + 1, sizeof(double));
    for (int64_t j = 0; from && j < s->array[i].count; j++) out[i][j] = from[i][j];
    views[i] = heed_view_of(out[i], HEED_F64, s->array[i].view.ndim, s->array[i].view.dim);
    view[i] = &views[i];
  }
  heed_multi_head_gradients to = layer_gradients(s, view);
  to.accumulate = from != NULL;
  ok(context,
     heed_multi_head_backward_reference(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &s->vdout, &to));
}

/* Every array of results, to compare with later ones. */
typedef struct layer_results {
  float *data[ARRAYS + 1];
  int64_t count[ARRAYS + 1];
} layer_results;

static inline layer_results layer_keep(const layer_sample *s) {
  layer_results kept;
  for (int i = 0; i <= ARRAYS; i++) {
    kept.count[i] = i < ARRAYS ? s->array[i].count : s->batch * s->n * s->outputs;
    kept.data[i] = copy_of(i < ARRAYS ? s->array[i].gradient : s->out, kept.count[i]);
  }
  return kept;
}

static inline void layer_unchanged(const layer_results *kept, const layer_sample *s, const char *what, uint64_t seed) {
  for (int i = 0; i <= ARRAYS; i++) {
    char label[96];
    snprintf(label, sizeof label, "%s of %s", i < ARRAYS ? array_names[i] : "out", what);
    assert_same_bytes(i < ARRAYS ? s->array[i].gradient : s->out, kept->data[i], kept->count[i] * 4, label, seed);
  }
}

static inline void layer_results_free(layer_results *kept) {
  for (int i = 0; i <= ARRAYS; i++) free(kept->data[i]);
}

#endif
