/* LSH attention against its oracle: causal and not, lengths that are no multiple of a chunk, rows beyond key_lengths, rows that see nothing but themselves; the oracle's gradients against central
 * differences; many rounds against exact attention; equal bits on threads and levels; refusals and memory. */
#include "counting_allocator.h"
#include "lsh_sample.h"
#include "slope.h"

static heed_context *context;

static void near(const char *what, const char *name, const heed_view *got, const heed_view *want, double tolerance) {
  const double difference = linear_difference(got, want);
  if (!(difference <= tolerance)) fail_msg("%s: %s differs by %g", what, name, difference);
}

enum { CAUSAL = 1, LENGTHS = 2, GIVEN = 4, SECOND = 8 };

/* Not of width 1: such a key is the sign of its row, and gradients cancel. */
static void draw(lsh_sample *s, random_source *r, int kinds, int64_t most) {
  *s = (lsh_sample){
      .batch = 1 + below(r, 2), .heads = 1 + below(r, 3), .n = edge_size(r, most), .d = 1 + edge_size(r, 70), .dv = edge_size(r, 70)};
  s->a = (heed_lsh_attention){.causal = kinds & CAUSAL, .rounds = 1 + below(r, 5), .seed = r->seed, .stream = 3};
  if (below(r, 2)) s->a.has_scale = true, s->a.scale = 2.5;
  if (below(r, 2)) s->a.buckets[0] = 2 + 2 * below(r, 4);
  if (kinds & SECOND) s->a.buckets[0] = 4, s->a.buckets[1] = 2 + 2 * below(r, 3);
  lsh_fill(s, r);
  if (kinds & LENGTHS) s->a.key_lengths = s->lengths;
  if (kinds & GIVEN) {
    ok(context, heed_lsh_hash(context, &s->a, &s->view[HQK], &s->view[HASHES]));
    s->a.hashes = &s->view[HASHES];
  }
}

static void describe(char text[160], const lsh_sample *s, int kinds, uint64_t seed) {
  snprintf(text, 160, "kinds %d: B %d H %d n %d d %d dv %d rounds %d buckets %d %d seed %d", kinds, (int)s->batch, (int)s->heads, (int)s->n,
           (int)s->d, (int)s->dv, (int)s->a.rounds, (int)s->a.buckets[0], (int)s->a.buckets[1], (int)seed);
}

static void as_the_oracle(void **state) {
  (void)state;
  char what[160];
  for (int seed = 0; seed < 64; seed++) {
    random_source r = {.seed = (uint64_t)seed};
    lsh_sample s;
    lsh_oracle o;
    draw(&s, &r, seed % 16, seed % 8 == 5 ? 1100 : 200);
    describe(what, &s, seed % 16, r.seed);
    lsh_oracle_make(&o, &s);
    lsh_forward(context, &s);
    lsh_oracle_forward(context, &o);
    near(what, "out", &s.view[HOUT], &o.view[HOUT], 1e-5);
    near(what, "lse", &s.view[HLSE], &o.view[HLSE], 2e-6);
    lsh_backward(context, &s);
    lsh_oracle_backward(context, &o);
    // Of a row that sees one other alone the gradient is 0, and what is left are roundings.
    near(what, "dqk", &s.view[HDQK], &o.view[HDQK], 2e-4);
    near(what, "dv", &s.view[HDV], &o.view[HDV], 1e-5);
    lsh_oracle_free(&o);
    lsh_free(&s);
  }
}

/* ---- differences ------------------------------------------------------------------------------------------------------------------- */

static double loss(void *of) {
  lsh_oracle *o = of;
  lsh_oracle_forward(context, o);
  return dot_of(&o->view[HOUT], &o->view[HDOUT]);
}

