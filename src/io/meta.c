/* meta.c: typed access to metadata: kinds and ranges are checked here, once, with a sentence that names file and key. */
#include "reader.h"

#include <math.h>
#include <stdio.h>

static const char *const type_names[HD_META_TYPES] = {
    [HD_META_U8] = "u8",   [HD_META_I8] = "i8",       [HD_META_U16] = "u16",   [HD_META_I16] = "i16", [HD_META_U32] = "u32",
    [HD_META_I32] = "i32", [HD_META_F32] = "f32",     [HD_META_BOOL] = "bool", [HD_META_U64] = "u64", [HD_META_TEXT] = "text",
    [HD_META_I64] = "i64", [HD_META_ARRAY] = "array", [HD_META_F64] = "f64",
};

const char *hd_meta_type_name(hd_meta_type type) { return type_names[type]; }

/* ---- elements -------------------------------------------------------------------------------------------------------------- */

/* Declares a reader of one type's element, which need not be aligned. */
#define ELEMENT(name, ctype)                                                                                                               \
  static ctype name(const hd_meta *meta, int64_t i) {                                                                                      \
    ctype value;                                                                                                                           \
    memcpy(&value, meta->data + i * (int64_t)sizeof value, sizeof value);                                                                  \
    return value;                                                                                                                          \
  }
ELEMENT(u8_at, uint8_t)
ELEMENT(i8_at, int8_t)
ELEMENT(u16_at, uint16_t)
ELEMENT(i16_at, int16_t)
ELEMENT(u32_at, uint32_t)
ELEMENT(i32_at, int32_t)
ELEMENT(u64_at, uint64_t)
ELEMENT(i64_at, int64_t)
ELEMENT(f32_at, float)
ELEMENT(f64_at, double)

static bool is_integer(hd_meta_type type) {
  return type != HD_META_F32 && type != HD_META_F64 && type != HD_META_BOOL && type != HD_META_TEXT && type != HD_META_ARRAY;
}

int64_t hd_meta_integer_at(const hd_meta *meta, int64_t i) {
  switch (meta->element) {
  case HD_META_U8: return u8_at(meta, i);
  case HD_META_I8: return i8_at(meta, i);
  case HD_META_U16: return u16_at(meta, i);
  case HD_META_I16: return i16_at(meta, i);
  case HD_META_U32: return u32_at(meta, i);
  case HD_META_I32: return i32_at(meta, i);
  case HD_META_I64: return i64_at(meta, i);
  case HD_META_U64: return (int64_t)HD_MIN(u64_at(meta, i), (uint64_t)INT64_MAX);
  default: return 0;
  }
}

double hd_meta_number_at(const hd_meta *meta, int64_t i) {
  if (meta->element == HD_META_F32) return f32_at(meta, i);
  if (meta->element == HD_META_F64) return f64_at(meta, i);
  if (meta->element == HD_META_U64) return (double)u64_at(meta, i);
  return (double)hd_meta_integer_at(meta, i);
}

bool hd_meta_bool_at(const hd_meta *meta, int64_t i) { return meta->element == HD_META_BOOL && meta->data[i]; }

heed_text hd_meta_text_at(const hd_meta *meta, int64_t i) {
  if (meta->element != HD_META_TEXT) return (heed_text){"", 0};
  const unsigned char *at = meta->data + (meta->index ? meta->index[i] : 0);
  uint64_t length;
  memcpy(&length, at, sizeof length);
  return (heed_text){(const char *)at + sizeof length, (size_t)length};
}

/* ---- getters --------------------------------------------------------------------------------------------------------------- */

static heed_status wrong(heed_context *context, const hd_tensors *tensors, const char *key, const char *got, const char *allowed) {
  return hd_fail(context, HEED_E_FORMAT, "%s: metadata %s (got %s, allowed %s)", tensors->path, key, got, allowed);
}

/* The type of what is there, for messages. */
static const char *kind_of(const hd_meta *meta, char buffer[32]) {
  if (!meta) return "nothing";
  snprintf(buffer, 32, meta->type == HD_META_ARRAY ? "an array of %s" : "a %s", type_names[meta->element]);
  return buffer;
}

