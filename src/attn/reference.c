/* reference.c: the formula of attention in double precision, one row at a time, with no tiles, patterns or kernels: what everything else is held to. It reads the
 * description by itself, so that a mistake in a pattern cannot hide in its oracle. */
#include "backward.h"
#include "reference.h"

#include "../base/philox.h"

#include <math.h>

enum { REFERENCE_WIDTH = 1024 }; // of a row that the caller's score is shown

struct rows {
  const hd_problem *problem;
  heed_score score;
  hd_grid q, k, v, out, lse;
  double *scores; /* [threads][keys] */
};

static double at(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_element(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type);
}

static double weight(const heed_view *w, int64_t row, int64_t column) {
  return hd_element(hd_view_at(w, row * w->dim[1] + column), w->type);
}

/* The document that number `index` of a row of tokens belongs to. */
static int64_t document(const int64_t *bound, int64_t index) {
  int64_t t = 0;
  while (index >= bound[t + 1]) t++;
  return t;
}

/* Where a query stands among the keys (contract 7). */
static int64_t position_of(const hd_problem *problem, int64_t batch, int64_t query) {
  const heed_attention *a = &problem->a;
  int64_t first_query = 0, first_key = 0, queries = problem->queries, keys = a->key_lengths ? a->key_lengths[batch] : problem->keys;
  if (a->documents) {
    int64_t t = document(a->query_documents, query);
    first_query = a->query_documents[t];
    first_key = a->key_documents[t];
    queries = a->query_documents[t + 1] - first_query;
    keys = a->key_documents[t + 1] - first_key;
  }
  int64_t offset = a->align == HEED_ALIGN_END     ? keys - queries
                   : a->align != HEED_ALIGN_GIVEN ? 0
                   : a->offsets                   ? a->offsets[batch]
                                                  : a->offset;
  return first_key + (query - first_query) + offset;
}

/* Whether the pattern shows the pair; its document's keys, as far as they are no padding, are the ones it speaks of. */
static bool shown(const hd_problem *problem, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const heed_attention *a = &problem->a;
  int64_t first = 0, end = problem->keys;
  if (a->documents) {
    int64_t t = document(a->query_documents, query);
    first = a->key_documents[t];
    end = a->key_documents[t + 1];
  }
  if (a->key_lengths && a->key_lengths[batch] < end) end = a->key_lengths[batch];
  const hd_pair pair = {.batch = batch,
                        .head = head,
                        .position = position_of(problem, batch, query) - first,
                        .key = key - first,
                        .keys = end > first ? end - first : 0,
                        .causal = a->causal,
                        .query = query,
                        .queries = problem->queries,
                        .call_key = key};
  return hd_reference_shows(a->pattern, &pair);
}

static bool sees(const hd_problem *problem, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const heed_attention *a = &problem->a;
  int64_t position = position_of(problem, batch, query);
  if (a->causal && key > position) return false;
  if (a->has_window_left && key < position - a->window_left) return false;
  if (a->has_window_right && key > position + a->window_right) return false;
  if (a->key_lengths && key >= a->key_lengths[batch]) return false;
  if (a->documents && document(a->query_documents, query) != document(a->key_documents, key)) return false;
  if (a->attend && at(&problem->attend, batch, head, query, key) == 0) return false;
  if (a->bias && at(&problem->bias, batch, head, query, key) == -INFINITY) return false;
  if (a->pattern && !shown(problem, batch, head, query, key)) return false;
  return true;
}

/* W x, number c of it: a row of a weight matrix times a row of an array. */
static double projected(const heed_view *w, int64_t c, const hd_grid *x, int64_t batch, int64_t head, int64_t row) {
  double sum = 0;
  for (int64_t i = 0; i < x->columns; i++) sum += weight(w, c, i) * at(x, batch, head, row, i);
  return sum;
}

/* One pair as the caller's score sees it. */
struct pair {
  heed_score_tile tile;
  const float *q, *k;
};

