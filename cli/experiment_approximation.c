/* experiment_approximation.c: `heed experiment approximation`: how far Performer's random features and LSH's rounds are from the attention that they stand for, on random numbers and on the
 * queries, keys and values of a model.
 *
 * The error of a head is |out − exact| / |exact| over all of its rows, causal. Performer stands for softmax attention. LSH stands for attention of rows to themselves as keys of length 1, the
 * own row left out: exact is then that, and the rows of a model are its queries. Beside both stands what an average of the values comes to that asks neither queries nor keys. */
#include "arrays.h"
#include "experiment_text.h"
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
  experiment_values experiment;
  const char *model, *data;
  int64_t tokens;
} values;

static const struct {
  const char *name;
  heed_features features;
  bool independent;
} kinds[] = {{"positive, orthogonal", HEED_FEATURES_POSITIVE, false},
             {"positive, independent", HEED_FEATURES_POSITIVE, true},
             {"hyperbolic, orthogonal", HEED_FEATURES_HYPERBOLIC, false},
             {"hyperbolic, independent", HEED_FEATURES_HYPERBOLIC, true}};
enum {
  KINDS = sizeof kinds / sizeof kinds[0],
  LEAST_FEATURES = 16,
  SIZES = 7,
  MOST_DRAWS = 3,
  PICKED = 4,
  NAMED_SIZE = 4,
  NAMED_ROUNDS = 3
};

/* ---- what is attended to --------------------------------------------------------------------------------------------------- */

/* Heads with queries, keys and values of their own, [heads,n,d]. */
typedef struct sample {
  const char *name;
  int64_t heads, n, d;
  array q, k, v;
} sample;

static int sample_new(sample *s, const char *name, int64_t heads, int64_t n, int64_t d) {
  const int64_t dim[] = {heads, n, d};
  int code;
  *s = (sample){.name = name, .heads = heads, .n = n, .d = d};
  TRY(array_new("queries", HEED_F32, 3, dim, &s->q));
  TRY(array_new("keys", HEED_F32, 3, dim, &s->k));
  TRY(array_new("values", HEED_F32, 3, dim, &s->v));
done:
  return code;
}

static void sample_close(sample *s) {
  array_free(&s->q);
  array_free(&s->k);
  array_free(&s->v);
}

static heed_view head_of(const array *a, int64_t head) {
  const int64_t n = a->view.dim[1], d = a->view.dim[2];
  return heed_view_of((float *)a->view.data + head * n * d, HEED_F32, 2, (int64_t[]){n, d});
}

/* Independent normal numbers of a standard deviation whose square is the variance of q·k / √d: 1 is a little sharp, 1/4 nearly a mean. */
static int random_sample(experiment *e, const char *name, double deviation, int64_t n, sample *s) {
  enum { HEADS = 4, D = 64 };
  const int64_t count = HEADS * n * D;
  int code;
  TRY(sample_new(s, name, HEADS, n, D));
  for (int i = 0; i < 3; i++) {
    float *to = (i == 0 ? &s->q : i == 1 ? &s->k : &s->v)->view.data;
    const heed_view rows = heed_view_of(to, HEED_F32, 2, (int64_t[]){HEADS * n, D});
    const heed_linear_draw_options draw = {.size = sizeof draw, .independent = true, .seed = e->seed, .stream = (uint32_t)i};
    TRY(check(e->context, heed_linear_draw(e->context, &draw, &rows)));
    for (int64_t k = 0; k < count; k++) to[k] *= (float)deviation;
  }
done:
  return code;
}

/* Layers of a model that are looked at, evenly from the first to the last. */
typedef struct capture {
  sample *to;
  int64_t heads, kv_heads;
  const int64_t *layers;
} capture;

