/* gguf.c: GGUF versions 2 and 3: a header of typed metadata and tensor descriptions, then aligned data.
 *
 * The header is read in growing windows and stays in memory: texts are never copied, an array of texts costs 4 bytes an element besides.
 * Its end is known only when it is parsed, so a cursor asks for bytes before it looks at them, and every count is compared with what the
 * rest of the file can hold. Format: the GGUF specification (ggml/docs/gguf.md). */
#include "reader.h"

/* Texts are addressed by 32-bit offsets. */
#define HEADER_LIMIT (INT64_C(1) << 30)
enum { WINDOW_BYTES = 1 << 20 };
enum { MAX_KEYS = 16384 };        /* files in use have fewer than 100 */
enum { MAX_KEY_BYTES = 65535 };   /* specification */
enum { MAX_NAME_BYTES = 64 };     /* specification */
enum { MAX_RANK = 4 };            /* specification */
enum { MAX_NESTING = 8 };         /* arrays of arrays; nothing in use has any */
enum { DEFAULT_ALIGNMENT = 32 };  /* specification */
enum { MAX_ALIGNMENT = 1 << 20 }; /* beyond a huge page's worth it would only be padding */
/* The least that a key or a tensor description takes: key length, one byte, type, one byte; name length, one byte, rank, type, offset. */
enum { MIN_KEY_BYTES = 8 + 1 + 4 + 1, MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8 };

/* Types whose size is known and whose values are not read as weights. Numbers that were removed or never given are in no table. Source:
 * ggml.h and ggml-common.h, March 2026. */
static const struct {
  const char *name;
  uint32_t number;
  int64_t elements, bytes;
} sized_types[] = {
    {"Q8_1", 9, 32, 36},    {"Q8_K", 15, 256, 292},  {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74},  {"IQ3_XXS", 18, 256, 98},
    {"IQ1_S", 19, 256, 50}, {"IQ3_S", 21, 256, 110}, {"IQ2_S", 22, 256, 82},   {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},
    {"I16", 25, 1, 2},      {"I32", 26, 1, 4},       {"I64", 27, 1, 8},        {"IQ1_M", 29, 256, 56},   {"TQ1_0", 34, 256, 54},
    {"TQ2_0", 35, 256, 66}, {"MXFP4", 39, 32, 17},   {"NVFP4", 40, 64, 36},    {"Q1_0", 41, 128, 18},    {"Q2_0", 42, 64, 18},
};

/* Bytes of one value; 0: texts and arrays, which carry their own length. */
static const int value_bytes[HD_META_TYPES] = {
    [HD_META_U8] = 1,  [HD_META_I8] = 1,   [HD_META_U16] = 2, [HD_META_I16] = 2, [HD_META_U32] = 4, [HD_META_I32] = 4,
    [HD_META_F32] = 4, [HD_META_BOOL] = 1, [HD_META_U64] = 8, [HD_META_I64] = 8, [HD_META_F64] = 8,
};

/* ---- the cursor ------------------------------------------------------------------------------------------------------------ */

typedef struct cursor {
  heed_context *context;
  hd_tensors *tensors;
  const hd_file *file;
  int64_t at, filled;
  /* what is being read, for messages: "metadata 3", "tensor 17" */
  const char *what;
  int64_t number;
} cursor;

#define AT_CURSOR(c) (c)->file->path, (c)->what, (long long)(c)->number, (long long)(c)->at

/* `return wrong(c, "bad thing", got, "allowed")`: a sentence with the place. */
static heed_status wrong(const cursor *c, const char *problem, uint64_t got, const char *allowed) {
  return hd_fail(c->context, HEED_E_FORMAT, "%s: %s (%s %lld, byte %lld, got %llu, allowed %s)", c->file->path, problem, c->what,
                 (long long)c->number, (long long)c->at, (unsigned long long)got, allowed);
}

static int64_t rest(const cursor *c) { return c->file->size - c->at; }

