/* matrix: what stored numbers mean, products with packed matrices, operations along rows: the same bytes on every level, with every input against a guard page. */
#include "test.h"

#include "guard_pages.h"
#include "stored.h"

#include "../../src/base/file.h"
#include "../../src/kern/kernels.h"
#include "../../src/kern/matrix.h"

#include <math.h>
#include <stdio.h>

static uint32_t seed;
static float random_float(void) { return stored_float(&seed); }

static float *guarded_floats(int64_t n) {
  float *out = before_guard((size_t)n * sizeof *out);
  for (int64_t i = 0; i < n; i++) out[i] = random_float();
  return out;
}

/* ---- stored numbers ------------------------------------------------------------------------------------------------------- */

/* The bytes of one array of a safetensors file, found by its name. */
static const char *array_of(const char *file, const char *name, int64_t *bytes) {
  uint64_t header;
  char key[64];
  long long begin, end;
  memcpy(&header, file, sizeof header);
  snprintf(key, sizeof key, "\"%s\"", name);
  const char *entry = strstr(file + 8, key);
  if (!entry) return NULL;
  assert_int_equal(sscanf(strstr(entry, "data_offsets"), "data_offsets\":[%lld,%lld", &begin, &end), 2);
  *bytes = end - begin;
  return file + 8 + header + begin;
}

static void stored_numbers_mean_what_the_format_says(void **state) {
  heed_context *context = test_context(NULL);
  (void)state;
  static char file[1 << 20];
  FILE *f = fopen(HEED_TEST_DATA "/expected/quants.safetensors", "rb");
  assert_non_null(f);
  size_t size = fread(file, 1, sizeof file - 1, f);
  fclose(f);
  assert_true(size > 8 && size < sizeof file - 1);
  for (int storage = 0; storage < HD_STORAGE_COUNT; storage++) {
    if (storage == HD_F32 || storage == HD_F64) continue;
    char name[32];
    int64_t block_bytes, value_bytes;
    snprintf(name, sizeof name, "%s.blocks", hd_storage_name((hd_storage)storage));
    const char *blocks = array_of(file, name, &block_bytes);
    snprintf(name, sizeof name, "%s.values", hd_storage_name((hd_storage)storage));
    const char *values = array_of(file, name, &value_bytes);
    if (!blocks || !values) fail_msg("%s is missing", name);
    int64_t n = value_bytes / 4;
    assert_int_equal(n % hd_storage_block((hd_storage)storage), 0);
    assert_int_equal(n / hd_storage_block((hd_storage)storage) * hd_storage_bytes((hd_storage)storage), block_bytes);
    float *got = guarded_floats(n), *want = guarded_floats(n);
    memcpy(want, values, (size_t)value_bytes);
    hd_dequantise((hd_storage)storage, blocks, n, got);
    for (int64_t i = 0; i < n; i++)
      if (!(fabsf(got[i] - want[i]) <= nextafterf(fabsf(want[i]), INFINITY) - fabsf(want[i])))
        fail_msg("%s[%lld]: %.9g, expected %.9g", name, (long long)i, got[i], want[i]);
    before_guard_free(got, (size_t)value_bytes);
    before_guard_free(want, (size_t)value_bytes);
  }
  heed_context_free(context);
}

/* ---- products -------------------------------------------------------------------------------------------------------------- */

/* Random rows of a storage type with halves that are finite and not tiny. */
static unsigned char *random_rows(hd_storage storage, int64_t elements, int64_t *bytes) {
  *bytes = elements / hd_storage_block(storage) * hd_storage_bytes(storage);
  unsigned char *rows = before_guard((size_t)*bytes);
  stored_blocks(&seed, storage, elements, rows);
  return rows;
}

struct shape {
  int64_t rows, outputs, inputs; /* inputs in blocks of the type, or numbers of a plain type */
};

