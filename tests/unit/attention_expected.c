/* Attention against values that PyTorch computed in double precision: every combination of the fixtures, forward, weights and log-sum-exp, fused and reference. */
#include "fixture.h"

static void compare(const fixture *f, const char *what, const heed_view *got, const heed_view *want, double tolerance) {
  int64_t count = hd_view_count(want);
  char label[128];
  snprintf(label, sizeof label, "%s %s", f->name, what);
  for (int64_t i = 0; i < count; i++) {
    double expected = ((double *)want->data)[i];
    double value = got->type == HEED_F64 ? ((double *)got->data)[i] : ((float *)got->data)[i];
    // A dead row is exactly 0, its lse exactly −inf.
    assert_close(value, expected, expected == 0 ? 0 : tolerance * fmax(1, fabs(expected)), label, 0);
  }
}

static void run_fixture(heed_context *context, const char *path, const char *name) {
  fixture f;
  fixture_open(&f, context, path, name);
  heed_view q, k, v, out, lse, weights, q32, k32, v32, out32, lse32, weights32, out64, lse64, weights64;
  double *wide[] = {fixture_load(&f, "q", &q),     fixture_load(&f, "k", &k),     fixture_load(&f, "v", &v),
                    fixture_load(&f, "out", &out), fixture_load(&f, "lse", &lse), fixture_load(&f, "weights", &weights)};
  float *narrow[] = {fixture_narrow(&q, &q32),     fixture_narrow(&k, &k32),     fixture_narrow(&v, &v32),
                     fixture_narrow(&out, &out32), fixture_narrow(&lse, &lse32), fixture_narrow(&weights, &weights32)};
  out64 = out;
  lse64 = lse;
  weights64 = weights;
  out64.data = calloc((size_t)hd_view_count(&out), sizeof(double));
  lse64.data = calloc((size_t)hd_view_count(&lse), sizeof(double));
  weights64.data = calloc((size_t)hd_view_count(&weights), sizeof(double));

  heed_attention_extras extras = {.size = sizeof extras, .lse = &lse32};
  ok(context, heed_attention_forward(context, &f.a, &q32, &k32, &v32, &out32, &extras));
  compare(&f, "out", &out32, &out, 2e-6);
  compare(&f, "lse", &lse32, &lse, 2e-6);
  ok(context, heed_attention_weights(context, &f.a, &q32, &k32, NULL, &weights32));
  compare(&f, "weights", &weights32, &weights, 2e-6);
  extras.lse = &lse64;
  ok(context, heed_attention_reference(context, &f.a, &q, &k, &v, &out64, &extras));
  compare(&f, "reference out", &out64, &out, 1e-12);
  compare(&f, "reference lse", &lse64, &lse, 1e-12);
  ok(context, heed_attention_weights_reference(context, &f.a, &q, &k, NULL, &weights64));
  compare(&f, "reference weights", &weights64, &weights, 1e-12);

  for (size_t i = 0; i < 6; i++) {
    free(wide[i]);
    free(narrow[i]);
  }
  free(out64.data);
  free(lse64.data);
  free(weights64.data);
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
