/* Decoding on a stepper whose logits are a hash of source and tokens: against what transformers decodes with the same hash, against all targets of a tiny model, and against itself in
 * other company. */
#include "../counting_allocator.h"
#include "../translations.h"

#include "../../src/model/stepper.h"

#include <jansson.h>
#include <math.h>

/* ---- the stepper ------------------------------------------------------------------------------------------------------------------- */

enum { MOST_ROWS = 4096 };

/* As in tests/data/expected/decoding/make.py. A row is no more than a hash of its source and its tokens. */
typedef struct hashed {
  hd_stepper base;
  bool flat; /* all logits are equal */
  float poison;
  int64_t rows, starts, most_rows;
  uint32_t history[MOST_ROWS], source[MOST_ROWS];
  int64_t length[MOST_ROWS]; /* of its source */
} hashed;

static uint32_t mix(uint32_t a) {
  a = (a ^ a >> 16) * 0x7feb352du;
  a = (a ^ a >> 15) * 0x846ca68bu;
  return a ^ a >> 16;
}

static uint32_t fold(uint32_t history, int32_t id) { return mix(history * 31 + (uint32_t)id + 1); }

static float logit(const hashed *h, uint32_t history, int64_t token) {
  if (h->poison != 0) return h->poison;
  return h->flat ? 0.5f : (float)((mix(history + 0x9E3779B9u * (uint32_t)(token + 1)) >> 8) % 4096) / 512 - 4;
}

/* The weight that a token after `history` gives a place; layer and head −1: the mean. */
static float weight(uint32_t history, int64_t place, int64_t layer, int64_t head) {
  return (float)(mix(history + (uint32_t)(1000 * place + 10 * (layer + 1) + head + 1)) >> 8) / 0x1p24f;
}

static heed_status start(hd_stepper *stepper, const heed_sources *sources) {
  hashed *h = (hashed *)stepper;
  h->starts++;
  h->rows = sources->count;
  for (int64_t r = 0; r < sources->count; r++) {
    h->history[r] = 0;
    for (int64_t i = sources->begin[r]; i < sources->begin[r + 1]; i++) h->history[r] = fold(h->history[r], sources->ids[i]);
    h->source[r] = h->history[r];
    h->length[r] = sources->begin[r + 1] - sources->begin[r];
  }
  return HEED_OK;
}

static heed_status step(hd_stepper *stepper, const int32_t *ids, float *logits, const hd_step_weights *weights) {
  hashed *h = (hashed *)stepper;
  h->most_rows = h->rows > h->most_rows ? h->rows : h->most_rows;
  for (int64_t r = 0; r < h->rows; r++) {
    h->history[r] = fold(h->history[r], ids[r]);
    for (int64_t t = 0; t < stepper->targets; t++) logits[r * stepper->targets + t] = logit(h, h->history[r], t);
    for (int64_t p = 0; weights && p < h->length[r]; p++) {
      assert_true(p < weights->stride);
      weights->to[r * weights->stride + p] = weight(h->history[r], p, weights->layer, weights->head);
    }
  }
  return HEED_OK;
}

static heed_status choose(hd_stepper *stepper, int64_t rows, const int32_t *parents) {
  hashed *h = (hashed *)stepper, old = *h;
  assert_true(rows <= MOST_ROWS);
  for (int64_t r = 0; r < rows; r++) {
    assert_in_range(parents[r], 0, old.rows - 1);
    h->history[r] = old.history[parents[r]];
    h->source[r] = old.source[parents[r]];
    h->length[r] = old.length[parents[r]];
  }
  h->rows = rows;
  return HEED_OK;
}

static void nothing(hd_stepper *stepper) { (void)stepper; }

static const hd_stepper_kind kind = {start, step, choose, nothing, NULL};
static const int32_t end_two[] = {2};

static hashed stepper_of(heed_context *context, int64_t targets, const int32_t *ends, int64_t end_count) {
  return (hashed){.base = {.kind = &kind,
                           .context = context,
                           .name = "hashed",
                           .sources = 100,
                           .targets = targets,
                           .longest_source = 20,
                           .longest = 64,
                           .layers = 2,
                           .heads = 3,
                           .rules = {.ends = ends, .end_count = end_count, .forced_first = -1, .forced_last = -1}}};
}

