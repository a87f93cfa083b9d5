/* array.c: loading one array from any file that holds arrays, by "FILE" or "FILE:NAME". */
#include "npy.h"

#include <stdio.h>

/* Files that hold several arrays, so that a name may follow. */
static const char *const containers[] = {".npz", ".safetensors", ".gguf"};

/* Where NAME begins in "FILE:NAME", or NULL. */
static const char *name_of(const char *path) {
  if (hd_file_exists(path)) return NULL;
  for (int64_t i = 0; i < HD_COUNT(containers); i++) {
    size_t length = strlen(containers[i]);
    for (const char *at = path; (at = strstr(at, containers[i])); at += length)
      if (at[length] == ':') return at + length + 1;
  }
  return NULL;
}

bool hd_names_container(const char *path) {
  for (int64_t i = 0; i < HD_COUNT(containers); i++) {
    size_t length = strlen(containers[i]);
    for (const char *at = path; (at = strstr(at, containers[i])); at += length)
      if (at[length] == ':' || !at[length]) return true;
  }
  return false;
}

static heed_status load_npy(heed_context *context, const char *path, heed_view *out) {
  hd_npy_file file;
  HD_TRY(hd_npy_open(context, path, &file));
  heed_status status = hd_npy_read(&file.stream, out);
  hd_file_close(&file.file);
  return status;
}

/* Which of count arrays is meant: the named one, or the only one. */
static heed_status choose(heed_context *context, const char *path, const char *name, int64_t count, int64_t found, int64_t *chosen) {
  char quoted[HD_QUOTE_LENGTH];
  HD_REQUIRE(name || count == 1, context, HEED_E_ARGUMENT, "%s: holds %lld arrays; name one as FILE:NAME", path, (long long)count);
  HD_REQUIRE(!name || found >= 0, context, HEED_E_ARGUMENT, "%s: holds no array \"%s\"", path,
             hd_quote(hd_text_of(name ? name : ""), quoted));
  *chosen = name ? found : 0;
  return HEED_OK;
}

static heed_status load_npz(heed_context *context, const char *path, const char *name, heed_view *out) {
  hd_npz *npz;
  int64_t chosen = 0;
  HD_TRY(hd_npz_open(context, path, &npz));
  heed_status status = choose(context, path, name, hd_npz_count(npz), name ? hd_npz_find(npz, name) : -1, &chosen);
  if (status == HEED_OK) status = hd_npz_read(npz, chosen, out);
  hd_npz_close(npz);
  return status;
}

static heed_status load_tensor(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor, heed_view *out) {
  const hd_plain *plain = hd_plain_by_name(tensor->type);
  heed_view view;
  heed_status status;
  void *raw;
  HD_REQUIRE(plain, context, HEED_E_UNSUPPORTED, "%s: \"%s\" has type %s, which is no plain number", hd_tensors_path(tensors), tensor->name,
             tensor->type);
  HD_TRY(hd_array_new(context, plain, tensor->ndim, tensor->dim, tensor->count, &view, &raw));
  HD_TRY_DONE(hd_tensors_read(context, tensors, tensor, raw));
  HD_TRY_DONE(hd_plain_widen(context, hd_tensors_path(tensors), plain, false, tensor->count, view.data));
  *out = view;
done:
  if (status != HEED_OK) heed_array_free(context, &view);
  return status;
}

static heed_status load_from_tensors(heed_context *context, const char *path, const char *name, heed_view *out) {
  hd_tensors *tensors;
  int64_t chosen = 0;
  HD_TRY(hd_tensors_open(context, path, &tensors));
  const hd_tensor *tensor = name ? hd_tensors_find(tensors, name) : NULL;
  heed_status status = choose(context, path, name, hd_tensors_count(tensors), tensor ? 0 : -1, &chosen);
  if (status == HEED_OK) status = load_tensor(context, tensors, tensor ? tensor : hd_tensors_at(tensors, chosen), out);
  hd_tensors_close(tensors);
  return status;
}

static heed_status load(heed_context *context, const char *path, const char *name, heed_view *out) {
  if (hd_ends_with(path, ".npz")) return load_npz(context, path, name, out);
  if (hd_ends_with(path, ".safetensors") || hd_ends_with(path, ".gguf")) return load_from_tensors(context, path, name, out);
  return load_npy(context, path, out);
}

heed_status heed_array_load(heed_context *context, const char *path, heed_view *out) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(path && out, context, HEED_E_ARGUMENT, "heed_array_load: path or out is null");
  *out = (heed_view){0};
  const char *name = name_of(path);
  if (!name) return load(context, path, NULL, out);
  const int64_t bytes = name - path;
  char *file;
  HD_TRY(hd_allocate(context, "a file name", bytes, 1, &file));
  memcpy(file, path, (size_t)bytes);
  file[bytes - 1] = 0;
  heed_status status = load(context, file, name, out);
  hd_release(context, file, bytes, 1);
  return status;
}

void heed_array_free(heed_context *context, heed_view *array) {
  if (!array || !array->data) return;
  int64_t count = 1;
  for (int i = 0; i < array->ndim; i++) count *= array->dim[i];
  hd_release(context, array->data, count, heed_type_bytes(array->type));
  array->data = NULL;
}
