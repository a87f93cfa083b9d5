/* npy.c: reading and writing NumPy's array files. Format: numpy.lib.format, versions 1.0 to 3.0; version 1.0 is written. */
#include "npy.h"

#include <stdio.h>

enum { PREAMBLE = 8, MAX_HEADER = 65535 }; /* what version 1.0 can say; headers of plain arrays have 118 bytes */
enum { WRITE_ALIGN = 64 };                 /* specification: the data begin at a multiple of 64 */
enum { WRITE_BYTES = 1 << 16 };

/* ---- the header, a Python dict ---------------------------------------------------------------------------------------------- */

typedef struct parser {
  const hd_stream *stream;
  const char *at, *begin, *end;
} parser;

static heed_status bad(const parser *p, const char *problem) {
  return hd_fail(p->stream->context, HEED_E_FORMAT, "%s: %s (header byte %lld)", p->stream->name, problem, (long long)(p->at - p->begin));
}

static void skip_space(parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t')) p->at++;
}

static bool accept(parser *p, char c) {
  skip_space(p);
  if (p->at >= p->end || *p->at != c) return false;
  p->at++;
  return true;
}

static bool accept_word(parser *p, const char *word) {
  size_t length = strlen(word);
  skip_space(p);
  if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
  p->at += length;
  return true;
}

/* A text in single or double quotes; escapes do not occur in what is allowed. */
static heed_status take_text(parser *p, heed_text *out) {
  skip_space(p);
  if (p->at >= p->end || (*p->at != '\'' && *p->at != '"')) return bad(p, "a quoted text is missing");
  const char *close = memchr(p->at + 1, *p->at, (size_t)(p->end - p->at - 1));
  if (!close) return bad(p, "a quoted text has no end");
  *out = (heed_text){p->at + 1, (size_t)(close - p->at - 1)};
  p->at = close + 1;
  return HEED_OK;
}

static heed_status take_dim(parser *p, int64_t *out) {
  int64_t value = 0;
  skip_space(p);
  if (p->at < p->end && *p->at == '-') return bad(p, "negative dimension");
  if (p->at >= p->end || *p->at < '0' || *p->at > '9') return bad(p, "a dimension is no integer");
  for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
    if (!hd_mul(value, 10, &value) || !hd_add(value, *p->at - '0', &value)) return bad(p, "a dimension overflows");
  *out = value;
  return HEED_OK;
}

/* (), (3,), (3, 4) or (3, 4,). */
static heed_status take_shape(parser *p, hd_npy_head *head) {
  int64_t rank = 0, dim = 0;
  bool comma = true;
  if (!accept(p, '(')) return bad(p, "the shape is no tuple");
  while (!accept(p, ')')) {
    if (!comma) return bad(p, "a comma is missing in the shape");
    HD_TRY(take_dim(p, &dim));
    if (rank < HEED_MAX_DIM) head->dim[rank] = dim;
    rank++;
    comma = accept(p, ',');
  }
  if (rank == 1 && !comma) return bad(p, "the shape is no tuple");
  HD_REQUIRE(rank <= HEED_MAX_DIM, p->stream->context, HEED_E_UNSUPPORTED, "%s: too many dimensions (got %lld, allowed %d)",
             p->stream->name, (long long)rank, HEED_MAX_DIM);
  head->ndim = (int)rank;
  if (!hd_count_elements(head->ndim, head->dim, &head->count)) return bad(p, "the shape overflows");
  return HEED_OK;
}

/* "<f4": byte order, kind, bytes. */
static heed_status take_type(parser *p, hd_npy_head *head) {
  heed_text text;
  char quoted[HD_QUOTE_LENGTH];
  skip_space(p);
  HD_REQUIRE(p->at >= p->end || *p->at != '[', p->stream->context, HEED_E_UNSUPPORTED,
             "%s: structured arrays are not read (header byte %lld)", p->stream->name, (long long)(p->at - p->begin));
  HD_TRY(take_text(p, &text));
  const char order = text.length ? text.data[0] : 0;
  if (text.length < 2 || !order || !strchr("<>|=", order)) return bad(p, "an element type without a byte order");
  int64_t bytes = 0;
  for (size_t i = 1; i < text.length; i++) {
    const char c = text.data[i];
    const bool digit = c >= '0' && c <= '9', letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!digit && !letter && c != '[' && c != ']') return bad(p, "a malformed element type");
    // "<M8[ns]" and the like are no numbers: a size that no number has.
    if (i > 1) bytes = digit && bytes < 1000 ? bytes * 10 + c - '0' : 1000;
  }
  head->plain = hd_plain_by_kind(text.data[1], bytes);
  head->big_endian = order == '>';
  HD_REQUIRE(head->plain, p->stream->context, HEED_E_UNSUPPORTED,
             "%s: element type \"%s\" is not read (allowed floats of 2, 4, 8 bytes, integers of 1 to 8, booleans)", p->stream->name,
             hd_quote(text, quoted));
  return HEED_OK;
}

