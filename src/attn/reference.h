/* reference.h: what the files of the reference share. */
#ifndef HD_REFERENCE_H
#define HD_REFERENCE_H

#include "problem.h"

/* A pair as a pattern's definition speaks of it: places are those within the query's document, save the last three. */
typedef struct hd_pair {
  int64_t batch, head, position, key, keys;
  bool causal;
  int64_t query, queries, call_key; /* within the call */
} hd_pair;

bool hd_reference_shows(const heed_pattern *pattern, const hd_pair *pair);

#endif
