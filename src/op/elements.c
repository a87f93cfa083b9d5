/* elements.c: pieces of rows, and the moves and sums that several operations need. */
#include "elements.h"

static void run_piece(const hd_row_work *cut, int64_t piece, int64_t from, int64_t to) {
  (void)piece;
  const hd_elements *e = (const hd_elements *)cut; // its first member
  e->work(e, from, to - from);
}

void hd_elements_run(heed_context *context, hd_elements *e) {
  e->kernels = hd_kernels_of(context);
  e->cut = (hd_row_work){.piece = run_piece, .rows = e->rows, .columns = e->width};
  hd_row_run(context, &e->cut);
}

static void pass(const hd_elements *e, int64_t first, int64_t n) {
  if (e->accumulate) e->kernels->add(e->out + first, e->a + first, n, e->out + first);
  else memcpy(e->out + first, e->a + first, (size_t)n * sizeof *e->out);
}

void hd_elements_pass(heed_context *context, const float *from, int64_t count, bool accumulate, float *to) {
  hd_elements_run(context, &(hd_elements){.work = pass, .rows = count, .width = 1, .a = from, .out = to, .accumulate = accumulate});
}

static void scale(const hd_elements *e, int64_t first, int64_t n) {
  e->kernels->scale(e->a + first, e->factor, n, e->accumulate, e->out + first);
}

void hd_elements_scale(heed_context *context, const float *from, float factor, int64_t count, bool accumulate, float *to) {
  hd_elements_run(
      context, &(hd_elements){.work = scale, .rows = count, .width = 1, .a = from, .out = to, .factor = factor, .accumulate = accumulate});
}

/* ---- runs -------------------------------------------------------------------------------------------------------------------------- */

/* A run that is longer than a piece is several rows: run r / across, part r % across. */
typedef struct runs_job {
  hd_elements e;
  hd_runs runs;
  int64_t part, across;
} runs_job;

static void move_rows(const hd_elements *e, int64_t first, int64_t rows) {
  const runs_job *job = (const runs_job *)e; // its first member
  const hd_runs *runs = &job->runs;
  for (int64_t r = first; r < first + rows; r++) {
    int64_t row = r / job->across, c = r % job->across * job->part, n = HD_MIN(runs->width - c, job->part);
    float *to = runs->to + row * runs->to_stride + c;
    if (!runs->from) {
      if (!runs->accumulate) memset(to, 0, (size_t)n * sizeof *to);
      continue;
    }
    const float *from = runs->from + row * runs->from_stride + c;
    if (runs->accumulate) e->kernels->add(to, from, n, to);
    else memcpy(to, from, (size_t)n * sizeof *to);
  }
}

void hd_runs_move(heed_context *context, const hd_runs *runs) {
  runs_job job = {.runs = *runs, .part = HD_CLAMP(runs->width, 1, HD_PIECE_NUMBERS)};
  job.across = hd_ceil_div(runs->width, job.part);
  job.e = (hd_elements){.work = move_rows, .rows = runs->rows * job.across, .width = job.part};
  hd_elements_run(context, &job.e);
}

/* ---- sums over rows ------------------------------------------------------------------------------------------------------------------ */

enum { SUM_COLUMNS = 64 }; /* of a piece: a few cache lines of every row */

typedef struct sums_job {
  hd_elements e;
  hd_sums sums;
  int64_t across; /* pieces of the columns */
} sums_job;

static void sum_columns(const hd_elements *e, int64_t first, int64_t count) {
  const sums_job *job = (const sums_job *)e; // its first member
  const hd_sums *s = &job->sums;
  for (int64_t i = first; i < first + count; i++) {
    int64_t o = i / job->across, c = i % job->across * SUM_COLUMNS;
    e->kernels->sum_rows(s->x + o * s->rows * s->columns + c, s->rows, s->columns, HD_MIN(s->columns - c, SUM_COLUMNS), s->accumulate,
                         s->out + o * s->columns + c);
  }
}

void hd_sum_rows(heed_context *context, const hd_sums *sums) {
  sums_job job = {.sums = *sums, .across = hd_ceil_div(sums->columns, SUM_COLUMNS)};
  job.e = (hd_elements){.work = sum_columns, .rows = sums->outer * job.across, .width = sums->rows * HD_MIN(sums->columns, SUM_COLUMNS)};
  hd_elements_run(context, &job.e);
}

/* ---- shapes --------------------------------------------------------------------------------------------------------------------------- */

void hd_shape_like(hd_node *node, const heed_tensor *t) {
  node->out->ndim = t->ndim;
  memcpy(node->out->dim, t->dim, sizeof t->dim);
}

void hd_around_axis(const heed_tensor *t, int axis, int64_t *outer, int64_t *inner) {
  *outer = *inner = 1;
  for (int i = 0; i < axis; i++) *outer *= t->dim[i];
  for (int i = axis + 1; i < t->ndim; i++) *inner *= t->dim[i];
}

hd_axis_part hd_part_of_axis(const heed_tensor *t, int axis, int64_t begin, int64_t end) {
  int64_t outer, inner;
  hd_around_axis(t, axis, &outer, &inner);
  return (hd_axis_part){outer, t->dim[axis] * inner, begin * inner, (end - begin) * inner};
}

heed_status hd_require_axis(heed_context *context, const hd_node *node, const heed_tensor *t, int axis) {
  char text[HD_SHAPE_LENGTH];
  HD_REQUIRE(axis >= 0 && axis < t->ndim, context, HEED_E_ARGUMENT, "%s: axis %d of %s, allowed 0 to %d", node->operation->name, axis,
             hd_tensor_shape(t, text), t->ndim - 1);
  return HEED_OK;
}

void hd_sample_sizes(hd_sample *s, hd_sample_input *in) { hd_sample_shape(s, in, hd_sample_pick(s, 0, 3) ? 100 : 3000); }
