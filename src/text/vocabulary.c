/* vocabulary.c: building the two tables from a loader's spec, and asking them.
 *
 * Tokens and merges arrive in the file's spelling. They are checked, unspelled into plain text and hashed here; a merge is resolved once into (token, token) → token, so
 * that encoding never touches a string. */
#include "bpe.h"
#include "hash.h"
#include "wordpiece.h"
#include "utf8.h"
#include "../io/json.h"

/* ---- tables --------------------------------------------------------------------------------------------------------------- */

int32_t hd_vocabulary_find(const hd_vocabulary *vocabulary, const char *data, size_t length) {
  if ((int64_t)length > vocabulary->longest) return -1;
  for (uint32_t slot = hd_hash_text(data, length) & vocabulary->slot_mask;; slot = (slot + 1) & vocabulary->slot_mask) {
    int32_t id = vocabulary->slots[slot];
    if (id < 0) return -1;
    heed_text text = hd_vocabulary_text(vocabulary, id);
    if (text.length == length && memcmp(text.data, data, length) == 0) return id;
  }
}

static void insert_token(hd_vocabulary *vocabulary, int32_t id) {
  heed_text text = hd_vocabulary_text(vocabulary, id);
  if (text.length == 0 || hd_vocabulary_find(vocabulary, text.data, text.length) >= 0) return;
  uint32_t slot = hd_hash_text(text.data, text.length) & vocabulary->slot_mask;
  while (vocabulary->slots[slot] >= 0) slot = (slot + 1) & vocabulary->slot_mask;
  vocabulary->slots[slot] = id;
  vocabulary->longest = HD_MAX(vocabulary->longest, (int64_t)text.length);
}

/* ---- tokens --------------------------------------------------------------------------------------------------------------- */

static bool unspell(const hd_tokenizer_settings *settings, heed_text spelling, char *out, size_t *length) {
  static bool (*const kinds[])(heed_text, char *, size_t *) = {[HD_SPELLS_MARKS] = hd_spm_unspell,
                                                               [HD_SPELLS_BYTES] = hd_bpe_unspell,
                                                               [HD_SPELLS_PLAIN] = hd_plain_unspell,
                                                               [HD_SPELLS_WORDS] = hd_wordpiece_unspell};
  return kinds[settings->spelling](spelling, out, length);
}

/* What is being filled; the vocabulary itself holds const views of the same memory. */
typedef struct building {
  heed_context *context;
  const hd_tokenizer_spec *spec;
  char *bytes;
  uint32_t *begin;
  uint8_t *kind, *eats;
  float *score;
  int32_t *byte;
} building;

static heed_status check_token(const building *build, int64_t id, const hd_token *token) {
  const hd_tokenizer_spec *spec = build->spec;
  size_t valid = hd_utf8_valid(token->text.data, token->text.length);
  HD_REQUIRE(valid == token->text.length, build->context, HEED_E_FORMAT, "%s: %s: token %lld is not UTF-8 (byte %zu, got 0x%02X)",
             spec->file, spec->tokens_place, (long long)id, valid, (unsigned char)token->text.data[valid]);
  HD_REQUIRE(token->score == token->score, build->context, HEED_E_FORMAT, "%s: %s: token %lld has a score that is not a number", spec->file,
             spec->tokens_place, (long long)id);
  return HEED_OK;
}

static heed_status place_byte_token(const building *build, int64_t id, const hd_token *token, char *out, size_t *length) {
  const hd_tokenizer_spec *spec = build->spec;
  char quoted[HD_QUOTE_LENGTH];
  int byte = hd_byte_token(token->text);
  HD_REQUIRE(byte >= 0, build->context, HEED_E_FORMAT, "%s: %s: byte token %lld is not one of <0x00> to <0xFF> (got \"%s\")", spec->file,
             spec->tokens_place, (long long)id, hd_quote(token->text, quoted));
  HD_REQUIRE(build->byte[byte] < 0, build->context, HEED_E_FORMAT, "%s: %s: byte 0x%02X has two tokens (%d and %lld)", spec->file,
             spec->tokens_place, (unsigned)byte, (int)build->byte[byte], (long long)id);
  build->byte[byte] = (int32_t)id;
  *out = (char)byte;
  *length = 1;
  return HEED_OK;
}

