/* linear.c: linear attention: reading and refusing. Every illegal request ends here, before any output is touched. What the numbers are is in linear_forward.c, linear_backward.c,
 * linear_rule.c and, in double precision, linear_reference.c. */
#include "linear.h"

#include <math.h>

static bool projects(heed_features features) { return features == HEED_FEATURES_POSITIVE || features == HEED_FEATURES_HYPERBOLIC; }
static bool gates(heed_linear_rule rule) { return rule == HEED_RULE_GATED || rule == HEED_RULE_GATED_DELTA; }
static bool corrects(heed_linear_rule rule) { return rule == HEED_RULE_DELTA || rule == HEED_RULE_GATED_DELTA; }

/* ---- the description ------------------------------------------------------------------------------------------------------------ */

static heed_status read_features(hd_linear *p) {
  heed_linear_attention *a = &p->a;
  heed_context *context = p->context;
  char shape[HD_SHAPE_LENGTH];
  HD_REQUIRE(a->features >= HEED_FEATURES_ELU && a->features <= HEED_FEATURES_HYPERBOLIC, context, HEED_E_ARGUMENT,
             "features: unknown value %d", (int)a->features);
  p->features = p->d;
  if (!projects(a->features)) {
    HD_REQUIRE(!a->projection, context, HEED_E_ARGUMENT, "a projection is given, but the features are neither positive nor hyperbolic");
    return HEED_OK;
  }
  HD_REQUIRE(a->projection, context, HEED_E_ARGUMENT, "projection: null, though the features are projected (heed_linear_draw makes one)");
  HD_TRY(hd_view_check(context, a->projection, "projection"));
  HD_REQUIRE(a->projection->ndim == 2 && a->projection->dim[0] > 0 && a->projection->dim[1] == p->d, context, HEED_E_SHAPE,
             "projection: %s, allowed [features,%lld] with at least one feature", hd_shape_text(a->projection, shape), (long long)p->d);
  HD_REQUIRE(a->projection->type == HEED_F32, context, HEED_E_TYPE, "projection is %s, allowed f32", heed_type_name(a->projection->type));
  p->projected = a->projection->dim[0];
  const int64_t signs = a->features == HEED_FEATURES_HYPERBOLIC ? 2 : 1;
  HD_REQUIRE(hd_mul(p->projected, signs, &p->features), context, HEED_E_OVERFLOW, "%lld features are too many", (long long)p->projected);
  return HEED_OK;
}

static heed_status read_rule(hd_linear *p) {
  const heed_linear_attention *a = &p->a;
  heed_context *context = p->context;
  HD_REQUIRE(a->rule >= HEED_RULE_ADD && a->rule <= HEED_RULE_GATED_DELTA, context, HEED_E_ARGUMENT, "rule: unknown value %d",
             (int)a->rule);
  HD_REQUIRE(a->rule == HEED_RULE_ADD || (a->causal && a->unnormalised && !projects(a->features)), context, HEED_E_ARGUMENT,
             "rules other than HEED_RULE_ADD are causal, unnormalised and of features that are not projected");
  HD_REQUIRE(gates(a->rule) == (a->decay != NULL), context, HEED_E_ARGUMENT, "decay is %s, %s", a->decay ? "given" : "null",
             a->decay ? "but the rule has no gate" : "though the rule has a gate");
  HD_REQUIRE(corrects(a->rule) == (a->beta != NULL), context, HEED_E_ARGUMENT, "beta is %s, %s", a->beta ? "given" : "null",
             a->beta ? "but the rule is no delta rule" : "though the rule is a delta rule");
  return HEED_OK;
}

static heed_status read_numbers(hd_linear *p) {
  const heed_linear_attention *a = &p->a;
  heed_context *context = p->context;
  const bool projected = projects(a->features), bare = a->features == HEED_FEATURES_IDENTITY;
  HD_REQUIRE(a->unnormalised || !bare, context, HEED_E_ARGUMENT,
             "identity features may be negative, so that there is nothing to divide by: unnormalised must be set");
  p->scale = a->has_scale ? a->scale : p->d ? 1.0 / sqrt((double)p->d) : 1.0;
  HD_REQUIRE(isfinite(p->scale) && (!projected || p->scale > 0), context, HEED_E_ARGUMENT, "scale %g, allowed %s", p->scale,
             projected ? "above 0 with projected features" : "any finite number");
  HD_REQUIRE(a->unnormalised || projected || !a->has_scale, context, HEED_E_ARGUMENT,
             "a scale is given, but it would cancel in a normalised output of elementwise features");
  const bool guarded = !a->unnormalised && !projected;
  p->epsilon = a->has_epsilon ? a->epsilon : guarded ? 1e-6 : 0;
  HD_REQUIRE(isfinite(p->epsilon) && p->epsilon >= 0 && (guarded || p->epsilon == 0), context, HEED_E_ARGUMENT, "epsilon %g, allowed %s",
             p->epsilon, guarded ? "0 and more" : "only 0 where the output is unnormalised or the features are projected");
  return HEED_OK;
}

