/* What the output is (P1–P22, P33 as far as forward goes), over random shapes; attention_bits.c holds what must be equal to the bit. Each test draws its samples from a seed that a failure prints. "Bitwise" is equal bytes. */
#include "attention_sample.h"

#include <float.h>

#define EPS FLT_EPSILON

static heed_context *context;

/* ---- against the formula ---------------------------------------------------------------------------------------------------------- */

/* The same formula in single precision as anyone would write it: the measure of what error is fair (contract 21). */
static void naive_row(const sample *s, int64_t b, int64_t h, int64_t i, const float *weights, float *out) {
  int64_t kv = h / (s->heads / s->kv_heads);
  const float *q = s->q + ((b * s->heads + h) * s->n + i) * s->d, *k = s->k + (b * s->kv_heads + kv) * s->m * s->d;
  const float *v = s->v + (b * s->kv_heads + kv) * s->m * s->dv;
  const float scale = (float)(1 / sqrt((double)s->d)), cap = (float)s->a.softcap;
  float *score = floats(s->m), top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s->m; j++) {
    float dot = 0;
    for (int64_t c = 0; c < s->d; c++) dot += q[c] * k[j * s->d + c];
    score[j] = dot * scale;
    if (cap > 0) score[j] = cap * tanhf(score[j] / cap);
    if (s->bias_data) score[j] += s->bias_data[((b * s->heads + h) * s->n + i) * s->m + j];
    if (weights[j] == 0) score[j] = -INFINITY; // hidden: the exact weights say which
    if (score[j] > top) top = score[j];
  }
  for (int64_t j = 0; j < s->m; j++) sum += score[j] = score[j] == -INFINITY ? 0 : expf(score[j] - top);
  for (int64_t c = 0; c < s->dv; c++) {
    out[c] = 0;
    for (int64_t j = 0; j < s->m; j++) out[c] += score[j] / sum * v[j * s->dv + c];
    if (top == -INFINITY) out[c] = 0;
  }
  free(score);
}

/* Contract 21: over all rows drawn, the largest error is at most 1.5 times and the mean at most 1.1 times that of the naive f32 formula. */
static void error_is_that_of_f32(void **state) {
  (void)state;
  for (int kinds = 0; kinds < 2; kinds++) { // without and with softcap
    double ours_max = 0, naive_max = 0, ours_sum = 0, naive_sum = 0;
    int64_t rows = 0;
    for (int round = 0; round < 30; round++) {
      random_source r = {.seed = (uint64_t)round + 77};
      sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 17, .m = edge_size(&r, 1100), .d = 64, .dv = 32};
      sample_fill(&s, &r, kinds ? SAMPLE_SOFTCAP : 0);
      sample_run(context, &s);
      double *want = sample_reference(context, &s, NULL);
      float *weights = run_weights(context, &s), *out = floats(s.dv);
      for (int64_t h = 0; h < s.heads; h++)
        for (int64_t i = 0; i < s.n; i++, rows++) {
          naive_row(&s, 0, h, i, weights + (h * s.n + i) * s.m, out);
          for (int64_t c = 0; c < s.dv; c++) {
            int64_t at = (h * s.n + i) * s.dv + c;
            double ours = fabs(s.out[at] - want[at]), naive = fabs(out[c] - want[at]);
            ours_max = fmax(ours_max, ours);
            naive_max = fmax(naive_max, naive);
            ours_sum += ours;
            naive_sum += naive;
          }
        }
      free(want);
      free(weights);
      free(out);
      sample_free(&s);
    }
    printf("%lld rows%s: largest error %.3g (naive f32 %.3g), mean ratio %.3f\n", (long long)rows, kinds ? " with softcap" : "", ours_max,
           naive_max, ours_sum / naive_sum);
    assert_true(rows >= 200);
    assert_true(ours_max <= 1.5 * naive_max);
    assert_true(ours_sum <= 1.1 * naive_sum);
  }
}

PROPERTY(matches_the_reference, 191, SAMPLE_EVERYTHING) {
  double *lse, *want = sample_reference(context, s, &lse);
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], want[i], want[i] == 0 ? 0 : 5e-6, "out", r->seed);
  for (int64_t i = 0; i < s->batch * s->heads * s->n; i++) assert_close(s->lse[i], lse[i], 1e-5, "lse", r->seed);
  free(want);
  free(lse);
}

