/* lanes.h: query rows as the lanes of a tile: how a call's queries are cut into tiles, and rows on their way in and out.
 *
 * Lanes are independent, so how rows are grouped never shows in a result. */
#ifndef HD_LANES_H
#define HD_LANES_H

#include "problem.h"

/* Lane i is row row[i] of head head[i], all of one batch entry; `heads` heads in turn with the same rows. */
typedef struct hd_lanes {
  int64_t batch;
  int count, heads;
  int64_t head[HD_MAX_LANES], row[HD_MAX_LANES];
} hd_lanes;

/* Tiles of queries. With few queries, heads that share keys and values share a tile; more than half a tile of queries is better off alone. */
typedef struct hd_tiling {
  int64_t queries, heads;          /* rows and heads of a full tile */
  int64_t query_tiles, head_tiles; /* tiles over the queries, over the heads of a group */
} hd_tiling;
hd_tiling hd_tiling_of(const hd_problem *problem, const hd_sweep *pass); /* queries > 0; in an order heads have tiles of their own */

/* The lanes of a tile of key/value head kv (counted over the batch); in an order rows are those that stand there. pass NULL: as they lie. */
void hd_lanes_of(const hd_problem *problem, const hd_sweep *pass, const hd_tiling *tiling, int64_t kv, int64_t head_tile,
                 int64_t query_tile, hd_lanes *lanes);

/* What queries are multiplied by on their way into lanes, so that products come out in log2 units. Scores that are no products read the queries' rows. */
static inline float hd_query_factor(const hd_problem *problem) { return (float)(problem->scale * HD_LOG2E); }

/* Lanes rounded up to whole vectors: the stride of a tile's scratch. */
int hd_lanes_padded(const hd_problem *problem, const hd_lanes *lanes);
/* Blocks of the level's width that the lanes fill, and what is common to all kernels in block i: widths, lanes, which are used, shift. */
int hd_lanes_blocks(const hd_problem *problem, const hd_lanes *lanes);
hd_attn_block hd_lanes_block(const hd_problem *problem, const hd_lanes *lanes, int i);
hd_attn_block hd_attn_block_of(const hd_kernels *kernels, int64_t d, int64_t dv, int shift, int used);
enum { HD_MAX_BLOCKS = HD_MAX_LANES / 4 }; // the narrowest block is the scalar level's

/* Where the lanes' rows of `grid` lie. */
void hd_lane_addresses(const hd_grid *grid, const hd_lanes *lanes, char **rows);

/* `rows` rows of a grid from `row` on as something to ask for ahead; nothing where the kernels do not read them in place or there are none. */
hd_ahead hd_rows_ahead(const hd_grid *grid, const void *row, int64_t rows);

/* The rows of `grid` that the lanes name, columns [column, column + columns), as pointers to contiguous f32: into the grid where it is that, else into scratch [count][columns]. */
void hd_lane_rows(const hd_kernels *kernels, const hd_grid *grid, const hd_lanes *lanes, int64_t column, int64_t columns, float *scratch,
                  const float **rows);

/* The bits of what dropout keeps, for keys [k0, k1); NULL where there is no dropout. */
const uint64_t *hd_lanes_kept(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, uint64_t kept[HD_KEY_TILE]);
/* The same for keys that need not be neighbours. */
const uint64_t *hd_keys_kept(const hd_problem *problem, const hd_lanes *lanes, const hd_keys *keys, uint64_t kept[HD_KEY_TILE]);

/* The caller's factors of the weights into out [k1 − k0][padded], scratch [lanes][64]; NULL where there are none. */
const float *hd_lanes_factors(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, float *out,
                              int padded);

/* A number of floats rounded up to whole vectors of any level. */
static inline int64_t hd_padded(int64_t n) { return hd_ceil_div(n, HD_PANEL) * HD_PANEL; }

/* Arrays of rows × columns floats, cut from one piece of memory; with memory NULL only their sizes are added to *floats. False where that overflows. */
typedef struct hd_part {
  float **array;
  int64_t rows, columns;
} hd_part;
bool hd_cut(float *memory, const hd_part *parts, int count, int64_t *floats);

#endif
