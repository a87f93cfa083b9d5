/* What linear attention refuses, each with one sentence and before anything is written; and how much memory it takes. */
#include "counting_allocator.h"
#include "linear_sample.h"

static heed_context *context;

typedef void (*change)(linear_sample *s);

static void no_features(linear_sample *s) { s->projection.dim[0] = 0; }
static void narrow_projection(linear_sample *s) { s->projection.dim[1]--; }
static void no_projection(linear_sample *s) { s->a.projection = NULL; }
static void needless_projection(linear_sample *s) { s->a.features = HEED_FEATURES_ELU; }
static void unknown_features(linear_sample *s) { s->a.features = (heed_features)9; }
static void unknown_rule(linear_sample *s) { s->a.rule = (heed_linear_rule)9; }
static void rule_with_projection(linear_sample *s) { s->a.rule = HEED_RULE_DELTA; }
static void negative_scale(linear_sample *s) { s->a.has_scale = true, s->a.scale = -1; }
static void negative_epsilon(linear_sample *s) { s->a.has_epsilon = true, s->a.epsilon = -1; }
static void needless_epsilon(linear_sample *s) { s->a.has_epsilon = true, s->a.epsilon = 1; }
static void needless_scale(linear_sample *s) { needless_projection(s), s->a.projection = NULL, s->a.has_scale = true, s->a.scale = 2; }
static void divided_identity(linear_sample *s) { s->a.features = HEED_FEATURES_IDENTITY, s->a.projection = NULL; }
static void needless_decay(linear_sample *s) { s->a.decay = &s->view[LDECAY]; }
static void needless_beta(linear_sample *s) { s->a.beta = &s->view[LBETA]; }
static void lost_decay(linear_sample *s) { divided_identity(s), s->a.unnormalised = true, s->a.rule = HEED_RULE_GATED; }
static void more_queries(linear_sample *s) { s->view[LQ].dim[2]--, s->view[LOUT].dim[2]--; }
static void odd_heads(linear_sample *s) { s->view[LQ].dim[1] = 3; }
static void narrow_keys(linear_sample *s) { s->view[LK].dim[3]--; }
static void long_keys(linear_sample *s) { s->a.key_lengths = s->lengths, s->lengths[0] = s->m + 1; }
static void short_mask(linear_sample *s) { s->a.attend = &s->attend, s->attend.dim[1]--; }
static void wrong_mask(linear_sample *s) { s->a.attend = &s->view[LLSE]; }
static void half_a_state(linear_sample *s) { s->a.before = &s->before, s->before.normaliser = NULL; }
static void small_state(linear_sample *s) { s->a.before = &s->before, s->view[LBSUMS].dim[2]--; }
static void wide_out(linear_sample *s) { s->view[LOUT].dim[3]--; }
static void out_is_q(linear_sample *s) { s->view[LOUT].data = s->view[LQ].data; }
static void out_repeats(linear_sample *s) { s->view[LOUT].stride[2] = 0; }
static void integers(linear_sample *s) { s->view[LV].type = HEED_I32; }
static void wide_numbers(linear_sample *s) {
  s->view[LV].type = HEED_F64,
  s->view[LV].dim[2] = s->view[LK].dim[2] = s->view[LQ].dim[2] = s->view[LOUT].dim[2] = s->view[LLSE].dim[2] = 1;
}
static void no_values(linear_sample *s) { s->view[LV].data = NULL; }

