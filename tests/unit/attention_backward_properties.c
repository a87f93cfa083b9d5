/* What gradients are: the properties P1–P29, P33, P36, P40 of attention as far as they speak of the backward pass, and the error that contract 21 allows. Each test
 * is named after its property; what must be equal to the bit stands in attention_backward_bits.c. Samples come from seeds that a failure prints. */
#include "attention_gradients.h"

#include <float.h>

static heed_context *context;

/* ---- against the formula ------------------------------------------------------------------------------------------------------------- */

/* The gradients of one key/value head of batch entry 0 with every number and sum in single precision, as anyone would write them. */
static void naive_gradients(const sample *s, const float *dout, float *dq, float *dk, float *dv) {
  const float scale = (float)(1 / sqrt((double)s->d));
  float *p = floats(s->m), *dp = floats(s->m);
  for (int64_t row = 0; row < s->heads * s->n; row++) {
    const float *q = s->q + row * s->d, *g = dout + row * s->dv;
    float top = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < s->m; j++) {
      p[j] = 0;
      for (int64_t c = 0; c < s->d; c++) p[j] += q[c] * s->k[j * s->d + c];
      p[j] *= scale;
      top = fmaxf(top, p[j]);
    }
    for (int64_t j = 0; j < s->m; j++) sum += p[j] = expf(p[j] - top);
    for (int64_t j = 0; j < s->m; j++) {
      p[j] /= sum;
      dp[j] = 0;
      for (int64_t c = 0; c < s->dv; c++) dp[j] += g[c] * s->v[j * s->dv + c];
      delta += p[j] * dp[j];
    }
    for (int64_t j = 0; j < s->m; j++) {
      float ds = p[j] * (dp[j] - delta) * scale;
      for (int64_t c = 0; c < s->d; c++) dq[row * s->d + c] += ds * s->k[j * s->d + c];
      for (int64_t c = 0; c < s->d; c++) dk[j * s->d + c] += ds * q[c];
      for (int64_t c = 0; c < s->dv; c++) dv[j * s->dv + c] += p[j] * g[c];
    }
  }
  free(p);
  free(dp);
}

/* Contract 21 for gradients: over all rows drawn the largest error, and the mean, are at most twice those of the naive f32 formula. From 16 keys on: with two or three
 * the naive δ = Σ P dP shares its rounding with the very dP it is taken from, which dO · O does not, and dq is three times as far off (docs/math/attention.md). */
static void error_is_that_of_f32(void **state) {
  (void)state;
  double ours_max[GRADIENTS] = {0}, naive_max[GRADIENTS] = {0}, ours_sum[GRADIENTS] = {0}, naive_sum[GRADIENTS] = {0};
  const int64_t keys[] = {16, 47, 128, 311, 1025, 1100};
  for (int round = 0; round < 12; round++) {
    random_source r = {.seed = (uint64_t)round + 2100};
    sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 33, .m = keys[round % 6], .d = 64, .dv = 32};
    gradients g;
    double *want[GRADIENTS];
    sample_fill(&s, &r, 0);
    gradients_begin(context, &s, &r, &g);
    gradients_reference(context, &s, &g, want);
    float *naive[GRADIENTS];
    for (int i = 0; i < GRADIENTS; i++) naive[i] = floats(g.count[i]);
    naive_gradients(&s, g.dout, naive[DQ], naive[DK], naive[DV]);
    for (int i = 0; i < GRADIENTS; i++) {
      for (int64_t j = 0; j < g.count[i]; j++) {
        double ours = fabs(g.data[i][j] - want[i][j]), other = fabs(naive[i][j] - want[i][j]);
        ours_max[i] = fmax(ours_max[i], ours);
        naive_max[i] = fmax(naive_max[i], other);
        ours_sum[i] += ours;
        naive_sum[i] += other;
      }
      free(naive[i]);
      free(want[i]);
    }
    gradients_free(&g);
    sample_free(&s);
  }
  for (int i = 0; i <= DV; i++) {
    printf("%s: largest error %.3g (naive f32 %.3g), mean ratio %.3f\n", gradient_names[i], ours_max[i], naive_max[i],
           ours_sum[i] / naive_sum[i]);
    assert_true(ours_max[i] <= 2 * naive_max[i]);
    assert_true(ours_sum[i] <= 2 * naive_sum[i]);
  }
}

