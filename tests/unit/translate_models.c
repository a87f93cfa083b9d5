/* Models with an encoder and a decoder, decoded row by row: greedy and beam search find what transformers finds, the weights of every head and the log-probabilities of given targets are those
 * expected, and all of it has the same bits in any company. */
#include "../counting_allocator.h"
#include "../pair_families.h"
#include "../translations.h"

#include "../../include/heed/translate.h"

#include <math.h>

static heed_context *context;

enum { WIDTH = 12, MOST = 12 };

/* Both rows as sources, without what fills the batch up; targets that follow the decoder's input, and end in any token. */
typedef struct expected {
  family f;
  int32_t sources[64], targets[64];
  int64_t source_begin[3], target_begin[3];
} expected;

static void expect_begin(expected *e, const char *name) {
  family_begin(context, &e->f, name);
  const int64_t n = e->f.target.dim[1];
  for (int64_t row = 0; row < 2; row++) {
    const int64_t count = source_length(&e->f, row);
    memcpy(e->sources + e->source_begin[row], source_ids(&e->f, row), (size_t)count * sizeof *e->sources);
    e->source_begin[row + 1] = e->source_begin[row] + count;
    memcpy(e->targets + row * n, target_ids(&e->f, row) + 1, (size_t)(n - 1) * sizeof *e->targets);
    e->targets[row * n + n - 1] = 17;
    e->target_begin[row + 1] = (row + 1) * n;
  }
}

static void expect_end(expected *e) { family_end(context, &e->f); }

static heed_sources sources_of(const expected *e) { return (heed_sources){e->sources, e->source_begin, 2}; }

static heed_translations *translated(const expected *e, heed_translate_options o) {
  heed_translations *out;
  const heed_sources sources = sources_of(e);
  o.size = sizeof o;
  ok(context, heed_translate(context, e->f.model, &sources, &o, &out));
  return out;
}

static void expect_ids(const expected *e, const char *name, heed_translate_options o) {
  heed_view want = test_array(context, e->f.file, name);
  heed_translations *found = translated(e, o);
  int64_t count;
  const heed_translation *t = heed_translations_of(found, 0, &count);
  assert_true(count >= 1);
  assert_int_equal(t->count, want.dim[0] - 1); // without the start token
  assert_memory_equal(t->ids, (const int32_t *)want.data + 1, (size_t)t->count * sizeof *t->ids);
  heed_translations_free(found);
  heed_array_free(context, &want);
}

static void sequences_are_those_of_transformers(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    expected e = {0};
    expect_begin(&e, families[f]);
    for (int64_t batch = 1; batch <= 2; batch++) {
      expect_ids(&e, "greedy", (heed_translate_options){.most = MOST, .batch = batch});
      expect_ids(&e, "beam4", (heed_translate_options){.width = 4, .most = MOST, .batch = batch});
      expect_ids(&e, "beam4", (heed_translate_options){.width = 4, .best = 4, .most = MOST, .batch = batch});
    }
    expect_end(&e);
  }
}

static double log_probability(const float *logits, int32_t id) {
  double sum = 0;
  for (int64_t i = 0; i < VOCABULARY; i++) sum += exp((double)logits[i]);
  return (double)logits[id] - log(sum);
}

/* Of every layer and head; the mean of a layer, and of all. */
static void weights_are_those_expected(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    expected e = {0};
    expect_begin(&e, families[f]);
    heed_translate_info info = {.size = sizeof info};
    ok(context, heed_translate_describe(context, e.f.model, &info));
    const heed_sources targets = {e.targets, e.target_begin, 2};
    const int64_t n = e.f.target.dim[1], m = e.f.source.dim[1];
    static double all[2][16][32];
    memset(all, 0, sizeof all);
    for (int64_t layer = 0; layer <= info.layers; layer++) {
      const bool last = layer == info.layers; // then the mean of all
      char name[64];
      snprintf(name, sizeof name, "cross_attention.%d", (int)(last ? 0 : layer));
      heed_view want = test_array(context, e.f.file, name);
      for (int64_t head = last ? -1 : 0; head < (last ? 0 : info.heads); head++) {
        heed_translations *found = translated(&e, (heed_translate_options){.targets = &targets,
                                                                           .want_weights = true,
                                                                           .has_layer = !last,
                                                                           .layer = last ? 0 : layer,
                                                                           .has_head = !last,
                                                                           .head = last ? 0 : head});
        for (int64_t row = 0; row < 2; row++) {
          const heed_translation *t = heed_translations_of(found, row, NULL);
          const int64_t length = e.source_begin[row + 1] - e.source_begin[row];
          double sum = 0;
          for (int64_t i = 0; i < n; i++) {
            sum += log_probability((const float *)e.f.logits.data + (row * n + i) * VOCABULARY, t->ids[i]);
            for (int64_t j = 0; j < length; j++) {
              const double w = last ? all[row][i][j] : ((const float *)want.data)[((row * info.heads + head) * n + i) * m + j];
              if (!last) all[row][i][j] += w / (double)(info.layers * info.heads);
              if (!(fabs((double)t->weights[i * length + j] - w) <= 1e-5))
                fail_msg("%s: layer %d, head %d, row %d: weight %d, %d is %g, expected %g", families[f], (int)layer, (int)head, (int)row,
                         (int)i, (int)j, (double)t->weights[i * length + j], w);
            }
          }
          if (!(fabs(t->log_probability - sum) <= 1e-3))
            fail_msg("%s: row %d: log p %g, expected %g", families[f], (int)row, t->log_probability, sum);
        }
        heed_translations_free(found);
      }
      heed_array_free(context, &want);
    }
    expect_end(&e);
  }
}

