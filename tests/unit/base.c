/* base: statuses, context, memory, checked sizes, views, halves, Philox, files. */
#include "test.h"

#include "../../src/base/base.h"
#include "../../src/base/cpu.h"
#include "../../src/base/file.h"
#include "../../src/base/philox.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void philox_known_answers(void **state) {
  (void)state;
  uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u}, out[4];
  hd_philox(zero, 0, out);
  assert_true(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
  hd_philox(ones, ~(uint64_t)0, out);
  assert_true(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
}

static void halves_round_trip(void **state) {
  (void)state;
  for (uint32_t half = 0; half < 65536; half++) {
    float value = hd_f16_to_f32((uint16_t)half);
    if (isnan(value)) {
      assert_true(isnan(hd_f16_to_f32(hd_f32_to_f16(value))));
    } else {
      assert_int_equal(hd_f32_to_f16(value), half);
    }
  }
  assert_int_equal(hd_f32_to_f16(65519.0f), 0x7bff);
  assert_int_equal(hd_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(hd_f32_to_f16(0x1p-25f), 0); // half of the smallest: ties to even
  assert_int_equal(hd_f32_to_f16(0x1.8p-25f), 1);
  assert_int_equal(hd_f32_to_bf16(1.00390625f), 0x3f80); // ties to even
}

static void arena_survives_and_frees(void **state) {
  heed_context *context = test_context(NULL);
  hd_arena arena;
  (void)state;
  hd_arena_init(&arena, context);
  char *small = NULL, *text = NULL;
  double *large = NULL;
  for (int i = 0; i < 1000; i++) {
    ok(context, hd_arena_allocate(&arena, context, "test", i, 1, &small));
    assert_int_equal((uintptr_t)small % HD_ALIGN, 0);
    ok(context, hd_arena_text(&arena, context, "abc", 3, &text));
    assert_string_equal(text, "abc");
  }
  ok(context, hd_arena_allocate(&arena, context, "test", 100000, sizeof *large, &large));
  assert_true(large[99999] == 0);
  assert_int_equal(hd_arena_allocate(&arena, context, "test", INT64_MAX, 8, &large), HEED_E_OVERFLOW);
  hd_arena_free(&arena);
  heed_context_free(context);
}

static void views_are_checked(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  float data[24];
  heed_view view = heed_view_of(data, HEED_F32, 3, (int64_t[]){2, 3, 4});
  ok(context, hd_view_check(context, &view, "x"));
  view.ndim = 7;
  assert_int_equal(hd_view_check(context, &view, "x"), HEED_E_SHAPE);
  view = heed_view_of(data, HEED_F32, 3, (int64_t[]){INT64_MAX / 2, 3, 4});
  assert_int_equal(hd_view_check(context, &view, "x"), HEED_E_OVERFLOW);
  view = heed_view_of(NULL, HEED_F32, 1, (int64_t[]){3});
  assert_int_equal(hd_view_check(context, &view, "x"), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "[3]"));
  view = heed_view_of((char *)data + 1, HEED_F32, 1, (int64_t[]){3});
  assert_int_equal(hd_view_check(context, &view, "x"), HEED_E_LAYOUT);
  view = heed_view_of(data, (heed_type)99, 1, (int64_t[]){3});
  assert_int_equal(hd_view_check(context, &view, "x"), HEED_E_TYPE);
  heed_context_free(context);
}

static void views_that_share_elements(void **state) {
  (void)state;
  float data[24];
  heed_view view = heed_view_of(data, HEED_F32, 3, (int64_t[]){2, 3, 4});
  assert_false(hd_view_overlaps_itself(&view));
  view = heed_view_swap(view, 0, 2);
  assert_false(hd_view_overlaps_itself(&view));
  view.stride[1] = -view.stride[1]; // backwards is as good
  assert_false(hd_view_overlaps_itself(&view));
  view.stride[1] = 3; // one short of the four below it
  assert_true(hd_view_overlaps_itself(&view));
  view.dim[1] = 1; // an axis of one element never steps
  assert_false(hd_view_overlaps_itself(&view));
  view = heed_view_of(data, HEED_F32, 2, (int64_t[]){3, 4});
  view.stride[0] = 0;
  assert_true(hd_view_overlaps_itself(&view));
  view.dim[1] = 0; // no elements, nothing shared
  assert_false(hd_view_overlaps_itself(&view));
  view = (heed_view){data, HEED_U8, 2, {2, 2}, {INT64_MIN, INT64_MAX}};
  assert_false(hd_view_overlaps_itself(&view));
}

/* Packed queries, keys and values share rows and nothing else. */
static void packed_views_do_not_overlap(void **state) {
  (void)state;
  enum { ROWS = 5, HEADS = 2, WIDTH = 3, PACKED = 3 * HEADS * WIDTH };
  float data[ROWS * PACKED + 1];
  heed_view view[3];
  for (int i = 0; i < 3; i++) view[i] = (heed_view){data + i * HEADS * WIDTH, HEED_F32, 3, {HEADS, ROWS, WIDTH}, {WIDTH, PACKED, 1}};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) assert_int_equal(hd_views_overlap(&view[i], &view[j]), i == j);
  view[1].data = data + HEADS * WIDTH - 1; // its first column is the last of view 0
  assert_true(hd_views_overlap(&view[0], &view[1]));
  view[1].dim[1] = 0; // nothing in the middle of something
  assert_false(hd_views_overlap(&view[0], &view[1]) || hd_views_overlap(&view[1], &view[0]));
  view[1].dim[1] = ROWS;
  view[1].data = data + 2 * HEADS * WIDTH + 1; // its last column is the first of view 0's next row
  assert_true(hd_views_overlap(&view[0], &view[1]));
}

