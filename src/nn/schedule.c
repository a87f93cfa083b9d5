/* schedule.c: the learning rate of a step. */
#include "../base/base.h"
#include "../../include/heed/nn.h"

#include <math.h>

static double after_warmup(const heed_schedule *h, double s) {
  const double warmup = (double)h->warmup, length = (double)h->steps - warmup;
  switch (h->kind) {
  case HEED_SCHEDULE_CONSTANT: return h->peak;
  case HEED_SCHEDULE_INVERSE_ROOT: return HD_MAX(h->peak * sqrt((warmup + 1) / (s + 1)), h->floor);
  case HEED_SCHEDULE_COSINE:
    if (s >= (double)h->steps) return h->floor;
    return h->floor + (h->peak - h->floor) * (1 + cos(3.141592653589793 * (s - warmup) / length)) / 2;
  }
  return NAN;
}

double heed_schedule_rate(const heed_schedule *given, int64_t s) {
  heed_schedule h = {.size = sizeof h};
  if (!given || hd_options_read(NULL, "heed_schedule", given, &h, sizeof h) != HEED_OK) return NAN;
  if (!(h.peak >= 0 && isfinite(h.peak) && h.floor >= 0 && isfinite(h.floor)) || h.warmup < 0 || s < 0) return NAN;
  double rate = after_warmup(&h, (double)HD_MAX(s, h.warmup));
  return s < h.warmup && !isnan(rate) ? h.peak * ((double)s + 1) / ((double)h.warmup + 1) : rate;
}
