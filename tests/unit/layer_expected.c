/* The multi-head layer against what PyTorch's nn.MultiheadAttention computed in double precision: outputs, weights and every gradient, by the fast passes and by the reference. */
#include "fixture.h"

/* The fixture's arrays by name, in double precision and narrowed; one that the file lacks has no data. */
typedef struct {
  heed_context *context;
  hd_tensors *file;
  const char *name;
} source;

typedef struct {
  heed_view wide, narrow;
} array;

static array load(const source *from, const char *name) {
  const fixture f = {.context = from->context, .file = from->file};
  array out = {0};
  if (fixture_load(&f, name, &out.wide)) fixture_narrow(&out.wide, &out.narrow);
  return out;
}

static void array_free(array *a) {
  free(a->wide.data);
  free(a->narrow.data);
}

static const heed_view *view_of(const array *a, bool wide) { return !a->wide.data ? NULL : wide ? &a->wide : &a->narrow; }

/* A cleared array of the same shape and kind. */
static heed_view like(const heed_view *view) {
  heed_view out = heed_view_of(NULL, view->type, view->ndim, view->dim);
  out.data = calloc((size_t)hd_view_count(view) + 1, heed_type_bytes(view->type));
  assert_non_null(out.data);
  return out;
}

/* Within tolerance × the largest magnitude. */
static void compare(const source *from, const char *what, const heed_view *got, const heed_view *want, double tolerance) {
  double largest = 0;
  char label[128];
  snprintf(label, sizeof label, "%s %s", from->name, what);
  for (int64_t i = 0; i < hd_view_count(want); i++) largest = fmax(largest, fabs(((double *)want->data)[i]));
  for (int64_t i = 0; i < hd_view_count(want); i++) {
    double value = got->type == HEED_F64 ? ((double *)got->data)[i] : ((float *)got->data)[i];
    assert_close(value, ((double *)want->data)[i], tolerance * largest, label, 0);
  }
}

enum { X, MEMORY, W_QKV, W_Q, W_K, W_V, B_QKV, W_O, B_O, PARAMETERS };
static const char *const names[] = {"x",
                                    "memory",
                                    "param.in_proj_weight",
                                    "param.q_proj_weight",
                                    "param.k_proj_weight",
                                    "param.v_proj_weight",
                                    "param.in_proj_bias",
                                    "param.out_proj.weight",
                                    "param.out_proj.bias"};

/* A bias that PyTorch keeps packed beside weights that it does not. */
typedef struct {
  heed_multi_head layer;
  const heed_view *x, *memory;
} call;

static call describe(const array *a, const heed_attention *attention, int64_t heads, bool wide) {
  const heed_view *view[PARAMETERS];
  for (int i = 0; i < PARAMETERS; i++) view[i] = view_of(&a[i], wide);
  return (call){.layer = {.size = sizeof(heed_multi_head),
                          .heads = heads,
                          .attention = attention,
                          .w_qkv = view[W_QKV],
                          .w_q = view[W_Q],
                          .w_k = view[W_K],
                          .w_v = view[W_V],
                          .b_qkv = view[B_QKV],
                          .w_o = view[W_O],
                          .b_o = view[B_O]},
                .x = view[X],
                .memory = view[MEMORY]};
}

static void check_outputs(const source *from, const call *c, const heed_view *saved, const heed_view *out, const heed_view *weights,
                          bool wide) {
  heed_view got = like(wide ? out : c->x), seen = heed_view_of(NULL, HEED_F32, weights->ndim, weights->dim);
  if (!wide) got.dim[2] = out->dim[2];
  if (wide) {
    ok(from->context, heed_multi_head_reference(from->context, &c->layer, c->x, c->memory, NULL, &got));
  } else {
    seen.data = calloc((size_t)hd_view_count(weights), sizeof(float));
    const heed_multi_head_extras extras = {.size = sizeof extras, .saved = saved, .weights = &seen};
    ok(from->context, heed_multi_head_forward(from->context, &c->layer, c->x, c->memory, NULL, &got, &extras));
    compare(from, "weights", &seen, weights, 5e-6);
  }
  compare(from, wide ? "reference out" : "out", &got, out, wide ? 1e-12 : 5e-6);
  free(got.data);
  free(seen.data);
}

