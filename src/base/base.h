/* base.h: what every other file of the library stands on: errors, the context, memory, checked sizes, parallel work.
 *
 * Included first everywhere, because it also switches off floating-point contraction: equal bits on every level (contract 17) need each multiply-add to
 * be fused exactly where the source says so, also in the one-line build, where gcc's default mode would fuse intrinsics too. */
#ifndef HD_BASE_H
#define HD_BASE_H

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include "../../include/heed/types.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HD_MIN(a, b)           ((a) < (b) ? (a) : (b))
#define HD_MAX(a, b)           ((a) > (b) ? (a) : (b))
#define HD_CLAMP(x, low, high) HD_MIN(HD_MAX(x, low), high)
#define HD_COUNT(array)        ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* ---- errors -------------------------------------------------------------------------------------------------------------- */

/* Records the sentence (printf form) and returns status, so that `return hd_fail(...)` reads as one thought. */
__attribute__((format(printf, 3, 4))) heed_status hd_fail(heed_context *context, heed_status status, const char *format, ...);
/* HEED_E_ARGUMENT, with the name, unless least <= value <= most. */
heed_status hd_check_range(heed_context *context, const char *name, int64_t value, int64_t least, int64_t most);

/* Leaves the function early with the first status that is not ok. */
#define HD_TRY(expression)                                                                                                                 \
  do {                                                                                                                                     \
    heed_status hd_try_status = (expression);                                                                                              \
    if (hd_try_status != HEED_OK) return hd_try_status;                                                                                    \
  } while (0)

/* The same where something must be released first: the function has `heed_status status` and a label `done`. */
#define HD_TRY_DONE(expression)                                                                                                            \
  do {                                                                                                                                     \
    if ((status = (expression)) != HEED_OK) goto done;                                                                                     \
  } while (0)

#define HD_REQUIRE(condition, context, status, ...)                                                                                        \
  do {                                                                                                                                     \
    if (!(condition)) return hd_fail(context, status, __VA_ARGS__);                                                                        \
  } while (0)

/* ---- context ------------------------------------------------------------------------------------------------------------- */

#define HD_ERROR_LENGTH 1024

struct heed_context {
  heed_allocator allocator;
  heed_parallel_for parallel_for;
  void *parallel_user;
  heed_progress progress;
  void *progress_user;
  heed_level level;
  int threads;
  struct hd_crew *crew; /* threads that stand by; NULL: none do */
  char error[HD_ERROR_LENGTH];
};

/* HEED_E_CANCELLED if the host's callback says stop. */
heed_status hd_progress(heed_context *context, const char *what, int64_t done, int64_t total);

/* How many workers `count` pieces of work get: as many as there are threads, but none without a piece. Scratch memory needs room for so many. */
int hd_workers(const heed_context *context, int64_t count);
/* Runs body for each i in [0, count), worker in [0, hd_workers(context, count)); serial where that is one. */
void hd_parallel(heed_context *context, int64_t count, heed_parallel_body body, void *argument);
/* The same, where passes over the same rows follow each other: the pieces are shares of the workers, in order, and a worker helps with others' only when its own are taken. So it
 * finds in its cache what the pass before left there. */
void hd_parallel_near(heed_context *context, int64_t count, heed_parallel_body body, void *argument);
/* Carries `lead` out, once, on one thread while the others stand by for what hd_parallel hands out meanwhile; inside another such call, or with one thread, simply calls it. For what
 * hands out much in quick succession: those who stand by keep their processors busy. */
void hd_with_crew(heed_context *context, void (*lead)(void *), void *argument);
/* hd_parallel of who leads; false: the call comes from within a piece, which must do it alone. */
bool hd_crew_run(struct hd_crew *crew, int workers, int64_t count, heed_parallel_body body, void *argument);
/* The default heed_parallel_for: OpenMP where the library is built with it. */
void hd_parallel_openmp(void *user, int threads, int64_t count, heed_parallel_body body, void *argument);
int hd_processors(void);
/* Waits until *counter has reached value, which a piece that has begun will bring about. */
void hd_wait_for(_Atomic int64_t *counter, int64_t value);
/* Between two looks at what somebody else is about to change, `spins` after the first. */
void hd_wait_turn(int64_t spins);

/* Seconds of a steady clock. */
double hd_now(void);

/* A public struct of options, however old the caller's header: its first field is its size, which says how much of it there is. given NULL leaves *out, the defaults, as it
 * is; a size that is not set would too, in silence, and is HEED_E_ARGUMENT. What lies beyond `size` must be 0, else HEED_E_UNSUPPORTED. `name` is for the message. */
heed_status hd_options_read(heed_context *context, const char *name, const void *given, void *out, size_t size);

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

#define HD_ALIGN 64 /* a cache line, and one AVX-512 register */

