/* Every score with every restriction and modifier, with and without dropout: the oracle's gradients against central differences of the oracle's own forward pass, in
 * double precision throughout, and the fused gradients against the oracle's. The combinations come from tables; a new one is a line. */
#include "attention_gradients.h"

static heed_context *context;

static const struct score {
  const char *name;
  int kinds;
  int64_t dk;          /* width of the keys; 0: that of the queries */
  double h, tolerance; /* of the central differences */
} scores[] = {
    // The difference errs by h² times a third derivative and by the rounding of two losses over 2h: a few 1e-9 of what is added up.
    {"dot product", 0, 0, 1e-5, 1e-7},
    {"additive score", SAMPLE_ADDITIVE, 4, 1e-5, 1e-7},
    {"bilinear score", SAMPLE_BILINEAR, 4, 1e-5, 1e-7},
    // A callback is given f32 and gives f32, so its differences need a longer step.
    {"callback", SAMPLE_CALLBACK, 4, 0x1p-8, 2e-4},
    {"Transformer-XL", SAMPLE_XL, 0, 1e-5, 1e-7},
};

static const struct restriction {
  const char *name;
  int kinds;
  heed_align align; /* UNSET: as drawn, where it matters */
} restrictions[] = {
    {"everything visible", 0, HEED_ALIGN_UNSET},
    {"causal from the start", SAMPLE_CAUSAL, HEED_ALIGN_START},
    {"causal to the end", SAMPLE_CAUSAL, HEED_ALIGN_END},
    {"causal from an offset", SAMPLE_CAUSAL, HEED_ALIGN_GIVEN},
    {"a window", SAMPLE_WINDOW, HEED_ALIGN_START},
    {"a window to the end", SAMPLE_WINDOW, HEED_ALIGN_END},
    {"key lengths", SAMPLE_LENGTHS, HEED_ALIGN_UNSET},
    {"a mask", SAMPLE_ATTEND, HEED_ALIGN_UNSET},
    {"documents", SAMPLE_DOCUMENTS, HEED_ALIGN_UNSET},
    {"causal documents", SAMPLE_DOCUMENTS | SAMPLE_CAUSAL, HEED_ALIGN_START},
    {"a causal window over key lengths", SAMPLE_CAUSAL | SAMPLE_WINDOW | SAMPLE_LENGTHS, HEED_ALIGN_END},
    {"every restriction", SAMPLE_CAUSAL | SAMPLE_WINDOW | SAMPLE_LENGTHS | SAMPLE_ATTEND, HEED_ALIGN_GIVEN},
};

static const struct modifier {
  const char *name;
  int kinds;
  bool has_scale;
  double scale;
} modifiers[] = {
    {"plain", 0, false, 0},
    {"a scale below 0", 0, true, -0.4},
    {"a softcap", SAMPLE_SOFTCAP, false, 0},
    {"a bias", SAMPLE_BIAS, false, 0},
    {"a bias that broadcasts", SAMPLE_BIAS | SAMPLE_BROADCAST, false, 0},
    {"ALiBi", SAMPLE_ALIBI, false, 0},
    {"a sink", SAMPLE_SINK, false, 0},
    {"softcap, bias, ALiBi and sink", SAMPLE_SOFTCAP | SAMPLE_BIAS | SAMPLE_ALIBI | SAMPLE_SINK, true, 0.7},
    {"relative positions", SAMPLE_RELATIVE, false, 0},
    {"softcap and relative positions", SAMPLE_RELATIVE | SAMPLE_SOFTCAP, false, 0},
};

static const double dropouts[] = {0, 0.3, 1};

static void combine(sample *s, random_source *r, const struct score *score, const struct restriction *restriction,
                    const struct modifier *modifier, double dropout) {
  s->dk = score->dk;
  sample_fill(s, r, score->kinds | restriction->kinds | modifier->kinds);
  if (restriction->align != HEED_ALIGN_UNSET) {
    s->a.align = restriction->align;
    s->a.offset = restriction->align == HEED_ALIGN_GIVEN ? below(r, s->m + 4) - 2 : 0;
  }
  s->a.has_scale = modifier->has_scale;
  s->a.scale = modifier->scale;
  s->a.dropout = dropout;
  s->a.seed = r->seed;
  s->a.stream = 7;
}

