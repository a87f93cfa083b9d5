/* The multi-head layer over random shapes, forms and restrictions: against the reference, the reference against central differences, and to the bit where that is meant. */
#include "layer_sample.h"
#include "pthread_parallel.h"

#include "../../src/kern/kernels.h"

static heed_context *context;

static void each_layer(int64_t most, void (*body)(layer_sample *s, random_source *r)) {
  for (int round = 0; round < 24; round++) {
    layer_sample s;
    random_source r = {.seed = (uint64_t)round * 1000003 + (uint64_t)most};
    layer_make(context, &s, &r, most);
    body(&s, &r);
    layer_free(&s);
  }
}

#define LAYERS(name, most)                                                                                                                 \
  static void name##_body(layer_sample *s, random_source *r);                                                                              \
  static void name(void **state) {                                                                                                         \
    (void)state;                                                                                                                           \
    each_layer(most, name##_body);                                                                                                         \
  }                                                                                                                                        \
  static void name##_body(layer_sample *s, __attribute__((unused)) random_source *r)

/* ---- against the reference -------------------------------------------------------------------------------------------------------------- */

/* Within 5e-6 of the largest, or of `least` where that is more. */
static void assert_near(const float *got, const double *want, int64_t count, double least, const char *what, uint64_t seed) {
  double largest = least;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[i]));
  for (int64_t i = 0; i < count; i++) assert_close(got[i], want[i], 5e-6 * largest, what, seed);
}

/* A parameter's gradient is a sum over rows, which may cancel (that of b_k does wherever every score may move): there their number counts, as it does for rounding. */
static void gradients_near(const layer_sample *s, double *const want[ARRAYS], uint64_t seed) {
  double rows = sqrt((double)(s->batch * (s->n > s->m ? s->n : s->m)));
  for (int i = 0; i < ARRAYS; i++)
    assert_near(s->array[i].gradient, want[i], s->array[i].count, i < W_QKV ? 1 : fmax(1, rows), array_names[i], seed);
}

LAYERS(matches_the_reference, 97) {
  double *out = layer_reference(context, s), *want[ARRAYS];
  layer_run(context, s);
  assert_near(s->out, out, s->batch * s->n * s->outputs, 1, "out", r->seed);
  layer_reference_backward(context, s, NULL, want);
  gradients_near(s, want, r->seed);
  free(out);
  for (int i = 0; i < ARRAYS; i++) free(want[i]);
}

/* Parameters' gradients are added to what is there, inputs' are not. */
LAYERS(gradients_accumulate, 37) {
  double *want[ARRAYS];
  float *from[ARRAYS];
  for (int i = 0; i < ARRAYS; i++)
    for (int64_t j = 0; j < s->array[i].count; j++) s->array[i].gradient[j] = normal(r);
  for (int i = 0; i < ARRAYS; i++) from[i] = s->array[i].gradient;
  layer_reference_backward(context, s, from, want);
  ok(context, layer_try_forward(context, s));
  ok(context, layer_try_backward(context, s, true));
  gradients_near(s, want, r->seed);
  for (int i = 0; i < ARRAYS; i++) free(want[i]);
}

/* The loss Σ dout ∘ out in double precision, moved by ±h along single inputs. */
LAYERS(the_reference_is_the_derivative, 9) {
  double *want[ARRAYS];
  layer_reference_backward(context, s, NULL, want);
  for (int i = 0; i < ARRAYS; i++)
    for (int tries = 0; tries < 2 && s->array[i].count; tries++) {
      const float h = 0x1p-9f;
      int64_t at = below(r, s->array[i].count);
      float *input = s->array[i].data, kept = input[at];
      double loss[2] = {0, 0}, moved[2];
      for (int side = 0; side < 2; side++) {
        input[at] = kept + (side ? h : -h);
        moved[side] = input[at];
        double *out = layer_reference(context, s);
        for (int64_t j = 0; j < s->batch * s->n * s->outputs; j++) loss[side] += out[j] * s->dout[j];
        free(out);
      }
      input[at] = kept;
      double slope = (loss[1] - loss[0]) / (moved[1] - moved[0]);
      assert_close(want[i][at], slope, 2e-4 * fmax(1, fabs(slope)), array_names[i], r->seed);
    }
  for (int i = 0; i < ARRAYS; i++) free(want[i]);
}

