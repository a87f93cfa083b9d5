/* train_words.c: a vocabulary of words: a text cut as BERT's tokenizer cuts it (wordpiece.h), its words counted, the most frequent ones kept, first those that stand more often, of equals the
 * one whose bytes come first. No word goes on with another, so each is one token or unknown. */
#include "hash.h"
#include "train.h"
#include "wordpiece.h"

typedef struct counter {
  hd_learned words; /* each once, in the order they came */
  int64_t *count;   /* [words.count] how often */
  int64_t room;
  int32_t *slots; /* numbers of words by text, −1: empty */
  int64_t slot_count;
} counter;

static heed_status widen(counter *c, int64_t entries) {
  hd_release(c->words.context, c->slots, c->slot_count, sizeof *c->slots);
  c->slots = NULL;
  c->slot_count = hd_table_size(entries);
  HD_TRY(hd_allocate(c->words.context, "a table of words", c->slot_count, sizeof *c->slots, &c->slots));
  memset(c->slots, 0xFF, (size_t)c->slot_count * sizeof *c->slots); // −1
  return HEED_OK;
}

static bool is_word(const counter *c, int32_t i, heed_text word) {
  const heed_text text = hd_learned_text(&c->words, i);
  return text.length == word.length && memcmp(text.data, word.data, word.length) == 0;
}

static int32_t *slot_of(const counter *c, heed_text word) {
  const uint32_t mask = (uint32_t)c->slot_count - 1;
  uint32_t slot = hd_hash_text(word.data, word.length) & mask;
  while (c->slots[slot] >= 0 && !is_word(c, c->slots[slot], word)) slot = (slot + 1) & mask;
  return &c->slots[slot];
}

static heed_status add_word(counter *c, heed_text word) {
  HD_REQUIRE(c->words.count < INT32_MAX / 4, c->words.context, HEED_E_OVERFLOW, "the text has too many different words (allowed %d)",
             INT32_MAX / 4);
  HD_TRY(hd_grow(c->words.context, "counts of words", &c->count, &c->room, c->words.count + 1, sizeof *c->count));
  *slot_of(c, word) = (int32_t)c->words.count;
  c->count[c->words.count] = 1;
  HD_TRY(hd_learned_token(&c->words, word));
  if (c->words.count < c->slot_count - c->slot_count / 4) return HEED_OK;
  HD_TRY(widen(c, 2 * c->words.count));
  for (int32_t i = 0; i < c->words.count; i++) *slot_of(c, hd_learned_text(&c->words, i)) = i;
  return HEED_OK;
}

/* Words as they come from the normaliser, each with a space in front. */
static heed_status count_words(counter *c, heed_text line) {
  for (size_t at = 0; at < line.length;) {
    const char *begin = line.data + at + 1, *space = memchr(begin, ' ', line.length - at - 1);
    const heed_text word = {begin, space ? (size_t)(space - begin) : line.length - at - 1};
    at += word.length + 1;
    if (word.length == 0) continue;
    const int32_t i = *slot_of(c, word);
    if (i >= 0) c->count[i]++;
    else HD_TRY(add_word(c, word));
  }
  return HEED_OK;
}

static heed_status count_line(counter *c, const heed_tokenizer *cutting, heed_text line) {
  char *out = NULL;
  int64_t room = 0;
  size_t length = 0;
  heed_status status = hd_wordpiece_normalise(c->words.context, cutting, line, &out, &room, &length);
  if (status == HEED_OK) status = count_words(c, (heed_text){out, length});
  hd_release(c->words.context, out, room, 1);
  return status;
}

static heed_status count_text(counter *c, const heed_tokenizer *cutting, heed_text text) {
  enum { LINES_A_REPORT = 4096 };
  HD_TRY(widen(c, 1000));
  for (size_t at = 0, lines = 1; at < text.length; lines++) {
    const char *end = memchr(text.data + at, '\n', text.length - at);
    const size_t length = end ? (size_t)(end - text.data) - at : text.length - at;
    HD_TRY(count_line(c, cutting, (heed_text){text.data + at, length}));
    at += length + 1;
    if (lines % LINES_A_REPORT == 0) HD_TRY(hd_progress(c->words.context, "words", (int64_t)HD_MIN(at, text.length), (int64_t)text.length));
  }
  return HEED_OK;
}

typedef struct ranked {
  heed_text text;
  int64_t count;
} ranked;

static int compare_ranked(const void *x, const void *y) {
  const ranked *a = x, *b = y;
  if (a->count != b->count) return a->count > b->count ? -1 : 1;
  const int order = memcmp(a->text.data, b->text.data, HD_MIN(a->text.length, b->text.length));
  return order ? order : (a->text.length > b->text.length) - (a->text.length < b->text.length);
}

static heed_status keep_frequent(const counter *c, int64_t most, hd_learned *learned) {
  ranked *all;
  heed_status status = HEED_OK;
  HD_TRY(hd_allocate(learned->context, "words of a text", c->words.count, sizeof *all, &all));
  for (int64_t i = 0; i < c->words.count; i++) all[i] = (ranked){hd_learned_text(&c->words, i), c->count[i]};
  qsort(all, (size_t)c->words.count, sizeof *all, compare_ranked);
  for (int64_t i = 0; i < HD_MIN(c->words.count, most) && status == HEED_OK; i++) status = hd_learned_token(learned, all[i].text);
  hd_release(learned->context, all, c->words.count, sizeof *all);
  return status;
}

heed_status hd_train_words(hd_learned *learned, const heed_tokenizer *cutting, heed_text text, int64_t most) {
  counter c = {.words = {.context = learned->context}};
  heed_status status = count_text(&c, cutting, text);
  if (status == HEED_OK) status = keep_frequent(&c, most, learned);
  hd_release(learned->context, c.slots, c.slot_count, sizeof *c.slots);
  hd_release(learned->context, c.count, c.room, sizeof *c.count);
  hd_learned_free(&c.words);
  return status;
}
