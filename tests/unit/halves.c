/* Half precision in and out: the kernels that widen and narrow, on every level, against the definition in double precision. */
#include "test.h"

#include "../../src/base/base.h"
#include "../../src/kern/kernels.h"

#include <math.h>

enum { PATTERNS = 1 << 16, LONGEST = 70 };

/* What distinguishes the two types: bits of the mantissa, and the exponent of 1. */
static const struct format {
  heed_type type;
  int mantissa, bias;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
} formats[] = {
    {HEED_F16, 10, 15, hd_f16_to_f32, hd_f32_to_f16},
    {HEED_BF16, 7, 127, hd_bf16_to_f32, hd_f32_to_bf16},
};

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The value of a pattern, straight from sign, exponent and mantissa. The pattern of infinity stands for the power of two that would come next, which is what rounding sees. */
static double value_of(const struct format *f, uint16_t pattern) {
  int exponent = (pattern & 0x7fff) >> f->mantissa, mantissa = pattern & ((1 << f->mantissa) - 1);
  double magnitude =
      exponent ? ldexp((1 << f->mantissa) + mantissa, exponent - f->bias - f->mantissa) : ldexp(mantissa, 1 - f->bias - f->mantissa);
  return pattern & 0x8000 ? -magnitude : magnitude;
}

static uint16_t infinity_of(const struct format *f) { return (uint16_t)(0x7fff >> f->mantissa << f->mantissa); }

/* The nearest pattern, of two equally near ones the even one, found by looking at the neighbours below and above. */
static uint16_t nearest(const struct format *f, float x) {
  uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000), low = 0, high = infinity_of(f);
  double magnitude = fabs((double)x);
  if (isnan(x)) return 0;
  if (magnitude >= value_of(f, high)) return sign | high;
  while (high - low > 1) {
    uint16_t middle = (uint16_t)((low + high) / 2);
    if (value_of(f, middle) <= magnitude) low = middle;
    else high = middle;
  }
  double below = magnitude - value_of(f, low), above = value_of(f, high) - magnitude;
  return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

/* x comes out of every level as want; NaN as a quiet NaN of the same sign. */
static void expect_narrow(const struct format *f, const float *x, int64_t n, const uint16_t *want) {
  static uint16_t got[PATTERNS + 1];
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    if (!heed_level_available(level)) continue;
    heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
    got[n] = 0x1234;
    hd_kernels_of(context)->narrow(x, n, f->type, got);
    for (int64_t i = 0; i < n; i++) {
      uint16_t expected = want[i];
      if (isnan(x[i])) {
        expected = (uint16_t)((bits_of(x[i]) >> 16 & 0x8000) | infinity_of(f) | 1 << (f->mantissa - 1) |
                              (bits_of(x[i]) >> (23 - f->mantissa) & ((1 << f->mantissa) - 1)));
      }
      if (got[i] != expected || f->narrow(x[i]) != expected)
        fail_msg("%s on %s: %a (%08x) became %04x, by element %04x, expected %04x", heed_type_name(f->type), heed_level_name(level), x[i],
                 bits_of(x[i]), got[i], f->narrow(x[i]), expected);
    }
    assert_int_equal(got[n], 0x1234);
    heed_context_free(context);
  }
}

/* Every pattern keeps its value through f32 and comes back as itself. */
static void all_patterns(void **state) {
  (void)state;
  static uint16_t patterns[PATTERNS];
  static float wide[PATTERNS];
  for (int i = 0; i < PATTERNS; i++) patterns[i] = (uint16_t)i;
  for (int which = 0; which < 2; which++) {
    const struct format *f = &formats[which];
    for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
      if (!heed_level_available(level)) continue;
      heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
      hd_kernels_of(context)->widen(patterns, f->type, PATTERNS, wide);
      for (int i = 0; i < PATTERNS; i++) {
        int magnitude = i & 0x7fff;
        assert_int_equal(bits_of(wide[i]), bits_of(f->widen((uint16_t)i)));
        assert_int_equal(signbit(wide[i]) != 0, i >> 15);
        if (magnitude > infinity_of(f)) assert_true(isnan(wide[i]));
        else if (magnitude == infinity_of(f)) assert_true(isinf(wide[i]));
        else assert_true((double)wide[i] == value_of(f, (uint16_t)i));
      }
      heed_context_free(context);
    }
    expect_narrow(f, wide, PATTERNS, patterns);
  }
}

/* Halfway between each two neighbours, one step of f32 below and above it, in both signs: also between the largest number and infinity, and below the smallest. */
static void ties(void **state) {
  (void)state;
  static float x[PATTERNS];
  static uint16_t want[PATTERNS];
  for (int which = 0; which < 2; which++) {
    const struct format *f = &formats[which];
    for (int side = -1; side <= 1; side++) {
      int n = 0;
      for (int sign = 0; sign < 2; sign++)
        for (int i = 0; i < infinity_of(f); i++) {
          float half = (float)((value_of(f, (uint16_t)i) + value_of(f, (uint16_t)(i + 1))) / 2);
          x[n] = float_of((bits_of(half) + (uint32_t)side) | (uint32_t)sign << 31);
          want[n] = nearest(f, x[n]);
          n++;
        }
      expect_narrow(f, x, n, want);
    }
  }
}

/* Any bits, NaNs among them, and every number of elements, so that whole vectors and rests meet. */
static void any_bits_and_lengths(void **state) {
  (void)state;
  static float x[PATTERNS];
  static uint16_t want[PATTERNS];
  uint32_t random = 1;
  for (int which = 0; which < 2; which++) {
    const struct format *f = &formats[which];
    for (int i = 0; i < PATTERNS; i++) {
      random = random * 1664525u + 1013904223u;
      uint32_t bits = random ^ random >> 15;
      // Most of f32 lies outside the halves: every second exponent is brought near them.
      if (i % 2) bits = (bits & 0x807fffff) | (uint32_t)(127 - 27 + (int)(bits >> 23 & 0xff) % 46) << 23;
      x[i] = float_of(bits);
      want[i] = nearest(f, x[i]);
    }
    expect_narrow(f, x, PATTERNS, want);
    for (int n = 0; n <= LONGEST; n++) expect_narrow(f, x + n, n, want + n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_patterns),
      cmocka_unit_test(ties),
      cmocka_unit_test(any_bits_and_lengths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
