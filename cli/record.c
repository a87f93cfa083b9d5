/* record.c: runs a prompt under a heed_watch and keeps the weights it is shown; or a target beside its source, and keeps what each token was written from.
 *
 * A long prompt runs in chunks, so a layer is shown several times, each time for a range of queries that sees the keys up to its own end; the rows find their
 * place by their first position. */
#define _GNU_SOURCE
#include "record.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The place of a number in an ascending list that holds it. */
static int64_t place_of(int64_t number, const int64_t *list, int64_t count) {
  int64_t at = 0;
  while (at + 1 < count && list[at] != number) at++;
  return at;
}

/* Weights [queries,keys] of a head times the lengths of its values [keys,head_dim]; rows sum to 1 again. */
static void weigh_by_value(const heed_layer_record *seen, const float *values, int64_t head_dim, float *weights) {
  double *lengths = allocate("lengths of values", seen->keys, sizeof *lengths);
  for (int64_t j = 0; j < seen->keys; j++) {
    for (int64_t c = 0; c < head_dim; c++) lengths[j] += (double)values[j * head_dim + c] * (double)values[j * head_dim + c];
    lengths[j] = sqrt(lengths[j]);
  }
  for (int64_t i = 0; i < seen->queries; i++, weights += seen->keys) {
    double sum = 0;
    for (int64_t j = 0; j < seen->keys; j++) sum += (double)weights[j] * lengths[j];
    for (int64_t j = 0; j < seen->keys && sum > 0; j++) weights[j] = (float)((double)weights[j] * lengths[j] / sum);
  }
  free(lengths);
}

/* Layers without a pattern show everything. */
static void keep_visible(recording *r, int64_t layer, const uint8_t *visible) {
  const int64_t cells = r->record.heads * r->record.queries * r->record.keys;
  if (!r->visible) {
    r->visible = allocate("patterns", r->record.layers * cells, 1);
    memset(r->visible, 1, (size_t)(r->record.layers * cells));
    r->record.visible = r->visible;
  }
  memcpy(r->visible + layer * cells, visible, (size_t)cells);
}

static heed_status on_layer(void *user, const heed_layer_record *seen) {
  recording *r = user;
  heed_record *record = &r->record;
  if (seen->stage != r->stage) return HEED_OK;
  const int64_t layer = place_of(seen->layer, r->layers, record->layers), head_cells = record->queries * record->keys;
  if (r->windows) r->windows[layer] = seen->window;
  record->causal = seen->causal;
  if (seen->exact) // stands in a layer of the record of its own, behind what the layer's own implies
    memcpy(r->weights + (layer + 1) * record->heads * head_cells, seen->exact, (size_t)(record->heads * head_cells) * sizeof *r->weights);
  if (seen->visible) keep_visible(r, layer, seen->visible);
  for (int64_t head = 0; head < seen->n_heads; head++) {
    for (int64_t i = 0; i < seen->queries; i++) {
      float *row = r->weights + ((layer * record->heads + head) * record->queries + seen->first + i) * record->keys;
      memcpy(row, seen->weights + (head * seen->queries + i) * seen->keys, (size_t)seen->keys * sizeof *row);
    }
    if (r->by_value) {
      const int64_t kv_head = seen->heads[head] / (record->model_heads / record->model_kv_heads);
      weigh_by_value(seen, seen->v + kv_head * seen->keys * r->head_dim, r->head_dim,
                     r->weights + (layer * record->heads + head) * record->queries * record->keys);
    }
  }
  return interrupted() ? HEED_E_CANCELLED : HEED_OK;
}

static int reserve_weights(const loaded *m, recording *r) {
  heed_record *record = &r->record;
  double bytes = (double)record->layers * (double)record->heads * (double)record->queries * (double)record->keys * sizeof(float);
  double allowed = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 2;
  if (bytes > allowed)
    return error_of(EXIT_NO_MEMORY,
                    "%s: weights too large (%lld layers × %lld heads × %lld × %lld is %.1f GB, allowed %.1f GB; choose fewer with --layers "
                    "and --heads)",
                    m->info.path, (long long)record->layers, (long long)record->heads, (long long)record->queries, (long long)record->keys,
                    bytes / 1e9, allowed / 1e9);
  r->weights = grown("attention weights", r->weights, &r->room, (int64_t)(bytes / sizeof(float)), sizeof(float));
  memset(r->weights, 0, (size_t)bytes);
  record->weights = r->weights;
  return EXIT_OK;
}

static void label_tokens(const loaded *m, const prompt *p, recording *r) {
  r->tokens = allocate("tokens", p->count, sizeof *r->tokens);
  r->numbers = allocate("tokens", p->count, sizeof *r->numbers);
  for (int64_t i = 0; i < p->count; i++) r->tokens[i] = token_text(m->tokenizer, p->ids[i], r->numbers[i]);
  r->record.query_tokens = r->record.key_tokens = r->tokens;
}

