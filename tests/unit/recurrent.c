/* Gated recurrent units over batches: a row has the bits that it has alone, packed or not, whatever the threads, and what is behind its end reaches nothing. */
#include "../../src/op/list.h"
#include "../counting_allocator.h"

#include <math.h>
#include <stdio.h>

enum {
  ROWS = 23,
  STEPS = 7,
  INPUTS = 19,
  WIDTH = 37,
  KEYS = 70,
  QUERY = 21,
  BEYOND = 5,
  VALUES = 3 * WIDTH + BEYOND,
  OUT = WIDTH + BEYOND
};

typedef struct layer {
  heed_context *context;
  heed_parameters *set;
  heed_tape *tape;
  heed_nn_gru gru;
  heed_tensor *x, *keys, *values, *w_query, *w_score;
  int64_t lengths[ROWS], key_lengths[ROWS];
} layer;

static heed_tensor *parameter(layer *l, const char *name, int ndim, const int64_t *dim) {
  heed_tensor *t;
  ok(l->context, heed_parameters_add(l->set, name, ndim, dim, NULL, &t));
  ok(l->context, heed_tensor_initialise(l->context, t, HEED_INITIAL_NORMAL, 0.4, 5, (uint64_t)heed_parameters_count(l->set)));
  return t;
}

static layer open(int threads) {
  layer l = {.context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = threads})};
  ok(l.context, heed_parameters_new(l.context, &l.set));
  ok(l.context, heed_tape_new(l.context, &l.tape));
  l.gru.directions = 2;
  for (int d = 0; d < 2; d++) {
    l.gru.w_input[d] = parameter(&l, d ? "wi1" : "wi0", 2, (int64_t[]){3 * WIDTH, INPUTS});
    l.gru.b_input[d] = parameter(&l, d ? "bi1" : "bi0", 1, (int64_t[]){3 * WIDTH});
    l.gru.w_state[d] = parameter(&l, d ? "ws1" : "ws0", 2, (int64_t[]){3 * WIDTH, WIDTH});
    l.gru.b_state[d] = parameter(&l, d ? "bs1" : "bs0", 1, (int64_t[]){3 * WIDTH});
  }
  l.x = parameter(&l, "x", 3, (int64_t[]){ROWS, STEPS, INPUTS});
  l.keys = parameter(&l, "keys", 3, (int64_t[]){ROWS, KEYS, QUERY});
  l.values = parameter(&l, "values", 3, (int64_t[]){ROWS, KEYS, VALUES});
  l.w_query = parameter(&l, "wq", 2, (int64_t[]){QUERY, WIDTH});
  l.w_score = parameter(&l, "w", 1, (int64_t[]){QUERY});
  for (int r = 0; r < ROWS; r++) {
    l.lengths[r] = r * 5 % (STEPS + 1); // some have none
    l.key_lengths[r] = r * 11 % (KEYS + 1);
  }
  return l;
}

static void close(layer *l) {
  heed_tape_free(l->tape);
  heed_parameters_free(l->set);
  heed_context_free(l->context);
}

static heed_tensor *row_of(layer *l, heed_tensor *t, int64_t row) { return row < 0 ? t : heed_tape_slice(l->tape, t, 0, row, row + 1); }

/* Both directions, of all rows or one alone. */
static heed_tensor *encode(layer *l, int64_t row, heed_tensor **last) {
  const heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = l->lengths + HD_MAX(row, 0)};
  return heed_nn_gru_apply(l->tape, &l->gru, &rows, row_of(l, l->x, row), last);
}

/* Attention at each step. */
static heed_tensor *decode(layer *l, int64_t row) {
  const heed_tape_gru_options options = {.size = sizeof options,
                                         .lengths = l->lengths + HD_MAX(row, 0),
                                         .keys = row_of(l, l->keys, row),
                                         .values = row_of(l, l->values, row),
                                         .w_query = l->w_query,
                                         .w_score = l->w_score,
                                         .key_lengths = l->key_lengths + HD_MAX(row, 0)};
  heed_tensor *x = heed_tape_linear(l->tape, row_of(l, l->x, row), l->gru.w_input[0], l->gru.b_input[0]);
  return heed_tape_gru(l->tape, &options, x, l->gru.w_state[0], l->gru.b_state[0]);
}

static void a_row_has_the_bits_that_it_has_alone(void **state) {
  (void)state;
  layer l = open(3);
  heed_tensor *last[2], *alone_last[2], *states = encode(&l, -1, last), *decoded = decode(&l, -1);
  ok(l.context, heed_tape_status(l.tape));
  for (int64_t r = 0; r < ROWS; r++) {
    const heed_tensor *alone = encode(&l, r, alone_last), *alone_decoded = decode(&l, r);
    ok(l.context, heed_tape_status(l.tape));
    assert_memory_equal(hd_value(states) + r * STEPS * 2 * WIDTH, hd_value(alone), STEPS * 2 * WIDTH * sizeof(float));
    assert_memory_equal(hd_value(decoded) + r * STEPS * OUT, hd_value(alone_decoded), STEPS * OUT * sizeof(float));
    for (int d = 0; d < 2; d++) assert_memory_equal(hd_value(last[d]) + r * WIDTH, hd_value(alone_last[d]), WIDTH * sizeof(float));
    for (int64_t i = l.lengths[r] * 2 * WIDTH; i < STEPS * 2 * WIDTH; i++) assert_true(hd_value(alone)[i] == 0);
  }
  close(&l);
}