/* ---- equal bits -------------------------------------------------------------------------------------------------------------------------- */

/* Runs again with another context, over results that were cleared. */
static void same_bits(heed_context *other, layer_sample *s, const layer_results *kept, const char *what, uint64_t seed) {
  for (int i = 0; i < ARRAYS; i++)
    if (s->array[i].data) memset(s->array[i].gradient, 255, (size_t)s->array[i].count * 4);
  layer_run(other, s);
  layer_unchanged(kept, s, what, seed);
}

LAYERS(same_bits_everywhere, 129) {
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    if (!heed_level_available(level)) continue;
    heed_context *other = test_context(&(heed_options){.size = sizeof(heed_options), .level = level});
    same_bits(other, s, &kept, heed_level_name(level), r->seed);
    heed_context_free(other);
  }
  for (int threads = 1; threads <= 8; threads++) {
    heed_context *other = test_context(&(heed_options){.size = sizeof(heed_options), .threads = threads, .parallel_for = pthread_parallel});
    same_bits(other, s, &kept, "threads", r->seed);
    heed_context_free(other);
  }
  layer_results_free(&kept);
}

/* Each sequence alone gives its rows of the batch. Dropout counts batch entries, and a bias of the batch belongs to it, so neither is here. */
LAYERS(a_sequence_alone_is_as_in_a_batch, 65) {
  if (s->array[BIAS].data) return;
  s->a.dropout = s->layer.dropout = 0;
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  const int64_t rows[3] = {s->n, s->m, s->m};
  heed_view view[3], dview[3], out = s->vout, dout = s->vdout;
  const heed_view *x[3] = {0}, *dx[ARRAYS] = {0};
  for (int64_t b = 0; b < s->batch; b++) {
    heed_attention a = s->a;
    heed_multi_head layer = s->layer;
    if (a.key_lengths) a.key_lengths += b;
    layer.attention = &a;
    for (int i = 0; i < 3; i++) {
      if (!s->array[i].data) continue;
      view[i] = heed_view_of(s->array[i].data + b * rows[i] * s->width[i], HEED_F32, 2, (int64_t[]){rows[i], s->width[i]});
      dview[i] = heed_view_of(s->array[i].gradient + b * rows[i] * s->width[i], HEED_F32, 2, view[i].dim);
      memset(dview[i].data, 255, (size_t)(rows[i] * s->width[i]) * 4);
      x[i] = &view[i];
      dx[i] = &dview[i];
    }
    out = heed_view_of(s->out + b * s->n * s->outputs, HEED_F32, 2, (int64_t[]){s->n, s->outputs});
    dout = heed_view_of(s->dout + b * s->n * s->outputs, HEED_F32, 2, out.dim);
    memset(out.data, 255, (size_t)(s->n * s->outputs) * 4);
    const heed_multi_head_extras extras = {.size = sizeof extras, .saved = &s->vsaved};
    const heed_multi_head_gradients to = {.size = sizeof to, .dx_query = dx[0], .dx_key = dx[1], .dx_value = dx[2]};
    ok(context, heed_multi_head_forward(context, &layer, x[0], x[1], x[2], &out, &extras));
    ok(context, heed_multi_head_backward(context, &layer, x[0], x[1], x[2], &s->vsaved, &dout, &to));
  }
  layer_unchanged(&kept, s, "a sequence alone", r->seed);
  layer_results_free(&kept);
}

