/* safetensors.c: an 8-byte length, a JSON header, then the data, which the tensors must cover without a hole; and the index that spreads
 * one model over several files.
 *
 * Format: the description in huggingface/safetensors. The header is parsed through json.h, so its cost is bounded before a value is
 * built. */
#include "reader.h"

#include <stdio.h>

/* The limit of the reference implementation. */
#define HEADER_LIMIT INT64_C(100000000)
enum { LENGTH_BYTES = 8, MAX_NAME_BYTES = 1024 };

/* Types by their size in bits. Those with a storage can be weights, those that hd_plain_by_name knows can be read as arrays, the rest is
 * known by name. */
static const struct {
  const char *name;
  int bits;
  hd_storage storage;
} types[] = {
    {"F32", 32, HD_F32},
    {"F16", 16, HD_F16},
    {"BF16", 16, HD_BF16},
    {"F64", 64, HD_F64},
    {"I64", 64, HD_STORAGE_COUNT},
    {"I32", 32, HD_STORAGE_COUNT},
    {"I16", 16, HD_STORAGE_COUNT},
    {"I8", 8, HD_STORAGE_COUNT},
    {"U64", 64, HD_STORAGE_COUNT},
    {"U32", 32, HD_STORAGE_COUNT},
    {"U16", 16, HD_STORAGE_COUNT},
    {"U8", 8, HD_STORAGE_COUNT},
    {"BOOL", 8, HD_STORAGE_COUNT},
    {"F8_E4M3", 8, HD_STORAGE_COUNT},
    {"F8_E5M2", 8, HD_STORAGE_COUNT},
    {"F8_E8M0", 8, HD_STORAGE_COUNT},
    {"F8_E4M3FNUZ", 8, HD_STORAGE_COUNT},
    {"F8_E5M2FNUZ", 8, HD_STORAGE_COUNT},
    {"F6_E2M3", 6, HD_STORAGE_COUNT},
    {"F6_E3M2", 6, HD_STORAGE_COUNT},
    {"F4", 4, HD_STORAGE_COUNT},
    {"C64", 64, HD_STORAGE_COUNT},
};

/* One header while it is read. */
typedef struct header {
  heed_context *context;
  hd_tensors *tensors;
  const char *path;
  int file;
  int64_t data_begin, data_bytes;
} header;

