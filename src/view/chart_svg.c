/* chart_svg.c: a chart as vectors. Colours are attributes, which every reader of SVG knows; a style for dark paper stands above them where the reader may choose. */
#include "chart.h"

typedef struct svg_pen {
  hd_out *out;
  bool dark;
} svg_pen;

static void put_tone(const svg_pen *p, const char *attribute, char class, int tone) {
  hd_out_print(p->out, " class=\"%c%d\" %s=\"", class, tone, attribute);
  hd_out_color(p->out, hd_tone_color(tone, p->dark));
  hd_out_text(p->out, "\"");
}

static void put_places(const svg_pen *p, const hd_place *place, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    hd_out_text(p->out, i ? " " : "");
    hd_out_coordinate(p->out, place[i].x);
    hd_out_text(p->out, ",");
    hd_out_coordinate(p->out, place[i].y);
  }
}

static void svg_line(void *user, const hd_place *place, int64_t count, int tone, double width, bool dashed) {
  const svg_pen *p = user;
  hd_out_text(p->out, "<polyline fill=\"none\"");
  put_tone(p, "stroke", 's', tone);
  hd_out_attribute(p->out, "stroke-width", width);
  hd_out_print(p->out, "%s points=\"", dashed ? " stroke-dasharray=\"5 4\"" : " stroke-linejoin=\"round\"");
  put_places(p, place, count);
  hd_out_text(p->out, "\"/>\n");
}

static void svg_polygon(void *user, const hd_place *corner, int count, int tone, const char *hint) {
  const svg_pen *p = user;
  hd_out_text(p->out, "<polygon");
  put_tone(p, "fill", 'f', tone);
  hd_out_text(p->out, " points=\"");
  put_places(p, corner, count);
  if (hint) {
    hd_out_text(p->out, "\"><title>");
    hd_out_escaped(p->out, hint, (int)strlen(hint));
    hd_out_text(p->out, "</title></polygon>\n");
  } else hd_out_text(p->out, "\"/>\n");
}

static void svg_words(void *user, hd_place at, hd_anchor anchor, bool upward, int tone, const char *text, int bytes) {
  static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  const svg_pen *p = user;
  if (bytes == 0) return;
  hd_out_print(p->out, "<text%s", anchors[anchor]);
  put_tone(p, "fill", 'f', tone);
  hd_out_text(p->out, " transform=\"translate(");
  hd_out_coordinate(p->out, at.x);
  hd_out_text(p->out, " ");
  hd_out_coordinate(p->out, at.y);
  hd_out_text(p->out, upward ? ") rotate(-90)\">" : ")\">");
  hd_out_escaped(p->out, text, bytes);
  hd_out_text(p->out, "</text>\n");
}

static void put_dark_style(hd_out *out) {
  hd_out_text(out, "<style>@media (prefers-color-scheme: dark) {");
  for (int tone = 0; tone < HD_TONES; tone++) {
    hd_out_print(out, " .s%d { stroke: ", tone);
    hd_out_color(out, hd_tone_color(tone, true));
    hd_out_print(out, " } .f%d { fill: ", tone);
    hd_out_color(out, hd_tone_color(tone, true));
    hd_out_text(out, " }");
  }
  hd_out_text(out, "}</style>\n");
}

void hd_sheet_svg(const hd_sheet *sheet, hd_out *out) {
  svg_pen p = {.out = out, .dark = sheet->chart.paper == HEED_PAPER_DARK};
  const hd_pen pen = {.user = &p, .line = svg_line, .polygon = svg_polygon, .words = svg_words};
  hd_out_text(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 ");
  hd_out_coordinate(out, sheet->width);
  hd_out_text(out, " ");
  hd_out_coordinate(out, sheet->height);
  hd_out_text(out, "\"");
  hd_out_attribute(out, "width", sheet->width);
  hd_out_attribute(out, "height", sheet->height);
  hd_out_print(out, " font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif\" font-size=\"%d\">\n", HD_CHART_FONT);
  if (sheet->chart.paper == HEED_PAPER_READER) put_dark_style(out);
  hd_out_text(out, "<rect width=\"100%\" height=\"100%\"");
  put_tone(&p, "fill", 'f', HD_TONE_PAPER);
  hd_out_text(out, "/>\n");
  hd_sheet_draw(sheet, &pen);
  hd_out_text(out, "</svg>\n");
}

heed_status heed_chart_svg(heed_context *context, const heed_chart *chart, const heed_sink *sink) {
  return hd_chart_write(context, chart, sink, hd_sheet_svg);
}
