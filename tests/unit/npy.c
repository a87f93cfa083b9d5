/* npy: arrays survive saving and loading in every type and layout; every malformed .npy and .npz is refused. */
#include "malformed.h"

#include "../../include/heed/model.h"
#include "../../src/base/base.h"

#include <dirent.h>
#include <zlib.h>

/* ---- files made by hand ------------------------------------------------------------------------------------------------------- */

/* The dict is padded and ended as NumPy does, unless `raw`. */
typedef struct npy_plan {
  const char *magic, *dict;
  int major, minor;
  bool raw;
  int64_t header_length; /* ≥ 0: written instead of the true one */
  const void *data;
  size_t data_bytes;
} npy_plan;

static const float six[6] = {0, 1, 2, 3, 4, 5};
#define BASE_DICT "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"

static npy_plan base(void) {
  return (npy_plan){.magic = "\x93NUMPY", .dict = BASE_DICT, .major = 1, .header_length = -1, .data = six, .data_bytes = sizeof six};
}

static void write_npy(const npy_plan *p, bytes *out) {
  const int length_bytes = p->major == 1 ? 2 : 4;
  size_t length = strlen(p->dict), padding = p->raw ? 0 : 63 - (6 + 2 + (size_t)length_bytes + length) % 64;
  put(out, p->magic, 6);
  put_little(out, (uint64_t)p->major, 1);
  put_little(out, (uint64_t)p->minor, 1);
  put_little(out, p->header_length >= 0 ? (uint64_t)p->header_length : length + padding + !p->raw, length_bytes);
  put_text(out, p->dict);
  put_fill(out, ' ', padding);
  if (!p->raw) put_text(out, "\n");
  put(out, p->data, p->data_bytes);
}

static heed_status load_and_free(heed_context *context, const char *path) {
  heed_view view;
  heed_status status = heed_array_load(context, path, &view);
  if (status == HEED_OK) assert_int_equal((uintptr_t)view.data % 64, 0);
  else assert_null(view.data);
  heed_array_free(context, &view);
  return status;
}

static void check_npy(const npy_plan *p, heed_status status, const char *fragment) {
  bytes content = {0};
  write_npy(p, &content);
  check_file(load_and_free, write_file("case.npy", content.data, content.size), (demand){.status = status, .fragment = fragment});
  bytes_free(&content);
}

/* CASE(status, "what the message says", edit of p). */
#define CASE(status, fragment, ...)                                                                                                        \
  do {                                                                                                                                     \
    npy_plan p = base();                                                                                                                   \
    __VA_ARGS__;                                                                                                                           \
    check_npy(&p, status, fragment);                                                                                                       \
  } while (0)
#define REFUSED(fragment, ...) CASE(HEED_E_FORMAT, fragment, __VA_ARGS__)
#define ACCEPTED(...)          CASE(HEED_OK, NULL, __VA_ARGS__)

static void malformed_frames(void **state) {
  (void)state;
  ACCEPTED((void)p);
  ACCEPTED(p.major = 2);
  ACCEPTED(p.major = 3);
  ACCEPTED(p.raw = true; p.dict = BASE_DICT "\n");
  REFUSED("not an npy file", p.magic = "\x93NUMPX");
  REFUSED("unknown npy version (byte 6, got 0.9", p.major = 0; p.minor = 9);
  REFUSED("unknown npy version", p.major = 4);
  REFUSED("unknown npy version", p.minor = 1);
  REFUSED("header longer than the file", p.header_length = 60000);
  REFUSED("header longer than the file", p.major = 2; p.header_length = UINT32_MAX);
  REFUSED("does not end in a newline", p.raw = true);
  REFUSED("the header is no dict", p.header_length = 0);
  REFUSED("data do not have the size", p.data_bytes--);
  bytes content = {0};
  npy_plan p = base();
  write_npy(&p, &content);
  put_fill(&content, 0, 1);
  check_file(load_and_free, write_file("long.npy", content.data, content.size),
             (demand){.status = HEED_E_FORMAT, .fragment = "data do not have the size of the shape (got 25 bytes"});
  for (size_t size = 0; size < content.size - 1; size += 3)
    check_file(load_and_free, write_file("short.npy", content.data, size), (demand){.status = HEED_E_FORMAT, .fragment = ""});
  bytes_free(&content);
}

