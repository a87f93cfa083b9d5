/* view: statistics against a naive recomputation, and every output read back: JSON, CSV, PNG pixels, SVG, the page's cells, terminal widths. */
#include "test.h"

#include "support/sample.h"

#include "../../src/view/font.h"
#include "../../src/view/record.h"

#include <jansson.h>
#include <png.h>
#include <stdio.h>
#include <utf8proc.h>
#include <zlib.h>

typedef heed_status (*head_output)(heed_context *, const heed_record *, int64_t, int64_t, const heed_sink *);

static heed_status json_output(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink) {
  (void)layer;
  (void)head;
  return heed_record_json(context, record, sink);
}

static heed_status terminal_output(heed_context *context, const heed_record *record, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_terminal_options options = {.size = sizeof options, .color = HEED_COLOR_256, .layer = layer, .head = head, .query = 0};
  return heed_record_terminal(context, record, &options, sink);
}

static const struct {
  const char *name;
  head_output write;
} outputs[] = {{"html", heed_record_html}, {"png", heed_record_png}, {"svg", heed_record_svg},
               {"csv", heed_record_csv},   {"json", json_output},    {"terminal", terminal_output}};

static const sample_spec usual = {.layers = 3, .heads = 4, .queries = 13, .keys = 13, .causal = true, .spread = 1.2};
static const sample_spec awkward = {
    .layers = 2, .heads = 3, .queries = 40, .keys = 40, .causal = true, .window = 7, .spread = 1.2, .awkward = true};
static const sample_spec across = {.layers = 1, .heads = 2, .queries = 5, .keys = 23, .spread = 1.2, .awkward = true};
static const sample_spec fewer_keys = {.layers = 1, .heads = 1, .queries = 9, .keys = 4, .causal = true, .spread = 1};
static const sample_spec patterned = {.layers = 2, .heads = 3, .queries = 20, .keys = 20, .causal = true, .pattern = true, .spread = 1.2};
static const sample_spec one = {.layers = 1, .heads = 1, .queries = 1, .keys = 1, .causal = true};

/* Written by one output; free(bytes.data). */
static sample_bytes written(heed_context *context, head_output write, const heed_record *record, int64_t layer, int64_t head) {
  sample_bytes bytes = {.fail_after = -1};
  ok(context, write(context, record, layer, head, &(heed_sink){&bytes, sample_write}));
  assert_non_null(bytes.data);
  return bytes;
}

/* Causal and within the window, whatever a pattern hides. */
static bool stored(const heed_record *r, int64_t layer, int64_t i, int64_t j) {
  int64_t own = i + r->keys - r->queries, window = r->window ? r->window[layer] : 0;
  return (!r->causal || j <= own) && (!window || j > own - window);
}

static bool live(const heed_record *r, int64_t layer, int64_t i, int64_t j) {
  return stored(r, layer, i, j) && (!r->visible || r->visible[(layer * r->heads * r->queries + i) * r->keys + j]);
}

static float weight(const heed_record *r, int64_t layer, int64_t head, int64_t i, int64_t j) {
  return r->weights[((layer * r->heads + head) * r->queries + i) * r->keys + j];
}

/* ---- statistics ---------------------------------------------------------------------------------------------------------- */

static void stats_are_the_naive_ones(void **state) {
  (void)state;
  const sample_spec specs[] = {usual, awkward, across, fewer_keys, patterned, one};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    int64_t best_layer, best_head;
    double least = INFINITY;
    assert_int_equal(heed_record_pick(&r, &best_layer, &best_head), HEED_OK);
    for (int64_t l = 0; l < r.layers; l++)
      for (int64_t h = 0; h < r.heads; h++) {
        double share[3] = {0}, spread = 0, rows = 0, choices = 0;
        for (int64_t i = 0; i < r.queries; i++) {
          int64_t seen = 0, own = i + r.keys - r.queries;
          double entropy = 0;
          for (int64_t j = 0; j < r.keys; j++) {
            if (!live(&r, l, i, j)) continue;
            double w = (double)weight(&r, l, h, i, j);
            seen++;
            if (w > 0) entropy -= w * log2(w);
          }
          if (!seen) continue;
          rows++, spread += entropy;
          if (seen == 1) continue;
          choices++;
          int64_t key[3] = {0, own - 1, own};
          for (int k = 0; k < 3; k++)
            if (key[k] >= 0 && key[k] < r.keys && live(&r, l, i, key[k])) share[k] += (double)weight(&r, l, h, i, key[k]);
        }
        heed_head_stats stats;
        assert_int_equal(heed_record_stats(&r, l, h, &stats), HEED_OK);
        double got[3] = {stats.first, stats.previous, stats.self};
        for (int k = 0; k < 3; k++) assert_true(fabs(got[k] - (choices > 0 ? share[k] / choices : 0)) < 1e-12);
        assert_true(fabs(stats.spread - (rows > 0 ? spread / rows : 0)) < 1e-12);
        if (stats.first + stats.self < least) least = stats.first + stats.self;
      }
    heed_head_stats picked;
    assert_int_equal(heed_record_stats(&r, best_layer, best_head, &picked), HEED_OK);
    assert_true(picked.first + picked.self == least);
    sample_free(&r);
  }
}

