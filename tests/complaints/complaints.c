/* What users of other libraries ran into, one named test each: the trigger they reported, and what heed does instead. Forward and backward, the weights where they were
 * asked for. The numbers are those of the list of complaints; where one is about speed the test counts work, since clocks differ from machine to machine. */
#include "attention_gradients.h"
#include "attention_layouts.h"
#include "counting_allocator.h"
#include "guard_pages.h"
#include "pthread_parallel.h"

#include <dirent.h>

static heed_context *context;

/* ---- helpers ------------------------------------------------------------------------------------------------------------------------------ */

static void shaped(sample *s, int64_t batch, int64_t heads, int64_t kv_heads, int64_t n, int64_t m, int64_t d, int kinds,
                   random_source *r) {
  *s = (sample){.batch = batch, .heads = heads, .kv_heads = kv_heads, .n = n, .m = m, .d = d, .dv = d};
  sample_fill(s, r, kinds);
}

/* Row `row` (over batch and heads) saw nothing: output, weights and gradient are exactly 0, its lse is −inf. */
static void expect_dead(const sample *s, const gradients *g, const float *weights, int64_t row) {
  for (int64_t c = 0; c < s->dv; c++) assert_true(s->out[row * s->dv + c] == 0);
  for (int64_t j = 0; j < s->m; j++) assert_true(weights[row * s->m + j] == 0);
  for (int64_t c = 0; c < s->d; c++) assert_true(g->data[DQ][row * s->d + c] == 0);
  assert_true(s->lse[row] == -INFINITY);
}

static void expect_finite(const gradients *g) {
  for (int i = 0; i < GRADIENTS; i++)
    for (int64_t j = 0; j < g->count[i]; j++) assert_true(isfinite(g->data[i][j]));
}

static void expect_reference(sample *s, random_source *r) {
  gradients g;
  double *want[GRADIENTS], *out = sample_reference(context, s, NULL);
  gradients_begin(context, s, r, &g);
  gradients_reference(context, s, &g, want);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], out[i], 5e-6, "out", r->seed);
  assert_gradients_close(&g, want, 5e-6, r->seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  free(out);
  gradients_free(&g);
}

/* ---- rows that see nothing, and NaN -------------------------------------------------------------------------------------------------- */

static void complaint_01_a_row_whose_mask_is_all_false(void **state) {
  (void)state;
  random_source r = {.seed = 1};
  sample s;
  shaped(&s, 1, 1, 1, 8, 8, 8, SAMPLE_ATTEND, &r);
  gradients g;
  memset(s.attend_data, 1, 4 * 8);
  memset(s.attend_data + 4 * 8, 0, 4 * 8);
  gradients_begin(context, &s, &r, &g);
  float *weights = run_weights(context, &s);
  for (int64_t row = 4; row < 8; row++) expect_dead(&s, &g, weights, row);
  expect_finite(&g);
  free(weights);
  gradients_free(&g);
  sample_free(&s);
}

/* The padded sequence's neighbours have the bits they have alone, weights asked for or not. */
static void complaint_02_a_padded_sequence_poisons_its_batch(void **state) {
  (void)state;
  random_source r = {.seed = 2};
  sample s;
  shaped(&s, 3, 2, 2, 9, 9, 8, SAMPLE_LENGTHS, &r);
  gradients g;
  const int64_t lengths[] = {9, 0, 5};
  memcpy(s.lengths, lengths, sizeof lengths);
  gradients_begin(context, &s, &r, &g);
  float *weights = run_weights(context, &s);
  for (int64_t row = 2 * 9; row < 4 * 9; row++) expect_dead(&s, &g, weights, row);
  expect_finite(&g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s.out, sample_out_count(&s));
  for (int64_t i = 2 * 9 * 8; i < 4 * 9 * 8; i++) s.q[i] = s.k[i] = s.v[i] = g.dout[i] = NAN;
  gradients_run(context, &s, &g);
  gradients_unchanged(kept, &g, "the others of the batch", r.seed);
  sample_run(context, &s);
  assert_same_bytes(s.out, out, sample_out_count(&s) * 4, "the others of the batch", r.seed);
  free(out);
  free(weights);
  gradients_free(&g);
  sample_free(&s);
}

