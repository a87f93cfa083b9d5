/* core.c: one grouped, causal, windowed attention with a softcap, at every level that this machine runs. Prints one hash of all output bits, the same for every level,
 * so that two builds of the library can be compared by comparing two lines. It needs nothing but the core. */
#include "../../include/heed/heed.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, QUERIES = 137, KEYS = 203, WIDTH = 40, VALUE_WIDTH = 24 };

static float q[HEADS][QUERIES][WIDTH], k[KV_HEADS][KEYS][WIDTH], v[KV_HEADS][KEYS][VALUE_WIDTH], out[HEADS][QUERIES][VALUE_WIDTH];
static double exact[HEADS][QUERIES][VALUE_WIDTH];

/* Small numbers with all their bits in use, the same with every compiler. */
static void fill(float *x, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)((int32_t)(seed >> 8) - (1 << 23)) / (float)(1 << 22);
  }
}

static uint64_t hash(const void *data, size_t bytes) {
  const unsigned char *byte = data;
  uint64_t h = 14695981039346656037u; // FNV-1a
  for (size_t i = 0; i < bytes; i++) h = (h ^ byte[i]) * 1099511628211u;
  return h;
}

static int run(heed_level level, uint64_t *result) {
  heed_context *context = NULL;
  if (heed_context_new(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = 2}, &context) != HEED_OK) return 1;
  heed_view Q = heed_view_of(q, HEED_F32, 3, (int64_t[]){HEADS, QUERIES, WIDTH}),
            K = heed_view_of(k, HEED_F32, 3, (int64_t[]){KV_HEADS, KEYS, WIDTH});
  heed_view V = heed_view_of(v, HEED_F32, 3, (int64_t[]){KV_HEADS, KEYS, VALUE_WIDTH});
  heed_view O = heed_view_of(out, HEED_F32, 3, (int64_t[]){HEADS, QUERIES, VALUE_WIDTH}), E = O;
  E.data = exact, E.type = HEED_F64;
  heed_attention a = {
      .size = sizeof a, .causal = true, .align = HEED_ALIGN_END, .has_window_left = true, .window_left = 150, .softcap = 30};
  int bad = heed_attention_forward(context, &a, &Q, &K, &V, &O, NULL) != HEED_OK ||
            heed_attention_reference(context, &a, &Q, &K, &V, &E, NULL) != HEED_OK;
  if (bad) fprintf(stderr, "%s: %s\n", heed_level_name(level), heed_error(context));
  double worst = 0;
  for (size_t i = 0; i < HEADS * QUERIES * VALUE_WIDTH; i++) {
    double error = fabs((double)(&out[0][0][0])[i] - (&exact[0][0][0])[i]);
    if (!(error <= worst)) worst = error; // NaN counts
  }
  if (!(worst < 4e-6)) bad = 1, fprintf(stderr, "%s: error %g against the reference\n", heed_level_name(level), worst);
  *result = hash(out, sizeof out);
  heed_context_free(context);
  return bad;
}

int main(void) {
  uint64_t first = 0;
  fill(&q[0][0][0], sizeof q / sizeof(float), 1);
  fill(&k[0][0][0], sizeof k / sizeof(float), 2);
  fill(&v[0][0][0], sizeof v / sizeof(float), 3);
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    uint64_t result;
    if (!heed_level_available(level)) continue;
    if (run(level, &result) != 0) return 1;
    if (level == HEED_LEVEL_SCALAR) first = result;
    if (result != first) {
      fprintf(stderr, "%s: bits differ from the scalar level\n", heed_level_name(level));
      return 1;
    }
  }
  printf("%s %016llx\n", heed_version(), (unsigned long long)first);
  return 0;
}
