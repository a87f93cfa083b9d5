/* view.c: what can be said of a view without knowing what it is for: its type, extent, overlap, and single elements. */
#include "base.h"

#include <stdio.h>

static const struct {
  const char *name;
  size_t bytes;
} types[] = {
    [HEED_F32] = {"f32", 4}, [HEED_F64] = {"f64", 8}, [HEED_F16] = {"f16", 2}, [HEED_BF16] = {"bf16", 2},
    [HEED_I64] = {"i64", 8}, [HEED_I32] = {"i32", 4}, [HEED_U8] = {"u8", 1},   [HEED_BOOL] = {"bool", 1},
};

static bool type_known(heed_type type) { return type >= 0 && (int64_t)type < HD_COUNT(types); }

const char *heed_type_name(heed_type type) { return type_known(type) ? types[type].name : "unknown type"; }
size_t heed_type_bytes(heed_type type) { return type_known(type) ? types[type].bytes : 0; }

heed_view heed_view_of(void *data, heed_type type, int ndim, const int64_t *dim) {
  heed_view view = {.data = data, .type = type, .ndim = ndim};
  int64_t stride = 1;
  for (int i = HD_MIN(ndim, HEED_MAX_DIM) - 1; i >= 0; i--) {
    view.dim[i] = dim[i];
    view.stride[i] = stride;
    // A product that overflows belongs to a shape that hd_view_check refuses; here it must only not be undefined.
    if (__builtin_mul_overflow(stride, dim[i], &stride)) stride = INT64_MAX;
  }
  return view;
}

heed_view heed_view_swap(heed_view view, int a, int b) {
  if (a < 0 || b < 0 || a >= view.ndim || b >= view.ndim || view.ndim > HEED_MAX_DIM) return view;
  int64_t dim = view.dim[a], stride = view.stride[a];
  view.dim[a] = view.dim[b];
  view.stride[a] = view.stride[b];
  view.dim[b] = dim;
  view.stride[b] = stride;
  return view;
}

const char *hd_shape_text(const heed_view *view, char buffer[HD_SHAPE_LENGTH]) {
  int used = 0;
  used += snprintf(buffer, HD_SHAPE_LENGTH, "[");
  for (int i = 0; i < HD_MIN(view->ndim, HEED_MAX_DIM); i++)
    used += snprintf(buffer + used, HD_SHAPE_LENGTH - (size_t)used, "%s%lld", i ? "," : "", (long long)view->dim[i]);
  snprintf(buffer + used, HD_SHAPE_LENGTH - (size_t)used, "]");
  return buffer;
}

char *hd_view_at(const heed_view *view, int64_t i) {
  int64_t offset = 0;
  for (int axis = view->ndim - 1; axis >= 0; axis--) {
    offset += i % view->dim[axis] * view->stride[axis];
    i /= view->dim[axis];
  }
  return (char *)view->data + offset * (int64_t)heed_type_bytes(view->type);
}

bool hd_view_fold(const heed_view *view, heed_view *out) {
  const int last = view->ndim - 1;
  int64_t rows = 1, step = 0;
  bool even = true;
  for (int axis = last - 1; axis >= 0; axis--) {
    if (view->dim[axis] != 1 && rows == 1) step = view->stride[axis];
    else if (view->dim[axis] != 1) even &= view->stride[axis] == rows * step;
    rows *= view->dim[axis];
  }
  *out =
      (heed_view){.data = view->data, .type = view->type, .ndim = 2, .dim = {rows, view->dim[last]}, .stride = {step, view->stride[last]}};
  return even || hd_view_count(view) == 0;
}

bool hd_same_shape(const heed_view *a, const heed_view *b) {
  bool same = a->ndim == b->ndim;
  for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
  return same;
}

heed_status hd_number(heed_context *context, heed_type type, const char *name) {
  HD_REQUIRE(type == HEED_F32 || type == HEED_F64 || type == HEED_F16 || type == HEED_BF16, context, HEED_E_TYPE,
             "%s is %s, allowed f32, f64, f16 and bf16", name, heed_type_name(type));
  return HEED_OK;
}

int64_t hd_view_count(const heed_view *view) {
  int64_t count = 1;
  for (int i = 0; i < view->ndim; i++) count *= view->dim[i];
  return count;
}

