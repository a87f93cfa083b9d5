/* problem.c: reading and refusing. Every illegal request ends here, before any output is touched. */
#include "attention.h"
#include "pattern.h"
#include "term.h"
#include "visible.h"

#include <math.h>

heed_status hd_grid_make(heed_context *context, const heed_view *view, const char *name, hd_grid *out) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->ndim >= 2, context, HEED_E_SHAPE, "%s: rank %d of %s, allowed 2 to %d ([n,d], [H,n,d], [B,H,n,d])", name, view->ndim,
             hd_shape_text(view, shape), HEED_MAX_DIM);
  heed_view steps = *view;
  // Nobody has checked how far the strides of an empty array reach, and they lead to no element: so they lead nowhere.
  for (int i = 0; i < view->ndim; i++)
    if (view->dim[i] == 0) memset(steps.stride, 0, sizeof steps.stride);
  int last = view->ndim - 1;
  *out = (hd_grid){
      .data = view->data,
      .type = view->type,
      .size = (int64_t)heed_type_bytes(view->type),
      .lead = HD_MAX(view->ndim - 3, 0),
      .batch = 1,
      .heads = last >= 2 ? view->dim[last - 2] : 1,
      .rows = view->dim[last - 1],
      .columns = view->dim[last],
      .head_stride = last >= 2 ? steps.stride[last - 2] : 0,
      .row_stride = steps.stride[last - 1],
      .column_stride = steps.stride[last],
  };
  for (int i = 0; i < out->lead; i++) {
    out->lead_dim[i] = view->dim[i];
    out->lead_stride[i] = steps.stride[i];
    HD_REQUIRE(hd_mul(out->batch, view->dim[i], &out->batch), context, HEED_E_OVERFLOW, "%s: the batch of %s overflows", name,
               hd_shape_text(view, shape));
  }
  return HEED_OK;
}

char *hd_grid_row(const hd_grid *grid, int64_t batch, int64_t head, int64_t row) {
  int64_t offset = head * grid->head_stride + row * grid->row_stride;
  for (int i = grid->lead - 1; i >= 0; i--) {
    offset += batch % grid->lead_dim[i] * grid->lead_stride[i];
    batch /= grid->lead_dim[i];
  }
  return grid->data + offset * grid->size;
}

/* The document that a query belongs to: the last one that begins at or before it and is not empty. */
static int64_t document_of(const hd_problem *problem, int64_t query) {
  int64_t low = 0, high = problem->a.documents;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (problem->a.query_documents[middle] <= query) low = middle;
    else high = middle;
  }
  return low;
}

hd_place hd_problem_place(const hd_problem *problem, int64_t batch, int64_t query) {
  const heed_attention *a = &problem->a;
  int64_t queries = problem->queries, keys = a->key_lengths ? a->key_lengths[batch] : problem->keys;
  hd_place place = {.position = query, .end = problem->keys};
  if (a->documents) {
    int64_t t = document_of(problem, query);
    place.begin = a->key_documents[t];
    place.end = a->key_documents[t + 1];
    place.position = query - a->query_documents[t] + place.begin;
    queries = a->query_documents[t + 1] - a->query_documents[t];
    keys = place.end - place.begin;
  }
  if (a->align == HEED_ALIGN_GIVEN) place.position += a->offsets ? a->offsets[batch] : a->offset;
  if (a->align == HEED_ALIGN_END) place.position += keys - queries;
  return place;
}

double hd_per_head(const heed_view *view, int64_t head) {
  return hd_element((const char *)view->data + head * view->stride[0] * (int64_t)heed_type_bytes(view->type), view->type);
}

