/* Illegal calls of the multi-head layer: each is refused by name, with the numbers, before anything is touched. And memory that runs out at every place. */
#include "counting_allocator.h"
#include "layer_sample.h"

static heed_context *context;

enum { MARK = 77 };

/* B 2, n 5, m 6, width 12 (keys 10), 4 heads over 2 of width 3, outputs 7, weights apart, all biases. */
static void legal_in(heed_context *in, layer_sample *s) {
  random_source r = {.seed = 24};
  *s = (layer_sample){.batch = 2, .n = 5, .m = 6, .heads = 4, .kv_heads = 2, .d = 3, .dv = 3, .width = {12, 10, 10}, .outputs = 7};
  layer_array_new(&s->array[X_QUERY], &r, 1, 3, (int64_t[]){2, 5, 12});
  layer_array_new(&s->array[X_KEY], &r, 1, 3, (int64_t[]){2, 6, 10});
  s->a = (heed_attention){.size = sizeof s->a};
  layer_fill(in, s, &r, false, true);
  for (int i = 0; i < 2 * 5 * 7; i++) s->out[i] = MARK;
  for (int64_t i = 0; i < s->vsaved.dim[0]; i++) s->saved[i] = MARK;
  for (int i = 0; i < ARRAYS; i++)
    for (int64_t j = 0; j < s->array[i].count; j++) s->array[i].gradient[j] = MARK;
}

static void legal(layer_sample *s) { legal_in(context, s); }

static void untouched(const layer_sample *s) {
  for (int i = 0; i < 2 * 5 * 7; i++) assert_true(s->out[i] == MARK);
  for (int i = 0; i < ARRAYS; i++)
    for (int64_t j = 0; j < s->array[i].count; j++) assert_true(s->array[i].gradient[j] == MARK);
}

static void expect(heed_status got, heed_status status, const char *words) {
  if (got != status) fail_msg("%s where %s was due (%s)", heed_status_name(got), heed_status_name(status), heed_error(context));
  if (!strstr(heed_error(context), words)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), words);
}

/* Both passes refuse, and a legal call takes the sample's place. */
static void refused(layer_sample *s, heed_status status, const char *words) {
  expect(layer_try_forward(context, s), status, words);
  for (int64_t i = 0; i < s->vsaved.dim[0]; i++) assert_true(s->saved[i] == MARK);
  expect(layer_try_backward(context, s, false), status, words);
  untouched(s);
  layer_free(s);
  legal(s);
}

static void heads_and_widths(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  layer_run(context, &s);
  layer_free(&s);
  legal(&s);
  s.layer.head_width = 0;
  s.layer.heads = 5;
  s.layer.kv_heads = 1;
  refused(&s, HEED_E_SHAPE, "the width 12 of x_query is not a multiple of 5 heads");
  s.layer.kv_heads = 3;
  refused(&s, HEED_E_SHAPE, "4 heads are not a multiple of 3 key/value heads");
  s.layer.heads = 0;
  refused(&s, HEED_E_ARGUMENT, "0 heads");
  s.layer.heads = -4;
  refused(&s, HEED_E_ARGUMENT, "-4 heads");
  s.layer.kv_heads = -1;
  refused(&s, HEED_E_ARGUMENT, "-1 key/value heads");
  s.layer.head_width = -3;
  refused(&s, HEED_E_ARGUMENT, "head_width -3");
  s.layer.value_width = -1;
  refused(&s, HEED_E_ARGUMENT, "value_width -1");
  s.layer.head_width = 4;
  refused(&s, HEED_E_SHAPE, "w_q: [12,12], expected [16,12]");
  s.layer.value_width = 4;
  refused(&s, HEED_E_SHAPE, "w_v: [6,10], expected [8,10]");
  s.layer.head_width = INT64_MAX / 2;
  refused(&s, HEED_E_OVERFLOW, "too large");
  layer_free(&s);
}

