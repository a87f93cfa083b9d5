/* Keys and values that are kept, and attention over them: P31 (any chunking), P32 (pages), P33 (merging by lse), contract 18 (rounded storage), rings, forks. */
#include "cache_sample.h"
#include "pthread_parallel.h"

static heed_context *context;

enum { TYPES = HEED_CACHE_Q8_0 + 1 };

/* Appends all keys of a batch entry in random pieces. */
static void append_in_pieces(heed_cache *cache, const sample *s, random_source *r, int64_t b, int64_t sequence, int64_t length) {
  for (int64_t at = 0, step; at < length; at += step) {
    step = 1 + below(r, below(r, 2) ? 3 : 200);
    if (step > length - at) step = length - at;
    append(context, cache, s, b, sequence, at, at + step);
  }
}

/* The sample's keys and values become what the cache has rounded them to. */
static void round_sample(const heed_cache *cache, sample *s, int64_t b, int64_t sequence, int64_t length) {
  heed_view k, v;
  entry_views(s, b, 0, length, &k, &v);
  ok(context, heed_cache_read(cache, sequence, 0, &k, &v));
}

/* Sequence b of the cache becomes batch entry b of the sample, whose numbers are rounded likewise. */
static heed_cache *cache_of(sample *s, random_source *r, heed_cache_type type) {
  heed_cache *cache = new_cache(context, s->batch, s->kv_heads, s->d, s->dv, type, 0);
  for (int64_t b = 0; b < s->batch; b++) {
    append_in_pieces(cache, s, r, b, b, s->m);
    round_sample(cache, s, b, b, s->m);
  }
  return cache;
}

/* ---- what is stored ---------------------------------------------------------------------------------------------------------------- */

static void rounding_is_that_of_the_type(void **state) {
  (void)state;
  enum { D = 75, KEYS = 70 };
  for (int type = 0; type < TYPES; type++) {
    random_source r = {.seed = (uint64_t)type + 5};
    sample s = {.batch = 1, .heads = 2, .kv_heads = 2, .n = 1, .m = KEYS, .d = D, .dv = 3};
    sample_fill(&s, &r, 0);
    float *given = copy_of(s.k, 2 * KEYS * D);
    heed_cache *cache = cache_of(&s, &r, type);
    for (int64_t i = 0; i < 2 * KEYS * D; i++) {
      float want = given[i];
      if (type == HEED_CACHE_F16) want = hd_f16_to_f32(hd_f32_to_f16(want));
      if (type == HEED_CACHE_BF16) want = hd_bf16_to_f32(hd_f32_to_bf16(want));
      if (type == HEED_CACHE_Q8_0) { // as GGUF's quantize_row_q8_0 and dequantize_row_q8_0
        float top = 0;
        int64_t row = i / D * D, block = row + i % D / 32 * 32, end = block + 32 < row + D ? block + 32 : row + D;
        for (int64_t j = block; j < end; j++) top = fmaxf(top, fabsf(given[j]));
        float scale = top / 127;
        want = (float)(int8_t)roundf(given[i] * (1 / scale)) * hd_f16_to_f32(hd_f32_to_f16(scale));
      }
      assert_same_bytes(&s.k[i], &want, 4, heed_cache_type_name(type), r.seed);
    }
    heed_cache_free(cache);
    free(given);
    sample_free(&s);
  }
}

static void quantised_blocks_at_the_edges(void **state) {
  (void)state;
  float x[64] = {0}, y[64];
  for (int i = 32; i < 64; i++) x[i] = (float)i;
  heed_cache *cache = new_cache(context, 1, 1, 64, 64, HEED_CACHE_Q8_0, 0);
  heed_view from = heed_view_of(x, HEED_F32, 2, (int64_t[]){1, 64}), to = heed_view_of(y, HEED_F32, 2, (int64_t[]){1, 64});
  const float odd[] = {0, 1e-30f, 1e30f, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 6; i++) {
    x[3] = odd[i];
    ok(context, heed_cache_append(cache, 0, &from, &from));
    ok(context, heed_cache_read(cache, 0, i, &to, NULL));
    // Zeros and what is far below a half's least are 0; what does not fit makes its block NaN, and no other.
    for (int c = 0; c < 32; c++) assert_true(i < 2 ? y[c] == 0 : isnan(y[c]));
    for (int c = 32; c < 64; c++) assert_close(y[c], x[c], 0.3, "the other block", 0);
  }
  heed_cache_free(cache);
}

