/* cache.c: keys and values of a sequence in pages that are allocated as it grows and never move. */
#include "session.h"

static int64_t head_floats(const hd_cache *cache) { return HD_PAGE_KEYS * cache->head_dim; }
static int64_t side_floats(const hd_cache *cache) { return cache->kv_heads * head_floats(cache); }
static int64_t page_floats(const hd_cache *cache) { return cache->layers * 2 * side_floats(cache); }

/* Where one layer's keys (or values) begin in a page. */
static float *side_of(const hd_cache *cache, int64_t page, int64_t layer, bool values) {
  return cache->pages[page] + (2 * layer + values) * side_floats(cache);
}

void hd_cache_init(hd_cache *cache, const hd_transformer_spec *spec) {
  *cache = (hd_cache){.layers = spec->layers, .kv_heads = spec->kv_heads, .head_dim = spec->head_dim};
}

static void free_lists(heed_context *context, hd_cache *cache) {
  hd_release(context, cache->pages, cache->page_capacity, sizeof *cache->pages);
  hd_release(context, cache->k_pages, cache->page_capacity, sizeof *cache->k_pages);
  hd_release(context, cache->v_pages, cache->page_capacity, sizeof *cache->v_pages);
}

void hd_cache_free(heed_context *context, hd_cache *cache) {
  for (int64_t i = 0; i < cache->page_count; i++) hd_release(context, cache->pages[i], page_floats(cache), sizeof(float));
  free_lists(context, cache);
  *cache = (hd_cache){0};
}

static heed_status grow_lists(heed_context *context, hd_cache *cache, int64_t need) {
  hd_cache grown = *cache;
  grown.pages = NULL, grown.k_pages = NULL, grown.v_pages = NULL;
  grown.page_capacity = HD_MAX(need, 2 * cache->page_capacity);
  heed_status status = hd_allocate(context, "a list of cache pages", grown.page_capacity, sizeof *grown.pages, &grown.pages);
  if (status == HEED_OK) status = hd_allocate(context, "a list of cache pages", grown.page_capacity, sizeof *grown.k_pages, &grown.k_pages);
  if (status == HEED_OK) status = hd_allocate(context, "a list of cache pages", grown.page_capacity, sizeof *grown.v_pages, &grown.v_pages);
  if (status != HEED_OK) {
    free_lists(context, &grown);
    return status;
  }
  if (cache->page_count) memcpy(grown.pages, cache->pages, (size_t)cache->page_count * sizeof *grown.pages);
  free_lists(context, cache);
  *cache = grown;
  return HEED_OK;
}

heed_status hd_cache_reserve(heed_context *context, hd_cache *cache, int64_t length) {
  int64_t need = hd_ceil_div(length, HD_PAGE_KEYS);
  if (need > cache->page_capacity) HD_TRY(grow_lists(context, cache, need));
  while (cache->page_count < need) {
    HD_TRY(hd_allocate(context, "a page of the key and value cache", page_floats(cache), sizeof(float), &cache->pages[cache->page_count]));
    cache->page_count++;
  }
  return HEED_OK;
}

void hd_cache_store(hd_cache *cache, int64_t layer, int64_t position, const float *k, const float *v) {
  int64_t page = position / HD_PAGE_KEYS, row = position % HD_PAGE_KEYS, d = cache->head_dim;
  float *k_to = side_of(cache, page, layer, false) + row * d, *v_to = side_of(cache, page, layer, true) + row * d;
  for (int64_t head = 0; head < cache->kv_heads; head++) {
    memcpy(k_to + head * head_floats(cache), k + head * d, (size_t)d * sizeof *k);
    memcpy(v_to + head * head_floats(cache), v + head * d, (size_t)d * sizeof *v);
  }
}

heed_status hd_cache_sources(heed_context *context, hd_cache *cache, int64_t layer, int64_t keys, hd_source *k, hd_source *v) {
  int64_t pages = hd_ceil_div(keys, HD_PAGE_KEYS);
  for (int64_t i = 0; i < pages; i++) {
    cache->k_pages[i] = side_of(cache, i, layer, false);
    cache->v_pages[i] = side_of(cache, i, layer, true);
  }
  hd_source source = {.batch = 1,
                      .heads = cache->kv_heads,
                      .keys = keys,
                      .columns = cache->head_dim,
                      .pages = pages,
                      .page_keys = HD_PAGE_KEYS,
                      .head_stride = head_floats(cache),
                      .row_stride = cache->head_dim,
                      .type = HEED_F32};
  *k = source, *v = source;
  k->page = cache->k_pages, v->page = cache->v_pages;
  HD_TRY(hd_source_of_pages(context, k));
  return hd_source_of_pages(context, v);
}

void hd_cache_gather(const hd_cache *cache, int64_t layer, bool values, int64_t head, int64_t keys, float *out) {
  for (int64_t key = 0; key < keys; key += HD_PAGE_KEYS) {
    int64_t here = HD_MIN(keys - key, HD_PAGE_KEYS);
    const float *from = side_of(cache, key / HD_PAGE_KEYS, layer, values) + head * head_floats(cache);
    memcpy(out + key * cache->head_dim, from, (size_t)(here * cache->head_dim) * sizeof *out);
  }
}