PROPERTY(p1_weights_sum_to_one_or_nothing, 300, SAMPLE_ANY) {
  float *weights = run_weights(context, s);
  sample_run(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    double sum = 0;
    for (int64_t j = 0; j < s->m; j++) sum += weights[row * s->m + j];
    if (s->lse[row] == -INFINITY) {
      assert_true(sum == 0);
    } else {
      assert_close(sum, 1, 4 * EPS * sqrt((double)s->m), "sum of a row", r->seed);
    }
  }
  free(weights);
}

/* Weights asked for are those the output was made with: out = weights · v. */
PROPERTY(p1_weights_make_the_output, 191, SAMPLE_ANY) {
  float *weights = run_weights(context, s);
  sample_run(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    int64_t head = row / s->n, kv = sample_kv(s, head);
    for (int64_t c = 0; c < s->dv; c++) {
      double sum = 0;
      for (int64_t j = 0; j < s->m; j++) sum += (double)weights[row * s->m + j] * s->v[(kv * s->m + j) * s->dv + c];
      assert_close(s->out[row * s->dv + c], sum, 5e-6, "weights · v", r->seed);
    }
  }
  free(weights);
}

PROPERTY(p2_shifting_all_scores, 191, SAMPLE_BIAS | SAMPLE_CAUSAL) {
  const double shift = 100 * (1 + (double)below(r, 100));
  sample_run(context, s);
  float *before = copy_of(s->out, sample_out_count(s));
  for (int64_t i = 0; i < s->batch * s->heads * s->n * s->m; i++) s->bias_data[i] += (float)shift;
  sample_run(context, s);
  // A score of that size is rounded to shift · eps / 2, and a value is at most 6.
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], before[i], 4 * EPS * shift * 6, "shifted", r->seed);
  free(before);
}

PROPERTY(p3_permuting_keys, 191, SAMPLE_ATTEND) {
  sample_run(context, s);
  float *before = copy_of(s->out, sample_out_count(s));
  sample_reverse_keys(s);
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], before[i], 5e-6, "keys turned round", r->seed);
  free(before);
}

/* ---- what may not be seen ----------------------------------------------------------------------------------------------------------- */

PROPERTY(p7_the_future_changes_nothing, 191, SAMPLE_CAUSAL) {
  align_start(s);
  sample_run(context, s);
  float *before = copy_of(s->out, sample_out_count(s));
  int64_t changed = below(r, s->m);
  for (int64_t h = 0; h < s->batch * s->kv_heads; h++) {
    for (int64_t c = 0; c < s->d; c++) s->k[(h * s->m + changed) * s->d + c] = c % 2 ? NAN : 1e30f;
    for (int64_t c = 0; c < s->dv; c++) s->v[(h * s->m + changed) * s->dv + c] = c % 2 ? INFINITY : NAN;
  }
  sample_run(context, s);
  for (int64_t h = 0; h < s->batch * s->heads; h++)
    for (int64_t i = 0; i < s->n && i < changed; i++)
      assert_same_bytes(s->out + (h * s->n + i) * s->dv, before + (h * s->n + i) * s->dv, s->dv * 4, "a row before the change", r->seed);
  free(before);
}

/* P16: NaN and infinities in keys, values and biases that nobody (or not this row) may see change no bit. */
PROPERTY(p16_hidden_garbage_changes_nothing, 300, SAMPLE_ANY) {
  sample_run(context, s);
  float *before = copy_of(s->out, sample_out_count(s)), *weights = run_weights(context, s),
        *lse = copy_of(s->lse, s->batch * s->heads * s->n);
  float garbage[] = {NAN, INFINITY, -INFINITY, 3e38f};
  int64_t group = s->heads / s->kv_heads;
  // Biases of hidden pairs, except those that hide by being −inf.
  for (int64_t i = 0; s->bias_data && i < s->batch * s->heads * s->n * s->m; i++)
    if (weights[i] == 0 && s->bias_data[i] != -INFINITY && (s->attend_data ? !s->attend_data[i] : false)) s->bias_data[i] = garbage[i % 2];
  // Keys and values that no row of any head of the group sees.
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t j = 0; j < s->m; j++) {
      bool seen = false;
      for (int64_t g = 0; g < group; g++)
        for (int64_t i = 0; i < s->n; i++) {
          int64_t head = kv / s->kv_heads * s->heads + kv % s->kv_heads * group + g;
          seen |= weights[(head * s->n + i) * s->m + j] != 0;
        }
      if (seen) continue;
      for (int64_t c = 0; c < s->d; c++) s->k[(kv * s->m + j) * s->d + c] = garbage[(j + c) % 4];
      for (int64_t c = 0; c < s->dv; c++) s->v[(kv * s->m + j) * s->dv + c] = garbage[(j + c) % 4];
    }
  sample_run(context, s);
  assert_same_bytes(s->out, before, sample_out_count(s) * 4, "garbage", r->seed);
  assert_same_bytes(s->lse, lse, s->batch * s->heads * s->n * 4, "garbage in lse", r->seed);
  free(before);
  free(weights);
  free(lse);
}

