/* linear_reference.c: linear attention and its gradients in double precision, pair by pair, and with other rules token by token: what everything else is held to. It shares the reading of the call
 * with the kernels and nothing else: no chunks, no states of sums, no stabiliser. */
#include "linear.h"

#include <math.h>

struct reference {
  const hd_linear *p;
  hd_grid out, lse, dout, dq, dk, dv, ddecay, dbeta; /* those without a size are absent */
  hd_linear_grids after;
  double *memory; /* [workers][room] */
  int64_t room;
};

static double at(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_element(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type);
}

static void put(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column, double value) {
  if (grid->size) hd_element_store(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type, value);
}

static double projection_at(const hd_linear *p, int64_t r, int64_t c) {
  const heed_view *w = p->a.projection;
  return ((const float *)w->data)[r * w->stride[0] + c * w->stride[1]];
}

/* ---- features --------------------------------------------------------------------------------------------------------------------- */

/* What a row of the projection, r < F, or its opposite is multiplied by. */
static double sign_of(const hd_linear *p, int64_t r) { return r < p->projected ? 1 : -1; }

static void features(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t row, double *f) {
  double square = 0;
  for (int64_t c = 0; c < p->d; c++) square += pow(at(grid, batch, head, row, c), 2);
  for (int64_t r = 0; r < p->features; r++) {
    if (hd_linear_projects(p)) {
      double u = 0;
      for (int64_t c = 0; c < p->d; c++) u += projection_at(p, r % p->projected, c) * at(grid, batch, head, row, c);
      f[r] = exp(sign_of(p, r) * sqrt(p->scale) * u - p->scale * square / 2) / sqrt((double)p->features);
      continue;
    }
    const double x = at(grid, batch, head, row, r);
    if (p->a.features == HEED_FEATURES_ELU) f[r] = x > 0 ? x + 1 : exp(x);
    else if (p->a.features == HEED_FEATURES_RELU) f[r] = x <= 0 ? 0 : x;
    else f[r] = x;
  }
}

/* Adds to dx what the gradients df of features f say. */
static void features_backward(const hd_linear *p, const hd_grid *grid, int64_t batch, int64_t head, int64_t row, const double *f,
                              const double *df, double *dx) {
  for (int64_t r = 0; r < p->features; r++) {
    if (hd_linear_projects(p)) {
      const double du = f[r] * df[r];
      for (int64_t c = 0; c < p->d; c++)
        dx[c] += du * (sign_of(p, r) * sqrt(p->scale) * projection_at(p, r % p->projected, c) - p->scale * at(grid, batch, head, row, c));
      continue;
    }
    const double x = at(grid, batch, head, row, r);
    const double slope = p->a.features == HEED_FEATURES_IDENTITY ? 1 : x > 0 ? 1 : p->a.features == HEED_FEATURES_ELU ? exp(x) : 0;
    dx[r] += slope * df[r];
  }
}

/* What the kernels' states hold is f · √f's number of projected features. */
static double root(const hd_linear *p) { return hd_linear_projects(p) ? sqrt((double)p->features) : 1; }

static double before_factor(const hd_linear *p, int64_t batch, int64_t head) {
  return hd_linear_projects(p) ? exp2(at(&p->before_exponent, batch, head, 0, 0)) / root(p) : 1;
}

/* ---- one key/value head ------------------------------------------------------------------------------------------------------------- */

struct arrays {
  double *fk, *dfk, *dv; /* [keys][f], [keys][f], [keys][dv] */
  double *fq, *dfq;      /* [f], of one row */
  double *num, *dx;      /* [dv], [d] */
  double *states, *ds;   /* rules: [keys + 1][f][dv], [f][dv] */
};

static int64_t lay_out(const hd_linear *p, double *memory, struct arrays *a) {
  const int64_t rule = p->a.rule != HEED_RULE_ADD, state = p->features * p->dv;
  const struct {
    double **array;
    int64_t count;
  } parts[] = {{&a->fk, p->keys * p->features},
               {&a->dfk, p->keys * p->features},
               {&a->dv, p->keys * p->dv},
               {&a->fq, p->features},
               {&a->dfq, p->features},
               {&a->num, p->dv},
               {&a->dx, p->d},
               {&a->states, rule * (p->keys + 1) * state},
               {&a->ds, rule * state}};
  int64_t floats = 0;
  for (int i = 0; i < HD_COUNT(parts); i++) {
    *parts[i].array = memory + (memory ? floats : 0);
    floats += parts[i].count;
  }
  return floats;
}

