/* linear_features.c: feature maps of rows, their gradients, and the random rows of FAVOR+ (Choromanski et al., "Rethinking Attention with Performers", 2021).
 *
 * The stabiliser of projected features is a power of two for each key, the one that brings its largest feature near 1: e^(w·x' − |x'|²/2) = y · 2^exponent. Powers of two multiply exactly, so states
 * and rows can be brought to any common exponent without a rounding, and no key shows in the bits of a row that does not see it. */
#include "linear.h"

#include "../base/philox.h"

#include <math.h>

/* ---- what is made of the projection ------------------------------------------------------------------------------------------------ */

static double projection_at(const heed_view *view, int64_t r, int64_t c) {
  return ((const float *)view->data)[r * view->stride[0] + c * view->stride[1]];
}

heed_status hd_linear_maps_new(const hd_linear *p, hd_linear_maps *out) {
  *out = (hd_linear_maps){0};
  if (!hd_linear_projects(p)) return HEED_OK;
  const int64_t f = hd_padded(p->projected), d = hd_padded(p->d);
  const hd_part parts[] = {{&out->in, p->d, f}, {&out->back, p->projected, d}};
  HD_REQUIRE(hd_cut(NULL, parts, HD_COUNT(parts), &out->floats), p->context, HEED_E_OVERFLOW, "the projection is too large");
  HD_TRY(hd_allocate(p->context, "the projection", out->floats, sizeof *out->memory, &out->memory));
  memset(out->memory, 0, (size_t)out->floats * sizeof *out->memory);
  int64_t again = 0;
  hd_cut(out->memory, parts, HD_COUNT(parts), &again);
  const double root = sqrt(p->scale);
  for (int64_t r = 0; r < p->projected; r++)
    for (int64_t c = 0; c < p->d; c++) {
      const double w = projection_at(p->a.projection, r, c) * root;
      out->in[c * f + r] = (float)(w * HD_LOG2E);
      out->back[r * d + c] = (float)w;
    }
  return HEED_OK;
}

void hd_linear_maps_free(const hd_linear *p, hd_linear_maps *maps) {
  hd_release(p->context, maps->memory, maps->memory ? maps->floats : 0, sizeof *maps->memory);
}

/* ---- features --------------------------------------------------------------------------------------------------------------------- */

/* u = W x' in log2 units, then y = 2^(± u − |x'|²/2 − exponent). */
static void project(const hd_linear *p, const hd_linear_maps *maps, const float *x, int64_t count, float *u, float *y, float *exponent) {
  const int64_t width = hd_padded(p->projected), stride = hd_padded(p->features), d = hd_padded(p->d), signs = p->features / p->projected;
  const hd_rows_product product = {.rows = count,
                                   .columns = width,
                                   .inputs = p->d,
                                   .x = x,
                                   .x_row = d,
                                   .x_input = 1,
                                   .w = maps->in,
                                   .w_stride = width,
                                   .y = u,
                                   .y_stride = width};
  p->kernels->multiply_rows(&product);
  for (int64_t i = 0; i < count; i++) {
    float *row = y + i * stride, square;
    const size_t bytes = (size_t)p->projected * sizeof(float);
    p->kernels->compare(x + i * d, x + i * d, 1, d, p->d, &square);
    const float half = (float)(0.5 * p->scale * HD_LOG2E) * square;
    memcpy(row, u + i * width, bytes);
    if (signs == 2) {
      memcpy(row + p->projected, u + i * width, bytes);
      p->kernels->row_scale(row + p->projected, p->projected, -1.0f);
    }
    const float top = p->kernels->row_max(row, p->features) - half;
    exponent[i] = isfinite(top) ? ceilf(top) : 0; // a row that is not finite keeps its NaN
    p->kernels->row_exp2(row, p->features, half + exponent[i]);
    memset(row + p->features, 0, (size_t)(stride - p->features) * sizeof *row);
  }
}

void hd_linear_features(const hd_linear *p, const hd_linear_maps *maps, const float *x, int64_t count, float *scratch, float *y,
                        float *exponent) {
  const int64_t stride = hd_padded(p->features);
  if (hd_linear_projects(p)) {
    project(p, maps, x, count, scratch, y, exponent);
    return;
  }
  // Elementwise features are as wide as the row.
  if (p->a.features == HEED_FEATURES_IDENTITY) {
    if (x != y) memcpy(y, x, (size_t)(count * stride) * sizeof *y);
    return;
  }
  p->kernels->features(p->a.features == HEED_FEATURES_ELU, x, count * stride, y);
  for (int64_t i = 0; i < count && p->features < stride; i++)
    memset(y + i * stride + p->features, 0, (size_t)(stride - p->features) * sizeof *y);
}

