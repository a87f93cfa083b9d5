/* Same row, same bits (contract 17, 18): P4–P6, P16–P36 where "bitwise" is meant. Random shapes from a seed that a failure prints. */
#include "attention_layouts.h"
#include "pthread_parallel.h"

#include "../../src/base/base.h"

static heed_context *context;

/* ---- same row, same bits ---------------------------------------------------------------------------------------------------------- */

/* P4, P5, P6, P31: row i of head h of batch b alone, under the same restrictions, gives the bits it has in the full call. */
PROPERTY(p6_a_row_alone, 1100, SAMPLE_ANY) {
  sample_run(context, s);
  for (int tries = 0; tries < 4; tries++) {
    int64_t b = below(r, s->batch), h = below(r, s->heads), i = below(r, s->n), kv = h / (s->heads / s->kv_heads);
    int64_t row = (b * s->heads + h) * s->n + i, offset = 0;
    int64_t length = s->lengths ? s->lengths[b] : s->m;
    int64_t first = 0, queries = s->n, bounds[4];
    heed_attention a = s->a;
    if (a.documents) { // the document's only query, at the same distance from its first key
      int64_t t = 0;
      while (i >= a.query_documents[t + 1]) t++;
      first = a.query_documents[t];
      queries = a.query_documents[t + 1] - first;
      length = a.key_documents[t + 1] - a.key_documents[t];
      for (int64_t bound = 0; bound <= a.documents; bound++) bounds[bound] = bound > t;
      a.query_documents = bounds;
    }
    if (s->a.align == HEED_ALIGN_GIVEN) offset = s->a.offset;
    if (s->a.align == HEED_ALIGN_END) offset = length - queries;
    if (a.align != HEED_ALIGN_UNSET) {
      a.align = HEED_ALIGN_GIVEN;
      a.offset = offset + i - first;
    }
    if (s->lengths) a.key_lengths = &s->lengths[b];
    heed_view attend, bias;
    if (a.attend) a.attend = (attend = heed_view_of(s->attend_data + row * s->m, HEED_BOOL, 2, (int64_t[]){1, s->m}), &attend);
    if (a.bias) a.bias = (bias = heed_view_of(s->bias_data + row * s->m, HEED_F32, 2, (int64_t[]){1, s->m}), &bias);
    heed_view slope;
    if (a.alibi) a.alibi = (slope = heed_view_of(&s->slopes[h], HEED_F32, 1, (int64_t[]){1}), &slope);
    float *out = floats(s->dv), lse;
    heed_view q = heed_view_of(s->q + row * s->d, HEED_F32, 2, (int64_t[]){1, s->d});
    heed_view k = heed_view_of(s->k + (b * s->kv_heads + kv) * s->m * s->d, HEED_F32, 2, (int64_t[]){s->m, s->d});
    heed_view v = heed_view_of(s->v + (b * s->kv_heads + kv) * s->m * s->dv, HEED_F32, 2, (int64_t[]){s->m, s->dv});
    heed_view o = heed_view_of(out, HEED_F32, 2, (int64_t[]){1, s->dv}), vlse = heed_view_of(&lse, HEED_F32, 1, (int64_t[]){1});
    heed_attention_extras extras = {.size = sizeof extras, .lse = &vlse};
    ok(context, heed_attention_forward(context, &a, &q, &k, &v, &o, &extras));
    assert_same_bytes(out, s->out + row * s->dv, s->dv * 4, "a row alone", r->seed);
    assert_same_bytes(&lse, s->lse + row, 4, "the lse of a row alone", r->seed);
    free(out);
  }
}

