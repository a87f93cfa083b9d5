/* malformed_safetensors: every safetensors file that must be refused, each the valid base below plus one edit, and the odd ones that
 * must be accepted. */
#include "malformed.h"

#include "../../src/io/tensors.h"

static const char base[] = "{\"__metadata__\":{\"format\":\"pt\"},\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                           "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[24,28]}}";
enum { BASE_DATA = 28 };

static heed_status open_and_close(heed_context *context, const char *path) {
  hd_tensors *tensors;
  heed_status status = hd_tensors_open(context, path, &tensors);
  hd_tensors_close(tensors);
  return status;
}

/* Also reads every tensor's bytes. */
static heed_status open_and_read(heed_context *context, const char *path) {
  hd_tensors *tensors;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < hd_tensors_count(tensors) && status == HEED_OK; i++) {
    const hd_tensor *tensor = hd_tensors_at(tensors, i);
    char *memory = NULL;
    status = hd_allocate(context, "a tensor", tensor->bytes, 1, &memory);
    if (status == HEED_OK) status = hd_tensors_read(context, tensors, tensor, memory);
    hd_release(context, memory, tensor->bytes, 1);
  }
  hd_tensors_close(tensors);
  return status;
}

static const char *write_safetensors(const char *name, const char *header, size_t header_bytes, uint64_t length, size_t data_bytes) {
  bytes content = {0};
  put_u64(&content, length);
  put(&content, header, header_bytes);
  put_fill(&content, 7, data_bytes);
  const char *path = write_file(name, content.data, content.size);
  bytes_free(&content);
  return path;
}

static void check_header(const char *header, size_t data_bytes, demand wanted) {
  const size_t size = strlen(header);
  check_file(open_and_read, write_safetensors("case.safetensors", header, size, size, data_bytes), wanted);
}

static void check_edit(const char *from, const char *to, heed_status status, const char *fragment) {
  char *header = edited(base, from, to);
  check_header(header, BASE_DATA, (demand){.status = status, .fragment = fragment});
  free(header);
}

static void refused(const char *from, const char *to, const char *fragment) { check_edit(from, to, HEED_E_FORMAT, fragment); }

static void frames(void **state) {
  (void)state;
  const size_t size = sizeof base - 1;
  const demand truncated = {.status = HEED_E_FORMAT, .fragment = "truncated"};
  const demand bad_length = {.status = HEED_E_FORMAT, .fragment = "bad header length"};
  check_header(base, BASE_DATA, (demand){.status = HEED_OK});
  check_file(open_and_close, write_file("empty.safetensors", "", 0), truncated);
  check_file(open_and_close, write_file("seven.safetensors", "\2\0\0\0\0\0\0", 7), truncated);
  check_file(open_and_close, write_safetensors("a.safetensors", base, size, UINT64_MAX, BASE_DATA), bad_length);
  check_file(open_and_close, write_safetensors("a.safetensors", base, size, UINT64_MAX - 7, BASE_DATA), bad_length);
  check_file(open_and_close, write_safetensors("a.safetensors", base, size, size + BASE_DATA + 1, BASE_DATA), bad_length);
  check_file(open_and_close, write_safetensors("a.safetensors", base, size, 0, BASE_DATA), bad_length);
  check_header(base, BASE_DATA - 2, (demand){.status = HEED_E_FORMAT, .fragment = "outside of the data"});
  check_header(base, BASE_DATA + 1, (demand){.status = HEED_E_FORMAT, .fragment = "data that no tensor owns"});
  check_header("{}", 0, (demand){.status = HEED_OK});
}

/* A sparse file is as large as it says without taking space. */
static void header_beyond_the_limit(void **state) {
  (void)state;
  const char *path = write_safetensors("large.safetensors", base, sizeof base - 1, 100000001, BASE_DATA);
  assert_int_equal(truncate(path, 200000000), 0);
  check_file(open_and_close, path, (demand){.status = HEED_E_FORMAT, .fragment = "bad header length (byte 0, got 100000001"});
}

