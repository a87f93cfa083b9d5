/* pattern.c: the kinds of patterns as a table, and what can be wrong with a tree of them. */
#include "pattern.h"

#define ENTRY(name) &hd_pattern_##name,
static const hd_pattern_kind *const kinds[] = {HD_PATTERN_LIST(ENTRY)};
_Static_assert(sizeof kinds / sizeof *kinds == HEED_PATTERN_UNION, "every kind of heed_pattern_kind before the unions, in its order");

const hd_pattern_kind *hd_pattern_kind_of(const heed_pattern *pattern) {
  return pattern->kind < HEED_PATTERN_UNION ? kinds[pattern->kind] : NULL;
}

const heed_pattern *const *hd_pattern_parts(const heed_pattern *const *pattern, int64_t *count) {
  const bool several = (*pattern)->kind == HEED_PATTERN_UNION;
  *count = several ? (*pattern)->parts : 1;
  return several ? (*pattern)->part : pattern;
}

const hd_pattern_kind *hd_pattern_named(const char *name, size_t length) {
  for (int64_t i = 0; i < HD_COUNT(kinds); i++)
    if (strlen(kinds[i]->name) == length && memcmp(kinds[i]->name, name, length) == 0) return kinds[i];
  return NULL;
}

heed_pattern_kind hd_pattern_number(const hd_pattern_kind *kind) {
  int i = 0;
  while (kinds[i] != kind) i++;
  return (heed_pattern_kind)i;
}

/* What a part is as such, and how deep the tree is below it. */
static heed_status check_part(heed_context *context, const heed_pattern *pattern, int depth) {
  heed_pattern copy = {.size = sizeof copy};
  HD_REQUIRE(pattern, context, HEED_E_ARGUMENT, "pattern: a part is null");
  HD_TRY(hd_options_read(context, "heed_pattern", pattern, &copy, sizeof copy));
  HD_REQUIRE(pattern->size >= sizeof copy, context, HEED_E_ARGUMENT, "heed_pattern: size %zu, expected %zu", pattern->size, sizeof copy);
  HD_REQUIRE((int)pattern->kind >= 0 && pattern->kind <= HEED_PATTERN_INTERSECTION, context, HEED_E_ARGUMENT, "pattern: unknown kind %d",
             (int)pattern->kind);
  if (pattern->kind < HEED_PATTERN_UNION) return HEED_OK;
  HD_REQUIRE(depth < HD_PATTERN_DEPTH, context, HEED_E_ARGUMENT, "pattern: unions and intersections are nested more than %d deep",
             HD_PATTERN_DEPTH);
  HD_REQUIRE(pattern->parts > 0 && pattern->part, context, HEED_E_ARGUMENT,
             "pattern: a union or intersection of %lld parts, allowed 1 and more", (long long)pattern->parts);
  return HEED_OK;
}

/* Calls leaf for every part that is no union or intersection. */
static heed_status walk(heed_context *context, const heed_pattern *pattern, int depth,
                        heed_status (*leaf)(const void *argument, const hd_pattern_kind *kind, const heed_pattern *pattern),
                        const void *argument) {
  HD_TRY(check_part(context, pattern, depth));
  if (pattern->kind < HEED_PATTERN_UNION) return leaf(argument, kinds[pattern->kind], pattern);
  for (int64_t i = 0; i < pattern->parts; i++) HD_TRY(walk(context, pattern->part[i], depth + 1, leaf, argument));
  return HEED_OK;
}

static heed_status check_leaf(const void *argument, const hd_pattern_kind *kind, const heed_pattern *pattern) {
  return kind->check ? kind->check(argument, pattern) : HEED_OK;
}

heed_status hd_pattern_check(const hd_problem *problem, const heed_pattern *pattern) {
  return walk(problem->context, pattern, 0, check_leaf, problem);
}

struct fit {
  const hd_problem *problem;
  int64_t tokens;
};

static heed_status fit_leaf(const void *argument, const hd_pattern_kind *kind, const heed_pattern *pattern) {
  const struct fit *fit = argument;
  HD_TRY(check_leaf(fit->problem, kind, pattern));
  return kind->fits ? kind->fits(fit->problem->context, pattern, fit->tokens) : HEED_OK;
}

heed_status heed_pattern_check(heed_context *context, const heed_pattern *pattern, int64_t heads, int64_t tokens) {
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_check_range(context, "heads", heads, 1, HD_FAR));
  HD_TRY(hd_check_range(context, "tokens", tokens, 1, HD_FAR));
  const hd_problem problem = {
      .context = context, .batch = 1, .heads = heads, .kv_heads = heads, .group = 1, .queries = tokens, .keys = tokens};
  const struct fit fit = {&problem, tokens};
  return walk(context, pattern, 0, fit_leaf, &fit);
}

bool hd_pattern_positional(const heed_pattern *pattern) {
  if (pattern->kind < HEED_PATTERN_UNION) return !kinds[pattern->kind]->absolute;
  for (int64_t i = 0; i < pattern->parts; i++)
    if (hd_pattern_positional(pattern->part[i])) return true;
  return false;
}

heed_status hd_pattern_check_lists(const hd_problem *problem, const char *name, const heed_pattern *pattern, int64_t rows) {
  heed_context *context = problem->context;
  HD_REQUIRE(pattern->row_begin && pattern->begin, context, HEED_E_ARGUMENT, "%s: row_begin or begin is null", name);
  HD_REQUIRE(pattern->lists == 0 || pattern->lists == 1 || pattern->lists == problem->heads, context, HEED_E_SHAPE,
             "%s: lists of %lld heads, allowed 1 or %lld", name, (long long)pattern->lists, (long long)problem->heads);
  for (int64_t row = 0; row <= HD_MAX(pattern->lists, 1) * rows; row++)
    HD_REQUIRE(pattern->row_begin[row] >= (row ? pattern->row_begin[row - 1] : 0) && (row || pattern->row_begin[0] == 0), context,
               HEED_E_ARGUMENT, "%s: row_begin[%lld] is %lld: they begin at 0 and never fall", name, (long long)row,
               (long long)pattern->row_begin[row]);
  return HEED_OK;
}
