/* align.c: `heed align`: which word of a source each word of a target was written from, by the attention of the decoder; and how well each head tells. */
#include "examples.h"
#include "json.h"
#include "output.h"
#include "record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
  common_values common;
  const char *model, *source, *target, *reference, *form;
  examples_values which;
  int64_t layer, head, batch;
  bool rank, best, by_value;
} values;

/* Weights of a layer and a head; −1: the mean of all. */
typedef struct place {
  int64_t layer, head;
} place;

typedef struct aligning {
  const values *v;
  translator t;
  examples examples;
  sequences sources, targets; /* as the model reads and writes them, with what stands around them */
  heed_tokenizer_info info;   /* of sources */
  heed_link *links;           /* [longest target] */
} aligning;

/* ---- what is aligned --------------------------------------------------------------------------------------------------------------------- */

static int open_examples(aligning *a) {
  const values *v = a->v;
  int code = EXIT_OK;
  if (v->source) examples_of_texts("SOURCE", v->source, v->target, &a->examples);
  else TRY(examples_open(a->t.m.context, v->model, &v->which, (uint64_t)v->common.seed, &a->examples));
  if (v->reference) TRY(examples_read_links(a->t.m.context, v->reference, &a->examples));
  for (int64_t i = 0; i < a->examples.count; i++)
    TRY(translator_read_example(&a->t, &a->examples, &a->examples.items[i], &a->sources, &a->targets));
  if (v->source && !v->target) TRY(translator_write(&a->t, &a->sources, &a->targets));
  int64_t longest = 0;
  for (int64_t i = 0; i < a->targets.count; i++)
    if (a->targets.begin[i + 1] - a->targets.begin[i] > longest) longest = a->targets.begin[i + 1] - a->targets.begin[i];
  a->links = allocate("links", longest, sizeof *a->links);
done:
  return code;
}

static int weigh(const aligning *a, place at, heed_translations **out) {
  const heed_sources sources = sequences_view(&a->sources), targets = sequences_view(&a->targets);
  const heed_translate_options options = {.size = sizeof options,
                                          .batch = a->v->batch,
                                          .targets = &targets,
                                          .want_weights = true,
                                          .by_value = a->v->by_value,
                                          .has_layer = at.layer >= 0,
                                          .layer = at.layer >= 0 ? at.layer : 0,
                                          .has_head = at.head >= 0,
                                          .head = at.head >= 0 ? at.head : 0};
  return check(a->t.m.context, heed_translate(a->t.m.context, a->t.m.model, &sources, &options, out));
}

/* A pair's weights, without what the tokenizer puts around a source and without the end of the target. */
typedef struct matrix {
  const float *weights; /* of the first own token */
  int64_t targets, sources, stride;
  const int32_t *target_ids, *source_ids;
} matrix;

static matrix matrix_of(const aligning *a, const float *weights, int64_t i) {
  const int64_t begin = a->sources.begin[i], stride = a->sources.begin[i + 1] - begin, before = a->info.before_count;
  const int32_t *target = a->targets.ids + a->targets.begin[i];
  const int64_t count = a->targets.begin[i + 1] - a->targets.begin[i];
  const bool ended = count > 0 && target[count - 1] == a->t.info.end;
  return (matrix){.weights = weights + before,
                  .targets = count - ended,
                  .sources = stride - before - a->info.after_count,
                  .stride = stride,
                  .target_ids = target,
                  .source_ids = a->sources.ids + begin + before};
}

/* The strongest source of each target. Returns how many there are. */
static int64_t link(const matrix *m, heed_link *links) {
  for (int64_t i = 0; i < m->targets; i++)
    links[i] = (heed_link){(int32_t)(m->sources > 0 ? likeliest(m->weights + i * m->stride, m->sources) : 0), (int32_t)i, false};
  return m->sources > 0 ? m->targets : 0;
}

/* ---- ranking ------------------------------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
  place at;
  int64_t covered, sources, forward, steps;
  heed_alignment_score score; /* against the reference */
  double coverage, monotonicity;
} ranked;

/* Coverage: how many sources are the strongest of some target. Monotonicity: how many steps from target to target do not go back. */
static int rank_pair(const aligning *a, const matrix *m, const example *e, ranked *r) {
  const int64_t count = link(m, a->links);
  bool *covered = allocate("sources", m->sources, sizeof *covered);
  for (int64_t i = 0; i < count; i++) {
    r->covered += !covered[a->links[i].source];
    covered[a->links[i].source] = true;
    r->forward += i > 0 && a->links[i].source >= a->links[i - 1].source;
  }
  r->sources += m->sources;
  r->steps += count > 0 ? count - 1 : 0;
  free(covered);
  if (!e->has_links) return EXIT_OK;
  return check(a->t.m.context, heed_alignment_add(a->t.m.context, a->links, count, e->links, e->link_count, &r->score));
}

