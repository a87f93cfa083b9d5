/* png.c: one head as a PNG for a paper or a slide: whole pixels a cell, token labels, a scale bar and a caption, on white.
 *
 * Memory of libpng comes from the context, and its errors come back as statuses. */
#include "record.h"
#include "font.h"

#include <png.h>
#include <stdio.h>
#include <utf8proc.h>

enum {
  MATRIX_PIXELS = 960, // the matrix is about this large, unless its cells would fall below one pixel or rise above MAX_CELL
  MAX_CELL = 40,
  MAX_PIXELS = 8192, // a side of the matrix; 200 MB of pixels
  MARGIN = 16,
  AIR = 6,        // between the matrix and its labels
  MAX_LABEL = 16, // columns of a label
  LABEL_PIXELS = MAX_LABEL * HD_FONT_ADVANCE,
  BAR_PIXELS = 256, // one a level
  BAR_HEIGHT = 12,
  LEAST_CAPTION = 44 // characters of a line of the caption
};

static const hd_rgb ink = {0x22, 0x22, 0x22}, quiet = {0x66, 0x66, 0x66}, faint = {0x9A, 0x9A, 0x9A};

typedef struct plate {
  heed_context *context;
  const heed_record *record;
  int64_t layer, head;
  hd_label *queries, *keys, caption[2];
  hd_rgb map[HD_LEVELS];
  int cell, scale; // pixels of a cell, pixels of a font pixel
  int left, top;   // of the matrix
  int width, height;
  uint8_t *pixels; // [height, width, 3]
} plate;

/* ---- drawing ------------------------------------------------------------------------------------------------------------- */

static void fill(plate *p, int x, int y, int w, int h, hd_rgb c) {
  for (int row = HD_MAX(y, 0); row < HD_MIN(y + h, p->height); row++)
    for (int column = HD_MAX(x, 0); column < HD_MIN(x + w, p->width); column++)
      memcpy(p->pixels + 3 * ((int64_t)row * p->width + column), &c, 3);
}

static int text_pixels(const hd_label *label) {
  int pixels = 0;
  for (int at = 0; at < label->bytes;) {
    utf8proc_int32_t code;
    at += (int)utf8proc_iterate((const utf8proc_uint8_t *)label->text + at, label->bytes - at, &code);
    pixels += hd_font_advance(code);
  }
  return pixels;
}

/* x, y: the left end of the upper edge of the line; upward text starts at its lower left corner and climbs. */
static void put_text(plate *p, int x, int y, bool upward, const hd_label *label, hd_rgb color) {
  for (int at = 0; at < label->bytes;) {
    utf8proc_int32_t code;
    at += (int)utf8proc_iterate((const utf8proc_uint8_t *)label->text + at, label->bytes - at, &code);
    int advance = hd_font_advance(code), s = p->scale;
    for (int v = 0; v < HD_FONT_HEIGHT; v++)
      for (int u = 0; u < advance; u++) {
        if (!hd_font_ink(code, u, v)) continue;
        if (upward) fill(p, x + v * s, y - (u + 1) * s, s, s, color);
        else fill(p, x + u * s, y + v * s, s, s, color);
      }
    if (upward) y -= advance * s;
    else x += advance * s;
  }
}

/* A label that is no longer than LABEL_PIXELS: characters without a glyph are wider than their columns. */
static hd_label short_label(const hd_label *label, char buffer[HD_LABEL_BYTES]) {
  for (int columns = MAX_LABEL;; columns--) {
    hd_label cut = hd_label_cut(label, columns, buffer);
    if (columns == 1 || text_pixels(&cut) <= LABEL_PIXELS) return cut;
  }
}

static int longest(const hd_label *labels, int64_t count) {
  char buffer[HD_LABEL_BYTES];
  int pixels = 0;
  for (int64_t i = 0; i < count; i++) {
    hd_label cut = short_label(&labels[i], buffer);
    pixels = HD_MAX(pixels, text_pixels(&cut));
  }
  return pixels;
}

/* ---- parts of the plate -------------------------------------------------------------------------------------------------- */

static bool is_live(const plate *p, int64_t query, int64_t key) {
  if (query < 0 || query >= p->record->queries) return false;
  hd_live live = hd_record_live(p->record, p->layer, query);
  return key >= live.begin && key < live.end;
}

