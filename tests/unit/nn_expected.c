/* Layers on the tape against what PyTorch computed in double precision: nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerDecoderLayer, outputs, weights and every gradient. */
#include "fixture.h"

#include "heed/nn.h"
#include "../../src/tensor/tensor.h"

static const double tolerance = 1e-5; // of the largest magnitude

typedef struct {
  heed_context *context;
  hd_tensors *file;
  const char *name;
  heed_parameters *set; /* every input and parameter of the file, by its name there */
  heed_tape *tape;
} bench;

/* A tensor of the file as a parameter, so that it gets a gradient; NULL where the file has none. */
static heed_tensor *load(bench *b, const char *name) {
  const fixture f = {.context = b->context, .file = b->file};
  heed_view wide;
  heed_tensor *t = NULL;
  double *data = fixture_load(&f, name, &wide);
  if (!data) return NULL;
  ok(b->context, heed_parameters_add(b->set, name, wide.ndim, wide.dim, NULL, &t));
  for (int64_t i = 0; i < hd_count(t); i++) hd_value(t)[i] = (float)data[i];
  free(data);
  return t;
}

static heed_tensor *parameter(bench *b, const char *prefix, const char *name) {
  char full[128];
  snprintf(full, sizeof full, "param.%s%s", prefix, name);
  return load(b, full);
}

static void compare(const bench *b, const char *name, const float *got) {
  const fixture f = {.context = b->context, .file = b->file};
  heed_view wide;
  double largest = 0, *want = fixture_load(&f, name, &wide);
  char label[160];
  if (!want) fail_msg("%s has no %s", b->name, name);
  snprintf(label, sizeof label, "%s %s", b->name, name);
  for (int64_t i = 0; i < hd_view_count(&wide); i++) largest = fmax(largest, fabs(want[i]));
  for (int64_t i = 0; i < hd_view_count(&wide); i++) assert_close(got[i], want[i], tolerance * largest, label, 0);
  free(want);
}

/* Every gradient under its name in the file. */
static void compare_gradients(const bench *b) {
  for (int64_t i = 0; i < heed_parameters_count(b->set); i++) {
    heed_tensor *t = heed_parameters_at(b->set, i);
    char name[160];
    snprintf(name, sizeof name, "grad.%s", t->name);
    assert_non_null(heed_tensor_gradient(t).data);
    compare(b, name, heed_tensor_gradient(t).data);
  }
}

/* Backward from the file's grad_out, then every gradient under its name. */
static void finish(bench *b, heed_tensor *out) {
  ok(b->context, heed_tape_status(b->tape));
  compare(b, "out", hd_value(out));
  const fixture f = {.context = b->context, .file = b->file};
  heed_view wide, narrow;
  double *upstream = fixture_load(&f, "grad_out", &wide);
  assert_non_null(upstream);
  fixture_narrow(&wide, &narrow);
  ok(b->context, heed_tape_backward(b->tape, out, &narrow));
  free(narrow.data);
  free(upstream);
  compare_gradients(b);
}

static bench open_file(heed_context *context, const char *path, const char *name) {
  bench b = {.context = context, .name = name};
  ok(context, hd_tensors_open(context, path, &b.file));
  ok(context, heed_parameters_new(context, &b.set));
  ok(context, heed_tape_new(context, &b.tape));
  return b;
}

static void close_file(bench *b) {
  heed_tape_free(b->tape);
  heed_parameters_free(b->set);
  hd_tensors_close(b->file);
}

/* The file's lengths of a name, if it has some; they live in `to`. */
static const int64_t *read_lengths(const bench *b, const char *name, int64_t to[8]) {
  int32_t lengths[8];
  const hd_tensor *tensor = hd_tensors_find(b->file, name);
  if (!tensor) return NULL;
  assert_true(tensor->count <= 8);
  ok(b->context, hd_tensors_read(b->context, b->file, tensor, lengths));
  for (int64_t i = 0; i < tensor->count; i++) to[i] = lengths[i];
  return to;
}

static int64_t heads_of(const bench *b) {
  char text[64];
  const fixture f = {.context = b->context, .file = b->file};
  return atoll(fixture_attribute(&f, "heads", text));
}

/* ---- multi-head attention -------------------------------------------------------------------------------------------------------------- */

/* Rows [begin, end) of a packed weight or bias, on the tape, so that its gradient is one. */
static heed_tensor *rows(bench *b, heed_tensor *packed, int64_t third, int64_t count) {
  int64_t n = packed ? packed->dim[0] / 3 : 0;
  return packed ? heed_tape_slice(b->tape, packed, 0, third * n, (third + count) * n) : NULL;
}

