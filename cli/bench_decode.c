/* bench_decode.c: `heed bench decode`: how much of the read bandwidth a few queries against many keys reach. Such a call reads every key and value
 * once, and does too little with them for the multiply-adds to matter. */
#include "arrays.h"
#include "bench.h"

#include <stdlib.h>

typedef struct values {
  bench_values bench;
  whole_list sequences, heads, kv_heads, head_dim, queries, keys, window, sinks, append, type, source;
} values;

enum { TYPE_Q8_0 = 3 };               /* as in the option's choices, which are those of heed_cache_type */
enum { SOURCE_CACHE, SOURCE_ARRAYS }; /* as in the option's choices */

typedef struct decoding {
  heed_attention attention;
  heed_cache *cache; /* NULL: k and v */
  array q, k, v, out;
  int64_t sinks, held;        /* of a stream: a fixed number of keys, of which the oldest behind the sinks make room */
  int64_t turn;               /* tokens that made room so far */
  array new_k, new_v, sink_k; /* of one token, and of all sinks; no data: a call appends nothing */
} decoding;

static int64_t item(const whole_list *list) { return list->items[0]; }

/* The queries stand at the end of what a sequence holds. */
static void describe(const values *v, heed_attention *a) {
  int64_t window = item(&v->window);
  *a = (heed_attention){.size = sizeof *a, .causal = true, .align = HEED_ALIGN_END, .has_window_left = window >= 0, .window_left = window};
}

/* The same keys again and again: what they say does not matter, but each must have memory of its own. */
static int fill_cache(const values *v, heed_context *context, decoding *d) {
  enum { PIECE = 4096 };
  int64_t dim[3] = {item(&v->kv_heads), PIECE, item(&v->head_dim)}, seed = v->bench.common.seed;
  array k = {0}, v_array = {0};
  heed_cache_spec spec = {
      .size = sizeof spec,
      .sequences = item(&v->sequences),
      .kv_heads = item(&v->kv_heads),
      .d = item(&v->head_dim),
      .dv = item(&v->head_dim),
      .type = (heed_cache_type)item(&v->type),
      .keep = item(&v->window) >= 0 && !d->sinks ? item(&v->window) + item(&v->queries) : 0,
  };
  int code;
  TRY(check(context, heed_cache_new(context, &spec, &d->cache)));
  TRY(array_random("keys", HEED_F32, 3, dim, (uint64_t)seed + 1, &k));
  TRY(array_random("values", HEED_F32, 3, dim, (uint64_t)seed + 2, &v_array));
  for (int64_t sequence = 0; sequence < spec.sequences; sequence++) {
    for (int64_t left = d->sinks ? d->held : item(&v->keys); left > 0; left -= PIECE) {
      k.view.dim[1] = v_array.view.dim[1] = left < PIECE ? left : PIECE;
      TRY(check(context, heed_cache_append(d->cache, sequence, &k.view, &v_array.view)));
    }
  }
done:
  array_free(&k);
  array_free(&v_array);
  return code;
}

static int make_token(const values *v, decoding *d) {
  const int64_t one[3] = {item(&v->kv_heads), 1, item(&v->head_dim)}, first[3] = {item(&v->kv_heads), d->sinks, item(&v->head_dim)};
  const uint64_t seed = (uint64_t)v->bench.common.seed;
  int code;
  TRY(array_random("a key", HEED_F32, 3, one, seed + 3, &d->new_k));
  TRY(array_random("a value", HEED_F32, 3, one, seed + 4, &d->new_v));
  if (d->sinks) TRY(array_random("the keys of sinks", HEED_F32, 3, first, seed + 5, &d->sink_k));
done:
  return code;
}

/* A token at the end of each sequence; in a stream that is full it takes the place of the oldest one behind the sinks, whose keys turn to where they then stand. */
static int append_token(bench_case *c) {
  decoding *d = c->state;
  const int64_t window = d->held - d->sinks, sequences = d->q.view.dim[0];
  int code = EXIT_OK;
  for (int64_t s = 0; s < sequences && code == EXIT_OK; s++) {
    if (!d->sinks) {
      code = check(c->context, heed_cache_append(d->cache, s, &d->new_k.view, &d->new_v.view));
      continue;
    }
    TRY(check(c->context, heed_cache_write(d->cache, s, d->sinks + d->turn % window, &d->new_k.view, &d->new_v.view)));
    TRY(check(c->context, heed_cache_write(d->cache, s, 0, &d->sink_k.view, NULL)));
  }
  d->turn++;
done:
  return code;
}

