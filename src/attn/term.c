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