static void one_attention(heed_context *context, const char *path, const char *name) {
  bench b = open_file(context, path, name);
  const fixture f = {.context = context, .file = b.file};
  char text[64];
  heed_attention attention = {.size = sizeof attention, .align = HEED_ALIGN_START};
  attention.causal = strcmp(fixture_attribute(&f, "causal", text), "True") == 0;
  int64_t key_lengths[8];
  attention.key_lengths = read_lengths(&b, "key_lengths", key_lengths);
  heed_tensor *x = load(&b, "x"), *memory = load(&b, "memory");
  heed_tensor *in = parameter(&b, "", "in_proj_weight"), *in_bias = parameter(&b, "", "in_proj_bias");
  heed_nn_attention layer = {.heads = heads_of(&b), .attention = &attention};
  layer.w_o = parameter(&b, "", "out_proj.weight");
  layer.b_o = parameter(&b, "", "out_proj.bias");
  if (!memory) {
    layer.w_qkv = in;
    layer.b_qkv = in_bias;
  } else if (in) { // queries from one input, keys and values in one product from the other
    layer.w_q = rows(&b, in, 0, 1);
    layer.b_q = rows(&b, in_bias, 0, 1);
    layer.w_kv = rows(&b, in, 1, 2);
    layer.b_kv = rows(&b, in_bias, 1, 2);
  } else {
    layer.w_q = parameter(&b, "", "q_proj_weight");
    layer.w_k = parameter(&b, "", "k_proj_weight");
    layer.w_v = parameter(&b, "", "v_proj_weight");
    layer.b_q = rows(&b, in_bias, 0, 1);
    layer.b_k = rows(&b, in_bias, 1, 1);
    layer.b_v = rows(&b, in_bias, 2, 1);
  }
  const heed_tensor *keys = memory ? memory : x;
  const int64_t dim[] = {x->dim[0], layer.heads, x->dim[1], keys->dim[1]};
  heed_view weights = heed_view_of(NULL, HEED_F32, 4, dim);
  weights.data = floats(hd_view_count(&weights));
  heed_tensor *out = heed_nn_attention_apply(b.tape, &layer, x, memory, NULL, &weights);
  ok(context, heed_tape_status(b.tape));
  compare(&b, "weights", weights.data);
  free(weights.data);
  finish(&b, out);
  close_file(&b);
}

static void multi_head_attention(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "mha-", one_attention), 4);
  heed_context_free(context);
}

/* ---- layers of encoders and decoders --------------------------------------------------------------------------------------------------------------------- */

static heed_nn_norm norm(bench *b, const char *name) {
  return (heed_nn_norm){.weight = parameter(b, name, ".weight"), .bias = parameter(b, name, ".bias")};
}

static heed_nn_attention attention_of(bench *b, const char *prefix, const heed_attention *attention) {
  heed_nn_attention layer = {.heads = heads_of(b), .attention = attention};
  layer.w_qkv = parameter(b, prefix, "in_proj_weight");
  layer.b_qkv = parameter(b, prefix, "in_proj_bias");
  layer.w_o = parameter(b, prefix, "out_proj.weight");
  layer.b_o = parameter(b, prefix, "out_proj.bias");
  return layer;
}

/* Queries read one input, keys and values another. */
static heed_nn_attention split(bench *b, heed_nn_attention layer) {
  layer.w_q = rows(b, layer.w_qkv, 0, 1);
  layer.b_q = rows(b, layer.b_qkv, 0, 1);
  layer.w_kv = rows(b, layer.w_qkv, 1, 2);
  layer.b_kv = rows(b, layer.b_qkv, 1, 2);
  layer.w_qkv = layer.b_qkv = NULL;
  return layer;
}

static heed_nn_feed_forward feed_forward_of(bench *b) {
  heed_nn_feed_forward layer = {.activation = strstr(b->name, "gelu") ? HEED_ACTIVATION_GELU : HEED_ACTIVATION_RELU};
  layer.w_up = parameter(b, "linear1", ".weight");
  layer.b_up = parameter(b, "linear1", ".bias");
  layer.w_down = parameter(b, "linear2", ".weight");
  layer.b_down = parameter(b, "linear2", ".bias");
  return layer;
}

static void one_encoder_layer(heed_context *context, const char *path, const char *name) {
  bench b = open_file(context, path, name);
  int64_t key_lengths[8];
  heed_attention attention = {.size = sizeof attention};
  attention.key_lengths = read_lengths(&b, "key_lengths", key_lengths);
  heed_tensor *x = load(&b, "x");
  const heed_nn_block block = {.norm_after = strstr(name, "-post-") != NULL,
                               .attention_norm = norm(&b, "norm1"),
                               .feed_forward_norm = norm(&b, "norm2"),
                               .attention = attention_of(&b, "self_attn.", &attention),
                               .feed_forward = feed_forward_of(&b)};
  finish(&b, heed_nn_block_apply(b.tape, &block, x, NULL));
  close_file(&b);
}

