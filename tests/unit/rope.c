/* Rotary positions: against the definition in double precision, as a property of scores, as an inverse and an adjoint, and bit for bit over levels, threads, layouts and
 * the ways of saying the same angles. */
#include "attention_sample.h"

#include "../../src/attn/rope.h"
#include "../../src/base/base.h"

static heed_context *context;

/* A random call: rows x [B,H,n,d] and everything a description can say, in arrays of its own. */
typedef struct turning {
  int64_t batch, heads, n, d, count;
  float *x, *out, *factors;
  int64_t *positions;
  heed_rope a;
  heed_rope_scaling scaling;
  heed_view vx, vout, vfactors, vpositions;
} turning;

static void turning_make(turning *t, random_source *r) {
  *t = (turning){.batch = 1 + below(r, 3), .heads = 1 + below(r, 3), .n = edge_size(r, 65), .a = {.size = sizeof t->a}};
  t->d = 2 * edge_size(r, 65) + below(r, 2);
  t->count = t->batch * t->heads * t->n * t->d;
  t->x = normals(r, t->count);
  t->out = floats(t->count);
  t->vx = heed_view_of(t->x, HEED_F32, 4, (int64_t[]){t->batch, t->heads, t->n, t->d});
  t->vout = t->vx;
  t->vout.data = t->out;
  t->a.interleaved = below(r, 2);
  t->a.inverse = below(r, 2);
  t->a.rotary_dim = t->d % 2 || below(r, 2) ? 2 * (1 + below(r, t->d / 2)) : 0;
  t->a.theta = below(r, 2) ? 0 : 100 + 1e6 * uniform(r);
  if (below(r, 3) == 0) { // an attention factor is no turn: without it turning back undoes all
    const double slow = 0.5 + uniform(r);
    t->scaling = (heed_rope_scaling){
        .size = sizeof t->scaling, .kind = (heed_rope_kind)below(r, 5), .theta = t->a.theta, .factor = 1 + 7 * uniform(r)};
    t->scaling.context = 1 + below(r, 300), t->scaling.length = below(r, 600), t->scaling.attention_factor = 1;
    t->scaling.slow = slow, t->scaling.fast = slow + 1 + 30 * uniform(r), t->scaling.unrounded = below(r, 2);
    if (t->scaling.kind == HEED_ROPE_DYNAMIC && (t->a.rotary_dim ? t->a.rotary_dim : t->d) < 4) t->scaling.kind = HEED_ROPE_LINEAR;
    t->a.theta = 0;
    t->a.scaling = &t->scaling;
  }
  if (below(r, 2)) t->a.offset = below(r, 5000) - 1000;
  int64_t pairs = (t->a.rotary_dim ? t->a.rotary_dim : t->d) / 2;
  if (below(r, 3) == 0) {
    t->factors = floats(pairs);
    for (int64_t i = 0; i < pairs; i++) t->factors[i] = (float)(0.25 + 8 * uniform(r));
    t->vfactors = heed_view_of(t->factors, HEED_F32, 1, &pairs);
    t->a.factors = &t->vfactors;
  }
  if (below(r, 2)) {
    int64_t dim[2] = {below(r, 2) ? t->batch : 1, below(r, 4) ? t->n : 1};
    t->positions = malloc((size_t)(dim[0] * dim[1]) * sizeof *t->positions);
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) t->positions[i] = below(r, 4000) - 100;
    t->vpositions = heed_view_of(t->positions, HEED_I64, 2, dim);
    t->a.positions = &t->vpositions;
  }
}

static void turning_free(turning *t) {
  free(t->x);
  free(t->out);
  free(t->factors);
  free(t->positions);
}

/* A test that holds for many random calls. */
#define TURNING(name)                                                                                                                      \
  static void name##_body(turning *t, random_source *r);                                                                                   \
  static void name(void **state) {                                                                                                         \
    (void)state;                                                                                                                           \
    for (uint64_t seed = 1; seed <= 40; seed++) {                                                                                          \
      turning t;                                                                                                                           \
      random_source r = {.seed = seed};                                                                                                    \
      turning_make(&t, &r);                                                                                                                \
      name##_body(&t, &r);                                                                                                                 \
      turning_free(&t);                                                                                                                    \
    }                                                                                                                                      \
  }                                                                                                                                        \
  static void name##_body(turning *t, random_source *r)

