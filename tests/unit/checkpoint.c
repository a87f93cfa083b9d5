/* checkpoint: what is saved is found again; every truncation and every flipped bit is noticed and named; whatever step of a save fails or is the last before a crash, the old
 * checkpoint or the new one is there, whole. */
#include "malformed.h"

#include "../../src/io/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <zlib.h>

#define RUN in_folder("run")

enum { ROWS = 32, COLUMNS = 64, ARRAYS = 3 };
static const char *const names[ARRAYS] = {"w", "w.m", "w.v"};

/* ---- a state to save ---------------------------------------------------------------------------------------------------------- */

static float number_at(int64_t step, int array, int i) { return (float)(step * 1000 + array * 100) + (float)i / 64; }

static heed_status save(heed_context *context, int64_t step, const hd_file_system *system) {
  static float data[ARRAYS][ROWS * COLUMNS];
  hd_array array[ARRAYS];
  for (int a = 0; a < ARRAYS; a++) {
    for (int i = 0; i < ROWS * COLUMNS; i++) data[a][i] = number_at(step, a, i);
    array[a] = (hd_array){.name = names[a], .view = heed_view_of(data[a], HEED_F32, 2, (int64_t[]){ROWS, COLUMNS})};
  }
  json_t *json = json_pack("{s:I, s:f, s:s}", "tokens", (json_int_t)(step * 768), "loss", 1.0 / (double)(step + 1), "text", "ü");
  const hd_arrays arrays = {.array = array, .count = ARRAYS};
  const hd_checkpoint_part parts[] = {{.name = "state.safetensors", .arrays = &arrays}, {.name = "state.json", .json = json}};
  heed_status status = hd_checkpoint_save(context, RUN, &(hd_checkpoint_content){step, parts, 2}, system);
  json_decref(json);
  return status;
}

/* Opens the newest and reads all of it; every number is that of its step. */
static heed_status restore(heed_context *context, int64_t *step, char passed_over[1024]) {
  static float data[ARRAYS][ROWS * COLUMNS];
  hd_array array[ARRAYS];
  hd_checkpoint *checkpoint;
  json_t *json;
  *step = -1;
  HD_TRY(hd_checkpoint_open(context, RUN, &checkpoint));
  if (!checkpoint) return HEED_OK;
  for (int a = 0; a < ARRAYS; a++)
    array[a] = (hd_array){.name = names[a], .view = heed_view_of(data[a], HEED_F32, 2, (int64_t[]){ROWS, COLUMNS})};
  heed_status status = hd_checkpoint_arrays(checkpoint, "state.safetensors", array, ARRAYS);
  if (status == HEED_OK) status = hd_checkpoint_json(checkpoint, "state.json", &json);
  if (status == HEED_OK) {
    *step = checkpoint->step;
    if (passed_over) snprintf(passed_over, 1024, "%s", checkpoint->passed_over);
    for (int a = 0; a < ARRAYS; a++)
      for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(data[a][i] == number_at(*step, a, i));
    assert_int_equal(json_integer_value(json_object_get(json, "tokens")), *step * 768);
    assert_true(json_real_value(json_object_get(json, "loss")) == 1.0 / (double)(*step + 1));
    json_decref(json);
  }
  hd_checkpoint_close(checkpoint);
  return status;
}

static void expect_step(heed_context *context, int64_t wanted, const char *passed_over) {
  int64_t step;
  char over[1024] = "";
  ok(context, restore(context, &step, over));
  assert_int_equal(step, wanted);
  if (!passed_over) assert_string_equal(over, "");
  else if (!strstr(over, passed_over)) fail_msg("\"%s\" does not say \"%s\"", over, passed_over);
}

static void start_over(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", RUN);
  assert_int_equal(system(command), 0);
}

/* The names in the run's directory, sorted, each followed by a space. */
static const char *entries(void) {
  static char text[1024];
  struct dirent **found;
  int count = scandir(RUN, &found, NULL, alphasort);
  text[0] = 0;
  for (int i = 0; i < count; i++) {
    if (found[i]->d_name[0] != '.' || found[i]->d_name[1] == 't') strcat(strcat(text, found[i]->d_name), " ");
    free(found[i]);
  }
  if (count >= 0) free(found);
  return text;
}

