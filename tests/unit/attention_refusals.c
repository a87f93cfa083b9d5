/* Illegal requests (contract 24): each is refused by name, with a sentence that gives the shapes, before any output is touched. */
#include "attention_sample.h"

static heed_context *context;

typedef struct call {
  heed_attention a;
  heed_view q, k, v, out, lse;
  float q_data[2 * 4 * 5 * 8], k_data[2 * 2 * 6 * 8], v_data[2 * 2 * 6 * 3], out_data[2 * 4 * 5 * 3], lse_data[2 * 4 * 5];
} call;

/* A legal call: B 2, H 4 over 2, n 5, m 6, d 8, dv 3. */
static void legal(call *c) {
  memset(c, 0, sizeof *c);
  c->a = (heed_attention){.size = sizeof c->a};
  c->q = heed_view_of(c->q_data, HEED_F32, 4, (int64_t[]){2, 4, 5, 8});
  c->k = heed_view_of(c->k_data, HEED_F32, 4, (int64_t[]){2, 2, 6, 8});
  c->v = heed_view_of(c->v_data, HEED_F32, 4, (int64_t[]){2, 2, 6, 3});
  c->out = heed_view_of(c->out_data, HEED_F32, 4, (int64_t[]){2, 4, 5, 3});
  c->lse = heed_view_of(c->lse_data, HEED_F32, 3, (int64_t[]){2, 4, 5});
  for (size_t i = 0; i < sizeof c->out_data / 4; i++) c->out_data[i] = 77;
  for (size_t i = 0; i < sizeof c->lse_data / 4; i++) c->lse_data[i] = 77;
}

static heed_status run(call *c) {
  heed_attention_extras extras = {.size = sizeof extras, .lse = &c->lse};
  return heed_attention_forward(context, &c->a, &c->q, &c->k, &c->v, &c->out, &extras);
}

/* The call must fail with that status, say those words, and leave the outputs alone. */
static void refused(call *c, heed_status status, const char *words) {
  heed_status got = run(c);
  if (got != status) fail_msg("%s where %s was due (%s)", heed_status_name(got), heed_status_name(status), heed_error(context));
  if (!strstr(heed_error(context), words)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), words);
  for (size_t i = 0; i < sizeof c->out_data / 4; i++) assert_true(c->out_data[i] == 77);
  for (size_t i = 0; i < sizeof c->lse_data / 4; i++) assert_true(c->lse_data[i] == 77);
  legal(c);
}

static void shapes(void **state) {
  (void)state;
  call c;
  legal(&c);
  ok(context, run(&c));
  legal(&c);
  c.q.ndim = 1;
  refused(&c, HEED_E_SHAPE, "rank 1");
  c.q.ndim = 7;
  refused(&c, HEED_E_SHAPE, "rank 7");
  c.k.dim[3] = 7;
  refused(&c, HEED_E_SHAPE, "k has width 7, q has 8");
  c.k.dim[1] = c.v.dim[1] = 3;
  c.k.stride[1] = c.v.stride[1] = 0;
  refused(&c, HEED_E_SHAPE, "4 query heads are not a multiple of 3");
  c.k.dim[1] = c.v.dim[1] = 0;
  refused(&c, HEED_E_SHAPE, "not a multiple of 0");
  c.v.dim[2] = 5;
  refused(&c, HEED_E_SHAPE, "v has");
  c.k.dim[0] = 1;
  refused(&c, HEED_E_SHAPE, "batch 1");
  c.out.dim[3] = 2;
  refused(&c, HEED_E_SHAPE, "out: [2,4,5,2]");
  c.lse.dim[2] = 4;
  refused(&c, HEED_E_SHAPE, "lse: [2,4,4]");
  c.q.dim[2] = -1;
  refused(&c, HEED_E_SHAPE, "negative");
  c.q.dim[2] = INT64_MAX / 4;
  refused(&c, HEED_E_OVERFLOW, "overflows");
  c.q.stride[2] = INT64_MAX / 2;
  refused(&c, HEED_E_OVERFLOW, "strides");
}

/* [2,3] and [3,2] are both a batch of 6, but not the same one. */
static void leading_dimensions(void **state) {
  (void)state;
  float data[6 * 2], out[6 * 2];
  heed_view q = heed_view_of(data, HEED_F32, 5, (int64_t[]){2, 3, 1, 1, 2}),
            k = heed_view_of(data, HEED_F32, 5, (int64_t[]){3, 2, 1, 1, 2});
  heed_view o = heed_view_of(out, HEED_F32, 5, (int64_t[]){2, 3, 1, 1, 2});
  memset(data, 0, sizeof data);
  assert_int_equal(heed_attention_forward(context, NULL, &q, &k, &k, &o, NULL), HEED_E_SHAPE);
  ok(context, heed_attention_forward(context, NULL, &q, &q, &q, &o, NULL));
}