/* Small views of every kind in one array: what shares an element must be seen. */
static void overlap_is_never_missed(void **state) {
  (void)state;
  uint64_t next = 0;
  int apart = 0;
  for (int round = 0; round < 20000; round++) {
    bool touched[2][256] = {{false}}, share = false;
    heed_view view[2];
    static char data[256];
    for (int v = 0; v < 2; v++) {
      heed_type type = hd_philox_uniform(9, 0, next++) < 0.5 ? HEED_U8 : HEED_F16;
      int64_t size = (int64_t)heed_type_bytes(type), low = 0;
      view[v] = (heed_view){.type = type, .ndim = 1 + (int)(3 * hd_philox_uniform(9, 0, next++))};
      for (int i = 0; i < view[v].ndim; i++) {
        view[v].dim[i] = 1 + (int64_t)(3 * hd_philox_uniform(9, 0, next++));
        view[v].stride[i] = (int64_t)(17 * hd_philox_uniform(9, 0, next++)) - 4;
        low += view[v].stride[i] < 0 ? (view[v].dim[i] - 1) * view[v].stride[i] : 0;
      }
      view[v].data = data + (-low + (int64_t)(8 * hd_philox_uniform(9, 0, next++))) * size;
      for (int64_t i = 0; i < hd_view_count(&view[v]); i++)
        for (int64_t b = 0; b < size; b++) touched[v][hd_view_at(&view[v], i) - data + b] = true;
    }
    for (int i = 0; i < 256; i++) share |= touched[0][i] && touched[1][i];
    if (share) assert_true(hd_views_overlap(&view[0], &view[1]));
    apart += !hd_views_overlap(&view[0], &view[1]);
  }
  assert_true(apart > 1000);
}

/* A size that is not set would turn every option off in silence. */
/* A batch of rows is one matrix exactly where its rows are evenly spaced; axes of 1 do not matter, whatever their stride. */
static void rows_fold_into_a_matrix(void **state) {
  (void)state;
  float data[2 * 3 * 4 * 5];
  heed_view matrix, view = heed_view_of(data, HEED_F32, 4, (int64_t[]){2, 3, 4, 5});
  const heed_view swapped = heed_view_swap(view, 1, 2), turned = heed_view_swap(view, 2, 3);
  heed_view sliced = view, single = view, reversed = view;
  sliced.dim[2] = 3; // rows of a longer array: a gap after every three
  single.dim[0] = single.dim[1] = 1;
  single.stride[0] = single.stride[1] = 777;
  reversed.data = data + 2 * 3 * 4 * 5 - 5;
  for (int axis = 0; axis < 3; axis++) reversed.stride[axis] = -view.stride[axis];
  const heed_view *const even[] = {&view, &single, &reversed}, *const uneven[] = {&swapped, &turned, &sliced};
  for (int i = 0; i < 3; i++) {
    assert_true(hd_view_fold(even[i], &matrix));
    assert_int_equal(hd_view_count(&matrix), hd_view_count(even[i]));
    for (int64_t j = 0; j < hd_view_count(&matrix); j++) assert_true(hd_view_at(&matrix, j) == hd_view_at(even[i], j));
    assert_false(hd_view_fold(uneven[i], &matrix));
  }
}

