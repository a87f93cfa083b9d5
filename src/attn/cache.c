/* cache.c: keys and values of sequences in pages of 64 keys, counted, so that sequences share them and a ring uses them again.
 *
 * A page belongs to all heads: [kv_heads][keys, values], each side [64][width] numbers, or, quantised, [64][width up to whole blocks] codes and then [blocks][64] scales, so that
 * the scales of neighbouring keys are one load. Pages come from slabs that grow with the cache and reach the size that gets huge pages. Everything that can fail is done
 * before anything is changed. */
#include "attention.h"

#include <math.h>

enum { BLOCK = 32, SLAB_BYTES = 64 << 20 };

/* Lengths stay far inside 64 bits, as positions do. */
static const int64_t FAR = (int64_t)1 << 60;

/* Its numbers lie HD_ALIGN bytes on. */
typedef struct page {
  int64_t uses;      /* by sequences */
  struct page *next; /* among the free */
} page;

typedef struct slab {
  char *memory;
  int64_t pages, used; /* used: those that have ever been given out */
} slab;

/* Pages first / 64 up to the end of length are held; page p in slot p mod slots. */
typedef struct sequence {
  int64_t length, first;
  page **page;
  int64_t slots;
} sequence;

struct heed_cache {
  heed_context *context;
  heed_cache_spec spec;
  int64_t k_bytes, head_bytes, page_bytes; /* of a head's keys in a page, of a head in a page, of a page */
  int64_t ring_slots;                      /* 0: not a ring */
  float *row;                              /* a row on its way in */
  int64_t row_floats;
  sequence *sequence;
  slab *slab;
  int64_t slabs, slab_capacity;
  page *free;
  int64_t free_pages, pages; /* free: with those that were never used */
};

/* ---- layout ------------------------------------------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  hd_storage storage;
} types[] = {[HEED_CACHE_F32] = {"f32", HD_F32},
             [HEED_CACHE_F16] = {"f16", HD_F16},
             [HEED_CACHE_BF16] = {"bf16", HD_BF16},
             [HEED_CACHE_Q8_0] = {"q8_0", HD_Q8_0}};

const char *heed_cache_type_name(heed_cache_type type) { return type >= 0 && (int)type < HD_COUNT(types) ? types[type].name : "unknown"; }

static hd_storage storage_of(const heed_cache *cache) { return types[cache->spec.type].storage; }

/* Bytes from row to row; widths have been bounded. */
static int64_t row_bytes(const heed_cache *cache, int64_t width) {
  if (cache->spec.type == HEED_CACHE_Q8_0) return hd_ceil_div(width, BLOCK) * BLOCK;
  return width * hd_storage_bytes(storage_of(cache));
}

/* Scales of a vector are loaded whole, beyond the last one too. */
static int64_t side_bytes(const heed_cache *cache, int64_t width) {
  int64_t bytes = HD_KEY_TILE * row_bytes(cache, width);
  if (cache->spec.type == HEED_CACHE_Q8_0) bytes += (hd_ceil_div(width, BLOCK) * HD_KEY_TILE + HD_MAX_LANES) * (int64_t)sizeof(uint16_t);
  return hd_ceil_div(bytes, HD_ALIGN) * HD_ALIGN;
}

static int64_t width_of(const heed_cache *cache, bool values) { return values ? cache->spec.dv : cache->spec.d; }

/* The rows of a side from row `row` of its page on. */
static hd_stored side_rows(const heed_cache *cache, const page *p, int64_t head, bool values, int64_t row) {
  char *side = (char *)p + HD_ALIGN + head * cache->head_bytes + (values ? cache->k_bytes : 0);
  int64_t stride = row_bytes(cache, width_of(cache, values));
  return (hd_stored){
      .data = side + row * stride, .stride = stride, .type = storage_of(cache), .scale = (uint16_t *)(side + HD_KEY_TILE * stride) + row};
}

/* ---- pages ------------------------------------------------------------------------------------------------------------------------- */

static page **slot_of(const sequence *s, int64_t index) { return &s->page[index % s->slots]; }

