/* pairs.c: batches of sentence pairs whose lengths are alike.
 *
 * Pairs in the order of their lengths are cut into stretches of some batches each. A round shuffles every stretch, cuts it into batches and shows all batches in an order of its own: so a
 * batch has pairs of nearly one length, who stands beside whom changes from round to round, and each pair comes once. Both shuffles are permutations without a table, so that a batch
 * follows from its number alone. */
#include "draws.h"
#include "../../include/heed/train.h"

/* Stretches in a round, where there are batches for so many, and the most batches in one: few enough that lengths are alike, enough that neighbours change. */
enum { STRETCHES = 16, LONGEST_STRETCH = 32 };

static int64_t length_of(const int64_t *begin, int64_t i) { return begin[i + 1] - begin[i]; }

typedef struct measured {
  int64_t both, source, number;
} measured;

static int compare_measured(const void *x, const void *y) {
  const measured *a = x, *b = y;
  if (a->both != b->both) return a->both < b->both ? -1 : 1;
  if (a->source != b->source) return a->source < b->source ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

heed_status heed_pair_order(heed_context *context, const heed_pair_data *data, int64_t *order) {
  if (!context) return HEED_E_ARGUMENT;
  measured *all;
  HD_REQUIRE(data && order && data->count >= 0 && data->source_begin && data->target_begin, context, HEED_E_ARGUMENT,
             "heed_pair_order: null, or the count is negative");
  HD_TRY(hd_allocate(context, "lengths of pairs", data->count, sizeof *all, &all));
  for (int64_t i = 0; i < data->count; i++) {
    const int64_t source = length_of(data->source_begin, i);
    all[i] = (measured){source + length_of(data->target_begin, i), source, i};
  }
  qsort(all, (size_t)data->count, sizeof *all, compare_measured);
  for (int64_t i = 0; i < data->count; i++) order[i] = all[i].number;
  hd_release(context, all, data->count, sizeof *all);
  return HEED_OK;
}

int64_t heed_pair_batches(const heed_pair_data *data, int64_t batch) {
  return data && batch > 0 && data->count > 0 ? hd_ceil_div(data->count, batch) : 0;
}

/* A row of a batch; pair −1: padding alone. What is too long is cut. */
static void put_pair(const heed_pair_data *data, int64_t pair, int64_t length, int32_t *ids, int32_t *targets) {
  for (int64_t i = 0; i < length; i++) ids[i] = targets[i] = -1;
  if (pair < 0) return;
  const int32_t *source = data->source + data->source_begin[pair], *target = data->target + data->target_begin[pair];
  const int64_t sources = HD_MIN(length_of(data->source_begin, pair), HD_MIN(data->width, length));
  const int64_t written = length_of(data->target_begin, pair), room = length - data->width; // of the decoder
  for (int64_t i = 0; i < sources; i++) ids[i] = source[i];
  for (int64_t i = 0; i <= written && i < room; i++) {
    ids[data->width + i] = i == 0 ? data->start : target[i - 1];
    targets[data->width + i] = i == written ? data->end : target[i];
  }
}

/* Pair in place i; −1: beyond the last. */
static int64_t pair_at(const heed_pair_data *data, int64_t i) { return i >= data->count ? -1 : data->order ? data->order[i] : i; }

void heed_pair_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_pair_data *data = user;
  const int64_t batches = heed_pair_batches(data, batch), round = number / batches;
  const int64_t each = data->order ? HD_CLAMP(batches / STRETCHES, 1, LONGEST_STRETCH) : batches; // batches in a stretch
  const uint64_t stream = (uint64_t)(round * (hd_ceil_div(batches, each) + 1)); // of the order of batches; those of stretches follow
  const int64_t at = hd_shuffled(seed, stream, number % batches, batches), stretch = at / each;
  const int64_t begin = stretch * each * batch, pairs = HD_MIN(each * batch, data->count - begin);
  for (int64_t row = 0; row < batch; row++) {
    const int64_t i = (at - stretch * each) * batch + row;
    const int64_t pair = i < pairs ? pair_at(data, begin + hd_shuffled(seed, stream + 1 + (uint64_t)stretch, i, pairs)) : -1;
    put_pair(data, pair, length, ids + row * length, targets + row * length);
  }
}

void heed_pair_row_batch(void *user, uint64_t seed, int64_t number, int64_t batch, int64_t length, int32_t *ids, int32_t *targets) {
  const heed_pair_data *data = user;
  (void)seed;
  for (int64_t row = 0; row < batch; row++)
    put_pair(data, pair_at(data, number * batch + row), length, ids + row * length, targets + row * length);
}
