/* reader.h: what the readers of model files share and nobody else sees: the list under construction.
 *
 * A reader adds metadata and tensors while it parses; hd_tensors_open then sorts them, refuses duplicates and hands the list out. */
#ifndef HD_READER_H
#define HD_READER_H

#include "json.h"
#include "tensors.h"

/* Tensors live in chunks, so that no allocation grows beyond what the file has shown so far, and addresses stay. 2^20 tensors are ten
 * times those of the largest mixture-of-experts models in use. */
enum { HD_CHUNK_TENSORS = 512, HD_CHUNKS = 2048 };
/* The largest published models have fewer than 200 shards; each holds a file descriptor. */
enum { HD_MAX_FILES = 512 };

struct hd_tensors {
  hd_arena arena;
  const char *path, *directory, *config_path, *format;
  bool is_gguf, is_ctranslate2;
  json_t *config;
  hd_file file[HD_MAX_FILES];
  int files;
  hd_tensor *chunk[HD_CHUNKS];
  int64_t count;
  const hd_tensor **by_name;
  hd_meta *meta; /* [meta_capacity] */
  int64_t meta_count, meta_capacity;
  const hd_meta **by_key;
  unsigned char *header; /* what GGUF metadata point into */
  int64_t header_capacity;
};

/* Appends a copy of the entry; its name must outlive the list (the arena). HEED_E_FORMAT where there are too many. */
heed_status hd_tensors_add(heed_context *context, hd_tensors *tensors, const hd_tensor *entry);
/* Opens one more file. */
heed_status hd_tensors_add_file(heed_context *context, hd_tensors *tensors, const char *path, int *index);
/* Room for that many metadata, once. */
heed_status hd_tensors_reserve_meta(heed_context *context, hd_tensors *tensors, int64_t count);

/* All parse into an empty list. A shard adds only the tensors that `only` (name → file name) gives to the file name `shard`; NULL: all. */
heed_status hd_gguf_read(heed_context *context, hd_tensors *tensors, const char *path);
heed_status hd_ctranslate2_read(heed_context *context, hd_tensors *tensors, const char *path);
heed_status hd_safetensors_read(heed_context *context, hd_tensors *tensors, const char *path, const json_t *only, const char *shard);
heed_status hd_safetensors_index_read(heed_context *context, hd_tensors *tensors, const char *path);

/* count = Π dim, false where it does not fit in 64 bits. */
bool hd_count_elements(int ndim, const int64_t *dim, int64_t *count);

/* Number types of array files. Types that heed_view lacks are widened when they are loaded. */
typedef struct hd_plain {
  const char *name; /* safetensors' and GGUF's word */
  char kind;        /* npy's: 'f', 'i', 'u', 'b'; 0 where npy has none */
  int bytes;        /* in the file */
  heed_type type;   /* in memory */
} hd_plain;
/* NULL for a type whose values heed cannot read as numbers. */
const hd_plain *hd_plain_by_name(const char *name);
const hd_plain *hd_plain_by_kind(char kind, int64_t bytes);
/* Turns count elements of the file's bytes, which end where `array` ends, into elements of plain->type in place: array has room for
 * count of those, and the file's bytes lie at its end. HEED_E_FORMAT for a bool that is neither 0 nor 1, HEED_E_UNSUPPORTED for a u64
 * beyond the i64 range. */
heed_status hd_plain_widen(heed_context *context, const char *file, const hd_plain *plain, bool big_endian, int64_t count, void *array);

#endif