/* A NaN in a value behind the mask of some rows only, in every position of a partial tile. */
static void nan_behind_some_rows(void **state) {
  (void)state;
  for (int64_t at = 0; at < 130; at++) {
    random_source r = {.seed = (uint64_t)at};
    sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 130, .m = 130, .d = 16, .dv = 17};
    sample_fill(&s, &r, SAMPLE_CAUSAL);
    align_start(&s);
    sample_run(context, &s);
    float *before = copy_of(s.out, sample_out_count(&s));
    s.v[at * s.dv + at % s.dv] = NAN;
    sample_run(context, &s);
    for (int64_t i = 0; i < s.n; i++)
      for (int64_t c = 0; c < s.dv; c++) {
        float got = s.out[i * s.dv + c];
        if (i >= at && c == at % s.dv) {
          assert_true(isnan(got));
        } else {
          assert_same_bytes(&got, before + i * s.dv + c, 4, "beside a NaN", r.seed);
        }
      }
    free(before);
    sample_free(&s);
  }
}

PROPERTY(p17_nan_in_a_query_stays_there, 191, SAMPLE_ANY) {
  sample_run(context, s);
  float *before = copy_of(s->out, sample_out_count(s));
  int64_t row = below(r, s->batch * s->heads * s->n);
  s->q[row * s->d + below(r, s->d)] = NAN;
  sample_run(context, s);
  for (int64_t i = 0; i < s->batch * s->heads * s->n; i++)
    for (int64_t c = 0; c < s->dv; c++) {
      float got = s->out[i * s->dv + c];
      if (i == row && s->lse[i] != -INFINITY) {
        assert_true(isnan(got));
      } else {
        assert_same_bytes(&got, before + i * s->dv + c, 4, "another row", r->seed);
      }
    }
  float *weights = run_weights(context, s);
  for (int64_t j = 0; j < s->m; j++) assert_true(isnan(weights[row * s->m + j]) || weights[row * s->m + j] == 0);
  free(weights);
  free(before);
}

PROPERTY(p15_dead_rows_are_zero, 191, SAMPLE_ATTEND) {
  int64_t row = below(r, s->batch * s->heads * s->n);
  memset(s->attend_data + row * s->m, 0, (size_t)s->m);
  for (int64_t c = 0; c < s->d; c++) s->q[row * s->d + c] = NAN;
  sample_run(context, s);
  float *weights = run_weights(context, s);
  for (int64_t c = 0; c < s->dv; c++) assert_true(s->out[row * s->dv + c] == 0 && !signbit(s->out[row * s->dv + c]));
  for (int64_t j = 0; j < s->m; j++) assert_true(weights[row * s->m + j] == 0);
  assert_true(s->lse[row] == -INFINITY);
  free(weights);
}

/* ---- values --------------------------------------------------------------------------------------------------------------------------- */

PROPERTY(p9_out_lies_between_the_values, 300, SAMPLE_CAUSAL | SAMPLE_SOFTCAP) {
  align_start(s);
  sample_run(context, s);
  for (int64_t h = 0; h < s->batch * s->heads; h++)
    for (int64_t i = 0; i < s->n; i++)
      for (int64_t c = 0; c < s->dv; c++) {
        const float *v = s->v + sample_kv(s, h) * s->m * s->dv;
        float low = INFINITY, high = -INFINITY, slack = 8 * sqrtf((float)s->m) * EPS;
        for (int64_t j = 0; j < s->m && j <= i; j++) {
          low = fminf(low, v[j * s->dv + c]);
          high = fmaxf(high, v[j * s->dv + c]);
        }
        float got = s->out[(h * s->n + i) * s->dv + c];
        assert_true(got >= low - slack && got <= high + slack);
      }
}

