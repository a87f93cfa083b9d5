/* visible.c: what queries see. A pattern says of one row which runs of keys it sees; from these come the bits of a rectangle, and which tiles of keys some rows see at all. Unions
 * and intersections are those of bits and of sets of tiles. In an order the runs of a row become at most two spans of places. */
#include "visible.h"
#include "limit.h"
#include "pattern.h"

/* ---- one row ----------------------------------------------------------------------------------------------------------------------- */

/* A row, and the keys of its document. */
struct row {
  const hd_problem *problem;
  hd_row row;
  int64_t begin, end;
};

static struct row row_of(const hd_problem *problem, int64_t batch, int64_t head, int64_t query) {
  const heed_attention *a = &problem->a;
  const hd_place place = hd_problem_place(problem, batch, query);
  const int64_t end =
      a->key_lengths ? HD_MIN(a->key_lengths[batch], place.end) : place.end; // padding must not show, not even in what is drawn
  return (struct row){.problem = problem,
                      .begin = place.begin,
                      .end = HD_MAX(place.begin, end),
                      .row = {.batch = batch,
                              .head = head,
                              .position = place.position - place.begin,
                              .keys = HD_MAX(end - place.begin, 0),
                              .causal = a->causal,
                              .query = query,
                              .queries = problem->queries}};
}

/* How many rows from this one on have the same runs. */
static int64_t rows_alike(const heed_pattern *pattern, const struct row *row) {
  const hd_pattern_kind *kind = hd_pattern_kind_of(pattern);
  int64_t least = INT64_MAX;
  if (kind) return kind->alike && (kind->absolute || !row->problem->a.documents) ? kind->alike(pattern, &row->row) : 1;
  for (int64_t i = 0; i < pattern->parts; i++) least = HD_MIN(least, rows_alike(pattern->part[i], row));
  return least;
}

/* The runs of a row, one after the other or found at once. */
struct runs {
  const hd_pattern_kind *kind;
  const heed_pattern *pattern;
  const struct row *row;
  hd_run at_once[HD_RUNS_AT_ONCE];
};

static void begin_runs(const hd_pattern_kind *kind, const heed_pattern *pattern, const struct row *row, struct runs *runs) {
  runs->kind = kind;
  runs->pattern = pattern;
  runs->row = row;
  if (kind->all) kind->all(pattern, &row->row, runs->at_once);
}

/* A run among the keys of the call, within those that the row may see; without a step where it is one piece. */
static hd_run run_of(const struct runs *runs, int64_t i) {
  const hd_pattern_kind *kind = runs->kind;
  const struct row *row = runs->row;
  hd_run run = kind->all ? runs->at_once[i] : kind->run(runs->pattern, &row->row, i);
  const int64_t shift = kind->absolute ? 0 : row->begin, low = shift, high = kind->absolute ? row->problem->keys : row->end;
  run.begin += shift;
  run.end = HD_MIN(run.end + shift, high);
  if (run.width == run.step) run.step = 0;
  // The first piece that reaches the keys; a run without a step is cut.
  if (run.begin < low) run.begin = run.step ? run.begin + (low - run.begin - run.width + run.step) / run.step * run.step : low;
  return run;
}

/* The runs of a row that may reach keys from `key` on begin with this one. */
static int64_t first_run(const hd_pattern_kind *kind, const heed_pattern *pattern, const struct row *row, int64_t key) {
  return kind->first ? kind->first(pattern, &row->row, key - (kind->absolute ? 0 : row->begin)) : 0;
}

/* ---- bits -------------------------------------------------------------------------------------------------------------------------- */

/* Bits [from, to) of a word. */
static uint64_t bits_between(int64_t from, int64_t to) {
  if (from >= to) return 0;
  return (to - from == 64 ? ~(uint64_t)0 : ((uint64_t)1 << (to - from)) - 1) << from;
}

