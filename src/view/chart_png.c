/* chart_png.c: a chart as pixels, two for each unit, with the bitmap font. */
#include "chart.h"
#include "font.h"

#include <math.h>

enum { SCALE = 2, BASE_LINE = 9 }; /* font pixels from the upper edge of a line to its base line */

typedef struct png_pen {
  hd_raster raster;
  bool dark;
  hd_place *places; /* room for the longest series */
} png_pen;

static hd_place to_pixels(hd_place at) { return (hd_place){at.x * SCALE, at.y * SCALE}; }

/* Walks along the line and draws what lies in the dashes. */
static void dashes(png_pen *p, int64_t count, double width, hd_rgb color) {
  static const double on = 5 * SCALE, period = 9 * SCALE;
  double walked = 0;
  for (int64_t i = 0; i + 1 < count; i++) {
    hd_place a = p->places[i], b = p->places[i + 1];
    double length = hypot(b.x - a.x, b.y - a.y);
    for (double at = 0; at < length;) {
      double phase = fmod(walked + at, period), rest = HD_MIN((phase < on ? on : period) - phase, length - at);
      hd_place dash[] = {{a.x + (b.x - a.x) * at / length, a.y + (b.y - a.y) * at / length},
                         {a.x + (b.x - a.x) * (at + rest) / length, a.y + (b.y - a.y) * (at + rest) / length}};
      if (phase < on) hd_raster_stroke(&p->raster, dash, 2, width, color);
      at += HD_MAX(rest, 1e-3);
    }
    walked += length;
  }
}

static void png_line(void *user, const hd_place *place, int64_t count, int tone, double width, bool dashed) {
  png_pen *p = user;
  hd_rgb color = hd_tone_color(tone, p->dark);
  for (int64_t i = 0; i < count; i++) p->places[i] = to_pixels(place[i]);
  if (dashed) dashes(p, count, width * SCALE, color);
  else hd_raster_stroke(&p->raster, p->places, count, width * SCALE, color);
}

static void png_polygon(void *user, const hd_place *corner, int count, int tone, const char *hint) {
  png_pen *p = user;
  hd_place pixels[HD_MARK_CORNERS];
  (void)hint;
  for (int i = 0; i < count; i++) pixels[i] = to_pixels(corner[i]);
  hd_raster_polygon(&p->raster, pixels, count, hd_tone_color(tone, p->dark));
}

static void png_words(void *user, hd_place at, hd_anchor anchor, bool upward, int tone, const char *text, int bytes) {
  png_pen *p = user;
  const hd_label label = {text, bytes, 0};
  if (bytes == 0) return;
  double back = anchor == HD_ANCHOR_START ? 0 : hd_raster_text_pixels(&label) * SCALE / (anchor == HD_ANCHOR_MIDDLE ? 2.0 : 1.0);
  hd_place from = to_pixels(at);
  if (upward) from.x -= BASE_LINE * SCALE, from.y += back;
  else from.x -= back, from.y -= BASE_LINE * SCALE;
  hd_raster_text(&p->raster, (int)lrint(from.x), (int)lrint(from.y), upward, &label, hd_tone_color(tone, p->dark));
}

static heed_status draw(heed_context *context, hd_arena *arena, const heed_chart *chart, png_pen *p) {
  hd_sheet sheet;
  HD_TRY(hd_sheet_open(context, arena, chart, &sheet));
  p->dark = sheet.chart.paper == HEED_PAPER_DARK;
  p->raster =
      (hd_raster){.context = context, .width = (int)ceil(sheet.width * SCALE), .height = (int)ceil(sheet.height * SCALE), .scale = SCALE};
  HD_TRY(hd_arena_allocate(arena, context, "a chart", sheet.longest, sizeof *p->places, &p->places));
  HD_TRY(hd_arena_allocate(arena, context, "the pixels", (int64_t)p->raster.width * p->raster.height, 1, &p->raster.mask));
  memset(p->raster.mask, 0, (size_t)p->raster.width * (size_t)p->raster.height);
  HD_TRY(hd_raster_open(&p->raster, arena, hd_tone_color(HD_TONE_PAPER, p->dark)));
  const hd_pen pen = {.user = p, .line = png_line, .polygon = png_polygon, .words = png_words};
  hd_sheet_draw(&sheet, &pen);
  return HEED_OK;
}

heed_status heed_chart_png(heed_context *context, const heed_chart *chart, const heed_sink *sink) {
  hd_arena arena;
  png_pen p = {0};
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  hd_arena_init(&arena, context);
  HD_TRY_DONE(draw(context, &arena, chart, &p));
  status = hd_raster_png(&p.raster, sink);
done:
  hd_arena_free(&arena);
  return status;
}
