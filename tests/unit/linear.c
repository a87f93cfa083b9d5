/* Linear attention against its oracle: features, causal and not, groups, masks, states handed on; its properties: recurrent = chunked = quadratic, no later key in an earlier row, masked keys
 * add exactly 0, equal bits on threads and levels; and the oracle's gradients against central differences. */
#include "linear_sample.h"
#include "slope.h"

static heed_context *context;

static const struct {
  const char *name;
  heed_features features;
  int64_t projected;
} maps[] = {{"elu", HEED_FEATURES_ELU, 0},
            {"relu", HEED_FEATURES_RELU, 0},
            {"identity", HEED_FEATURES_IDENTITY, 0},
            {"positive", HEED_FEATURES_POSITIVE, 37},
            {"hyperbolic", HEED_FEATURES_HYPERBOLIC, 20}};
enum { MAPS = sizeof maps / sizeof *maps };

static void describe(char text[160], const linear_sample *s, int map, int kinds, uint64_t seed) {
  snprintf(text, 160, "%s rule %d kinds %d: B %d H %d/%d n %d m %d d %d dv %d seed %d", maps[map].name, (int)s->a.rule, kinds,
           (int)s->batch, (int)s->heads, (int)s->kv_heads, (int)s->n, (int)s->m, (int)s->d, (int)s->dv, (int)seed);
}

static void near(const char *what, const char *name, const heed_view *got, const heed_view *want, double tolerance) {
  const double difference = linear_difference(got, want);
  if (!(difference <= tolerance)) fail_msg("%s: %s differs by %g", what, name, difference);
}

static void draw(linear_sample *s, random_source *r, int map, heed_linear_rule rule, int kinds, int64_t most) {
  *s = (linear_sample){.batch = 1 + below(r, 2),
                       .kv_heads = 1 + below(r, 2),
                       .d = edge_size(r, 70),
                       .dv = edge_size(r, 70),
                       .n = edge_size(r, most),
                       .m = edge_size(r, most)};
  s->heads = s->kv_heads * (1 + below(r, 3));
  s->a.features = maps[map].features;
  s->a.rule = rule;
  linear_fill(s, r, kinds, maps[map].projected);
}

/* The state after, without its power of two. */
static void spread_state(linear_sample *s, linear_oracle *o) {
  if (!s->after.exponent) return;
  for (int which = 0; which < 2; which++)
    for (int64_t i = 0; i < hd_view_count(&s->view[which ? LNORMALISER : LSUMS]); i++) {
      const int64_t head = i / (which ? s->f : s->f * s->dv);
      ((float *)s->view[which ? LNORMALISER : LSUMS].data)[i] *= exp2f(((float *)s->view[LEXPONENT].data)[head]);
      ((double *)o->view[which ? LNORMALISER : LSUMS].data)[i] *= exp2(((double *)o->view[LEXPONENT].data)[head]);
    }
}

static void check_sample(linear_sample *s, const char *what) {
  linear_oracle o;
  linear_oracle_make(&o, s);
  linear_forward(context, s);
  linear_oracle_forward(context, &o);
  near(what, "out", &s->view[LOUT], &o.view[LOUT], 1e-5);
  near(what, "lse", &s->view[LLSE], &o.view[LLSE], 2e-6);
  linear_backward(context, s);
  linear_oracle_backward(context, &o);
  // A normaliser near 0, which relu may have, magnifies what rounding leaves of a difference.
  near(what, "dq", &s->view[LDQ], &o.view[LDQ], 2e-4);
  near(what, "dk", &s->view[LDK], &o.view[LDK], 2e-4);
  near(what, "dv", &s->view[LDV], &o.view[LDV], 3e-5);
  if (s->a.decay) near(what, "ddecay", &s->view[LDDECAY], &o.view[LDDECAY], 3e-5);
  if (s->a.beta) near(what, "dbeta", &s->view[LDBETA], &o.view[LDBETA], 3e-5);
  spread_state(s, &o);
  near(what, "the sums after", &s->view[LSUMS], &o.view[LSUMS], 1e-5);
  if (s->after.normaliser) near(what, "the normaliser after", &s->view[LNORMALISER], &o.view[LNORMALISER], 1e-5);
  linear_oracle_free(&o);
}

