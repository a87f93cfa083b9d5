/* Gradients of attention against those that PyTorch computed in double precision, for every fixture without a gradient of its own kind. */
#include "fixture.h"

static void run_fixture(heed_context *context, const char *path, const char *name) {
  fixture f;
  fixture_open(&f, context, path, name);
  static const char *const names[] = {"q", "k", "v", "out", "lse", "grad_out", "grad.q", "grad.k", "grad.v"};
  enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, COUNT };
  heed_view wide[COUNT], narrow[COUNT];
  for (int i = 0; i < COUNT; i++) {
    assert_non_null(fixture_load(&f, names[i], &wide[i]));
    fixture_narrow(&wide[i], &narrow[i]);
  }
  // The forward pass gives out and lse in single precision, as a caller would have them.
  heed_attention_extras extras = {.size = sizeof extras, .lse = &narrow[LSE]};
  ok(context, heed_attention_forward(context, &f.a, &narrow[Q], &narrow[K], &narrow[V], &narrow[OUT], &extras));
  heed_attention_gradients gradients = {.size = sizeof gradients, .dq = &narrow[DQ], .dk = &narrow[DK], .dv = &narrow[DV]};
  ok(context,
     heed_attention_backward(context, &f.a, &narrow[Q], &narrow[K], &narrow[V], &narrow[OUT], &narrow[LSE], &narrow[DOUT], &gradients));
  for (int i = DQ; i <= DV; i++) {
    double largest = 0;
    int64_t count = hd_view_count(&wide[i]);
    for (int64_t j = 0; j < count; j++) largest = fmax(largest, fabs(((double *)wide[i].data)[j]));
    for (int64_t j = 0; j < count; j++)
      assert_close(((float *)narrow[i].data)[j], ((double *)wide[i].data)[j], 5e-6 * largest, names[i], 0);
  }
  for (int i = 0; i < COUNT; i++) {
    free(wide[i].data);
    free(narrow[i].data);
  }
  fixture_close(&f);
}

static void every_fixture(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "sdpa-", run_fixture), 11);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_fixture)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