static heed_status take_layer(void *user, const heed_layer_record *r) {
  const capture *c = user;
  const int64_t n = c->to->n, d = c->to->d;
  float *q = c->to->q.view.data, *k = c->to->k.view.data, *v = c->to->v.view.data;
  int64_t slot = 0;
  while (c->layers[slot] != r->layer) slot++;
  for (int64_t h = 0; h < c->heads; h++) {
    const int64_t at = (slot * c->heads + h) * n, from = h / (c->heads / c->kv_heads) * r->keys * d;
    memcpy(q + (at + r->first) * d, r->q + h * r->queries * d, (size_t)(r->queries * d) * sizeof *q);
    memcpy(k + at * d, r->k + from, (size_t)(r->keys * d) * sizeof *k);
    memcpy(v + at * d, r->v + from, (size_t)(r->keys * d) * sizeof *v);
  }
  return HEED_OK;
}

/* The model reads the beginning of a text. Each query head has its keys and values, shared ones several times. */
static int model_sample(experiment *e, const values *v, const loaded *m, int64_t n, sample *s) {
  const int64_t count = m->info.layers < PICKED ? m->info.layers : PICKED;
  int64_t layers[PICKED] = {0}, ids_count = 0;
  heed_session *session = NULL;
  char *text = NULL;
  size_t bytes = 0;
  int32_t *ids = NULL;
  int code;
  for (int64_t i = 1; i < count; i++) layers[i] = i * (m->info.layers - 1) / (count - 1);
  if (!m->tokenizer) return usage_error("%s: has no tokenizer, so it cannot read a text", m->info.name);
  TRY(experiment_text(e, v->data, 8 * n, &text, &bytes));
  TRY(check(m->context, heed_encode(m->context, m->tokenizer, (heed_text){text, bytes}, NULL, &ids, &ids_count)));
  if (ids_count < n)
    TRY(error_of(EXIT_BAD_FILE, "%s: too short (got %lld tokens, allowed from %lld on: --tokens)", v->data ? v->data : "the text",
                 (long long)ids_count, (long long)n));
  TRY(sample_new(s, m->info.name, count * m->info.heads, n, m->info.head_dim));
  capture c = {.to = s, .heads = m->info.heads, .kv_heads = m->info.kv_heads, .layers = layers};
  const heed_watch watch = {.size = sizeof watch, .n_layers = count, .layers = layers, .want_qkv = true, .record = take_layer, .user = &c};
  const heed_session_options options = {.size = sizeof options, .capacity = n};
  TRY(check(m->context, heed_session_new(m->context, m->model, &options, &session)));
  TRY(check(m->context, heed_session_run(session, ids, n, NULL, 0, &watch)));
done:
  heed_session_free(session);
  if (ids) heed_ids_free(m->context, ids, ids_count);
  free(text);
  return code;
}

/* ---- errors ---------------------------------------------------------------------------------------------------------------- */

/* Squares, so that draws can be averaged. */
static double difference(const array *out, const array *exact) {
  const int64_t count = view_count(&out->view);
  const float *a = out->view.data, *b = exact->view.data;
  double off = 0, all = 0;
  for (int64_t i = 0; i < count; i++) {
    off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    all += (double)b[i] * b[i];
  }
  return off / all;
}

/* Over heads. */
typedef struct spread {
  double median, worst;
} spread;

/* By size: features, or rounds. */
typedef struct measured {
  spread performer[KINDS][SIZES], lsh[SIZES], performer_mean, lsh_mean;
  int sizes;
} measured;

/* Of squares; sorts them. */
static spread spread_of(double *squares, int64_t heads) {
  sort_numbers(squares, heads);
  return (spread){(sqrt(squares[(heads - 1) / 2]) + sqrt(squares[heads / 2])) / 2, sqrt(squares[heads - 1])};
}

typedef struct work {
  experiment *e;
  const sample *s;
  int64_t head;
  int draws;
  heed_view q, k, v;
  array out, exact, visible;
  double *squares[KINDS][SIZES], *mean, *lsh[SIZES], *lsh_mean;
} work;

static int attend(work *w, const heed_attention *a, const heed_view *k, array *out) {
  return check(w->e->context, heed_attention_forward(w->e->context, a, &w->q, k, &w->v, &out->view, NULL));
}

