/* rope.c: rotary positions (Su et al., "RoFormer", 2021): pairs of a row's numbers turn by an angle that grows with the row's position, so that q·k depends on the distance
 * of the two alone. Angles come from the caller's tables or from theta; the turn itself is a kernel. Turning back by the same angles is both the inverse and the backward
 * pass, because a rotation's transpose is its inverse. */
#include "rope.h"

#include "attention.h"

#include <math.h>

/* Positions are multiplied by frequencies in double, which holds them exactly up to here. */
static const int64_t FAR_POSITION = (int64_t)1 << 53;

/* Rows one piece of parallel work takes, all heads of each: they share their angles. */
enum { BLOCK = 8 };

/* One call, understood. */
struct turn {
  heed_rope a;
  const hd_kernels *kernels;
  hd_grid x, out, cosine, sine, factors;
  int64_t pairs;
  bool by_row;   /* a row of the tables belongs to a row of x, not to a position */
  bool in_place; /* what does not turn is there already */
  bool direct;   /* rows of x and out are contiguous f32 */
  bool borrowed; /* the tables hold rows as the kernel wants them: contiguous f32, forward */
  heed_rope_scaling scaling;
  double *frequency;
  double amplitude;
  float *scratch; /* [workers][scratch_floats]: cosine, sine, a row */
  int64_t scratch_floats;
};

/* ---- positions and angles ----------------------------------------------------------------------------------------------------------- */

/* Where row `row` of a batch entry stands. Not yet checked: positions of the caller may be anything, so the sum is taken in unsigned numbers. */
static int64_t position_of(const heed_rope *a, int64_t batch, int64_t row) {
  const heed_view *view = a->positions;
  uint64_t position = (uint64_t)row;
  if (view) {
    int64_t at = view->dim[view->ndim - 1] == 1 ? 0 : row * view->stride[view->ndim - 1];
    if (view->ndim == 2 && view->dim[0] != 1) at += batch * view->stride[0];
    position = (uint64_t)(view->type == HEED_I64 ? ((const int64_t *)view->data)[at] : ((const int32_t *)view->data)[at]);
  }
  return (int64_t)(position + (uint64_t)a->offset);
}

/* Angles grow with the position and only their rest within a full turn counts, hence double. */
static void compute_angles(const hd_rope_turns *turns, int64_t position, float *cosine, float *sine) {
  for (int64_t i = 0; i < turns->pairs; i++) {
    double angle = (double)position * turns->frequency[i];
    cosine[i] = (float)(turns->amplitude * cos(angle));
    sine[i] = (float)(turns->amplitude * sin(angle));
  }
}

struct table {
  const hd_rope_turns *turns;
  int64_t first, rows;
  float *cosine, *sine;
};

static void fill_block(void *argument, int64_t i, int worker) {
  (void)worker;
  const struct table *t = argument;
  for (int64_t r = i * BLOCK, end = HD_MIN(t->rows, r + BLOCK); r < end; r++)
    compute_angles(t->turns, t->first + r, t->cosine + r * t->turns->pairs, t->sine + r * t->turns->pairs);
}

void hd_rope_table(heed_context *context, const hd_rope_turns *turns, int64_t first, int64_t rows, float *cosine, float *sine) {
  struct table table = {turns, first, rows, cosine, sine};
  hd_parallel(context, hd_ceil_div(rows, BLOCK), fill_block, &table);
}

/* The row of a table for row `row` of a batch entry. */
static const char *table_row(const struct turn *t, const hd_grid *table, int64_t batch, int64_t row) {
  return t->by_row ? hd_grid_row(table, 0, table->heads == 1 ? 0 : batch, row) : hd_grid_row(table, 0, 0, position_of(&t->a, batch, row));
}

/* Cosines and sines of one row of x, in the tables or in scratch [2][pairs]. */
static void angles_of(const struct turn *t, int64_t batch, int64_t row, float *scratch, const float **cosine, const float **sine) {
  if (t->borrowed) {
    *cosine = (const float *)table_row(t, &t->cosine, batch, row);
    *sine = (const float *)table_row(t, &t->sine, batch, row);
    return;
  }
  float *made[2] = {scratch, scratch + t->pairs};
  *cosine = made[0], *sine = made[1];
  if (!t->a.cosine) {
    compute_angles(&(hd_rope_turns){t->frequency, t->pairs, t->amplitude}, position_of(&t->a, batch, row), made[0], made[1]);
  } else {
    hd_to_floats(t->kernels, table_row(t, &t->cosine, batch, row), t->cosine.type, t->cosine.column_stride, t->pairs, made[0]);
    hd_to_floats(t->kernels, table_row(t, &t->sine, batch, row), t->sine.type, t->sine.column_stride, t->pairs, made[1]);
  }
  if (t->a.inverse)
    for (int64_t i = 0; i < t->pairs; i++) made[1][i] = -made[1][i];
}