static void texts_that_are_no_header(void **state) {
  (void)state;
  static const char *const headers[] = {"{", "\"x\"", "1 ", "{}}", "{\"x\":}", "nul", "{\"x\":NaN}", "{'x':1}"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    char padded[16];
    snprintf(padded, sizeof padded, "%-4s", headers[i]);
    check_header(padded, 0, (demand){.status = HEED_E_FORMAT, .fragment = "header: not valid JSON"});
  }
  check_header("[]", 0, (demand){.status = HEED_E_FORMAT, .fragment = "must be an object"});
  check_header("\xef\xbb\xbf{}", 0, (demand){.status = HEED_E_FORMAT, .fragment = "byte-order mark"});
  check_file(open_and_close, write_safetensors("a.safetensors", "{\0}\0", 4, 4, 0),
             (demand){.status = HEED_E_FORMAT, .fragment = "UTF-16"});
  refused("\"pt\"", "\"p\xff\"", "not valid JSON");
  refused("\"pt\"", "\"\xc0\xaf\"", "not valid JSON");
  char deep[10001];
  memset(deep, '[', 10000);
  deep[10000] = 0;
  check_header(deep, 0, (demand){.status = HEED_E_FORMAT, .fragment = "nested too deep"});
  char *nested = edited(base, "[2,3]", deep);
  check_header(nested, BASE_DATA, (demand){.status = HEED_E_FORMAT, .fragment = "nested too deep"});
  free(nested);
}

static void keys(void **state) {
  (void)state;
  refused("\"y\"", "\"x\"", "duplicate object key");
  refused("\"dtype\":\"U8\"", "\"dtype\":\"U8\",\"dtype\":\"U8\"", "duplicate object key");
  refused("\"dtype\":\"U8\",", "", "y.dtype: must be a text (got nothing)");
  refused("\"shape\":[4],", "", "y.shape: must be an array (got nothing)");
  refused(",\"data_offsets\":[24,28]", "", "y.data_offsets: must be an array (got nothing)");
  refused("\"U8\"", "\"U9\"", "y.dtype: unknown type (got \"U9\")");
  refused("\"U8\"", "8", "y.dtype: must be a text (got 8)");
  refused("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[24,28]}", "7", "tensor \"y\" is not described by an object");
  refused("\"pt\"", "1", "__metadata__.format is not a text");
  refused("{\"format\":\"pt\"}", "[]", "__metadata__ is not an object");
}

static void names(void **state) {
  (void)state;
  refused("\"y\"", "\"a\\u0000b\"", "not valid JSON");
  refused("\"y\"", "\"\\ud800\"", "not valid JSON");
  refused("\"y\"", "\"a\nb\"", "not valid JSON");
  refused("\"y\"", "\"a\\u001b[31m\"", "tensor name with a control character (got \"a\\x1b[31m\")");
  char *name = malloc((1 << 20) + 3);
  memset(name, 'n', (1 << 20) + 2);
  name[0] = name[(1 << 20) + 1] = '"';
  name[(1 << 20) + 2] = 0;
  refused("\"y\"", name, "tensor name too long");
  free(name);
  check_edit("\"y\"", "\"\\u00e9\\ud83d\\ude00\"", HEED_OK, NULL);
}

static void shapes(void **state) {
  (void)state;
  const char *fragment = "dimensions must be integers";
  refused("[2,3]", "[2,-3]", fragment);
  refused("[2,3]", "[2,1.5]", fragment);
  refused("[2,3]", "[2,\"3\"]", fragment);
  refused("[2,3]", "[2,3e0]", fragment);
  refused("[4]", "[1e3]", fragment);
  refused("[2,3]", "[2,03]", "not valid JSON");
  refused("[2,3]", "{}", "x.shape: must be an array");
  refused("[2,3]", "[4294967296,4294967296]", "overflows");
  refused("[2,3]", "[2305843009213693952,3]", "below 2^60");
  refused("[2,3]", "[99999999999999999999,3]", "not valid JSON");
  refused("[2,3]", "[2,4]", "do not match the shape");
  check_edit("[2,3]", "[1,1,1,1,1,2,3]", HEED_E_UNSUPPORTED, "too many dimensions");
  check_edit("[2,3]", "[1,1,1,1,2,3]", HEED_OK, NULL);
}