/* Half-precision views go in as what they hold, and come out the same. */
static void views_of_any_type_and_stride(void **state) {
  (void)state;
  enum { KEYS = 67, D = 5 };
  uint16_t data[KEYS * D * 2], back[D * KEYS];
  for (int i = 0; i < KEYS * D * 2; i++) data[i] = (uint16_t)(0x3c00 + i);
  heed_cache *cache = new_cache(context, 1, 1, D, D, HEED_CACHE_F32, 0);
  heed_view from = heed_view_of(data, HEED_F16, 2, (int64_t[]){KEYS, D}), to = heed_view_of(back, HEED_F16, 2, (int64_t[]){D, KEYS});
  from.stride[0] = 2 * D;
  from.stride[1] = 2;
  to = heed_view_swap(to, 0, 1);
  ok(context, heed_cache_append(cache, 0, &from, &from));
  ok(context, heed_cache_read(cache, 0, 0, NULL, &to));
  for (int key = 0; key < KEYS; key++)
    for (int c = 0; c < D; c++) assert_int_equal(back[c * KEYS + key], data[(key * D + c) * 2]);
  heed_cache_free(cache);
}

/* ---- same row, same bits ----------------------------------------------------------------------------------------------------------- */

/* Cached attention into new arrays, compared with what the sample has. */
static void assert_cached(heed_context *c, const heed_attention *a, const sample *s, const heed_cache *cache, const int64_t *sequences,
                          const char *what, uint64_t seed) {
  float *out = floats(sample_out_count(s)), *lse = floats(s->batch * s->heads * s->n);
  heed_view vout = s->vout, vlse = s->vlse;
  vout.data = out;
  vlse.data = lse;
  heed_attention_extras extras = {.size = sizeof extras, .lse = &vlse};
  ok(c, heed_attention_cached(c, a, &s->vq, cache, sequences, &vout, &extras));
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, what, seed);
  assert_same_bytes(lse, s->lse, s->batch * s->heads * s->n * 4, what, seed);
  free(out);
  free(lse);
}

/* P32, contract 18: whatever the restrictions, a cache of any type is the full pass over the numbers it has rounded to. */
PROPERTY(p32_pages_are_contiguous, 1100, SAMPLE_ANY) {
  for (int type = 0; type < TYPES; type++) {
    heed_cache *cache = cache_of(s, r, type);
    sample_run(context, s);
    assert_cached(context, &s->a, s, cache, NULL, heed_cache_type_name(type), r->seed);
    heed_cache_free(cache);
  }
}

/* Sequences of different lengths, in another order, with queries at the end of each: as forward with key lengths. */
PROPERTY(sequences_of_their_own_lengths, 300, 0) {
  heed_cache *cache = new_cache(context, s->batch + 3, s->kv_heads, s->d, s->dv, (heed_cache_type)below(r, TYPES), 0);
  int64_t lengths[2], sequences[2], longest = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    lengths[b] = below(r, s->m + 1);
    sequences[b] = s->batch + 1 - b;
    append_in_pieces(cache, s, r, b, sequences[b], lengths[b]);
    round_sample(cache, s, b, sequences[b], lengths[b]);
    assert_int_equal(heed_cache_length(cache, sequences[b]), lengths[b]);
    if (lengths[b] > longest) longest = lengths[b];
  }
  heed_attention a = s->a = (heed_attention){.size = sizeof a, .causal = below(r, 2), .has_window_left = below(r, 2), .window_left = 70};
  s->a.key_lengths = lengths;
  s->a.align = HEED_ALIGN_END;
  sample_run(context, s);
  assert_cached(context, &a, s, cache, sequences, "sequences", r->seed);
  heed_cache_free(cache);
}

