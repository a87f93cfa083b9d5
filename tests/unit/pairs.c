/* pairs: batches of pairs have the promised columns, show every pair once a round, waste little on padding, and follow from seed and number alone; tasks of pairs are the same for the same
 * seed, and what is held out is never shown. */
#include "../../src/base/base.h"
#include "../../include/heed/train.h"
#include "../counting_allocator.h"

#include <stdio.h>

/* ---- a set of pairs ----------------------------------------------------------------------------------------------------------------- */

enum { PAIRS = 1000, LONGEST = 40, WIDTH = LONGEST, ROOM = LONGEST + 5, LENGTH = WIDTH + ROOM, START = 7000, END = 7001 };

/* Pair i has the ids i, 0, 0, ... on both sides, so that a row says which pair it is; lengths look like nothing. */
typedef struct set {
  int32_t source[PAIRS * LONGEST], target[PAIRS * ROOM];
  int64_t source_begin[PAIRS + 1], target_begin[PAIRS + 1], order[PAIRS];
  heed_pair_data data;
} set;

static int64_t length_at(int64_t i) { return 1 + (i * 7919 + i * i % 977) % LONGEST; }

static set *new_set(heed_context *context, int64_t count) {
  set *s = calloc(1, sizeof *s);
  for (int64_t i = 0; i < count; i++) {
    const int64_t n = length_at(i), m = n > 2 ? n - 2 + i % 5 : n;
    s->source_begin[i + 1] = s->source_begin[i] + n;
    s->target_begin[i + 1] = s->target_begin[i] + m;
    s->source[s->source_begin[i]] = s->target[s->target_begin[i]] = (int32_t)i;
  }
  s->data = (heed_pair_data){.source = s->source,
                             .target = s->target,
                             .source_begin = s->source_begin,
                             .target_begin = s->target_begin,
                             .count = count,
                             .width = WIDTH,
                             .start = START,
                             .end = END};
  ok(context, heed_pair_order(context, &s->data, s->order));
  s->data.order = s->order;
  return s;
}

typedef struct rows {
  int32_t ids[64 * LENGTH], targets[64 * LENGTH];
} rows;

/* A row is that of its pair, whole, and says so in every column. Returns the pair; −1: padding alone. */
static int64_t check_row(const set *s, const int32_t *ids, const int32_t *targets) {
  const int64_t pair = ids[0];
  if (pair < 0) {
    for (int64_t i = 0; i < LENGTH; i++) assert_true(ids[i] == -1 && targets[i] == -1);
    return -1;
  }
  const int64_t n = s->source_begin[pair + 1] - s->source_begin[pair], m = s->target_begin[pair + 1] - s->target_begin[pair];
  for (int64_t i = 0; i < WIDTH; i++) {
    assert_int_equal(ids[i], i == 0 ? pair : i < n ? 0 : -1);
    assert_int_equal(targets[i], -1);
  }
  for (int64_t i = 0; i < ROOM; i++) {
    assert_int_equal(ids[WIDTH + i], i == 0 ? START : i == 1 ? pair : i <= m ? 0 : -1);
    assert_int_equal(targets[WIDTH + i], i == m ? END : i > m ? -1 : i == 0 ? pair : 0);
  }
  return pair;
}

static int64_t used(const int32_t *ids, int64_t columns) {
  int64_t n = 0;
  while (n < columns && ids[n] >= 0) n++;
  return n;
}