/* Room for `count` more pages: a new slab, half of what there is and at least what is missing. */
static heed_status reserve_pages(heed_cache *cache, int64_t count) {
  if (count <= cache->free_pages) return HEED_OK;
  heed_context *context = cache->context;
  int64_t missing = count - cache->free_pages;
  int64_t pages = HD_MAX(missing, HD_MIN(cache->pages / 2, SLAB_BYTES / cache->page_bytes));
  HD_TRY(hd_grow(context, "a list of cache slabs", &cache->slab, &cache->slab_capacity, cache->slabs + 1, sizeof *cache->slab));
  slab *added = &cache->slab[cache->slabs];
  *added = (slab){.pages = pages};
  HD_TRY(hd_allocate(context, "pages of a key and value cache", pages, (size_t)cache->page_bytes, &added->memory));
  for (slab *last = added - 1; cache->slabs && last->used < last->pages; last->used++) {
    page *p = (page *)(last->memory + last->used * cache->page_bytes);
    p->next = cache->free;
    cache->free = p;
  }
  cache->slabs++;
  cache->pages += pages;
  cache->free_pages += pages;
  return HEED_OK;
}

/* One that has been reserved. Those that were never used are in the last slab: what is left of one when the next comes joins the free. */
static page *take_page(heed_cache *cache) {
  page *p = cache->free;
  if (p) {
    cache->free = p->next;
  } else {
    slab *last = &cache->slab[cache->slabs - 1];
    p = (page *)(last->memory + last->used++ * cache->page_bytes);
  }
  cache->free_pages--;
  *p = (page){.uses = 1};
  return p;
}

static void give_page(heed_cache *cache, page *p) {
  if (--p->uses) return;
  p->next = cache->free;
  cache->free = p;
  cache->free_pages++;
}

/* Gives up pages [from, to) of a sequence. */
static void give_pages(heed_cache *cache, const sequence *s, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) give_page(cache, *slot_of(s, i));
}

static int64_t first_page(const sequence *s) { return s->first / HD_KEY_TILE; }
static int64_t end_page(const sequence *s) { return hd_ceil_div(s->length, HD_KEY_TILE); }

/* Slots for `pages` pages from the sequence's first on. Until a ring has all its slots nothing has gone round, so what is held keeps its place. */
static heed_status reserve_slots(heed_cache *cache, sequence *s, int64_t pages) {
  if (cache->ring_slots) pages = HD_MIN(pages, cache->ring_slots);
  if (pages <= s->slots) return HEED_OK;
  int64_t slots = HD_MAX(pages, s->slots + s->slots / 2);
  if (cache->ring_slots) slots = HD_MIN(slots, cache->ring_slots);
  page **grown;
  HD_TRY(hd_allocate(cache->context, "the pages of a sequence", slots, sizeof *grown, &grown));
  if (s->slots) memcpy(grown, s->page, (size_t)s->slots * sizeof *grown);
  hd_release(cache->context, s->page, s->slots, sizeof *s->page);
  s->page = grown;
  s->slots = slots;
  return HEED_OK;
}

/* ---- new and free ------------------------------------------------------------------------------------------------------------------ */

static heed_status check_spec(heed_context *context, const heed_cache_spec *spec) {
  HD_REQUIRE(spec->sequences >= 1 && spec->kv_heads >= 1, context, HEED_E_ARGUMENT,
             "a cache of %lld sequences with %lld key/value heads, allowed 1 and more", (long long)spec->sequences,
             (long long)spec->kv_heads);
  HD_REQUIRE(spec->d >= 0 && spec->dv >= 0, context, HEED_E_ARGUMENT, "a cache of widths %lld and %lld, allowed 0 and more",
             (long long)spec->d, (long long)spec->dv);
  HD_REQUIRE((int)spec->type >= 0 && (int)spec->type < HD_COUNT(types), context, HEED_E_TYPE, "a cache of unknown type %d",
             (int)spec->type);
  HD_REQUIRE(spec->keep >= 0 && spec->most_keys >= 0, context, HEED_E_ARGUMENT,
             "a cache that keeps %lld keys of at most %lld, allowed 0 (no limit) and more", (long long)spec->keep,
             (long long)spec->most_keys);
  int64_t bytes;
  HD_REQUIRE(spec->d < FAR / 1024 && spec->dv < FAR / 1024 && hd_mul(spec->d + spec->dv + 4 * BLOCK, spec->kv_heads, &bytes) &&
                 hd_mul(bytes, 8 * HD_KEY_TILE, &bytes),
             context, HEED_E_OVERFLOW, "a page of %lld heads of widths %lld and %lld does not fit in memory", (long long)spec->kv_heads,
             (long long)spec->d, (long long)spec->dv);
  return HEED_OK;
}

