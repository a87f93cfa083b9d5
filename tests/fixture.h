/* fixture.h: the attention fixtures: a safetensors file with f64 arrays and, in its metadata, the description of the call. */
#ifndef HEED_FIXTURE_H
#define HEED_FIXTURE_H

#include "attention_sample.h"

#include <dirent.h>

#include "../src/io/tensors.h"

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

/* An f64 array of the file as a view with memory of its own, or NULL. */
static inline double *fixture_load(const fixture *f, const char *name, heed_view *view) {
  const hd_tensor *tensor = hd_tensors_find(f->file, name);
  if (!tensor) return NULL;
  assert_string_equal(tensor->type, "F64");
  double *data = calloc((size_t)tensor->count + 1, sizeof *data);
  ok(f->context, hd_tensors_read(f->context, f->file, tensor, data));
  *view = heed_view_of(data, HEED_F64, tensor->ndim, tensor->dim);
  return data;
}

static inline char *fixture_attribute(const fixture *f, const char *key, char out[64]) {
  heed_text text;
  ok(f->context, hd_meta_text(f->context, f->file, key, &text));
  assert_true(text.length < 64);
  memcpy(out, text.data, text.length);
  out[text.length] = 0;
  return out;
}

/* The attributes of a dot product. */
static inline void fixture_attributes(fixture *f) {
  char text[64];
  long long left, right;
  f->a.has_scale = true;
  f->a.scale = atof(fixture_attribute(f, "scale", text));
  f->a.softcap = atof(fixture_attribute(f, "softcap", text));
  fixture_attribute(f, "causal", text);
  f->a.causal = strcmp(text, "None") != 0;
  f->a.align = strcmp(text, "top_left") == 0 ? HEED_ALIGN_START : strcmp(text, "bottom_right") == 0 ? HEED_ALIGN_END : HEED_ALIGN_UNSET;
  if (sscanf(fixture_attribute(f, "window", text), "(%lld, %lld)", &left, &right) == 2) {
    f->a.has_window_left = f->a.has_window_right = true;
    f->a.window_left = left;
    f->a.window_right = right;
  }
}

static inline void fixture_describe(fixture *f, bool attributes) {
  f->a = (heed_attention){.size = sizeof f->a};
  if (attributes) fixture_attributes(f);
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
  f->bias = fixture_load(f, "bias", &f->vbias);
  if (f->bias) f->a.bias = &f->vbias;
}

/* The same array in single precision. */
static inline float *fixture_narrow(const heed_view *from, heed_view *view) {
  int64_t count = hd_view_count(from);
  float *data = floats(count);
  for (int64_t i = 0; i < count; i++) data[i] = (float)((double *)from->data)[i];
  *view = heed_view_of(data, HEED_F32, from->ndim, from->dim);
  return data;
}

static inline void fixture_open(fixture *f, heed_context *context, const char *path, const char *name) {
  *f = (fixture){.context = context, .name = name};
  ok(context, hd_tensors_open(context, path, &f->file));
  fixture_describe(f, strncmp(name, "sdpa-", 5) == 0); // the others leave everything at its default
}

static inline void fixture_close(fixture *f) {
  free(f->attend);
  free(f->bias);
  hd_tensors_close(f->file);
}

/* Runs body for each file of the folder whose name begins so; returns how many there were. */
static inline int fixtures_each(heed_context *context, const char *folder, const char *prefix,
                                void (*body)(heed_context *context, const char *path, const char *name)) {
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    char path[1024];
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    body(context, path, entry->d_name);
    count++;
  }
  closedir(directory);
  return count;
}

#endif
