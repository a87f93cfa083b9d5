/* bench_attention.c: `heed bench attention`: how much of the machine's peak the fused forward kernel reaches. */
#include "bench.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  whole_list n, head_dim, heads, kv_heads, causal, threads;
  const char *level;
  int64_t blocks;
} values;

/* One point of the cross product. */
typedef struct shape {
  int64_t n, head_dim, heads, kv_heads, threads;
  bool causal;
} shape;

typedef struct inputs {
  heed_view q, k, v, out;
} inputs;

static const double BLOCK_SECONDS = 0.1; // of calls in one block; short ones are repeated

/* [heads, n, head_dim] numbers in (−1, 1) from a linear congruential generator (Knuth, MMIX): speed does not depend on them, unless denormal. */
static heed_view random_array(int64_t heads, const shape *s, uint64_t *state) {
  int64_t dim[3] = {heads, s->n, s->head_dim}, count = heads * s->n * s->head_dim;
  float *data = allocate("an array", count, sizeof *data);
  for (int64_t i = 0; i < count; i++) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    data[i] = (float)(int32_t)(*state >> 32) * 0x1p-31f;
  }
  return heed_view_of(data, HEED_F32, 3, dim);
}

static void make_inputs(const shape *s, int64_t seed, inputs *in) {
  uint64_t state = (uint64_t)seed;
  in->q = random_array(s->heads, s, &state);
  in->k = random_array(s->kv_heads, s, &state);
  in->v = random_array(s->kv_heads, s, &state);
  in->out = random_array(s->heads, s, &state);
}

static void free_inputs(inputs *in) {
  free(in->q.data);
  free(in->k.data);
  free(in->v.data);
  free(in->out.data);
}

/* 2 d operations for a score and 2 d for its share of the output, for each pair (query, key) that is visible. */
static double flops_of(const shape *s) {
  double n = (double)s->n, pairs = s->causal ? n * (n + 1) / 2 : n * n;
  return 4 * pairs * (double)s->head_dim * (double)s->heads;
}

/* Calls for BLOCK_SECONDS; *seconds is the median of one. The call before them warms the caches that the machine probe has emptied. */
static int time_block(heed_context *context, const shape *s, const inputs *in, double *seconds) {
  heed_attention a = {.size = sizeof a, .causal = s->causal};
  double times[VALUES_MAX], end = 0;
  int code, calls = -1;
  do {
    double begin = seconds_now();
    TRY(check(context, heed_attention_forward(context, &a, &in->q, &in->k, &in->v, &in->out, NULL)));
    if (calls < 0) end = seconds_now() + BLOCK_SECONDS;
    if (calls >= 0) times[calls] = seconds_now() - begin;
    calls++;
  } while (calls == 0 || (seconds_now() < end && calls < VALUES_MAX));
  *seconds = median_of(times, calls);
done:
  return code;
}

static int measure(heed_context *context, const shape *s, const inputs *in, int64_t count, blocks *b) {
  double seconds;
  int code;
  TRY(blocks_begin(context, false, b));
  for (int64_t i = 0; i < count; i++) {
    TRY(time_block(context, s, in, &seconds));
    TRY(blocks_add(b, seconds));
  }
done:
  return code;
}

static void print_header(void) { out("      n  width  heads  causal  threads  level       seconds   GFLOP/s      peak  of peak\n"); }

static void print_row(const shape *s, const char *level, const blocks *b) {
  double flops = flops_of(s);
  out("%7lld %6lld %6lld  %-6s %8lld  %-8s %10.6f %9.1f %9.1f %8.3f\n", (long long)s->n, (long long)s->head_dim, (long long)s->heads,
      s->causal ? "yes" : "no", (long long)s->threads, level, blocks_seconds(b), flops / blocks_seconds(b) / 1e9, blocks_peak(b) / 1e9,
      blocks_of_peak(b, flops));
}

