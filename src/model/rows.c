/* rows.c: row operations shared out over threads; the arithmetic is the kernels'. */
#include "rows.h"

#include "../kern/kernels.h"

/* Rows one piece of parallel work takes: some microseconds of it, so that sharing out costs little. One row (decoding) stays on the caller's thread. */
enum { BLOCK = 8 };

typedef struct work {
  const hd_kernels *kernels;
  const hd_transformer_spec *spec;
  const hd_norm *norm;
  heed_activation activation;
  const float *x;
  float *y;
  int64_t rows, n, stride, parts;
  void (*row)(const struct work *work, int64_t r);
} work;

static void block(void *argument, int64_t i, int worker) {
  (void)worker;
  const work *w = argument;
  for (int64_t r = i * BLOCK, end = HD_MIN(w->rows, r + BLOCK); r < end; r++) w->row(w, r);
}

static void run(heed_context *context, work *w) {
  w->kernels = hd_kernels_of(context);
  hd_parallel(context, hd_ceil_div(w->rows, BLOCK), block, w);
}

static void norm_run(const work *w, const float *x, float *y) {
  const float eps = (float)w->spec->norm_eps;
  if (w->spec->norm == HD_NORM_RMS) w->kernels->rms_norm(x, w->norm->weight, w->n, eps, y, NULL);
  else w->kernels->layer_norm(x, w->norm->weight, w->norm->bias, w->n, eps, y, NULL);
}

static void norm_row(const work *w, int64_t r) { norm_run(w, w->x + r * w->n, w->y + r * w->n); }

static void norm_parts(const work *w, int64_t r) {
  for (int64_t part = 0; part < w->parts; part++) {
    float *x = w->y + r * w->stride + part * w->n;
    norm_run(w, x, x);
  }
}

void hd_rows_norm(heed_context *context, const hd_transformer_spec *spec, const hd_norm *norm, const float *x, int64_t rows, float *y) {
  run(context, &(work){.row = norm_row, .spec = spec, .norm = norm, .x = x, .y = y, .rows = rows, .n = spec->width});
}

void hd_rows_norm_parts(heed_context *context, const hd_transformer_spec *spec, const hd_norm *norm, float *x, int64_t rows, int64_t stride,
                        int64_t parts, int64_t n) {
  run(context, &(work){.row = norm_parts, .spec = spec, .norm = norm, .y = x, .rows = rows, .n = n, .stride = stride, .parts = parts});
}

static void add_row(const work *w, int64_t r) {
  float *y = w->y + r * w->n;
  w->kernels->add(y, w->x + r * w->n, w->n, y);
}

void hd_rows_add(heed_context *context, float *x, const float *y, int64_t rows, int64_t width) {
  run(context, &(work){.row = add_row, .x = y, .y = x, .rows = rows, .n = width});
}

static void activate_row(const work *w, int64_t r) {
  float *row = w->y + r * w->stride;
  w->kernels->activate(w->activation, row, w->stride > w->n ? row + w->n : NULL, w->n, row);
}

void hd_rows_activate(heed_context *context, heed_activation kind, float *of, int64_t rows, int64_t n, int64_t stride) {
  run(context, &(work){.row = activate_row, .activation = kind, .y = of, .rows = rows, .n = n, .stride = stride});
}