static void expect_reference(sample *s, random_source *r, double tolerance) {
  gradients g;
  double *want[GRADIENTS], *out = sample_reference(context, s, NULL);
  gradients_begin(context, s, r, &g);
  gradients_reference(context, s, &g, want);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], out[i], tolerance, "out", r->seed);
  assert_gradients_close(&g, want, tolerance, r->seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  free(out);
  gradients_free(&g);
}

/* P24 and the sizes where tiles, chunks and vectors end: each of them as the number of keys, of queries and as a width. */
static void p24_every_edge_and_width(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025},
                       widths[] = {1, 3, 8, 15, 17, 33, 40, 63, 65, 80};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int side = 0; side < 2; side++) {
      random_source r = {.seed = 240 + i};
      int64_t d = widths[i % 10], dv = widths[(i + 3) % 10];
      sample s = {.batch = 1,
                  .heads = 2,
                  .kv_heads = 1 + (int64_t)i % 2,
                  .n = side ? 19 : lengths[i],
                  .m = side ? lengths[i] : 21,
                  .d = d,
                  .dv = dv};
      sample_fill(&s, &r, i % 3 ? SAMPLE_CAUSAL : 0);
      expect_reference(&s, &r, 5e-6);
      sample_free(&s);
    }
}

/* P2: scores shifted by a constant are the same problem. */
PROPERTY(p2_shifting_all_scores, 191, SAMPLE_BIAS | SAMPLE_CAUSAL) {
  const double shift = 100 * (1 + (double)below(r, 10));
  gradients g;
  double *want[GRADIENTS];
  gradients_make(&g, s, r);
  gradients_reference(context, s, &g, want);
  for (int64_t i = 0; i < s->batch * s->heads * s->n * s->m; i++) s->bias_data[i] += (float)shift;
  sample_run(context, s);
  gradients_run(context, s, &g);
  // A score of that size is rounded to shift · eps / 2, and so is the lse; a weight takes both as relative errors.
  assert_gradients_close(&g, want, 5e-6 + 8 * FLT_EPSILON * shift, r->seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

/* P3: keys in another order: dq stays, dk and dv move with their keys. */
PROPERTY(p3_permuting_keys, 191, SAMPLE_ATTEND) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  sample_reverse_keys(s);
  sample_run(context, s);
  gradients_run(context, s, &g);
  reverse_rows(g.data[DK], s->batch * s->kv_heads, s->m, s->d);
  reverse_rows(g.data[DV], s->batch * s->kv_heads, s->m, s->dv);
  for (int i = 0; i < GRADIENTS; i++)
    for (int64_t j = 0; j < g.count[i]; j++)
      assert_close(g.data[i][j], kept.data[i][j], 2e-5 * fmax(1, fabs(kept.data[i][j])), gradient_names[i], r->seed);
  kept_free(&kept);
  gradients_free(&g);
}

/* P10: values that are all the same pull no score either way. */
PROPERTY(p10_constant_values_move_no_score, 191, SAMPLE_ANY) {
  for (int64_t i = 0; i < s->batch * s->kv_heads * s->m * s->dv; i++) s->v[i] = 1.5f;
  gradients g;
  gradients_begin(context, s, r, &g);
  // dP and δ are the same sum of up to 72 terms of at most 6, in two orders, before they are subtracted; a key's row sums it over all queries.
  for (int64_t j = 0; j < g.count[DQ]; j++) assert_close(g.data[DQ][j], 0, 2e-4, "dq", r->seed);
  for (int64_t j = 0; j < g.count[DK]; j++) assert_close(g.data[DK][j], 0, 2e-3, "dk", r->seed);
  gradients_free(&g);
}

/* P11: gradients are linear in the upstream gradient. */
PROPERTY(p11_linear_in_the_upstream_gradient, 191, SAMPLE_ANY) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients first = gradients_keep(&g);
  int64_t count = sample_out_count(s);
  float *one = copy_of(g.dout, count), *two = normals(r, count);
  memcpy(g.dout, two, (size_t)count * 4);
  gradients_run(context, s, &g);
  kept_gradients second = gradients_keep(&g);
  for (int64_t i = 0; i < count; i++) g.dout[i] = 2 * one[i] - 3 * two[i];
  gradients_run(context, s, &g);
  for (int i = 0; i < GRADIENTS; i++)
    for (int64_t j = 0; j < g.count[i]; j++) {
      double want = 2.0 * first.data[i][j] - 3.0 * second.data[i][j];
      assert_close(g.data[i][j], want, 5e-5 * fmax(1, fabs(want)), gradient_names[i], r->seed);
    }
  kept_free(&first);
  kept_free(&second);
  free(one);
  free(two);
  gradients_free(&g);
}