static const int32_t source_ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5};
static const int64_t source_begin[] = {0, 3, 9, 10, 15, 19, 21, 30, 32};
static const heed_sources sources = {source_ids, source_begin, 8};

static heed_sources part(int64_t from, int64_t count) { return (heed_sources){source_ids, source_begin + from, count}; }

static const heed_translation *result(const heed_translations *t, int64_t source, int64_t k) {
  int64_t count;
  const heed_translation *of = heed_translations_of(t, source, &count);
  assert_true(k < count);
  return &of[k];
}

/* ---- beside transformers --------------------------------------------------------------------------------------------------------------- */

static int32_t id_or_none(const json_t *value) { return json_is_null(value) ? -1 : (int32_t)json_integer_value(value); }

static int64_t ids_of(const json_t *array, int32_t *ids) {
  for (size_t i = 0; i < json_array_size(array); i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
  return (int64_t)json_array_size(array);
}

static void one_case(heed_context *context, const json_t *c, int64_t targets) {
  int32_t ends[4], never[4], want[64];
  hashed h = stepper_of(context, targets, ends, ids_of(json_object_get(c, "ends"), ends));
  h.base.rules.never = never;
  h.base.rules.never_count = ids_of(json_object_get(c, "never"), never);
  h.base.rules.forced_first = id_or_none(json_object_get(c, "forced_first"));
  h.base.rules.forced_last = id_or_none(json_object_get(c, "forced_last"));
  const char *early = json_string_value(json_object_get(c, "early"));
  heed_translate_options o = {.size = sizeof o, .has_length_penalty = true};
  o.width = json_integer_value(json_object_get(c, "width"));
  o.best = json_integer_value(json_object_get(c, "best"));
  o.most = json_integer_value(json_object_get(c, "most"));
  o.length_penalty = json_number_value(json_object_get(c, "length_penalty"));
  o.early = strcmp(early, "first") == 0 ? HEED_EARLY_FIRST : strcmp(early, "never") == 0 ? HEED_EARLY_NEVER : HEED_EARLY_LIKELY;
  heed_translations *out;
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  const json_t *results = json_object_get(c, "results");
  assert_int_equal(json_array_size(results), sources.count * o.best);
  for (int64_t i = 0; i < sources.count * o.best; i++) {
    const heed_translation *got = result(out, i / o.best, i % o.best);
    const json_t *one = json_array_get(results, (size_t)i), *score = json_object_get(one, "score");
    assert_int_equal(got->count, ids_of(json_object_get(one, "ids"), want));
    assert_memory_equal(got->ids, want, (size_t)got->count * sizeof *want);
    if (json_is_number(score)) assert_true(fabs(got->score - json_number_value(score)) <= 2e-6 * fmax(1, fabs(got->score)) * 10);
  }
  heed_translations_free(out);
}

static void as_transformers(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  json_t *file = json_load_file(HEED_TEST_DATA "/expected/decoding/cases.json", 0, NULL), *one;
  size_t i;
  assert_non_null(file);
  assert_int_equal(json_array_size(json_object_get(file, "cases")), 67);
  json_array_foreach(json_object_get(file, "cases"), i, one) one_case(context, one, json_integer_value(json_object_get(file, "targets")));
  json_decref(file);
  heed_context_free(context);
}

/* ---- what it is to find ------------------------------------------------------------------------------------------------------------------ */

static double log_p(const hashed *h, uint32_t history, int64_t token) {
  double sum = 0;
  for (int64_t t = 0; t < h->base.targets; t++) sum += exp(logit(h, history, t));
  return logit(h, history, token) - log(sum);
}

/* The likeliest token each time, until the end. */
static void greedy(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 40, end_two, 1);
  heed_translations *out;
  const heed_translate_options o = {.size = sizeof o, .most = 50};
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  int64_t ended = 0;
  for (int64_t s = 0; s < sources.count; s++) {
    uint32_t history = 0;
    double sum = 0;
    int64_t count = 0;
    const heed_translation *got = result(out, s, 0);
    for (int64_t i = source_begin[s]; i < source_begin[s + 1]; i++) history = fold(history, source_ids[i]);
    for (int32_t id = 0; count < 50 && (count == 0 || id != 2); count++) {
      history = fold(history, count == 0 ? 0 : id);
      id = 0;
      for (int32_t t = 1; t < 40; t++)
        if (logit(&h, history, t) > logit(&h, history, id)) id = t;
      assert_true(count < got->count);
      assert_int_equal(got->ids[count], id);
      sum += log_p(&h, history, id);
    }
    assert_int_equal(got->count, count);
    assert_true(fabs(got->log_probability - sum) < 1e-5 && fabs(got->score - sum / (double)count) < 1e-6);
    assert_int_equal(got->ended, got->ids[count - 1] == 2);
    ended += got->ended;
  }
  assert_in_range(ended, 1, sources.count - 1); // both kinds were there
  heed_translations_free(out);
  heed_context_free(context);
}

