/* sinusoid.c: sinusoidal positions (Vaswani et al. 2017, section 3.5), of any length and width. */
#include "sinusoid.h"

#include "attention.h"

#include <math.h>

#define THETA_DEFAULT 10000.0 /* of the paper, and of every model in use */

/* Number c of the row of a position. Angles in double, so that far positions keep their digits. */
static double number(const heed_sinusoid *s, int64_t width, int64_t position, int64_t c) {
  const int64_t sines = s->closed ? width / 2 : (width + 1) / 2;
  const bool cosine = s->interleaved ? c % 2 == 1 : c >= sines;
  const int64_t i = s->interleaved ? c / 2 : cosine ? c - sines : c;
  if (s->closed && c >= 2 * sines) return 0;
  const double steps = s->closed ? (double)HD_MAX(sines - 1, 1) : (double)width / 2;
  const double angle = (double)(position + s->offset) * pow(s->theta != 0 ? s->theta : THETA_DEFAULT, -(double)i / steps);
  return cosine ? cos(angle) : sin(angle);
}

void hd_sinusoid_row(const heed_sinusoid *s, int64_t width, int64_t position, float *out) {
  for (int64_t c = 0; c < width; c++) out[c] = (float)number(s, width, position, c);
}

heed_status heed_sinusoid_rows(heed_context *context, const heed_sinusoid *given, const heed_view *out) {
  if (!context) return HEED_E_ARGUMENT;
  heed_sinusoid s = {.size = sizeof s};
  char shape[HD_SHAPE_LENGTH];
  const int64_t far = (int64_t)1 << 52;
  HD_TRY(hd_options_read(context, "heed_sinusoid", given, &s, sizeof s));
  HD_REQUIRE(s.theta == 0 || (s.theta > 0 && isfinite(s.theta)), context, HEED_E_ARGUMENT, "theta %g, allowed above 0 (or 0: 10000)",
             s.theta);
  HD_REQUIRE(!s.closed || !s.interleaved, context, HEED_E_ARGUMENT, "closed sinusoidal positions are not interleaved");
  HD_REQUIRE(s.offset >= -far && s.offset <= far, context, HEED_E_ARGUMENT, "offset %lld is out of range", (long long)s.offset);
  HD_TRY(hd_view_check(context, out, "out"));
  HD_REQUIRE(out->ndim == 2 && out->dim[0] <= far, context, HEED_E_SHAPE, "out: %s, expected [positions,width]", hd_shape_text(out, shape));
  HD_TRY(hd_number(context, out->type, "out"));
  HD_REQUIRE(!hd_view_overlaps_itself(out), context, HEED_E_LAYOUT, "out: elements of %s share memory", hd_shape_text(out, shape));
  for (int64_t row = 0; row < out->dim[0]; row++)
    for (int64_t c = 0; c < out->dim[1]; c++)
      hd_element_store(hd_view_at(out, row * out->dim[1] + c), out->type, number(&s, out->dim[1], row, c));
  return HEED_OK;
}
