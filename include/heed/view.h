/* view.h: pictures of attention: terminal heat map, PNG, SVG, one self-contained HTML page, and the numbers as JSON and CSV; and charts of measurements.
 *
 * Pictures of attention are drawn from one record of what a model did. Numbers shown are the numbers recorded. Every call checks the record and its own arguments before it writes:
 * HEED_E_ARGUMENT (null, out of range, a size not set; in pictures also a weight that is not finite), HEED_E_SHAPE (nothing to draw, or too many tokens for a PNG),
 * HEED_E_OVERFLOW; then HEED_E_MEMORY and HEED_E_WRITE (the sink failed; what it got so far is no whole file). */
#ifndef HEED_VIEW_H
#define HEED_VIEW_H

#include "types.h"
#include "text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was captured. Everything is borrowed for the duration of a call. A cell is live when the query may see the key; a cell that is not live is drawn as absent. */
typedef struct heed_record {
  size_t size;
  heed_text model, family, file, file_hash, command; /* small print; may be empty */
  double seconds;
  int64_t model_layers, model_heads, model_kv_heads; /* of the whole model */
  int64_t layers, heads;                             /* captured here */
  const int64_t *layer_index, *head_index;           /* [layers], [heads]: their numbers in the model */
  int64_t queries, keys;
  const heed_text *query_tokens, *key_tokens; /* [queries], [keys]: the bytes of each token, perhaps part of a UTF-8 character */
  const float *weights;                       /* [layers, heads, queries, keys] */
  bool causal;                                /* key j is live for query i iff j ≤ i + keys − queries */
  const int64_t *window;                      /* [layers] keys seen back from the query, itself included; 0: all. NULL: all layers 0 */
  bool has_query;                             /* the page opens with this row chosen; otherwise with none */
  int64_t query;                              /* a row, in [0, queries) */
  bool
      cross; /* the keys are another sequence: what a target's tokens were written from in a source. A query then has no place among them. */
  const uint8_t *
      visible; /* [layers, heads, queries, keys]: 0 where a pattern hides a key that causal and window do not; such a cell is absent from pictures, not zero. NULL: nothing is hidden so */
  const heed_text
      *notes; /* [layers] what stands behind the number of a layer, such as the kind of its attention; may be empty. NULL: nothing */
} heed_record;

/* Where output goes. write returns false when it fails (the call then returns HEED_E_WRITE). */
typedef struct heed_sink {
  void *user;
  bool (*write)(void *user, const void *data, size_t bytes);
} heed_sink;

/* What one head does, over its rows: shares in [0,1], spread in bits (mean entropy of a row). Rows with a single live key count for the spread only. */
typedef struct heed_head_stats {
  double first, previous, self; /* mean weight on the first key; unless `cross`, on the key before the query's own, on its own */
  double spread;
  double coverage,
      monotonicity; /* where `cross`: keys that are the strongest of some row; steps from row to row whose strongest key does not lie before the last one's */
} heed_head_stats;
/* layer and head count within the record. */
HEED_API heed_status heed_record_stats(const heed_record *record, int64_t layer, int64_t head, heed_head_stats *out);
/* The head (within the record) that looks least at itself and at the first token; where `cross`, the one with the largest coverage · monotonicity. */
HEED_API heed_status heed_record_pick(const heed_record *record, int64_t *layer, int64_t *head);

typedef enum heed_color { HEED_COLOR_NONE, HEED_COLOR_256, HEED_COLOR_TRUE } heed_color;
typedef struct heed_terminal_options {
  size_t size;
  int width; /* columns; 0: 80 */
  heed_color color;
  bool dark;           /* the terminal's background */
  bool no_overview;    /* leave out the layer × head grid */
  int64_t layer, head; /* within the record: the head to draw */
  int64_t query;       /* the row to spell out; −1: none */
  bool no_map;         /* leave out the heat map */
} heed_terminal_options;
HEED_API heed_status heed_record_terminal(heed_context *context, const heed_record *record, const heed_terminal_options *options,
                                          const heed_sink *sink);

/* One self-contained page, opening at the given head (within the record). */
HEED_API heed_status heed_record_html(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink);
/* One head as a picture with token labels, scale bar and caption. */
HEED_API heed_status heed_record_png(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink);
HEED_API heed_status heed_record_svg(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink);
/* One head as a table with a header row and column of tokens. */
HEED_API heed_status heed_record_csv(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink);
/* Everything captured: tokens, layers, heads, shape and the numbers. */
HEED_API heed_status heed_record_json(heed_context *context, const heed_record *record, const heed_sink *sink);

/* ---- charts -------------------------------------------------------------------------------------------------------------- */

/* A line through points. Those that are not finite, or not above 0 on a logarithmic axis, are left out and break the line. */
typedef struct heed_series {
  heed_text name; /* in the legend */
  int64_t count;
  const double *x, *y; /* [count] */
  bool expected;       /* thin and dashed: what theory says, beside what was measured */
} heed_series;

typedef struct heed_axis {
  heed_text name;
  int base; /* of a logarithmic axis: 2 or 10; 0: linear */
} heed_axis;

/* Series over a pair of axes; the i-th series has the i-th colour, the same in every panel. */
typedef struct heed_panel {
  heed_text title;
  heed_axis x, y;
  int64_t series_count;
  const heed_series *series;
} heed_panel;

typedef enum heed_paper { HEED_PAPER_READER, HEED_PAPER_LIGHT, HEED_PAPER_DARK } heed_paper;

/* Panels side by side. Everything is borrowed for the duration of a call. */
typedef struct heed_chart {
  size_t size;
  heed_text title, caption; /* above and below; the caption is wrapped */
  heed_text command;        /* small print of the page */
  int64_t panel_count;      /* from 1 to 16 */
  const heed_panel *panels;
  heed_paper paper; /* READER: SVG and page follow what the reader prefers, a PNG is light */
} heed_chart;

/* The same chart as vectors, as pixels (two for a unit of the SVG), and as a page that also holds the numbers as tables. HEED_E_SHAPE (no panels, too many), HEED_E_ARGUMENT (null arrays, a base
 * that is none), HEED_E_MEMORY, HEED_E_WRITE. */
HEED_API heed_status heed_chart_svg(heed_context *context, const heed_chart *chart, const heed_sink *sink);
HEED_API heed_status heed_chart_png(heed_context *context, const heed_chart *chart, const heed_sink *sink);
HEED_API heed_status heed_chart_html(heed_context *context, const heed_chart *chart, const heed_sink *sink);

#ifdef __cplusplus
}
#endif
#endif
