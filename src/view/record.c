/* record.c: checks a record once, so that every picture may index it without a thought, and says which of its cells are live. */
#include "record.h"

#include <math.h>
#include <stdio.h>

heed_status hd_record_open(heed_context *context, const heed_record *given, heed_record *out) {
  HD_REQUIRE(given && given->size >= offsetof(heed_record, window) + sizeof given->window, context, HEED_E_ARGUMENT,
             "record: null, or its size field is not set");
  *out = (heed_record){0};
  memcpy(out, given, HD_MIN(given->size, sizeof *out));
  HD_REQUIRE(out->layers > 0 && out->heads > 0 && out->queries > 0 && out->keys > 0, context, HEED_E_SHAPE,
             "record: nothing to draw (layers, heads, queries, keys are %lld, %lld, %lld, %lld; each must be at least 1)",
             (long long)out->layers, (long long)out->heads, (long long)out->queries, (long long)out->keys);
  int64_t cells;
  HD_REQUIRE(hd_mul(out->layers, out->heads, &cells) && hd_mul(cells, out->queries, &cells) && hd_mul(cells, out->keys, &cells) &&
                 hd_mul(cells, sizeof(float), &cells),
             context, HEED_E_OVERFLOW, "record: its weights do not fit in 64 bits");
  HD_REQUIRE(out->weights && out->layer_index && out->head_index && out->query_tokens && out->key_tokens, context, HEED_E_ARGUMENT,
             "record: weights, layer_index, head_index, query_tokens or key_tokens is null");
  const heed_text texts[] = {out->model, out->family, out->file, out->file_hash, out->command};
  for (int i = 0; i < HD_COUNT(texts); i++)
    HD_REQUIRE((texts[i].data || !texts[i].length) && texts[i].length <= INT32_MAX / 16, context, HEED_E_ARGUMENT,
               "record: model, family, file, file_hash or command has %zu bytes and %s", texts[i].length,
               texts[i].data ? "is too long" : "is null");
  for (int64_t i = 0; i < out->queries + out->keys; i++) {
    heed_text token = i < out->queries ? out->query_tokens[i] : out->key_tokens[i - out->queries];
    HD_REQUIRE(token.data || !token.length, context, HEED_E_ARGUMENT, "record: token %lld has a length but no bytes", (long long)i);
    HD_REQUIRE(token.length <= INT32_MAX / 16, context, HEED_E_OVERFLOW, "record: token %lld has %zu bytes", (long long)i, token.length);
  }
  for (int64_t l = 0; out->window && l < out->layers; l++)
    HD_REQUIRE(out->window[l] >= 0, context, HEED_E_ARGUMENT, "record: window[%lld] is %lld", (long long)l, (long long)out->window[l]);
  if (out->has_query)
    HD_REQUIRE(out->query >= 0 && out->query < out->queries, context, HEED_E_ARGUMENT, "record: query %lld of %lld", (long long)out->query,
               (long long)out->queries);
  return HEED_OK;
}

heed_status hd_record_check_head(heed_context *context, const heed_record *record, int64_t layer, int64_t head) {
  HD_REQUIRE(layer >= 0 && layer < record->layers && head >= 0 && head < record->heads, context, HEED_E_ARGUMENT,
             "layer %lld, head %lld: the record holds %lld layers and %lld heads, counted from 0", (long long)layer, (long long)head,
             (long long)record->layers, (long long)record->heads);
  return HEED_OK;
}

hd_live hd_record_live(const heed_record *record, int64_t layer, int64_t query) {
  int64_t position = query + record->keys - record->queries, window = record->window ? record->window[layer] : 0;
  int64_t end = record->causal ? HD_MAX(HD_MIN(position + 1, record->keys), 0) : record->keys;
  int64_t begin = window && window <= position ? position - window + 1 : 0;
  return (hd_live){HD_MIN(begin, end), end};
}

const uint8_t *hd_record_shown(const heed_record *record, int64_t layer, int64_t head, int64_t query) {
  return record->visible ? record->visible + ((layer * record->heads + head) * record->queries + query) * record->keys : NULL;
}

int64_t hd_shown_count(const uint8_t *shown, hd_live live) {
  int64_t count = 0;
  for (int64_t j = live.begin; j < live.end; j++) count += hd_shows(shown, j);
  return count;
}

const float *hd_record_row(const heed_record *record, int64_t layer, int64_t head, int64_t query) {
  return record->weights + ((layer * record->heads + head) * record->queries + query) * record->keys;
}

heed_status hd_record_check_finite(heed_context *context, const heed_record *record, int64_t layer, int64_t head) {
  for (int64_t i = 0; i < record->queries; i++) {
    const float *row = hd_record_row(record, layer, head, i);
    hd_live live = hd_record_live(record, layer, i);
    for (int64_t j = live.begin; j < live.end; j++)
      HD_REQUIRE(isfinite(row[j]), context, HEED_E_ARGUMENT, "layer %lld, head %lld: the weight at row %lld, column %lld is not a number",
                 (long long)record->layer_index[layer], (long long)record->head_index[head], (long long)i, (long long)j);
  }
  return HEED_OK;
}

const char *hd_head_name(const heed_record *record, int64_t layer, int64_t head, char buffer[HD_HEAD_NAME]) {
  const heed_text note = record->notes ? record->notes[layer] : (heed_text){0};
  const bool noted = note.length > 0 && note.length <= HD_NOTE;
  snprintf(buffer, HD_HEAD_NAME, "layer %lld%s%.*s%s, head %lld", (long long)record->layer_index[layer], noted ? " (" : "",
           noted ? (int)note.length : 0, noted ? note.data : "", noted ? ")" : "", (long long)record->head_index[head]);
  return buffer;
}

const char *hd_caption(const heed_record *record) {
  return record->cross ? "Rows are the target, columns the source. Attention weight, square-root scale."
                       : "Rows look, columns are looked at. Attention weight, square-root scale.";
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

const char *hd_model_shape(const heed_record *record, char buffer[HD_SHAPE_NAME]) {
  int used = snprintf(buffer, HD_SHAPE_NAME, "%lld layer%s × %lld head%s", (long long)record->model_layers, plural(record->model_layers),
                      (long long)record->model_heads, plural(record->model_heads));
  if (record->model_kv_heads && record->model_kv_heads != record->model_heads)
    used += snprintf(buffer + used, (size_t)(HD_SHAPE_NAME - used), " (%lld key/value)", (long long)record->model_kv_heads);
  if (record->cross)
    snprintf(buffer + used, (size_t)(HD_SHAPE_NAME - used), " · %lld token%s from %lld", (long long)record->queries,
             plural(record->queries), (long long)record->keys);
  else if (record->queries == record->keys)
    snprintf(buffer + used, (size_t)(HD_SHAPE_NAME - used), " · %lld token%s", (long long)record->keys, plural(record->keys));
  else
    snprintf(buffer + used, (size_t)(HD_SHAPE_NAME - used), " · %lld of %lld tokens looking", (long long)record->queries,
             (long long)record->keys);
  return buffer;
}
