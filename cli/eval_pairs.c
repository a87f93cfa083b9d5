/* eval_pairs.c: how well a model translates: the loss of the right targets, how many it writes to the token, BLEU and chrF. */
#include "eval_pairs.h"

#include "json.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct evaluation {
  translator t;
  examples examples;
  sequences sources, targets; /* as the model reads and writes them */
  heed_text *said, *right;
  int64_t exact, tokens;
  double loss; /* of all tokens together, in nats */
  heed_bleu bleu;
  double chrf;
} evaluation;

static int read_examples(evaluation *e) {
  const int64_t count = e->examples.count;
  int code = EXIT_OK;
  for (int64_t i = 0; i < count && code == EXIT_OK; i++) {
    code = translator_read_example(&e->t, &e->examples, &e->examples.items[i], &e->sources, &e->targets);
    if (code == EXIT_OK && !progress("pairs", i + 1, count)) code = EXIT_INTERRUPTED;
  }
  return code;
}

/* What the model makes of the right targets. */
static int measure_loss(evaluation *e, const search_values *search) {
  const heed_sources sources = sequences_view(&e->sources), targets = sequences_view(&e->targets);
  const heed_translate_options options = {.size = sizeof options, .batch = search->batch, .targets = &targets};
  heed_translations *all = NULL;
  int code = check(e->t.m.context, heed_translate(e->t.m.context, e->t.m.model, &sources, &options, &all));
  for (int64_t i = 0; i < sources.count && code == EXIT_OK; i++) {
    const heed_translation *t = heed_translations_of(all, i, NULL);
    e->loss -= t->log_probability;
    e->tokens += t->count;
  }
  heed_translations_free(all);
  return code;
}

static bool is_exact(const evaluation *e, int64_t i, const heed_translation *t) {
  const int64_t from = e->targets.begin[i], count = e->targets.begin[i + 1] - from;
  return t->count == count && memcmp(t->ids, e->targets.ids + from, (size_t)count * sizeof *t->ids) == 0;
}

static int translate(evaluation *e, const search_values *search) {
  const heed_sources sources = sequences_view(&e->sources);
  heed_translate_options options;
  heed_translations *all = NULL;
  int code;
  TRY(search_options(&e->t, search, &options));
  TRY(check(e->t.m.context, heed_translate(e->t.m.context, e->t.m.model, &sources, &options, &all)));
  for (int64_t i = 0; i < sources.count && code == EXIT_OK; i++) {
    int64_t count = 0;
    const heed_translation *t = heed_translations_of(all, i, &count);
    if (count > 0) e->exact += is_exact(e, i, t);
    code = translator_text(&e->t, count > 0 ? t->ids : NULL, count > 0 ? t->count : 0, &e->said[i]);
  }
done:
  heed_translations_free(all);
  return code;
}

static int score(evaluation *e) {
  heed_context *context = e->t.m.context;
  int code;
  TRY(check(context, heed_bleu_score(context, e->said, e->right, e->examples.count, &e->bleu)));
  TRY(check(context, heed_chrf_score(context, e->said, e->right, e->examples.count, false, &e->chrf)));
done:
  return code;
}

static void print(const evaluation *e, bool as_json) {
  const int64_t count = e->examples.count;
  const double loss = e->loss / (double)e->tokens, exact = (double)e->exact / (double)count;
  if (as_json) {
    json j = {0};
    json_open(&j, NULL, '{');
    json_text(&j, "model", e->t.m.info.name);
    json_number(&j, "loss", loss);
    json_number(&j, "perplexity", exp(loss));
    json_number(&j, "exact_match", exact);
    json_number(&j, "bleu", e->bleu.score);
    json_text(&j, "bleu_signature", heed_bleu_signature());
    json_number(&j, "chrf", e->chrf);
    json_text(&j, "chrf_signature", heed_chrf_signature(false));
    json_whole(&j, "sequences", count);
    json_whole(&j, "tokens", e->tokens);
    json_close(&j);
    return;
  }
  out("loss           %.4f\nperplexity     %.4f\n", loss, exp(loss));
  out("exact match    %.2f %% (%lld of %lld pairs)\n", 100 * exact, (long long)e->exact, (long long)count);
  out("BLEU           %.2f  %s\nchrF2          %.2f  %s\n", e->bleu.score, heed_bleu_signature(), e->chrf, heed_chrf_signature(false));
}

int eval_pairs(const loaded *m, const char *path, const common_values *common, const eval_pairs_values *v) {
  evaluation e = {.bleu.size = sizeof e.bleu};
  int code;
  TRY(translator_of(m, path, &e.t));
  TRY(examples_open(m->context, path, &v->which, (uint64_t)common->seed, &e.examples));
  TRY(read_examples(&e));
  e.said = allocate("translations", e.examples.count, sizeof *e.said);
  e.right = allocate("translations", e.examples.count, sizeof *e.right);
  for (int64_t i = 0; i < e.examples.count; i++) e.right[i] = e.examples.items[i].texts.target;
  TRY(measure_loss(&e, &v->search));
  TRY(translate(&e, &v->search));
  TRY(score(&e));
  print(&e, common->json);
done:
  for (int64_t i = 0; i < e.examples.count && e.said; i++) free((char *)e.said[i].data);
  free(e.said);
  free(e.right);
  sequences_free(&e.targets);
  sequences_free(&e.sources);
  examples_free(&e.examples);
  heed_tokenizer_free(e.t.target);
  return code;
}