/* What a session shows of weights and values of the last layer, as shares of what reaches the result. */
typedef struct shares {
  int64_t layer, head, group;
  double share[16][32];
} shares;

static heed_status take_shares(void *user, const heed_layer_record *r) {
  shares *s = user;
  if (r->stage != HEED_STAGE_CROSS || r->layer != s->layer) return HEED_OK;
  for (int64_t i = 0; i < r->queries; i++) {
    const float *weights = r->weights + (s->head * r->queries + i) * r->keys;
    double sum = 0;
    for (int64_t j = 0; j < r->keys; j++) {
      double length = 0;
      for (int64_t c = 0; c < WIDTH; c++) length += pow((double)r->v[(s->head / s->group * r->keys + j) * WIDTH + c], 2);
      sum += s->share[i][j] = (double)weights[j] * sqrt(length);
    }
    for (int64_t j = 0; j < r->keys; j++) s->share[i][j] /= sum;
  }
  return HEED_OK;
}

static void weights_by_value(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    expected e = {0};
    expect_begin(&e, families[f]);
    const heed_model_info info = test_info(e.f.model);
    assert_int_equal(info.head_dim, WIDTH);
    const heed_sources targets = {e.targets, e.target_begin, 2};
    const int64_t n = e.f.target.dim[1];
    shares s = {.layer = 2, .head = 3, .group = info.heads / info.kv_heads};
    heed_translations *found = translated(&e, (heed_translate_options){.targets = &targets,
                                                                       .want_weights = true,
                                                                       .by_value = true,
                                                                       .has_layer = true,
                                                                       .layer = s.layer,
                                                                       .has_head = true,
                                                                       .head = s.head});
    for (int64_t row = 0; row < 2; row++) {
      const int64_t length = e.source_begin[row + 1] - e.source_begin[row];
      heed_session *session = test_session(context, e.f.model, 0);
      const heed_watch watch = {.size = sizeof watch, .record = take_shares, .user = &s, .want_qkv = true};
      ok(context, heed_session_source(session, e.sources + e.source_begin[row], length, NULL));
      ok(context, heed_session_run(session, target_ids(&e.f, row), n, NULL, 0, &watch));
      const float *weights = heed_translations_of(found, row, NULL)->weights;
      double moved = 0;
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < length; j++) {
          assert_true(fabs((double)weights[i * length + j] - s.share[i][j]) < 1e-6);
          moved = fmax(moved, fabs((double)weights[i * length + j] - 1 / (double)length));
        }
      assert_true(moved > 0.01);
      heed_session_free(session);
    }
    heed_translations_free(found);
    expect_end(&e);
  }
}

/* Two sources together, each alone, and each between many others: the same bits. */
static void bits_do_not_depend_on_company(void **state) {
  (void)state;
  for (int f = 0; f < FAMILIES; f++) {
    expected e = {0};
    expect_begin(&e, families[f]);
    const heed_translate_options forms[] = {
        {.most = 20}, {.width = 5, .best = 5, .most = 20}, {.sample = true, .best = 3, .most = 20, .sampling = {.temperature = 1}}};
    for (int64_t form = 0; form < 3; form++) {
      heed_translate_options o = forms[form];
      o.size = sizeof o;
      o.want_weights = true;
      heed_translations *both = translated(&e, o), *other;
      for (int64_t row = 0; row < 2; row++) {
        const int64_t length = e.source_begin[row + 1] - e.source_begin[row];
        const heed_sources alone = {e.sources, e.source_begin + row, 1};
        o.numbers = &row;
        ok(context, heed_translate(context, e.f.model, &alone, &o, &other));
        same_translations(both, row, other, 0, length);
        heed_translations_free(other);
      }
      o.numbers = NULL;
      int32_t ids[64 * 7];
      int64_t begin[15] = {0};
      for (int64_t i = 0; i < 14; i++) { // the two first, and then pieces of them
        const int64_t row = i % 2, from = e.source_begin[row], cut = i < 2 ? 0 : i / 2, length = e.source_begin[row + 1] - from - cut;
        memcpy(ids + begin[i], e.sources + from, (size_t)length * sizeof *ids);
        begin[i + 1] = begin[i] + length;
      }
      const heed_sources many = {ids, begin, 14};
      o.batch = 5;
      ok(context, heed_translate(context, e.f.model, &many, &o, &other));
      for (int64_t row = 0; row < 2; row++) same_translations(both, row, other, row, e.source_begin[row + 1] - e.source_begin[row]);
      heed_translations_free(other);
      heed_translations_free(both);
    }
    expect_end(&e);
  }
}

