/* score.c: reading a score and what additive and bilinear scores share: projections, and gradients of weights. */
#include "score.h"

#define ENTRY(name) &hd_score_##name,
static const hd_score_kind *const kinds[] = {HD_SCORE_LIST(ENTRY)};

/* u and v [heads,d] and r [heads,P,d] of XL. */
static heed_status check_xl(heed_context *context, const heed_score *score, const heed_view *q, int64_t d_k) {
  const int64_t heads = q->ndim > 2 ? q->dim[q->ndim - 3] : 1, d = q->dim[q->ndim - 1], most = (int64_t)1 << 60;
  const struct {
    const heed_view *view;
    const char *name;
  } sides[] = {{score->content, "content"}, {score->position, "position"}, {score->distances, "distances"}};
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(d_k == d, context, HEED_E_SHAPE, "k has width %lld, q has %lld", (long long)d_k, (long long)d);
  for (int i = 0; i < HD_COUNT(sides); i++) {
    const heed_view *view = sides[i].view;
    HD_TRY(hd_view_check(context, view, sides[i].name));
    HD_TRY(hd_number(context, view->type, sides[i].name));
    HD_REQUIRE(view->ndim == (i < 2 ? 2 : 3) && view->dim[0] == heads && view->dim[view->ndim - 1] == d && (i < 2 || view->dim[1] > 0),
               context, HEED_E_SHAPE, "%s: %s, expected [%lld,%s%lld]", sides[i].name, hd_shape_text(view, shape), (long long)heads,
               i < 2 ? "" : "distances,", (long long)d);
  }
  HD_REQUIRE(score->first_distance > -most && score->first_distance < most, context, HEED_E_ARGUMENT, "first_distance %lld is out of range",
             (long long)score->first_distance);
  return HEED_OK;
}

/* A weight [rows,columns], or [rows] where columns is −1; −1 rows: any number. */
static heed_status check_weight(heed_context *context, const heed_view *view, const char *name, int64_t rows, int64_t columns) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_TRY(hd_number(context, view->type, name));
  HD_REQUIRE(view->ndim == (columns < 0 ? 1 : 2) && (rows < 0 || view->dim[0] == rows) && (columns < 0 || view->dim[1] == columns), context,
             HEED_E_SHAPE, "%s: %s does not fit: widths of q and k, and h, are %lld and %lld here", name, hd_shape_text(view, shape),
             (long long)rows, (long long)columns);
  return HEED_OK;
}

heed_status hd_score_read(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k, heed_score *out) {
  *out = (heed_score){.size = sizeof *out};
  if (a->score) HD_TRY(hd_options_read(context, "heed_score", a->score, out, sizeof *out));
  HD_REQUIRE(out->kind >= HEED_SCORE_DOT && out->kind <= HEED_SCORE_XL, context, HEED_E_ARGUMENT, "score: unknown kind %d", (int)out->kind);
  HD_TRY(hd_view_check(context, q, "q"));
  HD_TRY(hd_view_check(context, k, "k"));
  const int64_t d_q = q->dim[q->ndim - 1], d_k = k->dim[k->ndim - 1];
  if (out->kind == HEED_SCORE_ADDITIVE) {
    HD_TRY(check_weight(context, out->wv, "wv", -1, -1));
    HD_TRY(check_weight(context, out->wq, "wq", out->wv->dim[0], d_q));
    HD_TRY(check_weight(context, out->wk, "wk", out->wv->dim[0], d_k));
  } else if (out->kind == HEED_SCORE_BILINEAR) {
    HD_TRY(check_weight(context, out->wq, "wq", d_q, d_k));
  } else if (out->kind == HEED_SCORE_CALLBACK) {
    HD_REQUIRE(out->scores, context, HEED_E_ARGUMENT, "score: a callback is asked for, but scores is null");
  } else if (out->kind == HEED_SCORE_XL) {
    HD_TRY(check_xl(context, out, q, d_k));
  }
  return HEED_OK;
}

heed_status hd_score_storable(heed_context *context, const heed_score *score) {
  const bool additive = score->kind == HEED_SCORE_ADDITIVE, bilinear = score->kind == HEED_SCORE_BILINEAR,
             xl = score->kind == HEED_SCORE_XL;
  const struct {
    const heed_view *view;
    const char *name;
  } weights[] = {{additive || bilinear ? score->wq : NULL, "wq"},
                 {additive ? score->wk : NULL, "wk"},
                 {additive ? score->wv : NULL, "wv"},
                 {xl ? score->content : NULL, "content"},
                 {xl ? score->position : NULL, "position"},
                 {xl ? score->distances : NULL, "distances"}};
  for (int i = 0; i < HD_COUNT(weights); i++)
    HD_REQUIRE(!weights[i].view || weights[i].view->type != HEED_F64, context, HEED_E_TYPE, "%s is f64, allowed f32, f16 and bf16",
               weights[i].name);
  return HEED_OK;
}

