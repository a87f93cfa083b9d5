/* problem.h: one attention call, understood: views brought to [batch, head, row, column], defaults filled in, everything checked, limits chosen.
 *
 * Forward, weights, plan and reference all read this and never the caller's description. */
#ifndef HD_PROBLEM_H
#define HD_PROBLEM_H

#include "../base/base.h"
#include "../../include/heed/heed.h"
#include "../kern/kernels.h"
#include "order.h"

/* A view [lead..., heads, rows, columns] with up to three leading dimensions counted as one batch. Strides in elements. */
typedef struct hd_grid {
  char *data; /* NULL: absent */
  heed_type type;
  int64_t size; /* bytes of an element */
  int lead;
  int64_t lead_dim[HEED_MAX_DIM], lead_stride[HEED_MAX_DIM];
  int64_t batch, heads, rows, columns;
  int64_t head_stride, row_stride, column_stride;
} hd_grid;

/* Address of row `row` of a head. */
char *hd_grid_row(const hd_grid *grid, int64_t batch, int64_t head, int64_t row);

/* Queries [q0, q1) × keys [k0, k1) of one batch entry and query head. */
typedef struct hd_rect {
  int64_t batch, head, q0, q1, k0, k1;
  bool shown; /* the pattern is known to show all of it */
} hd_rect;

typedef enum hd_cover { HD_EMPTY, HD_PARTIAL, HD_FULL } hd_cover;

/* Positions and the sides of windows stay far inside 64 bits, so that i + offset ± window cannot overflow. */
#define HD_FAR ((int64_t)1 << 60)

enum { HD_MAX_SWEEPS = 8 };

struct hd_limit_kind;
struct hd_term_kind;
typedef struct hd_problem {
  heed_context *context;
  const hd_kernels *kernels;
  heed_attention a; /* align is START, END or GIVEN where it matters */
  int lead;         /* leading dimensions before the head */
  int64_t lead_dim[HEED_MAX_DIM];
  int64_t batch, heads, kv_heads, group, queries, keys, d, dv;
  int64_t key_width;                /* d, unless the score compares other widths */
  const struct hd_scoring *scoring; /* NULL: the kernel multiplies */
  double scale;
  float softcap_log2;   /* in units of log2 e; 0: none */
  hd_grid attend, bias; /* dimensions of 1 have stride 0 */
  const struct hd_limit_kind *limit[8];
  int limits;
  hd_sweep pass[HD_MAX_SWEEPS]; /* one for everything, until hd_sweeps_choose */
  int passes;
  bool parted; /* the pattern has parts that may show the same pair */
  const struct hd_term_kind *term[4];
  int terms;
  float keep_factor;     /* 1 / (1 − dropout) */
  uint32_t last_dropped; /* a word up to this one drops its pair; unused without dropout */
} hd_problem;

/* Where a query stands among the keys (contract 7), and the keys of its document: all of them where documents are not packed. */
typedef struct hd_place {
  int64_t position, begin, end;
} hd_place;
hd_place hd_problem_place(const hd_problem *problem, int64_t batch, int64_t query);

/* A view [n,m], [H,n,m] or [lead...,H,n,m], any dimension 1, as a grid over the whole problem: dimensions of 1 have stride 0. E_SHAPE. */
heed_status hd_grid_broadcast(const hd_problem *problem, const heed_view *view, const char *name, hd_grid *out);

/* Number `head` of a view [H]. */
double hd_per_head(const heed_view *view, int64_t head);

/* What a pattern is asked to fit: the shapes of the call, already known to agree. */
typedef struct hd_shapes {
  int lead; /* leading dimensions before the head */
  const int64_t *lead_dim;
  int64_t heads, kv_heads, queries, keys, d, dv, key_width;
} hd_shapes;
heed_status hd_problem_make(heed_context *context, const heed_attention *a, const hd_shapes *shapes, hd_problem *out);

/* The caller's description, however old its header, as the current struct; all defaults for NULL. */
heed_status hd_description_read(heed_context *context, const heed_attention *a, heed_attention *out);

/* The views of a description as such: E_ARGUMENT, E_SHAPE (rank), E_TYPE, E_LAYOUT, E_OVERFLOW. Whether they fit the call is hd_problem_make's question. */
heed_status hd_description_check(heed_context *context, const heed_attention *a);

/* A gradient that may be NULL (not asked for) and must otherwise be laid like what it is the gradient of: E_ARGUMENT where that is not given, E_SHAPE, E_LAYOUT, E_TYPE. */
heed_status hd_gradient_check(heed_context *context, const heed_view *view, const char *name, const heed_view *like);

/* E_TYPE unless f32, f16 or bf16. */
heed_status hd_storable(heed_context *context, const hd_grid *grid, const char *name);

/* Reads a view of rank 2 to 6 as a grid. */
heed_status hd_grid_make(heed_context *context, const heed_view *view, const char *name, hd_grid *out);

#endif
