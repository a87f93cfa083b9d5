/* html.c: one self-contained page: page/page.html with the style, the script and the record put in its places.
 *
 * The record is two script elements that no browser runs. `record` is JSON: tokens, numbers of layers and heads, statistics, colours. `cells` is base64 of a
 * zlib stream of bytes, first the codes and then the refinements:
 *   codes: for each layer, head and query in order, one byte a live cell, key by key: the level round(255 √weight);
 *   refinements: for each layer, head and query, one byte for each of the row's four largest codes (ties: the earlier key), in key order: where in the step
 *     that rounds to the code √weight lies, in 256 parts. A refined weight is exact to √weight / 65,000, closer than half precision from .004 upward,
 *     in half the bytes, because the code already holds the rest.
 *   where `visible` is true: for each layer, head and query, one byte a live cell, 1 or 0 where a pattern hides it.
 * Masked cells are not stored: the page knows them from causal and window, as we do. */
#include "record.h"

#include <math.h>
#include <zlib.h>

extern const unsigned char hd_page_html[], hd_page_css[], hd_page_js[];
extern const unsigned hd_page_html_size, hd_page_css_size, hd_page_js_size;

enum { REFINED = 4, CHUNK = 16384 };

typedef struct page {
  hd_out out;
  const heed_record *record;
  int64_t layer, head;
  hd_label *queries, *keys;
  heed_status status; // of the statistics and the compressor
  z_stream stream;
  uint8_t raw[CHUNK]; // on its way into the compressor
  int raw_used;
  uint8_t carry[3]; // bytes that wait for a whole group of base64
  int carried;
} page;

/* ---- cells --------------------------------------------------------------------------------------------------------------- */

static void put_base64(page *p, const uint8_t *bytes, int64_t count, bool last) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int64_t i = 0; i < count || (last && p->carried); i++) {
    int held = i < count;
    if (held) p->carry[p->carried++] = bytes[i];
    if (p->carried < 3 && held) continue;
    uint32_t group = 0;
    for (int k = 0; k < 3; k++) group = group << 8 | (k < p->carried ? p->carry[k] : 0);
    char text[4];
    for (int k = 0; k < 4; k++) text[k] = k <= p->carried ? alphabet[group >> (18 - 6 * k) & 63] : '=';
    hd_out_bytes(&p->out, text, 4);
    p->carried = 0;
  }
}

static void compress_raw(page *p, bool last) {
  uint8_t packed[CHUNK];
  p->stream.next_in = p->raw;
  p->stream.avail_in = (uInt)p->raw_used;
  do {
    p->stream.next_out = packed;
    p->stream.avail_out = sizeof packed;
    deflate(&p->stream, last ? Z_FINISH : Z_NO_FLUSH);
    put_base64(p, packed, (int64_t)(sizeof packed - p->stream.avail_out), false);
  } while (p->stream.avail_out == 0);
  if (last) put_base64(p, NULL, 0, true);
  p->raw_used = 0;
}

static void put_raw(page *p, uint8_t byte) {
  if (p->raw_used == CHUNK) compress_raw(p, false);
  p->raw[p->raw_used++] = byte;
}

static void put_codes(page *p, const float *row, hd_live live) {
  for (int64_t j = live.begin; j < live.end; j++) put_raw(p, (uint8_t)hd_level(row[j]));
}

static uint8_t refinement(float weight) {
  double root = (HD_LEVELS - 1) * sqrt(HD_MIN(HD_MAX((double)weight, 0), 1));
  double part = floor((root - hd_level(weight) + 0.5) * 256);
  return (uint8_t)HD_MIN(HD_MAX(part, 0), 255);
}

static void put_refinements(page *p, const float *row, hd_live live) {
  int64_t key[REFINED];
  int count = 0;
  // Insertion into a list of at most four, kept by code downwards; equal codes keep the order of keys.
  for (int64_t j = live.begin; j < live.end; j++) {
    int at = count;
    while (at > 0 && hd_level(row[key[at - 1]]) < hd_level(row[j])) at--;
    if (at == REFINED) continue;
    if (count < REFINED) count++;
    for (int k = count - 1; k > at; k--) key[k] = key[k - 1];
    key[at] = j;
  }
  for (int64_t j = live.begin; j < live.end; j++)
    for (int k = 0; k < count; k++)
      if (key[k] == j) put_raw(p, refinement(row[j]));
}

