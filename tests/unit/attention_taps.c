/* Rows of the matrix at every stage from q·k to the weights: against the formula in double precision, against each other, and bit for bit over levels, threads and the
 * rows asked for. */
#include "attention_sample.h"

#include "../../src/base/base.h"

#define TAPS (HEED_TAP_DROPPED + 1)
static const char *const tap_name[TAPS] = {"weights", "scores", "capped", "biased", "dropped"};
static heed_context *context;

static int64_t pairs(const sample *s) { return s->batch * s->heads * s->n * s->m; }

static double *tap_reference(const sample *s, heed_tap tap) {
  const heed_attention_rows asked = {.size = sizeof asked, .tap = tap};
  double *data = calloc((size_t)pairs(s) + 1, sizeof *data);
  heed_view view = heed_view_of(data, HEED_F64, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
  ok(context, heed_attention_weights_reference(context, &s->a, &s->vq, &s->vk, &asked, &view));
  return data;
}

PROPERTY(every_tap_is_the_formula, 200, SAMPLE_EVERYTHING) {
  for (heed_tap tap = 0; tap < TAPS; tap++) {
    float *got = run_tap(context, s, tap);
    double *want = tap_reference(s, tap);
    for (int64_t i = 0; i < pairs(s); i++) assert_close(got[i], want[i], 4e-6 * fmax(1, fabs(want[i])), tap_name[tap], r->seed);
    free(got);
    free(want);
  }
}

/* Visibility here is what the test says itself, so that the oracle cannot be wrong in the same way. */
static int64_t document(const int64_t *bound, int64_t index) {
  int64_t t = 0;
  while (index >= bound[t + 1]) t++;
  return t;
}

static bool visible(const sample *s, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const heed_attention *a = &s->a;
  int64_t queries = s->n, keys = a->key_lengths ? a->key_lengths[batch] : s->m, position = query;
  if (key >= keys) return false;
  if (a->documents) {
    int64_t t = document(a->query_documents, query);
    if (document(a->key_documents, key) != t) return false;
    queries = a->query_documents[t + 1] - a->query_documents[t];
    keys = a->key_documents[t + 1] - a->key_documents[t];
    position += a->key_documents[t] - a->query_documents[t];
  }
  position += a->align == HEED_ALIGN_END ? keys - queries : a->align == HEED_ALIGN_GIVEN ? a->offset : 0;
  int64_t pair = ((batch * s->heads + head) * s->n + query) * s->m + key, at[4] = {batch, head, query, key}, bias = 0;
  for (int i = 0; i < 4; i++) bias += s->vbias.dim[i] > 1 ? at[i] * s->vbias.stride[i] : 0;
  return (!a->causal || key <= position) && (!a->has_window_left || key >= position - a->window_left) &&
         (!a->has_window_right || key <= position + a->window_right) && (!s->attend_data || s->attend_data[pair]) &&
         (!s->bias_data || s->bias_data[bias] != -INFINITY);
}

PROPERTY(hidden_keys_are_exactly_nothing, 129, SAMPLE_EVERYTHING) {
  float *rows[TAPS];
  for (heed_tap tap = 0; tap < TAPS; tap++) rows[tap] = run_tap(context, s, tap);
  for (int64_t i = 0; i < pairs(s); i++) {
    bool seen = visible(s, i / s->m / s->n / s->heads, i / s->m / s->n % s->heads, i / s->m % s->n, i % s->m);
    if (seen ? rows[HEED_TAP_BIASED][i] == -INFINITY
             : rows[HEED_TAP_BIASED][i] != -INFINITY || rows[HEED_TAP_WEIGHTS][i] != 0 || rows[HEED_TAP_DROPPED][i] != 0)
      fail_msg("pair %lld (seed %llu)", (long long)i, (unsigned long long)r->seed);
    assert_true(isfinite(rows[HEED_TAP_SCORES][i]) && isfinite(rows[HEED_TAP_CAPPED][i]));
  }
  for (heed_tap tap = 0; tap < TAPS; tap++) free(rows[tap]);
}

/* A stage that is not asked for changes no bit: without softcap CAPPED is SCORES, without bias and restrictions BIASED is CAPPED, without dropout DROPPED is WEIGHTS. */
PROPERTY(absent_stages_change_nothing, 129, SAMPLE_SOFTCAP) {
  float *capped = run_tap(context, s, HEED_TAP_CAPPED), *biased = run_tap(context, s, HEED_TAP_BIASED);
  assert_same_bytes(capped, biased, pairs(s) * 4, "no bias", r->seed);
  free(capped);
  float *weights = run_weights(context, s), *dropped = run_tap(context, s, HEED_TAP_DROPPED);
  assert_same_bytes(weights, dropped, pairs(s) * 4, "no dropout", r->seed);
  free(weights);
  free(dropped);
  s->a.softcap = 0;
  float *scores = run_tap(context, s, HEED_TAP_SCORES);
  capped = run_tap(context, s, HEED_TAP_CAPPED);
  assert_same_bytes(scores, capped, pairs(s) * 4, "no softcap", r->seed);
  free(scores);
  free(capped);
  free(biased);
}

/* What is left after dropout is what forward multiplies the values by. */
PROPERTY(dropped_weights_give_the_output, 129, SAMPLE_EVERYTHING) {
  sample_run(context, s);
  float *weights = run_tap(context, s, HEED_TAP_DROPPED);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    int64_t head = row / s->n % s->heads, kv = row / s->n / s->heads * s->kv_heads + head / (s->heads / s->kv_heads);
    for (int64_t c = 0; c < s->dv; c++) {
      double o = 0;
      for (int64_t key = 0; key < s->m; key++) o += (double)weights[row * s->m + key] * s->v[(kv * s->m + key) * s->dv + c];
      assert_close(s->out[row * s->dv + c], o, 4e-6 * fmax(1, fabs(o)), "out", r->seed);
    }
  }
  free(weights);
}