static int make_arrays(const values *v, decoding *d) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16}; // as in the option's choices
  int64_t dim[4] = {item(&v->sequences), item(&v->kv_heads), item(&v->keys), item(&v->head_dim)}, seed = v->bench.common.seed;
  int code;
  TRY(array_random("keys", types[item(&v->type)], 4, dim, (uint64_t)seed + 1, &d->k));
  TRY(array_random("values", types[item(&v->type)], 4, dim, (uint64_t)seed + 2, &d->v));
done:
  return code;
}

/* Of one key or value as the cache stores it. */
static double row_bytes(int64_t type, int64_t width) {
  static const double number[] = {4, 2, 2, 1}; // as in the option's choices
  return number[type] * (double)width + (type == TYPE_Q8_0 ? 2.0 * (double)((width + 31) / 32) : 0);
}

static int plan_of(bench_case *c, heed_plan *plan) {
  decoding *d = c->state;
  const heed_view *q = &d->q.view;
  if (d->cache) return check(c->context, heed_attention_cached_plan(c->context, &d->attention, q, d->cache, NULL, plan));
  return check(c->context, heed_attention_explain_plan(c->context, &d->attention, q, &d->k.view, &d->v.view, plan));
}

static int open_decoding(void *pointer, bench_case *c) {
  values *v = pointer;
  decoding *d = c->state = allocate("a case", 1, sizeof *d);
  if (item(&v->kv_heads) == 0) v->kv_heads.items[0] = item(&v->heads);
  int64_t dim[4] = {item(&v->sequences), item(&v->heads), item(&v->queries), item(&v->head_dim)};
  int64_t keys = item(&v->keys), window = item(&v->window);
  heed_plan plan = {.size = sizeof plan};
  int code;
  if (item(&v->queries) > keys)
    return usage_error("--queries: more than --keys, which they are among (got %lld and %lld)", (long long)item(&v->queries),
                       (long long)keys);
  if (item(&v->source) == SOURCE_ARRAYS && item(&v->type) == TYPE_Q8_0)
    return usage_error("--type q8_0: only a cache stores it (allowed --source cache)");
  if (item(&v->sinks) > 0 && (window < 1 || item(&v->sinks) > window || item(&v->queries) != 1))
    return usage_error("--sinks: needs --window, no smaller than the sinks, and one query (got %lld and %lld)", (long long)window,
                       (long long)item(&v->queries));
  if ((item(&v->sinks) > 0 || item(&v->append)) && item(&v->source) == SOURCE_ARRAYS)
    return usage_error("--sinks, --append: only a cache takes tokens (allowed --source cache)");
  if (item(&v->sinks) >= keys && item(&v->sinks) > 0)
    return usage_error("--sinks: not fewer than --keys (got %lld and %lld)", (long long)item(&v->sinks), (long long)keys);
  if (item(&v->append) && window < 0) return usage_error("--append: needs --window: without one the cache grows with every call");
  d->sinks = item(&v->sinks);
  d->held = d->sinks + window < keys ? d->sinks + window : keys;
  describe(v, &d->attention);
  if (d->sinks) d->attention.has_window_left = false; // the cache holds no more than is seen
  if (item(&v->append)) TRY(make_token(v, d));
  TRY(item(&v->source) == SOURCE_CACHE ? fill_cache(v, c->context, d) : make_arrays(v, d));
  TRY(array_random("queries", HEED_F32, 4, dim, (uint64_t)v->bench.common.seed, &d->q));
  TRY(array_new("out", HEED_F32, 4, dim, &d->out));
  TRY(plan_of(c, &plan));
  int64_t seen = d->sinks ? d->held : window >= 0 && window + item(&v->queries) < keys ? window + item(&v->queries) : keys;
  c->reads = true;
  c->flops = 4.0 * (double)plan.visible_pairs * (double)item(&v->head_dim);
  c->bytes = 2 * row_bytes(item(&v->type), item(&v->head_dim)) * (double)(seen * item(&v->kv_heads) * item(&v->sequences));
done:
  return code;
}

