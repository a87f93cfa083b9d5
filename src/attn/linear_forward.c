/* linear_forward.c: out = φ(Q) (Σ φ(k) vᵀ) over φ(Q) Σ φ(k), one chunk of rows at a time (linear.h has the walk).
 *
 * A chunk's rows are φ(Q) S + tril(φ(Q) φ(K)ᵀ) V: four products of matrices that lie in the nearest caches, of which the middle ones are triangles. Sums over keys ascend: first what lies before the
 * chunk, then its own keys, one chain each. */
#include "linear.h"

#include <math.h>

struct job {
  const hd_linear *p;
  hd_linear_maps maps;
  hd_grid out, lse;
  hd_linear_grids after;
};

/* A worker's scratch. */
struct own {
  float *raw, *projected;         /* [64][padded d], [64][padded F] */
  float *queries, *exponents;     /* [64][padded f], [64] */
  float *turned, *pairs, *totals; /* φ(K)ᵀ [f][64], φ(Q) φ(K)ᵀ [64][64], [64] */
  float *rows;                    /* [64][padded dv] */
};

static bool lay_out(const hd_linear *p, struct own *own, float *memory, int64_t *floats) {
  const int64_t chunk = HD_CHUNK;
  const hd_part parts[] = {
      {&own->raw, chunk, hd_padded(p->d)},
      {&own->projected, chunk, hd_padded(p->projected)},
      {&own->queries, chunk, hd_padded(p->features)},
      {&own->exponents, chunk, 1},
      {&own->turned, p->features, chunk},
      {&own->pairs, chunk, chunk},
      {&own->totals, chunk, 1},
      {&own->rows, chunk, hd_padded(p->dv)},
  };
  return hd_cut(memory, parts, HD_COUNT(parts), floats);
}

static struct own own_of(const hd_linear *p, float *memory) {
  struct own own;
  int64_t floats = 0;
  lay_out(p, &own, memory, &floats);
  return own;
}

static int64_t collect(const hd_linear_walk *walk, float *memory, int64_t kv, int64_t begin, int count, hd_linear_items *items) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const struct own own = own_of(p, memory);
  const int64_t batch = kv / p->kv_heads, head = kv % p->kv_heads;
  hd_linear_keys(p, &job->maps, batch, head, begin, count, own.raw, own.projected, items->x, items->exponents);
  items->y = hd_linear_rows_near(p, &p->v, batch, head, begin, count, true, (float *)items->y, walk->y_stride);
  return count;
}

/* tril(φ(Q) φ(K)ᵀ) at the state's exponent. */
static void find_pairs(const struct job *job, const struct own *own, const hd_linear_chunk *chunk) {
  const hd_linear *p = job->p;
  const hd_rows_product product = {
      .rows = chunk->count,
      .columns = hd_ceil_div(chunk->count, p->kernels->vector) * p->kernels->vector,
      .inputs = p->features,
      .x = own->queries,
      .x_row = hd_padded(p->features),
      .x_input = 1,
      .w = own->turned,
      .w_stride = HD_CHUNK,
      .y = own->pairs,
      .y_stride = HD_CHUNK,
      .triangle = HD_COLUMNS_TO_ROW,
      .asking = chunk->asking,
  };
  p->kernels->multiply_rows(&product);
  if (chunk->exponent != chunk->state->exponent)
    p->kernels->row_scale(own->pairs, chunk->count * HD_CHUNK, hd_linear_power(chunk->exponent - chunk->state->exponent));
}

/* What lies before, and then the chunk's own keys, in one chain. */
static void multiply_values(const hd_linear_walk *walk, const struct own *own, const hd_linear_chunk *chunk) {
  const hd_linear *p = walk->p;
  const hd_rows_product pairs = {
      .inputs = chunk->count,
      .x = own->pairs,
      .x_row = HD_CHUNK,
      .x_input = 1,
      .w = chunk->y,
      .w_stride = walk->y_stride,
      .triangle = HD_INPUTS_TO_ROW,
  };
  const hd_rows_product product = {
      .rows = chunk->count,
      .columns = walk->y_stride,
      .inputs = p->features,
      .x = own->queries,
      .x_row = walk->x_stride,
      .x_input = 1,
      .w = chunk->state->data,
      .w_stride = walk->y_stride,
      .y = own->rows,
      .y_stride = walk->y_stride,
      .asking = chunk->asking,
      .then = chunk->x ? &pairs : NULL,
  };
  p->kernels->multiply_rows(&product);
}

