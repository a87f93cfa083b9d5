/* experiment_reach.c: `heed experiment reach`: a needle that stands far back: after how many layers the last token can have seen it under each pattern, and what of it arrives.
 *
 * Whether it can is a question of who sees whom, answered by following the pattern (reach.h). What arrives is measured with the kernels, in layers that are set by hand and have learned
 * nothing. Each token carries a number: 1 is the needle, all others begin with 0; a layer replaces it by the average that attention forms. Attention that seeks has queries along a direction u
 * and keys of noise, plus as much of u as the token carries of the needle; indifferent attention weighs all that it sees alike. The first is the best that a pattern allows, the
 * second what is left where nobody looks: what training makes of it lies between.
 *
 * Linear attention and LSH see everything in one layer, so the question is whether they find it there: the same keys and one query. */
#include "arrays.h"
#include "experiment.h"
#include "reach.h"

#include <math.h>
#include <stdlib.h>

typedef struct values {
  experiment_values experiment;
  int64_t distance;
} values;

enum { WIDTH = 64, MOST_LAYERS = 24, DRAWS = 8, ROWS = 256, ROUNDS = 8, BLOCK = 64 };
/* Of a query, and of the needle in a key: a score of LOUD² / √WIDTH = 18, beside noise of LOUD / √WIDTH = 1.5 in each other. */
static const double LOUD = 12;

/* ---- patterns -------------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *pattern;
  bool both_ways;
} patterns[] = {
    {"full", false},       {"window:256", false}, {"dilated:64:4", false}, {"window:256+global:4", false}, {"window:256+global:4", true},
    {"strided:64", false}, {"fixed:64:4", false}, {"logsparse", false},    {"bigbird:64:1:1:3", false},    {"bigbird:64:1:1:3", true},
    {"tree", false},       {"tree:both", true},
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

/* What has arrived at the last token after each of the layers that were run. */
typedef struct carried {
  double keys;  /* that a query sees, on average */
  int64_t sees; /* the layer after which it can have come; 0: never */
  int ran;
  double seeking[MOST_LAYERS + 1], indifferent[MOST_LAYERS + 1];
} carried;

typedef struct job {
  heed_context *context;
  int64_t n, needle;
  array direction, noise, q, k, x, y, indifferent, visible;
  heed_pattern *pattern;
  heed_attention attention;
} job;

static heed_status draw(const job *j, uint64_t seed, uint32_t stream, const heed_view *to) {
  const heed_linear_draw_options options = {.size = sizeof options, .independent = true, .seed = seed, .stream = stream};
  return heed_linear_draw(j->context, &options, to);
}

/* u of length 1, noise, and queries LOUD · u. */
static int make_numbers(job *j, uint64_t seed) {
  float *u = j->direction.view.data, *q = j->q.view.data;
  double length = 0;
  int code;
  TRY(check(j->context, draw(j, seed, 0, &j->direction.view)));
  TRY(check(j->context, draw(j, seed, 1, &j->noise.view)));
  for (int c = 0; c < WIDTH; c++) length += (double)u[c] * u[c];
  for (int c = 0; c < WIDTH; c++) u[c] = (float)(u[c] / sqrt(length));
  for (int64_t i = 0; i < j->n * WIDTH; i++) q[i] = (float)(LOUD * u[i % WIDTH]);
done:
  return code;
}

/* Noise, and as much of the needle as each token carries. */
static void make_keys(job *j, const float *carries) {
  const float *u = j->direction.view.data, *noise = j->noise.view.data;
  float *k = j->k.view.data;
  for (int64_t i = 0; i < j->n * WIDTH; i++) k[i] = noise[i] + (float)(LOUD * carries[i / WIDTH] * u[i % WIDTH]);
}

static void put_needle(const job *j, array *x) {
  float *carries = x->view.data;
  for (int64_t i = 0; i < j->n; i++) carries[i] = i == j->needle;
}

