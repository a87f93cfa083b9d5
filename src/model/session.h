/* session.h: one sequence under way: its cache of keys and values, the working memory of a pass, and the pass itself as the block sees it. */
#ifndef HD_SESSION_H
#define HD_SESSION_H

#include "../attn/attention.h"
#include "model.h"

/* ---- cache ------------------------------------------------------------------------------------------------------------------ */

/* Positions a page holds: a multiple of the key tile. A page holds all layers, since all have the same length: [layers][k, v][kv_heads][HD_PAGE_KEYS][head_dim]. */
enum { HD_PAGE_KEYS = 256 };

typedef struct hd_cache {
  int64_t layers, kv_heads, head_dim;
  float **pages;
  int64_t page_count, page_capacity;
  const void **k_pages, **v_pages; /* [page_capacity]: one layer's part of each page, for a source */
} hd_cache;

void hd_cache_init(hd_cache *cache, const hd_transformer_spec *spec);
void hd_cache_free(heed_context *context, hd_cache *cache);
/* Room for positions [0, length). What is held stays. HEED_E_MEMORY. */
heed_status hd_cache_reserve(heed_context *context, hd_cache *cache, int64_t length);
/* Stores one position's keys and values, [kv_heads · head_dim] each. */
void hd_cache_store(hd_cache *cache, int64_t layer, int64_t position, const float *k, const float *v);
/* Keys [0, keys) of a layer as sources. They borrow the cache's lists: good until the next call. */
heed_status hd_cache_sources(heed_context *context, hd_cache *cache, int64_t layer, int64_t keys, hd_source *k, hd_source *v);
/* Keys (or values) [0, keys) of one head, gathered: out [keys, head_dim]. */
void hd_cache_gather(const hd_cache *cache, int64_t layer, bool values, int64_t head, int64_t keys, float *out);

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
  hd_cache *cache;
  hd_scratch *scratch;
  const int32_t *ids; /* [rows] */
  int64_t rows, first;
  float *logits; /* [logit_rows, vocabulary], for the last logit_rows rows */
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
  hd_cache cache;
  hd_scratch scratch;
};

#endif
