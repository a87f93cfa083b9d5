/* Memory (contract 22, P44): how much attention takes, counted at the allocator; what happens where there is none; that nothing is read or written beyond its arrays; and
 * arrays whose strides reach beyond 2^31 elements. Forward, backward and weights. */
#include "attention_gradients.h"
#include "attention_layouts.h"
#include "counting_allocator.h"
#include "guard_pages.h"

static heed_context *context;

/* ---- how much ------------------------------------------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Rows of 64 lanes or keys that one worker may hold at once: queries, two outputs, scores, biases, row copies, keys and values, and their gradients. */
static int64_t tiles_bytes(const sample *s, int threads) {
  return threads * (16 * 64 * (larger(larger(s->d, s->dv), 64) + 16) * (int64_t)sizeof(float)) + 64 * 1024;
}

typedef int64_t (*peak_of)(heed_context *counting, ledger *l, sample *s, random_source *r);

static int64_t forward_peak(heed_context *counting, ledger *l, sample *s, random_source *r) {
  (void)r;
  l->peak = l->now;
  int64_t before = l->now;
  sample_run(counting, s);
  return l->peak - before;
}

static int64_t weights_peak(heed_context *counting, ledger *l, sample *s, random_source *r) {
  (void)r;
  l->peak = l->now;
  int64_t before = l->now;
  free(run_weights(counting, s));
  return l->peak - before;
}

static int64_t backward_peak(heed_context *counting, ledger *l, sample *s, random_source *r) {
  gradients g;
  gradients_make(&g, s, r);
  sample_run(counting, s);
  l->peak = l->now;
  int64_t before = l->now;
  gradients_run(counting, s, &g);
  gradients_free(&g);
  return l->peak - before;
}

static int64_t peak(peak_of run, int threads, int64_t heads, int64_t kv_heads, int64_t n, int64_t m, int kinds, int64_t *tiles) {
  ledger l;
  heed_context *counting = ledger_context(&l, threads);
  random_source r = {.seed = 44};
  sample s = {.batch = 1, .heads = heads, .kv_heads = kv_heads, .n = n, .m = m, .d = 8, .dv = 16};
  sample_fill(&s, &r, kinds);
  if (kinds & SAMPLE_CAUSAL) align_end(&s);
  int64_t bytes = run(counting, &l, &s, &r);
  *tiles = tiles_bytes(&s, threads);
  sample_free(&s);
  heed_context_free(counting);
  assert_int_equal(l.now, 0);
  assert_int_equal(l.live, 0);
  return bytes;
}

/* Forward takes a few tiles a thread, whatever the lengths, the heads and what is asked for. */
static void p44_forward_takes_tiles(void **state) {
  (void)state;
  const int kinds[] = {0, SAMPLE_CAUSAL, SAMPLE_ATTEND | SAMPLE_BIAS | SAMPLE_SOFTCAP};
  for (int threads = 1; threads <= 4; threads *= 2)
    for (int k = 0; k < 3; k++) {
      int64_t tiles, small = peak(forward_peak, threads, 2, 2, 512, 512, kinds[k], &tiles), more;
      assert_true(small <= tiles);
      more = peak(forward_peak, threads, 4, 2, 700, 1100, kinds[k], &tiles);
      assert_int_equal(small, more);
    }
}

/* One query against a long cache: at most a running output for each chunk of 1024 keys. */
static void p44_decoding_takes_chunks(void **state) {
  (void)state;
  const int64_t keys = 64 * 1024, heads = 8;
  for (int threads = 1; threads <= 4; threads *= 2) {
    int64_t tiles, bytes = peak(forward_peak, threads, heads, 2, 1, keys, 0, &tiles);
    assert_true(bytes <= tiles + heads * (keys / 1024 + 1) * (16 + 16) * (int64_t)sizeof(float));
  }
}

/* Weights are the caller's array; besides, a few tiles. */
static void p44_weights_take_tiles(void **state) {
  (void)state;
  int64_t tiles, small = peak(weights_peak, 2, 1, 1, 512, 512, SAMPLE_CAUSAL, &tiles);
  assert_true(small <= tiles);
  assert_int_equal(small, peak(weights_peak, 2, 2, 1, 700, 1100, SAMPLE_CAUSAL, &tiles));
}

