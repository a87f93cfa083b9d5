/* Weights that do not learn: they take no memory for gradients and no product, gradients pass through them; and those that stay as a file stores them are to the bit what they would be in f32, with
 * little more memory than the file. */
#include "../../src/kern/matrix.h"
#include "../../src/op/list.h"
#include "../counting_allocator.h"
#include "../stored.h"
#include "../test.h"

#include <math.h>

enum { ROWS = 21, OUTPUTS = 83, BLOCKS = 2 };

typedef struct stage {
  heed_context *context;
  heed_parameters *set;
  heed_tape *tape;
} stage;

static stage set_up(heed_context *context) {
  stage s = {.context = context};
  ok(context, heed_parameters_new(context, &s.set));
  ok(context, heed_tape_new(context, &s.tape));
  return s;
}

static void tear_down(stage *s) {
  heed_tape_free(s->tape);
  heed_parameters_free(s->set);
  heed_context_free(s->context);
}

static heed_tensor *parameter(stage *s, const char *name, int64_t rows, int64_t columns, bool frozen) {
  heed_tensor *t;
  ok(s->context, heed_parameters_add(s->set, name, 2, (int64_t[]){rows, columns},
                                     &(heed_parameter_options){.size = sizeof(heed_parameter_options), .frozen = frozen}, &t));
  ok(s->context, heed_tensor_initialise(s->context, t, HEED_INITIAL_NORMAL, 1, 3, (uint64_t)heed_parameters_count(s->set)));
  return t;
}

static unsigned char *blocks_of(hd_storage storage, int64_t count, float *values) {
  unsigned char *blocks = malloc((size_t)(count / hd_storage_block(storage) * hd_storage_bytes(storage)));
  stored_blocks(&(uint32_t){(uint32_t)storage + 1}, storage, count, blocks);
  hd_dequantise(storage, blocks, count, values);
  return blocks;
}

/* y and dx of a linear layer without and with a second one, whose output meets the first's: so a gradient is written and one is added. */
static void linear(stage *s, heed_tensor *x, heed_tensor *w, heed_tensor *b, float *y, float *dx) {
  heed_tape_reset(s->tape);
  heed_parameters_forget_gradients(s->set);
  heed_tensor *out = heed_tape_linear(s->tape, x, w, b), *twice = heed_tape_linear(s->tape, x, w, NULL);
  ok(s->context, heed_tape_status(s->tape));
  memcpy(y, hd_value(out), (size_t)hd_count(out) * sizeof *y);
  heed_tensor *sum = heed_tape_sum(s->tape, heed_tape_mul(s->tape, out, twice), HEED_ALL_AXES);
  ok(s->context, heed_tape_backward(s->tape, sum, NULL));
  memcpy(dx, heed_tensor_gradient(x).data, (size_t)hd_count(x) * sizeof *dx);
}

/* Every type, also as two matrices of different types one below the other: the bits of f32, at every level. */
static void stored_is_what_it_would_be_in_f32(void **state) {
  (void)state;
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    for (int storage = 0; storage < HD_STORAGE_COUNT; storage++) {
      heed_context *context = level_context(level, 2);
      if (!context) continue;
      const int64_t inputs = BLOCKS * 256, half = OUTPUTS / 3 * inputs;
      stage s = set_up(context);
      heed_tensor *x = parameter(&s, "x", ROWS, inputs, false), *plain = parameter(&s, "plain", OUTPUTS, inputs, true), *bias, *whole,
                  *parts;
      ok(context, heed_parameters_add(s.set, "bias", 1, (int64_t[]){OUTPUTS}, NULL, &bias));
      ok(context, heed_tensor_initialise(context, bias, HEED_INITIAL_NORMAL, 1, 4, 9));
      unsigned char *blocks = blocks_of((hd_storage)storage, OUTPUTS * inputs, hd_value(plain));
      ok(context, heed_parameters_add_stored(s.set, "whole", hd_storage_name((hd_storage)storage), OUTPUTS, inputs, blocks, &whole));
      assert_null(heed_tensor_value(whole).data);
      float *y = malloc(OUTPUTS * ROWS * 4), *want = malloc(OUTPUTS * ROWS * 4), *dx = malloc((size_t)(ROWS * inputs) * 4),
            *dx_want = malloc((size_t)(ROWS * inputs) * 4);
      linear(&s, x, plain, bias, want, dx_want);
      assert_null(heed_tensor_gradient(plain).data);
      linear(&s, x, whole, bias, y, dx);
      assert_memory_equal(y, want, OUTPUTS * ROWS * 4);
      assert_memory_equal(dx, dx_want, (size_t)(ROWS * inputs) * 4);
      // The first rows in this type, the others as f32 numbers.
      hd_matrix part[2];
      hd_arena *arena = hd_parameters_arena(s.set);
      ok(context, hd_matrix_pack(context, arena, (hd_storage)storage, OUTPUTS / 3, inputs, blocks, &part[0]));
      ok(context, hd_matrix_pack(context, arena, HD_F32, OUTPUTS - OUTPUTS / 3, inputs, hd_value(plain) + half, &part[1]));
      ok(context, hd_parameters_add_stored(s.set, "parts", (int64_t[]){OUTPUTS, inputs}, part, 2, 0, &parts));
      linear(&s, x, parts, bias, y, dx);
      assert_memory_equal(y, want, OUTPUTS * ROWS * 4);
      assert_memory_equal(dx, dx_want, (size_t)(ROWS * inputs) * 4);
      const int32_t ids[] = {OUTPUTS - 1, 0, 5, OUTPUTS / 3, OUTPUTS / 3 - 1};
      const heed_view view = heed_view_of((void *)ids, HEED_I32, 1, &(int64_t){5});
      heed_tape_reset(s.tape);
      const float *rows = hd_value(heed_tape_embedding(s.tape, heed_tape_input(s.tape, &view), parts));
      ok(context, heed_tape_status(s.tape));
      for (int i = 0; i < 5; i++) assert_memory_equal(rows + i * inputs, hd_value(plain) + ids[i] * inputs, (size_t)inputs * 4);
      free(y), free(want), free(dx), free(dx_want), free(blocks);
      tear_down(&s);
    }
}