static void check_dict(const char *from, const char *to, heed_status status, const char *fragment) {
  char *dict = edited(BASE_DICT, from, to);
  CASE(status, fragment, p.dict = dict);
  free(dict);
}

static void malformed_dicts(void **state) {
  (void)state;
  const heed_status format = HEED_E_FORMAT, unsupported = HEED_E_UNSUPPORTED;
  check_dict("{", "[", format, "the header is no dict");
  check_dict(", }", "", format, "comma is missing");
  check_dict(", 'shape': (2, 3)", "", format, "the header has no shape");
  check_dict("'fortran_order': False, ", "", format, "the header has no fortran_order");
  check_dict("'descr': '<f4', ", "", format, "the header has no descr");
  check_dict(", }", ", 'extra': 1}", format, "unknown or there twice");
  check_dict(", }", ", 'descr': '<f4'}", format, "unknown or there twice");
  check_dict("False", "Maybe", format, "neither True nor False");
  check_dict("False", "0", format, "neither True nor False");
  check_dict("'<f4'", "'<f4", format, "");
  check_dict("'<f4'", "'f4'", format, "without a byte order");
  check_dict("'<f4'", "''", format, "without a byte order");
  check_dict("'<f4'", "4", format, "quoted text is missing");
  check_dict("'<f4'", "'|O'", unsupported, "element type \"|O\" is not read");
  check_dict("'<f4'", "'<U8'", unsupported, "\"<U8\"");
  check_dict("'<f4'", "'|S4'", unsupported, "\"|S4\"");
  check_dict("'<f4'", "'<c8'", unsupported, "\"<c8\"");
  check_dict("'<f4'", "'<f16'", unsupported, "\"<f16\"");
  check_dict("'<f4'", "'<M8[ns]'", unsupported, "\"<M8[ns]\"");
  check_dict("'<f4'", "[('a', '<f4')]", unsupported, "structured arrays");
  check_dict("(2, 3)", "(-2, 3)", format, "negative dimension");
  check_dict("(2, 3)", "(2, 3", format, "");
  check_dict("(2, 3)", "[2, 3]", format, "the shape is no tuple");
  check_dict("(2, 3)", "(6)", format, "the shape is no tuple");
  check_dict("(2, 3)", "(2 3)", format, "comma is missing in the shape");
  check_dict("(2, 3)", "(2.0, 3)", format, "comma is missing in the shape");
  check_dict("(2, 3)", "(a, 3)", format, "a dimension is no integer");
  check_dict("(2, 3)", "(4294967296, 4294967296)", format, "the shape overflows");
  check_dict("(2, 3)", "(99999999999999999999,)", format, "a dimension overflows");
  check_dict("(2, 3)", "(4611686018427387904,)", format, "data do not have the size");
  check_dict("(2, 3)", "(7,)", format, "data do not have the size");
  check_dict("(2, 3)", "(1, 1, 1, 1, 1, 2, 3)", unsupported, "too many dimensions");
  check_dict("(2, 3)", "(6,)", HEED_OK, NULL);
  check_dict("(2, 3)", "(1,2,1,1,1,3)", HEED_OK, NULL);
}

static void out_of_memory(void **state) {
  (void)state;
  bytes content = {0};
  npy_plan p = base();
  write_npy(&p, &content);
  check_out_of_memory(load_and_free, write_file("memory.npy", content.data, content.size));
  bytes_free(&content);
}

/* ---- layouts of others ----------------------------------------------------------------------------------------------------------- */

