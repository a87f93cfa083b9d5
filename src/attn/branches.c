/* branches.c: keys and values in chunks of steps, [layer][row][head][keys, values][step][d], so that what one row has written of a head lies together. */
#include "branches.h"

/* Steps of a chunk, which divides a tile of keys. */
enum { STEPS = 32 };

struct hd_branches {
  heed_context *context;
  int64_t layers, kv_heads, d;
  int64_t room, rows, length;
  float **chunk;
  int64_t chunks, chunk_room;
  int32_t *place, *next; /* [room][chunks · STEPS]: the row in whose place a key lies */
};

static int64_t row_floats(const hd_branches *b) { return b->kv_heads * 2 * STEPS * b->d; }
static int64_t steps_of(const hd_branches *b) { return b->chunks * STEPS; }

/* Where a head's key of a row lies, if it is in that row's place. */
static float *place_of(const hd_branches *b, int64_t layer, int64_t row, int64_t head, bool values, int64_t step) {
  return b->chunk[step / STEPS] + (layer * b->room + row) * row_floats(b) + ((head * 2 + values) * STEPS + step % STEPS) * b->d;
}

heed_status hd_branches_new(heed_context *context, int64_t layers, int64_t kv_heads, int64_t d, int64_t rows, hd_branches **out) {
  int64_t floats;
  HD_REQUIRE(hd_mul(layers, rows, &floats) && hd_mul(floats, kv_heads, &floats) && hd_mul(floats, 2 * STEPS * d, &floats), context,
             HEED_E_OVERFLOW, "%lld rows of %lld heads are too many to count", (long long)rows, (long long)kv_heads);
  HD_TRY(hd_allocate(context, "keys of rows under way", 1, sizeof **out, out));
  **out = (hd_branches){.context = context, .layers = layers, .kv_heads = kv_heads, .d = d, .room = rows};
  return HEED_OK;
}

void hd_branches_free(hd_branches *b) {
  if (!b) return;
  heed_context *context = b->context;
  for (int64_t i = 0; i < b->chunks; i++) hd_release(context, b->chunk[i], b->layers * b->room, (size_t)row_floats(b) * sizeof **b->chunk);
  hd_release(context, b->place, b->room * steps_of(b), sizeof *b->place);
  hd_release(context, b->next, b->room * steps_of(b), sizeof *b->next);
  hd_release(context, b->chunk, b->chunk_room, sizeof *b->chunk);
  hd_release(context, b, 1, sizeof *b);
}

void hd_branches_begin(hd_branches *b, int64_t rows) {
  b->rows = rows;
  b->length = 0;
}

void hd_branches_choose(hd_branches *b, int64_t rows, const int32_t *parents) {
  const int64_t steps = steps_of(b);
  for (int64_t r = 0; r < rows && b->length > 0; r++)
    memcpy(b->next + r * steps, b->place + parents[r] * steps, (size_t)b->length * sizeof *b->place);
  int32_t *before = b->place;
  b->place = b->next;
  b->next = before;
  b->rows = rows;
}

/* One chunk more. */
static heed_status reserve(hd_branches *b) {
  heed_context *context = b->context;
  const int64_t steps = steps_of(b), more = steps + STEPS;
  int32_t *place = NULL, *next = NULL;
  float *chunk = NULL;
  heed_status status = HEED_OK;
  HD_TRY(hd_grow(context, "keys of rows under way", &b->chunk, &b->chunk_room, b->chunks + 1, sizeof *b->chunk));
  HD_TRY_DONE(hd_allocate(context, "keys of rows under way", b->room * more, sizeof *place, &place));
  HD_TRY_DONE(hd_allocate(context, "keys of rows under way", b->room * more, sizeof *next, &next));
  HD_TRY_DONE(hd_allocate(context, "keys of rows under way", b->layers * b->room, (size_t)row_floats(b) * sizeof *chunk, &chunk));
  for (int64_t r = 0; r < b->rows && b->length > 0; r++) memcpy(place + r * more, b->place + r * steps, (size_t)b->length * sizeof *place);
  hd_release(context, b->place, b->room * steps, sizeof *b->place);
  hd_release(context, b->next, b->room * steps, sizeof *b->next);
  b->place = place;
  b->next = next;
  b->chunk[b->chunks++] = chunk;
  return HEED_OK;
done:
  hd_release(context, place, b->room * more, sizeof *place);
  hd_release(context, next, b->room * more, sizeof *next);
  return status;
}

heed_status hd_branches_grow(hd_branches *b) {
  if (b->length == steps_of(b)) HD_TRY(reserve(b));
  for (int64_t r = 0; r < b->rows; r++) b->place[r * steps_of(b) + b->length] = (int32_t)r;
  b->length++;
  return HEED_OK;
}

void hd_branches_put(hd_branches *b, int64_t layer, const float *k, const float *v, int64_t stride) {
  const size_t bytes = (size_t)b->d * sizeof *k;
  for (int64_t r = 0; r < b->rows; r++, k += stride, v += stride)
    for (int64_t head = 0; head < b->kv_heads; head++) {
      memcpy(place_of(b, layer, r, head, false, b->length - 1), k + head * b->d, bytes);
      memcpy(place_of(b, layer, r, head, true, b->length - 1), v + head * b->d, bytes);
    }
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------------------- */

/* Keys from `key` on, at most `keys`, that lie together. */
static int64_t together(const int32_t *place, int64_t key, int64_t keys) {
  const int64_t end = HD_MIN(keys, STEPS - key % STEPS);
  int64_t n = 1;
  while (n < end && place[key + n] == place[key]) n++;
  return n;
}

static const int32_t *places_of(const hd_source *source, int64_t entry) {
  return source->branches->place + (source->first + entry) * steps_of(source->branches);
}

/* What lies together of a tile is all of it, or has to be copied. */
static bool branches_stored(const hd_source *source, int64_t entry, int64_t head, int64_t key, hd_stored *out) {
  const hd_branches *b = source->branches;
  const int32_t *place = places_of(source, entry);
  const int64_t end = HD_MIN((key / HD_KEY_TILE + 1) * HD_KEY_TILE, b->length);
  if (together(place, key, end - key) < end - key) return false;
  *out = (hd_stored){
      .data = place_of(b, source->layer, place[key], head, source->values, key), .stride = b->d * (int64_t)sizeof(float), .type = HD_F32};
  return true;
}

static const float *branches_rows(const hd_source *source, int64_t entry, int64_t head, int64_t key, int keys, float *scratch,
                                  int64_t *stride) {
  const hd_branches *b = source->branches;
  const int32_t *place = places_of(source, entry);
  *stride = b->d;
  for (int64_t done = 0, n; done < keys; done += n) {
    const float *from = place_of(b, source->layer, place[key + done], head, source->values, key + done);
    n = together(place, key + done, keys - done);
    if (n == keys) return from;
    memcpy(scratch + done * b->d, from, (size_t)(n * b->d) * sizeof *from);
  }
  return scratch;
}

void hd_source_of_branches(const hd_branches *b, int64_t layer, int64_t first, int64_t count, bool values, hd_source *out) {
  *out = (hd_source){.stored = branches_stored,
                     .rows = branches_rows,
                     .kernels = hd_kernels_of(b->context),
                     .batch = count,
                     .heads = b->kv_heads,
                     .keys = b->length,
                     .columns = b->d,
                     .branches = b,
                     .layer = layer,
                     .first = first,
                     .values = values};
}