heed_status hd_grid_broadcast(const hd_problem *problem, const heed_view *view, const char *name, hd_grid *out) {
  heed_context *context = problem->context;
  char shape[HD_SHAPE_LENGTH];
  int full = problem->lead + 3;
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->ndim >= 2 && view->ndim <= full, context, HEED_E_SHAPE, "%s: rank %d of %s, allowed 2 to %d here", name, view->ndim,
             hd_shape_text(view, shape), full);
  int64_t target[HEED_MAX_DIM];
  for (int i = 0; i < problem->lead; i++) target[i] = problem->lead_dim[i];
  target[full - 3] = problem->heads;
  target[full - 2] = problem->queries;
  target[full - 1] = problem->keys;
  heed_view wide = {.data = view->data, .type = view->type, .ndim = full};
  for (int i = 0; i < full; i++) {
    int from = i - (full - view->ndim);
    bool one = from < 0 || view->dim[from] == 1;
    wide.dim[i] = target[i];
    wide.stride[i] = one ? 0 : view->stride[from];
    HD_REQUIRE(one || view->dim[from] == target[i], context, HEED_E_SHAPE,
               "%s: %s does not broadcast from the right to heads %lld, queries %lld, keys %lld", name, hd_shape_text(view, shape),
               (long long)problem->heads, (long long)problem->queries, (long long)problem->keys);
  }
  return hd_grid_make(context, &wide, name, out);
}

/* Whether anything depends on where a query stands among the keys. */
static bool positional(const heed_attention *a) {
  return a->causal || a->has_window_left || a->has_window_right || a->alibi || a->relative ||
         (a->score && a->score->kind == HEED_SCORE_XL) || (a->pattern && hd_pattern_positional(a->pattern));
}

/* Where nothing is said of the alignment it must not matter: either no positional pattern, or START and END agree for every batch entry that has queries and keys. */
static heed_status resolve_alignment(hd_problem *problem) {
  heed_attention *a = &problem->a;
  heed_context *context = problem->context;
  HD_REQUIRE(a->align >= HEED_ALIGN_UNSET && a->align <= HEED_ALIGN_GIVEN, context, HEED_E_ARGUMENT, "align: unknown value %d",
             (int)a->align);
  HD_REQUIRE(a->align == HEED_ALIGN_GIVEN || (!a->offsets && a->offset == 0), context, HEED_E_ARGUMENT,
             "an offset is given, but align is not HEED_ALIGN_GIVEN");
  for (int64_t b = 0; a->align == HEED_ALIGN_GIVEN && b < (a->offsets ? problem->batch : 1); b++) {
    int64_t offset = a->offsets ? a->offsets[b] : a->offset;
    HD_REQUIRE(offset > -HD_FAR && offset < HD_FAR, context, HEED_E_ARGUMENT, "offset %lld of batch entry %lld is out of range",
               (long long)offset, (long long)b);
  }
  if (a->align != HEED_ALIGN_UNSET || !positional(a)) return HEED_OK;
  for (int64_t t = 0; t < a->documents; t++) {
    int64_t queries = a->query_documents[t + 1] - a->query_documents[t], keys = a->key_documents[t + 1] - a->key_documents[t];
    HD_REQUIRE(keys == queries || keys == 0 || queries == 0, context, HEED_E_ARGUMENT,
               "align is not set, and with %lld queries and %lld keys (document %lld) START and END differ: say which is meant",
               (long long)queries, (long long)keys, (long long)t);
  }
  for (int64_t b = 0; !a->documents && b < problem->batch; b++) {
    int64_t keys = a->key_lengths ? a->key_lengths[b] : problem->keys;
    HD_REQUIRE(keys == problem->queries || keys == 0 || problem->queries == 0, context, HEED_E_ARGUMENT,
               "align is not set, and with %lld queries and %lld keys (batch entry %lld) START and END differ: say which is meant",
               (long long)problem->queries, (long long)keys, (long long)b);
  }
  a->align = HEED_ALIGN_START;
  return HEED_OK;
}