/* The mean of `count` matrices that lie one behind another. */
static void mean_of(const float *weights, int64_t count, int64_t floats, float *mean) {
  for (int64_t i = 0; i < floats; i++) {
    double sum = 0;
    for (int64_t k = 0; k < count; k++) sum += (double)weights[k * floats + i];
    mean[i] = (float)(sum / (double)count);
  }
}

/* What every place makes of a pair whose heads have just been recorded. */
static int rank_places(const aligning *a, const recording *r, int64_t number, ranked *all, int64_t count) {
  const int64_t heads = r->record.heads, floats = r->record.queries * r->record.keys;
  float *mean = allocate("a mean", floats, sizeof *mean);
  int code = EXIT_OK;
  for (ranked *one = all; one < all + count && code == EXIT_OK; one++) {
    const int64_t first = one->at.layer < 0 ? 0 : one->at.layer * heads;
    const float *weights = r->weights + (first + (one->at.head < 0 ? 0 : one->at.head)) * floats;
    if (one->at.head < 0) {
      mean_of(weights, one->at.layer < 0 ? r->record.layers * heads : heads, floats, mean);
      weights = mean;
    }
    const matrix m = matrix_of(a, weights, number);
    code = rank_pair(a, &m, &a->examples.items[number], one);
  }
  free(mean);
  return code;
}

static int rank_pairs(const aligning *a, ranked *all, int64_t count) {
  recording r;
  int code;
  TRY(record_begin(&a->t, NULL, NULL, a->v->by_value, &r));
  for (int64_t i = 0; i < a->examples.count; i++) {
    TRY(record_pair(&a->t, &a->sources, &a->targets, i, &r));
    TRY(rank_places(a, &r, i, all, count));
    if (!progress("align", i + 1, a->examples.count)) TRY(EXIT_INTERRUPTED);
  }
  for (ranked *one = all; one < all + count; one++) {
    one->coverage = one->sources ? (double)one->covered / (double)one->sources : 0;
    one->monotonicity = one->steps ? (double)one->forward / (double)one->steps : 1;
  }
done:
  record_free(&r);
  return code;
}

static int compare_ranked(const void *x, const void *y) {
  const ranked *a = x, *b = y;
  const double p = a->coverage * a->monotonicity, q = b->coverage * b->monotonicity;
  if (p != q) return p > q ? -1 : 1;
  if (a->at.layer != b->at.layer) return a->at.layer < b->at.layer ? -1 : 1;
  return (a->at.head > b->at.head) - (a->at.head < b->at.head);
}

/* All heads, the mean of each layer where it has several, and the mean of all: the best first. Every pair runs once. */
static int rank_all(const aligning *a, ranked **out, int64_t *count) {
  const int64_t layers = a->t.info.layers, heads = a->t.info.heads;
  *out = allocate("heads", layers * (heads + 1) + 1, sizeof **out);
  *count = 0;
  for (int64_t layer = 0; layer < layers; layer++)
    for (int64_t head = heads > 1 ? -1 : 0; head < heads; head++)
      (*out)[(*count)++] = (ranked){.at = {layer, head}, .score.size = sizeof(*out)->score};
  if (layers > 1) (*out)[(*count)++] = (ranked){.at = {-1, -1}, .score.size = sizeof(*out)->score};
  int code = rank_pairs(a, *out, *count);
  qsort(*out, (size_t)*count, sizeof **out, compare_ranked);
  return code;
}

static void name_of(int64_t number, char text[24]) {
  if (number < 0) strcpy(text, "mean");
  else snprintf(text, 24, "%lld", (long long)number);
}

static void print_ranks(const ranked *all, int64_t count, bool as_json) {
  const bool judged = count > 0 && all[0].score.sure + all[0].score.found > 0;
  json j = {0};
  char layer[24], head[24];
  if (as_json) json_open(&j, NULL, '[');
  else out("layer   head  coverage  monotonicity  product%s\n", judged ? "     AER" : "");
  for (const ranked *r = all; r < all + count; r++) {
    name_of(r->at.layer, layer);
    name_of(r->at.head, head);
    const double product = r->coverage * r->monotonicity;
    if (!as_json) {
      out("%5s  %5s    %.4f        %.4f   %.4f", layer, head, r->coverage, r->monotonicity, product);
      if (judged) out("  %.4f", r->score.error_rate);
      out("\n");
      continue;
    }
    json_open(&j, NULL, '{');
    if (r->at.layer >= 0) json_whole(&j, "layer", r->at.layer);
    if (r->at.head >= 0) json_whole(&j, "head", r->at.head);
    json_number(&j, "coverage", r->coverage);
    json_number(&j, "monotonicity", r->monotonicity);
    json_number(&j, "product", product);
    if (judged) json_number(&j, "alignment_error_rate", r->score.error_rate);
    json_close(&j);
  }
  if (as_json) json_close(&j);
}