/* P31: one causal pass over everything is what comes of any cut into appended pieces, token by token among them, also after going back and after a fork. */
static void p31_any_cut(sample *s, random_source *r, heed_cache_type type) {
  heed_cache *cache = new_cache(context, 2 * s->batch, s->kv_heads, s->d, s->dv, type, 0), *all = cache_of(s, r, type);
  s->a = (heed_attention){.size = sizeof s->a, .causal = true, .has_window_left = below(r, 2), .window_left = 1 + below(r, 90)};
  s->a.align = HEED_ALIGN_END;
  sample_run(context, s);
  heed_cache_free(all);
  bool singly = below(r, 2), back = below(r, 2), forks = below(r, 2);
  int64_t n = s->n, most = n < s->m ? n : s->m; // queries before the first key see nothing
  float *out = floats(sample_out_count(s)), *lse = floats(s->batch * s->heads * n);
  int64_t sequence = 0, other = s->batch;
  for (int64_t b = 0; b < s->batch; b++) append(context, cache, s, b, sequence + b, 0, s->m - most);
  for (int64_t at = n - most, step; at < n; at += step) {
    int64_t key = s->m - (n - at);
    step = singly ? 1 : 1 + below(r, 1 + below(r, n));
    if (step > n - at) step = n - at;
    for (int64_t b = 0; b < s->batch; b++) {
      append(context, cache, s, b, sequence + b, key, key + step);
      if (back) { // too far, then back, and again
        int64_t to = key - below(r, key < 70 ? key + 1 : 70);
        ok(context, heed_cache_truncate(cache, sequence + b, to));
        append(context, cache, s, b, sequence + b, to, key + step);
      }
      if (forks) ok(context, heed_cache_fork(cache, sequence + b, key + step, other + b));
    }
    heed_view q = s->vq, o = heed_view_of(out, HEED_F32, 4, s->vout.dim), l = heed_view_of(lse, HEED_F32, 3, s->vlse.dim);
    q.data = s->q + at * s->d;
    o.data = out + at * s->dv;
    l.data = lse + at;
    q.dim[2] = o.dim[2] = l.dim[2] = step;
    heed_attention a = s->a;
    a.align = HEED_ALIGN_UNSET;
    heed_attention_extras extras = {.size = sizeof extras, .lse = &l};
    int64_t sequences[2] = {forks ? other : sequence, (forks ? other : sequence) + 1};
    ok(context, heed_attention_cached(context, &a, &q, cache, sequences, &o, &extras));
    if (forks) { // go on in the fork, and let the first go somewhere else
      for (int64_t b = 0; b < s->batch; b++) append(context, cache, s, b, sequence + b, 0, 1);
      int64_t swap = sequence;
      sequence = other;
      other = swap;
    }
  }
  for (int64_t row = 0; row < s->batch * s->heads; row++)
    for (int64_t i = n - most; i < n; i++) {
      assert_same_bytes(out + (row * n + i) * s->dv, s->out + (row * n + i) * s->dv, s->dv * 4, "a cut", r->seed);
      assert_same_bytes(lse + row * n + i, s->lse + row * n + i, 4, "lse of a cut", r->seed);
    }
  heed_cache_free(cache);
  free(out);
  free(lse);
}

PROPERTY(p31_any_cut_is_the_whole, 300, 0) { p31_any_cut(s, r, (heed_cache_type)(r->seed / 1000003 % TYPES)); }

/* Every width of complaint 17 and some that are no width at all, one to eight rows a head, chunks that merge: every type. */
static void widths(void **state) {
  (void)state;
  static const int64_t width[] = {0, 1, 3, 7, 15, 17, 31, 33, 40, 63, 65, 72, 80, 95, 96, 112, 127, 256, 512};
  for (int i = 0; i < (int)(sizeof width / sizeof *width); i++)
    for (int type = 0; type < TYPES; type++) {
      random_source r = {.seed = (uint64_t)(i * TYPES + type)};
      sample s = {.batch = 1, .kv_heads = 2, .n = 1 + below(&r, 4), .m = 1 + below(&r, 2300), .d = width[i], .dv = width[(i * 5 + 3) % 19]};
      s.heads = 2 * (1 + below(&r, 4));
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_end(&s);
      heed_cache *cache = cache_of(&s, &r, type);
      sample_run(context, &s);
      assert_cached(context, &s.a, &s, cache, NULL, heed_cache_type_name(type), r.seed);
      // The last row among many, which do not decode.
      int64_t n = 20, last = s.n - 1;
      float *q = floats(s.heads * n * s.d), *out = floats(s.heads * n * s.dv);
      for (int64_t h = 0; h < s.heads; h++) memcpy(q + (h * n + n - 1) * s.d, s.q + (h * s.n + last) * s.d, (size_t)s.d * 4);
      heed_view vq = heed_view_of(q, HEED_F32, 3, (int64_t[]){s.heads, n, s.d}),
                vo = heed_view_of(out, HEED_F32, 3, (int64_t[]){s.heads, n, s.dv});
      ok(context, heed_attention_cached(context, &s.a, &vq, cache, NULL, &vo, NULL));
      for (int64_t h = 0; h < s.heads; h++)
        assert_same_bytes(out + (h * n + n - 1) * s.dv, s.out + (h * s.n + last) * s.dv, s.dv * 4, "among many", r.seed);
      free(q);
      free(out);
      heed_cache_free(cache);
      sample_free(&s);
    }
}

