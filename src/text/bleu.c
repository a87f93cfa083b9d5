/* bleu.c: BLEU (Papineni et al. 2002) as sacreBLEU 2.6 computes it by default: tokenisation "13a", smoothing "exp", the case as it is, one reference.
 *
 * "13a" is what mteval-v13a.pl does: a handful of replacements one after another, each over the whole line. They act on ASCII alone, so bytes do for characters. */
#include "ngrams.h"
#include "utf8.h"

#include <math.h>

const char *heed_bleu_signature(void) { return "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"; }

/* ---- tokenisation ---------------------------------------------------------------------------------------------------------------- */

/* A line that passes change: from `text` into `next`, which then is the text. */
typedef struct line {
  heed_context *context;
  char *text, *next;
  int64_t length, room, next_room;
} line;

enum { PASS_GROWS = 3, PASS_ADDS = 2 }; /* no pass makes more than PASS_GROWS bytes of one, and PASS_ADDS besides */

static heed_status pass_begin(line *l) {
  return hd_grow(l->context, "a line of words", &l->next, &l->next_room, PASS_GROWS * l->length + PASS_ADDS, 1);
}

static void pass_end(line *l, int64_t length) {
  char *text = l->text;
  const int64_t room = l->room;
  l->text = l->next;
  l->room = l->next_room;
  l->next = text;
  l->next_room = room;
  l->length = length;
}

static void line_free(line *l) {
  hd_release(l->context, l->text, l->room, 1);
  hd_release(l->context, l->next, l->next_room, 1);
}

typedef struct replacement {
  const char *what, *by;
} replacement;

static heed_status replace(line *l, replacement r) {
  const int64_t what = (int64_t)strlen(r.what), by = (int64_t)strlen(r.by);
  int64_t n = 0;
  HD_TRY(pass_begin(l));
  for (int64_t i = 0; i < l->length;) {
    if (l->length - i >= what && memcmp(l->text + i, r.what, (size_t)what) == 0) {
      memcpy(l->next + n, r.by, (size_t)by);
      n += by;
      i += what;
    } else l->next[n++] = l->text[i++];
  }
  pass_end(l, n);
  return HEED_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_point(char c) { return c == '.' || c == ','; }
/* [{-~], [[-`], [ -&], [(-+], [:-@], [/]: ASCII that is neither letter nor digit nor one of ' , - . */
static bool is_symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || (c >= ':' && c <= '@') ||
         c == '/';
}

/* Two neighbours that part, and where the spaces go: before, between, behind. */
typedef struct parting {
  bool (*first)(char c), (*second)(char c);
  bool before, behind;
} parting;

static bool is_no_digit(char c) { return !is_digit(c); }
static bool is_dash(char c) { return c == '-'; }

/* A pair that has been parted is done with: its second half begins no other. */
static heed_status part(line *l, const parting *p) {
  int64_t n = 0;
  HD_TRY(pass_begin(l));
  for (int64_t i = 0; i < l->length;) {
    if (i + 1 == l->length || !p->first(l->text[i]) || !p->second(l->text[i + 1])) {
      l->next[n++] = l->text[i++];
      continue;
    }
    if (p->before) l->next[n++] = ' ';
    l->next[n++] = l->text[i++];
    l->next[n++] = ' ';
    l->next[n++] = l->text[i++];
    if (p->behind) l->next[n++] = ' ';
  }
  pass_end(l, n);
  return HEED_OK;
}

static heed_status part_symbols(line *l) {
  int64_t n = 0;
  HD_TRY(pass_begin(l));
  for (int64_t i = 0; i < l->length; i++) {
    const bool symbol = is_symbol(l->text[i]);
    if (symbol) l->next[n++] = ' ';
    l->next[n++] = l->text[i];
    if (symbol) l->next[n++] = ' ';
  }
  pass_end(l, n);
  return HEED_OK;
}

static heed_status surround(line *l) {
  HD_TRY(pass_begin(l));
  l->next[0] = ' ';
  memcpy(l->next + 1, l->text, (size_t)l->length);
  l->next[l->length + 1] = ' ';
  pass_end(l, l->length + 2);
  return HEED_OK;
}

/* Without the white space at its end. */
static heed_text trimmed(heed_text text) {
  heed_text rest = text, word, last = {text.data, 0};
  while (hd_next_word(&rest, &word)) last = word;
  return (heed_text){text.data, last.length ? (size_t)(last.data + last.length - text.data) : 0};
}

