/* chart_html.c: a chart as a page of its own: the vectors, what was found, and the numbers as tables. It asks nothing of the network and needs no script. */
#include "chart.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"heed\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n";
static const char shape[] = "body { margin: 16px 24px; font: 14px/20px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }\n"
                            "svg { display: block; max-width: 100%; height: auto; }\n"
                            "details { margin-top: 8px; }\n"
                            "table { border-collapse: collapse; margin: 8px 0 16px; font-variant-numeric: tabular-nums; }\n"
                            "caption { text-align: left; }\n"
                            "th, td { padding: 2px 12px 2px 0; text-align: right; font-weight: 400; }\n"
                            "p { font-size: 12px; }\n";

static void put_colors(hd_out *out, const char *before, bool dark, const char *after) {
  hd_out_print(out, "%s:root { color-scheme: %s; } body { background: ", before, dark ? "dark" : "light");
  hd_out_color(out, hd_tone_color(HD_TONE_PAPER, dark));
  hd_out_text(out, "; color: ");
  hd_out_color(out, hd_tone_color(HD_TONE_INK, dark));
  hd_out_text(out, "; } p { color: ");
  hd_out_color(out, hd_tone_color(HD_TONE_QUIET, dark));
  hd_out_print(out, "; }%s\n", after);
}

static void put_heed_text(hd_out *out, const char *before, heed_text text, const char *after) {
  hd_out_text(out, before);
  hd_out_escaped(out, text.data, (int)text.length);
  hd_out_text(out, after);
}

/* Rows are the points of one series: series of a panel need not have the same. */
static void put_series(hd_out *out, const heed_panel *panel, const heed_series *series) {
  char a[HD_NUMBER_NAME], b[HD_NUMBER_NAME];
  put_heed_text(out, "<table><caption>", panel->title, ", ");
  put_heed_text(out, "", series->name, "</caption>\n");
  put_heed_text(out, "<tr><th scope=\"col\">", panel->x.name, "</th>");
  put_heed_text(out, "<th scope=\"col\">", panel->y.name, "</th></tr>\n");
  for (int64_t i = 0; i < series->count; i++)
    hd_out_print(out, "<tr><td>%s</td><td>%s</td></tr>\n", hd_number_name(series->x[i], a), hd_number_name(series->y[i], b));
  hd_out_text(out, "</table>\n");
}

static void put_page(const hd_sheet *sheet, hd_out *out) {
  const heed_chart *chart = &sheet->chart;
  hd_out_text(out, head);
  put_heed_text(out, "<title>", (heed_text){sheet->title.text, (size_t)sheet->title.bytes}, "</title>\n<style>\n");
  hd_out_text(out, shape);
  put_colors(out, "", chart->paper == HEED_PAPER_DARK, "");
  if (chart->paper == HEED_PAPER_READER) put_colors(out, "@media (prefers-color-scheme: dark) { ", true, " }");
  hd_out_text(out, "</style>\n</head>\n<body>\n");
  hd_sheet_svg(sheet, out);
  hd_out_text(out, "<details><summary>The numbers</summary>\n");
  for (int64_t i = 0; i < chart->panel_count; i++)
    for (int64_t s = 0; s < chart->panels[i].series_count; s++) put_series(out, &chart->panels[i], &chart->panels[i].series[s]);
  hd_out_text(out, "</details>\n");
  put_heed_text(out, "<p>", (heed_text){sheet->command.text, (size_t)sheet->command.bytes}, "</p>\n");
  hd_out_print(out, "<p>heed %s</p>\n</body>\n</html>\n", heed_version());
}

heed_status heed_chart_html(heed_context *context, const heed_chart *chart, const heed_sink *sink) {
  return hd_chart_write(context, chart, sink, put_page);
}