/* The hairline lies outside the live cells, so that no cell loses a pixel. */
static void outline_cell(plate *p, int64_t i, int64_t j, int x, int y) {
  int c = p->cell;
  if (!is_live(p, i, j - 1)) fill(p, x - 1, y - 1, 1, c + 2, faint);
  if (!is_live(p, i, j + 1)) fill(p, x + c, y - 1, 1, c + 2, faint);
  if (!is_live(p, i - 1, j)) fill(p, x - 1, y - 1, c + 2, 1, faint);
  if (!is_live(p, i + 1, j)) fill(p, x - 1, y + c, c + 2, 1, faint);
}

static void put_cells(plate *p, bool outline) {
  for (int64_t i = 0; i < p->record->queries; i++) {
    const float *row = hd_record_row(p->record, p->layer, p->head, i);
    hd_live live = hd_record_live(p->record, p->layer, i);
    for (int64_t j = live.begin; j < live.end; j++) {
      int x = p->left + (int)j * p->cell, y = p->top + (int)i * p->cell;
      if (outline) outline_cell(p, i, j, x, y);
      else fill(p, x, y, p->cell, p->cell, p->map[hd_level(row[j])]);
    }
  }
}

/* Every token where lines of text fit a cell, otherwise every second, third, ... */
static void put_labels(plate *p) {
  int line = HD_FONT_HEIGHT * p->scale, step = (line + 1 + p->cell - 1) / p->cell, lift = (p->cell - line) / 2;
  char buffer[HD_LABEL_BYTES];
  for (int64_t i = 0; i < p->record->queries; i += step) {
    hd_label cut = short_label(&p->queries[i], buffer);
    put_text(p, p->left - AIR - text_pixels(&cut) * p->scale, p->top + (int)i * p->cell + lift, false, &cut, ink);
  }
  for (int64_t j = 0; j < p->record->keys; j += step) {
    hd_label cut = short_label(&p->keys[j], buffer);
    put_text(p, p->left + (int)j * p->cell + lift, p->top - AIR, true, &cut, ink);
  }
}

static void put_scale_bar(plate *p, int y) {
  static const struct {
    float weight;
    const char *name;
  } ticks[] = {{0, "0"}, {0.1f, ".1"}, {0.25f, ".25"}, {0.5f, ".5"}, {1, "1"}};
  fill(p, p->left - 1, y - 1, BAR_PIXELS + 2, BAR_HEIGHT + 2, faint);
  for (int level = 0; level < HD_LEVELS; level++) fill(p, p->left + level, y, 1, BAR_HEIGHT, p->map[level]);
  for (int t = 0; t < HD_COUNT(ticks); t++) {
    hd_label name = {ticks[t].name, (int)strlen(ticks[t].name), (int)strlen(ticks[t].name)};
    int x = p->left + hd_level(ticks[t].weight), half = (text_pixels(&name) - 1) * p->scale / 2;
    fill(p, x, y + BAR_HEIGHT, 1, 4, ink);
    put_text(p, x - half, y + BAR_HEIGHT + 4, false, &name, ink);
  }
}

/* Where a line that starts at text and holds `pixels` font pixels ends: after a word if there is one. */
static const char *line_end(const char *text, const char *end, int pixels) {
  const char *at = text, *word = NULL;
  int used = 0;
  while (at < end) {
    utf8proc_int32_t code;
    int bytes = (int)utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, &code);
    used += hd_font_advance(code);
    if (used > pixels) return word ? word : at;
    if (code == ' ') word = at;
    at += bytes;
  }
  return end;
}

/* Wraps the caption; returns the lines it takes and draws them where y ≥ 0. */
static int put_caption(plate *p, int y) {
  int room = (p->width - 2 * MARGIN) / p->scale, lines = 0, height = (HD_FONT_HEIGHT + 2) * p->scale;
  for (int c = 0; c < HD_COUNT(p->caption); c++) {
    const char *text = p->caption[c].text, *end = text + p->caption[c].bytes;
    while (text < end) {
      const char *stop = line_end(text, end, room);
      hd_label line = {text, (int)(stop - text), 0};
      if (y >= 0) put_text(p, MARGIN, y + lines * height, false, &line, c ? quiet : ink);
      lines++;
      text = stop < end && *stop == ' ' ? stop + 1 : stop;
    }
  }
  return lines;
}

