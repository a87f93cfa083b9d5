/* context.c: one caller's settings: memory, threads, level, callbacks, and the last error. */
#define _GNU_SOURCE
#include "base.h"
#include "cpu.h"

#include <sys/mman.h>

enum { MAX_THREADS = 4096 };

/* No description will be larger; a size beyond it was never set. */
enum { LARGEST_DESCRIPTION = 4096 };

/* From this size on memory begins at a huge page and asks for huge pages: weights are read from end to end for every token, and with pages of 4 KiB
 * a good part of that time goes into finding them. */
enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 * HUGE_PAGE };

static void *default_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  if (bytes >= HUGE_FROM) alignment = HD_MAX(alignment, HUGE_PAGE);
  // aligned_alloc wants a multiple of the alignment.
  if (bytes > SIZE_MAX - alignment) return NULL;
  size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void *memory = aligned_alloc(alignment, whole);
#ifdef MADV_HUGEPAGE
  if (memory && bytes >= HUGE_FROM) madvise(memory, whole, MADV_HUGEPAGE); // a wish: nothing is lost where it is not granted
#endif
  return memory;
}

static void default_release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

static const char *const level_names[] = {
    [HEED_LEVEL_AUTO] = "auto",     [HEED_LEVEL_SCALAR] = "scalar",         [HEED_LEVEL_AVX2] = "avx2", [HEED_LEVEL_AVX2X2] = "avx2x2",
    [HEED_LEVEL_AVX512] = "avx512", [HEED_LEVEL_AVX512BF16] = "avx512bf16", [HEED_LEVEL_AMX] = "amx",   [HEED_LEVEL_NEON] = "neon",
};
_Static_assert(HD_COUNT(level_names) == HEED_LEVEL_COUNT, "every level has a name");

const char *heed_level_name(heed_level level) {
  return level >= 0 && (int64_t)level < HD_COUNT(level_names) ? level_names[level] : "unknown level";
}

heed_level heed_level_from_name(const char *name) {
  for (int i = 0; name && i < HD_COUNT(level_names); i++)
    if (strcmp(name, level_names[i]) == 0) return (heed_level)i;
  return HEED_LEVEL_AUTO;
}

bool heed_level_available(heed_level level) {
  hd_cpu cpu = hd_cpu_read();
  switch (level) {
  case HEED_LEVEL_AUTO:
  case HEED_LEVEL_SCALAR: return true;
  case HEED_LEVEL_AVX2:
  case HEED_LEVEL_AVX2X2: return cpu.avx2;
  case HEED_LEVEL_AVX512: return cpu.avx512;
  case HEED_LEVEL_AVX512BF16: return cpu.avx512bf16;
  case HEED_LEVEL_AMX: return cpu.amx && hd_cpu_allow_amx();
  case HEED_LEVEL_NEON: return cpu.neon;
  }
  return false;
}

static heed_level best_level(void) {
  hd_cpu cpu = hd_cpu_read();
  if (cpu.neon) return HEED_LEVEL_NEON;
  return cpu.avx512 ? HEED_LEVEL_AVX512 : cpu.avx2 ? HEED_LEVEL_AVX2 : HEED_LEVEL_SCALAR;
}

heed_status hd_options_read(heed_context *context, const char *name, const void *given, void *out, size_t size) {
  size_t given_size;
  if (!given) return HEED_OK;
  memcpy(&given_size, given, sizeof given_size);
  HD_REQUIRE(given_size >= sizeof given_size, context, HEED_E_ARGUMENT, "%s: size is not set", name);
  HD_REQUIRE(given_size <= LARGEST_DESCRIPTION, context, HEED_E_ARGUMENT, "%s: size %zu, allowed up to %d", name, given_size,
             LARGEST_DESCRIPTION);
  // A caller built against a later header: what it leaves alone is no concern, what it asks for must not be passed over in silence.
  for (size_t i = size; i < given_size; i++)
    HD_REQUIRE(((const char *)given)[i] == 0, context, HEED_E_UNSUPPORTED, "%s: byte %zu asks for something that version %s does not know",
               name, i, heed_version());
  memcpy(out, given, HD_MIN(given_size, size));
  return HEED_OK;
}

heed_status heed_context_new(const heed_options *given, heed_context **out) {
  if (!out) return HEED_E_ARGUMENT;
  *out = NULL;
  heed_options options = {0};
  HD_TRY(hd_options_read(NULL, "heed_options", given, &options, sizeof options));
  if (options.threads < 0 || options.threads > MAX_THREADS) return HEED_E_ARGUMENT;
  if (!options.allocator.allocate != !options.allocator.release) return HEED_E_ARGUMENT;
  if (!heed_level_available(options.level)) return HEED_E_UNSUPPORTED;
  if (!options.allocator.allocate) options.allocator = (heed_allocator){.allocate = default_allocate, .release = default_release};

  heed_context *context = options.allocator.allocate(options.allocator.user, sizeof *context, HD_ALIGN);
  if (!context) return HEED_E_MEMORY;
  *context = (heed_context){
      .allocator = options.allocator,
      .parallel_for = options.parallel_for ? options.parallel_for : hd_parallel_openmp,
      .parallel_user = options.parallel_user,
      .progress = options.progress,
      .progress_user = options.progress_user,
      .level = options.level == HEED_LEVEL_AUTO ? best_level() : options.level,
      .threads = options.threads ? options.threads : hd_processors(),
  };
  *out = context;
  return HEED_OK;
}

void heed_context_free(heed_context *context) {
  if (context) context->allocator.release(context->allocator.user, context, sizeof *context);
}

const char *heed_error(const heed_context *context) { return context ? context->error : ""; }
heed_level heed_context_level(const heed_context *context) { return context ? context->level : HEED_LEVEL_AUTO; }
int heed_context_threads(const heed_context *context) { return context ? context->threads : 0; }

void heed_context_set_progress(heed_context *context, heed_progress progress, void *user) {
  if (!context) return;
  context->progress = progress;
  context->progress_user = user;
}

heed_status hd_progress(heed_context *context, const char *what, int64_t done, int64_t total) {
  if (context->progress && !context->progress(context->progress_user, what, done, total))
    return hd_fail(context, HEED_E_CANCELLED, "cancelled during %s (%lld of %lld)", what, (long long)done, (long long)total);
  return HEED_OK;
}