static double *doubles(const turning *t, heed_view *view) {
  double *data = calloc((size_t)t->count, sizeof *data);
  *view = heed_view_of(data, HEED_F64, 4, t->vx.dim);
  return data;
}

/* ---- what it computes --------------------------------------------------------------------------------------------------------------- */

TURNING(rows_turn_as_defined) {
  heed_view exact;
  double *want = doubles(t, &exact);
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  ok(context, heed_rope_reference(context, &t->a, &t->vx, &exact));
  int64_t width = t->a.rotary_dim ? t->a.rotary_dim : t->d;
  for (int64_t i = 0; i < t->count; i++) {
    assert_close(t->out[i], want[i], 1e-6, "out", r->seed);
    if (i % t->d >= width) assert_true(t->out[i] == t->x[i] && want[i] == t->x[i]);
  }
  free(want);
}

/* One pair by hand: a quarter turn, and the order of the pairs. */
static void a_quarter_turn(void **state) {
  (void)state;
  float x[4] = {1, 2, 3, 4}, out[4], cosine[2] = {0, 1}, sine[2] = {1, 0};
  heed_view vx = heed_view_of(x, HEED_F32, 2, (int64_t[]){1, 4}), vout = heed_view_of(out, HEED_F32, 2, (int64_t[]){1, 4});
  heed_view vc = heed_view_of(cosine, HEED_F32, 2, (int64_t[]){1, 2}), vs = heed_view_of(sine, HEED_F32, 2, (int64_t[]){1, 2});
  heed_rope a = {.size = sizeof a, .cosine = &vc, .sine = &vs};
  ok(context, heed_rope_apply(context, &a, &vx, &vout));
  assert_memory_equal(out, ((float[]){-3, 2, 1, 4}), sizeof out);
  a.interleaved = true;
  ok(context, heed_rope_apply(context, &a, &vx, &vout));
  assert_memory_equal(out, ((float[]){-2, 1, 3, 4}), sizeof out);
  a.inverse = true;
  ok(context, heed_rope_apply(context, &a, &vx, &vout));
  assert_memory_equal(out, ((float[]){2, -1, 3, 4}), sizeof out);
}

/* Scores depend on p_q − p_k alone: both moved by 1,000 positions give the same ones, one moved alone gives others. */
TURNING(p30_scores_depend_on_the_distance) {
  heed_view vk = t->vx, vq_out = t->vx, vk_out = t->vx, vw = t->vx;
  int64_t pairs = t->batch * t->heads * t->n * t->n;
  float *k = normals(r, t->count), *q_out = floats(t->count), *k_out = floats(t->count), *scores[3];
  vk.data = k, vq_out.data = q_out, vk_out.data = k_out;
  t->a.inverse = false;
  const int64_t shift[3][2] = {{0, 0}, {1000, 1000}, {1000, 0}}, from = t->a.offset;
  for (int i = 0; i < 3; i++) {
    scores[i] = floats(pairs);
    vw = heed_view_of(scores[i], HEED_F32, 4, (int64_t[]){t->batch, t->heads, t->n, t->n});
    t->a.offset = from + shift[i][0];
    ok(context, heed_rope_apply(context, &t->a, &t->vx, &vq_out));
    t->a.offset = from + shift[i][1];
    ok(context, heed_rope_apply(context, &t->a, &vk, &vk_out));
    const heed_attention_rows asked = {.size = sizeof asked, .tap = HEED_TAP_SCORES};
    ok(context, heed_attention_weights(context, NULL, &vq_out, &vk_out, &asked, &vw));
  }
  double apart = 0;
  for (int64_t i = 0; i < pairs; i++) {
    assert_close(scores[1][i], scores[0][i], 1e-4, "scores of shifted positions", r->seed);
    apart = fmax(apart, fabs((double)scores[2][i] - scores[0][i]));
  }
  assert_true(apart > 1e-3);
  for (int i = 0; i < 3; i++) free(scores[i]);
  free(k);
  free(q_out);
  free(k_out);
}