/* The sample's inputs in double precision, so that a difference of two losses has digits to lose. */
typedef struct wide {
  double *data[GRADIENTS];
  heed_view view[GRADIENTS];
  heed_attention a;
  heed_score score;
} wide;

static void wide_make(wide *w, const sample *s, const gradients *g) {
  *w = (wide){.a = s->a};
  for (int i = 0; i < GRADIENTS; i++) {
    if (!g->input[i]) continue;
    w->data[i] = calloc((size_t)g->count[i] + 1, sizeof *w->data[i]);
    for (int64_t j = 0; j < g->count[i]; j++) w->data[i][j] = g->input[i][j];
    w->view[i] = heed_view_of(w->data[i], HEED_F64, g->view[i].ndim, g->view[i].dim);
  }
  if (w->a.bias) w->a.bias = &w->view[DBIAS];
  if (w->a.sink) w->a.sink = &w->view[DSINK];
  if (w->a.relative) w->a.relative = &w->view[DRELATIVE];
  if (!w->a.score) return;
  w->score = *w->a.score;
  w->a.score = &w->score;
  if (w->score.wq) w->score.wq = &w->view[DWQ];
  if (w->score.wk) w->score.wk = &w->view[DWK];
  if (w->score.wv) w->score.wv = &w->view[DWV];
  if (w->score.content) w->score.content = &w->view[DCONTENT];
  if (w->score.position) w->score.position = &w->view[DPOSITION];
  if (w->score.distances) w->score.distances = &w->view[DDISTANCES];
}

static void wide_free(wide *w) {
  for (int i = 0; i < GRADIENTS; i++) free(w->data[i]);
}

/* Σ dout ∘ out. */
static double loss(const wide *w, const sample *s, const gradients *g) {
  double sum = 0, *out = calloc((size_t)sample_out_count(s) + 1, sizeof *out);
  heed_view view = heed_view_of(out, HEED_F64, 4, s->vout.dim);
  ok(context, heed_attention_reference(context, &w->a, &w->view[DQ], &w->view[DK], &w->view[DV], &view, NULL));
  for (int64_t j = 0; j < sample_out_count(s); j++) sum += out[j] * g->dout[j];
  free(out);
  return sum;
}

/* ⟨gradient, u⟩ against (loss(x + h u) − loss(x − h u)) / 2h for directions u that move every element of one input. */
static void check_direction(wide *w, const sample *s, const gradients *g, int input, const double *gradient, random_source *r,
                            const struct score *score, const char *what) {
  const double h = score->h;
  const int64_t count = g->count[input];
  double *x = w->data[input], *kept = malloc(((size_t)count + 1) * sizeof *kept), *u = malloc(((size_t)count + 1) * sizeof *u), want = 0,
         sides[2];
  memcpy(kept, x, (size_t)count * sizeof *x);
  for (int64_t j = 0; j < count; j++) {
    u[j] = normal(r);
    want += gradient[j] * u[j];
  }
  for (int side = 0; side < 2; side++) {
    for (int64_t j = 0; j < count; j++) x[j] = kept[j] + (side ? h : -h) * u[j];
    sides[side] = loss(w, s, g);
  }
  memcpy(x, kept, (size_t)count * sizeof *x);
  double slope = (sides[1] - sides[0]) / (2 * h);
  if (!(fabs(slope - want) <= score->tolerance * fmax(10, fabs(slope))))
    fail_msg("%s of %s: %.12g, central difference %.12g", gradient_names[input], what, want, slope);
  free(kept);
  free(u);
}

