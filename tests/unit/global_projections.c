/* Longformer's projections of their own for global tokens: output, weights and gradients of the layer on the tape (heed_nn_attention) beside a naive form in double precision, and what they do not go
 * with; the output of heed_multi_head, whose gradients are tests/unit/layer.c's. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "heed/nn.h"
#include "../../src/base/philox.h"
#include "../../src/tensor/tensor.h"

enum {
  BATCH = 2,
  ROWS = 12,
  WIDTH = 8,
  HEADS = 4,
  KV_HEADS = 2,
  D = 2,
  PACKED = (HEADS + 2 * KV_HEADS) * D,
  KV = 2 * KV_HEADS * D,
  LEFT = 2,
  GLOBAL = 3
};
enum { X, QKV, BIAS, Q_GLOBAL, Q_BIAS, KV_GLOBAL, KV_BIAS, OUTPUT, PARAMETERS };

static const struct {
  const char *name;
  int ndim;
  int64_t dim[3];
} shapes[PARAMETERS] = {[X] = {"x", 3, {BATCH, ROWS, WIDTH}},
                        [QKV] = {"qkv", 2, {PACKED, WIDTH}},
                        [BIAS] = {"b", 1, {PACKED}},
                        [Q_GLOBAL] = {"global_q", 2, {HEADS * D, WIDTH}},
                        [Q_BIAS] = {"global_bq", 1, {HEADS * D}},
                        [KV_GLOBAL] = {"global_kv", 2, {KV, WIDTH}},
                        [KV_BIAS] = {"global_bkv", 1, {KV}},
                        [OUTPUT] = {"output", 2, {WIDTH, HEADS *D}}};

static heed_context *context;

typedef struct setting {
  heed_parameters *set;
  heed_tape *tape;
  heed_tensor *of[PARAMETERS];
  double *value[PARAMETERS]; /* the same numbers */
  int64_t global;
  bool causal;
  int64_t lengths[BATCH];
} setting;

static void begin(setting *s, int64_t global, bool causal) {
  *s = (setting){.global = global, .causal = causal, .lengths = {ROWS, ROWS - 3}};
  ok(context, heed_parameters_new(context, &s->set));
  ok(context, heed_tape_new(context, &s->tape));
  for (int i = 0; i < PARAMETERS; i++) {
    ok(context, heed_parameters_add(s->set, shapes[i].name, shapes[i].ndim, shapes[i].dim, NULL, &s->of[i]));
    s->value[i] = malloc((size_t)hd_count(s->of[i]) * sizeof(double));
    for (int64_t j = 0; j < hd_count(s->of[i]); j++)
      s->value[i][j] = hd_value(s->of[i])[j] = (float)(2 * hd_philox_uniform(11, (uint64_t)i, (uint64_t)j) - 1);
  }
}

static void end(setting *s) {
  for (int i = 0; i < PARAMETERS; i++) free(s->value[i]);
  heed_tape_free(s->tape);
  heed_parameters_free(s->set);
}

/* ---- the naive form ------------------------------------------------------------------------------------------------------------- */

static double projected(const setting *s, int w, int b, int64_t row, const double *x) {
  double sum = s->value[b][row];
  for (int c = 0; c < WIDTH; c++) sum += s->value[w][row * WIDTH + c] * x[c];
  return sum;
}

static bool sees(const setting *s, int64_t batch, int64_t i, int64_t j) {
  if (j >= s->lengths[batch] || (s->causal && j > i)) return false;
  return (j <= i && i - j <= LEFT) || i < s->global || j < s->global;
}