TURNING(turning_back_undoes_it) {
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  t->a.inverse = !t->a.inverse;
  ok(context, heed_rope_apply(context, &t->a, &t->vout, &t->vout));
  for (int64_t i = 0; i < t->count; i++) assert_close(t->out[i], t->x[i], 2e-6, "there and back", r->seed);
}

/* The backward pass: for every g, ⟨R x, g⟩ = ⟨x, R⁻¹ g⟩, so R⁻¹ g is the gradient of ⟨R x, g⟩ with respect to x. In f64 to its last digits, in f32 to its own. */
TURNING(turning_back_is_the_gradient) {
  heed_view forward, backward, vg = t->vx;
  double *turned = doubles(t, &forward), *gradient = doubles(t, &backward), there = 0, back = 0, size = 0;
  float *g = normals(r, t->count);
  vg.data = g;
  ok(context, heed_rope_reference(context, &t->a, &t->vx, &forward));
  t->a.inverse = !t->a.inverse;
  ok(context, heed_rope_reference(context, &t->a, &vg, &backward));
  ok(context, heed_rope_apply(context, &t->a, &vg, &t->vout));
  for (int64_t i = 0; i < t->count; i++) {
    there += turned[i] * g[i];
    back += t->x[i] * gradient[i];
    size += fabs(turned[i] * g[i]);
    assert_close(t->out[i], gradient[i], 1e-6, "dx", r->seed);
  }
  assert_close(back, there, 1e-13 * size, "the inner product", r->seed);
  free(turned);
  free(gradient);
  free(g);
}

/* What is not a number stays in its pair. */
TURNING(not_a_number_stays_in_its_pair) {
  int64_t bad = below(r, t->count), width = t->a.rotary_dim ? t->a.rotary_dim : t->d, at = bad % t->d, other = at;
  if (at < width) other = t->a.interleaved ? at ^ 1 : (at + width / 2) % width;
  t->x[bad] = NAN;
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  for (int64_t i = 0; i < t->count; i++) {
    bool touched = i / t->d == bad / t->d && (i % t->d == at || i % t->d == other);
    if (isnan(t->out[i]) != touched) fail_msg("element %lld (seed %llu)", (long long)i, (unsigned long long)r->seed);
  }
}

/* ---- the same bits ------------------------------------------------------------------------------------------------------------------ */

TURNING(p34_p35_levels_and_threads) {
  const int threads[] = {1, 3, 8};
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  float *again = floats(t->count);
  heed_view view = t->vx;
  view.data = again;
  for (heed_level level = HEED_LEVEL_SCALAR; level <= HEED_LEVEL_AVX512; level++) {
    if (!heed_level_available(level)) continue;
    heed_context *other = test_context(&(heed_options){.size = sizeof(heed_options), .level = level, .threads = threads[level % 3]});
    ok(other, heed_rope_apply(other, &t->a, &t->vx, &view));
    assert_same_bytes(again, t->out, t->count * 4, heed_level_name(level), r->seed);
    heed_context_free(other);
  }
  free(again);
}

/* [B,n,H,d] with gaps between the numbers, read backwards or forwards, and in place. */
TURNING(layouts_change_nothing) {
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  int64_t step = 1 + below(r, 2), dim[] = {t->batch, t->n, t->heads, t->d * step};
  float *spread = floats(t->count * step);
  heed_view view = heed_view_swap(heed_view_of(spread, HEED_F32, 4, dim), 1, 2);
  view.dim[3] = t->d;
  view.stride[3] = step;
  if (below(r, 2)) {
    view.data = spread + (t->d - 1) * step;
    view.stride[3] = -step;
  }
  float *at = view.data;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = 0; i < t->count; i++) {
      int64_t c = i % t->d, row = i / t->d % t->n, head = i / t->d / t->n % t->heads, batch = i / t->d / t->n / t->heads;
      float *element = at + batch * view.stride[0] + head * view.stride[1] + row * view.stride[2] + c * view.stride[3];
      if (pass == 0) *element = t->x[i];
      else assert_same_bytes(element, &t->out[i], 4, "another layout", r->seed);
      if (pass == 0 && i == t->count - 1) ok(context, heed_rope_apply(context, &t->a, &view, &view));
    }
  free(spread);
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vx));
  assert_same_bytes(t->x, t->out, t->count * 4, "in place", r->seed);
}

