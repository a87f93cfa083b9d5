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

int64_t view_count(const heed_view *view);
/* "[2,8,128,64]"; returns buffer. */
enum { SHAPE_MAX = 160 };
const char *shape_text(int ndim, const int64_t *dim, char buffer[SHAPE_MAX]);

#endif
