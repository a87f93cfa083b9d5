/* tensors.c: opening a model file of any kind, the finished list, and reading weights. The formats are in gguf.c and safetensors.c,
 * metadata getters in meta.c. */
#include "reader.h"

#include <stdio.h>

/* ---- the list under construction ------------------------------------------------------------------------------------------- */

bool hd_count_elements(int ndim, const int64_t *dim, int64_t *count) {
  *count = 1;
  for (int i = 0; i < ndim; i++)
    if (!hd_mul(*count, dim[i], count)) return false;
  return true;
}

static hd_tensor *entry_at(const hd_tensors *tensors, int64_t i) { return &tensors->chunk[i / HD_CHUNK_TENSORS][i % HD_CHUNK_TENSORS]; }

heed_status hd_tensors_add(heed_context *context, hd_tensors *tensors, const hd_tensor *entry) {
  int64_t chunk = tensors->count / HD_CHUNK_TENSORS;
  HD_REQUIRE(chunk < HD_CHUNKS, context, HEED_E_FORMAT, "%s: too many tensors (allowed %d)", tensors->path, HD_CHUNKS * HD_CHUNK_TENSORS);
  if (!tensors->chunk[chunk])
    HD_TRY(hd_arena_allocate(&tensors->arena, context, "a list of tensors", HD_CHUNK_TENSORS, sizeof(hd_tensor), &tensors->chunk[chunk]));
  *entry_at(tensors, tensors->count++) = *entry;
  return HEED_OK;
}

heed_status hd_tensors_add_file(heed_context *context, hd_tensors *tensors, const char *path, int *index) {
  char *copy;
  HD_REQUIRE(tensors->files < HD_MAX_FILES, context, HEED_E_FORMAT, "%s: too many shards (allowed %d)", tensors->path, HD_MAX_FILES);
  HD_TRY(hd_arena_text(&tensors->arena, context, path, strlen(path), &copy));
  HD_TRY(hd_file_open(context, copy, &tensors->file[tensors->files]));
  *index = tensors->files++;
  return HEED_OK;
}

heed_status hd_tensors_reserve_meta(heed_context *context, hd_tensors *tensors, int64_t count) {
  HD_TRY(hd_arena_allocate(&tensors->arena, context, "a list of metadata", count, sizeof(hd_meta), &tensors->meta));
  tensors->meta_capacity = count;
  return HEED_OK;
}

static int compare_tensors(const void *a, const void *b) {
  return strcmp((*(const hd_tensor *const *)a)->name, (*(const hd_tensor *const *)b)->name);
}

static int compare_meta(const void *a, const void *b) {
  return strcmp((*(const hd_meta *const *)a)->key, (*(const hd_meta *const *)b)->key);
}

/* Sorts by name and by key, and refuses what is there twice. */
static heed_status finish(heed_context *context, hd_tensors *tensors) {
  char quoted[HD_QUOTE_LENGTH];
  HD_TRY(hd_arena_allocate(&tensors->arena, context, "an index of tensors", tensors->count, sizeof(void *), &tensors->by_name));
  HD_TRY(hd_arena_allocate(&tensors->arena, context, "an index of metadata", tensors->meta_count, sizeof(void *), &tensors->by_key));
  for (int64_t i = 0; i < tensors->count; i++) tensors->by_name[i] = entry_at(tensors, i);
  for (int64_t i = 0; i < tensors->meta_count; i++) tensors->by_key[i] = &tensors->meta[i];
  qsort(tensors->by_name, (size_t)tensors->count, sizeof(void *), compare_tensors);
  qsort(tensors->by_key, (size_t)tensors->meta_count, sizeof(void *), compare_meta);
  for (int64_t i = 1; i < tensors->count; i++) {
    const char *name = tensors->by_name[i]->name;
    HD_REQUIRE(strcmp(tensors->by_name[i - 1]->name, name) != 0, context, HEED_E_FORMAT, "%s: duplicate tensor name (\"%s\")",
               tensors->path, hd_quote(hd_text_of(name), quoted));
  }
  for (int64_t i = 1; i < tensors->meta_count; i++) {
    const char *key = tensors->by_key[i]->key;
    HD_REQUIRE(strcmp(tensors->by_key[i - 1]->key, key) != 0, context, HEED_E_FORMAT, "%s: duplicate metadata key (\"%s\")", tensors->path,
               hd_quote(hd_text_of(key), quoted));
  }
  return HEED_OK;
}

/* ---- opening --------------------------------------------------------------------------------------------------------------- */