/* Adding a parameter, then x · wᵀ and its gradients: bytes asked for at most, beyond what was there. */
static int64_t most_bytes(hd_storage storage, bool stored, bool frozen, int64_t side) {
  ledger l;
  float *values = malloc((size_t)(side * side) * sizeof *values);
  unsigned char *blocks = blocks_of(storage, side * side, values);
  stage s = set_up(ledger_context(&l, 2));
  heed_tensor *x = parameter(&s, "x", 64, side, false), *w;
  const int64_t before = l.now;
  if (stored) {
    ok(s.context, heed_parameters_add_stored(s.set, "w", hd_storage_name(storage), side, side, blocks, &w));
  } else {
    w = parameter(&s, "w", side, side, frozen);
    memcpy(hd_value(w), values, (size_t)(side * side) * sizeof *values);
  }
  heed_tensor *loss = heed_tape_sum(s.tape, heed_tape_linear(s.tape, x, w, NULL), HEED_ALL_AXES);
  ok(s.context, heed_tape_backward(s.tape, loss, NULL));
  assert_non_null(heed_tensor_gradient(x).data);
  assert_int_equal(heed_tensor_gradient(w).data != NULL, !frozen);
  const int64_t most = l.peak - before;
  free(values), free(blocks);
  tear_down(&s);
  assert_int_equal(l.now, 0);
  return most;
}

/* A matrix of 4 MiB: its gradient would be as much, and what is stored in a quarter of that never stands anywhere as f32. */
static void memory(void **state) {
  (void)state;
  enum { SIDE = 1024, BYTES = SIDE * SIDE * 4 };
  const int64_t learning = most_bytes(HD_F32, false, false, SIDE), frozen = most_bytes(HD_F32, false, true, SIDE),
                stored = most_bytes(HD_Q8_0, true, true, SIDE);
  if (!(learning - frozen >= BYTES)) fail_msg("learning %lld bytes, frozen %lld", (long long)learning, (long long)frozen);
  if (!(frozen - stored >= BYTES * 7 / 10)) fail_msg("frozen %lld bytes, stored %lld", (long long)frozen, (long long)stored);
}

static void refused(stage *s, heed_status got, heed_status want, const char *words) {
  if (got != want || !strstr(heed_error(s->context), words))
    fail_msg("%s instead of %s: \"%s\", expected \"%s\"", heed_status_name(got), heed_status_name(want), heed_error(s->context), words);
  heed_tape_reset(s->tape);
}

static void errors(void **state) {
  (void)state;
  stage s = set_up(test_context(NULL));
  unsigned char blocks[4 * 34] = {0};
  heed_tensor *w, *none;
  heed_parameters *set = s.set;
  ok(s.context, heed_parameters_add_stored(set, "w", "Q8_0", 4, 32, blocks, &w));
  refused(&s, heed_parameters_add_stored(set, "w", "Q8_0", 4, 32, blocks, &none), HEED_E_ARGUMENT,
          "parameter w: there is one of that name");
  assert_null(none);
  refused(&s, heed_parameters_add_stored(set, "v", "Q8", 4, 32, blocks, &none), HEED_E_TYPE, "v: there is no type Q8, allowed F32, F16");
  refused(&s, heed_parameters_add_stored(set, "v", "Q8_0", 4, 33, blocks, &none), HEED_E_SHAPE, "rows are whole blocks of 32");
  refused(&s, heed_parameters_add_stored(set, "v", NULL, 4, 32, blocks, &none), HEED_E_ARGUMENT, "heed_parameters_add_stored: null");
  assert_int_equal(heed_parameters_add_stored(NULL, "v", "F32", 4, 32, blocks, &none), HEED_E_ARGUMENT);
  assert_int_equal(heed_parameters_count(set), 1);
  assert_int_equal(heed_parameters_size(set), 128);
  assert_int_equal(heed_parameters_learning(set), 0);
  heed_tensor *x = parameter(&s, "x", 3, 32, false);
  assert_null(heed_tape_add(s.tape, w, x));
  refused(&s, heed_tape_status(s.tape), HEED_E_TYPE, "add: input 0, w, is a matrix as a file stores it, which linear and embedding read");
  assert_null(heed_tape_linear(s.tape, w, x, NULL));
  refused(&s, heed_tape_status(s.tape), HEED_E_TYPE, "linear: input 0, w, is");
  assert_null(heed_tape_linear(s.tape, parameter(&s, "narrow", 3, 31, false), w, NULL));
  refused(&s, heed_tape_status(s.tape), HEED_E_SHAPE, "linear: x [3,31], w [4,32]");
  assert_null(heed_tape_matmul(s.tape, x, false, w, true));
  refused(&s, heed_tape_status(s.tape), HEED_E_TYPE, "matmul: input 1, w, is");
  tear_down(&s);
}