static void as_the_oracle(void **state) {
  (void)state;
  char what[160];
  for (int map = 0; map < MAPS; map++)
    for (int kinds = 0; kinds < 32; kinds++) {
      random_source r = {.seed = (uint64_t)(100 * map + kinds)};
      linear_sample s;
      draw(&s, &r, map, HEED_RULE_ADD, kinds, kinds % 14 == 1 && map == 0 ? 1100 : 130);
      describe(what, &s, map, kinds, r.seed);
      check_sample(&s, what);
      linear_free(&s);
    }
}

static const heed_linear_rule rules[] = {HEED_RULE_GATED, HEED_RULE_DELTA, HEED_RULE_GATED_DELTA};

static void rules_as_the_oracle(void **state) {
  (void)state;
  char what[160];
  for (int map = 0; map < 3; map++)
    for (int rule = 0; rule < 3; rule++)
      for (int times = 0; times < 6; times++) {
        random_source r = {.seed = (uint64_t)(1000 * map + 100 * rule + times)};
        linear_sample s;
        const int kinds = LINEAR_CAUSAL | LINEAR_BARE | (times & 1 ? LINEAR_BEFORE : 0) | (times & 2 ? LINEAR_LENGTHS | LINEAR_ATTEND : 0);
        draw(&s, &r, map, rules[rule], kinds, 200);
        describe(what, &s, map, kinds, r.seed);
        check_sample(&s, what);
        linear_free(&s);
      }
}

/* ---- differences ------------------------------------------------------------------------------------------------------------------- */

static double loss(void *of) {
  linear_oracle *o = of;
  linear_oracle_forward(context, o);
  return dot_of(&o->view[LOUT], &o->view[LDOUT]);
}

static void gradients_are_derivatives(void **state) {
  (void)state;
  char what[160];
  for (int map = 0; map < MAPS; map++)
    for (int rule = 0; rule < (map < 3 ? 4 : 1); rule++)
      for (int causal = rule ? 1 : 0; causal < 2; causal++)
        for (int bare = rule ? 1 : 0; bare < 2; bare++) {
          const int kinds = (causal ? LINEAR_CAUSAL : 0) | (bare ? LINEAR_BARE : 0) | LINEAR_ATTEND | LINEAR_BEFORE;
          random_source r = {.seed = (uint64_t)(100 * map + 10 * rule + 2 * causal + bare)};
          linear_sample s = {.batch = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .n = 9,
                             .m = 7,
                             .d = 5,
                             .dv = 6,
                             .a.features = maps[map].features,
                             .a.rule = rule ? rules[rule - 1] : HEED_RULE_ADD};
          linear_fill(&s, &r, kinds, 5);
          linear_oracle o;
          linear_oracle_make(&o, &s);
          // Numbers at which relu and elu have a kink are far enough away.
          for (int i = LQ; i <= LK; i++)
            for (int64_t j = 0; j < hd_view_count(&o.view[i]); j++) {
              double *x = (double *)o.view[i].data + j;
              if (fabs(*x) < 1e-3) *x = 0.1;
            }
          describe(what, &s, map, kinds, r.seed);
          linear_oracle_backward(context, &o);
          check_slope(loss, &o, &o.view[LQ], &o.view[LDQ], &r, what, LQ);
          check_slope(loss, &o, &o.view[LK], &o.view[LDK], &r, what, LK);
          check_slope(loss, &o, &o.view[LV], &o.view[LDV], &r, what, LV);
          if (o.a.decay) check_slope(loss, &o, &o.view[LDECAY], &o.view[LDDECAY], &r, what, LDECAY);
          if (o.a.beta) check_slope(loss, &o, &o.view[LBETA], &o.view[LDBETA], &r, what, LBETA);
          linear_oracle_free(&o);
          linear_free(&s);
        }
}

/* ---- properties -------------------------------------------------------------------------------------------------------------------- */

/* Rows [begin, end) of [.., .., rows, columns] or [.., .., rows]. */
static heed_view rows_of(const heed_view *view, int64_t begin, int64_t end) {
  heed_view rows = *view;
  rows.data = (float *)view->data + begin * view->stride[2];
  rows.dim[2] = end - begin;
  return rows;
}

