/* pattern.c: `heed pattern`: who sees whom under a pattern, drawn, counted, and after how many layers every token has seen every other. */
#include "arrays.h"
#include "json.h"
#include "pattern_text.h"
#include "reach.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  const char *pattern, *output;
  int64_t n, heads, head;
  bool causal;
} values;

/* Beyond this many tokens who sees whom is counted, but neither drawn nor followed through layers: that takes n² bytes a head. */
enum { MOST_SPELT_OUT = 4096 };

typedef struct job {
  heed_context *context;
  heed_pattern *pattern;
  heed_attention attention;
  array q, k, visible;
  heed_plan plan, all; /* the pattern's, and one of no pattern */
  int64_t layers;      /* 0: never */
  bool followed;
} job;

static void job_free(job *j) {
  array_free(&j->q);
  array_free(&j->k);
  array_free(&j->visible);
  heed_pattern_free(j->pattern);
  heed_context_free(j->context);
}

/* ---- what it costs ------------------------------------------------------------------------------------------------------- */

static int count(job *j, const values *v) {
  const int64_t dim[] = {1, v->heads, v->n, 1};
  heed_attention none = {.size = sizeof none};
  int code;
  j->plan.size = j->all.size = sizeof j->plan;
  TRY(pattern_open(j->context, "", v->pattern, v->heads, v->n, &j->pattern));
  j->attention = (heed_attention){.size = sizeof j->attention, .causal = v->causal, .pattern = j->pattern};
  TRY(array_new("queries", HEED_F32, 4, dim, &j->q));
  TRY(array_new("keys", HEED_F32, 4, dim, &j->k));
  TRY(check(j->context, heed_attention_explain_plan(j->context, &j->attention, &j->q.view, &j->k.view, &j->k.view, &j->plan)));
  TRY(check(j->context, heed_attention_explain_plan(j->context, &none, &j->q.view, &j->k.view, &j->k.view, &j->all)));
done:
  return code;
}

/* ---- how far it reaches -------------------------------------------------------------------------------------------------- */

/* Layers until all that a token may ever see (those up to its own under a causal pattern, else all) has come to it. */
static int follow(job *j, const values *v) {
  const int64_t n = v->n;
  int code = EXIT_OK;
  bool grows = true, all = false;
  reach r;
  reach_open(n, n, &r);
  for (int64_t i = 0; i < n; i++) reach_put(&r, i, i);
  for (j->layers = 0; grows && !all; j->layers++) {
    grows = reach_step(&r, j->visible.view.data, v->heads);
    all = true;
    for (int64_t i = 0; i < n && all; i++) all = reach_count(&r, i) >= (v->causal ? i + 1 : n);
    if (!progress("reach", j->layers, n)) {
      code = EXIT_INTERRUPTED;
      break;
    }
  }
  if (!all) j->layers = 0;
  j->followed = true;
  reach_close(&r);
  return code;
}

/* ---- the picture --------------------------------------------------------------------------------------------------------- */

