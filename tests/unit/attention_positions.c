/* Positions: slopes of ALiBi and rows of sinusoids by their formulas, Transformer-XL's segments against one pass, gradients of what depends on the distance over several pieces of work and with
 * the same bits everywhere, and what is refused. */
#include "../model_test.h"

#include "../attention_gradients.h"
#include "../cache_sample.h"

static heed_context *context;

/* ---- ALiBi ------------------------------------------------------------------------------------------------------------------------- */

static void slopes_of_any_number(void **state) {
  (void)state;
  json_t *tables = test_json(TEST_EXPECTED "tables.json"), *rows = json_object_get(tables, "alibi_slopes"), *row;
  const char *heads;
  double slopes[128];
  assert_true(json_object_size(rows) >= 8);
  json_object_foreach(rows, heads, row) {
    const int64_t count = strtol(heads, NULL, 10);
    assert_int_equal(json_array_size(row), count);
    ok(context, heed_alibi_slopes(context, count, slopes));
    for (int64_t h = 0; h < count; h++) {
      const double want = json_number_value(json_array_get(row, (size_t)h));
      if (!(fabs(slopes[h] - want) <= 1e-14 * want)) fail_msg("%s heads, slope %d: %.17g, expected %.17g", heads, (int)h, slopes[h], want);
    }
  }
  json_decref(tables);
  assert_int_equal(heed_alibi_slopes(context, 0, slopes), HEED_E_ARGUMENT);
  assert_int_equal(heed_alibi_slopes(context, 2, NULL), HEED_E_ARGUMENT);
}

/* An encoder's rows do not care which way a sequence is read: turned round, outputs are the same, turned round. */
PROPERTY(alibi_is_symmetric, 130, SAMPLE_ALIBI) {
  s->a.align = HEED_ALIGN_END, s->a.offset = 0;
  double *forward = sample_reference(context, s, NULL);
  sample_run(context, s);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], forward[i], 2e-5, "forward", r->seed);
  reverse_rows(s->k, s->batch * s->kv_heads, s->m, s->d);
  reverse_rows(s->v, s->batch * s->kv_heads, s->m, s->dv);
  reverse_rows(s->q, s->batch * s->heads, s->n, s->d);
  s->a.align = HEED_ALIGN_START;
  sample_run(context, s);
  reverse_rows(s->out, s->batch * s->heads, s->n, s->dv);
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], forward[i], 2e-5, "turned round", r->seed);
  free(forward);
}

/* ---- sinusoids ----------------------------------------------------------------------------------------------------------------------- */

static double sinusoid(int64_t width, int64_t p, int64_t c, bool interleaved, bool closed) {
  const int64_t half = closed ? width / 2 : (width + 1) / 2, i = interleaved ? c / 2 : half ? c % half : 0;
  const bool cosine = interleaved ? c % 2 : c >= half;
  if (closed && c >= 2 * half) return 0;
  const double power = closed ? (half > 1 ? (double)i / (double)(half - 1) : 0) : 2.0 * (double)i / (double)width;
  const double angle = (double)p / pow(10000, power);
  return cosine ? cos(angle) : sin(angle);
}

static void sinusoids_of_any_width(void **state) {
  (void)state;
  enum { ROWS = 40 };
  for (int64_t width = 1; width <= 33; width++)
    for (int form = 0; form < 3; form++) {
      double rows[ROWS * 33];
      const heed_sinusoid how = {.size = sizeof how, .interleaved = form == 1, .closed = form == 2, .offset = width * 100 - 20};
      const heed_view out = heed_view_of(rows, HEED_F64, 2, (int64_t[]){ROWS, width});
      ok(context, heed_sinusoid_rows(context, &how, &out));
      for (int64_t at = 0; at < ROWS * width; at++)
        assert_close(rows[at], sinusoid(width, at / width + how.offset, at % width, how.interleaved, how.closed), 1e-9, "sinusoid",
                     (uint64_t)width);
    }
  float few[4] = {0};
  const heed_view flat = heed_view_of(few, HEED_F32, 1, (int64_t[]){4}), good = heed_view_of(few, HEED_F32, 2, (int64_t[]){2, 2});
  assert_int_equal(heed_sinusoid_rows(context, NULL, &flat), HEED_E_SHAPE);
  assert_int_equal(heed_sinusoid_rows(context, &(heed_sinusoid){.size = sizeof(heed_sinusoid), .theta = -1}, &good), HEED_E_ARGUMENT);
  assert_int_equal(heed_sinusoid_rows(context, &(heed_sinusoid){.size = sizeof(heed_sinusoid), .closed = true, .interleaved = true}, &good),
                   HEED_E_ARGUMENT);
}

