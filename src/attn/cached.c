/* cached.c: attention over the sequences of a cache: the forward call, and its plan, with the cache as the source and the sequences' lengths as key lengths. */
#include "attention.h"
#include "visible.h"

/* One call: the description with its blanks filled in, and what it reads. */
typedef struct call {
  heed_attention a;
  hd_source k, v;
  int64_t batch, *lengths; /* [batch] */
} call;

static heed_status check_sequences(heed_context *context, const heed_cache *cache, const int64_t *sequences, int64_t count) {
  for (int64_t b = 0; b < count; b++) {
    int64_t sequence = sequences ? sequences[b] : b;
    HD_REQUIRE(heed_cache_length(cache, sequence) >= 0, context, HEED_E_ARGUMENT,
               "batch entry %lld is sequence %lld, which the cache has not", (long long)b, (long long)sequence);
  }
  return HEED_OK;
}

/* How many keys each entry has; a description may ask for fewer. */
static heed_status find_lengths(heed_context *context, const heed_cache *cache, const int64_t *sequences, call *c) {
  HD_TRY(hd_allocate(context, "lengths of sequences", c->batch, sizeof *c->lengths, &c->lengths));
  for (int64_t b = 0; b < c->batch; b++) {
    int64_t length = heed_cache_length(cache, sequences ? sequences[b] : b);
    c->lengths[b] = c->a.key_lengths ? c->a.key_lengths[b] : length;
    HD_REQUIRE(c->lengths[b] <= length, context, HEED_E_ARGUMENT, "key length %lld of batch entry %lld, allowed 0 to %lld",
               (long long)c->lengths[b], (long long)b, (long long)length);
  }
  c->a.key_lengths = c->lengths;
  if (c->a.align == HEED_ALIGN_UNSET) c->a.align = HEED_ALIGN_END;
  return HEED_OK;
}

/* A ring has forgotten its oldest keys: no query may be allowed to look at them. */
static heed_status check_kept(heed_context *context, const heed_view *q, const call *c) {
  hd_grid queries;
  hd_shapes shapes;
  hd_problem problem;
  HD_TRY(hd_attention_shapes(context, q, &c->k, &c->v, &queries, &shapes));
  HD_TRY(hd_problem_make(context, &c->a, &shapes, &problem));
  heed_status status = HEED_OK;
  int64_t floats = 0;
  float *memory;
  hd_live live;
  hd_live_cut(&problem, &live, NULL, &floats);
  HD_TRY(hd_allocate(context, "tiles that are seen", floats, sizeof *memory, &memory));
  floats = 0;
  hd_live_cut(&problem, &live, memory, &floats);
  for (int64_t b = 0; status == HEED_OK && problem.queries > 0 && b < problem.batch; b++) {
    int64_t begin, end, first = heed_cache_first(c->k.cache, c->k.sequences ? c->k.sequences[b] : b);
    hd_limit_span(&problem, b, 0, problem.queries, &begin, &end);
    if (begin >= end || begin >= first) continue;
    for (int64_t head = 0; problem.a.pattern && head < problem.heads; head++) {
      const int64_t own = hd_first_visible(&problem, b, head, 0, problem.queries, &live);
      begin = head ? HD_MIN(begin, own) : own;
    }
    if (begin < first)
      status =
          hd_fail(context, HEED_E_ARGUMENT,
                  "batch entry %lld may look at keys from %lld on, and the ring has kept those from %lld on: a window of fewer keys is "
                  "needed, or a cache that keeps more",
                  (long long)b, (long long)begin, (long long)first);
  }
  hd_release(context, memory, floats, sizeof *memory);
  return status;
}

/* Fills c; the caller releases c->lengths, also after an error. */
static heed_status begin_call(heed_context *context, const heed_attention *a, const heed_view *q, const heed_cache *cache,
                              const int64_t *sequences, call *c) {
  hd_grid queries;
  HD_REQUIRE(cache, context, HEED_E_ARGUMENT, "the cache is null");
  HD_TRY(hd_description_read(context, a, &c->a));
  HD_TRY(hd_grid_make(context, q, "q", &queries));
  HD_TRY(hd_description_check(context, &c->a));
  HD_REQUIRE(!c->a.score || c->a.score->kind == HEED_SCORE_DOT || c->a.score->kind == HEED_SCORE_XL, context, HEED_E_UNSUPPORTED,
             "a cache is compared by products alone (DOT, XL): project q or the keys beforehand");
  c->batch = queries.batch;
  HD_TRY(check_sequences(context, cache, sequences, c->batch));
  hd_source_of_cache(context, cache, sequences, c->batch, false, &c->k);
  hd_source_of_cache(context, cache, sequences, c->batch, true, &c->v);
  HD_TRY(find_lengths(context, cache, sequences, c));
  return check_kept(context, q, c);
}

heed_status heed_attention_cached(heed_context *context, const heed_attention *a, const heed_view *q, const heed_cache *cache,
                                  const int64_t *sequences, const heed_view *out, const heed_attention_extras *extras) {
  if (!context) return HEED_E_ARGUMENT;
  call c = {0};
  const heed_view *lse;
  heed_status status = begin_call(context, a, q, cache, sequences, &c);
  if (status == HEED_OK) status = hd_forward_check(context, &c.a, q, NULL, NULL, out, extras, &lse);
  if (status == HEED_OK) status = hd_attention_scored(context, &c.a, q, &c.k, &c.v, out, lse);
  hd_release(context, c.lengths, c.batch, sizeof *c.lengths);
  return status;
}

heed_status heed_attention_cached_plan(heed_context *context, const heed_attention *a, const heed_view *q, const heed_cache *cache,
                                       const int64_t *sequences, heed_plan *plan) {
  if (!context) return HEED_E_ARGUMENT;
  call c = {0};
  heed_status status = begin_call(context, a, q, cache, sequences, &c);
  if (status == HEED_OK) status = hd_attention_plan(context, &c.a, q, NULL, &c.k, &c.v, plan);
  hd_release(context, c.lengths, c.batch, sizeof *c.lengths);
  return status;
}
