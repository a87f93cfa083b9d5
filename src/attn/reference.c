/* reference.c: the formula of attention in double precision, one row at a time, with no tiles, patterns or kernels: what everything else is held to. It reads the
 * description by itself, so that a mistake in a pattern cannot hide in its oracle. */
#include "attention.h"

#include <math.h>

struct rows {
  const hd_problem *problem;
  hd_grid q, k, v, out, lse;
  double *scores; /* [threads][keys] */
};

static double at(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_element(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type);
}

static bool sees(const hd_problem *problem, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const heed_attention *a = &problem->a;
  int64_t position = query + hd_problem_offset(problem, batch);
  if (a->causal && key > position) return false;
  if (a->has_window_left && key < position - a->window_left) return false;
  if (a->has_window_right && key > position + a->window_right) return false;
  if (a->key_lengths && key >= a->key_lengths[batch]) return false;
  if (a->attend && at(&problem->attend, batch, head, query, key) == 0) return false;
  if (a->bias && at(&problem->bias, batch, head, query, key) == -INFINITY) return false;
  return true;
}

/* The score as far as the tap says, which is not the weights. */
static double score(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key, heed_tap tap) {
  const hd_problem *problem = rows->problem;
  double s = 0;
  for (int64_t i = 0; i < problem->d; i++) s += at(&rows->q, batch, head, query, i) * at(&rows->k, batch, head / problem->group, key, i);
  s *= problem->scale;
  if (tap == HEED_TAP_SCORES) return s;
  if (problem->a.softcap > 0) s = problem->a.softcap * tanh(s / problem->a.softcap);
  if (tap == HEED_TAP_CAPPED) return s;
  if (problem->a.bias) s += at(&problem->bias, batch, head, query, key);
  return s;
}

/* The weights of one row into scores, 0 where hidden; returns its log-sum-exp. */
static double row_weights(const struct rows *rows, int64_t batch, int64_t head, int64_t query, double *scores) {
  const hd_problem *problem = rows->problem;
  double maximum = -INFINITY, sum = 0;
  bool any = false;
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    any = true;
    scores[key] = score(rows, batch, head, query, key, HEED_TAP_BIASED);
    if (scores[key] > maximum) maximum = scores[key];
  }
  for (int64_t key = 0; key < problem->keys; key++)
    if (sees(problem, batch, head, query, key)) sum += scores[key] = exp(scores[key] - maximum);
  for (int64_t key = 0; key < problem->keys; key++) scores[key] = sees(problem, batch, head, query, key) ? scores[key] / sum : 0;
  return any ? maximum + log(sum) : -INFINITY;
}

static char *element(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size;
}

static void run_row(void *argument, int64_t i, int worker) {
  const struct rows *rows = argument;
  const hd_problem *problem = rows->problem;
  int64_t query = i % problem->queries, head = i / problem->queries % problem->heads, batch = i / problem->queries / problem->heads;
  double *weights = rows->scores + worker * problem->keys, lse = row_weights(rows, batch, head, query, weights);
  for (int64_t c = 0; c < problem->dv; c++) {
    double o = 0;
    for (int64_t key = 0; key < problem->keys; key++)
      if (sees(problem, batch, head, query, key)) o += weights[key] * at(&rows->v, batch, head / problem->group, key, c);
    hd_element_store(element(&rows->out, batch, head, query, c), rows->out.type, o);
  }
  if (rows->lse.data) hd_element_store(hd_grid_row(&rows->lse, batch, head, query), rows->lse.type, lse);
}

static heed_status check_number(heed_context *context, const hd_grid *grid, const char *name) {
  return grid->type == HEED_F64 ? HEED_OK : hd_storable(context, grid, name);
}

/* v may be NULL (weights only). */
static heed_status read_inputs(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k, const heed_view *v,
                               struct rows *rows, hd_problem *problem) {
  hd_shapes shapes;
  HD_TRY(hd_grid_make(context, k, "k", &rows->k));
  if (v) HD_TRY(hd_grid_make(context, v, "v", &rows->v));
  const hd_source keys = {.batch = rows->k.batch, .heads = rows->k.heads, .keys = rows->k.rows, .columns = rows->k.columns};
  const hd_source values = {.batch = rows->v.batch, .heads = rows->v.heads, .keys = rows->v.rows, .columns = rows->v.columns};
  HD_TRY(hd_attention_shapes(context, q, &keys, v ? &values : NULL, &rows->q, &shapes));
  HD_TRY(check_number(context, &rows->q, "q"));
  HD_TRY(check_number(context, &rows->k, "k"));
  if (v) HD_TRY(check_number(context, &rows->v, "v"));
  return hd_problem_make(context, a, &shapes, problem);
}