/* "FILE: tensor "NAME": " in front of a getter's sentence needs NAME as one part; it is shortened for that. */
static hd_json_place place_of(const header *h, const char *name, const json_t *object, char quoted[HD_QUOTE_LENGTH]) {
  return (hd_json_place){h->context, h->path, hd_quote(hd_text_of(name), quoted), object};
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------------ */

static heed_status read_type(const hd_json_place *in, hd_tensor *tensor, int *bits) {
  heed_text name;
  HD_TRY(hd_json_text(in, "dtype", &name));
  for (int64_t i = 0; i < HD_COUNT(types); i++)
    if (strcmp(types[i].name, name.data) == 0) {
      tensor->type = types[i].name;
      tensor->storage = types[i].storage;
      *bits = types[i].bits;
      return HEED_OK;
    }
  return hd_json_wrong(in, "dtype", "unknown type");
}

static heed_status read_shape(const hd_json_place *in, hd_tensor *tensor) {
  const json_t *shape;
  HD_TRY(hd_json_array(in, "shape", &shape));
  size_t rank = json_array_size(shape);
  for (size_t i = 0; i < rank; i++) {
    const json_t *dim = json_array_get(shape, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0) return hd_json_wrong(in, "shape", "dimensions must be integers from 0");
    if (i < HEED_MAX_DIM) tensor->dim[i] = json_integer_value(dim);
  }
  HD_REQUIRE(rank <= HEED_MAX_DIM, in->context, HEED_E_UNSUPPORTED, "%s: %s.shape: too many dimensions (got %zu, allowed %d)", in->file,
             in->part, rank, HEED_MAX_DIM);
  tensor->ndim = (int)rank;
  if (!hd_count_elements(tensor->ndim, tensor->dim, &tensor->count)) return hd_json_wrong(in, "shape", "the count overflows 63 bits");
  return HEED_OK;
}

/* data_offsets [begin, end) counts from the start of the data and must have exactly the size that shape and type ask for. */
static heed_status read_offsets(const header *h, const hd_json_place *in, hd_tensor *tensor, int bits) {
  const json_t *offsets, *first, *last;
  int64_t all_bits;
  HD_TRY(hd_json_array(in, "data_offsets", &offsets));
  first = json_array_get(offsets, 0);
  last = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return hd_json_wrong(in, "data_offsets", "must be two integers");
  int64_t begin = json_integer_value(first), end = json_integer_value(last);
  if (!hd_mul(tensor->count, bits, &all_bits) || all_bits % 8)
    return hd_json_wrong(in, "shape", "the size is no whole number of bytes below 2^60");
  tensor->bytes = all_bits / 8;
  HD_REQUIRE(begin >= 0 && begin <= end && end <= h->data_bytes, in->context, HEED_E_FORMAT,
             "%s: %s.data_offsets: outside of the data (got [%lld,%lld], allowed 0 to %lld in ascending order)", in->file, in->part,
             (long long)begin, (long long)end, (long long)h->data_bytes);
  HD_REQUIRE(end - begin == tensor->bytes, in->context, HEED_E_FORMAT,
             "%s: %s.data_offsets: do not match the shape (got %lld bytes, allowed %lld)", in->file, in->part, (long long)(end - begin),
             (long long)tensor->bytes);
  tensor->offset = h->data_begin + begin;
  return HEED_OK;
}

static heed_status read_tensor(const header *h, const char *name, const json_t *value, bool wanted) {
  char quoted[HD_QUOTE_LENGTH], *copy;
  hd_tensor tensor = {.file = h->file};
  int bits = 0;
  size_t length = strlen(name);
  hd_json_place in = place_of(h, name, value, quoted);
  HD_REQUIRE(length <= MAX_NAME_BYTES, h->context, HEED_E_FORMAT, "%s: tensor name too long (\"%s\", got %zu bytes, allowed %d)", h->path,
             quoted, length, MAX_NAME_BYTES);
  HD_REQUIRE(hd_is_printable(hd_text_of(name)), h->context, HEED_E_FORMAT, "%s: tensor name with a control character (got \"%s\")", h->path,
             quoted);
  HD_REQUIRE(json_is_object(value), h->context, HEED_E_FORMAT, "%s: tensor \"%s\" is not described by an object", h->path, quoted);
  HD_TRY(read_type(&in, &tensor, &bits));
  HD_TRY(read_shape(&in, &tensor));
  HD_TRY(read_offsets(h, &in, &tensor, bits));
  if (!wanted) return HEED_OK;
  HD_TRY(hd_arena_text(&h->tensors->arena, h->context, name, length, &copy));
  tensor.name = copy;
  return hd_tensors_add(h->context, h->tensors, &tensor);
}

/* ---- the header ------------------------------------------------------------------------------------------------------------ */

typedef struct span {
  int64_t begin, end;
} span;

static int compare_spans(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->begin != y->begin) return (x->begin > y->begin) - (x->begin < y->begin);
  return (x->end > y->end) - (x->end < y->end);
}

/* Sorted by place, each tensor must begin where the one before it ends; the last ends with the file. */
static heed_status require_cover(const header *h, span *spans, int64_t count) {
  int64_t filled = 0;
  qsort(spans, (size_t)count, sizeof *spans, compare_spans);
  for (int64_t i = 0; i < count; i++) {
    HD_REQUIRE(spans[i].begin == filled, h->context, HEED_E_FORMAT, "%s: the data of tensors %s (data byte %lld, got %lld, allowed %lld)",
               h->path, spans[i].begin < filled ? "overlap" : "leave a hole", (long long)filled, (long long)spans[i].begin,
               (long long)filled);
    filled = spans[i].end;
  }
  HD_REQUIRE(filled == h->data_bytes, h->context, HEED_E_FORMAT,
             "%s: data that no tensor owns (from data byte %lld, got %lld bytes, allowed %lld)", h->path, (long long)filled,
             (long long)h->data_bytes, (long long)filled);
  return HEED_OK;
}