/* The f32 result of the same numbers, rounded once. */
TURNING(halves_are_rounded_once) {
  heed_type type = below(r, 2) ? HEED_F16 : HEED_BF16;
  uint16_t *in = calloc((size_t)t->count, 2), *out = calloc((size_t)t->count, 2);
  heed_view vin = t->vx, vout = t->vx;
  vin.data = in, vout.data = out;
  vin.type = vout.type = type;
  for (int64_t i = 0; i < t->count; i++) {
    hd_element_store(&in[i], type, t->x[i]);
    t->x[i] = (float)hd_element(&in[i], type);
  }
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  ok(context, heed_rope_apply(context, &t->a, &vin, &vout));
  for (int i = 0; i < 2; i++) {
    for (int64_t j = 0; j < t->count; j++) {
      uint16_t once;
      hd_element_store(&once, type, t->out[j]);
      if (out[j] != once) fail_msg("element %lld in %s (seed %llu)", (long long)j, heed_type_name(type), (unsigned long long)r->seed);
    }
    ok(context, heed_rope_apply(context, &t->a, &vin, &vin)); // and again in place
    memcpy(out, in, (size_t)t->count * 2);
  }
  free(in);
  free(out);
}

/* Tables by position, tables by row, i32 positions and positions row by row say the same as theta. */
TURNING(tables_are_angles) {
  int64_t width = t->a.rotary_dim ? t->a.rotary_dim : t->d, pairs = width / 2, low = INT64_MAX, high = INT64_MIN,
          *at = malloc((size_t)(t->batch * t->n) * 8);
  for (int64_t i = 0; i < t->batch * t->n; i++) {
    const heed_view *v = &t->vpositions;
    int64_t b = i / t->n, row = i % t->n;
    at[i] = t->a.offset + (t->a.positions ? t->positions[(v->dim[0] > 1 ? b * v->stride[0] : 0) + (v->dim[1] > 1 ? row : 0)] : row);
    low = HD_MIN(low, at[i]);
    high = HD_MAX(high, at[i]);
  }
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  double *frequency = calloc((size_t)pairs, sizeof *frequency);
  const heed_rope_scaling plain = {.size = sizeof plain, .theta = t->a.theta};
  ok(context, heed_rope_frequencies(context, t->a.scaling ? t->a.scaling : &plain, width, frequency, NULL));
  for (int64_t i = 0; i < pairs; i++) frequency[i] /= t->factors ? t->factors[i] : 1;
  int64_t rows = high - low + 1;
  float *tables[4] = {floats(rows * pairs), floats(rows * pairs), floats(t->batch * t->n * pairs), floats(t->batch * t->n * pairs)};
  hd_rope_table(context, &(hd_rope_turns){frequency, pairs, 1}, low, rows, tables[0], tables[1]);
  for (int64_t i = 0; i < t->batch * t->n; i++)
    for (int side = 0; side < 2; side++) memcpy(tables[2 + side] + i * pairs, tables[side] + (at[i] - low) * pairs, (size_t)pairs * 4);
  float *again = floats(t->count);
  heed_view vout = t->vx, cosine, sine, positions = heed_view_of(at, HEED_I64, 2, (int64_t[]){t->batch, t->n});
  vout.data = again;
  heed_rope a = t->a;
  a.theta = 0;
  a.factors = NULL;
  a.scaling = NULL;
  a.cosine = &cosine, a.sine = &sine;
  for (int by_row = 0; by_row < 2; by_row++) {
    const int64_t by_position[] = {rows, pairs}, by_rows[] = {t->batch, t->n, pairs};
    cosine = heed_view_of(tables[2 * by_row], HEED_F32, 2 + by_row, by_row ? by_rows : by_position);
    sine = heed_view_of(tables[2 * by_row + 1], HEED_F32, 2 + by_row, by_row ? by_rows : by_position);
    a.positions = by_row ? NULL : &positions;
    a.offset = by_row ? 0 : -low;
    memset(again, 0, (size_t)t->count * 4);
    ok(context, heed_rope_apply(context, &a, &t->vx, &vout));
    assert_same_bytes(again, t->out, t->count * 4, by_row ? "tables by row" : "tables by position", r->seed);
  }
  int32_t *narrow = malloc((size_t)(t->batch * t->n) * 4);
  for (int64_t i = 0; i < t->batch * t->n; i++) narrow[i] = (int32_t)at[i];
  a = t->a;
  a.offset = 0;
  a.positions = &positions;
  positions = heed_view_of(narrow, HEED_I32, 2, (int64_t[]){t->batch, t->n});
  ok(context, heed_rope_apply(context, &a, &t->vx, &vout));
  assert_same_bytes(again, t->out, t->count * 4, "i32 positions", r->seed);
  for (int i = 0; i < 4; i++) free(tables[i]);
  free(narrow);
  free(again);
  free(frequency);
  free(at);
}

