/* product.c: products of rows of activations with a matrix of weights, packed or not, cut into pieces for threads.
 *
 * A piece is a group of 64 outputs for a block of rows and a block of inputs of one product (or several small products of a batch). Its rows are copied so that they lie close
 * together in the second-level cache, then the group's weights are brought into a slab that stays in the nearest caches while all the rows are multiplied by it; chains rest
 * in y between blocks of inputs, or in scratch where y is not f32 with contiguous columns. So what the inner loops read is near, whatever the strides and types. A thread
 * takes pieces that share rows one after another, so that it copies these once, and the same outputs again and again, so that their chains stay near. Packed weights of f32 that
 * a level takes group by group are read where they lie instead, and a single row reads packed weights directly, once. How the work is cut changes no bit (matrix.h). */
#include "gemm.h"
#include "matrix.h"

#include <stdatomic.h>

/* Inputs of a block, a multiple of 32. */
enum { BLOCK_INPUTS = 256 };

/* From row to row of a copied block: a line more than it holds, so that the rows of a register tile do not meet in one set of the first-level cache. */
enum { BLOCK_STRIDE = BLOCK_INPUTS + HD_PANEL };

/* Rows of a block: with its inputs half a MiB, which stays in the second-level cache. Filling the slab costs about as much as multiplying ten to twenty rows, so fewer
 * would let it show. Whole register tiles of 4 and 6 rows. */
enum { ROW_TILE = 12, BLOCK_ROWS = 43 * ROW_TILE };

/* Fewer rows a piece are not worth a slab of their own. */
enum { LEAST_ROWS = 48 };

/* Groups of a piece where y is not in place, since all of a chain is one piece: each copies its rows, and needs scratch for its outputs. */
enum { SCRATCH_GROUPS = 4 };

/* Groups a thread takes through all blocks of inputs before others: their chains, beside the copied rows, stay in the second-level cache. */
enum { NEAR_GROUPS = 6 };

/* Pieces a thread in a turn: rows are cut for them, so more would show where a product is small. */
enum { PIECES_A_THREAD = 2 };

/* Small products of a batch share a piece up to about this many multiply-adds: some ten microseconds. */
enum { LEAST_WORK = 1 << 18 };

struct work {
  const hd_kernels *kernels;
  hd_panels panels; /* packed weights, or data NULL: */
  bool turned;      /* their inputs are the outputs here, their outputs the inputs */
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
  int64_t piece_rows, piece_entries, piece_inputs; /* of several rows */
  int64_t row_blocks, column_blocks, input_blocks; /* how many of them */
  int64_t blocks_together,
      columns_together; /* blocks of rows, counted over the batch, and columns that take a block of inputs before the next */
  int64_t slots, turns; /* pieces of a turn; see claim */
  int64_t piece_panels; /* of a single row */
  bool w_in_place, x_in_place, y_in_place;
  int64_t y_stride; /* of scratch */
  int64_t worker_count;
  struct worker *workers;
  _Atomic int64_t *state; /* [slots] */
};

struct worker {
  float *slab, *x_block,
      *y_block;       /* [HD_GROUP][BLOCK_INPUTS], [piece_rows][BLOCK_STRIDE], [piece_rows][y_stride]; the last two unless in place */
  float *turning;     /* [BLOCK_INPUTS / HD_PANEL][HD_GROUP][HD_PANEL] where weights are turned */
  const void *copied; /* what x_block holds */
  int64_t copied_rows, copied_inputs;
};