/* With g = y ∘ dy, the gradient of the exponents: dx = √scale Wᵀ g − scale x Σ g, the second sign of a row counting against the first. */
static void project_backward(const hd_linear *p, const hd_linear_maps *maps, const float *x, const float *y, float *dy, int64_t count,
                             float *g, float *dx) {
  const int64_t width = hd_padded(p->projected), stride = hd_padded(p->features), d = hd_padded(p->d), signs = p->features / p->projected;
  p->kernels->mul(y, dy, count * stride, false, dy);
  for (int64_t i = 0; i < count; i++) {
    float *row = dy + i * stride, *net = g + i * width;
    const float sum = p->kernels->sum(row, p->features);
    memcpy(net, row, (size_t)p->projected * sizeof *net);
    for (int64_t r = 0; r < p->projected && signs == 2; r++) net[r] -= row[p->projected + r];
    p->kernels->scale(x + i * d, -(float)p->scale * sum, d, false, dx + i * d);
  }
  const hd_rows_product product = {.rows = count,
                                   .columns = d,
                                   .inputs = p->projected,
                                   .x = g,
                                   .x_row = width,
                                   .x_input = 1,
                                   .w = maps->back,
                                   .w_stride = d,
                                   .from = dx,
                                   .y = dx,
                                   .y_stride = d};
  p->kernels->multiply_rows(&product);
}

void hd_linear_features_backward(const hd_linear *p, const hd_linear_maps *maps, const float *x, const float *y, float *dy, int64_t count,
                                 float *scratch, float *dx) {
  const int64_t floats = count * hd_padded(p->features);
  if (hd_linear_projects(p)) project_backward(p, maps, x, y, dy, count, scratch, dx);
  else if (p->a.features == HEED_FEATURES_IDENTITY) memcpy(dx, dy, (size_t)floats * sizeof *dx);
  else p->kernels->features_backward(p->a.features == HEED_FEATURES_ELU, y, dy, floats, dx);
}

/* ---- random rows ------------------------------------------------------------------------------------------------------------------- */

/* Normal number `column` of row `row`, of the directions (which 0) or of the lengths (1). */
static double normal(const heed_linear_draw_options *o, uint32_t which, int64_t row, int64_t column) {
  const uint32_t counter[4] = {(uint32_t)column, (uint32_t)row, (uint32_t)(row >> 32) * 2 + which, o->stream};
  uint32_t words[4];
  hd_philox(counter, o->seed, words);
  return hd_philox_normal(words);
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* Rows [0, count) of a block become orthonormal, one after another; twice, since once leaves what rounding left. */
static void orthonormalise(double *block, int64_t count, int64_t d) {
  for (int64_t r = 0; r < count; r++) {
    double *row = block + r * d;
    for (int64_t i = 0; i < 2 * r; i++) {
      const double *other = block + i % r * d, along = dot(row, other, d);
      for (int64_t c = 0; c < d; c++) row[c] -= along * other[c];
    }
    const double length = sqrt(dot(row, row, d));
    for (int64_t c = 0; c < d; c++) row[c] /= length;
  }
}

static void draw_block(const heed_linear_draw_options *o, int64_t first, int64_t count, int64_t d, double *block) {
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < d; c++) block[r * d + c] = normal(o, 0, first + r, c);
  if (o->independent) return;
  orthonormalise(block, count, d);
  for (int64_t r = 0; r < count; r++) { // as long as an independent row
    double square = 0;
    for (int64_t c = 0; c < d; c++) square += pow(normal(o, 1, first + r, c), 2);
    for (int64_t c = 0; c < d; c++) block[r * d + c] *= sqrt(square);
  }
}

heed_status heed_linear_draw(heed_context *context, const heed_linear_draw_options *options, const heed_view *projection) {
  if (!context) return HEED_E_ARGUMENT;
  heed_linear_draw_options o = {.size = sizeof o};
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_options_read(context, "heed_linear_draw_options", options, &o, sizeof o));
  HD_TRY(hd_view_check(context, projection, "projection"));
  HD_REQUIRE(projection->ndim == 2 && projection->dim[0] > 0 && projection->dim[1] > 0, context, HEED_E_SHAPE,
             "projection: %s, allowed [features, width], both at least 1", hd_shape_text(projection, shape));
  HD_REQUIRE(projection->type == HEED_F32, context, HEED_E_TYPE, "projection is %s, allowed f32", heed_type_name(projection->type));
  HD_REQUIRE(!hd_view_overlaps_itself(projection), context, HEED_E_LAYOUT, "projection: elements of %s share memory",
             hd_shape_text(projection, shape));
  const int64_t rows = projection->dim[0], d = projection->dim[1];
  int64_t room;
  double *block = NULL;
  HD_REQUIRE(hd_mul(HD_MIN(rows, d), d, &room), context, HEED_E_OVERFLOW, "projection: %s is too large", hd_shape_text(projection, shape));
  HD_TRY(hd_allocate(context, "random features", room, sizeof *block, &block));
  for (int64_t first = 0; first < rows; first += d) {
    const int64_t count = HD_MIN(d, rows - first);
    draw_block(&o, first, count, d, block);
    for (int64_t i = 0; i < count * d; i++)
      ((float *)projection->data)[(first + i / d) * projection->stride[0] + i % d * projection->stride[1]] = (float)block[i];
  }
  hd_release(context, block, room, sizeof *block);
  return HEED_OK;
}