static void offsets(void **state) {
  (void)state;
  refused("[24,28]", "[24,29]", "outside of the data");
  refused("[24,28]", "[28,24]", "outside of the data");
  refused("[24,28]", "[-4,0]", "outside of the data");
  refused("[24,28]", "[24.0,28.0]", "must be two integers");
  refused("[24,28]", "[24]", "must be two integers");
  refused("[24,28]", "[24,28,32]", "must be two integers");
  refused("[24,28]", "[20,24]", "overlap");
  refused("[0,24]", "[4,28]", "hole");
  refused("\"shape\":[4],\"data_offsets\":[24,28]", "\"shape\":[3],\"data_offsets\":[24,27]", "data that no tensor owns");
  refused("\"shape\":[4],\"data_offsets\":[24,28]", "\"shape\":[3],\"data_offsets\":[25,28]", "hole");
}

static void accepted(void **state) {
  (void)state;
  check_edit("{\"__metadata__\"", "  \n {\"__metadata__\"", HEED_OK, NULL);
  check_edit("[24,28]}}", "[24,28]}}   \n", HEED_OK, NULL);
  check_edit("\"shape\":[4],", "\"shape\":[4],\"unknown\":{},", HEED_OK, NULL);
  check_edit("[24,28]}}", "[24,28]},\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[24,24]}}", HEED_OK, NULL);
  check_edit("[24,28]}}", "[24,28]},\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[28,28]}}", HEED_OK, NULL);
  refused("[24,28]}}", "[24,28]},\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[12,12]}}", "overlap");
  check_edit("\"dtype\":\"U8\",\"shape\":[4]", "\"dtype\":\"F32\",\"shape\":[]", HEED_OK, NULL);
  // Any order of tensors.
  check_header(
      "{\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[2,10]},\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}",
      10, (demand){.status = HEED_OK});
}

static void unsupported_types(void **state) {
  (void)state;
  static const char *const types[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\"", types[i]);
    check_edit("\"U8\"", quoted, HEED_E_UNSUPPORTED, types[i]);
  }
  check_edit("\"U8\",\"shape\":[4]", "\"F4\",\"shape\":[8]", HEED_E_UNSUPPORTED, "F4");
  refused("\"U8\",\"shape\":[4]", "\"F4\",\"shape\":[9]", "whole number of bytes");
}

/* A hundred thousand tensors over the same bytes. */
static void many_over_the_same_bytes(void **state) {
  (void)state;
  bytes header = {0};
  put_text(&header, "{");
  for (int i = 0; i < 100000; i++) {
    char entry[96];
    snprintf(entry, sizeof entry, "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", i ? "," : "", i);
    put_text(&header, entry);
  }
  put_text(&header, "}");
  put(&header, "", 1);
  check_header((const char *)header.data, 4, (demand){.status = HEED_E_FORMAT, .fragment = "overlap", .seconds = 2});
  bytes_free(&header);
}

/* Values that would take far more memory than the text are refused before they are built. */
static void costly_header(void **state) {
  (void)state;
  bytes header = {0};
  put_text(&header, "{\"__metadata__\":[");
  for (int i = 0; i < 100000; i++) put_text(&header, i ? ",{}" : "{}");
  put_text(&header, "]}");
  put(&header, "", 1);
  check_header((const char *)header.data, 0, (demand){.status = HEED_E_FORMAT, .fragment = "too many values for its size"});
  bytes_free(&header);
}

static void shrunk_after_opening(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const size_t size = sizeof base - 1;
  const char *path = write_safetensors("shrinks.safetensors", base, size, size, BASE_DATA);
  hd_tensors *tensors;
  char memory[32];
  ok(context, hd_tensors_open(context, path, &tensors));
  assert_int_equal(truncate(path, (off_t)(8 + size + BASE_DATA - 2)), 0);
  ok(context, hd_tensors_read(context, tensors, hd_tensors_find(tensors, "x"), memory));
  assert_int_equal(hd_tensors_read(context, tensors, hd_tensors_find(tensors, "y"), memory), HEED_E_FORMAT);
  assert_non_null(strstr(heed_error(context), "shrank"));
  hd_tensors_close(tensors);
  heed_context_free(context);
}

