/* chart.c: what a chart is made of: scales with round ticks, panels in rows, legends, lines and marks. It knows places and tones; pens know how they look. */
#include "chart.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum {
  MOST_PANELS = 16,
  MOST_MARKS = 40, // points of a series that still get marks
  TICKS = 6,       // about
  MARGIN = 14,
  LEFT = 58, // of a plot: ticks and the name of its axis
  RIGHT = 14,
  TITLE = 20,
  BOTTOM = 42,
  LINE = 15, // from a line of text to the next
  SWATCH = 20,
  GAP = 14 // between items of a legend
};
static const double column = 6.4; // mean advance of a character at HD_CHART_FONT

/* Tones on light and on dark paper: six hues that differ in lightness too; the first two are those of the page. */
static const hd_rgb tones[2][HD_TONES] = {
    {{0x22, 0x22, 0x22},
     {0x60, 0x63, 0x69},
     {0xD4, 0xD5, 0xD8},
     {0xFF, 0xFF, 0xFF},
     {0x22, 0x59, 0xA3},
     {0xC2, 0x41, 0x0C},
     {0x14, 0x84, 0x5F},
     {0x8A, 0x3F, 0xA3},
     {0xA8, 0x7B, 0x00},
     {0x4B, 0xA3, 0xC7}},
    {{0xE6, 0xE6, 0xE3},
     {0xA0, 0xA3, 0xA8},
     {0x3E, 0x41, 0x46},
     {0x1C, 0x1D, 0x1F},
     {0x7F, 0xB4, 0xF2},
     {0xFF, 0x9A, 0x5C},
     {0x5F, 0xC9, 0xA3},
     {0xD4, 0x9B, 0xE8},
     {0xE3, 0xC1, 0x4F},
     {0x9F, 0xD8, 0xEC}},
};

hd_rgb hd_tone_color(int tone, bool dark) { return tones[dark][tone]; }

const char *hd_number_name(double value, char buffer[HD_NUMBER_NAME]) {
  char text[HD_NUMBER_NAME];
  snprintf(text, sizeof text, fabs(value) < 1e-3 && value != 0 ? "%.3e" : "%.4g", value);
  hd_plain_number(text);
  char *e = strchr(text, 'e'), *digits = e;
  if (e) {
    bool negative = e[1] == '-';
    int whole = (int)(e - text);
    digits += 2;
    while (*digits == '0') digits++;
    // 1.000e-07 is 1e-7.
    while (memchr(text, '.', (size_t)whole) && (text[whole - 1] == '0' || text[whole - 1] == '.')) whole--;
    snprintf(buffer, HD_NUMBER_NAME, "%.*se%s%s", whole, text, negative ? "-" : "", digits);
  } else snprintf(buffer, HD_NUMBER_NAME, "%s", text);
  return buffer;
}

/* ---- scales ---------------------------------------------------------------------------------------------------------------- */

/* Where a number stands on an axis; NAN: nowhere. */
static double on_scale(int base, double value) {
  if (!isfinite(value)) return NAN;
  if (!base) return value;
  return value > 0 ? log(value) / log(base) : NAN;
}

/* 1, 2 or 5 times a power of ten; on logarithmic axes at least one whole power. */
static double round_step(double span, int base) {
  double rough = span / TICKS, power = pow(10, floor(log10(rough))), parts = rough / power;
  double step = power * (parts <= 1 ? 1 : parts <= 2 ? 2 : parts <= 5 ? 5 : 10);
  return base ? HD_MAX(ceil(step), 1) : step;
}

/* exact: the axis ends where the data does, as time does; otherwise at ticks. */
static hd_scale make_scale(int base, double low, double high, bool exact) {
  if (!(low <= high)) low = 0, high = 1;
  if (low == high) low -= base ? 1 : HD_MAX(fabs(low) / 2, 0.5), high += base ? 1 : HD_MAX(fabs(high) / 2, 0.5);
  // A small gap below would be shown as if it were a large difference.
  if (!base && !exact && low > 0 && low < 0.4 * high) low = 0;
  hd_scale s = {.low = low, .high = high, .base = base, .step = round_step(high - low, base)};
  if (!exact) {
    s.low = s.step * floor(low / s.step + 1e-9);
    s.high = s.step * ceil(high / s.step - 1e-9);
  }
  return s;
}

