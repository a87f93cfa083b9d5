/* pool.c: arrays that come back step after step, cut from slabs that grow with the pool and reach the size that gets huge pages: a step passes over thousands of small pages otherwise, and
 * waits for where each one lies. */
#include "tensor.h"

/* Lies in front of each array, HD_ALIGN bytes long in effect. */
struct hd_pool_block {
  struct hd_pool_block *next;
  int64_t bytes; /* of the array */
};

/* Slabs are as large as what the pool has already, in these limits; an array of OWN bytes lies alone. Arrays from PAGED bytes on lie at the same place in a page: where they lie a
 * few lines apart, loads from one wait for stores to another that they have nothing to do with. */
enum { LEAST_SLAB = 64 << 10, MOST_SLAB = 32 << 20, PAGED = 64 << 10, PAGE = 4096 };
#ifdef __SANITIZE_ADDRESS__
enum { OWN = 0 }; // so that what goes beyond an array is found
#else
enum { OWN = 4 << 20 };
#endif

struct hd_pool_slab {
  struct hd_pool_slab *next;
  int64_t bytes;
};

static int64_t up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

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

/* So many bytes behind the head of a slab. */
static heed_status add_slab(hd_pool *pool, const char *what, int64_t room, char **out) {
  struct hd_pool_slab *slab;
  HD_TRY(hd_allocate(pool->context, what, HD_ALIGN + room, 1, &slab));
  *slab = (struct hd_pool_slab){pool->slabs, HD_ALIGN + room};
  pool->slabs = slab;
  *out = (char *)slab + HD_ALIGN;
  return HEED_OK;
}

/* A block with room for an array of so many bytes: from the slab, from a new one, or alone. A pool that only plans counts the same and allocates the block. */
static heed_status cut(hd_pool *pool, const char *what, int64_t bytes, struct hd_pool_block **out) {
  const int64_t need = HD_ALIGN + bytes;
  const bool alone = bytes >= OWN;
  int64_t from = bytes < PAGED ? pool->used : up(pool->used + HD_ALIGN, PAGE) - HD_ALIGN;
  char *at;
  if (alone) {
    pool->bytes += HD_ALIGN + need;
  } else if (from + need > pool->room) {
    from = bytes < PAGED ? 0 : PAGE - HD_ALIGN;
    const int64_t room = HD_MAX(HD_CLAMP(pool->bytes, LEAST_SLAB, MOST_SLAB), from + need);
    pool->room = 0;
    if (!pool->plan) HD_TRY(add_slab(pool, what, room, &pool->slab));
    pool->bytes += HD_ALIGN + room;
    pool->room = room;
  }
  if (pool->plan || alone) HD_TRY(add_slab(pool, what, pool->plan ? HD_ALIGN : need, &at));
  else at = pool->slab + from;
  if (!alone) pool->used = from + need;
  *out = (struct hd_pool_block *)at;
  (*out)->bytes = bytes;
  return HEED_OK;
}

heed_status hd_pool_take(hd_pool *pool, const char *what, int64_t floats, float **out) {
  // What is taken in all stays below INT64_MAX / 4, also where it is only planned.
  HD_REQUIRE(floats >= 0 && floats < INT64_MAX / 64 && pool->bytes < INT64_MAX / 8, pool->context, HEED_E_OVERFLOW,
             "%s: %lld numbers do not fit in memory", what, (long long)floats);
  const int64_t bytes = HD_MAX(up(floats * (int64_t)sizeof(float), HD_ALIGN), HD_ALIGN);
  struct hd_pool_block *block = find(pool, bytes);
  if (!block) HD_TRY(cut(pool, what, bytes, &block));
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
  for (struct hd_pool_slab *slab = pool->slabs, *next; slab; slab = next) {
    next = slab->next;
    hd_release(pool->context, slab, slab->bytes, 1);
  }
  pool->slabs = NULL;
  pool->free = NULL;
  pool->room = pool->used = 0;
}
