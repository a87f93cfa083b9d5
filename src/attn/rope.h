/* rope.h: what else turns by rotary positions: a model keeps the tables of a pass and shares them between its layers. */
#ifndef HD_ROPE_H
#define HD_ROPE_H

#include "../base/base.h"

/* theta^(−2i/r): the angle by which pair i of r/2 turns from one position to the next (Su et al. 2021, section 3.2.2). */
double hd_rope_frequency(double theta, int64_t rotary_dim, int64_t i);

/* cosine and sine of positions [first, first + rows), [rows, pairs] each; pair i turns by frequency[i] a position. */
void hd_rope_table(heed_context *context, const double *frequency, int64_t pairs, int64_t first, int64_t rows, float *cosine, float *sine);

#endif
