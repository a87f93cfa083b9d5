/* types.h: what every other header of heed stands on: status, context, views of arrays. heed.h includes it. */
#ifndef HEED_TYPES_H
#define HEED_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HEED_API __attribute__((visibility("default")))
#else
#define HEED_API
#endif

#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------------------------------------------------------- */

/* Every status: X(name, text). One line expands to an enumerator HEED_<name> and to its text in heed_status_text. */
#define HEED_STATUS_LIST(X)                                                                                                                \
  X(OK, "ok")                                                                                                                              \
  X(E_ARGUMENT, "an argument is null, out of range or contradicts another")                                                                \
  X(E_SHAPE, "shapes do not fit together")                                                                                                 \
  X(E_TYPE, "this element type is not taken here")                                                                                         \
  X(E_LAYOUT, "this memory layout cannot be read or written")                                                                              \
  X(E_OVERLAP, "an output overlaps another array")                                                                                         \
  X(E_OVERFLOW, "a size does not fit in 64 bits")                                                                                          \
  X(E_MEMORY, "out of memory")                                                                                                             \
  X(E_FILE, "a file cannot be opened or read")                                                                                             \
  X(E_WRITE, "an output cannot be written")                                                                                                \
  X(E_FORMAT, "a file is malformed")                                                                                                       \
  X(E_UNSUPPORTED, "well formed, but not supported")                                                                                       \
  X(E_CANCELLED, "cancelled by the progress callback")

typedef enum heed_status {
#define HEED_STATUS_ENUM(name, text) HEED_##name,
  HEED_STATUS_LIST(HEED_STATUS_ENUM)
#undef HEED_STATUS_ENUM
} heed_status;

/* "HEED_E_SHAPE" and "shapes do not fit together"; static strings, also for values outside the list. */
HEED_API const char *heed_status_name(heed_status status);
HEED_API const char *heed_status_text(heed_status status);

/* "0.1.0" of the library that is running (the macros above are those it was compiled against). */
HEED_API const char *heed_version(void);

/* ---- context ------------------------------------------------------------------------------------------------------------ */

/* An instruction set level. AUTO is the best that the CPU and the operating system allow. AVX2X2 runs the 16-lane bodies of AVX-512
 * on pairs of AVX2 registers; it exists for tests and is never chosen by AUTO. NEON is that of AArch64. All these give the same
 * bits. AVX512BF16 and AMX do too, except where q, k and v are all bf16 and there are several queries: there the forward pass multiplies pairs of bf16 (VDPBF16PS,
 * TDPBF16PS) and rounds each row's weights, relative to its maximum so far, to bf16 before they meet V. An output is then within max |v| / 256 of the formula; lse is
 * as precise as on the other levels. They are never chosen by AUTO. For AMX the system is asked, once a process, for the use of its registers. */
typedef enum heed_level {
  HEED_LEVEL_AUTO,
  HEED_LEVEL_SCALAR,
  HEED_LEVEL_AVX2,
  HEED_LEVEL_AVX2X2,
  HEED_LEVEL_AVX512,
  HEED_LEVEL_AVX512BF16,
  HEED_LEVEL_AMX,
  HEED_LEVEL_NEON
} heed_level;
/* Values of heed_level: those from HEED_LEVEL_SCALAR up to it are all levels there are. */
#define HEED_LEVEL_COUNT 8

/* "scalar", "avx2", ...; heed_level_from_name returns HEED_LEVEL_AUTO for an unknown name (and for "auto"). */
HEED_API const char *heed_level_name(heed_level level);
HEED_API heed_level heed_level_from_name(const char *name);
/* Whether this CPU, under this operating system, runs the level. */
HEED_API bool heed_level_available(heed_level level);

/* The host's memory. allocate returns at least `bytes` bytes aligned to `alignment` (a power of two, at most 4096) or NULL; release gets
 * the same bytes back. Both may be called from any thread. */
