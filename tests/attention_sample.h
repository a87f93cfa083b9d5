/* attention_sample.h: random attention calls for tests: shapes at the edges of tiles, every restriction alone and together, arrays that the sample owns.
 * A sample is made from a seed, which a failing test prints. */
#ifndef HEED_ATTENTION_SAMPLE_H
#define HEED_ATTENTION_SAMPLE_H

#include "test.h"

#include <math.h>
#include <stdio.h>

#include "../src/base/philox.h"

typedef struct random_source {
  uint64_t seed, next;
} random_source;

static inline double uniform(random_source *r) { return hd_philox_uniform(r->seed, 1, r->next++); }
static inline int64_t below(random_source *r, int64_t n) { return (int64_t)(uniform(r) * (double)n); }
/* Roughly normal, bounded by ±2√3: the sum of four uniforms from one draw. */
static inline float normal(random_source *r) {
  uint32_t counter[4] = {(uint32_t)r->next++, 0, 2, 0}, words[4];
  hd_philox(counter, r->seed, words);
  double sum = (double)words[0] + words[1] + words[2] + words[3];
  return (float)((sum * 0x1p-32 - 2) * 1.7320508075688772);
}

/* What a sample may be restricted or changed by. SAMPLE_ANY draws each restriction, term and cap with probability 1/3; SAMPLE_EVERYTHING also what takes weight away (sink, dropout), so that rows
 * need not sum to 1. */
enum {
  SAMPLE_CAUSAL = 1,
  SAMPLE_WINDOW = 2,
  SAMPLE_LENGTHS = 4,
  SAMPLE_ATTEND = 8,
  SAMPLE_BIAS = 16,
  SAMPLE_SOFTCAP = 32,
  SAMPLE_ALIBI = 64,
  SAMPLE_DOCUMENTS = 128,
  SAMPLE_KINDS = 8,
  SAMPLE_SINK = 256,
  SAMPLE_DROPOUT = 512,
  SAMPLE_BROADCAST = 1024, /* a bias that has some axes only once */
  SAMPLE_ALL_KINDS = 11,
  /* One of these: not drawn, and keys may be of another width than queries. */
  SAMPLE_ADDITIVE = 2048,
  SAMPLE_BILINEAR = 4096,
  SAMPLE_CALLBACK = 8192,
  SAMPLE_XL = 16384, /* keys as wide as queries */
  SAMPLE_SCORES = SAMPLE_ADDITIVE | SAMPLE_BILINEAR | SAMPLE_CALLBACK | SAMPLE_XL,
  SAMPLE_RELATIVE = 32768, /* a table of relative positions; not drawn */
  SAMPLE_FACTORS = 65536,  /* not drawn */
  SAMPLE_ANY = -1,
  SAMPLE_EVERYTHING = -2
};

typedef struct sample {
  int64_t batch, heads, kv_heads, n, m, d, dv;
  float *q, *k, *v, *out, *lse, *bias_data, *slopes, *sinks;
  uint8_t *attend_data;
  int64_t *lengths, *bounds; /* of 3 documents: queries, then keys */
  heed_attention a;
  heed_view vq, vk, vv, vout, vlse, vattend, vbias, valibi, vsink;
  int64_t dk;        /* width of the keys: d, unless a score compares others */
  float *weights[3]; /* of the score: wq, wk, wv */
  heed_view vweights[3];
  float *sides[3]; /* of XL: content, position, distances */
  heed_view vsides[3];
  float *table;
  heed_view vtable;
  heed_score score;
} sample;

/* A callback for tests: the dot product over the narrower width, and its gradients. */
static inline void narrow_dot(void *user, const heed_score_tile *tile, float *scores) {
  const int64_t d = tile->d_q < tile->d_k ? tile->d_q : tile->d_k;
  (void)user;
  for (int i = 0; i < tile->queries; i++)
    for (int j = 0; j < tile->keys; j++) {
      double sum = 0;
      for (int64_t c = 0; c < d; c++) sum += (double)tile->q[i][c] * tile->k[j][c];
      scores[i * tile->keys + j] = (float)sum;
    }
}

