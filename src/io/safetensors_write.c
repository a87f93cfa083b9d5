/* safetensors_write.c: the header first, which says where everything will lie, then the arrays one after the other. */
#include "arrays.h"
#include "reader.h"

enum { LENGTH_BYTES = 8, MAX_NAME_BYTES = 1024, WRITE_BYTES = 1 << 16 };
#define HEADER_LIMIT INT64_C(100000000) /* as in safetensors.c */

/* safetensors' word for a type that memory and file have alike. */
static const char *type_name(heed_type type) {
  static const char *const names[] = {[HEED_F32] = "F32", [HEED_F64] = "F64", [HEED_F16] = "F16", [HEED_BF16] = "BF16",
                                      [HEED_I64] = "I64", [HEED_I32] = "I32", [HEED_U8] = "U8",   [HEED_BOOL] = "BOOL"};
  return names[type];
}

static bool is_packed(const heed_view *view) {
  const heed_view packed = heed_view_of(view->data, view->type, view->ndim, view->dim);
  return hd_views_same(view, &packed);
}

/* ---- the header ------------------------------------------------------------------------------------------------------------ */

static heed_status check_name(heed_context *context, const char *path, const json_t *header, const char *name) {
  char quoted[HD_QUOTE_LENGTH];
  const bool fits = name && strlen(name) <= MAX_NAME_BYTES && hd_is_printable(hd_text_of(name)) && strcmp(name, "__metadata__") != 0;
  HD_REQUIRE(fits, context, HEED_E_ARGUMENT, "%s: no name for a tensor (got \"%s\", allowed up to %d bytes of printable UTF-8)", path,
             hd_quote(hd_text_of(name ? name : ""), quoted), MAX_NAME_BYTES);
  HD_REQUIRE(!json_object_get(header, name), context, HEED_E_ARGUMENT, "%s: two tensors of one name (got \"%s\")", path,
             hd_quote(hd_text_of(name), quoted));
  return HEED_OK;
}

static json_t *describe(const heed_view *view, int64_t begin, int64_t end) {
  json_t *shape = json_array();
  for (int axis = 0; axis < view->ndim; axis++)
    if (json_array_append_new(shape, json_integer(view->dim[axis])) != 0) {
      json_decref(shape);
      return NULL;
    }
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(view->type), "shape", shape, "data_offsets", (json_int_t)begin,
                   (json_int_t)end);
}

static heed_status list_arrays(heed_context *context, const char *path, const hd_arrays *arrays, json_t *header, int64_t *data_bytes) {
  *data_bytes = 0;
  if (arrays->metadata && json_object_set(header, "__metadata__", (json_t *)arrays->metadata) != 0)
    return hd_fail(context, HEED_E_MEMORY, "out of memory: a list of tensors");
  for (int64_t i = 0; i < arrays->count; i++) {
    const hd_array *array = &arrays->array[i];
    int64_t bytes, end;
    HD_TRY(check_name(context, path, header, array->name));
    HD_TRY(hd_view_check(context, &array->view, array->name));
    HD_REQUIRE(hd_mul(hd_view_count(&array->view), (int64_t)heed_type_bytes(array->view.type), &bytes) && hd_add(*data_bytes, bytes, &end),
               context, HEED_E_OVERFLOW, "%s: the tensors have more than 2^63 bytes", path);
    if (json_object_set_new(header, array->name, describe(&array->view, *data_bytes, end)) != 0)
      return hd_fail(context, HEED_E_MEMORY, "out of memory: a list of tensors");
    *data_bytes = end;
  }
  return HEED_OK;
}

/* Length and text, padded with spaces so that the data begin at a multiple of 8. */
static heed_status frame(heed_context *context, const char *path, const char *text, int64_t length, hd_safetensors *out) {
  const int64_t padded = hd_ceil_div(length, LENGTH_BYTES) * LENGTH_BYTES;
  const uint64_t stored = (uint64_t)padded;
  HD_REQUIRE(padded <= HEADER_LIMIT, context, HEED_E_UNSUPPORTED, "%s: too many tensors for one file (header of %lld bytes, allowed %lld)",
             path, (long long)padded, (long long)HEADER_LIMIT);
  out->header_bytes = LENGTH_BYTES + padded;
  HD_TRY(hd_allocate(context, "a safetensors header", out->header_bytes, 1, &out->header));
  memset(out->header, ' ', (size_t)out->header_bytes);
  memcpy(out->header, &stored, LENGTH_BYTES);
  memcpy(out->header + LENGTH_BYTES, text, (size_t)length);
  return HEED_OK;
}

heed_status hd_safetensors_prepare(heed_context *context, const char *path, const hd_arrays *arrays, hd_safetensors *out) {
  json_t *header = json_object();
  char *text = NULL;
  int64_t length = 0, data_bytes;
  heed_status status;
  *out = (hd_safetensors){.context = context, .arrays = arrays};
  if (!header) return hd_fail(context, HEED_E_MEMORY, "out of memory: a list of tensors");
  HD_TRY_DONE(list_arrays(context, path, arrays, header, &data_bytes));
  HD_TRY_DONE(hd_json_dump(context, header, JSON_COMPACT, &text, &length));
  HD_TRY_DONE(frame(context, path, text, length, out));
  out->bytes = out->header_bytes + data_bytes;
done:
  hd_release(context, text, length, 1);
  json_decref(header);
  return status;
}