static heed_status check_numbers(hd_problem *problem) {
  heed_attention *a = &problem->a;
  heed_context *context = problem->context;
  const bool product = !a->score || a->score->kind == HEED_SCORE_DOT || a->score->kind == HEED_SCORE_XL;
  if (!a->has_scale) a->scale = product && problem->key_width ? 1.0 / sqrt((double)problem->key_width) : 1.0;
  problem->scale = a->scale;
  HD_REQUIRE(isfinite(a->scale), context, HEED_E_ARGUMENT, "scale %g is not finite", a->scale);
  HD_REQUIRE(a->softcap >= 0, context, HEED_E_ARGUMENT, "softcap %g, allowed 0 (none) and more", a->softcap); // also refuses NaN
  HD_REQUIRE(!a->has_window_left || a->window_left >= 0, context, HEED_E_ARGUMENT, "window_left %lld, allowed 0 and more",
             (long long)a->window_left);
  HD_REQUIRE(!a->has_window_right || a->window_right >= 0, context, HEED_E_ARGUMENT, "window_right %lld, allowed 0 and more",
             (long long)a->window_right);
  // Beyond 1e30 the cap is far above any score that f32 holds apart from infinity, and s / cap would lose its bits as a subnormal.
  problem->softcap_log2 = a->softcap < 1e30 ? (float)(a->softcap * HD_LOG2E) : 0;
  a->window_left = a->has_window_left ? HD_MIN(a->window_left, HD_FAR) : HD_FAR;
  a->window_right = a->has_window_right ? HD_MIN(a->window_right, HD_FAR) : HD_FAR;
  for (int64_t b = 0; a->key_lengths && b < problem->batch; b++)
    HD_REQUIRE(a->key_lengths[b] >= 0 && a->key_lengths[b] <= problem->keys, context, HEED_E_ARGUMENT,
               "key length %lld of batch entry %lld, allowed 0 to %lld", (long long)a->key_lengths[b], (long long)b,
               (long long)problem->keys);
  return HEED_OK;
}

/* Cumulative lengths of documents: from 0 to `total`, never falling. */
static heed_status check_documents(heed_context *context, const int64_t *bound, int64_t documents, int64_t total, const char *name) {
  HD_REQUIRE(bound, context, HEED_E_ARGUMENT, "%s: null, though %lld documents are packed", name, (long long)documents);
  for (int64_t t = 0; t <= documents; t++)
    HD_REQUIRE(bound[t] >= (t ? bound[t - 1] : 0) && (t || bound[0] == 0), context, HEED_E_ARGUMENT,
               "%s[%lld] is %lld: they begin at 0 and never fall", name, (long long)t, (long long)bound[t]);
  HD_REQUIRE(bound[documents] == total, context, HEED_E_SHAPE, "%s ends at %lld, expected %lld", name, (long long)bound[documents],
             (long long)total);
  return HEED_OK;
}

static heed_status check_packing(hd_problem *problem) {
  heed_attention *a = &problem->a;
  heed_context *context = problem->context;
  HD_REQUIRE(a->documents >= 0, context, HEED_E_ARGUMENT, "%lld documents", (long long)a->documents);
  HD_REQUIRE(a->documents || (!a->query_documents && !a->key_documents), context, HEED_E_ARGUMENT,
             "document bounds are given, but documents is 0");
  if (!a->documents) return HEED_OK;
  if (!a->key_documents) a->key_documents = a->query_documents;
  HD_TRY(check_documents(context, a->query_documents, a->documents, problem->queries, "query_documents"));
  return check_documents(context, a->key_documents, a->documents, problem->keys, "key_documents");
}

/* A number a head. */
static heed_status check_per_head(hd_problem *problem, const heed_view *view, const char *name) {
  heed_context *context = problem->context;
  char shape[HD_SHAPE_LENGTH];
  if (!view) return HEED_OK;
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->ndim == 1 && view->dim[0] == problem->heads, context, HEED_E_SHAPE, "%s: %s, expected [%lld], a number a head", name,
             hd_shape_text(view, shape), (long long)problem->heads);
  return hd_number(context, view->type, name);
}