/* ---- turning ------------------------------------------------------------------------------------------------------------------------ */

static void turn_row(const struct turn *t, int64_t batch, int64_t row, float *scratch) {
  const float *cosine, *sine;
  float *copy = t->direct ? NULL : scratch + 2 * t->pairs;
  angles_of(t, batch, row, scratch, &cosine, &sine);
  // In place the rest of a row is where it belongs.
  int64_t columns = t->in_place ? 2 * t->pairs : t->x.columns;
  for (int64_t head = 0; head < t->x.heads; head++) {
    const char *from = hd_grid_row(&t->x, batch, head, row);
    char *to = hd_grid_row(&t->out, batch, head, row);
    float *turned = t->direct ? (float *)to : copy;
    if (!t->direct || !t->in_place) hd_to_floats(t->kernels, from, t->x.type, t->x.column_stride, columns, turned);
    t->kernels->rotate(turned, cosine, sine, t->pairs, t->a.interleaved);
    if (!t->direct) hd_from_floats(t->kernels, turned, columns, to, t->out.type, t->out.column_stride);
  }
}

static void turn_block(void *argument, int64_t i, int worker) {
  const struct turn *t = argument;
  int64_t blocks = hd_ceil_div(t->x.rows, BLOCK), batch = i / blocks;
  float *scratch = t->scratch ? t->scratch + worker * t->scratch_floats : NULL;
  for (int64_t row = i % blocks * BLOCK, end = HD_MIN(t->x.rows, row + BLOCK); row < end; row++) turn_row(t, batch, row, scratch);
}

/* ---- reading and refusing ----------------------------------------------------------------------------------------------------------- */

static heed_status read_width(heed_context *context, struct turn *t) {
  if (t->a.rotary_dim == 0) t->a.rotary_dim = t->x.columns;
  HD_REQUIRE(t->a.rotary_dim >= 0 && t->a.rotary_dim <= t->x.columns && t->a.rotary_dim % 2 == 0, context, HEED_E_SHAPE,
             "rotary positions turn an even width within the row (got %lld, rows have %lld)", (long long)t->a.rotary_dim,
             (long long)t->x.columns);
  t->pairs = t->a.rotary_dim / 2;
  return HEED_OK;
}

static heed_status read_table(heed_context *context, const struct turn *t, const heed_view *view, const char *name, hd_grid *out) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_grid_make(context, view, name, out));
  HD_TRY(hd_number(context, view->type, name));
  bool fits = view->ndim == 2 || (view->ndim == 3 && (out->heads == t->x.batch || out->heads == 1) && out->rows == t->x.rows);
  HD_REQUIRE(fits && out->columns == t->pairs, context, HEED_E_SHAPE, "%s: %s, expected [positions,%lld] or [%lld,%lld,%lld]", name,
             hd_shape_text(view, shape), (long long)t->pairs, (long long)t->x.batch, (long long)t->x.rows, (long long)t->pairs);
  return HEED_OK;
}

static heed_status read_tables(heed_context *context, struct turn *t) {
  const heed_rope *a = &t->a;
  HD_REQUIRE(!a->cosine == !a->sine, context, HEED_E_ARGUMENT, "of cosine and sine only one is given");
  if (!a->cosine) return HEED_OK;
  HD_REQUIRE(a->theta == 0 && !a->factors && !a->scaling, context, HEED_E_ARGUMENT,
             "tables are given, and theta, factors or a scaling that would make them");
  HD_TRY(read_table(context, t, a->cosine, "cosine", &t->cosine));
  HD_TRY(read_table(context, t, a->sine, "sine", &t->sine));
  HD_REQUIRE(a->cosine->ndim == a->sine->ndim && t->cosine.rows == t->sine.rows, context, HEED_E_SHAPE,
             "cosine and sine are not of the same shape");
  t->by_row = a->cosine->ndim == 3;
  HD_REQUIRE(!t->by_row || (!a->positions && a->offset == 0), context, HEED_E_ARGUMENT,
             "tables with a row for each row of x leave no room for positions or an offset");
  return HEED_OK;
}

