/* recurrence.c: rows through time. A piece of the work is a few rows that go through all their steps together, so that threads never wait for each other, what a row attends to stays in a
 * core's cache from step to step, and the weights are read by several rows at once. Rows of a piece are ordered by length: those that have come to their end are the last. */
#include "recurrence.h"

/* ---- products ------------------------------------------------------------------------------------------------------------------- */

static int64_t panels_of(int64_t outputs) { return hd_ceil_div(outputs, HD_PANEL); }

/* data [inputs] rows of outputs, or where it is not turned [outputs] rows of inputs. */
static void pack(const hd_kernels *kernels, const float *data, int64_t stride, bool turned, const hd_packed *to) {
  for (int64_t p = 0; p < panels_of(to->outputs); p++) {
    const float *from = data + p * HD_PANEL * (turned ? 1 : stride);
    const hd_rectangle w = {(float *)from, HEED_F32, turned ? stride : 1, turned ? 1 : stride};
    kernels->gather(&w, to->inputs, HD_MIN(HD_PANEL, to->outputs - p * HD_PANEL), to->panels + p * to->inputs * HD_PANEL, HD_PANEL);
  }
}

int64_t hd_packed_floats(int64_t outputs, int64_t inputs) { return panels_of(outputs) * HD_PANEL * inputs; }

void hd_packed_fill(const heed_context *context, const float *w, bool turned, const hd_packed *packed) {
  pack(hd_kernels_of(context), w, turned ? packed->outputs : packed->inputs, turned, packed);
}

heed_status hd_packed_make(heed_context *context, const float *w, int64_t outputs, int64_t inputs, bool turned, hd_packed *out) {
  *out = (hd_packed){.outputs = outputs, .inputs = inputs};
  if (!w) return HEED_OK;
  HD_TRY(hd_allocate(context, "packed weights", hd_packed_floats(outputs, inputs), sizeof *out->panels, &out->panels));
  hd_packed_fill(context, w, turned, out);
  return HEED_OK;
}

void hd_packed_free(heed_context *context, hd_packed *packed) {
  hd_release(context, packed->panels, hd_packed_floats(packed->outputs, packed->inputs), sizeof *packed->panels);
  packed->panels = NULL;
}

/* y [rows,outputs] (+)= x · wᵀ (+ bias). Groups of outputs whose weights fit in the nearest cache. */
typedef struct rows_product {
  const hd_packed *w;
  const float *x, *bias;
  float *y;
  int64_t rows, x_stride, y_stride;
  bool accumulate;
} rows_product;

static void multiply(const hd_kernels *kernels, const rows_product *p) {
  for (int64_t first = 0; first < p->w->outputs; first += HD_GROUP) {
    const hd_product product = {.x = p->x,
                                .x_stride = p->x_stride,
                                .rows = p->rows,
                                .w = p->w->panels + first * p->w->inputs,
                                .w_stride = p->w->inputs * HD_PANEL,
                                .w_step = HD_PANEL,
                                .inputs = p->w->inputs,
                                .first = !p->accumulate,
                                .bias = p->bias ? p->bias + first : NULL,
                                .y = p->y + first,
                                .y_stride = p->y_stride,
                                .outputs = (int)HD_MIN(HD_GROUP, p->w->outputs - first)};
    kernels->multiply(&product);
  }
}

/* ---- what is attended to ----------------------------------------------------------------------------------------------------------- */

typedef struct opening {
  const hd_kernels *kernels;
  const hd_recurrence *r;
  hd_recurrence_memory *memory;
} opening;

static int64_t length_of(const hd_recurrence_memory *m, int64_t entry) { return m->lengths ? m->lengths[entry] : m->keys; }

static const float *keys_of(const hd_recurrence_memory *m, const hd_recurrence *r, int64_t entry) {
  return m->padded ? m->padded + entry * m->keys * m->columns : m->key + entry * m->keys * r->query;
}