static void make_pair(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key, float *q, float *k,
                      struct pair *pair) {
  const hd_problem *problem = rows->problem;
  for (int64_t i = 0; i < problem->d; i++) q[i] = (float)at(&rows->q, batch, head, query, i);
  for (int64_t i = 0; i < problem->key_width; i++) k[i] = (float)at(&rows->k, batch, head / problem->group, key, i);
  pair->q = q;
  pair->k = k;
  pair->tile = (heed_score_tile){.batch = batch,
                                 .head = head,
                                 .query = query,
                                 .key = key,
                                 .queries = 1,
                                 .keys = 1,
                                 .d_q = problem->d,
                                 .d_k = problem->key_width,
                                 .q = &pair->q,
                                 .k = &pair->k};
}

static double weight3(const heed_view *w, int64_t i, int64_t row, int64_t column) {
  return hd_element(hd_view_at(w, (i * w->dim[1] + row) * w->dim[2] + column), w->type);
}

/* The row of the distance from a key to a query's position; those at the ends are of all beyond, too. */
static int64_t distance_row(const hd_problem *problem, const heed_score *score, int64_t batch, int64_t query, int64_t key) {
  int64_t row = position_of(problem, batch, query) - key - score->first_distance;
  if (row < 0) row = 0;
  if (row >= score->distances->dim[1]) row = score->distances->dim[1] - 1;
  return row;
}

/* scale · a(q, k), before anything is done to it. */
static double product(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const hd_problem *problem = rows->problem;
  const heed_score *score = &rows->score;
  int64_t kv = head / problem->group;
  double s = 0;
  if (score->kind == HEED_SCORE_DOT) {
    for (int64_t i = 0; i < problem->d; i++) s += at(&rows->q, batch, head, query, i) * at(&rows->k, batch, kv, key, i);
  } else if (score->kind == HEED_SCORE_ADDITIVE) {
    for (int64_t c = 0; c < score->wv->dim[0]; c++)
      s += hd_per_head(score->wv, c) *
           tanh(projected(score->wq, c, &rows->q, batch, head, query) + projected(score->wk, c, &rows->k, batch, kv, key));
  } else if (score->kind == HEED_SCORE_BILINEAR) {
    for (int64_t i = 0; i < problem->d; i++) s += at(&rows->q, batch, head, query, i) * projected(score->wq, i, &rows->k, batch, kv, key);
  } else if (score->kind == HEED_SCORE_XL) {
    const int64_t row = distance_row(problem, score, batch, query, key);
    for (int64_t i = 0; i < problem->d; i++) {
      const double of = at(&rows->q, batch, head, query, i);
      s += (of + weight(score->content, head, i)) * at(&rows->k, batch, kv, key, i);
      s += (of + weight(score->position, head, i)) * weight3(score->distances, head, row, i);
    }
  } else {
    float q[REFERENCE_WIDTH], k[REFERENCE_WIDTH], given = 0;
    struct pair pair;
    make_pair(rows, batch, head, query, key, q, k, &pair);
    score->scores(score->user, &pair.tile, &given);
    s = given;
  }
  return s * problem->scale;
}

/* T5's function of the distance, as its authors wrote it: the row of the table. */
static int64_t relative_row(const heed_attention *a, int64_t distance) {
  int64_t buckets = a->relative->dim[0], bucket = 0;
  if (!a->relative_causal) {
    buckets /= 2;
    if (distance > 0) bucket += buckets;
    distance = distance < 0 ? -distance : distance;
  } else {
    distance = distance < 0 ? -distance : 0;
  }
  int64_t exact = buckets / 2, large = distance;
  if (distance >= exact)
    large = exact + (int64_t)(log((double)distance / (double)exact) / log((double)a->relative_distance / (double)exact) *
                              (double)(buckets - exact));
  return bucket + (large < buckets ? large : buckets - 1);
}

