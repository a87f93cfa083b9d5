/* gemm.c: heed_gemm: checks the views, brings transposition and broadcasting into strides, and hands them to hd_gemm. */
#include "gemm.h"
#include "../../include/heed/heed.h"

typedef struct {
  const heed_view *a, *b, *c, *bias;
} operands;

static heed_status check_view(heed_context *context, const heed_view *view, const char *name) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->type == HEED_F32 || view->type == HEED_F16 || view->type == HEED_BF16, context, HEED_E_TYPE,
             "%s: type %s, allowed f32, f16 and bf16", name, heed_type_name(view->type));
  HD_REQUIRE(view->ndim >= 2, context, HEED_E_SHAPE, "%s: rank 1 of %s, allowed 2 to %d", name, hd_shape_text(view, shape), HEED_MAX_DIM);
  return HEED_OK;
}

/* The last two axes as a rectangle. Strides of an axis with less than two elements lead nowhere and nobody has checked them. */
static hd_rectangle rectangle_of(const heed_view *view, bool transpose) {
  int row = view->ndim - (transpose ? 1 : 2), column = view->ndim - (transpose ? 2 : 1);
  return (hd_rectangle){
      .data = view->data,
      .type = view->type,
      .row_stride = view->dim[row] > 1 ? view->stride[row] : 0,
      .column_stride = view->dim[column] > 1 ? view->stride[column] : 1,
  };
}

/* The leading dimensions of a or b against c's, from the right; dimension 1 or none is shared. */
static heed_status read_batch(heed_context *context, const heed_view *view, const heed_view *c, const char *name,
                              int64_t stride[HD_GEMM_BATCH]) {
  char shape[2][HD_SHAPE_LENGTH];
  HD_REQUIRE(view->ndim <= c->ndim, context, HEED_E_SHAPE, "%s: rank of %s is above that of c %s", name, hd_shape_text(view, shape[0]),
             hd_shape_text(c, shape[1]));
  for (int i = 0; i < c->ndim - 2; i++) {
    int from = i - (c->ndim - view->ndim);
    bool shared = from < 0 || view->dim[from] == 1;
    HD_REQUIRE(shared || view->dim[from] == c->dim[i], context, HEED_E_SHAPE, "%s: the batch of %s does not broadcast to that of c %s",
               name, hd_shape_text(view, shape[0]), hd_shape_text(c, shape[1]));
    stride[i] = shared ? 0 : view->stride[from];
  }
  return HEED_OK;
}

static heed_status check_bias(heed_context *context, const operands *o) {
  char shape[2][HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, o->bias, "bias"));
  HD_REQUIRE(o->bias->type == HEED_F32 || o->bias->type == HEED_F16 || o->bias->type == HEED_BF16, context, HEED_E_TYPE,
             "bias: type %s, allowed f32, f16 and bf16", heed_type_name(o->bias->type));
  HD_REQUIRE(o->bias->ndim == 1 && o->bias->dim[0] == o->c->dim[o->c->ndim - 1], context, HEED_E_SHAPE,
             "bias: %s, allowed the columns of c %s", hd_shape_text(o->bias, shape[0]), hd_shape_text(o->c, shape[1]));
  HD_REQUIRE(!hd_views_overlap(o->bias, o->c), context, HEED_E_OVERLAP, "c overlaps bias");
  return HEED_OK;
}

static heed_status read_call(heed_context *context, const heed_gemm_form *form, const operands *o, hd_gemm_call *call) {
  char shape[3][HD_SHAPE_LENGTH];
  HD_TRY(check_view(context, o->a, "a"));
  HD_TRY(check_view(context, o->b, "b"));
  HD_TRY(check_view(context, o->c, "c"));
  const int64_t *a = o->a->dim + o->a->ndim - 2, *b = o->b->dim + o->b->ndim - 2, *c = o->c->dim + o->c->ndim - 2;
  bool ta = form->transpose_a, tb = form->transpose_b;
  HD_REQUIRE(a[!ta] == b[tb] && c[0] == a[ta] && c[1] == b[!tb], context, HEED_E_SHAPE, "a %s, b %s, c %s: allowed [%s], [%s], [n,m]",
             hd_shape_text(o->a, shape[0]), hd_shape_text(o->b, shape[1]), hd_shape_text(o->c, shape[2]), ta ? "k,n" : "n,k",
             tb ? "m,k" : "k,m");
  HD_TRY(read_batch(context, o->a, o->c, "a", call->a_batch));
  HD_TRY(read_batch(context, o->b, o->c, "b", call->b_batch));
  HD_REQUIRE(!hd_views_overlap(o->a, o->c) && !hd_views_overlap(o->b, o->c), context, HEED_E_OVERLAP, "c overlaps a or b");
  HD_REQUIRE(!hd_view_overlaps_itself(o->c), context, HEED_E_LAYOUT, "c: elements of %s share memory", hd_shape_text(o->c, shape[0]));
  call->rows = c[0];
  call->outputs = c[1];
  call->inputs = b[tb];
  call->a = rectangle_of(o->a, ta);
  call->b = rectangle_of(o->b, tb);
  call->c = rectangle_of(o->c, false);
  call->accumulate = form->accumulate;
  call->batch_rank = o->c->ndim - 2;
  for (int i = 0; i < call->batch_rank; i++) {
    call->batch[i] = o->c->dim[i];
    call->c_batch[i] = o->c->stride[i];
  }
  if (!o->bias) return HEED_OK;
  HD_TRY(check_bias(context, o));
  call->bias = (hd_rectangle){o->bias->data, o->bias->type, 0, o->bias->stride[0]};
  return HEED_OK;
}

heed_status heed_gemm(heed_context *context, const heed_gemm_form *form, const heed_view *a, const heed_view *b, const heed_view *c) {
  heed_gemm_form read = {.size = sizeof read};
  hd_gemm_call call = {0};
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_options_read(context, "heed_gemm_form", form, &read, sizeof read));
  HD_TRY(read_call(context, &read, &(operands){a, b, c, read.bias}, &call));
  return hd_gemm(context, &call);
}