static heed_status place_token(building *build, int64_t id) {
  hd_token token;
  size_t length = 0;
  build->spec->token(build->spec, id, &token);
  HD_TRY(check_token(build, id, &token));
  char *out = build->bytes + build->begin[id];
  if (token.kind == HD_BYTE) {
    HD_TRY(place_byte_token(build, id, &token, out, &length));
  } else if (token.kind != HD_NORMAL || !unspell(&build->spec->settings, token.text, out, &length)) {
    // A spelling outside the alphabet is kept as it is; no text can lead to it, because text is spelled inside the alphabet.
    if (token.kind == HD_NORMAL) token.kind = HD_UNUSED;
    length = token.text.length;
    if (length) memcpy(out, token.text.data, length);
  }
  build->begin[id + 1] = build->begin[id] + (uint32_t)length;
  build->kind[id] = (uint8_t)token.kind;
  build->eats[id] = (uint8_t)((token.eats_left ? HD_EATS_LEFT : 0) | (token.eats_right ? HD_EATS_RIGHT : 0));
  if (build->score) build->score[id] = token.score;
  return HEED_OK;
}

static heed_status place_tokens(building *build, hd_arena *arena) {
  const hd_tokenizer_spec *spec = build->spec;
  int64_t bytes = 0, count = spec->token_count;
  hd_token token;
  for (int64_t id = 0; id < count; id++) {
    spec->token(spec, id, &token);
    bytes += (int64_t)token.text.length + (spec->settings.spelling == HD_SPELLS_WORDS); // the space before a word
  }
  HD_REQUIRE(count > 0 && count < INT32_MAX && bytes < UINT32_MAX, build->context, HEED_E_FORMAT,
             "%s: %s: a vocabulary of %lld tokens and %lld bytes (allowed 1 to 2^31 tokens in 2^32 bytes)", spec->file, spec->tokens_place,
             (long long)count, (long long)bytes);
  HD_TRY(hd_arena_allocate(arena, build->context, "token texts", bytes, 1, &build->bytes));
  HD_TRY(hd_arena_allocate(arena, build->context, "token texts", count + 1, sizeof *build->begin, &build->begin));
  HD_TRY(hd_arena_allocate(arena, build->context, "token kinds", count, 1, &build->kind));
  HD_TRY(hd_arena_allocate(arena, build->context, "token kinds", count, 1, &build->eats));
  if (spec->settings.scored) HD_TRY(hd_arena_allocate(arena, build->context, "token scores", count, sizeof *build->score, &build->score));
  for (int64_t id = 0; id < count; id++) HD_TRY(place_token(build, id));
  return HEED_OK;
}

static heed_status hash_tokens(heed_context *context, hd_arena *arena, hd_vocabulary *vocabulary) {
  int64_t size = hd_table_size(vocabulary->count);
  HD_TRY(hd_arena_allocate(arena, context, "the token table", size, sizeof *vocabulary->slots, &vocabulary->slots));
  vocabulary->slot_mask = (uint32_t)size - 1;
  memset(vocabulary->slots, 0xFF, (size_t)size * sizeof *vocabulary->slots); // −1
  for (int32_t id = 0; id < vocabulary->count; id++)
    if (vocabulary->kind[id] == HD_NORMAL) insert_token(vocabulary, id);
  for (int32_t id = 0; id < vocabulary->count; id++)
    if (vocabulary->kind[id] != HD_NORMAL && vocabulary->kind[id] != HD_BYTE) insert_token(vocabulary, id);
  return HEED_OK;
}

/* Byte-level vocabularies have a token for each byte among the ordinary ones. */
static void find_byte_tokens(hd_vocabulary *vocabulary) {
  for (int byte = 0; byte < 256; byte++) {
    char text = (char)byte;
    int32_t id = hd_vocabulary_find(vocabulary, &text, 1);
    if (id >= 0 && (vocabulary->kind[id] == HD_NORMAL || vocabulary->kind[id] == HD_USER)) vocabulary->byte[byte] = id;
  }
}

/* ---- named tokens --------------------------------------------------------------------------------------------------------- */

typedef struct named_token {
  heed_text text;
  int32_t id;
} named_token;

