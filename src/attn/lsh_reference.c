/* lsh_reference.c: LSH attention and its gradients in double precision, pair by pair: what everything else is held to. It shares the reading of the call and the random numbers with the kernels and
 * nothing else: a row's bucket is found for itself, its place by counting who comes before it, and a pair is seen where some round says so. */
#include "lsh.h"

#include <math.h>

struct reference {
  const hd_lsh *p;
  hd_grid out, lse, dout, dqk, dv; /* those without a size are absent */
  bool backward;
  int64_t batch, head, length;          /* of the head at hand */
  double *q, *k, *dq, *dk, *values, *w; /* [n][d] four times, [n][dv], [n] */
  int64_t *place, *bucket;              /* [rounds][n], [n] */
};

static double at(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column) {
  return hd_element(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type);
}

static void put(const hd_grid *grid, int64_t batch, int64_t head, int64_t row, int64_t column, double value) {
  if (grid->size) hd_element_store(hd_grid_row(grid, batch, head, row) + column * grid->column_stride * grid->size, grid->type, value);
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* ---- who sees whom ------------------------------------------------------------------------------------------------------------------ */

static int64_t bucket_of(const struct reference *ref, int64_t round, int64_t row) {
  const hd_lsh *p = ref->p;
  if (p->hashes.size) return (int64_t)at(&p->hashes, ref->batch, ref->head, round, row);
  int64_t bucket = 0;
  for (int which = 0; which < 2; which++) {
    const int64_t half = p->buckets[which] / 2;
    double best = -INFINITY;
    int64_t found = 0;
    for (int64_t b = 0; b < 2 * half; b++) {
      double y = 0;
      for (int64_t c = 0; c < p->d; c++) y += ref->q[row * p->d + c] * (float)hd_lsh_rotation(p, round, which, c, b % half);
      if (b >= half) y = -y;
      if (y > best) best = y, found = b;
    }
    bucket += which ? p->buckets[0] * found : found;
  }
  return bucket;
}

static void find_places(const struct reference *ref) {
  const hd_lsh *p = ref->p;
  for (int64_t round = 0; round < p->rounds; round++) {
    for (int64_t i = 0; i < ref->length; i++) ref->bucket[i] = bucket_of(ref, round, i);
    for (int64_t i = 0; i < ref->length; i++) {
      int64_t before = 0;
      for (int64_t j = 0; j < ref->length; j++) before += ref->bucket[j] < ref->bucket[i] || (ref->bucket[j] == ref->bucket[i] && j < i);
      ref->place[round * p->rows + i] = before;
    }
  }
}

static bool sees(const struct reference *ref, int64_t i, int64_t j) {
  const hd_lsh *p = ref->p;
  if (i == j || (p->a.causal && j > i)) return false;
  for (int64_t round = 0; round < p->rounds; round++) {
    const int64_t own = ref->place[round * p->rows + i] / 64, other = ref->place[round * p->rows + j] / 64;
    if (other == own || other == own - 1) return true;
  }
  return false;
}

/* ---- one head ------------------------------------------------------------------------------------------------------------------------ */

static double inverse_of(const struct reference *ref, int64_t i) {
  const double *q = ref->q + i * ref->p->d;
  return 1 / sqrt(dot(q, q, ref->p->d) + hd_lsh_epsilon(ref->p));
}

/* The weights of a row; returns their lse. */
static double find_weights(const struct reference *ref, int64_t i) {
  const hd_lsh *p = ref->p;
  double top = -INFINITY, sum = 0;
  bool any = false;
  for (int64_t j = 0; j < ref->length; j++) any |= sees(ref, i, j);
  for (int64_t j = 0; j < ref->length; j++) {
    const bool seen = any ? sees(ref, i, j) : i == j;
    ref->w[j] = seen ? p->scale * dot(ref->q + i * p->d, ref->k + j * p->d, p->d) : -INFINITY;
    top = fmax(top, ref->w[j]);
  }
  for (int64_t j = 0; j < ref->length; j++) sum += ref->w[j] = exp(ref->w[j] - top);
  for (int64_t j = 0; j < ref->length; j++) ref->w[j] /= sum;
  return top + log(sum);
}

static void forward_row(const struct reference *ref, int64_t i) {
  const hd_lsh *p = ref->p;
  put(&ref->lse, ref->batch, ref->head, i, 0, find_weights(ref, i));
  for (int64_t c = 0; c < p->dv; c++) {
    double sum = 0;
    for (int64_t j = 0; j < ref->length; j++)
      if (ref->w[j] != 0) sum += ref->w[j] * at(&p->v, ref->batch, ref->head, j, c);
    put(&ref->out, ref->batch, ref->head, i, c, sum);
  }
}

/* dv_j += w_j dout, and with g_j = dout · v_j: ds_j = w_j (g_j − Σ w g). */
static void backward_row(const struct reference *ref, int64_t i) {
  const hd_lsh *p = ref->p;
  double mean = 0;
  find_weights(ref, i);
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < ref->length; j++) {
      if (ref->w[j] == 0) continue;
      double g = 0;
      for (int64_t c = 0; c < p->dv; c++) {
        const double dout = at(&ref->dout, ref->batch, ref->head, i, c);
        g += dout * at(&p->v, ref->batch, ref->head, j, c);
        if (pass) ref->values[j * p->dv + c] += ref->w[j] * dout;
      }
      if (!pass) mean += ref->w[j] * g;
      const double ds = p->scale * ref->w[j] * (g - mean);
      for (int64_t c = 0; c < p->d && pass; c++) {
        ref->dq[i * p->d + c] += ds * ref->k[j * p->d + c];
        ref->dk[j * p->d + c] += ds * ref->q[i * p->d + c];
      }
    }
}

