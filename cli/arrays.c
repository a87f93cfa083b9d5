/* arrays.c: arrays from and to files, over heed_array_load and heed_array_save. */
#define _GNU_SOURCE
#include "arrays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int array_load(heed_context *context, const char *path, array *out) {
  *out = (array){0};
  int code = check(context, heed_array_load(context, path, &out->view));
  if (code == EXIT_OK) out->loaded_by = context;
  return code;
}

int array_new(const char *what, heed_type type, int ndim, const int64_t *dim, array *out) {
  int64_t count = 1;
  char shape[SHAPE_MAX];
  *out = (array){0};
  for (int i = 0; i < ndim; i++)
    if (__builtin_mul_overflow(count, dim[i], &count))
      return error_of(EXIT_NO_MEMORY, "%s: %s is too large", what, shape_text(ndim, dim, shape));
  out->view = heed_view_of(allocate(what, count, heed_type_bytes(type)), type, ndim, dim);
  return EXIT_OK;
}

/* The element at one index tuple, in the array's own strides. */
static double element_f64(const heed_view *view, const int64_t *index) {
  int64_t at = 0;
  for (int i = 0; i < view->ndim; i++) at += index[i] * view->stride[i];
  return ((const double *)view->data)[at];
}

int array_narrow(array *a) {
  array narrow;
  if (a->view.type != HEED_F64) return EXIT_OK;
  int code = array_new("an f32 copy", HEED_F32, a->view.ndim, a->view.dim, &narrow);
  if (code != EXIT_OK) return code;
  int64_t index[HEED_MAX_DIM] = {0}, count = view_count(&a->view);
  for (int64_t i = 0; i < count; i++) {
    ((float *)narrow.view.data)[i] = (float)element_f64(&a->view, index);
    for (int axis = a->view.ndim - 1; axis >= 0 && ++index[axis] == a->view.dim[axis]; axis--) index[axis] = 0;
  }
  array_free(a);
  *a = narrow;
  return EXIT_OK;
}

int array_save(heed_context *context, const char *path, const heed_view *view) {
  if (strcmp(path, "-") != 0) return check(context, heed_array_save(context, path, view));
  // The library writes files by name, so the bytes take a detour through a directory of their own.
  const char *base = getenv("TMPDIR");
  char directory[512], name[600];
  snprintf(directory, sizeof directory, "%s/heed-XXXXXX", base && base[0] ? base : "/tmp");
  if (!mkdtemp(directory)) return error_of(EXIT_FAILED, "%s: %s", directory, strerror(errno));
  snprintf(name, sizeof name, "%s/array.npy", directory);
  int code = check(context, heed_array_save(context, name, view));
  if (code == EXIT_OK) code = out_file(name);
  unlink(name);
  rmdir(directory);
  return code;
}

void array_free(array *a) {
  if (a->loaded_by) heed_array_free(a->loaded_by, &a->view);
  else free(a->view.data);
  *a = (array){0};
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
