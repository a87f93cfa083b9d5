/* lsh_work.c: the work of LSH attention, cut into pieces: rows of the heads of a group, runs of chunks of each round, and the groups of a call with the memory they take. */
#include "lsh.h"

struct pieces {
  hd_lsh_run run;
  int64_t parts, length; /* a head's, and the chunks (or rows) of one */
  void (*body)(const hd_lsh_run *run);
  char *workers;
  size_t worker_size;
};

static void carry_out(void *argument, int64_t i, int worker) {
  const struct pieces *pieces = argument;
  hd_lsh_run run = pieces->run;
  run.worker = worker;
  run.own = pieces->workers ? pieces->workers + (size_t)worker * pieces->worker_size : NULL;
  run.head = i / pieces->parts;
  run.begin = i % pieces->parts * pieces->length;
  run.end = HD_MIN(run.begin + pieces->length, run.end);
  if (run.round >= 0) run.end = HD_MIN(run.end, hd_lsh_chunks(run.p, (run.group->first + run.head) / run.p->heads));
  if (run.begin < run.end) pieces->body(&run);
}

int hd_lsh_workers(const hd_lsh *p, const hd_lsh_group *group) {
  return hd_workers(p->context, HD_MAX(1, group->most * hd_ceil_div(p->rows, HD_LSH_CHUNK)));
}

/* Pieces of at most 64 rows. */
static void run_rows(const hd_lsh *p, struct pieces pieces, void (*body)(const hd_lsh_run *run)) {
  pieces.run.round = -1;
  pieces.run.end = p->rows;
  pieces.length = HD_LSH_CHUNK;
  pieces.parts = hd_ceil_div(p->rows, pieces.length);
  pieces.body = body;
  hd_parallel(p->context, pieces.run.group->heads * pieces.parts, carry_out, &pieces);
}

void hd_lsh_rows(const hd_lsh *p, const hd_lsh_group *group, void *job, void (*body)(const hd_lsh_run *run)) {
  run_rows(p, (struct pieces){.run = {.p = p, .group = group, .job = job}}, body);
}

static heed_status run_rounds(const hd_lsh *p, struct pieces pieces, void (*body)(const hd_lsh_run *run)) {
  const hd_lsh_group *group = pieces.run.group;
  const int64_t chunks = hd_ceil_div(p->rows, HD_LSH_CHUNK);
  // A run gathers its chunks once and the one before it again: long runs, but some for each thread.
  pieces.length = HD_CLAMP(chunks * group->heads / (4 * (int64_t)p->context->threads), 1, HD_MIN(16, HD_MAX(1, chunks)));
  pieces.parts = hd_ceil_div(chunks, pieces.length);
  pieces.run.end = chunks;
  pieces.body = body;
  for (int64_t round = 0; round < p->rounds; round++) {
    HD_TRY(hd_progress(p->context, "attention", group->first * p->rounds + round * group->heads, p->batch * p->heads * p->rounds));
    pieces.run.round = round;
    hd_parallel(p->context, group->heads * pieces.parts, carry_out, &pieces);
  }
  return HEED_OK;
}

static heed_status run_groups(const hd_lsh *p, const hd_lsh_work *work, hd_lsh_group *group, void *workers) {
  const struct pieces pieces = {.run = {.p = p, .group = group, .job = work->job}, .workers = workers, .worker_size = work->worker_size};
  for (int64_t first = 0; first < p->batch * p->heads; first += group->most) {
    HD_TRY(hd_lsh_group_fill(p, group, first));
    if (work->begin) run_rows(p, pieces, work->begin);
    HD_TRY(run_rounds(p, pieces, work->round));
    run_rows(p, pieces, work->finish);
  }
  return HEED_OK;
}

heed_status hd_lsh_work_run(const hd_lsh *p, hd_lsh_work *work) {
  heed_context *context = p->context;
  hd_lsh_group group;
  char *workers = NULL;
  float *memory = NULL, *rows = NULL;
  int64_t floats = 0, all = 0, row_floats = 0, again = 0;
  heed_status status = HEED_OK;
  HD_TRY(hd_lsh_group_new(p, &group));
  const int64_t count = hd_lsh_workers(p, &group), bytes = count * (int64_t)work->worker_size;
  for (int i = 0; i < work->row_arrays; i++) work->rows[i].rows = group.most * p->rows;
  HD_TRY_DONE(hd_allocate(context, "attention workers", bytes, 1, &workers));
  if (!work->lay_out(p, workers, NULL, &floats) || !hd_mul(floats, count, &all) || !hd_cut(NULL, work->rows, work->row_arrays, &row_floats))
    HD_TRY_DONE(hd_fail(context, HEED_E_OVERFLOW, "head widths %lld and %lld are too large", (long long)p->d, (long long)p->dv));
  HD_TRY_DONE(hd_allocate(context, "attention tiles", all, sizeof *memory, &memory));
  HD_TRY_DONE(hd_allocate(context, "rows of LSH attention", row_floats, sizeof *rows, &rows));
  for (int64_t i = 0; i < count; i++) {
    again = 0;
    work->lay_out(p, workers + i * (int64_t)work->worker_size, memory + i * floats, &again);
  }
  again = 0;
  hd_cut(rows, work->rows, work->row_arrays, &again);
  status = run_groups(p, work, &group, workers);
done:
  hd_release(context, rows, rows ? row_floats : 0, sizeof *rows);
  hd_release(context, memory, memory ? all : 0, sizeof *memory);
  hd_release(context, workers, workers ? bytes : 0, 1);
  hd_lsh_group_free(p, &group);
  return status;
}
