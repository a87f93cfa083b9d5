/* attend.h: what `heed attend` is asked for and what it holds meanwhile. attend_inputs.c makes a description and arrays of options, attend.c computes and writes. */
#ifndef CLI_ATTEND_H
#define CLI_ATTEND_H

#include "arrays.h"

typedef struct attend_values {
  common_values common;
  const char *q, *k, *v, *output, *weights, *lse, *grad_out, *grads;
  const char *causal, *align, *window, *key_lengths, *mask, *bias, *alibi, *sink, *documents, *key_documents;
  double softcap, scale, dropout;
  int64_t stream;
  const char *type, *tap, *score, *wq, *wk, *wv, *pattern;
  bool reference;
} attend_values;

/* Everything one call needs; zero is "nothing loaded". */
typedef struct attend_job {
  heed_context *context;
  heed_attention attention;
  bool reference;
  heed_type stored; /* of out and the gradients */
  heed_score score;
  heed_pattern *pattern;
  array q, k, v, mask, bias, alibi, sink, wq, wk, wv, dout;
  int64_t *key_lengths, *query_documents, *key_documents;
  array out, lse, weights, dq, dk, dv, dbias, dsink, dwq, dwk, dwv;
} attend_job;

/* Describes what needs no file. */
int attend_describe(const attend_values *v, attend_job *j);
/* Loads the arrays, once the context is open, and describes them. */
int attend_load(const attend_values *v, attend_job *j);

#endif
