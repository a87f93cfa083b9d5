/* limit_documents.c: documents packed into one row of tokens: a query sees the keys of its own. */
#include "limit.h"

static bool active(const hd_problem *problem) { return problem->a.documents > 0; }

static void interval(const hd_problem *problem, int64_t batch, int64_t query, int64_t *begin, int64_t *end) {
  hd_place place = hd_problem_place(problem, batch, query);
  *begin = place.begin;
  *end = place.end;
}

const hd_limit_kind hd_limit_documents = {.name = "documents", .active = active, .interval = interval};
