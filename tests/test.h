/* test.h: what the unit tests share: cmocka, a context, and an assertion that prints the library's own sentence.
 *
 * The environment variable HEED_TEST_LEVEL names the level of every context whose options leave it open, so that a whole test program can be run
 * at each level without a word in it about levels; HEED_TEST_PARALLEL=pthread gives those that leave their threads open three POSIX threads of the host's, which sanitizers
 * understand where they do not know OpenMP. The library itself never reads the environment. */
#ifndef HEED_TEST_H
#define HEED_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pthread_parallel.h"

/* Whether a sanitizer watches every access, which takes ten times as long and more. Tests whose work is in numbers then do a part of their rounds: a sanitizer sees how memory is used, and every round
 * uses it alike. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static inline heed_level test_level(void) {
  const char *name = getenv("HEED_TEST_LEVEL");
  if (!name) return HEED_LEVEL_AUTO;
  heed_level level = heed_level_from_name(name);
  if (level == HEED_LEVEL_AUTO || !heed_level_available(level)) fail_msg("HEED_TEST_LEVEL=%s: no level of this machine", name);
  return level;
}

/* Whether the level gives the bits of all others also where q, k and v are bf16. */
static inline bool exact_in_bf16(heed_level level) { return level != HEED_LEVEL_AVX512BF16 && level != HEED_LEVEL_AMX; }

/* options may be NULL. */
static inline heed_context *test_context(const heed_options *options) {
  heed_options chosen = {.size = sizeof chosen};
  heed_context *context = NULL;
  if (options) memcpy(&chosen, options, options->size);
  chosen.size = sizeof chosen;
  if (chosen.level == HEED_LEVEL_AUTO) chosen.level = test_level();
  const char *parallel = getenv("HEED_TEST_PARALLEL");
  if (parallel && strcmp(parallel, "pthread") != 0) fail_msg("HEED_TEST_PARALLEL=%s: only pthread is known", parallel);
  if (parallel && !chosen.parallel_for) {
    chosen.parallel_for = pthread_parallel;
    if (!chosen.threads) chosen.threads = 3;
  }
  assert_int_equal(heed_context_new(&chosen, &context), HEED_OK);
  return context;
}

/* Fails with heed_error(context) where the call did not succeed. */
#define ok(context, call)                                                                                                                  \
  do {                                                                                                                                     \
    heed_status ok_status = (call);                                                                                                        \
    if (ok_status != HEED_OK) fail_msg("%s: %s (%s)", #call, heed_error(context), heed_status_name(ok_status));                            \
  } while (0)

/* A context of the level, or NULL where this machine lacks it. */
static inline heed_context *level_context(heed_level level, int threads) {
  if (!heed_level_available(level)) return NULL;
  return test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads});
}

#endif