/* Packed weights, three views of one array and three arrays are the same layer. */
LAYERS(forms_of_weights_are_one, 65) {
  if (!s->array[W_QKV].data) return;
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  const int64_t rows[3] = {s->heads * s->d, s->kv_heads * s->d, s->kv_heads * s->dv};
  for (int apart = 0; apart < 2; apart++) {
    heed_view w[3], dw[3], b[3], db[3];
    float *copies[12] = {0};
    for (int64_t i = 0, row = 0; i < 3; row += rows[i++]) {
      const layer_array *pack[2] = {&s->array[W_QKV], &s->array[B_QKV]};
      heed_view *to[4] = {&w[i], &dw[i], &b[i], &db[i]};
      for (int k = 0; k < 4; k++) {
        const layer_array *from = pack[k / 2];
        if (!from->data) continue;
        int64_t width = k < 2 ? s->width[0] : 1, count = rows[i] * width;
        float *data = (k % 2 ? from->gradient : from->data) + row * width;
        if (apart) data = copies[i * 4 + k] = copy_of(data, count);
        *to[k] = heed_view_of(data, HEED_F32, k < 2 ? 2 : 1, (int64_t[]){rows[i], width});
      }
    }
    heed_multi_head layer = s->layer;
    bool bias = s->array[B_QKV].data != NULL;
    layer.w_qkv = layer.b_qkv = NULL;
    layer.w_q = &w[0], layer.w_k = &w[1], layer.w_v = &w[2];
    if (bias) layer.b_q = &b[0], layer.b_k = &b[1], layer.b_v = &b[2];
    const heed_view *view[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) view[i] = &s->array[i].dview;
    heed_multi_head_gradients to = layer_gradients(s, view);
    to.dw_qkv = to.db_qkv = NULL;
    to.dw_q = &dw[0], to.dw_k = &dw[1], to.dw_v = &dw[2];
    if (bias) to.db_q = &db[0], to.db_k = &db[1], to.db_v = &db[2];
    const heed_multi_head_extras extras = {.size = sizeof extras, .saved = &s->vsaved};
    const heed_view *x[3] = {layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE)};
    ok(context, heed_multi_head_forward(context, &layer, x[0], x[1], x[2], &s->vout, &extras));
    ok(context, heed_multi_head_backward(context, &layer, x[0], x[1], x[2], &s->vsaved, &s->vdout, &to));
    for (int64_t i = 0, row = 0; apart && i < 3; row += rows[i++]) {
      memcpy(s->array[W_QKV].gradient + row * s->width[0], dw[i].data, (size_t)(rows[i] * s->width[0]) * 4);
      if (bias) memcpy(s->array[B_QKV].gradient + row, db[i].data, (size_t)rows[i] * 4);
    }
    layer_unchanged(&kept, s, apart ? "weights apart" : "views of packed weights", r->seed);
    for (int i = 0; i < 12; i++) free(copies[i]);
  }
  layer_results_free(&kept);
}

/* Sequence-first arrays ([n,B,width] seen as [B,n,width]) and rows with a gap. */
LAYERS(any_strides, 65) {
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  layer_sample t = *s;
  heed_view *views[8] = {&t.vout, &t.vdout};
  const heed_view *from[8] = {&s->vout, &s->vdout};
  int count = 2;
  for (int i = 0; i < 3; i++) {
    if (!s->array[i].data) continue;
    views[count] = &t.array[i].view, from[count++] = &s->array[i].view;
    views[count] = &t.array[i].dview, from[count++] = &s->array[i].dview;
  }
  float *memory[8];
  for (int v = 0; v < count; v++) {
    int64_t *dim = views[v]->dim, gap = below(r, 3), column = 1 + below(r, 2), row = dim[2] * column + gap;
    memory[v] = floats(dim[0] * dim[1] * row);
    *views[v] = (heed_view){memory[v], HEED_F32, 3, {dim[0], dim[1], dim[2]}, {row, dim[0] * row, column}};
    for (int64_t i = 0; i < hd_view_count(views[v]); i++) *(float *)hd_view_at(views[v], i) = *(float *)hd_view_at(from[v], i);
  }
  layer_describe(&t);
  layer_run(context, &t);
  for (int v = 0; v < count; v++)
    for (int64_t i = 0; i < hd_view_count(views[v]); i++) *(float *)hd_view_at(from[v], i) = *(float *)hd_view_at(views[v], i);
  layer_unchanged(&kept, s, "strides", r->seed);
  for (int v = 0; v < count; v++) free(memory[v]);
  layer_results_free(&kept);
}