/* ---- saving and finding ------------------------------------------------------------------------------------------------------- */

static void the_newest_is_found_and_two_stay(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  expect_step(context, -1, NULL); // no directory
  assert_int_equal(mkdir(RUN, 0777), 0);
  expect_step(context, -1, NULL); // an empty one
  for (int64_t step = 10; step <= 50; step += 10) {
    ok(context, save(context, step, NULL));
    expect_step(context, step, NULL);
  }
  assert_string_equal(entries(), "checkpoint-000004 checkpoint-000005 ");
  ok(context, save(context, 20, NULL)); // a run that has gone back is the newest all the same
  expect_step(context, 20, NULL);
  // What is not a checkpoint by name is left alone, what was left aside is not.
  assert_int_equal(mkdir(in_folder("run/checkpoint-best"), 0777), 0);
  assert_int_equal(mkdir(in_folder("run/.tmp-000009"), 0777), 0);
  write_file("run/.tmp-000009/state.json", "x", 1);
  ok(context, save(context, 30, NULL));
  assert_string_equal(entries(), "checkpoint-000006 checkpoint-000007 checkpoint-best ");
  heed_context_free(context);
}

static void a_damaged_one_does_not_count_among_those_that_stay(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  ok(context, save(context, 1, NULL));
  ok(context, save(context, 2, NULL));
  assert_int_equal(truncate(in_folder("run/checkpoint-000002/state.json"), 3), 0);
  expect_step(context, 1, "checkpoint-000002/state.json: has another size (got 3 bytes");
  ok(context, save(context, 3, NULL));
  assert_string_equal(entries(), "checkpoint-000001 checkpoint-000003 ");
  heed_context_free(context);
}

static void content_is_checked_before_anything_is_written(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  json_t *json = json_object();
  const hd_checkpoint_part bad[][2] = {
      {{.name = "a", .json = json}, {.name = "a", .json = json}},
      {{.name = "a/b", .json = json}, {.name = "a", .json = json}},
      {{.name = "manifest.json", .json = json}, {.name = "a", .json = json}},
      {{.name = ".hidden", .json = json}, {.name = "a", .json = json}},
      {{.name = "a", .json = json}, {.name = "b"}},
  };
  start_over();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(hd_checkpoint_save(context, RUN, &(hd_checkpoint_content){1, bad[i], 2}, NULL), HEED_E_ARGUMENT);
  assert_false(hd_file_exists(RUN));
  assert_int_equal(hd_checkpoint_save(context, in_folder("no/such/run"), &(hd_checkpoint_content){1, bad[4], 1}, NULL), HEED_E_WRITE);
  json_decref(json);
  heed_context_free(context);
}

/* ---- damage ----------------------------------------------------------------------------------------------------------------- */

static const char *const files[] = {"manifest.json", "state.json", "state.safetensors"};

/* The newest checkpoint is damaged: the one before is taken and the file named. */
static void expect_noticed(heed_context *context, const char *file, const char *what, int64_t at) {
  int64_t step;
  char over[1024] = "";
  heed_status status = restore(context, &step, over);
  if (status != HEED_OK || step != 1 || !strstr(over, file))
    fail_msg("%s, %s at %lld: %s, step %lld, passed over \"%s\", %s", file, what, (long long)at, heed_status_name(status), (long long)step,
             over, heed_error(context));
}

