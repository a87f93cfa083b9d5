/* links.c: word alignments: the format of Pharaoh, and the alignment error rate (Och & Ney 2003). */
#include "../base/base.h"
#include "../../include/heed/text.h"
#include "../io/json.h"

#include <math.h>

/* ---- reading --------------------------------------------------------------------------------------------------------------------- */

/* Digits at *at, which moves behind them; false where there are none or the number is no 32-bit one. */
static bool read_number(heed_text text, size_t *at, int32_t *out) {
  int64_t number = 0;
  const size_t begin = *at;
  for (; *at < text.length && text.data[*at] >= '0' && text.data[*at] <= '9' && number <= INT32_MAX; ++*at)
    number = 10 * number + (text.data[*at] - '0');
  *out = (int32_t)HD_MIN(number, INT32_MAX);
  return *at > begin && number <= INT32_MAX;
}

static bool read_link(heed_text word, heed_link *out) {
  size_t at = 0;
  if (!read_number(word, &at, &out->source) || at == word.length) return false;
  const char mark = word.data[at++];
  out->possible = mark == 'p';
  return (mark == '-' || mark == 'p') && read_number(word, &at, &out->target) && at == word.length;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* The next word of the line from *at on; empty at its end. */
static heed_text next_word(heed_text line, size_t *at) {
  while (*at < line.length && is_blank(line.data[*at])) ++*at;
  const size_t begin = *at;
  while (*at < line.length && !is_blank(line.data[*at])) ++*at;
  return (heed_text){line.data + begin, *at - begin};
}

heed_status heed_links_parse(heed_context *context, heed_text line, heed_link **links, int64_t *count) {
  if (!context) return HEED_E_ARGUMENT;
  HD_REQUIRE(links && count && (line.data || line.length == 0), context, HEED_E_ARGUMENT, "heed_links_parse: null");
  char quoted[HD_QUOTE_LENGTH];
  int64_t n = 0;
  size_t at = 0;
  while (next_word(line, &at).length > 0) n++;
  HD_TRY(hd_allocate(context, "an alignment", n, sizeof **links, links));
  *count = n;
  at = 0;
  for (int64_t i = 0; i < n; i++) {
    const heed_text word = next_word(line, &at);
    if (read_link(word, &(*links)[i])) continue;
    heed_links_free(context, *links, n);
    *links = NULL;
    return hd_fail(context, HEED_E_FORMAT, "an alignment is written as SOURCE-TARGET, or SOURCEpTARGET where it is possible (got \"%s\")",
                   hd_quote(word, quoted));
  }
  return HEED_OK;
}

void heed_links_free(heed_context *context, heed_link *links, int64_t count) { hd_release(context, links, count, sizeof *links); }

/* ---- counting -------------------------------------------------------------------------------------------------------------------- */

static int compare_ends(const heed_link *a, const heed_link *b) {
  return a->source != b->source ? (a->source < b->source ? -1 : 1) : (a->target > b->target) - (a->target < b->target);
}

/* Of two that differ only in being possible the sure one comes first. */
static int compare_links(const void *x, const void *y) {
  const heed_link *a = x, *b = y;
  const int order = compare_ends(a, b);
  return order ? order : a->possible - b->possible;
}

/* A sorted copy in which each link stands once; *room is what it was allocated for. */
static heed_status as_set(heed_context *context, const heed_link *links, int64_t count, heed_link **out, int64_t *kept) {
  HD_TRY(hd_allocate(context, "an alignment", count, sizeof **out, out));
  if (count > 0) memcpy(*out, links, (size_t)count * sizeof **out);
  qsort(*out, (size_t)count, sizeof **out, compare_links);
  *kept = 0;
  for (int64_t i = 0; i < count; i++)
    if (*kept == 0 || compare_ends(&(*out)[*kept - 1], &(*out)[i]) != 0) (*out)[(*kept)++] = (*out)[i];
  return HEED_OK;
}

static void count_links(const heed_link *found, int64_t found_count, const heed_link *reference, int64_t reference_count,
                        heed_alignment_score *score) {
  score->found += found_count;
  for (int64_t j = 0; j < reference_count; j++) score->sure += !reference[j].possible;
  for (int64_t i = 0, j = 0; i < found_count && j < reference_count;) {
    const int order = compare_ends(&found[i], &reference[j]);
    score->found_right += order == 0;
    score->found_sure += order == 0 && !reference[j].possible;
    i += order <= 0;
    j += order >= 0;
  }
}

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : NAN; }

heed_status heed_alignment_add(heed_context *context, const heed_link *found, int64_t found_count, const heed_link *reference,
                               int64_t reference_count, heed_alignment_score *score) {
  if (!context) return HEED_E_ARGUMENT;
  heed_link *a, *b;
  int64_t na, nb;
  HD_REQUIRE(score && score->size == sizeof *score, context, HEED_E_ARGUMENT, "heed_alignment_add: score is null or its size not set");
  HD_REQUIRE(found_count >= 0 && reference_count >= 0 && (found || found_count == 0) && (reference || reference_count == 0), context,
             HEED_E_ARGUMENT, "heed_alignment_add: links are null, or their count is negative");
  HD_TRY(as_set(context, found, found_count, &a, &na));
  heed_status status = as_set(context, reference, reference_count, &b, &nb);
  if (status == HEED_OK) {
    count_links(a, na, b, nb, score);
    score->precision = share(score->found_right, score->found);
    score->recall = share(score->found_sure, score->sure);
    score->error_rate = 1 - share(score->found_sure + score->found_right, score->found + score->sure);
    heed_links_free(context, b, reference_count);
  }
  heed_links_free(context, a, found_count);
  return status;
}