/* ---- printing ------------------------------------------------------------------------------------------------------------------------------ */

static const char *shown(const heed_tokenizer *tokenizer, int32_t id, char text[VISIBLE_MAX]) {
  visible_token(heed_token_text(tokenizer, id), text, VISIBLE_MAX);
  return text;
}

static void print_soft(const aligning *a, const matrix *m) {
  char text[VISIBLE_MAX];
  for (int64_t j = 0; j < m->sources; j++) out("\t%s", shown(a->t.tokenizers.source, m->source_ids[j], text));
  out("\n");
  for (int64_t i = 0; i < m->targets; i++) {
    out("%s", shown(a->t.tokenizers.target, m->target_ids[i], text));
    for (int64_t j = 0; j < m->sources; j++) out("\t%.4f", m->weights[i * m->stride + j]);
    out("\n");
  }
}

static void print_hard(const aligning *a, const matrix *m, int64_t count) {
  char target[VISIBLE_MAX], source[VISIBLE_MAX];
  for (int64_t i = 0; i < count; i++) {
    const int32_t from = a->links[i].source;
    out("%s\t%s\t%.4f\n", shown(a->t.tokenizers.target, m->target_ids[i], target),
        shown(a->t.tokenizers.source, m->source_ids[from], source), m->weights[i * m->stride + from]);
  }
}

static void print_pharaoh(const aligning *a, int64_t count) {
  for (int64_t i = 0; i < count; i++) out("%s%d-%d", i ? " " : "", a->links[i].source, a->links[i].target);
  out("\n");
}

static void print_json(const aligning *a, json *j, const matrix *m, int64_t count) {
  json_open(j, NULL, '{');
  json_open(j, "source", '[');
  for (int64_t i = 0; i < m->sources; i++) json_bytes(j, NULL, heed_token_text(a->t.tokenizers.source, m->source_ids[i]));
  json_close(j);
  json_open(j, "target", '[');
  for (int64_t i = 0; i < m->targets; i++) json_bytes(j, NULL, heed_token_text(a->t.tokenizers.target, m->target_ids[i]));
  json_close(j);
  json_open(j, "weights", '[');
  for (int64_t i = 0; i < m->targets; i++) {
    json_open(j, NULL, '[');
    for (int64_t k = 0; k < m->sources; k++) json_number(j, NULL, m->weights[i * m->stride + k]);
    json_close(j);
  }
  json_close(j);
  json_open(j, "links", '[');
  for (int64_t i = 0; i < count; i++) {
    json_open(j, NULL, '[');
    json_whole(j, NULL, a->links[i].source);
    json_whole(j, NULL, a->links[i].target);
    json_close(j);
  }
  json_close(j);
  json_close(j);
}

