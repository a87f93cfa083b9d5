/* linear_backward.c: the gradients of linear attention, in two walks (linear.h).
 *
 * With w_i = 1 / normaliser (or the scale of an unnormalised output), x_i = w_i φ(q_i), g_i = [dout_i, δ_i], δ_i = −dout_i · out_i, and v'_j = [v_j, 1], the gradient of φ(q_i) · φ(k_j) is
 * w_i g_i · v'_j, so
 *   dφ(q)_i = w_i (Σ_{j ≤ i} φ(k_j) v'_jᵀ) g_i                  forwards, the state of the forward pass
 *   dφ(k)_j = (Σ_{i ≥ j} x_i g_iᵀ) v'_j,   dv_j = (Σ_{i ≥ j} dout_i x_iᵀ) φ(k_j)   backwards, with queries in the place of keys
 * Rows of v and dout are taken where they lie: what δ and 1 stand for is one more input, with which the chains of a product go on (`last`).
 * Nothing of the forward pass is kept but out and the log of the normaliser. Where features are projected, x_i is kept as a power of two and a rest as keys are. */
#include "linear.h"

#include <math.h>

struct job {
  const hd_linear *p;
  hd_linear_maps maps;
  hd_grid out, lse, dout;
  hd_linear_gradient_grids to;
};

/* A worker's scratch. */
struct own {
  float *raw, *projected, *features, *exponents; /* of the rows made: [64][padded d], [64][padded F], [64][padded f], [64] */
  float *values, *gradient, *out;                /* [64][padded dv], [64][padded f], [64][padded dv] */
  float *deltas;                                 /* [64] */
  float *turned_x, *turned_y;                    /* [f][64], [dv][64] */
  float *pairs, *weights;                        /* [64][64] both */
  float *turned_state;                           /* [f][padded dv] */
  float *dx;                                     /* [64][padded d] */
};

static bool lay_out(const struct job *job, struct own *own, float *memory, int64_t *floats) {
  const hd_linear *p = job->p;
  const int64_t chunk = HD_CHUNK, f = hd_padded(p->features);
  const hd_part parts[] = {
      {&own->raw, chunk, hd_padded(p->d)},
      {&own->projected, chunk, hd_padded(p->projected)},
      {&own->features, chunk, f},
      {&own->exponents, chunk, 1},
      {&own->values, chunk, hd_padded(p->dv)},
      {&own->gradient, chunk, f},
      {&own->out, chunk, hd_padded(p->dv)},
      {&own->turned_x, p->features, chunk},
      {&own->deltas, chunk, 1},
      {&own->turned_y, p->dv, chunk},
      {&own->pairs, chunk, chunk},
      {&own->weights, chunk, chunk},
      {&own->turned_state, p->features, hd_padded(p->dv)},
      {&own->dx, chunk, hd_padded(p->d)},
  };
  return hd_cut(memory, parts, HD_COUNT(parts), floats);
}

