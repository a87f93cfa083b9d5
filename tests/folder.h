/* folder.h: folders that tests write in. begin_folder and end_folder are one test's own; make_folder and remove_folder are cmocka's set-up and tear-down of a group's, which
 * in_folder and write_file mean. */
#ifndef HEED_FOLDER_H
#define HEED_FOLDER_H

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER_PATH = 64 };

static inline void begin_folder(char path[FOLDER_PATH]) {
  strcpy(path, "heed-test-XXXXXX");
  assert_non_null(mkdtemp(path));
}

static inline void end_folder(const char *path) {
  char command[FOLDER_PATH + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", path);
  assert_int_equal(system(command), 0);
}

static char test_folder[FOLDER_PATH];

static inline int make_folder(void **state) {
  (void)state;
  begin_folder(test_folder);
  return 0;
}

static inline int remove_folder(void **state) {
  (void)state;
  end_folder(test_folder);
  return 0;
}

/* "FOLDER/NAME", one of four static buffers. */
static inline const char *in_folder(const char *name) {
  static char path[4][256];
  static int turn;
  turn = (turn + 1) % 4;
  snprintf(path[turn], sizeof path[turn], "%s/%s", test_folder, name);
  return path[turn];
}

static inline const char *write_file(const char *name, const void *data, size_t size) {
  const char *path = in_folder(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  if (size) assert_int_equal(fwrite(data, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
  return path;
}

#endif
