/* translator.c: a model that turns sentences into others, and its texts. */
#include "translator.h"

#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool model_translates(const loaded *m) {
  heed_translate_info info = {.size = sizeof info};
  return heed_translate_describe(m->context, m->model, &info) == HEED_OK;
}

/* DIRECTORY/target/tokenizer.json, if there is one. */
static int open_target(const loaded *m, const char *path, heed_tokenizer **out) {
  char file[4096];
  *out = NULL;
  if (snprintf(file, sizeof file, "%s/target/tokenizer.json", path) >= (int)sizeof file || access(file, R_OK) != 0) return EXIT_OK;
  return check(m->context, heed_tokenizer_load(m->context, file, out));
}

int translator_of(const loaded *m, const char *path, translator *out) {
  int code;
  *out = (translator){.m = *m, .info.size = sizeof out->info};
  TRY(check(m->context, heed_translate_describe(m->context, m->model, &out->info)));
  if (!m->tokenizer) TRY(error_of(EXIT_UNSUPPORTED, "%s: has no tokenizer, so it cannot read a text", m->info.name));
  TRY(open_target(m, path, &out->target));
  out->tokenizers = (pair_tokenizers){m->tokenizer, out->target ? out->target : m->tokenizer};
done:
  return code;
}

int translator_open(const common_values *common, const char *path, translator *out) {
  loaded m;
  *out = (translator){.info.size = sizeof out->info};
  int code = model_open_any(common, path, &m);
  if (code == EXIT_OK) return translator_of(&m, path, out);
  out->m = m;
  return code;
}

void translator_close(translator *t) {
  heed_tokenizer_free(t->target);
  model_close(&t->m);
}

/* ---- sequences ----------------------------------------------------------------------------------------------------------------------- */

void sequences_add(sequences *all, const int32_t *ids, int64_t count) {
  const int64_t from = all->count ? all->begin[all->count] : 0;
  all->ids = grown("sentences", all->ids, &all->room, from + count, sizeof *all->ids);
  all->begin = grown("sentences", all->begin, &all->begin_room, all->count + 2, sizeof *all->begin);
  if (count > 0) memcpy(all->ids + from, ids, (size_t)count * sizeof *ids);
  all->begin[0] = 0;
  all->begin[++all->count] = from + count;
}

/* One more id for the last of them. */
static void sequences_extend(sequences *all, int32_t id) {
  int64_t *end = &all->begin[all->count];
  all->ids = grown("sentences", all->ids, &all->room, *end + 1, sizeof *all->ids);
  all->ids[(*end)++] = id;
}

heed_sources sequences_view(const sequences *all) { return (heed_sources){all->ids, all->begin, all->count}; }

void sequences_clear(sequences *all) { all->count = 0; }

void sequences_free(sequences *all) {
  free(all->ids);
  free(all->begin);
  *all = (sequences){0};
}

/* ---- texts ------------------------------------------------------------------------------------------------------------------------------ */

/* One side of a pair, with `end` behind it unless that is −1, which counts. */
static int read_side(const translator *t, const heed_tokenizer *tokenizer, heed_text text, bool special, int32_t end, int64_t longest,
                     sequences *out, char reason[REASON_LENGTH]) {
  int32_t *ids;
  int64_t count;
  reason[0] = 0;
  int code = encode_sentence(t->m.context, tokenizer, text, special, &ids, &count, reason);
  if (code != EXIT_OK) return code;
  const int64_t whole = count + (end >= 0);
  if (count == 0) {
    snprintf(reason, REASON_LENGTH, "there is no token for anything in it");
    code = EXIT_BAD_FILE;
  } else if (whole > longest) {
    snprintf(reason, REASON_LENGTH, "it is too long (got %lld tokens, allowed %lld)", (long long)whole, (long long)longest);
    code = EXIT_BAD_FILE;
  } else {
    sequences_add(out, ids, count);
    if (end >= 0) sequences_extend(out, end);
  }
  heed_ids_free(t->m.context, ids, count);
  return code;
}

int translator_read(const translator *t, heed_text text, sequences *sources, char reason[REASON_LENGTH]) {
  return read_side(t, t->tokenizers.source, text, true, -1, t->info.longest_source, sources, reason);
}

int translator_read_target(const translator *t, heed_text text, sequences *targets, char reason[REASON_LENGTH]) {
  return read_side(t, t->tokenizers.target, text, false, t->info.end, t->info.longest, targets, reason);
}

int translator_text(const translator *t, const int32_t *ids, int64_t count, heed_text *out) {
  heed_decoder *decoder = NULL;
  heed_text piece;
  char *text = NULL;
  int64_t length = 0, room = 0;
  int code;
  TRY(check(t->m.context, heed_decoder_new(t->m.context, t->tokenizers.target, NULL, &decoder)));
  for (int64_t i = 0; i <= count; i++) {
    TRY(check(t->m.context, i < count ? heed_decoder_push(decoder, ids[i], &piece) : heed_decoder_finish(decoder, &piece)));
    text = grown("a translation", text, &room, length + (int64_t)piece.length + 1, 1);
    if (piece.length > 0) memcpy(text + length, piece.data, piece.length);
    length += (int64_t)piece.length;
    text[length] = 0;
  }
done:
  heed_decoder_free(decoder);
  if (code != EXIT_OK) {
    free(text);
    text = NULL;
    length = 0;
  }
  *out = (heed_text){text, (size_t)length};
  return code;
}

/* ---- how to translate ------------------------------------------------------------------------------------------------------------------ */

int search_options(const translator *t, const search_values *v, heed_translate_options *out) {
  if (v->most > t->info.longest)
    return usage_error("--max-tokens: got %lld, %s allows %lld", (long long)v->most, t->m.info.name, (long long)t->info.longest);
  *out = (heed_translate_options){.size = sizeof *out,
                                  .width = v->beam,
                                  .most = v->most,
                                  .batch = v->batch,
                                  .has_length_penalty = !isnan(v->length_penalty),
                                  .length_penalty = isnan(v->length_penalty) ? 0 : v->length_penalty,
                                  .early = !strcmp(v->early, "first")   ? HEED_EARLY_FIRST
                                           : !strcmp(v->early, "never") ? HEED_EARLY_NEVER
                                                                        : HEED_EARLY_LIKELY};
  return EXIT_OK;
}