static struct own own_of(const struct job *job, float *memory) {
  struct own own;
  int64_t floats = 0;
  lay_out(job, &own, memory, &floats);
  return own;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------------ */

/* Rows of dout, and δ; where there is no normaliser, that is not used. */
static const float *find_gradients(const struct job *job, const struct own *own, int64_t batch, int64_t head, int64_t begin, int count,
                                   float *scratch, float *deltas) {
  const hd_linear *p = job->p;
  const int64_t stride = hd_padded(p->dv);
  const float *rows = hd_linear_rows_near(p, &job->dout, batch, head, begin, count, false, scratch, stride);
  if (p->a.unnormalised) return rows;
  const float *out = hd_linear_rows_near(p, &job->out, batch, head, begin, count, false, own->out, stride);
  p->kernels->dots(out, rows, count, stride, stride, deltas);
  for (int i = 0; i < count; i++) deltas[i] = -deltas[i];
  return rows;
}

/* w_i of a chunk's rows as factor · 2^power; power is 0 unless features are projected, and then an integer that takes in theirs. Where the normaliser vanished the factor is 0. */
static void find_weights(const struct job *job, int64_t batch, int64_t head, int64_t begin, int count, const float *exponents,
                         float *factor, float *power) {
  const hd_linear *p = job->p;
  const bool projected = hd_linear_projects(p), bare = p->a.unnormalised;
  const double of_features = projected ? log2((double)p->features) : 0;
  if (!bare) hd_linear_rows(p, &job->lse, batch, head, begin, count, false, factor, 1);
  for (int i = 0; i < count; i++) {
    const float lse = bare ? 0 : factor[i];
    const double exponent = projected ? (double)exponents[i] - (double)lse * HD_LOG2E - of_features : 0;
    power[i] = 0;
    if (lse == -INFINITY) {
      factor[i] = 0;
      power[i] = projected ? -INFINITY : 0;
    } else if (!projected) {
      factor[i] = bare ? (float)p->scale : expf(-lse);
    } else {
      if (isfinite(exponent)) power[i] = (float)ceil(exponent);
      factor[i] = (float)exp2(exponent - (double)power[i]);
    }
  }
}

/* ---- products -------------------------------------------------------------------------------------------------------------------------- */

/* rows [count][inputs] times a matrix [inputs][columns]; of a triangle FROM_ROW the rows are turned. */
static hd_rows_product product_of(const float *rows, int64_t stride, int64_t count, int64_t inputs, const float *w, int64_t columns,
                                  hd_triangle triangle) {
  const bool turned = triangle == HD_INPUTS_FROM_ROW;
  return (hd_rows_product){.rows = count,
                           .columns = columns,
                           .inputs = inputs,
                           .x = rows,
                           .x_row = turned ? 1 : stride,
                           .x_input = turned ? stride : 1,
                           .w = w,
                           .w_stride = columns,
                           .y_stride = columns,
                           .triangle = triangle};
}

/* One number a row times one row of numbers. */
static hd_rows_product last_of(const float *numbers, const float *row, const hd_rows_product *then) {
  return (hd_rows_product){.inputs = 1, .x = numbers, .x_row = 1, .w = row, .then = then};
}

/* [64] times 1. */
static const float *ones(void) {
#define FOUR    1, 1, 1, 1
#define SIXTEEN FOUR, FOUR, FOUR, FOUR
  static const float all[HD_CHUNK] = {SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN};
  return all;
#undef FOUR
#undef SIXTEEN
}

/* y = first · its matrix, and then the same chains go on. */
static void multiply(const hd_linear *p, hd_rows_product first, const hd_rows_product *then, float *y, hd_asking *asking) {
  first.y = y;
  first.then = then;
  first.asking = asking;
  p->kernels->multiply_rows(&first);
}

static void add_product(const hd_linear *p, hd_rows_product product, float *y) {
  product.from = product.y = y;
  p->kernels->multiply_rows(&product);
}

/* tril(rows · turnedᵀ) [count][64], at the state's exponent; with deltas, if not NULL, as the last number of each row, which meets 1. */
static void multiply_pairs(const hd_linear *p, const float *rows, int64_t stride, const float *deltas, int64_t inputs, const float *turned,
                           const hd_linear_chunk *chunk, float *pairs) {
  const int64_t count = chunk->count;
  const hd_rows_product last = last_of(deltas, ones(), NULL);
  const hd_rows_product product = {.rows = count,
                                   .columns = hd_ceil_div(count, p->kernels->vector) * p->kernels->vector,
                                   .inputs = inputs,
                                   .x = rows,
                                   .x_row = stride,
                                   .x_input = 1,
                                   .w = turned,
                                   .w_stride = HD_CHUNK,
                                   .y = pairs,
                                   .y_stride = HD_CHUNK,
                                   .triangle = HD_COLUMNS_TO_ROW,
                                   .asking = chunk->asking,
                                   .then = deltas ? &last : NULL};
  p->kernels->multiply_rows(&product);
  if (chunk->exponent != chunk->state->exponent)
    p->kernels->row_scale(pairs, count * HD_CHUNK, hd_linear_power(chunk->exponent - chunk->state->exponent));
}

static const float *deltas_of(const struct job *job, const float *deltas) { return job->p->a.unnormalised ? NULL : deltas; }

/* ---- forwards: dq ---------------------------------------------------------------------------------------------------------------------- */

static int64_t collect_keys(const hd_linear_walk *walk, float *memory, int64_t kv, int64_t begin, int count, hd_linear_items *items) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const struct own own = own_of(job, memory);
  const int64_t batch = kv / p->kv_heads, head = kv % p->kv_heads;
  hd_linear_keys(p, &job->maps, batch, head, begin, count, own.raw, own.projected, items->x, items->exponents);
  items->y = hd_linear_rows_near(p, &p->v, batch, head, begin, count, true, (float *)items->y, walk->y_stride);
  return count;
}