/* Makes the next `bytes` bytes stand in memory. */
static heed_status need(cursor *c, int64_t bytes) {
  hd_tensors *t = c->tensors;
  HD_REQUIRE(bytes <= rest(c), c->context, HEED_E_FORMAT, "%s: truncated (%s %lld, byte %lld, %lld bytes wanted, %lld remain)",
             AT_CURSOR(c), (long long)bytes, (long long)rest(c));
  if (c->at + bytes <= c->filled) return HEED_OK;
  HD_REQUIRE(c->at + bytes <= HEADER_LIMIT, c->context, HEED_E_FORMAT, "%s: header too large (allowed %lld bytes)", c->file->path,
             (long long)HEADER_LIMIT);
  int64_t target = HD_MIN(c->file->size, HD_MAX(c->at + bytes, HD_MAX(WINDOW_BYTES, c->filled * 2)));
  if (target > t->header_capacity) {
    unsigned char *grown;
    HD_TRY(hd_allocate(c->context, "a GGUF header", target, 1, &grown));
    if (t->header) memcpy(grown, t->header, (size_t)c->filled);
    hd_release(c->context, t->header, t->header_capacity, 1);
    t->header = grown;
    t->header_capacity = target;
  }
  HD_TRY(hd_file_read(c->context, c->file, c->filled, target - c->filled, t->header + c->filled));
  c->filled = target;
  return HEED_OK;
}

static heed_status take(cursor *c, void *out, int64_t bytes) {
  HD_TRY(need(c, bytes));
  memcpy(out, c->tensors->header + c->at, (size_t)bytes);
  c->at += bytes;
  return HEED_OK;
}

static heed_status take_u32(cursor *c, uint32_t *out) { return take(c, out, sizeof *out); }
static heed_status take_u64(cursor *c, uint64_t *out) { return take(c, out, sizeof *out); }

/* Steps over a text: its length, then its bytes. */
static heed_status skip_text(cursor *c, int64_t *length) {
  uint64_t bytes;
  HD_TRY(take_u64(c, &bytes));
  if (bytes > (uint64_t)rest(c)) return wrong(c, "text longer than the rest of the file", bytes, "what remains");
  HD_TRY(need(c, (int64_t)bytes));
  c->at += (int64_t)bytes;
  *length = (int64_t)bytes;
  return HEED_OK;
}

/* A name of 1 to `limit` bytes, copied: printable, and ASCII if asked for. */
static heed_status take_name(cursor *c, int64_t limit, bool ascii, const char *allowed, const char **out) {
  int64_t length;
  char *copy;
  HD_TRY(skip_text(c, &length));
  if (length < 1 || length > limit) return wrong(c, "name of bad length", (uint64_t)length, allowed);
  const heed_text name = {(const char *)c->tensors->header + c->at - length, (size_t)length};
  char quoted[HD_QUOTE_LENGTH];
  bool fits = hd_is_printable(name);
  for (size_t i = 0; ascii && i < name.length; i++) fits = fits && (unsigned char)name.data[i] < 0x80;
  HD_REQUIRE(fits, c->context, HEED_E_FORMAT, "%s: bad character in a name (%s %lld, byte %lld, got \"%s\", allowed %s)", AT_CURSOR(c),
             hd_quote(name, quoted), ascii ? "printable ASCII" : "printable UTF-8");
  HD_TRY(hd_arena_text(&c->tensors->arena, c->context, name.data, name.length, &copy));
  *out = copy;
  return HEED_OK;
}

/* ---- metadata -------------------------------------------------------------------------------------------------------------- */

static heed_status check_bools(const cursor *c, int64_t count) {
  const unsigned char *at = c->tensors->header + c->at;
  for (int64_t i = 0; i < count; i++)
    if (at[i] > 1) return wrong(c, "a boolean that is neither 0 nor 1", at[i], "0 or 1");
  return HEED_OK;
}

static heed_status skip_numbers(cursor *c, hd_meta_type type, int64_t count) {
  int64_t bytes = count * value_bytes[type];
  HD_TRY(need(c, bytes));
  if (type == HD_META_BOOL) HD_TRY(check_bools(c, count));
  c->at += bytes;
  return HEED_OK;
}

