/* vec_avx2.h: the vector operations on eight lanes (see vec_scalar.h for their meaning). */
#include <immintrin.h>

#define LANES       8
#define MAX_VECTORS 3 /* 4 rows × 3 vectors fill 12 of the 16 registers and leave room for 3 loads and a broadcast */
#define TILE_ROWS_1 8
#define TILE_ROWS_2 4
#define TILE_ROWS_3 4

/* The register tile of matrix products. */
#define GEMM_ROWS    6
#define GEMM_VECTORS 2

typedef __m256 vf;
typedef __m256 vm;

#define INLINE static inline __attribute__((always_inline))

#include "vec_ymm.h"

INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf v_set(float x) { return _mm256_set1_ps(x); }
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE float v_sum16(const vf part[2]) { return y_sum(_mm256_add_ps(part[0], part[1])); }
INLINE vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
INLINE vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
INLINE vf v_keep(vm m, vf a) { return _mm256_and_ps(m, a); }
INLINE bool v_any(vm m) { return _mm256_movemask_ps(m) != 0; }
INLINE vm v_mask(uint64_t bits) { return y_mask(bits); }

INLINE vf v_abs(vf a) { return y_abs(a); }
INLINE vf v_copysign(vf magnitude, vf sign) { return y_copysign(magnitude, sign); }

INLINE vf v_exponent(vf x) { return y_exponent(x); }

INLINE vf v_load_f16(const uint16_t *p) { return y_load_f16(p); }
INLINE vf v_load_bf16(const uint16_t *p) { return y_load_bf16(p); }
INLINE void v_store_f16(uint16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void v_store_bf16(uint16_t *p, vf x) {
  const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
  const __m256i half = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16), quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
INLINE vf v_load_i8(const int8_t *p) { return y_load_i8(p); }

INLINE vf v_bf16_of(vf word, const int place) { return y_bf16_of(word, place); }
INLINE vf v_load_codes(const uint8_t *p) { return y_load_codes(p); }
INLINE vf v_code_of(vf word, const int place) { return y_code_of(word, place); }

typedef __m256i vi;
INLINE vi v_load_u32(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi v_and(vi a, uint32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32((int)mask)); }
INLINE vi v_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi v_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
INLINE vi v_set_u32(uint32_t x) { return _mm256_set1_epi32((int)x); }
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) { y_mul_wide(a, factor, low, high); }
INLINE uint64_t v_above(vi a, uint32_t limit) { return y_above(a, limit); }
INLINE vi v_shift(vi a, const int right) { return right >= 0 ? _mm256_srli_epi32(a, right) : _mm256_slli_epi32(a, -right); }
INLINE vi v_shift_by(vi a, int right) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(right)); }
INLINE vf v_float(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vf v_nibble(vi a) { return v_float(v_and(a, 15)); }
INLINE vf v_lookup(vi a, const float table[16]) { return y_lookup(a, table); }

INLINE vf v_swap_pairs(vf a) { return _mm256_permute_ps(a, 0xb1); }
INLINE vf v_load_pairs(const float *p) { return y_load_pairs(p); }

INLINE void v_transpose(vf r[LANES]) {
  vf t[8], u[8];
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

#define PIN(x) __asm__("" : "+x"(x))
