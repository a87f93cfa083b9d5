/* alibi.c: slopes of ALiBi for any number of heads (Press, Smith, Lewis 2022, section 3, and the authors' code for numbers that are no power of two). */
#include "problem.h"

#include <math.h>

heed_status heed_alibi_slopes(heed_context *context, int64_t heads, double *slopes) {
  if (!context) return HEED_E_ARGUMENT;
  int64_t power = 1;
  HD_REQUIRE(heads >= 1 && slopes, context, HEED_E_ARGUMENT, "heed_alibi_slopes: %lld heads, allowed 1 and more, and a place for them",
             (long long)heads);
  while (power <= heads / 2) power *= 2;
  for (int64_t h = 0; h < heads; h++) {
    const double exponent = h < power ? (double)(h + 1) / (double)power : (double)(2 * (h - power) + 1) / (double)(2 * power);
    slopes[h] = exp2(-8 * exponent);
  }
  return HEED_OK;
}
