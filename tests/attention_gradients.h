/* attention_gradients.h: the gradients of a sample: an upstream gradient, one array for each input, the fused backward pass into them and the oracle's. */
#ifndef HEED_ATTENTION_GRADIENTS_H
#define HEED_ATTENTION_GRADIENTS_H

#include "attention_sample.h"
#include "pthread_parallel.h"

enum { DQ, DK, DV, DBIAS, DSINK, DWQ, DWK, DWV, DRELATIVE, DCONTENT, DPOSITION, DDISTANCES, GRADIENTS };
static const char *const gradient_names[GRADIENTS] = {"dq",  "dk",  "dv",        "dbias",    "dsink",     "dwq",
                                                      "dwk", "dwv", "drelative", "dcontent", "dposition", "ddistances"};

typedef struct gradients {
  float *dout, *data[GRADIENTS];
  float *input[GRADIENTS]; /* what each is the gradient of; NULL where the sample has no such input */
  heed_view vdout, view[GRADIENTS];
  int64_t count[GRADIENTS]; /* elements */
  int64_t pairs;
} gradients;

static inline void gradients_make(gradients *g, const sample *s, random_source *r) {
  const heed_view *like[GRADIENTS] = {&s->vq,      &s->vk,      &s->vv,        s->a.bias,        s->a.sink,         s->score.wq,
                                      s->score.wk, s->score.wv, s->a.relative, s->score.content, s->score.position, s->score.distances};
  *g = (gradients){.pairs = s->batch * s->heads * s->n * s->m};
  g->dout = normals(r, sample_out_count(s));
  g->vdout = heed_view_of(g->dout, HEED_F32, s->vout.ndim, s->vout.dim);
  for (int i = 0; i < GRADIENTS; i++) {
    if (!like[i]) continue;
    g->input[i] = like[i]->data;
    g->count[i] = hd_view_count(like[i]);
    g->data[i] = floats(g->count[i]);
    g->view[i] = heed_view_of(g->data[i], HEED_F32, like[i]->ndim, like[i]->dim);
  }
}

static inline void gradients_free(gradients *g) {
  free(g->dout);
  for (int i = 0; i < GRADIENTS; i++) free(g->data[i]);
}

static inline heed_attention_gradients gradients_out(const gradients *g, const heed_view view[GRADIENTS]) {
  heed_attention_gradients to = {.size = sizeof to};
  const heed_view **const place[GRADIENTS] = {&to.dq,  &to.dk,  &to.dv,        &to.dbias,    &to.dsink,     &to.dwq,
                                              &to.dwk, &to.dwv, &to.drelative, &to.dcontent, &to.dposition, &to.ddistances};
  for (int i = 0; i < GRADIENTS; i++)
    if (g->input[i]) *place[i] = &view[i];
  return to;
}

/* The fused backward pass after a forward pass into s->out and s->lse. */
static inline void gradients_run(heed_context *context, const sample *s, gradients *g) {
  heed_attention_gradients out = gradients_out(g, g->view);
  ok(context, heed_attention_backward(context, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g->vdout, &out));
}

/* Both passes into new arrays: what most properties begin with. */
static inline void gradients_begin(heed_context *context, sample *s, random_source *r, gradients *g) {
  gradients_make(g, s, r);
  sample_run(context, s);
  gradients_run(context, s, g);
}

/* The oracle's gradients, f64; the caller frees each. */
static inline void gradients_reference(heed_context *context, const sample *s, const gradients *g, double *out[GRADIENTS]) {
  heed_view view[GRADIENTS];
  for (int i = 0; i < GRADIENTS; i++) {
    out[i] = calloc((size_t)g->count[i] + 1, sizeof(double));
    if (g->input[i]) view[i] = heed_view_of(out[i], HEED_F64, g->view[i].ndim, g->view[i].dim);
  }
  heed_attention_gradients to = gradients_out(g, view);
  ok(context, heed_attention_backward_reference(context, &s->a, &s->vq, &s->vk, &s->vv, &g->vdout, &to));
}