/* Byte offsets, relative to data, of the lowest element and of one past the highest; false where they do not fit in 64 bits. */
static bool extent(const heed_view *view, int64_t *low, int64_t *high) {
  int64_t size = (int64_t)heed_type_bytes(view->type), lo = 0, hi = 0;
  for (int i = 0; i < view->ndim; i++) {
    int64_t reach;
    if (view->dim[i] == 0) return *low = *high = 0, true;
    if (__builtin_mul_overflow(view->dim[i] - 1, view->stride[i], &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) return false;
  }
  if (__builtin_mul_overflow(lo, size, low) || __builtin_add_overflow(hi, 1, &hi) || __builtin_mul_overflow(hi, size, high)) return false;
  return true;
}

heed_status hd_view_check(heed_context *context, const heed_view *view, const char *name) {
  HD_REQUIRE(view, context, HEED_E_ARGUMENT, "%s: the view is null", name);
  HD_REQUIRE(view->ndim >= 1 && view->ndim <= HEED_MAX_DIM, context, HEED_E_SHAPE, "%s: rank %d, allowed 1 to %d", name, view->ndim,
             HEED_MAX_DIM);
  HD_REQUIRE(type_known(view->type), context, HEED_E_TYPE, "%s: unknown element type %d", name, (int)view->type);
  char shape[HD_SHAPE_LENGTH];
  int64_t count = 1, low, high;
  for (int i = 0; i < view->ndim; i++)
    HD_REQUIRE(view->dim[i] >= 0, context, HEED_E_SHAPE, "%s: negative dimension in %s", name, hd_shape_text(view, shape));
  for (int i = 0; i < view->ndim; i++)
    if (view->dim[i] == 0) return HEED_OK;
  for (int i = 0; i < view->ndim; i++)
    HD_REQUIRE(hd_mul(count, view->dim[i], &count), context, HEED_E_OVERFLOW, "%s: the element count of %s overflows", name,
               hd_shape_text(view, shape));
  HD_REQUIRE(extent(view, &low, &high), context, HEED_E_OVERFLOW, "%s: the strides of %s reach beyond 64 bits", name,
             hd_shape_text(view, shape));
  HD_REQUIRE(view->data, context, HEED_E_ARGUMENT, "%s: the data of %s is null", name, hd_shape_text(view, shape));
  // No array reaches round the end of the address space; a later sum of address and offset may rely on it.
  HD_REQUIRE((low >= 0 || (uintptr_t)view->data >= -(uintptr_t)low) && (uintptr_t)high <= UINTPTR_MAX - (uintptr_t)view->data, context,
             HEED_E_OVERFLOW, "%s: the strides of %s reach beyond the address space", name, hd_shape_text(view, shape));
  HD_REQUIRE((uintptr_t)view->data % heed_type_bytes(view->type) == 0, context, HEED_E_LAYOUT,
             "%s: the data is not aligned to its %zu-byte elements", name, heed_type_bytes(view->type));
  return HEED_OK;
}

void hd_view_span(const heed_view *view, uintptr_t *begin, uintptr_t *end) {
  int64_t low = 0, high = 0;
  extent(view, &low, &high);
  *begin = (uintptr_t)view->data + (uintptr_t)low;
  *end = (uintptr_t)view->data + (uintptr_t)high;
}

/* The bytes that the view touches, taken modulo a period: [*begin, *begin + *length) going round. False unless each of its strides is a multiple of the period or stays within one. */
static bool within_period(const heed_view *view, uint64_t period, uint64_t *begin, uint64_t *length) {
  uint64_t size = heed_type_bytes(view->type), low = 0, high = 0;
  for (int i = 0; i < view->ndim; i++) {
    if (view->dim[i] == 1) continue;
    uint64_t stride = (view->stride[i] < 0 ? -(uint64_t)view->stride[i] : (uint64_t)view->stride[i]) * size, reach;
    if (stride % period == 0) continue;
    if (__builtin_mul_overflow((uint64_t)view->dim[i] - 1, stride, &reach) || reach >= period) return false;
    *(view->stride[i] < 0 ? &low : &high) += reach;
  }
  *begin = ((uintptr_t)view->data - low) % period;
  *length = low + high + size;
  return *length <= period;
}

/* Whether the views share rows but no columns, as those of packed queries, keys and values do: modulo the distance of the rows each has a place of its own. */
static bool interleave(const heed_view *a, const heed_view *b) {
  for (int i = 0; i < a->ndim; i++) {
    uint64_t period = (a->stride[i] < 0 ? -(uint64_t)a->stride[i] : (uint64_t)a->stride[i]) * heed_type_bytes(a->type);
    uint64_t a_begin, a_length, b_begin, b_length;
    if (a->dim[i] == 1 || period == 0 || !within_period(a, period, &a_begin, &a_length) || !within_period(b, period, &b_begin, &b_length))
      continue;
    uint64_t apart = (b_begin + period - a_begin) % period; // from where a begins to where b does
    if (apart >= a_length && period - apart >= b_length) return true;
  }
  return false;
}

bool hd_views_overlap(const heed_view *a, const heed_view *b) {
  uintptr_t a_begin, a_end, b_begin, b_end;
  hd_view_span(a, &a_begin, &a_end);
  hd_view_span(b, &b_begin, &b_end);
  if (a_begin == a_end || b_begin == b_end) return false; // an empty array may point into another
  return a_begin < b_end && b_begin < a_end && !interleave(a, b);
}

bool hd_views_same(const heed_view *a, const heed_view *b) {
  if (a->data != b->data || a->type != b->type || a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->dim[i] != b->dim[i] || (a->stride[i] != b->stride[i] && a->dim[i] > 1)) return false;
  return true;
}

/* Axes in the order of their strides: each step must clear all that the axes below it span. */
bool hd_view_overlaps_itself(const heed_view *view) {
  uint64_t stride[HEED_MAX_DIM], steps[HEED_MAX_DIM], span = 1;
  int axes = 0;
  for (int i = 0; i < view->ndim; i++) {
    if (view->dim[i] == 0) return false;
    if (view->dim[i] == 1) continue;
    uint64_t size = view->stride[i] < 0 ? -(uint64_t)view->stride[i] : (uint64_t)view->stride[i];
    int at = axes++;
    for (; at > 0 && stride[at - 1] > size; at--) stride[at] = stride[at - 1], steps[at] = steps[at - 1];
    stride[at] = size;
    steps[at] = (uint64_t)view->dim[i] - 1;
  }
  for (int i = 0; i < axes; i++) {
    if (stride[i] < span) return true;
    span += steps[i] * stride[i];
  }
  return false;
}

double hd_element(const void *address, heed_type type) {
  switch (type) {
  case HEED_F32: return *(const float *)address;
  case HEED_F64: return *(const double *)address;
  case HEED_F16: return hd_f16_to_f32(*(const uint16_t *)address);
  case HEED_BF16: return hd_bf16_to_f32(*(const uint16_t *)address);
  case HEED_I64: return (double)*(const int64_t *)address;
  case HEED_I32: return *(const int32_t *)address;
  case HEED_U8:
  case HEED_BOOL: return *(const uint8_t *)address;
  }
  return 0;
}

void hd_element_store(void *address, heed_type type, double value) {
  switch (type) {
  case HEED_F32: *(float *)address = (float)value; break;
  case HEED_F64: *(double *)address = value; break;
  case HEED_F16: *(uint16_t *)address = hd_f32_to_f16((float)value); break;
  case HEED_BF16: *(uint16_t *)address = hd_f32_to_bf16((float)value); break;
  case HEED_I64: *(int64_t *)address = (int64_t)value; break;
  case HEED_I32: *(int32_t *)address = (int32_t)value; break;
  case HEED_U8: *(uint8_t *)address = (uint8_t)value; break;
  case HEED_BOOL: *(uint8_t *)address = value != 0; break;
  }
}

float hd_f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023, bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0); // a signalling NaN becomes quiet, as in hardware
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    float value = (float)mantissa * 0x1p-24f; // subnormal: exact
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
  }
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

uint16_t hd_f32_to_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  if (bits >= 0x47800000) return sign | 0x7c00; // 65536 and more, infinity
  if (bits < 0x38800000) {                      // below the smallest normal half: adding 0.5 leaves the rounded subnormal in the low bits
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    uint32_t shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    return (uint16_t)(sign | (shifted - 0x3f000000));
  }
  bits += 0xfff + (bits >> 13 & 1); // round to nearest even; a carry moves into the exponent as it should
  return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

uint16_t hd_f32_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
