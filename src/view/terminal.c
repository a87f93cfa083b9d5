/* terminal.c: a record on a terminal: what every head does (one glyph a head), what one token looks at, and the heat map of one head.
 *
 * No line is ever wider than asked (or than LEAST_WIDTH). With HEED_COLOR_NONE the output is plain text: no escape codes, digits instead of colours. A masked cell keeps the
 * terminal's own background. */
#include "record.h"

#include <math.h>
#include <stdio.h>

enum {
  DEFAULT_WIDTH = 80,
  LEAST_WIDTH = 20, // narrower terminals get lines of this width
  MAX_LABEL = 16,   // columns of a token's label
  MAX_CELL = 7,     // columns of one cell of the map: six letters of its token and a gap
  MAX_ROWS = 200,   // rows of the map before they are binned
  SCALE_CELLS = 12  // of the scale bar
};

enum { ABSENT = -1 }; // the level of a masked cell

typedef struct screen {
  hd_out out;
  const heed_record *record;
  heed_terminal_options options;
  int width;
  hd_rgb map[HD_LEVELS];
  uint8_t index[HD_LEVELS]; // the same colours in the 256-colour palette
  int ink, paper;           // levels now set, ABSENT for the terminal's own
  bool bold, reverse;
  hd_arena arena;
  hd_label *queries, *keys;
} screen;

/* ---- colour and lines ---------------------------------------------------------------------------------------------------- */

static void set_level(screen *s, int *now, int level, int code) {
  if (s->options.color == HEED_COLOR_NONE || *now == level) return;
  *now = level;
  if (level == ABSENT) hd_out_print(&s->out, "\x1b[%dm", code + 1);
  else if (s->options.color == HEED_COLOR_256) hd_out_print(&s->out, "\x1b[%d;5;%dm", code, s->index[level]);
  else hd_out_print(&s->out, "\x1b[%d;2;%d;%d;%dm", code, s->map[level].r, s->map[level].g, s->map[level].b);
}

static void set_ink(screen *s, int level) { set_level(s, &s->ink, level, 38); }
static void set_paper(screen *s, int level) { set_level(s, &s->paper, level, 48); }

/* Switches an attribute of text on or off where that changes anything. */
static void set_attribute(screen *s, bool *now, bool wanted, const char *on, const char *off) {
  if (s->options.color == HEED_COLOR_NONE || *now == wanted) return;
  *now = wanted;
  hd_out_text(&s->out, wanted ? on : off);
}

static void set_bold(screen *s, bool on) { set_attribute(s, &s->bold, on, "\x1b[1m", "\x1b[22m"); }
static void set_reverse(screen *s, bool on) { set_attribute(s, &s->reverse, on, "\x1b[7m", "\x1b[27m"); }

static void end_line(screen *s) {
  set_bold(s, false);
  set_ink(s, ABSENT);
  set_paper(s, ABSENT);
  hd_out_text(&s->out, "\n");
}

/* Writes text cut to the columns that are left; returns the columns used. */
static int put_cut(screen *s, const char *text, int columns) {
  hd_label label;
  char buffer[HD_LABEL_BYTES];
  if (s->out.status != HEED_OK) return 0;
  s->out.status = hd_label_of(s->out.context, &s->arena, hd_text(text), &label);
  if (s->out.status != HEED_OK) return 0;
  label = hd_label_cut(&label, columns, buffer);
  hd_out_label(&s->out, &label);
  return label.columns;
}

static void put_line(screen *s, const char *text) {
  put_cut(s, text, s->width);
  end_line(s);
}

static void put_token(screen *s, const hd_label *token, int columns, bool right) {
  char buffer[HD_LABEL_BYTES];
  hd_label cut = hd_label_cut(token, columns, buffer);
  if (right) hd_out_spaces(&s->out, columns - cut.columns);
  hd_out_label(&s->out, &cut);
  if (!right) hd_out_spaces(&s->out, columns - cut.columns);
}

static int widest(const hd_label *labels, int64_t count, int limit) {
  int columns = 1;
  for (int64_t i = 0; i < count; i++) columns = HD_MAX(columns, HD_MIN(labels[i].columns, limit));
  return columns;
}

/* ---- heading and overview ------------------------------------------------------------------------------------------------ */