/* One piece's share of one product. */
struct part {
  const struct work *work;
  hd_rectangle w, x, y; /* from the part's first row and output on */
  const float *bias;
  int64_t rows, first_output, outputs, from, end; /* inputs [from, end) */
  struct worker *worker;
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

/* The same of packed weights that are turned: a block of their panels, as it lies, and then square by square. */
static void fill_turned_slab(const struct part *part, int64_t first, int64_t outputs, int64_t from, int64_t inputs) {
  const struct work *p = part->work;
  float *turning = part->worker->turning;
  p->kernels->unpack(&p->panels, from / HD_PANEL, hd_ceil_div(inputs, HD_PANEL), part->first_output + first, outputs, turning);
  for (int64_t i = 0; i < inputs; i += HD_PANEL)
    for (int64_t o = 0; o < outputs; o += HD_PANEL) {
      const hd_rectangle square = {turning + i * outputs + o * HD_PANEL, HEED_F32, 1, HD_PANEL};
      p->kernels->gather(&square, HD_MIN(HD_PANEL, inputs - i), HD_MIN(HD_PANEL, outputs - o),
                         part->worker->slab + o * inputs + i * HD_PANEL, HD_PANEL);
    }
}

/* Inputs [from, from + inputs) of a group of weights that begins at the part's output `first`. */
static void fill_slab(const struct part *part, int64_t first, int64_t outputs, int64_t from, int64_t inputs) {
  const struct work *p = part->work;
  if (p->turned) {
    fill_turned_slab(part, first, outputs, from, inputs);
    return;
  }
  if (p->panels.data) {
    p->kernels->unpack(&p->panels, (part->first_output + first) / HD_PANEL, hd_ceil_div(outputs, HD_PANEL), from, inputs,
                       part->worker->slab);
    return;
  }
  for (int64_t panel = 0; panel < outputs; panel += HD_PANEL) {
    hd_rectangle w = rectangle_from(part->w, 0, from, first + panel);
    p->kernels->gather(&w, inputs, HD_MIN(HD_PANEL, outputs - panel), part->worker->slab + panel * inputs, HD_PANEL);
  }
}

/* What was computed into scratch goes where it belongs. */
static void put_block(const struct part *part) {
  const hd_rectangle *y = &part->y;
  for (int64_t r = 0; r < part->rows; r++)
    for (int64_t o = 0; o < part->outputs; o++) {
      float value = part->worker->y_block[r * part->work->y_stride + o];
      int64_t at = r * y->row_stride + o * y->column_stride;
      if (part->bias) value += part->bias[part->work->bias_of_rows ? r : o];
      if (y->type == HEED_F32) ((float *)y->data)[at] = value;
      else ((uint16_t *)y->data)[at] = y->type == HEED_F16 ? hd_f32_to_f16(value) : hd_f32_to_bf16(value);
    }
}

/* The part's rows of x, near: they are there already where the worker's last piece had the same. */
static const float *near_rows(const struct part *part, const hd_rectangle *x, int64_t inputs) {
  struct worker *worker = part->worker;
  if (worker->copied != x->data || worker->copied_rows != part->rows || worker->copied_inputs != inputs)
    part->work->kernels->gather(x, part->rows, inputs, worker->x_block, BLOCK_STRIDE);
  worker->copied = x->data;
  worker->copied_rows = part->rows;
  worker->copied_inputs = inputs;
  return worker->x_block;
}

/* The same of packed weights that need no bringing in: the multiply-adds read them where they lie. */
static void point_at_weights(const struct part *part, int64_t first, int64_t from, hd_product *product) {
  const hd_panels *panels = &part->work->panels;
  const int64_t panel = (part->first_output + first) / HD_PANEL;
  product->w_stride = HD_PANEL;
  product->w_step = hd_panels_together(panels, panel) * HD_PANEL;
  product->w = (const float *)(panels->data + hd_panel_offset(panels, panel)) + from * product->w_step;
}

/* Where the packed weights of a group lie, for inputs from `from` on, and how many bytes they are. */
static const void *packed_weights(const hd_panels *panels, int64_t panel, int64_t from, int64_t inputs, int64_t *bytes) {
  const int64_t block = hd_panels_together(panels, panel) * panels->block_bytes;
  *bytes = hd_ceil_div(inputs, panels->block_inputs) * block;
  return panels->data + hd_panel_offset(panels, panel) + from / panels->block_inputs * block;
}

/* All the part's outputs for a block of inputs. */
static void multiply_block(const struct part *part, int64_t from, int64_t inputs) {
  const struct work *p = part->work;
  const hd_rectangle x = rectangle_from(part->x, 0, 0, from);
  const float *rows = p->x_in_place ? x.data : near_rows(part, &x, inputs);
  for (int64_t first = 0; first < part->outputs; first += HD_GROUP) {
    hd_product product = {
        .x = rows,
        .x_stride = p->x_in_place ? x.row_stride : BLOCK_STRIDE,
        .rows = part->rows,
        .w = part->worker->slab,
        .w_stride = inputs * HD_PANEL,
        .w_step = HD_PANEL,
        .inputs = inputs,
        .first = from == 0 && !p->accumulate,
        .bias = part->bias && p->y_in_place && from + inputs == p->inputs ? part->bias + first : NULL,
        .y = (p->y_in_place ? (float *)part->y.data : part->worker->y_block) + first,
        .y_stride = p->y_in_place ? part->y.row_stride : p->y_stride,
        .outputs = (int)HD_MIN(HD_GROUP, part->outputs - first),
    };
    const int64_t next = (part->first_output + first) / HD_PANEL + HD_GROUP / HD_PANEL;
    if (p->panels.data && !p->turned && next < p->panels.panels)
      product.next = packed_weights(&p->panels, next, from, inputs, &product.next_bytes);
    if (p->w_in_place) point_at_weights(part, first, from, &product);
    else fill_slab(part, first, product.outputs, from, inputs);
    p->kernels->multiply(&product);
  }
}

static void multiply_part(const struct part *part) {
  const struct work *p = part->work;
  if (!p->y_in_place && p->accumulate) p->kernels->gather(&part->y, part->rows, part->outputs, part->worker->y_block, p->y_stride);
  for (int64_t from = part->from; from < part->end || from == 0; from += BLOCK_INPUTS)
    multiply_block(part, from, HD_MIN(BLOCK_INPUTS, part->end - from));
  if (!p->y_in_place) put_block(part);
}

/* What the slot has to do in a turn. Blocks of rows, counted over the batch, and columns come in bands; a turn is a block of inputs of a band, and bands take all theirs before
 * the next one. */
static void multiply_piece(const struct work *p, int64_t turn, int64_t slot, struct worker *worker) {
  const int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), input = turn % p->input_blocks, band = turn / p->input_blocks;
  const int64_t column_bands = hd_ceil_div(p->column_blocks, p->columns_together);
  const int64_t column = band % column_bands * p->columns_together + slot % p->columns_together;
  const int64_t block = band / column_bands * p->blocks_together + slot / p->columns_together;
  const int64_t output = groups * column / p->column_blocks * HD_GROUP, row = block % p->row_blocks * p->piece_rows;
  int64_t entry = block / p->row_blocks * p->piece_entries, end = HD_MIN(entry + p->piece_entries, p->entries);
  if (column >= p->column_blocks) return;
  struct part part = {
      .work = p,
      .bias = p->bias ? p->bias + (p->bias_of_rows ? row : output) : NULL,
      .rows = HD_MIN(p->piece_rows, p->rows - row),
      .first_output = output,
      .outputs = HD_MIN(groups * (column + 1) / p->column_blocks * HD_GROUP, p->outputs) - output,
      .from = input * p->piece_inputs,
      .end = HD_MIN((input + 1) * p->piece_inputs, p->inputs),
      .worker = worker,
  };
  for (; entry < end; entry++) {
    part.x = rectangle_from(p->x, entry_offset(p, entry, p->x_batch), row, 0);
    part.y = rectangle_from(p->y, entry_offset(p, entry, p->y_batch), row, output);
    if (!p->panels.data) part.w = rectangle_from(p->w, entry_offset(p, entry, p->w_batch), 0, output);
    multiply_part(&part);
  }
}