void hd_safetensors_release(hd_safetensors *file) {
  hd_release(file->context, file->header, file->header_bytes, 1);
  file->header = NULL;
}

/* ---- the data -------------------------------------------------------------------------------------------------------------- */

/* Element by element through a buffer. */
static heed_status put_strided(heed_context *context, const heed_view *view, hd_put put, void *sink) {
  const int64_t size = (int64_t)heed_type_bytes(view->type), count = hd_view_count(view), room = WRITE_BYTES / size;
  char *buffer;
  heed_status status = HEED_OK;
  HD_TRY(hd_allocate(context, "a write buffer", WRITE_BYTES, 1, &buffer));
  for (int64_t done = 0; done < count && status == HEED_OK; done += room) {
    const int64_t piece = HD_MIN(count - done, room);
    for (int64_t i = 0; i < piece; i++) memcpy(buffer + i * size, hd_view_at(view, done + i), (size_t)size);
    status = put(sink, buffer, piece * size);
  }
  hd_release(context, buffer, WRITE_BYTES, 1);
  return status;
}

static heed_status put_array(heed_context *context, const heed_view *view, hd_put put, void *sink) {
  const int64_t bytes = hd_view_count(view) * (int64_t)heed_type_bytes(view->type);
  if (bytes == 0) return HEED_OK;
  return is_packed(view) ? put(sink, view->data, bytes) : put_strided(context, view, put, sink);
}

/* One that is made now, and forgotten as soon as it is written. */
static heed_status put_brought(heed_context *context, const hd_array *array, hd_put put, void *sink) {
  heed_view view = array->view;
  const int64_t count = hd_view_count(&view);
  float *numbers;
  HD_TRY(hd_allocate(context, array->name, count, sizeof *numbers, &numbers));
  array->bring(context, view.data, numbers);
  view.data = numbers;
  heed_status status = put_array(context, &view, put, sink);
  hd_release(context, numbers, count, sizeof *numbers);
  return status;
}

heed_status hd_safetensors_put(const hd_safetensors *file, hd_put put, void *sink) {
  HD_TRY(put(sink, file->header, file->header_bytes));
  for (int64_t i = 0; i < file->arrays->count; i++) {
    const hd_array *array = &file->arrays->array[i];
    HD_TRY(array->bring ? put_brought(file->context, array, put, sink) : put_array(file->context, &array->view, put, sink));
  }
  return HEED_OK;
}

static heed_status put_in_writer(void *sink, const void *data, int64_t bytes) { return hd_writer_write(sink, data, bytes); }

heed_status hd_safetensors_save(heed_context *context, const char *path, const hd_arrays *arrays) {
  hd_safetensors file;
  hd_writer writer;
  HD_TRY(hd_safetensors_prepare(context, path, arrays, &file));
  heed_status status = hd_writer_begin(context, path, &writer);
  if (status == HEED_OK) {
    writer.planned = file.bytes;
    status = hd_safetensors_put(&file, put_in_writer, &writer);
    if (status == HEED_OK) status = hd_writer_commit(&writer);
    else hd_writer_abandon(&writer);
  }
  hd_safetensors_release(&file);
  return status;
}

/* ---- and back -------------------------------------------------------------------------------------------------------------- */

static heed_status fill_one(heed_context *context, const hd_tensors *tensors, const hd_array *array) {
  const heed_view *view = &array->view;
  const char *path = hd_tensors_path(tensors);
  char got[HD_SHAPE_LENGTH], wanted[HD_SHAPE_LENGTH];
  const hd_tensor *tensor = hd_tensors_find(tensors, array->name);
  HD_REQUIRE(tensor, context, HEED_E_FORMAT, "%s: tensor \"%s\" is missing", path, array->name);
  heed_view stored = {.ndim = tensor->ndim};
  memcpy(stored.dim, tensor->dim, sizeof stored.dim);
  HD_REQUIRE(hd_same_shape(&stored, view) && strcmp(tensor->type, type_name(view->type)) == 0, context, HEED_E_FORMAT,
             "%s: tensor \"%s\" has another shape or type (got %s %s, allowed %s %s)", path, array->name, tensor->type,
             hd_shape_text(&stored, got), type_name(view->type), hd_shape_text(view, wanted));
  HD_REQUIRE(is_packed(view), context, HEED_E_LAYOUT, "%s: tensor \"%s\" is read into row-major arrays only", path, array->name);
  return hd_tensors_read(context, tensors, tensor, view->data);
}

heed_status hd_safetensors_fill(heed_context *context, const char *path, const hd_array *array, int64_t count) {
  hd_tensors *tensors;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    status = hd_view_check(context, &array[i].view, array[i].name);
    if (status == HEED_OK) status = fill_one(context, tensors, &array[i]);
  }
  if (status == HEED_OK && hd_tensors_count(tensors) != count)
    status = hd_fail(context, HEED_E_FORMAT, "%s: holds other tensors too (got %lld, allowed %lld)", path,
                     (long long)hd_tensors_count(tensors), (long long)count);
  hd_tensors_close(tensors);
  return status;
}
