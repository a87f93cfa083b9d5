/* onnx.h: ONNX's node tests (tests/data/onnx): cases with their attributes, tensors as views, results compared. A test maps attributes and inputs to a call of
 * the library; nothing is computed here. */
#ifndef HEED_ONNX_H
#define HEED_ONNX_H

#include "test.h"

#include <math.h>
#include <stdio.h>

#include "../src/io/json.h"
#include "../src/io/tensors.h"

typedef struct onnx_case {
  heed_context *context;
  const hd_tensors *file;
  const char *name;
  int64_t opset;
  hd_json_place attributes;
  bool passed;
} onnx_case;

/* An array with memory of its own; data NULL where the case does not have it. */
typedef heed_view onnx_array;

static inline onnx_array onnx_new(heed_type type, int ndim, const int64_t *dim) {
  heed_view view = heed_view_of(NULL, type, ndim, dim);
  view.data = calloc((size_t)hd_view_count(&view) + 1, heed_type_bytes(type));
  assert_non_null(view.data);
  return view;
}

static inline onnx_array onnx_load(const onnx_case *c, const char *parameter) {
  static const struct {
    const char *name;
    heed_type type;
  } types[] = {{"F32", HEED_F32}, {"F16", HEED_F16}, {"BOOL", HEED_BOOL}, {"I64", HEED_I64}, {"F64", HEED_F64}};
  char name[256];
  snprintf(name, sizeof name, "%s/%s", c->name, parameter);
  const hd_tensor *tensor = hd_tensors_find(c->file, name);
  if (!tensor) return (onnx_array){0};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, tensor->type) == 0) {
      onnx_array array = onnx_new(types[i].type, tensor->ndim, tensor->dim);
      ok(c->context, hd_tensors_read(c->context, c->file, tensor, array.data));
      return array;
    }
  fail_msg("%s: type %s", name, tensor->type);
  return (onnx_array){0};
}

static inline int64_t onnx_integer(const onnx_case *c, const char *name, int64_t fallback) {
  int64_t value;
  ok(c->context, hd_json_integer_or(&c->attributes, name, fallback, INT64_MIN, INT64_MAX, &value));
  return value;
}

static inline double onnx_number(const onnx_case *c, const char *name, double fallback) {
  double value;
  ok(c->context, hd_json_number_or(&c->attributes, name, fallback, -HUGE_VAL, HUGE_VAL, &value));
  return value;
}

/* [B,n,heads·d] as [B,heads,n,d], the same memory; four dimensions stay as they are. */
static inline heed_view onnx_split_heads(heed_view view, int64_t heads) {
  if (view.ndim != 3) return view;
  return heed_view_swap(heed_view_of(view.data, view.type, 4, (int64_t[]){view.dim[0], view.dim[1], heads, view.dim[2] / heads}), 1, 2);
}

/* Where a half stands among all halves in order, so that neighbours differ by 1 (and both zeros are 0). */
static inline int onnx_half_rank(uint16_t half) { return half & 0x8000 ? -(half & 0x7fff) : half; }

static inline bool onnx_same(const heed_view *got, const heed_view *want, int64_t i) {
  if (want->type == HEED_F16) {
    uint16_t a = ((const uint16_t *)got->data)[i], b = ((const uint16_t *)want->data)[i];
    return abs(onnx_half_rank(a) - onnx_half_rank(b)) <= 1;
  }
  const double a = hd_element((const char *)got->data + i * (int64_t)heed_type_bytes(got->type), got->type),
               b = hd_element((const char *)want->data + i * (int64_t)heed_type_bytes(want->type), want->type);
  return isinf(b) ? a == b : fabs(a - b) <= 1e-6 * fmax(1, fabs(b)); // a NaN on either side is not the same
}

/* Within 1e-6 in f32 and f64 (of the number, where that is above 1), within one unit in the last place in f16; says where not. */
static inline void onnx_compare(onnx_case *c, const char *what, const heed_view *got, const heed_view *want) {
  assert_int_equal(got->type, want->type);
  assert_int_equal(hd_view_count(got), hd_view_count(want));
  int64_t size = (int64_t)heed_type_bytes(want->type);
  for (int64_t i = 0; i < hd_view_count(want); i++)
    if (!onnx_same(got, want, i)) {
      print_error("%s: %s[%lld] is %.9g, expected %.9g\n", c->name, what, (long long)i,
                  hd_element((const char *)got->data + i * size, got->type), hd_element((const char *)want->data + i * size, want->type));
      c->passed = false;
      return;
    }
}

/* Runs every case of one operator and expects `count` of them to pass. */
static inline void onnx_each(heed_context *context, const char *op, int count, void (*run)(onnx_case *c)) {
  const char *path = HEED_TEST_DATA "/onnx/cases.json", *name;
  json_t *cases, *value;
  hd_tensors *file;
  int passed = 0, seen = 0;
  ok(context, hd_json_load(context, path, (hd_json_rules){.limit = HD_JSON_CONFIG_BYTES}, &cases));
  ok(context, hd_tensors_open(context, HEED_TEST_DATA "/onnx/cases.safetensors", &file));
  json_object_foreach(cases, name, value) {
    const hd_json_place place = {context, path, name, value};
    onnx_case c = {.context = context, .file = file, .name = name, .passed = true};
    heed_text kind;
    ok(context, hd_json_text(&place, "op", &kind));
    if (!hd_text_is(kind, op)) continue;
    ok(context, hd_json_integer(&place, "opset", 1, 100, &c.opset));
    ok(context, hd_json_object(&place, "attributes", &c.attributes));
    run(&c);
    passed += c.passed;
    seen++;
  }
  hd_tensors_close(file);
  json_decref(cases);
  print_message("%s: %d of %d cases pass\n", op, passed, seen);
  assert_int_equal(seen, count);
  assert_int_equal(passed, count);
}

#endif