/* What of a run lies among `count` keys from `first` on, `step` apart: bit i for the i-th. */
static uint64_t run_bits(const hd_run *run, int64_t first, int64_t step, int count) {
  const int64_t last = first + (count - 1) * step, end = HD_MIN(run->end, last + 1);
  uint64_t bits = 0;
  if (run->begin >= end || run->end <= first) return 0;
  const int64_t from = run->begin > first ? (run->begin - first + step - 1) / step : 0, to = (end - first + step - 1) / step;
  if (!run->step) return bits_between(from, to);
  if (step % run->step == 0) // all of them lie alike
    return hd_floor_mod(first - run->begin, run->step) < run->width ? bits_between(from, to) : 0;
  if (step > 1) {
    for (int64_t i = from; i < to; i++) bits |= (uint64_t)((first + i * step - run->begin) % run->step < run->width) << i;
    return bits;
  }
  int64_t at = run->begin;
  if (at + run->width <= first) at += (first - at - run->width + run->step) / run->step * run->step;
  for (; at < end; at += run->step) bits |= bits_between(HD_MAX(at, first) - first, HD_MIN(at + run->width, end) - first);
  return bits;
}

/* The bits of a kind; ordered ones left out where another pass has them. */
static uint64_t kind_bits(const hd_pattern_kind *kind, const heed_pattern *pattern, const struct row *row, bool in_place, int64_t first,
                          int64_t step, int count) {
  uint64_t bits = 0;
  struct runs runs;
  begin_runs(kind, pattern, row, &runs);
  for (int64_t all = kind->runs(pattern, &row->row), i = first_run(kind, pattern, row, first); i < all; i++) {
    const hd_run run = run_of(&runs, i);
    if (kind->first && run.begin > first + (count - 1) * step) break;
    if (!in_place || run.order == HD_IN_PLACE) bits |= run_bits(&run, first, step, count);
  }
  return bits;
}

static uint64_t part_bits(const heed_pattern *pattern, const struct row *row, int64_t first, int64_t step, int count) {
  const hd_pattern_kind *kind = hd_pattern_kind_of(pattern);
  uint64_t bits = pattern->kind == HEED_PATTERN_INTERSECTION ? ~(uint64_t)0 : 0;
  if (kind) return kind_bits(kind, pattern, row, false, first, step, count);
  for (int64_t i = 0; i < pattern->parts; i++) {
    const uint64_t part = part_bits(pattern->part[i], row, first, step, count);
    bits = pattern->kind == HEED_PATTERN_UNION ? bits | part : bits & part;
  }
  return bits;
}

/* What of the row a pass shows that has everything, or all that others have not. */
static uint64_t row_bits(const hd_sweep *pass, const struct row *row, int64_t first, int64_t step, int count) {
  const hd_problem *problem = row->problem;
  const heed_pattern *pattern = problem->a.pattern;
  int64_t parts;
  const heed_pattern *const *part = hd_pattern_parts(&pattern, &parts);
  uint64_t bits = 0;
  if (!pass || problem->passes == 1) return part_bits(pattern, row, first, step, count);
  for (int64_t i = 0; i < parts; i++) {
    const hd_pattern_kind *kind = hd_pattern_kind_of(part[i]);
    bits |= kind ? kind_bits(kind, part[i], row, hd_sweep_of(problem, part[i], row->row.head) != NULL, first, step, count)
                 : part_bits(part[i], row, first, step, count);
  }
  return bits;
}

/* Words of a set of tiles. */
static int64_t word_count(const hd_problem *problem) {
  return problem->a.pattern ? hd_ceil_div(hd_ceil_div(problem->keys, HD_KEY_TILE), 64) : 0;
}

/* Clears what the pattern hides where each piece of the rows sees all of the tile or nothing; false: some see a part of it. */
static bool hide_pieces(const hd_problem *problem, const hd_rect *rect, const hd_live *live, uint64_t *visible) {
  const int64_t words = word_count(problem), tile = rect->k0 / HD_KEY_TILE;
  uint64_t seeing = 0;
  for (int i = 0; i < live->pieces; i++) {
    const uint64_t *alive = live->piece_sets + 2 * i * words, *shown = alive + words;
    if (!(alive[tile / 64] >> tile % 64 & 1)) continue;
    if (!(shown[tile / 64] >> tile % 64 & 1)) return false;
    seeing |= bits_between(i ? live->piece_end[i - 1] : 0, live->piece_end[i]);
  }
  for (int64_t key = 0; key < rect->k1 - rect->k0; key++) visible[key] &= seeing;
  return true;
}

