/* backward.h: what every gradient of attention begins with: query rows in lanes with their output gradients, log-sum-exp and δ, and the weights and score gradients of one
 * tile of keys rebuilt from them. */
#ifndef HD_BACKWARD_H
#define HD_BACKWARD_H

#include "attention.h"
#include "visible.h"

/* What the gradients are found from. */
typedef struct hd_backward {
  const hd_problem *problem;
  const hd_sweep *pass; /* NULL: everything, keys as they lie */
  hd_grid q, out, lse, dout;
  const hd_source *k, *v;
} hd_backward;

/* Query rows that are handled together. */
typedef struct hd_visit {
  hd_lanes lanes;
  int blocks, padded;
  hd_attn_gradient gradient[HD_MAX_BLOCKS];
} hd_visit;

/* Arrays for tiles of 64 keys × the level's lanes. */
typedef struct hd_visit_scratch {
  float *p, *ds, *terms; /* [64][lanes] */
  float *slope;          /* likewise; NULL: score gradients are wanted before the softcap's part of them */
  float *factors;        /* likewise, where there are any */
  float *rows;           /* [lanes][max(d, dv, 64), rounded up to 16]: copies on their way into lanes */
  float *out;            /* [dv][lanes] */
  float *keys, *values;  /* [tiles][64][d], rounded up to 16, and [tiles][64][dv]: keys and values that need a copy */
} hd_visit_scratch;

/* Cuts the arrays of a visit (q where scores are products, dout, lse and δ of full lanes) or of a scratch for so many tiles of keys from memory, as hd_cut. */
bool hd_visit_cut(const hd_problem *problem, hd_visit *visit, float *memory, int64_t *floats);
bool hd_visit_scratch_cut(const hd_problem *problem, int64_t tiles, hd_visit_scratch *scratch, float *memory, int64_t *floats);

/* Brings the rows that visit->lanes names into lanes. dq of every block is left alone. */
void hd_visit_begin(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit);

/* Points the tile, the index-th that the scratch has room for, to keys [k0, k0 + tile->keys) of a key/value head; in an order, to those at these places. */
void hd_visit_keys(const hd_backward *from, const hd_visit_scratch *scratch, int64_t kv, int64_t index, int64_t k0, hd_attn_tile *tile);

/* The tile as a score sees it. */
hd_score_place hd_visit_place(const hd_backward *from, const hd_visit_scratch *scratch, const hd_visit *visit, const hd_attn_tile *tile,
                              int64_t k0);

/* P (after dropout) into scratch->p and dS into scratch->ds, dq grows by dS K where it is wanted. False where no pair is visible: then nothing is done. live: the tiles of these rows. visible [64] is the tile's afterwards. */
bool hd_visit_tile(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit, hd_attn_tile *tile, int64_t k0,
                   const hd_live *live, uint64_t visible[HD_KEY_TILE]);

/* δ_i = Σ_c dout_ic out_ic of one row. */
double hd_delta(const hd_backward *from, int64_t batch, int64_t head, int64_t row);

/* backward_terms.c: the gradient of the bias. All memory is taken before anything is written. */
struct hd_bias_worker {
  hd_visit visit;
  hd_visit_scratch scratch;
  hd_live live;
  float *sums; /* [64][lanes] */
  float total; /* of rows, where the bias has neither rows nor keys */
};
typedef struct hd_bias_gradient {
  const hd_backward *from;
  hd_grid dbias;             /* laid over the whole problem */
  int axes;                  /* the leading dimensions and the heads */
  int64_t dim[HEED_MAX_DIM]; /* of those axes */
  bool own[HEED_MAX_DIM];    /* the bias has that axis */
  bool own_rows, own_keys;
  int64_t sharers;                        /* pairs of batch entry and head that add to the same part */
  int64_t owners, query_tiles, key_tiles; /* parts: owners × query_tiles × key_tiles */
  int64_t workers, floats;
  struct hd_bias_worker *worker;
  float *memory; /* NULL: nothing to do */
} hd_bias_gradient;
heed_status hd_bias_gradient_new(const hd_backward *from, const heed_view *dbias,
                                 hd_bias_gradient *job); /* dbias may be NULL; free after an error too */
void hd_bias_gradient_run(hd_bias_gradient *job);
void hd_bias_gradient_free(hd_bias_gradient *job);

/* No gradient may share memory with an input, an array of the description or another gradient: E_OVERLAP. The inputs have been checked, the gradients are. */
heed_status hd_gradients_apart(heed_context *context, const heed_attention *a, const hd_named_view *inputs, int count,
                               const heed_attention_gradients *to);

/* The gradient of the sink; dsink may be NULL. */
void hd_backward_sink(const hd_backward *from, const heed_view *dsink);

/* backward_distance.c: the gradient of the table of relative positions (table), or of the score's distances, times factor; to may be NULL. HEED_E_MEMORY, HEED_E_OVERFLOW: before anything of it
 * is written. */
heed_status hd_backward_distances(const hd_backward *from, const heed_view *to, bool table, float factor);

#endif
