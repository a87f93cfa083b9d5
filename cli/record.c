/* record.c: runs a prompt under a heed_watch and keeps the weights it is shown; or has a target written and keeps what each token was written from.
 *
 * A long prompt runs in chunks, so a layer is shown several times, each time for a range of queries that sees the keys up to its own end; the rows find their
 * place by their first position. */
#define _GNU_SOURCE
#include "record.h"

#include <dirent.h>
#include <errno.h>
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

static heed_status on_layer(void *user, const heed_layer_record *seen) {
  recording *r = user;
  heed_record *record = &r->record;
  if (seen->stage != r->stage) return HEED_OK;
  int64_t layer = place_of(seen->layer, r->layers, record->layers);
  if (r->windows) r->windows[layer] = seen->window;
  record->causal = seen->causal;
  for (int64_t head = 0; head < seen->n_heads; head++) {
    for (int64_t i = 0; i < seen->queries; i++) {
      float *row = r->weights + ((layer * record->heads + head) * record->queries + seen->first + i) * record->keys;
      memcpy(row, seen->weights + (head * seen->queries + i) * seen->keys, (size_t)seen->keys * sizeof *row);
    }
  }
  return interrupted() ? HEED_E_CANCELLED : HEED_OK;
}

static int allocate_weights(const loaded *m, recording *r) {
  heed_record *record = &r->record;
  double bytes = (double)record->layers * (double)record->heads * (double)record->queries * (double)record->keys * sizeof(float);
  double allowed = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 2;
  if (bytes > allowed)
    return error_of(EXIT_NO_MEMORY,
                    "%s: weights too large (%lld layers × %lld heads × %lld × %lld is %.1f GB, allowed %.1f GB; choose fewer with --layers "
                    "and --heads)",
                    m->info.path, (long long)record->layers, (long long)record->heads, (long long)record->queries, (long long)record->keys,
                    bytes / 1e9, allowed / 1e9);
  r->weights = allocate("attention weights", (int64_t)(bytes / sizeof(float)), sizeof(float));
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
                      .record = on_layer,
                      .user = r};
}

int record_run(const loaded *m, const prompt *p, const char *layers, const char *heads, recording *r) {
  heed_session *session = NULL;
  heed_session_options options = {.size = sizeof options};
  heed_record *record = &r->record;
  int code;
  TRY(describe(m, layers, heads, m->info.layers, m->info.heads, r));
  record->model_kv_heads = m->info.kv_heads;
  record->queries = record->keys = p->count;
  record->window = r->windows = allocate("windows", record->layers, sizeof *r->windows);
  TRY(allocate_weights(m, r));
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

static int read_source(const translator *t, const char *source, const char *target, sequences *sources, sequences *targets) {
  char reason[REASON_LENGTH];
  int code = translator_read(t, (heed_text){source, strlen(source)}, sources, reason);
  if (code == EXIT_BAD_FILE && reason[0]) return error_of(EXIT_USAGE, "TEXT: %s", reason);
  if (code != EXIT_OK || !target) return code;
  code = translator_read_target(t, (heed_text){target, strlen(target)}, targets, reason);
  return code == EXIT_BAD_FILE && reason[0] ? error_of(EXIT_USAGE, "TARGET: %s", reason) : code;
}

static int translate(const translator *t, const sequences *sources, const heed_translate_options *options, heed_translations **out) {
  const heed_sources from = sequences_view(sources);
  return check(t->m.context, heed_translate(t->m.context, t->m.model, &from, options, out));
}

/* The target that the model writes by itself. */
static int write_target(const translator *t, const sequences *sources, sequences *targets) {
  heed_translations *all = NULL;
  int code = translate(t, sources, NULL, &all);
  const heed_translation *result = heed_translations_of(all, 0, NULL);
  if (code == EXIT_OK) sequences_add(targets, result->ids, result->count);
  heed_translations_free(all);
  return code;
}

/* All heads in one pass: the decoder reads the start and the target but for its last token, so that row i is what wrote token i. */
static int watch_target(const translator *t, const sequences *sources, const sequences *targets, recording *r) {
  heed_context *context = t->m.context;
  const heed_watch watch = watch_of(r);
  const int64_t count = r->record.queries;
  heed_session *session = NULL;
  int32_t *read = allocate("a target", count, sizeof *read);
  int code;
  r->stage = HEED_STAGE_CROSS;
  read[0] = t->info.start;
  memcpy(read + 1, targets->ids, (size_t)(count - 1) * sizeof *read);
  TRY(check(context, heed_session_new(context, t->m.model, NULL, &session)));
  TRY(check(context, heed_session_source(session, sources->ids, r->record.keys, NULL)));
  TRY(check(context, heed_session_run(session, read, count, NULL, 0, &watch)));
done:
  heed_session_free(session);
  free(read);
  return code;
}

/* A recurrent decoder has one place to look from. */
static int weigh_target(const translator *t, const sequences *sources, const sequences *targets, recording *r) {
  const heed_sources given = sequences_view(targets);
  const heed_translate_options options = {.size = sizeof options, .targets = &given, .want_weights = true};
  heed_translations *all = NULL;
  int code = translate(t, sources, &options, &all);
  if (code == EXIT_OK)
    memcpy(r->weights, heed_translations_of(all, 0, NULL)->weights, (size_t)(r->record.queries * r->record.keys) * sizeof *r->weights);
  heed_translations_free(all);
  return code;
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
  int code;
  *r = (recording){0};
  if (t->info.layers == 0) return error_of(EXIT_UNSUPPORTED, "%s: does not attend, so there is nothing to draw", t->m.info.name);
  TRY(describe(&t->m, layers, heads, t->info.layers, t->info.heads, r));
  double begin = seconds_now();
  TRY(read_source(t, source, target, &sources, &targets));
  if (!target) TRY(write_target(t, &sources, &targets));
  record->cross = true;
  record->queries = targets.begin[1];
  record->keys = sources.begin[1];
  if (record->queries == 0) TRY(error_of(EXIT_BAD_FILE, "%s: writes nothing for this source", t->m.info.name));
  TRY(allocate_weights(&t->m, r));
  record->query_tokens = r->tokens = label_side(t->tokenizers.target, &targets);
  record->key_tokens = r->source = label_side(t->tokenizers.source, &sources);
  TRY(t->m.info.encoder_layers > 0 ? watch_target(t, &sources, &targets, r) : weigh_target(t, &sources, &targets, r));
  record->seconds = seconds_now() - begin;
done:
  sequences_free(&sources);
  sequences_free(&targets);
  return code;
}

void record_free(recording *r) {
  free(r->layers);
  free(r->heads);
  free(r->windows);
  free(r->tokens);
  free(r->source);
  free(r->numbers);
  free(r->weights);
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
