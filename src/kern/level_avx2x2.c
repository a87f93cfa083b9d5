/* level_avx2x2.c: the 16-lane bodies on pairs of AVX2 registers, for tests on machines without AVX-512. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define LEVEL  avx2x2
#define BLOCKS 1
#include "vec_avx2x2.h"
#include "level.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
