/* gemm: heed_gemm against the formula: the same bits as one fused chain an element, on every level, for every form, type, stride and batch, with guard pages behind the arrays. */
#include "guard_pages.h"

#include "../../src/base/base.h"
#include "../../src/base/philox.h"

#include <math.h>
#include <stdio.h>

enum { DIMS = HEED_MAX_DIM };

typedef struct source {
  uint64_t seed, next;
} source;

static double uniform(source *s) { return hd_philox_uniform(s->seed, 7, s->next++); }
static int64_t below(source *s, int64_t n) { return (int64_t)(uniform(s) * (double)n); }

/* Where registers, panels, groups and slabs end. */
static int64_t edge(source *s, int64_t most) {
  static const int64_t sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  11, 12, 13, 15, 16,  17,  23,  24,  25,  31, 32,
                                  33, 47, 48, 49, 63, 64, 65, 71, 95, 96, 97, 99, 127, 128, 129, 191, 193, 257};
  int64_t size;
  do size = sizes[below(s, HD_COUNT(sizes))];
  while (size > most);
  return size;
}

/* ---- arrays of any layout -------------------------------------------------------------------------------------------------- */

typedef enum layout { ROWS, PADDED, TURNED, REVERSED, SPREAD, LAYOUTS } layout;

typedef struct array {
  heed_view view;
  void *memory;
  size_t bytes;
} array;

/* An array of the shape, its last element against a guard page: contiguous rows, rows with a gap, columns contiguous, both axes backwards, or nothing contiguous. */
static array array_new(source *s, heed_type type, int ndim, const int64_t *dim, layout how) {
  array a = {.view = heed_view_of(NULL, type, ndim, dim)};
  int64_t *stride = a.view.stride, rows = dim[ndim - 2], columns = dim[ndim - 1], size = (int64_t)heed_type_bytes(type);
  int64_t step = how == SPREAD ? 3 : 1, along = how == TURNED ? rows : columns;
  int64_t line = how == ROWS ? along : (along - 1) * step + 4, plane = line * (how == TURNED ? columns : rows) + (how == ROWS ? 0 : 5);
  stride[ndim - 1] = how == TURNED ? line : step;
  stride[ndim - 2] = how == TURNED ? step : line;
  for (int i = ndim - 3; i >= 0; plane *= dim[i--]) stride[i] = plane;
  int64_t last = 0, count = 1;
  for (int i = 0; i < ndim; i++) last += (dim[i] - 1) * stride[i], count *= dim[i];
  if (count == 0) last = -1;
  a.bytes = (size_t)((last + 1) * size);
  a.memory = before_guard(a.bytes);
  for (int64_t i = 0; i <= last; i++) hd_element_store((char *)a.memory + i * size, type, 2 * uniform(s) - 1);
  a.view.data = a.memory;
  if (how == REVERSED && count) {
    a.view.data = (char *)a.memory + ((rows - 1) * line + columns - 1) * size;
    stride[ndim - 1] = -stride[ndim - 1];
    stride[ndim - 2] = -stride[ndim - 2];
  }
  return a;
}

static void array_free(array *a) { before_guard_free(a->memory, a->bytes); }

/* The element of a view that broadcasts from the right, at the batch position of c and its own row and column. */
static void *element(const heed_view *view, const heed_view *c, const int64_t *batch, int64_t row, int64_t column) {
  int64_t offset = row * view->stride[view->ndim - 2] + column * view->stride[view->ndim - 1];
  for (int i = 0; i < view->ndim - 2; i++)
    if (view->dim[i] != 1) offset += batch[i + c->ndim - view->ndim] * view->stride[i];
  return (char *)view->data + offset * (int64_t)heed_type_bytes(view->type);
}

static double value(const heed_view *view, const heed_view *c, const int64_t *batch, int64_t row, int64_t column) {
  return hd_element(element(view, c, batch, row, column), view->type);
}

/* ---- the formula ------------------------------------------------------------------------------------------------------------- */

typedef struct problem {
  heed_gemm_form form;
  int64_t n, m, k;
  array a, b, c, bias;
  heed_view bias_view;
  double *was; /* c before the call, in the order of its elements */
} problem;

static int64_t count_of(const heed_view *view) { return hd_view_count(view); }