static void encoder_layers(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "encoder-layer-", one_encoder_layer), 4);
  heed_context_free(context);
}

static void one_decoder_layer(heed_context *context, const char *path, const char *name) {
  bench b = open_file(context, path, name);
  int64_t lengths[8];
  const heed_attention causal = {.size = sizeof causal, .causal = true, .align = HEED_ALIGN_START};
  heed_attention across = {.size = sizeof across};
  across.key_lengths = read_lengths(&b, "memory_lengths", lengths);
  heed_tensor *x = load(&b, "x"), *memory = load(&b, "memory");
  const heed_nn_block block = {.norm_after = strstr(name, "-post") != NULL,
                               .attention_norm = norm(&b, "norm1"),
                               .cross_norm = norm(&b, "norm2"),
                               .feed_forward_norm = norm(&b, "norm3"),
                               .attention = attention_of(&b, "self_attn.", &causal),
                               .cross = split(&b, attention_of(&b, "multihead_attn.", &across)),
                               .feed_forward = feed_forward_of(&b)};
  finish(&b, heed_nn_block_apply(b.tape, &block, x, memory));
  close_file(&b);
}

static void decoder_layers(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "decoder-layer-", one_decoder_layer), 2);
  heed_context_free(context);
}

/* ---- gated recurrent units ------------------------------------------------------------------------------------------------------------- */

static heed_tensor *of_direction(bench *b, const char *name, int direction) {
  return parameter(b, name, direction ? "_l0_reverse" : "_l0");
}

/* The file's array of a name behind what is in `to` already. */
static int64_t append(const bench *b, const char *name, float *to) {
  const fixture f = {.context = b->context, .file = b->file};
  heed_view wide;
  double *from = fixture_load(&f, name, &wide);
  const int64_t count = hd_view_count(&wide);
  assert_non_null(from);
  for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
  free(from);
  return count;
}

/* Outputs and last states get gradients, so they are one row of numbers here. */
static void one_gru(heed_context *context, const char *path, const char *name) {
  bench b = open_file(context, path, name);
  int64_t lengths[8];
  heed_nn_gru layer = {.directions = strstr(name, "-bi") ? 2 : 1};
  heed_tensor *x = load(&b, "x"), *last[2], *parts[3];
  for (int d = 0; d < layer.directions; d++) {
    layer.w_input[d] = of_direction(&b, "weight_ih", d);
    layer.b_input[d] = of_direction(&b, "bias_ih", d);
    layer.w_state[d] = of_direction(&b, "weight_hh", d);
    layer.b_state[d] = of_direction(&b, "bias_hh", d);
  }
  const heed_nn_gru_rows rows = {.size = sizeof rows, .lengths = read_lengths(&b, "lengths", lengths)};
  assert_non_null(rows.lengths);
  parts[0] = heed_nn_gru_apply(b.tape, &layer, &rows, x, last);
  for (int d = 0; d < layer.directions; d++) parts[1 + d] = last[d];
  ok(context, heed_tape_status(b.tape));
  compare(&b, "out", hd_value(parts[0]));
  float *upstream = floats(hd_count(parts[0]) + 2 * hd_count(last[0])), *states = floats(2 * hd_count(last[0]));
  for (int d = 0; d < layer.directions; d++)
    memcpy(states + d * hd_count(last[0]), hd_value(last[d]), (size_t)hd_count(last[0]) * sizeof *states);
  compare(&b, "last", states);
  int64_t count = append(&b, "grad_out", upstream);
  count += append(&b, "grad_last", upstream + count);
  for (int i = 0; i <= layer.directions; i++) parts[i] = heed_tape_reshape(b.tape, parts[i], 1, (int64_t[]){-1});
  const heed_view view = heed_view_of(upstream, HEED_F32, 1, &count);
  ok(context, heed_tape_backward(b.tape, heed_tape_concat(b.tape, 1 + layer.directions, parts, 0), &view));
  compare_gradients(&b);
  free(states);
  free(upstream);
  close_file(&b);
}

static void gated_recurrent_units(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "gru", one_gru), 2);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(multi_head_attention),
      cmocka_unit_test(encoder_layers),
      cmocka_unit_test(decoder_layers),
      cmocka_unit_test(gated_recurrent_units),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