/* P31: any cut of the queries into chunks, each with the keys there are by then, is the causal whole; so is token by token. */
PROPERTY(p31_chunks_are_the_whole, 1100, 0) {
  s->a.causal = true;
  align_start(s);
  s->n = s->m;
  free(s->q);
  free(s->out);
  free(s->lse);
  s->q = normals(r, s->batch * s->heads * s->n * s->d);
  s->out = floats(sample_out_count(s));
  s->lse = floats(s->batch * s->heads * s->n);
  sample_views(s);
  sample_run(context, s);
  float *whole = copy_of(s->out, sample_out_count(s));
  memset(s->out, 0, (size_t)sample_out_count(s) * 4);
  for (int64_t at = 0, step; at < s->n; at += step) {
    step = 1 + below(r, r->seed % 2 ? s->n : 40);
    if (step > s->n - at) step = s->n - at;
    heed_view q = s->vq, k = s->vk, v = s->vv, out = s->vout;
    q.data = s->q + at * s->d;
    out.data = s->out + at * s->dv;
    q.dim[2] = out.dim[2] = step;
    k.dim[2] = v.dim[2] = at + step;
    heed_attention a = s->a;
    a.align = HEED_ALIGN_END;
    ok(context, heed_attention_forward(context, &a, &q, &k, &v, &out, NULL));
  }
  assert_same_bytes(s->out, whole, sample_out_count(s) * 4, "chunks", r->seed);
  free(whole);
}

static void compare_with(const heed_options *options, sample *s, const char *what, uint64_t seed) {
  float *out = copy_of(s->out, sample_out_count(s)), *lse = copy_of(s->lse, s->batch * s->heads * s->n), *weights = run_weights(context, s);
  heed_context *other = test_context(options);
  sample_run(other, s);
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, what, seed);
  assert_same_bytes(lse, s->lse, s->batch * s->heads * s->n * 4, what, seed);
  float *again = floats(s->batch * s->heads * s->n * s->m);
  heed_view view = weights_view(s, again);
  ok(other, heed_attention_weights(other, &s->a, &s->vq, &s->vk, NULL, &view));
  assert_same_bytes(weights, again, s->batch * s->heads * s->n * s->m * 4, what, seed);
  heed_context_free(other);
  free(out);
  free(lse);
  free(weights);
  free(again);
}

PROPERTY(p34_every_level_gives_the_same_bits, 200, SAMPLE_EVERYTHING) {
  sample_run(context, s);
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level))
      compare_with(&(heed_options){.size = sizeof(heed_options), .level = level}, s, heed_level_name(level), r->seed);
}

/* Keys of more than one chunk, whatever the random shapes are: rows alone (which decode) and every level. */
static void chunks_merge(void **state) {
  (void)state;
  random_source r = {.seed = 1024};
  sample s = {.batch = 1, .heads = 2, .kv_heads = 1, .n = 70, .m = 2100, .d = 9, .dv = 17};
  sample_fill(&s, &r, SAMPLE_CAUSAL);
  align_end(&s);
  p6_a_row_alone_body(&s, &r);
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++)
    if (heed_level_available(level))
      compare_with(&(heed_options){.size = sizeof(heed_options), .level = level}, &s, heed_level_name(level), r.seed);
  sample_free(&s);
}

PROPERTY(p35_threads_give_the_same_bits, 1100, SAMPLE_EVERYTHING) {
  sample_run(context, s);
  const int threads[] = {1, 2, 3, 8, 64};
  for (int i = 0; i < 5; i++) compare_with(&(heed_options){.size = sizeof(heed_options), .threads = threads[i]}, s, "threads", r->seed);
}

static int64_t host_calls;
static void on_host_threads(sample *s, random_source *r) {
  sample_run(context, s);
  compare_with(&(heed_options){.size = sizeof(heed_options), .threads = 3, .parallel_for = pthread_parallel, .parallel_user = &host_calls},
               s, "the host's threads", r->seed);
}

static void p35_a_host_brings_its_own_threads(void **state) {
  (void)state;
  host_calls = 0;
  each(300, SAMPLE_ANY, on_host_threads);
  assert_true(host_calls > 0);
}

static void p36_a_hundred_times(void **state) {
  (void)state;
  random_source r = {.seed = 36};
  sample s;
  sample_make(&s, &r, 191, SAMPLE_ANY);
  sample_run(context, &s);
  float *first = copy_of(s.out, sample_out_count(&s));
  for (int i = 0; i < 100; i++) {
    memset(s.out, 0x7f, (size_t)sample_out_count(&s) * 4);
    sample_run(context, &s);
    assert_same_bytes(s.out, first, sample_out_count(&s) * 4, "again", 36);
  }
  free(first);
  sample_free(&s);
}

