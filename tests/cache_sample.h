/* cache_sample.h: caches filled with the keys and values of a sample, and an allocator that counts. */
#ifndef HEED_CACHE_SAMPLE_H
#define HEED_CACHE_SAMPLE_H

#include "attention_sample.h"
#include "counting_allocator.h"

static inline heed_cache *new_cache(heed_context *c, int64_t sequences, int64_t kv_heads, int64_t d, int64_t dv, heed_cache_type type,
                                    int64_t keep) {
  heed_cache *cache = NULL;
  heed_cache_spec spec = {.size = sizeof spec, .sequences = sequences, .kv_heads = kv_heads, .d = d, .dv = dv, .type = type, .keep = keep};
  ok(c, heed_cache_new(c, &spec, &cache));
  return cache;
}

/* Keys [from, to) of one batch entry of a sample, as views. */
static inline void entry_views(const sample *s, int64_t b, int64_t from, int64_t to, heed_view *k, heed_view *v) {
  *k = heed_view_of(s->k + b * s->kv_heads * s->m * s->d + from * s->d, HEED_F32, 3, (int64_t[]){s->kv_heads, to - from, s->d});
  *v = heed_view_of(s->v + b * s->kv_heads * s->m * s->dv + from * s->dv, HEED_F32, 3, (int64_t[]){s->kv_heads, to - from, s->dv});
  k->stride[0] = s->m * s->d;
  v->stride[0] = s->m * s->dv;
}

static inline void append(heed_context *c, heed_cache *cache, const sample *s, int64_t b, int64_t sequence, int64_t from, int64_t to) {
  heed_view k, v;
  entry_views(s, b, from, to, &k, &v);
  ok(c, heed_cache_append(cache, sequence, &k, &v));
}

#endif
