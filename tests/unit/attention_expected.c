/* Attention against values that PyTorch computed in double precision: every combination of the fixtures, forward, weights and log-sum-exp, fused and reference. */
#include "attention_sample.h"

#include "../../src/io/tensors.h"

#include <dirent.h>

static const char FOLDER[] = HEED_TEST_DATA "/expected/layers";

/* One fixture, opened, with its attributes read. */
typedef struct fixture {
  heed_context *context;
  hd_tensors *file;
  const char *name;
  heed_attention a;
  int64_t lengths[8];
  uint8_t *attend;
  double *bias;
  heed_view vattend, vbias;
} fixture;

static double *load(const fixture *f, const char *name, heed_view *view, double *missing) {
  const hd_tensor *tensor = hd_tensors_find(f->file, name);
  if (!tensor) return missing;
  assert_string_equal(tensor->type, "F64");
  double *data = calloc((size_t)tensor->count + 1, sizeof *data);
  ok(f->context, hd_tensors_read(f->context, f->file, tensor, data));
  *view = heed_view_of(data, HEED_F64, tensor->ndim, tensor->dim);
  return data;
}

static char *attribute(const fixture *f, const char *key, char out[64]) {
  heed_text text;
  ok(f->context, hd_meta_text(f->context, f->file, key, &text));
  assert_true(text.length < 64);
  memcpy(out, text.data, text.length);
  out[text.length] = 0;
  return out;
}

static void read_description(fixture *f) {
  char text[64];
  long long left, right;
  f->a = (heed_attention){.size = sizeof f->a, .has_scale = true, .scale = atof(attribute(f, "scale", text))};
  f->a.softcap = atof(attribute(f, "softcap", text));
  attribute(f, "causal", text);
  f->a.causal = strcmp(text, "None") != 0;
  f->a.align = strcmp(text, "top_left") == 0 ? HEED_ALIGN_START : strcmp(text, "bottom_right") == 0 ? HEED_ALIGN_END : HEED_ALIGN_UNSET;
  if (sscanf(attribute(f, "window", text), "(%lld, %lld)", &left, &right) == 2) {
    f->a.has_window_left = f->a.has_window_right = true;
    f->a.window_left = left;
    f->a.window_right = right;
  }
  const hd_tensor *tensor = hd_tensors_find(f->file, "key_lengths");
  if (tensor) {
    int32_t lengths[8];
    assert_true(tensor->count <= 8 && strcmp(tensor->type, "I32") == 0);
    ok(f->context, hd_tensors_read(f->context, f->file, tensor, lengths));
    for (int64_t i = 0; i < tensor->count; i++) f->lengths[i] = lengths[i];
    f->a.key_lengths = f->lengths;
  }
  tensor = hd_tensors_find(f->file, "mask");
  if (tensor) {
    f->attend = calloc((size_t)tensor->count, 1);
    ok(f->context, hd_tensors_read(f->context, f->file, tensor, f->attend));
    f->vattend = heed_view_of(f->attend, HEED_U8, tensor->ndim, tensor->dim);
    f->a.attend = &f->vattend;
  }
  f->bias = load(f, "bias", &f->vbias, NULL);
  if (f->bias) f->a.bias = &f->vbias;
}

/* The same array in single precision. */
static float *narrowed(const heed_view *from, heed_view *view) {
  int64_t count = hd_view_count(from);
  float *data = floats(count);
  for (int64_t i = 0; i < count; i++) data[i] = (float)((double *)from->data)[i];
  *view = heed_view_of(data, HEED_F32, from->ndim, from->dim);
  return data;
}

static void compare(const fixture *f, const char *what, const heed_view *got, const heed_view *want, double tolerance) {
  int64_t count = hd_view_count(want);
  char label[128];
  snprintf(label, sizeof label, "%s %s", f->name, what);
  for (int64_t i = 0; i < count; i++) {
    double expected = ((double *)want->data)[i];
    double value = got->type == HEED_F64 ? ((double *)got->data)[i] : ((float *)got->data)[i];
    // A dead row is exactly 0, its lse exactly −inf.
    assert_close(value, expected, expected == 0 ? 0 : tolerance * fmax(1, fabs(expected)), label, 0);
  }
}

static void run_fixture(heed_context *context, const char *name) {
  fixture f = {.context = context, .name = name};
  char path[512];
  snprintf(path, sizeof path, "%s/%s", FOLDER, name);
  ok(context, hd_tensors_open(context, path, &f.file));
  read_description(&f);
  heed_view q, k, v, out, lse, weights, q32, k32, v32, out32, lse32, weights32, out64, lse64;
  double *wide[] = {load(&f, "q", &q, NULL),     load(&f, "k", &k, NULL),     load(&f, "v", &v, NULL),
                    load(&f, "out", &out, NULL), load(&f, "lse", &lse, NULL), load(&f, "weights", &weights, NULL)};
  float *narrow[] = {narrowed(&q, &q32),     narrowed(&k, &k32),     narrowed(&v, &v32),
                     narrowed(&out, &out32), narrowed(&lse, &lse32), narrowed(&weights, &weights32)};
  out64 = out;
  lse64 = lse;
  out64.data = calloc((size_t)hd_view_count(&out), sizeof(double));
  lse64.data = calloc((size_t)hd_view_count(&lse), sizeof(double));

  heed_attention_extras extras = {.size = sizeof extras, .lse = &lse32};
  ok(context, heed_attention_forward(context, &f.a, &q32, &k32, &v32, &out32, &extras));
  compare(&f, "out", &out32, &out, 2e-6);
  compare(&f, "lse", &lse32, &lse, 2e-6);
  ok(context, heed_attention_weights(context, &f.a, &q32, &k32, q.dim[1], NULL, q.dim[2], NULL, &weights32));
  compare(&f, "weights", &weights32, &weights, 2e-6);
  extras.lse = &lse64;
  ok(context, heed_attention_reference(context, &f.a, &q, &k, &v, &out64, &extras));
  compare(&f, "reference out", &out64, &out, 1e-12);
  compare(&f, "reference lse", &lse64, &lse, 1e-12);

  for (size_t i = 0; i < 6; i++) {
    free(wide[i]);
    free(narrow[i]);
  }
  free(out64.data);
  free(lse64.data);
  free(f.attend);
  free(f.bias);
  hd_tensors_close(f.file);
}

static void every_fixture(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  DIR *folder = opendir(FOLDER);
  assert_non_null(folder);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(folder));)
    if (strncmp(entry->d_name, "sdpa-", 5) == 0) {
      run_fixture(context, entry->d_name);
      count++;
    }
  closedir(folder);
  assert_int_equal(count, 11);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_fixture)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
