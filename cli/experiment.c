/* experiment.c: the frame of `heed experiment`: keeps what is measured, prints table and sentence, writes CSV, JSON and pictures. */
#include "experiment.h"
#include "json.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is measured ---------------------------------------------------------------------------------------------------- */

static heed_text text_of(const char *text) { return (heed_text){text, strlen(text)}; }

panel *experiment_panel(experiment *e, const char *title, const char *x, int x_base, const char *y, int y_base) {
  panel *p = &e->panels[e->panel_count++];
  snprintf(p->title, sizeof p->title, "%s", title);
  p->x = (heed_axis){text_of(x), x_base};
  p->y = (heed_axis){text_of(y), y_base};
  return p;
}

curve *panel_curve(panel *p, bool expected, const char *name, ...) {
  curve *c = &p->curves[p->count++];
  va_list arguments;
  va_start(arguments, name);
  vsnprintf(c->name, sizeof c->name, name, arguments);
  va_end(arguments);
  c->expected = expected;
  return c;
}

void curve_add(curve *c, double x, double y) {
  if (c->count == c->room) {
    int64_t room = c->room ? 2 * c->room : 64;
    double *more_x = allocate("a curve", room, sizeof *more_x), *more_y = allocate("a curve", room, sizeof *more_y);
    for (int64_t i = 0; i < c->count; i++) more_x[i] = c->x[i], more_y[i] = c->y[i];
    free(c->x);
    free(c->y);
    c->x = more_x;
    c->y = more_y;
    c->room = room;
  }
  c->x[c->count] = x;
  c->y[c->count++] = y;
}

double curve_tail(const curve *c, double part) {
  int64_t from = c->count - (int64_t)(part * (double)c->count) - 1;
  double sum = 0;
  if (from < 0) from = 0;
  for (int64_t i = from; i < c->count; i++) sum += c->y[i];
  return sum / (double)(c->count - from);
}

void cell(experiment *e, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(e->cells[e->rows][e->at++], CELL_MAX, format, arguments);
  va_end(arguments);
  if (e->at > e->columns) e->columns = e->at;
}

void row_end(experiment *e) {
  e->rows++;
  e->at = 0;
}

void finding(experiment *e, const char *format, ...) {
  size_t used = strlen(e->finding);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(e->finding + used, sizeof e->finding - used, format, arguments);
  va_end(arguments);
}

int64_t experiment_steps(const experiment *e, int64_t full) { return e->v->steps ? e->v->steps : e->v->quick ? 3 : full; }

int64_t dice(uint64_t *state, int64_t below) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (int64_t)(((z ^ (z >> 31)) >> 33) % (uint64_t)below);
}

/* ---- printed ------------------------------------------------------------------------------------------------------------- */

static int columns_of(const char *text) {
  int columns = 0;
  for (; *text; text++) columns += (*text & 0xC0) != 0x80;
  return columns;
}

static int cells_in(const experiment *e, int row) {
  int count = e->columns;
  while (count > 0 && !e->cells[row][count - 1][0]) count--;
  return count;
}

/* Rows [begin, end). The first column holds names and begins at the left, the others numbers. */
static void print_rows(const experiment *e, int begin, int end) {
  int width[CELLS_MAX] = {0};
  for (int r = begin; r < end; r++)
    for (int c = 0; c < e->columns; c++) {
      int columns = columns_of(e->cells[r][c]);
      if (columns > width[c]) width[c] = columns;
    }
  for (int r = begin; r < end; r++) {
    for (int c = 0; c < cells_in(e, r); c++) {
      int fill = width[c] - columns_of(e->cells[r][c]);
      if (c == 0) out("%s%*s", e->cells[r][c], fill, "");
      else out("  %*s%s", fill, "", e->cells[r][c]);
    }
    out("\n");
  }
}

/* An empty row stands between two tables. */
static void print_tables(const experiment *e) {
  for (int begin = 0, r = 0; r <= e->rows; r++) {
    if (r < e->rows && cells_in(e, r) > 0) continue;
    print_rows(e, begin, r);
    out("\n");
    begin = r + 1;
  }
  out("%s\n", e->finding);
}