static int performer(work *w, int kind, int size) {
  heed_context *context = w->e->context;
  const int64_t features = (int64_t)LEAST_FEATURES << size,
                rows = kinds[kind].features == HEED_FEATURES_HYPERBOLIC ? features / 2 : features;
  array projection = {0};
  double sum = 0;
  int code;
  TRY(array_new("a projection", HEED_F32, 2, (int64_t[]){rows, w->s->d}, &projection));
  for (int i = 0; i < w->draws; i++) {
    const heed_linear_draw_options draw = {
        .size = sizeof draw, .independent = kinds[kind].independent, .seed = w->e->seed, .stream = (uint32_t)(100 + i)};
    const heed_linear_attention a = {.size = sizeof a, .features = kinds[kind].features, .causal = true, .projection = &projection.view};
    TRY(check(context, heed_linear_draw(context, &draw, &projection.view)));
    TRY(check(context, heed_linear_forward(context, &a, &w->q, &w->k, &w->v, &w->out.view, NULL)));
    sum += difference(&w->out, &w->exact);
  }
  w->squares[kind][size][w->head] = sum / w->draws;
done:
  array_free(&projection);
  return code;
}

static int measure_performer(work *w, int sizes) {
  const heed_attention exact = {.size = sizeof exact, .causal = true},
                       mean = {.size = sizeof mean, .causal = true, .has_scale = true, .scale = 0};
  int code;
  TRY(attend(w, &exact, &w->k, &w->exact));
  TRY(attend(w, &mean, &w->k, &w->out));
  w->mean[w->head] = difference(&w->out, &w->exact);
  for (int kind = 0; kind < KINDS; kind++)
    for (int size = 0; size < sizes; size++) TRY(performer(w, kind, size));
done:
  return code;
}

/* Rows as keys: of length 1 but for what keeps the length of 0 from dividing (heed_lsh_attention). */
static void make_keys(const work *w, array *keys) {
  const int64_t n = w->s->n, d = w->s->d;
  for (int64_t i = 0; i < n; i++) {
    const float *x = (const float *)w->q.data + i * d;
    float *to = (float *)keys->view.data + i * d;
    double sum = 0;
    for (int64_t c = 0; c < d; c++) sum += (double)x[c] * x[c];
    for (int64_t c = 0; c < d; c++) to[c] = (float)(x[c] / sqrt(sum + 1e-6 * (double)d));
  }
}

static int measure_lsh(work *w, int sizes) {
  heed_context *context = w->e->context;
  array keys = {0};
  int code;
  TRY(array_new("keys", HEED_F32, 2, w->q.dim, &keys));
  make_keys(w, &keys);
  heed_attention exact = {.size = sizeof exact, .has_scale = true, .scale = 1, .attend = &w->visible.view};
  TRY(attend(w, &exact, &keys.view, &w->exact));
  exact.scale = 0;
  TRY(attend(w, &exact, &keys.view, &w->out));
  w->lsh_mean[w->head] = difference(&w->out, &w->exact);
  for (int size = 0; size < sizes; size++) {
    double sum = 0;
    for (int i = 0; i < w->draws; i++) {
      const heed_lsh_attention a = {
          .size = sizeof a, .causal = true, .rounds = (int64_t)1 << size, .seed = w->e->seed, .stream = (uint32_t)i};
      TRY(check(context, heed_lsh_forward(context, &a, &w->q, &w->v, &w->out.view, NULL)));
      sum += difference(&w->out, &w->exact);
    }
    w->lsh[size][w->head] = sum / w->draws;
  }
done:
  array_free(&keys);
  return code;
}

static int work_open(work *w) {
  const int64_t n = w->s->n, heads = w->s->heads;
  int code;
  TRY(array_new("out", HEED_F32, 2, (int64_t[]){n, w->s->d}, &w->out));
  TRY(array_new("exact", HEED_F32, 2, (int64_t[]){n, w->s->d}, &w->exact));
  TRY(array_new("who sees whom", HEED_BOOL, 2, (int64_t[]){n, n}, &w->visible));
  bool *sees = w->visible.view.data;
  for (int64_t i = 0; i < n; i++) memset(sees + i * n, 1, (size_t)i);
  sees[0] = true; // the first row has nobody else
  for (int i = 0; i < KINDS; i++)
    for (int k = 0; k < SIZES; k++) w->squares[i][k] = allocate("errors", heads, sizeof(double));
  for (int k = 0; k < SIZES; k++) w->lsh[k] = allocate("errors", heads, sizeof(double));
  w->mean = allocate("errors", heads, sizeof(double));
  w->lsh_mean = allocate("errors", heads, sizeof(double));
done:
  return code;
}

