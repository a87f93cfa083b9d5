/* backward.h: what every gradient of attention begins with: query rows in lanes with their output gradients, log-sum-exp and δ, and the weights and score gradients of one
 * tile of keys rebuilt from them. */
#ifndef HD_BACKWARD_H
#define HD_BACKWARD_H

#include "attention.h"

/* What the gradients are found from. */
typedef struct hd_backward {
  const hd_problem *problem;
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
  float *rows;           /* [lanes][max(d, dv, 64)]: copies on their way into lanes */
  float *out;            /* [dv][lanes] */
  float *keys, *values;  /* [64][d], [64][dv] */
} hd_visit_scratch;

/* Cuts the arrays of a visit (q, dout, lse and δ of full lanes) or of a scratch from memory, as hd_cut. */
bool hd_visit_cut(const hd_problem *problem, hd_visit *visit, float *memory, int64_t *floats);
bool hd_visit_scratch_cut(const hd_problem *problem, hd_visit_scratch *scratch, float *memory, int64_t *floats);

/* Brings the rows that visit->lanes names into lanes. dq of every block is left alone. */
void hd_visit_begin(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit);

/* Points the tile to keys [k0, k0 + tile->keys) of a key/value head. */
void hd_visit_keys(const hd_backward *from, const hd_visit_scratch *scratch, int64_t kv, int64_t k0, hd_attn_tile *tile);

/* P (after dropout) into scratch->p and dS into scratch->ds, dq grows by dS K where it is wanted. False where no pair is visible: then nothing is done. visible [64] is the tile's afterwards. */
bool hd_visit_tile(const hd_backward *from, const hd_visit_scratch *scratch, hd_visit *visit, hd_attn_tile *tile, int64_t k0,
                   uint64_t visible[HD_KEY_TILE]);

/* δ_i = Σ_c dout_ic out_ic of one row. */
double hd_delta(const hd_backward *from, int64_t batch, int64_t head, int64_t row);

/* A gradient that may be NULL (not asked for) and must otherwise be laid like what it is the gradient of: E_ARGUMENT where that is not given, E_SHAPE, E_LAYOUT, E_TYPE. */
heed_status hd_gradient_check(heed_context *context, const heed_view *view, const char *name, const heed_view *like);

/* backward_terms.c: the gradients of what is added to scores and sums. Absent (data NULL) ones are passed over. */
heed_status hd_backward_bias(const hd_backward *from, const heed_view *dbias);
void hd_backward_sink(const hd_backward *from, const heed_view *dsink);

#endif
