/* visible.h: what queries see, the limits of the description and its pattern together: bits of a rectangle, and the tiles of keys in which there are any. */
#ifndef HD_VISIBLE_H
#define HD_VISIBLE_H

#include "lanes.h"

/* Fills problem->limit from the description. */
void hd_limits_choose(hd_problem *problem);

/* The limits alone: keys outside [*begin, *end) are visible to none of the queries [q0, q1). Within [0, keys]; begin = end if there are none. */
void hd_limit_span(const hd_problem *problem, int64_t batch, int64_t q0, int64_t q1, int64_t *begin, int64_t *end);

/* The keys [*from, *to) that the limits show to all of the queries. */
void hd_limit_whole(const hd_problem *problem, int64_t batch, int64_t q0, int64_t q1, int64_t *from, int64_t *to);

/* The rectangle (at most 64 × 64) as bits, bit (query − q0) of visible[key − k0]; other bits are 0. */
hd_cover hd_visible_bits(const hd_problem *problem, const hd_rect *rect, uint64_t *visible);

enum { HD_LIVE_PIECES = 4 };

/* Tiles of keys that may be alive for some queries: a walk passes over all others. Sets have a bit a tile. In an order, keys are places. */
typedef struct hd_live {
  int64_t begin, end; /* keys: what the limits leave */
  int64_t from, to;   /* of them, not in an order, what they show to every row */
  bool sets;          /* there is a pattern */
  /* In an order: shown has, by keys, tiles of which the pass before shows a part to some of the rows, or of those between them. */
  bool earlier;
  uint64_t *alive, *shown; /* it shows some pair there; it shows all */
  int64_t *spans;          /* in an order, [lanes][4]: a row sees the places [0, 1) and [2, 3) */
  uint64_t *scratch;
  /* Rows of one head that see alike: [0, piece_end[0]), [piece_end[0], piece_end[1]), …, and their own sets [pieces][alive, shown]. None where there is no room for them, or they are many. */
  int pieces, piece_end[HD_LIVE_PIECES];
  uint64_t *piece_sets;
} hd_live;

/* Cuts the arrays from memory, as hd_cut; or the sets alone, for who borrows the scratch of another. */
bool hd_live_cut(const hd_problem *problem, hd_live *live, float *memory, int64_t *floats);
bool hd_live_cut_sets(const hd_problem *problem, hd_live *live, float *memory, int64_t *floats);

/* The tiles of the rows of lanes in a pass; NULL: of the whole pattern, as keys lie. */
void hd_live_of_lanes(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, hd_live *live);

/* The first key that any of queries [q0, q1) of a head sees; as many as there are keys where there is none. */
int64_t hd_first_visible(const hd_problem *problem, int64_t batch, int64_t head, int64_t q0, int64_t q1, hd_live *live);

/* The next keys from `key` on: the part of a tile that the limits leave, where the tile is alive. False where there is none. */
bool hd_live_next(const hd_live *live, int64_t key, int64_t *k0, int64_t *k1);
/* Whether the pattern shows all of the tile of a key. */
bool hd_live_shown(const hd_live *live, int64_t key);

/* The bits of the lanes for keys [k0, k1) of a pass, at most one tile; live: theirs, or NULL where the pass is. */
hd_cover hd_lanes_visible(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, const hd_live *live, int64_t k0,
                          int64_t k1, uint64_t visible[HD_KEY_TILE]);

/* Cuts the pattern into passes, once it is known how scores are made; until then there is one for everything. */
void hd_sweeps_choose(hd_problem *problem);
/* The pass that has what a part scatters for a head; NULL: none. */
const hd_sweep *hd_sweep_of(const hd_problem *problem, const heed_pattern *part, int64_t head);

#endif