static heed_status read_description(heed_context *context, const heed_linear_attention *given, int64_t d, hd_linear *p) {
  *p = (hd_linear){.context = context, .kernels = hd_kernels_of(context), .a = {.size = sizeof p->a}, .d = d};
  HD_TRY(hd_options_read(context, "heed_linear_attention", given, &p->a, sizeof p->a));
  HD_TRY(read_features(p));
  HD_TRY(read_rule(p));
  return read_numbers(p);
}

heed_status heed_linear_width(heed_context *context, const heed_linear_attention *a, int64_t d, int64_t *features) {
  if (!context) return HEED_E_ARGUMENT;
  hd_linear p;
  HD_REQUIRE(features && d >= 0, context, HEED_E_ARGUMENT, "features: null, or a width of %lld", (long long)d);
  HD_TRY(read_description(context, a, d, &p));
  *features = p.features;
  return HEED_OK;
}

/* ---- which keys count ------------------------------------------------------------------------------------------------------------ */

static heed_status read_mask(hd_linear *p) {
  const heed_linear_attention *a = &p->a;
  heed_context *context = p->context;
  char shape[HD_SHAPE_LENGTH];
  for (int64_t b = 0; a->key_lengths && b < p->batch; b++)
    HD_REQUIRE(a->key_lengths[b] >= 0 && a->key_lengths[b] <= p->keys, context, HEED_E_ARGUMENT,
               "key length %lld of batch entry %lld, allowed 0 to %lld", (long long)a->key_lengths[b], (long long)b, (long long)p->keys);
  if (!a->attend) return HEED_OK;
  HD_TRY(hd_view_check(context, a->attend, "attend"));
  heed_view wide = *a->attend;
  if (wide.ndim == 1) wide = (heed_view){wide.data, wide.type, 2, {1, wide.dim[0]}, {0, wide.stride[0]}};
  HD_REQUIRE(wide.ndim == 2 && wide.dim[1] == p->keys && (wide.dim[0] == p->batch || wide.dim[0] == 1), context, HEED_E_SHAPE,
             "attend: %s, expected [%lld] or [%lld,%lld]", hd_shape_text(a->attend, shape), (long long)p->keys, (long long)p->batch,
             (long long)p->keys);
  HD_REQUIRE(wide.type == HEED_BOOL || wide.type == HEED_U8, context, HEED_E_TYPE, "attend is %s, allowed bool and u8",
             heed_type_name(wide.type));
  HD_TRY(hd_grid_make(context, &wide, "attend", &p->attend));
  if (wide.dim[0] == 1) p->attend.row_stride = 0;
  return HEED_OK;
}

bool hd_linear_counts(const hd_linear *p, int64_t batch, int64_t key) {
  if (p->a.key_lengths && key >= p->a.key_lengths[batch]) return false;
  return !p->attend.data || *(hd_grid_row(&p->attend, 0, 0, batch) + key * p->attend.column_stride) != 0;
}

/* ---- gates and states ------------------------------------------------------------------------------------------------------------ */

static heed_status read_gates(hd_linear *p) {
  const heed_linear_attention *a = &p->a;
  heed_context *context = p->context;
  if (a->decay) {
    HD_TRY(hd_grid_make(context, a->decay, "decay", &p->decay));
    HD_TRY(hd_number(context, a->decay->type, "decay"));
    HD_TRY(hd_grid_input(context, &p->decay, a->decay, "decay", &p->k, p->kv_heads, p->keys, p->decay.columns == 1 ? 1 : p->features));
  }
  if (a->beta) {
    HD_TRY(hd_grid_make(context, a->beta, "beta", &p->beta));
    HD_TRY(hd_number(context, a->beta->type, "beta"));
    HD_TRY(hd_grid_input(context, &p->beta, a->beta, "beta", &p->k, p->beta.heads == 1 ? 1 : p->kv_heads, p->keys, 1));
    if (p->beta.heads == 1) p->beta.head_stride = 0;
  }
  return HEED_OK;
}

/* [lead..., Hkv, rows, columns] of a view that leaves out its last `absent` dimensions, which are 1. */
static heed_status read_part(const hd_linear *p, const heed_view *view, int absent, int64_t rows, int64_t columns, bool output,
                             const char *name, hd_grid *out) {
  heed_context *context = p->context;
  char shape[HD_SHAPE_LENGTH];
  HD_TRY(hd_view_check(context, view, name));
  HD_REQUIRE(view->ndim + absent <= HEED_MAX_DIM, context, HEED_E_SHAPE, "%s: rank %d of %s, allowed up to %d", name, view->ndim,
             hd_shape_text(view, shape), HEED_MAX_DIM - absent);
  heed_view wide = *view;
  for (; wide.ndim < view->ndim + absent; wide.ndim++) wide.dim[wide.ndim] = wide.stride[wide.ndim] = 1;
  HD_TRY(hd_grid_make(context, &wide, name, out));
  HD_TRY(hd_number(context, view->type, name));
  return output ? hd_grid_expect(context, out, view, name, &p->k, p->kv_heads, rows, columns)
                : hd_grid_input(context, out, view, name, &p->k, p->kv_heads, rows, columns);
}