static heed_view load_plan(heed_context *context, npy_plan p) {
  bytes content = {0};
  heed_view view;
  write_npy(&p, &content);
  ok(context, heed_array_load(context, write_file("load.npy", content.data, content.size), &view));
  bytes_free(&content);
  return view;
}

static double at(const heed_view *view, int64_t i, int64_t j) {
  int64_t offset = i * view->stride[0] + (view->ndim > 1 ? j * view->stride[1] : 0);
  return hd_element((const char *)view->data + offset * (int64_t)heed_type_bytes(view->type), view->type);
}

static void fortran_and_big_endian(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  npy_plan p = base();
  p.dict = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
  heed_view view = load_plan(context, p);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++) assert_true(at(&view, i, j) == j * 2 + i);
  heed_array_free(context, &view);
  p.dict = "{'descr': '>f8', 'fortran_order': False, 'shape': (2,), }";
  p.data = "\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0";
  p.data_bytes = 16;
  view = load_plan(context, p);
  assert_true(at(&view, 0, 0) == 1 && at(&view, 1, 0) == -2);
  heed_array_free(context, &view);
  p.dict = "{\"descr\": \"<f4\", \"shape\": (), \"fortran_order\": False}"; // any order, either quote, one number
  p.data = &six[5];
  p.data_bytes = 4;
  view = load_plan(context, p);
  assert_true(view.ndim == 1 && view.dim[0] == 1 && at(&view, 0, 0) == 5);
  heed_array_free(context, &view);
  heed_context_free(context);
}

static void widened_integers(void **state) {
  (void)state;
  static const struct {
    const char *descr, *data;
    size_t size;
    heed_type type;
    double first, second;
  } cases[] = {
      {"|i1", "\xff\x05", 1, HEED_I32, -1, 5},
      {"|u1", "\xff\x05", 1, HEED_U8, 255, 5},
      {"<i2", "\xfe\xff\x05\x01", 2, HEED_I32, -2, 261},
      {">i2", "\xff\xfe\x01\x05", 2, HEED_I32, -2, 261},
      {"<u2", "\xfe\xff\x05\x01", 2, HEED_I32, 65534, 261},
      {"<u4", "\xfe\xff\xff\xff\x01\0\0\0", 4, HEED_I64, 4294967294.0, 1},
      {"<u8", "\xfe\xff\xff\xff\0\0\0\0\x01\0\0\0\0\0\0", 8, HEED_I64, 4294967294.0, 1},
      {"|b1", "\x01\x00", 1, HEED_BOOL, 1, 0},
  };
  heed_context *context = test_context(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char dict[96];
    npy_plan p = base();
    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }", cases[i].descr);
    p.dict = dict;
    p.data = cases[i].data;
    p.data_bytes = 2 * cases[i].size;
    heed_view view = load_plan(context, p);
    assert_int_equal(view.type, cases[i].type);
    if (at(&view, 0, 0) != cases[i].first || at(&view, 1, 0) != cases[i].second)
      fail_msg("%s: %g %g", cases[i].descr, at(&view, 0, 0), at(&view, 1, 0));
    heed_array_free(context, &view);
  }
  CASE(HEED_E_FORMAT, "neither 0 nor 1", p.dict = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }"; p.data = "\1\2";
       p.data_bytes = 2);
  CASE(HEED_E_UNSUPPORTED, "beyond the signed range", p.dict = "{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }";
       p.data = "\0\0\0\0\0\0\0\x80"; p.data_bytes = 8);
  heed_context_free(context);
}

/* ---- saving -------------------------------------------------------------------------------------------------------------------- */

