/* level_avx512.c: AVX-512 (F, BW, VL, DQ): one block of 64 query lanes. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#define LEVEL  avx512
#define BLOCKS 1
#include "vec_avx512.h"
#include "level.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
