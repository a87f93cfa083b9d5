/* train_bpe.c: learning the merges of byte-level BPE: again and again, the pair of neighbours that stands most often becomes a token; of equals the one with the smaller ids.
 *
 * Equal pieces of text are one word with a count. Every pair knows how often it stands, and a heap of pairs says which comes next; an entry whose count is no longer true goes
 * back with the true one. An entry carries the words that its pair came up in, so a merge touches only those. The merges are those of the tokenizers library (BpeTrainer),
 * whose habits show where two ways lead to one token: the second merge is listed too and the token keeps its id, and a pair that was merged keeps what its count was. */
#include "train.h"
#include "hash.h"

typedef struct word {
  int64_t begin, length; /* its symbols */
  int64_t count;         /* pieces of the text that are this word */
  const char *text;
  size_t bytes;
} word;

typedef struct pair {
  int32_t left, right;
  int64_t count;
  int32_t list;    /* the words that it has newly come up in, −1: none */
  int32_t touched; /* the next pair with such a list, −1: none */
} pair;

/* A list of words: each node points to the one before it. */
typedef struct node {
  int32_t word, next;
} node;

typedef struct entry {
  int64_t count;
  int32_t left, right;
  int32_t pair, list;
} entry;

typedef struct trainer {
  heed_context *context;
  hd_learned *learned;
  int32_t of_byte[256];
  word *words;
  int64_t word_count, word_capacity;
  int32_t *word_slots; /* numbers of words by text, −1: empty */
  int64_t word_slot_count;
  int32_t *symbols;
  int64_t symbol_count, symbol_capacity;
  pair *pairs;
  int64_t pair_count, pair_capacity;
  int32_t *pair_slots;
  int64_t pair_slot_count;
  int32_t touched; /* the first pair with a list */
  node *nodes;
  int64_t node_count, node_capacity;
  entry *heap;
  int64_t heap_count, heap_capacity;
  int32_t *token_slots; /* ids by text */
  int64_t token_slot_count;
  int64_t counted, text_bytes; /* of the text so far, in all */
} trainer;

/* A table for `entries` numbers, empty. */
static heed_status new_slots(trainer *t, int64_t entries, int32_t **slots, int64_t *count) {
  *count = hd_table_size(entries);
  HD_TRY(hd_allocate(t->context, "a table", *count, sizeof **slots, slots));
  memset(*slots, 0xFF, (size_t)*count * sizeof **slots); // −1
  return HEED_OK;
}

static bool is_full(int64_t entries, int64_t slots) { return entries >= slots - slots / 4; }

/* ---- words ------------------------------------------------------------------------------------------------------------------ */

static int32_t *word_slot(const trainer *t, const char *text, size_t bytes) {
  const uint32_t mask = (uint32_t)t->word_slot_count - 1;
  for (uint32_t slot = hd_hash_text(text, bytes) & mask;; slot = (slot + 1) & mask) {
    const int32_t i = t->word_slots[slot];
    if (i < 0 || (t->words[i].bytes == bytes && memcmp(t->words[i].text, text, bytes) == 0)) return &t->word_slots[slot];
  }
}

static heed_status widen_words(trainer *t) {
  hd_release(t->context, t->word_slots, t->word_slot_count, sizeof *t->word_slots);
  t->word_slots = NULL;
  HD_TRY(new_slots(t, 2 * t->word_count, &t->word_slots, &t->word_slot_count));
  for (int32_t i = 0; i < t->word_count; i++) *word_slot(t, t->words[i].text, t->words[i].bytes) = i;
  return HEED_OK;
}

