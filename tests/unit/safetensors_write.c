/* safetensors_write: what is written reads back bit for bit, whatever type and strides; what no reader would take is refused. */
#include "malformed.h"

#include "../../include/heed/model.h"
#include "../../src/io/arrays.h"
#include "../../src/io/tensors.h"

static heed_view of(void *data, heed_type type, int64_t rows, int64_t columns) {
  return heed_view_of(data, type, 2, (int64_t[]){rows, columns});
}

static void every_type_reads_back(void **state) {
  enum { ROWS = 3, COLUMNS = 7 };
  static const heed_type types[] = {HEED_F32, HEED_F64, HEED_F16, HEED_BF16, HEED_I64, HEED_I32, HEED_U8, HEED_BOOL};
  static const char *const names[] = {"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"};
  static uint64_t data[8][ROWS * COLUMNS], back[8][ROWS * COLUMNS];
  hd_array out[8], in[8];
  (void)state;
  heed_context *context = test_context(NULL);
  for (int t = 0; t < 8; t++) {
    // Any bytes will do but for booleans; NaN payloads must come through too.
    for (int i = 0; i < ROWS * COLUMNS; i++)
      data[t][i] = types[t] == HEED_BOOL ? 0x0001010001000101u : 0x9E3779B97F4A7C15u * (uint64_t)(i + 31 * t + 1);
    out[t] = (hd_array){.name = names[t], .view = of(data[t], types[t], ROWS, COLUMNS)};
    in[t] = (hd_array){.name = names[t], .view = of(back[t], types[t], ROWS, COLUMNS)};
  }
  const char *path = in_folder("types.safetensors");
  ok(context, hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 8}));
  ok(context, hd_safetensors_fill(context, path, in, 8));
  for (int t = 0; t < 8; t++) assert_memory_equal(back[t], data[t], ROWS * COLUMNS * heed_type_bytes(types[t]));
  heed_context_free(context);
}

/* Stored row-major: a transposed, a reversed and a broadcast view, larger than the buffer they go through. */
static void strides_are_undone(void **state) {
  enum { ROWS = 300, COLUMNS = 170 };
  static float data[ROWS * COLUMNS], back[3][ROWS * COLUMNS];
  (void)state;
  heed_context *context = test_context(NULL);
  for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)i;
  heed_view turned = heed_view_swap(of(data, HEED_F32, ROWS, COLUMNS), 0, 1), reversed = of(data, HEED_F32, ROWS, COLUMNS),
            same = of(data, HEED_F32, ROWS, COLUMNS);
  reversed.data = data + (ROWS - 1) * COLUMNS;
  reversed.stride[0] = -COLUMNS;
  same.stride[0] = 0;
  hd_array out[] = {{.name = "turned", .view = turned}, {.name = "reversed", .view = reversed}, {.name = "same", .view = same}};
  hd_array in[] = {{.name = "same", .view = of(back[2], HEED_F32, ROWS, COLUMNS)}, // in any order
                   {.name = "turned", .view = of(back[0], HEED_F32, COLUMNS, ROWS)},
                   {.name = "reversed", .view = of(back[1], HEED_F32, ROWS, COLUMNS)}};
  const char *path = in_folder("strides.safetensors");
  ok(context, hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 3}));
  ok(context, hd_safetensors_fill(context, path, in, 3));
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      assert_true(back[0][c * ROWS + r] == data[r * COLUMNS + c]);
      assert_true(back[1][r * COLUMNS + c] == data[(ROWS - 1 - r) * COLUMNS + c]);
      assert_true(back[2][r * COLUMNS + c] == data[c]);
    }
  heed_context_free(context);
}

enum { ROWS = 5, COLUMNS = 7 };

/* Turns the numbers of a matrix round, in place of something large that is unpacked. */
static void bring(heed_context *context, const void *from, float *out) {
  (void)context;
  for (int i = 0; i < ROWS * COLUMNS; i++) out[i] = -((const float *)from)[i];
}

/* An array that is made when it is written, row-major and turned. */
static void what_is_brought(void **state) {
  static float data[ROWS * COLUMNS], back[2][ROWS * COLUMNS];
  (void)state;
  heed_context *context = test_context(NULL);
  for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)i;
  const heed_view view = of(data, HEED_F32, ROWS, COLUMNS);
  hd_array out[] = {{.name = "as it is", .view = view, .bring = bring},
                    {.name = "turned", .view = heed_view_swap(view, 0, 1), .bring = bring}};
  hd_array in[] = {{.name = "as it is", .view = of(back[0], HEED_F32, ROWS, COLUMNS)},
                   {.name = "turned", .view = of(back[1], HEED_F32, COLUMNS, ROWS)}};
  const char *path = in_folder("brought.safetensors");
  ok(context, hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 2}));
  ok(context, hd_safetensors_fill(context, path, in, 2));
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      assert_true(back[0][r * COLUMNS + c] == -data[r * COLUMNS + c]);
      assert_true(back[1][c * ROWS + r] == -data[r * COLUMNS + c]);
    }
  heed_context_free(context);
}

