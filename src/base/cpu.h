/* cpu.h: which instruction sets this CPU has and this operating system saves. */
#ifndef HD_CPU_H
#define HD_CPU_H

#include "base.h"

/* avx2: AVX2, FMA and F16C. avx512: F, BW, VL, DQ. avx512bf16: these and BF16. amx: these, AMX-TILE and AMX-BF16. All only if XGETBV says that the system saves the registers. neon: every AArch64 has it. */
typedef struct hd_cpu {
  bool avx2, avx512, avx512bf16, amx, neon;
  char model[64]; /* "Intel(R) Xeon(R) Processor", or "unknown" */
} hd_cpu;

/* Reads the CPU anew; cheap. */
hd_cpu hd_cpu_read(void);

/* Asks the system to let this process use the registers of AMX, which it does not save otherwise; whether it does. Asking again is nothing. */
bool hd_cpu_allow_amx(void);

#endif