/* ---- who takes what ---------------------------------------------------------------------------------------------------------------------- */

/* A slot's state is twice the turns it has behind it, and one more while somebody is at its next. Whoever is at a turn has seen every slot taken for the turn before, so a
 * slot that is late is at work. */
static bool claim(_Atomic int64_t *state, int64_t turn) {
  int64_t free = 2 * turn;
  hd_wait_for(state, free);
  return atomic_load_explicit(state, memory_order_relaxed) == free &&
         atomic_compare_exchange_strong_explicit(state, &free, free + 1, memory_order_acquire, memory_order_relaxed);
}

/* The n-th slot that a worker tries: its own share from the front, then those of others from the back, which their owners reach last. */
static int64_t slot_of(const struct work *p, int64_t worker, int64_t n) {
  const int64_t begin = p->slots * worker / p->worker_count, end = p->slots * (worker + 1) / p->worker_count;
  if (n < end - begin) return begin + n;
  return n < p->slots - begin ? p->slots - 1 - (n - (end - begin)) : p->slots - 1 - n;
}

/* All that is left to take. */
static void run_worker(void *argument, int64_t i, int worker) {
  const struct work *p = argument;
  (void)worker;
  for (int64_t turn = 0; turn < p->turns; turn++)
    for (int64_t n = 0; n < p->slots; n++) {
      const int64_t slot = slot_of(p, i, n);
      if (!claim(&p->state[slot], turn)) continue;
      multiply_piece(p, turn, slot, &p->workers[i]);
      atomic_store_explicit(&p->state[slot], 2 * turn + 2, memory_order_release);
    }
}

