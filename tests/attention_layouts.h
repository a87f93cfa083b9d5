/* attention_layouts.h: the same numbers laid out otherwise: axes reversed, or in another order with gaps and negative strides between elements. */
#ifndef HEED_ATTENTION_LAYOUTS_H
#define HEED_ATTENTION_LAYOUTS_H

#include "attention_sample.h"

enum { LAYOUT_GAP = 0x5a }; /* the byte between the elements of an output */

/* The view with one axis counted from its other end. */
static inline heed_view view_reversed(heed_view view, int axis) {
  if (!view.data || view.dim[axis] == 0) return view;
  view.data = (char *)view.data + (view.dim[axis] - 1) * view.stride[axis] * (int64_t)heed_type_bytes(view.type);
  view.stride[axis] = -view.stride[axis];
  return view;
}

/* The address of element number `at`, counted row by row. */
static inline char *view_element(const heed_view *view, int64_t at) {
  int64_t offset = 0;
  for (int i = view->ndim - 1; i >= 0; at /= view->dim[i--]) offset += at % view->dim[i] * view->stride[i];
  return (char *)view->data + offset * (int64_t)heed_type_bytes(view->type);
}

typedef struct layout {
  char *memory;
  size_t bytes;
} layout;

/* Moves the view's numbers into new memory with its axes in random order, up to two elements between neighbours and random signs. */
static inline layout layout_make(heed_view *view, random_source *r) {
  heed_view moved = *view;
  int order[HEED_MAX_DIM];
  int64_t stride = 1 + below(r, 3), low = 0, count = hd_view_count(view), size = (int64_t)heed_type_bytes(view->type);
  for (int i = 0; i < view->ndim; i++) {
    int at = (int)below(r, i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  for (int i = 0; i < view->ndim; i++) {
    int axis = order[i];
    moved.stride[axis] = below(r, 2) ? stride : -stride;
    if (moved.stride[axis] < 0 && view->dim[axis] > 0) low += (view->dim[axis] - 1) * stride;
    stride = stride * (view->dim[axis] > 0 ? view->dim[axis] : 1) + below(r, 3);
  }
  layout made = {.bytes = (size_t)((stride + 1) * size)};
  made.memory = malloc(made.bytes);
  assert_non_null(made.memory);
  memset(made.memory, LAYOUT_GAP, made.bytes);
  moved.data = made.memory + low * size;
  for (int64_t i = 0; i < count; i++) memcpy(view_element(&moved, i), view_element(view, i), (size_t)size);
  *view = moved;
  return made;
}

/* The layout holds the bytes of packed, and gaps elsewhere; frees it. */
static inline void layout_expect(layout *made, const heed_view *view, const void *packed, const char *what, uint64_t seed) {
  int64_t count = hd_view_count(view), size = (int64_t)heed_type_bytes(view->type);
  for (int64_t i = 0; i < count; i++) {
    assert_same_bytes(view_element(view, i), (const char *)packed + i * size, size, what, seed);
    memset(view_element(view, i), LAYOUT_GAP, (size_t)size);
  }
  for (size_t i = 0; i < made->bytes; i++)
    if (made->memory[i] != LAYOUT_GAP) fail_msg("%s: a gap was written (seed %llu)", what, (unsigned long long)seed);
  free(made->memory);
}

#endif
