/* merge.c: repeatedly merge the most urgent pair of neighbours.
 *
 * A candidate is never removed from the heap when one of its symbols changes; it is recognised as stale when it comes up. Symbols only grow, and the left one keeps its
 * place, so "left has the length it had, and both together have the length they had" holds exactly while both symbols are what they were. */
#include "merge.h"

void hd_merger_free(hd_merger *merger) {
  hd_release(merger->context, merger->symbols, merger->symbol_capacity, sizeof *merger->symbols);
  hd_release(merger->context, merger->heap, merger->heap_capacity, sizeof *merger->heap);
  *merger = (hd_merger){.context = merger->context};
}

heed_status hd_merger_begin(hd_merger *merger, int64_t symbols) {
  merger->symbol_count = 0;
  merger->heap_count = 0;
  HD_TRY(hd_grow(merger->context, "symbols of a text", &merger->symbols, &merger->symbol_capacity, symbols, sizeof *merger->symbols));
  // n − 1 pairs to begin with; each of at most n − 1 merges takes one candidate out and puts at most two in.
  return hd_grow(merger->context, "merge candidates", &merger->heap, &merger->heap_capacity, 2 * symbols, sizeof *merger->heap);
}

void hd_merger_append(hd_merger *merger, int32_t id, uint32_t length) {
  int32_t index = (int32_t)merger->symbol_count++;
  hd_symbol *symbol = &merger->symbols[index];
  *symbol = (hd_symbol){.previous = index - 1, .next = -1, .id = id, .length = length};
  if (index > 0) {
    symbol[-1].next = index;
    symbol->begin = symbol[-1].begin + symbol[-1].length;
  }
}

static void heap_push(hd_merger *merger, hd_candidate candidate) {
  hd_candidate *heap = merger->heap;
  int64_t at = merger->heap_count++;
  for (; at > 0 && heap[(at - 1) / 2].key > candidate.key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = candidate;
}

static hd_candidate heap_pop(hd_merger *merger) {
  hd_candidate *heap = merger->heap, top = heap[0], last = heap[--merger->heap_count];
  int64_t at = 0, count = merger->heap_count;
  for (int64_t child = 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
    if (heap[child].key >= last.key) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return top;
}

typedef struct merging {
  hd_merger *merger;
  const heed_tokenizer *tokenizer;
  const char *text;
  hd_join_rule rule;
} merging;

static void propose(const merging *run, int32_t index) {
  const hd_symbol *left = &run->merger->symbols[index], *right = &run->merger->symbols[left->next];
  hd_join join;
  if (!run->rule(run->tokenizer, run->text, left, right, &join)) return;
  heap_push(run->merger, (hd_candidate){.key = (uint64_t)join.priority << 32 | (uint32_t)index,
                                        .left_length = left->length,
                                        .length = left->length + right->length});
}

static void absorb(hd_symbol *symbols, int32_t index, int32_t id) {
  hd_symbol *left = &symbols[index], *right = &symbols[left->next];
  left->id = id;
  left->length += right->length;
  left->next = right->next;
  right->length = 0;
  if (left->next >= 0) symbols[left->next].previous = index;
}

void hd_merge(hd_merger *merger, const heed_tokenizer *tokenizer, const char *text, hd_join_rule rule) {
  const merging run = {merger, tokenizer, text, rule};
  for (int64_t i = 0; i + 1 < merger->symbol_count; i++) propose(&run, (int32_t)i);
  while (merger->heap_count > 0) {
    hd_candidate candidate = heap_pop(merger);
    int32_t index = (int32_t)(candidate.key & 0xFFFFFFFFu);
    hd_symbol *left = &merger->symbols[index];
    if (left->length != candidate.left_length || left->next < 0) continue;
    hd_symbol *right = &merger->symbols[left->next];
    hd_join join;
    if (left->length + right->length != candidate.length || !rule(tokenizer, text, left, right, &join)) continue;
    absorb(merger->symbols, index, join.id);
    if (left->previous >= 0) propose(&run, left->previous);
    if (left->next >= 0) propose(&run, index);
  }
}
