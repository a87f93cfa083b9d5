/* decode.c: from what may follow to whole targets: greedy, beam search and sampling, written once on a stepper.
 *
 * Targets under way share what they have in common: a token is a node that points to the one before it, a target is its last node. Only the log-sum-exp and the likeliest tokens of each row of
 * logits are found, never a row of probabilities. Sums and scores are double: a token's log p is logit − maximum − log Σ e^(logit − maximum), the sum by the kernel whose bits
 * do not depend on the level. */
#include "model.h"
#include "stepper.h"

#include "../kern/kernels.h"

#include <stdatomic.h>

enum { LONGEST_DEFAULT = 256, MOST_WIDTH = 1 << 12 };

/* Sources under way at once, unless a number is given: so many for each thread, and in all. */
enum { BATCH_EACH = 32, BATCH_MOST = 256 };

/* Sources for which a thread is worth decoding alone. */
enum { LEAST_SHARE = 8 };

/* ---- results ------------------------------------------------------------------------------------------------------------------------- */

typedef struct results {
  heed_translation *of; /* [count] */
  int64_t count;
} results;

struct heed_translations {
  heed_context *context;
  hd_arena *arenas; /* [shares]: one for each who decodes, the first also for what follows */
  int shares;
  results *source; /* [sources] */
  int64_t sources;
};

void heed_translations_free(heed_translations *t) {
  if (!t) return;
  for (int i = 0; i < t->shares; i++) hd_arena_free(&t->arenas[i]);
  hd_release(t->context, t->arenas, t->shares, sizeof *t->arenas);
  hd_release(t->context, t, 1, sizeof *t);
}

int64_t heed_translations_sources(const heed_translations *t) { return t ? t->sources : 0; }

const heed_translation *heed_translations_of(const heed_translations *t, int64_t source, int64_t *count) {
  const bool there = t && source >= 0 && source < t->sources;
  if (count) *count = there ? t->source[source].count : 0;
  return there ? t->source[source].of : NULL;
}

/* ---- what is under way --------------------------------------------------------------------------------------------------------------- */

enum { NONE = -1 };

/* A token of a target. `seen` is the row of weights it was written from. */
typedef struct node {
  int64_t before, seen; /* before NONE: the first */
  int32_t id;
} node;

/* A target under way, in a row of the stepper; or a finished one. */
typedef struct target {
  int64_t last; /* its last node; NONE: no token yet */
  int64_t row, count, draws;
  double sum, score;
  bool ended;
} target;

/* A source with its targets. */
typedef struct search {
  int64_t number;             /* of the source */
  target *live, *next, *done; /* [width] each; done in the order of scores */
  int64_t live_count, done_count;
} search;

/* What may come next. `rank` is its place among those of its row. */
typedef struct candidate {
  double sum, log_p;
  float logit;
  int32_t id;
  int64_t rank, parent; /* parent: which of the search's live targets */
} candidate;

typedef struct decoding {
  heed_context *context;
  hd_stepper *stepper;
  const heed_sources *sources;
  heed_translate_options options;
  results *out;                     /* [sources] */
  hd_arena *results;                /* of what it decodes */
  hd_arena arena;                   /* of what follows, but for what grows */
  int64_t width, looked_at, in_row; /* continuations that a step looks at, and how many of them one row may give */
  int64_t step, longest_source;

  search *searches; /* [batch], those under way first */
  int64_t search_count;
  int64_t rows;
  float *logits;          /* [rows,targets] */
  int32_t *ids, *parents; /* [rows] */
  double *log_sum;        /* [rows] maximum + log Σ */
  candidate *found;       /* [rows, in_row] the likeliest of each row */
  int64_t *found_count;   /* [rows] */
  candidate *merged;      /* [width · in_row] */

  node *nodes;
  int64_t node_count, node_room;
  float *weights; /* [rows of all steps, longest_source] */
  int64_t weight_rows, weight_room;
} decoding;

/* ---- what may follow a row ------------------------------------------------------------------------------------------------------------- */

/* The only token that may come next, or −1. */
static int32_t forced(const decoding *d) {
  const hd_target_rules *rules = &d->stepper->rules;
  if (d->step + 1 == d->options.most && rules->forced_last >= 0) return rules->forced_last;
  return d->step == 0 ? rules->forced_first : -1;
}