static bool sees(const hd_linear *p, int64_t batch, int64_t query, int64_t key) {
  return (!p->a.causal || key <= query) && hd_linear_counts(p, batch, key);
}

/* Σ_r f_r g_r. */
static double dot(const double *f, const double *g, int64_t n) {
  double sum = 0;
  for (int64_t r = 0; r < n; r++) sum += f[r] * g[r];
  return sum;
}

/* φ(q), numerator and normaliser of a row. */
static double find_row(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t head, int64_t query) {
  const hd_linear *p = ref->p;
  const int64_t kv = head / p->group;
  double z = p->epsilon;
  features(p, &p->q, batch, head, query, a->fq);
  for (int64_t c = 0; c < p->dv; c++) a->num[c] = 0;
  for (int64_t r = 0; p->before_sums.size && r < p->features; r++) {
    const double weight = a->fq[r] * before_factor(p, batch, kv);
    if (p->before_normaliser.size) z += weight * at(&p->before_normaliser, batch, kv, r, 0);
    for (int64_t c = 0; c < p->dv; c++) a->num[c] += weight * at(&p->before_sums, batch, kv, r, c);
  }
  for (int64_t j = 0; j < p->keys; j++) {
    if (!sees(p, batch, query, j)) continue;
    const double weight = dot(a->fq, a->fk + j * p->features, p->features);
    z += weight;
    for (int64_t c = 0; c < p->dv; c++) a->num[c] += weight * at(&p->v, batch, kv, j, c);
  }
  return z;
}

static void find_keys(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  for (int64_t j = 0; j < ref->p->keys; j++)
    if (hd_linear_counts(ref->p, batch, j)) features(ref->p, &ref->p->k, batch, kv, j, a->fk + j * ref->p->features);
}

/* The state after all keys. */
static void put_after(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  double exponent = -INFINITY;
  for (int64_t j = 0; hd_linear_projects(p) && j < p->keys; j++)
    for (int64_t r = 0; hd_linear_counts(p, batch, j) && r < p->features; r++)
      exponent = fmax(exponent, ceil(log2(a->fk[j * p->features + r] * root(p))));
  if (p->before_exponent.size) exponent = fmax(exponent, at(&p->before_exponent, batch, kv, 0, 0));
  const double factor = !hd_linear_projects(p) ? 1 : isinf(exponent) ? 0 : root(p) / exp2(exponent);
  for (int64_t r = 0; r < p->features; r++)
    for (int64_t c = -1; c < p->dv; c++) {
      const hd_grid *before = c < 0 ? &p->before_normaliser : &p->before_sums, *after = c < 0 ? &ref->after.normaliser : &ref->after.sums;
      double sum = before->size ? at(before, batch, kv, r, c < 0 ? 0 : c) * before_factor(p, batch, kv) : 0;
      for (int64_t j = 0; j < p->keys; j++)
        if (hd_linear_counts(p, batch, j)) sum += a->fk[j * p->features + r] * (c < 0 ? 1 : at(&p->v, batch, kv, j, c));
      put(after, batch, kv, r, c < 0 ? 0 : c, sum * factor);
    }
  put(&ref->after.exponent, batch, kv, 0, 0, exponent);
}

static void forward_add(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  find_keys(ref, a, batch, kv);
  for (int64_t head = kv * p->group; head < (kv + 1) * p->group; head++)
    for (int64_t i = 0; i < p->queries; i++) {
      const double z = find_row(ref, a, batch, head, i), bare = hd_linear_projects(p) ? 1 : p->scale;
      for (int64_t c = 0; c < p->dv; c++)
        put(&ref->out, batch, head, i, c, p->a.unnormalised ? bare * a->num[c] : z < FLT_MIN ? 0 : a->num[c] / z);
      put(&ref->lse, batch, head, i, 0, p->a.unnormalised ? 0 : z < FLT_MIN ? -INFINITY : log(z));
    }
  if (ref->after.sums.size) put_after(ref, a, batch, kv);
}

