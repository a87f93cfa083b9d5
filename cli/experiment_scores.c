/* experiment_scores.c: `heed experiment scores`: three ways to compare a query with a key, as their width d grows: additive (Bahdanau et al. 2015), the dot product, and the dot product
 * divided by √d. "While for small values of d_k the two mechanisms perform similarly, additive attention outperforms dot product attention without scaling for larger values of d_k", and
 * dot products are "much faster" (Vaswani et al. 2017, section 3.2.1, on the findings of Britz et al. 2017): looked at in the kernels' time, and in a recurrent model whose decoder looks
 * back through queries and keys of width d while everything else stays as it is. */
#include "arrays.h"
#include "experiment_model.h"
#include "experiment_strings.h"

#include <math.h>
#include <stdlib.h>

typedef enum score_kind { ADDITIVE, DOT, SCALED, SCORES } score_kind;
static const char *const names[SCORES] = {"additive", "q·k", "q·k / √d"};
static const int64_t widths[] = {8, 16, 32, 64, 128, 256, 512};
enum { WIDTHS = sizeof widths / sizeof widths[0], LAST = WIDTHS - 1 };

/* ---- time ------------------------------------------------------------------------------------------------------------------ */

enum { ROWS = 256, VALUE = 64 }; // queries, keys; columns of a value

/* What one call of attention needs. */
typedef struct timing {
  array q, k, v, out, wq, wk, wv;
} timing;

static int open_timing(experiment *e, int64_t d, timing *t) {
  const int64_t rows[] = {1, 1, ROWS, d}, values_dim[] = {1, 1, ROWS, VALUE}, weights[] = {d, d};
  int code;
  TRY(array_random("queries", HEED_F32, 4, rows, e->seed, &t->q));
  TRY(array_random("keys", HEED_F32, 4, rows, e->seed + 1, &t->k));
  TRY(array_random("values", HEED_F32, 4, values_dim, e->seed + 2, &t->v));
  TRY(array_new("out", HEED_F32, 4, values_dim, &t->out));
  TRY(array_random("weights", HEED_F32, 2, weights, e->seed + 3, &t->wq));
  TRY(array_random("weights", HEED_F32, 2, weights, e->seed + 4, &t->wk));
  TRY(array_random("weights", HEED_F32, 1, weights, e->seed + 5, &t->wv));
done:
  return code;
}

static void close_timing(timing *t) {
  array *all[] = {&t->q, &t->k, &t->v, &t->out, &t->wq, &t->wk, &t->wv};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
}

/* The fastest of some calls, in microseconds a query. */
static int time_kernels(experiment *e, int64_t d, double time[SCORES]) {
  const int calls = e->v->quick ? 1 : 30;
  timing t = {0};
  int code;
  TRY(open_timing(e, d, &t));
  const heed_score additive = {.size = sizeof additive, .kind = HEED_SCORE_ADDITIVE, .wq = &t.wq.view, .wk = &t.wk.view, .wv = &t.wv.view};
  for (int s = 0; s < SCORES; s++) {
    const heed_attention attention = {.size = sizeof attention,
                                      .score = s == ADDITIVE ? &additive : NULL,
                                      .has_scale = true,
                                      .scale = s == SCALED ? 1 / sqrt((double)d) : 1};
    time[s] = INFINITY;
    for (int i = 0; i < calls; i++) {
      const double begin = seconds_now();
      TRY(check(e->context, heed_attention_forward(e->context, &attention, &t.q.view, &t.k.view, &t.v.view, &t.out.view, NULL)));
      time[s] = fmin(time[s], 1e6 * (seconds_now() - begin) / ROWS);
    }
  }
done:
  close_timing(&t);
  return code;
}

/* ---- quality --------------------------------------------------------------------------------------------------------------- */

enum { MOST = 16, COLUMNS = MOST + 1, WIDTH = 64, BATCH = 32 }; // letters of a string; columns of source and target

/* A recurrent encoder in both directions, and a decoder that looks back. */
typedef struct reader {
  maker maker;
  score_kind score;
  double scale;
  heed_nn_gru encoder;
  heed_tensor *embedding, *initial, *key, *query, *vector, *context, *input, *input_bias, *state, *state_bias, *head;
} reader;

