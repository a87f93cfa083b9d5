/* vec_neon.h: the vector operations on four lanes of AArch64 (see vec_scalar.h for their meaning).
 *
 * A block is 4 vectors, the 16 queries of a cell. FMAX and FMAXNM know other rules for NaN and for zeros of both signs than v_max, so maxima are comparisons. */
#include <arm_neon.h>

#define LANES       4
#define MAX_VECTORS 4
/* 24 of 32 registers hold sums, which leaves room for 4 loads and broadcasts on their way; two pipes with 4 cycles from sum to sum need 8 chains. */
#define TILE_ROWS_1 8
#define TILE_ROWS_2 8
#define TILE_ROWS_3 8
#define TILE_ROWS_4 6

/* The register tile of matrix products; 4 vectors are a panel. */
#define GEMM_ROWS    6
#define GEMM_VECTORS 4

typedef float32x4_t vf;
typedef uint32x4_t vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf v_load(const float *p) { return vld1q_f32(p); }
INLINE void v_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf v_set(float x) { return vdupq_n_f32(x); }
INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf v_sqrt(vf a) { return vsqrtq_f32(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE float v_sum16(const vf part[4]) {
  vf four = vaddq_f32(vaddq_f32(part[0], part[2]), vaddq_f32(part[1], part[3]));
  float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
INLINE vm v_gt(vf a, vf b) { return vcgtq_f32(a, b); }
INLINE vm v_eq(vf a, vf b) { return vceqq_f32(a, b); }
INLINE vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
INLINE vf v_keep(vm m, vf a) { return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(a))); }
INLINE bool v_any(vm m) { return vmaxvq_u32(m) != 0; }
INLINE vm v_mask(uint64_t bits) {
  const uint32x4_t lane = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32((uint32_t)bits), lane);
}

INLINE vf v_abs(vf a) { return vabsq_f32(a); }
INLINE vf v_copysign(vf magnitude, vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000), sign, magnitude); }
INLINE vf v_exponent(vf x) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(x), 23)); }

INLINE vf v_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE vf v_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE void v_store_f16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
INLINE void v_store_bf16(uint16_t *p, vf x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
  const uint32x4_t half = vaddq_u32(vandq_u32(high, vdupq_n_u32(1)), vdupq_n_u32(0x7fff)), quiet = vorrq_u32(high, vdupq_n_u32(0x40));
  vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(vaddq_u32(bits, half), 16), quiet)));
}
INLINE vf v_load_i8(const int8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
INLINE vf v_bf16_of(vf word, const int place) {
  const uint32x4_t bits = vreinterpretq_u32_f32(word);
  return vreinterpretq_f32_u32(place ? vandq_u32(bits, vdupq_n_u32(0xffff0000)) : vshlq_n_u32(bits, 16));
}
INLINE vf v_load_codes(const uint8_t *p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  const uint16x4_t high = vget_low_u16(vshll_n_u8(vcreate_u8(four), 8));
  return vreinterpretq_f32_u32(vorrq_u32(vmovl_u16(high), vdupq_n_u32(0x47000000)));
}
INLINE vf v_code_of(vf word, const int place) {
  const uint32x4_t byte_1 = vshlq_u32(vreinterpretq_u32_f32(word), vdupq_n_s32(8 - 8 * place));
  return vreinterpretq_f32_u32(vorrq_u32(vandq_u32(byte_1, vdupq_n_u32(0xff00)), vdupq_n_u32(0x47000000)));
}

typedef uint32x4_t vi;
INLINE vi v_load_u32(const uint32_t *p) { return vld1q_u32(p); }
INLINE vi v_and(vi a, uint32_t mask) { return vandq_u32(a, vdupq_n_u32(mask)); }
INLINE vi v_or(vi a, vi b) { return vorrq_u32(a, b); }
INLINE vi v_xor(vi a, vi b) { return veorq_u32(a, b); }
INLINE vi v_set_u32(uint32_t x) { return vdupq_n_u32(x); }
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) {
  const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a), factor));
  const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_n_u32(a, factor));
  *low = vuzp1q_u32(first, second);
  *high = vuzp2q_u32(first, second);
}
INLINE uint64_t v_above(vi a, uint32_t limit) {
  const uint32x4_t lane = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(vcgtq_u32(a, vdupq_n_u32(limit)), lane));
}
INLINE vi v_shift(vi a, const int right) { return vshlq_u32(a, vdupq_n_s32(-right)); }
INLINE vi v_shift_by(vi a, int right) { return vshlq_u32(a, vdupq_n_s32(-right)); }
INLINE vf v_float(vi a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
INLINE vf v_nibble(vi a) { return vcvtq_f32_u32(vandq_u32(a, vdupq_n_u32(15))); }
INLINE vf v_lookup(vi a, const float table[16]) {
  // Bytes 4c to 4c + 3 of the table for each code c.
  const uint8x16x4_t bytes = vld1q_u8_x4((const uint8_t *)table);
  const uint32x4_t index = vaddq_u32(vmulq_u32(vandq_u32(a, vdupq_n_u32(15)), vdupq_n_u32(0x04040404)), vdupq_n_u32(0x03020100));
  return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(index)));
}

INLINE vf v_swap_pairs(vf a) { return vrev64q_f32(a); }
INLINE vf v_load_pairs(const float *p) {
  const float32x2_t pair = vld1_f32(p);
  return vcombine_f32(vdup_lane_f32(pair, 0), vdup_lane_f32(pair, 1));
}

INLINE void v_transpose(vf r[LANES]) {
  const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
  const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
  r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
  r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
  r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
  r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

#define PIN(x) __asm__("" : "+w"(x))