/* The score as far as the tap says, which is not the weights. */
static double score(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key, heed_tap tap) {
  const heed_attention *a = &rows->problem->a;
  double s = product(rows, batch, head, query, key);
  if (tap == HEED_TAP_SCORES) return s;
  if (a->softcap > 0) s = a->softcap * tanh(s / a->softcap);
  if (tap == HEED_TAP_CAPPED) return s;
  if (a->bias) s += at(&rows->problem->bias, batch, head, query, key);
  if (a->alibi) s -= hd_per_head(a->alibi, head) * fabs((double)(position_of(rows->problem, batch, query) - key));
  if (a->relative) s += weight(a->relative, relative_row(a, key - position_of(rows->problem, batch, query)), head);
  return s;
}

/* What a weight is multiplied by: the caller's factor, and dropout (contract 20). */
static double factor(const hd_problem *problem, int64_t batch, int64_t head, int64_t query, int64_t key) {
  const heed_attention *a = &problem->a;
  const heed_pair_tile pair = {batch, head, query, key, 1, 1};
  float given = 1;
  if (a->factors) a->factors(a->factors_user, &pair, &given);
  if (a->dropout == 0) return given;
  const uint32_t counter[4] = {(uint32_t)(key / 4), (uint32_t)query, (uint32_t)(batch * problem->heads + head), a->stream};
  uint32_t words[4];
  hd_philox(counter, a->seed, words);
  return words[key % 4] < a->dropout * 0x1p32 ? 0 : given / (1 - a->dropout);
}

/* The weights of one row into scores, before dropout, 0 where hidden; returns its log-sum-exp. */
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
  if (any && problem->a.sink) {
    double sink = hd_per_head(problem->a.sink, head);
    if (sink > maximum) maximum = sink;
    sum = exp(sink - maximum);
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
      if (sees(problem, batch, head, query, key))
        o += weights[key] * factor(problem, batch, head, query, key) * at(&rows->v, batch, head / problem->group, key, c);
    hd_element_store(element(&rows->out, batch, head, query, c), rows->out.type, o);
  }
  if (rows->lse.data) hd_element_store(hd_grid_row(&rows->lse, batch, head, query), rows->lse.type, lse);
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
  HD_TRY(hd_number(context, rows->q.type, "q"));
  HD_TRY(hd_number(context, rows->k.type, "k"));
  if (v) HD_TRY(hd_number(context, rows->v.type, "v"));
  HD_TRY(hd_problem_make(context, a, &shapes, problem));
  HD_TRY(hd_score_read(context, &problem->a, q, k, &rows->score));
  HD_REQUIRE(rows->score.kind != HEED_SCORE_CALLBACK || HD_MAX(problem->d, problem->key_width) <= REFERENCE_WIDTH, context, HEED_E_SHAPE,
             "the reference shows a callback widths up to %d", REFERENCE_WIDTH);
  return HEED_OK;
}

heed_status heed_attention_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                     const heed_view *v, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_problem problem;
  struct rows rows = {.problem = &problem};
  heed_attention_extras asked = {.size = sizeof asked};
  HD_TRY(hd_options_read(context, "heed_attention_extras", extras, &asked, sizeof asked));
  HD_TRY(hd_view_check(context, v, "v"));
  HD_TRY(read_inputs(context, a, q, k, v, &rows, &problem));
  HD_TRY(hd_grid_make(context, out, "out", &rows.out));
  HD_TRY(hd_grid_expect(context, &rows.out, out, "out", &rows.q, problem.heads, problem.queries, problem.dv));
  HD_TRY(hd_number(context, rows.out.type, "out"));
  const heed_view *lse = asked.lse;
  if (lse) {
    HD_TRY(hd_row_grid(context, lse, "lse", &rows.q, &rows.lse));
    HD_TRY(hd_number(context, rows.lse.type, "lse"));
  }
  const hd_named_view others[] = {{q, "q"}, {k, "k"}, {v, "v"}, {out, "out"}};
  HD_TRY(hd_output_apart(context, &problem.a, out, "out", others, HD_COUNT(others) - 1));
  HD_TRY(hd_output_apart(context, &problem.a, lse, "lse", others, HD_COUNT(others)));
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
  bool weights = asked->tap == HEED_TAP_WEIGHTS || asked->tap == HEED_TAP_DROPPED;
  if (weights) row_weights(rows, batch, head, query, values);
  for (int64_t key = 0; key < problem->keys; key++) {
    if (asked->tap == HEED_TAP_DROPPED) values[key] *= values[key] == 0 ? 0 : factor(problem, batch, head, query, key);
    else if (asked->tap == HEED_TAP_BIASED && !sees(problem, batch, head, query, key)) values[key] = -INFINITY;
    else if (!weights) values[key] = score(rows, batch, head, query, key, asked->tap);
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
  HD_TRY(hd_number(context, tap.out.type, "weights"));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}};
  HD_TRY(hd_output_apart(context, &problem.a, weights, "weights", inputs, HD_COUNT(inputs)));
  int64_t count = problem.batch * tap.asked.n_heads * tap.asked.n_rows, room;
  HD_REQUIRE(hd_mul(hd_workers(context, count), problem.keys, &room), context, HEED_E_OVERFLOW, "too many keys");
  HD_TRY(hd_allocate(context, "attention scores", room, sizeof *tap.rows.scores, &tap.rows.scores));
  hd_parallel(context, count, run_tap, &tap);
  hd_release(context, tap.rows.scores, room, sizeof *tap.rows.scores);
  return HEED_OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------------- */