/* One meaning for every kernel: many queries, few, one that decodes; with what training asks for and without. */
static void complaint_03_dead_rows_differ_between_kernels(void **state) {
  (void)state;
  const int64_t queries[] = {1, 3, 70};
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    for (int i = 0; i < 3 && heed_level_available(level); i++) {
      random_source r = {.seed = 3};
      heed_context *with = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
      sample s;
      shaped(&s, 1, 2, 1, queries[i], 70, 8, SAMPLE_LENGTHS, &r);
      gradients g;
      s.lengths[0] = 0;
      gradients_begin(with, &s, &r, &g);
      float *weights = run_weights(with, &s), *out = copy_of(s.out, sample_out_count(&s));
      for (int64_t row = 0; row < 2 * s.n; row++) expect_dead(&s, &g, weights, row);
      memset(s.out, 0x7f, (size_t)sample_out_count(&s) * 4);
      ok(with, heed_attention_forward(with, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL)); // as in evaluation: no lse
      assert_same_bytes(s.out, out, sample_out_count(&s) * 4, "without lse", r.seed);
      free(out);
      free(weights);
      gradients_free(&g);
      sample_free(&s);
      heed_context_free(with);
    }
}

static void complaint_04_nan_input_became_zero(void **state) {
  (void)state;
  random_source r = {.seed = 4};
  sample s;
  shaped(&s, 1, 1, 1, 70, 70, 8, SAMPLE_CAUSAL, &r);
  gradients g;
  align_start(&s);
  gradients_begin(context, &s, &r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s.out, sample_out_count(&s));
  s.k[33 * 8 + 5] = NAN;
  sample_run(context, &s);
  gradients_run(context, &s, &g);
  for (int64_t i = 0; i < 70; i++)
    for (int64_t c = 0; c < 8; c++)
      if (i >= 33) {
        assert_true(isnan(s.out[i * 8 + c]) && isnan(g.data[DQ][i * 8 + c]));
      } else {
        assert_same_bytes(&s.out[i * 8 + c], &out[i * 8 + c], 4, "a row that does not see it", r.seed);
        assert_same_bytes(&g.data[DQ][i * 8 + c], &kept.data[DQ][i * 8 + c], 4, "dq of a row that does not see it", r.seed);
      }
  kept_free(&kept);
  free(out);
  gradients_free(&g);
  sample_free(&s);
}

static void complaint_05_nan_behind_the_mask(void **state) {
  (void)state;
  for (int where = 0; where < 2; where++) { // in the key, in the value
    random_source r = {.seed = 5};
    sample s;
    shaped(&s, 1, 1, 1, 2, 2, 4, SAMPLE_ATTEND, &r);
    gradients g;
    const uint8_t attend[] = {1, 0, 1, 1};
    memcpy(s.attend_data, attend, sizeof attend);
    gradients_begin(context, &s, &r, &g);
    float *out = copy_of(s.out, 8), *dq = copy_of(g.data[DQ], 8);
    for (int64_t c = 0; c < 4; c++) (where ? s.v : s.k)[4 + c] = NAN;
    sample_run(context, &s);
    gradients_run(context, &s, &g);
    assert_same_bytes(s.out, out, 16, "row 0", r.seed);
    assert_same_bytes(g.data[DQ], dq, 16, "dq of row 0", r.seed);
    for (int64_t c = 0; c < 4; c++) assert_true(isnan(s.out[4 + c]));
    free(out);
    free(dq);
    gradients_free(&g);
    sample_free(&s);
  }
}

/* ---- masks -------------------------------------------------------------------------------------------------------------------------------- */

static void complaint_06_a_float_mask_became_boolean(void **state) {
  (void)state;
  random_source r = {.seed = 6};
  sample s;
  shaped(&s, 1, 1, 1, 3, 5, 4, SAMPLE_BIAS, &r);
  for (int i = 0; i < 15; i++) s.bias_data[i] = 0;
  float *before = run_weights(context, &s);
  s.bias_data[1 * 5 + 2] = 3;
  float *after = run_weights(context, &s);
  double odds = (double)after[7] / after[5] / ((double)before[7] / before[5]);
  assert_close(odds, exp(3), 1e-4, "the odds of a biased pair", r.seed);
  sample_run(context, &s);
  float *out = copy_of(s.out, 12);
  ok(context, heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL)); // as in evaluation
  assert_same_bytes(s.out, out, 48, "with and without lse", r.seed);
  expect_reference(&s, &r); // its gradient too
  free(before);
  free(after);
  free(out);
  sample_free(&s);
}

