/* tasks.c: what a learner is taught: windows of a text, and tasks made on the spot.
 *
 * All draws are Philox under (seed, batch number, row), so any batch can be made again at any time: a resumed run sees what the run left alone would have seen. */
#include "../base/base.h"

#include "../../include/heed/train.h"
#include "draws.h"

static hd_dice dice_of(uint64_t seed, int64_t number, int64_t batch, int64_t row) {
  return (hd_dice){.seed = seed, .stream = (uint64_t)(number * batch + row)};
}

void heed_text_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_text_data *data = user;
  for (int64_t row = 0; row < batch; row++) {
    hd_dice d = dice_of(seed, number, batch, row);
    int64_t from = hd_roll(&d, data->count - length);
    memcpy(ids + row * length, data->ids + from, (size_t)length * sizeof *ids);
    memcpy(targets + row * length, data->ids + from + 1, (size_t)length * sizeof *targets);
  }
}

int64_t heed_text_windows(int64_t count, int64_t length) { return length > 0 && count > 0 ? (count - 1) / length : 0; }

void heed_text_window_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_text_data *data = user;
  (void)seed;
  for (int64_t row = 0; row < batch; row++) {
    int64_t window = number * batch + row;
    bool there = window < heed_text_windows(data->count, length);
    for (int64_t i = 0; i < length; i++) {
      ids[row * length + i] = there ? data->ids[window * length + i] : 0;
      targets[row * length + i] = there ? data->ids[window * length + i + 1] : -1;
    }
  }
}

/* ---- masked tokens ---------------------------------------------------------------------------------------------------------------- */

static const double usual_share = 0.15, shown_as_mask = 0.8, shown_as_another = 0.1;

/* A token that is not the mask, drawn from all. */
static int32_t another_token(const heed_masked_data *data, hd_dice *d) {
  const bool mask_inside = data->mask >= 0 && data->mask < data->vocabulary;
  int32_t id = (int32_t)hd_roll(d, data->vocabulary - mask_inside);
  return mask_inside && id >= data->mask ? id + 1 : id;
}

static void hide(const heed_masked_data *data, hd_dice *d, int64_t i, int32_t *ids, int32_t *targets) {
  double u = hd_uniform(d);
  targets[i] = ids[i];
  if (u < shown_as_mask) ids[i] = data->mask;
  else if (u < shown_as_mask + shown_as_another) ids[i] = another_token(data, d);
}

static void hide_some(const heed_masked_data *data, hd_dice *d, int64_t length, int32_t *ids, int32_t *targets) {
  const double share = data->share > 0 ? data->share : usual_share;
  bool any = false;
  for (int64_t i = 0; i < length; i++) {
    targets[i] = -1;
    if (hd_uniform(d) >= share) continue;
    hide(data, d, i, ids, targets);
    any = true;
  }
  if (!any) hide(data, d, hd_roll(d, length), ids, targets);
}

void heed_masked_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_masked_data *data = user;
  for (int64_t row = 0; row < batch; row++) {
    hd_dice d = dice_of(seed, number, batch, row);
    int32_t *to = ids + row * length;
    memcpy(to, data->text.ids + hd_roll(&d, data->text.count - length + 1), (size_t)length * sizeof *ids);
    hide_some(data, &d, length, to, targets + row * length);
  }
}

void heed_masked_window_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_masked_data *data = user;
  for (int64_t row = 0; row < batch; row++) {
    hd_dice d = dice_of(seed, number, batch, row);
    int64_t window = number * batch + row;
    int32_t *to = ids + row * length, *target = targets + row * length;
    bool there = window < data->text.count / length;
    for (int64_t i = 0; i < length; i++) {
      to[i] = there ? data->text.ids[window * length + i] : 0;
      target[i] = -1;
    }
    if (there) hide_some(data, &d, length, to, target);
  }
}

/* ---- rows with labels --------------------------------------------------------------------------------------------------------------- */

static void put_row(const heed_labelled_data *data, int64_t row, int64_t length, int32_t *ids, int32_t *targets) {
  const bool there = row < data->count;
  const int64_t begin = there ? data->begin[row] : 0, count = there ? data->begin[row + 1] - begin : 0;
  for (int64_t i = 0; i < length; i++) {
    ids[i] = i < count ? data->ids[begin + i] : -1;
    targets[i] = i < count ? data->labels[begin + i] : -1;
  }
}