heed_status heed_attention_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                     const heed_view *v, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_problem problem;
  struct rows rows = {.problem = &problem};
  heed_attention_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_attention_extras", extras, &asked, sizeof asked));
  HD_TRY(read_inputs(context, a, q, k, v, &rows, &problem));
  HD_TRY(hd_grid_make(context, out, "out", &rows.out));
  HD_TRY(hd_grid_expect(context, &rows.out, out, "out", &rows.q, problem.heads, problem.queries, problem.dv));
  HD_TRY(check_number(context, &rows.out, "out"));
  const heed_view *lse = asked.lse;
  if (lse) {
    HD_TRY(hd_row_grid(context, lse, "lse", &rows.q, &rows.lse));
    HD_TRY(check_number(context, &rows.lse, "lse"));
  }
  const hd_named_view others[] = {{q, "q"}, {k, "k"}, {v, "v"}, {problem.a.attend, "attend"}, {problem.a.bias, "bias"}, {out, "out"}};
  HD_TRY(hd_outputs_apart(context, &(hd_named_view){out, "out"}, others, HD_COUNT(others) - 1));
  HD_TRY(hd_outputs_apart(context, &(hd_named_view){lse, "lse"}, others, HD_COUNT(others)));
  int64_t count = problem.batch * problem.heads * problem.queries, room;
  HD_REQUIRE(hd_mul(hd_workers(context, count), problem.keys, &room), context, HEED_E_OVERFLOW, "too many keys");
  HD_TRY(hd_allocate(context, "attention scores", room, sizeof *rows.scores, &rows.scores));
  hd_parallel(context, count, run_row, &rows);
  hd_release(context, rows.scores, room, sizeof *rows.scores);
  return HEED_OK;
}

/* ---- rows of the matrix --------------------------------------------------------------------------------------------------------------- */

struct tap {
  struct rows rows;
  heed_attention_rows asked;
  hd_grid out;
};

static void run_tap(void *argument, int64_t i, int worker) {
  const struct tap *tap = argument;
  const struct rows *rows = &tap->rows;
  const hd_problem *problem = rows->problem;
  const heed_attention_rows *asked = &tap->asked;
  int64_t row = i % asked->n_rows, slot = i / asked->n_rows % asked->n_heads, batch = i / asked->n_rows / asked->n_heads;
  int64_t head = asked->heads ? asked->heads[slot] : slot, query = asked->rows ? asked->rows[row] : row;
  double *values = rows->scores + worker * problem->keys;
  if (asked->tap == HEED_TAP_WEIGHTS) row_weights(rows, batch, head, query, values);
  for (int64_t key = 0; key < problem->keys; key++) {
    if (asked->tap == HEED_TAP_BIASED && !sees(problem, batch, head, query, key)) values[key] = -INFINITY;
    else if (asked->tap != HEED_TAP_WEIGHTS) values[key] = score(rows, batch, head, query, key, asked->tap);
    hd_element_store(element(&tap->out, batch, slot, row, key), tap->out.type, values[key]);
  }
}

heed_status heed_attention_weights_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                             const heed_attention_rows *asked, const heed_view *weights) {
  if (!context) return HEED_E_ARGUMENT;
  hd_problem problem;
  struct tap tap = {.rows.problem = &problem};
  HD_TRY(read_inputs(context, a, q, k, NULL, &tap.rows, &problem));
  HD_TRY(hd_rows_read(&problem, asked, &tap.asked));
  HD_TRY(hd_grid_make(context, weights, "weights", &tap.out));
  HD_TRY(hd_grid_expect(context, &tap.out, weights, "weights", &tap.rows.q, tap.asked.n_heads, tap.asked.n_rows, problem.keys));
  HD_TRY(check_number(context, &tap.out, "weights"));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}, {problem.a.attend, "attend"}, {problem.a.bias, "bias"}};
  HD_TRY(hd_outputs_apart(context, &(hd_named_view){weights, "weights"}, inputs, HD_COUNT(inputs)));
  int64_t count = problem.batch * tap.asked.n_heads * tap.asked.n_rows, room;
  HD_REQUIRE(hd_mul(hd_workers(context, count), problem.keys, &room), context, HEED_E_OVERFLOW, "too many keys");
  HD_TRY(hd_allocate(context, "attention scores", room, sizeof *tap.rows.scores, &tap.rows.scores));
  hd_parallel(context, count, run_tap, &tap);
  hd_release(context, tap.rows.scores, room, sizeof *tap.rows.scores);
  return HEED_OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------------- */

/* Gradients in double precision: dq [B,H,n,d], dk [B,Hkv,m,d], dv [B,Hkv,m,dv], row-major. */
struct gradients {
  double *dq, *dk, *dv;
};