/* Tokens whose largest logit is looked at before they are, one by one: in most stretches of a long row none is likely enough. */
enum { STRETCH = 128 };

/* The likeliest tokens, likeliest first, among equals the lower id: each that is likelier than the last of them is put in its place, which few of a long row are. */
static int64_t likeliest(const hd_kernels *kernels, const float *logits, int64_t n, int64_t most, candidate *to) {
  int64_t count = 0;
  float least = -INFINITY;
  for (int64_t id = 0; id < n; id++) {
    if (id % STRETCH == 0 && kernels->row_max(logits + id, HD_MIN(STRETCH, n - id)) <= least) {
      id += STRETCH - 1;
      continue;
    }
    if (logits[id] <= least) continue;
    int64_t at = count < most ? count++ : most - 1;
    for (; at > 0 && to[at - 1].logit < logits[id]; at--) to[at] = to[at - 1];
    to[at] = (candidate){.logit = logits[id], .id = (int32_t)id};
    if (count == most) least = to[most - 1].logit;
  }
  return count;
}

/* The denominator first, then what is forbidden goes, as in transformers: what is left does not share out the rest. */
static void look_at_row(void *argument, int64_t row, int worker) {
  (void)worker;
  decoding *d = argument;
  const hd_target_rules *rules = &d->stepper->rules;
  const int64_t targets = d->stepper->targets;
  float *logits = d->logits + row * targets;
  const hd_kernels *kernels = hd_kernels_of(d->context);
  hd_softmax_sums sums;
  kernels->softmax_sums(logits, targets, &sums);
  d->log_sum[row] = (double)sums.maximum + log(sums.sum);
  if (d->options.targets) return; // each counts as the model's softmax has it
  for (int64_t i = 0; i < rules->never_count; i++) logits[rules->never[i]] = -INFINITY;
  if (d->options.sample) return;
  candidate *found = d->found + row * d->in_row;
  const int32_t only = forced(d);
  if (only >= 0) found[0] = (candidate){.id = only};
  d->found_count[row] = only >= 0 ? 1 : likeliest(kernels, logits, targets, d->in_row, found);
  for (int64_t i = 0; i < d->found_count[row]; i++) {
    found[i].log_p = only >= 0 ? 0 : (double)found[i].logit - d->log_sum[row];
    found[i].rank = i;
  }
}

static heed_status look(decoding *d) {
  hd_parallel(d->context, d->rows, look_at_row, d);
  for (int64_t s = 0; s < d->search_count; s++)
    for (int64_t i = 0; i < d->searches[s].live_count; i++) // NaN makes the sum NaN, and so does infinity
      HD_REQUIRE(isfinite(d->log_sum[d->searches[s].live[i].row]), d->context, HEED_E_ARGUMENT,
                 "%s: source %lld: the logits of token %lld are not finite", d->stepper->name, (long long)d->searches[s].number,
                 (long long)d->step);
  return HEED_OK;
}

/* ---- targets that grow and end ---------------------------------------------------------------------------------------------------------- */

static bool is_end(const decoding *d, int32_t id) {
  const hd_target_rules *rules = &d->stepper->rules;
  for (int64_t i = 0; i < rules->end_count; i++)
    if (rules->ends[i] == id) return true;
  return false;
}

static double scored(const decoding *d, double sum, int64_t count) { return sum / pow((double)count, d->options.length_penalty); }

/* The target with one token more. Nodes have room. */
static target grown(decoding *d, const target *from, int32_t id, double log_p) {
  target t = *from;
  d->nodes[d->node_count] = (node){.before = from->last, .seen = d->weight_rows + from->row, .id = id};
  t.last = d->node_count++;
  t.count++;
  t.sum += log_p;
  t.ended = is_end(d, id);
  return t;
}

/* Among the finished, if it is good enough. */
static void finish(decoding *d, search *s, target t) {
  t.score = scored(d, t.sum, t.count);
  int64_t at = s->done_count;
  while (at > 0 && s->done[at - 1].score < t.score) at--;
  if (at == d->width) return;
  s->done_count = HD_MIN(s->done_count + 1, d->width);
  memmove(s->done + at + 1, s->done + at, (size_t)(s->done_count - at - 1) * sizeof *s->done);
  s->done[at] = t;
}

