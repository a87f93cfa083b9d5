/* stats.c: what one head does, in four numbers, and the head worth looking at first. */
#include "record.h"

#include <math.h>

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
    int64_t own = i + record.keys - record.queries;
    if (live.begin == live.end) continue;
    rows++;
    for (int64_t j = live.begin; j < live.end; j++)
      if (row[j] > 0) sum.spread -= (double)row[j] * log2((double)row[j]);
    if (live.end - live.begin == 1) continue;
    choices++;
    if (live.begin == 0) sum.first += (double)row[0];
    if (own - 1 >= live.begin && own - 1 < live.end) sum.previous += (double)row[own - 1];
    if (own >= live.begin && own < live.end) sum.self += (double)row[own];
  }
  double per_choice = choices ? 1.0 / (double)choices : 0;
  *out = (heed_head_stats){.first = sum.first * per_choice,
                           .previous = sum.previous * per_choice,
                           .self = sum.self * per_choice,
                           .spread = rows ? sum.spread / (double)rows : 0};
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
      if (stats.first + stats.self < least) {
        least = stats.first + stats.self;
        *layer = l;
        *head = h;
      }
    }
  return HEED_OK;
}