static heed_status take_value(parser *p, int key, hd_npy_head *head) {
  if (key == 0) return take_type(p, head);
  if (key == 2) return take_shape(p, head);
  head->fortran = accept_word(p, "True");
  return head->fortran || accept_word(p, "False") ? HEED_OK : bad(p, "fortran_order is neither True nor False");
}

static heed_status parse_dict(parser *p, hd_npy_head *head) {
  static const char *const keys[] = {"descr", "fortran_order", "shape"};
  bool seen[HD_COUNT(keys)] = {false}, comma = true;
  heed_text name;
  if (!accept(p, '{')) return bad(p, "the header is no dict");
  while (!accept(p, '}')) {
    int key = 0;
    if (!comma) return bad(p, "a comma is missing");
    HD_TRY(take_text(p, &name));
    while (key < HD_COUNT(keys) && !hd_text_is(name, keys[key])) key++;
    if (key == HD_COUNT(keys) || seen[key]) return bad(p, "a key that is unknown or there twice");
    seen[key] = true;
    if (!accept(p, ':')) return bad(p, "a colon is missing");
    HD_TRY(take_value(p, key, head));
    comma = accept(p, ',');
  }
  for (int key = 0; key < HD_COUNT(keys); key++)
    if (!seen[key]) return hd_fail(p->stream->context, HEED_E_FORMAT, "%s: the header has no %s", p->stream->name, keys[key]);
  skip_space(p);
  if (p->at + 1 != p->end || *p->at != '\n') return bad(p, "the header does not end in a newline");
  return HEED_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

/* Magic, version and the length of the dict. */
static heed_status read_preamble(hd_stream *s, int64_t *length) {
  unsigned char magic[PREAMBLE], size[4] = {0};
  HD_REQUIRE(s->size >= PREAMBLE + 2, s->context, HEED_E_FORMAT, "%s: truncated (got %lld bytes, allowed from %d)", s->name,
             (long long)s->size, PREAMBLE + 2);
  HD_TRY(s->read(s, PREAMBLE, magic));
  HD_REQUIRE(memcmp(magic, "\x93NUMPY", 6) == 0, s->context, HEED_E_FORMAT, "%s: not an npy file (byte 0, allowed \"\\x93NUMPY\")",
             s->name);
  HD_REQUIRE(magic[6] >= 1 && magic[6] <= 3 && magic[7] == 0, s->context, HEED_E_FORMAT,
             "%s: unknown npy version (byte 6, got %d.%d, allowed 1.0, 2.0 and 3.0)", s->name, magic[6], magic[7]);
  const int size_bytes = magic[6] == 1 ? 2 : 4;
  HD_REQUIRE(s->size >= PREAMBLE + size_bytes, s->context, HEED_E_FORMAT, "%s: truncated (got %lld bytes)", s->name, (long long)s->size);
  HD_TRY(s->read(s, size_bytes, size));
  *length = size[0] | size[1] << 8 | size[2] << 16 | (int64_t)size[3] << 24;
  HD_REQUIRE(*length <= HD_MIN(MAX_HEADER, s->size - s->at), s->context, HEED_E_FORMAT,
             "%s: header longer than the file (byte 8, got %lld, allowed %lld)", s->name, (long long)*length,
             (long long)HD_MIN(MAX_HEADER, s->size - s->at));
  return HEED_OK;
}

heed_status hd_npy_read_head(hd_stream *s, hd_npy_head *head) {
  int64_t length = 0, data_bytes;
  char *text = NULL;
  heed_status status;
  *head = (hd_npy_head){0};
  HD_TRY(read_preamble(s, &length));
  HD_TRY(hd_allocate(s->context, "an npy header", length, 1, &text));
  HD_TRY_DONE(s->read(s, length, text));
  parser p = {.stream = s, .at = text, .begin = text, .end = text + length};
  HD_TRY_DONE(parse_dict(&p, head));
  head->header_bytes = s->at;
  if (!hd_mul(head->count, head->plain->bytes, &data_bytes) || data_bytes != s->size - s->at)
    status = hd_fail(s->context, HEED_E_FORMAT, "%s: the data do not have the size of the shape (got %lld bytes, allowed %lld × %d)",
                     s->name, (long long)(s->size - s->at), (long long)head->count, head->plain->bytes);
done:
  hd_release(s->context, text, length, 1);
  return status;
}

heed_status hd_array_new(heed_context *context, const hd_plain *plain, int ndim, const int64_t *dim, int64_t count, heed_view *out,
                         void **raw) {
  void *data;
  const int64_t one = 1;
  HD_TRY(hd_allocate(context, "an array", count, heed_type_bytes(plain->type), &data));
  *out = heed_view_of(data, plain->type, ndim ? ndim : 1, ndim ? dim : &one);
  *raw = (char *)data + count * ((int64_t)heed_type_bytes(plain->type) - plain->bytes);
  return HEED_OK;
}

heed_status hd_npy_read(hd_stream *s, heed_view *out) {
  hd_npy_head head;
  heed_view view;
  heed_status status;
  void *raw;
  HD_TRY(hd_npy_read_head(s, &head));
  HD_TRY(hd_array_new(s->context, head.plain, head.ndim, head.dim, head.count, &view, &raw));
  HD_TRY_DONE(s->read(s, s->size - s->at, raw));
  HD_TRY_DONE(s->finish(s));
  HD_TRY_DONE(hd_plain_widen(s->context, s->name, head.plain, head.big_endian, head.count, view.data));
  int64_t stride = 1;
  for (int i = 0; head.fortran && i < view.ndim; stride *= view.dim[i++]) view.stride[i] = stride;
  *out = view;
done:
  if (status != HEED_OK) heed_array_free(s->context, &view);
  return status;
}

static heed_status file_read(hd_stream *stream, int64_t bytes, void *out) {
  HD_TRY(hd_file_read(stream->context, &((hd_npy_file *)stream)->file, stream->at, bytes, out));
  stream->at += bytes;
  return HEED_OK;
}

static heed_status file_finish(hd_stream *stream) {
  (void)stream; // the size was compared with the shape
  return HEED_OK;
}

heed_status hd_npy_open(heed_context *context, const char *path, hd_npy_file *out) {
  *out = (hd_npy_file){0};
  HD_TRY(hd_file_open(context, path, &out->file));
  out->stream = (hd_stream){.context = context, .name = path, .size = out->file.size, .read = file_read, .finish = file_finish};
  return HEED_OK;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

/* The type of heed_view as it is written. */
static const char *const written_types[] = {
    [HEED_F32] = "<f4", [HEED_F64] = "<f8", [HEED_F16] = "<f2", [HEED_BF16] = "<f4",
    [HEED_I64] = "<i8", [HEED_I32] = "<i4", [HEED_U8] = "|u1",  [HEED_BOOL] = "|b1",
};

static heed_status write_head(hd_writer *writer, const heed_view *view) {
  enum { DICT_BYTES = 256 }; // six dimensions of 19 digits fit
  char shape[DICT_BYTES] = "", text[2 * DICT_BYTES];
  int used = 0;
  for (int i = 0; i < view->ndim; i++)
    used += snprintf(shape + used, sizeof shape - (size_t)used, i ? ", %lld" : "%lld", (long long)view->dim[i]);
  int length = snprintf(text + PREAMBLE + 2, sizeof text - PREAMBLE - 2, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                        written_types[view->type], shape, view->ndim == 1 ? "," : "");
  int total = (PREAMBLE + 2 + length + 1 + WRITE_ALIGN - 1) / WRITE_ALIGN * WRITE_ALIGN, dict = total - PREAMBLE - 2;
  memset(text + PREAMBLE + 2 + length, ' ', (size_t)(dict - length - 1));
  text[total - 1] = '\n';
  memcpy(text, "\x93NUMPY\x01\x00", PREAMBLE);
  text[PREAMBLE] = (char)(dict & 0xff);
  text[PREAMBLE + 1] = (char)(dict >> 8);
  return hd_writer_write(writer, text, total);
}

/* Elements as they are written: packed, bf16 as f32. */
static void pack(char *out, const char *from, int64_t stride_bytes, heed_type type, int64_t count) {
  const size_t bytes = heed_type_bytes(type);
  for (int64_t i = 0; i < count; i++) {
    const char *element = from + i * stride_bytes;
    if (type == HEED_BF16) {
      uint16_t bits;
      memcpy(&bits, element, sizeof bits);
      float value = hd_bf16_to_f32(bits);
      memcpy(out + (size_t)i * sizeof value, &value, sizeof value);
    } else {
      memcpy(out + (size_t)i * bytes, element, bytes);
    }
  }
}

/* Steps to the next row in row-major order; false after the last. */
static bool next_row(const heed_view *view, int64_t index[HEED_MAX_DIM]) {
  for (int axis = view->ndim - 2; axis >= 0; axis--) {
    if (++index[axis] < view->dim[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

static const char *row_address(const heed_view *view, const int64_t index[HEED_MAX_DIM]) {
  int64_t offset = 0;
  for (int axis = 0; axis < view->ndim - 1; axis++) offset += index[axis] * view->stride[axis];
  return (const char *)view->data + offset * (int64_t)heed_type_bytes(view->type);
}

/* Row by row, in pieces that fit the buffer; short rows share it. */
static heed_status write_rows(hd_writer *writer, const heed_view *view, char *buffer) {
  const int64_t bytes = view->type == HEED_BF16 ? (int64_t)sizeof(float) : (int64_t)heed_type_bytes(view->type);
  const int64_t length = view->dim[view->ndim - 1], stride = view->stride[view->ndim - 1] * (int64_t)heed_type_bytes(view->type);
  const int64_t room = WRITE_BYTES / bytes;
  int64_t index[HEED_MAX_DIM] = {0}, used = 0;
  do {
    const char *row = row_address(view, index);
    for (int64_t done = 0; done < length;) {
      int64_t piece = HD_MIN(length - done, room - used);
      pack(buffer + used * bytes, row + done * stride, stride, view->type, piece);
      done += piece;
      used += piece;
      if (used == room) {
        HD_TRY(hd_writer_write(writer, buffer, used * bytes));
        used = 0;
      }
    }
  } while (next_row(view, index));
  return hd_writer_write(writer, buffer, used * bytes);
}

static bool is_packed(const heed_view *view) {
  int64_t stride = 1;
  for (int axis = view->ndim - 1; axis >= 0; axis--) {
    if (view->dim[axis] != 1 && view->stride[axis] != stride) return false;
    stride *= view->dim[axis];
  }
  return true;
}

static heed_status write_data(hd_writer *writer, const heed_view *view) {
  const int64_t count = hd_view_count(view);
  if (count == 0) return HEED_OK;
  if (is_packed(view) && view->type != HEED_BF16) return hd_writer_write(writer, view->data, count * (int64_t)heed_type_bytes(view->type));
  char *buffer;
  HD_TRY(hd_allocate(writer->context, "a write buffer", WRITE_BYTES, 1, &buffer));
  heed_status status = write_rows(writer, view, buffer);
  hd_release(writer->context, buffer, WRITE_BYTES, 1);
  return status;
}

heed_status heed_array_save(heed_context *context, const char *path, const heed_view *array) {
  hd_writer writer;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(path && array, context, HEED_E_ARGUMENT, "heed_array_save: path or array is null");
  HD_TRY(hd_view_check(context, array, "array"));
  HD_REQUIRE(!hd_names_container(path), context, HEED_E_UNSUPPORTED, "%s: arrays are written as .npy only", path);
  HD_TRY(hd_writer_begin(context, path, &writer));
  HD_TRY_DONE(write_head(&writer, array));
  HD_TRY_DONE(write_data(&writer, array));
  return hd_writer_commit(&writer);
done:
  hd_writer_abandon(&writer);
  return status;
}