/* A number a bucket and head. */
static heed_status check_relative(hd_problem *problem) {
  const heed_attention *a = &problem->a;
  heed_context *context = problem->context;
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(a->relative || (a->relative_distance == 0 && !a->relative_causal), context, HEED_E_ARGUMENT,
             "relative positions are described, but relative is null");
  if (!a->relative) return HEED_OK;
  HD_TRY(hd_view_check(context, a->relative, "relative"));
  HD_REQUIRE(a->relative->ndim == 2 && a->relative->dim[1] == problem->heads, context, HEED_E_SHAPE,
             "relative: %s, expected [buckets, %lld], a number a bucket and head", hd_shape_text(a->relative, shape),
             (long long)problem->heads);
  const int64_t buckets = a->relative->dim[0], side = a->relative_causal ? buckets : buckets / 2;
  HD_REQUIRE(side >= 2 && (a->relative_causal || buckets % 2 == 0), context, HEED_E_SHAPE, "relative: %lld buckets, allowed %s",
             (long long)buckets, a->relative_causal ? "2 and more" : "even numbers from 4 on");
  HD_REQUIRE(a->relative_distance > side / 2 && a->relative_distance < HD_FAR, context, HEED_E_ARGUMENT,
             "relative_distance %lld, allowed more than %lld, the distances with a bucket of their own", (long long)a->relative_distance,
             (long long)(side / 2));
  return hd_number(context, a->relative->type, "relative");
}

static heed_status check_dropout(hd_problem *problem) {
  const heed_attention *a = &problem->a;
  heed_context *context = problem->context;
  HD_REQUIRE(a->dropout >= 0 && a->dropout <= 1, context, HEED_E_ARGUMENT, "dropout %g, allowed 0 to 1", a->dropout); // also refuses NaN
  if (a->dropout == 0) return HEED_OK;
  const int64_t most = (int64_t)1 << 32;
  HD_REQUIRE(problem->queries <= most && problem->batch * problem->heads <= most && problem->keys / 4 <= most, context, HEED_E_OVERFLOW,
             "dropout counts queries, heads and quarters of keys in 32 bits");
  problem->keep_factor = (float)(1 / (1 - a->dropout));
  problem->last_dropped = hd_last_dropped(a->dropout);
  return HEED_OK;
}

/* A pattern that is one window is the description's own, where that has none. */
static heed_status read_pattern(hd_problem *problem) {
  heed_attention *a = &problem->a;
  if (!a->pattern) return HEED_OK;
  HD_TRY(hd_pattern_check(problem, a->pattern));
  if (a->pattern->kind != HEED_PATTERN_WINDOW || a->has_window_left || a->has_window_right) return HEED_OK;
  a->has_window_left = a->has_window_right = true;
  a->window_left = HD_MIN(a->pattern->left, HD_FAR);
  a->window_right = HD_MIN(a->pattern->right, HD_FAR);
  a->pattern = NULL;
  return HEED_OK;
}

heed_status hd_description_read(heed_context *context, const heed_attention *a, heed_attention *out) {
  *out = (heed_attention){.size = sizeof *out};
  return hd_options_read(context, "heed_attention", a, out, sizeof *out);
}

void hd_description_views(const heed_attention *a, hd_named_view out[HD_DESCRIPTION_VIEWS]) {
  const heed_score none = {0}, *score = a->score && a->score->size >= sizeof none ? a->score : &none;
  const hd_named_view views[HD_DESCRIPTION_VIEWS] = {{a->attend, "attend"},
                                                     {a->bias, "bias"},
                                                     {a->alibi, "alibi"},
                                                     {a->sink, "sink"},
                                                     {score->wq, "wq"},
                                                     {score->wk, "wk"},
                                                     {score->wv, "wv"},
                                                     {a->relative, "relative"},
                                                     {score->content, "content"},
                                                     {score->position, "position"},
                                                     {score->distances, "distances"}};
  memcpy(out, views, sizeof views);
}

heed_status hd_description_check(heed_context *context, const heed_attention *a) {
  hd_named_view views[HD_DESCRIPTION_VIEWS];
  hd_description_views(a, views);
  for (int i = 0; i < HD_DESCRIPTION_VIEWS; i++)
    if (views[i].view) HD_TRY(hd_view_check(context, views[i].view, views[i].name));
  return HEED_OK;
}

