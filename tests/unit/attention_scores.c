/* Scores that are not dot products: additive, bilinear, and what a caller computes; factors of the weights; forward and backward. */
#include "attention_gradients.h"
#include "fixture.h"

static heed_context *context;

/* Calls body with samples of each score, and of factors, under random restrictions, terms, sink and dropout. */
static void each_score(int64_t most, void (*body)(sample *s, random_source *r)) {
  for (int round = 0; round < 30; round++) {
    random_source r = {.seed = (uint64_t)round * 7907 + 11};
    sample s = {.batch = 1 + below(&r, 2), .kv_heads = 1 + below(&r, 2), .n = edge_size(&r, most), .m = edge_size(&r, most)};
    s.heads = s.kv_heads * (1 + below(&r, 2));
    s.d = edge_size(&r, 40);
    s.dv = edge_size(&r, 40);
    static const int scores[] = {SAMPLE_ADDITIVE, SAMPLE_BILINEAR, SAMPLE_CALLBACK, SAMPLE_XL, SAMPLE_FACTORS};
    int kinds = scores[round % 5] | (round % 3 ? 0 : SAMPLE_FACTORS);
    for (int i = 0; i < SAMPLE_ALL_KINDS; i++) kinds |= below(&r, 3) == 0 ? 1 << i : 0;
    sample_fill(&s, &r, kinds);
    body(&s, &r);
    sample_free(&s);
  }
}

static void assert_forward(sample *s, random_source *r) {
  double *lse, *out = sample_reference(context, s, &lse);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], out[i], 4e-6, "out", r->seed);
  for (int64_t i = 0; i < s->batch * s->heads * s->n; i++) assert_close(s->lse[i], lse[i], 4e-6 * fmax(1, fabs(lse[i])), "lse", r->seed);
  free(out);
  free(lse);
}

static void forward_and_backward(sample *s, random_source *r) {
  gradients g;
  double *want[GRADIENTS];
  gradients_begin(context, s, r, &g);
  assert_forward(s, r);
  gradients_reference(context, s, &g, want);
  assert_gradients_close(&g, want, 5e-6, r->seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

static void match_the_reference(void **state) {
  (void)state;
  each_score(65, forward_and_backward);
}

/* A callback's scores are rounded to single precision, which a difference of them feels. */
static void derivative(sample *s, random_source *r) {
  assert_oracle_is_the_derivative(context, s, r, 2, s->score.kind == HEED_SCORE_CALLBACK ? 2e-3 : 2e-4);
}

static void the_reference_is_the_derivative(void **state) {
  (void)state;
  each_score(17, derivative);
}

static void same_bits(sample *s, random_source *r) { assert_same_bits_everywhere(context, s, r); }

static void p34_p35_same_bits_everywhere(void **state) {
  (void)state;
  each_score(65, same_bits);
}

/* P16: hidden keys, whatever they hold, change no bit, though tanh and a caller's function see them. */
static void hidden_garbage(sample *s, random_source *r) {
  gradients g;
  gradients_begin(context, s, r, &g);
  float *weights = run_weights(context, s);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s->out, sample_out_count(s));
  for (int64_t kv = 0; kv < s->batch * s->kv_heads; kv++)
    for (int64_t j = 0; j < s->m; j++) {
      bool seen = false;
      for (int64_t h = 0; h < s->heads / s->kv_heads * s->n; h++)
        seen |= weights[((kv / s->kv_heads * s->heads + kv % s->kv_heads * (s->heads / s->kv_heads)) * s->n + h) * s->m + j] != 0;
      for (int64_t c = 0; !seen && c < s->dk; c++) s->k[(kv * s->m + j) * s->dk + c] = c % 2 ? NAN : INFINITY;
    }
  sample_run(context, s);
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "out", r->seed);
  gradients_run(context, s, &g);
  // Whatever is in a key that nobody sees is in the product that gives dwk: 0 · NaN. Everything else stays.
  if (s->score.kind == HEED_SCORE_ADDITIVE) memcpy(g.data[DWK], kept.data[DWK], (size_t)g.count[DWK] * sizeof(float));
  gradients_unchanged(kept, &g, "hidden garbage", r->seed);
  free(out);
  free(weights);
  gradients_free(&g);
}

