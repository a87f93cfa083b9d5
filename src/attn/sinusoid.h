/* sinusoid.h: rows of sinusoidal positions, one at a time. */
#ifndef HD_SINUSOID_H
#define HD_SINUSOID_H

#include "../base/base.h"
#include "../../include/heed/heed.h"

/* The row of a position, `width` numbers; the description's offset is added to it. */
void hd_sinusoid_row(const heed_sinusoid *sinusoid, int64_t width, int64_t position, float *out);

#endif