static void gradients_are_derivatives(void **state) {
  (void)state;
  char what[160];
  for (int kinds = 0; kinds < 4; kinds++) {
    random_source r = {.seed = (uint64_t)(50 + kinds)};
    lsh_sample s;
    lsh_oracle o;
    draw(&s, &r, kinds | GIVEN, 191); // buckets are held, since they are constants
    describe(what, &s, kinds, r.seed);
    lsh_oracle_make(&o, &s);
    lsh_oracle_backward(context, &o);
    check_slope(loss, &o, &o.view[HQK], &o.view[HDQK], &r, what, HQK);
    check_slope(loss, &o, &o.view[HV], &o.view[HDV], &r, what, HV);
    lsh_oracle_free(&o);
    lsh_free(&s);
  }
}

/* ---- properties -------------------------------------------------------------------------------------------------------------------- */

/* Exact attention with shared queries and keys is attention with normalised keys and the diagonal masked. */
static void tends_to_exact_attention(void **state) {
  (void)state;
  double error[2][2];
  for (int causal = 0; causal < 2; causal++)
    for (int many = 0; many < 2; many++) {
      random_source r = {.seed = 4};
      lsh_sample s = {.batch = 1, .heads = 2, .n = 512, .d = 64, .dv = 64, .a = {.causal = causal, .rounds = many ? 64 : 1, .seed = 1}};
      lsh_fill(&s, &r);
      lsh_forward(context, &s);
      heed_view keys = linear_array(&r, 4, s.view[HQK].dim, 0), out = linear_array(&r, 4, s.view[HOUT].dim, 0),
                mask = heed_view_of(malloc(512 * 512), HEED_U8, 2, (int64_t[]){512, 512});
      for (int64_t i = 0; i < 2 * 512; i++) {
        const float *q = (float *)s.view[HQK].data + i * 64;
        double square = 64e-6;
        for (int c = 0; c < 64; c++) square += (double)q[c] * q[c];
        for (int c = 0; c < 64; c++) ((float *)keys.data)[i * 64 + c] = (float)(q[c] / sqrt(square));
      }
      for (int i = 0; i < 512 * 512; i++) ((uint8_t *)mask.data)[i] = i / 512 != i % 512 || (causal && i == 0);
      const heed_attention exact = {.size = sizeof exact, .causal = causal, .attend = &mask, .has_scale = true, .scale = 1};
      ok(context, heed_attention_forward(context, &exact, &s.view[HQK], &keys, &s.view[HV], &out, NULL));
      error[causal][many] = linear_difference(&s.view[HOUT], &out);
      free(keys.data);
      free(out.data);
      free(mask.data);
      lsh_free(&s);
    }
  printf("of the largest output: 1 round %.3g, 64 rounds %.3g; causal %.3g, %.3g\n", error[0][0], error[0][1], error[1][0], error[1][1]);
  for (int causal = 0; causal < 2; causal++) assert_true(error[causal][1] < 1e-3 && error[causal][0] > 1e-2);
}

/* Similar rows meet: of pairs whose angle is small far more share a bucket than of others, and buckets are used evenly. */
static void similar_rows_meet(void **state) {
  (void)state;
  random_source r = {.seed = 8};
  lsh_sample s = {.batch = 1, .heads = 1, .n = 2048, .d = 32, .dv = 1, .a = {.rounds = 4, .buckets = {16, 4}, .seed = 2}};
  lsh_fill(&s, &r);
  float *q = s.view[HQK].data;
  for (int64_t i = 1; i < s.n; i += 2)
    for (int64_t c = 0; c < s.d; c++) q[i * s.d + c] = q[(i - 1) * s.d + c] * 3 + 0.3f * q[i * s.d + c];
  ok(context, heed_lsh_hash(context, &s.a, &s.view[HQK], &s.view[HASHES]));
  const int32_t *hash = s.view[HASHES].data;
  int64_t twins = 0, strangers = 0, count[64] = {0};
  for (int64_t i = 0; i < 4 * s.n; i += 2) {
    twins += hash[i] == hash[i + 1];
    strangers += hash[i] == hash[(i + 2) % (4 * s.n)];
    count[hash[i]]++;
  }
  printf("of 4096: twins %d, strangers %d in one bucket\n", (int)twins, (int)strangers);
  assert_true(twins > 2500 && strangers < 130); // strangers: 64 expected
  for (int b = 0; b < 64; b++) assert_true(count[b] >= 25 && count[b] <= 140);
  lsh_free(&s);
}