/* Every level and number of threads: units that go whole, that are cut, and both. */
static void p34_p35_levels_and_threads(void **state) {
  (void)state;
  for (int type = 0; type < TYPES; type++)
    for (int64_t kv_heads = 1; kv_heads <= 5; kv_heads += SANITIZED ? 4 : 2) {
      random_source r = {.seed = (uint64_t)kv_heads};
      sample s = {.batch = 1, .heads = 3 * kv_heads, .kv_heads = kv_heads, .n = 2, .m = 3333, .d = 21, .dv = 34};
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_end(&s);
      heed_cache *cache = cache_of(&s, &r, type);
      sample_run(context, &s);
      for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
        for (int threads = 1; threads <= 8 && heed_level_available(level); threads *= SANITIZED ? 8 : 2) {
          heed_context *c = test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads + (threads > 4)});
          assert_cached(c, &s.a, &s, cache, NULL, heed_level_name(level), r.seed);
          heed_context_free(c);
        }
      int64_t calls = 0;
      heed_options host = {.size = sizeof host, .threads = 3, .parallel_for = pthread_parallel, .parallel_user = &calls};
      heed_context *c = test_context(&host);
      assert_cached(c, &s.a, &s, cache, NULL, "the host's threads", r.seed);
      assert_true(calls > 0);
      heed_context_free(c);
      heed_cache_free(cache);
      sample_free(&s);
    }
}

/* P33: attention over two parts of the keys, merged by their lse, is attention over all. */
PROPERTY(p33_parts_merge_by_lse, 300, 0) {
  if (s->m < 2) return;
  int64_t cut = 1 + below(r, s->m - 1), rows = s->batch * s->heads * s->n;
  float *out[2], *lse[2];
  for (int part = 0; part < 2; part++) {
    heed_cache *cache = new_cache(context, s->batch, s->kv_heads, s->d, s->dv, HEED_CACHE_F32, 0);
    out[part] = floats(rows * s->dv);
    lse[part] = floats(rows);
    heed_view vout = s->vout, vlse = s->vlse;
    vout.data = out[part];
    vlse.data = lse[part];
    for (int64_t b = 0; b < s->batch; b++) append(context, cache, s, b, b, part ? cut : 0, part ? s->m : cut);
    heed_attention_extras extras = {.size = sizeof extras, .lse = &vlse};
    ok(context, heed_attention_cached(context, NULL, &s->vq, cache, NULL, &vout, &extras));
    heed_cache_free(cache);
  }
  sample_run(context, s);
  for (int64_t row = 0; row < rows; row++) {
    double a = exp((double)lse[0][row] - s->lse[row]), b = exp((double)lse[1][row] - s->lse[row]);
    assert_close(a + b, 1, 1e-5, "the two sums", r->seed);
    for (int64_t c = 0; c < s->dv; c++)
      assert_close(a * out[0][row * s->dv + c] + b * out[1][row * s->dv + c], s->out[row * s->dv + c], 1e-5, "merged", r->seed);
  }
  for (int part = 0; part < 2; part++) {
    free(out[part]);
    free(lse[part]);
  }
}

/* ---- rings -------------------------------------------------------------------------------------------------------------------------- */

