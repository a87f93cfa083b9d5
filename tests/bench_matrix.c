/* bench_matrix: what matrix products reach here, as a ratio to the peak and bandwidth measured in between. Not a test: build it, run it on a quiet machine.
 *   build/tests/bench_matrix [LEVEL [THREADS]] */
#include "test.h"

#include "../src/base/base.h"
#include "../src/kern/matrix.h"

#include <stdio.h>

enum { RUNS = 9 };

static heed_context *context;
static double peak, bandwidth;

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure_machine(void) {
  heed_machine machine = {.size = sizeof machine};
  ok(context, heed_machine_measure(context, 0.1, &machine));
  peak = HD_MAX(peak, machine.peak_flops);
  bandwidth = HD_MAX(bandwidth, machine.read_bytes);
}

/* The best and the middle of RUNS timings of call. */
#define TIME(best, median, call)                                                                                                           \
  double best, median;                                                                                                                     \
  do {                                                                                                                                     \
    double times[RUNS];                                                                                                                    \
    for (int run = 0; run < RUNS; run++) {                                                                                                 \
      double begin = hd_now();                                                                                                             \
      call;                                                                                                                                \
      times[run] = hd_now() - begin;                                                                                                       \
    }                                                                                                                                      \
    qsort(times, RUNS, sizeof *times, ascending);                                                                                          \
    best = times[0];                                                                                                                       \
    median = times[RUNS / 2];                                                                                                              \
  } while (0)

static float *numbers(int64_t n) {
  float *out;
  ok(context, hd_allocate(context, "numbers", n, sizeof *out, &out));
  uint32_t seed = 1;
  for (int64_t i = 0; i < n; i++) out[i] = (float)(int32_t)(seed = seed * 1664525 + 1013904223) * 0x1p-31f;
  return out;
}

/* A matrix of `copies` × outputs rows, multiplied copy by copy where it is to come from memory. */
static void product(hd_storage storage, int64_t rows, int64_t outputs, int64_t inputs) {
  int64_t bytes = inputs / hd_storage_block(storage) * hd_storage_bytes(storage) * outputs;
  int64_t copies = rows > 8 ? 1 : HD_MAX((100 << 20) / bytes, 1);
  unsigned char *stored;
  hd_arena arena;
  hd_matrix *matrix;
  hd_arena_init(&arena, context);
  ok(context, hd_allocate(context, "stored", bytes, 1, &stored));
  ok(context, hd_arena_allocate(&arena, context, "matrices", copies, sizeof *matrix, &matrix));
  for (int64_t i = 0; i < bytes; i++) stored[i] = (unsigned char)(16 + i * 37 % 45); // no float or half is then subnormal, infinite or NaN
  for (int64_t i = 0; i < copies; i++) ok(context, hd_matrix_pack(context, &arena, storage, outputs, inputs, stored, &matrix[i]));
  float *x = numbers(rows * inputs), *y = numbers(rows * outputs);
  measure_machine();
  TIME(best, median, for (int64_t i = 0; i < copies; i++) hd_matrix_product(context, &matrix[i], x, rows, inputs, NULL, y, outputs));
  measure_machine();
  double flops = 2.0 * (double)rows * (double)outputs * (double)inputs * (double)copies, read = (double)(matrix->bytes * copies);
  printf("%-7s %4lld × %5lld × %4lld: %6.1f GF/s best, %.2f of peak (median %.2f); %5.1f GB/s, %.2f of bandwidth (median %.2f)\n",
         hd_storage_name(storage), (long long)rows, (long long)outputs, (long long)inputs, flops / best * 1e-9, flops / best / peak,
         flops / median / peak, read / best * 1e-9, read / best / bandwidth, read / median / bandwidth);
  hd_release(context, x, rows * inputs, sizeof *x);
  hd_release(context, y, rows * outputs, sizeof *y);
  hd_release(context, stored, bytes, 1);
  hd_arena_free(&arena);
}

static void gemm(int64_t n, int64_t m, int64_t k) {
  float *a = numbers(n * k), *b = numbers(m * k), *c = numbers(n * m);
  heed_view va = heed_view_of(a, HEED_F32, 2, (int64_t[]){n, k}), vb = heed_view_of(b, HEED_F32, 2, (int64_t[]){m, k}),
            vc = heed_view_of(c, HEED_F32, 2, (int64_t[]){n, m});
  heed_gemm_form form = {.size = sizeof form, .transpose_b = true};
  measure_machine();
  TIME(best, median, ok(context, heed_gemm(context, &form, &va, &vb, &vc)));
  measure_machine();
  double flops = 2.0 * (double)n * (double)m * (double)k;
  printf("gemm    %4lld × %5lld × %4lld: %6.1f GF/s best, %.2f of peak (median %.2f)\n", (long long)n, (long long)m, (long long)k,
         flops / best * 1e-9, flops / best / peak, flops / median / peak);
  hd_release(context, a, n * k, sizeof *a);
  hd_release(context, b, m * k, sizeof *b);
  hd_release(context, c, n * m, sizeof *c);
}

int main(int argc, char **argv) {
  heed_options options = {.size = sizeof options};
  if (argc > 1) options.level = heed_level_from_name(argv[1]);
  if (argc > 2) options.threads = atoi(argv[2]);
  context = test_context(&options);
  printf("%s, %d threads\n", heed_level_name(heed_context_level(context)), heed_context_threads(context));
  setvbuf(stdout, NULL, _IOLBF, 0);
  product(HD_F32, 512, 2304, 768);
  product(HD_F32, 512, 768, 3072);
  product(HD_F32, 1024, 1024, 1024);
  gemm(512, 2304, 768);
  gemm(1024, 1024, 1024);
  product(HD_Q4_1, 512, 1536, 576);
  product(HD_Q4_1, 512, 576, 1536);
  product(HD_Q4_1, 512, 192, 576);
  static const hd_storage types[] = {HD_F32,  HD_F16,  HD_BF16, HD_Q8_0, HD_Q4_0, HD_Q4_1,
                                     HD_Q4_K, HD_Q5_K, HD_Q6_K, HD_Q2_K, HD_Q3_K, HD_IQ4_NL};
  for (int i = 0; i < HD_COUNT(types); i++) product(types[i], 1, 1536, 768);
  product(HD_Q8_0, 1, 49152, 576);
  product(HD_Q4_1, 4, 1536, 768);
  product(HD_Q4_1, 8, 1536, 768);
  printf("peak %.1f GF/s, bandwidth %.1f GB/s\n", peak * 1e-9, bandwidth * 1e-9);
  heed_context_free(context);
  return 0;
}
