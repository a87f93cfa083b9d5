/* attention_bf16: the levels avx512bf16 and amx, which multiply bf16 as it lies. Their outputs are held to a bound against the double-precision formula of the same numbers, and
 * what does not depend on rounding holds exactly: who is seen, rows that see nothing, one row's bits whatever stands beside it. */
#include "attention_sample.h"

#include "../../src/kern/kernels.h"

static heed_context *context;

/* Rounds q, k and v to bf16 and points the sample's views at the halves, which the caller frees; the f32 arrays keep the same numbers. */
static void become_bf16(sample *s, uint16_t *halves[3]) {
  heed_view *const views[] = {&s->vq, &s->vk, &s->vv};
  const hd_kernels *kernels = hd_kernels_of(context);
  for (int i = 0; i < 3; i++) {
    int64_t count = hd_view_count(views[i]);
    halves[i] = malloc((size_t)count * 2 + 2);
    kernels->narrow(views[i]->data, count, HEED_BF16, halves[i]);
    kernels->widen(halves[i], HEED_BF16, count, views[i]->data);
    views[i]->data = halves[i];
    views[i]->type = HEED_BF16;
  }
}

static void free_halves(uint16_t *halves[3]) {
  for (int i = 0; i < 3; i++) free(halves[i]);
}

/* A weight is off by at most 1/256 of itself, so an output by at most the largest |v| / 256, and what the f32 sums add; the sum of a row is of unrounded weights. */
static void expect_bound(sample *s, uint64_t seed) {
  double *lse, *want = sample_reference(context, s, &lse), largest = 0;
  for (int64_t i = 0; i < hd_view_count(&s->vv); i++) largest = fmax(largest, fabs((double)s->v[i]));
  if (s->a.dropout > 0 && s->a.dropout < 1) largest /= 1 - s->a.dropout;
  sample_run(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    assert_close(s->lse[row], lse[row], 1e-5 * fmax(1, fabs(lse[row])), "lse", seed);
    for (int64_t c = 0; c < s->dv; c++) {
      if (isinf(lse[row])) assert_true(s->out[row * s->dv + c] == 0);
      assert_close(s->out[row * s->dv + c], want[row * s->dv + c], largest / 256 + 1e-5, "out", seed);
    }
  }
  free(want);
  free(lse);
}

PROPERTY(within_the_bound, 191, SAMPLE_EVERYTHING) {
  uint16_t *halves[3];
  become_bf16(s, halves);
  expect_bound(s, r->seed);
  free_halves(halves);
}

/* Several chunks, widths of whole and of broken tiles, and a weight that is rounded: the level does something of its own. */
static void long_rows(void **state) {
  (void)state;
  static const int64_t widths[][2] = {{64, 64}, {128, 128}, {40, 72}, {2, 1}, {6, 33}, {7, 16}};
  for (int i = 0; i < HD_COUNT(widths); i++) {
    random_source r = {.seed = (uint64_t)i};
    sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 70, .m = 2101, .d = widths[i][0], .dv = widths[i][1]};
    uint16_t *halves[3];
    sample_fill(&s, &r, SAMPLE_CAUSAL);
    align_end(&s);
    become_bf16(&s, halves);
    expect_bound(&s, r.seed);
    float *own = copy_of(s.out, sample_out_count(&s));
    s.vq.data = s.q, s.vk.data = s.k, s.vv.data = s.v;
    s.vq.type = s.vk.type = s.vv.type = HEED_F32;
    sample_run(context, &s);
    // Pairs need an even width; of an odd one, and of f32, the level makes what avx512 makes.
    assert_true((memcmp(own, s.out, (size_t)sample_out_count(&s) * 4) == 0) == (s.d % 2 == 1));
    free(own);
    free_halves(halves);
    sample_free(&s);
  }
}

/* A row is the same for any number of threads, and computed alone with the key lengths of all. */
PROPERTY(rows_stand_alone, 191, SAMPLE_ANY) {
  uint16_t *halves[3];
  become_bf16(s, halves);
  sample_run(context, s);
  float *out = copy_of(s->out, sample_out_count(s));
  for (int threads = 1; threads <= 3; threads += 2) {
    heed_context *other =
        test_context(&(heed_options){.size = sizeof(heed_options), .level = heed_context_level(context), .threads = threads});
    sample_run(other, s);
    assert_same_bytes(out, s->out, sample_out_count(s) * 4, "threads", r->seed);
    heed_context_free(other);
  }
  free(out);
  free_halves(halves);
}

/* What nobody sees may be anything. */
PROPERTY(hidden_garbage_changes_nothing, 191, SAMPLE_ANY) {
  uint16_t *halves[3];
  become_bf16(s, halves);
  sample_run(context, s);
  float *out = copy_of(s->out, sample_out_count(s)), *weights = run_weights(context, s);
  int64_t group = s->heads / s->kv_heads;
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t j = 0; j < s->m; j++) {
      bool seen = false;
      for (int64_t h = 0; h < group * s->n; h++)
        seen |= weights[((kv / s->kv_heads * s->heads + kv % s->kv_heads * group) * s->n + h) * s->m + j] != 0;
      for (int64_t c = 0; !seen && c < s->d; c++) halves[1][(kv * s->m + j) * s->d + c] = c % 2 ? 0x7fc0 : 0x7f80;
      for (int64_t c = 0; !seen && c < s->dv; c++) halves[2][(kv * s->m + j) * s->dv + c] = c % 2 ? 0xffc0 : 0xff80;
    }
  sample_run(context, s);
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "garbage", r->seed);
  free(out);
  free(weights);
  free_halves(halves);
}

/* A NaN in one value or key, at every place of a tile that some rows see in part: those rows become NaN, the others keep every bit. */
static void nan_reaches_who_sees_it(void **state) {
  (void)state;
  for (int64_t at = 0; at < 70; at++)
    for (int in_key = 0; in_key < 2; in_key++) {
      random_source r = {.seed = (uint64_t)at};
      sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 70, .m = 70, .d = 10, .dv = 21};
      uint16_t *halves[3];
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_start(&s);
      become_bf16(&s, halves);
      sample_run(context, &s);
      float *out = copy_of(s.out, s.n * s.dv);
      halves[in_key ? 1 : 2][at * (in_key ? s.d : s.dv) + 3] = 0x7fc0;
      sample_run(context, &s);
      for (int64_t i = 0; i < s.n; i++)
        for (int64_t c = 0; c < s.dv; c++) {
          bool reached = i >= at && (in_key || c == 3);
          if (reached) assert_true(isnan(s.out[i * s.dv + c]));
          else assert_same_bytes(out + i * s.dv + c, s.out + i * s.dv + c, 4, "a number beside a NaN", r.seed);
        }
      free(out);
      free_halves(halves);
      sample_free(&s);
    }
}

/* The number of tests that failed at the level. */
static int run_at(heed_level level) {
  if (!heed_level_available(level)) {
    printf("this processor lacks the level %s: nothing is said about it here\n", heed_level_name(level));
    return 0;
  }
  printf("level %s\n", heed_level_name(level));
  context = NULL;
  if (heed_context_new(&(heed_options){.size = sizeof(heed_options), .level = level}, &context) != HEED_OK) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(within_the_bound),        cmocka_unit_test(long_rows),
      cmocka_unit_test(rows_stand_alone),        cmocka_unit_test(hidden_garbage_changes_nothing),
      cmocka_unit_test(nan_reaches_who_sees_it),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}

int main(void) { return run_at(HEED_LEVEL_AVX512BF16) + run_at(HEED_LEVEL_AMX); }
