/* What is added to scores, to sums and to visibility, held to what it is made of: ALiBi (P30), dropout (P38), sinks, packed documents (P28), and the gradient of a bias
 * as the derivative of the scores (P40). Forward and backward. */
#include "attention_gradients.h"

static heed_context *context;

/* The same sample under another description: both passes give the same bytes. */
static void same_under(sample *s, random_source *r, const heed_attention *other, const char *what) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s->out, sample_out_count(s)), *lse = copy_of(s->lse, s->batch * s->heads * s->n);
  sample changed = *s;
  changed.a = *other;
  sample_run(context, &changed);
  assert_same_bytes(s->out, out, sample_out_count(s) * 4, what, r->seed);
  assert_same_bytes(s->lse, lse, s->batch * s->heads * s->n * 4, what, r->seed);
  heed_attention_gradients to = {.size = sizeof to, .dq = &g.view[DQ], .dk = &g.view[DK], .dv = &g.view[DV]};
  ok(context, heed_attention_backward(context, other, &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g.vdout, &to));
  for (int i = DQ; i <= DV; i++) assert_same_bytes(g.data[i], kept.data[i], g.count[i] * 4, what, r->seed);
  kept_free(&kept);
  free(out);
  free(lse);
  gradients_free(&g);
}

/* The position of a query that has no documents. */
static int64_t position(const sample *s, int64_t batch, int64_t query) {
  int64_t keys = s->lengths ? s->lengths[batch] : s->m;
  return query + (s->a.align == HEED_ALIGN_GIVEN ? s->a.offset : s->a.align == HEED_ALIGN_END ? keys - s->n : 0);
}

/* P30: ALiBi is the bias −slope · |p − j|, and with a bias the sum of the two. */
static void alibi_as_bias(sample *s, random_source *r) {
  int64_t pairs = s->batch * s->heads * s->n * s->m;
  float *bias = floats(pairs);
  for (int64_t at = 0; at < pairs; at++) {
    int64_t j = at % s->m, i = at / s->m % s->n, h = at / s->m / s->n % s->heads, b = at / s->m / s->n / s->heads;
    int64_t p = position(s, b, i);
    bias[at] = (s->bias_data ? s->bias_data[at] : 0) + -s->slopes[h] * (float)(p > j ? p - j : j - p);
  }
  heed_view view = heed_view_of(bias, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
  heed_attention spelt = s->a;
  spelt.alibi = NULL;
  spelt.bias = &view;
  same_under(s, r, &spelt, "ALiBi as a bias");
  free(bias);
}

PROPERTY(p30_alibi_is_a_bias, 191, SAMPLE_ALIBI | SAMPLE_CAUSAL) { alibi_as_bias(s, r); }
PROPERTY(p30_alibi_and_a_bias_are_their_sum, 191, SAMPLE_ALIBI | SAMPLE_BIAS | SAMPLE_LENGTHS) { alibi_as_bias(s, r); }

/* Rows do not change where both the queries and the keys move on by the same number of positions. */
PROPERTY(p30_alibi_sees_distances_only, 130, SAMPLE_ALIBI) {
  s->a.align = HEED_ALIGN_GIVEN;
  s->a.offset = 5;
  sample_run(context, s);
  float *out = copy_of(s->out, sample_out_count(s));
  // Hidden keys in front: positions of all others grow by 64, a whole tile, so that tiles stay the same.
  const int64_t more = s->m + 64, heads = s->batch * s->kv_heads;
  float *k = floats(heads * more * s->d), *v = floats(heads * more * s->dv);
  for (int64_t h = 0; h < heads; h++) {
    memcpy(k + (h * more + 64) * s->d, s->k + h * s->m * s->d, (size_t)(s->m * s->d) * 4);
    memcpy(v + (h * more + 64) * s->dv, s->v + h * s->m * s->dv, (size_t)(s->m * s->dv) * 4);
  }
  uint8_t *attend = calloc((size_t)more, 1);
  memset(attend + 64, 1, (size_t)s->m);
  heed_view vk = heed_view_of(k, HEED_F32, 4, (int64_t[]){s->batch, s->kv_heads, more, s->d});
  heed_view vv = heed_view_of(v, HEED_F32, 4, (int64_t[]){s->batch, s->kv_heads, more, s->dv});
  heed_view mask = heed_view_of(attend, HEED_BOOL, 2, (int64_t[]){1, more});
  s->a.offset += 64;
  s->a.attend = &mask;
  ok(context, heed_attention_forward(context, &s->a, &s->vq, &vk, &vv, &s->vout, NULL));
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], out[i], 1e-6, "shifted positions", r->seed);
  free(attend);
  free(k);
  free(v);
  free(out);
}

