/* kernels.c: from a context's level to its table. */
#include "kernels.h"

extern const hd_kernels hd_kernels__scalar;
#if defined(__x86_64__)
extern const hd_kernels hd_kernels__avx2, hd_kernels__avx2x2, hd_kernels__avx512;
#elif defined(__aarch64__)
extern const hd_kernels hd_kernels__neon;
#endif

const hd_kernels *hd_kernels_of(const heed_context *context) {
  switch (context->level) {
#if defined(__x86_64__)
  case HEED_LEVEL_AVX2: return &hd_kernels__avx2;
  case HEED_LEVEL_AVX2X2: return &hd_kernels__avx2x2;
  case HEED_LEVEL_AVX512: return &hd_kernels__avx512;
#elif defined(__aarch64__)
  case HEED_LEVEL_NEON: return &hd_kernels__neon;
#endif
  default: return &hd_kernels__scalar;
  }
}
