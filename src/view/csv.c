/* csv.c: one head as a table (RFC 4180) with a header row and column of tokens. A masked cell is empty, so that it is not taken for a weight of zero. */
#include "record.h"

static void put_field(hd_out *out, const hd_label *label) {
  hd_out_text(out, "\"");
  for (int i = 0; i < label->bytes; i++) {
    if (label->text[i] == '"') hd_out_text(out, "\"");
    hd_out_bytes(out, &label->text[i], 1);
  }
  hd_out_text(out, "\"");
}

static void write_table(hd_out *out, const heed_record *record, int64_t layer, int64_t head, const hd_label *queries,
                        const hd_label *keys) {
  hd_out_text(out, "\"\"");
  for (int64_t j = 0; j < record->keys; j++) {
    hd_out_text(out, ",");
    put_field(out, &keys[j]);
  }
  hd_out_text(out, "\r\n");
  for (int64_t i = 0; i < record->queries; i++) {
    const float *row = hd_record_row(record, layer, head, i);
    const uint8_t *shown = hd_record_shown(record, layer, head, i);
    hd_live live = hd_record_live(record, layer, i);
    put_field(out, &queries[i]);
    for (int64_t j = 0; j < record->keys; j++) {
      hd_out_text(out, ",");
      if (j >= live.begin && j < live.end && hd_shows(shown, j)) hd_out_number(out, row[j], "nan");
    }
    hd_out_text(out, "\r\n");
  }
}

heed_status heed_record_csv(heed_context *context, const heed_record *given, int64_t layer, int64_t head, const heed_sink *sink) {
  heed_record record;
  hd_arena arena;
  hd_out out;
  hd_label *queries, *keys;
  heed_status status;
  if (!context) return HEED_E_ARGUMENT;
  HD_TRY(hd_record_open(context, given, &record));
  HD_TRY(hd_record_check_head(context, &record, layer, head));
  hd_arena_init(&arena, context);
  HD_TRY_DONE(hd_labels(context, &arena, record.query_tokens, record.queries, &queries));
  HD_TRY_DONE(hd_labels(context, &arena, record.key_tokens, record.keys, &keys));
  hd_out_begin(&out, context, sink);
  write_table(&out, &record, layer, head, queries, keys);
  status = hd_out_end(&out);
done:
  hd_arena_free(&arena);
  return status;
}
