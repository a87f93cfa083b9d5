/* level_avx2.c: AVX2 with FMA: two blocks of 24 query lanes share each tile of keys. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define LEVEL  avx2
#define BLOCKS 2
#include "vec_avx2.h"
#include "level.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