/* Backward keeps queries, upstream gradients and dq of each key/value head under way, one a thread: O(n · d), and a few tiles of keys a thread, but nothing grows with m. */
static void p44_backward_takes_heads_under_way(void **state) {
  (void)state;
  // Three rows of width d, one of dv, lse and δ; and a query tile's own fields, of which the narrowest level has one for each 16 rows.
  enum { NUMBERS = 3 * 8 + 16 + 16 + 64 };
  for (int threads = 1; threads <= 4; threads *= 2)
    for (int group = 1; group <= 2; group++) {
      const int64_t n = 700, kv_heads = 8;
      int64_t tiles, bytes = peak(backward_peak, threads, kv_heads * group, kv_heads, n, 1100, SAMPLE_CAUSAL, &tiles);
      assert_true(bytes <= tiles + threads * group * (n + 64) * NUMBERS * (int64_t)sizeof(float));
      assert_int_equal(bytes, peak(backward_peak, threads, kv_heads * group, kv_heads, n, 2200, SAMPLE_CAUSAL, &tiles));
    }
}

/* A score of its own takes projections of queries and keys, (n + m) · h numbers a head, and their gradients; nothing has n · m elements, let alone n · m · h. */
static void p44_additive_scores_take_projections(void **state) {
  (void)state;
  const int64_t n = 700, m = 900, heads = 2, widest = 40;
  int64_t tiles, forward = peak(forward_peak, 2, heads, 1, n, m, SAMPLE_ADDITIVE, &tiles);
  const int64_t projections = (heads * (n + 64) + m + 64) * (widest + 16) * (int64_t)sizeof(float), room = 4 * tiles;
  assert_true(forward <= room + projections);
  int64_t backward = peak(backward_peak, 2, heads, 1, n, m, SAMPLE_ADDITIVE, &tiles);
  assert_true(backward <= room + 2 * projections + heads * (n + 64) * (4 * widest + 80) * (int64_t)sizeof(float));
  assert_true(backward < heads * n * m * (int64_t)sizeof(float));
}

/* ---- no memory ----------------------------------------------------------------------------------------------------------------------- */

enum { FORWARD, BACKWARD, WEIGHTS, FORWARD_REFERENCE, BACKWARD_REFERENCE, CALLS };

static heed_status run_call(heed_context *with, int call, const sample *s, gradients *g, heed_view *weights) {
  heed_attention_extras extras = {.size = sizeof extras, .lse = &s->vlse};
  heed_attention_gradients to = gradients_out(g, g->view);
  switch (call) {
  case FORWARD: return heed_attention_forward(with, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &extras);
  case BACKWARD: return heed_attention_backward(with, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &s->vlse, &g->vdout, &to);
  case WEIGHTS: return heed_attention_weights(with, &s->a, &s->vq, &s->vk, NULL, weights);
  case FORWARD_REFERENCE: return heed_attention_reference(with, &s->a, &s->vq, &s->vk, &s->vv, &s->vout, &extras);
  default: return heed_attention_backward_reference(with, &s->a, &s->vq, &s->vk, &s->vv, &g->vdout, &to);
  }
}

static bool all_bytes(const void *data, int64_t bytes, unsigned char value) {
  const unsigned char *at = data;
  for (int64_t i = 0; i < bytes; i++)
    if (at[i] != value) return false;
  return true;
}

