/* pattern_bigbird.c: BigBird in blocks of tokens: the first ones are global, a block sees those around it, and some drawn from a seed, all different and none of the others. */
#include "pattern.h"

#include "../base/philox.h"

enum { MOST_RANDOM = HD_RUNS_AT_ONCE - 2 };

static heed_status check(const hd_problem *problem, const heed_pattern *p) {
  heed_context *context = problem->context;
  HD_TRY(hd_check_range(context, "bigbird: block", p->block, 1, HD_FAR));
  HD_TRY(hd_check_range(context, "bigbird: left", p->left, 0, INT64_MAX));
  HD_TRY(hd_check_range(context, "bigbird: right", p->right, 0, INT64_MAX));
  HD_TRY(hd_check_range(context, "bigbird: global blocks", p->count, 0, INT64_MAX));
  return hd_check_range(context, "bigbird: random blocks", p->random, 0, MOST_RANDOM);
}

static heed_status fits(heed_context *context, const heed_pattern *p, int64_t tokens) {
  const int64_t blocks = hd_ceil_div(tokens, p->block);
  HD_REQUIRE(tokens % p->block == 0, context, HEED_E_ARGUMENT, "bigbird: a block of %lld does not divide %lld tokens", (long long)p->block,
             (long long)tokens);
  HD_REQUIRE(p->random <= blocks, context, HEED_E_ARGUMENT, "bigbird: %lld random blocks, and there are %lld in %lld tokens",
             (long long)p->random, (long long)blocks, (long long)tokens);
  return HEED_OK;
}

/* Blocks of keys around a query's own: [global, from) and [to, blocks) are what is drawn from. */
struct place {
  int64_t own, global, from, to, blocks;
};

static struct place place_of(const heed_pattern *p, const hd_row *row) {
  struct place at = {.own = hd_floor_div(row->position, p->block), .blocks = hd_ceil_div(row->keys, p->block)};
  at.global = HD_MIN(p->count, at.blocks);
  at.from = HD_CLAMP(at.own - HD_MIN(p->left, HD_FAR), at.global, at.blocks);
  at.to = HD_CLAMP(at.own + HD_MIN(p->right, HD_FAR) + 1, at.from, at.blocks);
  if (row->causal) at.blocks = HD_CLAMP(at.own, at.to, at.blocks); // nothing behind the query's own block
  return at;
}

static int64_t candidates(const struct place *at) { return at->from - at->global + at->blocks - at->to; }

/* The random blocks, ascending; returns how many. Draw number i takes the u-th of those that are left, u below their number. */
static int64_t draw(const heed_pattern *p, const hd_row *row, const struct place *at, int64_t chosen[MOST_RANDOM]) {
  const int64_t all = candidates(at), count = HD_MIN(p->random, all);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t counter[4] = {(uint32_t)at->own, (uint32_t)i, (uint32_t)row->head, 0x62697264};
    uint32_t words[4];
    hd_philox(counter, p->seed, words);
    int64_t u = (int64_t)((uint64_t)words[0] * (uint64_t)(all - i) >> 32), place = 0;
    while (place < i && chosen[place] <= u) place++, u++; // passes over those that have been taken
    memmove(chosen + place + 1, chosen + place, (size_t)(i - place) * sizeof *chosen);
    chosen[place] = u;
  }
  return count;
}

/* The window, the global blocks, the random ones. */
static int64_t runs(const heed_pattern *p, const hd_row *row) {
  const struct place at = place_of(p, row);
  return at.own >= 0 && at.own < p->count ? 1 : 2 + HD_MIN(p->random, candidates(&at));
}

static void all(const heed_pattern *p, const hd_row *row, hd_run *out) {
  const struct place at = place_of(p, row);
  int64_t chosen[MOST_RANDOM];
  out[0] = (hd_run){.end = row->keys};
  if (at.own >= 0 && at.own < p->count) return;
  out[0] = (hd_run){.begin = at.from * p->block, .end = at.to * p->block};
  out[1] = (hd_run){.end = at.global * p->block};
  for (int64_t i = 0, count = draw(p, row, &at, chosen); i < count; i++) {
    const int64_t block = chosen[i] + at.global + (chosen[i] + at.global >= at.from ? at.to - at.from : 0);
    out[2 + i] = (hd_run){.begin = block * p->block, .end = (block + 1) * p->block};
  }
}

static hd_run run(const heed_pattern *p, const hd_row *row, int64_t i) {
  hd_run each[HD_RUNS_AT_ONCE];
  all(p, row, each);
  return each[i];
}

static int64_t alike(const heed_pattern *pattern, const hd_row *row) {
  return pattern->block - hd_floor_mod(row->position, pattern->block);
}

static void complete(heed_pattern *pattern, int given) {
  (void)given;
  pattern->right = pattern->left;
}

const hd_pattern_kind hd_pattern_bigbird = {
    .name = "bigbird",
    .check = check,
    .fits = fits,
    .runs = runs,
    .run = run,
    .all = all,
    .alike = alike,
    .field = {{.name = "block", .number = offsetof(heed_pattern, block)},
              {.name = "window", .number = offsetof(heed_pattern, left)},
              {.name = "global", .number = offsetof(heed_pattern, count)},
              {.name = "random", .number = offsetof(heed_pattern, random)},
              {.name = "seed", .number = offsetof(heed_pattern, seed)}},
    .needed = 4,
    .complete = complete,
};
