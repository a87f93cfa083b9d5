/* json.c: everything captured, as one JSON object that any reader takes, whatever bytes the tokens have.
 *
 * The numbers are those of the record, masked cells included (they are zero there, so that the array is a plain rectangle; `causal` and `window` say which
 * they are), but those that a pattern hides are null. A number that is not finite has no form in JSON and becomes null too. */
#include "record.h"

#include <math.h>
#include <utf8proc.h>

static bool is_utf8(heed_text text) {
  const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text.data, *end = p + text.length;
  while (p < end) {
    utf8proc_int32_t code;
    utf8proc_ssize_t bytes = utf8proc_iterate(p, end - p, &code);
    if (bytes <= 0) return false;
    p += bytes;
  }
  return true;
}

static void put_name(hd_out *out, const char *name) { hd_out_print(out, ",\n\"%s\": ", name); }

static void put_text(hd_out *out, const char *name, heed_text text) {
  put_name(out, name);
  hd_out_json_string(out, text);
}

static void put_integers(hd_out *out, const char *name, const int64_t *values, int64_t count) {
  put_name(out, name);
  for (int64_t i = 0; i < count; i++) hd_out_print(out, "%s%lld", i ? ", " : "[", (long long)values[i]);
  hd_out_text(out, "]");
}

static void put_hex(hd_out *out, heed_text text) {
  hd_out_text(out, "\"");
  for (size_t i = 0; i < text.length; i++) hd_out_print(out, "%02X", (unsigned char)text.data[i]);
  hd_out_text(out, "\"");
}

/* Tokens as strings; and, where some token is only a part of a character, the bytes of all of them in hexadecimal under NAME_bytes. */
static void put_tokens(hd_out *out, const char *name, const heed_text *tokens, int64_t count) {
  bool whole = true;
  put_name(out, name);
  for (int64_t i = 0; i < count; i++) {
    hd_out_text(out, i ? ", " : "[");
    hd_out_json_string(out, tokens[i]);
    whole = whole && is_utf8(tokens[i]);
  }
  hd_out_text(out, "]");
  if (whole) return;
  hd_out_print(out, ",\n\"%s_bytes\": ", name);
  for (int64_t i = 0; i < count; i++) {
    hd_out_text(out, i ? ", " : "[");
    put_hex(out, tokens[i]);
  }
  hd_out_text(out, "]");
}

static void put_row(hd_out *out, const heed_record *record, int64_t layer, int64_t head, int64_t query) {
  const float *row = hd_record_row(record, layer, head, query);
  const uint8_t *shown = hd_record_shown(record, layer, head, query);
  const hd_live live = hd_record_live(record, layer, query);
  for (int64_t j = 0; j < record->keys; j++) {
    hd_out_text(out, j ? "," : "[");
    hd_out_number(out, j < live.begin || j >= live.end || hd_shows(shown, j) ? row[j] : NAN, NULL);
  }
  hd_out_text(out, "]");
}

static void put_weights(hd_out *out, const heed_record *record) {
  put_name(out, "weights");
  for (int64_t l = 0; l < record->layers; l++) {
    hd_out_text(out, l ? ",\n" : "[\n");
    for (int64_t h = 0; h < record->heads; h++) {
      hd_out_text(out, h ? ",\n" : "[");
      for (int64_t i = 0; i < record->queries; i++) {
        hd_out_text(out, i ? ",\n" : "[");
        put_row(out, record, l, h, i);
      }
      hd_out_text(out, "]");
    }
    hd_out_text(out, "]");
  }
  hd_out_text(out, "]");
}

heed_status heed_record_json(heed_context *context, const heed_record *given, const heed_sink *sink) {
  heed_record record;
  hd_out out;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  hd_out_begin(&out, context, sink);
  hd_out_print(&out, "{\"format\": \"heed attention 1\",\n\"heed\": \"%s\"", heed_version());
  put_text(&out, "model", record.model);
  put_text(&out, "family", record.family);
  put_text(&out, "file", record.file);
  put_text(&out, "file_hash", record.file_hash);
  put_text(&out, "command", record.command);
  put_name(&out, "seconds");
  hd_out_number(&out, (float)record.seconds, NULL);
  put_integers(&out, "model_shape", (int64_t[]){record.model_layers, record.model_heads, record.model_kv_heads}, 3);
  put_integers(&out, "layers", record.layer_index, record.layers);
  put_integers(&out, "heads", record.head_index, record.heads);
  put_integers(&out, "shape", (int64_t[]){record.layers, record.heads, record.queries, record.keys}, 4);
  if (record.notes) {
    put_name(&out, "notes");
    for (int64_t l = 0; l < record.layers; l++) {
      hd_out_text(&out, l ? ", " : "[");
      hd_out_json_string(&out, record.notes[l]);
    }
    hd_out_text(&out, "]");
  }
  put_name(&out, "causal");
  hd_out_text(&out, record.causal ? "true" : "false");
  if (record.cross) {
    put_name(&out, "cross");
    hd_out_text(&out, "true");
  }
  if (record.window) put_integers(&out, "window", record.window, record.layers);
  put_tokens(&out, "query_tokens", record.query_tokens, record.queries);
  put_tokens(&out, "key_tokens", record.key_tokens, record.keys);
  put_weights(&out, &record);
  hd_out_text(&out, "}\n");
  return hd_out_end(&out);
}