static heed_status add_word(trainer *t, heed_text piece) {
  const int64_t bytes = (int64_t)piece.length;
  HD_REQUIRE(t->symbol_count + bytes < INT32_MAX / 4, t->context, HEED_E_OVERFLOW,
             "the text has too many different words to train a tokenizer on (allowed %d bytes of them)", INT32_MAX / 4);
  HD_TRY(hd_grow(t->context, "words of a text", &t->words, &t->word_capacity, t->word_count + 1, sizeof *t->words));
  HD_TRY(hd_grow(t->context, "words of a text", &t->symbols, &t->symbol_capacity, t->symbol_count + bytes, sizeof *t->symbols));
  *word_slot(t, piece.data, piece.length) = (int32_t)t->word_count;
  t->words[t->word_count++] = (word){.begin = t->symbol_count, .length = bytes, .count = 1, .text = piece.data, .bytes = piece.length};
  for (int64_t i = 0; i < bytes; i++) t->symbols[t->symbol_count++] = t->of_byte[(unsigned char)piece.data[i]];
  return is_full(t->word_count, t->word_slot_count) ? widen_words(t) : HEED_OK;
}

enum { REPORT_BYTES = 1 << 20 };

static heed_status count_word(void *user, heed_text piece) {
  trainer *t = user;
  const int64_t before = t->counted;
  t->counted += (int64_t)piece.length;
  if (before / REPORT_BYTES != t->counted / REPORT_BYTES) HD_TRY(hd_progress(t->context, "words", t->counted, t->text_bytes));
  const int32_t i = *word_slot(t, piece.data, piece.length);
  if (i < 0) return add_word(t, piece);
  t->words[i].count++;
  return HEED_OK;
}