typedef struct all {
  const hashed *h;
  double penalty, score[256];
  int64_t count, most;
} all;

static void enumerate(all *a, uint32_t history, int32_t id, double sum, int64_t count) {
  history = fold(history, id);
  for (int32_t t = 0; t < a->h->base.targets; t++) {
    const double here = sum + log_p(a->h, history, t);
    if (t != 2 && count + 1 < a->most) enumerate(a, history, t, here, count + 1);
    else a->score[a->count++] = here / pow((double)count + 1, a->penalty);
  }
}

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x > y ? -1 : x < y;
}

/* A search as wide as all beginnings finds every target there is, in the order of their scores. */
static void full_width(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 4, end_two, 1);
  for (int p = 0; p < 3; p++) {
    const heed_translate_options o = {
        .size = sizeof o, .width = 256, .best = 256, .most = 4, .early = HEED_EARLY_NEVER, .has_length_penalty = true, .length_penalty = p};
    heed_translations *out;
    ok(context, hd_decode(&h.base, &sources, &o, &out));
    for (int64_t s = 0; s < sources.count; s++) {
      all a = {.h = &h, .penalty = p, .most = 4};
      uint32_t history = 0;
      int64_t count;
      for (int64_t i = source_begin[s]; i < source_begin[s + 1]; i++) history = fold(history, source_ids[i]);
      enumerate(&a, history, 0, 0, 0);
      qsort(a.score, (size_t)a.count, sizeof *a.score, descending);
      assert_int_equal(a.count, 1 + 3 + 9 + 27 + 81);
      heed_translations_of(out, s, &count);
      assert_int_equal(count, a.count);
      for (int64_t k = 0; k < count; k++) assert_true(fabs(result(out, s, k)->score - a.score[k]) < 1e-5);
    }
    heed_translations_free(out);
  }
  heed_context_free(context);
}

/* Where all are equal: the better target's, then the lower id; of finished ones the earlier. */
static void ties(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  static const int32_t first[] = {0}, third[] = {3};
  hashed h = stepper_of(context, 4, third, 1);
  heed_translate_options o = {.size = sizeof o, .width = 3, .best = 3, .most = 3};
  heed_translations *out;
  h.flat = true;
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  for (int32_t k = 0; k < 3; k++) {
    assert_int_equal(result(out, 0, k)->count, 3);
    assert_memory_equal(result(out, 0, k)->ids, ((int32_t[]){0, 0, k}), 3 * sizeof(int32_t));
    assert_true(result(out, 0, k)->score == result(out, 0, 0)->score);
  }
  heed_translations_free(out);
  h.base.rules.ends = first; // each of the three ends at once, with the mean log p of every other target
  o.early = HEED_EARLY_NEVER;
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  static const int32_t want[][3] = {{0}, {1, 0}, {1, 1, 0}};
  for (int32_t k = 0; k < 3; k++) {
    assert_int_equal(result(out, 0, k)->count, k + 1);
    assert_memory_equal(result(out, 0, k)->ids, want[k], (size_t)(k + 1) * sizeof(int32_t));
  }
  heed_translations_free(out);
  heed_context_free(context);
}

/* ---- company ------------------------------------------------------------------------------------------------------------------------------ */