static void every_truncation_and_flipped_bit_is_noticed(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  ok(context, save(context, 1, NULL));
  ok(context, save(context, 2, NULL));
  for (int f = 0; f < 3; f++) {
    char path[300], *data;
    int64_t size;
    snprintf(path, sizeof path, "%s/checkpoint-000002/%s", RUN, files[f]);
    ok(context, hd_file_load(context, path, 1 << 20, &data, &size));
    for (int64_t length = size - 1; length >= 0;
         length = length > 4096 ? (length - 1) / 4096 * 4096 : length - HD_MIN(length, 64) - (length == 0)) {
      assert_int_equal(truncate(path, length), 0);
      expect_noticed(context, files[f], "truncated", length);
    }
    int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(file, data, (size_t)size, 0), size);
    // Every byte of the small files, and of the arrays' length and header; then some in each array.
    for (int64_t at = 0; at < size; at += at < 400 ? 1 : 97) {
      const char flipped = (char)(data[at] ^ 1 << at % 8);
      assert_int_equal(pwrite(file, &flipped, 1, at), 1);
      expect_noticed(context, files[f], "a bit flipped", at);
      assert_int_equal(pwrite(file, data + at, 1, at), 1);
    }
    assert_int_equal(pwrite(file, "x", 1, size), 1); // one byte too many
    close(file);
    expect_noticed(context, files[f], "longer", size);
    assert_int_equal(unlink(path), 0);
    expect_noticed(context, files[f], "missing", 0);
    write_file(path + strlen(test_folder) + 1, data, (size_t)size);
    hd_release(context, data, size + 1, 1);
    expect_step(context, 2, NULL);
  }
  heed_context_free(context);
}

/* Nothing to go back to is an error, not a fresh start. */
static void damaged_ones_alone_are_an_error(void **state) {
  int64_t step;
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  ok(context, save(context, 1, NULL));
  ok(context, save(context, 2, NULL));
  assert_int_equal(unlink(in_folder("run/checkpoint-000002/manifest.json")), 0);
  assert_int_equal(truncate(in_folder("run/checkpoint-000001/state.safetensors"), 4096), 0);
  assert_int_equal(restore(context, &step, NULL), HEED_E_FORMAT);
  const char *error = heed_error(context);
  assert_non_null(strstr(error, "none of its 2 checkpoints can be used: "));
  assert_non_null(strstr(error, "checkpoint-000002/manifest.json: No such file"));
  assert_non_null(strstr(error, "checkpoint-000001/state.safetensors: has another size (got 4096 bytes"));
  ok(context, save(context, 3, NULL)); // who saves all the same, saves
  expect_step(context, 3, NULL);
  heed_context_free(context);
}

/* A whole one from a later version is not passed over in favour of an older one. */
static void a_later_format_is_not_damage(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  ok(context, save(context, 1, NULL));
  ok(context, save(context, 2, NULL));
  const char *path = in_folder("run/checkpoint-000002/manifest.json");
  json_t *manifest;
  char *text, crc[9];
  int64_t bytes, step;
  ok(context, hd_json_load(context, path, (hd_json_rules){.limit = 1 << 20}, &manifest));
  json_object_set_new(manifest, "format", json_integer(2));
  json_object_del(manifest, "crc32");
  ok(context, hd_json_dump(context, manifest, HD_JSON_INDENTED, &text, &bytes));
  snprintf(crc, sizeof crc, "%08lx", crc32(0, (const Bytef *)text, (uInt)bytes));
  hd_release(context, text, bytes, 1);
  json_object_set_new(manifest, "crc32", json_string(crc));
  ok(context, hd_json_save(context, path, manifest));
  json_decref(manifest);
  assert_int_equal(restore(context, &step, NULL), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "later format (got 2, known: 1)"));
  heed_context_free(context);
}

/* ---- failures --------------------------------------------------------------------------------------------------------------- */

enum { MOST_FILES = 16 };

/* The machine's file system with one step that fails: once, or as the last before a crash. It remembers what was synced: a crash takes the rest. */
typedef struct faulty {
  int64_t calls, fail_at;
  bool crashes;
  int error;
  int64_t room;
  struct {
    char path[300];
    int descriptor;
    bool data_synced, entry_synced;
  } file[MOST_FILES];
  int file_count;
} faulty;

/* Whether this step fails. */
static bool fails(faulty *f) {
  f->calls++;
  if (f->calls != f->fail_at && !(f->crashes && f->calls > f->fail_at)) return false;
  errno = f->error;
  return true;
}