static void print_json(const experiment *e, const char *title) {
  json j = {0};
  json_open(&j, NULL, '{');
  json_text(&j, "experiment", title);
  json_open(&j, "curves", '[');
  for (int p = 0; p < e->panel_count; p++)
    for (int c = 0; c < e->panels[p].count; c++) {
      const curve *one = &e->panels[p].curves[c];
      json_open(&j, NULL, '{');
      json_text(&j, "measure", e->panels[p].y.name.data);
      json_text(&j, "of", one->name);
      json_bool(&j, "expected", one->expected);
      json_text(&j, "over", e->panels[p].x.name.data);
      json_open(&j, "x", '[');
      for (int64_t i = 0; i < one->count; i++) json_number(&j, NULL, one->x[i]);
      json_close(&j);
      json_open(&j, "y", '[');
      for (int64_t i = 0; i < one->count; i++) json_number(&j, NULL, one->y[i]);
      json_close(&j);
      json_close(&j);
    }
  json_close(&j);
  json_text(&j, "finding", e->finding);
  json_close(&j);
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

static void put_field(const char *text) {
  out("\"");
  for (; *text; text++) out(*text == '"' ? "\"\"" : "%c", *text);
  out("\"");
}

/* A line a point: what was measured, of what, over what, and both numbers. */
static int write_csv(const experiment *e) {
  output_file file;
  int code = output_open(e->v->csv, &file);
  if (code != EXIT_OK) return code;
  out_into(&file);
  out("measure,of,over,x,y\n");
  for (int p = 0; p < e->panel_count; p++)
    for (int c = 0; c < e->panels[p].count; c++)
      for (int64_t i = 0; i < e->panels[p].curves[c].count; i++) {
        put_field(e->panels[p].y.name.data);
        out(",");
        put_field(e->panels[p].curves[c].name);
        out(",");
        put_field(e->panels[p].x.name.data);
        out(",%.9g,%.9g\n", e->panels[p].curves[c].x[i], e->panels[p].curves[c].y[i]);
      }
  out_into(NULL);
  return output_close(&file, EXIT_OK);
}

typedef heed_status (*chart_writer)(heed_context *context, const heed_chart *chart, const heed_sink *sink);

static const struct {
  const char *suffix;
  chart_writer write;
} formats[] = {{".svg", heed_chart_svg}, {".png", heed_chart_png}, {".html", heed_chart_html}};

static chart_writer writer_of(const char *path) {
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
    if (strcmp(formats[i].suffix, path_suffix(path)) == 0) return formats[i].write;
  usage_error("%s: unknown format (got \"%s\", allowed .svg .png .html)", path, path_suffix(path));
  return NULL;
}

static int write_picture(const experiment *e, const char *path, const heed_chart *chart) {
  output_file file;
  int code = output_open(path, &file);
  if (code != EXIT_OK) return code;
  heed_sink sink = output_sink(&file);
  heed_status status = writer_of(path)(e->context, chart, &sink);
  if (status == HEED_E_WRITE) return output_close(&file, EXIT_OK); // it knows why
  return output_close(&file, check(e->context, status));
}

static int write_pictures(const experiment *e, const char *title) {
  heed_series series[PANELS_MAX][CURVES_MAX];
  heed_panel panels[PANELS_MAX];
  int code = EXIT_OK;
  for (int p = 0; p < e->panel_count; p++) {
    const panel *one = &e->panels[p];
    for (int c = 0; c < one->count; c++)
      series[p][c] = (heed_series){.name = text_of(one->curves[c].name),
                                   .count = one->curves[c].count,
                                   .x = one->curves[c].x,
                                   .y = one->curves[c].y,
                                   .expected = one->curves[c].expected};
    panels[p] = (heed_panel){.title = text_of(one->title), .x = one->x, .y = one->y, .series_count = one->count, .series = series[p]};
  }
  const char *paper = e->v->background;
  const heed_chart chart = {.size = sizeof chart,
                            .title = text_of(title),
                            .caption = text_of(e->finding),
                            .command = text_of(command_line()),
                            .panel_count = e->panel_count,
                            .panels = panels,
                            .paper = paper[0] == 'd'   ? HEED_PAPER_DARK
                                     : paper[0] == 'l' ? HEED_PAPER_LIGHT
                                                       : HEED_PAPER_READER};
  for (int i = 0; i < e->v->outputs.count && code == EXIT_OK; i++) code = write_picture(e, e->v->outputs.items[i], &chart);
  return code;
}

/* ---- the run ------------------------------------------------------------------------------------------------------------- */

int experiment_run(const char *title, int (*measure)(experiment *e), const void *pointer) {
  const experiment_values *v = pointer;
  const bool to_stdout = v->csv && strcmp(v->csv, "-") == 0;
  int code;
  for (int i = 0; i < v->outputs.count; i++)
    if (!writer_of(v->outputs.items[i])) return EXIT_USAGE;
  experiment *e = allocate("an experiment", 1, sizeof *e);
  e->v = v;
  e->seed = (uint64_t)v->common.seed;
  TRY(context_open(&v->common, &e->context));
  TRY(measure(e));
  progress_show(false);
  if (v->common.json) print_json(e, title);
  else if (!to_stdout) print_tables(e);
  if (v->csv) TRY(write_csv(e));
  TRY(write_pictures(e, title));
done:
  for (int p = 0; p < e->panel_count; p++)
    for (int c = 0; c < e->panels[p].count; c++) {
      free(e->panels[p].curves[c].x);
      free(e->panels[p].curves[c].y);
    }
  heed_context_free(e->context);
  free(e);
  return code;
}