/* Every row of the product equals the formula to the last bit, computed together, alone, on every level and on one and three threads. */
static void check_product(hd_storage storage, struct shape shape) {
  int64_t inputs = shape.inputs * hd_storage_block(storage), bytes, x_stride = inputs + 3, y_stride = shape.outputs + 5;
  unsigned char *stored = random_rows(storage, shape.outputs * inputs, &bytes);
  int64_t x_count = (shape.rows - 1) * x_stride + inputs, y_count = (shape.rows - 1) * y_stride + shape.outputs;
  float *x = guarded_floats(x_count), *bias = guarded_floats(shape.outputs), *y = guarded_floats(y_count), *row = guarded_floats(inputs);
  float *w = guarded_floats(shape.outputs * inputs), *want = guarded_floats(shape.rows * shape.outputs);
  float *turned = guarded_floats(shape.rows * inputs), *back = guarded_floats(shape.rows * inputs),
        *begin = guarded_floats(shape.rows * inputs);
  hd_dequantise(storage, stored, shape.outputs * inputs, w);
  for (int64_t r = 0; r < shape.rows; r++)
    for (int64_t o = 0; o < shape.outputs; o++) {
      float sum = 0;
      for (int64_t i = 0; i < inputs; i++) sum = fmaf(x[r * x_stride + i], w[o * inputs + i], sum);
      want[r * shape.outputs + o] = sum + bias[o];
    }
  for (int64_t r = 0; r < shape.rows; r++) // the other way round, of the rows of want, from what is there
    for (int64_t i = 0; i < inputs; i++) {
      float sum = begin[r * inputs + i];
      for (int64_t o = 0; o < shape.outputs; o++) sum = fmaf(want[r * shape.outputs + o], w[o * inputs + i], sum);
      turned[r * inputs + i] = sum;
    }
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    for (int threads = 1; threads <= 3; threads += 2) {
      heed_context *context = level_context(level, threads);
      if (!context) continue;
      hd_arena arena;
      hd_matrix matrix;
      hd_arena_init(&arena, context);
      ok(context, hd_matrix_pack(context, &arena, storage, shape.outputs, inputs, stored, &matrix));
      ok(context, hd_matrix_product(context, &matrix, x, shape.rows, x_stride, bias, y, y_stride));
      for (int64_t r = 0; r < shape.rows; r++) assert_memory_equal(y + r * y_stride, want + r * shape.outputs, (size_t)shape.outputs * 4);
      for (int64_t r = 0; r < shape.rows; r += 3) {
        float *alone = y + y_count - shape.outputs;
        ok(context, hd_matrix_product(context, &matrix, x + r * x_stride, 1, x_stride, bias, alone, y_stride));
        assert_memory_equal(alone, want + r * shape.outputs, (size_t)shape.outputs * 4);
      }
      memcpy(back, begin, (size_t)(shape.rows * inputs) * 4);
      ok(context, hd_matrix_product_turned(context, &matrix, want, shape.rows, shape.outputs, true, back, inputs));
      assert_memory_equal(back, turned, (size_t)(shape.rows * inputs) * 4);
      for (int64_t o = 0; o < shape.outputs; o += 5) {
        hd_matrix_row(context, &matrix, o, row);
        assert_memory_equal(row, w + o * inputs, (size_t)inputs * 4);
      }
      hd_arena_free(&arena);
      heed_context_free(context);
    }
  before_guard_free(stored, (size_t)bytes);
  before_guard_free(x, (size_t)x_count * 4);
  before_guard_free(y, (size_t)y_count * 4);
  before_guard_free(bias, (size_t)shape.outputs * 4);
  before_guard_free(row, (size_t)inputs * 4);
  before_guard_free(w, (size_t)(shape.outputs * inputs) * 4);
  before_guard_free(want, (size_t)(shape.rows * shape.outputs) * 4);
  before_guard_free(turned, (size_t)(shape.rows * inputs) * 4);
  before_guard_free(back, (size_t)(shape.rows * inputs) * 4);
  before_guard_free(begin, (size_t)(shape.rows * inputs) * 4);
}

