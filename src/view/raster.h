/* raster.h: pixels that are drawn into and become a PNG. */
#ifndef HD_RASTER_H
#define HD_RASTER_H

#include "record.h"

typedef struct hd_raster {
  heed_context *context;
  int width, height;
  int scale;       /* pixels of a font pixel */
  uint8_t *pixels; /* [height, width, 3] */
  uint8_t *mask;   /* [height, width] zeros, for strokes; otherwise NULL */
} hd_raster;

typedef struct hd_place {
  double x, y;
} hd_place;

/* Pixels for width × height, all paper, from the arena. */
heed_status hd_raster_open(hd_raster *raster, hd_arena *arena, hd_rgb paper);
/* Whole pixels; what lies outside is left out, here and below. */
void hd_raster_fill(hd_raster *raster, int x, int y, int w, int h, hd_rgb color);
/* A line through places, with round joints and ends, and a filled polygon. Pixel (x, y) covers [x, x + 1) × [y, y + 1). */
void hd_raster_stroke(hd_raster *raster, const hd_place *place, int64_t count, double width, hd_rgb color);
void hd_raster_polygon(hd_raster *raster, const hd_place *corner, int count, hd_rgb color);
/* Font pixels that a label is wide. */
int hd_raster_text_pixels(const hd_label *label);
/* x, y: the left end of the upper edge of the line; upward text starts at its lower left corner and climbs. */
void hd_raster_text(hd_raster *raster, int x, int y, bool upward, const hd_label *label, hd_rgb color);
heed_status hd_raster_png(const hd_raster *raster, const heed_sink *sink);

#endif