/* A hidden key of NaN is seen by no row but, as its own column, in the taps that ask nobody's leave. */
PROPERTY(p13_garbage_stays_in_its_column, 129, SAMPLE_CAUSAL | SAMPLE_BIAS) {
  s->a.align = HEED_ALIGN_GIVEN;
  s->a.offset = -1; // the last key is hidden from every query but those past it
  if (s->n > s->m) s->a.offset = -s->n;
  for (heed_tap tap = 0; tap < TAPS; tap++) {
    float *before = run_tap(context, s, tap);
    for (int64_t row = 0; row < s->batch * s->kv_heads; row++) s->k[((row + 1) * s->m - 1) * s->d] = NAN;
    float *after = run_tap(context, s, tap);
    for (int64_t row = 0; row < s->batch * s->kv_heads; row++) s->k[((row + 1) * s->m - 1) * s->d] = 0.25f;
    bool everybody = tap == HEED_TAP_SCORES || tap == HEED_TAP_CAPPED;
    for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
      assert_same_bytes(before + row * s->m, after + row * s->m, (s->m - everybody) * 4, tap_name[tap], r->seed);
      if (everybody) assert_true(isnan(after[(row + 1) * s->m - 1]));
    }
    free(before);
    free(after);
  }
}

PROPERTY(p34_p35_levels_and_threads_give_the_same_bits, 129, SAMPLE_EVERYTHING) {
  const int threads[] = {1, 3, 8};
  for (heed_tap tap = 0; tap < TAPS; tap++) {
    float *here = run_tap(context, s, tap);
    for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
      if (!heed_level_available(level)) continue;
      heed_context *other = test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads[level % 3]});
      float *there = run_tap(other, s, tap);
      assert_same_bytes(here, there, pairs(s) * 4, tap_name[tap], r->seed);
      free(there);
      heed_context_free(other);
    }
    free(here);
  }
}

