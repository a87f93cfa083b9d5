/* inspect.c: what is in a file, item by item: metadata first, then tensors, with nothing but headers read. */
#include "npy.h"

#include <stdio.h>

/* The callback and what one item's value is written into. */
typedef struct listing {
  heed_file_item_fn each;
  void *user;
  char text[512];
} listing;

enum { SHOWN_ELEMENTS = 6, SHOWN_TEXT = 40 };

/* ---- metadata -------------------------------------------------------------------------------------------------------------- */

/* The shortest decimal that gives the same float again. */
static int put_float(float value, char *out, size_t room) {
  int used = 0;
  for (int digits = 6; digits <= 9; digits++) {
    used = snprintf(out, room, "%.*g", digits, value);
    if (strtof(out, NULL) == value) break;
  }
  return used;
}

/* One element of a metadatum; returns the characters used. */
static size_t put_element(const hd_meta *meta, int64_t i, char *out, size_t room) {
  char quoted[HD_QUOTE_LENGTH];
  int used = 0;
  heed_text text;
  switch (meta->element) {
  case HD_META_TEXT:
    text = hd_meta_text_at(meta, i);
    used = snprintf(out, room, "\"%s%s\"", hd_quote((heed_text){text.data, HD_MIN(text.length, SHOWN_TEXT)}, quoted),
                    text.length > SHOWN_TEXT ? "..." : "");
    break;
  case HD_META_BOOL: used = snprintf(out, room, "%s", hd_meta_bool_at(meta, i) ? "true" : "false"); break;
  case HD_META_F32: used = put_float((float)hd_meta_number_at(meta, i), out, room); break;
  case HD_META_F64: used = snprintf(out, room, "%.17g", hd_meta_number_at(meta, i)); break;
  case HD_META_ARRAY: used = snprintf(out, room, "array"); break;
  default: used = snprintf(out, room, "%lld", (long long)hd_meta_integer_at(meta, i));
  }
  return HD_MIN((size_t)HD_MAX(used, 0), room - 1);
}

/* "[a, b, c, ... 49152 in all]". */
static heed_text array_text(listing *l, const hd_meta *meta) {
  const int64_t shown = meta->element == HD_META_ARRAY ? 0 : HD_MIN(meta->count, SHOWN_ELEMENTS);
  size_t used = (size_t)snprintf(l->text, sizeof l->text, "[");
  int64_t i = 0;
  // Each element leaves room for the end.
  for (; i < shown && used + 64 <= sizeof l->text; i++) {
    if (i) used += (size_t)snprintf(l->text + used, sizeof l->text - used, ", ");
    used += put_element(meta, i, l->text + used, sizeof l->text - used - 40);
  }
  if (i < meta->count) snprintf(l->text + used, sizeof l->text - used, "%s... %lld in all]", i ? ", " : "", (long long)meta->count);
  else snprintf(l->text + used, sizeof l->text - used, "]");
  return hd_text_of(l->text);
}

static bool list_meta(listing *l, const hd_tensors *tensors) {
  for (int64_t i = 0; i < hd_meta_count(tensors); i++) {
    const hd_meta *meta = hd_meta_at(tensors, i);
    heed_file_item item = {.name = hd_text_of(meta->key), .type = hd_meta_type_name(meta->type)};
    if (meta->type == HD_META_ARRAY) item.value = array_text(l, meta);
    else if (meta->type == HD_META_TEXT) item.value = hd_meta_text_at(meta, 0);
    else item.value = (heed_text){l->text, put_element(meta, 0, l->text, sizeof l->text)};
    if (!l->each(l->user, &item)) return false;
  }
  return true;
}