/* A key is q r with r = (|q|² + ε)^(−1/2), so that dq = r (dk − r² q (q · dk)). */
static void write_gradients(const struct reference *ref) {
  const hd_lsh *p = ref->p;
  for (int64_t i = 0; i < p->rows; i++) {
    const double *q = ref->q + i * p->d, *dk = ref->dk + i * p->d, r = i < ref->length ? inverse_of(ref, i) : 0, along = dot(q, dk, p->d);
    for (int64_t c = 0; c < p->d; c++)
      put(&ref->dqk, ref->batch, ref->head, i, c, ref->dq[i * p->d + c] + r * (dk[c] - r * r * q[c] * along));
    for (int64_t c = 0; c < p->dv; c++) put(&ref->dv, ref->batch, ref->head, i, c, ref->values[i * p->dv + c]);
  }
}

static void run_head(struct reference *ref, int64_t head) {
  const hd_lsh *p = ref->p;
  ref->batch = head / p->heads, ref->head = head % p->heads;
  ref->length = hd_lsh_length(p, ref->batch);
  for (int64_t i = 0; i < p->rows; i++) {
    double *q = ref->q + i * p->d;
    for (int64_t c = 0; c < p->d; c++)
      q[c] = i < ref->length ? at(&p->qk, ref->batch, ref->head, i, c) : 0, ref->dq[i * p->d + c] = ref->dk[i * p->d + c] = 0;
    for (int64_t c = 0; c < p->d; c++) ref->k[i * p->d + c] = q[c] * inverse_of(ref, i);
    for (int64_t c = 0; c < p->dv; c++) ref->values[i * p->dv + c] = 0;
  }
  find_places(ref);
  for (int64_t i = 0; i < p->rows; i++) {
    if (i < ref->length) {
      if (ref->backward) backward_row(ref, i);
      else forward_row(ref, i);
      continue;
    }
    put(&ref->lse, ref->batch, ref->head, i, 0, -INFINITY);
    for (int64_t c = 0; c < p->dv; c++) put(&ref->out, ref->batch, ref->head, i, c, 0);
  }
  if (ref->backward) write_gradients(ref);
}

static heed_status run(struct reference *ref) {
  const hd_lsh *p = ref->p;
  heed_context *context = p->context;
  int64_t doubles, places;
  double *memory = NULL;
  heed_status status = HEED_OK;
  HD_REQUIRE(hd_mul(p->rows, 4 * p->d + p->dv + 1, &doubles) && hd_mul(p->rows, p->rounds + 1, &places), context, HEED_E_OVERFLOW,
             "%lld rows are too many", (long long)p->rows);
  HD_TRY_DONE(hd_allocate(context, "reference", doubles, sizeof *memory, &memory));
  HD_TRY_DONE(hd_allocate(context, "reference", places, sizeof *ref->place, &ref->place));
  const int64_t block = p->rows * p->d;
  ref->q = memory, ref->k = memory + block, ref->dq = memory + 2 * block, ref->dk = memory + 3 * block;
  ref->values = memory + 4 * block, ref->w = ref->values + p->rows * p->dv;
  ref->bucket = ref->place + p->rows * p->rounds;
  for (int64_t head = 0; head < p->batch * p->heads; head++) run_head(ref, head);
done:
  hd_release(context, memory, memory ? doubles : 0, sizeof *memory);
  hd_release(context, ref->place, ref->place ? places : 0, sizeof *ref->place);
  return status;
}

heed_status heed_lsh_reference(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                               const heed_view *out, const heed_view *lse) {
  if (!context) return HEED_E_ARGUMENT;
  hd_lsh p;
  struct reference ref = {.p = &p};
  HD_REQUIRE(v, context, HEED_E_ARGUMENT, "v: the view is null");
  HD_TRY(hd_lsh_make(context, a, qk, v, &p));
  HD_TRY(hd_lsh_outputs(&p, qk, v, out, lse, &ref.out, &ref.lse));
  return run(&ref);
}

heed_status heed_lsh_backward_reference(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v,
                                        const heed_view *dout, const heed_view *dqk, const heed_view *dv) {
  if (!context) return HEED_E_ARGUMENT;
  hd_lsh p;
  struct reference ref = {.p = &p, .backward = true};
  HD_REQUIRE(v, context, HEED_E_ARGUMENT, "v: the view is null");
  HD_TRY(hd_lsh_make(context, a, qk, v, &p));
  const hd_lsh_given given = {.qk = qk, .v = v, .dout = dout};
  HD_TRY(hd_lsh_gradients(&p, &given, dqk, dv, &ref.dout, &ref.dqk, &ref.dv));
  return run(&ref);
}