static int faulty_create(void *user, const char *path) {
  faulty *f = user;
  if (fails(f)) return -1;
  int descriptor = hd_machine.create(NULL, path);
  assert_true(f->file_count < MOST_FILES);
  snprintf(f->file[f->file_count].path, sizeof f->file->path, "%s", path);
  f->file[f->file_count++].descriptor = descriptor;
  return descriptor;
}

static ptrdiff_t faulty_write(void *user, int descriptor, const void *data, size_t bytes) {
  if (!fails(user)) return hd_machine.write(NULL, descriptor, data, bytes);
  if (((faulty *)user)->crashes) hd_machine.write(NULL, descriptor, data, bytes / 2);
  errno = ((faulty *)user)->error;
  return -1;
}

static int faulty_sync(void *user, int descriptor) {
  faulty *f = user;
  if (fails(f)) return -1;
  for (int i = 0; i < f->file_count; i++)
    if (f->file[i].descriptor == descriptor) f->file[i].data_synced = true;
  return 0;
}

static int faulty_close(void *user, int descriptor) {
  faulty *f = user;
  const bool failed = fails(f);
  for (int i = 0; i < f->file_count; i++)
    if (f->file[i].descriptor == descriptor) f->file[i].descriptor = -1;
  hd_machine.close(NULL, descriptor); // closed all the same
  errno = f->error;
  return failed ? -1 : 0;
}

static int faulty_rename(void *user, const char *from, const char *to) {
  faulty *f = user;
  const size_t length = strlen(from);
  if (fails(f) || rename(from, to) != 0) return -1;
  for (int i = 0; i < f->file_count; i++) {
    char *path = f->file[i].path, rest[300];
    if (strncmp(path, from, length) != 0 || (path[length] && path[length] != '/')) continue;
    if (!path[length]) f->file[i].entry_synced = false;
    snprintf(rest, sizeof rest, "%s", path + length);
    snprintf(path, sizeof f->file[i].path, "%s%.200s", to, rest);
  }
  return 0;
}

static int faulty_remove(void *user, const char *path) { return fails(user) ? -1 : hd_machine.remove(NULL, path); }

static int faulty_make_directory(void *user, const char *path) { return fails(user) ? -1 : hd_machine.make_directory(NULL, path); }

static int faulty_sync_directory(void *user, const char *path) {
  faulty *f = user;
  const size_t length = strlen(path);
  if (fails(f)) return -1;
  for (int i = 0; i < f->file_count; i++)
    if (strncmp(f->file[i].path, path, length) == 0 && f->file[i].path[length] == '/' && !strchr(f->file[i].path + length + 1, '/'))
      f->file[i].entry_synced = true;
  return 0;
}

static int64_t faulty_room(void *user, const char *path) {
  (void)path;
  return ((faulty *)user)->room;
}

/* What was not synced is gone: the content of files, and files whose names were not. */
static void crash(faulty *f) {
  for (int i = 0; i < f->file_count; i++) {
    if (f->file[i].descriptor >= 0) close(f->file[i].descriptor);
    if (!f->file[i].data_synced) (void)!truncate(f->file[i].path, 0);
    if (!f->file[i].entry_synced) unlink(f->file[i].path);
  }
}

static hd_file_system system_of(faulty *f) {
  return (hd_file_system){f,
                          faulty_create,
                          faulty_write,
                          faulty_sync,
                          faulty_close,
                          faulty_rename,
                          faulty_remove,
                          faulty_make_directory,
                          faulty_sync_directory,
                          faulty_room};
}

/* A run with a checkpoint of step 1, and the save of step 2 with its fault. true: the fault came. */
static bool save_with(heed_context *context, faulty *f, heed_status *status) {
  start_over();
  ok(context, save(context, 1, NULL));
  const hd_file_system system = system_of(f);
  *status = save(context, 2, &system);
  return f->calls >= f->fail_at;
}