void heed_labelled_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_labelled_data *data = user;
  for (int64_t row = 0; row < batch; row++) {
    const int64_t k = number * batch + row;
    put_row(data, hd_shuffled(seed, (uint64_t)(k / data->count), k % data->count, data->count), length, ids + row * length,
            targets + row * length);
  }
}

void heed_labelled_row_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  (void)seed;
  for (int64_t row = 0; row < batch; row++) put_row(user, number * batch + row, length, ids + row * length, targets + row * length);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------------------------ */

enum { MOST_LETTERS = 511, MOST_DIGITS = 15, LETTERS = 26, TOO_SHORT = 4 };

static const char *const names[] = {"copy", "reverse", "sort", "addition", "duplicate"};
/* In ascending order, so that a tokenizer of these characters gives them the same ids. */
static const char word_alphabet[] = ".>abcdefghijklmnopqrstuvwxyz";
static const char sum_alphabet[] = "+.0123456789=";
static const char symbol_alphabet[] = "0123456789:;ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const char *heed_task_name(heed_task_kind kind) { return kind >= 0 && kind < HD_COUNT(names) ? names[kind] : "unknown"; }

int heed_task_from_name(const char *name) {
  for (int i = 0; i < HD_COUNT(names); i++)
    if (name && !strcmp(name, names[i])) return i;
  return -1;
}

/* What differs from the tasks of words. */
static const struct limits {
  const char *alphabet, *many;
  int64_t most, usual, symbols;
} of_words = {word_alphabet, "letters", MOST_LETTERS, 20, LETTERS}, of_sums = {sum_alphabet, "digits", MOST_DIGITS, 3, LETTERS},
  of_symbols = {symbol_alphabet, "letters", MOST_LETTERS, 127, (int64_t)sizeof symbol_alphabet - 2};

static const struct limits *limits_of(heed_task_kind kind) {
  return kind == HEED_TASK_ADDITION ? &of_sums : kind == HEED_TASK_DUPLICATE ? &of_symbols : &of_words;
}

const char *heed_task_alphabet(const heed_task *task) { return limits_of(task->kind)->alphabet; }

/* "word>word" without the final stop, "0word0wor" without the final letter, which are only asked for; "999+999=1998". */
int64_t heed_task_length(const heed_task *task) { return task->kind == HEED_TASK_ADDITION ? 3 * task->most + 3 : 2 * task->most + 1; }

heed_status heed_task_finish(heed_context *context, heed_task *task) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(task && task->kind >= 0 && task->kind < HD_COUNT(names), context, HEED_E_ARGUMENT, "task: there is no such kind");
  const struct limits *limits = limits_of(task->kind);
  if (task->most == 0) task->most = limits->usual;
  if (task->symbols == 0) task->symbols = limits->symbols;
  HD_REQUIRE(task->most >= 1 && task->most <= limits->most, context, HEED_E_ARGUMENT, "task %s: %s: got %lld, allowed 1 to %lld",
             names[task->kind], limits->many, (long long)task->most, (long long)limits->most);
  HD_REQUIRE(task->symbols >= 1 && task->symbols <= limits->symbols, context, HEED_E_ARGUMENT,
             "task %s: symbols: got %lld, allowed 1 to %lld", names[task->kind], (long long)task->symbols, (long long)limits->symbols);
  HD_REQUIRE(task->few >= 0 && task->few <= 1, context, HEED_E_ARGUMENT, "task %s: share of few letters: got %g, allowed 0 to 1",
             names[task->kind], task->few);
  return HEED_OK;
}

static void reverse(char *text, int64_t length) {
  for (int64_t i = 0, j = length - 1; i < j; i++, j--) {
    char other = text[i];
    text[i] = text[j];
    text[j] = other;
  }
}

static void sort(char *text, int64_t length) {
  int64_t count[256] = {0}, at = 0;
  for (int64_t i = 0; i < length; i++) count[(unsigned char)text[i]]++;
  for (int letter = 0; letter < 256; letter++)
    while (count[letter]-- > 0) text[at++] = (char)letter;
}

/* A question with its mark, and its answer with its stop, as characters. Both have room. */
typedef struct exercise {
  char question[2 * MOST_LETTERS + 4], answer[MOST_LETTERS + 4];
  int64_t question_length, answer_length;
} exercise;

