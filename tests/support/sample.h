/* sample.h: synthetic records for the tests of pictures: softmax-like rows, heads of every kind, tokens of many scripts. The caller frees. */
#ifndef HEED_TEST_SAMPLE_H
#define HEED_TEST_SAMPLE_H

#include "../../include/heed/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline heed_text sample_text(const char *text) { return (heed_text){text, strlen(text)}; }

/* A number in (0,1) from a linear congruential generator (Knuth, MMIX). */
static inline double sample_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

static inline double sample_normal(uint64_t *state) {
  double r = sqrt(-2 * log(sample_random(state)));
  return r * cos(6.283185307179586 * sample_random(state));
}

typedef struct sample_spec {
  int64_t layers, heads, queries, keys;
  bool causal;
  int64_t window; /* of every odd layer; 0: none */
  double spread;  /* standard deviation of the scores */
  bool pattern;   /* odd layers hide every third key */
  bool plain;     /* no structure: every head a softmax of normal scores */
  bool awkward;   /* tokens of many scripts, control characters and parts of characters; otherwise English words */
  uint64_t seed;
} sample_spec;

static const char *const sample_words[] = {"The",      " animal", " didn", "'t",   " cross", " the", " street",
                                           " because", " it",     " was",  " too", " tired", "."};
static const char *const sample_awkward[] = {"Hello",
                                             " \xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7",
                                             " \xE4\xBD\xA0\xE5\xA5\xBD",
                                             "\n",
                                             " ",
                                             "\xF0\x9F",
                                             "\x98\x80",
                                             "</script>",
                                             " \"quoted\"",
                                             "\xE2\x80\xAE",
                                             "e\xCC\x81",
                                             "\xCC\x81",
                                             "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                                             "\t",
                                             " internationalisation-of-everything",
                                             "\x1B[31m",
                                             "\xF0\x9F\x99\x82",
                                             "",
                                             "&amp;",
                                             "   "};

static inline heed_text sample_token(const sample_spec *spec, int64_t i) {
  if (spec->awkward) return sample_text(sample_awkward[i % (int64_t)(sizeof sample_awkward / sizeof *sample_awkward)]);
  return sample_text(sample_words[i % (int64_t)(sizeof sample_words / sizeof *sample_words)]);
}

/* What a head likes: the first token, the previous one, itself, one fixed distance, everything. */
static inline double sample_liking(int kind, int64_t own, int64_t key) {
  switch (kind) {
  case 0: return key == 0 ? 5 : 0;
  case 1: return key == own - 1 ? 6 : 0;
  case 2: return key == own ? 5 : 0;
  case 3: return (own - key) % 7 == 3 ? 4 : 0;
  default: return 0;
  }
}

static inline heed_record sample_new(const sample_spec *spec) {
  int64_t rows = spec->layers * spec->heads * spec->queries;
  float *weights = calloc((size_t)(rows * spec->keys), sizeof *weights);
  uint8_t *visible = spec->pattern ? calloc((size_t)(rows * spec->keys), 1) : NULL;
  heed_text *queries = calloc((size_t)spec->queries, sizeof *queries), *keys = calloc((size_t)spec->keys, sizeof *keys);
  int64_t *numbers = calloc((size_t)(spec->layers * 2 + spec->heads), sizeof *numbers), *window = numbers + spec->layers + spec->heads;
  for (int64_t l = 0; l < spec->layers; l++) numbers[l] = l, window[l] = l % 2 ? spec->window : 0;
  for (int64_t h = 0; h < spec->heads; h++) numbers[spec->layers + h] = h;
  for (int64_t j = 0; j < spec->keys; j++) keys[j] = sample_token(spec, j);
  for (int64_t i = 0; i < spec->queries; i++)
    queries[i] = sample_token(spec, i + (spec->keys > spec->queries ? spec->keys - spec->queries : 0));
  uint64_t state = spec->seed + 1;
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = r % spec->queries, head = r / spec->queries, layer = head / spec->heads, own = i + spec->keys - spec->queries;
    int kind = (int)(head * 7 / 3 % 5);
    double sum = 0;
    for (int64_t j = 0; j < spec->keys; j++) {
      bool live = (!spec->causal || j <= own) && (!window[layer] || j > own - window[layer]);
      if (visible) visible[r * spec->keys + j] = layer % 2 == 0 || (own + spec->keys - j) % 3 != 1;
      live &= !visible || visible[r * spec->keys + j];
      double e = live ? exp(spec->spread * sample_normal(&state) + (spec->plain ? 0 : sample_liking(kind, own, j))) : 0;
      weights[r * spec->keys + j] = (float)e;
      sum += e;
    }
    for (int64_t j = 0; j < spec->keys && sum > 0; j++) weights[r * spec->keys + j] = (float)((double)weights[r * spec->keys + j] / sum);
  }
  return (heed_record){.size = sizeof(heed_record),
                       .model = sample_text("Sample-5M"),
                       .family = sample_text("llama"),
                       .file = sample_text("sample.gguf"),
                       .file_hash = sample_text("sha256:0123456789abcdef"),
                       .command = sample_text("heed show sample.gguf \"The animal\" -o page.html"),
                       .seconds = 0.25,
                       .model_layers = spec->layers,
                       .model_heads = spec->heads,
                       .model_kv_heads = spec->heads % 3 == 0 ? spec->heads / 3 : spec->heads,
                       .layers = spec->layers,
                       .heads = spec->heads,
                       .layer_index = numbers,
                       .head_index = numbers + spec->layers,
                       .queries = spec->queries,
                       .keys = spec->keys,
                       .query_tokens = queries,
                       .key_tokens = keys,
                       .weights = weights,
                       .visible = visible,
                       .causal = spec->causal,
                       .window = spec->window ? window : NULL};
}

static inline void sample_free(heed_record *record) {
  free((void *)(uintptr_t)record->weights);
  free((void *)(uintptr_t)record->visible);
  free((void *)(uintptr_t)record->query_tokens);
  free((void *)(uintptr_t)record->key_tokens);
  free((void *)(uintptr_t)record->layer_index);
}

/* A sink that keeps what it is given. */
typedef struct sample_bytes {
  char *data;
  size_t used, capacity;
  long fail_after; /* bytes until write fails; −1: never */
} sample_bytes;

static inline bool sample_write(void *user, const void *data, size_t bytes) {
  sample_bytes *b = user;
  if (b->fail_after >= 0 && (long)(b->used + bytes) > b->fail_after) return false;
  if (b->used + bytes + 1 > b->capacity) {
    b->capacity = (b->used + bytes + 1) * 2;
    b->data = realloc(b->data, b->capacity);
  }
  memcpy(b->data + b->used, data, bytes);
  b->used += bytes;
  b->data[b->used] = 0;
  return true;
}

#endif