static void put_heading(screen *s) {
  const heed_record *r = s->record;
  char shape[HD_SHAPE_NAME];
  int64_t bytes = (int64_t)(r->model.length + r->family.length) + HD_SHAPE_NAME + 16;
  char *text;
  if (s->out.status != HEED_OK) return;
  s->out.status = hd_arena_allocate(&s->arena, s->out.context, "the heading", bytes, 1, &text);
  if (s->out.status != HEED_OK) return;
  snprintf(text, (size_t)bytes, "%.*s%s%.*s%s%s", (int)r->model.length, r->model.length ? r->model.data : "", r->model.length ? " · " : "",
           (int)r->family.length, r->family.length ? r->family.data : "", r->family.length ? " · " : "", hd_model_shape(r, shape));
  put_line(s, text);
}

/* A head is named by what takes at least half of its weight, one of cross-attention also by going through the source; failing that, by looking almost everywhere (three quarters of the largest possible spread). */
typedef struct mark {
  const char *glyph;
  double strength; // in [0,1]: how strongly it does what the glyph says
} mark;

static mark mark_of(const heed_head_stats *stats, double largest_spread) {
  double follows = stats->coverage * stats->monotonicity;
  double even = largest_spread > 0 ? stats->spread / largest_spread : 0;
  double most = HD_MAX(stats->first, HD_MAX(stats->previous, stats->self));
  if (most >= 0.5 && most == stats->first) return (mark){"S", most};
  if (most >= 0.5 && most == stats->previous) return (mark){"P", most};
  if (most >= 0.5) return (mark){"I", most};
  if (follows >= 0.5) return (mark){"A", follows};
  if (even >= 0.75) return (mark){"·", even};
  return (mark){"●", 1 - even};
}

/* The mean spread of rows that look at all their keys alike. */
static double largest_spread(const heed_record *record, int64_t layer, int64_t head) {
  double sum = 0;
  int64_t rows = 0;
  for (int64_t i = 0; i < record->queries; i++) {
    const int64_t seen = hd_shown_count(hd_record_shown(record, layer, head, i), hd_record_live(record, layer, i));
    if (seen == 0) continue;
    sum += log2((double)seen);
    rows++;
  }
  return rows ? sum / (double)rows : 0;
}

static int digits(int64_t value) {
  int count = 1;
  for (; value >= 10; value /= 10) count++;
  return count;
}

/* Head numbers over their columns, where there is room for them. */
static void put_ruler(screen *s, int indent, int64_t begin, int64_t end) {
  const int64_t *number = s->record->head_index;
  int at = 0;
  hd_out_spaces(&s->out, indent);
  for (int64_t h = begin; h < end; h++) {
    int column = (int)(h - begin);
    if (column < at || (h > begin && number[h] % 5) || column + digits(number[h]) > end - begin) continue;
    hd_out_spaces(&s->out, column - at);
    hd_out_print(&s->out, "%lld", (long long)number[h]);
    at = column + digits(number[h]) + 1;
    if (at <= end - begin) hd_out_text(&s->out, " ");
  }
  end_line(s);
}

static void put_band(screen *s, int margin, int number_width, int64_t begin, int64_t end) {
  const heed_record *r = s->record;
  if (r->heads > 1) put_ruler(s, margin + number_width + 1, begin, end);
  for (int64_t l = 0; l < r->layers; l++) {
    hd_out_spaces(&s->out, margin);
    hd_out_print(&s->out, "%*lld ", number_width, (long long)r->layer_index[l]);
    for (int64_t h = begin; h < end; h++) {
      heed_head_stats stats = {0};
      heed_record_stats(r, l, h, &stats);
      mark m = mark_of(&stats, largest_spread(r, l, h));
      // The lower third of the map is too close to the paper for a thin glyph.
      set_ink(s, (int)((HD_LEVELS - 1) * (1 + 2 * HD_MIN(m.strength, 1)) / 3));
      set_reverse(s, l == s->options.layer && h == s->options.head);
      hd_out_text(&s->out, m.glyph);
      set_reverse(s, false);
    }
    end_line(s);
  }
}