heed_status hd_problem_make(heed_context *context, const heed_attention *a, const hd_shapes *shapes, hd_problem *out) {
  *out = (hd_problem){
      .context = context,
      .kernels = hd_kernels_of(context),
      .batch = 1,
      .heads = shapes->heads,
      .kv_heads = shapes->kv_heads,
      .queries = shapes->queries,
      .keys = shapes->keys,
      .d = shapes->d,
      .key_width = shapes->key_width,
      .dv = shapes->dv,
      .passes = 1,
      .pass[0].order = {.queries = shapes->queries, .keys = shapes->keys},
  };
  HD_TRY(hd_description_read(context, a, &out->a));
  // Other scores say themselves which widths they compare.
  HD_REQUIRE(out->key_width == out->d || (out->a.score && out->a.score->kind != HEED_SCORE_DOT), context, HEED_E_SHAPE,
             "k has width %lld, q has %lld", (long long)out->key_width, (long long)out->d);
  out->lead = shapes->lead;
  for (int i = 0; i < shapes->lead; i++) out->batch *= out->lead_dim[i] = shapes->lead_dim[i];
  if (out->heads == 0) {
    out->group = 1;
  } else {
    HD_REQUIRE(out->kv_heads > 0 && out->heads % out->kv_heads == 0, context, HEED_E_SHAPE,
               "%lld query heads are not a multiple of %lld key/value heads", (long long)out->heads, (long long)out->kv_heads);
    out->group = out->heads / out->kv_heads;
  }
  int64_t rows;
  HD_REQUIRE(out->queries < HD_FAR && out->keys < HD_FAR && hd_mul(out->batch, out->heads, &rows) && hd_mul(rows, out->queries, &rows),
             context, HEED_E_OVERFLOW, "batch %lld, heads %lld, queries %lld, keys %lld are too many to count", (long long)out->batch,
             (long long)out->heads, (long long)out->queries, (long long)out->keys);
  HD_TRY(check_numbers(out));
  HD_TRY(check_packing(out));
  HD_TRY(check_per_head(out, out->a.alibi, "alibi"));
  HD_TRY(check_per_head(out, out->a.sink, "sink"));
  HD_TRY(check_relative(out));
  HD_TRY(check_dropout(out));
  HD_TRY(read_pattern(out));
  HD_TRY(resolve_alignment(out));
  if (out->a.attend) {
    HD_TRY(hd_grid_broadcast(out, out->a.attend, "attend", &out->attend));
    HD_REQUIRE(out->attend.type == HEED_BOOL || out->attend.type == HEED_U8, context, HEED_E_TYPE,
               "attend is %s, allowed bool and u8 (a float mask that is added to the scores is `bias`)", heed_type_name(out->attend.type));
  }
  if (out->a.bias) {
    HD_TRY(hd_grid_broadcast(out, out->a.bias, "bias", &out->bias));
    heed_type type = out->bias.type;
    HD_REQUIRE(type == HEED_F32 || type == HEED_F64 || type == HEED_F16 || type == HEED_BF16, context, HEED_E_TYPE,
               "bias is %s, allowed f32, f64, f16 and bf16 (a boolean mask is `attend`)", heed_type_name(type));
  }
  hd_limits_choose(out);
  hd_terms_choose(out);
  return HEED_OK;
}

/* Rows are written by several threads: each element must be a place of its own. */
static heed_status writable(heed_context *context, const heed_view *view, const char *name) {
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(!hd_view_overlaps_itself(view), context, HEED_E_LAYOUT, "%s: elements of %s share memory", name, hd_shape_text(view, shape));
  return HEED_OK;
}

heed_status hd_outputs_apart(heed_context *context, const hd_named_view *output, const hd_named_view *inputs, int count) {
  for (int i = 0; i < count; i++)
    HD_REQUIRE(!inputs[i].view || !output->view || !hd_views_overlap(output->view, inputs[i].view), context, HEED_E_OVERLAP,
               "%s overlaps %s", output->name, inputs[i].name);
  return HEED_OK;
}

heed_status hd_output_apart(heed_context *context, const heed_attention *a, const heed_view *view, const char *name,
                            const hd_named_view *inputs, int count) {
  const hd_named_view output = {view, name};
  hd_named_view views[HD_DESCRIPTION_VIEWS];
  hd_description_views(a, views);
  HD_TRY(hd_outputs_apart(context, &output, inputs, count));
  return hd_outputs_apart(context, &output, views, HD_DESCRIPTION_VIEWS);
}

