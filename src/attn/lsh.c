/* lsh.c: LSH attention: reading and refusing. Every illegal request ends here, before any output is touched. How rows are hashed and sorted is in lsh_sort.c, what the numbers are in lsh_forward.c,
 * lsh_backward.c and, in double precision, lsh_reference.c. */
#include "lsh.h"

#include <math.h>

/* The smallest power of two from n on. */
static int64_t power_from(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/* 32 rows a bucket, so that a chunk holds about two and the one before it two more. */
void hd_lsh_buckets(int64_t rows, int64_t buckets[2]) {
  const int64_t all = HD_MAX(2, HD_MIN(power_from(hd_ceil_div(rows, HD_LSH_CHUNK / 2)), HD_LSH_MOST_BUCKETS));
  buckets[0] = all, buckets[1] = 1;
  if (all <= 64) return;
  for (; buckets[0] > buckets[1]; buckets[0] /= 2) buckets[1] *= 2;
  // Both are even now, since there are at least 128.
  buckets[0] = all / buckets[1];
}

static heed_status read_numbers(hd_lsh *p) {
  const heed_lsh_attention *a = &p->a;
  heed_context *context = p->context;
  p->rounds = a->rounds;
  HD_REQUIRE(a->rounds >= 1 && a->rounds <= HD_LSH_MOST_ROUNDS, context, HEED_E_ARGUMENT, "%lld rounds, allowed 1 to %d",
             (long long)a->rounds, HD_LSH_MOST_ROUNDS);
  p->scale = a->has_scale ? a->scale : 1;
  HD_REQUIRE(isfinite(p->scale), context, HEED_E_ARGUMENT, "scale %g, allowed any finite number", p->scale);
  const int64_t *given = a->buckets;
  if (!given[0] && !given[1]) {
    hd_lsh_buckets(p->rows, p->buckets);
    return HEED_OK;
  }
  p->buckets[0] = given[0], p->buckets[1] = given[1] ? given[1] : 1;
  HD_REQUIRE(given[0] >= 2 && given[0] % 2 == 0 && given[1] >= 0 && given[1] % 2 == 0, context, HEED_E_ARGUMENT,
             "%lld buckets in the first rotation and %lld in the second, allowed even numbers from 2 on, and 0 in the second",
             (long long)given[0], (long long)given[1]);
  HD_REQUIRE(p->buckets[0] <= HD_LSH_MOST_BUCKETS / p->buckets[1], context, HEED_E_ARGUMENT, "%lld times %lld buckets, allowed up to %d",
             (long long)p->buckets[0], (long long)p->buckets[1], HD_LSH_MOST_BUCKETS);
  return HEED_OK;
}

static heed_status read_hashes(hd_lsh *p) {
  const heed_view *view = p->a.hashes;
  heed_context *context = p->context;
  if (!view) return HEED_OK;
  HD_TRY(hd_grid_make(context, view, "hashes", &p->hashes));
  HD_REQUIRE(view->type == HEED_I32, context, HEED_E_TYPE, "hashes is %s, allowed i32", heed_type_name(view->type));
  HD_TRY(hd_grid_input(context, &p->hashes, view, "hashes", &p->qk, p->heads, p->rounds, p->rows));
  const int64_t all = p->buckets[0] * p->buckets[1];
  for (int64_t i = 0; i < hd_view_count(view); i++) {
    const int32_t bucket = *(const int32_t *)hd_view_at(view, i);
    HD_REQUIRE(bucket >= 0 && bucket < all, context, HEED_E_ARGUMENT, "hashes: bucket %d, allowed 0 to %lld", (int)bucket,
               (long long)all - 1);
  }
  return HEED_OK;
}

heed_status hd_lsh_make(heed_context *context, const heed_lsh_attention *a, const heed_view *qk, const heed_view *v, hd_lsh *out) {
  *out = (hd_lsh){.context = context, .kernels = hd_kernels_of(context), .a = {.size = sizeof out->a}};
  HD_TRY(hd_options_read(context, "heed_lsh_attention", a, &out->a, sizeof out->a));
  HD_TRY(hd_grid_make(context, qk, "qk", &out->qk));
  HD_TRY(hd_number(context, qk->type, "qk"));
  out->batch = out->qk.batch, out->heads = out->qk.heads, out->rows = out->qk.rows, out->d = out->qk.columns;
  HD_REQUIRE(out->d > 0 && out->rows <= INT32_MAX / 2, context, HEED_E_SHAPE,
             "qk: %lld rows of width %lld, allowed up to %d, at least 1 wide", (long long)out->rows, (long long)out->d, INT32_MAX / 2);
  HD_TRY(read_numbers(out));
  if (v) {
    HD_TRY(hd_grid_make(context, v, "v", &out->v));
    HD_TRY(hd_number(context, v->type, "v"));
    HD_TRY(hd_grid_input(context, &out->v, v, "v", &out->qk, out->heads, out->rows, out->v.columns));
    out->dv = out->v.columns;
    HD_REQUIRE(out->dv > 0, context, HEED_E_SHAPE, "v: rows of width 0");
  }
  for (int64_t b = 0; out->a.key_lengths && b < out->batch; b++)
    HD_REQUIRE(out->a.key_lengths[b] >= 0 && out->a.key_lengths[b] <= out->rows, context, HEED_E_ARGUMENT,
               "key length %lld of batch entry %lld, allowed 0 to %lld", (long long)out->a.key_lengths[b], (long long)b,
               (long long)out->rows);
  return read_hashes(out);
}

heed_status hd_lsh_storable(const hd_lsh *p) {
  HD_TRY(hd_storable(p->context, &p->qk, "qk"));
  return p->v.size ? hd_storable(p->context, &p->v, "v") : HEED_OK;
}

heed_status hd_lsh_outputs(const hd_lsh *p, const heed_view *qk, const heed_view *v, const heed_view *out, const heed_view *lse,
                           hd_grid *out_grid, hd_grid *lse_grid) {
  heed_context *context = p->context;
  const hd_named_view inputs[] = {{qk, "qk"}, {v, "v"}, {p->a.hashes, "hashes"}, {out, "out"}};
  HD_TRY(hd_grid_make(context, out, "out", out_grid));
  HD_TRY(hd_number(context, out->type, "out"));
  HD_TRY(hd_grid_expect(context, out_grid, out, "out", &p->qk, p->heads, p->rows, p->dv));
  HD_TRY(hd_outputs_apart(context, &inputs[3], inputs, 3));
  *lse_grid = (hd_grid){0};
  if (!lse) return HEED_OK;
  HD_TRY(hd_view_check(context, lse, "lse"));
  HD_TRY(hd_row_grid(context, lse, "lse", &p->qk, lse_grid));
  HD_TRY(hd_number(context, lse->type, "lse"));
  return hd_outputs_apart(context, &(hd_named_view){lse, "lse"}, inputs, HD_COUNT(inputs));
}

static heed_status read_gradient(const hd_lsh *p, const heed_view *view, const char *name, int64_t columns, const hd_named_view *inputs,
                                 int count, hd_grid *out) {
  *out = (hd_grid){0};
  if (!view) return HEED_OK;
  HD_TRY(hd_grid_make(p->context, view, name, out));
  HD_TRY(hd_number(p->context, view->type, name));
  HD_TRY(hd_grid_expect(p->context, out, view, name, &p->qk, p->heads, p->rows, columns));
  return hd_outputs_apart(p->context, &(hd_named_view){view, name}, inputs, count);
}

heed_status hd_lsh_gradients(const hd_lsh *p, const hd_lsh_given *given, const heed_view *dqk, const heed_view *dv, hd_grid *dout,
                             hd_grid *dqk_grid, hd_grid *dv_grid) {
  heed_context *context = p->context;
  HD_TRY(hd_grid_make(context, given->dout, "dout", dout));
  HD_TRY(hd_number(context, given->dout->type, "dout"));
  HD_TRY(hd_grid_input(context, dout, given->dout, "dout", &p->qk, p->heads, p->rows, p->dv));
  const hd_named_view inputs[] = {{given->qk, "qk"},     {given->v, "v"}, {p->a.hashes, "hashes"}, {given->out, "out"}, {given->lse, "lse"},
                                  {given->dout, "dout"}, {dqk, "dqk"}};
  HD_TRY(read_gradient(p, dqk, "dqk", p->d, inputs, HD_COUNT(inputs) - 1, dqk_grid));
  return read_gradient(p, dv, "dv", p->dv, inputs, HD_COUNT(inputs), dv_grid);
}