/* Adds what one row of scores gives: dS_j = P_j (dP_j − Σ P dP), through the softcap and the scale. */
static void add_row(const struct rows *rows, const hd_grid *dout, int64_t i, double *weights, const struct gradients *g) {
  const hd_problem *problem = rows->problem;
  int64_t query = i % problem->queries, head = i / problem->queries % problem->heads, batch = i / problem->queries / problem->heads;
  int64_t kv = head / problem->group;
  double *dk = g->dk + (batch * problem->kv_heads + kv) * problem->keys * problem->d, delta = 0;
  double *dv = g->dv + (batch * problem->kv_heads + kv) * problem->keys * problem->dv, *derivative = weights + problem->keys;
  row_weights(rows, batch, head, query, weights);
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    derivative[key] = 0;
    for (int64_t c = 0; c < problem->dv; c++) {
      double upstream = at(dout, batch, head, query, c);
      derivative[key] += upstream * at(&rows->v, batch, kv, key, c);
      dv[key * problem->dv + c] += weights[key] * upstream;
    }
    delta += weights[key] * derivative[key];
  }
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    double ds = weights[key] * (derivative[key] - delta) * problem->scale;
    if (problem->a.softcap > 0) {
      double t = score(rows, batch, head, query, key, HEED_TAP_CAPPED) / problem->a.softcap;
      ds *= 1 - t * t;
    }
    for (int64_t c = 0; c < problem->d; c++) {
      g->dq[i * problem->d + c] += ds * at(&rows->k, batch, kv, key, c);
      dk[key * problem->d + c] += ds * at(&rows->q, batch, head, query, c);
    }
  }
}

static heed_status store_gradient(heed_context *context, const heed_view *view, const char *name, const hd_grid *like, const double *from) {
  hd_grid grid;
  if (!view) return HEED_OK;
  HD_TRY(hd_grid_make(context, view, name, &grid));
  HD_TRY(check_number(context, &grid, name));
  HD_TRY(hd_grid_expect(context, &grid, view, name, like, like->heads, like->rows, like->columns));
  for (int64_t i = 0; from && i < grid.batch * grid.heads * grid.rows; i++)
    for (int64_t c = 0; c < grid.columns; c++)
      hd_element_store(element(&grid, i / grid.rows / grid.heads, i / grid.rows % grid.heads, i % grid.rows, c), grid.type,
                       from[i * grid.columns + c]);
  return HEED_OK;
}

heed_status heed_attention_backward_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                              const heed_view *v, const heed_view *dout, const heed_attention_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(gradients && gradients->size >= sizeof *gradients, context, HEED_E_ARGUMENT,
             "heed_attention_gradients: null, or size not set");
  hd_problem problem;
  struct rows rows = {.problem = &problem};
  hd_grid upstream;
  HD_TRY(read_inputs(context, a, q, k, v, &rows, &problem));
  HD_TRY(hd_grid_make(context, dout, "dout", &upstream));
  HD_TRY(check_number(context, &upstream, "dout"));
  HD_TRY(hd_grid_expect(context, &upstream, dout, "dout", &rows.q, problem.heads, problem.queries, problem.dv));
  const struct {
    const heed_view *view;
    const char *name;
    const hd_grid *like;
  } targets[] = {{gradients->dq, "dq", &rows.q}, {gradients->dk, "dk", &rows.k}, {gradients->dv, "dv", &rows.v}};
  for (int i = 0; i < 3; i++) HD_TRY(store_gradient(context, targets[i].view, targets[i].name, targets[i].like, NULL));

  double *sums[3] = {NULL}, *scratch = NULL;
  int64_t sizes[3];
  heed_status status = HEED_OK;
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    sizes[i] = targets[i].like->batch * targets[i].like->heads * targets[i].like->rows * targets[i].like->columns;
    status = hd_allocate(context, "gradients", sizes[i], sizeof *sums[i], &sums[i]);
    if (status == HEED_OK) memset(sums[i], 0, (size_t)sizes[i] * sizeof *sums[i]);
  }
  if (status == HEED_OK) status = hd_allocate(context, "attention scores", 2 * problem.keys, sizeof *scratch, &scratch);
  if (status == HEED_OK) {
    const struct gradients g = {sums[0], sums[1], sums[2]};
    for (int64_t i = 0; i < problem.batch * problem.heads * problem.queries; i++) add_row(&rows, &upstream, i, scratch, &g);
    for (int i = 0; i < 3 && status == HEED_OK; i++)
      status = store_gradient(context, targets[i].view, targets[i].name, targets[i].like, sums[i]);
  }
  hd_release(context, scratch, 2 * problem.keys, sizeof *scratch);
  for (int i = 0; i < 3; i++) hd_release(context, sums[i], sizes[i], sizeof *sums[i]);
  return status;
}