/* Of cross-attention: keys that are the strongest of some row, steps that do not go back, and no place of a query among the keys. */
static void cross_attention_goes_through_a_source(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  for (uint64_t seed = 0; seed < 4; seed++) {
    const sample_spec spec = {.layers = 2, .heads = 3, .queries = 9, .keys = 6 + (int64_t)seed, .spread = 2, .seed = seed};
    heed_record r = sample_new(&spec);
    r.cross = true;
    double best = -1;
    int64_t best_layer, best_head;
    for (int64_t l = 0; l < r.layers; l++)
      for (int64_t h = 0; h < r.heads; h++) {
        int seen[16] = {0}, covered = 0, forward = 0;
        int64_t last = 0;
        for (int64_t i = 0; i < r.queries; i++) {
          int64_t at = 0;
          for (int64_t j = 0; j < r.keys; j++)
            if (weight(&r, l, h, i, j) > weight(&r, l, h, i, at)) at = j;
          covered += seen[at]++ == 0;
          forward += i > 0 && at >= last;
          last = at;
        }
        heed_head_stats stats;
        assert_int_equal(heed_record_stats(&r, l, h, &stats), HEED_OK);
        assert_true(stats.coverage == (double)covered / (double)r.keys);
        assert_true(stats.monotonicity == (double)forward / (double)(r.queries - 1));
        assert_true(stats.previous == 0 && stats.self == 0 && stats.first > 0);
        best = HD_MAX(best, stats.coverage * stats.monotonicity);
      }
    heed_head_stats picked;
    assert_int_equal(heed_record_pick(&r, &best_layer, &best_head), HEED_OK);
    assert_int_equal(heed_record_stats(&r, best_layer, best_head, &picked), HEED_OK);
    assert_true(picked.coverage * picked.monotonicity == best);
    static const struct {
      head_output write;
      const char *says;
    } said[] = {{json_output, "\"cross\": true"},
                {heed_record_html, "\"cross\":true"},
                {heed_record_svg, "Rows are the target, columns the source."},
                {terminal_output, "rows were written from columns"},
                {terminal_output, "A goes through the source"}};
    for (int k = 0; k < HD_COUNT(said); k++) {
      sample_bytes bytes = written(context, said[k].write, &r, 0, 0);
      bool found = false;
      const size_t length = strlen(said[k].says);
      for (int64_t at = 0; at + (int64_t)length <= (int64_t)bytes.used && !found; at++)
        found = !memcmp((char *)bytes.data + at, said[k].says, length);
      if (!found) fail_msg("\"%s\" is not said", said[k].says);
      free(bytes.data);
    }
    sample_free(&r);
  }
  heed_context_free(context);
}