static void print_json_row(const shape *s, const char *level, const blocks *b) {
  double flops = flops_of(s);
  json j = {0};
  json_open(&j, NULL, '{');
  json_whole(&j, "n", s->n);
  json_whole(&j, "head_dim", s->head_dim);
  json_whole(&j, "heads", s->heads);
  json_whole(&j, "kv_heads", s->kv_heads);
  json_whole(&j, "causal", s->causal);
  json_whole(&j, "threads", s->threads);
  json_text(&j, "level", level);
  json_number(&j, "median_s", blocks_seconds(b));
  json_number(&j, "gflops", flops / blocks_seconds(b) / 1e9);
  json_number(&j, "peak_gflops", blocks_peak(b) / 1e9);
  json_number(&j, "of_peak", blocks_of_peak(b, flops));
  json_close(&j);
}

static int bench(const values *v, shape s) {
  common_values common = v->common;
  heed_context *context = NULL;
  inputs in = {0};
  blocks b;
  int code;
  common.threads = s.threads;
  common.level = v->level;
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  TRY(context_open(&common, &context));
  s.threads = heed_context_threads(context);
  make_inputs(&s, common.seed, &in);
  TRY(measure(context, &s, &in, v->blocks, &b));
  (common.json ? print_json_row : print_row)(&s, heed_level_name(heed_context_level(context)), &b);
  TRY(out_flush());
done:
  free_inputs(&in);
  heed_context_free(context);
  return code;
}

/* The point of the cross product with this number; the last list varies fastest. */
static shape shape_at(const values *v, int64_t number) {
  const whole_list *lists[] = {&v->threads, &v->heads, &v->kv_heads, &v->head_dim, &v->n, &v->causal};
  enum { COUNT = sizeof lists / sizeof lists[0] };
  int64_t at[COUNT];
  for (int i = COUNT - 1; i >= 0; i--) {
    at[i] = lists[i]->items[number % lists[i]->count];
    number /= lists[i]->count;
  }
  return (shape){.threads = at[0], .heads = at[1], .kv_heads = at[2], .head_dim = at[3], .n = at[4], .causal = at[5] != 0};
}

static int run(const void *pointer) {
  const values *v = pointer;
  int64_t points = (int64_t)v->n.count * v->head_dim.count * v->heads.count * v->kv_heads.count * v->causal.count * v->threads.count;
  int code = EXIT_OK;
  if (!v->common.json) print_header();
  for (int64_t i = 0; i < points && code == EXIT_OK; i++) {
    progress("bench", i, points);
    code = bench(v, shape_at(v, i));
  }
  return code;
}

static const option options[] = {
    OPTION("n", 'n', WHOLES, "LIST", n, "queries, and as many keys (default 512,2048)", .low = 1, .high = 1e6),
    OPTION("head-dim", 0, WHOLES, "LIST", head_dim, "width of a head (default 64)", .low = 1, .high = 4096),
    OPTION("heads", 0, WHOLES, "LIST", heads, "query heads (default 4)", .low = 1, .high = 4096),
    OPTION("kv-heads", 0, WHOLES, "LIST", kv_heads, "key/value heads (default 0: as many as query heads)", .low = 0, .high = 4096),
    OPTION("causal", 0, WHOLES, "LIST", causal, "0, 1 or both (default 0,1)", .low = 0, .high = 1),
    OPTION("threads", 0, WHOLES, "LIST", threads, "threads (default 0: all processors)", .low = 0, .high = 4096),
    OPTION("level", 0, CHOICE, "LEVEL", level, "instruction set (default auto)", .choices = LEVEL_CHOICES),
    OPTION("blocks", 0, WHOLE, "N", blocks, "timed blocks, of which the median counts (default 9)", .low = 1, .high = BLOCKS_MAX),
    {0},
};

const command command_bench_attention = {
    .name = "bench attention",
    .summary = "time the attention kernel",
    .about = "Times heed_attention_forward for every combination of the lists and says how much of the machine's multiply-add "
             "peak it reaches. The peak is measured before and after every block, because machines drift. Operations counted: "
             "4 x width for each visible pair.",
    .examples = "  heed bench attention --n 512,2048 --head-dim 64 --heads 4 --causal 0,1 --threads 2 --json\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.n = {2, {512, 2048}},
                                .head_dim = {1, {64}},
                                .heads = {1, {4}},
                                .kv_heads = {1, {0}},
                                .causal = {2, {0, 1}},
                                .threads = {1, {0}},
                                .blocks = 9},
    .run = run,
};