/* Every allocation of every call fails once: HEED_E_MEMORY, nothing leaks, no output is touched (save, in the backward pass of a score of its own, by what came before). */
static void every_allocation_fails_once(void **state) {
  (void)state;
  enum { MARK = 0x3c, SHAPES = 4 };
  static const struct {
    int64_t n, m;
    int kinds;
  } shapes[SHAPES] = {
      {70, 70, SAMPLE_CAUSAL | SAMPLE_ATTEND | SAMPLE_BIAS | SAMPLE_SOFTCAP | SAMPLE_SINK | SAMPLE_DROPOUT},
      {1, 2100, 0}, // decodes
      {20, 30, SAMPLE_ADDITIVE | SAMPLE_BIAS},
      {20, 30, SAMPLE_BILINEAR | SAMPLE_SINK},
  };
  for (int call = 0; call < CALLS; call++)
    for (int shape = 0; shape < SHAPES; shape++) {
      random_source r = {.seed = (uint64_t)call};
      sample s = {.batch = 2, .heads = 4, .kv_heads = 2, .n = shapes[shape].n, .m = shapes[shape].m, .d = 9, .dv = 17};
      gradients g;
      ledger l;
      int failures = 0, count = 0;
      sample_fill(&s, &r, shapes[shape].kinds);
      if (s.a.causal) align_start(&s);
      gradients_begin(context, &s, &r, &g);
      int64_t pairs = s.batch * s.heads * s.n * s.m;
      float *rows = floats(pairs * 2);
      heed_view weights = weights_view(&s, rows);
      for (int i = 0; i < 4; i++) weights.stride[i] *= 2; // rows that need a copy
      struct {
        void *data;
        int64_t bytes;
      } out[GRADIENTS + 3];
      for (int i = 0; i < GRADIENTS; i++)
        if (g.input[i]) out[count].data = g.data[i], out[count++].bytes = g.count[i] * 4;
      if (call != BACKWARD) { // which reads out and lse
        out[count].data = s.out, out[count++].bytes = sample_out_count(&s) * 4;
        out[count].data = s.lse, out[count++].bytes = s.batch * s.heads * s.n * 4;
        out[count].data = rows, out[count++].bytes = pairs * 8;
      }
      heed_context *small = ledger_context(&l, 2);
      const int64_t own = l.live;
      for (int64_t granted = 0;; granted++) {
        for (int i = 0; i < count; i++) memset(out[i].data, MARK, (size_t)out[i].bytes);
        l.budget = granted;
        heed_status status = run_call(small, call, &s, &g, &weights);
        assert_int_equal(l.live, own);
        if (status == HEED_OK) break;
        assert_int_equal(status, HEED_E_MEMORY);
        assert_non_null(strstr(heed_error(small), "out of memory"));
        // The products behind a score's gradients come last and take memory of their own.
        const bool untouched = call != BACKWARD || !s.a.score;
        for (int i = 0; i < count && untouched; i++)
          if (!all_bytes(out[i].data, out[i].bytes, MARK))
            fail_msg("call %d: output %d was touched before memory ran out at request %lld", call, i, (long long)granted);
        failures++;
      }
      assert_true(failures >= 1);
      l.budget = -1;
      heed_context_free(small);
      assert_int_equal(l.live, 0);
      free(rows);
      gradients_free(&g);
      sample_free(&s);
    }
}

/* ---- guard pages ----------------------------------------------------------------------------------------------------------------------- */

/* Complaint 11 and P44: no read or write beyond any array on either side, whatever the sizes are modulo a tile. */
static void p44_guard_pages(void **state) {
  (void)state;
  enum { ARRAYS = 14 };
  for (int64_t m = 1; m <= 130; m++)
    for (int behind = 0; behind < 2; behind++) {
      random_source r = {.seed = (uint64_t)m};
      sample s = {.batch = 1, .heads = 1, .kv_heads = 1, .n = 1 + m % 67, .m = m, .d = 1 + m % 37, .dv = 1 + m % 41};
      gradients g;
      sample_fill(&s, &r, m % 2 ? SAMPLE_CAUSAL | SAMPLE_BIAS | SAMPLE_ATTEND | SAMPLE_ALIBI | SAMPLE_SINK : 0);
      if (m % 2) align_end(&s);
      gradients_make(&g, &s, &r);
      float *rows = floats(s.n * m);
      heed_view weights = weights_view(&s, rows);
      heed_view *views[ARRAYS] = {&s.vq,       &s.vk,       &s.vv,          &s.vout,    &s.vlse,  &g.vdout,  &g.view[DQ],
                                  &g.view[DK], &g.view[DV], &g.view[DBIAS], &s.vattend, &s.vbias, &s.valibi, &s.vsink};
      guarded maps[ARRAYS + 1] = {{0}};
      for (int i = 0; i < ARRAYS; i++)
        if (views[i]->data) maps[i] = guard(views[i], behind);
      maps[ARRAYS] = guard(&weights, behind);
      for (int call = FORWARD; call <= WEIGHTS; call++) ok(context, run_call(context, call, &s, &g, &weights));
      for (int i = 0; i <= ARRAYS; i++) guard_free(&maps[i]);
      free(rows);
      gradients_free(&g);
      sample_free(&s);
    }
}

/* ---- strides beyond 2^31 ----------------------------------------------------------------------------------------------------------------- */

