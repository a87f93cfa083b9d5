/* level.h: the second half of every level_*.c: the bodies, compiled for the level's target, and the table. The including file has defined LEVEL, included its vec_*.h and
 * says how many blocks of query lanes share a tile of keys (BLOCKS). */
#define PASTE_(a, b, c) a##b##__##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define KERNEL(name)    PASTE(hd_, name, LEVEL)

#define DECLARE(type, name, parameters) type KERNEL(name) parameters;
HD_KERNEL_LIST(DECLARE)
#undef DECLARE

#include "body_vec.h"
#include "body_attn.h"
#include "body_attn_decode.h"
#include "body_attn_backward.h"
#include "body_dropout.h"
#include "body_additive.h"
#include "body_rows.h"
#include "body_elements.h"
#include "body_recurrent.h"
#include "body_learn.h"
#include "body_gemm.h"
#include "body_quant.h"
#include "body_linear.h"
#include "body_lsh.h"

extern const hd_kernels KERNEL(kernels);
#define ENTRY(type, name, parameters) .name = KERNEL(name),
const hd_kernels KERNEL(kernels) = {
    HD_KERNEL_LIST(ENTRY).vector = LANES,       .block_lanes = LANES * MAX_VECTORS,
    .tile_lanes = LANES * MAX_VECTORS * BLOCKS, .whole_groups = LANES * GEMM_VECTORS == HD_GROUP,
    .peak_flops = 2.0 * LANES * PEAK_CHAINS,
};
#undef ENTRY
