/* rope_scaling.c: the frequencies of rotary positions, as they are and as five ways to reach beyond the context that a model has learned change them. Angles are linear in frequencies, so
 * nothing else of rotary positions knows about scaling but for the factor that YaRN multiplies cosines and sines by. */
#include "rope.h"

#include <math.h>

#define THETA_DEFAULT 10000.0 /* of the paper */
#define FULL_TURN     (2 * 3.14159265358979323846)

double hd_rope_frequency(double theta, int64_t rotary_dim, int64_t i) { return pow(theta, -2.0 * (double)i / (double)rotary_dim); }

static double or_else(double value, double fallback) { return value != 0 ? value : fallback; }

/* Of the length n, as if theta had been larger: the slowest pair is interpolated, the fastest kept ("NTK-aware"; Peng et al. 2023, appendix A.2). */
static double dynamic_theta(const heed_rope_scaling *s, double theta, int64_t rotary_dim) {
  const double length = (double)HD_MAX(s->length, s->context), r = (double)rotary_dim;
  return theta * pow(s->factor * length / (double)s->context - (s->factor - 1), r / (r - 2));
}

/* The pair, as a number between pairs, that turns so often within the context: where theta^(−2i/r) · context = 2π turns. */
static double pair_of_turns(const heed_rope_scaling *s, double theta, int64_t rotary_dim, double turns) {
  return (double)rotary_dim * log((double)s->context / (turns * FULL_TURN)) / (2 * log(theta));
}

/* How much of pair i's own frequency stays; the rest is divided by the factor. YaRN's ramp goes over pairs (Peng et al. 2023, section 3.2), Llama's over turns. */
static double kept_share(const heed_rope_scaling *s, double theta, int64_t rotary_dim, int64_t i) {
  if (s->kind == HEED_ROPE_YARN) {
    double first = pair_of_turns(s, theta, rotary_dim, or_else(s->fast, 32)),
           last = pair_of_turns(s, theta, rotary_dim, or_else(s->slow, 1));
    if (!s->unrounded) first = floor(first), last = ceil(last);
    first = HD_MAX(first, 0.0), last = HD_MIN(last, (double)rotary_dim - 1);
    if (first == last) last += 0.001; // a step, as its authors wrote it
    return 1 - HD_CLAMP(((double)i - first) / (last - first), 0.0, 1.0);
  }
  const double turns = (double)s->context * hd_rope_frequency(theta, rotary_dim, i) / FULL_TURN, slow = or_else(s->slow, 1);
  return HD_CLAMP((turns - slow) / (or_else(s->fast, 4) - slow), 0.0, 1.0);
}

static double magnitude(double factor, double weight) { return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1; }

double hd_rope_attention_factor(const heed_rope_scaling *s) {
  if (s->kind != HEED_ROPE_YARN) return 1;
  if (s->attention_factor != 0) return s->attention_factor;
  if (s->magnitude != 0 && s->magnitude_all != 0) return magnitude(s->factor, s->magnitude) / magnitude(s->factor, s->magnitude_all);
  return magnitude(s->factor, 1);
}

void hd_rope_frequencies(const heed_rope_scaling *s, int64_t rotary_dim, double *out) {
  double theta = or_else(s->theta, THETA_DEFAULT);
  const bool ramp = s->kind == HEED_ROPE_YARN || s->kind == HEED_ROPE_LLAMA3;
  if (s->kind == HEED_ROPE_DYNAMIC) theta = dynamic_theta(s, theta, rotary_dim);
  for (int64_t i = 0; i < (rotary_dim + 1) / 2; i++) {
    const double f = hd_rope_frequency(theta, rotary_dim, i), kept = ramp ? kept_share(s, theta, rotary_dim, i) : 0;
    out[i] = ramp ? kept * f + (1 - kept) * f / s->factor : s->kind == HEED_ROPE_LINEAR ? f / s->factor : f;
  }
}

static bool positive(double x) { return x > 0 && isfinite(x); }

heed_status hd_rope_scaling_check(heed_context *context, const heed_rope_scaling *s, int64_t rotary_dim) {
  HD_REQUIRE(s->kind >= HEED_ROPE_PLAIN && s->kind <= HEED_ROPE_LLAMA3, context, HEED_E_ARGUMENT, "rotary scaling: unknown kind %d",
             (int)s->kind);
  HD_REQUIRE(s->theta == 0 || positive(s->theta), context, HEED_E_ARGUMENT, "theta %g, allowed above 0 (or 0: 10000)", s->theta);
  if (s->kind == HEED_ROPE_PLAIN) return HEED_OK;
  HD_REQUIRE(positive(s->factor), context, HEED_E_ARGUMENT, "rotary scaling: factor %g, allowed above 0", s->factor);
  if (s->kind == HEED_ROPE_LINEAR) return HEED_OK;
  HD_REQUIRE(s->context > 0, context, HEED_E_ARGUMENT, "rotary scaling: a context of %lld positions, allowed 1 and more",
             (long long)s->context);
  if (s->kind == HEED_ROPE_DYNAMIC) {
    HD_REQUIRE(s->length >= 0, context, HEED_E_ARGUMENT, "rotary scaling: a length of %lld positions, allowed 0 and more",
               (long long)s->length);
    HD_REQUIRE(rotary_dim != 2, context, HEED_E_SHAPE, "dynamic rotary scaling needs a rotary width above 2 (got 2)");
    HD_REQUIRE(s->factor >= 1, context, HEED_E_ARGUMENT, "dynamic rotary scaling: factor %g, allowed 1 and more", s->factor);
    return HEED_OK;
  }
  const double fast = or_else(s->fast, s->kind == HEED_ROPE_YARN ? 32 : 4), slow = or_else(s->slow, 1);
  HD_REQUIRE(positive(slow) && isfinite(fast) && slow < fast, context, HEED_E_ARGUMENT,
             "rotary scaling: slow must be below fast (got %g and %g turns)", slow, fast);
  HD_REQUIRE(s->kind != HEED_ROPE_YARN || (s->theta == 0 || s->theta > 1), context, HEED_E_ARGUMENT,
             "rotary scaling: YaRN needs a theta above 1 (got %g)", s->theta);
  const double amplitude = hd_rope_attention_factor(s);
  HD_REQUIRE(positive(amplitude), context, HEED_E_ARGUMENT, "rotary scaling: attention factor %g, allowed above 0", amplitude);
  return HEED_OK;
}

heed_status heed_rope_frequencies(heed_context *context, const heed_rope_scaling *given, int64_t rotary_dim, double *frequency,
                                  double *attention_factor) {
  if (!context) return HEED_E_ARGUMENT;
  heed_rope_scaling scaling = {.size = sizeof scaling};
  HD_REQUIRE(frequency || rotary_dim == 0, context, HEED_E_ARGUMENT, "heed_rope_frequencies: frequency is null");
  HD_REQUIRE(rotary_dim >= 0 && rotary_dim % 2 == 0, context, HEED_E_SHAPE, "rotary positions turn an even width (got %lld)",
             (long long)rotary_dim);
  HD_TRY(hd_options_read(context, "heed_rope_scaling", given, &scaling, sizeof scaling));
  HD_TRY(hd_rope_scaling_check(context, &scaling, rotary_dim));
  hd_rope_frequencies(&scaling, rotary_dim, frequency);
  if (attention_factor) *attention_factor = hd_rope_attention_factor(&scaling);
  return HEED_OK;
}