/* The i-th element of c: its batch position, row and column. */
static void position(const heed_view *c, int64_t i, int64_t batch[DIMS], int64_t *row, int64_t *column) {
  *column = i % c->dim[c->ndim - 1], i /= c->dim[c->ndim - 1];
  *row = i % c->dim[c->ndim - 2], i /= c->dim[c->ndim - 2];
  for (int d = c->ndim - 3; d >= 0; d--) batch[d] = i % c->dim[d], i /= c->dim[d];
}

static double *values(const heed_view *view) {
  int64_t n = count_of(view), batch[DIMS], row, column;
  double *out = calloc((size_t)n + 1, sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < n; i++) {
    position(view, i, batch, &row, &column);
    out[i] = value(view, view, batch, row, column);
  }
  return out;
}

/* An operand's numbers along the inner dimension, for one element of c. */
typedef struct {
  const char *first;
  int64_t step; /* bytes */
  heed_type type;
} chain_of;

static chain_of operand(const heed_view *view, const heed_view *c, const int64_t *batch, bool inner_rows, int64_t outer) {
  const int axis = view->ndim - (inner_rows ? 2 : 1);
  return (chain_of){element(view, c, batch, inner_rows ? 0 : outer, inner_rows ? outer : 0),
                    view->stride[axis] * (int64_t)heed_type_bytes(view->type), view->type};
}

static double number(const chain_of *of, int64_t k) {
  const void *at = of->first + k * of->step;
  return of->type == HEED_F32 ? *(const float *)at : hd_element(at, of->type);
}

/* What the i-th element of c must be: the chain of fused multiply-adds (exactly), the sum in double, and the sum of magnitudes that bounds the error. */
static float formula(const problem *p, int64_t i, double *exact, double *magnitude) {
  int64_t batch[DIMS], row, column;
  const heed_view *c = &p->c.view;
  position(c, i, batch, &row, &column);
  float chain = p->form.accumulate ? (float)p->was[i] : 0.0f;
  double sum = chain, size = fabs(sum);
  const chain_of of_a = operand(&p->a.view, c, batch, p->form.transpose_a, row),
                 of_b = operand(&p->b.view, c, batch, !p->form.transpose_b, column);
  for (int64_t k = 0; k < p->k; k++) {
    double a = number(&of_a, k), b = number(&of_b, k);
    chain = fmaf((float)a, (float)b, chain);
    sum += a * b;
    size += fabs(a * b);
  }
  if (p->form.bias) {
    double bias = value(&p->bias.view, c, batch, 0, column);
    chain += (float)bias;
    sum += bias;
    size += fabs(bias);
  }
  *exact = sum;
  *magnitude = size;
  return chain;
}

/* Of large products a part, spread so that every tile of the kernels has some: the formula takes its time. */
static void check(const problem *p, const char *what, uint64_t seed) {
  const heed_view *c = &p->c.view;
  const int64_t work = count_of(c) * p->k * (SANITIZED ? 1000 : 1), step = work > 100000000 ? 61 : work > 10000000 ? 7 : 1;
  double *got = values(c);
  for (int64_t i = (int64_t)(seed % (uint64_t)step); i < count_of(c); i += step) {
    double exact, magnitude, rounding = c->type == HEED_F32 ? 0x1p-24 : c->type == HEED_F16 ? 0x1p-11 : 0x1p-8;
    union {
      float f;
      uint16_t h;
    } want = {0}; // as c stores it
    hd_element_store(&want, c->type, formula(p, i, &exact, &magnitude));
    double bits = hd_element(&want, c->type);
    if (memcmp(&got[i], &bits, sizeof bits) != 0)
      fail_msg("%s, seed %llu, element %lld of %lld × %lld × %lld: %.9g, expected %.9g", what, (unsigned long long)seed, (long long)i,
               (long long)p->n, (long long)p->m, (long long)p->k, got[i], bits);
    double error = fabs(got[i] - exact), bound = (double)(p->k + 2) * 0x1p-24 * magnitude + rounding * fabs(exact) + 0x1p-24;
    if (!(error <= bound)) fail_msg("%s, seed %llu: %.9g is far from %.17g", what, (unsigned long long)seed, got[i], exact);
  }
  free(got);
}

/* Puts c back to what it was. */
static void reset(problem *p) {
  int64_t batch[DIMS], row, column;
  for (int64_t i = 0; i < count_of(&p->c.view); i++) {
    position(&p->c.view, i, batch, &row, &column);
    hd_element_store(element(&p->c.view, &p->c.view, batch, row, column), p->c.view.type, p->was[i]);
  }
}