static void illegal_records_are_refused(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_record r = sample_new(&usual), wrong;
  sample_bytes bytes = {.fail_after = -1};
  heed_sink sink = {&bytes, sample_write};
  float *weights = (float *)(uintptr_t)r.weights, kept = weights[13];
  for (int k = 0; k < HD_COUNT(outputs); k++) {
    wrong = r, wrong.keys = 0;
    assert_int_equal(outputs[k].write(context, &wrong, 0, 0, &sink), HEED_E_SHAPE);
    wrong = r, wrong.weights = NULL;
    assert_int_equal(outputs[k].write(context, &wrong, 0, 0, &sink), HEED_E_ARGUMENT);
    wrong = r, wrong.size = 0;
    assert_int_equal(outputs[k].write(context, &wrong, 0, 0, &sink), HEED_E_ARGUMENT);
    wrong = r, wrong.layers = INT64_MAX / 4;
    assert_int_equal(outputs[k].write(context, &wrong, 0, 0, &sink), HEED_E_OVERFLOW);
    assert_int_equal(outputs[k].write(context, NULL, 0, 0, &sink), HEED_E_ARGUMENT);
    assert_int_equal(outputs[k].write(context, &r, 0, 0, NULL), HEED_E_ARGUMENT);
    if (outputs[k].write == json_output) continue;
    assert_int_equal(outputs[k].write(context, &r, 3, 0, &sink), HEED_E_ARGUMENT);
    assert_int_equal(outputs[k].write(context, &r, 0, -1, &sink), HEED_E_ARGUMENT);
    if (outputs[k].write == heed_record_csv) continue;
    weights[13] = NAN; // row 1, column 0: a picture cannot show it
    assert_int_equal(outputs[k].write(context, &r, 0, 0, &sink), HEED_E_ARGUMENT);
    assert_non_null(strstr(heed_error(context), "row 1, column 0"));
    weights[13] = kept;
  }
  assert_int_equal(bytes.used, 0); // refused before anything is written
  sample_free(&r);
  heed_context_free(context);
}

/* ---- tokens and colours -------------------------------------------------------------------------------------------------- */

static void tokens_become_visible(void **state) {
  (void)state;
  static const struct {
    const char *token, *label;
  } cases[] = {
      {" animal", "animal"},
      {" ", "␠"},
      {"  two", "␠␠two"},
      {"a b", "a␠b"},
      {"\n", "⏎"},
      {"\n   ", "⏎␠␠␠"},
      {"\t", "⇥"},
      {"\r", "␍"},
      {"\xE2", "<E2>"},
      {"\xF0\x9F", "<F0><9F>"},
      {"\x98\x80", "<98><80>"},
      {"\x1B[31m", "␛[31m"},
      {"\x7F", "␡"},
      {"", "∅"},
      {"\xE2\x80\xAE", "<U+202E>"},
      {"\xCC\x81", "◌\xCC\x81"},
      {"e\xCC\x81", "e\xCC\x81"},
      {"\xC2\xA0", "<U+00A0>"},
      {"\xC2\x85", "<U+0085>"},
      {" \n", "␠⏎"},
      {"ok\xFF", "ok<FF>"},
      {"\xED\xA0\x80", "<ED><A0><80>"},
      {"\xE2\x80\x8D", "<U+200D>"},
      {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7", "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7"},
  };
  heed_context *context = test_context(NULL);
  hd_arena arena;
  hd_arena_init(&arena, context);
  for (int k = 0; k < HD_COUNT(cases); k++) {
    heed_text token = sample_text(cases[k].token);
    hd_label *label;
    ok(context, hd_labels(context, &arena, &token, 1, &label));
    assert_int_equal(label->bytes, strlen(cases[k].label));
    assert_memory_equal(label->text, cases[k].label, strlen(cases[k].label));
  }
  hd_arena_free(&arena);
  heed_context_free(context);
}

static int columns_of(const char *text, int bytes) {
  int columns = 0;
  for (int at = 0; at < bytes;) {
    utf8proc_int32_t code;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + at, bytes - at, &code);
    assert_true(length > 0);
    columns += utf8proc_charwidth(code);
    at += (int)length;
  }
  return columns;
}

static void labels_are_cut_to_width(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  hd_arena arena;
  hd_arena_init(&arena, context);
  for (int64_t k = 0; k < HD_COUNT(sample_awkward); k++) {
    heed_text token = sample_text(sample_awkward[k]);
    hd_label *label;
    char buffer[HD_LABEL_BYTES];
    ok(context, hd_labels(context, &arena, &token, 1, &label));
    assert_int_equal(label->columns, columns_of(label->text, label->bytes));
    for (int columns = 0; columns < 20; columns++) {
      hd_label cut = hd_label_cut(label, columns, buffer);
      assert_true(cut.columns <= columns || columns == 0);
      assert_int_equal(cut.columns, columns_of(cut.text, cut.bytes));
      if (label->columns <= columns) assert_int_equal(cut.bytes, label->bytes);
      else if (columns > 0) assert_memory_equal(cut.text + cut.bytes - 3, "…", 3);
    }
  }
  heed_text accents = sample_text("e\xCC\x81"
                                  "e\xCC\x81"
                                  "e\xCC\x81");
  hd_label *label;
  char buffer[HD_LABEL_BYTES];
  ok(context, hd_labels(context, &arena, &accents, 1, &label));
  hd_label cut = hd_label_cut(label, 2, buffer);
  assert_memory_equal(cut.text, "e\xCC\x81…", 6); // never between a letter and its accent
  hd_arena_free(&arena);
  heed_context_free(context);
}

