/* Gradients whose bytes must be equal (contract 17, 18): P4–P7, P17, P25–P29, P33, P36 of the backward pass; attention_backward.c holds levels and threads (P34, P35). */
#include "attention_gradients.h"
#include "attention_layouts.h"

static heed_context *context;

/* The gradients through other views of the same numbers. */
static void run_views(const gradients *g, const heed_attention *a, const heed_view *q, const heed_view *k, const heed_view *v,
                      const heed_view *out, const heed_view *lse, const heed_view *dout, const heed_view view[GRADIENTS]) {
  heed_attention_gradients to = gradients_out(g, view);
  ok(context, heed_attention_backward(context, a, q, k, v, out, lse, dout, &to));
}

/* P4: queries in another order have the same dq; dk and dv add up in that order and stay close. */
PROPERTY(p4_permuting_queries, 191, SAMPLE_ATTEND | SAMPLE_BIAS | SAMPLE_LENGTHS) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  s->vattend = view_reversed(s->vattend, 2);
  s->vbias = view_reversed(s->vbias, 2);
  heed_view q = view_reversed(s->vq, 2), out = view_reversed(s->vout, 2), lse = view_reversed(s->vlse, 2), dout = view_reversed(g.vdout, 2);
  heed_view view[GRADIENTS] = {view_reversed(g.view[DQ], 2), g.view[DK], g.view[DV], view_reversed(g.view[DBIAS], 2)};
  run_views(&g, &s->a, &q, &s->vk, &s->vv, &out, &lse, &dout, view);
  assert_same_bytes(g.data[DQ], kept.data[DQ], g.count[DQ] * 4, "dq of queries turned round", r->seed);
  assert_same_bytes(g.data[DBIAS], kept.data[DBIAS], g.count[DBIAS] * 4, "dbias of queries turned round", r->seed);
  for (int i = DK; i <= DV; i++)
    for (int64_t j = 0; j < g.count[i]; j++)
      assert_close(g.data[i][j], kept.data[i][j], 2e-5 * fmax(1, fabs(kept.data[i][j])), gradient_names[i], r->seed);
  kept_free(&kept);
  gradients_free(&g);
}

/* P5: batch entries in another order; heads too, where no group adds up in the order of its heads. */
PROPERTY(p5_permuting_batch_and_heads, 191, SAMPLE_ATTEND | SAMPLE_BIAS | SAMPLE_CAUSAL) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  const heed_view attend = s->vattend, bias = s->vbias;
  for (int axis = 0; axis < 2; axis++) {
    s->vattend = view_reversed(attend, axis);
    s->vbias = view_reversed(bias, axis);
    heed_view q = view_reversed(s->vq, axis), k = view_reversed(s->vk, axis), v = view_reversed(s->vv, axis), view[GRADIENTS];
    heed_view out = view_reversed(s->vout, axis), lse = view_reversed(s->vlse, axis), dout = view_reversed(g.vdout, axis);
    for (int i = 0; i < GRADIENTS; i++) view[i] = view_reversed(g.view[i], axis);
    run_views(&g, &s->a, &q, &k, &v, &out, &lse, &dout, view);
    for (int i = 0; i < GRADIENTS; i++)
      if (axis == 0 || s->heads == s->kv_heads || (i != DK && i != DV))
        assert_same_bytes(g.data[i], kept.data[i], g.count[i] * 4, gradient_names[i], r->seed);
  }
  kept_free(&kept);
  gradients_free(&g);
}

/* One key/value head of one batch entry as a call of its own: the offset of each axis into the full views. */
static heed_view part(heed_view view, int64_t b, int64_t head, int64_t heads) {
  if (!view.data) return view;
  view.data = (char *)view.data + (b * view.stride[0] + head * view.stride[1]) * (int64_t)heed_type_bytes(view.type);
  view.dim[0] = 1;
  view.dim[1] = heads;
  return view;
}

static heed_attention part_description(const sample *s, int64_t b, int64_t head, int64_t heads, heed_view *attend, heed_view *bias,
                                       heed_view *alibi) {
  heed_attention a = s->a;
  if (s->lengths) a.key_lengths = &s->lengths[b];
  *attend = part(s->vattend, b, head, heads);
  *bias = part(s->vbias, b, head, heads);
  if (a.attend) a.attend = attend;
  if (a.bias) a.bias = bias;
  if (a.alibi) *alibi = heed_view_of(s->slopes + head, HEED_F32, 1, &heads), a.alibi = alibi;
  return a;
}

