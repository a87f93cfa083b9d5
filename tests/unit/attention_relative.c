/* Learned relative positions as a term of scores: which bucket a distance falls into (T5's own table), the term as a bias, forward and backward, and what is refused. */
#include "../model_test.h"

#include "../attention_gradients.h"

static heed_context *context;

static heed_attention described(const heed_view *table, bool causal, int64_t distance) {
  return (heed_attention){.size = sizeof(heed_attention), .relative = table, .relative_causal = causal, .relative_distance = distance};
}

/* One query that stands at 150 of 301 keys, all scores 0: what is added is the number of the bucket. */
static void one_table(const json_t *row) {
  enum { KEYS = 301, HEADS = 2 };
  const json_t *want = json_object_get(row, "bucket");
  const int64_t buckets = json_integer_value(json_object_get(row, "buckets"));
  float q[HEADS] = {0}, k[HEADS * KEYS] = {0}, got[HEADS * KEYS], numbers[HEADS * 256];
  assert_true(buckets <= 256);
  for (int64_t i = 0; i < buckets * HEADS; i++) numbers[i] = (float)(i / HEADS + 1000 * (i % HEADS));
  const heed_view table = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){buckets, HEADS});
  heed_attention a =
      described(&table, !json_is_true(json_object_get(row, "bidirectional")), json_integer_value(json_object_get(row, "max_distance")));
  a.align = HEED_ALIGN_GIVEN, a.offset = 150;
  const heed_view vq = heed_view_of(q, HEED_F32, 3, (int64_t[]){HEADS, 1, 1}),
                  vk = heed_view_of(k, HEED_F32, 3, (int64_t[]){HEADS, KEYS, 1});
  const heed_view out = heed_view_of(got, HEED_F32, 3, (int64_t[]){HEADS, 1, KEYS});
  const heed_attention_rows asked = {.size = sizeof asked, .tap = HEED_TAP_BIASED};
  for (int reference = 0; reference <= 1; reference++) {
    memset(got, 0, sizeof got);
    ok(context, (reference ? heed_attention_weights_reference : heed_attention_weights)(context, &a, &vq, &vk, &asked, &out));
    for (int i = 0; i < HEADS * KEYS; i++) {
      const double bucket = (double)json_integer_value(json_array_get(want, (size_t)(i % KEYS)));
      assert_close((double)got[i], bucket + 1000 * (i / KEYS), 1e-4, "bucket", (uint64_t)(i % KEYS));
    }
  }
}

static void buckets_of_distances(void **state) {
  (void)state;
  json_t *tables = test_json(TEST_EXPECTED "tables.json"), *rows = json_object_get(tables, "t5_buckets");
  assert_true(json_array_size(rows) >= 6);
  for (size_t i = 0; i < json_array_size(rows); i++) one_table(json_array_get(rows, i));
  json_decref(tables);
}

/* The same by the formula as bias: both passes give the same bytes, and the reference agrees. */
static int64_t naive_bucket(int64_t distance, int64_t buckets, int64_t farthest) {
  int64_t exact = buckets / 2, bucket = exact;
  if (distance < exact) return distance;
  // The largest bucket whose first distance, exact · (farthest / exact)^(share of the way), is not beyond.
  while (bucket + 1 < buckets &&
         (double)exact * pow((double)farthest / (double)exact, (double)(bucket + 1 - exact) / (double)(buckets - exact)) <=
             (double)distance * (1 + 1e-12))
    bucket++;
  return bucket;
}

static int64_t bucket_of(int64_t distance, int64_t buckets, bool causal, int64_t farthest) {
  if (causal) return naive_bucket(distance < 0 ? -distance : 0, buckets, farthest);
  return (distance > 0 ? buckets / 2 : 0) + naive_bucket(distance < 0 ? -distance : distance, buckets / 2, farthest);
}