/* What a record says of its model, and which layers and heads were chosen. */
static int describe(const loaded *m, const char *layers, const char *heads, int64_t model_layers, int64_t model_heads, recording *r) {
  const heed_model_info *info = &m->info;
  heed_record *record = &r->record;
  int code;
  *r = (recording){0};
  TRY(parse_selection("--layers", "layer", layers ? layers : "all", model_layers, &r->layers, &record->layers));
  TRY(parse_selection("--heads", "head", heads ? heads : "all", model_heads, &r->heads, &record->heads));
  record->size = sizeof *record;
  record->model = (heed_text){info->name, strlen(info->name)};
  record->family = (heed_text){info->family, strlen(info->family)};
  record->file = (heed_text){info->path, strlen(info->path)};
  record->model_layers = model_layers;
  record->model_heads = model_heads;
  record->layer_index = r->layers;
  record->head_index = r->heads;
done:
  return code;
}

static heed_watch watch_of(recording *r) {
  return (heed_watch){.size = sizeof(heed_watch),
                      .n_layers = r->record.layers,
                      .n_heads = r->record.heads,
                      .layers = r->layers,
                      .heads = r->heads,
                      .want_qkv = r->by_value,
                      .record = on_layer,
                      .user = r};
}

/* A layer of linear or LSH attention is shown twice: by the weights that it implies, and by those that exact attention would have. Notes say what is what. */
static void add_exact_layers(const loaded *m, recording *r) {
  heed_record *record = &r->record;
  int64_t *layers = allocate("layers", 2 * record->layers, sizeof *layers), count = 0;
  heed_text *notes = allocate("layers", 2 * record->layers, sizeof *notes);
  bool noted = false;
  for (int64_t i = 0; i < record->layers; i++) {
    bool approximate = false;
    const char *kind = heed_model_attention(m->model, r->layers[i], &approximate);
    const bool full = !strcmp(kind, "full");
    noted |= !full;
    notes[count] = (heed_text){kind, full ? 0 : strlen(kind)};
    layers[count++] = r->layers[i];
    if (!approximate) continue;
    notes[count] = (heed_text){"exact", strlen("exact")};
    layers[count++] = r->layers[i];
  }
  free(r->layers);
  record->layer_index = r->layers = layers;
  record->layers = count;
  r->notes = notes;
  if (noted) record->notes = notes;
}

int record_run(const loaded *m, const prompt *p, const char *layers, const char *heads, recording *r) {
  heed_session *session = NULL;
  heed_session_options options = {.size = sizeof options};
  heed_record *record = &r->record;
  int code;
  TRY(describe(m, layers, heads, m->info.layers, m->info.heads, r));
  record->model_kv_heads = m->info.kv_heads;
  record->queries = record->keys = p->count;
  add_exact_layers(m, r);
  record->window = r->windows = allocate("windows", record->layers, sizeof *r->windows);
  memset(r->windows, 0, (size_t)record->layers * sizeof *r->windows);
  TRY(reserve_weights(m, r));
  label_tokens(m, p, r);
  const heed_watch watch = watch_of(r);
  TRY(check(m->context, heed_session_new(m->context, m->model, &options, &session)));
  double begin = seconds_now();
  TRY(check(m->context, heed_session_run(session, p->ids, p->count, NULL, 0, &watch)));
  record->seconds = seconds_now() - begin;
done:
  heed_session_free(session);
  return code;
}

/* ---- cross-attention ------------------------------------------------------------------------------------------------------- */

int record_begin(const translator *t, const char *layers, const char *heads, bool by_value, recording *r) {
  int code = describe(&t->m, layers, heads, t->info.layers, t->info.heads, r);
  r->record.model_kv_heads = t->m.info.kv_heads;
  r->record.cross = true;
  r->stage = HEED_STAGE_CROSS;
  r->by_value = by_value;
  r->head_dim = t->m.info.head_dim;
  return code;
}

/* All heads in one pass: the decoder reads the start and the target but for its last token, so that row i is what wrote token i. */
static int watch_target(const translator *t, const int32_t *source, const int32_t *target, recording *r) {
  heed_context *context = t->m.context;
  const heed_watch watch = watch_of(r);
  const int64_t count = r->record.queries;
  int32_t *read = allocate("a target", count, sizeof *read);
  int code;
  read[0] = t->info.start;
  memcpy(read + 1, target, (size_t)(count - 1) * sizeof *read);
  if (!r->session) TRY(check(context, heed_session_new(context, t->m.model, NULL, &r->session)));
  TRY(check(context, heed_session_source(r->session, source, r->record.keys, NULL)));
  TRY(check(context, heed_session_run(r->session, read, count, NULL, 0, &watch)));
done:
  free(read);
  return code;
}