/* Gradients in double precision: dq [B,H,n,d], dk [B,Hkv,m,d], dv [B,Hkv,m,dv], dsink [H], row-major; the bias's through a grid laid over the whole problem. */
struct gradients {
  double *dq, *dk, *dv, *dsink, *dwq, *dwk, *dwv;
  double *drelative, *dcontent, *dposition, *ddistances; /* as the views are */
  hd_grid dbias;
};

/* Gradients of q, k and the score's weights, given that of the score; dq and dk are the pair's rows. */
static void add_pair(const struct rows *rows, int64_t batch, int64_t head, int64_t query, int64_t key, double ds, double *dq, double *dk,
                     const struct gradients *g) {
  const hd_problem *problem = rows->problem;
  const heed_score *score = &rows->score;
  const int64_t d = problem->d, width = problem->key_width, kv = head / problem->group;
  if (score->kind == HEED_SCORE_DOT) {
    for (int64_t c = 0; c < d; c++) {
      dq[c] += ds * at(&rows->k, batch, kv, key, c);
      dk[c] += ds * at(&rows->q, batch, head, query, c);
    }
  } else if (score->kind == HEED_SCORE_BILINEAR) {
    for (int64_t i = 0; i < d; i++) {
      double q = at(&rows->q, batch, head, query, i);
      dq[i] += ds * projected(score->wq, i, &rows->k, batch, kv, key);
      for (int64_t j = 0; j < width; j++) {
        dk[j] += ds * q * weight(score->wq, i, j);
        g->dwq[i * width + j] += ds * q * at(&rows->k, batch, kv, key, j);
      }
    }
  } else if (score->kind == HEED_SCORE_ADDITIVE) {
    for (int64_t c = 0; c < score->wv->dim[0]; c++) {
      double t = tanh(projected(score->wq, c, &rows->q, batch, head, query) + projected(score->wk, c, &rows->k, batch, kv, key));
      double inner = ds * hd_per_head(score->wv, c) * (1 - t * t);
      g->dwv[c] += ds * t;
      for (int64_t i = 0; i < d; i++) {
        dq[i] += inner * weight(score->wq, c, i);
        g->dwq[c * d + i] += inner * at(&rows->q, batch, head, query, i);
      }
      for (int64_t i = 0; i < width; i++) {
        dk[i] += inner * weight(score->wk, c, i);
        g->dwk[c * width + i] += inner * at(&rows->k, batch, kv, key, i);
      }
    }
  } else if (score->kind == HEED_SCORE_XL) {
    const int64_t row = distance_row(problem, score, batch, query, key), distance = (head * score->distances->dim[1] + row) * d;
    for (int64_t c = 0; c < d; c++) {
      const double of = at(&rows->q, batch, head, query, c), k = at(&rows->k, batch, kv, key, c),
                   r = weight3(score->distances, head, row, c);
      dq[c] += ds * (k + r);
      dk[c] += ds * (of + weight(score->content, head, c));
      g->dcontent[head * d + c] += ds * k;
      g->dposition[head * d + c] += ds * r;
      g->ddistances[distance + c] += ds * (of + weight(score->position, head, c));
    }
  } else {
    float q[REFERENCE_WIDTH], k[REFERENCE_WIDTH], to_q[REFERENCE_WIDTH] = {0}, to_k[REFERENCE_WIDTH] = {0}, given = (float)ds;
    float *const rows_q[] = {to_q}, *const rows_k[] = {to_k};
    struct pair pair;
    make_pair(rows, batch, head, query, key, q, k, &pair);
    score->gradients(score->user, &pair.tile, &given, rows_q, rows_k);
    for (int64_t i = 0; i < d; i++) dq[i] += to_q[i];
    for (int64_t i = 0; i < width; i++) dk[i] += to_k[i];
  }
}