static int compare_named(const void *a, const void *b) {
  const named_token *x = a, *y = b;
  int order = memcmp(x->text.data, y->text.data, HD_MIN(x->text.length, y->text.length));
  if (order != 0) return order;
  if (x->text.length != y->text.length) return x->text.length < y->text.length ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static bool is_named(const hd_vocabulary *vocabulary, int32_t id) {
  return (hd_token_is_special(vocabulary, id) || vocabulary->kind[id] == HD_USER) && vocabulary->begin[id + 1] > vocabulary->begin[id];
}

static heed_status sort_named(heed_context *context, hd_arena *arena, hd_vocabulary *vocabulary) {
  int32_t count = 0;
  named_token *sorted;
  for (int32_t id = 0; id < vocabulary->count; id++) count += is_named(vocabulary, id);
  HD_TRY(hd_arena_allocate(arena, context, "special tokens", count, sizeof *vocabulary->named, &vocabulary->named));
  HD_TRY(hd_allocate(context, "special tokens", count, sizeof *sorted, &sorted));
  for (int32_t id = 0, i = 0; id < vocabulary->count; id++)
    if (is_named(vocabulary, id)) sorted[i++] = (named_token){hd_vocabulary_text(vocabulary, id), id};
  qsort(sorted, (size_t)count, sizeof *sorted, compare_named);
  for (int32_t i = 0; i < count; i++) {
    vocabulary->named[i] = sorted[i].id;
    vocabulary->named_begin[(unsigned char)sorted[i].text.data[0] + 1]++;
  }
  for (int byte = 0; byte < 256; byte++) vocabulary->named_begin[byte + 1] += vocabulary->named_begin[byte];
  hd_release(context, sorted, count, sizeof *sorted);
  return HEED_OK;
}

/* The first of named[low, high), which agree in their first `depth` bytes, whose byte at depth is at least `byte`. A text that ends there comes before all. */
static int32_t first_from(const hd_vocabulary *vocabulary, int32_t low, int32_t high, size_t depth, unsigned byte) {
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    heed_text text = hd_vocabulary_text(vocabulary, vocabulary->named[middle]);
    if (text.length > depth && (unsigned char)text.data[depth] >= byte) high = middle;
    else low = middle + 1;
  }
  return low;
}

int32_t hd_vocabulary_named(const hd_vocabulary *vocabulary, const char *data, size_t length, bool special) {
  int32_t found = -1;
  if (length == 0) return -1;
  int32_t low = vocabulary->named_begin[(unsigned char)data[0]], high = vocabulary->named_begin[(unsigned char)data[0] + 1];
  for (size_t depth = 1; low < high; depth++) {
    for (; low < high && hd_vocabulary_text(vocabulary, vocabulary->named[low]).length == depth; low++)
      if (special || vocabulary->kind[vocabulary->named[low]] == HD_USER) found = vocabulary->named[low];
    if (depth == length) break;
    unsigned byte = (unsigned char)data[depth];
    low = first_from(vocabulary, low, high, depth, byte);
    high = first_from(vocabulary, low, high, depth, byte + 1);
  }
  return found;
}

heed_status hd_vocabulary_build(heed_context *context, hd_arena *arena, const hd_tokenizer_spec *spec, hd_vocabulary *out) {
  memset(out->byte, 0xFF, sizeof out->byte); // −1
  building build = {.context = context, .spec = spec, .byte = out->byte};
  HD_TRY(place_tokens(&build, arena));
  out->count = spec->token_count;
  out->bytes = build.bytes;
  out->begin = build.begin;
  out->kind = build.kind;
  out->eats = build.eats;
  out->score = build.score;
  HD_TRY(hash_tokens(context, arena, out));
  if (spec->settings.spelling == HD_SPELLS_BYTES) find_byte_tokens(out);
  return sort_named(context, arena, out);
}

/* ---- merges --------------------------------------------------------------------------------------------------------------- */

const hd_pair *hd_pairs_find(const hd_pairs *pairs, int32_t left, int32_t right) {
  if (left < 0 || right < 0 || !pairs->slots) return NULL;
  for (uint32_t slot = hd_hash_pair(left, right) & pairs->mask;; slot = (slot + 1) & pairs->mask) {
    const hd_pair *pair = &pairs->slots[slot];
    if (pair->left < 0) return NULL;
    if (pair->left == left && pair->right == right) return pair;
  }
}

static void insert_pair(hd_pairs *pairs, hd_pair pair) {
  uint32_t slot = hd_hash_pair(pair.left, pair.right) & pairs->mask;
  // A pair that is listed twice counts where it stands last, as in the tokenizers library.
  while (pairs->slots[slot].left >= 0 && (pairs->slots[slot].left != pair.left || pairs->slots[slot].right != pair.right))
    slot = (slot + 1) & pairs->mask;
  pairs->slots[slot] = pair;
}