/* Every gradient within tolerance × max(1, its own largest). An element of a bias that broadcasts is the sum of many pairs that cancel: there their number counts, as it does for rounding. */
static inline void assert_gradients_close(const gradients *g, double *const want[GRADIENTS], double tolerance, uint64_t seed) {
  for (int i = 0; i < GRADIENTS; i++) {
    double largest = i == DBIAS && g->count[i] ? sqrt((double)g->pairs / (double)g->count[i]) : 1;
    for (int64_t j = 0; j < g->count[i]; j++) largest = fmax(largest, fabs(want[i][j]));
    for (int64_t j = 0; j < g->count[i]; j++) assert_close(g->data[i][j], want[i][j], tolerance * largest, gradient_names[i], seed);
  }
}

/* The bytes of every gradient, to compare with later ones; gradients_unchanged frees them. */
typedef struct kept_gradients {
  float *data[GRADIENTS];
} kept_gradients;

static inline kept_gradients gradients_keep(const gradients *g) {
  kept_gradients kept;
  for (int i = 0; i < GRADIENTS; i++) kept.data[i] = copy_of(g->data[i], g->count[i]);
  return kept;
}

static inline void kept_free(kept_gradients *kept) {
  for (int i = 0; i < GRADIENTS; i++) free(kept->data[i]);
}

static inline void gradients_unchanged(kept_gradients kept, const gradients *g, const char *what, uint64_t seed) {
  for (int i = 0; i < GRADIENTS; i++) {
    char label[96];
    snprintf(label, sizeof label, "%s of %s", gradient_names[i], what);
    assert_same_bytes(g->data[i], kept.data[i], g->count[i] * (int64_t)sizeof(float), label, seed);
  }
  kept_free(&kept);
}

/* The loss Σ dout ∘ out in double precision, moved by ±2^-9 along `tries` elements of each input: the slope is the oracle's gradient within tolerance. */
static inline void assert_oracle_is_the_derivative(heed_context *context, sample *s, random_source *r, int tries, double tolerance) {
  const float h = 0x1p-9f;
  gradients g;
  double *want[GRADIENTS];
  gradients_make(&g, s, r);
  gradients_reference(context, s, &g, want);
  for (int i = 0; i < GRADIENTS; i++)
    for (int n = 0; n < tries && g.count[i]; n++) {
      int64_t at = below(r, g.count[i]);
      float *input = g.input[i], kept = input[at];
      if (kept == -INFINITY) continue; // a bias that hides
      double loss[2] = {0, 0}, moved[2];
      for (int side = 0; side < 2; side++) {
        input[at] = kept + (side ? h : -h);
        moved[side] = input[at];
        double *out = sample_reference(context, s, NULL);
        for (int64_t j = 0; j < sample_out_count(s); j++) loss[side] += out[j] * g.dout[j];
        free(out);
      }
      input[at] = kept;
      double slope = (loss[1] - loss[0]) / (moved[1] - moved[0]);
      assert_close(want[i][at], slope, tolerance * fmax(1, fabs(slope)), gradient_names[i], r->seed);
    }
  for (int i = 0; i < GRADIENTS; i++) free(want[i]);
  gradients_free(&g);
}

/* Output and gradients have the same bits on every level that this machine has, on 1 to 64 threads, and on a host's threads. */
static inline void assert_same_bits_everywhere(heed_context *context, sample *s, random_source *r) {
  enum { THREADS = 5 };
  static const int threads[THREADS] = {1, 2, 3, 8, 64};
  gradients g;
  gradients_begin(context, s, r, &g);
  float *out = copy_of(s->out, sample_out_count(s));
  for (int i = 1; i <= HEED_LEVEL_COUNT + THREADS; i++) {
    heed_options options = {.size = sizeof options};
    if (i < HEED_LEVEL_COUNT) options.level = (heed_level)i;
    else if (i < HEED_LEVEL_COUNT + THREADS) options.threads = threads[i - HEED_LEVEL_COUNT];
    else options = (heed_options){.size = sizeof options, .threads = 3, .parallel_for = pthread_parallel};
    if (options.level && !heed_level_available(options.level)) continue;
    heed_context *other = test_context(&options);
    kept_gradients kept = gradients_keep(&g);
    sample_run(other, s);
    assert_same_bytes(out, s->out, sample_out_count(s) * (int64_t)sizeof *out, "out", r->seed);
    gradients_run(other, s, &g);
    gradients_unchanged(kept, &g, options.level ? heed_level_name(options.level) : "another number of threads", r->seed);
    heed_context_free(other);
  }
  free(out);
  gradients_free(&g);
}

#endif
