/* product.c: products of rows of activations with a matrix of weights, packed or not, cut into pieces for threads.
 *
 * A piece is a block of rows and some groups of 64 outputs of one product (or several small products of a batch). Block by block of inputs, its rows are copied (unless one group is all there is) so that
 * they lie close together in the second-level cache, then each group's weights are brought into a slab that stays in the nearest caches while all the rows are
 * multiplied by it; their chains rest in y meanwhile, or in scratch where y is not f32 with contiguous columns. So what the inner loops read is near, whatever
 * the strides and types, and pieces share nothing. A single row reads packed weights directly, once. How the work is cut changes no bit (matrix.h). */
#include "gemm.h"
#include "matrix.h"

/* Inputs of a block, a multiple of 32. */
enum { BLOCK_INPUTS = 256 };

/* From row to row of a copied block: a line more than it holds, so that the rows of a register tile do not meet in one set of the first-level cache. */
enum { BLOCK_STRIDE = BLOCK_INPUTS + HD_PANEL };

/* Rows of a block: with its inputs half a MiB, which stays in the second-level cache. Filling the slab costs about as much as multiplying ten to twenty rows, so fewer
 * would let it show. Whole register tiles of 4 and 6 rows. */
enum { ROW_TILE = 12, BLOCK_ROWS = 43 * ROW_TILE };

/* Fewer rows a piece are not worth a thread of their own. */
enum { LEAST_ROWS = 24 };

/* A piece copies its rows for itself, at about the cost of multiplying them by 10 to 30 outputs: so it has so many groups, unless threads need work. */
enum { PIECE_GROUPS = 6 };

/* More would need much scratch where y is not in place. */
enum { MOST_SCRATCH_GROUPS = 4 };

/* Pieces a thread, where there is enough work: so that threads end together on a busy machine. */
enum { PIECES_A_THREAD = 6 };

/* Small products of a batch share a piece up to about this many multiply-adds: some ten microseconds. */
enum { LEAST_WORK = 1 << 18 };

struct work {
  const hd_kernels *kernels;
  hd_panels panels; /* packed weights, or data NULL: */
  hd_rectangle w;   /* [inputs, outputs] */
  hd_rectangle x;   /* [rows, inputs] */
  hd_rectangle y;   /* [rows, outputs] */
  const float *bias;
  bool bias_of_rows; /* y is written transposed: a bias a row */
  bool accumulate;
  int64_t rows, outputs, inputs;
  int64_t entries; /* of the batch */
  int batch_rank;
  const int64_t *batch, *x_batch, *w_batch, *y_batch;
  int64_t piece_rows, piece_entries, column_blocks; /* of several rows */
  int64_t piece_panels;                             /* of a single row */
  bool x_in_place, y_in_place;
  float *
      scratch; /* for each worker: slab [HD_GROUP][BLOCK_INPUTS], rows [piece_rows][BLOCK_STRIDE], y [piece_rows][y_stride], both unless in place */
  int64_t scratch_floats, y_stride;
};

/* One piece's share of one product. */
struct part {
  const struct work *work;
  hd_rectangle w, x, y; /* from the part's first row and output on */
  const float *bias;
  int64_t rows, first_output, outputs;
  float *slab, *x_block, *y_block;
};

static hd_rectangle rectangle_from(hd_rectangle from, int64_t offset, int64_t row, int64_t column) {
  offset += row * from.row_stride + column * from.column_stride;
  from.data = (char *)from.data + offset * (int64_t)heed_type_bytes(from.type);
  return from;
}

/* Elements from an array's beginning to its entry of the batch. */
static int64_t entry_offset(const struct work *p, int64_t entry, const int64_t *stride) {
  int64_t offset = 0;
  for (int i = p->batch_rank - 1; i >= 0; i--) {
    offset += entry % p->batch[i] * stride[i];
    entry /= p->batch[i];
  }
  return offset;
}