/* Adds what one row of scores gives: dS_j = P_j (D_j dP_j − Σ P D dP), through the softcap and the scale. */
static void add_row(const struct rows *rows, const hd_grid *dout, int64_t i, double *weights, const struct gradients *g) {
  const hd_problem *problem = rows->problem;
  int64_t query = i % problem->queries, head = i / problem->queries % problem->heads, batch = i / problem->queries / problem->heads;
  int64_t kv = head / problem->group;
  double *dk = g->dk + (batch * problem->kv_heads + kv) * problem->keys * problem->key_width, delta = 0;
  double *dv = g->dv + (batch * problem->kv_heads + kv) * problem->keys * problem->dv, *derivative = weights + problem->keys;
  double lse = row_weights(rows, batch, head, query, weights);
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    double kept = factor(problem, batch, head, query, key);
    derivative[key] = 0;
    for (int64_t c = 0; c < problem->dv; c++) {
      double upstream = at(dout, batch, head, query, c);
      derivative[key] += upstream * at(&rows->v, batch, kv, key, c) * kept;
      dv[key * problem->dv + c] += weights[key] * kept * upstream;
    }
    delta += weights[key] * derivative[key];
  }
  if (problem->a.sink && lse > -INFINITY) g->dsink[head] -= exp(hd_per_head(problem->a.sink, head) - lse) * delta;
  for (int64_t key = 0; key < problem->keys; key++) {
    if (!sees(problem, batch, head, query, key)) continue;
    double ds = weights[key] * (derivative[key] - delta);
    if (g->dbias.data) *(double *)element(&g->dbias, batch, head, query, key) += ds;
    if (problem->a.relative)
      g->drelative[relative_row(&problem->a, key - position_of(problem, batch, query)) * problem->heads + head] += ds;
    ds *= problem->scale;
    if (problem->a.softcap > 0) {
      double t = tanh(product(rows, batch, head, query, key) / problem->a.softcap);
      ds *= 1 - t * t;
    }
    add_pair(rows, batch, head, query, key, ds, g->dq + i * problem->d, dk + key * problem->key_width, g);
  }
}

/* A gradient that is asked for, or needed on the way: `like` is what it is the gradient of. */
struct target {
  const heed_view *view;
  const char *name;
  const heed_view *like;
  double *sums; /* in the order of the view's elements */
};

static void store_target(const struct target *target) {
  const heed_view *view = target->view;
  for (int64_t i = 0; view && i < hd_view_count(view); i++) hd_element_store(hd_view_at(view, i), view->type, target->sums[i]);
}

/* The double-precision sums of a bias as a grid over the whole problem. */
static heed_status bias_sums(const hd_problem *problem, double *sums, hd_grid *out) {
  const heed_view *bias = problem->a.bias;
  heed_view view = heed_view_of(sums, HEED_F64, bias->ndim, bias->dim);
  return hd_grid_broadcast(problem, &view, "dbias", out);
}