static void same_bits(const char *what, const heed_view *a, const heed_view *b) {
  if (memcmp(a->data, b->data, (size_t)hd_view_count(a) * sizeof(float)) != 0) fail_msg("%s: bits differ", what);
}

/* A padded sequence has the bits of the sequence alone, whatever the padding holds. */
static void padding_does_not_show(void **state) {
  (void)state;
  enum { LENGTH = 301, PADDED = 400, D = 24 };
  random_source r = {.seed = 6};
  lsh_sample alone = {.batch = 1, .heads = 1, .n = LENGTH, .d = D, .dv = D, .a = {.causal = true, .rounds = 3, .buckets = {8}}},
             padded = alone;
  padded.n = PADDED;
  lsh_fill(&alone, &r);
  lsh_fill(&padded, &r);
  padded.lengths[0] = LENGTH;
  padded.a.key_lengths = padded.lengths;
  for (int i = 0; i < HNUMBERS; i++) {
    if (i != HQK && i != HV && i != HDOUT) continue;
    float *from = alone.view[i].data, *to = padded.view[i].data;
    for (int64_t j = 0; j < PADDED * D; j++) to[j] = j < LENGTH * D ? from[j] : NAN;
  }
  lsh_forward(context, &alone);
  lsh_backward(context, &alone);
  lsh_forward(context, &padded);
  lsh_backward(context, &padded);
  for (int i = HOUT; i < HNUMBERS; i++) {
    if (i == HDOUT) continue;
    const int64_t width = i == HLSE ? 1 : D;
    same_bits("padded", &alone.view[i], &padded.view[i]);
    for (int64_t j = LENGTH * width; j < PADDED * width; j++) assert_true(((float *)padded.view[i].data)[j] == (i == HLSE ? -INFINITY : 0));
  }
  lsh_free(&alone);
  lsh_free(&padded);
}