static void complaint_07_one_polarity(void **state) {
  (void)state;
  random_source r = {.seed = 7};
  sample s;
  shaped(&s, 1, 1, 1, 4, 6, 4, SAMPLE_ATTEND, &r);
  const heed_attention plain = {.size = sizeof plain};
  ok(context, heed_attention_forward(context, &plain, &s.vq, &s.vk, &s.vv, &s.vout, NULL));
  float *out = copy_of(s.out, 16);
  const heed_type types[] = {HEED_BOOL, HEED_U8};
  for (int i = 0; i < 2; i++) {
    s.vattend.type = types[i];
    memset(s.attend_data, 1, 24); // true: may look
    sample_run(context, &s);
    assert_same_bytes(s.out, out, 16 * 4, "true everywhere", r.seed);
    memset(s.attend_data, 0, 24);
    sample_run(context, &s);
    for (int j = 0; j < 16; j++) assert_true(s.out[j] == 0);
  }
  char text[1 << 16] = {0};
  FILE *header = fopen(HEED_TEST_DATA "/../../include/heed/heed.h", "r");
  assert_non_null(header);
  assert_true(fread(text, 1, sizeof text - 1, header) > 0);
  fclose(header);
  const char *said = strstr(text, "true = may look");
  assert_true(said && strstr(said, "key_padding_mask means the"));
  free(out);
  sample_free(&s);
}

static void complaint_08_a_zero_one_mask_was_added(void **state) {
  (void)state;
  random_source r = {.seed = 8};
  sample s;
  shaped(&s, 1, 1, 1, 4, 6, 4, 0, &r);
  float numbers[24] = {0};
  uint8_t truths[24] = {0};
  heed_view mask = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){4, 6}), bias = heed_view_of(truths, HEED_BOOL, 2, (int64_t[]){4, 6});
  s.a.attend = &mask;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_TYPE);
  assert_non_null(strstr(heed_error(context), "`bias`"));
  s.a.attend = NULL;
  s.a.bias = &bias;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_TYPE);
  assert_non_null(strstr(heed_error(context), "`attend`"));
  sample_free(&s);
}

static void complaint_09_causal_with_more_keys_than_queries(void **state) {
  (void)state;
  random_source r = {.seed = 9};
  sample s;
  shaped(&s, 1, 1, 1, 1, 5, 4, 0, &r);
  gradients g;
  s.a.causal = true;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "1 queries and 5 keys"));
  for (int end = 0; end < 2; end++) {
    if (end) align_end(&s);
    else align_start(&s);
    gradients_begin(context, &s, &r, &g);
    float *weights = run_weights(context, &s);
    for (int64_t j = 1; j < 5; j++) {
      assert_int_equal(weights[j] > 0, end); // START sees the first key alone, END all of them
      assert_int_equal(g.data[DV][j * 4] != 0, end);
    }
    free(weights);
    gradients_free(&g);
  }
  sample_free(&s);
}

/* ---- memory layouts ------------------------------------------------------------------------------------------------------------------- */

/* The view's numbers with its axes stored in the order given, innermost last. */
static float *store_in_order(heed_view *view, const int order[4]) {
  heed_view moved = *view;
  int64_t stride = 1, count = hd_view_count(view);
  float *memory = floats(count);
  for (int i = 3; i >= 0; i--) {
    moved.stride[order[i]] = stride;
    stride *= view->dim[order[i]];
  }
  moved.data = memory;
  for (int64_t i = 0; i < count; i++) memcpy(view_element(&moved, i), view_element(view, i), sizeof *memory);
  *view = moved;
  return memory;
}

