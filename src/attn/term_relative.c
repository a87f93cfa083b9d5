/* term_relative.c: a learned number for each bucket of distances and head (Raffel et al., "Exploring the Limits of Transfer Learning", 2020, section 2.1): near distances have a bucket
 * each, far ones share buckets that grow logarithmically. */
#include "term.h"

#include <math.h>

static bool active(const hd_problem *problem) { return problem->a.relative != NULL; }

/* Of a distance to one side, among that side's buckets. */
static int64_t bucket_of(int64_t distance, int64_t buckets, int64_t farthest) {
  const int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  if (distance >= farthest) return buckets - 1;
  const double range = log((double)farthest / (double)exact), part = log((double)distance / (double)exact) / range;
  return HD_MIN(exact + (int64_t)(part * (double)(buckets - exact)), buckets - 1);
}

int64_t hd_relative_bucket(const heed_attention *a, int64_t distance) {
  const int64_t buckets = a->relative->dim[0], side = a->relative_causal ? buckets : buckets / 2;
  if (distance > 0 && a->relative_causal) return 0;
  return distance > 0 ? side + bucket_of(distance, side, a->relative_distance) : bucket_of(-distance, side, a->relative_distance);
}

static float value(const hd_problem *problem, int64_t head, int64_t distance) {
  const heed_view *table = problem->a.relative;
  const int64_t at = hd_relative_bucket(&problem->a, distance) * table->stride[0] + head * table->stride[1];
  return (float)hd_element((const char *)table->data + at * (int64_t)heed_type_bytes(table->type), table->type);
}

static void rows(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows) {
  hd_term_by_distance(problem, lanes, k0, k1, scratch, rows, value);
}

const hd_term_kind hd_term_relative = {.name = "relative", .active = active, .rows = rows};
