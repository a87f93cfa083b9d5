/* Gradients of attention over random shapes and restrictions: against the double-precision formula, the formula against central differences, and to the bit where that is meant. */
#include "attention_gradients.h"

#include "../../src/kern/kernels.h"

static heed_context *context;

static void expect_reference(sample *s, random_source *r) {
  gradients g;
  double *want[GRADIENTS];
  gradients_begin(context, s, r, &g);
  gradients_reference(context, s, &g, want);
  assert_gradients_close(&g, want, 5e-6, r->seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

PROPERTY(matches_the_reference, 191, SAMPLE_EVERYTHING) { expect_reference(s, r); }

/* The oracle itself: the loss Σ dout ∘ out in double precision, moved by ±h along single inputs. */
PROPERTY(the_reference_is_the_derivative, 37, SAMPLE_EVERYTHING) { assert_oracle_is_the_derivative(context, s, r, 3, 2e-4); }

static void same_everywhere(sample *s, random_source *r) { assert_same_bits_everywhere(context, s, r); }

static void p34_p35_same_bits_everywhere(void **state) {
  (void)state;
  each(200, SAMPLE_EVERYTHING, same_everywhere);
}

/* More keys than one chunk, so that dq merges. */
static void chunks_merge(void **state) {
  (void)state;
  random_source r = {.seed = 1024};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 70, .m = 2100, .d = 9, .dv = 17};
  sample_fill(&s, &r, SAMPLE_CAUSAL);
  align_end(&s);
  expect_reference(&s, &r);
  sample_free(&s);
}

/* Inputs in half precision give the gradients of the same numbers in f32, and gradients in half precision are those, rounded once: nothing is added up in halves. */
static void half_gradients(sample *s, random_source *r, heed_type type) {
  gradients g;
  gradients_make(&g, s, r);
  heed_view *const views[8] = {&s->vq, &s->vk, &s->vv, &s->vout, &g.vdout, &g.view[DQ], &g.view[DK], &g.view[DV]};
  uint16_t *halves[8];
  const hd_kernels *kernels = hd_kernels_of(context);
  for (int i = 0; i < 8; i++) {
    float *data = views[i]->data;
    int64_t count = hd_view_count(views[i]);
    halves[i] = calloc((size_t)count + 1, sizeof *halves[i]);
    if (i == 3) sample_run(context, s);
    if (i < 5) kernels->narrow(data, count, type, halves[i]);
    if (i < 5) kernels->widen(halves[i], type, count, data);
  }
  gradients_run(context, s, &g);
  heed_view wide[8];
  for (int i = 0; i < 8; i++) {
    wide[i] = *views[i];
    views[i]->data = halves[i];
    views[i]->type = type;
  }
  gradients_run(context, s, &g);
  for (int i = 0; i < 8; i++) {
    int64_t count = hd_view_count(views[i]);
    uint16_t *once = calloc((size_t)count + 1, sizeof *once);
    kernels->narrow(wide[i].data, count, type, once);
    assert_same_bytes(halves[i], once, count * 2, "a gradient in half precision", r->seed);
    free(once);
    free(halves[i]);
    *views[i] = wide[i];
  }
  gradients_free(&g);
}

PROPERTY(half_gradients_are_rounded_once, 191, SAMPLE_ANY) { half_gradients(s, r, below(r, 2) ? HEED_F16 : HEED_BF16); }

/* Enough queries that a sum kept in bf16 would stand still: each key's gradient has 4096 terms. */
static void many_queries_in_bf16(void **state) {
  (void)state;
  random_source r = {.seed = 4096};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 2048, .m = 65, .d = 16, .dv = 8};
  sample_fill(&s, &r, SAMPLE_CAUSAL);
  align_start(&s);
  half_gradients(&s, &r, HEED_BF16);
  sample_free(&s);
}

/* P8: keys that no row with a gradient sees get exactly nothing. */
PROPERTY(p8_no_gradient_from_the_past, 191, SAMPLE_CAUSAL) {
  gradients g;
  align_start(s);
  gradients_make(&g, s, r);
  int64_t cut = below(r, s->n);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
    if (row % s->n >= cut) memset(g.dout + row * s->dv, 0, (size_t)s->dv * 4);
  sample_run(context, s);
  gradients_run(context, s, &g);
  for (int64_t row = 0; row < s->batch * s->kv_heads * s->m; row++) {
    if (row % s->m < cut) continue;
    for (int64_t c = 0; c < s->d; c++) assert_true(g.data[DK][row * s->d + c] == 0);
    for (int64_t c = 0; c < s->dv; c++) assert_true(g.data[DV][row * s->dv + c] == 0);
  }
  gradients_free(&g);
}