/* Each pair of a round is counted in seen; *waste: the share of places within the longest rows of a batch that are padding. */
static void check_round(set *s, heed_batch_fn source, int64_t round, int64_t batch, int *seen, double *waste) {
  rows *r = malloc(sizeof *r);
  const int64_t batches = heed_pair_batches(&s->data, batch);
  double places = 0, filled = 0;
  for (int64_t b = 0; b < batches; b++) {
    int64_t longest[2] = {0, 0};
    source(&s->data, 5, round * batches + b, batch, LENGTH, r->ids, r->targets);
    for (int64_t row = 0; row < batch; row++) {
      const int32_t *ids = r->ids + row * LENGTH;
      const int64_t pair = check_row(s, ids, r->targets + row * LENGTH), n = used(ids, WIDTH), m = used(ids + WIDTH, ROOM);
      if (pair >= 0) seen[pair]++;
      longest[0] = HD_MAX(longest[0], n);
      longest[1] = HD_MAX(longest[1], m);
      filled += (double)(n + m);
    }
    places += (double)(batch * (longest[0] + longest[1]));
  }
  *waste = 1 - filled / places;
  free(r);
}

static void test_each_pair_once_a_round(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static const int64_t counts[] = {1, 2, 31, 32, 33, 999, PAIRS}, batches[] = {1, 7, 32, 64};
  for (int64_t c = 0; c < HD_COUNT(counts); c++) {
    set *s = new_set(context, counts[c]);
    for (int64_t k = 0; k < 2 * HD_COUNT(batches); k++) {
      const int64_t batch = batches[k / 2];
      double waste;
      s->data.order = k % 2 ? NULL : s->order;
      assert_int_equal(heed_pair_batches(&s->data, batch), (counts[c] + batch - 1) / batch);
      for (int64_t round = 0; round < 3; round++) {
        int seen[PAIRS] = {0}, again[PAIRS] = {0};
        check_round(s, heed_pair_batch, round, batch, seen, &waste);
        if (round == 0) check_round(s, heed_pair_row_batch, 0, batch, again, &waste);
        for (int64_t i = 0; i < counts[c]; i++) assert_true(seen[i] == 1 && (round > 0 || again[i] == 1));
      }
    }
    free(s);
  }
  heed_context_free(context);
}

/* Lengths are uniform in [1, 40]: batches of 32 as they stand are a third padding and more. */
static void test_little_padding(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  set *s = new_set(context, PAIRS);
  int seen[PAIRS] = {0};
  double sorted, mixed;
  check_round(s, heed_pair_batch, 0, 16, seen, &sorted);
  s->data.order = NULL;
  check_round(s, heed_pair_batch, 0, 16, seen, &mixed);
  if (sorted > 0.12 || mixed < 0.35) fail_msg("padding: %.3f by length, %.3f without", sorted, mixed);
  free(s);
  heed_context_free(context);
}

static void test_rounds_and_seeds_differ(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  set *s = new_set(context, PAIRS);
  rows *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  const int64_t batches = heed_pair_batches(&s->data, 32);
  heed_pair_batch(&s->data, 5, 3, 32, LENGTH, a->ids, a->targets);
  heed_pair_batch(&s->data, 5, 3, 32, LENGTH, b->ids, b->targets);
  assert_memory_equal(a->ids, b->ids, 32 * LENGTH * sizeof *a->ids);
  heed_pair_batch(&s->data, 5, 3 + batches, 32, LENGTH, b->ids, b->targets);
  assert_memory_not_equal(a->ids, b->ids, 32 * LENGTH * sizeof *a->ids);
  heed_pair_batch(&s->data, 6, 3, 32, LENGTH, b->ids, b->targets);
  assert_memory_not_equal(a->ids, b->ids, 32 * LENGTH * sizeof *a->ids);
  // Who stands beside pair 0 changes from round to round.
  int64_t neighbours = 0;
  bool met[PAIRS] = {false};
  for (int64_t n = 0; n < 8 * batches; n++) {
    bool has = false;
    heed_pair_batch(&s->data, 5, n, 32, LENGTH, a->ids, a->targets);
    for (int64_t row = 0; row < 32; row++) has |= a->ids[row * LENGTH] == 0;
    for (int64_t row = 0; row < 32 && has; row++) {
      const int32_t pair = a->ids[row * LENGTH];
      if (pair > 0 && !met[pair]) neighbours += met[pair] = true;
    }
  }
  assert_true(neighbours > 50);
  free(a);
  free(b);
  free(s);
  heed_context_free(context);
}

