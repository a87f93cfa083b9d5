/* golden: the bits themselves. Fixed inputs, and a committed hash of what forward, backward, products and rows make of them, which every level on every architecture must
 * reproduce. A change that is meant to alter the arithmetic brings new hashes: a failing test prints the lines of the table as they would be. */
#include "attention_gradients.h"
#include "linear_sample.h"

#include "../../src/kern/kernels.h"
#include "../../src/kern/matrix.h"

static uint64_t hash_bytes(uint64_t h, const void *data, int64_t bytes) {
  const unsigned char *byte = data;
  for (int64_t i = 0; i < bytes; i++) h = (h ^ byte[i]) * 1099511628211u; // FNV-1a
  return h;
}
static const uint64_t hash_begin = 14695981039346656037u;

static bool agrees(heed_level level, const char *name, uint64_t got, uint64_t want) {
  if (got == want) return true;
  fprintf(stderr, "%s, %s: 0x%016llx, expected 0x%016llx\n", heed_level_name(level), name, (unsigned long long)got,
          (unsigned long long)want);
  return false;
}

/* ---- attention ------------------------------------------------------------------------------------------------------------- */

typedef struct golden {
  const char *name;
  int kinds;
  int64_t batch, heads, kv_heads, n, m, d, dv;
  heed_type type; /* of everything but lse */
  uint64_t hash;
} golden;

static const golden cases[] = {
    {"plain", 0, 1, 2, 2, 130, 190, 64, 64, HEED_F32, 0xb97617b3e1f1ac3b},
    {"narrow, of odd width", 0, 2, 1, 1, 33, 65, 7, 11, HEED_F32, 0x86fc70508e8631e0},
    {"causal, grouped, two chunks", SAMPLE_CAUSAL, 1, 4, 2, 70, 1100, 40, 24, HEED_F32, 0x4a6c8e1adf0046b9},
    {"window", SAMPLE_WINDOW, 1, 2, 1, 150, 150, 32, 48, HEED_F32, 0xd8e8b2fbcca245b2},
    {"lengths and a mask", SAMPLE_LENGTHS | SAMPLE_ATTEND, 2, 2, 1, 67, 129, 17, 16, HEED_F32, 0xda2150fa8ce4c90c},
    {"bias and softcap", SAMPLE_BIAS | SAMPLE_SOFTCAP, 1, 2, 2, 65, 97, 24, 80, HEED_F32, 0xfbf2dc6984c293ec},
    {"alibi, causal", SAMPLE_ALIBI | SAMPLE_CAUSAL, 1, 3, 1, 90, 90, 16, 16, HEED_F32, 0x4f938217c585469a},
    {"documents, sink, dropout", SAMPLE_DOCUMENTS | SAMPLE_SINK | SAMPLE_DROPOUT, 1, 2, 1, 120, 120, 20, 33, HEED_F32, 0x2bc927eacf4fa4a0},
    {"one query", 0, 1, 8, 2, 1, 1500, 64, 48, HEED_F32, 0xc018f5c9d14bfa72},
    {"five queries", SAMPLE_CAUSAL, 1, 4, 1, 5, 300, 96, 96, HEED_F32, 0x0cc04600575e3ad6},
    {"f16", SAMPLE_CAUSAL, 1, 2, 1, 100, 140, 24, 40, HEED_F16, 0xe553902e24a25cab},
    {"bf16", SAMPLE_WINDOW | SAMPLE_SOFTCAP, 1, 2, 1, 100, 140, 24, 40, HEED_BF16, 0x86d3bf71a42dc704},
    {"additive scores", SAMPLE_ADDITIVE | SAMPLE_CAUSAL, 2, 4, 2, 70, 90, 37, 24, HEED_F32, 0x0ab55986ba1885e3},
};

/* The numbers of a view in another type, in memory that the caller frees. */
static void *retype(heed_context *context, heed_view *view, heed_type type) {
  if (type == HEED_F32) return NULL;
  int64_t count = hd_view_count(view);
  uint16_t *halves = calloc((size_t)count + 1, sizeof *halves);
  hd_kernels_of(context)->narrow(view->data, count, type, halves);
  view->data = halves;
  view->type = type;
  return halves;
}

static uint64_t hash_view(uint64_t h, const heed_view *view) {
  return hash_bytes(h, view->data, hd_view_count(view) * (int64_t)heed_type_bytes(view->type));
}

static uint64_t attention_hash(heed_context *context, const golden *c) {
  random_source r = {.seed = (uint64_t)(c - cases) + 1};
  sample s = {.batch = c->batch, .heads = c->heads, .kv_heads = c->kv_heads, .n = c->n, .m = c->m, .d = c->d, .dv = c->dv};
  gradients g;
  sample_fill(&s, &r, c->kinds);
  gradients_make(&g, &s, &r);
  heed_view *const views[] = {&s.vq, &s.vk, &s.vv, &s.vout, &g.vdout, &g.view[DQ], &g.view[DK], &g.view[DV]};
  void *halves[HD_COUNT(views)];
  for (int i = 0; i < HD_COUNT(views); i++) halves[i] = retype(context, views[i], c->type);
  sample_run(context, &s);
  gradients_run(context, &s, &g);
  uint64_t h = hash_view(hash_view(hash_begin, &s.vout), &s.vlse);
  for (int i = 0; i < GRADIENTS; i++)
    if (g.input[i]) h = hash_view(h, &g.view[i]);
  for (int i = 0; i < HD_COUNT(views); i++) free(halves[i]);
  gradients_free(&g);
  sample_free(&s);
  return h;
}

