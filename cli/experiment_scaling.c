/* experiment_scaling.c: `heed experiment scaling`: time and memory of exact attention and of everything that looks at fewer pairs, or at none, as texts grow.
 *
 * All are calls of the library on the same random numbers, causal unless told otherwise. Memory is counted, not guessed from the process: it is the most that a context of its own held at a
 * time during a call, which is all that the call needs beyond its inputs and outputs. A call that would take longer than the limit is not made, and the table says where that was. */
#include "arrays.h"
#include "experiment.h"

#include <math.h>
#include <stdlib.h>

typedef struct values {
  experiment_values experiment;
  int64_t heads, longest;
  double limit;
  bool backward, both_ways;
} values;

typedef enum form { EXACT, PATTERN, LINEAR, LSH } form;

/* %lld in a pattern is the power of two next to √n. */
typedef struct variant {
  const char *name;
  form form;
  const char *pattern;
  heed_features features;
} variant;
static const variant variants[] = {
    {"exact", EXACT, NULL, 0},
    {"window:256", PATTERN, "window:256", 0},
    {"dilated:64:4", PATTERN, "dilated:64:4", 0},
    {"strided:√n", PATTERN, "strided:%lld", 0},
    {"fixed:√n:4", PATTERN, "fixed:%lld:4", 0},
    {"logsparse", PATTERN, "logsparse", 0},
    {"bigbird:64:1:1:3", PATTERN, "bigbird:64:1:1:3", 0},
    {"tree", PATTERN, "tree", 0},
    {"linear", LINEAR, NULL, HEED_FEATURES_ELU},
    {"performer:256", LINEAR, NULL, HEED_FEATURES_POSITIVE},
    {"lsh:8", LSH, NULL, 0},
};
enum { VARIANTS = sizeof variants / sizeof variants[0], LENGTHS = 8, SHORTEST = 512, WIDTH = 64, ROWS = 256, ROUNDS = 8 };
enum { FORWARD, BACKWARD, PASSES };
static const char *const passes[PASSES] = {"forward", "gradients"};

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

typedef struct ledger {
  int64_t now, peak;
} ledger;

static void *ledger_allocate(void *user, size_t bytes, size_t alignment) {
  ledger *l = user;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) return NULL;
  const int64_t now = __atomic_add_fetch(&l->now, (int64_t)bytes, __ATOMIC_RELAXED);
  for (int64_t peak = l->peak;
       peak < now && !__atomic_compare_exchange_n(&l->peak, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);) {}
  return memory;
}

static void ledger_release(void *user, void *memory, size_t bytes) {
  ledger *l = user;
  __atomic_sub_fetch(&l->now, (int64_t)bytes, __ATOMIC_RELAXED);
  free(memory);
}

/* ---- one call -------------------------------------------------------------------------------------------------------------- */

/* A variant at one length; LSH has no keys of its own. */
typedef struct job {
  heed_context *context;
  const variant *variant;
  attention_arrays on;
  array projection;
  heed_pattern *pattern;
  heed_attention attention;
  heed_linear_attention linear;
  heed_lsh_attention lsh;
} job;

static int64_t root_of(int64_t n) {
  int64_t root = 1;
  while (2 * root * root <= n) root *= 2;
  return root;
}

static int describe(job *j, const values *v, int64_t n) {
  const bool causal = !v->both_ways;
  const uint64_t seed = (uint64_t)v->experiment.common.seed;
  char text[64];
  int code = EXIT_OK;
  j->attention = (heed_attention){.size = sizeof j->attention, .causal = causal};
  j->linear = (heed_linear_attention){.size = sizeof j->linear, .features = j->variant->features, .causal = causal};
  j->lsh = (heed_lsh_attention){.size = sizeof j->lsh, .causal = causal, .rounds = ROUNDS, .seed = seed};
  if (j->variant->form == PATTERN) {
    snprintf(text, sizeof text, j->variant->pattern, (long long)root_of(n));
    TRY(check(j->context, heed_pattern_parse(j->context, text, &j->pattern)));
    j->attention.pattern = j->pattern;
  }
  if (j->variant->features == HEED_FEATURES_POSITIVE) {
    const heed_linear_draw_options draw = {.size = sizeof draw, .seed = seed};
    TRY(array_new("the projection", HEED_F32, 2, (int64_t[]){ROWS, WIDTH}, &j->projection));
    TRY(check(j->context, heed_linear_draw(j->context, &draw, &j->projection.view)));
    j->linear.projection = &j->projection.view;
  }
done:
  return code;
}

