/* vec_avx2x2.h: sixteen lanes as pairs of AVX2 registers: the shapes of AVX-512 on a CPU without it. For tests; registers spill, so it is slow.
 * See vec_scalar.h for the meaning of the operations. */
#include <immintrin.h>

#define LANES       16
#define MAX_VECTORS 4
#define TILE_ROWS_1 8
#define TILE_ROWS_2 8
#define TILE_ROWS_3 8
#define TILE_ROWS_4 6

/* The register tile of matrix products. */
#define GEMM_ROWS    6
#define GEMM_VECTORS 4

typedef struct {
  __m256 lo, hi;
} vf;
typedef vf vm;

#define INLINE static inline __attribute__((always_inline))

#include "vec_ymm.h"

/* One operation on both halves. */
#define BOTH_1(name, op)                                                                                                                   \
  INLINE vf name(vf a) { return (vf){op(a.lo), op(a.hi)}; }
#define BOTH_2(name, op)                                                                                                                   \
  INLINE vf name(vf a, vf b) { return (vf){op(a.lo, b.lo), op(a.hi, b.hi)}; }

INLINE vf v_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE float v_sum16(const vf part[1]) { return y_sum(_mm256_add_ps(part[0].lo, part[0].hi)); }
INLINE void v_store(float *p, vf x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
INLINE vf v_set(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
BOTH_2(v_add, _mm256_add_ps)
BOTH_2(v_sub, _mm256_sub_ps)
BOTH_2(v_mul, _mm256_mul_ps)
BOTH_2(v_div, _mm256_div_ps)
BOTH_1(v_sqrt, _mm256_sqrt_ps)
BOTH_2(v_max, _mm256_max_ps)
BOTH_2(v_min, _mm256_min_ps)
BOTH_2(v_keep, _mm256_and_ps)
INLINE vf v_fma(vf a, vf b, vf c) { return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
INLINE vm v_gt(vf a, vf b) { return (vm){_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)}; }
INLINE vm v_eq(vf a, vf b) { return (vm){_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)}; }
INLINE vf v_select(vm m, vf a, vf b) { return (vf){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)}; }
INLINE bool v_any(vm m) { return _mm256_movemask_ps(_mm256_or_ps(m.lo, m.hi)) != 0; }

INLINE vm v_mask(uint64_t bits) { return (vm){y_mask(bits), y_mask(bits >> 8)}; }

BOTH_1(v_abs, y_abs)
BOTH_2(v_copysign, y_copysign)
BOTH_1(v_exponent, y_exponent)

INLINE vf v_load_f16(const uint16_t *p) { return (vf){y_load_f16(p), y_load_f16(p + 8)}; }
INLINE vf v_load_bf16(const uint16_t *p) { return (vf){y_load_bf16(p), y_load_bf16(p + 8)}; }
INLINE void v_store_f16(uint16_t *p, vf x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void v_store_bf16(uint16_t *p, vf x) {
  float lane[LANES];
  v_store(lane, x);
  for (int i = 0; i < LANES; i++) p[i] = hd_f32_to_bf16(lane[i]);
}
INLINE vf v_load_i8(const int8_t *p) { return (vf){y_load_i8(p), y_load_i8(p + 8)}; }

INLINE vf v_bf16_of(vf word, const int place) { return (vf){y_bf16_of(word.lo, place), y_bf16_of(word.hi, place)}; }
INLINE vf v_load_codes(const uint8_t *p) { return (vf){y_load_codes(p), y_load_codes(p + 8)}; }
INLINE vf v_code_of(vf word, const int place) { return (vf){y_code_of(word.lo, place), y_code_of(word.hi, place)}; }

typedef struct {
  __m256i lo, hi;
} vi;
INLINE vi v_load_u32(const uint32_t *p) {
  return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 8))};
}
INLINE vi v_and(vi a, uint32_t mask) {
  const __m256i m = _mm256_set1_epi32((int)mask);
  return (vi){_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
INLINE vi v_or(vi a, vi b) { return (vi){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
INLINE vi v_xor(vi a, vi b) { return (vi){_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
INLINE vi v_set_u32(uint32_t x) { return (vi){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)}; }
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) {
  y_mul_wide(a.lo, factor, &low->lo, &high->lo);
  y_mul_wide(a.hi, factor, &low->hi, &high->hi);
}
INLINE uint64_t v_above(vi a, uint32_t limit) { return y_above(a.lo, limit) | y_above(a.hi, limit) << 8; }
INLINE vi v_shift(vi a, const int right) {
  if (right >= 0) return (vi){_mm256_srli_epi32(a.lo, right), _mm256_srli_epi32(a.hi, right)};
  return (vi){_mm256_slli_epi32(a.lo, -right), _mm256_slli_epi32(a.hi, -right)};
}
INLINE vi v_shift_by(vi a, int right) {
  const __m128i n = _mm_cvtsi32_si128(right);
  return (vi){_mm256_srl_epi32(a.lo, n), _mm256_srl_epi32(a.hi, n)};
}
INLINE vf v_float(vi a) { return (vf){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
INLINE vf v_nibble(vi a) { return v_float(v_and(a, 15)); }
INLINE vf v_lookup(vi a, const float table[16]) { return (vf){y_lookup(a.lo, table), y_lookup(a.hi, table)}; }

INLINE vf v_swap_pairs(vf a) { return (vf){_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)}; }
INLINE vf v_load_pairs(const float *p) { return (vf){y_load_pairs(p), y_load_pairs(p + 4)}; }

INLINE void v_transpose(vf r[LANES]) {
  float square[LANES][LANES];
  for (int i = 0; i < LANES; i++) v_store(square[i], r[i]);
  for (int i = 0; i < LANES; i++) {
    float column[LANES];
    for (int j = 0; j < LANES; j++) column[j] = square[j][i];
    r[i] = v_load(column);
  }
}

#define PIN(x) ((void)0)
