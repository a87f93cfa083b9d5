/* Patterns: each gives the very bits of the boolean mask that its definition (src/attn/reference_pattern.c) spells out, forward and backward, and its plan counts every live pair once
 * and no dead tile. */
#include "attention_gradients.h"
#include "counting_allocator.h"

#include "../src/attn/reference.h"

static heed_context *context;

/* ---- patterns ---------------------------------------------------------------------------------------------------------------------- */

enum { NODES = 6, LISTS = 4000, HEADS = 2 };

/* A pattern, and what it borrows. */
typedef struct tree {
  heed_pattern node[NODES];
  const heed_pattern *part[NODES];
  int64_t row_begin[LISTS], begin[LISTS], end[LISTS], numbers[LISTS];
} tree;

static heed_pattern *node(tree *t, int i, heed_pattern_kind kind) {
  t->node[i] = (heed_pattern){.size = sizeof t->node[i], .kind = kind};
  return &t->node[i];
}

static void window(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_WINDOW);
  p->left = below(r, 4) ? below(r, s->m + 1) : INT64_MAX;
  p->right = below(r, 4) ? below(r, s->m + 1) : INT64_MAX;
}

static void dilated(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_DILATED);
  p->left = below(r, 4) ? below(r, 40) : INT64_MAX;
  p->right = below(r, 4) ? below(r, 40) : INT64_MAX;
  p->dilation = 1 + below(r, s->m);
  if (below(r, 2)) {
    for (int h = 0; h < HEADS; h++) t->numbers[h] = 1 + below(r, 9);
    p->dilations = t->numbers;
  }
}

static void global(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_GLOBAL);
  p->count = below(r, 6);
  if (below(r, 2)) {
    p->tokens = t->numbers;
    for (int64_t i = 0, token = 0; i < p->count; i++) t->numbers[i] = token += 1 + below(r, s->m / 3 + 1);
  }
}

static void prefix(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_PREFIX);
  p->count = below(r, s->m + 1);
  if (below(r, 2)) {
    p->counts = t->numbers;
    for (int64_t b = 0; b < s->batch; b++) t->numbers[b] = below(r, s->m + 1);
  }
}

static void ranges(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_RANGES);
  int64_t used = 0;
  p->lists = below(r, 2) && s->n * HEADS < LISTS / 3 ? HEADS : 0;
  p->row_begin = t->row_begin, p->begin = t->begin, p->end = t->end;
  for (int64_t row = 0; row < s->n * (p->lists ? HEADS : 1); row++)
    for (int64_t i = below(r, 3), key = 0; t->row_begin[row + 1] = used, i > 0; i--) {
      t->begin[used] = key += below(r, s->m - key + 1);
      t->end[used++] = key += below(r, s->m - key + 1);
    }
}

static void blocks(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_BLOCKS);
  int64_t used = 0;
  do p->block = 1 + below(r, s->n);
  while (s->n % p->block || s->m % p->block || s->n / p->block * (s->m / p->block) > LISTS);
  p->row_begin = t->row_begin, p->begin = t->begin;
  for (int64_t row = 0; row < s->n / p->block; row++) {
    for (int64_t block = 0; block < s->m / p->block; block++)
      if (below(r, 3) == 0) t->begin[used++] = block;
    t->row_begin[row + 1] = used;
  }
}

static void strided(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_STRIDED);
  p->stride = 1 + below(r, s->m);
  p->columns_only = below(r, 3) == 0;
}

static void fixed(tree *t, const sample *s, random_source *r) {
  strided(t, s, r);
  t->node[0].kind = HEED_PATTERN_FIXED;
  t->node[0].columns = below(r, t->node[0].stride + 1);
}

static void logsparse(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_LOGSPARSE);
  p->left = below(r, 10);
  p->restart = below(r, 2) ? 1 + below(r, s->m) : 0;
}

static void binary_tree(tree *t, const sample *s, random_source *r) {
  (void)s;
  node(t, 0, HEED_PATTERN_TREE)->both_children = below(r, 2);
}