static void make_queries(const hd_linear_walk *walk, float *memory, const hd_linear_chunk *chunk) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const struct own own = own_of(job, memory);
  const int64_t batch = chunk->kv / p->kv_heads, f = walk->x_stride, count = chunk->count, dv = walk->y_stride;
  float factor[HD_CHUNK], power[HD_CHUNK];
  if (chunk->x) hd_linear_turn(p, chunk->y, count, p->dv, dv, own.turned_y);
  for (int64_t h = 0; h < p->group; h++) {
    const int64_t head = chunk->kv % p->kv_heads * p->group + h;
    const float *gradients = find_gradients(job, &own, batch, head, chunk->begin, chunk->count, own.values, own.deltas);
    const float *deltas = deltas_of(job, own.deltas);
    const hd_rows_product before = product_of(gradients, dv, count, p->dv, chunk->state->data, f, HD_WHOLE);
    const hd_rows_product pairs = product_of(own.pairs, HD_CHUNK, count, count, chunk->x, f, HD_INPUTS_TO_ROW);
    const hd_rows_product *inner = chunk->x ? &pairs : NULL, last = last_of(deltas, chunk->state->data + hd_linear_behind(walk), inner);
    if (chunk->x) multiply_pairs(p, gradients, dv, deltas, p->dv, own.turned_y, chunk, own.pairs);
    multiply(p, before, deltas ? &last : inner, own.gradient, chunk->asking);
    const float *rows =
        hd_linear_queries(p, &job->maps, batch, head, chunk->begin, chunk->count, own.raw, own.projected, own.features, own.exponents);
    find_weights(job, batch, head, chunk->begin, chunk->count, own.exponents, factor, power);
    for (int i = 0; i < chunk->count && hd_linear_projects(p); i++) factor[i] *= hd_linear_power(power[i] + chunk->state->exponent);
    p->kernels->weigh_rows(factor, count, f, f, own.gradient);
    float *dx = hd_linear_rows_to(&job->to.dq, batch, head, chunk->begin, own.dx, hd_padded(p->d));
    hd_linear_features_backward(p, &job->maps, rows, own.features, own.gradient, count, own.projected, dx);
    hd_linear_put(p, &job->to.dq, batch, head, chunk->begin, chunk->count, dx, hd_padded(p->d));
  }
}

/* The state before, turned: sums [f][dv] as [dv][f], and the normaliser behind them. */
static void begin_keys(const hd_linear_walk *walk, int64_t kv, hd_linear_sum *start) {
  const hd_linear *p = walk->p;
  const int64_t batch = kv / p->kv_heads, head = kv % p->kv_heads;
  for (int64_t r = 0; r < p->features; r++)
    for (int64_t c = 0; c < p->dv + walk->sums_x; c++) {
      const hd_grid *grid = c < p->dv ? &p->before_sums : &p->before_normaliser;
      const int64_t column = c < p->dv ? c : 0;
      start->data[c * walk->x_stride + r] =
          (float)hd_element(hd_grid_row(grid, batch, head, r) + column * grid->column_stride * grid->size, grid->type);
    }
  if (hd_linear_projects(p)) start->exponent = (float)hd_element(hd_grid_row(&p->before_exponent, batch, head, 0), p->before_exponent.type);
}

/* ---- backwards: dk and dv --------------------------------------------------------------------------------------------------------------- */

