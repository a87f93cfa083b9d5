/* vec_ymm.h: operations on one register of 256 bits, of which a vector of vec_avx2.h has one and one of vec_avx2x2.h two. See vec_scalar.h for their meaning. */

INLINE __m256 y_mask(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xff)), lane), lane));
}
INLINE __m256 y_abs(__m256 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE __m256 y_copysign(__m256 magnitude, __m256 sign) {
  return _mm256_or_ps(y_abs(magnitude), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
/* Lane i with lane i + 4, then + 2, + 1. */
INLINE float y_sum(__m256 a) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)), two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE __m256 y_exponent(__m256 x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23)); }
INLINE __m256 y_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE __m256 y_load_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE __m256 y_load_i8(const int8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
INLINE __m256 y_bf16_of(__m256 word, const int place) {
  __m256i bits = _mm256_castps_si256(word);
  return _mm256_castsi256_ps(place ? _mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(bits, 16));
}
INLINE __m256 y_load_codes(const uint8_t *p) {
  long long eight;
  memcpy(&eight, p, sizeof eight);
  const int none = (int)0x80800080;
  const __m256i at =
      _mm256_setr_epi32(none, none + 0x100, none + 0x200, none + 0x300, none + 0x400, none + 0x500, none + 0x600, none + 0x700);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_shuffle_epi8(_mm256_set1_epi64x(eight), at), _mm256_set1_epi32(0x47000000)));
}
INLINE __m256 y_code_of(__m256 word, const int place) {
  const __m256i bits = _mm256_castps_si256(word), base = _mm256_set1_epi32(0x47000000);
  if (place == 1) return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0xff00)), base));
  const int none = (int)0x80800080 | place << 8;
  const __m256i at =
      _mm256_setr_epi32(none, none + 0x0400, none + 0x0800, none + 0x0c00, none, none + 0x0400, none + 0x0800, none + 0x0c00);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_shuffle_epi8(bits, at), base));
}
INLINE void y_mul_wide(__m256i a, uint32_t factor, __m256i *low, __m256i *high) {
  const __m256i f = _mm256_set1_epi32((int)factor);
  __m256i even = _mm256_mul_epu32(a, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), f);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
/* Comparisons are signed: turning the top bits round makes them unsigned. */
INLINE uint64_t y_above(__m256i a, uint32_t limit) {
  const __m256i top = _mm256_set1_epi32((int)0x80000000), edge = _mm256_set1_epi32((int)(limit ^ 0x80000000));
  return (uint64_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_xor_si256(a, top), edge)));
}
INLINE __m256 y_lookup(__m256i a, const float *table) {
  // Each permutation looks at three bits; the fourth, moved to the sign, chooses between them.
  __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), a), high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), a);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(a, 28)));
}
INLINE __m256 y_load_pairs(const float *p) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
