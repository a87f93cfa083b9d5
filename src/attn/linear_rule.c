/* linear_rule.c: linear attention whose state is changed token by token: gates, and the delta rule (linear_transformers of Schlag et al. 2021 and Yang et al. 2024; ONNX's LinearAttention).
 *
 * What a token writes depends on what the state predicts for it, so there is no sum to take ahead: a state goes through the tokens in a near cache. Its columns never meet, so a head's columns are
 * shared out where heads do not fill the threads. The backward pass goes through the states again: those at the begin of each block of tokens are kept, the others are found anew block by block. */
#include "linear.h"

#include <math.h>

enum { BLOCK = HD_CHUNK };

/* Columns of a piece of work. */
enum { MOST_COLUMNS = 64, LEAST_COLUMNS = HD_PANEL };

struct job {
  const hd_linear *p;
  hd_grid out, lse, dout;
  hd_linear_grids after;
  hd_linear_gradient_grids to;
  int64_t columns, panels; /* of a piece, and how many pieces to a head */
  int64_t blocks;
  float *memory;
  int64_t floats;
};

/* A worker's scratch. */
struct own {
  float *k, *v, *gate, *q, *out;        /* [64][f], [64][columns], [64][f], [heads][64][f], [heads][columns] */
  float *state, *scratch;               /* [f][columns]; [64] exponents nobody wants */
  float *states, *kept;                 /* backward: [64 + 1][f][columns], [blocks][f][columns] */
  float *dstate, *dk, *dv, *dgate, *dq; /* [f][columns], [64][f], [64][columns], [64][f], [64][f] */
  float *gradient;                      /* [heads][64][columns]: scale · dout */
  float *back;                          /* [4][columns] */
  float *dx;                            /* [64][padded d] */
};

static bool lay_out(const struct job *job, struct own *own, float *memory, int64_t *floats) {
  const hd_linear *p = job->p;
  const int64_t f = hd_padded(p->features), w = job->columns, back = job->dout.size != 0;
  int64_t state, kept, rows;
  if (!hd_mul(p->features, w, &state) || !hd_mul(back * job->blocks, state, &kept) || !hd_mul(p->group * BLOCK, HD_MAX(f, w), &rows))
    return false;
  const hd_part parts[] = {
      {&own->k, BLOCK, f},
      {&own->v, BLOCK, w},
      {&own->gate, BLOCK, f},
      {&own->q, p->group * BLOCK, f},
      {&own->out, p->group, w},
      {&own->state, state, 1},
      {&own->scratch, BLOCK, 1},
      {&own->states, back * (BLOCK + 1), state},
      {&own->kept, kept, 1},
      {&own->dstate, back, state},
      {&own->dk, back * BLOCK, f},
      {&own->dv, back * BLOCK, w},
      {&own->dgate, back * BLOCK, f},
      {&own->dq, back * BLOCK, f},
      {&own->gradient, back * p->group * BLOCK, w},
      {&own->back, back * 4, w},
      {&own->dx, back * BLOCK, hd_padded(p->d)},
  };
  return hd_cut(memory, parts, HD_COUNT(parts), floats);
}

/* Columns [first, first + columns) of a grid. */
static hd_grid columns_of(const hd_grid *grid, int64_t first, int64_t columns) {
  hd_grid part = *grid;
  part.data += first * grid->column_stride * grid->size;
  part.columns = HD_MIN(columns, grid->columns - first);
  return part;
}

/* ---- a block of tokens ------------------------------------------------------------------------------------------------------------------ */

struct block {
  int64_t batch, kv, begin;
  int count;
  hd_grid v;
};

static void read_keys(const struct job *job, const struct own *own, const struct block *b) {
  const hd_linear *p = job->p;
  const int64_t f = hd_padded(p->features);
  const hd_linear_maps none = {0};
  hd_linear_keys(p, &none, b->batch, b->kv, b->begin, b->count, own->scratch, NULL, own->k, own->scratch);
  hd_linear_rows(p, &b->v, b->batch, b->kv, b->begin, b->count, true, own->v, job->columns);
  if (!p->decay.size) return;
  hd_linear_rows(p, &p->decay, b->batch, b->kv, b->begin, b->count, true, own->gate, f);
  for (int i = 0; i < b->count; i++) {
    float *gate = own->gate + i * f;
    if (p->decay.columns == 1)
      for (int64_t r = 1; r < p->features; r++) gate[r] = gate[0];
    p->kernels->softmax_terms(gate, p->features, 0, 1, 0, false, gate);
  }
}