/* P43: token by token, in pieces of any length and in one call are the same (the oracle is the quadratic form). */
static void p43_recurrent_is_chunked(void **state) {
  (void)state;
  static const int64_t steps[] = {1, 13, 64, 100};
  for (int map = 0; map < MAPS; map++)
    for (int rule = 0; rule < (map < 3 ? 4 : 1); rule++)
      for (int step = 0; step < 4; step++) {
        random_source r = {.seed = (uint64_t)(100 + 10 * map + step)};
        linear_sample s = {.batch = 2,
                           .heads = 4,
                           .kv_heads = 2,
                           .m = 150,
                           .d = 17,
                           .dv = 9,
                           .a.features = maps[map].features,
                           .a.rule = rule ? rules[rule - 1] : HEED_RULE_ADD};
        linear_fill(&s, &r, LINEAR_CAUSAL | (rule ? LINEAR_BARE : 0), maps[map].projected);
        linear_forward(context, &s);
        heed_view out = linear_array(&r, 4, s.view[LOUT].dim, 0), lse = linear_array(&r, 3, s.view[LLSE].dim, 0);
        for (int64_t begin = 0; begin < s.m; begin += steps[step]) {
          const int64_t end = begin + steps[step] < s.m ? begin + steps[step] : s.m;
          const heed_view q = rows_of(&s.view[LQ], begin, end), k = rows_of(&s.view[LK], begin, end), v = rows_of(&s.view[LV], begin, end),
                          o = rows_of(&out, begin, end), l = rows_of(&lse, begin, end), decay = rows_of(&s.view[LDECAY], begin, end),
                          beta = rows_of(&s.view[LBETA], begin, end);
          heed_linear_attention a = s.a;
          if (a.decay) a.decay = &decay;
          if (a.beta) a.beta = &beta;
          if (begin) a.before = &s.before;
          const heed_linear_extras extras = {sizeof extras, &l, &s.before};
          ok(context, heed_linear_forward(context, &a, &q, &k, &v, &o, &extras));
        }
        near(maps[map].name, "out in pieces", &out, &s.view[LOUT], 3e-6);
        near(maps[map].name, "lse in pieces", &lse, &s.view[LLSE], 2e-6);
        if (!s.after.exponent) near(maps[map].name, "sums", s.before.sums, s.after.sums, 3e-6);
        free(out.data);
        free(lse.data);
        linear_free(&s);
      }
}

static void same_bits(const char *what, const heed_view *a, const heed_view *b) {
  if (memcmp(a->data, b->data, (size_t)hd_view_count(a) * sizeof(float)) != 0) fail_msg("%s: bits differ", what);
}

/* What a row may not see changes no bit of it, whatever it is: later keys, masked ones. */
static void nothing_hidden_shows(void **state) {
  (void)state;
  for (int map = 0; map < MAPS; map++)
    for (int rule = 0; rule < (map < 3 ? 4 : 1); rule++) {
      random_source r = {.seed = (uint64_t)(10 * map + rule)};
      linear_sample s = {.batch = 1,
                         .heads = 2,
                         .kv_heads = 1,
                         .m = 700,
                         .d = 20,
                         .dv = 24,
                         .a.features = maps[map].features,
                         .a.rule = rule ? rules[rule - 1] : HEED_RULE_ADD};
      linear_fill(&s, &r, LINEAR_CAUSAL | LINEAR_ATTEND | (rule ? LINEAR_BARE : 0), maps[map].projected);
      const int64_t edge = 597, shown = edge * s.dv;
      linear_forward(context, &s);
      linear_backward(context, &s);
      heed_view out = linear_array(&r, 4, s.view[LOUT].dim, 0), dk = linear_array(&r, 4, s.view[LDK].dim, 0);
      memcpy(out.data, s.view[LOUT].data, (size_t)hd_view_count(&out) * sizeof(float));
      memcpy(dk.data, s.view[LDK].data, (size_t)hd_view_count(&dk) * sizeof(float));
      // Masked keys hold NaN: nothing changes, and their gradients are 0.
      for (int64_t j = 0; j < s.m; j++)
        if (!((uint8_t *)s.attend.data)[j])
          for (int64_t c = 0; c < s.dv; c++)
            ((float *)s.view[LV].data)[j * s.dv + c] = c < s.d ? ((float *)s.view[LK].data)[j * s.d + c] = NAN : NAN;
      linear_forward(context, &s);
      linear_backward(context, &s);
      same_bits("masked keys, out", &out, &s.view[LOUT]);
      same_bits("masked keys, dk", &dk, &s.view[LDK]);
      for (int64_t j = 0; j < s.m; j++)
        for (int64_t c = 0; c < s.d && !((uint8_t *)s.attend.data)[j]; c++) assert_true(((float *)s.view[LDK].data)[j * s.d + c] == 0);
      // Later keys hold NaN and large numbers: earlier rows do not change.
      for (int64_t j = edge; j < s.m; j++)
        for (int64_t c = 0; c < s.d; c++) ((float *)s.view[LK].data)[j * s.d + c] = j % 3 ? NAN : j % 2 ? 50 : INFINITY;
      for (int64_t j = edge; j < s.m; j++)
        for (int64_t c = 0; c < s.dv; c++) ((float *)s.view[LV].data)[j * s.dv + c] = NAN;
      linear_forward(context, &s);
      for (int64_t h = 0; h < 2; h++)
        if (memcmp((float *)out.data + h * s.m * s.dv, (float *)s.view[LOUT].data + h * s.m * s.dv, (size_t)shown * sizeof(float)) != 0)
          fail_msg("%s rule %d: a later key shows", maps[map].name, rule);
      free(out.data);
      free(dk.data);
      linear_free(&s);
    }
}