static void bigbird(tree *t, const sample *s, random_source *r) {
  heed_pattern *p = node(t, 0, HEED_PATTERN_BIGBIRD);
  p->block = 1 + below(r, s->m / 4 + 1);
  p->left = below(r, 3);
  p->right = below(r, 3);
  p->count = below(r, 3);
  p->random = below(r, 5);
  p->seed = r->next;
}

/* (window ∪ global ∪ dilated) ∩ fixed: what the kinds themselves cannot say. */
static void nested(tree *t, const sample *s, random_source *r) {
  fixed(t, s, r);
  t->node[1] = t->node[0];
  *node(t, 2, HEED_PATTERN_WINDOW) = (heed_pattern){.size = sizeof *t->node, .left = below(r, 20), .right = below(r, 70)};
  *node(t, 3, HEED_PATTERN_GLOBAL) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_GLOBAL, .count = below(r, 4)};
  *node(t, 4, HEED_PATTERN_DILATED) =
      (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_DILATED, .left = below(r, 9), .dilation = 1 + below(r, 70)};
  t->part[0] = &t->node[1], t->part[1] = &t->node[5];
  t->part[2] = &t->node[2], t->part[3] = &t->node[3], t->part[4] = &t->node[4];
  *node(t, 5, HEED_PATTERN_UNION) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_UNION, .parts = 3, .part = t->part + 2};
  *node(t, 0, HEED_PATTERN_INTERSECTION) =
      (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_INTERSECTION, .parts = 2, .part = t->part};
}

/* Parts that overlap, each with an order of its own. */
static void scattered(tree *t, const sample *s, random_source *r) {
  dilated(t, s, r);
  t->node[1] = t->node[0];
  *node(t, 2, HEED_PATTERN_GLOBAL) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_GLOBAL, .count = below(r, 6)};
  *node(t, 3, HEED_PATTERN_STRIDED) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_STRIDED, .stride = 1 + below(r, 90)};
  *node(t, 4, HEED_PATTERN_FIXED) =
      (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_FIXED, .stride = 9 + below(r, 90), .columns = below(r, 9)};
  for (int i = 0; i < 4; i++) t->part[i] = &t->node[i + 1];
  *node(t, 0, HEED_PATTERN_UNION) =
      (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_UNION, .parts = 2 + below(r, 3), .part = t->part};
}

static void window_and_global(tree *t, const sample *s, random_source *r) {
  (void)s;
  *node(t, 1, HEED_PATTERN_WINDOW) = (heed_pattern){.size = sizeof *t->node, .left = below(r, 40), .right = below(r, 40)};
  *node(t, 2, HEED_PATTERN_GLOBAL) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_GLOBAL, .count = 1 + below(r, 5)};
  t->part[0] = &t->node[1], t->part[1] = &t->node[2];
  *node(t, 0, HEED_PATTERN_UNION) = (heed_pattern){.size = sizeof *t->node, .kind = HEED_PATTERN_UNION, .parts = 2, .part = t->part};
}

static void (*const makers[])(tree *, const sample *, random_source *) = {
    window, dilated, global, prefix, ranges, blocks, strided, fixed, logsparse, binary_tree, bigbird, nested, scattered};
enum { MAKERS = sizeof makers / sizeof *makers };

/* ---- the mask ---------------------------------------------------------------------------------------------------------------------- */

/* The pattern of a sample without documents, spelt out: [batch, heads, n, m]. */
static uint8_t *spell_out(const sample *s) {
  uint8_t *mask = malloc((size_t)(s->batch * s->heads * s->n * s->m) + 1);
  for (int64_t at = 0; at < s->batch * s->heads * s->n * s->m; at++) {
    const int64_t j = at % s->m, i = at / s->m % s->n, head = at / s->m / s->n % s->heads, b = at / s->m / s->n / s->heads;
    const int64_t length = s->lengths ? s->lengths[b] : s->m;
    const int64_t offset = s->a.align == HEED_ALIGN_END ? length - s->n : s->a.align == HEED_ALIGN_GIVEN ? s->a.offset : 0;
    const hd_pair pair = {.batch = b,
                          .head = head,
                          .position = i + offset,
                          .key = j,
                          .keys = length,
                          .causal = s->a.causal,
                          .query = i,
                          .queries = s->n,
                          .call_key = j};
    mask[at] = hd_reference_shows(s->a.pattern, &pair);
  }
  return mask;
}

