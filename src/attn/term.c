/* term.c: several terms as one number a pair. */
#include "term.h"

#define ENTRY(name) &hd_term_##name,
static const hd_term_kind *const kinds[] = {HD_TERM_LIST(ENTRY)};

void hd_terms_choose(hd_problem *problem) {
  _Static_assert(sizeof kinds / sizeof *kinds <= sizeof problem->term / sizeof *problem->term, "room for every term at once");
  problem->terms = 0;
  for (int i = 0; i < HD_COUNT(kinds); i++)
    if (kinds[i]->active(problem)) problem->term[problem->terms++] = kinds[i];
}

void hd_term_by_distance(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, const float **rows,
                         float (*value)(const hd_problem *problem, int64_t head, int64_t distance)) {
  int64_t position[HD_MAX_LANES];
  for (int lane = 0; lane < lanes->count; lane++) position[lane] = hd_problem_place(problem, lanes->batch, lanes->row[lane]).position;
  for (int lane = 0, end; lane < lanes->count; lane = end) {
    for (end = lane + 1; end < lanes->count && lanes->head[end] == lanes->head[lane] && position[end] == position[end - 1] + 1;) end++;
    // The last lane's keys lie farthest back; each lane before it begins one number later.
    float *numbers = scratch + lane * (k1 - k0);
    const int64_t first = k0 - position[end - 1], count = k1 - k0 + end - lane - 1;
    for (int64_t i = 0; i < count; i++) numbers[i] = value(problem, lanes->head[lane], first + i);
    for (int i = lane; i < end; i++) rows[i] = numbers + (end - 1 - i);
  }
}

bool hd_terms_in_lanes(const hd_problem *problem, const hd_lanes *lanes, int64_t k0, int64_t k1, float *scratch, float *out, int padded) {
  const hd_kernels *kernels = problem->kernels;
  const float *rows[HD_MAX_LANES];
  for (int i = 0; i < problem->terms; i++) {
    problem->term[i]->rows(problem, lanes, k0, k1, scratch, rows);
    if (i == 0) kernels->to_lanes(rows, lanes->count, k1 - k0, 1.0f, out, padded);
    for (int lane = 0; i > 0 && lane < lanes->count; lane++)
      for (int64_t key = 0; key < k1 - k0; key++) out[key * padded + lane] += rows[lane][key];
  }
  return problem->terms > 0;
}

bool hd_key_terms(const hd_problem *problem, const hd_lanes *lanes, const hd_keys *keys, float *scratch, float *out, int padded) {
  const int64_t first = keys->key[0];
  if (keys->step == 1) return hd_terms_in_lanes(problem, lanes, first, first + keys->count, scratch, out, padded);
  for (int i = 0; i < keys->count; i++)
    hd_terms_in_lanes(problem, lanes, hd_key(keys, i), hd_key(keys, i) + 1, scratch, out + (int64_t)i * padded, padded);
  return problem->terms > 0;
}