/* Runs body at every level of this machine and fails after the last. */
static void at_every_level(bool (*body)(heed_context *context, heed_level level)) {
  bool same = true;
  for (heed_level level = HEED_LEVEL_SCALAR; level < HEED_LEVEL_COUNT; level++) {
    if (!heed_level_available(level)) continue;
    heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = 2});
    same = body(context, level) && same;
    heed_context_free(context);
  }
  assert_true(same);
}

static bool attention_at(heed_context *context, heed_level level) {
  bool same = true;
  for (int i = 0; i < HD_COUNT(cases); i++)
    if (cases[i].type != HEED_BF16 || exact_in_bf16(level))
      same = agrees(level, cases[i].name, attention_hash(context, &cases[i]), cases[i].hash) && same;
  return same;
}

static void attention(void **state) {
  (void)state;
  at_every_level(attention_at);
}

/* ---- linear attention ------------------------------------------------------------------------------------------------------------ */

static const uint64_t linear_hash[] = {0x510879baa8993aa8, 0x0389d155ba3ff7dc, 0x98dd62efb8dedb96};

static bool linear_at(heed_context *context, heed_level level) {
  static const heed_linear_attention described[] = {{.features = HEED_FEATURES_ELU},
                                                    {.features = HEED_FEATURES_RELU},
                                                    {.features = HEED_FEATURES_IDENTITY, .rule = HEED_RULE_GATED_DELTA}};
  static const int kinds[] = {LINEAR_CAUSAL | LINEAR_BEFORE, LINEAR_ATTEND, LINEAR_CAUSAL | LINEAR_BARE};
  bool same = true;
  for (int i = 0; i < HD_COUNT(described); i++) {
    random_source r = {.seed = (uint64_t)i + 1};
    linear_sample s = {.batch = 2, .heads = 4, .kv_heads = 2, .n = 70, .m = i ? 130 : 600, .d = 23, .dv = 35, .a = described[i]};
    char name[32];
    uint64_t h = hash_begin;
    linear_fill(&s, &r, kinds[i], 0);
    linear_forward(context, &s);
    linear_backward(context, &s);
    for (int a = 0; a <= LNORMALISER; a++) h = hash_view(h, &s.view[a]);
    snprintf(name, sizeof name, "linear attention %d", i);
    same = agrees(level, name, h, linear_hash[i]) && same;
    linear_free(&s);
  }
  return same;
}

static void linear(void **state) {
  (void)state;
  at_every_level(linear_at);
}

/* ---- products and rows -------------------------------------------------------------------------------------------------------- */

static const uint64_t gemm_hash = 0xa7e705968d269c14, rows_hash = 0xa3731eaef585052b, elements_hash = 0x405efff0d9054ff4,
                      gru_hash = 0xcb678bab0dfd5726;

/* Plain, transposed and accumulated products of f32, f16 and bf16. */
static bool gemm_at(heed_context *context, heed_level level) {
  static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16};
  enum { N = 37, M = 70, K = 130 };
  uint64_t h = hash_begin;
  for (int form = 0; form < 4; form++)
    for (int t = 0; t < 3; t++) {
      random_source r = {.seed = 77};
      float *a = normals(&r, N * K), *b = normals(&r, M * K), *c = floats(N * M);
      heed_gemm_form how = {.size = sizeof how, .transpose_a = form & 1, .transpose_b = form & 2, .accumulate = form == 3};
      heed_view va = heed_view_of(a, HEED_F32, 2, form & 1 ? (int64_t[]){K, N} : (int64_t[]){N, K});
      heed_view vb = heed_view_of(b, HEED_F32, 2, form & 2 ? (int64_t[]){M, K} : (int64_t[]){K, M});
      heed_view vc = heed_view_of(c, HEED_F32, 2, (int64_t[]){N, M});
      void *halves = retype(context, &vb, types[t]);
      ok(context, heed_gemm(context, &how, &va, &vb, &vc));
      h = hash_view(h, &vc);
      free(halves);
      free(a);
      free(b);
      free(c);
    }
  return agrees(level, "gemm", h, gemm_hash);
}

static void gemm(void **state) {
  (void)state;
  at_every_level(gemm_at);
}

