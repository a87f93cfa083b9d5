/* lsh_forward.c: LSH attention round by round. The state of a row (maximum, sum, numerators) waits in its place between rounds and goes into the lanes of its chunk in each, so that a row's sums run
 * on over all rounds as they would over one row of keys. */
#include "lsh.h"

#include <math.h>

struct worker {
  hd_lsh_chunk chunk[2];
  float *queries, *o, *m, *l, *scores, *rows;
};

struct job {
  hd_grid out, lse;
  float *o, *m, *l; /* [heads of a group][n], o [dv] each */
};

static bool lay_out(const hd_lsh *p, void *own, float *memory, int64_t *floats) {
  struct worker *worker = own;
  const int64_t lanes = p->kernels->tile_lanes;
  const hd_part parts[] = {{&worker->queries, p->d, lanes},
                           {&worker->o, p->dv, lanes},
                           {&worker->m, 1, lanes},
                           {&worker->l, 1, lanes},
                           {&worker->scores, HD_KEY_TILE, lanes},
                           {&worker->rows, HD_MAX(p->d, p->dv), HD_LSH_CHUNK}};
  return hd_lsh_chunk_cut(p, &worker->chunk[0], memory, floats) && hd_lsh_chunk_cut(p, &worker->chunk[1], memory, floats) &&
         hd_cut(memory, parts, HD_COUNT(parts), floats);
}

/* The lanes' states out of their places into the blocks, or back. */
static void load_states(const hd_lsh_run *run, const struct worker *worker, const hd_lanes *lanes, hd_attn_block *blocks, int count) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const int64_t base = run->head * p->rows;
  const float *queries[HD_MAX_LANES], *states[HD_MAX_LANES];
  hd_lane_rows(p->kernels, &p->qk, lanes, 0, p->d, worker->rows, queries);
  for (int i = 0; i < lanes->count; i++) states[i] = job->o + (base + lanes->row[i]) * p->dv;
  for (int i = 0; i < count; i++) {
    hd_attn_block *block = &blocks[i];
    const int shift = block->shift, used = HD_MIN(lanes->count - shift, block->lanes);
    float *q = worker->queries + shift * p->d;
    block->q = q;
    block->o = worker->o + shift * p->dv;
    block->m = worker->m + shift;
    block->l = worker->l + shift;
    p->kernels->to_lanes(queries + shift, used, p->d, (float)(p->scale * HD_LOG2E), q, block->lanes);
    if (run->round == 0) memset(block->o, 0, (size_t)(p->dv * block->lanes) * sizeof(float));
    else p->kernels->to_lanes(states + shift, used, p->dv, 1.0f, block->o, block->lanes);
    for (int lane = 0; lane < block->lanes; lane++) {
      const bool begun = run->round > 0 && lane < used;
      block->m[lane] = begun ? job->m[base + lanes->row[shift + lane]] : -INFINITY;
      block->l[lane] = begun ? job->l[base + lanes->row[shift + lane]] : 0;
    }
  }
}

static void store_states(const hd_lsh_run *run, const hd_lanes *lanes, const hd_attn_block *blocks, int count) {
  const hd_lsh *p = run->p;
  const struct job *job = run->job;
  const int64_t base = run->head * p->rows;
  float *states[HD_MAX_LANES];
  for (int i = 0; i < lanes->count; i++) states[i] = job->o + (base + lanes->row[i]) * p->dv;
  for (int i = 0; i < count; i++) {
    const hd_attn_block *block = &blocks[i];
    const int shift = block->shift, used = HD_MIN(lanes->count - shift, block->lanes);
    p->kernels->from_lanes(block->o, block->lanes, used, p->dv, states + shift);
    for (int lane = 0; lane < used; lane++) {
      job->m[base + lanes->row[shift + lane]] = block->m[lane];
      job->l[base + lanes->row[shift + lane]] = block->l[lane];
    }
  }
}