/* Whether the leading dimensions agree, passing over those of 1: [2,3] is not [3,2], though both are a batch of 6. */
static bool same_lead(const hd_grid *a, const hd_grid *b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < a->lead && a->lead_dim[i] == 1) i++;
    while (j < b->lead && b->lead_dim[j] == 1) j++;
    if (i == a->lead || j == b->lead) return i == a->lead && j == b->lead;
    if (a->lead_dim[i++] != b->lead_dim[j++]) return false;
  }
}

heed_status hd_row_input(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, hd_grid *out) {
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->ndim < HEED_MAX_DIM, context, HEED_E_SHAPE, "%s: rank %d, allowed 1 to %d", name, view->ndim, HEED_MAX_DIM - 1);
  heed_view wide = *view;
  wide.ndim = view->ndim + 1;
  wide.dim[view->ndim] = 1;
  wide.stride[view->ndim] = 1;
  HD_TRY(hd_grid_make(context, &wide, name, out));
  HD_REQUIRE(same_lead(out, q) && out->heads == q->heads && out->rows == q->rows, context, HEED_E_SHAPE,
             "%s: %s, expected batch %lld, heads %lld, queries %lld", name, hd_shape_text(view, shape), (long long)q->batch,
             (long long)q->heads, (long long)q->rows);
  return HEED_OK;
}

heed_status hd_row_grid(heed_context *context, const heed_view *view, const char *name, const hd_grid *q, hd_grid *out) {
  HD_TRY(hd_row_input(context, view, name, q, out));
  return writable(context, view, name);
}

heed_status hd_grid_input(heed_context *context, const hd_grid *grid, const heed_view *view, const char *name, const hd_grid *q,
                          int64_t heads, int64_t rows, int64_t columns) {
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(same_lead(grid, q) && grid->heads == heads && grid->rows == rows && grid->columns == columns, context, HEED_E_SHAPE,
             "%s: %s, expected batch %lld, heads %lld, rows %lld, columns %lld", name, hd_shape_text(view, shape), (long long)q->batch,
             (long long)heads, (long long)rows, (long long)columns);
  return HEED_OK;
}

heed_status hd_grid_expect(heed_context *context, const hd_grid *grid, const heed_view *view, const char *name, const hd_grid *q,
                           int64_t heads, int64_t rows, int64_t columns) {
  HD_TRY(hd_grid_input(context, grid, view, name, q, heads, rows, columns));
  return writable(context, view, name);
}

heed_status hd_attention_shapes(heed_context *context, const heed_view *q_view, const hd_source *k, const hd_source *v, hd_grid *q,
                                hd_shapes *out) {
  HD_TRY(hd_grid_make(context, q_view, "q", q));
  HD_REQUIRE(k->batch == q->batch, context, HEED_E_SHAPE, "k has batch %lld, q has %lld", (long long)k->batch, (long long)q->batch);
  // Views say more than a batch; a source of pages has nothing else.
  HD_REQUIRE((!k->grid.size || same_lead(&k->grid, q)) && (!v || !v->grid.size || same_lead(&v->grid, q)), context, HEED_E_SHAPE,
             "the leading dimensions of k or v are not those of q");
  if (v)
    HD_REQUIRE(v->batch == k->batch && v->heads == k->heads && v->keys == k->keys, context, HEED_E_SHAPE,
               "v has batch %lld, heads %lld, keys %lld; k has %lld, %lld, %lld", (long long)v->batch, (long long)v->heads,
               (long long)v->keys, (long long)k->batch, (long long)k->heads, (long long)k->keys);
  *out = (hd_shapes){
      .lead = q->lead,
      .lead_dim = q->lead_dim,
      .heads = q->heads,
      .kv_heads = k->heads,
      .queries = q->rows,
      .keys = k->keys,
      .d = q->columns,
      .key_width = k->columns,
      .dv = v ? v->columns : 0,
  };
  return HEED_OK;
}

heed_status hd_storable(heed_context *context, const hd_grid *grid, const char *name) {
  HD_REQUIRE(grid->type == HEED_F32 || grid->type == HEED_F16 || grid->type == HEED_BF16, context, HEED_E_TYPE,
             "%s is %s, allowed f32, f16 and bf16", name, heed_type_name(grid->type));
  return HEED_OK;
}