/* P6: a key/value head of one batch entry alone has the gradients it has in the whole. */
PROPERTY(p6_a_group_alone, 300, SAMPLE_ANY) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  int64_t b = below(r, s->batch), kv = below(r, s->kv_heads), group = s->heads / s->kv_heads;
  heed_view attend, bias, alibi, q = part(s->vq, b, kv * group, group), k = part(s->vk, b, kv, 1), v = part(s->vv, b, kv, 1);
  heed_view out = part(s->vout, b, kv * group, group), lse = part(s->vlse, b, kv * group, group),
            dout = part(g.vdout, b, kv * group, group);
  heed_view view[GRADIENTS] = {part(g.view[DQ], b, kv * group, group), part(g.view[DK], b, kv, 1), part(g.view[DV], b, kv, 1),
                               part(g.view[DBIAS], b, kv * group, group)};
  heed_attention a = part_description(s, b, kv * group, group, &attend, &bias, &alibi);
  for (int i = 0; i < GRADIENTS; i++) // the part is written anew, the rest stays
    for (int64_t j = 0; g.input[i] && j < hd_view_count(&view[i]); j++) ((float *)view[i].data)[j] = NAN;
  run_views(&g, &a, &q, &k, &v, &out, &lse, &dout, view);
  gradients_unchanged(kept, &g, "a group alone", r->seed);
  gradients_free(&g);
}

/* P6, P31: dq of a row alone has the bits it has among the others. */
PROPERTY(p6_a_row_alone, 1100, SAMPLE_ATTEND | SAMPLE_BIAS) {
  gradients g;
  gradients_begin(context, s, r, &g);
  for (int tries = 0; tries < 3; tries++) {
    int64_t b = below(r, s->batch), h = below(r, s->heads), i = below(r, s->n), row = (b * s->heads + h) * s->n + i;
    int64_t kv = sample_kv(s, b * s->heads + h);
    float *dq = floats(s->d);
    heed_view attend = heed_view_of(s->attend_data + row * s->m, HEED_BOOL, 2, (int64_t[]){1, s->m});
    heed_view bias = heed_view_of(s->bias_data + row * s->m, HEED_F32, 2, (int64_t[]){1, s->m});
    heed_attention a = {.size = sizeof a, .attend = &attend, .bias = &bias};
    heed_view q = heed_view_of(s->q + row * s->d, HEED_F32, 2, (int64_t[]){1, s->d}),
              lse = heed_view_of(s->lse + row, HEED_F32, 1, (int64_t[]){1});
    heed_view k = heed_view_of(s->k + kv * s->m * s->d, HEED_F32, 2, (int64_t[]){s->m, s->d});
    heed_view v = heed_view_of(s->v + kv * s->m * s->dv, HEED_F32, 2, (int64_t[]){s->m, s->dv});
    heed_view out = heed_view_of(s->out + row * s->dv, HEED_F32, 2, (int64_t[]){1, s->dv});
    heed_view dout = heed_view_of(g.dout + row * s->dv, HEED_F32, 2, (int64_t[]){1, s->dv});
    heed_view vdq = heed_view_of(dq, HEED_F32, 2, (int64_t[]){1, s->d});
    heed_attention_gradients to = {.size = sizeof to, .dq = &vdq};
    ok(context, heed_attention_backward(context, &a, &q, &k, &v, &out, &lse, &dout, &to));
    assert_same_bytes(dq, g.data[DQ] + row * s->d, s->d * 4, "dq of a row alone", r->seed);
    free(dq);
  }
  gradients_free(&g);
}

/* P7: the token at `changed` and all its gradients may be anything: dq before it keeps its bits, and its own query reaches dk and dv of no later key. */
PROPERTY(p7_the_future_changes_nothing, 191, SAMPLE_CAUSAL) {
  align_start(s);
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  const int64_t changed = below(r, s->m), heads = s->batch * s->heads, kv_heads = s->batch * s->kv_heads;
  for (int64_t h = 0; h < heads && changed < s->n; h++) {
    for (int64_t c = 0; c < s->d; c++) s->q[(h * s->n + changed) * s->d + c] = c % 2 ? NAN : 1e30f;
    for (int64_t c = 0; c < s->dv; c++) g.dout[(h * s->n + changed) * s->dv + c] = c % 2 ? INFINITY : NAN;
  }
  sample_run(context, s);
  gradients_run(context, s, &g);
  for (int64_t kv = 0; kv < kv_heads; kv++)
    for (int64_t j = changed + 1; j < s->m; j++) {
      assert_same_bytes(g.data[DK] + (kv * s->m + j) * s->d, kept.data[DK] + (kv * s->m + j) * s->d, s->d * 4, "dk of a later key",
                        r->seed);
      assert_same_bytes(g.data[DV] + (kv * s->m + j) * s->dv, kept.data[DV] + (kv * s->m + j) * s->dv, s->dv * 4, "dv of a later key",
                        r->seed);
    }
  for (int64_t kv = 0; kv < kv_heads; kv++) {
    for (int64_t c = 0; c < s->d; c++) s->k[(kv * s->m + changed) * s->d + c] = c % 2 ? NAN : -1e30f;
    for (int64_t c = 0; c < s->dv; c++) s->v[(kv * s->m + changed) * s->dv + c] = c % 2 ? INFINITY : NAN;
  }
  sample_run(context, s);
  gradients_run(context, s, &g);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < s->n && i < changed; i++)
      assert_same_bytes(g.data[DQ] + (h * s->n + i) * s->d, kept.data[DQ] + (h * s->n + i) * s->d, s->d * 4, "dq before the change",
                        r->seed);
  kept_free(&kept);
  gradients_free(&g);
}

