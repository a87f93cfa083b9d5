/* level_avx512bf16.c: AVX-512 that multiplies two pairs of bf16 at once in each word. Held to a tolerance, and never chosen by itself. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#define LEVEL    avx512bf16
#define PRODUCTS "body_bf16_dot.h"
#include "vec_avx512.h"
#include "level_bf16.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
