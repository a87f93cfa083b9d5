/* rope.h: what else turns by rotary positions: a model keeps the tables of a pass and shares them between its layers. */
#ifndef HD_ROPE_H
#define HD_ROPE_H

#include "../base/base.h"
#include "../../include/heed/heed.h"

/* theta^(−2i/r): the angle by which pair i of r/2 turns from one position to the next (Su et al. 2021, section 3.2.2). */
double hd_rope_frequency(double theta, int64_t rotary_dim, int64_t i);

/* rope_scaling.c: whether a scaling may be asked for; the frequencies, a pair's each (of an odd width, which only models have, rounded up), and the factor of cosines and sines of one that may. */
heed_status hd_rope_scaling_check(heed_context *context, const heed_rope_scaling *scaling, int64_t rotary_dim);
void hd_rope_frequencies(const heed_rope_scaling *scaling, int64_t rotary_dim, double *out);
double hd_rope_attention_factor(const heed_rope_scaling *scaling);

/* What a table of angles is made of. */
typedef struct hd_rope_turns {
  const double *frequency; /* [pairs] */
  int64_t pairs;
  double amplitude; /* of cosines and sines */
} hd_rope_turns;

/* cosine and sine of positions [first, first + rows), [rows, pairs] each; pair i turns by frequency[i] a position. */
void hd_rope_table(heed_context *context, const hd_rope_turns *turns, int64_t first, int64_t rows, float *cosine, float *sine);

#endif
