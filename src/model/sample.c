/* sample.c: from logits to a token: penalty, temperature, top-k, top-p, min-p, draw, in this order.
 *
 * Candidates form a heap with the likeliest on top (the lowest id among equals) and are taken off one by one: the cuts and the draw need only the few at the top, so nothing is
 * sorted. Probabilities are double; the draw is Philox, numbered by step. */
#include "../base/base.h"
#include "../../include/heed/model.h"
#include "../base/philox.h"

#include <math.h>

/* Tells these draws from others under the same seed. */
#define SAMPLING_STREAM 0x73616d70u

enum { REPETITION_WINDOW = 64 };

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

static bool likelier(candidate a, candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

static void sift_down(candidate *heap, int64_t n, int64_t i) {
  candidate moving = heap[i];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && likelier(heap[child + 1], heap[child])) child++;
    if (!likelier(heap[child], moving)) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
}

/* Puts the top of a heap of n behind the n − 1 that remain. */
static void take_top(candidate *heap, int64_t n) {
  candidate top = heap[0];
  heap[0] = heap[n - 1];
  heap[n - 1] = top;
  if (n > 1) sift_down(heap, n - 1, 0);
}

static heed_status check(heed_context *context, const heed_sampling *s, const float *logits, int64_t vocabulary, const int32_t *history,
                         int64_t count, int64_t step, const int32_t *id) {
  HD_REQUIRE(logits && id && vocabulary >= 1 && vocabulary <= INT32_MAX && count >= 0 && (history || !count) && step >= 0, context,
             HEED_E_ARGUMENT, "sampling needs logits, a place for the id and counts that are not negative");
  HD_REQUIRE(s->temperature >= 0 && s->temperature <= 1e6, context, HEED_E_ARGUMENT, "temperature out of range (got %g, allowed 0..1e6)",
             s->temperature);
  HD_REQUIRE(s->top_k >= 0, context, HEED_E_ARGUMENT, "top-k out of range (got %lld, allowed 0 or more)", (long long)s->top_k);
  HD_REQUIRE(s->top_p >= 0 && s->top_p <= 1, context, HEED_E_ARGUMENT, "top-p out of range (got %g, allowed 0..1)", s->top_p);
  HD_REQUIRE(s->min_p >= 0 && s->min_p <= 1, context, HEED_E_ARGUMENT, "min-p out of range (got %g, allowed 0..1)", s->min_p);
  HD_REQUIRE(s->repetition_penalty >= 0 && s->repetition_penalty <= 1e6, context, HEED_E_ARGUMENT,
             "repetition penalty out of range (got %g, allowed 0..1e6)", s->repetition_penalty);
  HD_REQUIRE(s->repetition_window >= 0, context, HEED_E_ARGUMENT, "repetition window out of range (got %lld, allowed 0 or more)",
             (long long)s->repetition_window);
  bool finite = false;
  for (int64_t i = 0; i < vocabulary; i++) {
    HD_REQUIRE(!isnan(logits[i]), context, HEED_E_ARGUMENT, "logits hold NaN (id %lld)", (long long)i);
    HD_REQUIRE(logits[i] < INFINITY, context, HEED_E_ARGUMENT, "logits hold infinity (id %lld)", (long long)i);
    finite |= logits[i] > -INFINITY;
  }
  HD_REQUIRE(finite, context, HEED_E_ARGUMENT, "every logit is minus infinity");
  for (int64_t i = 0; i < count; i++)
    HD_REQUIRE(history[i] >= 0 && history[i] < vocabulary, context, HEED_E_ARGUMENT,
               "an id of the history is outside the vocabulary (got %d)", (int)history[i]);
  return HEED_OK;
}

/* Each token of the window once, however often it stands there: the penalised value comes from the logits, not from what is there already. */
static void penalise(candidate *candidates, const heed_sampling *s, const float *logits, const int32_t *history, int64_t count) {
  if (s->repetition_penalty == 0 || s->repetition_penalty == 1) return;
  int64_t window = s->repetition_window ? s->repetition_window : REPETITION_WINDOW;
  for (int64_t i = HD_MAX(0, count - window); i < count; i++) {
    double logit = logits[history[i]];
    candidates[history[i]].logit = (float)(logit > 0 ? logit / s->repetition_penalty : logit * s->repetition_penalty);
  }
}

static candidate likeliest(const candidate *candidates, int64_t n) {
  candidate best = candidates[0];
  for (int64_t i = 1; i < n; i++)
    if (likelier(candidates[i], best)) best = candidates[i];
  return best;
}

/* exp((logit − best) / temperature): 1 for the likeliest. */
static double weight_of(candidate c, candidate best, double temperature) {
  return exp(((double)c.logit - (double)best.logit) / temperature);
}

static int32_t draw(candidate *heap, int64_t n, const heed_sampling *s, int64_t step) {
  for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(heap, n, i);
  const candidate best = heap[0];
  // taken [left, n): the likeliest is the last, and so on down.
  int64_t keep = s->top_k ? HD_MIN(s->top_k, n) : n, left = n;
  bool cut_k = keep < n;
  bool cut_p = s->top_p > 0 && s->top_p < 1;
  bool cut_min = s->min_p > 0;

  double mass = 0;
  if (cut_k)
    for (; left > n - keep; left--) {
      take_top(heap, left);
      mass += weight_of(heap[left - 1], best, s->temperature);
    }
  else
    for (int64_t i = 0; i < n; i++) mass += weight_of(heap[i], best, s->temperature);

  // top-p: the fewest whose share reaches p. min-p: those at least min_p as likely as the likeliest.
  double kept = 0, drawn = hd_philox_uniform(s->seed, SAMPLING_STREAM, (uint64_t)step);
  int64_t taken = 0;
  if (cut_p || cut_min) {
    for (; taken < keep; taken++) {
      if (n - taken - 1 < left) take_top(heap, left--);
      double w = weight_of(heap[n - taken - 1], best, s->temperature);
      if (cut_min && w < s->min_p && taken) break;
      if (cut_p && taken && kept >= s->top_p * mass) break;
      kept += w;
    }
    keep = taken, mass = kept;
  }

  double reached = 0, goal = drawn * mass;
  for (int64_t i = 0; i < keep; i++) {
    if (n - i - 1 < left) take_top(heap, left--);
    reached += weight_of(heap[n - i - 1], best, s->temperature);
    if (reached > goal) return heap[n - i - 1].id;
  }
  return best.id; // rounding left the goal just beyond the sum
}

heed_status heed_sample(heed_context *context, const heed_sampling *given, const float *logits, int64_t vocabulary, const int32_t *history,
                        int64_t count, int64_t step, int32_t *id) {
  if (!context) return HEED_E_ARGUMENT;
  heed_sampling s = {.size = sizeof s};
  HD_TRY(hd_options_read(context, "heed_sampling", given, &s, sizeof s));
  HD_TRY(check(context, &s, logits, vocabulary, history, count, step, id));
  candidate *candidates;
  HD_TRY(hd_allocate(context, "sampling candidates", vocabulary, sizeof *candidates, &candidates));
  for (int64_t i = 0; i < vocabulary; i++) candidates[i] = (candidate){logits[i], (int32_t)i};
  penalise(candidates, &s, logits, history, count);
  *id = s.temperature == 0 ? likeliest(candidates, vocabulary).id : draw(candidates, vocabulary, &s, step);
  hd_release(context, candidates, vocabulary, sizeof *candidates);
  return HEED_OK;
}