/* x, dout and δ of every head of the group; where x has a power of two, that is its exponent. */
static int64_t collect_queries(const hd_linear_walk *walk, float *memory, int64_t kv, int64_t begin, int count, hd_linear_items *items) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const struct own own = own_of(job, memory);
  const int64_t batch = kv / p->kv_heads, f = walk->x_stride, dv = walk->y_stride;
  float factor[HD_CHUNK], power[HD_CHUNK], *room = (float *)items->y;
  for (int64_t h = 0; h < p->group; h++) {
    const int64_t head = kv % p->kv_heads * p->group + h, first = h * count;
    float *x = items->x + first * f, *y = room + first * dv, *exponents = items->exponents + first;
    hd_linear_queries(p, &job->maps, batch, head, begin, count, own.raw, own.projected, x, exponents);
    const float *rows = find_gradients(job, &own, batch, head, begin, count, y, items->weights + first);
    if (p->group == 1) items->y = rows;
    else if (rows != y) memcpy(y, rows, (size_t)(count * dv) * sizeof *y); // heads one behind another
    find_weights(job, batch, head, begin, count, exponents, factor, power);
    p->kernels->weigh_rows(factor, count, f, f, x);
    if (hd_linear_projects(p)) memcpy(exponents, power, (size_t)count * sizeof *power);
  }
  return p->group * count;
}

/* The pairs of a chunk's rows and its own queries of one head: weights, and their gradients. */
static void find_pairs(const hd_linear_walk *walk, const struct own *own, const hd_linear_chunk *chunk, int64_t h) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  const int64_t count = chunk->count;
  const float *x = chunk->x + h * count * walk->x_stride, *y = chunk->y + h * count * walk->y_stride;
  multiply_pairs(p, x, walk->x_stride, NULL, p->features, own->turned_x, chunk, own->weights);
  multiply_pairs(p, y, walk->y_stride, deltas_of(job, chunk->weights + h * count), p->dv, own->turned_y, chunk, own->pairs);
}

/* What the state says of the chunk's keys and values, and then its own queries, head after head. */
static void find_gradient(const hd_linear_walk *walk, const struct own *own, const float *rows, const hd_linear_chunk *chunk) {
  const hd_linear *p = walk->p;
  const int64_t count = chunk->count, f = walk->x_stride, dv = walk->y_stride;
  const hd_rows_product keys = product_of(rows, dv, count, p->dv, chunk->state->data, f, HD_WHOLE);
  const hd_rows_product values = product_of(own->features, f, count, p->features, own->turned_state, dv, HD_WHOLE);
  const float *behind = chunk->state->data + hd_linear_behind(walk);
  hd_rows_product last = last_of(ones(), behind, NULL);
  if (!chunk->x) {
    multiply(p, keys, walk->sums_x ? &last : NULL, own->gradient, chunk->asking);
    multiply(p, values, NULL, own->out, chunk->asking);
    return;
  }
  hd_linear_turn(p, own->features, count, p->features, f, own->turned_x);
  hd_linear_turn(p, rows, count, p->dv, dv, own->turned_y);
  for (int64_t h = 0; h < p->group; h++) {
    const hd_rows_product own_keys = product_of(own->pairs, HD_CHUNK, count, count, chunk->x + h * count * f, f, HD_INPUTS_FROM_ROW);
    const hd_rows_product own_values = product_of(own->weights, HD_CHUNK, count, count, chunk->y + h * count * dv, dv, HD_INPUTS_FROM_ROW);
    find_pairs(walk, own, chunk, h);
    if (h == 0) {
      last.then = &own_keys;
      multiply(p, keys, walk->sums_x ? &last : &own_keys, own->gradient, chunk->asking);
      multiply(p, values, &own_values, own->out, chunk->asking);
    } else {
      add_product(p, own_keys, own->gradient);
      add_product(p, own_values, own->out);
    }
  }
}