static void types_and_pointers(void **state) {
  (void)state;
  call c;
  legal(&c);
  c.q.type = HEED_I32;
  refused(&c, HEED_E_TYPE, "q is i32");
  c.v.type = HEED_F64;
  refused(&c, HEED_E_TYPE, "v is f64");
  c.out.type = HEED_U8;
  refused(&c, HEED_E_TYPE, "out is u8");
  c.lse.type = HEED_F16;
  refused(&c, HEED_E_TYPE, "lse is f16");
  c.k.type = (heed_type)42;
  refused(&c, HEED_E_TYPE, "unknown element type 42");
  c.k.data = NULL;
  refused(&c, HEED_E_ARGUMENT, "null");
  c.k.data = (char *)c.k_data + 2;
  refused(&c, HEED_E_LAYOUT, "aligned");
  c.a.size = 0;
  refused(&c, HEED_E_ARGUMENT, "size");
  assert_int_equal(heed_attention_forward(NULL, &c.a, &c.q, &c.k, &c.v, &c.out, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_forward(context, &c.a, NULL, &c.k, &c.v, &c.out, NULL), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_forward(context, &c.a, &c.q, &c.k, &c.v, NULL, NULL), HEED_E_ARGUMENT);
}

static void overlaps(void **state) {
  (void)state;
  call c;
  legal(&c);
  c.out.data = c.v_data;
  refused(&c, HEED_E_OVERLAP, "out overlaps v");
  c.out.data = c.k_data + 90;
  refused(&c, HEED_E_OVERLAP, "out overlaps k");
  c.out.data = c.q_data;
  refused(&c, HEED_E_OVERLAP, "out overlaps q");
  c.lse.data = c.out_data + 3;
  refused(&c, HEED_E_OVERLAP, "lse overlaps");
}

/* An output with two elements in one place would be written twice, by different threads. */
static void outputs_that_share_elements(void **state) {
  (void)state;
  call c;
  legal(&c);
  c.out.stride[1] = 0;
  refused(&c, HEED_E_LAYOUT, "out: elements of [2,4,5,3] share memory");
  c.out.stride[2] = 2;
  refused(&c, HEED_E_LAYOUT, "out");
  c.lse.stride[0] = 1;
  refused(&c, HEED_E_LAYOUT, "lse");
  c.q.stride[1] = 0; // the same queries for every head: legal, but not as a place for the output
  c.out = c.q;
  c.v = heed_view_of(c.k_data, HEED_F32, 4, (int64_t[]){2, 2, 6, 8});
  refused(&c, HEED_E_LAYOUT, "out");
  float weights[2 * 4 * 5 * 6];
  heed_view w = heed_view_of(weights, HEED_F32, 4, (int64_t[]){2, 4, 5, 6});
  w.stride[1] = 0;
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, NULL, &w), HEED_E_LAYOUT);
  c.out.stride[2] = 0;
  assert_int_equal(heed_attention_reference(context, &c.a, &c.q, &c.k, &c.v, &c.out, NULL), HEED_E_LAYOUT);
}

/* The calls beside forward refuse the same overlaps. */
static void overlaps_of_the_other_calls(void **state) {
  (void)state;
  call c;
  float weights[2 * 4 * 5 * 6];
  legal(&c);
  heed_view w = heed_view_of(weights, HEED_F32, 4, (int64_t[]){2, 4, 5, 6}), bias = heed_view_of(weights, HEED_F32, 2, (int64_t[]){5, 6});
  c.a.bias = &bias;
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, NULL, &w), HEED_E_OVERLAP);
  assert_non_null(strstr(heed_error(context), "weights overlaps bias"));
  bias.data = c.out_data;
  assert_int_equal(heed_attention_reference(context, &c.a, &c.q, &c.k, &c.v, &c.out, NULL), HEED_E_OVERLAP);
  assert_non_null(strstr(heed_error(context), "out overlaps bias"));
  legal(&c);
  c.lse.data = c.out_data;
  heed_attention_extras extras = {.size = sizeof extras, .lse = &c.lse};
  assert_int_equal(heed_attention_reference(context, &c.a, &c.q, &c.k, &c.v, &c.out, &extras), HEED_E_OVERLAP);
  assert_non_null(strstr(heed_error(context), "lse overlaps out"));
}