static void work_close(work *w) {
  array_free(&w->out);
  array_free(&w->exact);
  array_free(&w->visible);
  for (int i = 0; i < KINDS; i++)
    for (int k = 0; k < SIZES; k++) free(w->squares[i][k]);
  for (int k = 0; k < SIZES; k++) free(w->lsh[k]);
  free(w->mean);
  free(w->lsh_mean);
}

static int measure_sample(experiment *e, const sample *s, measured *m) {
  work w = {.e = e, .s = s, .draws = e->v->quick ? 2 : MOST_DRAWS};
  int code;
  m->sizes = e->v->quick ? 3 : SIZES;
  TRY(work_open(&w));
  for (w.head = 0; w.head < s->heads; w.head++) {
    w.q = head_of(&s->q, w.head), w.k = head_of(&s->k, w.head), w.v = head_of(&s->v, w.head);
    TRY(measure_performer(&w, m->sizes));
    TRY(measure_lsh(&w, m->sizes));
    if (!progress(s->name, w.head + 1, s->heads)) TRY(EXIT_INTERRUPTED);
  }
  for (int i = 0; i < KINDS; i++)
    for (int k = 0; k < m->sizes; k++) m->performer[i][k] = spread_of(w.squares[i][k], s->heads);
  for (int k = 0; k < m->sizes; k++) m->lsh[k] = spread_of(w.lsh[k], s->heads);
  m->performer_mean = spread_of(w.mean, s->heads);
  m->lsh_mean = spread_of(w.lsh_mean, s->heads);
done:
  work_close(&w);
  return code;
}

/* ---- what is said ---------------------------------------------------------------------------------------------------------- */

static void line(experiment *e, const char *name, const spread *of, int sizes) {
  cell(e, "%s", name);
  for (int k = 0; k < sizes; k++) cell(e, of[k].median < 1e-4 ? "%.1e" : "%.4f", of[k].median);
  row_end(e);
}

static void print_tables(experiment *e, const sample *s, const measured *m) {
  spread mean[SIZES];
  cell(e, "%s, features", s->name);
  for (int k = 0; k < m->sizes; k++) cell(e, "%lld", (long long)LEAST_FEATURES << k);
  row_end(e);
  for (int i = 0; i < KINDS; i++) line(e, kinds[i].name, m->performer[i], m->sizes);
  for (int k = 0; k < m->sizes; k++) mean[k] = m->performer_mean;
  line(e, "mean of the values", mean, m->sizes);
  row_end(e);
  cell(e, "%s, rounds", s->name);
  for (int k = 0; k < m->sizes; k++) cell(e, "%d", 1 << k);
  row_end(e);
  line(e, "LSH", m->lsh, m->sizes);
  for (int k = 0; k < m->sizes; k++) mean[k] = (spread){m->lsh[k].worst, 0};
  line(e, "its worst head", mean, m->sizes);
  for (int k = 0; k < m->sizes; k++) mean[k] = m->lsh_mean;
  line(e, "mean of the values", mean, m->sizes);
}

static void add_line(panel *p, bool expected, const char *name, int64_t first, int sizes, const spread *of, const spread *constant) {
  curve *c = panel_curve(p, expected, "%s", name);
  for (int k = 0; k < sizes; k++) curve_add(c, (double)(first << k), constant ? constant->median : of[k].median);
}