/* Clears what the pattern hides. live: of these rows, or NULL. */
static void hide(const hd_problem *problem, const hd_sweep *pass, const hd_rect *rect, const hd_live *live, uint64_t *visible) {
  const int64_t queries = rect->q1 - rect->q0;
  uint64_t bits[64] = {0};
  if (live && live->pieces && hide_pieces(problem, rect, live, visible)) return;
  for (int64_t i = 0, same; i < queries; i += same) {
    const struct row row = row_of(problem, rect->batch, rect->head, rect->q0 + i);
    const uint64_t word = row_bits(pass, &row, rect->k0, 1, (int)(rect->k1 - rect->k0));
    same = HD_MIN(rows_alike(problem->a.pattern, &row), queries - i);
    for (int64_t j = i; j < i + same; j++) bits[j] = word;
  }
  hd_transpose_bits(bits);
  for (int64_t key = 0; key < rect->k1 - rect->k0; key++) visible[key] &= bits[key];
}

static hd_cover cover_of(const uint64_t *visible, int64_t queries, int64_t keys) {
  const uint64_t all = ~(uint64_t)0 >> (64 - queries);
  uint64_t any = 0, every = all;
  for (int64_t key = 0; key < keys; key++) {
    any |= visible[key];
    every &= visible[key];
  }
  return !any ? HD_EMPTY : every == all ? HD_FULL : HD_PARTIAL;
}

static hd_cover rect_bits(const hd_problem *problem, const hd_sweep *pass, const hd_rect *rect, const hd_live *live, uint64_t *visible) {
  const hd_cover cover = hd_limit_bits(problem, rect, visible);
  if (!problem->a.pattern || rect->shown || cover == HD_EMPTY) return cover;
  hide(problem, pass, rect, live, visible);
  return cover_of(visible, rect->q1 - rect->q0, rect->k1 - rect->k0);
}

hd_cover hd_visible_bits(const hd_problem *problem, const hd_rect *rect, uint64_t *visible) {
  return rect_bits(problem, NULL, rect, NULL, visible);
}

/* Heads of a tile see alike or not, so each is asked. */
static hd_cover bits_in_place(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, const hd_live *live, int64_t k0,
                              int64_t k1, uint64_t visible[HD_KEY_TILE]) {
  const bool shown = live && hd_live_shown(live, k0);
  if (live && k0 >= live->from && k1 <= live->to && (shown || !problem->a.pattern)) return HD_FULL;
  int queries = lanes->count / lanes->heads;
  hd_rect rect = {lanes->batch, lanes->head[0], lanes->row[0], lanes->row[0] + queries, k0, k1, shown};
  hd_cover cover = rect_bits(problem, pass, &rect, live, visible);
  if (lanes->heads == 1) return cover;
  bool any = cover != HD_EMPTY, all = cover == HD_FULL;
  if (cover == HD_EMPTY) memset(visible, 0, HD_KEY_TILE * sizeof *visible);
  for (int h = 1; h < lanes->heads; h++) {
    uint64_t bits[HD_KEY_TILE];
    rect.head = lanes->head[h * queries];
    cover = rect_bits(problem, pass, &rect, NULL, bits);
    any |= cover != HD_EMPTY;
    all &= cover == HD_FULL;
    for (int key = 0; cover != HD_EMPTY && key < k1 - k0; key++) visible[key] |= bits[key] << (h * queries);
  }
  return !any ? HD_EMPTY : all ? HD_FULL : HD_PARTIAL;
}

/* ---- bits in an order ---------------------------------------------------------------------------------------------------------------- */

/* What the masks of the description show of a row. */
static uint64_t masked_bits(const hd_problem *problem, const hd_lanes *lanes, int lane, const hd_keys *keys) {
  uint64_t bits = ~(uint64_t)0;
  for (int limit = 0; limit < problem->limits; limit++) {
    if (!problem->limit[limit]->hide) continue;
    for (int i = 0; i < keys->count; i++) {
      uint64_t one = 1;
      const int64_t key = hd_key(keys, i);
      const hd_rect rect = {
          .batch = lanes->batch, .head = lanes->head[lane], .q0 = lanes->row[lane], .q1 = lanes->row[lane] + 1, .k0 = key, .k1 = key + 1};
      problem->limit[limit]->hide(problem, &rect, &one);
      bits &= ~((uint64_t)!one << i);
    }
  }
  return bits;
}