/* The words of a text; they point into the line, which must be kept for as long. */
static heed_status tokenize(line *l, heed_text text, hd_pieces *words) {
  static const replacement replacements[] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                             {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
  static const parting partings[] = {
      {is_no_digit, is_point, false, true}, {is_point, is_no_digit, true, false}, {is_digit, is_dash, false, true}};
  text = trimmed(text);
  l->length = (int64_t)text.length;
  HD_TRY(hd_grow(l->context, "a line of words", &l->text, &l->room, l->length, 1));
  if (text.length > 0) memcpy(l->text, text.data, text.length);
  for (int64_t i = 0; i < HD_COUNT(replacements); i++) HD_TRY(replace(l, replacements[i]));
  HD_TRY(surround(l));
  HD_TRY(part_symbols(l));
  for (int64_t i = 0; i < HD_COUNT(partings); i++) HD_TRY(part(l, &partings[i]));
  heed_text rest = {l->text, (size_t)l->length}, word;
  while (hd_next_word(&rest, &word)) HD_TRY(hd_pieces_add(words, word));
  return HEED_OK;
}

/* ---- the score ------------------------------------------------------------------------------------------------------------------- */

typedef struct sums {
  int64_t shared[HEED_BLEU_ORDERS], all[HEED_BLEU_ORDERS], words, reference_words;
} sums;

/* Lines and words are room that sentences share. */
typedef struct scratch {
  line translation, reference;
  hd_pieces words; /* of both, the translation's first */
} scratch;

static heed_status add_sentence(heed_context *context, scratch *s, heed_text translation, heed_text reference, sums *sums) {
  s->words.count = 0;
  HD_TRY(tokenize(&s->translation, translation, &s->words));
  const int64_t words = s->words.count;
  HD_TRY(tokenize(&s->reference, reference, &s->words));
  const int64_t reference_words = s->words.count - words;
  HD_TRY(hd_pieces_number(&s->words));
  for (int n = 1; n <= HEED_BLEU_ORDERS; n++) sums->all[n - 1] += hd_ngrams(words, n);
  sums->words += words;
  sums->reference_words += reference_words;
  return hd_ngrams_shared(context, s->words.number, words, s->words.number + words, reference_words, HEED_BLEU_ORDERS, sums->shared);
}

/* Where nothing at all is shared there is no score, and no precision is smoothed. An order that no translation is long enough for has the precision 0, so the score too is 0. */
static void conclude(const sums *s, heed_bleu *out) {
  double missing = 1, logs = 0;
  bool any = false;
  out->words = s->words;
  out->reference_words = s->reference_words;
  out->brevity = s->words >= s->reference_words ? 1 : s->words > 0 ? exp(1 - (double)s->reference_words / (double)s->words) : 0;
  for (int n = 0; n < HEED_BLEU_ORDERS; n++) any |= s->shared[n] > 0;
  for (int n = 0; n < HEED_BLEU_ORDERS && any && s->all[n] > 0; n++) {
    if (s->shared[n] == 0) missing *= 2;
    out->precisions[n] = 100 * (s->shared[n] > 0 ? (double)s->shared[n] : 1 / missing) / (double)s->all[n];
  }
  for (int n = 0; n < HEED_BLEU_ORDERS; n++) logs += out->precisions[n] > 0 ? log(out->precisions[n]) : -INFINITY;
  out->score = out->brevity * exp(logs / HEED_BLEU_ORDERS);
}

heed_status heed_bleu_score(heed_context *context, const heed_text *translations, const heed_text *references, int64_t count,
                            heed_bleu *out) {
  if (!context) return HEED_E_ARGUMENT;
  heed_bleu found = {.size = sizeof found};
  sums all;
  memset(&all, 0, sizeof all);
  scratch s = {{.context = context}, {.context = context}, {.context = context}};
  HD_REQUIRE(out && out->size == sizeof *out, context, HEED_E_ARGUMENT, "heed_bleu_score: out is null or its size not set");
  HD_TRY(hd_check_translations(context, "heed_bleu_score", translations, references, count));
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) status = add_sentence(context, &s, translations[i], references[i], &all);
  hd_pieces_free(&s.words);
  line_free(&s.reference);
  line_free(&s.translation);
  if (status != HEED_OK) return status;
  conclude(&all, &found);
  *out = found;
  return HEED_OK;
}
