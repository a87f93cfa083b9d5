/* npz.c: archives of arrays, through libzip. What libzip allocates is bounded by the archive's directory; what an entry may inflate to
 * is bounded here. */
#include "npy.h"

#include <zip.h>

/* Deflate reaches 1032:1, on constant data only. An entry beyond this is refused unless it is small anyway. */
enum { MAX_RATIO = 500, SMALL_ENTRY = 1 << 20 };
enum { MAX_ENTRIES = 65535 }; /* of a zip file without the 64-bit extension */

struct hd_npz {
  heed_context *context;
  const char *path; /* the caller's */
  zip_t *zip;
  int64_t count, file_bytes;
};

/* One entry as a stream. */
typedef struct entry {
  hd_stream stream; /* first: the callbacks get this address */
  zip_file_t *file;
  char name[HD_QUOTE_LENGTH * 2];
} entry;

static heed_status zip_failure(const hd_npz *npz, const char *name, zip_error_t *error) {
  int code = zip_error_code_zip(error);
  heed_status status = code == ZIP_ER_MEMORY                                                                 ? HEED_E_MEMORY
                       : code == ZIP_ER_COMPNOTSUPP || code == ZIP_ER_ENCRNOTSUPP || code == ZIP_ER_NOPASSWD ? HEED_E_UNSUPPORTED
                                                                                                             : HEED_E_FORMAT;
  char quoted[HD_QUOTE_LENGTH];
  const char *reason = code == ZIP_ER_EXISTS ? "duplicate entry" : zip_error_strerror(error);
  return hd_fail(npz->context, status, "%s%s: %s", name ? "" : npz->path, name ? name : "", hd_quote(hd_text_of(reason), quoted));
}

/* ---- the archive ----------------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static heed_status refuse_duplicates(const hd_npz *npz, const char **names) {
  char quoted[HD_QUOTE_LENGTH];
  for (int64_t i = 0; i < npz->count; i++) {
    names[i] = zip_get_name(npz->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
    if (!names[i]) return zip_failure(npz, NULL, zip_get_error(npz->zip));
  }
  qsort(names, (size_t)npz->count, sizeof *names, compare_names);
  for (int64_t i = 1; i < npz->count; i++)
    HD_REQUIRE(strcmp(names[i - 1], names[i]) != 0, npz->context, HEED_E_FORMAT, "%s: duplicate entry (\"%s\")", npz->path,
               hd_quote(hd_text_of(names[i]), quoted));
  return HEED_OK;
}

static heed_status open_zip(hd_npz *npz) {
  int code = 0;
  const char **names;
  npz->zip = zip_open(npz->path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (!npz->zip) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    heed_status status = zip_failure(npz, NULL, &error);
    zip_error_fini(&error);
    return status;
  }
  npz->count = zip_get_num_entries(npz->zip, 0);
  HD_REQUIRE(npz->count <= MAX_ENTRIES, npz->context, HEED_E_FORMAT, "%s: too many entries (got %lld, allowed %d)", npz->path,
             (long long)npz->count, MAX_ENTRIES);
  HD_TRY(hd_allocate(npz->context, "a list of entries", npz->count, sizeof *names, &names));
  heed_status status = refuse_duplicates(npz, names);
  hd_release(npz->context, names, npz->count, sizeof *names);
  return status;
}

heed_status hd_npz_open(heed_context *context, const char *path, hd_npz **out) {
  hd_file file;
  hd_npz *npz;
  *out = NULL;
  // libzip would also take a directory or a pipe.
  HD_TRY(hd_file_open(context, path, &file));
  hd_file_close(&file);
  HD_TRY(hd_allocate(context, "an archive", 1, sizeof *npz, &npz));
  *npz = (hd_npz){.context = context, .path = path, .file_bytes = file.size};
  heed_status status = open_zip(npz);
  if (status == HEED_OK) *out = npz;
  else hd_npz_close(npz);
  return status;
}

void hd_npz_close(hd_npz *npz) {
  if (!npz) return;
  if (npz->zip) zip_discard(npz->zip);
  hd_release(npz->context, npz, 1, sizeof *npz);
}

int64_t hd_npz_count(const hd_npz *npz) { return npz->count; }
const char *hd_npz_name(const hd_npz *npz, int64_t i) { return zip_get_name(npz->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW); }

int64_t hd_npz_find(const hd_npz *npz, const char *name) {
  const size_t length = strlen(name);
  for (int64_t i = 0; i < npz->count; i++) {
    const char *entry_name = hd_npz_name(npz, i);
    if (strncmp(entry_name, name, length) == 0 && (!entry_name[length] || strcmp(entry_name + length, ".npy") == 0)) return i;
  }
  return -1;
}

/* ---- entries ---------------------------------------------------------------------------------------------------------------- */