/* Tables that are no plain f32 rows are read the same: doubles, and a transposed array. */
TURNING(tables_of_any_layout) {
  int64_t pairs = (t->a.rotary_dim ? t->a.rotary_dim : t->d) / 2;
  double *wide[2];
  float *plain[2], *again = floats(t->count), *turned[2];
  heed_view views[3][2], vout = t->vx;
  vout.data = again;
  for (int side = 0; side < 2; side++) {
    plain[side] = normals(r, t->n * pairs);
    turned[side] = floats(t->n * pairs);
    wide[side] = calloc((size_t)(t->n * pairs), sizeof(double));
    for (int64_t i = 0; i < t->n * pairs; i++) wide[side][i] = turned[side][i % pairs * t->n + i / pairs] = plain[side][i];
    views[0][side] = heed_view_of(plain[side], HEED_F32, 2, (int64_t[]){t->n, pairs});
    views[1][side] = heed_view_of(wide[side], HEED_F64, 2, (int64_t[]){t->n, pairs});
    views[2][side] = heed_view_swap(heed_view_of(turned[side], HEED_F32, 2, (int64_t[]){pairs, t->n}), 0, 1);
  }
  for (int i = 0; i < 3; i++) {
    const heed_rope a = {.size = sizeof a,
                         .interleaved = t->a.interleaved,
                         .inverse = t->a.inverse,
                         .rotary_dim = t->a.rotary_dim,
                         .cosine = &views[i][0],
                         .sine = &views[i][1]};
    ok(context, heed_rope_apply(context, &a, &t->vx, i ? &vout : &t->vout));
    if (i) assert_same_bytes(again, t->out, t->count * 4, "tables", r->seed);
  }
  for (int side = 0; side < 2; side++) {
    free(wide[side]);
    free(plain[side]);
    free(turned[side]);
  }
  free(again);
}

/* YaRN's factor multiplies what turns and nothing else, forward and backward. */
TURNING(attention_factor_multiplies) {
  const int64_t width = t->a.rotary_dim ? t->a.rotary_dim : t->d, rows = t->count / t->d;
  heed_rope_scaling yarn = {.size = sizeof yarn, .kind = HEED_ROPE_YARN, .factor = 4, .context = 64, .attention_factor = 1};
  float *again = floats(t->count);
  heed_view vagain = t->vx;
  vagain.data = again;
  t->a.theta = 0;
  t->a.scaling = &yarn;
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &t->vout));
  yarn.attention_factor = 0;
  ok(context, heed_rope_apply(context, &t->a, &t->vx, &vagain));
  for (int64_t i = 0; i < rows * t->d; i++)
    assert_close(again[i], t->out[i] * (i % t->d < width ? 0.1 * log(4) + 1 : 1), 2e-6, "attention factor", r->seed);
  free(again);
}