heed_status heed_cache_new(heed_context *context, const heed_cache_spec *given, heed_cache **out) {
  if (out) *out = NULL;
  if (!context) return HEED_E_ARGUMENT;
  heed_cache_spec spec = {.size = sizeof spec};
  HD_REQUIRE(given && out, context, HEED_E_ARGUMENT, "heed_cache_new needs a spec and a place for the cache");
  HD_TRY(hd_options_read(context, "heed_cache_spec", given, &spec, sizeof spec));
  HD_TRY(check_spec(context, &spec));
  heed_cache *cache;
  HD_TRY(hd_allocate(context, "a key and value cache", 1, sizeof *cache, &cache));
  *cache = (heed_cache){.context = context, .spec = spec, .row_floats = HD_MAX(spec.d, spec.dv)};
  if (spec.keep) cache->ring_slots = HD_MIN(spec.keep, FAR) / HD_KEY_TILE + 2;
  cache->k_bytes = side_bytes(cache, spec.d);
  cache->head_bytes = cache->k_bytes + side_bytes(cache, spec.dv);
  cache->page_bytes = HD_ALIGN + spec.kv_heads * cache->head_bytes;
  heed_status status = hd_allocate(context, "sequences of a cache", spec.sequences, sizeof *cache->sequence, &cache->sequence);
  if (status == HEED_OK) {
    memset(cache->sequence, 0, (size_t)spec.sequences * sizeof *cache->sequence);
    status = hd_allocate(context, "a row of a cache", cache->row_floats, sizeof *cache->row, &cache->row);
  }
  if (status != HEED_OK) heed_cache_free(cache);
  else *out = cache;
  return status;
}

void heed_cache_free(heed_cache *cache) {
  if (!cache) return;
  heed_context *context = cache->context;
  for (int64_t i = 0; cache->sequence && i < cache->spec.sequences; i++)
    hd_release(context, cache->sequence[i].page, cache->sequence[i].slots, sizeof *cache->sequence[i].page);
  for (int64_t i = 0; i < cache->slabs; i++) hd_release(context, cache->slab[i].memory, cache->slab[i].pages, (size_t)cache->page_bytes);
  hd_release(context, cache->slab, cache->slab_capacity, sizeof *cache->slab);
  hd_release(context, cache->sequence, cache->spec.sequences, sizeof *cache->sequence);
  hd_release(context, cache->row, cache->row_floats, sizeof *cache->row);
  hd_release(context, cache, 1, sizeof *cache);
}

static bool known(const heed_cache *cache, int64_t sequence) { return cache && sequence >= 0 && sequence < cache->spec.sequences; }

int64_t heed_cache_length(const heed_cache *cache, int64_t sequence) {
  return known(cache, sequence) ? cache->sequence[sequence].length : -1;
}

int64_t heed_cache_first(const heed_cache *cache, int64_t sequence) {
  return known(cache, sequence) ? cache->sequence[sequence].first : -1;
}

static heed_status find(const heed_cache *cache, int64_t index, sequence **out) {
  HD_REQUIRE(known(cache, index), cache->context, HEED_E_ARGUMENT, "sequence %lld of a cache, allowed 0 to %lld", (long long)index,
             (long long)cache->spec.sequences - 1);
  *out = &cache->sequence[index];
  return HEED_OK;
}

/* ---- appending --------------------------------------------------------------------------------------------------------------------- */

/* One block as GGUF rounds it, codes as unsigned bytes: codes are x / scale with the scale as it was before it became a half, halves away from zero. */
static void store_block(const float *x, int n, uint8_t *code, uint16_t *scale) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < n; i++) {
    finite &= isfinite(x[i]) != 0;
    largest = fmaxf(largest, fabsf(x[i]));
  }
  memset(code, HD_CODE_ZERO, BLOCK);
  *scale = hd_f32_to_f16(largest / 127);
  if (!finite || isinf(hd_f16_to_f32(*scale))) {
    *scale = hd_f32_to_f16(NAN);
  } else if (hd_f16_to_f32(*scale) != 0) {
    float inverse = 1 / (largest / 127);
    for (int i = 0; i < n; i++) code[i] = (uint8_t)(HD_CODE_ZERO + (int)roundf(x[i] * inverse));
  }
}

