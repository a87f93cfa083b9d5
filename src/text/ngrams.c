/* ngrams.c: n-grams that two sequences share, by sorting.
 *
 * The places of a sequence in the order of what stands from them on: n-grams that are equal lie side by side, for every n at once. So each sequence is sorted once, and one merge an order
 * counts what both have. */
#include "ngrams.h"
#include "utf8.h"

typedef struct place {
  const int32_t *at;
  int64_t left; /* symbols from here to the end */
} place;

/* By the first n symbols of both. */
static int compare_symbols(const int32_t *a, const int32_t *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

static int compare_places(const void *x, const void *y) {
  const place *a = x, *b = y;
  const int64_t n = HD_MIN(HD_MIN(a->left, b->left), HD_MOST_ORDERS);
  const int order = compare_symbols(a->at, b->at, n);
  return order ? order : (a->left > b->left) - (a->left < b->left);
}

static heed_status sort_places(heed_context *context, const int32_t *symbols, int64_t count, place **out) {
  HD_TRY(hd_allocate(context, "places of a text", count, sizeof **out, out));
  for (int64_t i = 0; i < count; i++) (*out)[i] = (place){symbols + i, count - i};
  qsort(*out, (size_t)count, sizeof **out, compare_places);
  return HEED_OK;
}

/* The first place at or after i that has n symbols. */
static int64_t next_place(const place *places, int64_t count, int64_t i, int64_t n) {
  while (i < count && places[i].left < n) i++;
  return i;
}

static int64_t count_shared(const place *a, int64_t na, const place *b, int64_t nb, int64_t n) {
  int64_t shared = 0;
  int64_t i = next_place(a, na, 0, n), j = next_place(b, nb, 0, n);
  while (i < na && j < nb) {
    const int order = compare_symbols(a[i].at, b[j].at, n);
    shared += order == 0;
    if (order <= 0) i = next_place(a, na, i + 1, n);
    if (order >= 0) j = next_place(b, nb, j + 1, n);
  }
  return shared;
}

heed_status hd_ngrams_shared(heed_context *context, const int32_t *a, int64_t na, const int32_t *b, int64_t nb, int orders,
                             int64_t *shared) {
  place *x, *y;
  HD_TRY(sort_places(context, a, na, &x));
  heed_status status = sort_places(context, b, nb, &y);
  if (status == HEED_OK) {
    for (int n = 1; n <= orders; n++) shared[n - 1] += count_shared(x, na, y, nb, n);
    hd_release(context, y, nb, sizeof *y);
  }
  hd_release(context, x, na, sizeof *x);
  return status;
}

/* ---- pieces ---------------------------------------------------------------------------------------------------------------------- */

heed_status hd_pieces_add(hd_pieces *pieces, heed_text text) {
  HD_TRY(hd_grow(pieces->context, "words", &pieces->text, &pieces->room, pieces->count + 1, sizeof *pieces->text));
  pieces->text[pieces->count++] = text;
  return HEED_OK;
}

typedef struct numbered {
  heed_text text;
  int64_t index;
} numbered;

static int compare_numbered(const void *x, const void *y) {
  const numbered *a = x, *b = y;
  const int order = memcmp(a->text.data, b->text.data, HD_MIN(a->text.length, b->text.length));
  return order ? order : (a->text.length > b->text.length) - (a->text.length < b->text.length);
}

heed_status hd_pieces_number(hd_pieces *pieces) {
  numbered *sorted;
  const int64_t count = pieces->count;
  HD_TRY(hd_grow(pieces->context, "words", &pieces->number, &pieces->number_room, count, sizeof *pieces->number));
  HD_TRY(hd_allocate(pieces->context, "words", count, sizeof *sorted, &sorted));
  for (int64_t i = 0; i < count; i++) sorted[i] = (numbered){pieces->text[i], i};
  qsort(sorted, (size_t)count, sizeof *sorted, compare_numbered);
  int32_t number = 0;
  for (int64_t i = 0; i < count; i++) {
    number += i > 0 && compare_numbered(&sorted[i - 1], &sorted[i]) != 0;
    pieces->number[sorted[i].index] = number;
  }
  hd_release(pieces->context, sorted, count, sizeof *sorted);
  return HEED_OK;
}

void hd_pieces_free(hd_pieces *pieces) {
  hd_release(pieces->context, pieces->text, pieces->room, sizeof *pieces->text);
  hd_release(pieces->context, pieces->number, pieces->number_room, sizeof *pieces->number);
}

/* ---- words ----------------------------------------------------------------------------------------------------------------------- */

/* Beyond Unicode's White_Space the four separators of ASCII. */
bool hd_is_python_space(uint32_t code) { return hd_is_white_space(code) || (code >= 0x1C && code <= 0x1F); }

bool hd_next_word(heed_text *rest, heed_text *word) {
  const char *data = rest->data;
  size_t begin = 0, end;
  uint32_t code;
  for (int size; begin < rest->length; begin += (size_t)size) {
    size = hd_utf8_next(data + begin, rest->length - begin, &code);
    if (!hd_is_python_space(code)) break;
  }
  for (end = begin; end < rest->length;) {
    int size = hd_utf8_next(data + end, rest->length - end, &code);
    if (hd_is_python_space(code)) break;
    end += (size_t)size;
  }
  *word = (heed_text){data + begin, end - begin};
  *rest = (heed_text){data + end, rest->length - end};
  return word->length > 0;
}

static heed_status check_texts(heed_context *context, const char *call, const char *name, const heed_text *texts, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    HD_REQUIRE(texts[i].data || texts[i].length == 0, context, HEED_E_ARGUMENT, "%s: %s %lld is null", call, name, (long long)i + 1);
    const size_t valid = hd_utf8_valid(texts[i].data, texts[i].length);
    HD_REQUIRE(valid == texts[i].length, context, HEED_E_FORMAT, "%s: %s %lld is not UTF-8 (byte %zu of %zu)", call, name, (long long)i + 1,
               valid, texts[i].length);
  }
  return HEED_OK;
}

heed_status hd_check_translations(heed_context *context, const char *call, const heed_text *translations, const heed_text *references,
                                  int64_t count) {
  HD_REQUIRE(count >= 0 && (count == 0 || (translations && references)), context, HEED_E_ARGUMENT,
             "%s: translations or references are null, or their count is negative", call);
  HD_TRY(check_texts(context, call, "translation", translations, count));
  return check_texts(context, call, "reference", references, count);
}