static void read_queries(const struct job *job, const struct own *own, const struct block *b) {
  const hd_linear *p = job->p;
  const hd_linear_maps none = {0};
  for (int64_t h = 0; h < p->group; h++) {
    float *q = own->q + h * BLOCK * hd_padded(p->features);
    hd_linear_rows(p, &p->q, b->batch, b->kv * p->group + h, b->begin, b->count, false, q, hd_padded(p->d));
    hd_linear_features(p, &none, q, b->count, NULL, q, own->scratch);
  }
}

/* Token i of the block; one that does not count leaves the state as it is. */
static hd_rule_step step_of(const struct job *job, const struct own *own, const struct block *b, int i, float *state) {
  const hd_linear *p = job->p;
  const int64_t f = hd_padded(p->features);
  const bool counts = hd_linear_counts(p, b->batch, b->begin + i), delta = p->beta.size && counts;
  return (hd_rule_step){
      .features = p->features,
      .columns = job->columns,
      .stride = job->columns,
      .heads = p->group,
      .gate = p->decay.size && counts ? own->gate + i * f : NULL,
      .k = own->k + i * f,
      .v = own->v + i * job->columns,
      .q = own->q + i * f,
      .q_stride = BLOCK * f,
      .delta = delta,
      .beta = delta ? (float)hd_element(hd_grid_row(&p->beta, b->batch, b->kv, b->begin + i), p->beta.type) : 1,
      .scale = (float)p->scale,
      .state = state,
      .out = own->out,
      .out_stride = job->columns,
  };
}

static void read_state(const struct job *job, int64_t batch, int64_t kv, int64_t column, float *state) {
  const hd_linear *p = job->p;
  const int64_t w = job->columns;
  memset(state, 0, (size_t)(p->features * w) * sizeof *state);
  if (!p->before_sums.size) return;
  const hd_grid before = columns_of(&p->before_sums, column, w);
  for (int64_t r = 0; r < p->features; r++)
    hd_to_floats(p->kernels, hd_grid_row(&before, batch, kv, r), before.type, before.column_stride, before.columns, state + r * w);
}

static struct block block_at(const struct job *job, int64_t head, int64_t column, int64_t number) {
  const hd_linear *p = job->p;
  return (struct block){.batch = head / p->kv_heads,
                        .kv = head % p->kv_heads,
                        .begin = number * BLOCK,
                        .count = (int)HD_MIN(BLOCK, p->keys - number * BLOCK),
                        .v = columns_of(&p->v, column, job->columns)};
}

/* ---- forward ------------------------------------------------------------------------------------------------------------------------------ */

static void forward_piece(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const hd_linear *p = job->p;
  const int64_t head = i / job->panels, column = i % job->panels * job->columns, w = job->columns;
  struct own own;
  int64_t floats = 0;
  lay_out(job, &own, job->memory + worker * job->floats, &floats);
  read_state(job, head / p->kv_heads, head % p->kv_heads, column, own.state);
  const hd_grid out = columns_of(&job->out, column, w);
  for (int64_t number = 0; number < job->blocks; number++) {
    const struct block b = block_at(job, head, column, number);
    read_keys(job, &own, &b);
    read_queries(job, &own, &b);
    for (int t = 0; t < b.count; t++) {
      const hd_rule_step step = step_of(job, &own, &b, t, own.state);
      p->kernels->rule_step(&step);
      for (int64_t h = 0; h < p->group; h++) hd_linear_put(p, &out, b.batch, b.kv * p->group + h, b.begin + t, 1, own.out + h * w, w);
    }
  }
  if (!job->after.sums.size) return;
  const hd_grid after = columns_of(&job->after.sums, column, w);
  hd_linear_put(p, &after, head / p->kv_heads, head % p->kv_heads, 0, (int)p->features, own.state, w);
}