/* Cells of 16 queries × 64 keys in which anything is visible, and visible pairs, under the mask and the sample's other limits. */
static void count(const sample *s, const uint8_t *mask, int64_t *pairs, int64_t *cells) {
  *pairs = *cells = 0;
  for (int64_t head = 0; head < s->batch * s->heads; head++)
    for (int64_t q = 0; q < s->n; q += 16)
      for (int64_t k = 0; k < s->m; k += 64) {
        int64_t seen = 0, b = head / s->heads, length = s->lengths ? s->lengths[b] : s->m;
        int64_t offset = s->a.align == HEED_ALIGN_END ? length - s->n : s->a.align == HEED_ALIGN_GIVEN ? s->a.offset : 0;
        for (int64_t i = q; i < q + 16 && i < s->n; i++)
          for (int64_t j = k; j < k + 64 && j < s->m; j++)
            seen += mask[(head * s->n + i) * s->m + j] && j < length && (!s->a.causal || j <= i + offset);
        *pairs += seen;
        *cells += seen > 0;
      }
}

/* Whether keys are taken in another order than they lie in: then numbers are close, and cells others. */
static bool reordered(const sample *s) {
  const heed_pattern *p = s->a.pattern;
  return s->m >= 256 && (p->kind == HEED_PATTERN_UNION || p->kind == HEED_PATTERN_DILATED || p->kind == HEED_PATTERN_STRIDED ||
                         p->kind == HEED_PATTERN_FIXED);
}

static void check_plan(const sample *s, const uint8_t *mask, const char *what) {
  heed_plan plan = {.size = sizeof plan};
  int64_t pairs, cells;
  ok(context, heed_attention_explain_plan(context, &s->a, &s->vq, &s->vk, &s->vv, &plan));
  count(s, mask, &pairs, &cells);
  if (plan.visible_pairs != pairs || (!reordered(s) && plan.full_tiles + plan.partial_tiles != cells))
    fail_msg("%s, %lld × %lld: plan of %lld pairs in %lld cells, there are %lld in %lld", what, (long long)s->n, (long long)s->m,
             (long long)plan.visible_pairs, (long long)(plan.full_tiles + plan.partial_tiles), (long long)pairs, (long long)cells);
}

/* Output and gradients of the sample's pattern and of its mask are the same bytes, or close where keys are reordered. */
static void compare(sample *s, random_source *r, const char *what) {
  gradients g;
  uint8_t *mask = spell_out(s);
  heed_view view = heed_view_of(mask, HEED_BOOL, 4, (int64_t[]){s->batch, s->heads, s->n, s->m});
  gradients_begin(context, s, r, &g);
  check_plan(s, mask, what);
  float *out = copy_of(s->out, sample_out_count(s));
  kept_gradients kept = gradients_keep(&g);
  const bool close = reordered(s);
  s->a.pattern = NULL;
  s->a.attend = &view;
  sample_run(context, s);
  gradients_run(context, s, &g);
  if (close) {
    for (int64_t at = 0; at < sample_out_count(s); at++) assert_close(out[at], s->out[at], 1e-5, what, r->seed);
    for (int i = 0; i < GRADIENTS; i++)
      for (int64_t at = 0; at < g.count[i]; at++)
        assert_close(kept.data[i][at], g.data[i][at], 2e-5 * fmax(1, fabs(g.data[i][at])), what, r->seed);
    kept_free(&kept);
  } else {
    assert_same_bytes(s->out, out, sample_out_count(s) * 4, what, r->seed);
    gradients_unchanged(kept, &g, what, r->seed);
  }
  free(mask);
  free(out);
  gradients_free(&g);
}

static void label(char text[64], int kind, const sample *s) {
  snprintf(text, 64, "pattern maker %d, %lld × %lld", kind, (long long)s->n, (long long)s->m);
}

