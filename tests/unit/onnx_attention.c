/* The node tests of ONNX's operator Attention (opset 23 and 24): fused kernel and oracle, output, cache and the four stages of its score matrix. */
#include "onnx.h"

static heed_context *context;

typedef struct call {
  heed_attention a;
  heed_view q, k, v, attend_or_bias;
  onnx_array q_data, k_data, v_data, mask; /* owned */
} call;

/* past and new rows of a cache one after the other: [B,H,past + n,d]. Without a past it is a copy. */
static onnx_array joined(const heed_view *past, const heed_view *added) {
  int64_t before = past->data ? past->dim[2] : 0, size = (int64_t)heed_type_bytes(added->type);
  onnx_array all = onnx_new(added->type, 4, (int64_t[]){added->dim[0], added->dim[1], before + added->dim[2], added->dim[3]});
  char *to = all.data;
  for (int64_t b = 0; b < all.dim[0]; b++)
    for (int64_t h = 0; h < all.dim[1]; h++)
      for (int64_t row = 0; row < all.dim[2]; row++, to += all.dim[3] * size) {
        const heed_view *from = row < before ? past : added;
        int64_t at = b * from->stride[0] + h * from->stride[1] + (row < before ? row : row - before) * from->stride[2];
        memcpy(to, (const char *)from->data + at * size, (size_t)(all.dim[3] * size));
      }
  return all;
}

/* attn_mask with its last dimension filled up to m keys with "not visible", which is ONNX's rule. */
static onnx_array padded(onnx_array mask, int64_t m) {
  int last = mask.ndim - 1;
  int64_t had = mask.dim[last], dim[HEED_MAX_DIM], size = (int64_t)heed_type_bytes(mask.type);
  memcpy(dim, mask.dim, sizeof dim);
  dim[last] = m;
  onnx_array wide = onnx_new(mask.type, mask.ndim, dim);
  for (int64_t i = 0; i < hd_view_count(&wide); i++) {
    char *to = (char *)wide.data + i * size;
    if (i % m < had) memcpy(to, (const char *)mask.data + (i / m * had + i % m) * size, (size_t)size);
    else hd_element_store(to, mask.type, mask.type == HEED_BOOL ? 0 : -INFINITY);
  }
  free(mask.data);
  return wide;
}

/* Who stands where: behind the cached keys, or at the end of the valid ones, or at the start. */
static void align(call *to, const onnx_array *past, const onnx_array *valid) {
  to->a.causal = true;
  to->a.align = past->data ? HEED_ALIGN_GIVEN : valid->data ? HEED_ALIGN_END : HEED_ALIGN_START;
  to->a.offset = past->data ? past->dim[2] : 0;
}

/* Keys or values of all positions, compared with what the operator calls present. */
static onnx_array present(onnx_case *c, const char *added_name, const char *past_name, const char *present_name, int64_t heads) {
  onnx_array added = onnx_load(c, added_name), past = onnx_load(c, past_name), want = onnx_load(c, present_name);
  heed_view rows = onnx_split_heads(added, heads);
  onnx_array all = joined(&past, &rows);
  if (want.data) onnx_compare(c, present_name, &all, &want);
  free(added.data);
  free(past.data);
  free(want.data);
  return all;
}

static void read_call(onnx_case *c, call *to) {
  onnx_array past = onnx_load(c, "past_key"), valid = onnx_load(c, "nonpad_kv_seqlen");
  *to = (call){.a = {.size = sizeof to->a}, .q_data = onnx_load(c, "Q"), .mask = onnx_load(c, "attn_mask")};
  to->q = onnx_split_heads(to->q_data, onnx_integer(c, "q_num_heads", 1));
  int64_t heads = onnx_integer(c, "kv_num_heads", 1);
  to->k = to->k_data = present(c, "K", "past_key", "present_key", heads);
  to->v = to->v_data = present(c, "V", "past_value", "present_value", heads);
  if (onnx_integer(c, "is_causal", 0)) align(to, &past, &valid);
  to->a.has_scale = hd_json_has(&c->attributes, "scale");
  to->a.scale = onnx_number(c, "scale", 0);
  to->a.softcap = onnx_number(c, "softcap", 0);
  to->a.key_lengths = valid.data; // freed by the caller, like the arrays
  if (to->mask.data) {
    to->mask = padded(to->mask, to->k.dim[2]);
    *(to->mask.type == HEED_BOOL ? &to->a.attend : &to->a.bias) = &to->mask;
  }
  free(past.data);
}

static void run_case(onnx_case *c) {
  // softmax_precision is at most f32 in these cases, and heed's softmax is f32 whatever the arrays are.
  assert_true(onnx_integer(c, "softmax_precision", 1) == 1);
  static const heed_tap taps[] = {HEED_TAP_SCORES, HEED_TAP_CAPPED, HEED_TAP_BIASED, HEED_TAP_WEIGHTS}; // by qk_matmul_output_mode
  heed_attention_rows asked = {.size = sizeof asked, .tap = taps[onnx_integer(c, "qk_matmul_output_mode", 0)]};
  onnx_array y = onnx_load(c, "Y"), matrix = onnx_load(c, "qk_matmul_output");
  call call;
  read_call(c, &call);
  onnx_array got = onnx_new(y.type, y.ndim, y.dim);
  heed_view out = onnx_split_heads(got, call.q.dim[1]);
  ok(context, heed_attention_forward(context, &call.a, &call.q, &call.k, &call.v, &out, NULL));
  onnx_compare(c, "Y", &got, &y);
  ok(context, heed_attention_reference(context, &call.a, &call.q, &call.k, &call.v, &out, NULL));
  onnx_compare(c, "Y of the oracle", &got, &y);
  if (matrix.data) {
    onnx_array rows = onnx_new(matrix.type, matrix.ndim, matrix.dim);
    ok(context, heed_attention_weights(context, &call.a, &call.q, &call.k, &asked, &rows));
    onnx_compare(c, "qk_matmul_output", &rows, &matrix);
    ok(context, heed_attention_weights_reference(context, &call.a, &call.q, &call.k, &asked, &rows));
    onnx_compare(c, "qk_matmul_output of the oracle", &rows, &matrix);
    free(rows.data);
  }
  void *owned[] = {y.data,           matrix.data,      got.data,       call.q_data.data,
                   call.k_data.data, call.v_data.data, call.mask.data, (void *)(uintptr_t)call.a.key_lengths};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

static void every_case(void **state) {
  (void)state;
  context = test_context(NULL);
  onnx_each(context, "Attention", 76, run_case);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