/* ---- Transformer-XL ------------------------------------------------------------------------------------------------------------------ */

/* Segments of any lengths, each with the cache of those before it, give the bits of one pass over all of them; a bias that spells (q + v) · r out gives the same numbers. */
static void segments(sample *s, random_source *r) {
  const int64_t heads = s->heads, d = s->d, n = s->n = s->m;
  sample whole = *s;
  whole.q = normals(r, s->batch * heads * n * d), whole.out = floats(s->batch * heads * n * s->dv);
  whole.lse = floats(s->batch * heads * n);
  sample_views(&whole);
  whole.a.causal = true;
  whole.a.align = HEED_ALIGN_START, whole.a.offset = 0;
  sample_run(context, &whole);

  heed_cache *cache = new_cache(context, s->batch, s->kv_heads, d, s->dv, HEED_CACHE_F32, 0);
  float *out = floats(sample_out_count(&whole));
  heed_attention a = whole.a;
  a.align = HEED_ALIGN_UNSET; // of a cache: the queries are the last
  for (int64_t from = 0, to; from < n; from = to) {
    to = from + 1 + below(r, below(r, 3) ? 9 : n - from);
    if (to > n) to = n;
    for (int64_t b = 0; b < s->batch; b++) append(context, cache, &whole, b, b, from, to);
    heed_view q = whole.vq, o = whole.vout;
    q.data = whole.q + from * d, o.data = out + from * s->dv;
    q.dim[2] = o.dim[2] = to - from;
    ok(context, heed_attention_cached(context, &a, &q, cache, NULL, &o, NULL));
  }
  assert_same_bytes(out, whole.out, sample_out_count(&whole) * 4, "segments", r->seed);

  // The explicit form: queries with u, and a bias.
  const heed_score *score = &s->score;
  const double scale = 1 / sqrt((double)d);
  float *bias = floats(s->batch * heads * n * n), *with_u = copy_of(whole.q, s->batch * heads * n * d);
  for (int64_t row = 0; row < s->batch * heads * n; row++) {
    const int64_t h = row / n % heads, i = row % n;
    for (int64_t j = 0; j < n; j++) {
      int64_t at = i - j - score->first_distance;
      at = at < 0 ? 0 : at < score->distances->dim[1] ? at : score->distances->dim[1] - 1;
      double sum = 0;
      for (int64_t c = 0; c < d; c++)
        sum += ((double)whole.q[row * d + c] + s->sides[1][h * d + c]) * s->sides[2][(h * score->distances->dim[1] + at) * d + c];
      bias[row * n + j] = (float)(sum * scale);
    }
    for (int64_t c = 0; c < d; c++) with_u[row * d + c] += s->sides[0][h * d + c];
  }
  const heed_view vbias = heed_view_of(bias, HEED_F32, 4, (int64_t[]){s->batch, heads, n, n});
  heed_attention spelt = {.size = sizeof spelt, .causal = true, .align = HEED_ALIGN_START, .bias = &vbias};
  heed_view q = whole.vq, o = whole.vout;
  q.data = with_u, o.data = out;
  ok(context, heed_attention_forward(context, &spelt, &q, &whole.vk, &whole.vv, &o, NULL));
  for (int64_t i = 0; i < sample_out_count(&whole); i++) assert_close(whole.out[i], out[i], 3e-5, "the explicit form", r->seed);
  heed_cache_free(cache);
  free(whole.q), free(whole.out), free(whole.lse), free(out), free(bias), free(with_u);
}

PROPERTY(segments_are_one_pass, 200, SAMPLE_XL) { segments(s, r); }

/* More rows, distances and buckets than one piece of work has. */
static void large(int kinds, uint64_t seed) {
  random_source r = {.seed = seed};
  sample s = {.batch = 2, .heads = 4, .kv_heads = 2, .n = 300, .m = 330, .d = 20, .dv = 12};
  gradients g;
  double *want[GRADIENTS];
  sample_fill(&s, &r, kinds);
  if (kinds & SAMPLE_XL) { // a row for each distance
    free(s.sides[2]);
    const int64_t dim[] = {4, 640, 20};
    s.sides[2] = normals(&r, 4 * 640 * 20);
    s.vsides[2] = heed_view_of(s.sides[2], HEED_F32, 3, dim);
    s.score.first_distance = -335;
  }
  gradients_begin(context, &s, &r, &g);
  gradients_reference(context, &s, &g, want);
  assert_gradients_close(&g, want, 5e-6, seed);
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
  assert_same_bits_everywhere(context, &s, &r);
  sample_free(&s);
}