/* ---- refusals, sizes and memory ----------------------------------------------------------------------------------------------------- */

static void refusals(void **state) {
  (void)state;
  float x[2 * 3 * 4 * 6] = {0}, out[2 * 3 * 4 * 6], numbers[64] = {0};
  for (int i = 0; i < 144; i++) out[i] = 77;
  heed_view vx = heed_view_of(x, HEED_F32, 4, (int64_t[]){2, 3, 4, 6}), vout = vx;
  vout.data = out;
  int64_t far[4] = {0, 1, 2, INT64_MAX};
  heed_view table = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){4, 3}),
            short_table = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){3, 3}),
            narrow_table = heed_view_of(numbers, HEED_F32, 2, (int64_t[]){4, 2}),
            row_table = heed_view_of(numbers, HEED_F32, 3, (int64_t[]){2, 4, 3}),
            positions = heed_view_of(far, HEED_I64, 1, (int64_t[]){4}), few = heed_view_of(far, HEED_I64, 1, (int64_t[]){3}),
            halves = heed_view_of(far, HEED_F16, 1, (int64_t[]){4}), factors = heed_view_of(numbers, HEED_F32, 1, (int64_t[]){3}),
            odd = heed_view_of(x, HEED_F32, 2, (int64_t[]){4, 5}), odd_out = heed_view_of(out, HEED_F32, 2, (int64_t[]){4, 5}),
            shifted = vx, in_out = heed_view_of(out, HEED_F32, 2, (int64_t[]){4, 3}), integers = vx,
            other = heed_view_of(out, HEED_F32, 4, (int64_t[]){2, 3, 4, 5}), shared = vout;
  shifted.data = x + 2;
  shifted.dim[0] = vx.dim[0];
  integers.type = HEED_I32;
  shared.stride[1] = 0;
#define SCALING(...)                                                                                                                       \
  &(heed_rope_scaling) { .size = sizeof(heed_rope_scaling), __VA_ARGS__ }
  const heed_rope_scaling linear = {.size = sizeof linear, .kind = HEED_ROPE_LINEAR, .factor = 2};
