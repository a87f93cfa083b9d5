/* product.c: products of rows of activations with a matrix, cut into pieces for threads.
 *
 * Several rows go group by group (64 outputs): a block of inputs is unpacked into a slab on the stack that stays in the first-level cache, and all rows of the piece are
 * multiplied by it while their chains rest in y. A single row reads the packed weights directly, once. How the work is cut changes no bit (matrix.h). */
#include "matrix.h"

#include "kernels.h"

/* Inputs of a slab: 64 outputs × 96 × 4 bytes = 24 KiB leave room in a first-level cache of 32 KiB for the rows that stream through. A multiple of 32. */
enum { SLAB_INPUTS = 96 };

/* Fewer rows a piece would let unpacking show: it costs about as much as multiplying two rows. */
enum { LEAST_ROWS = 48 };

struct work {
  const hd_kernels *kernels;
  hd_panels panels;
  const float *loose; /* rows of weights that are not packed, loose_stride apart, instead of panels.data */
  int64_t loose_stride;
  int64_t outputs;
  const float *x, *bias;
  float *y;
  int64_t rows, x_stride, y_stride;
  int64_t piece_rows;   /* of many rows */
  int64_t piece_panels; /* of a single row */
};

/* Inputs [from, from + inputs) of a group of loose rows as panels. */
static void gather_slab(const struct work *p, int64_t output, int outputs, int64_t from, int64_t inputs, float *slab) {
  for (int first = 0; first < outputs; first += HD_PANEL, slab += inputs * HD_PANEL) {
    int here = HD_MIN(HD_PANEL, outputs - first);
    const float *rows[HD_PANEL];
    for (int i = 0; i < here; i++) rows[i] = p->loose + (output + first + i) * p->loose_stride + from;
    p->kernels->to_lanes(rows, here, inputs, 1.0f, slab, HD_PANEL);
  }
}

/* Pieces that follow each other share their rows, which then come from a nearer cache. */
static void multiply_piece(void *argument, int64_t i, int worker) {
  const struct work *p = argument;
  float slab[HD_GROUP * SLAB_INPUTS] __attribute__((aligned(HD_ALIGN)));
  int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), group = i % groups, row = i / groups * p->piece_rows;
  int outputs = (int)HD_MIN(HD_GROUP, p->outputs - group * HD_GROUP);
  (void)worker;
  hd_product product = {
      .x = p->x + row * p->x_stride,
      .x_stride = p->x_stride,
      .rows = HD_MIN(p->piece_rows, p->rows - row),
      .y = p->y + row * p->y_stride + group * HD_GROUP,
      .y_stride = p->y_stride,
      .outputs = outputs,
  };
  for (int64_t from = 0; from < p->panels.inputs || from == 0; from += SLAB_INPUTS) {
    product.inputs = HD_MIN(SLAB_INPUTS, p->panels.inputs - from);
    product.first = from == 0;
    if (p->bias && from + product.inputs == p->panels.inputs) product.bias = p->bias + group * HD_GROUP;
    product.w = slab;
    product.w_stride = product.inputs * HD_PANEL;
    if (p->loose) {
      gather_slab(p, group * HD_GROUP, outputs, from, product.inputs, slab);
    } else {
      p->kernels->unpack(&p->panels, group * HD_GROUP / HD_PANEL, hd_ceil_div(outputs, HD_PANEL), from, product.inputs, slab);
    }
    p->kernels->multiply(&product);
    product.x += product.inputs;
  }
}

static void multiply_many(heed_context *context, struct work *p) {
  int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), wanted = hd_ceil_div(8 * context->threads, groups);
  int64_t pieces = HD_MAX(HD_MIN(wanted, p->rows / LEAST_ROWS), 1);
  p->piece_rows = hd_ceil_div(hd_ceil_div(p->rows, pieces), 12) * 12; // whole register tiles of 4 and 6 rows
  hd_parallel(context, groups * hd_ceil_div(p->rows, p->piece_rows), multiply_piece, p);
}

static void multiply_row_piece(void *argument, int64_t i, int worker) {
  const struct work *p = argument;
  int64_t panels = hd_ceil_div(p->outputs, HD_PANEL), first = i * p->piece_panels, end = HD_MIN(first + p->piece_panels, panels);
  (void)worker;
  for (; first < end; first += HD_GROUP / HD_PANEL) {
    float y[HD_GROUP];
    int64_t output = first * HD_PANEL, outputs = HD_MIN(HD_GROUP, HD_MIN(end * HD_PANEL, p->outputs) - output);
    p->kernels->multiply_row(&p->panels, first, hd_ceil_div(outputs, HD_PANEL), p->x, y);
    for (int64_t o = 0; o < outputs; o++) p->y[output + o] = p->bias ? y[o] + p->bias[output + o] : y[o];
  }
}

/* A row's product takes microseconds, so it is cut evenly: one stretch of groups a thread where there are few, since beside a third piece for two threads one of them
 * would stand idle; four where there are many, so that threads end together on a busy machine. */
static void multiply_one(heed_context *context, struct work *p) {
  int64_t panels = hd_ceil_div(p->outputs, HD_PANEL), group = HD_GROUP / HD_PANEL, groups = hd_ceil_div(panels, group);
  int64_t pieces = groups < 16 * context->threads ? context->threads : 4 * context->threads;
  p->piece_panels = hd_ceil_div(groups, pieces) * group;
  hd_parallel(context, hd_ceil_div(panels, p->piece_panels), multiply_row_piece, p);
}

heed_status hd_matrix_product(heed_context *context, const hd_matrix *matrix, const float *x, int64_t rows, int64_t x_stride,
                              const float *bias, float *y, int64_t y_stride) {
  struct work work = {
      .kernels = hd_kernels_of(context),
      .panels = hd_matrix_panels(matrix),
      .outputs = matrix->outputs,
      .x = x,
      .bias = bias,
      .y = y,
      .rows = rows,
      .x_stride = x_stride,
      .y_stride = y_stride,
  };
  if (rows == 0 || matrix->outputs == 0) return HEED_OK;
  if (rows == 1) multiply_one(context, &work);
  else multiply_many(context, &work);
  return HEED_OK;
}

void hd_rows_product(heed_context *context, const float *x, int64_t rows, int64_t x_stride, const float *w, int64_t outputs, int64_t inputs,
                     int64_t w_stride, float *y, int64_t y_stride) {
  struct work work = {
      .kernels = hd_kernels_of(context),
      .panels = {.inputs = inputs},
      .loose = w,
      .loose_stride = w_stride,
      .outputs = outputs,
      .x = x,
      .y = y,
      .rows = rows,
      .x_stride = x_stride,
      .y_stride = y_stride,
  };
  if (rows > 0 && outputs > 0) multiply_many(context, &work);
}

void hd_matrix_row(const heed_context *context, const hd_matrix *matrix, int64_t output, float *out) {
  float panel[HD_PANEL * SLAB_INPUTS] __attribute__((aligned(HD_ALIGN)));
  hd_panels panels = hd_matrix_panels(matrix);
  for (int64_t from = 0; from < panels.inputs; from += SLAB_INPUTS) {
    int64_t inputs = HD_MIN(SLAB_INPUTS, panels.inputs - from);
    hd_kernels_of(context)->unpack(&panels, output / HD_PANEL, 1, from, inputs, panel);
    for (int64_t i = 0; i < inputs; i++) out[from + i] = panel[i * HD_PANEL + output % HD_PANEL];
  }
}
