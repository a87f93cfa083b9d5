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
INLINE vm v_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
INLINE vm v_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
INLINE vf v_keep(vm m, vf a) { return _mm256_and_ps(m, a); }
INLINE bool v_any(vm m) { return _mm256_movemask_ps(m) != 0; }
INLINE vm v_mask(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xff)), lane), lane));
}

INLINE vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE vf v_copysign(vf magnitude, vf sign) {
  const vf top = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(top, magnitude), _mm256_and_ps(top, sign));
}

INLINE vf v_exponent(vf x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23)); }

INLINE vf v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vf v_load_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE void v_store_f16(uint16_t *p, vf x) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void v_store_bf16(uint16_t *p, vf x) {
  const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
  const __m256i half = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16), quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
INLINE vf v_load_i8(const int8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }

INLINE vf v_bf16_of(vf word, const int place) {
  __m256i bits = _mm256_castps_si256(word);
  return _mm256_castsi256_ps(place ? _mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(bits, 16));
}
INLINE vf v_load_codes(const uint8_t *p) {
  long long eight;
  memcpy(&eight, p, sizeof eight);
  const int none = (int)0x80800080;
  const __m256i at =
      _mm256_setr_epi32(none, none + 0x100, none + 0x200, none + 0x300, none + 0x400, none + 0x500, none + 0x600, none + 0x700);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_shuffle_epi8(_mm256_set1_epi64x(eight), at), _mm256_set1_epi32(0x47000000)));
}
INLINE vf v_code_of(vf word, const int place) {
  const __m256i bits = _mm256_castps_si256(word), base = _mm256_set1_epi32(0x47000000);
  if (place == 1) return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0xff00)), base));
  const int none = (int)0x80800080 | place << 8;
  const __m256i at =
      _mm256_setr_epi32(none, none + 0x0400, none + 0x0800, none + 0x0c00, none, none + 0x0400, none + 0x0800, none + 0x0c00);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_shuffle_epi8(bits, at), base));
}

typedef __m256i vi;
INLINE vi v_load_u32(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi v_and(vi a, uint32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32((int)mask)); }
INLINE vi v_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi v_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
INLINE vi v_set_u32(uint32_t x) { return _mm256_set1_epi32((int)x); }
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) {
  const vi f = _mm256_set1_epi32((int)factor);
  vi even = _mm256_mul_epu32(a, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), f);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
/* Comparisons are signed: turning the top bits round makes them unsigned. */
INLINE uint64_t v_above(vi a, uint32_t limit) {
  const vi top = _mm256_set1_epi32((int)0x80000000),
           above = _mm256_cmpgt_epi32(_mm256_xor_si256(a, top), _mm256_set1_epi32((int)(limit ^ 0x80000000)));
  return (uint64_t)_mm256_movemask_ps(_mm256_castsi256_ps(above));
}
INLINE vi v_shift(vi a, const int right) { return right >= 0 ? _mm256_srli_epi32(a, right) : _mm256_slli_epi32(a, -right); }
INLINE vi v_shift_by(vi a, int right) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(right)); }
INLINE vf v_float(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vf v_nibble(vi a) { return v_float(v_and(a, 15)); }
INLINE vf v_lookup(vi a, const float table[16]) {
  // Each permutation looks at three bits; the fourth, moved to the sign, chooses between them.
  vf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), a), high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), a);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(a, 28)));
}

INLINE vf v_swap_pairs(vf a) { return _mm256_permute_ps(a, 0xb1); }
INLINE vf v_load_pairs(const float *p) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

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