/* out [B,n,width], and unless NULL weights [B,H,n,n]. */
static void naive(const setting *s, double *out, double *weights) {
  for (int64_t at = 0; at < BATCH * ROWS; at++) {
    const int64_t batch = at / ROWS, i = at % ROWS;
    const double *x = s->value[X] + batch * ROWS * WIDTH;
    const bool global = i < s->global;
    double heads[HEADS * D];
    for (int h = 0; h < HEADS; h++) {
      const int kv = h / (HEADS / KV_HEADS);
      double weight[ROWS], sum = 0;
      for (int64_t j = 0; j < ROWS; j++) {
        double score = 0;
        for (int c = 0; c < D; c++) {
          const double q =
              global ? projected(s, Q_GLOBAL, Q_BIAS, h * D + c, x + i * WIDTH) : projected(s, QKV, BIAS, h * D + c, x + i * WIDTH);
          const double k = global ? projected(s, KV_GLOBAL, KV_BIAS, kv * D + c, x + j * WIDTH)
                                  : projected(s, QKV, BIAS, (HEADS + kv) * D + c, x + j * WIDTH);
          score += q * k;
        }
        sum += weight[j] = sees(s, batch, i, j) ? exp(score / sqrt(D)) : 0;
      }
      for (int64_t j = 0; j < ROWS; j++) weight[j] /= sum;
      for (int64_t j = 0; weights && j < ROWS; j++) weights[((batch * HEADS + h) * ROWS + i) * ROWS + j] = weight[j];
      for (int c = 0; c < D; c++) {
        heads[h * D + c] = 0;
        for (int64_t j = 0; j < ROWS; j++)
          heads[h * D + c] += weight[j] * (global ? projected(s, KV_GLOBAL, KV_BIAS, (KV_HEADS + kv) * D + c, x + j * WIDTH)
                                                  : projected(s, QKV, BIAS, (HEADS + KV_HEADS + kv) * D + c, x + j * WIDTH));
      }
    }
    for (int o = 0; o < WIDTH; o++) {
      out[at * WIDTH + o] = 0;
      for (int c = 0; c < HEADS * D; c++) out[at * WIDTH + o] += s->value[OUTPUT][o * HEADS * D + c] * heads[c];
    }
  }
}

/* The loss Σ out², as if it were 2 · out fixed: its derivative along a number of a parameter, by central differences. */
static double slope(setting *s, int parameter, int64_t at, const double *upstream) {
  enum { COUNT = BATCH * ROWS * WIDTH };
  double *number = s->value[parameter] + at, kept = *number, loss[2] = {0, 0}, out[COUNT];
  for (int side = 0; side < 2; side++) {
    *number = kept + (side ? 1e-5 : -1e-5);
    naive(s, out, NULL);
    for (int i = 0; i < COUNT; i++) loss[side] += out[i] * upstream[i];
  }
  *number = kept;
  return (loss[1] - loss[0]) / 2e-5;
}

/* ---- beside it ------------------------------------------------------------------------------------------------------------------- */

static const heed_pattern window = {.size = sizeof window, .kind = HEED_PATTERN_WINDOW, .left = LEFT};

static void beside_the_naive_form(setting *s) {
  enum { COUNT = BATCH * ROWS * WIDTH, PAIRS = BATCH * HEADS * ROWS * ROWS };
  static float weights[PAIRS];
  static double want[COUNT], want_weights[PAIRS], upstream[COUNT];
  const heed_pattern all = {.size = sizeof all, .kind = HEED_PATTERN_GLOBAL, .count = s->global}, *part[] = {&window, &all};
  const heed_pattern both = {.size = sizeof both, .kind = HEED_PATTERN_UNION, .parts = 2, .part = part};
  const heed_attention a = {.size = sizeof a, .causal = s->causal, .align = HEED_ALIGN_START, .key_lengths = s->lengths, .pattern = &both};
  const heed_nn_attention layer = {.heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .w_qkv = s->of[QKV],
                                   .b_qkv = s->of[BIAS],
                                   .w_o = s->of[OUTPUT],
                                   .attention = &a,
                                   .w_q_global = s->of[Q_GLOBAL],
                                   .b_q_global = s->of[Q_BIAS],
                                   .w_kv_global = s->of[KV_GLOBAL],
                                   .b_kv_global = s->of[KV_BIAS],
                                   .global_tokens = s->global};
  const heed_view looked = heed_view_of(weights, HEED_F32, 4, (int64_t[]){BATCH, HEADS, ROWS, ROWS});
  heed_tensor *out = heed_nn_attention_apply(s->tape, &layer, s->of[X], NULL, NULL, &looked);
  heed_tensor *loss = heed_tape_sum(s->tape, heed_tape_mul(s->tape, out, out), HEED_ALL_AXES);
  ok(context, heed_tape_status(s->tape));
  naive(s, want, want_weights);
  for (int i = 0; i < COUNT; i++)
    if (!(fabs(hd_value(out)[i] - want[i]) <= 2e-6)) fail_msg("out[%d] is %.9g, expected %.9g", i, hd_value(out)[i], want[i]);
  for (int i = 0; i < PAIRS; i++)
    if (!(fabs(weights[i] - want_weights[i]) <= 1e-6)) fail_msg("weight %d is %.9g, expected %.9g", i, weights[i], want_weights[i]);
  for (int i = 0; i < COUNT; i++) upstream[i] = 2 * want[i];
  ok(context, heed_tape_backward(s->tape, loss, NULL));
  for (int p = 0; p < PARAMETERS; p++) {
    const float *gradient = heed_tensor_gradient(s->of[p]).data;
    for (int64_t i = 0; i < hd_count(s->of[p]); i += 3) {
      const double expected = slope(s, p, i, upstream);
      const double got = gradient ? gradient[i] : 0; // none where every row is global
      if (!(fabs(got - expected) <= 1e-4 * fmax(1, fabs(expected))))
        fail_msg("gradient of %s[%lld] is %.9g, expected %.9g", shapes[p].name, (long long)i, got, expected);
    }
  }
}

