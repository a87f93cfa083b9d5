/* reference_pattern.c: every pattern once more as its definition says it, pair by pair: the oracle of the kinds, which it does not ask. */
#include "reference.h"

#include "../base/philox.h"

#include <math.h>

/* ⌊a / b⌋ and what is left over, of numbers below 2^53. */
static int64_t over(int64_t a, int64_t b) { return (int64_t)floor((double)a / (double)b); }
static int64_t left_over(int64_t a, int64_t b) { return a - over(a, b) * b; }

static bool is_global(const heed_pattern *pattern, int64_t token) {
  for (int64_t i = 0; pattern->tokens && i < pattern->count; i++)
    if (pattern->tokens[i] == token) return true;
  return !pattern->tokens && token >= 0 && token < pattern->count;
}

static bool listed(const heed_pattern *pattern, const hd_pair *pair) {
  const int64_t size = pattern->kind == HEED_PATTERN_BLOCKS ? pattern->block : 1, rows = pair->queries / size;
  const int64_t *list = pattern->row_begin + (pattern->lists > 1 ? pair->head * rows : 0) + pair->query / size;
  for (int64_t t = list[0]; t < list[1]; t++) {
    if (pattern->kind == HEED_PATTERN_BLOCKS && pattern->begin[t] == pair->call_key / size) return true;
    if (pattern->kind == HEED_PATTERN_RANGES && pattern->begin[t] <= pair->call_key && pair->call_key < pattern->end[t]) return true;
  }
  return false;
}

static bool power_of_2(int64_t x) {
  for (int64_t power = 1; power <= x; power *= 2)
    if (power == x) return true;
  return false;
}

static bool around(const heed_pattern *pattern, int64_t own, int64_t block) {
  return own - block <= pattern->left && block - own <= pattern->right;
}

/* Whether block `wanted` is drawn for the query's own: again and again one of those that are left. */
static bool drawn(const heed_pattern *pattern, const hd_pair *pair, int64_t own, int64_t wanted) {
  int64_t blocks = (pair->keys + pattern->block - 1) / pattern->block, taken[64];
  if (pair->causal && own < blocks) blocks = own > 0 ? own : 0;
  for (int64_t i = 0; i < pattern->random; i++) {
    int64_t left = 0;
    for (int pass = 0; pass < 2; pass++) { // counts those that are left, then finds the one that is drawn
      const uint32_t counter[4] = {(uint32_t)own, (uint32_t)i, (uint32_t)pair->head, 0x62697264};
      uint32_t words[4];
      hd_philox(counter, pattern->seed, words);
      int64_t number = (int64_t)((uint64_t)words[0] * (uint64_t)left >> 32);
      for (int64_t block = pattern->count; block < blocks; block++) {
        bool free = !around(pattern, own, block);
        for (int64_t j = 0; j < i; j++) free &= taken[j] != block;
        if (free && pass == 0) left++;
        if (free && pass == 1 && number-- == 0) taken[i] = block;
      }
      if (left == 0) return false;
    }
    if (taken[i] == wanted) return true;
  }
  return false;
}

bool hd_reference_shows(const heed_pattern *pattern, const hd_pair *pair) {
  const int64_t p = pair->position, j = pair->key, stride = pattern->stride, distance = p > j ? p - j : j - p;
  switch (pattern->kind) {
  case HEED_PATTERN_WINDOW: return (j >= p || p - j <= pattern->left) && (j <= p || j - p <= pattern->right);
  case HEED_PATTERN_DILATED: {
    const int64_t dilation = pattern->dilations ? pattern->dilations[pair->head] : pattern->dilation;
    return distance % dilation == 0 && distance / dilation <= (j < p ? pattern->left : pattern->right);
  }
  case HEED_PATTERN_GLOBAL: return is_global(pattern, p) || is_global(pattern, j);
  case HEED_PATTERN_PREFIX: return j <= p || j < (pattern->counts ? pattern->counts[pair->batch] : pattern->count);
  case HEED_PATTERN_RANGES:
  case HEED_PATTERN_BLOCKS: return listed(pattern, pair);
  case HEED_PATTERN_STRIDED: return (!pattern->columns_only && distance < stride) || distance % stride == 0;
  case HEED_PATTERN_FIXED:
    return (!pattern->columns_only && over(p, stride) == over(j, stride)) || left_over(j, stride) >= stride - pattern->columns;
  case HEED_PATTERN_LOGSPARSE:
    if (pattern->restart && over(p, pattern->restart) != over(j, pattern->restart)) return false;
    return distance <= pattern->left || power_of_2(distance - pattern->left);
  case HEED_PATTERN_TREE: {
    const int64_t i = p + 1, other = j + 1;
    return i >= 1 && (other == i || other == i / 2 || other == 2 * i || (pattern->both_children && other == 2 * i + 1));
  }
  case HEED_PATTERN_BIGBIRD: {
    const int64_t own = over(p, pattern->block), block = over(j, pattern->block);
    if ((own >= 0 && own < pattern->count) || block < pattern->count) return true;
    return around(pattern, own, block) || drawn(pattern, pair, own, block);
  }
  case HEED_PATTERN_UNION:
    for (int64_t i = 0; i < pattern->parts; i++)
      if (hd_reference_shows(pattern->part[i], pair)) return true;
    return false;
  case HEED_PATTERN_INTERSECTION:
    for (int64_t i = 0; i < pattern->parts; i++)
      if (!hd_reference_shows(pattern->part[i], pair)) return false;
    return true;
  }
  return false;
}