/* What earlier passes have shown of a row already, where the pattern has other parts. */
static uint64_t earlier_bits(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, int lane, const hd_keys *keys) {
  const struct row row = row_of(problem, lanes->batch, lanes->head[lane], lanes->row[lane]);
  uint64_t bits = 0;
  for (int i = 0, next; i < keys->count; i = next) { // pieces of keys evenly apart
    const int64_t first = hd_key(keys, i), step = i + 1 < keys->count ? hd_key(keys, i + 1) - first : 1;
    for (next = i + 1; next < keys->count && step > 0 && hd_key(keys, next) == first + (next - i) * step;) next++;
    for (const hd_sweep *p = problem->pass; p < pass; p++) {
      uint64_t piece;
      if (p->part && hd_sweep_of(problem, p->part, row.row.head) != p) continue;
      if (!p->part) {
        piece = row_bits(p, &row, first, HD_MAX(step, 1), next - i);
      } else { // of this part all that is not in place, and what is has been counted
        piece = part_bits(p->part, &row, first, HD_MAX(step, 1), next - i);
      }
      bits |= piece << i;
    }
  }
  return bits;
}

/* Whether no key lies in a tile that an earlier pass shows some of to some of these rows. */
static bool apart_from_earlier(const hd_live *live, const hd_keys *keys) {
  if (!live->earlier || !keys->step) return false;
  const int64_t last = hd_key(keys, keys->count - 1) / HD_KEY_TILE;
  for (int64_t tile = keys->key[0] / HD_KEY_TILE; tile <= last; tile++)
    if (live->shown[tile / 64] >> tile % 64 & 1) return false;
  return true;
}

/* Rows whose spans are known: most tiles they fill, or leave out, whole. */
static hd_cover bits_in_order(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, const hd_live *live, int64_t k0,
                              int64_t k1, uint64_t visible[HD_KEY_TILE]) {
  const uint64_t all = bits_between(0, k1 - k0);
  uint64_t rows[64] = {0}, every = all, any = 0;
  hd_keys keys;
  bool masked = false;
  for (int i = 0; i < problem->limits; i++) masked |= problem->limit[i]->hide != NULL;
  if (masked || problem->parted) hd_keys_of(pass, k0, k1, &keys);
  const bool earlier = problem->parted && !apart_from_earlier(live, &keys);
  for (int lane = 0; lane < lanes->count; lane++) {
    const int64_t *span = live->spans + 4 * lane;
    for (int i = 0; i < 4; i += 2)
      if (span[i] < k1 && span[i + 1] > k0) rows[lane] |= bits_between(HD_MAX(span[i], k0) - k0, HD_MIN(span[i + 1], k1) - k0);
    if (rows[lane] && masked) rows[lane] &= masked_bits(problem, lanes, lane, &keys);
    if (rows[lane] && earlier) rows[lane] &= ~earlier_bits(problem, pass, lanes, lane, &keys);
    every &= rows[lane];
    any |= rows[lane];
  }
  if (!any) return HD_EMPTY;
  if (every == all) return HD_FULL;
  hd_transpose_bits(rows);
  memcpy(visible, rows, sizeof rows);
  return HD_PARTIAL;
}