static heed_status skip_texts(cursor *c, int64_t count, uint32_t **index) {
  int64_t length, first = c->at;
  HD_TRY(hd_arena_allocate(&c->tensors->arena, c->context, "an index of texts", count, sizeof **index, index));
  for (int64_t i = 0; i < count; i++) {
    (*index)[i] = (uint32_t)(c->at - first);
    HD_TRY(skip_text(c, &length));
  }
  return HEED_OK;
}

/* Element type and count of an array, the count bounded by the bytes that remain. */
static heed_status take_array_head(cursor *c, hd_meta_type *element, int64_t *count) {
  enum { TEXT_HEAD = 8, ARRAY_HEAD = 12 };
  uint32_t type;
  uint64_t elements;
  HD_TRY(take_u32(c, &type));
  if (type >= HD_META_TYPES) return wrong(c, "unknown element type", type, "0 to 12");
  HD_TRY(take_u64(c, &elements));
  int least = type == HD_META_TEXT ? TEXT_HEAD : type == HD_META_ARRAY ? ARRAY_HEAD : value_bytes[type];
  if (elements > (uint64_t)(rest(c) / least)) return wrong(c, "array longer than the rest of the file", elements, "what remains");
  *element = (hd_meta_type)type;
  *count = (int64_t)elements;
  return HEED_OK;
}

/* Steps over arrays inside an array; nothing asks for their values. */
static heed_status skip_arrays(cursor *c, int64_t count, int depth) {
  hd_meta_type element;
  int64_t inner, length;
  if (depth > MAX_NESTING) return wrong(c, "arrays nested too deep", (uint64_t)depth, "8 levels");
  for (int64_t i = 0; i < count; i++) {
    HD_TRY(take_array_head(c, &element, &inner));
    if (element == HD_META_ARRAY) HD_TRY(skip_arrays(c, inner, depth + 1));
    else if (element == HD_META_TEXT)
      for (int64_t j = 0; j < inner; j++) HD_TRY(skip_text(c, &length));
    else HD_TRY(skip_numbers(c, element, inner));
  }
  return HEED_OK;
}

static heed_status read_meta(cursor *c, hd_meta *meta) {
  uint32_t type, *index = NULL;
  int64_t length;
  HD_TRY(take_name(c, MAX_KEY_BYTES, true, "1 to 65535 bytes", &meta->key));
  HD_TRY(take_u32(c, &type));
  if (type >= HD_META_TYPES) return wrong(c, "unknown value type", type, "0 to 12");
  meta->type = meta->element = (hd_meta_type)type;
  meta->count = 1;
  if (type == HD_META_ARRAY) HD_TRY(take_array_head(c, &meta->element, &meta->count));
  meta->at = c->at;
  if (meta->element == HD_META_ARRAY) return skip_arrays(c, meta->count, 2);
  if (type == HD_META_TEXT) return skip_text(c, &length);
  if (meta->element != HD_META_TEXT) return skip_numbers(c, meta->element, meta->count);
  HD_TRY(skip_texts(c, meta->count, &index));
  meta->index = index;
  return HEED_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------------- */

/* Name, storage and block of a type number. */
static heed_status find_type(const cursor *c, uint32_t number, hd_tensor *tensor, int64_t *elements, int64_t *bytes) {
  tensor->storage = hd_storage_from_gguf(number);
  if (tensor->storage != HD_STORAGE_COUNT) {
    tensor->type = hd_storage_name(tensor->storage);
    *elements = hd_storage_block(tensor->storage);
    *bytes = hd_storage_bytes(tensor->storage);
    return HEED_OK;
  }
  for (int64_t i = 0; i < HD_COUNT(sized_types); i++)
    if (sized_types[i].number == number) {
      tensor->type = sized_types[i].name;
      *elements = sized_types[i].elements;
      *bytes = sized_types[i].bytes;
      return HEED_OK;
    }
  return wrong(c, "unknown tensor type number", number, "those of ggml that are still in use");
}

/* Dimensions stand innermost first in the file. */
static heed_status read_shape(cursor *c, hd_tensor *tensor) {
  uint32_t rank;
  HD_TRY(take_u32(c, &rank));
  if (rank > MAX_RANK) return wrong(c, "too many dimensions", rank, "0 to 4");
  tensor->ndim = (int)rank;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    uint64_t dim;
    HD_TRY(take_u64(c, &dim));
    if (dim > INT64_MAX) return wrong(c, "negative dimension", dim, "0 to 2^63-1");
    tensor->dim[i] = (int64_t)dim;
  }
  if (!hd_count_elements(tensor->ndim, tensor->dim, &tensor->count)) return wrong(c, "shape overflows", rank, "a count below 2^63");
  return HEED_OK;
}