static void the_map_is_uniform(void **state) {
  (void)state;
  for (int dark = 0; dark < 2; dark++) {
    hd_rgb map[HD_LEVELS];
    hd_color_map(dark, map);
    double whole = 0;
    enum { STEP = 15 }; // rounding to bytes disturbs single steps
    for (int k = 0; k + STEP < HD_LEVELS; k += STEP) whole += hd_color_distance(map[k], map[k + STEP]);
    double mean = whole / (255 / STEP);
    for (int k = 0; k + STEP < HD_LEVELS; k += STEP) assert_true(fabs(hd_color_distance(map[k], map[k + STEP]) / mean - 1) < 0.1);
    double luma = 0;
    for (int k = 0; k < HD_LEVELS; k++) {
      double here = 0.2126 * map[k].r + 0.7152 * map[k].g + 0.0722 * map[k].b;
      if (k) assert_true(dark ? here >= luma : here <= luma);
      luma = here;
    }
  }
  hd_rgb map[HD_LEVELS];
  hd_color_map(false, map);
  assert_true(map[0].r == 255 && map[0].g == 255 && map[0].b == 255);
  assert_true(map[255].b > 2 * map[255].r && map[255].r < 32);
  assert_int_equal(hd_color_256((hd_rgb){255, 255, 255}), 231);
  assert_int_equal(hd_color_256((hd_rgb){8, 8, 8}), 232);
  assert_int_equal(hd_level(0.25f), 128);
  assert_int_equal(hd_level(NAN), 0);
  assert_int_equal(hd_level(1.0001f), 255);
}

/* ---- numbers read back --------------------------------------------------------------------------------------------------- */

static void json_reads_back(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const sample_spec specs[] = {usual, awkward, across, patterned, one};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    sample_bytes text = written(context, json_output, &r, 0, 0);
    json_error_t error;
    json_t *root = json_loadb(text.data, text.used, 0, &error);
    if (!root) fail_msg("%s at byte %d", error.text, error.position);
    json_t *weights = json_object_get(root, "weights");
    for (int64_t l = 0; l < r.layers; l++)
      for (int64_t h = 0; h < r.heads; h++)
        for (int64_t i = 0; i < r.queries; i++) {
          json_t *row = json_array_get(json_array_get(json_array_get(weights, (size_t)l), (size_t)h), (size_t)i);
          assert_int_equal(json_array_size(row), r.keys);
          for (int64_t j = 0; j < r.keys; j++) {
            const json_t *cell = json_array_get(row, (size_t)j);
            if (stored(&r, l, i, j) && !live(&r, l, i, j)) assert_true(json_is_null(cell));
            else assert_true((float)json_number_value(cell) == weight(&r, l, h, i, j));
          }
        }
    assert_int_equal(json_array_size(json_object_get(root, "key_tokens")), r.keys);
    if (specs[s].awkward) {
      assert_string_equal(json_string_value(json_array_get(json_object_get(root, "key_tokens_bytes"), 5)), "F09F");
      assert_string_equal(json_string_value(json_array_get(json_object_get(root, "key_tokens"), 5)), "<F0><9F>");
      assert_string_equal(json_string_value(json_array_get(json_object_get(root, "key_tokens"), 7)), "</script>");
    }
    json_decref(root);
    free(text.data);
    sample_free(&r);
  }
  heed_context_free(context);
}