static const struct {
  const char *name;
  change break_it;
  heed_status status;
  const char *says;
} refusals[] = {
    {"features 0", no_features, HEED_E_SHAPE, "at least one feature"},
    {"a projection of another width", narrow_projection, HEED_E_SHAPE, "projection"},
    {"no projection", no_projection, HEED_E_ARGUMENT, "projection: null"},
    {"a projection for elu", needless_projection, HEED_E_ARGUMENT, "a projection is given"},
    {"unknown features", unknown_features, HEED_E_ARGUMENT, "unknown value 9"},
    {"an unknown rule", unknown_rule, HEED_E_ARGUMENT, "unknown value 9"},
    {"a rule with projected features", rule_with_projection, HEED_E_ARGUMENT, "rules other than"},
    {"a scale below 0", negative_scale, HEED_E_ARGUMENT, "scale -1"},
    {"epsilon below 0", negative_epsilon, HEED_E_ARGUMENT, "epsilon -1"},
    {"epsilon with projected features", needless_epsilon, HEED_E_ARGUMENT, "epsilon 1"},
    {"a scale that cancels", needless_scale, HEED_E_ARGUMENT, "would cancel"},
    {"a normalised identity", divided_identity, HEED_E_ARGUMENT, "unnormalised must be set"},
    {"a decay without a gate", needless_decay, HEED_E_ARGUMENT, "decay is given"},
    {"beta without a delta rule", needless_beta, HEED_E_ARGUMENT, "beta is given"},
    {"a gate without decay", lost_decay, HEED_E_ARGUMENT, "decay is null"},
    {"causal with fewer queries", more_queries, HEED_E_SHAPE, "as many queries as keys"},
    {"heads that do not divide", odd_heads, HEED_E_SHAPE, "multiple"},
    {"keys of another width", narrow_keys, HEED_E_SHAPE, "k:"},
    {"a key length too large", long_keys, HEED_E_ARGUMENT, "key length"},
    {"a mask too short", short_mask, HEED_E_SHAPE, "attend"},
    {"a mask of numbers", wrong_mask, HEED_E_SHAPE, "attend"},
    {"a state without normaliser", half_a_state, HEED_E_ARGUMENT, "expected sums, normaliser"},
    {"a state too small", small_state, HEED_E_SHAPE, "sums"},
    {"out too narrow", wide_out, HEED_E_SHAPE, "out"},
    {"out in q's memory", out_is_q, HEED_E_OVERLAP, "out overlaps q"},
    {"out that repeats", out_repeats, HEED_E_LAYOUT, "share memory"},
    {"integers", integers, HEED_E_TYPE, "v"},
    {"f64", wide_numbers, HEED_E_TYPE, "allowed f32, f16 and bf16"},
    {"no values", no_values, HEED_E_ARGUMENT, "v"},
};

static void every_refusal(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
    for (int backward = 0; backward < 2; backward++) {
      random_source r = {.seed = i};
      linear_sample s = {.batch = 1, .heads = 4, .kv_heads = 2, .m = 5, .d = 6, .dv = 6, .a.features = HEED_FEATURES_POSITIVE}, kept;
      linear_fill(&s, &r, LINEAR_CAUSAL, 7);
      float *const out = s.view[LOUT].data;
      for (int64_t j = 0; j < s.heads * s.m * s.dv; j++) out[j] = 5;
      kept = s;
      refusals[i].break_it(&s);
      const heed_linear_extras extras = linear_extras(&s);
      const heed_linear_gradients to = linear_gradients(&s, s.view);
      const bool of_out = refusals[i].break_it == wide_out || refusals[i].break_it == out_is_q || refusals[i].break_it == out_repeats;
      if (!backward || !of_out) {
        const heed_status status = backward
                                       ? heed_linear_backward(context, &s.a, &s.view[LQ], &s.view[LK], &s.view[LV], &s.view[LOUT],
                                                              &s.view[LLSE], &s.view[LDOUT], &to)
                                       : heed_linear_forward(context, &s.a, &s.view[LQ], &s.view[LK], &s.view[LV], &s.view[LOUT], &extras);
        if (status != refusals[i].status || !strstr(heed_error(context), refusals[i].says))
          fail_msg("%s: %s: %s", refusals[i].name, heed_status_name(status), heed_error(context));
        for (int64_t j = 0; j < kept.heads * kept.m * kept.dv; j++) assert_true(out[j] == 5);
      }
      linear_free(&kept);
    }
}