/* Rows by name, in any order and twice, into a transposed array with gaps. */
PROPERTY(rows_and_heads_by_name, 129, SAMPLE_EVERYTHING) {
  enum { ASKED = 5 };
  int64_t heads[2] = {s->heads - 1, 0}, rows[ASKED];
  for (int i = 0; i < ASKED; i++) rows[i] = below(r, s->n);
  for (heed_tap tap = 0; tap < TAPS; tap++) {
    heed_attention_rows asked = {.size = sizeof asked, .tap = tap, .n_heads = 2, .heads = heads, .n_rows = ASKED, .rows = rows};
    float *all = run_tap(context, s, tap), *some = floats(s->batch * 2 * s->m * (ASKED + 1));
    heed_view view = heed_view_of(some, HEED_F32, 4, (int64_t[]){s->batch, 2, s->m, ASKED + 1});
    view = heed_view_swap(view, 2, 3);
    view.dim[2] = ASKED;
    ok(context, heed_attention_weights(context, &s->a, &s->vq, &s->vk, &asked, &view));
    for (int64_t b = 0; b < s->batch; b++)
      for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < ASKED; i++)
          for (int64_t key = 0; key < s->m; key++)
            assert_same_bytes(&all[((b * s->heads + heads[h]) * s->n + rows[i]) * s->m + key],
                              &some[((b * 2 + h) * s->m + key) * (ASKED + 1) + i], 4, tap_name[tap], r->seed);
    free(all);
    free(some);
  }
}

/* What is stored in halves is the nearest half of what is stored in f32. */
PROPERTY(halves_are_rounded_once, 65, SAMPLE_EVERYTHING) {
  static const heed_type types[] = {HEED_F16, HEED_BF16};
  for (heed_tap tap = 0; tap < TAPS; tap++)
    for (int t = 0; t < 2; t++) {
      const heed_attention_rows asked = {.size = sizeof asked, .tap = tap};
      float *wide = run_tap(context, s, tap);
      uint16_t *halves = calloc((size_t)pairs(s) + 1, sizeof *halves);
      heed_view view = weights_view(s, NULL);
      view.data = halves;
      view.type = types[t];
      ok(context, heed_attention_weights(context, &s->a, &s->vq, &s->vk, &asked, &view));
      for (int64_t i = 0; i < pairs(s); i++)
        if (halves[i] != (types[t] == HEED_F16 ? hd_f32_to_f16 : hd_f32_to_bf16)(wide[i]))
          fail_msg("%s in %s: element %lld (seed %llu)", tap_name[tap], heed_type_name(types[t]), (long long)i,
                   (unsigned long long)r->seed);
      free(wide);
      free(halves);
    }
}

/* The largest bias that hides nothing leaves a finite row: its weights are those of equal scores. */
static void lowest_float_as_bias(void **state) {
  (void)state;
  float q[2] = {1, 2}, k[4] = {1, 0, 0, 1}, bias[2] = {-3.4028235e38f, -3.4028235e38f}, row[2];
  heed_view vq = heed_view_of(q, HEED_F32, 2, (int64_t[]){1, 2}), vk = heed_view_of(k, HEED_F32, 2, (int64_t[]){2, 2});
  heed_view vb = heed_view_of(bias, HEED_F32, 2, (int64_t[]){1, 2}), vw = heed_view_of(row, HEED_F32, 2, (int64_t[]){1, 2});
  heed_attention a = {.size = sizeof a, .bias = &vb};
  heed_attention_rows asked = {.size = sizeof asked, .tap = HEED_TAP_BIASED};
  ok(context, heed_attention_weights(context, &a, &vq, &vk, &asked, &vw));
  assert_true(row[0] == bias[0] && row[1] == bias[1]);
  ok(context, heed_attention_weights(context, &a, &vq, &vk, NULL, &vw));
  assert_true(row[0] == 0.5f && row[1] == 0.5f);
}

static int setup(void **state) {
  (void)state;
  context = test_context(NULL);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  heed_context_free(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_tap_is_the_formula),
      cmocka_unit_test(hidden_keys_are_exactly_nothing),
      cmocka_unit_test(absent_stages_change_nothing),
      cmocka_unit_test(dropped_weights_give_the_output),
      cmocka_unit_test(p13_garbage_stays_in_its_column),
      cmocka_unit_test(p34_p35_levels_and_threads_give_the_same_bits),
      cmocka_unit_test(rows_and_heads_by_name),
      cmocka_unit_test(halves_are_rounded_once),
      cmocka_unit_test(lowest_float_as_bias),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
