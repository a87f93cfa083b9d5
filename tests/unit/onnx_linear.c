/* The node tests of ONNX's operator LinearAttention (opset 27): kernels and oracle, output and state. */
#include "onnx.h"

static heed_context *context;

static heed_linear_rule rule_of(onnx_case *c) {
  static const struct {
    const char *name;
    heed_linear_rule rule;
  } rules[] = {{"linear", HEED_RULE_ADD}, {"gated", HEED_RULE_GATED}, {"delta", HEED_RULE_DELTA}, {"gated_delta", HEED_RULE_GATED_DELTA}};
  heed_text name = {"gated_delta", 11};
  if (hd_json_has(&c->attributes, "update_rule")) ok(context, hd_json_text(&c->attributes, "update_rule", &name));
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (hd_text_is(name, rules[i].name)) return rules[i].rule;
  fail_msg("%s: unknown rule", c->name);
  return HEED_RULE_ADD;
}

static void run_case(onnx_case *c) {
  enum { QUERY, KEY, VALUE, PAST, DECAY, BETA, OUTPUT, PRESENT, COUNT };
  static const char *const names[COUNT] = {"query", "key", "value", "past_state", "decay", "beta", "output", "present_state"};
  const int64_t heads = onnx_integer(c, "q_num_heads", 1), kv_heads = onnx_integer(c, "kv_num_heads", 1);
  onnx_array array[COUNT];
  heed_view view[COUNT];
  for (int i = 0; i < COUNT; i++) array[i] = onnx_load(c, names[i]);
  for (int i = 0; i < COUNT; i++) {
    // β of one number a token serves all heads.
    const int64_t of = i == QUERY || i == OUTPUT ? heads : i == BETA ? array[i].dim[2] : kv_heads;
    view[i] = array[i].data && i != PAST && i != PRESENT ? onnx_split_heads(array[i], of) : array[i];
  }
  const double scale = onnx_number(c, "scale", 0); // 0, the default, means 1/sqrt(d)
  const heed_linear_state before = {.size = sizeof before, .sums = &view[PAST]};
  const heed_linear_attention a = {.size = sizeof a,
                                   .features = HEED_FEATURES_IDENTITY,
                                   .rule = rule_of(c),
                                   .causal = true,
                                   .unnormalised = true,
                                   .has_scale = scale != 0,
                                   .scale = scale,
                                   .decay = view[DECAY].data ? &view[DECAY] : NULL,
                                   .beta = view[BETA].data ? &view[BETA] : NULL,
                                   .before = view[PAST].data ? &before : NULL};
  onnx_array got = onnx_new(array[OUTPUT].type, 3, array[OUTPUT].dim), state = onnx_new(array[PRESENT].type, 4, array[PRESENT].dim);
  const heed_view out = onnx_split_heads(got, heads);
  const heed_linear_state after = {.size = sizeof after, .sums = &state};
  const heed_linear_extras extras = {.size = sizeof extras, .after = &after};
  ok(context, heed_linear_forward(context, &a, &view[QUERY], &view[KEY], &view[VALUE], &out, &extras));
  onnx_compare(c, "output", &got, &array[OUTPUT]);
  onnx_compare(c, "present_state", &state, &array[PRESENT]);
  ok(context, heed_linear_reference(context, &a, &view[QUERY], &view[KEY], &view[VALUE], &out, &extras));
  onnx_compare(c, "output of the oracle", &got, &array[OUTPUT]);
  onnx_compare(c, "present_state of the oracle", &state, &array[PRESENT]);
  free(got.data);
  free(state.data);
  for (int i = 0; i < COUNT; i++) free(array[i].data);
}

static void every_case(void **state) {
  (void)state;
  context = test_context(NULL);
  onnx_each(context, "LinearAttention", 14, run_case);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