/* P16: what no row may see, and the upstream gradient of rows that see nothing, may be anything. */
PROPERTY(p16_hidden_garbage_changes_nothing, 191, SAMPLE_ANY) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *weights = run_weights(context, s);
  int64_t group = s->heads / s->kv_heads;
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    bool any = false;
    for (int64_t j = 0; j < s->m; j++) any |= weights[row * s->m + j] != 0;
    for (int64_t c = 0; !any && c < s->dv; c++) g.dout[row * s->dv + c] = NAN;
    for (int64_t c = 0; !any && c < s->d; c++) s->q[row * s->d + c] = NAN;
  }
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t j = 0; j < s->m; j++) {
      bool seen = false;
      for (int64_t h = 0; h < group * s->n; h++)
        seen |= weights[((kv / s->kv_heads * s->heads + kv % s->kv_heads * group) * s->n + h) * s->m + j] != 0;
      for (int64_t c = 0; !seen && c < s->d; c++) s->k[(kv * s->m + j) * s->d + c] = c % 2 ? NAN : INFINITY;
      for (int64_t c = 0; !seen && c < s->dv; c++) s->v[(kv * s->m + j) * s->dv + c] = c % 2 ? NAN : -INFINITY;
    }
  gradients_run(context, s, &g);
  gradients_unchanged(kept, &g, "garbage that nobody sees", r->seed);
  free(weights);
  gradients_free(&g);
}

static void p14_empty_calls(void **state) {
  (void)state;
  const int64_t zeros[6][7] = {{0, 2, 2, 3, 4, 5, 6}, {1, 2, 2, 0, 4, 5, 6}, {1, 2, 2, 3, 0, 5, 6},
                               {1, 2, 2, 3, 4, 0, 6}, {1, 2, 2, 3, 4, 5, 0}, {1, 2, 1, 3, 0, 0, 0}};
  for (int i = 0; i < 6; i++) {
    const int64_t *z = zeros[i];
    random_source r = {.seed = 14};
    sample s = {.batch = z[0], .heads = z[1], .kv_heads = z[2], .n = z[3], .m = z[4], .d = z[5], .dv = z[6]};
    gradients g;
    sample_fill(&s, &r, 0);
    gradients_make(&g, &s, &r);
    for (int k = 0; k < GRADIENTS; k++)
      for (int64_t j = 0; j < g.count[k]; j++) g.data[k][j] = NAN;
    sample_run(context, &s);
    gradients_run(context, &s, &g);
    for (int64_t j = 0; (s.m == 0 || s.dv == 0) && j < g.count[DQ]; j++) assert_true(g.data[DQ][j] == 0);
    for (int64_t j = 0; (s.n == 0 || s.dv == 0) && j < g.count[DK]; j++) assert_true(g.data[DK][j] == 0);
    for (int64_t j = 0; s.n == 0 && j < g.count[DV]; j++) assert_true(g.data[DV][j] == 0);
    gradients_free(&g);
    sample_free(&s);
  }
}

static void refusals(void **state) {
  (void)state;
  random_source r = {.seed = 1};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 3, .m = 4, .d = 5, .dv = 6};
  gradients g;
  sample_fill(&s, &r, 0);
  gradients_make(&g, &s, &r);
  sample_run(context, &s);
  heed_attention_gradients out = gradients_out(&g, g.view);
  heed_view wrong = g.view[DK];
  wrong.dim[2] = 3;
  out.dk = &wrong;
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &out), HEED_E_SHAPE);
  assert_non_null(strstr(heed_error(context), "dk: [1,1,3,5], expected"));
  out.dk = &s.vk;
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &out), HEED_E_OVERLAP);
  out.dk = &g.view[DK];
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL, &g.vdout, &out), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, NULL, &out), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, NULL), HEED_E_ARGUMENT);
  for (int64_t i = 0; i < g.count[DQ]; i++) assert_true(g.data[DQ][i] == 0);
  gradients_free(&g);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matches_the_reference),
      cmocka_unit_test(the_reference_is_the_derivative),
      cmocka_unit_test(p34_p35_same_bits_everywhere),
      cmocka_unit_test(chunks_merge),
      cmocka_unit_test(half_gradients_are_rounded_once),
      cmocka_unit_test(many_queries_in_bf16),
      cmocka_unit_test(p8_no_gradient_from_the_past),
      cmocka_unit_test(p16_hidden_garbage_changes_nothing),
      cmocka_unit_test(p14_empty_calls),
      cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
