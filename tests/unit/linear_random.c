/* The random features of linear attention: what is drawn, and how far the kernel they estimate is from e^(x · y), against the closed forms of Choromanski et al. 2021 (lemma 2). */
#include "linear_sample.h"

static heed_context *context;

enum { WIDTH = 8, ROWS = 8, DRAWS = 20000 };

/* φ(x) · φ(y) as the unnormalised output for one query, one key and the value 1. */
static double estimate(heed_features features, const heed_view *projection, float *x, float *y) {
  float one = 1, got = 0;
  const int64_t dim[2] = {1, WIDTH};
  const heed_view q = heed_view_of(x, HEED_F32, 2, dim), k = heed_view_of(y, HEED_F32, 2, dim),
                  v = heed_view_of(&one, HEED_F32, 2, (int64_t[]){1, 1}), out = heed_view_of(&got, HEED_F32, 2, (int64_t[]){1, 1});
  const heed_linear_attention a = {
      .size = sizeof a, .features = features, .unnormalised = true, .has_scale = true, .scale = 1, .projection = projection};
  ok(context, heed_linear_forward(context, &a, &q, &k, &v, &out, NULL));
  return (double)got;
}

static double dot(const float *x, const float *y) {
  double sum = 0;
  for (int c = 0; c < WIDTH; c++) sum += (double)x[c] * y[c];
  return sum;
}

/* The mean squared error over many draws, and its standard error. */
static double squared_error(heed_features features, bool independent, float *x, float *y, double *deviation) {
  float rows[ROWS * WIDTH];
  const heed_view projection = heed_view_of(rows, HEED_F32, 2, (int64_t[]){ROWS, WIDTH});
  const double want = exp(dot(x, y));
  double sum = 0, square = 0;
  for (int i = 0; i < DRAWS; i++) {
    const heed_linear_draw_options options = {.size = sizeof options, .independent = independent, .seed = (uint64_t)i, .stream = 5};
    ok(context, heed_linear_draw(context, &options, &projection));
    const double error = pow(estimate(features, &projection, x, y) - want, 2);
    sum += error;
    square += error * error;
  }
  *deviation = sqrt(square / DRAWS - pow(sum / DRAWS, 2)) / sqrt(DRAWS);
  return sum / DRAWS;
}

static void errors_are_the_closed_forms(void **state) {
  (void)state;
  random_source r = {.seed = 9};
  for (int pair = 0; pair < 2; pair++) {
    float x[WIDTH], y[WIDTH];
    double z = 0;
    for (int c = 0; c < WIDTH; c++) x[c] = 0.3f * normal(&r), y[c] = (pair ? -0.4f : 0.2f) * x[c] + 0.1f * normal(&r);
    for (int c = 0; c < WIDTH; c++) z += pow((double)x[c] + y[c], 2);
    const double rescale = sqrt((pair ? 0.6 : 0.3) / z); // |x + y|²
    for (int c = 0; c < WIDTH; c++) x[c] *= (float)rescale, y[c] *= (float)rescale;
    z = pair ? 0.6 : 0.3;
    const double positive = exp(z) * exp(2 * dot(x, y)) * (1 - exp(-z)) / ROWS, want[2] = {positive, positive * (1 - exp(-z)) / 2};
    for (int which = 0; which < 2; which++) {
      const heed_features features = which ? HEED_FEATURES_HYPERBOLIC : HEED_FEATURES_POSITIVE;
      double noise[2], independent = squared_error(features, true, x, y, &noise[0]),
                       orthogonal = squared_error(features, false, x, y, &noise[1]);
      print_message("|x + y|² %.1f, %s: %.5g, closed form %.5g, orthogonal %.5g\n", z, which ? "hyperbolic" : "positive", independent,
                    want[which], orthogonal);
      if (fabs(independent / want[which] - 1) > 0.1) fail_msg("mean squared error %g, expected %g within 10 %%", independent, want[which]);
      if (orthogonal > independent + 3 * hypot(noise[0], noise[1]))
        fail_msg("orthogonal rows: mean squared error %g, independent ones %g", orthogonal, independent);
    }
  }
}