static void complaint_10_transposed_expanded_and_sliced_inputs(void **state) {
  (void)state;
  random_source r = {.seed = 10};
  sample s;
  shaped(&s, 2, 4, 2, 5, 7, 3, 0, &r);
  gradients g;
  gradients_begin(context, &s, &r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s.out, sample_out_count(&s));
  for (int order = 0; order < 24; order++) {
    int axes[4] = {0, 1, 2, 3}, rest = order;
    for (int i = 0; i < 3; i++) { // permutation number `order`
      int swap = axes[i], at = i + rest % (4 - i);
      rest /= 4 - i;
      axes[i] = axes[at];
      axes[at] = swap;
    }
    sample other = s;
    gradients into = g;
    heed_view *const views[] = {&other.vq, &other.vk, &other.vv, &other.vout, &into.vdout, &into.view[DQ], &into.view[DK], &into.view[DV]};
    float *memory[8];
    for (int i = 0; i < 8; i++) memory[i] = store_in_order(views[i], axes);
    sample_run(context, &other);
    gradients_run(context, &other, &into);
    for (int64_t i = 0; i < sample_out_count(&s); i++) assert_same_bytes(view_element(&other.vout, i), out + i, 4, "out", r.seed);
    for (int k = DQ; k <= DV; k++)
      for (int64_t i = 0; i < g.count[k]; i++)
        assert_same_bytes(view_element(&into.view[k], i), kept.data[k] + i, 4, gradient_names[k], r.seed);
    for (int i = 0; i < 8; i++) free(memory[i]);
  }
  // Expanded: one batch entry and one head, seen everywhere by strides of 0, against copies of it.
  for (int64_t h = 1; h < 4; h++) memcpy(s.k + h * 21, s.k, 21 * 4), memcpy(s.v + h * 21, s.v, 21 * 4);
  sample_run(context, &s);
  memcpy(out, s.out, (size_t)sample_out_count(&s) * 4);
  s.vk.stride[0] = s.vk.stride[1] = s.vv.stride[0] = s.vv.stride[1] = 0;
  sample_run(context, &s);
  assert_same_bytes(s.out, out, sample_out_count(&s) * 4, "expanded keys and values", r.seed);
  // Sliced: every other query, the last three columns of a wider row cannot be read as they are without their own strides.
  sample_views(&s);
  sample_run(context, &s);
  heed_view q = s.vq, sliced = s.vout;
  float *part = floats(2 * 4 * 3 * 3);
  q.dim[2] = 3;
  q.stride[2] *= 2;
  sliced = heed_view_of(part, HEED_F32, 4, (int64_t[]){2, 4, 3, 3});
  ok(context, heed_attention_forward(context, &s.a, &q, &s.vk, &s.vv, &sliced, NULL));
  for (int64_t row = 0; row < 2 * 4 * 3; row++)
    assert_same_bytes(part + row * 3, s.out + (row / 3 * 5 + row % 3 * 2) * 3, 12, "every other query", r.seed);
  free(part);
  free(out);
  kept_free(&kept);
  gradients_free(&g);
  sample_free(&s);
}

static void complaint_11_reading_past_the_last_key(void **state) {
  (void)state;
  for (int64_t m = 64; m < 128; m++) { // every residue modulo 64
    random_source r = {.seed = 11};
    sample s;
    shaped(&s, 1, 1, 1, 17, m, 8, 0, &r);
    gradients g;
    gradients_make(&g, &s, &r);
    guarded k = guard(&s.vk, true), v = guard(&s.vv, true), dk = guard(&g.view[DK], true), dv = guard(&g.view[DV], true);
    sample_run(context, &s);
    gradients_run(context, &s, &g);
    guard_free(&k);
    guard_free(&v);
    guard_free(&dk);
    guard_free(&dv);
    gradients_free(&g);
    sample_free(&s);
  }
}

static void complaint_12_empty_tensors(void **state) {
  (void)state;
  for (int zero = 0; zero < 5; zero++) {
    random_source r = {.seed = 12};
    sample s;
    shaped(&s, zero != 0, zero == 1 ? 0 : 4, zero == 1 ? 0 : 2, zero == 2 ? 0 : 3, zero == 3 ? 0 : 5, zero == 4 ? 0 : 6, 0, &r);
    gradients g;
    gradients_begin(context, &s, &r, &g);
    free(run_weights(context, &s));
    heed_plan plan = {.size = sizeof plan};
    ok(context, heed_attention_explain_plan(context, &s.a, &s.vq, &s.vk, &s.vv, &plan));
    for (int64_t i = 0; zero == 3 && i < sample_out_count(&s); i++) assert_true(s.out[i] == 0);
    expect_finite(&g);
    gradients_free(&g);
    sample_free(&s);
  }
  random_source r = {.seed = 12};
  sample s;
  shaped(&s, 1, 4, 2, 3, 5, 6, 0, &r);
  s.vk.dim[1] = s.vv.dim[1] = 0; // H % 0
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_SHAPE);
  sample_free(&s);
}

/* ---- work and memory ------------------------------------------------------------------------------------------------------------------ */

