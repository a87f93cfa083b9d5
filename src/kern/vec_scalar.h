/* vec_scalar.h: the vector operations on one lane. Every level's header gives these same names, so that bodies are written once; this one is their definition.
 *
 * vf: LANES floats; vm: a truth value a lane. fma rounds once. max is a > b ? a : b and min a < b ? a : b, so the second operand passes where either is NaN. */
#include <math.h>

#define LANES       1
#define MAX_VECTORS 4 /* vectors in a block of query lanes */
/* Rows of a register tile of attention that is 1, 2, 3 or 4 vectors wide. */
#define TILE_ROWS_1 4
#define TILE_ROWS_2 4
#define TILE_ROWS_3 4
#define TILE_ROWS_4 4

/* The register tile of matrix products. */
#define GEMM_ROWS    4
#define GEMM_VECTORS 4

typedef float vf;
typedef bool vm;

#define INLINE static inline __attribute__((always_inline))

INLINE vf v_load(const float *p) { return *p; }
INLINE void v_store(float *p, vf x) { *p = x; }
INLINE vf v_set(float x) { return x; }
INLINE vf v_add(vf a, vf b) { return a + b; }
INLINE vf v_sub(vf a, vf b) { return a - b; }
INLINE vf v_mul(vf a, vf b) { return a * b; }
INLINE vf v_div(vf a, vf b) { return a / b; }
INLINE vf v_sqrt(vf a) { return sqrtf(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return fmaf(a, b, c); }
INLINE vf v_max(vf a, vf b) { return a > b ? a : b; }
INLINE vf v_min(vf a, vf b) { return a < b ? a : b; }
/* The sum of the 16 lanes of 16 / LANES vectors: lane i with lane i + 8, then + 4, + 2, + 1. */
INLINE float v_sum16(const vf part[16]) {
  float lane[16];
  memcpy(lane, part, sizeof lane);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}
INLINE vm v_gt(vf a, vf b) { return a > b; }
INLINE vm v_eq(vf a, vf b) { return a == b; }
INLINE vf v_select(vm m, vf a, vf b) { return m ? a : b; }
INLINE vf v_keep(vm m, vf a) { return m ? a : 0.0f; } /* 0 where m is false */
INLINE bool v_any(vm m) { return m; }
INLINE vm v_mask(uint64_t bits) { return bits & 1; } /* lane i from bit i; higher bits are ignored */

INLINE vf v_abs(vf a) { return fabsf(a); }
INLINE vf v_copysign(vf magnitude, vf sign) { return copysignf(magnitude, sign); }

/* The low nine bits of x's representation become sign and exponent. */
INLINE vf v_exponent(vf x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits <<= 23;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

INLINE vf v_load_f16(const uint16_t *p) { return hd_f16_to_f32(*p); }
INLINE vf v_load_bf16(const uint16_t *p) { return hd_bf16_to_f32(*p); }
/* Rounded to nearest even; a NaN stays one, with its sign and what bits of it there is room for. */
INLINE void v_store_f16(uint16_t *p, vf x) { *p = hd_f32_to_f16(x); }
INLINE void v_store_bf16(uint16_t *p, vf x) { *p = hd_f32_to_bf16(x); }
INLINE vf v_load_i8(const int8_t *p) { return *p; }

/* Of words of 32 bits that came as floats, the bf16 in the low (0) or high (1) half. */
INLINE vf v_bf16_of(vf word, const int place) {
  uint32_t bits;
  memcpy(&bits, &word, sizeof bits);
  return hd_bf16_to_f32((uint16_t)(bits >> 16 * place));
}
/* Bytes u as the floats 2^15 + u: of LANES neighbours, and of the byte at bits 8 · place of each word. */
INLINE vf v_load_codes(const uint8_t *p) { return 32768.0f + *p; }
INLINE vf v_code_of(vf word, const int place) {
  uint32_t bits;
  memcpy(&bits, &word, sizeof bits);
  return 32768.0f + (uint8_t)(bits >> 8 * place);
}

/* Integers: LANES words of 32 bits. */
typedef uint32_t vi;
INLINE vi v_load_u32(const uint32_t *p) { return *p; }
INLINE vi v_and(vi a, uint32_t mask) { return a & mask; }
INLINE vi v_or(vi a, vi b) { return a | b; }
INLINE vi v_xor(vi a, vi b) { return a ^ b; }
INLINE vi v_set_u32(uint32_t x) { return x; }
/* The low and the high word of a · factor. */
INLINE void v_mul_wide(vi a, uint32_t factor, vi *low, vi *high) {
  uint64_t product = (uint64_t)a * factor;
  *low = (uint32_t)product;
  *high = (uint32_t)(product >> 32);
}
INLINE uint64_t v_above(vi a, uint32_t limit) { return a > limit; }                        /* bit i: lane i, unsigned, is above limit */
INLINE vi v_shift(vi a, const int right) { return right >= 0 ? a >> right : a << -right; } /* |right| < 32 */
INLINE vi v_shift_by(vi a, int right) { return a >> right; }                               /* any number in [0, 31] */
INLINE vf v_float(vi a) { return (float)(int32_t)a; }
INLINE vf v_nibble(vi a) { return (float)(a & 15); }                      /* the low four bits as a number */
INLINE vf v_lookup(vi a, const float table[16]) { return table[a & 15]; } /* table at the low four bits */

/* Neighbours: lanes 2i and 2i + 1 exchanged, and LANES / 2 floats each loaded into two neighbours. One lane has no neighbour. */
INLINE vf v_swap_pairs(vf a) { return a; }
INLINE vf v_load_pairs(const float *p) { return *p; }

/* r[i] lane j becomes r[j] lane i. */
INLINE void v_transpose(vf r[LANES]) { (void)r; }

/* Keeps a value in a register: without it gcc folds the load into every use and the tile becomes bound by loads. */
#define PIN(x) ((void)0)