/* Every length from 1 to 200, every kind. */
static void every_length(void **state) {
  (void)state;
  static tree t;
  char what[64];
  for (int64_t n = 1; n <= 200; n += SANITIZED ? 7 : 1)
    for (int kind = 0; kind < MAKERS; kind++) {
      random_source r = {.seed = (uint64_t)(n * MAKERS + kind)};
      sample s = {.batch = 1, .heads = HEADS, .kv_heads = 1 + n % 2, .n = n, .m = n, .d = 4, .dv = 3};
      sample_fill(&s, &r, n % 3 == 0 && kind != 3 ? SAMPLE_CAUSAL : 0);
      align_start(&s);
      makers[kind](&t, &s, &r);
      s.a.pattern = t.node;
      label(what, kind, &s);
      compare(&s, &r, what);
      sample_free(&s);
    }
}

/* Larger ones, of different numbers of queries and keys, everywhere aligned, with lengths; and the formula in double precision. */
static void random_sizes(void **state) {
  (void)state;
  static tree t;
  char what[64];
  for (int round = 0; round < 60; round++) {
    random_source r = {.seed = 9000 + (uint64_t)round};
    int kind = round % MAKERS;
    sample s = {.batch = 2, .heads = HEADS, .kv_heads = 1 + round % 2, .n = 1 + below(&r, 600), .m = 1 + below(&r, 1300), .d = 8, .dv = 8};
    if (makers[kind] == blocks) s.n -= s.n % 32 - 32, s.m -= s.m % 32 - 32;
    sample_fill(&s, &r, below(&r, 2) ? SAMPLE_LENGTHS | SAMPLE_CAUSAL : SAMPLE_WINDOW);
    s.a.has_window_left = s.a.has_window_right = false;
    makers[kind](&t, &s, &r);
    s.a.pattern = t.node;
    label(what, kind, &s);
    if (s.n < 100) {
      sample_run(context, &s);
      double *want = sample_reference(context, &s, NULL);
      for (int64_t at = 0; at < sample_out_count(&s); at++) assert_close(s.out[at], want[at], 5e-6, what, r.seed);
      free(want);
    }
    compare(&s, &r, what);
    sample_free(&s);
  }
}

/* Terms of positions under patterns that are cut into passes, and keys that are reordered: output and every gradient, those of tables, sinks and distances too, are the formula's in double precision. */
static void positions_in_passes(void **state) {
  (void)state;
  static tree t;
  char what[64];
  const int kinds[] = {SAMPLE_RELATIVE, SAMPLE_RELATIVE | SAMPLE_CAUSAL | SAMPLE_SINK | SAMPLE_DROPOUT, SAMPLE_XL | SAMPLE_CAUSAL,
                       SAMPLE_ALIBI | SAMPLE_BIAS | SAMPLE_SOFTCAP};
  void (*const make[])(tree *, const sample *, random_source *) = {scattered, strided, window_and_global};
  for (int i = 0; i < 4; i++)
    for (int kind = 0; kind < 3; kind++) {
      random_source r = {.seed = 4000 + (uint64_t)(3 * i + kind)};
      sample s = {.batch = 1, .heads = HEADS, .kv_heads = 1, .n = 270, .m = 300, .d = 4, .dv = 4};
      gradients g;
      double *want[GRADIENTS];
      sample_fill(&s, &r, kinds[i]);
      align_end(&s);
      make[kind](&t, &s, &r);
      s.a.pattern = t.node;
      label(what, kind, &s);
      gradients_begin(context, &s, &r, &g);
      double *out = sample_reference(context, &s, NULL);
      for (int64_t at = 0; at < sample_out_count(&s); at++) assert_close(s.out[at], out[at], 1e-5, what, r.seed);
      gradients_reference(context, &s, &g, want);
      assert_gradients_close(&g, want, 2e-5, r.seed);
      for (int j = 0; j < GRADIENTS; j++) free(want[j]);
      free(out);
      gradients_free(&g);
      sample_free(&s);
    }
}