static heed_status read_tensor(cursor *c, hd_tensor *tensor) {
  uint32_t number;
  uint64_t offset;
  int64_t elements = 1, bytes = 0;
  HD_TRY(take_name(c, MAX_NAME_BYTES, false, "1 to 64 bytes", &tensor->name));
  HD_TRY(read_shape(c, tensor));
  HD_TRY(take_u32(c, &number));
  HD_TRY(find_type(c, number, tensor, &elements, &bytes));
  int64_t row = tensor->ndim ? tensor->dim[tensor->ndim - 1] : 1;
  HD_REQUIRE(row % elements == 0, c->context, HEED_E_FORMAT,
             "%s: row is not a multiple of its type's block (%s %lld, byte %lld, got %lld, allowed multiples of %lld for %s)", AT_CURSOR(c),
             (long long)row, (long long)elements, tensor->type);
  if (!hd_mul(tensor->count / elements, bytes, &tensor->bytes))
    return wrong(c, "byte size overflows", (uint64_t)tensor->count, "below 2^63 bytes");
  HD_TRY(take_u64(c, &offset));
  if (offset > INT64_MAX) return wrong(c, "tensor data beyond the file", offset, "what the file holds");
  tensor->offset = (int64_t)offset;
  return hd_tensors_add(c->context, c->tensors, tensor);
}

static heed_status find_alignment(const cursor *c, int64_t *alignment) {
  *alignment = DEFAULT_ALIGNMENT;
  for (int64_t i = 0; i < c->tensors->meta_count; i++) {
    const hd_meta *meta = &c->tensors->meta[i];
    if (strcmp(meta->key, "general.alignment") != 0) continue;
    *alignment = meta->type == HD_META_U32 ? hd_meta_integer_at(meta, 0) : 0;
    HD_REQUIRE(*alignment >= 8 && *alignment <= MAX_ALIGNMENT && (*alignment & (*alignment - 1)) == 0, c->context, HEED_E_FORMAT,
               "%s: general.alignment must be a u32 power of two from 8 to %d (got %s %lld)", c->file->path, MAX_ALIGNMENT,
               hd_meta_type_name(meta->type), (long long)*alignment);
  }
  return HEED_OK;
}