static void out_of_memory(void **state) {
  (void)state;
  const size_t size = sizeof base - 1;
  check_out_of_memory(open_and_read, write_safetensors("memory.safetensors", base, size, size, BASE_DATA));
}

static void mutations(void **state) {
  (void)state;
  const size_t size = sizeof base - 1;
  check_mutations(open_and_read, write_safetensors("mutated.safetensors", base, size, size, BASE_DATA), (int64_t)size + 8, 3000);
}

/* ---- shards ----------------------------------------------------------------------------------------------------------------- */

static const char shard_a[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
static const char shard_b[] =
    "{\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}";
static const char index_base[] =
    "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"b.safetensors\"}}";

static void check_index(const char *from, const char *to, heed_status status, const char *fragment) {
  char *index = edited(index_base, from, to);
  check_file(open_and_read, write_file("model.safetensors.index.json", index, strlen(index)),
             (demand){.status = status, .fragment = fragment});
  free(index);
}

static void shards(void **state) {
  (void)state;
  write_safetensors("a.safetensors", shard_a, sizeof shard_a - 1, sizeof shard_a - 1, 2);
  write_safetensors("b.safetensors", shard_b, sizeof shard_b - 1, sizeof shard_b - 1, 4);
  check_index("6", "6", HEED_OK, NULL);
  check_index("\"x\":\"a.s", "\"x\":\"c.s", HEED_E_FILE, "c.safetensors: No such file");
  check_index("\"x\":\"a.s", "\"x\":\"../a.s", HEED_E_FORMAT, "must name a file in the same directory");
  check_index("\"x\":\"a.safetensors\"", "\"x\":\"\"", HEED_E_FORMAT, "must name a file in the same directory");
  check_index("\"x\":\"a.safetensors\"", "\"x\":1", HEED_E_FORMAT, "must name a file in the same directory");
  check_index("\"x\":", "\"w\":\"a.safetensors\",\"x\":", HEED_E_FORMAT, "names tensors that its files do not hold");
  check_index("\"x\":\"a.s", "\"x\":\"b.s", HEED_E_FORMAT, "names tensors that its files do not hold");
  check_index("\"x\":", "\"y\":\"a.safetensors\",\"x\":", HEED_E_FORMAT, "duplicate object key");
  check_index("\"weight_map\"", "\"weight_mop\"", HEED_E_FORMAT, "weight_map: must be an object (got nothing)");
}

static void directories(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_tensors *tensors;
  assert_int_equal(hd_tensors_open(context, test_folder, &tensors), HEED_E_FILE);
  assert_null(tensors);
  check_index("6", "6", HEED_OK, NULL);
  write_file("config.json", "{\"model_type\":\"llama\"}", 22);
  ok(context, hd_tensors_open(context, test_folder, &tensors));
  assert_int_equal(hd_tensors_count(tensors), 3);
  assert_string_equal(hd_tensors_format(tensors), "Hugging Face directory");
  assert_string_equal(json_string_value(json_object_get(hd_tensors_config(tensors), "model_type")), "llama");
  hd_tensors_close(tensors);
  unlink(in_folder("model.safetensors.index.json"));
  assert_int_equal(hd_tensors_open(context, test_folder, &tensors), HEED_E_FILE);
  write_file("pytorch_model.bin", "x", 1);
  assert_int_equal(hd_tensors_open(context, test_folder, &tensors), HEED_E_UNSUPPORTED);
  assert_int_equal(hd_tensors_open(context, in_folder("pytorch_model.bin"), &tensors), HEED_E_FORMAT);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frames),
      cmocka_unit_test(header_beyond_the_limit),
      cmocka_unit_test(texts_that_are_no_header),
      cmocka_unit_test(keys),
      cmocka_unit_test(names),
      cmocka_unit_test(shapes),
      cmocka_unit_test(offsets),
      cmocka_unit_test(accepted),
      cmocka_unit_test(unsupported_types),
      cmocka_unit_test(many_over_the_same_bytes),
      cmocka_unit_test(costly_header),
      cmocka_unit_test(shrunk_after_opening),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(mutations),
      cmocka_unit_test(shards),
      cmocka_unit_test(directories),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