/* Numbers behind the ends are not read: not even NaN reaches anything. */
static void what_is_behind_the_end_reaches_nothing(void **state) {
  (void)state;
  float *gradients[2][16];
  for (int spoiled = 0; spoiled < 2; spoiled++) {
    layer l = open(1 + spoiled); // equal bits on one thread and on two
    for (int r = 0; r < ROWS; r++) {
      for (int64_t i = l.lengths[r] * INPUTS; spoiled && i < STEPS * INPUTS; i++) hd_value(l.x)[r * STEPS * INPUTS + i] = NAN;
      for (int64_t i = l.key_lengths[r]; spoiled && i < KEYS; i++)
        hd_value(l.keys)[(r * KEYS + i) * QUERY] = hd_value(l.values)[(r * KEYS + i) * VALUES] = NAN;
    }
    heed_tensor *states = encode(&l, -1, NULL);
    const heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = l.lengths};
    const heed_tape_gru_options options = {.size = sizeof options,
                                           .lengths = l.lengths,
                                           .keys = l.keys,
                                           .values = l.values,
                                           .w_query = l.w_query,
                                           .w_score = l.w_score,
                                           .key_lengths = l.key_lengths};
    const heed_nn_gru forward = {.directions = 1, .w_input = {l.gru.w_input[1]}, .w_state = {l.gru.w_state[1]}};
    heed_tensor *x = heed_tape_slice(l.tape, states, 2, 0, INPUTS);
    heed_tensor *y = heed_tape_linear(l.tape, x, l.gru.w_input[0], l.gru.b_input[0]);
    heed_tensor *both[] = {heed_tape_gru(l.tape, &options, y, l.gru.w_state[0], l.gru.b_state[0]),
                           heed_nn_gru_apply(l.tape, &forward, &rows, l.x, NULL)};
    ok(l.context, heed_tape_backward(l.tape, heed_tape_mean(l.tape, heed_tape_concat(l.tape, 2, both, 2), HEED_ALL_AXES), NULL));
    for (int64_t i = 0; i < heed_parameters_count(l.set); i++) {
      const heed_view g = heed_tensor_gradient(heed_parameters_at(l.set, i));
      const size_t bytes = (size_t)hd_count(heed_parameters_at(l.set, i)) * sizeof(float);
      assert_non_null(g.data);
      gradients[spoiled][i] = malloc(bytes);
      memcpy(gradients[spoiled][i], g.data, bytes);
      if (!spoiled) continue;
      assert_memory_equal(gradients[0][i], gradients[1][i], bytes);
      free(gradients[0][i]);
      free(gradients[1][i]);
    }
    close(&l);
  }
}

static void packed_rows_are_the_same_rows(void **state) {
  (void)state;
  layer l = open(2);
  int32_t at[ROWS * STEPS];
  int64_t count = 0;
  for (int r = 0; r < ROWS; r++)
    for (int64_t t = 0; t < l.lengths[r]; t++) at[count++] = (int32_t)(r * STEPS + t);
  const heed_view view = heed_view_of(at, HEED_I32, 1, &count);
  heed_tensor *flat = heed_tape_reshape(l.tape, l.x, 2, (int64_t[]){ROWS * STEPS, INPUTS});
  heed_tensor *packed = heed_tape_gather(l.tape, flat, heed_tape_input(l.tape, &view)), *padded = encode(&l, -1, NULL);
  heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = l.lengths, .rows = ROWS, .steps = STEPS};
  heed_tensor *states = heed_nn_gru_apply(l.tape, &l.gru, &rows, packed, NULL);
  ok(l.context, heed_tape_status(l.tape));
  assert_memory_equal(hd_value(states), hd_value(padded), (size_t)hd_count(padded) * sizeof(float));

  rows.rows = ROWS - 1;
  assert_null(heed_nn_gru_apply(l.tape, &l.gru, &rows, packed, NULL));
  assert_int_equal(heed_tape_status(l.tape), HEED_E_ARGUMENT);
  char text[128];
  snprintf(text, sizeof text, "gru: x has %lld rows, allowed %lld, the sum of lengths", (long long)count,
           (long long)(count - l.lengths[ROWS - 1]));
  assert_string_equal(heed_error(l.context), text);
  close(&l);
}