/* P28: documents are the mask that joins each query with the keys of its own. */
PROPERTY(p28_documents_are_a_mask, 191, SAMPLE_DOCUMENTS) {
  uint8_t *attend = calloc((size_t)(s->n * s->m) + 1, 1);
  for (int t = 0; t < 3; t++)
    for (int64_t i = s->bounds[t]; i < s->bounds[t + 1]; i++)
      for (int64_t j = s->bounds[4 + t]; j < s->bounds[4 + t + 1]; j++) attend[i * s->m + j] = 1;
  heed_view mask = heed_view_of(attend, HEED_BOOL, 2, (int64_t[]){s->n, s->m});
  heed_attention spelt = {.size = sizeof spelt, .attend = &mask};
  same_under(s, r, &spelt, "documents as a mask");
  free(attend);
}

/* A document packed among others has the numbers it has alone, under causal attention from its own start. */
PROPERTY(p6_a_document_alone, 191, SAMPLE_DOCUMENTS | SAMPLE_CAUSAL) {
  align_start(s);
  sample_run(context, s);
  for (int t = 0; t < 3; t++) {
    int64_t q0 = s->bounds[t], k0 = s->bounds[4 + t], queries = s->bounds[t + 1] - q0, keys = s->bounds[4 + t + 1] - k0;
    heed_view q = s->vq, k = s->vk, v = s->vv;
    float *alone = floats(s->batch * s->heads * queries * s->dv);
    heed_view out = heed_view_of(alone, HEED_F32, 4, (int64_t[]){s->batch, s->heads, queries, s->dv});
    q.data = s->q + q0 * s->d;
    k.data = s->k + k0 * s->d;
    v.data = s->v + k0 * s->dv;
    q.dim[2] = queries;
    k.dim[2] = v.dim[2] = keys;
    heed_attention a = {.size = sizeof a, .causal = true, .align = HEED_ALIGN_START};
    ok(context, heed_attention_forward(context, &a, &q, &k, &v, &out, NULL));
    for (int64_t h = 0; h < s->batch * s->heads; h++)
      for (int64_t i = 0; i < queries * s->dv; i++) // tiles lie elsewhere, so to tolerance
        assert_close(s->out[(h * s->n + q0) * s->dv + i], alone[h * queries * s->dv + i], 5e-6, "a document alone", r->seed);
    free(alone);
  }
}

/* ---- sinks ---------------------------------------------------------------------------------------------------------------------------- */

/* P1 with a sink: a row's weights and that of the sink sum to 1; a row that saw no key gave none to the sink. */
PROPERTY(p1_weights_and_sink_sum_to_one, 191, SAMPLE_SINK | SAMPLE_ATTEND | SAMPLE_SOFTCAP) {
  memset(s->attend_data, 0, (size_t)s->m); // the first row of all is dead
  sample_run(context, s);
  float *weights = run_weights(context, s);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    double sum = 0;
    for (int64_t j = 0; j < s->m; j++) sum += weights[row * s->m + j];
    if (s->lse[row] == -INFINITY) {
      for (int64_t c = 0; c < s->dv; c++) assert_true(s->out[row * s->dv + c] == 0);
      assert_true(sum == 0);
    } else {
      assert_close(sum + exp((double)s->sinks[row / s->n % s->heads] - s->lse[row]), 1, 2e-6 * sqrt((double)s->m), "weights and sink",
                   r->seed);
    }
  }
  assert_true(s->lse[0] == -INFINITY);
  free(weights);
}

/* A sink far below every score changes no bit; one far above takes all the weight. */
PROPERTY(sinks_without_end, 191, SAMPLE_SINK | SAMPLE_BIAS) {
  heed_attention none = s->a;
  none.sink = NULL;
  for (int64_t h = 0; h < s->heads; h++) s->sinks[h] = -1e30f;
  same_under(s, r, &none, "a sink far below");
  for (int64_t h = 0; h < s->heads; h++) s->sinks[h] = 1e30f;
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_true(s->out[i] == 0);
}