PROPERTY(p23_groups_are_repeated_heads, 191, SAMPLE_EVERYTHING) {
  sample_run(context, s);
  int64_t group = s->heads / s->kv_heads;
  float *k = floats(s->batch * s->heads * s->m * s->d), *v = floats(s->batch * s->heads * s->m * s->dv), *out = floats(sample_out_count(s));
  for (int64_t row = 0; row < s->batch * s->heads; row++) {
    int64_t from = row / s->heads * s->kv_heads + row % s->heads / group;
    memcpy(k + row * s->m * s->d, s->k + from * s->m * s->d, (size_t)(s->m * s->d) * 4);
    memcpy(v + row * s->m * s->dv, s->v + from * s->m * s->dv, (size_t)(s->m * s->dv) * 4);
  }
  heed_view vk = heed_view_of(k, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->m, s->d});
  heed_view vv = heed_view_of(v, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->m, s->dv}), vo = s->vout;
  vo.data = out;
  ok(context, heed_attention_forward(context, &s->a, &s->vq, &vk, &vv, &vo, NULL));
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "repeated heads", r->seed);
  free(k);
  free(v);
  free(out);
}

/* P25: every array with its axes in any order, gaps and negative strides: the bits of packed ones, and nothing written between the elements of the output. */
PROPERTY(p25_any_strides, 191, SAMPLE_EVERYTHING) {
  sample_run(context, s);
  heed_view q = s->vq, k = s->vk, v = s->vv, out = s->vout, lse = s->vlse, attend = s->vattend, bias = s->vbias;
  heed_view *const inputs[] = {&q, &k, &v, &attend, &bias};
  layout in[5] = {{0}}, to = layout_make(&out, r), sums = layout_make(&lse, r);
  heed_attention a = s->a;
  if (a.attend) a.attend = &attend;
  if (a.bias) a.bias = &bias;
  for (int i = 0; i < 5; i++)
    if (inputs[i]->data) in[i] = layout_make(inputs[i], r);
  memset(to.memory, LAYOUT_GAP, to.bytes);
  memset(sums.memory, LAYOUT_GAP, sums.bytes);
  heed_attention_extras extras = {.size = sizeof extras, .lse = &lse};
  ok(context, heed_attention_forward(context, &a, &q, &k, &v, &out, &extras));
  layout_expect(&to, &out, s->out, "out", r->seed);
  layout_expect(&sums, &lse, s->lse, "lse", r->seed);
  for (int i = 0; i < 5; i++) free(in[i].memory);
}

/* P4, P5: queries, batch entries and heads in another order give their rows in that order. */
PROPERTY(p4_p5_permuting_queries_batch_and_heads, 191, SAMPLE_ATTEND | SAMPLE_BIAS | SAMPLE_SOFTCAP) {
  sample_run(context, s);
  const heed_view attend = s->vattend, bias = s->vbias;
  float *out = copy_of(s->out, sample_out_count(s));
  for (int axis = 0; axis < 3; axis++) {
    s->vattend = view_reversed(attend, axis);
    s->vbias = view_reversed(bias, axis);
    heed_view q = view_reversed(s->vq, axis), o = view_reversed(s->vout, axis), k = s->vk, v = s->vv;
    if (axis < 2) k = view_reversed(k, axis), v = view_reversed(v, axis);
    memset(s->out, 0x7f, (size_t)sample_out_count(s) * 4);
    ok(context, heed_attention_forward(context, &s->a, &q, &k, &v, &o, NULL));
    assert_same_bytes(s->out, out, sample_out_count(s) * 4, "another order", r->seed);
  }
  free(out);
}

PROPERTY(p26_out_may_be_q, 191, SAMPLE_ANY) {
  if (s->d != s->dv) return;
  sample_run(context, s);
  ok(context, heed_attention_forward(context, &s->a, &s->vq, &s->vk, &s->vv, &s->vq, NULL));
  assert_same_bytes(s->q, s->out, sample_out_count(s) * 4, "in place", r->seed);
}