#define ROPE(...)                                                                                                                          \
  &(heed_rope) { .size = sizeof(heed_rope), __VA_ARGS__ }
  const struct {
    const heed_rope *rope;
    const heed_view *x, *out;
    heed_status status;
    const char *says;
  } cases[] = {
      {ROPE(.rotary_dim = 8), &vx, &vout, HEED_E_SHAPE, "even width"},
      {ROPE(.rotary_dim = 3), &vx, &vout, HEED_E_SHAPE, "even width"},
      {ROPE(.rotary_dim = -2), &vx, &vout, HEED_E_SHAPE, "even width"},
      {ROPE(0), &odd, &odd_out, HEED_E_SHAPE, "even width"},
      {&(heed_rope){0}, &vx, &vout, HEED_E_ARGUMENT, "size is not set"},
      {ROPE(.theta = -1), &vx, &vout, HEED_E_ARGUMENT, "theta -1"},
      {ROPE(.theta = NAN), &vx, &vout, HEED_E_ARGUMENT, "theta"},
      {ROPE(.factors = &factors), &vx, &vout, HEED_E_ARGUMENT, "factor 0 is 0"},
      {ROPE(.factors = &table), &vx, &vout, HEED_E_SHAPE, "factors: [4,3]"},
      {ROPE(.factors = &halves), &vx, &vout, HEED_E_SHAPE, "factors: [4]"},
      {ROPE(.cosine = &table), &vx, &vout, HEED_E_ARGUMENT, "only one"},
      {ROPE(.cosine = &table, .sine = &table, .theta = 5), &vx, &vout, HEED_E_ARGUMENT, "theta, factors or a scaling"},
      {ROPE(.cosine = &table, .sine = &table, .scaling = &linear), &vx, &vout, HEED_E_ARGUMENT, "theta, factors or a scaling"},
      {ROPE(.theta = 5, .scaling = &linear), &vx, &vout, HEED_E_ARGUMENT, "theta is given, and a scaling"},
      {ROPE(.scaling = &(heed_rope_scaling){0}), &vx, &vout, HEED_E_ARGUMENT, "size is not set"},
      {ROPE(.scaling = SCALING(.kind = 9)), &vx, &vout, HEED_E_ARGUMENT, "unknown kind 9"},
      {ROPE(.scaling = SCALING(.theta = -2)), &vx, &vout, HEED_E_ARGUMENT, "theta -2"},
      {ROPE(.scaling = SCALING(.kind = HEED_ROPE_LINEAR)), &vx, &vout, HEED_E_ARGUMENT, "factor 0, allowed above 0"},
      {ROPE(.scaling = SCALING(.kind = HEED_ROPE_YARN, .factor = 2)), &vx, &vout, HEED_E_ARGUMENT, "a context of 0"},
      {ROPE(.scaling = SCALING(.kind = HEED_ROPE_DYNAMIC, .factor = 0.5, .context = 8)), &vx, &vout, HEED_E_ARGUMENT, "factor 0.5"},
      {ROPE(.rotary_dim = 2, .scaling = SCALING(.kind = HEED_ROPE_DYNAMIC, .factor = 2, .context = 8)), &vx, &vout, HEED_E_SHAPE,
       "above 2"},
      {ROPE(.scaling = SCALING(.kind = HEED_ROPE_LLAMA3, .factor = 2, .context = 8, .slow = 4)), &vx, &vout, HEED_E_ARGUMENT,
       "slow must be below fast"},
      {ROPE(.scaling = SCALING(.kind = HEED_ROPE_YARN, .factor = 2, .context = 8, .theta = 1)), &vx, &vout, HEED_E_ARGUMENT,
       "theta above 1"},
      {ROPE(.cosine = &table, .sine = &short_table), &vx, &vout, HEED_E_SHAPE, "same shape"},
      {ROPE(.cosine = &table, .sine = &row_table), &vx, &vout, HEED_E_SHAPE, "same shape"},
      {ROPE(.cosine = &narrow_table, .sine = &table), &vx, &vout, HEED_E_SHAPE, "cosine: [4,2]"},
      {ROPE(.cosine = &short_table, .sine = &short_table), &vx, &vout, HEED_E_ARGUMENT, "stands at position 3, allowed 0 to 2"},
      {ROPE(.cosine = &table, .sine = &table, .offset = -1), &vx, &vout, HEED_E_ARGUMENT, "stands at position -1"},
      {ROPE(.cosine = &row_table, .sine = &row_table, .offset = 1), &vx, &vout, HEED_E_ARGUMENT, "no room"},
      {ROPE(.cosine = &row_table, .sine = &row_table, .positions = &positions), &vx, &vout, HEED_E_ARGUMENT, "no room"},
      {ROPE(.positions = &positions), &vx, &vout, HEED_E_ARGUMENT, "row 3 of batch entry 0"},
      {ROPE(.positions = &positions, .offset = 1), &vx, &vout, HEED_E_ARGUMENT, "row 3 of batch entry 0"},
      {ROPE(.positions = &few), &vx, &vout, HEED_E_SHAPE, "positions: [3]"},
      {ROPE(.positions = &vx), &vx, &vout, HEED_E_TYPE, "positions is f32"},
      {ROPE(.positions = &halves), &vx, &vout, HEED_E_TYPE, "positions is f16"},
      {ROPE(.offset = INT64_MAX), &vx, &vout, HEED_E_ARGUMENT, "offset"},
      {ROPE(.cosine = &in_out, .sine = &in_out), &vx, &vout, HEED_E_OVERLAP, "out overlaps cosine"},
      {NULL, &vx, &other, HEED_E_SHAPE, "out: [2,3,4,5]"},
      {NULL, &vx, &shared, HEED_E_LAYOUT, "share memory"},
      {NULL, &shifted, &vx, HEED_E_OVERLAP, "out overlaps x"},
      {NULL, &integers, &vout, HEED_E_TYPE, "x is i32"},
      {NULL, NULL, &vout, HEED_E_ARGUMENT, "x: the view is null"},
      {NULL, &vx, NULL, HEED_E_ARGUMENT, "out: the view is null"},
  };