static void in_any_company(heed_context *context, heed_translate_options o) {
  hashed h = stepper_of(context, 300, end_two, 1);
  heed_translations *whole, *other;
  o.size = sizeof o;
  o.want_weights = true;
  ok(context, hd_decode(&h.base, &sources, &o, &whole));
  assert_int_equal(h.starts, 1);
  assert_int_equal(heed_translations_sources(whole), sources.count);
  for (o.batch = 1; o.batch <= 3; o.batch++) {
    ok(context, hd_decode(&h.base, &sources, &o, &other));
    for (int64_t s = 0; s < sources.count; s++) same_translations(whole, s, other, s, source_begin[s + 1] - source_begin[s]);
    heed_translations_free(other);
  }
  for (int64_t s = 0; s < sources.count; s++) {
    const heed_sources one = part(s, 1);
    o.numbers = &s;
    ok(context, hd_decode(&h.base, &one, &o, &other));
    same_translations(whole, s, other, 0, source_begin[s + 1] - source_begin[s]);
    heed_translations_free(other);
  }
  heed_translations_free(whole);
}

static void company(void **state) {
  (void)state;
  for (int threads = 1; threads <= 3; threads++) {
    heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = threads});
    in_any_company(context, (heed_translate_options){.most = 30});
    in_any_company(context, (heed_translate_options){.most = 30, .width = 4, .best = 4});
    in_any_company(context, (heed_translate_options){.most = 12, .width = 7, .best = 2, .early = HEED_EARLY_NEVER});
    in_any_company(context, (heed_translate_options){.most = 30, .sample = true, .best = 3, .sampling = {.temperature = 1, .seed = 5}});
    heed_context_free(context);
  }
}

/* ---- weights ------------------------------------------------------------------------------------------------------------------------------ */

static void check_weights(heed_context *context, heed_translate_options o) {
  hashed h = stepper_of(context, 12, end_two, 1);
  heed_translations *out;
  o.size = sizeof o;
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  for (int64_t s = 0; s < sources.count; s++)
    for (int64_t k = 0; k < o.best; k++) {
      const heed_translation *got = result(out, s, k);
      const int64_t length = source_begin[s + 1] - source_begin[s];
      uint32_t history = 0;
      for (int64_t i = 0; i < length; i++) history = fold(history, source_ids[source_begin[s] + i]);
      for (int64_t t = 0; t < got->count; t++) {
        history = fold(history, t == 0 ? 0 : got->ids[t - 1]);
        for (int64_t p = 0; p < length; p++)
          assert_true(got->weights[t * length + p] == weight(history, p, o.has_layer ? o.layer : -1, o.has_head ? o.head : -1));
      }
    }
  heed_translations_free(out);
}

/* Each token's weights are those of the step that it was chosen by, along the way of its own target. */
static void weights(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  check_weights(context, (heed_translate_options){.width = 4, .best = 4, .most = 9, .want_weights = true});
  check_weights(context, (heed_translate_options){.width = 3, .best = 1, .most = 9, .want_weights = true, .has_layer = true, .layer = 1});
  check_weights(context, (heed_translate_options){.best = 1, .most = 9, .want_weights = true, .has_head = true, .head = 2});
  heed_context_free(context);
}

/* ---- drawing ------------------------------------------------------------------------------------------------------------------------------- */

/* Targets that are given get what the model makes of them: those that a search found what the search said, any others the sum of their tokens, whatever else is in the batch. */
static void given(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 7, end_two, 1);
  heed_translate_options o = {.size = sizeof o, .want_weights = true, .has_layer = true, .layer = 1, .most = 20};
  heed_translations *found, *again;
  int32_t ids[8 * 20];
  int64_t begin[9] = {0};
  ok(context, hd_decode(&h.base, &sources, &o, &found));
  for (int64_t s = 0; s < sources.count; s++) {
    const heed_translation *t = result(found, s, 0);
    memcpy(ids + begin[s], t->ids, (size_t)t->count * sizeof *ids);
    begin[s + 1] = begin[s] + t->count;
  }
  static const int32_t never[] = {3};
  h.base.rules.never = never;
  for (int turn = 0; turn < 2; turn++) { // the second time with other tokens, among them an end token and one that no search may choose
    h.base.rules.never_count = turn;
    o.targets = &(heed_sources){ids, begin, sources.count};
    for (int64_t batch = 1; batch <= 8; batch += 7) {
      o.batch = batch;
      o.most = 0;
      ok(context, hd_decode(&h.base, &sources, &o, &again));
      for (int64_t s = 0; s < sources.count; s++) {
        const heed_translation *t = result(again, s, 0);
        const int64_t length = source_begin[s + 1] - source_begin[s];
        uint32_t history = 0;
        double sum = 0;
        for (int64_t i = 0; i < length; i++) history = fold(history, source_ids[source_begin[s] + i]);
        history = fold(history, h.base.rules.start);
        assert_int_equal(t->count, begin[s + 1] - begin[s]);
        for (int64_t i = 0; i < t->count; i++) {
          double all = 0;
          assert_int_equal(t->ids[i], ids[begin[s] + i]);
          for (int64_t v = 0; v < 7; v++) all += exp((double)logit(&h, history, v));
          sum += (double)logit(&h, history, t->ids[i]) - log(all);
          for (int64_t p = 0; p < length; p++) assert_true(t->weights[i * length + p] == weight(history, p, 1, -1));
          history = fold(history, t->ids[i]);
        }
        assert_true(fabs(t->log_probability - sum) < 1e-4);
        assert_int_equal(t->ended, t->ids[t->count - 1] == 2);
        if (turn == 0) assert_true(t->log_probability == result(found, s, 0)->log_probability && t->score == result(found, s, 0)->score);
      }
      heed_translations_free(again);
    }
    for (int64_t i = 0; i < begin[8]; i++) ids[i] = (int32_t)(mix((uint32_t)i) % 7);
  }
  heed_translations_free(found);
  heed_context_free(context);
}