/* A hidden pair's factor is not looked at, and a pattern that would be taken in another order is its mask to the bit. */
static void hidden_factors(void **state) {
  (void)state;
  for (int64_t n = 5; n <= 325; n += 160) {
    random_source r = {.seed = (uint64_t)n};
    sample s = {.batch = 2, .heads = 2, .kv_heads = 1, .n = n, .m = n, .d = 8, .dv = 5};
    gradients g;
    sample_fill(&s, &r, SAMPLE_CAUSAL | SAMPLE_FACTORS | SAMPLE_DROPOUT);
    align_start(&s);
    const heed_pattern strided = {.size = sizeof strided, .kind = HEED_PATTERN_STRIDED, .stride = 3};
    s.a.pattern = &strided;
    gradients_begin(context, &s, &r, &g);
    kept_gradients kept = gradients_keep(&g);
    float *out = copy_of(s.out, sample_out_count(&s)), *weights = run_tap(context, &s, HEED_TAP_DROPPED);
    uint8_t *seen = malloc((size_t)(4 * n * n));
    heed_view view = heed_view_of(seen, HEED_BOOL, 4, (int64_t[]){2, 2, n, n});
    ok(context, heed_attention_visible(context, &s.a, &s.vq, &s.vk, &view));
    hidden_pairs hidden = {seen, 2, n, n};
    s.a.pattern = NULL;
    s.a.attend = &view;
    s.a.factors_user = &hidden;
    sample_run(context, &s);
    gradients_run(context, &s, &g);
    assert_same_bytes(out, s.out, sample_out_count(&s) * 4, "out", r.seed);
    gradients_unchanged(kept, &g, "hidden factors", r.seed);
    float *again = run_tap(context, &s, HEED_TAP_DROPPED);
    assert_same_bytes(weights, again, 4 * n * n * 4, "weights", r.seed);
    for (int64_t row = 0; row < 4 * n; row++) // and they are what multiplies the values
      for (int64_t c = 0; c < s.dv; c++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += (double)weights[row * n + j] * s.v[(sample_kv(&s, row / n) * n + j) * s.dv + c];
        assert_close(out[row * s.dv + c], sum, 5e-6, "weights times values", r.seed);
      }
    free(out), free(weights), free(again), free(seen);
    gradients_free(&g);
    sample_free(&s);
  }
}

static void p16_hidden_garbage_changes_nothing(void **state) {
  (void)state;
  each_score(65, hidden_garbage);
}

/* Projections of about ±100 whose sums are small, beside moderate and infinite ones: e^2a e^2b would say something else than e^2(a + b). All projections are exact. */
static void large_projections(void **state) {
  (void)state;
  enum { N = 21, M = 70, H = 5, DV = 3 };
  random_source r = {.seed = 77};
  sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = N, .m = M, .d = 1, .dk = 1, .dv = DV};
  sample_fill(&s, &r, SAMPLE_ADDITIVE);
  float each[H] = {1, -1, 0.5f, 2, 1}, *outer[] = {each, each, (float[H]){0.5f, -1, 0.75f, 1, -0.25f}};
  for (int i = 0; i < 3; i++) {
    free(s.weights[i]);
    s.weights[i] = copy_of(outer[i], H);
    s.vweights[i] = heed_view_of(s.weights[i], HEED_F32, i < 2 ? 2 : 1, (int64_t[]){H, 1});
  }
  const float far[] = {100, 0, -100, 1, 40}; // in eighths beside it: sums of two are exact, and some are near 0
  for (int i = 0; i < N; i++) s.q[i] = far[i % 5] + (float)(i % 16) / 8;
  for (int j = 0; j < M; j++) s.k[j] = -far[j % 5] - (float)(j % 16) / 8;
  forward_and_backward(&s, &r);
  same_bits(&s, &r);
  s.q[3] = 1e30f; // e^2x is beyond what a float holds, the score is not
  s.k[5] = -1e30f;
  s.k[6] = 3e38f;
  sample_run(context, &s);
  assert_forward(&s, &r);
  same_bits(&s, &r);
  sample_free(&s);
}