static heed_status find_words(trainer *t, heed_text text) {
  hd_splitter splitter;
  hd_split_session session;
  t->text_bytes = (int64_t)text.length;
  HD_TRY(new_slots(t, 1000, &t->word_slots, &t->word_slot_count));
  HD_TRY(hd_splitter_init(t->context, &splitter, hd_pre_tokenizer_named((heed_text){"gpt2", 4}), "training"));
  heed_status status = hd_split_begin(&session, t->context, &splitter, text.length);
  if (status == HEED_OK) {
    status = hd_split(&session, text, count_word, t);
    hd_split_end(&session);
  }
  hd_splitter_free(&splitter);
  return status;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------------------ */

static int32_t *pair_slot(const trainer *t, int32_t left, int32_t right) {
  const uint32_t mask = (uint32_t)t->pair_slot_count - 1;
  for (uint32_t slot = hd_hash_pair(left, right) & mask;; slot = (slot + 1) & mask) {
    const int32_t i = t->pair_slots[slot];
    if (i < 0 || (t->pairs[i].left == left && t->pairs[i].right == right)) return &t->pair_slots[slot];
  }
}

static heed_status widen_pairs(trainer *t) {
  hd_release(t->context, t->pair_slots, t->pair_slot_count, sizeof *t->pair_slots);
  t->pair_slots = NULL;
  HD_TRY(new_slots(t, 2 * t->pair_count, &t->pair_slots, &t->pair_slot_count));
  for (int32_t i = 0; i < t->pair_count; i++) *pair_slot(t, t->pairs[i].left, t->pairs[i].right) = i;
  return HEED_OK;
}

static heed_status find_pair(trainer *t, int32_t left, int32_t right, int32_t *out) {
  int32_t *slot = pair_slot(t, left, right);
  *out = *slot;
  if (*slot >= 0) return HEED_OK;
  HD_TRY(hd_grow(t->context, "pairs of symbols", &t->pairs, &t->pair_capacity, t->pair_count + 1, sizeof *t->pairs));
  *out = *slot = (int32_t)t->pair_count;
  t->pairs[t->pair_count++] = (pair){.left = left, .right = right, .list = -1};
  return is_full(t->pair_count, t->pair_slot_count) ? widen_pairs(t) : HEED_OK;
}

/* The pair (left, right) stands `change` times more often; where that is more, in this word. */
static heed_status change_pair(trainer *t, int32_t left, int32_t right, int64_t change, int32_t in_word) {
  int32_t i;
  HD_TRY(find_pair(t, left, right, &i));
  pair *p = &t->pairs[i];
  p->count += change;
  if (change < 0 || (p->list >= 0 && t->nodes[p->list].word == in_word)) return HEED_OK;
  HD_TRY(hd_grow(t->context, "words of pairs", &t->nodes, &t->node_capacity, t->node_count + 1, sizeof *t->nodes));
  if (p->list < 0) {
    p->touched = t->touched;
    t->touched = i;
  }
  t->nodes[t->node_count] = (node){.word = in_word, .next = p->list};
  p->list = (int32_t)t->node_count++;
  return HEED_OK;
}

static heed_status count_pairs(trainer *t) {
  HD_TRY(new_slots(t, 1000, &t->pair_slots, &t->pair_slot_count));
  for (int32_t w = 0; w < t->word_count; w++) {
    const word *at = &t->words[w];
    for (int64_t i = at->begin; i + 1 < at->begin + at->length; i++) HD_TRY(change_pair(t, t->symbols[i], t->symbols[i + 1], at->count, w));
  }
  return HEED_OK;
}

/* ---- the heap --------------------------------------------------------------------------------------------------------------- */

static bool comes_before(const entry *a, const entry *b) {
  if (a->count != b->count) return a->count > b->count;
  return a->left != b->left ? a->left < b->left : a->right < b->right;
}

/* There is room. */
static void push(trainer *t, entry new) {
  int64_t at = t->heap_count++;
  for (; at > 0 && comes_before(&new, &t->heap[(at - 1) / 2]); at = (at - 1) / 2) t->heap[at] = t->heap[(at - 1) / 2];
  t->heap[at] = new;
}

static entry pop(trainer *t) {
  const entry top = t->heap[0], last = t->heap[--t->heap_count];
  int64_t at = 0;
  for (int64_t child = 1; child < t->heap_count; child = 2 * at + 1) {
    if (child + 1 < t->heap_count && comes_before(&t->heap[child + 1], &t->heap[child])) child++;
    if (!comes_before(&t->heap[child], &last)) break;
    t->heap[at] = t->heap[child];
    at = child;
  }
  t->heap[at] = last;
  return top;
}

/* The pairs that have come up become entries. */
static heed_status push_touched(trainer *t) {
  while (t->touched >= 0) {
    const int32_t i = t->touched;
    pair *p = &t->pairs[i];
    HD_TRY(hd_grow(t->context, "pairs of symbols", &t->heap, &t->heap_capacity, t->heap_count + 1, sizeof *t->heap));
    if (p->count > 0) push(t, (entry){.count = p->count, .left = p->left, .right = p->right, .pair = i, .list = p->list});
    p->list = -1;
    t->touched = p->touched;
  }
  return HEED_OK;
}

/* ---- merging ---------------------------------------------------------------------------------------------------------------- */

static int32_t *token_slot(const trainer *t, heed_text text) {
  const uint32_t mask = (uint32_t)t->token_slot_count - 1;
  for (uint32_t slot = hd_hash_text(text.data, text.length) & mask;; slot = (slot + 1) & mask) {
    const int32_t id = t->token_slots[slot];
    if (id < 0) return &t->token_slots[slot];
    heed_text known = hd_learned_text(t->learned, id);
    if (known.length == text.length && memcmp(known.data, text.data, text.length) == 0) return &t->token_slots[slot];
  }
}

/* The token of both texts together: a new one, unless another pair has led to it. */
static heed_status join(trainer *t, const entry *top, int32_t *id) {
  hd_learned *learned = t->learned;
  HD_TRY(hd_learned_merge(learned, top->left, top->right));
  heed_text left = hd_learned_text(learned, top->left), right = hd_learned_text(learned, top->right);
  char *joined;
  const int64_t bytes = (int64_t)(left.length + right.length);
  HD_TRY(hd_allocate(t->context, "a token", bytes, 1, &joined));
  memcpy(joined, left.data, left.length);
  memcpy(joined + left.length, right.data, right.length);
  int32_t *slot = token_slot(t, (heed_text){joined, (size_t)bytes});
  heed_status status = HEED_OK;
  if (*slot < 0) {
    *slot = (int32_t)learned->count;
    status = hd_learned_token(learned, (heed_text){joined, (size_t)bytes});
  }
  *id = *slot;
  hd_release(t->context, joined, bytes, 1);
  return status;
}

/* In one word, every (left, right) from the left on becomes the new symbol. What stands before it has been through this already. */
static heed_status merge_in_word(trainer *t, int32_t w, int32_t left, int32_t right, int32_t merged) {
  word *at = &t->words[w];
  int32_t *symbols = t->symbols + at->begin;
  int64_t kept = 0;
  for (int64_t i = 0; i < at->length; i++) {
    if (symbols[i] != left || i + 1 == at->length || symbols[i + 1] != right) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      HD_TRY(change_pair(t, symbols[kept - 1], left, -at->count, w));
      HD_TRY(change_pair(t, symbols[kept - 1], merged, at->count, w));
    }
    if (i + 2 < at->length) {
      HD_TRY(change_pair(t, right, symbols[i + 2], -at->count, w));
      HD_TRY(change_pair(t, merged, symbols[i + 2], at->count, w));
    }
    symbols[kept++] = merged;
    i++;
  }
  at->length = kept;
  return HEED_OK;
}