/* Token by token through a ring is the window over everything, absolute positions and all. */
static void rings_are_windows(void **state) {
  (void)state;
  for (int round = 0; round < (SANITIZED ? 8 : 24); round++) {
    random_source r = {.seed = (uint64_t)round};
    int64_t window = 1 + below(&r, 150), most = 1 + below(&r, 40);
    sample s = {.batch = 1, .heads = 4, .kv_heads = 2, .n = 1500, .m = 1500, .d = 8, .dv = 5};
    sample_fill(&s, &r, 0);
    s.a = (heed_attention){.size = sizeof s.a, .causal = true, .has_window_left = true, .window_left = window, .align = HEED_ALIGN_END};
    heed_cache_type type = (heed_cache_type)(round % TYPES);
    heed_cache *all = cache_of(&s, &r, type), *ring = new_cache(context, 2, 2, s.d, s.dv, type, window + most);
    sample_run(context, &s);
    for (int64_t at = 0, step, sequence = 0; at < s.m; at += step) {
      step = 1 + below(&r, most);
      if (step > s.m - at) step = s.m - at;
      append(context, ring, &s, 0, sequence, at, at + step);
      if (below(&r, 4) == 0) { // a little way back, within what the ring has kept, and on; or on in a fork
        int64_t first = heed_cache_first(ring, sequence), to = at + step - below(&r, at + step - first + 1);
        ok(context, heed_cache_fork(ring, sequence, to, 1 - sequence));
        if (below(&r, 2)) sequence = 1 - sequence;
        else ok(context, heed_cache_truncate(ring, sequence, to));
        append(context, ring, &s, 0, sequence, to, at + step);
      }
      float out[4 * 40 * 5];
      heed_view q = s.vq, o = heed_view_of(out, HEED_F32, 4, (int64_t[]){1, 4, step, s.dv});
      q.data = s.q + at * s.d;
      q.dim[2] = step;
      heed_attention a = s.a;
      ok(context, heed_attention_cached(context, &a, &q, ring, &sequence, &o, NULL));
      for (int64_t h = 0; h < 4; h++)
        assert_same_bytes(out + h * step * s.dv, s.out + (h * s.n + at) * s.dv, step * s.dv * 4, "a ring", r.seed);
      assert_int_equal(heed_cache_length(ring, sequence), at + step);
      assert_true(heed_cache_first(ring, sequence) % 64 == 0);
    }
    heed_cache_free(all);
    heed_cache_free(ring);
    sample_free(&s);
  }
}

/* More at once than a ring keeps: the last of it is there. */
static void rings_swallow_any_length(void **state) {
  (void)state;
  random_source r = {.seed = 9};
  sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 1, .m = 1000, .d = 3, .dv = 2};
  sample_fill(&s, &r, 0);
  heed_cache *ring = new_cache(context, 1, 1, 3, 2, HEED_CACHE_F32, 100);
  append(context, ring, &s, 0, 0, 0, 70);
  append(context, ring, &s, 0, 0, 70, 1000);
  assert_int_equal(heed_cache_length(ring, 0), 1000);
  assert_int_equal(heed_cache_first(ring, 0), 896);
  float k[104 * 3];
  heed_view view = heed_view_of(k, HEED_F32, 2, (int64_t[]){104, 3});
  ok(context, heed_cache_read(ring, 0, 896, &view, NULL));
  assert_same_bytes(k, s.k + 896 * 3, sizeof k, "the last keys", r.seed);
  heed_cache_free(ring);
  sample_free(&s);
}

/* Contract 23 for rings: after the first lap a token costs as many tiles, takes no memory, and needs no more than before, however many there have been. */
static void rings_cost_the_same_for_ever(void **state) {
  (void)state;
  ledger counted;
  heed_context *c = ledger_context(&counted, 2);
  random_source r = {.seed = 1};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 1, .m = 1, .d = 8, .dv = 8};
  sample_fill(&s, &r, 0);
  heed_cache *ring = new_cache(c, 1, 1, 8, 8, HEED_CACHE_BF16, 512);
  heed_attention a = {.size = sizeof a, .causal = true, .has_window_left = true, .window_left = 511};
  heed_plan plan = {.size = sizeof plan};
  int64_t held = 0, most_tiles = 0;
  for (int64_t i = 0; i < 100000; i++) {
    int64_t before = counted.calls;
    append(c, ring, &s, 0, 0, 0, 1);
    if (i == 1000) held = counted.now;
    if (i > 1000) assert_int_equal(counted.calls, before);
    if (i > 1000) assert_int_equal(counted.now, held);
    if (i % 977 && i < 99990) continue;
    ok(c, heed_attention_cached_plan(c, &a, &s.vq, ring, NULL, &plan));
    int64_t tiles = plan.full_tiles + plan.partial_tiles;
    most_tiles = tiles > most_tiles ? tiles : most_tiles;
    assert_true(tiles <= 2 * (512 / 64 + 1));
    assert_int_equal(plan.visible_pairs, 2 * (i + 1 < 512 ? i + 1 : 512));
    ok(c, heed_attention_cached(c, &a, &s.vq, ring, NULL, &s.vout, NULL));
  }
  assert_int_equal(most_tiles, 2 * 9);
  heed_cache_free(ring);
  heed_context_free(c);
  assert_int_equal(counted.now, 0);
  sample_free(&s);
}

