/* cmocka.h of the core's own: as much of cmocka's interface as the tests of the core use, so that they run where there is no such library: on a processor that is
 * only emulated. A failed assertion says where and ends its test; the others go on. */
#ifndef HEED_PLAIN_CMOCKA_H
#define HEED_PLAIN_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
};
#define cmocka_unit_test(function)                                                                                                         \
  { #function, function }

static jmp_buf plain_next;

__attribute__((noreturn)) static inline void plain_fail(const char *file, int line) {
  fprintf(stderr, "\n%s:%d: error: Failure!\n", file, line);
  longjmp(plain_next, 1);
}

#define fail_msg(...) (fprintf(stderr, "ERROR: "), fprintf(stderr, __VA_ARGS__), plain_fail(__FILE__, __LINE__))
#define assert_true(condition)                                                                                                             \
  do {                                                                                                                                     \
    if (!(condition)) fail_msg("%s", #condition);                                                                                          \
  } while (0)
#define assert_false(condition)  assert_true(!(condition))
#define assert_null(pointer)     assert_true((pointer) == NULL)
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_int_equal(a, b)                                                                                                             \
  do {                                                                                                                                     \
    unsigned long long plain_a = (unsigned long long)(a), plain_b = (unsigned long long)(b);                                               \
    if (plain_a != plain_b) fail_msg("%s: %#llx != %#llx", #a, plain_a, plain_b);                                                          \
  } while (0)
#define assert_int_not_equal(a, b) assert_true((unsigned long long)(a) != (unsigned long long)(b))
#define assert_string_equal(a, b)                                                                                                          \
  do {                                                                                                                                     \
    const char *plain_a = (a), *plain_b = (b);                                                                                             \
    if (strcmp(plain_a, plain_b) != 0) fail_msg("\"%s\" != \"%s\"", plain_a, plain_b);                                                     \
  } while (0)
#define assert_memory_equal(a, b, bytes)                                                                                                   \
  do {                                                                                                                                     \
    if (memcmp(a, b, bytes) != 0) fail_msg("%s: bytes differ from %s", #a, #b);                                                            \
  } while (0)

#define assert_memory_not_equal(a, b, bytes)                                                                                               \
  do {                                                                                                                                     \
    if (memcmp(a, b, bytes) == 0) fail_msg("%s: bytes are those of %s", #a, #b);                                                           \
  } while (0)
#define print_message(...) printf(__VA_ARGS__)

/* How many tests failed; what sets them up and takes that down, unless NULL, returns 0 or counts as one that did. */
static inline int plain_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **), int (*teardown)(void **)) {
  void *group = NULL;
  volatile int failed = setup && setup(&group) != 0;
  for (volatile size_t i = 0; i < count; i++) {
    if (setjmp(plain_next) == 0) {
      void *state = group;
      tests[i].run(&state);
      printf("[       OK ] %s\n", tests[i].name);
    } else {
      printf("[  FAILED  ] %s\n", tests[i].name);
      failed = failed + 1;
    }
    fflush(stdout);
  }
  if (teardown && teardown(&group) != 0) failed = failed + 1;
  printf("[==========] %zu test(s) run, %d failed.\n", count, failed);
  return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown) plain_run(tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)

#endif