/* P12, P19: with one visible key its weight is 1 whatever its score: dv is the sum of dout over the rows that see it, dq and dk are nothing. */
static void one_key(sample *s, random_source *r, const int64_t *key, const char *what) {
  gradients g;
  gradients_begin(context, s, r, &g);
  double *dv = calloc((size_t)g.count[DV] + 1, sizeof *dv);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
    for (int64_t c = 0; c < s->dv; c++) dv[(sample_kv(s, row / s->n) * s->m + key[row]) * s->dv + c] += g.dout[row * s->dv + c];
  for (int64_t j = 0; j < g.count[DV]; j++) assert_close(g.data[DV][j], dv[j], dv[j] == 0 ? 0 : 5e-6 * fmax(1, fabs(dv[j])), what, r->seed);
  for (int64_t j = 0; j < g.count[DQ]; j++) assert_close(g.data[DQ][j], 0, 1e-4, what, r->seed);
  for (int64_t j = 0; j < g.count[DK]; j++) assert_close(g.data[DK][j], 0, 1e-3, what, r->seed);
  free(dv);
  gradients_free(&g);
}

PROPERTY(p12_one_visible_key, 191, SAMPLE_ATTEND) {
  int64_t rows = s->batch * s->heads * s->n, *key = malloc((size_t)rows * sizeof *key);
  memset(s->attend_data, 0, (size_t)(rows * s->m));
  for (int64_t row = 0; row < rows; row++) s->attend_data[row * s->m + (key[row] = below(r, s->m))] = 1;
  one_key(s, r, key, "one visible key");
  free(key);
}

PROPERTY(p19_minus_infinity_everywhere_but_one, 191, SAMPLE_BIAS) {
  int64_t rows = s->batch * s->heads * s->n, *key = malloc((size_t)rows * sizeof *key);
  for (int64_t row = 0; row < rows; row++) {
    key[row] = row % s->m;
    for (int64_t j = 0; j < s->m; j++) s->bias_data[row * s->m + j] = j == key[row] ? 3 : -INFINITY;
  }
  one_key(s, r, key, "one bias above minus infinity");
  free(key);
}

/* P13, P21: with scale 0 every weight is 1/m, so dv is the mean of dout over queries, and no score can move: dq and dk are exactly 0. */
PROPERTY(p13_p21_scale_zero, 191, 0) {
  s->a.has_scale = true;
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int64_t j = 0; j < g.count[DQ]; j++) assert_true(g.data[DQ][j] == 0);
  for (int64_t j = 0; j < g.count[DK]; j++) assert_true(g.data[DK][j] == 0);
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t c = 0; c < s->dv; c++) {
      double want = 0;
      for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
        if (sample_kv(s, row / s->n) == kv) want += g.dout[row * s->dv + c] / (double)s->m;
      for (int64_t j = 0; j < s->m; j++)
        assert_close(g.data[DV][(kv * s->m + j) * s->dv + c], want, 1e-5 * fmax(1, fabs(want)), "dv", r->seed);
    }
  gradients_free(&g);
}

/* ---- rows that see nothing, and numbers that are not ----------------------------------------------------------------------------------- */

/* P15: a row that sees nothing has dq = 0 and adds nothing, whatever stands in its query and upstream gradient. */
PROPERTY(p15_dead_rows, 191, SAMPLE_ATTEND) {
  int64_t row = below(r, s->batch * s->heads * s->n);
  memset(s->attend_data + row * s->m, 0, (size_t)s->m);
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  for (int64_t c = 0; c < s->d; c++) assert_true(g.data[DQ][row * s->d + c] == 0);
  for (int64_t c = 0; c < s->d; c++) s->q[row * s->d + c] = c % 2 ? NAN : INFINITY;
  for (int64_t c = 0; c < s->dv; c++) g.dout[row * s->dv + c] = c % 2 ? -INFINITY : NAN;
  sample_run(context, s);
  gradients_run(context, s, &g);
  gradients_unchanged(kept, &g, "a dead row", r->seed);
  gradients_free(&g);
}

