/* kernels.c: from a context's level to its table, and what kernels are given that is made once. */
#include "kernels.h"

extern const hd_kernels hd_kernels__scalar;
#if defined(__x86_64__)
extern const hd_kernels hd_kernels__avx2, hd_kernels__avx2x2, hd_kernels__avx512, hd_kernels__avx512bf16, hd_kernels__amx;
#elif defined(__aarch64__)
extern const hd_kernels hd_kernels__neon;
#endif

const hd_kernels *hd_kernels_of(const heed_context *context) {
  switch (context->level) {
#if defined(__x86_64__)
  case HEED_LEVEL_AVX2: return &hd_kernels__avx2;
  case HEED_LEVEL_AVX2X2: return &hd_kernels__avx2x2;
  case HEED_LEVEL_AVX512: return &hd_kernels__avx512;
  case HEED_LEVEL_AVX512BF16: return &hd_kernels__avx512bf16;
  case HEED_LEVEL_AMX: return &hd_kernels__amx;
#elif defined(__aarch64__)
  case HEED_LEVEL_NEON: return &hd_kernels__neon;
#endif
  default: return &hd_kernels__scalar;
  }
}

void hd_pair_columns(float *rows, int64_t d, int64_t lanes) {
  for (int64_t i = 0; i < d / 2; i++)
    for (int64_t lane = 0; lane < lanes; lane++) {
      uint32_t first, second;
      memcpy(&first, rows + 2 * i * lanes + lane, sizeof first);
      memcpy(&second, rows + (2 * i + 1) * lanes + lane, sizeof second);
      first = first >> 16 | (second & 0xffff0000);
      memcpy(rows + i * lanes + lane, &first, sizeof first);
    }
}