static void round_trips(void **state) {
  (void)state;
  static const heed_type types[] = {HEED_F32, HEED_F64, HEED_F16, HEED_BF16, HEED_I64, HEED_I32, HEED_U8, HEED_BOOL};
  heed_context *context = test_context(NULL);
  _Alignas(8) unsigned char memory[5 * 4 * 3 * 8];
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    const size_t size = heed_type_bytes(types[t]);
    for (int i = 0; i < 60; i++) hd_element_store(memory + (size_t)i * size, types[t], types[t] == HEED_BOOL ? i % 2 : i * 1.5);
    // Plain, transposed, and reversed along the last axis.
    heed_view views[3];
    views[0] = heed_view_of(memory, types[t], 3, (int64_t[]){5, 4, 3});
    views[1] = heed_view_swap(views[0], 0, 2);
    views[2] = views[0];
    views[2].data = memory + 2 * size;
    views[2].stride[2] = -1;
    for (int v = 0; v < 3; v++) {
      heed_view back;
      ok(context, heed_array_save(context, in_folder("saved.npy"), &views[v]));
      ok(context, heed_array_load(context, in_folder("saved.npy"), &back));
      assert_int_equal(back.type, types[t] == HEED_BF16 ? HEED_F32 : types[t]);
      assert_int_equal(back.ndim, 3);
      for (int64_t i = 0; i < views[v].dim[0]; i++)
        for (int64_t j = 0; j < views[v].dim[1]; j++)
          for (int64_t k = 0; k < views[v].dim[2]; k++) {
            const int64_t from = i * views[v].stride[0] + j * views[v].stride[1] + k * views[v].stride[2];
            const int64_t to = i * back.stride[0] + j * back.stride[1] + k * back.stride[2];
            assert_true(hd_element((char *)views[v].data + from * (int64_t)size, types[t]) ==
                        hd_element((char *)back.data + to * (int64_t)heed_type_bytes(back.type), back.type));
          }
      heed_array_free(context, &back);
    }
  }
  heed_context_free(context);
}

/* The very bytes that NumPy 2 writes. */
static void bytes_as_numpy_writes(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  bytes expected = {0};
  char got[256];
  float values[6];
  memcpy(values, six, sizeof six);
  npy_plan p = base();
  write_npy(&p, &expected);
  heed_view view = heed_view_of(values, HEED_F32, 2, (int64_t[]){2, 3});
  ok(context, heed_array_save(context, in_folder("numpy.npy"), &view));
  FILE *file = fopen(in_folder("numpy.npy"), "rb");
  assert_non_null(file);
  assert_int_equal(fread(got, 1, sizeof got, file), expected.size);
  fclose(file);
  assert_memory_equal(got, expected.data, expected.size);
  bytes_free(&expected);
  heed_context_free(context);
}

/* Rows that are longer and shorter than the buffer they are packed in, and empty arrays. */
static void large_strided(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  enum { ROWS = 3, COLUMNS = 50000 };
  float *memory = malloc(sizeof(float) * ROWS * COLUMNS);
  for (int i = 0; i < ROWS * COLUMNS; i++) memory[i] = (float)i;
  heed_view view = heed_view_of(memory, HEED_F32, 2, (int64_t[]){ROWS, COLUMNS}), back;
  for (int turn = 0; turn < 2; turn++) {
    if (turn == 0) view.dim[1] = COLUMNS - 1; // rows with a gap
    else view = heed_view_swap(heed_view_of(memory, HEED_F32, 2, (int64_t[]){ROWS, COLUMNS}), 0, 1);
    ok(context, heed_array_save(context, in_folder("large.npy"), &view));
    ok(context, heed_array_load(context, in_folder("large.npy"), &back));
    for (int64_t i = 0; i < view.dim[0]; i++)
      for (int64_t j = 0; j < view.dim[1]; j++)
        if (at(&back, i, j) != at(&view, i, j)) fail_msg("[%d,%d] differs", (int)i, (int)j);
    heed_array_free(context, &back);
  }
  view = heed_view_of(memory, HEED_F32, 3, (int64_t[]){4, 0, 2});
  ok(context, heed_array_save(context, in_folder("empty.npy"), &view));
  ok(context, heed_array_load(context, in_folder("empty.npy"), &back));
  assert_true(back.ndim == 3 && back.dim[0] == 4 && back.dim[1] == 0 && back.dim[2] == 2);
  heed_array_free(context, &back);
  free(memory);
  heed_context_free(context);
}

