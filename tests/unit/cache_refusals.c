/* What a cache refuses and by which name, and its memory: that runs out, that is taken, and that lies beside what may be read. */
#include "cache_sample.h"
#include "guard_pages.h"

static heed_context *context;

/* ---- refusals ------------------------------------------------------------------------------------------------------------------------ */

#define REFUSED(call, status, words)                                                                                                       \
  do {                                                                                                                                     \
    heed_status refused_status = (call);                                                                                                   \
    if (refused_status != (status)) fail_msg("%s: %s (%s)", #call, heed_status_name(refused_status), heed_error(context));                 \
    if (!strstr(heed_error(context), words)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), words);                           \
  } while (0)

static void specs_are_refused(void **state) {
  (void)state;
  const heed_cache_spec legal = {.size = sizeof legal, .sequences = 1, .kv_heads = 1, .d = 4, .dv = 4};
  heed_cache_spec spec = legal;
  heed_cache *cache = (heed_cache *)&spec;
  assert_int_equal(heed_cache_new(NULL, &spec, &cache), HEED_E_ARGUMENT);
  assert_null(cache);
  REFUSED(heed_cache_new(context, NULL, &cache), HEED_E_ARGUMENT, "needs a spec");
  REFUSED(heed_cache_new(context, &spec, NULL), HEED_E_ARGUMENT, "a place");
  spec.size = 0;
  REFUSED(heed_cache_new(context, &spec, &cache), HEED_E_ARGUMENT, "size");
#define WITH(field, value, status, words)                                                                                                  \
  spec = legal;                                                                                                                            \
  spec.field = value;                                                                                                                      \
  REFUSED(heed_cache_new(context, &spec, &cache), status, words)
  WITH(sequences, 0, HEED_E_ARGUMENT, "0 sequences");
  WITH(sequences, -1, HEED_E_ARGUMENT, "-1 sequences");
  WITH(sequences, INT64_MAX / 8, HEED_E_OVERFLOW, "sequences of a cache");
  WITH(kv_heads, 0, HEED_E_ARGUMENT, "0 key/value heads");
  WITH(kv_heads, INT64_MAX / 16, HEED_E_OVERFLOW, "does not fit");
  WITH(d, -1, HEED_E_ARGUMENT, "widths -1 and 4");
  WITH(dv, INT64_MAX, HEED_E_OVERFLOW, "does not fit");
  WITH(type, (heed_cache_type)17, HEED_E_TYPE, "unknown type 17");
  WITH(keep, -1, HEED_E_ARGUMENT, "keeps -1");
  WITH(most_keys, -5, HEED_E_ARGUMENT, "at most -5");
#undef WITH
  assert_null(cache);
  heed_cache_free(NULL);
  assert_string_equal(heed_cache_type_name((heed_cache_type)17), "unknown");
  assert_int_equal(heed_cache_length(NULL, 0), -1);
  assert_int_equal(heed_cache_first(NULL, 0), -1);
  assert_int_equal(heed_cache_append(NULL, 0, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_cache_truncate(NULL, 0, 0), HEED_E_ARGUMENT);
  assert_int_equal(heed_cache_write(NULL, 0, 0, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_cache_fork(NULL, 0, 0, 1), HEED_E_ARGUMENT);
  assert_int_equal(heed_cache_read(NULL, 0, 0, NULL, NULL), HEED_E_ARGUMENT);
}

static void changes_are_refused(void **state) {
  (void)state;
  float data[2 * 5 * 4] = {0};
  heed_cache *cache = NULL;
  heed_cache_spec spec = {.size = sizeof spec, .sequences = 2, .kv_heads = 2, .d = 4, .dv = 3, .keep = 64, .most_keys = 200};
  ok(context, heed_cache_new(context, &spec, &cache));
  const heed_view k = heed_view_of(data, HEED_F32, 3, (int64_t[]){2, 5, 4}), v = heed_view_of(data, HEED_F32, 3, (int64_t[]){2, 5, 3});
  heed_view x = k;
  ok(context, heed_cache_append(cache, 0, &k, &v));
  REFUSED(heed_cache_append(cache, 2, &k, &v), HEED_E_ARGUMENT, "sequence 2 of a cache, allowed 0 to 1");
  REFUSED(heed_cache_append(cache, -1, &k, &v), HEED_E_ARGUMENT, "sequence -1");
  REFUSED(heed_cache_append(cache, 0, NULL, &v), HEED_E_ARGUMENT, "k");
  REFUSED(heed_cache_append(cache, 0, &k, NULL), HEED_E_ARGUMENT, "v");
  REFUSED(heed_cache_append(cache, 0, &v, &v), HEED_E_SHAPE, "k: [2,5,3], expected heads 2, keys, width 4");
  REFUSED(heed_cache_append(cache, 0, &k, &k), HEED_E_SHAPE, "v: [2,5,4]");
  x.dim[0] = 1;
  REFUSED(heed_cache_append(cache, 0, &x, &v), HEED_E_SHAPE, "k: [1,5,4]");
  x = k, x.dim[1] = 4;
  REFUSED(heed_cache_append(cache, 0, &x, &v), HEED_E_SHAPE, "k has 4 keys, v has 5");
  x = heed_view_of(data, HEED_F32, 4, (int64_t[]){1, 2, 5, 4});
  REFUSED(heed_cache_append(cache, 0, &x, &v), HEED_E_SHAPE, "[1,2,5,4]");
  x = k, x.type = HEED_F64;
  REFUSED(heed_cache_append(cache, 0, &x, &v), HEED_E_TYPE, "k is f64");
  x = k, x.data = NULL;
  REFUSED(heed_cache_append(cache, 0, &x, &v), HEED_E_ARGUMENT, "null");
  x = k, x.stride[0] = x.stride[1] = 0, x.dim[1] = 196;
  heed_view y = v;
  y.stride[0] = y.stride[1] = 0, y.dim[1] = 196;
  REFUSED(heed_cache_append(cache, 0, &x, &y), HEED_E_ARGUMENT, "has 5 keys and gets 196 more, allowed 200");
  x.dim[1] = y.dim[1] = INT64_MAX / 4;
  REFUSED(heed_cache_append(cache, 0, &x, &y), HEED_E_OVERFLOW, "overflow");
  assert_int_equal(heed_cache_length(cache, 0), 5);
  x.dim[1] = y.dim[1] = 195;
  ok(context, heed_cache_append(cache, 0, &x, &y));
  assert_int_equal(heed_cache_first(cache, 0), 128);

  REFUSED(heed_cache_truncate(cache, 0, 127), HEED_E_ARGUMENT, "127 keys of sequence 0, allowed 128 to 200");
  REFUSED(heed_cache_truncate(cache, 0, 201), HEED_E_ARGUMENT, "201 keys");
  REFUSED(heed_cache_truncate(cache, 7, 0), HEED_E_ARGUMENT, "sequence 7");
  REFUSED(heed_cache_write(cache, 0, 127, &k, &v), HEED_E_ARGUMENT, "k: 5 keys of sequence 0 from 127 on, allowed within 128 to 200");
  REFUSED(heed_cache_write(cache, 0, 196, NULL, &v), HEED_E_ARGUMENT, "v: 5 keys of sequence 0 from 196 on");
  REFUSED(heed_cache_write(cache, 7, 150, &k, &v), HEED_E_ARGUMENT, "sequence 7");
  REFUSED(heed_cache_write(cache, 0, 150, &v, NULL), HEED_E_SHAPE, "k: [2,5,3]");
  x = k, x.dim[1] = 4;
  REFUSED(heed_cache_write(cache, 0, 150, &x, &v), HEED_E_SHAPE, "k has 4 keys, v has 5");
  REFUSED(heed_cache_fork(cache, 0, 150, 0), HEED_E_ARGUMENT, "cannot fork into itself");
  REFUSED(heed_cache_fork(cache, 0, 100, 1), HEED_E_ARGUMENT, "100 keys of sequence 0");
  REFUSED(heed_cache_fork(cache, 0, 150, 2), HEED_E_ARGUMENT, "sequence 2");
  REFUSED(heed_cache_fork(cache, 5, 0, 1), HEED_E_ARGUMENT, "sequence 5");
  assert_int_equal(heed_cache_length(cache, 1), 0);

  float out[2 * 5 * 4];
  for (int i = 0; i < 40; i++) out[i] = 77;
  heed_view to = heed_view_of(out, HEED_F32, 3, (int64_t[]){2, 5, 4});
  REFUSED(heed_cache_read(cache, 0, 127, &to, NULL), HEED_E_ARGUMENT, "5 keys of sequence 0 from 127 on, allowed within 128 to 200");
  REFUSED(heed_cache_read(cache, 0, 196, &to, NULL), HEED_E_ARGUMENT, "from 196");
  REFUSED(heed_cache_read(cache, 0, INT64_MAX, &to, NULL), HEED_E_ARGUMENT, "keys of sequence 0");
  REFUSED(heed_cache_read(cache, 3, 0, &to, NULL), HEED_E_ARGUMENT, "sequence 3");
  REFUSED(heed_cache_read(cache, 0, 150, NULL, &to), HEED_E_SHAPE, "v: [2,5,4]");
  x = to, x.type = HEED_I32;
  REFUSED(heed_cache_read(cache, 0, 150, &x, NULL), HEED_E_TYPE, "k is i32");
  x = to, x.stride[1] = 0;
  REFUSED(heed_cache_read(cache, 0, 150, &x, NULL), HEED_E_LAYOUT, "share memory");
  x = heed_view_of(out + 1, HEED_F32, 3, (int64_t[]){2, 1, 3});
  to.dim[1] = 1;
  REFUSED(heed_cache_read(cache, 0, 150, &to, &x), HEED_E_OVERLAP, "k overlaps v");
  for (int i = 0; i < 40; i++) assert_true(out[i] == 77);
  heed_cache_free(cache);
}

static void cached_attention_is_refused(void **state) {
  (void)state;
  float data[2 * 2 * 300 * 4] = {0}, out[16];
  for (int i = 0; i < 16; i++) out[i] = 77;
  heed_cache *cache = new_cache(context, 2, 1, 4, 3, HEED_CACHE_F32, 100);
  heed_view k = heed_view_of(data, HEED_F32, 2, (int64_t[]){300, 4}), v = heed_view_of(data, HEED_F32, 2, (int64_t[]){300, 3});
  ok(context, heed_cache_append(cache, 0, &k, &v));
  k.dim[0] = v.dim[0] = 50;
  ok(context, heed_cache_append(cache, 1, &k, &v));
  heed_view q = heed_view_of(data, HEED_F32, 4, (int64_t[]){2, 2, 1, 4}), o = heed_view_of(out, HEED_F32, 4, (int64_t[]){2, 2, 1, 3}), x;
  heed_attention a = {.size = sizeof a, .has_window_left = true, .window_left = 107};
  heed_plan plan = {.size = sizeof plan};
  assert_int_equal(heed_attention_cached(NULL, &a, &q, cache, NULL, &o, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_cached_plan(NULL, &a, &q, cache, NULL, &plan), HEED_E_ARGUMENT);
#define TRY_(a_, q_, cache_, sequences_, out_, status, words)                                                                              \
  REFUSED(heed_attention_cached(context, a_, q_, cache_, sequences_, out_, NULL), status, words)
  TRY_(&a, &q, NULL, NULL, &o, HEED_E_ARGUMENT, "cache is null");
  TRY_(&a, NULL, cache, NULL, &o, HEED_E_ARGUMENT, "q");
  TRY_(&a, &q, cache, NULL, NULL, HEED_E_ARGUMENT, "out");
  TRY_(&a, &q, cache, ((int64_t[]){0, 2}), &o, HEED_E_ARGUMENT, "batch entry 1 is sequence 2");
  TRY_(&a, &q, cache, ((int64_t[]){-1, 0}), &o, HEED_E_ARGUMENT, "batch entry 0 is sequence -1");
  x = q, x.dim[3] = 3;
  TRY_(&a, &x, cache, NULL, &o, HEED_E_SHAPE, "k has width 4, q has 3");
  x = heed_view_of(data, HEED_F32, 4, (int64_t[]){3, 2, 1, 4});
  TRY_(&a, &x, cache, NULL, &o, HEED_E_ARGUMENT, "batch entry 2 is sequence 2");
  x = o, x.dim[3] = 4;
  TRY_(&a, &q, cache, NULL, &x, HEED_E_SHAPE, "out");
  x = o, x.data = q.data;
  TRY_(&a, &q, cache, NULL, &x, HEED_E_OVERLAP, "out overlaps q");
  a.window_left = 108;
  TRY_(&a, &q, cache, NULL, &o, HEED_E_ARGUMENT, "batch entry 0 may look at keys from 191 on, and the ring has kept those from 192 on");
  TRY_(NULL, &q, cache, NULL, &o, HEED_E_ARGUMENT, "may look at keys from 0 on");
  REFUSED(heed_attention_cached_plan(context, NULL, &q, cache, NULL, &plan), HEED_E_ARGUMENT, "may look at keys");
  a.window_left = 107;
  a.key_lengths = (int64_t[]){300, 51};
  TRY_(&a, &q, cache, NULL, &o, HEED_E_ARGUMENT, "key length 51 of batch entry 1, allowed 0 to 50");
  a.key_lengths = NULL;
  a.size = 0;
  TRY_(&a, &q, cache, NULL, &o, HEED_E_ARGUMENT, "size");
  a.size = sizeof a;
  REFUSED(heed_attention_cached_plan(context, &a, &q, cache, NULL, NULL), HEED_E_ARGUMENT, "heed_plan");
  for (int i = 0; i < 16; i++) assert_true(out[i] == 77);
#undef TRY_
  ok(context, heed_attention_cached(context, &a, &q, cache, NULL, &o, NULL));
  heed_cache_free(cache);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------------------- */

/* Every allocation fails once; nothing is changed by a call that failed, and nothing is lost. */
static void memory_runs_out(void **state) {
  (void)state;
  random_source r = {.seed = 77};
  sample s = {.batch = 1, .heads = 3, .kv_heads = 1, .n = 1, .m = 2300, .d = 20, .dv = 12};
  sample_fill(&s, &r, SAMPLE_CAUSAL);
  align_end(&s);
  sample_run(context, &s);
  bool failed = true;
  for (int64_t fail = 1; failed; fail++) {
    ledger counted;
    heed_context *c = ledger_context(&counted, 2);
    heed_cache *cache = NULL;
    heed_cache_spec spec = {.size = sizeof spec, .sequences = 2, .kv_heads = 1, .d = s.d, .dv = s.dv};
    counted.budget = fail - 1;
    failed = false;
#define MAY_FAIL(call)                                                                                                                     \
  do {                                                                                                                                     \
    heed_status may_fail = (call);                                                                                                         \
    if (may_fail == HEED_OK) break;                                                                                                        \
    assert_int_equal(may_fail, HEED_E_MEMORY);                                                                                             \
    failed = true;                                                                                                                         \
    if (cache) assert_int_equal(heed_cache_length(cache, 0), length);                                                                      \
    if (cache) assert_int_equal(heed_cache_length(cache, 1), forked);                                                                      \
    ok(c, call);                                                                                                                           \
  } while (0)
    int64_t length = 0, forked = 0;
    MAY_FAIL(heed_cache_new(c, &spec, &cache));
    static const int64_t cut[] = {0, 10, 700, 2299};
    for (int i = 0; i < 3; i++) {
      heed_view k, v;
      entry_views(&s, 0, cut[i], cut[i + 1], &k, &v);
      MAY_FAIL(heed_cache_append(cache, 0, &k, &v));
      length = cut[i + 1];
    }
    MAY_FAIL(heed_cache_fork(cache, 0, 2299, 1));
    forked = 2299;
    heed_view k, v, out = s.vout;
    entry_views(&s, 0, 2299, 2300, &k, &v);
    MAY_FAIL(heed_cache_append(cache, 1, &k, &v));
    forked++;
    float *data = floats(sample_out_count(&s));
    out.data = data;
    MAY_FAIL(heed_attention_cached(c, &s.a, &s.vq, cache, (int64_t[]){1}, &out, NULL));
    assert_same_bytes(data, s.out, sample_out_count(&s) * 4, "after an error", fail);
    MAY_FAIL(heed_attention_cached_plan(c, &s.a, &s.vq, cache, NULL, &(heed_plan){.size = sizeof(heed_plan)}));
    free(data);
    heed_cache_free(cache);
    heed_context_free(c);
    assert_int_equal(counted.now, 0);
  }
  sample_free(&s);
}

/* Contract 22: decoding takes a state a chunk and head, and tiles a thread: as good as nothing for another key. */
static void p44_memory_of_a_decode(void **state) {
  (void)state;
  ledger counted;
  heed_context *c = ledger_context(&counted, 2);
  int64_t peaks[2];
  for (int i = 0; i < 2; i++) {
    random_source r = {.seed = 44};
    sample s = {.batch = 1, .heads = 4, .kv_heads = 1, .n = 1, .m = i ? 65536 : 2048, .d = 8, .dv = 8};
    sample_fill(&s, &r, 0);
    counted.peak = counted.now;
    sample_run(c, &s);
    peaks[i] = counted.peak - counted.now;
    sample_free(&s);
  }
  assert_int_equal(peaks[1] - peaks[0], 62 * 4 * (8 + 2) * 4);
  heed_context_free(c);
}

/* Rows of any type and width that end where an unreadable page begins. */
static void p44_guard_pages(void **state) {
  (void)state;
  for (int64_t width = 1; width <= 70; width++)
    for (int64_t m = 1; m <= 20; m += 3)
      for (int type = 0; type < 3; type++) {
        const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16};
        float q[70 * 3] = {0}, out[70 * 3];
        const size_t bytes = (size_t)(m * width) * heed_type_bytes(types[type]);
        void *rows = before_guard(bytes);
        heed_view k = heed_view_of(rows, types[type], 3, (int64_t[]){1, m, width});
        heed_view vq = heed_view_of(q, HEED_F32, 3, (int64_t[]){1 + m % 3, 1, width}), o = vq;
        o.data = out;
        ok(context, heed_attention_forward(context, NULL, &vq, &k, &k, &o, NULL));
        before_guard_free(rows, bytes);
      }
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(specs_are_refused), cmocka_unit_test(changes_are_refused),    cmocka_unit_test(cached_attention_is_refused),
      cmocka_unit_test(memory_runs_out),   cmocka_unit_test(p44_memory_of_a_decode), cmocka_unit_test(p44_guard_pages),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