typedef struct shape {
  int64_t n, m, k;
  int rank; /* of c */
  int64_t batch[DIMS - 2];
} shape;

/* The dimensions of an operand: its own two, with a batch of which each dimension may be c's or 1, and leading ones absent. */
static int operand_dims(source *s, const shape *of, bool broadcast, int64_t rows, int64_t columns, int64_t dim[DIMS]) {
  int lead = of->rank - 2, absent = broadcast ? (int)below(s, lead + 1) : 0, ndim = 0;
  for (int i = absent; i < lead; i++) dim[ndim++] = broadcast && below(s, 3) == 0 ? 1 : of->batch[i];
  dim[ndim++] = rows;
  dim[ndim++] = columns;
  return ndim;
}

static heed_type any_type(source *s) {
  static const heed_type types[] = {HEED_F32, HEED_F32, HEED_F16, HEED_BF16};
  return types[below(s, HD_COUNT(types))];
}

static problem problem_new(source *s, const shape *of, heed_gemm_form form, bool plain) {
  problem p = {.form = form, .n = of->n, .m = of->m, .k = of->k};
  int64_t dim[DIMS];
  bool ta = form.transpose_a, tb = form.transpose_b;
  int ndim = operand_dims(s, of, !plain, ta ? of->k : of->n, ta ? of->n : of->k, dim);
  p.a = array_new(s, plain ? HEED_F32 : any_type(s), ndim, dim, plain ? ROWS : (layout)below(s, LAYOUTS));
  ndim = operand_dims(s, of, !plain, tb ? of->m : of->k, tb ? of->k : of->m, dim);
  p.b = array_new(s, plain ? HEED_F32 : any_type(s), ndim, dim, plain ? ROWS : (layout)below(s, LAYOUTS));
  ndim = operand_dims(s, of, false, of->n, of->m, dim);
  p.c = array_new(s, plain ? HEED_F32 : any_type(s), ndim, dim, plain ? ROWS : (layout)below(s, LAYOUTS));
  p.bias = array_new(s, plain ? HEED_F32 : any_type(s), 2, (int64_t[]){1, of->m}, plain ? ROWS : (layout)below(s, LAYOUTS));
  p.bias_view = p.bias.view;
  p.bias_view.ndim = 1;
  p.bias_view.dim[0] = of->m;
  p.bias_view.stride[0] = p.bias.view.stride[1];
  p.was = values(&p.c.view);
  return p;
}

static void problem_free(problem *p) {
  array_free(&p->a), array_free(&p->b), array_free(&p->c), array_free(&p->bias);
  free(p->was);
}

static void run(heed_context *context, problem *p) {
  if (p->form.bias) p->form.bias = &p->bias_view;
  ok(context, heed_gemm(context, &p->form, &p->a.view, &p->b.view, &p->c.view));
}

/* All four forms with and without bias and accumulation. */
static heed_gemm_form form_of(int bits) {
  static const heed_view wanted; // replaced by the problem's own
  return (heed_gemm_form){.size = sizeof(heed_gemm_form),
                          .transpose_a = bits & 1,
                          .transpose_b = bits & 2,
                          .accumulate = bits & 4,
                          .bias = bits & 8 ? &wanted : NULL};
}

enum { FORMS = 16 };

/* ---- tests -------------------------------------------------------------------------------------------------------------------- */

static void every_size_and_form(void **state) {
  static const int64_t sizes[] = {0, 1, 2, 3, 5, 6, 7, 12, 13, 16, 17, 31, 33, 63, 64, 65};
  (void)state;
  heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 2});
  for (int i = 0; i < HD_COUNT(sizes); i++)
    for (int j = 0; j < HD_COUNT(sizes); j++)
      for (int k = 0; k < HD_COUNT(sizes); k += 1 + (i + j) % 3) {
        source s = {.seed = (uint64_t)(i * 10000 + j * 100 + k)};
        problem p = problem_new(&s, &(shape){sizes[i], sizes[j], sizes[k], 2, {0}}, form_of((i + 3 * j + 5 * k) % FORMS), true);
        run(context, &p);
        check(&p, "plain", s.seed);
        problem_free(&p);
      }
  heed_context_free(context);
}