static void backward_add(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  const int64_t f = p->features;
  find_keys(ref, a, batch, kv);
  for (int64_t head = kv * p->group; head < (kv + 1) * p->group; head++)
    for (int64_t i = 0; i < p->queries; i++) {
      const double z = find_row(ref, a, batch, head, i), bare = hd_linear_projects(p) ? 1 : p->scale;
      const double factor = p->a.unnormalised ? bare : z < FLT_MIN ? 0 : 1 / z;
      double delta = 0; // dout · out
      for (int64_t c = 0; c < p->dv && !p->a.unnormalised; c++) delta += at(&ref->dout, batch, head, i, c) * a->num[c] * factor;
      for (int64_t r = 0; r < f; r++) {
        double sum = p->before_normaliser.size ? -delta * at(&p->before_normaliser, batch, kv, r, 0) : 0;
        for (int64_t c = 0; c < p->dv && p->before_sums.size; c++)
          sum += at(&p->before_sums, batch, kv, r, c) * at(&ref->dout, batch, head, i, c);
        a->dfq[r] = p->before_sums.size ? factor * sum * before_factor(p, batch, kv) : 0;
      }
      for (int64_t j = 0; j < p->keys; j++) {
        if (!sees(p, batch, i, j)) continue;
        const double weight = dot(a->fq, a->fk + j * f, f);
        double da = -delta;
        for (int64_t c = 0; c < p->dv; c++) {
          da += at(&ref->dout, batch, head, i, c) * at(&p->v, batch, kv, j, c);
          a->dv[j * p->dv + c] += factor * weight * at(&ref->dout, batch, head, i, c);
        }
        for (int64_t r = 0; r < f; r++) {
          a->dfq[r] += factor * da * a->fk[j * f + r];
          a->dfk[j * f + r] += factor * da * a->fq[r];
        }
      }
      memset(a->dx, 0, (size_t)p->d * sizeof *a->dx);
      features_backward(p, &p->q, batch, head, i, a->fq, a->dfq, a->dx);
      for (int64_t c = 0; c < p->d; c++) put(&ref->dq, batch, head, i, c, a->dx[c]);
    }
}

/* ---- other rules: token by token ------------------------------------------------------------------------------------------------------ */

static double gate(const hd_linear *p, int64_t batch, int64_t kv, int64_t key, int64_t r) {
  return p->decay.size ? exp(at(&p->decay, batch, kv, key, p->decay.columns == 1 ? 0 : r)) : 1;
}

/* Sᵀ k of a state behind its gate. */
static double predicted(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv, int64_t key, int64_t c) {
  const hd_linear *p = ref->p;
  const double *state = a->states + key * p->features * p->dv;
  double sum = 0;
  for (int64_t r = 0; r < p->features; r++) sum += gate(p, batch, kv, key, r) * state[r * p->dv + c] * a->fk[key * p->features + r];
  return sum;
}

/* What a key writes: v, or β (v − Sᵀ k). */
static double written(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv, int64_t key, int64_t c) {
  const hd_linear *p = ref->p;
  const double v = at(&p->v, batch, kv, key, c);
  return p->beta.size ? at(&p->beta, batch, kv, key, 0) * (v - predicted(ref, a, batch, kv, key, c)) : v;
}

/* States 0 … keys: number t is the one before key t. */
static void find_states(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  const int64_t size = p->features * p->dv;
  find_keys(ref, a, batch, kv);
  for (int64_t i = 0; i < size; i++) a->states[i] = p->before_sums.size ? at(&p->before_sums, batch, kv, i / p->dv, i % p->dv) : 0;
  for (int64_t t = 0; t < p->keys; t++) {
    const double *state = a->states + t * size;
    double *next = a->states + (t + 1) * size;
    memcpy(next, state, (size_t)size * sizeof *next);
    if (!hd_linear_counts(p, batch, t)) continue;
    for (int64_t c = 0; c < p->dv; c++) {
      const double u = written(ref, a, batch, kv, t, c);
      for (int64_t r = 0; r < p->features; r++)
        next[r * p->dv + c] = gate(p, batch, kv, t, r) * state[r * p->dv + c] + a->fk[t * p->features + r] * u;
    }
  }
}