static void failing_saves(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  float value = 1;
  heed_view view = heed_view_of(&value, HEED_F32, 1, (int64_t[]){1});
  assert_int_equal(heed_array_save(context, in_folder("no/such/folder.npy"), &view), HEED_E_WRITE);
  assert_int_equal(heed_array_save(context, test_folder, &view), HEED_E_WRITE);
  const char *const containers[] = {"x.npz", "x.npz:a", "x.safetensors", "x.gguf", "x.gguf:a"};
  for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
    assert_int_equal(heed_array_save(context, in_folder(containers[i]), &view), HEED_E_UNSUPPORTED);
  assert_int_equal(heed_array_save(context, "/dev/full", &view), HEED_E_WRITE);
  assert_int_equal(heed_array_save(context, NULL, &view), HEED_E_ARGUMENT);
  assert_int_equal(heed_array_load(context, NULL, &view), HEED_E_ARGUMENT);
  assert_int_equal(heed_array_load(context, in_folder("absent.npy"), &view), HEED_E_FILE);
  heed_array_free(context, NULL);
  heed_context_free(context);
}

static heed_status save_strided(heed_context *context, const char *path) {
  float values[6] = {0};
  heed_view view = heed_view_swap(heed_view_of(values, HEED_F32, 2, (int64_t[]){2, 3}), 0, 1);
  return heed_array_save(context, path, &view);
}

/* A save that fails leaves the old file as it was, and nothing beside it. */
static void save_out_of_memory(void **state) {
  (void)state;
  const char *path = write_file("kept.npy", "old", 3);
  heed_context *context;
  char got[4] = "";
  for (int64_t n = 1; n <= 2; n++) {
    meter m = {0};
    context = metered_context(&m);
    m.fail_at = m.calls + n;
    assert_int_equal(save_strided(context, path), HEED_E_MEMORY);
    heed_context_free(context);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, sizeof got, file), 3);
    fclose(file);
    assert_memory_equal(got, "old", 3);
  }
  check_out_of_memory(save_strided, path);
  DIR *folder = opendir(test_folder);
  assert_non_null(folder);
  for (struct dirent *item = readdir(folder); item; item = readdir(folder)) assert_null(strstr(item->d_name, ".part-"));
  closedir(folder);
}

/* ---- npz ------------------------------------------------------------------------------------------------------------------------- */

typedef struct zip_entry {
  const char *name;
  bytes content;    /* as it will be inflated */
  int64_t packed;   /* > 0: declared instead of the true compressed size */
  int64_t size;     /* ≥ 0: declared instead of the true one */
  uint32_t crc_xor; /* spoils the checksum */
} zip_entry;

static void deflate_all(const bytes *content, bytes *out) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
  out->capacity = deflateBound(&z, content->size);
  out->data = malloc(out->capacity);
  z.next_in = content->data;
  z.avail_in = (uInt)content->size;
  z.next_out = out->data;
  z.avail_out = (uInt)out->capacity;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  out->size = z.total_out;
  deflateEnd(&z);
}

/* The fields that local and central headers share, from the version on. */
static void put_zip_fields(bytes *out, const zip_entry *entry, size_t compressed) {
  const uint32_t crc = (uint32_t)crc32(0, entry->content.data, (uInt)entry->content.size) ^ entry->crc_xor;
  put_little(out, 20, 2);
  put_little(out, 0, 2);
  put_little(out, 8, 2); // deflate
  put_little(out, 0, 2);
  put_little(out, 0x21, 2); // 1 January 1980
  put_u32(out, crc);
  put_u32(out, entry->packed ? (uint32_t)entry->packed : (uint32_t)compressed);
  put_u32(out, entry->size >= 0 ? (uint32_t)entry->size : (uint32_t)entry->content.size);
  put_little(out, strlen(entry->name), 2);
  put_little(out, 0, 2);
}

