/* arrays.c: arrays from and to files, over heed_array_load and heed_array_save, and from one element type to another. */
#define _GNU_SOURCE
#include "arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int array_load(heed_context *context, const char *path, array *out) {
  *out = (array){0};
  int code = check(context, heed_array_load(context, path, &out->view));
  if (code == EXIT_OK) out->loaded_by = context;
  return code;
}

/* As the library takes memory for its own arrays: on cache lines, and large ones on large pages. */
enum { LINE = 64, HUGE_PAGE = 2 << 20 };

static void *array_memory(const char *what, int64_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow((size_t)count, size, &bytes) || bytes > SIZE_MAX - HUGE_PAGE) return allocate(what, count, size);
  const size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE, whole = bytes ? (bytes + page - 1) / page * page : page;
  void *memory = aligned_alloc(page, whole);
  if (!memory) return allocate(what, count, size); // says so, if there is none
#ifdef MADV_HUGEPAGE
  if (page == HUGE_PAGE) madvise(memory, whole, MADV_HUGEPAGE); // a wish: nothing is lost where it is not granted
#endif
  return memset(memory, 0, whole);
}

int array_new(const char *what, heed_type type, int ndim, const int64_t *dim, array *out) {
  int64_t count = 1;
  char shape[SHAPE_MAX];
  *out = (array){0};
  for (int i = 0; i < ndim; i++)
    if (__builtin_mul_overflow(count, dim[i], &count))
      return error_of(EXIT_NO_MEMORY, "%s: %s is too large", what, shape_text(ndim, dim, shape));
  out->view = heed_view_of(array_memory(what, count, heed_type_bytes(type)), type, ndim, dim);
  return EXIT_OK;
}

/* ---- element types ------------------------------------------------------------------------------------------------------- */

/* A binary format of 16 bits (IEEE 754): f16 has 10 bits of fraction, bf16 has 7. */
typedef struct half_format {
  int fraction_bits, least_exponent;
} half_format;
static const half_format F16 = {10, -14}, BF16 = {7, -126};