#undef ROPE
#undef SCALING
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int oracle = 0; oracle < 2; oracle++) {
      heed_status status = (oracle ? heed_rope_reference : heed_rope_apply)(context, cases[i].rope, cases[i].x, cases[i].out);
      if (status != cases[i].status || !strstr(heed_error(context), cases[i].says))
        fail_msg("case %zu: %s: %s", i, heed_status_name(status), heed_error(context));
    }
  for (int i = 0; i < 144; i++) assert_true(out[i] == 77 && x[i] == 0);
  assert_int_equal(heed_rope_apply(NULL, NULL, &vx, &vout), HEED_E_ARGUMENT);
}

/* Nothing to turn is nothing written, and no error. */
static void empty_arrays(void **state) {
  (void)state;
  for (int axis = 0; axis < 4; axis++) {
    int64_t dim[] = {2, 3, 4, 6};
    dim[axis] = 0;
    heed_view view = heed_view_of(NULL, HEED_F32, 4, dim);
    ok(context, heed_rope_apply(context, NULL, &view, &view));
    ok(context, heed_rope_reference(context, NULL, &view, &view));
  }
}

static int64_t live, budget, asked;

static void *counted_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  asked++;
  if (budget-- == 0) return NULL;
  live++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void counted_release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  live--;
  free(memory);
}

/* Each allocation fails once: the error is named, out untouched, nothing lost. Tables and rows in f32 ask for nothing. */
static void memory(void **state) {
  (void)state;
  float x[20 * 8], out[20 * 8], tables[20 * 4] = {0};
  for (int i = 0; i < 160; i++) x[i] = 1, out[i] = 77;
  heed_view vx = heed_view_of(x, HEED_F32, 2, (int64_t[]){20, 8}), vout = heed_view_of(out, HEED_F32, 2, (int64_t[]){20, 8}),
            table = heed_view_of(tables, HEED_F32, 2, (int64_t[]){20, 4});
  heed_options options = {.size = sizeof options, .threads = 2, .allocator = {.allocate = counted_allocate, .release = counted_release}};
  int failures = 0;
  for (int64_t n = 1;; n++) {
    heed_context *small = NULL;
    budget = n;
    assert_int_equal(heed_context_new(&options, &small), HEED_OK);
    heed_status status = heed_rope_apply(small, NULL, &vx, &vout);
    heed_context_free(small);
    assert_int_equal(live, 0);
    if (status == HEED_OK) break;
    assert_int_equal(status, HEED_E_MEMORY);
    assert_true(out[0] == 77);
    failures++;
  }
  assert_true(failures == 2);
  heed_context *small = NULL;
  budget = INT64_MAX;
  assert_int_equal(heed_context_new(&options, &small), HEED_OK);
  const heed_rope a = {.size = sizeof a, .cosine = &table, .sine = &table};
  asked = 0;
  ok(small, heed_rope_apply(small, &a, &vx, &vx));
  assert_int_equal(asked, 0);
  heed_context_free(small);
}

static int setup(void **state) {
  (void)state;
  context = test_context(NULL);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  heed_context_free(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_turn_as_defined),
      cmocka_unit_test(a_quarter_turn),
      cmocka_unit_test(p30_scores_depend_on_the_distance),
      cmocka_unit_test(turning_back_undoes_it),
      cmocka_unit_test(turning_back_is_the_gradient),
      cmocka_unit_test(not_a_number_stays_in_its_pair),
      cmocka_unit_test(p34_p35_levels_and_threads),
      cmocka_unit_test(layouts_change_nothing),
      cmocka_unit_test(halves_are_rounded_once),
      cmocka_unit_test(tables_are_angles),
      cmocka_unit_test(tables_of_any_layout),
      cmocka_unit_test(attention_factor_multiplies),
      cmocka_unit_test(refusals),
      cmocka_unit_test(empty_arrays),
      cmocka_unit_test(memory),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