static void put_pick(screen *s) {
  int64_t layer, head;
  char first[128], second[128], both[260];
  if (heed_record_pick(s->record, &layer, &head) != HEED_OK) return;
  long long l = s->record->layer_index[layer], h = s->record->head_index[head];
  const char *why = s->record->cross ? "goes through the source best" : "looks least at itself and at the first token";
  snprintf(first, sizeof first, "layer %lld head %lld %s", l, h, why);
  snprintf(second, sizeof second, "`--layers %lld --heads %lld` to ask for it", l, h);
  snprintf(both, sizeof both, "%s; %s", first, second);
  if ((int)strlen(both) <= s->width) {
    put_line(s, both);
  } else {
    put_line(s, first);
    put_line(s, second);
  }
}

static void put_overview(screen *s) {
  const heed_record *r = s->record;
  char legend[192], size[64];
  int number_width = 1, margin = s->width >= 40 ? 8 : 0;
  const char *more = s->options.color == HEED_COLOR_NONE ? "" : s->options.dark ? ", brighter = more" : ", darker = more";
  const char *marks = r->cross ? "A goes through the source" : "P previous  I self";
  snprintf(legend, sizeof legend, "heads   S first token  %s  · spread  ● other%s", marks, more);
  snprintf(size, sizeof size, "(%lld × %lld)", (long long)r->layers, (long long)r->heads);
  hd_out_text(&s->out, "\n");
  int used = put_cut(s, legend, s->width), room = (int)strlen(size) - 1; // × has two bytes
  if (used + 2 + room <= s->width) {
    hd_out_spaces(&s->out, s->width - used - room);
    hd_out_text(&s->out, size);
  }
  end_line(s);
  for (int64_t l = 0; l < r->layers; l++) number_width = HD_MAX(number_width, digits(r->layer_index[l]));
  int64_t across = HD_MAX(1, s->width - margin - number_width - 1);
  for (int64_t begin = 0; begin < r->heads; begin += across) put_band(s, margin, number_width, begin, HD_MIN(begin + across, r->heads));
  if (r->layers * r->heads > 1) put_pick(s);
}

/* ---- one row in words ---------------------------------------------------------------------------------------------------- */

/* The live key with the largest weight below (limit weight, limit key) in the order weight down, key up; −1: none. */
static int64_t next_largest(const float *row, const uint8_t *shown, hd_live live, float limit, int64_t limit_key) {
  int64_t best = -1;
  for (int64_t j = live.begin; j < live.end; j++) {
    if (!hd_shows(shown, j)) continue;
    bool below = row[j] < limit || (row[j] == limit && j > limit_key);
    if (below && (best < 0 || row[j] > row[best])) best = j;
  }
  return best;
}

/* it →  animal .41  The .17  because .11  … */
static void put_row(screen *s) {
  const heed_record *r = s->record;
  int64_t query = s->options.query;
  const float *row = hd_record_row(r, s->options.layer, s->options.head, query);
  const uint8_t *shown = hd_record_shown(r, s->options.layer, s->options.head, query);
  hd_live live = hd_record_live(r, s->options.layer, query);
  char buffer[HD_LABEL_BYTES], number[16];
  hd_label label = hd_label_cut(&s->queries[query], HD_MIN(MAX_LABEL, HD_MAX(s->width - 3, 1)), buffer);
  set_bold(s, true);
  hd_out_label(&s->out, &label);
  set_bold(s, false);
  int used = label.columns;
  if (used + 2 <= s->width) hd_out_text(&s->out, " →"), used += 2;
  float limit = INFINITY;
  for (int64_t key = -1; (key = next_largest(row, shown, live, limit, key)) >= 0;) {
    limit = row[key];
    if (limit < 0.005f) break; // would read .00
    int hundredths = (int)lrint(100 * (double)limit);
    int length = hundredths < 100 ? snprintf(number, sizeof number, ".%02d", hundredths) : snprintf(number, sizeof number, "1.00");
    label = hd_label_cut(&s->keys[key], MAX_LABEL, buffer);
    int need = 2 + label.columns + 1 + length;
    if (used + need + 3 > s->width) {
      if (used + 3 <= s->width) hd_out_text(&s->out, "  …");
      break;
    }
    hd_out_text(&s->out, "  ");
    hd_out_label(&s->out, &label);
    hd_out_print(&s->out, " %s", number);
    used += need;
  }
  end_line(s);
}

/* ---- the map ------------------------------------------------------------------------------------------------------------- */

typedef struct layout {
  int label, gap; // columns of the row labels, and after them
  int cell;       // columns of one cell
  bool half;      // two rows a line
  int64_t bin_queries, bin_keys;
  int64_t rows, columns; // of cells
} layout;

