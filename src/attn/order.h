/* order.h: orders under which keys that a pattern scatters lie side by side, and passes: a pattern is attended to in passes, first what lies well as it is, then each
 * scattered part in its order. Passes have no pair in common; forward merges them by their sums, backward adds them up.
 *
 * Everything that depends on which key it is (positions, terms, dropout, masks, where gradients go) keeps to the true one: a tile of a pass names its keys. */
#ifndef HD_ORDER_H
#define HD_ORDER_H

#include "../base/base.h"
#include "../../include/heed/heed.h"
#include "../kern/kernels.h"

typedef enum hd_order_kind {
  HD_IN_PLACE,   /* as they are */
  HD_BY_CLASSES, /* queries and keys by what their number leaves over by `step`, each class ascending */
  HD_SUMMARY     /* queries as they are; of the keys only the last `width` of each `step`, ascending */
} hd_order_kind;

typedef struct hd_order {
  hd_order_kind kind;
  int64_t step, width;
  int64_t queries, keys; /* how many there are in the order */
} hd_order;

/* What stands at a place of the order. */
int64_t hd_order_query(const hd_order *order, int64_t place);
int64_t hd_order_key(const hd_order *order, int64_t place);
/* The places [*from, *to) of the keys of [begin, end) that belong to the order and, by classes, to that of key `like`. 0 ≤ begin ≤ end ≤ keys of the call. */
void hd_order_places(const hd_order *order, int64_t like, int64_t begin, int64_t end, int64_t *from, int64_t *to);
/* The order for so many queries and keys. */
hd_order hd_order_of(hd_order_kind kind, int64_t step, int64_t width, int64_t queries, int64_t keys);

/* part NULL: everything that no other pass has. */
typedef struct hd_sweep {
  const heed_pattern *part;
  hd_order order;
} hd_sweep;

/* The keys of a tile: at most 64. */
typedef struct hd_keys {
  int count;
  int64_t step; /* from one to the next; 0: uneven, and each is named */
  int64_t key[HD_KEY_TILE];
} hd_keys;
static inline int64_t hd_key(const hd_keys *keys, int i) { return keys->step ? keys->key[0] + i * keys->step : keys->key[i]; }
/* Those at places [k0, k1) of a pass; NULL: as they are. */
void hd_keys_of(const hd_sweep *pass, int64_t k0, int64_t k1, hd_keys *keys);

#endif