static heed_status check_cover(const header *h, const json_t *root) {
  const int64_t count = (int64_t)json_object_size(root);
  int64_t filled = 0;
  span *spans;
  const char *name;
  json_t *value;
  HD_TRY(hd_allocate(h->context, "a list of tensors", count, sizeof *spans, &spans));
  json_object_foreach((json_t *)root, name, value) {
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (strcmp(name, "__metadata__") == 0) continue;
    spans[filled++] = (span){json_integer_value(json_array_get(offsets, 0)), json_integer_value(json_array_get(offsets, 1))};
  }
  heed_status status = require_cover(h, spans, filled);
  hd_release(h->context, spans, count, sizeof *spans);
  return status;
}

/* Texts are kept as GGUF keeps them: length, then bytes. */
static heed_status add_text(const header *h, const char *key, const json_t *value) {
  hd_tensors *t = h->tensors;
  uint64_t length = json_string_length(value);
  unsigned char *data;
  char *copy;
  HD_TRY(hd_arena_text(&t->arena, h->context, key, strlen(key), &copy));
  HD_TRY(hd_arena_allocate(&t->arena, h->context, "metadata", (int64_t)(sizeof length + length), 1, &data));
  memcpy(data, &length, sizeof length);
  memcpy(data + sizeof length, json_string_value(value), length);
  t->meta[t->meta_count++] = (hd_meta){.key = copy, .type = HD_META_TEXT, .element = HD_META_TEXT, .count = 1, .data = data};
  return HEED_OK;
}

/* Checks the metadata and keeps those of the first file (shards repeat them). */
static heed_status read_metadata(const header *h, const json_t *root) {
  const json_t *metadata = json_object_get(root, "__metadata__");
  const char *key;
  json_t *value;
  const bool keep = !h->tensors->meta;
  char quoted[HD_QUOTE_LENGTH];
  if (!metadata) return HEED_OK;
  HD_REQUIRE(json_is_object(metadata), h->context, HEED_E_FORMAT, "%s: __metadata__ is not an object of texts", h->path);
  if (keep) HD_TRY(hd_tensors_reserve_meta(h->context, h->tensors, (int64_t)json_object_size(metadata)));
  json_object_foreach((json_t *)metadata, key, value) {
    HD_REQUIRE(json_is_string(value), h->context, HEED_E_FORMAT, "%s: __metadata__.%s is not a text", h->path,
               hd_quote(hd_text_of(key), quoted));
    if (keep) HD_TRY(add_text(h, key, value));
  }
  return HEED_OK;
}

static bool wanted_here(const json_t *only, const char *name, const char *shard) {
  if (!only) return true;
  const char *place = json_string_value(json_object_get(only, name));
  return place && strcmp(place, shard) == 0;
}

static heed_status read_header(const header *h, const json_t *root, const json_t *only, const char *shard) {
  const char *name;
  json_t *value;
  HD_TRY(read_metadata(h, root));
  json_object_foreach((json_t *)root, name, value) if (strcmp(name, "__metadata__") != 0)
      HD_TRY(read_tensor(h, name, value, wanted_here(only, name, shard)));
  return check_cover(h, root);
}