static heed_status make_caption(plate *p, hd_arena *arena) {
  const heed_record *r = p->record;
  char name[HD_HEAD_NAME], *text;
  int64_t bytes = (int64_t)r->model.length + HD_HEAD_NAME + 8;
  HD_TRY(hd_arena_allocate(arena, p->context, "the caption", bytes, 1, &text));
  snprintf(text, (size_t)bytes, "%.*s%s%s", (int)r->model.length, r->model.length ? r->model.data : "", r->model.length ? " · " : "",
           hd_head_name(r, p->layer, p->head, name));
  HD_TRY(hd_label_of(p->context, arena, hd_text(text), &p->caption[0]));
  return hd_label_of(p->context, arena, hd_text("Rows look, columns are looked at. Attention weight, square-root scale."), &p->caption[1]);
}

static heed_status compose(plate *p, hd_arena *arena) {
  const heed_record *r = p->record;
  int64_t side = HD_MAX(r->queries, r->keys);
  HD_REQUIRE(side <= MAX_PIXELS, p->context, HEED_E_SHAPE, "png: %lld tokens make a picture wider than %d pixels", (long long)side,
             MAX_PIXELS);
  p->cell = (int)HD_MIN(HD_MAX(MATRIX_PIXELS / side, 1), MAX_CELL);
  p->scale = p->cell > HD_FONT_HEIGHT * 2 ? 2 : 1;
  p->left = MARGIN + longest(p->queries, r->queries) * p->scale + AIR;
  p->top = MARGIN + longest(p->keys, r->keys) * p->scale + AIR;
  int right = p->left + HD_MAX((int)r->keys * p->cell, BAR_PIXELS), bottom = p->top + (int)r->queries * p->cell;
  p->width = HD_MAX(right + MARGIN, LEAST_CAPTION * HD_FONT_ADVANCE * p->scale + 2 * MARGIN);
  int bar = bottom + 12 * p->scale, caption = bar + BAR_HEIGHT + 4 + (HD_FONT_HEIGHT + 6) * p->scale;
  p->height = caption + put_caption(p, -1) * (HD_FONT_HEIGHT + 2) * p->scale + MARGIN;
  HD_TRY(hd_arena_allocate(arena, p->context, "the pixels", (int64_t)p->width * p->height, 3, &p->pixels));
  memset(p->pixels, 0xFF, (size_t)p->width * (size_t)p->height * 3);
  put_cells(p, true);
  put_cells(p, false);
  put_labels(p);
  put_scale_bar(p, bar);
  put_caption(p, caption);
  return HEED_OK;
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

static void encode_rows(encoder *e, const plate *p) {
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

static heed_status encode(const plate *p, encoder *e) {
  e->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, e, on_error, on_warning, &p->context->allocator, on_allocate, on_release);
  e->info = e->png ? png_create_info_struct(e->png) : NULL;
  if (!e->info) e->status = hd_fail(p->context, HEED_E_MEMORY, "png: out of memory");
  else if (!setjmp(png_jmpbuf(e->png))) encode_rows(e, p);
  png_destroy_write_struct(&e->png, &e->info);
  return e->status == HEED_OK ? hd_out_end(&e->out) : e->status;
}

heed_status heed_record_png(heed_context *context, const heed_record *given, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_record record;
  hd_arena arena;
  encoder e = {.status = HEED_OK};
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_record_check_head(context, &record, layer, head));
  HD_TRY(hd_record_check_finite(context, &record, layer, head));
  plate p = {.context = context, .record = &record, .layer = layer, .head = head};
  hd_color_map(false, p.map);
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_labels(context, &arena, record.query_tokens, record.queries, &p.queries));
  HD_TRY_DONE(hd_labels(context, &arena, record.key_tokens, record.keys, &p.keys));
  HD_TRY_DONE(make_caption(&p, &arena));
  HD_TRY_DONE(compose(&p, &arena));
  hd_out_begin(&e.out, context, sink);
  HD_TRY_DONE(e.out.status);
  status = encode(&p, &e);
done:
  hd_arena_free(&arena);
  return status;
}