static void products_have_the_bits_of_the_formula(void **state) {
  (void)state;
  seed = 1;
  for (int storage = 0; storage < HD_STORAGE_COUNT; storage++) {
    int64_t block = hd_storage_block((hd_storage)storage);
    if (block == 1) {
      const struct shape shapes[] = {{1, 1, 1}, {7, 65, 203}, {13, 50, 97}, {6, 64, 96}, {100, 33, 5}};
      for (int i = 0; i < HD_COUNT(shapes); i++) check_product((hd_storage)storage, shapes[i]);
    } else {
      check_product((hd_storage)storage, (struct shape){1, 1, 1});
      check_product((hd_storage)storage, (struct shape){11, 65 + storage, block == 32 ? 7 : 2});
      check_product((hd_storage)storage, (struct shape){3, 48, block == 32 ? 3 : 1});
    }
  }
}

static void packing_checks_its_shape(void **state) {
  heed_context *context = test_context(NULL);
  hd_arena arena;
  hd_matrix matrix;
  (void)state;
  hd_arena_init(&arena, context);
  assert_int_equal(hd_matrix_pack(context, &arena, HD_Q4_0, 2, 33, "", &matrix), HEED_E_SHAPE);
  assert_non_null(strstr(heed_error(context), "Q4_0"));
  assert_int_equal(hd_matrix_pack(context, &arena, HD_F32, INT64_MAX / 8, INT64_MAX / 8, "", &matrix), HEED_E_OVERFLOW);
  ok(context, hd_matrix_pack(context, &arena, HD_F32, 3, 0, "", &matrix));
  float bias[3] = {1, 2, 3}, y[6] = {0};
  ok(context, hd_matrix_product(context, &matrix, bias, 2, 0, bias, y, 3));
  assert_memory_equal(y, bias, sizeof bias);
  assert_memory_equal(y + 3, bias, sizeof bias);
  hd_arena_free(&arena);
  heed_context_free(context);
}

/* Packed as a file stores it: no type takes more than a fifth more than the file. */
static void packing_keeps_the_size_of_the_file(void **state) {
  heed_context *context = test_context(NULL);
  (void)state;
  for (int storage = 0; storage < HD_STORAGE_COUNT; storage++) {
    hd_arena arena;
    hd_matrix matrix;
    int64_t bytes;
    hd_arena_init(&arena, context);
    unsigned char *rows = random_rows((hd_storage)storage, 64 * 256, &bytes);
    ok(context, hd_matrix_pack(context, &arena, (hd_storage)storage, 64, 256, rows, &matrix));
    assert_true(matrix.bytes <= bytes + bytes / 5);
    before_guard_free(rows, (size_t)bytes);
    hd_arena_free(&arena);
  }
  heed_context_free(context);
}

/* ---- along rows -------------------------------------------------------------------------------------------------------------- */

enum { ADDED = 2 + HEED_ACTIVATION_SIGMOID + 1, TURNED, TURNED_HALVES, ROW_RESULTS, LONGEST = 131 };

/* Every row operation on n elements: results [ROW_RESULTS][LONGEST]. */
static void run_rows(const hd_kernels *kernels, int64_t n, const float *x, const float *w, const float *b, float *row,
                     float results[ROW_RESULTS][LONGEST]) {
  size_t bytes = (size_t)n * sizeof *row;
#define KEEP(i) memcpy(results[i], row, bytes)
  kernels->rms_norm(x, w, n, 1e-5f, row, NULL), KEEP(0);
  kernels->layer_norm(x, w, b, n, 1e-5f, row, NULL), KEEP(1);
  for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_SIGMOID; kind++)
    kernels->activate((heed_activation)kind, x, kind % 2 ? w : NULL, n, row), KEEP(2 + kind);
  memcpy(row, x, bytes), kernels->add(row, w, n, row), KEEP(ADDED);
  memcpy(row, x, bytes), kernels->rotate(row, w, b, n / 2, true), KEEP(TURNED);
  memcpy(row, x, bytes), kernels->rotate(row, w, b, n / 2, false), KEEP(TURNED_HALVES);