static int job_open(experiment *e, const values *v, job *j) {
  const int64_t distance = v->distance ? v->distance : e->v->quick ? 500 : 4000, blocks = (distance + 2 * BLOCK) / BLOCK;
  int code;
  *j = (job){.context = e->context, .n = blocks * BLOCK};
  j->needle = j->n - 1 - distance;
  const int64_t wide[] = {j->n, WIDTH}, one[] = {j->n, 1};
  TRY(array_new("a direction", HEED_F32, 2, (int64_t[]){1, WIDTH}, &j->direction));
  TRY(array_new("noise", HEED_F32, 2, wide, &j->noise));
  TRY(array_new("queries", HEED_F32, 2, wide, &j->q));
  TRY(array_new("keys", HEED_F32, 2, wide, &j->k));
  TRY(array_new("values", HEED_F32, 2, one, &j->x));
  TRY(array_new("values", HEED_F32, 2, one, &j->y));
  TRY(array_new("values", HEED_F32, 2, one, &j->indifferent));
  TRY(array_new("who sees whom", HEED_BOOL, 4, (int64_t[]){1, 1, j->n, j->n}, &j->visible));
  TRY(make_numbers(j, e->seed));
done:
  return code;
}

static void job_close(job *j) {
  array *all[] = {&j->direction, &j->noise, &j->q, &j->k, &j->x, &j->y, &j->indifferent, &j->visible};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
  heed_pattern_free(j->pattern);
}

/* One layer: x becomes its average under the pattern. */
static int layer(job *j, array *x, bool seeks, double *at_last) {
  heed_attention a = j->attention;
  int code;
  if (seeks) make_keys(j, x->view.data);
  a.has_scale = !seeks; // 0: all alike
  TRY(check(j->context, heed_attention_forward(j->context, &a, &j->q.view, &j->k.view, &x->view, &j->y.view, NULL)));
  const array swap = *x;
  *x = j->y;
  j->y = swap;
  *at_last = ((const float *)x->view.data)[j->n - 1];
done:
  return code;
}

static int carry(job *j, bool quick, carried *c) {
  const int most = quick ? 8 : MOST_LAYERS;
  bool grows = true;
  reach r;
  int code = EXIT_OK;
  reach_open(j->n, 1, &r);
  reach_put(&r, j->needle, 0);
  put_needle(j, &j->x);
  put_needle(j, &j->indifferent);
  for (int64_t layers = 1; grows && !c->sees; layers++) {
    grows = reach_step(&r, j->visible.view.data, 1);
    if (reach_has(&r, j->n - 1, 0)) c->sees = layers;
  }
  for (c->ran = 0; c->ran < most; c->ran++) {
    TRY(layer(j, &j->x, true, &c->seeking[c->ran + 1]));
    TRY(layer(j, &j->indifferent, false, &c->indifferent[c->ran + 1]));
  }
done:
  reach_close(&r);
  return code;
}

static int measure_pattern(job *j, int p, bool quick, carried *c) {
  heed_plan plan = {.size = sizeof plan};
  const heed_view q = heed_view_of(j->q.view.data, HEED_F32, 4, (int64_t[]){1, 1, j->n, WIDTH});
  int code;
  heed_pattern_free(j->pattern);
  j->pattern = NULL;
  TRY(check(j->context, heed_pattern_parse(j->context, patterns[p].pattern, &j->pattern)));
  j->attention = (heed_attention){.size = sizeof j->attention, .causal = !patterns[p].both_ways, .pattern = j->pattern};
  TRY(check(j->context, heed_attention_explain_plan(j->context, &j->attention, &q, &q, &q, &plan)));
  TRY(check(j->context, heed_attention_visible(j->context, &j->attention, &q, &q, &j->visible.view)));
  c->keys = (double)plan.visible_pairs / (double)j->n;
  TRY(carry(j, quick, c));
done:
  return code;
}

/* ---- what sees everything at once ------------------------------------------------------------------------------------------ */

enum { LINEAR, PERFORMER, LSH, WHOLE };
static const char *const whole[WHOLE] = {"linear", "performer:256", "lsh:8"};