heed_status hd_linear_state_read(const hd_linear *p, const heed_linear_state *given, bool output, const char *name, hd_linear_grids *out) {
  heed_context *context = p->context;
  heed_linear_state state = {.size = sizeof state};
  *out = (hd_linear_grids){0};
  if (!given) return HEED_OK;
  HD_TRY(hd_options_read(context, "heed_linear_state", given, &state, sizeof state));
  const bool normalised = !p->a.unnormalised, projected = projects(p->a.features);
  HD_REQUIRE(state.sums && (state.normaliser != NULL) == normalised && (state.exponent != NULL) == projected, context, HEED_E_ARGUMENT,
             "state %s: expected sums%s%s", name, normalised ? ", normaliser" : ", no normaliser",
             projected ? ", exponent" : ", no exponent");
  HD_TRY(read_part(p, state.sums, 0, p->features, p->dv, output, "sums", &out->sums));
  if (normalised) HD_TRY(read_part(p, state.normaliser, 1, p->features, 1, output, "normaliser", &out->normaliser));
  if (projected) HD_TRY(read_part(p, state.exponent, 2, 1, 1, output, "exponent", &out->exponent));
  return HEED_OK;
}

/* ---- the call -------------------------------------------------------------------------------------------------------------------- */

heed_status hd_linear_lse(const hd_linear *p, const heed_view *lse, bool output, hd_grid *out) {
  *out = (hd_grid){0};
  if (!lse) return HEED_OK;
  HD_TRY(output ? hd_row_grid(p->context, lse, "lse", &p->q, out) : hd_row_input(p->context, lse, "lse", &p->q, out));
  return hd_number(p->context, lse->type, "lse");
}

void hd_linear_views(const hd_linear *p, const heed_view *q, const heed_view *k, const heed_view *v, hd_named_view out[HD_LINEAR_VIEWS]) {
  const heed_linear_state *before = &p->before;
  const hd_named_view views[HD_LINEAR_VIEWS] = {{q, "q"},
                                                {k, "k"},
                                                {v, "v"},
                                                {p->a.attend, "attend"},
                                                {p->a.projection, "projection"},
                                                {p->a.decay, "decay"},
                                                {p->a.beta, "beta"},
                                                {before->sums, "the sums before"},
                                                {before->normaliser, "the normaliser before"},
                                                {before->exponent, "the exponent before"}};
  memcpy(out, views, sizeof views);
}

heed_status hd_linear_make(heed_context *context, const heed_linear_attention *a, const heed_view *q, const heed_view *k,
                           const heed_view *v, hd_linear *out) {
  hd_grid grid[3];
  const heed_view *view[3] = {q, k, v};
  const char *name[3] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++) {
    HD_TRY(hd_grid_make(context, view[i], name[i], &grid[i]));
    HD_TRY(hd_number(context, view[i]->type, name[i]));
  }
  HD_TRY(read_description(context, a, grid[0].columns, out));
  out->q = grid[0], out->k = grid[1], out->v = grid[2];
  out->batch = grid[0].batch;
  out->heads = grid[0].heads, out->kv_heads = grid[1].heads;
  out->queries = grid[0].rows, out->keys = grid[1].rows;
  out->dv = grid[2].columns;
  HD_TRY(hd_grid_input(context, &grid[1], k, "k", &grid[0], grid[1].heads, grid[1].rows, out->d));
  HD_TRY(hd_grid_input(context, &grid[2], v, "v", &grid[0], out->kv_heads, out->keys, out->dv));
  HD_REQUIRE(out->kv_heads > 0 ? out->heads > 0 && out->heads % out->kv_heads == 0 : out->heads == 0, context, HEED_E_SHAPE,
             "%lld query heads are not a positive multiple of %lld key/value heads", (long long)out->heads, (long long)out->kv_heads);
  out->group = out->kv_heads ? out->heads / out->kv_heads : 1;
  HD_REQUIRE(!out->a.causal || out->queries == out->keys, context, HEED_E_SHAPE,
             "causal linear attention has as many queries as keys, not %lld and %lld (earlier keys are a state before)",
             (long long)out->queries, (long long)out->keys);
  HD_TRY(read_mask(out));
  HD_TRY(read_gates(out));
  hd_linear_grids before;
  out->before = (heed_linear_state){.size = sizeof out->before};
  HD_TRY(hd_options_read(context, "heed_linear_state", out->a.before, &out->before, sizeof out->before));
  HD_TRY(hd_linear_state_read(out, out->a.before, false, "before", &before));
  out->before_sums = before.sums, out->before_normaliser = before.normaliser, out->before_exponent = before.exponent;
  return HEED_OK;
}