static void open_entry(void *argument, int64_t entry, int worker) {
  (void)worker;
  const opening *o = argument;
  hd_recurrence_memory *m = o->memory;
  const int64_t a = o->r->query;
  for (int64_t j = 0; j < length_of(m, entry); j++) {
    const int64_t at = entry * m->keys + j;
    const float *key = m->key + at * a;
    if (m->padded) {
      float *copy = m->padded + at * m->columns;
      memcpy(copy, key, (size_t)a * sizeof *copy);
      memset(copy + a, 0, (size_t)(m->columns - a) * sizeof *copy);
      key = copy;
    }
    m->near[at] = o->kernels->additive_row(key, m->columns, m->terms + at * m->columns);
  }
}

static int64_t columns_of(int64_t query) { return hd_ceil_div(query, 16) * 16; }
static int64_t padded_of(int64_t query, int64_t keys) { return columns_of(query) == query ? 0 : keys * columns_of(query); }

int64_t hd_recurrence_memory_floats(int64_t query, int64_t keys) {
  return keys * columns_of(query) + padded_of(query, keys) + columns_of(query) + keys;
}

heed_status hd_recurrence_memory_open(heed_context *context, const hd_recurrence *r, hd_recurrence_memory *m) {
  m->columns = columns_of(r->query);
  m->allocated = 0;
  if (!r->query || !r->w) return HEED_OK;
  const int64_t keys = m->entries * m->keys, padded = padded_of(r->query, keys);
  m->allocated = hd_recurrence_memory_floats(r->query, keys);
  HD_TRY(hd_allocate(context, "keys that are attended to", m->allocated, sizeof *m->terms, &m->terms));
  m->padded = padded ? m->terms + keys * m->columns : NULL;
  m->w = m->terms + keys * m->columns + padded;
  m->near = m->w + m->columns;
  for (int64_t c = 0; c < m->columns; c++) m->w[c] = c < r->query ? r->w[c] : 0;
  hd_parallel(context, m->entries, open_entry, &(opening){hd_kernels_of(context), r, m});
  return HEED_OK;
}

void hd_recurrence_memory_close(heed_context *context, hd_recurrence_memory *m) {
  hd_release(context, m->terms, m->allocated, sizeof *m->terms);
  m->terms = NULL;
}

/* The pairs of one query with keys [first, first + tile->keys) of an entry. */
typedef struct one_query {
  const float *row;
  uint64_t far[HD_KEY_TILE];
  hd_additive pairs;
  hd_attn_tile tile;
} one_query;

static void pair_up(const hd_recurrence *r, const hd_recurrence_memory *m, int64_t entry, int64_t first, int64_t keys, const float *query,
                    const float *terms, bool far, one_query *out) {
  const int64_t at = entry * m->keys + first;
  out->row = query;
  for (int64_t j = 0; far && j < keys; j++) out->far[j] = m->near[at + j] > HD_ADDITIVE_NEAR;
  out->pairs = (hd_additive){.columns = m->columns,
                             .w = m->w,
                             .count = 1,
                             .rows = &out->row,
                             .q = terms,
                             .k = m->terms + at * m->columns,
                             .far = far ? out->far : NULL};
  out->tile = (hd_attn_tile){.k = keys_of(m, r, entry) + first * m->columns, .k_stride = m->columns, .keys = (int)keys, .stride = 1};
}

/* The scores of one query [A], and for additive ones of room for e^2q [columns]; the query is padded there. */
static void score(const hd_kernels *kernels, const hd_recurrence *r, const hd_recurrence_memory *m, int64_t entry, const float *query,
                  float *terms, float *scores) {
  const int64_t keys = length_of(m, entry);
  if (!r->w) {
    kernels->compare(query, keys_of(m, r, entry), keys, r->query, r->query, scores);
    kernels->row_scale(scores, keys, r->scale);
    return;
  }
  const bool far = kernels->additive_row(query, m->columns, terms) > HD_ADDITIVE_NEAR;
  for (int64_t first = 0; first < keys; first += HD_KEY_TILE) {
    one_query pairs;
    pair_up(r, m, entry, first, HD_MIN(HD_KEY_TILE, keys - first), query, terms, far, &pairs);
    pairs.tile.scores = scores + first;
    kernels->additive_scores(&pairs.pairs, &pairs.tile);
  }
}