static int by_sum(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->sum != b->sum) return a->sum > b->sum ? -1 : 1;
  if (a->parent != b->parent) return a->parent < b->parent ? -1 : 1;
  return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int64_t merge(decoding *d, const search *s) {
  int64_t count = 0;
  for (int64_t i = 0; i < s->live_count; i++) {
    const int64_t row = s->live[i].row;
    for (int64_t k = 0; k < d->found_count[row]; k++) {
      candidate *c = &d->merged[count++];
      *c = d->found[row * d->in_row + k];
      c->parent = i;
      c->sum = s->live[i].sum + c->log_p;
    }
  }
  qsort(d->merged, (size_t)count, sizeof *d->merged, by_sum);
  return HD_MIN(count, d->looked_at);
}

/* Whether nothing better can come, by the rule that was asked for. */
static bool is_over(const decoding *d, const search *s) {
  if (s->live_count == 0) return true;
  if (s->done_count < d->width) return false;
  if (d->options.early == HEED_EARLY_FIRST || d->width == 1) return true;
  const bool longest = d->options.early == HEED_EARLY_NEVER && d->options.length_penalty > 0;
  return !(scored(d, s->live[0].sum, longest ? d->options.most : d->step + 1) > s->done[d->width - 1].score);
}

static void search_step(decoding *d, search *s) {
  const int64_t count = merge(d, s);
  int64_t next = 0;
  for (int64_t i = 0; i < count; i++) {
    const candidate *c = &d->merged[i];
    const bool last = d->step + 1 == d->options.most || is_end(d, c->id);
    if (last ? i >= d->width : next == d->width) continue;
    target t = grown(d, &s->live[c->parent], c->id, c->log_p);
    if (last) finish(d, s, t);
    else s->next[next++] = t;
  }
  memcpy(s->live, s->next, (size_t)next * sizeof *s->live);
  s->live_count = next;
  if (is_over(d, s)) s->live_count = 0;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------------------------------- */

/* The tokens of a target so far, for the penalty of repetition. */
static void write_ids(const decoding *d, const target *t, int32_t *ids) {
  for (int64_t at = t->last, i = t->count; at != NONE; at = d->nodes[at].before) ids[--i] = d->nodes[at].id;
}

static heed_status draw(decoding *d, const search *s, const target *t, int32_t *id, double *log_p) {
  const int64_t targets = d->stepper->targets;
  const float *logits = d->logits + t->row * targets;
  const int64_t number = d->options.numbers ? d->options.numbers[s->number] : s->number;
  heed_sampling sampling = d->options.sampling;
  int32_t *history;
  sampling.size = sizeof sampling;
  sampling.seed += 0x9E3779B97F4A7C15u * (uint64_t)(number * d->width + t->draws + 1);
  HD_TRY(hd_allocate(d->context, "the tokens of a target", t->count, sizeof *history, &history));
  write_ids(d, t, history);
  heed_status status = HEED_OK;
  if ((*id = forced(d)) < 0) status = heed_sample(d->context, &sampling, logits, targets, history, t->count, d->step, id);
  if (status == HEED_OK) *log_p = forced(d) >= 0 ? 0 : (double)logits[*id] - d->log_sum[t->row];
  hd_release(d->context, history, t->count, sizeof *history);
  return status;
}

static heed_status sample_step(decoding *d, search *s) {
  int64_t next = 0;
  for (int64_t i = 0; i < s->live_count; i++) {
    int32_t id;
    double log_p;
    HD_TRY(draw(d, s, &s->live[i], &id, &log_p));
    target t = grown(d, &s->live[i], id, log_p);
    if (t.ended || d->step + 1 == d->options.most) finish(d, s, t);
    else s->live[next++] = t;
  }
  s->live_count = next;
  return HEED_OK;
}

/* ---- targets that are given --------------------------------------------------------------------------------------------------------------- */

static void repeat_step(decoding *d, search *s) {
  const heed_sources *given = d->options.targets;
  const int64_t from = given->begin[s->number], count = given->begin[s->number + 1] - from;
  const int32_t id = given->ids[from + d->step];
  const int64_t row = s->live[0].row;
  const target t = grown(d, &s->live[0], id, (double)d->logits[row * d->stepper->targets + id] - d->log_sum[row]);
  s->live[0] = t;
  if (d->step + 1 < count) return;
  finish(d, s, t);
  s->live_count = 0;
}

/* ---- a batch ----------------------------------------------------------------------------------------------------------------------------- */

/* Every target of every search into a row of its own, one behind another. */
static heed_status choose(decoding *d) {
  d->rows = 0;
  for (int64_t s = 0; s < d->search_count; s++)
    for (int64_t i = 0; i < d->searches[s].live_count; i++) {
      target *t = &d->searches[s].live[i];
      d->parents[d->rows] = (int32_t)t->row;
      d->ids[d->rows] = t->last == NONE ? d->stepper->rules.start : d->nodes[t->last].id;
      t->row = d->rows++;
    }
  return d->rows ? d->stepper->kind->choose(d->stepper, d->rows, d->parents) : HEED_OK;
}

static heed_status advance(decoding *d) {
  HD_TRY(
      hd_grow(d->context, "tokens under way", &d->nodes, &d->node_room, d->node_count + d->search_count * d->looked_at, sizeof *d->nodes));
  hd_step_weights weights = {.layer = d->options.has_layer ? d->options.layer : NONE,
                             .head = d->options.has_head ? d->options.head : NONE,
                             .by_value = d->options.by_value,
                             .stride = d->longest_source};
  if (d->options.want_weights) {
    HD_TRY(hd_grow(d->context, "weights of tokens under way", &d->weights, &d->weight_room, (d->weight_rows + d->rows) * weights.stride,
                   sizeof *d->weights));
    weights.to = d->weights + d->weight_rows * weights.stride;
  }
  HD_TRY(d->stepper->kind->step(d->stepper, d->ids, d->logits, weights.to ? &weights : NULL));
  HD_TRY(look(d));
  for (int64_t s = 0; s < d->search_count; s++) {
    if (d->options.targets) repeat_step(d, &d->searches[s]);
    else if (!d->options.sample) search_step(d, &d->searches[s]);
    else HD_TRY(sample_step(d, &d->searches[s]));
  }
  d->weight_rows += d->options.want_weights ? d->rows : 0;
  return HEED_OK;
}

static heed_status keep_weights(decoding *d, const target *t, int64_t length, heed_translation *out) {
  float *to;
  if (!d->options.want_weights) return HEED_OK;
  HD_TRY(hd_arena_allocate(d->results, d->context, "weights of a result", t->count * length, sizeof *to, &to));
  for (int64_t at = t->last, i = t->count - 1; at != NONE; at = d->nodes[at].before, i--)
    memcpy(to + i * length, d->weights + d->nodes[at].seen * d->longest_source, (size_t)length * sizeof *to);
  out->weights = to;
  return HEED_OK;
}

static heed_status keep(decoding *d, const search *s) {
  results *r = &d->out[s->number];
  const int64_t count = HD_MIN(s->done_count, d->options.best), *begin = d->sources->begin + s->number;
  HD_TRY(hd_arena_allocate(d->results, d->context, "results", count, sizeof *r->of, &r->of));
  for (; r->count < count; r->count++) {
    const target *t = &s->done[r->count];
    heed_translation *out = &r->of[r->count];
    int32_t *ids;
    HD_TRY(hd_arena_allocate(d->results, d->context, "results", t->count, sizeof *ids, &ids));
    write_ids(d, t, ids);
    *out = (heed_translation){.ids = ids, .count = t->count, .score = t->score, .log_probability = t->sum, .ended = t->ended};
    HD_TRY(keep_weights(d, t, begin[1] - begin[0], out));
  }
  return HEED_OK;
}

/* Searches that are over give their results and make room. */
static heed_status collect(decoding *d) {
  int64_t left = 0;
  for (int64_t s = 0; s < d->search_count; s++) {
    const search here = d->searches[s];
    if (here.live_count == 0) HD_TRY(keep(d, &here));
    else if (left++ != s) {
      d->searches[s] = d->searches[left - 1]; // so that no memory is lost
      d->searches[left - 1] = here;
    }
  }
  d->search_count = left;
  return HEED_OK;
}

/* The sources that order[0..count) names, to the stepper. */
static heed_status begin(decoding *d, const int64_t *order, int64_t count) {
  const heed_sources *all = d->sources;
  int64_t total = 0, *offsets = NULL;
  int32_t *ids = NULL;
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count; i++) total += all->begin[order[i] + 1] - all->begin[order[i]];
  HD_TRY_DONE(hd_allocate(d->context, "sources", count + 1, sizeof *offsets, &offsets));
  HD_TRY_DONE(hd_allocate(d->context, "sources", total, sizeof *ids, &ids));
  offsets[0] = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t from = all->begin[order[i]], n = all->begin[order[i] + 1] - from;
    memcpy(ids + offsets[i], all->ids + from, (size_t)n * sizeof *ids);
    offsets[i + 1] = offsets[i] + n;
  }
  HD_TRY_DONE(d->stepper->kind->start(d->stepper, &(heed_sources){ids, offsets, count}));