static heed_status check_gradients(heed_context *context, const hd_scoring *s) {
  const heed_attention_gradients *asked = s->asked;
  const bool additive = s->score.kind == HEED_SCORE_ADDITIVE, bilinear = s->score.kind == HEED_SCORE_BILINEAR,
             xl = s->score.kind == HEED_SCORE_XL;
  const struct {
    const heed_view *view, *like;
    const char *name;
  } weights[] = {{asked->dwq, additive || bilinear ? s->score.wq : NULL, "dwq"},
                 {asked->dwk, additive ? s->score.wk : NULL, "dwk"},
                 {asked->dwv, additive ? s->score.wv : NULL, "dwv"},
                 {asked->dcontent, xl ? s->score.content : NULL, "dcontent"},
                 {asked->dposition, xl ? s->score.position : NULL, "dposition"},
                 {asked->ddistances, xl ? s->score.distances : NULL, "ddistances"}};
  HD_REQUIRE(s->score.kind != HEED_SCORE_CALLBACK || s->score.gradients, context, HEED_E_UNSUPPORTED,
             "the score is a callback without gradients");
  HD_TRY(hd_gradient_check(context, asked->dq, "dq", s->given_q));
  HD_TRY(hd_gradient_check(context, asked->dk, "dk", s->given_k));
  for (int i = 0; i < HD_COUNT(weights); i++) {
    HD_TRY(hd_gradient_check(context, weights[i].view, weights[i].name, weights[i].like));
    HD_REQUIRE(!weights[i].view || weights[i].view->type == HEED_F32, context, HEED_E_TYPE, "%s is %s, allowed f32", weights[i].name,
               heed_type_name(weights[i].view->type));
  }
  return HEED_OK;
}

heed_status hd_scoring_begin(heed_context *context, const heed_attention *a, const heed_view *q, const heed_view *k,
                             const heed_attention_gradients *asked, hd_scoring *s) {
  *s = (hd_scoring){.given_q = q, .given_k = k, .asked = asked, .scale = a->has_scale ? a->scale : 1};
  HD_TRY(hd_score_read(context, a, q, k, &s->score));
  HD_TRY(hd_score_storable(context, &s->score));
  s->kind = kinds[s->score.kind];
  s->q = *q;
  s->k = *k;
  if (asked) HD_TRY(check_gradients(context, s));
  if (asked && asked->dq) s->dq = *asked->dq;
  if (asked && asked->dk) s->dk = *asked->dk;
  return s->kind->begin ? s->kind->begin(context, s) : HEED_OK;
}

heed_status hd_scoring_end(heed_context *context, const hd_scoring *s) { return s->kind->end ? s->kind->end(context, s) : HEED_OK; }

void hd_scoring_free(heed_context *context, hd_scoring *s) {
  hd_release(context, s->memory, s->floats, sizeof *s->memory);
  s->memory = NULL;
}

bool hd_projection_size(const heed_view *like, int64_t columns, int64_t *floats) {
  *floats = columns;
  for (int i = 0; i < like->ndim - 1; i++)
    if (!hd_mul(*floats, like->dim[i], floats)) return false;
  return true;
}

heed_view hd_projection(const heed_view *like, int64_t h, int64_t columns, float *memory, int64_t *used) {
  const int last = like->ndim - 1;
  heed_view view = {.data = memory + *used, .type = HEED_F32, .ndim = like->ndim};
  int64_t stride = columns;
  view.dim[last] = h;
  view.stride[last] = 1;
  for (int i = last - 1; i >= 0; i--) {
    view.dim[i] = like->dim[i];
    view.stride[i] = stride;
    stride *= like->dim[i];
  }
  *used += stride;
  return view;
}

/* Matrix number i of a view of rank 2 or more, counted over its leading dimensions. */
static heed_view matrix_at(const heed_view *view, int64_t i) {
  const int last = view->ndim - 1;
  heed_view leading = *view, out = {.data = view->data, .type = view->type, .ndim = 2};
  leading.ndim = last - 1;
  if (last > 1) out.data = hd_view_at(&leading, i);
  for (int axis = 0; axis < 2; axis++) {
    out.dim[axis] = view->dim[last - 1 + axis];
    out.stride[axis] = view->stride[last - 1 + axis];
  }
  return out;
}

heed_status hd_weight_gradient(heed_context *context, const heed_view *a, const heed_view *b, const heed_view *dw) {
  heed_gemm_form form = {.size = sizeof form, .transpose_a = true};
  heed_view left, right;
  int64_t count = 1;
  if (!dw) return HEED_OK;
  // Either way each element is one chain over all rows, so the bits are the same; one product shares its packing.
  if (hd_view_fold(a, &left) && hd_view_fold(b, &right)) return heed_gemm(context, &form, &left, &right, dw);
  for (int i = 0; i < a->ndim - 2; i++) count *= a->dim[i];
  for (int64_t i = 0; i < count; i++, form.accumulate = true) {
    left = matrix_at(a, i);
    right = matrix_at(b, i);
    HD_TRY(heed_gemm(context, &form, &left, &right, dw));
  }
  return HEED_OK;
}
