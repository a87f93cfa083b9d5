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

static double score(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const hd_problem *problem = rows->problem;
  double s = 0;
  for (int64_t i = 0; i < problem->d; i++) s += at(&rows->q, batch, head, query, i) * at(&rows->k, batch, head / problem->group, key, i);
  s *= problem->scale;
  if (problem->a.softcap > 0) s = problem->a.softcap * tanh(s / problem->a.softcap);
  if (problem->a.bias) s += at(&problem->bias, batch, head, query, key);
  return s;
}

static void run_row(void *argument, int64_t i, int worker) {
  const struct rows *rows = argument;
  const hd_problem *problem = rows->problem;
  int64_t query = i % problem->queries, head = i / problem->queries % problem->heads, batch = i / problem->queries / problem->heads;
  double *scores = rows->scores + worker * problem->keys, maximum = -INFINITY, sum = 0;
  bool any = false;
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    any = true;
    scores[key] = score(rows, batch, head, query, key);
    if (scores[key] > maximum) maximum = scores[key];
  }
  for (int64_t key = 0; key < problem->keys; key++)
    if (sees(problem, batch, head, query, key)) sum += scores[key] = exp(scores[key] - maximum);
  for (int64_t c = 0; c < problem->dv; c++) {
    double o = 0;
    for (int64_t key = 0; key < problem->keys; key++)
      if (sees(problem, batch, head, query, key)) o += scores[key] / sum * at(&rows->v, batch, head / problem->group, key, c);
    hd_element_store(hd_grid_row(&rows->out, batch, head, query) + c * rows->out.column_stride * rows->out.size, rows->out.type,
                     any ? o : 0);
  }
  if (rows->lse.data) hd_element_store(hd_grid_row(&rows->lse, batch, head, query), rows->lse.type, any ? maximum + log(sum) : -INFINITY);
}

static heed_status check_number(heed_context *context, const hd_grid *grid, const char *name) {
  return grid->type == HEED_F64 ? HEED_OK : hd_storable(context, grid, name);
}

heed_status heed_attention_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                     const heed_view *v, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_problem problem;
  hd_shapes shapes;
  struct rows rows = {.problem = &problem};
  heed_attention_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_attention_extras", extras, &asked, sizeof asked));
  HD_TRY(hd_grid_make(context, k, "k", &rows.k));
  HD_TRY(hd_grid_make(context, v, "v", &rows.v));
  const hd_source keys = {.batch = rows.k.batch, .heads = rows.k.heads, .keys = rows.k.rows, .columns = rows.k.columns};
  const hd_source values = {.batch = rows.v.batch, .heads = rows.v.heads, .keys = rows.v.rows, .columns = rows.v.columns};
  HD_TRY(hd_attention_shapes(context, q, &keys, &values, &rows.q, &shapes));
  HD_TRY(hd_problem_make(context, a, &shapes, &problem));
  HD_TRY(hd_grid_make(context, out, "out", &rows.out));
  HD_TRY(hd_grid_expect(context, &rows.out, out, "out", &rows.q, problem.heads, problem.queries, problem.dv));
  HD_TRY(check_number(context, &rows.q, "q"));
  HD_TRY(check_number(context, &rows.k, "k"));
  HD_TRY(check_number(context, &rows.v, "v"));
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