/* [2,2,8,64,32] with 8 heads over 2 is a batch of 4, runs the fused kernel and takes no n². */
static void complaint_13_five_dimensions_and_groups_fall_back(void **state) {
  (void)state;
  random_source r = {.seed = 13};
  sample s;
  shaped(&s, 4, 8, 2, 64, 64, 32, SAMPLE_CAUSAL, &r);
  ledger l;
  heed_context *counting = ledger_context(&l, 1);
  align_start(&s);
  sample_run(context, &s);
  float *out = floats(sample_out_count(&s));
  heed_view q = heed_view_of(s.q, HEED_F32, 5, (int64_t[]){2, 2, 8, 64, 32}),
            k = heed_view_of(s.k, HEED_F32, 5, (int64_t[]){2, 2, 2, 64, 32});
  heed_view v = heed_view_of(s.v, HEED_F32, 5, (int64_t[]){2, 2, 2, 64, 32}),
            o = heed_view_of(out, HEED_F32, 5, (int64_t[]){2, 2, 8, 64, 32});
  heed_plan five = {.size = sizeof five}, four = five;
  ok(context, heed_attention_explain_plan(context, &s.a, &q, &k, &v, &five));
  ok(context, heed_attention_explain_plan(context, &s.a, &s.vq, &s.vk, &s.vv, &four));
  assert_non_null(strstr(five.kernel, "fused"));
  assert_string_equal(five.kernel, four.kernel);
  assert_int_equal(five.tiles, four.tiles);
  assert_true(five.flops == four.flops);
  l.peak = l.now;
  int64_t before = l.now;
  ok(counting, heed_attention_forward(counting, &s.a, &q, &k, &v, &o, NULL));
  assert_same_bytes(out, s.out, sample_out_count(&s) * 4, "five dimensions", r.seed);
  assert_true(l.peak - before < 4 * 8 * 64 * 64 * 4); // less than the matrices of weights
  heed_context_free(counting);
  free(out);
  sample_free(&s);
}

static int64_t training_peak(int64_t n, double dropout) {
  random_source r = {.seed = 14};
  sample s;
  shaped(&s, 1, 1, 1, n, n, 8, SAMPLE_CAUSAL, &r);
  gradients g;
  ledger l;
  heed_context *counting = ledger_context(&l, 2);
  align_start(&s);
  s.a.dropout = dropout;
  gradients_make(&g, &s, &r);
  l.peak = l.now;
  int64_t before = l.now;
  sample_run(counting, &s);
  gradients_run(counting, &s, &g);
  int64_t bytes = l.peak - before;
  heed_context_free(counting);
  gradients_free(&g);
  sample_free(&s);
  return bytes;
}

static void complaint_14_dropout_doubles_memory(void **state) {
  (void)state;
  int64_t dropped = training_peak(4096, 0.1), plain = training_peak(4096, 0), half = training_peak(2048, 0.1);
  assert_true(dropped <= plain + 64 * 1024);
  assert_true(dropped <= 2 * half); // O(n)
}

static void complaint_15_odd_lengths_train(void **state) {
  (void)state;
  const int64_t lengths[] = {127, 129, 1000};
  for (int i = 0; i < 3; i++) {
    random_source r = {.seed = 15};
    sample s;
    shaped(&s, 1, 1, 1, lengths[i], lengths[i], 4, SAMPLE_CAUSAL, &r);
    align_start(&s);
    expect_reference(&s, &r);
    sample_free(&s);
  }
}

/* Batch entry 0 of nine has the bits it has alone. */
static void complaint_16_bits_change_with_the_batch(void **state) {
  (void)state;
  random_source r = {.seed = 16};
  sample s;
  shaped(&s, 9, 4, 2, 33, 70, 24, SAMPLE_CAUSAL, &r);
  gradients g;
  align_end(&s);
  gradients_begin(context, &s, &r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s.out, sample_out_count(&s));
  heed_view *const views[] = {&s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &g.view[DQ], &g.view[DK], &g.view[DV]};
  for (int i = 0; i < 9; i++) views[i]->dim[0] = 1;
  memset(s.out, 0x7f, 4 * 33 * 24 * 4);
  sample_run(context, &s);
  gradients_run(context, &s, &g);
  assert_same_bytes(s.out, out, sample_out_count(&s) * 4, "alone and among nine", r.seed);
  gradients_unchanged(kept, &g, "one alone and among nine", r.seed);
  free(out);
  gradients_free(&g);
  sample_free(&s);
}

static void complaint_17_unusual_head_widths(void **state) {
  (void)state;
  const int64_t widths[] = {72, 80, 112, 256, 512};
  for (int i = 0; i < 5; i++)
    for (int64_t n = 1; n <= 33; n += 32) { // decoding too
      random_source r = {.seed = 17};
      sample s;
      shaped(&s, 1, 2, 1, n, 70, widths[i], 0, &r);
      expect_reference(&s, &r);
      sample_free(&s);
    }
}

