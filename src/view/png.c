/* png.c: one head as a PNG for a paper or a slide: whole pixels a cell, token labels, a scale bar and a caption, on white. */
#include "font.h"
#include "raster.h"

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
  hd_raster raster;
  const heed_record *record;
  int64_t layer, head;
  hd_label *queries, *keys, caption[2];
  hd_rgb map[HD_LEVELS];
  int cell;      // pixels
  int left, top; // of the matrix
} plate;

/* ---- labels ------------------------------------------------------------------------------------------------------------- */

/* A label that is no longer than LABEL_PIXELS: characters without a glyph are wider than their columns. */
static hd_label short_label(const hd_label *label, char buffer[HD_LABEL_BYTES]) {
  for (int columns = MAX_LABEL;; columns--) {
    hd_label cut = hd_label_cut(label, columns, buffer);
    if (columns == 1 || hd_raster_text_pixels(&cut) <= LABEL_PIXELS) return cut;
  }
}

static int longest(const hd_label *labels, int64_t count) {
  char buffer[HD_LABEL_BYTES];
  int pixels = 0;
  for (int64_t i = 0; i < count; i++) {
    hd_label cut = short_label(&labels[i], buffer);
    pixels = HD_MAX(pixels, hd_raster_text_pixels(&cut));
  }
  return pixels;
}

/* ---- parts of the plate -------------------------------------------------------------------------------------------------- */

static bool is_live(const plate *p, int64_t query, int64_t key) {
  if (query < 0 || query >= p->record->queries) return false;
  hd_live live = hd_record_live(p->record, p->layer, query);
  return key >= live.begin && key < live.end && hd_shows(hd_record_shown(p->record, p->layer, p->head, query), key);
}

/* The hairline lies outside the live cells, so that no cell loses a pixel. */
static void outline_cell(plate *p, int64_t i, int64_t j, int x, int y) {
  int c = p->cell;
  if (!is_live(p, i, j - 1)) hd_raster_fill(&p->raster, x - 1, y - 1, 1, c + 2, faint);
  if (!is_live(p, i, j + 1)) hd_raster_fill(&p->raster, x + c, y - 1, 1, c + 2, faint);
  if (!is_live(p, i - 1, j)) hd_raster_fill(&p->raster, x - 1, y - 1, c + 2, 1, faint);
  if (!is_live(p, i + 1, j)) hd_raster_fill(&p->raster, x - 1, y + c, c + 2, 1, faint);
}

static void put_cells(plate *p, bool outline) {
  for (int64_t i = 0; i < p->record->queries; i++) {
    const float *row = hd_record_row(p->record, p->layer, p->head, i);
    hd_live live = hd_record_live(p->record, p->layer, i);
    for (int64_t j = live.begin; j < live.end; j++) {
      int x = p->left + (int)j * p->cell, y = p->top + (int)i * p->cell;
      if (!is_live(p, i, j)) continue;
      if (outline) outline_cell(p, i, j, x, y);
      else hd_raster_fill(&p->raster, x, y, p->cell, p->cell, p->map[hd_level(row[j])]);
    }
  }
}

/* Every token where lines of text fit a cell, otherwise every second, third, ... */
static void put_labels(plate *p) {
  int line = HD_FONT_HEIGHT * p->raster.scale, step = (line + 1 + p->cell - 1) / p->cell, lift = (p->cell - line) / 2;
  char buffer[HD_LABEL_BYTES];
  for (int64_t i = 0; i < p->record->queries; i += step) {
    hd_label cut = short_label(&p->queries[i], buffer);
    hd_raster_text(&p->raster, p->left - AIR - hd_raster_text_pixels(&cut) * p->raster.scale, p->top + (int)i * p->cell + lift, false, &cut,
                   ink);
  }
  for (int64_t j = 0; j < p->record->keys; j += step) {
    hd_label cut = short_label(&p->keys[j], buffer);
    hd_raster_text(&p->raster, p->left + (int)j * p->cell + lift, p->top - AIR, true, &cut, ink);
  }
}

