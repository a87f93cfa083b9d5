/* A multi-head layer that names linear attention is its projections and heed_tape_linear_attention, to the bit, with the same gradients; random rows are drawn anew where it trains. */
#include "test.h"

#include "heed/nn.h"
#include "../../src/base/philox.h"
#include "../../src/tensor/tensor.h"

enum { BATCH = 2, ROWS = 70, WIDTH = 32, HEADS = 4, KV_HEADS = 2, PACKED = WIDTH + 2 * KV_HEADS * WIDTH / HEADS };

static heed_context *context;

typedef struct setting {
  heed_parameters *set;
  heed_tape *tape;
  heed_tensor *x, *w_qkv, *w_o;
} setting;

static heed_tensor *parameter(setting *s, const char *name, int ndim, const int64_t *dim) {
  heed_tensor *t = NULL;
  ok(context, heed_parameters_add(s->set, name, ndim, dim, NULL, &t));
  for (int64_t i = 0; i < hd_count(t); i++) hd_value(t)[i] = (float)hd_philox_uniform(5, (uint64_t)name[0], (uint64_t)i) - 0.5f;
  return t;
}

static setting begin(void) {
  setting s = {0};
  ok(context, heed_parameters_new(context, &s.set));
  ok(context, heed_tape_new(context, &s.tape));
  s.x = parameter(&s, "x", 3, (int64_t[]){BATCH, ROWS, WIDTH});
  s.w_qkv = parameter(&s, "qkv", 2, (int64_t[]){PACKED, WIDTH});
  s.w_o = parameter(&s, "output", 2, (int64_t[]){WIDTH, WIDTH});
  return s;
}

static void end(setting *s) {
  heed_tape_free(s->tape);
  heed_parameters_free(s->set);
}

static const heed_linear_attention causal = {.size = sizeof causal, .causal = true};

static void layer_is_its_parts(void **state) {
  (void)state;
  float *value[2], *gradient[2];
  const int64_t count = BATCH * ROWS * WIDTH;
  for (int by_hand = 0; by_hand < 2; by_hand++) {
    setting s = begin();
    const heed_tape_linear_attention_options linear = {
        .size = sizeof linear, .heads = by_hand ? HEADS : 0, .kv_heads = by_hand ? KV_HEADS : 0, .attention = &causal};
    const heed_nn_attention layer = {.heads = HEADS, .kv_heads = KV_HEADS, .w_qkv = s.w_qkv, .w_o = s.w_o, .linear = &linear};
    heed_tensor *out;
    if (by_hand) {
      heed_tensor *heads = heed_tape_linear_attention(s.tape, &linear, heed_tape_linear(s.tape, s.x, s.w_qkv, NULL), NULL, NULL);
      out = heed_tape_linear(s.tape, heads, s.w_o, NULL);
    } else {
      out = heed_nn_attention_apply(s.tape, &layer, s.x, NULL, NULL, NULL);
    }
    heed_tensor *loss = heed_tape_sum(s.tape, out, HEED_ALL_AXES);
    ok(context, heed_tape_status(s.tape));
    value[by_hand] = malloc((size_t)count * sizeof(float));
    gradient[by_hand] = malloc((size_t)count * sizeof(float));
    memcpy(value[by_hand], hd_value(out), (size_t)count * sizeof(float));
    ok(context, heed_tape_backward(s.tape, loss, NULL));
    memcpy(gradient[by_hand], heed_tensor_gradient(s.x).data, (size_t)count * sizeof(float));
    end(&s);
  }
  assert_memory_equal(value[0], value[1], (size_t)count * sizeof(float));
  assert_memory_equal(gradient[0], gradient[1], (size_t)count * sizeof(float));
  for (int i = 0; i < 2; i++) {
    free(value[i]);
    free(gradient[i]);
  }
}

static void weights_are_refused(void **state) {
  (void)state;
  setting s = begin();
  float weights[1];
  const heed_view view = heed_view_of(weights, HEED_F32, 1, (int64_t[]){1});
  const heed_tape_linear_attention_options linear = {.size = sizeof linear, .attention = &causal};
  const heed_nn_attention layer = {.heads = HEADS, .kv_heads = KV_HEADS, .w_qkv = s.w_qkv, .w_o = s.w_o, .linear = &linear};
  assert_null(heed_nn_attention_apply(s.tape, &layer, s.x, NULL, NULL, &view));
  assert_int_equal(heed_tape_status(s.tape), HEED_E_UNSUPPORTED);
  end(&s);
}

/* The first output of a pass with random features. */
static float drawn(setting *s, bool training, uint64_t seed) {
  const heed_linear_attention positive = {.size = sizeof positive, .features = HEED_FEATURES_POSITIVE, .causal = true};
  const heed_tape_linear_attention_options linear = {.size = sizeof linear, .attention = &positive, .features = 16, .redraw = true};
  const heed_nn_attention layer = {.heads = HEADS, .kv_heads = KV_HEADS, .w_qkv = s->w_qkv, .w_o = s->w_o, .linear = &linear};
  heed_tape_reset(s->tape);
  heed_tape_set_training(s->tape, training);
  heed_tape_set_seed(s->tape, seed);
  heed_tensor *out = heed_nn_attention_apply(s->tape, &layer, s->x, NULL, NULL, NULL);
  ok(context, heed_tape_status(s->tape));
  return hd_value(out)[WIDTH * (ROWS - 1)];
}

static void training_draws_anew(void **state) {
  (void)state;
  setting s = begin();
  assert_true(drawn(&s, false, 1) == drawn(&s, false, 2));
  assert_true(drawn(&s, true, 1) == drawn(&s, true, 1));
  assert_true(drawn(&s, true, 1) != drawn(&s, true, 2));
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layer_is_its_parts), cmocka_unit_test(weights_are_refused),
                                     cmocka_unit_test(training_draws_anew)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