static void output_weights_and_gradients(void **state) {
  (void)state;
  static const int64_t globals[] = {1, GLOBAL, ROWS, ROWS + 5}; // more than there are: all are
  for (int causal = 0; causal < 2; causal++)
    for (int i = 0; i < 4; i++) {
      setting s;
      begin(&s, globals[i], causal);
      beside_the_naive_form(&s);
      end(&s);
    }
}

/* heed_multi_head and its oracle. */
static void the_core_layer(void **state) {
  (void)state;
  enum { COUNT = BATCH * ROWS * WIDTH };
  static double want[COUNT], found[COUNT], packed[PACKED * WIDTH], biases[PACKED];
  static float out[COUNT], narrow[PACKED * WIDTH], narrow_biases[PACKED];
  setting s;
  begin(&s, GLOBAL, true);
  for (int i = 0; i < PACKED * WIDTH; i++) {
    const int queries = HEADS * D * WIDTH;
    narrow[i] = (float)(packed[i] = i < queries ? s.value[Q_GLOBAL][i] : s.value[KV_GLOBAL][i - queries]);
  }
  for (int i = 0; i < PACKED; i++)
    narrow_biases[i] = (float)(biases[i] = i < HEADS * D ? s.value[Q_BIAS][i] : s.value[KV_BIAS][i - HEADS * D]);
  const heed_pattern all = {.size = sizeof all, .kind = HEED_PATTERN_GLOBAL, .count = GLOBAL}, *part[] = {&window, &all};
  const heed_pattern both = {.size = sizeof both, .kind = HEED_PATTERN_UNION, .parts = 2, .part = part};
  const heed_attention a = {.size = sizeof a, .causal = true, .align = HEED_ALIGN_START, .key_lengths = s.lengths, .pattern = &both};
  naive(&s, want, NULL);
  for (int wide = 0; wide < 2; wide++) {
    const heed_type type = wide ? HEED_F64 : HEED_F32;
    heed_view view[PARAMETERS], result = heed_view_of(wide ? (void *)found : out, type, 3, shapes[X].dim);
    for (int i = 0; i < PARAMETERS; i++)
      view[i] = heed_view_of(wide ? (void *)s.value[i] : hd_value(s.of[i]), type, shapes[i].ndim, shapes[i].dim);
    const heed_view w = heed_view_of(wide ? (void *)packed : narrow, type, 2, shapes[QKV].dim),
                    b = heed_view_of(wide ? (void *)biases : narrow_biases, type, 1, shapes[BIAS].dim);
    const heed_multi_head layer = {.size = sizeof layer,
                                   .heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .head_width = D,
                                   .attention = &a,
                                   .w_qkv = &view[QKV],
                                   .b_qkv = &view[BIAS],
                                   .w_o = &view[OUTPUT],
                                   .global_tokens = GLOBAL,
                                   .w_qkv_global = &w,
                                   .b_qkv_global = &b};
    if (wide) ok(context, heed_multi_head_reference(context, &layer, &view[X], NULL, NULL, &result));
    else ok(context, heed_multi_head_forward(context, &layer, &view[X], NULL, NULL, &result, NULL));
  }
  for (int i = 0; i < COUNT; i++) {
    if (!(fabs(found[i] - want[i]) <= 1e-12)) fail_msg("the oracle's out[%d] is %.15g, expected %.15g", i, found[i], want[i]);
    if (!(fabs(out[i] - want[i]) <= 2e-6)) fail_msg("out[%d] is %.9g, expected %.9g", i, out[i], want[i]);
  }
  end(&s);
}