/* Random types, strides, broadcasts and forms, on every level of this machine and several numbers of threads. */
static void every_type_stride_and_batch(void **state) {
  static const int threads[] = {1, 2, 3, 8};
  (void)state;
  heed_context *context[HEED_LEVEL_COUNT];
  for (heed_level l = HEED_LEVEL_SCALAR; l < HEED_LEVEL_COUNT; l++) context[l] = level_context(l, threads[l % HD_COUNT(threads)]);
  for (uint64_t round = 0; round < 160; round++) {
    source s = {.seed = 1000 + round};
    shape of = {.n = edge(&s, 72), .m = edge(&s, 130), .k = edge(&s, 260), .rank = 2 + (int)below(&s, 3)};
    if (round % 5 == 0) of.m = edge(&s, 24); // few columns and many rows are computed the other way round
    for (int i = 0; i < of.rank - 2; i++) of.batch[i] = 1 + below(&s, 3);
    problem p = problem_new(&s, &of, form_of((int)(round % FORMS)), false);
    for (heed_level l = HEED_LEVEL_SCALAR; l < HEED_LEVEL_COUNT; l++) {
      if (!context[l]) continue;
      reset(&p);
      run(context[l], &p);
      check(&p, heed_level_name(l), s.seed);
    }
    problem_free(&p);
  }
  for (heed_level l = HEED_LEVEL_SCALAR; l < HEED_LEVEL_COUNT; l++) heed_context_free(context[l]);
}

/* A host that promises threads and has one, which begins at the end: whoever comes first must be able to do everything. */
static void one_by_one_backwards(void *user, int threads, int64_t count, heed_parallel_body body, void *argument) {
  (void)user;
  while (count-- > 0) body(argument, count, (int)(count % threads));
}

/* A shape large enough to be cut in every direction, a layer's three products. */
static void large_products_on_any_threads(void **state) {
  static const struct {
    int threads;
    heed_parallel_for parallel_for;
  } hosts[] = {{1, NULL}, {2, NULL}, {3, NULL}, {8, NULL}, {3, one_by_one_backwards}};
  static const shape shapes[] = {{200, 330, 300, 2, {0}}, {9, 700, 410, 2, {0}},  {700, 9, 410, 2, {0}},
                                 {1, 515, 300, 2, {0}},   {40, 40, 1500, 2, {0}}, {600, 900, 600, 1, {0}}};
  (void)state;
  for (int i = 0; i < HD_COUNT(shapes); i++)
    for (int form = 0; form < 4; form++) {
      source s = {.seed = (uint64_t)(i * 4 + form)};
      problem p = problem_new(&s, &shapes[i], form_of(form), true);
      double *first = NULL;
      for (int t = 0; t < HD_COUNT(hosts); t++) {
        heed_context *context =
            test_context(&(heed_options){.size = sizeof(heed_options), .threads = hosts[t].threads, .parallel_for = hosts[t].parallel_for});
        run(context, &p);
        double *got = values(&p.c.view);
        if (!first) {
          check(&p, "large", s.seed);
          first = got;
        } else {
          assert_memory_equal(got, first, (size_t)count_of(&p.c.view) * sizeof *got);
          free(got);
        }
        heed_context_free(context);
      }
      free(first);
      problem_free(&p);
    }
}

/* A row alone, and an entry of a batch alone, have the bits they have together. */
static void rows_and_entries_alone(void **state) {
  (void)state;
  heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 2});
  for (int form = 0; form < 4; form++) {
    source s = {.seed = 77 + (uint64_t)form};
    problem p = problem_new(&s, &(shape){37, 81, 203, 3, {3}}, form_of(form), true);
    run(context, &p);
    double *together = values(&p.c.view);
    for (int64_t entry = 0; entry < 3; entry++)
      for (int64_t row = 0; row < p.n; row += 5) {
        float alone[81];
        heed_view a = p.a.view, b = p.b.view, c = heed_view_of(alone, HEED_F32, 2, (int64_t[]){1, p.m});
        a.data = (float *)a.data + entry * a.stride[0] + row * a.stride[form & 1 ? 2 : 1];
        b.data = (float *)b.data + entry * b.stride[0];
        a = heed_view_of(a.data, HEED_F32, 2, form & 1 ? (int64_t[]){p.k, 1} : (int64_t[]){1, p.k});
        if (form & 1) a.stride[0] = p.a.view.stride[1];
        b.ndim = 2;
        for (int i = 0; i < 2; i++) b.dim[i] = p.b.view.dim[i + 1], b.stride[i] = p.b.view.stride[i + 1];
        ok(context, heed_gemm(context, &p.form, &a, &b, &c));
        for (int64_t m = 0; m < p.m; m++) assert_true(alone[m] == together[(entry * p.n + row) * p.m + m]);
      }
    free(together);
    problem_free(&p);
  }
  heed_context_free(context);
}