static layout plan_map(const screen *s) {
  const heed_record *r = s->record;
  layout p = {.label = HD_MIN(widest(s->queries, r->queries, MAX_LABEL), s->width / 4), .bin_queries = 1, .bin_keys = 1};
  p.gap = p.label > 0;
  int64_t room = s->width - p.label - p.gap;
  p.cell = (int)HD_MIN(room / r->keys, HD_MAX(2, widest(s->keys, r->keys, MAX_CELL - 1) + 1));
  if (p.cell == 0) {
    p.cell = 1;
    p.bin_keys = p.bin_queries = hd_ceil_div(r->keys, room);
  }
  p.bin_queries = HD_MAX(p.bin_queries, hd_ceil_div(r->queries, MAX_ROWS));
  if (p.bin_queries > 1) p.bin_keys = HD_MAX(p.bin_keys, HD_MIN(p.bin_queries, r->keys));
  p.rows = hd_ceil_div(r->queries, p.bin_queries);
  p.columns = hd_ceil_div(r->keys, p.bin_keys);
  // A single row of half-blocks would hang in the air.
  p.half = p.cell == 1 && s->options.color != HEED_COLOR_NONE && p.rows > 1;
  return p;
}

/* The largest live weight of a cell, or −1 where nothing is live. */
static float cell_weight(const screen *s, const layout *p, int64_t row, int64_t column) {
  const heed_record *r = s->record;
  float most = -1;
  for (int64_t i = row * p->bin_queries; i < HD_MIN((row + 1) * p->bin_queries, r->queries); i++) {
    const float *weights = hd_record_row(r, s->options.layer, s->options.head, i);
    const uint8_t *shown = hd_record_shown(r, s->options.layer, s->options.head, i);
    hd_live live = hd_record_live(r, s->options.layer, i);
    int64_t begin = HD_MAX(live.begin, column * p->bin_keys), end = HD_MIN(live.end, (column + 1) * p->bin_keys);
    for (int64_t j = begin; j < end; j++)
      if (hd_shows(shown, j)) most = HD_MAX(most, weights[j]);
  }
  return most;
}

static int cell_level(const screen *s, const layout *p, int64_t row, int64_t column) {
  float weight = row < p->rows ? cell_weight(s, p, row, column) : -1;
  return weight < 0 ? ABSENT : hd_level(weight);
}

static void put_digit(screen *s, float weight, int cell) {
  if (weight < 0) hd_out_text(&s->out, " ");
  else hd_out_print(&s->out, "%d", HD_MIN((int)(10 * weight), 9));
  hd_out_spaces(&s->out, cell - 1);
}

static void put_half_blocks(screen *s, int upper, int lower) {
  if (upper == lower) {
    set_paper(s, upper);
    hd_out_text(&s->out, " ");
  } else if (upper == ABSENT) {
    set_ink(s, lower);
    set_paper(s, ABSENT);
    hd_out_text(&s->out, "▄");
  } else {
    set_ink(s, upper);
    set_paper(s, lower);
    hd_out_text(&s->out, "▀");
  }
}

/* Wide cells carry their token; narrow ones only those tokens that do not run into the one before. */
static void put_column_labels(screen *s, const layout *p) {
  hd_out_spaces(&s->out, p->label + p->gap);
  int at = 0, room = (int)p->columns * p->cell;
  for (int64_t c = 0; c < p->columns; c++) {
    const hd_label *token = &s->keys[c * p->bin_keys];
    int column = (int)c * p->cell, columns = p->cell >= 3 ? p->cell - 1 : HD_MIN(HD_MIN(token->columns, MAX_LABEL / 2), room - column);
    if (column < at || columns < HD_MIN(token->columns, 3)) continue;
    hd_out_spaces(&s->out, column - at);
    put_token(s, token, columns, false);
    at = column + columns;
    if (at < room) hd_out_text(&s->out, " ");
    at++;
  }
  end_line(s);
}