static void draw(experiment *e, const sample *s, const measured *m) {
  char title[96];
  snprintf(title, sizeof title, "Performer, %s", s->name);
  panel *p = experiment_panel(e, title, "features", 2, "error, median head", 10);
  for (int i = 0; i < KINDS; i++) add_line(p, false, kinds[i].name, LEAST_FEATURES, m->sizes, m->performer[i], NULL);
  add_line(p, true, "mean of the values", LEAST_FEATURES, m->sizes, NULL, &m->performer_mean);
  snprintf(title, sizeof title, "LSH, %s", s->name);
  p = experiment_panel(e, title, "rounds", 2, "error, median head", 10);
  add_line(p, false, "LSH", 1, m->sizes, m->lsh, NULL);
  add_line(p, true, "mean of the values", 1, m->sizes, NULL, &m->lsh_mean);
}

static void conclude(experiment *e, const sample *s, const measured *m) {
  const int size = NAMED_SIZE < m->sizes ? NAMED_SIZE : m->sizes - 1, rounds = NAMED_ROUNDS < m->sizes ? NAMED_ROUNDS : m->sizes - 1;
  finding(e, "%s (%lld heads, %lld tokens, width %lld): with %d features Performer's output is off by ", s->name, (long long)s->heads,
          (long long)s->n, (long long)s->d, LEAST_FEATURES << size);
  for (int i = 0; i < KINDS; i++) finding(e, "%s%.3g (%s)", i ? ", " : "", m->performer[i][size].median, kinds[i].name);
  finding(e, ", the mean of the values by %.3g; with %d rounds LSH by %.3g, the mean by %.3g. ", m->performer_mean.median, 1 << rounds,
          m->lsh[rounds].median, m->lsh_mean.median);
}

static int measure_one(experiment *e, const sample *s) {
  measured m;
  int code;
  TRY(measure_sample(e, s, &m));
  if (e->rows) row_end(e);
  print_tables(e, s, &m);
  draw(e, s, &m);
  conclude(e, s, &m);
done:
  return code;
}

static int measure(experiment *e) {
  const values *v = (const values *)e->v;
  const int64_t n = v->tokens ? v->tokens : e->v->quick ? 256 : 2048;
  sample sharp = {0}, soft = {0}, real = {0};
  loaded m = {0};
  int code;
  if (v->data && !v->model) return usage_error("--data: needs --model, which reads it");
  if (v->model) { // first: what is wrong with it should be known before anything is measured
    TRY(model_open(&v->experiment.common, v->model, &m));
    TRY(model_sample(e, v, &m, n, &real));
  }
  TRY(random_sample(e, "random, σ = 1", 1, n, &sharp));
  TRY(measure_one(e, &sharp));
  TRY(random_sample(e, "random, σ = 0.5", 0.5, n, &soft));
  TRY(measure_one(e, &soft));
  if (v->model) TRY(measure_one(e, &real));
  finding(e, v->model ? "Errors are |out - exact| / |exact| of the median head."
                      : "Only random numbers were looked at: --model names a model.");
done:
  sample_close(&sharp);
  sample_close(&soft);
  sample_close(&real);
  model_close(&m);
  return code;
}

static int run(const void *v) { return experiment_run("How far approximations are from what they stand for", measure, v); }

static const option options[] = {
    OPTION("model", 0, TEXT, "MODEL", model, "also on the queries, keys and values of four of this model's layers"),
    OPTION("data", 0, TEXT, "FILE", data, "the text that the model reads (default: made-up sentences)"),
    OPTION("tokens", 0, WHOLE, "N", tokens, "length of what is attended to (default 2048)", .low = 2, .high = 16384), EXPERIMENT_OPTIONS};

const command command_experiment_approximation = {
    .name = "experiment approximation",
    .summary = "measure errors of Performer by features and of LSH by rounds",
    .about = "Measures how far the output of Performer's attention is from exact attention, for 16 to 1024 features, positive and "
             "hyperbolic, orthogonal and independent, and that of LSH attention from exact attention with shared queries and keys, for 1 "
             "to 64 rounds; on random numbers and, with --model, on what the layers of a model attend with.",
    .examples = "  heed experiment approximation -o approximation.svg\n"
                "  heed experiment approximation --model SmolLM2.gguf --data tinyshakespeare.txt\n",
    .options = options,
    EXPERIMENT_TAKES,
    .values_size = sizeof(values),
    .defaults = &(const values){.experiment = EXPERIMENT_DEFAULTS},
    .run = run,
};