/* First tokens come as often as they should, and the best come first. */
static void sampling(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 12, end_two, 1);
  enum { DRAWS = 4000 };
  const heed_sources one = part(1, 1);
  heed_translate_options o = {.size = sizeof o, .sample = true, .best = DRAWS, .most = 1, .sampling = {.temperature = 1, .seed = 3}};
  heed_translations *out, *again;
  int64_t seen[12] = {0}, count;
  ok(context, hd_decode(&h.base, &one, &o, &out));
  uint32_t history = 0;
  for (int64_t i = source_begin[1]; i < source_begin[2]; i++) history = fold(history, source_ids[i]);
  history = fold(history, 0);
  heed_translations_of(out, 0, &count);
  assert_int_equal(count, DRAWS);
  for (int64_t k = 0; k < DRAWS; k++) {
    seen[result(out, 0, k)->ids[0]]++;
    if (k > 0) assert_true(result(out, 0, k)->score <= result(out, 0, k - 1)->score);
  }
  for (int64_t t = 0; t < 12; t++) {
    const double p = exp(log_p(&h, history, t));
    assert_true(fabs((double)seen[t] - p * DRAWS) < 5 * sqrt(DRAWS * p * (1 - p)));
  }
  heed_translations_free(out);

  o = (heed_translate_options){.size = sizeof o, .sample = true, .most = 20}; // the likeliest each time: greedy
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  o.sample = false;
  ok(context, hd_decode(&h.base, &sources, &o, &again));
  for (int64_t s = 0; s < sources.count; s++)
    assert_memory_equal(result(out, s, 0)->ids, result(again, s, 0)->ids, (size_t)result(out, s, 0)->count * 4);
  heed_translations_free(out);
  heed_translations_free(again);
  heed_context_free(context);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------------------------ */

static void refuse(hashed *h, const heed_sources *from, heed_translate_options o, heed_status status, const char *text) {
  heed_translations *out = (heed_translations *)h;
  o.size = sizeof o;
  assert_int_equal(hd_decode(&h->base, from, &o, &out), status);
  assert_null(out);
  if (!strstr(heed_error(h->base.context), text)) fail_msg("%s: does not say \"%s\"", heed_error(h->base.context), text);
}