/* P42: the example of the properties, by hand. */
static void p42_two_by_two(void **state) {
  (void)state;
  float q[] = {1, 0, 0, 1}, k[] = {0, 1, 1, 0}, v[] = {1, 2, 3, 4}, one[] = {1, 0, 0, 1}, ones[] = {1, 1}, out[4], weights[4];
  const int64_t two[] = {2, 2};
  heed_view vq = heed_view_of(q, HEED_F32, 2, two), vk = heed_view_of(k, HEED_F32, 2, two), vv = heed_view_of(v, HEED_F32, 2, two);
  heed_view vout = heed_view_of(out, HEED_F32, 2, two), vweights = heed_view_of(weights, HEED_F32, 2, two);
  heed_view identity = heed_view_of(one, HEED_F32, 2, two), sum = heed_view_of(ones, HEED_F32, 1, two);
  const heed_score additive = {.size = sizeof additive, .kind = HEED_SCORE_ADDITIVE, .wq = &identity, .wk = &identity, .wv = &sum};
  const heed_attention calls[] = {{.size = sizeof *calls, .score = &additive}, {.size = sizeof *calls, .has_scale = true, .scale = 1}};
  const double expected[2][8] = {{.636, .364, .364, .636, 1.727, 2.727, 2.273, 3.273},
                                 {.269, .731, .731, .269, 2.462, 3.462, 1.538, 2.538}};
  for (int i = 0; i < 2; i++) {
    ok(context, heed_attention_forward(context, &calls[i], &vq, &vk, &vv, &vout, NULL));
    ok(context, heed_attention_weights(context, &calls[i], &vq, &vk, NULL, &vweights));
    for (int j = 0; j < 4; j++) assert_close(weights[j], expected[i][j], 6e-4, "weight", 0);
    for (int j = 0; j < 4; j++) assert_close(out[j], expected[i][4 + j], 6e-4, "out", 0);
  }
}