/* Everything in halves is the same call on the numbers widened, and each result rounded once. */
LAYERS(halves_are_rounded_once, 65) {
  const hd_kernels *kernels = hd_kernels_of(context);
  heed_type type = below(r, 2) ? HEED_F16 : HEED_BF16;
  layer_sample t = *s;
  uint16_t *halves[2][ARRAYS + 1];
  for (int i = 0; i <= ARRAYS; i++) {
    const layer_array *a = i < ARRAYS ? &s->array[i] : NULL;
    int64_t count = a ? a->count : s->batch * s->n * s->outputs;
    float *data = a ? a->data : s->dout;
    for (int k = 0; k < 2; k++) halves[k][i] = calloc((size_t)count + 1, 2);
    if (!data) continue;
    kernels->narrow(data, count, type, halves[0][i]);
    kernels->widen(halves[0][i], type, count, data);
    heed_view *in = a ? &t.array[i].view : &t.vdout, *out = a ? &t.array[i].dview : &t.vout;
    in->type = out->type = type;
    in->data = halves[0][i];
    out->data = halves[1][i];
  }
  layer_run(context, s);
  layer_describe(&t);
  layer_run(context, &t);
  for (int i = 0; i <= ARRAYS; i++) {
    int64_t count = i < ARRAYS ? s->array[i].count : s->batch * s->n * s->outputs;
    uint16_t *once = calloc((size_t)count + 1, 2);
    if (count) kernels->narrow(i < ARRAYS ? s->array[i].gradient : s->out, count, type, once);
    assert_same_bytes(halves[1][i], once, count * 2, i < ARRAYS ? array_names[i] : "out", r->seed);
    free(once);
    free(halves[0][i]);
    free(halves[1][i]);
  }
}