/* Where there is one place to look from, its weights are those of the translation. */
static int weigh_target(const translator *t, const int32_t *source, const int32_t *target, recording *r) {
  const int64_t begin[] = {0, r->record.keys}, target_begin[] = {0, r->record.queries};
  const heed_sources from = {source, begin, 1}, given = {target, target_begin, 1};
  const heed_translate_options options = {.size = sizeof options, .targets = &given, .want_weights = true, .by_value = r->by_value};
  heed_translations *all = NULL;
  int code = check(t->m.context, heed_translate(t->m.context, t->m.model, &from, &options, &all));
  if (code == EXIT_OK)
    memcpy(r->weights, heed_translations_of(all, 0, NULL)->weights, (size_t)(r->record.queries * r->record.keys) * sizeof *r->weights);
  heed_translations_free(all);
  return code;
}

int record_pair(const translator *t, const sequences *sources, const sequences *targets, int64_t number, recording *r) {
  const int64_t source = sources->begin[number], target = targets->begin[number];
  r->record.keys = sources->begin[number + 1] - source;
  r->record.queries = targets->begin[number + 1] - target;
  int code = reserve_weights(&t->m, r);
  if (code != EXIT_OK || r->record.queries == 0) return code;
  return (t->info.layers * t->info.heads > 1 ? watch_target : weigh_target)(t, sources->ids + source, targets->ids + target, r);
}

static heed_text *label_side(const heed_tokenizer *tokenizer, const sequences *one) {
  const int64_t count = one->begin[1];
  heed_text *tokens = allocate("tokens", count, sizeof *tokens);
  for (int64_t i = 0; i < count; i++) tokens[i] = heed_token_text(tokenizer, one->ids[i]);
  return tokens;
}

int record_cross(const translator *t, const char *source, const char *target, const char *layers, const char *heads, recording *r) {
  heed_record *record = &r->record;
  sequences sources = {0}, targets = {0};
  examples one;
  int code;
  *r = (recording){0};
  examples_of_texts("TEXT", source, target, &one);
  if (t->info.layers == 0) TRY(error_of(EXIT_UNSUPPORTED, "%s: does not attend, so there is nothing to draw", t->m.info.name));
  TRY(record_begin(t, layers, heads, false, r));
  double begin = seconds_now();
  TRY(translator_read_example(t, &one, one.items, &sources, &targets));
  if (!target) TRY(translator_write(t, &sources, &targets));
  if (targets.begin[1] == 0) TRY(error_of(EXIT_BAD_FILE, "%s: writes nothing for this source", t->m.info.name));
  TRY(record_pair(t, &sources, &targets, 0, r));
  record->query_tokens = r->tokens = label_side(t->tokenizers.target, &targets);
  record->key_tokens = r->source = label_side(t->tokenizers.source, &sources);
  record->seconds = seconds_now() - begin;
done:
  examples_free(&one);
  sequences_free(&sources);
  sequences_free(&targets);
  return code;
}

void record_free(recording *r) {
  free(r->layers);
  free(r->heads);
  free(r->windows);
  free(r->visible);
  free(r->notes);
  free(r->tokens);
  free(r->source);
  free(r->numbers);
  free(r->weights);
  heed_session_free(r->session);
}

/* ---- hash ---------------------------------------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv */
static const uint64_t FNV_BASIS = 0xcbf29ce484222325, FNV_PRIME = 0x100000001b3;

static int hash_file(const char *path, uint64_t *hash) {
  unsigned char buffer[1 << 16];
  FILE *stream = fopen(path, "rb");
  if (!stream) return error_of(EXIT_BAD_FILE, "%s: %s", path, strerror(errno));
  uint64_t h = *hash;
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, stream)) > 0 && !interrupted();)
    for (size_t i = 0; i < got; i++) h = (h ^ buffer[i]) * FNV_PRIME;
  *hash = h;
  int code = ferror(stream) ? error_of(EXIT_BAD_FILE, "%s: %s", path, strerror(errno)) : interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
  fclose(stream);
  return code;
}

static int is_model_part(const struct dirent *entry) {
  const char *suffix = path_suffix(entry->d_name);
  return strcmp(suffix, ".json") == 0 || strcmp(suffix, ".safetensors") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int hash_directory(const char *path, uint64_t *hash) {
  struct dirent **entries;
  int code = EXIT_OK, count = scandir(path, &entries, is_model_part, by_bytes);
  if (count < 0) return error_of(EXIT_BAD_FILE, "%s: %s", path, strerror(errno));
  for (int i = 0; i < count; i++) {
    size_t size = strlen(path) + strlen(entries[i]->d_name) + 2;
    char *name = allocate("a file name", (int64_t)size, 1);
    snprintf(name, size, "%s/%s", path, entries[i]->d_name);
    if (code == EXIT_OK) code = hash_file(name, hash);
    free(name);
    free(entries[i]);
  }
  free(entries);
  return code;
}

int hash_model(const char *path, char hash[HASH_MAX]) {
  struct stat info;
  uint64_t h = FNV_BASIS;
  bool is_directory = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  int code = is_directory ? hash_directory(path, &h) : hash_file(path, &h);
  snprintf(hash, HASH_MAX, "fnv1a64:%016llx", (unsigned long long)h);
  return code;
}
