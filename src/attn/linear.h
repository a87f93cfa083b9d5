/* linear.h: one call of linear attention, understood, and the pieces of work that forward and backward have in common.
 *
 * Keys come in chunks of 64 and chunks in segments. A row meets the keys of its own chunk one by one and all before them as a sum, the state. A piece of work is one segment of one key/value
 * head: it sums up its own chunks, waits until the pieces before it have handed on what they amount to (pieces are claimed in order, so those are under way), hands on its own, and then makes
 * its rows. So one head keeps all threads busy, nothing is computed twice, and sums have one order whoever makes them; where there are heads for every thread, each takes whole ones, in the same order. The gradients of keys and values are the same walk from the other end, with
 * queries in place of keys. */
#ifndef HD_LINEAR_H
#define HD_LINEAR_H

#include "attention.h"

typedef struct hd_linear {
  heed_context *context;
  const hd_kernels *kernels;
  heed_linear_attention a;
  heed_linear_state before; /* as given; its views may be null */
  int64_t batch, heads, kv_heads, group, queries, keys, d, dv;
  int64_t projected; /* rows of the projection; 0: none, features are elementwise */
  int64_t features;  /* f */
  double scale, epsilon;
  hd_grid q, k, v;
  hd_grid attend;                                          /* [batch][keys] as rows and columns, or no data */
  hd_grid decay, beta;                                     /* or no data; beta of one head: head_stride 0 */
  hd_grid before_sums, before_normaliser, before_exponent; /* or no data; normaliser and exponent with one column */
} hd_linear;

/* Reads everything but outputs; queries, keys and values of any number type. E_ARGUMENT, E_SHAPE, E_TYPE, E_LAYOUT, E_OVERFLOW. */
heed_status hd_linear_make(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                           const heed_view *v, hd_linear *out);

static inline bool hd_linear_projects(const hd_linear *p) { return p->projected > 0; }

/* Whether key j of a batch entry counts. */
bool hd_linear_counts(const hd_linear *p, int64_t batch, int64_t key);

/* A state's views as grids; E_SHAPE, E_TYPE, and for an output E_LAYOUT. */
typedef struct hd_linear_grids {
  hd_grid sums, normaliser, exponent;
} hd_linear_grids;
heed_status hd_linear_state_read(const hd_linear *p, const heed_linear_state *given, bool output, const char *name, hd_linear_grids *out);

/* The views that a description brings along, for tests of overlap. */
enum { HD_LINEAR_VIEWS = 10 };
void hd_linear_views(const hd_linear *p, const heed_view *q, const heed_view *k, const heed_view *v, hd_named_view out[HD_LINEAR_VIEWS]);

/* lse, checked against q; E_SHAPE, E_TYPE. */
heed_status hd_linear_lse(const hd_linear *p, const heed_view *lse, bool output, hd_grid *out);

/* The outputs of forward, from kernels or oracle, checked: out and lse as grids (lse without data where not asked) and the state after. */
heed_status hd_linear_outputs(const hd_linear *p, const heed_view *q, const heed_view *k, const heed_view *v, const heed_view *out,
                              const heed_linear_extras *extras, hd_grid *out_grid, hd_grid *lse, hd_linear_grids *after);
/* E_OVERLAP where one of the outputs shares memory with another, or with an input; a state may be handed on in the memory it came in. Views may be null. */
heed_status hd_linear_outputs_check(const hd_linear *p, const hd_named_view *inputs, int count, const hd_named_view *outputs, int outs);
/* E_TYPE unless the kernels take the inputs. */
heed_status hd_linear_storable(const hd_linear *p);

/* dout and the gradients, checked; those that are not asked for have no size. No gradient may overlap an input, dout, out or lse, of which the last two may be null and are not checked themselves. */
typedef struct hd_linear_given {
  const heed_view *q, *k, *v, *out, *lse, *dout;
} hd_linear_given;
typedef struct hd_linear_gradient_grids {
  hd_grid dq, dk, dv, ddecay, dbeta;
} hd_linear_gradient_grids;
heed_status hd_linear_gradients_read(const hd_linear *p, const hd_linear_given *given, const heed_linear_gradients *gradients,
                                     hd_grid *dout, hd_linear_gradient_grids *out);

/* Rules other than ADD (linear_rule.c). */
heed_status hd_linear_rule_forward(const hd_linear *p, const hd_grid *out, const hd_grid *lse, const hd_linear_grids *after);
heed_status hd_linear_rule_backward(const hd_linear *p, const hd_grid *dout, const hd_linear_gradient_grids *to);

/* ---- features (linear_features.c) ---------------------------------------------------------------------------------------------- */

/* What is made of the projection once a call: [d][padded F] with √scale · log2 e, and [F][padded d] with √scale. */
typedef struct hd_linear_maps {
  float *in, *back, *memory;
  int64_t floats;
} hd_linear_maps;
heed_status hd_linear_maps_new(const hd_linear *p, hd_linear_maps *out);
void hd_linear_maps_free(const hd_linear *p, hd_linear_maps *maps);

/* Features of `count` rows x [count][padded d] into y [count][padded f]; columns beyond f become 0. Where they are projected they come divided by 2^exponent[i], an integer that makes the largest
 * about 1; scratch [count][padded F]. */
void hd_linear_features(const hd_linear *p, const hd_linear_maps *maps, const float *x, int64_t count, float *scratch, float *y,
                        float *exponent);

/* The gradient of x from features y and dy, both as hd_linear_features has them (so that y ∘ dy is that of the exponents): dx [count][padded d], scratch [count][padded F]. dy is changed. */
void hd_linear_features_backward(const hd_linear *p, const hd_linear_maps *maps, const float *x, const float *y, float *dy, int64_t count,
                                 float *scratch, float *dx);

