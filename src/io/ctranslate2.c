/* ctranslate2.c: model.bin of CTranslate2, version 2 of its binary format: a name and a revision of the kind of model, then variables, each with its name, shape, size of an element and
 * data, one behind the other.
 *
 * The file does not say types but sizes: four bytes are f32, two and one are the codes of a quantised weight, whose scales are a variable of their own. Headers are read where they stand, one
 * at a time; data are only stepped over. Texts are a length with 16 bits and bytes that end in a NUL, which the length counts. */
#include "reader.h"

#include <stdio.h>

enum { VERSION = 2, NEWEST_KNOWN = 6 };          /* 3 to 6 have types and aliases, which nothing here needs yet */
enum { MAX_TEXT = 1024 };                        /* names in use have fewer than 100 */
enum { MIN_VARIABLE_BYTES = 2 + 2 + 1 + 1 + 4 }; /* a name of one character, rank 0, no element */

typedef struct cursor {
  heed_context *context;
  hd_tensors *tensors;
  const hd_file *file;
  int64_t at, variable; /* variable: its number, −1: the head of the file */
} cursor;

static heed_status wrong(const cursor *c, const char *problem, int64_t got, const char *allowed) {
  char place[48] = "head";
  if (c->variable >= 0) snprintf(place, sizeof place, "variable %lld", (long long)c->variable);
  return hd_fail(c->context, HEED_E_FORMAT, "%s: %s (%s, byte %lld, got %lld, allowed %s)", c->file->path, problem, place, (long long)c->at,
                 (long long)got, allowed);
}

static heed_status take(cursor *c, void *out, int64_t bytes) {
  const int64_t rest = c->file->size - c->at;
  if (bytes > rest) return wrong(c, "truncated", rest, "as many bytes as are announced");
  HD_TRY(hd_file_read(c->context, c->file, c->at, bytes, out));
  c->at += bytes;
  return HEED_OK;
}

/* A little-endian number of 1 to 4 bytes. */
static heed_status take_number(cursor *c, int bytes, int64_t *out) {
  unsigned char number[4];
  HD_TRY(take(c, number, bytes));
  *out = 0;
  for (int i = 0; i < bytes; i++) *out |= (int64_t)number[i] << (8 * i);
  return HEED_OK;
}

static heed_status take_text(cursor *c, const char **out) {
  char text[MAX_TEXT + 1], quoted[HD_QUOTE_LENGTH], *copy;
  int64_t length;
  HD_TRY(take_number(c, 2, &length));
  if (length < 2 || length > MAX_TEXT + 1) return wrong(c, "text of bad length", length, "2 to 1025 bytes with its NUL");
  HD_TRY(take(c, text, length));
  const heed_text name = {text, (size_t)length - 1};
  if (text[length - 1] != 0) return wrong(c, "text that does not end in a NUL", text[length - 1], "0");
  HD_REQUIRE(hd_is_printable(name), c->context, HEED_E_FORMAT, "%s: bad character in a name (byte %lld, got \"%s\")", c->file->path,
             (long long)c->at, hd_quote(name, quoted));
  HD_TRY(hd_arena_text(&c->tensors->arena, c->context, name.data, name.length, &copy));
  *out = copy;
  return HEED_OK;
}

/* The types by their sizes. */
static const struct {
  const char *name;
  hd_storage storage;
} by_bytes[] = {[1] = {"I8", HD_STORAGE_COUNT}, [2] = {"I16", HD_STORAGE_COUNT}, [4] = {"F32", HD_F32}};

static heed_status read_variable(cursor *c, int file) {
  hd_tensor entry = {.file = file};
  int64_t rank, size, elements;
  HD_TRY(take_text(c, &entry.name));
  HD_TRY(take_number(c, 1, &rank));
  if (rank > HEED_MAX_DIM) return wrong(c, "too many dimensions", rank, "0 to 6");
  entry.ndim = (int)rank;
  for (int i = 0; i < rank; i++) HD_TRY(take_number(c, 4, &entry.dim[i]));
  HD_TRY(take_number(c, 1, &size));
  if (size != 1 && size != 2 && size != 4) return wrong(c, "unknown size of an element", size, "1, 2 and 4");
  HD_TRY(take_number(c, 4, &elements));
  if (!hd_count_elements(entry.ndim, entry.dim, &entry.count) || entry.count != elements)
    return wrong(c, "another number of elements than the shape has", elements, "the product of the dimensions");
  entry.bytes = elements * size; // both fit in 32 bits
  if (entry.bytes > c->file->size - c->at) return wrong(c, "variable longer than the rest of the file", entry.bytes, "what remains");
  entry.type = by_bytes[size].name;
  entry.storage = by_bytes[size].storage;
  entry.offset = c->at;
  c->at += entry.bytes;
  return hd_tensors_add(c->context, c->tensors, &entry);
}

/* What `heed inspect` lists, and the converter reads, as GGUF keeps it: a text is its length and its bytes. */
static heed_status keep_meta(cursor *c, const char *kind, int64_t revision) {
  hd_tensors *t = c->tensors;
  const uint64_t length = strlen(kind);
  const uint32_t number = (uint32_t)revision;
  HD_TRY(hd_tensors_reserve_meta(c->context, t, 2));
  t->header_capacity = (int64_t)(sizeof length + length + sizeof number);
  HD_TRY(hd_allocate(c->context, "metadata", t->header_capacity, 1, &t->header));
  memcpy(t->header, &length, sizeof length);
  memcpy(t->header + sizeof length, kind, length);
  memcpy(t->header + sizeof length + length, &number, sizeof number);
  t->meta[t->meta_count++] = (hd_meta){.key = "spec", .type = HD_META_TEXT, .element = HD_META_TEXT, .count = 1, .data = t->header};
  t->meta[t->meta_count++] =
      (hd_meta){.key = "revision", .type = HD_META_U32, .element = HD_META_U32, .count = 1, .data = t->header + sizeof length + length};
  return HEED_OK;
}

heed_status hd_ctranslate2_read(heed_context *context, hd_tensors *tensors, const char *path) {
  int64_t version, revision, count;
  const char *kind;
  int file;
  tensors->format = "CTranslate2 2";
  tensors->is_ctranslate2 = true;
  HD_TRY(hd_tensors_add_file(context, tensors, path, &file));
  cursor c = {.context = context, .tensors = tensors, .file = &tensors->file[file], .variable = -1};
  HD_TRY(take_number(&c, 4, &version));
  HD_REQUIRE(version == VERSION || version < 1 || version > NEWEST_KNOWN, context, HEED_E_UNSUPPORTED,
             "%s: this version of CTranslate2's format is not supported (got %lld, allowed %d)", path, (long long)version, VERSION);
  if (version != VERSION) return wrong(&c, "not a model file that heed reads", version, "CTranslate2's version 2");
  HD_TRY(take_text(&c, &kind));
  HD_TRY(take_number(&c, 4, &revision));
  HD_TRY(take_number(&c, 4, &count));
  if (count > (c.file->size - c.at) / MIN_VARIABLE_BYTES) return wrong(&c, "more variables than the file has room for", count, "what fits");
  HD_TRY(keep_meta(&c, kind, revision));
  for (c.variable = 0; c.variable < count; c.variable++) HD_TRY(read_variable(&c, file));
  if (c.at != c.file->size) return wrong(&c, "bytes behind the last variable", c.file->size - c.at, "none");
  return HEED_OK;
}
