/* score.h: how a query and a key make a score, where it is not their dot product.
 *
 * A score may change what is compared (begin: additive and bilinear scores project queries, keys or both), how a tile is scored (scores: without it the kernel multiplies), and
 * then says what a tile's score gradients do (gradients) and how gradients of projections become those of inputs and weights (end). Everything after the score (softcap, terms,
 * visibility, softmax, dropout, values) is the fused kernel's, which finds the tile scored. A new score is one file score_<name>.c with one hd_score_kind, and one line in
 * HD_SCORE_LIST. */
#ifndef HD_SCORE_H
#define HD_SCORE_H

#include "lanes.h"
#include "source.h"

/* One call's score. */
typedef struct hd_scoring {
  const struct hd_score_kind *kind;
  heed_score score;
  double scale;                          /* what the description asks for */
  const heed_view *given_q, *given_k;    /* the caller's */
  heed_view q, k;                        /* what is compared: the caller's, or projections of it */
  const heed_attention_gradients *asked; /* NULL: forward */
  heed_view dq, dk;                      /* gradients of q and k; data NULL: not needed */
  int64_t columns;                       /* additive: h, XL: d, rounded up to 16 */
  float *weights, *scaled;               /* additive: wv [columns], and times scale · log2 e */
  const float *distances;                /* XL: rows of d as f32, so far apart */
  int64_t distance_head, distance_row;
  float *memory;
  int64_t floats;
} hd_scoring;

/* A tile of keys and the queries that meet it. */
typedef struct hd_score_place {
  const hd_problem *problem;
  const hd_grid *q;
  const hd_lanes *lanes;
  const hd_attn_tile *tile;
  int64_t k0;
  float *rows, *matrix,
      *keys; /* scratch: [lanes][widest row], [64][lanes]; [64][widest key], unless the tile's keys are there; rows rounded up to 16 */
} hd_score_place;

/* Where a tile's gradients go. */
typedef struct hd_score_gradients {
  const float *ds;                    /* [64][stride], 0 where hidden */
  float *dq;                          /* [lanes][query_columns] */
  float *dk, *dw;                     /* [64][key_columns]: what each key adds */
  int64_t query_columns, key_columns; /* the widths of q and k, rounded up to 16 */
} hd_score_gradients;

typedef struct hd_score_kind {
  const char *name;
  /* Checks shapes (q and k are checked views) and fills q, k and, where gradients are asked for, dq and dk. NULL: they are the caller's. */
  heed_status (*begin)(heed_context *context, hd_scoring *scoring);
  /* Scores of the tile into tile->scores, in log2 units. NULL: the kernel's product. */
  void (*scores)(const hd_scoring *scoring, const hd_score_place *at);
  /* Adds to dq, dk and dw, which are multiplied by the scale afterwards unless gradients_scaled. NULL: dq and dk are those of a product. */
  void (*gradients)(const hd_scoring *scoring, const hd_score_place *at, const hd_score_gradients *to);
  bool gradients_scaled;
  /* The caller's gradients from dq and dk. NULL: they are the caller's. */
  heed_status (*end)(heed_context *context, const hd_scoring *scoring);
} hd_score_kind;

/* One line expands to the declaration of hd_score_<name> and to an entry of the table; in the order of heed_score_kind. */
#define HD_SCORE_LIST(X)                                                                                                                   \
  X(dot)                                                                                                                                   \
  X(additive)                                                                                                                              \
  X(bilinear)                                                                                                                              \
  X(callback)                                                                                                                              \
  X(xl)

#define HD_SCORE_DECLARE(name) extern const hd_score_kind hd_score_##name;
HD_SCORE_LIST(HD_SCORE_DECLARE)
#undef HD_SCORE_DECLARE

/* The description's score, its views checked against q and k; the dot product where nothing is said. E_ARGUMENT, E_SHAPE, E_TYPE. Takes no memory. */
heed_status hd_score_read(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k, heed_score *out);
/* E_TYPE where a weight is f64, which only the reference takes. */
heed_status hd_score_storable(heed_context *context, const heed_score *score);

/* Begins a call: reads the score and projects. asked is NULL for a forward pass. hd_scoring_free also after an error. */
heed_status hd_scoring_begin(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                             const heed_attention_gradients *asked, hd_scoring *scoring);
heed_status hd_scoring_end(heed_context *context, const hd_scoring *scoring);
void hd_scoring_free(heed_context *context, hd_scoring *scoring);

/* XL: the row of distances that a query at a position and a key have. */
static inline int64_t hd_distance_row(const heed_score *score, int64_t position, int64_t key) {
  const int64_t rows = score->distances->dim[1], row = position - key - score->first_distance;
  return row < 0 ? 0 : row < rows ? row : rows - 1;
}

/* Of `keys` keys from k0 on those, [*begin, *end), that have rows [row, row + count) there. */
static inline void hd_distance_keys(const heed_score *score, int64_t position, int64_t k0, int keys, int64_t row, int64_t count, int *begin,
                                    int *end) {
  const int64_t of_k0 = position - k0 - score->first_distance; // were there no ends
  const int64_t from = row + count == score->distances->dim[1] ? 0 : of_k0 - row - count + 1, to = row == 0 ? keys : of_k0 - row + 1;
  *begin = (int)HD_CLAMP(from, 0, keys);
  *end = (int)HD_CLAMP(to, *begin, keys);
}
static inline const float *hd_distance_at(const hd_scoring *s, int64_t head, int64_t row) {
  return s->distances + head * s->distance_head + row * s->distance_row;
}

/* For `begin`: floats of a projection. False where that overflows. */
bool hd_projection_size(const heed_view *like, int64_t columns, int64_t *floats);
/* A view of rows × h floats laid like `like` (whose last dimension becomes h), `columns` apart, cut from memory at *used. */
heed_view hd_projection(const heed_view *like, int64_t h, int64_t columns, float *memory, int64_t *used);
/* For `end`: dw [r,c] = Σ over batch and heads of aᵀ b, a [...,rows,r], b [...,rows,c]; rows ascending. dw NULL: nothing. */
heed_status hd_weight_gradient(heed_context *context, const heed_view *a, const heed_view *b, const heed_view *dw);

#endif