/* ---- rows in pieces ----------------------------------------------------------------------------------------------------------------- */

typedef struct work {
  const hd_kernels *kernels;
  const hd_recurrence *r;
  const hd_recurrence_memory *memory;
  const hd_recurrence_rows *rows;
  const hd_packed *hidden_turned, *projected_turned;
  const hd_recurrence_gradients *to;
  int64_t *order; /* [rows] longest first */
  int64_t pieces, piece_rows;
  int64_t state_stride, gates_stride, query_stride, value_stride;
  int64_t floats; /* of scratch a worker */
  float *scratch;
} work;

static int64_t steps_of(const hd_recurrence_rows *rows, int64_t row) { return rows->lengths ? rows->lengths[row] : rows->steps; }

/* An odd number of cache lines, so that rows of a register tile do not meet in one set of the first-level cache. */
static int64_t apart(int64_t n) { return (hd_ceil_div(n, 16) | 1) * 16; }

/* Rows of a piece: what they attend to, in both directions, should stay in the second-level cache beside the weights; and threads want as many each. */
enum { PIECE_BYTES = 768 << 10, LEAST_PIECE = 6, MOST_PIECE = 48 };

static void cut(const heed_context *context, work *w) {
  const hd_recurrence *r = w->r;
  const int64_t keys = r->query ? w->memory->keys : 0, bytes = keys * (r->value + 4 * r->query) * (int64_t)sizeof(float);
  const int64_t fit = bytes ? HD_CLAMP(PIECE_BYTES / bytes, LEAST_PIECE, MOST_PIECE) : MOST_PIECE;
  int64_t pieces = hd_ceil_div(w->rows->rows, fit);
  pieces = hd_ceil_div(pieces, context->threads) * context->threads;
  w->pieces = HD_CLAMP(pieces, 1, w->rows->rows);
  w->piece_rows = hd_ceil_div(w->rows->rows, w->pieces);
  w->state_stride = apart(r->width);
  w->gates_stride = apart(3 * r->width);
  w->query_stride = apart(HD_MAX(r->query, 1));
  w->value_stride = apart(HD_MAX(r->value, 3 * r->width));
  w->floats = w->piece_rows * (w->state_stride + w->gates_stride + w->query_stride + w->value_stride) + w->query_stride +
              HD_MAX(apart(keys), w->query_stride);
}

static int64_t scratch_floats(const heed_context *context, const work *w) { return hd_workers(context, w->pieces) * w->floats; }

int64_t hd_recurrence_scratch_floats(const heed_context *context, const hd_recurrence *r, int64_t keys, int64_t rows, int64_t steps) {
  work w = {.r = r, .memory = &(hd_recurrence_memory){.keys = keys}, .rows = &(hd_recurrence_rows){.rows = rows, .steps = steps}};
  if (rows == 0) return 0;
  cut(context, &w);
  return scratch_floats(context, &w) + (rows + steps + 1) * (int64_t)(sizeof *w.order / sizeof(float));
}

static heed_status begin(heed_context *context, work *w) {
  const int64_t rows = w->rows->rows, steps = w->rows->steps;
  int64_t *counts;
  w->kernels = hd_kernels_of(context);
  cut(context, w);
  HD_TRY(hd_allocate(context, "rows in order", rows + steps + 1, sizeof *w->order, &w->order));
  counts = w->order + rows;
  memset(counts, 0, (size_t)(steps + 1) * sizeof *counts);
  for (int64_t i = 0; i < rows; i++) counts[steps - steps_of(w->rows, i)]++;
  for (int64_t i = 0, before = 0; i <= steps; i++) {
    const int64_t here = counts[i];
    counts[i] = before;
    before += here;
  }
  for (int64_t i = 0; i < rows; i++) w->order[counts[steps - steps_of(w->rows, i)]++] = i;
  return hd_allocate(context, "rows under way", scratch_floats(context, w), sizeof *w->scratch, &w->scratch);
}