static void attend(const hd_lsh_run *run, const struct worker *worker, const hd_lsh_chunk *queries, const hd_lsh_chunk *before) {
  const hd_lsh *p = run->p;
  const hd_lsh_chunk *keys[2] = {before, queries};
  hd_attn_block blocks[HD_MAX_BLOCKS];
  uint64_t visible[HD_KEY_TILE];
  hd_lanes lanes;
  for (int from = 0; from < queries->rows.count; from += p->kernels->tile_lanes) {
    hd_lsh_chunk_lanes(p, queries, from, &lanes);
    const int count = hd_lsh_blocks(p, &lanes, blocks);
    load_states(run, worker, &lanes, blocks, count);
    for (int which = before ? 0 : 1; which < 2; which++) {
      const hd_cover cover = hd_lsh_visible(run, queries, from, lanes.count, keys[which], visible);
      if (cover == HD_EMPTY) continue;
      const hd_attn_tile tile = {.k = keys[which]->keys,
                                 .v = keys[which]->values,
                                 .k_stride = p->d,
                                 .v_stride = p->dv,
                                 .keys = keys[which]->rows.count,
                                 .visible = cover == HD_FULL ? NULL : visible,
                                 .scores = worker->scores,
                                 .stride = hd_lsh_padded(p, &lanes)};
      for (int i = 0; i < count; i++) p->kernels->attn_tile(&blocks[i], &tile);
    }
    store_states(run, &lanes, blocks, count);
  }
}

static void attend_run(const hd_lsh_run *run) {
  struct worker *worker = run->own;
  hd_lsh_chunk *chunk = worker->chunk;
  if (run->begin > 0) hd_lsh_chunk_load(run, run->begin - 1, worker->rows, &chunk[(run->begin - 1) % 2]);
  for (int64_t c = run->begin; c < run->end; c++) {
    hd_lsh_chunk_load(run, c, worker->rows, &chunk[c % 2]);
    attend(run, worker, &chunk[c % 2], c > 0 ? &chunk[(c - 1) % 2] : NULL);
  }
}

/* Rows divided by their sums; one that has seen nothing sees itself. */
static void finish_rows(const hd_lsh_run *run) {
  const hd_lsh *p = run->p;
  const hd_kernels *kernels = p->kernels;
  const struct job *job = run->job;
  const int64_t head = run->group->first + run->head, batch = head / p->heads, within = head % p->heads, length = hd_lsh_length(p, batch);
  float *scratch = ((const struct worker *)run->own)->rows;
  for (int64_t i = run->begin; i < run->end; i++) {
    const int64_t at = run->head * p->rows + i;
    const bool counts = i < length, alone = counts && job->l[at] == 0;
    float *row = counts ? job->o + at * p->dv : scratch, lse = -INFINITY;
    if (alone) {
      hd_to_floats(kernels, hd_grid_row(&p->v, batch, within, i), p->v.type, p->v.column_stride, p->dv, row);
      if (job->lse.size) {
        float square;
        hd_to_floats(kernels, hd_grid_row(&p->qk, batch, within, i), p->qk.type, p->qk.column_stride, p->d, scratch);
        kernels->compare(scratch, scratch, 1, p->d, p->d, &square);
        lse = (float)p->scale * square * run->group->inverse[at];
      }
    } else if (counts) {
      kernels->row_scale(row, p->dv, 1.0f / job->l[at]);
      lse = hd_attn_lse(job->m[at], job->l[at]);
    } else {
      memset(row, 0, (size_t)p->dv * sizeof *row);
    }
    hd_from_floats(kernels, row, p->dv, hd_grid_row(&job->out, batch, within, i), job->out.type, job->out.column_stride);
    if (job->lse.size) *(float *)hd_grid_row(&job->lse, batch, within, i) = lse;
  }
}

heed_status heed_lsh_forward(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                             const heed_view *out, const heed_view *lse) {
  if (!context) return HEED_E_ARGUMENT;
  hd_lsh p;
  struct job job = {0};
  HD_REQUIRE(v, context, HEED_E_ARGUMENT, "v: the view is null");
  HD_TRY(hd_lsh_make(context, a, qk, v, &p));
  HD_TRY(hd_lsh_storable(&p));
  HD_TRY(hd_lsh_outputs(&p, qk, v, out, lse, &job.out, &job.lse));
  HD_TRY(hd_storable(context, &job.out, "out"));
  HD_REQUIRE(!job.lse.size || job.lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job.lse.type));
  hd_lsh_work work = {.job = &job,
                      .rows = {{&job.o, 0, p.dv}, {&job.m, 0, 1}, {&job.l, 0, 1}},
                      .row_arrays = 3,
                      .worker_size = sizeof(struct worker),
                      .lay_out = lay_out,
                      .round = attend_run,
                      .finish = finish_rows};
  return p.batch * p.heads * p.rows == 0 ? HEED_OK : hd_lsh_work_run(&p, &work);
}