static heed_status learn(trainer *t, int64_t vocabulary) {
  const int64_t first = t->learned->count;
  HD_TRY(push_touched(t));
  while (t->learned->count < vocabulary && t->heap_count > 0) {
    entry top = pop(t);
    if (top.count != t->pairs[top.pair].count) {
      top.count = t->pairs[top.pair].count;
      push(t, top);
      continue;
    }
    if (top.count < 1) break;
    int32_t merged;
    HD_TRY(join(t, &top, &merged));
    for (int32_t n = top.list; n >= 0; n = t->nodes[n].next) HD_TRY(merge_in_word(t, t->nodes[n].word, top.left, top.right, merged));
    HD_TRY(push_touched(t));
    HD_TRY(hd_progress(t->context, "merges", t->learned->count - first, vocabulary - first));
  }
  return HEED_OK;
}

static heed_status begin(trainer *t, int64_t vocabulary) {
  HD_TRY(new_slots(t, vocabulary, &t->token_slots, &t->token_slot_count));
  for (int32_t id = 0; id < t->learned->count; id++) {
    heed_text text = hd_learned_text(t->learned, id);
    t->of_byte[(unsigned char)text.data[0]] = id;
    *token_slot(t, text) = id;
  }
  return HEED_OK;
}

heed_status hd_train_bpe(hd_learned *learned, heed_text text, int64_t vocabulary) {
  trainer t = {.context = learned->context, .learned = learned, .touched = -1};
  heed_status status;
  HD_TRY_DONE(begin(&t, vocabulary));
  HD_TRY_DONE(find_words(&t, text));
  HD_TRY_DONE(count_pairs(&t));
  status = learn(&t, vocabulary);
done:
  hd_release(t.context, t.words, t.word_capacity, sizeof *t.words);
  hd_release(t.context, t.word_slots, t.word_slot_count, sizeof *t.word_slots);
  hd_release(t.context, t.symbols, t.symbol_capacity, sizeof *t.symbols);
  hd_release(t.context, t.pairs, t.pair_capacity, sizeof *t.pairs);
  hd_release(t.context, t.pair_slots, t.pair_slot_count, sizeof *t.pair_slots);
  hd_release(t.context, t.nodes, t.node_capacity, sizeof *t.nodes);
  hd_release(t.context, t.heap, t.heap_capacity, sizeof *t.heap);
  hd_release(t.context, t.token_slots, t.token_slot_count, sizeof *t.token_slots);
  return status;
}