heed_status heed_attention_backward_reference(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                                              const heed_view *v, const heed_view *dout, const heed_attention_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  heed_attention_gradients to = {.size = sizeof to};
  HD_REQUIRE(gradients, context, HEED_E_ARGUMENT, "heed_attention_gradients: null");
  HD_TRY(hd_options_read(context, "heed_attention_gradients", gradients, &to, sizeof to));
  hd_problem problem;
  struct rows rows = {.problem = &problem};
  hd_grid upstream;
  HD_TRY(hd_view_check(context, v, "v"));
  HD_TRY(read_inputs(context, a, q, k, v, &rows, &problem));
  HD_TRY(hd_grid_make(context, dout, "dout", &upstream));
  HD_TRY(hd_number(context, upstream.type, "dout"));
  HD_TRY(hd_grid_input(context, &upstream, dout, "dout", &rows.q, problem.heads, problem.queries, problem.dv));
  struct target targets[] = {{to.dq, "dq", q, NULL},
                             {to.dk, "dk", k, NULL},
                             {to.dv, "dv", v, NULL},
                             {to.dsink, "dsink", problem.a.sink, NULL},
                             {to.dwq, "dwq", rows.score.wq, NULL},
                             {to.dwk, "dwk", rows.score.wk, NULL},
                             {to.dwv, "dwv", rows.score.wv, NULL},
                             {to.drelative, "drelative", problem.a.relative, NULL},
                             {to.dcontent, "dcontent", rows.score.content, NULL},
                             {to.dposition, "dposition", rows.score.position, NULL},
                             {to.ddistances, "ddistances", rows.score.distances, NULL},
                             {to.dbias, "dbias", problem.a.bias, NULL}};
  enum { DQ, DK, DV, DSINK, DWQ, DWK, DWV, DRELATIVE, DCONTENT, DPOSITION, DDISTANCES, DBIAS, TARGETS };
  HD_REQUIRE(rows.score.kind != HEED_SCORE_CALLBACK || rows.score.gradients, context, HEED_E_UNSUPPORTED,
             "the score is a callback without gradients");
  for (int i = 0; i < TARGETS; i++) HD_TRY(hd_gradient_check(context, targets[i].view, targets[i].name, targets[i].like));
  const hd_named_view inputs[] = {{q, "q"}, {k, "k"}, {v, "v"}, {dout, "dout"}};
  HD_TRY(hd_gradients_apart(context, &problem.a, inputs, HD_COUNT(inputs), &to));

  double *scratch = NULL;
  int64_t sizes[TARGETS] = {0};
  heed_status status = HEED_OK;
  for (int i = 0; i < TARGETS && status == HEED_OK; i++) {
    if (!targets[i].like || (i == DBIAS && !to.dbias)) continue;
    sizes[i] = hd_view_count(targets[i].like);
    status = hd_allocate(context, "gradients", sizes[i], sizeof(double), &targets[i].sums);
    if (status == HEED_OK) memset(targets[i].sums, 0, (size_t)sizes[i] * sizeof(double));
  }
  if (status == HEED_OK) status = hd_allocate(context, "attention scores", 2 * problem.keys, sizeof *scratch, &scratch);
  struct gradients g = {.dq = targets[DQ].sums,
                        .dk = targets[DK].sums,
                        .dv = targets[DV].sums,
                        .dsink = targets[DSINK].sums,
                        .dwq = targets[DWQ].sums,
                        .dwk = targets[DWK].sums,
                        .dwv = targets[DWV].sums,
                        .drelative = targets[DRELATIVE].sums,
                        .dcontent = targets[DCONTENT].sums,
                        .dposition = targets[DPOSITION].sums,
                        .ddistances = targets[DDISTANCES].sums};
  if (status == HEED_OK && to.dbias) status = bias_sums(&problem, targets[DBIAS].sums, &g.dbias);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < problem.batch * problem.heads * problem.queries; i++) add_row(&rows, &upstream, i, scratch, &g);
    for (int i = 0; i < TARGETS; i++) store_target(&targets[i]);
  }
  hd_release(context, scratch, 2 * problem.keys, sizeof *scratch);
  for (int i = 0; i < TARGETS; i++) hd_release(context, targets[i].sums, sizes[i], sizeof(double));
  return status;
}