/* P27, P28: any pattern is bitwise the boolean mask that spells it out, and that mask as a bias of 0 and −inf. */
PROPERTY(p27_p28_patterns_are_masks, 1100, SAMPLE_CAUSAL | SAMPLE_WINDOW | SAMPLE_LENGTHS) {
  if (below(r, 2)) s->a.causal = false;
  if (below(r, 2)) s->a.has_window_left = false;
  sample_run(context, s);
  int64_t pairs = s->batch * s->n * s->m;
  uint8_t *attend = calloc((size_t)pairs, 1);
  float *bias = floats(pairs), *out = floats(sample_out_count(s));
  sample_spell_out(s, attend, bias);
  const int64_t dim[] = {s->batch, 1, s->n, s->m};
  heed_view vattend = heed_view_of(attend, HEED_BOOL, 4, dim), vbias = heed_view_of(bias, HEED_F32, 4, dim), vo = s->vout;
  vo.data = out;
  heed_attention a = {.size = sizeof a, .attend = &vattend};
  ok(context, heed_attention_forward(context, &a, &s->vq, &s->vk, &s->vv, &vo, NULL));
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "pattern as mask", r->seed);
  a = (heed_attention){.size = sizeof a, .bias = &vbias};
  ok(context, heed_attention_forward(context, &a, &s->vq, &s->vk, &s->vv, &vo, NULL));
  assert_same_bytes(out, s->out, sample_out_count(s) * 4, "pattern as bias", r->seed);
  free(attend);
  free(bias);
  free(out);
}

PROPERTY(p29_wide_windows_are_full, 191, 0) {
  sample_run(context, s);
  float *full = copy_of(s->out, sample_out_count(s));
  align_start(s);
  s->a.has_window_left = s->a.has_window_right = true;
  s->a.window_left = s->n;
  s->a.window_right = INT64_MAX - below(r, 2);
  if (below(r, 2)) s->a.window_right = s->m;
  sample_run(context, s);
  assert_same_bytes(s->out, full, sample_out_count(s) * 4, "wide window", r->seed);
  free(full);
}

/* Storage in half precision equals the same numbers widened beforehand. */
PROPERTY(half_storage_equals_widened, 191, SAMPLE_ANY) {
  heed_type type = below(r, 2) || !exact_in_bf16(heed_context_level(context)) ? HEED_F16 : HEED_BF16;
  float *arrays[] = {s->q, s->k, s->v};
  heed_view *views[] = {&s->vq, &s->vk, &s->vv};
  uint16_t *halves[3];
  for (int i = 0; i < 3; i++) {
    int64_t count = hd_view_count(views[i]);
    halves[i] = malloc((size_t)count * 2 + 1);
    for (int64_t j = 0; j < count; j++) {
      halves[i][j] = type == HEED_F16 ? hd_f32_to_f16(arrays[i][j]) : hd_f32_to_bf16(arrays[i][j]);
      arrays[i][j] = type == HEED_F16 ? hd_f16_to_f32(halves[i][j]) : hd_bf16_to_f32(halves[i][j]);
    }
  }
  sample_run(context, s);
  float *want = copy_of(s->out, sample_out_count(s));
  for (int i = 0; i < 3; i++) {
    views[i]->data = halves[i];
    views[i]->type = type;
  }
  sample_run(context, s);
  assert_same_bytes(s->out, want, sample_out_count(s) * 4, heed_type_name(type), r->seed);
  for (int i = 0; i < 3; i++) free(halves[i]);
  free(want);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(p6_a_row_alone),
      cmocka_unit_test(p31_chunks_are_the_whole),
      cmocka_unit_test(p34_every_level_gives_the_same_bits),
      cmocka_unit_test(chunks_merge),
      cmocka_unit_test(p35_threads_give_the_same_bits),
      cmocka_unit_test(p35_a_host_brings_its_own_threads),
      cmocka_unit_test(p36_a_hundred_times),
      cmocka_unit_test(p23_groups_are_repeated_heads),
      cmocka_unit_test(p25_any_strides),
      cmocka_unit_test(p4_p5_permuting_queries_batch_and_heads),
      cmocka_unit_test(p26_out_may_be_q),
      cmocka_unit_test(p27_p28_patterns_are_masks),
      cmocka_unit_test(p29_wide_windows_are_full),
      cmocka_unit_test(half_storage_equals_widened),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