/* P15, every row: nothing at all is visible, and every gradient is exactly 0. */
PROPERTY(p15_all_rows_dead, 130, SAMPLE_ATTEND) {
  memset(s->attend_data, 0, (size_t)(s->batch * s->heads * s->n * s->m));
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int i = 0; i < GRADIENTS; i++)
    for (int64_t j = 0; j < g.count[i]; j++) assert_true(g.data[i][j] == 0);
  gradients_free(&g);
}

/* Where a NaN may go. n = m, one head; `sees` is a causal window: row i sees the keys (i − reach, i]. */
struct spread {
  sample *s;
  const gradients *g;
  kept_gradients kept;
  int64_t reach;
};

static bool spread_sees(const struct spread *x, int64_t i, int64_t j) { return j <= i && j > i - x->reach; }

static void expect_row(const struct spread *x, int which, int64_t row, int64_t width, int64_t column, bool reached, const char *what) {
  for (int64_t c = 0; c < width; c++) {
    float got = x->g->data[which][row * width + c];
    if (reached && (column < 0 || column == c)) {
      if (!isnan(got)) fail_msg("%s: %s[%lld][%lld] is %g, not NaN", what, gradient_names[which], (long long)row, (long long)c, got);
    } else {
      assert_same_bytes(&got, x->kept.data[which] + row * width + c, 4, what, 0);
    }
  }
}

enum { IN_Q, IN_K, IN_V, IN_DOUT };

/* A NaN in column c of row `at` of one input: which gradients the formula makes NaN; all others keep their bits. */
static void expect_spread(const struct spread *x, int input, int64_t at, int64_t column) {
  static const char *const names[] = {"a NaN in q", "a NaN in k", "a NaN in v", "a NaN in dout"};
  const sample *s = x->s;
  for (int64_t i = 0; i < s->n; i++) {
    // Rows whose dS is not a number: the row itself, or all that see the key.
    bool row = input == IN_Q || input == IN_DOUT ? i == at : spread_sees(x, i, at);
    expect_row(x, DQ, i, s->d, -1, row, names[input]);
  }
  for (int64_t j = 0; j < s->m; j++) {
    bool key = false;
    for (int64_t i = 0; i < s->n; i++) key |= spread_sees(x, i, j) && (input == IN_Q || input == IN_DOUT ? i == at : spread_sees(x, i, at));
    expect_row(x, DK, j, s->d, -1, key, names[input]);
    // A value does not enter dv; an upstream gradient enters its own column only.
    expect_row(x, DV, j, s->dv, input == IN_DOUT ? column : -1, key && input != IN_V, names[input]);
  }
}

/* P16, P17: a NaN in a query, key, value or upstream gradient, behind the mask of some rows only, in every position of partial tiles. */
static void p16_p17_nan_reaches_what_it_must(void **state) {
  (void)state;
  for (int64_t at = 0; at < 130; at++)
    for (int input = IN_Q; input <= IN_DOUT; input++) {
      random_source r = {.seed = (uint64_t)at};
      sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 130, .m = 130, .d = 9, .dv = 17};
      gradients g;
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_start(&s);
      struct spread x = {.s = &s, .g = &g, .reach = 1 + below(&r, 70)};
      s.a.has_window_left = true;
      s.a.window_left = x.reach - 1;
      gradients_begin(context, &s, &r, &g);
      x.kept = gradients_keep(&g);
      float *const data[] = {s.q, s.k, s.v, g.dout};
      const int64_t width = input == IN_V || input == IN_DOUT ? s.dv : s.d, column = below(&r, width);
      data[input][at * width + column] = NAN;
      sample_run(context, &s);
      gradients_run(context, &s, &g);
      expect_spread(&x, input, at, column);
      kept_free(&x.kept);
      gradients_free(&g);
      sample_free(&s);
    }
}

/* P16: biases of pairs that something else hides may be anything. */
PROPERTY(p16_hidden_biases_may_be_anything, 191, SAMPLE_BIAS | SAMPLE_ATTEND | SAMPLE_CAUSAL) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  for (int64_t i = 0; i < s->batch * s->heads * s->n * s->m; i++)
    if (!s->attend_data[i]) s->bias_data[i] = i % 3 ? NAN : INFINITY;
  sample_run(context, s);
  gradients_run(context, s, &g);
  gradients_unchanged(kept, &g, "hidden biases", r->seed);
  gradients_free(&g);
}