static void complaint_18_tail_columns_on_one_instruction_set(void **state) {
  (void)state;
  for (int64_t d = 1; d <= 49; d++) {
    random_source r = {.seed = 18};
    sample s;
    shaped(&s, 1, 1, 1, 35, 40, d, 0, &r);
    gradients g;
    gradients_begin(context, &s, &r, &g);
    float *out = copy_of(s.out, sample_out_count(&s));
    for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
      if (!heed_level_available(level)) continue;
      heed_context *with = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
      kept_gradients kept = gradients_keep(&g);
      sample_run(with, &s);
      gradients_run(with, &s, &g);
      assert_same_bytes(s.out, out, sample_out_count(&s) * 4, heed_level_name(level), r.seed);
      gradients_unchanged(kept, &g, heed_level_name(level), r.seed);
      heed_context_free(with);
    }
    free(out);
    gradients_free(&g);
    sample_free(&s);
  }
}

/* The composed form multiplies every pair, visible or not; the fused one never more than that, and of a causal or windowed matrix only the tiles that are seen. */
static void complaint_19_fused_does_more_than_composed(void **state) {
  (void)state;
  float unused;
  const int64_t lengths[] = {512, 8192}, d = 64;
  for (int i = 0; i < 2; i++)
    for (int kind = 0; kind < 3; kind++) {
      const int64_t n = lengths[i];
      heed_view view = heed_view_of(&unused, HEED_F32, 3, (int64_t[]){1, n, d});
      memset(view.stride, 0, sizeof view.stride); // shapes only
      heed_attention a = {.size = sizeof a, .causal = kind > 0, .has_window_left = kind == 2, .window_left = 127};
      heed_plan plan = {.size = sizeof plan};
      ok(context, heed_attention_explain_plan(context, &a, &view, &view, &view, &plan));
      const double composed = 4.0 * (double)d * (double)n * (double)n;
      assert_true(plan.flops <= composed);
      if (kind == 1) assert_true(plan.flops <= composed * (0.5 + 64.0 / (double)n));
      if (kind == 2) assert_true(plan.flops <= composed * (128 + 2 * 64 + 16) / (double)n);
    }
}

static void complaint_20_boolean_masks_that_are_all_false(void **state) {
  (void)state;
  const int64_t shapes[][4] = {{1, 1, 1, 1}, {1, 1, 1, 9}, {1, 1, 5, 1}, {1, 2, 5, 9}, {3, 1, 1, 9}, {3, 2, 5, 9}};
  for (int i = 0; i < 6; i++)
    for (int rank = i ? 4 : 2; rank <= 4; rank++) {
      random_source r = {.seed = 20};
      sample s;
      shaped(&s, 3, 2, 1, 5, 9, 4, SAMPLE_ATTEND, &r);
      gradients g;
      memset(s.attend_data, 0, 3 * 2 * 5 * 9);
      s.vattend = heed_view_of(s.attend_data, HEED_BOOL, rank, shapes[i] + 4 - rank);
      gradients_begin(context, &s, &r, &g);
      float *weights = run_weights(context, &s);
      for (int64_t row = 0; row < 3 * 2 * 5; row++) expect_dead(&s, &g, weights, row);
      for (int k = 0; k < GRADIENTS; k++)
        for (int64_t j = 0; j < g.count[k]; j++) assert_true(g.data[k][j] == 0);
      free(weights);
      gradients_free(&g);
      sample_free(&s);
    }
}

/* ---- threads and levels --------------------------------------------------------------------------------------------------------------- */

/* Threads of this process, as the system counts them. */
static int64_t threads_now(void) {
  int64_t count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

typedef struct caller {
  sample s;
  gradients g;
  uint64_t seed;
  int64_t seen; /* most threads while it was at work */
  bool done;
} caller;

/* One call after another with a context of its own. */
static void call_a_few_times(caller *c) {
  random_source r = {.seed = c->seed};
  heed_context *own = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 4});
  shaped(&c->s, 2, 4, 2, 130, 150, 16, 0, &r);
  gradients_make(&c->g, &c->s, &r);
  for (int i = 0; i < 5; i++) {
    sample_run(own, &c->s);
    gradients_run(own, &c->s, &c->g);
    c->seen = threads_now() > c->seen ? threads_now() : c->seen;
  }
  heed_context_free(own);
}

static void expect_serial_bits(caller *c) {
  heed_context *serial = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1});
  float *out = copy_of(c->s.out, sample_out_count(&c->s));
  kept_gradients kept = gradients_keep(&c->g);
  sample_run(serial, &c->s);
  gradients_run(serial, &c->s, &c->g);
  assert_same_bytes(c->s.out, out, sample_out_count(&c->s) * 4, "calls at once", c->seed);
  gradients_unchanged(kept, &c->g, "calls at once", c->seed);
  free(out);
  gradients_free(&c->g);
  sample_free(&c->s);
  heed_context_free(serial);
}

