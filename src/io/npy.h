/* npy.h: the .npy format, wherever its bytes come from: a file of its own or an entry of an .npz archive. */
#ifndef HD_NPY_H
#define HD_NPY_H

#include "reader.h"
#include "../../include/heed/model.h"

/* Bytes in order, from the start of one array file. */
typedef struct hd_stream {
  heed_context *context;
  const char *name; /* for messages */
  int64_t size;     /* of the whole */
  heed_status (*read)(struct hd_stream *stream, int64_t bytes, void *out);
  heed_status (*finish)(struct hd_stream *stream); /* after the last byte: nothing may follow, checksums must fit */
  int64_t at;
} hd_stream;

/* What a .npy header says. */
typedef struct hd_npy_head {
  const hd_plain *plain;
  bool big_endian, fortran;
  int ndim; /* 0 is one element */
  int64_t dim[HEED_MAX_DIM];
  int64_t count, header_bytes;
} hd_npy_head;

/* Reads and checks the header, and that the data that follow it have exactly their size. HEED_E_UNSUPPORTED for a type that is not a
 * number heed reads. */
heed_status hd_npy_read_head(hd_stream *stream, hd_npy_head *head);
/* Header and data; a fortran-ordered array comes as a view with the strides of that order, a big-endian one in the machine's order. */
heed_status hd_npy_read(hd_stream *stream, heed_view *out);

/* Whether a path ends like a file that holds several arrays ("x.npz"), or names one in it ("x.npz:name"). */
bool hd_names_container(const char *path);

/* A new array for count elements of a file's type, and where in it the file's bytes go before hd_plain_widen. A single element has rank
 * 1. */
heed_status hd_array_new(heed_context *context, const hd_plain *plain, int ndim, const int64_t *dim, int64_t count, heed_view *out,
                         void **raw);

/* Opens `path` as a stream; close with hd_file_close. */
typedef struct hd_npy_file {
  hd_stream stream; /* first: the callbacks get this address */
  hd_file file;
} hd_npy_file;
heed_status hd_npy_open(heed_context *context, const char *path, hd_npy_file *out);

/* An .npz archive: a zip file whose entries are .npy files. */
typedef struct hd_npz hd_npz;
heed_status hd_npz_open(heed_context *context, const char *path, hd_npz **out);
void hd_npz_close(hd_npz *npz);
int64_t hd_npz_count(const hd_npz *npz);
const char *hd_npz_name(const hd_npz *npz, int64_t i); /* with its ".npy" */
/* −1 where there is none; the ".npy" may be left out. */
int64_t hd_npz_find(const hd_npz *npz, const char *name);
heed_status hd_npz_read_head(hd_npz *npz, int64_t i, hd_npy_head *head);
heed_status hd_npz_read(hd_npz *npz, int64_t i, heed_view *out);

#endif
