/* source.c: rows of keys and values as f32, and those of views. */
#include "attention.h"

void hd_to_floats(const hd_kernels *kernels, const char *from, heed_type type, int64_t step, int64_t n, float *to) {
  int64_t size = (int64_t)heed_type_bytes(type);
  if (step == 1 && type == HEED_F32) {
    memcpy(to, from, (size_t)(n * size));
  } else if (step == 1 && (type == HEED_F16 || type == HEED_BF16)) {
    kernels->widen((const uint16_t *)from, type, n, to);
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = (float)hd_element(from + i * step * size, type);
  }
}

void hd_from_floats(const hd_kernels *kernels, const float *from, int64_t n, char *to, heed_type type, int64_t step) {
  int64_t size = (int64_t)heed_type_bytes(type);
  if (step == 1 && type == HEED_F32) {
    memcpy(to, from, (size_t)(n * size));
  } else if (step == 1 && (type == HEED_F16 || type == HEED_BF16)) {
    kernels->narrow(from, n, type, (uint16_t *)to);
  } else {
    for (int64_t i = 0; i < n; i++) hd_element_store(to + i * step * size, type, from[i]);
  }
}

void hd_fill_zero(const hd_grid *grid) {
  for (int64_t row = 0; grid->data && row < grid->batch * grid->heads * grid->rows; row++) {
    char *at = hd_grid_row(grid, row / grid->rows / grid->heads, row / grid->rows % grid->heads, row % grid->rows);
    for (int64_t c = 0; c < grid->columns; c++) hd_element_store(at + c * grid->column_stride * grid->size, grid->type, 0);
  }
}

const float *hd_source_rows(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch, int64_t *stride) {
  hd_stored stored;
  *stride = source->columns;
  if (!source->stored(source, batch, head, key, &stored)) {
    const hd_grid *grid = &source->grid;
    for (int i = 0; i < keys; i++)
      hd_to_floats(source->kernels, hd_grid_row(grid, batch, head, key + i), grid->type, grid->column_stride, grid->columns,
                   scratch + i * grid->columns);
    return scratch;
  }
  if (stored.type == HD_F32) {
    *stride = stored.stride / (int64_t)sizeof(float);
    return stored.data;
  }
  source->kernels->read_rows(&stored, keys, source->columns, scratch);
  return scratch;
}

const float *hd_key_rows(const hd_source *source, int64_t batch, int64_t head, const hd_keys *keys, float *scratch, int64_t *stride) {
  const hd_grid *grid = &source->grid;
  if (keys->step == 1) return source->rows(source, batch, head, keys->key[0], keys->count, scratch, stride);
  if (keys->step && !source->cache && grid->type == HEED_F32 && grid->column_stride == 1) {
    *stride = grid->row_stride * keys->step;
    return (const float *)hd_grid_row(grid, batch, head, keys->key[0]);
  }
  for (int i = 0; i < keys->count; i++) {
    float *to = scratch + i * source->columns;
    const float *row = source->rows(source, batch, head, hd_key(keys, i), 1, to, stride);
    if (row != to) memcpy(to, row, (size_t)source->columns * sizeof *to);
  }
  *stride = source->columns;
  return scratch;
}

const uint16_t *hd_source_bf16(const hd_source *source, int64_t batch, int64_t head, int64_t key, int64_t *stride) {
  hd_stored stored;
  source->stored(source, batch, head, key, &stored);
  *stride = stored.stride / (int64_t)sizeof(uint16_t);
  return stored.data;
}

static bool view_stored(const hd_source *source, int64_t batch, int64_t head, int64_t key, hd_stored *out) {
  const hd_grid *grid = &source->grid;
  *out = (hd_stored){
      .data = hd_grid_row(grid, batch, head, key),
      .stride = grid->row_stride * grid->size,
      .type = grid->type == HEED_F16    ? HD_F16
              : grid->type == HEED_BF16 ? HD_BF16
                                        : HD_F32,
  };
  return grid->column_stride == 1 || grid->columns <= 1;
}

heed_status hd_source_of_view(heed_context *context, const heed_view *view, const char *name, hd_source *out) {
  *out = (hd_source){.stored = view_stored, .rows = hd_source_rows, .kernels = hd_kernels_of(context)};
  HD_TRY(hd_grid_make(context, view, name, &out->grid));
  HD_TRY(hd_storable(context, &out->grid, name));
  out->bf16 = out->grid.type == HEED_BF16 && (out->grid.column_stride == 1 || out->grid.columns <= 1);
  out->batch = out->grid.batch;
  out->heads = out->grid.heads;
  out->keys = out->grid.rows;
  out->columns = out->grid.columns;
  return HEED_OK;
}