static void refusals(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 12, end_two, 1);
  const heed_sources empty = {source_ids, (int64_t[]){0, 2, 2}, 2}, strange = {(int32_t[]){1, 2, 100}, (int64_t[]){0, 1, 3}, 2};
  const heed_sources longer = {source_ids, (int64_t[]){0, 21}, 1};
  refuse(&h, NULL, (heed_translate_options){0}, HEED_E_ARGUMENT, "no sources");
  refuse(&h, &empty, (heed_translate_options){0}, HEED_E_ARGUMENT, "source 1 is empty");
  refuse(&h, &strange, (heed_translate_options){0}, HEED_E_ARGUMENT, "source 1: token 1 is 100, allowed 0 to 99");
  refuse(&h, &longer, (heed_translate_options){0}, HEED_E_ARGUMENT, "source 0 has 21 tokens, allowed 20");
  refuse(&h, &sources, (heed_translate_options){.best = 3, .width = 2}, HEED_E_ARGUMENT,
         "best: got 3, allowed up to the width of the search, 2");
  refuse(&h, &sources, (heed_translate_options){.most = 65}, HEED_E_ARGUMENT, "most: got 65, allowed 0 to 64");
  refuse(&h, &sources, (heed_translate_options){.width = -1}, HEED_E_ARGUMENT, "width: got -1");
  refuse(&h, &sources, (heed_translate_options){.want_weights = true, .has_layer = true, .layer = 2}, HEED_E_ARGUMENT,
         "layer: got 2, allowed 0 to 1");
  refuse(&h, &sources, (heed_translate_options){.want_weights = true, .has_head = true, .head = 3}, HEED_E_ARGUMENT,
         "head: got 3, allowed 0 to 2");
  refuse(&h, &sources, (heed_translate_options){.has_length_penalty = true, .length_penalty = NAN}, HEED_E_ARGUMENT, "length penalty");
  refuse(&h, &sources, (heed_translate_options){.early = 3}, HEED_E_ARGUMENT, "early stopping");
  refuse(&h, &sources, (heed_translate_options){.sample = true, .sampling = {.temperature = -1}}, HEED_E_ARGUMENT, "temperature");
  const heed_sources one = {source_ids, (int64_t[]){0, 3}, 1}, high = {(int32_t[]){12}, (int64_t[]){0, 1}, 1}, first = part(0, 1);
  refuse(&h, &sources, (heed_translate_options){.targets = &one}, HEED_E_ARGUMENT, "1 targets of 8 sources");
  refuse(&h, &first, (heed_translate_options){.targets = &high}, HEED_E_ARGUMENT, "target 0: token 0 is 12, allowed 0 to 11");
  refuse(&h, &first, (heed_translate_options){.targets = &one, .width = 2}, HEED_E_ARGUMENT, "neither searched for nor drawn");
  h.base.layers = 0;
  refuse(&h, &sources, (heed_translate_options){.want_weights = true}, HEED_E_UNSUPPORTED, "no attention");
  h.poison = NAN;
  refuse(&h, &sources, (heed_translate_options){0}, HEED_E_ARGUMENT, "the logits of token 0 are not finite");
  h.poison = -INFINITY;
  refuse(&h, &sources, (heed_translate_options){.width = 3}, HEED_E_ARGUMENT, "the logits of token 0 are not finite");
  heed_context_free(context);
}

/* Every request for memory refused once: an error, and nothing is left behind. */
static void memory(void **state) {
  (void)state;
  ledger l;
  heed_context *context = ledger_context(&l, 2);
  hashed h = stepper_of(context, 12, end_two, 1);
  const heed_translate_options o = {.size = sizeof o, .width = 3, .best = 2, .most = 9, .want_weights = true, .batch = 3};
  const int64_t before = l.live, calls = l.calls;
  heed_translations *out;
  ok(context, hd_decode(&h.base, &sources, &o, &out));
  heed_translations_free(out);
  const int64_t requests = l.calls - calls;
  assert_true(requests > 10);
  for (int64_t i = 0; i < requests; i++) {
    l.budget = i;
    assert_int_equal(hd_decode(&h.base, &sources, &o, &out), HEED_E_MEMORY);
    assert_null(out);
    assert_int_equal(l.live, before);
  }
  heed_context_free(context);
}

static bool stop_at_three(void *user, const char *what, int64_t done, int64_t total) {
  (void)user;
  assert_string_equal(what, "translate");
  assert_int_equal(total, sources.count);
  return done < 3;
}

static void cancelled(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hashed h = stepper_of(context, 12, end_two, 1);
  heed_context_set_progress(context, stop_at_three, NULL);
  refuse(&h, &sources, (heed_translate_options){.batch = 3}, HEED_E_CANCELLED, "");
  assert_int_equal(h.starts, 1);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_transformers), cmocka_unit_test(greedy),  cmocka_unit_test(full_width), cmocka_unit_test(ties),
      cmocka_unit_test(company),         cmocka_unit_test(weights), cmocka_unit_test(given),      cmocka_unit_test(sampling),
      cmocka_unit_test(refusals),        cmocka_unit_test(memory),  cmocka_unit_test(cancelled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
