/* level_scalar.c: plain C; the definition of every bit the other levels give, and what runs on a CPU without AVX2. */
#include "kernels.h"

#include <math.h>

#define LEVEL  scalar
#define BLOCKS 4
#include "vec_scalar.h"
#include "level.h"