/* Nothing is skipped because it is multiplied by 0, in any position of a tile; and a column beyond the last does no harm. */
static void nan_and_infinity_propagate(void **state) {
  enum { N = 15, M = 35, K = 19 };
  (void)state;
  heed_context *context = test_context(NULL);
  float a[N * K] = {0}, b[K * M] = {0}, c[N * M];
  heed_view va = heed_view_of(a, HEED_F32, 2, (int64_t[]){N, K}), vb = heed_view_of(b, HEED_F32, 2, (int64_t[]){K, M}),
            vc = heed_view_of(c, HEED_F32, 2, (int64_t[]){N, M});
  static const float ends[] = {NAN, INFINITY, -INFINITY};
  for (int e = 0; e < HD_COUNT(ends); e++)
    for (int i = 0; i < N * K; i++) {
      a[i] = ends[e];
      ok(context, heed_gemm(context, NULL, &va, &vb, &vc));
      for (int j = 0; j < N * M; j++) assert_true(j / M == i / K ? isnan(c[j]) : c[j] == 0.0f);
      a[i] = 0;
    }
  for (int e = 0; e < HD_COUNT(ends); e++)
    for (int i = 0; i < K * M; i++) {
      b[i] = ends[e];
      ok(context, heed_gemm(context, NULL, &va, &vb, &vc));
      for (int j = 0; j < N * M; j++) assert_true(j % M == i % M ? isnan(c[j]) : c[j] == 0.0f);
      b[i] = 0;
    }
  for (int i = 0; i < N * K; i++) a[i] = 1;
  b[5] = INFINITY;
  ok(context, heed_gemm(context, NULL, &va, &vb, &vc));
  for (int j = 0; j < N * M; j++) assert_true(c[j] == (j % M == 5 ? INFINITY : 0.0f));
  heed_context_free(context);
}

/* Gaps between c's rows, and everything if the call is refused, keep their bytes. */
static void only_c_is_written(void **state) {
  (void)state;
  heed_context *context = test_context(&(heed_options){.size = sizeof(heed_options), .threads = 3});
  for (int how = 0; how < LAYOUTS; how++) {
    source s = {.seed = 5};
    array a = array_new(&s, HEED_F32, 2, (int64_t[]){14, 20}, ROWS), b = array_new(&s, HEED_BF16, 2, (int64_t[]){20, 37}, ROWS);
    array c = array_new(&s, HEED_F32, 2, (int64_t[]){14, 37}, (layout)how);
    unsigned char *before = malloc(c.bytes), *written = calloc(c.bytes, 1);
    memcpy(before, c.memory, c.bytes);
    ok(context, heed_gemm(context, NULL, &a.view, &b.view, &c.view));
    for (int64_t i = 0; i < 14 * 37; i++) {
      int64_t batch[DIMS], row, column;
      position(&c.view, i, batch, &row, &column);
      memset(written + ((unsigned char *)element(&c.view, &c.view, batch, row, column) - (unsigned char *)c.memory), 1, 4);
    }
    for (size_t i = 0; i < c.bytes; i++) assert_true(written[i] || before[i] == ((unsigned char *)c.memory)[i]);
    free(before), free(written);
    array_free(&a), array_free(&b), array_free(&c);
  }
  heed_context_free(context);
}

