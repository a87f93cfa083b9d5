/* level_avx512bf16.c: AVX-512 that multiplies bf16 as it lies. Forward attention on bf16 rows is its own, held to a tolerance; everything else is the level avx512. */
#include "kernels.h"

#include <math.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#endif

#include "vec_avx512.h"

#define KERNEL(name)                    hd_##name##__avx512bf16
#define DECLARE(type, name, parameters) type hd_##name##__avx512 parameters, KERNEL(name) parameters;
HD_KERNEL_LIST(DECLARE)
#undef DECLARE

#include "body_vec.h"
#include "body_attn.h"
#include "body_attn_bf16.h"

static void attend(hd_attn_block *block, const hd_attn_tile *tile) {
  if (tile->k_bf16) attend_bf16(block, tile);
  else hd_attn_tile__avx512(block, tile);
}

extern const hd_kernels KERNEL(kernels);
#define hd_attn_tile__avx512          attend /* the one entry that is not that level's */
#define ENTRY(type, name, parameters) .name = hd_##name##__avx512,
const hd_kernels KERNEL(kernels) = {
    HD_KERNEL_LIST(ENTRY).vector = LANES,
    .block_lanes = LANES * MAX_VECTORS,
    .tile_lanes = LANES * MAX_VECTORS,
    .peak_flops = 2.0 * LANES * PEAK_CHAINS,
    .takes_bf16 = true,
};
#undef ENTRY

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
