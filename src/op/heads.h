/* heads.h: what operations on heads have in common: rows that hold heads side by side, packed or not, as views, and gradients that several inputs share. */
#ifndef HD_OP_HEADS_H
#define HD_OP_HEADS_H

#include "elements.h"

/* The first three inputs; those that are NULL are packed into the one before. */
enum { HD_Q, HD_K, HD_V };

/* Which input holds the rows of queries, keys or values, from which column on, and how wide a head is. */
typedef struct hd_heads_place {
  int input;
  int64_t heads, width, column;
} hd_heads_place;
hd_heads_place hd_heads_place_of(const hd_node *node, int64_t heads, int64_t kv_heads, int which);

/* Rows of a tensor [B,n,columns] (or [n,columns]) as [B,heads,n,width]; data in place of its own. */
heed_view hd_heads_view(const heed_tensor *t, void *data, heed_type type, const hd_heads_place *at);

/* Checks q, k and v and gives out its shape. HEED_E_SHAPE, HEED_E_ARGUMENT. */
heed_status hd_heads_shape(heed_context *context, hd_node *node, int64_t heads, int64_t kv_heads);

/* Calls differentiate with where each input's gradient is to be written (NULL: nowhere): aside where it must be added, which happens afterwards. */
enum { HD_MOST_INPUTS = 12 };
heed_status hd_gradients_aside(heed_context *context, const hd_node *node, int inputs,
                               heed_status (*differentiate)(heed_context *context, const hd_node *node, void *const *to));

#endif