static int job_open(const values *v, const variant *variant, int64_t n, heed_context *context, job *j) {
  const attention_shape shape = {HEED_F32, 1, v->heads, v->heads, n, n, WIDTH, WIDTH};
  int code;
  *j = (job){.context = context, .variant = variant};
  TRY(describe(j, v, n));
  TRY(attention_arrays_new(&shape, v->backward, (uint64_t)v->experiment.common.seed, &j->on));
done:
  return code;
}

static void job_close(job *j) {
  attention_arrays_free(&j->on);
  array_free(&j->projection);
  heed_pattern_free(j->pattern);
}

static heed_status call_forward(const job *j) {
  const heed_attention_extras extras = {.size = sizeof extras, .lse = &j->on.lse.view};
  const heed_linear_extras linear_extras = {.size = sizeof linear_extras, .lse = &j->on.lse.view};
  switch (j->variant->form) {
  case LINEAR:
    return heed_linear_forward(j->context, &j->linear, &j->on.q.view, &j->on.k.view, &j->on.v.view, &j->on.out.view, &linear_extras);
  case LSH: return heed_lsh_forward(j->context, &j->lsh, &j->on.q.view, &j->on.v.view, &j->on.out.view, &j->on.lse.view);
  default: return heed_attention_forward(j->context, &j->attention, &j->on.q.view, &j->on.k.view, &j->on.v.view, &j->on.out.view, &extras);
  }
}

static heed_status call_backward(const job *j) {
  const heed_attention_gradients to = {.size = sizeof to, .dq = &j->on.dq.view, .dk = &j->on.dk.view, .dv = &j->on.dv.view};
  const heed_linear_gradients linear_to = {.size = sizeof linear_to, .dq = &j->on.dq.view, .dk = &j->on.dk.view, .dv = &j->on.dv.view};
  switch (j->variant->form) {
  case LINEAR:
    return heed_linear_backward(j->context, &j->linear, &j->on.q.view, &j->on.k.view, &j->on.v.view, &j->on.out.view, &j->on.lse.view,
                                &j->on.dout.view, &linear_to);
  case LSH:
    return heed_lsh_backward(j->context, &j->lsh, &j->on.q.view, &j->on.v.view, &j->on.out.view, &j->on.lse.view, &j->on.dout.view,
                             &j->on.dq.view, &j->on.dv.view);
  default:
    return heed_attention_backward(j->context, &j->attention, &j->on.q.view, &j->on.k.view, &j->on.v.view, &j->on.out.view, &j->on.lse.view,
                                   &j->on.dout.view, &to);
  }
}

/* ---- measuring ------------------------------------------------------------------------------------------------------------- */

/* Of one variant: as many lengths as were reached within the limit, in each pass. */
typedef struct measured {
  int reached[PASSES];
  double seconds[PASSES][LENGTHS], bytes[PASSES][LENGTHS];
} measured;

/* The fastest of some calls, as many as a fifth of a second holds, or three where they are not long. */
static int time_pass(const job *j, const values *v, int pass, ledger *l, double *seconds, double *bytes) {
  static const double enough = 0.2;
  const int most = v->experiment.quick ? 1 : 100;
  double sum = 0;
  int code = EXIT_OK;
  const int64_t before = l->now;
  l->peak = before;
  *seconds = INFINITY;
  for (int i = 0; i < most && (i < 3 || sum < enough) && sum < 3 * enough; i++) {
    const double begin = seconds_now();
    TRY(check(j->context, (pass == BACKWARD ? call_backward : call_forward)(j)));
    const double took = seconds_now() - begin;
    *seconds = fmin(*seconds, took);
    sum += took;
  }
  *bytes = (double)(l->peak - before);
done:
  return code;
}

/* What the next length will take at least, twice the one before, by how much the last doubling brought. */
static double expected(const double *seconds, int reached) {
  if (reached == 0) return 0;
  const double growth = reached > 1 ? seconds[reached - 1] / seconds[reached - 2] : 2;
  return seconds[reached - 1] * fmin(fmax(growth, 2), 4.5);
}

/* Whether a pass is measured at length n: one that was left out at a shorter length stays left out, and gradients need what forward gives. */
static bool is_due(const values *v, const measured *m, int pass, int64_t n) {
  const int at = m->reached[pass];
  return (n >> at) == SHORTEST && (pass == FORWARD || m->reached[FORWARD] > at) && expected(m->seconds[pass], at) <= v->limit;
}

