/* svg.c: one head as vectors: crisp cells, text as text, one path a colour so that the file stays small. Units are CSS pixels on white paper. */
#include "record.h"

#include <stdio.h>

enum {
  MATRIX_UNITS = 560, // the matrix is about this large; one column of a paper
  MAX_CELL = 28,
  FONT = 12,
  LEAST_FONT = 6,
  MAX_LABEL = 16, // columns of a label
  MARGIN = 12,
  AIR = 6,
  BAR_UNITS = 240,
  BAR_HEIGHT = 8
};

typedef struct plate {
  hd_out out;
  const heed_record *record;
  int64_t layer, head;
  hd_label *queries, *keys, model;
  hd_rgb map[HD_LEVELS];
  double cell, font;
  double left, top, width, height;
} plate;

static void put_label_text(plate *p, const hd_label *label, int columns) {
  char buffer[HD_LABEL_BYTES];
  hd_label cut = hd_label_cut(label, columns, buffer);
  hd_out_escaped(&p->out, cut.text, cut.bytes);
}

static void put_words(plate *p, double x, double y, const char *attributes, const char *words) {
  hd_out_text(&p->out, "<text");
  hd_out_attribute(&p->out, "x", x);
  hd_out_attribute(&p->out, "y", y);
  hd_out_print(&p->out, "%s>", attributes);
  hd_out_escaped(&p->out, words, (int)strlen(words));
  hd_out_text(&p->out, "</text>\n");
}

/* ---- cells --------------------------------------------------------------------------------------------------------------- */

static bool is_live(const plate *p, int64_t query, int64_t key) {
  if (query < 0 || query >= p->record->queries) return false;
  hd_live live = hd_record_live(p->record, p->layer, query);
  return key >= live.begin && key < live.end && hd_shows(hd_record_shown(p->record, p->layer, p->head, query), key);
}

/* Every run of cells of one level in a row is one rectangle of that level's path; coordinates are whole cells, scaled by the group. */
static void put_level(plate *p, int level) {
  bool open = false;
  for (int64_t i = 0; i < p->record->queries; i++) {
    const float *row = hd_record_row(p->record, p->layer, p->head, i);
    hd_live live = hd_record_live(p->record, p->layer, i);
    for (int64_t j = live.begin; j < live.end; j++) {
      if (hd_level(row[j]) != level || !is_live(p, i, j)) continue;
      int64_t begin = j;
      while (is_live(p, i, j + 1) && hd_level(row[j + 1]) == level) j++;
      if (!open) {
        hd_out_text(&p->out, "<path fill=\"");
        hd_out_color(&p->out, p->map[level]);
        hd_out_text(&p->out, "\" d=\"");
        open = true;
      }
      hd_out_print(&p->out, "M%lld %lldh%lldv1h-%lldz", (long long)begin, (long long)i, (long long)(j + 1 - begin),
                   (long long)(j + 1 - begin));
    }
  }
  if (open) hd_out_text(&p->out, "\"/>\n");
}

/* The border between live cells and paper. */
static void put_outline(plate *p) {
  hd_out_print(&p->out, "<path fill=\"none\" stroke=\"#9a9a9a\" stroke-width=\"%s\" vector-effect=\"non-scaling-stroke\" d=\"",
               p->cell < 8 ? ".5" : "1");
  for (int64_t i = 0; i <= p->record->queries; i++)
    for (int64_t j = 0; j <= p->record->keys; j++) {
      if (is_live(p, i, j) != is_live(p, i - 1, j)) hd_out_print(&p->out, "M%lld %lldh1", (long long)j, (long long)i);
      if (is_live(p, i, j) != is_live(p, i, j - 1)) hd_out_print(&p->out, "M%lld %lldv1", (long long)j, (long long)i);
    }
  hd_out_text(&p->out, "\"/>\n");
}

static void put_cells(plate *p) {
  bool used[HD_LEVELS] = {false};
  for (int64_t i = 0; i < p->record->queries; i++) {
    const float *row = hd_record_row(p->record, p->layer, p->head, i);
    hd_live live = hd_record_live(p->record, p->layer, i);
    for (int64_t j = live.begin; j < live.end; j++)
      if (is_live(p, i, j)) used[hd_level(row[j])] = true;
  }
  hd_out_text(&p->out, "<g shape-rendering=\"crispEdges\" transform=\"translate(");
  hd_out_coordinate(&p->out, p->left);
  hd_out_text(&p->out, " ");
  hd_out_coordinate(&p->out, p->top);
  hd_out_text(&p->out, ") scale(");
  hd_out_coordinate(&p->out, p->cell);
  hd_out_text(&p->out, ")\">\n");
  for (int level = 0; level < HD_LEVELS; level++)
    if (used[level]) put_level(p, level);
  put_outline(p);
  hd_out_text(&p->out, "</g>\n");
}

/* ---- words --------------------------------------------------------------------------------------------------------------- */

static void put_labels(plate *p) {
  int64_t step = (int64_t)(p->font / p->cell) + (p->font > p->cell);
  step = HD_MAX(step, 1);
  hd_out_text(&p->out, "<g text-anchor=\"end\">\n");
  for (int64_t i = 0; i < p->record->queries; i += step) {
    hd_out_text(&p->out, "<text");
    hd_out_attribute(&p->out, "x", p->left - AIR);
    hd_out_attribute(&p->out, "y", p->top + ((double)i + 0.5) * p->cell + 0.35 * p->font);
    hd_out_text(&p->out, ">");
    put_label_text(p, &p->queries[i], MAX_LABEL);
    hd_out_text(&p->out, "</text>\n");
  }
  hd_out_text(&p->out, "</g>\n");
  for (int64_t j = 0; j < p->record->keys; j += step) {
    hd_out_text(&p->out, "<text transform=\"translate(");
    hd_out_coordinate(&p->out, p->left + ((double)j + 0.5) * p->cell + 0.35 * p->font);
    hd_out_text(&p->out, " ");
    hd_out_coordinate(&p->out, p->top - AIR);
    hd_out_text(&p->out, ") rotate(-90)\">");
    put_label_text(p, &p->keys[j], MAX_LABEL);
    hd_out_text(&p->out, "</text>\n");
  }
}