/* ---- rows (linear_walk.c) ------------------------------------------------------------------------------------------------------ */

/* Rows [begin, begin + count) of a head as f32, `stride` apart, filled up with 0. With `masked`, rows of keys that do not count become 0 and are not read. */
void hd_linear_rows(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count, bool masked, float *out,
                    int64_t stride);
/* The same, or where they lie if they lie so there. */
const float *hd_linear_rows_near(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count,
                                 bool masked, float *scratch, int64_t stride);
/* Where rows `stride` apart are to be computed: where they belong if they lie so there, else scratch, from which hd_linear_put brings them. */
float *hd_linear_rows_to(const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, float *scratch, int64_t stride);
/* And back. Nothing where rows are there already. */
void hd_linear_put(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t begin, int count, const float *rows,
                   int64_t stride);

/* Whether there are keys that do not count. */
static inline bool hd_linear_masks(const hd_linear *p) { return p->a.key_lengths || p->attend.size; }

/* Key features of a chunk into x [count][padded f], with their exponents: 0 and −inf where a key does not count. raw [64][padded d], scratch [64][padded F]. */
const float *hd_linear_keys(const hd_linear *p, const hd_linear_maps *maps, int64_t batch, int64_t head, int64_t begin, int count,
                            float *raw, float *scratch, float *x, float *exponent);
/* The same of queries. Both return the rows themselves. */
const float *hd_linear_queries(const hd_linear *p, const hd_linear_maps *maps, int64_t batch, int64_t head, int64_t begin, int count,
                               float *raw, float *scratch, float *x, float *exponent);

/* 2^exponent, an integer: 0 below −126 and 2^126 above 126. */
float hd_linear_power(float exponent);

/* ---- the walk (linear_walk.c) -------------------------------------------------------------------------------------------------- */

enum { HD_CHUNK = HD_KEY_TILE, HD_SEGMENT_CHUNKS = 8 };

/* A state: numbers to be multiplied by 2^exponent. Where the walk is `turned`, Σ_r y[r] x[r]ᵀ as [y_rows][x_stride]; otherwise Σ_r x[r] y[r]ᵀ as [x_rows][y_stride]; behind it, where asked for,
 * Σ_r x[r], or Σ_r weight[r] x[r], [x_stride]. */
typedef struct hd_linear_sum {
  float *data;
  float exponent;
} hd_linear_sum;

/* Rows of a chunk that are summed up. */
typedef struct hd_linear_items {
  float *x;
  const float *y;   /* points to room for them, but they may lie elsewhere */
  float *exponents; /* x is to be multiplied by 2^exponent, an integer, or −inf where the row is 0; where features are projected */
  float *weights;   /* where the walk weighs what it sums of x */
} hd_linear_items;

/* What a worker has for itself. */
typedef struct hd_linear_worker {
  hd_linear_items items[HD_SEGMENT_CHUNKS]; /* of the segment's chunks */
  float *room[HD_SEGMENT_CHUNKS];           /* for their y */
  hd_linear_sum sum[HD_SEGMENT_CHUNKS];     /* of the segment up to and with a chunk */
  hd_linear_sum start, state;               /* of all segments before; of all before the chunk at hand */
  float *own;
} hd_linear_worker;

/* What is made of a chunk: positions [begin, begin + count) of key/value head kv, counted over the batch. `state` is what lies before in the walk, and x, y the chunk's own rows, to be multiplied by
 * 2^exponent; x NULL: there are none, the state is everything. */
typedef struct hd_linear_chunk {
  int64_t kv, begin;
  int count;
  const hd_linear_sum *state;
  const float *x, *y, *weights;
  float exponent;
  hd_asking *asking; /* rows that are needed soon, for products to ask for */
} hd_linear_chunk;

typedef struct hd_linear_walk hd_linear_walk;
struct hd_linear_walk {
  const hd_linear *p;
  const void *job;
  bool reverse;           /* from the last chunk to the first */
  int64_t items, rows;    /* positions that are summed up, and that are made: the same where causal */
  int64_t row_group;      /* rows that are summed up for a position */
  int64_t x_rows, y_rows; /* numbers of a row x and of a row y */
  int64_t x_stride, y_stride;
  bool turned, sums_x, weighs;
  int64_t own_floats;
  const hd_grid *read[3], *made[4]; /* what collect and make read and write, to be asked for ahead; or NULL */
  /* Fills the chunk's rows, or points y to where they are. Returns how many rows. */
  int64_t (*collect)(const hd_linear_walk *walk, float *own, int64_t kv, int64_t begin, int count, hd_linear_items *items);
  void (*make)(const hd_linear_walk *walk, float *own, const hd_linear_chunk *chunk);
  void (*begin)(const hd_linear_walk *walk, int64_t kv, hd_linear_sum *start); /* the state before everything, which is 0 so far; or NULL */
  void (*end)(const hd_linear_walk *walk, int64_t kv, const hd_linear_sum *whole); /* is shown the state after everything; or NULL */
};

/* Where the sum of x stands in a state. */
static inline int64_t hd_linear_behind(const hd_linear_walk *walk) {
  return walk->turned ? walk->y_rows * walk->x_stride : walk->x_rows * walk->y_stride;
}

/* Carries a walk out for all key/value heads. E_MEMORY, E_OVERFLOW: nothing was made. */
heed_status hd_linear_walk_run(const hd_linear_walk *walk);

/* x [count][stride] as [columns][HD_CHUNK]. */
void hd_linear_turn(const hd_linear *p, const float *x, int64_t count, int64_t columns, int64_t stride, float *out);

#endif