/* A row whose normaliser vanishes is 0, and so are its gradients. */
static void vanishing_normaliser(void **state) {
  (void)state;
  random_source r = {.seed = 3};
  linear_sample s = {
      .batch = 1, .heads = 1, .kv_heads = 1, .m = 70, .d = 8, .dv = 8, .a = {.features = HEED_FEATURES_RELU, .has_epsilon = true}};
  linear_fill(&s, &r, LINEAR_CAUSAL, 0);
  for (int64_t c = 0; c < s.d; c++) ((float *)s.view[LQ].data)[66 * s.d + c] = -1;
  linear_forward(context, &s);
  linear_backward(context, &s);
  assert_true(((float *)s.view[LLSE].data)[66] == -INFINITY);
  for (int64_t c = 0; c < s.d; c++)
    assert_true(((float *)s.view[LOUT].data)[66 * s.dv + c] == 0 && ((float *)s.view[LDQ].data)[66 * s.d + c] == 0);
  for (int64_t i = 0; i < s.m * s.d; i++) assert_true(isfinite(((float *)s.view[LDK].data)[i]) && isfinite(((float *)s.view[LDV].data)[i]));
  linear_free(&s);
}

/* Threads, levels, batch: one set of bits. */
static void equal_bits(void **state) {
  (void)state;
  for (int map = 0; map < MAPS; map++)
    for (int kinds = 0; kinds < 2 + (map < 3 ? 6 : 0); kinds++) {
      const int rule = kinds < 2 ? 0 : kinds / 2;
      linear_sample first = {0};
      for (int level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
        for (int threads = 1; threads < 4; threads += 2) {
          heed_context *other = level_context((heed_level)level, threads);
          if (!other) continue;
          random_source r = {.seed = (uint64_t)(10 * map + kinds)};
          linear_sample s = {.batch = 1,
                             .heads = 4,
                             .kv_heads = 2,
                             .n = 150,
                             .m = 600,
                             .d = 23,
                             .dv = 35,
                             .a.features = maps[map].features,
                             .a.rule = rule ? rules[rule - 1] : HEED_RULE_ADD};
          if (rule) s.m = 150;
          linear_fill(&s, &r,
                      rule    ? LINEAR_CAUSAL | LINEAR_BARE
                      : kinds ? LINEAR_CAUSAL | LINEAR_LENGTHS | LINEAR_BEFORE
                              : LINEAR_ATTEND,
                      maps[map].projected);
          linear_forward(other, &s);
          linear_backward(other, &s);
          for (int i = 0; first.m && i <= LEXPONENT; i++) same_bits(maps[map].name, &s.view[i], &first.view[i]);
          if (first.m) linear_free(&s);
          else first = s;
          heed_context_free(other);
        }
      linear_free(&first);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_oracle),
                                     cmocka_unit_test(rules_as_the_oracle),
                                     cmocka_unit_test(gradients_are_derivatives),
                                     cmocka_unit_test(p43_recurrent_is_chunked),
                                     cmocka_unit_test(nothing_hidden_shows),
                                     cmocka_unit_test(vanishing_normaliser),
                                     cmocka_unit_test(equal_bits)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