/* A host that has one thread after all. */
static void one_after_another(void *user, int threads, int64_t count, heed_parallel_body body, void *argument) {
  (void)threads;
  ++*(int64_t *)user;
  for (int64_t i = 0; i < count; i++) body(argument, i, 0);
}

static bool stop_at(void *user, const char *what, int64_t done, int64_t total) {
  (void)what, (void)total;
  return done < *(int64_t *)user;
}

/* Sources enough for each thread to decode some alone: the same bits as one thread's, whoever takes what; a call that is stopped, or gets no memory, leaves nothing behind. */
static void threads_share_sources_out(void **state) {
  (void)state;
  enum { COUNT = 50 };
  expected e = {0};
  int32_t ids[COUNT * 32];
  int64_t begin[COUNT + 1] = {0}, regions = 0, stop = INT64_MAX;
  expect_begin(&e, families[0]);
  for (int64_t i = 0; i < COUNT; i++) {
    const int64_t row = i % 2, length = 2 + i % 11;
    memcpy(ids + begin[i], e.sources + e.source_begin[row], (size_t)length * sizeof *ids);
    begin[i + 1] = begin[i] + length;
  }
  const heed_sources many = {ids, begin, COUNT};
  heed_translate_options o = {.size = sizeof o, .width = 3, .best = 2, .most = 12, .want_weights = true};
  heed_translations *whole, *other;
  heed_context *alone = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 1});
  ok(alone, heed_translate(alone, e.f.model, &many, &o, &whole));
  for (int threads = 2; threads <= 3; threads++)
    for (int host = 0; host < 2; host++) {
      heed_options options = {.size = sizeof options, .threads = threads};
      if (host) options.parallel_for = one_after_another, options.parallel_user = &regions;
      heed_context *several = test_context(&options);
      for (int64_t batch = 0; batch <= 48; batch += 24) { // of 48 with three threads: 16 each
        o.batch = batch;
        ok(several, heed_translate(several, e.f.model, &many, &o, &other));
        for (int64_t i = 0; i < COUNT; i++) same_translations(whole, i, other, i, begin[i + 1] - begin[i]);
        heed_translations_free(other);
      }
      assert_true(!host || regions == 3); // a call is one region, whatever it decodes
      regions = 0;
      heed_context_free(several);
    }
  o.batch = 0;

  ledger l = {.budget = -1};
  heed_options options = {.size = sizeof options, .threads = 2, .allocator = {&l, ledger_allocate, ledger_release}};
  options.parallel_for = one_after_another, options.parallel_user = &regions;
  options.progress = stop_at, options.progress_user = &stop;
  heed_context *counted = test_context(&options);
  const int64_t live = l.live, calls = l.calls;
  ok(counted, heed_translate(counted, e.f.model, &many, &o, &other));
  for (int64_t i = 0; i < COUNT; i++) same_translations(whole, i, other, i, begin[i + 1] - begin[i]);
  heed_translations_free(other);
  const int64_t requests = l.calls - calls;
  stop = COUNT / 2;
  o.batch = 20;
  assert_int_equal(heed_translate(counted, e.f.model, &many, &o, &other), HEED_E_CANCELLED);
  assert_null(other);
  stop = INT64_MAX;
  o.batch = 0;
  for (int64_t i = 0; i < requests; i += 1 + i / 10) {
    l.budget = i;
    assert_int_equal(heed_translate(counted, e.f.model, &many, &o, &other), HEED_E_MEMORY);
    assert_non_null(strstr(heed_error(counted), "memory"));
    assert_null(other);
    assert_int_equal(l.live, live);
  }
  heed_context_free(counted);
  heed_translations_free(whole);
  heed_context_free(alone);
  expect_end(&e);
}

static void what_does_not_translate_is_refused(void **state) {
  (void)state;
  heed_model *model = test_model(context, TEST_EXPECTED "families/gpt2");
  heed_translate_info info = {.size = sizeof info};
  assert_int_equal(heed_translate_describe(context, model, &info), HEED_E_UNSUPPORTED);
  assert_non_null(strstr(heed_error(context), "no sources to translate"));
  heed_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequences_are_those_of_transformers),
      cmocka_unit_test(weights_are_those_expected),
      cmocka_unit_test(weights_by_value),
      cmocka_unit_test(bits_do_not_depend_on_company),
      cmocka_unit_test(threads_share_sources_out),
      cmocka_unit_test(what_does_not_translate_is_refused),
  };
  context = test_context(NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