/* P25: every input and every gradient with its axes in any order, gaps and negative strides: the numbers of packed arrays, and nothing written between them. */
PROPERTY(p25_any_strides, 130, SAMPLE_EVERYTHING) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  heed_view q = s->vq, k = s->vk, v = s->vv, out = s->vout, lse = s->vlse, dout = g.vdout, attend = s->vattend, bias = s->vbias;
  heed_view *const inputs[] = {&q, &k, &v, &out, &lse, &dout, &attend, &bias};
  layout in[8], to[GRADIENTS];
  int count = 6;
  heed_attention a = s->a;
  if (a.attend) a.attend = &attend, count = 7;
  if (a.bias) a.bias = &bias, count = 8;
  for (int i = 0; i < count; i++)
    if (inputs[i]->data) in[i] = layout_make(inputs[i], r);
  heed_view view[GRADIENTS];
  for (int i = 0; i < GRADIENTS; i++) {
    if (!g.input[i]) continue;
    view[i] = g.view[i];
    to[i] = layout_make(&view[i], r);
    memset(to[i].memory, LAYOUT_GAP, to[i].bytes);
  }
  run_views(&g, &a, &q, &k, &v, &out, &lse, &dout, view);
  for (int i = 0; i < GRADIENTS; i++)
    if (g.input[i]) layout_expect(&to[i], &view[i], kept.data[i], gradient_names[i], r->seed);
  for (int i = 0; i < count; i++)
    if (inputs[i]->data) free(in[i].memory);
  kept_free(&kept);
  gradients_free(&g);
}

/* P25: an upstream gradient of one number seen everywhere, and keys and values that all heads and batch entries share by strides of 0, are their copies. */
PROPERTY(p25_broadcast_inputs, 130, SAMPLE_ANY) {
  gradients g;
  gradients_make(&g, s, r);
  for (int64_t i = 0; i < sample_out_count(s); i++) g.dout[i] = 1;
  for (int64_t h = 1; h < s->batch * s->kv_heads; h++) {
    memcpy(s->k + h * s->m * s->d, s->k, (size_t)(s->m * s->d) * 4);
    memcpy(s->v + h * s->m * s->dv, s->v, (size_t)(s->m * s->dv) * 4);
  }
  sample_run(context, s);
  gradients_run(context, s, &g);
  kept_gradients kept = gradients_keep(&g);
  float one = 1;
  heed_view k = s->vk, v = s->vv, dout = g.vdout;
  k.stride[0] = k.stride[1] = v.stride[0] = v.stride[1] = 0;
  dout.data = &one;
  memset(dout.stride, 0, sizeof dout.stride);
  run_views(&g, &s->a, &s->vq, &k, &v, &s->vout, &s->vlse, &dout, g.view);
  gradients_unchanged(kept, &g, "broadcast inputs", r->seed);
  gradients_free(&g);
}

/* P26: a gradient in the place of anything else is refused, before anything is written. */
PROPERTY(p26_gradients_stand_apart, 37, 0) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  void *const others[] = {s->q, s->k, s->v, s->out, s->lse, g.dout, g.data[DQ], g.data[DK], g.data[DV]};
  for (int i = 0; i < GRADIENTS; i++)
    for (int j = 0; j < 9; j++) {
      if (!g.input[i] || others[j] == g.data[i]) continue;
      heed_view view[GRADIENTS];
      memcpy(view, g.view, sizeof view);
      view[i].data = others[j];
      heed_attention_gradients to = gradients_out(&g, view);
      assert_int_equal(heed_attention_backward(context, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g.vdout, &to), HEED_E_OVERLAP);
    }
  gradients_unchanged(kept, &g, "refused calls", r->seed);
  gradients_free(&g);
}

