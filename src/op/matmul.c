/* matmul.c: the matrix product, batched, of either operand as it lies or transposed.
 *
 *   C = A' · B' with A' [n,k] = A or Aᵀ, B' [k,m] = B or Bᵀ
 *   dA' = dC · B'ᵀ      dB' = A'ᵀ · dC, summed over the batch where B is one matrix
 * Nothing is saved. A [...,n,k] or [...,k,n], B [...,k,m] or [...,m,k] with the leading dimensions of A, or a matrix for all; C [...,n,m]. */
#include "elements.h"

#include "../kern/gemm.h"

enum { A, B };

typedef struct form {
  bool transpose_a, transpose_b;
} form;

/* A matrix of the batch as it is multiplied: C [n,m] += A' [n,k] · B' [k,m]. */
typedef struct dimensions {
  int64_t batch, n, k, m;
  bool shared; /* B is one matrix */
} dimensions;

static int64_t rows_of(const heed_tensor *t) { return t->dim[t->ndim - 2]; }

static dimensions dimensions_of(const hd_node *node) {
  const heed_tensor *a = node->in[A], *b = node->in[B];
  const form *f = node->options;
  dimensions d = {.batch = 1, .shared = b->ndim == 2};
  for (int i = 0; i + 2 < a->ndim; i++) d.batch *= a->dim[i];
  d.n = f->transpose_a ? hd_columns(a) : rows_of(a);
  d.k = f->transpose_a ? rows_of(a) : hd_columns(a);
  d.m = f->transpose_b ? rows_of(b) : hd_columns(b);
  return d;
}

static heed_status shape(heed_context *context, hd_node *node) {
  const heed_tensor *a = node->in[A], *b = node->in[B];
  const form *f = node->options;
  char text[2][HD_SHAPE_LENGTH];
  bool fits = a->ndim >= 2 && (b->ndim == 2 || b->ndim == a->ndim);
  for (int i = 0; fits && b->ndim > 2 && i + 2 < a->ndim; i++) fits = a->dim[i] == b->dim[i];
  fits = fits && dimensions_of(node).k == (f->transpose_b ? hd_columns(b) : rows_of(b));
  HD_REQUIRE(fits, context, HEED_E_SHAPE, "matmul: a %s, b %s: allowed [...,%s], and [...,%s] or [%s]", hd_tensor_shape(a, text[0]),
             hd_tensor_shape(b, text[1]), f->transpose_a ? "k,n" : "n,k", f->transpose_b ? "m,k" : "k,m", f->transpose_b ? "m,k" : "k,m");
  const dimensions d = dimensions_of(node);
  hd_shape_like(node, a);
  node->out->dim[a->ndim - 2] = d.n;
  node->out->dim[a->ndim - 1] = d.m;
  return HEED_OK;
}

/* Rows and columns of a stored matrix, changed round where `transposed`. */
static hd_rectangle matrix(const float *data, int64_t stride, bool transposed) {
  return (hd_rectangle){(float *)data, HEED_F32, transposed ? 1 : stride, transposed ? stride : 1};
}

/* c (+)= a · b for every matrix of the batch; strides in elements from one to the next. */
static heed_status multiply(heed_context *context, int64_t rows, int64_t inputs, int64_t outputs, hd_rectangle a, hd_rectangle b,
                            hd_rectangle c, bool accumulate, const int64_t batch[4]) {
  return hd_gemm(context, &(hd_gemm_call){.rows = rows,
                                          .outputs = outputs,
                                          .inputs = inputs,
                                          .a = a,
                                          .b = b,
                                          .c = c,
                                          .accumulate = accumulate,
                                          .batch_rank = 1,
                                          .batch = {batch[0]},
                                          .a_batch = {batch[1]},
                                          .b_batch = {batch[2]},
                                          .c_batch = {batch[3]}});
}

static heed_status forward(heed_context *context, const hd_node *node) {
  const heed_tensor *a = node->in[A], *b = node->in[B];
  const form *f = node->options;
  dimensions d = dimensions_of(node);
  if (d.shared && !f->transpose_a) d.n *= d.batch, d.batch = 1; // the rows of all matrices are the rows of one
  return multiply(context, d.n, d.k, d.m, matrix(hd_value(a), hd_columns(a), f->transpose_a),
                  matrix(hd_value(b), hd_columns(b), f->transpose_b), matrix(hd_value(node->out), d.m, false), false,
                  (int64_t[]){d.batch, d.n * d.k, d.shared ? 0 : d.k * d.m, d.n * d.m});
}

