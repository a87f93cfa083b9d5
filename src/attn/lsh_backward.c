/* lsh_backward.c: the gradients of LSH attention, round by round. A run of chunks owns the rows of its chunks, as queries and as keys: what the chunk after the run, as queries, gives to the run's last
 * chunk, as keys, is found by the run once more, so that no two pieces of work write to one row and sums have one order.
 *
 * A key is k = r q with r = (|q|² + ε)^(−1/2), so that dq = r dk − r³ (q · dk) q (docs/math/lsh-attention.md); that is linear in dk, and done chunk by chunk. */
#include "lsh.h"

#include <math.h>

struct worker {
  hd_lsh_chunk chunk[2];
  float *dk[2], *dv[2];                     /* of the keys of those chunks [64][padded d], [64][padded dv] */
  float *query_rows, *dout_rows;            /* of the queries, [64][padded d], [64][padded dv] */
  float *queries, *dout, *dq, *lse, *delta; /* in lanes */
  float *p, *ds, *rows;                     /* [64][lanes] twice, [64][max(d, dv)] */
};

struct job {
  hd_grid out, lse, dout, dqk, dv; /* a gradient that is not wanted has no size */
  float *to_rows, *to_values;      /* [heads of a group][n] of [d] and [dv] */
  float *row_lse, *row_delta;      /* [heads of a group][n], lse in log2 units */
  float *seen;                     /* likewise: 1 where a row has seen another */
};

static bool lay_out(const hd_lsh *p, void *own, float *memory, int64_t *floats) {
  struct worker *w = own;
  const int64_t lanes = p->kernels->tile_lanes, d = hd_padded(p->d), dv = hd_padded(p->dv), rows = HD_LSH_CHUNK;
  const hd_part parts[] = {{&w->dk[0], rows, d},       {&w->dk[1], rows, d},
                           {&w->dv[0], rows, dv},      {&w->dv[1], rows, dv},
                           {&w->query_rows, rows, d},  {&w->dout_rows, rows, dv},
                           {&w->queries, p->d, lanes}, {&w->dout, p->dv, lanes},
                           {&w->dq, p->d, lanes},      {&w->lse, 1, lanes},
                           {&w->delta, 1, lanes},      {&w->p, rows, lanes},
                           {&w->ds, rows, lanes},      {&w->rows, HD_MAX(p->d, p->dv), rows}};
  return hd_lsh_chunk_cut(p, &w->chunk[0], memory, floats) && hd_lsh_chunk_cut(p, &w->chunk[1], memory, floats) &&
         hd_cut(memory, parts, HD_COUNT(parts), floats);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------- */

static void begin_rows(const hd_lsh_run *run) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const struct worker *worker = run->own;
  const int64_t head = run->group->first + run->head, batch = head / p->heads, within = head % p->heads,
                at = run->head * p->rows + run->begin, count = run->end - run->begin;
  memset(job->to_rows + at * p->d, 0, (size_t)(count * p->d) * sizeof(float));
  memset(job->to_values + at * p->dv, 0, (size_t)(count * p->dv) * sizeof(float));
  memset(job->seen + at, 0, (size_t)count * sizeof(float));
  for (int64_t i = 0; i < count; i++) {
    float *out = worker->rows, *dout = worker->dout_rows;
    hd_to_floats(p->kernels, hd_grid_row(&job->out, batch, within, run->begin + i), job->out.type, job->out.column_stride, p->dv, out);
    hd_to_floats(p->kernels, hd_grid_row(&job->dout, batch, within, run->begin + i), job->dout.type, job->dout.column_stride, p->dv, dout);
    p->kernels->compare(out, dout, 1, p->dv, p->dv, &job->row_delta[at + i]);
    job->row_lse[at + i] = (float)(*(const float *)hd_grid_row(&job->lse, batch, within, run->begin + i) * HD_LOG2E);
  }
}