static void end(heed_context *context, work *w) {
  hd_release(context, w->scratch, w->scratch ? scratch_floats(context, w) : 0, sizeof *w->scratch);
  hd_release(context, w->order, w->rows->rows + w->rows->steps + 1, sizeof *w->order);
}

/* Every `pieces`-th row, so that pieces have as much to do. */
typedef struct piece {
  const work *w;
  int64_t first, rows;
  float *state, *gates, *query, *value; /* [rows] each */
  float *terms, *scores;                /* of one row */
} piece;

static int64_t row_of(const piece *p, int64_t i) { return p->w->order[p->first + i * p->w->pieces]; }

static piece piece_of(const work *w, int64_t i, int worker) {
  piece p = {.w = w, .first = i, .rows = (w->rows->rows - i + w->pieces - 1) / w->pieces};
  p.state = w->scratch + worker * w->floats;
  p.gates = p.state + w->piece_rows * w->state_stride;
  p.query = p.gates + w->piece_rows * w->gates_stride;
  p.value = p.query + w->piece_rows * w->query_stride;
  p.terms = p.value + w->piece_rows * w->value_stride;
  p.scores = p.terms + w->query_stride;
  return p;
}

static int64_t still_there(const piece *p, int64_t step) {
  int64_t n = p->rows;
  while (n > 0 && steps_of(p->w->rows, row_of(p, n - 1)) <= step) n--;
  return n;
}

/* The place in time of a row's step, and where things of it lie. */
static int64_t time_of(const hd_recurrence_rows *rows, int64_t row, int64_t step) {
  return rows->reverse ? steps_of(rows, row) - 1 - step : step;
}
static int64_t entry_of(const hd_recurrence_rows *rows, int64_t row) { return rows->entry ? rows->entry[row] : row; }
static float *alpha_at(const hd_recurrence_rows *rows, float *alpha, int64_t keys, int64_t row, int64_t t) {
  return alpha + (row * rows->steps + t) * keys;
}

/* ---- forward ---------------------------------------------------------------------------------------------------------------------------- */

/* Adds the context to the gates' input, and puts beside the state what else is made of it. */
static const float *attend(const piece *p, int64_t i, int64_t row, int64_t t, const float *x, float *out) {
  const work *w = p->w;
  const hd_recurrence *r = w->r;
  const hd_recurrence_memory *m = w->memory;
  const int64_t entry = entry_of(w->rows, row), keys = length_of(m, entry), gates = 3 * r->width;
  float *alpha = w->rows->alpha ? alpha_at(w->rows, w->rows->alpha, m->keys, row, t) : p->scores;
  float *value = p->value + i * w->value_stride;
  const float *query = (r->projected.panels ? p->query + i * w->query_stride : p->state + i * w->state_stride);
  memcpy(value, x, (size_t)gates * sizeof *value);
  memset(value + gates, 0, (size_t)(r->value - gates) * sizeof *value);
  if (keys > 0) {
    hd_softmax_sums sums;
    score(w->kernels, r, m, entry, query, p->terms, alpha);
    w->kernels->softmax_sums(alpha, keys, &sums);
    w->kernels->softmax_terms(alpha, keys, sums.maximum, (float)(1 / sums.sum), 0.0f, false, alpha);
    w->kernels->blend(alpha, m->value + entry * m->keys * r->value, keys, r->value, r->value, value);
  }
  if (w->rows->alpha) memset(alpha + keys, 0, (size_t)(m->keys - keys) * sizeof *alpha);
  memcpy(out + r->width, value + gates, (size_t)(r->value - gates) * sizeof *out);
  return value;
}

static void forward_row(const piece *p, int64_t i, int64_t step) {
  const work *w = p->w;
  const hd_recurrence *r = w->r;
  const int64_t row = row_of(p, i), t = time_of(w->rows, row, step), at = w->rows->first[row] + t, n = r->width;
  float *out = w->rows->out + (row * w->rows->steps + t) * r->row_width, *kept = w->rows->kept, *state = p->state + i * w->state_stride;
  const float *x = w->rows->x + at * 3 * n;
  if (kept) kept += at * hd_recurrence_kept(r);
  if (r->query) {
    if (kept) memcpy(kept + 5 * n, r->projected.panels ? p->query + i * w->query_stride : state, (size_t)r->query * sizeof *kept);
    x = attend(p, i, row, t, x, out);
  }
  w->kernels->gru(&(hd_gru){.x = x, .h = p->gates + i * w->gates_stride, .before = state, .kept = kept, .out = out}, n);
  memcpy(state, out, (size_t)n * sizeof *state);
}