/* ---- pages are shared ---------------------------------------------------------------------------------------------------------------- */

static void forks_share_pages(void **state) {
  (void)state;
  enum { FORKS = 6, PREFIX = 64 * 40 + 20 };
  ledger counted;
  heed_context *c = ledger_context(&counted, 2);
  random_source r = {.seed = 3};
  sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 1, .m = PREFIX + 10, .d = 16, .dv = 16};
  sample_fill(&s, &r, 0);
  heed_cache *cache = new_cache(c, FORKS + 1, 1, 16, 16, HEED_CACHE_F32, 0);
  append(c, cache, &s, 0, 0, 0, PREFIX);
  int64_t before = counted.now, page = 64 * 32 * 4;
  for (int i = 1; i <= FORKS; i++) ok(c, heed_cache_fork(cache, 0, PREFIX, i));
  assert_true(counted.now - before < FORKS * 60 * 8); // lists of pages and nothing else
  for (int i = 1; i <= FORKS; i++) {
    s.k[PREFIX * 16] = (float)i;
    append(c, cache, &s, 0, i, PREFIX, PREFIX + 1);
  }
  assert_true(counted.now - before < (FORKS + 22) * (page + 64) + FORKS * 60 * 8); // a page each, and what a slab has to spare
  for (int i = 0; i <= FORKS; i++) {
    float row[16];
    heed_view view = heed_view_of(row, HEED_F32, 2, (int64_t[]){1, 16});
    if (i) ok(c, heed_cache_read(cache, i, PREFIX, &view, NULL));
    if (i) assert_true(row[0] == (float)i);
    ok(c, heed_cache_read(cache, i, PREFIX - 1, &view, NULL));
    assert_same_bytes(row, s.k + (PREFIX - 1) * 16, sizeof row, "the shared page", 3);
  }
  // The last to hold a page gives it back: what all let go of is enough for as much again.
  for (int i = 0; i <= FORKS; i++) ok(c, heed_cache_truncate(cache, i, 0));
  before = counted.now;
  append(c, cache, &s, 0, 3, 0, PREFIX);
  assert_int_equal(counted.now, before);
  heed_cache_free(cache);
  heed_context_free(c);
  assert_int_equal(counted.now, 0);
  sample_free(&s);
}