/* ---- sizes of numbers ------------------------------------------------------------------------------------------------------------------ */

/* P18: with scores of ±1e4 to ±1e30 gradients keep the class of the formula, and dv, whose weights are at most 1, stays within the sums of |dout|. An lse of 1e4 is
 * known to 5e-4, which every weight takes over as a relative error; beyond 1e7 it no longer says which of two close scores is the larger. */
static void p18_large_scores(void **state) {
  (void)state;
  const float sizes[] = {1e4f, 1e8f, 1e15f, 1.5e19f};
  for (int i = 0; i < 4; i++) {
    random_source r = {.seed = 18 + (uint64_t)i};
    sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 40, .m = 130, .d = 4, .dv = 8};
    gradients g;
    double *want[GRADIENTS];
    sample_fill(&s, &r, SAMPLE_CAUSAL);
    align_end(&s);
    for (int64_t j = 0; j < s.n * s.d; j++) s.q[j] *= sizes[i];
    if (i == 2) // scores of ±1e30
      for (int64_t j = 0; j < s.m * s.d; j++) s.k[j] *= 1e15f;
    gradients_begin(context, &s, &r, &g);
    gradients_reference(context, &s, &g, want);
    for (int k = 0; k < GRADIENTS; k++) {
      for (int64_t j = 0; j < g.count[k]; j++)
        if (isfinite(g.data[k][j]) != isfinite(want[k][j]))
          fail_msg("%s[%lld] = %g, the formula gives %g (scores of %g)", gradient_names[k], (long long)j, g.data[k][j], want[k][j],
                   sizes[i]);
    }
    for (int64_t j = 0; i == 0 && j < g.count[DV]; j++)
      assert_close(g.data[DV][j], want[DV][j], 1e-2 * fmax(1, fabs(want[DV][j])), "dv of scores of 1e4", r.seed);
    for (int64_t c = 0; c < s.dv; c++) {
      double most = 0;
      for (int64_t row = 0; row < s.n; row++) most += fabs(g.dout[row * s.dv + c]);
      for (int64_t j = 0; j < s.m; j++) assert_true(fabs(g.data[DV][j * s.dv + c]) <= most * (1 + 1e-5));
    }
    for (int k = 0; k < GRADIENTS; k++) free(want[k]);
    gradients_free(&g);
    sample_free(&s);
  }
}

/* P20: subnormal inputs, whether or not the host has asked the processor to flush them. */
PROPERTY(p20_subnormal_inputs, 65, 0) {
  for (int64_t i = 0; i < s->batch * s->heads * s->n * s->d; i++) s->q[i] *= 1e-39f;
  for (int64_t i = 0; i < s->batch * s->kv_heads * s->m * s->dv; i++) s->v[i] = i % 3 ? s->v[i] : s->v[i] * 1e-40f;
  gradients g;
  double *want[GRADIENTS];
  gradients_make(&g, s, r);
  for (int64_t i = 0; i < sample_out_count(s); i++) g.dout[i] = i % 5 ? g.dout[i] : g.dout[i] * 1e-40f;
  gradients_reference(context, s, &g, want);
  heed_context *serial = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1}); // the mode belongs to a thread
  for (int flush = 0; flush < 2; flush++) {
    flush_subnormals(flush);
    sample_run(serial, s);
    gradients_run(serial, s, &g);
    flush_subnormals(false);
    assert_gradients_close(&g, want, 5e-6, r->seed);
  }
  heed_context_free(serial);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