/* Norms, activations, rotation and the softmax of a row. */
static bool rows_at(heed_context *context, heed_level level) {
  enum { N = 107 };
  const hd_kernels *kernels = hd_kernels_of(context);
  random_source r = {.seed = 5};
  float *x = normals(&r, N), *w = normals(&r, N), *b = normals(&r, N), *y = floats(N);
  uint64_t h = hash_begin;
  kernels->rms_norm(x, w, N, 1e-5f, y, NULL);
  h = hash_bytes(h, y, N * 4);
  kernels->layer_norm(x, w, b, N, 1e-5f, y, NULL);
  h = hash_bytes(h, y, N * 4);
  for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_GELU; kind++) {
    kernels->activate((heed_activation)kind, x, w, N, y);
    h = hash_bytes(h, y, N * 4);
  }
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    memcpy(y, x, N * sizeof *y);
    kernels->rotate(y, w, b, N / 2, interleaved);
    h = hash_bytes(h, y, N * 4);
  }
  float sum = kernels->row_exp2(y, N, kernels->row_max(y, N));
  h = hash_bytes(hash_bytes(h, &sum, 4), y, N * 4);
  free(x);
  free(w);
  free(b);
  free(y);
  return agrees(level, "rows", h, rows_hash);
}

/* Elements, each by itself: activations with their slopes, products, dropout; and sums. */
static bool elements_at(heed_context *context, heed_level level) {
  enum { N = 203, ROWS = 29, COLUMNS = 7 };
  const hd_kernels *kernels = hd_kernels_of(context);
  random_source r = {.seed = 6};
  float *x = normals(&r, N), *gate = normals(&r, N), *dy = normals(&r, N), *y = floats(N), *z = floats(N);
  uint64_t h = hash_begin;
  for (int kind = HEED_ACTIVATION_RELU; kind <= HEED_ACTIVATION_SIGMOID; kind++) {
    const hd_activation_gradient g = {
        .kind = (heed_activation)kind, .x = x, .gate = gate, .dy = dy, .dx = y, .dgate = z, .accumulate = kind > HEED_ACTIVATION_RELU};
    kernels->activate_backward(&g, N);
    h = hash_bytes(hash_bytes(h, y, N * 4), z, N * 4);
    kernels->activate((heed_activation)kind, x, NULL, N, z);
    h = hash_bytes(h, z, N * 4);
  }
  kernels->add(x, y, N, z);
  kernels->mul(x, gate, N, true, z);
  kernels->scale(dy, 0.3f, N, true, z);
  h = hash_bytes(h, z, N * 4);
  kernels->dropout(&(hd_dropout){.seed = 9, .stream = 2, .last_dropped = 0x40000000, .factor = 1.5f, .block = 0x3fffffff}, x, N, z);
  h = hash_bytes(h, z, N * 4);
  kernels->sum_rows(x, ROWS, COLUMNS, COLUMNS, false, z);
  z[COLUMNS] = kernels->sum(x, N);
  h = hash_bytes(h, z, (COLUMNS + 1) * 4);
  free(x);
  free(gate);
  free(dy);
  free(y);
  free(z);
  return agrees(level, "elements", h, elements_hash);
}

static void elements(void **state) {
  (void)state;
  at_every_level(elements_at);
}

/* Steps of a gated recurrent unit, and back. */
static bool gru_at(heed_context *context, heed_level level) {
  enum { N = 77, STEPS = 3 };
  const hd_kernels *kernels = hd_kernels_of(context);
  random_source r = {.seed = 8};
  float *x = normals(&r, STEPS * 3 * N), *h = normals(&r, STEPS * 3 * N), *state = normals(&r, N), *dy = normals(&r, N);
  float *kept = floats(STEPS * 5 * N), *dh = floats(N), *dx = floats(3 * N), *dgates = floats(3 * N);
  uint64_t hash = hash_begin;
  for (int64_t t = 0; t < STEPS; t++)
    kernels->gru(&(hd_gru){.x = x + t * 3 * N, .h = h + t * 3 * N, .before = state, .kept = kept + t * 5 * N, .out = state}, N);
  hash = hash_bytes(hash_bytes(hash, state, N * 4), kept, STEPS * 5 * N * 4);
  memset(dh, 0, N * sizeof *dh);
  for (int64_t t = STEPS - 1; t >= 0; t--) {
    kernels->gru_backward(&(hd_gru_gradient){.kept = kept + t * 5 * N, .dy = dy, .dh = dh, .dx = dx, .dgates = dgates}, N);
    hash = hash_bytes(hash_bytes(hash_bytes(hash, dh, N * 4), dx, 3 * N * 4), dgates, 3 * N * 4);
  }
  free(x);
  free(h);
  free(state);
  free(dy);
  free(kept);
  free(dh);
  free(dx);
  free(dgates);
  return agrees(level, "gru", hash, gru_hash);
}

static void gru(void **state) {
  (void)state;
  at_every_level(gru_at);
}

static void rows(void **state) {
  (void)state;
  at_every_level(rows_at);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention), cmocka_unit_test(linear),   cmocka_unit_test(gemm),
      cmocka_unit_test(rows),      cmocka_unit_test(elements), cmocka_unit_test(gru),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