static void forward_piece(void *argument, int64_t number, int worker) {
  const work *w = argument;
  const hd_recurrence *r = w->r;
  const piece p = piece_of(w, number, worker);
  for (int64_t i = 0; i < p.rows; i++) {
    float *state = p.state + i * w->state_stride;
    memset(state, 0, (size_t)w->state_stride * sizeof *state); // a query is padded with zeros
    memset(p.query + i * w->query_stride, 0, (size_t)w->query_stride * sizeof *state);
    if (w->rows->initial) memcpy(state, w->rows->initial + row_of(&p, i) * r->width, (size_t)r->width * sizeof *state);
  }
  for (int64_t step = 0, rows; (rows = still_there(&p, step)) > 0; step++) {
    multiply(w->kernels, &(rows_product){&r->hidden, p.state, r->bias, p.gates, rows, w->state_stride, w->gates_stride, false});
    if (r->projected.panels)
      multiply(w->kernels, &(rows_product){&r->projected, p.state, NULL, p.query, rows, w->state_stride, w->query_stride, false});
    for (int64_t i = 0; i < rows; i++) forward_row(&p, i, step);
  }
}

heed_status hd_recurrence_run(heed_context *context, const hd_recurrence *r, const hd_recurrence_memory *memory,
                              const hd_recurrence_rows *rows) {
  work w = {.r = r, .memory = memory, .rows = rows};
  if (rows->rows == 0) return HEED_OK;
  heed_status status = begin(context, &w);
  if (status == HEED_OK) hd_parallel(context, w.pieces, forward_piece, &w);
  end(context, &w);
  return status;
}

/* ---- backward --------------------------------------------------------------------------------------------------------------------------- */

/* What the context's gradient, dx [V], gives back to scores and query. */
static void attend_back(const piece *p, int64_t row, int64_t t, const float *kept, const float *dx, float *dquery) {
  const work *w = p->w;
  const hd_recurrence *r = w->r;
  const hd_recurrence_memory *m = w->memory;
  const int64_t entry = entry_of(w->rows, row), keys = length_of(m, entry);
  const float *query = kept + 5 * r->width, *alpha = alpha_at(w->rows, w->rows->alpha, m->keys, row, t);
  float *ds = alpha_at(w->rows, w->to->ds, m->keys, row, t), *padded = p->scores;
  memset(dquery, 0, (size_t)w->query_stride * sizeof *dquery);
  w->kernels->compare(dx, m->value + entry * m->keys * r->value, keys, r->value, r->value, ds);
  w->kernels->softmax_backward(alpha, ds, keys, false, ds);
  memset(ds + keys, 0, (size_t)(m->keys - keys) * sizeof *ds);
  if (!r->w) {
    w->kernels->blend(ds, keys_of(m, r, entry), keys, r->query, r->query, dquery);
    w->kernels->row_scale(dquery, r->query, r->scale);
    return;
  }
  memcpy(padded, query, (size_t)r->query * sizeof *padded);
  memset(padded + r->query, 0, (size_t)(m->columns - r->query) * sizeof *padded);
  const bool far = w->kernels->additive_row(padded, m->columns, p->terms) > HD_ADDITIVE_NEAR;
  for (int64_t first = 0; first < keys; first += HD_KEY_TILE) {
    const int64_t at = (entry * m->keys + first) * m->columns;
    one_query pairs;
    pair_up(r, m, entry, first, HD_MIN(HD_KEY_TILE, keys - first), padded, p->terms, far, &pairs);
    w->kernels->additive_gradients(&pairs.pairs, &pairs.tile, ds + first, dquery, w->to->dkey + at, w->to->dw + at);
  }
}

