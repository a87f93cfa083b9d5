/* pool.c: arrays that come back step after step. */
#include "tensor.h"

/* Lies in front of each array, HD_ALIGN bytes long in effect. */
struct hd_pool_block {
  struct hd_pool_block *next;
  int64_t bytes; /* of the array */
};

static int64_t rounded(int64_t floats) { return (floats * (int64_t)sizeof(float) + HD_ALIGN - 1) / HD_ALIGN * HD_ALIGN; }

static int64_t taken(const hd_pool *pool, int64_t bytes) { return pool->plan ? HD_ALIGN : bytes + HD_ALIGN; }

/* The smallest free block that does, if it is not more than twice as large: larger ones are kept for who needs them. */
static struct hd_pool_block *find(hd_pool *pool, int64_t bytes) {
  struct hd_pool_block **best = NULL;
  for (struct hd_pool_block **at = &pool->free; *at; at = &(*at)->next) {
    if ((*at)->bytes < bytes || (*at)->bytes / 2 > bytes) continue;
    if (!best || (*at)->bytes < (*best)->bytes) best = at;
    if ((*best)->bytes == bytes) break;
  }
  if (!best) return NULL;
  struct hd_pool_block *block = *best;
  *best = block->next;
  return block;
}

heed_status hd_pool_take(hd_pool *pool, const char *what, int64_t floats, float **out) {
  // What is taken in all stays below INT64_MAX / 4, also where it is only planned.
  HD_REQUIRE(floats >= 0 && floats < INT64_MAX / 64 && pool->bytes < INT64_MAX / 8, pool->context, HEED_E_OVERFLOW,
             "%s: %lld numbers do not fit in memory", what, (long long)floats);
  int64_t bytes = HD_MAX(rounded(floats), HD_ALIGN);
  struct hd_pool_block *block = find(pool, bytes);
  if (!block) {
    HD_TRY(hd_allocate(pool->context, what, taken(pool, bytes), 1, &block));
    block->bytes = bytes;
    pool->bytes += bytes + HD_ALIGN;
  }
  pool->in_use += block->bytes;
  pool->peak = HD_MAX(pool->peak, pool->in_use);
  *out = (float *)((char *)block + HD_ALIGN);
  return HEED_OK;
}

void hd_pool_give(hd_pool *pool, float *memory) {
  if (!memory) return;
  struct hd_pool_block *block = (struct hd_pool_block *)((char *)memory - HD_ALIGN);
  pool->in_use -= block->bytes;
  block->next = pool->free;
  pool->free = block;
}

void hd_pool_free(hd_pool *pool) {
  for (struct hd_pool_block *block = pool->free, *next; block; block = next) {
    next = block->next;
    hd_release(pool->context, block, taken(pool, block->bytes), 1);
  }
  pool->free = NULL;
}
