/* layer.h: one call of the multi-head layer, understood: inputs as [batch, row, column], each projection with its weights and the input it reads, everything checked.
 *
 * The projections of one input lie side by side in the same rows, so that they are one product where the weights allow it, and so are their gradients. */
#ifndef HD_LAYER_H
#define HD_LAYER_H

#include "attention.h"

enum { HD_Q, HD_K, HD_V, HD_PROJECTIONS };

/* What of its views a call is to take: the fast passes f32, f16 and bf16, the reference f64 too. */
typedef enum hd_width { HD_NARROW, HD_WIDE } hd_width;

/* A view whose ndim is 0 is absent. */
typedef struct hd_layer {
  heed_context *context;
  hd_width width;
  heed_multi_head of;
  hd_problem problem; /* of the attention in it; problem.a is its description */
  int64_t batch, queries, keys, heads, kv_heads, d, dv, outputs;
  int source[HD_PROJECTIONS];  /* whose input each projection reads */
  heed_view x[HD_PROJECTIONS]; /* [B,rows,inputs], of the source */
  heed_view w[HD_PROJECTIONS], b[HD_PROJECTIONS], w_o, b_o;
  int64_t columns[HD_PROJECTIONS]; /* of each projection: heads · width */
  int64_t global;                  /* first rows whose projections are their own, of those that there are */
  heed_view w_global[HD_PROJECTIONS], b_global[HD_PROJECTIONS];
  heed_attention global_attention; /* what happens in a head of theirs */
  hd_named_view arrays[44];        /* all that the call reads, and then writes */
  int array_count;
} hd_layer;

static inline bool hd_layer_has_global(const hd_layer *layer) { return layer->of.global_tokens > 0; }

/* Reads and checks. The views borrow the caller's memory. */
heed_status hd_layer_read(heed_context *context, const heed_multi_head *layer, const heed_view *x_query, const heed_view *x_key,
                          const heed_view *x_value, hd_width width, hd_layer *out);
/* A view of rank 2 (one sequence) or 3 as [B,rows,columns]: E_SHAPE. */
heed_status hd_layer_sequences(heed_context *context, const heed_view *view, const char *name, heed_view *out);
/* A packed array of the projections' weights or biases as three. */
void hd_layer_unpack(const hd_layer *layer, const heed_view *packed, heed_view out[HD_PROJECTIONS]);
/* One more array that is read: [B,n,outputs]. */
heed_status hd_layer_upstream(hd_layer *layer, const heed_view *dout, heed_view *out);
/* The output, which overlaps nothing. */
heed_status hd_layer_out(hd_layer *layer, const heed_view *view, heed_view *out);
/* An output may share memory with no array of the call, nor may two of its elements. NULL is passed over. E_OVERLAP, E_LAYOUT. */
heed_status hd_layer_apart(hd_layer *layer, const heed_view *view, const char *name);

/* ---- what the passes compute ---------------------------------------------------------------------------------------------------------- */

/* In f32: the projections that read an input, side by side in its rows (NULL where an input is none), the heads' outputs [B,n,H·dv], the log-sum-exp [B,H,n]; of global tokens their queries,
 * and keys and values side by side. */
typedef struct hd_layer_arrays {
  float *rows[HD_PROJECTIONS], *heads, *lse, *global_queries, *global_keys;
} hd_layer_arrays;
/* As hd_cut. */
bool hd_layer_cut(const hd_layer *layer, hd_layer_arrays *arrays, float *memory, int64_t *floats);
/* The caller's memory as arrays: E_TYPE, E_SHAPE, E_LAYOUT, E_OVERLAP. */
heed_status hd_layer_saved(hd_layer *layer, const heed_view *saved, hd_layer_arrays *arrays);

/* Columns of projections [first, end), which read the same input, as [B,rows,columns]. */
heed_view hd_layer_projected(const hd_layer *layer, const hd_layer_arrays *arrays, int first, int end);
heed_view hd_layer_heads(const hd_layer *layer, const hd_layer_arrays *arrays);
heed_view hd_layer_lse(const hd_layer *layer, const hd_layer_arrays *arrays);
/* The same of global tokens' projections: Q alone, or of K and V. */
heed_view hd_layer_global(const hd_layer *layer, const hd_layer_arrays *arrays, int first, int end);
/* A view with only the first `count` of an axis. */
static inline heed_view hd_first(heed_view view, int axis, int64_t count) {
  view.dim[axis] = count;
  return view;
}
/* Two views of which one's rows follow the other's, as one. */
static inline heed_view hd_both(heed_view first, const heed_view *second) { return hd_first(first, 0, first.dim[0] + second->dim[0]); }
/* [B,rows,heads · width] as [B,heads,rows,width]. */
heed_view hd_layer_split(heed_view rows, int64_t heads);

/* Projections from `first` on that read the same input and whose views in each of the lists lie one behind another (absent ones always do): the end of the run, and the joined view of each
 * list. */
int hd_layer_run(const hd_layer *layer, int first, const heed_view *const *lists, int count, heed_view *joined);

/* to = from, both [B,rows,columns], with the output's dropout where `drop`. They may be the same; the work is done in `to` if it has contiguous columns of f32, otherwise in `from`, which then
 * must. */
void hd_layer_copy(const hd_layer *layer, const heed_view *from, const heed_view *to, bool drop);

/* ---- gradients ------------------------------------------------------------------------------------------------------------------------ */

/* layer_backward.c: where gradients go. */
typedef struct hd_layer_gradients {
  bool accumulate;
  heed_view dx[HD_PROJECTIONS], dw[HD_PROJECTIONS], db[HD_PROJECTIONS], dw_o, db_o;
  heed_view dw_global[HD_PROJECTIONS], db_global[HD_PROJECTIONS];
  const heed_view *dbias, *dsink, *drelative;
} hd_layer_gradients;
/* x: the inputs as the caller gave them. Parts of packed gradients and inputs of rank 2 are brought to the form that the layer has. */
heed_status hd_layer_gradients_read(hd_layer *layer, const heed_view *const x[HD_PROJECTIONS], const heed_multi_head_gradients *gradients,
                                    hd_layer_gradients *out);

#endif