static int compare_offsets(const void *a, const void *b) {
  const hd_tensor *x = *(const hd_tensor *const *)a, *y = *(const hd_tensor *const *)b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static heed_status refuse_overlap(const cursor *c, const hd_tensor **sorted) {
  int64_t filled = 0;
  for (int64_t i = 0; i < c->tensors->count; i++)
    if (hd_tensors_at(c->tensors, i)->bytes) sorted[filled++] = hd_tensors_at(c->tensors, i);
  qsort(sorted, (size_t)filled, sizeof *sorted, compare_offsets);
  for (int64_t i = 1; i < filled; i++) {
    char first[HD_QUOTE_LENGTH], second[HD_QUOTE_LENGTH];
    const hd_tensor *a = sorted[i - 1], *b = sorted[i];
    HD_REQUIRE(b->offset - a->offset >= a->bytes, c->context, HEED_E_FORMAT,
               "%s: the data of tensors \"%s\" and \"%s\" overlap (byte %lld, the first ends at %lld)", c->file->path,
               hd_quote(hd_text_of(a->name), first), hd_quote(hd_text_of(b->name), second), (long long)b->offset,
               (long long)(a->offset + a->bytes));
  }
  return HEED_OK;
}

/* Turns offsets from the start of the data into offsets in the file, and checks that all lie there, apart from each other. */
static heed_status place_data(cursor *c) {
  int64_t alignment = 0;
  HD_TRY(find_alignment(c, &alignment));
  int64_t begin = hd_ceil_div(c->at, alignment) * alignment;
  for (int64_t i = 0; i < c->tensors->count; i++) {
    hd_tensor *tensor = &c->tensors->chunk[i / HD_CHUNK_TENSORS][i % HD_CHUNK_TENSORS];
    char quoted[HD_QUOTE_LENGTH];
    int64_t end;
    hd_quote(hd_text_of(tensor->name), quoted);
    HD_REQUIRE(tensor->offset % alignment == 0, c->context, HEED_E_FORMAT,
               "%s: misaligned data (tensor \"%s\", got offset %lld, allowed multiples of %lld)", c->file->path, quoted,
               (long long)tensor->offset, (long long)alignment);
    bool fits = hd_add(tensor->offset, begin, &tensor->offset) && hd_add(tensor->offset, tensor->bytes, &end);
    HD_REQUIRE(fits && (end <= c->file->size || !tensor->bytes), c->context, HEED_E_FORMAT,
               "%s: data beyond the end of the file (tensor \"%s\", got %lld bytes at %lld, allowed up to %lld)", c->file->path, quoted,
               (long long)tensor->bytes, (long long)tensor->offset, (long long)c->file->size);
  }
  const hd_tensor **sorted;
  HD_TRY(hd_allocate(c->context, "a list of tensors", c->tensors->count, sizeof *sorted, &sorted));
  heed_status status = refuse_overlap(c, sorted);
  hd_release(c->context, sorted, c->tensors->count, sizeof *sorted);
  return status;
}

/* ---- the file -------------------------------------------------------------------------------------------------------------- */

static heed_status read_head(cursor *c, uint64_t *tensors, uint64_t *keys) {
  char magic[4];
  uint32_t version;
  HD_TRY(take(c, magic, sizeof magic));
  if (memcmp(magic, "GGUF", 4) != 0)
    return hd_fail(c->context, HEED_E_FORMAT, "%s: not a GGUF file (byte 0, allowed \"GGUF\")", c->file->path);
  HD_TRY(take_u32(c, &version));
  if (version != 2 && version != 3) return wrong(c, "unknown GGUF version", version, "2 or 3, little-endian");
  c->tensors->format = version == 2 ? "GGUF 2" : "GGUF 3";
  HD_TRY(take_u64(c, tensors));
  if (*tensors > (uint64_t)(rest(c) / MIN_TENSOR_BYTES)) return wrong(c, "more tensors than the file can hold", *tensors, "what remains");
  HD_TRY(take_u64(c, keys));
  if (*keys > (uint64_t)(rest(c) / MIN_KEY_BYTES)) return wrong(c, "more metadata than the file can hold", *keys, "what remains");
  if (*keys > MAX_KEYS) return wrong(c, "too many metadata", *keys, "16384");
  return HEED_OK;
}

static heed_status read_all(cursor *c) {
  uint64_t tensors = 0, keys = 0;
  HD_TRY(read_head(c, &tensors, &keys));
  HD_TRY(hd_tensors_reserve_meta(c->context, c->tensors, (int64_t)keys));
  c->what = "metadata";
  for (c->number = 0; c->number < (int64_t)keys; c->number++) HD_TRY(read_meta(c, &c->tensors->meta[c->tensors->meta_count++]));
  c->what = "tensor";
  for (c->number = 0; c->number < (int64_t)tensors; c->number++) HD_TRY(read_tensor(c, &(hd_tensor){0}));
  // Only now does the header stay where it is.
  for (int64_t i = 0; i < c->tensors->meta_count; i++) c->tensors->meta[i].data = c->tensors->header + c->tensors->meta[i].at;
  return place_data(c);
}

heed_status hd_gguf_read(heed_context *context, hd_tensors *tensors, const char *path) {
  int file = 0;
  tensors->is_gguf = true;
  tensors->format = "GGUF";
  HD_TRY(hd_tensors_add_file(context, tensors, path, &file));
  cursor c = {.context = context, .tensors = tensors, .file = &tensors->file[file], .what = "head"};
  return read_all(&c);
}