static void forward_rule(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  const int64_t size = p->features * p->dv;
  find_states(ref, a, batch, kv);
  for (int64_t head = kv * p->group; head < (kv + 1) * p->group; head++)
    for (int64_t i = 0; i < p->queries; i++) {
      features(p, &p->q, batch, head, i, a->fq);
      for (int64_t c = 0; c < p->dv; c++) {
        double sum = 0;
        for (int64_t r = 0; r < p->features; r++) sum += a->fq[r] * a->states[(i + 1) * size + r * p->dv + c];
        put(&ref->out, batch, head, i, c, p->scale * sum);
      }
      put(&ref->lse, batch, head, i, 0, 0);
    }
  for (int64_t i = 0; i < size; i++) put(&ref->after.sums, batch, kv, i / p->dv, i % p->dv, a->states[p->keys * size + i]);
}

/* What a query says of the state behind its key. */
static void backward_query(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t head, int64_t i) {
  const hd_linear *p = ref->p;
  const double *state = a->states + (i + 1) * p->features * p->dv;
  features(p, &p->q, batch, head, i, a->fq);
  memset(a->dx, 0, (size_t)p->d * sizeof *a->dx);
  for (int64_t r = 0; r < p->features; r++) {
    a->dfq[r] = 0;
    for (int64_t c = 0; c < p->dv; c++) {
      const double g = p->scale * at(&ref->dout, batch, head, i, c);
      a->dfq[r] += g * state[r * p->dv + c];
      a->ds[r * p->dv + c] += g * a->fq[r];
    }
  }
  features_backward(p, &p->q, batch, head, i, a->fq, a->dfq, a->dx);
  for (int64_t c = 0; c < p->d; c++) put(&ref->dq, batch, head, i, c, a->dx[c]);
}

/* What the state behind key t says of the key, its value and gates, and of the state before it. */
static void backward_key(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv, int64_t t) {
  const hd_linear *p = ref->p;
  const int64_t f = p->features;
  const double *state = a->states + t * f * p->dv, *k = a->fk + t * f;
  const double beta = p->beta.size ? at(&p->beta, batch, kv, t, 0) : 1;
  double dbeta = 0, whole = 0;
  for (int64_t c = 0; c < p->dv; c++) {
    const double u = written(ref, a, batch, kv, t, c);
    double du = 0;
    for (int64_t r = 0; r < f; r++) du += a->ds[r * p->dv + c] * k[r];
    const double back = p->beta.size ? -beta * du : 0; // of the prediction
    a->dv[t * p->dv + c] += beta * du;
    if (p->beta.size) dbeta += du * (at(&p->v, batch, kv, t, c) - predicted(ref, a, batch, kv, t, c));
    for (int64_t r = 0; r < f; r++) {
      const double gated = gate(p, batch, kv, t, r) * state[r * p->dv + c];
      a->dfk[t * f + r] += a->ds[r * p->dv + c] * u + gated * back;
      a->ds[r * p->dv + c] += k[r] * back;
    }
  }
  for (int64_t r = 0; r < f; r++) {
    double sum = 0;
    for (int64_t c = 0; c < p->dv; c++) {
      sum += a->ds[r * p->dv + c] * gate(p, batch, kv, t, r) * state[r * p->dv + c];
      a->ds[r * p->dv + c] *= gate(p, batch, kv, t, r);
    }
    if (p->decay.size && p->decay.columns > 1) put(&ref->ddecay, batch, kv, t, r, sum);
    whole += sum;
  }
  if (p->decay.size && p->decay.columns == 1) put(&ref->ddecay, batch, kv, t, 0, whole);
  // One β for all heads: each adds its own.
  if (p->beta.size && ref->dbeta.size)
    put(&ref->dbeta, batch, kv, t, 0, dbeta + (p->beta.head_stride || p->kv_heads == 1 ? 0 : at(&ref->dbeta, batch, kv, t, 0)));
}