hd_cover hd_lanes_visible(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, const hd_live *live, int64_t k0,
                          int64_t k1, uint64_t visible[HD_KEY_TILE]) {
  if (pass && pass->part) return bits_in_order(problem, pass, lanes, live, k0, k1, visible);
  return bits_in_place(problem, pass, lanes, live, k0, k1, visible);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------------------------- */

/* Words [first, last] of the sets, and what they are of: the keys that the limits leave. */
struct tiles {
  int64_t begin, end, first, last, words;
};

bool hd_live_cut_sets(const hd_problem *problem, hd_live *live, float *memory, int64_t *floats) {
  float *alive, *shown, *spans;
  const bool ordered = problem->pass[problem->passes - 1].part != NULL;
  const hd_part parts[] = {{&alive, 2, word_count(problem)}, {&shown, 2, word_count(problem)}, {&spans, 2, ordered ? 4 * HD_MAX_LANES : 0}};
  if (!hd_cut(memory, parts, (int)HD_COUNT(parts), floats)) return false;
  if (memory) *live = (hd_live){.alive = (uint64_t *)alive, .shown = (uint64_t *)shown, .spans = (int64_t *)spans};
  return true;
}

bool hd_live_cut(const hd_problem *problem, hd_live *live, float *memory, int64_t *floats) {
  // Heads, and each level, have two sets of their own under way besides those of their result, and a row one.
  float *scratch, *pieces;
  const hd_part parts[] = {{&scratch, 2 * (2 * (HD_PATTERN_DEPTH + 1) + 1), word_count(problem)},
                           {&pieces, 2 * 2 * HD_LIVE_PIECES, word_count(problem)}};
  if (!hd_live_cut_sets(problem, live, memory, floats) || !hd_cut(memory, parts, (int)HD_COUNT(parts), floats)) return false;
  if (!memory) return true;
  live->scratch = (uint64_t *)scratch;
  live->piece_sets = (uint64_t *)pieces;
  return true;
}

/* Puts tiles [from, to) into a set. */
static void add_tiles(uint64_t *set, int64_t from, int64_t to) {
  for (int64_t next; from < to; from = next) {
    next = HD_MIN((from / 64 + 1) * 64, to);
    set[from / 64] |= bits_between(from % 64, from % 64 + next - from);
  }
}

/* One piece [begin, end) of a row: tiles that it touches, and those that it fills, the last one up to the last key. */
static void add_piece(const struct tiles *t, int64_t begin, int64_t end, int64_t keys, uint64_t *alive, uint64_t *shown) {
  begin = HD_MAX(begin, t->begin);
  end = HD_MIN(end, t->end);
  if (begin >= end) return;
  const int64_t filled = end == keys ? hd_ceil_div(end, HD_KEY_TILE) : end / HD_KEY_TILE;
  add_tiles(alive, begin / HD_KEY_TILE, (end - 1) / HD_KEY_TILE + 1);
  add_tiles(shown, hd_ceil_div(begin, HD_KEY_TILE), filled);
}

static void add_run(const struct tiles *t, const hd_run *run, int64_t keys, uint64_t *alive, uint64_t *shown) {
  const int64_t end = HD_MIN(run->end, t->end);
  int64_t at = run->begin;
  if (!run->step) {
    add_piece(t, at, end, keys, alive, shown);
    return;
  }
  if (at + run->width <= t->begin) at += (t->begin - at - run->width + run->step) / run->step * run->step;
  if (at >= end) return;
  if (run->step <= HD_KEY_TILE) { // no tile between two pieces is without one
    const int64_t last = at + (end - 1 - at) / run->step * run->step;
    add_tiles(alive, HD_MAX(at, t->begin) / HD_KEY_TILE, (HD_MIN(last + run->width, end) - 1) / HD_KEY_TILE + 1);
    return;
  }
  for (; at < end; at += run->step) add_piece(t, at, HD_MIN(at + run->width, end), keys, alive, shown);
}

static void fill_set(const struct tiles *t, uint64_t *set, uint64_t word) {
  for (int64_t w = t->first; w <= t->last; w++) set[w] = word;
}

/* The tiles of one kind: alive where a row has some of it, shown where every row has all. */
static void kind_tiles(const hd_problem *problem, const hd_pattern_kind *kind, const heed_pattern *pattern, bool in_place,
                       const hd_rect *rect, const struct tiles *t, uint64_t *alive, uint64_t *shown, uint64_t *scratch) {
  fill_set(t, alive, 0);
  fill_set(t, shown, ~(uint64_t)0);
  for (int64_t q = rect->q0; q < rect->q1;) {
    const struct row row = row_of(problem, rect->batch, rect->head, q);
    struct runs runs;
    fill_set(t, scratch, 0);
    begin_runs(kind, pattern, &row, &runs);
    for (int64_t count = kind->runs(pattern, &row.row), i = first_run(kind, pattern, &row, t->begin); i < count; i++) {
      const hd_run run = run_of(&runs, i);
      if (kind->first && run.begin >= t->end) break;
      if (!in_place || run.order == HD_IN_PLACE) add_run(t, &run, problem->keys, alive, scratch);
    }
    for (int64_t w = t->first; w <= t->last; w++) shown[w] &= scratch[w];
    const int64_t same = rows_alike(pattern, &row);
    q = same < rect->q1 - q ? q + same : rect->q1;
  }
}

/* pass: of the whole pattern, for what other passes have; NULL below it. */
static void pattern_tiles(const hd_problem *problem, const hd_sweep *pass, const heed_pattern *pattern, const hd_rect *rect,
                          const struct tiles *t, uint64_t *alive, uint64_t *shown, uint64_t *scratch) {
  const hd_pattern_kind *kind = hd_pattern_kind_of(pattern);
  if (kind) {
    kind_tiles(problem, kind, pattern, pass && hd_sweep_of(problem, pattern, rect->head), rect, t, alive, shown, scratch);
    return;
  }
  const bool either = pattern->kind == HEED_PATTERN_UNION;
  uint64_t *part_alive = scratch, *part_shown = scratch + t->words;
  if (!either) pass = NULL;
  for (int64_t i = 0; i < pattern->parts; i++) {
    const hd_sweep *own = hd_pattern_kind_of(pattern->part[i]) ? pass : NULL;
    if (i == 0) {
      pattern_tiles(problem, own, pattern->part[0], rect, t, alive, shown, scratch);
      continue;
    }
    pattern_tiles(problem, own, pattern->part[i], rect, t, part_alive, part_shown, scratch + 2 * t->words);
    for (int64_t w = t->first; w <= t->last; w++) {
      alive[w] = either ? alive[w] | part_alive[w] : alive[w] & part_alive[w];
      shown[w] = either ? shown[w] | part_shown[w] : shown[w] & part_shown[w];
    }
  }
}

/* Cuts the rows of one head into pieces that see alike; none where they are more than there is room for. */
static void find_pieces(const hd_problem *problem, const hd_rect *rect, hd_live *live) {
  for (int64_t q = rect->q0; q < rect->q1; live->pieces++) {
    const struct row row = row_of(problem, rect->batch, rect->head, q);
    const int64_t same = HD_MIN(rows_alike(problem->a.pattern, &row), rect->q1 - q);
    if (live->pieces == HD_LIVE_PIECES) {
      live->pieces = 0;
      return;
    }
    live->piece_end[live->pieces] = (int)((q += same) - rect->q0);
  }
  if (live->pieces == 1) live->pieces = 0; // the sets of all rows say it
}

/* The tiles of one head; piece by piece where rows come in pieces. */
static void head_tiles(const hd_problem *problem, const hd_sweep *pass, const hd_rect *rect, const struct tiles *t, hd_live *live,
                       uint64_t *alive, uint64_t *shown, uint64_t *scratch) {
  if (live->pieces < 2) {
    pattern_tiles(problem, pass, problem->a.pattern, rect, t, alive, shown, scratch);
    return;
  }
  fill_set(t, alive, 0);
  fill_set(t, shown, ~(uint64_t)0);
  for (int i = 0; i < live->pieces; i++) {
    hd_rect piece = *rect;
    uint64_t *piece_alive = live->piece_sets + 2 * i * t->words, *piece_shown = piece_alive + t->words;
    piece.q0 = rect->q0 + (i ? live->piece_end[i - 1] : 0);
    piece.q1 = rect->q0 + live->piece_end[i];
    pattern_tiles(problem, pass, problem->a.pattern, &piece, t, piece_alive, piece_shown, scratch);
    for (int64_t w = t->first; w <= t->last; w++) {
      alive[w] |= piece_alive[w];
      shown[w] &= piece_shown[w];
    }
  }
}

/* What the pattern leaves of the span: from the first tile that is alive to the last. */
static void cut_to_alive(const struct tiles *t, hd_live *live) {
  int64_t first = t->first, last = t->last;
  while (first <= last && !live->alive[first]) first++;
  while (last > first && !live->alive[last]) last--;
  if (first > last) {
    live->end = live->begin;
    return;
  }
  live->begin = HD_MAX(live->begin, (first * 64 + __builtin_ctzll(live->alive[first])) * HD_KEY_TILE);
  live->end = HD_MIN(live->end, (last * 64 + 64 - __builtin_clzll(live->alive[last])) * HD_KEY_TILE);
}

static void find_in_place(const hd_problem *problem, const hd_sweep *pass, int64_t batch, const int64_t *heads, int count, int64_t q0,
                          int64_t q1, hd_live *live) {
  hd_limit_span(problem, batch, q0, q1, &live->begin, &live->end);
  hd_limit_whole(problem, batch, q0, q1, &live->from, &live->to);
  live->sets = problem->a.pattern != NULL;
  live->pieces = 0;
  live->earlier = false;
  if (!live->sets || live->begin == live->end) return;
  const struct tiles t = {.begin = live->begin,
                          .end = live->end,
                          .first = live->begin / HD_KEY_TILE / 64,
                          .last = (live->end - 1) / HD_KEY_TILE / 64,
                          .words = word_count(problem)};
  for (int h = 0; h < count; h++) {
    const hd_rect rect = {.batch = batch, .head = heads[h], .q0 = q0, .q1 = q1};
    uint64_t *alive = h ? live->scratch : live->alive, *shown = h ? live->scratch + t.words : live->shown;
    if (live->piece_sets && count == 1) find_pieces(problem, &rect, live);
    head_tiles(problem, pass, &rect, &t, live, alive, shown, h ? live->scratch + 2 * t.words : live->scratch);
    for (int64_t w = t.first; h && w <= t.last; w++) {
      live->alive[w] |= alive[w];
      live->shown[w] &= shown[w];
    }
  }
  cut_to_alive(&t, live);
}

/* The spans of a row in the pass's order, as far as the limits leave them. */
static void find_spans(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, int lane, int64_t span[4]) {
  const struct row row = row_of(problem, lanes->batch, lanes->head[lane], lanes->row[lane]);
  const hd_pattern_kind *kind = hd_pattern_kind_of(pass->part);
  struct runs runs;
  int64_t begin, end;
  int found = 0;
  memset(span, 0, 4 * sizeof *span);
  hd_limit_span(problem, lanes->batch, lanes->row[lane], lanes->row[lane] + 1, &begin, &end);
  begin_runs(kind, pass->part, &row, &runs);
  for (int64_t all = kind->runs(pass->part, &row.row), i = 0; i < all; i++) {
    const hd_run run = run_of(&runs, i);
    const int64_t from = HD_MAX(run.begin, begin), to = HD_MIN(run.end, end);
    if (run.order == HD_IN_PLACE || from >= to || found == 4) continue;
    hd_order_places(&pass->order, run.begin, from, to, &span[found], &span[found + 1]);
    found += 2;
  }
}

/* Rows farther apart than this are not worth going through all that lie between. */
enum { NEAR_ROWS = 8 * HD_MAX_LANES };

/* What the pass in place, if it is the only one before this, shows of the rows from the first to the last of the lanes. */
static void find_earlier(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, hd_live *live) {
  hd_rect rect = {.batch = lanes->batch, .head = lanes->head[0], .q0 = problem->queries};
  for (int lane = 0; lane < lanes->count; lane++) {
    rect.q0 = HD_MIN(rect.q0, lanes->row[lane]);
    rect.q1 = HD_MAX(rect.q1, lanes->row[lane] + 1);
  }
  live->earlier = problem->parted && pass == problem->pass + 1 && !problem->pass[0].part && rect.q1 - rect.q0 <= NEAR_ROWS;
  if (!live->earlier) return;
  const struct tiles t = {.end = problem->keys, .last = (problem->keys - 1) / HD_KEY_TILE / 64, .words = word_count(problem)};
  pattern_tiles(problem, problem->pass, problem->a.pattern, &rect, &t, live->shown, live->scratch, live->scratch + t.words);
}

static void find_in_order(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, hd_live *live) {
  const int64_t words = word_count(problem);
  const hd_sweep *own = hd_sweep_of(problem, pass->part, lanes->head[0]);
  live->sets = true;
  live->pieces = 0;
  live->earlier = false;
  live->begin = live->end = 0;
  if (own != pass) return; // another dilation than this head's
  live->begin = pass->order.keys;
  memset(live->alive, 0, (size_t)words * sizeof *live->alive);
  find_earlier(problem, pass, lanes, live);
  for (int lane = 0; lane < lanes->count; lane++) {
    int64_t *span = live->spans + 4 * lane;
    find_spans(problem, pass, lanes, lane, span);
    for (int i = 0; i < 4; i += 2) {
      if (span[i] >= span[i + 1]) continue;
      live->begin = HD_MIN(live->begin, span[i]);
      live->end = HD_MAX(live->end, span[i + 1]);
      add_tiles(live->alive, span[i] / HD_KEY_TILE, (span[i + 1] - 1) / HD_KEY_TILE + 1);
    }
  }
  live->begin = HD_MIN(live->begin, live->end);
}

void hd_live_of_lanes(const hd_problem *problem, const hd_sweep *pass, const hd_lanes *lanes, hd_live *live) {
  const int queries = lanes->count / lanes->heads;
  int64_t heads[HD_MAX_LANES];
  for (int h = 0; h < lanes->heads; h++) heads[h] = lanes->head[h * queries];
  if (pass && pass->part) find_in_order(problem, pass, lanes, live);
  else find_in_place(problem, pass, lanes->batch, heads, lanes->heads, lanes->row[0], lanes->row[0] + queries, live);
}

int64_t hd_first_visible(const hd_problem *problem, int64_t batch, int64_t head, int64_t q0, int64_t q1, hd_live *live) {
  int64_t first = problem->keys;
  for (int64_t q = q0; q < q1; q += 64) {
    hd_rect rect = {.batch = batch, .head = head, .q0 = q, .q1 = HD_MIN(q + 64, q1)};
    find_in_place(problem, NULL, batch, &head, 1, rect.q0, rect.q1, live);
    for (rect.k1 = 0; hd_live_next(live, rect.k1, &rect.k0, &rect.k1) && rect.k0 < first;) {
      uint64_t visible[HD_KEY_TILE];
      if (hd_visible_bits(problem, &rect, visible) == HD_EMPTY) continue;
      for (int64_t key = HD_MIN(rect.k1, first) - 1; key >= rect.k0; key--)
        if (visible[key - rect.k0]) first = key;
    }
  }
  return first;
}

bool hd_live_next(const hd_live *live, int64_t key, int64_t *k0, int64_t *k1) {
  key = HD_MAX(key, live->begin);
  if (key >= live->end) return false;
  int64_t tile = key / HD_KEY_TILE;
  if (live->sets) {
    const int64_t last = (live->end - 1) / HD_KEY_TILE;
    uint64_t word = live->alive[tile / 64] >> tile % 64 << tile % 64;
    for (tile = tile / 64 * 64; !word; word = live->alive[tile / 64])
      if ((tile += 64) > last) return false;
    tile += __builtin_ctzll(word);
    if (tile > last) return false;
  }
  *k0 = HD_MAX(tile * HD_KEY_TILE, key);
  *k1 = HD_MIN((tile + 1) * HD_KEY_TILE, live->end);
  return true;
}

bool hd_live_shown(const hd_live *live, int64_t key) {
  return live->sets && live->shown[key / HD_KEY_TILE / 64] >> key / HD_KEY_TILE % 64 & 1;
}

/* ---- passes ------------------------------------------------------------------------------------------------------------------------- */

/* Fewer keys are soon gone through as they lie. */
enum { LEAST_ORDERED = 256 };

static bool same_order(const hd_order *a, const hd_order *b) { return a->kind == b->kind && a->step == b->step && a->width == b->width; }

/* The order that a part has for a head; HD_IN_PLACE where it has none worth it. */
static hd_order order_of(const hd_problem *problem, const heed_pattern *part, int64_t head, bool *all) {
  const hd_pattern_kind *kind = hd_pattern_kind_of(part);
  int64_t step, width;
  *all = false;
  if (!kind || !kind->order) return (hd_order){0};
  const hd_order_kind order = kind->order(part, head, &step, &width, all);
  // A summary of documents would be that of each, wherever it begins.
  if (order == HD_IN_PLACE || step > problem->keys / 2 || (order == HD_SUMMARY && problem->a.documents)) return (hd_order){0};
  return hd_order_of(order, step, width, problem->queries, problem->keys);
}

const hd_sweep *hd_sweep_of(const hd_problem *problem, const heed_pattern *part, int64_t head) {
  bool all;
  if (!problem->pass[problem->passes - 1].part) return NULL;
  const hd_order order = order_of(problem, part, head, &all);
  for (int i = 0; order.kind != HD_IN_PLACE && i < problem->passes; i++)
    if (problem->pass[i].part == part && same_order(&problem->pass[i].order, &order)) return &problem->pass[i];
  return NULL;
}

void hd_sweeps_choose(hd_problem *problem) {
  const heed_pattern *pattern = problem->a.pattern;
  int64_t parts;
  if (!pattern || problem->scoring || problem->a.factors || problem->keys < LEAST_ORDERED) return;
  const heed_pattern *const *part = hd_pattern_parts(&pattern, &parts);
  bool whole = true; // whether passes have everything
  problem->parted = parts > 1;
  for (int64_t i = 0; i < parts; i++)
    for (int64_t head = 0; head < problem->heads; head++) {
      bool all;
      const hd_order order = order_of(problem, part[i], head, &all);
      const bool new = order.kind != HD_IN_PLACE && !hd_sweep_of(problem, part[i], head);
      if (new && problem->passes < HD_MAX_SWEEPS) problem->pass[problem->passes++] = (hd_sweep){part[i], order};
      whole &= all && hd_sweep_of(problem, part[i], head);
    }
  if (whole && problem->passes > 1) memmove(problem->pass, problem->pass + 1, (size_t)--problem->passes * sizeof *problem->pass);
}
