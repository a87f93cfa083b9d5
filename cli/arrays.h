/* arrays.h: arrays that a command reads, makes and writes: a view and whoever owns its memory. */
#ifndef CLI_ARRAYS_H
#define CLI_ARRAYS_H

#include "output.h"

#include "heed/model.h"

typedef struct array {
  heed_view view;
  heed_context *loaded_by; /* the library owns the memory; NULL: the command does */
} array;

/* A .npy file, or one array of an .npz or .safetensors as "file.npz:name". */
int array_load(heed_context *context, const char *path, array *out);
/* A row-major array of zeros. EXIT_NO_MEMORY where its size does not fit. */
int array_new(const char *what, heed_type type, int ndim, const int64_t *dim, array *out);
/* Numbers in (−1, 1) that look like nothing; they repeat after a few ten thousand, which no measurement sees. f32, f16 or bf16. */
int array_random(const char *what, heed_type type, int ndim, const int64_t *dim, uint64_t seed, array *out);
/* Replaces an array of floating-point numbers by its copy in f32, f16 or bf16, each rounded once to nearest even; one that has this type stays as it is. */
int array_convert(array *a, heed_type type);
/* As heed_array_save, but path "-" is standard output. */
int array_save(heed_context *context, const char *path, const heed_view *view);
void array_free(array *a);

/* What a call of attention works on: queries [batch,heads,queries,head_dim], keys and values [batch,kv_heads,keys,...] and the gradient of out are random numbers, the rest is room: out as queries with
 * value_dim, lse f32, a gradient as what it is of. The last four only where gradients are wanted. */
typedef struct attention_shape {
  heed_type type;
  int64_t batch, heads, kv_heads, queries, keys, head_dim, value_dim;
} attention_shape;
typedef struct attention_arrays {
  array q, k, v, out, lse, dout, dq, dk, dv;
} attention_arrays;
/* What it has made before an error is for attention_arrays_free as well. */
int attention_arrays_new(const attention_shape *shape, bool gradients, uint64_t seed, attention_arrays *out);
void attention_arrays_free(attention_arrays *a);

void sort_numbers(double *x, int64_t count); /* ascending */
int64_t view_count(const heed_view *view);
/* "[2,8,128,64]"; returns buffer. */
enum { SHAPE_MAX = 160 };
const char *shape_text(int ndim, const int64_t *dim, char buffer[SHAPE_MAX]);

#endif