static void options_have_a_size(void **state) {
  (void)state;
  heed_context *context = NULL;
  assert_int_equal(heed_context_new(&(heed_options){.threads = 2}, &context), HEED_E_ARGUMENT);
  assert_null(context);
  context = test_context(NULL);
  struct {
    size_t size;
    int64_t first, second;
  } old = {.size = 2 * sizeof(int64_t), .first = 3, .second = 4}, out = {.first = 1, .second = 2};
  ok(context, hd_options_read(context, "old", NULL, &out, sizeof out));
  assert_true(out.first == 1 && out.second == 2);
  ok(context, hd_options_read(context, "old", &old, &out, sizeof out));
  assert_true(out.first == 3 && out.second == 2); // the caller's header did not know the second field
  old.size = 0;
  assert_int_equal(hd_options_read(context, "old", &old, &out, sizeof out), HEED_E_ARGUMENT);
  assert_string_equal(heed_error(context), "old: size is not set");
  heed_context_free(context);
}

static void mark_worker(void *argument, int64_t i, int worker) {
  int *workers = argument;
  workers[i] = worker;
}

/* No more workers than pieces, so that scratch memory for them is not bought for nothing. */
static void workers_have_work(void **state) {
  (void)state;
  heed_options options = {.size = sizeof options, .threads = 64};
  heed_context *context = test_context(&options);
  int workers[3] = {-1, -1, -1};
  assert_int_equal(hd_workers(context, 3), 3);
  assert_int_equal(hd_workers(context, 0), 1);
  assert_int_equal(hd_workers(context, INT64_MAX), 64);
  hd_parallel(context, 3, mark_worker, workers);
  for (int i = 0; i < 3; i++) assert_true(workers[i] >= 0 && workers[i] < 3);
  heed_context_free(context);
}

struct visits {
  atomic_int count[200], worker[200];
};

static void visit_piece(void *argument, int64_t i, int worker) {
  struct visits *visits = argument;
  atomic_fetch_add(&visits->count[i], 1);
  atomic_store(&visits->worker[i], worker);
}

/* Every piece runs once, by a worker that has scratch memory, also where more workers than shares take part. */
static void near_pieces_run_once(void **state) {
  (void)state;
  const int threads[] = {1, 2, 3, 64, 70};
  const int64_t counts[] = {0, 1, 3, 69, 200};
  for (int t = 0; t < HD_COUNT(threads); t++) {
    heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = threads[t]});
    for (int c = 0; c < HD_COUNT(counts); c++) {
      struct visits visits;
      for (int i = 0; i < 200; i++) atomic_init(&visits.count[i], 0), atomic_init(&visits.worker[i], -1);
      hd_parallel_near(context, counts[c], visit_piece, &visits);
      for (int i = 0; i < 200; i++) {
        assert_int_equal(atomic_load(&visits.count[i]), i < counts[c]);
        assert_true(atomic_load(&visits.worker[i]) < hd_workers(context, counts[c]));
      }
    }
    heed_context_free(context);
  }
}

/* One piece after another, the last first. */
static void backwards(void *user, int threads, int64_t count, heed_parallel_body body, void *argument) {
  (void)user, (void)threads;
  for (int64_t i = count - 1; i >= 0; i--) body(argument, i, 0);
}

struct led {
  heed_context *context;
  int led;
};

static void nested_piece(void *argument, int64_t i, int worker) {
  struct led *led = argument;
  struct visits visits = {0};
  (void)i, (void)worker;
  hd_parallel(led->context, 5, visit_piece, &visits);
  for (int k = 0; k < 200; k++) assert_int_equal(atomic_load(&visits.count[k]), k < 5);
}

static void lead_again(void *argument) { ++((struct led *)argument)->led; }

/* Work of all sizes, hundreds of times, so that those who stand by come early, late and not at all. */
static void lead(void *argument) {
  struct led *led = argument;
  const int64_t counts[] = {0, 1, 2, 3, 69, 200};
  led->led++;
  for (int n = 0; n < 300; n++) {
    const int64_t count = counts[n % HD_COUNT(counts)];
    struct visits visits;
    for (int i = 0; i < 200; i++) atomic_init(&visits.count[i], 0), atomic_init(&visits.worker[i], -1);
    (n % 2 ? hd_parallel : hd_parallel_near)(led->context, count, visit_piece, &visits);
    for (int i = 0; i < 200; i++) {
      assert_int_equal(atomic_load(&visits.count[i]), i < count);
      assert_true(atomic_load(&visits.worker[i]) < hd_workers(led->context, count));
    }
  }
  hd_parallel(led->context, 7, nested_piece, led);
  hd_with_crew(led->context, lead_again, led);
}