/* P40 with a sink: the da of a row's keys and that of its sink sum to 0, so over a head Σ dbias = −dsink. And without one, every row of dbias sums to 0. */
PROPERTY(p40_bias_gradients_sum_to_zero, 191, SAMPLE_BIAS | SAMPLE_SOFTCAP | SAMPLE_CAUSAL) {
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++) {
    double sum = 0, size = 0;
    for (int64_t j = 0; j < s->m; j++) {
      sum += g.data[DBIAS][row * s->m + j];
      size += fabs(g.data[DBIAS][row * s->m + j]);
    }
    assert_close(sum, 0, 2e-5 * fmax(1, size), "a row of dbias", r->seed);
  }
  gradients_free(&g);
}

PROPERTY(p40_bias_and_sink_gradients_sum_to_zero, 130, SAMPLE_BIAS | SAMPLE_SINK | SAMPLE_DROPOUT) {
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int64_t h = 0; h < s->heads; h++) {
    double sum = g.data[DSINK][h], size = fabs(sum);
    for (int64_t b = 0; b < s->batch; b++)
      for (int64_t at = 0; at < s->n * s->m; at++) {
        double x = g.data[DBIAS][(b * s->heads + h) * s->n * s->m + at];
        sum += x;
        size += fabs(x);
      }
    assert_close(sum, 0, 2e-5 * fmax(1, size), "dbias and dsink", r->seed);
  }
  gradients_free(&g);
}

/* ---- dropout -------------------------------------------------------------------------------------------------------------------------- */

/* Whether the pair is dropped, from the generator itself (contract 20). */
static bool dropped(const heed_attention *a, int64_t head, int64_t query, int64_t key) {
  uint32_t counter[4] = {(uint32_t)(key / 4), (uint32_t)query, (uint32_t)head, a->stream}, word[4];
  hd_philox(counter, a->seed, word);
  return word[key % 4] < a->dropout * 0x1p32;
}

/* P38: with the identity as values the output is the dropped matrix of weights itself; and dv of one row is where that row's weights were kept. */
PROPERTY(p38_dropout_is_philox, 65, SAMPLE_DROPOUT | SAMPLE_CAUSAL | SAMPLE_SOFTCAP) {
  free(s->v);
  free(s->out);
  s->dv = s->m;
  s->v = floats(s->batch * s->kv_heads * s->m * s->m);
  s->out = floats(sample_out_count(s));
  for (int64_t h = 0; h < s->batch * s->kv_heads; h++)
    for (int64_t j = 0; j < s->m; j++) s->v[(h * s->m + j) * s->m + j] = 1;
  sample_views(s);
  gradients g;
  gradients_make(&g, s, r);
  const int64_t one = below(r, s->batch * s->heads * s->n);
  memset(g.dout, 0, (size_t)sample_out_count(s) * 4);
  for (int64_t j = 0; j < s->m; j++) g.dout[one * s->m + j] = 1;
  sample_run(context, s);
  gradients_run(context, s, &g);
  heed_attention plain = s->a;
  plain.dropout = 0;
  sample undropped = *s;
  undropped.a = plain;
  float *weights = run_weights(context, &undropped);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
    for (int64_t j = 0; j < s->m; j++) {
      double kept = dropped(&s->a, row / s->n, row % s->n, j) ? 0 : weights[row * s->m + j] / (1 - s->a.dropout);
      assert_close(s->out[row * s->m + j], kept, kept == 0 ? 0 : 2e-6 * kept, "a weight after dropout", r->seed);
      if (row != one) continue;
      double dv = g.data[DV][(sample_kv(s, row / s->n) * s->m + j) * s->m];
      assert_close(dv, kept, kept == 0 ? 0 : 5e-6 * fmax(kept, 1e-3), "a weight in the backward pass", r->seed);
    }
  free(weights);
  gradients_free(&g);
}

PROPERTY(p38_dropout_zero_is_off, 191, SAMPLE_CAUSAL | SAMPLE_BIAS) {
  heed_attention seeded = s->a;
  seeded.seed = 12345;
  seeded.stream = 6;
  same_under(s, r, &seeded, "dropout 0");
}