done:
  hd_release(d->context, ids, ids ? total : 0, sizeof *ids);
  hd_release(d->context, offsets, offsets ? count + 1 : 0, sizeof *offsets);
  return status;
}

/* The sources order[0..count), which are sorted by length, all at once. */
static heed_status decode_batch(decoding *d, const int64_t *order, int64_t count) {
  d->longest_source = d->sources->begin[order[0] + 1] - d->sources->begin[order[0]];
  d->node_count = d->weight_rows = d->step = 0;
  d->search_count = count;
  for (int64_t i = 0; i < count; i++) {
    search *s = &d->searches[i];
    s->number = order[i];
    s->live_count = d->options.sample ? d->width : 1; // what begins alike would stay alike, unless it is drawn
    s->done_count = 0;
    for (int64_t k = 0; k < s->live_count; k++) s->live[k] = (target){.last = NONE, .row = i, .draws = k};
  }
  HD_TRY(begin(d, order, count));
  for (; d->search_count > 0; d->step++) {
    HD_TRY(choose(d));
    HD_TRY(advance(d));
    HD_TRY(collect(d));
  }
  return HEED_OK;
}

/* ---- all sources ------------------------------------------------------------------------------------------------------------------------- */

static heed_status check_weights(const hd_stepper *stepper, const heed_translate_options *o) {
  if (!o->want_weights) return HEED_OK;
  HD_REQUIRE(stepper->layers > 0, stepper->context, HEED_E_UNSUPPORTED, "%s: it has no attention whose weights could be shown",
             stepper->name);
  if (o->has_layer) HD_TRY(hd_check_range(stepper->context, "layer", o->layer, 0, stepper->layers - 1));
  if (o->has_head) HD_TRY(hd_check_range(stepper->context, "head", o->head, 0, stepper->heads - 1));
  return HEED_OK;
}

