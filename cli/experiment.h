/* experiment.h: what all experiments share: curves that are measured, a table, one sentence that is computed from them; printed, as CSV, JSON and a picture.
 *
 * An experiment is a file experiment_NAME.c with a function that measures, and a line in list.h. What it measures goes into panels of the chart; everything else is made of these. */
#ifndef CLI_EXPERIMENT_H
#define CLI_EXPERIMENT_H

#include "output.h"

/* The values of every experiment; the first member where one has options of its own. */
typedef struct experiment_values {
  common_values common;
  int64_t steps; /* of each training; 0: the experiment's own */
  bool quick;
  const char *csv, *background;
  text_list outputs;
} experiment_values;

/* Points under a name. */
typedef struct curve {
  char name[64];
  bool expected; /* what theory says */
  int64_t count, room;
  double *x, *y;
} curve;

enum { CURVES_MAX = 16, PANELS_MAX = 6, CELLS_MAX = 10, ROWS_MAX = 64, CELL_MAX = 48 };

typedef struct panel {
  char title[96];
  heed_axis x, y;
  int count;
  curve curves[CURVES_MAX];
} panel;

typedef struct experiment {
  const experiment_values *v;
  heed_context *context;
  uint64_t seed;
  int panel_count;
  panel panels[PANELS_MAX];
  int columns, rows, at; /* of the table; the next cell */
  char cells[ROWS_MAX][CELLS_MAX][CELL_MAX];
  char finding[2048];
} experiment;

/* The names are the caller's for as long as the experiment lasts. base: of a logarithmic axis, 0 for a linear one. */
panel *experiment_panel(experiment *e, const char *title, const char *x, int x_base, const char *y, int y_base);
__attribute__((format(printf, 3, 4))) curve *panel_curve(panel *p, bool expected, const char *name, ...);
void curve_add(curve *c, double x, double y);
/* The mean of the last part of a curve: losses of single batches jump. */
double curve_tail(const curve *c, double part);

/* The next cell of the table; the first row holds the names of the columns. */
__attribute__((format(printf, 2, 3))) void cell(experiment *e, const char *format, ...);
void row_end(experiment *e);
/* Adds to the sentence. */
__attribute__((format(printf, 2, 3))) void finding(experiment *e, const char *format, ...);

/* full steps, unless --steps or --quick say otherwise. */
int64_t experiment_steps(const experiment *e, int64_t full);

/* Whole numbers in [0, below) that look like nothing (splitmix64). */
int64_t dice(uint64_t *state, int64_t below);

/* Runs `measure` and shows what it found. */
int experiment_run(const char *title, int (*measure)(experiment *e), const void *values);

/* Options of all experiments, the tail of each table, and of those that train. */
#define EXPERIMENT_OPTION(name_, letter_, kind_, value_, field_, help_, ...)                                                               \
  {                                                                                                                                        \
    .name = name_, .letter = letter_, .kind = OPTION_##kind_, .value = value_, .at = offsetof(experiment_values, field_), .help = help_,   \
    __VA_ARGS__                                                                                                                            \
  }
#define EXPERIMENT_OPTIONS                                                                                                                 \
  EXPERIMENT_OPTION("output", 'o', TEXTS, "FILE", outputs, "also draw a picture: .svg, .png or .html; may be repeated"),                   \
      EXPERIMENT_OPTION("csv", 0, TEXT, "FILE", csv, "also write every point that was measured; - is standard output, without the table"), \
      EXPERIMENT_OPTION("quick", 0, FLAG, NULL, quick, "a run of a second or two that shows the form and proves nothing"),                 \
      EXPERIMENT_OPTION("background", 0, CHOICE, "WHICH", background, "the picture's paper (auto: as its reader prefers; a PNG is light)", \
                        .choices = "auto|dark|light"),                                                                                     \
  {                                                                                                                                        \
    0                                                                                                                                      \
  }
#define EXPERIMENT_STEPS EXPERIMENT_OPTION("steps", 0, WHOLE, "N", steps, "steps of each training (default: enough)", .low = 1, .high = 1e6)
#define EXPERIMENT_TAKES .takes = TAKES_MACHINE | TAKES_JSON | TAKES_SEED
#define EXPERIMENT_DEFAULTS                                                                                                                \
  { .background = "auto" }
#define EXPERIMENT_COMMON                                                                                                                  \
  EXPERIMENT_TAKES, .values_size = sizeof(experiment_values), .defaults = &(const experiment_values)EXPERIMENT_DEFAULTS

#endif