/* A row that saw itself alone has its value as out. */
static void finish_rows(const hd_lsh_run *run) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const struct worker *worker = run->own;
  const int64_t head = run->group->first + run->head, batch = head / p->heads, within = head % p->heads, length = hd_lsh_length(p, batch);
  for (int64_t i = run->begin; i < run->end; i++) {
    const int64_t at = run->head * p->rows + i;
    float *values = job->to_values + at * p->dv;
    if (i < length && job->seen[at] == 0) {
      hd_to_floats(p->kernels, hd_grid_row(&job->dout, batch, within, i), job->dout.type, job->dout.column_stride, p->dv, worker->rows);
      p->kernels->add(values, worker->rows, p->dv, values);
    }
    if (job->dqk.size)
      hd_from_floats(p->kernels, job->to_rows + at * p->d, p->d, hd_grid_row(&job->dqk, batch, within, i), job->dqk.type,
                     job->dqk.column_stride);
    if (job->dv.size)
      hd_from_floats(p->kernels, values, p->dv, hd_grid_row(&job->dv, batch, within, i), job->dv.type, job->dv.column_stride);
  }
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------------------- */

/* Queries' rows and output gradients as f32, filled up to whole vectors. */
static void load_queries(const hd_lsh_run *run, const struct worker *worker, const hd_lanes *lanes, const float **queries,
                         const float **dout) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const int64_t d = hd_padded(p->d), dv = hd_padded(p->dv);
  const float *rows[HD_MAX_LANES];
  hd_lane_rows(p->kernels, &p->qk, lanes, 0, p->d, worker->rows, rows);
  for (int i = 0; i < lanes->count; i++) {
    float *to = worker->query_rows + i * d;
    memcpy(to, rows[i], (size_t)p->d * sizeof *to);
    memset(to + p->d, 0, (size_t)(d - p->d) * sizeof *to);
    queries[i] = to;
  }
  hd_lane_rows(p->kernels, &job->dout, lanes, 0, p->dv, worker->rows, rows);
  for (int i = 0; i < lanes->count; i++) {
    float *to = worker->dout_rows + i * dv;
    memcpy(to, rows[i], (size_t)p->dv * sizeof *to);
    memset(to + p->dv, 0, (size_t)(dv - p->dv) * sizeof *to);
    dout[i] = to;
  }
}

static void prepare(const hd_lsh_run *run, const struct worker *worker, const hd_lanes *lanes, const float *const *queries,
                    const float *const *dout, bool wants_dq, hd_attn_gradient *gradients, int count) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const int64_t base = run->head * p->rows;
  for (int i = 0; i < count; i++) {
    hd_attn_gradient *g = &gradients[i];
    const int shift = g->block.shift, width = g->block.lanes, used = HD_MIN(lanes->count - shift, width);
    p->kernels->to_lanes(queries + shift, used, p->d, (float)(p->scale * HD_LOG2E), worker->queries + shift * p->d, width);
    p->kernels->to_lanes(dout + shift, used, p->dv, 1.0f, worker->dout + shift * p->dv, width);
    for (int lane = 0; lane < width; lane++) {
      const int64_t at = base + lanes->row[shift + HD_MIN(lane, used - 1)];
      worker->lse[shift + lane] = job->row_lse[at];
      worker->delta[shift + lane] = job->row_delta[at];
    }
    g->block.q = worker->queries + shift * p->d;
    g->dout = worker->dout + shift * p->dv;
    g->lse = worker->lse + shift;
    g->delta = worker->delta + shift;
    g->dq = wants_dq ? worker->dq + shift * p->d : NULL;
    if (wants_dq) memset(g->dq, 0, (size_t)(p->d * width) * sizeof *g->dq);
  }
}

/* What the queries took from keys goes to their rows. */
static void put_queries(const hd_lsh_run *run, const struct worker *worker, const hd_lanes *lanes, const hd_attn_gradient *gradients,
                        int count) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  float *rows[HD_MAX_LANES];
  for (int i = 0; i < lanes->count; i++) rows[i] = worker->rows + i * p->d;
  for (int i = 0; i < count; i++) {
    const hd_attn_block *block = &gradients[i].block;
    p->kernels->from_lanes(gradients[i].dq, block->lanes, HD_MIN(lanes->count - block->shift, block->lanes), p->d, rows + block->shift);
  }
  for (int i = 0; i < lanes->count; i++)
    p->kernels->scale(rows[i], (float)p->scale, p->d, true, job->to_rows + (run->head * p->rows + lanes->row[i]) * p->d);
}