#undef KEEP
}

static void check_near(const char *what, int64_t i, float got, double want) {
  if (!(fabs(got - want) <= 1e-6 + 4e-7 * fabs(want))) fail_msg("%s[%lld]: %.9g, expected %.9g", what, (long long)i, got, want);
}

static double activation(heed_activation kind, double v) {
  switch (kind) {
  case HEED_ACTIVATION_RELU: return fmax(v, 0);
  case HEED_ACTIVATION_SILU: return v / (1 + exp(-v));
  case HEED_ACTIVATION_GELU_TANH: return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
  case HEED_ACTIVATION_GELU: return 0.5 * v * erfc(-v / sqrt(2));
  case HEED_ACTIVATION_TANH: return tanh(v);
  case HEED_ACTIVATION_SIGMOID: return 1 / (1 + exp(-v));
  }
  return NAN;
}

static void check_rows(int64_t n, const float *x, const float *w, const float *b, float results[ROW_RESULTS][LONGEST]) {
  double square = 0, mean = 0, variance = 0;
  for (int64_t i = 0; i < n; i++) square += (double)x[i] * x[i], mean += x[i];
  square /= (double)n, mean /= (double)n;
  for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
  for (int64_t i = 0; i < n; i++) {
    check_near("rms_norm", i, results[0][i], x[i] / sqrt(square + 1e-5) * w[i]);
    check_near("layer_norm", i, results[1][i], (x[i] - mean) / sqrt(variance + 1e-5) * w[i] + b[i]);
    for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_SIGMOID; kind++)
      check_near("activate", i, results[2 + kind][i], activation((heed_activation)kind, x[i]) * (kind % 2 ? w[i] : 1));
    check_near("add", i, results[ADDED][i], (double)x[i] + w[i]);
  }
  int64_t pairs = n / 2;
  for (int64_t p = 0; p < pairs; p++) {
    check_near("rotate", p, results[TURNED][2 * p], (double)x[2 * p] * w[p] - (double)x[2 * p + 1] * b[p]);
    check_near("rotate", p, results[TURNED][2 * p + 1], (double)x[2 * p + 1] * w[p] + (double)x[2 * p] * b[p]);
    check_near("rotate", p, results[TURNED_HALVES][p], (double)x[p] * w[p] - (double)x[pairs + p] * b[p]);
    check_near("rotate", p, results[TURNED_HALVES][pairs + p], (double)x[pairs + p] * w[p] + (double)x[p] * b[p]);
  }
}

static void rows_are_the_formulas_on_every_level(void **state) {
  (void)state;
  seed = 3;
  for (int64_t n = 1; n <= LONGEST; n += n < 40 ? 1 : 13) {
    static float first[ROW_RESULTS][LONGEST], results[ROW_RESULTS][LONGEST];
    float *x = guarded_floats(n), *w = guarded_floats(n), *b = guarded_floats(n), *row = guarded_floats(n);
    for (int64_t i = 0; i < n; i++) x[i] *= 6;
    for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
      heed_context *context = level_context(level, 1);
      if (!context) continue;
      memset(results, 0, sizeof results);
      run_rows(hd_kernels_of(context), n, x, w, b, row, results);
      if (level == HEED_LEVEL_SCALAR) memcpy(first, results, sizeof first);
      assert_memory_equal(results, first, sizeof results);
      heed_context_free(context);
    }
    check_rows(n, x, w, b, first);
    before_guard_free(x, (size_t)n * 4), before_guard_free(w, (size_t)n * 4), before_guard_free(b, (size_t)n * 4),
        before_guard_free(row, (size_t)n * 4);
  }
}

/* The ends of the number line: nothing but the limits, and NaN stays NaN. */
static void activations_at_the_ends(void **state) {
  (void)state;
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    heed_context *context = level_context(level, 1);
    if (!context) continue;
    for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_GELU; kind++) {
      const float x[5] = {NAN, INFINITY, 1e30f, -1e30f, -90};
      float y[5];
      hd_kernels_of(context)->activate((heed_activation)kind, x, NULL, 5, y);
      assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == 1e30f && y[3] == 0 && fabsf(y[4]) < 1e-30f);
    }
    heed_context_free(context);
  }
}