/* Checks the options and fills what is left to the model. */
static heed_status finish_options(const hd_stepper *stepper, heed_translate_options *o) {
  heed_context *context = stepper->context;
  HD_TRY(hd_check_range(context, "width", o->width, 0, MOST_WIDTH));
  HD_TRY(hd_check_range(context, "best", o->best, 0, MOST_WIDTH));
  HD_TRY(hd_check_range(context, "most", o->most, 0, stepper->longest));
  HD_TRY(hd_check_range(context, "batch", o->batch, 0, MOST_WIDTH));
  HD_REQUIRE(!o->has_length_penalty || (fabs(o->length_penalty) <= 100), context, HEED_E_ARGUMENT,
             "length penalty: got %g, allowed -100 to 100", o->length_penalty);
  HD_REQUIRE(o->early >= HEED_EARLY_LIKELY && o->early <= HEED_EARLY_NEVER, context, HEED_E_ARGUMENT,
             "early stopping: there is no such kind");
  if (!o->has_length_penalty) o->length_penalty = 1;
  if (!o->best) o->best = 1;
  if (!o->width || o->sample) o->width = o->sample ? o->best : 1;
  if (!o->most) o->most = HD_MIN(stepper->longest, LONGEST_DEFAULT);
  HD_REQUIRE(o->best <= o->width, context, HEED_E_ARGUMENT, "best: got %lld, allowed up to the width of the search, %lld",
             (long long)o->best, (long long)o->width);
  return check_weights(stepper, o);
}