/* PyTorch in double precision: values are the keys. */
static void expected_additive(heed_context *with, const char *path, const char *name) {
  fixture f;
  fixture_open(&f, with, path, name);
  static const char *const names[] = {"q",        "k",      "Wq",     "Wk",      "wv",      "out",    "weights",
                                      "grad_out", "grad.q", "grad.k", "grad.Wq", "grad.Wk", "grad.wv"};
  enum { Q, K, WQ, WK, WV, OUT, WEIGHTS, DOUT, GQ, GK, GWQ, GWK, GWV, COUNT };
  heed_view wide[COUNT], narrow[COUNT];
  for (int i = 0; i < COUNT; i++) {
    assert_non_null(fixture_load(&f, names[i], &wide[i]));
    fixture_narrow(&wide[i], &narrow[i]);
    memset(i >= OUT && i != DOUT ? narrow[i].data : &(float){0}, 0, i >= OUT && i != DOUT ? (size_t)hd_view_count(&narrow[i]) * 4 : 0);
  }
  // [B,n,d] is one head of a batch.
  const int batched[] = {Q, K, OUT, WEIGHTS, DOUT, GQ, GK};
  heed_view four[COUNT];
  for (int i = 0; i < COUNT; i++) four[i] = narrow[i];
  for (size_t i = 0; i < sizeof batched / sizeof *batched; i++) {
    heed_view *view = &four[batched[i]];
    *view = heed_view_of(view->data, HEED_F32, 4, (int64_t[]){view->dim[0], 1, view->dim[1], view->dim[2]});
  }
  heed_view values = four[K], dvalues = four[GK];
  dvalues.data = floats(hd_view_count(&dvalues));
  float *lse = floats(four[Q].dim[0] * four[Q].dim[2]);
  heed_view vlse = heed_view_of(lse, HEED_F32, 3, (int64_t[]){four[Q].dim[0], 1, four[Q].dim[2]});
  const heed_score score = {.size = sizeof score, .kind = HEED_SCORE_ADDITIVE, .wq = &four[WQ], .wk = &four[WK], .wv = &four[WV]};
  f.a.score = &score;
  heed_attention_extras extras = {.size = sizeof extras, .lse = &vlse};
  ok(with, heed_attention_forward(with, &f.a, &four[Q], &four[K], &values, &four[OUT], &extras));
  ok(with, heed_attention_weights(with, &f.a, &four[Q], &four[K], NULL, &four[WEIGHTS]));
  const heed_attention_gradients to = {
      .size = sizeof to, .dq = &four[GQ], .dk = &four[GK], .dv = &dvalues, .dwq = &four[GWQ], .dwk = &four[GWK], .dwv = &four[GWV]};
  ok(with, heed_attention_backward(with, &f.a, &four[Q], &four[K], &values, &four[OUT], &vlse, &four[DOUT], &to));
  for (int64_t i = 0; i < hd_view_count(&dvalues); i++) ((float *)four[GK].data)[i] += ((float *)dvalues.data)[i];
  for (int i = OUT; i < COUNT; i++) {
    double largest = 0;
    for (int64_t j = 0; j < hd_view_count(&wide[i]); j++) largest = fmax(largest, fabs(((double *)wide[i].data)[j]));
    for (int64_t j = 0; j < hd_view_count(&wide[i]); j++)
      assert_close(((float *)narrow[i].data)[j], ((double *)wide[i].data)[j], 5e-6 * largest, names[i], 0);
  }
  for (int i = 0; i < COUNT; i++) {
    free(wide[i].data);
    free(narrow[i].data);
  }
  free(dvalues.data);
  free(lse);
  fixture_close(&f);
}

static void expected_values(void **state) {
  (void)state;
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "additive", expected_additive), 1);
}

static void refusals(void **state) {
  (void)state;
  random_source r = {.seed = 5};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 3, .m = 4, .d = 5, .dv = 6};
  gradients g;
  sample_fill(&s, &r, SAMPLE_ADDITIVE);
  gradients_begin(context, &s, &r, &g);
  heed_attention_gradients to = gradients_out(&g, g.view);
  heed_view wrong = s.vweights[0];
  wrong.dim[1]++;
  s.score.wq = &wrong;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_SHAPE);
  assert_non_null(strstr(heed_error(context), "wq: ["));
  s.score.wq = NULL;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_ARGUMENT);
  s.score.wq = &s.vweights[0];
  s.score.kind = (heed_score_kind)9;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_ARGUMENT);
  s.score.kind = HEED_SCORE_CALLBACK;
  s.score.scores = NULL;
  assert_int_equal(heed_attention_forward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, NULL), HEED_E_ARGUMENT);
  s.score.scores = narrow_dot;
  s.score.gradients = NULL;
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &to), HEED_E_UNSUPPORTED);
  s.score.kind = HEED_SCORE_DOT; // weights that a dot product does not have
  to.dq = to.dk = to.dv = NULL;
  assert_int_equal(heed_attention_backward(context, &s.a, &s.vq, &s.vk, &s.vv, &s.vout, &s.vlse, &g.vdout, &to), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "dwq is asked for"));
  gradients_free(&g);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(match_the_reference),
      cmocka_unit_test(the_reference_is_the_derivative),
      cmocka_unit_test(p34_p35_same_bits_everywhere),
      cmocka_unit_test(p16_hidden_garbage_changes_nothing),
      cmocka_unit_test(hidden_factors),
      cmocka_unit_test(large_projections),
      cmocka_unit_test(p42_two_by_two),
      cmocka_unit_test(expected_values),
      cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