static void write_zip(const zip_entry *entries, int count, bytes *out) {
  bytes directory = {0};
  for (int i = 0; i < count; i++) {
    bytes packed = {0};
    const size_t offset = out->size;
    deflate_all(&entries[i].content, &packed);
    put_u32(out, 0x04034b50);
    put_zip_fields(out, &entries[i], packed.size);
    put_text(out, entries[i].name);
    put(out, packed.data, packed.size);
    put_u32(&directory, 0x02014b50);
    put_little(&directory, 20, 2);
    put_zip_fields(&directory, &entries[i], packed.size);
    put_fill(&directory, 0, 10); // comment, disk, attributes
    put_u32(&directory, (uint32_t)offset);
    put_text(&directory, entries[i].name);
    bytes_free(&packed);
  }
  const size_t start = out->size;
  put(out, directory.data, directory.size);
  put_u32(out, 0x06054b50);
  put_u32(out, 0);
  put_little(out, (uint64_t)count, 2);
  put_little(out, (uint64_t)count, 2);
  put_u32(out, (uint32_t)directory.size);
  put_u32(out, (uint32_t)start);
  put_little(out, 0, 2);
  bytes_free(&directory);
}

static heed_status load_x(heed_context *context, const char *path) {
  char named[300];
  snprintf(named, sizeof named, "%s:x", path);
  return load_and_free(context, named);
}

static void zip_base(zip_entry entries[2]) {
  npy_plan p = base();
  entries[0] = (zip_entry){.name = "x.npy", .size = -1};
  entries[1] = (zip_entry){.name = "y.npy", .size = -1};
  write_npy(&p, &entries[0].content);
  write_npy(&p, &entries[1].content);
}

#define ZIP_CASE(wanted_status, wanted_fragment, ...)                                                                                      \
  do {                                                                                                                                     \
    zip_entry e[2];                                                                                                                        \
    bytes file = {0};                                                                                                                      \
    zip_base(e);                                                                                                                           \
    __VA_ARGS__;                                                                                                                           \
    write_zip(e, 2, &file);                                                                                                                \
    check_file(load_x, write_file("case.npz", file.data, file.size), (demand){.status = wanted_status, .fragment = wanted_fragment});      \
    bytes_free(&file);                                                                                                                     \
    bytes_free(&e[0].content);                                                                                                             \
    bytes_free(&e[1].content);                                                                                                             \
  } while (0)

static void archives(void **state) {
  (void)state;
  ZIP_CASE(HEED_OK, NULL, (void)e);
  ZIP_CASE(HEED_E_FORMAT, "duplicate entry", e[1].name = "x.npy");
  ZIP_CASE(HEED_E_FORMAT, "CRC", e[0].crc_xor = 1);
  ZIP_CASE(HEED_E_ARGUMENT, "holds no array \"x\"", e[0].name = "z.npy");
  // The npy inside is complete within the declared size, or not; either way more or fewer bytes follow than declared.
  ZIP_CASE(HEED_E_FORMAT, "larger than", put_fill(&e[0].content, 7, 40); e[0].size = (int64_t)e[0].content.size - 40);
  ZIP_CASE(HEED_E_FORMAT, "data do not have the size", put_fill(&e[0].content, 7, 1));
  ZIP_CASE(HEED_E_FORMAT, "shorter than", e[0].content.size -= 4; e[0].size = (int64_t)e[0].content.size + 4);
  ZIP_CASE(HEED_E_FORMAT, "", e[0].packed = e[0].size = 1 << 30);
  ZIP_CASE(HEED_E_FORMAT, "", e[1].packed = e[1].size = 1 << 30; e[0].name = "w.npy"; e[1].name = "x.npy");
  ZIP_CASE(HEED_E_FORMAT, "not an npy file", e[0].content.data[0] = 'x');
  ZIP_CASE(HEED_E_FORMAT, "truncated", e[0].content.size = 5);
}

