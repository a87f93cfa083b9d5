/* vec_avx512.h: the vector operations on sixteen lanes (see vec_scalar.h for their meaning). */
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

typedef __m512 vf;
typedef __mmask16 vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf v_set(float x) { return _mm512_set1_ps(x); }
INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE float v_sum16(const vf part[1]) {
  __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(part[0]), _mm512_extractf32x8_ps(part[0], 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)),
         two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE vm v_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vm v_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm512_mask_mov_ps(b, m, a); }
INLINE vf v_keep(vm m, vf a) { return _mm512_maskz_mov_ps(m, a); }
INLINE bool v_any(vm m) { return m != 0; }
INLINE vm v_mask(uint64_t bits) { return (__mmask16)bits; }

INLINE vf v_abs(vf a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
INLINE vf v_copysign(vf magnitude, vf sign) {
  const vf top = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(top, magnitude), _mm512_and_ps(top, sign));
}

INLINE vf v_exponent(vf x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23)); }

INLINE vf v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf v_load_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE void v_store_f16(uint16_t *p, vf x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
INLINE void v_store_bf16(uint16_t *p, vf x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i half = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __m512i words = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(words));
}
INLINE vf v_load_i8(const int8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }

INLINE vf v_bf16_of(vf word, const int place) {
  __m512i bits = _mm512_castps_si512(word);
  return _mm512_castsi512_ps(place ? _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(bits, 16));
}
/* A byte shuffle that leaves all but byte 1 of each word as it was in the constant. */
INLINE vf v_load_codes(const uint8_t *p) {
  const __m512i at = _mm512_setr_epi32(0x0000, 0x0100, 0x0200, 0x0300, 0x0400, 0x0500, 0x0600, 0x0700, 0x0800, 0x0900, 0x0a00, 0x0b00,
                                       0x0c00, 0x0d00, 0x0e00, 0x0f00);
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
  return _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x47000000), 0x2222222222222222, bytes, at));
}
INLINE vf v_code_of(vf word, const int place) {
  const __m512i base = _mm512_set1_epi32(0x47000000), bits = _mm512_castps_si512(word);
  if (place == 1)
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bits, _mm512_set1_epi32(0xff00), base, 0xea)); // bits & 0xff00 | base
  const __m512i at = _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x0400, 0x0800, 0x0c00)), _mm512_set1_epi32(place << 8));
  return _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(base, 0x2222222222222222, bits, at));
}

typedef __m512i vi;
INLINE vi v_load_u32(const uint32_t *p) { return _mm512_loadu_si512(p); }
INLINE vi v_and(vi a, uint32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32((int)mask)); }
INLINE vi v_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi v_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
INLINE vi v_set_u32(uint32_t x) { return _mm512_set1_epi32((int)x); }
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) {
  const vi f = _mm512_set1_epi32((int)factor);
  vi even = _mm512_mul_epu32(a, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), f);
  *low = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
  *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}
INLINE uint64_t v_above(vi a, uint32_t limit) { return _mm512_cmpgt_epu32_mask(a, _mm512_set1_epi32((int)limit)); }
INLINE vi v_shift(vi a, const int right) {
  return right >= 0 ? _mm512_srl_epi32(a, _mm_cvtsi32_si128(right)) : _mm512_sll_epi32(a, _mm_cvtsi32_si128(-right));
}
INLINE vi v_shift_by(vi a, int right) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(right)); }
INLINE vf v_float(vi a) { return _mm512_cvtepi32_ps(a); }
/* A permutation looks at the low four bits only, so it masks, converts and looks up at once. */
INLINE vf v_lookup(vi a, const float table[16]) { return _mm512_permutexvar_ps(a, _mm512_loadu_ps(table)); }
INLINE vf v_nibble(vi a) { return _mm512_permutexvar_ps(a, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)); }

INLINE vf v_swap_pairs(vf a) { return _mm512_permute_ps(a, 0xb1); }
INLINE vf v_load_pairs(const float *p) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

INLINE void v_transpose(vf r[LANES]) {
  vf t[16], u[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  // u[4g + c] holds column c of each 128-bit quarter for rows 4g..4g+3; what is left is a 4 × 4 transpose of quarters.
#pragma GCC unroll 16
  for (int c = 0; c < 4; c++) {
    vf a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x44), b = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xee);
    vf e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x44), f = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xee);
    r[c] = _mm512_shuffle_f32x4(a, e, 0x88);
    r[4 + c] = _mm512_shuffle_f32x4(a, e, 0xdd);
    r[8 + c] = _mm512_shuffle_f32x4(b, f, 0x88);
    r[12 + c] = _mm512_shuffle_f32x4(b, f, 0xdd);
  }
}

#define PIN(x) __asm__("" : "+v"(x))