static void json_has_no_infinities(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_record r = sample_new(&usual);
  float *weights = (float *)(uintptr_t)r.weights;
  weights[0] = NAN, weights[13] = INFINITY;
  sample_bytes text = written(context, json_output, &r, 0, 0);
  json_t *root = json_loadb(text.data, text.used, 0, NULL);
  assert_non_null(root);
  json_t *head = json_array_get(json_array_get(json_object_get(root, "weights"), 0), 0);
  assert_true(json_is_null(json_array_get(json_array_get(head, 0), 0)) && json_is_null(json_array_get(json_array_get(head, 1), 0)));
  json_decref(root);
  free(text.data);
  sample_free(&r);
  heed_context_free(context);
}

/* One field of RFC 4180 at *p, without its quotes; *p then stands at the separator. */
static void csv_field(const char **p, char *out, size_t room) {
  size_t used = 0;
  bool quoted = **p == '"';
  if (quoted) (*p)++;
  for (; **p; (*p)++) {
    if (quoted && **p == '"') {
      if ((*p)[1] != '"') break;
      (*p)++;
    } else if (!quoted && (**p == ',' || **p == '\r')) break;
    assert_true(used + 1 < room);
    out[used++] = **p;
  }
  if (quoted) (*p)++;
  out[used] = 0;
}

static void csv_reads_back(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const sample_spec specs[] = {usual, awkward, across, patterned};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    int64_t layer = r.layers - 1, head = r.heads - 1;
    sample_bytes text = written(context, heed_record_csv, &r, layer, head);
    const char *p = text.data;
    char field[256];
    for (int64_t i = -1; i < r.queries; i++) {
      csv_field(&p, field, sizeof field);
      for (int64_t j = 0; j < r.keys; j++) {
        assert_int_equal(*p++, ',');
        csv_field(&p, field, sizeof field);
        if (i < 0) continue;
        if (!live(&r, layer, i, j)) assert_string_equal(field, "");
        else assert_true(strtof(field, NULL) == weight(&r, layer, head, i, j));
      }
      assert_memory_equal(p, "\r\n", 2);
      p += 2;
    }
    assert_int_equal(p - text.data, text.used);
    free(text.data);
    sample_free(&r);
  }
  heed_context_free(context);
}

/* ---- the page ------------------------------------------------------------------------------------------------------------ */

static int base64_value(char c) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = strchr(alphabet, c);
  return at && c ? (int)(at - alphabet) : -1;
}

/* The inflated cells of a page; free the result. */
static uint8_t *page_cells(const char *page, size_t *count) {
  static const char mark[] = "id=\"cell-data\">";
  const char *from = strstr(page, mark);
  assert_non_null(from);
  from += sizeof mark - 1;
  size_t length = strcspn(from, "<"), packed_count = 0, room = 64 << 20;
  uint8_t *packed = malloc(length + 3), *out = malloc(room);
  uint32_t group = 0;
  for (size_t k = 0; k < length && base64_value(from[k]) >= 0; k++) {
    group = group << 6 | (uint32_t)base64_value(from[k]);
    if (k % 4) packed[packed_count++] = (uint8_t)(group >> (6 - 2 * (k % 4)));
  }
  uLongf filled = room;
  assert_int_equal(uncompress(out, &filled, packed, packed_count), Z_OK);
  free(packed);
  *count = filled;
  return out;
}

static void page_holds_the_cells(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const sample_spec specs[] = {usual, awkward, across, fewer_keys, patterned, one};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    sample_bytes page = written(context, heed_record_html, &r, 0, 0);
    size_t count, at = 0, refined = 0;
    uint8_t *cells = page_cells(page.data, &count);
    for (int64_t l = 0; l < r.layers; l++)
      for (int64_t h = 0; h < r.heads; h++)
        for (int64_t i = 0; i < r.queries; i++) {
          int64_t seen = 0;
          for (int64_t j = 0; j < r.keys; j++) {
            if (!stored(&r, l, i, j)) continue;
            assert_int_equal(cells[at++], hd_level(weight(&r, l, h, i, j)));
            seen++;
          }
          refined += (size_t)HD_MIN(seen, 4);
        }
    assert_int_equal(count, at + refined + (r.visible ? at : 0));
    const uint8_t *shown = cells + at + refined;
    for (int64_t l = 0; r.visible && l < r.layers; l++)
      for (int64_t h = 0; h < r.heads; h++)
        for (int64_t i = 0; i < r.queries; i++)
          for (int64_t j = 0; j < r.keys; j++)
            if (stored(&r, l, i, j)) assert_int_equal(*shown++, live(&r, l, i, j));
    assert_null(strstr(page.data, "{{"));
    free(cells);
    free(page.data);
    sample_free(&r);
  }
  heed_context_free(context);
}