/* The top of a configuration; what is inside it stands as compact JSON. */
static heed_status list_config(heed_context *context, listing *l, const json_t *config, bool *more) {
  static const char *const kinds[] = {"object", "array", "text", "integer", "number", "bool", "bool", "null"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)config, key, value) {
    heed_file_item item = {.name = hd_text_of(key), .type = kinds[json_typeof(value)]};
    char *dump = NULL;
    size_t length = 0;
    if (json_is_string(value)) {
      item.value = (heed_text){json_string_value(value), json_string_length(value)};
    } else {
      const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
      length = json_dumpb(value, NULL, 0, flags);
      HD_TRY(hd_allocate(context, "a configuration as text", (int64_t)length, 1, &dump));
      item.value = (heed_text){dump, json_dumpb(value, dump, length, flags)};
    }
    *more = l->each(l->user, &item);
    hd_release(context, dump, (int64_t)length, 1);
    if (!*more) break;
  }
  return HEED_OK;
}

/* ---- arrays ---------------------------------------------------------------------------------------------------------------- */

static heed_file_item array_item(const char *name, const char *type, int ndim, const int64_t *dim, int64_t bytes) {
  heed_file_item item = {.is_tensor = true, .name = hd_text_of(name), .value = hd_text_of(""), .type = type, .ndim = ndim, .bytes = bytes};
  memcpy(item.dim, dim, (size_t)ndim * sizeof *dim);
  return item;
}

static void list_tensors(listing *l, const hd_tensors *tensors) {
  for (int64_t i = 0; i < hd_tensors_count(tensors); i++) {
    const hd_tensor *tensor = hd_tensors_at(tensors, i);
    heed_file_item item = array_item(tensor->name, tensor->type, tensor->ndim, tensor->dim, tensor->bytes);
    if (!l->each(l->user, &item)) return;
  }
}

static heed_status inspect_model(heed_context *context, const char *path, const char **format, listing *l) {
  hd_tensors *tensors;
  bool more = true;
  heed_status status = HEED_OK;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  *format = hd_tensors_format(tensors);
  if (hd_tensors_config(tensors)) status = list_config(context, l, hd_tensors_config(tensors), &more);
  if (status == HEED_OK && more && list_meta(l, tensors)) list_tensors(l, tensors);
  hd_tensors_close(tensors);
  return status;
}

static bool list_head(listing *l, const char *name, const hd_npy_head *head) {
  heed_file_item item = array_item(name, head->plain->name, head->ndim, head->dim, head->count * head->plain->bytes);
  return l->each(l->user, &item);
}

static heed_status inspect_npy(heed_context *context, const char *path, const char **format, listing *l) {
  hd_npy_file file;
  hd_npy_head head;
  HD_TRY(hd_npy_open(context, path, &file));
  *format = "npy";
  heed_status status = hd_npy_read_head(&file.stream, &head);
  if (status == HEED_OK) list_head(l, "", &head);
  hd_file_close(&file.file);
  return status;
}

static heed_status inspect_npz(heed_context *context, const char *path, const char **format, listing *l) {
  hd_npz *npz;
  hd_npy_head head;
  heed_status status = HEED_OK;
  HD_TRY(hd_npz_open(context, path, &npz));
  *format = "npz";
  for (int64_t i = 0; i < hd_npz_count(npz); i++) {
    HD_TRY_DONE(hd_npz_read_head(npz, i, &head));
    if (!list_head(l, hd_npz_name(npz, i), &head)) break;
  }
done:
  hd_npz_close(npz);
  return status;
}

heed_status heed_file_inspect(heed_context *context, const char *path, const char **format, heed_file_item_fn each, void *user) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(path && format && each, context, HEED_E_ARGUMENT, "heed_file_inspect: path, format or callback is null");
  listing l = {.each = each, .user = user};
  *format = "unknown";
  if (hd_is_directory(path)) return inspect_model(context, path, format, &l);
  if (hd_ends_with(path, ".npy")) return inspect_npy(context, path, format, &l);
  if (hd_ends_with(path, ".npz")) return inspect_npz(context, path, format, &l);
  return inspect_model(context, path, format, &l);
}