static void store_row(heed_cache *cache, const hd_grid *grid, int64_t head, int64_t row, const hd_stored *to) {
  const hd_kernels *kernels = hd_kernels_of(cache->context);
  const char *from = hd_grid_row(grid, 0, head, row);
  float *x = cache->spec.type == HEED_CACHE_F32 ? (float *)to->data : cache->row;
  hd_to_floats(kernels, from, grid->type, grid->column_stride, grid->columns, x);
  switch (cache->spec.type) {
  case HEED_CACHE_F32: break;
  case HEED_CACHE_F16: hd_from_floats(kernels, x, grid->columns, (char *)to->data, HEED_F16, 1); break;
  case HEED_CACHE_BF16: hd_from_floats(kernels, x, grid->columns, (char *)to->data, HEED_BF16, 1); break;
  case HEED_CACHE_Q8_0:
    for (int64_t i = 0; i < grid->columns; i += BLOCK)
      store_block(x + i, (int)HD_MIN(BLOCK, grid->columns - i), (uint8_t *)to->data + i, (uint16_t *)to->scale + i / BLOCK * HD_KEY_TILE);
    break;
  }
}

static void store_key(heed_cache *cache, const page *p, int64_t key, const hd_grid *grid, int64_t row, bool values) {
  for (int64_t head = 0; head < cache->spec.kv_heads; head++) {
    hd_stored to = side_rows(cache, p, head, values, key % HD_KEY_TILE);
    store_row(cache, grid, head, row, &to);
  }
}

/* What is added, or read: one batch entry, the cache's heads and widths. */
static heed_status check_side(const heed_cache *cache, const heed_view *view, const char *name, bool values, hd_grid *out) {
  heed_context *context = cache->context;
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_storable(context, out, name));
  HD_REQUIRE(view->ndim <= 3 && out->heads == cache->spec.kv_heads && out->columns == width_of(cache, values), context, HEED_E_SHAPE,
             "%s: %s, expected heads %lld, keys, width %lld", name, hd_shape_text(view, shape), (long long)cache->spec.kv_heads,
             (long long)width_of(cache, values));
  return HEED_OK;
}

/* Keys [begin, begin + count) are there. */
static heed_status check_keys(const heed_cache *cache, const sequence *s, int64_t index, int64_t begin, int64_t count, const char *name) {
  HD_REQUIRE(begin >= s->first && begin <= s->length && count <= s->length - begin, cache->context, HEED_E_ARGUMENT,
             "%s: %lld keys of sequence %lld from %lld on, allowed within %lld to %lld", name, (long long)count, (long long)index,
             (long long)begin, (long long)s->first, (long long)s->length);
  return HEED_OK;
}

/* The first key that is held once a sequence has `length`: what lies a whole page before the last `keep` goes. */
static int64_t first_kept(const heed_cache *cache, const sequence *s, int64_t length) {
  int64_t keep = cache->spec.keep;
  if (!keep || length <= keep) return s->first;
  return HD_MAX(s->first, (length - keep) / HD_KEY_TILE * HD_KEY_TILE);
}

/* The first `rows` keys of a page into another; quantised sides go whole, whose scales lie apart from their codes. */
static void copy_rows(const heed_cache *cache, const page *from, page *to, int64_t rows) {
  const bool whole = cache->spec.type == HEED_CACHE_Q8_0;
  for (int64_t head = 0; head < cache->spec.kv_heads; head++)
    for (int values = 0; values < 2; values++) {
      const int64_t width = width_of(cache, values), bytes = whole ? side_bytes(cache, width) : rows * row_bytes(cache, width);
      memcpy((void *)side_rows(cache, to, head, values, 0).data, side_rows(cache, from, head, values, 0).data, (size_t)bytes);
    }
}

/* A page that others read gives way to a copy of its first `rows` keys, for which a page has been reserved. */
static void own_page(heed_cache *cache, page **slot, int64_t rows) {
  page *own = take_page(cache);
  copy_rows(cache, *slot, own, rows);
  give_page(cache, *slot);
  *slot = own;
}