static int call_linear(job *j, bool performer, uint64_t seed) {
  heed_linear_attention a = {.size = sizeof a, .causal = true};
  array projection = {0};
  int code = EXIT_OK;
  if (performer) {
    const heed_linear_draw_options options = {.size = sizeof options, .seed = seed};
    TRY(array_new("a projection", HEED_F32, 2, (int64_t[]){ROWS, WIDTH}, &projection));
    TRY(check(j->context, heed_linear_draw(j->context, &options, &projection.view)));
    a.features = HEED_FEATURES_POSITIVE;
    a.projection = &projection.view;
  }
  TRY(check(j->context, heed_linear_forward(j->context, &a, &j->q.view, &j->k.view, &j->x.view, &j->y.view, NULL)));
done:
  array_free(&projection);
  return code;
}

/* Rows are queries and keys at once: the last one asks as the needle does, without noise. Keys have length 1, so the scale gives the needle the score that it has elsewhere. */
static int call_lsh(job *j, uint64_t seed) {
  const heed_lsh_attention a = {
      .size = sizeof a, .causal = true, .has_scale = true, .scale = LOUD / sqrt(WIDTH), .rounds = ROUNDS, .seed = seed};
  const float *u = j->direction.view.data;
  float *k = j->k.view.data;
  for (int c = 0; c < WIDTH; c++) k[(j->n - 1) * WIDTH + c] = (float)(LOUD * u[c]);
  return check(j->context, heed_lsh_forward(j->context, &a, &j->k.view, &j->x.view, &j->y.view, NULL));
}

/* What arrives in one layer, the mean of some draws of noise, rows and rotations. */
static int measure_whole(experiment *e, job *j, double arrives[WHOLE]) {
  int code = EXIT_OK;
  for (int i = 0; i < DRAWS; i++) {
    const uint64_t seed = e->seed * DRAWS + (uint64_t)i;
    TRY(make_numbers(j, seed));
    put_needle(j, &j->x);
    make_keys(j, j->x.view.data);
    for (int w = 0; w < WHOLE; w++) {
      TRY(w == LSH ? call_lsh(j, seed) : call_linear(j, w == PERFORMER, seed));
      arrives[w] += (double)((const float *)j->y.view.data)[j->n - 1] / DRAWS;
    }
  }
done:
  return code;
}

/* ---- what is said ---------------------------------------------------------------------------------------------------------- */

static void name_of(int p, char name[CELL_MAX]) {
  snprintf(name, CELL_MAX, "%s%s", patterns[p].pattern, patterns[p].both_ways ? ", both ways" : "");
}

static void print_table(experiment *e, const carried of[PATTERNS], const double arrives[WHOLE], const job *j) {
  static const char *const titles[] = {"pattern", "keys a query",     "layers until seen", "seeking, a layer before",
                                       "then",    "indifferent, then"};
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) cell(e, "%s", titles[i]);
  row_end(e);
  for (int p = 0; p < PATTERNS; p++) {
    char name[CELL_MAX];
    const carried *c = &of[p];
    const int at = c->sees ? (int)c->sees : c->ran;
    const bool ran = at <= c->ran;
    name_of(p, name);
    cell(e, "%s", name);
    cell(e, "%.1f", c->keys);
    if (c->sees) cell(e, "%lld", (long long)c->sees);
    else cell(e, "never");
    cell(e, ran ? "%.3g" : "-", ran ? c->seeking[at - 1] : 0);
    cell(e, ran ? "%.4f" : "-", ran ? c->seeking[at] : 0);
    cell(e, ran ? "%.1e" : "-", ran ? c->indifferent[at] : 0);
    row_end(e);
  }
  for (int w = 0; w < WHOLE; w++) {
    cell(e, "%s", whole[w]);
    cell(e, w == LSH ? "<%lld" : "%lld", w == LSH ? (long long)(ROUNDS * 2 * BLOCK) : (long long)(j->n + 1) / 2);
    cell(e, "1");
    cell(e, "0");
    cell(e, "%.4f", arrives[w]);
    cell(e, "-");
    row_end(e);
  }
}