static void shapes(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  s.array[X_KEY].view.dim[0] = 1;
  refused(&s, HEED_E_SHAPE, "x_key: [1,6,10] is a batch of 1, x_query [2,5,12] one of 2");
  s.array[X_QUERY].view.ndim = 1;
  refused(&s, HEED_E_SHAPE, "x_query: rank 1");
  s.array[X_KEY].view.dim[2] = 9;
  refused(&s, HEED_E_SHAPE, "w_k: [6,10], expected [6,9]");
  s.array[W_O].view.dim[1] = 11;
  refused(&s, HEED_E_SHAPE, "w_o: [7,11], expected [7,12]");
  s.array[B_O].view.dim[0] = 6;
  refused(&s, HEED_E_SHAPE, "b_o: [6], expected [7]");
  s.array[B_V].view.ndim = 2;
  refused(&s, HEED_E_SHAPE, "b_v");
  s.vsaved.dim[0]--;
  refused(&s, HEED_E_SHAPE, "saved");
  s.vsaved.stride[0] = 2;
  refused(&s, HEED_E_LAYOUT, "saved: stride 2");
  s.vsaved.type = HEED_F16;
  refused(&s, HEED_E_TYPE, "saved is f16");
  s.vout.dim[2] = s.vdout.dim[2] = 6;
  refused(&s, HEED_E_SHAPE, "[2,5,6], expected batch 2, rows 5, columns 7");
  layer_free(&s);
}

static void values_of_another_length(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  float data[2 * 5 * 10] = {0};
  heed_view values = heed_view_of(data, HEED_F32, 3, (int64_t[]){2, 5, 10});
  expect(heed_multi_head_forward(context, &s.layer, layer_x(&s, X_QUERY), layer_x(&s, X_KEY), &values, &s.vout, NULL), HEED_E_SHAPE,
         "values have 5 rows, keys 6");
  untouched(&s);
  layer_free(&s);
}

