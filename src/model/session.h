/* session.h: one sequence under way: its cache of keys and values, the working memory of a pass, and the pass itself as the block sees it. */
#ifndef HD_SESSION_H
#define HD_SESSION_H

#include "../attn/attention.h"
#include "model.h"

/* ---- working memory ------------------------------------------------------------------------------------------------------- */

/* What a pass over `rows` positions needs beside the cache; grows with the largest pass. */
typedef struct hd_scratch {
  int64_t rows;
  float *x, *h;         /* [rows, width]: the residual stream; its norm, then what a sublayer adds */
  float *qkv;           /* [rows, (heads + 2 kv_heads) · head_dim] */
  float *mixed;         /* [rows, heads · head_dim]: what attention gives */
  float *wide;          /* [rows, 2 feed_forward] or [rows, feed_forward] */
  float *cosine, *sine; /* [rows, rotary_dim/2] */
} hd_scratch;

/* ---- a pass ----------------------------------------------------------------------------------------------------------------- */

typedef struct hd_pass {
  heed_context *context;
  const heed_model *model;
  heed_cache *cache; /* sequence i is what layer i holds */
  hd_scratch *scratch;
  const int32_t *ids; /* [rows] */
  int64_t rows, first;
  float *logits; /* [logit_rows, outputs], for the last logit_rows rows */
  int64_t logit_rows;
  const heed_watch *watch;               /* NULL: none */
  int64_t progress_done, progress_total; /* tokens before this pass, and in all; total 0: no reports */
} hd_pass;

/* Runs the rows through all layers: their keys and values go into the cache (which has room), their logits where they are asked for. */
heed_status hd_transformer_run(const hd_pass *pass);

/* One layer's attention as the block calls it. */
typedef struct hd_mixing {
  int64_t layer, keys;
  const heed_attention *attention;
  heed_view q, out; /* [heads, rows, head_dim] */
  const hd_source *k, *v;
} hd_mixing;

/* watch.c: the record of one layer, and the edit that may replace its weights; writes mixing->out for edited heads. */
heed_status hd_watch_layer(const hd_pass *pass, const hd_mixing *mixing);
/* Layers and heads within the model, callbacks present. */
heed_status hd_watch_check(heed_context *context, const heed_model *model, const heed_watch *watch);

/* ---- the session ------------------------------------------------------------------------------------------------------------ */

struct heed_session {
  heed_context *context;
  heed_model *model;
  int64_t capacity, chunk;
  int64_t length;
  int32_t *ids; /* [length]: what it holds */
  int64_t ids_capacity;
  heed_cache *cache; /* a sequence a layer */
  hd_scratch scratch;
};

#endif