static void put_map_line(screen *s, const layout *p, int64_t row) {
  int64_t named = row * p->bin_queries, chosen = s->options.query, span = p->bin_queries * (p->half ? 2 : 1);
  bool holds_chosen = chosen >= named && chosen < named + span;
  set_bold(s, holds_chosen);
  put_token(s, &s->queries[holds_chosen ? chosen : named], p->label, true);
  set_bold(s, false);
  hd_out_spaces(&s->out, p->gap);
  for (int64_t c = 0; c < p->columns; c++) {
    if (s->options.color == HEED_COLOR_NONE) {
      put_digit(s, cell_weight(s, p, row, c), p->cell);
    } else if (p->half) {
      put_half_blocks(s, cell_level(s, p, row, c), cell_level(s, p, row + 1, c));
    } else {
      set_paper(s, cell_level(s, p, row, c));
      hd_out_spaces(&s->out, p->cell);
    }
  }
  end_line(s);
}

static void put_map_title(screen *s, const layout *p) {
  char text[HD_HEAD_NAME + 128], name[HD_HEAD_NAME];
  hd_head_name(s->record, s->options.layer, s->options.head, name);
  bool digit = s->options.color == HEED_COLOR_NONE;
  snprintf(text, sizeof text, "%s · rows %s columns · %s", name, s->record->cross ? "were written from" : "look at",
           digit ? "digits are tenths of a weight" : "√ scale");
  int used = put_cut(s, text, s->width);
  if (!digit && used + SCALE_CELLS + 5 <= s->width) {
    hd_out_text(&s->out, " 0 ");
    for (int i = 0; i < SCALE_CELLS; i++) {
      set_paper(s, i * (HD_LEVELS - 1) / (SCALE_CELLS - 1));
      hd_out_text(&s->out, " ");
    }
    set_paper(s, ABSENT);
    hd_out_text(&s->out, " 1");
  }
  end_line(s);
  if (p->bin_keys > 1 || p->bin_queries > 1) {
    snprintf(text, sizeof text, "binned: each cell is the largest weight of %lld × %lld tokens", (long long)p->bin_queries,
             (long long)p->bin_keys);
    put_line(s, text);
  }
}

static void put_map(screen *s) {
  layout p = plan_map(s);
  hd_out_text(&s->out, "\n");
  put_map_title(s, &p);
  put_column_labels(s, &p);
  for (int64_t row = 0; row < p.rows; row += p.half ? 2 : 1) put_map_line(s, &p, row);
}

/* ---- the call ------------------------------------------------------------------------------------------------------------ */

static heed_status check_options(heed_context *context, const heed_record *record, const heed_terminal_options *o) {
  HD_TRY(hd_record_check_head(context, record, o->layer, o->head));
  HD_REQUIRE(o->width >= 0 && o->color >= HEED_COLOR_NONE && o->color <= HEED_COLOR_TRUE, context, HEED_E_ARGUMENT,
             "terminal: width %d, color %d", o->width, (int)o->color);
  HD_REQUIRE(o->query >= -1 && o->query < record->queries, context, HEED_E_ARGUMENT, "terminal: row %lld of %lld", (long long)o->query,
             (long long)record->queries);
  return hd_record_check_finite(context, record, o->layer, o->head);
}

heed_status heed_record_terminal(heed_context *context, const heed_record *given, const heed_terminal_options *options,
                                 const heed_sink *sink) {
  heed_record record;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  screen s = {.record = &record, .options = {.query = -1}, .ink = ABSENT, .paper = ABSENT};
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_options_read(context, "heed_terminal_options", options, &s.options, sizeof s.options));
  HD_TRY(check_options(context, &record, &s.options));
  s.width = s.options.width ? HD_MAX(s.options.width, LEAST_WIDTH) : DEFAULT_WIDTH;
  hd_color_map(s.options.dark, s.map);
  for (int level = 0; s.options.color == HEED_COLOR_256 && level < HD_LEVELS; level++) s.index[level] = (uint8_t)hd_color_256(s.map[level]);
  hd_arena_init(&s.arena, context);
  HD_TRY_DONE(hd_labels(context, &s.arena, record.query_tokens, record.queries, &s.queries));
  HD_TRY_DONE(hd_labels(context, &s.arena, record.key_tokens, record.keys, &s.keys));
  hd_out_begin(&s.out, context, sink);
  put_heading(&s);
  if (!s.options.no_overview) put_overview(&s);
  if (s.options.query >= 0) {
    hd_out_text(&s.out, "\n");
    put_row(&s);
  }
  if (!s.options.no_map) put_map(&s);
  status = hd_out_end(&s.out);
done:
  hd_arena_free(&s.arena);
  return status;
}