/* Strides beyond 2^31 elements: rows of a sparse mapping 2^32 + 8 bytes apart. */
static void strides_beyond_two_gigabytes(void **state) {
  (void)state;
  const int64_t far = ((int64_t)1 << 30) + 2, rows = 3;
  size_t bytes = (size_t)(far * rows) * sizeof(float);
  float *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(map != MAP_FAILED);
  heed_context *context = test_context(NULL);
  float b[4] = {1, 2, 3, 4}, c[6];
  for (int64_t r = 0; r < rows; r++) map[r * far] = (float)r + 1, map[r * far + 1] = 10;
  heed_view va = {map, HEED_F32, 2, {3, 2}, {far, 1}}, vb = heed_view_of(b, HEED_F32, 2, (int64_t[]){2, 2}),
            vc = heed_view_of(c, HEED_F32, 2, (int64_t[]){3, 2});
  ok(context, heed_gemm(context, NULL, &va, &vb, &vc));
  assert_memory_equal(c, ((const float[]){31, 42, 32, 44, 33, 46}), sizeof c);
  heed_context_free(context);
  munmap(map, bytes);
}

/* ---- refusals ----------------------------------------------------------------------------------------------------------------- */

static void expect(heed_context *context, const heed_gemm_form *form, const heed_view *a, const heed_view *b, const heed_view *c,
                   heed_status status, const char *sentence) {
  heed_status got = heed_gemm(context, form, a, b, c);
  if (got != status) fail_msg("%s where %s was expected (%s)", heed_status_name(got), heed_status_name(status), heed_error(context));
  if (!strstr(heed_error(context), sentence)) fail_msg("\"%s\" does not say \"%s\"", heed_error(context), sentence);
}

static void refuses(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  float a[24] = {0}, b[24] = {0}, c[24], untouched[24], bias[4] = {0};
  for (int i = 0; i < 24; i++) c[i] = untouched[i] = (float)i;
  const heed_view va = heed_view_of(a, HEED_F32, 2, (int64_t[]){3, 4}), vb = heed_view_of(b, HEED_F32, 2, (int64_t[]){4, 2}),
                  vc = heed_view_of(c, HEED_F32, 2, (int64_t[]){3, 2});
  heed_gemm_form form = {.size = sizeof form};
  heed_view bad;
  assert_int_equal(heed_gemm(NULL, NULL, &va, &vb, &vc), HEED_E_ARGUMENT);
  expect(context, NULL, NULL, &vb, &vc, HEED_E_ARGUMENT, "a: the view is null");
  expect(context, NULL, &va, NULL, &vc, HEED_E_ARGUMENT, "b: the view is null");
  expect(context, NULL, &va, &vb, NULL, HEED_E_ARGUMENT, "c: the view is null");
  expect(context, &(heed_gemm_form){0}, &va, &vb, &vc, HEED_E_ARGUMENT, "size is not set");
  expect(context, NULL, &va, &va, &vc, HEED_E_SHAPE, "a [3,4], b [3,4], c [3,2]: allowed [n,k], [k,m], [n,m]");
  form.transpose_a = true;
  expect(context, &form, &va, &vb, &vc, HEED_E_SHAPE, "[k,n], [k,m]");
  form = (heed_gemm_form){.size = sizeof form, .transpose_b = true};
  expect(context, &form, &va, &vb, &vc, HEED_E_SHAPE, "[n,k], [m,k]");
  form = (heed_gemm_form){.size = sizeof form};
  bad = heed_view_of(a, HEED_F32, 1, (int64_t[]){4});
  expect(context, NULL, &bad, &vb, &vc, HEED_E_SHAPE, "rank 1");
  bad = heed_view_of(a, HEED_F32, 3, (int64_t[]){1, 3, 4});
  expect(context, NULL, &bad, &vb, &vc, HEED_E_SHAPE, "above that of c");
  heed_view batched = heed_view_of(c, HEED_F32, 3, (int64_t[]){2, 3, 2});
  bad = heed_view_of(a, HEED_F32, 3, (int64_t[]){3, 2, 4});
  bad.dim[0] = 3, bad.dim[1] = 3, bad.stride[0] = 0;
  expect(context, NULL, &bad, &vb, &batched, HEED_E_SHAPE, "does not broadcast");
  for (heed_type type = HEED_F32; type <= HEED_BOOL; type++) {
    if (type == HEED_F32 || type == HEED_F16 || type == HEED_BF16) continue;
    double room[24] = {0};
    bad = heed_view_of(room, type, 2, (int64_t[]){3, 4});
    expect(context, NULL, &bad, &vb, &vc, HEED_E_TYPE, "allowed f32, f16 and bf16");
    bad = heed_view_of(room, type, 2, (int64_t[]){4, 2});
    expect(context, NULL, &va, &bad, &vc, HEED_E_TYPE, "allowed f32, f16 and bf16");
    bad = heed_view_of(room, type, 2, (int64_t[]){3, 2});
    expect(context, NULL, &va, &vb, &bad, HEED_E_TYPE, "allowed f32, f16 and bf16");
    bad = heed_view_of(room, type, 1, (int64_t[]){2});
    form.bias = &bad;
    expect(context, &form, &va, &vb, &vc, HEED_E_TYPE, "bias");
  }
  bad = heed_view_of(bias, HEED_F32, 1, (int64_t[]){3});
  expect(context, &form, &va, &vb, &vc, HEED_E_SHAPE, "bias: [3]");
  bad = heed_view_of(bias, HEED_F32, 2, (int64_t[]){1, 2});
  expect(context, &form, &va, &vb, &vc, HEED_E_SHAPE, "bias: [1,2]");
  bad = heed_view_of(c + 5, HEED_F32, 1, (int64_t[]){2});
  expect(context, &form, &va, &vb, &vc, HEED_E_OVERLAP, "bias");
  bad = va, bad.data = c + 5;
  expect(context, NULL, &bad, &vb, &vc, HEED_E_OVERLAP, "c overlaps");
  bad = vb, bad.data = c;
  expect(context, NULL, &va, &bad, &vc, HEED_E_OVERLAP, "c overlaps");
  bad = vc, bad.stride[0] = 1;
  expect(context, NULL, &va, &vb, &bad, HEED_E_LAYOUT, "share memory");
  bad = batched, bad.stride[0] = 0;
  expect(context, NULL, &va, &vb, &bad, HEED_E_LAYOUT, "share memory");
  bad = va, bad.data = (char *)a + 2;
  expect(context, NULL, &bad, &vb, &vc, HEED_E_LAYOUT, "aligned");
  bad = va, bad.stride[0] = INT64_MAX / 2;
  expect(context, NULL, &bad, &vb, &vc, HEED_E_OVERFLOW, "64 bits");
  bad = va, bad.dim[0] = -1;
  expect(context, NULL, &bad, &vb, &vc, HEED_E_SHAPE, "negative");
  assert_memory_equal(c, untouched, sizeof c);
  heed_context_free(context);
}

