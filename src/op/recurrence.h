/* recurrence.h: a gated recurrent unit through time, with or without attention at each step: what the operation gru and a model that decodes token by token both run.
 *
 * With state h, input part x_t [3H] of the gates (r, z, n) and, where there are keys, a context made of values that are parts of the gates already (and of what else is wanted of it):
 *   q = Wq h (or h)      s_j = w · tanh(q + k_j), or scale q · k_j      α = softmax(s)      [a | c] = Σ_j α_j v_j      h ← gru(x_t + a, Wh h + bh, h)      y = [h | c]
 * Rows do not touch each other: a row's bits are those that it has alone. */
#ifndef HD_OP_RECURRENCE_H
#define HD_OP_RECURRENCE_H

#include "../kern/kernels.h"

/* A matrix [outputs,inputs] in panels as hd_product takes them. */
typedef struct hd_packed {
  int64_t outputs, inputs;
  float *panels; /* [⌈outputs/16⌉][inputs][16]; NULL: there is none */
} hd_packed;
int64_t hd_packed_floats(int64_t outputs, int64_t inputs);
/* Into panels that are there. turned: of w [inputs,outputs]. */
void hd_packed_fill(const heed_context *context, const float *w, bool turned, const hd_packed *packed);
/* The same with panels of its own. w NULL gives none. Free with hd_packed_free. */
heed_status hd_packed_make(heed_context *context, const float *w, int64_t outputs, int64_t inputs, bool turned, hd_packed *out);
void hd_packed_free(heed_context *context, hd_packed *packed);

/* What all rows share. */
typedef struct hd_recurrence {
  int64_t width;     /* H */
  int64_t row_width; /* of what comes out: H, or H and what a value has beyond 3H */
  hd_packed hidden;  /* Wh [3H,H] */
  const float *bias; /* [3H] or NULL */

  int64_t query;       /* A: columns of queries and keys; 0: no attention */
  int64_t value;       /* columns of values, at least 3H */
  hd_packed projected; /* Wq [A,H]; none: the query is the state */
  const float *w;      /* [A] additive; NULL: products */
  float scale;         /* of products */
} hd_recurrence;
static inline int64_t hd_recurrence_kept(const hd_recurrence *r) { return 5 * r->width + r->query; }

/* Keys and values that rows attend to: entry e has keys [S,A] and values [S,V] one behind another, of which the first lengths[e] count. */
typedef struct hd_recurrence_memory {
  int64_t entries, keys; /* keys: S */
  const float *key, *value;
  const int32_t *lengths; /* [entries]; NULL: all */
  // Filled by hd_recurrence_memory_open where scores are additive:
  int64_t columns;   /* A, rounded up to 16 */
  float *terms;      /* e^2k [entries][S][columns] */
  float *near;       /* [entries][S] the largest |k| */
  float *padded;     /* keys [entries][S][columns] where A is no multiple of 16 */
  float *w;          /* [columns] */
  int64_t allocated; /* floats at terms */
} hd_recurrence_memory;
/* What opening takes, of `keys` keys in all, where scores are additive. */
int64_t hd_recurrence_memory_floats(int64_t query, int64_t keys);
heed_status hd_recurrence_memory_open(heed_context *context, const hd_recurrence *r, hd_recurrence_memory *memory);
void hd_recurrence_memory_close(heed_context *context, hd_recurrence_memory *memory);

/* Rows through time. Position p of a row (x, kept) is first[row] + t; alpha is [rows,steps,S]. */
typedef struct hd_recurrence_rows {
  int64_t rows, steps;
  bool reverse;           /* from the last element of each row to its first */
  const int32_t *lengths; /* [rows]; NULL: steps */
  const int64_t *first;   /* [rows] */
  const float *x;         /* [positions,3H] */
  const float *initial;   /* [rows,H]; NULL: zeros */
  float *out;             /* [rows,steps,row_width]; what is behind the end of a row is not touched */
  float *kept;            /* [positions,hd_recurrence_kept]: r, z, n, h's part of n, the state before, the query; or NULL */
  float *alpha;           /* [rows,steps,S]; or NULL */
  const int64_t *entry;   /* [rows] of the memory; NULL: the row's own number */
} hd_recurrence_rows;
/* What a run, forward or back, takes for a while; keys: of an entry. */
int64_t hd_recurrence_scratch_floats(const heed_context *context, const hd_recurrence *r, int64_t keys, int64_t rows, int64_t steps);
heed_status hd_recurrence_run(heed_context *context, const hd_recurrence *r, const hd_recurrence_memory *memory,
                              const hd_recurrence_rows *rows);

/* Where gradients go. All are written whole but for what is behind the ends of rows, which must hold zeros. */
typedef struct hd_recurrence_gradients {
  const float *dy;  /* [rows,steps,row_width] */
  float *dx;        /* [positions,value or 3H]: of the gates' input, and of what else is made of the context */
  float *dgates;    /* [positions,3H]: of what the state gives to the gates */
  float *dquery;    /* [positions,A]; where there is attention */
  float *ds;        /* [rows,steps,S]: of scores, before scale; where there is attention */
  float *dkey, *dw; /* [entries,S,columns] where scores are additive: to be zeros; dw is a share of each key */
  float *dinitial;  /* [rows,H] or NULL */
} hd_recurrence_gradients;
/* hidden_turned: Wh [3H,H] turned, projected_turned: Wq, or none. Rows are those of the run, with what it kept. */
heed_status hd_recurrence_back(heed_context *context, const hd_recurrence *r, const hd_recurrence_memory *memory,
                               const hd_recurrence_rows *rows, const hd_packed *hidden_turned, const hd_packed *projected_turned,
                               const hd_recurrence_gradients *to);

/* to [S,n] (+)= Σ_t a[t][j] x[t] for one row: what its positions give back to what it attended to. a [length,S], x [length] rows of n, stride floats apart. `scratch` has room for
 * hd_recurrence_turn_floats. */
int64_t hd_recurrence_turn_floats(int64_t keys, int64_t steps, int64_t n);
typedef struct hd_recurrence_turn {
  const float *a, *x;
  int64_t keys, length, n, a_stride, x_stride;
  float factor;
  bool accumulate;
  float *to, *scratch;
  int64_t to_stride;
} hd_recurrence_turn;
void hd_recurrence_turn_run(const hd_kernels *kernels, const hd_recurrence_turn *turn);

#endif