typedef struct heed_allocator {
  void *user;
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes);
} heed_allocator;

/* Runs body(argument, i, worker) once for each i in [0, count), in any order, on any threads, and returns when all have returned.
 * worker is in [0, threads) and no two calls that run at the same time share it. A piece may last as long as a whole pass of a learner: one of them carries it out, the others
 * stand by for parts of it, and none waits for one that has not begun. */
typedef void (*heed_parallel_body)(void *argument, int64_t i, int worker);
typedef void (*heed_parallel_for)(void *user, int threads, int64_t count, heed_parallel_body body, void *argument);

/* Called from the caller's thread during long work: done of total units of `what` ("attention", "load", "prefill", "generate"). Return false to
 * cancel: the call then returns HEED_E_CANCELLED. */
typedef bool (*heed_progress)(void *user, const char *what, int64_t done, int64_t total);

typedef struct heed_options {
  size_t size;                    /* sizeof (heed_options) */
  int threads;                    /* 0: all processors that this process may use */
  heed_level level;               /* AUTO: the best; a level the CPU lacks is refused */
  heed_allocator allocator;       /* zero: malloc and free */
  heed_parallel_for parallel_for; /* NULL: OpenMP (serial inside a parallel region, and where the library was built without it) */
  void *parallel_user;
  heed_progress progress; /* NULL: none */
  void *progress_user;
} heed_options;

typedef struct heed_context heed_context;

/* options may be NULL. HEED_E_ARGUMENT, HEED_E_UNSUPPORTED (level), HEED_E_MEMORY; *out is NULL on error. */
HEED_API heed_status heed_context_new(const heed_options *options, heed_context **out);
HEED_API void heed_context_free(heed_context *context);
/* The sentence that explains the last error of this context ("" if none); borrowed until the next call with this context. */
HEED_API const char *heed_error(const heed_context *context);
HEED_API heed_level heed_context_level(const heed_context *context);
HEED_API int heed_context_threads(const heed_context *context);
/* Replaces the progress callback; NULL removes it. */
HEED_API void heed_context_set_progress(heed_context *context, heed_progress progress, void *user);

/* ---- views -------------------------------------------------------------------------------------------------------------- */

typedef enum heed_type { HEED_F32, HEED_F64, HEED_F16, HEED_BF16, HEED_I64, HEED_I32, HEED_U8, HEED_BOOL } heed_type;

HEED_API const char *heed_type_name(heed_type type); /* "f32", ... */
HEED_API size_t heed_type_bytes(heed_type type);     /* of one element; 0 for a value outside the list */

#define HEED_MAX_DIM 6

/* An array somebody else owns. Strides count elements and may be zero or negative; dim and stride beyond ndim are ignored. */
typedef struct heed_view {
  void *data;
  heed_type type;
  int ndim;
  int64_t dim[HEED_MAX_DIM];
  int64_t stride[HEED_MAX_DIM];
} heed_view;

/* A row-major view of data: the last dimension is contiguous. */
HEED_API heed_view heed_view_of(void *data, heed_type type, int ndim, const int64_t *dim);
/* The same array with two axes exchanged ([B,n,H,d] as [B,H,n,d]); axes outside the view leave it unchanged. */
HEED_API heed_view heed_view_swap(heed_view view, int axis_a, int axis_b);

/* ---- activations -------------------------------------------------------------------------------------------------------- */

/* What feed-forward layers put between their products (heed/nn.h). GELU is the exact form, x Φ(x); GELU_TANH is GPT-2's approximation of it, "gelu_new". */
typedef enum heed_activation {
  HEED_ACTIVATION_RELU,
  HEED_ACTIVATION_SILU,
  HEED_ACTIVATION_GELU_TANH,
  HEED_ACTIVATION_GELU,
  HEED_ACTIVATION_TANH,
  HEED_ACTIVATION_SIGMOID
} heed_activation;

#ifdef __cplusplus
}
#endif
#endif
