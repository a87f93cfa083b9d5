/* bench_generate.c: `heed bench generate`: how fast a model reads and writes, and how much of the machine that is. Reading a prompt is bound by arithmetic, writing
 * token by token by the memory that holds the weights. */
#include "bench.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  bench_values bench;
  const char *model;
  whole_list prompt, n, part;
} values;

/* The model is loaded for each case, because a case has its own threads and level. */
typedef struct run_state {
  loaded model;
  heed_session *session;
  int32_t *ids;
  float *logits;
  int64_t prompt, n;
  bool writes;
} run_state;

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

/* Zeros become what fits the context. */
static int choose_lengths(values *v, run_state *r) {
  int64_t context = r->model.info.context;
  r->prompt = v->prompt.items[0] ? v->prompt.items[0] : context < 1024 ? (context + 1) / 2 : 512;
  r->n = v->n.items[0] ? v->n.items[0] : context - r->prompt < 32 ? context - r->prompt : 32;
  v->prompt.items[0] = r->prompt;
  v->n.items[0] = r->n;
  if (r->prompt + r->n <= context && r->n >= 1) return EXIT_OK;
  return usage_error("--prompt: too long with --n (got %lld + %lld, allowed %lld, the context of %s)", (long long)r->prompt,
                     (long long)r->n, (long long)context, r->model.info.name);
}

static int read_prompt(run_state *r) {
  int code;
  TRY(check(r->model.context, heed_session_truncate(r->session, 0)));
  TRY(check(r->model.context, heed_session_run(r->session, r->ids, r->prompt, r->logits, 1, NULL)));
done:
  return code;
}

static int write_tokens(run_state *r) {
  int code;
  TRY(check(r->model.context, heed_session_truncate(r->session, r->prompt)));
  for (int64_t i = 0; i < r->n; i++)
    TRY(check(r->model.context, heed_session_run(r->session, r->ids + r->prompt + i, 1, r->logits, 1, NULL)));
done:
  return code;
}

static int open_run(void *pointer, bench_case *c) {
  values *v = pointer;
  run_state *r = c->state = allocate("a case", 1, sizeof *r);
  heed_session_options options = {.size = sizeof options};
  int code;
  TRY(model_open(&v->bench.common, v->model, &r->model));
  TRY(model_generates(&r->model));
  TRY(choose_lengths(v, r));
  const heed_model_info *info = &r->model.info;
  r->ids = make_ids(r->prompt + r->n, info->vocabulary, v->bench.common.seed);
  r->logits = allocate("logits", info->vocabulary, sizeof *r->logits);
  TRY(check(r->model.context, heed_session_new(r->model.context, r->model.model, &options, &r->session)));
  TRY(read_prompt(r)); // what writing goes on from; and memory that is touched for the first time is not counted
  r->writes = c->reads = v->part.items[0];
  c->tokens = (double)(r->writes ? r->n : r->prompt);
  c->flops = info->flops_per_token * c->tokens;
  c->bytes = r->writes ? (double)info->weight_bytes * c->tokens : 0;
  snprintf(c->subject, sizeof c->subject, "%s", info->name);
done:
  return code;
}

static int call_run(bench_case *c) {
  run_state *r = c->state;
  return r->writes ? write_tokens(r) : read_prompt(r);
}

static void close_run(bench_case *c) {
  run_state *r = c->state;
  if (!r) return;
  heed_session_free(r->session);
  free(r->ids);
  free(r->logits);
  model_close(&r->model);
  free(r);
}

extern const command command_bench_generate;

static int run(const void *v) {
  static const bench generate = {.open = open_run, .call = call_run, .close = close_run};
  return bench_run(&command_bench_generate, &generate, v);
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, NULL, model, "a GGUF file or a Hugging Face directory", .required = true),
    OPTION("prompt", 'p', WHOLES, "LIST", prompt, "tokens read at once (default 0: 512, at most half the context)", .low = 0, .high = 1e9),
    OPTION("n", 'n', WHOLES, "LIST", n, "tokens written one by one after them (default 0: 32)", .low = 0, .high = 1e9),
    OPTION("part", 0, CHOICES, "LIST", part, "reading the prompt, writing after it (default both)", .choices = "prefill|decode"),
    BENCH_OPTIONS,
    {0},
};

const command command_bench_generate = {
    .name = "bench generate",
    .summary = "time a model's reading and writing",
    .about =
        "Times how fast a model reads a prompt and writes tokens one by one, for every combination of the lists, and compares it with the "
        "machine's multiply-add peak (reading) and read bandwidth (writing), measured around every block. Bytes counted: the weights "
        "once a token.",
    .examples = "  heed bench generate model.gguf --threads 2 --json\n"
                "  heed bench generate model.gguf --part decode --prompt 8,512 --threads 1,2\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){BENCH_DEFAULTS, .prompt = {1, {0}}, .n = {1, {0}}, .part = {2, {0, 1}}},
    .run = run,
};