/* No token can end the element that holds it: outside the five places of the template there is no other closing tag. */
static void tokens_cannot_leave_their_script(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_record r = sample_new(&awkward);
  r.model = sample_text("</title><script>alert(1)</script>");
  sample_bytes page = written(context, heed_record_html, &r, 0, 0);
  int closings = 0;
  for (const char *p = page.data; (p = strstr(p, "</script")); p++) closings++;
  assert_int_equal(closings, 3);
  assert_null(strstr(page.data, "<script>alert"));
  free(page.data);
  sample_free(&r);
  heed_context_free(context);
}

static size_t page_bytes(heed_context *context, int64_t layers, int64_t heads, int64_t tokens, double spread) {
  sample_spec spec = {.layers = layers, .heads = heads, .queries = tokens, .keys = tokens, .causal = true, .spread = spread, .plain = true};
  heed_record r = sample_new(&spec);
  sample_bytes page = written(context, heed_record_html, &r, 0, 0);
  free(page.data);
  sample_free(&r);
  return page.used;
}

/* Softmax of normal scores: the worst case, since no head has structure. A deviation of 1.5 gives the largest page. */
static void pages_are_small(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  size_t large = page_bytes(context, 30, 9, 128, 1.5), small = page_bytes(context, 5, 8, 64, 1.5);
  printf("270 heads at 128 tokens: %zu bytes; 40 heads at 64 tokens: %zu bytes\n", large, small);
  assert_true(large < 2500000);
  assert_true(small < 300000);
  heed_context_free(context);
}

/* ---- pictures ------------------------------------------------------------------------------------------------------------ */

static void font_has_its_letters(void **state) {
  (void)state;
  for (int32_t code = 0x20; code < 0x100; code++) {
    if (code >= 0x7F && code <= 0xA0) continue;
    int ink = 0;
    assert_int_equal(hd_font_advance(code), HD_FONT_ADVANCE);
    for (int y = 0; y < HD_FONT_HEIGHT; y++) {
      for (int x = 0; x < HD_FONT_ADVANCE; x++) ink += hd_font_ink(code, x, y);
      assert_false(hd_font_ink(code, HD_FONT_ADVANCE - 1, y)); // air to the next letter
    }
    assert_true(code == ' ' ? ink == 0 : ink > 1);
  }
  assert_true(hd_font_advance(0x4F60) > HD_FONT_ADVANCE && hd_font_ink(0x4F60, 0, 5)); // a box
}

/* The decoded picture as RGB rows; free the result. */
static uint8_t *decode_png(const sample_bytes *file, int *width, int *height) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  assert_true(png_image_begin_read_from_memory(&image, file->data, file->used));
  image.format = PNG_FORMAT_RGB;
  uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image));
  assert_true(png_image_finish_read(&image, NULL, pixels, 0, NULL));
  *width = (int)image.width;
  *height = (int)image.height;
  return pixels;
}

/* The upper left corner of the first square of side × side pixels of one colour. */
static bool find_square(const uint8_t *pixels, int width, int height, hd_rgb color, int side, int *x, int *y) {
  for (*y = 0; *y + side <= height; ++*y)
    for (*x = 0; *x + side <= width; ++*x) {
      bool same = true;
      for (int v = 0; v < side && same; v++)
        for (int u = 0; u < side && same; u++) same = !memcmp(pixels + 3 * ((*y + v) * width + *x + u), &color, 3);
      if (same) return true;
    }
  return false;
}

static void png_cells_have_their_colours(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  sample_spec spec = {.layers = 1, .heads = 1, .queries = 2, .keys = 2, .causal = true};
  heed_record r = sample_new(&spec);
  float *weights = (float *)(uintptr_t)r.weights;
  weights[0] = 1, weights[1] = 0, weights[2] = 0.3f, weights[3] = 0.7f;
  sample_bytes file = written(context, heed_record_png, &r, 0, 0);
  int width, height, x[3], y[3];
  uint8_t *pixels = decode_png(&file, &width, &height);
  hd_rgb map[HD_LEVELS];
  hd_color_map(false, map);
  const float cell[3] = {1, 0.3f, 0.7f};
  for (int k = 0; k < 3; k++) assert_true(find_square(pixels, width, height, map[hd_level(cell[k])], 40, &x[k], &y[k]));
  assert_true(x[0] == x[1] && y[1] == y[0] + 40 && x[2] == x[1] + 40 && y[2] == y[1]);
  // The masked cell is paper.
  for (int v = 2; v < 38; v++)
    for (int u = 2; u < 38; u++) assert_memory_equal(pixels + 3 * ((y[0] + v) * width + x[2] + u), "\xFF\xFF\xFF", 3);
  free(pixels);
  free(file.data);
  sample_free(&r);
  heed_context_free(context);
}