/* Threads and levels: one set of bits. */
static void equal_bits(void **state) {
  (void)state;
  for (int kinds = 0; kinds < 4; kinds++) {
    lsh_sample first = {0};
    for (int level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
      for (int threads = 1; threads < 4; threads++) {
        heed_context *other = level_context((heed_level)level, threads);
        if (!other) continue;
        random_source r = {.seed = (uint64_t)kinds};
        lsh_sample s = {.batch = 2, .heads = 2, .n = 300, .d = 23, .dv = 35, .a = {.causal = kinds & 1, .rounds = 4, .seed = 9}};
        lsh_fill(&s, &r);
        if (kinds & 2) s.a.key_lengths = s.lengths;
        lsh_forward(other, &s);
        lsh_backward(other, &s);
        ok(other, heed_lsh_hash(other, &s.a, &s.view[HQK], &s.view[HASHES]));
        for (int i = 0; first.n && i < LSH_ARRAYS; i++) same_bits("threads and levels", &s.view[i], &first.view[i]);
        if (first.n) lsh_free(&s);
        else first = s;
        heed_context_free(other);
      }
    lsh_free(&first);
  }
}

/* Rows of halves give what the same numbers give as f32, rounded; views of any strides are read. */
static void halves_and_strides(void **state) {
  (void)state;
  enum { N = 150, D = 20 };
  random_source r = {.seed = 2};
  lsh_sample s = {.batch = 1, .heads = 2, .n = N, .d = D, .dv = D, .a = {.rounds = 2, .seed = 5}};
  lsh_fill(&s, &r);
  uint16_t *rows = malloc(2 * 2 * N * D * sizeof *rows); // [n][q, v][head][d]
  const heed_view packed = {rows, HEED_BF16, 4, {1, 2, N, D}, {0, D, 4 * D, 1}};
  heed_view values = packed;
  values.data = rows + 2 * D;
  for (int64_t i = 0; i < 2 * N * D; i++) {
    const int64_t to = (i / D % N) * 4 * D + i / (N * D) * D + i % D;
    for (int which = 0; which < 2; which++) {
      float *x = (float *)s.view[which ? HV : HQK].data + i;
      rows[to + 2 * D * which] = hd_f32_to_bf16(*x);
      *x = hd_bf16_to_f32(rows[to + 2 * D * which]);
    }
  }
  heed_view out = linear_array(&r, 4, s.view[HOUT].dim, 0);
  lsh_forward(context, &s);
  ok(context, heed_lsh_forward(context, &s.a, &packed, &values, &out, NULL));
  same_bits("bf16", &out, &s.view[HOUT]);
  free(rows);
  free(out.data);
  lsh_free(&s);
}

/* ---- refusals and memory ------------------------------------------------------------------------------------------------------------ */

static void no_rounds(lsh_sample *s) { s->a.rounds = 0; }
static void many_rounds(lsh_sample *s) { s->a.rounds = 1025; }
static void odd_buckets(lsh_sample *s) { s->a.buckets[0] = 7; }
static void odd_second(lsh_sample *s) { s->a.buckets[0] = 8, s->a.buckets[1] = 3; }
static void second_alone(lsh_sample *s) { s->a.buckets[1] = 4; }
static void negative_buckets(lsh_sample *s) { s->a.buckets[0] = -2; }
static void many_buckets(lsh_sample *s) { s->a.buckets[0] = s->a.buckets[1] = 1 << 13; }
static void infinite_scale(lsh_sample *s) { s->a.has_scale = true, s->a.scale = INFINITY; }
static void long_keys(lsh_sample *s) { s->a.key_lengths = s->lengths, s->lengths[0] = s->n + 1; }
static void fewer_values(lsh_sample *s) { s->view[HV].dim[1]--; }
static void short_values(lsh_sample *s) { s->view[HV].dim[2]--; }
static void wide_out(lsh_sample *s) { s->view[HOUT].dim[3]--; }
static void out_is_qk(lsh_sample *s) { s->view[HOUT].data = s->view[HQK].data; }
static void out_repeats(lsh_sample *s) { s->view[HOUT].stride[2] = 0; }
static void no_values(lsh_sample *s) { s->view[HV].data = NULL; }
static void integers(lsh_sample *s) { s->view[HQK].type = HEED_I32; }
static void wide_lse(lsh_sample *s) { s->view[HLSE].type = HEED_F16; }
static void narrow_hashes(lsh_sample *s) { s->a.hashes = &s->view[HASHES], s->view[HASHES].dim[3]--; }
static void hashes_of_numbers(lsh_sample *s) { s->a.hashes = &s->view[HV]; }
static void hash_too_large(lsh_sample *s) { s->a.hashes = &s->view[HASHES], s->a.buckets[0] = 8, ((int32_t *)s->view[HASHES].data)[5] = 8; }

static const struct {
  const char *name;
  void (*break_it)(lsh_sample *s);
  heed_status status;
  const char *says;
} refusals[] = {
    {"rounds 0", no_rounds, HEED_E_ARGUMENT, "0 rounds, allowed 1 to 1024"},
    {"many rounds", many_rounds, HEED_E_ARGUMENT, "1025 rounds"},
    {"odd buckets", odd_buckets, HEED_E_ARGUMENT, "7 buckets"},
    {"odd second buckets", odd_second, HEED_E_ARGUMENT, "3 in the second"},
    {"a second rotation alone", second_alone, HEED_E_ARGUMENT, "0 buckets in the first"},
    {"buckets below 0", negative_buckets, HEED_E_ARGUMENT, "-2 buckets"},
    {"many buckets", many_buckets, HEED_E_ARGUMENT, "allowed up to 16777216"},
    {"an infinite scale", infinite_scale, HEED_E_ARGUMENT, "scale inf"},
    {"a key length too large", long_keys, HEED_E_ARGUMENT, "key length"},
    {"fewer heads of values", fewer_values, HEED_E_SHAPE, "v:"},
    {"fewer values", short_values, HEED_E_SHAPE, "v:"},
    {"out too narrow", wide_out, HEED_E_SHAPE, "out"},
    {"out in qk's memory", out_is_qk, HEED_E_OVERLAP, "out overlaps qk"},
    {"out that repeats", out_repeats, HEED_E_LAYOUT, "share memory"},
    {"no values", no_values, HEED_E_ARGUMENT, "v"},
    {"integers", integers, HEED_E_TYPE, "qk"},
    {"lse of halves", wide_lse, HEED_E_TYPE, "lse"},
    {"hashes too few", narrow_hashes, HEED_E_SHAPE, "hashes"},
    {"hashes of numbers", hashes_of_numbers, HEED_E_TYPE, "hashes"},
    {"a bucket that is none", hash_too_large, HEED_E_ARGUMENT, "bucket 8"},
};

static void every_refusal(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    random_source r = {.seed = 1};
    lsh_sample s = {.batch = 2, .heads = 2, .n = 70, .d = 8, .dv = 8, .a = {.rounds = 2}};
    lsh_fill(&s, &r);
    void *data[LSH_ARRAYS];
    for (int j = 0; j < LSH_ARRAYS; j++) data[j] = s.view[j].data;
    refusals[i].break_it(&s);
    const heed_status status = heed_lsh_forward(context, &s.a, &s.view[HQK], &s.view[HV], &s.view[HOUT], &s.view[HLSE]);
    if (status != refusals[i].status || !strstr(heed_error(context), refusals[i].says))
      fail_msg("%s: %s, \"%s\"", refusals[i].name, heed_status_name(status), heed_error(context));
    for (int64_t j = 0; j < 2 * 2 * 70 * 8; j++) assert_true(((float *)data[HOUT])[j] == 0);
    for (int j = 0; j < LSH_ARRAYS; j++) s.view[j].data = data[j];
    lsh_free(&s);
  }
  assert_int_equal(heed_lsh_forward(context, NULL, NULL, NULL, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_lsh_forward(NULL, NULL, NULL, NULL, NULL, NULL), HEED_E_ARGUMENT);
}

/* At 65,536 rows both passes stay under 64 MB beyond inputs and outputs; a refused request for memory leaves nothing behind. */
static void memory(void **state) {
  (void)state;
  ledger l;
  heed_context *counted = ledger_context(&l, 2);
  random_source r = {.seed = 1};
  lsh_sample s = {.batch = 1, .heads = 1, .n = 65536, .d = 64, .dv = 64, .a = {.causal = true, .rounds = 8}};
  if (test_level() == HEED_LEVEL_SCALAR) s.n = 4096; // the arithmetic would take half a minute
  lsh_fill(&s, &r);
  const int64_t before = l.now;
  l.peak = l.now;
  lsh_forward(counted, &s);
  const int64_t forward = l.peak - before;
  l.peak = l.now;
  lsh_backward(counted, &s);
  printf("%d rows: forward %.1f MB, backward %.1f MB\n", (int)s.n, (double)forward / 1e6, (double)(l.peak - before) / 1e6);
  assert_true(forward < 64000000 && l.peak - before < 64000000);
  assert_true(l.now == before);
  lsh_free(&s);
  s = (lsh_sample){.batch = 1, .heads = 1, .n = 100, .d = 8, .dv = 8, .a = {.rounds = 2}};
  lsh_fill(&s, &r);
  int refused = 0;
  for (int budget = 0;; budget++) {
    l.budget = budget;
    const heed_status status = heed_lsh_forward(counted, &s.a, &s.view[HQK], &s.view[HV], &s.view[HOUT], &s.view[HLSE]);
    l.budget = -1;
    assert_true(l.now == before);
    if (status == HEED_OK) break;
    assert_int_equal(status, HEED_E_MEMORY);
    refused++;
  }
  assert_true(refused >= 4);
  lsh_free(&s);
  heed_context_free(counted);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_oracle),
                                     cmocka_unit_test(gradients_are_derivatives),
                                     cmocka_unit_test(tends_to_exact_attention),
                                     cmocka_unit_test(similar_rows_meet),
                                     cmocka_unit_test(padding_does_not_show),
                                     cmocka_unit_test(equal_bits),
                                     cmocka_unit_test(halves_and_strides),
                                     cmocka_unit_test(every_refusal),
                                     cmocka_unit_test(memory)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