/* Rule 12: what has no elements has no memory, no reach and no alignment either. */
static void empty_calls(void **state) {
  (void)state;
  call c;
  legal(&c);
  c.a.causal = true;
  c.q.dim[2] = c.out.dim[2] = c.lse.dim[2] = 0;
  ok(context, run(&c)); // no queries: START and END may differ
  legal(&c);
  c.a.causal = true;
  c.k.dim[2] = c.v.dim[2] = 0;
  ok(context, run(&c));
  assert_true(c.out_data[0] == 0 && c.lse_data[0] == -INFINITY);
  legal(&c);
  const int64_t lengths[] = {5, 0};
  c.a.causal = true;
  c.a.key_lengths = lengths;
  ok(context, run(&c));
  legal(&c);
  c.q.dim[3] = c.k.dim[3] = 0;
  for (int i = 0; i < 4; i++) c.q.stride[i] = c.k.stride[i] = INT64_MAX;
  ok(context, run(&c)); // d = 0: all scores 0
  legal(&c);
  c.q.dim[1] = c.out.dim[1] = c.q.dim[2] = c.out.dim[2] = (int64_t)1 << 40;
  c.q.dim[3] = c.k.dim[3] = c.out.dim[3] = c.v.dim[3] = 0;
  assert_int_equal(heed_attention_forward(context, &c.a, &c.q, &c.k, &c.v, &c.out, NULL), HEED_E_OVERFLOW);
}

static void descriptions(void **state) {
  (void)state;
  call c;
  heed_view mask;
  uint8_t bytes[64] = {0};
  int64_t lengths[2] = {6, 7}, offsets[2] = {0, INT64_MIN};
  legal(&c);
  c.a.causal = true; // n 5, m 6
  refused(&c, HEED_E_ARGUMENT, "5 queries and 6 keys");
  c.a.has_window_left = true;
  refused(&c, HEED_E_ARGUMENT, "align is not set");
  c.a.offset = 1;
  refused(&c, HEED_E_ARGUMENT, "HEED_ALIGN_GIVEN");
  c.a.align = HEED_ALIGN_GIVEN;
  c.a.offsets = offsets;
  refused(&c, HEED_E_ARGUMENT, "out of range");
  c.a.align = (heed_align)9;
  refused(&c, HEED_E_ARGUMENT, "align");
  c.a.has_window_right = true;
  c.a.window_right = -1;
  refused(&c, HEED_E_ARGUMENT, "window_right -1");
  c.a.key_lengths = lengths;
  refused(&c, HEED_E_ARGUMENT, "key length 7 of batch entry 1");
  c.a.softcap = -1;
  refused(&c, HEED_E_ARGUMENT, "softcap -1");
  c.a.softcap = NAN;
  refused(&c, HEED_E_ARGUMENT, "softcap");
  c.a.has_scale = true;
  c.a.scale = INFINITY;
  refused(&c, HEED_E_ARGUMENT, "scale");
  mask = heed_view_of(bytes, HEED_BOOL, 2, (int64_t[]){5, 5});
  c.a.attend = &mask;
  refused(&c, HEED_E_SHAPE, "attend: [5,5] does not broadcast");
  mask = heed_view_of(bytes, HEED_BOOL, 3, (int64_t[]){2, 5, 6});
  c.a.attend = &mask;
  refused(&c, HEED_E_SHAPE, "attend: [2,5,6]");
  mask = heed_view_of(bytes, HEED_U8, 2, (int64_t[]){5, 6});
  c.a.bias = &mask;
  refused(&c, HEED_E_TYPE, "bias is u8");
  mask = heed_view_of(c.q_data, HEED_F32, 2, (int64_t[]){5, 6});
  c.a.attend = &mask;
  refused(&c, HEED_E_TYPE, "attend is f32");
  mask = heed_view_of(c.out_data, HEED_F32, 2, (int64_t[]){5, 6});
  c.a.bias = &mask;
  refused(&c, HEED_E_OVERLAP, "out overlaps bias");
}