static void gradients_over_pieces(void **state) {
  (void)state;
  large(SAMPLE_XL | SAMPLE_CAUSAL, 1);
  large(SAMPLE_RELATIVE | SAMPLE_SOFTCAP, 2);
}

PROPERTY(xl_same_bits_everywhere, 130, SAMPLE_XL | SAMPLE_WINDOW) { assert_same_bits_everywhere(context, s, r); }
PROPERTY(relative_same_bits_everywhere, 130, SAMPLE_RELATIVE | SAMPLE_DROPOUT) { assert_same_bits_everywhere(context, s, r); }

/* Distances of other types and layouts are read as they are meant. */
PROPERTY(any_layout_of_distances, 97, SAMPLE_XL) {
  const int64_t heads = s->heads, rows = s->vsides[2].dim[1], d = s->d;
  float *out, *turned = floats(heads * rows * d);
  double *wide = calloc((size_t)(heads * rows * d), sizeof *wide);
  sample_run(context, s);
  out = copy_of(s->out, sample_out_count(s));
  for (int64_t at = 0; at < heads * rows * d; at++) turned[(at / d % rows * heads + at / d / rows) * d + at % d] = s->sides[2][at];
  const heed_view swapped = heed_view_swap(heed_view_of(turned, HEED_F32, 3, (int64_t[]){rows, heads, d}), 0, 1);
  s->score.distances = &swapped;
  sample_run(context, s);
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "rows of heads", r->seed);
  heed_view columns = heed_view_of(turned, HEED_F32, 3, (int64_t[]){heads, d, rows});
  for (int64_t at = 0; at < heads * rows * d; at++) turned[(at / d / rows * d + at % d) * rows + at / d % rows] = s->sides[2][at];
  columns = heed_view_swap(columns, 1, 2);
  s->score.distances = &columns;
  sample_run(context, s);
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "columns", r->seed);
  free(turned), free(wide), free(out);
}

#define refused(...) assert_refused(context, (const int64_t[]){2, 2, 4}, __VA_ARGS__)

static void refusals(void **state) {
  (void)state;
  float numbers[64] = {0};
  const heed_view sides = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){2, 4}),
                  rows = heed_view_of(numbers, HEED_F32, 3, (int64_t[]){2, 3, 4});
  const heed_view narrow = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){2, 3}),
                  whole = heed_view_of(numbers, HEED_I32, 2, (int64_t[]){2, 4});
  const heed_view none = heed_view_of(numbers, HEED_F32, 3, (int64_t[]){2, 0, 4}),
                  doubles = heed_view_of(numbers, HEED_F64, 2, (int64_t[]){2, 4});
  const heed_score good = {.size = sizeof good, .kind = HEED_SCORE_XL, .content = &sides, .position = &sides, .distances = &rows};
  heed_score score = good;
  const heed_attention a = {.size = sizeof a, .score = &score};
  score.content = NULL, refused(&a, HEED_E_ARGUMENT, "content: the view is null");
  score = good, score.position = &narrow, refused(&a, HEED_E_SHAPE, "position: [2,3], expected [2,4]");
  score = good, score.distances = &sides, refused(&a, HEED_E_SHAPE, "distances: [2,4], expected [2,distances,4]");
  score = good, score.distances = &none, refused(&a, HEED_E_SHAPE, "distances: [2,0,4]");
  score = good, score.content = &whole, refused(&a, HEED_E_TYPE, "content");
  score = good, score.content = &doubles, refused(&a, HEED_E_TYPE, "content is f64");
  score = good, score.first_distance = INT64_MAX, refused(&a, HEED_E_ARGUMENT, "first_distance");
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slopes_of_any_number),          cmocka_unit_test(alibi_is_symmetric),      cmocka_unit_test(sinusoids_of_any_width),
      cmocka_unit_test(segments_are_one_pass),         cmocka_unit_test(gradients_over_pieces),   cmocka_unit_test(xl_same_bits_everywhere),
      cmocka_unit_test(relative_same_bits_everywhere), cmocka_unit_test(any_layout_of_distances), cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