/* Inputs [from, from + inputs) of a group of weights that begins at the part's output `first`. */
static void fill_slab(const struct part *part, int64_t first, int64_t outputs, int64_t from, int64_t inputs) {
  const struct work *p = part->work;
  if (p->panels.data) {
    p->kernels->unpack(&p->panels, (part->first_output + first) / HD_PANEL, hd_ceil_div(outputs, HD_PANEL), from, inputs, part->slab);
    return;
  }
  for (int64_t panel = 0; panel < outputs; panel += HD_PANEL) {
    hd_rectangle w = rectangle_from(part->w, 0, from, first + panel);
    p->kernels->gather(&w, inputs, HD_MIN(HD_PANEL, outputs - panel), part->slab + panel * inputs, HD_PANEL);
  }
}

/* What was computed into scratch goes where it belongs. */
static void put_block(const struct part *part) {
  const hd_rectangle *y = &part->y;
  for (int64_t r = 0; r < part->rows; r++)
    for (int64_t o = 0; o < part->outputs; o++) {
      float value = part->y_block[r * part->work->y_stride + o];
      int64_t at = r * y->row_stride + o * y->column_stride;
      if (part->bias) value += part->bias[part->work->bias_of_rows ? r : o];
      if (y->type == HEED_F32) ((float *)y->data)[at] = value;
      else ((uint16_t *)y->data)[at] = y->type == HEED_F16 ? hd_f32_to_f16(value) : hd_f32_to_bf16(value);
    }
}

/* All the part's outputs for a block of inputs. */
static void multiply_block(const struct part *part, int64_t from, int64_t inputs) {
  const struct work *p = part->work;
  hd_rectangle x = rectangle_from(part->x, 0, 0, from);
  if (!p->x_in_place) p->kernels->gather(&x, part->rows, inputs, part->x_block, BLOCK_STRIDE);
  for (int64_t first = 0; first < part->outputs; first += HD_GROUP) {
    hd_product product = {
        .x = p->x_in_place ? x.data : part->x_block,
        .x_stride = p->x_in_place ? x.row_stride : BLOCK_STRIDE,
        .rows = part->rows,
        .w = part->slab,
        .w_stride = inputs * HD_PANEL,
        .inputs = inputs,
        .first = from == 0 && !p->accumulate,
        .bias = part->bias && p->y_in_place && from + inputs == p->inputs ? part->bias + first : NULL,
        .y = (p->y_in_place ? (float *)part->y.data : part->y_block) + first,
        .y_stride = p->y_in_place ? part->y.row_stride : p->y_stride,
        .outputs = (int)HD_MIN(HD_GROUP, part->outputs - first),
    };
    fill_slab(part, first, product.outputs, from, inputs);
    p->kernels->multiply(&product);
  }
}

static void multiply_part(const struct part *part) {
  const struct work *p = part->work;
  if (!p->y_in_place && p->accumulate) p->kernels->gather(&part->y, part->rows, part->outputs, part->y_block, p->y_stride);
  for (int64_t from = 0; from < p->inputs || from == 0; from += BLOCK_INPUTS)
    multiply_block(part, from, HD_MIN(BLOCK_INPUTS, p->inputs - from));
  if (!p->y_in_place) put_block(part);
}

static void multiply_piece(void *argument, int64_t i, int worker) {
  const struct work *p = argument;
  int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), row_blocks = hd_ceil_div(p->rows, p->piece_rows), column = i % p->column_blocks;
  int64_t output = groups * column / p->column_blocks * HD_GROUP, row = i / p->column_blocks % row_blocks * p->piece_rows;
  int64_t entry = i / p->column_blocks / row_blocks * p->piece_entries, end = HD_MIN(entry + p->piece_entries, p->entries);
  struct part part = {
      .work = p,
      .bias = p->bias ? p->bias + (p->bias_of_rows ? row : output) : NULL,
      .rows = HD_MIN(p->piece_rows, p->rows - row),
      .first_output = output,
      .outputs = HD_MIN(groups * (column + 1) / p->column_blocks * HD_GROUP, p->outputs) - output,
      .slab = p->scratch + worker * p->scratch_floats,
  };
  part.x_block = part.slab + HD_GROUP * BLOCK_INPUTS;
  part.y_block = part.x_block + (p->x_in_place ? 0 : p->piece_rows * BLOCK_STRIDE);
  for (; entry < end; entry++) {
    part.x = rectangle_from(p->x, entry_offset(p, entry, p->x_batch), row, 0);
    part.y = rectangle_from(p->y, entry_offset(p, entry, p->y_batch), row, output);
    if (!p->panels.data) part.w = rectangle_from(p->w, entry_offset(p, entry, p->w_batch), 0, output);
    multiply_part(&part);
  }
}