/* Without saved the result is the same, and the weights asked for are those of the projections. */
LAYERS(inference_and_weights, 65) {
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  if (s->layer.global_tokens) { // whose weights cannot be asked for
    memset(s->out, 255, (size_t)(s->batch * s->n * s->outputs) * 4);
    ok(context, heed_multi_head_forward(context, &s->layer, layer_x(s, X_QUERY), NULL, NULL, &s->vout, NULL));
    layer_unchanged(&kept, s, "a pass that saves nothing", r->seed);
    layer_results_free(&kept);
    return;
  }
  int64_t rows[2] = {below(r, s->n), below(r, s->n)}, heads[1] = {below(r, s->heads)}, count = s->batch * s->heads * s->n * s->m;
  float *all = floats(count), *some = floats(s->batch * 2 * s->m);
  heed_view vall = heed_view_of(all, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
  heed_view vsome = heed_view_of(some, HEED_F32, 4, (int64_t[]){s->batch, 1, 2, s->m});
  const heed_attention_rows asked = {.size = sizeof asked, .n_heads = 1, .heads = heads, .n_rows = 2, .rows = rows};
  heed_multi_head_extras extras = {.size = sizeof extras, .weights = &vall};
  for (int i = 0; i < 2; i++) {
    memset(s->out, 255, (size_t)(s->batch * s->n * s->outputs) * 4);
    ok(context,
       heed_multi_head_forward(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &s->vout, &extras));
    layer_unchanged(&kept, s, "a pass that saves nothing", r->seed);
    extras.weights = &vsome;
    extras.rows = &asked;
  }
  for (int64_t b = 0; b < s->batch; b++)
    for (int i = 0; i < 2; i++)
      assert_same_bytes(some + (b * 2 + i) * s->m, all + ((b * s->heads + heads[0]) * s->n + rows[i]) * s->m, s->m * 4, "rows asked for",
                        r->seed);
  for (int64_t row = 0; row < count && !s->array[SINK].data; row += s->m) {
    double sum = 0;
    for (int64_t j = 0; j < s->m; j++) sum += all[row + j];
    if (fabs(sum - 1) > 1e-5) assert_true(sum == 0 && (s->a.causal || s->a.key_lengths));
  }
  free(all);
  free(some);
  layer_results_free(&kept);
}

/* What is not asked for changes nothing in what is. */
LAYERS(gradients_one_by_one, 33) {
  layer_run(context, s);
  layer_results kept = layer_keep(s);
  for (int i = 0; i < ARRAYS; i++) {
    const heed_view *view[ARRAYS] = {NULL};
    if (!s->array[i].data) continue;
    memset(s->array[i].gradient, 255, (size_t)s->array[i].count * 4);
    view[i] = &s->array[i].dview;
    heed_multi_head_gradients to = layer_gradients(s, view);
    ok(context, heed_multi_head_backward(context, &s->layer, layer_x(s, X_QUERY), layer_x(s, X_KEY), layer_x(s, X_VALUE), &s->vsaved,
                                         &s->vdout, &to));
  }
  layer_unchanged(&kept, s, "one gradient alone", r->seed);
  layer_results_free(&kept);
}

/* ---- dropout ------------------------------------------------------------------------------------------------------------------------------- */

/* The rule for the output, element by element, on a layer that only adds its bias of ones: w_o is 0. */
static void output_dropout_follows_its_rule(void **state) {
  (void)state;
  random_source r = {.seed = 20};
  layer_sample s = {.batch = 3, .n = 70, .m = 70, .heads = 2, .kv_heads = 2, .d = 4, .dv = 4, .width = {8, 8, 8}, .outputs = 133};
  layer_array_new(&s.array[X_QUERY], &r, 1, 3, (int64_t[]){s.batch, s.n, s.width[0]});
  s.a = (heed_attention){.size = sizeof s.a};
  layer_fill(context, &s, &r, true, true);
  memset(s.array[W_O].data, 0, (size_t)s.array[W_O].count * 4);
  for (int64_t i = 0; i < s.outputs; i++) s.array[B_O].data[i] = 1;
  const double p[] = {0.25, 1};
  for (int k = 0; k < 2; k++) {
    s.layer.dropout = p[k];
    s.layer.seed = 0x123456789abcdefu;
    s.layer.stream = 7;
    ok(context, layer_try_forward(context, &s));
    int64_t dropped = 0, count = s.batch * s.n * s.outputs;
    for (int64_t i = 0; i < count; i++) {
      int64_t column = i % s.outputs, row = i / s.outputs % s.n, entry = i / s.outputs / s.n;
      uint32_t counter[4] = {(uint32_t)(column / 4), (uint32_t)row, (uint32_t)entry, 7}, words[4];
      hd_philox(counter, s.layer.seed, words);
      bool drop = words[column % 4] < p[k] * 0x1p32;
      assert_true(s.out[i] == (drop ? 0 : 1 / 0.75f));
      dropped += drop;
    }
    assert_true(fabs((double)dropped / (double)count - p[k]) < 0.01);
  }
  layer_free(&s);
}

/* ---- sizes of nothing ------------------------------------------------------------------------------------------------------------------------ */

static void empty_calls(void **state) {
  (void)state;
  // batch, n, m, width, outputs
  const int64_t sizes[][5] = {{0, 3, 4, 8, 5}, {2, 0, 4, 8, 5}, {2, 3, 0, 8, 5}, {2, 3, 4, 0, 5}, {2, 3, 4, 8, 0}};
  for (int i = 0; i < 5; i++) {
    const int64_t *z = sizes[i];
    random_source r = {.seed = 5};
    layer_sample s = {
        .batch = z[0], .n = z[1], .m = z[2], .heads = 2, .kv_heads = 1, .d = 4, .dv = 3, .width = {z[3], z[3], z[3]}, .outputs = z[4]};
    layer_array_new(&s.array[X_QUERY], &r, 1, 3, (int64_t[]){s.batch, s.n, s.width[0]});
    layer_array_new(&s.array[X_KEY], &r, 1, 3, (int64_t[]){s.batch, s.m, s.width[1]});
    s.a = (heed_attention){.size = sizeof s.a};
    layer_fill(context, &s, &r, true, true);
    double *want[ARRAYS], *out = layer_reference(context, &s);
    for (int k = 0; k < ARRAYS; k++)
      for (int64_t j = 0; j < s.array[k].count; j++) s.array[k].gradient[j] = NAN;
    layer_run(context, &s);
    assert_near(s.out, out, s.batch * s.n * s.outputs, 1, "out", (uint64_t)i);
    layer_reference_backward(context, &s, NULL, want);
    gradients_near(&s, want, (uint64_t)i);
    for (int k = 0; k < ARRAYS; k++) free(want[k]);
    free(out);
    layer_free(&s);
  }
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matches_the_reference),
      cmocka_unit_test(gradients_accumulate),
      cmocka_unit_test(the_reference_is_the_derivative),
      cmocka_unit_test(same_bits_everywhere),
      cmocka_unit_test(a_sequence_alone_is_as_in_a_batch),
      cmocka_unit_test(forms_of_weights_are_one),
      cmocka_unit_test(any_strides),
      cmocka_unit_test(halves_are_rounded_once),
      cmocka_unit_test(inference_and_weights),
      cmocka_unit_test(gradients_one_by_one),
      cmocka_unit_test(output_dropout_follows_its_rule),
      cmocka_unit_test(empty_calls),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