static int print_alignments(const aligning *a, place at) {
  const char *form = a->v->form;
  heed_translations *all = NULL;
  json j = {0};
  int code = weigh(a, at, &all);
  if (code != EXIT_OK) return code;
  if (a->v->common.json) json_open(&j, NULL, '[');
  for (int64_t i = 0; i < a->examples.count; i++) {
    const matrix m = matrix_of(a, heed_translations_of(all, i, NULL)->weights, i);
    const int64_t count = link(&m, a->links);
    if (i > 0 && !a->v->common.json && strcmp(form, "pharaoh") != 0) out("\n");
    if (a->v->common.json) print_json(a, &j, &m, count);
    else if (!strcmp(form, "soft")) print_soft(a, &m);
    else if (!strcmp(form, "hard")) print_hard(a, &m, count);
    else print_pharaoh(a, count);
  }
  if (a->v->common.json) json_close(&j);
  heed_translations_free(all);
  return EXIT_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------------------- */

static int check_values(const aligning *a) {
  const values *v = a->v;
  const heed_translate_info *info = &a->t.info;
  if (info->layers == 0) return error_of(EXIT_UNSUPPORTED, "%s: does not attend, so there is nothing to align by", a->t.m.info.name);
  if (v->layer >= info->layers)
    return usage_error("--layer: got %lld, allowed 0 to %lld", (long long)v->layer, (long long)info->layers - 1);
  if (v->head >= info->heads) return usage_error("--head: got %lld, allowed 0 to %lld", (long long)v->head, (long long)info->heads - 1);
  if (v->source && (v->which.pairs || v->which.targets))
    return usage_error("--pairs: given together with a sentence (one of them is enough)");
  if ((v->rank || v->best) && (v->layer >= 0 || v->head >= 0))
    return usage_error("--layer and --head name a head, --rank-heads and --best-head look for one");
  return EXIT_OK;
}

static int run(const void *pointer) {
  aligning a = {.v = pointer, .info.size = sizeof a.info};
  ranked *ranks = NULL;
  int64_t count = 0;
  int code;
  TRY(translator_open(&a.v->common, a.v->model, &a.t));
  TRY(check_values(&a));
  TRY(check(a.t.m.context, heed_tokenizer_describe(a.t.tokenizers.source, &a.info)));
  TRY(open_examples(&a));
  place at = {a.v->layer, a.v->head};
  if (a.v->rank || a.v->best) TRY(rank_all(&a, &ranks, &count));
  if (a.v->rank) print_ranks(ranks, count, a.v->common.json);
  if (a.v->best) at = ranks[0].at;
  if (!a.v->rank) TRY(print_alignments(&a, at));
done:
  free(ranks);
  free(a.links);
  examples_free(&a.examples);
  sequences_free(&a.sources);
  sequences_free(&a.targets);
  translator_close(&a.t);
  return code;
}

static const option options[] = {
    OPTION("MODEL", 0, TEXT, "MODEL", model, "a model with an encoder and a decoder that attends", .required = true),
    OPTION("SOURCE", 0, TEXT, NULL, source, "a sentence (default: pairs that were kept from training)"),
    OPTION("TARGET", 0, TEXT, NULL, target, "its translation (default: what the model makes of it)"),
    OPTION("form", 0, CHOICE, NULL, form, "the strongest source of each target, all weights, or 0-0 1-2", .choices = "hard|soft|pharaoh"),
    OPTION("layer", 0, WHOLE, "N", layer, "weights of this layer (default: the mean of all)", .low = 0, .high = 1e6),
    OPTION("head", 0, WHOLE, "N", head, "weights of this head (default: the mean of all)", .low = 0, .high = 1e6),
    OPTION("best-head", 0, FLAG, NULL, best, "weights of the head that --rank-heads puts first, on the same pairs"),
    OPTION("rank-heads", 0, FLAG, NULL, rank, "how well each head aligns, instead of alignments"),
    OPTION("by-value", 0, FLAG, NULL, by_value, "weights as they reach the result: times the lengths of the values"),
    OPTION("pairs", 0, TEXT, "FILE", which.pairs, "pairs to align: SOURCE, tab, TARGET a line; with --targets the sources"),
    OPTION("targets", 0, TEXT, "FILE", which.targets, "the targets, a line each"),
    OPTION("count", 'n', WHOLE, "N", which.count, "pairs of a task (default 2000), or at most so many of a file", .low = 1, .high = 1e9),
    OPTION("reference", 0, TEXT, "FILE", reference,
           "what is right, a line a pair: 0-0 1-2, possible links 0p1; adds the alignment error rate"),
    OPTION("batch", 0, WHOLE, "N", batch, "pairs under way at once (default 32)", .low = 1, .high = 4096),
    {0},
};

const command command_align = {
    .name = "align",
    .summary = "show which words of a source a translation was written from",
    .about =
        "Prints the strongest source token of each target token, by the cross-attention of the decoder when it wrote the target: the "
        "mean of all heads unless --layer, --head or --best-head say otherwise. --rank-heads prints for every head, and for the means, "
        "its coverage (the share of the source's tokens that are the strongest of some target token) and its monotonicity (the share of "
        "steps from one target token to the next that do not go back in the source), ordered by their product; and the alignment error "
        "rate (Och & Ney 2003) where the right alignment is known, from --reference or from the task that the model was trained on. "
        "Order need not be kept in good translations: monotonicity is a measure for transliteration and languages of like order.",
    .examples = "  heed align dates \"jeudi 4 mars 2021\" 2021-03-04\n  heed align dates --rank-heads -n 200\n"
                "  heed align en-es --pairs test.tsv --form pharaoh --best-head\n",
    .options = options,
    .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED,
    .values_size = sizeof(values),
    .defaults = &(const values){.form = "hard", .layer = -1, .head = -1},
    .run = run,
};