/* Cuts the work into pieces: the blocks of rows and columns, and how many entries of the batch a piece takes. */
static void cut(const heed_context *context, struct work *p) {
  int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), threads = context->threads;
  int64_t row_blocks = hd_ceil_div(p->rows, BLOCK_ROWS);
  if (p->entries * row_blocks * groups < threads)
    row_blocks = HD_MAX(row_blocks, HD_MIN(hd_ceil_div(threads, p->entries * groups), p->rows / LEAST_ROWS));
  p->piece_rows = hd_ceil_div(hd_ceil_div(p->rows, row_blocks), ROW_TILE) * ROW_TILE;
  int64_t products = p->entries * hd_ceil_div(p->rows, p->piece_rows);
  int64_t wanted = hd_ceil_div(PIECES_A_THREAD * threads, products), most = HD_MAX(groups / PIECE_GROUPS, hd_ceil_div(threads, products));
  p->column_blocks = HD_MIN(HD_MIN(wanted, most), groups);
  if (!p->y_in_place) p->column_blocks = HD_MAX(p->column_blocks, hd_ceil_div(groups, MOST_SCRATCH_GROUPS));
  p->y_stride = hd_ceil_div(groups, p->column_blocks) * HD_GROUP;
  double one = (double)p->piece_rows * (double)p->outputs * (double)HD_MAX(p->inputs, 1);
  p->piece_entries = HD_MAX(HD_MIN((int64_t)(LEAST_WORK / one), p->entries / (PIECES_A_THREAD * threads)), 1);
}

static heed_status multiply_many(heed_context *context, struct work *p) {
  p->y_in_place = p->y.type == HEED_F32 && p->y.column_stride == 1 && !p->bias_of_rows;
  p->x_in_place = p->x.type == HEED_F32 && p->x.column_stride == 1 && p->outputs <= HD_GROUP; // to be read once only
  cut(context, p);
  int64_t pieces = p->column_blocks * hd_ceil_div(p->rows, p->piece_rows) * hd_ceil_div(p->entries, p->piece_entries);
  int64_t workers = hd_workers(context, pieces);
  p->scratch_floats = HD_GROUP * BLOCK_INPUTS + p->piece_rows * ((p->x_in_place ? 0 : BLOCK_STRIDE) + (p->y_in_place ? 0 : p->y_stride));
  HD_TRY(hd_allocate(context, "matrix product", workers * p->scratch_floats, sizeof(float), &p->scratch));
  hd_parallel(context, pieces, multiply_piece, p);
  hd_release(context, p->scratch, workers * p->scratch_floats, sizeof(float));
  return HEED_OK;
}

static void multiply_row_piece(void *argument, int64_t i, int worker) {
  const struct work *p = argument;
  int64_t panels = hd_ceil_div(p->outputs, HD_PANEL), first = i * p->piece_panels, end = HD_MIN(first + p->piece_panels, panels);
  float *out = p->y.data;
  (void)worker;
  for (; first < end; first += HD_GROUP / HD_PANEL) {
    float y[HD_GROUP];
    int64_t output = first * HD_PANEL, outputs = HD_MIN(HD_GROUP, HD_MIN(end * HD_PANEL, p->outputs) - output);
    p->kernels->multiply_row(&p->panels, first, hd_ceil_div(outputs, HD_PANEL), p->x.data, y);
    for (int64_t o = 0; o < outputs; o++) out[output + o] = p->bias ? y[o] + p->bias[output + o] : y[o];
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
      .x = {(void *)x, HEED_F32, x_stride, 1},
      .y = {y, HEED_F32, y_stride, 1},
      .bias = bias,
      .rows = rows,
      .outputs = matrix->outputs,
      .inputs = matrix->inputs,
      .entries = 1,
  };
  if (rows == 0 || matrix->outputs == 0) return HEED_OK;
  if (rows > 1) return multiply_many(context, &work);
  multiply_one(context, &work);
  return HEED_OK;
}

