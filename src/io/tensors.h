/* tensors.h: one reader for model files: GGUF, safetensors (whole or in shards), Hugging Face directories, CTranslate2's model.bin.
 *
 * Opening reads and checks everything but the weights: after hd_tensors_open every tensor's bytes lie inside its file and no two
 * overlap. Weights are then read with pread, one tensor or part at a time, from any thread. What the numbers mean (families, tokenizers,
 * dequantisation) is the business of others. */
#ifndef HD_TENSORS_H
#define HD_TENSORS_H

#include "../base/file.h"
#include "../base/storage.h"
#include "../../include/heed/text.h"

#include <jansson.h>

/* ---- files and tensors ------------------------------------------------------------------------------------------------------ */

typedef struct hd_tensor {
  const char *name;          /* as in the file; no NUL inside */
  const char *type;          /* the file's word for the type: "F32", "Q4_1", "IQ4_XS", "F8_E4M3"; static */
  hd_storage storage;        /* HD_STORAGE_COUNT where heed cannot read it as weights: integers, or a type it knows by name and size only */
  int ndim;                  /* 0 is one element */
  int64_t dim[HEED_MAX_DIM]; /* outermost first: a GGUF matrix stored as [in, out] is {out, in} here, like safetensors */
  int64_t count, bytes;      /* elements; bytes in the file */
  int64_t offset;            /* in its file */
  int file;                  /* which of the files (shards) */
} hd_tensor;

typedef struct hd_tensors hd_tensors;

/* path: a GGUF file, a model.bin of CTranslate2 or the directory that holds it, a .safetensors file, a .safetensors.index.json, a Hugging Face directory, or a config in one (its name ends in
 * .json). HEED_E_FILE, HEED_E_FORMAT, HEED_E_UNSUPPORTED, HEED_E_MEMORY; *out is NULL on error. The object keeps the allocator, not the
 * context, and never changes: it may be shared between threads. Borrowed pointers live until it is closed. */
heed_status hd_tensors_open(heed_context *context, const char *path, hd_tensors **out);
void hd_tensors_close(hd_tensors *tensors);

const char *hd_tensors_path(const hd_tensors *tensors);   /* as given */
const char *hd_tensors_format(const hd_tensors *tensors); /* "GGUF 3", "safetensors", "Hugging Face directory", "CTranslate2 2"; static */
bool hd_tensors_is_gguf(const hd_tensors *tensors);
bool hd_tensors_is_ctranslate2(const hd_tensors *tensors);
/* The parsed configuration of a Hugging Face directory, the path it was read from and the directory (also CTranslate2's); NULL where there is none. */
const json_t *hd_tensors_config(const hd_tensors *tensors);
const char *hd_tensors_config_path(const hd_tensors *tensors);
const char *hd_tensors_directory(const hd_tensors *tensors);

int64_t hd_tensors_count(const hd_tensors *tensors);
const hd_tensor *hd_tensors_at(const hd_tensors *tensors, int64_t i); /* in the order of the file */
/* NULL where there is none of that name; O(log n). */
const hd_tensor *hd_tensors_find(const hd_tensors *tensors, const char *name);
/* A tensor that must be there, with this shape and of a type whose values heed can read. HEED_E_FORMAT (missing, other shape) or
 * HEED_E_UNSUPPORTED (type; lists the known). */
heed_status hd_tensors_weight(heed_context *context, const hd_tensors *tensors, const char *name, int ndim, const int64_t *dim,
                              const hd_tensor **out);

/* The tensor's bytes, as stored: little-endian numbers or quantised blocks. HEED_E_UNSUPPORTED for a type that is known by name only,
 * HEED_E_FORMAT if the file has shrunk. */
heed_status hd_tensors_read(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor, void *out);
/* The same for bytes [begin, begin + bytes) of the tensor. */
heed_status hd_tensors_read_part(heed_context *context, const hd_tensors *tensors, const hd_tensor *tensor, int64_t begin, int64_t bytes,
                                 void *out);

/* ---- metadata --------------------------------------------------------------------------------------------------------------- */

/* The kinds of GGUF, with its numbers. The metadata of a safetensors file are texts. */
typedef enum hd_meta_type {
  HD_META_U8,
  HD_META_I8,
  HD_META_U16,
  HD_META_I16,
  HD_META_U32,
  HD_META_I32,
  HD_META_F32,
  HD_META_BOOL,
  HD_META_TEXT,
  HD_META_ARRAY,
  HD_META_U64,
  HD_META_I64,
  HD_META_F64,
  HD_META_TYPES
} hd_meta_type;

typedef struct hd_meta {
  const char *key;
  hd_meta_type type;
  hd_meta_type element; /* of an array, else equal to type; arrays of arrays are listed, not read */
  int64_t count;        /* of an array, else 1 */
  /* of the reader: */
  const unsigned char *data; /* the first value */
  const uint32_t *index;     /* texts of an array: where each begins, from data */
  int64_t at;
} hd_meta;

int64_t hd_meta_count(const hd_tensors *tensors);
const hd_meta *hd_meta_at(const hd_tensors *tensors, int64_t i); /* in the order of the file */
const hd_meta *hd_meta_find(const hd_tensors *tensors, const char *key);
const char *hd_meta_type_name(hd_meta_type type); /* "u32", "text", ...; static */

/* A key that must be there, of that kind and in that range (both ends allowed): HEED_E_FORMAT otherwise. An integer may have any integer
 * type, a number any type but bool and text (and is finite). */
heed_status hd_meta_integer(heed_context *context, const hd_tensors *tensors, const char *key, int64_t min, int64_t max, int64_t *out);
heed_status hd_meta_number(heed_context *context, const hd_tensors *tensors, const char *key, double min, double max, double *out);
heed_status hd_meta_bool(heed_context *context, const hd_tensors *tensors, const char *key, bool *out);
heed_status hd_meta_text(heed_context *context, const hd_tensors *tensors, const char *key, heed_text *out); /* UTF-8 is not promised */
/* The same where the key may be absent: then the fallback, which is not checked. */
heed_status hd_meta_integer_or(heed_context *context, const hd_tensors *tensors, const char *key, int64_t fallback, int64_t min,
                               int64_t max, int64_t *out);
heed_status hd_meta_number_or(heed_context *context, const hd_tensors *tensors, const char *key, double fallback, double min, double max,
                              double *out);
heed_status hd_meta_bool_or(heed_context *context, const hd_tensors *tensors, const char *key, bool fallback, bool *out);
heed_status hd_meta_text_or(heed_context *context, const hd_tensors *tensors, const char *key, const char *fallback, heed_text *out);

/* An array that must be there, with elements of that kind (HD_META_I64: any integer type; HD_META_F64: f32 or f64; HD_META_BOOL;
 * HD_META_TEXT). */
heed_status hd_meta_array(heed_context *context, const hd_tensors *tensors, const char *key, hd_meta_type kind, const hd_meta **out);
/* Element i of an array of that kind, 0 ≤ i < count; i = 0 of a single value too. A u64 beyond INT64_MAX is given as INT64_MAX. */
int64_t hd_meta_integer_at(const hd_meta *meta, int64_t i);
double hd_meta_number_at(const hd_meta *meta, int64_t i);
bool hd_meta_bool_at(const hd_meta *meta, int64_t i);
heed_text hd_meta_text_at(const hd_meta *meta, int64_t i);

#endif