PROPERTY(p10_p13_constant_values_and_equal_scores, 300, 0) {
  for (int64_t i = 0; i < s->batch * s->kv_heads * s->m * s->dv; i++) s->v[i] = 1.5f;
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], 1.5, 4 * sqrt((double)s->m) * EPS, "constant values", r->seed);
  // Scale 0, asked for by name, makes every score equal: the mean of the values.
  for (int64_t i = 0; i < s->batch * s->kv_heads * s->m * s->dv; i++) s->v[i] = (float)(i / s->dv % s->m);
  s->a.has_scale = true;
  s->a.scale = 0;
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++)
    assert_close(s->out[i], (double)(s->m - 1) / 2, (double)s->m * 4 * sqrt((double)s->m) * EPS, "mean", r->seed);
}

PROPERTY(p11_linear_in_values, 191, SAMPLE_ANY) {
  int64_t count = s->batch * s->kv_heads * s->m * s->dv;
  float *first = copy_of(s->v, count), *second = normals(r, count);
  sample_run(context, s);
  float *out_first = copy_of(s->out, sample_out_count(s));
  memcpy(s->v, second, (size_t)count * 4);
  sample_run(context, s);
  float *out_second = copy_of(s->out, sample_out_count(s));
  for (int64_t i = 0; i < count; i++) s->v[i] = 2 * first[i] - 3 * second[i];
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++)
    assert_close(s->out[i], 2.0 * out_first[i] - 3.0 * out_second[i], 3e-5, "linear", r->seed);
  free(first);
  free(second);
  free(out_first);
  free(out_second);
}

PROPERTY(p12_one_visible_key, 191, SAMPLE_ATTEND) {
  memset(s->attend_data, 0, (size_t)(s->batch * s->heads * s->n * s->m));
  int64_t rows = s->batch * s->heads * s->n;
  int64_t *key = malloc((size_t)rows * sizeof *key);
  for (int64_t row = 0; row < rows; row++) s->attend_data[row * s->m + (key[row] = below(r, s->m))] = 1;
  sample_run(context, s);
  for (int64_t row = 0; row < rows; row++) {
    int64_t h = row / s->n, kv = sample_kv(s, h);
    assert_same_bytes(s->out + row * s->dv, s->v + (kv * s->m + key[row]) * s->dv, s->dv * 4, "the one value", r->seed);
    double score = 0, size = 0;
    for (int64_t c = 0; c < s->d; c++) {
      double term = (double)s->q[row * s->d + c] * s->k[(kv * s->m + key[row]) * s->d + c] / sqrt((double)s->d);
      score += term;
      size += fabs(term);
    }
    // Two units of the score, plus what f32 loses in adding up its terms.
    assert_close(s->lse[row], score, 2 * EPS * fabs(score) + EPS * size * 4, "the one score", r->seed);
  }
  free(key);
}

static void p14_empty_calls(void **state) {
  (void)state;
  const int64_t zeros[7][7] = {{0, 2, 2, 3, 4, 5, 6}, {1, 0, 1, 3, 4, 5, 6}, {1, 2, 2, 0, 4, 5, 6}, {1, 2, 2, 3, 0, 5, 6},
                               {1, 2, 2, 3, 4, 0, 6}, {1, 2, 2, 3, 4, 5, 0}, {1, 2, 2, 3, 0, 0, 6}};
  for (int i = 0; i < 7; i++) {
    const int64_t *z = zeros[i];
    random_source r = {.seed = 14};
    sample s = {.batch = z[0], .heads = z[1], .kv_heads = z[2], .n = z[3], .m = z[4], .d = z[5], .dv = z[6]};
    sample_fill(&s, &r, 0);
    for (int64_t j = 0; j < sample_out_count(&s); j++) s.out[j] = NAN;
    sample_run(context, &s);
    float *weights = run_weights(context, &s);
    for (int64_t row = 0; row < s.batch * s.heads * s.n; row++) {
      if (s.m == 0) assert_true(s.lse[row] == -INFINITY);
      if (s.m && s.d == 0) assert_close(s.lse[row], log((double)s.m), 1e-6, "no width: all scores 0", 14);
    }
    for (int64_t j = 0; s.m == 0 && j < sample_out_count(&s); j++) assert_true(s.out[j] == 0);
    free(weights);
    sample_free(&s);
  }
}

