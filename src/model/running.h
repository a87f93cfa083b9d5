/* running.h: layers of linear attention in a pass: what they keep of a sequence instead of its keys and values, a sum that does not grow. */
#ifndef HD_RUNNING_H
#define HD_RUNNING_H

#include "session.h"

/* One sequence's state in each layer that is linear. */
typedef struct hd_running hd_running;
struct hd_running {
  int64_t length; /* tokens that it holds; −1: nobody knows, after a run that failed */
  int64_t floats; /* of a layer's state: sums [kv_heads, width, head_dim], normalisers [kv_heads, width], exponents [kv_heads] */
  int64_t layers;
  float *state; /* [layers, floats] */
};

/* *out is NULL for a model that needs none: without linear attention, or an encoder, whose sequences are read at once. */
heed_status hd_running_new(heed_context *context, const heed_model *model, hd_running **out);
void hd_running_free(heed_context *context, hd_running *running);

/* The random rows of a model's layers, into its arena. */
heed_status hd_linear_load(heed_context *context, heed_model *model);

/* Rows of the pass attend in a linear layer: queries, keys and values lie in qkv, the result goes to mixed. Where there are states, the pass has one span. */
heed_status hd_linear_attend(const hd_pass *pass, int64_t layer);

/* The weights that linear attention implies, [n_heads, rows, rows], of a pass of one span that begins with the first token. */
heed_status hd_linear_weights(const hd_pass *pass, int64_t layer, int64_t n_heads, const int64_t *heads, float *weights, uint8_t *visible);

#endif
