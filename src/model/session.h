/* session.h: sequences under way: their cache of keys and values, the working memory of a pass, the pass itself as the block sees it, and a session, which has one sequence. */
#ifndef HD_SESSION_H
#define HD_SESSION_H

#include "../attn/attention.h"
#include "../attn/branches.h"
#include "model.h"

/* ---- working memory ------------------------------------------------------------------------------------------------------- */

/* What a pass over `rows` positions needs beside the cache; grows with the largest pass. */
typedef struct hd_scratch {
  int64_t rows;
  float *x, *h;                     /* [rows, width]: the residual stream; its norm, then what a sublayer adds */
  float *qkv;                       /* [rows, (heads + 2 kv_heads) · head_dim] */
  float *mixed;                     /* [rows, heads · head_dim]: what attention gives */
  float *wide;                      /* [rows, 2 feed_forward] or [rows, feed_forward] */
  float *cosine, *sine;             /* [rows, rotary_dim/2] */
  float *local_cosine, *local_sine; /* the same of layers with a window, where those turn otherwise */
  int64_t *places;                  /* [3, rows]: sequences, offsets and lengths of the entries of one call of attention */
} hd_scratch;

heed_status hd_scratch_reserve(heed_context *context, const hd_transformer_spec *spec, hd_scratch *s, int64_t rows);
void hd_scratch_free(heed_context *context, const hd_transformer_spec *spec, hd_scratch *s);

/* ---- a pass ----------------------------------------------------------------------------------------------------------------- */

/* Rows of one sequence: they stand at positions first, first + 1, ... */
typedef struct hd_span {
  int64_t rows, first;
  int64_t sequence; /* of the cache: its layer i is number sequence · layers + i there */
  int64_t source;   /* of the cross cache, likewise; where spec.cross */
} hd_span;

typedef struct hd_stream hd_stream;
typedef struct hd_mixing hd_mixing;
typedef struct hd_pass hd_pass;

struct hd_pass {
  heed_context *context;
  const heed_model *model;    /* or its encoder */
  heed_cache *cache;          /* NULL where the model is bidirectional: its sequences are within the pass; or where instead there are */
  hd_branches *branches;      /* with room for this pass: each span is one row, and they are its rows */
  struct hd_running *running; /* of layers with linear attention, and one span; NULL: none is, or the model is bidirectional */
  const heed_cache *cross;    /* of the sources; NULL unless spec.cross */
  hd_stream *stream;          /* NULL: none; otherwise there is one span, of one row where that takes the place of another */
  hd_scratch *scratch;
  const int32_t *ids;   /* [rows] */
  const hd_span *spans; /* one behind the other, `rows` rows in all; those of one source are neighbours */
  int64_t span_count, rows;
  int64_t capacity; /* positions that its sequences may reach, for positions that depend on it; 0: the model's context */
  float *logits;    /* [logit_rows, outputs], for the last logit_rows rows */
  int64_t logit_rows;
  const heed_watch *watch; /* NULL: none; otherwise there is one span */
  heed_stage stage;
  int64_t progress_done, progress_total; /* tokens before this pass, and in all; total 0: no reports */
  /* Sees every call of attention after it was carried out; NULL: nobody does. */
  heed_status (*mixed)(void *user, const hd_pass *pass, const hd_mixing *mixing);
  void *mixed_user;
};

/* Runs the rows through all layers: their keys and values go into the cache, their logits where they are asked for. A headless model leaves its result in scratch->x. Equal numbers of rows in
 * neighbouring spans make fewer calls of attention. A row's bits do not depend on the other spans. */
heed_status hd_transformer_run(const hd_pass *pass);

/* One call of attention for neighbouring spans with the same number of rows, as the block makes it. */
struct hd_mixing {
  heed_stage stage;
  int64_t layer, keys, row; /* row: of the pass, the first of the entries */
  /* What was computed is not `attention`, which is then what exact attention would be: finds the weights that it implies, [n_heads, rows, rows]; NULL: it is. `shows`: also visible [the same],
   * 1 where rows met, which is NULL where that says nothing. */
  heed_status (*implied)(const hd_pass *pass, int64_t layer, int64_t n_heads, const int64_t *heads, float *weights, uint8_t *visible);
  bool shows;
  const heed_attention *attention;
  heed_view q, out; /* [entries, heads, rows, head_dim] */
  const hd_source *k, *v;
};

/* watch.c: the record of one layer, and the edit that may replace its weights; writes mixing->out for edited heads. */
heed_status hd_watch_layer(const hd_pass *pass, const hd_mixing *mixing);
/* Layers and heads within the model, callbacks present. */
heed_status hd_watch_check(heed_context *context, const heed_model *model, const heed_watch *watch);

/* sources.c: runs ids of sources, one span each (sequence unused, source where it goes), through the model's encoder and puts what each layer of the decoder sees of them into the cross cache, in
 * place of what was there. scratch is the encoder's. */
heed_status hd_sources_run(const hd_pass *pass, heed_cache *cross);
/* A cache for that many sequences of each layer of the stack. */
heed_status hd_stack_cache_new(heed_context *context, const heed_model *model, int64_t sequences, heed_cache **out);

/* ---- the session ------------------------------------------------------------------------------------------------------------ */

struct heed_session {
  heed_context *context;
  heed_model *model;
  int64_t capacity, chunk;
  int64_t length;
  int32_t *ids; /* [held]: what it holds, or of a stream the last of it */
  int64_t held, ids_capacity;
  hd_stream *stream;          /* NULL: none */
  heed_cache *cache;          /* a sequence a layer */
  struct hd_running *running; /* NULL: no layer has linear attention */
  heed_cache *cross;          /* of an encoder–decoder: what the source says to each layer; else NULL */
  int64_t source_length;      /* 0: there is none yet */
  hd_scratch scratch, encoder_scratch;
};

#endif