static void *call_from_a_thread(void *argument) {
  call_a_few_times(argument);
  return NULL;
}

static void complaint_21_thread_pools_inside_thread_pools(void **state) {
  (void)state;
  caller callers[4] = {{.seed = 211}, {.seed = 212}, {.seed = 213}, {.seed = 214}};
  // Inside the host's parallel region heed stays on the thread that called: no thread is added to those of the region.
  int64_t region = 0;
#pragma omp parallel num_threads(2)
  {
#pragma omp critical
    region = threads_now() > region ? threads_now() : region;
#pragma omp barrier
#pragma omp for schedule(static, 1)
    for (int i = 0; i < 2; i++) call_a_few_times(&callers[i]);
  }
  for (int i = 0; i < 2; i++) {
    assert_true(callers[i].seen <= region);
    expect_serial_bits(&callers[i]);
  }
  // From four threads at once, each with a context of its own.
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) {
    callers[i] = (caller){.seed = 221 + (uint64_t)i};
    assert_int_equal(pthread_create(&thread[i], NULL, call_from_a_thread, &callers[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < 4; i++) expect_serial_bits(&callers[i]);
  // A host's own parallel_for takes every piece, forward and backward.
  int64_t calls = 0;
  random_source r = {.seed = 21};
  heed_context *hosted =
      test_context(&(heed_options){.size = sizeof(heed_options), .threads = 3, .parallel_for = pthread_parallel, .parallel_user = &calls});
  caller host = {.seed = 21};
  shaped(&host.s, 2, 4, 2, 130, 150, 16, 0, &r);
  gradients_make(&host.g, &host.s, &r);
  sample_run(hosted, &host.s);
  int64_t forward = calls;
  gradients_run(hosted, &host.s, &host.g);
  assert_true(forward > 0 && calls > forward);
  expect_serial_bits(&host);
  heed_context_free(hosted);
}

/* The level is chosen when a context is made, from what the processor has; the context and the plan name it. */
static void complaint_22_the_instruction_set_is_chosen_at_run_time(void **state) {
  (void)state;
  heed_context *best = NULL;
  ok(NULL, heed_context_new(NULL, &best));
  // Those that give the same bits; the others are asked for by name.
  const heed_level chosen[] = {HEED_LEVEL_SCALAR, HEED_LEVEL_AVX2, HEED_LEVEL_AVX512, HEED_LEVEL_NEON};
  heed_level most = HEED_LEVEL_SCALAR;
  for (int i = 0; i < 4; i++)
    if (heed_level_available(chosen[i])) most = chosen[i];
  assert_int_equal(heed_context_level(best), most);
  heed_context_free(best);
  float numbers[16] = {0}; // more queries than the decoding kernel takes, which the bf16 levels share with avx512
  heed_view view = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){16, 1});
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    if (!heed_level_available(level)) continue;
    heed_context *with = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
    heed_plan plan = {.size = sizeof plan};
    ok(with, heed_attention_explain_plan(with, NULL, &view, &view, &view, &plan));
    assert_non_null(strstr(plan.kernel, heed_level_name(level)));
    assert_int_equal(heed_context_level(with), level);
    heed_context_free(with);
  }
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------------------------ */

/* Visible scores of about −9000 beside masked ones of about 0: what is hidden has no weight at all, under every combination of masks. */
static void complaint_23_a_finite_number_for_minus_infinity(void **state) {
  (void)state;
  random_source r = {.seed = 23};
  sample s;
  shaped(&s, 1, 1, 1, 20, 20, 4, SAMPLE_CAUSAL | SAMPLE_LENGTHS | SAMPLE_BIAS, &r);
  gradients g;
  align_start(&s);
  s.lengths[0] = 15;
  for (int64_t i = 0; i < 20; i++)
    for (int64_t j = 0; j < 20; j++) s.bias_data[i * 20 + j] = j <= i && j < 15 ? -9000 + (float)below(&r, 3) : 0;
  gradients_begin(context, &s, &r, &g);
  float *weights = run_weights(context, &s);
  for (int64_t i = 0; i < 20; i++) {
    double sum = 0;
    for (int64_t j = 0; j < 20; j++) {
      if (j > i || j >= 15) assert_true(weights[i * 20 + j] == 0);
      sum += weights[i * 20 + j];
    }
    assert_close(sum, 1, 1e-5, "weights of what is visible", r.seed);
  }
  for (int64_t j = 15 * 4; j < 20 * 4; j++) assert_true(g.data[DK][j] == 0 && g.data[DV][j] == 0);
  free(weights);
  gradients_free(&g);
  sample_free(&s);
}