/* The two parts of Sparse Transformer, for layers or heads that take turns (Child et al. 2019, sections 4.2 and 4.3), and together, which are the kinds themselves. */
static void parts_of_sparse_transformer(void **state) {
  (void)state;
  static const char *const texts[][3] = {{"window:15", "strided:16:columns", "strided:16"},
                                         {"fixed:16:0", "fixed:16:3:summary", "fixed:16:3"}};
  enum { N = 100 };
  static uint8_t seen[3][N * N];
  for (int kind = 0; kind < 2; kind++)
    for (int causal = 0; causal < 2; causal++) {
      float *numbers = floats(N);
      const heed_view rows = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){N, 1});
      for (int i = 0; i < 3; i++) {
        heed_pattern *pattern;
        ok(context, heed_pattern_parse(context, texts[kind][i], &pattern));
        const heed_attention a = {.size = sizeof a, .causal = causal, .align = HEED_ALIGN_START, .pattern = pattern};
        const heed_view view = heed_view_of(seen[i], HEED_BOOL, 2, (int64_t[]){N, N});
        ok(context, heed_attention_visible(context, &a, &rows, &rows, &view));
        heed_pattern_free(pattern);
      }
      for (int p = 0; p < N; p++)
        for (int j = 0; j < N; j++) {
          const int at = p * N + j, apart = abs(p - j);
          const bool may = !causal || j <= p, near = kind ? p / 16 == j / 16 : apart < 16, far = kind ? j % 16 >= 13 : apart % 16 == 0;
          assert_int_equal(seen[0][at], may && near);
          assert_int_equal(seen[1][at], may && far);
          assert_int_equal(seen[2][at], may && (near || far));
        }
      free(numbers);
    }
}

/* What windows, dilated windows and strided columns touch holds at most 1.5 times their pairs, but for one cell a row of cells. */
static void touched(void **state) {
  (void)state;
  const heed_pattern patterns[] = {
      {.size = sizeof *patterns, .kind = HEED_PATTERN_WINDOW, .left = 512},
      {.size = sizeof *patterns, .kind = HEED_PATTERN_WINDOW, .left = 100, .right = 100},
      {.size = sizeof *patterns, .kind = HEED_PATTERN_DILATED, .left = 256, .right = 256, .dilation = 3},
      {.size = sizeof *patterns, .kind = HEED_PATTERN_DILATED, .left = 64, .dilation = 16},
      {.size = sizeof *patterns, .kind = HEED_PATTERN_STRIDED, .stride = 64, .columns_only = true},
      {.size = sizeof *patterns, .kind = HEED_PATTERN_STRIDED, .stride = 128, .columns_only = true},
  };
  for (int64_t n = 4096; n <= 8192; n += 4096)
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
      random_source r = {.seed = i};
      sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = n, .m = n, .d = 1, .dv = 1};
      heed_plan plan = {.size = sizeof plan};
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_start(&s);
      s.a.causal = i != 1;
      s.a.pattern = &patterns[i];
      ok(context, heed_attention_explain_plan(context, &s.a, &s.vq, &s.vk, &s.vv, &plan));
      const double held = 16.0 * 64 * (double)(plan.full_tiles + plan.partial_tiles - n / 16);
      if (held > 1.5 * (double)plan.visible_pairs)
        fail_msg("pattern %zu, n %lld: %.0f pairs in cells beside one a row, %lld visible", i, (long long)n, held,
                 (long long)plan.visible_pairs);
      sample_free(&s);
    }
}