/* P27, P28: the gradients of a pattern are those of the boolean mask that spells it out, and of that mask as a bias of 0 and −inf. */
PROPERTY(p27_p28_patterns_are_masks, 300, SAMPLE_CAUSAL | SAMPLE_WINDOW | SAMPLE_LENGTHS) {
  if (below(r, 2)) s->a.causal = false;
  if (below(r, 2)) s->a.has_window_left = false;
  gradients g;
  gradients_begin(context, s, r, &g);
  uint8_t *attend = calloc((size_t)(s->batch * s->n * s->m), 1);
  float *bias = floats(s->batch * s->n * s->m);
  sample_spell_out(s, attend, bias);
  const int64_t dim[] = {s->batch, 1, s->n, s->m};
  heed_view vattend = heed_view_of(attend, HEED_BOOL, 4, dim), vbias = heed_view_of(bias, HEED_F32, 4, dim);
  const heed_attention spelt[] = {{.size = sizeof spelt[0], .attend = &vattend}, {.size = sizeof spelt[0], .bias = &vbias}};
  for (int i = 0; i < 2; i++) {
    kept_gradients kept = gradients_keep(&g);
    run_views(&g, &spelt[i], &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g.vdout, g.view);
    gradients_unchanged(kept, &g, i ? "the pattern as a bias" : "the pattern as a mask", r->seed);
  }
  free(attend);
  free(bias);
  gradients_free(&g);
}

PROPERTY(p29_wide_windows_are_full, 191, 0) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  align_start(s);
  s->a.has_window_left = s->a.has_window_right = true;
  s->a.window_left = s->n;
  s->a.window_right = below(r, 2) ? s->m : INT64_MAX;
  gradients_run(context, s, &g);
  gradients_unchanged(kept, &g, "a wide window", r->seed);
  gradients_free(&g);
}

/* P33: with the lse and the output of the whole, any cut of the keys gives the same dk and dv, and the parts of dq add up. */
PROPERTY(p33_cutting_the_keys, 300, 0) {
  gradients g;
  gradients_begin(context, s, r, &g);
  kept_gradients kept = gradients_keep(&g);
  double *dq = calloc((size_t)g.count[DQ] + 1, sizeof *dq);
  int64_t cut = below(r, s->m + 1);
  for (int side = 0; side < 2; side++) {
    int64_t from = side ? cut : 0, keys = side ? s->m - cut : cut;
    heed_view k = s->vk, v = s->vv, view[GRADIENTS];
    memcpy(view, g.view, sizeof view);
    k.data = s->k + from * s->d;
    v.data = s->v + from * s->dv;
    view[DK].data = g.data[DK] + from * s->d;
    view[DV].data = g.data[DV] + from * s->dv;
    k.dim[2] = v.dim[2] = view[DK].dim[2] = view[DV].dim[2] = keys;
    run_views(&g, &s->a, &s->vq, &k, &v, &s->vout, &s->vlse, &g.vdout, view);
    for (int64_t j = 0; j < g.count[DQ]; j++) dq[j] += g.data[DQ][j];
  }
  for (int64_t j = 0; j < g.count[DQ]; j++) assert_close(dq[j], kept.data[DQ][j], 1e-5 * fmax(1, fabs(dq[j])), "dq in parts", r->seed);
  assert_same_bytes(g.data[DK], kept.data[DK], g.count[DK] * 4, "dk in parts", r->seed);
  assert_same_bytes(g.data[DV], kept.data[DV], g.count[DV] * 4, "dv in parts", r->seed);
  free(dq);
  kept_free(&kept);
  gradients_free(&g);
}

static void p36_a_hundred_times(void **state) {
  (void)state;
  random_source r = {.seed = 36};
  sample s;
  gradients g;
  sample_make(&s, &r, 191, SAMPLE_EVERYTHING);
  gradients_begin(context, &s, &r, &g);
  for (int i = 0; i < 100; i++) {
    kept_gradients kept = gradients_keep(&g);
    for (int k = 0; k < GRADIENTS; k++)
      if (g.count[k]) memset(g.data[k], 0x7f, (size_t)g.count[k] * 4);
    gradients_run(context, &s, &g);
    gradients_unchanged(kept, &g, "the same call again", r.seed);
  }
  gradients_free(&g);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(p4_permuting_queries),
      cmocka_unit_test(p5_permuting_batch_and_heads),
      cmocka_unit_test(p6_a_group_alone),
      cmocka_unit_test(p6_a_row_alone),
      cmocka_unit_test(p7_the_future_changes_nothing),
      cmocka_unit_test(p25_any_strides),
      cmocka_unit_test(p25_broadcast_inputs),
      cmocka_unit_test(p26_gradients_stand_apart),
      cmocka_unit_test(p27_p28_patterns_are_masks),
      cmocka_unit_test(p29_wide_windows_are_full),
      cmocka_unit_test(p33_cutting_the_keys),
      cmocka_unit_test(p36_a_hundred_times),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