static int open_reader(experiment *e, score_kind score, int64_t d, reader *r) {
  int code;
  *r = (reader){.maker = {.context = e->context, .seed = e->seed}, .score = score, .scale = score == SCALED ? 1 / sqrt((double)d) : 1};
  maker *m = &r->maker;
  TRY(check(e->context, heed_parameters_new(e->context, &m->set)));
  r->embedding = make_parameter(m, STRINGS_VOCABULARY, WIDTH, HEED_INITIAL_NORMAL, 1);
  r->encoder.directions = 2;
  for (int i = 0; i < 2; i++) {
    r->encoder.w_input[i] = make_matrix(m, 3 * WIDTH, WIDTH);
    r->encoder.b_input[i] = make_bias(m, 3 * WIDTH);
    r->encoder.w_state[i] = make_matrix(m, 3 * WIDTH, WIDTH);
    r->encoder.b_state[i] = make_bias(m, 3 * WIDTH);
  }
  r->initial = make_matrix(m, WIDTH, WIDTH);
  r->context = make_matrix(m, 3 * WIDTH, 2 * WIDTH);
  r->input = make_matrix(m, 3 * WIDTH, WIDTH);
  r->input_bias = make_bias(m, 3 * WIDTH);
  r->state = make_matrix(m, 3 * WIDTH, WIDTH);
  r->state_bias = make_bias(m, 3 * WIDTH);
  r->head = make_matrix(m, STRINGS_VOCABULARY, WIDTH);
  r->key = make_matrix(m, d, 2 * WIDTH);
  r->query = make_matrix(m, d, WIDTH);
  if (score == ADDITIVE) r->vector = make_parameter(m, d, 0, HEED_INITIAL_NORMAL, 1 / sqrt((double)d));
  TRY(check(e->context, m->status));
done:
  return code;
}

/* Columns [first, first + COLUMNS) of ids, without their padding, which is counted. */
static heed_tensor *side_of(heed_tape *tape, const heed_view *ids, int64_t first, int64_t lengths[BATCH]) {
  int32_t side[BATCH * COLUMNS] = {0};
  const int32_t *from = ids->data;
  for (int64_t b = 0; b < BATCH; b++) {
    lengths[b] = 0;
    while (lengths[b] < COLUMNS && from[b * 2 * COLUMNS + first + lengths[b]] >= 0) {
      side[b * COLUMNS + lengths[b]] = from[b * 2 * COLUMNS + first + lengths[b]];
      lengths[b]++;
    }
  }
  const heed_view view = heed_view_of(side, HEED_I32, 2, (int64_t[]){BATCH, COLUMNS});
  return heed_tape_input(tape, &view);
}

/* ids i32 [BATCH,2 COLUMNS] -> [BATCH,COLUMNS,vocabulary]. */
static heed_tensor *reader_logits(const void *model, heed_tape *tape, heed_tensor *ids) {
  const reader *r = model;
  int64_t source_lengths[BATCH], target_lengths[BATCH];
  if (!ids) return NULL;
  const heed_view view = heed_tensor_value(ids);
  heed_tensor *source = side_of(tape, &view, 0, source_lengths), *target = side_of(tape, &view, COLUMNS, target_lengths), *last[2];
  const heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = source_lengths};
  heed_tensor *states = heed_nn_gru_apply(tape, &r->encoder, &rows, heed_tape_embedding(tape, source, r->embedding), last);
  if (!states) return NULL;
  const heed_tape_gru_options decoder = {
      .size = sizeof decoder,
      .lengths = target_lengths,
      .initial = heed_tape_activate(tape, heed_tape_linear(tape, last[1], r->initial, NULL), HEED_ACTIVATION_TANH),
      .keys = heed_tape_linear(tape, states, r->key, NULL),
      .values = heed_tape_linear(tape, states, r->context, NULL),
      .w_query = r->query,
      .w_score = r->vector,
      .scale = r->scale,
      .key_lengths = source_lengths};
  heed_tensor *x = heed_tape_linear(tape, heed_tape_embedding(tape, target, r->embedding), r->input, r->input_bias);
  return heed_tape_linear(tape, heed_tape_gru(tape, &decoder, x, r->state, r->state_bias), r->head, NULL);
}

static int train_reader(experiment *e, score_kind score, int64_t d, const lesson *l, curve *losses, outcome *o) {
  reader r;
  int code;
  TRY(open_reader(e, score, d, &r));
  const pupil p = {
      .model = &r, .parameters = r.maker.set, .logits = reader_logits, .first = COLUMNS, .answers = 1, .classes = STRINGS_VOCABULARY};
  TRY(experiment_teach(e, &p, l, losses, o));
done:
  heed_parameters_free(r.maker.set);
  return code;
}

/* ---- the experiment ---------------------------------------------------------------------------------------------------------- */

typedef struct measured {
  double time[SCORES];
  outcome of[SCORES];
} measured;

/* The losses of the narrowest and of the widest are drawn. */
static int train_all(experiment *e, int64_t steps, measured at[WIDTHS]) {
  strings train = {0}, held_out = {0};
  int code;
  TRY(strings_open(e, &(strings_wish){.least = 1, .most = MOST, .count = e->v->quick ? 512 : 50000, .width = COLUMNS}, &train));
  TRY(strings_open(e, &(strings_wish){.least = MOST / 2, .most = MOST, .count = 8 * BATCH, .width = COLUMNS, .held_out = true}, &held_out));
  const lesson l = {.name = "train",
                    .source = heed_pair_batch,
                    .user = &train.data,
                    .held_out = heed_pair_row_batch,
                    .held_out_user = &held_out.data,
                    .steps = steps,
                    .batch = BATCH,
                    .length = 2 * COLUMNS,
                    .warmup = 20,
                    .rate = 3e-3,
                    .seed = e->seed};
  for (int i = 0; i < WIDTHS; i++) {
    char title[48];
    snprintf(title, sizeof title, "Learning with d = %lld", (long long)widths[i]);
    panel *losses = i == 0 || i == LAST ? experiment_panel(e, title, "step", 0, "loss (nats)", 0) : NULL;
    for (int s = 0; s < SCORES; s++) {
      curve unseen = {.count = 0};
      code = train_reader(e, (score_kind)s, widths[i], &l, losses ? panel_curve(losses, false, "%s", names[s]) : &unseen, &at[i].of[s]);
      free(unseen.x);
      free(unseen.y);
      if (code != EXIT_OK) goto done;
    }
  }
done:
  strings_close(&train);
  strings_close(&held_out);
  return code;
}