static double slope(heed_activation kind, double v) {
  const double root = sqrt(2 / acos(-1)), s = 1 / (1 + exp(-v)), rest = 1 / (1 + exp(v));
  const double u = 2 * root * (v + 0.044715 * v * v * v), su = 1 / (1 + exp(-u)), rest_u = 1 / (1 + exp(u));
  switch (kind) {
  case HEED_ACTIVATION_RELU: return v > 0;
  case HEED_ACTIVATION_SILU: return s * (1 + v * rest);
  case HEED_ACTIVATION_GELU_TANH: return su * (1 + v * rest_u * 2 * root * (1 + 3 * 0.044715 * v * v));
  case HEED_ACTIVATION_GELU: return 0.5 * erfc(-v / sqrt(2)) + v * exp(-0.5 * v * v) / sqrt(2 * acos(-1));
  case HEED_ACTIVATION_TANH: return 1 / (cosh(v) * cosh(v));
  case HEED_ACTIVATION_SIGMOID: return s * rest;
  }
  return NAN;
}

/* Where they are small, on the left, slopes are as precise as elsewhere. e^(−v²/2) loses what v² is rounded by, and e^x is 0
 * below 2^−125. */
static void slopes_are_precise_on_both_sides(void **state) {
  (void)state;
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    heed_context *context = level_context(level, 1);
    if (!context) continue;
    for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_SIGMOID; kind++)
      for (float x = -12.0f; x <= 12.0f; x += 0.03f) {
        const float up = 3, dy = 2;
        float dx = 1, dup = 1;
        hd_activation_gradient g = {
            .kind = (heed_activation)kind, .x = &x, .gate = &up, .dy = &dy, .dx = &dx, .dgate = &dup, .accumulate = false};
        double want = 6 * slope((heed_activation)kind, x), size = fabs(x) < 4 ? 1 : fabs(want); // slopes of gelu and silu pass through 0
        hd_kernels_of(context)->activate_backward(&g, 1);
        if (!(fabs(dx - want) <= 1e-5 * size + 1e-34)) fail_msg("kind %d: slope at %.9g is %.9g, expected %.9g", kind, x, dx, want);
        if (!(fabs(dup - 2 * activation((heed_activation)kind, x)) <= 1e-5)) fail_msg("kind %d: value at %.9g is %.9g", kind, x, dup);
        g.accumulate = true;
        float once = dx;
        hd_kernels_of(context)->activate_backward(&g, 1);
        if (dx != once + once) fail_msg("kind %d: slope at %.9g does not accumulate", kind, x);
      }
    for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_SIGMOID; kind++) {
      const float x[4] = {1e30f, -1e30f, 1e38f, -1e38f}, one[4] = {1, 1, 1, 1};
      float dx[4], right = kind < HEED_ACTIVATION_TANH;
      hd_kernels_of(context)->activate_backward(&(hd_activation_gradient){.kind = (heed_activation)kind, .x = x, .dy = one, .dx = dx}, 4);
      if (dx[0] != right || dx[1] != 0 || dx[2] != right || dx[3] != 0)
        fail_msg("kind %d: slopes at the ends are %g, %g, %g, %g", kind, dx[0], dx[1], dx[2], dx[3]);
    }
    heed_context_free(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stored_numbers_mean_what_the_format_says),
      cmocka_unit_test(products_have_the_bits_of_the_formula),
      cmocka_unit_test(packing_checks_its_shape),
      cmocka_unit_test(packing_keeps_the_size_of_the_file),
      cmocka_unit_test(rows_are_the_formulas_on_every_level),
      cmocka_unit_test(activations_at_the_ends),
      cmocka_unit_test(slopes_are_precise_on_both_sides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
