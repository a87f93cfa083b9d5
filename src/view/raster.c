/* raster.c: drawing into pixels, and pixels as a PNG.
 *
 * Edges that are not upright are smoothed by how far a pixel's centre lies from them. Memory of libpng comes from the context, and its errors come back as statuses. */
#include "raster.h"
#include "font.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <utf8proc.h>

heed_status hd_raster_open(hd_raster *p, hd_arena *arena, hd_rgb paper) {
  HD_TRY(hd_arena_allocate(arena, p->context, "the pixels", (int64_t)p->width * p->height, 3, &p->pixels));
  hd_raster_fill(p, 0, 0, p->width, p->height, paper);
  return HEED_OK;
}

void hd_raster_fill(hd_raster *p, int x, int y, int w, int h, hd_rgb c) {
  for (int row = HD_MAX(y, 0); row < HD_MIN(y + h, p->height); row++)
    for (int column = HD_MAX(x, 0); column < HD_MIN(x + w, p->width); column++)
      memcpy(p->pixels + 3 * ((int64_t)row * p->width + column), &c, 3);
}

int hd_raster_text_pixels(const hd_label *label) {
  int pixels = 0;
  for (int at = 0; at < label->bytes;) {
    utf8proc_int32_t code;
    at += (int)utf8proc_iterate((const utf8proc_uint8_t *)label->text + at, label->bytes - at, &code);
    pixels += hd_font_advance(code);
  }
  return pixels;
}

void hd_raster_text(hd_raster *p, int x, int y, bool upward, const hd_label *label, hd_rgb color) {
  for (int at = 0; at < label->bytes;) {
    utf8proc_int32_t code;
    at += (int)utf8proc_iterate((const utf8proc_uint8_t *)label->text + at, label->bytes - at, &code);
    int advance = hd_font_advance(code), s = p->scale;
    for (int v = 0; v < HD_FONT_HEIGHT; v++)
      for (int u = 0; u < advance; u++) {
        if (!hd_font_ink(code, u, v)) continue;
        if (upward) hd_raster_fill(p, x + v * s, y - (u + 1) * s, s, s, color);
        else hd_raster_fill(p, x + u * s, y + v * s, s, s, color);
      }
    if (upward) y -= advance * s;
    else x += advance * s;
  }
}

/* Mixes a colour into a pixel: share 1 replaces it. */
static void blend(hd_raster *p, int x, int y, hd_rgb c, double share) {
  if (share <= 0 || x < 0 || y < 0 || x >= p->width || y >= p->height) return;
  uint8_t *to = p->pixels + 3 * ((int64_t)y * p->width + x), of[3] = {c.r, c.g, c.b};
  for (int k = 0; k < 3; k++) to[k] = (uint8_t)lrint(to[k] + HD_MIN(share, 1) * (of[k] - to[k]));
}

/* The pixels that strokes between places may touch. */
typedef struct box {
  int left, top, right, bottom;
} box;

static box around(const hd_raster *p, const hd_place *place, int64_t count, double width) {
  const double reach = width / 2 + 1;
  double left = place[0].x, right = left, top = place[0].y, bottom = top;
  for (int64_t i = 1; i < count; i++) {
    left = HD_MIN(left, place[i].x), right = HD_MAX(right, place[i].x);
    top = HD_MIN(top, place[i].y), bottom = HD_MAX(bottom, place[i].y);
  }
  return (box){HD_MAX((int)floor(left - reach), 0), HD_MAX((int)floor(top - reach), 0), HD_MIN((int)ceil(right + reach), p->width),
               HD_MIN((int)ceil(bottom + reach), p->height)};
}

/* Notes in the mask how much of each pixel a line with round ends covers: the most of all lines counts, so that the joints of a line are as thick as the rest. */
static void cover(hd_raster *p, hd_place a, hd_place b, double width) {
  const double dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
  const box touched = around(p, (const hd_place[]){a, b}, 2, width);
  for (int y = touched.top; y < touched.bottom; y++)
    for (int x = touched.left; x < touched.right; x++) {
      double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
      double along = square > 0 ? HD_MIN(HD_MAX((px * dx + py * dy) / square, 0), 1) : 0;
      double share = HD_MIN(width / 2 + 0.5 - hypot(px - along * dx, py - along * dy), 1);
      uint8_t *to = p->mask + (int64_t)y * p->width + x;
      if (share > 0) *to = (uint8_t)HD_MAX(*to, lrint(255 * share));
    }
}

