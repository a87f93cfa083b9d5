/* stats.c: what one head does, in four numbers, and the head worth looking at first. */
#include "record.h"

#include <math.h>

/* The first of a row's largest weights. */
static int64_t strongest(const float *row, int64_t keys) {
  int64_t at = 0;
  for (int64_t j = 1; j < keys; j++)
    if (row[j] > row[at]) at = j;
  return at;
}

/* Keys that are the strongest of some row, a stretch of keys at a time, so that no memory is needed for what was seen. */
static int64_t covered(const heed_record *record, int64_t layer, int64_t head) {
  enum { STRETCH = 4096 };
  int64_t count = 0;
  for (int64_t begin = 0; begin < record->keys; begin += STRETCH) {
    bool seen[STRETCH] = {false};
    for (int64_t i = 0; i < record->queries; i++) {
      const int64_t at = strongest(hd_record_row(record, layer, head, i), record->keys) - begin;
      if (at < 0 || at >= STRETCH || seen[at]) continue;
      seen[at] = true;
      count++;
    }
  }
  return count;
}

/* Steps from row to row that do not go back among the keys. */
static int64_t forward(const heed_record *record, int64_t layer, int64_t head) {
  int64_t count = 0, last = 0;
  for (int64_t i = 0; i < record->queries; i++) {
    const int64_t at = strongest(hd_record_row(record, layer, head, i), record->keys);
    count += i > 0 && at >= last;
    last = at;
  }
  return count;
}

heed_status heed_record_stats(const heed_record *given, int64_t layer, int64_t head, heed_head_stats *out) {
  heed_record record;
  if (!out) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(NULL, given, &record));
  HD_TRY(hd_record_check_head(NULL, &record, layer, head));
  heed_head_stats sum = {0};
  int64_t rows = 0, choices = 0; // rows that see anything; rows that have a choice, where a share says something
  for (int64_t i = 0; i < record.queries; i++) {
    const float *row = hd_record_row(&record, layer, head, i);
    hd_live live = hd_record_live(&record, layer, i);
    const int64_t own = i + record.keys - record.queries, seen = hd_shown_count(hd_record_shown(&record, layer, head, i), live);
    if (seen == 0) continue;
    rows++;
    for (int64_t j = live.begin; j < live.end; j++)
      if (row[j] > 0) sum.spread -= (double)row[j] * log2((double)row[j]);
    if (seen == 1) continue;
    choices++;
    if (live.begin == 0) sum.first += (double)row[0];
    if (record.cross) continue;
    if (own - 1 >= live.begin && own - 1 < live.end) sum.previous += (double)row[own - 1];
    if (own >= live.begin && own < live.end) sum.self += (double)row[own];
  }
  double per_choice = choices ? 1.0 / (double)choices : 0;
  *out = (heed_head_stats){.first = sum.first * per_choice,
                           .previous = sum.previous * per_choice,
                           .self = sum.self * per_choice,
                           .spread = rows ? sum.spread / (double)rows : 0};
  if (!record.cross) return HEED_OK;
  out->coverage = (double)covered(&record, layer, head) / (double)record.keys;
  out->monotonicity = record.queries > 1 ? (double)forward(&record, layer, head) / (double)(record.queries - 1) : 1;
  return HEED_OK;
}

heed_status heed_record_pick(const heed_record *record, int64_t *layer, int64_t *head) {
  heed_record checked;
  if (!layer || !head) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(NULL, record, &checked));
  double least = INFINITY;
  *layer = *head = 0;
  for (int64_t l = 0; l < checked.layers; l++)
    for (int64_t h = 0; h < checked.heads; h++) {
      heed_head_stats stats;
      HD_TRY(heed_record_stats(record, l, h, &stats));
      const double avoided = checked.cross ? -stats.coverage * stats.monotonicity : stats.first + stats.self;
      if (avoided < least) {
        least = avoided;
        *layer = l;
        *head = h;
      }
    }
  return HEED_OK;
}
