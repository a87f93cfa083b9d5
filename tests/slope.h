/* slope.h: a gradient in double precision beside the central difference of the loss along a random direction. */
#ifndef HEED_SLOPE_H
#define HEED_SLOPE_H

#include "attention_sample.h"

/* x is what loss(of) depends on, gradient what is said of it; both f64, contiguous. x is as before afterwards. */
static inline void check_slope(double (*loss)(void *of), void *of, const heed_view *x_view, const heed_view *gradient, random_source *r,
                               const char *what, int input) {
  const double h = 1e-5;
  const int64_t count = hd_view_count(x_view);
  double *x = x_view->data, *u = calloc((size_t)count + 1, sizeof *u), want = 0, side[2];
  for (int64_t i = 0; i < count; i++) {
    u[i] = normal(r);
    want += u[i] * ((double *)gradient->data)[i];
  }
  for (int s = 0; s < 2; s++) {
    for (int64_t i = 0; i < count; i++) x[i] += (s ? 2 : -1) * h * u[i];
    side[s] = loss(of);
  }
  for (int64_t i = 0; i < count; i++) x[i] -= h * u[i];
  const double slope = (side[1] - side[0]) / (2 * h);
  if (!(fabs(slope - want) <= 2e-7 * fmax(10, fabs(slope))))
    fail_msg("%s: gradient of input %d: %.12g, central difference %.12g", what, input, want, slope);
  free(u);
}

/* Σ dout ∘ out of two f64 views. */
static inline double dot_of(const heed_view *out, const heed_view *dout) {
  double sum = 0;
  for (int64_t i = 0; i < hd_view_count(out); i++) sum += ((double *)out->data)[i] * ((double *)dout->data)[i];
  return sum;
}

#endif
