/* matrix.c: packs weight matrices into panels of 16 outputs (their layout: kernels.h). */
#include "matrix.h"

#include "kernels.h"
#include "quant.h"

static int integer_rows(const hd_quant *q) { return q->integer ? HD_QUANT_UNIT / q->group * (q->minimum ? 2 : 1) : 0; }

/* Bytes of one block of one panel: as many as 16 blocks of the file, but for the packing of the integers. */
static int64_t block_bytes(hd_storage storage) {
  const hd_quant *q = &hd_quants[storage];
  if (!q->bits) return HD_PANEL * HD_MIN(hd_storage_bytes(storage), (int64_t)sizeof(float)); // f64 becomes f32
  int64_t units = hd_storage_block(storage) / HD_QUANT_UNIT;
  return HD_PANEL * (2 * (q->minimum ? 2 : 1) + units * (integer_rows(q) + q->bits * HD_QUANT_UNIT / 8));
}

static void put_word(unsigned char *row, int lane, uint32_t word) { memcpy(row + 4 * lane, &word, sizeof word); }

/* `count` codes of `width` bits from bit `from` of each code, the first lowest. */
static uint32_t gather_bits(const uint8_t *code, int count, int from, int width) {
  uint32_t word = 0;
  for (int i = 0; i < count; i++) word |= (uint32_t)(code[i] >> from & ((1 << width) - 1)) << i * width;
  return word;
}

/* The codes of one unit of one output. */
static void put_codes(int bits, const uint8_t *code, unsigned char *at, int lane) {
  const int row = 4 * HD_PANEL;
  if (bits == 8) {
    for (int i = 0; i < HD_QUANT_UNIT; i++) at[i * HD_PANEL + lane] = code[i];
    return;
  }
  int done = 0;
  if (bits >= 4) {
    for (int k = 0; k < 4; k++) put_word(at + k * row, lane, gather_bits(code + 8 * k, 8, 0, 4));
    at += 4 * row;
    done = 4;
  }
  if (bits - done >= 2) {
    for (int k = 0; k < 2; k++) put_word(at + k * row, lane, gather_bits(code + 16 * k, 16, done, 2));
    at += 2 * row;
    done += 2;
  }
  if (bits - done == 1) put_word(at, lane, gather_bits(code, 32, done, 1));
}

static void put_block(hd_storage storage, const hd_quant_block *block, unsigned char *at, int lane) {
  const hd_quant *q = &hd_quants[storage];
  memcpy(at + 2 * lane, &block->d, 2);
  at += 2 * HD_PANEL;
  if (q->minimum) {
    memcpy(at + 2 * lane, &block->m, 2);
    at += 2 * HD_PANEL;
  }
  int groups = HD_QUANT_UNIT / q->group;
  for (int unit = 0; unit < hd_storage_block(storage) / HD_QUANT_UNIT; unit++) {
    if (q->integer) {
      for (int g = 0; g < groups; g++, at += HD_PANEL) at[lane] = (unsigned char)block->scale[unit * groups + g];
      for (int g = 0; g < groups && q->minimum; g++, at += HD_PANEL) at[lane] = (unsigned char)block->minimum[unit * groups + g];
    }
    put_codes(q->bits, block->code + unit * HD_QUANT_UNIT, at, lane);
    at += q->bits * HD_QUANT_UNIT / 8 * HD_PANEL;
  }
}

hd_panels hd_matrix_panels(const hd_matrix *matrix) {
  return (hd_panels){
      .data = matrix->packed,
      .storage = matrix->storage == HD_F64 ? HD_F32 : matrix->storage, // packed so
      .inputs = matrix->inputs,
      .panels = hd_ceil_div(matrix->outputs, HD_PANEL),
      .block_bytes = block_bytes(matrix->storage),
      .block_inputs = hd_storage_block(matrix->storage),
  };
}

struct packing {
  const hd_matrix *matrix;
  hd_panels panels;
  unsigned char *packed;
  const unsigned char *rows;
  int64_t row_bytes;
};

/* One output's row into its lane of a panel whose blocks lie `step` bytes apart. */
static void pack_quantised(const hd_matrix *matrix, unsigned char *panel, int64_t step, const unsigned char *row, int lane) {
  hd_storage storage = matrix->storage;
  for (int64_t i = 0; i < matrix->inputs; i += hd_storage_block(storage)) {
    hd_quant_block block = {0};
    hd_quant_read(storage, row, &block);
    put_block(storage, &block, panel, lane);
    row += hd_storage_bytes(storage);
    panel += step;
  }
}

static void pack_plain(const hd_matrix *matrix, unsigned char *panel, int64_t step, const unsigned char *row, int lane) {
  int64_t n = matrix->inputs;
  float value;
  switch (matrix->storage) {
  case HD_F32:
    for (int64_t i = 0; i < n; i++) memcpy(panel + i * step + 4 * lane, row + 4 * i, 4);
    break;
  case HD_F64:
    for (int64_t i = 0; i < n; i++) {
      hd_dequantise(HD_F64, row + 8 * i, 1, &value);
      memcpy(panel + i * step + 4 * lane, &value, 4);
    }
    break;
  default: // F16, BF16
    for (int64_t i = 0; i < n; i++) memcpy(panel + i * step + 2 * lane, row + 2 * i, 2);
  }
}

static void pack_panel(void *argument, int64_t i, int worker) {
  const struct packing *p = argument;
  (void)worker;
  unsigned char *panel = p->packed + hd_panel_offset(&p->panels, i);
  int64_t step = hd_panels_together(&p->panels, i) * p->panels.block_bytes;
  for (int lane = 0; lane < HD_MIN(HD_PANEL, p->matrix->outputs - i * HD_PANEL); lane++) {
    const unsigned char *row = p->rows + (i * HD_PANEL + lane) * p->row_bytes;
    if (hd_quants[p->matrix->storage].bits) pack_quantised(p->matrix, panel, step, row, lane);
    else pack_plain(p->matrix, panel, step, row, lane);
  }
}

heed_status hd_matrix_pack(heed_context *context, hd_arena *arena, hd_storage storage, int64_t outputs, int64_t inputs, const void *rows,
                           hd_matrix *out) {
  HD_REQUIRE(outputs >= 0 && inputs >= 0 && inputs % hd_storage_block(storage) == 0, context, HEED_E_SHAPE,
             "a matrix of %lld × %lld values cannot be stored as %s: rows are whole blocks of %lld", (long long)outputs, (long long)inputs,
             hd_storage_name(storage), (long long)hd_storage_block(storage));
  int64_t panels = hd_ceil_div(outputs, HD_PANEL), blocks = inputs / hd_storage_block(storage), panel_bytes, row_bytes;
  hd_matrix matrix = {.storage = storage, .outputs = outputs, .inputs = inputs};
  unsigned char *packed;
  HD_REQUIRE(hd_mul(blocks, block_bytes(storage), &panel_bytes) && hd_mul(panels, panel_bytes, &matrix.bytes) &&
                 hd_mul(blocks, hd_storage_bytes(storage), &row_bytes),
             context, HEED_E_OVERFLOW, "a matrix of %lld × %lld values does not fit in memory", (long long)outputs, (long long)inputs);
  HD_TRY(hd_arena_allocate(arena, context, "weights", matrix.bytes, 1, &packed));
  matrix.packed = packed;
  struct packing packing = {.matrix = &matrix, .panels = hd_matrix_panels(&matrix), .packed = packed, .rows = rows, .row_bytes = row_bytes};
  hd_parallel(context, panels, pack_panel, &packing);
  *out = matrix;
  return HEED_OK;
}
