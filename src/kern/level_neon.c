/* level_neon.c: NEON, which every AArch64 processor has. Four blocks of 16 query lanes share each tile of keys: two tiles of 64 × 64 floats, a block's
 * queries, sums and scores stay within a first-level cache of 64 KiB, and 64 lanes read each key tile as rarely as the widest level does. */
#include "kernels.h"

#include <math.h>

#if defined(__aarch64__)
#define LEVEL  neon
#define BLOCKS 4
#include "vec_neon.h"
#include "level.h"
#endif