static void check_gradients(const source *from, const call *c, const heed_view *saved, const array *a, const array *dout, bool wide) {
  heed_view d[PARAMETERS];
  heed_multi_head_gradients to = {.size = sizeof to};
  const heed_view **const place[] = {&to.dx_query, &to.dx_key, &to.dw_qkv, &to.dw_q, &to.dw_k, &to.dw_v, &to.db_qkv, &to.dw_o, &to.db_o};
  for (int i = 0; i < PARAMETERS; i++) {
    d[i] = (heed_view){0};
    if (!a[i].wide.data) continue;
    d[i] = like(view_of(&a[i], wide));
    *place[i] = &d[i];
  }
  if (wide) {
    ok(from->context, heed_multi_head_backward_reference(from->context, &c->layer, c->x, c->memory, NULL, &dout->wide, &to));
  } else {
    ok(from->context, heed_multi_head_backward(from->context, &c->layer, c->x, c->memory, NULL, saved, &dout->narrow, &to));
  }
  for (int i = 0; i < PARAMETERS; i++) {
    char name[64];
    if (!a[i].wide.data) continue;
    snprintf(name, sizeof name, "grad.%s", names[i]);
    array want = load(from, name);
    assert_non_null(want.wide.data);
    compare(from, name, &d[i], &want.wide, wide ? 1e-12 : 5e-6);
    array_free(&want);
    free(d[i].data);
  }
}

static void run_fixture(heed_context *context, const char *path, const char *name) {
  source from = {.context = context, .name = name};
  ok(context, hd_tensors_open(context, path, &from.file));
  const fixture f = {.context = context, .file = from.file};
  char text[64];
  array a[PARAMETERS], out = load(&from, "out"), weights = load(&from, "weights"), dout = load(&from, "grad_out");
  for (int i = 0; i < PARAMETERS; i++) a[i] = load(&from, names[i]);
  int64_t heads = atoi(fixture_attribute(&f, "heads", text)), lengths[8];
  heed_attention attention = {.size = sizeof attention};
  attention.causal = strcmp(fixture_attribute(&f, "causal", text), "True") == 0;
  // The lengths stand for PyTorch's key_padding_mask, which is true where a key is padding: the opposite of attend.
  const hd_tensor *tensor = hd_tensors_find(from.file, "key_lengths");
  if (tensor) {
    int32_t stored[8];
    assert_true(tensor->count <= 8);
    ok(context, hd_tensors_read(context, from.file, tensor, stored));
    for (int64_t i = 0; i < tensor->count; i++) lengths[i] = stored[i];
    attention.key_lengths = lengths;
  }
  for (int wide = 0; wide < 2; wide++) {
    call c = describe(a, &attention, heads, wide);
    heed_view saved = {.type = HEED_F32, .ndim = 1, .stride = {1}};
    if (!wide) ok(context, heed_multi_head_saved_size(context, &c.layer, c.x, c.memory, NULL, &saved.dim[0]));
    saved.data = calloc((size_t)saved.dim[0] + 1, sizeof(float));
    check_outputs(&from, &c, &saved, &out.wide, &weights.wide, wide);
    check_gradients(&from, &c, &saved, a, &dout, wide);
    free(saved.data);
  }
  for (int i = 0; i < PARAMETERS; i++) array_free(&a[i]);
  array_free(&out);
  array_free(&weights);
  array_free(&dout);
  hd_tensors_close(from.file);
}

static void every_fixture(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  assert_int_equal(fixtures_each(context, HEED_TEST_DATA "/expected/layers", "mha-", run_fixture), 4);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_fixture)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