static void spoiled_archives(void **state) {
  (void)state;
  zip_entry e[2];
  bytes file = {0};
  zip_base(e);
  write_zip(e, 2, &file);
  for (size_t size = 0; size < file.size; size += 17)
    check_file(load_x, write_file("short.npz", file.data, size), (demand){.status = HEED_E_FORMAT, .fragment = ""});
  check_file(load_x, write_file("none.npz", "no archive at all", 17), (demand){.status = HEED_E_FORMAT, .fragment = "none.npz: "});
  heed_context *context = test_context(NULL);
  heed_view view;
  assert_int_equal(heed_array_load(context, write_file("two.npz", file.data, file.size), &view), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "holds 2 arrays"));
  heed_context_free(context);
  check_out_of_memory(load_x, write_file("memory.npz", file.data, file.size));
  bytes_free(&file);
  bytes_free(&e[0].content);
  bytes_free(&e[1].content);
}

static void mutations(void **state) {
  (void)state;
  zip_entry e[2];
  bytes file = {0};
  zip_base(e);
  check_mutations(load_and_free, write_file("mutated.npy", e[0].content.data, e[0].content.size), 128, 3000);
  write_zip(e, 2, &file);
  check_mutations(load_x, write_file("mutated.npz", file.data, file.size), (int64_t)file.size, 3000);
  bytes_free(&file);
  bytes_free(&e[0].content);
  bytes_free(&e[1].content);
}

/* 1000:1: sixteen million zeros. */
static void bomb(void **state) {
  (void)state;
  enum { ZEROS = 16000000 };
  npy_plan p = base();
  p.dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (16000000,), }";
  p.data_bytes = 0;
  ZIP_CASE(HEED_E_FORMAT, "inflates too much", e[0].content.size = 0; write_npy(&p, &e[0].content);
           e[0].content.data = realloc(e[0].content.data, e[0].content.size + ZEROS);
           memset(e[0].content.data + e[0].content.size, 0, ZEROS); e[0].content.size += ZEROS);
}

/* ---- other containers ------------------------------------------------------------------------------------------------------------ */

static void from_safetensors_and_gguf(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_view view;
  ok(context, heed_array_load(context, HEED_TEST_DATA "/expected/layers/sdpa-plain.safetensors:out", &view));
  assert_int_equal(view.type, HEED_F64);
  assert_int_equal((uintptr_t)view.data % 64, 0);
  heed_array_free(context, &view);
  ok(context, heed_array_load(context, HEED_TEST_DATA "/expected/quants.safetensors:Q4_0.blocks", &view));
  assert_true(view.type == HEED_U8 && view.ndim == 2 && view.dim[0] == 8 && view.dim[1] == 72);
  heed_array_free(context, &view);
  ok(context, heed_array_load(context, HEED_TEST_DATA "/models/stories260k/stories260k-f16.gguf:blk.0.attn_q.weight", &view));
  assert_true(view.type == HEED_F16 && view.dim[0] == 64 && view.dim[1] == 64);
  heed_array_free(context, &view);
  assert_int_equal(heed_array_load(context, HEED_TEST_DATA "/models/stories260k/stories260k-q8_0.gguf:blk.0.attn_q.weight", &view),
                   HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "Q8_0"));
  assert_int_equal(heed_array_load(context, HEED_TEST_DATA "/expected/quants.safetensors:absent", &view), HEED_E_ARGUMENT);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(malformed_frames),
      cmocka_unit_test(malformed_dicts),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(fortran_and_big_endian),
      cmocka_unit_test(widened_integers),
      cmocka_unit_test(round_trips),
      cmocka_unit_test(bytes_as_numpy_writes),
      cmocka_unit_test(large_strided),
      cmocka_unit_test(failing_saves),
      cmocka_unit_test(save_out_of_memory),
      cmocka_unit_test(archives),
      cmocka_unit_test(spoiled_archives),
      cmocka_unit_test(mutations),
      cmocka_unit_test(bomb),
      cmocka_unit_test(from_safetensors_and_gguf),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