static heed_status read_factors(heed_context *context, struct turn *t) {
  heed_rope *a = &t->a;
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(!a->scaling || a->theta == 0, context, HEED_E_ARGUMENT, "theta is given, and a scaling that has its own");
  t->scaling = (heed_rope_scaling){.size = sizeof t->scaling};
  HD_TRY(hd_options_read(context, "heed_rope_scaling", a->scaling, &t->scaling, sizeof t->scaling));
  if (!a->scaling) t->scaling.theta = a->theta;
  HD_TRY(hd_rope_scaling_check(context, &t->scaling, a->rotary_dim));
  t->amplitude = hd_rope_attention_factor(&t->scaling);
  if (!a->factors) return HEED_OK;
  HD_TRY(hd_view_check(context, a->factors, "factors"));
  HD_TRY(hd_number(context, a->factors->type, "factors"));
  HD_REQUIRE(a->factors->ndim == 1 && a->factors->dim[0] == t->pairs, context, HEED_E_SHAPE, "factors: %s, expected [%lld]",
             hd_shape_text(a->factors, shape), (long long)t->pairs);
  for (int64_t i = 0; i < t->pairs; i++)
    HD_REQUIRE(hd_per_head(a->factors, i) > 0, context, HEED_E_ARGUMENT, "factor %lld is %g, allowed above 0", (long long)i,
               hd_per_head(a->factors, i));
  return HEED_OK;
}

/* Every position lies in the tables, or is one that a double holds. */
static heed_status check_positions(heed_context *context, const struct turn *t) {
  const heed_view *view = t->a.positions;
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(t->a.offset >= -FAR_POSITION && t->a.offset <= FAR_POSITION, context, HEED_E_ARGUMENT, "offset %lld is out of range",
             (long long)t->a.offset);
  if (view) {
    HD_TRY(hd_view_check(context, view, "positions"));
    HD_REQUIRE(view->type == HEED_I32 || view->type == HEED_I64, context, HEED_E_TYPE, "positions is %s, allowed i32 and i64",
               heed_type_name(view->type));
    int64_t rows = view->ndim <= 2 ? view->dim[view->ndim - 1] : -1, batch = view->ndim == 2 ? view->dim[0] : 1;
    HD_REQUIRE((rows == t->x.rows || rows == 1) && (batch == t->x.batch || batch == 1), context, HEED_E_SHAPE,
               "positions: %s, expected [%lld] or [%lld,%lld]", hd_shape_text(view, shape), (long long)t->x.rows, (long long)t->x.batch,
               (long long)t->x.rows);
  }
  int64_t low = t->a.cosine ? 0 : -FAR_POSITION, high = t->a.cosine ? t->cosine.rows - 1 : FAR_POSITION;
  if (t->by_row) return HEED_OK;
  for (int64_t batch = 0; batch < (view ? t->x.batch : HD_MIN(t->x.batch, 1)); batch++)
    for (int64_t row = 0; row < t->x.rows; row++) {
      int64_t position = position_of(&t->a, batch, row);
      HD_REQUIRE(position >= low && position <= high, context, HEED_E_ARGUMENT,
                 "row %lld of batch entry %lld stands at position %lld, allowed %lld to %lld", (long long)row, (long long)batch,
                 (long long)position, (long long)low, (long long)high);
    }
  return HEED_OK;
}

static heed_status read_call(heed_context *context, const heed_rope *given, const heed_view *x, const heed_view *out, struct turn *t) {
  *t = (struct turn){.a = {.size = sizeof t->a}, .kernels = hd_kernels_of(context)};
  HD_TRY(hd_options_read(context, "heed_rope", given, &t->a, sizeof t->a));
  HD_TRY(hd_grid_make(context, x, "x", &t->x));
  HD_TRY(hd_grid_make(context, out, "out", &t->out));
  HD_TRY(hd_grid_expect(context, &t->out, out, "out", &t->x, t->x.heads, t->x.rows, t->x.columns));
  HD_TRY(read_width(context, t));
  HD_TRY(read_tables(context, t));
  if (!t->a.cosine) HD_TRY(read_factors(context, t));
  HD_TRY(check_positions(context, t));
  t->in_place = hd_views_same(x, out);
  HD_REQUIRE(t->in_place || !hd_views_overlap(x, out), context, HEED_E_OVERLAP, "out overlaps x (allowed: exactly the same memory)");
  const hd_named_view others[] = {{t->a.cosine, "cosine"}, {t->a.sine, "sine"}, {t->a.factors, "factors"}, {t->a.positions, "positions"}};
  return hd_outputs_apart(context, &(hd_named_view){out, "out"}, others, HD_COUNT(others));
}

/* ---- the call ----------------------------------------------------------------------------------------------------------------------- */

static bool contiguous(const hd_grid *grid) { return grid->type == HEED_F32 && grid->column_stride == 1; }

