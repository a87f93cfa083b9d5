/* chart.h: a chart, checked and laid out once, then drawn by a pen that makes vectors or pixels of it. */
#ifndef HD_CHART_H
#define HD_CHART_H

#include "raster.h"

/* What a pen draws with. From HD_TONE_SERIES on: the colours of series, which come round again. */
typedef enum hd_tone { HD_TONE_INK, HD_TONE_QUIET, HD_TONE_HAIR, HD_TONE_PAPER, HD_TONE_SERIES } hd_tone;
enum { HD_SERIES_TONES = 6, HD_TONES = HD_TONE_SERIES + HD_SERIES_TONES };
hd_rgb hd_tone_color(int tone, bool dark);

typedef enum hd_anchor { HD_ANCHOR_START, HD_ANCHOR_MIDDLE, HD_ANCHOR_END } hd_anchor;

/* A corner of a mark, around (0,0); marks are polygons so that every pen draws the same. */
enum { HD_MARK_CORNERS = 16 };

/* Units are CSS pixels. Text stands on its base line at y; upward text begins at (x, y) and climbs. `text` is UTF-8. */
typedef struct hd_pen {
  void *user;
  void (*line)(void *user, const hd_place *place, int64_t count, int tone, double width, bool dashed);
  /* hint: what a reader may want to know of the point. */
  void (*polygon)(void *user, const hd_place *corner, int count, int tone, const char *hint);
  void (*words)(void *user, hd_place at, hd_anchor anchor, bool upward, int tone, const char *text, int bytes);
} hd_pen;

typedef struct hd_scale {
  double low, high; /* of the axis; logarithms on a logarithmic one */
  double step;      /* between ticks */
  int base;
} hd_scale;

/* A chart with its places. */
typedef struct hd_sheet {
  heed_chart chart;
  hd_label title, caption, command;
  hd_scale *x, *y; /* [panels] */
  int columns;     /* of panels */
  double legend;   /* height that the legends have */
  double plot_width, plot_height;
  double width, height;
  int64_t longest;  /* points of the longest series; 2 at least */
  hd_place *places; /* room for them */
} hd_sheet;

/* Everything is kept in the arena. HEED_E_ARGUMENT, HEED_E_SHAPE, HEED_E_MEMORY. */
heed_status hd_sheet_open(heed_context *context, hd_arena *arena, const heed_chart *given, hd_sheet *out);
void hd_sheet_draw(const hd_sheet *sheet, const hd_pen *pen);
/* Checks the chart, lets `put` write its sheet as text and closes what was opened. HEED_E_WRITE too. */
heed_status hd_chart_write(heed_context *context, const heed_chart *chart, const heed_sink *sink,
                           void (*put)(const hd_sheet *sheet, hd_out *out));

/* A number for people: four digits at most, a point whatever the locale, "1e-7" where there would be many zeros. */
enum { HD_NUMBER_NAME = 32 };
const char *hd_number_name(double value, char buffer[HD_NUMBER_NAME]);

/* The svg element of a sheet, which follows the reader's preference, or not, as the chart says. */
void hd_sheet_svg(const hd_sheet *sheet, hd_out *out);

enum { HD_CHART_FONT = 11 };

#endif