static heed_status join(heed_context *context, hd_tensors *tensors, const char *directory, const char *name, const char **out) {
  size_t length = strlen(directory), total = length + strlen(name) + 2;
  char *path;
  HD_TRY(hd_arena_allocate(&tensors->arena, context, "a file name", (int64_t)total, 1, &path));
  snprintf(path, total, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
  *out = path;
  return HEED_OK;
}

/* "a/b/config.json" → "a/b", "config.json" → ".". */
static heed_status parent(heed_context *context, hd_tensors *tensors, const char *path, const char **out) {
  const char *slash = strrchr(path, '/');
  char *copy;
  size_t length = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
  HD_TRY(hd_arena_text(&tensors->arena, context, slash ? path : ".", length, &copy));
  *out = copy;
  return HEED_OK;
}

/* The configuration and its weights. */
static heed_status read_directory(heed_context *context, hd_tensors *tensors) {
  const char *path, *pickled;
  tensors->format = "Hugging Face directory";
  HD_TRY(hd_json_load(context, tensors->config_path, (hd_json_rules){.limit = HD_JSON_CONFIG_BYTES}, &tensors->config));
  HD_TRY(join(context, tensors, tensors->directory, "model.safetensors", &path));
  if (hd_file_exists(path)) return hd_safetensors_read(context, tensors, path, NULL, NULL);
  HD_TRY(join(context, tensors, tensors->directory, "model.safetensors.index.json", &path));
  if (hd_file_exists(path)) return hd_safetensors_index_read(context, tensors, path);
  HD_TRY(join(context, tensors, tensors->directory, "pytorch_model.bin", &pickled));
  HD_REQUIRE(!hd_file_exists(pickled), context, HEED_E_UNSUPPORTED, "%s: pickled weights are not read (allowed model.safetensors)",
             pickled);
  return hd_fail(context, HEED_E_FILE, "%s: holds neither model.safetensors nor model.safetensors.index.json", tensors->directory);
}

static heed_status starts_as_gguf(heed_context *context, const char *path, bool *yes) {
  hd_file file;
  char magic[4] = {0};
  HD_TRY(hd_file_open(context, path, &file));
  heed_status status = hd_file_read(context, &file, 0, HD_MIN(file.size, (int64_t)sizeof magic), magic);
  hd_file_close(&file);
  *yes = memcmp(magic, "GGUF", 4) == 0;
  return status;
}

static heed_status read_any(heed_context *context, hd_tensors *tensors) {
  const char *path = tensors->path, *binary;
  bool gguf;
  if (hd_is_directory(path)) {
    tensors->directory = path;
    HD_TRY(join(context, tensors, path, "config.json", &tensors->config_path));
    HD_TRY(join(context, tensors, path, "model.bin", &binary));
    const bool ctranslate2 = !hd_file_exists(tensors->config_path) && hd_file_exists(binary);
    return ctranslate2 ? hd_ctranslate2_read(context, tensors, binary) : read_directory(context, tensors);
  }
  HD_TRY(parent(context, tensors, path, &tensors->directory));
  if (hd_ends_with(path, ".index.json")) {
    tensors->format = "safetensors";
    return hd_safetensors_index_read(context, tensors, path);
  }
  if (hd_ends_with(path, ".json")) {
    tensors->config_path = path;
    return read_directory(context, tensors);
  }
  HD_TRY(starts_as_gguf(context, path, &gguf));
  if (gguf || hd_ends_with(path, ".gguf")) return hd_gguf_read(context, tensors, path);
  if (hd_ends_with(path, "model.bin")) return hd_ctranslate2_read(context, tensors, path);
  HD_REQUIRE(hd_ends_with(path, ".safetensors"), context, HEED_E_FORMAT,
             "%s: not a model file that heed reads (allowed GGUF, .safetensors, or a Hugging Face directory)", path);
  tensors->format = "safetensors";
  return hd_safetensors_read(context, tensors, path, NULL, NULL);
}

heed_status hd_tensors_open(heed_context *context, const char *path, hd_tensors **out) {
  hd_tensors *tensors;
  heed_status status;
  char *copy;
  *out = NULL;
  HD_TRY(hd_allocate(context, "a model file", 1, sizeof *tensors, &tensors));
  memset(tensors, 0, sizeof *tensors);
  hd_arena_init(&tensors->arena, context);
  HD_TRY_DONE(hd_arena_text(&tensors->arena, context, path, strlen(path), &copy));
  tensors->path = copy;
  HD_TRY_DONE(read_any(context, tensors));
  HD_TRY_DONE(finish(context, tensors));
  *out = tensors;
done:
  if (status != HEED_OK) hd_tensors_close(tensors);
  return status;
}

void hd_tensors_close(hd_tensors *tensors) {
  if (!tensors) return;
  heed_allocator allocator = tensors->arena.allocator;
  for (int i = 0; i < tensors->files; i++) hd_file_close(&tensors->file[i]);
  json_decref(tensors->config);
  if (tensors->header) allocator.release(allocator.user, tensors->header, (size_t)tensors->header_capacity);
  hd_arena_free(&tensors->arena);
  allocator.release(allocator.user, tensors, sizeof *tensors);
}

/* ---- the finished list ------------------------------------------------------------------------------------------------------- */

const char *hd_tensors_path(const hd_tensors *tensors) { return tensors->path; }
const char *hd_tensors_format(const hd_tensors *tensors) { return tensors->format; }
bool hd_tensors_is_gguf(const hd_tensors *tensors) { return tensors->is_gguf; }
bool hd_tensors_is_ctranslate2(const hd_tensors *tensors) { return tensors->is_ctranslate2; }
const json_t *hd_tensors_config(const hd_tensors *tensors) { return tensors->config; }
const char *hd_tensors_config_path(const hd_tensors *tensors) { return tensors->config ? tensors->config_path : NULL; }
const char *hd_tensors_directory(const hd_tensors *tensors) {
  return tensors->config || tensors->is_ctranslate2 ? tensors->directory : NULL;
}
int64_t hd_tensors_count(const hd_tensors *tensors) { return tensors->count; }
const hd_tensor *hd_tensors_at(const hd_tensors *tensors, int64_t i) { return entry_at(tensors, i); }

const hd_tensor *hd_tensors_find(const hd_tensors *tensors, const char *name) {
  const hd_tensor key = {.name = name}, *wanted = &key;
  // bsearch must not see a null array, not even an empty one.
  const hd_tensor *const *found =
      tensors->count ? bsearch(&wanted, tensors->by_name, (size_t)tensors->count, sizeof(void *), compare_tensors) : NULL;
  return found ? *found : NULL;
}

int64_t hd_meta_count(const hd_tensors *tensors) { return tensors->meta_count; }
const hd_meta *hd_meta_at(const hd_tensors *tensors, int64_t i) { return &tensors->meta[i]; }

const hd_meta *hd_meta_find(const hd_tensors *tensors, const char *key) {
  const hd_meta probe = {.key = key}, *wanted = &probe;
  const hd_meta *const *found =
      tensors->meta_count ? bsearch(&wanted, tensors->by_key, (size_t)tensors->meta_count, sizeof(void *), compare_meta) : NULL;
  return found ? *found : NULL;
}

/* ---- weights ----------------------------------------------------------------------------------------------------------------- */

static const char *shape_text(int ndim, const int64_t *dim, char buffer[HD_SHAPE_LENGTH]) {
  heed_view view = {.ndim = ndim};
  memcpy(view.dim, dim, (size_t)ndim * sizeof *dim);
  return hd_shape_text(&view, buffer);
}

static heed_status unsupported_type(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor) {
  char quoted[HD_QUOTE_LENGTH];
  return hd_fail(context, HEED_E_UNSUPPORTED, "%s: tensor \"%s\" has type %s, which heed cannot read (allowed %s)", tensors->path,
                 hd_quote(hd_text_of(tensor->name), quoted), tensor->type, hd_storage_known());
}

heed_status hd_tensors_weight(heed_context *context, const hd_tensors *tensors, const char *name, int ndim, const int64_t *dim,
                              const hd_tensor **out) {
  char got[HD_SHAPE_LENGTH], wanted[HD_SHAPE_LENGTH];
  const hd_tensor *tensor = hd_tensors_find(tensors, name);
  HD_REQUIRE(tensor, context, HEED_E_FORMAT, "%s: tensor \"%s\" is missing", tensors->path, name);
  HD_REQUIRE(tensor->ndim == ndim && (ndim == 0 || memcmp(tensor->dim, dim, (size_t)ndim * sizeof *dim) == 0), context, HEED_E_FORMAT,
             "%s: tensor \"%s\" has another shape (got %s, allowed %s)", tensors->path, name, shape_text(tensor->ndim, tensor->dim, got),
             shape_text(ndim, dim, wanted));
  if (tensor->storage == HD_STORAGE_COUNT) return unsupported_type(context, tensors, tensor);
  *out = tensor;
  return HEED_OK;
}

heed_status hd_tensors_read_part(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor, int64_t begin, int64_t bytes,
                                 void *out) {
  if (tensor->storage == HD_STORAGE_COUNT && !hd_plain_by_name(tensor->type)) return unsupported_type(context, tensors, tensor);
  HD_REQUIRE(begin >= 0 && bytes >= 0 && begin <= tensor->bytes && bytes <= tensor->bytes - begin, context, HEED_E_ARGUMENT,
             "%s: part of tensor \"%s\" outside of it (%lld bytes from %lld, it has %lld)", tensors->path, tensor->name, (long long)bytes,
             (long long)begin, (long long)tensor->bytes);
  // An empty tensor of a GGUF file may stand behind its end.
  return bytes ? hd_file_read(context, &tensors->file[tensor->file], tensor->offset + begin, bytes, out) : HEED_OK;
}

heed_status hd_tensors_read(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor, void *out) {
  return hd_tensors_read_part(context, tensors, tensor, 0, tensor->bytes, out);
}