/* P18: the class of the f64 formula, or beyond what f32 holds that of the f32 score. */
static void p18_large_scores(void **state) {
  (void)state;
  const float sizes[] = {1e4f, 1e15f, 1.5e19f};
  for (int i = 0; i < 3; i++) {
    random_source r = {.seed = 18 + (uint64_t)i};
    sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 40, .m = 130, .d = 4, .dv = 8};
    sample_fill(&s, &r, SAMPLE_CAUSAL);
    align_end(&s);
    for (int64_t j = 0; j < s.n * s.d; j++) s.q[j] *= sizes[i];
    if (i == 1) // scores of ±1e30
      for (int64_t j = 0; j < s.m * s.d; j++) s.k[j] *= 1e15f;
    sample_run(context, &s);
    double *want = sample_reference(context, &s, NULL);
    for (int64_t j = 0; j < sample_out_count(&s); j++) assert_close(s.out[j], want[j], 5e-6, "large scores", r.seed);
    free(want);
    sample_free(&s);
  }
  // Scores of −inf: beside finite ones they weigh nothing, alone they are undefined; +inf is undefined.
  float q[] = {1e30f}, k[] = {-1e30f, 0}, v[] = {1, 2}, out, lse;
  heed_view vq = heed_view_of(q, HEED_F32, 2, (int64_t[]){1, 1}), vk = heed_view_of(k, HEED_F32, 2, (int64_t[]){2, 1});
  heed_view vv = heed_view_of(v, HEED_F32, 2, (int64_t[]){2, 1}), vo = heed_view_of(&out, HEED_F32, 2, (int64_t[]){1, 1});
  heed_view vl = heed_view_of(&lse, HEED_F32, 1, (int64_t[]){1});
  heed_attention_extras extras = {.size = sizeof extras, .lse = &vl};
  ok(context, heed_attention_forward(context, NULL, &vq, &vk, &vv, &vo, &extras));
  assert_true(out == 2 && lse == 0);
  k[1] = -1e30f;
  ok(context, heed_attention_forward(context, NULL, &vq, &vk, &vv, &vo, &extras));
  assert_true(isnan(out));
  k[1] = 1e30f;
  ok(context, heed_attention_forward(context, NULL, &vq, &vk, &vv, &vo, &extras));
  assert_true(isnan(out));
}

/* Masks made of the least finite number hide nothing: beside other keys theirs weigh nothing, and a row of nothing else is the mean, as the formula says. */
static void masks_of_the_least_number(void **state) {
  (void)state;
  enum { N = 70, M = 130 };
  random_source r = {.seed = 181};
  sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = N, .m = M, .d = 8, .dv = 8};
  sample_fill(&s, &r, SAMPLE_BIAS);
  double *wide = calloc(N * M, sizeof *wide);
  assert_non_null(wide);
  for (int64_t i = 0; i < N * M; i++) {
    bool masked = i / M % 3 == 0 || i % M % 2;
    s.bias_data[i] = masked ? -FLT_MAX : 0;
    wide[i] = masked ? -DBL_MAX : 0;
  }
  const heed_view biases[] = {s.vbias, heed_view_of(wide, HEED_F64, 2, (int64_t[]){N, M})};
  for (int b = 0; b < 2; b++) {
    s.a.bias = &biases[b];
    sample_run(context, &s);
    double *want = sample_reference(context, &s, NULL);
    float *weights = run_weights(context, &s);
    for (int64_t j = 0; j < sample_out_count(&s); j++) assert_close(s.out[j], want[j], 2e-6, "masks of the least number", r.seed);
    for (int64_t j = 0; j < M; j++) assert_close(weights[j], 1.0 / M, 1e-6, "a row of masks", r.seed);
    assert_true(weights[M + 1] == 0);
    free(weights);
    free(want);
  }
  free(wide);
  sample_free(&s);
}

PROPERTY(p19_minus_infinity_everywhere_but_one, 191, SAMPLE_BIAS) {
  int64_t pairs = s->batch * s->heads * s->n * s->m;
  for (int64_t i = 0; i < pairs; i++) s->bias_data[i] = i % s->m == i / s->m % s->m ? 3 : -INFINITY;
  sample_run(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    int64_t h = row / s->n, kv = sample_kv(s, h);
    assert_same_bytes(s->out + row * s->dv, s->v + (kv * s->m + row % s->m) * s->dv, s->dv * 4, "the one value", r->seed);
  }
}