static inline void narrow_dot_gradient(void *user, const heed_score_tile *tile, const float *dscores, float *const *dq, float *const *dk) {
  const int64_t d = tile->d_q < tile->d_k ? tile->d_q : tile->d_k;
  (void)user;
  for (int j = 0; j < tile->keys; j++)
    for (int i = 0; i < tile->queries; i++) {
      float ds = dscores[i * tile->keys + j];
      if (ds == 0) continue;
      for (int64_t c = 0; c < d; c++) {
        dq[i][c] += ds * tile->k[j][c];
        dk[j][c] += ds * tile->q[i][c];
      }
    }
}

/* Factors of weights for tests: of either sign, some 0, and NaN for pairs that `user`, bytes [batch · heads · n · m] if there are any, says are hidden. */
typedef struct hidden_pairs {
  const uint8_t *seen;
  int64_t heads, n, m;
} hidden_pairs;
static inline void odd_factors(void *user, const heed_pair_tile *tile, float *factors) {
  const hidden_pairs *hidden = user;
  for (int i = 0; i < tile->queries; i++)
    for (int j = 0; j < tile->keys; j++) {
      const int64_t query = tile->query + i, key = tile->key + j;
      float factor = (float)((7 * query + 5 * key + 3 * tile->head + tile->batch) % 11 - 4) / 4;
      if (hidden && !hidden->seen[((tile->batch * hidden->heads + tile->head) * hidden->n + query) * hidden->m + key]) factor = NAN;
      factors[i * tile->keys + j] = factor;
    }
}

static inline float *floats(int64_t count) {
  float *data = calloc((size_t)(count > 0 ? count : 1), sizeof *data);
  assert_non_null(data);
  return data;
}

static inline float *normals(random_source *r, int64_t count) {
  float *data = floats(count);
  for (int64_t i = 0; i < count; i++) data[i] = normal(r);
  return data;
}

/* Sizes where tiles, chunks, vectors and blocks begin and end. */
static inline int64_t edge_size(random_source *r, int64_t most) {
  static const int64_t sizes[] = {1,  2,  3,  5,  7,  8,  13, 15,  16,  17,  23,  24,   25,   31,   37,
                                  47, 48, 49, 63, 64, 65, 97, 127, 128, 129, 191, 1023, 1024, 1025, 1100};
  int64_t size;
  do size = sizes[below(r, (int64_t)(sizeof sizes / sizeof *sizes))];
  while (size > most);
  return size;
}

static inline void sample_views(sample *s) {
  s->vq = heed_view_of(s->q, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->d});
  s->vk = heed_view_of(s->k, HEED_F32, 4, (int64_t[]){s->batch, s->kv_heads, s->m, s->dk});
  s->vv = heed_view_of(s->v, HEED_F32, 4, (int64_t[]){s->batch, s->kv_heads, s->m, s->dv});
  s->vout = heed_view_of(s->out, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->dv});
  s->vlse = heed_view_of(s->lse, HEED_F32, 3, (int64_t[]){s->batch, s->heads, s->n});
}

