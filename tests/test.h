/* test.h: what the unit tests share: cmocka, a context, and an assertion that prints the library's own sentence. */
#ifndef HEED_TEST_H
#define HEED_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../include/heed/heed.h"

static inline heed_context *test_context(const heed_options *options) {
  heed_context *context = NULL;
  assert_int_equal(heed_context_new(options, &context), HEED_OK);
  return context;
}

/* Fails with heed_error(context) where the call did not succeed. */
#define ok(context, call)                                                                                                                  \
  do {                                                                                                                                     \
    heed_status ok_status = (call);                                                                                                        \
    if (ok_status != HEED_OK) fail_msg("%s: %s (%s)", #call, heed_error(context), heed_status_name(ok_status));                            \
  } while (0)

#endif