heed_status hd_safetensors_read(heed_context *context, hd_tensors *tensors, const char *path, const json_t *only, const char *shard) {
  header h = {.context = context, .tensors = tensors};
  uint64_t length;
  json_t *root;
  HD_TRY(hd_tensors_add_file(context, tensors, path, &h.file));
  const hd_file *file = &tensors->file[h.file];
  h.path = file->path;
  HD_REQUIRE(file->size >= LENGTH_BYTES, context, HEED_E_FORMAT, "%s: truncated (got %lld bytes, allowed from %d)", path,
             (long long)file->size, LENGTH_BYTES);
  HD_TRY(hd_file_read(context, file, 0, LENGTH_BYTES, &length));
  HD_REQUIRE(length >= 2 && length <= (uint64_t)HD_MIN(HEADER_LIMIT, file->size - LENGTH_BYTES), context, HEED_E_FORMAT,
             "%s: bad header length (byte 0, got %llu, allowed 2 to %lld)", path, (unsigned long long)length,
             (long long)HD_MIN(HEADER_LIMIT, file->size - LENGTH_BYTES));
  h.data_begin = LENGTH_BYTES + (int64_t)length;
  h.data_bytes = file->size - h.data_begin;
  HD_TRY(hd_json_read(context, file, "header", LENGTH_BYTES, (int64_t)length, (hd_json_rules){.limit = HEADER_LIMIT}, &root));
  heed_status status = read_header(&h, root, only, shard);
  json_decref(root);
  return status;
}

/* ---- the index of a sharded model ------------------------------------------------------------------------------------------ */

/* The index names files beside itself and nothing else. */
static heed_status check_shard_name(heed_context *context, const char *path, const char *tensor, const json_t *value) {
  char quoted[HD_QUOTE_LENGTH];
  const char *name = json_string_value(value);
  HD_REQUIRE(name && *name && !strchr(name, '/') && !strchr(name, '\\') && name[0] != '.', context, HEED_E_FORMAT,
             "%s: weight_map.%s must name a file in the same directory", path, hd_quote(hd_text_of(tensor), quoted));
  return HEED_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The distinct files of the map, sorted. */
static heed_status list_shards(heed_context *context, const char *path, const json_t *map, const char **names, int64_t *count) {
  const char *tensor;
  json_t *value;
  int64_t filled = 0;
  json_object_foreach((json_t *)map, tensor, value) {
    HD_TRY(check_shard_name(context, path, tensor, value));
    names[filled++] = json_string_value(value);
  }
  qsort(names, (size_t)filled, sizeof *names, compare_names);
  *count = 0;
  for (int64_t i = 0; i < filled; i++)
    if (i == 0 || strcmp(names[i], names[i - 1]) != 0) names[(*count)++] = names[i];
  return HEED_OK;
}

static heed_status read_shards(heed_context *context, hd_tensors *tensors, const char *path, const json_t *map, const char **names) {
  const char *slash = strrchr(path, '/');
  const int directory_length = slash ? (int)(slash - path) + 1 : 0;
  int64_t count = 0;
  HD_TRY(list_shards(context, path, map, names, &count));
  for (int64_t i = 0; i < count; i++) {
    size_t length = (size_t)directory_length + strlen(names[i]) + 1;
    char *shard;
    HD_TRY(hd_arena_allocate(&tensors->arena, context, "a file name", (int64_t)length, 1, &shard));
    snprintf(shard, length, "%.*s%s", directory_length, path, names[i]);
    HD_TRY(hd_safetensors_read(context, tensors, shard, map, names[i]));
  }
  HD_REQUIRE(tensors->count == (int64_t)json_object_size(map), context, HEED_E_FORMAT,
             "%s: weight_map names tensors that its files do not hold (got %lld, allowed %lld)", path, (long long)json_object_size(map),
             (long long)tensors->count);
  return HEED_OK;
}

heed_status hd_safetensors_index_read(heed_context *context, hd_tensors *tensors, const char *path) {
  json_t *root;
  heed_status status;
  const char **names = NULL;
  int64_t count = 0;
  HD_TRY(hd_json_load(context, path, (hd_json_rules){.limit = HEADER_LIMIT}, &root));
  const hd_json_place top = {context, path, "", root};
  hd_json_place map;
  HD_TRY_DONE(hd_json_object(&top, "weight_map", &map));
  count = (int64_t)json_object_size(map.object);
  HD_TRY_DONE(hd_allocate(context, "a list of shards", count, sizeof *names, &names));
  status = read_shards(context, tensors, path, map.object, names);
done:
  hd_release(context, names, count, sizeof *names);
  json_decref(root);
  return status;
}