/* Sequences within the limits of a side. */
static heed_status check_sequences(const hd_stepper *stepper, const char *what, const heed_sources *all, int64_t vocabulary,
                                   int64_t longest) {
  heed_context *context = stepper->context;
  HD_REQUIRE(all && all->count >= 0 && (all->count == 0 || (all->begin && all->ids)), context, HEED_E_ARGUMENT, "there are no %ss", what);
  for (int64_t i = 0; i < all->count; i++) {
    const int64_t from = all->begin[i], n = all->begin[i + 1] - from;
    HD_REQUIRE(from >= 0 && n >= 1, context, HEED_E_ARGUMENT, "%s: %s %lld is empty", stepper->name, what, (long long)i);
    HD_REQUIRE(n <= longest, context, HEED_E_ARGUMENT, "%s: %s %lld has %lld tokens, allowed %lld", stepper->name, what, (long long)i,
               (long long)n, (long long)longest);
    for (int64_t k = 0; k < n; k++)
      HD_REQUIRE(all->ids[from + k] >= 0 && all->ids[from + k] < vocabulary, context, HEED_E_ARGUMENT,
                 "%s: %s %lld: token %lld is %d, allowed 0 to %lld", stepper->name, what, (long long)i, (long long)k,
                 (int)all->ids[from + k], (long long)vocabulary - 1);
  }
  return HEED_OK;
}

static heed_status check_given(const hd_stepper *stepper, const heed_sources *sources, const heed_translate_options *o) {
  if (!o->targets) return HEED_OK;
  HD_REQUIRE(o->width == 1 && !o->sample, stepper->context, HEED_E_ARGUMENT, "targets that are given are neither searched for nor drawn");
  HD_TRY(check_sequences(stepper, "target", o->targets, stepper->targets, stepper->longest));
  HD_REQUIRE(o->targets->count == sources->count, stepper->context, HEED_E_ARGUMENT, "%lld targets of %lld sources",
             (long long)o->targets->count, (long long)sources->count);
  return HEED_OK;
}

typedef struct measured {
  int64_t number, length;
} measured;