heed_status hd_merge_parts(heed_context *context, const hd_tokenizer_spec *spec, int64_t i, heed_text line, heed_text *left,
                           heed_text *right) {
  char quoted[HD_QUOTE_LENGTH];
  const char *space = line.length ? memchr(line.data, ' ', line.length) : NULL;
  const char *end = line.data + line.length;
  bool two = space && space > line.data && space + 1 < end && !memchr(space + 1, ' ', (size_t)(end - space - 1));
  HD_REQUIRE(two, context, HEED_E_FORMAT, "%s: %s: merge %lld must be two tokens with a space between them (got \"%s\")", spec->file,
             spec->merges_place, (long long)i, hd_quote(line, quoted));
  *left = (heed_text){line.data, (size_t)(space - line.data)};
  *right = (heed_text){space + 1, (size_t)(end - space - 1)};
  return HEED_OK;
}

/* Room for one merge's parts, unspelled, one after the other. */
typedef struct merge_text {
  char *data;
  int64_t capacity;
} merge_text;

static heed_status resolve(heed_context *context, const hd_tokenizer_spec *spec, const hd_vocabulary *vocabulary, int64_t i,
                           merge_text *scratch, hd_pair *out) {
  heed_text part[2];
  char quoted[2][HD_QUOTE_LENGTH];
  size_t length[2];
  HD_TRY(spec->merge(context, spec, i, &part[0], &part[1]));
  HD_TRY(hd_grow(context, "a merge", &scratch->data, &scratch->capacity, (int64_t)(part[0].length + part[1].length) + 1, 1));
  char *at = scratch->data;
  for (int k = 0; k < 2; k++) {
    if (!unspell(&spec->settings, part[k], at, &length[k])) {
      length[k] = part[k].length;
      memcpy(at, part[k].data, length[k]);
    }
    at += length[k];
  }
  *out = (hd_pair){.left = hd_vocabulary_find(vocabulary, scratch->data, length[0]),
                   .right = hd_vocabulary_find(vocabulary, scratch->data + length[0], length[1]),
                   .merged = hd_vocabulary_find(vocabulary, scratch->data, length[0] + length[1]),
                   .rank = (uint32_t)i};
  HD_REQUIRE(out->left >= 0 && out->right >= 0, context, HEED_E_FORMAT,
             "%s: %s: merge %lld of a token that is not in the vocabulary (got \"%s\")", spec->file, spec->merges_place, (long long)i,
             hd_quote(part[out->left < 0 ? 0 : 1], quoted[0]));
  HD_REQUIRE(out->merged >= 0, context, HEED_E_FORMAT,
             "%s: %s: merge %lld gives a token that is not in the vocabulary (got \"%s\" and \"%s\")", spec->file, spec->merges_place,
             (long long)i, hd_quote(part[0], quoted[0]), hd_quote(part[1], quoted[1]));
  return HEED_OK;
}

heed_status hd_pairs_build(heed_context *context, hd_arena *arena, const hd_tokenizer_spec *spec, const hd_vocabulary *vocabulary,
                           hd_pairs *out) {
  merge_text scratch = {0};
  heed_status status = HEED_OK;
  if (spec->merge_count == 0) return HEED_OK;
  HD_REQUIRE(spec->merge_count < INT32_MAX, context, HEED_E_FORMAT, "%s: %s: too many merges (got %lld, allowed 2^31)", spec->file,
             spec->merges_place, (long long)spec->merge_count);
  int64_t size = hd_table_size(spec->merge_count);
  HD_TRY(hd_arena_allocate(arena, context, "the table of merges", size, sizeof *out->slots, &out->slots));
  out->mask = (uint32_t)size - 1;
  memset(out->slots, 0xFF, (size_t)size * sizeof *out->slots); // left −1
  for (int64_t i = 0; i < spec->merge_count; i++) {
    hd_pair pair;
    HD_TRY_DONE(resolve(context, spec, vocabulary, i, &scratch, &pair));
    insert_pair(out, pair);
  }
done:
  hd_release(context, scratch.data, scratch.capacity, 1);
  return status;
}

int64_t hd_pairs_count(const hd_pairs *pairs) {
  int64_t count = 0;
  for (int64_t slot = 0; pairs->slots && slot <= pairs->mask; slot++) count += pairs->slots[slot].left >= 0;
  return count;
}

static int compare_ranks(const void *a, const void *b) {
  const hd_pair *x = a, *y = b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

void hd_pairs_list(const hd_pairs *pairs, hd_pair *out) {
  int64_t count = 0;
  for (int64_t slot = 0; pairs->slots && slot <= pairs->mask; slot++)
    if (pairs->slots[slot].left >= 0) out[count++] = pairs->slots[slot];
  if (count) qsort(out, (size_t)count, sizeof *out, compare_ranks);
}
