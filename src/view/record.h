/* record.h: what every picture shares: a checked record and its live cells, tokens made visible, the colour map, buffered output.
 *
 * A weight becomes a picture in one way everywhere: its level, the rounded square root on 0..255, indexes a colour map and is also the code that the page
 * stores. The square root spreads the small weights, where most of a softmax lies, without the arbitrary floor that a logarithm needs. */
#ifndef HD_RECORD_H
#define HD_RECORD_H

#include "../base/base.h"

#include "../../include/heed/view.h"

/* ---- the record ---------------------------------------------------------------------------------------------------------- */

/* A copy of the given record, whole whatever size the caller was compiled with. HEED_E_ARGUMENT for missing arrays, HEED_E_SHAPE for counts below one or beyond 64 bits. */
heed_status hd_record_open(heed_context *context, const heed_record *given, heed_record *out);
/* Whether the record holds this head; and, for pictures, whether its live weights are finite. */
heed_status hd_record_check_head(heed_context *context, const heed_record *record, int64_t layer, int64_t head);
heed_status hd_record_check_finite(heed_context *context, const heed_record *record, int64_t layer, int64_t head);

/* The keys [begin, end) that a query of a layer may see; equal where it sees none. */
typedef struct hd_live {
  int64_t begin, end;
} hd_live;
hd_live hd_record_live(const heed_record *record, int64_t layer, int64_t query);
/* Of those, which a pattern shows: [keys], or NULL where there is none, and all are shown. */
const uint8_t *hd_record_shown(const heed_record *record, int64_t layer, int64_t head, int64_t query);
static inline bool hd_shows(const uint8_t *shown, int64_t key) { return !shown || shown[key]; }
/* How many that is. */
int64_t hd_shown_count(const uint8_t *shown, hd_live live);
/* The weights of one row, [keys]. */
const float *hd_record_row(const heed_record *record, int64_t layer, int64_t head, int64_t query);

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

/* A token as people see it: valid UTF-8 without control characters. `columns` counts terminal columns as wcwidth does, summed over code points. */
typedef struct hd_label {
  const char *text;
  int bytes, columns;
} hd_label;

/* Labels of `count` tokens, kept in the arena. One leading space before a word is how words are spelt in most vocabularies, so it is left out; every other
 * space is ␠, a new line ⏎, a tab ⇥, other control characters their Unicode pictures, a byte that is not UTF-8 <E2>, a character that has no shape of its own
 * or would turn the line around (U+202E) <U+202E>. An empty token is ∅. */
heed_status hd_labels(heed_context *context, hd_arena *arena, const heed_text *tokens, int64_t count, hd_label **out);
/* As much of the label as fits in `columns`, cut between characters as people count them, with … in the last column where something is missing. The
 * text is written to buffer (bytes + 4 always suffice; more than HD_LABEL_BYTES is never written). */
enum { HD_LABEL_BYTES = 256 };
hd_label hd_label_cut(const hd_label *label, int columns, char buffer[HD_LABEL_BYTES]);
/* A text as a label without the rule for leading spaces: captions, file names. */
heed_status hd_label_of(heed_context *context, hd_arena *arena, heed_text text, hd_label *out);

/* ---- colour -------------------------------------------------------------------------------------------------------------- */

typedef struct hd_rgb {
  uint8_t r, g, b;
} hd_rgb;

enum { HD_LEVELS = 256 };
/* Level 0 is white and level 255 deep blue, or near-black and pale yellow on dark paper. */
void hd_color_map(bool dark, hd_rgb map[HD_LEVELS]);
/* round(255 √weight), the weight held in [0,1]. */
int hd_level(float weight);
/* The colour of the 256-colour terminal palette that stands best for c. */
int hd_color_256(hd_rgb c);
/* Distance in OKLab. */
double hd_color_distance(hd_rgb a, hd_rgb b);

/* ---- output -------------------------------------------------------------------------------------------------------------- */

/* Text on its way to a sink. The first failure sticks, so writers read straight and ask once, at hd_out_end. */
typedef struct hd_out {
  heed_context *context;
  const heed_sink *sink;
  heed_status status;
  int used;
  char buffer[8192];
} hd_out;

void hd_out_begin(hd_out *out, heed_context *context, const heed_sink *sink);
void hd_out_bytes(hd_out *out, const void *data, int64_t bytes);
void hd_out_text(hd_out *out, const char *text);
void hd_out_label(hd_out *out, const hd_label *label);
void hd_out_spaces(hd_out *out, int count);
__attribute__((format(printf, 2, 3))) void hd_out_print(hd_out *out, const char *format, ...);
/* The shortest of %.8g and %.9g that reads back to the same float, with a point whatever the locale; "null" (or what `other` says) where it is not finite. */
void hd_out_number(hd_out *out, float value, const char *other);
/* A text as a JSON string, quotes included; bytes that are not UTF-8 become <E2>, and < becomes \u003c so that no string can end a script element. */
void hd_out_json_string(hd_out *out, heed_text text);
/* Text with &, <, > and quotes escaped for XML and HTML. */
void hd_out_escaped(hd_out *out, const char *text, int bytes);
/* A number of a picture: two decimals at most and a point whatever the locale; the same as an attribute, name="12.5"; and #rrggbb. */
void hd_out_coordinate(hd_out *out, double value);
void hd_out_attribute(hd_out *out, const char *name, double value);
void hd_out_color(hd_out *out, hd_rgb c);
/* What printf made of a number, with a point for what the host's locale puts there, of one byte or more. */
void hd_plain_number(char *text);
/* Flushes; HEED_E_WRITE if the sink failed. */
heed_status hd_out_end(hd_out *out);

/* ---- captions ------------------------------------------------------------------------------------------------------------ */

/* "layer 13, head 4", or "layer 13 (NOTE), head 4", with the model's numbers, into buffer; returns buffer. A note of more bytes than HD_NOTE is left out. */
enum { HD_NOTE = 96, HD_HEAD_NAME = 64 + HD_NOTE };
const char *hd_head_name(const heed_record *record, int64_t layer, int64_t head, char buffer[HD_HEAD_NAME]);
/* What rows and columns are, under a picture; static. */
const char *hd_caption(const heed_record *record);
/* "30 layers × 9 heads (3 key/value) · 13 tokens". */
enum { HD_SHAPE_NAME = 160 };
const char *hd_model_shape(const heed_record *record, char buffer[HD_SHAPE_NAME]);

static inline heed_text hd_text(const char *text) { return (heed_text){text, strlen(text)}; }

#endif