static void backward_rule(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  find_states(ref, a, batch, kv);
  for (int64_t t = p->keys - 1; t >= 0; t--) {
    for (int64_t head = kv * p->group; head < (kv + 1) * p->group; head++) backward_query(ref, a, batch, head, t);
    if (hd_linear_counts(p, batch, t)) backward_key(ref, a, batch, kv, t);
  }
}

static void put_keys(const struct reference *ref, const struct arrays *a, int64_t batch, int64_t kv) {
  const hd_linear *p = ref->p;
  for (int64_t j = 0; j < p->keys; j++) {
    memset(a->dx, 0, (size_t)p->d * sizeof *a->dx);
    if (hd_linear_counts(p, batch, j)) features_backward(p, &p->k, batch, kv, j, a->fk + j * p->features, a->dfk + j * p->features, a->dx);
    for (int64_t c = 0; c < p->d; c++) put(&ref->dk, batch, kv, j, c, a->dx[c]);
    for (int64_t c = 0; c < p->dv; c++) put(&ref->dv, batch, kv, j, c, a->dv[j * p->dv + c]);
  }
}

/* All heads of a batch entry, since one β may serve them all. */
static void run_entry(void *argument, int64_t batch, int worker) {
  const struct reference *ref = argument;
  const hd_linear *p = ref->p;
  struct arrays a;
  for (int64_t kv = 0; kv < p->kv_heads; kv++) {
    memset(ref->memory + worker * ref->room, 0, (size_t)ref->room * sizeof(double));
    lay_out(p, ref->memory + worker * ref->room, &a);
    if (!ref->dout.size) {
      if (p->a.rule == HEED_RULE_ADD) forward_add(ref, &a, batch, kv);
      else forward_rule(ref, &a, batch, kv);
      continue;
    }
    if (p->a.rule == HEED_RULE_ADD) backward_add(ref, &a, batch, kv);
    else backward_rule(ref, &a, batch, kv);
    put_keys(ref, &a, batch, kv);
  }
}

static heed_status run(struct reference *ref) {
  heed_context *context = ref->p->context;
  struct arrays sizes;
  int64_t workers = hd_workers(context, ref->p->batch), room;
  ref->room = lay_out(ref->p, NULL, &sizes);
  HD_REQUIRE(hd_mul(workers, ref->room, &room), context, HEED_E_OVERFLOW, "too many keys");
  HD_TRY(hd_allocate(context, "the reference of linear attention", room, sizeof *ref->memory, &ref->memory));
  hd_parallel(context, ref->p->batch, run_entry, ref);
  hd_release(context, ref->memory, room, sizeof *ref->memory);
  return HEED_OK;
}

heed_status heed_linear_reference(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                  const heed_view *v, const heed_view *out, const heed_linear_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  hd_linear p;
  struct reference ref = {.p = &p};
  HD_TRY(hd_linear_make(context, a, q, k, v, &p));
  HD_TRY(hd_linear_outputs(&p, q, k, v, out, extras, &ref.out, &ref.lse, &ref.after));
  return run(&ref);
}

heed_status heed_linear_backward_reference(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                                           const heed_view *v, const heed_view *dout, const heed_linear_gradients *gradients) {
  if (!context) return HEED_E_ARGUMENT;
  hd_linear p;
  hd_linear_gradient_grids to;
  struct reference ref = {.p = &p};
  HD_TRY(hd_linear_make(context, a, q, k, v, &p));
  const hd_linear_given given = {.q = q, .k = k, .v = v, .dout = dout};
  HD_TRY(hd_linear_gradients_read(&p, &given, gradients, &ref.dout, &to));
  ref.dq = to.dq, ref.dk = to.dk, ref.dv = to.dv, ref.ddecay = to.ddecay, ref.dbeta = to.dbeta;
  hd_fill_zero(&ref.ddecay); // masked keys
  hd_fill_zero(&ref.dbeta);
  return run(&ref);
}