/* Makes room for the keys up to `end`, of which those from `first` on are kept: pages and slots first, where memory may be missing, then old pages go and new ones come. */
static heed_status make_room(heed_cache *cache, sequence *s, int64_t first, int64_t end) {
  int64_t held = end_page(s), leaving = HD_MIN(first / HD_KEY_TILE, held), given = 0;
  int64_t fresh = HD_MAX(held, first / HD_KEY_TILE), pages = hd_ceil_div(end, HD_KEY_TILE);
  HD_TRY(reserve_slots(cache, s, pages));
  page **last = held > leaving && s->length % HD_KEY_TILE ? slot_of(s, held - 1) : NULL;
  bool copied = last && (*last)->uses > 1; // it is written to, and others read it
  for (int64_t i = first_page(s); i < leaving; i++) given += (*slot_of(s, i))->uses == 1;
  HD_TRY(reserve_pages(cache, pages - fresh + copied - given));

  give_pages(cache, s, first_page(s), leaving);
  if (copied) own_page(cache, last, s->length % HD_KEY_TILE);
  for (int64_t i = fresh; i < pages; i++) *slot_of(s, i) = take_page(cache);
  return HEED_OK;
}

heed_status heed_cache_append(heed_cache *cache, int64_t index, const heed_view *k, const heed_view *v) {
  if (!cache) return HEED_E_ARGUMENT;
  heed_context *context = cache->context;
  sequence *s;
  hd_grid side[2];
  HD_TRY(find(cache, index, &s));
  HD_TRY(check_side(cache, k, "k", false, &side[0]));
  HD_TRY(check_side(cache, v, "v", true, &side[1]));
  int64_t added = side[0].rows, most = cache->spec.most_keys ? HD_MIN(cache->spec.most_keys, FAR) : FAR;
  HD_REQUIRE(side[1].rows == added, context, HEED_E_SHAPE, "k has %lld keys, v has %lld", (long long)added, (long long)side[1].rows);
  HD_REQUIRE(added <= most - s->length, context, HEED_E_ARGUMENT, "sequence %lld has %lld keys and gets %lld more, allowed %lld",
             (long long)index, (long long)s->length, (long long)added, (long long)most);

  int64_t before = s->length, end = before + added, first = first_kept(cache, s, end);
  HD_TRY(make_room(cache, s, first, end));
  s->first = first;
  s->length = end;
  for (int64_t key = HD_MAX(before, first); key < end; key++)
    for (int values = 0; values < 2; values++) store_key(cache, *slot_of(s, key / HD_KEY_TILE), key, &side[values], key - before, values);
  return HEED_OK;
}

heed_status heed_cache_write(heed_cache *cache, int64_t index, int64_t begin, const heed_view *k, const heed_view *v) {
  if (!cache) return HEED_E_ARGUMENT;
  sequence *s;
  hd_grid side[2] = {{0}, {0}};
  HD_TRY(find(cache, index, &s));
  for (int values = 0; values < 2; values++) {
    const heed_view *view = values ? v : k;
    if (view) HD_TRY(check_side(cache, view, values ? "v" : "k", values, &side[values]));
    if (view) HD_TRY(check_keys(cache, s, index, begin, side[values].rows, values ? "v" : "k"));
  }
  HD_REQUIRE(!k || !v || side[0].rows == side[1].rows, cache->context, HEED_E_SHAPE, "k has %lld keys, v has %lld", (long long)side[0].rows,
             (long long)side[1].rows);
  const int64_t count = HD_MAX(side[0].rows, side[1].rows), from = begin / HD_KEY_TILE, to = hd_ceil_div(begin + count, HD_KEY_TILE);
  if (count == 0) return HEED_OK;
  int64_t shared = 0;
  for (int64_t i = from; i < to; i++) shared += (*slot_of(s, i))->uses > 1;
  HD_TRY(reserve_pages(cache, shared));
  for (int64_t i = from; i < to; i++)
    if ((*slot_of(s, i))->uses > 1) own_page(cache, slot_of(s, i), HD_MIN(HD_KEY_TILE, s->length - i * HD_KEY_TILE));
  for (int values = 0; values < 2; values++)
    for (int64_t row = 0; row < side[values].rows; row++)
      store_key(cache, *slot_of(s, (begin + row) / HD_KEY_TILE), begin + row, &side[values], row, values);
  return HEED_OK;
}

/* ---- going back and sharing --------------------------------------------------------------------------------------------------------- */

static heed_status check_length(const heed_cache *cache, const sequence *s, int64_t index, int64_t length) {
  HD_REQUIRE(length >= s->first && length <= s->length, cache->context, HEED_E_ARGUMENT, "%lld keys of sequence %lld, allowed %lld to %lld",
             (long long)length, (long long)index, (long long)s->first, (long long)s->length);
  return HEED_OK;
}

