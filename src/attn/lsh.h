/* lsh.h: one call of LSH attention, understood, and what forward and backward have in common: rows hashed and sorted, and the pairs of a round.
 *
 * Heads are taken in groups of up to 65,536 rows (at least one head). A group is hashed and sorted once, for all rounds; then its rounds follow one another. In a round each row is in one chunk, so
 * that runs of chunks are pieces of work that share no row. */
#ifndef HD_LSH_H
#define HD_LSH_H

#include "attention.h"

enum { HD_LSH_CHUNK = HD_KEY_TILE, HD_LSH_MOST_ROUNDS = 1024, HD_LSH_ROWS = 1 << 16, HD_LSH_MOST_BUCKETS = 1 << 24 };

typedef struct hd_lsh {
  heed_context *context;
  const hd_kernels *kernels;
  heed_lsh_attention a;
  int64_t batch, heads, rows, d, dv, rounds;
  double scale;
  int64_t buckets[2]; /* of the first and the second rotation; the second 1: there is none */
  hd_grid qk, v, hashes;
} hd_lsh;

/* As many as a call of so many rows gets that does not say; the second is 1 where there is one rotation. */
void hd_lsh_buckets(int64_t rows, int64_t buckets[2]);

/* Reads everything but outputs (v NULL: hashes alone are wanted); numbers of any type. E_ARGUMENT, E_SHAPE, E_TYPE, E_LAYOUT, E_OVERFLOW. */
heed_status hd_lsh_make(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v, hd_lsh *out);
/* E_TYPE unless the kernels take the inputs. */
heed_status hd_lsh_storable(const hd_lsh *p);

/* The outputs of forward, and the gradients, from kernels or oracle, checked. Views that may be null give grids without size. */
heed_status hd_lsh_outputs(const hd_lsh *p, const heed_view *qk, const heed_view *v, const heed_view *out, const heed_view *lse,
                           hd_grid *out_grid, hd_grid *lse_grid);
typedef struct hd_lsh_given {
  const heed_view *qk, *v, *out, *lse, *dout; /* out and lse may be null, and are not checked */
} hd_lsh_given;
heed_status hd_lsh_gradients(const hd_lsh *p, const hd_lsh_given *given, const heed_view *dqk, const heed_view *dv, hd_grid *dout,
                             hd_grid *dqk_grid, hd_grid *dv_grid);

/* Rows of a batch entry that count. */
static inline int64_t hd_lsh_length(const hd_lsh *p, int64_t batch) { return p->a.key_lengths ? p->a.key_lengths[batch] : p->rows; }

/* Number (row, column) of a rotation: columns are half its buckets. A standard normal number. */
double hd_lsh_rotation(const hd_lsh *p, int64_t round, int which, int64_t row, int64_t column);
/* What a row of d numbers is divided by, as a key, squared: |x|² plus d times this. */
#define HD_LSH_EPSILON 1e-6
static inline double hd_lsh_epsilon(const hd_lsh *p) { return (double)p->d * HD_LSH_EPSILON; }

/* ---- a group of heads --------------------------------------------------------------------------------------------------------------- */

typedef struct hd_lsh_group {
  int64_t most;         /* heads of a full group */
  int64_t first, heads; /* heads are counted over the batch */
  int32_t *order;       /* [heads][rounds][n] which row stands at a place */
  float *chunk;         /* [heads][n][rounds] the chunk of a row; until rows are sorted, its bucket */
  float *inverse;       /* [heads][n] 1 / the length of a row */
  float *rotations;     /* [rounds] of [d][columns] of both kinds */
  int64_t columns[2];   /* of a rotation of each kind, whole vectors */
  float *memory;
  int64_t floats;
} hd_lsh_group;

/* Makes the rotations and room for a full group, filled later. E_MEMORY, E_OVERFLOW. */
heed_status hd_lsh_group_new(const hd_lsh *p, hd_lsh_group *group);
void hd_lsh_group_free(const hd_lsh *p, hd_lsh_group *group);
/* Hashes and sorts the heads from `first` on. */
heed_status hd_lsh_group_fill(const hd_lsh *p, hd_lsh_group *group, int64_t first);

/* ---- pieces of work (lsh_work.c) --------------------------------------------------------------------------------------------------- */

/* One head's chunks [begin, end) in a round; or, with round −1, its rows [begin, end), 64 at most. */
typedef struct hd_lsh_run {
  const hd_lsh *p;
  const hd_lsh_group *group;
  void *job;
  int64_t round, head, begin, end; /* head of the group */
  int worker;
  void *own; /* that worker's, where hd_lsh_work_run has made them */
} hd_lsh_run;

/* Calls body for the rows of all heads of the group. */
void hd_lsh_rows(const hd_lsh *p, const hd_lsh_group *group, void *job, void (*body)(const hd_lsh_run *run));
/* As many workers as it takes. */
int hd_lsh_workers(const hd_lsh *p, const hd_lsh_group *group);

/* All heads, group by group: `begin` (NULL: nothing) for their rows, `round` for the runs of each round, `finish` for their rows. Each array of `rows` is made first, its columns for each row of a full
 * group, and for each worker worker_size bytes, which lay_out cuts from memory as hd_cut does. E_MEMORY, E_OVERFLOW: nothing is called. E_CANCELLED (progress "attention"). */
typedef struct hd_lsh_work {
  void *job;
  hd_part rows[5];
  int row_arrays;
  size_t worker_size;
  bool (*lay_out)(const hd_lsh *p, void *worker, float *memory, int64_t *floats);
  void (*begin)(const hd_lsh_run *run), (*round)(const hd_lsh_run *run), (*finish)(const hd_lsh_run *run);
} hd_lsh_work;
heed_status hd_lsh_work_run(const hd_lsh *p, hd_lsh_work *work);

/* ---- a chunk of a run --------------------------------------------------------------------------------------------------------------- */

/* The rows of a chunk, as keys too. */
typedef struct hd_lsh_chunk {
  hd_lanes rows;
  uint32_t position[HD_LSH_CHUNK];
  float *earlier;       /* [rounds][64] their chunks in the rounds before */
  float *keys, *values; /* [64][d], [64][dv] */
} hd_lsh_chunk;

bool hd_lsh_chunk_cut(const hd_lsh *p, hd_lsh_chunk *chunk, float *memory, int64_t *floats);
int64_t hd_lsh_chunks(const hd_lsh *p, int64_t batch);
/* scratch [64][max(d, dv)] */
void hd_lsh_chunk_load(const hd_lsh_run *run, int64_t index, float *scratch, hd_lsh_chunk *chunk);
/* Lanes [from, from + lanes->count) of a chunk's rows. */
void hd_lsh_chunk_lanes(const hd_lsh *p, const hd_lsh_chunk *chunk, int from, hd_lanes *lanes);
/* The lanes as blocks of the kernels (widths, lanes, which are used, shift), as many as are returned, and the stride of their scratch. */
int hd_lsh_blocks(const hd_lsh *p, const hd_lanes *lanes, hd_attn_block *blocks);
int hd_lsh_padded(const hd_lsh *p, const hd_lanes *lanes);
/* What those lanes see of the keys. */
hd_cover hd_lsh_visible(const hd_lsh_run *run, const hd_lsh_chunk *queries, int from, int count, const hd_lsh_chunk *keys,
                        uint64_t visible[HD_KEY_TILE]);

#endif