/* Divides by the normaliser, and says what it was. */
static void normalise(const hd_linear_walk *walk, const struct own *own, const hd_linear_chunk *chunk, int64_t batch, int64_t head) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const hd_normalising rows = {
      .rows = chunk->count,
      .features = walk->x_stride,
      .columns = walk->y_stride,
      .y = own->queries,
      .z = chunk->state->data + hd_linear_behind(walk),
      .a = chunk->x ? own->pairs : NULL,
      .y_stride = walk->x_stride,
      .a_stride = HD_CHUNK,
      .epsilon = (float)p->epsilon,
      .o = own->rows,
      .total = own->totals,
      .o_stride = walk->y_stride,
  };
  p->kernels->normalise(&rows);
  if (!job->lse.size) return;
  const double rest = hd_linear_projects(p) ? (double)chunk->state->exponent * HD_LN2 - log((double)p->features) : 0;
  for (int i = 0; i < chunk->count; i++) {
    const float lse = own->totals[i] < FLT_MIN ? -INFINITY : logf(own->totals[i]);
    own->totals[i] = hd_linear_projects(p) ? (float)((double)lse + (double)own->exponents[i] * HD_LN2 + rest) : lse;
  }
  hd_linear_put(p, &job->lse, batch, head, chunk->begin, chunk->count, own->totals, 1);
}

/* What an unnormalised output is multiplied by, and the log of a normaliser that is 1. */
static void scale_rows(const hd_linear_walk *walk, const struct own *own, const hd_linear_chunk *chunk, int64_t batch, int64_t head) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  for (int i = 0; i < chunk->count; i++) {
    double factor = p->scale;
    if (hd_linear_projects(p)) factor = exp2((double)own->exponents[i] + (double)chunk->state->exponent) / (double)p->features;
    p->kernels->row_scale(own->rows + i * walk->y_stride, walk->y_stride, (float)factor);
    if (job->lse.size) hd_element_store(hd_grid_row(&job->lse, batch, head, chunk->begin + i), job->lse.type, 0);
  }
}

static void make(const hd_linear_walk *walk, float *memory, const hd_linear_chunk *chunk) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  struct own own = own_of(p, memory);
  float *const scratch = own.rows;
  const int64_t batch = chunk->kv / p->kv_heads;
  if (chunk->x) hd_linear_turn(p, chunk->x, chunk->count, p->features, walk->x_stride, own.turned);
  for (int64_t h = 0; h < p->group; h++) {
    const int64_t head = chunk->kv % p->kv_heads * p->group + h;
    own.rows = hd_linear_rows_to(&job->out, batch, head, chunk->begin, scratch, walk->y_stride);
    hd_linear_queries(p, &job->maps, batch, head, chunk->begin, chunk->count, own.raw, own.projected, own.queries, own.exponents);
    if (chunk->x) find_pairs(job, &own, chunk);
    multiply_values(walk, &own, chunk);
    if (p->a.unnormalised) scale_rows(walk, &own, chunk, batch, head);
    else normalise(walk, &own, chunk, batch, head);
    hd_linear_put(p, &job->out, batch, head, chunk->begin, chunk->count, own.rows, walk->y_stride);
  }
}

/* ---- the states before and after ----------------------------------------------------------------------------------------------------- */

static void begin(const hd_linear_walk *walk, int64_t kv, hd_linear_sum *start) {
  const hd_linear *p = walk->p;
  const int64_t batch = kv / p->kv_heads, head = kv % p->kv_heads;
  for (int64_t r = 0; r < p->features; r++)
    hd_to_floats(p->kernels, hd_grid_row(&p->before_sums, batch, head, r), p->before_sums.type, p->before_sums.column_stride, p->dv,
                 start->data + r * walk->y_stride);
  if (walk->sums_x)
    for (int64_t r = 0; r < p->features; r++)
      start->data[hd_linear_behind(walk) + r] =
          (float)hd_element(hd_grid_row(&p->before_normaliser, batch, head, r), p->before_normaliser.type);
  if (hd_linear_projects(p)) start->exponent = (float)hd_element(hd_grid_row(&p->before_exponent, batch, head, 0), p->before_exponent.type);
}

static void end(const hd_linear_walk *walk, int64_t kv, const hd_linear_sum *whole) {
  const struct job *job = walk->job;
  const hd_linear *p = walk->p;
  const hd_linear_grids *after = &job->after;
  const int64_t batch = kv / p->kv_heads, head = kv % p->kv_heads;
  for (int64_t r = 0; r < p->features; r++)
    hd_from_floats(p->kernels, whole->data + r * walk->y_stride, p->dv, hd_grid_row(&after->sums, batch, head, r), after->sums.type,
                   after->sums.column_stride);
  if (walk->sums_x)
    for (int64_t r = 0; r < p->features; r++)
      hd_element_store(hd_grid_row(&after->normaliser, batch, head, r), after->normaliser.type, whole->data[hd_linear_behind(walk) + r]);
  if (hd_linear_projects(p)) hd_element_store(hd_grid_row(&after->exponent, batch, head, 0), after->exponent.type, whole->exponent);
}

/* ---- the call -------------------------------------------------------------------------------------------------------------------------- */