static void scales_of(const heed_panel *panel, hd_scale *x, hd_scale *y) {
  double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
  for (int64_t s = 0; s < panel->series_count; s++)
    for (int64_t i = 0; i < panel->series[s].count; i++) {
      double at[2] = {on_scale(panel->x.base, panel->series[s].x[i]), on_scale(panel->y.base, panel->series[s].y[i])};
      if (isnan(at[0]) || isnan(at[1])) continue;
      for (int k = 0; k < 2; k++) low[k] = HD_MIN(low[k], at[k]), high[k] = HD_MAX(high[k], at[k]);
    }
  *x = make_scale(panel->x.base, low[0], high[0], true);
  *y = make_scale(panel->y.base, low[1], high[1], false);
}

/* ---- layout ---------------------------------------------------------------------------------------------------------------- */

static int columns_of(const char *text, int64_t bytes) {
  int columns = 0;
  for (int64_t i = 0; i < bytes; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
  return columns;
}

static double item_width(const heed_series *series) {
  return SWATCH + 5 + columns_of(series->name.data, (int64_t)series->name.length) * column + GAP;
}

static double legend_height(const hd_sheet *sheet, const heed_panel *panel) {
  double x = 0, lines = 0;
  for (int64_t s = 0; s < panel->series_count; s++) {
    if (!panel->series[s].name.length) continue;
    double width = item_width(&panel->series[s]);
    if (lines == 0 || x + width - GAP > sheet->plot_width) lines++, x = 0;
    x += width;
  }
  return lines * LINE;
}

/* Draws the text in lines of so many columns where there is a pen; returns the lines. */
static int wrap(const hd_label *label, int room, const hd_pen *pen, double x, double y, int tone) {
  const char *at = label->text, *end = at + label->bytes;
  int lines = 0;
  while (at < end) {
    const char *stop = at, *word = NULL;
    for (int used = 0; stop < end && used <= room; stop++) {
      if (*stop == ' ') word = stop;
      used += (stop[0] & 0xC0) != 0x80;
      if (used > room) break;
    }
    if (stop < end && word && word > at) stop = word;
    if (pen) pen->words(pen->user, (hd_place){x, y + lines * LINE}, HD_ANCHOR_START, false, tone, at, (int)(stop - at));
    lines++;
    at = stop < end && *stop == ' ' ? stop + 1 : stop;
  }
  return lines;
}

static int caption_columns(const hd_sheet *sheet) { return (int)((sheet->width - 2 * MARGIN) / column); }

static double panel_height(const hd_sheet *sheet) { return TITLE + sheet->legend + sheet->plot_height + BOTTOM; }
static double panel_width(const hd_sheet *sheet) { return LEFT + sheet->plot_width + RIGHT; }
static double top_of_panels(const hd_sheet *sheet) { return MARGIN + (sheet->title.bytes ? LINE + 8 : 0); }

static void lay_out(hd_sheet *sheet) {
  int64_t panels = sheet->chart.panel_count;
  sheet->columns = panels == 1 ? 1 : panels == 3 ? 3 : 2;
  sheet->plot_width = panels == 1 ? 520 : panels == 3 ? 280 : 340;
  sheet->plot_height = panels == 1 ? 280 : 200;
  for (int64_t i = 0; i < panels; i++) sheet->legend = HD_MAX(sheet->legend, legend_height(sheet, &sheet->chart.panels[i]));
  sheet->width = 2 * MARGIN + sheet->columns * panel_width(sheet);
  int64_t rows = hd_ceil_div(panels, sheet->columns);
  int lines = wrap(&sheet->caption, caption_columns(sheet), NULL, 0, 0, 0);
  sheet->height = top_of_panels(sheet) + (double)rows * panel_height(sheet) + lines * LINE + MARGIN;
}

static heed_status check_panel(heed_context *context, const heed_panel *panel, int64_t i, int64_t *longest) {
  HD_REQUIRE(panel->series_count >= 0 && (panel->series || panel->series_count == 0), context, HEED_E_ARGUMENT,
             "chart: panel %lld has no series", (long long)i);
  HD_REQUIRE((panel->x.base == 0 || panel->x.base == 2 || panel->x.base == 10) &&
                 (panel->y.base == 0 || panel->y.base == 2 || panel->y.base == 10),
             context, HEED_E_ARGUMENT, "chart: panel %lld: bases %d and %d, allowed 0, 2, 10", (long long)i, panel->x.base, panel->y.base);
  for (int64_t s = 0; s < panel->series_count; s++) {
    const heed_series *one = &panel->series[s];
    HD_REQUIRE(one->count >= 0 && (one->count == 0 || (one->x && one->y)), context, HEED_E_ARGUMENT,
               "chart: series %lld of panel %lld has no numbers", (long long)s, (long long)i);
    *longest = HD_MAX(*longest, one->count);
  }
  return HEED_OK;
}

heed_status hd_sheet_open(heed_context *context, hd_arena *arena, const heed_chart *given, hd_sheet *out) {
  *out = (hd_sheet){.chart.size = sizeof out->chart, .longest = 2};
  HD_REQUIRE(given, context, HEED_E_ARGUMENT, "chart: null");
  HD_TRY(hd_options_read(context, "heed_chart", given, &out->chart, sizeof out->chart));
  const heed_chart *chart = &out->chart;
  HD_REQUIRE(chart->panel_count >= 1 && chart->panel_count <= MOST_PANELS, context, HEED_E_SHAPE, "chart: %lld panels, allowed 1 to %d",
             (long long)chart->panel_count, MOST_PANELS);
  HD_REQUIRE(chart->panels, context, HEED_E_ARGUMENT, "chart: panels is null");
  HD_REQUIRE(chart->paper >= HEED_PAPER_READER && chart->paper <= HEED_PAPER_DARK, context, HEED_E_ARGUMENT,
             "chart: there is no such paper");
  for (int64_t i = 0; i < chart->panel_count; i++) HD_TRY(check_panel(context, &chart->panels[i], i, &out->longest));
  HD_TRY(hd_label_of(context, arena, chart->title, &out->title));
  HD_TRY(hd_label_of(context, arena, chart->caption, &out->caption));
  HD_TRY(hd_label_of(context, arena, chart->command, &out->command));
  HD_TRY(hd_arena_allocate(arena, context, "a chart", chart->panel_count, sizeof *out->x, &out->x));
  HD_TRY(hd_arena_allocate(arena, context, "a chart", chart->panel_count, sizeof *out->y, &out->y));
  HD_TRY(hd_arena_allocate(arena, context, "a chart", out->longest, sizeof *out->places, &out->places));
  for (int64_t i = 0; i < chart->panel_count; i++) scales_of(&chart->panels[i], &out->x[i], &out->y[i]);
  lay_out(out);
  return HEED_OK;
}

/* ---- drawing --------------------------------------------------------------------------------------------------------------- */

/* A panel while it is drawn. */
typedef struct plot {
  const hd_sheet *sheet;
  const hd_pen *pen;
  const heed_panel *panel;
  hd_scale x, y;
  double left, top; /* of the plot */
} plot;

static double x_of(const plot *p, double at) { return p->left + p->sheet->plot_width * (at - p->x.low) / (p->x.high - p->x.low); }
static double y_of(const plot *p, double at) { return p->top + p->sheet->plot_height * (1 - (at - p->y.low) / (p->y.high - p->y.low)); }

static void put_words(const plot *p, double x, double y, hd_anchor anchor, bool upward, int tone, const char *text, size_t bytes) {
  p->pen->words(p->pen->user, (hd_place){x, y}, anchor, upward, tone, text, (int)bytes);
}

static const char *tick_name(const hd_scale *s, double at, char buffer[HD_NUMBER_NAME]) {
  // A tick at zero may have come out as a rounding error of the step.
  double value = s->base ? pow(s->base, at) : fabs(at) < s->step * 1e-6 ? 0 : at;
  // Of powers of two the last digits are what one knows them by.
  if (s->base == 2 && value >= 1 && value < 1e7) return snprintf(buffer, HD_NUMBER_NAME, "%.0f", value), buffer;
  return hd_number_name(value, buffer);
}

static void put_axes(const plot *p) {
  char name[HD_NUMBER_NAME];
  double right = p->left + p->sheet->plot_width, bottom = p->top + p->sheet->plot_height;
  for (double at = p->y.step * ceil(p->y.low / p->y.step - 1e-9); at <= p->y.high + p->y.step * 1e-6; at += p->y.step) {
    double y = y_of(p, at);
    p->pen->line(p->pen->user, (hd_place[]){{p->left, y}, {right, y}}, 2, HD_TONE_HAIR, 1, false);
    tick_name(&p->y, at, name);
    put_words(p, p->left - 6, y + 4, HD_ANCHOR_END, false, HD_TONE_QUIET, name, strlen(name));
  }
  for (double at = p->x.step * ceil(p->x.low / p->x.step - 1e-9); at <= p->x.high + p->x.step * 1e-6; at += p->x.step) {
    double x = x_of(p, at);
    p->pen->line(p->pen->user, (hd_place[]){{x, bottom}, {x, bottom + 4}}, 2, HD_TONE_QUIET, 1, false);
    tick_name(&p->x, at, name);
    put_words(p, x, bottom + 16, HD_ANCHOR_MIDDLE, false, HD_TONE_QUIET, name, strlen(name));
  }
  p->pen->line(p->pen->user, (hd_place[]){{p->left, bottom}, {right, bottom}}, 2, HD_TONE_QUIET, 1, false);
  put_words(p, (p->left + right) / 2, bottom + 32, HD_ANCHOR_MIDDLE, false, HD_TONE_INK, p->panel->x.name.data, p->panel->x.name.length);
  put_words(p, p->left - LEFT + 12, (p->top + bottom) / 2, HD_ANCHOR_MIDDLE, true, HD_TONE_INK, p->panel->y.name.data,
            p->panel->y.name.length);
}

/* A disc, a square, a diamond or a triangle: series can be told apart without colour, and where colours come round again by their marks. */
static void put_mark(const plot *p, int64_t series, hd_place at, const char *hint) {
  static const struct {
    int corners;
    double turn, radius;
  } kinds[] = {{HD_MARK_CORNERS, 0, 3.2}, {4, 0.5, 4}, {4, 0, 4.3}, {3, -0.75, 4.3}, {3, 0.75, 4.3}, {6, 0, 3.8}};
  const int kind = (int)((series + series / HD_SERIES_TONES) % HD_COUNT(kinds)), corners = kinds[kind].corners;
  hd_place corner[HD_MARK_CORNERS];
  for (int k = 0; k < corners; k++) {
    double angle = 2 * 3.14159265358979323846 * (k + kinds[kind].turn) / corners;
    corner[k] = (hd_place){at.x + kinds[kind].radius * cos(angle), at.y + kinds[kind].radius * sin(angle)};
  }
  p->pen->polygon(p->pen->user, corner, corners, HD_TONE_SERIES + (int)(series % HD_SERIES_TONES), hint);
}

static void put_line(const plot *p, const heed_series *series, int tone, int64_t count) {
  if (count > 1) p->pen->line(p->pen->user, p->sheet->places, count, tone, series->expected ? 1.2 : 1.8, series->expected);
}

static int tone_of(const heed_series *series, int64_t number) {
  return series->expected ? HD_TONE_QUIET : HD_TONE_SERIES + (int)(number % HD_SERIES_TONES);
}

static void put_series(const plot *p, int64_t number) {
  const heed_series *series = &p->panel->series[number];
  const int tone = tone_of(series, number);
  int64_t count = 0;
  for (int64_t i = 0; i < series->count; i++) {
    double x = on_scale(p->x.base, series->x[i]), y = on_scale(p->y.base, series->y[i]);
    if (isnan(x) || isnan(y)) put_line(p, series, tone, count), count = 0;
    else p->sheet->places[count++] = (hd_place){x_of(p, x), y_of(p, y)};
  }
  put_line(p, series, tone, count);
  if (series->expected || series->count > MOST_MARKS) return;
  for (int64_t i = 0; i < series->count; i++) {
    double x = on_scale(p->x.base, series->x[i]), y = on_scale(p->y.base, series->y[i]);
    char hint[256], a[HD_NUMBER_NAME], b[HD_NUMBER_NAME];
    if (isnan(x) || isnan(y)) continue;
    snprintf(hint, sizeof hint, "%.*s: %s at %s", (int)HD_MIN(series->name.length, 150), series->name.length ? series->name.data : "",
             hd_number_name(series->y[i], a), hd_number_name(series->x[i], b));
    put_mark(p, number, (hd_place){x_of(p, x), y_of(p, y)}, hint);
  }
}

static void put_legend(const plot *p, double y) {
  double x = 0;
  for (int64_t s = 0; s < p->panel->series_count; s++) {
    const heed_series *series = &p->panel->series[s];
    if (!series->name.length) continue;
    double width = item_width(series);
    if (x > 0 && x + width - GAP > p->sheet->plot_width) x = 0, y += LINE;
    hd_place sample[] = {{p->left + x, y - 4}, {p->left + x + SWATCH, y - 4}};
    p->pen->line(p->pen->user, sample, 2, tone_of(series, s), series->expected ? 1.2 : 1.8, series->expected);
    if (!series->expected && series->count <= MOST_MARKS) put_mark(p, s, (hd_place){p->left + x + SWATCH / 2, y - 4}, NULL);
    put_words(p, p->left + x + SWATCH + 5, y, HD_ANCHOR_START, false, HD_TONE_INK, series->name.data, series->name.length);
    x += width;
  }
}

static void put_panel(const hd_sheet *sheet, const hd_pen *pen, int64_t i) {
  plot p = {.sheet = sheet, .pen = pen, .panel = &sheet->chart.panels[i], .x = sheet->x[i], .y = sheet->y[i]};
  double top = top_of_panels(sheet) + (double)(i / sheet->columns) * panel_height(sheet);
  p.left = MARGIN + (double)(i % sheet->columns) * panel_width(sheet) + LEFT;
  p.top = top + TITLE + sheet->legend;
  put_words(&p, p.left, top + 11, HD_ANCHOR_START, false, HD_TONE_INK, p.panel->title.data, p.panel->title.length);
  put_legend(&p, top + TITLE + 9);
  put_axes(&p);
  for (int64_t s = 0; s < p.panel->series_count; s++) put_series(&p, s);
}

void hd_sheet_draw(const hd_sheet *sheet, const hd_pen *pen) {
  if (sheet->title.bytes)
    pen->words(pen->user, (hd_place){MARGIN, MARGIN + 11}, HD_ANCHOR_START, false, HD_TONE_INK, sheet->title.text, sheet->title.bytes);
  for (int64_t i = 0; i < sheet->chart.panel_count; i++) put_panel(sheet, pen, i);
  int64_t rows = hd_ceil_div(sheet->chart.panel_count, sheet->columns);
  wrap(&sheet->caption, caption_columns(sheet), pen, MARGIN, top_of_panels(sheet) + (double)rows * panel_height(sheet) + 11, HD_TONE_INK);
}

heed_status hd_chart_write(heed_context *context, const heed_chart *chart, const heed_sink *sink,
                           void (*put)(const hd_sheet *sheet, hd_out *out)) {
  hd_arena arena;
  hd_sheet sheet;
  hd_out out;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_sheet_open(context, &arena, chart, &sheet));
  hd_out_begin(&out, context, sink);
  put(&sheet, &out);
  status = hd_out_end(&out);
done:
  hd_arena_free(&arena);
  return status;
}