static void types_and_pointers(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  s.array[X_QUERY].view.type = HEED_I32;
  refused(&s, HEED_E_TYPE, "x_query is i32");
  s.array[W_K].view.type = HEED_I32;
  refused(&s, HEED_E_TYPE, "w_k is i32");
  s.array[B_Q].view.data = NULL;
  refused(&s, HEED_E_ARGUMENT, "b_q: the data of [12] is null");
  s.layer.w_v = NULL;
  refused(&s, HEED_E_ARGUMENT, "neither w_qkv nor w_v is given");
  s.layer.w_qkv = &s.array[W_Q].view;
  refused(&s, HEED_E_ARGUMENT, "w_qkv and w_q are both given");
  s.layer.w_o = NULL;
  refused(&s, HEED_E_ARGUMENT, "w_o: the view is null");
  s.layer.size = 0;
  refused(&s, HEED_E_ARGUMENT, "heed_multi_head: size");
  s.array[X_QUERY].view.data = s.array[X_QUERY].data + 0;
  ((char **)&s.array[X_QUERY].view.data)[0] += 2;
  refused(&s, HEED_E_LAYOUT, "aligned");
  const heed_view *x = layer_x(&s, X_QUERY), *key = layer_x(&s, X_KEY);
  int64_t floats;
  assert_int_equal(heed_multi_head_forward(NULL, &s.layer, x, key, NULL, &s.vout, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_forward(context, NULL, x, key, NULL, &s.vout, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_forward(context, &s.layer, NULL, key, NULL, &s.vout, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_forward(context, &s.layer, x, key, NULL, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_saved_size(context, &s.layer, x, key, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_saved_size(NULL, &s.layer, x, key, NULL, &floats), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_backward(context, &s.layer, x, key, NULL, NULL, &s.vdout, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, NULL, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_multi_head_reference(NULL, &s.layer, x, key, NULL, &s.vout), HEED_E_ARGUMENT);
  untouched(&s);
  layer_free(&s);
}

static void attention_and_dropout(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  s.a.causal = true;
  refused(&s, HEED_E_ARGUMENT, "align is not set");
  s.a.dropout = 2;
  refused(&s, HEED_E_ARGUMENT, "dropout 2");
  s.layer.dropout = -0.5;
  refused(&s, HEED_E_ARGUMENT, "dropout -0.5 of the output");
  s.layer.dropout = NAN;
  refused(&s, HEED_E_ARGUMENT, "of the output");
  s.layer.dropout = s.a.dropout = 0.5;
  refused(&s, HEED_E_ARGUMENT, "both draw from seed 0, stream 0");
  s.a.score = &(heed_score){.size = sizeof(heed_score), .kind = HEED_SCORE_BILINEAR, .wq = &s.array[W_Q].view};
  refused(&s, HEED_E_UNSUPPORTED, "scores by products");
  float slopes[3] = {0};
  heed_view alibi = heed_view_of(slopes, HEED_F32, 1, (int64_t[]){3});
  s.a.alibi = &alibi;
  refused(&s, HEED_E_SHAPE, "alibi: [3], expected [4]");
  layer_free(&s);
}

static void overlaps(void **state) {
  (void)state;
  layer_sample s;
  legal(&s);
  const heed_view *x = layer_x(&s, X_QUERY), *key = layer_x(&s, X_KEY);
  heed_view out = s.vout;
  out.data = s.array[W_Q].data;
  expect(heed_multi_head_forward(context, &s.layer, x, key, NULL, &out, NULL), HEED_E_OVERLAP, "out overlaps w_q");
  out = s.vout;
  out.stride[1] = 0;
  expect(heed_multi_head_forward(context, &s.layer, x, key, NULL, &out, NULL), HEED_E_LAYOUT, "out: elements of [2,5,7] share memory");
  heed_multi_head_extras extras = {.size = sizeof extras, .saved = &s.vsaved};
  out = s.vout;
  out.data = s.saved + 3;
  expect(heed_multi_head_forward(context, &s.layer, x, key, NULL, &out, &extras), HEED_E_OVERLAP, "saved overlaps out");
  heed_view weights = heed_view_of(s.out, HEED_F32, 4, (int64_t[]){1, 1, 1, 1});
  extras = (heed_multi_head_extras){.size = sizeof extras, .weights = &weights};
  expect(heed_multi_head_forward(context, &s.layer, x, key, NULL, &s.vout, &extras), HEED_E_OVERLAP, "weights overlaps out");
  float apart;
  weights.data = &apart;
  expect(heed_multi_head_forward(context, &s.layer, x, key, NULL, &s.vout, &extras), HEED_E_SHAPE, "weights: [1,1,1,1], expected batch 2");

  heed_multi_head_gradients to = {.size = sizeof to, .dw_q = &s.array[W_Q].view};
  expect(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_E_OVERLAP, "dw_q overlaps w_q");
  to = (heed_multi_head_gradients){.size = sizeof to, .dw_k = &s.array[W_K].dview, .dw_v = &s.array[W_K].dview};
  expect(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_E_OVERLAP, "dw_v overlaps dw_k");
  to = (heed_multi_head_gradients){.size = sizeof to, .dx_value = &s.array[X_KEY].dview};
  expect(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_E_ARGUMENT, "dx_value is asked for");
  to = (heed_multi_head_gradients){.size = sizeof to, .dw_qkv = &s.array[W_Q].dview};
  expect(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_E_ARGUMENT, "dw_qkv is asked for");
  to = (heed_multi_head_gradients){.size = sizeof to, .dw_q = &s.array[W_K].dview};
  expect(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_E_SHAPE,
         "dw_q: [6,10], expected [12,12]");
  heed_view wide = s.array[B_O].dview;
  wide.type = HEED_I64;
  to = (heed_multi_head_gradients){.size = sizeof to, .db_o = &wide};
  assert_int_not_equal(heed_multi_head_backward(context, &s.layer, x, key, NULL, &s.vsaved, &s.vdout, &to), HEED_OK);
  untouched(&s);
  layer_free(&s);
}

/* Every allocation of both passes fails once: HEED_E_MEMORY, nothing kept, out as it was. */
static void memory_runs_out(void **state) {
  (void)state;
  ledger l;
  heed_context *limited = ledger_context(&l, 2);
  int64_t base = l.live;
  int failures[2] = {0, 0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t n = 0;; n++) {
      layer_sample s;
      legal(&s);
      s.layer.dropout = 0.5;
      if (pass == 1) ok(context, layer_try_forward(context, &s));
      if (pass == 1)
        for (int i = 0; i < 2 * 5 * 7; i++) s.out[i] = MARK;
      l.budget = n;
      heed_status status = pass ? layer_try_backward(limited, &s, false) : layer_try_forward(limited, &s);
      bool refused_one = l.budget == -1;
      l.budget = -1;
      assert_int_equal(l.live, base);
      if (!refused_one) {
        ok(limited, status);
        layer_free(&s);
        break;
      }
      assert_int_equal(status, HEED_E_MEMORY);
      for (int i = 0; i < 2 * 5 * 7; i++) assert_true(s.out[i] == MARK);
      failures[pass]++;
      layer_free(&s);
    }
  assert_true(failures[0] >= 2 && failures[1] >= 3);
  heed_context_free(limited);
}

/* Projections and a few blocks a thread, never n · m. */
static void memory_is_linear(void **state) {
  (void)state;
  ledger l;
  heed_context *limited = ledger_context(&l, 2);
  random_source r = {.seed = 22};
  layer_sample s = {.batch = 1, .n = 4096, .m = 4096, .heads = 2, .kv_heads = 2, .d = 8, .dv = 8, .width = {16, 16, 16}, .outputs = 16};
  layer_array_new(&s.array[X_QUERY], &r, 1, 3, (int64_t[]){1, 4096, 16});
  s.a = (heed_attention){.size = sizeof s.a};
  layer_fill(context, &s, &r, true, true);
  int64_t before = l.now;
  ok(limited, heed_multi_head_forward(limited, &s.layer, layer_x(&s, X_QUERY), NULL, NULL, &s.vout, NULL));
  assert_true(l.peak - before < s.vsaved.dim[0] * 4 + (8 << 20)); // n · m would be 64 MiB a head
  ok(limited, layer_try_forward(limited, &s));
  l.peak = l.now;
  ok(limited, layer_try_backward(limited, &s, false));
  assert_true(l.peak - before < 4 * s.vsaved.dim[0] * 4 + (8 << 20));
  layer_free(&s);
  heed_context_free(limited);
}

/* Global tokens with projections of their own; the sample is self-attention of 5 rows. */
static void global_tokens(void **state) {
  (void)state;
  random_source r = {.seed = 25};
  const int64_t bounds[] = {0, 5}, dim[] = {2, 5, 12};
  layer_sample s = {.batch = 2, .n = 5, .m = 5, .heads = 4, .kv_heads = 2, .d = 3, .dv = 3, .width = {12, 12, 12}, .outputs = 7};
  layer_array_new(&s.array[X_QUERY], &r, 1, 3, dim);
  s.a = (heed_attention){.size = sizeof s.a};
  s.layer.global_tokens = 2;
  layer_fill(context, &s, &r, true, true);
  layer_run(context, &s);
  const heed_attention plain = s.a;
  const heed_multi_head whole = s.layer;
  const struct {
    heed_attention a;
    heed_multi_head layer;
    heed_status status;
    const char *words;
  } bad[] = {
      {{.size = sizeof plain, .documents = 1, .query_documents = bounds}, whole, HEED_E_UNSUPPORTED, "have no attend, bias, sink"},
      {{.size = sizeof plain, .align = HEED_ALIGN_END}, whole, HEED_E_UNSUPPORTED, "begin with the first row"},
      {{.size = sizeof plain, .align = HEED_ALIGN_GIVEN, .offset = 1}, whole, HEED_E_UNSUPPORTED, "begin with the first row"},
      {plain, {.global_tokens = -1}, HEED_E_ARGUMENT, "-1 global tokens, and w_qkv_global is given"},
      {plain, {.global_tokens = 0}, HEED_E_ARGUMENT, "0 global tokens, and w_qkv_global is given"},
      {plain, {.global_tokens = 2, .w_qkv_global = s.layer.b_qkv}, HEED_E_SHAPE, "w_qkv_global: [24], expected [24,12]"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    s.a = bad[i].a;
    s.layer = whole;
    s.layer.attention = &s.a;
    s.layer.global_tokens = bad[i].layer.global_tokens;
    if (bad[i].layer.w_qkv_global) s.layer.w_qkv_global = bad[i].layer.w_qkv_global;
    expect(layer_try_forward(context, &s), bad[i].status, bad[i].words);
    expect(layer_try_backward(context, &s, false), bad[i].status, bad[i].words);
  }
  s.a = plain;
  s.layer = whole;
  s.layer.w_qkv_global = NULL;
  expect(layer_try_forward(context, &s), HEED_E_ARGUMENT, "2 global tokens, and w_qkv_global is null");
  s.layer = whole;
  const heed_view *x = &s.array[X_QUERY].view;
  expect(heed_multi_head_forward(context, &s.layer, x, x, NULL, &s.vout, NULL), HEED_E_ARGUMENT, "w_qkv_global is for self-attention");
  float weights[2 * 4 * 5 * 5];
  const heed_view asked = heed_view_of(weights, HEED_F32, 4, (int64_t[]){2, 4, 5, 5});
  const heed_multi_head_extras extras = {.size = sizeof extras, .weights = &asked};
  expect(heed_multi_head_forward(context, &s.layer, x, NULL, NULL, &s.vout, &extras), HEED_E_UNSUPPORTED, "weights cannot be asked for");
  layer_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(global_tokens),
      cmocka_unit_test(heads_and_widths),
      cmocka_unit_test(shapes),
      cmocka_unit_test(values_of_another_length),
      cmocka_unit_test(types_and_pointers),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(attention_and_dropout),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(memory_is_linear),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
