/* examples.c: pairs that a model is asked about. */
#define _GNU_SOURCE
#include "examples.h"

#include "input.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

static example *add(examples *all, sentence_pair texts, int64_t line) {
  all->items = grown("examples", all->items, &all->room, all->count + 1, sizeof *all->items);
  example *e = &all->items[all->count++];
  *e = (example){.texts = texts, .line = line};
  return e;
}

void examples_free(examples *all) {
  for (int64_t i = 0; i < all->count; i++) {
    free(all->items[i].links);
    if (!all->owns_texts) continue;
    free((char *)all->items[i].texts.source.data);
    free((char *)all->items[i].texts.target.data);
  }
  free(all->items);
  pair_file_free(&all->file);
  *all = (examples){0};
}

int examples_of_file(const char *path, const char *target_path, examples *out) {
  *out = (examples){.path = path, .target_path = target_path};
  int code = pair_file_read(path, target_path, &out->file);
  for (int64_t i = 0; i < out->file.count && code == EXIT_OK; i++) add(out, out->file.pairs[i], i + 1);
  return code;
}

void examples_divide(examples *from, examples *out) {
  int64_t rest = 0;
  *out = (examples){.path = from->path, .target_path = from->target_path};
  for (int64_t i = 0; i < from->count; i++) {
    const example *e = &from->items[i];
    if (i % VALIDATION_EVERY == VALIDATION_EVERY - 1) add(out, e->texts, e->line);
    else from->items[rest++] = *e;
  }
  from->count = rest;
}

static heed_text copy_of(const char *text) {
  const size_t length = strlen(text);
  char *copy = allocate("a text", (int64_t)length + 1, 1);
  memcpy(copy, text, length);
  return (heed_text){copy, length};
}

static void copy_links(example *e, const heed_link *links, int64_t count) {
  free(e->links);
  e->links = allocate("links", count, sizeof *e->links);
  if (count > 0) memcpy(e->links, links, (size_t)count * sizeof *links);
  e->link_count = count;
  e->has_links = true;
}

void examples_of_task(const heed_pair_task *task, uint64_t seed, int64_t count, examples *out) {
  heed_pair *pair = allocate("a pair", 1, sizeof *pair);
  *out = (examples){.path = task->name, .owns_texts = true};
  for (int64_t i = 0; i < count; i++) {
    heed_pair_task_make(task, seed, i, pair);
    example *e = add(out, (sentence_pair){copy_of(pair->source), copy_of(pair->target)}, i + 1);
    if (pair->link_count > 0) copy_links(e, pair->links, pair->link_count);
  }
  free(pair);
}

static heed_text text_of(const char *text) { return text ? (heed_text){text, strlen(text)} : (heed_text){0}; }

void examples_of_texts(const char *name, const char *source, const char *target, examples *out) {
  *out = (examples){.name = name};
  add(out, (sentence_pair){text_of(source), text_of(target)}, 1);
}

int example_wrong(const examples *all, const example *e, bool target, const char *reason) {
  if (all->name) return usage_error("%s: %s", target ? "TARGET" : all->name, reason);
  return error_of(EXIT_BAD_FILE, "%s: line %lld: the %s: %s", target && all->target_path ? all->target_path : all->path, (long long)e->line,
                  target ? "target" : "source", reason);
}

enum { USUAL_COUNT = 2000 };

static void keep_first(examples *all, int64_t count) {
  examples rest = {.items = all->items + count, .count = all->count - count};
  if (rest.count <= 0) return;
  for (int64_t i = 0; i < rest.count; i++) free(rest.items[i].links);
  all->count = count;
}

static void keep_validation(examples *all) {
  examples valid;
  examples_divide(all, &valid);
  free(all->items);
  all->items = valid.items;
  all->count = valid.count;
  all->room = valid.room;
}

int examples_open(heed_context *context, const char *directory, const examples_values *v, uint64_t seed, examples *out) {
  static trained about; // its paths are named in messages
  int code;
  *out = (examples){0};
  if (v->targets && !v->pairs) return usage_error("--targets: goes with --pairs, which names the sources");
  if (!v->pairs) {
    TRY(trained_read(context, directory, &about));
    if (about.is_pair_task) {
      examples_of_task(&about.pair_task, seed, v->count ? v->count : USUAL_COUNT, out);
      return EXIT_OK;
    }
    if (!about.data[0]) return usage_error("--pairs: %s does not say what it was trained on, so a file of pairs is needed", directory);
  }
  const bool apart = v->pairs || about.validation[0]; // a file that training has not seen
  const char *sources = v->pairs ? v->pairs : apart ? about.validation : about.data;
  const char *targets = v->pairs ? v->targets : apart ? about.validation_targets : about.targets;
  TRY(examples_of_file(sources, targets && targets[0] ? targets : NULL, out));
  if (!apart) keep_validation(out);
  if (out->count == 0)
    TRY(error_of(EXIT_BAD_FILE, "%s: too few pairs for one to be for validation (got %lld)", sources, (long long)out->file.count));
  if (v->count) keep_first(out, v->count);
done:
  return code;
}

int examples_read_links(heed_context *context, const char *path, examples *to) {
  char *data = NULL;
  size_t length = 0;
  int64_t line = 0;
  int code;
  TRY(read_whole_file(path, &data, &length));
  for (const char *at = data, *end = data + length; at < end; line++) {
    const char *next = memchr(at, '\n', (size_t)(end - at));
    heed_link *links = NULL;
    int64_t count = 0;
    heed_status status = heed_links_parse(context, (heed_text){at, (size_t)((next ? next : end) - at)}, &links, &count);
    if (status == HEED_E_FORMAT) TRY(error_of(EXIT_BAD_FILE, "%s: line %lld: %s", path, (long long)line + 1, heed_error(context)));
    TRY(check(context, status));
    if (line < to->count) copy_links(&to->items[line], links, count);
    heed_links_free(context, links, count);
    at = next ? next + 1 : end;
  }
  if (line != to->count)
    TRY(error_of(EXIT_BAD_FILE, "%s: has %lld lines, a line for each of the %lld pairs is needed", path, (long long)line,
                 (long long)to->count));
done:
  free(data);
  return code;
}