void hd_raster_stroke(hd_raster *p, const hd_place *place, int64_t count, double width, hd_rgb color) {
  if (count < 2) return;
  const box all = around(p, place, count, width);
  for (int64_t i = 0; i + 1 < count; i++) cover(p, place[i], place[i + 1], width);
  for (int y = all.top; y < all.bottom; y++)
    for (int x = all.left; x < all.right; x++) {
      uint8_t *share = p->mask + (int64_t)y * p->width + x;
      if (*share) blend(p, x, y, color, *share / 255.0);
      *share = 0;
    }
}

/* Whether a place lies inside, by the sides that a ray to the right crosses. */
static bool inside(const hd_place *corner, int count, double x, double y) {
  bool in = false;
  for (int i = 0, j = count - 1; i < count; j = i++)
    if ((corner[i].y > y) != (corner[j].y > y) &&
        x < corner[i].x + (y - corner[i].y) * (corner[j].x - corner[i].x) / (corner[j].y - corner[i].y))
      in = !in;
  return in;
}

void hd_raster_polygon(hd_raster *p, const hd_place *corner, int count, hd_rgb color) {
  enum { PARTS = 4 }; // a pixel is looked at in so many places each way
  double left = corner[0].x, right = left, top = corner[0].y, bottom = top;
  for (int i = 1; i < count; i++) {
    left = HD_MIN(left, corner[i].x), right = HD_MAX(right, corner[i].x);
    top = HD_MIN(top, corner[i].y), bottom = HD_MAX(bottom, corner[i].y);
  }
  for (int y = (int)floor(top); y < bottom; y++)
    for (int x = (int)floor(left); x < right; x++) {
      int hits = 0;
      for (int k = 0; k < PARTS * PARTS; k++) hits += inside(corner, count, x + (k % PARTS + 0.5) / PARTS, y + (k / PARTS + 0.5) / PARTS);
      blend(p, x, y, color, (double)hits / (PARTS * PARTS));
    }
}

/* ---- libpng -------------------------------------------------------------------------------------------------------------- */

/* What libpng and its callbacks need. libpng leaves a failing call by a jump back to encode; the pointers live here because a local would be lost to it. */
typedef struct encoder {
  hd_out out;
  heed_status status;
  png_structp png;
  png_infop info;
} encoder;

static void on_error(png_structp png, png_const_charp message) {
  encoder *e = png_get_error_ptr(png);
  if (e->status == HEED_OK) e->status = hd_fail(e->out.context, HEED_E_MEMORY, "png: %s", message);
  png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
  (void)png;
  (void)message;
}

static void on_write(png_structp png, png_bytep data, size_t bytes) {
  encoder *e = png_get_io_ptr(png);
  hd_out_bytes(&e->out, data, (int64_t)bytes);
  if (e->out.status == HEED_OK) return;
  e->status = e->out.status;
  png_longjmp(png, 1);
}

static void on_flush(png_structp png) { (void)png; }

static png_voidp on_allocate(png_structp png, png_alloc_size_t bytes) { return hd_sized_allocate(png_get_mem_ptr(png), bytes); }
static void on_release(png_structp png, png_voidp memory) { hd_sized_release(png_get_mem_ptr(png), memory); }

static void encode_rows(encoder *e, const hd_raster *p) {
  char version[64];
  snprintf(version, sizeof version, "heed %s", heed_version());
  png_text software = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = "Software", .text = version, .text_length = strlen(version)};
  png_set_write_fn(e->png, e, on_write, on_flush);
  png_set_IHDR(e->png, e->info, (png_uint_32)p->width, (png_uint_32)p->height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_sRGB(e->png, e->info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_set_text(e->png, e->info, &software, 1);
  png_write_info(e->png, e->info);
  for (int y = 0; y < p->height; y++) png_write_row(e->png, p->pixels + 3 * (int64_t)y * p->width);
  png_write_end(e->png, e->info);
}

static heed_status encode(encoder *e, const hd_raster *p) {
  e->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, e, on_error, on_warning, &p->context->allocator, on_allocate, on_release);
  e->info = e->png ? png_create_info_struct(e->png) : NULL;
  if (!e->info) e->status = hd_fail(p->context, HEED_E_MEMORY, "png: out of memory");
  else if (!setjmp(png_jmpbuf(e->png))) encode_rows(e, p);
  png_destroy_write_struct(&e->png, &e->info);
  return e->status == HEED_OK ? hd_out_end(&e->out) : e->status;
}

heed_status hd_raster_png(const hd_raster *raster, const heed_sink *sink) {
  encoder e = {.status = HEED_OK};
  hd_out_begin(&e.out, raster->context, sink);
  HD_TRY(e.out.status);
  return encode(&e, raster);
}
