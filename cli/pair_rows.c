/* pair_rows.c: pairs of sentences as rows of token ids, for training. */
#include "pair_rows.h"

#include <stdlib.h>
#include <string.h>

void pair_rows_free(pair_rows *r) {
  sequences_free(&r->sources);
  sequences_free(&r->targets);
  free(r->order);
  *r = (pair_rows){0};
}

static int64_t count_of_last(const sequences *all) { return all->begin[all->count] - all->begin[all->count - 1]; }

static void keep_longest(int64_t *longest, int64_t count) {
  if (count > *longest) *longest = count;
}

/* *fits: it is there now; otherwise it is too long, and such pairs are left out. */
static int add_side(pair_rows *r, const sentence_form *how, bool target, const examples *all, const example *e, bool *fits) {
  char reason[REASON_LENGTH];
  bool too_long;
  int code =
      sequences_read(r->context, how, target ? e->texts.target : e->texts.source, target ? &r->targets : &r->sources, reason, &too_long);
  *fits = code == EXIT_OK;
  if (too_long && r->skip_long) return EXIT_OK;
  if (too_long) {
    const size_t end = strlen(reason) - 1; // the bracket
    snprintf(reason + end, REASON_LENGTH - end, "; --%s, or --on-long skip)", target ? "context" : "source-context");
  }
  return code == EXIT_BAD_FILE && reason[0] ? example_wrong(all, e, target, reason) : code;
}

static int add_pair(pair_rows *r, const examples *all, const example *e) {
  const sentence_form source = {r->tokenizers.source, true, 0, r->most_source}, target = {r->tokenizers.target, false, 1, r->most_target};
  bool fits, both;
  int code;
  TRY(add_side(r, &source, false, all, e, &fits));
  TRY(add_side(r, &target, true, all, e, &both));
  if (fits && both) {
    keep_longest(&r->longest_source, count_of_last(&r->sources));
    keep_longest(&r->longest_target, count_of_last(&r->targets) + target.extra);
    return EXIT_OK;
  }
  r->sources.count -= fits;
  r->targets.count -= both;
  r->skipped++;
done:
  return code;
}

int pair_rows_of(heed_context *context, pair_tokenizers tokenizers, int64_t most_source, int64_t most_target, bool skip_long,
                 const examples *all, pair_rows *out) {
  *out = (pair_rows){
      .context = context, .tokenizers = tokenizers, .most_source = most_source, .most_target = most_target, .skip_long = skip_long};
  int code = EXIT_OK;
  for (int64_t i = 0; i < all->count && code == EXIT_OK; i++) {
    code = add_pair(out, all, &all->items[i]);
    if (code == EXIT_OK && !progress("pairs", i + 1, all->count)) code = EXIT_INTERRUPTED;
  }
  if (code == EXIT_OK && out->sources.count == 0)
    code = error_of(EXIT_BAD_FILE, "%s: there is no pair in it that is short enough", all->path);
  return code;
}

int pair_rows_data(pair_rows *r, int64_t width, bool sorted, heed_pair_data *out) {
  heed_tokenizer_info info = {.size = sizeof info};
  int code = check(r->context, heed_tokenizer_describe(r->tokenizers.target, &info));
  if (code != EXIT_OK) return code;
  *out = (heed_pair_data){.source = r->sources.ids,
                          .target = r->targets.ids,
                          .source_begin = r->sources.begin,
                          .target_begin = r->targets.begin,
                          .count = r->sources.count,
                          .width = width,
                          .start = info.pad,
                          .end = info.eos};
  if (!sorted) return EXIT_OK;
  r->order = allocate("pairs", out->count, sizeof *r->order);
  out->order = r->order;
  return check(r->context, heed_pair_order(r->context, out, r->order));
}
