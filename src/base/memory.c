/* memory.c: the allocator hook, growing arrays, and arenas. Every byte that the library uses passes through here, so that a host can count it and a test
 * can make the n-th request fail. */
#include "base.h"

#include <stdio.h>

void hd_release(heed_context *context, void *memory, int64_t count, size_t size) {
  if (memory) context->allocator.release(context->allocator.user, memory, HD_MAX((size_t)count * size, 1));
}

static heed_status allocate_from(const heed_allocator *allocator, heed_context *context, const char *what, int64_t bytes, void **out) {
  *out = allocator->allocate(allocator->user, (size_t)bytes, HD_ALIGN);
  HD_REQUIRE(*out, context, HEED_E_MEMORY, "out of memory: %lld bytes for %s", (long long)bytes, what);
  return HEED_OK;
}

static heed_status byte_size(heed_context *context, const char *what, int64_t count, size_t size, int64_t *bytes) {
  HD_REQUIRE(size <= INT64_MAX && hd_mul(count, (int64_t)size, bytes) && (uint64_t)*bytes <= SIZE_MAX / 2, context, HEED_E_OVERFLOW,
             "%s: %lld × %zu bytes does not fit in memory", what, (long long)count, size);
  *bytes = HD_MAX(*bytes, 1);
  return HEED_OK;
}

heed_status hd_allocate(heed_context *context, const char *what, int64_t count, size_t size, void *out_pointer) {
  int64_t bytes = 0;
  void *memory;
  HD_TRY(byte_size(context, what, count, size, &bytes));
  HD_TRY(allocate_from(&context->allocator, context, what, bytes, &memory));
  memcpy(out_pointer, &memory, sizeof memory);
  return HEED_OK;
}

heed_status hd_grow(heed_context *context, const char *what, void *pointer_to_array, int64_t *capacity, int64_t need, size_t size) {
  if (need <= *capacity) return HEED_OK;
  void *old, *grown;
  int64_t target = HD_MAX(need, *capacity <= INT64_MAX / 2 ? *capacity + *capacity / 2 : need);
  HD_TRY(hd_allocate(context, what, target, size, &grown));
  memcpy(&old, pointer_to_array, sizeof old);
  if (old) memcpy(grown, old, (size_t)*capacity * size);
  hd_release(context, old, *capacity, size);
  memcpy(pointer_to_array, &grown, sizeof grown);
  *capacity = target;
  return HEED_OK;
}

/* The size has a cell as wide as the alignment, so that the memory behind it is aligned too. */
void *hd_sized_allocate(const heed_allocator *allocator, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  bytes += HD_ALIGN;
  char *memory = allocator->allocate(allocator->user, bytes, HD_ALIGN);
  if (!memory) return NULL;
  memcpy(memory, &bytes, sizeof bytes);
  return memory + HD_ALIGN;
}

void hd_sized_release(const heed_allocator *allocator, void *memory) {
  if (!memory) return;
  char *begin = (char *)memory - HD_ALIGN;
  size_t bytes;
  memcpy(&bytes, begin, sizeof bytes);
  allocator->release(allocator->user, begin, bytes);
}

/* ---- arena --------------------------------------------------------------------------------------------------------------- */

/* Small requests share blocks of this many bytes; a larger one gets a block of its own, so nothing is ever copied or wasted beyond a block's tail. */
enum { BLOCK_BYTES = 64 * 1024 };

struct hd_arena_block {
  struct hd_arena_block *next;
  int64_t size, used; /* of data, in bytes */
};

enum { BLOCK_HEADER = (sizeof(struct hd_arena_block) + HD_ALIGN - 1) / HD_ALIGN * HD_ALIGN };

void hd_arena_init(hd_arena *arena, const heed_context *context) { *arena = (hd_arena){.allocator = context->allocator}; }

void hd_arena_free(hd_arena *arena) {
  for (struct hd_arena_block *block = arena->blocks, *next; block; block = next) {
    next = block->next;
    arena->allocator.release(arena->allocator.user, block, (size_t)(block->size + BLOCK_HEADER));
  }
  arena->blocks = NULL;
  arena->bytes = 0;
}

static heed_status arena_take(hd_arena *arena, heed_context *context, const char *what, int64_t bytes, int64_t alignment, void **out) {
  HD_REQUIRE(bytes < INT64_MAX / 2, context, HEED_E_OVERFLOW, "%s: %lld bytes do not fit in memory", what, (long long)bytes);
  struct hd_arena_block *block = arena->blocks;
  int64_t begin = block ? hd_ceil_div(block->used, alignment) * alignment : 0;
  if (!block || begin > block->size || block->size - begin < bytes) {
    int64_t shared = HD_MAX(arena->block, BLOCK_BYTES), block_bytes = HD_MAX(bytes, shared);
    void *memory;
    HD_TRY(allocate_from(&arena->allocator, context, what, block_bytes + BLOCK_HEADER, &memory));
    block = memory;
    *block = (struct hd_arena_block){.size = block_bytes};
    begin = 0;
    // A block of its own goes behind the current one, whose tail is still good for small requests.
    struct hd_arena_block **link = arena->blocks && bytes >= shared ? &arena->blocks->next : &arena->blocks;
    block->next = *link;
    *link = block;
  }
  *out = (char *)block + BLOCK_HEADER + begin;
  block->used = begin + bytes;
  arena->bytes += bytes;
  memset(*out, 0, (size_t)bytes);
  return HEED_OK;
}

heed_status hd_arena_allocate(hd_arena *arena, heed_context *context, const char *what, int64_t count, size_t size, void *out_pointer) {
  int64_t bytes = 0;
  void *memory;
  HD_TRY(byte_size(context, what, count, size, &bytes));
  HD_TRY(arena_take(arena, context, what, bytes, HD_ALIGN, &memory));
  memcpy(out_pointer, &memory, sizeof memory);
  return HEED_OK;
}

heed_status hd_arena_text(hd_arena *arena, heed_context *context, const char *data, size_t length, char **out) {
  HD_REQUIRE(length < INT64_MAX / 2, context, HEED_E_OVERFLOW, "a text of %zu bytes does not fit in memory", length);
  void *memory;
  HD_TRY(arena_take(arena, context, "text", (int64_t)length + 1, 1, &memory));
  if (length) memcpy(memory, data, length);
  *out = memory;
  return HEED_OK;
}