static void note_seen(const hd_lsh_run *run, const hd_lanes *lanes, const uint64_t *visible, int keys) {
  const struct job *job = run->job;
  uint64_t any = 0;
  for (int key = 0; key < keys; key++) any |= visible ? visible[key] : ~(uint64_t)0;
  for (int i = 0; i < lanes->count; i++)
    if (any >> i & 1) job->seen[run->head * run->p->rows + lanes->row[i]] = 1;
}

/* The pairs of a chunk's queries with the keys of up to two chunks, NULL: not these; of each the parity says which dk and dv (−1: not wanted). */
static void differentiate(const hd_lsh_run *run, const struct worker *worker, const hd_lsh_chunk *queries,
                          const hd_lsh_chunk *const keys[2], const int to[2], bool wants_dq) {
  const hd_lsh *p = run->p;
  const hd_kernels *kernels = p->kernels;
  uint64_t visible[HD_KEY_TILE];
  hd_attn_block blocks[HD_MAX_BLOCKS];
  hd_attn_gradient gradients[HD_MAX_BLOCKS];
  hd_lanes lanes;
  for (int from = 0; from < queries->rows.count; from += kernels->tile_lanes) {
    const float *query_rows[HD_MAX_LANES], *dout_rows[HD_MAX_LANES];
    hd_lsh_chunk_lanes(p, queries, from, &lanes);
    const int count = hd_lsh_blocks(p, &lanes, blocks);
    for (int i = 0; i < count; i++) gradients[i] = (hd_attn_gradient){.block = blocks[i]};
    load_queries(run, worker, &lanes, query_rows, dout_rows);
    prepare(run, worker, &lanes, query_rows, dout_rows, wants_dq, gradients, count);
    for (int which = 0; which < 2; which++) {
      const hd_lsh_chunk *k = keys[which];
      const hd_cover cover = k ? hd_lsh_visible(run, queries, from, lanes.count, k, visible) : HD_EMPTY;
      if (cover == HD_EMPTY) continue;
      const hd_attn_tile tile = {.k = k->keys,
                                 .v = k->values,
                                 .k_stride = p->d,
                                 .v_stride = p->dv,
                                 .keys = k->rows.count,
                                 .visible = cover == HD_FULL ? NULL : visible,
                                 .scores = worker->p,
                                 .stride = hd_lsh_padded(p, &lanes)};
      for (int i = 0; i < count; i++) kernels->attn_backward_lanes(&gradients[i], &tile, worker->ds);
      if (wants_dq) note_seen(run, &lanes, tile.visible, tile.keys);
      if (to[which] < 0) continue;
      kernels->attn_backward_keys(&tile, worker->ds, lanes.count, query_rows, hd_padded(p->d), worker->dk[to[which]]);
      kernels->attn_backward_keys(&tile, worker->p, lanes.count, dout_rows, hd_padded(p->dv), worker->dv[to[which]]);
    }
    if (wants_dq) put_queries(run, worker, &lanes, gradients, count);
  }
}

static void begin_keys(const hd_lsh *p, const struct worker *worker, int which) {
  memset(worker->dk[which], 0, (size_t)(HD_LSH_CHUNK * hd_padded(p->d)) * sizeof(float));
  memset(worker->dv[which], 0, (size_t)(HD_LSH_CHUNK * hd_padded(p->dv)) * sizeof(float));
}

