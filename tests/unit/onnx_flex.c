/* The node tests of ONNX's operator FlexAttention: fused kernel and oracle. Its modifiers are graphs over all scores, or all weights, at once; here each is a callback, a tile at a time. */
#include "onnx.h"

static heed_context *context;

/* A case's modifier, known by the operators of its graph. */
typedef struct modifier {
  const char *attribute, *operators, *constant; /* constant: the number it needs, or NULL */
  double (*apply)(double score, int64_t query, int64_t key, double constant);
} modifier;

typedef struct call {
  const modifier *by;
  double scale, constant;
} call;

static double add(double score, int64_t query, int64_t key, double bias) { return (void)query, (void)key, score + bias; }
static double cap(double score, int64_t query, int64_t key, double most) { return (void)query, (void)key, most * tanh(score / most); }
static double distance(double score, int64_t query, int64_t key, double none) { return (void)none, score + (double)(query - key); }
static double causal(double score, int64_t query, int64_t key, double none) { return (void)none, query >= key ? score : -HUGE_VAL; }
static double multiply(double factor, int64_t query, int64_t key, double by) { return (void)query, (void)key, factor * by; }

static const modifier modifiers[] = {
    {"score_mod", "Add", "bias", add},
    {"score_mod", "Div Tanh Mul", "cap", cap},
    {"score_mod", "Shape Gather Gather Range Reshape Range Reshape Sub Cast Add", NULL, distance},
    {"score_mod", "Shape Gather Gather Range Reshape Range Reshape GreaterOrEqual Where", NULL, causal},
    {"prob_mod", "Mul", "scale", multiply},
};

static void scores(void *user, const heed_score_tile *tile, float *out) {
  const call *c = user;
  for (int i = 0; i < tile->queries; i++)
    for (int j = 0; j < tile->keys; j++) {
      double sum = 0;
      for (int64_t at = 0; at < tile->d_q; at++) sum += (double)tile->q[i][at] * tile->k[j][at];
      out[i * tile->keys + j] = (float)c->by->apply(sum * c->scale, tile->query + i, tile->key + j, c->constant);
    }
}

static void factors(void *user, const heed_pair_tile *tile, float *out) {
  const call *c = user;
  for (int i = 0; i < tile->queries; i++)
    for (int j = 0; j < tile->keys; j++) out[i * tile->keys + j] = (float)c->by->apply(1, tile->query + i, tile->key + j, c->constant);
}

static const modifier *find(onnx_case *c, double *constant) {
  for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
    const modifier *m = &modifiers[i];
    hd_json_place graph, constants;
    const json_t *operators;
    char names[256] = "";
    if (!hd_json_has(&c->attributes, m->attribute)) continue;
    ok(c->context, hd_json_object(&c->attributes, m->attribute, &graph));
    ok(c->context, hd_json_object(&graph, "constants", &constants));
    ok(c->context, hd_json_array(&graph, "operators", &operators));
    for (size_t j = 0; j < json_array_size(operators); j++) {
      const size_t used = strlen(names);
      snprintf(names + used, sizeof names - used, "%s%s", j ? " " : "", json_string_value(json_array_get(operators, j)));
    }
    if (strcmp(names, m->operators) != 0) continue;
    *constant = 0;
    if (m->constant) ok(c->context, hd_json_number(&constants, m->constant, -HUGE_VAL, HUGE_VAL, constant));
    return m;
  }
  return NULL;
}

/* The kernels take no doubles: what they are given is rounded, and what they must give too. */
static void narrow(onnx_array *array) {
  if (array->type != HEED_F64) return;
  onnx_array out = onnx_new(HEED_F32, array->ndim, array->dim);
  for (int64_t i = 0; i < hd_view_count(array); i++) ((float *)out.data)[i] = (float)((double *)array->data)[i];
  free(array->data);
  *array = out;
}

static void run_case(onnx_case *c) {
  onnx_array q = onnx_load(c, "Q"), k = onnx_load(c, "K"), v = onnx_load(c, "V"), y = onnx_load(c, "Y"), got;
  call call = {.scale = onnx_number(c, "scale", 1 / sqrt((double)q.dim[3]))};
  heed_score score = {.size = sizeof score, .kind = HEED_SCORE_CALLBACK, .scores = scores, .user = &call};
  heed_attention a = {.size = sizeof a, .has_scale = true, .scale = call.scale};
  call.by = find(c, &call.constant);
  const bool modified = hd_json_has(&c->attributes, "score_mod") || hd_json_has(&c->attributes, "prob_mod");
  assert_true((call.by != NULL) == modified);
  if (call.by && call.by->apply == multiply) {
    a.factors = factors;
    a.factors_user = &call;
  } else if (call.by) {
    a.score = &score;
    a.scale = 1; // the modifier comes after the scale
  }
  got = onnx_new(y.type, y.ndim, y.dim);
  ok(context, heed_attention_reference(context, &a, &q, &k, &v, &got, NULL));
  onnx_compare(c, "Y of the oracle", &got, &y);
  onnx_array *all[] = {&q, &k, &v, &y, &got};
  for (int i = 0; i < 5; i++) narrow(all[i]);
  ok(context, heed_attention_forward(context, &a, &q, &k, &v, &got, NULL));
  onnx_compare(c, "Y", &got, &y);
  for (int i = 0; i < 5; i++) free(all[i]->data);
}

static void every_case(void **state) {
  (void)state;
  context = test_context(NULL);
  onnx_each(context, "FlexAttention", 11, run_case);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
