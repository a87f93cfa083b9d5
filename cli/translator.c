/* translator.c: a model that turns sentences into others, and its texts. */
#include "translator.h"

#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- texts ------------------------------------------------------------------------------------------------------------------------------ */

int translator_read(const translator *t, heed_text text, sequences *sources, char reason[REASON_LENGTH]) {
  const sentence_form source = {t->tokenizers.source, true, 0, t->info.longest_source};
  return sequences_read(t->m.context, &source, text, sources, reason, NULL);
}

static int read_target(const translator *t, heed_text text, sequences *targets, char reason[REASON_LENGTH]) {
  const sentence_form target = {t->tokenizers.target, false, t->info.end >= 0, t->info.longest};
  int code = sequences_read(t->m.context, &target, text, targets, reason, NULL);
  if (code == EXIT_OK && t->info.end >= 0) sequences_extend(targets, t->info.end);
  return code;
}

int translator_read_example(const translator *t, const examples *all, const example *e, sequences *sources, sequences *targets) {
  char reason[REASON_LENGTH];
  if (side_is_blank(e->texts.source)) return example_wrong(all, e, false, "empty");
  if (e->texts.target.data && side_is_blank(e->texts.target)) return example_wrong(all, e, true, "empty");
  int code = translator_read(t, e->texts.source, sources, reason);
  const bool target = code == EXIT_OK && e->texts.target.data;
  if (target) code = read_target(t, e->texts.target, targets, reason);
  return code == EXIT_BAD_FILE && reason[0] ? example_wrong(all, e, target, reason) : code;
}

int translator_write(const translator *t, const sequences *sources, sequences *targets) {
  const heed_sources from = sequences_view(sources);
  heed_translations *all = NULL;
  int code = check(t->m.context, heed_translate(t->m.context, t->m.model, &from, NULL, &all));
  for (int64_t i = 0; i < from.count && code == EXIT_OK; i++) {
    const heed_translation *result = heed_translations_of(all, i, NULL);
    sequences_add(targets, result->ids, result->count);
  }
  heed_translations_free(all);
  return code;
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
                                  .early = v->early ? (heed_early_stopping)choice_place(EARLY_CHOICES, v->early) : HEED_EARLY_LIKELY};
  return EXIT_OK;
}

const char *search_given(const search_values *v) {
  return v->beam                     ? "beam"
         : !isnan(v->length_penalty) ? "length-penalty"
         : v->early                  ? "early"
         : v->most                   ? "max-tokens"
         : v->batch                  ? "batch"
                                     : NULL;
}