/* Anything in any order, against plain arrays. */
static void appends_writes_forks_and_truncations(void **state) {
  (void)state;
  enum { SEQUENCES = 4, MOST = 700 };
  for (int round = 0; round < 8; round++) {
    random_source r = {.seed = (uint64_t)round + 100};
    heed_cache *cache = new_cache(context, SEQUENCES, 1, 1, 2, round % 2 ? HEED_CACHE_BF16 : HEED_CACHE_F32, 0);
    static float want[SEQUENCES][MOST], want_v[SEQUENCES][MOST], k[MOST], v[2 * MOST];
    int64_t length[SEQUENCES] = {0};
    for (int step = 0; step < 600; step++) {
      int64_t a = below(&r, SEQUENCES), b = below(&r, SEQUENCES), t = below(&r, below(&r, 2) ? 4 : 150);
      int what = (int)below(&r, 6);
      if (what == 5) { // some of both, of the keys alone, or of the values alone
        int64_t begin = below(&r, length[a] + 1), side = below(&r, 3);
        if (t > length[a] - begin) t = length[a] - begin;
        for (int64_t i = 0; i < t; i++) {
          if (side != 2) k[i] = want[a][begin + i] = (float)below(&r, 100);
          if (side != 1) v[2 * i] = v[2 * i + 1] = want_v[a][begin + i] = (float)below(&r, 100);
        }
        heed_view vk = heed_view_of(k, HEED_F32, 2, (int64_t[]){t, 1}), vv = heed_view_of(v, HEED_F32, 2, (int64_t[]){t, 2});
        ok(context, heed_cache_write(cache, a, begin, side == 2 ? NULL : &vk, side == 1 ? NULL : &vv));
      } else if (what < 3) {
        if (t > MOST - length[a]) t = MOST - length[a];
        for (int64_t i = 0; i < t; i++)
          k[i] = want[a][length[a] + i] = v[2 * i] = v[2 * i + 1] = want_v[a][length[a] + i] = (float)below(&r, 100);
        heed_view vk = heed_view_of(k, HEED_F32, 2, (int64_t[]){t, 1}), vv = heed_view_of(v, HEED_F32, 2, (int64_t[]){t, 2});
        ok(context, heed_cache_append(cache, a, &vk, &vv));
        length[a] += t;
      } else if (what == 3) {
        length[a] = below(&r, length[a] + 1);
        ok(context, heed_cache_truncate(cache, a, length[a]));
      } else if (a != b) {
        length[b] = below(&r, length[a] + 1);
        memcpy(want[b], want[a], (size_t)length[b] * 4);
        memcpy(want_v[b], want_v[a], (size_t)length[b] * 4);
        ok(context, heed_cache_fork(cache, a, length[b], b));
      }
      for (int64_t i = 0; i < SEQUENCES; i++) {
        heed_view vk = heed_view_of(k, HEED_F32, 2, (int64_t[]){length[i], 1}),
                  vv = heed_view_of(v, HEED_F32, 2, (int64_t[]){length[i], 2});
        assert_int_equal(heed_cache_length(cache, i), length[i]);
        ok(context, heed_cache_read(cache, i, 0, &vk, &vv));
        assert_same_bytes(k, want[i], length[i] * 4, "keys", r.seed);
        for (int64_t j = 0; j < length[i]; j++) assert_true(v[2 * j] == want_v[i][j] && v[2 * j + 1] == want_v[i][j]);
      }
    }
    heed_cache_free(cache);
  }
}

/* ---- which kernel runs --------------------------------------------------------------------------------------------------------------- */

static void plans_name_the_kernel(void **state) {
  (void)state;
  random_source r = {.seed = 2};
  sample s = {.batch = 1, .heads = 4, .kv_heads = 2, .n = 3, .m = 200, .d = 8, .dv = 8};
  sample_fill(&s, &r, SAMPLE_CAUSAL);
  align_end(&s);
  heed_cache *cache = cache_of(&s, &r, HEED_CACHE_Q8_0);
  heed_plan plan = {.size = sizeof plan}, same = plan;
  ok(context, heed_attention_cached_plan(context, &s.a, &s.vq, cache, NULL, &plan));
  ok(context, heed_attention_explain_plan(context, &s.a, &s.vq, &s.vk, &s.vv, &same));
  assert_string_equal(plan.kernel, same.kernel);
  assert_non_null(strstr(plan.kernel, "decode, "));
  heed_level level = heed_context_level(context); // the levels that multiply bf16 in pairs decode as avx512
  if (level == HEED_LEVEL_AVX512BF16 || level == HEED_LEVEL_AMX) level = HEED_LEVEL_AVX512;
  assert_string_equal(plan.kernel + strlen("decode, "), heed_level_name(level));
  assert_int_equal(plan.visible_pairs, same.visible_pairs);
  assert_int_equal(plan.visible_pairs, 4 * (198 + 199 + 200));
  s.a.softcap = 5;
  ok(context, heed_attention_cached_plan(context, &s.a, &s.vq, cache, NULL, &plan));
  assert_non_null(strstr(plan.kernel, "fused forward, "));
  heed_cache_free(cache);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounding_is_that_of_the_type),
      cmocka_unit_test(quantised_blocks_at_the_edges),
      cmocka_unit_test(views_of_any_type_and_stride),
      cmocka_unit_test(p32_pages_are_contiguous),
      cmocka_unit_test(sequences_of_their_own_lengths),
      cmocka_unit_test(p31_any_cut_is_the_whole),
      cmocka_unit_test(widths),
      cmocka_unit_test(p34_p35_levels_and_threads),
      cmocka_unit_test(p33_parts_merge_by_lse),
      cmocka_unit_test(rings_are_windows),
      cmocka_unit_test(rings_swallow_any_length),
      cmocka_unit_test(rings_cost_the_same_for_ever),
      cmocka_unit_test(forks_share_pages),
      cmocka_unit_test(appends_writes_forks_and_truncations),
      cmocka_unit_test(plans_name_the_kernel),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
