/* attention.h: the calls behind the public ones, for keys and values that come from any source. */
#ifndef HD_ATTENTION_H
#define HD_ATTENTION_H

#include "lanes.h"
#include "problem.h"
#include "score.h"
#include "source.h"
#include "term.h"

/* out [lead...,H,n,dv], q [lead...,H,n,d]; k and v give batch, kv heads, keys and columns. lse and scoring (the dot product) may be NULL. Checks everything but overlap. */
heed_status hd_attention_run(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *q,
                             const hd_source *k, const hd_source *v, const heed_view *out, const heed_view *lse);

/* The same where the description's score compares keys as they are: DOT or XL. */
heed_status hd_attention_scored(heed_context *context, const heed_attention *a, const heed_view *q, const hd_source *k, const hd_source *v,
                                const heed_view *out, const heed_view *lse);

/* What heed_attention_forward checks once the description, q, k and v have been read: the other views, and overlap (k and v NULL: not views). *lse may become NULL. */
heed_status hd_forward_check(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k, const heed_view *v,
                             const heed_view *out, const heed_attention_extras *extras, const heed_view **lse);

/* As heed_attention_explain_plan; k_view NULL where keys are no view: then the score must be the dot product. */
heed_status hd_attention_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k_view,
                              const hd_source *k, const hd_source *v, heed_plan *out);

/* decode.c: whether the problem is one for it, and the run. lse->data NULL: not asked. Everything is checked and nothing is empty but the keys. */
bool hd_decodes(const hd_problem *problem);
heed_status hd_decode_run(const hd_problem *problem, const hd_grid *q, const hd_source *k, const hd_source *v, const hd_grid *out,
                          const hd_grid *lse);

/* As heed_attention_weights; with scoring NULL by the description's score, which compares keys as they are. */
heed_status hd_attention_rows(heed_context *context, const heed_attention *a, const hd_scoring *scoring, const heed_view *q,
                              const hd_source *k, const heed_attention_rows *asked, const heed_view *weights);

/* The caller's request as the current struct with its counts filled in; E_ARGUMENT where it names what the problem does not have. */
heed_status hd_rows_read(const hd_problem *problem, const heed_attention_rows *asked, heed_attention_rows *out);

/* Reads q as a grid and finds the shapes of the call; E_SHAPE where batch, keys or widths disagree. v may be NULL (weights only). The shapes borrow from q. */
heed_status hd_attention_shapes(heed_context *context, const heed_view *q_view, const hd_source *k, const hd_source *v, hd_grid *q,
                                hd_shapes *out);

/* [lead...,H,n] (the log-sum-exp) as a grid with one column; E_SHAPE. An output also: E_LAYOUT where elements share memory. */
heed_status hd_row_input(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, hd_grid *out);
heed_status hd_row_grid(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, hd_grid *out);
/* E_SHAPE unless grid is [same lead, same heads, rows, columns]. An output also: E_LAYOUT where its elements share memory. */
heed_status hd_grid_input(heed_context *context, const hd_grid *grid, const heed_view *view, const char *name, const hd_grid *q,
                          int64_t heads, int64_t rows, int64_t columns);
heed_status hd_grid_expect(heed_context *context, const hd_grid *grid, const heed_view *view, const char *name, const hd_grid *q,
                           int64_t heads, int64_t rows, int64_t columns);

/* E_OVERLAP where output shares memory with one of the others. Null views are passed over, the rest have been checked. */
typedef struct hd_named_view {
  const heed_view *view;
  const char *name;
} hd_named_view;
heed_status hd_outputs_apart(heed_context *context, const hd_named_view *output, const hd_named_view *inputs, int count);

/* The arrays that a description brings along, also the weights of its score; null where there is none. */
enum { HD_DESCRIPTION_VIEWS = 11 };
void hd_description_views(const heed_attention *a, hd_named_view out[HD_DESCRIPTION_VIEWS]);
/* E_OVERLAP where an output shares memory with one of them, or with one of the inputs. */
heed_status hd_output_apart(heed_context *context, const heed_attention *a, const heed_view *view, const char *name,
                            const hd_named_view *inputs, int count);

/* n numbers `step` elements apart as contiguous f32, and back. */
void hd_to_floats(const hd_kernels *kernels, const char *from, heed_type type, int64_t step, int64_t n, float *to);
void hd_from_floats(const hd_kernels *kernels, const float *from, int64_t n, char *to, heed_type type, int64_t step);

/* Sets every element to 0; nothing where the grid is absent. */
void hd_fill_zero(const hd_grid *grid);

#endif