static void back_row(const piece *p, int64_t i, int64_t step) {
  const work *w = p->w;
  const hd_recurrence *r = w->r;
  const hd_recurrence_gradients *to = w->to;
  const int64_t row = row_of(p, i), t = time_of(w->rows, row, step), at = w->rows->first[row] + t, n = r->width;
  const int64_t given = r->query ? r->value : 3 * n;
  const float *dy = to->dy + (row * w->rows->steps + t) * r->row_width, *kept = w->rows->kept + at * hd_recurrence_kept(r);
  float *dx = to->dx + at * given, *dgates = p->gates + i * w->gates_stride, *state = p->state + i * w->state_stride;
  w->kernels->gru_backward(&(hd_gru_gradient){.kept = kept, .dy = dy, .dh = state, .dx = dx, .dgates = dgates}, n);
  memcpy(to->dgates + at * 3 * n, dgates, (size_t)(3 * n) * sizeof *dgates);
  if (!r->query) return;
  float *dquery = p->query + i * w->query_stride;
  memcpy(dx + 3 * n, dy + n, (size_t)(r->value - 3 * n) * sizeof *dx);
  attend_back(p, row, t, kept, dx, dquery);
  memcpy(to->dquery + at * r->query, dquery, (size_t)r->query * sizeof *dquery);
  if (!w->projected_turned->panels) w->kernels->add(state, dquery, n, state);
}

static void back_piece(void *argument, int64_t number, int worker) {
  const work *w = argument;
  const hd_recurrence *r = w->r;
  const piece p = piece_of(w, number, worker);
  memset(p.state, 0, (size_t)(p.rows * w->state_stride) * sizeof *p.state);
  for (int64_t step = steps_of(w->rows, row_of(&p, 0)) - 1; step >= 0; step--) {
    const int64_t rows = still_there(&p, step);
    for (int64_t i = 0; i < rows; i++) back_row(&p, i, step);
    multiply(w->kernels, &(rows_product){w->hidden_turned, p.gates, NULL, p.state, rows, w->gates_stride, w->state_stride, true});
    if (w->projected_turned->panels)
      multiply(w->kernels, &(rows_product){w->projected_turned, p.query, NULL, p.state, rows, w->query_stride, w->state_stride, true});
  }
  for (int64_t i = 0; i < p.rows && w->to->dinitial; i++)
    memcpy(w->to->dinitial + row_of(&p, i) * r->width, p.state + i * w->state_stride, (size_t)r->width * sizeof *p.state);
}

heed_status hd_recurrence_back(heed_context *context, const hd_recurrence *r, const hd_recurrence_memory *memory,
                               const hd_recurrence_rows *rows, const hd_packed *hidden_turned, const hd_packed *projected_turned,
                               const hd_recurrence_gradients *to) {
  work w = {.r = r, .memory = memory, .rows = rows, .hidden_turned = hidden_turned, .projected_turned = projected_turned, .to = to};
  if (rows->rows == 0) return HEED_OK;
  heed_status status = begin(context, &w);
  if (status == HEED_OK) hd_parallel(context, w.pieces, back_piece, &w);
  end(context, &w);
  return status;
}

/* ---- after the loop ------------------------------------------------------------------------------------------------------------------- */

int64_t hd_recurrence_turn_floats(int64_t keys, int64_t steps, int64_t n) { return keys * apart(steps) + panels_of(n) * steps * HD_PANEL; }

void hd_recurrence_turn_run(const hd_kernels *kernels, const hd_recurrence_turn *t) {
  const int64_t stride = apart(t->length);
  hd_packed x = {.outputs = t->n, .inputs = t->length, .panels = t->scratch + t->keys * stride};
  for (int64_t j = 0; j < t->keys; j++)
    for (int64_t i = 0; i < t->length; i++) t->scratch[j * stride + i] = t->factor * t->a[i * t->a_stride + j];
  pack(kernels, t->x, t->x_stride, true, &x);
  multiply(kernels, &(rows_product){&x, t->scratch, NULL, t->to, t->keys, stride, t->to_stride, t->accumulate});
}