/* What forward and backward take under a window does not grow with the length but for a few bytes a tile of queries; for 65,536 tokens it is far below 64 MB. */
static void memory_of_windows(void **state) {
  (void)state;
  enum { THREADS = 2, FLOATS = 16 };
  ledger l;
  heed_context *counting = ledger_context(&l, THREADS);
  const heed_pattern window = {.size = sizeof window, .kind = HEED_PATTERN_WINDOW, .left = 128};
  const heed_pattern *both[] = {&window, &(heed_pattern){.size = sizeof window, .kind = HEED_PATTERN_FIXED, .stride = 64}};
  const heed_pattern united = {.size = sizeof united, .kind = HEED_PATTERN_UNION, .parts = 2, .part = both};
  const int64_t longest[] = {65536, 32768}; // columns cost the square
  int64_t peak[2][2];
  for (int size = 0; size < 2; size++)
    for (int kind = 0; kind < 2; kind++) {
      random_source r = {.seed = 5};
      sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = size ? longest[kind] : 4096, .d = FLOATS, .dv = FLOATS};
      gradients g;
      s.m = s.n;
      sample_fill(&s, &r, SAMPLE_CAUSAL);
      align_start(&s);
      s.a.pattern = kind ? &united : &window;
      gradients_make(&g, &s, &r);
      l.peak = l.now;
      const int64_t before = l.now;
      sample_run(counting, &s);
      gradients_run(counting, &s, &g);
      peak[kind][size] = l.peak - before;
      gradients_free(&g);
      sample_free(&s);
    }
  heed_context_free(counting);
  // For each 64 queries more a struct or two, with a union two sets of 512 tiles; their rows would be 16 KiB and more.
  for (int kind = 0; kind < 2; kind++)
    if (peak[kind][1] > peak[kind][0] + (1 + kind) * 8 * (longest[kind] - 4096) || peak[kind][1] > 8 << 20)
      fail_msg("%s: %lld bytes for 4,096 tokens, %lld for %lld", kind ? "a union" : "a window", (long long)peak[kind][0],
               (long long)peak[kind][1], (long long)longest[kind]);
}

/* Documents count places from their own beginning; the oracle says so by itself. */
static void documents(void **state) {
  (void)state;
  static tree t;
  char what[64];
  for (int kind = 0; kind < MAKERS; kind++) {
    random_source r = {.seed = 700 + (uint64_t)kind};
    gradients g;
    double *want[GRADIENTS], *out;
    sample s = {.batch = 1, .heads = HEADS, .kv_heads = 1, .n = 150, .m = 170, .d = 8, .dv = 8};
    sample_fill(&s, &r, SAMPLE_DOCUMENTS | SAMPLE_CAUSAL | SAMPLE_ALIBI | SAMPLE_SINK | SAMPLE_DROPOUT);
    makers[kind](&t, &s, &r);
    s.a.pattern = t.node;
    label(what, kind, &s);
    gradients_begin(context, &s, &r, &g);
    out = sample_reference(context, &s, NULL);
    for (int64_t at = 0; at < sample_out_count(&s); at++) assert_close(s.out[at], out[at], 5e-6, what, r.seed);
    gradients_reference(context, &s, &g, want);
    assert_gradients_close(&g, want, 2e-5, r.seed);
    assert_same_bits_everywhere(context, &s, &r);
    for (int i = 0; i < GRADIENTS; i++) free(want[i]);
    free(out);
    gradients_free(&g);
    sample_free(&s);
  }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------------------------- */

static void refused(const heed_pattern *pattern, const char *words) {
  heed_status status = heed_pattern_check(context, pattern, HEADS, 100);
  if (status == HEED_OK) fail_msg("accepted where \"%s\" was due", words);
  if (!strstr(heed_error(context), words)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), words);
}

#define REFUSED(words, ...) refused(&(heed_pattern){.size = sizeof(heed_pattern), __VA_ARGS__}, words)