static void rows_are_orthogonal_and_as_long(void **state) {
  (void)state;
  enum { F = 50, D = 16 };
  float rows[F * D], other[F * D], fewer[20 * D];
  const heed_view all = heed_view_of(rows, HEED_F32, 2, (int64_t[]){F, D}), again = heed_view_of(other, HEED_F32, 2, (int64_t[]){F, D}),
                  first = heed_view_of(fewer, HEED_F32, 2, (int64_t[]){20, D});
  heed_linear_draw_options options = {.size = sizeof options, .seed = 1};
  ok(context, heed_linear_draw(context, &options, &all));
  ok(context, heed_linear_draw(context, &options, &again));
  ok(context, heed_linear_draw(context, &options, &first));
  assert_memory_equal(rows, other, sizeof rows);
  assert_memory_equal(rows, fewer, 16 * D * sizeof *rows); // a whole block
  options.seed = 2;
  ok(context, heed_linear_draw(context, &options, &again));
  assert_memory_not_equal(rows, other, sizeof rows);
  double mean = 0;
  for (int i = 0; i < F; i++) {
    for (int j = i / D * D; j < i; j++) {
      double along = 0;
      for (int c = 0; c < D; c++) along += (double)rows[i * D + c] * rows[j * D + c];
      assert_true(fabs(along) < 1e-4);
    }
    for (int c = 0; c < D; c++) mean += pow(rows[i * D + c], 2) / F;
  }
  assert_true(fabs(mean - D) < 4); // |w|² is χ² of 16, over 50 rows: deviation 0.8
}

/* With many rows linear attention tends to the exact one. */
static void tends_to_exact_attention(void **state) {
  (void)state;
  double error[2];
  for (int many = 0; many < 2; many++) {
    random_source r = {.seed = 4};
    linear_sample s = {.batch = 1, .heads = 2, .kv_heads = 2, .m = 100, .d = 16, .dv = 16, .a.features = HEED_FEATURES_HYPERBOLIC};
    linear_fill(&s, &r, LINEAR_CAUSAL, many ? 4096 : 16);
    for (int64_t i = 0; i < s.heads * s.m * s.d; i++) ((float *)s.view[LQ].data)[i] *= 0.6f, ((float *)s.view[LK].data)[i] *= 0.6f;
    linear_forward(context, &s);
    heed_view out = linear_array(&r, 4, s.view[LOUT].dim, 0), lse = linear_array(&r, 3, s.view[LLSE].dim, 0);
    const heed_attention exact = {.size = sizeof exact, .causal = true};
    const heed_attention_extras extras = {.size = sizeof extras, .lse = &lse};
    ok(context, heed_attention_forward(context, &exact, &s.view[LQ], &s.view[LK], &s.view[LV], &out, &extras));
    error[many] = linear_difference(&s.view[LOUT], &out);
    if (many) assert_true(linear_difference(&s.view[LLSE], &lse) < 0.05);
    free(out.data);
    free(lse.data);
    linear_free(&s);
  }
  print_message("of the largest output: 16 rows %.3g, 4096 rows %.3g\n", error[0], error[1]);
  assert_true(error[1] < 0.1 && error[1] < error[0] / 3);
}

/* Long keys: their features span more than f32 does, and still there is a normaliser; of absurdly long ones no NaN comes. */
static void long_keys_are_stable(void **state) {
  (void)state;
  for (int absurd = 0; absurd < 2; absurd++) {
    random_source r = {.seed = 5};
    linear_sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .m = 300, .d = 64, .dv = 16, .a.features = HEED_FEATURES_POSITIVE};
    linear_fill(&s, &r, LINEAR_CAUSAL, 64);
    for (int64_t i = 0; i < s.m * s.d; i++)
      ((float *)s.view[LK].data)[i] *= absurd ? 100 : 6, ((float *)s.view[LQ].data)[i] *= absurd ? 100 : 4;
    linear_forward(context, &s);
    linear_backward(context, &s);
    for (int64_t i = 0; i < s.m; i++)
      assert_true(absurd ? !isnan(((float *)s.view[LLSE].data)[i]) : isfinite(((float *)s.view[LLSE].data)[i]));
    for (int64_t i = 0; i < s.m * s.dv; i++)
      assert_true(isfinite(((float *)s.view[LOUT].data)[i]) && isfinite(((float *)s.view[LDV].data)[i]));
    for (int64_t i = 0; i < s.m * s.d; i++)
      assert_true(isfinite(((float *)s.view[LDQ].data)[i]) && isfinite(((float *)s.view[LDK].data)[i]));
    linear_free(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_the_closed_forms), cmocka_unit_test(rows_are_orthogonal_and_as_long),
                                     cmocka_unit_test(tends_to_exact_attention), cmocka_unit_test(long_keys_are_stable)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