/* A pass forward and back on a tape of its own, over long rows that look at many keys. Returns what a plan says that it takes, or what it took. */
static int64_t pass(heed_context *context, ledger *memory, bool plans) {
  enum { MANY_ROWS = 9, LONG = 60, N = 24, MANY_KEYS = 1000, A = 40, V = 3 * N + 7 };
  layer l = {.context = context};
  heed_tensor *x, *w;
  ok(context, heed_parameters_new(context, &l.set));
  x = parameter(&l, "x", 3, (int64_t[]){MANY_ROWS, LONG, 3 * N});
  w = parameter(&l, "w", 2, (int64_t[]){3 * N, N});
  const heed_tape_gru_options options = {.size = sizeof options,
                                         .keys = parameter(&l, "keys", 3, (int64_t[]){MANY_ROWS, MANY_KEYS, A}),
                                         .values = parameter(&l, "values", 3, (int64_t[]){MANY_ROWS, MANY_KEYS, V}),
                                         .w_query = parameter(&l, "wq", 2, (int64_t[]){A, N}),
                                         .w_score = parameter(&l, "ws", 1, (int64_t[]){A})};
  const int64_t before = memory->now;
  memory->peak = before;
  ok(context, heed_tape_new(context, &l.tape));
  if (plans) hd_tape_set_plan(l.tape);
  ok(context, heed_tape_backward(l.tape, heed_tape_mean(l.tape, heed_tape_gru(l.tape, &options, x, w, NULL), HEED_ALL_AXES), NULL));
  const int64_t bytes = plans ? hd_tape_bytes(l.tape) : memory->peak - before;
  heed_tape_free(l.tape);
  heed_parameters_free(l.set);
  return bytes;
}

/* Scratch of each thread too, but for the little that products put aside. */
static void a_plan_says_what_is_taken(void **state) {
  (void)state;
  for (int threads = 1; threads <= 8; threads += 7) {
    ledger l;
    heed_context *context = ledger_context(&l, threads);
    const int64_t said = pass(context, &l, true), taken = pass(context, &l, false);
    if (!(taken <= said + said / 50 + threads * (1 << 17) && said <= taken + taken / 20))
      fail_msg("%d threads: says %lld bytes, takes %lld", threads, (long long)said, (long long)taken);
    heed_context_free(context);
  }
}

static void bad_calls_are_refused(void **state) {
  (void)state;
  layer l = open(1);
  heed_tensor *x = heed_tape_linear(l.tape, l.x, l.gru.w_input[0], NULL), *w = l.gru.w_state[0];
  const struct {
    heed_tape_gru_options options;
    heed_tensor *x, *w, *b;
    heed_status status;
    const char *error;
  } bad[] = {
      {.x = l.x,
       .w = w,
       .status = HEED_E_SHAPE,
       .error = "gru: x [23,7,19], w [111,37]: allowed [B,T,3H] or with lengths [positions,3H], and [3H,H]"},
      {.x = x, .w = w, .b = l.w_score, .status = HEED_E_SHAPE, .error = "gru: b [21], allowed [111]"},
      {.options = {.values = l.values},
       .x = x,
       .w = w,
       .status = HEED_E_SHAPE,
       .error = "gru: keys and values have rank 3, and there are both or none"},
      {.options = {.keys = l.keys}, .x = x, .w = w, .status = HEED_E_ARGUMENT, .error = "gru: keys without values"},
      {.options = {.keys = l.keys, .values = l.values},
       .x = x,
       .w = w,
       .status = HEED_E_SHAPE,
       .error = "gru: keys [23,70,21] without w_query: allowed 37 columns, those of the state"},
      {.options = {.initial = l.w_query}, .x = x, .w = w, .status = HEED_E_SHAPE, .error = "gru: initial [21,37], allowed [23,37]"},
  };
  for (int64_t i = 0; i < HD_COUNT(bad); i++) {
    heed_tape_gru_options options = bad[i].options;
    options.size = sizeof options;
    heed_tape_reset(l.tape);
    x = heed_tape_linear(l.tape, l.x, l.gru.w_input[0], NULL);
    assert_null(heed_tape_gru(l.tape, &options, bad[i].x == l.x ? l.x : x, bad[i].w, bad[i].b));
    assert_int_equal(heed_tape_status(l.tape), bad[i].status);
    assert_string_equal(heed_error(l.context), bad[i].error);
  }
  l.lengths[4] = STEPS + 1;
  heed_tape_reset(l.tape);
  assert_null(encode(&l, -1, NULL));
  assert_string_equal(heed_error(l.context), "heed_nn_gru: row 4 has 8 elements, allowed 0 to 7");
  l.key_lengths[2] = -3;
  l.lengths[4] = 1;
  heed_tape_reset(l.tape);
  assert_null(decode(&l, -1));
  assert_string_equal(heed_error(l.context), "gru: key length of row 2 is -1, allowed 0 to 70");
  close(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_has_the_bits_that_it_has_alone),
      cmocka_unit_test(what_is_behind_the_end_reaches_nothing),
      cmocka_unit_test(packed_rows_are_the_same_rows),
      cmocka_unit_test(a_plan_says_what_is_taken),
      cmocka_unit_test(bad_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