static void make_word(const heed_task *task, hd_dice *d, exercise *e) {
  int64_t n = 1 + hd_roll(d, task->most);
  const bool few = !task->held_out && task->few > 0 && hd_uniform(d) < task->few;
  int64_t letters = few ? 1 + hd_roll(d, task->symbols) : task->symbols;
  for (int64_t i = 0; i < n; i++) e->question[i] = (char)('a' + hd_roll(d, letters));
  memcpy(e->answer, e->question, (size_t)n);
  if (task->kind == HEED_TASK_REVERSE) reverse(e->answer, n);
  if (task->kind == HEED_TASK_SORT) sort(e->answer, n);
  e->question[n] = '>';
  e->answer[n] = '.';
  e->question_length = e->answer_length = n + 1;
}

static int64_t write_number(char *to, int64_t number) {
  int64_t n = 0;
  do to[n++] = (char)('0' + number % 10);
  while (number /= 10);
  reverse(to, n);
  return n;
}

static void make_sum(const heed_task *task, hd_dice *d, exercise *e) {
  int64_t low = 1, number[2];
  for (int64_t i = 1; i < task->most; i++) low *= 10;
  for (int i = 0; i < 2; i++) number[i] = task->most == 1 ? hd_roll(d, 10) : low + hd_roll(d, 9 * low);
  int64_t n = write_number(e->question, number[0]);
  e->question[n++] = '+';
  n += write_number(e->question + n, number[1]);
  e->question[n++] = '=';
  e->question_length = n;
  n = write_number(e->answer, number[0] + number[1]);
  if (task->reverse_digits) reverse(e->answer, n);
  e->answer[n++] = '.';
  e->answer_length = n;
}

/* "0word0", "word": all of one length, so that places alone say where to look (Kitaev, Kaiser, Levskaya 2020). */
static void make_duplicate(const heed_task *task, hd_dice *d, exercise *e) {
  const int64_t n = task->most;
  for (int64_t i = 0; i < n; i++) e->answer[i] = symbol_alphabet[1 + hd_roll(d, task->symbols)];
  memcpy(e->question + 1, e->answer, (size_t)n);
  e->question[0] = e->question[n + 1] = symbol_alphabet[0];
  e->question_length = n + 2;
  e->answer_length = n;
}

/* Draws until the question belongs to the side that is asked for. Questions of one digit, and of up to three letters, are too few to hold some out; where there are no others, both sides
 * are the same. */
static void make_exercise(const heed_task *task, hd_dice *d, exercise *e) {
  void (*const make)(const heed_task *, hd_dice *, exercise *) = task->kind == HEED_TASK_ADDITION    ? make_sum
                                                                 : task->kind == HEED_TASK_DUPLICATE ? make_duplicate
                                                                                                     : make_word;
  const bool all_short = task->kind == HEED_TASK_ADDITION ? task->most == 1 : task->most < TOO_SHORT;
  for (int tries = 0; tries < 1000; tries++) {
    make(task, d, e);
    if (all_short) return;
    if (e->question_length <= TOO_SHORT ? !task->held_out : hd_is_held_out(e->question, e->question_length) == task->held_out) return;
  }
}

static int32_t id_of(const char *alphabet, char letter) { return (int32_t)(strchr(alphabet, letter) - alphabet); }

void heed_task_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_task *task = user;
  const char *alphabet = heed_task_alphabet(task);
  const int32_t stop = strchr(alphabet, '.') ? id_of(alphabet, '.') : 0; // a duplicate leaves no room behind itself
  for (int64_t row = 0; row < batch; row++) {
    hd_dice d = dice_of(seed, number, batch, row);
    exercise e;
    make_exercise(task, &d, &e);
    int32_t *id = ids + row * length, *target = targets + row * length;
    for (int64_t i = 0; i < length; i++) {
      int64_t next = i + 1 - e.question_length; // place in the answer of what follows i
      id[i] = i < e.question_length                     ? id_of(alphabet, e.question[i])
              : i - e.question_length < e.answer_length ? id_of(alphabet, e.answer[i - e.question_length])
                                                        : stop;
      target[i] = next >= 0 && next < e.answer_length ? id_of(alphabet, e.answer[next]) : -1;
    }
  }
}