static void test_too_long_is_cut(void **state) {
  (void)state;
  const int32_t source[] = {1, 2, 3, 4}, target[] = {5, 6, 7};
  const int64_t source_begin[] = {0, 4}, target_begin[] = {0, 3};
  heed_pair_data data = {source, target, source_begin, target_begin, 1, 3, START, END, NULL};
  int32_t ids[6], targets[6];
  heed_pair_row_batch(&data, 0, 0, 1, 6, ids, targets);
  assert_memory_equal(ids, ((int32_t[]){1, 2, 3, START, 5, 6}), sizeof ids);
  assert_memory_equal(targets, ((int32_t[]){-1, -1, -1, 5, 6, 7}), sizeof targets);
}

static void test_order_refuses(void **state) {
  (void)state;
  ledger l;
  heed_context *context = ledger_context(&l, 1);
  set *s = new_set(context, 10);
  assert_int_equal(heed_pair_order(context, NULL, s->order), HEED_E_ARGUMENT);
  assert_int_equal(heed_pair_order(context, &s->data, NULL), HEED_E_ARGUMENT);
  const int64_t held = l.live;
  l.budget = 0;
  assert_int_equal(heed_pair_order(context, &s->data, s->order), HEED_E_MEMORY);
  assert_int_equal(l.live, held);
  free(s);
  heed_context_free(context);
}

/* ---- tasks --------------------------------------------------------------------------------------------------------------------------- */

static heed_pair_task finished(heed_context *context, heed_pair_task task) {
  task.size = sizeof task;
  ok(context, heed_pair_task_finish(context, &task));
  return task;
}

static void test_same_seed_same_pair(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_pair *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  int64_t tasks = 0;
  for (const char *name; (name = heed_pair_task_name(tasks)); tasks++) {
    const heed_pair_task task = finished(context, (heed_pair_task){.name = name});
    int64_t same = 0;
    for (int64_t i = 0; i < 200; i++) {
      memset(b, 0xA5, sizeof *b);
      heed_pair_task_make(&task, 9, i, a);
      heed_pair_task_make(&task, 9, i, b);
      assert_string_equal(a->source, b->source);
      assert_string_equal(a->target, b->target);
      assert_int_equal(a->link_count, b->link_count);
      for (int64_t k = 0; k < a->link_count; k++)
        assert_true(a->links[k].source == b->links[k].source && a->links[k].target == b->links[k].target &&
                    a->links[k].possible == b->links[k].possible);
      assert_true(a->source[0] && a->target[0]);
      heed_pair_task_make(&task, 10, i, b);
      same += !strcmp(a->source, b->source);
    }
    assert_true(same < 40);
  }
  assert_int_equal(tasks, 5);
  free(a);
  free(b);
  heed_context_free(context);
}

typedef struct {
  char text[HEED_PAIR_BYTES];
} line;

static int compare_lines(const void *a, const void *b) { return strcmp(a, b); }

/* Of a date what is held out is the date, of a number the number; of the rest the source. */
static const char *question_of(const char *task, const heed_pair *pair) {
  return !strcmp(task, "dates") ? pair->target : !strcmp(task, "numbers") ? pair->source + 3 : pair->source;
}

static void test_held_out_is_never_shown(void **state) {
  (void)state;
  enum { COUNT = 4000 };
  heed_context *context = test_context(NULL);
  heed_pair *pair = malloc(sizeof *pair);
  line *shown = malloc(COUNT * sizeof *shown);
  const char *name;
  for (int64_t k = 0; (name = heed_pair_task_name(k)); k++) {
    heed_pair_task task = finished(context, (heed_pair_task){.name = name});
    int64_t both = 0, different = 0;
    for (int64_t i = 0; i < COUNT; i++) {
      heed_pair_task_make(&task, 1, i, pair);
      strcpy(shown[i].text, question_of(name, pair));
    }
    qsort(shown, COUNT, sizeof *shown, compare_lines);
    for (int64_t i = 1; i < COUNT; i++) different += strcmp(shown[i - 1].text, shown[i].text) != 0;
    task.held_out = true;
    for (int64_t i = 0; i < COUNT; i++) {
      line question;
      heed_pair_task_make(&task, 1, i, pair);
      strcpy(question.text, question_of(name, pair));
      both += bsearch(&question, shown, COUNT, sizeof *shown, compare_lines) != NULL;
    }
    assert_int_equal(both, 0);
    assert_true(different > COUNT / 2);
  }
  free(shown);
  free(pair);
  heed_context_free(context);
}