static void relative_as_bias(sample *s, random_source *r) {
  const int64_t buckets = 2 * (2 + below(r, 15)), pairs = s->batch * s->heads * s->n * s->m;
  const bool causal = below(r, 2) == 0;
  const int64_t exact = (causal ? buckets : buckets / 2) / 2, farthest = exact + 1 + below(r, 100);
  float *numbers = normals(r, buckets * s->heads), *bias = floats(pairs);
  // A column a head, or a row: any strides.
  heed_view table = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){buckets, s->heads});
  if (below(r, 2)) table = heed_view_swap(heed_view_of(numbers, HEED_F32, 2, (int64_t[]){s->heads, buckets}), 0, 1);
  if (s->a.align == HEED_ALIGN_UNSET) s->a.align = HEED_ALIGN_END;
  for (int64_t at = 0; at < pairs; at++) {
    int64_t j = at % s->m, i = at / s->m % s->n, h = at / s->m / s->n % s->heads, b = at / s->m / s->n / s->heads;
    int64_t keys = s->lengths ? s->lengths[b] : s->m;
    int64_t p = i + (s->a.align == HEED_ALIGN_GIVEN ? s->a.offset : s->a.align == HEED_ALIGN_END ? keys - s->n : 0);
    bias[at] = numbers[bucket_of(j - p, buckets, causal, farthest) * table.stride[0] + h * table.stride[1]];
  }
  const heed_view view = heed_view_of(bias, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
  heed_attention spelt = s->a;
  spelt.bias = &view;
  s->a.relative = &table;
  s->a.relative_causal = causal;
  s->a.relative_distance = farthest;

  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s->out, sample_out_count(s)), *want = floats(sample_out_count(s));
  heed_view vwant = heed_view_of(want, HEED_F32, 4, s->vout.dim);
  ok(context, heed_attention_reference(context, &s->a, &s->vq, &s->vk, &s->vv, &vwant, NULL));
  for (int64_t i = 0; i < sample_out_count(s); i++) assert_close(s->out[i], want[i], 2e-5, "relative positions by the reference", r->seed);
  sample changed = *s;
  changed.a = spelt;
  sample_run(context, &changed);
  assert_same_bytes(s->out, out, sample_out_count(s) * 4, "relative positions as a bias", r->seed);
  const heed_attention_gradients to = {.size = sizeof to, .dq = &g.view[DQ], .dk = &g.view[DK], .dv = &g.view[DV]};
  ok(context, heed_attention_backward(context, &spelt, &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g.vdout, &to));
  for (int i = DQ; i <= DV; i++) assert_same_bytes(g.data[i], kept.data[i], g.count[i] * 4, "gradients under a bias", r->seed);
  s->a.relative = NULL;
  kept_free(&kept);
  free(out);
  free(want);
  gradients_free(&g);
  free(numbers);
  free(bias);
}

PROPERTY(relative_is_a_bias, 191, SAMPLE_CAUSAL) { relative_as_bias(s, r); }
PROPERTY(relative_with_lengths_is_a_bias, 140, SAMPLE_LENGTHS) { relative_as_bias(s, r); }

#define refused(...) assert_refused(context, (const int64_t[]){4, 2, 1}, __VA_ARGS__)

static void refusals(void **state) {
  (void)state;
  float numbers[64] = {0};
  const heed_view good = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){8, 4}), odd = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){5, 4});
  const heed_view few = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){2, 4}),
                  heads = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){8, 3});
  const heed_view flat = heed_view_of(numbers, HEED_F32, 1, (int64_t[]){8}), whole = heed_view_of(numbers, HEED_I32, 2, (int64_t[]){8, 4});
  heed_attention a = described(&heads, false, 16);
  refused(&a, HEED_E_SHAPE, "expected [buckets, 4]");
  a = described(&flat, false, 16), refused(&a, HEED_E_SHAPE, "[8]");
  a = described(&odd, false, 16), refused(&a, HEED_E_SHAPE, "5 buckets");
  a = described(&few, false, 16), refused(&a, HEED_E_SHAPE, "2 buckets");
  a = described(&whole, false, 16), refused(&a, HEED_E_TYPE, "relative");
  a = described(&good, false, 2), refused(&a, HEED_E_ARGUMENT, "relative_distance 2, allowed more than 2");
  a = described(NULL, false, 16), refused(&a, HEED_E_ARGUMENT, "relative is null");
  a = described(NULL, true, 0), refused(&a, HEED_E_ARGUMENT, "relative is null");
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buckets_of_distances),
      cmocka_unit_test(relative_is_a_bias),
      cmocka_unit_test(relative_with_lengths_is_a_bias),
      cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