static void pictures_of_every_shape(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  const sample_spec specs[] = {usual, awkward, across, fewer_keys, patterned, one};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    sample_bytes file = written(context, heed_record_png, &r, 0, 0);
    int width, height;
    free(decode_png(&file, &width, &height));
    assert_true(width < 1600 && height < 1600);
    free(file.data);
    file = written(context, heed_record_svg, &r, 0, 0);
    assert_memory_equal(file.data, "<svg ", 5);
    assert_memory_equal(file.data + file.used - 7, "</svg>\n", 7);
    // Every ampersand begins an entity, and no byte is a control character: what an XML reader stumbles over.
    for (size_t k = 0; k < file.used; k++) {
      assert_true((unsigned char)file.data[k] >= 0x20 || file.data[k] == '\n');
      if (file.data[k] == '&') assert_true(strcspn(file.data + k, ";") <= 5);
    }
    free(file.data);
    sample_free(&r);
  }
  sample_spec huge = {.layers = 1, .heads = 1, .queries = 1, .keys = 9000};
  heed_record r = sample_new(&huge);
  sample_bytes bytes = {.fail_after = -1};
  assert_int_equal(heed_record_png(context, &r, 0, 0, &(heed_sink){&bytes, sample_write}), HEED_E_SHAPE);
  sample_free(&r);
  heed_context_free(context);
}

/* ---- the terminal -------------------------------------------------------------------------------------------------------- */

static sample_bytes terminal(heed_context *context, const heed_record *record, int width, heed_color color) {
  sample_bytes bytes = {.fail_after = -1};
  heed_terminal_options options = {.size = sizeof options, .width = width, .color = color, .query = record->queries - 1};
  ok(context, heed_record_terminal(context, record, &options, &(heed_sink){&bytes, sample_write}));
  return bytes;
}

static void terminal_lines_fit(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  sample_spec wide = {.layers = 2, .heads = 120, .queries = 150, .keys = 150, .causal = true, .spread = 1, .awkward = true};
  const sample_spec specs[] = {usual, awkward, across, fewer_keys, one, wide};
  for (int s = 0; s < HD_COUNT(specs); s++) {
    heed_record r = sample_new(&specs[s]);
    for (int width = 20; width <= 140; width += 13)
      for (heed_color color = HEED_COLOR_NONE; color <= HEED_COLOR_TRUE; color++) {
        sample_bytes text = terminal(context, &r, width, color);
        int columns = 0;
        for (const char *p = text.data; *p;) {
          utf8proc_int32_t code;
          if (*p == '\x1B') {
            assert_int_not_equal(color, HEED_COLOR_NONE);
            p += strcspn(p, "m") + 1;
            continue;
          }
          utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)p, -1, &code);
          assert_true(bytes > 0);
          p += bytes;
          if (code != '\n') assert_true(code >= 0x20);
          columns = code == '\n' ? 0 : columns + utf8proc_charwidth(code);
          if (columns > width) fail_msg("record %d: a line of more than %d columns: %.*s", s, width, 200, p - HD_MIN(200, p - text.data));
        }
        free(text.data);
      }
    sample_free(&r);
  }
  heed_context_free(context);
}