static void put_scale_bar(plate *p, int y) {
  static const struct {
    float weight;
    const char *name;
  } ticks[] = {{0, "0"}, {0.1f, ".1"}, {0.25f, ".25"}, {0.5f, ".5"}, {1, "1"}};
  hd_raster_fill(&p->raster, p->left - 1, y - 1, BAR_PIXELS + 2, BAR_HEIGHT + 2, faint);
  for (int level = 0; level < HD_LEVELS; level++) hd_raster_fill(&p->raster, p->left + level, y, 1, BAR_HEIGHT, p->map[level]);
  for (int t = 0; t < HD_COUNT(ticks); t++) {
    hd_label name = {ticks[t].name, (int)strlen(ticks[t].name), (int)strlen(ticks[t].name)};
    int x = p->left + hd_level(ticks[t].weight), half = (hd_raster_text_pixels(&name) - 1) * p->raster.scale / 2;
    hd_raster_fill(&p->raster, x, y + BAR_HEIGHT, 1, 4, ink);
    hd_raster_text(&p->raster, x - half, y + BAR_HEIGHT + 4, false, &name, ink);
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
  int room = (p->raster.width - 2 * MARGIN) / p->raster.scale, lines = 0, height = (HD_FONT_HEIGHT + 2) * p->raster.scale;
  for (int c = 0; c < HD_COUNT(p->caption); c++) {
    const char *text = p->caption[c].text, *end = text + p->caption[c].bytes;
    while (text < end) {
      const char *stop = line_end(text, end, room);
      hd_label line = {text, (int)(stop - text), 0};
      if (y >= 0) hd_raster_text(&p->raster, MARGIN, y + lines * height, false, &line, c ? quiet : ink);
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
  HD_TRY(hd_arena_allocate(arena, p->raster.context, "the caption", bytes, 1, &text));
  snprintf(text, (size_t)bytes, "%.*s%s%s", (int)r->model.length, r->model.length ? r->model.data : "", r->model.length ? " · " : "",
           hd_head_name(r, p->layer, p->head, name));
  HD_TRY(hd_label_of(p->raster.context, arena, hd_text(text), &p->caption[0]));
  return hd_label_of(p->raster.context, arena, hd_text(hd_caption(r)), &p->caption[1]);
}

static heed_status compose(plate *p, hd_arena *arena) {
  const heed_record *r = p->record;
  int64_t side = HD_MAX(r->queries, r->keys);
  HD_REQUIRE(side <= MAX_PIXELS, p->raster.context, HEED_E_SHAPE, "png: %lld tokens make a picture wider than %d pixels", (long long)side,
             MAX_PIXELS);
  p->cell = (int)HD_MIN(HD_MAX(MATRIX_PIXELS / side, 1), MAX_CELL);
  p->raster.scale = p->cell > HD_FONT_HEIGHT * 2 ? 2 : 1;
  p->left = MARGIN + longest(p->queries, r->queries) * p->raster.scale + AIR;
  p->top = MARGIN + longest(p->keys, r->keys) * p->raster.scale + AIR;
  int right = p->left + HD_MAX((int)r->keys * p->cell, BAR_PIXELS), bottom = p->top + (int)r->queries * p->cell;
  p->raster.width = HD_MAX(right + MARGIN, LEAST_CAPTION * HD_FONT_ADVANCE * p->raster.scale + 2 * MARGIN);
  int bar = bottom + 12 * p->raster.scale, caption = bar + BAR_HEIGHT + 4 + (HD_FONT_HEIGHT + 6) * p->raster.scale;
  p->raster.height = caption + put_caption(p, -1) * (HD_FONT_HEIGHT + 2) * p->raster.scale + MARGIN;
  HD_TRY(hd_raster_open(&p->raster, arena, (hd_rgb){0xFF, 0xFF, 0xFF}));
  put_cells(p, true);
  put_cells(p, false);
  put_labels(p);
  put_scale_bar(p, bar);
  put_caption(p, caption);
  return HEED_OK;
}

heed_status heed_record_png(heed_context *context, const heed_record *given, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_record record;
  hd_arena arena;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_record_check_head(context, &record, layer, head));
  HD_TRY(hd_record_check_finite(context, &record, layer, head));
  plate p = {.raster.context = context, .record = &record, .layer = layer, .head = head};
  hd_color_map(false, p.map);
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_labels(context, &arena, record.query_tokens, record.queries, &p.queries));
  HD_TRY_DONE(hd_labels(context, &arena, record.key_tokens, record.keys, &p.keys));
  HD_TRY_DONE(make_caption(&p, &arena));
  HD_TRY_DONE(compose(&p, &arena));
  status = hd_raster_png(&p.raster, sink);
done:
  hd_arena_free(&arena);
  return status;
}