static void refusals(void **state) {
  (void)state;
  const int64_t falling[] = {3, 1}, zero[] = {2, 0}, rows[101] = {1}, short_rows[101] = {0, 1, 1}, keys[] = {7}, ends[] = {101};
  heed_pattern chain[HEED_PATTERN_UNION];
  const heed_pattern *link[HEED_PATTERN_UNION];
  REFUSED("window: left: got -1, allowed 0 and more", .left = -1);
  REFUSED("window: right: got -2, allowed 0 and more", .right = -2);
  REFUSED("unknown kind 99", .kind = (heed_pattern_kind)99);
  REFUSED("dilated: dilation: got 0, allowed 1 and more", .kind = HEED_PATTERN_DILATED, .left = 3);
  REFUSED("dilated: dilation: got 0, allowed 1 and more", .kind = HEED_PATTERN_DILATED, .left = 3, .dilations = zero);
  REFUSED("dilated: 3 dilations for 2 heads", .kind = HEED_PATTERN_DILATED, .count = 3, .dilations = zero);
  REFUSED("dilated: left: got -4, allowed 0 and more", .kind = HEED_PATTERN_DILATED, .left = -4, .dilation = 1);
  REFUSED("global: tokens: got -1, allowed 0 and more", .kind = HEED_PATTERN_GLOBAL, .count = -1);
  REFUSED("global: token 1 is 1, and they must ascend", .kind = HEED_PATTERN_GLOBAL, .count = 2, .tokens = falling);
  REFUSED("prefix: keys: got -1, allowed 0 and more", .kind = HEED_PATTERN_PREFIX, .count = -1);
  REFUSED("ranges: row_begin or begin is null", .kind = HEED_PATTERN_RANGES);
  REFUSED("ranges: row_begin[0] is 1: they begin at 0", .kind = HEED_PATTERN_RANGES, .row_begin = rows, .begin = keys, .end = ends);
  REFUSED("row_begin[3] is 0", .kind = HEED_PATTERN_RANGES, .row_begin = short_rows, .begin = keys, .end = ends);
  REFUSED("blocks: a block of 48 does not divide 100 queries and 100 keys", .kind = HEED_PATTERN_BLOCKS, .block = 48);
  REFUSED("blocks: block: got 0, allowed 1 and more", .kind = HEED_PATTERN_BLOCKS);
  REFUSED("strided: stride: got 0, allowed 1 and more", .kind = HEED_PATTERN_STRIDED);
  REFUSED("strided: a stride of 101 is larger than 100 tokens", .kind = HEED_PATTERN_STRIDED, .stride = 101);
  REFUSED("fixed: a stride of 101 is larger than 100 tokens", .kind = HEED_PATTERN_FIXED, .stride = 101);
  REFUSED("fixed: columns: got 9, allowed 0 to 8", .kind = HEED_PATTERN_FIXED, .stride = 8, .columns = 9);
  REFUSED("logsparse: restart: got -1, allowed 0 and more", .kind = HEED_PATTERN_LOGSPARSE, .restart = -1);
  REFUSED("logsparse: a restart of 101 is larger than 100 tokens", .kind = HEED_PATTERN_LOGSPARSE, .restart = 101);
  REFUSED("bigbird: block: got 0, allowed 1 and more", .kind = HEED_PATTERN_BIGBIRD);
  REFUSED("bigbird: a block of 48 does not divide 100 tokens", .kind = HEED_PATTERN_BIGBIRD, .block = 48);
  REFUSED("bigbird: 11 random blocks, and there are 10 in 100 tokens", .kind = HEED_PATTERN_BIGBIRD, .block = 10, .random = 11);
  REFUSED("bigbird: random blocks: got 65, allowed 0 to 64", .kind = HEED_PATTERN_BIGBIRD, .block = 1, .random = 65);
  REFUSED("a union or intersection of 0 parts", .kind = HEED_PATTERN_UNION);
  for (int i = 0; i < HEED_PATTERN_UNION; i++) {
    link[i] = &chain[i];
    chain[i] = (heed_pattern){.size = sizeof *chain, .kind = HEED_PATTERN_UNION, .parts = 1, .part = &link[i + 1]};
  }
  chain[HEED_PATTERN_UNION - 1].kind = HEED_PATTERN_WINDOW;
  refused(chain, "nested more than 8 deep");
  refused(&(heed_pattern){0}, "size");
  refused(NULL, "null");
  ok(context, heed_pattern_check(context, &chain[HEED_PATTERN_UNION - 9], 1, 1));
}

/* ---- text -------------------------------------------------------------------------------------------------------------------------- */

static heed_pattern *parsed(const char *text) {
  heed_pattern *pattern;
  ok(context, heed_pattern_parse(context, text, &pattern));
  return pattern;
}

