/* matmul.c: heed_matmul: checks the views and hands rows to the product. */
#include "matrix.h"

static heed_status check(heed_context *context, const heed_view *view, const char *name) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->type == HEED_F32, context, HEED_E_TYPE, "%s: type %s, allowed f32", name, heed_type_name(view->type));
  HD_REQUIRE(view->ndim == 2, context, HEED_E_SHAPE, "%s: %s, allowed rank 2", name, hd_shape_text(view, shape));
  HD_REQUIRE(view->dim[1] <= 1 || view->stride[1] == 1, context, HEED_E_LAYOUT, "%s: the last dimension of %s has stride %lld, allowed 1",
             name, hd_shape_text(view, shape), (long long)view->stride[1]);
  return HEED_OK;
}

heed_status heed_matmul(heed_context *context, const heed_view *a, const heed_view *b, const heed_view *c) {
  char shape[3][HD_SHAPE_LENGTH];
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(check(context, a, "a"));
  HD_TRY(check(context, b, "b"));
  HD_TRY(check(context, c, "c"));
  HD_REQUIRE(a->dim[1] == b->dim[1] && c->dim[0] == a->dim[0] && c->dim[1] == b->dim[0], context, HEED_E_SHAPE,
             "a %s, b %s, c %s: allowed [n,k], [m,k], [n,m]", hd_shape_text(a, shape[0]), hd_shape_text(b, shape[1]),
             hd_shape_text(c, shape[2]));
  HD_REQUIRE(!hd_views_overlap(a, c) && !hd_views_overlap(b, c), context, HEED_E_OVERLAP, "c overlaps a or b");
  HD_REQUIRE(!hd_view_overlaps_itself(c), context, HEED_E_LAYOUT, "c: rows of %s are %lld elements apart and overlap",
             hd_shape_text(c, shape[0]), (long long)c->stride[0]);
  hd_rows_product(context, a->data, a->dim[0], a->stride[0], b->data, b->dim[0], b->dim[1], b->stride[0], c->data, c->stride[0]);
  return HEED_OK;
}