/* P21, P22: a negative scale is as good as any; a softcap without end is none. */
PROPERTY(p21_p22_scales_and_softcaps, 130, 0) {
  s->a.has_scale = true;
  s->a.scale = -0.7;
  expect_reference(s, r, 2e-5);
  s->a.has_scale = false;
  gradients g;
  double *want[GRADIENTS];
  gradients_make(&g, s, r);
  gradients_reference(context, s, &g, want);
  const double caps[] = {1e6, 1e20, 1e300, INFINITY};
  for (int i = 0; i < 4; i++) {
    s->a.softcap = caps[i];
    sample_run(context, s);
    gradients_run(context, s, &g);
    assert_gradients_close(&g, want, 1e-5, r->seed);
  }
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

/* ---- sums ---------------------------------------------------------------------------------------------------------------------------------- */

/* P23: dk and dv of a group are the sums over its heads of what each gives with keys of its own. */
PROPERTY(p23_groups_sum_their_heads, 191, SAMPLE_ANY) {
  gradients g, apart;
  gradients_begin(context, s, r, &g);
  sample wide = *s;
  wide.kv_heads = s->heads;
  wide.k = floats(s->batch * s->heads * s->m * s->d);
  wide.v = floats(s->batch * s->heads * s->m * s->dv);
  for (int64_t head = 0; head < s->batch * s->heads; head++) {
    memcpy(wide.k + head * s->m * s->d, s->k + sample_kv(s, head) * s->m * s->d, (size_t)(s->m * s->d) * 4);
    memcpy(wide.v + head * s->m * s->dv, s->v + sample_kv(s, head) * s->m * s->dv, (size_t)(s->m * s->dv) * 4);
  }
  sample_views(&wide);
  gradients_make(&apart, &wide, r);
  memcpy(apart.dout, g.dout, (size_t)sample_out_count(s) * 4);
  gradients_run(context, &wide, &apart);
  assert_same_bytes(apart.data[DQ], g.data[DQ], g.count[DQ] * 4, "dq with repeated heads", r->seed);
  for (int i = DK; i <= DV; i++) {
    int64_t block = s->m * (i == DK ? s->d : s->dv);
    double *sum = calloc((size_t)g.count[i] + 1, sizeof *sum);
    for (int64_t head = 0; head < s->batch * s->heads; head++)
      for (int64_t j = 0; j < block; j++) sum[sample_kv(s, head) * block + j] += apart.data[i][head * block + j];
    for (int64_t j = 0; j < g.count[i]; j++) assert_close(g.data[i][j], sum[j], 1e-5 * fmax(1, fabs(sum[j])), gradient_names[i], r->seed);
    free(sum);
  }
  free(wide.k);
  free(wide.v);
  gradients_free(&apart);
  gradients_free(&g);
}

/* P40: a row's dS sums to 0. Seen twice: keys that are all alike leave nothing of dq, and Σ_j dk_j = Σ_i q_i Σ_j dS_ij is nothing for any keys. */
PROPERTY(p40_score_gradients_sum_to_zero, 191, SAMPLE_CAUSAL | SAMPLE_ATTEND) {
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t c = 0; c < s->d; c++) {
      double sum = 0, size = 0;
      for (int64_t j = 0; j < s->m; j++) {
        double x = g.data[DK][(kv * s->m + j) * s->d + c];
        sum += x;
        size += fabs(x);
      }
      assert_close(sum, 0, 2e-5 * fmax(1, size), "Σ dk", r->seed);
    }
  for (int64_t j = 0; j < s->batch * s->kv_heads * s->m; j++) memcpy(s->k + j * s->d, s->k, (size_t)s->d * 4);
  sample_run(context, s);
  gradients_run(context, s, &g);
  for (int64_t j = 0; j < g.count[DQ]; j++) assert_close(g.data[DQ][j], 0, 2e-4, "dq with equal keys", r->seed);
  gradients_free(&g);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_is_that_of_f32),
      cmocka_unit_test(p24_every_edge_and_width),
      cmocka_unit_test(p2_shifting_all_scores),
      cmocka_unit_test(p3_permuting_keys),
      cmocka_unit_test(p10_constant_values_move_no_score),
      cmocka_unit_test(p11_linear_in_the_upstream_gradient),
      cmocka_unit_test(p12_one_visible_key),
      cmocka_unit_test(p19_minus_infinity_everywhere_but_one),
      cmocka_unit_test(p13_p21_scale_zero),
      cmocka_unit_test(p15_dead_rows),
      cmocka_unit_test(p15_all_rows_dead),
      cmocka_unit_test(p16_p17_nan_reaches_what_it_must),
      cmocka_unit_test(p16_hidden_biases_may_be_anything),
      cmocka_unit_test(p18_large_scores),
      cmocka_unit_test(p20_subnormal_inputs),
      cmocka_unit_test(p21_p22_scales_and_softcaps),
      cmocka_unit_test(p23_groups_sum_their_heads),
      cmocka_unit_test(p40_score_gradients_sum_to_zero),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