typedef struct budget {
  int64_t left, live;
} budget;

static void *limited_allocate(void *user, size_t bytes, size_t alignment) {
  budget *b = user;
  if (b->left-- <= 0) return NULL;
  b->live += (int64_t)bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void limited_release(void *user, void *memory, size_t bytes) {
  ((budget *)user)->live -= (int64_t)bytes;
  free(memory);
}

/* Every allocation fails once: HEED_E_MEMORY, c as it was, nothing kept. */
static void memory_runs_out(void **state) {
  (void)state;
  budget limit = {.left = 1000};
  heed_context *context =
      test_context(&(heed_options){.size = sizeof(heed_options), .threads = 2, .allocator = {&limit, limited_allocate, limited_release}});
  int64_t base = limit.live, failures = 0;
  for (uint64_t round = 0; round < 24; round++) {
    source s = {.seed = round};
    problem p = problem_new(&s, &(shape){30, 20, 10, 2, {0}}, form_of((int)round % FORMS), false);
    if (p.form.bias) p.form.bias = &p.bias_view;
    heed_status status = HEED_E_MEMORY;
    for (int64_t n = 0; status == HEED_E_MEMORY; n++) {
      limit.left = n;
      status = heed_gemm(context, &p.form, &p.a.view, &p.b.view, &p.c.view);
      assert_int_equal(limit.live, base);
      if (status == HEED_OK) break;
      failures++;
      assert_int_equal(status, HEED_E_MEMORY);
      assert_non_null(strstr(heed_error(context), "out of memory"));
      double *now = values(&p.c.view);
      assert_memory_equal(now, p.was, (size_t)count_of(&p.c.view) * sizeof *now);
      free(now);
    }
    check(&p, "after memory ran out", round);
    problem_free(&p);
  }
  assert_true(failures > 20);
  heed_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_and_form),
      cmocka_unit_test(every_type_stride_and_batch),
      cmocka_unit_test(large_products_on_any_threads),
      cmocka_unit_test(rows_and_entries_alone),
      cmocka_unit_test(nan_and_infinity_propagate),
      cmocka_unit_test(only_c_is_written),
      cmocka_unit_test(strides_beyond_two_gigabytes),
      cmocka_unit_test(refuses),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