/* Arrays and descriptions for shapes that are already set. */
static inline void sample_fill(sample *s, random_source *r, int kinds) {
  int64_t pairs = s->batch * s->heads * s->n * s->m;
  if (s->dk == 0) s->dk = kinds > 0 && kinds & (SAMPLE_SCORES & ~SAMPLE_XL) ? edge_size(r, 40) : s->d;
  s->q = normals(r, s->batch * s->heads * s->n * s->d);
  s->k = normals(r, s->batch * s->kv_heads * s->m * s->dk);
  s->v = normals(r, s->batch * s->kv_heads * s->m * s->dv);
  s->out = floats(s->batch * s->heads * s->n * s->dv);
  s->lse = floats(s->batch * s->heads * s->n);
  s->a = (heed_attention){.size = sizeof s->a};
  if (kinds < 0) {
    int most = kinds == SAMPLE_ANY ? SAMPLE_KINDS : SAMPLE_ALL_KINDS;
    kinds = 0;
    for (int i = 0; i < most; i++) kinds |= below(r, 3) == 0 ? 1 << i : 0;
  }
  if (kinds & SAMPLE_CAUSAL) s->a.causal = true;
  if (kinds & SAMPLE_WINDOW) {
    s->a.has_window_left = below(r, 3) > 0;
    s->a.has_window_right = !s->a.has_window_left || below(r, 2);
    s->a.window_left = s->a.has_window_left ? below(r, 80) : 0;
    s->a.window_right = s->a.has_window_right ? below(r, 80) : 0;
  }
  if (kinds & SAMPLE_DOCUMENTS) {
    enum { DOCUMENTS = 3 };
    s->bounds = malloc(2 * (DOCUMENTS + 1) * sizeof *s->bounds);
    for (int side = 0; side < 2; side++) {
      int64_t *bound = s->bounds + side * (DOCUMENTS + 1), total = side ? s->m : s->n, x = below(r, total + 1), y = below(r, total + 1);
      bound[0] = 0;
      bound[1] = x < y ? x : y;
      bound[2] = x < y ? y : x;
      bound[3] = total;
    }
    s->a.documents = DOCUMENTS;
    s->a.query_documents = s->bounds;
    s->a.key_documents = s->bounds + DOCUMENTS + 1;
  }
  if (kinds & (SAMPLE_CAUSAL | SAMPLE_WINDOW | SAMPLE_ALIBI | SAMPLE_XL | SAMPLE_RELATIVE)) {
    s->a.align = (heed_align)(1 + below(r, 3));
    if (s->a.align == HEED_ALIGN_GIVEN) s->a.offset = below(r, s->m + 20) - 10;
  }
  if (kinds & SAMPLE_LENGTHS) {
    s->lengths = malloc((size_t)(s->batch ? s->batch : 1) * sizeof *s->lengths);
    for (int64_t b = 0; b < s->batch; b++) s->lengths[b] = below(r, s->m + 1);
    s->a.key_lengths = s->lengths;
  }
  if (kinds & SAMPLE_ATTEND) {
    s->attend_data = malloc((size_t)pairs + 1);
    for (int64_t i = 0; i < pairs; i++) s->attend_data[i] = below(r, 4) > 0;
    s->vattend = heed_view_of(s->attend_data, HEED_BOOL, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
    s->a.attend = &s->vattend;
  }
  if (kinds & SAMPLE_BIAS) {
    s->bias_data = normals(r, pairs);
    for (int64_t i = 0; i < pairs; i++)
      if (below(r, 10) == 0) s->bias_data[i] = -INFINITY;
    int64_t dim[] = {s->batch, s->heads, s->n, s->m};
    for (int axis = 0; axis < 4 && kinds & SAMPLE_BROADCAST; axis++)
      if (below(r, 2)) dim[axis] = 1;
    s->vbias = heed_view_of(s->bias_data, HEED_F32, 4, dim);
    s->a.bias = &s->vbias;
  }
  if (kinds & SAMPLE_ALIBI) {
    s->slopes = floats(s->heads);
    for (int64_t h = 0; h < s->heads; h++) s->slopes[h] = (float)uniform(r);
    s->valibi = heed_view_of(s->slopes, HEED_F32, 1, &s->heads);
    s->a.alibi = &s->valibi;
  }
  if (kinds & SAMPLE_SINK) {
    s->sinks = normals(r, s->heads);
    s->vsink = heed_view_of(s->sinks, HEED_F32, 1, &s->heads);
    s->a.sink = &s->vsink;
  }
  if (kinds & SAMPLE_DROPOUT) {
    s->a.dropout = 0.6 * uniform(r);
    s->a.seed = r->seed;
    s->a.stream = (uint32_t)below(r, 1000);
  }
  if (kinds & SAMPLE_RELATIVE) {
    const int64_t buckets = 2 * (2 + below(r, 15));
    s->table = normals(r, buckets * s->heads);
    s->vtable = heed_view_of(s->table, HEED_F32, 2, (int64_t[]){buckets, s->heads});
    s->a.relative = &s->vtable;
    s->a.relative_causal = below(r, 2);
    s->a.relative_distance = buckets / 2 + 1 + below(r, 60);
  }
  if (kinds & SAMPLE_XL) {
    // Fewer distances than there are, so that pairs lie beyond both ends.
    const int64_t shape[3][3] = {{s->heads, s->d}, {s->heads, s->d}, {s->heads, 1 + below(r, s->n + s->m + 4), s->d}};
    s->score = (heed_score){.size = sizeof s->score, .kind = HEED_SCORE_XL, .first_distance = below(r, 12) - below(r, s->m + 1)};
    const heed_view **const place[3] = {&s->score.content, &s->score.position, &s->score.distances};
    for (int i = 0; i < 3; i++) {
      s->sides[i] = normals(r, shape[i][0] * shape[i][1] * (i == 2 ? shape[i][2] : 1));
      s->vsides[i] = heed_view_of(s->sides[i], HEED_F32, i == 2 ? 3 : 2, shape[i]);
      *place[i] = &s->vsides[i];
    }
    s->a.score = &s->score;
  } else if (kinds & SAMPLE_SCORES) {
    const int64_t h = edge_size(r, 40);
    const int64_t shape[3][2] = {{kinds & SAMPLE_ADDITIVE ? h : s->d, kinds & SAMPLE_ADDITIVE ? s->d : s->dk}, {h, s->dk}, {h, 1}};
    s->score = (heed_score){.size = sizeof s->score, .kind = HEED_SCORE_CALLBACK, .scores = narrow_dot, .gradients = narrow_dot_gradient};
    const heed_view **const place[3] = {&s->score.wq, &s->score.wk, &s->score.wv};
    for (int i = 0; i < (kinds & SAMPLE_ADDITIVE ? 3 : kinds & SAMPLE_BILINEAR ? 1 : 0); i++) {
      s->weights[i] = normals(r, shape[i][0] * shape[i][1]);
      for (int64_t j = 0; i < 2 && j < shape[i][0] * shape[i][1]; j++) s->weights[i][j] /= (float)sqrt((double)shape[i][1]);
      s->vweights[i] = heed_view_of(s->weights[i], HEED_F32, i < 2 ? 2 : 1, shape[i]);
      *place[i] = &s->vweights[i];
      s->score.kind = kinds & SAMPLE_ADDITIVE ? HEED_SCORE_ADDITIVE : HEED_SCORE_BILINEAR;
    }
    s->a.score = &s->score;
  }
  if (kinds & SAMPLE_FACTORS) s->a.factors = odd_factors;
  if (kinds & SAMPLE_SOFTCAP) s->a.softcap = 0.5 + 10 * uniform(r);
  sample_views(s);
}

/* Random shapes: at most `most` queries and keys. */
static inline void sample_make(sample *s, random_source *r, int64_t most, int kinds) {
  *s = (sample){.batch = 1 + below(r, 2), .kv_heads = 1 + below(r, 2), .n = edge_size(r, most), .m = edge_size(r, most)};
  s->heads = s->kv_heads * (1 + below(r, 3));
  s->d = edge_size(r, 72);
  s->dv = below(r, 2) ? s->d : edge_size(r, 72);
  sample_fill(s, r, kinds);
}

static inline void sample_free(sample *s) {
  free(s->q);
  free(s->k);
  free(s->v);
  free(s->out);
  free(s->lse);
  free(s->bias_data);
  free(s->attend_data);
  free(s->lengths);
  free(s->bounds);
  for (int i = 0; i < 3; i++) free(s->weights[i]), free(s->sides[i]);
  free(s->table);
  free(s->slopes);
  free(s->sinks);
}

static inline int64_t sample_out_count(const sample *s) { return s->batch * s->heads * s->n * s->dv; }

/* The key/value head (over the batch) that a query head (over the batch) reads. */
static inline int64_t sample_kv(const sample *s, int64_t head) {
  return head / s->heads * s->kv_heads + head % s->heads / (s->heads / s->kv_heads);
}

/* What causal, window and lengths mean, spelt out: attend and bias [batch, n, m]; either may be NULL. */
static inline void sample_spell_out(const sample *s, uint8_t *attend, float *bias) {
  const heed_attention *a = &s->a;
  for (int64_t at = 0; at < s->batch * s->n * s->m; at++) {
    int64_t b = at / s->m / s->n, i = at / s->m % s->n, j = at % s->m, length = s->lengths ? s->lengths[b] : s->m;
    int64_t p = i + (a->align == HEED_ALIGN_GIVEN ? a->offset : a->align == HEED_ALIGN_END ? length - s->n : 0);
    bool seen = j < length && (!a->causal || j <= p) && (!a->has_window_left || j >= p - a->window_left) &&
                (!a->has_window_right || j <= p + a->window_right);
    if (attend) attend[at] = seen;
    if (bias) bias[at] = seen ? 0 : -INFINITY;
  }
}

static inline void sample_run(heed_context *context, sample *s) {
  heed_attention_extras extras = {.size = sizeof extras, .lse = &s->vlse};
  ok(context, heed_attention_forward(context, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &extras));
}

/* The f64 oracle into new arrays; lse may be NULL. */
static inline double *sample_reference(heed_context *context, const sample *s, double **lse) {
  double *out = calloc((size_t)sample_out_count(s) + 1, sizeof *out),
         *sums = calloc((size_t)(s->batch * s->heads * s->n) + 1, sizeof *sums);
  heed_view vout = s->vout, vlse = s->vlse;
  vout.data = out;
  vout.type = HEED_F64;
  vlse.data = sums;
  vlse.type = HEED_F64;
  heed_attention_extras extras = {.size = sizeof extras, .lse = &vlse};
  ok(context, heed_attention_reference(context, &s->a, &s->vq, &s->vk, &s->vv, &vout, &extras));
  if (lse) {
    *lse = sums;
  } else {
    free(sums);
  }
  return out;
}

static inline void assert_same_bytes(const void *a, const void *b, int64_t bytes, const char *what, uint64_t seed) {
  const unsigned char *x = a, *y = b;
  for (int64_t i = 0; i < bytes; i++)
    if (x[i] != y[i]) fail_msg("%s: byte %lld differs (seed %llu)", what, (long long)i, (unsigned long long)seed);
}

/* Two floats that are close, or both NaN, or the same infinity. */
static inline void assert_close(double got, double want, double tolerance, const char *what, uint64_t seed) {
  if (isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= tolerance) return;
  fail_msg("%s: got %.9g, want %.9g within %.2g (seed %llu)", what, got, want, tolerance, (unsigned long long)seed);
}

/* Positions counted from the first key. */
static inline void align_start(sample *s) {
  s->a.align = HEED_ALIGN_START;
  s->a.offset = 0;
}

/* Positions counted from the last key. */
static inline void align_end(sample *s) {
  s->a.align = HEED_ALIGN_END;
  s->a.offset = 0;
}

/* Flushes subnormal numbers to zero, as a host may have asked of the CPU, or stops doing so. */
static inline void flush_subnormals(bool on) {
#if defined(__SSE__)
  enum { FLUSH = 0x8000, INPUTS_ARE_ZERO = 0x0040 };
  unsigned mode = __builtin_ia32_stmxcsr() & ~(unsigned)(FLUSH | INPUTS_ARE_ZERO);
  __builtin_ia32_ldmxcsr(on ? mode | FLUSH | INPUTS_ARE_ZERO : mode);
#else
  (void)on;
#endif
}

enum { ROUNDS = SANITIZED ? 6 : 16 };

static inline float *copy_of(const float *data, int64_t count) {
  float *copy = floats(count);
  if (count > 0) memcpy(copy, data, (size_t)count * sizeof *data);
  return copy;
}

/* Exchanges the first row of each group with its last, and so on. */
static inline void reverse_rows(float *data, int64_t groups, int64_t rows, int64_t width) {
  for (int64_t group = 0; group < groups; group++)
    for (int64_t j = 0; j < rows / 2; j++)
      for (int64_t c = 0; c < width; c++) {
        float *a = data + (group * rows + j) * width + c, *b = data + (group * rows + rows - 1 - j) * width + c, swap = *a;
        *a = *b;
        *b = swap;
      }
}

/* The last key becomes the first: keys, values and columns of the mask. */
static inline void sample_reverse_keys(sample *s) {
  reverse_rows(s->k, s->batch * s->kv_heads, s->m, s->d);
  reverse_rows(s->v, s->batch * s->kv_heads, s->m, s->dv);
  for (int64_t row = 0; row < s->batch * s->heads * s->n; row++)
    for (int64_t j = 0; j < s->m / 2; j++) {
      uint8_t *base = s->attend_data + row * s->m, swap = base[j];
      base[j] = base[s->m - 1 - j];
      base[s->m - 1 - j] = swap;
    }
}

static inline heed_view weights_view(const sample *s, float *data) {
  return heed_view_of(data, HEED_F32, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
}

static inline float *run_tap(heed_context *context, const sample *s, heed_tap tap) {
  const heed_attention_rows asked = {.size = sizeof asked, .tap = tap};
  float *data = floats(s->batch * s->heads * s->n * s->m);
  heed_view view = weights_view(s, data);
  ok(context, heed_attention_weights(context, &s->a, &s->vq, &s->vk, &asked, &view));
  return data;
}

static inline float *run_weights(heed_context *context, const sample *s) { return run_tap(context, s, HEED_TAP_WEIGHTS); }

/* Self-attention over zeros of a shape [heads, n, width], 16 numbers at most, is refused: nothing is written. */
static inline void assert_refused(heed_context *context, const int64_t dim[3], const heed_attention *a, heed_status status,
                                  const char *fragment) {
  float data[16] = {0}, out[16] = {9};
  const heed_view x = heed_view_of(data, HEED_F32, 3, dim), to = heed_view_of(out, HEED_F32, 3, dim);
  assert_int_equal(heed_attention_forward(context, a, &x, &x, &x, &to, NULL), status);
  if (!strstr(heed_error(context), fragment)) fail_msg("'%s' has no '%s'", heed_error(context), fragment);
  assert_true(out[0] == 9);
}

/* Calls body with many samples of at most `most` queries and keys. */
static inline void each(int64_t most, int kinds, void (*body)(sample *s, random_source *r)) {
  for (int round = 0; round < ROUNDS; round++) {
    sample s;
    random_source r = {.seed = (uint64_t)round * 1000003 + (uint64_t)most * 7919 + (uint64_t)(kinds + 1)};
    sample_make(&s, &r, most, kinds);
    body(&s, &r);
    sample_free(&s);
  }
}

/* A test that holds for every sample. */
#define PROPERTY(name, most, kinds)                                                                                                        \
  static void name##_body(sample *s, random_source *r);                                                                                    \
  static void name(void **state) {                                                                                                         \
    (void)state;                                                                                                                           \
    each(most, kinds, name##_body);                                                                                                        \
  }                                                                                                                                        \
  static void name##_body(sample *s, __attribute__((unused)) random_source *r)

#endif