/* A record whose weights are 1 where the head sees; the other cells are absent. */
static int draw(job *j, const values *v) {
  const int64_t n = v->n, zero = 0;
  const uint8_t *visible = (const uint8_t *)j->visible.view.data + v->head * n * n;
  const bool svg = strcmp(path_suffix(v->output), ".svg") == 0;
  float *weights = allocate("the picture", n * n, sizeof *weights);
  heed_text *tokens = allocate("tokens", n, sizeof *tokens);
  char(*digits)[24] = allocate("tokens", n, sizeof *digits);
  output_file file;
  int code;
  for (int64_t i = 0; i < n * n; i++) weights[i] = visible[i];
  for (int64_t i = 0; i < n; i++) tokens[i] = (heed_text){digits[i], (size_t)snprintf(digits[i], sizeof digits[i], "%lld", (long long)i)};
  const heed_record record = {.size = sizeof record,
                              .model = {v->pattern, strlen(v->pattern)},
                              .command = {command_line(), strlen(command_line())},
                              .model_layers = 1,
                              .model_heads = v->heads,
                              .model_kv_heads = v->heads,
                              .layers = 1,
                              .heads = 1,
                              .layer_index = &zero,
                              .head_index = &v->head,
                              .queries = n,
                              .keys = n,
                              .query_tokens = tokens,
                              .key_tokens = tokens,
                              .weights = weights,
                              .visible = visible};
  TRY(output_open(v->output, &file));
  const heed_sink sink = output_sink(&file);
  code = output_close(&file, check(j->context, (svg ? heed_record_svg : heed_record_png)(j->context, &record, 0, 0, &sink)));
done:
  free(weights);
  free(tokens);
  free(digits);
  return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static void print(const job *j, const values *v) {
  const double pairs = (double)j->all.visible_pairs, share = j->plan.flops / j->all.flops;
  const int64_t live = j->plan.full_tiles + j->plan.partial_tiles;
  out("pattern  %s%s, %lld tokens, %lld head%s\n", v->pattern, v->causal ? " (causal)" : "", (long long)v->n, (long long)v->heads,
      v->heads == 1 ? "" : "s");
  out("pairs    %lld of %lld (%.2f %%), %.1f keys a query\n", (long long)j->plan.visible_pairs, (long long)j->all.visible_pairs,
      100 * (double)j->plan.visible_pairs / pairs, (double)j->plan.visible_pairs / (double)(v->n * v->heads));
  out("tiles    %lld of %lld live (%lld full, %lld partial), each 16 queries x 64 keys\n", (long long)live, (long long)j->all.tiles,
      (long long)j->plan.full_tiles, (long long)j->plan.partial_tiles);
  out("cost     %.2f %% of attention to all pairs\n", 100 * share);
  if (!j->followed) out("reach    not followed beyond %d tokens\n", MOST_SPELT_OUT);
  else if (j->layers == 0) out("reach    never: some tokens do not reach others, however many layers\n");
  else
    out("reach    %lld layer%s until every token sees every %s\n", (long long)j->layers, j->layers == 1 ? "" : "s",
        v->causal ? "one before it" : "other");
}

static void print_json(const job *j, const values *v) {
  json out = {0};
  json_open(&out, NULL, '{');
  json_text(&out, "pattern", v->pattern);
  json_bool(&out, "causal", v->causal);
  json_whole(&out, "tokens", v->n);
  json_whole(&out, "heads", v->heads);
  json_whole(&out, "pairs", j->plan.visible_pairs);
  json_whole(&out, "all_pairs", j->all.visible_pairs);
  json_whole(&out, "tiles", j->plan.tiles);
  json_whole(&out, "full_tiles", j->plan.full_tiles);
  json_whole(&out, "partial_tiles", j->plan.partial_tiles);
  json_number(&out, "cost", j->plan.flops / j->all.flops);
  if (j->followed && j->layers) json_whole(&out, "reach", j->layers);
  json_close(&out);
}

static int check_options(const values *v) {
  if (v->head >= v->heads) return usage_error("--head: got %lld, there are %lld heads", (long long)v->head, (long long)v->heads);
  if (!v->output) return EXIT_OK;
  const char *suffix = path_suffix(v->output);
  if (strcmp(suffix, ".png") != 0 && strcmp(suffix, ".svg") != 0)
    return usage_error("%s: unknown format (got \"%s\", allowed .png .svg)", v->output, suffix);
  if (v->n > MOST_SPELT_OUT) return usage_error("-o: a picture of %lld tokens is too large (allowed %d)", (long long)v->n, MOST_SPELT_OUT);
  return EXIT_OK;
}

static int run(const void *pointer) {
  const values *v = pointer;
  job j = {0};
  int code;
  TRY(check_options(v));
  TRY(context_open(&v->common, &j.context));
  TRY(count(&j, v));
  if (v->n <= MOST_SPELT_OUT) {
    TRY(array_new("who sees whom", HEED_BOOL, 4, (int64_t[]){1, v->heads, v->n, v->n}, &j.visible));
    TRY(check(j.context, heed_attention_visible(j.context, &j.attention, &j.q.view, &j.k.view, &j.visible.view)));
    TRY(follow(&j, v));
    if (v->output) TRY(draw(&j, v));
  }
  (v->common.json ? print_json : print)(&j, v);
done:
  job_free(&j);
  return code;
}

static const option options[] = {
    OPTION("PATTERN", 0, TEXT, NULL, pattern, "such as window:256+global:4", .required = true),
    OPTION("n", 0, WHOLE, "N", n, "tokens (default 256)", .low = 1, .high = 1 << 20),
    OPTION("causal", 0, FLAG, NULL, causal, "no token sees those behind it"),
    OPTION("heads", 0, WHOLE, "H", heads, "heads (default 1): dilations and random blocks may differ from head to head", .low = 1,
           .high = 64),
    OPTION("head", 0, WHOLE, "H", head, "the head to draw (default 0)", .low = 0, .high = 63),
    OPTION("output", 'o', TEXT, "FILE", output, "draw it: .png or .svg"),
    {0},
};

const command command_pattern = {
    .name = "pattern",
    .summary = "draw and count who sees whom under a pattern of attention",
    .about = "Patterns are kinds with their numbers, joined by + (either shows it) and & (both do), which binds tighter, with parentheses: "
             "full, "
             "causal, window:LEFT[:RIGHT], dilated:LEFT:DILATION[:RIGHT] (a list of dilations is one a head), global:TOKENS (the first "
             "ones, or a "
             "list), prefix:KEYS, strided:STRIDE[:columns], fixed:STRIDE:COLUMNS[:summary], logsparse[:WINDOW[:RESTART]], tree[:both], "
             "bigbird:BLOCK:WINDOW:GLOBAL:RANDOM[:SEED] in blocks. RIGHT is LEFT unless given; \"all\" is a side without an end. Reach is "
             "the number of "
             "layers until what any token holds can have come to every other.",
    .examples = "  heed pattern window:32+global:4 --n 256 -o longformer.png\n"
                "  heed pattern strided:16 --n 256 --causal\n"
                "  heed pattern bigbird:16:1:1:2 --n 512 --heads 4 --json\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON,
    .values_size = sizeof(values),
    .defaults = &(const values){.n = 256, .heads = 1},
    .run = run,
};