static void for_each_row(page *p, void (*put)(page *, const float *, hd_live)) {
  const heed_record *r = p->record;
  for (int64_t l = 0; l < r->layers; l++)
    for (int64_t h = 0; h < r->heads; h++)
      for (int64_t i = 0; i < r->queries && p->out.status == HEED_OK; i++) put(p, hd_record_row(r, l, h, i), hd_record_live(r, l, i));
}

static void put_shown(page *p) {
  const heed_record *r = p->record;
  for (int64_t l = 0; l < r->layers; l++)
    for (int64_t h = 0; h < r->heads; h++)
      for (int64_t i = 0; i < r->queries && p->out.status == HEED_OK; i++) {
        const uint8_t *shown = hd_record_shown(r, l, h, i);
        const hd_live live = hd_record_live(r, l, i);
        for (int64_t j = live.begin; j < live.end; j++) put_raw(p, shown[j] != 0);
      }
}

static voidpf zlib_allocate(voidpf allocator, uInt count, uInt size) { return hd_sized_allocate(allocator, (size_t)count * size); }
static void zlib_release(voidpf allocator, voidpf memory) { hd_sized_release(allocator, memory); }

static void put_cells(page *p) {
  p->stream = (z_stream){.zalloc = zlib_allocate, .zfree = zlib_release, .opaque = &p->out.context->allocator};
  // 15 bits of window and memory level 9: the most that every reader of zlib streams takes.
  if (deflateInit2(&p->stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15, 9, Z_FILTERED) != Z_OK) {
    p->status = hd_fail(p->out.context, HEED_E_MEMORY, "html: out of memory");
    return;
  }
  for_each_row(p, put_codes);
  for_each_row(p, put_refinements);
  if (p->record->visible) put_shown(p);
  compress_raw(p, true);
  deflateEnd(&p->stream);
}

/* ---- the record as JSON -------------------------------------------------------------------------------------------------- */

static void put_text(page *p, const char *name, heed_text text) {
  hd_out_print(&p->out, ",\n\"%s\":", name);
  hd_out_json_string(&p->out, text);
}

static void put_integers(page *p, const char *name, const int64_t *values, int64_t count) {
  hd_out_print(&p->out, ",\n\"%s\":", name);
  for (int64_t i = 0; i < count; i++) hd_out_print(&p->out, "%s%lld", i ? "," : "[", (long long)values[i]);
  hd_out_text(&p->out, "]");
}

static void put_notes(page *p) {
  hd_out_text(&p->out, ",\n\"notes\":");
  for (int64_t l = 0; l < p->record->layers; l++) {
    hd_out_text(&p->out, l ? "," : "[");
    hd_out_json_string(&p->out, p->record->notes[l]);
  }
  hd_out_text(&p->out, "]");
}

/* Labels, and under NAME_space whether a space stands before each, so that the strip can run on like the text. */
static void put_tokens(page *p, const char *name, const heed_text *tokens, const hd_label *labels, int64_t count) {
  hd_out_print(&p->out, ",\n\"%s\":[", name);
  for (int64_t i = 0; i < count; i++) {
    if (i) hd_out_text(&p->out, ",");
    hd_out_json_string(&p->out, (heed_text){labels[i].text, (size_t)labels[i].bytes});
  }
  hd_out_print(&p->out, "],\n\"%s_space\":\"", name);
  for (int64_t i = 0; i < count; i++)
    hd_out_text(&p->out, tokens[i].length > 1 && tokens[i].data[0] == ' ' && labels[i].text[0] != '\xE2' ? "1" : "0");
  hd_out_text(&p->out, "\"");
}

static void put_map(page *p, const char *name, bool dark) {
  hd_rgb map[HD_LEVELS];
  hd_color_map(dark, map);
  hd_out_print(&p->out, ",\n\"%s\":\"", name);
  for (int level = 0; level < HD_LEVELS; level++) hd_out_print(&p->out, "%02x%02x%02x", map[level].r, map[level].g, map[level].b);
  hd_out_text(&p->out, "\"");
}

/* Thousandths: first, previous, self, spread of each head; of cross-attention, first, coverage, monotonicity, spread. */
static void put_stats(page *p) {
  const heed_record *r = p->record;
  hd_out_text(&p->out, ",\n\"stats\":[");
  for (int64_t l = 0; l < r->layers; l++)
    for (int64_t h = 0; h < r->heads; h++) {
      heed_head_stats s = {0};
      if (p->status == HEED_OK) p->status = heed_record_stats(r, l, h, &s);
      hd_out_print(&p->out, "%s%ld,%ld,%ld,%ld", l || h ? "," : "", lrint(1000 * s.first),
                   lrint(1000 * (r->cross ? s.coverage : s.previous)), lrint(1000 * (r->cross ? s.monotonicity : s.self)),
                   lrint(1000 * s.spread));
    }
  hd_out_text(&p->out, "]");
}