/* Cuts the work into pieces. */
static void cut(const heed_context *context, struct work *p) {
  const int64_t groups = hd_ceil_div(p->outputs, HD_GROUP), wanted = PIECES_A_THREAD * context->threads;
  const double one = (double)p->rows * (double)p->outputs * (double)HD_MAX(p->inputs, 1);
  p->piece_entries = HD_MAX(HD_MIN((int64_t)(LEAST_WORK / one), p->entries / (2 * wanted)), 1);
  const bool whole = p->piece_entries > 1;
  p->column_blocks = whole ? 1 : p->y_in_place ? groups : hd_ceil_div(groups, SCRATCH_GROUPS);
  p->input_blocks = whole || !p->y_in_place ? 1 : HD_MAX(hd_ceil_div(p->inputs, BLOCK_INPUTS), 1);
  p->piece_inputs = p->input_blocks > 1 ? BLOCK_INPUTS : p->inputs;
  p->y_stride = hd_ceil_div(groups, p->column_blocks) * HD_GROUP;

  // Rows: as many as fit in a block, fewer where threads need work.
  p->row_blocks = hd_ceil_div(p->rows, BLOCK_ROWS);
  if (!whole) p->row_blocks = HD_MAX(p->row_blocks, HD_MIN(hd_ceil_div(wanted, p->entries * p->column_blocks), p->rows / LEAST_ROWS));
  p->piece_rows = hd_ceil_div(hd_ceil_div(p->rows, p->row_blocks), ROW_TILE) * ROW_TILE;
  p->row_blocks = hd_ceil_div(p->rows, p->piece_rows);

  const int64_t blocks = hd_ceil_div(p->entries, p->piece_entries) * p->row_blocks, near = NEAR_GROUPS * context->threads;
  p->columns_together = hd_ceil_div(p->column_blocks, p->input_blocks > 1 ? hd_ceil_div(p->column_blocks, near) : 1);
  p->blocks_together = p->input_blocks > 1 ? HD_MIN(hd_ceil_div(wanted, p->columns_together), blocks) : blocks;
  p->slots = p->blocks_together * p->columns_together;
  p->turns = hd_ceil_div(blocks, p->blocks_together) * hd_ceil_div(p->column_blocks, p->columns_together) * p->input_blocks;
  p->worker_count = hd_workers(context, p->slots);
}