/* dk and dv in bf16 are those in f32, rounded once at the end. */
static void complaint_24_bf16_gradients_are_summed_in_f32(void **state) {
  (void)state;
  random_source r = {.seed = 24};
  sample s;
  shaped(&s, 1, 1, 1, 4096, 32, 8, 0, &r);
  gradients g;
  for (int64_t i = 0; i < 4096 * 8; i++) s.q[i] = hd_bf16_to_f32(hd_f32_to_bf16(s.q[i]));
  gradients_begin(context, &s, &r, &g);
  uint16_t *halves[GRADIENTS] = {NULL};
  heed_view view[GRADIENTS];
  for (int i = DQ; i <= DV; i++) {
    halves[i] = malloc((size_t)g.count[i] * 2);
    view[i] = heed_view_of(halves[i], HEED_BF16, 4, g.view[i].dim);
  }
  heed_attention_gradients to = gradients_out(&g, view);
  ok(context, heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &to));
  for (int i = DQ; i <= DV; i++) {
    for (int64_t j = 0; j < g.count[i]; j++) assert_int_equal(halves[i][j], hd_f32_to_bf16(g.data[i][j]));
    free(halves[i]);
  }
  gradients_free(&g);
  sample_free(&s);
}

/* Asking for what this version does not know, as derivatives of gradients would be, is refused by name before anything is computed; the header says that there are none. */
static void complaint_25_second_derivatives_are_refused(void **state) {
  (void)state;
  random_source r = {.seed = 25};
  sample s;
  shaped(&s, 1, 1, 1, 3, 3, 4, 0, &r);
  gradients g;
  gradients_begin(context, &s, &r, &g);
  kept_gradients kept = gradients_keep(&g);
  struct {
    heed_attention_gradients known;
    const heed_view *later; /* a field of a version to come */
  } asked = {.known = gradients_out(&g, g.view), .later = &g.vdout};
  asked.known.size = sizeof asked;
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &asked.known),
                   HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "heed_attention_gradients"));
  gradients_unchanged(kept, &g, "a refused call", r.seed);
  asked.later = NULL; // a newer header whose new field is left alone
  ok(context, heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &asked.known));
  gradients_free(&g);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(complaint_01_a_row_whose_mask_is_all_false),
      cmocka_unit_test(complaint_02_a_padded_sequence_poisons_its_batch),
      cmocka_unit_test(complaint_03_dead_rows_differ_between_kernels),
      cmocka_unit_test(complaint_04_nan_input_became_zero),
      cmocka_unit_test(complaint_05_nan_behind_the_mask),
      cmocka_unit_test(complaint_06_a_float_mask_became_boolean),
      cmocka_unit_test(complaint_07_one_polarity),
      cmocka_unit_test(complaint_08_a_zero_one_mask_was_added),
      cmocka_unit_test(complaint_09_causal_with_more_keys_than_queries),
      cmocka_unit_test(complaint_10_transposed_expanded_and_sliced_inputs),
      cmocka_unit_test(complaint_11_reading_past_the_last_key),
      cmocka_unit_test(complaint_12_empty_tensors),
      cmocka_unit_test(complaint_13_five_dimensions_and_groups_fall_back),
      cmocka_unit_test(complaint_14_dropout_doubles_memory),
      cmocka_unit_test(complaint_15_odd_lengths_train),
      cmocka_unit_test(complaint_16_bits_change_with_the_batch),
      cmocka_unit_test(complaint_17_unusual_head_widths),
      cmocka_unit_test(complaint_18_tail_columns_on_one_instruction_set),
      cmocka_unit_test(complaint_19_fused_does_more_than_composed),
      cmocka_unit_test(complaint_20_boolean_masks_that_are_all_false),
      cmocka_unit_test(complaint_21_thread_pools_inside_thread_pools),
      cmocka_unit_test(complaint_22_the_instruction_set_is_chosen_at_run_time),
      cmocka_unit_test(complaint_23_a_finite_number_for_minus_infinity),
      cmocka_unit_test(complaint_24_bf16_gradients_are_summed_in_f32),
      cmocka_unit_test(complaint_25_second_derivatives_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