/* Nothing in, nothing out, and a gradient of nothing is 0. */
static void no_rows(void **state) {
  (void)state;
  setting s;
  begin(&s, GLOBAL, false);
  float gradient[PACKED * WIDTH], nothing[64];
  memset(gradient, 77, sizeof gradient);
  const heed_view x = heed_view_of(nothing, HEED_F32, 3, (int64_t[]){2, 0, WIDTH}), out = heed_view_of(nothing + 8, HEED_F32, 3, x.dim),
                  dout = heed_view_of(nothing + 16, HEED_F32, 3, x.dim), saved = heed_view_of(nothing + 24, HEED_F32, 1, (int64_t[]){0}),
                  w_o = heed_tensor_value(s.of[OUTPUT]), w = heed_tensor_value(s.of[QKV]),
                  dw = heed_view_of(gradient, HEED_F32, 2, shapes[QKV].dim);
  const heed_multi_head layer = {.size = sizeof layer,
                                 .heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_width = D,
                                 .w_qkv = &w,
                                 .w_o = &w_o,
                                 .global_tokens = GLOBAL,
                                 .w_qkv_global = &w};
  const heed_multi_head_extras extras = {.size = sizeof extras, .saved = &saved};
  const heed_multi_head_gradients to = {.size = sizeof to, .dw_qkv_global = &dw};
  ok(context, heed_multi_head_forward(context, &layer, &x, NULL, NULL, &out, &extras));
  ok(context, heed_multi_head_backward(context, &layer, &x, NULL, NULL, &saved, &dout, &to));
  for (int i = 0; i < PACKED * WIDTH; i++) assert_true(gradient[i] == 0);
  end(&s);
}

static void refused(setting *s, const heed_nn_attention *layer, heed_status status, const char *says) {
  heed_tape_reset(s->tape);
  assert_null(heed_nn_attention_apply(s->tape, layer, s->of[X], NULL, NULL, NULL));
  assert_int_equal(heed_tape_status(s->tape), status);
  if (!strstr(heed_error(context), says)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), says);
}

static void refusals(void **state) {
  (void)state;
  setting s;
  begin(&s, GLOBAL, false);
  const int64_t ends[] = {0, ROWS};
  const heed_attention packed = {.size = sizeof packed, .documents = 1, .query_documents = ends},
                       end_aligned = {.size = sizeof packed, .align = HEED_ALIGN_END};
  const heed_tape_linear_attention_options linear = {.size = sizeof linear};
  heed_nn_attention layer = {.heads = HEADS,
                             .kv_heads = KV_HEADS,
                             .w_qkv = s.of[QKV],
                             .w_o = s.of[OUTPUT],
                             .w_q_global = s.of[Q_GLOBAL],
                             .w_kv_global = s.of[KV_GLOBAL]};
  refused(&s, &layer, HEED_E_ARGUMENT, "0 global tokens, with w_q_global and with w_kv_global: all three or none");
  layer.global_tokens = -1;
  refused(&s, &layer, HEED_E_ARGUMENT, "-1 global tokens");
  layer.global_tokens = GLOBAL;
  layer.attention = &packed;
  refused(&s, &layer, HEED_E_UNSUPPORTED, "neither bias nor attend nor documents");
  layer.attention = &end_aligned;
  refused(&s, &layer, HEED_E_UNSUPPORTED, "begin with the first row");
  layer.attention = NULL;
  layer.linear = &linear;
  refused(&s, &layer, HEED_E_UNSUPPORTED, "linear and LSH attention have no projections");
  layer.linear = NULL;
  layer.w_kv_global = NULL;
  refused(&s, &layer, HEED_E_ARGUMENT, "with w_q_global and without w_kv_global");
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(output_weights_and_gradients), cmocka_unit_test(the_core_layer),
                                     cmocka_unit_test(no_rows), cmocka_unit_test(refusals)};
  context = test_context(NULL);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