/* The last dimension of the batch becomes rows where the weights are shared and its entries follow each other as rows do. */
static void fold_batch(hd_gemm_call *call) {
  for (; call->batch_rank > 0; call->batch_rank--) {
    int last = call->batch_rank - 1;
    if (call->rows == 1) {
      call->a.row_stride = call->a_batch[last];
      call->c.row_stride = call->c_batch[last];
    }
    if (call->b_batch[last] != 0 || call->a_batch[last] != call->rows * call->a.row_stride ||
        call->c_batch[last] != call->rows * call->c.row_stride)
      return;
    call->rows *= call->batch[last];
  }
}

static hd_rectangle transposed(hd_rectangle r) { return (hd_rectangle){r.data, r.type, r.column_stride, r.row_stride}; }

/* The product as it is, or the transposed product where c has fewer columns than a panel and more rows: lanes would be empty. */
static void orient(const hd_gemm_call *call, struct work *p) {
  bool turn = call->outputs < HD_PANEL && call->rows > call->outputs;
  p->rows = turn ? call->outputs : call->rows;
  p->outputs = turn ? call->rows : call->outputs;
  p->x = turn ? transposed(call->b) : call->a;
  p->w = turn ? transposed(call->a) : call->b;
  p->y = turn ? transposed(call->c) : call->c;
  p->x_batch = turn ? call->b_batch : call->a_batch;
  p->w_batch = turn ? call->a_batch : call->b_batch;
  p->bias_of_rows = turn && p->bias;
}

heed_status hd_gemm(heed_context *context, const hd_gemm_call *given) {
  hd_gemm_call call = *given;
  float *bias = NULL;
  struct work work = {.kernels = hd_kernels_of(context), .accumulate = call.accumulate, .inputs = call.inputs, .entries = 1};
  for (int i = 0; i < call.batch_rank; i++) work.entries *= call.batch[i];
  if (work.entries == 0 || call.rows == 0 || call.outputs == 0) return HEED_OK;
  fold_batch(&call);
  work.entries = 1;
  for (int i = 0; i < call.batch_rank; i++) work.entries *= call.batch[i];
  if (call.bias.data && (call.bias.type != HEED_F32 || call.bias.column_stride != 1)) {
    HD_TRY(hd_allocate(context, "bias", call.outputs + HD_PANEL, sizeof *bias, &bias));
    work.kernels->gather(&call.bias, 1, call.outputs, bias, 0);
  }
  work.bias = bias ? bias : call.bias.data;
  orient(&call, &work);
  work.batch_rank = call.batch_rank;
  work.batch = call.batch;
  work.y_batch = call.c_batch;
  heed_status status = multiply_many(context, &work);
  hd_release(context, bias, call.outputs + HD_PANEL, sizeof *bias);
  return status;
}

void hd_matrix_row(const heed_context *context, const hd_matrix *matrix, int64_t output, float *out) {
  float panel[HD_PANEL * BLOCK_INPUTS] __attribute__((aligned(HD_ALIGN)));
  hd_panels panels = hd_matrix_panels(matrix);
  for (int64_t from = 0; from < panels.inputs; from += BLOCK_INPUTS) {
    int64_t inputs = HD_MIN(BLOCK_INPUTS, panels.inputs - from);
    hd_kernels_of(context)->unpack(&panels, output / HD_PANEL, 1, from, inputs, panel);
    for (int64_t i = 0; i < inputs; i++) out[from + i] = panel[i * HD_PANEL + output % HD_PANEL];
  }
}
