/* bench_generate.c: `heed bench generate`: how fast a model reads and writes, and how much of the machine that is. Reading a prompt is bound by arithmetic, writing
 * token by token by the memory that holds the weights. */
#include "bench.h"
#include "json.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  const char *model;
  int64_t prompt, n, blocks;
} values;

/* Token ids that look like nothing: speed does not depend on them. */
static int32_t *make_ids(int64_t count, int64_t vocabulary, int64_t seed) {
  int32_t *ids = allocate("token ids", count, sizeof *ids);
  uint64_t state = (uint64_t)seed;
  for (int64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u; // Knuth, MMIX
    ids[i] = (int32_t)((state >> 33) % (uint64_t)vocabulary);
  }
  return ids;
}

/* Fills the session with the prompt; *seconds is the time it took. */
static int time_prefill(const loaded *m, heed_session *session, const int32_t *ids, int64_t count, float *logits, double *seconds) {
  int code;
  TRY(check(m->context, heed_session_truncate(session, 0)));
  double begin = seconds_now();
  TRY(check(m->context, heed_session_run(session, ids, count, logits, 1, NULL)));
  *seconds = seconds_now() - begin;
done:
  return code;
}

/* Runs count tokens one by one after the prompt; *seconds is the mean time of one. */
static int time_decode(const loaded *m, heed_session *session, const int32_t *ids, int64_t count, float *logits, double *seconds) {
  int code = EXIT_OK;
  double begin = seconds_now();
  for (int64_t i = 0; i < count; i++) TRY(check(m->context, heed_session_run(session, ids + i, 1, logits, 1, NULL)));
  *seconds = (seconds_now() - begin) / (double)count;
done:
  return code;
}

static int measure(const loaded *m, const values *v, blocks *prefill, blocks *decode) {
  heed_session *session = NULL;
  heed_session_options options = {.size = sizeof options};
  int32_t *ids = make_ids(v->prompt + v->n, m->info.vocabulary, v->common.seed);
  float *logits = allocate("logits", m->info.vocabulary, sizeof *logits);
  double seconds;
  int code;
  TRY(check(m->context, heed_session_new(m->context, m->model, &options, &session)));
  TRY(time_prefill(m, session, ids, v->prompt, logits, &seconds)); // memory that is touched for the first time is not counted
  TRY(blocks_begin(m->context, BLOCK_SECONDS, true, prefill));
  for (int64_t i = 0; i < v->blocks; i++) {
    TRY(time_prefill(m, session, ids, v->prompt, logits, &seconds));
    TRY(blocks_add(prefill, seconds));
  }
  TRY(blocks_begin(m->context, BLOCK_SECONDS, true, decode));
  for (int64_t i = 0; i < v->blocks; i++) {
    TRY(check(m->context, heed_session_truncate(session, v->prompt)));
    TRY(time_decode(m, session, ids + v->prompt, v->n, logits, &seconds));
    TRY(blocks_add(decode, seconds));
  }
done:
  heed_session_free(session);
  free(ids);
  free(logits);
  return code;
}

static void print_result(const loaded *m, const values *v, const blocks *prefill, const blocks *decode) {
  double prefill_tps = (double)v->prompt / blocks_seconds(prefill).median, decode_tps = 1 / blocks_seconds(decode).median;
  double of_peak = blocks_of_peak(prefill, m->info.flops_per_token * (double)v->prompt).median;
  double of_bandwidth = blocks_of_read(decode, (double)m->info.weight_bytes).median;
  double peak = blocks_peak(prefill).median / 1e9, read = blocks_read(decode).median / 1e9;
  const char *level = heed_level_name(heed_context_level(m->context));
  int threads = heed_context_threads(m->context);
  if (!v->common.json) {
    out("%s · %s · %d threads · %s\n", m->info.name, m->info.family, threads, level);
    out("load     %9.3f s\n", m->seconds);
    out("prefill  %9.1f tokens/s  %.3f of the peak of %.1f GFLOP/s (%lld tokens)\n", prefill_tps, of_peak, peak, (long long)v->prompt);
    out("decode   %9.1f tokens/s  %.3f of the read bandwidth of %.1f GB/s (%.1f MB a token)\n", decode_tps, of_bandwidth, read,
        (double)m->info.weight_bytes / 1e6);
    return;
  }
  json j = {0};
  json_open(&j, NULL, '{');
  json_text(&j, "model", m->info.name);
  json_whole(&j, "threads", threads);
  json_text(&j, "level", level);
  json_number(&j, "load_s", m->seconds);
  json_whole(&j, "prompt", v->prompt);
  json_whole(&j, "n", v->n);
  json_number(&j, "prefill_tps", prefill_tps);
  json_number(&j, "decode_tps", decode_tps);
  json_number(&j, "peak_gflops", peak);
  json_number(&j, "read_gbs", read);
  json_number(&j, "flops_per_token", m->info.flops_per_token);
  json_number(&j, "bytes_per_token", (double)m->info.weight_bytes);
  json_number(&j, "of_peak", of_peak);
  json_number(&j, "of_bandwidth", of_bandwidth);
  json_close(&j);
}

static int run(const void *pointer) {
  values v = *(const values *)pointer;
  loaded m = {0};
  blocks prefill, decode;
  int code;
  TRY(model_open(&v.common, v.model, &m));
  int64_t context = m.info.context;
  if (v.prompt == 0) v.prompt = context < 1024 ? (context + 1) / 2 : 512;
  if (v.n == 0) v.n = context - v.prompt < 32 ? context - v.prompt : 32;
  if (v.prompt + v.n > context || v.n < 1) {
    code = usage_error("--prompt: too long with --n (got %lld + %lld, allowed %lld, the context of %s)", (long long)v.prompt,
                       (long long)v.n, (long long)context, m.info.name);
    goto done;
  }
  TRY(measure(&m, &v, &prefill, &decode));
  print_result(&m, &v, &prefill, &decode);
done:
  model_close(&m);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file or a Hugging Face directory", .required = true),
    OPTION("prompt", 'p', WHOLE, "N", prompt, "tokens read at once (default 512, at most half the context)", .low = 1, .high = 1e9),
    OPTION("n", 'n', WHOLE, "N", n, "tokens written one by one (default 32)", .low = 1, .high = 1e9),
    OPTION("blocks", 0, WHOLE, "N", blocks, "repetitions, of which the median counts (default 5)", .low = 1, .high = BLOCKS_MAX),
    {0},
};

const command command_bench_generate = {
    .name = "bench generate",
    .summary = "time a model's reading and writing",
    .about = "Times how fast a model reads a prompt and writes tokens one by one, and compares it with the machine's "
             "multiply-add peak and read bandwidth, measured around every block.",
    .examples = "  heed bench generate model.gguf --threads 2 --json\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.blocks = 5},
    .run = run,
};