/* A low-rank adapter (Hu et al. 2021): y = x · Wᵀ + x · Aᵀ · Bᵀ with W quantised and fixed, taught to be another matrix that differs from W by rank two. Only A and B move. */
static void an_adapter_learns(void **state) {
  (void)state;
  enum { IN = 64, OUT = 48, RANK = 4, EXAMPLES = 96, STEPS = 300 };
  stage s = set_up(test_context(NULL));
  float values[OUT * IN];
  unsigned char *blocks = blocks_of(HD_Q4_0, OUT * IN, values);
  heed_tensor *w, *a = parameter(&s, "a", RANK, IN, false), *b = parameter(&s, "b", OUT, RANK, false);
  ok(s.context, heed_parameters_add_stored(s.set, "w", "Q4_0", OUT, IN, blocks, &w));
  ok(s.context, heed_tensor_initialise(s.context, b, HEED_INITIAL_CONSTANT, 0, 0, 0)); // at first y is what W gives
  ok(s.context, heed_tensor_initialise(s.context, a, HEED_INITIAL_NORMAL, 0.1, 1, 1));
  stage data = set_up(s.context);
  heed_tensor *x = parameter(&data, "x", EXAMPLES, IN, true), *u = parameter(&data, "u", OUT, 2, true),
              *v = parameter(&data, "v", IN, 2, true);
  static float target[EXAMPLES * OUT];
  for (int r = 0; r < EXAMPLES; r++)
    for (int o = 0; o < OUT; o++) {
      double sum = 0;
      for (int i = 0; i < IN; i++)
        sum += hd_value(x)[r * IN + i] *
               (values[o * IN + i] + 0.2 * (hd_value(u)[2 * o] * hd_value(v)[2 * i] + hd_value(u)[2 * o + 1] * hd_value(v)[2 * i + 1]));
      target[r * OUT + o] = (float)sum;
    }
  heed_optimiser *optimiser;
  ok(s.context, heed_optimiser_new(s.context, s.set, NULL, &optimiser));
  double first = 0, last = 0;
  for (int step = 0; step < STEPS; step++) {
    heed_tape_reset(s.tape);
    heed_parameters_forget_gradients(s.set);
    const heed_view view = heed_view_of(target, HEED_F32, 2, (int64_t[]){EXAMPLES, OUT});
    heed_tensor *y = heed_tape_linear(s.tape, x, w, NULL), *low = heed_tape_linear(s.tape, heed_tape_linear(s.tape, x, a, NULL), b, NULL);
    heed_tensor *error = heed_tape_add(s.tape, heed_tape_add(s.tape, y, low), heed_tape_scale(s.tape, heed_tape_input(s.tape, &view), -1));
    heed_tensor *loss = heed_tape_mean(s.tape, heed_tape_mul(s.tape, error, error), HEED_ALL_AXES);
    ok(s.context, heed_tape_status(s.tape));
    last = *hd_value(loss);
    if (step == 0) first = last;
    ok(s.context, heed_tape_backward(s.tape, loss, NULL));
    ok(s.context, heed_optimiser_step(optimiser, 0.02, 0, NULL));
  }
  if (!(last < first / 1000)) fail_msg("the loss went from %g to %g", first, last);
  float row[IN];
  for (int o = 0; o < OUT; o++) {
    hd_matrix_row(s.context, w->stored, o, row);
    assert_memory_equal(row, values + o * IN, sizeof row);
  }
  assert_null(heed_optimiser_state(optimiser, 2, 0).data);
  heed_optimiser_free(optimiser);
  free(blocks);
  heed_tape_free(data.tape);
  heed_parameters_free(data.set);
  tear_down(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stored_is_what_it_would_be_in_f32),
      cmocka_unit_test(memory),
      cmocka_unit_test(errors),
      cmocka_unit_test(an_adapter_learns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