heed_status hd_meta_integer(heed_context *context, const hd_tensors *tensors, const char *key, int64_t min, int64_t max, int64_t *out) {
  const hd_meta *meta = hd_meta_find(tensors, key);
  char kind[32], got[32], allowed[96];
  snprintf(allowed, sizeof allowed, "an integer from %lld to %lld", (long long)min, (long long)max);
  if (!meta || !is_integer(meta->type)) return wrong(context, tensors, key, kind_of(meta, kind), allowed);
  int64_t value = hd_meta_integer_at(meta, 0);
  snprintf(got, sizeof got, "%lld", (long long)value);
  if (value < min || value > max || (meta->type == HD_META_U64 && u64_at(meta, 0) > INT64_MAX))
    return wrong(context, tensors, key, got, allowed);
  *out = value;
  return HEED_OK;
}

heed_status hd_meta_number(heed_context *context, const hd_tensors *tensors, const char *key, double min, double max, double *out) {
  const hd_meta *meta = hd_meta_find(tensors, key);
  char kind[32], got[32], allowed[96];
  snprintf(allowed, sizeof allowed, "a number from %g to %g", min, max);
  if (!meta || meta->type == HD_META_BOOL || meta->type == HD_META_TEXT || meta->type == HD_META_ARRAY)
    return wrong(context, tensors, key, kind_of(meta, kind), allowed);
  double value = hd_meta_number_at(meta, 0);
  snprintf(got, sizeof got, "%g", value);
  if (!isfinite(value) || value < min || value > max) return wrong(context, tensors, key, got, allowed);
  *out = value;
  return HEED_OK;
}

heed_status hd_meta_bool(heed_context *context, const hd_tensors *tensors, const char *key, bool *out) {
  const hd_meta *meta = hd_meta_find(tensors, key);
  char kind[32];
  if (!meta || meta->type != HD_META_BOOL) return wrong(context, tensors, key, kind_of(meta, kind), "a bool");
  *out = hd_meta_bool_at(meta, 0);
  return HEED_OK;
}

heed_status hd_meta_text(heed_context *context, const hd_tensors *tensors, const char *key, heed_text *out) {
  const hd_meta *meta = hd_meta_find(tensors, key);
  char kind[32];
  if (!meta || meta->type != HD_META_TEXT) return wrong(context, tensors, key, kind_of(meta, kind), "a text");
  *out = hd_meta_text_at(meta, 0);
  return HEED_OK;
}

heed_status hd_meta_array(heed_context *context, const hd_tensors *tensors, const char *key, hd_meta_type kind, const hd_meta **out) {
  const hd_meta *meta = hd_meta_find(tensors, key);
  char got[32], allowed[64];
  bool fits = meta && meta->type == HD_META_ARRAY &&
              (kind == HD_META_I64   ? is_integer(meta->element)
               : kind == HD_META_F64 ? meta->element == HD_META_F32 || meta->element == HD_META_F64
                                     : meta->element == kind);
  if (!fits) {
    const char *elements = kind == HD_META_I64 ? "integers" : kind == HD_META_F64 ? "floats" : kind == HD_META_TEXT ? "texts" : "bools";
    snprintf(allowed, sizeof allowed, "an array of %s", elements);
    return wrong(context, tensors, key, kind_of(meta, got), allowed);
  }
  *out = meta;
  return HEED_OK;
}

heed_status hd_meta_integer_or(heed_context *context, const hd_tensors *tensors, const char *key, int64_t fallback, int64_t min,
                               int64_t max, int64_t *out) {
  if (hd_meta_find(tensors, key)) return hd_meta_integer(context, tensors, key, min, max, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_meta_number_or(heed_context *context, const hd_tensors *tensors, const char *key, double fallback, double min, double max,
                              double *out) {
  if (hd_meta_find(tensors, key)) return hd_meta_number(context, tensors, key, min, max, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_meta_bool_or(heed_context *context, const hd_tensors *tensors, const char *key, bool fallback, bool *out) {
  if (hd_meta_find(tensors, key)) return hd_meta_bool(context, tensors, key, out);
  *out = fallback;
  return HEED_OK;
}

heed_status hd_meta_text_or(heed_context *context, const hd_tensors *tensors, const char *key, const char *fallback, heed_text *out) {
  if (hd_meta_find(tensors, key)) return hd_meta_text(context, tensors, key, out);
  *out = (heed_text){fallback ? fallback : "", fallback ? strlen(fallback) : 0};
  return HEED_OK;
}