/* *out_pointer gets count × size bytes aligned to HD_ALIGN through the context's allocator; zero bytes give a valid pointer. HEED_E_MEMORY or HEED_E_OVERFLOW with a sentence
 * that says what the memory was for. */
heed_status hd_allocate(heed_context *context, const char *what, int64_t count, size_t size, void *out_pointer);
/* The caller remembers count and size. memory may be NULL. */
void hd_release(heed_context *context, void *memory, int64_t count, size_t size);
/* Bytes that this process can still get: free memory and swap, within the limits of its control groups and its address space. −1: the system does not say. */
int64_t hd_memory_available(void);
/* HEED_E_MEMORY, with both sizes, where more is wanted than the process can get. */
heed_status hd_memory_check(heed_context *context, const char *what, int64_t bytes);
/* Grows an array that holds *capacity elements to at least need (by half again), keeping its content. */
heed_status hd_grow(heed_context *context, const char *what, void *pointer_to_array, int64_t *capacity, int64_t need, size_t size);

/* The host's memory for libraries that free without saying how much (zlib, libpng, PCRE2): the size stands in front. NULL where there is none. */
void *hd_sized_allocate(const heed_allocator *allocator, size_t bytes);
void hd_sized_release(const heed_allocator *allocator, void *memory);

/* An arena gives memory that is released all at once: one per loaded file, model or picture. Zero is an empty arena. It keeps the allocator, not the context, so it may
 * outlive the context that filled it. */
typedef struct hd_arena {
  heed_allocator allocator;
  struct hd_arena_block *blocks;
  int64_t bytes; /* handed out so far */
  int64_t block; /* bytes of the next blocks that requests share; 0: 64 KiB. Who knows that much more will be asked for may raise it. */
} hd_arena;
void hd_arena_init(hd_arena *arena, const heed_context *context);
void hd_arena_free(hd_arena *arena);
/* Zeroed memory aligned to HD_ALIGN. Errors as hd_allocate, recorded in context. */
heed_status hd_arena_allocate(hd_arena *arena, heed_context *context, const char *what, int64_t count, size_t size, void *out_pointer);
/* A NUL-terminated copy of length bytes. */
heed_status hd_arena_text(hd_arena *arena, heed_context *context, const char *data, size_t length, char **out);

/* ---- checked sizes ------------------------------------------------------------------------------------------------------- */

/* Whether a·b, a+b fit; the result only where they do. Negative operands do not fit. */
static inline bool hd_mul(int64_t a, int64_t b, int64_t *out) { return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out); }
static inline bool hd_add(int64_t a, int64_t b, int64_t *out) { return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out); }
static inline int64_t hd_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* ---- views --------------------------------------------------------------------------------------------------------------- */

/* "[2,8,128,64]" into buffer, for error messages; returns buffer. */
#define HD_SHAPE_LENGTH 160
const char *hd_shape_text(const heed_view *view, char buffer[HD_SHAPE_LENGTH]);
/* Rank in [1,6], dimensions ≥ 0, known type, element count and the span of addresses fit in 64 bits, data not null unless empty, aligned to its element. `name` is for the message. */
heed_status hd_view_check(heed_context *context, const heed_view *view, const char *name);
/* Number of elements of a checked view. */
int64_t hd_view_count(const heed_view *view);
/* Address of element i of a checked view, counted row-major. The slow way. */
char *hd_view_at(const heed_view *view, int64_t i);
/* All rows of a view of rank 2 or more as one matrix of rank 2, row-major; false where they are not evenly spaced. */
bool hd_view_fold(const heed_view *view, heed_view *out);
bool hd_same_shape(const heed_view *a, const heed_view *b);
/* E_TYPE unless f32, f64, f16 or bf16. */
heed_status hd_number(heed_context *context, heed_type type, const char *name);
/* The lowest and one past the highest byte that the view touches (equal if empty). */
void hd_view_span(const heed_view *view, uintptr_t *begin, uintptr_t *end);
/* Whether checked views may share memory. Views that touch different columns of the same rows (packed queries, keys and values) do not; what interleaves in any other way counts as sharing. */
bool hd_views_overlap(const heed_view *a, const heed_view *b);
/* Whether every element of one is the same element of the other. */
bool hd_views_same(const heed_view *a, const heed_view *b);
/* Whether two elements of a checked view may share memory, so that it is no place to write to. Nested axes (slices, transposes, packed heads) never do; axes that interleave in
 * any other way count as sharing. */
bool hd_view_overlaps_itself(const heed_view *view);

/* One element as double, at an address. The slow way: reference, masks, messages. */
double hd_element(const void *address, heed_type type);
void hd_element_store(void *address, heed_type type, double value);

/* IEEE half and bfloat16 to and from f32; to rounds to nearest even and keeps NaN. */
float hd_f16_to_f32(uint16_t half);
uint16_t hd_f32_to_f16(float value);
static inline float hd_bf16_to_f32(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
uint16_t hd_f32_to_bf16(float value);

#endif