static void the_file_has_the_form_of_the_reference(void **state) {
  static float data[6] = {1, 2, 3, 4, 5, 6};
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"a\\\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[24,24]}}";
  (void)state;
  heed_context *context = test_context(NULL);
  json_t *metadata = json_pack("{s:s}", "format", "pt");
  hd_array out[] = {{.name = "a\"b", .view = of(data, HEED_F32, 2, 3)}, {.name = "none", .view = of(NULL, HEED_F32, 0, 3)}};
  const char *path = in_folder("form.safetensors");
  ok(context, hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 2, .metadata = metadata}));
  json_decref(metadata);
  char *text;
  int64_t size;
  ok(context, hd_file_load(context, path, 1 << 20, &text, &size));
  const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
  assert_int_equal(size, 8 + padded + sizeof data);
  assert_int_equal(*(uint64_t *)text, padded);
  assert_memory_equal(text + 8, header, sizeof header - 1);
  for (size_t i = sizeof header - 1; i < padded; i++) assert_true(text[8 + i] == ' ');
  assert_memory_equal(text + 8 + padded, data, sizeof data);
  hd_release(context, text, size + 1, 1);
  // The public door reads it too.
  char named[300];
  heed_view view;
  snprintf(named, sizeof named, "%s:a\"b", path);
  ok(context, heed_array_load(context, named, &view));
  assert_memory_equal(view.data, data, sizeof data);
  heed_array_free(context, &view);
  heed_context_free(context);
}

static void what_no_reader_takes_is_refused(void **state) {
  static float data[4];
  char longest[1026];
  (void)state;
  heed_context *context = test_context(NULL);
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  const char *const names[] = {"__metadata__", "a\nb", "\xFF", longest, "x"};
  for (int i = 0; i < 5; i++) {
    hd_array out[] = {{.name = "x", .view = of(data, HEED_F32, 2, 2)}, {.name = names[i], .view = of(data, HEED_F32, 2, 2)}};
    const char *path = in_folder("refused.safetensors");
    assert_int_equal(hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 2}), HEED_E_ARGUMENT);
    assert_true(strncmp(heed_error(context), path, strlen(path)) == 0);
    assert_false(hd_file_exists(path));
  }
  heed_context_free(context);
}

static void only_what_is_asked_for_is_filled(void **state) {
  static float data[6], back[6];
  static double wide[6];
  (void)state;
  heed_context *context = test_context(NULL);
  hd_array out[] = {{.name = "x", .view = of(data, HEED_F32, 2, 3)}, {.name = "y", .view = of(data, HEED_F32, 2, 3)}};
  const char *path = in_folder("two.safetensors");
  ok(context, hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 2}));
  const struct {
    hd_array in[2];
    int64_t count;
    const char *fragment;
  } cases[] = {
      {{{.name = "x", .view = of(back, HEED_F32, 2, 3)}, {.name = "z", .view = of(back, HEED_F32, 2, 3)}}, 2, "\"z\" is missing"},
      {{{.name = "x", .view = of(back, HEED_F32, 3, 2)}}, 1, "another shape or type (got F32 [2,3], allowed F32 [3,2])"},
      {{{.name = "x", .view = of(wide, HEED_F64, 2, 3)}}, 1, "got F32 [2,3], allowed F64 [2,3]"},
      {{{.name = "x", .view = of(back, HEED_F32, 2, 3)}}, 1, "other tensors too (got 2, allowed 1)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hd_safetensors_fill(context, path, cases[i].in, cases[i].count), HEED_E_FORMAT);
    if (!strstr(heed_error(context), cases[i].fragment)) fail_msg("%s", heed_error(context));
  }
  heed_context_free(context);
}

static heed_status write_and_read(heed_context *context, const char *path) {
  float data[6] = {0}, back[6];
  hd_array out[] = {{.name = "x", .view = heed_view_swap(of(data, HEED_F32, 2, 3), 0, 1)}},
           in[] = {{.name = "x", .view = of(back, HEED_F32, 3, 2)}};
  HD_TRY(hd_safetensors_save(context, path, &(hd_arrays){.array = out, .count = 1}));
  return hd_safetensors_fill(context, path, in, 1);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
  (void)state;
  check_out_of_memory(write_and_read, in_folder("memory.safetensors"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_reads_back),
      cmocka_unit_test(strides_are_undone),
      cmocka_unit_test(what_is_brought),
      cmocka_unit_test(the_file_has_the_form_of_the_reference),
      cmocka_unit_test(what_no_reader_takes_is_refused),
      cmocka_unit_test(only_what_is_asked_for_is_filled),
      cmocka_unit_test(memory_that_runs_out_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