static heed_status entry_read(hd_stream *stream, int64_t bytes, void *out) {
  entry *e = (entry *)stream;
  for (int64_t done = 0; done < bytes;) {
    zip_int64_t got = zip_fread(e->file, (char *)out + done, (zip_uint64_t)(bytes - done));
    HD_REQUIRE(got >= 0, stream->context, HEED_E_FORMAT, "%s: %s (at byte %lld)", stream->name,
               zip_error_strerror(zip_file_get_error(e->file)), (long long)(stream->at + done));
    HD_REQUIRE(got > 0, stream->context, HEED_E_FORMAT, "%s: the entry is shorter than the archive says (got %lld bytes, allowed %lld)",
               stream->name, (long long)(stream->at + done), (long long)stream->size);
    done += got;
  }
  stream->at += bytes;
  return HEED_OK;
}

/* Reading past the end is also what makes libzip compare the checksum. */
static heed_status entry_finish(hd_stream *stream) {
  entry *e = (entry *)stream;
  char beyond;
  zip_int64_t got = zip_fread(e->file, &beyond, 1);
  HD_REQUIRE(got >= 0, stream->context, HEED_E_FORMAT, "%s: %s (after byte %lld)", stream->name,
             zip_error_strerror(zip_file_get_error(e->file)), (long long)stream->at);
  HD_REQUIRE(got == 0, stream->context, HEED_E_FORMAT, "%s: the entry is larger than the archive says (allowed %lld bytes)", stream->name,
             (long long)stream->size);
  return HEED_OK;
}

static heed_status entry_open(hd_npz *npz, int64_t i, entry *e) {
  zip_stat_t info;
  char quoted[HD_QUOTE_LENGTH];
  const char *name = hd_npz_name(npz, i);
  *e = (entry){.stream = {.context = npz->context, .name = e->name, .read = entry_read, .finish = entry_finish}};
  snprintf(e->name, sizeof e->name, "%.*s:%s", HD_QUOTE_LENGTH - 2, npz->path, hd_quote(hd_text_of(name), quoted));
  const zip_uint64_t known = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if (zip_stat_index(npz->zip, (zip_uint64_t)i, 0, &info) != 0 || (info.valid & known) != known)
    return zip_failure(npz, e->name, zip_get_error(npz->zip));
  HD_REQUIRE(info.comp_size <= (zip_uint64_t)npz->file_bytes, npz->context, HEED_E_FORMAT,
             "%s: the entry is larger than its archive (got %llu bytes, allowed %lld)", e->name, (unsigned long long)info.comp_size,
             (long long)npz->file_bytes);
  HD_REQUIRE(info.size <= SMALL_ENTRY || info.size / MAX_RATIO <= info.comp_size, npz->context, HEED_E_FORMAT,
             "%s: inflates too much (got %llu bytes from %llu, allowed %d:1)", e->name, (unsigned long long)info.size,
             (unsigned long long)info.comp_size, MAX_RATIO);
  e->stream.size = (int64_t)info.size;
  e->file = zip_fopen_index(npz->zip, (zip_uint64_t)i, 0);
  return e->file ? HEED_OK : zip_failure(npz, e->name, zip_get_error(npz->zip));
}

static void entry_close(entry *e) {
  if (e->file) zip_fclose(e->file);
}

heed_status hd_npz_read_head(hd_npz *npz, int64_t i, hd_npy_head *head) {
  entry e;
  heed_status status = entry_open(npz, i, &e);
  if (status == HEED_OK) status = hd_npy_read_head(&e.stream, head);
  entry_close(&e);
  return status;
}

heed_status hd_npz_read(hd_npz *npz, int64_t i, heed_view *out) {
  entry e;
  heed_status status = entry_open(npz, i, &e);
  if (status == HEED_OK) status = hd_npy_read(&e.stream, out);
  entry_close(&e);
  return status;
}
