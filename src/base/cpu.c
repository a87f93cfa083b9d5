/* cpu.c: CPU features by CPUID and XGETBV, or by the architecture where it says enough. On x86 the instruction alone is not enough: a kernel or hypervisor that does not save the wide registers makes them unusable. */
#define _GNU_SOURCE
#include "cpu.h"

#if defined(__x86_64__) // 32-bit x86 has no kernels but the scalar ones
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Bits that not every compiler's header has: of leaf 7, EDX of subleaf 0 and EAX of subleaf 1. */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AVX512BF16 = 1 << 5 };

static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

hd_cpu hd_cpu_read(void) {
  hd_cpu cpu = {.model = "unknown"};
  unsigned a, b, c, d;
  if (__get_cpuid(0x80000000, &a, &b, &c, &d) && a >= 0x80000004)
    for (unsigned leaf = 0; leaf < 3; leaf++) {
      unsigned words[4];
      __get_cpuid(0x80000002 + leaf, &words[0], &words[1], &words[2], &words[3]);
      memcpy(cpu.model + 16 * leaf, words, 16);
    }
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA) || !(c & bit_F16C)) return cpu;
  uint64_t saved = saved_registers();
  if ((saved & 0x6) != 0x6) return cpu; // SSE and AVX state
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  cpu.avx2 = b & bit_AVX2;
  cpu.avx512 = cpu.avx2 && (saved & 0xe6) == 0xe6 && (b & bit_AVX512F) && (b & bit_AVX512BW) && (b & bit_AVX512VL) && (b & bit_AVX512DQ);
  bool tiles = (saved & 0x60000) == 0x60000 && (d & AMX_TILE) && (d & AMX_BF16);
  cpu.avx512bf16 = cpu.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512BF16);
  cpu.amx = cpu.avx512bf16 && tiles;
  return cpu;
}

#if defined(__linux__)
bool hd_cpu_allow_amx(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
bool hd_cpu_allow_amx(void) { return false; }
#endif
#elif defined(__aarch64__)
hd_cpu hd_cpu_read(void) { return (hd_cpu){.model = "AArch64", .neon = true}; }
bool hd_cpu_allow_amx(void) { return false; }
#else
hd_cpu hd_cpu_read(void) { return (hd_cpu){.model = "unknown"}; }
bool hd_cpu_allow_amx(void) { return false; }
#endif