static double half_value(uint16_t bits, half_format f) {
  int exponent = (bits & 0x7fff) >> f.fraction_bits, infinite = 0x7fff >> f.fraction_bits, one = 1 << f.fraction_bits;
  int fraction = bits & (one - 1);
  double magnitude = exponent == infinite ? (fraction ? (double)NAN : HUGE_VAL)
                     : exponent == 0      ? ldexp(fraction, f.least_exponent - f.fraction_bits)
                                          : ldexp(one + fraction, f.least_exponent + exponent - 1 - f.fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/* Rounds once, from double precision. The code of a magnitude grows with it, so a carry into the exponent, or to infinity, needs no care. */
static uint16_t half_bits(double x, half_format f) {
  uint16_t sign = signbit(x) ? 0x8000 : 0, infinity = (uint16_t)(0x7fff >> f.fraction_bits << f.fraction_bits);
  if (isnan(x)) return (uint16_t)(sign | infinity | 1 << (f.fraction_bits - 1));
  if (isinf(x)) return sign | infinity;
  int exponent = x == 0 || ilogb(x) < f.least_exponent ? f.least_exponent : ilogb(x);
  double code = nearbyint(ldexp(fabs(x), f.fraction_bits - exponent)) + ldexp(exponent - f.least_exponent, f.fraction_bits);
  return sign | (code < infinity ? (uint16_t)code : infinity);
}

static double element(const heed_view *view, int64_t at) {
  switch (view->type) {
  case HEED_F64: return ((const double *)view->data)[at];
  case HEED_F16: return half_value(((const uint16_t *)view->data)[at], F16);
  case HEED_BF16: return half_value(((const uint16_t *)view->data)[at], BF16);
  default: return ((const float *)view->data)[at];
  }
}

static void set_element(const heed_view *view, int64_t at, double x) {
  switch (view->type) {
  case HEED_F16: ((uint16_t *)view->data)[at] = half_bits(x, F16); break;
  case HEED_BF16: ((uint16_t *)view->data)[at] = half_bits(x, BF16); break;
  default: ((float *)view->data)[at] = (float)x;
  }
}

int array_convert(array *a, heed_type type) {
  const heed_view *from = &a->view;
  bool is_float = from->type == HEED_F64 || from->type == HEED_F32 || from->type == HEED_F16 || from->type == HEED_BF16;
  array converted;
  if (from->type == type || !is_float) return EXIT_OK; // what the library does not take it refuses itself
  int code = array_new("a converted copy", type, from->ndim, from->dim, &converted);
  if (code != EXIT_OK) return code;
  int64_t index[HEED_MAX_DIM] = {0}, count = view_count(from);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = 0;
    for (int axis = 0; axis < from->ndim; axis++) at += index[axis] * from->stride[axis];
    set_element(&converted.view, i, element(from, at));
    for (int axis = from->ndim - 1; axis >= 0 && ++index[axis] == from->dim[axis]; axis--) index[axis] = 0;
  }
  array_free(a);
  *a = converted;
  return EXIT_OK;
}

int array_random(const char *what, heed_type type, int ndim, const int64_t *dim, uint64_t seed, array *out) {
  enum { PERIOD = 65521 }; // the largest prime below 2^16: no row length repeats with it
  int code = array_new(what, type, ndim, dim, out);
  if (code != EXIT_OK) return code;
  int64_t count = view_count(&out->view), bytes = (int64_t)heed_type_bytes(type);
  char *data = out->view.data;
  for (int64_t i = 0; i < count && i < PERIOD; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u; // Knuth, MMIX
    set_element(&out->view, i, (double)(int32_t)(seed >> 32) * 0x1p-31);
  }
  for (int64_t i = PERIOD; i < count; i += PERIOD)
    memcpy(data + i * bytes, data, (size_t)((count - i < PERIOD ? count - i : PERIOD) * bytes));
  return EXIT_OK;
}

/* ---- files and shapes ---------------------------------------------------------------------------------------------------- */

int array_save(heed_context *context, const char *path, const heed_view *view) {
  if (strcmp(path, "-") != 0) return check(context, heed_array_save(context, path, view));
  // The library writes files by name, so the bytes take a detour through a directory of their own.
  char directory[SCRATCH_MAX], name[SCRATCH_MAX + 16];
  int code = scratch_open(directory);
  if (code != EXIT_OK) return code;
  snprintf(name, sizeof name, "%s/array.npy", directory);
  code = check(context, heed_array_save(context, name, view));
  if (code == EXIT_OK) code = out_file(name);
  scratch_close(directory);
  return code;
}

void array_free(array *a) {
  if (a->loaded_by) heed_array_free(a->loaded_by, &a->view);
  else free(a->view.data);
  *a = (array){0};
}

int attention_arrays_new(const attention_shape *shape, bool gradients, uint64_t seed, attention_arrays *out) {
  const heed_type type = shape->type;
  const int64_t queries[4] = {shape->batch, shape->heads, shape->queries, shape->head_dim},
                keys[4] = {shape->batch, shape->kv_heads, shape->keys, shape->head_dim},
                values[4] = {shape->batch, shape->kv_heads, shape->keys, shape->value_dim},
                sums[4] = {shape->batch, shape->heads, shape->queries, shape->value_dim};
  int code;
  TRY(array_random("queries", type, 4, queries, seed, &out->q));
  TRY(array_random("keys", type, 4, keys, seed + 1, &out->k));
  TRY(array_random("values", type, 4, values, seed + 2, &out->v));
  TRY(array_new("out", type, 4, sums, &out->out));
  TRY(array_new("lse", HEED_F32, 3, queries, &out->lse));
  if (!gradients) goto done;
  TRY(array_random("the gradient of out", type, 4, sums, seed + 3, &out->dout));
  TRY(array_new("a gradient", type, 4, queries, &out->dq));
  TRY(array_new("a gradient", type, 4, keys, &out->dk));
  TRY(array_new("a gradient", type, 4, values, &out->dv));
done:
  return code;
}

void attention_arrays_free(attention_arrays *a) {
  array *all[] = {&a->q, &a->k, &a->v, &a->out, &a->lse, &a->dout, &a->dq, &a->dk, &a->dv};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) array_free(all[i]);
}

int64_t view_count(const heed_view *view) {
  int64_t count = 1;
  for (int i = 0; i < view->ndim; i++) count *= view->dim[i];
  return count;
}

const char *shape_text(int ndim, const int64_t *dim, char buffer[SHAPE_MAX]) {
  int used = snprintf(buffer, SHAPE_MAX, "[");
  for (int i = 0; i < ndim; i++) used += snprintf(buffer + used, (size_t)(SHAPE_MAX - used), "%s%lld", i ? "," : "", (long long)dim[i]);
  snprintf(buffer + used, (size_t)(SHAPE_MAX - used), "]");
  return buffer;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void sort_numbers(double *x, int64_t count) { qsort(x, (size_t)count, sizeof *x, ascending); }