static void print_table(experiment *e, const measured at[WIDTHS]) {
  cell(e, "d");
  for (int s = 0; s < SCORES; s++) cell(e, s == 0 ? "µs a query: %s" : "%s", names[s]);
  for (int s = 0; s < SCORES; s++) cell(e, s == 0 ? "loss: %s" : "%s", names[s]);
  for (int s = 0; s < SCORES; s++) cell(e, s == 0 ? "exact: %s" : "%s", names[s]);
  row_end(e);
  for (int i = 0; i < WIDTHS; i++) {
    cell(e, "%lld", (long long)widths[i]);
    for (int s = 0; s < SCORES; s++) cell(e, "%.2f", at[i].time[s]);
    for (int s = 0; s < SCORES; s++) cell(e, "%.3f", at[i].of[s].loss);
    for (int s = 0; s < SCORES; s++) cell(e, "%.1f %%", 100 * at[i].of[s].exact);
    row_end(e);
  }
}

static void draw(const measured at[WIDTHS], panel *times, panel *exact) {
  for (int s = 0; s < SCORES; s++) {
    curve *time = panel_curve(times, false, "%s", names[s]), *share = panel_curve(exact, false, "%s", names[s]);
    for (int i = 0; i < WIDTHS; i++) {
      curve_add(time, (double)widths[i], at[i].time[s]);
      curve_add(share, (double)widths[i], at[i].of[s].exact);
    }
  }
}

/* Of `other` beside additive scores. */
static const char *relation(const measured *m, score_kind other) {
  static const double same = 0.1;
  const double difference = m->of[other].exact - m->of[ADDITIVE].exact;
  return fabs(difference) <= same ? "much the same" : difference > 0 ? "more" : "fewer";
}

static void conclude(experiment *e, const measured at[WIDTHS], int64_t steps) {
  const measured *narrow = &at[0], *wide = &at[LAST];
  finding(e,
          "After %lld steps and at d = %lld additive scores reverse %.1f %% of fresh strings to the letter and dot products %.1f %%, %s; ",
          (long long)steps, (long long)widths[0], 100 * narrow->of[ADDITIVE].exact, 100 * narrow->of[DOT].exact, relation(narrow, DOT));
  finding(e, "at d = %lld additive scores %.1f %%, dot products %.1f %%, %s, and those divided by √d %.1f %%, %s; ",
          (long long)widths[LAST], 100 * wide->of[ADDITIVE].exact, 100 * wide->of[DOT].exact, relation(wide, DOT),
          100 * wide->of[SCALED].exact, relation(wide, SCALED));
  finding(e, "attention with additive scores takes %.1f times as long as with dot products at d = %lld and %.1f times at d = %lld.",
          narrow->time[ADDITIVE] / narrow->time[DOT], (long long)widths[0], wide->time[ADDITIVE] / wide->time[DOT],
          (long long)widths[LAST]);
}

static int measure(experiment *e) {
  const int64_t steps = experiment_steps(e, 600);
  measured at[WIDTHS] = {0};
  panel *exact = experiment_panel(e, "Strings of 8 to 16 letters, reversed", "d", 2, "share of fresh strings, exact", 0);
  panel *times = experiment_panel(e, "Attention of 256 queries to 256 keys", "d", 2, "µs a query", 10);
  int code = EXIT_OK;
  for (int i = 0; i < WIDTHS; i++) TRY(time_kernels(e, widths[i], at[i].time));
  TRY(train_all(e, steps, at));
  print_table(e, at);
  draw(at, times, exact);
  conclude(e, at, steps);
done:
  return code;
}

static int run(const void *v) { return experiment_run("Additive, dot and scaled dot products", measure, v); }

static const option options[] = {EXPERIMENT_STEPS, EXPERIMENT_OPTIONS};

const command command_experiment_scores = {
    .name = "experiment scores",
    .summary = "compare additive, dot and scaled dot products as they grow wider",
    .about =
        "Times attention whose scores are additive (Bahdanau's), dot products, and dot products divided by √d, for queries and keys of "
        "width d = 8 to 512; then trains a small recurrent model to reverse strings with each, everything else staying as it is.",
    .examples = "  heed experiment scores -o scores.svg\n",
    .options = options,
    EXPERIMENT_COMMON,
    .run = run,
};