static void make_keys(const hd_linear_walk *walk, float *memory, const hd_linear_chunk *chunk) {
  const struct job *job = walk->job;
  const hd_linear *p = job->p;
  struct own own = own_of(job, memory);
  const int64_t batch = chunk->kv / p->kv_heads, head = chunk->kv % p->kv_heads, count = chunk->count;
  const int64_t f = walk->x_stride, dv = hd_padded(p->dv);
  if (job->to.dk.size) own.dx = hd_linear_rows_to(&job->to.dk, batch, head, chunk->begin, own.dx, hd_padded(p->d));
  if (job->to.dv.size) own.out = hd_linear_rows_to(&job->to.dv, batch, head, chunk->begin, own.out, dv);
  const float *keys =
      hd_linear_keys(p, &job->maps, batch, head, chunk->begin, chunk->count, own.raw, own.projected, own.features, own.exponents);
  const float *rows = hd_linear_rows_near(p, &p->v, batch, head, chunk->begin, chunk->count, true, own.values, dv);
  const hd_rectangle turned = {chunk->state->data, HEED_F32, 1, f};
  p->kernels->gather(&turned, p->features, p->dv, own.turned_state, dv);
  find_gradient(walk, &own, rows, chunk);
  for (int i = 0; i < chunk->count && (hd_linear_projects(p) || hd_linear_masks(p)); i++) {
    const bool counts = hd_linear_counts(p, batch, chunk->begin + i);
    if (counts && !hd_linear_projects(p)) continue;
    const float power = counts ? hd_linear_power(own.exponents[i] + chunk->state->exponent) : 0;
    for (int64_t c = 0; c < f; c++) own.gradient[i * f + c] = counts ? own.gradient[i * f + c] * power : 0;
    for (int64_t c = 0; c < dv; c++) own.out[i * dv + c] = counts ? own.out[i * dv + c] * power : 0;
  }
  hd_linear_features_backward(p, &job->maps, keys, own.features, own.gradient, count, own.projected, own.dx);
  if (job->to.dk.size) hd_linear_put(p, &job->to.dk, batch, head, chunk->begin, chunk->count, own.dx, hd_padded(p->d));
  if (job->to.dv.size) hd_linear_put(p, &job->to.dv, batch, head, chunk->begin, chunk->count, own.out, dv);
}

/* ---- the call -------------------------------------------------------------------------------------------------------------------------- */

static heed_status run(struct job *job) {
  const hd_linear *p = job->p;
  struct own sizes;
  hd_linear_walk walk = {
      .p = p,
      .job = job,
      .x_rows = p->features,
      .y_rows = p->dv,
      .x_stride = hd_padded(p->features),
      .y_stride = hd_padded(p->dv),
      .turned = true,
      .sums_x = !p->a.unnormalised,
  };
  HD_REQUIRE(lay_out(job, &sizes, NULL, &walk.own_floats), p->context, HEED_E_OVERFLOW, "%lld features and %lld values a key are too many",
             (long long)p->features, (long long)p->dv);
  if (job->to.dq.size) {
    hd_linear_walk queries = walk;
    queries.items = p->keys;
    queries.rows = p->queries;
    queries.row_group = 1;
    queries.collect = collect_keys;
    queries.make = make_queries;
    queries.begin = p->before_sums.size ? begin_keys : NULL;
    queries.read[0] = &p->k, queries.read[1] = &p->v;
    queries.made[0] = &job->dout, queries.made[1] = &p->q, queries.made[2] = &job->to.dq, queries.made[3] = &job->out;
    HD_TRY(hd_linear_walk_run(&queries));
  }
  if (!job->to.dk.size && !job->to.dv.size) return HEED_OK;
  walk.reverse = true;
  walk.items = p->queries;
  walk.rows = p->keys;
  walk.row_group = p->group;
  walk.collect = collect_queries;
  walk.read[0] = &p->q, walk.read[1] = &job->dout, walk.read[2] = &job->out;
  walk.made[0] = &p->k, walk.made[1] = &p->v, walk.made[2] = &job->to.dk, walk.made[3] = &job->to.dv;
  walk.make = make_keys;
  walk.weighs = walk.sums_x;
  return hd_linear_walk_run(&walk);
}

/* One gradient: as its input, and apart from everything. */
static heed_status read_gradient(const hd_linear *p, const heed_view *view, const char *name, const hd_grid *like, hd_grid *out) {
  *out = (hd_grid){0};
  if (!view) return HEED_OK;
  HD_REQUIRE(like->size, p->context, HEED_E_ARGUMENT, "%s is asked for, but there is no such input", name);
  HD_TRY(hd_grid_make(p->context, view, name, out));
  HD_TRY(hd_number(p->context, view->type, name));
  HD_TRY(hd_grid_expect(p->context, out, view, name, &p->k, like->heads, like->rows, like->columns));
  if (like->heads == 1) out->head_stride = 0;
  return HEED_OK;
}

