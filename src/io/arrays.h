/* arrays.h: named arrays out of memory into safetensors files, and back. */
#ifndef HD_ARRAYS_H
#define HD_ARRAYS_H

#include "json.h"

typedef struct hd_array {
  const char *name; /* printable UTF-8, at most 1024 bytes, unlike all others */
  heed_view view;
  /* NULL: the numbers lie at view.data. Otherwise that is what they are made from when they are written: `bring` fills as many as the view has, whose strides are those of `out`. */
  void (*bring)(heed_context *context, const void *data, float *out);
} hd_array;

/* What one safetensors file holds. Everything is borrowed. */
typedef struct hd_arrays {
  const hd_array *array;
  int64_t count;
  const json_t *metadata; /* an object of texts, or NULL; Hugging Face's transformers wants {"format": "pt"} */
} hd_arrays;

/* Where bytes go. */
typedef heed_status (*hd_put)(void *sink, const void *data, int64_t bytes);

/* A safetensors file ready to be written: its size is known before the first byte is. */
typedef struct hd_safetensors {
  heed_context *context;
  const hd_arrays *arrays;
  char *header; /* length, JSON, padding */
  int64_t header_bytes, bytes;
} hd_safetensors;

/* Tensors are stored row-major in the order of the list, whatever their strides; views must stay until hd_safetensors_put is done. path is for messages.
 * HEED_E_ARGUMENT (a name that no reader would take, or two alike), HEED_E_OVERFLOW, HEED_E_MEMORY, and those of hd_view_check. */
heed_status hd_safetensors_prepare(heed_context *context, const char *path, const hd_arrays *arrays, hd_safetensors *out);
heed_status hd_safetensors_put(const hd_safetensors *file, hd_put put, void *sink);
void hd_safetensors_release(hd_safetensors *file);

/* All of it as a file, written aside: one array after the other goes out, none is copied as a whole. HEED_E_WRITE too. */
heed_status hd_safetensors_save(heed_context *context, const char *path, const hd_arrays *arrays);
/* Fills the views (row-major) from a file that holds exactly these names, types and shapes: HEED_E_FORMAT otherwise, with the views perhaps partly filled; those of
 * hd_tensors_open. */
heed_status hd_safetensors_fill(heed_context *context, const char *path, const hd_array *array, int64_t count);

#endif