PROPERTY(p20_subnormal_inputs, 65, 0) {
  for (int64_t i = 0; i < s->batch * s->heads * s->n * s->d; i++) s->q[i] *= 1e-39f;
  for (int64_t i = 0; i < s->batch * s->kv_heads * s->m * s->dv; i++) s->v[i] = i % 3 ? s->v[i] : s->v[i] * 1e-40f;
  double *want = sample_reference(context, s, NULL);
  heed_context *serial = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1}); // the mode belongs to a thread
  for (int flush = 0; flush < 2; flush++) {
    flush_subnormals(flush);
    sample_run(serial, s);
    flush_subnormals(false);
    for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], want[i], 5e-6, "subnormal", r->seed);
  }
  heed_context_free(serial);
  free(want);
}

PROPERTY(p21_p22_scales_and_softcaps, 191, 0) {
  s->a.has_scale = true;
  s->a.scale = -0.7;
  double *want = sample_reference(context, s, NULL);
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], want[i], 2e-5, "negative scale", r->seed);
  free(want);
  s->a.has_scale = false;
  sample_run(context, s);
  float *plain = copy_of(s->out, sample_out_count(s));
  const double caps[] = {1e6, 1e20, 1e300, INFINITY};
  for (int i = 0; i < 4; i++) {
    s->a.softcap = caps[i];
    sample_run(context, s);
    for (int64_t j = 0; j < sample_out_count(s); j++) assert_close(s->out[j], plain[j], 5e-6, "a softcap without end", r->seed);
  }
  // With a small cap no weight can exceed another by more than e^(2 cap).
  s->a.softcap = 0.25;
  float *weights = run_weights(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
    for (int64_t j = 1; j < s->m; j++) assert_true(fabs(log(weights[row * s->m + j] / weights[row * s->m])) <= 0.5 * (1 + 1e-5));
  free(weights);
  free(plain);
}

/* P33: two halves of the keys, merged by their lse, are the whole; a half that nobody sees is the identity. */
PROPERTY(p33_merging_by_lse, 300, 0) {
  sample_run(context, s);
  float *whole = copy_of(s->out, sample_out_count(s));
  int64_t cut = below(r, s->m + 1), rows = s->batch * s->heads * s->n;
  float *out[2], *lse[2];
  for (int side = 0; side < 2; side++) {
    heed_view k = s->vk, v = s->vv;
    int64_t from = side ? cut : 0;
    k.data = s->k + from * s->d;
    v.data = s->v + from * s->dv;
    k.dim[2] = v.dim[2] = side ? s->m - cut : cut;
    heed_attention_extras extras = {.size = sizeof extras, .lse = &s->vlse};
    ok(context, heed_attention_forward(context, &s->a, &s->vq, &k, &v, &s->vout, &extras));
    out[side] = copy_of(s->out, sample_out_count(s));
    lse[side] = copy_of(s->lse, rows);
  }
  for (int64_t row = 0; row < rows; row++) {
    double top = fmax(lse[0][row], lse[1][row]), a = exp(lse[0][row] - top), b = exp(lse[1][row] - top);
    for (int64_t c = 0; c < s->dv; c++)
      assert_close((a * out[0][row * s->dv + c] + b * out[1][row * s->dv + c]) / (a + b), whole[row * s->dv + c], 1e-5, "merged", r->seed);
  }
  for (int side = 0; side < 2; side++) {
    free(out[side]);
    free(lse[side]);
  }
  free(whole);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_is_that_of_f32),
      cmocka_unit_test(matches_the_reference),
      cmocka_unit_test(p1_weights_sum_to_one_or_nothing),
      cmocka_unit_test(p1_weights_make_the_output),
      cmocka_unit_test(p2_shifting_all_scores),
      cmocka_unit_test(p3_permuting_keys),
      cmocka_unit_test(p7_the_future_changes_nothing),
      cmocka_unit_test(p16_hidden_garbage_changes_nothing),
      cmocka_unit_test(nan_behind_some_rows),
      cmocka_unit_test(p17_nan_in_a_query_stays_there),
      cmocka_unit_test(p15_dead_rows_are_zero),
      cmocka_unit_test(p9_out_lies_between_the_values),
      cmocka_unit_test(p10_p13_constant_values_and_equal_scores),
      cmocka_unit_test(p11_linear_in_values),
      cmocka_unit_test(p12_one_visible_key),
      cmocka_unit_test(p14_empty_calls),
      cmocka_unit_test(p18_large_scores),
      cmocka_unit_test(masks_of_the_least_number),
      cmocka_unit_test(p19_minus_infinity_everywhere_but_one),
      cmocka_unit_test(p20_subnormal_inputs),
      cmocka_unit_test(p21_p22_scales_and_softcaps),
      cmocka_unit_test(p33_merging_by_lse),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