static int measure_length(const values *v, const variant *variant, int64_t n, measured *m) {
  ledger l = {0};
  const heed_allocator counted = {&l, ledger_allocate, ledger_release};
  heed_context *context = NULL;
  job j = {0};
  int code;
  if (!is_due(v, m, FORWARD, n)) return EXIT_OK;
  TRY(context_open_on(&v->experiment.common, &counted, &context));
  TRY(job_open(v, variant, n, context, &j));
  for (int pass = 0; pass < (v->backward ? PASSES : 1); pass++) {
    const int at = m->reached[pass];
    if (!is_due(v, m, pass, n)) continue;
    TRY(time_pass(&j, v, pass, &l, &m->seconds[pass][at], &m->bytes[pass][at]));
    m->reached[pass]++;
  }
done:
  job_close(&j);
  heed_context_free(context);
  return code;
}

/* ---- what is said ---------------------------------------------------------------------------------------------------------- */

/* At how many lengths both were measured. */
static int both_reached(const measured *a, const measured *b, int pass) {
  return a->reached[pass] < b->reached[pass] ? a->reached[pass] : b->reached[pass];
}

/* The length from which on a variant is faster than exact attention in all that was measured, on the straight line between two lengths; 0: nowhere. *beyond: it is so from the first. */
static double crossover(const measured *of, const measured *exact, int pass) {
  const int count = both_reached(of, exact, pass);
  int from = count;
  while (from > 0 && of->seconds[pass][from - 1] < exact->seconds[pass][from - 1]) from--;
  if (from == count) return 0;
  if (from == 0) return SHORTEST;
  const double before = log(of->seconds[pass][from - 1] / exact->seconds[pass][from - 1]),
               after = log(exact->seconds[pass][from] / of->seconds[pass][from]);
  return SHORTEST * pow(2, from - 1 + before / (before + after));
}

static const char *duration(double seconds, char text[CELL_MAX]) {
  snprintf(text, CELL_MAX, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? 1e3 * seconds : seconds);
  return text;
}

static void crossover_text(const measured *of, const measured *exact, int pass, char *text, size_t size) {
  const double n = crossover(of, exact, pass);
  if (n == 0) snprintf(text, size, "not up to %lld", (long long)SHORTEST << (both_reached(of, exact, pass) - 1));
  else if (n == SHORTEST) snprintf(text, size, "from %d", SHORTEST);
  else snprintf(text, size, "%.0f", n < 10000 ? round(n / 10) * 10 : round(n / 100) * 100);
}

static void print_table(experiment *e, const measured of[VARIANTS], int pass, int lengths, bool memory) {
  cell(e, memory ? "%s, MB" : "%s, ms", passes[pass]);
  for (int i = 0; i < lengths; i++) cell(e, "%lld", (long long)SHORTEST << i);
  if (!memory) cell(e, "faster than exact");
  row_end(e);
  for (int k = 0; k < VARIANTS; k++) {
    cell(e, "%s", variants[k].name);
    for (int i = 0; i < lengths; i++)
      if (i >= of[k].reached[pass]) cell(e, "-");
      else cell(e, memory ? "%.2f" : "%.4g", memory ? of[k].bytes[pass][i] / 1e6 : 1e3 * of[k].seconds[pass][i]);
    if (!memory && variants[k].form != EXACT) {
      char text[CELL_MAX];
      crossover_text(&of[k], &of[0], pass, text, sizeof text);
      cell(e, "%s", text);
    }
    row_end(e);
  }
}

static void draw(experiment *e, const measured of[VARIANTS], int pass, int lengths, int64_t heads) {
  char title[64];
  snprintf(title, sizeof title, "Time, %s", passes[pass]);
  panel *times = experiment_panel(e, title, "tokens", 2, pass == BACKWARD ? "ms, gradients" : "ms", 10);
  snprintf(title, sizeof title, "Memory beyond inputs and outputs, %s", passes[pass]);
  panel *memory = experiment_panel(e, title, "tokens", 2, pass == BACKWARD ? "MB, gradients" : "MB", 10);
  for (int k = 0; k < VARIANTS; k++) {
    curve *time = panel_curve(times, false, "%s", variants[k].name), *bytes = panel_curve(memory, false, "%s", variants[k].name);
    for (int i = 0; i < of[k].reached[pass]; i++) {
      curve_add(time, (double)(SHORTEST << i), 1e3 * of[k].seconds[pass][i]);
      curve_add(bytes, (double)(SHORTEST << i), of[k].bytes[pass][i] / 1e6);
    }
  }
  curve *matrix = panel_curve(memory, true, "weights, were they stored");
  for (int i = 0; i < lengths; i++) {
    const double n = (double)(SHORTEST << i);
    curve_add(matrix, n, n * n * (double)heads * sizeof(float) / 1e6);
  }
}