/* What the workers need: pieces of a head's columns where `split`. */
static heed_status prepare(struct job *job, bool split, int64_t *pieces, int64_t *room) {
  const hd_linear *p = job->p;
  heed_context *context = p->context;
  const int64_t heads = p->batch * p->kv_heads, wide = hd_padded(p->dv);
  struct own sizes;
  job->columns = split ? HD_MIN(wide, heads * hd_ceil_div(wide, MOST_COLUMNS) < context->threads ? LEAST_COLUMNS : MOST_COLUMNS) : wide;
  job->panels = job->columns ? hd_ceil_div(wide, job->columns) : 1;
  job->blocks = hd_ceil_div(p->keys, BLOCK);
  job->floats = 0;
  *pieces = heads * job->panels;
  HD_REQUIRE(lay_out(job, &sizes, NULL, &job->floats) && hd_mul(job->floats, hd_workers(context, *pieces), room), context, HEED_E_OVERFLOW,
             "%lld features and %lld values a key are too many", (long long)p->features, (long long)p->dv);
  return hd_allocate(context, "linear attention", *room, sizeof *job->memory, &job->memory);
}

heed_status hd_linear_rule_forward(const hd_linear *p, const hd_grid *out, const hd_grid *lse, const hd_linear_grids *after) {
  struct job job = {.p = p, .out = *out, .after = *after};
  int64_t pieces, room;
  HD_TRY(prepare(&job, true, &pieces, &room));
  hd_parallel(p->context, pieces, forward_piece, &job);
  hd_release(p->context, job.memory, room, sizeof *job.memory);
  if (lse->size) hd_fill_zero(lse);
  return HEED_OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------------------------------------ */

/* The states of a block, from own->states[0] on. */
static void find_states(const struct job *job, const struct own *own, const struct block *b) {
  const hd_linear *p = job->p;
  const int64_t floats = p->features * job->columns;
  for (int t = 0; t < b->count; t++) {
    float *next = own->states + (t + 1) * floats;
    memcpy(next, own->states + t * floats, (size_t)floats * sizeof *next);
    hd_rule_step step = step_of(job, own, b, t, next);
    step.heads = 1; // its output is not looked at
    p->kernels->rule_step(&step);
  }
}

/* The states at which blocks begin. */
static void keep_states(const struct job *job, const struct own *own, int64_t head) {
  const int64_t floats = job->p->features * job->columns;
  read_state(job, head / job->p->kv_heads, head % job->p->kv_heads, 0, own->states);
  for (int64_t number = 0; number < job->blocks; number++) {
    memcpy(own->kept + number * floats, own->states, (size_t)floats * sizeof(float));
    const struct block b = block_at(job, head, 0, number);
    if (number == job->blocks - 1) break;
    read_keys(job, own, &b);
    find_states(job, own, &b);
    memcpy(own->states, own->states + b.count * floats, (size_t)floats * sizeof(float));
  }
}

static void read_gradients(const struct job *job, const struct own *own, const struct block *b) {
  const hd_linear *p = job->p;
  for (int64_t h = 0; h < p->group; h++) {
    float *g = own->gradient + h * BLOCK * job->columns;
    hd_linear_rows(p, &job->dout, b->batch, b->kv * p->group + h, b->begin, b->count, false, g, job->columns);
    p->kernels->row_scale(g, b->count * job->columns, (float)p->scale);
  }
}

/* dq of every head, from the states behind the tokens. */
static void make_queries(const struct job *job, const struct own *own, const struct block *b) {
  const hd_linear *p = job->p;
  const int64_t f = hd_padded(p->features), w = job->columns;
  const hd_linear_maps none = {0};
  for (int64_t h = 0; h < p->group && job->to.dq.size; h++) {
    for (int t = 0; t < b->count; t++) {
      memset(own->dq + t * f + p->features, 0, (size_t)(f - p->features) * sizeof(float));
      p->kernels->compare(own->gradient + (h * BLOCK + t) * w, own->states + (t + 1) * p->features * w, p->features, w, w, own->dq + t * f);
    }
    hd_linear_features_backward(p, &none, NULL, own->q + h * BLOCK * f, own->dq, b->count, NULL, own->dx);
    hd_linear_put(p, &job->to.dq, b->batch, b->kv * p->group + h, b->begin, b->count, own->dx, hd_padded(p->d));
  }
}

static void put_beta(const struct job *job, const struct block *b, int t, float value) {
  const hd_grid *to = &job->to.dbeta;
  char *at = hd_grid_row(to, b->batch, b->kv, b->begin + t);
  const bool shared = !to->head_stride && job->p->kv_heads > 1; // each head adds its own, in order
  hd_element_store(at, to->type, shared ? hd_element(at, to->type) + value : value);
}

/* Token t: the gradient of the state behind it becomes that of the state before it. */
static void backward_token(const struct job *job, const struct own *own, const struct block *b, int t) {
  const hd_linear *p = job->p;
  const int64_t f = hd_padded(p->features), w = job->columns;
  const hd_rule_step step = step_of(job, own, b, t, own->states + t * p->features * w);
  hd_rule_step wide = step;
  wide.out_stride = BLOCK * w;
  const hd_rule_gradient gradient = {
      .step = &wide,
      .dout = own->gradient + t * w,
      .dstate = own->dstate,
      .dk = own->dk + t * f,
      .dgate = own->dgate + t * f,
      .dv = own->dv + t * w,
      .written = own->back,
      .back = own->back + w,
      .dwritten = own->back + 2 * w,
      .rest = own->back + 3 * w,
  };
  memset(own->dk + t * f + p->features, 0, (size_t)(f - p->features) * sizeof(float));
  p->kernels->rule_backward(&gradient);
  const bool counts = hd_linear_counts(p, b->batch, b->begin + t);
  if (!counts) {
    memset(own->dk + t * f, 0, (size_t)f * sizeof(float));
    memset(own->dv + t * w, 0, (size_t)w * sizeof(float));
  }
  if (job->to.dbeta.size && counts) {
    float dbeta;
    p->kernels->compare(gradient.dwritten, gradient.rest, 1, w, w, &dbeta);
    put_beta(job, b, t, dbeta);
  }
  if (!job->to.ddecay.size || !counts) return;
  float *dgate = own->dgate + t * f;
  if (job->to.ddecay.columns == 1) dgate[0] = p->kernels->sum(dgate, p->features);
  hd_linear_put(p, &job->to.ddecay, b->batch, b->kv, b->begin + t, 1, dgate, f);
}

static void backward_head(const struct job *job, const struct own *own, int64_t head) {
  const hd_linear *p = job->p;
  const hd_linear_maps none = {0};
  const int64_t floats = p->features * job->columns;
  keep_states(job, own, head);
  memset(own->dstate, 0, (size_t)floats * sizeof(float));
  for (int64_t number = job->blocks - 1; number >= 0; number--) {
    const struct block b = block_at(job, head, 0, number);
    memcpy(own->states, own->kept + number * floats, (size_t)floats * sizeof(float));
    read_keys(job, own, &b);
    read_queries(job, own, &b);
    read_gradients(job, own, &b);
    find_states(job, own, &b);
    make_queries(job, own, &b);
    for (int t = b.count - 1; t >= 0; t--) backward_token(job, own, &b, t);
    hd_linear_features_backward(p, &none, NULL, own->k, own->dk, b.count, NULL, own->dx);
    if (job->to.dk.size) hd_linear_put(p, &job->to.dk, b.batch, b.kv, b.begin, b.count, own->dx, hd_padded(p->d));
    if (job->to.dv.size) hd_linear_put(p, &job->to.dv, b.batch, b.kv, b.begin, b.count, own->dv, job->columns);
  }
}

/* One key/value head, or all heads of a batch entry where one β serves them. */
static void backward_piece(void *argument, int64_t i, int worker) {
  const struct job *job = argument;
  const int64_t heads = job->panels;
  struct own own;
  int64_t floats = 0;
  lay_out(job, &own, job->memory + worker * job->floats, &floats);
  for (int64_t head = i * heads; head < (i + 1) * heads; head++) backward_head(job, &own, head);
}

heed_status hd_linear_rule_backward(const hd_linear *p, const hd_grid *dout, const hd_linear_gradient_grids *to) {
  struct job job = {.p = p, .dout = *dout, .to = *to};
  int64_t pieces, room;
  HD_TRY(prepare(&job, false, &pieces, &room));
  hd_fill_zero(&to->ddecay); // of keys that do not count
  hd_fill_zero(&to->dbeta);
  job.panels = to->dbeta.size && !to->dbeta.head_stride ? p->kv_heads : 1;
  if (p->batch * p->kv_heads > 0) hd_parallel(p->context, p->batch * p->kv_heads / job.panels, backward_piece, &job);
  hd_release(p->context, job.memory, room, sizeof *job.memory);
  return HEED_OK;
}