static void text(void **state) {
  (void)state;
  heed_pattern *p = parsed("window:256+global:4");
  assert_true(p->kind == HEED_PATTERN_UNION && p->parts == 2);
  assert_true(p->part[0]->kind == HEED_PATTERN_WINDOW && p->part[0]->left == 256 && p->part[0]->right == 256);
  assert_true(p->part[1]->kind == HEED_PATTERN_GLOBAL && p->part[1]->count == 4 && !p->part[1]->tokens);
  heed_pattern_free(p);
  p = parsed("window:3:0&(strided:5:columns+tree:both)+fixed:8:2");
  assert_true(p->kind == HEED_PATTERN_UNION && p->parts == 2 && p->part[0]->kind == HEED_PATTERN_INTERSECTION);
  assert_true(p->part[0]->part[0]->left == 3 && p->part[0]->part[0]->right == 0);
  assert_true(p->part[0]->part[1]->part[0]->columns_only && p->part[0]->part[1]->part[1]->both_children);
  assert_true(p->part[1]->stride == 8 && p->part[1]->columns == 2 && !p->part[1]->columns_only);
  heed_pattern_free(p);
  p = parsed("dilated:all:1,2,4");
  assert_true(p->left == INT64_MAX && p->right == INT64_MAX && p->count == 3 && p->dilations[2] == 4);
  heed_pattern_free(p);
  p = parsed("global:0,17,30");
  assert_true(p->count == 3 && p->tokens[1] == 17);
  heed_pattern_free(p);
  p = parsed("bigbird:64:1:2:3:9");
  assert_true(p->block == 64 && p->left == 1 && p->right == 1 && p->count == 2 && p->random == 3 && p->seed == 9);
  heed_pattern_free(p);
  p = parsed("causal");
  assert_true(p->kind == HEED_PATTERN_WINDOW && p->left == INT64_MAX && p->right == 0);
  heed_pattern_free(p);
  heed_pattern_free(NULL);
  static const char *const wrong[][2] = {
      {"", "unknown kind \"\""},
      {"windw:3", "unknown kind \"windw\", known are full, causal, window, dilated"},
      {"window", "expected window:left[:right]"},
      {"window:1:2:3", "expected window:left[:right]"},
      {"window:x", "window: left: got \"x\", expected a whole number"},
      {"window:-1", "window: left: got -1, allowed 0 and more"},
      {"window:1,2", "window: left: got 2 numbers, expected one"},
      {"dilated:4:0", "dilated: dilation: got 0, allowed 1 and more"},
      {"strided:0", "strided: stride: got 0, allowed 1 and more"},
      {"strided:8:colums", "expected strided:stride[:columns]"},
      {"ranges:3", "unknown kind \"ranges\""},
      {"window:1+", "unknown kind \"\""},
      {"(window:1", "not closed"},
      {"window:1)", "\")\" is left over"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_int_equal(heed_pattern_parse(context, wrong[i][0], &p), HEED_E_ARGUMENT);
    assert_null(p);
    if (!strstr(heed_error(context), wrong[i][1])) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), wrong[i][1]);
  }
}

/* The visibility spelt out is what the oracle says. */
static void spelt_out(void **state) {
  (void)state;
  static tree t;
  for (int kind = 0; kind < MAKERS; kind++) {
    random_source r = {.seed = 40 + (uint64_t)kind};
    sample s = {.batch = 2, .heads = HEADS, .kv_heads = 1, .n = 96, .m = 160, .d = 1, .dv = 1};
    sample_fill(&s, &r, 0);
    align_end(&s);
    makers[kind](&t, &s, &r);
    s.a.pattern = t.node;
    uint8_t *want = spell_out(&s), *got = calloc(1, (size_t)(s.batch * s.heads * s.n * s.m));
    heed_view view = heed_view_of(got, HEED_BOOL, 4, (int64_t[]){s.batch, s.heads, s.n, s.m});
    ok(context, heed_attention_visible(context, &s.a, &s.vq, &s.vk, &view));
    assert_same_bytes(got, want, s.batch * s.heads * s.n * s.m, "visible", r.seed);
    free(want);
    free(got);
    sample_free(&s);
  }
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_length),
                                     cmocka_unit_test(random_sizes),
                                     cmocka_unit_test(positions_in_passes),
                                     cmocka_unit_test(parts_of_sparse_transformer),
                                     cmocka_unit_test(documents),
                                     cmocka_unit_test(touched),
                                     cmocka_unit_test(memory_of_windows),
                                     cmocka_unit_test(refusals),
                                     cmocka_unit_test(text),
                                     cmocka_unit_test(spelt_out)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