static void terminal_says_what_it_shows(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  sample_spec spec = {.layers = 1, .heads = 3, .queries = 3, .keys = 3, .causal = true};
  heed_record r = sample_new(&spec);
  // Head 0 looks at the first token, head 1 at the previous one, head 2 at itself.
  const float weights[27] = {1, 0, 0, .9f, .1f, 0, .8f, .05f, .15f, 1, 0, 0, .9f, .1f, 0, .1f, .9f, 0, 1, 0, 0, .1f, .9f, 0, .2f, .2f, .6f};
  memcpy((float *)(uintptr_t)r.weights, weights, sizeof weights);
  sample_bytes text = terminal(context, &r, 80, HEED_COLOR_NONE);
  assert_non_null(strstr(text.data, "Sample-5M · llama · 1 layer × 3 heads (1 key/value) · 3 tokens\n"));
  assert_non_null(strstr(text.data, "        0 SPI\n"));
  assert_non_null(strstr(text.data, "didn →  The .80  didn .15  animal .05\n"));
  assert_non_null(strstr(text.data, "\n  didn 8"));
  free(text.data);
  sample_spec many = {.layers = 1, .heads = 1, .queries = 200, .keys = 200, .causal = true, .spread = 1};
  heed_record long_record = sample_new(&many);
  text = terminal(context, &long_record, 80, HEED_COLOR_NONE);
  assert_non_null(strstr(text.data, "binned: each cell is the largest weight of 3 × 3 tokens"));
  free(text.data);
  sample_free(&long_record);
  sample_free(&r);
  heed_context_free(context);
}

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

static void a_failing_sink_is_a_write_error(void **state) {
  (void)state;
  heed_context *context = test_context(NULL);
  heed_record r = sample_new(&awkward);
  for (int k = 0; k < HD_COUNT(outputs); k++) {
    sample_bytes whole = written(context, outputs[k].write, &r, 0, 0);
    for (int part = 0; part < 4; part++) {
      sample_bytes bytes = {.fail_after = (long)whole.used * part / 4};
      assert_int_equal(outputs[k].write(context, &r, 0, 0, &(heed_sink){&bytes, sample_write}), HEED_E_WRITE);
      free(bytes.data);
    }
    free(whole.data);
  }
  sample_free(&r);
  heed_context_free(context);
}

/* Fails the n-th request and counts what is not given back. */
typedef struct meter {
  int64_t until, held;
} meter;

static void *metered_allocate(void *user, size_t bytes, size_t alignment) {
  meter *m = user;
  if (m->until-- == 0) return NULL;
  m->held += (int64_t)bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void metered_release(void *user, void *memory, size_t bytes) {
  ((meter *)user)->held -= (int64_t)bytes;
  free(memory);
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  heed_record r = sample_new(&awkward);
  for (int k = 0; k < HD_COUNT(outputs); k++) {
    heed_status status = HEED_E_MEMORY;
    int64_t n = 0;
    for (; status == HEED_E_MEMORY; n++) {
      assert_true(n < 1000);
      meter m = {.until = -1};
      heed_context *context =
          test_context(&(heed_options){.size = sizeof(heed_options), .allocator = {&m, metered_allocate, metered_release}, .threads = 1});
      int64_t before = m.held;
      sample_bytes bytes = {.fail_after = -1};
      m.until = n;
      status = outputs[k].write(context, &r, 0, 0, &(heed_sink){&bytes, sample_write});
      assert_true(status == HEED_OK || status == HEED_E_MEMORY);
      assert_int_equal(m.held, before);
      heed_context_free(context);
      free(bytes.data);
    }
    // JSON needs no memory at all.
    assert_true(n > 1 || outputs[k].write == json_output);
  }
  sample_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stats_are_the_naive_ones),
      cmocka_unit_test(cross_attention_goes_through_a_source),
      cmocka_unit_test(illegal_records_are_refused),
      cmocka_unit_test(tokens_become_visible),
      cmocka_unit_test(labels_are_cut_to_width),
      cmocka_unit_test(the_map_is_uniform),
      cmocka_unit_test(json_reads_back),
      cmocka_unit_test(json_has_no_infinities),
      cmocka_unit_test(csv_reads_back),
      cmocka_unit_test(page_holds_the_cells),
      cmocka_unit_test(tokens_cannot_leave_their_script),
      cmocka_unit_test(pages_are_small),
      cmocka_unit_test(font_has_its_letters),
      cmocka_unit_test(png_cells_have_their_colours),
      cmocka_unit_test(pictures_of_every_shape),
      cmocka_unit_test(terminal_lines_fit),
      cmocka_unit_test(terminal_says_what_it_shows),
      cmocka_unit_test(a_failing_sink_is_a_write_error),
      cmocka_unit_test(memory_may_run_out_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
