/* manifest.c: the manifest of a checkpoint. Its own checksum is that of its text without that one line, and its text must be the one that would be written: so no bit of it
 * can change unseen, not even in white space. */
#include "manifest.h"

#include <stdio.h>
#include <zlib.h>

enum { FORMAT = 1, READ_BYTES = 1 << 20, MANIFEST_BYTES = 16 << 20 };

static heed_status out_of_memory(heed_context *context) { return hd_fail(context, HEED_E_MEMORY, "out of memory: a manifest"); }

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static json_t *hexadecimal(uint32_t crc) {
  char text[9];
  snprintf(text, sizeof text, "%08x", (unsigned)crc);
  return json_string(text);
}

heed_status hd_manifest_new(heed_context *context, int64_t step, hd_manifest *out) {
  *out = (hd_manifest){.step = step, .files = json_object()};
  return out->files ? HEED_OK : out_of_memory(context);
}

void hd_manifest_free(hd_manifest *manifest) {
  json_decref(manifest->files);
  manifest->files = NULL;
}

heed_status hd_manifest_add(heed_context *context, hd_manifest *manifest, const char *name, int64_t bytes, uint32_t crc) {
  json_t *file = json_pack("{s:I, s:o}", "bytes", (json_int_t)bytes, "crc32", hexadecimal(crc));
  return json_object_set_new(manifest->files, name, file) == 0 ? HEED_OK : out_of_memory(context);
}

/* The text of a manifest that lacks its own checksum, with it; `root` is changed. */
static heed_status finish(heed_context *context, json_t *root, char **text, int64_t *bytes) {
  HD_TRY(hd_json_dump(context, root, HD_JSON_INDENTED, text, bytes));
  const uint32_t crc = (uint32_t)crc32(0, (const Bytef *)*text, (uInt)*bytes);
  hd_release(context, *text, *bytes, 1);
  *text = NULL;
  if (json_object_set_new(root, "crc32", hexadecimal(crc)) != 0) return out_of_memory(context);
  return hd_json_dump(context, root, HD_JSON_INDENTED, text, bytes);
}

heed_status hd_manifest_text(heed_context *context, const hd_manifest *manifest, char **text, int64_t *bytes) {
  json_t *root = json_pack("{s:s, s:i, s:I, s:O}", "kind", "heed checkpoint", "format", FORMAT, "step", (json_int_t)manifest->step, "files",
                           manifest->files);
  *text = NULL;
  if (!root) return out_of_memory(context);
  heed_status status = finish(context, root, text, bytes);
  json_decref(root);
  return status;
}

/* ---- checking -------------------------------------------------------------------------------------------------------------- */

/* Whether the text of the file is that of its content with the right checksum. */
static heed_status check_text(heed_context *context, const char *path, const json_t *root, const char *text, int64_t bytes) {
  char *wanted = NULL;
  int64_t wanted_bytes = 0;
  json_t *copy = json_copy((json_t *)root);
  if (!copy) return out_of_memory(context);
  json_object_del(copy, "crc32");
  heed_status status = finish(context, copy, &wanted, &wanted_bytes);
  if (status == HEED_OK && (wanted_bytes != bytes || memcmp(wanted, text, (size_t)bytes) != 0))
    status = hd_fail(context, HEED_E_FORMAT, "%s: does not match its own checksum", path);
  hd_release(context, wanted, wanted_bytes, 1);
  json_decref(copy);
  return status;
}

static heed_status checksum(heed_context *context, const hd_file *file, uint32_t *out) {
  uLong crc = 0;
  char *buffer;
  heed_status status = HEED_OK;
  HD_TRY(hd_allocate(context, "a read buffer", READ_BYTES, 1, &buffer));
  for (int64_t at = 0; at < file->size && status == HEED_OK; at += READ_BYTES) {
    const int64_t piece = HD_MIN(file->size - at, READ_BYTES);
    status = hd_file_read(context, file, at, piece, buffer);
    if (status == HEED_OK) crc = crc32(crc, (const Bytef *)buffer, (uInt)piece);
  }
  hd_release(context, buffer, READ_BYTES, 1);
  *out = (uint32_t)crc;
  return status;
}

static heed_status check_open_file(heed_context *context, const hd_file *file, int64_t bytes, heed_text crc, bool contents) {
  char found[9];
  uint32_t sum;
  HD_REQUIRE(file->size == bytes, context, HEED_E_FORMAT, "%s: has another size (got %lld bytes, the manifest says %lld)", file->path,
             (long long)file->size, (long long)bytes);
  if (!contents) return HEED_OK;
  HD_TRY(checksum(context, file, &sum));
  snprintf(found, sizeof found, "%08x", (unsigned)sum);
  HD_REQUIRE(hd_text_is(crc, found), context, HEED_E_FORMAT, "%s: has another checksum (got %s, the manifest says %s)", file->path, found,
             crc.data);
  return HEED_OK;
}

static heed_status check_file(const hd_json_place *files, const char *directory, const char *name, bool contents) {
  hd_json_place entry;
  hd_file file;
  heed_text crc;
  char *path;
  int64_t bytes, room;
  heed_context *context = files->context;
  HD_TRY(hd_json_object(files, name, &entry));
  HD_TRY(hd_json_integer(&entry, "bytes", 0, INT64_MAX, &bytes));
  HD_TRY(hd_json_text(&entry, "crc32", &crc));
  if (strchr(name, '/')) return hd_json_wrong(files, name, "names a file elsewhere");
  HD_TRY(hd_join_path(context, directory, name, &path, &room));
  heed_status status = hd_file_open(context, path, &file);
  if (status == HEED_OK) {
    status = check_open_file(context, &file, bytes, crc, contents);
    hd_file_close(&file);
  }
  hd_release(context, path, room, 1);
  return status;
}

static heed_status check_files(const hd_json_place *top, const char *directory, bool contents, int64_t *step) {
  const char *name;
  json_t *value;
  hd_json_place files;
  int64_t format;
  HD_TRY(hd_json_integer(top, "format", 1, INT64_MAX, &format));
  HD_REQUIRE(format == FORMAT, top->context, HEED_E_UNSUPPORTED, "%s: a checkpoint of a later format (got %lld, known: %d)", top->file,
             (long long)format, FORMAT);
  HD_TRY(hd_json_integer(top, "step", 0, INT64_MAX, step));
  HD_TRY(hd_json_object(top, "files", &files));
  json_object_foreach((json_t *)files.object, name, value) HD_TRY(check_file(&files, directory, name, contents));
  return HEED_OK;
}

heed_status hd_manifest_check(heed_context *context, const char *directory, bool contents, int64_t *step) {
  json_t *root = NULL;
  char *path, *text = NULL;
  int64_t room, bytes = -1;
  heed_status status;
  HD_TRY(hd_join_path(context, directory, HD_MANIFEST, &path, &room));
  HD_TRY_DONE(hd_json_load(context, path, (hd_json_rules){.limit = MANIFEST_BYTES}, &root));
  HD_TRY_DONE(hd_file_load(context, path, MANIFEST_BYTES, &text, &bytes));
  HD_TRY_DONE(check_text(context, path, root, text, bytes));
  status = check_files(&(hd_json_place){context, path, "", root}, directory, contents, step);
done:
  hd_release(context, text, bytes + 1, 1);
  json_decref(root);
  hd_release(context, path, room, 1);
  return status;
}