static void put_record(page *p) {
  const heed_record *r = p->record;
  hd_out_print(&p->out, "{\"heed\":\"%s\"", heed_version());
  put_text(p, "model", r->model);
  put_text(p, "family", r->family);
  put_text(p, "file", r->file);
  put_text(p, "hash", r->file_hash);
  put_text(p, "command", r->command);
  hd_out_text(&p->out, ",\n\"seconds\":");
  hd_out_number(&p->out, (float)r->seconds, NULL);
  put_integers(p, "model_shape", (int64_t[]){r->model_layers, r->model_heads, r->model_kv_heads}, 3);
  put_integers(p, "layers", r->layer_index, r->layers);
  put_integers(p, "heads", r->head_index, r->heads);
  if (r->window) put_integers(p, "window", r->window, r->layers);
  if (r->notes) put_notes(p);
  if (r->cross) hd_out_text(&p->out, ",\n\"cross\":true");
  if (r->visible) hd_out_text(&p->out, ",\n\"visible\":true");
  hd_out_print(&p->out, ",\n\"causal\":%s,\"layer\":%lld,\"head\":%lld,\"query\":%lld", r->causal ? "true" : "false", (long long)p->layer,
               (long long)p->head, r->has_query ? (long long)r->query : -1LL);
  put_tokens(p, "queries", r->query_tokens, p->queries, r->queries);
  put_tokens(p, "keys", r->key_tokens, p->keys, r->keys);
  put_map(p, "light", false);
  put_map(p, "dark", true);
  put_stats(p);
  hd_out_text(&p->out, "}");
}

/* ---- the page ------------------------------------------------------------------------------------------------------------ */

static void put_title(page *p) { hd_out_escaped(&p->out, p->record->model.data, (int)p->record->model.length); }
static void put_style(page *p) { hd_out_bytes(&p->out, hd_page_css, hd_page_css_size); }
static void put_script(page *p) { hd_out_bytes(&p->out, hd_page_js, hd_page_js_size); }

/* What stands for {{name}} in page.html. */
static const struct {
  const char *name;
  void (*put)(page *);
} places[] = {{"title", put_title}, {"style", put_style}, {"script", put_script}, {"record", put_record}, {"cells", put_cells}};

static const unsigned char *find(const unsigned char *from, const unsigned char *end, const char *what) {
  size_t length = strlen(what);
  for (; from + length <= end; from++)
    if (!memcmp(from, what, length)) return from;
  return NULL;
}

static void put_page(page *p) {
  const unsigned char *at = hd_page_html, *end = at + hd_page_html_size, *open, *close;
  while ((open = find(at, end, "{{")) && (close = find(open, end, "}}"))) {
    hd_out_bytes(&p->out, at, open - at);
    for (int k = 0; k < HD_COUNT(places); k++)
      if ((size_t)(close - open - 2) == strlen(places[k].name) && !memcmp(open + 2, places[k].name, strlen(places[k].name)))
        places[k].put(p);
    at = close + 2;
  }
  hd_out_bytes(&p->out, at, end - at);
}

static heed_status check_all_finite(heed_context *context, const heed_record *record) {
  for (int64_t l = 0; l < record->layers; l++)
    for (int64_t h = 0; h < record->heads; h++) HD_TRY(hd_record_check_finite(context, record, l, h));
  return HEED_OK;
}

heed_status heed_record_html(heed_context *context, const heed_record *given, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_record record;
  hd_arena arena;
  page p = {.record = &record, .layer = layer, .head = head, .status = HEED_OK};
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_record_check_head(context, &record, layer, head));
  HD_TRY(check_all_finite(context, &record));
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_labels(context, &arena, record.query_tokens, record.queries, &p.queries));
  HD_TRY_DONE(hd_labels(context, &arena, record.key_tokens, record.keys, &p.keys));
  hd_out_begin(&p.out, context, sink);
  put_page(&p);
  status = p.status;
  if (status == HEED_OK) status = hd_out_end(&p.out);
done:
  hd_arena_free(&arena);
  return status;
}