static int call_decoding(bench_case *c) {
  decoding *d = c->state;
  const heed_view *q = &d->q.view, *result = &d->out.view;
  if (d->new_k.view.data) {
    int code = append_token(c);
    if (code != EXIT_OK) return code;
  }
  if (d->cache) return check(c->context, heed_attention_cached(c->context, &d->attention, q, d->cache, NULL, result, NULL));
  return check(c->context, heed_attention_forward(c->context, &d->attention, q, &d->k.view, &d->v.view, result, NULL));
}

static void close_decoding(bench_case *c) {
  decoding *d = c->state;
  if (!d) return;
  heed_cache_free(d->cache);
  array_free(&d->q);
  array_free(&d->k);
  array_free(&d->v);
  array_free(&d->out);
  array_free(&d->new_k);
  array_free(&d->new_v);
  array_free(&d->sink_k);
  free(d);
}

extern const command command_bench_decode;

static int run(const void *v) {
  static const bench decode = {.open = open_decoding, .call = call_decoding, .close = close_decoding};
  return bench_run(&command_bench_decode, &decode, v);
}

static const option options[] = {
    OPTION("sequences", 0, WHOLES, "LIST", sequences, "sequences at once (default 1)", .low = 1, .high = 1e5),
    OPTION("heads", 0, WHOLES, "LIST", heads, "query heads (default 32)", .low = 1, .high = 4096),
    OPTION("kv-heads", 0, WHOLES, "LIST", kv_heads, "key/value heads (default 8; 0: as many as query heads)", .low = 0, .high = 4096),
    OPTION("head-dim", 0, WHOLES, "LIST", head_dim, "width of a head (default 128)", .low = 1, .high = 4096),
    OPTION("queries", 0, WHOLES, "LIST", queries, "new tokens of each sequence (default 1)", .low = 1, .high = 1e5),
    OPTION("keys", 0, WHOLES, "LIST", keys, "what each sequence holds, the new tokens included (default 4096,32768)", .low = 1,
           .high = 1e9),
    OPTION("window", 0, WHOLES, "LIST", window, "keys visible before a query's own; the cache is then a ring (default -1: all)", .low = -1,
           .high = 1e9),
    OPTION("sinks", 0, WHOLES, "LIST", sinks, "first keys that stay besides the window, of which one belongs to the token (default 0)",
           .low = 0, .high = 1e9),
    OPTION("append", 0, WHOLES, "LIST", append, "1: a call begins with a new token for each sequence (default 0)", .low = 0, .high = 1),
    OPTION("type", 0, CHOICES, "LIST", type, "what the cache stores (default f32,bf16,q8_0)", .choices = "f32|f16|bf16|q8_0"),
    OPTION("source", 0, CHOICES, "LIST", source, "where keys and values are (default cache)", .choices = "cache|arrays"),
    BENCH_OPTIONS,
    {0},
};

const command command_bench_decode = {
    .name = "bench decode",
    .summary = "time attention over a long cache",
    .about = "Times heed_attention_cached (or heed_attention_forward on arrays), a few queries against many keys, for every combination of "
             "the lists and says how much of the machine's "
             "read bandwidth it reaches, measured before and after every block. Bytes counted: every visible key and value once, as it is "
             "stored.",
    .examples = "  heed bench decode --keys 32768 --heads 32 --kv-heads 8,32 --type f32,bf16,q8_0\n"
                "  heed bench decode --keys 4096,65536 --window 1023 --csv\n"
                "  heed bench decode --keys 1000,10000,100000 --window 1023 --append 1 --sinks 0,4\n",
    .options = options,
    .takes = TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){BENCH_DEFAULTS, .sequences = {1, {1}}, .heads = {1, {32}}, .kv_heads = {1, {8}}, .head_dim = {1, {128}},
                                .queries = {1, {1}}, .keys = {2, {4096, 32768}}, .window = {1, {-1}}, .sinks = {1, {0}}, .append = {1, {0}},
                                .type = {3, {0, 2, 3}}, .source = {1, {SOURCE_CACHE}}},
    .run = run,
};
