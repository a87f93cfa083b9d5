/* sentences.c: sentences as sequences of token ids. */
#include "sentences.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

/* ---- sequences ----------------------------------------------------------------------------------------------------------------------- */

void sequences_add(sequences *all, const int32_t *ids, int64_t count) {
  const int64_t from = all->count ? all->begin[all->count] : 0;
  all->ids = grown("sentences", all->ids, &all->room, from + count, sizeof *all->ids);
  all->begin = grown("sentences", all->begin, &all->begin_room, all->count + 2, sizeof *all->begin);
  if (count > 0) memcpy(all->ids + from, ids, (size_t)count * sizeof *ids);
  all->begin[0] = 0;
  all->begin[++all->count] = from + count;
}

void sequences_extend(sequences *all, int32_t id) {
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

static bool is_text(heed_text text, char reason[REASON_LENGTH]) {
  for (size_t at = 0, length; at < text.length; at += length)
    if ((length = utf8_length(text.data + at, text.length - at)) == 0) {
      snprintf(reason, REASON_LENGTH, "not UTF-8 (byte %zu)", at + 1);
      return false;
    }
  return true;
}

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

static int check_count(const sentence_form *how, int64_t count, char reason[REASON_LENGTH], bool *too_long) {
  const int64_t whole = count + how->extra;
  const bool beyond = count > 0 && whole > how->most;
  if (too_long) *too_long = beyond;
  if (count > 0 && !beyond) return EXIT_OK;
  if (beyond) snprintf(reason, REASON_LENGTH, "too long (got %lld tokens, allowed %lld)", (long long)whole, (long long)how->most);
  else snprintf(reason, REASON_LENGTH, "there is no token for anything in it");
  return EXIT_BAD_FILE;
}

int sequences_read(heed_context *context, const sentence_form *how, heed_text text, sequences *all, char reason[REASON_LENGTH],
                   bool *too_long) {
  const heed_encode_options options = {.size = sizeof options, .add_special = how->special};
  heed_tokenizer_info info = {.size = sizeof info};
  int32_t *ids = NULL;
  int64_t count = 0;
  int code;
  reason[0] = 0;
  if (too_long) *too_long = false;
  TRY(check(context, heed_tokenizer_describe(how->tokenizer, &info)));
  if (!is_text(text, reason) || has_unknown(how->tokenizer, info.kind, text, reason)) return EXIT_BAD_FILE;
  TRY(check(context, heed_encode(context, how->tokenizer, text, &options, &ids, &count)));
  TRY(check_count(how, count, reason, too_long));
  sequences_add(all, ids, count);
done:
  if (ids) heed_ids_free(context, ids, count);
  return code;
}