heed_status heed_cache_truncate(heed_cache *cache, int64_t index, int64_t length) {
  if (!cache) return HEED_E_ARGUMENT;
  sequence *s;
  HD_TRY(find(cache, index, &s));
  HD_TRY(check_length(cache, s, index, length));
  give_pages(cache, s, hd_ceil_div(length, HD_KEY_TILE), end_page(s));
  s->length = length;
  return HEED_OK;
}

heed_status heed_cache_fork(heed_cache *cache, int64_t from_index, int64_t length, int64_t to_index) {
  if (!cache) return HEED_E_ARGUMENT;
  sequence *from, *to;
  HD_TRY(find(cache, from_index, &from));
  HD_TRY(find(cache, to_index, &to));
  HD_REQUIRE(from != to, cache->context, HEED_E_ARGUMENT, "sequence %lld cannot fork into itself", (long long)from_index);
  HD_TRY(check_length(cache, from, from_index, length));
  int64_t end = hd_ceil_div(length, HD_KEY_TILE);
  HD_TRY(reserve_slots(cache, to, end));
  // Its own pages go after the others came: they may be the same.
  for (int64_t i = first_page(from); i < end; i++) (*slot_of(from, i))->uses++;
  give_pages(cache, to, first_page(to), end_page(to));
  for (int64_t i = first_page(from); i < end; i++) *slot_of(to, i) = *slot_of(from, i);
  to->first = from->first;
  to->length = length;
  return HEED_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------------ */

static bool cache_stored(const hd_source *source, int64_t batch, int64_t head, int64_t key, hd_stored *out) {
  const heed_cache *cache = source->cache;
  const sequence *s = &cache->sequence[source->sequences ? source->sequences[batch] : batch];
  *out = side_rows(cache, *slot_of(s, key / HD_KEY_TILE), head, source->values, key % HD_KEY_TILE);
  return true;
}

void hd_source_of_cache(const heed_context *context, const heed_cache *cache, const int64_t *sequences, int64_t count, bool values,
                        hd_source *out) {
  *out = (hd_source){.stored = cache_stored,
                     .rows = hd_source_rows,
                     .kernels = hd_kernels_of(context),
                     .batch = count,
                     .heads = cache->spec.kv_heads,
                     .columns = width_of(cache, values),
                     .cache = cache,
                     .sequences = sequences,
                     .bf16 = cache->spec.type == HEED_CACHE_BF16,
                     .values = values};
  for (int64_t b = 0; b < count; b++) out->keys = HD_MAX(out->keys, cache->sequence[sequences ? sequences[b] : b].length);
}

static void read_side(const heed_cache *cache, const int64_t *sequence, int64_t begin, const hd_grid *out, bool values) {
  hd_source source;
  hd_source_of_cache(cache->context, cache, sequence, 1, values, &source);
  for (int64_t head = 0; out->data && head < out->heads; head++)
    for (int64_t r = 0; r < out->rows; r++) {
      hd_stored row;
      cache_stored(&source, 0, head, begin + r, &row);
      source.kernels->read_rows(&row, 1, out->columns, cache->row);
      hd_from_floats(source.kernels, cache->row, out->columns, hd_grid_row(out, 0, head, r), out->type, out->column_stride);
    }
}

heed_status heed_cache_read(const heed_cache *cache, int64_t index, int64_t begin, const heed_view *k, const heed_view *v) {
  if (!cache) return HEED_E_ARGUMENT;
  heed_context *context = cache->context;
  sequence *s;
  hd_grid side[2] = {{0}, {0}};
  HD_TRY(find(cache, index, &s));
  for (int values = 0; values < 2; values++) {
    const heed_view *view = values ? v : k;
    const char *name = values ? "v" : "k";
    if (!view) continue;
    HD_TRY(check_side(cache, view, name, values, &side[values]));
    HD_REQUIRE(!hd_view_overlaps_itself(view), context, HEED_E_LAYOUT, "%s: elements share memory", name);
    HD_TRY(check_keys(cache, s, index, begin, side[values].rows, name));
  }
  HD_REQUIRE(!k || !v || !hd_views_overlap(k, v), context, HEED_E_OVERLAP, "k overlaps v");
  for (int values = 0; values < 2; values++) read_side(cache, &index, begin, &side[values], values);
  return HEED_OK;
}