typedef struct sparse {
  char *map;
  size_t bytes;
} sparse;

/* Lays the view's numbers into a mapping of which only the touched pages exist: axis `far` steps by more than 2^31 elements, forward or backward. */
static sparse spread_out(heed_view *view, int far, bool backward) {
  const int64_t step = ((int64_t)1 << 31) + 37, size = (int64_t)heed_type_bytes(view->type);
  heed_view moved = *view;
  int64_t near = 1;
  for (int i = view->ndim - 1; i >= 0; i--) {
    if (i == far) continue;
    moved.stride[i] = near;
    near *= view->dim[i];
  }
  sparse made = {.bytes = (size_t)(((view->dim[far] - 1) * step + near) * size)};
  made.map = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made.map == MAP_FAILED) fail_msg("no address space for %zu bytes", made.bytes);
  moved.stride[far] = backward ? -step : step;
  moved.data = made.map + (backward ? (view->dim[far] - 1) * step * size : 0);
  for (int64_t i = 0, count = hd_view_count(view); i < count; i++) memcpy(view_element(&moved, i), view_element(view, i), (size_t)size);
  *view = moved;
  return made;
}

static void strides_beyond_two_to_the_31(void **state) {
  (void)state;
  enum { ARRAYS = 13 };
  random_source r = {.seed = 31};
  sample s = {.batch = 2, .heads = 2, .kv_heads = 2, .n = 3, .m = 3, .d = 3, .dv = 2};
  gradients g;
  sample_fill(&s, &r, SAMPLE_CAUSAL | SAMPLE_ATTEND | SAMPLE_BIAS);
  align_start(&s);
  gradients_begin(context, &s, &r, &g);
  kept_gradients kept = gradients_keep(&g);
  float *out = copy_of(s.out, sample_out_count(&s)), *lse = copy_of(s.lse, s.batch * s.heads * s.n), *rows = run_weights(context, &s);
  float *empty = floats(s.batch * s.heads * s.n * s.m);
  heed_view weights = weights_view(&s, empty);
  heed_view *const views[ARRAYS] = {&s.vq,       &s.vk,       &s.vv,      &s.vout,  &s.vlse,  &g.vdout,      &g.view[DQ],
                                    &g.view[DK], &g.view[DV], &s.vattend, &s.vbias, &weights, &g.view[DBIAS]};
  const int far[ARRAYS] = {2, 3, 2, 1, 2, 0, 3, 2, 1, 3, 2, 2, 3};
  sparse maps[ARRAYS];
  for (int i = 0; i < ARRAYS; i++) maps[i] = spread_out(views[i], far[i], i % 2);
  for (int call = FORWARD; call <= WEIGHTS; call++) ok(context, run_call(context, call, &s, &g, &weights));
  for (int64_t i = 0; i < sample_out_count(&s); i++) assert_same_bytes(view_element(&s.vout, i), out + i, 4, "out", r.seed);
  for (int64_t i = 0; i < s.batch * s.heads * s.n; i++) assert_same_bytes(view_element(&s.vlse, i), lse + i, 4, "lse", r.seed);
  for (int64_t i = 0; i < s.batch * s.heads * s.n * s.m; i++) assert_same_bytes(view_element(&weights, i), rows + i, 4, "weights", r.seed);
  for (int k = 0; k < GRADIENTS; k++)
    for (int64_t i = 0; i < g.count[k]; i++) assert_same_bytes(view_element(&g.view[k], i), kept.data[k] + i, 4, gradient_names[k], r.seed);
  for (int i = 0; i < ARRAYS; i++) munmap(maps[i].map, maps[i].bytes);
  kept_free(&kept);
  free(out);
  free(lse);
  free(rows);
  free(empty);
  gradients_free(&g);
  sample_free(&s);
}

int main(void) {
  context = test_context(NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(p44_forward_takes_tiles),
      cmocka_unit_test(p44_decoding_takes_chunks),
      cmocka_unit_test(p44_weights_take_tiles),
      cmocka_unit_test(p44_backward_takes_heads_under_way),
      cmocka_unit_test(p44_additive_scores_take_projections),
      cmocka_unit_test(every_allocation_fails_once),
      cmocka_unit_test(p44_guard_pages),
      cmocka_unit_test(strides_beyond_two_to_the_31),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  heed_context_free(context);
  return failed;
}
