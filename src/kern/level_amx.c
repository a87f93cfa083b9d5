/* level_amx.c: AVX-512 with the tile registers of AMX for products of bf16. Held to a tolerance, and never chosen by itself. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))),     \
                             apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#define LEVEL    amx
#define PRODUCTS "body_bf16_amx.h"
#include "vec_avx512.h"
#include "level_bf16.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