static void test_strings(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_pair *pair = malloc(sizeof *pair);
  for (int doubled = 0; doubled < 2; doubled++) {
    const heed_pair_task task =
        finished(context, (heed_pair_task){.name = doubled ? "double" : "reverse", .least = 3, .most = 200, .symbols = 4});
    bool least = false, most = false;
    for (int64_t i = 0; i < 2000; i++) {
      heed_pair_task_make(&task, 3, i, pair);
      const int64_t n = (int64_t)strlen(pair->source), m = (int64_t)strlen(pair->target);
      assert_true(n >= 3 && n <= 200 && m == (doubled ? 2 * n : n) && pair->link_count == m);
      for (int64_t j = 0; j < m; j++) {
        const int64_t from = doubled ? j % n : n - 1 - j;
        assert_int_equal(pair->target[j], pair->source[from]);
        assert_true(pair->source[from] >= 'a' && pair->source[from] <= 'd');
        assert_true(pair->links[j].source == from && pair->links[j].target == j && !pair->links[j].possible);
      }
      least |= n == 3;
      most |= n == 200;
    }
    assert_true(least && most);
  }
  free(pair);
  heed_context_free(context);
}

static void test_refusals(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static const struct {
    heed_pair_task task;
    const char *says;
  } cases[] = {
      {{.name = "none"}, "task none: there is no such task of pairs"},
      {{.name = NULL}, "task (null): there is no such task of pairs"},
      {{.name = "dates", .most = 3}, "task dates: has no most (got 3)"},
      {{.name = "numbers", .most = 13}, "task numbers: most: got 13, allowed 1 to 12"},
      {{.name = "numbers", .symbols = 3}, "task numbers: has no symbols (got 3)"},
      {{.name = "numbers", .least = 3}, "task numbers: has no least (got 3)"},
      {{.name = "reverse", .most = 201}, "task reverse: most: got 201, allowed 1 to 200"},
      {{.name = "reverse", .least = 9, .most = 8}, "task reverse: least: got 9, allowed 1 to 8"},
      {{.name = "double", .symbols = 27}, "task double: symbols: got 27, allowed 1 to 26"},
      {{.name = "double", .least = -1}, "task double: least: got -1, allowed 1 to 30"},
  };
  for (int64_t i = 0; i < HD_COUNT(cases); i++) {
    heed_pair_task task = cases[i].task;
    task.size = sizeof task;
    assert_int_equal(heed_pair_task_finish(context, &task), HEED_E_ARGUMENT);
    assert_string_equal(heed_error(context), cases[i].says);
  }
  heed_pair_task unset = {.name = "dates"};
  assert_int_equal(heed_pair_task_finish(context, &unset), HEED_E_ARGUMENT);
  assert_null(heed_pair_task_tokens("none"));
  assert_string_equal(heed_pair_task_tokens("grammar"), "word");
  assert_null(heed_pair_task_name(-1));
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_pair_once_a_round),  cmocka_unit_test(test_little_padding), cmocka_unit_test(test_rounds_and_seeds_differ),
      cmocka_unit_test(test_too_long_is_cut),         cmocka_unit_test(test_order_refuses),  cmocka_unit_test(test_same_seed_same_pair),
      cmocka_unit_test(test_held_out_is_never_shown), cmocka_unit_test(test_strings),        cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