static void refused_draws(void **state) {
  (void)state;
  float rows[8] = {0};
  heed_view view = heed_view_of(rows, HEED_F32, 2, (int64_t[]){0, 4});
  assert_int_equal(heed_linear_draw(context, NULL, &view), HEED_E_SHAPE);
  view = heed_view_of(rows, HEED_F64, 2, (int64_t[]){2, 2});
  assert_int_equal(heed_linear_draw(context, NULL, &view), HEED_E_TYPE);
  view = (heed_view){rows, HEED_F32, 2, {2, 4}, {0, 1}};
  assert_int_equal(heed_linear_draw(context, NULL, &view), HEED_E_LAYOUT);
}

/* Beyond inputs and outputs, two threads: at n = 65,536 less than 64 MB, and no more than at a quarter of it. */
static void memory_does_not_grow(void **state) {
  (void)state;
  static const struct {
    heed_features features;
    heed_linear_rule rule;
    bool causal;
    int64_t d, rows, heads;
  } cases[] = {{HEED_FEATURES_ELU, HEED_RULE_ADD, true, 64, 0, 1},
               {HEED_FEATURES_ELU, HEED_RULE_ADD, false, 16, 0, 4},
               {HEED_FEATURES_POSITIVE, HEED_RULE_ADD, true, 16, 256, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t peak[2];
    for (int large = 0; large < 2; large++) {
      ledger l;
      heed_context *counting = ledger_context(&l, 2);
      random_source r = {.seed = i};
      linear_sample s = {.batch = 1,
                         .heads = cases[i].heads,
                         .kv_heads = 1,
                         .n = large ? 65536 : 16384,
                         .m = large ? 65536 : 16384,
                         .d = cases[i].d,
                         .dv = 16,
                         .a = {.features = cases[i].features, .rule = cases[i].rule}};
      linear_fill(&s, &r, cases[i].causal ? LINEAR_CAUSAL : 0, cases[i].rows);
      const int64_t before = l.now;
      l.peak = l.now;
      linear_forward(counting, &s);
      linear_backward(counting, &s);
      peak[large] = l.peak - before;
      linear_free(&s);
      heed_context_free(counting);
      assert_int_equal(l.live, 0);
    }
    print_message("%.2f MB\n", (double)peak[1] * 1e-6);
    assert_true(peak[1] < 64000000);
    assert_int_equal(peak[0], peak[1]);
  }
}

/* Whichever request for memory fails, the call says so, gives back what it has, and has written nothing. */
static void no_memory(void **state) {
  (void)state;
  for (int backward = 0; backward < 2; backward++)
    for (int64_t budget = 0;; budget++) {
      ledger l;
      heed_context *counting = ledger_context(&l, 2);
      random_source r = {.seed = 3};
      linear_sample s = {.batch = 1, .heads = 2, .kv_heads = 2, .n = 20, .m = 70, .d = 6, .dv = 5, .a.features = HEED_FEATURES_HYPERBOLIC};
      linear_fill(&s, &r, 0, 9);
      const heed_linear_extras extras = linear_extras(&s);
      const heed_linear_gradients to = linear_gradients(&s, s.view);
      const int64_t before = l.now;
      if (backward) linear_forward(counting, &s);
      l.budget = budget;
      const heed_status status = backward
                                     ? heed_linear_backward(counting, &s.a, &s.view[LQ], &s.view[LK], &s.view[LV], &s.view[LOUT],
                                                            &s.view[LLSE], &s.view[LDOUT], &to)
                                     : heed_linear_forward(counting, &s.a, &s.view[LQ], &s.view[LK], &s.view[LV], &s.view[LOUT], &extras);
      assert_int_equal(l.now, before);
      assert_true(status == HEED_OK || status == HEED_E_MEMORY);
      for (int64_t i = 0; status != HEED_OK && !backward && i < hd_view_count(&s.view[LOUT]); i++)
        assert_true(((float *)s.view[LOUT].data)[i] == 0);
      linear_free(&s);
      heed_context_free(counting);
      if (status == HEED_OK) break;
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_refusal), cmocka_unit_test(refused_draws),
                                     cmocka_unit_test(memory_does_not_grow), cmocka_unit_test(no_memory)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