static int by_length(const void *left, const void *right) {
  const measured *a = left, *b = right;
  if (a->length != b->length) return a->length > b->length ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static heed_status make_room(decoding *d, int64_t batch) {
  heed_context *context = d->context;
  const int64_t width = d->width, rows = batch * width, targets = d->stepper->targets;
  hd_arena *arena = &d->arena;
  HD_TRY(hd_arena_allocate(arena, context, "searches", batch, sizeof *d->searches, &d->searches));
  for (int64_t i = 0; i < batch; i++) {
    search *s = &d->searches[i];
    HD_TRY(hd_arena_allocate(arena, context, "targets under way", 3 * width, sizeof *s->live, &s->live));
    s->next = s->live + width;
    s->done = s->next + width;
  }
  HD_TRY(hd_arena_allocate(arena, context, "logits", rows, (size_t)targets * sizeof *d->logits, &d->logits));
  HD_TRY(hd_arena_allocate(arena, context, "rows under way", rows, sizeof *d->ids, &d->ids));
  HD_TRY(hd_arena_allocate(arena, context, "rows under way", rows, sizeof *d->parents, &d->parents));
  HD_TRY(hd_arena_allocate(arena, context, "rows under way", rows, sizeof *d->log_sum, &d->log_sum));
  HD_TRY(hd_arena_allocate(arena, context, "rows under way", rows, sizeof *d->found_count, &d->found_count));
  HD_TRY(hd_arena_allocate(arena, context, "what may come next", rows * d->in_row, sizeof *d->found, &d->found));
  return hd_arena_allocate(arena, context, "what may come next", width * d->in_row, sizeof *d->merged, &d->merged);
}

/* ---- who decodes what ---------------------------------------------------------------------------------------------------------------------- */

/* All sources, cut into batches of one size, which are decoded one by one, or by several threads, each alone with a stepper of its own: so they wait for each other at the end only. */
typedef struct team {
  heed_context *context;
  const heed_sources *sources;
  heed_translations *out;
  hd_arena arena;
  int64_t *order; /* [sources] numbers of sources, the longest first */
  int64_t at_once, batches;
  _Atomic int64_t next; /* batch */
  int64_t end;          /* of the batches that are to be decoded now */
  struct member *members;
  int count;
} team;

typedef struct member {
  decoding d;
  heed_context own; /* where there are several */
  heed_status status;
} member;

/* Sources of like length are translated together: less padding, and they end at about the same time. */
static heed_status sort_sources(team *t) {
  const int64_t count = t->sources->count;
  measured *all;
  HD_TRY(hd_arena_allocate(&t->arena, t->context, "the order of sources", count, sizeof *t->order, &t->order));
  HD_TRY(hd_arena_allocate(&t->arena, t->context, "the order of sources", count, sizeof *all, &all));
  for (int64_t i = 0; i < count; i++) all[i] = (measured){i, t->sources->begin[i + 1] - t->sources->begin[i]};
  qsort(all, (size_t)count, sizeof *all, by_length);
  for (int64_t i = 0; i < count; i++) t->order[i] = all[i].number;
  return HEED_OK;
}

/* How many decode, and batches of how many sources. */
static void share_out(team *t, const hd_stepper *stepper, int64_t batch) {
  const int threads = stepper->kind->again ? t->context->threads : 1;
  const int64_t count = t->sources->count, under_way = HD_MIN(count, batch ? batch : HD_MIN(BATCH_EACH * threads, BATCH_MOST));
  t->count = (int)HD_CLAMP(under_way / LEAST_SHARE, 1, threads);
  // The same for all: batches of one size, as many for each.
  t->batches = hd_ceil_div(hd_ceil_div(count, HD_MAX(under_way / t->count, 1)), t->count) * t->count;
  t->at_once = HD_MAX(hd_ceil_div(count, t->batches), 1);
  t->batches = hd_ceil_div(count, t->at_once);
}

/* The batches that nobody has taken. */
static heed_status decode_batches(team *t, decoding *d) {
  for (int64_t i; (i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->end;) {
    const int64_t first = i * t->at_once;
    HD_TRY(decode_batch(d, t->order + first, HD_MIN(t->at_once, t->sources->count - first)));
  }
  return HEED_OK;
}

static void decode_share(void *argument, int64_t i, int worker) {
  (void)worker;
  team *t = argument;
  if (t->members[i].status == HEED_OK) t->members[i].status = decode_batches(t, &t->members[i].d);
}

static void decode_alone(void *argument) { decode_share(argument, 0, 0); }

/* All batches; where somebody wants to know how far it is, in turns of one batch for each. */
static heed_status decode_all(team *t) {
  heed_context *context = t->context;
  const int64_t turn = context->progress ? t->count : t->batches;
  for (t->end = 0; t->end < t->batches;) {
    HD_TRY(hd_progress(context, "translate", t->end * t->at_once, t->sources->count));
    atomic_store(&t->next, t->end);
    t->end = HD_MIN(t->end + turn, t->batches);
    if (t->count > 1) hd_parallel(context, t->count, decode_share, t);
    else hd_with_crew(context, decode_alone, t); // a step hands out dozens of small pieces of work
    for (member *m = t->members; m < t->members + t->count; m++)
      if (m->status != HEED_OK) return m->d.context == context ? m->status : hd_fail(context, m->status, "%s", m->own.error);
  }
  return hd_progress(context, "translate", t->sources->count, t->sources->count);
}

static heed_status open_member(team *t, const decoding *common, member *m, hd_arena *results) {
  m->d = *common;
  m->d.out = t->out->source;
  m->d.results = results;
  hd_arena_init(&m->d.arena, t->context);
  if (t->count > 1) {
    m->own = *t->context;
    m->own.threads = 1;
    m->own.progress = NULL;
    m->own.error[0] = 0;
    m->d.context = &m->own;
    m->d.stepper = NULL;
    HD_TRY(common->stepper->kind->again(common->stepper, m->d.context, &m->d.stepper));
  }
  m->d.stepper->most_rows = t->at_once * m->d.width;
  return make_room(&m->d, t->at_once);
}

static void close_member(const team *t, member *m) {
  heed_context *context = m->d.context;
  if (!context) return; // never opened
  hd_release(context, m->d.nodes, m->d.node_room, sizeof *m->d.nodes);
  hd_release(context, m->d.weights, m->d.weight_room, sizeof *m->d.weights);
  hd_arena_free(&m->d.arena);
  if (t->count > 1) hd_stepper_free(m->d.stepper);
}

static heed_status decode_sources(team *t, const decoding *common) {
  const int64_t count = t->sources->count;
  heed_translations *out = t->out;
  HD_TRY(hd_allocate(t->context, "results", t->count, sizeof *out->arenas, &out->arenas));
  for (out->shares = 0; out->shares < t->count; out->shares++) hd_arena_init(&out->arenas[out->shares], t->context);
  HD_TRY(hd_arena_allocate(out->arenas, t->context, "results", count, sizeof *out->source, &out->source));
  out->sources = count;
  if (count == 0) return HEED_OK;
  HD_TRY(sort_sources(t));
  HD_TRY(hd_arena_allocate(&t->arena, t->context, "who decodes", t->count, sizeof *t->members, &t->members));
  heed_status status = HEED_OK;
  for (int i = 0; i < t->count && status == HEED_OK; i++) {
    status = open_member(t, common, &t->members[i], &out->arenas[i]);
    if (status != HEED_OK && t->count > 1) hd_fail(t->context, status, "%s", t->members[i].own.error);
  }
  if (status == HEED_OK) status = decode_all(t);
  for (int i = 0; i < t->count; i++) close_member(t, &t->members[i]);
  return status;
}

heed_status hd_decode(hd_stepper *stepper, const heed_sources *sources, const heed_translate_options *given, heed_translations **out) {
  heed_context *context = stepper->context;
  decoding d = {.context = context, .stepper = stepper, .sources = sources, .options = {.size = sizeof d.options}};
  *out = NULL;
  HD_TRY(hd_options_read(context, "heed_translate_options", given, &d.options, sizeof d.options));
  HD_TRY(finish_options(stepper, &d.options));
  HD_TRY(check_sequences(stepper, "source", sources, stepper->sources, stepper->longest_source));
  HD_TRY(check_given(stepper, sources, &d.options));
  d.width = d.options.width;
  // As many as are sure to hold `width` that do not end.
  d.looked_at = HD_MAX(2, 1 + stepper->rules.end_count) * d.width;
  const bool searches = !d.options.sample && !d.options.targets;
  d.in_row = searches ? HD_MIN(d.looked_at, stepper->targets) : 0;
  team t = {.context = context, .sources = sources};
  HD_TRY(hd_allocate(context, "results", 1, sizeof *t.out, &t.out));
  *t.out = (heed_translations){.context = context};
  hd_arena_init(&t.arena, context);
  share_out(&t, stepper, d.options.batch);
  heed_status status = decode_sources(&t, &d);
  hd_arena_free(&t.arena);
  if (status == HEED_OK) *out = t.out;
  else heed_translations_free(t.out);
  return status;
}

/* HEED_E_UNSUPPORTED where the model has no sources. */
static heed_status open_stepper(heed_context *context, heed_model *model, hd_stepper **out) {
  HD_REQUIRE(model->stepper, context, HEED_E_UNSUPPORTED, "%s: it has no sources to translate: not an encoder-decoder model", model->path);
  return model->stepper(context, model, out);
}

heed_status heed_translate(heed_context *context, heed_model *model, const heed_sources *sources, const heed_translate_options *options,
                           heed_translations **out) {
  hd_stepper *stepper = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(model && out, context, HEED_E_ARGUMENT, "heed_translate: null");
  *out = NULL;
  HD_TRY(open_stepper(context, model, &stepper));
  heed_status status = hd_decode(stepper, sources, options, out);
  hd_stepper_free(stepper);
  return status;
}

heed_status heed_translate_describe(heed_context *context, heed_model *model, heed_translate_info *info) {
  hd_stepper *stepper = NULL;
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(model && info && info->size == sizeof *info, context, HEED_E_ARGUMENT,
             "heed_translate_describe: model or info is null, or its size not set");
  HD_TRY(open_stepper(context, model, &stepper));
  *info = (heed_translate_info){.size = sizeof *info,
                                .layers = stepper->layers,
                                .heads = stepper->heads,
                                .longest_source = stepper->longest_source,
                                .longest = stepper->longest,
                                .start = stepper->rules.start,
                                .end = stepper->rules.end_count > 0 ? stepper->rules.ends[0] : -1};
  hd_stepper_free(stepper);
  return HEED_OK;
}
