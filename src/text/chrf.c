/* chrf.c: chrF2 (Popović 2015) and chrF2++ (Popović 2017) as sacreBLEU 2.6 computes them: n-grams of characters without white space and, for chrF++, of words from which punctuation at one
 * end is parted; precision and recall are averaged over the orders that both sides have, and then make one F. */
#include "ngrams.h"
#include "utf8.h"

enum { CHARACTER_ORDERS = HD_MOST_ORDERS, WORD_ORDERS = 2, ORDERS = CHARACTER_ORDERS + WORD_ORDERS, BETA = 2 };

const char *heed_chrf_signature(bool words) {
  return words ? "nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2.6.0"
               : "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0";
}

typedef struct sums {
  int64_t shared[ORDERS], translated[ORDERS], referred[ORDERS];
} sums;

typedef struct characters {
  int32_t *code;
  int64_t count, room;
} characters;

/* Room that sentences share. */
typedef struct scratch {
  heed_context *context;
  characters translation, reference;
  hd_pieces words;
} scratch;

static heed_status read_characters(heed_context *context, heed_text text, characters *out) {
  out->count = 0;
  HD_TRY(hd_grow(context, "characters", &out->code, &out->room, (int64_t)text.length, sizeof *out->code));
  for (size_t at = 0; at < text.length;) {
    uint32_t code;
    at += (size_t)hd_utf8_next(text.data + at, text.length - at, &code);
    if (!hd_is_python_space(code)) out->code[out->count++] = (int32_t)code;
  }
  return HEED_OK;
}

static bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* One mark at the end of a word is a word of its own, or else one at its beginning. */
static heed_status read_words(hd_pieces *words, heed_text text) {
  heed_text word;
  while (hd_next_word(&text, &word)) {
    uint32_t code;
    const bool single = (size_t)hd_utf8_next(word.data, word.length, &code) == word.length;
    const size_t cut = single ? 0 : is_punctuation(word.data[word.length - 1]) ? word.length - 1 : is_punctuation(word.data[0]) ? 1 : 0;
    if (cut > 0) HD_TRY(hd_pieces_add(words, (heed_text){word.data, cut}));
    HD_TRY(hd_pieces_add(words, (heed_text){word.data + cut, word.length - cut}));
  }
  return HEED_OK;
}

/* Orders that the reference is too short for do not count against the translation. */
static heed_status add_sequences(heed_context *context, const int32_t *a, int64_t na, const int32_t *b, int64_t nb, int orders, int first,
                                 sums *s) {
  for (int n = 1; n <= orders; n++) {
    s->translated[first + n - 1] += nb >= n ? hd_ngrams(na, n) : 0;
    s->referred[first + n - 1] += hd_ngrams(nb, n);
  }
  return hd_ngrams_shared(context, a, na, b, nb, orders, s->shared + first);
}

static heed_status add_sentence(scratch *s, heed_text translation, heed_text reference, bool words, sums *sums) {
  const characters *a = &s->translation, *b = &s->reference;
  HD_TRY(read_characters(s->context, translation, &s->translation));
  HD_TRY(read_characters(s->context, reference, &s->reference));
  HD_TRY(add_sequences(s->context, a->code, a->count, b->code, b->count, CHARACTER_ORDERS, 0, sums));
  if (!words) return HEED_OK;
  s->words.count = 0;
  HD_TRY(read_words(&s->words, translation));
  const int64_t count = s->words.count;
  HD_TRY(read_words(&s->words, reference));
  HD_TRY(hd_pieces_number(&s->words));
  return add_sequences(s->context, s->words.number, count, s->words.number + count, s->words.count - count, WORD_ORDERS, CHARACTER_ORDERS,
                       sums);
}

static double conclude(const sums *s, int orders) {
  double precision = 0, recall = 0;
  int counted = 0;
  for (int n = 0; n < orders; n++) {
    if (s->translated[n] == 0 || s->referred[n] == 0) continue;
    precision += (double)s->shared[n] / (double)s->translated[n];
    recall += (double)s->shared[n] / (double)s->referred[n];
    counted++;
  }
  if (precision + recall == 0) return 0;
  precision /= counted;
  recall /= counted;
  return 100 * (1 + BETA * BETA) * precision * recall / (BETA * BETA * precision + recall);
}

heed_status heed_chrf_score(heed_context *context, const heed_text *translations, const heed_text *references, int64_t count, bool words,
                            double *out) {
  if (!context) return HEED_E_ARGUMENT;
  sums all;
  memset(&all, 0, sizeof all);
  scratch s = {.context = context, .words.context = context};
  HD_REQUIRE(out, context, HEED_E_ARGUMENT, "heed_chrf_score: out is null");
  HD_TRY(hd_check_translations(context, "heed_chrf_score", translations, references, count));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) status = add_sentence(&s, translations[i], references[i], words, &all);
  hd_release(context, s.translation.code, s.translation.room, sizeof *s.translation.code);
  hd_release(context, s.reference.code, s.reference.room, sizeof *s.reference.code);
  hd_pieces_free(&s.words);
  if (status == HEED_OK) *out = conclude(&all, words ? ORDERS : CHARACTER_ORDERS);
  return status;
}
