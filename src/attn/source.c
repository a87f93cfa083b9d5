/* source.c: keys and values from views and from cache pages. */
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

static const float *copy_rows(const hd_source *source, const char *from, heed_type type, int64_t row_stride, int64_t column_stride,
                              int keys, float *scratch, int64_t *stride) {
  *stride = source->columns;
  for (int i = 0; i < keys; i++)
    hd_to_floats(source->kernels, from + i * row_stride * (int64_t)heed_type_bytes(type), type, column_stride, source->columns,
                 scratch + i * source->columns);
  return scratch;
}

static const float *view_rows(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch,
                              int64_t *stride) {
  const hd_grid *grid = &source->grid;
  const char *row = hd_grid_row(grid, batch, head, key);
  if (grid->type == HEED_F32 && (grid->column_stride == 1 || grid->columns == 1)) {
    *stride = grid->row_stride;
    return (const float *)row;
  }
  return copy_rows(source, row, grid->type, grid->row_stride, grid->column_stride, keys, scratch, stride);
}

const uint16_t *hd_source_bf16(const hd_source *source, int64_t batch, int64_t head, int64_t key, int64_t *stride) {
  const hd_grid *grid = &source->grid;
  if (source->rows != view_rows || grid->type != HEED_BF16 || (grid->column_stride != 1 && grid->columns > 1)) return NULL;
  *stride = grid->row_stride;
  return (const uint16_t *)hd_grid_row(grid, batch, head, key);
}

static const float *page_rows(const hd_source *source, int64_t batch, int64_t head, int64_t key, int keys, float *scratch,
                              int64_t *stride) {
  const char *page = source->page[batch * source->pages + key / source->page_keys];
  const char *row =
      page + (head * source->head_stride + key % source->page_keys * source->row_stride) * (int64_t)heed_type_bytes(source->type);
  if (source->type == HEED_F32) {
    *stride = source->row_stride;
    return (const float *)row;
  }
  return copy_rows(source, row, source->type, source->row_stride, 1, keys, scratch, stride);
}

heed_status hd_source_of_view(heed_context *context, const heed_view *view, const char *name, hd_source *out) {
  *out = (hd_source){.rows = view_rows, .kernels = hd_kernels_of(context)};
  HD_TRY(hd_grid_make(context, view, name, &out->grid));
  HD_TRY(hd_storable(context, &out->grid, name));
  out->batch = out->grid.batch;
  out->heads = out->grid.heads;
  out->keys = out->grid.rows;
  out->columns = out->grid.columns;
  return HEED_OK;
}

heed_status hd_source_of_pages(heed_context *context, hd_source *source) {
  HD_REQUIRE(source->page_keys > 0 && source->page_keys % HD_KEY_TILE == 0, context, HEED_E_ARGUMENT,
             "pages of %lld keys, allowed multiples of %d", (long long)source->page_keys, HD_KEY_TILE);
  HD_REQUIRE(source->type == HEED_F32 || source->type == HEED_F16 || source->type == HEED_BF16, context, HEED_E_TYPE,
             "pages are %s, allowed f32, f16 and bf16", heed_type_name(source->type));
  HD_REQUIRE(hd_ceil_div(source->keys, source->page_keys) <= source->pages, context, HEED_E_ARGUMENT,
             "%lld keys do not fit in %lld pages of %lld", (long long)source->keys, (long long)source->pages, (long long)source->page_keys);
  source->rows = page_rows;
  source->kernels = hd_kernels_of(context);
  return HEED_OK;
}
