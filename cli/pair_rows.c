/* pair_rows.c: sentences and pairs of them as rows of token ids. */
#include "pair_rows.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

/* ---- sentences ----------------------------------------------------------------------------------------------------------------------- */

/* A tokenizer of characters leaves out those that it has no token for; who reads what is left reads another sentence. */
static bool has_unknown(const heed_tokenizer *tokenizer, const char *kind, heed_text text, char reason[REASON_LENGTH]) {
  char seen[32]; // a character at most
  if (strcmp(kind, "characters") != 0) return false;
  for (size_t at = 0, length; at < text.length; at += length) {
    length = utf8_length(text.data + at, text.length - at);
    const heed_text character = {text.data + at, length};
    if (heed_token_find(tokenizer, character) >= 0) continue;
    visible_token(character, seen, sizeof seen);
    snprintf(reason, REASON_LENGTH, "the character \"%s\" (byte %zu) has no token: training has not seen it", seen, at + 1);
    return true;
  }
  return false;
}

int encode_sentence(heed_context *context, const heed_tokenizer *tokenizer, heed_text text, bool special, int32_t **ids, int64_t *count,
                    char reason[REASON_LENGTH]) {
  const heed_encode_options options = {.size = sizeof options, .add_special = special};
  heed_tokenizer_info info = {.size = sizeof info};
  int code = check(context, heed_tokenizer_describe(tokenizer, &info));
  *ids = NULL;
  if (code != EXIT_OK) return code;
  for (size_t at = 0, length; at < text.length; at += length)
    if ((length = utf8_length(text.data + at, text.length - at)) == 0) {
      snprintf(reason, REASON_LENGTH, "it is not UTF-8 (byte %zu)", at + 1);
      return EXIT_BAD_FILE;
    }
  if (has_unknown(tokenizer, info.kind, text, reason)) return EXIT_BAD_FILE;
  return check(context, heed_encode(context, tokenizer, text, &options, ids, count));
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------------ */

void pair_rows_free(pair_rows *r) {
  free(r->source);
  free(r->target);
  free(r->source_begin);
  free(r->target_begin);
  free(r->order);
  *r = (pair_rows){0};
}

typedef struct side {
  const char *name, *option;
  const heed_tokenizer *tokenizer;
  heed_text text;
  bool special; /* with what the tokenizer puts around a text */
  int64_t extra, most;
  int32_t *ids;
  int64_t count;
} side;

static int encode_side(const pair_rows *r, side *s, const char *path, int64_t line, bool *fits) {
  char reason[REASON_LENGTH] = "";
  int code = encode_sentence(r->context, s->tokenizer, s->text, s->special, &s->ids, &s->count, reason);
  if (code == EXIT_BAD_FILE && reason[0]) return error_of(code, "%s: line %lld: the %s: %s", path, (long long)line, s->name, reason);
  if (code != EXIT_OK) return code;
  if (s->count == 0) return error_of(EXIT_BAD_FILE, "%s: line %lld: the %s has no token", path, (long long)line, s->name);
  if (s->count + s->extra <= s->most) return EXIT_OK;
  *fits = false;
  if (r->on_long == LONG_PAIRS_SKIP) return EXIT_OK;
  char help[64] = "";
  if (r->on_long == LONG_PAIRS_STOP) snprintf(help, sizeof help, "; --%s, or --on-long skip", s->option);
  return error_of(EXIT_BAD_FILE, "%s: line %lld: the %s is too long (got %lld tokens, allowed %lld%s)", path, (long long)line, s->name,
                  (long long)(s->count + s->extra), (long long)s->most, help);
}

static void append(const side *s, int32_t **ids, int64_t *room, int64_t **begin, int64_t *begin_room, int64_t count, int64_t *longest) {
  *begin = grown("pairs", *begin, begin_room, count + 2, sizeof **begin);
  if (count == 0) (*begin)[0] = 0;
  const int64_t from = (*begin)[count];
  *ids = grown("pairs", *ids, room, from + s->count, sizeof **ids);
  memcpy(*ids + from, s->ids, (size_t)s->count * sizeof **ids);
  (*begin)[count + 1] = from + s->count;
  if (s->count + s->extra > *longest) *longest = s->count + s->extra;
}

static int add_pair(pair_rows *r, const examples *all, const example *e) {
  side source = {"source", "source-context", r->tokenizers.source, e->texts.source, true, 0, r->most_source, NULL, 0};
  side target = {"target", "context", r->tokenizers.target, e->texts.target, false, 1, r->most_target, NULL, 0};
  bool fits = true;
  int code;
  TRY(encode_side(r, &source, all->path, e->line, &fits));
  TRY(encode_side(r, &target, all->target_path ? all->target_path : all->path, e->line, &fits));
  if (fits) {
    append(&source, &r->source, &r->source_room, &r->source_begin, &r->source_begin_room, r->count, &r->longest_source);
    append(&target, &r->target, &r->target_room, &r->target_begin, &r->target_begin_room, r->count, &r->longest_target);
  }
  r->count += fits;
  r->skipped += !fits;
done:
  if (source.ids) heed_ids_free(r->context, source.ids, source.count);
  if (target.ids) heed_ids_free(r->context, target.ids, target.count);
  return code;
}

int pair_rows_of(heed_context *context, pair_tokenizers tokenizers, int64_t most_source, int64_t most_target, long_pairs on_long,
                 const examples *all, pair_rows *out) {
  *out =
      (pair_rows){.context = context, .tokenizers = tokenizers, .most_source = most_source, .most_target = most_target, .on_long = on_long};
  int code = EXIT_OK;
  for (int64_t i = 0; i < all->count && code == EXIT_OK; i++) {
    code = add_pair(out, all, &all->items[i]);
    if (code == EXIT_OK && !progress("pairs", i + 1, all->count)) code = EXIT_INTERRUPTED;
  }
  if (code == EXIT_OK && out->count == 0) code = error_of(EXIT_BAD_FILE, "%s: there is no pair in it that is short enough", all->path);
  return code;
}

int pair_rows_data(pair_rows *r, int64_t width, bool sorted, heed_pair_data *out) {
  heed_tokenizer_info info = {.size = sizeof info};
  int code = check(r->context, heed_tokenizer_describe(r->tokenizers.target, &info));
  if (code != EXIT_OK) return code;
  *out = (heed_pair_data){.source = r->source,
                          .target = r->target,
                          .source_begin = r->source_begin,
                          .target_begin = r->target_begin,
                          .count = r->count,
                          .width = width,
                          .start = info.pad,
                          .end = info.eos};
  if (!sorted) return EXIT_OK;
  r->order = allocate("pairs", r->count, sizeof *r->order);
  out->order = r->order;
  return check(r->context, heed_pair_order(r->context, out, r->order));
}