PROPERTY(p38_dropout_one_is_nothing, 130, SAMPLE_BIAS) {
  sample_run(context, s);
  float *lse = copy_of(s->lse, s->batch * s->heads * s->n);
  s->a.dropout = 1;
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_true(s->out[i] == 0);
  for (int i = 0; i < GRADIENTS; i++)
    for (int64_t j = 0; j < g.count[i]; j++) assert_true(g.data[i][j] == 0);
  assert_same_bytes(s->lse, lse, s->batch * s->heads * s->n * 4, "lse under dropout", r->seed); // all visible weights are summed
  free(lse);
  gradients_free(&g);
}

/* Over ten thousand seeds the mean is what there is without dropout, within five standard errors; other streams are other masks. */
static void p38_dropout_keeps_the_mean(void **state) {
  (void)state;
  enum { SEEDS = 10000 };
  random_source r = {.seed = 38};
  sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 2, .m = 9, .d = 4, .dv = 2};
  sample_fill(&s, &r, 0);
  sample_run(context, &s);
  float want[4];
  memcpy(want, s.out, sizeof want);
  double sum[4] = {0}, squares[4] = {0};
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    s.a.dropout = 0.3;
    s.a.seed = seed;
    sample_run(context, &s);
    for (int i = 0; i < 4; i++) sum[i] += s.out[i], squares[i] += (double)s.out[i] * s.out[i];
  }
  for (int i = 0; i < 4; i++) {
    double mean = sum[i] / SEEDS, error = sqrt((squares[i] / SEEDS - mean * mean) / SEEDS);
    assert_close(mean, want[i], 5 * error, "the mean over seeds", 38);
  }
  float first[4];
  memcpy(first, s.out, sizeof first);
  s.a.stream = 1;
  sample_run(context, &s);
  assert_true(memcmp(first, s.out, sizeof first) != 0);
  sample_free(&s);
}

/* P42, the half without a score of its own: two by two, by hand. */
static void p42_dot_product(void **state) {
  (void)state;
  float q[] = {1, 0, 0, 1}, k[] = {0, 1, 1, 0}, v[] = {1, 2, 3, 4}, out[4], weights[4];
  const float want_weights[] = {.269f, .731f, .731f, .269f}, want[] = {2.462f, 3.462f, 1.538f, 2.538f};
  const int64_t dim[] = {2, 2};
  heed_view vq = heed_view_of(q, HEED_F32, 2, dim), vk = heed_view_of(k, HEED_F32, 2, dim), vv = heed_view_of(v, HEED_F32, 2, dim);
  heed_view vo = heed_view_of(out, HEED_F32, 2, dim), vw = heed_view_of(weights, HEED_F32, 2, dim);
  heed_attention a = {.size = sizeof a, .has_scale = true, .scale = 1};
  ok(context, heed_attention_forward(context, &a, &vq, &vk, &vv, &vo, NULL));
  ok(context, heed_attention_weights(context, &a, &vq, &vk, NULL, &vw));
  for (int i = 0; i < 4; i++) {
    assert_close(out[i], want[i], 6e-4, "out", 42);
    assert_close(weights[i], want_weights[i], 6e-4, "weights", 42);
  }
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(p30_alibi_is_a_bias),
      cmocka_unit_test(p30_alibi_and_a_bias_are_their_sum),
      cmocka_unit_test(p30_alibi_sees_distances_only),
      cmocka_unit_test(p28_documents_are_a_mask),
      cmocka_unit_test(p6_a_document_alone),
      cmocka_unit_test(p1_weights_and_sink_sum_to_one),
      cmocka_unit_test(sinks_without_end),
      cmocka_unit_test(p40_bias_gradients_sum_to_zero),
      cmocka_unit_test(p40_bias_and_sink_gradients_sum_to_zero),
      cmocka_unit_test(p38_dropout_is_philox),
      cmocka_unit_test(p38_dropout_zero_is_off),
      cmocka_unit_test(p38_dropout_one_is_nothing),
      cmocka_unit_test(p38_dropout_keeps_the_mean),
      cmocka_unit_test(p42_dot_product),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