static heed_status run(const hd_linear *p, const hd_grid *out, const hd_grid *lse, const hd_linear_grids *after) {
  struct job job = {.p = p, .out = *out, .lse = *lse, .after = *after};
  struct own sizes;
  hd_linear_walk walk = {
      .p = p,
      .job = &job,
      .items = p->keys,
      .rows = p->queries,
      .row_group = 1,
      .x_rows = p->features,
      .y_rows = p->dv,
      .x_stride = hd_padded(p->features),
      .y_stride = hd_padded(p->dv),
      .sums_x = !p->a.unnormalised,
      .read = {&p->k, &p->v},
      .made = {&p->q, out},
      .collect = collect,
      .make = make,
      .begin = p->before_sums.size ? begin : NULL,
      .end = after->sums.size ? end : NULL,
  };
  HD_REQUIRE(lay_out(p, &sizes, NULL, &walk.own_floats), p->context, HEED_E_OVERFLOW, "%lld features and %lld values a key are too many",
             (long long)p->features, (long long)p->dv);
  HD_TRY(hd_linear_maps_new(p, &job.maps));
  heed_status status = hd_linear_walk_run(&walk);
  hd_linear_maps_free(p, &job.maps);
  return status;
}

/* Where a state is handed from call to call in the same memory, it is read before it is written, head by head. */
static bool same_state(const heed_view *before, const heed_view *after) { return before && after && hd_views_same(before, after); }

heed_status hd_linear_outputs_check(const hd_linear *p, const hd_named_view *inputs, int count, const hd_named_view *outputs, int outs) {
  for (int i = 0; i < outs; i++) {
    if (!outputs[i].view) continue;
    HD_TRY(hd_outputs_apart(p->context, &outputs[i], outputs, i));
    for (int j = 0; j < count; j++)
      if (!same_state(inputs[j].view, outputs[i].view) || j < HD_LINEAR_VIEWS - 3)
        HD_TRY(hd_outputs_apart(p->context, &outputs[i], &inputs[j], 1));
  }
  return HEED_OK;
}

heed_status hd_linear_outputs(const hd_linear *p, const heed_view *q, const heed_view *k, const heed_view *v, const heed_view *out,
                              const heed_linear_extras *extras, hd_grid *out_grid, hd_grid *lse, hd_linear_grids *after) {
  heed_context *context = p->context;
  heed_linear_extras asked = {.size = sizeof asked};
  heed_linear_state state = {.size = sizeof state};
  hd_named_view inputs[HD_LINEAR_VIEWS];
  HD_TRY(hd_options_read(context, "heed_linear_extras", extras, &asked, sizeof asked));
  HD_TRY(hd_options_read(context, "heed_linear_state", asked.after, &state, sizeof state));
  HD_TRY(hd_grid_make(context, out, "out", out_grid));
  HD_TRY(hd_number(context, out->type, "out"));
  HD_TRY(hd_grid_expect(context, out_grid, out, "out", &p->q, p->heads, p->queries, p->dv));
  HD_TRY(hd_linear_lse(p, asked.lse, true, lse));
  HD_TRY(hd_linear_state_read(p, asked.after, true, "after", after));
  hd_linear_views(p, q, k, v, inputs);
  const hd_named_view outputs[] = {
      {out, "out"}, {asked.lse, "lse"}, {state.sums, "sums"}, {state.normaliser, "normaliser"}, {state.exponent, "exponent"}};
  return hd_linear_outputs_check(p, inputs, HD_LINEAR_VIEWS, outputs, HD_COUNT(outputs));
}

/* A grid that is there, of a type that kernels take. */
static heed_status storable(const hd_linear *p, const hd_grid *grid, const char *name) {
  return grid->size ? hd_storable(p->context, grid, name) : HEED_OK;
}

heed_status hd_linear_storable(const hd_linear *p) {
  const struct {
    const hd_grid *grid;
    const char *name;
  } inputs[] = {{&p->q, "q"},
                {&p->k, "k"},
                {&p->v, "v"},
                {&p->decay, "decay"},
                {&p->beta, "beta"},
                {&p->before_sums, "sums"},
                {&p->before_normaliser, "normaliser"},
                {&p->before_exponent, "exponent"}};
  for (int i = 0; i < HD_COUNT(inputs); i++) HD_TRY(storable(p, inputs[i].grid, inputs[i].name));
  return HEED_OK;
}

heed_status heed_linear_forward(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                const heed_view *v, const heed_view *out, const heed_linear_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_linear p;
  hd_grid out_grid, lse;
  hd_linear_grids after;
  HD_TRY(hd_linear_make(context, a, q, k, v, &p));
  HD_TRY(hd_linear_storable(&p));
  HD_TRY(hd_linear_outputs(&p, q, k, v, out, extras, &out_grid, &lse, &after));
  HD_TRY(hd_storable(context, &out_grid, "out"));
  HD_TRY(storable(&p, &after.sums, "sums"));
  HD_TRY(storable(&p, &after.normaliser, "normaliser"));
  HD_TRY(storable(&p, &after.exponent, "exponent"));
  HD_REQUIRE(!lse.size || lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(lse.type));
  return p.a.rule == HEED_RULE_ADD ? run(&p, &out_grid, &lse, &after) : hd_linear_rule_forward(&p, &out_grid, &lse, &after);
}