heed_status hd_linear_gradients_read(const hd_linear *p, const hd_linear_given *given, const heed_linear_gradients *gradients,
                                     hd_grid *dout, hd_linear_gradient_grids *out) {
  heed_context *context = p->context;
  heed_linear_gradients to = {.size = sizeof to};
  hd_named_view inputs[HD_LINEAR_VIEWS];
  HD_TRY(hd_options_read(context, "heed_linear_gradients", gradients, &to, sizeof to));
  HD_TRY(hd_grid_make(context, given->dout, "dout", dout));
  HD_TRY(hd_number(context, given->dout->type, "dout"));
  HD_TRY(hd_grid_input(context, dout, given->dout, "dout", &p->q, p->heads, p->queries, p->dv));
  HD_TRY(read_gradient(p, to.dq, "dq", &p->q, &out->dq));
  HD_TRY(read_gradient(p, to.dk, "dk", &p->k, &out->dk));
  HD_TRY(read_gradient(p, to.dv, "dv", &p->v, &out->dv));
  HD_TRY(read_gradient(p, to.ddecay, "ddecay", &p->decay, &out->ddecay));
  HD_TRY(read_gradient(p, to.dbeta, "dbeta", &p->beta, &out->dbeta));
  hd_linear_views(p, given->q, given->k, given->v, inputs);
  const hd_named_view outputs[] = {{to.dq, "dq"}, {to.dk, "dk"}, {to.dv, "dv"}, {to.ddecay, "ddecay"}, {to.dbeta, "dbeta"}};
  const hd_named_view others[] = {{given->dout, "dout"}, {given->out, "out"}, {given->lse, "lse"}};
  for (int i = 0; i < HD_COUNT(outputs); i++)
    if (outputs[i].view) HD_TRY(hd_outputs_apart(context, &outputs[i], others, HD_COUNT(others)));
  return hd_linear_outputs_check(p, inputs, HD_LINEAR_VIEWS, outputs, HD_COUNT(outputs));
}

/* What a normalised forward pass gave. */
static heed_status read_forward(struct job *job, const heed_view *out, const heed_view *lse) {
  const hd_linear *p = job->p;
  heed_context *context = p->context;
  if (p->a.unnormalised) return HEED_OK;
  HD_TRY(hd_grid_make(context, out, "out", &job->out));
  HD_TRY(hd_grid_input(context, &job->out, out, "out", &p->q, p->heads, p->queries, p->dv));
  HD_TRY(hd_storable(context, &job->out, "out"));
  HD_TRY(hd_view_check(context, lse, "lse"));
  HD_TRY(hd_linear_lse(p, lse, false, &job->lse));
  HD_REQUIRE(job->lse.type == HEED_F32, context, HEED_E_TYPE, "lse is %s, allowed f32", heed_type_name(job->lse.type));
  return HEED_OK;
}

heed_status heed_linear_backward(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                 const heed_view *v, const heed_view *out, const heed_view *lse, const heed_view *dout,
                                 const heed_linear_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  hd_linear p;
  struct job job = {.p = &p};
  HD_TRY(hd_linear_make(context, a, q, k, v, &p));
  HD_TRY(hd_linear_storable(&p));
  HD_TRY(read_forward(&job, out, lse));
  const hd_linear_given given = {q, k, v, p.a.unnormalised ? NULL : out, p.a.unnormalised ? NULL : lse, dout};
  HD_TRY(hd_linear_gradients_read(&p, &given, gradients, &job.dout, &job.to));
  const hd_grid *grids[] = {&job.dout, &job.to.dq, &job.to.dk, &job.to.dv, &job.to.ddecay, &job.to.dbeta};
  for (int i = 0; i < HD_COUNT(grids); i++)
    if (grids[i]->size) HD_TRY(hd_storable(context, grids[i], i ? "a gradient" : "dout"));
  if (p.a.rule != HEED_RULE_ADD) return hd_linear_rule_backward(&p, &job.dout, &job.to);
  HD_TRY(hd_linear_maps_new(&p, &job.maps));
  heed_status status = run(&job);
  hd_linear_maps_free(&p, &job.maps);
  return status;
}