static void draw_curves(panel *seeking, panel *indifferent, const carried of[PATTERNS]) {
  for (int p = 0; p < PATTERNS; p++) {
    char name[CELL_MAX];
    name_of(p, name);
    curve *a = panel_curve(seeking, false, "%s", name), *b = panel_curve(indifferent, false, "%s", name);
    for (int i = 0; i <= of[p].ran; i++) {
      curve_add(a, i, of[p].seeking[i]);
      if (of[p].indifferent[i] > 0) curve_add(b, i, of[p].indifferent[i]);
    }
  }
}

static void conclude(experiment *e, const carried of[PATTERNS], const double arrives[WHOLE], const job *j) {
  double least = 1, most_indifferent = 0;
  bool first = true;
  finding(e, "The last of %lld tokens can have seen what stands %lld back after", (long long)j->n, (long long)(j->n - 1 - j->needle));
  for (int p = 0; p < PATTERNS; p++) {
    char name[CELL_MAX];
    if (!of[p].sees) continue;
    name_of(p, name);
    finding(e, "%s %lld layer%s with %s", first ? "" : ",", (long long)of[p].sees, of[p].sees > 1 ? "s" : "", name);
    first = false;
    if (of[p].sees > of[p].ran) continue;
    least = fmin(least, of[p].seeking[of[p].sees]);
    most_indifferent = fmax(most_indifferent, of[p].indifferent[of[p].sees]);
  }
  for (int p = 0; p < PATTERNS; p++) {
    char name[CELL_MAX];
    if (of[p].sees) continue;
    name_of(p, name);
    finding(e, ", never with %s", name);
  }
  finding(
      e,
      "; where as many layers were run, attention that seeks it then brings at least %.3f of it, one that weighs all alike at most %.2g. ",
      least, most_indifferent);
  finding(e, "In one layer linear attention brings %.2g of it, Performer %.3f, LSH %.3f.", arrives[LINEAR], arrives[PERFORMER],
          arrives[LSH]);
}

static int measure(experiment *e) {
  carried of[PATTERNS] = {0};
  double arrives[WHOLE] = {0};
  job j = {0};
  panel *seeking = experiment_panel(e, "Attention that seeks the needle", "layers", 0, "what has arrived", 0);
  panel *indifferent = experiment_panel(e, "Attention that weighs all alike", "layers", 0, "share that has arrived", 10);
  int code;
  TRY(job_open(e, (const values *)e->v, &j));
  for (int p = 0; p < PATTERNS; p++) {
    TRY(measure_pattern(&j, p, e->v->quick, &of[p]));
    if (!progress("follow", p + 1, PATTERNS)) TRY(EXIT_INTERRUPTED);
  }
  TRY(measure_whole(e, &j, arrives));
  print_table(e, of, arrives, &j);
  draw_curves(seeking, indifferent, of);
  conclude(e, of, arrives, &j);
done:
  job_close(&j);
  return code;
}

static int run(const void *v) { return experiment_run("A needle far back", measure, v); }

static const option options[] = {
    OPTION("distance", 0, WHOLE, "N", distance, "tokens from the needle to the last one (default 4000)", .low = 1, .high = 16384),
    EXPERIMENT_OPTIONS};

const command command_experiment_reach = {
    .name = "experiment reach",
    .summary = "find after how many layers a far token is seen, and what arrives",
    .about = "Puts a needle 4000 tokens before the last one and follows it through layers under each pattern: after how many the last "
             "token can have seen it, what of it arrives where attention seeks it, and where it weighs all tokens alike. The layers are "
             "set by hand, nothing is trained. Linear, Performer's and LSH attention get one layer.",
    .examples = "  heed experiment reach -o reach.svg\n  heed experiment reach --distance 3999\n",
    .options = options,
    EXPERIMENT_TAKES,
    .values_size = sizeof(values),
    .defaults = &(const values){.experiment = EXPERIMENT_DEFAULTS},
    .run = run,
};
