/* reach.c: sets of bits that go along who sees whom. */
#include "reach.h"
#include "console.h"

#include <stdlib.h>
#include <string.h>

void reach_open(int64_t n, int64_t things, reach *out) {
  *out = (reach){.n = n, .words = (things + 63) / 64};
  out->has = allocate("who has what", n * out->words, sizeof *out->has);
  out->next = allocate("who has what", n * out->words, sizeof *out->next);
}

void reach_close(reach *r) {
  free(r->has);
  free(r->next);
}

void reach_put(reach *r, int64_t token, int64_t thing) { r->has[token * r->words + thing / 64] |= (uint64_t)1 << thing % 64; }

bool reach_has(const reach *r, int64_t token, int64_t thing) { return r->has[token * r->words + thing / 64] >> thing % 64 & 1; }

int64_t reach_count(const reach *r, int64_t token) {
  int64_t count = 0;
  for (int64_t w = 0; w < r->words; w++) count += __builtin_popcountll(r->has[token * r->words + w]);
  return count;
}

bool reach_step(reach *r, const uint8_t *visible, int64_t heads) {
  const int64_t n = r->n, words = r->words;
  bool grows = false;
  for (int64_t i = 0; i < n; i++) {
    uint64_t *row = r->next + i * words;
    memcpy(row, r->has + i * words, (size_t)words * sizeof *row); // a token's own row goes on beside attention
    for (int64_t key = 0; key < n; key++) {
      bool seen = false;
      for (int64_t h = 0; h < heads; h++) seen |= visible[(h * n + i) * n + key];
      for (int64_t w = 0; seen && w < words; w++) row[w] |= r->has[key * words + w];
    }
    grows |= memcmp(row, r->has + i * words, (size_t)words * sizeof *row) != 0;
  }
  uint64_t *swap = r->has;
  r->has = r->next, r->next = swap;
  return grows;
}