/* Gradients are computed as the operands lie: dA = dC · B'ᵀ, or where A is transposed dA = B' · dCᵀ. */
static heed_status backward_a(heed_context *context, const hd_node *node, dimensions d, float *to, bool add) {
  const form *f = node->options;
  const float *b = hd_value(node->in[B]), *dc = hd_upstream(node);
  const int64_t b_columns = hd_columns(node->in[B]), b_step = d.shared ? 0 : d.k * d.m;
  if (f->transpose_a)
    return multiply(context, d.k, d.m, d.n, matrix(b, b_columns, f->transpose_b), matrix(dc, d.m, true), matrix(to, d.n, false), add,
                    (int64_t[]){d.batch, b_step, d.n * d.m, d.n * d.k});
  if (d.shared) d.n *= d.batch, d.batch = 1;
  return multiply(context, d.n, d.m, d.k, matrix(dc, d.m, false), matrix(b, b_columns, !f->transpose_b), matrix(to, d.k, false), add,
                  (int64_t[]){d.batch, d.n * d.m, b_step, d.n * d.k});
}

/* dB = A'ᵀ · dC, or where B is transposed dB = dCᵀ · A'. */
static heed_status backward_b(heed_context *context, const hd_node *node, dimensions d, float *to, bool add) {
  const form *f = node->options;
  const float *a = hd_value(node->in[A]), *dc = hd_upstream(node);
  const int64_t a_columns = hd_columns(node->in[A]);
  int64_t times = 1;
  if (d.shared && !f->transpose_a) d.n *= d.batch, d.batch = 1;
  if (d.shared) times = d.batch, d.batch = 1; // one after another: each adds to what the others left
  if (!times && !add) memset(to, 0, (size_t)hd_count(node->in[B]) * sizeof *to);
  for (int64_t i = 0; i < times; i++, add = true, a += d.n * d.k, dc += d.n * d.m) {
    if (f->transpose_b)
      HD_TRY(multiply(context, d.m, d.n, d.k, matrix(dc, d.m, true), matrix(a, a_columns, f->transpose_a), matrix(to, d.k, false), add,
                      (int64_t[]){d.batch, d.n * d.m, d.n * d.k, d.k * d.m}));
    else
      HD_TRY(multiply(context, d.k, d.n, d.m, matrix(a, a_columns, !f->transpose_a), matrix(dc, d.m, false), matrix(to, d.m, false), add,
                      (int64_t[]){d.batch, d.n * d.k, d.n * d.m, d.k * d.m}));
  }
  return HEED_OK;
}

static heed_status backward(heed_context *context, const hd_node *node) {
  const dimensions d = dimensions_of(node);
  bool add;
  float *to;
  if ((to = hd_gradient(node, A, &add))) HD_TRY(backward_a(context, node, d, to, add));
  if ((to = hd_gradient(node, B, &add))) HD_TRY(backward_b(context, node, d, to, add));
  return HEED_OK;
}

static void reference(const hd_node *node, const double *const *in, double *out) {
  const dimensions d = dimensions_of(node);
  const form *f = node->options;
  for (int64_t at = 0; at < hd_count(node->out); at++) {
    const int64_t entry = at / (d.n * d.m), r = at / d.m % d.n, o = at % d.m;
    const double *a = in[A] + entry * d.n * d.k, *b = in[B] + (d.shared ? 0 : entry * d.k * d.m);
    out[at] = 0;
    for (int64_t i = 0; i < d.k; i++)
      out[at] += a[f->transpose_a ? i * d.n + r : r * d.k + i] * b[f->transpose_b ? o * d.k + i : i * d.m + o];
  }
}

static void sample(hd_sample *s) {
  const form f = {hd_sample_pick(s, 0, 1), hd_sample_pick(s, 0, 1)};
  const int leading = (int)hd_sample_pick(s, 0, 3), shared = (int)hd_sample_pick(s, 0, 1);
  const int64_t n = hd_sample_pick(s, 1, 20), k = hd_sample_pick(s, 1, 30), m = hd_sample_pick(s, 1, 40);
  hd_sample_input a = {.ndim = leading + 2}, b = {.ndim = shared ? 2 : leading + 2};
  for (int i = 0; i < leading; i++) {
    a.dim[i] = hd_sample_pick(s, 1, 3);
    if (!shared) b.dim[i] = a.dim[i];
  }
  a.dim[a.ndim - 2] = f.transpose_a ? k : n, a.dim[a.ndim - 1] = f.transpose_a ? n : k;
  b.dim[b.ndim - 2] = f.transpose_b ? m : k, b.dim[b.ndim - 1] = f.transpose_b ? k : m;
  s->inputs = 2;
  s->in[A] = a;
  s->in[B] = b;
  memcpy(s->options, &f, sizeof f);
}

HD_OPERATION(matmul, .options = sizeof(form), .output_unread = true);

heed_tensor *heed_tape_matmul(heed_tape *tape, heed_tensor *a, bool transpose_a, heed_tensor *b, bool transpose_b) {
  return hd_tape_apply(tape, &hd_op_matmul, 2, (heed_tensor *[]){a, b}, 2, &(form){transpose_a, transpose_b});
}