static heed_status multiply_many(heed_context *context, struct work *p) {
  p->y_in_place = p->y.type == HEED_F32 && p->y.column_stride == 1 && !p->bias_of_rows;
  // Rows that are read once only, or that lie together as close as copies would.
  p->x_in_place = p->x.type == HEED_F32 && p->x.column_stride == 1 &&
                  (p->outputs <= HD_GROUP || (p->inputs <= BLOCK_INPUTS && p->x.row_stride == p->inputs));
  p->w_in_place = p->panels.data && p->panels.storage == HD_F32 && !p->turned && p->kernels->whole_groups;
  cut(context, p);
  const int64_t workers = p->worker_count, slab = HD_GROUP * BLOCK_INPUTS, x_block = p->x_in_place ? 0 : p->piece_rows * BLOCK_STRIDE;
  const int64_t y_block = p->y_in_place ? 0 : p->piece_rows * p->y_stride, floats = slab + x_block + y_block + (p->turned ? slab : 0);
  float *scratch = NULL;
  heed_status status = HEED_OK;
  HD_TRY_DONE(hd_allocate(context, "matrix product", workers * floats, sizeof *scratch, &scratch));
  HD_TRY_DONE(hd_allocate(context, "matrix product", workers, sizeof *p->workers, &p->workers));
  HD_TRY_DONE(hd_allocate(context, "matrix product", p->slots, sizeof *p->state, &p->state));
  for (int64_t i = 0; i < workers; i++) {
    float *at = scratch + i * floats;
    p->workers[i] = (struct worker){
        .slab = at, .x_block = at + slab, .y_block = at + slab + x_block, .turning = p->turned ? at + slab + x_block + y_block : NULL};
  }
  for (int64_t i = 0; i < p->slots; i++) atomic_init(&p->state[i], 0);
  hd_parallel(context, workers, run_worker, p);
done:
  hd_release(context, scratch, workers * floats, sizeof *scratch);
  hd_release(context, p->state, p->slots, sizeof *p->state);
  hd_release(context, p->workers, workers, sizeof *p->workers);
  return status;
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

heed_status hd_matrix_product_turned(heed_context *context, const hd_matrix *matrix, const float *x, int64_t rows, int64_t x_stride,
                                     bool accumulate, float *y, int64_t y_stride) {
  struct work work = {
      .kernels = hd_kernels_of(context),
      .panels = hd_matrix_panels(matrix),
      .turned = true,
      .x = {(void *)x, HEED_F32, x_stride, 1},
      .y = {y, HEED_F32, y_stride, 1},
      .accumulate = accumulate,
      .rows = rows,
      .outputs = matrix->inputs,
      .inputs = matrix->outputs,
      .entries = 1,
  };
  return rows == 0 || matrix->inputs == 0 ? HEED_OK : multiply_many(context, &work);
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

/* Outputs [first, end) of one panel, one below the other. */
static void unpack_rows(const hd_kernels *kernels, const hd_panels *panels, int64_t first, int64_t end, float *out) {
  float block[HD_PANEL * BLOCK_INPUTS] __attribute__((aligned(HD_ALIGN)));
  for (int64_t from = 0; from < panels->inputs; from += BLOCK_INPUTS) {
    const int64_t inputs = HD_MIN(BLOCK_INPUTS, panels->inputs - from);
    kernels->unpack(panels, first / HD_PANEL, 1, from, inputs, block);
    for (int64_t o = first; o < end; o++)
      for (int64_t i = 0; i < inputs; i++) out[(o - first) * panels->inputs + from + i] = block[i * HD_PANEL + o % HD_PANEL];
  }
}

void hd_matrix_row(const heed_context *context, const hd_matrix *matrix, int64_t output, float *out) {
  const hd_panels panels = hd_matrix_panels(matrix);
  unpack_rows(hd_kernels_of(context), &panels, output, output + 1, out);
}

struct rows {
  const hd_kernels *kernels;
  hd_panels panels;
  int64_t first, end;
  float *out;
};

/* Those of one panel. */
static void rows_of_panel(void *argument, int64_t i, int worker) {
  const struct rows *r = argument;
  const int64_t panel = r->first / HD_PANEL + i, begin = HD_MAX(r->first, panel * HD_PANEL), end = HD_MIN(r->end, (panel + 1) * HD_PANEL);
  (void)worker;
  unpack_rows(r->kernels, &r->panels, begin, end, r->out + (begin - r->first) * r->panels.inputs);
}

void hd_matrix_rows(const heed_context *context, const hd_matrix *matrix, int64_t first, int64_t rows, float *out) {
  struct rows r = {hd_kernels_of(context), hd_matrix_panels(matrix), first, first + rows, out};
  if (rows > 0) hd_parallel((heed_context *)context, hd_ceil_div(first + rows, HD_PANEL) - first / HD_PANEL, rows_of_panel, &r);
}