/* What the keys of a chunk got goes to their rows, through the length that they are divided by. k is r q already. */
static void put_keys(const hd_lsh_run *run, const struct worker *worker, int which) {
  const hd_lsh *p = run->p;
  const hd_kernels *kernels = p->kernels;
  const struct job *job = run->job;
  const hd_lsh_chunk *chunk = &worker->chunk[which];
  for (int i = 0; i < chunk->rows.count; i++) {
    const int64_t at = run->head * p->rows + chunk->rows.row[i];
    const float *k = chunk->keys + i * p->d, *dk = worker->dk[which] + i * hd_padded(p->d), r = (float)p->scale * run->group->inverse[at];
    float along;
    kernels->compare(k, dk, 1, p->d, p->d, &along);
    kernels->scale(dk, r, p->d, true, job->to_rows + at * p->d);
    kernels->scale(k, -r * along, p->d, true, job->to_rows + at * p->d);
    kernels->scale(worker->dv[which] + i * hd_padded(p->dv), 1.0f, p->dv, true, job->to_values + at * p->dv);
  }
}

static void differentiate_run(const hd_lsh_run *run) {
  const hd_lsh *p = run->p;
  struct worker *worker = run->own;
  hd_lsh_chunk *chunk = worker->chunk;
  const int64_t chunks = hd_lsh_chunks(p, (run->group->first + run->head) / p->heads);
  if (run->begin > 0) hd_lsh_chunk_load(run, run->begin - 1, worker->rows, &chunk[(run->begin - 1) % 2]);
  for (int64_t c = run->begin; c <= run->end && c < chunks; c++) {
    const int own = (int)(c % 2), other = 1 - own;
    const bool mine = c<run->end, before = c> run->begin; // whether its rows, and those of the chunk before, are the run's
    hd_lsh_chunk_load(run, c, worker->rows, &chunk[own]);
    if (mine) begin_keys(p, worker, own);
    const hd_lsh_chunk *keys[2] = {c > 0 ? &chunk[other] : NULL, mine ? &chunk[own] : NULL};
    differentiate(run, worker, &chunk[own], keys, (int[]){before ? other : -1, own}, mine);
    if (before) put_keys(run, worker, other);
  }
  if (run->end == chunks) put_keys(run, worker, (int)((run->end - 1) % 2));
}

/* ---- the call ----------------------------------------------------------------------------------------------------------------------- */

heed_status heed_lsh_backward(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                              const heed_view *out, const heed_view *lse, const heed_view *dout, const heed_view *dqk,
                              const heed_view *dv) {
  if (!context) return HEED_E_ARGUMENT;
  hd_lsh p;
  struct job job = {0};
  HD_REQUIRE(v, context, HEED_E_ARGUMENT, "v: the view is null");
  HD_TRY(hd_lsh_make(context, a, qk, v, &p));
  HD_TRY(hd_lsh_storable(&p));
  HD_TRY(hd_grid_make(context, out, "out", &job.out));
  HD_TRY(hd_grid_input(context, &job.out, out, "out", &p.qk, p.heads, p.rows, p.dv));
  HD_TRY(hd_storable(context, &job.out, "out"));
  HD_TRY(hd_row_input(context, lse, "lse", &p.qk, &job.lse));
  HD_REQUIRE(job.lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job.lse.type));
  const hd_lsh_given given = {qk, v, out, lse, dout};
  HD_TRY(hd_lsh_gradients(&p, &given, dqk, dv, &job.dout, &job.dqk, &job.dv));
  HD_TRY(hd_storable(context, &job.dout, "dout"));
  if (job.dqk.size) HD_TRY(hd_storable(context, &job.dqk, "dqk"));
  if (job.dv.size) HD_TRY(hd_storable(context, &job.dv, "dv"));
  hd_lsh_work work = {
      .job = &job,
      .rows = {{&job.to_rows, 0, p.d}, {&job.to_values, 0, p.dv}, {&job.row_lse, 0, 1}, {&job.row_delta, 0, 1}, {&job.seen, 0, 1}},
      .row_arrays = 5,
      .worker_size = sizeof(struct worker),
      .lay_out = lay_out,
      .begin = begin_rows,
      .round = differentiate_run,
      .finish = finish_rows};
  return p.batch * p.heads * p.rows == 0 ? HEED_OK : hd_lsh_work_run(&p, &work);
}