static void a_failing_step_leaves_the_old_or_the_new(void **state) {
  heed_status status;
  int64_t n = 1, failed = 0;
  (void)state;
  heed_context *context = test_context(NULL);
  for (;; n++) {
    int64_t step;
    char over[1024] = "";
    faulty f = {.fail_at = n, .error = EIO};
    if (!save_with(context, &f, &status)) break;
    char error[1024];
    snprintf(error, sizeof error, "%s", heed_error(context));
    ok(context, restore(context, &step, over));
    assert_string_equal(over, "");
    assert_string_equal(step == 2 ? "checkpoint-000001 checkpoint-000002 " : "checkpoint-000001 ", entries());
    if (status == HEED_OK) assert_int_equal(step, 2);
    if (status != HEED_OK) {
      failed++;
      assert_int_equal(status, HEED_E_WRITE);
      assert_true(strstr(error, "Input/output error") && strncmp(error, test_folder, strlen(test_folder)) == 0);
    }
  }
  assert_int_equal(status, HEED_OK);
  assert_true(failed > 12); // a write, a sync, a close and a rename of three files, and the directories
  heed_context_free(context);
}

static void a_crash_at_any_step_leaves_the_old_or_the_new(void **state) {
  heed_status status;
  int64_t old = 0, new = 0;
  (void)state;
  heed_context *context = test_context(NULL);
  for (int64_t n = 1;; n++) {
    int64_t step;
    char over[1024] = "";
    faulty f = {.fail_at = n, .error = EIO, .crashes = true};
    if (!save_with(context, &f, &status)) break;
    crash(&f);
    ok(context, restore(context, &step, over));
    assert_string_equal(over, "");
    assert_true(step == 1 || step == 2);
    if (status == HEED_OK) assert_int_equal(step, 2);
    *(step == 1 ? &old : &new) += 1;
    ok(context, save(context, 3, NULL)); // and the run goes on
    expect_step(context, 3, NULL);
    if (strstr(entries(), ".tmp")) fail_msg("left over: %s", entries());
  }
  assert_true(old > 12 && new > 0);
  heed_context_free(context);
}

static void a_full_disk_says_how_much_is_missing(void **state) {
  enum { FREE = 1000 };
  heed_status status;
  struct stat info;
  (void)state;
  heed_context *context = test_context(NULL);
  start_over();
  ok(context, save(context, 1, NULL));
  ok(context, save(context, 2, NULL));
  int64_t all = 0;
  for (int f = 1; f < 3; f++) { // the manifest is not counted before it is written
    char path[300];
    snprintf(path, sizeof path, "%s/checkpoint-000002/%s", RUN, files[f]);
    assert_int_equal(stat(path, &info), 0);
    all += info.st_size;
  }
  // The first write, after the directory and the file have been made.
  faulty f = {.fail_at = 3, .error = ENOSPC, .room = FREE};
  assert_true(save_with(context, &f, &status));
  assert_int_equal(status, HEED_E_WRITE);
  char wanted[200];
  snprintf(wanted, sizeof wanted, "the disk is full: %lld bytes are missing (%lld more to write, %d free)", (long long)(all - FREE),
           (long long)all, FREE);
  if (!strstr(heed_error(context), wanted)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), wanted);
  expect_step(context, 1, NULL);
  heed_context_free(context);
}

static heed_status save_and_restore(heed_context *context, const char *path) {
  int64_t step;
  (void)path;
  HD_TRY(save(context, 7, NULL));
  return restore(context, &step, NULL);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
  (void)state;
  start_over();
  check_out_of_memory(save_and_restore, RUN);
  heed_context *context = test_context(NULL);
  expect_step(context, 7, NULL);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_newest_is_found_and_two_stay),
      cmocka_unit_test(a_damaged_one_does_not_count_among_those_that_stay),
      cmocka_unit_test(content_is_checked_before_anything_is_written),
      cmocka_unit_test(every_truncation_and_flipped_bit_is_noticed),
      cmocka_unit_test(damaged_ones_alone_are_an_error),
      cmocka_unit_test(a_later_format_is_not_damage),
      cmocka_unit_test(a_failing_step_leaves_the_old_or_the_new),
      cmocka_unit_test(a_crash_at_any_step_leaves_the_old_or_the_new),
      cmocka_unit_test(a_full_disk_says_how_much_is_missing),
      cmocka_unit_test(memory_that_runs_out_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
