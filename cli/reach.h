/* reach.h: how far what a token holds can come, layer by layer, when each token takes from those whom it sees. */
#ifndef CLI_REACH_H
#define CLI_REACH_H

#include <stdbool.h>
#include <stdint.h>

/* A set of things for each of n tokens, `words` words of 64 bits each: which of them have come to it. */
typedef struct reach {
  int64_t n, words;
  uint64_t *has, *next; /* [n,words] */
} reach;

void reach_open(int64_t n, int64_t things, reach *out);
void reach_close(reach *r);
void reach_put(reach *r, int64_t token, int64_t thing);
bool reach_has(const reach *r, int64_t token, int64_t thing);
/* How many things have come to a token. */
int64_t reach_count(const reach *r, int64_t token);
/* Another layer: a token keeps what it has and gets what those have whom it sees by any head, visible [heads,n,n]. Whether anything came to anyone. */
bool reach_step(reach *r, const uint8_t *visible, int64_t heads);

#endif