static void put_scale_bar(plate *p, double y) {
  static const struct {
    float weight;
    const char *name;
  } ticks[] = {{0, "0"}, {0.1f, ".1"}, {0.25f, ".25"}, {0.5f, ".5"}, {1, "1"}};
  enum { STOPS = 16 };
  hd_out_text(&p->out, "<linearGradient id=\"scale\">");
  for (int s = 0; s <= STOPS; s++) {
    hd_out_print(&p->out, "<stop offset=\"%d%%\" stop-color=\"", 100 * s / STOPS);
    hd_out_color(&p->out, p->map[(HD_LEVELS - 1) * (100 * s / STOPS) / 100]);
    hd_out_text(&p->out, "\"/>");
  }
  hd_out_text(&p->out, "</linearGradient>\n<rect fill=\"url(#scale)\" stroke=\"#9a9a9a\"");
  hd_out_attribute(&p->out, "x", p->left);
  hd_out_attribute(&p->out, "y", y);
  hd_out_attribute(&p->out, "width", BAR_UNITS);
  hd_out_attribute(&p->out, "height", BAR_HEIGHT);
  hd_out_text(&p->out, "/>\n");
  for (int t = 0; t < HD_COUNT(ticks); t++)
    put_words(p, p->left + BAR_UNITS * (double)hd_level(ticks[t].weight) / (HD_LEVELS - 1), y + BAR_HEIGHT + FONT,
              " text-anchor=\"middle\" font-size=\"10\"", ticks[t].name);
}

static void put_caption(plate *p, double y) {
  char name[HD_HEAD_NAME];
  hd_out_text(&p->out, "<text");
  hd_out_attribute(&p->out, "x", MARGIN);
  hd_out_attribute(&p->out, "y", y);
  hd_out_print(&p->out, " font-size=\"%d\">", FONT);
  hd_out_escaped(&p->out, p->model.text, p->model.bytes);
  hd_out_print(&p->out, "%s%s</text>\n", p->model.bytes ? " · " : "", hd_head_name(p->record, p->layer, p->head, name));
  put_words(p, MARGIN, y + 16, " font-size=\"10\" fill=\"#666\"", hd_caption(p->record));
}

static int widest(const hd_label *labels, int64_t count) {
  int columns = 1;
  for (int64_t i = 0; i < count; i++) columns = HD_MAX(columns, HD_MIN(labels[i].columns, MAX_LABEL));
  return columns;
}

static void plan(plate *p) {
  const heed_record *r = p->record;
  p->cell = HD_MIN(MATRIX_UNITS / (double)HD_MAX(r->queries, r->keys), MAX_CELL);
  p->cell = p->cell >= 1 ? (double)(int)(4 * p->cell) / 4 : HD_MAX(p->cell, 0.05);
  p->font = HD_MAX(HD_MIN(p->cell, FONT), LEAST_FONT);
  // 0.62 em is the mean advance of the widest common interface fonts.
  p->left = MARGIN + widest(p->queries, r->queries) * p->font * 0.62 + AIR;
  p->top = MARGIN + widest(p->keys, r->keys) * p->font * 0.62 + AIR;
  p->width = HD_MAX(p->left + HD_MAX(p->cell * (double)r->keys, BAR_UNITS) + MARGIN, 380);
  p->height = p->top + p->cell * (double)r->queries + 16 + BAR_HEIGHT + 54;
}

static void write_picture(plate *p) {
  double bottom = p->top + p->cell * (double)p->record->queries;
  hd_out_text(&p->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
  hd_out_coordinate(&p->out, p->width);
  hd_out_text(&p->out, " ");
  hd_out_coordinate(&p->out, p->height);
  hd_out_text(&p->out, "\"");
  hd_out_attribute(&p->out, "width", p->width);
  hd_out_attribute(&p->out, "height", p->height);
  hd_out_text(&p->out, " font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif\" fill=\"#222\"");
  hd_out_attribute(&p->out, "font-size", p->font);
  hd_out_text(&p->out, ">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  put_cells(p);
  put_labels(p);
  put_scale_bar(p, bottom + 16);
  put_caption(p, bottom + 16 + BAR_HEIGHT + 34);
  hd_out_text(&p->out, "</svg>\n");
}

heed_status heed_record_svg(heed_context *context, const heed_record *given, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_record record;
  hd_arena arena;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_record_check_head(context, &record, layer, head));
  HD_TRY(hd_record_check_finite(context, &record, layer, head));
  plate p = {.record = &record, .layer = layer, .head = head};
  hd_color_map(false, p.map);
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_labels(context, &arena, record.query_tokens, record.queries, &p.queries));
  HD_TRY_DONE(hd_labels(context, &arena, record.key_tokens, record.keys, &p.keys));
  HD_TRY_DONE(hd_label_of(context, &arena, record.model, &p.model));
  plan(&p);
  hd_out_begin(&p.out, context, sink);
  write_picture(&p);
  status = hd_out_end(&p.out);
done:
  hd_arena_free(&arena);
  return status;
}