/* The oracle's gradients are the derivative of its output. */
static void check_reference(sample *s, random_source *r, const struct score *score, const char *what) {
  gradients g;
  wide w;
  double *want[GRADIENTS];
  gradients_make(&g, s, r);
  wide_make(&w, s, &g);
  gradients_reference(context, s, &g, want);
  for (int i = 0; i < GRADIENTS; i++) {
    for (int tries = 0; g.input[i] && tries < 2; tries++) check_direction(&w, s, &g, i, want[i], r, score, what);
    free(want[i]);
  }
  wide_free(&w);
  gradients_free(&g);
}

/* The fused gradients are the oracle's: within 5e-6 of the largest of each. */
static void check_fused(sample *s, random_source *r, const struct score *score, const char *what) {
  (void)score;
  gradients g;
  double *want[GRADIENTS];
  gradients_begin(context, s, r, &g);
  gradients_reference(context, s, &g, want);
  for (int i = 0; i < GRADIENTS; i++) {
    double largest = i == DBIAS && g.count[i] ? sqrt((double)g.pairs / (double)g.count[i]) : 1;
    for (int64_t j = 0; j < g.count[i]; j++) largest = fmax(largest, fabs(want[i][j]));
    for (int64_t j = 0; j < g.count[i]; j++)
      if (!(fabs(g.data[i][j] - want[i][j]) <= 5e-6 * largest))
        fail_msg("%s[%lld] of %s: %.9g, the formula %.9g (largest %.3g)", gradient_names[i], (long long)j, what, g.data[i][j], want[i][j],
                 largest);
    free(want[i]);
  }
  gradients_free(&g);
}

/* Calls body for every combination, with small shapes that differ from one to the next. */
static void every_combination(void (*body)(sample *s, random_source *r, const struct score *score, const char *what),
                              const int64_t (*lengths)[2], int shapes) {
  enum {
    SCORES = sizeof scores / sizeof *scores,
    RESTRICTIONS = sizeof restrictions / sizeof *restrictions,
    MODIFIERS = sizeof modifiers / sizeof *modifiers,
    DROPOUTS = sizeof dropouts / sizeof *dropouts
  };
  for (uint64_t at = 0; at < SCORES * RESTRICTIONS * MODIFIERS * DROPOUTS; at += SANITIZED ? 5 : 1) {
    const double dropout = dropouts[at % DROPOUTS];
    const struct modifier *modifier = &modifiers[at / DROPOUTS % MODIFIERS];
    const struct restriction *restriction = &restrictions[at / DROPOUTS / MODIFIERS % RESTRICTIONS];
    const struct score *score = &scores[at / DROPOUTS / MODIFIERS / RESTRICTIONS];
    // A combination keeps its number when modifiers are added behind the first eight.
    const uint64_t m = at / DROPOUTS % MODIFIERS,
                   number = (at / DROPOUTS / MODIFIERS * 8 + m % 8) * DROPOUTS + at % DROPOUTS + m / 8 * 100000;
    random_source r = {.seed = 3900 + number};
    const int64_t *length = lengths[number % (uint64_t)shapes];
    sample s = {.batch = 1 + (int64_t)(number % 2),
                .heads = 2,
                .kv_heads = 1 + (int64_t)(number / 2 % 2),
                .n = length[0],
                .m = length[1],
                .d = 3,
                .dv = 2};
    char what[200];
    snprintf(what, sizeof what, "%s, %s, %s, dropout %g (seed %llu)", score->name, restriction->name, modifier->name, dropout,
             (unsigned long long)r.seed);
    combine(&s, &r, score, restriction, modifier, dropout);
    body(&s, &r, score, what);
    sample_free(&s);
  }
}

static void p39_reference_is_the_derivative(void **state) {
  (void)state;
  static const int64_t lengths[][2] = {{4, 5}, {7, 3}, {1, 6}, {5, 5}, {3, 9}};
  every_combination(check_reference, lengths, 5);
}

static void p39_fused_is_the_reference(void **state) {
  (void)state;
  static const int64_t lengths[][2] = {{17, 67}, {66, 20}, {1, 130}, {33, 64}, {19, 1}};
  every_combination(check_fused, lengths, 5);
}

int main(void) {
  context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1});
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(p39_reference_is_the_derivative),
      cmocka_unit_test(p39_fused_is_the_reference),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