/* What hd_parallel promises holds while threads stand by, whatever the host makes of its pieces. */
static void crews_do_all_pieces(void **state) {
  (void)state;
  const struct {
    int threads;
    heed_parallel_for parallel_for;
  } hosts[] = {{1, NULL}, {2, NULL}, {3, NULL}, {8, NULL}, {4, backwards}, {3, pthread_parallel}};
  for (int h = 0; h < HD_COUNT(hosts); h++) {
    heed_context *context =
        test_context(&(heed_options){.size = sizeof(heed_options), .threads = hosts[h].threads, .parallel_for = hosts[h].parallel_for});
    struct led led = {.context = context};
    for (int n = 0; n < 3; n++) hd_with_crew(context, lead, &led);
    assert_int_equal(led.led, 6);
    heed_context_free(context);
  }
}

static void files_are_written_aside(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  char path[] = "base-test-XXXXXX", *data;
  int descriptor = mkstemp(path);
  int64_t size;
  assert_true(descriptor >= 0 && write(descriptor, "old", 3) == 3); // mkstemp makes it 0600
  close(descriptor);
  hd_writer writer;
  ok(context, hd_writer_begin(context, path, &writer));
  ok(context, hd_writer_write(&writer, "newer", 5));
  hd_writer_abandon(&writer);
  ok(context, hd_file_load(context, path, 100, &data, &size));
  assert_string_equal(data, "old");
  hd_release(context, data, size + 1, 1);
  ok(context, hd_writer_begin(context, path, &writer));
  ok(context, hd_writer_write(&writer, "newer", 5));
  ok(context, hd_writer_commit(&writer));
  ok(context, hd_file_load(context, path, 100, &data, &size));
  assert_string_equal(data, "newer");
  struct stat info;
  assert_true(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600); // a private file stays private
  hd_release(context, data, size + 1, 1);
  hd_writer first, second; // of the same file at the same time: each is whole, the last one stays
  ok(context, hd_writer_begin(context, path, &first));
  ok(context, hd_writer_begin(context, path, &second));
  ok(context, hd_writer_write(&first, "first", 5));
  ok(context, hd_writer_write(&second, "second", 6));
  ok(context, hd_writer_commit(&first));
  ok(context, hd_writer_commit(&second));
  ok(context, hd_file_load(context, path, 100, &data, &size));
  assert_string_equal(data, "second");
  hd_release(context, data, size + 1, 1);
  assert_int_equal(hd_file_load(context, path, 4, &data, &size), HEED_E_FORMAT);
  assert_int_equal(hd_file_load(context, "/", 4, &data, &size), HEED_E_FILE);
  unlink(path);
  heed_context_free(context);
}

static void levels_have_names(void **state) {
  (void)state;
  assert_int_equal(heed_level_from_name("avx512"), HEED_LEVEL_AVX512);
  assert_int_equal(heed_level_from_name("sse9"), HEED_LEVEL_AUTO);
  for (heed_level level = HEED_LEVEL_AUTO; level < HEED_LEVEL_COUNT; level++)
    assert_int_equal(heed_level_from_name(heed_level_name(level)), level);
  assert_string_equal(heed_level_name(HEED_LEVEL_COUNT), "unknown level");
  assert_false(heed_level_available(HEED_LEVEL_COUNT));
  assert_true(heed_level_available(HEED_LEVEL_SCALAR));
  printf("levels that run natively here:");
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level)) printf(" %s", heed_level_name(level));
  printf(" (%s)\n", hd_cpu_read().model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_known_answers),    cmocka_unit_test(halves_round_trip),         cmocka_unit_test(arena_survives_and_frees),
      cmocka_unit_test(views_are_checked),       cmocka_unit_test(views_that_share_elements), cmocka_unit_test(packed_views_do_not_overlap),
      cmocka_unit_test(overlap_is_never_missed), cmocka_unit_test(rows_fold_into_a_matrix),   cmocka_unit_test(options_have_a_size),
      cmocka_unit_test(workers_have_work),       cmocka_unit_test(near_pieces_run_once),      cmocka_unit_test(files_are_written_aside),
      cmocka_unit_test(levels_have_names),       cmocka_unit_test(crews_do_all_pieces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
