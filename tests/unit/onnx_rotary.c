/* The node tests of ONNX's operator RotaryEmbedding (opset 23), into another array, in place, and by the oracle. */
#include "onnx.h"

static heed_context *context;

static void run_case(onnx_case *c) {
  onnx_array x = onnx_load(c, "X"), y = onnx_load(c, "Y"), cosine = onnx_load(c, "cos_cache"), sine = onnx_load(c, "sin_cache"),
             positions = onnx_load(c, "position_ids");
  const heed_rope rope = {.size = sizeof rope,
                          .interleaved = onnx_integer(c, "interleaved", 0) != 0,
                          .rotary_dim = onnx_integer(c, "rotary_embedding_dim", 0),
                          .cosine = &cosine,
                          .sine = &sine,
                          .positions = positions.data ? &positions : NULL};
  onnx_array got = onnx_new(y.type, y.ndim, y.dim);
  heed_view rows = onnx_split_heads(x, onnx_integer(c, "num_heads", 1)), out = onnx_split_heads(got, onnx_integer(c, "num_heads", 1));
  ok(context, heed_rope_reference(context, &rope, &rows, &out));
  onnx_compare(c, "Y of the oracle", &got, &y);
  ok(context, heed_rope_apply(context, &rope, &rows, &out));
  onnx_compare(c, "Y", &got, &y);
  ok(context, heed_rope_apply(context, &rope, &rows, &rows));
  onnx_compare(c, "Y in place of X", &x, &y);
  void *owned[] = {x.data, y.data, cosine.data, sine.data, positions.data, got.data};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

static void every_case(void **state) {
  (void)state;
  context = test_context(NULL);
  onnx_each(context, "RotaryEmbedding", 8, run_case);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