static void conclude(experiment *e, const measured of[VARIANTS], int pass, int lengths, const values *v) {
  const int reached = of[0].reached[pass];
  char first[CELL_MAX], last[CELL_MAX];
  finding(e, "%s%s exact attention (%lld head%s of width %d, %s) take%s %s at %d tokens and %s at %lld", pass ? " " : "",
          pass ? "The gradients of" : "Forward", (long long)v->heads, v->heads > 1 ? "s" : "", WIDTH, v->both_ways ? "both ways" : "causal",
          pass ? "" : "s", duration(of[0].seconds[pass][0], first), SHORTEST, duration(of[0].seconds[pass][reached - 1], last),
          (long long)SHORTEST << (reached - 1));
  if (reached < lengths) finding(e, ", where it stops: the next would take more than %.3g s", v->limit);
  finding(e, "; faster than it is");
  for (int k = 1; k < VARIANTS; k++) {
    char text[CELL_MAX];
    const double n = crossover(&of[k], &of[0], pass);
    crossover_text(&of[k], &of[0], pass, text, sizeof text);
    finding(e, "%s %s %s%s", k > 1 ? "," : "", variants[k].name, n > SHORTEST ? "from about " : "", text);
  }
  finding(e, ".");
}

static int measure(experiment *e) {
  const values *v = (const values *)e->v;
  measured of[VARIANTS] = {0};
  const int64_t longest = v->experiment.quick ? 2 * SHORTEST : v->longest;
  int lengths = 0, code = EXIT_OK;
  for (int64_t n = SHORTEST; n <= longest; n *= 2) lengths++;
  for (int i = 0; i < lengths; i++)
    for (int k = 0; k < VARIANTS; k++) {
      TRY(measure_length(v, &variants[k], (int64_t)SHORTEST << i, &of[k]));
      if (!progress("measure", (int64_t)i * VARIANTS + k + 1, (int64_t)lengths * VARIANTS)) TRY(EXIT_INTERRUPTED);
    }
  for (int pass = 0; pass < (v->backward ? PASSES : 1); pass++) {
    if (pass) row_end(e);
    print_table(e, of, pass, lengths, false);
    row_end(e);
    print_table(e, of, pass, lengths, true);
    draw(e, of, pass, lengths, v->heads);
    conclude(e, of, pass, lengths, v);
  }
done:
  return code;
}

static int run(const void *v) { return experiment_run("What attention costs as texts grow", measure, v); }

static const option options[] = {
    OPTION("backward", 0, FLAG, NULL, backward, "the gradients too"),
    OPTION("both-ways", 0, FLAG, NULL, both_ways, "tokens see those that follow"),
    OPTION("heads", 0, WHOLE, "H", heads, "heads of width 64 (default 2)", .low = 1, .high = 64),
    OPTION("longest", 0, WHOLE, "N", longest, "lengths are doubled from 512 up to this (default 65536)", .low = SHORTEST, .high = 65536),
    OPTION("limit", 0, NUMBER, "S", limit, "seconds that a call may be expected to take (default 10)", .low = 1e-3, .high = 1e6),
    EXPERIMENT_OPTIONS};

const command command_experiment_scaling = {
    .name = "experiment scaling",
    .summary = "measure time and memory of every kind of attention as texts grow",
    .about = "Times exact attention, patterns (windows, dilated, Sparse Transformer's, LogSparse, BigBird, the tree), linear attention, "
             "Performer and LSH attention for 512 to 65536 tokens and counts the memory that a call takes beyond its inputs and outputs. "
             "Says from which length on each is faster than exact attention.",
    .examples = "  heed experiment scaling -o scaling.svg\n"
                "  heed experiment scaling --backward --longest 16384 --limit 2\n",
    .options = options,
    EXPERIMENT_TAKES,
    .values_size = sizeof(values),
    .defaults = &(const values){.experiment = EXPERIMENT_DEFAULTS, .heads = 2, .longest = 65536, .limit = 10},
    .run = run,
};