/* Memory for what is neither in the tables nor in the rows themselves: often none at all. */
static heed_status reserve(heed_context *context, struct turn *t, int64_t items, int64_t *room) {
  t->direct = contiguous(&t->x) && contiguous(&t->out);
  t->borrowed = t->a.cosine && contiguous(&t->cosine) && contiguous(&t->sine) && !t->a.inverse;
  int64_t columns = HD_MAX(t->x.columns, 1), floats = 2 * t->pairs;
  *room = 0;
  if (t->borrowed && t->direct) return HEED_OK;
  HD_REQUIRE(hd_add(floats, columns, &t->scratch_floats) && hd_mul(t->scratch_floats, hd_workers(context, items), room), context,
             HEED_E_OVERFLOW, "rows of %lld columns are too large", (long long)columns);
  return hd_allocate(context, "rotary angles", *room, sizeof *t->scratch, &t->scratch);
}

heed_status heed_rope_apply(heed_context *context, const heed_rope *rope, const heed_view *x, const heed_view *out) {
  if (!context) return HEED_E_ARGUMENT;
  struct turn t;
  int64_t room = 0;
  heed_status status = HEED_OK;
  HD_TRY(read_call(context, rope, x, out, &t));
  HD_TRY(hd_storable(context, &t.x, "x"));
  HD_TRY(hd_storable(context, &t.out, "out"));
  int64_t items = t.x.batch * hd_ceil_div(t.x.rows, BLOCK);
  if (items == 0 || t.x.heads == 0 || t.x.columns == 0) return HEED_OK;
  HD_TRY_DONE(reserve(context, &t, items, &room));
  if (!t.a.cosine) {
    HD_TRY_DONE(hd_allocate(context, "rotary frequencies", t.pairs, sizeof *t.frequency, &t.frequency));
    hd_rope_frequencies(&t.scaling, t.a.rotary_dim, t.frequency);
    for (int64_t i = 0; t.a.factors && i < t.pairs; i++) t.frequency[i] /= hd_per_head(t.a.factors, i);
  }
  hd_parallel(context, items, turn_block, &t);
done:
  hd_release(context, t.scratch, room, sizeof *t.scratch);
  hd_release(context, t.frequency, t.pairs, sizeof *t.frequency);
  return status;
}

/* ---- reference ---------------------------------------------------------------------------------------------------------------------- */

static double element(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_element(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type);
}

static void store(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column, double value) {
  hd_element_store(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type, value);
}

/* One row of one head by the definition, pair by pair. */
static void reference_row(const struct turn *t, int64_t batch, int64_t head, int64_t row) {
  const heed_rope *a = &t->a;
  for (int64_t i = 0; i < t->pairs; i++) {
    double angle = 0, cosine, sine;
    if (a->cosine) {
      int64_t at = t->by_row ? row : position_of(a, batch, row), entry = t->by_row && t->cosine.heads > 1 ? batch : 0;
      cosine = element(&t->cosine, 0, entry, at, i);
      entry = t->by_row && t->sine.heads > 1 ? batch : 0;
      sine = element(&t->sine, 0, entry, at, i);
    } else {
      angle = (double)position_of(a, batch, row) * t->frequency[i];
      if (a->factors) angle /= hd_per_head(a->factors, i);
      cosine = t->amplitude * cos(angle);
      sine = t->amplitude * sin(angle);
    }
    if (a->inverse) sine = -sine;
    int64_t first = a->interleaved ? 2 * i : i, second = a->interleaved ? 2 * i + 1 : i + t->pairs;
    double u = element(&t->x, batch, head, row, first), v = element(&t->x, batch, head, row, second);
    store(&t->out, batch, head, row, first, u * cosine - v * sine);
    store(&t->out, batch, head, row, second, v * cosine + u * sine);
  }
  for (int64_t c = 2 * t->pairs; c < t->x.columns; c++) store(&t->out, batch, head, row, c, element(&t->x, batch, head, row, c));
}

heed_status heed_rope_reference(heed_context *context, const heed_rope *rope, const heed_view *x, const heed_view *out) {
  if (!context) return HEED_E_ARGUMENT;
  struct turn t;
  HD_TRY(read_call(context, rope, x, out, &t));
  HD_TRY(hd_number(context, t.x.type, "x"));
  HD_TRY(hd_number(context, t.out.type, "out"));
  HD_TRY(hd_allocate(context, "rotary frequencies", t.pairs, sizeof *t.frequency, &t.frequency));
  if (!t.a.cosine) hd_rope_frequencies(&t.scaling, t.a.rotary_dim, t.frequency);
  for (int64_t batch = 0; batch < t.x.batch; batch++)
    for (int64_t head = 0; head < t.x.heads; head++)
      for (int64_t row = 0; row < t.x.rows; row++) reference_row(&t, batch, head, row);
  hd_release(context, t.frequency, t.pairs, sizeof *t.frequency);
  return HEED_OK;
}
