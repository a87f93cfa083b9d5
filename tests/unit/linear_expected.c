/* Linear attention with elu + 1, causal and not, and its gradients against those that PyTorch computed in double precision. */
#include "fixture.h"

static void compare(const char *name, const char *what, const heed_view *got, const heed_view *want, double tolerance) {
  char label[128];
  snprintf(label, sizeof label, "%s %s", name, what);
  for (int64_t i = 0; i < hd_view_count(want); i++) {
    const double value = got->type == HEED_F64 ? ((double *)got->data)[i] : ((float *)got->data)[i], expected = ((double *)want->data)[i];
    assert_close(value, expected, tolerance * fmax(1, fabs(expected)), label, 0);
  }
}

static void run_fixture(heed_context *context, const char *path, const char *name) {
  static const char *const names[] = {"q", "k", "v", "out", "grad_out", "grad.q", "grad.k", "grad.v"};
  enum { Q, K, V, OUT, DOUT, DQ, DK, DV, COUNT };
  fixture f = {.context = context, .name = name};
  heed_view wide[COUNT], narrow[COUNT], oracle[COUNT];
  char text[64];
  ok(context, hd_tensors_open(context, path, &f.file));
  for (int i = 0; i < COUNT; i++) {
    assert_non_null(fixture_load(&f, names[i], &wide[i]));
    fixture_narrow(&wide[i], &narrow[i]);
    oracle[i] = wide[i];
    oracle[i].data = calloc((size_t)hd_view_count(&wide[i]), sizeof(double));
  }
  const heed_linear_attention a = {
      .size = sizeof a, .causal = strstr(name, "causal"), .has_epsilon = true, .epsilon = atof(fixture_attribute(&f, "eps", text))};
  heed_view lse = heed_view_of(floats(wide[Q].dim[0] * wide[Q].dim[1] * wide[Q].dim[2]), HEED_F32, 3, wide[Q].dim);
  const heed_linear_extras extras = {.size = sizeof extras, .lse = &lse};
  const heed_linear_gradients to = {.size = sizeof to, .dq = &narrow[DQ], .dk = &narrow[DK], .dv = &narrow[DV]};
  const heed_linear_gradients to_oracle = {.size = sizeof to_oracle, .dq = &oracle[DQ], .dk = &oracle[DK], .dv = &oracle[DV]};
  ok(context, heed_linear_forward(context, &a, &narrow[Q], &narrow[K], &narrow[V], &narrow[OUT], &extras));
  ok(context, heed_linear_backward(context, &a, &narrow[Q], &narrow[K], &narrow[V], &narrow[OUT], &lse, &narrow[DOUT], &to));
  ok(context, heed_linear_reference(context, &a, &wide[Q], &wide[K], &wide[V], &oracle[OUT], NULL));
  ok(context, heed_linear_backward_reference(context, &a, &wide[Q], &wide[K], &wide[V], &wide[DOUT], &to_oracle));
  for (int i = OUT; i < COUNT; i++) {
    if (i == DOUT) continue;
    compare(name, names[i], &narrow[i], &wide[i], 2e-6);
    compare(name, names[i], &oracle[i], &wide[i], 1e-12);
  }
  for (int i = 0; i < COUNT; i++) {
    free(wide[i].data);
    free(narrow[i].data);
    free(oracle[i].data);
  }
  free(lse.data);
  hd_tensors_close(f.file);
}

static void every_fixture(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "linear-attention", run_fixture), 2);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_fixture)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
