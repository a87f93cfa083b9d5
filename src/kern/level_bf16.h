/* level_bf16.h: the second half of the levels that multiply bf16 as it lies: forward attention on bf16 rows is their own, every other kernel that of the level avx512. The
 * including file has defined LEVEL and included vec_avx512.h, and says which header brings the products (PRODUCTS). */
#define PASTE_(a, b, c) a##b##__##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define KERNEL(name)    PASTE(hd_, name, LEVEL)

#define DECLARE(type, name, parameters) type hd_##name##__avx512 parameters, KERNEL(name) parameters;
HD_KERNEL_LIST(DECLARE)
#undef DECLARE

#include "body_vec.h"
#include "body_attn.h"
#include "body_attn_bf16.h"
#include PRODUCTS

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
    .whole_groups = LANES * GEMM_VECTORS == HD_GROUP,
    .takes_bf16 = true,
};
#undef ENTRY