static void weights_and_plans(void **state) {
  (void)state;
  call c;
  float weights[2 * 4 * 5 * 6];
  int64_t heads[] = {0, 4}, rows[] = {-1};
  heed_attention_rows named = {.size = sizeof named, .n_heads = 2, .heads = heads}, unnamed = {.size = sizeof unnamed, .n_heads = 2},
                      row = {.size = sizeof row, .n_rows = 1, .rows = rows}, tap = {.size = sizeof tap, .tap = HEED_TAP_DROPPED + 1};
  legal(&c);
  heed_view w = heed_view_of(weights, HEED_F32, 4, (int64_t[]){2, 2, 5, 6});
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &named, &w), HEED_E_ARGUMENT);
  assert_non_null(strstr(heed_error(context), "heads 4 asked for, there are 4"));
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &unnamed, &w), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &(heed_attention_rows){0}, &w), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &tap, &w), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_weights_reference(context, &c.a, &c.q, &c.k, &tap, &w), HEED_E_ARGUMENT);
  w = heed_view_of(weights, HEED_F32, 4, (int64_t[]){2, 4, 1, 6});
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &row, &w), HEED_E_ARGUMENT);
  assert_int_equal(heed_attention_weights_reference(context, &c.a, &c.q, &c.k, &row, &w), HEED_E_ARGUMENT);
  w.dim[3] = 5;
  rows[0] = 0;
  assert_int_equal(heed_attention_weights(context, &c.a, &c.q, &c.k, &row, &w), HEED_E_SHAPE);
  assert_int_equal(heed_attention_weights_reference(context, &c.a, &c.q, &c.k, &row, &w), HEED_E_SHAPE);
  heed_plan plan = {.size = sizeof plan};
  c.a.causal = true;
  c.a.align = HEED_ALIGN_END;
  ok(context, heed_attention_explain_plan(context, &c.a, &c.q, &c.k, &c.v, &plan));
  assert_int_equal(plan.visible_pairs, 8 * (2 + 3 + 4 + 5 + 6));
  assert_int_equal(plan.tiles, 8);
  assert_int_equal(plan.partial_tiles, 8);
  c.q.type = HEED_I32;
  assert_int_equal(heed_attention_explain_plan(context, &c.a, &c.q, &c.k, &c.v, &plan), HEED_E_TYPE); // as forward
  c.q.type = HEED_F32;
  plan.size = 0;
  assert_int_equal(heed_attention_explain_plan(context, &c.a, &c.q, &c.k, &c.v, &plan), HEED_E_ARGUMENT);
}

/* Rule 23 in counts: tiles that no visible pair touches are not in the plan. */
static void plans_count_live_tiles(void **state) {
  (void)state;
  float unused;
  const int64_t dim[] = {1, 4096, 64};
  heed_view view = heed_view_of(&unused, HEED_F32, 3, dim);
  for (int i = 0; i < 3; i++) view.stride[i] = 0; // shapes only: nothing is read
  heed_plan plan = {.size = sizeof plan};
  heed_attention a = {.size = sizeof a, .causal = true};
  ok(context, heed_attention_explain_plan(context, &a, &view, &view, &view, &plan));
  assert_int_equal(plan.tiles, 256 * 64);
  assert_int_equal(plan.visible_pairs, 4096LL * 4097 / 2);
  assert_int_equal(plan.partial_tiles, 256); // each cell of 16 queries crosses the diagonal in one tile of 64 keys
  assert_int_equal(plan.full_tiles, 4 * (63 * 64 / 2));
  a.has_window_left = true;
  a.window_left = 511;
  ok(context, heed_attention_explain_plan(context, &a, &view, &view, &view, &plan));
  assert_true(plan.full_tiles + plan.partial_tiles <= 256 * 9);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------------------------- */

static bool refuse(void *user, const char *what, int64_t done, int64_t total) {
  (void)user;
  assert_string_equal(what, "attention");
  assert_true(done <= total);
  return false;
}

static void cancelled(void **state) {
  (void)state;
  call c;
  legal(&c);
  heed_context_set_progress(context, refuse, NULL);
  assert_int_equal(run(&c), HEED_E_CANCELLED);
  heed_context_set_progress(context, NULL, NULL);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes),
      cmocka_unit_test(leading_dimensions),
      cmocka_unit_test(types_and_pointers),
      cmocka_unit_test(overlaps),
      cmocka_unit_test(descriptions),
      cmocka_unit_test(weights_and_plans),
      cmocka_unit_test(plans_count_live_tiles),
      cmocka_unit_test(cancelled),
      cmocka_unit_test(outputs_that_share_elements),
      cmocka_unit_test(overlaps_of_the_other_calls),
      cmocka_unit_test(empty_calls),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
